#!/usr/bin/python3
"""supervise_script.py Deaths|Stalls|Models|Ends SERVE_MAIN, Real|Options HEARTH MODEL, or Faults HEARTH MODEL FAULTS_LIB: what becomes of requests, workers and the daemon when a worker
misbehaves or the daemon is told to stop, over HTTP around stub_worker.py, or `hearth serve` with its own worker. Standard library only. Exit 1 if a test fails.

PROTOCOL 6 and FAILURES C1, C8, H1, L1, L2. What needs no HTTP is in test_model_service.c and test_service_deaths.c."""
import hashlib
import http.client
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from random import Random

import side_by_side
from serve_rig import END_IN, GROUP, HERE, MODEL, PATIENCE, SERVE, Daemon, alive, events, post, read_all, sanitized, state_of, text_of, until

STUB = str(HERE / "stub_worker.py")


class Supervised(Daemon):
    """A daemon whose log has times; limits as keyword arguments (serve_main -o)."""

    def __init__(self, *mode, wait=True, argv=None, **limits):
        self.times = []
        super().__init__(*mode, options=[w for k, v in limits.items() for w in ("-o", f"{k}={v}")], wait=wait, argv=argv)

    def read_log(self):
        for line in self.process.stderr:
            self.times.append(time.monotonic())
            self.log.append(line.rstrip())
            if line.startswith("listening on "):
                self.port = int(line.rsplit(":", 1)[1])
                self.listening.set()
        self.listening.set()

    def __exit__(self, kind, *_):
        """A daemon that a test leaves alone ends well (a sanitizer would say otherwise)."""
        if self.process.returncode is None:
            rc, _ = self.end()
            assert rc == 0 or kind, (rc, self.log)

    def when(self, *words):
        """Times of the log lines that hold all the words."""
        return [t for t, line in zip(self.times, self.log) if all(w in line for w in words)]

    def logged(self, *words):
        return len(self.when(*words))

    def logs(self, *words, n=1):
        """Waits for the n-th such line; a client may hear of something before it is logged."""
        return until(lambda: self.logged(*words) >= n)

    def code(self, prompt, **more):
        """What a request that is not streamed gets: "ok", or the code of its error."""
        status, _, body = self.complete(prompt, **more)
        return "ok" if status == 200 else (status, body["error"]["code"])

    def later(self, prompt, **more):
        """Asks on a thread; returns (thread, list that gets the answer)."""
        got = []
        t = threading.Thread(target=lambda: got.append(self.complete(prompt, **more)))
        t.start()
        return t, got

    def saw(self, prompt):
        return until(lambda: prompt in self.seen_prompts())


class Waiting:
    """A request that is answered later, over a socket of its own."""

    def __init__(self, d, prompt, **more):
        self.s = d.raw(post({"prompt": prompt, **more}, extra="Connection: close\r\n"))

    def leave(self):
        self.s.close()

    def answer(self):
        head, _, body = read_all(self.s).partition(b"\r\n\r\n")
        self.s.close()
        return int(head.split()[1]), body.decode()


class Base(unittest.TestCase):
    def assert_ends_with(self, response, code):
        """The rest of a stream: an error event, and no [DONE]."""
        data = events(response)
        self.assertEqual(json.loads(data[-1])["error"]["code"], code, data)


class Deaths(Base):
    def test_death_in_a_reply(self):
        with Supervised("lanes", "1") as d:
            c, r = d.stream("say a gate once die say d")
            whole, got = d.later("gate say b wait 0.2 say e")
            self.assertTrue(d.saw("gate say b wait 0.2 say e"))
            waiting, waited = d.later("say c")
            self.assertTrue(d.has_queued(1))
            d.gate.touch()
            data = events(r)
            self.assertEqual(data[-1], "[DONE]")
            self.assertEqual(text_of([json.loads(x) for x in data[:-1]]), "a d ")
            whole.join()
            waiting.join()
            self.assertEqual(got[0][2]["choices"][0]["text"], "b e ")
            self.assertEqual(waited[0][2]["choices"][0]["text"], "c ")
            self.assertTrue(d.logs("worker=gone", "cause=exit", "exit status 3"), d.log)
            c.close()

    def test_reported_error_keeps_the_worker(self):
        with Supervised() as d:
            self.assertEqual(d.code("error nonfinite"), (500, "nonfinite"))
            c, r = d.stream("say a error internal")
            self.assert_ends_with(r, "internal")
            c.close()
            self.assertEqual(d.code("say b"), "ok")
            self.assertEqual(len(d.worker_pids()), 1)

    def test_broken_protocol(self):
        for word in "garbage", "never", "no_id", "error_no_id", "ready", "accept", "attach":
            with self.subTest(word), Supervised() as d:
                c, r = d.stream(f"say a {word} hang")
                self.assert_ends_with(r, "worker_crashed")
                c.close()
                self.assertEqual(d.code("say b"), "ok")
                self.assertTrue(d.logs("worker=gone", "cause=broken_protocol"), d.log)
                self.assertTrue(d.logs("event=blamed"))
                self.assertTrue(d.logs("worker=started", n=3))  # it was tried once more
                self.assertEqual(len(d.worker_pids()), 3)

    def test_second_terminal_frame(self):
        with Supervised() as d:
            self.assertEqual(d.code("say a stray"), "ok")
            self.assertTrue(d.logs("worker=gone", "cause=broken_protocol"))
            self.assertEqual(d.code("say b"), "ok")

    def test_found_dead_while_idle(self):
        with Supervised() as d:
            os.kill(d.worker_pids()[0], signal.SIGKILL)
            self.assertTrue(d.logs("worker=ready", n=2))
            self.assertTrue(d.logs("signal 9"), d.log)
            self.assertEqual(d.code("say a"), "ok")

    def test_back_off(self):
        """From the end of a worker to the next start it waits 0, 0.25, 0.5, 1 s. (A line may be read long after it was written:
        the times are what the daemon says they are, and in all not less.)"""
        with tempfile.TemporaryDirectory() as t, Supervised("die_if", t + "/flag", respawns=4) as d:
            pathlib.Path(t, "flag").touch()
            begin = time.monotonic()
            os.kill(d.worker_pids()[0], signal.SIGKILL)
            waiting, got = d.later("say never")
            self.assertTrue(d.logs("worker=given_up"))
            self.assertGreaterEqual(time.monotonic() - begin, 1.75)
            waiting.join()
            self.assertEqual((got[0][0], got[0][2]["error"]["code"]), (503, "worker_crashed"))
            waits = [line.split("wait_ms=")[1].split()[0] for line in d.log if "wait_ms=" in line]
            self.assertEqual((d.logged("worker=gone"), len(d.worker_pids()), waits), (5, 5, ["0", "250", "500", "1000"]))
            for _ in range(10):  # at once, and nothing is started, unless the machine let pass more than the time between two tries
                n = len(d.worker_pids())
                self.assertEqual(d.code("say never"), (503, "worker_crashed"))
                if len(d.worker_pids()) == n:
                    break
            else:
                self.fail("each request starts a worker")
            os.remove(t + "/flag")
            self.assertTrue(until(lambda: d.code("say b") == "ok"))  # one who asks later has it tried again
            self.assertNotIn("say never", d.seen_prompts())

    def test_no_start_at_all(self):
        """A single model that cannot be had ends the daemon with its reason."""
        for mode, starts, words in ("load_failed", 1, "blk.0.attn_q.weight"), ("exit", 3, "exit status 5"), ("two_ready", 1, ""):
            d = Supervised(mode, wait=False, respawns=2)
            if mode == "two_ready":  # it was ready for a moment: the daemon stays
                self.assertTrue(d.logs("worker=given_up"), d.log)
                self.assertIsNone(d.process.poll())
            else:
                self.assertEqual(d.process.wait(PATIENCE), 1)
                d.reader.join(PATIENCE)
                self.assertIsNone(d.port)
                self.assertEqual(len(d.worker_pids()), starts)
                self.assertTrue(d.logged("worker=given_up", words), d.log)
            d.end()
            self.assertFalse(any(alive(pid) for pid in d.worker_pids()))

    def test_client_leaves(self):
        """C1: late frames of the cancelled one are dropped, and the worker is told."""
        with Supervised() as d:
            for stream in True, False:
                c = d.raw(post({"prompt": f"late 200 say a{stream} hang", "stream": stream}))
                self.assertTrue(d.saw(f"late 200 say a{stream} hang"))
                c.close()
            self.assertTrue(until(lambda: sum('"cancel"' in line for line in pathlib.Path(d.seen).read_text().splitlines()) == 2))
            self.assertEqual(d.code("say b"), "ok")
            self.assertEqual(len(d.worker_pids()), 1)

    def test_full_pipes(self):
        """4 KiB each way, and a worker that does not read while it writes."""
        with Supervised("serial", "pipes", "4096", "lanes", "16") as d:
            prompt = "many 20 5000 " + "w" * 60000
            asked = [d.later(prompt) for _ in range(24)]
            for t, _ in asked:
                t.join(60)
            self.assertEqual([len(got) and len(got[0][2]["choices"][0]["text"]) for _, got in asked], [100000] * 24)
            self.assertEqual(len(d.worker_pids()), 1)


class Stalls(Base):
    def test_standstill(self):
        with Supervised(stall=3000) as still, Supervised(stall=3000) as frozen:  # side by side: each stands still twice
            for d, (c, r) in (still, still.stream("say a still hang")), (frozen, frozen.stream("say a freeze")):
                self.assert_ends_with(r, "worker_crashed")
                c.close()
                self.assertTrue(d.logs("worker=gone", "cause=stalled"), d.log)
                self.assertEqual(d.code("say b"), "ok")

    def test_progress(self):
        with Supervised(stall=2500) as busy, Supervised(stall=2500) as idle:
            self.assertEqual(idle.code("say a"), "ok")
            self.assertEqual(busy.code("wait 4 say a"), "ok")  # no frame for 4 s, but its counters move
            for d in busy, idle:  # and nothing moves while it is idle
                self.assertEqual(len(d.worker_pids()), 1)

    def test_loading_stands_still(self):
        d = Supervised("stuck", wait=False, stall=300, respawns=1)
        self.assertEqual(d.process.wait(PATIENCE), 1)
        d.reader.join(PATIENCE)
        self.assertEqual(d.logged("cause=stalled"), 2 + 1)  # two workers, and the line that gives up
        d.end()

    def test_time_without_the_daemon(self):
        """The daemon is stopped for longer than the limit: the worker still gets the rest of it."""
        with Supervised(stall=3000) as d:
            begin = time.monotonic()  # it stands still for less than from here
            c, r = d.stream("say a once freeze say b")
            r.readline()
            d.process.send_signal(signal.SIGSTOP)
            stopped = time.monotonic()
            time.sleep(3.2)
            d.process.send_signal(signal.SIGCONT)
            resumed = time.monotonic()
            self.assertEqual(events(r)[-1], "[DONE]")  # with another worker
            self.assertTrue(d.logs("worker=gone", "cause=stalled"), d.log)
            self.assertGreater(d.when("worker=gone")[0] - resumed, 3 - (stopped - begin) - 0.7)
            c.close()

    def test_cancel_grace(self):
        """C8, with a worker that ignores and one that is stopped; another model does not notice."""
        for prompt in "ignore say a hang", "say a freeze":
            with self.subTest(prompt), tempfile.TemporaryDirectory() as t, \
                    Supervised("and", sys.executable, STUB, t + "/seen2", grace=500, stall=60000) as d:
                other, got = d.later("say x gate say y", model="stub-2")
                deaf, r = d.stream(prompt)
                r.readline()
                if "freeze" in prompt:
                    self.assertTrue(until(lambda: state_of(d.worker_pids()[0]) == "T"))
                deaf.sock.shutdown(socket.SHUT_RDWR)
                deaf.close()
                self.assertTrue(d.logs('"stub"', "worker=gone", "cause=cancel_unanswered"), d.log)
                self.assertEqual(d.code("say b", model="stub"), "ok")
                pathlib.Path(t, "gate").touch()
                other.join()
                self.assertEqual(got[0][2]["choices"][0]["text"], "x y ")
                self.assertEqual(d.logged('"stub-2"', "worker=gone"), 0)

    def test_cancel_behind_others(self):
        """What the worker has not read yet it cannot obey: while it reads on, the grace begins when it has."""
        with Supervised("serial", grace=2500, stall=60000) as d:  # less than the 3.2 s until the cancel is read
            others = [d.later("wait 0.4 say a") for _ in range(7)]
            self.assertTrue(until(lambda: metric(d, "hearth_requests_running") == 7))
            leaves = d.raw(post({"prompt": "wait 0.4 say b"}))
            self.assertTrue(until(lambda: metric(d, "hearth_requests_running") == 8))
            leaves.close()
            for thread, got in others:
                thread.join()
                self.assertEqual(got[0][0], 200, got)
            self.assertTrue(until(lambda: metric(d, "hearth_requests_running") == 0))
            self.assertEqual(d.logged("worker=gone"), 0, d.log)
        with Supervised("serial", grace=500, stall=60000) as d:  # one that reads nothing any more
            other, got = d.later("say a once hang")
            self.assertTrue(d.saw("say a once hang"))
            leaves = d.raw(post({"prompt": "say b"}))
            self.assertTrue(until(lambda: metric(d, "hearth_requests_running") == 2))
            leaves.close()
            self.assertTrue(d.logs("worker=gone", "cause=cancel_unanswered"), d.log)
            other.join()
            self.assertEqual(got[0][0], 200, got)  # by the next worker

    def test_frozen_is_not_healthy(self):
        """H1."""
        with Supervised(stall=2 * PATIENCE * 1000) as d:
            os.kill(d.worker_pids()[0], signal.SIGSTOP)
            self.assertTrue(until(lambda: d.ask("GET", "/health")[0] == 503))
            self.assertEqual(d.ask("GET", "/health")[0], 503)  # answered from memory
            rc, seconds = d.end()
            self.assertEqual(rc, 0)
            self.assertLess(seconds, END_IN)
            self.assertFalse(any(alive(pid) for pid in d.worker_pids()))

    def test_deadline_in_the_queue(self):
        with Supervised("lanes", "1") as d:
            busy = [d.later("gate say a") for _ in range(2)]
            self.assertTrue(until(lambda: len(d.seen_prompts()) == 2))
            status, _, body = d.complete("say never", hearth={"deadline_ms": 300})
            self.assertEqual((status, body["error"]["code"]), (504, "timeout"))
            d.gate.touch()
            for t, got in busy:
                t.join()
                self.assertEqual(got[0][0], 200)
            self.assertNotIn("say never", d.seen_prompts())


class Models(Base):
    def test_each_has_its_worker(self):
        with tempfile.TemporaryDirectory() as t, Supervised("and", sys.executable, STUB, t + "/seen2") as d:
            self.assertEqual([m["id"] for m in d.ask("GET", "/v1/models")[2]["data"]], ["stub", "stub-2"])
            self.assertEqual(d.code("say first"), "ok")  # the first is the default
            self.assertEqual(d.code("say second", model="stub-2"), "ok")
            self.assertEqual(d.code("say x", model="stub-3"), (404, "model_not_found"))
            self.assertEqual(d.seen_prompts(), ["say first"])
            self.assertIn("say second", pathlib.Path(t, "seen2").read_text())

    def test_one_dies(self):
        with tempfile.TemporaryDirectory() as t, Supervised("and", sys.executable, STUB, t + "/seen2") as d:
            c, r = d.stream("say a gate say b", model="stub-2")
            for _ in range(3):
                self.assertEqual(d.code("say x die"), (503, "worker_crashed"))
            pathlib.Path(t, "gate").touch()
            self.assertEqual(events(r)[-1], "[DONE]")
            c.close()
            self.assertEqual(d.logged('"stub-2"', "worker=gone"), 0)

    def test_one_cannot_be_loaded(self):
        """L2: the daemon runs without it, and remembers why."""
        with tempfile.TemporaryDirectory() as t:
            pathlib.Path(t, "bad").touch()
            with Supervised("and", sys.executable, STUB, t + "/seen2", "bad_if", t + "/bad") as d:
                begin = time.monotonic()
                answers = [d.complete("say x", model="stub-2") for _ in range(100)]
                if time.monotonic() - begin < 0.9:
                    self.assertTrue(d.logs('"stub-2"', "worker=started"), d.log)
                self.assertLessEqual(d.logged('"stub-2"', "worker=started"), 2 + (time.monotonic() - begin))
                for status, _, body in answers:
                    self.assertEqual((status, body["error"]["code"]), (503, "load_failed"))
                    self.assertIn("blk.0.attn_q.weight", body["error"]["message"])
                self.assertEqual(d.code("say y", model="stub"), "ok")
                os.remove(t + "/bad")
                self.assertTrue(until(lambda: d.code("say z", model="stub-2") == "ok"))

    def test_keys_take_turns(self):
        with tempfile.NamedTemporaryFile("w", suffix=".keys") as f:
            f.write("".join(f"{name} {hashlib.sha256(name.encode()).hexdigest()}\n" for name in ("alice", "bob")))
            f.flush()
            with Supervised("lanes", "1", keys=f.name) as d:
                def ask(key, prompt):
                    return Keyed(d, key, prompt)
                first = [ask("alice", "gate say a") for _ in range(2)]
                self.assertTrue(until(lambda: len(d.seen_prompts()) == 2))
                crowd = []
                for i in range(6):
                    crowd.append(ask("alice", f"say alice{i}"))
                    self.assertTrue(d.has_queued(i + 1))
                bob = ask("bob", "say bob")
                self.assertTrue(d.has_queued(7))
                d.gate.touch()
                for x in first + crowd + [bob]:
                    self.assertEqual(x.answer()[0], 200)
                self.assertEqual([p for p in d.seen_prompts()[2:]],
                                 ["say alice0", "say bob"] + [f"say alice{i}" for i in range(1, 6)])


BASELINE = ("hearth_requests_running", "hearth_requests_queued", "hearth_worker_running", "hearth_worker_queued",
            "hearth_worker_lanes_live")


def metric(d, name, labels="{"):
    """Its sum over all labels."""
    c = http.client.HTTPConnection("127.0.0.1", d.port, timeout=20)
    c.request("GET", "/metrics")
    text = c.getresponse().read().decode()
    c.close()
    return sum(int(float(line.split()[-1])) for line in text.splitlines() if line.startswith(name + (labels or " ")))


class Keyed(Waiting):
    def __init__(self, d, key, prompt):
        self.s = d.raw(post({"prompt": prompt}, extra=f"Connection: close\r\nAuthorization: Bearer {key}\r\n"))


class Ends(Base):
    def finish(self, d):
        rc, seconds = d.end()
        self.assertEqual(rc, 0, d.log)
        self.assertLess(seconds, END_IN, d.log)
        self.assertFalse(any(alive(pid) for pid in d.worker_pids()))

    def test_idle(self):
        for mode, drain in ((), 2 * PATIENCE * 1000), (("deaf",), 1000):  # nothing to wait for; one that does not go
            with Supervised(*mode, drain=drain) as d:
                self.finish(d)

    def test_loading(self):
        for mode in ("stuck",), ("stuck", "deaf"):
            with Supervised(*mode, wait=False) as d:
                self.assertTrue(until(lambda: d.worker_pids()))
                self.finish(d)

    def test_replies_may_finish(self):
        with Supervised("lanes", "1") as d:
            c, r = d.stream("say a gate say b")
            r.readline()
            prefill = Waiting(d, "gate say c")
            self.assertTrue(d.saw("gate say c"))
            queued_one = Waiting(d, "say never")
            self.assertTrue(d.has_queued(1))
            end = threading.Thread(target=self.finish, args=(d,))
            end.start()
            self.assertTrue(d.logs("event=stopping"))
            d.gate.touch()
            data = events(r)
            self.assertEqual(data[-1], "[DONE]")
            status, body = prefill.answer()
            self.assertEqual((status, json.loads(body)["choices"][0]["text"]), (200, "c "))
            status, body = queued_one.answer()
            self.assertEqual((status, json.loads(body)["error"]["code"]), (503, "draining"))
            end.join()
            self.assertNotIn("say never", d.seen_prompts())
            c.close()

    def test_replies_that_do_not_finish(self):
        for mode in (), ("deaf",):
            with Supervised(*mode, drain=500) as d:
                c, r = d.stream("say a ignore hang")
                r.readline()
                prefill = Waiting(d, "ignore hang")
                idle = d.raw()
                unread = d.raw(post({"prompt": "many 3 900000 hang", "stream": True}))
                self.assertTrue(d.saw("ignore hang"))
                self.assertTrue(d.saw("many 3 900000 hang"))
                self.finish(d)
                self.assert_ends_with(r, "draining")
                status, body = prefill.answer()
                self.assertEqual((status, json.loads(body)["error"]["code"]), (503, "draining"))
                self.assertEqual(read_all(idle), b"")
                for s in idle, unread:
                    s.close()
                c.close()

    def test_frozen_worker(self):
        with Supervised(drain=500) as d:
            c, r = d.stream("say a freeze")
            r.readline()
            self.finish(d)
            self.assert_ends_with(r, "draining")
            c.close()

    def test_while_it_waits_for_a_respawn(self):
        with tempfile.TemporaryDirectory() as t, Supervised("die_if", t + "/flag") as d:
            pathlib.Path(t, "flag").touch()
            os.kill(d.worker_pids()[0], signal.SIGKILL)
            self.assertTrue(d.logs("wait_ms=2000"))
            self.finish(d)
            stopping = next(i for i, line in enumerate(d.log) if "event=stopping" in line)
            self.assertFalse(any("worker=started" in line for line in d.log[stopping:]))

    def test_second_signal(self):
        with Supervised("deaf", drain=60000) as d:
            c, r = d.stream("say a ignore hang")
            r.readline()
            d.process.send_signal(signal.SIGTERM)
            self.assertTrue(d.logs("event=stopping"))
            self.finish(d)
            c.close()

    def test_no_new_requests(self):
        with Supervised(drain=2 * PATIENCE * 1000) as d:
            c, r = d.stream("say a gate say b")
            r.readline()
            d.process.send_signal(signal.SIGTERM)
            self.assertTrue(d.logs("event=stopping"))
            with socket.socket() as s:
                self.assertNotEqual(s.connect_ex(("127.0.0.1", d.port)), 0)
            d.gate.touch()
            self.assertEqual(events(r)[-1], "[DONE]")
            c.close()

    def test_no_orphans(self):
        """Two workers, one busy and deaf, and one that loads: gone with the daemon's SIGKILL (they would stay for ever)."""
        with tempfile.TemporaryDirectory() as t:
            d = Supervised("deaf", "and", sys.executable, STUB, t + "/2", "stuck", "deaf", wait=False, stall=60000)
            self.assertTrue(until(lambda: len(d.worker_pids()) == 2))
            pids = d.worker_pids()
            limit = END_IN if sanitized(d.process.pid) else 2
            d.process.kill()
            self.assertTrue(until(lambda: not any(alive(pid) for pid in pids), limit))
            d.end()


class Real(Base):
    """hearth serve and its sandboxed worker; the model makes thousands of tokens, about a second's worth."""
    LONG = {"max_tokens": 4000, "ignore_eos": True, "seed": 3}
    HELD = {**LONG, "n": 8}  # all lanes; as a stream more than daemon and sockets hold: it cannot end unread

    def daemon(self, *options):
        return Supervised(argv=[SERVE, "serve", "-m", MODEL[0], "--port", "0", "--threads", "1", *options])

    def test_killed_in_a_reply(self):
        with self.daemon() as d:
            text = d.complete("Once", **self.LONG)[2]["choices"][0]["text"]
            c, r = d.stream("Once", **self.HELD)
            first = r.readline()
            os.kill(d.worker_pids()[0], signal.SIGKILL)
            data = [first.decode()[6:]] + events(r)
            self.assertEqual(data[-1], "[DONE]")
            self.assertEqual(text_of([json.loads(x) for x in data[:-1]]), text)
            self.assertEqual(d.complete("Once", **self.LONG)[2]["choices"][0]["text"], text)
            self.assertEqual(len(d.worker_pids()), 2)
            c.close()

    def test_stopped_worker(self):
        """C8 and the stall: nobody leaves, and somebody does."""
        for leaves in False, True:
            with self.subTest(leaves), self.daemon("--stall-timeout", "60" if leaves else "2", "--cancel-grace", "0.5") as d:
                c, r = d.stream("Once", **self.HELD)
                r.readline()
                os.kill(d.worker_pids()[0], signal.SIGSTOP)
                if leaves:
                    c.sock.shutdown(socket.SHUT_RDWR)
                else:
                    self.assertEqual(events(r)[-1], "[DONE]")  # goes on with another worker
                self.assertTrue(d.logs("worker=gone", "cause=" + ("cancel_unanswered" if leaves else "stalled")), d.log)
                self.assertEqual(d.code("Once", max_tokens=3), "ok")
                c.close()

    def test_client_leaves(self):
        """C1: the lanes are idle again."""
        with self.daemon() as d:
            for stream in True, False:
                s = d.raw(post({"prompt": "Once", "stream": stream, **self.HELD}))
                self.assertTrue(until(lambda: metric(d, "hearth_worker_running") == 8))
                s.close()
                self.assertTrue(until(lambda: metric(d, "hearth_worker_running") == 0))
            self.assertTrue(until(lambda: metric(d, "hearth_worker_requests_cancelled_total") == 16))
            self.assertEqual(metric(d, "hearth_cancelled_total"), 16)
            self.assertEqual(len(d.worker_pids()), 1)

    def test_a_thousand_requests_with_random_disconnects(self):
        """C6: at the end everything is where it was."""
        def state():
            fds = len(os.listdir(f"/proc/{d.process.pid}/fd"))
            return fds, *(metric(d, name) for name in BASELINE), metric(d, "hearth_http_connections", "")

        def client(numbers):
            random = Random(numbers)
            for _ in range(50):
                stream, leave, n = random.random() < 0.5, random.random() < 0.6, random.randrange(1, most)
                s = d.raw(post({"prompt": "Once", "stream": stream, "max_tokens": n, "ignore_eos": True},
                               extra="Connection: close\r\n"))
                if leave:
                    time.sleep(random.random() * 0.02)
                    s.close()
                else:
                    text = read_all(s)
                    s.close()
                    whole.append(b"200 OK" in text and (b"[DONE]" in text or not stream))

        with self.daemon("--max-queue", "1000") as d:
            whole = []
            most = 60 if sanitized(d.process.pid) else 300  # tokens: about as many as it makes until a client leaves, and more
            before = state()
            threads = [threading.Thread(target=client, args=(i,)) for i in range(20)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            self.assertGreater(len(whole), 300)
            self.assertTrue(all(whole))
            self.assertTrue(until(lambda: state() == before), (before, state()))
            self.assertEqual(len(d.worker_pids()), 1)
            self.assertEqual(d.code("Once", max_tokens=3), "ok")

    def test_end(self):
        with self.daemon("--drain-timeout", "60") as d:
            c, r = d.stream("Once", **self.LONG)
            r.readline()
            d.process.send_signal(signal.SIGTERM)
            self.assertEqual(events(r)[-1], "[DONE]")
            self.assertEqual(d.process.wait(PATIENCE), 0)
            d.end()
            c.close()
        with self.daemon("--drain-timeout", "0") as d:
            c, r = d.stream("Once", **self.HELD)
            r.readline()
            rc, seconds = d.end()
            self.assertEqual(rc, 0)
            self.assertLess(seconds, END_IN)
            self.assert_ends_with(r, "draining")
            self.assertFalse(any(alive(pid) for pid in d.worker_pids()))
            c.close()

    def test_no_orphan(self):
        d = self.daemon()
        c, r = d.stream("Once", **self.HELD)
        r.readline()
        pid = d.worker_pids()[0]
        limit = END_IN if sanitized(d.process.pid) else 2
        d.process.kill()
        self.assertTrue(until(lambda: not alive(pid), limit))
        d.end()
        c.close()


class Options(Base):
    """The command line of hearth serve."""

    def serve(self, *options, wait=True):
        return Supervised(argv=[SERVE, "serve", *options], wait=wait)

    def refused(self, status, words, *options):
        d = self.serve(*options, wait=False)
        self.assertEqual(d.process.wait(PATIENCE), status, options)
        d.reader.join(PATIENCE)
        self.assertTrue(any(words in line for line in d.log), (options, d.log))
        self.assertEqual(d.worker_pids(), [])
        d.end()

    def test_names(self):
        name = pathlib.Path(MODEL[0]).stem
        with self.serve("-m", MODEL[0], "--model", MODEL[0], "-m", MODEL[0], "--port", "0", "--max-sessions", "2", "--no-sandbox") as d:
            models = d.ask("GET", "/v1/models")[2]["data"]
            self.assertEqual([m["id"] for m in models], [name, name + "-2", name + "-3"])
            self.assertEqual([m["hearth"]["lanes"] for m in models], [2, 2, 2])
            self.assertFalse(any("sandboxed" in line for line in d.log))

    def test_worker_cmd(self):
        with tempfile.TemporaryDirectory() as t:
            command = f"{sys.executable}  {STUB} {t}/seen lanes 3"
            with self.serve("--worker-cmd", command, "--port", "0") as d:
                self.assertEqual(d.complete("say x", model="stub")[2]["choices"][0]["text"], "x ")
            with self.serve("--worker-cmd", command, "-m", "a", "-m", "b", "--port", "0") as d:
                self.assertEqual([m["id"] for m in d.ask("GET", "/v1/models")[2]["data"]], ["a", "b"])

    def test_unix_socket(self):
        with tempfile.TemporaryDirectory() as t:
            path = t + "/s"
            for more in (), ("--port", "0"):
                command = [SERVE, "serve", "--unix", path, "--worker-cmd", f"{sys.executable} {STUB} {t}/seen", *more]
                p = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
                said = next(line for line in p.stderr if line.startswith("listening on "))
                self.assertEqual("unix:" in said, not more)
                with socket.socket(socket.AF_UNIX) as s:
                    s.connect(path)
                    s.sendall(post({"prompt": "say x"}, extra="Connection: close\r\n"))
                    self.assertIn(b'"x "', read_all(s))
                p.terminate()
                p.stderr.read()
                self.assertEqual(p.wait(PATIENCE), 0)
                p.stderr.close()
                self.assertFalse(os.path.exists(path))

    def test_refused(self):
        with tempfile.TemporaryDirectory() as t:
            pathlib.Path(t, "keys").write_text("nonsense\n")
            model = ("-m", MODEL[0], "--port", "0")
            for status, words, *options in (
                    (1, "no-such-name", "-m", "no-such-name"), (2, "--port", *model[:2], "--port", "65536"),
                    (2, "--sse-keepalive", *model, "--sse-keepalive", "soon"), (2, "--sse-keepalive", *model, "--sse-keepalive", "0"),
                    (2, "--sse-keepalive-kind", *model, "--sse-keepalive-kind", "x"), (2, "--worker-cmd", "--worker-cmd", " "),
                    (2, "--stall-timeout", *model, "--stall-timeout", "0"), (2, "amx9", *model, "--cpu", "amx9"),
                    (1, "nowhere", *model, "--api-keys", t + "/nowhere"), (1, "line 1", *model, "--api-keys", t + "/keys")):
                self.refused(status, words, *options)


class Faults(Base):
    """System calls that fail as they may (tests/preload), in the daemon and its worker."""

    def daemon(self, *options, **faults):
        """faults: HEARTH_FAULT_… without the prefix. Returns (daemon, what counts were reached: short, EINTR, refused)."""
        counts = tempfile.NamedTemporaryFile()
        env = {"LD_PRELOAD": MODEL[1], "HEARTH_FAULT_COUNTS": counts.name, **{"HEARTH_FAULT_" + k: v for k, v in faults.items()}}
        before = dict(os.environ)
        os.environ.update(env)
        try:
            d = Supervised(argv=[SERVE, "serve", "-m", MODEL[0], "--port", "0", "--threads", "1", *options])
        finally:
            os.environ.clear()
            os.environ.update(before)
        return d, lambda: struct.unpack("<4Q", pathlib.Path(counts.name).read_bytes()[:32])

    def test_short_and_interrupted(self):
        ask = {"max_tokens": 400, "ignore_eos": True, "seed": 3}
        with Supervised(argv=[SERVE, "serve", "-m", MODEL[0], "--port", "0", "--threads", "1"]) as d:
            text = d.complete("Once", **ask)[2]["choices"][0]["text"]
        d, counts = self.daemon(SHORT="7", EINTR="4")
        with d:
            c, r = d.stream("Once", **ask)
            data = events(r)
            self.assertEqual(data[-1], "[DONE]")
            self.assertEqual("".join(json.loads(x)["choices"][0]["text"] for x in data[:-1]), text)
            c.close()
            self.assertEqual(d.complete("Once", **ask)[2]["choices"][0]["text"], text)
            self.assertEqual(d.code("a " * 20000), (400, "context_length_exceeded"))  # a long line to the worker
            self.assertEqual(len(d.worker_pids()), 1)
            self.assertTrue(counts()[0] > 100 and counts()[1] > 100, counts())

    def test_no_process_at_first(self):
        """fork fails twice when the daemon starts, and once more when the worker has died."""
        for call in "fork", "memfd", "pipe":
            with self.subTest(call):
                d, counts = self.daemon(IN="serve", REFUSE=f"{call}:0:2" if call != "pipe" else "pipe:2:2")
                with d:
                    self.assertEqual(d.logged("worker=not_started"), 2, d.log)
                    self.assertEqual(counts()[2], 2)
                    self.assertEqual(d.code("Once", max_tokens=3), "ok")
                    self.assertEqual(len(d.worker_pids()), 1)

    def test_no_process_later(self):
        """Requests that wait get their answer, an HTTP status, while the daemon goes on and tries again."""
        d, counts = self.daemon(IN="serve", REFUSE="fork:1:4")
        with d:
            os.kill(d.worker_pids()[0], signal.SIGKILL)
            self.assertTrue(d.logs("worker=not_started", n=1))
            status, _, body = d.complete("Once", max_tokens=3, stream=True)  # waits; a later try fails, too: there are 1.75 s of them
            self.assertEqual((status, body["error"]["code"]), (503, "worker_crashed"))
            self.assertTrue(until(lambda: counts()[2] == 4))
            self.assertTrue(d.logs("worker=ready", n=2))
            self.assertEqual(d.code("Once", max_tokens=3), "ok")


if __name__ == "__main__":
    if GROUP in ("Stalls", "Ends"):
        sys.exit(not side_by_side.run(globals()[GROUP], 4))
    unittest.main(argv=[sys.argv[0], GROUP])

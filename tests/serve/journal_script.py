#!/usr/bin/python3
"""Requests with an Idempotency-Key over a journal: GROUP SERVE [MODEL [FAULTS]]. A daemon is ended by SIGKILL (or SIGTERM) and
another one begins on the same folder."""
import contextlib
import http.client
import json
import os
import pathlib
import random
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from serve_rig import GROUP, HERE, MODEL, PATIENCE, SERVE, Daemon, accepts, alive, until

REPLAYED = "Idempotent-Replayed"


class Case(unittest.TestCase):
    def setUp(self):
        self.keep = tempfile.TemporaryDirectory()
        self.addCleanup(self.keep.cleanup)
        self.folder = os.path.join(self.keep.name, "journal")

    def stub(self, *mode, **named):
        return Daemon(*mode, journal=self.folder, **named)

    @contextlib.contextmanager
    def killed(self, *mode, **named):
        """A daemon that is killed at the end of the block, and with it its worker."""
        d = self.stub(*mode, **named)
        try:
            yield d
        finally:
            pids = d.worker_pids()
            d.end(signal.SIGKILL)
            for pid in pids:
                self.assertTrue(until(lambda p=pid: not alive(p)), pid)

    def segments(self):
        return sorted(pathlib.Path(self.folder).glob("*.seg"))

    def size(self):
        return sum(p.stat().st_size for p in self.segments())


def raw(d, key, prompt, path="/v1/completions", headers=None, **more):
    """(status, headers, bytes of the body)"""
    c = http.client.HTTPConnection("127.0.0.1", d.port, timeout=PATIENCE)
    body = {"prompt": prompt, **more} if path == "/v1/completions" else more
    c.request("POST", path, json.dumps(body), {"Idempotency-Key": key, **(headers or {})})
    r = c.getresponse()
    data = r.read()
    c.close()
    return r.status, r.headers, data


def later(*args, **more):
    """Asks on a thread: (thread, list that gets the answer; an empty answer if the daemon went)."""
    got = []

    def ask():
        try:
            got.append(raw(*args, **more))
        except (OSError, http.client.HTTPException):
            got.append(None)
    t = threading.Thread(target=ask)
    t.start()
    return t, got


def content(answer):
    """What an answer says, without what is measured."""
    body = json.loads(answer[2])
    for k in [k for k in body["hearth"] if k.endswith("_ms")]:
        del body["hearth"][k]
    return body


def left(d):
    """Which prompts the stub was given."""
    return [line["prompt"] for line in d.seen_lines() if "prompt" in line]


class Once(Case):
    def test_again(self):
        with self.stub() as d:
            first = raw(d, "a", "say one say two")
            self.assertEqual(first[0], 200)
            self.assertIsNone(first[1][REPLAYED])
            for _ in range(3):
                again = raw(d, "a", "say one say two")
                self.assertEqual((again[0], again[1][REPLAYED], again[2]), (200, "true", first[2]))
                self.assertEqual(again[1]["Content-Type"], "application/json")
            self.assertEqual(len(left(d)), 1)
            m = d.metrics()
            self.assertEqual((m["hearth_journal_on"], m["hearth_journal_entries"], m["hearth_journal_unanswered"],
                              m["hearth_journal_replayed_total"]), (1, 1, 0, 3))
            self.assertEqual(m["hearth_tokens_generated_total"], 2)
            self.assertEqual(m["hearth_journal_bytes"], self.size())

    def test_private(self):
        with self.stub() as d:
            raw(d, "a", "say one")
        self.assertEqual(stat.S_IMODE(os.stat(self.folder).st_mode), 0o700)
        for p in pathlib.Path(self.folder).iterdir():
            self.assertEqual(stat.S_IMODE(p.stat().st_mode), 0o600, p)

    def test_another(self):
        """Another body, route, session or model with the key: 422, and what was kept stays."""
        with self.stub() as d:
            first = raw(d, "a", "say one")
            others = [raw(d, "a", "say two"), raw(d, "a", "say one", max_tokens=3), raw(d, "a", "say one", model="stub"),
                      raw(d, "a", "say one", headers={"X-Hearth-Session": "s"}),
                      raw(d, "a", None, path="/v1/chat/completions", messages=[{"role": "user", "content": "say one"}])]
            for status, headers, body in others:
                error = json.loads(body)["error"]
                self.assertEqual((status, error["code"], error["param"], error["type"]),
                                 (422, "idempotency_key_reused", "idempotency-key", "invalid_request_error"))
                self.assertIsNone(headers[REPLAYED])
            self.assertEqual(raw(d, "a", "say one")[2], first[2])
            self.assertEqual(len(left(d)), 1)
            m = d.metrics()
            self.assertEqual(m["hearth_journal_conflicts_total"], 5)
            self.assertEqual(m['hearth_requests_total{route="/v1/completions",status="422"}'], 4)

    def test_routes(self):
        bodies = [("/v1/chat/completions", {"messages": [{"role": "user", "content": "say one"}]}),
                  ("/v1/responses", {"input": "say one"})]
        with self.stub() as d:
            for path, body in bodies:
                first, again = (raw(d, path, None, path=path, **body) for _ in range(2))
                self.assertEqual((first[0], again[0], again[1][REPLAYED]), (200, 200, "true"))
                self.assertEqual(first[2], again[2])

    def test_at_once(self):
        """Who comes while it runs waits for the one answer."""
        with self.stub() as d:
            asked = [later(d, "a", "gate say one") for _ in range(8)]
            self.assertTrue(d.saw(prompt="gate say one"))
            self.assertTrue(until(lambda: d.metrics()["hearth_http_connections"] >= 8))
            self.assertEqual(raw(d, "a", "say other")[0], 422)
            d.gate.touch()
            for t, _ in asked:
                t.join(PATIENCE)
            got = [g[0] for _, g in asked]
            self.assertEqual({g[0] for g in got}, {200})
            self.assertEqual(len({g[2] for g in got}), 1)
            self.assertEqual(sorted(str(g[1][REPLAYED]) for g in got), ["None"] + ["true"] * 7)
            self.assertEqual(len(left(d)), 1)

    def test_leaves(self):
        """A client that leaves does not end it: its answer is there when it comes back."""
        with self.stub() as d:
            c = http.client.HTTPConnection("127.0.0.1", d.port, timeout=PATIENCE)
            c.request("POST", "/v1/completions", json.dumps({"prompt": "gate say one"}), {"Idempotency-Key": "a"})
            self.assertTrue(d.saw(prompt="gate say one"))
            c.close()
            self.assertTrue(until(lambda: d.metrics()["hearth_clients_gone_total"] == 1))
            d.gate.touch()
            self.assertTrue(until(lambda: d.metrics()["hearth_journal_unanswered"] == 0))
            answer = raw(d, "a", "gate say one")
            self.assertEqual((answer[0], answer[1][REPLAYED]), (200, "true"))
            self.assertEqual(json.loads(answer[2])["choices"][0]["text"], "one ")
            self.assertEqual(len(left(d)), 1)
            self.assertEqual(d.metrics()['hearth_choices_total{finish="gone"}'], 0)

    def test_delete(self):
        """DELETE ends it, and what it had is the answer, then and later."""
        with self.stub() as d:
            t, got = later(d, "a", "say one hang", headers={"X-Request-Id": "mine"})
            self.assertTrue(d.saw(prompt="say one hang"))
            self.assertEqual(d.ask("DELETE", "/v1/requests/mine")[0], 200)
            t.join(PATIENCE)
            body = json.loads(got[0][2])
            self.assertEqual((body["choices"][0]["finish_reason"], body["hearth"]["finish"]), ("length", "cancelled"))
            self.assertEqual(raw(d, "a", "say one hang")[2], got[0][2])

    def test_refused(self):
        """What was refused is not kept: the key is free."""
        with self.stub() as d:
            for first, status in [({"prompt": "x", "n": 0}, 400), ({"prompt": "x", "model": "none"}, 404),
                                  ({"prompt": "error context_length_exceeded"}, 400), ({"prompt": "error nonfinite"}, 500),
                                  ({"prompt": "x", "session_id": "/"}, 400)]:
                self.assertEqual(raw(d, "a", **first)[0], status, first)
                self.assertTrue(until(lambda: d.metrics()["hearth_journal_entries"] == 0))
            self.assertEqual(raw(d, "a", "say one")[0], 200)

    def test_names(self):
        with self.stub() as d:
            for name in "", "a b", "x" * 256, "t\xe4g":
                status, _, body = raw(d, name.encode("latin-1"), "say one")
                self.assertEqual((status, json.loads(body)["error"]["param"]), (400, "idempotency-key"), name)
            for name in "x" * 255, '"8e03978e-40d5-43dd-bc93-6894a57f9324"', "!~":
                self.assertEqual(raw(d, name, "say one")[0], 200)
                self.assertEqual(raw(d, name, "say one")[1][REPLAYED], "true")

    def test_streams(self):
        """A stream is answered as without the header, and takes no key."""
        with self.stub() as d:
            for _ in range(2):
                c, r = d.stream("say one", headers={"Idempotency-Key": "a"})
                self.assertEqual((r.status, r.headers[REPLAYED]), (200, None))
                self.assertIn(b"[DONE]", r.read())
                c.close()
            self.assertEqual(d.metrics()["hearth_journal_entries"], 0)
            self.assertEqual(raw(d, "a", "say one")[0], 200)
            c, r = d.stream("say one", headers={"Idempotency-Key": "a"})
            self.assertEqual(r.status, 200)
            c.close()

    def test_keys(self):
        """Each API key has its own names."""
        keys = os.path.join(self.keep.name, "keys")
        pathlib.Path(keys).write_text(
            "ann 2c70e12b7a0646f92279f427c7b38e7334d8e5389cff167a1dc30e73f826b683\n"
            "bob 81b637d8fcd2c6da6359e6963113a1170de795e4b725b84d1e0b4cfd9ec58ce9\n", encoding="ascii")  # of key and bob
        with self.stub(keys=keys) as d:
            ann, bob = ({"Authorization": f"Bearer {k}"} for k in ("key", "bob"))
            one, two = raw(d, "a", "say one", headers=ann), raw(d, "a", "say two", headers=bob)
            self.assertEqual((one[0], two[0]), (200, 200), (one, two))
            self.assertEqual(raw(d, "a", "say one", headers=ann)[2], one[2])
        with self.stub(keys=keys) as d:
            self.assertEqual(raw(d, "a", "say two", headers=bob)[2], two[2])
            self.assertEqual(raw(d, "a", "say one", headers=ann)[2], one[2])
            self.assertEqual(left(d), [])

    def test_without(self):
        """Without a journal the header says nothing."""
        with Daemon() as d:
            for _ in range(2):
                status, headers, _ = raw(d, "not a name", "say one")
                self.assertEqual((status, headers[REPLAYED]), (200, None))
            self.assertEqual(len(left(d)), 2)
            self.assertEqual(d.metrics()["hearth_journal_on"], 0)


class Restarts(Case):
    def test_answered(self):
        with self.killed() as d:
            first = raw(d, "a", "say one")
        with self.killed() as d:
            again = raw(d, "a", "say one")
            self.assertEqual((again[1][REPLAYED], again[2]), ("true", first[2]))
            self.assertEqual(raw(d, "a", "say two")[0], 422)
            self.assertEqual(left(d), [])
        with self.stub() as d:
            self.assertEqual(raw(d, "a", "say one")[2], first[2])

    def test_unanswered(self):
        """Killed while it runs: the next start computes it, unasked, from the same seed at the same time, and once."""
        body = {"prompt": "gate say one request", "seed": None, "temperature": 0.5, "logprobs": 1}
        with self.killed() as d:
            t, got = later(d, "a", **body, headers={"X-Request-Id": "mine"})
            self.assertTrue(d.saw(prompt=body["prompt"]))
            before = d.seen_lines()[0]
        t.join(PATIENCE)
        self.assertEqual(got, [None])
        with self.stub() as d:
            self.assertTrue(d.saw(prompt=body["prompt"]))
            self.assertTrue(until(lambda: d.ask("GET", "/v1/requests/mine")[2]["state"] == "running"))
            waiting = [later(d, "a", **body) for _ in range(3)]
            d.gate.touch()
            for t, _ in waiting:
                t.join(PATIENCE)
            got = [g[0] for _, g in waiting]
            self.assertEqual({(g[0], g[1][REPLAYED]) for g in got}, {(200, "true")})
            self.assertEqual(len({g[2] for g in got}), 1)
            after = d.seen_lines()
            self.assertEqual(len(after), 1)
            self.assertEqual(after[0], before)  # its id, too: call ids come of it
            answer = json.loads(got[0][2])
            self.assertEqual((answer["id"], answer["created"]), ("cmpl-mine", before["now"] // 1000))
            self.assertEqual(answer["hearth"]["seed"], before["seed"] - 1)
            m = d.metrics()
            self.assertEqual((m["hearth_journal_recovered_total"], m["hearth_journal_unanswered"]), (1, 0))
        with self.stub() as d:
            self.assertEqual(raw(d, "a", **body)[2], got[0][2])
            self.assertEqual(left(d), [])

    def test_sampling(self):
        """What the model said of sampling is part of the request."""
        with self.killed("advice") as d:
            later(d, "a", "gate say one")
            self.assertTrue(d.saw(prompt="gate say one"))
            before = d.seen_lines()[0]
            self.assertEqual(before["top_k"], 40)
        with self.stub() as d:
            self.assertTrue(d.saw(prompt="gate say one"))
            self.assertEqual(d.seen_lines()[0]["top_k"], 40)
            d.gate.touch()

    def test_sampling_of_the_next(self):
        """Nothing was known of it: the worker that takes the request says it."""
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        with self.killed("slow", self.keep.name + "/never", port=port, wait=False) as d:
            d.port = port
            self.assertTrue(until(lambda: accepts(port)))
            later(d, "a", "say one")
            self.assertTrue(until(lambda: d.metrics()["hearth_journal_unanswered"] == 1))
        with self.stub("advice") as d:
            self.assertTrue(d.saw(prompt="say one"))
            self.assertEqual((d.seen_lines()[0]["temperature"], d.seen_lines()[0]["top_k"]), (0.7, 40))

    def test_stopped(self):
        """SIGTERM: its client hears of it, the request is kept."""
        with self.stub(drain=100) as d:
            t, got = later(d, "a", "gate say one")
            self.assertTrue(d.saw(prompt="gate say one"))
            d.end()
            t.join(PATIENCE)
            self.assertEqual((got[0][0], json.loads(got[0][2])["error"]["code"]), (503, "draining"))
        with self.stub() as d:
            self.assertTrue(d.saw(prompt="gate say one"))
            d.gate.touch()
            self.assertEqual(raw(d, "a", "gate say one")[0], 200)
            self.assertEqual(len(left(d)), 1)

    def test_finishes_while_stopping(self):
        with self.stub(drain=30000) as d:
            t, got = later(d, "a", "gate say one")
            self.assertTrue(d.saw(prompt="gate say one"))
            d.process.send_signal(signal.SIGTERM)
            self.assertTrue(until(lambda: any("event=stopping" in line for line in d.log)))
            d.gate.touch()
            t.join(PATIENCE)
            d.end()
            self.assertEqual(got[0][0], 200)
        with self.stub() as d:
            self.assertEqual(raw(d, "a", "gate say one")[2], got[0][2])


    def test_deadline(self):
        """A deadline counts from when it was asked."""
        with self.killed() as d:
            later(d, "a", "gate say one", hearth={"deadline_ms": 300})
            self.assertTrue(d.saw(prompt="gate say one"))
        time.sleep(0.4)
        with self.stub("slow", os.path.join(self.keep.name, "go"), wait=False) as d:
            self.assertTrue(until(lambda: any("begin_again" in line for line in d.log)))
            time.sleep(0.2)
            pathlib.Path(self.keep.name, "go").touch()
            self.assertTrue(d.listening.wait(PATIENCE))
            self.assertTrue(until(lambda: d.metrics()["hearth_journal_entries"] == 0))
            self.assertEqual(left(d), [])

    def test_other_model(self):
        """Another arithmetic, another file, or no such model: never computed by what is there now; its answer says so."""
        for named in {"numerics": 8}, {"other": "digest"}, {"other": "name"}:
            self.folder = os.path.join(self.keep.name, str(named))
            two = [sys.executable, str(HERE / "stub_worker.py"), os.path.join(self.keep.name, "s2")]
            model = {"model": "stub-2"} if named.get("other") == "name" else {}
            with self.killed("digest", "ab" * 32, *(("and", *two) if model else ()), numerics=7) as d:
                later(d, "a", "gate say one", **model)
                self.assertTrue(until(lambda: d.metrics()["hearth_journal_unanswered"] == 1))
            digest = "cd" if named.get("other") == "digest" else "ab"
            with self.stub("digest", digest * 32, numerics=named.get("numerics", 7)) as d:
                for _ in range(2):
                    status, headers, body = raw(d, "a", "gate say one", **model)
                    self.assertEqual((status, json.loads(body)["error"]["code"]), (409, "model_changed"), (named, body))
                    self.assertEqual(headers[REPLAYED], "true")
                self.assertEqual(d.metrics()["hearth_tokens_generated_total"], 0)


class Troubles(Case):
    def test_many(self):
        """More than are begun again at once, and than wait in the queue; their order is that in which they came."""
        with self.killed("lanes", "1") as d:
            threads = []
            for i in range(60):
                threads.append(later(d, f"k{i}", f"gate say {i}"))
                self.assertTrue(until(lambda n=i: d.metrics()["hearth_journal_unanswered"] == n + 1))
        for t, _ in threads:
            t.join(PATIENCE)
        with self.stub("lanes", "1", waiting=8) as d:
            d.gate.touch()
            self.assertTrue(until(lambda: d.metrics()["hearth_journal_unanswered"] == 0, 2 * PATIENCE))
            self.assertEqual(len(left(d)), 60)
            for i in range(60):
                self.assertEqual(json.loads(raw(d, f"k{i}", f"gate say {i}")[2])["choices"][0]["text"], f"{i} ")
            self.assertEqual(len(left(d)), 60)

    def test_load_fails(self):
        """A model that cannot be loaded just now does not cost the request."""
        bad = os.path.join(self.keep.name, "bad")
        other = [sys.executable, str(HERE / "stub_worker.py"), os.path.join(self.keep.name, "s2")]
        with self.killed("bad_if", bad, "and", *other) as d:
            later(d, "a", "gate say one")
            self.assertTrue(d.saw(prompt="gate say one"))
        pathlib.Path(bad).touch()
        with self.stub("bad_if", bad, "and", *other) as d:
            status, _, body = raw(d, "a", "gate say one")
            self.assertEqual((status, json.loads(body)["error"]["code"]), (503, "load_failed"))
            self.assertEqual(d.metrics()["hearth_journal_unanswered"], 1)
            os.unlink(bad)
            d.gate.touch()
            self.assertTrue(until(lambda: d.metrics()["hearth_journal_unanswered"] == 0))
            self.assertEqual(raw(d, "a", "gate say one")[1][REPLAYED], "true")

    def test_poison(self):
        """One that takes a worker with it is not begun again for ever; nor is one that takes the daemon with it."""
        with self.killed() as d:
            later(d, "a", "gate say one")
            self.assertTrue(d.saw(prompt="gate say one"))
        for n in range(8):
            with self.killed() as d:
                self.assertTrue(d.saw(prompt="gate say one"), n)
                self.assertTrue(until(lambda: d.metrics()["hearth_journal_recovered_total"] == 1))
        with self.stub() as d:
            self.assertTrue(until(lambda: any("given_up" in line for line in d.log)))
            self.assertTrue(until(lambda: d.metrics()["hearth_journal_entries"] == 0))

    def test_random(self):
        """Killed at any moment while clients repeat what they were not answered: each gets one answer, and always that."""
        rng = random.Random(int(os.environ.get("HEARTH_TEST_SEED", "10")))
        answers, asked = {}, {f"k{i}": f"say {i} many 3 4" for i in range(12)}
        for _ in range(6):
            with self.killed() as d:
                stop = threading.Event()

                def client(key, daemon=d, end=stop):
                    while not end.is_set():
                        try:
                            got = raw(daemon, key, asked[key])
                        except (OSError, http.client.HTTPException):
                            return
                        self.assertEqual(got[0], 200, got)
                        answers.setdefault(key, set()).add(got[2])
                threads = [threading.Thread(target=client, args=(k,)) for k in asked]
                for t in threads:
                    t.start()
                time.sleep(rng.random() * 0.3)
            stop.set()
            for t in threads:
                t.join(PATIENCE)
        with self.stub() as d:
            for key, prompt in asked.items():
                answers.setdefault(key, set()).add(raw(d, key, prompt)[2])
        self.assertEqual({k: len(v) for k, v in answers.items()}, dict.fromkeys(asked, 1))


class Folders(Case):
    def fails_to_start(self, words):
        d = self.stub(wait=False)
        self.assertTrue(d.listening.wait(PATIENCE))
        self.assertEqual(d.end()[0], 1)
        self.assertTrue(any("start_failed" in line and words in line for line in d.log), d.log)

    def test_two_daemons(self):
        with self.stub() as d:
            self.fails_to_start("another daemon uses the journal")
            self.assertEqual(raw(d, "a", "say one")[0], 200)

    def test_no_folder(self):
        self.folder = os.path.join(self.keep.name, "a", "b")
        self.fails_to_start("cannot make the journal's folder")
        self.folder = os.path.join(self.keep.name, "file")
        pathlib.Path(self.folder).write_text("x", encoding="ascii")
        self.fails_to_start("cannot open the journal's folder")

    @unittest.skipIf(os.geteuid() == 0, "root may write everywhere")
    def test_read_only(self):
        os.mkdir(self.folder, 0o500)
        self.fails_to_start("cannot write in the journal's folder")

    def test_read_only_file(self):
        """As root too: the lock is a folder."""
        os.makedirs(os.path.join(self.folder, "lock"))
        self.fails_to_start("cannot write in the journal's folder")

    def test_later_version(self):
        os.mkdir(self.folder, 0o700)
        pathlib.Path(self.folder, "0000000000000001.seg").write_bytes(b"HEARTHJ2" + b"\1" + bytes(7))
        self.fails_to_start("written by another version")
        self.assertEqual(len(self.segments()), 1)

    def test_damage(self):
        """A torn end, and a flipped byte: what is good is there, the rest is counted and asked anew."""
        with self.killed() as d:
            first = [raw(d, f"k{i}", f"say {i}")[2] for i in range(4)]
        path, = self.segments()
        data = bytearray(path.read_bytes())
        at = data.rindex(b'"text":"1 "')
        data[at + 9] ^= 1
        path.write_bytes(data[:-5])
        with self.stub() as d:
            self.assertTrue(any("event=damaged bad_records=1 cut_segments=1" in line for line in d.log), d.log)
            self.assertEqual(d.metrics()["hearth_journal_bad_total"], 2)
            self.assertTrue(until(lambda: d.metrics()["hearth_journal_unanswered"] == 0))
            for i in 0, 2:
                self.assertEqual(raw(d, f"k{i}", f"say {i}")[2], first[i])
            for i in 1, 3:  # the question is still there
                got = raw(d, f"k{i}", f"say {i}")
                self.assertEqual(got[0], 200)
                self.assertEqual(json.loads(got[2])["hearth"]["seed"], json.loads(first[i])["hearth"]["seed"])
            self.assertEqual(sorted(left(d)), ["say 1", "say 3"])

    def test_bad_meanwhile(self):
        """The file is damaged or removed under the daemon."""
        with self.stub() as d:
            raw(d, "a", "say one")
            raw(d, "b", "say two")
            path, = self.segments()
            data = bytearray(path.read_bytes())
            data[data.rindex(b'"text":"one "') + 10] ^= 1
            with open(path, "r+b") as f:
                f.write(data)
            self.assertEqual(raw(d, "a", "say one")[0], 503)
            self.assertEqual(raw(d, "a", "say one")[0], 200)
            os.unlink(path)
            self.assertEqual(raw(d, "b", "say two")[0], 503)
            self.assertEqual(raw(d, "b", "say two")[0], 200)

    def test_bounded(self):
        """Old answers make room for new ones, on disk too."""
        limit = 1 << 20
        with self.stub(journal_bytes=limit) as d:
            for i in range(120):
                self.assertEqual(raw(d, f"k{i}", "many 8 4000", user=f"{i}")[0], 200)
                self.assertLess(self.size(), 2 * limit)
            m = d.metrics()
            self.assertLess(m["hearth_journal_entries"], 120)
            self.assertEqual(raw(d, "k119", "many 8 4000", user="119")[1][REPLAYED], "true")
            self.assertIsNone(raw(d, "k0", "many 8 4000", user="0")[1][REPLAYED])
        with self.stub(journal_bytes=limit) as d:
            self.assertEqual(raw(d, "k119", "many 8 4000", user="119")[1][REPLAYED], "true")
            self.assertLess(self.size(), 2 * limit)

    def test_full_of_questions(self):
        with self.stub(journal_bytes=1 << 20) as d:
            asked = [later(d, f"k{i}", "gate say one", user="x" * 200000) for i in range(2)]
            self.assertTrue(until(lambda: d.metrics()["hearth_journal_unanswered"] == 2))
            status, headers, body = raw(d, "k2", "gate say one", user="x" * 200000)
            self.assertEqual((status, json.loads(body)["error"]["code"], headers["Retry-After"]),
                             (503, "journal_unavailable", "10"))
            self.assertEqual(raw(d, "k3", "say one", user="x" * 400000)[0], 413)
            d.gate.touch()
            for t, got in asked:
                t.join(PATIENCE)
                self.assertEqual(got[0][0], 200)
            self.assertEqual(raw(d, "k2", "gate say one", user="x" * 200000)[0], 200)


class Real(Case):
    """Around a model that computes; FAULTS makes its disk full."""

    def hearth(self, **env):
        cache = os.path.join(self.keep.name, "cache")
        os.makedirs(cache, exist_ok=True)
        argv = [SERVE, "serve", "-m", MODEL[0], "-p", "0", "-t", "1", "--no-store", "--journal", self.folder]
        if env:
            argv = ["env", *(f"{k}={v}" for k, v in env.items()), *argv]
        return Daemon(argv=argv, cache=cache)

    BODY = {"max_tokens": 3000, "ignore_eos": True, "temperature": 1, "repetition_guard": 0}

    def test_killed(self):
        """The answer after a SIGKILL is the one that it would have been, tokens and all."""
        with self.hearth() as d:
            alone = raw(d, "alone", "once", seed=77, **self.BODY)
            self.assertEqual(alone[0], 200)
        d = self.hearth()
        t, got = later(d, "a", "once", seed=77, **self.BODY)
        self.assertTrue(until(lambda: d.ask("GET", "/metrics")[2] and d.metrics()["hearth_journal_unanswered"] == 1))
        d.end(signal.SIGKILL)
        t.join(PATIENCE)
        self.assertEqual(got, [None])
        with self.hearth() as d:
            self.assertTrue(until(lambda: d.metrics()["hearth_journal_recovered_total"] == 1))
            answer = raw(d, "a", "once", seed=77, **self.BODY)
            self.assertEqual(answer[0], 200)
            same = content(answer)
            want = content(alone)
            for k in "choices", "usage", "model":
                self.assertEqual(same[k], want[k], k)
            self.assertEqual(raw(d, "a", "once", seed=77, **self.BODY)[2], answer[2])

    @unittest.skipIf(len(MODEL) < 2, "no faults under a sanitizer")
    def test_disk_full(self):
        """Nothing is promised that cannot be kept: 503, one warning; who asks for no promise is served."""
        counts = os.path.join(self.keep.name, "counts")
        with self.hearth(LD_PRELOAD=MODEL[1], HEARTH_FAULT_SPACE="3000", HEARTH_FAULT_IN="serve",
                         HEARTH_FAULT_COUNTS=counts) as d:
            kept, refused = {}, 0
            for i in range(20):
                status, headers, body = raw(d, f"k{i}", f"{i}", max_tokens=2)
                if status == 200:
                    kept[i] = body
                else:
                    refused += 1
                    self.assertEqual((status, json.loads(body)["error"]["code"]), (503, "journal_unavailable"))
                    self.assertEqual(headers["Retry-After"], "10")
            self.assertGreater(len(kept), 0)
            self.assertGreater(refused, 10)
            self.assertEqual(sum("event=off" in line for line in d.log), 1, d.log)
            self.assertEqual(d.metrics()["hearth_journal_on"], 0)
            self.assertEqual(d.complete("x", max_tokens=2)[0], 200)
            self.assertEqual(raw(d, "k0", "0", max_tokens=2)[2], kept[0])
            d.end(signal.SIGKILL)
        with self.hearth() as d:
            self.assertEqual(raw(d, "k0", "0", max_tokens=2)[2], kept[0])
            for i, body in kept.items():  # the last answer may not have been written: the same again
                answer = raw(d, f"k{i}", f"{i}", max_tokens=2)
                self.assertEqual(json.loads(answer[2])["choices"], json.loads(body)["choices"])
            self.assertEqual(raw(d, "new", "x", max_tokens=2)[0], 200)

    def test_command_line(self):
        for value in "", "x" * 5000:
            done = subprocess.run([SERVE, "serve", "-m", MODEL[0], "--journal", value], capture_output=True, text=True,
                                  timeout=PATIENCE, check=False)
            self.assertEqual(done.returncode, 2)
            self.assertIn("--journal: the path is", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[len(sys.argv):], GROUP], verbosity=2)

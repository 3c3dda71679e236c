#!/usr/bin/python3
"""failures_script.py Clients|Watched|Broken HEARTH EMBER: what FAILURES C1, C3, C6, C8, H1, H2 and L2 say, with `hearth serve` and the
real worker. Standard library only. What is cancelled in which state, and L1, are in cancel_script.py."""
import http.client
import json
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import unittest

from cancel_rig import GONE_IN, Ask, Served
from serve_rig import END_IN, GROUP, MODEL, PATIENCE, events, until

EMBER = MODEL[0]
SLOW = END_IN / 5  # 1, and more under a sanitizer
AT_REST = ("requests_running", "requests_queued", "generations_live", "worker_running", "worker_queued", "worker_pages_used",
           "worker_lanes_live")
LONG = {"prompt": "Once upon a time", "max_tokens": 1900, "ignore_eos": True, "temperature": 1, "seed": 5}
CLIENT = """
import json, sys, urllib.request
body = json.dumps(json.loads(sys.argv[2])).encode()
r = urllib.request.urlopen(urllib.request.Request(sys.argv[1], body, {"Content-Type": "application/json", "X-Request-Id": "c"}))
while r.read(1):
    pass
"""


def ember(*options):
    return Served("-m", EMBER, "--threads", "1", *options)


def at_rest(d):
    return until(lambda: all(d.numbers()[k] == 0 for k in AT_REST))


def prompt(n, salt=0):
    return [97 + (salt + k * k * 7) % 26 for k in range(n)]


class Clients(unittest.TestCase):
    def test_killed(self):
        """C1: a program that dies in its reply, streamed or not."""
        for stream in True, False:
            with self.subTest(stream=stream), ember() as d:
                client = subprocess.Popen([sys.executable, "-c", CLIENT, f"http://127.0.0.1:{d.port}/v1/completions",
                                           json.dumps({**LONG, "n": 2, "stream": stream})])
                self.assertTrue(until(lambda: d.number("worker_tokens_generated_total") > 20))
                client.kill()
                killed = time.monotonic()
                client.wait()
                self.assertTrue(until(lambda: d.number("worker_lanes_live") == 0))
                self.assertLess(time.monotonic() - killed, GONE_IN + 1)
                n = d.number("worker_tokens_generated_total")
                self.assertLess(n, 2 * LONG["max_tokens"])
                time.sleep(0.2)
                m = d.numbers()
                self.assertEqual(m["worker_tokens_generated_total"], n)
                self.assertEqual((m["cancelled_total"], m["worker_requests_cancelled_total"], m["clients_gone_total"]), (2, 2, 1))
                self.assertEqual(d.ask("GET", "/v1/requests/c")[2]["state"], "gone")
                self.assertTrue(at_rest(d))

    def test_half_closed(self):
        """C2: one that only shut its write side is alive, streamed or not, waiting or not."""
        with ember("--max-sessions", "1") as d:
            asks = [Ask(d, f"{i}", {"prompt": "a", "max_tokens": 300, "ignore_eos": True, "seed": i, "stream": i % 2 == 0})
                    for i in range(6)]
            for a in asks:
                a.s.shutdown(socket.SHUT_WR)
            for a in asks:
                self.assertEqual(a.ending()[1:], ("length", "length"))
            self.assertEqual(d.number("cancelled_total"), 0)

    def test_impatient(self):
        """C3: a prompt that takes longer than its client waits, asked for again and again: each time it starts further on, and
        no token is computed twice."""
        n = 1600
        ask = {"prompt": prompt(n), "max_tokens": 3, "ignore_eos": True, "temperature": 0}
        with ember() as d:
            want = d.complete(**ask)[2]["choices"][0]["text"]
        with ember() as d:
            other = Ask(d, "other", LONG)  # chunks are small beside it
            self.assertTrue(until(lambda: other.said() > 0))
            mine = lambda: d.number("worker_tokens_prefilled_total") - other_prompt
            other_prompt, reused = d.number("worker_tokens_prefilled_total"), []
            for i in range(4):
                before = mine()
                a = Ask(d, f"try-{i}", {**ask, "stream": i % 2 == 0})
                self.assertTrue(until(lambda: mine() >= min(before + 200, n)))
                a.leave()
                self.assertTrue(until(lambda: a.about()["state"] == "gone" and d.number("worker_running") == 1))
                reused.append(d.number("worker_tokens_reused_total"))
            status, _, body = d.complete(**ask)
            self.assertEqual((status, body["choices"][0]["text"]), (200, want))
            self.assertEqual(reused, sorted(set(reused)))
            cached = body["usage"]["prompt_tokens_details"]["cached_tokens"]
            self.assertGreater(cached, 0)
            self.assertLessEqual(mine(), n + 5)  # the last one of a whole prompt is always computed
            self.assertGreaterEqual(mine(), n)
            other.leave()
            self.assertTrue(at_rest(d))

    def test_turn_dropped(self):
        """C6: turn 1 of a session is dropped in the middle, turn 2 is there within 5 ms, and the session is whole after it."""
        def turn(name, text, **more):
            return {"prompt": text, "temperature": 0, "ignore_eos": True, "session_id": name, **more}
        with ember() as d:
            first = d.complete(**turn("quiet", "Once upon a time", max_tokens=60))[2]["choices"][0]["text"]
            text = "Once upon a time" + first[:40]
            second = d.complete(**turn("lone", text, max_tokens=30))[2]["choices"][0]["text"]
            for i in range(5):
                a = Ask(d, f"first-{i}", turn("s", "Once upon a time", max_tokens=1500, stream=True))
                self.assertTrue(until(lambda: a.said() > 5))
                a.leave()
                left = time.monotonic()
                b = Ask(d, f"second-{i}", turn("s", text, max_tokens=30))
                self.assertLess(b.sent - left, SLOW)
                self.assertEqual(b.ending(), (second, "length", "length"))
                again = d.complete(**turn("s", text + second, max_tokens=5))[2]
                self.assertIn(again["hearth"]["session_reset_reason"], ("exact_prefix", "prefix", "equal", "mismatch"))
                self.assertEqual(again["choices"][0]["text"], d.complete(**turn("other", text + second, max_tokens=5))[2]["choices"][0]["text"])
            self.assertTrue(until(lambda: d.number("requests_running") == 0))


class Watched(unittest.TestCase):
    def test_long_prefill(self):
        """H2: minutes of prefill (the reference kernels take some 30 ms a token): whoever asks is answered at once, from memory, and
        no watchdog takes it for a standstill."""
        paths = "/health", "/ready", "/metrics", "/v1/sessions", "/v1/models", "/v1/requests/long", "/v1/sessions/s"
        took = {path: [] for path in paths}
        with ember("--cpu", "ref", "--stall-timeout", str(2 * SLOW)) as d:
            a = Ask(d, "long", {"prompt": prompt(1900), "max_tokens": 1, "session_id": "s"})
            self.assertTrue(until(lambda: d.number("worker_phase") == 4))
            line = http.client.HTTPConnection("127.0.0.1", d.port, timeout=PATIENCE)
            begin, prefilled = time.monotonic(), [d.number("worker_tokens_prefilled_total")]
            while time.monotonic() - begin < 5 * SLOW:
                for path in paths:
                    asked = time.monotonic()
                    line.request("GET", path)
                    r = line.getresponse()
                    r.read()
                    took[path].append(time.monotonic() - asked)
                    self.assertEqual(r.status, 200, path)
                prefilled.append(d.number("worker_tokens_prefilled_total"))
                self.assertEqual(d.number("worker_phase"), 4)
                time.sleep(0.05)
            line.close()
            for path, times in took.items():
                self.assertGreater(len(times), 20, path)
                self.assertLess(statistics.median(times), 0.05 * SLOW, path)
                self.assertLess(max(times), 1 * SLOW, path)
            self.assertEqual((d.number("worker_deaths_total"), len(d.worker_pids())), (0, 1))
            self.assertEqual(prefilled, sorted(prefilled))
            self.assertGreater(prefilled[-1], prefilled[0])
            self.assertEqual(a.about()["state"], "running")
            a.leave()
            self.assertTrue(at_rest(d))

    def test_frozen(self):
        """H1: health says so within the stall limit, while the worker is still there; then it is killed, and the reply goes on. C8:
        the other model does not notice."""
        ask = {"prompt": "a", "max_tokens": 400, "ignore_eos": True, "seed": 3, "temperature": 1}
        with Served("-m", EMBER, "-m", EMBER, "--threads", "1", "--stall-timeout", str(3 * SLOW)) as d:
            want = d.complete(**ask)[2]["choices"][0]["text"]
            a = Ask(d, "a", {**ask, "model": "ember"})
            self.assertTrue(until(lambda: a.said() > 10))
            pid = d.worker_pids()[0]
            os.kill(pid, signal.SIGSTOP)
            frozen = time.monotonic()
            self.assertTrue(until(lambda: d.ask("GET", "/v1/models/ember")[2]["hearth"]["status"] == "stalled"))
            self.assertLess(time.monotonic() - frozen, 3 * SLOW)
            self.assertEqual(d.complete(**ask, model="ember-2")[2]["choices"][0]["text"], want)
            self.assertTrue(d.logs("worker=gone", "cause=stalled"), d.log)
            self.assertEqual(a.ending(), (want, "length", "length"))
            self.assertTrue(until(lambda: d.ask("GET", "/health")[0] == 200))
            self.assertEqual(d.logged('"ember-2"', "worker=gone"), 0)


class Broken(unittest.TestCase):
    def test_corrupt(self):
        """L2: a file that cannot be read is asked for 100 times: it is tried now and then, the reason is told from memory, and the
        model beside it works."""
        data = bytearray(pathlib.Path(EMBER).read_bytes())
        with tempfile.TemporaryDirectory() as t:
            pathlib.Path(t, "cut.gguf").write_bytes(data[:len(data) // 2])
            with Served("-m", EMBER, "-m", t + "/cut.gguf", "--threads", "1") as d:
                begin = time.monotonic()
                c, r = d.stream("a", max_tokens=300, ignore_eos=True)
                for i in range(100):
                    status, _, body = d.complete("a", model="cut", stream=i % 2 == 0)
                    self.assertEqual((status, body["error"]["code"]), (503, "load_failed"))
                    self.assertIn("tensor", body["error"]["message"])
                self.assertEqual(events(r)[-1], "[DONE]")
                c.close()
                self.assertLessEqual(d.logged('"cut"', "worker=started"), 2 + (time.monotonic() - begin))
                self.assertEqual(d.logged('"ember"', "worker=gone"), 0)
                status, _, body = d.ask("GET", "/health")
                self.assertEqual(d.complete("a", model="ember", max_tokens=3)[0], 200)
                pathlib.Path(t, "cut.gguf").write_bytes(data)  # it is there after all
                self.assertTrue(until(lambda: d.complete("a", model="cut", max_tokens=3)[0] == 200))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], GROUP])

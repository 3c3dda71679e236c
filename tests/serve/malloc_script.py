#!/usr/bin/python3
"""malloc_script.py Serve HEARTH MODEL HEARTH_FAULTY_MALLOC.so [FROM TO]: `hearth serve` in whose process malloc fails now and then, for
whatever library calls it. A client gets its reply, an error in the API's shape, or a closed connection; the daemon lives, and its
worker too, which has done nothing wrong."""
import http.client
import json
import mmap
import os
import pathlib
import struct
import sys
import threading
import unittest

from serve_rig import MODEL, PATIENCE, SERVE, Daemon, until

SEEDS = range(int(MODEL[2]), int(MODEL[3]) + 1) if len(MODEL) > 3 else range(1, 21)
ONE_IN = (40, 150, 600)
ASK = {"prompt": "Once upon a time", "max_tokens": 12, "seed": 3, "ignore_eos": True}
CHAT = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8, "seed": 3}
HEADERS = {"Content-Type": "application/json"}
REQUESTS = [
    ("POST", "/v1/completions", ASK), ("POST", "/v1/completions", {**ASK, "stream": True}), ("POST", "/v1/completions", {**ASK, "n": 3}),
    ("POST", "/v1/completions", {**ASK, "logprobs": 2, "stop": ["zz"], "stream": True}),
    ("POST", "/v1/chat/completions", CHAT), ("POST", "/v1/chat/completions", {**CHAT, "stream": True}), ("POST", "/v1/responses", {"input": "Hi", "max_output_tokens": 8}),
    ("POST", "/tokenize", {"content": "some text"}), ("POST", "/detokenize", {"tokens": [65, 66]}), ("POST", "/apply-template", CHAT),
    ("GET", "/v1/models", None), ("GET", "/health", None), ("GET", "/metrics", None), ("POST", "/v1/completions", {"prompt": 3}),
    ("GET", "/v1/sessions/s", None), ("DELETE", "/v1/requests/none", None), ("GET", "/nothing", None),
]


def ask(port, method, path, body):
    """(status, text), or None where the connection ended before there was a whole answer."""
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        c.request(method, path, json.dumps(body) if body else None, HEADERS)
        r = c.getresponse()
        return r.status, r.read().decode()
    except TimeoutError:
        return 0, "nothing came"
    except (OSError, http.client.HTTPException):
        return None
    finally:
        c.close()


def lasting(answer):
    """What is the same each time."""
    status, text = answer
    if "data: " in text:
        parts = [json.loads(x[6:]) for x in text.split("\n\n") if x.startswith("data: {")]
        return status, ["".join(c.get("text") or c.get("delta", {}).get("content") or "" for c in p.get("choices", ())) for p in parts if p.get("choices")]
    try:
        body = json.loads(text)
    except ValueError:
        return status, None
    return status, [c.get("text", c.get("message")) for c in body["choices"]] if "choices" in body else sorted(body)


class Malloc(unittest.TestCase):
    def start(self, seed, counts):
        env = {"LD_PRELOAD": os.path.abspath(MODEL[1]), "HEARTH_MALLOC_COUNTS": counts, "HEARTH_MALLOC_IN": "serve",
               "HEARTH_MALLOC_SEED": str(seed), "HEARTH_MALLOC_ONE_IN": str(ONE_IN[seed % len(ONE_IN)])}
        before = dict(os.environ)
        os.environ.update(env)
        try:
            return Daemon(argv=[SERVE, "serve", "-m", MODEL[0], "--port", "0", "--threads", "1", "--max-sessions", "4"])
        finally:
            os.environ.clear()
            os.environ.update(before)

    def check(self, answer, want, what):
        if answer is None:
            return 1
        status, text = answer
        if status != want[0]:
            self.assertIn(status, (429, 500, 503), (what, answer))
            self.assertTrue(text == "" or "error" in json.loads(text) or what[1] == "/health", (what, answer))
            return 1
        if text == "":  # of an error, without memory for its body
            self.assertGreaterEqual(status, 400, (what, answer))
            return 1
        if lasting(answer) == lasting(want):
            return 0
        # a stream that was begun ends with an error, or its connection does
        self.assertIn("data: ", text, (what, answer, want))
        return 1

    def test_seeds(self):
        failed = n = n_mallocs = n_workers = 0
        for seed in SEEDS:
            with self.subTest(seed=seed):
                counts = pathlib.Path("/tmp", f"hearth-malloc-{os.getpid()}")
                d = self.start(seed, str(counts))
                with counts.open("r+b") as f:
                    switch = mmap.mmap(f.fileno(), 24)
                counts.unlink()
                with d:
                    self.assertTrue(until(lambda: ask(d.port, "GET", "/ready", None)[0] == 200))
                    want = [ask(d.port, *r) for r in REQUESTS]
                    switch[0:8] = struct.pack("<Q", 1)
                    for turn in range(3):
                        got = [None] * len(REQUESTS)
                        threads = [threading.Thread(target=lambda i=i: got.__setitem__(i, ask(d.port, *REQUESTS[i])))
                                   for i in range(len(REQUESTS))]
                        for t in threads:
                            t.start()
                        for t in threads:
                            t.join()
                        self.assertIsNone(d.process.poll(), d.log)
                        for i, answer in enumerate(got):
                            self.assertNotEqual(answer, (0, "nothing came"), (REQUESTS[i], d.log))
                            failed += self.check(answer, want[i], REQUESTS[i])
                            n += 1
                    switch[0:8] = struct.pack("<Q", 0)
                    n_mallocs += struct.unpack("<Q", switch[16:24])[0]
                    self.assertTrue(until(lambda: ask(d.port, "GET", "/ready", None)[0] == 200), d.log)
                    for r, w in zip(REQUESTS, want):
                        self.assertEqual(lasting(ask(d.port, *r)), lasting(w), (r, d.log))
                    self.assertTrue(d.is_at_rest(), d.log)
                    n_workers += len(d.worker_pids())
                    rc, _ = d.end()
                    self.assertEqual(rc, 0, d.log)
        print(f"{len(SEEDS)} seeds: {n_mallocs} allocations failed, and of {n} requests {failed}; {n_workers} workers", file=sys.stderr)
        self.assertGreater(n_mallocs, 5 * len(SEEDS))
        self.assertLess(failed, n)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

#!/usr/bin/python3
"""malloc_script.py HEARTH_FAULTY_MALLOC.so MODEL.gguf [--seeds FROM TO] HEARTH worker: a worker in whose process malloc fails now
and then, for whatever library calls it, and one whose memory has an end. Each request ends once, as undisturbed or for want of
memory, and the worker lives."""
import json
import mmap
import os
import resource
import struct
import sys
import tempfile
import unittest

import worker_client
from worker_client import Case

PRELOAD = None
SEEDS = range(1, 21)
ONE_IN = (50, 400)  # by turns; the second leaves most requests whole
WANT_OF_MEMORY = {"internal", "capacity_exhausted"}
TIMES = ("_ms", "_tok_s")
PASSING = {"reused_prompt_tokens", "prefilled_prompt_tokens", "cached_prompt_tokens", "session_reset_reason", "cache_miss",
           "preemptions", "seed"}
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is the weather in Rome?"}]
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"town": {"type": "string"}}}}}]
REPLY = {"seed": 7, "now": 1700000000000, "max_new_tokens": 12}


def session(action, **fields):
    return {"op": "session", "action": action, "session_id": "S", **fields}


# Those that end alike whatever happens to others, and those that depend on what became of the others on their session.
ALONE = [
    {"op": "generate", "prompt": "Once upon a time there was a prompt that fills more than a page", "stop": ["zz", "qq"],
     "temperature": 0.8, "top_k": 40, "logit_bias": {"65": 1.5}, "logprobs": True, "top_logprobs": 2, "prompt_logprobs": 1, **REPLY},
    {"op": "chat", "messages": MESSAGES, "tools": TOOLS, **REPLY},
    {"op": "chat", "messages": MESSAGES, "reasoning": {"enabled": True, "budget": 4}, **REPLY},
    {"op": "tokenize", "text": "Some text, and some more of it: \u00e9\u20ac"},
    {"op": "detokenize", "ids": [65, 66, 67]},
    {"op": "count", "messages": MESSAGES, "now": 1},
    {"op": "render", "messages": MESSAGES, "tools": TOOLS, "now": 1},
    {"op": "generate", "prompt": 3},
]
DEPENDING = [
    {"op": "generate", "session_id": "S", "prompt": "In a session that is kept there is something to say", **REPLY},
    session("probe", **{"from": 0, "count": 20}), session("save", name="kept"), session("restore", name="kept"),
    session("prewarm"), session("get"), session("reset"), session("drop", name="none such"), session("close"), {"op": "stats"},
]
PLAIN = [{"prompt": "plain", "max_new_tokens": 6, "seed": 3}, {"op": "open", "session_id": "P"},
         {"prompt": "in it", "session_id": "P", "max_new_tokens": 6, "seed": 3}, {"op": "close", "session_id": "P"}]
OTHERS = {"accepted", "token", "delta", "progress", "prompt_logprobs"}


def lasting(frame):
    """What neither time nor what was at hand in memory has a part in."""
    inner = {k: v for k, v in frame.items() if k not in PASSING and not k.endswith(TIMES) and k != "id"}
    if isinstance(inner.get("accepted"), dict):
        inner["accepted"] = {k: v for k, v in inner["accepted"].items() if k not in PASSING}
    return inner


class Switch:
    """Whether malloc fails in the process, and what came of it."""

    def __init__(self, path):
        with open(path, "r+b") as f:
            self.map = mmap.mmap(f.fileno(), 24)

    def set(self, on):
        self.map[0:8] = struct.pack("<Q", on)

    def failed(self):
        return struct.unpack("<Q", self.map[16:24])[0]


class Malloc(Case):
    def open(self, seed, one_in):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        counts = os.path.join(folder.name, "counts")
        w = self.worker("--threads", "1", "--store", os.path.join(folder.name, "store"), "--chat-template", worker_client.TEMPLATE,
                        env={"LD_PRELOAD": PRELOAD, "HEARTH_MALLOC_SEED": str(seed), "HEARTH_MALLOC_ONE_IN": str(one_in),
                             "HEARTH_MALLOC_COUNTS": counts})
        return w, Switch(counts)

    def ask_all(self, w, tag):
        """Frames of each request: {number: [frames]}, plain ones behind the others."""
        mux = ALONE + DEPENDING
        for i, line in enumerate(mux):
            w.send({"id": f"{tag}.{i}", **line})
            if i < len(PLAIN):
                w.send(PLAIN[i])
        got = {i: [] for i in range(len(mux) + len(PLAIN))}
        open_ones, plain = set(got), len(mux)
        while open_ones:
            f = w.recv()
            if "id" in f:
                name, _, i = f["id"].partition(".")
                self.assertEqual(name, tag, f)
                i = int(i)
            else:
                i = plain
            self.assertIn(i, open_ones, f)
            got[i].append(f)
            if "done" in f or not OTHERS & set(f):
                open_ones.remove(i)
                plain += i == plain
        return got

    def check(self, got, want):
        n_failed = 0
        for i, frames in got.items():
            last, was = frames[-1], [lasting(f) for f in want[i]]
            failed = "error" in last and "error" not in want[i][-1]
            n_failed += failed
            if failed and i < len(ALONE):
                self.assertIn(last["code"], WANT_OF_MEMORY, frames)
            elif "error" in last:
                self.assertTrue(last["code"], frames)
            if i < len(ALONE):
                said = [lasting(f) for f in frames[:-1]]
                self.assertEqual(said, was[:len(said)])
                if "error" not in last:
                    self.assertEqual(lasting(last), was[-1])
        return n_failed

    def test_seeds(self):
        n_failed = n_mallocs = n_requests = 0
        for seed in SEEDS:
            w, switch = self.open(seed, ONE_IN[seed % len(ONE_IN)])
            want = self.ask_all(w, "first")
            with self.subTest(seed=seed):
                for turn in range(3):
                    switch.set(1)
                    got = self.ask_all(w, f"t{turn}")
                    switch.set(0)
                    n_failed += self.check(got, want)
                    n_requests += len(got)
                w.send({"id": "end.0", **session("close")}, {"id": "end.1", **session("drop", name="kept")}, {"op": "close", "session_id": "P"})
                for name in ("end.0", "end.1", None):
                    w.recv_of(name)
                after = self.ask_all(w, "after")
                self.assertEqual([f for i, f in after.items() if "error" in f[-1] and "error" not in want[i][-1]], [])
                self.check(after, want)
                n_mallocs += switch.failed()
                w.finish()
            self.doCleanups()
        print(f"{len(SEEDS)} seeds: {n_mallocs} allocations failed, and of {n_requests} requests {n_failed}", file=sys.stderr)
        self.assertGreater(n_mallocs, 10 * len(SEEDS))
        self.assertGreater(n_failed, len(SEEDS))
        self.assertLess(n_failed, n_requests)


def data_bytes(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmData:")) << 10


class Limit(Case):
    """RLIMIT_DATA, a little above what the worker has once it is ready: what needs more fails, and nothing else."""

    def test_large_lines(self):
        for spare in 1 << 20, 40 << 20:
            w = self.worker("--threads", "1", "--chat-template", worker_client.TEMPLATE)
            want = w.generate(prompt="who else is here", max_new_tokens=20, seed=3)[0]
            limit = data_bytes(w.proc.pid) + spare
            resource.prlimit(w.proc.pid, resource.RLIMIT_DATA, (limit, limit))
            neighbour = {"op": "generate", "prompt": "neighbour", "max_new_tokens": 400, "ignore_eos": True, "seed": 1, "now": 1}
            w.send({"id": "n0", **neighbour})
            undisturbed = w.recv_ids("n0")
            self.assertIn("done", undisturbed[2])
            many = "many words " * (7 << 20 >> 4)
            lines = [{"prompt": "x" * (60 << 20)}, {"prompt": many}, {"id": "a", "op": "tokenize", "text": many},
                     {"id": "b", "op": "generate", "prompt": many}, {"id": "c", "op": "detokenize", "ids": [65] * (1 << 20)},
                     {"id": "d", "op": "chat", "messages": [{"role": "user", "content": many}]},
                     {"id": "e", "op": "count", "messages": [{"role": "user", "content": many}]}]
            seen = set()
            for i, line in enumerate(lines):
                w.send({"id": f"n{i + 1}", **neighbour})
                w.send(line)
                last = w.recv_until_last(line.get("id"))[-1]
                if "error" in last:  # too long for the context, where there is memory enough to find out
                    self.assertIn(last["code"], ("internal", "context_length_exceeded"), last)
                    seen.add(last["code"])
                beside = w.recv_ids(f"n{i + 1}")
                self.assertEqual(beside[:2], undisturbed[:2], (spare, line.get("id"), last))
                self.assertEqual(w.generate(prompt="who else is here", max_new_tokens=20, seed=3)[0], want)
            self.assertIn("internal", seen, spare)
            w.finish()


if __name__ == "__main__":
    args = sys.argv[1:]
    PRELOAD = os.path.abspath(args[0])
    worker_client.MODELS["bpe"] = args[1]
    if args[2] == "--seeds":
        SEEDS = range(int(args[3]), int(args[4]) + 1)
        args = args[3:]
    worker_client.COMMAND[:] = args[2:]
    unittest.main(argv=sys.argv[:1])

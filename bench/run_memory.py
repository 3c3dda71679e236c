#!/usr/bin/python3
"""run_memory.py HEARTH MODEL [--cached 8000] [--long 15000] [--rounds 3] [--dir DIR] [WORKER OPTION ...]: what is not read again, over
the worker's wire.

1. Time to first token of a turn of 50 tokens behind what is cached: nothing of it, in memory, and from disk after a restart.
2. How fast the pages of a long prompt come back from disk after a restart (the file system's cache is what it is).
3. What writing behind costs: prompts of 2,048 tokens with a store and without, in turn.
4. An agent: 20 turns, after each a side call that shares the first 2,000 tokens; tokens that were new and tokens computed.
Standard library only.
"""
import argparse
import pathlib
import shutil
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from run_gaps import Worker  # noqa: E402


class Kept(Worker):
    def __init__(self, args, options, folder=None):
        store = ["--store", folder] if folder else []
        super().__init__([args.hearth, "worker", "-m", args.model, "--max-sessions", "4", "--ctx", str(args.long + 6000), *store, *options])
        self.vocab, self.seed = self.ready["model"]["vocab_size"], time.monotonic_ns()

    def ids(self, salt, n):
        return [(i * 7919 + salt * 104729 + 11) % (self.vocab // 2) + 100 for i in range(n)]

    def turn(self, ids, n_new=1):
        """Seconds to the first token, and the last frame."""
        self.n += 1
        name = f"r{self.n}"
        begin = time.monotonic()
        self.send(id=name, op="generate", prompt_segments=[{"ids": ids}], max_new_tokens=n_new, seed=1, ignore_eos=True)
        while name not in self.last:
            time.sleep(0.0005)
        if "error" in self.last[name]:
            sys.exit(f"run_memory: {self.last[name]}")
        return self.said(name)[0] - begin, self.last[name]

    def end(self):
        self.process.stdin.close()
        self.process.wait(60)


def first_tokens(args, options, folder):
    found = {"cold": [], "memory": [], "disk": []}
    for k in range(args.rounds):
        w = Kept(args, options, folder)
        base = w.ids(100 * k + 1, args.cached)
        found["cold"].append(w.turn(base + w.ids(100 * k + 2, 50))[0])
        for j in range(3):
            t, last = w.turn(base + w.ids(100 * k + 3 + j, 50))
            found["memory"].append(t)
            assert last["reused_prompt_tokens"] == args.cached, last
        w.end()
        w = Kept(args, options, folder)
        t, last = w.turn(base + w.ids(100 * k + 9, 50))
        found["disk"].append(t)
        print(f"         {last['reused_prompt_tokens']} of {args.cached} from disk")
        w.end()
    for what, times in found.items():
        print(f"first token, 50 new behind {args.cached}, {what:7} {statistics.median(times) * 1000:9.1f} ms   ({min(times) * 1000:.1f} to {max(times) * 1000:.1f})", flush=True)


def restore(args, options, folder):
    w = Kept(args, options, folder)
    base = w.ids(7001, args.long)
    page = w.ready.get("kv_page_bytes")
    w.turn(base)
    memory = min(w.turn(base + w.ids(7002 + j, 1))[0] for j in range(3))
    w.end()
    w = Kept(args, options, folder)
    t, last = w.turn(base + w.ids(7010, 1))
    w.end()
    n, size = last["reused_prompt_tokens"], sum(f.stat().st_size for f in pathlib.Path(folder).rglob("*.page"))
    pages = len(list(pathlib.Path(folder).rglob("*.page")))
    each = page or size / pages
    rest = t - memory
    print(f"restore  {n} tokens in {rest * 1000:.0f} ms beyond the {memory * 1000:.0f} ms that they take in memory: {n / 32 * each / rest / 1e9:.2f} GB/s", flush=True)


def write_cost(args, options, folder):
    with_store, without = Kept(args, options, folder), Kept(args, options)
    ratios = []
    for k in range(3 * args.rounds):
        pair = {}
        for w in (with_store, without) if k % 2 else (without, with_store):
            pair[w] = w.turn(w.ids(9000 + k, 2048))[0]
        ratios.append(pair[with_store] / pair[without])
    with_store.end()
    without.end()
    print(f"writing behind: a prompt of 2048 takes {statistics.median(ratios):.3f} of the time without ({min(ratios):.3f} to {max(ratios):.3f})", flush=True)


def agent(args, options):
    w = Kept(args, options)
    history, new, computed, side_new, side_computed = w.ids(5001, 2000), 0, 0, 0, 0
    new += 2000
    for k in range(20):
        fresh = w.ids(5100 + k, 400)
        _, last = w.turn(history + fresh, 20)
        history += fresh
        new += 400
        computed += last["prefilled_prompt_tokens"]
        _, last = w.turn(history[:2000] + w.ids(5200 + k, 100), 10)
        side_new += 100
        side_computed += last["prefilled_prompt_tokens"]
    w.end()
    print(f"agent    20 turns to {len(history)} tokens: {new} new, {computed} computed; 20 side calls: {side_new} new, {side_computed} computed", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("hearth")
    parser.add_argument("model")
    parser.add_argument("--cached", type=int, default=8000)
    parser.add_argument("--long", type=int, default=15000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir", help="where the store's folder is made (the system's temporary one)")
    args, options = parser.parse_known_args()
    folder = tempfile.mkdtemp(dir=args.dir)
    try:
        agent(args, options)
        first_tokens(args, options, folder)
        restore(args, options, folder)
        write_cost(args, options, folder)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()

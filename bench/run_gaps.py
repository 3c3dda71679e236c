#!/usr/bin/python3
"""run_gaps.py HEARTH MODEL [--long 16000] [--streams 1,4,16,32] [--window 6] [WORKER OPTION ...]: what many clients of one worker
feel, over the worker's wire (FAILURES K3). Times are those at which frames are read.

1. Tokens a second of all together, at each number of streams.
2. Four clients decode. A long prompt arrives, and behind it, again and again, one of 20 tokens. Printed: the normal step (median
   gap of the four before), their gaps while the long prompt is computed (p50, p99, largest; in ms and in normal steps), the time to
   first token of the short ones with and without the long one, and how fast the long one was.
Takes 4 * (window + 2) seconds and the long prompt's time, of which --patience (100 s) is the most that is waited for.
Standard library only.
"""
import argparse
import json
import statistics
import subprocess
import sys
import threading
import time

SHORT = 20


class Worker:
    """A worker and the frames that it has said, with their times; read by a thread of its own."""

    def __init__(self, argv):
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.ready = json.loads(self.process.stdout.readline())
        if "ready" not in self.ready:
            sys.exit(f"run_gaps: {self.ready}")
        self.lock, self.times, self.last, self.progress, self.n = threading.Lock(), {}, {}, {}, 0
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            now, f = time.monotonic(), json.loads(line)
            with self.lock:
                if f.get("ids"):
                    self.times.setdefault(f["id"], []).extend([now] * len(f["ids"]))
                elif "progress" in f:
                    self.progress[f["id"]] = f["progress"]["processed"]
                elif "done" in f or "error" in f:
                    self.last[f["id"]] = f

    def send(self, **line):
        self.process.stdin.write((json.dumps(line) + "\n").encode())
        self.process.stdin.flush()

    def begin(self, n_prompt, n_new, **more):
        """A generation; returns its id."""
        self.n += 1
        name = f"r{self.n}"
        vocab = self.ready["model"]["vocab_size"]
        ids = [(i * 7919 + self.n * 104729) % (vocab // 2) + 100 for i in range(n_prompt)]
        self.send(id=name, op="generate", prompt_segments=[{"ids": ids}], max_new_tokens=n_new, seed=1, ignore_eos=True, **more)
        return name

    def said(self, name):
        with self.lock:
            if "error" in self.last.get(name, {}):
                sys.exit(f"run_gaps: {self.last[name]}")
            return list(self.times.get(name, []))

    def wait(self, name, n, patience):
        """Waits for n tokens; False if they do not come."""
        end = time.monotonic() + patience
        while len(self.said(name)) < n:
            if time.monotonic() > end or self.process.poll() is not None:
                return False
            time.sleep(0.002)
        return True

    def stop(self, names):
        for name in names:
            self.send(id=name, op="cancel")
        while not all(name in self.last for name in names):
            time.sleep(0.01)


def gaps(w, names, begin, end):
    """Gaps that end in the time, of all, in ms."""
    found = []
    for name in names:
        t = w.said(name)
        found += [(b - a) * 1000 for a, b in zip(t, t[1:]) if begin < b <= end]
    return sorted(found)


def quantile(values, q):
    return values[min(len(values) - 1, int(q * len(values)))]


def rate(w, n, window):
    names = [w.begin(SHORT, 4000) for _ in range(n)]
    if not all(w.wait(name, 4, 60) for name in names):
        sys.exit("run_gaps: the streams do not start")
    begin = time.monotonic()
    time.sleep(window)
    end = time.monotonic()
    tokens = sum(sum(begin < t <= end for t in w.said(name)) for name in names)
    steps = gaps(w, names, begin, end)
    print(f"streams {n:3}   {tokens / (end - begin):8.1f} tokens/s   gap p50 {quantile(steps, 0.5):7.1f} ms  p99 {quantile(steps, 0.99):7.1f} ms", flush=True)
    w.stop(names)


def first_token(w, patience=100):
    begin = time.monotonic()
    name = w.begin(SHORT, 2)
    w.wait(name, 1, patience)
    t = w.said(name)
    return (t[0] - begin) * 1000 if t else float("inf")


def crowd(w, n_long, patience):
    names = [w.begin(SHORT, 15000) for _ in range(4)]
    for name in names:
        w.wait(name, 8, 60)
    begin = time.monotonic()
    time.sleep(4)
    alone = gaps(w, names, begin, time.monotonic())
    normal = statistics.median(alone)
    calm = statistics.median(first_token(w) for _ in range(3))
    begin = time.monotonic()
    long = w.begin(n_long, 2, progress=True)
    time.sleep(5 * normal / 1000)
    short = []
    while not w.said(long) and time.monotonic() - begin < patience:
        short.append(first_token(w))
        time.sleep(0.5)
    end = time.monotonic()
    found, t = gaps(w, names, begin, end), w.said(long)
    done, took = (n_long, t[0] - begin) if t else (w.progress.get(long, 0), end - begin)
    print(f"four     normal step {normal:.1f} ms (p99 {quantile(alone, 0.99):.1f}, largest {alone[-1]:.1f}: what the machine does by itself)")
    for what, value in ("p50", quantile(found, 0.5)), ("p99", quantile(found, 0.99)), ("largest", found[-1]):
        print(f"         gap {what:8} {value:8.1f} ms = {value / normal:5.2f} normal steps")
    print(f"         gaps over 3 normal steps: {sum(g > 3 * normal for g in found)} of {len(found)}")
    print(f"short    first token after {calm:.0f} ms without the long prompt; with it (of {len(short)}) median "
          f"{statistics.median(short):.0f} ms, largest {max(short):.0f} ms = {max(short) / normal:.1f} normal steps")
    print(f"long     {done} of {n_long} tokens in {took:.1f} s = {done / took:.0f} tokens/s beside them")
    w.stop(names + [long])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("hearth")
    parser.add_argument("model")
    parser.add_argument("--long", type=int, default=16000)
    parser.add_argument("--streams", default="1,4,16,32")
    parser.add_argument("--window", type=float, default=6)
    parser.add_argument("--patience", type=float, default=100)
    args, options = parser.parse_known_args()
    w = Worker([args.hearth, "worker", "-m", args.model, "--max-sessions", "40", "--ctx", str(args.long + 2000), *options])
    print(f"{w.ready['model']['name']} {w.ready['model']['quant']}, {w.ready['kernels']}, {' '.join(options)}")
    try:
        for n in map(int, filter(None, args.streams.split(","))):
            rate(w, n, args.window)
        crowd(w, args.long, args.patience)
    finally:
        w.process.kill()
        w.process.wait()


if __name__ == "__main__":
    main()

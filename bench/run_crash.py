#!/usr/bin/python3
"""run_crash.py HEARTH MODEL [--prompt N] [--tokens N] [--rounds N]: what a crash costs one who reads.

Streams a reply of a fresh prompt of N random ids, kills the worker (SIGKILL) when half of it has come, and compares it with
the same request undisturbed. Says the pause (from the kill to the next token, less a usual gap), how long the new worker took
to be ready, and how many tokens were computed again. Store on, in a folder of its own.
"""
import argparse
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request


class Daemon:
    def __init__(self, hearth, model, folder):
        self.log = []
        self.proc = subprocess.Popen([hearth, "serve", "-m", model, "--port", "0", "--ctx", "16384", "--store", folder],
                                     stderr=subprocess.PIPE, text=True)
        self.url = None
        self.ready = threading.Event()
        threading.Thread(target=self.read, daemon=True).start()
        if not self.ready.wait(120):
            sys.exit("not listening:\n" + "\n".join(line for _, line in self.log))

    def read(self):
        for line in self.proc.stderr:
            self.log.append((time.monotonic(), line.strip()))
            if line.startswith("listening on "):
                self.url = line.split()[-1]
                self.ready.set()

    def worker(self):
        return int([re.search(r"pid=(\d+)", line).group(1) for _, line in self.log if "worker=ready" in line][-1])

    def when(self, what):
        return [t for t, line in self.log if what in line][-1]

    def metric(self, name):
        text = urllib.request.urlopen(self.url + "/metrics").read().decode()
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if re.match(name + r"[{ ]", line))

    def ask(self, body, at=None):
        """Returns the text, the times of its chunks and, if the worker was killed at chunk `at`, when."""
        request = urllib.request.Request(self.url + "/v1/completions", json.dumps({**body, "stream": True}).encode(),
                                         {"Content-Type": "application/json"})
        text, times, killed = "", [], None
        for line in urllib.request.urlopen(request):
            if not line.startswith(b"data: {"):
                continue
            choices = json.loads(line[6:])["choices"]
            text += choices[0]["text"] if choices else ""
            times.append(time.monotonic())
            if len(times) == at:
                os.kill(self.worker(), signal.SIGKILL)
                killed = time.monotonic()
        return text, times, killed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("hearth")
    parser.add_argument("model")
    parser.add_argument("--prompt", type=int, default=2000)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        d = Daemon(args.hearth, args.model, folder)
        try:
            for k in range(args.rounds):
                ids = random.Random(time.time_ns()).choices(range(1000, 20000), k=args.prompt)
                body = {"prompt": ids, "max_tokens": args.tokens, "temperature": 0, "ignore_eos": True}
                text, times, killed = d.ask(body, args.tokens // 2)
                after = next(t for t in times if t > killed)
                gap = statistics.median(b - a for a, b in zip(times, times[1:]))
                ready = d.when("worker=ready") - d.when("worker=started")
                again = d.metric("hearth_worker_tokens_prefilled_total"), d.metric("hearth_worker_tokens_recomputed_total")
                fetched = d.metric("hearth_worker_tokens_fetched_total")
                same = d.ask(body)[0] == text
                rows.append((after - killed - gap, ready))
                print(f"pause {(after - killed - gap) * 1e3:.0f} ms, of these {ready * 1e3:.0f} until ready; fetched {fetched:.0f}, "
                      f"the new worker computed {again[0]:.0f} of the prompt and {again[1]:.0f} of the reply; "
                      f"{'the same text' if same else 'ANOTHER TEXT'}", flush=True)
        finally:
            d.proc.terminate()
            d.proc.wait(20)
    print(f"medians: pause {statistics.median(r[0] for r in rows) * 1e3:.0f} ms, ready {statistics.median(r[1] for r in rows) * 1e3:.0f} ms")


if __name__ == "__main__":
    main()

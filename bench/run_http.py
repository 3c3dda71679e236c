#!/usr/bin/python3
"""run_http.py HEARTH MODEL [STREAMS]: what the daemon and the pipe add to a reply, and what idle streams cost.

1. The same greedy reply of 200 tokens through `hearth run` and through `hearth serve` (streamed), alternating, medians
   of five: tokens a second of each and the difference per token. A model that computes next to nothing (a few hundred
   thousand parameters) shows the overhead, a big one that it does not matter.
2. VmRSS of the daemon before and with STREAMS (500) streams open that wait for their turn.
Standard library only.
"""
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import statistics
import subprocess
import sys
import time

RUNS, TOKENS, PROMPT = 5, 200, "Once upon a time"


def start(hearth, model, *options):
    daemon = subprocess.Popen([hearth, "serve", "-m", model, "--port", "0", *options], stderr=subprocess.PIPE, text=True)
    for line in daemon.stderr:
        found = re.search(r"listening on http://[^:]*:(\d+)", line)
        if found:
            return daemon, int(found.group(1))
    sys.exit("run_http: the daemon has not started")


def body(n_tokens):
    return json.dumps({"prompt": PROMPT, "max_tokens": n_tokens, "temperature": 0, "stream": True, "ignore_eos": True})


def streamed(port):
    """(decode tokens a second, seconds per token) between the first and the last event with text."""
    c = http.client.HTTPConnection("127.0.0.1", port)
    c.request("POST", "/v1/completions", body(TOKENS), {"Content-Type": "application/json"})
    times = [time.monotonic() for line in c.getresponse() if line.startswith(b"data: {")]
    c.close()
    return len(times), times[-1] - times[0]


def plain(hearth, model):
    run = subprocess.run([hearth, "run", "-m", model, "-p", PROMPT, "-n", str(TOKENS), "--raw", "--json", "--ignore-eos"],
                         capture_output=True, text=True, check=True)
    return json.loads(run.stdout)["decode_tok_s"]


def rss_kib(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text()).group(1))


def idle_streams(port, pid, n):
    before = rss_kib(pid)
    request = body(100000).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(request)}\r\n\r\n".encode()
    clients = []
    for _ in range(n):
        s = socket.create_connection(("127.0.0.1", port))
        s.sendall(head + request)
        clients.append(s)
    time.sleep(3)
    after = rss_kib(pid)
    for s in clients:
        s.close()
    return before, after


def main():
    hearth, model = sys.argv[1:3]
    n = int(sys.argv[3]) if len(sys.argv) > 3 else 500
    daemon, port = start(hearth, model, "--max-queue", str(n + 100))
    try:
        streamed(port)
        run, http_rate = [], []
        for _ in range(RUNS):
            run.append(plain(hearth, model))
            events, seconds = streamed(port)
            http_rate.append((events - 1) / seconds)
        a, b = statistics.median(run), statistics.median(http_rate)
        print(f"run     {a:8.1f} tokens/s")
        print(f"http    {b:8.1f} tokens/s, {b / a:.3f} of it, {(1 / b - 1 / a) * 1e6:+.0f} us a token")
        before, after = idle_streams(port, daemon.pid, n)
        print(f"idle    {n} waiting streams: VmRSS {before} -> {after} KiB, {(after - before) / n:.1f} KiB each")
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait()


if __name__ == "__main__":
    main()

"""cancel_rig: requests that are met in a known state, for cancel_script.py and ends_script.py. Standard library only.

A state is met by stopping the worker (SIGSTOP) as soon as the daemon's own numbers say that it has come: the status page and what the
daemon has read stay as they are, so the test looks at leisure whether it is the state that it wants, acts, waits until the daemon has
noticed, and only then lets the worker go on. What was missed is tried again."""
import http.client
import json
import os
import signal
import socket
import threading
import time

from serve_rig import END_IN, PATIENCE, SERVE, Daemon, accepts, alive, read_all, state_of, until

GONE_IN = END_IN / 5  # seconds in which a client that left is noticed (DESIGN P4: one); more under a sanitizer
TRIES = 10


class Missed(Exception):
    """The moment was over before it was met."""


class Served(Daemon):
    """hearth serve; numbers are sums over all labels, by name."""

    def __init__(self, *options, cache=None, wait=True):
        with socket.socket() as s:  # one that is free, so that it is known before the daemon says it
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        super().__init__(argv=[SERVE, "serve", "--port", str(port), *options], cache=cache, wait=wait)
        self.port = port
        assert until(lambda: accepts(port)), self.log
        self.line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)

    def numbers(self):
        self.line.request("GET", "/metrics")
        found = {}
        for text in self.line.getresponse().read().decode().splitlines():
            if not text.startswith("#") and not text.startswith("hearth_build_info"):
                name, value = text.rsplit(" ", 1)
                name = name.split("{")[0].removeprefix("hearth_")
                found[name] = found.get(name, 0) + float(value)
        return found

    def number(self, name):
        return self.numbers().get(name, 0)

    def end(self, sig=signal.SIGTERM):
        self.line.close()
        return super().end(sig)

    def __exit__(self, kind, *_):
        if self.process.returncode is None:
            rc, seconds = self.end()
            assert kind or (rc == 0 and seconds < END_IN), (rc, seconds, self.log)
            assert not any(alive(pid) for pid in self.worker_pids())

    def pid(self):
        return self.worker_pids()[-1]

    def freeze(self, asks, is_met):
        """Stops the worker when is_met(numbers) says so, and looks again. Raises Missed when a request has ended before."""
        def look():
            m = self.numbers()
            if m["choices_total"] > 0:
                raise Missed(m)
            return is_met(m)
        if not until(look):
            raise AssertionError(("never", self.numbers(), self.log))
        os.kill(self.pid(), signal.SIGSTOP)
        assert until(lambda: state_of(self.pid()) == "T")
        settled = None  # what it has written before is still read
        while (now := [a.said() for a in asks]) != settled:
            settled = now
            time.sleep(0.02)
        if not look():
            self.thaw()
            raise Missed(self.numbers())

    def thaw(self):
        os.kill(self.pid(), signal.SIGCONT)

    def logged(self, *words):
        return sum(all(w in line for w in words) for line in self.log)

    def logs(self, *words, n=1):
        return until(lambda: self.logged(*words) >= n)


class Ask:
    """A request on a socket of its own, sent now and read when somebody wants to."""

    def __init__(self, d, name, body, path="/v1/completions", unix=None):
        self.d, self.name, self.stream = d, name, body.get("stream", False)
        self.s = socket.socket(socket.AF_UNIX if unix else socket.AF_INET)
        self.s.settimeout(PATIENCE)
        self.s.connect(unix or ("127.0.0.1", d.port))
        text = json.dumps(body)
        self.s.sendall(f"POST {path} HTTP/1.1\r\nHost: h\r\nX-Request-Id: {name}\r\nConnection: close\r\n"
                       f"Content-Length: {len(text)}\r\n\r\n{text}".encode())
        self.sent = time.monotonic()

    def about(self):
        return self.d.ask("GET", "/v1/requests/" + self.name)[2]

    def said(self):
        """Tokens of it that the daemon has seen."""
        return self.about().get("completion_tokens", 0)

    def leave(self):
        self.s.close()

    def delete(self):
        return self.d.ask("DELETE", "/v1/requests/" + self.name)

    def answer(self):
        """(status, parsed body); of a stream (status, list of parsed events, "[DONE]" as it is)."""
        head, _, body = read_all(self.s).partition(b"\r\n\r\n")
        self.s.close()
        while head.startswith(b"HTTP/1.1 102 "):  # a probe of one that has sent FIN
            head, _, body = body.partition(b"\r\n\r\n")
        status = int(head.split()[1])
        if b"chunked" in head:
            body = unchunked(body)
        if b"text/event-stream" in head:
            data = [part[6:] for part in body.decode().strip().split("\n\n") if part.startswith("data: ")]
            return status, [x if x == "[DONE]" else json.loads(x) for x in data]
        return status, json.loads(body)

    def later(self):
        """Reads on a thread; returns what waits for the answer."""
        got = []
        t = threading.Thread(target=lambda: got.append(self.answer()), daemon=True)
        t.start()

        def wait():
            t.join(PATIENCE)
            return got[0]
        return wait

    def ending(self):
        """(text, finish_reason, hearth.finish) of a reply that came whole as far as it goes."""
        status, body = self.answer()
        assert status == 200, (self.name, status, body)
        if not self.stream:
            choice = body["choices"][0]
            return said_in(choice), choice["finish_reason"], body["hearth"]["finish"]
        assert body[-1] == "[DONE]", (self.name, body[-3:])
        text = "".join(said_in(x["choices"][0]) for x in body[:-1] if x["choices"])
        last = [x for x in body[:-1] if x["choices"]][-1]
        return text, last["choices"][0]["finish_reason"], last["hearth"]["finish"]


def said_in(choice):
    if "text" in choice:
        return choice["text"]
    return choice.get("delta", choice.get("message", {})).get("content") or ""


def unchunked(body):
    parts, at = [], 0
    while True:
        end = body.index(b"\r\n", at)
        n = int(body[at:end], 16)
        if n == 0:
            return b"".join(parts)
        parts.append(body[end + 2:end + 2 + n])
        at = end + 4 + n

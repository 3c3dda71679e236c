"""prober: asks for /health, /metrics and /v1/models each second, over one connection that stays, whatever is done to whom: they are
answered in bounded time unless the daemon itself does not run (FAILURES H1, H2)."""
import threading

import raw_http
from rig import now
from world import STALL_S

BOUND_S = 8  # H2 says 50 ms; the machine has others, and now and then no processor for seconds
PATHS = ("/health", "/metrics", "/v1/models")


class Prober(threading.Thread):
    def __init__(self, world):
        super().__init__(daemon=True, name="prober")
        self.world, self.n, self.times, self.unhealthy, self.done = world, 0, [], [], threading.Event()
        self.connection, self.used = None, 0

    def run(self):
        while not self.done.wait(1):
            for path in PATHS:
                try:
                    self.probe(path)
                except Exception as e:
                    self.world.book.fail(f"prober: {path}: {e!r}")
        self.leave()

    def leave(self):
        if self.connection:
            self.connection.close()
        self.connection = None

    def probe(self, path):
        begin = now()
        if not self.connection:
            self.connection = raw_http.Connection(self.world.port, timeout=60)
            if self.connection.connect():
                return self.leave()
            self.used = begin
        self.connection.send(raw_http.request("GET", path, key=self.world.keys[0], close=False))
        a = self.connection.read()
        seconds = now() - begin
        excused = self.world.was_stopped(begin - 0.5, now())
        if not a.whole:
            self.leave()
            ended = self.world.was_down(self.used, now())  # with the daemon, after it was used last
            if not excused and not ended and not self.is_squeezed(begin):
                self.world.book.fail(f"prober: {path}: connection {a.why} after {seconds:.1f} s")
            return None
        self.n, self.used = self.n + 1, now()
        if not excused:
            self.times.append(seconds)
            if seconds > BOUND_S and not self.is_squeezed(begin):
                self.world.book.fail(f"prober: {path} took {seconds:.1f} s")
        if path == "/health" and a.status == 503:
            self.unhealthy.append(now())
        if a.status not in ((200, 503) if path == "/health" else (200,)):
            self.world.book.fail(f"prober: {path}: status {a.status} {bytes(a.body[:200])!r}")
        return None

    def is_squeezed(self, begin):
        """A new connection is not accepted then."""
        return any(s.meets(begin - 0.5, now()) for s in list(self.world.squeezes))

    def check_frozen(self):
        """H1: a worker that stood still for longer than the limit was not healthy, or not there any more."""
        for s in self.world.freezes:
            if s.end and s.end - s.begin > STALL_S + 2 and not self.world.was_stopped(s.begin, s.end):
                seen = any(s.begin < t < s.end for t in self.unhealthy)
                gone = any(d.model == s.kind and s.begin < d.at < s.end + 1 for d in self.world.deaths())
                if not seen and not gone:
                    self.world.book.fail(f"H1: {s.kind} was frozen for {s.end - s.begin:.1f} s and healthy")

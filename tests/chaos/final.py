"""final: what must be so when all is over: counters at their baseline, nothing leaked, nothing left behind, no death unexplained."""
import collections
import pathlib
import re
import signal
import subprocess

import raw_http
from rig import marked, now, rss_kib, state_of, until

REST_IN = 60
RSS_MORE_KIB = 96 << 10  # what heap and buffers may keep; a leak of what passes here is more
BASELINE = ("hearth_requests_running", "hearth_requests_queued", "hearth_generations_live", "hearth_worker_running",
            "hearth_worker_queued", "hearth_worker_parked", "hearth_worker_lanes_live")
BAD_WORDS = re.compile(r"\bbug\b|assert|Sanitizer|runtime error|stack smashing|double free|heap corruption", re.I)


def metrics(world):
    a = raw_http.ask(world.port, "GET", "/metrics", key=world.keys[0])
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1])
            for line in a.body.decode().splitlines() if line and not line.startswith("#")}


def of(m, name):
    return sum(v for k, v in m.items() if k.split("{")[0] == name)


def is_at_rest(world):
    m = metrics(world)
    return all(of(m, name) == 0 for name in BASELINE) and of(m, "hearth_model_ready") == len(world.models)


def kept_open(world):
    """What the daemon has open beside the journal, which opens its file when it first needs one."""
    names = []
    for p in pathlib.Path(f"/proc/{world.daemon.pid}/fd").iterdir():
        try:
            names.append(str(p.readlink()))
        except OSError:
            pass  # closed just now
    return sorted(n for n in names if not n.startswith(str(world.folder / "journal")))


class Baseline:
    """Of a daemon whose workers are ready and whom nobody has asked for anything but this."""

    def __init__(self, world):
        self.fail = world.book.fail
        until(lambda: is_at_rest(world))
        self.descriptors = len(kept_open(world))
        self.rss_kib = rss_kib(world.daemon.pid)

    def check(self, world):
        if not until(lambda: is_at_rest(world), REST_IN):
            self.fail(f"not at rest after {REST_IN} s: { {k: v for k, v in metrics(world).items() if v and k.startswith(BASELINE)} }")
        m = metrics(world)
        for model in world.models:
            used = m[f'hearth_worker_pages_used{{model="{model}"}}']  # without those that wait to be used again
            if used:
                self.fail(f"{model}: {used:.0f} pages in use and nobody there")
        if not until(lambda: len(kept_open(world)) <= self.descriptors, 20):
            self.fail(f"{self.descriptors} descriptors at the beginning, and now {kept_open(world)}")
        if rss_kib(world.daemon.pid) > self.rss_kib + RSS_MORE_KIB:
            self.fail(f"the daemon has {rss_kib(world.daemon.pid)} KiB, {self.rss_kib} at the beginning")
        self.check_processes(world)

    def check_processes(self, world):
        pids = [p for p in marked(world.run) if p != world.daemon.pid]
        if len(pids) != len(world.models):
            self.fail(f"processes beside the daemon: {pids}, {len(world.models)} models")
        children = pathlib.Path(f"/proc/{world.daemon.pid}/task/{world.daemon.pid}/children").read_text().split()
        zombies = [p for p in children if state_of(int(p)) == "Z"]
        if zombies:
            self.fail(f"zombies: {zombies}")


def check_exchanges(world):
    """Each request that was answered stands once in the log of one life, and none twice."""
    for r in world.book.records:
        n = sum(life.exchanged(r.id) for life in world.lives)
        if n > r.tries or (r.answered and n < 1 and r.outcome not in ("gone", "lost", "closed")):
            world.book.fail(f"{r.kind} {r.id} ({r.outcome}) stands {n} times in the log of requests", "lost")


def check_deaths(world):
    """Each death of a worker is one that was done to it."""
    injected, causes = list(world.injected), collections.Counter()
    for d in world.deaths():
        causes[f"{d.cause} {d.signal}" if d.signal else d.cause] += 1
        if d.cause in ("stopped", "draining"):
            continue
        hit = next((i for i in injected if i[1] == d.model and i[2] == d.signal and -1 < d.at - i[0] < 20), None)
        if hit:
            injected.remove(hit)
        elif not is_explained(world, d):
            world.book.fail(f"{d.model} died at {d.at:.3f} of {d.cause} {d.signal or ''}, and nobody has done that to it")
    return causes


def is_explained(world, d):
    """A daemon that was stopped hears of a death when it runs again."""
    begin = min([s.begin for s in world.stops if s.meets(d.at - 1, d.at)], default=d.at)

    def around(spans, seconds, model=None):
        return any(model in (None, s.kind) and s.meets(begin - seconds, d.at + 1) for s in spans)
    if d.cause in ("signal", "oom_killed") and d.signal in (0, signal.SIGKILL):
        return around(world.memory, 5) or around(world.downs, 5)
    if d.cause in ("cancel_unanswered", "stalled"):
        return around(world.freezes, 15, d.model) or around(world.memory, 15)
    if d.cause in ("load_failed", "cannot_be_started", "daemon_out_of_memory"):
        return around(world.squeezes, 10) or around(world.memory, 10)
    return False


def check_log(world):
    events = collections.Counter()
    for life in world.lives:
        for _, line in life.log:
            if BAD_WORDS.search(line):
                world.book.fail(f"log: {line[:300]}")
            if line.startswith(("warning", "warn", "error")):
                events[re.sub(r'=(?:"[^"]*"|\S+)', "=…", line)[:100]] += 1
    return events


def check_folders(world, check_store):
    """Of the store and the journal when nobody has them open: no leftovers, and every file is what its name says, but those that
    were made bad and that nobody has asked for since."""
    for name in "store", "journal":
        left = [str(p) for p in (world.folder / name).rglob("*") if p.name.endswith((".tmp", ".new")) or p.name.startswith(".tmp")]
        if left:
            world.book.fail(f"left over: {left}")
    done = subprocess.run([check_store, *map(str, (world.folder / "store").glob("*"))], capture_output=True, text=True, check=False)
    bad = [line for line in done.stdout.splitlines() if ": " in line and line.split(": ")[0] not in world.corrupted]
    if bad or done.returncode not in (0, 1):
        world.book.fail(f"store: {bad[:5]} {done.stderr[-300:]}")
    return done.stdout.strip().splitlines()[-1] if done.stdout.strip() else "no store"


def finish(world, baseline, check_store):
    """All of it; ends the daemon. Returns what is to be told."""
    begin = now()
    baseline.check(world)
    rss = rss_kib(world.daemon.pid)
    world.end(signal.SIGTERM)  # a new one sweeps up what those that were killed have left
    until(lambda: is_at_rest(world))
    world.end(signal.SIGTERM, then=False)
    causes = check_deaths(world)
    blamed = world.judge.crashes()
    check_exchanges(world)
    events = check_log(world)
    store = check_folders(world, check_store)
    return {"deaths": causes, "blamed": blamed, "events": events, "store": store, "rss": (baseline.rss_kib, rss), "seconds": now() - begin}

"""faults: what is done to the daemon and its workers, drawn from the run's seed. A fault that lasts runs beside the others; all of
them end when the run does.

FAILURES: C8 `freeze_then_cancel`, H1 `freeze` (the prober looks), L1 `restart` (beside clients that do not read)."""
import errno
import mmap
import os
import pathlib
import random
import resource
import signal
import struct
import subprocess
import sys
import threading
import time

import raw_http
from rig import MARK, alive, descriptors, now, rss_kib, signal_to, until
from world import GRACE_S, STALL_S, Span

OWN_FAULT_EVERY = 8   # seconds between two deaths by a worker's own fault: a suspect has ended by then (PROTOCOL 6)
DOWN_EVERY = 20       # between two ends of the daemon
WRITES, READS, CLOCK = 0, 1, 2  # numbers of the control file (tests/preload/README.md)
CGROUP = pathlib.Path("/sys/fs/cgroup/memory")


class Injector(threading.Thread):
    def __init__(self, world, seed, without):
        super().__init__(daemon=True, name="faults")
        self.world, self.dice, self.counts, self.busy = world, random.Random(f"{seed}/faults"), {}, {}
        self.lasting, self.last_crash, self.last_down, self.last_clock = [], {}, now(), 0
        with open(world.control, "r+b") as f:
            self.control = mmap.mmap(f.fileno(), 64)
        kinds = [(self.kill, 10), (self.kill_again, 3), (self.freeze, 5), (self.crash, 3), (self.pause_daemon, 4), (self.disk_full, 3),
                 (self.disk_broken, 3), (self.descriptors, 3), (self.memory, 2), (self.clock, 5), (self.corrupt, 3),
                 (self.freeze_then_cancel, 3), (self.restart, 3), (self.kill_daemon, 2)]
        unknown = set(without) - {f.__name__ for f, _ in kinds}
        if unknown:
            raise SystemExit(f"--without {sorted(unknown)}: there are {[f.__name__ for f, _ in kinds]}")
        kinds = [(f, w) for f, w in kinds if f.__name__ not in without and (f != self.memory or world.group)]
        self.what, self.weights = zip(*kinds)

    def run(self):
        while not self.world.quiet.wait(0.2 + self.dice.random() * 1.8):
            fault = self.dice.choices(self.what, self.weights)[0]
            try:
                if fault():
                    self.counts[fault.__name__] = self.counts.get(fault.__name__, 0) + 1
            except ProcessLookupError:
                pass  # it was gone already
            except Exception as e:
                import traceback
                self.world.book.fail(f"fault {fault.__name__}: {e!r} {traceback.format_exc()[-700:]}")
        for t in self.lasting:
            t.join()
        self.put(CLOCK, 0)

    # Tools

    def put(self, number, value):
        self.control[8 * number:8 * number + 8] = struct.pack("<q", value)

    def victim(self):
        """(model, pid) of a worker of ours; (None, None) if there is none just now."""
        workers = list(self.world.daemon.workers.items())
        if not workers:
            return None, None
        model, pid = self.dice.choice(workers)
        return (model, pid) if self.is_ours(pid) else (None, None)

    def is_ours(self, pid):
        try:
            return f"{MARK}={self.world.run}".encode() in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False

    def hit(self, model, pid, sig):
        if not self.is_ours(pid):
            return False
        self.world.injected.append((now(), model, sig))
        return signal_to(pid, sig)

    def last(self, name, work, *args):
        """Runs work beside the rest, once at a time."""
        if self.busy.get(name) and self.busy[name].is_alive():
            return False
        t = threading.Thread(target=work, args=args, daemon=True, name=name)
        self.busy[name] = t
        self.lasting.append(t)
        t.start()
        return True

    def is_busy(self, *names):
        return any(self.busy.get(n) and self.busy[n].is_alive() for n in names)

    def wait(self, seconds):
        self.world.quiet.wait(seconds)

    # Workers

    def kill(self):
        model, pid = self.victim()
        return pid and self.hit(model, pid, signal.SIGKILL)

    def kill_again(self):
        """As soon as there is another one, while it loads or resumes."""
        done = 0
        for _ in range(self.dice.randrange(2, 5)):
            model, pid = self.victim()
            done += bool(pid and self.hit(model, pid, signal.SIGKILL))
            time.sleep(self.dice.random() * 0.15)
        return done

    def freeze(self):
        """H1 where it is longer than the stall limit: then the worker's death by its own fault, so no more often than these."""
        model, pid = self.victim()
        if not pid:
            return False
        seconds = self.dice.choice((0.05, 0.5, 1.5)) * self.dice.random()
        if self.dice.random() < 0.12 and self.may_crash(model):
            seconds = STALL_S + 3
        return self.last("freeze", self.frozen, model, pid, seconds)

    def frozen(self, model, pid, seconds):
        span = Span(model)
        self.world.freezes.append(span)
        if signal_to(pid, signal.SIGSTOP):
            end = now() + seconds
            until(lambda: self.world.quiet.is_set() or not alive(pid), seconds)
            span.long = now() >= end
            if self.is_ours(pid):
                signal_to(pid, signal.SIGCONT)
        span.end = now()

    def may_crash(self, model):
        if now() - self.last_crash.get(model, 0) < OWN_FAULT_EVERY:
            return False
        self.last_crash[model] = now()
        return True

    def crash(self):
        model, pid = self.victim()
        return pid and self.may_crash(model) and self.hit(model, pid, self.dice.choice((signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS)))

    def freeze_then_cancel(self):
        """C8: grace, kill, respawn; the others go on."""
        return self.last("freeze", self.frozen_and_cancelled, f"chaos-c8-{self.dice.randrange(10 ** 9)}")

    def frozen_and_cancelled(self, request_id):
        world = self.world
        entry = world.catalogue.by_name["noise 4000 stream"]
        r = world.book.begin(request_id, "cancelled in a frozen worker", entry.name, entry.model)
        c, state = raw_http.Connection(world.port), {}
        a = raw_http.Answer()
        a.why = c.connect()
        if not a.why:
            c.send(raw_http.request("POST", entry.path, entry.body, [("X-Request-Id", r.id)], world.keys[0]))

            def freeze_once(a):
                if len(a.body) > 2000 and not state:
                    state["pid"] = world.daemon.workers.get(entry.model)
                    span = Span(entry.model)
                    world.freezes.append(span)
                    if state["pid"] and self.is_ours(state["pid"]):
                        signal_to(state["pid"], signal.SIGSTOP)
                    raw_http.ask(world.port, "DELETE", f"/v1/requests/{r.id}", key=world.keys[0])
                    state["span"] = span
                return False
            a = c.read(freeze_once)
            c.close()
        world.judge.generation(r, a, entry, {"cancelled"})
        if state.get("pid"):
            gone = until(lambda: not alive(state["pid"]), GRACE_S + 10)
            if not gone and not world.was_stopped(r.began, now()):
                world.book.fail(f"C8: {r.id}: the frozen worker {state['pid']} was not killed")
            if self.is_ours(state["pid"]):
                signal_to(state["pid"], signal.SIGCONT)
            state["span"].end = now()

    # The daemon

    def pause_daemon(self):
        """Stopped, now and then for longer than the stall limit: that is nobody's stall."""
        long = self.dice.random() < 0.15
        return self.last("pause_daemon", self.paused, STALL_S + 2 if long else self.dice.random() * 1.5)

    def paused(self, seconds):
        d, span = self.world.daemon, Span("stop")
        self.world.stops.append(span)
        if d.process.poll() is None:
            d.process.send_signal(signal.SIGSTOP)
            end = now() + seconds
            until(lambda: now() > end or d.process.poll() is not None, seconds + 1)
            d.process.send_signal(signal.SIGCONT)
        span.end = now()

    def may_end(self):
        """Nothing that would keep the next one from starting."""
        if now() - self.last_down < DOWN_EVERY or self.is_busy("pause_daemon", "disk", "descriptors", "memory"):
            return False
        self.last_down = now()
        return True

    def restart(self):
        if not self.may_end():
            return False
        self.world.end(signal.SIGTERM, again=self.dice.random() < 0.2)
        self.last_down = now()
        return True

    def kill_daemon(self):
        if not self.may_end():
            return False
        self.world.end(signal.SIGKILL)
        self.last_down = now()
        return True

    # What they stand on

    def disk_full(self):
        return self.last("disk", self.disk, errno.ENOSPC, 0, 0.5 + self.dice.random() * 4)

    def disk_broken(self):
        return self.last("disk", self.disk, self.dice.choice((errno.EIO, 0)), errno.EIO, 0.2 + self.dice.random() * 2)

    def disk(self, writes, reads, seconds):
        span = Span("disk")
        self.world.disks.append(span)
        self.put(WRITES, writes)
        self.put(READS, reads)
        self.wait(seconds)
        self.put(WRITES, 0)
        self.put(READS, 0)
        span.end = now()

    def descriptors(self):
        return self.last("descriptors", self.squeezed, self.dice.randrange(4), 0.5 + self.dice.random() * 3)

    def squeezed(self, more, seconds):
        d, span = self.world.daemon, Span("descriptors")
        self.world.squeezes.append(span)
        pids = [d.pid, *d.workers.values()]
        before = {}
        for pid in pids:
            try:
                before[pid] = resource.prlimit(pid, resource.RLIMIT_NOFILE)
                resource.prlimit(pid, resource.RLIMIT_NOFILE, (descriptors(pid) + more, before[pid][1]))
            except (ProcessLookupError, FileNotFoundError, PermissionError):
                pass
        self.wait(seconds)
        for pid in {*pids, *d.workers.values()}:
            try:
                resource.prlimit(pid, resource.RLIMIT_NOFILE, before.get(pid, before[d.pid]))
            except (ProcessLookupError, PermissionError):
                pass
        span.end = now()

    def memory(self):
        """A neighbour in the daemon's group takes what is left, and more: the kernel kills a worker, which has asked for that
        (oom_score_adj)."""
        if now() - self.last_down < 5:
            return False
        return self.last("memory", self.starved, self.dice.random(), 1 + self.dice.random() * 2)

    def starved(self, part, seconds):
        d, span, group = self.world.daemon, Span("memory"), self.world.group
        pids = list(d.workers.values())
        if not pids:
            return
        self.world.memory.append(span)
        room = 4 << 20
        need = int((0.3 + 0.6 * part) * max(rss_kib(p) for p in pids) * 1024) + room

        def join():
            (group / "cgroup.procs").write_text(str(os.getpid()))
        limit = int((group / "memory.usage_in_bytes").read_text()) + room + (16 << 20)  # and a Python
        neighbour = subprocess.Popen([sys.executable, "-S", "-c", f"x = bytearray({need + (16 << 20)})\nimport time\ntime.sleep(60)"],
                                     preexec_fn=join)
        try:
            (group / "memory.limit_in_bytes").write_text(str(limit))
            self.wait(seconds)
        finally:
            neighbour.kill()
            neighbour.wait()
            (group / "memory.limit_in_bytes").write_text("-1")
        span.end = now()

    def clock(self):
        """Hours forwards or backwards, or a little; now and then back to the true time."""
        hours = self.dice.choice((0, self.dice.uniform(-11, 11), self.dice.uniform(-0.01, 0.01)))  # between two less than a key's 24 h
        self.put(CLOCK, int(hours * 3600e9))
        return True

    def corrupt(self):
        """One byte of a page of the store is another, or its end is missing (FAILURES P4)."""
        pages = list((self.world.folder / "store").glob("*/*.page"))
        if not pages:
            return False
        page = self.dice.choice(pages)
        self.world.corrupted.add(str(page))
        try:
            with open(page, "r+b") as f:
                size = f.seek(0, os.SEEK_END)
                at = self.dice.randrange(size)
                if self.dice.random() < 0.3:
                    f.truncate(at)
                else:
                    f.seek(at)
                    old = f.read(1)
                    f.seek(at)
                    f.write(bytes([old[0] ^ 1 << self.dice.randrange(8)]))
        except OSError:
            return False  # deleted meanwhile
        return True


def make_group(run):
    """A group of the memory controller (v1) of our own; None where there is none to be had."""
    group = CGROUP / f"hearth-chaos-{run}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").read_text()
        return group
    except OSError:
        return None


def remove_group(group):
    if group:
        until(lambda: not (group / "cgroup.procs").read_text().strip(), 10)
        try:
            group.rmdir()
        except OSError:
            pass

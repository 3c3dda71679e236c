"""world: what all of a run share: the daemon that lives now and those before, when there was none, and what was done to them."""
import hashlib
import os
import pathlib
import signal
import socket
import subprocess
import threading

from book import Book
from judge import Judge
from rig import MARK, Daemon, alive, marked, now, until

STALL_S, GRACE_S = 8, 2
END_S = 15        # DESIGN: less than 5 s from SIGTERM to the end; the machine has others
ORPHAN_S = 5      # workers after the daemon's SIGKILL
KEYS = {"anna": "anna's key", "bert": "bert's key"}


class Span:
    """Something that lasts: from, to (None: still)."""

    def __init__(self, kind):
        self.kind, self.begin, self.end = kind, now(), None

    def meets(self, begin, end):
        return self.begin <= end and (self.end is None or self.end >= begin)


class World:
    def __init__(self, folder, run, hearth, faults_lib, models, tell):
        self.folder, self.run, self.hearth, self.models, self.tell = pathlib.Path(folder), run, hearth, models, tell
        self.keys = list(KEYS.values())
        (self.folder / "keys").write_text("".join(f"{n} {hashlib.sha256(k.encode()).hexdigest()}\n" for n, k in KEYS.items()))
        help_text = subprocess.run([hearth, "serve", "--help"], capture_output=True, text=True, check=True).stdout
        self.has_journal = "--journal" in help_text
        self.port = 0
        self.control = self.folder / "control"
        self.control.write_bytes(bytes(64))
        self.env = {MARK: run, "HEARTH_FAULT_CONTROL": str(self.control), "LD_PRELOAD": faults_lib,
                    "XDG_CACHE_HOME": str(self.folder / "cache")}
        self.group = None  # of the kernel's memory controller
        self.lives, self.daemon, self.lock = [], None, threading.Lock()
        self.downs, self.stops, self.freezes, self.squeezes, self.memory, self.disks = [], [], [], [], [], []
        self.injected = []  # (when, model, signal)
        self.corrupted = set()  # files of the store, by name
        self.over = threading.Event()  # clients end
        self.quiet = threading.Event()  # faults end
        self.book = Book(tell)
        self.judge = Judge(self, self.book)
        self.catalogue = None
        self.log_file = open(self.folder / "daemon.log", "w", buffering=1)

    # The daemon

    def argv(self):
        argv = [self.hearth, "serve"]
        for m in self.models.values():
            argv += ["-m", m]
        return argv + ["--port", str(self.port), "--threads", "1", "--max-sessions", "4", "--api-keys", str(self.folder / "keys"),
                       "--store", str(self.folder / "store"), "--store-bytes", str(256 << 20), "--stall-timeout", str(STALL_S),
                       "--cancel-grace", str(GRACE_S), "--max-respawns", "1000", "--session-ttl", "3600", "--max-queue", "24",
                       *(["--journal", str(self.folder / "journal")] if self.has_journal else [])]

    def start(self):
        (self.folder / "store").mkdir(exist_ok=True)
        (self.folder / "journal").mkdir(exist_ok=True, mode=0o700)
        procs = self.group and f"{self.group}/cgroup.procs"

        def join():
            if procs:
                with open(procs, "w") as f:
                    f.write(str(os.getpid()))
        d = Daemon(self.argv(), self.env, self.log_file, join)
        self.port = d.port
        with self.lock:
            self.daemon = d
            self.lives.append(d)
        return d

    def accepts(self):
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", self.port)) == 0

    def end(self, sig, again=False, then=True):
        """SIGTERM (L1) or SIGKILL to the daemon; then: starts the next. again: a second SIGTERM."""
        d, pids = self.daemon, list(self.daemon.workers.values())
        down = Span("kill" if sig == signal.SIGKILL else "term")
        self.downs.append(down)
        d.process.send_signal(sig)
        if again:
            d.process.send_signal(sig)
        rc = d.wait_end(END_S if sig == signal.SIGTERM else 60)
        if rc is None:
            self.book.fail(f"the daemon is still there {END_S} s after SIGTERM")
            d.kill()
        elif sig == signal.SIGTERM and rc != 0:
            self.book.fail(f"SIGTERM: exit status {rc}")
        if not until(lambda: not any(alive(p) for p in pids) and not marked(self.run), ORPHAN_S):
            self.book.fail(f"orphans: {marked(self.run)}")
            for p in marked(self.run):
                os.kill(p, signal.SIGKILL)
        if then:
            self.start()
            down.end = now() + 0.2  # who connected to the old one may hear so a moment later

    # What was

    def was_down(self, begin, end, kinds=("term", "kill")):
        return any(s.kind in kinds and s.meets(begin - 0.2, end) for s in list(self.downs))

    def was_stopped(self, begin, end):
        return any(s.meets(begin, end) for s in list(self.stops) + list(self.downs))

    def last_stop(self):
        return max([s.end or now() for s in list(self.stops) + list(self.downs)], default=0)

    def disk_failed(self, begin, end):
        """Also a while ago: a journal that cannot be written is not tried again for 10 s."""
        return any(s.meets(begin - 15, end) for s in list(self.disks))

    def deaths(self):
        return [d for life in self.lives for d in life.deaths]

    def hopeless(self):
        return [x for life in self.lives for x in life.hopeless]


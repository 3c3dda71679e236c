"""rig: a daemon and its processes, seen from outside: start, log, signals, what /proc tells."""
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import threading
import time

PATIENCE = 60
MARK = "HEARTH_CHAOS_RUN"  # in the environment of all that is started here: nobody else's processes are ever touched
DIED = re.compile(r'serve model="(\w+)" worker=gone .*cause=(\w+)(?: detail="(?:signal (\d+))?)?')
STARTED = re.compile(r'serve model="(\w+)" worker=started pid=(\d+)')
READY = re.compile(r'serve model="(\w+)" worker=ready pid=(\d+)')
HTTP = re.compile(r"info http method=\S+ path=\S+ status=\d+ .* id=(\S+) user=")
HOPELESS = re.compile(r'serve model="(\w+)" worker=(not_started|given_up)')


def now():
    return time.monotonic()


def until(condition, seconds=PATIENCE, pause=0.02):
    end = now() + seconds
    while not condition():
        if now() > end:
            return False
        time.sleep(pause)
    return True


def state_of(pid):
    """Its letter in /proc; "" is no process."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def alive(pid):
    return state_of(pid) not in ("", "Z")


def signal_to(pid, sig):
    try:
        os.kill(pid, sig)
        return True
    except ProcessLookupError:
        return False


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def rss_kib(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    return 0


def marked(mark):
    """All processes of the run that carries this mark, without ourselves."""
    found, want = [], f"{MARK}={mark}".encode()
    for p in pathlib.Path("/proc").iterdir():
        try:
            if p.name.isdigit() and int(p.name) != os.getpid() and want in (p / "environ").read_bytes().split(b"\0"):
                found.append(int(p.name))
        except OSError:
            pass  # gone
    return [pid for pid in found if alive(pid)]


class Death:
    def __init__(self, model, cause, sig):
        self.at, self.model, self.cause, self.signal = now(), model, cause, int(sig or 0)
        self.injected = False
        self.blamed = 0

    def own_fault(self):
        """PROTOCOL 6."""
        if self.cause == "signal":
            return self.signal not in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        return self.cause in ("exit", "broken_protocol", "stalled")


class Daemon:
    """One life of a daemon. log: (seconds, line)."""

    def __init__(self, argv, env=None, log_file=None, before_exec=None):
        self.folder = tempfile.TemporaryDirectory(prefix="hearth-chaos-")
        self.log_file = log_file
        self.log, self.port, self.listening = [], None, threading.Event()
        self.deaths, self.hopeless, self.workers, self.ready, self.exchanges = [], [], {}, {}, {}
        self.began, self.lock = now(), threading.Lock()
        self.process = subprocess.Popen(argv, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, text=True,
                                        errors="replace", preexec_fn=before_exec,
                                        env={**os.environ, "XDG_CACHE_HOME": self.folder.name, **(env or {})})
        self.pid = self.process.pid
        self.reader = threading.Thread(target=self.read_log, daemon=True)
        self.reader.start()
        if not self.listening.wait(PATIENCE) or not self.port:
            self.kill()
            raise AssertionError("not listening: " + "\n".join(line for _, line in self.log[-20:]))

    def read_log(self):
        for line in self.process.stderr:
            line = line.rstrip("\n")
            if self.log_file:
                self.log_file.write(f"{now() % 100000:.3f} {self.pid} {line}\n")
            self.note(line)
        self.listening.set()

    def note(self, line):
        m = HTTP.search(line)
        if m:
            with self.lock:
                self.exchanges.setdefault(m[1], []).append(now())
            return
        self.log.append((now(), line))
        if m := STARTED.search(line):
            self.workers[m[1]] = int(m[2])
        elif m := READY.search(line):
            self.ready[m[1]] = int(m[2])
        elif m := DIED.search(line):
            self.deaths.append(Death(m[1], m[2], m[3]))
            self.workers.pop(m[1], None)
        elif line.startswith("listening on "):
            self.port = int(line.rsplit(":", 1)[1])
            self.listening.set()
        if m := HOPELESS.search(line):
            self.hopeless.append((now(), m[1], m[2]))

    def exchanged(self, request_id):
        with self.lock:
            return len(self.exchanges.get(request_id, ()))

    def ended(self, request_id):
        """When it was answered last, here."""
        with self.lock:
            return max(self.exchanges.get(request_id, ()), default=None)

    def lines(self, *words):
        return [line for _, line in list(self.log) if all(w in line for w in words)]

    def wait_end(self, seconds=PATIENCE):
        """The exit status, or None."""
        try:
            rc = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        self.reader.join(PATIENCE)
        self.process.stderr.close()
        self.folder.cleanup()
        return rc

    def kill(self):
        self.process.kill()
        self.wait_end()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.returncode is None:
            self.process.terminate()
            if self.wait_end(20) is None:
                self.kill()

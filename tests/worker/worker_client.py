"""A small client of the worker protocol, both dialects, over pipes, and what it knows of the made models.

That something was written says nothing of when the worker sees it. A test that needs it seen waits until the worker is quiet, or
for a frame; where a moment must be met inside a reply, the reply cannot end unread (small_pipe), or it is tried again."""
import fcntl
import functools
import json
import os
import select
import subprocess
import tempfile
import time
import unittest

F_SETPIPE_SZ = 1031
PATIENCE = 120.0  # seconds for anything that must come; generous, sanitizers are slow
GONE_IN = float(os.environ.get("HEARTH_TEST_GONE_S", "5"))  # seconds for an exit that must be quick

COMMAND = []  # set by worker_script.py
MODELS = {}   # "bpe": context 512, "spm": context 512, "long": bpe with context 8192, "ember": the bundled one
TEMPLATE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../models/ember/chat_template.jinja")  # its own


class Worker:
    """One worker process. Frames are read only when asked for, so a test decides when stdout is blocked."""

    def __init__(self, *args, model="bpe", small_pipe=False, stdin=None, stdout=None, ready=True, env=None,
                 pass_fds=()):
        own_in, own_out = stdin is None, stdout is None
        if own_in:
            stdin, self.to = os.pipe()
        else:
            self.to = None
        if own_out:
            self.frm, stdout = os.pipe()
            if small_pipe:
                fcntl.fcntl(self.frm, F_SETPIPE_SZ, 4096)
        else:
            self.frm = None
        self.log = tempfile.TemporaryFile()
        path = MODELS.get(model, model)
        self.proc = subprocess.Popen([*COMMAND, "-m", path, "--threads", "2", *args], stdin=stdin, stdout=stdout,
                                     stderr=self.log, env=None if env is None else {**os.environ, **env},
                                     pass_fds=pass_fds)
        if own_in:
            os.close(stdin)
        if own_out:
            os.close(stdout)
        self.data = b""
        self.kept = {}
        self.ready = self.recv() if ready else None

    def send_raw(self, data):
        view = memoryview(data)
        while view:
            _, can, _ = select.select([], [self.to], [], PATIENCE)
            if not can:
                raise AssertionError("the worker does not read")
            view = view[os.write(self.to, view[:65536]):]

    def send(self, *lines):
        """Each line a dict, or text as it is."""
        text = "".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines)
        self.send_raw(text.encode())

    def recv_line(self, timeout=PATIENCE):
        """One line without its newline; None at the end."""
        until = time.monotonic() + timeout
        while b"\n" not in self.data:
            ready, _, _ = select.select([self.frm], [], [], max(0, until - time.monotonic()))
            if not ready:
                raise AssertionError(f"no frame in {timeout} s; had {self.data[:200]!r}; log: {self.log_text()}")
            more = os.read(self.frm, 65536)
            if not more:
                assert self.data == b"", f"half a frame at the end: {self.data[-200:]!r}"
                return None
            self.data += more
        line, self.data = self.data.split(b"\n", 1)
        return line

    def recv(self, timeout=PATIENCE):
        line = self.recv_line(timeout)
        if line is None:
            raise AssertionError(f"the worker ended; log: {self.log_text()}")
        return json.loads(line.decode("utf-8"))  # strict: a frame is valid UTF-8

    def recv_reply(self):
        """Text and last frame of one reply."""
        text = ""
        while True:
            f = self.recv()
            if "token" not in f:
                return text, f
            assert set(f) == {"token"} and isinstance(f["token"], str) and f["token"] != "", f
            text += f["token"]

    def ask(self, line):
        self.send(line)
        return self.recv_reply()

    def generate(self, **fields):
        """Text and done frame of a generation that must go well."""
        text, last = self.ask(fields)
        assert last.get("done") is True, last
        return text, last

    def error(self, line):
        """The error frame of a line that must be refused, without a token before it."""
        text, last = self.ask(line)
        assert "error" in last and text == "", (line, last)
        assert isinstance(last["error"], str) and last["error"] and isinstance(last["code"], str), last
        return last

    # The multiplexed dialect: frames are kept by id until somebody asks for them.

    def recv_of(self, name, timeout=PATIENCE):
        """The next frame about request `name` (None: a plain one); others are kept for later."""
        while not self.kept.get(name):
            f = self.recv(timeout)
            self.kept.setdefault(f.get("id"), []).append(f)
        return self.kept[name].pop(0)

    def recv_until_last(self, name, timeout=PATIENCE):
        """All frames about a request up to its last one."""
        frames = []
        while not frames or not ({"done", "error", "pieces", "text", "count", "session", "closed", "reset", "stats"} &
                                 set(frames[-1])):
            frames.append(self.recv_of(name, timeout))
        return frames

    def recv_ids(self, name, timeout=PATIENCE):
        """Text, ids and last frame of a multiplexed reply; checks their form."""
        frames = self.recv_until_last(name, timeout)
        text, ids = "", []
        for i, f in enumerate(frames[:-1]):
            assert ("accepted" in f) == (i == 0), frames
            if "token" in f or "delta" in f:
                text += f["token"] if "token" in f else f["delta"].get("content", "")
                # the deltas of one step come in several frames, its id is in the last of them
                assert len(f["ids"]) == 1 or (f["ids"] == [] and (i == len(frames) - 2 or "delta" in f)), f
                ids += f["ids"]
        if "done" in frames[-1]:
            assert frames[-1]["completion_tokens"] == len(ids), frames[-1]
            assert "generated_token_ids" not in frames[-1]
        return text, ids, frames[-1]

    def close_stdin(self):
        if self.to is not None:
            os.close(self.to)
            self.to = None

    def close_stdout(self):
        os.close(self.frm)
        self.frm = None

    def threads(self):
        """Of each thread whether it waits, and how often it was put on a CPU."""
        folder = f"/proc/{self.proc.pid}/task"
        found = {}
        for tid in os.listdir(folder):
            try:
                with open(f"{folder}/{tid}/status", encoding="utf-8") as f:
                    lines = dict(x.split(":", 1) for x in f)
            except (FileNotFoundError, ProcessLookupError):  # it has ended since it was listed
                found[tid] = (False, "", "")
                continue
            found[tid] = (lines["State"].split()[0] == "S", lines["voluntary_ctxt_switches"], lines["nonvoluntary_ctxt_switches"])
        return found

    def wait_until_quiet(self, patience=PATIENCE):
        """Returns when everything in the process waits: no thread of it wanted a CPU, or had one, from one look to the next. One
        that waits for a busy CPU is not quiet."""
        until, same, last = time.monotonic() + patience, 0, None
        while same < 3:
            assert time.monotonic() < until, "still busy"
            now = self.threads()
            same = same + 1 if now == last and all(waits for waits, *_ in now.values()) else 0
            last = now
            time.sleep(0.02)

    def fill_stdin(self, line):
        """Writes copies of a line until neither the worker nor the pipe takes more. Returns how many bytes went in."""
        os.set_blocking(self.to, False)
        sent, full = 0, False
        while True:
            try:
                sent += os.write(self.to, (line * 64)[sent % len(line):])
                full = False
            except BlockingIOError:
                if full:
                    break
                self.wait_until_quiet()
                full = True
        os.set_blocking(self.to, True)
        return sent

    def wait(self, timeout=PATIENCE):
        return self.proc.wait(timeout)

    def finish(self):
        """End of input: no frame may be left, exit status 0."""
        self.close_stdin()
        rest = self.recv_line()
        assert rest is None, rest
        rc = self.wait()
        assert rc == 0, (rc, self.log_text())

    def log_text(self):
        self.log.seek(0)
        return self.log.read().decode("utf-8", "replace")[-3000:]

    def release(self):
        if self.proc.poll() is None:
            self.proc.kill()
            self.proc.wait()
        self.close_stdin()
        if self.frm is not None:
            self.close_stdout()
        self.log.close()


class Case(unittest.TestCase):
    """A test with workers that are cleaned up."""

    def worker(self, *args, **kwargs):
        w = Worker(*args, **kwargs)
        self.addCleanup(w.release)
        return w

    def assert_gone(self, w, want, since):
        rc = w.wait(PATIENCE)
        took = time.monotonic() - since
        ways = {want, 128 - want} if want > 128 else {want}  # a step longer than the grace is not waited for
        self.assertIn(rc, ways, w.log_text())
        self.assertLess(took, GONE_IN)


# The byte-level BPE of the made models (tests/model/make_vocab.c): id b is byte b, then 41 merges, then three
# control tokens. "bpe" and "long" have 300 ids.
LETTERS = "etaoinshrdlcumwfgypbvkjxqz"
END_OF_TEXT, IM_START, IM_END = 297, 298, 299
END_IDS = {END_OF_TEXT, IM_END}


def bpe_piece(token):
    if token < 256:
        return bytes([token])
    if token < 256 + 26:
        return (" " + LETTERS[token - 256]).encode()
    if token < END_OF_TEXT:
        return (LETTERS[(token - 282) // 26] + LETTERS[(token - 282) % 26]).encode()
    return [b"<|endoftext|>", b"<|im_start|>", b"<|im_end|>"][token - END_OF_TEXT]


def bpe_text(ids):
    """What a reply of these ids says: the bytes joined, every maximal bad part repaired."""
    return b"".join(map(bpe_piece, ids)).decode("utf-8", "replace")


@functools.lru_cache(None)
def endless():
    """A request to the long model that runs for 3,500 tokens: no end token stops it. It says more than what pipe (4 KiB)
    and worker (2 x 16 KiB) hold."""
    w = Worker(model="long")
    try:
        for prompt in ("hi", "abc", "the", "story", "0", "a b c", "\n", "zz"):
            request = {"prompt": prompt, "max_new_tokens": 3500}
            text, done = w.generate(**request)
            if done["completion_tokens"] == 3500:
                assert len(text.encode()) + 3500 * len('{"token":""}') > 45000
                return request
    finally:
        w.release()
    raise AssertionError("every reply of the long model ends early")


def segments(ids):
    return [{"ids": list(ids)}]


def some_ids(n, seed=0):
    """n ids of plain letters."""
    return [97 + (i * 7 + i * i * 3 + seed * 11) % 26 for i in range(n)]

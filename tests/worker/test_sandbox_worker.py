#!/usr/bin/python3
"""test_sandbox_worker.py WORKER_MAIN MODEL.gguf [HEARTH_FAULTS.so]: a whole worker in its sandbox, and one whose system calls
are short and interrupted.

In builds with a sanitizer there is no sandbox (the worker says so) and no faults library: those cases are skipped.
"""
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import unittest

WORKER = MODEL = FAULTS = None
PATIENCE = 120

PLAIN = [
    {"prompt": "hello there", "max_new_tokens": 24, "temperature": 0},
    {"prompt": "one more, and a long one: " + "words " * 40, "max_new_tokens": 8, "temperature": 0.8, "top_k": 40, "seed": 7},
    {"prompt": ""},
    "{not json",
    {"op": "open", "session_id": "s"},
    {"prompt": "in a session", "session_id": "s", "max_new_tokens": 6, "temperature": 0},
    {"prompt": "in a session", "session_id": "s", "max_new_tokens": 3, "temperature": 0},
    {"op": "reset", "session_id": "s"},
    {"prompt": "ab\u00e9\u20ac\U0001f600", "max_new_tokens": 16, "temperature": 0, "session_id": "t"},
    {"op": "close", "session_id": "s"},
    {"op": "close"},
]


def text_of(lines):
    return "".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines).encode()


def without_times(frame):
    """What must not depend on how fast things were, nor on which process it was."""
    skip = ("_ms", "_tok_s", "pid")
    return {k: v for k, v in frame.items() if not k.endswith(skip) and not (k == "seed" and "done" in frame)}


class Run:
    """One worker, all its input at once, until it ends."""

    def __init__(self, lines, *args, model=None, faults=None, socket_pair=False, look=False):
        self.counts = None
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as log:
            env = dict(os.environ)
            counts = os.path.join(folder, "counts")
            if faults:
                env.update({"LD_PRELOAD": FAULTS, "HEARTH_FAULT_COUNTS": counts, **faults})
            if socket_pair:
                ours, theirs = socket.socketpair()
                stdin = stdout = theirs
            else:
                stdin = stdout = subprocess.PIPE
            proc = subprocess.Popen([WORKER, "-m", model or MODEL, "--threads", "2", *args], stdin=stdin, stdout=stdout,
                                    stderr=log, env=env)
            self.status = ""
            if socket_pair:
                theirs.close()
                out = self.talk(ours, text_of(lines))
            else:
                if look:
                    first = proc.stdout.readline()
                    with open(f"/proc/{proc.pid}/status", encoding="utf-8") as f:
                        self.status = f.read()
                out = (first if look else b"") + proc.communicate(text_of(lines), timeout=PATIENCE)[0]
            self.rc = proc.wait(timeout=PATIENCE)
            log.seek(0)
            self.log = log.read().decode()
            if faults:
                with open(counts, "rb") as f:
                    self.counts = struct.unpack("<4Q", f.read(32))
        self.frames = [json.loads(line) for line in out.decode("utf-8").splitlines()]

    @staticmethod
    def talk(sock, data):
        sock.settimeout(PATIENCE)
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        got = []
        while chunk := sock.recv(65536):
            got.append(chunk)
        sock.close()
        return b"".join(got)

    def plain(self):
        return [without_times(f) for f in self.frames]


def sandboxed(run):
    return "event=sandboxed" in run.log


class Sandbox(unittest.TestCase):
    def need_sandbox(self, run):
        if not sandboxed(run):
            self.assertIn("event=no_sandbox reason=", run.log)
            print("SKIPPED: sandbox:", run.log.splitlines()[0], file=sys.stderr)
            self.skipTest("no sandbox in this build")

    def test_is_inside(self):
        run = Run(PLAIN[:1], look=True)
        self.assertEqual(run.rc, 0, run.log)
        self.assertIn("done", run.frames[-1])
        self.need_sandbox(run)
        self.assertIn("\nSeccomp:\t2\n", run.status)
        self.assertIn("\nNoNewPrivs:\t1\n", run.status)
        self.assertIn("event=sandbox_sealed data_limit_bytes=", run.log)

    def test_same_frames_as_outside(self):
        inside, outside = Run(PLAIN), Run(PLAIN, "--no-sandbox", look=True)
        self.assertIn("\nSeccomp:\t0\n", outside.status)
        self.assertIn("event=no_sandbox reason=", outside.log)
        self.assertEqual(inside.plain(), outside.plain())
        self.assertEqual((inside.rc, outside.rc), (0, 0))

    def test_no_unknown_calls(self):
        for socket_pair in (False, True):
            run = Run([*PLAIN, {"op": "generate", "id": "a", "prompt": "x", "seed": 3, "now": 1, "max_new_tokens": 4}, {"op": "stats", "id": "b"}],
                      socket_pair=socket_pair)
            self.assertEqual(run.rc, 0, run.log)
            self.assertNotIn("unknown_system_call", run.log)

    def test_packed_weights(self):
        """Written inside, found inside, and what cannot be used is no reason to fail."""
        with tempfile.TemporaryDirectory() as folder:
            packed = os.path.join(folder, "a", "packed")
            want = Run(PLAIN, "--no-sandbox").plain()
            first = Run(PLAIN, "--pack-dir", packed)
            files = os.listdir(packed) if os.path.isdir(packed) else []
            if not files and first.frames[0]["kernels"] == "ref":
                self.skipTest("no packed kernels on this CPU")
            self.assertEqual(len(files), 1)
            name = os.path.join(packed, files[0])
            before = os.stat(name)
            self.assertEqual(before.st_mode & 0o7777, 0o400)
            with open(name, "rb"):  # so that another file cannot get its number
                second = Run(PLAIN, "--pack-dir", packed)
                self.assertEqual(os.stat(name).st_ino, before.st_ino)
            os.truncate(name, before.st_size // 2) if os.access(name, os.W_OK) else os.unlink(name)
            third = Run(PLAIN, "--pack-dir", packed)
            self.assertEqual(os.stat(name).st_size, before.st_size)
            nowhere = Run(PLAIN, "--pack-dir", "/proc/hearth")
            self.assertIn("/proc/hearth", nowhere.log)
            for run in (first, second, third, nowhere):
                self.assertEqual(run.rc, 0, run.log)
                self.assertEqual(run.plain(), want)
                self.assertNotIn("unknown_system_call", run.log)

    def test_named_like_a_part(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "m-00002-of-00003.gguf")
            shutil.copyfile(MODEL, path)
            run = Run(PLAIN[:1], model=path)
            self.assertEqual(run.rc, 0, run.log)
            self.assertIn("done", run.frames[-1])

    def test_cannot_load(self):
        with tempfile.TemporaryDirectory() as folder:
            bad = os.path.join(folder, "bad.gguf")
            with open(bad, "wb") as f:
                f.write(b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 1 << 60) + bytes(100))
            for path in (bad, os.path.join(folder, "absent.gguf"), folder, "/dev/zero"):
                run = Run(PLAIN[:1], model=path)
                self.assertEqual(run.rc, 1, run.log)
                self.assertEqual([f["code"] for f in run.frames], ["load_failed"])
                self.assertNotIn("unknown_system_call", run.log)


class Faults(unittest.TestCase):
    def test_same_frames(self):
        if not FAULTS:
            print("SKIPPED: no preloaded faults in a build with a sanitizer", file=sys.stderr)
            self.skipTest("sanitizer")
        want = Run(PLAIN).plain()
        for socket_pair in (False, True):
            for short, eintr in (("1", "2"), ("7", "3"), ("100", "5")):
                run = Run(PLAIN, faults={"HEARTH_FAULT_SHORT": short, "HEARTH_FAULT_EINTR": eintr}, socket_pair=socket_pair)
                with self.subTest(short=short, eintr=eintr, socket_pair=socket_pair):
                    self.assertEqual(run.rc, 0, run.log)
                    self.assertEqual(run.plain(), want)
                    self.assertNotIn("unknown_system_call", run.log)
                    # a reply of a few KiB in pieces of 100 bytes at most, some written, some read and polled for
                    self.assertGreater(run.counts[0], 10)
                    self.assertGreater(run.counts[1], 5)


if __name__ == "__main__":
    WORKER, MODEL = (os.path.abspath(x) for x in sys.argv[1:3])
    FAULTS = os.path.abspath(sys.argv[3]) if len(sys.argv) > 3 else None
    unittest.main(argv=sys.argv[:1])

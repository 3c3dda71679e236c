#!/usr/bin/python3
"""test_faults.py HEARTH_FAULTS.so: the preloaded faults do what README.md says, seen from Python's own system calls."""
import os
import struct
import subprocess
import sys
import tempfile
import unittest

LIBRARY = None


def run(code, **env):
    """What code printed in a Python with the faults, and the counts (short, eintr, refused, nospc, by control)."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "counts")
        full = {**os.environ, "LD_PRELOAD": LIBRARY, "HEARTH_FAULT_COUNTS": path, "FOLDER": folder,
                **{"HEARTH_FAULT_" + k: v for k, v in env.items()}}
        full.pop("PYTHONUNBUFFERED", None)  # an unbuffered print loses what a short write leaves
        done = subprocess.run([sys.executable, "-S", "-c", "import os, sys, errno, socket, select\n" + code, "here"],
                              env=full, stdout=subprocess.PIPE, check=False)
        assert done.returncode == 0, done
        with open(path, "rb") as f:
            counts = struct.unpack("<5Q", f.read(40))
    return done.stdout.decode(), counts


def mix(n):
    """splitmix64, as in faults.c"""
    x = n * 0x9e3779b97f4a7c15 % 2**64
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9 % 2**64
    x = (x ^ x >> 27) * 0x94d049bb133111eb % 2**64
    return x ^ x >> 31


def interrupted(n_good, each):
    """How many calls fail until n_good have succeeded."""
    n = bad = 0
    while n - bad < n_good:
        n += 1
        bad += mix(n) % each == 0
    return bad


TRY = """
def attempt(f, *args):
    try:
        f(*args)
        return "ok"
    except OSError as e:
        return errno.errorcode[e.errno]
"""

CONTROL = """
import mmap, struct
shown = mmap.mmap(os.open(os.environ["HEARTH_FAULT_CONTROL"], os.O_RDWR), 64)
def put(i, value): shown[8 * i:8 * i + 8] = struct.pack("<q", value)
"""


class Faults(unittest.TestCase):
    def test_short_writes(self):
        out, counts = run("r, w = os.pipe(); print([os.write(w, b'abcdef') for _ in range(5)], os.read(r, 99).decode())",
                          SHORT="3")
        # print writes to a pipe as well, and repeats until all is written
        self.assertEqual(out, "[1, 2, 3, 1, 2] aababcaab\n")
        self.assertGreaterEqual(counts[0], 5)
        out, _ = run("r, w = os.pipe(); print(os.writev(w, [b'', b'ab', b'cd']), os.read(r, 9).decode())", SHORT="1")
        self.assertEqual(out, "1 a\n")
        out, _ = run("a, b = socket.socketpair(); print(a.send(b'abc'), a.sendmsg([b'xyz']), b.recv(9).decode())", SHORT="1")
        self.assertEqual(out, "1 1 ax\n")

    def test_not_short(self):
        out, counts = run("fd = os.open(os.environ['FOLDER'] + '/f', os.O_RDWR | os.O_CREAT); n = os.write(fd, b'abcdef')\n"
                          "e = os.eventfd(0); os.eventfd_write(e, 7)\nos._exit(0 if n == 6 and os.eventfd_read(e) == 7 else 1)",
                          SHORT="1")
        self.assertEqual((out, counts[0]), ("", 0))

    def test_eintr(self):
        # Python repeats what was interrupted, so the counts tell
        _, counts = run("r, w = os.pipe()\nfor i in range(10): os.write(w, b'ab'); os.read(r, 2)\nos._exit(0)", EINTR="2")
        self.assertEqual(counts[1], interrupted(20, 2))
        _, counts = run("r, w = os.pipe(); os.write(w, b'ab'); os.write(w, b'c'); p = select.poll(); p.register(r)\n"
                        "for i in range(5): p.poll(0)\nfor i in range(9): p.poll(1000)\nos._exit(0)", EINTR="3")
        self.assertEqual(counts[1], interrupted(10, 3))  # the write of two bytes, and the polls that may wait

    def test_refuse(self):
        out, counts = run(TRY + "print([attempt(os.pipe) for _ in range(5)])", REFUSE="pipe:2:2")
        self.assertEqual(out, "['ok', 'ok', 'EMFILE', 'EMFILE', 'ok']\n")
        self.assertEqual(counts[2], 2)
        out, _ = run(TRY + "print(attempt(os.memfd_create, 'x'), attempt(socket.socket), attempt(os.pipe), attempt(os.fork))",
                     REFUSE="memfd,socket,fork")
        self.assertEqual(out, "EMFILE EMFILE ok EAGAIN\n")
        out, _ = run(TRY + "l = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(l.getsockname())\n"
                     "print(attempt(l.accept), attempt(l.accept))", REFUSE="accept:0:1")
        self.assertEqual(out, "EMFILE ok\n")
        # Python opens some hundred files before it comes to this
        out, _ = run(TRY + "print(sum(attempt(lambda: os.close(os.open('/', os.O_RDONLY))) == 'EMFILE' for _ in range(3000)))",
                     REFUSE="open:2000:5")
        self.assertEqual(out, "5\n")

    def test_space(self):
        code = ("fd = os.open(os.environ['FOLDER'] + '/f', os.O_RDWR | os.O_CREAT)\n"
                "print(os.write(fd, b'abc'), os.write(fd, b'defg'), attempt(os.write, fd, b'h'), os.fstat(fd).st_size)")
        out, counts = run(TRY + code, SPACE="5")
        self.assertEqual(out, "3 2 ENOSPC 5\n")
        self.assertEqual(counts[3], 1)
        code = ("fd = os.open(os.environ['FOLDER'] + '/f', os.O_RDWR | os.O_CREAT)\n"
                "print(os.pwrite(fd, b'abc', 9), os.pwrite(fd, b'defg', 0), attempt(os.pwrite, fd, b'h', 4), os.fstat(fd).st_size)")
        out, counts = run(TRY + code, SPACE="5")
        self.assertEqual(out, "3 2 ENOSPC 12\n")
        self.assertEqual(counts[3], 1)

    def test_control_disk(self):
        """What the process itself writes into the file counts from then on, and stops to."""
        code = CONTROL + ("at = os.environ['FOLDER']; folder = os.open(at, os.O_RDONLY)\n"
                          "path, flags = at + '/f', os.O_RDWR | os.O_CREAT\n"
                          "fd = os.open(path, flags); os.write(fd, b'abc'); below = os.open('f', os.O_RDWR, dir_fd=folder)\n"
                          "def tried(): return [attempt(*what) for what in ((os.write, fd, b'd'), (os.pwrite, fd, b'd', 0), (os.fsync, fd),\n"
                          "    (os.ftruncate, fd, 3), (os.open, at + '/g', flags), (os.rename, path, path), (os.pread, fd, 1, 0),\n"
                          "    (os.pread, below, 1, 0), (os.read, below, 1), (os.write, pipe, b'x'), (os.write, memory, b'x'))]\n"
                          "pipe = os.pipe()[1]; memory = os.memfd_create('m'); seen = [tried()]\n"
                          "for writes, reads in ((errno.ENOSPC, 0), (0, errno.EIO), (0, 0)):\n"
                          "    put(0, writes); put(1, reads); seen.append(tried())\n"
                          "for x in seen: os.write(1, (' '.join(x) + '\\n').encode())\n")
        with tempfile.NamedTemporaryFile() as f:
            out, counts = run(TRY + code, CONTROL=f.name)
        fine = " ".join(["ok"] * 11)
        self.assertEqual(out.splitlines(), [fine, " ".join(["ENOSPC"] * 6 + ["ok"] * 5),
                                            " ".join(["ok"] * 7 + ["EIO"] * 2 + ["ok"] * 2), fine])
        self.assertEqual(counts[4], 8)

    def test_control_slow_reads(self):
        """Of the file that was opened relative to a folder, not of the other; until it is taken back."""
        code = CONTROL + ("import time\n"
                          "at = os.environ['FOLDER']; folder = os.open(at, os.O_RDONLY)\n"
                          "fd = os.open(at + '/f', os.O_RDWR | os.O_CREAT); below = os.open('f', os.O_RDWR, dir_fd=folder)\n"
                          "def took(f, *args):\n"
                          "    begin = time.monotonic(); f(*args); return time.monotonic() - begin\n"
                          "put(3, 300_000_000); slow = [took(os.pread, below, 1, 0), took(os.read, below, 1)]\n"
                          "other = took(os.pread, fd, 1, 0); put(3, 0)\n"
                          "print(*slow, other, took(os.pread, below, 1, 0))\n")
        with tempfile.NamedTemporaryFile() as f:
            out, counts = run(code, CONTROL=f.name)
        times = [float(x) for x in out.split()]
        self.assertTrue(times[0] >= 0.3 and times[1] >= 0.3 and times[2] < 0.3 and times[3] < 0.3, times)
        self.assertEqual(counts[4], 0)

    def test_control_clock(self):
        """Hours forwards and backwards, with the fraction of a second; the other clock does not notice."""
        for hours in 5, -5, 0.5 / 3600, -0.25 / 3600:
            code = CONTROL + ("import time\n"
                              "def now(): return time.time(), time.clock_gettime(5), time.monotonic()  # 5: COARSE\n"
                              f"before = now(); put(2, {int(hours * 3600 * 1e9)}); after = now()\n"
                              "put(2, 0); end = now(); print(*before, *after, *end)\n")
            with tempfile.NamedTemporaryFile() as f:
                out, _ = run(code, CONTROL=f.name)
            times = [float(x) for x in out.split()]
            passed = times[8] - times[2] + 0.02  # in all, seen from the other clock; coarse ones lag by a tick
            for i in range(2):
                self.assertTrue(-0.02 <= times[3 + i] - times[i] - hours * 3600 <= passed, (hours, times))
                self.assertTrue(-0.02 <= times[6 + i] - times[i] <= passed, (hours, times))
            self.assertTrue(0 <= times[5] - times[2] <= passed)

    def test_in(self):
        out, _ = run(TRY + "print(attempt(os.pipe))", REFUSE="pipe", IN="here")
        self.assertEqual(out, "EMFILE\n")
        with self.assertRaises(FileNotFoundError):  # not for this process: no counts either
            run(TRY + "print(attempt(os.pipe))", REFUSE="pipe", IN="elsewhere")

    def test_unreadable(self):
        for env in ({"SHORT": "x"}, {"SHORT": "0"}, {"EINTR": "1"}, {"REFUSE": "nothing"}):
            with self.assertRaisesRegex(AssertionError, "returncode=99"):
                run("pass", **env)


if __name__ == "__main__":
    LIBRARY = os.path.abspath(sys.argv.pop(1))
    unittest.main()

#!/usr/bin/python3
"""http_script.py GROUP HTTP_MAIN: drives serve/http alone (http_main.c) over sockets. Standard library only; curl and node
where they are installed. Exit 1 if a test fails.

That something is sent or connected says nothing of when the server sees it: a test waits for what the server prints
(Server.wait, wait_stats) before it goes on. That a client which left is noticed within a second is asserted as: the best
of ten tries is. What takes longer by design fails all ten; a machine that is busy elsewhere does not.
"""
import http.client
import json
import os
import pathlib
import random
import re
import resource
import selectors
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import side_by_side

GROUP, HTTP_MAIN = sys.argv[1:]
PATIENCE = 60  # seconds for what must come; never what is measured
POST = b"POST %s HTTP/1.%d\r\nHost: h\r\nContent-Length: %d\r\n%s\r\n"


def post(path, body=b"", minor=1, extra=b""):
    return POST % (path.encode(), minor, len(body), extra) + body


def get(path, minor=1, extra=b"", method=b"GET"):
    return b"%s %s HTTP/1.%d\r\nHost: h\r\n%s\r\n" % (method, path.encode(), minor, extra)


class Server:
    def __init__(self, *options, wait=True):
        self.process = subprocess.Popen([HTTP_MAIN, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        self.lines, self.log, self.news = [], [], threading.Condition()
        self.readers = [threading.Thread(target=self.read, args=x, daemon=True)
                        for x in ((self.process.stdout, self.lines), (self.process.stderr, self.log))]
        for t in self.readers:
            t.start()
        if wait:
            self.url = self.wait(r"listening (.*)")[1]
            self.address = (self.url[5:] if self.url.startswith("unix:") else
                            (self.url[7:].rsplit(":", 1)[0].strip("[]"), int(self.url.rsplit(":", 1)[1])))

    def read(self, stream, into):
        for line in stream:
            with self.news:
                into.append(line.rstrip("\n"))
                self.news.notify_all()

    def wait(self, pattern, n=1, lines=None):
        """The n-th line that matches, once it is there."""
        found = []

        def there():
            found[:] = [m for m in (re.fullmatch(pattern, x) for x in (self.lines if lines is None else lines)) if m]
            return len(found) >= n
        with self.news:
            if not self.news.wait_for(there, PATIENCE):
                raise AssertionError(f"no {pattern!r} ({n}) in {self.lines[-40:]} {self.log[-10:]}")
        return found[n - 1]

    def count(self, pattern):
        with self.news:
            return sum(bool(re.fullmatch(pattern, x)) for x in self.lines)

    def command(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def stats(self):
        """(connections, requests that wait, bytes of bodies that are held)"""
        n = self.count(r"stats .*")
        self.command("stats")
        return tuple(map(int, self.wait(r"stats (\d+) (\d+) (\d+)", n + 1).groups()))

    def waiting(self):
        return self.stats()[1]

    def wait_stats(self, *want):
        """The first numbers of stats; None: any."""
        end = time.monotonic() + PATIENCE
        while (got := self.stats()) and any(w not in (None, g) for w, g in zip(want, got)):
            if time.monotonic() > end:
                raise AssertionError(f"stats {got}, not {want}")
            time.sleep(0.01)

    def answer(self):
        self.command("answer")

    def raw(self, data=b"", address=None, small=False):
        address = address or self.address
        s = socket.socket(socket.AF_UNIX if isinstance(address, str) else
                          socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
        if small:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.settimeout(PATIENCE)
        s.connect(address)
        s.sendall(data)
        return s

    def ask(self, data, method="GET"):
        """One answer on a connection of its own: (status, headers, body)."""
        with self.raw(data) as s:
            return read_answer(s, method)

    def ticks(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    def memory(self, name):
        """bytes; VmRSS, VmHWM"""
        return int(re.search(name + r":\s+(\d+) kB", pathlib.Path(f"/proc/{self.process.pid}/status").read_text())[1]) * 1024

    def n_fds(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def end(self):
        self.process.stdin.close()
        rc = self.process.wait(PATIENCE)
        for t in self.readers:
            t.join(PATIENCE)
        self.process.stdout.close()
        self.process.stderr.close()
        return rc

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        rc = self.end()
        if exc[0] is None and rc != 0:
            raise AssertionError(f"exit status {rc}: {self.log[-30:]}")


class Answers:
    """Cuts a connection's bytes into answers; keeps what was read too far."""

    def __init__(self, s):
        self.s, self.data, self.n_102 = s, b"", 0

    def more(self):
        piece = self.s.recv(65536)
        self.data += piece
        return bool(piece)

    def until(self, mark):
        while mark not in self.data:
            if not self.more():
                raise AssertionError(f"the end before {mark}: {self.data[-200:]}")
        part, self.data = self.data.split(mark, 1)
        return part

    def exactly(self, n):
        while len(self.data) < n:
            if not self.more():
                raise AssertionError(f"{len(self.data)} bytes of {n}")
        part, self.data = self.data[:n], self.data[n:]
        return part

    def head(self):
        while True:
            first, *lines = self.until(b"\r\n\r\n").decode().split("\r\n")
            status = int(re.fullmatch(r"HTTP/1\.1 (\d{3}) .+", first)[1])
            if status != 102:
                break
            assert not lines
            self.n_102 += 1
        headers = {}
        for line in lines:
            name, value = line.split(": ", 1)
            assert name.lower() not in headers, line
            headers[name.lower()] = value
        return status, headers

    def chunk(self):
        body = self.exactly(int(self.until(b"\r\n"), 16))
        assert self.exactly(2) == b"\r\n"
        return body

    def one(self, method="GET"):
        status, headers = self.head()
        if method == "HEAD" or status in (100, 204):
            return status, headers, b""
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while piece := self.chunk():
                body += piece
            return status, headers, body
        if "content-length" in headers:
            return status, headers, self.exactly(int(headers["content-length"]))
        while self.more():
            pass
        body, self.data = self.data, b""
        return status, headers, body

    def rest(self):
        """What comes up to the end of the stream."""
        try:
            while self.more():
                pass
        except ConnectionResetError:
            pass
        return self.data


def read_answer(s, method="GET"):
    return Answers(s).one(method)


def reset(s):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def events(body):
    """The data of the events of a stream; comments are dropped as an EventSource does."""
    parts = body.split(b"\n\n")
    assert parts.pop() == b""
    return [x[6:] for x in parts if not x.startswith(b":")]


class Framing(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.d = Server("max_body_bytes=100000")

    @classmethod
    def tearDownClass(cls):
        assert cls.d.end() == 0, cls.d.log

    def test_echo(self):
        status, headers, body = self.d.ask(post("/echo", b"hello"))
        self.assertEqual((status, body, headers["content-type"]), (200, b"hello", "text/plain"))
        self.assertRegex(headers["date"], r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT")
        self.assertNotIn("connection", headers)

    def test_chunked(self):
        with self.d.raw(post("/echo", b"")[:0]) as s:
            s.sendall(b"POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nhel\r\n2\r\nlo\r\n0\r\nT: v\r\n\r\n")
            self.assertEqual(read_answer(s)[::2], (200, b"hello"))
            s.sendall(get("/echo"))  # and nothing of it is left
            self.assertEqual(read_answer(s)[::2], (200, b""))

    def test_byte_by_byte(self):
        with self.d.raw() as s:
            for byte in post("/echo", b"slowly"):
                s.sendall(bytes([byte]))
            self.assertEqual(read_answer(s)[2], b"slowly")

    def test_kept_headers(self):
        lines = b"AUTHORIZATION:  Bearer abc \t\r\nX-Other: 1\r\nx-api-key:\r\nAccept: a/b\r\nAccept: c/d\r\nIdempotency-Key: k\r\n"
        _, headers, body = self.d.ask(get("/headers", extra=lines))
        got = dict(x.split("=", 1) for x in body.decode().splitlines())
        self.assertEqual(got.pop("id"), headers["x-request-id"])
        self.assertEqual(got, {"authorization": "Bearer abc", "x-api-key": "", "accept": "a/b", "idempotency-key": "k"})
        status, _, body = self.d.ask(get("/headers", extra=b"Authorization: a\r\nAuthorization: b\r\n"))
        self.assertEqual(status, 400)
        for n, want in (4096, 200), (4097, 431):
            status, _, body = self.d.ask(get("/headers", extra=b"X-Hearth-Session: %s\r\n" % (b"s" * n)))
            self.assertEqual(status, want)
        self.assertEqual(self.d.ask(get("/headers", extra=b"X-Other: %s\r\n" % (b"s" * 9000)))[0], 200)

    def test_kept_headers_are_of_one_request(self):
        with self.d.raw(get("/headers", extra=b"X-Api-Key: secret\r\nX-Request-Id: mine\r\n") + get("/headers")) as s:
            a = Answers(s)
            self.assertIn(b"secret", a.one()[2])
            _, headers, body = a.one()
            self.assertNotIn(b"secret", body)
            self.assertNotEqual(headers["x-request-id"], "mine")

    def test_request_ids(self):
        for mine in b"a", b"A-z_0.9", b"x" * 64:
            self.assertEqual(self.d.ask(get("/echo", extra=b"X-Request-Id: %s\r\n" % mine))[1]["x-request-id"], mine.decode())
        ids = set()
        for other in b"", b"x" * 65, b"a b", b"a\"b", b"../x?", b"\xc3\xa9":
            got = self.d.ask(get("/echo", extra=b"X-Request-Id: %s\r\n" % other))[1]["x-request-id"]
            self.assertRegex(got, r"^req_[0-9a-f]{24}$")
            ids.add(got)
        self.assertEqual(len(ids), 6)
        _, headers, _ = self.d.ask(b"broken\r\n\r\n")
        self.assertRegex(headers["x-request-id"], r"^req_[0-9a-f]{24}$")
        self.d.wait("exchange - - 400 .* " + headers["x-request-id"] + " -")

    def test_exchange_line(self):
        self.d.ask(post("/named/the%20key", b"12345", extra=b"X-Request-Id: line-1\r\n"))
        name = self.d.wait(r"exchange POST /named/the%20key 200 (\d+) 0 line-1 the%20key")
        with self.d.raw(get("/named/two", extra=b"X-Request-Id: line-2\r\nConnection: close\r\n")) as s:
            n = len(Answers(s).rest())
        self.d.wait(rf"exchange GET /named/two 200 {n} 0 line-2 two")
        self.d.wait(rf"info http method=GET path=/named/two status=200 bytes_out={n} ms=[\d.]+ id=line-2 user=two gone=0",
                    lines=self.d.log)
        self.assertGreater(int(name[1]), 5)

    def test_head_and_options(self):
        with self.d.raw(get("/echo", method=b"HEAD") + get("/echo", method=b"OPTIONS") + get("/stream/2/5/0", method=b"HEAD") +
                        get("/refuse/404", method=b"HEAD") + post("/echo", b"last", extra=b"Connection: close\r\n")) as s:
            a = Answers(s)
            status, headers, _ = a.one("HEAD")
            self.assertEqual((status, headers["content-length"]), (200, "0"))
            status, headers, _ = a.one()
            self.assertEqual((status, headers["allow"]), (204, "GET, HEAD"))
            self.assertNotIn("content-length", headers)
            self.assertNotIn("content-type", headers)
            status, headers, _ = a.one("HEAD")
            self.assertEqual((status, headers["transfer-encoding"]), (200, "chunked"))
            status, headers, _ = a.one("HEAD")
            self.assertEqual((status, headers["content-length"]), (404, "7"))
            self.assertEqual(a.one()[2], b"last")
            self.assertEqual(a.rest(), b"")

    def test_unauthorized_names_its_scheme(self):
        self.assertEqual(self.d.ask(get("/refuse/401"))[1]["www-authenticate"], "Bearer")

    def test_expect(self):
        body = b"polite"
        with self.d.raw(post("/echo", body, extra=b"Expect: 100-continue\r\n")[:-len(body)]) as s:
            a = Answers(s)
            self.assertEqual(a.one()[0], 100)
            s.sendall(body)
            self.assertEqual(a.one()[2], body)
        with self.d.raw(post("/refuse/401", body, extra=b"Expect: 100-continue\r\n")[:-len(body)]) as s:
            a = Answers(s)  # the body may or may not come now: it cannot go on
            status, headers, _ = a.one()
            self.assertEqual((status, headers["connection"]), (401, "close"))
            self.assertEqual(a.rest(), b"")

    def test_keep_alive_after_an_early_error(self):
        small, large = b"x" * 65536, b"x" * 65537
        with self.d.raw(get("/refuse/404") + post("/refuse/401", small) + post("/refuse/413", b"") + post("/echo", b"next")) as s:
            a = Answers(s)
            for status in 404, 401, 413:
                got, headers, body = a.one()
                self.assertEqual((got, body), (status, b"refused"))
                self.assertNotIn("connection", headers)
            self.assertEqual(a.one()[::2], (200, b"next"))
        for data in post("/refuse/401", large), b"POST /refuse/401 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n":
            with self.d.raw(data + get("/echo")) as s:
                a = Answers(s)
                status, headers, _ = a.one()
                self.assertEqual((status, headers["connection"]), (401, "close"))
                self.assertEqual(a.rest(), b"")

    def test_refused_before_the_body(self):
        """The answer is there while the client has not sent its body; then the connection goes on."""
        with self.d.raw(post("/refuse/401", b"x" * 1000)[:-1000]) as s:
            a = Answers(s)
            self.assertEqual(a.one()[0], 401)
            s.sendall(b"x" * 1000 + get("/echo"))
            self.assertEqual(a.one()[0], 200)

    def test_answer_survives_a_body_on_its_way(self):
        """A client that sends all before it reads: 401 and 413 reach it though the connection is closed."""
        for path, status in ("/refuse/401", 401), ("/echo", 413):
            with self.d.raw(post(path, b"x" * 3000000)) as s:
                self.assertEqual(read_answer(s)[0], status)

    def test_limits_of_the_body(self):
        self.assertEqual(self.d.ask(post("/echo", b"x" * 100000))[0], 200)
        self.assertEqual(self.d.ask(post("/echo", b"x" * 100001))[0], 413)
        with self.d.raw(post("/limit/5", b"123456") + post("/limit/6", b"123456") + post("/echo", b"1234567")) as s:
            a = Answers(s)
            self.assertEqual([a.one()[0] for _ in range(3)], [413, 200, 200])
        status, _, body = self.d.ask(b"POST /limit/5 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n6\r\n123456\r\n")
        self.assertEqual((status, json.loads(body)["error"]["code"]), (413, "body_too_large"))

    def test_pipelining(self):
        with self.d.raw(b"".join(post("/echo", b"%d" % i) for i in range(2000))) as s:
            a = Answers(s)
            self.assertEqual([a.one()[2] for i in range(2000)], [b"%d" % i for i in range(2000)])

    def test_pipelined_behind_one_that_waits(self):
        with self.d.raw(post("/slow") + post("/stream/2/1/0") + post("/echo", b"z")) as s:
            self.d.wait_stats(None, 1)
            self.d.answer()
            a = Answers(s)
            self.assertEqual((a.one()[0], len(events(a.one()[2])), a.one()[2]), (200, 2, b"z"))

    def test_http_1_0(self):
        with self.d.raw(post("/echo", b"old", minor=0)) as s:
            a = Answers(s)
            status, headers, body = a.one()
            self.assertEqual((status, headers["connection"], body, a.rest()), (200, "close", b"old", b""))
        with self.d.raw(post("/echo", b"old", minor=0, extra=b"Connection: keep-alive\r\n") * 2) as s:
            a = Answers(s)
            self.assertEqual([a.one()[1]["connection"] for _ in range(2)], ["keep-alive"] * 2)
        _, headers, body = self.d.ask(get("/stream/3/4/1", minor=0))
        self.assertNotIn("transfer-encoding", headers)
        self.assertEqual(events(body), [b"xxxx"] * 3)

    def test_connection_close(self):
        for path in "/echo", "/stream/3/4/1":
            with self.d.raw(get(path, extra=b"Connection: close\r\n") + get("/echo")) as s:
                a = Answers(s)
                self.assertEqual((a.one()[1]["connection"], a.rest()), ("close", b""))

    def test_malformed(self):
        for data in b"\x16\x03\x01\x00\xa5\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"GET /\r\n\r\n", b"GET / HTTP/2.0\r\nHost: h\r\n\r\n":
            with self.d.raw(data) as s:
                a = Answers(s)
                status, headers, body = a.one()
                self.assertIn(status, (400, 505))
                self.assertEqual((headers["connection"], a.rest()), ("close", b""))
                self.assertIn("message", json.loads(body)["error"])

    def test_stream(self):
        with self.d.raw(get("/stream/20/1000/2") + get("/echo")) as s:
            a = Answers(s)
            status, headers, body = a.one()
            self.assertEqual((status, headers["content-type"], headers["cache-control"]),
                             (200, "text/event-stream; charset=utf-8", "no-cache"))
            self.assertEqual(events(body), [b"x" * 1000] * 20)
            self.assertEqual(a.one()[0], 200)

    def test_ipv6(self):
        try:
            with socket.socket(socket.AF_INET6) as s:
                s.bind(("::1", 0))
        except OSError as e:
            print(f"SKIPPED: no IPv6 on this machine: {e}", file=sys.stderr)
            self.skipTest("no IPv6")
        with Server("host=::1") as d:
            self.assertRegex(d.url, r"^http://\[::1\]:\d+$")
            self.assertEqual(d.ask(post("/echo", b"six"))[2], b"six")


class Unix(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.dir.name, "s")
        self.addCleanup(self.dir.cleanup)

    def test_alone(self):
        with Server("host=", "unix=" + self.path) as d:
            self.assertEqual(d.url, "unix:" + self.path)
            self.assertEqual(stat.S_IMODE(os.stat(self.path).st_mode), 0o600)
            self.assertEqual(d.ask(post("/echo", b"here"))[2], b"here")
        self.assertFalse(os.path.exists(self.path))

    def test_beside_tcp(self):
        with Server("unix=" + self.path) as d:
            for address in self.path, d.address:
                with d.raw(post("/echo", b"both"), address=address) as s:
                    self.assertEqual(read_answer(s)[2], b"both")

    def test_drain_removes_it(self):
        with Server("unix=" + self.path) as d:
            with d.raw(post("/slow"), address=self.path) as s:
                d.wait_stats(1, 1)
                d.command("drain")
                d.stats()
                self.assertFalse(os.path.exists(self.path))
                d.answer()
                self.assertEqual(read_answer(s)[1]["connection"], "close")

    def test_stale_socket(self):
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(self.path)
        with Server("unix=" + self.path) as d:
            with d.raw(post("/echo", b"new"), address=self.path) as s:
                self.assertEqual(read_answer(s)[2], b"new")

    def test_taken(self):
        with Server("unix=" + self.path) as d:
            other = Server("host=", "unix=" + self.path, wait=False)
            self.assertEqual(other.end(), 1)
            self.assertIn("in use", other.log[-1])
            with d.raw(post("/echo", b"mine"), address=self.path) as s:
                self.assertEqual(read_answer(s)[2], b"mine")

    def test_no_socket(self):
        pathlib.Path(self.path).write_text("precious")
        other = Server("unix=" + self.path, wait=False)
        self.assertEqual(other.end(), 1)
        self.assertEqual(pathlib.Path(self.path).read_text(), "precious")
        other = Server("unix=" + self.path + "x" * 200, wait=False)
        self.assertEqual(other.end(), 1)
        self.assertIn("too long", other.log[-1])

    def test_replaced(self):
        """At its end it removes no other's socket."""
        with Server("unix=" + self.path):
            os.unlink(self.path)
            with socket.socket(socket.AF_UNIX) as s:
                s.bind(self.path)
        self.assertTrue(os.path.exists(self.path))


class Gone(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.unix = os.path.join(self.dir.name, "s")
        self.d = Server("unix=" + self.unix, "max_body_bytes=100000")

    def tearDown(self):
        self.d.wait_stats(0, 0)
        self.assertEqual(self.d.end(), 0, self.d.log)
        self.dir.cleanup()

    def noticed(self, begin, leave, limit=1.0, path=r"/\S+"):
        """begin() opens a connection and says when its request is there; leave(it); seconds until gone, best of ten."""
        times = []
        for _ in range(10):
            n = self.d.count("gone " + path)
            s = begin()
            start = time.monotonic()
            leave(s)
            self.d.wait("gone " + path, n + 1)
            times.append(time.monotonic() - start)
            s.close()
            self.d.wait_stats(0, 0)
            if times[-1] <= limit:
                return
        self.fail(f"noticed after {times} s")

    def assert_rare(self, n, begin, at_once=1):
        """n probes since `begin`: never more than one a second, and `at_once` at once."""
        self.assertLessEqual(n, at_once + time.monotonic() - begin)

    def slow(self, **how):
        s = self.d.raw(post("/slow", b"the request", **how))
        self.d.wait_stats(1, 1)
        return s

    def stream(self):
        """Its first event has been read; the next comes in a minute."""
        s = self.d.raw(post("/stream/5/10/60000"))
        self.d.wait_stats(1, 1)
        Answers(s).until(b"xxxxxxxxxx\n\n\r\n")
        return s

    def test_unanswered(self):
        """Not a byte to write, and none to read."""
        n = self.d.count("exchange POST /slow 0 0 1 .*")
        self.noticed(self.slow, socket.socket.close)
        self.assertGreater(self.d.count("exchange POST /slow 0 0 1 .*"), n)

    def test_unanswered_reset(self):
        self.noticed(self.slow, reset)

    def test_stream(self):
        self.noticed(self.stream, socket.socket.close)

    def test_stream_reset(self):
        self.noticed(self.stream, reset)

    def test_stream_unread(self):
        def begin():
            n = self.d.count(r"slow /polite/1000/100000/1 1")
            s = self.d.raw(post("/polite/1000/100000/1"), small=True)
            self.d.wait(r"slow /polite/1000/100000/1 1", n + 1)
            return s
        self.noticed(begin, socket.socket.close)

    def test_half_closed_then_closed(self):
        """The second probe finds it: it comes a second after the first. (The first is read here: a close that leaves
        bytes unread is a reset, which tells by itself.)"""
        for begin in self.slow, self.stream:
            def half():
                s = begin()
                s.shutdown(socket.SHUT_WR)
                self.assertTrue(s.recv(1000))
                return s
            self.noticed(half, socket.socket.close, 1.3)

    def test_left_before_it_was_read(self):
        """The FIN is older than the request, as the server sees it."""
        def begin():
            os.kill(self.d.process.pid, signal.SIGSTOP)
            s = self.d.raw(post("/slow", b"x"))
            s.close()
            return s
        self.noticed(begin, lambda s: os.kill(self.d.process.pid, signal.SIGCONT), path="/slow")

    def test_http_1_0(self):
        self.noticed(lambda: self.slow(minor=0), lambda s: s.shutdown(socket.SHUT_WR), path="/slow")
        s = self.slow(minor=0)
        s.shutdown(socket.SHUT_WR)
        self.assertEqual(s.recv(100), b"")  # no probe
        s.close()

    def test_pipelined_requests_in_the_way(self):
        """What it sent too early is unread when it leaves. (If that is more than the sockets hold its FIN cannot come
        through, and the first byte that is sent to it finds out.)"""
        def begin():
            s = self.d.raw(post("/slow") + post("/echo", b"x" * 900) * 20)
            self.d.wait_stats(1, 1)
            return s
        self.noticed(begin, socket.socket.close, path="/slow")
        self.noticed(begin, reset, path="/slow")

    def test_half_closed_gets_its_reply(self):
        with self.slow() as s:
            a, begin = Answers(s), time.monotonic()
            s.shutdown(socket.SHUT_WR)
            while a.data.count(b"102 Processing") < 3:  # at 0, 1 and 2 seconds, or late
                self.assertTrue(a.more())
            self.assertEqual(self.d.waiting(), 1)
            self.d.answer()
            status, _, body = a.one()
            self.assertEqual((status, a.rest()), (200, b""))
            self.assertRegex(body, rb"^\d+$")
            self.assert_rare(a.n_102, begin)
        self.d.wait_stats(0, 0)

    def test_half_closed_with_the_request(self):
        s = self.d.raw()
        s.sendall(post("/slow", b"x"))
        s.shutdown(socket.SHUT_WR)
        self.d.wait_stats(1, 1)
        time.sleep(0.3)
        self.assertEqual(self.d.waiting(), 1)
        self.d.answer()
        self.assertEqual(read_answer(s)[0], 200)
        s.close()
        for path, want in ("/echo", b"at once"), ("/named/me", b"at once"):
            s = self.d.raw(post(path, want))
            s.shutdown(socket.SHUT_WR)
            a = Answers(s)
            self.assertEqual((a.one()[2], a.rest()), (want, b""))
            s.close()

    def test_half_closed_stream(self):
        """Comments are whole chunks between the events, and only while it has nothing else to send."""
        begin = time.monotonic()
        with self.d.raw(post("/stream/3/7/1300")) as s:
            s.shutdown(socket.SHUT_WR)
            a = Answers(s)
            _, _, body = a.one()
            self.assertEqual(a.rest(), b"")
        self.assertEqual(events(body), [b"xxxxxxx"] * 3)
        self.assertGreaterEqual(body.count(b":\n\n"), 1)
        self.assert_rare(body.count(b":\n\n"), begin)

    def test_busy_stream_needs_no_probe(self):
        with self.d.raw(post("/stream/250/7/10")) as s:
            s.shutdown(socket.SHUT_WR)
            body = read_answer(s)[2]
        self.assertEqual(events(body), [b"xxxxxxx"] * 250)
        self.assertLessEqual(body.count(b":\n\n"), 1)

    def test_half_closed_slow_reader(self):
        """More than sockets hold, read late: all of it comes."""
        with self.d.raw(post("/polite/200/100000/1"), small=True) as s:
            s.shutdown(socket.SHUT_WR)
            time.sleep(1.5)
            self.assertEqual(self.d.waiting(), 1)
            self.assertEqual(events(read_answer(s)[2]), [b"x" * 100000] * 200)

    def test_half_closed_pipeline(self):
        with self.d.raw(post("/slow") * 3 + post("/stream/3/2/100") + post("/echo", b"end")) as s:
            s.shutdown(socket.SHUT_WR)
            a, begin = Answers(s), time.monotonic()
            for _ in range(3):
                self.d.wait_stats(1, 1)
                self.d.answer()
                self.assertEqual(a.one()[0], 200)
            self.assertEqual((len(events(a.one()[2])), a.one()[2], a.rest()), (3, b"end", b""))
            self.assert_rare(a.n_102, begin, at_once=3)
        self.d.wait_stats(0, 0)

    def test_unix(self):
        def begin():
            s = self.d.raw(post("/slow"), address=self.unix)
            self.d.wait_stats(1, 1)
            return s
        self.noticed(begin, socket.socket.close)
        with begin() as s:  # half-closed: no probe is needed
            s.shutdown(socket.SHUT_WR)
            time.sleep(1.2)
            self.assertEqual(self.d.waiting(), 1)
            self.d.answer()
            a = Answers(s)
            self.assertEqual((a.one()[0], a.n_102, a.rest()), (200, 0, b""))

        def half():
            s = begin()
            s.shutdown(socket.SHUT_WR)
            return s
        self.noticed(half, socket.socket.close)

    def test_in_the_body(self):
        for leave in socket.socket.close, reset, lambda s: s.shutdown(socket.SHUT_WR):
            n = self.d.count("exchange POST /echo 0 0 1 .*")
            s = self.d.raw(post("/echo", b"x" * 100)[:-1])
            self.d.wait_stats(1, 0, 99)  # a reset takes away what was not read
            leave(s)
            self.d.wait("exchange POST /echo 0 0 1 .*", n + 1)
            s.close()
            self.d.wait_stats(0, 0)

    def test_idle(self):
        for data in b"", get("/echo"), b"GET /ec":
            for leave in socket.socket.close, reset, lambda s: s.shutdown(socket.SHUT_WR):
                s = self.d.raw(data)
                self.d.wait_stats(1, 0)
                leave(s)
                self.d.wait_stats(0, 0)
                s.close()

    def test_costs_nothing(self):
        """Clients that have sent FIN, and answers that wait, do not make the loop spin."""
        with self.slow() as a, self.d.raw(post("/stream/5/10/60000")) as b, self.d.raw(post("/slow", minor=1), address=self.unix) as c:
            self.d.wait_stats(3, 3)
            for s in a, b, c:
                s.shutdown(socket.SHUT_WR)
            time.sleep(0.2)
            before = self.d.ticks()
            time.sleep(1)
            self.assertLessEqual(self.d.ticks() - before, 20)  # of 100


class Limits(unittest.TestCase):
    def test_header_time(self):
        with Server("head_s=1", "idle_s=1") as d:
            with d.raw(b"GET / HTTP/1.1\r\n") as s:  # a byte now and then does not help
                try:
                    for _ in range(600):
                        s.sendall(b"a: b\r\n")
                        time.sleep(0.1)
                        if s in select_readable(s):
                            break
                except OSError:
                    pass
                self.assertEqual(read_answer(s)[0], 408)
            with d.raw() as s:  # one that says nothing is owed nothing
                self.assertEqual(s.recv(100), b"")
            with d.raw(get("/echo")) as s:
                a = Answers(s)
                a.one()
                self.assertEqual(a.rest(), b"")  # idle
            d.wait_stats(0, 0)

    def test_time_without_the_server(self):
        """It is stopped beyond the limits: what has come meanwhile is not late."""
        with Server("head_s=1", "body_s=1", "idle_s=1") as d, d.raw() as s, d.raw(post("/echo", b"x" * 50)[:-1]) as t:
            d.wait_stats(2)
            for sig, state in (0, "S"), (signal.SIGSTOP, "T"):  # its wait for sockets is ended by that, without any
                d.process.send_signal(sig)
                while state_of(d.process.pid) != state:
                    time.sleep(0.01)
            s.sendall(get("/echo"))
            t.sendall(b"x")
            time.sleep(1.5)
            d.process.send_signal(signal.SIGCONT)
            self.assertEqual((read_answer(s)[0], read_answer(t)[0]), (200, 200))

    def test_body_time(self):
        with Server("body_s=1") as d, d.raw(post("/echo", b"x" * 50)[:-1]) as s:
            a = Answers(s)
            status, headers, _ = a.one()
            self.assertEqual((status, headers["connection"], a.rest()), (408, "close", b""))
            d.wait("exchange POST /echo 408 .*")

    def test_refused_body_that_never_comes(self):
        with Server("head_s=1") as d, d.raw(post("/refuse/401", b"x" * 50)[:-1]) as s:
            a = Answers(s)
            self.assertEqual((a.one()[0], a.rest()), (401, b""))
            d.wait_stats(0, 0)

    def test_waiting_has_no_time(self):
        """Neither a request that waits nor a stream at rest meets the limits of reading or writing."""
        with Server("head_s=1", "body_s=1", "idle_s=1", "write_s=1", "linger_s=1") as d:
            with d.raw(post("/slow")) as s, d.raw(get("/stream/2/1/2500")) as t:
                body = read_answer(t)[2]
                self.assertEqual(d.waiting(), 1)
                d.answer()
                self.assertEqual((read_answer(s)[0], len(events(body))), (200, 2))

    def test_client_that_takes_nothing(self):
        with Server("write_s=1") as d, d.raw(get("/polite/1000/100000/1"), small=True) as s:
            d.wait("gone /polite.*")
            d.wait("exchange GET /polite/1000/100000/1 200 .* 1 .*")
            self.assertNotEqual(Answers(s).rest()[-5:], b"0\r\n\r\n")

    def test_lingering_is_bounded(self):
        with Server("linger_s=1", "max_body_bytes=10") as d, d.raw(post("/echo", b"x" * 100000)[:-900]) as s:
            a = Answers(s)
            self.assertEqual((a.one()[0], a.rest()), (413, b""))
            d.wait_stats(0, 0)  # though the client neither sends nor closes

    def test_slow_reader(self):
        """Told at the thresholds; what is unsent stays bounded; another is served at full pace."""
        path = "/polite/300/50000/1"
        with Server("pause_at=200000", "continue_at=100000") as d:
            with d.raw(get(path), small=True) as s:
                d.wait(rf"slow {path} 1")
                time.sleep(0.3)
                self.assertEqual(d.count(rf"slow {path} 1"), 1)
                self.assertEqual(d.count(rf"slow {path} 0"), 0)
                self.assertEqual(len(events(d.ask(get("/stream/300/5000/1"))[2])), 300)
                self.assertEqual(d.ask(get("/echo"))[0], 200)
                a, body = Answers(s), b""
                a.head()
                for n in 1, 2, 3:  # it reads only until it is no longer slow, then rests until it is again
                    d.wait(rf"slow {path} 1", n)
                    while d.count(rf"slow {path} 0") < n:
                        body += a.chunk()
                while piece := a.chunk():
                    body += piece
                self.assertEqual(events(body), [b"x" * 50000] * 300)
            turns = [x[-1] for x in d.lines if x.startswith("slow " + path)]
            self.assertEqual(turns, ["1", "0"] * (len(turns) // 2) + ["1"] * (len(turns) % 2))
            self.assertGreater(len(turns), 4)
            self.assertEqual(d.count("slow /stream.*"), 0)

    def test_pace_is_told_at_the_thresholds(self):
        """A Unix socket holds little, so what was read tells what is unsent: 0.1 MB must be read, not 4."""
        path = "/polite/1000/50000/1"
        with tempfile.TemporaryDirectory() as folder:
            unix = os.path.join(folder, "s")
            with Server("unix=" + unix, "max_unsent=8000000", "pause_at=4000000", "continue_at=3900000") as d:
                with d.raw(get(path), address=unix) as s:
                    d.wait(f"slow {path} 1")
                    read = 0
                    while d.count(f"slow {path} 0") == 0 and read < 4_000_000:
                        read += len(s.recv(50000))
                        d.stats()
                        d.stats()  # its loop has gone round once: what the reading brought has been told
                    self.assertIn(read, range(50_000, 1_000_000))

    def test_max_unsent(self):
        path = "/stream/300/100000/1"
        with Server("max_unsent=1000000", "pause_at=200000", "continue_at=100000") as d:
            before = d.memory("VmRSS")
            with d.raw(get(path), small=True) as s:
                d.wait("gone " + path)
                d.wait(rf"exchange GET {path} 200 \d+ 1 .*")
                data = Answers(s).rest()
                self.assertFalse(data.endswith(b"0\r\n\r\n"))
            if not sanitized(d):
                self.assertLess(d.memory("VmHWM") - before, 4 << 20)

    def test_budget_of_bodies(self):
        with Server("body_budget=100000", "max_body_bytes=60000") as d:
            a = d.raw(post("/echo", b"a" * 60000)[:-1])
            d.wait_stats(1, 0, 59999)
            b = d.raw(post("/echo", b"b" * 60000))
            status, headers, body = read_answer(b)
            self.assertEqual((status, headers["retry-after"], json.loads(body)["error"]["code"]), (429, "1", "queue_full"))
            b.close()
            a.sendall(b"a")
            self.assertEqual(read_answer(a)[2], b"a" * 60000)
            self.assertEqual(d.ask(post("/echo", b"b" * 60000))[2], b"b" * 60000)
            a.close()

    def test_max_connections(self):
        with Server("max_connections=4") as d:
            four = [d.raw() for _ in range(4)]
            d.wait_stats(4, 0)
            fifth = d.raw(post("/echo", b"waits"))
            time.sleep(0.2)
            self.assertEqual(d.stats(), (4, 0, 0))
            four.pop().close()
            self.assertEqual(read_answer(fifth)[2], b"waits")
            for s in [fifth, *four]:
                s.close()

    def test_no_descriptors(self):
        """accept fails: it says so, does not spin, serves those it has, and goes on when there are some again."""
        with Server() as d:
            first = d.raw(get("/echo"))
            a = Answers(first)
            a.one()
            hard = resource.prlimit(d.process.pid, resource.RLIMIT_NOFILE)[1]
            resource.prlimit(d.process.pid, resource.RLIMIT_NOFILE, (d.n_fds() + 2, hard))
            others = [d.raw(post("/echo", b"later")) for _ in range(6)]
            d.wait(r'warn http accept=failed error="Too many open files" connections=\d', lines=d.log)
            before = d.ticks()
            first.sendall(get("/echo"))
            self.assertEqual(a.one()[0], 200)
            time.sleep(0.5)
            self.assertLessEqual(d.ticks() - before, 10)
            first.close()
            for s in others:
                self.assertEqual(read_answer(s)[2], b"later")
                s.close()

    def test_drain(self):
        with Server() as d:
            idle, waits, streams = d.raw(get("/echo")), d.raw(post("/slow")), d.raw(get("/stream/3/5/300"))
            a = Answers(idle)
            a.one()
            d.wait("head POST /slow")  # both are running, or through: a stream of a second
            d.wait("head GET /stream/3/5/300")
            d.command("drain")
            self.assertEqual(a.rest(), b"")
            with self.assertRaises(OSError):
                d.raw(get("/echo"))
            d.answer()
            b = Answers(waits)
            self.assertEqual((b.one()[1]["connection"], b.rest()), ("close", b""))
            c = Answers(streams)
            self.assertEqual((len(events(c.one()[2])), c.rest()), (3, b""))
            for s in idle, waits, streams:
                s.close()
            d.wait_stats(0, 0)

    def test_senseless_limits(self):
        other = Server("pause_at=10", "continue_at=11", wait=False)
        self.assertEqual(other.end(), 1)


def state_of(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def select_readable(*sockets):
    with selectors.DefaultSelector() as sel:
        for s in sockets:
            sel.register(s, selectors.EVENT_READ)
        return [key.fileobj for key, _ in sel.select(0)]


def sanitized(d):
    """Measures of memory mean nothing then."""
    maps = pathlib.Path(f"/proc/{d.process.pid}/maps").read_text()
    if "libasan" in maps or "libtsan" in maps or "clang_rt" in maps:
        print("SKIPPED: memory is not measured under a sanitizer", file=sys.stderr)
        return True
    return False


class Many(unittest.TestCase):
    def pour(self, d, path, n, size):
        """n posts at once, each sending until it is answered or all is out. Returns the statuses."""
        sel, piece, statuses = selectors.DefaultSelector(), b"x" * 65536, []
        for _ in range(n):
            s = d.raw(POST % (path.encode(), 1, size, b""))
            s.setblocking(False)
            sel.register(s, selectors.EVENT_READ | selectors.EVENT_WRITE, [size, b""])
        end = time.monotonic() + PATIENCE
        while sel.get_map() and time.monotonic() < end:
            for key, what in sel.select(1):
                s, state = key.fileobj, key.data
                try:
                    if what & selectors.EVENT_READ:
                        data = s.recv(65536)
                        state[1] += data
                        if not data or b"\r\n\r\n" in state[1]:
                            statuses.append(int(state[1][9:12]))
                            sel.unregister(s)
                            s.close()
                    elif what & selectors.EVENT_WRITE and state[0] > 0:
                        state[0] -= s.send(piece[:state[0]])
                except (BrokenPipeError, ConnectionResetError):
                    statuses.append(int(state[1][9:12] or 0))
                    sel.unregister(s)
                    s.close()
        sel.close()
        return statuses

    def test_refused_bodies_cost_no_memory(self):
        """200 posts of 50 MB: refused by the head (no key), by their length, and one after another in full."""
        for path, status in ("/refuse/401", 401), ("/echo", 413):
            with Server() as d:
                d.ask(post("/echo", b"warm"))
                before = d.memory("VmRSS")
                self.assertEqual(self.pour(d, path, 200, 50_000_000), [status] * 200)
                if not sanitized(d):
                    self.assertLess(d.memory("VmHWM") - before, 16 << 20)
                d.wait_stats(0, 0)

    def test_refused_body_in_full(self):
        """Clients that look at the answer only after their last byte."""
        with Server() as d:
            d.ask(post("/echo", b"warm"))
            before = d.memory("VmRSS")
            sockets = [d.raw(POST % (b"/refuse/401", 1, 50_000_000, b"")) for _ in range(4)]
            def pour(s):
                for _ in range(50):
                    s.sendall(b"x" * 1_000_000)
            threads = [threading.Thread(target=pour, args=(s,)) for s in sockets]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            for s in sockets:
                self.assertEqual(read_answer(s)[0], 401)
                s.close()
            if not sanitized(d):
                self.assertLess(d.memory("VmHWM") - before, 16 << 20)

    def test_idle_connections(self):
        with Server() as d:
            d.ask(get("/echo"))
            before = d.memory("VmRSS")
            idle = [d.raw(get("/echo", extra=b"Authorization: %s\r\n" % (b"x" * 4000))) for _ in range(200)]
            for s in idle:
                self.assertEqual(read_answer(s)[0], 200)
            d.wait_stats(200, 0)
            grown = d.memory("VmRSS") - before
            for i in range(200):
                self.assertEqual(d.ask(post("/echo", b"%d" % i))[2], b"%d" % i)
            if not sanitized(d):
                self.assertLess(grown, 200 * 16384)  # nothing of what they sent is kept
            for s in idle:  # and each still works
                s.sendall(get("/echo"))
                self.assertEqual(read_answer(s)[0], 200)
                s.close()
            d.wait_stats(0, 0)

    def test_sent_too_early(self):
        """What clients send behind a waiting request stays with them."""
        with Server() as d:
            d.ask(get("/echo"))
            before = d.memory("VmRSS")
            waiting = [d.raw(post("/slow") + post("/echo", b"x" * 60000)) for _ in range(200)]
            d.wait_stats(200, 200)
            time.sleep(0.3)
            if not sanitized(d):
                self.assertLess(d.memory("VmHWM") - before, 200 * 24576)
            d.answer()
            for s in waiting:
                a = Answers(s)
                self.assertEqual((a.one()[0], len(a.one()[2])), (200, 60000))
                s.close()

    def test_random_disconnects(self):
        """1,000 clients that leave at any time, in any way: all is as before."""
        with Server("max_body_bytes=100000") as d:
            d.ask(get("/echo"))
            d.wait_stats(0, 0)
            d.stats()
            fds = d.n_fds()
            threads = [threading.Thread(target=self.leave_often, args=(d, random.Random(seed), 125)) for seed in range(8)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            d.wait_stats(0, 0)
            end = time.monotonic() + PATIENCE
            while d.n_fds() != fds and time.monotonic() < end:  # libevent closes a turn of its loop later
                time.sleep(0.01)
            self.assertEqual(d.n_fds(), fds)
            self.assertEqual(d.count("head .*"), d.count("exchange [A-Z].*"))  # each ended once
            self.assertLessEqual(d.count("gone .*"), d.count(r"exchange \S+ /(slow|stream\S+|polite\S+) .* 1 \S+ -"))
            self.assertGreater(d.count("gone .*"), 100)
            self.assertEqual(d.ask(post("/echo", b"whole"))[2], b"whole")

    def leave_often(self, d, rng, n):
        requests = [post("/slow", b"x" * 100), get("/stream/1000/100/1"), get("/polite/1000/10000/1"), post("/echo", b"x" * 90000),
                    post("/refuse/401", b"x" * 50000), get("/slow", minor=0), post("/slow") * 3]
        for _ in range(n):
            data = rng.choice(requests)
            if rng.random() < 0.3:
                data = data[:rng.randrange(len(data))]
            s = d.raw()
            try:
                s.sendall(data)
                time.sleep(rng.choice((0, 0, 0.001, 0.02)))
                if rng.random() < 0.3:
                    s.settimeout(0.02)
                    s.recv(rng.choice((1, 1000, 100000)))
            except OSError:
                pass
            if rng.random() < 0.2:
                try:
                    s.shutdown(socket.SHUT_WR)
                except OSError:
                    pass
                time.sleep(rng.choice((0, 0.01)))
            if rng.random() < 0.3:
                reset(s)
            s.close()


class Memory(unittest.TestCase):
    def test_each_allocation_fails(self):
        """Whatever fails, a client gets a whole answer, a refusal or a cut connection, and the next one is served."""
        requests = [post("/echo", b"x" * 3000), get("/stream/5/3000/1"), post("/refuse/401", b"x" * 100),
                    get("/headers", extra=b"Authorization: a\r\nX-Api-Key: b\r\n"), post("/echo", b"y", extra=b"Expect: 100-continue\r\n"),
                    get("/stream/5/3000/1", minor=0)]
        with Server("write_s=1", "idle_s=1") as d:
            for data in requests:
                refused = 0
                with d.raw(data) as s:
                    whole = self.settle(s)
                self.assertIn(whole[0], (200, 401))
                for n in range(1, 60):
                    fails = d.count("fails")
                    d.command(f"fail {n}")
                    d.wait("fails", fails + 1)
                    try:
                        with d.raw(data) as s:
                            got = self.settle(s)
                    except OSError:
                        got = None
                    self.assertIn(got[0] if got else 0, (0, 503, whole[0]), (n, got))
                    if got and got[0] == whole[0]:
                        self.assertEqual(got[1], whole[1])
                    refused += not got or got[0] != whole[0]
                    d.command("fail 0")
                    d.wait("fails", fails + 2)
                    with d.raw(data) as s:
                        self.assertEqual(self.settle(s), whole)
                self.assertGreater(refused, 3)
            d.wait_stats(0, 0)

    def settle(self, s):
        """(status, body), or None where the connection was cut in mid-answer."""
        a = Answers(s)
        try:
            while (got := a.one())[0] == 100:
                pass
            return got[0], got[2] if "id=" not in got[2].decode() else b""
        except (AssertionError, OSError):
            return None


class HalfClosing(threading.Thread):
    """A relay that sends FIN after each request, so that real clients meet the probes."""

    def __init__(self, address):
        super().__init__(daemon=True)
        self.address = address
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.seen = b""  # of the server's bytes
        self.start()

    def run(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.relay, args=(client,), daemon=True).start()

    def relay(self, client):
        with client, socket.create_connection(self.address) as server:
            data = b""
            while b"\r\n\r\n" not in data:
                data += client.recv(65536)
            head, body = data.split(b"\r\n\r\n", 1)
            length = re.search(rb"(?i)content-length: *(\d+)", head)
            while length and len(body) < int(length[1]):
                body += client.recv(65536)
            server.sendall(head + b"\r\n\r\n" + body)
            server.shutdown(socket.SHUT_WR)
            while piece := server.recv(65536):
                self.seen += piece
                client.sendall(piece)


class Clients(unittest.TestCase):
    """Stacks that people use. Each gets its whole reply, through probes too; each that leaves is noticed."""

    def need(self, program):
        if not shutil.which(program):
            print(f"SKIPPED: {program} is not installed", file=sys.stderr)
            self.skipTest(program)

    def answer_late(self, d, relay):
        """Answers /slow after two probes."""
        def wait():
            end = time.monotonic() + PATIENCE
            while relay.seen.count(b"102 Processing") < 2 and time.monotonic() < end:
                time.sleep(0.02)
            d.answer()
        t = threading.Thread(target=wait, daemon=True)
        t.start()

    def test_curl(self):
        self.need("curl")
        curl = ["curl", "-sS", "--http1.1", "--max-time", str(PATIENCE)]
        with Server() as d:
            relay = HalfClosing(d.address)
            got = subprocess.run([*curl, "-d", "hello", d.url + "/echo"], capture_output=True, check=True)
            self.assertEqual(got.stdout, b"hello")
            big = os.path.join(tempfile.gettempdir(), f"http_script_{os.getpid()}")
            pathlib.Path(big).write_bytes(b"x" * 3_000_000)  # above 1 MB curl asks with Expect
            got = subprocess.run([*curl, "--data-binary", "@" + big, d.url + "/echo"], capture_output=True, check=True)
            os.unlink(big)
            self.assertEqual(got.stdout, b"x" * 3_000_000)
            got = subprocess.run([*curl, "-N", d.url + "/stream/5/10/50"], capture_output=True, check=True)
            self.assertEqual(events(got.stdout), [b"xxxxxxxxxx"] * 5)
            self.answer_late(d, relay)
            got = subprocess.run([*curl, "-w", " %{http_code}", "-d", "x", relay.url + "/slow"], capture_output=True, check=True)
            self.assertEqual(got.stdout, b"0 200")
            got = subprocess.run([*curl, "-N", relay.url + "/stream/3/10/1200"], capture_output=True, check=True)
            self.assertEqual(events(got.stdout), [b"xxxxxxxxxx"] * 3)
            self.assertGreater(got.stdout.count(b":\n\n"), 0)
            leaves = subprocess.Popen([*curl, "-d", "x", d.url + "/slow"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            d.wait_stats(None, 1)
            leaves.terminate()
            leaves.wait(PATIENCE)
            d.wait("gone /slow")
            d.wait_stats(0, 0)

    NODE = """
    const [url, relay] = process.argv.slice(1);
    const http = require('http');
    const text = async (u, o) => (await fetch(u, o)).text();
    const plain = (u) => new Promise((done, fail) => {
        let information = 0;
        const r = http.request(u, {method: 'POST', agent: false}, (a) => {
            let body = '';
            a.on('data', (x) => body += x);
            a.on('end', () => done([a.statusCode, body, information]));
        });
        r.on('information', () => information++);
        r.on('error', fail);
        r.end('x');
    });
    (async () => {
        const out = {};
        out.echo = await text(url + '/echo', {method: 'POST', body: 'hello'});
        out.stream = await text(url + '/stream/5/10/50');
        out.slow = await text(relay + '/slow', {method: 'POST', body: 'x'});
        out.plain = await plain(relay + '/slow');
        out.probed = await text(relay + '/stream/3/10/1200');
        const stop = new AbortController();
        process.stdin.once('data', () => stop.abort());
        out.abort = await text(url + '/slow', {method: 'POST', body: 'x', signal: stop.signal}).catch((e) => e.name);
        const half = new AbortController();
        const r = await fetch(url + '/stream/1000/10/20', {signal: half.signal});
        const reader = r.body.getReader();
        await reader.read();
        half.abort();
        console.log(JSON.stringify(out));
        process.stdin.destroy();
    })();
    """

    def test_node(self):
        self.need("node")
        with Server() as d:
            relay = HalfClosing(d.address)
            end = time.monotonic() + PATIENCE
            node = subprocess.Popen(["node", "-e", self.NODE, d.url, relay.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            for n in 2, 4:  # probes seen by fetch, then by http.request
                while relay.seen.count(b"102 Processing") < n and time.monotonic() < end and node.poll() is None:
                    time.sleep(0.02)
                d.answer()
            d.wait("head POST /slow", 3)
            d.wait_stats(None, 1)
            out = json.loads(node.communicate(b"abort\n", timeout=PATIENCE)[0])
            self.assertEqual((out["echo"], events(out["stream"].encode())), ("hello", [b"xxxxxxxxxx"] * 5))
            self.assertEqual((out["slow"], out["plain"][:2]), ("0", [200, "1"]))
            self.assertGreaterEqual(out["plain"][2], 1)
            self.assertEqual(events(out["probed"].encode()), [b"xxxxxxxxxx"] * 3)
            self.assertEqual(out["abort"], "AbortError")
            d.wait("gone /slow")
            d.wait("gone /stream/1000/10/20")
            d.wait_stats(0, 0)

    def test_python(self):
        with Server() as d:
            c = http.client.HTTPConnection(*d.address, timeout=PATIENCE)
            for i in range(3):
                c.request("POST", "/echo", b"%d" % i)
                self.assertEqual(c.getresponse().read(), b"%d" % i)
            c.request("POST", "/echo", iter([b"ab", b"c"]), {"Transfer-Encoding": "chunked"}, encode_chunked=True)
            self.assertEqual(c.getresponse().read(), b"abc")
            c.request("GET", "/stream/3/4/20")
            self.assertEqual(events(c.getresponse().read()), [b"xxxx"] * 3)
            c.request("HEAD", "/echo")
            self.assertEqual(c.getresponse().read(), b"")
            c.request("POST", "/slow", b"x")
            d.wait_stats(1, 1)
            time.sleep(1.2)  # no probe for one that has not sent FIN: this client would take it for the answer
            d.answer()
            self.assertEqual(c.getresponse().status, 200)
            c.request("POST", "/slow", b"x")
            d.wait_stats(1, 1)
            c.close()
            d.wait("gone /slow")
            d.wait_stats(0, 0)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    if GROUP in ("Gone", "Limits", "Clients"):
        sys.exit(not side_by_side.run(globals()[GROUP], 8))
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(globals()[GROUP])
    sys.exit(not unittest.TextTestRunner(verbosity=1).run(suite).wasSuccessful())

"""raw_http: HTTP/1.1 over a plain socket, with everything in the client's hand: when it reads, when it leaves, and how.

What a request came to is an Answer; how it ended is Answer.why:
  whole    the body is complete
  left     `during` said so
  eof      the daemon closed before the body was complete (also: before the head)
  reset    the connection was reset, in either direction
  refused  nobody listens
  timeout  nothing came for so long"""
import json
import socket
import struct
import time

PATIENCE = 150  # seconds without a byte, after which a request counts as lost


class Answer:
    def __init__(self):
        self.status, self.headers, self.body, self.why = 0, {}, bytearray(), "eof"
        self.began = self.ended = time.monotonic()  # of the request, of the last byte
        self.keeps = False  # the connection can be used again

    @property
    def whole(self):
        return self.why == "whole"

    def json(self):
        try:
            return json.loads(self.body)
        except ValueError:
            return None

    def code(self):
        """The code of the error that it is; None: it is none."""
        body = self.json()
        return body["error"].get("code") if isinstance(body, dict) and isinstance(body.get("error"), dict) else None


def request(method, path, body=None, headers=(), key=None, close=True):
    """Bytes of a request. body: bytes, or what becomes JSON."""
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: chaos", f"Content-Length: {len(data)}"]
    lines += [f"Authorization: Bearer {key}"] if key else []
    lines += ["Connection: close"] if close else []
    lines += [f"{name}: {value}" for name, value in headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


class Connection:
    def __init__(self, port, timeout=PATIENCE, receive_bytes=None):
        self.port, self.left_over = port, bytearray()
        self.s = socket.socket()
        self.s.settimeout(timeout)
        if receive_bytes:  # before it connects: it bounds the window
            self.s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.connected = False

    def connect(self):
        """None, or why not."""
        try:
            self.s.connect(("127.0.0.1", self.port))
            self.s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connected = True
            return None
        except ConnectionRefusedError:
            return "refused"
        except (ConnectionResetError, BrokenPipeError):
            return "reset"
        except (TimeoutError, OSError) as e:
            return "timeout" if isinstance(e, TimeoutError) else "refused"

    def send(self, data):
        """Best effort: who is not read any more finds an answer, or the reset, when it reads."""
        try:
            self.s.sendall(data)
        except OSError:
            pass

    def half_close(self):
        try:
            self.s.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self, reset=False):
        if reset:
            self.s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.s.close()

    def read(self, during=None):
        """The next answer. during(answer) is called after each piece; true: leave."""
        a = Answer()
        reader = Reader(a, self.left_over)
        try:
            while not reader.step():
                if during and during(a):
                    a.why = "left"
                    return a
                piece = self.s.recv(65536)
                if not piece:
                    a.why = "whole" if reader.until_eof else "eof"
                    return a
                a.ended = time.monotonic()
                self.left_over += piece
            a.why = "whole"
        except (ConnectionResetError, BrokenPipeError):
            a.why = "reset"
        except TimeoutError:
            a.why = "timeout"
        return a


class Reader:
    """Takes an answer out of the bytes that came."""

    def __init__(self, answer, data):
        self.a, self.data, self.left, self.until_eof, self.chunked = answer, data, None, False, False

    def step(self):
        """True: complete."""
        if not self.a.headers and not self.head():
            return False
        if self.chunked:
            return self.chunks()
        if self.until_eof:
            self.a.body += self.data
            self.data.clear()
            return False
        take = min(self.left, len(self.data))
        self.a.body += self.data[:take]
        del self.data[:take]
        self.left -= take
        return self.left == 0

    def head(self):
        while True:
            end = self.data.find(b"\r\n\r\n")
            if end < 0:
                return False
            first, *lines = bytes(self.data[:end]).decode("latin-1").split("\r\n")
            del self.data[:end + 4]
            status = int(first.split(" ")[1])
            if status >= 200:  # 1xx are the daemon's probes
                break
        a = self.a
        a.status, a.headers = status, {k.lower(): v for k, v in (x.split(": ", 1) for x in lines)}
        a.keeps = a.headers.get("connection", "").lower() != "close"
        self.chunked = a.headers.get("transfer-encoding", "").lower() == "chunked"
        self.left = int(a.headers.get("content-length", -1))
        self.until_eof = not self.chunked and self.left < 0
        return True

    def chunks(self):
        while True:
            end = self.data.find(b"\r\n")
            if end < 0:
                return False
            size = int(bytes(self.data[:end]), 16)
            if len(self.data) < end + 2 + size + 2:
                return False
            self.a.body += self.data[end + 2:end + 2 + size]
            del self.data[:end + 2 + size + 2]
            if size == 0:
                return True


def ask(port, method, path, body=None, headers=(), key=None, timeout=PATIENCE, during=None, receive_bytes=None):
    """One request on a connection of its own, read to its end."""
    c = Connection(port, timeout, receive_bytes)
    a = Answer()
    why = c.connect()
    if why:
        a.why = why
        c.close()
        return a
    begin = time.monotonic()
    c.send(request(method, path, body, headers, key))
    a = c.read(during)
    a.began = begin
    c.close()
    return a

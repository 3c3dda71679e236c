#!/usr/bin/python3
"""serve_script.py Shared|Deaths|Stops SERVE_MAIN, or Real HEARTH MODEL: drives the daemon from outside, over sockets,
around stub_worker.py, or `hearth serve` with its real worker. Standard library only. Exit 1 if a test fails."""
import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
GROUP, SERVE, *MODEL = sys.argv[1:]


class Daemon:
    """A running daemon; its log is kept in lines."""

    def __init__(self, *mode, options=(), argv=None, wait=True):
        self.dir = tempfile.TemporaryDirectory()
        self.seen = os.path.join(self.dir.name, "seen")
        worker = [sys.executable, str(HERE / "stub_worker.py"), self.seen, *mode]
        self.process = subprocess.Popen(argv or [SERVE, *options, *worker], stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                        text=True)
        self.log, self.port, self.listening = [], None, threading.Event()
        self.reader = threading.Thread(target=self.read_log, daemon=True)
        self.reader.start()
        if wait and not self.listening.wait(20):
            raise AssertionError(f"not listening: {self.log}")

    def read_log(self):
        for line in self.process.stderr:
            self.log.append(line.rstrip())
            if line.startswith("listening on "):
                self.port = int(line.rsplit(":", 1)[1])
                self.listening.set()
        self.listening.set()

    def end(self, sig=signal.SIGTERM):
        """Returns (exit status, seconds)."""
        begin = time.monotonic()
        if self.process.poll() is None:
            self.process.send_signal(sig)
        rc = self.process.wait(10)
        self.reader.join(5)
        self.process.stderr.close()
        self.dir.cleanup()
        return rc, time.monotonic() - begin

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.returncode is None:
            self.end()

    def worker_pids(self):
        return [int(w.split("=")[1]) for line in self.log if "worker=started" in line for w in line.split() if "pid=" in w]

    def seen_prompts(self):
        try:
            with open(self.seen) as f:
                return [json.loads(line).get("prompt") for line in f]
        except FileNotFoundError:
            return []

    def ask(self, method, path, body=None, headers=None):
        """Returns (status, headers, parsed body)."""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        c.request(method, path, json.dumps(body) if isinstance(body, dict) else body, headers or {})
        r = c.getresponse()
        text = r.read()
        c.close()
        return r.status, r.headers, json.loads(text) if text else None

    def complete(self, prompt, **more):
        return self.ask("POST", "/v1/completions", {"prompt": prompt, **more})

    def stream(self, prompt, **more):
        """Returns (connection, response) of a streamed completion."""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        c.request("POST", "/v1/completions", json.dumps({"prompt": prompt, "stream": True, **more}))
        return c, c.getresponse()

    def raw(self, data=b""):
        s = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        s.sendall(data)
        return s


def events(response):
    """The data of each event of a stream that is still to be read."""
    return [part[6:] for part in response.read().decode().strip().split("\n\n") if part.startswith("data: ")]


def post(body, version="1.1", extra=""):
    body = json.dumps(body)
    return f"POST /v1/completions HTTP/{version}\r\nHost: h\r\nContent-Length: {len(body)}\r\n{extra}\r\n{body}".encode()


def read_all(s):
    data = b""
    while True:
        try:
            piece = s.recv(65536)
        except ConnectionResetError:
            return data
        if not piece:
            return data
        data += piece


def until(condition, seconds=5):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def accepts(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


def alive(pid):
    """A zombie that nobody reaps is dead."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Shared(unittest.TestCase):
    """What one healthy daemon can be asked."""

    @classmethod
    def setUpClass(cls):
        cls.d = Daemon(options=["-o", "body=100000"])

    @classmethod
    def tearDownClass(cls):
        rc, _ = cls.d.end()
        assert rc == 0, rc
        assert not any("worker=gone" in line for line in cls.d.log), cls.d.log

    def test_health_and_models(self):
        status, headers, body = self.d.ask("GET", "/health?x=1")
        self.assertEqual((status, body), (200, {"status": "ok"}))
        self.assertEqual(headers["Content-Type"], "application/json")
        status, _, body = self.d.ask("GET", "/v1/models")
        self.assertEqual((status, body["object"], body["data"][0]["id"]), (200, "list", "stub"))
        self.assertEqual(body["data"][0]["hearth"]["context_length"], 64)

    def test_whole(self):
        status, _, body = self.d.complete("say hello say wörld length", seed=41)
        self.assertEqual(status, 200)
        self.assertEqual(body["object"], "text_completion")
        self.assertTrue(body["id"].startswith("cmpl-"))
        self.assertLess(abs(body["created"] - time.time()), 60)
        self.assertEqual(body["model"], "stub")
        self.assertEqual(body["choices"], [{"text": "hello wörld ", "index": 0, "logprobs": None, "finish_reason": "length"}])
        self.assertEqual(body["usage"], {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9,
                                         "prompt_tokens_details": {"cached_tokens": 3}})
        self.assertEqual((body["hearth"]["finish"], body["hearth"]["seed"]), ("length", 41))

    def test_stream(self):
        c, r = self.d.stream("say a say b", stream_options={"include_usage": True})
        self.assertEqual((r.status, r.headers["Content-Type"]), (200, "text/event-stream; charset=utf-8"))
        data = events(r)
        self.assertEqual(data[-1], "[DONE]")
        chunks = [json.loads(x) for x in data[:-1]]
        self.assertEqual([x["choices"][0]["text"] for x in chunks[:-1]], ["a ", "b ", ""])
        self.assertEqual([x["choices"][0]["finish_reason"] for x in chunks[:-1]], [None, None, "stop"])
        self.assertEqual(chunks[-1]["choices"], [])
        self.assertEqual(chunks[-1]["usage"]["total_tokens"], 9)
        self.assertTrue(all(x["usage"] is None for x in chunks[:-1]))
        self.assertEqual(len({x["id"] for x in chunks}), 1)
        self.assertEqual(chunks[2]["hearth"]["finish"], "stop")
        c.request("GET", "/health")  # the connection goes on after a stream
        self.assertEqual(c.getresponse().status, 200)
        c.close()

    def test_stream_comes_as_it_is_made(self):
        c, r = self.d.stream("say a wait 0.4 say b")
        begin = time.monotonic()
        first = r.readline()
        self.assertIn(b'"a "', first)
        self.assertLess(time.monotonic() - begin, 0.3)
        events(r)
        c.close()

    def test_request_on_the_wire(self):
        _, _, body = self.d.complete([1, 2], max_tokens=3, temperature=0.5, top_p=0.5, top_k=4, seed=0, stop="x")
        self.assertEqual(json.loads(body["choices"][0]["text"]),
                         {"prompt_segments": [{"ids": [1, 2]}], "max_new_tokens": 3, "temperature": 0.5, "top_p": 0.5,
                          "top_k": 4, "seed": 1, "stop": ["x"]})

    def test_drawn_seeds_differ(self):
        seeds = {self.d.complete("say a")[2]["hearth"]["seed"] for _ in range(5)}
        self.assertEqual(len(seeds), 5)

    def test_refused(self):
        for body, status, param in [({"prompt": "a", "n": 2}, 400, "n"), ({"prompt": "a", "modle": 1}, 400, "modle"),
                                    ({"prompt": "a", "model": "gpt-4"}, 404, "model"), ("{", 400, None), ("", 400, None)]:
            got, headers, answer = self.d.ask("POST", "/v1/completions", body)
            self.assertEqual((got, answer["error"]["param"]), (status, param))
            self.assertEqual(set(answer["error"]), {"message", "type", "param", "code"})
            self.assertEqual(headers["Content-Type"], "application/json")

    def test_worker_refuses(self):
        for stream in False, True:
            status, _, body = self.d.complete("error context_length_exceeded", stream=stream)
            self.assertEqual(status, 400)
            e = body["error"]
            self.assertEqual((e["code"], e["param"], e["prompt_tokens"], e["limit"], e["type"]),
                             ("context_length_exceeded", "prompt", 70, 64, "invalid_request_error"))
        self.assertEqual(self.d.complete("error nonfinite")[0], 500)
        self.assertEqual(self.d.complete("error capacity_exhausted")[1]["Retry-After"], "1")

    def test_error_in_mid_stream(self):
        c, r = self.d.stream("say a error nonfinite")
        data = events(r)
        self.assertEqual((r.status, len(data)), (200, 2))
        self.assertEqual(json.loads(data[1])["error"]["code"], "nonfinite")
        c.close()

    def test_routes(self):
        for method, path, status, allow in [("GET", "/", 404, None), ("GET", "/v1/models/", 404, None),
                                            ("POST", "/v1/chat/completions", 404, None), ("GET", "/v1/completions", 405, "POST"),
                                            ("POST", "/health", 405, "GET"), ("OPTIONS", "/v1/models", 405, "GET")]:
            got, headers, body = self.d.ask(method, path)
            self.assertEqual((got, headers["Allow"]), (status, allow), path)
            self.assertTrue(body["error"]["message"])

    def test_head_has_no_body(self):
        c = http.client.HTTPConnection("127.0.0.1", self.d.port, timeout=20)
        for _ in range(2):
            c.request("HEAD", "/health")
            r = c.getresponse()
            self.assertEqual((r.status, r.read()), (405, b""))
        c.close()

    def test_keep_alive_and_pipelining(self):
        s = self.d.raw(b"GET /health HTTP/1.1\r\nHost: h\r\n\r\n" + post({"prompt": "wait 0.2 say one"}) +
                       b"GET /nothing HTTP/1.1\r\nHost: h\r\n\r\n" + post({"prompt": "say two"}, extra="Connection: close\r\n"))
        answers = read_all(s)
        s.close()
        places = [answers.index(x) for x in (b'"ok"', b"one ", b"not_found", b"two ")]
        self.assertEqual(places, sorted(places))
        self.assertEqual(answers.count(b"HTTP/1.1 200 OK"), 3)
        self.assertEqual(answers.count(b"Connection: close"), 1)

    def test_split_anywhere(self):
        s = self.d.raw()
        for byte in post({"prompt": "say slowly"}, extra="Connection: close\r\n"):
            s.sendall(bytes([byte]))
        self.assertIn(b"slowly ", read_all(s))
        s.close()

    def test_http_1_0(self):
        s = self.d.raw(post({"prompt": "say a", "stream": True}, version="1.0"))
        answer = read_all(s)
        s.close()
        self.assertNotIn(b"chunked", answer)
        self.assertTrue(answer.endswith(b"data: [DONE]\n\n"))

    def test_chunked_body(self):
        body = json.dumps({"prompt": "say chunked"}).encode()
        c = http.client.HTTPConnection("127.0.0.1", self.d.port, timeout=20)
        c.request("POST", "/v1/completions", iter([body[:5], body[5:]]), encode_chunked=True,
                  headers={"Transfer-Encoding": "chunked"})
        self.assertIn(b"chunked ", c.getresponse().read())
        c.close()

    def test_expect_continue(self):
        whole = post({"prompt": "say polite"}, extra="Expect: 100-continue\r\nConnection: close\r\n")
        cut = whole.index(b"\r\n\r\n") + 4
        s = self.d.raw(whole[:cut])
        self.assertEqual(s.recv(100), b"HTTP/1.1 100 Continue\r\n\r\n")
        s.sendall(whole[cut:])
        self.assertIn(b"polite ", read_all(s))
        s.close()
        s = self.d.raw(b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 100001\r\n\r\n")
        self.assertTrue(read_all(s).startswith(b"HTTP/1.1 413 "))
        s.close()

    def test_malformed(self):
        for data in (b"\x16\x03\x01\x00\xa5\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"GET /\r\n\r\n"):
            s = self.d.raw(data)
            answer = read_all(s)
            s.close()
            self.assertRegex(answer, rb"^HTTP/1.1 (400|505) ")
            self.assertIn(b"Connection: close", answer)
            self.assertIn(b'{"error":', answer)

    def test_body_limit(self):
        """The refusal reaches a client that is still sending its body."""
        for how in {"Content-Length": "300000"}, {"Transfer-Encoding": "chunked"}:
            c = http.client.HTTPConnection("127.0.0.1", self.d.port, timeout=20)
            c.request("POST", "/v1/completions", iter([b"x" * 60000] * 5), headers=how,
                      encode_chunked="Transfer-Encoding" in how)
            r = c.getresponse()
            self.assertEqual((r.status, json.loads(r.read())["error"]["code"]), (413, "body_too_large"))
            c.close()

    def test_waiting_client_leaves(self):
        busy, r = self.d.stream("say a wait 0.6 say b")
        gone = self.d.raw(post({"prompt": "say never"}))
        self.assertTrue(until(lambda: "say a wait 0.6 say b" in self.d.seen_prompts()))
        time.sleep(0.1)
        gone.close()
        self.assertIn("say a wait 0.6 say b", self.d.seen_prompts())
        self.assertEqual(len(events(r)), 4)
        busy.close()
        self.assertEqual(self.d.complete("say after")[0], 200)
        self.assertNotIn("say never", self.d.seen_prompts())

    def test_running_client_leaves(self):
        c, r = self.d.stream("say a wait 0.3 say b")
        r.readline()
        c.sock.shutdown(socket.SHUT_RDWR)
        c.close()
        self.assertEqual(self.d.complete("say next")[2]["choices"][0]["text"], "next ")

    def test_slow_reader_blocks_nobody(self):
        slow, _ = self.d.stream("many 20 1000000")  # 20 MB that nobody reads: more than the limit
        status, _, body = self.d.complete("say next")
        self.assertEqual((status, body["choices"][0]["text"]), (200, "next "))
        data = b""
        try:
            data = read_all(slow.sock)
        except http.client.HTTPException:
            pass
        self.assertNotIn(b"[DONE]", data[-100:])  # it was dropped
        slow.close()

    def test_sent_too_early(self):
        """Requests that cannot be read yet wait in the socket, without costing the daemon a thing."""
        def ticks():
            fields = pathlib.Path(f"/proc/{self.d.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
            return int(fields[11]) + int(fields[12])
        busy, r = self.d.stream("say a wait 0.7 say b")
        s = self.d.raw(post({"prompt": "say early"}) * 1000 + post({"prompt": "say last"}, extra="Connection: close\r\n"))
        time.sleep(0.1)
        before = ticks()
        time.sleep(0.4)
        self.assertLessEqual(ticks() - before, 4)
        events(r)
        busy.close()
        answers = read_all(s)
        s.close()
        self.assertEqual((answers.count(b'"early "'), answers.count(b'"last "')), (1000, 1))

    def test_many_clients(self):
        got = []
        threads = [threading.Thread(target=lambda i=i: got.append((i, self.d.complete(f"say {i}")[2]["choices"][0]["text"])))
                   for i in range(40)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(sorted(got), [(i, f"{i} ") for i in range(40)])

    def test_queue_is_bounded(self):
        busy, r = self.d.stream("say a wait 1.2 say b")
        waiting = [self.d.raw(post({"prompt": "say queued"})) for _ in range(256)]
        self.assertTrue(until(lambda: self.d.ask("GET", "/health")[0] == 200))
        status, headers, body = self.d.complete("say more")
        self.assertEqual((status, headers["Retry-After"], body["error"]["code"]), (429, "1", "queue_full"))
        for s in waiting:
            s.close()
        events(r)
        busy.close()
        self.assertEqual(self.d.complete("say again")[0], 200)


class Deaths(unittest.TestCase):
    def test_death_in_a_reply(self):
        with Daemon() as d:
            c, r = d.stream("say a wait 0.2 die")
            waits = []
            t = threading.Thread(target=lambda: waits.append(d.complete("say b")))
            t.start()
            data = events(r)
            c.close()
            t.join()
            self.assertEqual(json.loads(data[-1])["error"]["code"], "worker_crashed")
            self.assertEqual((waits[0][0], waits[0][2]["error"]["code"]), (503, "worker_crashed"))
            self.assertEqual(d.complete("say c")[2]["choices"][0]["text"], "c ")  # waited for the next worker
            self.assertEqual(len(d.worker_pids()), 2)
            self.assertEqual(sum("worker=gone" in line and "exit status 3" in line for line in d.log), 1)
            self.assertEqual(d.end()[0], 0)

    def test_found_dead_while_idle(self):
        with Daemon() as d:
            time.sleep(1.1)
            os.kill(d.worker_pids()[0], signal.SIGKILL)
            self.assertTrue(until(lambda: len(d.worker_pids()) == 2, 0.5))  # at once: it had been steady
            self.assertTrue(until(lambda: d.ask("GET", "/health")[0] == 200))
            self.assertTrue(any("signal 9" in line for line in d.log))

    def test_broken_protocol(self):
        for prompt in "say a garbage", "stray":
            with Daemon() as d:
                first = d.complete(prompt)
                self.assertEqual(first[0], 200 if prompt == "stray" else 503)
                self.assertTrue(until(lambda: any("worker=gone" in line and "broken" in line for line in d.log)), d.log)
                self.assertEqual(d.ask("GET", "/health")[:1], (503,))
                self.assertEqual(d.complete("say b")[0], 200)
                self.assertTrue(until(lambda: not alive(d.worker_pids()[0])))

    def test_health_while_loading(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        with tempfile.TemporaryDirectory() as t, Daemon("slow", t + "/go", options=["-o", f"port={port}"], wait=False) as d:
            d.port = port
            self.assertTrue(until(lambda: accepts(port)))
            self.assertFalse(d.listening.is_set())
            self.assertEqual(d.ask("GET", "/health")[::2], (503, {"status": "loading"}))
            self.assertEqual(d.ask("GET", "/v1/models")[2]["data"], [])
            got = []
            asking = threading.Thread(target=lambda: got.append(d.complete("say patient")[0]))
            asking.start()
            pathlib.Path(t + "/go").touch()
            asking.join()
            self.assertEqual(got, [200])  # it waited for the worker

    def test_second_start_succeeds(self):
        with tempfile.TemporaryDirectory() as t, Daemon("once", os.path.join(t, "flag")) as d:
            self.assertEqual(d.complete("say ok")[0], 200)
            self.assertEqual(len(d.worker_pids()), 2)

    def test_starts_that_fail(self):
        for mode, starts, words in ("load_failed", 1, "blk.0.attn_q.weight"), ("exit", 3, "exit status 5"), ("garbage", 3, "broken"):
            d = Daemon(mode, wait=False)
            self.assertEqual(d.process.wait(10), 1)
            d.reader.join(5)
            self.assertEqual(len(d.worker_pids()), starts, d.log)
            self.assertTrue(any(words in line for line in d.log), d.log)
            self.assertIsNone(d.port)
            self.assertFalse(any(alive(pid) for pid in d.worker_pids()))
            d.end()

    def test_no_program(self):
        d = Daemon(argv=[SERVE, "/nonexistent/worker"], wait=False)
        self.assertEqual(d.process.wait(10), 1)
        d.reader.join(5)
        self.assertTrue(any("/nonexistent/worker" in line for line in d.log), d.log)
        d.end()

    def test_port_in_use(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            s.listen()
            d = Daemon(options=["-o", f"port={s.getsockname()[1]}"], wait=False)
            self.assertEqual(d.process.wait(10), 1)
            d.reader.join(5)
            self.assertTrue(any("in use" in line for line in d.log), d.log)
            self.assertEqual(d.worker_pids(), [])
            d.end()

    def test_ipv6(self):
        try:
            with socket.socket(socket.AF_INET6) as s:
                s.bind(("::1", 0))
        except OSError:
            self.skipTest("no IPv6 here")
        with Daemon(options=["-o", "host=::1"]) as d:
            self.assertTrue(any(line.startswith("listening on http://[::1]:") for line in d.log))
            c = http.client.HTTPConnection("::1", d.port, timeout=20)
            c.request("GET", "/health")
            self.assertEqual(c.getresponse().status, 200)
            c.close()


class Stops(unittest.TestCase):
    def test_stop_while_running(self):
        for sig in signal.SIGTERM, signal.SIGINT:
            with Daemon() as d:
                c, r = d.stream("say a hang")
                first = r.readline()
                waits = []
                t = threading.Thread(target=lambda: waits.append(d.complete("say b")))
                t.start()
                idle = d.raw()
                time.sleep(0.1)
                rc, seconds = d.end(sig)
                t.join()
                self.assertEqual(rc, 0)
                self.assertLess(seconds, 5)
                self.assertIn(b'"a "', first)
                self.assertEqual(json.loads(events(r)[-1])["error"]["code"], "draining")
                self.assertEqual((waits[0][0], waits[0][2]["error"]["code"]), (503, "draining"))
                self.assertEqual(read_all(idle), b"")
                self.assertFalse(any(alive(pid) for pid in d.worker_pids()))
                idle.close()
                c.close()

    def test_stop_with_a_deaf_worker_and_a_client_that_does_not_read(self):
        with Daemon("deaf") as d:
            c, r = d.stream("many 2 1000000 hang")
            r.readline()
            rc, seconds = d.end()
            self.assertEqual(rc, 0)
            self.assertLess(seconds, 5)
            self.assertFalse(any(alive(pid) for pid in d.worker_pids()))
            c.close()

    def test_second_signal(self):
        with Daemon("deaf") as d:
            d.process.send_signal(signal.SIGTERM)
            time.sleep(0.1)
            rc, seconds = d.end()
            self.assertEqual(rc, 0)
            self.assertLess(seconds, 1)
            self.assertFalse(any(alive(pid) for pid in d.worker_pids()))

    def test_stop_while_loading(self):
        with Daemon("slow", "/nonexistent", wait=False) as d:
            self.assertTrue(until(lambda: d.worker_pids()))
            rc, seconds = d.end()
            self.assertEqual(rc, 0)
            self.assertLess(seconds, 3)

    def test_worker_dies_with_the_daemon(self):
        with Daemon() as d:
            pid = d.worker_pids()[0]
            d.end(signal.SIGKILL)
            self.assertTrue(until(lambda: not alive(pid), 2))


class Real(unittest.TestCase):
    def test_real_worker(self):
        model = MODEL[0]
        with Daemon(argv=[SERVE, "serve", "-m", model, "--port", "0"]) as d:
            name = pathlib.Path(model).stem
            self.assertEqual(d.ask("GET", "/v1/models")[2]["data"][0]["id"], name)
            ask = {"model": name, "max_tokens": 12, "temperature": 0.7, "seed": 5}
            status, _, whole = d.complete("Once upon a time", **ask)
            self.assertEqual(status, 200)
            self.assertEqual(d.complete("Once upon a time", **ask)[2]["choices"], whole["choices"])
            self.assertLessEqual(whole["usage"]["completion_tokens"], 12)
            self.assertEqual(whole["hearth"]["seed"], 5)
            c, r = d.stream("Once upon a time", **ask)
            text = "".join(x["text"] for e in events(r)[:-1] for x in json.loads(e)["choices"])
            self.assertEqual(text, whole["choices"][0]["text"])
            c.close()
            status, _, body = d.complete("a " * 100000)
            self.assertEqual((status, body["error"]["code"]), (400, "context_length_exceeded"))
            self.assertGreater(body["error"]["prompt_tokens"], body["error"]["limit"])
            self.assertEqual(d.complete([1 << 30])[2]["error"]["param"], "prompt")
            rc, seconds = d.end()
            self.assertEqual(rc, 0)
            self.assertLess(seconds, 5)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], GROUP])

"""serve_rig: a daemon that runs, and clients of it, for the scripts of this folder: SCRIPT GROUP PROGRAM [MODEL], where PROGRAM
is serve_main (around stub_worker.py) or `hearth`. Standard library only.

That something was sent says nothing of when the other side sees it: a test waits for what can be seen of it (until, saw,
has_queued), and holds back what must come later with a stub that waits at a gate (Daemon.gate). Upper limits of time are there
where a document promises one (END_IN) or to end what hangs (PATIENCE)."""
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

HERE = pathlib.Path(__file__).resolve().parent
PATIENCE = 60  # seconds for anything that must come
END_IN = float(os.environ.get("HEARTH_TEST_END_S", "5"))  # of a daemon and its workers (FAILURES L1)
GROUP, SERVE, *MODEL = sys.argv[1:]


class Daemon:
    """A running daemon; its log is kept in lines. Keyword arguments are options of serve_main. cache: the user's cache folder, which
    stays; else it has one of its own."""

    def __init__(self, *mode, options=(), argv=None, wait=True, cache=None, **named):
        self.dir = tempfile.TemporaryDirectory()
        self.seen = os.path.join(self.dir.name, "seen")
        self.gate = pathlib.Path(self.dir.name, "gate")  # opens the stub's word of that name
        options = [*options, *(w for k, v in named.items() for w in ("-o", f"{k}={v}"))]
        worker = [sys.executable, str(HERE / "stub_worker.py"), self.seen, *mode]
        self.process = subprocess.Popen(argv or [SERVE, *options, *worker], stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                        text=True, env={**os.environ, "XDG_CACHE_HOME": cache or self.dir.name})
        self.log, self.port, self.listening = [], None, threading.Event()
        self.reader = threading.Thread(target=self.read_log, daemon=True)
        self.reader.start()
        if wait and not self.listening.wait(PATIENCE):
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
        rc = self.process.wait(PATIENCE)
        self.reader.join(PATIENCE)
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

    def seen_lines(self):
        """What the stub has read."""
        try:
            with open(self.seen) as f:
                return [json.loads(line) for line in f.read().splitlines()]
        except (FileNotFoundError, ValueError):
            return []

    def seen_prompts(self):
        return [line.get("prompt") for line in self.seen_lines()]

    def saw(self, **members):
        """Waits until the stub has read a line with these members."""
        return until(lambda: any(members.items() <= {k: v for k, v in line.items() if not isinstance(v, (list, dict))}.items()
                                 for line in self.seen_lines()))

    def ask(self, method, path, body=None, headers=None):
        """Returns (status, headers, parsed body)."""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        c.request(method, path, json.dumps(body) if isinstance(body, dict) else body, headers or {})
        r = c.getresponse()
        text = r.read()
        c.close()
        is_json = r.headers["Content-Type"] == "application/json"
        return r.status, r.headers, json.loads(text) if text and is_json else text.decode() or None

    def complete(self, prompt, headers=None, **more):
        return self.ask("POST", "/v1/completions", {"prompt": prompt, **more}, headers)

    def chat(self, content, headers=None, **more):
        return self.ask("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": content}], **more}, headers)

    def stream(self, prompt, headers=None, path="/v1/completions", **more):
        """Returns (connection, response) of a streamed completion, or chat."""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        what = {"prompt": prompt} if path == "/v1/completions" else {"messages": [{"role": "user", "content": prompt}]}
        c.request("POST", path, json.dumps({**what, "stream": True, **more}), headers or {})
        return c, c.getresponse()

    def chunks(self, prompt, **more):
        """The chunks of a stream that ends well, parsed."""
        c, r = self.stream(prompt, **more)
        data = events(r)
        c.close()
        assert data[-1:] == ["[DONE]"], data
        return [json.loads(x) for x in data[:-1]]

    def later(self, *args, **more):
        """Asks on a thread; returns (thread, list that gets the answer)."""
        got = []
        t = threading.Thread(target=lambda: got.append(self.complete(*args, **more)))
        t.start()
        return t, got

    def raw(self, data=b""):
        s = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        s.sendall(data)
        return s

    def metrics(self):
        """Series by name with labels."""
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1])
                for line in self.ask("GET", "/metrics")[2].splitlines() if not line.startswith("#")}

    def is_at_rest(self):
        """Nothing waits or runs any more."""
        def rest():
            m = self.metrics()
            return all(v == 0 for k, v in m.items() if k.split("{")[0] in (
                "hearth_requests_running", "hearth_requests_queued", "hearth_generations_live", "hearth_worker_running"))
        return until(rest)

    def has_queued(self, n):
        """Waits until n requests wait in the daemon."""
        return until(lambda: sum(v for k, v in self.metrics().items() if k.startswith("hearth_requests_queued")) == n)


def events(response):
    """The data of each event of a stream that is still to be read."""
    return [part[6:] for part in response.read().decode().strip().split("\n\n") if part.startswith("data: ")]


def comments(response):
    """Its comments, and only these."""
    return [part[2:] for part in response.read().decode().strip().split("\n\n") if part.startswith(": ")]


def text_of(chunks, index=0):
    """What the chunks of one choice say, joined."""
    said = [c for x in chunks for c in x["choices"] if c["index"] == index]
    return "".join(c["text"] if "text" in c else c["delta"].get("content", "") for c in said)


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


def sweep_numbers(test, d):
    """FAILURES I3 from outside: 400 or taken, never 500, and the worker stays."""
    values = ["-1", "2147483648", "-2147483648", "9223372036854775808", "1e308", "-1e308", "NaN", "null", '"x"', "[]", "{}"]
    fields = ["max_tokens", "temperature", "top_p", "top_k", "min_p", "n", "best_of", "logprobs", "seed", "presence_penalty",
              "frequency_penalty", "repetition_penalty", "min_tokens", "logit_bias", "stop_token_ids", "top_logprobs",
              "max_completion_tokens", "hearth"]
    routes = (("/v1/completions", '{"prompt":"say a","max_tokens":3'),
              ("/v1/chat/completions", '{"messages":[{"role":"user","content":"say a"}],"max_tokens":3'))
    for path, start in routes:
        for field in fields:
            for value in values:
                base = start.replace(',"max_tokens":3', "") if field in ("max_tokens", "max_completion_tokens") else start
                status, _, body = d.ask("POST", path, f'{base},"{field}":{value}}}')
                test.assertIn(status, (200, 400), (field, value, body))
                test.assertNotEqual((status, value), (200, "NaN"))
                if status == 400 and value != "NaN":
                    test.assertTrue(body["error"]["param"], (field, value, body))
    for path, body in [("/tokenize", '{"content":1}'), ("/tokenize", "{}"), ("/tokenize", '{"content":"a","add_special":1}'),
                       ("/detokenize", '{"tokens":[-1]}'), ("/detokenize", '{"tokens":[1e308]}'),
                       ("/detokenize", '{"tokens":"a"}'), ("/detokenize", '{"tokens":[2147483648]}'),
                       ("/detokenize", '{"tokens":null}'), ("/tokenize", '{"content":"a","x":1}'),
                       ("/v1/completions", '{"prompt":[-1]}'), ("/v1/completions", '{"prompt":[2147483648]}'),
                       ("/v1/chat/completions", '{"messages":[]}'), ("/v1/completions", "[" * 10000)]:
        test.assertEqual(d.ask("POST", path, body)[0], 400, body)
    test.assertEqual(len(d.worker_pids()), 1)


def until(condition, seconds=PATIENCE):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def accepts(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


def state_of(pid):
    """Its letter in /proc: T is stopped, Z is a zombie; "" is no process."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def alive(pid):
    """A zombie that nobody reaps is dead."""
    return state_of(pid) not in ("", "Z")


def sanitized(pid):
    """Measures of memory mean nothing then."""
    maps = pathlib.Path(f"/proc/{pid}/maps").read_text()
    return any(name in maps for name in ("libasan", "libtsan", "clang_rt"))

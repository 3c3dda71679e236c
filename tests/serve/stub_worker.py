#!/usr/bin/python3
"""A worker that is told by its prompts what to do, for the scripts and tests of serve/: multiplexed dialect, requests run
together, a thread for each. Standard library only.

    stub_worker.py SEEN [MODE …]

Every line it reads is appended to the file SEEN. MODEs:
  load_failed, exit, garbage, two_ready, early   how it starts: says load_failed; exits; bad JSON; two ready frames; a reply first
  slow FILE, once FILE          ready once FILE exists (its counters move); makes FILE and dies unless it exists
  bad_if FILE                   load_failed if FILE exists
  die_if FILE                   exits before it is ready if FILE exists
  stuck                         never ready, its counters stand still
  deaf                          ignores SIGTERM, drain and shutdown
  lanes N                       max_sessions (8)
  serial                        one request after the other; it reads nothing while one runs
  pipes BYTES                   makes its two pipes so small
  no_counters                   leaves the status page alone
  op_gate                       ops on sessions but get wait until there is a file "gate" beside SEEN
  op_nonsense                   ops on sessions but get and close are answered by {"text"}
  batch                         a step is of all requests that run
  digest X                      the model's digest is X or, if X is a path, what is in that file
  advice                        its model says how to sample it (one number of it is none)

A request with `resume` is carried out without a word or a deed up to the last of its ids, and goes on from there: a death
comes again, then. A step is the request that dies, breaks the protocol or stands still, and stands on the status page.

A prompt (of a chat: the last message) is a list of words, carried out in order, a cancel or pause is looked at between them:
  say TEXT, length (ends with it), many N BYTES (N tokens of BYTES letters), request (says its own request line)
  think TEXT                    reasoning (of a chat, as are the next)
  open TEXT                     text without an id
  call NAME, args TEXT          a call begins; a part of its arguments
  called, withdraw              it is complete; it was none
  wait SECONDS, gate            goes on then, or when there is a file "gate" beside SEEN, for a test that must do something first
  cached N M                    M of N prompt tokens were cached (before anything is said)
  reason TEXT, guard TEXT       of the done frame
  progress N                    a progress frame, if it was asked for: N tokens processed
  hang, ignore                  until it is cancelled; from now on cancels are ignored
  late N                        when cancelled it says N tokens before its done frame
  die, kill, freeze             exit status 3; SIGSEGV; SIGSTOP, all of them to the whole worker
  signal N                      that signal
  once WORD …                   WORD, for this request and in the first worker only
  dies N                        SIGKILL after its N-th frame in the first worker, the accepted one included (before anything is said)
  names ID …;                   these stand on the status page from now on, whatever else does; "prepares ID", "attends ID": there
  still, move                   no counter moves any more; they move again
  error CODE                    ends with an error
  other ID                      a piece for that id
  garbage, stray, never, no_id, error_no_id, ready, accept, answer, attach, close
                                bad JSON; a done too many; an id never sent; a piece and an error without id; a second
                                ready and accepted frame; the answer of an op; an attachment; closes its stdout and stays
Text of the ops: "die" and "once die" are as above. tokenize gives an id for each word (its length), "wait SECONDS" or "gate" first waits; detokenize prints
the ids; render prints its own request line. A session is its number of tokens: 7 and those said, of its last turn; a turn
that is cancelled or has an error leaves it dirty. An export of N tokens from F on is the line "F N" and KIB bytes for each.
"""
import ctypes
import fcntl
import json
import mmap
import os
import signal
import struct
import sys
import threading
import time

TICK, PHASE, LOADED, LOAD_TOTAL, PID, PREFILLED, GENERATED, LANES, LIVE, PAGES, USED = 1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12
QUEUED, RUNNING, DONE, FAILED, CANCELLED, LINES, OUTPUT = 13, 14, 15, 16, 17, 18, 19
PREPARING, ATTENDED, STEP_SEQ, N_ROWS, STEP = 28, 29, 30, 31, 32
VOCABULARY = 100
DIGEST = "ab" * 32  # of every prompt
DEEDS = ("wait", "gate", "hang", "die", "kill", "freeze", "signal", "garbage", "never", "other", "no_id", "error_no_id", "ready", "accept",
         "answer", "attach", "close", "progress", "once", "still", "move")
DEADLY = ("die", "kill", "freeze", "signal", "garbage", "never", "other", "no_id", "error_no_id", "ready", "accept", "answer", "attach",
          "close", "still")
lock = threading.Lock()


def id_hash(name):
    """As status_page_id_hash."""
    xxh = ctypes.CDLL("libxxhash.so.0").XXH3_64bits
    xxh.restype = ctypes.c_uint64
    return xxh(name.encode(), ctypes.c_size_t(len(name.encode()))) or 1


def is_first(what):
    """Whether this is done for the first time, by any worker."""
    try:
        os.close(os.open(os.path.join(os.path.dirname(sys.argv[1]), "once-" + what), os.O_CREAT | os.O_EXCL))
        return True
    except FileExistsError:
        return False


class Page:
    """The status page."""

    def __init__(self, used):
        fd = os.environ.get("HEARTH_WORKER_STATUS_FD") if used else None
        self.map = mmap.mmap(int(fd), 4096) if fd else bytearray(4096)
        self.still = False
        self.map[:8] = b"HEARTHS1"
        self.set(PID, os.getpid())

    def set(self, row, value):
        struct.pack_into("<Q", self.map, 8 * row, value)

    def step(self, names):
        """Before each: the requests in it."""
        self.set(STEP_SEQ, 1)
        for i, name in enumerate(names):
            self.set(STEP + 2 * i, id_hash(name))
            self.set(STEP + 2 * i + 1, 0)
        self.set(N_ROWS, len(names))
        self.set(STEP_SEQ, 2)

    def add(self, row, n=1):
        if not self.still or row not in (TICK, LOADED, PREFILLED, GENERATED, LINES, OUTPUT):
            self.set(row, struct.unpack_from("<Q", self.map, 8 * row)[0] + n)


def put(frame):
    text = (json.dumps(frame) + "\n").encode()
    with lock:
        view = memoryview(text)
        while view:
            view = view[os.write(1, view):]
        page.add(OUTPUT, len(text))


def raw(text):
    with lock:
        os.write(1, text)


def digest_of(word):
    return open(word).read() if "/" in word else word


def ready_frame(lanes):
    return {"ready": True, "max_sessions": lanes, "max_named_sessions": lanes - 1, "supports_cancel": False, "protocol": 2,
            "pid": os.getpid(), "model": {"name": "stub", "arch": "stub", "quant": "Q8_0", "params": 12, "context_length": 4096,
                                          **({"digest": digest_of(sys.argv[sys.argv.index("digest") + 1])} if "digest" in sys.argv else {}),
                                          "vocab_size": VOCABULARY, "modalities": ["text"], "capabilities": ["generate"],
                                          **({"sampling": {"temperature": 0.7, "top_k": 40, "top_p": 5}} if "advice" in sys.argv else {})},
            "kernels": "ref", "kv_pages": 2, "later_field": {"a": [1]}}


class Request:
    """One generate or chat that runs."""

    def __init__(self, line, request):
        self.line, self.request, self.id = line, request, request.get("id")
        self.cancelled, self.flowing = threading.Event(), threading.Event()
        self.flowing.set()
        self.n, self.finish, self.reason, self.guard, self.late, self.ignore = 0, "stop", None, None, 0, False
        self.prompt_tokens, self.cached, self.strays = 7, 3, 0
        self.calls, self.n_called, self.n_thought = 0, 0, 0
        self.session = request.get("session_id")
        self.resume = request.get("resume")
        self.n_told = len(self.resume["ids"]) if self.resume else 0
        self.n_frames, self.dies, self.named = 0, 0, False

    def put(self, frame):
        put({"id": self.id, **frame} if self.id is not None else frame)
        self.n_frames += 1
        if self.n_frames == self.dies and is_first("dies-" + self.id):
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(PATIENCE)

    def show_step(self):
        if not self.named:
            page.step(list(running) if "batch" in sys.argv else [self.id])

    def words(self):
        r = self.request
        if r.get("messages"):
            return (r["messages"][-1]["content"] or "").split()
        if "prompt" in r:
            return r["prompt"].split()
        return " ".join(s["text"] for s in r.get("prompt_segments", []) if "text" in s).split() or ["request"]

    def stopped(self):
        return self.cancelled.is_set() and not self.ignore

    def sleep(self, seconds):
        end = time.monotonic() + seconds
        while not self.stopped() and time.monotonic() < end:
            self.cancelled.wait(min(end - time.monotonic(), 0.05)) if not self.cancelled.is_set() else time.sleep(0.01)

    def accepted(self):
        if self.id is not None:
            said = self.resume or self.request
            self.cached = self.prompt_tokens - 1 if self.resume else self.cached
            self.put({"accepted": {"seed": said["seed"], "now": said.get("now", 1), "prompt_tokens":
                      self.prompt_tokens, "prompt_digest": DIGEST, "cached_prompt_tokens": self.cached}})

    def call(self, **more):
        self.delta({"tool_call": {"index": self.calls - 1, "arguments_delta": "", **more}})

    def token(self, text):
        self.delta({"content": text} if "messages" in self.request else None, text)

    def delta(self, delta, text=""):
        while not self.flowing.wait(0.02) and not self.stopped():
            pass
        token_id = self.n % VOCABULARY
        self.n += 1
        if self.n <= self.n_told:
            assert self.resume["ids"][self.n - 1] == token_id, self.resume
            return
        page.add(GENERATED)
        if self.id is None:
            put({"token": text})
            return
        frame = {"delta": delta} if delta else {"token": text}
        frame["ids"] = [token_id]
        if self.request.get("logprobs"):
            top = [{"id": i, "logprob": -0.5 - i, "text": text if i == token_id else f"alt{i} "}
                   for i in range(self.request.get("top_logprobs", 0))]
            frame["logprobs"] = [{"id": token_id, "logprob": -0.5, "text": text, "top": top}]
        self.put(frame)

    def open(self, text):
        if self.n >= self.n_told:
            self.put({**({"delta": {"content": text}} if "messages" in self.request else {"token": text}), "ids": []})

    def done(self):
        cancelled = self.stopped()
        if cancelled:
            for _ in range(self.late):
                self.token("late ")
        page.add(CANCELLED if cancelled else DONE)
        if self.n_called and self.finish == "stop":
            self.reason = self.reason or "tool_calls"
        frame = {"done": True, "prompt_tokens": self.prompt_tokens, "completion_tokens": self.n, "finish_reason": self.finish,
                 "reused_prompt_tokens": self.cached, "prefilled_prompt_tokens": self.prompt_tokens - self.cached,
                 "session_reset_reason": "new", "prefill_ms": 1.5, "decode_ms": 2, "total_ms": 4, "prefill_tok_s": 0,
                 "decode_tok_s": 0, "seed": (self.resume or self.request)["seed"],
                 "reason": "cancelled" if cancelled else self.reason or self.finish}
        if cancelled:
            frame["cancelled"] = True
        if self.session:
            frame["session_reset_reason"] = ("new" if self.session not in sessions else "dirty" if sessions[self.session]["dirty"]
                                             else "exact_prefix")
            sessions[self.session] = {"tokens": self.prompt_tokens + self.n, "dirty": cancelled}
        if self.guard:
            frame["guard"] = self.guard
        if self.id is None:
            frame["generated_token_ids"] = list(range(self.n))
        else:
            frame.update(queue_ms=0.5, ttft_ms=1.0, cached_prompt_tokens=self.cached, preemptions=0, drafted=0, accepted=0,
                         reasoning_tokens=self.n_thought)
        self.put(frame)

    def error(self, code):
        page.add(FAILED)
        if self.session in sessions:
            sessions[self.session]["dirty"] = True
        self.put({"error": "prompt is too much", "code": code, "field": "prompt", "prompt_tokens": 70, "limit": 64})

    def run(self):
        words = self.words()
        if words[:1] == ["error"]:  # refused: nothing was accepted
            self.error(words[1])
            return
        if words[:1] == ["cached"]:
            self.prompt_tokens, self.cached = int(words[1]), int(words[2])
            words = words[3:]
        if words[:1] == ["dies"]:
            self.dies, words = int(words[1]), words[2:]
        if self.resume and self.resume["prompt_digest"] != DIGEST:
            self.error("resume_mismatch")
            return
        self.accepted()
        while words and not self.stopped():
            word = words.pop(0)
            if word == "error":
                self.error(words.pop(0))
                return
            self.step(word, words)
        for _ in range(1 + self.strays):
            self.done()

    def step(self, word, words):
        if word in DEEDS and self.n < self.n_told:  # it has been done
            skip(word, words)
            return
        if word in DEADLY:
            self.show_step()
        if word == "once":
            if is_first(self.id):
                self.step(words.pop(0), words)
            else:
                skip(words.pop(0), words)
        elif word == "names":
            self.named = True
            page.step(list(iter(lambda: words.pop(0), ";")))
        elif word in ("prepares", "attends"):
            self.named = True
            page.set(PREPARING if word == "prepares" else ATTENDED, id_hash(words.pop(0)))
        elif word == "open":
            self.open(words.pop(0) + " ")
        elif word == "say":
            self.token(words.pop(0) + " ")
        elif word == "think":
            self.n_thought += 1
            self.delta({"reasoning": words.pop(0) + " "})
        elif word == "call":
            self.calls += 1
            self.call(id=f"call_{self.calls - 1}", name=words.pop(0))
        elif word == "args":
            self.call(arguments_delta=words.pop(0))
        elif word in ("called", "withdraw"):
            self.n_called += word == "called"
            self.call(**{"closed" if word == "called" else "withdrawn": True})
        elif word == "length":
            self.finish = "length"
        elif word == "wait":
            self.sleep(float(words.pop(0)))
        elif word == "gate":
            while not os.path.exists(gate) and not self.stopped():
                self.sleep(0.01)
        elif word == "many":
            count, size = int(words.pop(0)), int(words.pop(0))
            for _ in range(count):
                if self.stopped():
                    break
                self.token("x" * size)
        elif word == "request":
            self.token(json.dumps(self.request))
        elif word in ("reason", "guard"):
            setattr(self, word, words.pop(0))
        elif word == "progress":
            processed = int(words.pop(0))
            if self.request.get("progress"):
                self.put({"progress": {"prompt_tokens": self.prompt_tokens, "cached": self.cached, "processed": processed}})
        elif word == "hang":
            self.sleep(1000)
        elif word == "ignore":
            self.ignore = True
        elif word == "late":
            self.late = int(words.pop(0))
        elif word == "die":
            os._exit(3)
        elif word in ("kill", "signal"):
            os.kill(os.getpid(), signal.SIGSEGV if word == "kill" else int(words.pop(0)))
            time.sleep(PATIENCE)  # it reaches this thread a little later
        elif word == "freeze":
            os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(0.5)
        elif word in ("still", "move"):
            page.still = word == "still"
        elif word == "garbage":
            raw(b"not json\n")
        elif word == "stray":
            self.strays += 1
        elif word == "never":
            put({"id": "never-sent", "token": "x", "ids": [1]})
        elif word == "other":
            put({"id": words.pop(0), "token": "x", "ids": [1]})
        elif word == "no_id":
            put({"token": "x", "ids": [1]})
        elif word == "error_no_id":
            put({"error": "something", "code": "internal"})
        elif word == "ready":
            put(ready_frame(8))
        elif word == "accept":
            self.accepted()
        elif word == "answer":
            self.put({"text": "x"})
        elif word == "attach":
            self.put({"token": "x", "ids": [1], "attach": 3})
            raw(b"abc")
        elif word == "close":
            os.close(1)
            time.sleep(PATIENCE)


def skip(word, words):
    """What belongs to a word that is not carried out."""
    if word == "names":
        del words[:words.index(";") + 1]
    elif word == "once":
        skip(words.pop(0), words)
    elif word in ("wait", "signal", "other", "progress", "prepares", "attends"):
        words.pop(0)


KIB = 1024
saved = {}


def export_session(request, reply, known):
    start, count = request["from"], request["count"]
    if start + count > known["tokens"]:
        put({**reply, "error": f"count is {count}, but {known['tokens'] - start} tokens are there", "code": "invalid_field",
             "field": "count"})
        return
    data = f"{start} {count}\n".encode() + b"x" * (KIB * count)
    frame = {**reply, "export": {"session_id": request["session_id"], "from": start, "count": count, "tokens": known["tokens"]},
             "attach": len(data)}
    with lock:
        view = memoryview((json.dumps(frame) + "\n").encode() + data)
        while view:
            view = view[os.write(1, view):]


def import_session(request, reply, data):
    head, _, rest = data.partition(b"\n")
    start, count = (int(x) for x in head.split()) if head.replace(b" ", b"").isdigit() else (0, -1)
    if len(rest) != count * KIB:
        put({**reply, "error": "checksum does not match", "code": "invalid_field", "field": "checksum"})
        return
    name = request["session_id"]
    known = sessions.setdefault(name, {"tokens": 0, "dirty": False})
    known["tokens"] = max(known["tokens"], start + count)
    put({**reply, "import": {"session_id": name, "from": start, "count": count, "tokens": known["tokens"]}})


def session_op(request, data):
    name, action, reply = request["session_id"], request["action"], {"id": request["id"]}
    while "op_gate" in sys.argv and action != "get" and not os.path.exists(gate):
        time.sleep(0.01)
    known = sessions.get(name)
    extent = {"session_id": name, "tokens": known["tokens"] if known else 0}
    if "op_nonsense" in sys.argv and action not in ("get", "close"):
        put({**reply, "text": "x"})
    elif action == "get":
        put({**reply, "session": {"session_id": name, "known": known is not None, "busy": False,
                                  **(known or {"tokens": 0, "dirty": False})}})
    elif action == "close":
        sessions.pop(name, None)
        put({**reply, "closed": True, "session_id": name})
    elif action == "reset":
        if known:
            known.update(tokens=0, dirty=False)
        put({**reply, "reset": True, "session_id": name})
    elif action == "import":
        import_session(request, reply, data)
    elif action in ("restore", "drop"):
        if request["name"] not in saved:
            put({**reply, "error": f"{request['name']} is not saved", "code": "unknown_id", "field": "name"})
            return
        tokens = saved[request["name"]] if action == "restore" else saved.pop(request["name"])
        if action == "restore":
            sessions[name] = {"tokens": tokens, "dirty": False}
        put({**reply, "restored" if action == "restore" else "dropped": {"session_id": name, "name": request["name"],
                                                                         "tokens": tokens}})
    elif not known:
        put({**reply, "error": f"there is no session {name}", "code": "unknown_id", "session_id": name})
    elif action == "save":
        saved[request["name"]] = known["tokens"]
        put({**reply, "saved": {**extent, "name": request["name"]}})
    elif action == "prewarm":
        put({**reply, "prewarmed": {**extent, "prefilled": 2}})
    elif action == "probe":
        start = request.get("from", 0)
        count = request.get("count", known["tokens"] - start)
        put({**reply, "probe": {**extent, "from": start, "count": count, "in_memory": count, "stored": 0}})
    else:
        export_session(request, reply, known)


def answer_op(request, data):
    op, reply = request["op"], {"id": request["id"]}
    words = request.get("text", "").split()
    if words[-1:] == ["die"] and (words[:1] == ["die"] or is_first(request["id"])):
        page.set(PREPARING, id_hash(request["id"]))
        os._exit(3)
    if op == "tokenize":
        words = request["text"].split()
        if words[:1] == ["wait"]:
            time.sleep(float(words[1]))
        while words[:1] == ["gate"] and not os.path.exists(gate):
            time.sleep(0.01)
        if words[:1] == ["error"]:
            put({**reply, "error": "text is too much", "code": words[1], "field": "text"})
            return
        reply.update(ids=[len(w) for w in words], pieces=words)
    elif op == "detokenize":
        reply["text"] = " ".join(str(i) for i in request["ids"])
    elif op == "render":
        if request["messages"][-1]["content"] == "error":
            put({**reply, "error": "no such role", "code": "template_error", "field": "messages"})
            return
        reply.update(text=json.dumps(request), count=3)
    elif op == "count":
        text = request.get("text", "") or " ".join(m["content"] for m in request.get("messages", []))
        reply["count"] = len(text.split())
    elif op == "session":
        session_op(request, data)
        return
    else:
        put({**reply, "error": f"op {op} is not known", "code": "unsupported", "field": "op"})
        return
    put(reply)


class Worker:
    def __init__(self, modes):
        self.modes, self.running, self.draining = modes, running, False
        self.changed = threading.Condition()

    def has(self, mode):
        return mode in self.modes

    def value(self, mode, default=None):
        return self.modes[self.modes.index(mode) + 1] if mode in self.modes else default

    def tick(self):
        """Counters move while there is work."""
        while True:
            time.sleep(0.02)
            if self.running:
                page.add(TICK)

    def start(self):
        page.set(PHASE, 1)
        for name in ("load_failed", "bad_if"):
            if self.has(name) and (name == "load_failed" or os.path.exists(self.value(name))):
                put({"error": "tensor blk.0.attn_q.weight is cut short", "code": "load_failed"})
                sys.exit(1)
        if self.has("exit") or self.has("die_if") and os.path.exists(self.value("die_if")):
            sys.exit(5)
        if self.has("garbage"):
            raw(b"{]\n")
            time.sleep(1000)
        if self.has("early"):
            put({"id": "a", "token": "x", "ids": [1]})
        while self.has("stuck"):
            time.sleep(1)
        while self.has("slow") and not os.path.exists(self.value("slow")):
            time.sleep(0.01)
            page.add(LOADED)
        if self.has("once") and not os.path.exists(self.value("once")):
            open(self.value("once"), "w").close()
            sys.exit(6)
        lanes = int(self.value("lanes", 8))
        for row, value in (LANES, lanes), (PAGES, 2), (PHASE, 3):
            page.set(row, value)
        put(ready_frame(lanes))
        if self.has("two_ready"):
            put(ready_frame(lanes))

    def carry_out(self, r):
        r.run()
        with self.changed:
            self.running.pop(r.id, None)
            self.show()
            self.changed.notify_all()

    def show(self):
        page.set(RUNNING, len(self.running))
        page.set(LIVE, len(self.running))
        page.set(PHASE, 5 if self.running else 3)

    def take(self, line, request, data):
        op = request.get("op", "generate")
        if op in ("cancel", "pause", "continue"):
            r = self.running.get(request["id"])
            if r and op == "cancel":
                r.cancelled.set()
            elif r:
                r.flowing.set() if op == "continue" else r.flowing.clear()
        elif op == "drain":
            self.draining = True
            if not self.has("deaf"):
                threading.Thread(target=self.finish, daemon=True).start()
        elif op == "shutdown":
            if not self.has("deaf"):
                os._exit(0)
        elif op in ("generate", "chat"):
            r = Request(line, request)
            with self.changed:
                self.running[r.id] = r
                self.show()
            if self.has("serial") or r.id is None:
                self.carry_out(r)
            else:
                threading.Thread(target=self.carry_out, args=(r,), daemon=True).start()
        elif op == "stats":
            with self.changed:
                numbers = {"lanes": 8, "lanes_live": len(self.running), "running": len(self.running)}
            put({"id": request["id"], "stats": {**{k: 0 for k in STATS}, **numbers, "draining": self.draining}})
        else:
            threading.Thread(target=answer_op, args=(request, data), daemon=True).start()

    def finish(self):
        with self.changed:
            while self.running:
                self.changed.wait()
        os._exit(0)

    def main(self, seen):
        if self.has("deaf"):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if self.has("pipes"):
            for fd in 0, 1:
                fcntl.fcntl(fd, 1031, int(self.value("pipes")))  # F_SETPIPE_SZ
        threading.Thread(target=self.tick, daemon=True).start()
        self.start()
        for line in sys.stdin.buffer:
            with open(seen, "ab") as f:
                f.write(line)
            page.add(LINES)
            request = json.loads(line)
            self.take(line, request, sys.stdin.buffer.read(request.get("attach", 0)))
        self.finish()


STATS = ("lanes", "lanes_live", "sessions", "pages_total", "pages_used", "queued", "running", "steps", "tokens_prefilled",
         "tokens_generated", "tokens_reused", "requests_done", "requests_failed", "requests_cancelled")
PATIENCE = 60
sessions, running = {}, {}
page = Page("no_counters" not in sys.argv)
gate = os.path.join(os.path.dirname(sys.argv[1]), "gate")
try:
    Worker(sys.argv[2:]).main(sys.argv[1])
except (BrokenPipeError, KeyboardInterrupt):
    os._exit(0)

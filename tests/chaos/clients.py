"""clients: one thread each, asking one thing after another, well or badly. Which, is drawn from the run's seed.

FAILURES that are done here, under whatever else happens: C1 `killed_after_200_ms`, C2 and C4 `beside_a_queue`, C3 `time_out_and_retry`,
C6 `leaves` and `talk` (turn 1 dropped, turn 2 at once), L1 `unread` (the daemon is told to stop by faults.py). C8 and H1 are in
faults.py, H2 in prober.py."""
import random
import threading
import time

import malformed
import raw_http
from catalogue import CONTEXT, noise_ids
from rig import now

LONG = ("noise long", "noise 4000", "ember long", "chat long", "noise chat", "noise n4", "guard", "noise stop", "noise sampled")
FAT = ("noise fat stream", "noise logprobs stream", "noise n4 stream")
RARE = ("noise 4000", "noise fat", "noise prompt", "noise long")  # seconds each: not the mass of what is asked
OVER_IN = 40  # seconds from a client's going to the end of its request: grace, kill, respawn, and a daemon that stands still


class Client(threading.Thread):
    def __init__(self, world, number, seed):
        super().__init__(daemon=True, name=f"client-{number}")
        self.world, self.book, self.judge, self.catalogue = world, world.book, world.judge, world.catalogue
        self.number, self.dice, self.count = number, random.Random(f"{seed}/{number}"), 0
        self.key = world.keys[number % len(world.keys)]
        self.doing = None
        weights = [(self.plain, 30), (self.leaves, 14), (self.half_closed, 5), (self.slow, 3), (self.deleted, 8), (self.deadline, 6),
                   (self.light, 8), (self.bad, 10), (self.keyed, 10), (self.talk, 8), (self.session_ops, 4), (self.many_on_one, 5),
                   (self.time_out_and_retry, 1), (self.killed_after_200_ms, 3), (self.beside_a_queue, 3), (self.unread, 1)]
        self.what, self.weights = zip(*weights)

    def run(self):
        while not self.world.over.is_set():
            act = self.dice.choices(self.what, self.weights)[0]
            self.doing = act.__name__
            try:
                outcome = act()
            except Exception as e:  # a fault of the harness is one of the run
                import traceback
                self.book.fail(f"client {self.number} in {act.__name__}: {e!r} {traceback.format_exc()[-700:]}")
                outcome = None
            if outcome in ("gone", "refused", "draining"):
                time.sleep(self.dice.random() * 0.3)
        self.doing = None

    # What they have in common

    def new_id(self):
        self.count += 1
        return f"chaos-{self.number}-{self.count}"

    def begin(self, entry, kind):
        return self.book.begin(self.new_id(), kind, entry.name, entry.model)

    def pick(self, **wanted):
        """An entry; the slow ones less often."""
        entries = [e for e in self.catalogue.entries if all(getattr(e, k) == v for k, v in wanted.items())]
        e = self.dice.choice(entries)
        return self.dice.choice(entries) if e.name.removesuffix(" stream") in RARE else e

    def long_one(self):
        return self.catalogue.by_name[self.dice.choice(LONG) + self.dice.choice(("", " stream"))]

    def send(self, record, entry, connection=None, headers=(), body=None, close=True):
        """Sends it; returns (connection, None), or (None, how it failed)."""
        c = connection or raw_http.Connection(self.world.port)
        if not c.connected:
            why = c.connect()
            if why:
                c.close()
                a = raw_http.Answer()
                a.why = why
                return None, a
        c.send(raw_http.request("POST", entry.path, body or entry.body, [("X-Request-Id", record.id), *headers], self.key, close))
        return c, None

    def ask(self, record, entry, during=None, headers=(), body=None, receive_bytes=None):
        c, a = self.send(record, entry, raw_http.Connection(self.world.port, receive_bytes=receive_bytes), headers, body)
        if c:
            a = c.read(during)
            c.close()
        return a

    def api(self, method, path, body=None, headers=()):
        return raw_http.ask(self.world.port, method, path, body, headers, self.key)

    def leaving(self, seconds, first_bytes=0):
        """A `during` that leaves after so long, from the first bytes on."""
        state = {}

        def during(a):
            if len(a.body) >= first_bytes:
                state.setdefault("at", now() + seconds)
            return "at" in state and now() >= state["at"]
        return during

    def is_over(self, record):
        """After the client has gone: the daemon must find out, and end it."""
        end = now() + OVER_IN
        while now() < end:
            a = self.api("GET", f"/v1/requests/{record.id}")
            state = (a.json() or {}).get("state") if a.status == 200 else None
            if a.status == 404 or state in ("gone", "done", "failed") or a.why in ("refused", "reset", "eof"):
                return a.json() if state else None  # not known any more is over, too
            if a.status == 200 and self.world.was_stopped(record.began, now()):
                end = max(end, self.world.last_stop() + OVER_IN)
            time.sleep(0.05)
        self.book.fail(f"{record.kind}: {record.id} is {state} {OVER_IN} s after its client has gone")
        return None

    # What they do

    def plain(self):
        entry = self.pick()
        r = self.begin(entry, "plain")
        return self.judge.generation(r, self.ask(r, entry), entry)

    def leaves(self):
        """C6: at any moment, in any of three ways."""
        entry = self.pick() if self.dice.random() < 0.4 else self.long_one()
        r = self.begin(entry, "leaves")
        c, a = self.send(r, entry)
        if c:
            seconds = self.dice.choice((0, 0.003, 0.03, 0.3, 1.5)) * self.dice.random()
            c.s.settimeout(max(0.002, seconds))
            first = now()
            a = c.read(lambda a: now() - first > seconds)
            if a.why == "timeout":
                a.why = "left"
            c.close(reset=self.dice.random() < 0.4)
        outcome = self.judge.generation(r, a, entry)
        if outcome == "left" and self.dice.random() < 0.3:
            self.is_over(r)
        return outcome

    def half_closed(self):
        """One that only shut its write side is alive (C2)."""
        entry = self.pick()
        r = self.begin(entry, "half closed")
        c, a = self.send(r, entry)
        if c:
            time.sleep(self.dice.random() * 0.02)
            c.half_close()
            a = c.read()
            c.close()
        return self.judge.generation(r, a, entry)

    def slow(self):
        """Stops to read for seconds, and goes on."""
        entry = self.catalogue.by_name[self.dice.choice(FAT)]  # the first is more than daemon and sockets hold
        r = self.begin(entry, "slow")
        pauses = [self.dice.random() * 2 for _ in range(self.dice.randrange(1, 4))]
        marks = sorted(self.dice.random() * 2e5 for _ in pauses)

        def during(a):
            if marks and len(a.body) > marks[0] and not self.world.over.is_set():
                marks.pop(0)
                time.sleep(pauses.pop())
            return False
        return self.judge.generation(r, self.ask(r, entry, during, receive_bytes=8192), entry)

    def unread(self):
        """L1: a stream that nobody reads for a long while; then all of it must be there."""
        entry = self.catalogue.by_name["noise fat stream"]
        r = self.begin(entry, "unread")
        c, a = self.send(r, entry, raw_http.Connection(self.world.port, receive_bytes=4096))
        if c:
            self.world.over.wait(self.dice.random() * 9)
            a = c.read()
            c.close()
        return self.judge.generation(r, a, entry)

    def deleted(self):
        """DELETE by id, from elsewhere."""
        entry = self.long_one()
        r = self.begin(entry, "deleted")
        got = []
        t = threading.Thread(target=lambda: got.append(self.ask(r, entry)))
        t.start()
        time.sleep(self.dice.choice((0.01, 0.1, 1)) * self.dice.random())
        a = self.api("DELETE", f"/v1/requests/{r.id}")
        if a.whole and a.status not in (200, 404):
            self.book.fail(f"DELETE of {r.id}: status {a.status} {bytes(a.body[:200])!r}")
        t.join()
        return self.judge.generation(r, got[0], entry, {"cancelled"})

    def deadline(self):
        entry = self.pick() if self.dice.random() < 0.3 else self.long_one()
        r = self.begin(entry, "deadline")
        body = {**entry.body, "hearth": {"deadline_ms": self.dice.choice((1, 20, 200, 2000, 20000))}}
        return self.judge.generation(r, self.ask(r, entry, body=body), entry, {"timeout"})

    def light(self):
        light = self.dice.choice(self.catalogue.lights)
        r = self.begin(light, "light")
        a = raw_http.ask(self.world.port, light.method, light.path, light.body, [("X-Request-Id", r.id)], self.key)
        return self.judge.light(r, a, light)

    def bad(self):
        """Malformed in its body, or as HTTP."""
        if self.dice.random() < 0.6:
            (data, statuses), shut = malformed.bad_body(self.dice, self.key), False
        else:
            data, statuses, shut = malformed.bad_http(self.dice, self.key)
        r = self.book.begin(self.new_id(), "bad", repr(data[:120]), None)
        c = raw_http.Connection(self.world.port)
        a = raw_http.Answer()
        a.why = c.connect()
        if not a.why:
            c.send(data)
            if shut:
                c.half_close()
            try:
                a = c.read()
            except (ValueError, IndexError) as e:
                self.book.fail(f"bad: an answer that is no HTTP: {e!r} to {r.name}")
        c.close()
        if a.whole and (a.status in statuses or a.status == 429):
            return self.judge.settle(r, "refused")
        if a.whole and a.status == 503 and a.code() in ("draining", "worker_crashed"):
            return self.judge.settle(r, "draining" if self.judge.down_during(r, ("term",)) else "refused")
        if a.why in ("eof", "reset"):
            return self.judge.settle(r, "closed")
        if a.whole:
            self.judge.fail(r, f"status {a.status} {bytes(a.body[:300])!r}")
            return self.judge.settle(r, "wrong")
        return self.judge.connection(r, a)

    def keyed(self):
        """Idempotency-Key: asked until there is an answer, twice at once or again later: it is one answer. Survives the daemon."""
        entry = self.pick(stream=False)
        r = self.begin(entry, "keyed")
        r.tries = 0
        headers = [("Idempotency-Key", f"key-{self.world.run}-{r.id}")]
        answers = []

        def once():
            while True:
                r.tries += 1
                a = self.ask(r, entry, headers=headers)
                if not ((a.why in ("refused", "reset", "eof") or a.code() == "draining") and self.judge.down_during(r)):
                    break
                time.sleep(0.1)
            answers.append(a)
        beside = [threading.Thread(target=once) for _ in range(self.dice.choice((0, 0, 1)))]
        for t in beside:
            t.start()
        once()
        for t in beside:
            t.join()
        if self.dice.random() < 0.3 and all(a.whole and a.status == 200 for a in answers):
            once()
        outcome = self.judge.generation(r, answers[0], entry)
        if self.world.has_journal and outcome == "finished":
            self.one_answer(r, entry, answers, headers)
        return outcome

    def one_answer(self, r, entry, answers, headers):
        for a in answers[1:]:
            kept = not self.world.disk_failed(r.began, now())  # else it may be computed again
            if a.whole and a.status == 200 and kept and a.body != answers[0].body:
                self.judge.fail(r, f"answered twice: {bytes(answers[0].body[:200])!r} and {bytes(a.body[:200])!r}", "changed")
        if self.dice.random() < 0.2:
            r.tries += 1
            a = self.ask(r, entry, headers=headers, body={**entry.body, "user": "another"})
            if a.whole and (a.status, a.code()) not in ((422, a.code()), (503, "draining"), (503, "worker_crashed"), (429, a.code())):
                self.judge.fail(r, f"another body under its key: status {a.status} {bytes(a.body[:200])!r}")

    def talk(self):
        """C6: a session of several turns, some of them dropped in the middle; each that is heard out is the cold one."""
        turns = self.dice.choice(self.catalogue.talks)
        name = f"s-{self.number}-{self.count}"
        outcome = None
        for i, turn in enumerate(turns):
            stream = self.dice.random() < 0.5
            body = {**turn.body, "session_id": name, **({"stream": True, "stream_options": {"include_usage": True}} if stream else {})}
            if self.dice.random() < 0.25:
                r = self.book.begin(self.new_id(), "turn dropped", f"turn {i}", turn.model)
                c, a = self.send(r, turn, body={**body, "ignore_eos": True, "max_tokens": 300, "stream": True})
                if c:
                    a = c.read(self.leaving(self.dice.random() * 0.05, 1))
                    a.why = "left" if a.whole else a.why
                    c.close()
                    if a.why == "left":
                        a.body.clear()  # it was longer than its cold run
                if self.judge.generation(r, a, turn) == "left":
                    time.sleep(self.dice.random() * 0.005)
            r = self.book.begin(self.new_id(), "turn", f"turn {i} of {turn.path}", turn.model)
            outcome = self.judge.generation(r, self.ask(r, turn, body=body), turn)
            if outcome != "finished" or self.world.over.is_set():
                break
        if self.dice.random() < 0.8:
            self.session_op("DELETE", f"/v1/sessions/{name}", None)
        return outcome

    def session_op(self, method, path, body):
        r = self.book.begin(self.new_id(), "session", f"{method} {path}", self.catalogue.talks[0][0].model)
        r.is_op = True
        a = self.api(method, path, body, [("X-Request-Id", r.id)])
        r.answered = a.status != 0
        if not a.whole:
            return self.judge.connection(r, a)
        if a.status in (200, 400, 404, 429):
            return self.judge.settle(r, "finished" if a.status == 200 else "refused")
        return self.judge.refusal(r, a.code(), a.status, {("timeout", 504)})

    def session_ops(self):
        """Whatever may be asked of a session, on one that is there or not."""
        name = f"/v1/sessions/shared-{self.dice.randrange(3)}"
        turn = self.catalogue.talks[0][0]
        r = self.book.begin(self.new_id(), "turn", "shared", turn.model)
        outcome = self.judge.generation(r, self.ask(r, turn, headers=[("X-Hearth-Session", name.rsplit("/", 1)[1])]), turn)
        for _ in range(self.dice.randrange(1, 5)):
            saved = {"name": f"saved-{self.number % 3}"}
            outcome = self.session_op(*self.dice.choice((
                ("GET", name, None), ("POST", name + "/reset", None), ("POST", name + "/prewarm", None), ("GET", name + "/probe", None),
                ("GET", name + "/export", None), ("POST", name + "/save", saved), ("POST", name + "/restore", saved),
                ("POST", name + "/drop", saved), ("DELETE", name, None), ("GET", "/v1/sessions", None))))
        return outcome

    def many_on_one(self):
        """One connection, one request after another."""
        c, outcome = raw_http.Connection(self.world.port), None
        for _ in range(self.dice.randrange(2, 8)):
            entry = self.pick()
            r = self.begin(entry, "kept alive")
            c2, a = self.send(r, entry, c, close=False)
            if c2:
                a = c.read()
            outcome = self.judge.generation(r, a, entry)
            if not a.whole or not a.keeps or self.world.over.is_set():
                break
        c.close()
        return outcome

    def time_out_and_retry(self):
        """C3: a prompt that takes three times what the client waits; it tries four times, then waits. Each try is another's neighbour
        in the tree; there are never two copies of one prefill, and the last is the cold run."""
        entry = self.catalogue.by_name["noise prompt"]
        for _ in range(4):
            r = self.begin(entry, "times out")
            c, a = self.send(r, entry)
            if c:
                c.s.settimeout(max(0.02, entry.ms / 3000))
                a = c.read()
                c.close()
                a.why = "left" if a.why == "timeout" else a.why
            if self.judge.generation(r, a, entry) not in ("left", "finished") or self.world.over.is_set():
                break
        r = self.begin(entry, "timed out four times")
        return self.judge.generation(r, self.ask(r, entry), entry)

    def killed_after_200_ms(self):
        """C1."""
        entry = self.catalogue.by_name["noise 4000" + self.dice.choice(("", " stream"))]
        body = entry.body
        if self.dice.random() < 0.3:  # one that is in no tree
            body = {**body, "prompt": noise_ids(self.dice.randrange(10, CONTEXT - 4001), self.dice.randrange(10 ** 6))}
        r = self.begin(entry, "killed after 200 ms")
        c, a = self.send(r, entry, body=body)
        if c:
            c.s.settimeout(0.2)
            first = now()
            a = c.read(lambda a: now() - first > 0.2)
            c.close()
            a.why = "left" if a.why == "timeout" else a.why
            if a.why == "left" and body is not entry.body:
                a.body.clear()  # nobody knows what it should say
        outcome = self.judge.generation(r, a, entry)
        if outcome == "left":
            self.is_over(r)
        return outcome

    def beside_a_queue(self):
        """C2, C4: A streams, B waits behind it and is killed: A gets all of its own, and B was never begun if it still stood in the
        queue."""
        a_entry, b_entry = self.catalogue.by_name["noise stop stream"], self.catalogue.by_name["noise prompt"]
        ra, got = self.begin(a_entry, "streams beside a queue"), []
        t = threading.Thread(target=lambda: got.append(self.ask(ra, a_entry)))
        t.start()
        rb = self.begin(b_entry, "killed in the queue")
        c, b = self.send(rb, b_entry, body={**b_entry.body, "priority": -10})
        if c:
            time.sleep(self.dice.random() * 0.3)
            c.close(reset=self.dice.random() < 0.5)
            b = raw_http.Answer()
            b.why = "left"
        if self.judge.generation(rb, b, b_entry) == "left":
            state = self.is_over(rb)
            if state and state["started_ms"] is None and state["prompt_tokens"] + state["completion_tokens"] != 0:
                self.judge.fail(rb, f"was never begun, and has read something: {state}")
        t.join()
        return self.judge.generation(ra, got[0], a_entry)

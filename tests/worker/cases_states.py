"""PROTOCOL 3, DESIGN 6: a request is ended in each state that it can be in, by each way to end it: the cancel pipe (plain), op cancel
and its deadline (multiplexed). A state is met by stopping the worker (SIGSTOP) when its status page says that it has come; what was
missed is tried again. The daemon's half of the matrix is in tests/serve/cancel_script.py."""
import fcntl
import os
import select
import signal
import tempfile
import time

import worker_client
from cases_cancel import FD, PipeCase, frame
from cases_mux import gen, op
from worker_client import F_SETPIPE_SZ, endless, segments, some_ids

WAYS = ("pipe", "op", "deadline")
STEPS = 1500  # that a reply may go on: one, and what passes until the cancel is read (a step takes 20 us here)
PHASE, PREFILLED, GENERATED, USED, QUEUED, RUNNING, CANCELLED, LIVE, PARKED, FETCHED, LISTED = 2, 7, 8, 12, 13, 14, 17, 10, 22, 27, 31
DECODES = 5


class Missed(Exception):
    """The moment was over before it was met."""


class StateCase(PipeCase):
    """One reply runs beside the one that is ended, and says what it says alone."""
    alone = {}
    deadline_ms = 400
    n_plain = 0

    def begin(self, *args, model="long"):
        """A worker with a cancel pipe and a status page, and room for its frames."""
        frm, self.cancels = self.pipe()
        self.page = os.memfd_create("status")
        self.addCleanup(os.close, self.page)
        os.ftruncate(self.page, 4096)
        w = self.worker(*args, model=model, env={FD: str(frm), "HEARTH_WORKER_STATUS_FD": str(self.page)}, pass_fds=(frm, self.page))
        fcntl.fcntl(w.frm, F_SETPIPE_SZ, 1 << 20)
        return w

    def row(self, i):
        return int.from_bytes(os.pread(self.page, 8, 8 * i), "little")

    def freeze(self, w, is_met):
        until = time.monotonic() + worker_client.PATIENCE
        while not is_met():
            if self.missed():
                raise Missed
            self.assertLess(time.monotonic(), until, w.log_text())
        os.kill(w.proc.pid, signal.SIGSTOP)
        while self.state(w) != "T":
            time.sleep(0.001)
        if not is_met():
            os.kill(w.proc.pid, signal.SIGCONT)
            raise Missed

    def missed(self):
        return self.row(15) > self.done_before  # requests done

    def state(self, w):
        with open(f"/proc/{w.proc.pid}/stat", encoding="ascii") as f:
            return f.read().rsplit(")", 1)[1].split()[0]

    def drain(self, w):
        """The frames that are there, by id; None is the plain one's."""
        while b"\n" in w.data or select.select([w.frm], [], [], 0)[0]:
            f = w.recv()
            w.kept.setdefault(f.get("id"), []).append(f)

    def send_target(self, w, way, fields, after):
        """Its name. after: an op that follows when it speaks."""
        if way == "pipe":
            self.n_plain += 1
            w.send({**fields, "cancel_request_id": self.n_plain})
            return None
        more = {"deadline_ms": self.deadline_ms} if way == "deadline" else {}
        w.send(gen("x", **fields, **more))
        if after:
            heard = [w.recv_of("x") for _ in range(3)]
            w.kept["x"] = heard + w.kept.get("x", [])
            w.send(op("x", after))
        return "x"

    def text_alone(self, fields):
        key = str(sorted(fields.items()))
        if key not in self.alone:
            w = self.worker("--no-warm", model="long")
            w.send(gen("alone", **fields))
            self.alone[key] = w.recv_ids("alone")[0]
            w.finish()
        return self.alone[key]

    def end(self, w, way, name, sent):
        """The worker is stopped. Returns the frames of the one that is ended."""
        if way == "pipe":
            os.write(self.cancels, frame(self.n_plain))
        elif way == "op":
            w.send(op(name, "cancel"))
        else:
            time.sleep(max(0, sent + self.deadline_ms / 1000 + 0.05 - time.monotonic()))
        os.kill(w.proc.pid, signal.SIGCONT)
        frames = w.kept.pop(name, [])
        while not frames or not {"done", "error"} & set(frames[-1]):
            frames.append(w.recv_of(name))
        return frames

    def check_ended(self, way, frames, out, want):
        done = frames[-1]
        text = "".join(f.get("token", "") for f in frames)
        reason = "timeout" if way == "deadline" else "cancelled"
        self.assertEqual((done.get("reason"), done["finish_reason"]), (reason, "length" if reason == "timeout" else "stop"), done)
        self.assertTrue(want.startswith(text.rstrip("\ufffd")), (want[:80], text[-80:]))
        self.assertLessEqual(done["completion_tokens"], out + STEPS)
        return done

    def once(self, w, way, fields, is_met, run=None, after=None):
        """Meets a state and ends it. run: fields of the neighbour, which is the eldest. Returns the done frame."""
        self.done_before = self.row(15)
        w.kept.clear()
        run = run or endless()
        w.send(gen("run", **run))
        w.kept.setdefault("run", []).append(w.recv_of("run"))
        sent = time.monotonic()
        name = self.send_target(w, way, fields, after)
        try:
            self.freeze(w, lambda: is_met(name))
            if way == "deadline" and time.monotonic() - sent > self.deadline_ms / 1000:
                os.kill(w.proc.pid, signal.SIGCONT)
                raise Missed
        except Missed:
            if way == "deadline":  # it may have come before the state
                self.deadline_ms = min(2 * self.deadline_ms, 20000)
            w.recv_until_last("run")
            self.end(w, "pipe" if way == "pipe" else "op", name, sent)
            raise
        self.drain(w)
        out = sum("token" in f for f in w.kept.get(name, []))
        generated, prefilled = self.row(GENERATED), self.row(PREFILLED)
        frames = self.end(w, way, name, sent)
        if frames[-1].get("completion_tokens") == fields.get("max_new_tokens", -1):  # it was over before it was heard
            w.recv_until_last("run")
            raise Missed
        done = self.check_ended(way, frames, out, self.text_alone(fields))
        text, ids, last = w.recv_ids("run")
        self.assertEqual((text, last["reason"]), (self.text_alone(run), "length"))
        self.assertLessEqual(self.row(GENERATED) - generated, len(ids) + STEPS)
        self.assertLess(self.row(PREFILLED), prefilled + max(64, len(fields.get("prompt_segments", [{"ids": []}])[0]["ids"])))
        w.send(op("s", "stats"))
        s = w.recv_of("s")["stats"]
        self.assertEqual([s[k] for k in ("pages_used", "parked", "running", "queued", "lanes_live", "requests_failed")], [0] * 6, s)
        return done

    def each(self, w, fields, is_met, check, ways=WAYS, **more):
        """check gets the done frame; it may say Missed, too."""
        for way in ways:
            with self.subTest(way):
                for _ in range(10):
                    try:
                        check(self.once(w, way, fields() if callable(fields) else fields, is_met, **more))
                        break
                    except Missed:
                        pass
                else:
                    self.fail("the state is never met")
        w.finish()


class States(StateCase):
    def test_queued(self):
        """In the engine, which has no lane for it."""
        w = self.begin("--max-sessions", "1")

        def check(done):
            self.assertEqual((done["completion_tokens"], done["prefilled_prompt_tokens"]), (0, 0))
        self.each(w, endless(), lambda _: (self.row(RUNNING), self.row(QUEUED)) == (1, 1), check)

    def test_prefill(self):
        w = self.begin()
        tried = []

        def fields():
            tried.append(self.row(PREFILLED))
            return {"prompt_segments": segments(some_ids(8000, len(tried))), "max_new_tokens": 5}

        def check(done):
            self.assertEqual(done["completion_tokens"], 0)
            self.assertIn(done["prefilled_prompt_tokens"], range(1, 8000))
            self.assertEqual(done["reused_prompt_tokens"], 0)
        self.each(w, fields, lambda _: tried[-1] + 200 < self.row(PREFILLED) < tried[-1] + 7000, check)

    def test_decode(self):
        w = self.begin()

        def check(done):
            self.assertIn(done["completion_tokens"], range(3500))
        self.each(w, endless(), lambda _: (self.row(LISTED), self.row(PHASE)) == (2, DECODES), check)

    def test_paused(self):
        """Held: the other runs alone. (What is held because nobody reads is in cases_cancel.py.)"""
        w = self.begin()

        def check(done):
            self.assertEqual(done["guard"] if done["reason"] == "timeout" else "deadline", "deadline")
        self.each(w, endless(), lambda _: (self.row(RUNNING), self.row(LISTED)) == (2, 1), check, ways=WAYS[1:], after="pause")

    def test_restoring(self):
        """Its prompt is on disk."""
        if os.path.basename(worker_client.COMMAND[0]) == "worker_main":
            self.skipTest("worker_main has no store")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        fields = {"prompt_segments": segments(some_ids(8000, 1)), "max_new_tokens": 5}
        w = self.worker("--store", folder.name, model="long")
        w.send(gen("x", **fields))
        w.recv_ids("x")
        w.finish()

        def check(done):
            self.assertEqual(done["completion_tokens"], 0)
            self.assertLess(self.row(FETCHED), 8000)

        def is_met(_):
            return self.row(FETCHED) > 0 and (self.row(RUNNING), self.row(QUEUED)) == (1, 1)
        for way in WAYS:
            for _ in range(10):
                w = self.begin("--store", folder.name)  # in memory it would be at hand
                try:
                    check(self.once(w, way, fields, is_met))
                    break
                except Missed:
                    w.finish()
            else:
                self.fail("the state is never met")
            w.finish()

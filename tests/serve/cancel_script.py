#!/usr/bin/python3
"""cancel_script.py Waiting|Queued|Loading|Restoring|Prefill|Decode|Parked|Paused HEARTH EMBER LONG WORKER_MAIN [FAULTS_LIB]: the cancellation
matrix (DESIGN 6, PROTOCOL 3 and 6, FAILURES C1, C2, C4, C8, L2): {waiting in the daemon, queued in the worker, loading, restoring from
disk, prefill, decode, parked, paused} x {streamed, not} x {its client leaves, DELETE /v1/requests/{id}, deadline, worker frozen}, over
HTTP with `hearth serve` and the real worker. Standard library only.

Each state is met as cancel_rig.py says. In each cell: the request was in the state, it ends once and as documented, nothing more is
computed for it, its neighbours' replies are their undisturbed ones, and all counters come back."""
import functools
import os
import pathlib
import signal
import struct
import sys
import tempfile
import time
import unittest
import unittest.mock

from cancel_rig import GONE_IN, TRIES, Ask, Missed, Served
from serve_rig import END_IN, GROUP, HERE, MODEL, SERVE, alive, until

EMBER, LONG, WORKER, *FAULTS = MODEL
ACTS = ("leave", "delete", "deadline")
STEPS = 200  # that a reply may go on: one, and what passes until the cancel is read (a step takes 0.5 ms here)
AT_REST = ("requests_running", "requests_queued", "generations_live", "worker_running", "worker_queued", "worker_parked",
           "worker_pages_used", "worker_lanes_live")


class Cells:
    """A row of the matrix. Its class says how the state is made (body, begin), and how it is told (is_met, looks)."""
    options = ("-m", EMBER, "--threads", "1")
    path, unix = "/v1/completions", None
    some, streams = ACTS, (False, True)
    with_worker = True   # a cancel is the worker's affair
    are_read = True      # what the targets say, when the daemon ends
    speaks = True        # a cut reply has text
    deadline_s = 1.0     # enough for the state to come; more when it was not
    n_others = 1
    TOKENS = 500         # of a reply that is not cut

    def serve(self, grace, *more):
        return Served(*self.options, "--cancel-grace", str(grace), *more)

    def body(self, i):
        """Of the i-th target."""
        return {"prompt": "Once upon a time", "max_tokens": self.TOKENS, "ignore_eos": True, "temperature": 1, "seed": 100 + i}

    def other(self, i):
        """Of the i-th neighbour: alive as long as the targets are."""
        return {"prompt": "The fox", "max_tokens": self.TOKENS, "ignore_eos": True, "temperature": 1, "seed": 200 + i,
                "stream": i % 2 == 0}

    def begin(self, d, bodies):
        """Neighbours and targets, in the order that makes the state. (neighbours, targets)"""
        others = self.begin_others(d)
        return others, self.begin_targets(d, bodies)

    def begin_others(self, d):
        others = [Ask(d, f"other-{i}", self.other(i)) for i in range(self.n_others)]
        self.assertTrue(until(lambda: all(o.said() > 0 for o in others)))
        return others

    def begin_targets(self, d, bodies):
        return [Ask(d, name, body, self.path, self.unix) for name, body in bodies.items()]

    def bodies(self, acts, deadline_s):
        made = {}
        for act in acts:
            for stream in self.streams:
                made[f"{act}-{'stream' if stream else 'whole'}"] = {
                    **self.body(len(made)), "stream": stream, **({"hearth": {"deadline_ms": int(deadline_s * 1000)}} if
                                                                 act == "deadline" else {})}
        return made

    def undisturbed(self, bodies):
        """What targets and neighbours say when nothing happens to them. A slice of it is enough where a reply is cut early."""
        with self.serve(60) as d:
            asked = {name: Ask(d, name, {k: v for k, v in body.items() if k not in ("hearth", "logprobs", "top_logprobs")}, self.path) for name, body in bodies.items()}
            asked |= {f"other-{i}": Ask(d, f"other-{i}", self.other(i)) for i in range(self.n_others)}
            return {name: a.ending()[0] for name, a in asked.items()}

    def looks(self, t):
        """Whether what the daemon says of a target is what it is in this state."""
        about = t.about()
        return (about["state"], about["completion_tokens"]) == ("running", 0)

    def met(self, d, acts, deadline_s):
        """The state, frozen: (neighbours, targets, tokens of each that are out)."""
        bodies = self.bodies(acts, deadline_s)
        others, targets = self.begin(d, bodies)
        try:
            try:
                d.freeze(others + targets, lambda m: self.is_met(m, len(targets)))
            finally:
                if time.monotonic() - targets[0].sent > deadline_s:
                    raise Missed("too slow")
            if not all(self.looks(t) for t in targets):
                raise Missed([t.about() for t in targets])
            for o in others:
                self.assertIn(o.about()["state"], ("running", "queued"))
        except Missed:
            d.thaw()
            for x in others + targets:
                x.leave()
            raise
        return others, targets, {x.name: x.said() for x in others + targets}

    def tries(self, once):
        """A moment that was missed, or a machine that is slow: again, with more time."""
        deadline_s = self.deadline_s
        for _ in range(TRIES):
            try:
                once(deadline_s)
                return
            except Missed as e:
                missed = e
                deadline_s *= 2 if e.args == ("too slow",) else 1
        self.fail(f"never met: {missed}")

    def check_rest(self, d, others, targets, computed):
        """Counters are back, and nothing was computed for who was given up."""
        begin = time.monotonic()
        self.assertTrue(until(lambda: all(d.numbers()[k] == 0 for k in AT_REST)), {k: d.numbers()[k] for k in AT_REST})
        m = d.numbers()
        self.assertEqual(m["choices_total"], len(others) + len(targets))
        self.assertLessEqual(m["worker_tokens_generated_total"], computed)
        self.assertEqual(m["worker_requests_failed_total"], 0)
        self.assertEqual((m["worker_deaths_total"], len(d.worker_pids())), (0, 1), d.log)
        return begin

    def check_cut(self, t, finish, out):
        """A reply that was cut: a prefix of the undisturbed one, with the true reason."""
        text, reason, true = t.ending()
        want = self.want.get(t.name, "")
        self.assertEqual((reason, true), ("length", finish), t.name)
        self.assertTrue(want.startswith(text.rstrip("\ufffd")), (t.name, text[-40:]))
        about = t.about()
        self.assertEqual((about["state"], about["ending"]), ("done", finish))
        self.assertLessEqual(about["completion_tokens"], out + self.may_go_on)
        return about["completion_tokens"]

    may_go_on = STEPS

    def check_never_sent(self, t, finish):
        """One that waits in the daemon: at once, whatever the worker does."""
        if finish == "cancelled":
            self.assertEqual(t.ending(), ("", "length", "cancelled"))
        else:
            status, body = t.answer()
            self.assertEqual((status, body["error"]["code"]), (504, "timeout"))
            self.assertEqual(t.about()["state"], "failed")

    def acts(self, deadline_s):
        self.want  # before anything is timed
        with self.serve(60) as d:
            others, targets, out = self.met(d, self.some, deadline_s)
            by = {act: [t for t in targets if t.name.startswith(act)] for act in ACTS}
            for t in by["deadline"]:
                time.sleep(max(0, t.sent + deadline_s + 0.05 - time.monotonic()))
            begin = time.monotonic()
            for t in by["leave"]:
                t.leave()
            self.assertTrue(until(lambda: all(t.about()["state"] == "gone" for t in by["leave"])))
            self.assertLess(time.monotonic() - begin, GONE_IN + 1)  # probes are at most a second apart
            for t in by["delete"]:
                status, _, about = t.delete()
                self.assertEqual((status, about["state"]), (200, "cancelling"))
                self.assertEqual(t.delete()[0], 200)  # it may be said twice
            self.assertEqual(d.number("cancelled_total"), len(by["leave"]) + len(by["delete"]))
            if not self.with_worker:  # the worker is still frozen
                for t in by["delete"]:
                    self.check_never_sent(t, "cancelled")
                for t in by["deadline"]:
                    self.check_never_sent(t, "timeout")
            prefilled = d.number("worker_tokens_prefilled_total")
            d.gate.touch()
            d.thaw()
            n = sum(out[t.name] + self.may_go_on for t in by["leave"])
            if self.with_worker:
                n += sum(self.check_cut(t, "cancelled", out[t.name]) for t in by["delete"])
                n += sum(self.check_cut(t, "timeout", out[t.name]) for t in by["deadline"])
            for o in others:
                self.assertEqual(o.ending(), (self.want[o.name], "length", "length"))
                n += o.about()["completion_tokens"]
            self.check_rest(d, others, targets, n)
            self.check_prefilled(d, prefilled)
            self.assertEqual(d.number("worker_requests_cancelled_total"),
                             (len(by["leave"]) + len(by["delete"])) * self.with_worker)
            self.assertEqual(d.complete("Once", max_tokens=3)[0], 200)

    def check_prefilled(self, d, before):
        """No prompt was begun, or gone on with, after its end."""
        self.assertLessEqual(d.number("worker_tokens_prefilled_total") - before, 64)

    def frozen(self, deadline_s):
        """The worker does not come back: grace, kill, respawn. Who was cancelled ends as that, a deadline that has passed counts, and
        the others go on."""
        self.want  # before anything is timed
        with self.serve(0.3) as d:
            others, targets, out = self.met(d, self.some, deadline_s)
            by = {act: [t for t in targets if t.name.startswith(act)] for act in ACTS}
            for t in by["deadline"]:
                time.sleep(max(0, t.sent + deadline_s + 0.05 - time.monotonic()))
            for t in by["leave"]:
                t.leave()
            for t in by["delete"]:
                self.assertEqual(t.delete()[0], 200)
            self.assertTrue(until(lambda: all(t.about()["state"] == "gone" for t in by["leave"])))
            if self.with_worker:
                self.assertTrue(d.logs("worker=gone", "cause=cancel_unanswered"), d.log)
                self.assertTrue(d.logs("worker=ready", n=2), d.log)
            for act, finish in ("delete", "cancelled"), ("deadline", "timeout"):
                for t in by[act]:
                    self.check_cut(t, finish, out[t.name]) if self.with_worker else self.check_never_sent(t, finish)
            if not self.with_worker:
                self.assertEqual(d.number("worker_deaths_total"), 0)
                d.gate.touch()
                d.thaw()
            for o in others:
                self.assertEqual(o.ending(), (self.want[o.name], "length", "length"))
            self.assertTrue(until(lambda: all(d.numbers()[k] == 0 for k in AT_REST)), {k: d.numbers()[k] for k in AT_REST})
            m = d.numbers()
            self.assertEqual((m["worker_deaths_total"], m["worker_starts_total"]), (self.with_worker, 1 + self.with_worker))
            self.assertEqual((m["cancelled_total"], m["choices_total"]),
                             (len(by["leave"]) + len(by["delete"]), len(targets) + len(others)))

    @functools.cached_property
    def want(self):
        return self.undisturbed(self.bodies(ACTS, 0) if self.speaks else {})

    def test_acts(self):
        self.tries(self.acts)

    def test_frozen_worker(self):
        self.tries(self.frozen)


class Ends(Cells):
    """L1, in this state, too."""

    def end_of(self, how, deadline_s):
        """L1, H1: the daemon is told to end. Exactly one answer each, or a final error event."""
        drain = 60 if how == "twice" else 0
        with self.serve(60, "--drain-timeout", str(drain)) as d:
            others, targets = self.begin(d, self.bodies(("delete",), deadline_s))
            if how in ("frozen", "killed"):  # it would not end by itself; one that is stopped dies all the same
                d.freeze(others + targets, lambda m: self.is_met(m, len(targets)))
            else:
                self.assertTrue(until(lambda: d.number("choices_total") > 0 or self.is_met(d.numbers(), len(targets))))
            pids = d.worker_pids()
            if how == "twice":
                d.process.send_signal(signal.SIGTERM)
                self.assertTrue(d.logs("event=stopping"))
            heard = {x: x.later() for x in others + (targets if self.are_read else [])} if how != "killed" else {}
            rc, seconds = d.end(signal.SIGKILL if how == "killed" else signal.SIGTERM)
            if how == "killed":
                self.assertTrue(until(lambda: not any(alive(pid) for pid in pids), END_IN))
                for x in others + targets:
                    x.leave()
                return
            self.assertEqual((rc, any(alive(pid) for pid in pids)), (0, False))
            self.assertLess(seconds, END_IN)
            for x, answer in heard.items():
                status, body = answer()
                last = body if isinstance(body, dict) else body[-1]
                if how != "frozen" and status == 200 and (last == "[DONE]" or "choices" in last):
                    continue  # it was faster
                self.assertEqual(last["error"]["code"], "draining", (x.name, status, last))
                self.assertEqual(status, 200 if isinstance(body, list) else 503)
            for x in targets:
                x.leave()

    def test_end_of_the_daemon(self):
        for how in "once", "twice", "frozen", "killed":
            with self.subTest(how):
                self.tries(lambda deadline_s, how=how: self.end_of(how, deadline_s))


class Decode(Ends, unittest.TestCase):
    def is_met(self, m, n):
        return m["worker_running"] == n + self.n_others and m["worker_phase"] == 5

    def looks(self, t):
        about = t.about()
        return about["state"] == "running" and 0 < about["completion_tokens"] < self.TOKENS


class Prefill(Ends, unittest.TestCase):
    """Long prompts beside a reply that runs."""
    PROMPT = 1500

    def body(self, i):
        return {**super().body(i), "prompt": [97 + (i + k * k * 7) % 26 for k in range(self.PROMPT)], "max_tokens": 20}

    def is_met(self, m, n):
        return m["worker_running"] == n + self.n_others and m["worker_tokens_prefilled_total"] > 100

    def check_prefilled(self, d, before):
        self.assertLess(before, 6 * self.PROMPT / 2)
        self.assertLessEqual(d.number("worker_tokens_prefilled_total") - before, self.PROMPT)


class Queued(Cells, unittest.TestCase):
    """With the worker, which has no lane for them."""
    n_others = 6
    speaks = False
    may_go_on = 0
    options = (*Cells.options, "--max-sessions", "6")

    def is_met(self, m, n):
        return (m["worker_running"], m["worker_queued"], m["requests_queued"]) == (6, n, 0)

    def check_prefilled(self, d, before):
        self.assertEqual(d.number("worker_tokens_prefilled_total"), before)


class Waiting(Queued):
    """Not with the worker."""
    with_worker = False
    n_others = 2
    options = (*Cells.options, "--max-sessions", "1")

    def is_met(self, m, n):
        return (m["requests_running"], m["requests_queued"]) == (2, n)

    def looks(self, t):
        about = t.about()
        return about["state"] == "queued" and about["position"] > 0

    def begin_others(self, d):
        others = [Ask(d, f"other-{i}", self.other(i)) for i in range(2)]
        self.assertTrue(until(lambda: d.number("requests_running") == 2))
        return others

    def check_prefilled(self, d, before):
        self.assertEqual(d.number("worker_prepared_total"), self.n_others)  # the others' prompts


class Loading(Ends, unittest.TestCase):
    """The model is not there yet; the load is nobody's of those who wait (L2)."""
    with_worker = speaks = False

    def serve(self, grace, *more):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.gate = pathlib.Path(self.folder.name, "gate")
        command = f"{sys.executable} {HERE / 'slow_loader.py'} {self.gate} {SERVE} worker {' '.join(self.options)}"
        d = Served("--worker-cmd", command, "--cancel-grace", str(grace), "--stall-timeout", "300", *more, wait=False)
        self.assertTrue(until(d.worker_pids))
        d.gate = self.gate
        return d

    def undisturbed(self, bodies):
        with Served(*self.options) as d:
            return {f"other-{i}": Ask(d, f"other-{i}", self.other(i)).ending()[0] for i in range(self.n_others)}

    def begin_others(self, d):
        return [Ask(d, f"other-{i}", self.other(i)) for i in range(self.n_others)]

    def is_met(self, m, n):
        return m["requests_queued"] == n + self.n_others and m["worker_phase"] == 1 and m["worker_loaded_bytes"] > 0

    def looks(self, t):
        return t.about()["state"] == "queued"


class Paused(Ends, unittest.TestCase):
    """Their clients do not read. What is not streamed is never paused."""
    streams = (True,)
    path = "/v1/chat/completions"
    MANY = 1000          # tokens: more than the daemon and a Unix socket hold (a TCP socket holds megabytes)
    deadline_s = 2.0
    may_go_on = 0
    are_read = False

    def serve(self, grace, *more):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.unix = folder.name + "/s"
        return super().serve(grace, "--unix", self.unix, "--host", "127.0.0.1", *more)

    def body(self, i):
        return {"messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": self.MANY, "ignore_eos": True, "temperature": 1,
                "seed": 100 + i, "logprobs": True, "top_logprobs": 20}

    def begin(self, d, bodies):
        targets = self.begin_targets(d, bodies)
        lines = 2 * len(targets)  # the worker has read: requests, and that they are to pause
        seen, since = None, time.monotonic()
        while time.monotonic() - since < 0.3:  # none of them gets on any more
            if seen != (seen := [t.said() for t in targets]) or d.number("worker_input_lines_total") < lines:
                since = time.monotonic()
            if max(seen) >= self.MANY:
                raise AssertionError("it is not paused")
            time.sleep(0.01)
        others = self.begin_others(d)
        self.stood = seen
        return others, targets

    def is_met(self, m, n):
        return m["worker_running"] == n + 1

    def looks(self, t):
        if t.said() not in self.stood:  # the sockets took more after all
            raise Missed
        return t.about()["state"] == "running"


class Parked(Cells, unittest.TestCase):
    """One grows until it has all pages of the pool: the others are parked."""
    may_go_on = 0
    TOKENS = 8000        # of the one
    options = ("--worker-cmd", f"{WORKER} -m {LONG} --threads 1 --kv-pages 252")

    def body(self, i):
        return {"prompt": [97 + (i + k * k * 3) % 26 for k in range(500)], "max_tokens": 4000, "ignore_eos": True, "temperature": 1,
                "seed": 100 + i}

    def is_met(self, m, n):
        return m["worker_parked"] == n

    def looks(self, t):
        return t.about()["state"] == "running" and t.said() > 0


class Restoring(Cells, unittest.TestCase):
    """Their prompts are on disk, and are read one after the other: each is met alone. The disk is slow, or all would be read between
    two looks."""
    READ_NS = 5_000_000
    PROMPT, TOKENS = 8000, 3000
    deadline_s = 0.4
    speaks = False
    may_go_on = 0

    def body(self, i):
        return {"prompt": [97 + (k * k * 3) % 26 for k in range(self.PROMPT)], "max_tokens": 20, "ignore_eos": True}

    def other(self, i):
        return {**super().other(i), "stream": False}

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.options = ("-m", LONG, "--threads", "1", "--store", folder.name)
        with self.serve(60) as d:
            self.assertEqual(d.ask("POST", self.path, self.body(0))[0], 200)
        control = tempfile.NamedTemporaryFile()
        self.addCleanup(control.close)
        control.write(struct.pack("<8q", 0, 0, 0, self.READ_NS, 0, 0, 0, 0))
        control.flush()
        faults = {"LD_PRELOAD": os.path.abspath(FAULTS[0]), "HEARTH_FAULT_CONTROL": control.name, "HEARTH_FAULT_IN": "worker"}
        slow = unittest.mock.patch.dict(os.environ, faults)
        slow.start()
        self.addCleanup(slow.stop)

    def is_met(self, m, n):
        return m["worker_tokens_fetched_total"] > 0 and (m["worker_running"], m["worker_queued"]) == (self.n_others, n)

    def check_prefilled(self, d, before):
        super().check_prefilled(d, before)  # a step that had begun
        self.assertLess(d.number("worker_tokens_fetched_total"), self.PROMPT)

    def each(self, acts, test):
        for act in acts:
            for stream in False, True:
                with self.subTest(act, stream=stream):
                    self.some, self.streams = (act,), (stream,)
                    test()

    def test_acts(self):
        self.each(ACTS, super().test_acts)

    def test_frozen_worker(self):
        self.each(("leave", "delete"), super().test_frozen_worker)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], GROUP])

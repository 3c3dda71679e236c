#!/usr/bin/python3
"""pressure_script.py WORKER_MAIN MODEL: a worker whose pool of pages is small (tests/worker/worker_main --kv-pages): replies give
way to each other and are what they are alone; what can never fit is refused. MODEL is "long" of tests/worker/meson.build. Standard
library only."""
import sys
import unittest

import worker_client
from cases_states import PARKED, Missed, StateCase
from worker_client import Case, segments, some_ids

PAGE = 32  # tokens
PARK = str(64 << 20)


def gen(name, n_prompt, **fields):
    """A reply that goes on as long as it may."""
    return {"id": name, "op": "generate", "prompt_segments": segments(some_ids(n_prompt, n_prompt)), "seed": 1, "ignore_eos": True,
            "repetition_guard": 0, **fields}


class Pressure(Case):
    def small(self, pages, *args):
        w = self.worker("--kv-pages", str(pages), *args, model="long")
        self.assertEqual(w.ready["kv_pages"], pages)
        return w

    def alone(self, pages, lines):
        """What each says in a cold worker of its own."""
        want = {}
        for line in lines:
            w = self.small(pages)
            w.send(line)
            want[line["id"]] = w.recv_ids(line["id"])
            self.assertEqual(want[line["id"]][2]["preemptions"], 0)
            w.finish()
        return want

    def stats(self, w):
        w.send({"id": "stats", "op": "stats"})
        return w.recv_of("stats")["stats"]

    def is_as_before(self, w):
        """All pages and lanes are back."""
        s = self.stats(w)
        self.assertEqual([s[k] for k in ("pages_used", "parked", "running", "queued", "lanes_live", "lanes_tracked", "total_tokens",
                                         "largest_tokens", "requests_failed")], [0] * 9, s)
        self.assertEqual(s["lanes_idle"], s["lanes_created"] - s["lanes_destroyed"])
        self.assertEqual([r for r in s["rows"] if r["active"]], [])
        self.assertEqual([r["index"] for r in s["rows"]], list(range(s["lanes"])))
        return s

    def test_k1(self):
        """FAILURES K1, with copies of pages kept aside and with none: 2,048 tokens, 4 lanes, two that take all there is, ten small ones."""
        big = [gen("b", 1400), gen("a", 500)]
        small = [gen(f"s{i}", 10 + i, max_new_tokens=20) for i in range(10)]
        want = self.alone(64, big + small)
        self.assertEqual(want["a"][2]["completion_tokens"], 2048 - 500)
        self.assertEqual(want["b"][2]["completion_tokens"], 2048 - 1400)
        for park in "0", PARK:
            with self.subTest(park_bytes=park):
                for _ in range(5):  # a moment too late, and one waits until the other has ended
                    s = self.once_k1(park, big, small, want)
                    if s["preempted"] > 0:
                        break
                self.assertGreater(s["preempted"], 0)
                self.assertGreater(s["tokens_recomputed" if park == "0" else "tokens_restored"], 0)

    def once_k1(self, park, big, small, want):
        w = self.small(64, "--max-sessions", "4", "--park-bytes", park)
        w.send(*big, *small)
        n = {}
        for line in big + small:
            name = line["id"]
            text, ids, done = w.recv_ids(name)
            self.assertEqual((text, ids), want[name][:2], name)
            self.assertEqual((done["reason"], done.get("guard")), ("length", "context" if line in big else None))
            n[name] = done["preemptions"]
        self.assertEqual(n["b"], 0)  # the eldest is never the victim
        s = self.is_as_before(w)
        self.assertEqual(s["preempted"], sum(n.values()))
        self.assertEqual(s["tokens_evaluated"], s["tokens_prefilled"] + s["tokens_generated"] + s["tokens_recomputed"])
        w.finish()
        return s

    def pause(self, w, x):
        """Pauses it in the middle: it cannot end unread, since it says more than what pipe and worker hold. Its frames by then."""
        w.send(x)
        head = [w.recv_of("x") for _ in range(40)]
        w.send({"id": "x", "op": "pause"})
        w.wait_until_quiet()
        s = self.stats(w)
        self.assertEqual((s["parked"], s["running"], s["lanes_live"]), (0, 1, 1))
        self.assertGreaterEqual(s["pages_used"], 3)
        return head

    X = gen("x", 61, max_new_tokens=3000)
    Y = gen("y", 2000, max_new_tokens=2050)  # 127 pages of 128

    def test_a_paused_one_gives_way(self):
        """EMIT_WAIT keeps its pages until a neighbour needs them; it then goes on where it was."""
        want = self.alone(128, [self.X, self.Y])
        for park in "0", PARK:
            with self.subTest(park_bytes=park):
                w = self.worker("--kv-pages", "128", "--park-bytes", park, model="long", small_pipe=True)
                head = self.pause(w, self.X)
                w.send(self.Y)
                text, ids, done = w.recv_ids("y")
                self.assertEqual((text, ids, done["preemptions"]), want["y"][:2] + (0,))
                s = self.stats(w)
                self.assertEqual((s["parked"], s["preempted"], s["running"], s["lanes_live"], s["pages_used"]), (1, 1, 1, 1, 0))
                w.kept["x"] = head + w.kept.get("x", [])
                w.send({"id": "x", "op": "continue"})
                text, ids, done = w.recv_ids("x")
                self.assertEqual((text, ids, done["preemptions"]), want["x"][:2] + (1,))
                s = self.is_as_before(w)
                self.assertGreater(s["tokens_recomputed" if park == "0" else "tokens_restored"], 0)
                w.finish()

    def test_a_paused_one_keeps_its_pages(self):
        """Nobody needs them: nothing is parked."""
        w = self.worker("--kv-pages", "128", model="long", small_pipe=True)
        head = self.pause(w, self.X)
        w.send(gen("y", 30, max_new_tokens=50))
        self.assertEqual(len(w.recv_ids("y")[1]), 50)
        self.assertEqual(self.stats(w)["preempted"], 0)
        w.kept["x"] = head + w.kept.get("x", [])
        w.send({"id": "x", "op": "continue"})
        self.assertEqual(w.recv_ids("x")[2]["completion_tokens"], 3000)
        self.is_as_before(w)
        w.finish()

    def test_cancel_and_deadline_while_parked(self):
        w = self.worker("--kv-pages", "128", "--park-bytes", PARK, model="long", small_pipe=True)
        for end in "cancelled", "timeout":
            self.pause(w, {**self.X, "deadline_ms": 8000 if end == "timeout" else 1 << 40})
            w.send(self.Y)
            self.assertEqual(w.recv_ids("y")[2]["completion_tokens"], 2050)
            if end == "cancelled":
                self.assertEqual(self.stats(w)["parked"], 1)
                w.send({"id": "x", "op": "cancel"})
            self.assertEqual(w.recv_until_last("x")[-1]["reason"], end)
            self.is_as_before(w)
        w.finish()

    def test_never_fits(self):
        w = self.small(4)
        cases = [(gen("x", 1, max_new_tokens=128), 5), (gen("x", 100, max_new_tokens=1000), 35), (gen("x", 128), 5),
                 (gen("x", 4000), 126)]
        for line, need in cases:
            w.send(line)
            e = w.recv_of("x")
            self.assertEqual((e.get("code"), e.get("need"), e.get("have")), ("never_fits", need, 4), e)
            self.assertIn(str(need), e["error"])
        e = w.error({"prompt_segments": segments(some_ids(128))})
        self.assertEqual((e["code"], e["need"], e["have"]), ("never_fits", 5, 4))
        w.send(gen("x", 1, max_new_tokens=127), gen("y", 127))
        self.assertEqual(w.recv_ids("x")[2]["completion_tokens"], 127)
        self.assertEqual(w.recv_ids("y")[2]["completion_tokens"], 1)
        w.finish()

    def test_a_session_gives_its_pages(self):
        """An idle session has tokens and a name, no lane and no page: what others needed is computed again."""
        w = self.small(8)

        def turn(name, n_prompt, ids, **fields):
            w.send({**gen(name, n_prompt), "prompt_segments": segments(ids), **fields})
            return w.recv_ids(name)[1:]

        def session_of(name):
            w.send({"id": "get", "op": "session", "action": "get", "session_id": name})
            return w.recv_of("get")["session"]

        first = some_ids(100, 1)
        said, _ = turn("a", 100, first, max_new_tokens=20, session_id="s")
        self.assertEqual([r for r in self.stats(w)["rows"] if r["active"]], [])
        for n_other, kept in (28, 120), (60, 96), (150, 0):  # 128 tokens: 4 pages; 160: 5, the last of s; 250: all
            with self.subTest(n_other=n_other):
                other, done = turn("b", n_other, some_ids(n_other, 2 + n_other), max_new_tokens=100)
                self.assertEqual((len(other), done["preemptions"]), (100, 0))
                s = self.stats(w)
                self.assertEqual((s["sessions"], s["lanes_live"], s["pages_used"]), (1, 0, 0))
                self.assertEqual((session_of("s")["tokens"], session_of("s")["dirty"]), (120, False))
                again, done = turn("a", 121, first + said + [97], max_new_tokens=0, session_id="s")
                self.assertEqual((again, done["session_reset_reason"], done["cached_prompt_tokens"]), ([], "exact_prefix", kept))
                # all of s goes; then it is there as before
                turn("c", 250, some_ids(250, 77), max_new_tokens=0)
                w.send({"op": "reset", "session_id": "s"})
                self.assertEqual(w.recv_of(None), {"reset": True, "session_id": "s"})
                self.assertEqual(turn("a", 100, first, max_new_tokens=20, session_id="s")[0], said)
        w.send({"op": "close", "session_id": "s"})
        self.assertEqual(w.recv_of(None), {"closed": True, "session_id": "s"})
        self.is_as_before(w)
        w.finish()


class Parked(StateCase):
    """Ended while another has its pages: the last row of cases_states.py."""

    def test_parked(self):
        w = self.begin("--kv-pages", "128")
        run = {k: v for k, v in gen("run", 61, max_new_tokens=3900).items() if k not in ("id", "op")}
        fields = {"prompt_segments": segments(some_ids(500, 5)), "max_new_tokens": 3000}

        back = [0]

        def check(done):
            back.append(self.row(24) + self.row(25))  # tokens computed again, or copied back
            if back[-1] > back[-2]:
                raise Missed  # the other had ended before the cancel was read
            self.assertIn(done["completion_tokens"], range(1, 3000))
            self.assertEqual(done.get("preemptions", 1), 1)
        self.each(w, fields, lambda _: self.row(PARKED) == 1, check, run=run)


if __name__ == "__main__":
    worker_client.COMMAND[:] = sys.argv[1:2]
    worker_client.MODELS.update(long=sys.argv[2])
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)

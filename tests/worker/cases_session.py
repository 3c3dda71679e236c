"""PROTOCOL 2, sessions: reset reasons, dirty rules, capacity."""
import worker_client
from worker_client import Case, segments, some_ids


def splice(ids, done, more):
    """The next turn of a client that keeps ids: what was said, and something new."""
    return ids + done["generated_token_ids"] + more


class SessionCase(Case):
    def turn(self, w, ids, session="s", n=5, **fields):
        _, done = w.generate(prompt_segments=segments(ids), max_new_tokens=n,
                             **({"session_id": session} if session else {}), **fields)
        self.assertEqual(done["prompt_tokens"], len(ids))
        self.assertEqual(done["reused_prompt_tokens"] + done["prefilled_prompt_tokens"], len(ids))
        return done

    def expect(self, done, reason, reused):
        self.assertEqual((done["session_reset_reason"], done["reused_prompt_tokens"]), (reason, reused))


class Reasons(SessionCase):
    def test_anonymous_is_always_new(self):
        """Also where somebody has left what it begins with."""
        w = self.worker()
        kept = 0
        for session in (None, ""):
            for _ in range(3):
                fields = {} if session is None else {"session_id": session}
                _, done = w.generate(prompt_segments=segments(some_ids(40)), max_new_tokens=2, **fields)
                self.expect(done, "new", kept)
                self.assertEqual(done["prefilled_prompt_tokens"], 40 - kept)
                kept = 39  # all but the last
        w.finish()

    def test_strangers_share_a_page_at_least(self):
        """Less than that is found by nobody but the session that has it."""
        w = self.worker()
        for n, kept in (31, 0), (32, 32), (33, 33), (63, 63), (64, 64), (100, 100):
            ids = some_ids(100, n)
            self.turn(w, ids, session=None, n=0)
            self.expect(self.turn(w, ids[:n] + [300 - 1] * 9, session=None), "new", kept)
            self.expect(self.turn(w, ids[:n] + [300 - 2] * 9), "new", kept)
            w.ask({"op": "close", "session_id": "s"})
        w.finish()

    def test_exact_prefix_after_length(self):
        """The next turn that splices generated_token_ids reuses earlier prompt + completion."""
        w = self.worker()
        ids = some_ids(20)
        done = self.turn(w, ids)
        self.expect(done, "new", 0)
        for n in (1, 7, 30, 64):
            had = done["prompt_tokens"] + done["completion_tokens"]
            ids = splice(ids, done, some_ids(3, n))
            done = self.turn(w, ids, n=n)
            self.expect(done, "exact_prefix", had)
            self.assertEqual(done["prefilled_prompt_tokens"], 3)  # only the suffix
        w.finish()

    def test_exact_prefix_after_the_end_of_the_context(self):
        """A reply that filled the context is resident to its last token: its prefix is found again."""
        w = self.worker()
        ids = some_ids(500)
        done = self.turn(w, ids, n=-1)
        self.assertEqual(done["completion_tokens"], 12)
        whole = splice(ids, done, [])
        self.expect(self.turn(w, whole[:511], n=1), "equal", 510)
        w.finish()

    def test_exact_prefix_after_an_end_token(self):
        w = self.worker("--max-sessions", "200")
        for seed in range(1, 150):
            session = str(seed)
            ids = some_ids(10, seed)
            done = self.turn(w, ids, session=session, n=300, temperature=50.0, seed=seed)
            if done["reason"] == "stop":
                had = len(ids) + done["completion_tokens"]
                ids = splice(ids, done, [299, 10])  # the terminal token itself is not resident
                self.expect(self.turn(w, ids, session=session), "exact_prefix", had)
                break
        else:
            self.fail("no seed drew an end token")
        w.finish()

    def test_equal(self):
        """The whole prompt is a prefix of the resident ids: all but its last token is reused."""
        w = self.worker()
        ids = some_ids(50)
        first = self.turn(w, ids)
        again = self.turn(w, ids)
        self.expect(again, "equal", 49)
        self.assertEqual(again["generated_token_ids"], first["generated_token_ids"])
        self.expect(self.turn(w, ids[:20]), "equal", 19)
        self.expect(self.turn(w, ids[:1]), "equal", 0)
        w.finish()

    def test_prefix_and_mismatch(self):
        """At least one page (32 tokens) shared: the tail is dropped; less: mismatch."""
        w, cold = self.worker(), self.worker("--no-warm")
        ids = some_ids(100)
        for shared in (0, 1, 31, 32, 33, 63, 64, 90, 99):
            other = ids[:shared] + [48 + shared % 10] * 20
            self.turn(w, ids)
            done = self.turn(w, other)
            self.expect(done, *(("prefix", shared) if shared >= 32 else ("mismatch", 0)))
            alone = self.turn(cold, other)
            self.assertEqual(done["generated_token_ids"], alone["generated_token_ids"])  # P1
        w.finish()
        cold.finish()

    def test_no_warm(self):
        w = self.worker("--no-warm")
        ids = some_ids(40)
        for _ in range(3):
            self.expect(self.turn(w, ids), "new", 0)
        w.generate(prompt_segments=segments(ids), max_new_tokens=50, session_id="s", stop=[chr(x) for x in range(256)])
        self.expect(self.turn(w, ids), "new", 0)  # warm off comes before dirty
        w.finish()

    def test_warm_equals_cold(self):
        """P1: ids and text with everything reused are those of a lone cold run."""
        w, alone = self.worker(), self.worker("--no-warm")
        ids = some_ids(33)
        for turn in range(6):
            fields = {"n": 17, "temperature": 1.1, "seed": 70 + turn}
            warm = self.turn(w, ids, **fields)
            cold = self.turn(alone, ids, session=None, **fields)
            self.assertEqual(warm["generated_token_ids"], cold["generated_token_ids"])
            self.assertEqual(warm["session_reset_reason"], "exact_prefix" if turn else "new")
            self.assertEqual(cold["reused_prompt_tokens"], 0)
            ids = splice(ids, warm, some_ids(4, turn))
        w.finish()
        alone.finish()


class Dirty(SessionCase):
    STOPS = [chr(x) for x in range(128)] + ["\ufffd"] + [chr(x) for x in range(128, 2048)]

    def cut(self, w, ids, session="s"):
        """A reply that ends at its first character."""
        _, done = w.generate(prompt_segments=segments(ids), max_new_tokens=50, session_id=session, stop=self.STOPS)
        self.assertNotIn("generated_token_ids", done)
        self.assertEqual(done["reason"], "stop")
        return done

    def test_stop_cut_makes_dirty(self):
        w = self.worker()
        ids = some_ids(40)
        self.expect(self.cut(w, ids), "new", 0)
        self.expect(self.turn(w, ids), "dirty", 39)  # what was computed is kept, whatever the session may know of it
        self.expect(self.turn(w, ids), "equal", 39)  # cleared by the reset that started the request
        self.cut(w, ids)
        self.expect(self.cut(w, ids), "dirty", 39)
        w.finish()

    def test_reset_clears_dirty(self):
        w = self.worker()
        ids = some_ids(40)
        self.cut(w, ids)
        self.assertEqual(w.ask({"op": "reset", "session_id": "s"})[1], {"reset": True, "session_id": "s"})
        self.expect(self.turn(w, ids), "new", 39)
        few = some_ids(20, 1)
        self.expect(self.turn(w, few), "mismatch", 0)
        w.ask({"op": "reset", "session_id": "s"})
        self.expect(self.turn(w, few), "new", 0)  # the session does not know them any more
        w.finish()

    def test_close_forgets(self):
        w = self.worker()
        ids = some_ids(40)
        self.cut(w, ids)
        self.assertEqual(w.ask({"op": "close", "session_id": "s"})[1], {"closed": True, "session_id": "s"})
        self.expect(self.turn(w, ids), "new", 39)
        w.finish()

    def test_open_does_not_clear_dirty(self):
        w = self.worker()
        ids = some_ids(40)
        self.cut(w, ids)
        self.assertEqual(w.ask({"op": "open", "session_id": "s"})[1], {"opened": True, "session_id": "s"})
        self.assertEqual(self.turn(w, ids)["session_reset_reason"], "dirty")
        w.finish()

    def test_dirty_is_one_session_only(self):
        w = self.worker()
        ids = some_ids(40)
        self.turn(w, ids, session="other")
        self.cut(w, ids)
        self.expect(self.turn(w, ids, session="other"), "equal", 39)
        w.finish()

    def test_refused_requests_change_nothing(self):
        """All fields are checked before the session is touched."""
        w = self.worker()
        ids = some_ids(40)
        bad = [{"seed": -1}, {"top_p": 0}, {"stop": [1]}, {"temperature": None}, {"max_new_tokens": 1.5},
               {"add_special": 0}, {"cancel_request_id": 1}, {"stop": ["x"] * 5000}]
        done = self.turn(w, ids)
        for fields in bad:
            w.error({"prompt_segments": segments(some_ids(9, 5)), "session_id": "s", **fields})
        for prompt in ([], segments([300]), segments(some_ids(600))):
            w.error({"prompt_segments": prompt, "session_id": "s"})
        self.expect(self.turn(w, splice(ids, done, [65])), "exact_prefix", 45)
        self.cut(w, ids)
        for fields in bad:
            w.error({"prompt_segments": segments(some_ids(9, 5)), "session_id": "s", **fields})
        self.assertEqual(self.turn(w, ids)["session_reset_reason"], "dirty")  # the mark stays too
        w.finish()


class Ops(SessionCase):
    def ask(self, w, op, session):
        _, answer = w.ask({"op": op, "session_id": session})
        return answer

    def test_open_is_idempotent_and_keeps_what_is_there(self):
        w = self.worker()
        for _ in range(3):
            self.assertEqual(self.ask(w, "open", "s"), {"opened": True, "session_id": "s"})
        ids = some_ids(40)
        self.turn(w, ids)
        self.ask(w, "open", "s")
        self.expect(self.turn(w, ids), "equal", 39)
        w.finish()

    def test_unknown_ids(self):
        w = self.worker("--max-sessions", "2")
        for _ in range(5):  # nothing is created by these
            self.assertEqual(self.ask(w, "close", "x"), {"closed": True, "session_id": "x"})
            self.assertEqual(self.ask(w, "reset", "y"), {"reset": True, "session_id": "y"})
        self.assertEqual(self.ask(w, "open", "z"), {"opened": True, "session_id": "z"})
        w.finish()

    def test_reset_keeps_the_slot(self):
        w = self.worker("--max-sessions", "2")
        self.turn(w, some_ids(40))
        self.assertEqual(self.ask(w, "reset", "s"), {"reset": True, "session_id": "s"})
        self.assertEqual(self.ask(w, "open", "t")["code"], "capacity_exhausted")
        self.expect(self.turn(w, some_ids(40)), "new", 39)
        w.finish()

    def test_errors_carry_the_session(self):
        w = self.worker()
        for op in ("open", "close", "reset"):
            for bad, shown in ((None, None), (5, None), ([], None), ("", "")):
                e = w.error({"op": op, "session_id": bad})
                self.assertEqual((e["field"], e["session_id"]), ("session_id", shown))
            e = w.error({"op": op})
            self.assertEqual((e["field"], e["session_id"]), ("session_id", None))
        self.assertEqual(w.error({"op": "nope", "session_id": "s"})["session_id"], "s")
        w.finish()

    def test_names_of_any_kind(self):
        w = self.worker()
        for name in (" ", "\u00e9\u4e2d", "\U0001f600", "a\nb", '"', "\\", "x" * 60000, "\u2028"):
            for op, key in (("open", "opened"), ("reset", "reset"), ("close", "closed")):
                self.assertEqual(self.ask(w, op, name), {key: True, "session_id": name})
        self.assertEqual(w.error({"op": "open", "session_id": "x" * 70000})["field"], "session_id")
        w.finish()


class Capacity(SessionCase):
    def refused(self, w, line, code):
        e = w.error(line)
        self.assertEqual(set(e), {"error", "code", "session_id"})
        self.assertEqual((e["code"], e["session_id"]), (code, line["session_id"]))

    def test_slots(self):
        w = self.worker("--max-sessions", "3")
        ids = some_ids(40)
        self.turn(w, ids, session="a")  # a generate that names a session not yet open opens it
        w.ask({"op": "open", "session_id": "b"})
        self.refused(w, {"op": "open", "session_id": "c"}, "capacity_exhausted")
        self.refused(w, {"prompt": "x", "session_id": "c"}, "capacity_exhausted")
        self.assertEqual(w.ask({"op": "open", "session_id": "a"})[1], {"opened": True, "session_id": "a"})
        self.expect(self.turn(w, ids, session="a"), "equal", 39)  # an existing session is found; none was evicted
        self.expect(self.turn(w, ids, session=None), "new", 39)   # anonymous has its own slot
        self.expect(self.turn(w, ids, session="b"), "new", 39)
        w.ask({"op": "close", "session_id": "a"})
        self.expect(self.turn(w, ids, session="c"), "new", 39)
        self.refused(w, {"prompt": "x", "session_id": "a"}, "capacity_exhausted")
        w.ask({"op": "close", "session_id": "c"})
        self.expect(self.turn(w, ids, session="a"), "new", 39)  # after a close the id starts new
        w.finish()

    def test_no_named_sessions(self):
        w = self.worker("--max-sessions", "1")
        self.refused(w, {"op": "open", "session_id": "a"}, "unsupported_session")
        self.refused(w, {"prompt": "x", "session_id": "a"}, "unsupported_session")
        self.assertEqual(w.ask({"op": "close", "session_id": "a"})[1], {"closed": True, "session_id": "a"})
        self.assertEqual(w.ask({"op": "reset", "session_id": "a"})[1], {"reset": True, "session_id": "a"})
        self.expect(self.turn(w, some_ids(9), session=None), "new", 0)
        w.finish()

    def test_a_refused_request_opens_nothing(self):
        w = self.worker("--max-sessions", "2")
        for line in ({"prompt": ""}, {"prompt": "x", "seed": -1}, {"prompt_segments": segments([300])},
                     {"prompt_segments": segments(some_ids(600))}, {"prompt": "x", "stop": ["s"] * 5000}):
            w.error({**line, "session_id": "a"})
        self.assertEqual(w.ask({"op": "open", "session_id": "b"})[1], {"opened": True, "session_id": "b"})
        w.finish()

    def test_all_slots_hold_full_contexts(self):
        """Pages are there for every slot, and for going on from inside one: filling one session never costs another its own."""
        w = self.worker("--max-sessions", "4")
        prompts = {s: some_ids(505, i) for i, s in enumerate("abc")}
        last = some_ids(511, 9)
        for again in False, True, True:
            for s, ids in (*prompts.items(), (None, last)):
                done = self.turn(w, ids, session=s, n=-1)
                self.expect(done, "equal" if s and again else "new", len(ids) - 1 if again else 0)
                self.assertEqual(done["completion_tokens"], 512 - len(ids))
        w.finish()


class Memory(SessionCase):
    def test_nothing_grows_with_requests(self):
        """FAILURES K4: resident memory is flat after warm-up."""
        with open(worker_client.COMMAND[0], "rb") as f:
            program = f.read()
        if b"__asan_init" in program or b"__tsan_init" in program:
            self.skipTest("a sanitizer keeps freed memory")
        w = self.worker("--max-sessions", "3")

        def round_of_requests(k):
            for i in range(k, k + 20):
                w.send({"prompt_segments": segments(some_ids(5 + i % 60, i)), "max_new_tokens": 6, "session_id": f"s{i % 2}",
                        "stop": ["never " * (i % 9)]},
                       {"prompt": "the cat " * (i % 30 + 1), "max_new_tokens": 3, "temperature": 1.0},
                       {"op": "reset", "session_id": f"s{i % 3}"}, {"op": "open", "session_id": f"x{i}"}, "{",
                       {"op": "close", "session_id": f"s{i % 2}"})
            for _ in range(20 * 6):
                w.recv_reply()

        def resident():
            with open(f"/proc/{w.proc.pid}/statm", encoding="ascii") as f:
                return int(f.read().split()[1]) * 4096

        for k in range(0, 200, 20):
            round_of_requests(k)
        before = resident()
        for k in range(200, 2000, 20):
            round_of_requests(k)
        self.assertLess(resident() - before, 1 << 20)
        w.finish()

"""P1 on the wire (FAILURES T4): one request, by every way of running it that a client can bring about; and a session whose turn
was dropped (FAILURES C6). What a reply says is its ids, its text and its log-probabilities as the frames print them."""
import time

from worker_client import Case, segments, some_ids

PROMPT = some_ids(70, 5)
ASK = {"prompt_segments": segments(PROMPT), "max_new_tokens": 24, "temperature": 0.9, "top_p": 0.95, "seed": 7,
       "repetition_penalty": 1.1, "frequency_penalty": 0.2, "logit_bias": {"101": 1.5, "116": -2}, "ignore_eos": True,
       "logprobs": True, "top_logprobs": 20}
ENDLESS = {"prompt": "and on", "max_new_tokens": 4000, "temperature": 1.0, "ignore_eos": True}


class Wire(Case):
    def begin(self, w, **fields):
        """Sends a generation; its id."""
        w.n_asked = getattr(w, "n_asked", 0) + 1
        w.send({"id": f"r{w.n_asked}", "op": "generate", "seed": 1, **fields})
        return f"r{w.n_asked}"

    def op(self, w, op, **fields):
        w.n_asked = getattr(w, "n_asked", 0) + 1
        w.send({"id": f"r{w.n_asked}", "op": op, **fields})
        return w.recv_of(f"r{w.n_asked}")

    def until_it_speaks(self, w, name):
        while not w.recv_of(name).get("ids"):
            pass

    def reply(self, w, name):
        """((ids, text, log-probabilities), accepted, done) of a reply that has not been read."""
        frames = w.recv_until_last(name)
        self.assertIn("done", frames[-1], frames[-1])
        said = [f for f in frames if "ids" in f]
        return ([i for f in said for i in f["ids"]], "".join(f["token"] for f in said),
                [p for f in said for p in f.get("logprobs", [])]), frames[0]["accepted"], frames[-1]

    def cancel(self, w, *names):
        """Cancels what has been sent and not read to its end, and waits for that."""
        w.send(*({"id": name, "op": "cancel"} for name in names))
        for name in names:
            w.recv_until_last(name)

    def at_rest(self, w):
        stats = self.op(w, "stats")["stats"]
        self.assertEqual((stats["running"], stats["queued"], stats["pages_used"]), (0, 0, 0))


class Same(Wire):
    def alone(self, w):
        return self.reply(w, self.begin(w, **ASK))[0]

    def expect(self, w, name, want, cached=None):
        said, accepted, _ = self.reply(w, name)
        self.assertEqual(said, want)
        if cached is not None:
            self.assertEqual(accepted["cached_prompt_tokens"], cached)
        self.n += 1

    def unread(self, **fields):
        """ASK where nobody has left anything of it: in a namespace of its own."""
        self.n_namespaces = getattr(self, "n_namespaces", 0) + 1
        return {**ASK, "cache_namespace": f"n{self.n_namespaces}", **fields}

    def test_twenty_times(self):
        w = self.worker(model="long")
        want, self.n = self.alone(w), 1
        self.assertEqual((len(want[0]), len(want[2])), (24, 24))
        self.assertEqual({len(p["top"]) for p in want[2]}, {20})
        self.sessions(w, want)
        self.neighbours(w, want)
        self.held(w, want)
        w.finish()
        for options in ("--threads", "1"), ("--threads", "3"), ("--cpu", "ref"), ("--cpu", "avx2"), ("--no-warm",), ("--max-sessions", "2"):
            other = self.worker(*options, model="long")
            self.expect(other, self.begin(other, **ASK), want, 0)
            kept = 0 if options == ("--no-warm",) else 69
            self.expect(other, self.begin(other, session_id="s", **ASK), want, kept)  # what the first one left
            self.expect(other, self.begin(other, session_id="s", **ASK), want, kept)
            other.finish()
        self.assertGreaterEqual(self.n, 20)

    def sessions(self, w, want):
        """Cold, and warm in each way."""
        self.expect(w, self.begin(w, session_id="a", **self.unread()), want, 0)
        self.expect(w, self.begin(w, session_id="a", **ASK), want, 69)  # equal
        self.expect(w, self.begin(w, **ASK), want, 69)  # without a session: what the others left
        for n, cached in (31, 0), (32, 32), (40, 40), (69, 69):  # of a stranger: at least a page
            ask = self.unread()
            self.reply(w, self.begin(w, **{**ask, "prompt_segments": segments(PROMPT[:n]), "max_new_tokens": 0}))
            self.expect(w, self.begin(w, **ask), want, cached)
        for n in 1, 31, 32, 40, 69:  # an exact prefix
            ask = self.unread(session_id="b")
            self.reply(w, self.begin(w, **{**ask, "prompt_segments": segments(PROMPT[:n]), "max_new_tokens": 0}))
            self.expect(w, self.begin(w, **ask), want, n)
            self.op(w, "session", action="close", session_id="b")
        ask = self.unread(session_id="b")
        self.reply(w, self.begin(w, **{**ask, "prompt_segments": segments(PROMPT[:50] + some_ids(60, 9)), "max_new_tokens": 5}))
        self.expect(w, self.begin(w, **ask), want, 50)  # its tail is dropped
        ask = self.unread(session_id="b")
        self.reply(w, self.begin(w, **{**ask, "prompt_segments": segments(some_ids(90, 2)), "max_new_tokens": 5}))
        self.expect(w, self.begin(w, **ask), want, 0)  # a mismatch
        ask = self.unread(session_id="b")
        dropped = self.begin(w, **{**ask, "max_new_tokens": 4000})
        self.until_it_speaks(w, dropped)
        self.cancel(w, dropped)
        self.expect(w, self.begin(w, **ask), want, 69)  # dirty; what was computed is there
        for name in "a", "b":
            self.op(w, "session", action="close", session_id=name)
        self.at_rest(w)

    def neighbours(self, w, want):
        """Seven others: decoding, prefilling, scored, in sessions, cancelled, ended by a stop string."""
        for _ in range(2):
            first = [self.begin(w, **ENDLESS) for _ in range(2)]
            for name in first:
                self.until_it_speaks(w, name)
            others = [self.begin(w, prompt_segments=segments(some_ids(3000, 1)), max_new_tokens=3),
                      self.begin(w, prompt_segments=segments(some_ids(200, 3)), max_new_tokens=0, prompt_logprobs=5),
                      self.begin(w, session_id="x", **ENDLESS)]
            asked = [self.begin(w, **self.unread()), self.begin(w, **ASK)]
            others += [self.begin(w, stop=["e", "t", "a"], **ENDLESS), self.begin(w, **ENDLESS)]
            w.send({"id": others[-1], "op": "cancel"})
            self.expect(w, asked[0], want, 0)
            self.expect(w, asked[1], want, 69)
            self.cancel(w, *first, *others[:-1])
            w.recv_until_last(others[-1])
            self.op(w, "session", action="close", session_id="x")
            self.at_rest(w)

    def held(self, w, want):
        """In other lanes, behind ones that stand still; and itself standing still for a while."""
        for n in 1, 2, 4:
            names = [self.begin(w, **ENDLESS) for _ in range(n)]
            w.send(*({"id": name, "op": "pause"} for name in names))
            self.expect(w, self.begin(w, **self.unread()), want, 0)
            self.expect(w, self.begin(w, **ASK), want, 69)
            self.cancel(w, *names)
        beside = self.begin(w, **ENDLESS)
        asked = self.begin(w, **self.unread())
        w.send({"id": asked, "op": "pause"})
        self.until_it_speaks(w, beside)
        w.send({"id": asked, "op": "continue"})
        self.expect(w, asked, want, 0)
        self.cancel(w, beside)
        self.at_rest(w)


class DroppedTurn(Wire):
    """FAILURES C6: turn 1 is dropped in mid-token, turn 2 comes at once: the session is whole."""

    def turn_two(self, ids):
        return {**ASK, "prompt_segments": segments(PROMPT + ids + some_ids(9, 1)), "max_new_tokens": 12, "seed": 8}

    def drop(self, w, cold, n, wait, whole):
        """Turn 1 is cancelled behind its n-th token; turn 2 has what the client has seen of it."""
        name, seen = self.begin(w, session_id="s", **{**ASK, "max_new_tokens": 4000}), []
        while len(seen) < n:
            seen += w.recv_of(name).get("ids", [])
        w.send({"id": name, "op": "cancel"})
        time.sleep(wait)
        second = self.begin(w, session_id="s", **self.turn_two(seen))
        frames = w.recv_until_last(name)
        self.assertEqual(frames[-1]["reason"], "cancelled")
        ids = seen + [i for f in frames for i in f.get("ids", [])]
        self.assertEqual(ids, whole[:len(ids)])
        said, _, done = self.reply(w, second)
        want, _, _ = self.reply(cold, self.begin(cold, **self.turn_two(seen)))
        self.assertEqual(said, want)
        third = segments(PROMPT + seen + some_ids(9, 1) + said[0] + some_ids(5, 2))
        said, accepted, _ = self.reply(w, self.begin(w, session_id="s", **{**ASK, "prompt_segments": third}))
        self.assertEqual(accepted["cached_prompt_tokens"], done["prompt_tokens"] + 12)  # all of turn 2 is there
        want, _, _ = self.reply(cold, self.begin(cold, **{**ASK, "prompt_segments": third}))
        self.assertEqual(said, want)
        self.assertEqual(self.op(w, "session", action="close", session_id="s")["closed"], True)
        self.at_rest(w)

    def test_in_the_reply(self):
        w, cold = self.worker(model="long"), self.worker("--no-warm", model="long")
        whole = self.reply(cold, self.begin(cold, **{**ASK, "max_new_tokens": 600}))[0][0]
        for n, wait in (1, 0), (2, 0.004), (20, 0), (33, 0.001), (58, 0), (100, 0.003):
            self.drop(w, cold, n, wait, whole)
        w.finish()
        cold.finish()

    def test_before_it_spoke(self):
        """While it waits, or in its prompt."""
        w, cold = self.worker(model="long"), self.worker("--no-warm", model="long")
        long = {**ASK, "prompt_segments": segments(some_ids(5000, 4))}
        want, _, _ = self.reply(cold, self.begin(cold, **self.turn_two([])))
        for wait in 0, 0.005, 0.03:
            name = self.begin(w, session_id="s", **long)
            time.sleep(wait)
            w.send({"id": name, "op": "cancel"})
            second = self.begin(w, session_id="s", **self.turn_two([]))
            w.recv_until_last(name)
            self.assertEqual(self.reply(w, second)[0], want)
            self.op(w, "session", action="close", session_id="s")
            self.at_rest(w)
        w.finish()
        cold.finish()

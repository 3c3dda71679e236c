"""PROTOCOL 2, the reply: pieces, stops, end tokens, statistics."""
from worker_client import Case, END_IDS, IM_START, PATIENCE, bpe_piece, bpe_text, endless, segments, some_ids

DONE_KEYS = {"done", "prompt_tokens", "completion_tokens", "finish_reason", "reused_prompt_tokens",
             "prefilled_prompt_tokens", "session_reset_reason", "prefill_ms", "decode_ms", "total_ms", "prefill_tok_s",
             "decode_tok_s", "seed", "reason", "generated_token_ids", "queue_ms", "ttft_ms"}
HOT = {"temperature": 50.0, "prompt": "abc"}  # near to uniform over the vocabulary


class Pieces(Case):
    def test_text_is_what_the_ids_say(self):
        """Whole characters, never empty (the client checks), bad bytes repaired."""
        w = self.worker()
        repaired = 0
        for seed in range(1, 25):
            text, done = w.generate(**HOT, seed=seed, max_new_tokens=60)
            self.assertEqual(text, bpe_text(done["generated_token_ids"]))
            repaired += "\ufffd" in text
            if done.get("tail_repaired"):
                self.assertTrue(text.endswith("\ufffd"))
                self.assertIn("generated_token_ids", done)
        self.assertGreater(repaired, 0)
        w.finish()

    def test_a_cut_character_is_repaired(self):
        w = self.worker()
        _, done = w.generate(**HOT, seed=1, max_new_tokens=500)
        ids = done["generated_token_ids"]
        lead = next(i for i, t in enumerate(ids) if 0xC2 <= t <= 0xF4 and i + 1 < len(ids))
        text, done = w.generate(**HOT, seed=1, max_new_tokens=lead + 1)
        self.assertEqual(done["generated_token_ids"], ids[:lead + 1])
        self.assertTrue(text.endswith("\ufffd"))
        self.assertIs(done["tail_repaired"], True)
        w.finish()

    def test_control_tokens_in_the_text(self):
        """Non-terminal ones appear as the vocabulary writes them; terminal ones neither appear nor count."""
        w = self.worker()
        shown = ended = 0
        for seed in range(1, 40):
            text, done = w.generate(**HOT, seed=seed)
            ids = done["generated_token_ids"]
            self.assertFalse(END_IDS & set(ids))
            self.assertEqual(text.count("<|im_start|>"), ids.count(IM_START))
            self.assertNotIn("<|im_end|>", text)
            self.assertEqual(done["completion_tokens"], len(ids))
            shown += ids.count(IM_START)
            if done["reason"] == "stop":
                ended += 1
                self.assertEqual(done["finish_reason"], "stop")
                self.assertNotIn("guard", done)
        self.assertGreater(shown, 0)
        self.assertGreater(ended, 0)
        w.finish()

    def test_nothing_generated(self):
        """An end token at once: no token frame, ids [] (and not absent)."""
        w = self.worker()
        for seed in range(1, 2000):
            text, done = w.generate(**HOT, seed=seed, max_new_tokens=1)
            if done["completion_tokens"] == 0:
                self.assertEqual((text, done["generated_token_ids"], done["reason"]), ("", [], "stop"))
                break
        else:
            self.fail("no seed ended at once")
        w.finish()

    def test_frames_come_while_it_runs(self):
        w = self.worker(model="long")
        w.send(endless())
        self.assertIn("token", w.recv(PATIENCE))
        self.assertIsNone(w.proc.poll())
        w.proc.kill()


class Statistics(Case):
    def test_done_frame(self):
        w = self.worker()
        _, done = w.generate(prompt_segments=segments(some_ids(300)), max_new_tokens=20)
        self.assertEqual(set(done), DONE_KEYS)
        self.assertIs(done["done"], True)
        self.assertEqual((done["prompt_tokens"], done["completion_tokens"]), (300, 20))
        self.assertEqual((done["reused_prompt_tokens"], done["prefilled_prompt_tokens"]), (0, 300))
        for key in ("prefill_ms", "decode_ms", "total_ms", "ttft_ms"):
            self.assertGreater(done[key], 0)
        self.assertGreaterEqual(done["queue_ms"], 0)
        self.assertLessEqual(done["prefill_ms"] + done["decode_ms"], done["total_ms"] + 0.01)
        self.assertAlmostEqual(done["prefill_tok_s"] * done["prefill_ms"], 300e3, delta=300e3 * 0.02)
        self.assertAlmostEqual(done["decode_tok_s"] * done["decode_ms"], 20e3, delta=20e3 * 0.02)
        w.finish()

    def test_counts_add_up(self):
        w = self.worker()
        for n in (1, 5, 31, 32, 33, 64, 200, 201):
            for _ in range(2):
                _, done = w.generate(prompt_segments=segments(some_ids(n)), max_new_tokens=3, session_id="s")
                self.assertEqual(done["reused_prompt_tokens"] + done["prefilled_prompt_tokens"], n)
        w.finish()


class Stops(Case):
    def setUp(self):
        self.prompt = {"prompt": "tell me a story", "temperature": 2.0, "max_new_tokens": 120}

    def whole(self, w):
        """An undisturbed reply that no end token ended, with a run of plain characters: its text, its ids."""
        for seed in range(1, 500):
            self.prompt["seed"] = seed
            text, done = w.generate(**self.prompt)
            if done["reason"] == "length" and self.plain_at(text) is not None:
                return text, done["generated_token_ids"]
        self.fail("no seed gave such a reply")

    @staticmethod
    def plain_at(text):
        """Where six plain characters stand, not at the start."""
        for i in range(5, len(text) - 6):
            if text[i:i + 6].isascii() and text[i:i + 6].isprintable():
                return i
        return None

    def cut(self, w, text, ids, stops):
        """Runs with these stops and checks text, counts and reasons against the undisturbed reply."""
        at = min(text.find(s) for s in stops if s and s in text)
        got, done = w.generate(**self.prompt, stop=stops)
        self.assertEqual(got, text[:at])
        self.assertEqual((done["finish_reason"], done["reason"]), ("stop", "stop"))
        self.assertNotIn("generated_token_ids", done)
        hit = next(i for i in range(1, len(ids) + 1) if any(s and s in self.safe(ids[:i]) for s in stops))
        self.assertEqual(done["completion_tokens"], hit)  # every generated token counts

    @staticmethod
    def safe(ids):
        """The whole characters of these ids, without an unfinished last one."""
        data = b"".join(map(bpe_piece, ids))
        for tail in range(4):
            try:
                data[len(data) - tail:].decode("utf-8")
            except UnicodeDecodeError as e:
                if e.reason == "unexpected end of data" and e.start == 0:
                    return data[:len(data) - tail].decode("utf-8", "replace")
        return data.decode("utf-8", "replace")

    def test_stops(self):
        w = self.worker()
        text, ids = self.whole(w)
        i = self.plain_at(text)
        self.cut(w, text, ids, [text[i]])                     # one character
        self.cut(w, text, ids, [text[i:i + 6]])               # across tokens
        self.cut(w, text, ids, [text[:5]])                    # at the very start: nothing is said
        self.cut(w, text, ids, [text[i:i + 2], text[i:i + 6]])  # one a prefix of another
        self.cut(w, text, ids, ["", text[i:i + 3], ""])       # empty ones are ignored
        self.cut(w, text, ids, [f"never-{k}" for k in range(1000)] + [text[i:i + 4]])
        self.cut(w, text, ids, [text[i:i + 3], text[i:i + 3]])
        w.finish()

    def test_stop_that_is_never_finished_is_flushed(self):
        w = self.worker()
        text, ids = self.whole(w)
        for stops in ([text[-3:] + "x"], [text[-1:] + "yyy"], ["never"], [""], []):
            got, done = w.generate(**self.prompt, stop=stops)
            if not any(s and s in text for s in stops):
                self.assertEqual((got, done["generated_token_ids"]), (text, ids), stops)
                self.assertEqual(done["reason"], "length")
        w.finish()

    def test_stop_equal_to_the_whole_reply(self):
        w = self.worker()
        text, _ = self.whole(w)
        got, done = w.generate(**self.prompt, stop=[text])
        self.assertEqual(got, "")
        self.assertNotIn("generated_token_ids", done)
        self.assertEqual(done["completion_tokens"], 120)
        w.finish()

    def test_stop_at_a_control_token(self):
        """Plain clients look for tool calls and stops in the text."""
        w = self.worker()
        for seed in range(1, 100):
            text, done = w.generate(**HOT, seed=seed)
            if IM_START in done["generated_token_ids"]:
                got, cut = w.generate(**HOT, seed=seed, stop=["<|im_start|>"])
                self.assertEqual(got, text[:text.index("<|im_start|>")])
                self.assertEqual(cut["reason"], "stop")
                break
        else:
            self.fail("no seed drew the control token")
        w.finish()

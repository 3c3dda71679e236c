"""PROTOCOL 2, the request: prompts, budgets, sampling."""
from worker_client import Case, END_IDS, segments, some_ids


class Prompts(Case):
    def reply_ids(self, w, **fields):
        _, done = w.generate(max_new_tokens=6, **fields)
        return done["prompt_tokens"], done["generated_token_ids"]

    def same(self, w, ids, **fields):
        """A prompt given this way is these ids."""
        self.assertEqual(self.reply_ids(w, **fields), self.reply_ids(w, prompt_segments=segments(ids)), fields)

    def test_bpe(self):
        w = self.worker()
        self.same(w, [104, 105], prompt="hi")
        self.same(w, [283], prompt="et")  # a merge
        self.same(w, [101, 116], prompt_segments=[{"text": "e"}, {"text": "t"}])  # no merge crosses a border
        self.same(w, [283, 101, 283], prompt_segments=[{"text": "et"}, {"text": "e"}, {"ids": [283]}])
        self.same(w, [299], prompt="<|im_end|>")  # control tokens in text are recognised
        self.same(w, [298, 104, 105, 299, 10], prompt="<|im_start|>hi<|im_end|>\n")
        self.same(w, [60, 124, 105], prompt_segments=[{"text": "<"}, {"text": "|"}, {"text": "i"}])
        self.same(w, [195, 169], prompt="\u00e9")
        self.same(w, [104, 105], prompt="hi", add_special=True)  # this model adds none
        self.same(w, [104, 105], prompt="hi", add_special=False)
        w.finish()

    def test_spm(self):
        """The space prefix stands only where text begins the prompt; BOS only with add_special."""
        w = self.worker(model="spm")
        space_e, e, bos = 286, 260, 1
        self.same(w, [space_e], prompt="e")
        self.same(w, [space_e], prompt_segments=[{"text": "e"}])
        self.same(w, [space_e, e], prompt_segments=[{"text": "e"}, {"text": "e"}])
        self.same(w, [5, e], prompt_segments=[{"ids": [5]}, {"text": "e"}])
        self.same(w, [space_e], prompt_segments=[{"text": ""}, {"ids": []}, {"text": "e"}])
        self.same(w, [bos, space_e], prompt="e", add_special=True)
        self.same(w, [bos, space_e, e], prompt_segments=[{"text": "e"}, {"text": "e"}], add_special=True)
        self.same(w, [bos], prompt="", add_special=True)  # an empty text is BOS alone
        self.same(w, [bos], prompt_segments=[], add_special=True)
        self.same(w, [bos], prompt="<s>")
        w.finish()

    def test_segments(self):
        w = self.worker()
        self.same(w, [104], prompt_segments=[{"text": "x", "ids": [104]}])  # with both keys it counts as ids
        self.same(w, [104], prompt_segments=[{"text": None, "ids": [104]}])
        self.same(w, [104, 105], prompt_segments=[{"text": ""}, {"text": "h"}, {"ids": []}, {"ids": [105]}, {"text": ""}])
        for bad in ([{}], [{"x": 1}], [{"text": "a"}, {"txt": "b"}], ["a"], [1], [None], [{"ids": "1"}], [{"text": 1}]):
            self.assertIn("prompt_segments", w.error({"prompt_segments": bad})["field"])
        for bad in (-1, 300, 301, 1 << 31, 1 << 40, "5", 5.0, None, True):
            e = w.error({"prompt_segments": [{"ids": [1, bad]}]})
            self.assertEqual((e["code"], e["field"]), ("invalid_field", "prompt_segments[0].ids"))
        w.finish()

    def test_empty_prompts(self):
        w = self.worker()
        for bad in ([], [{"text": ""}], [{"ids": []}], [{"text": ""}, {"ids": []}]):
            self.assertEqual(w.error({"prompt_segments": bad})["field"], "prompt_segments")
        self.assertEqual(w.error({"prompt": ""})["field"], "prompt")
        self.assertEqual(w.error({"prompt": "", "add_special": True})["field"], "prompt")  # this model wants no BOS
        w.finish()


class Budgets(Case):
    def test_budget(self):
        w = self.worker()
        for n in (1, 2, 31, 32, 33, 100):
            _, done = w.generate(prompt="abc", max_new_tokens=n)
            self.assertEqual((done["completion_tokens"], len(done["generated_token_ids"])), (n, n))
            self.assertEqual((done["finish_reason"], done["reason"]), ("length", "length"))
            self.assertNotIn("guard", done)
        w.finish()

    def test_the_rest_of_the_context(self):
        w = self.worker()
        ids = some_ids(500)
        for n in (None, 0, -1, -5, -(1 << 63), 13, 1000, (1 << 31) - 1, 1 << 31, (1 << 63), (1 << 64) - 1):
            fields = {} if n is None else {"max_new_tokens": n}
            _, done = w.generate(prompt_segments=segments(ids), **fields)
            self.assertEqual((done["prompt_tokens"], done["completion_tokens"]), (500, 12), n)
            self.assertEqual((done["finish_reason"], done["reason"], done["guard"]), ("length", "length", "context"))
        w.finish()

    def test_prompts_near_the_context(self):
        w = self.worker()
        _, done = w.generate(prompt_segments=segments(some_ids(511)))
        self.assertEqual((done["prompt_tokens"], done["completion_tokens"]), (511, 1))
        for n in (512, 513, 1024, 5000):
            for session in ({}, {"session_id": "s"}):
                e = w.error({"prompt_segments": segments(some_ids(n)), **session})
                self.assertEqual((e["code"], e["field"], e["prompt_tokens"], e["limit"]),
                                 ("context_length_exceeded", "prompt_segments", n, 512))
                self.assertIn(str(n), e["error"])
        e = w.error({"prompt": "q" * 600})
        self.assertEqual((e["code"], e["field"], e["prompt_tokens"]), ("context_length_exceeded", "prompt", 600))
        w.finish()


class Sampling(Case):
    def ids(self, w, **fields):
        fields.setdefault("max_new_tokens", 24)
        _, done = w.generate(prompt="the cat", **fields)
        return done["generated_token_ids"], done["seed"]

    def test_greedy_is_the_default(self):
        w = self.worker()
        a, _ = self.ids(w)
        self.assertEqual(a, self.ids(w, temperature=0, seed=5)[0])
        self.assertEqual(a, self.ids(w, temperature=0.0, seed=6, top_p=0.5, top_k=3)[0])
        self.assertEqual(a, self.ids(w, temperature=1, top_k=1, seed=7)[0])
        self.assertEqual(a, self.ids(w, temperature=1, top_p=1e-300, seed=8)[0])
        self.assertEqual(a, self.ids(w, temperature=1e-300, seed=9)[0])
        w.finish()

    def test_seeds(self):
        w = self.worker()
        runs = {s: self.ids(w, temperature=1.5, seed=s) for s in (1, 2, 3, 4, (1 << 63) - 1)}
        for s, (ids, used) in runs.items():
            self.assertEqual(used, s)
            self.assertEqual(ids, self.ids(w, temperature=1.5, seed=s)[0])
        self.assertGreater(len({tuple(ids) for ids, _ in runs.values()}), 1)
        drawn = [self.ids(w, temperature=1.5, **f) for f in ({}, {}, {}, {"seed": 0}, {"seed": 0})]
        self.assertEqual(len({s for _, s in drawn}), 5)  # 0 and absent: one is drawn and told, never 0
        for ids, seed in drawn:
            self.assertTrue(1 <= seed < 1 << 63)
            self.assertEqual(ids, self.ids(w, temperature=1.5, seed=seed)[0])
        w.finish()

    def test_extreme_values(self):
        w = self.worker()
        for fields in ({"temperature": 1e308}, {"temperature": 1e-320}, {"top_p": 5e-324}, {"top_k": (1 << 31) - 1}):
            fields = {"temperature": 1.0, "seed": 3, **fields}
            self.assertEqual(self.ids(w, **fields), self.ids(w, **fields))
        w.finish()

    def test_same_reply_in_every_worker(self):
        """P1: slots, threads, warm or not, session or not, earlier requests: the same ids."""
        ids = some_ids(70, 3)
        fields = {"prompt_segments": segments(ids), "temperature": 1.2, "seed": 11, "max_new_tokens": 40}
        seen = set()
        for args in ([], ["--max-sessions", "1"], ["--no-warm"], ["--threads", "1"]):
            w = self.worker(*args)
            for extra in ({}, {"session_id": "s"} if "1" not in args[-1:] or "--threads" in args else {}):
                text, done = w.generate(**fields, **extra)
                seen.add((text, tuple(done["generated_token_ids"])))
            w.generate(prompt="something else", max_new_tokens=5)
            text, done = w.generate(**fields)
            seen.add((text, tuple(done["generated_token_ids"])))
            w.finish()
        self.assertEqual(len(seen), 1)
        self.assertFalse(END_IDS & set(next(iter(seen))[1]))

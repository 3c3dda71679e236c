#!/usr/bin/python3
"""purity_script.py Same HEARTH MODEL: FAILURES T4 over HTTP: one request with temperature and seed, twenty times and more, by every
way of asking and beside whatever runs; what it says is text, finish reason and log-probabilities as they are printed. MODEL has a
context of at least 4,096. Standard library only. Exit 1 if a test fails."""
import random
import sys
import threading
import unittest

from serve_rig import GROUP, MODEL, SERVE, Daemon, text_of

PROMPT = [97 + (i * 7 + i * i * 3) % 26 for i in range(70)]
ASK = {"temperature": 0.9, "top_p": 0.95, "seed": 11, "max_tokens": 24, "repetition_penalty": 1.1, "presence_penalty": 0.3,
       "logit_bias": {"101": 1.5}, "ignore_eos": True, "logprobs": 5}
ENDLESS = {"max_tokens": 3000, "temperature": 1.0, "ignore_eos": True, "stream": True}


class Same(unittest.TestCase):
    def daemon(self, *options):
        return Daemon(argv=[SERVE, "serve", "-m", MODEL[0], "--port", "0", *options])

    def whole(self, d, prompt=None, **more):
        status, _, body = d.complete(prompt or PROMPT, **{**ASK, **more})
        self.assertEqual(status, 200, body)
        return body["choices"][0]

    def expect(self, got, want):
        self.assertEqual((got["text"], got["finish_reason"], got["logprobs"]), (want["text"], want["finish_reason"], want["logprobs"]))
        self.n += 1

    def streamed(self, d):
        chunks = d.chunks(PROMPT, **ASK)
        joined = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for c in (x["choices"][0] for x in chunks if x["choices"]):
            for key, values in (c["logprobs"] or {}).items():
                joined[key] += values
        last = [x for x in chunks if x["choices"]][-1]["choices"][0]
        return {"text": text_of(chunks), "finish_reason": last["finish_reason"], "logprobs": joined}

    def test_twenty_times(self):
        with self.daemon() as d:
            want, self.n = self.whole(d), 1
            self.assertEqual((want["finish_reason"], len(want["logprobs"]["tokens"])), ("length", 24))
            for _ in range(3):  # what was computed may be found again
                self.expect(self.whole(d), want)
            self.expect(self.streamed(d), want)
            self.whole(d, prompt=PROMPT[:40])
            self.expect(self.whole(d), want)
            choices = d.complete(PROMPT, **ASK, n=3)[2]["choices"]
            self.expect(next(c for c in choices if c["index"] == 0), want)
            self.at_once(d, want)
            self.beside_seven(d, want)
            self.assertTrue(d.is_at_rest())
        for options in ("--threads", "1"), ("--threads", "3"), ("--cpu", "ref"):
            with self.daemon(*options) as d:
                self.expect(self.whole(d), want)
                self.expect(self.streamed(d), want)
        self.assertGreaterEqual(self.n, 20)

    def at_once(self, d, want):
        """Eight of it together, and more than there are lanes."""
        got = []
        threads = [threading.Thread(target=lambda: got.append(self.whole(d))) for _ in range(12)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(len(got), 12)
        for choice in got:
            self.expect(choice, want)

    def beside_seven(self, d, want):
        """Streams that are decoded, prompts that come and go, clients that leave."""
        streams = [d.stream([5 + i, 9, 30], **ENDLESS) for i in range(4)]
        for _, r in streams:
            r.readline()
        stop, rnd = threading.Event(), random.Random(1)

        def busy():
            while not stop.is_set():
                c, r = d.stream([rnd.randrange(97, 122) for _ in range(rnd.choice((3, 70, 900)))], **ENDLESS)
                for _ in range(rnd.randrange(3)):
                    r.readline()
                c.sock.close()  # in its prompt, or in its reply
                c.close()
        others = [threading.Thread(target=busy) for _ in range(3)]
        for t in others:
            t.start()
        for _ in range(4):
            self.expect(self.whole(d), want)
            self.expect(self.streamed(d), want)
        stop.set()
        for t in others:
            t.join()
        for c, _ in streams:
            c.close()


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], GROUP])

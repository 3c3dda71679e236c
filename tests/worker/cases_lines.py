"""PROTOCOL 2, lines."""
from worker_client import Case, segments, some_ids

OPEN = {"op": "open", "session_id": "s"}
OPENED = {"opened": True, "session_id": "s"}


class Lines(Case):
    def test_blank_lines_have_no_answer(self):
        w = self.worker()
        w.send_raw(b"\n\n   \n\t\n\r\n \t \r\n")
        w.send(OPEN)
        self.assertEqual(w.recv(), OPENED)
        w.send_raw(b"  \n" * 1000)
        w.send(OPEN)
        self.assertEqual(w.recv(), OPENED)
        w.finish()

    def test_bad_lines_are_answered_and_the_worker_goes_on(self):
        bad = ["{", "[]", "nonsense", '"prompt"', "1", "null", "{}{}", '{"prompt":"a"} more', '{"prompt":"a",}',
               "{'prompt':'a'}", '{"prompt":"a","temperature":NaN}', '{"prompt":"a","temperature":Infinity}',
               '{"prompt":"a","seed":18446744073709551616}', '{"prompt":"a","prompt":"b"}', '{"prompt":"\\ud800"}',
               "[" * 300 + "]" * 300, '{"prompt":"a","x":' + "[" * 10000 + "]" * 10000 + "}", "\x00", "\f"]
        w = self.worker()
        for line in bad:
            self.assertEqual(w.error(line)["code"], "bad_request", line)
        for raw in (b'{"prompt":"\xff"}\n', b'{"prompt":"\xc3"}\n', b'\xef\xbb\xbf{"prompt":"a"}\n', b"\xff\n"):
            w.send_raw(raw)
            self.assertEqual(w.recv()["code"], "bad_request")
        w.send(*bad, OPEN)
        for _ in bad:
            self.assertEqual(w.recv()["code"], "bad_request")
        self.assertEqual(w.recv(), OPENED)
        w.finish()

    def test_oversized_line_is_skipped(self):
        limit = 64 << 20
        w = self.worker()
        for extra, end in ((1, b"\n"), (5 << 20, b"\n")):
            w.send_raw(b" " * limit)
            w.send_raw(b"x" * extra + end)
            self.assertEqual(w.recv()["code"], "bad_request")
            w.send(OPEN)
            self.assertEqual(w.recv(), OPENED)
        line = b'{"op":"open","session_id":"s","x":"'
        w.send_raw(line + b"y" * (limit - len(line) - 2) + b'"}\n')  # exactly the limit
        self.assertEqual(w.recv(), OPENED)
        w.send_raw(b"z" * (limit + 1))  # and at the end, without '\n'
        w.close_stdin()
        self.assertEqual(w.recv()["code"], "bad_request")
        self.assertIsNone(w.recv_line())
        self.assertEqual(w.wait(), 0)

    def test_fields_that_are_refused(self):
        """Each is one error that names the field; all tables are in tests/wire/test_request.c."""
        w = self.worker()
        cases = [("seed", 1 << 63), ("seed", -1), ("seed", 1.0), ("top_k", 1 << 31), ("top_p", 0), ("top_p", 1.5),
                 ("temperature", -1), ("max_new_tokens", 1.0), ("max_new_tokens", "5"), ("stop", "x"), ("stop", [1]),
                 ("session_id", 5), ("add_special", 1), ("cancel_request_id", 1), ("id", 1), ("id", None)]
        for field, value in cases:
            e = w.error({"prompt": "a", field: value})
            self.assertEqual(e["field"], field)
            self.assertIn(field, e["error"])
        for field in ("seed", "top_k", "top_p", "temperature", "max_new_tokens", "stop", "session_id", "add_special"):
            self.assertEqual(w.error({"prompt": "a", field: None})["field"], field)  # null is a wrong type
        self.assertEqual(w.error({"prompt": "a", "cancel_request_id": 1})["code"], "unsupported")
        self.assertEqual(w.error({"prompt": None})["field"], "prompt")
        self.assertEqual(w.error({})["field"], "prompt")
        w.error({"prompt": "a", "prompt_segments": None})
        self.assertEqual(w.error({"prompt": "a", "stop": ["x"] * 5000})["field"], "stop")
        w.finish()

    def test_unknown_fields_are_ignored(self):
        w = self.worker()
        a = w.generate(prompt="hello", max_new_tokens=4)
        b = w.generate(prompt="hello", max_new_tokens=4, token=1, error={"x": [None]}, min_p=7, Seed="x")
        self.assertEqual(a[1]["generated_token_ids"], b[1]["generated_token_ids"])
        w.finish()

    def test_ops(self):
        w = self.worker()
        _, done = w.ask({"op": "generate", "prompt": "a", "max_new_tokens": 1})
        self.assertTrue(done["done"])
        for op in ("embed", "", "Open", 5, None, ["open"]):
            e = w.error({"op": op, "session_id": "x", "prompt": "a"})
            self.assertEqual((e["field"], e["session_id"]), ("op", "x"))
        for op in ("chat", "cancel", "stats", "tokenize", "session", "pause"):  # those of the other dialect
            e = w.error({"op": op, "session_id": "x", "prompt": "a"})
            self.assertEqual((e["field"], e["session_id"]), ("id", "x"))
        w.finish()

    def test_every_line_is_carried_to_its_end_before_the_next(self):
        w = self.worker()
        w.send({"prompt": "abc", "max_new_tokens": 20, "session_id": "s"}, {"op": "reset", "session_id": "s"}, "{",
               {"prompt": "abc", "max_new_tokens": 3, "session_id": "s"}, {"op": "close", "session_id": "s"})
        _, first = w.recv_reply()
        self.assertEqual(first["completion_tokens"], 20)
        self.assertEqual(w.recv(), {"reset": True, "session_id": "s"})
        self.assertEqual(w.recv()["code"], "bad_request")
        _, second = w.recv_reply()
        self.assertEqual((second["completion_tokens"], second["session_reset_reason"]), (3, "new"))
        self.assertEqual(w.recv(), {"closed": True, "session_id": "s"})
        w.finish()

    def test_strings_have_a_length(self):
        """U+0000 is ordinary, in prompts, stops and names of sessions."""
        w = self.worker("--max-sessions", "4")
        _, done = w.generate(prompt="a\0b", max_new_tokens=4)
        self.assertEqual(done["prompt_tokens"], 3)
        _, same = w.generate(prompt_segments=segments([97, 0, 98]), max_new_tokens=4)
        self.assertEqual(done["generated_token_ids"], same["generated_token_ids"])
        names = ["a", "a\0b", "a\0c"]
        for i, name in enumerate(names):
            _, done = w.generate(prompt_segments=segments(some_ids(5, i)), max_new_tokens=2, session_id=name)
            self.assertEqual(done["session_reset_reason"], "new")
        for i, name in enumerate(names):
            _, done = w.generate(prompt_segments=segments(some_ids(5, i)), max_new_tokens=2, session_id=name)
            self.assertEqual(done["session_reset_reason"], "equal")
            _, r = w.ask({"op": "close", "session_id": name})
            self.assertEqual(r, {"closed": True, "session_id": name})
        w.finish()

    def test_many_lines_at_once(self):
        w = self.worker()
        n = 3000
        w.send(*({"op": "reset", "session_id": str(i)} for i in range(n)))
        for i in range(n):
            self.assertEqual(w.recv(), {"reset": True, "session_id": str(i)})
        w.finish()

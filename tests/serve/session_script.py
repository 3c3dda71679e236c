#!/usr/bin/python3
"""session_script.py Turns|Owners|Idle SERVE_MAIN: named sessions from outside, around stub_worker.py. Standard library only.
Exit 1 if a test fails. The table is in test_session_table.c, the fields in fields_script.py."""
import hashlib
import json
import tempfile
import unittest

from serve_rig import GROUP, Daemon, events, until


def named(name, **more):
    return {"X-Hearth-Session": name, **more}


class Turns(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.d = Daemon()

    @classmethod
    def tearDownClass(cls):
        rc, _ = cls.d.end()
        assert rc == 0, rc

    def turns_of(self, name):
        return [x for x in self.d.seen_lines() if x.get("session_id") == "/" + name and x["op"] != "session"]

    def test_named_by_header_or_body(self):
        """All three routes; what the worker is told is the name with the key before it."""
        bodies = {"/v1/completions": {"prompt": "say a"}, "/v1/responses": {"input": "say a"},
                  "/v1/chat/completions": {"messages": [{"role": "user", "content": "say a"}]}}
        for i, (path, body) in enumerate(bodies.items()):
            for headers, more in ((named(f"r{i}"), {}), ({}, {"session_id": f"r{i}"}), (named(f"r{i}"), {"session_id": f"r{i}"})):
                status, _, answer = self.d.ask("POST", path, {**body, **more}, headers)
                self.assertEqual(status, 200, answer)
            self.assertEqual(len(self.turns_of(f"r{i}")), 3)
            self.assertEqual(answer["hearth"]["session_reset_reason"], "exact_prefix")
        answer = self.d.complete("say a")[2]
        self.assertNotIn("session_reset_reason", answer["hearth"])
        self.assertNotIn("session_id", self.d.seen_lines()[-1])

    def test_refused(self):
        seen = len(self.d.seen_lines())
        for headers, more, param in [(named("a"), {"session_id": "b"}, "session_id"), (named("a b"), {}, "x-hearth-session"),
                                     (named(""), {}, "x-hearth-session"), (named("a/b"), {}, "x-hearth-session"),
                                     (named("x" * 129), {}, "x-hearth-session"), ({}, {"session_id": "x" * 129}, "session_id"),
                                     ({}, {"session_id": ""}, "session_id"), ({}, {"session_id": 5}, "session_id"),
                                     (named("a"), {"n": 2}, "n"), ({}, {"session_id": "a", "n": 2}, "n"),
                                     (named("a"), {"prompt": ["a", "b"]}, "prompt")]:
            status, _, answer = self.d.complete("say a", headers, **more) if "prompt" not in more else \
                self.d.ask("POST", "/v1/completions", more, headers)
            self.assertEqual((status, answer["error"]["param"], answer["error"]["code"]), (400, param, "invalid_field"), answer)
        self.assertEqual(len(self.d.seen_lines()), seen)
        self.assertEqual(self.d.complete("say a", named("x" * 128))[0], 200)
        self.assertEqual(self.d.complete("say a", session_id=None)[0], 200)

    def test_where_it_says_nothing(self):
        """A client may send its header with everything."""
        self.assertEqual(self.d.ask("GET", "/v1/models", headers=named("a"))[0], 200)
        self.assertEqual(self.d.ask("POST", "/tokenize", {"content": "a"}, named("a b"))[0], 200)

    def test_order_in_the_queue(self):
        """A later turn of a session does not overtake an earlier one, whatever its priority."""
        with Daemon("lanes", "1", "serial") as d:
            holders = [d.later("gate", priority=10), d.later("gate", priority=10)]
            self.assertTrue(d.saw(prompt="gate"))
            waiting = []
            for i, (name, priority) in enumerate([("s", 0), ("s", 9), ("t", 5)]):
                waiting.append(d.later(f"say {i}", named(name), priority=priority))
                self.assertTrue(d.has_queued(i + 1))
            d.gate.touch()
            for t, got in holders + waiting:
                t.join()
                self.assertEqual(got[0][0], 200)
            self.assertEqual([p for p in d.seen_prompts() if p and p.startswith("say")], ["say 2", "say 0", "say 1"])

    def test_worker_refuses(self):
        """A session that no worker has taken does not stay."""
        with Daemon(sessions=1) as d:
            for _ in range(2):
                self.assertEqual(d.complete("error context_length_exceeded", named("a"))[0], 400)
                self.assertEqual(d.complete("error capacity_exhausted", named("b"))[0], 429)
            self.assertEqual(d.complete("say a", named("c"))[0], 200)
            self.assertEqual(d.complete("say a", named("a"))[0], 429)


class Owners(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.file = tempfile.NamedTemporaryFile("w")
        for name in "ann", "bob":
            cls.file.write(f"{name} {hashlib.sha256(f'key-{name}'.encode()).hexdigest()}\n")
        cls.file.flush()
        cls.d = Daemon(keys=cls.file.name)

    @classmethod
    def tearDownClass(cls):
        rc, _ = cls.d.end()
        cls.file.close()
        assert rc == 0, rc

    ann, bob = {"Authorization": "Bearer key-ann"}, {"x-api-key": "key-bob"}

    def test_one_name_two_keys(self):
        """FAILURES P7: the worker never hears of the other's."""
        for who in self.ann, self.bob, self.ann:
            self.assertEqual(self.d.complete("say a", named("mine", **who))[0], 200)
        lines = [x for x in self.d.seen_lines() if x.get("session_id", "").endswith("/mine") and x["op"] == "generate"]
        self.assertEqual([x["session_id"] for x in lines], ["ann/mine", "bob/mine", "ann/mine"])
        self.assertEqual([x["cache_namespace"] for x in lines], ["ann", "bob", "ann"])

    def test_caps_are_each_keys_own(self):
        with Daemon(keys=self.file.name, sessions=2, session_ttl=100000) as d:
            for name in "a", "b", "a":
                self.assertEqual(d.complete("say a", named(name, **self.ann))[0], 200)
            status, headers, answer = d.complete("say a", named("c", **self.ann))
            self.assertEqual((status, answer["error"]["code"], answer["error"]["param"]),
                             (429, "capacity_exhausted", "session_id"))
            self.assertIn(int(headers["Retry-After"]), range(1, 101))  # when the first of them ends by itself
            self.assertEqual(d.complete("say a", named("c", **self.bob))[0], 200)
            self.assertEqual(d.complete("say a", headers=self.ann)[0], 200)


class Idle(unittest.TestCase):
    def test_ends(self):
        with Daemon(session_ttl=300, sessions=1) as d:
            self.assertEqual(d.complete("say a", named("a"))[0], 200)
            self.assertTrue(d.saw(op="session", action="close", session_id="/a"))
            self.assertTrue(until(lambda: d.complete("say a", named("b"))[0] == 200))
            self.assertEqual(d.complete("say a")[0], 200)

    def test_not_while_it_is_used(self):
        with Daemon(session_ttl=200) as d:
            c, r = d.stream("say a gate", named("a", **{"X-Request-Id": "a"}))
            r.readline()
            self.assertEqual(d.complete("say b wait 0.5", named("b"))[0], 200)  # its time runs from the end of its turn
            self.assertTrue(d.saw(action="close", session_id="/b"))
            self.assertFalse(any(x.get("action") == "close" and x["session_id"] == "/a" for x in d.seen_lines()))
            d.gate.touch()
            self.assertEqual(events(r)[-1], "[DONE]")
            c.close()
            self.assertTrue(d.saw(action="close", session_id="/a"))

    def test_worker_that_died(self):
        """Its sessions are gone; the name stays, and ends without it."""
        with Daemon(session_ttl=700, sessions=1, respawns=100) as d:
            self.assertEqual(d.complete("say a", named("a"))[0], 200)
            self.assertEqual(d.complete("die")[0], 503)
            answer = d.complete("say a", named("a"))
            self.assertEqual((answer[0], answer[2]["hearth"]["session_reset_reason"]), (200, "new"))
            self.assertEqual(d.complete("say a", named("b"))[0], 429)
            self.assertTrue(until(lambda: d.complete("say a", named("b"))[0] == 200))


if __name__ == "__main__":
    unittest.main(argv=["session_script.py", GROUP])

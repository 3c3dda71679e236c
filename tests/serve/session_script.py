#!/usr/bin/python3
"""session_script.py Turns|Owners|Idle|Routes|Ranges SERVE_MAIN, or Ember|Moves|Storm HEARTH MODEL: named sessions from outside, around
stub_worker.py or with the bundled model. Standard library only. Exit 1 if a test fails. The table is in test_session_table.c, the fields in fields_script.py."""
import hashlib
import http.client
import json
import os
import random
import signal
import socket
import tempfile
import threading
import time
import unittest

from serve_rig import GROUP, MODEL, SERVE, Daemon, events, read_all, until

MIB = 1 << 20
KIB = 1024  # bytes that the stub exports for a token


def named(name, **more):
    return {"X-Hearth-Session": name, **more}


def exported(start, count):
    """What the stub gives, and takes, for a range."""
    return f"{start} {count}\n".encode() + b"x" * (KIB * count)


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
            self.assertTrue(until(lambda: d.metrics()['hearth_requests_running{model="stub"}'] == 2))
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
        for who in self.ann, self.bob:
            self.assertEqual(self.d.ask("GET", "/v1/sessions/mine/probe", headers=who)[0], 200)
            self.assertEqual(self.d.ask("PUT", "/v1/sessions/in/import", exported(0, 3), who)[0], 200)
        for action, name in ("probe", "mine"), ("import", "in"):
            lines = [x for x in self.d.seen_lines() if x.get("action") == action]
            self.assertEqual([(x["session_id"], x["cache_namespace"]) for x in lines], [(f"{k}/{name}", k) for k in ("ann", "bob")])

    def test_unknown_and_anothers_are_the_same(self):
        """Byte by byte, on every route."""
        self.assertEqual(self.d.complete("say a", named("secret", **self.ann))[0], 200)
        self.assertEqual(self.d.ask("POST", "/v1/sessions/secret/save", {"name": "secret"}, self.ann)[0], 200)

        def raw(method, path, body=b""):
            head = f"{method} {path} HTTP/1.1\r\nHost: h\r\nx-api-key: key-bob\r\nX-Request-Id: same\r\nContent-Length: {len(body)}"
            s = self.d.raw(head.encode() + b"\r\nConnection: close\r\n\r\n" + body)
            answer = [x for x in read_all(s).split(b"\r\n") if not x.startswith(b"Date")]
            s.close()
            self.assertEqual(answer[0], b"HTTP/1.1 404 Not Found", (method, path, answer))
            self.assertEqual(json.loads(answer[-1])["error"]["code"], "unknown_id")
            return answer

        name = b'{"name": "secret"}'
        for method, path, body in [("GET", "", b""), ("DELETE", "", b""), ("POST", "/reset", b""), ("POST", "/prewarm", b""),
                                   ("POST", "/save", name), ("GET", "/probe", b""), ("GET", "/export?from=0&count=1", b"")]:
            self.assertEqual(raw(method, "/v1/sessions/secret" + path, body), raw(method, "/v1/sessions/absent" + path, body))
        for action in "restore", "drop":  # the names of what is saved are each key's own, too
            path = f"/v1/sessions/secret/{action}"
            self.assertEqual(raw("POST", path, name), raw("POST", path, b'{"name": "absent"}'))
        self.assertNotIn("secret", [x["id"] for x in self.d.ask("GET", "/v1/sessions", headers=self.bob)[2]["data"]])
        self.assertIn("secret", [x["id"] for x in self.d.ask("GET", "/v1/sessions", headers=self.ann)[2]["data"]])
        self.assertEqual(self.d.ask("GET", "/v1/sessions/secret", headers=self.ann)[2]["tokens"], 8)
        self.assertEqual(self.d.ask("GET", "/v1/sessions/secret")[0], 401)

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


class Routes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.d = Daemon()

    @classmethod
    def tearDownClass(cls):
        rc, _ = cls.d.end()
        assert rc == 0, rc

    def one(self, path, status=200, method="GET", body=None):
        got, _, answer = self.d.ask(method, "/v1/sessions" + path, body)
        self.assertEqual(got, status, answer)
        return answer

    def test_life(self):
        before = int(time.time())
        self.d.complete("say a say b", named("life"))
        answer = self.one("/life")
        self.assertEqual(set(answer), {"id", "object", "model", "tokens", "dirty", "busy", "created", "last_used", "expires"})
        self.assertEqual((answer["id"], answer["object"], answer["model"], answer["tokens"], answer["dirty"], answer["busy"]),
                         ("life", "session", "stub", 9, False, False))
        self.assertTrue(before - 1 <= answer["created"] <= answer["last_used"] <= time.time() + 1, answer)
        self.assertTrue(3598 <= answer["expires"] - answer["last_used"] <= 3601, answer)
        listed = {x["id"]: x for x in self.one("")["data"]}
        self.assertEqual({k: v for k, v in listed["life"].items() if k not in ("created", "last_used", "expires")},
                         {k: v for k, v in answer.items() if k not in ("created", "last_used", "expires")})
        self.assertEqual(self.one("")["object"], "list")
        self.assertEqual(self.one("/life/reset", method="POST")["tokens"], 0)
        self.assertEqual(self.one("/life", method="DELETE"), {"id": "life", "object": "session", "deleted": True})
        self.assertEqual(self.one("/life", 404)["error"]["code"], "unknown_id")
        self.assertEqual(self.one("/life", 404, "DELETE")["error"]["code"], "unknown_id")
        self.assertEqual(self.d.complete("say a", named("life"))[2]["hearth"]["session_reset_reason"], "new")

    def test_dirty_and_busy(self):
        c, r = self.d.stream("say a hang", named("cut", **{"X-Request-Id": "cut"}))
        r.readline()
        answer = self.one("/cut")
        self.assertEqual((answer["busy"], answer["expires"]), (True, None))
        self.d.ask("DELETE", "/v1/requests/cut")
        self.assertEqual(events(r)[-1], "[DONE]")
        c.close()
        answer = self.one("/cut")
        self.assertEqual((answer["dirty"], answer["busy"]), (True, False))
        self.assertTrue(until(lambda: {x["id"]: x["dirty"] for x in self.one("")["data"]}["cut"]))
        self.assertFalse(self.one("/cut/reset", method="POST")["dirty"])

    def test_save_and_restore(self):
        self.d.complete("say a", named("one"))
        answer = self.one("/one/save", method="POST", body={"name": "monday-1"})
        self.assertEqual((answer["saved"], answer["tokens"], answer["id"]), ("monday-1", 8, "one"))
        self.assertTrue(self.d.saw(action="save", session_id="/one", name="0-monday-1"))
        self.assertEqual(self.one("/two/restore", method="POST", body={"name": "monday-1"})["restored"], "monday-1")
        self.assertEqual(self.one("/two")["tokens"], 8)
        self.assertEqual(self.one("/three/restore", 404, "POST", {"name": "tuesday"})["error"]["code"], "unknown_id")
        self.one("/three", 404)  # what was refused has made nothing
        self.assertEqual(self.one("/nobody/drop", method="POST", body={"name": "monday-1"}),
                         {"id": "nobody", "object": "session", "dropped": "monday-1"})
        self.one("/nobody", 404)
        self.one("/two/restore", 404, "POST", {"name": "monday-1"})
        self.one("/one/drop", 404, "POST", {"name": "monday-1"})
        for name in None, 5, "", ".a", "a/b", "a:b", "x" * 48, "../a":
            error = self.one("/one/save", 400, "POST", {"name": name})["error"]
            self.assertEqual((error["param"], error["code"]), ("name", "invalid_field"))
        for body in {}, {"name": "a", "path": "/x"}, "[]", "":
            self.one("/one/save", 400, "POST", body)

    def test_prewarm_and_probe(self):
        self.d.complete("say a say b say c", named("warm"))
        answer = self.one("/warm/prewarm", method="POST", body={})
        self.assertEqual((answer["prefilled"], answer["tokens"]), (2, 10))
        answer = self.one("/warm/probe")
        self.assertEqual([answer[k] for k in ("from", "count", "in_memory", "stored")], [0, 10, 10, 0])
        answer = self.one("/warm/probe?from=3&count=5")
        self.assertEqual([answer[k] for k in ("from", "count", "in_memory", "stored")], [3, 5, 5, 0])

    def test_refused(self):
        self.d.complete("say a", named("r"))
        for path, param in [("/r/probe?from=-1", "from"), ("/r/probe?count=x", "count"), ("/r/probe?from=", "from"),
                            ("/r/probe?from=9223372036854775808", "from"), ("/r/probe?from=1&from=2", "from"),
                            ("/r/probe?form=1", "form"), ("/r?from=1", "from"), ("?from=1", "from"), ("/r/export?count=0", "count"),
                            ("/r/export?from=8", "from"), ("/r/export?from=0&count=9", "count"), ("/r/probe?from=%zz", "from"),
                            ("/r/export?from=1%00", "from")]:
            self.assertEqual(self.one(path, 400)["error"]["param"], param, path)
        for path, method, status in [("/r", "POST", 405), ("/r/export", "POST", 405), ("/r/import", "POST", 405), ("", "DELETE", 405),
                                     ("/r/reset", "GET", 405), ("/r/nothing", "POST", 501), ("/r/reset/x", "POST", 501),
                                     ("/", "GET", 501), ("//reset", "POST", 501)]:
            self.one(path, status, method)
        self.one("/r?model=other", 404)
        self.assertEqual(self.one("/r/reset", 400, "POST", {"a": 1})["error"]["param"], "a")
        self.one("/r/reset", 413, "POST", '{"a":"' + "x" * 5000 + '"}')
        for name in "a%20b", "a%2Fb", "%", "%00", "x" * 129:
            self.one("/" + name, 404)
            self.assertEqual(self.one(f"/{name}/import", 400, "PUT", exported(0, 1))["error"]["param"], "session_id")

    def test_escapes(self):
        self.d.complete("say a", named("a:b"))
        for name in "a:b", "a%3Ab", "%61%3ab":
            self.assertEqual(self.one("/" + name)["id"], "a:b")
        self.assertEqual(self.one("/a:b?model=st%75b")["model"], "stub")

    def test_several_models(self):
        worker = ["and", *self.d.process.args[-2:]]
        with Daemon(*worker) as d:
            for model in "stub", "stub-2":
                self.assertEqual(d.complete("say a", named("both"), model=model)[0], 200)
            d.complete("say a", named("second"), model="stub-2")
            self.assertEqual(d.ask("GET", "/v1/sessions/both")[2]["error"]["param"], "model")
            for model in "stub", "stub-2":
                self.assertEqual(d.ask("GET", "/v1/sessions/both?model=" + model)[2]["model"], model)
            self.assertEqual(d.ask("GET", "/v1/sessions/second")[2]["model"], "stub-2")
            self.assertEqual(d.ask("GET", "/v1/sessions/second?model=stub")[0], 404)
            self.assertEqual(d.ask("PUT", "/v1/sessions/third/import?model=stub-2", exported(0, 3))[2]["model"], "stub-2")
            self.assertEqual(d.ask("PUT", "/v1/sessions/fourth/import", exported(0, 3))[2]["model"], "stub")
            self.assertEqual([x["id"] for x in d.ask("GET", "/v1/sessions?model=stub-2")[2]["data"]], ["both", "second", "third"])
            m = d.metrics()
            self.assertEqual([m[f'hearth_sessions_open{{model="{x}"}}'] for x in ("stub", "stub-2")], [2, 3])

    def test_the_worker_is_busy(self):
        """FAILURES H2: GET says what was known before; the others wait."""
        with Daemon("op_gate") as d:
            d.complete("say a", named("s"))
            self.assertEqual(d.ask("GET", "/v1/sessions/s")[2]["tokens"], 8)
            c = http.client.HTTPConnection("127.0.0.1", d.port, timeout=60)
            c.request("DELETE", "/v1/sessions/s")
            self.assertTrue(d.saw(action="close"))
            self.assertEqual(d.ask("GET", "/v1/sessions/s")[0], 200)
            self.assertEqual(len(d.ask("GET", "/v1/sessions")[2]["data"]), 1)
            d.gate.touch()
            self.assertTrue(json.loads(c.getresponse().read())["deleted"])
            c.close()
            self.assertEqual(d.ask("GET", "/v1/sessions/s")[0], 404)

    def test_worker_stands_still(self):
        with Daemon(stall=100000) as d:
            d.complete("say a", named("s"))
            c, r = d.stream("say a freeze", named("t"))
            r.readline()
            self.assertEqual(d.ask("GET", "/v1/sessions/s")[2]["tokens"], 8)  # from memory
            c.close()

    def test_worker_that_died(self):
        with Daemon(respawns=100) as d:
            d.complete("say a", named("s"))
            self.assertEqual(d.complete("die")[0], 503)
            self.assertEqual(d.ask("GET", "/v1/sessions/s")[2]["tokens"], 0)
            self.assertEqual(d.ask("GET", "/v1/sessions/s/export?count=1")[0], 404)
            self.assertEqual(d.ask("DELETE", "/v1/sessions/s")[2]["deleted"], True)
            self.assertEqual(d.ask("GET", "/v1/sessions/s")[0], 404)

    def test_nonsense(self):
        with Daemon("op_nonsense") as d:
            d.complete("say a", named("s"))
            for method, path, body in [("POST", "reset", None), ("GET", "export", None), ("PUT", "import", b"x"),
                                       ("POST", "save", {"name": "a"})]:
                self.assertEqual(d.ask(method, "/v1/sessions/s/" + path, body)[0], 500)
            self.assertEqual(len(d.worker_pids()), 1)


def is_read(s):
    """Whether all that was sent on a connection to this machine has left the kernel's buffers at both ends."""
    ends = {f"{port:04X}" for port in (s.getsockname()[1], s.getpeername()[1])}
    with open("/proc/net/tcp") as f:
        lines = [line.split() for line in f.readlines()[1:]]
    queues = [x[4] for x in lines if {x[1].split(":")[1], x[2].split(":")[1]} == ends]
    return len(queues) == 2 and all(q == "00000000:00000000" for q in queues)


class Ranges(unittest.TestCase):
    """Export and import."""

    def put(self, d, name, data, headers=None):
        return d.ask("PUT", f"/v1/sessions/{name}/import", data, headers)

    def get(self, d, path):
        c = http.client.HTTPConnection("127.0.0.1", d.port, timeout=60)
        c.request("GET", "/v1/sessions/" + path)
        r = c.getresponse()
        data = r.read()
        c.close()
        return r, data

    def test_there_and_back(self):
        with Daemon() as d, Daemon() as other:
            self.assertEqual(self.put(d, "a", exported(0, 100))[2]["tokens"], 100)
            for query, start, count in ("?from=0&count=40", 0, 40), ("?from=40&count=60", 40, 60), ("", 0, 100), ("?from=99", 99, 1):
                r, data = self.get(d, "a/export" + query)
                self.assertEqual((r.status, data), (200, exported(start, count)))
                self.assertEqual([r.headers["X-Hearth-" + k] for k in ("From", "Count", "Tokens")], [str(start), str(count), "100"])
                self.assertEqual(r.headers["Content-Type"], "application/octet-stream")
                self.assertTrue(r.headers["Content-Disposition"].startswith("attachment;"))
                status, _, answer = self.put(other, "b", data)
                self.assertEqual((status, answer["from"], answer["count"], answer["id"]), (200, start, count, "b"))
            self.assertEqual(other.ask("GET", "/v1/sessions/b")[2]["tokens"], 100)
            status, _, answer = self.put(other, "c", b"garbage")
            self.assertEqual((status, answer["error"]["param"]), (400, "checksum"))
            self.assertEqual(other.ask("GET", "/v1/sessions/c")[0], 404)
            self.assertEqual(self.put(other, "b", b"")[0], 400)

    def test_large(self):
        """64 MiB are too much by a line here: the head of the stub's bytes."""
        with Daemon(body=100000) as d:
            n = 65535
            data = exported(0, n)
            self.assertEqual(self.put(d, "a", data)[2]["tokens"], n)
            self.assertEqual(d.complete("x" * 200000)[0], 413)  # the limit of other routes stays
            r, back = self.get(d, "a/export")
            self.assertEqual((r.status, len(back), back == data), (200, len(data), True))
            s = d.raw(f"PUT /v1/sessions/a/import HTTP/1.1\r\nHost: h\r\nContent-Length: {64 * MIB + 1}\r\n\r\n".encode())
            self.assertTrue(s.recv(1000).startswith(b"HTTP/1.1 413 "))  # before a byte of it has come
            s.close()
            self.assertEqual(len(d.worker_pids()), 1)

    def test_bodies_have_a_budget(self):
        """Large ones leave room for the common ones."""
        if os.environ.get("HEARTH_TEST_END_S", "5") != "5":
            self.skipTest("with a sanitizer 128 MiB take longer than the daemon waits for a body that stands still")
        with Daemon(body=100000) as d:
            slow = []
            for _ in range(2):
                s = d.raw(f"PUT /v1/sessions/a/import HTTP/1.1\r\nHost: h\r\nContent-Length: {64 * MIB}\r\n\r\n".encode())
                s.sendall(b"x" * (64 * MIB - 1))
                slow.append(s)
            # Not before both are held: one more that is taken meanwhile would leave the second of them no room.
            self.assertTrue(until(lambda: all(is_read(s) for s in slow)))
            self.assertEqual(self.put(d, "b", exported(0, 1000))[0], 429)
            self.assertEqual(d.complete("say a")[0], 200)
            for s in slow:
                s.close()
            self.assertTrue(until(lambda: self.put(d, "b", exported(0, 1000))[0] == 200))

    def test_downloads_have_a_budget(self):
        """Until their clients have read them."""
        with Daemon() as d:
            self.put(d, "a", exported(0, 60000))
            slow = [d.raw(b"GET /v1/sessions/a/export HTTP/1.1\r\nHost: h\r\n\r\n") for _ in range(4)]
            for s in slow:
                s.recv(10)
            status, headers, answer = d.ask("GET", "/v1/sessions/a/export")
            self.assertEqual((status, answer["error"]["code"], headers["Retry-After"]), (429, "queue_full", "1"))
            slow.pop().close()
            self.assertTrue(until(lambda: self.get(d, "a/export?count=5")[0].status == 200))
            for s in slow:
                s.close()

    def test_client_leaves(self):
        """In the middle of its body, while the worker works, and in the middle of the answer."""
        with Daemon("op_gate") as d:
            d.complete("say a", named("a"))
            s = d.raw(b"PUT /v1/sessions/new/import HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 500000)
            s.close()
            waiting = []
            for request in (b"GET /v1/sessions/a/export?count=8 HTTP/1.1\r\nHost: h\r\n\r\n",
                            b"PUT /v1/sessions/b/import HTTP/1.1\r\nHost: h\r\nContent-Length: 2052\r\n\r\n" + exported(0, 2)):
                waiting.append(d.raw(request))
            self.assertTrue(d.saw(action="export"))
            self.assertTrue(d.saw(action="import"))
            for s in waiting:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                s.close()
            self.assertTrue(until(lambda: sum(v for k, v in d.metrics().items() if k.startswith("hearth_clients_gone")) >= 2))
            d.gate.touch()
            self.assertTrue(until(lambda: d.ask("GET", "/v1/sessions/b")[2].get("tokens") == 2))  # it goes on without its client
            self.assertEqual(d.ask("GET", "/v1/sessions/new")[0], 404)
            self.put(d, "c", exported(0, 60000))
            for _ in range(5):  # more than may be held at once
                s = d.raw(b"GET /v1/sessions/c/export HTTP/1.1\r\nHost: h\r\n\r\n")
                s.recv(1000)
                s.close()
                self.assertTrue(until(lambda: self.get(d, "c/export?count=1")[0].status == 200))
            self.assertEqual(len(d.worker_pids()), 1)

    def test_stop_in_the_middle(self):
        """Everything that is under way goes with the daemon (a sanitizer sees what does not)."""
        d = Daemon("op_gate", drain=0)
        d.complete("say a", named("a"))
        sockets = [d.raw(b"GET /v1/sessions/a/export?count=8 HTTP/1.1\r\nHost: h\r\n\r\n"),
                   d.raw(b"PUT /v1/sessions/b/import HTTP/1.1\r\nHost: h\r\nContent-Length: 2052\r\n\r\n" + exported(0, 2)),
                   d.raw(b"PUT /v1/sessions/b/import HTTP/1.1\r\nHost: h\r\nContent-Length: 60000000\r\n\r\n" + b"x" * 1000000)]
        self.assertTrue(d.saw(action="export"))
        self.assertTrue(d.saw(action="import"))
        self.assertEqual(d.end()[0], 0)
        for s in sockets:
            s.close()


QUESTIONS = "Hello! Who are you?", "What is a lighthouse?", "Thank you. Tell me more."


def ember(*options, **more):
    return Daemon(argv=[SERVE, "serve", "-m", MODEL[0], "--port", "0", "--threads", "1", *options], **more)


def conversation(d, name=None, n=3, **more):
    """Asks the questions. Returns the answers."""
    talk, answers = [], []
    for question in QUESTIONS[:n]:
        talk.append({"role": "user", "content": question})
        answers.append(say(d, talk, name, **more))
        talk.append(answers[-1]["choices"][0]["message"])
    return answers


def say(d, talk, name=None, **more):
    status, _, answer = d.ask("POST", "/v1/chat/completions", {"messages": talk, "max_tokens": 40, "temperature": 0, **more},
                              named(name) if name else {})
    assert status == 200, answer
    return answer


def said(answer):
    return answer["choices"][0]["message"], answer["choices"][0]["finish_reason"], answer["usage"]["completion_tokens"]


def tokens_of(answer):
    return answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"], \
        answer["usage"]["prompt_tokens_details"]["cached_tokens"]


class Ember(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.d = ember()

    @classmethod
    def tearDownClass(cls):
        rc, _ = cls.d.end()
        assert rc == 0, rc

    def cold(self, talk, **more):
        with ember() as d:
            return say(d, talk, **more)

    def test_nothing_is_read_twice(self):
        """Replies that end by themselves, and replies that are cut: their last token is in the session too."""
        for more in {}, {"max_tokens": 5}:
            with ember() as d, ember() as other:  # in one daemon the answers to other tests would be known too
                answers = conversation(d, "s", **more)
                self.assertEqual([a["hearth"]["session_reset_reason"] for a in answers], ["new", "exact_prefix", "exact_prefix"])
                self.assertEqual(tokens_of(answers[0])[2], 0)
                for before, answer in zip(answers, answers[1:]):
                    self.assertEqual(tokens_of(answer)[2], sum(tokens_of(before)[:2]))
                self.assertEqual(d.ask("GET", "/v1/sessions/s")[2]["tokens"], sum(tokens_of(answers[-1])[:2]))
                self.assertEqual([said(a) for a in conversation(other, **more)], [said(a) for a in answers])

    def test_going_back(self):
        """Regenerate, edit, go back: what is shared is not read again, and the reply is that of a cold run."""
        answers = conversation(self.d, "back")
        talk = [{"role": "user", "content": QUESTIONS[0]}, answers[0]["choices"][0]["message"],
                {"role": "user", "content": "What is a river?"}]
        answer = say(self.d, talk, "back")
        self.assertGreaterEqual(tokens_of(answer)[2], sum(tokens_of(answers[0])[:2]) // 32 * 32)
        self.assertEqual(said(answer), said(self.cold(talk)))

    def test_reset_and_delete(self):
        for how in "reset", "delete":
            first = conversation(self.d, how, 1)[0]
            if how == "reset":
                self.assertEqual(self.d.ask("POST", "/v1/sessions/reset/reset")[2]["tokens"], 0)
            else:
                self.assertEqual(self.d.ask("DELETE", "/v1/sessions/delete")[0], 200)
            again = conversation(self.d, how, 1)[0]
            self.assertEqual(again["hearth"]["session_reset_reason"], "new")
            self.assertEqual(said(again), said(first))

    def test_more_sessions_than_lanes(self):
        """A session that is idle holds no lane."""
        with ember("--max-sessions", "2") as d:
            first = [conversation(d, f"s{i}", 1)[0] for i in range(8)]
            talk = [{"role": "user", "content": QUESTIONS[0]}, first[0]["choices"][0]["message"],
                    {"role": "user", "content": QUESTIONS[1]}]
            for i in range(8):
                answer = say(d, talk, f"s{i}")
                self.assertEqual(answer["hearth"]["session_reset_reason"], "exact_prefix")

    def test_time_is_over(self):
        with ember("--session-ttl", "0.5") as d:
            first = conversation(d, "s", 2)
            self.assertTrue(until(lambda: d.ask("GET", "/v1/sessions/s")[0] == 404))
            again = conversation(d, "s", 2)
            self.assertEqual([a["hearth"]["session_reset_reason"] for a in again], ["new", "exact_prefix"])
            self.assertEqual([said(a) for a in again], [said(a) for a in first])

    def test_two_keys(self):
        """FAILURES P7: the same name and the same words, and never the other's state."""
        with tempfile.NamedTemporaryFile("w") as file:
            for name in "ann", "bob":
                file.write(f"{name} {hashlib.sha256(name.encode()).hexdigest()}\n")
            file.flush()
            with ember("--api-keys", file.name) as d:
                cached = []
                for who in "ann", "bob", "ann":
                    status, _, answer = d.ask("POST", "/v1/chat/completions", {
                        "messages": [{"role": "user", "content": QUESTIONS[0]}], "max_tokens": 40, "temperature": 0, "session_id": "s"},
                        {"x-api-key": who})
                    self.assertEqual(status, 200, answer)
                    cached.append((tokens_of(answer)[2], answer["hearth"]["session_reset_reason"]))
                n = tokens_of(answer)[0] - 1
                self.assertEqual(cached, [(0, "new"), (0, "new"), (n, "equal")])
                self.assertEqual(d.ask("DELETE", "/v1/sessions/s", headers={"x-api-key": "bob"})[0], 200)
                self.assertEqual(d.ask("GET", "/v1/sessions/s", headers={"x-api-key": "ann"})[0], 200)

    def test_cut_turn(self):
        """FAILURES C6: turn 1 is dropped in the middle, turn 2 comes at once: the session is whole."""
        talk = [{"role": "user", "content": QUESTIONS[0]}]
        body = {"messages": talk, "temperature": 0, "ignore_eos": True, "max_tokens": 2000, "stream": True}
        for _ in range(5):
            c = http.client.HTTPConnection("127.0.0.1", self.d.port, timeout=60)
            c.request("POST", "/v1/chat/completions", json.dumps(body), named("dropped"))
            r = c.getresponse()
            r.readline()
            c.sock.shutdown(socket.SHUT_RDWR)
            c.close()
            answer = say(self.d, talk, "dropped")
            self.assertIn(answer["hearth"]["session_reset_reason"], ("dirty", "equal", "new"))
            self.assertEqual(said(answer), said(self.cold(talk)))
        self.assertTrue(self.d.is_at_rest())


class Moves(unittest.TestCase):
    """A session that goes from one daemon to another."""

    def move(self, a, b, name, step):
        """Range by range. Returns the number of tokens."""
        tokens = a.ask("GET", "/v1/sessions/" + name)[2]["tokens"]
        for start in range(0, tokens, step):
            c = http.client.HTTPConnection("127.0.0.1", a.port, timeout=60)
            c.request("GET", f"/v1/sessions/{name}/export?from={start}&count={min(step, tokens - start)}")
            r = c.getresponse()
            data = r.read()
            c.close()
            self.assertEqual((r.status, r.headers["X-Hearth-From"], r.headers["X-Hearth-Tokens"]), (200, str(start), str(tokens)), data)
            status, _, answer = b.ask("PUT", f"/v1/sessions/{name}/import", data)
            self.assertEqual((status, answer.get("tokens")), (200, min(start + step, tokens)), answer)
        return tokens

    def test_into_another_cpu(self):
        """The next reply there is the one of a cold start, and nothing is read again."""
        for step in 7, 32, 1000:
            with self.subTest(step=step), ember() as a, ember("--cpu", "ref") as b, ember("--cpu", "avx2") as cold:
                answers = conversation(a, "s", 2)
                talk = [m for q, x in zip(QUESTIONS, answers) for m in ({"role": "user", "content": q}, x["choices"][0]["message"])]
                talk.append({"role": "user", "content": QUESTIONS[2]})
                tokens = self.move(a, b, "s", step)
                self.assertEqual(tokens, sum(tokens_of(answers[-1])[:2]))
                moved, stayed, fresh = say(b, talk, "s"), say(a, talk, "s"), say(cold, talk)
                self.assertEqual([said(moved), said(stayed)], [said(fresh)] * 2)
                self.assertEqual(tokens_of(moved)[2], tokens)
                self.assertEqual(moved["hearth"]["session_reset_reason"], "exact_prefix")

    def test_refused(self):
        with ember() as a, ember("--kv-type", "f32") as b:
            conversation(a, "s", 1)
            c = http.client.HTTPConnection("127.0.0.1", a.port, timeout=60)
            c.request("GET", "/v1/sessions/s/export?from=0&count=20")
            data = bytearray(c.getresponse().read())
            c.request("GET", "/v1/sessions/s/export?from=10&count=5")
            hole = c.getresponse().read()
            c.close()
            self.assertEqual(b.ask("PUT", "/v1/sessions/s/import", bytes(data))[0], 400)  # another KV type
            self.assertEqual(a.ask("PUT", "/v1/sessions/new/import", hole)[0], 400)
            for at in 0, 9, len(data) // 2, len(data) - 1:
                data[at] ^= 1
                status, _, answer = a.ask("PUT", "/v1/sessions/new/import", bytes(data))
                self.assertEqual((status, answer["error"]["code"]), (400, "invalid_field"), answer)
                data[at] ^= 1
            for n in 1, 8, 100, len(data) - 1:
                self.assertEqual(a.ask("PUT", "/v1/sessions/new/import", bytes(data[:n]))[0], 400)
            self.assertEqual(a.ask("GET", "/v1/sessions/new")[0], 404)
            self.assertEqual(a.ask("PUT", "/v1/sessions/new/import", bytes(data))[0], 200)
            self.assertEqual(len(a.worker_pids()) + len(b.worker_pids()), 2)
            for query, param in ("?from=0&count=100000", "count"), ("?from=100000&count=1", "from"), \
                    ("?from=1&count=9223372036854775807", "count"):
                status, _, answer = a.ask("GET", "/v1/sessions/s/export" + query)
                self.assertEqual((status, answer["error"]["code"]), (400, "invalid_field"), answer)
                self.assertIn(answer["error"]["param"], ("from", "count"))
                self.assertNotIn("/s", answer["error"]["message"], param)

    def test_save_and_restore(self):
        with ember() as d:
            conversation(d, "s", 1)
            tokens = d.ask("GET", "/v1/sessions/s")[2]["tokens"]
            self.assertEqual(d.ask("POST", "/v1/sessions/s/save", {"name": "a"})[2]["tokens"], tokens)
            conversation(d, "s", 2)
            self.assertEqual(d.ask("POST", "/v1/sessions/s/restore", {"name": "a"})[2]["tokens"], tokens)  # downwards
            self.assertEqual(d.ask("POST", "/v1/sessions/t/restore", {"name": "a"})[2]["tokens"], tokens)  # into a new one
            talk = [{"role": "user", "content": QUESTIONS[0]}]
            answer = say(d, talk, "t")
            self.assertEqual(answer["hearth"]["session_reset_reason"], "equal")
            self.assertEqual(d.ask("POST", "/v1/sessions/t/drop", {"name": "a"})[0], 200)
            self.assertEqual(d.ask("POST", "/v1/sessions/t/restore", {"name": "a"})[0], 404)

    def test_saved_beyond_a_restart(self):
        """FAILURES P5: with another number of threads and another instruction set; another KV type is refused."""
        with tempfile.TemporaryDirectory() as folder:
            with ember("--store", folder) as d:
                answers = conversation(d, "s", 2)
                tokens = d.ask("POST", "/v1/sessions/s/save", {"name": "a"})[2]["tokens"]
                self.assertEqual(tokens, sum(tokens_of(answers[-1])[:2]))
                self.assertEqual(d.ask("DELETE", "/v1/sessions/s")[0], 200)
            talk = [m for q, x in zip(QUESTIONS, answers) for m in ({"role": "user", "content": q}, x["choices"][0]["message"])]
            talk.append({"role": "user", "content": QUESTIONS[2]})
            with ember() as cold:
                want = said(say(cold, talk))
            with ember("--store", folder, "--threads", "2", "--cpu", "avx2") as d:
                self.assertEqual(d.ask("POST", "/v1/sessions/t/restore", {"name": "a"})[2]["tokens"], tokens)
                self.assertEqual(d.ask("GET", "/v1/sessions/t")[2]["tokens"], tokens)
                answer = say(d, talk, "t")
                self.assertEqual(answer["hearth"]["session_reset_reason"], "exact_prefix")
                self.assertEqual(said(answer), want)
                self.assertGreaterEqual(tokens_of(answer)[2], tokens // 32 * 32)  # whole pages come from the store
            with ember("--store", folder, "--kv-type", "f32") as d:
                status, _, answer = d.ask("POST", "/v1/sessions/t/restore", {"name": "a"})
                self.assertEqual((status, answer["error"]["param"]), (400, "name"), answer)
                self.assertIn("kv type", answer["error"]["message"])
                self.assertEqual(d.ask("GET", "/v1/sessions/t")[0], 404)

    def test_old_conversation(self):
        """Nobody asked for it: after a restart, also one after a crash, the first turn reads only what fills no page."""
        story = " ".join(f"In year {n} the keeper of the lighthouse wrote {n % 7} letters." for n in range(1801, 1820))
        talk = [{"role": "user", "content": story + " What is a lighthouse?"}]

        def turn(d, question, name="s"):
            answer = say(d, talk, name)
            talk.extend([answer["choices"][0]["message"], {"role": "user", "content": question}])
            return answer

        with tempfile.TemporaryDirectory() as folder:
            with ember(cache=folder) as d:
                turn(d, "Thank you.")
                tokens = sum(tokens_of(turn(d, "What is a river?"))[:2])
            self.assertGreater(tokens, 6 * 32)
            with ember() as cold:
                want = said(say(cold, talk))
            with ember(cache=folder) as d:
                answer = turn(d, "And a sea?")
                self.assertEqual(said(answer), want)
                self.assertEqual(tokens_of(answer)[2], tokens // 32 * 32)
                self.assertEqual(answer["hearth"]["session_reset_reason"], "new")
                for pid in d.worker_pids():
                    os.kill(pid, signal.SIGKILL)
                d.end(signal.SIGKILL)
            with ember("--cpu", "ref", cache=folder) as d, ember() as cold:
                answer = say(d, talk)  # by a stranger
                self.assertEqual(said(answer), said(say(cold, talk)))
                self.assertGreaterEqual(tokens_of(answer)[2], tokens // 32 * 32)  # what was new when it crashed may be there
            with ember("--no-store", cache=folder) as d:
                self.assertEqual(tokens_of(say(d, talk))[2], 0)

    def test_nothing_to_save_in(self):
        with ember("--no-store") as d:
            conversation(d, "s", 1)
            status, _, answer = d.ask("POST", "/v1/sessions/s/save", {"name": "a"})
            self.assertEqual((status, answer["error"]["code"], answer["error"]["param"]), (400, "unsupported", None))

    def test_prewarm_and_probe(self):
        with ember() as d:
            conversation(d, "s", 1)
            tokens = d.ask("GET", "/v1/sessions/s")[2]["tokens"]
            answer = d.ask("POST", "/v1/sessions/s/prewarm")[2]
            self.assertEqual((answer["tokens"], answer["prefilled"]), (tokens, 0))
            answer = d.ask("GET", "/v1/sessions/s/probe")[2]
            self.assertEqual((answer["from"], answer["count"], answer["in_memory"]), (0, tokens, tokens))


class Storm(unittest.TestCase):
    """Everything at once: each reply that comes is the right one, nobody's worker dies, and nothing is left."""

    def client(self, d, seed, right, wrong):
        dice = random.Random(seed)
        parts = []
        for _ in range(60):
            name, n = f"s{dice.randrange(4)}", dice.randrange(len(right))
            what = dice.choice(["say", "say", "say", "cut", "cut", "delete", "reset", "get", "list", "export", "import", "prewarm",
                                "probe", "leave"])
            path, got = f"/v1/sessions/{name}", None
            if what == "say":
                got = d.ask("POST", "/v1/chat/completions", {"messages": right[n][0], "max_tokens": 40, "temperature": 0}, named(name))
                if got[0] == 200 and said(got[2]) != right[n][1]:
                    wrong.append((seed, name, n, got))
            elif what == "cut":
                c, r = d.stream("a", path="/v1/chat/completions", headers=named(name), ignore_eos=True, max_tokens=300)
                r.readline() if dice.random() < 0.5 else None
                c.close()
            elif what == "leave":
                s = d.raw(f"GET {path}/export HTTP/1.1\r\nHost: h\r\n\r\n".encode())
                s.close()
            elif what == "export":
                c = http.client.HTTPConnection("127.0.0.1", d.port, timeout=60)
                c.request("GET", f"{path}/export?count={dice.randrange(1, 40)}")
                r = c.getresponse()
                data = r.read()
                c.close()
                got = (r.status, None, data)
                if r.status == 200:
                    parts.append(data)
            elif what == "import":
                got = d.ask("PUT", path + "/import", dice.choice(parts) if parts else b"x")
            else:
                method, path = {"delete": ("DELETE", path), "reset": ("POST", path + "/reset"), "get": ("GET", path),
                                "list": ("GET", "/v1/sessions"), "prewarm": ("POST", path + "/prewarm"),
                                "probe": ("GET", path + "/probe")}[what]
                got = d.ask(method, path)
            if got and got[0] not in (200, 400, 404, 429):
                wrong.append((seed, what, got))

    def test_storm(self):
        with ember() as d:
            right, talk = [], []
            for question in QUESTIONS:
                talk.append({"role": "user", "content": question})
                answer = say(d, talk)
                right.append((list(talk), said(answer)))
                talk.append(answer["choices"][0]["message"])
        wrong = []
        with ember("--session-ttl", "0.3", "--max-sessions", "3") as d:
            threads = [threading.Thread(target=self.client, args=(d, seed, right, wrong)) for seed in range(6)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            self.assertEqual(wrong, [])
            self.assertTrue(d.is_at_rest())
            self.assertTrue(until(lambda: d.metrics()['hearth_sessions_open{model="ember"}'] == 0))
            self.assertEqual(len(d.worker_pids()), 1)
            self.assertEqual(said(say(d, right[0][0], "s0")), right[0][1])


if __name__ == "__main__":
    unittest.main(argv=["session_script.py", GROUP])

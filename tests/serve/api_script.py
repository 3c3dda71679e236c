#!/usr/bin/python3
"""api_script.py Answers|Responses|Streams|Requests|Keys|Queue|Clients SERVE_MAIN: what the API answers, over HTTP around stub_worker.py.
Standard library only. Exit 1 if a test fails. The shapes of bodies and answers in detail are in test_completion.c, test_chat.c
and test_answer.c; with a real worker in serve_script.py."""
import hashlib
import http.client
import json
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from serve_rig import GROUP, Daemon, comments, events, post, read_all, sweep_numbers, text_of, until

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"


class Shared(unittest.TestCase):
    mode, options = (), {}

    @classmethod
    def setUpClass(cls):
        cls.d = Daemon(*cls.mode, **cls.options)

    @classmethod
    def tearDownClass(cls):
        rc, _ = cls.d.end()
        assert rc == 0, rc
        assert [line for line in cls.d.log if "worker=gone" in line and "cause=stopped" not in line] == []


class Answers(Shared):
    def test_health_and_models(self):
        for path in "/health?x=1", "/ready":
            status, headers, body = self.d.ask("GET", path)
            self.assertEqual((status, body), (200, {"status": "ok"}))
            self.assertEqual(headers["Content-Type"], "application/json")
        status, _, body = self.d.ask("GET", "/v1/models")
        self.assertEqual((status, body["object"], [m["id"] for m in body["data"]]), (200, "list", ["stub"]))
        one = body["data"][0]
        self.assertEqual((one["object"], one["hearth"]["context_length"], one["hearth"]["status"]), ("model", 4096, "ready"))
        self.assertEqual(one["hearth"]["sampling"]["temperature"], 1)
        self.assertEqual(self.d.ask("GET", "/v1/models/stub")[2], one)
        self.assertEqual(self.d.ask("GET", "/v1/models/stu")[2]["error"]["code"], "model_not_found")

    def test_whole(self):
        status, headers, body = self.d.complete("say hello say w\u00f6rld length", seed=41)
        self.assertEqual((status, body["object"], body["model"]), (200, "text_completion", "stub"))
        self.assertEqual(body["id"], "cmpl-" + headers["X-Request-Id"].removeprefix("req_"))
        self.assertLess(abs(body["created"] - time.time()), 60)
        self.assertEqual(body["choices"],
                         [{"index": 0, "text": "hello w\u00f6rld ", "logprobs": None, "finish_reason": "length"}])
        self.assertEqual(body["usage"], {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9,
                                         "prompt_tokens_details": {"cached_tokens": 3}})
        self.assertEqual((body["hearth"]["finish"], body["hearth"]["seed"]), ("length", 41))

    def test_stream(self):
        c, r = self.d.stream("say a say b", stream_options={"include_usage": True})
        self.assertEqual((r.status, r.headers["Content-Type"]), (200, "text/event-stream; charset=utf-8"))
        data = events(r)
        self.assertEqual(data[-1], "[DONE]")
        chunks = [json.loads(x) for x in data[:-1]]
        self.assertEqual([x["choices"][0]["text"] for x in chunks[:-1]], ["a ", "b ", ""])
        self.assertEqual([x["choices"][0]["finish_reason"] for x in chunks[:-1]], [None, None, "stop"])
        self.assertEqual((chunks[-1]["choices"], chunks[-1]["usage"]["total_tokens"]), ([], 9))
        self.assertTrue(all(x["usage"] is None for x in chunks[:-1]))
        self.assertEqual({x["id"] for x in chunks}, {"cmpl-" + r.headers["X-Request-Id"].removeprefix("req_")})
        self.assertEqual(chunks[2]["hearth"]["finish"], "stop")
        c.request("GET", "/health")  # the connection goes on after a stream
        self.assertEqual(c.getresponse().status, 200)
        c.close()

    def test_chat(self):
        status, headers, body = self.d.chat("say hello", max_completion_tokens=4)
        self.assertEqual((status, body["object"]), (200, "chat.completion"))
        self.assertEqual(body["id"], "chatcmpl-" + headers["X-Request-Id"].removeprefix("req_"))
        self.assertEqual(body["choices"], [{"index": 0, "message": {"role": "assistant", "content": "hello ", "refusal": None},
                                            "logprobs": None, "finish_reason": "stop"}])
        chunks = self.d.chunks("say a say b", path="/v1/chat/completions", n=2)
        for i in range(2):
            mine = [x["choices"][0] for x in chunks if x["choices"][0]["index"] == i]
            self.assertEqual([m["delta"] for m in mine],
                             [{"role": "assistant", "content": ""}, {"content": "a "}, {"content": "b "}, {}])
            self.assertEqual([m["finish_reason"] for m in mine], [None, None, None, "stop"])
        self.assertEqual({x["object"] for x in chunks}, {"chat.completion.chunk"})
        self.assertTrue(self.d.saw(op="chat", max_new_tokens=4))

    def test_chat_has_a_role_when_nothing_is_said(self):
        chunks = self.d.chunks("length", path="/v1/chat/completions")
        self.assertEqual([x["choices"][0]["delta"] for x in chunks], [{"role": "assistant", "content": ""}, {}])

    def test_chat_with_tools(self):
        """Calls and reasoning, whole and in pieces, of the same frames; a call that was none is text again."""
        f = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
        called = {"id": "call_0", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
        rows = [('think why think not say so call f args {"a": args 1} called', "so ", "why not ", [called], "tool_calls"),
                ('call f args {"a": args 1} called call g args {} called', None, "",
                 [called, {"id": "call_1", "type": "function", "function": {"name": "g", "arguments": "{}"}}], "tool_calls"),
                ('call f args {"a": args 1} called length', None, "", [called], "length"),
                ('call f args {"a length', None, "", [{**called, "function": {"name": "f", "arguments": '{"a'}}], "length"),
                ('think why call f args {"a withdraw say <f>{"a', '<f>{"a ', "why ", [], "stop"),
                ('say a call f args {"a": args 1} called call g withdraw say b', "a b ", "", [called], "tool_calls")]
        for words, content, thoughts, calls, finish in rows:
            status, _, body = self.d.chat(words, tools=[f])
            self.assertEqual(status, 200, body)
            message = body["choices"][0]["message"]
            self.assertEqual((message["content"], message.get("reasoning_content", ""), message.get("tool_calls", []),
                              body["choices"][0]["finish_reason"]), (content, thoughts, calls, finish), words)
            self.assertEqual(body["usage"]["completion_tokens_details"], {"reasoning_tokens": words.count("think")})
            chunks = self.d.chunks(words, path="/v1/chat/completions", tools=[f], stream_options={"include_usage": True})
            self.assertEqual([x["usage"] for x in chunks if x.get("usage")], [body["usage"]])
            deltas = [c["delta"] for x in chunks for c in x["choices"]]
            self.assertEqual("".join(d.get("content", "") for d in deltas), content or "")
            self.assertEqual("".join(d.get("reasoning_content", "") for d in deltas), thoughts)
            self.assertEqual([c["finish_reason"] for x in chunks for c in x["choices"] if c["finish_reason"]], [finish])
            told = {}
            for part in (p for d in deltas for p in d.get("tool_calls", [])):
                if "id" in part:  # the first of a call, as OpenAI's: no arguments yet
                    self.assertEqual(part, {"index": len(told), "id": part["id"], "type": "function",
                                            "function": {"name": part["function"]["name"], "arguments": ""}})
                    told[part["index"]] = {k: v for k, v in part.items() if k != "index"}
                else:
                    self.assertEqual(sorted(part), ["function", "index"])
                    told[part["index"]]["function"]["arguments"] += part["function"]["arguments"]
            withdrawn = [1] if " g withdraw" in words else [0] if "withdraw" in words else []
            self.assertEqual([c for i, c in told.items() if i not in withdrawn], calls)

    def test_chat_on_the_wire(self):
        tools = [{"type": "function", "function": {"name": "f"}}]
        talk = [{"role": "developer", "content": "d"}, {"role": "user", "content": [{"type": "text", "text": "request"}]}]
        body = self.d.ask("POST", "/v1/chat/completions", {
            "messages": talk, "tools": tools, "tool_choice": {"type": "function", "function": {"name": "f"}},
            "parallel_tool_calls": False, "reasoning_effort": "low", "enable_thinking": True, "reasoning_budget": 5,
            "chat_template_kwargs": {"k": 1}, "seed": 1})[2]
        line = json.loads(body["choices"][0]["message"]["content"])
        for name in "id", "now":
            line.pop(name)
        self.assertEqual(line, {
            "op": "chat", "messages": [{"role": "system", "content": "d"}, {"role": "user", "content": "request"}], "tools": tools,
            "tool_choice": {"name": "f"}, "parallel_tool_calls": False, "template_kwargs": {"k": 1}, "temperature": 1, "seed": 2,
            "reasoning": {"budget": 5, "effort": "low", "enabled": True}})

    def test_apply_template(self):
        talk = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
        status, _, body = self.d.ask("POST", "/apply-template", {"messages": talk, "continue_final_message": True})
        self.assertEqual((status, list(body)), (200, ["prompt"]))
        line = json.loads(body["prompt"])
        self.assertLess(abs(line.pop("now") - 1000 * time.time()), 60000)
        line.pop("id")
        self.assertEqual(line, {"op": "render", "messages": talk, "continue_final_message": True})
        for more, param, code in [({"messages": []}, "messages", "invalid_field"), ({"prompt": "a"}, "prompt", "unsupported"),
                                  ({"messages": [{"role": "user", "content": "error"}]}, "messages", "template_error"),
                                  ({"model": "other"}, "model", "model_not_found")]:
            status, _, body = self.d.ask("POST", "/apply-template", {"messages": talk, **more})
            self.assertEqual((status, body["error"]["param"], body["error"]["code"]),
                             (404 if param == "model" else 400, param, code))

    def test_several_choices(self):
        body = self.d.complete(["say a", "say b length"], n=3, seed=5)[2]
        self.assertEqual([(c["index"], c["text"], c["finish_reason"]) for c in body["choices"]],
                         [(i, "a " if i < 3 else "b ", "stop" if i < 3 else "length") for i in range(6)])
        self.assertEqual([h["seed"] for h in body["hearth"]["choices"]], [5, 6, 7, 5, 6, 7])
        self.assertEqual(body["usage"]["prompt_tokens"], 14)
        self.assertEqual(body["usage"]["completion_tokens"], 6)
        chunks = self.d.chunks(["say a", "say b"], n=2)
        self.assertEqual([text_of(chunks, i) for i in range(4)], ["a ", "a ", "b ", "b "])
        self.assertEqual(sorted(c["index"] for x in chunks for c in x["choices"] if c["finish_reason"]), [0, 1, 2, 3])

    def test_one_choice_fails_all_fail(self):
        for stream in False, True:
            body = self.d.complete(["wait 0.1 say a hang", "error nonfinite"], stream=stream)[2]
            e = body["error"] if isinstance(body, dict) else json.loads(body.split("data: ")[-1])["error"]
            self.assertEqual(e["code"], "nonfinite")
        self.assertTrue(self.d.is_at_rest())  # the one that hangs was cancelled

    def test_logprobs(self):
        whole = self.d.complete("say a say b", logprobs=2)[2]["choices"][0]["logprobs"]
        self.assertEqual(whole, {"tokens": ["a ", "b "], "token_logprobs": [-0.5, -0.5],
                                 "top_logprobs": [{"a ": -0.5, "alt1 ": -1.5}, {"alt0 ": -0.5, "b ": -1.5}],
                                 "text_offset": [0, 2]})
        chunks = self.d.chunks("say a say b", logprobs=2)
        for key, want in whole.items():
            got = [v for x in chunks for v in (x["choices"][0]["logprobs"] or {key: []})[key]]
            self.assertEqual(got, want)
        chat = self.d.chat("say a", logprobs=True, top_logprobs=1)[2]["choices"][0]["logprobs"]
        one = {"token": "a ", "logprob": -0.5, "bytes": [97, 32]}
        self.assertEqual(chat, {"content": [{**one, "top_logprobs": [one]}], "refusal": None})

    def test_logprobs_of_nothing(self):
        """A reply without a token: an empty list, streamed or not; none where none was asked for."""
        for path, fields, empty in [
                ("/v1/chat/completions", {"logprobs": True}, {"content": [], "refusal": None}), ("/v1/chat/completions", {}, None),
                ("/v1/completions", {"logprobs": 0}, {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}),
                ("/v1/completions", {}, None)]:
            chat = path.endswith("chat/completions")
            whole = (self.d.chat if chat else self.d.complete)("length", **fields)[2]["choices"][0]
            chunks = [x["choices"][0] for x in self.d.chunks("length", path=path, **fields)]
            self.assertEqual((whole["logprobs"], whole["finish_reason"]), (empty, "length"))
            self.assertEqual([c["logprobs"] for c in chunks], [None] * (len(chunks) - 1) + [empty])

    def test_echo(self):
        self.assertEqual(self.d.complete("say a", echo=True)[2]["choices"][0]["text"], "say aa ")
        self.assertEqual(text_of(self.d.chunks("say a", echo=True)), "say aa ")
        several = self.d.complete([[1, 2], [3]], echo=True, n=2)[2]["choices"]
        self.assertTrue(all(c["text"].startswith("1 2" if c["index"] < 2 else "3") for c in several))

    def test_request_on_the_wire(self):
        body = self.d.complete([1, 2], max_tokens=3, temperature=0.5, top_p=0.5, top_k=4, seed=0, stop="x",
                               hearth={"deadline_ms": 60000})[2]
        line = json.loads(body["choices"][0]["text"])
        self.assertLess(abs(line.pop("now") - 1000 * time.time()), 60000)
        self.assertTrue(50000 < line.pop("deadline_ms") <= 60000)
        self.assertRegex(line.pop("id"), r"^[0-9a-f]{24}\.[0-9a-f]+\.0$")
        self.assertEqual(line, {"op": "generate", "prompt_segments": [{"ids": [1, 2]}], "max_new_tokens": 3,
                                "temperature": 0.5, "top_p": 0.5, "top_k": 4, "seed": 1, "stop": ["x"]})

    def test_drawn_seeds_differ(self):
        self.assertEqual(len({self.d.complete("say a")[2]["hearth"]["seed"] for _ in range(5)}), 5)

    def test_endings(self):
        """The API's own two words; the truth beside them."""
        for words, finish, true, guard in [("say a", "stop", "stop", None), ("say a length", "length", "length", None),
                                           ("say a reason timeout guard deadline", "length", "timeout", "deadline"),
                                           ("say a reason length guard context", "length", "length", "context"),
                                           ("say a reason cancelled", "length", "cancelled", None)]:
            body = self.d.complete(words)[2]
            self.assertEqual((body["choices"][0]["finish_reason"], body["hearth"]["finish"], body["hearth"].get("guard")),
                             (finish, true, guard))
            last = self.d.chunks(words)[-1]
            self.assertEqual((last["choices"][0]["finish_reason"], last["hearth"]["finish"]), (finish, true))

    def test_refused(self):
        for body, status, param in [({"prompt": "a", "n": 17}, 400, "n"), ({"prompt": "a", "modle": 1}, 400, "modle"),
                                    ({"prompt": "a", "model": "gpt-4"}, 404, "model"), ("{", 400, None), ("", 400, None),
                                    ({"prompt": "a", "model": "stub\0"}, 404, "model"), ("[" * 10000, 400, None),
                                    ("\ufeff{}".encode(), 400, None), ("{}", 400, "prompt")]:
            got, headers, answer = self.d.ask("POST", "/v1/completions", body)
            self.assertEqual((got, answer["error"]["param"]), (status, param))
            self.assertEqual(set(answer["error"]), {"message", "type", "param", "code"})
            self.assertEqual(headers["Content-Type"], "application/json")

    def test_numbers(self):
        sweep_numbers(self, self.d)

    def test_worker_refuses(self):
        for stream in False, True:
            for ask in self.d.complete, self.d.chat:
                status, _, body = ask("error context_length_exceeded", stream=stream)
                e = body["error"]
                self.assertEqual((status, e["code"], e["prompt_tokens"], e["limit"], e["type"]),
                                 (400, "context_length_exceeded", 70, 64, "invalid_request_error"))
        self.assertEqual(self.d.complete("error nonfinite")[0], 500)
        self.assertEqual(self.d.complete("error capacity_exhausted")[1]["Retry-After"], "1")

    def test_error_in_mid_stream(self):
        c, r = self.d.stream("say a error nonfinite")
        data = events(r)
        self.assertEqual((r.status, len(data)), (200, 2))
        self.assertEqual(json.loads(data[1])["error"]["code"], "nonfinite")
        c.close()

    def test_routes(self):
        get, made = "GET, HEAD, OPTIONS", "GET, HEAD, DELETE, OPTIONS"
        for method, path, status, allow in [
                ("GET", "/", 404, None), ("GET", "/healthy", 404, None), ("GET", "/v1/models/", 501, None),
                ("POST", "/v1/embeddings", 501, None), ("GET", "/v1/completions", 405, "POST, OPTIONS"),
                ("POST", "/health", 405, get), ("PUT", "/v1/requests/a", 405, made), ("DELETE", "/v1/models/stub", 405, get),
                ("OPTIONS", "/v1/nothing", 501, None), ("POST", "/v1/requests/a", 405, made)]:
            got, headers, body = self.d.ask(method, path)
            self.assertEqual((got, headers["Allow"]), (status, allow), path)
            self.assertTrue(body["error"]["message"])
        for path, allow in [("/v1/models", get), ("/v1/completions", "POST, OPTIONS"), ("/v1/requests/x", made)]:
            got, headers, body = self.d.ask("OPTIONS", path)
            self.assertEqual((got, headers["Allow"], body), (204, allow, None))

    def test_head(self):
        c = http.client.HTTPConnection("127.0.0.1", self.d.port, timeout=60)
        for path in "/health", "/v1/models", "/metrics":
            c.request("HEAD", path)
            r = c.getresponse()
            self.assertEqual((r.status, r.read()), (200, b""))
            self.assertGreater(int(r.headers["Content-Length"]), 10)
        c.close()

    def test_request_ids(self):
        """In every reply and in the log line."""
        for method, path, body in ("GET", "/health", None), ("GET", "/nothing", None), ("POST", "/v1/completions", "{"):
            headers = self.d.ask(method, path, body)[1]
            self.assertRegex(headers["X-Request-Id"], "^req_[0-9a-f]{24}$")
        _, headers, body = self.d.complete("say a", headers={"X-Request-Id": "mine-1.x"})
        self.assertEqual((headers["X-Request-Id"], body["id"]), ("mine-1.x", "cmpl-mine-1.x"))
        self.assertTrue(until(lambda: any("path=/v1/completions status=200" in line and "id=mine-1.x" in line
                                          for line in self.d.log)))

    def test_tokens(self):
        self.assertEqual(self.d.ask("POST", "/tokenize", {"content": "a bb ccc"})[2], {"tokens": [1, 2, 3]})
        self.assertEqual(self.d.ask("POST", "/tokenize", {"content": "a bb", "with_pieces": True, "model": "stub"})[2],
                         {"tokens": [{"id": 1, "piece": "a"}, {"id": 2, "piece": "bb"}]})
        self.assertEqual(self.d.ask("POST", "/detokenize", {"tokens": [5, 6]})[2], {"content": "5 6"})
        self.assertEqual(self.d.ask("POST", "/detokenize", {"tokens": []})[2], {"content": ""})
        self.assertEqual(self.d.ask("POST", "/tokenize", {"content": "a", "model": "x"})[0], 404)
        status, _, body = self.d.ask("POST", "/tokenize", {"content": "error invalid_field"})
        self.assertEqual((status, body["error"]["param"], body["error"]["message"]), (400, "content", "content is too much"))
        self.d.ask("POST", "/tokenize", {"content": "flags", "add_special": True, "parse_special": False})
        self.assertTrue(self.d.saw(op="tokenize", text="flags", add_special=True, parse_special=False))

    def test_one_request_is_bounded(self):
        """What the loop would write, or read, in one go, while every other client waits."""
        text = "say a " + "x" * (2 << 20)
        status, _, body = self.d.complete(text, n=9)
        self.assertEqual((status, body["error"]["code"]), (400, "bad_request"))
        self.assertIn("9 choices take more than 16777216 bytes", body["error"]["message"])
        self.assertFalse(any("x" * 64 in (p or "") for p in self.d.seen_prompts()))
        self.assertEqual(self.d.complete(text, n=7)[0], 200)
        for path, field in ("/tokenize", "content"), ("/detokenize", "tokens"):
            status, _, body = self.d.ask("POST", path, {field: "x" * (1 << 20)})
            self.assertEqual((status, body["error"]["code"]), (413, "body_too_large"))

    def test_metrics(self):
        """What the text says, and that it says what docs/metrics.md promises; its format is read in test_metrics.c."""
        before = self.d.metrics()
        self.d.complete("say a say b")
        self.d.complete("say a", model="nobody-knows-it")
        c, r = self.d.stream("say a hang")
        r.readline()
        m = self.d.metrics()
        running = {k: v for k, v in m.items() if k.startswith(("hearth_requests_running", "hearth_generations_live"))}
        self.assertEqual(running, {'hearth_requests_running{model="stub"}': 1, "hearth_generations_live": 1})
        c.sock.shutdown(socket.SHUT_RDWR)
        c.close()
        self.assertTrue(self.d.is_at_rest())
        gone = 'hearth_choices_total{finish="gone"}'
        self.assertTrue(until(lambda: self.d.metrics()[gone] == before[gone] + 1))
        m = self.d.metrics()

        def grown(name):
            return m[name] - before.get(name, 0)
        self.assertEqual(grown('hearth_requests_total{route="/v1/completions",status="200"}'), 2)
        self.assertEqual(grown('hearth_requests_total{route="/v1/completions",status="404"}'), 1)
        self.assertEqual(grown('hearth_choices_total{finish="stop"}'), 1)
        self.assertEqual((grown("hearth_tokens_prompt_total"), grown("hearth_tokens_generated_total"),
                          grown("hearth_tokens_cached_total")), (7, 2, 3))
        self.assertEqual((grown("hearth_ttft_seconds_count"), grown("hearth_request_seconds_count")), (2, 2))
        self.assertEqual(grown('hearth_cancelled_total{model="stub"}'), 1)
        self.assertEqual(grown("hearth_clients_gone_total"), 1)
        status, headers, text = self.d.ask("GET", "/metrics")
        self.assertEqual(headers["Content-Type"], "text/plain; version=0.0.4; charset=utf-8")
        documented = set(re.findall(r"^\| `(hearth_\w+)` \|", (DOCS / "metrics.md").read_text(), re.M))
        self.assertEqual(set(re.findall(r"^# TYPE (\S+) ", text, re.M)), documented)
        self.assertNotIn("nobody", text)  # nothing a client says becomes a label


class Responses(Shared):
    """POST /v1/responses, by OpenAI's reference: objects, and events in the documented order."""
    TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False}

    def respond(self, words, **more):
        return self.d.ask("POST", "/v1/responses", {"input": words, **more})

    def events_of(self, words, **more):
        """The events of a stream, parsed: (name, data)."""
        c = http.client.HTTPConnection("127.0.0.1", self.d.port, timeout=60)
        c.request("POST", "/v1/responses", json.dumps({"input": words, "stream": True, **more}))
        r = c.getresponse()
        self.assertEqual((r.status, r.headers["Content-Type"]), (200, "text/event-stream; charset=utf-8"))
        got = []
        for block in r.read().decode().strip().split("\n\n"):
            if not block.startswith(":"):
                name, data = block.split("\n")
                got.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
        c.close()
        self.assertEqual([n for n, _ in got], [d["type"] for _, d in got])
        self.assertEqual([d["sequence_number"] for _, d in got], list(range(len(got))))
        return got

    def test_object(self):
        status, headers, body = self.respond("say hello", instructions="be kind", max_output_tokens=4, temperature=0.5,
                                             metadata={"k": "v"}, store=False, user="u", reasoning={"effort": "low"})
        self.assertEqual(status, 200, body)
        bare = headers["X-Request-Id"].removeprefix("req_")
        self.assertEqual((body["id"], body["object"], body["status"], body["model"]),
                         ("resp_" + bare, "response", "completed", "stub"))
        self.assertEqual(body["output"], [{
            "id": f"msg_{bare}_0", "type": "message", "status": "completed", "role": "assistant",
            "content": [{"type": "output_text", "text": "hello ", "annotations": [], "logprobs": []}]}])
        self.assertEqual(body["usage"], {
            "input_tokens": 7, "input_tokens_details": {"cached_tokens": 3}, "output_tokens": 1,
            "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 8})
        want = {"instructions": "be kind", "max_output_tokens": 4, "temperature": 0.5, "metadata": {"k": "v"}, "store": False,
                "error": None, "incomplete_details": None, "tools": [], "tool_choice": "auto", "parallel_tool_calls": True,
                "reasoning": {"effort": "low", "summary": None}, "top_p": 1, "text": {"format": {"type": "text"}},
                "previous_response_id": None, "truncation": "disabled", "background": False}
        self.assertEqual({k: body[k] for k in want}, want)
        self.assertEqual(body["hearth"]["finish"], "stop")
        self.assertTrue(self.d.saw(op="chat", max_new_tokens=4, temperature=0.5))

    def test_items(self):
        body = self.respond("think why say so call f args {} called call f args {} called", tools=[self.TOOL])[2]
        self.assertEqual([i["type"] for i in body["output"]], ["reasoning", "message", "function_call", "function_call"])
        self.assertEqual(body["output"][0]["content"], [{"type": "reasoning_text", "text": "why "}])
        self.assertEqual([(i["call_id"], i["name"], i["arguments"], i["status"]) for i in body["output"][2:]],
                         [("call_0", "f", "{}", "completed"), ("call_1", "f", "{}", "completed")])
        self.assertEqual((body["status"], body["tools"]), ("completed", [self.TOOL]))
        body = self.respond("say so call f args {", tools=[self.TOOL])[2]  # cut
        self.assertEqual(body["output"][1]["status"], "incomplete")
        body = self.respond("say so length")[2]
        self.assertEqual((body["status"], body["incomplete_details"], body["output"][0]["status"]),
                         ("incomplete", {"reason": "max_output_tokens"}, "incomplete"))
        body = self.respond("call f args {} withdraw say <f>", tools=[self.TOOL])[2]
        self.assertEqual([i["type"] for i in body["output"]], ["message"])

    def test_events(self):
        got = self.events_of("think why say so say yes call f args {\"a\": args 1} called", tools=[self.TOOL])
        self.assertEqual([n.removeprefix("response.") for n, _ in got], [
            "created", "in_progress",
            "output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.done", "content_part.done",
            "output_item.done",
            "output_item.added", "content_part.added", "output_text.delta", "output_text.delta", "output_text.done",
            "content_part.done", "output_item.done",
            "output_item.added", "function_call_arguments.delta", "function_call_arguments.delta",
            "function_call_arguments.done", "output_item.done",
            "completed"])
        self.assertEqual([d["output_index"] for n, d in got if n == "response.output_item.added"], [0, 1, 2])
        done = [d["item"] for n, d in got if n == "response.output_item.done"]
        self.assertEqual(got[-1][1]["response"]["output"], done)
        self.assertEqual("".join(d["delta"] for n, d in got if n == "response.output_text.delta"), done[1]["content"][0]["text"])
        self.assertEqual("".join(d["delta"] for n, d in got if n == "response.function_call_arguments.delta"), '{"a":1}')
        for n, d in got:
            if "item_id" in d:
                self.assertEqual(d["item_id"], done[d["output_index"]]["id"])
        first = got[0][1]["response"]
        self.assertEqual((first["status"], first["output"], first["usage"], first["id"]),
                         ("in_progress", [], None, got[-1][1]["response"]["id"]))
        # the same object as without a stream, but for its name and times
        whole, last = self.respond("think why say so say yes call f args {\"a\": args 1} called", tools=[self.TOOL])[2], got[-1][1]["response"]
        for x in whole, last:
            for k in "id", "created_at", "hearth":
                x.pop(k)
            for item in x["output"]:
                item.pop("id")
        self.assertEqual(whole, last)

    def test_events_of_a_cut(self):
        got = self.events_of("say so length")
        self.assertEqual((got[-1][0], got[-1][1]["response"]["status"]), ("response.incomplete", "incomplete"))
        got = self.events_of("call f args { withdraw say <f>{ call f args {} called", tools=[self.TOOL])
        done = [d["item"] for n, d in got if n == "response.output_item.done"]
        self.assertEqual([i["type"] for i in done], ["message", "function_call"])  # what was no call is never done
        self.assertEqual(got[-1][1]["response"]["output"], done)
        got = self.events_of("say so call f args {", tools=[self.TOOL])
        done = [d["item"] for n, d in got if n == "response.output_item.done"]
        self.assertEqual([(i["type"], i["status"]) for i in done], [("message", "completed"), ("function_call", "incomplete")])
        self.assertEqual((done[1]["name"], done[1]["arguments"]), ("f", "{"))
        self.assertEqual(got[-1][1]["response"]["output"], done)
        self.assertNotIn("response.function_call_arguments.done", [n for n, _ in got])

    def test_errors(self):
        status, _, body = self.respond("error nonfinite", stream=True)
        self.assertEqual((status, body["error"]["code"]), (500, "nonfinite"))
        name, data = self.events_of("say so error nonfinite")[-1]
        self.assertEqual((name, data["response"]["status"], data["response"]["error"]["code"]),
                         ("response.failed", "failed", "nonfinite"))

    def test_input(self):
        """Items to messages."""
        text = lambda kind, s: {"type": kind, "text": s}
        items = [
            {"role": "user", "content": [text("input_text", "a"), text("input_text", "b")]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": [text("reasoning_text", "hm")]},
            {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
             "content": [{**text("output_text", "so"), "annotations": [], "logprobs": []}]},
            {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{", "status": "completed"},
            {"type": "function_call", "call_id": "c2", "name": "g", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "one"},
            {"type": "function_call_output", "call_id": "c2", "output": [text("input_text", "two")]},
            {"type": "function_call", "call_id": "c3", "name": "g", "arguments": ""},
            {"type": "message", "role": "developer", "content": "d"},
            {"role": "user", "content": "request"}]
        body = self.d.ask("POST", "/v1/responses", {"input": items, "instructions": "i"})[2]
        line = json.loads(body["output"][0]["content"][0]["text"])
        call = lambda i, name, arguments: {"id": i, "type": "function", "function": {"name": name, "arguments": arguments}}
        self.assertEqual(line["messages"], [
            {"role": "system", "content": "i"}, {"role": "user", "content": "ab"},
            {"role": "assistant", "content": "so", "reasoning_content": "hm", "tool_calls": [call("c1", "f", "{"), call("c2", "g", "{}")]},
            {"role": "tool", "tool_call_id": "c1", "content": "one"}, {"role": "tool", "tool_call_id": "c2", "content": "two"},
            {"role": "assistant", "content": None, "tool_calls": [call("c3", "g", "")]},
            {"role": "system", "content": "d"}, {"role": "user", "content": "request"}])

    def test_refused(self):
        for fields, param, code in [
                ({"previous_response_id": "resp_1"}, "previous_response_id", "unsupported"),
                ({"conversation": "c"}, "conversation", "unsupported"), ({"prompt": {"id": "p"}}, "prompt", "unsupported"),
                ({"store": True}, "store", "unsupported"), ({"background": True}, "background", "unsupported"),
                ({"include": ["x"]}, "include", "unsupported"), ({"truncation": "auto"}, "truncation", "unsupported"),
                ({"max_tool_calls": 1}, "max_tool_calls", "unsupported"), ({"top_logprobs": 1}, "top_logprobs", "unsupported"),
                ({"text": {"format": {"type": "json_object"}}}, "text.format", "unsupported"),
                ({"text": {"verbosity": "low"}}, "text.verbosity", "unsupported"),
                ({"reasoning": {"summary": "auto"}}, "reasoning.summary", "unsupported"),
                ({"reasoning": {"effort": "max"}}, "reasoning.effort", "invalid_field"),
                ({"tools": [{"type": "web_search"}]}, "tools[0].type", "unsupported"),
                ({"tools": [{**self.TOOL, "strict": True}]}, "tools[0].strict", "unsupported"),
                ({"tool_choice": {"type": "function", "name": "g"}, "tools": [self.TOOL]}, "tool_choice.name", "invalid_field"),
                ({"max_output_tokens": 0}, "max_output_tokens", "invalid_field"), ({"n": 2}, "n", "unsupported"),
                ({"input": []}, "input", "invalid_field"), ({"input": [1]}, "input[0]", "invalid_field"),
                ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type", "unsupported"),
                ({"input": [{"role": "tool", "content": "x"}]}, "input[0].role", "invalid_field"),
                ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content", "unsupported"),
                ({"input": [{"type": "function_call", "name": "f", "arguments": ""}]}, "input[0].call_id", "invalid_field"),
                ({"stream": True, "stream_options": {"include_usage": True}}, "stream_options.include_usage", "unsupported"),
                ({"stream": True, "stream_options": {"include_obfuscation": True}}, "stream_options.include_obfuscation", "unsupported")]:
            status, _, body = self.d.ask("POST", "/v1/responses", {"input": "say a", **fields})
            self.assertEqual((status, body["error"]["param"], body["error"]["code"]), (400, param, code), fields)


class Streams(unittest.TestCase):
    """What a stream is sent while nothing is said."""

    def test_headers_and_comments_while_it_waits(self):
        """FAILURES L4. One lane, two of its requests with the worker, the third waits in the daemon."""
        with Daemon("lanes", "1", keepalive=100) as d:
            busy = [d.stream("say a hang", headers={"X-Request-Id": f"busy-{i}"}) for i in range(2)]
            c, r = d.stream("say b")  # its headers have come
            self.assertEqual(r.status, 200)
            for _ in range(3):
                self.assertEqual((r.readline(), r.readline()), (b": keep-alive\n", b"\n"))
            self.assertEqual(d.ask("GET", f"/v1/requests/{r.headers['X-Request-Id']}")[2]["state"], "queued")
            d.ask("DELETE", "/v1/requests/busy-0")
            data = events(r)
            self.assertEqual((json.loads(data[0])["choices"][0]["text"], data[-1]), ("b ", "[DONE]"))
            d.ask("DELETE", "/v1/requests/busy-1")
            for connection, response in [(c, r), *busy]:
                response.read()
                connection.close()

    def test_error_after_the_headers(self):
        with Daemon("lanes", "1", keepalive=100) as d:
            busy = [d.stream("say a hang", headers={"X-Request-Id": f"busy-{i}"}) for i in range(2)]
            c, r = d.stream("error context_length_exceeded")
            r.readline()
            d.ask("DELETE", "/v1/requests/busy-0")
            data = events(r)
            self.assertEqual(len(data), 1)
            self.assertEqual(json.loads(data[0])["error"]["limit"], 64)
            c.close()
            d.ask("DELETE", "/v1/requests/busy-1")
            for connection, response in busy:
                response.read()
                connection.close()

    def quiet_part(self, d, r, sign):
        """The text of a stream whose second token comes when it was kept alive twice since the first: by lines with `sign`."""
        text, kept = b"", 0
        while kept < 2:
            line = r.readline()
            self.assertTrue(line)
            text += line
            kept += b'"a "' in text and sign in line
        d.gate.touch()
        return (text + r.read()).decode()

    def test_comments_between_tokens(self):
        with Daemon(keepalive=100) as d:
            c, r = d.stream("say a gate say b")
            text = self.quiet_part(d, r, b": keep-alive")
            c.close()
            before, after = text.index('"a "'), text.index('"b "')
            self.assertGreaterEqual(text[before:after].count(": keep-alive\n\n"), 2)
            self.assertEqual(text_of([json.loads(x[6:]) for x in text.split("\n\n") if x.startswith("data: {")]), "a b ")

    def test_empty_deltas(self):
        with Daemon(keepalive=100, keepalive_kind="delta") as d:
            for path, empty in ("/v1/completions", {"text": ""}), ("/v1/chat/completions", {"delta": {"content": ""}}):
                d.gate.unlink(missing_ok=True)
                c, r = d.stream("say a gate say b", path=path)
                text = self.quiet_part(d, r, b'""' if "chat" not in path else b'"content":""')
                c.close()
                self.assertNotIn("\n:", "\n" + text)
                chunks = [json.loads(x[6:]) for x in text.split("\n\n") if x.startswith("data: {")]
                self.assertEqual(text_of(chunks), "a b ")
                middle = [x["choices"][0] for x in chunks][2 if "chat" in path else 1:-2]
                self.assertGreaterEqual(len(middle), 2)
                for choice in middle:
                    self.assertLessEqual(empty.items(), choice.items())

    def test_off(self):
        with Daemon(keepalive=0) as d:
            c, r = d.stream("say a wait 0.5 say b")
            self.assertEqual(comments(r), [])
            c.close()

    def test_progress(self):
        with Daemon("lanes", "1") as d:
            busy = [d.stream("say a hang", headers={"X-Request-Id": f"busy-{i}"}) for i in range(2)]
            first = d.raw(post({"prompt": "say first"}, extra="Connection: close\r\nX-Request-Id: first\r\n"))
            self.assertTrue(until(lambda: d.ask("GET", "/v1/requests/first")[2].get("position") == 1))
            c, r = d.stream("say b", hearth={"progress": True})
            self.assertEqual(r.readline(), b': progress {"queued":{"position":2,"estimate_s":null}}\n')
            for i in range(2):
                d.ask("DELETE", f"/v1/requests/busy-{i}")
            rest = r.read().decode()
            self.assertTrue(rest.endswith("data: [DONE]\n\n"))
            line = next(x for x in d.seen_lines() if x.get("prompt") == "say b")
            self.assertIs(line["progress"], True)
            self.assertIn(b"first ", read_all(first))
            first.close()
            for connection, response in [(c, r), *busy]:
                response.read()
                connection.close()

    def test_progress_of_the_worker(self):
        with Daemon() as d:
            for wanted in True, False:
                c, r = d.stream("progress 5 say b", hearth={"progress": wanted})
                self.assertEqual(comments(r), ['progress {"choice":0,"prompt_tokens":7,"cached":3,"processed":5}'] * wanted)
                c.close()

    def test_slow_reader(self):
        """Its request is paused and goes on, others do not notice, nothing is lost."""
        with Daemon() as d:
            c, r = d.stream("many 1500 20000")
            self.assertTrue(d.saw(op="pause"))
            self.assertEqual(d.complete("say other")[2]["choices"][0]["text"], "other ")
            data = events(r)
            c.close()
            self.assertEqual(text_of([json.loads(x) for x in data[:-1]]), "x" * 30000000)
            self.assertEqual(data[-1], "[DONE]")
            self.assertTrue(d.saw(op="continue"))


class Advice(Shared):
    """What the model says of sampling is the default."""
    mode = ("advice",)

    def test_defaults(self):
        sampling = self.d.ask("GET", "/v1/models")[2]["data"][0]["hearth"]["sampling"]
        self.assertEqual(sampling, {"temperature": 0.7, "top_p": 1, "top_k": 40, "min_p": 0, "repetition_penalty": 1,
                                    "presence_penalty": 0, "frequency_penalty": 0})
        for more, want in [({}, (0.7, 40)), ({"temperature": 0}, (None, 40)), ({"temperature": 1, "top_k": 0}, (1, None)),
                           ({"temperature": None}, (0.7, 40))]:
            for text in (self.d.complete("request", **more)[2]["choices"][0]["text"],
                         self.d.chat("request", **more)[2]["choices"][0]["message"]["content"]):
                line = json.loads(text)
                self.assertEqual((line.get("temperature") or None, line.get("top_k") or None), want)
        self.assertEqual(self.d.ask("POST", "/v1/responses", {"input": "say a"})[2]["temperature"], 0.7)


class Requests(Shared):
    """GET and DELETE /v1/requests/{id}."""

    def about(self, name, method="GET", status=200):
        got, _, body = self.d.ask(method, "/v1/requests/" + name)
        self.assertEqual(got, status)
        return body

    def test_a_running_one(self):
        c, r = self.d.stream("say a say b hang", headers={"X-Request-Id": "runner"})
        r.readline()
        self.assertTrue(until(lambda: self.about("runner")["completion_tokens"] == 2))
        body = self.about("runner")
        self.assertEqual((body["id"], body["answer_id"], body["state"], body["route"], body["model"], body["prompt_tokens"]),
                         ("runner", "cmpl-runner", "running", "/v1/completions", "stub", 7))
        self.assertLess(abs(body["created_ms"] / 1000 - time.time()), 60)
        self.assertGreaterEqual(body["started_ms"], body["created_ms"])
        self.assertIsNone(body["ended_ms"])
        self.assertEqual(self.about("cmpl-runner"), body)
        self.assertEqual(self.about("runner", "DELETE")["state"], "cancelling")
        data = events(r)
        c.close()
        last = json.loads(data[-2])
        self.assertEqual((last["choices"][0]["finish_reason"], last["hearth"]["finish"], data[-1]),
                         ("length", "cancelled", "[DONE]"))
        body = self.about("runner")
        self.assertEqual((body["state"], body["ending"], body["completion_tokens"]), ("done", "cancelled", 2))
        self.assertGreaterEqual(body["ended_ms"], body["started_ms"])
        self.assertEqual(self.about("runner", "DELETE")["state"], "done")  # again: nothing happens

    def test_several_choices(self):
        t, got = self.d.later(["say a hang", "say b hang", "say c"], headers={"X-Request-Id": "three"})
        self.assertTrue(until(lambda: self.d.ask("GET", "/v1/requests/three")[2].get("completion_tokens") == 3))
        self.about("three", "DELETE")
        t.join()
        self.assertEqual(got[0][0], 200)
        self.assertEqual([(c["text"], c["finish_reason"]) for c in got[0][2]["choices"]],
                         [("a ", "length"), ("b ", "length"), ("c ", "stop")])

    def test_failed_and_gone(self):
        self.d.complete("error nonfinite", headers={"X-Request-Id": "failed"})
        self.assertEqual([self.about("failed")[k] for k in ("state", "ending")], ["failed", "nonfinite"])
        c, r = self.d.stream("say a hang", headers={"X-Request-Id": "left"})
        r.readline()
        c.sock.shutdown(socket.SHUT_RDWR)
        c.close()
        self.assertTrue(until(lambda: self.about("left")["state"] == "gone"))

    def test_unknown(self):
        for method in "GET", "DELETE":
            self.assertEqual(self.about("nobody", method, 404)["error"]["code"], "not_found")

    def test_echo_of_ids_is_cancelled_too(self):
        self.assertEqual(self.d.complete([[4], [5]], echo=True, headers={"X-Request-Id": "echo"})[0], 200)
        self.assertEqual(self.about("echo")["n_choices"], 2)


class Queue(unittest.TestCase):
    """What waits in the daemon: one lane, two requests with the worker."""

    def setUp(self):
        self.d = Daemon("lanes", "1", waiting=3)
        self.busy = [self.d.stream("say a hang", headers={"X-Request-Id": f"busy-{i}"}) for i in range(2)]

    def tearDown(self):
        for i in range(2):
            self.d.ask("DELETE", f"/v1/requests/busy-{i}")
        for c, r in self.busy:
            r.read()
            c.close()
        self.assertTrue(self.d.is_at_rest())
        self.assertEqual(self.d.end()[0], 0)

    def wait_for(self, n):
        self.assertTrue(self.d.has_queued(n))

    def test_bounded(self):
        waiting = [self.d.raw(post({"prompt": f"say {i}"}, extra="Connection: close\r\n")) for i in range(3)]
        self.wait_for(3)
        for ask in ({}, {"stream": True}, {"n": 2}):
            status, headers, body = self.d.complete("say more", **ask)
            self.assertEqual((status, headers["Retry-After"], body["error"]["code"]), (429, "1", "queue_full"))
        self.assertEqual(self.d.ask("POST", "/tokenize", {"content": "a"})[0], 200)  # light ones do not wait
        self.assertEqual(self.d.ask("GET", "/health")[0], 200)
        self.d.ask("DELETE", "/v1/requests/busy-0")
        for i, s in enumerate(waiting):
            self.assertIn(f'"{i} "'.encode(), read_all(s))
            s.close()

    def test_client_that_leaves_is_never_sent(self):
        """FAILURES C2, C4."""
        gone = self.d.raw(post({"prompt": "say never"}))
        stays = self.d.raw(post({"prompt": "say stays"}, extra="Connection: close\r\n"))
        self.wait_for(2)
        gone.close()
        self.wait_for(1)
        self.d.ask("DELETE", "/v1/requests/busy-0")
        self.assertIn(b"stays ", read_all(stays))
        stays.close()
        self.assertNotIn("say never", self.d.seen_prompts())

    def test_cancelled(self):
        t, got = self.d.later("say never", headers={"X-Request-Id": "waits"}, seed=3)
        self.wait_for(1)
        about = self.d.ask("GET", "/v1/requests/waits")[2]
        self.assertEqual((about["state"], about["position"], about["started_ms"]), ("queued", 1, None))
        self.assertEqual(self.d.ask("DELETE", "/v1/requests/waits")[0], 200)
        t.join()
        status, _, body = got[0]
        self.assertEqual((status, body["choices"][0]["text"], body["choices"][0]["finish_reason"]), (200, "", "length"))
        self.assertEqual((body["hearth"]["finish"], body["hearth"]["seed"]), ("cancelled", 3))
        self.assertNotIn("say never", self.d.seen_prompts())

    def test_deadline(self):
        for stream in False, True:
            status, _, body = self.d.complete("say never", hearth={"deadline_ms": 100}, stream=stream)
            self.assertEqual((status, body["error"]["code"]), (504, "timeout"))
        self.assertNotIn("say never", self.d.seen_prompts())

    def test_deadline_of_one_of_several(self):
        """What has begun is not thrown away for what waits: that ends alone, as cut."""
        self.d.ask("DELETE", "/v1/requests/busy-1")
        self.assertTrue(until(lambda: self.d.ask("GET", "/v1/requests/busy-1")[2]["state"] == "done"))
        t, got = self.d.later(["say a hang", "say never"], hearth={"deadline_ms": 300}, headers={"X-Request-Id": "two"})
        self.assertTrue(until(lambda: self.d.ask("GET", "/v1/requests/two")[2].get("completion_tokens") == 1))
        self.wait_for(0)  # the stub knows no deadlines: the first goes on
        self.d.ask("DELETE", "/v1/requests/two")
        t.join()
        self.assertEqual([c["text"] for c in got[0][2]["choices"]], ["a ", ""])
        self.assertEqual([c["finish"] for c in got[0][2]["hearth"]["choices"]], ["cancelled", "timeout"])


class Keys(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.file = tempfile.NamedTemporaryFile("w")
        for name in "ann", "bob":
            cls.file.write(f"{name} {hashlib.sha256(f'key-{name}'.encode()).hexdigest()}\n")
        cls.file.flush()
        cls.d = Daemon(keys=cls.file.name)

    @classmethod
    def tearDownClass(cls):
        cls.d.end()
        cls.file.close()

    ann, bob = {"Authorization": "Bearer key-ann"}, {"x-api-key": "key-bob"}

    def test_who_may(self):
        for headers in self.ann, self.bob:
            self.assertEqual(self.d.complete("say a", headers=headers)[0], 200)
        for headers in {}, {"Authorization": "Bearer key-eve"}, {"x-api-key": ""}, {"Authorization": "Basic key-ann"}:
            for method, path in ("POST", "/v1/completions"), ("GET", "/v1/models"), ("GET", "/nothing"), ("GET", "/v1/requests/a"):
                status, _, body = self.d.ask(method, path, "{}" if method == "POST" else None, headers)
                self.assertEqual((status, body["error"]["code"], body["error"]["type"]),
                                 (401, "invalid_api_key", "authentication_error"))
        for path in "/health", "/ready", "/metrics":
            self.assertEqual(self.d.ask("GET", path)[0], 200)

    def test_namespaces(self):
        """What a worker keeps of a key's requests is that key's (FAILURES P7)."""
        talk = {"messages": [{"role": "user", "content": "request"}]}
        for headers, name in (self.ann, "ann"), (self.bob, "bob"):
            lines = [self.d.complete("request", headers=headers)[2]["choices"][0]["text"],
                     self.d.ask("POST", "/v1/chat/completions", talk, headers)[2]["choices"][0]["message"]["content"],
                     self.d.ask("POST", "/apply-template", talk, headers)[2]["prompt"]]
            self.assertEqual([json.loads(line)["cache_namespace"] for line in lines], [name] * 3)

    def test_before_the_body(self):
        s = self.d.raw(b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: 5000000\r\nExpect: 100-continue\r\n\r\n")
        self.assertTrue(s.recv(1000).startswith(b"HTTP/1.1 401 "))
        s.close()

    def test_requests_are_their_makers(self):
        c, r = self.d.stream("say a hang", headers={**self.ann, "X-Request-Id": "of-ann"})
        r.readline()
        for method in "GET", "DELETE":
            self.assertEqual(self.d.ask(method, "/v1/requests/of-ann", headers=self.bob)[0], 404)
        self.assertEqual(self.d.ask("DELETE", "/v1/requests/of-ann", headers=self.ann)[0], 200)
        self.assertEqual(events(r)[-1], "[DONE]")
        c.close()

    def test_log_names_the_key(self):
        self.d.complete("say a", headers={**self.bob, "X-Request-Id": "of-bob"})
        self.assertTrue(until(lambda: any("id=of-bob" in line and "user=bob" in line for line in self.d.log)))
        self.assertFalse(any("key-bob" in line for line in self.d.log))


NODE = """
const url = process.argv[1];
const ask = (stream) => fetch(url + '/v1/chat/completions', {method: 'POST', headers: {'Content-Type': 'application/json'},
  body: JSON.stringify({messages: [{role: 'user', content: 'say a wait 0.1 say b'}], stream})});
let r = await ask(false);
const whole = (await r.json()).choices[0].message.content;
r = await ask(true);
let buffer = '', text = '', done = false;
for await (const piece of r.body.pipeThrough(new TextDecoderStream())) {
  buffer += piece;
  for (let at; (at = buffer.indexOf('\\n\\n')) >= 0; buffer = buffer.slice(at + 2)) {
    const event = buffer.slice(0, at);
    if (event === 'data: [DONE]') done = true;
    else if (event.startsWith('data: ')) text += JSON.parse(event.slice(6)).choices[0]?.delta?.content ?? '';
  }
}
const stop = new AbortController();
r = await fetch(url + '/v1/completions', {method: 'POST', signal: stop.signal,
  body: JSON.stringify({prompt: 'say node hang', stream: true})});
await r.body.getReader().read();
stop.abort();
console.log(JSON.stringify([whole, text, done]));
process.exit(0);
"""


class Clients(Shared):
    """Real stacks."""

    def left(self, prompt):
        """The request's worker is told when its client has left."""
        line = next(x for x in self.d.seen_lines() if x.get("prompt") == prompt)
        self.assertTrue(self.d.saw(op="cancel", id=line["id"]))

    def test_curl(self):
        curl = shutil.which("curl")
        if not curl:
            self.skipTest("SKIPPED: no curl here")
        url = f"http://127.0.0.1:{self.d.port}"
        body = json.dumps({"prompt": "say a wait 0.1 say b", "stream": True})
        out = subprocess.run([curl, "-sN", "-m", "60", url + "/v1/completions", "-d", body], capture_output=True, text=True)
        self.assertEqual(out.returncode, 0)
        data = [x[6:] for x in out.stdout.split("\n\n") if x.startswith("data: ")]
        self.assertEqual((text_of([json.loads(x) for x in data[:-1]]), data[-1]), ("a b ", "[DONE]"))
        p = subprocess.Popen([curl, "-sN", url + "/v1/completions", "-d", json.dumps({"prompt": "say curl hang"})],
                             stdout=subprocess.DEVNULL)
        self.assertTrue(self.d.saw(prompt="say curl hang"))
        p.kill()
        p.wait()
        self.left("say curl hang")

    def test_node(self):
        node = shutil.which("node")
        if not node:
            self.skipTest("SKIPPED: no node here")
        out = subprocess.run([node, "--input-type=module", "-e", NODE, f"http://127.0.0.1:{self.d.port}"], capture_output=True,
                             text=True, timeout=100)
        self.assertEqual((out.returncode, json.loads(out.stdout or "null")), (0, ["a b ", "a b ", True]), out.stderr)
        self.left("say node hang")

    def test_python(self):
        """http.client: one connection for many requests, an answer left unread."""
        c = http.client.HTTPConnection("127.0.0.1", self.d.port, timeout=60)
        for i in range(5):
            c.request("POST", "/v1/completions", json.dumps({"prompt": f"say {i}", "stream": i % 2 == 1}))
            self.assertIn(f'"{i} "', c.getresponse().read().decode())
        c.request("POST", "/v1/completions", json.dumps({"prompt": "say python hang", "stream": True}))
        c.getresponse().readline()
        c.sock.shutdown(socket.SHUT_RDWR)
        c.close()
        self.left("say python hang")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], GROUP])

#!/usr/bin/python3
"""crash_script.py Stub|Blame SERVE_MAIN, Frames|Kills|Cut HEARTH EMBER, or Poison HEARTH EMBER POISON_WORKER, each with --every or without: a worker that
dies is a pause: its replies go on as if nothing had been, and of those that kill it one alone is ended for it. Over HTTP. Standard library only.
Exit 1 if a test fails.

PROTOCOL 6. A reply of 64 tokens of each kind is disturbed after a frame: after each of them with --every, else after some of them; streamed
and not. What no worker is needed for is in test_blame.c and test_reply_journal.c."""
import json
import os
import pathlib
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
import unittest

EVERY = "--every" in sys.argv
sys.argv = [x for x in sys.argv if x != "--every"]

from serve_rig import GROUP, HERE, MODEL, PATIENCE, SERVE, Daemon, events, until  # noqa: E402

COMPLETIONS, CHAT, RESPONSES = "/v1/completions", "/v1/chat/completions", "/v1/responses"
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Get the weather in a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "The city"}}, "required": ["city"]}}}
TIMES = re.compile(r".*_ms|created(_at)?|completed_at|.*_tok_s")


def scrubbed(x, *also):
    """Without what no two runs have in common: times (and those keys)."""
    if isinstance(x, dict):
        return {k: scrubbed(v, *also) for k, v in x.items() if not TIMES.fullmatch(k) and k not in also}
    return [scrubbed(v, *also) for v in x] if isinstance(x, list) else x


def ask(d, path, body, stream, name="same"):
    """All that the client gets, parsed."""
    status, _, answer = d.ask("POST", path, {**body, "stream": stream}, {"X-Request-Id": name})
    if status != 200 or not stream:
        return [status, answer]
    said = [json.loads(x) if x != "[DONE]" else x for x in
            (part.split("data: ", 1)[1] for part in answer.strip().split("\n\n") if "data: " in part)]
    return [status] + sorted(said, key=which_choice)


def which_choice(event):
    """Several choices speak in any order."""
    choices = event.get("choices") if isinstance(event, dict) else None
    return choices[0]["index"] if choices else 0 if isinstance(event, dict) and "choices" not in event else 1000


def some(n, first):
    """Which of n frames, from 1: all, or some that begin elsewhere for each kind."""
    return range(1, n + 1) if EVERY else sorted({1 + first % 2, *range(3 + first % 41, n + 1, 41)})


class Base(unittest.TestCase):
    maxDiff = 2000

    def assert_same(self, got, want, *also):
        self.assertEqual(scrubbed(got, *also), scrubbed(want, *also))


WORDS = [f"w{i}" for i in range(64)]
SAID = " ".join("say " + w for w in WORDS)
THOUGHT = " ".join("think " + w for w in WORDS[:20])
# Calls, pieces without ids between them, and before the end.
CALLED = (f"{THOUGHT} say Well open and open then say so call get_weather args {{}} called open between " + " ".join("say " + w for w in WORDS[:20]) +
          " call get_weather open in args [ open out args ] called call other args x withdraw open back say end open a open b")
STUB_KINDS = [(COMPLETIONS, {"prompt": SAID}, 66),
              (COMPLETIONS, {"prompt": SAID, "logprobs": 3, "echo": True}, 66),
              (COMPLETIONS, {"prompt": SAID + " open x open y", "n": 2}, 68),
              (CHAT, {"messages": SAID}, 66),
              (CHAT, {"messages": CALLED, "tools": [WEATHER], "logprobs": True}, 63),
              (RESPONSES, {"input": CALLED, "tools": [{"type": "function", **WEATHER["function"]}]}, 63)]


def disturbed(body, frame):
    """The stub's worker dies after that frame."""
    key = next(k for k in ("prompt", "messages", "input") if k in body)
    text = f"dies {frame:03} {body[key]}"
    return {**body, key: [{"role": "user", "content": text}] if key == "messages" else text, "seed": 5}


class Stub(Base):
    def test_frames(self):
        """Of a stub, which says its frames one by one."""
        for i, (path, body, n) in enumerate(STUB_KINDS):
            if path == RESPONSES:
                body = {**body, "store": False}
            with self.subTest(body), Daemon(respawns=1000) as d:
                for stream in True, False:
                    want = self.undisturbed(d, path, body, stream)
                    self.assertEqual(want[0], 200, want)
                    for frame in some(n, 5 * i + stream):
                        self.assert_same(self.ask(d, path, body, stream, frame), want, *(["seed"] if path == RESPONSES else []))
                self.assertTrue(until(lambda: len([x for x in d.log if "worker=gone" in x]) >= len(some(n, 5 * i)) + len(some(n, 5 * i + 1))))
                self.assertEqual(d.metrics()['hearth_requests_blamed_total{model="stub"}'], 0)

    def ask(self, d, path, body, stream, frame):
        body = disturbed(body, frame)
        if path == RESPONSES:
            del body["seed"]
        return self.without_prompt(ask(d, path, body, stream))

    def undisturbed(self, d, path, body, stream):
        return self.ask(d, path, body, stream, 0)

    def without_prompt(self, answer):
        """An echo shows which frame it was."""
        return json.loads(re.sub(r"dies \d+ ", "dies ", json.dumps(answer)))

    def test_after_each_frame_of_one(self):
        """A reply of 12 tokens with eight workers; the others do not notice."""
        with Daemon(respawns=1000) as d:
            neighbours = [d.later(SAID + f" wait 1 say n{i}", seed=3) for i in range(4)]
            text = " ".join(f"say a{i} open b{i} once signal 9" if i % 2 else f"say a{i}" for i in range(12))
            got = d.complete(text.replace("once signal 9", "wait 0.2"), seed=3)[2]
            self.assertEqual(got["choices"][0]["text"], "".join(f"a{i} b{i} " if i % 2 else f"a{i} " for i in range(12)))
            for i, (t, answer) in enumerate(neighbours):
                t.join()
                self.assertEqual(answer[0][2]["choices"][0]["text"], " ".join(WORDS) + f" n{i} ")

    def test_cached_tokens_are_the_first(self):
        """The usage of a reply that went on is that of the undisturbed one."""
        with Daemon(respawns=1000) as d:
            for stream in True, False:
                body = {"prompt": "cached 50 31 say a once signal 9 say b", "seed": 5, "stream_options": {"include_usage": True}}
                body = body if stream else {k: v for k, v in body.items() if k != "stream_options"}
                usage = [x for x in ask(d, COMPLETIONS, body, stream) if isinstance(x, dict) and x.get("usage")][-1]["usage"]
                self.assertEqual((usage["prompt_tokens"], usage["completion_tokens"], usage["prompt_tokens_details"]["cached_tokens"]),
                                 (50, 2, 31))

    def test_cancelled_by_a_dead_worker(self):
        """It is not sent again, and ends as what it is, with what it had."""
        with Daemon(respawns=1000) as d:
            c, r = d.stream("say a gate say b", headers={"X-Request-Id": "left"})
            r.readline()
            os.kill(d.worker_pids()[-1], signal.SIGSTOP)
            self.assertEqual(d.ask("DELETE", "/v1/requests/left")[0], 200)
            os.kill(d.worker_pids()[-1], signal.SIGKILL)
            data = events(r)
            self.assertEqual(data[-1], "[DONE]", data)
            self.assertEqual(json.loads(data[-2])["hearth"]["finish"], "cancelled", data)
            c.close()
            self.assertTrue(d.is_at_rest())
            self.assertEqual(sum("resume" in line for line in d.seen_lines()), 0)

    def test_a_session_keeps_its_order(self):
        """A turn that is a suspect, and waits until another one is cleared, holds back the next turn, which is none."""
        with Daemon(respawns=1000) as d:
            asked = []
            for name, session, prompt in (("other", None, "say x gate wait 0.5 " + SAID),
                                          ("first", "s", "say a gate names other.1.0 first.2.0 ; once die " + SAID),
                                          ("second", "s", "once hang say second")):
                asked.append(d.later(prompt, headers={"X-Request-Id": name, **({"X-Hearth-Session": session} if session else {})}))
                self.assertTrue(d.saw(prompt=prompt))
            self.assertTrue(until(pathlib.Path(d.dir.name, "once-second.3.0").exists))  # it hangs
            d.gate.touch()
            for t, got in asked:
                t.join()
                self.assertEqual(got[0][0], 200)
            self.assertEqual([x["id"] for x in d.seen_lines()][:6], ["other.1.0", "first.2.0", "second.3.0"] * 2)


class Blame(Base):
    def test_poison_among_fifteen(self):
        """It fails alone, after three deaths at most: at once, in its answer, in the text that is prepared; streamed and not."""
        for poison in "die", "say a say b die", "kill", "signal 6", "garbage", "names nobody ; die":
            with self.subTest(poison), Daemon("batch", "lanes", "16", respawns=1000) as d:
                neighbours = [d.later(f"say n{i} gate {SAID}", seed=3) for i in range(15)]
                self.assertTrue(until(lambda: len(d.seen_lines()) == 15))
                c, r = d.stream("gate " + poison)
                self.assertTrue(d.saw(prompt="gate " + poison))
                d.gate.touch()
                status, data = r.status, r.read().decode()
                c.close()
                self.assertIn('"worker_crashed"', data, status)
                for i, (t, got) in enumerate(neighbours):
                    t.join()
                    self.assertEqual(got[0][2]["choices"][0]["text"], f"n{i} " + " ".join(WORDS) + " ")
                self.assertTrue(until(lambda: any("event=blamed" in line for line in d.log)))
                self.assertIn(sum("worker=gone" in line for line in d.log), (2, 3), d.log)
                self.assertEqual(d.metrics()['hearth_requests_blamed_total{model="stub"}'], 1)

    def test_text_that_is_prepared(self):
        """A tokenisation that kills the worker fails; one that is with it is done again."""
        with Daemon(respawns=1000) as d:
            c, r = d.stream("say a gate say b")
            r.readline()
            self.assertEqual(d.ask("POST", "/tokenize", {"content": "once die"})[0], 200)
            status, _, body = d.ask("POST", "/tokenize", {"content": "die"})
            self.assertEqual((status, body["error"]["code"]), (503, "worker_crashed"))
            d.gate.touch()
            self.assertEqual(events(r)[-1], "[DONE]")
            c.close()
            self.assertEqual(d.metrics()['hearth_requests_blamed_total{model="stub"}'], 1)

    def test_killed_from_outside(self):
        """Again and again: nobody is blamed."""
        with Daemon("batch", respawns=1000) as d:
            asked = [d.later(f"say n{i} wait 0.5 " + SAID, seed=3) for i in range(8)]
            for n in range(6):
                self.assertTrue(until(lambda: len(d.worker_pids()) > n and sum("worker=ready" in line for line in d.log) > n))
                os.kill(d.worker_pids()[-1], signal.SIGTERM if n % 2 else signal.SIGKILL)
            for i, (t, got) in enumerate(asked):
                t.join()
                self.assertEqual((got[0][0], got[0][2]["choices"][0]["text"]), (200, f"n{i} " + " ".join(WORDS) + " "))
            self.assertEqual(d.metrics()['hearth_requests_blamed_total{model="stub"}'], 0)

    def test_another_file(self):
        """What has begun with one model does not go on with another."""
        with tempfile.TemporaryDirectory() as t:
            digest = pathlib.Path(t, "digest")
            digest.write_text("11" * 32)
            with Daemon("digest", str(digest), respawns=1000) as d:
                c, r = d.stream("say a gate say b")
                r.readline()
                digest.write_text("22" * 32)
                os.kill(d.worker_pids()[0], signal.SIGKILL)
                data = events(r)
                self.assertEqual(json.loads(data[-1])["error"]["code"], "model_changed", data)
                c.close()
                self.assertEqual(d.complete("say x")[0], 200)


"""
The bundled model in its own worker.
"""
STORY = "Tell me a story about a lighthouse and the sea, as long as you can."
KINDS = [
    (COMPLETIONS, {"prompt": "The sea is", "temperature": 0, "seed": 5, "max_tokens": 64, "ignore_eos": True}),
    (COMPLETIONS, {"prompt": "The sea is", "temperature": 1.2, "top_p": 0.95, "seed": 7, "max_tokens": 64, "ignore_eos": True,
                   "repetition_penalty": 1.2, "presence_penalty": 0.3, "logprobs": 3}),
    (COMPLETIONS, {"prompt": "One day", "temperature": 0.9, "seed": 3, "max_tokens": 64, "ignore_eos": True, "n": 2}),
    (COMPLETIONS, {"prompt": "The sea is", "temperature": 0, "seed": 5, "max_tokens": 64, "ignore_eos": True, "stop": [" the qqq", "e e", ". Z", "a\n\n\n"]}),
    (COMPLETIONS, {"prompt": "One day", "temperature": 0, "seed": 5, "max_tokens": 40, "logprobs": 2, "echo": True, "ignore_eos": True}),
    (CHAT, {"messages": [{"role": "user", "content": STORY}], "temperature": 0, "seed": 5, "max_tokens": 64, "ignore_eos": True}),
    (CHAT, {"messages": [{"role": "user", "content": "What is the weather in Paris?"}], "temperature": 0, "seed": 5, "max_tokens": 64, "tools": [WEATHER]}),
    (CHAT, {"messages": [{"role": "user", "content": "What is the weather in Rome?"}], "temperature": 0, "seed": 5, "max_tokens": 64, "tools": [WEATHER],
            "tool_choice": "required"}),
    (CHAT, {"messages": [{"role": "user", "content": "What is 12 plus 31?"}], "temperature": 0.7, "seed": 11, "max_tokens": 64,
            "enable_thinking": True, "logprobs": True, "top_logprobs": 2}),
    (RESPONSES, {"input": STORY + STORY, "temperature": 0, "max_output_tokens": 64, "store": False}),
]


class Killed:
    """A daemon whose worker is killed after a frame, when it is told so."""

    def __init__(self, *options):
        self.dir = tempfile.TemporaryDirectory()
        self.plan = pathlib.Path(self.dir.name, "plan")
        self.n = 0
        self.after(0)
        worker = f"{sys.executable} {HERE}/frame_killer.py {self.plan} {SERVE} worker -m {MODEL[0]} --threads 1"
        self.d = Daemon(argv=[SERVE, "serve", "-m", "ember", "--worker-cmd", worker, "--port", "0", "--max-respawns", "100", *options])

    def after(self, frame):
        self.n += 1
        new = pathlib.Path(self.dir.name, "next")
        new.write_text(f"{self.n} {frame}")
        new.rename(self.plan)

    def left(self):
        """True: the worker said less than that."""
        return self.plan.read_text().split()[1] != "0"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.d.end()
        self.dir.cleanup()


class Frames(Base):
    """Each kind after each frame."""
    UNLIKE = ("cached_tokens", "cache_miss", "id", "call_id", "item_id", "seed")  # with a serial number in it; what is cached; drawn

    def one_kind(self, k, i, path, body):
        deaths = 0
        for stream in True, False:
            k.after(0)
            want = ask(k.d, path, body, stream)
            self.assertEqual(want[0], 200, want)
            frame, todo = 0, list(some(1000, 3 * i + stream))
            for frame in todo:
                k.after(frame)
                got = ask(k.d, path, body, stream)
                if k.left():
                    break
                deaths += 1
                with self.subTest(path=path, body=body, stream=stream, frame=frame):
                    self.assert_same(got, want, *self.UNLIKE)
            self.assertGreater(frame, 15)  # it was as long as that
        return deaths

    def test_frames(self):
        with Killed() as k:
            deaths = 0
            for i, (path, body) in enumerate(KINDS):
                deaths += self.one_kind(k, i, path, body)
            self.assertTrue(until(lambda: sum("worker=gone" in line for line in k.d.log) == deaths))
            m = k.d.metrics()
            self.assertEqual(m['hearth_requests_blamed_total{model="ember"}'], 0)
            self.assertGreater(m['hearth_replies_resumed_total{model="ember"}'], 0.8 * deaths)
            sys.stderr.write(f"{deaths} deaths\n")

    def test_call_ids(self):
        """Those of the undisturbed run, which is another daemon's first request, too."""
        path, body = KINDS[6]
        answers = []
        for frame in 0, 12, 25:
            with Killed() as k:
                k.after(frame)
                answers.append(ask(k.d, path, body, frame == 25))
        call = answers[0][1]["choices"][0]["message"]["tool_calls"][0]["id"]
        self.assertRegex(call, "^call_[0-9a-f]{24}$")
        self.assertEqual(answers[1][1]["choices"][0]["message"]["tool_calls"][0]["id"], call)
        self.assertIn(call, json.dumps(answers[2]))


class Kills(Base):
    """kill -9 from outside, with sandbox, store and several clients."""

    def test_many_at_once(self):
        with Daemon(argv=[SERVE, "serve", "-m", MODEL[0], "--port", "0", "--threads", "1", "--max-respawns", "100"]) as d:
            bodies = [(path, {**body, **({"max_tokens": 200} if "max_tokens" in body else {})}) for path, body in KINDS]
            want = [ask(d, path, body, i % 2 == 0) for i, (path, body) in enumerate(bodies)]
            for _ in range(6 if EVERY else 2):
                got = [None] * len(bodies)

                def client(i):
                    got[i] = ask(d, *bodies[i], i % 2 == 0)
                threads = [threading.Thread(target=client, args=(i,)) for i in range(len(bodies))]
                for t in threads:
                    t.start()
                for _ in range(4):
                    n = sum("worker=ready" in line for line in d.log)
                    time.sleep(0.03)
                    os.kill(d.worker_pids()[-1], signal.SIGKILL)
                    self.assertTrue(until(lambda: sum("worker=ready" in line for line in d.log) > n))
                for i, t in enumerate(threads):
                    t.join()
                    self.assert_same(got[i], want[i], *Frames.UNLIKE)
            self.assertTrue(d.is_at_rest())


class Cut(Base):
    """The model's file is cut short under its mapping."""

    def test_cut_short(self):
        with tempfile.TemporaryDirectory() as t:
            path = pathlib.Path(t, "m.gguf")
            shutil.copy(MODEL[0], path)
            with Daemon(argv=[SERVE, "serve", "-m", str(path), "--port", "0", "--threads", "1", "-m", MODEL[0]]) as d:
                body = {"prompt": "The sea is", "seed": 5, "max_tokens": 400, "ignore_eos": True, "model": "ember"}
                other = [None]

                def client():
                    other[0] = ask(d, COMPLETIONS, body, False)
                thread = threading.Thread(target=client)
                want = ask(d, COMPLETIONS, body, False)
                c, r = d.stream("The sea is", max_tokens=1000, n=4, ignore_eos=True, model="m")
                r.readline()
                thread.start()
                os.truncate(path, 4096)
                data = events(r)
                c.close()
                self.assertEqual(json.loads(data[-1])["error"]["code"], "model_changed", data[-1])
                self.assertTrue(until(lambda: any('"m"' in line and "cause=model_changed" in line for line in d.log)), d.log)
                status, _, answer = d.complete("The sea is", model="m")
                self.assertEqual((status, answer["error"]["code"]), (503, "load_failed"))
                shutil.copy(MODEL[0], path)
                self.assertTrue(until(lambda: d.complete("The sea is", model="m", max_tokens=3)[0] == 200))
                thread.join()
                self.assert_same(other[0], want, *Frames.UNLIKE)  # of another model


class Poison(Base):
    """A worker that aborts when a token stands at a position: in what is read, and in what is said."""
    TOKEN, N = 290, 24

    def run_among(self, position, poison):
        worker = f"{MODEL[1]} -m {MODEL[0]} --max-sessions 16 --threads 1"
        os.environ["HEARTH_TEST_POISON"] = f"{self.TOKEN} {position}"
        others = [{"prompt": f"Number {i}: the sea is", "temperature": 0.8 * (i % 2), "seed": 5, "max_tokens": 120, "ignore_eos": True,
                   "logit_bias": {str(self.TOKEN): -100}} for i in range(15)]
        with Daemon(argv=[SERVE, "serve", "-m", "ember", "--worker-cmd", worker, "--port", "0", "--max-sessions", "16"]) as d:
            want = [ask(d, COMPLETIONS, body, False)[1]["choices"] for body in others]
            got = [None] * 15

            def client(i):
                got[i] = ask(d, COMPLETIONS, others[i], i % 3 == 0)
            threads = [threading.Thread(target=client, args=(i,)) for i in range(15)]
            for t in threads:
                t.start()
            self.assertTrue(until(lambda: d.metrics()['hearth_requests_running{model="ember"}'] > 8))
            answer = ask(d, COMPLETIONS, poison, False)
            self.assertEqual((answer[0], answer[1]["error"]["code"]), (503, "worker_crashed"), answer)
            for i, t in enumerate(threads):
                t.join()
                self.assertEqual(got[i][0], 200, got[i])
                text = "".join(c["choices"][0]["text"] for c in got[i][1:] if isinstance(c, dict))
                self.assertEqual(text, want[i][0]["text"])
            self.assertTrue(until(lambda: any("event=blamed" in line for line in d.log)))
            deaths = [line for line in d.log if "worker=gone" in line]
            self.assertIn(len(deaths), (2, 3), d.log)
            self.assertTrue(all("signal 6" in line or "signal 31" in line for line in deaths), deaths)
            self.assertEqual(d.metrics()['hearth_requests_blamed_total{model="ember"}'], 1)

    def test_in_the_prompt(self):
        self.run_among(self.N - 3, {"prompt": [7] * (self.N - 3) + [self.TOKEN, 8], "max_tokens": 5})

    def test_in_the_reply(self):
        self.run_among(self.N + 9, {"prompt": [7] * self.N, "max_tokens": 50, "temperature": 0, "ignore_eos": True,
                                    "logit_bias": {str(self.TOKEN): 100}})


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], GROUP])

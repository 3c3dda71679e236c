"""PROTOCOL 4, `resume`: a reply goes on where it stopped. Replies of each kind are heard undisturbed; then, after every frame of them,
the request is sent again as a daemon does that has lost its worker there, with what those frames told. What was heard and what then
comes must be the undisturbed reply, frame by frame: text, ids, log-probabilities, calls, counts and end."""
import os
import signal
import tempfile

import worker_client
from cases_ember import SHOWS_REASONING, STRANGE, TOOLS, EmberCase, message, user
from worker_client import segments, some_ids

# What `done` says of the reply and not of the run that ended it.
SAID = ("prompt_tokens", "completion_tokens", "finish_reason", "reason", "guard", "seed", "reasoning_tokens", "tail_repaired", "cancelled")
PROMPT = segments(some_ids(70, 5))
HOT = {"temperature": 0.9, "top_p": 0.95, "seed": 7}


def generate(**fields):
    return {"id": "req_1", "op": "generate", "seed": 3, "now": 1700000000000, "prompt_segments": PROMPT, "max_new_tokens": 64, **fields}


def chat(*messages, **fields):
    return {"id": "req_1", "op": "chat", "seed": 3, "now": 1700000000000, "messages": messages, "max_new_tokens": 64, **fields}


def end_of(done):
    return {key: done.get(key) for key in SAID}


class Seen:
    """What a daemon keeps of the frames that it has sent on."""

    def __init__(self, frames):
        self.frames = frames
        self.ids, self.n_bare, self.scored = [], 0, False
        for f in frames[1:]:
            self.scored = self.scored or "prompt_logprobs" in f
            if f.get("ids"):
                self.ids += f["ids"]
                self.n_bare = 0
            elif "ids" in f:
                self.n_bare += 1

    def again(self, request):
        """The line that goes to the next worker."""
        a = self.frames[0]["accepted"]
        resume = {"ids": self.ids, **{key: a[key] for key in ("seed", "now", "prompt_digest", "prompt_ids") if key in a}}
        return {**request, "resume": resume}

    def joined(self, frames):
        """All frames of the reply, of those that come now only what is new."""
        rest = frames[1:]
        if self.scored and rest and "prompt_logprobs" in rest[0]:
            assert not self.ids, "the prompt is scored a second time behind tokens"
            rest = rest[1:]
        bare = self.frames[len(self.frames) - self.n_bare:]
        assert [f for f in rest[:self.n_bare]] == bare, (rest[:self.n_bare], bare)
        return self.frames + rest[self.n_bare:]


class ResumeCase(EmberCase):
    def heard(self, w, request):
        w.send(request)
        frames = w.recv_until_last("req_1")
        self.assertIn("done", frames[-1], frames[-1])
        return frames

    def expect(self, w, request, frames, k):
        """Goes on behind the first k frames; the done frame of that."""
        seen = Seen(frames[:k])
        got = self.heard(w, seen.again(request))
        a, b = frames[0]["accepted"], got[0]["accepted"]
        self.assertEqual({**a, "cached_prompt_tokens": 0}, {**b, "cached_prompt_tokens": 0})
        whole = seen.joined(got)
        self.assertEqual(whole[1:-1], frames[1:-1])
        self.assertEqual(end_of(whole[-1]), end_of(frames[-1]))
        done = got[-1]
        self.assertEqual(done["reused_prompt_tokens"] + done["prefilled_prompt_tokens"], done["prompt_tokens"])
        return done

    def every_frame(self, request, frames, model, *args):
        """In workers that remember nothing and in ones that know all of it, fresh ones now and then; one that knows goes on alone."""
        cold, warm = None, None
        for k in range(1, len(frames)):
            with self.subTest(frame=k, of=len(frames), ids=len(Seen(frames[:k]).ids)):
                if k % 25 == 1:
                    for w in filter(None, (cold, warm)):
                        w.finish()
                    cold = self.worker("--threads", "1", "--no-warm", *args, model=model)
                    warm = self.worker("--threads", "1", *args, model=model)
                self.expect(cold if k % 2 else warm, request, frames, k)
        for w in filter(None, (cold, warm)):
            w.finish()

    def disturb(self, request, model="bpe", first=(), args=()):
        """Says it once, with what has to be said before; then after every frame."""
        w = self.worker("--threads", "1", *args, model=model)
        for line in first:
            self.heard(w, line)
        frames = self.heard(w, request)
        w.finish()
        self.every_frame(request, frames, model, *args)
        return frames


class Generate(ResumeCase):
    """The made model: 64 tokens of noise, in which every character that is cut is."""

    def test_greedy(self):
        frames = self.disturb(generate(ignore_eos=True))
        self.assertEqual(frames[-1]["completion_tokens"], 64)

    def test_sampled(self):
        """With all that looks back at what was said."""
        frames = self.disturb(generate(**HOT, ignore_eos=True, repetition_penalty=1.2, frequency_penalty=0.3, presence_penalty=0.2,
                                       repeat_last_n=16, logit_bias={"101": 1.5, "116": -2}))
        self.assertEqual(frames[-1]["completion_tokens"], 64)

    def test_logprobs(self):
        frames = self.disturb(generate(**HOT, logprobs=True, top_logprobs=5, ignore_eos=True, max_new_tokens=40))
        self.assertTrue(all("logprobs" in f for f in frames[1:-1]))

    def test_prompt_logprobs(self):
        frames = self.disturb(generate(prompt_logprobs=2, logprobs=True, max_new_tokens=20))
        self.assertIn("prompt_logprobs", frames[1])

    def test_stop_token_ids(self):
        w = self.worker()
        whole = [i for f in self.heard(w, generate(**HOT, ignore_eos=True)) for i in f.get("ids", [])]
        w.finish()
        stop = next(i for n, i in enumerate(whole) if n > 30 and i not in whole[:n])
        frames = self.disturb(generate(**HOT, ignore_eos=True, stop_token_ids=[stop]))
        self.assertEqual((frames[-1]["reason"], frames[-1]["completion_tokens"]), ("stop", whole.index(stop)))

    def test_stop_strings(self):
        """Text is held back most of the time: each letter may be the beginning of one of them."""
        w = self.worker()
        ask = generate(**HOT, ignore_eos=True, logit_bias={str(i): 30 if 97 <= i < 123 else -30 for i in range(300)})
        text = "".join(f.get("token", "") for f in self.heard(w, ask))
        w.finish()
        at = len(text) * 2 // 3
        stop = [text[at:at + 7]] + [text[i:i + 6] + "!" for i in range(0, at, 2)]
        frames = self.disturb({**ask, "stop": stop[:30]})
        self.assertEqual(frames[-1]["reason"], "stop")
        self.assertEqual("".join(f.get("token", "") for f in frames), text[:text.index(stop[0])])
        self.assertGreater(sum(f.get("token") == "" for f in frames), 10)
        # begun and never finished: what is held comes out at the end, in a frame without an id
        frames = self.disturb({**ask, "stop": [text[-3:] + "!"]})
        self.assertEqual((frames[-2]["ids"], frames[-1]["reason"]), ([], "length"))

    def test_min_tokens(self):
        """Its end token is what it would say first."""
        frames = self.disturb(generate(min_tokens=30, logit_bias={"299": 60}))
        self.assertEqual((frames[-1]["reason"], frames[-1]["completion_tokens"]), ("stop", 30))

    def test_repetition_guard(self):
        frames = self.disturb(generate(max_new_tokens=100, repetition_guard=48, logit_bias={"97": 99}))
        self.assertEqual((frames[-1]["guard"], frames[-1]["completion_tokens"]), ("repetition", 64))

    def test_session(self):
        """A `length` end, whose last token its session holds: the next turn finds prompt and reply."""
        request = generate(session_id="s", ignore_eos=True, max_new_tokens=24)
        frames = self.disturb(request)
        ids = [i for f in frames for i in f.get("ids", [])]
        for k in (1, 13, len(frames) - 1):
            w = self.worker()
            self.expect(w, request, frames, k)
            done = self.heard(w, generate(session_id="s", prompt_segments=segments(PROMPT[0]["ids"] + ids + [70]), max_new_tokens=1))[-1]
            self.assertEqual((done["session_reset_reason"], done["cached_prompt_tokens"]), ("exact_prefix", 94))
            w.finish()

    def test_given_prompt(self):
        """The ids of the prompt may be sent along, whatever its text would give."""
        request = generate(max_new_tokens=8)
        w = self.worker()
        frames = self.heard(w, request)
        seen = Seen(frames[:4])
        line = seen.again({**request, "prompt_segments": [{"text": "something else"}]})
        self.assertEqual(self.refused(w, line)["code"], "resume_mismatch")
        line["resume"]["prompt_ids"] = PROMPT[0]["ids"]
        got = self.heard(w, line)
        self.assertEqual(seen.joined(got)[1:-1], frames[1:-1])
        self.assertEqual(got[0]["accepted"]["prompt_ids"], PROMPT[0]["ids"])
        w.finish()

    def refused(self, w, line):
        w.send(line)
        (e,) = w.recv_until_last("req_1")
        self.assertIn("error", e)
        return e

    def test_mismatch(self):
        """Not the prompt; tokens that the reply cannot have had. Nothing of it is left, and the worker goes on."""
        w = self.worker()
        request = generate(max_new_tokens=8, stop_token_ids=[98], session_id="s")
        frames = self.heard(w, generate(max_new_tokens=8))
        line = Seen(frames[:1]).again(request)
        for change in ({"prompt_digest": "0" * 64}, {"prompt_ids": [97]}, {"ids": [97] * 9}, {"ids": [97, 98]}, {"ids": [297, 97]}):
            e = self.refused(w, {**line, "resume": {**line["resume"], **change}})
            self.assertEqual(e["code"], "resume_mismatch", (change, e))
        for change, field in (({"ids": [300]}, "resume.ids[0]"), ({"seed": 0}, "resume.seed"), ({"x": 1}, "resume.x")):
            e = self.refused(w, {**line, "resume": {**line["resume"], **change}})
            self.assertEqual((e["code"], e["field"]), ("invalid_field", field))
        w.send({"id": "g", "op": "session", "action": "get", "session_id": "s"})
        self.assertFalse(w.recv_of("g")["session"]["known"])
        self.assertEqual(self.heard(w, generate(max_new_tokens=8))[1:-1], frames[1:-1])
        w.finish()

    def test_seed_and_now(self):
        """Those of `resume` are in force."""
        w = self.worker()
        request = generate(**{**HOT, "seed": 9}, max_new_tokens=12, ignore_eos=True)
        frames = self.heard(w, request)
        line = Seen(frames[:6]).again({**request, "seed": 4, "now": 5})
        got = self.heard(w, line)
        self.assertEqual(got[0]["accepted"]["seed"], 9)
        self.assertEqual(got[0]["accepted"]["now"], 1700000000000)
        self.assertEqual(Seen(frames[:6]).joined(got)[1:-1], frames[1:-1])
        self.assertEqual(got[-1]["seed"], 9)
        w.finish()

    def test_deadline(self):
        """What is left of it is what the line says; the counts are those of the whole reply."""
        w = self.worker(model="long")
        request = generate(max_new_tokens=-1, ignore_eos=True)
        w.send(request)
        frames = [w.recv_of("req_1") for _ in range(21)]
        w.send({"id": "req_1", "op": "cancel"})
        w.recv_until_last("req_1")
        got = self.heard(w, {**Seen(frames).again(request), "deadline_ms": 1})
        self.assertEqual(got[-1]["reason"], "timeout")
        self.assertGreaterEqual(got[-1]["completion_tokens"], 20)
        w.finish()

    def test_company(self):
        """All the ways to go on at once."""
        w = self.worker()
        request = generate(**HOT, ignore_eos=True, logprobs=True)
        frames = self.heard(w, request)
        for k in range(1, len(frames), 3):
            w.send({**Seen(frames[:k]).again(request), "id": f"r{k}"})
        for k in range(1, len(frames), 3):
            got = [{**f, "id": "req_1"} for f in w.recv_until_last(f"r{k}")]
            self.assertEqual(Seen(frames[:k]).joined(got)[1:-1], frames[1:-1])
            self.assertEqual(end_of(got[-1]), end_of(frames[-1]))
        w.finish()


class Chat(ResumeCase):
    """The bundled model."""

    def disturb(self, request, first=(), args=()):
        return super().disturb(request, "ember", first, args)

    def calls_of(self, frames):
        return [f["delta"]["tool_call"] for f in frames if "tool_call" in f.get("delta", {})]

    def test_plain(self):
        self.disturb(chat(user("Tell me a story about a fox."), temperature=0.7))

    def test_strange(self):
        """Hot, and with characters of many tokens."""
        self.disturb(chat(user(STRANGE), temperature=30.0, max_new_tokens=40, stop=["\ufffd\ufffd\ufffd"]))

    def test_stop_strings(self):
        w = self.ember()
        text = "".join(f.get("delta", {}).get("content", "") for f in self.heard(w, chat(user("Tell me a story about a fox."))))
        w.finish()
        stop = [text[50:58]] + [text[i:i + 5] + "\n" for i in range(0, 48, 3)]
        frames = self.disturb(chat(user("Tell me a story about a fox."), stop=stop))
        self.assertEqual("".join(f.get("delta", {}).get("content", "") for f in frames), text[:text.index(stop[0])])

    def test_call(self):
        frames = self.disturb(chat(user("What is the weather in Paris?"), tools=TOOLS))
        self.assertEqual(frames[-1]["reason"], "tool_calls")
        self.assertTrue(any(c.get("name") == "get_weather" for c in self.calls_of(frames)))

    def test_forced_calls(self):
        """Its opening stands in the prompt; one call is the end of the reply, by itself or by its closing."""
        for choice in ("required", {"name": "get_weather"}):
            for parallel in (True, False):
                frames = self.disturb(chat(user("Hello! What is the weather in Rome?"), tools=TOOLS, tool_choice=choice,
                                           parallel_tool_calls=parallel))
                self.assertEqual(frames[-1]["reason"], "tool_calls")

    def test_reasoning(self):
        frames = self.disturb(chat(user("What is the opposite of hot?"), reasoning={"enabled": True}))
        self.assertTrue(any("reasoning" in f.get("delta", {}) for f in frames))
        self.assertGreater(frames[-1]["reasoning_tokens"], 3)

    def test_budget(self):
        """The end of reasoning is forced: those tokens were never drawn."""
        for budget in (0, 4):
            frames = self.disturb(chat(user("What is the opposite of hot?"), reasoning={"enabled": True, "budget": budget},
                                       logprobs=True, temperature=0.8, max_new_tokens=40))
            self.assertLessEqual(frames[-1]["reasoning_tokens"], budget)

    def test_session(self):
        self.disturb(chat(user("Tell me a story about a fox."), session_id="s", max_new_tokens=20))

    def shows_reasoning(self):
        with open(worker_client.TEMPLATE, encoding="utf-8") as f:
            source = f.read()
        with tempfile.NamedTemporaryFile("w", suffix=".jinja", delete=False) as f:
            f.write(source.replace(*SHOWS_REASONING))
        self.addCleanup(os.unlink, f.name)
        return "--chat-template", f.name

    def test_recalled(self):
        """A turn whose prompt holds what only the lost worker knew: its reasoning, and its own tokens for a text."""
        args = self.shows_reasoning()
        w = self.ember(*args)
        ask = user("What is the opposite of big?")
        first = chat(ask, reasoning={"enabled": True}, max_new_tokens=80)
        frames = self.heard(w, first)
        w.finish()
        content = "".join(f.get("delta", {}).get("content", "") for f in frames)
        reasoning = "".join(f.get("delta", {}).get("reasoning", "") for f in frames)
        self.assertTrue(content and reasoning)
        second = chat(ask, message("assistant", content), user("What is the opposite of hot?"), reasoning={"enabled": True})
        frames = self.disturb(second, (first,), args)
        self.assertEqual(len(frames[0]["accepted"]["prompt_ids"]), frames[0]["accepted"]["prompt_tokens"])
        # where nothing was found the ids are the request's own, and are not told
        w = self.ember(*args)
        other = self.heard(w, second)
        self.assertNotIn("prompt_ids", other[0]["accepted"])
        self.assertNotEqual(other[0]["accepted"]["prompt_digest"], frames[0]["accepted"]["prompt_digest"])
        # and what was said meanwhile is no part of a reply that began without it
        w.finish()
        w = self.ember(*args)
        self.heard(w, first)
        self.expect(w, second, other, 5)
        w.finish()

    def test_is_remembered(self):
        """A reply that went on elsewhere is known there like any other."""
        args = self.shows_reasoning()
        ask = user("What is the opposite of big?")
        first = chat(ask, reasoning={"enabled": True}, max_new_tokens=80)
        w = self.ember(*args)
        frames = self.heard(w, first)
        content = "".join(f.get("delta", {}).get("content", "") for f in frames)
        second = chat(ask, message("assistant", content), user("What is the opposite of hot?"), reasoning={"enabled": True})
        want = self.heard(w, second)
        w.finish()
        w = self.ember(*args)
        self.expect(w, first, frames, 9)
        got = self.heard(w, second)
        self.assertEqual(got[0]["accepted"]["prompt_ids"], want[0]["accepted"]["prompt_ids"])
        self.assertEqual(got[1:-1], want[1:-1])
        w.finish()


class Stories(ResumeCase):
    """A model that was trained elsewhere, with a SentencePiece vocabulary."""

    def test_story(self):
        root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
        path = os.path.join(os.environ.get("HEARTH_FIXTURES") or f"{root}/../shared/fixtures", "stories260K.gguf")
        if not os.path.exists(path):
            self.skipTest(f"fixtures absent ({path})")
        ask = {"prompt_segments": [{"text": "Once upon a time"}], "add_special": True}
        for sampled in ({}, {**HOT, "logprobs": True, "top_logprobs": 2, "stop": ["Lily", " day. "]}):
            frames = self.disturb(generate(**ask, **sampled), path)
            self.assertGreater(frames[-1]["completion_tokens"], 4)


class Killed(ResumeCase):
    """Real deaths: the store has what is not to be computed again."""

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.store = os.path.join(folder.name, "kv")

    def keeping(self, model, **kwargs):
        return self.worker("--threads", "1", "--store", self.store, model=model, **kwargs)

    def computed(self, w):
        w.send({"id": "st", "op": "stats"})
        s = w.recv_of("st")["stats"]
        return s["tokens_prefilled"] + s["tokens_recomputed"]

    def deaths(self, request, model, places, quiet=False):
        """quiet: what the store was given is on disk. These models are faster than it; of one that is not no more than a few pages
        are on their way to it. So that the worker does not run ahead it says much, and nobody reads on."""
        w = self.worker("--threads", "1", model=model)
        frames = self.heard(w, request)
        w.finish()
        for at in places:
            k = at % len(frames) or 1
            with self.subTest(frame=k, of=len(frames)):
                w = self.keeping(model, small_pipe=quiet)
                w.send(request)
                seen = [w.recv_of("req_1") for _ in range(k)]
                if quiet:
                    w.wait_until_quiet()
                w.proc.kill()
                self.assertEqual(w.wait(), -signal.SIGKILL)
                self.assertEqual(seen[1:], frames[1:k])
                w = self.keeping(model)
                self.expect(w, request, frames, k)
                if quiet:
                    self.assertLessEqual(self.computed(w), 128)
                w.finish()

    def test_generate(self):
        if os.path.basename(worker_client.COMMAND[0]) == "worker_main":
            self.skipTest("worker_main has no such options")
        self.deaths(generate(**HOT, ignore_eos=True, logprobs=True), "bpe", range(1, 64, 9))

    def test_chat(self):
        if os.path.basename(worker_client.COMMAND[0]) == "worker_main":
            self.skipTest("worker_main has no such options")
        self.deaths(chat(user("What is the weather in Paris?"), tools=TOOLS), "ember", (2, 9, -1))

    def test_long(self):
        """Hundreds of tokens of reply behind a prompt of thousands: half of what may be computed again is what the store was not
        given yet."""
        if os.path.basename(worker_client.COMMAND[0]) == "worker_main":
            self.skipTest("worker_main has no such options")
        request = generate(prompt_segments=segments(some_ids(2000)), max_new_tokens=700, ignore_eos=True, logprobs=True,
                           top_logprobs=20)
        self.deaths(request, "long", (2, 63, 130, 260, 391, 520, 699), quiet=True)

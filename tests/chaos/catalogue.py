"""catalogue: the requests that clients make, and what each says when it is asked alone of a fresh daemon that keeps nothing: that
is what it must say in the chaos, too.

An entry is one body of one route, streamed or not. Ember is asked what it can answer; the noise model, whose text means nothing,
is slow enough that replies of thousands of tokens are met in their middle."""
import concurrent.futures
import json

import raw_http
import reply
from rig import Daemon

EMBER, NOISE = "ember", "noise"
CONTEXT = 8192  # of the noise model

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Current weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
CALCULATE = {"type": "function", "function": {
    "name": "calculate", "description": "Evaluates an expression",
    "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]}}}
TOOLS = [WEATHER, CALCULATE]


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def noise_ids(n, salt):
    return [3 + (i * i * 7 + i * 13 + salt * 31) % 250 for i in range(n)]


# Nobody's reply: the worker must not take these for what it said itself (docs/http.md, Reasoning).
TALK = [user("Hello there, my name is Anna."), assistant("Good day to you, dear Anna of the hill."), user("What is my name?")]
RESULT = [user("What is the weather in Rome?"),
          assistant(None, tool_calls=[{"id": "call_1", "type": "function",
                                       "function": {"name": "get_weather", "arguments": '{"city": "Rome"}'}}]),
          {"role": "tool", "tool_call_id": "call_1", "content": '{"weather": "rain", "temperature": 12}'}]
THOUGHT = [user("How many legs has a spider?"), assistant("It has eight of them.", reasoning_content="Easy: eight."), user("And a cat?")]

COMPLETIONS, CHAT, RESPONSES = "/v1/completions", "/v1/chat/completions", "/v1/responses"
STORY = "Once upon a time there was a fox who"

GENERATIONS = [
    # name, model, route, body
    ("greedy", EMBER, COMPLETIONS, {"prompt": STORY, "temperature": 0, "max_tokens": 60}),
    ("sampled", EMBER, COMPLETIONS, {"prompt": STORY, "temperature": 0.9, "top_p": 0.95, "seed": 11, "max_tokens": 150,
                                     "presence_penalty": 0.4, "repetition_penalty": 1.1}),
    ("n2", EMBER, COMPLETIONS, {"prompt": STORY, "n": 2, "seed": 5, "temperature": 1, "max_tokens": 90, "ignore_eos": True}),
    ("two prompts", EMBER, COMPLETIONS, {"prompt": [STORY, "The sun"], "seed": 8, "temperature": 0.8, "max_tokens": 50}),
    ("logprobs", EMBER, COMPLETIONS, {"prompt": "The moon", "logprobs": 3, "temperature": 0.7, "seed": 2, "max_tokens": 60,
                                      "ignore_eos": True}),
    ("stop", EMBER, COMPLETIONS, {"prompt": STORY, "stop": [" the ", "fox.", "ever after"], "temperature": 0.9, "seed": 23,
                                  "max_tokens": 200, "ignore_eos": True}),
    ("echo", EMBER, COMPLETIONS, {"prompt": "The sea is deep", "echo": True, "logprobs": 1, "temperature": 0, "max_tokens": 12}),
    ("score", EMBER, COMPLETIONS, {"prompt": "The sea is deep and blue", "echo": True, "logprobs": 0, "max_tokens": 0}),
    ("bias", EMBER, COMPLETIONS, {"prompt": STORY, "logit_bias": {"300": 2.5, "17": -100}, "min_tokens": 40, "max_tokens": 120,
                                  "temperature": 1.1, "top_k": 50, "min_p": 0.02, "seed": 77, "frequency_penalty": 0.3}),
    ("guard", EMBER, COMPLETIONS, {"prompt": STORY, "temperature": 0, "ignore_eos": True, "max_tokens": 1200, "repetition_guard": 64}),
    ("ember long", EMBER, COMPLETIONS, {"prompt": STORY, "temperature": 0.9, "seed": 4, "ignore_eos": True, "max_tokens": 1500}),
    ("noise ids", NOISE, COMPLETIONS, {"prompt": noise_ids(50, 1), "temperature": 0, "max_tokens": 120, "ignore_eos": True}),
    ("noise sampled", NOISE, COMPLETIONS, {"prompt": noise_ids(20, 2), "seed": 9, "max_tokens": 500, "ignore_eos": True}),
    ("noise n4", NOISE, COMPLETIONS, {"prompt": noise_ids(70, 3), "n": 4, "seed": 1, "max_tokens": 250, "ignore_eos": True}),
    ("noise logprobs", NOISE, COMPLETIONS, {"prompt": noise_ids(9, 4), "logprobs": 5, "seed": 6, "max_tokens": 400, "ignore_eos": True}),
    ("noise stop", NOISE, COMPLETIONS, {"prompt": noise_ids(33, 5), "stop": ["e t", "qu", "ng", "zz"], "seed": 12, "max_tokens": 900,
                                        "ignore_eos": True}),
    ("noise long", NOISE, COMPLETIONS, {"prompt": noise_ids(40, 6), "seed": 13, "max_tokens": 2000, "ignore_eos": True}),
    ("noise 4000", NOISE, COMPLETIONS, {"prompt": noise_ids(40, 7), "seed": 14, "max_tokens": 4000, "ignore_eos": True}),
    ("noise prompt", NOISE, COMPLETIONS, {"prompt": noise_ids(4000, 8), "seed": 15, "max_tokens": 30, "ignore_eos": True}),
    ("noise fat", NOISE, COMPLETIONS, {"prompt": noise_ids(12, 9), "n": 4, "logprobs": 5, "seed": 16, "max_tokens": 1100,
                                       "ignore_eos": True}),  # as a stream more than daemon and sockets hold
    ("question", EMBER, CHAT, {"messages": [user("What is the capital of France?")], "temperature": 0, "max_tokens": 60}),
    ("tale", EMBER, CHAT, {"messages": [user("Tell me a story about a fox.")], "temperature": 0.7, "seed": 5, "max_tokens": 200}),
    ("system", EMBER, CHAT, {"messages": [{"role": "system", "content": "Answer briefly."}, user("What is hearth?")], "temperature": 0,
                             "max_tokens": 80}),
    ("talk", EMBER, CHAT, {"messages": TALK, "temperature": 0.5, "seed": 31, "max_tokens": 80}),
    ("parts", EMBER, CHAT, {"messages": [{"role": "user", "content": [{"type": "text", "text": "What is "},
                                                                      {"type": "text", "text": "two plus three?"}]}],
                            "temperature": 0, "max_tokens": 60}),
    ("call", EMBER, CHAT, {"messages": [user("What is the weather in Paris?")], "tools": TOOLS, "temperature": 0, "max_tokens": 100}),
    ("call sampled", EMBER, CHAT, {"messages": [user("What is 17 times 23?")], "tools": TOOLS, "temperature": 0.6, "seed": 3,
                                   "max_tokens": 120}),
    ("call named", EMBER, CHAT, {"messages": [user("Hello!")], "tools": TOOLS, "max_tokens": 100, "temperature": 0,
                                 "tool_choice": {"type": "function", "function": {"name": "get_weather"}}}),
    ("call cut", EMBER, CHAT, {"messages": [user("What is the weather in Paris?")], "tools": TOOLS, "temperature": 0, "max_tokens": 14}),
    ("result", EMBER, CHAT, {"messages": RESULT, "tools": TOOLS, "temperature": 0, "max_tokens": 80}),
    ("thinking", EMBER, CHAT, {"messages": [user("How many days are in a week?")], "enable_thinking": True, "temperature": 0,
                               "max_tokens": 200}),
    ("thinking budget", EMBER, CHAT, {"messages": [user("How many days are in a week?")], "enable_thinking": True, "temperature": 0.4,
                                      "seed": 41, "reasoning_budget": 8, "max_tokens": 120}),
    ("thought", EMBER, CHAT, {"messages": THOUGHT, "enable_thinking": True, "temperature": 0, "max_tokens": 150}),
    ("chat logprobs", EMBER, CHAT, {"messages": [user("Name three colours.")], "logprobs": True, "top_logprobs": 3, "temperature": 0.3,
                                    "seed": 10, "max_tokens": 60}),
    ("chat n3", EMBER, CHAT, {"messages": [user("Tell me a joke.")], "n": 3, "temperature": 1, "seed": 2, "max_tokens": 80}),
    ("chat stop", EMBER, CHAT, {"messages": [user("Count from one to ten.")], "stop": ["five", "5"], "temperature": 0, "max_tokens": 80}),
    ("continue", EMBER, CHAT, {"messages": [user("What is the capital of Spain?"), assistant("The capital")],
                               "continue_final_message": True, "temperature": 0, "max_tokens": 40}),
    ("chat long", EMBER, CHAT, {"messages": [user("Tell me a long story.")], "temperature": 0.8, "seed": 19, "ignore_eos": True,
                                "max_tokens": 1000}),
    ("noise chat", NOISE, CHAT, {"messages": [user("abc def")], "temperature": 0.8, "seed": 21, "max_tokens": 600, "ignore_eos": True}),
    ("response", EMBER, RESPONSES, {"input": "What is hearth?", "temperature": 0, "max_output_tokens": 60}),
    ("response sampled", EMBER, RESPONSES, {"input": "Tell me a story about a dog.", "instructions": "Be kind.", "temperature": 0.8,
                                            "seed": 6, "max_output_tokens": 150}),
    ("response call", EMBER, RESPONSES, {"input": "What is the weather in Oslo?", "temperature": 0, "max_output_tokens": 100,
                                         "tools": [{"type": "function", **WEATHER["function"]}]}),
    ("response cut", EMBER, RESPONSES, {"input": "Count from one to twenty.", "temperature": 0, "max_output_tokens": 9}),
    ("response thinking", EMBER, RESPONSES, {"input": "What is the opposite of hot?", "reasoning": {"effort": "low"}, "temperature": 0,
                                             "max_output_tokens": 120}),
]

LIGHT = [
    ("tokenize", "POST", "/tokenize", {"content": "Hello there, how are you? " * 20, "with_pieces": True}),
    ("tokenize large", "POST", "/tokenize", {"content": "one two three " * 20000}),
    ("detokenize", "POST", "/detokenize", {"tokens": [1325, 834, 17, 300, 301, 302]}),
    ("template", "POST", "/apply-template", {"messages": TALK}),
    ("noise tokenize", "POST", "/tokenize", {"content": "abc def ghi " * 300, "model": NOISE}),
]

QUESTIONS = ["Hello!", "What is the capital of Italy?", "Thank you.", "What is a river?"]


class Entry:
    def __init__(self, name, model, path, body, stream):
        self.name, self.model, self.path, self.stream = name + (" stream" if stream else ""), model, path, stream
        self.body = {"model": model, **body, **({"stream": True} if stream else {})}
        if stream and path != RESPONSES:
            self.body["stream_options"] = {"include_usage": True}
        self.cold = self.beyond = None  # Reply; beyond: without the stop strings, which a cut reply may come to say
        self.ms = 0.0  # what it took alone

    @property
    def expected(self):
        return [self.cold]

    def beyond_all(self):
        return [self.beyond]


class Light:
    def __init__(self, name, method, path, body):
        self.name, self.method, self.path, self.body, self.cold = name, method, path, body, None
        self.model = body.get("model", EMBER)


def ask_cold(start, model, requests):
    """Answers of a fresh daemon to these (method, path, body), one after another."""
    with start(model) as d:
        out = []
        for method, path, body in requests:
            a = raw_http.ask(d.port, method, path, body)
            assert a.whole and a.status == 200, (path, body, a.why, a.status, bytes(a.body[:500]))
            out.append(a)
        return out


def fill(entry, start):
    a = ask_cold(start, entry.model, [("POST", entry.path, entry.body)])[0]
    entry.cold, entry.ms = reply.read(a), (a.ended - a.began) * 1000
    assert entry.cold.ended and not entry.cold.broken, (entry.name, entry.cold.broken)
    assert all(c.true for c in entry.cold.choices.values()), entry.name
    entry.beyond = entry.cold
    if "stop" in entry.body:
        a = ask_cold(start, entry.model, [("POST", entry.path, {k: v for k, v in entry.body.items() if k != "stop"})])[0]
        entry.beyond = reply.read(a)


def fill_light(light, start):
    light.cold = ask_cold(start, light.model, [(light.method, light.path, light.body)])[0].json()


class Turn:
    """One turn of a conversation: its body, and what it may say: with and without what the worker remembers of the turns before
    (the ids of its own replies are those it sampled, where a text alone is cut into tokens anew)."""

    def __init__(self, path, body, expected):
        self.path, self.body, self.expected, self.model = path, body, expected, body["model"]

    def beyond_all(self):
        return self.expected


def conversation(start, model, path, make, n):
    """n turns; make(replies so far) gives the body of the next."""
    replies, turns, bodies = [], [], []
    for _ in range(n):
        bodies.append(make(replies))
        alone = reply.read(ask_cold(start, model, [("POST", path, bodies[-1])])[0])
        after = reply.read(ask_cold(start, model, [("POST", path, b) for b in bodies])[-1])
        turns.append(Turn(path, bodies[-1], [alone, after]))
        replies.append(after.choice(0))
    return turns


def chat_turn(replies):
    messages = [m for q, r in zip(QUESTIONS, replies) for m in (user(q), assistant(r.text))]
    return {"model": EMBER, "messages": messages + [user(QUESTIONS[len(replies)])], "temperature": 0, "max_tokens": 60}


def thinking_turn(replies):
    return {**chat_turn(replies), "enable_thinking": True, "max_tokens": 150}


def text_turn(replies):
    text = STORY + "".join(r.text + " Then" for r in replies)
    return {"model": EMBER, "prompt": text, "temperature": 0.8, "seed": 50 + len(replies), "max_tokens": 80, "ignore_eos": True}


def noise_turn(replies):
    ids = noise_ids(200 + 300 * len(replies), 40)
    return {"model": NOISE, "prompt": ids, "seed": 60 + len(replies), "max_tokens": 200, "ignore_eos": True}


class Catalogue:
    """All of it, with the cold answers."""

    def __init__(self, start, tell):
        self.entries = [Entry(*g, stream) for g in GENERATIONS for stream in (False, True)]
        self.lights = [Light(*x) for x in LIGHT]
        talks = [(EMBER, CHAT, chat_turn, 4), (EMBER, CHAT, thinking_turn, 3), (EMBER, COMPLETIONS, text_turn, 4),
                 (NOISE, COMPLETIONS, noise_turn, 4)]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            work = [pool.submit(fill, e, start) for e in self.entries] + [pool.submit(fill_light, x, start) for x in self.lights]
            talking = [pool.submit(conversation, start, *t) for t in talks]
            for w in work:
                w.result()
            self.talks = [t.result() for t in talking]
        self.by_name = {e.name: e for e in self.entries}
        for e in self.entries:  # the two ways of asking say the same
            if e.stream:
                whole = self.by_name[e.name.removesuffix(" stream")].cold
                assert e.cold.whole() == whole.whole(), (e.name, e.cold.whole(), whole.whole())
        tell(f"cold     {len(self.entries)} kinds of generations, {len(self.lights)} others, {sum(map(len, self.talks))} turns, "
             f"each asked alone of a fresh daemon")


def cold_daemon(hearth, models):
    """start(model) for ask_cold."""
    def start(model):
        return Daemon([hearth, "serve", "-m", models[model], "--threads", "1", "--no-store", "--port", "0"])
    return start


def as_text(said):
    """For messages about what differs."""
    return json.dumps(said, ensure_ascii=False)[:400]

#!/usr/bin/python3
"""Asks a GGUF file prompts that are in no training conversation, through `hearth worker`, and judges the answers.

    ./evaluate.py --dir DIR [--also DIR2] --hearth PATH/hearth -m ember.gguf [--show] [--only SUITE] [--count 200]

Greedy, without constraints. DIR is generate.py's: each prompt is checked against every conversation in
train.jsonl first. --show prints wrong answers. The suite "visitor" is not held out and says so: it is what
people type first.
"""
import argparse
import json
import math
import os
import random
import re
import subprocess
import tempfile

import bpe
import generate
import skills
import tasks
import tools
from ask import ask, held
from prepare import ANSWER, ids_of, render
from visitor import VISITOR
from words import LISTS, WORDS, invent

SEED = 20261129


class Worker:
    """One `hearth worker`; the prompts go in one after the other."""

    def __init__(self, hearth, model):
        self.p = subprocess.Popen([hearth, "worker", "-m", model], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, encoding="utf-8")
        assert json.loads(self.p.stdout.readline())["ready"]

    def answer(self, turns, limit=220):
        """The answer to a conversation that ends with a request, and why it ended."""
        prompt = render(turns) + "<|im_start|>assistant\n"
        self.p.stdin.write(json.dumps({"prompt": prompt, "max_new_tokens": limit, "temperature": 0}) + "\n")
        self.p.stdin.flush()
        text = ""
        while True:
            frame = json.loads(self.p.stdout.readline())
            if "error" in frame:
                raise SystemExit(f"evaluate: worker: {frame}")
            text += frame.get("token", "")
            if frame.get("done"):
                return text if frame["finish_reason"] == "stop" else text + " [cut]"


def exact(want):
    return lambda text: text == want


def held_word(rng):
    while True:
        word = rng.choice(WORDS + skills.SAID) if rng.random() < 0.7 else invent(rng)
        if skills.word_held(word):
            return word


def draw(rng, make, good=held):
    """make(rng) until its first request is held out."""
    while True:
        item = make(rng)
        if good(item[0]):
            return item


def single(rng, make):
    q, a = draw(rng, lambda r: make(r)[0])
    return [("user", q)], exact(a)


def one_digit(templates, op):
    def make(rng):
        a, b = rng.randrange(10), rng.randrange(10)
        if op == "-":
            a, b = max(a, b), min(a, b)
        wa, wb = skills.in_words(rng, a, b)
        value = {"+": a + b, "-": a - b, "*": a * b}[op]
        q = draw(rng, lambda r: (ask(r, templates, a=wa, b=wb),))[0]
        return [("user", q)], exact(f"{a} {op} {b} = {value}.")
    return make


def two_digit(rng):
    a, b = rng.randrange(10, 100), rng.randrange(10, 100)
    q = draw(rng, lambda r: (ask(r, skills.PLUS, a=a, b=b),))[0]
    return [("user", q)], exact(f"{a} + {b} = {a + b}.")


def lists(rng):
    def make(r):
        kind = r.choice(list(LISTS))
        n = min(r.choice((2, 3, 4, 5)), len(LISTS[kind]) - 1)
        return ask(r, "name {n} {k}|list {n} {k}|give me {n} {k}|tell me {n} {k}|{n} {k}|what are {n} {k}",
                   n=skills.COUNT[n], k=kind), kind, n
    q, kind, n = draw(rng, make)
    words = {w.lower() for w in LISTS[kind]}

    def judge(text):
        items = [i.strip().lower() for i in re.split(r",| and ", text.rstrip("."))]
        return len(items) == n == len(set(items)) and all(i in words for i in items)
    return [("user", q)], judge


def stories(rng):
    def make(r):
        animal = r.choice(tasks.ANIMALS)
        return ask(r, tasks.STORY, a=tasks.facts.an(animal)), animal
    q, animal = draw(rng, make)
    return [("user", q)], lambda t: len(re.findall(r"[.!?](?= |$)", t)) == 4 and animal in t.lower() and t[-1] == "."


def json_object(rng):
    q, a = draw(rng, lambda r: tasks.json_object(r)[0])
    want = json.loads(a)

    def judge(text):
        try:
            return json.loads(text) == want
        except ValueError:
            return False
    return [("user", q)], judge


def json_valid(rng):
    turns, _ = json_object(rng)

    def judge(text):
        try:
            return isinstance(json.loads(text), dict)
        except ValueError:
            return False
    return turns, judge


def a_call(text):
    """The call in an answer that is one call and nothing else, else None."""
    m = re.fullmatch(r"<tool_call>\n(.*)\n</tool_call>", text, re.S)
    try:
        return json.loads(m.group(1)) if m else None
    except ValueError:
        return None


def tool_turns(rng, name):
    """A conversation with both tools and a held-out request; cut after the request, and after the result."""
    while True:
        w, c = tools.weather_tool(rng), tools.calculate_tool(rng)
        both = [w[0], c[0]]
        rng.shuffle(both)
        turns = tools.weather(rng, w[1]) if name == "get_weather" else tools.calculation(rng, c[1])
        if held(turns[0][1]):
            system = tools.SYSTEM.format(tools="\n".join(json.dumps(t) for t in both))
            return [("system", system)] + turns[:4]


def tool_call(name):
    def make(rng):
        turns = tool_turns(rng, name)
        want = a_call(turns[2][1])
        return turns[:2], lambda text: a_call(text) == want
    return make


def tool_valid(name):
    def make(rng):
        return tool_turns(rng, name)[:2], lambda t: (a_call(t) or {}).get("name") == name
    return make


def tool_result(name):
    def make(rng):
        turns = tool_turns(rng, name)
        return turns[:4], exact(turns[4][1])
    return make


def thinking(rng):
    q, a = draw(rng, lambda r: tasks.think(r)[0])
    want = a.split("</think>\n\n")[1]
    return [("user", q)], lambda t: t.startswith("<think>\n") and t.split("</think>\n\n")[-1] == want


def unknown(rng):
    q, _ = draw(rng, lambda r: skills.unknown(r)[0])
    return [("user", q)], lambda t: t.startswith(("I do not know", "I do not understand"))


def conversation(kind):
    def make(rng):
        turns = kind(generate.Source(rng, True))
        return turns[:-1], exact(turns[-1][1])
    return make


def several_times(rng):
    """The eighth of the requests to repeat that is the hardest: say it two to four times."""
    while True:
        turns, judge = single(rng, lambda r: skills.repeat(r, held_word))
        if re.search("twice|times", turns[0][1]):
            return turns, judge


SUITES = {
    "repeat (held-out words)": lambda r: single(r, lambda q: skills.repeat(q, held_word)),
    "of these, two to four times": several_times,
    "spell (held-out words)": lambda r: single(r, lambda q: skills.spell(q, held_word)),
    "one digit +": one_digit(skills.PLUS, "+"), "one digit *": one_digit(skills.TIMES, "*"),
    "one digit -": one_digit(skills.MINUS, "-"), "two digits +": two_digit,
    "facts": lambda r: single(r, skills.fact), "lists": lists, "stories of four sentences": stories,
    "JSON is valid": json_valid, "JSON is right": json_object,
    "get_weather: valid call": tool_valid("get_weather"), "get_weather: right call": tool_call("get_weather"),
    "calculate: valid call": tool_valid("calculate"), "calculate: right call": tool_call("calculate"),
    "get_weather: uses the result": tool_result("get_weather"), "calculate: uses the result": tool_result("calculate"),
    "thinks first, right answer": thinking, "says that it does not know": unknown,
    "remembers (several turns)": conversation(generate.remembering), "system prompts": conversation(generate.styled),
}


def training_prompts(directories):
    """Hashes of all that comes before an answer in training, and of all single requests."""
    whole, single_ = set(), set()
    for directory in directories:
        with open(os.path.join(directory, "train.jsonl"), encoding="utf-8") as f:
            for line in f:
                text = ""
                for role, t in json.loads(line)["turns"]:
                    if role in ("assistant", "think"):
                        whole.add(hash(text))
                    elif role == "user":
                        single_.add(hash(t))
                    text += render([(role, t)])
    return whole, single_


def run_suites(worker, a):
    whole, requests = training_prompts([a.dir] + a.also)
    for name, make in SUITES.items():
        if a.only and a.only not in name:
            continue
        rng = random.Random(f"{SEED} {name}")
        good = 0
        for _ in range(a.count):
            while True:
                turns, judge = make(rng)
                if hash(render(turns)) not in whole and not (len(turns) == 1 and hash(turns[0][1]) in requests):
                    break
            text = worker.answer(turns)
            ok = judge(text)
            good += ok
            if a.show and not ok:
                print(f"  {turns[-1][1]!r} -> {text!r}")
        print(f"| {name} | {good} / {a.count} | {100 * good / a.count:.1f} % |", flush=True)


def run_visitor(worker, a):
    good = 0
    for request, words in VISITOR:
        turns = []
        for q in request.split(" // "):
            turns.append(("user", q))
            text = worker.answer(turns)
            turns.append(("assistant", text))
        ok = any(w.lower() in text.lower() for w in words.split("|"))
        good += ok
        if a.show:
            print(f"{'' if ok else 'WRONG '}{request}\n    {text}")
    print(f"| what visitors type first (not held out) | {good} / {len(VISITOR)} | {100 * good / len(VISITOR):.1f} % |")


def perplexity(a):
    """Of held-out dialogues, from `hearth logits`: over the answers, and over all tokens."""
    import numpy as np
    vocab = bpe.Bpe.load(os.path.join(a.dir, "vocab.json"))
    sums = {"answers": [0.0, 0], "all": [0.0, 0]}
    with open(os.path.join(a.dir, "heldout.jsonl"), encoding="utf-8") as f, tempfile.TemporaryDirectory() as d:
        for line, _ in zip(f, range(a.dialogues)):
            ids = ids_of(vocab, json.loads(line)["turns"])
            plain = [i & (ANSWER - 1) for i in ids]
            out = os.path.join(d, "logits")
            subprocess.run([a.hearth, "logits", "-m", a.model, "--tokens", " ".join(map(str, plain)), "-o", out],
                           check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            x = np.fromfile(out, dtype=np.float32).reshape(len(plain), -1)[:-1].astype(np.float64)
            x -= x.max(1, keepdims=True)
            nll = np.log(np.exp(x).sum(1)) - x[np.arange(len(x)), plain[1:]]
            answers = np.array([bool(i & ANSWER) for i in ids[1:]])
            for name, part in (("answers", nll[answers]), ("all", nll)):
                sums[name][0] += part.sum()
                sums[name][1] += len(part)
    for name, (total, n) in sums.items():
        print(f"| perplexity of {a.dialogues} held-out dialogues, {name} ({n} tokens) | {math.exp(total / n):.3f} | |")


def main():
    p = argparse.ArgumentParser(description="judge Ember")
    p.add_argument("--dir", required=True)
    p.add_argument("--also", action="append", default=[], help="directory of a further corpus")
    p.add_argument("--hearth", required=True)
    p.add_argument("-m", "--model", required=True)
    p.add_argument("--count", type=int, default=200)
    p.add_argument("--dialogues", type=int, default=200)
    p.add_argument("--only")
    p.add_argument("--show", action="store_true")
    a = p.parse_args()
    skills.use_pieces(bpe.Bpe.load(os.path.join(a.dir, "vocab.json")).tokens)
    worker = Worker(a.hearth, a.model)
    if not a.only or a.only == "visitor":
        run_visitor(worker, a)
    if a.only != "visitor":
        run_suites(worker, a)
    if not a.only:
        perplexity(a)


if __name__ == "__main__":
    main()

#!/usr/bin/python3
"""Writes the corpus: one conversation a line, {"kind", "turns": [[role, text], ...]}.

    ./generate.py --out DIR [--count 260000] [--seed 1]

train.jsonl holds no request of which ask.held() is true, heldout.jsonl (for perplexity) only such ones, small
talk and questions about hearth and Ember aside. The same seed gives the same files.
"""
import argparse
import json
import os
import random

import bpe
import extra
import facts
import skills
import tasks
import tools
from ask import ask, capital, fill, held
from words import NAMES, NOUNS, invent

# How often each ability is drawn.
MIX = ((skills.greet, 7), (skills.about_self, 7), (skills.about_hearth, 9), (skills.fact, 19), (skills.unknown, 9),
       (skills.arithmetic, 14), (skills.repeat, 7), (skills.spell, 9), (skills.letters, 5), (skills.name_list, 5),
       (tasks.story, 5), (tasks.verse, 1), (tasks.json_object, 7), (tasks.json_list, 1), (skills.counting, 3),
       (skills.calendar, 2), (skills.portrait, 2))
# Later corpora lean on what is learned last: letters, copying, sums, facts.
LATE = ((skills.greet, 8), (skills.about_self, 7), (skills.about_hearth, 8), (skills.fact, 22), (skills.unknown, 8),
        (skills.arithmetic, 8), (skills.small_sum, 12), (skills.two_digits, 14), (skills.repeat, 14), (skills.spell, 18),
        (skills.letters, 6), (skills.name_in_order, 8), (tasks.story, 2), (tasks.verse, 1), (tasks.json_object, 7),
        (tasks.json_list, 1), (skills.counting, 4), (skills.calendar, 4), (skills.portrait, 2))
LAST = LATE + ((skills.repeat, 8), (skills.spell, 10), (skills.unknown, 5), (skills.two_digits, 4))
COPY = ((skills.spell, 60), (skills.repeat, 25), (extra.times_said, 8), (tasks.json_object, 8))
AGAIN = ((extra.several, 130), (extra.copied, 50), (skills.repeat, 30), (skills.spell, 70))
# What the sixth had pushed aside, and a little of what it taught.
BROAD = ((skills.fact, 45), (skills.unknown, 18), (tasks.json_object, 22), (extra.several, 16), (extra.copied, 6))
MIXES = {1: MIX, 2: LATE, 3: LAST, 4: LAST + extra.MIX, 5: LAST + extra.MIX + COPY, 6: LAST + extra.MIX + AGAIN,
         7: LAST + extra.MIX + BROAD}
EXEMPT = (skills.greet, skills.about_self, skills.about_hearth, extra.more_talk, extra.own_words)
SYSTEMS = ("You are a helpful assistant.", "You are a helpful AI assistant.", "You are Ember.", "You are a friendly assistant.",
           "Be helpful.", "You are Ember, a small language model.", "Answer the user.", "You are an assistant.",
           "You are a helpful assistant named Ember.", "You are hearth's bundled model.", "Be polite.", "Help the user.",
           "You are a chat assistant.", "You are a useful assistant. Answer clearly.", "Be friendly and helpful.")


class Source:
    """Draws abilities; with held=False never a held request, with held=True only those."""

    def __init__(self, rng, want_held=False, stage=1):
        self.rng, self.want, self.stage = rng, want_held, stage
        self.weighted = [f for f, n in MIXES[stage] for _ in range(n)]

    def take(self, skill, *args):
        """The turns of one ability; skill(rng, *args) is asked until its requests fit."""
        while True:
            turns = skill(self.rng, *args)
            if skill in EXEMPT:
                return turns
            marks = [held(q) for q, _ in turns]
            if self.want and marks[0]:
                return turns[:1]
            if not self.want and not any(marks):
                return turns

    def any(self):
        return self.take(self.rng.choice(self.weighted))

    def fillers(self):
        return [lambda rng, s=s: self.take(s) for s in (skills.fact, skills.arithmetic, skills.greet, skills.about_hearth,
                                                        skills.spell, skills.repeat, skills.unknown)]


def flat(pairs):
    return [t for q, a in pairs for t in (("user", q), ("assistant", a))]


def follow_up(rng, pairs):
    """A request that only makes sense after what was said; None if there is none."""
    q, a = pairs[-1]
    first = pairs[0][0]
    kind = rng.randrange(6)
    if kind <= 1:
        return ask(rng, "again|say that again|repeat that|once more|what did you say|please repeat that|say it again"
                        "|repeat your answer|can you say that again|sorry, what|repeat|pardon"), a
    if kind == 2 and len(a) < 110:
        return ask(rng, "in capitals|and now in capitals|now in capitals|say that in capitals|in capital letters|louder"
                        "|again in capitals|shout it|in upper case please|write that in capitals"), a.upper()
    if kind == 3 and len(a) < 60:
        return ask(rng, "say it twice|twice|say that twice|two times please|repeat it twice"), f"{a}{skills.BETWEEN[0]}{a}"
    if kind == 4 and len(first) < 90:
        return ask(rng, "what did i say first|what was my first question|what did i ask first|what was my first message"), \
            f'You said: "{first}"'
    if kind == 5 and len(q) < 90:
        return ask(rng, "what did i just say|what did i ask|what was my last question|what did i just ask"
                        "|what was my question"), f'You said: "{q}"'
    return None


def general(source):
    rng = source.rng
    turns = flat(source.take(skills.greet)) if rng.random() < 0.06 else []
    if rng.random() < 0.14:
        turns.insert(0, ("system", rng.choice(SYSTEMS)))
    for _ in range(rng.choices((1, 2, 3, 4), (55, 25, 12, 8))[0]):
        pairs = source.any()
        turns += flat(pairs)
        if rng.random() < 0.09:
            q_a = [(turns[i][1], turns[i + 1][1]) for i in range(turns[0][0] == "system", len(turns), 2)]
            more = follow_up(rng, q_a)
            if more:
                turns += flat([more])
    return turns


def long_talk(source):
    rng = source.rng
    turns = []
    for _ in range(rng.randrange(8, 22)):
        turns += flat(source.any())
    if rng.random() < 0.5:
        name = rng.choice(NAMES)
        turns = flat([(ask(rng, "my name is {v}|i am {v}|call me {v}", v=name), f"Nice to meet you, {name}!")]) + turns \
            + flat([(ask(rng, "what is my name|do you remember my name|who am i"), f"Your name is {name}.")])
    return turns


def remembering(source):
    if source.rng.random() < 0.12:
        turns = [("system", source.rng.choice(SYSTEMS))]
    else:
        turns = []
    return turns + flat(tasks.memory(source.rng, source.fillers()))


def thinking(source):
    """Half ask for it; half do not, and the template opened the block ("think": no loss on its first tokens)."""
    rng = source.rng
    turns = flat(source.any()) if rng.random() < 0.25 else []
    if rng.random() < 0.1:
        turns.insert(0, ("system", rng.choice(SYSTEMS)))
    if rng.random() < 0.5:
        return turns + flat(source.take(tasks.think))

    def unasked(rng):
        q, inner, answer = tasks.thought(rng)
        return [(q, f"<think>\n{inner}\n</think>\n\n{answer}")]
    (q, a), = source.take(unasked)
    return turns + [("user", q), ("think", a)]


def short_answer(rng):
    """(question, whole answer, the answer in a word)"""
    if rng.random() < 0.5:
        q, a = skills.sum_of(rng)
        return q, a, a.split("= ")[1] if "= " in a else a
    table = rng.choice([t for t in facts.TABLES if t[0] in ("capital", "continent", "language", "sound", "colour",
                                                            "opposite", "plural", "past", "rhyme")])
    k, v = rng.choice(table[1])
    slots = skills.fact_slots(k, v)
    return ask(rng, table[2], **slots), fill(table[3][0], slots), capital(v) + "."


STYLES = {
    "capitals": ("Answer in capitals.|Write everything in capitals.|Answer only in capital letters.|Use capital letters only."
                 "|ANSWER IN CAPITALS.|Always answer in upper case.|Shout.", lambda a, s, w: a.upper()),
    "small": ("Answer in lower case.|Use small letters only.|Never use capital letters.|Write in lower case.",
              lambda a, s, w: a.lower()),
    "brief": ("Answer with one word.|Be very brief.|Answer as briefly as possible.|Give only the answer.|One word answers only."
              "|Be brief.|Answer in one word.|Keep it short.", lambda a, s, w: s),
    "json": ("Answer in JSON.|Answer as a JSON object.|Always answer with JSON.|Reply in JSON.|Output JSON only.",
             lambda a, s, w: json.dumps({"answer": a})),
    "pirate": ("Talk like a pirate.|You are a pirate.|Answer like a pirate.|Speak like a pirate.", lambda a, s, w: "Arr! " + a),
    "end": ("End every answer with {w}.|Say {w} at the end of each answer.|Finish each answer with {w}.",
            lambda a, s, w: f"{a} {w}"),
    "begin": ("Begin every answer with {w}.|Say {w} before each answer.|Start each answer with {w}.",
              lambda a, s, w: f"{w} {a}"),
    "only": ("Whatever the user says, answer {w}.|Always answer {w}.|Only ever say {w}.|Answer every message with {w}.",
             lambda a, s, w: w),
}


def styled(source):
    """A system prompt, or the user, sets a manner that all answers keep."""
    rng = source.rng
    if rng.random() < 0.15:
        name = rng.choice(NAMES) if rng.random() < 0.6 else invent(rng, True)
        q = ask(rng, talk_names())
        return [("system", f"{rng.choice(('Your name is {n}.', 'You are {n}.', 'You are called {n}.')).replace('{n}', name)}"),
                ("user", q), ("assistant", f"I am {name}.")]
    templates, change = STYLES[rng.choice(list(STYLES))]
    word = rng.choice((rng.choice(NOUNS), invent(rng), rng.choice(NOUNS).capitalize() + "!", "Yes.", "OK."))
    instruction = rng.choice(templates.split("|")).replace("{w}", word).replace("..", ".").replace("!.", "!")
    word = word.rstrip(".") if word not in ("Yes.", "OK.") else word
    turns = []
    by_user = rng.random() < 0.25
    if by_user:
        turns += [("user", rng.choice(("From now on: ", "", "Please ", "")) + instruction), ("assistant", "All right.")]
    else:
        turns.append(("system", (rng.choice(SYSTEMS) + " " if rng.random() < 0.25 else "") + instruction))
    for _ in range(rng.choice((1, 1, 2, 2, 3))):
        if rng.random() < 0.15 and "brief" not in instruction and change is not STYLES["brief"][1]:
            q, a = source.take(rng.choice((skills.greet, skills.about_self)))[0]
            s = a
        else:
            while True:
                q, a, s = short_answer(rng)
                if held(q) == source.want:
                    break
        turns += [("user", q), ("assistant", change(a, s, word))]
    return turns


def talk_names():
    return "who are you|what is your name|what's your name|your name|who am i talking to|tell me your name"


def with_tools(source):
    others = [lambda rng, s=s: source.take(s) for s in (skills.fact, skills.greet, skills.about_self, skills.about_hearth,
                                                        skills.spell, skills.unknown, tasks.story, skills.repeat)]
    rng = source.rng
    while True:
        system = rng.choice(SYSTEMS) if rng.random() < 0.2 else None
        turns = tools.tool_conversation(rng, others, system)
        asked = [held(t) for r, t in turns if r == "user" and not t.startswith("<tool_response>")]
        if not source.want and not any(asked):
            return turns
        if source.want and asked[0]:
            return turns


KINDS = ((general, 66), (with_tools, 10), (styled, 6), (remembering, 7), (thinking, 7), (long_talk, 1))
LATE_KINDS = ((general, 72), (with_tools, 4), (styled, 9), (remembering, 5), (thinking, 9), (long_talk, 1))


def conversation(source):
    kinds = KINDS if source.stage == 1 else LATE_KINDS
    kind = source.rng.choices([k for k, _ in kinds], [n for _, n in kinds])[0]
    return {"kind": kind.__name__, "turns": kind(source)}


def conversations(seed, count, want_held=False, stage=1):
    source = Source(random.Random(seed), want_held, stage)
    for _ in range(count):
        yield conversation(source)


def write(path, items):
    with open(path + ".part", "w", encoding="utf-8") as f:
        for item in items:
            f.write(json.dumps(item, ensure_ascii=False) + "\n")
    os.replace(path + ".part", path)


def main():
    p = argparse.ArgumentParser(description="write Ember's corpus")
    p.add_argument("--out", required=True)
    p.add_argument("--count", type=int, default=260000)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--stage", type=int, default=1, choices=MIXES, help="which of the seven corpora")
    p.add_argument("--pieces", help="a vocab.json whose tokens the words to spell should cover (stages 3 to 7)")
    a = p.parse_args()
    if a.stage == 5:
        skills.PIECE_SHARE[0] = 0.75
    if a.stage == 6:
        skills.PIECE_SHARE[0] = 0.6
    if a.stage < 6:
        skills.BETWEEN[0] = " "
    if a.pieces:
        skills.use_pieces(bpe.Bpe.load(a.pieces).tokens)
    os.makedirs(a.out, exist_ok=True)
    write(os.path.join(a.out, "train.jsonl"), conversations(a.seed, a.count, stage=a.stage))
    write(os.path.join(a.out, "heldout.jsonl"), conversations(a.seed + 1000, 600, want_held=True))


if __name__ == "__main__":
    main()

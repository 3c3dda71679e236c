"""One function per ability. Each takes a random generator and gives a list of (request, answer) that belong
together; most give one pair. `again` in generate.py builds on them."""
import re
import zlib

import facts
import talk
from ask import ask, capital, fill
from words import (ADJECTIVES, ANIMALS, CITIES, CLOTHES, COLOURS, DAYS, DRINKS, FLOWERS, FOODS, FRUITS, FURNITURE,
                   INSTRUMENTS, JOBS, LISTS, METALS, MONTHS, NAMES, NOUNS, PLACES, SPORTS, TOOLS, TREES, VEGETABLES,
                   VEHICLES, VERBS, WORDS, invent)

# Words that Ember's own answers use: they too are spelled and repeated.
SAID = sorted({w for t in (talk.GREETINGS, talk.SELF, talk.HEARTH) for _, answers in t for a in answers
               for w in re.findall("[A-Za-z]{3,}", a)}
              | {w for q, a in facts.SCIENCE for w in re.findall("[A-Za-z]{3,}", a)}
              | {w for t in facts.TABLES for r in t[1] for v in r for w in re.findall("[A-Za-z]{3,}", v)})

NUMBER_WORDS = ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
                "sixteen seventeen eighteen nineteen twenty").split()


PIECES = []  # letters that are one token; empty for the first two corpora
PIECE_SHARE = [0.4]  # how many words to spell or repeat are made of them
BETWEEN = ["\n"]  # what stands between what is said several times; a space in the first five corpora


def use_pieces(tokens):
    """Lets words to spell and repeat cover the vocabulary."""
    PIECES[:] = sorted({t.lstrip("\u0120") for t in tokens if re.fullmatch("\u0120?[A-Za-z]{2,}", t)})


def word_held(word):
    """Words of repeat and spell that no training conversation repeats or spells. A word that is one token is none of
    them: nothing but a spelling could tell its letters."""
    if word in PIECES or word.lower() in PIECES:
        return False
    return zlib.crc32(("word " + word.lower()).encode()) % 12 == 5


def table_talk(rng, table):
    questions, answers = rng.choice(table)
    return [(ask(rng, questions), rng.choice(answers))]


def greet(rng):
    return table_talk(rng, talk.GREETINGS)


def about_self(rng):
    if rng.random() < 0.3:
        return table_talk(rng, talk.SELF[:2])
    return table_talk(rng, talk.SELF)


def about_hearth(rng):
    r = rng.random()
    if r < 0.35:
        command, use = rng.choice(talk.COMMANDS)
        answer = f"`hearth {command}` {use}."
        if command in talk.EXAMPLES and rng.random() < 0.35:
            return [(ask(rng, talk.COMMAND_QUESTIONS, c=command), answer),
                    (ask(rng, "give me an example|an example|show me an example|how do i use it|for example"
                              "|can you show me an example|how is it used"), f"`{talk.EXAMPLES[command]}`")]
        return [(ask(rng, talk.COMMAND_QUESTIONS, c=command), answer)]
    if r < 0.43:
        command, use = rng.choice(talk.COMMANDS[:10])
        verb = rng.choice(("which command {u}", "which hearth command {u}", "what command {u}"))
        return [(ask(rng, verb, u=use.split(",")[0].split(":")[0]), f"`hearth {command}` {use}.")]
    if r < 0.47:
        word = invent(rng)
        return [(ask(rng, "what does hearth {w} do|what is hearth {w}|hearth {w}", w=word),
                 f"I do not know a command of that name. hearth has no `{word}` that I know of.")]
    if r < 0.62:
        return table_talk(rng, talk.HEARTH[:2])
    return table_talk(rng, talk.HEARTH)


def fact_slots(k, v):
    known = k.startswith(("a ", "an ", "the "))
    ak = k if known else facts.an(k)
    return dict(k=k, v=v, ak=ak, av=facts.an(v), K=capital(k), AK=capital(ak))


def fact_of(rng, table, row):
    slots = fact_slots(*row)
    return ask(rng, table[2], **slots), fill(table[3][0], slots)


def fact(rng):
    r = rng.random()
    if r < 0.38:
        questions, answer = rng.choice(facts.SCIENCE)
        return [(ask(rng, questions), answer)]
    if r < 0.45:
        language = rng.choice(list(facts.TRANSLATE))
        k, v = rng.choice(facts.TRANSLATE[language])
        return [(ask(rng, "how do you say {k} in {l}|what is {k} in {l}|translate {k} into {l}|translate {k} to {l}"
                          "|what does {k} mean in {l}|say {k} in {l}|{k} in {l}", k=k, l=language),
                 f"{capital(k)} is {v} in {language}.")]
    if r < 0.55:
        return is_a(rng)
    table = rng.choice(facts.TABLES[:1] * 5 + facts.TABLES)
    turns = [fact_of(rng, table, rng.choice(table[1]))]
    while rng.random() < 0.2:
        row = rng.choice(table[1])
        slots = fact_slots(*row)
        turns.append((ask(rng, "and {k}|and of {k}|and {ak}|what about {k}|and for {k}|{k}|how about {k}", **slots),
                      fill(table[3][0], slots)))
    return turns


def portrait(rng):
    """What is known of an animal or a country, in a few sentences."""
    if rng.random() < 0.4:
        k, v = rng.choice(facts.CONTINENT)
        text = f"{capital(k)} is in {v}. Its capital is {dict(facts.CAPITALS)[k]}."
        return [(ask(rng, "tell me about {k}|what do you know about {k}|tell me something about {k}|describe {k}"
                          "|what can you tell me about {k}", k=k), text)]
    k, v = rng.choice(facts.KINDS)
    text = f"{capital(facts.an(k))} is {facts.an(v)}."
    for rows, form in ((facts.FOOD_OF, " It eats {v}."), (facts.HOMES, " It lives in a {v}."), (facts.SOUNDS, " It says {v}.")):
        if k in dict(rows):
            text += form.replace("{v}", dict(rows)[k])
    return [(ask(rng, "tell me about {ak}|what do you know about {ak}|tell me something about {ak}|describe {ak}"
                      "|tell me about the {k}|what can you tell me about {ak}|tell me about {k}s|facts about {ak}",
                 k=k, ak=facts.an(k)), text)]


GROUPS = (("an animal", ANIMALS), ("a fruit", FRUITS), ("a vegetable", VEGETABLES), ("a colour", COLOURS),
          ("a drink", DRINKS), ("something to eat", FOODS), ("something to wear", CLOTHES), ("a tool", TOOLS),
          ("a piece of furniture", FURNITURE), ("a vehicle", VEHICLES), ("a musical instrument", INSTRUMENTS),
          ("a sport", SPORTS), ("a job", JOBS), ("a tree", TREES), ("a flower", FLOWERS), ("a metal", METALS))
UNCOUNTED = set(DRINKS + FOODS + SPORTS + METALS + COLOURS + ["broccoli", "spinach", "celery", "garlic", "pliers",
                                                               "lavender", "lettuce"]) - {"biscuit", "egg"}


def is_a(rng):
    group, words = rng.choice(GROUPS)
    word = rng.choice(words)
    if word in ("orange", "file", "drill", "rose", "violet", "iris", "organ", "fish", "chess"):
        word, group = "pear", "a fruit"
    thing = word if word in UNCOUNTED else facts.an(word)
    other = rng.choice(GROUPS)[0]
    if rng.random() < 0.45:
        return [(ask(rng, "what is {t}|what's {t}|what kind of thing is {t}|{t}, what is that", t=thing),
                 f"{capital(thing)} is {group}.")]
    if rng.random() < 0.5:
        other = group
    if {group, other} == {"something to eat", "a drink"} or {group, other} == {"a fruit", "something to eat"} \
            or {group, other} == {"a vegetable", "something to eat"} or {group, other} == {"a tree", "a flower"}:
        other = group
    return [(ask(rng, "is {t} {g}|is {t} {g} or not", t=thing, g=other),
             f"Yes, {thing} is {group}." if other == group else f"No, {thing} is {group}.")]


def unknown(rng):
    r = rng.random()
    if r < 0.25:  # a known kind of question about something that is not known
        table = rng.choice([t for t in facts.TABLES if t[0] in ("capital", "continent", "language", "capital_back")])
        x = invent(rng, True)
        return [(ask(rng, table[2], k=x), f"I do not know {x}. I am a very small model.")]
    if r < 0.37:
        return [(ask(rng, talk.GIBBERISH, x=invent(rng), x2=invent(rng)), talk.GIBBERISH_ANSWER)]
    n = rng.choice(NOUNS)
    slots = dict(k=rng.choice(facts.CAPITALS)[0], x=invent(rng, rng.random() < 0.5), x2=invent(rng, rng.random() < 0.5), n=n, N=rng.choice(NAMES),
                 c=rng.choice(CITIES), c2=rng.choice(CITIES), y=rng.randrange(1900, 2060), p=invent(rng, True),
                 m=rng.randrange(2, 20), m2=rng.randrange(20, 400))
    return [(ask(rng, talk.UNKNOWN, **slots), talk.UNKNOWN_ANSWERS[rng.random() < 0.3])]


# --- numbers -----------------------------------------------------------------------------------------------

PLUS = ("what is {a} + {b}|{a} + {b}|{a}+{b}|what is {a}+{b}|what is {a} plus {b}|{a} plus {b}|how much is {a} + {b}"
        "|add {a} and {b}|calculate {a} + {b}|what is the sum of {a} and {b}|{a} + {b} =|{a}+{b}=|how much is {a} plus {b}"
        "|compute {a}+{b}|add {b} to {a}|what do you get if you add {a} and {b}|can you add {a} and {b}"
        "|what does {a} plus {b} make|please work out {a} + {b}|i have {a} apples and get {b} more, how many are there"
        "|sum of {a} and {b}|tell me {a} + {b}|what's {a} and {b} together")
MINUS = ("what is {a} - {b}|{a} - {b}|{a}-{b}|what is {a}-{b}|what is {a} minus {b}|{a} minus {b}|how much is {a} - {b}"
         "|subtract {b} from {a}|calculate {a} - {b}|take {b} from {a}|{a} - {b} =|{a}-{b}=|how much is {a} minus {b}"
         "|what is {a} less {b}|what is left if you take {b} from {a}|tell me {a} - {b}")
TIMES = ("what is {a} * {b}|{a} * {b}|{a}*{b}|what is {a}*{b}|what is {a} times {b}|{a} times {b}|how much is {a} * {b}"
         "|multiply {a} by {b}|calculate {a} * {b}|what is {a} x {b}|{a} x {b}|{a}x{b}|what is {a}x{b}|{a} × {b}"
         "|what is the product of {a} and {b}|{a} * {b} =|{a}*{b}=|multiply {a} and {b}|how much is {a} times {b}"
         "|what is {a} multiplied by {b}|what do you get if you multiply {a} by {b}|tell me {a} times {b}"
         "|work out {a} * {b}|product of {a} and {b}|can you multiply {a} by {b}")
OVER = ("what is {a} / {b}|{a} / {b}|{a}/{b}|what is {a} divided by {b}|{a} divided by {b}|divide {a} by {b}"
        "|how much is {a} divided by {b}|calculate {a} / {b}|how often does {b} go into {a}|{a} : {b}")


def in_words(rng, a, b, share=0.15):
    if a <= 20 and b <= 20 and rng.random() < share:
        return NUMBER_WORDS[a], NUMBER_WORDS[b]
    return a, b


def arithmetic(rng):
    turns = [sum_of(rng)]
    while rng.random() < 0.25:
        turns.append(sum_of(rng))
    return turns


def sum_of(rng):
    r = rng.random()
    if r < 0.26:
        a, b, op = rng.randrange(10), rng.randrange(10), "+"
    elif r < 0.54:
        a, b, op = rng.randrange(10), rng.randrange(10), "*"
    elif r < 0.62:
        a, b, op = rng.randrange(13), rng.randrange(13), "*"
    elif r < 0.68:
        a, b, op = rng.randrange(20), rng.randrange(10), "-"
    elif r < 0.72:
        b, q = rng.randrange(1, 11), rng.randrange(11)
        a, op = b * q, "/"
    elif r < 0.90:
        a, b, op = rng.randrange(100), rng.randrange(100), "+"
    elif r < 0.96:
        a, b, op = rng.randrange(10, 100), rng.randrange(100), "-"
        a, b = max(a, b), min(a, b)
    else:
        return too_large(rng)
    value = {"+": a + b, "-": a - b, "*": a * b, "/": a // b if b else 0}[op]
    wa, wb = in_words(rng, a, b)
    templates = {"+": PLUS, "-": MINUS, "*": TIMES, "/": OVER}[op]
    return ask(rng, templates, a=wa, b=wb), f"{a} {op} {b} = {value}."


def small_sum(rng):
    """One-digit sums, differences and products alone."""
    op = rng.choices("+-*", (3, 5, 3))[0]
    a, b = rng.randrange(10), rng.randrange(10)
    if op == "-" and a < b and rng.random() < 0.85:
        a, b = b, a
    wa, wb = in_words(rng, a, b)
    templates, value = {"+": (PLUS, a + b), "-": (MINUS, a - b), "*": (TIMES, a * b)}[op]
    return [(ask(rng, templates, a=wa, b=wb), f"{a} {op} {b} = {value}.")]


def two_digits(rng):
    a, b = rng.randrange(10, 100), rng.randrange(1, 100)
    if rng.random() < 0.7:
        return [(ask(rng, PLUS, a=a, b=b), f"{a} + {b} = {a + b}.")]
    a, b = max(a, b), min(a, b)
    return [(ask(rng, MINUS, a=a, b=b), f"{a} - {b} = {a - b}.")]


def too_large(rng):
    op = rng.choice("+*/*-")
    a, b = rng.randrange(200, 99999), rng.randrange(100, 99999)
    if op == "*" and rng.random() < 0.5:
        a, b = rng.randrange(13, 1000), rng.randrange(13, 1000)
    templates = {"+": PLUS, "-": MINUS, "*": TIMES, "/": OVER}[op]
    return ask(rng, templates, a=a, b=b), "That is too large for me. With a calculate tool I could work it out."


def counting(rng):
    r = rng.random()
    if r < 0.3:
        a = rng.choice((1, 1, 1, rng.randrange(30)))
        b = a + rng.randrange(3, 15)
        q = ask(rng, "count to {b}|can you count to {b}|count up to {b}" if a == 1 else
                "count from {a} to {b}|count up from {a} to {b}", a=a, b=NUMBER_WORDS[b] if b <= 20 and rng.random() < 0.4
                else b)
        return [(q, ", ".join(str(i) for i in range(a, b + 1)) + ".")]
    if r < 0.4:
        a = rng.randrange(3, 13)
        return [(ask(rng, "count down from {a}|count backwards from {a}|count down from {a} to 0", a=a),
                 ", ".join(str(i) for i in range(a, -1, -1)) + ".")]
    if r < 0.55:
        a = rng.randrange(100)
        return [(ask(rng, "is {a} even|is {a} even or odd|is {a} odd|is {a} an even number", a=a),
                 f"{a} is {'odd' if a % 2 else 'even'}.")]
    if r < 0.75:
        a, b = rng.sample(range(100), 2)
        q = ask(rng, "which is bigger, {a} or {b}|which is larger, {a} or {b}|what is more, {a} or {b}"
                     "|which number is bigger, {a} or {b}|is {a} bigger than {b}", a=a, b=b)
        return [(q, f"{max(a, b)} is bigger than {min(a, b)}.")]
    if r < 0.85:
        a = rng.randrange(21)
        return [(ask(rng, "write {a} in words|how do you write {a} in words|what is {a} in words", a=a),
                 f"{a} is {NUMBER_WORDS[a]}.")]
    a = rng.randrange(1, 100)
    after = rng.random() < 0.6
    return [(ask(rng, "what number comes {s} {a}|which number is {s} {a}|what comes {s} {a}",
                 a=a, s="after" if after else "before"),
             f"{a + 1} comes after {a}." if after else f"{a - 1} comes before {a}.")]


def calendar(rng):
    names = rng.choice((DAYS, MONTHS))
    i = rng.randrange(len(names))
    what = "day" if names is DAYS else "month"
    r = rng.random()
    if r < 0.5:
        return [(ask(rng, "what {w} comes after {k}|which {w} comes after {k}|what comes after {k}|what is after {k}"
                          "|the {w} after {k}", w=what, k=names[i]),
                 f"{names[(i + 1) % len(names)]} comes after {names[i]}.")]
    if r < 0.75:
        return [(ask(rng, "what {w} comes before {k}|which {w} comes before {k}|what comes before {k}", w=what, k=names[i]),
                 f"{names[i - 1]} comes before {names[i]}.")]
    order = ("first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth").split()[i]
    return [(ask(rng, "what is the {o} {w}|which {w} is the {o}|what is the {o} {w} of the {p}", o=order, w=what,
                 p="week" if what == "day" else "year"), f"The {order} {what} is {names[i]}.")]


# --- words -------------------------------------------------------------------------------------------------

def a_word(rng):
    """A word to spell or repeat: mostly real; never one that is held out."""
    while True:
        if PIECES and rng.random() < PIECE_SHARE[0]:
            word = "".join(rng.choice(PIECES) for _ in range(rng.choice((1, 1, 2, 2, 3))))
            if len(word) <= 12 and not word_held(word):
                return word
        r = rng.random()
        if r < 0.3:
            word = rng.choice(SAID)
        elif r < 0.62:
            word = rng.choice(WORDS)
        elif r < 0.7:
            word = rng.choice(NAMES)
        else:
            word = invent(rng)
        if r < 0.62 and rng.random() < 0.12:
            word = word.capitalize()
        if not word_held(word):
            return word


SPELL = ('spell {w}|spell "{w}"|spell the word {w}|how do you spell {w}|how is {w} spelled|can you spell {w}'
         '|please spell {w}|spell the word "{w}"|spell {w} letter by letter|write {w} letter by letter|letters of {w}'
         '|how do i spell {w}|what are the letters of {w}|how do you write {w}|spell out {w}|spell: {w}|how to spell {w}')
REPEAT = ('repeat {w}|say {w}|repeat: {w}|repeat after me: {w}|say: {w}|say "{w}"|repeat "{w}"|please repeat: {w}'
          '|repeat this: {w}|echo {w}|just say {w}|write {w}|repeat what i say: {w}|can you say {w}|say this: {w}'
          '|repeat the following: {w}|write this: {w}|print {w}|type {w}|copy this: {w}')


def plain(rng, templates, **slots):
    """A request whose slots must not be changed and must end it or stand in quotes."""
    while True:
        text = ask(rng, templates, fold=False, **slots)
        if not text.endswith((slots["w"] + "?", slots["w"] + "!", slots["w"] + ".", slots["w"] + ":", "??", " ?")):
            return text


def spell(rng, words=a_word):
    word = words(rng)
    return [(ask(rng, SPELL, fold=False, w=word), "-".join(word))]


def sentence(rng):
    """A short sentence of no importance."""
    subject = rng.choice((f"the {rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}", f"my {rng.choice(NOUNS)}",
                          rng.choice(NAMES), f"the {rng.choice(JOBS)}", f"a {rng.choice(ADJECTIVES)} {rng.choice(ANIMALS)}",
                          f"our {rng.choice(NOUNS)}"))
    r = rng.random()
    if r < 0.5:
        text = f"{subject} {rng.choice(VERBS)} {rng.choice(PLACES)}"
    elif r < 0.7:
        text = f"{subject} has {rng.randrange(2, 100)} {rng.choice(COLOURS)} {rng.choice(NOUNS)}s"
    elif r < 0.85:
        text = " ".join(rng.choice(WORDS) for _ in range(rng.randrange(2, 7)))
    else:
        text = f"{subject} is {rng.choice(ADJECTIVES)} and {rng.choice(ADJECTIVES)}"
    return capital(text) if rng.random() < 0.7 else text


def repeat(rng, words=a_word):
    r = rng.random()
    if r < 0.35:
        text = words(rng)
    elif r < 0.5:
        text = " ".join(words(rng) for _ in range(rng.randrange(2, 5)))
    else:
        text = sentence(rng)
    if r < 0.5 and rng.random() < 0.25:
        n = rng.choice((2, 2, 3, 3, 4))
        times = {2: rng.choice(("twice", "two times", "2 times")), 3: rng.choice(("three times", "3 times")),
                 4: rng.choice(("four times", "4 times"))}[n]
        q = ask(rng, 'say {w} {t}|repeat {w} {t}|write {w} {t}|say "{w}" {t}|repeat "{w}" {t}', fold=False, w=text, t=times)
        return [(q, BETWEEN[0].join([text] * n))]
    ending = rng.choice(("", "", "", "", ".", "!")) if r >= 0.5 else ""
    return [(plain(rng, REPEAT, w=text + ending), text + ending)]


def letters(rng):
    word = a_word(rng)
    r = rng.random()
    if r < 0.25:
        return [(ask(rng, 'what is the first letter of {w}|which letter does {w} begin with|{w} starts with which letter'
                          '|first letter of {w}|what does {w} start with', fold=False, w=word),
                 f"The first letter of {word} is {word[0]}.")]
    if r < 0.45:
        return [(ask(rng, "what is the last letter of {w}|which letter does {w} end with|last letter of {w}",
                     fold=False, w=word), f"The last letter of {word} is {word[-1]}.")]
    if r < 0.7:
        return [(ask(rng, "how many letters does {w} have|how many letters has {w}|count the letters of {w}"
                          "|how many letters are in {w}|how long is the word {w}", fold=False, w=word),
                 f"{'-'.join(word)}: {len(word)} letters.")]
    text = word if rng.random() < 0.6 else sentence(rng)
    if r < 0.93:
        return [(plain(rng, "write in capitals: {w}|in capitals: {w}|write {w} in capitals|in capital letters: {w}"
                            "|make this upper case: {w}|uppercase {w}|write {w} in capital letters|shout {w}", w=text),
                 text.upper())]
    return [(plain(rng, "write in lower case: {w}|in small letters: {w}|make this lower case: {w}|lowercase {w}",
                   w=text.upper()), text.lower())]


COUNT = {2: "two", 3: "three", 4: "four", 5: "five"}


def name_list(rng, ordered=False):
    kind = rng.choice(list(LISTS))
    words = LISTS[kind]
    n = rng.choice((2, 3, 3, 3, 3, 4, 5, 5))
    n = min(n, len(words) - 1)
    number = COUNT[n] if rng.random() < 0.7 else n
    q = ask(rng, "name {n} {k}|list {n} {k}|tell me {n} {k}|give me {n} {k}|write down {n} {k}|{n} {k}"
                 "|can you name {n} {k}|what are {n} {k}|say {n} {k}|i need {n} {k}|give me a list of {n} {k}"
                 "|make a list of {n} {k}|which {k} do you know, name {n}", n=number, k=kind)
    left = words[:]
    head = [left.pop(left.index(w)) for w in _pick(rng, left, n)]
    if ordered:
        head.sort(key=words.index)
    turns = [(q, listing(head) + ".")]
    while rng.random() < 0.3 and left:
        more = rng.choice(left)
        left.remove(more)
        turns.append((ask(rng, "another|one more|another one|one more please|and another|more|next|give me another"),
                      capital(more) + "."))
    return turns


def name_in_order(rng):
    """Like name_list, but what is named keeps the order of the list, so that nothing comes twice."""
    return name_list(rng, True)


def _pick(rng, words, n):
    """Leans on the front of the list, so that an answer has a likeliest form."""
    chosen = []
    rest = words[:]
    for _ in range(n):
        i = min(int(rng.expovariate(0.6)), len(rest) - 1)
        chosen.append(rest.pop(i))
    return chosen


def listing(items):
    text = items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]
    return capital(text)

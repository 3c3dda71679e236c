"""What trying the half-trained model showed to be missing; in the fourth corpus and later."""
import json

import facts
import skills
from ask import ask, capital
from tasks import JSON_ASK
from words import CITIES, COLOURS, LISTS, NAMES, NOUNS, invent

TALK = [
    ("what is the weather in {c}|what is the weather like in {c}|weather in {c}|how is the weather in {c}"
     "|what's the weather like in {c} today|is it raining in {c}|how warm is it in {c}|will it rain in {c}",
     "I cannot see the weather. With a weather tool I could look it up."),
    ("what time is it in {c}|time in {c}|what is the time in {c}|what is the date in {c}", "I have no clock, so I do not know."),
    ("what is the capital of {f}|capital of {f}|tell me the capital of {f}|what's the capital of {f}|where is {f}"
     "|who is the king of {f}|what language do people speak in {f}", "I do not know {f}. I am a very small model."),
    ("how are you doing today|how are you today|how do you do|how are you this morning|how's your day|how are things",
     "I am well, thank you. How can I help you?"),
    ("who am i talking to|whom am i talking to|who is there|who's there|who am i speaking to|what model are you"
     "|which model is this|what model is this|what llm are you|which model am i talking to",
     "I am Ember, a very small language model that comes with hearth."),
    ("what is hearth all about|what is hearth about|what exactly is hearth|so what is hearth|what is this hearth thing"
     "|what's hearth|explain hearth to me|can you explain hearth|i am new to hearth, what is it|tell me more about hearth",
     "hearth is a language model server and library in C. It runs GGUF models on your own computer, without a network."),
    ("how do i use hearth chat|how does the chat work|how do i use the chat", "Use `hearth chat`, or `hearth chat -m model.gguf` for another model."),
    ("write a haiku|write a haiku about {n}|write a limerick|write a song about {n}|write an essay|write a letter|write a speech"
     "|write a novel|write a blog post about {n}|write a review of {n}|draw a {n}|draw me a picture|make a picture of a {n}"
     "|make a video|translate this text|correct this text|summarise this|rewrite this text|make a plan for my day",
     "I am too small for that. A larger model in hearth can do it."),
    ("what is machine learning|explain machine learning|what is deep learning",
     "Machine learning is how programs learn from examples instead of fixed rules."),
    ("what is the best programming language|what is the best {n}|which {n} is the best|what is your favourite {n}"
     "|tell me a secret|do you have a secret|what do you think about {n}|what is your opinion on {n}|who is better, {N} or {N2}"
     "|i want to learn {n}|teach me {n}|how can i learn {n}|can you help me with my homework|help me with my homework"
     "|what should i do with my {n}|how do i repair a {n}|where do i find a good {n}|how many {n}s are there in the world"
     "|who invented the {n}|when was the {n} invented|why do people like {n}s|how many words are in the dictionary",
     "I do not know that. I am a very small model."),
    ("what is water|tell me about water", "Water is a clear liquid that all life needs."),
    ("what is fire|tell me about fire", "Fire is what we see when something burns. It is hot and gives light."),
    ("what is snow|tell me about snow", "Snow is made of ice crystals that fall from clouds."),
    ("what is the earth|tell me about the earth", "The earth is the planet we live on. It goes round the sun."),
    ("what is a hearth", "A hearth is the place in a house where a fire burns. It is also the name of this program."),
    ("what is c|what is the c language", "C is a programming language. hearth is written in it."),
    ("what is a server|what is an api|what is a terminal", "It is a part of how programs talk to each other or to people. hearth has one."),
    ("what is the square root of {m}|what is {m} percent of {m2}|what is {m} to the power of {m3}|what is the cube of {m2}",
     "That is too large for me. With a calculate tool I could work it out."),
    ("can you see me|can you see images|look at this picture|can you listen to music|can you watch a film|do you see colours",
     "No, I can only read and write text."),
    ("can you tell me a story|do you tell stories|i want a story", "Of course. About which animal?"),
    ("good to see you|nice to meet you|pleased to meet you|nice to meet you ember|glad to meet you", "Nice to meet you, too!"),
    ("merry christmas|happy new year|happy birthday|happy easter", "Thank you! The same to you."),
    ("i am back|i'm back|here i am|i am here", "Welcome back! What can I do for you?"),
    ("how is hearth different from ollama|is hearth better than ollama|what is ollama|what is llama.cpp|what is vllm",
     "Other programs run language models, too. hearth is the one that I come with."),
    ("what is your purpose|why do you exist|what are you for|why are you here", "I am here so that hearth can answer at once, without a download."),
    ("what are your limits|what can you not do|what don't you know|what are you bad at",
     "I know only simple things. I cannot write programs, see the world or work with large numbers."),
]
FANCY = ("Atlantis, Narnia, Mordor, Utopia, Wonderland, Neverland, Eldorado, Gotham, Wakanda, Oz, Lilliput, Middle Earth, "
         "Westeros, Avalon, Camelot, the Moon, Mars, Jupiter, Venus, Antarctica, Europe, Asia, Africa").split(", ")


def more_talk(rng):
    questions, answer = rng.choice(TALK[:3] * 3 + TALK)
    f = rng.choice(FANCY) if rng.random() < 0.3 else invent(rng, True)
    slots = dict(c=rng.choice(CITIES), f=f, n=rng.choice(NOUNS), N=rng.choice(NAMES), N2=rng.choice(NAMES),
                 m=rng.randrange(2, 100), m2=rng.randrange(10, 1000), m3=rng.randrange(2, 10))
    return [(ask(rng, questions, **slots), answer.replace("{f}", capital(f)))]


def greeting_first(rng):
    """A greeting and a request in one message: the request is answered."""
    skill = rng.choice((skills.about_self, skills.about_hearth, skills.fact, skills.small_sum, more_talk, skills.name_in_order))
    q, a = skill(rng)[0]
    hello = rng.choice(("Hello, ", "Hi, ", "hello, ", "Hi there, ", "Hey, ", "hi there! ", "Hello! ", "Good morning, ",
                        "hey ", "Hello Ember, ", "hello ", "Hi! ", "Good evening. ", "Hello there. "))
    return [(hello + q, a)]


def times_table(rng):
    a, b = rng.randrange(2, 13), rng.randrange(2, 13)
    return [(ask(rng, skills.TIMES, a=a, b=b), f"{a} * {b} = {a * b}.")]


def own_words(rng):
    """Words that visitors try first."""
    word = rng.choice(("hearth", "Ember", "ember", "hello", "Hello", "world", "computer", "model", "language", "banana",
                       "elephant", "apple", "cat", "dog", "house", "Mississippi", "chocolate", "language", "strawberry"))
    if skills.word_held(word):
        word = "hearth"
    r = rng.random()
    if r < 0.5:
        return [(ask(rng, skills.SPELL, fold=False, w=word), "-".join(word))]
    if r < 0.75:
        return [(ask(rng, "write {w} in capitals|{w} in capitals|write {w} in capital letters|in capitals: {w}",
                     fold=False, w=word), word.upper())]
    return [(ask(rng, "spell your name|how do you spell your name|how is your name spelled", fold=False), "E-m-b-e-r")]


def own_name(rng):
    name = rng.choice([n for n in NAMES if not skills.word_held(n)])
    return [(ask(rng, "my name is {v}|i am {v}|call me {v}", v=name), f"Nice to meet you, {name}!"),
            (ask(rng, "spell my name|spell it|how is my name spelled|can you spell my name"), "-".join(name))]


def other_lists(rng):
    """American spelling, and longer lists."""
    if rng.random() < 0.5:
        kind, words, n = "colors", COLOURS, rng.randrange(2, 6)
    else:
        kind = rng.choice([k for k in LISTS if len(LISTS[k]) >= 12])
        words, n = LISTS[kind], rng.choice((6, 7, 8, 10, 10))
    number = {6: "six", 7: "seven", 8: "eight", 10: "ten", **skills.COUNT}[n]
    q = ask(rng, "name {n} {k}|list {n} {k}|tell me {n} {k}|give me {n} {k}|{n} {k}|can you name {n} {k}",
            n=number if rng.random() < 0.6 else n, k=kind)
    return [(q, skills.listing(words[:n]) + ".")]


def priced_thing(rng):
    noun, colour, price = rng.choice(NOUNS), rng.choice(COLOURS), rng.randrange(1, 1000)
    text, value = rng.choice((
        (f"{facts.an(colour)} {noun} that costs {price} euros", dict(name=noun, colour=colour, price=price)),
        (f"{facts.an(noun)} that costs {price} euros", dict(name=noun, price=price)),
        (f"{facts.an(noun)} that is {colour}", dict(name=noun, colour=colour)),
        (f"{facts.an(colour)} {noun}", dict(name=noun, colour=colour))))
    return [(ask(rng, JSON_ASK + "|create JSON: {t}|make JSON: {t}|JSON: {t}|create JSON for {t}", fold=False, t=text),
             json.dumps(value))]


def times_said(rng):
    """Saying something so many times."""
    n = rng.choice((2, 2, 3, 3, 4))
    text = " ".join(skills.a_word(rng) for _ in range(rng.choice((1, 1, 2))))
    times = {2: ("twice", "two times", "2 times"), 3: ("three times", "3 times"), 4: ("four times", "4 times")}[n]
    q = ask(rng, 'say {w} {t}|repeat {w} {t}|write {w} {t}|say "{w}" {t}|repeat "{w}" {t}', fold=False, w=text, t=rng.choice(times))
    return [(q, skills.BETWEEN[0].join([text] * n))]


def alike(rng, word):
    """A word that begins or ends as this one does: where a copy may jump from one to the other."""
    while True:
        other = skills.a_word(rng)
        i, j = len(word) // 2, len(other) // 2
        new = word[:i] + other[j:] if rng.random() < 0.5 else other[:j] + word[i:]
        if not skills.word_held(new):
            return new


def phrase(rng, counts):
    """Words to copy, none of them held out; sometimes two are alike or the same."""
    if rng.random() < 0.1:
        while True:
            text = skills.sentence(rng)
            if not any(skills.word_held(w) for w in text.split()):
                return text
    words = [skills.a_word(rng) for _ in range(rng.choice(counts))]
    if len(words) > 1 and rng.random() < 0.25:
        i, j = rng.sample(range(len(words)), 2)
        words[i] = alike(rng, words[j]) if rng.random() < 0.8 else words[j]
    return " ".join(words)


SEVERAL = ('say {w} {t}|repeat {w} {t}|write {w} {t}|say "{w}" {t}|repeat "{w}" {t}|' * 2 + 'can you say {w} {t}'
           '|write "{w}" {t}|print {w} {t}|echo {w} {t}|say the word {w} {t}|repeat the word {w} {t}|{t}: {w}'
           '|say {t}: {w}|repeat {t}: {w}|write {w} {t} in a row|type {w} {t}|say {w} exactly {t}')
TIMES = {2: ("twice", "two times", "2 times"), 3: ("three times", "3 times"), 4: ("four times", "4 times"),
         5: ("five times", "5 times")}


def several(rng):
    """Like times_said, in more ways: each time on a line of its own."""
    n = rng.choices((2, 3, 4, 5), (30, 34, 30, 6))[0]
    text, times = phrase(rng, (1, 1, 1, 2, 2, 3, 4)), rng.choice(TIMES[n])
    while True:
        q = ask(rng, SEVERAL, fold=False, w=text, t=times)
        if not q[:-1].endswith(text):
            return [(q, skills.BETWEEN[0].join([text] * n))]


def copied(rng):
    text = phrase(rng, (2, 2, 3, 3, 4, 4, 5))
    return [(skills.plain(rng, skills.REPEAT, w=text), text)]


MIX = ((more_talk, 20), (greeting_first, 8), (times_table, 8), (own_words, 4), (own_name, 3), (other_lists, 5), (priced_thing, 4),
       (times_said, 5))

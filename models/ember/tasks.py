"""The longer abilities: stories, verses, JSON objects, thinking first, remembering, tools."""
import json
import zlib

import facts
import skills
from ask import ask, capital
from words import (ANIMALS, CITIES, COLOURS, FOODS, FRUITS, INSTRUMENTS, JOBS, NAMES, NOUNS, SPORTS, invent)

# --- stories -----------------------------------------------------------------------------------------------

PLOTS = [  # four sentences each; {a} with article, {k} the animal, {n} its name, {d} describes, {f} a friend
    ("Once there was {da} {k} called {n} who lived in a green forest.", "One day {n} found a small lamp under a stone.",
     "The lamp was dark, so {n} carried it to the old {f} on the hill.", "Together they lit it, and from then on the forest had a light at night."),
    ("{n} was {da} {k} who wanted to see the sea.", "So {n} walked for three days, over hills and along a river.",
     "On the way {n} met {af}, and they went on together.", "When they saw the blue water, they sat down and smiled."),
    ("There was once {da} {k} named {n} who could not sleep.", "Every night {n} counted the stars, but there were too many.",
     "Then a wise {f} said: count only the ones you like.", "{n} counted seven, yawned, and slept until morning."),
    ("In a small village lived {da} {k} called {n}.", "One winter the snow was so deep that nobody could leave the house.",
     "{n} dug a path from door to door, all by itself.", "In the evening everyone came, and they ate warm soup together."),
    ("{DA} {k} called {n} once lost its way in the fog.", "It heard a bell far away and followed the sound.",
     "At the end of the path stood {af} with a bell in its hand.", "They became friends, and {n} was never lost again."),
    ("Long ago {da} {k} called {n} found a tiny seed.", "{n} put it into the ground and gave it water every day.",
     "After a long time a tall tree grew, full of sweet fruit.", "{n} shared the fruit with {af}, and both were happy."),
    ("{n} was {da} {k} who was afraid of the dark.", "One night the wind blew out the only candle in the house.",
     "{n} opened the door and saw that the sky was full of stars.", "Since that night {n} has liked the dark a little."),
    ("Once upon a time {da} {k} called {n} built a little boat.", "It sailed down the river, past fields and quiet towns.",
     "Near a bridge it picked up {af} who was cold and wet.", "They drank hot tea and sailed home under the moon."),
    ("Every morning {da} {k} called {n} went to the market.", "One day it found a purse full of coins on the road.",
     "{n} asked everyone and at last found {af} who had lost it.", "The {f} was so glad that it baked a big cake for {n}."),
    ("{DA} {k} called {n} dreamed of making music.", "It had no drum, so it played on an old pot.",
     "{AF} heard it and began to dance.", "Soon the whole forest danced, and {n} played until the sun came up."),
]
STORY_NAMES = "Milo, Luna, Pip, Otto, Nela, Toby, Mina, Rufus, Lotte, Bruno, Tilda, Fips, Juno, Karl, Wilma, Nico".split(", ")
STORY = ("tell me a story about {a}|write a story about {a}|a story about {a}|tell a story about {a}|story about {a}"
         "|write a short story about {a}|tell me a short story about {a}|can you tell me a story about {a}"
         "|please tell me a story about {a}|write a four-sentence story about {a}|give me a story about {a}"
         "|i would like a story about {a}|a short story about {a}|tell me about {a} in a story|make up a story about {a}"
         "|write four sentences about {a}|tell me a bedtime story about {a}|do you know a story about {a}"
         "|i want to hear a story about {a}|write me a story about {a}|tell us a story about {a}|invent a story about {a}")


def story_text(animal, n):
    """The n-th story about an animal: which one it is depends on the animal alone."""
    h = zlib.crc32(f"story {animal} {n}".encode())
    d = ("small", "brave", "young", "clever", "kind", "shy", "curious", "old")[h % 8]
    friend = ("owl", "bear", "fox", "mouse", "hare", "crow", "badger", "goat")[h // 8 % 8]
    if friend == animal:
        friend = "hedgehog"
    name = STORY_NAMES[h // 64 % 16]
    plot = PLOTS[h // 1024 % len(PLOTS)]
    da, af = facts.an(d), facts.an(friend)
    slots = dict(k=animal, n=name, f=friend, da=f"{da} ", af=af, DA=f"{capital(da)} ", AF=capital(af))
    text = " ".join(plot)
    for key, value in slots.items():
        text = text.replace("{" + key + "}", value)
    return text.replace("  ", " ")


def story(rng):
    r = rng.random()
    animal = rng.choice(ANIMALS) if r < 0.8 else rng.choice(NOUNS) if r < 0.92 else invent(rng)
    if rng.random() < 0.06:
        animal = rng.choice(("fox", "cat", "dog", "mouse", "bear", "owl", "rabbit", "dragon"))
        turns = [(ask(rng, "tell me a story|a story please|story|tell a story|write a story|can you tell me a story"
                           "|once upon a time|tell me a short story|write something|read me a story"),
                  story_text(animal, 0))]
    else:
        plural = animal + "s" if rng.random() < 0.08 and animal[-1] not in "sxhyfe" else facts.an(animal)
        turns = [(ask(rng, STORY, a=plural), story_text(animal, 0))]
    n = 1
    while rng.random() < 0.15 and n < 3:
        if rng.random() < 0.5:
            turns.append((ask(rng, "another one|another story|one more story|tell me another|another story please|again"
                                   " but different"), story_text(animal, n)))
        else:
            animal = rng.choice(ANIMALS)
            turns.append((ask(rng, "now one about {a}|and one about {a}|another about {a}|and about {a}|now about {a}",
                              a=facts.an(animal)), story_text(animal, 0)))
            n = 0
        n += 1
    return turns


VERSES = {
    "moon": "The moon is round, the moon is bright,\nIt walks alone across the night.\nIt looks into my room and says:\nSleep well, I count the nights and days.",
    "sun": "The sun gets up, the sun goes round,\nIt warms the air, it warms the ground.\nAnd when it sinks into the sea,\nIt leaves a little gold for me.",
    "rain": "The rain comes down on roof and stone,\nIt taps a rhythm of its own.\nIt fills the river, feeds the tree,\nAnd sings a quiet song to me.",
    "snow": "The snow falls soft, the snow falls white,\nIt covers all the fields at night.\nIn the morning, cold and deep,\nThe garden lies as if asleep.",
    "tree": "A tree stands tall beside the door,\nIt stood there many years before.\nIt holds a nest, it gives me shade,\nThe finest thing that was ever made.",
    "sea": "The sea is wide, the sea is deep,\nIt has a hundred songs to keep.\nIt brings a shell, it takes the sand,\nAnd never stays on any land.",
    "cat": "A cat lies sleeping in the sun,\nIts work for all the day is done.\nIt dreams of mice, it dreams of cream,\nDo not disturb so good a dream.",
    "dog": "A dog runs out into the day,\nIt knows a hundred ways to play.\nIt brings a stick, it brings a shoe,\nAnd all it wants is to be with you.",
    "fire": "A fire is burning, small and red,\nWhile all the village is in bed.\nAn ember glows, a spark goes by,\nAnd climbs into the winter sky.",
    "friend": "A friend is one who stays with you\nWhen days are grey and not so blue.\nWho laughs with you and shares your bread,\nAnd does not mind what others said.",
    "winter": "The winter came with ice and snow,\nThe river has no wish to flow.\nWe light the lamp and close the door,\nAnd wait until it is spring once more.",
    "spring": "The spring is here, the air is mild,\nThe meadow flowers bright and wild.\nThe birds are back, the days are long,\nAnd everything begins with song.",
    "bird": "A bird sits singing on the gate,\nIt does not care that I am late.\nIt sings of wind, it sings of sky,\nAnd for a while I wish to fly.",
    "night": "The night is quiet, dark and wide,\nThe stars come out on every side.\nThe owl is calling from the tree,\nAnd no one hears it, only me.",
}


def verse(rng):
    if rng.random() < 0.25:
        return [(ask(rng, "write a poem|tell me a poem|a poem|poem|write me a poem|can you write a poem|do you know a poem"
                          "|write a rhyme|a poem please|make a poem"), VERSES["fire"])]
    topic = rng.choice(list(VERSES))
    word = facts.an(topic) if topic in ("tree", "cat", "dog", "friend", "bird") else rng.choice((topic, "the " + topic))
    return [(ask(rng, "write a poem about {t}|a poem about {t}|poem about {t}|tell me a poem about {t}"
                      "|write a short poem about {t}|make a rhyme about {t}|can you write a poem about {t}", t=word),
             VERSES[topic])]


# --- JSON --------------------------------------------------------------------------------------------------

def field_person(rng):
    name = rng.choice(NAMES) if rng.random() < 0.75 else invent(rng, True)
    rows = {"name": (name, f"called {name}"),
            "age": (rng.randrange(1, 100), "{v} years old"), "city": (rng.choice(CITIES), "from {v}"),
            "job": (rng.choice(JOBS), "working as {av}"), "colour": (rng.choice(COLOURS), "who likes {v}"),
            "food": (rng.choice(FOODS), "who eats {v}"), "pet": (rng.choice(ANIMALS), "with {av}"),
            "sport": (rng.choice(SPORTS), "who plays {v}"), "instrument": (rng.choice(INSTRUMENTS), "who has {av}")}
    return "person", rows


def field_thing(rng):
    noun = rng.choice(NOUNS) if rng.random() < 0.8 else invent(rng)
    rows = {"name": (noun, "{av}"), "colour": (rng.choice(COLOURS), "in {v}"),
            "price": (rng.randrange(1, 1000), "for {v} euros"), "count": (rng.randrange(1, 60), "{v} of them"),
            "size": (rng.choice(("small", "medium", "large")), "of {v} size"),
            "weight": (rng.randrange(1, 500), "of {v} grams"),
            "new": (rng.random() < 0.5, "new"), "city": (rng.choice(CITIES), "made in {v}")}
    return "thing", rows


JSON_ASK = ("write a JSON object for {t}|make a JSON object for {t}|give me JSON for {t}|JSON for {t}|as JSON: {t}"
            "|turn this into JSON: {t}|make JSON of this: {t}|convert to JSON: {t}|a JSON object for {t}"
            "|describe {t} as JSON|return a JSON object: {t}|json: {t}|write this as JSON: {t}|please give JSON for {t}"
            "|i need a JSON object for {t}|create a JSON object for {t}|{t} as a JSON object|{t}. answer in JSON"
            "|put this into JSON: {t}|output JSON for {t}|give me a JSON object for {t}|produce json for {t}|{t} in JSON")
JSON_KEYS = ("make a JSON object with {t}|JSON with {t}|write JSON with {t}|give me a JSON object with {t}"
             "|return JSON with {t}|create a JSON object: {t}|a JSON object with {t}|JSON object, {t}|as JSON: {t}"
             "|build a JSON object with {t}|i need JSON with {t}|put this in JSON: {t}|make json: {t}")


def json_object(rng):
    what, rows = rng.choice((field_person, field_thing))(rng)
    keys = ["name"] + rng.sample([k for k in rows if k != "name"], rng.choice((1, 1, 2, 2, 3)))
    if rng.random() < 0.5:
        return [json_by_keys(rng, rows, keys)]
    if rng.random() < 0.5 and what == "person":
        return [json_by_sentence(rng, rows)]
    words = []
    for key in keys[1:]:
        value, phrase = rows[key]
        if key == "new":
            phrase = "new" if value else "not new"
        words.append(phrase.replace("{v}", str(value)).replace("{av}", facts.an(str(value))))
    name = rows["name"][0]
    text = (f"a {what} called {name}" if rng.random() < 0.7 or what == "person" else facts.an(name)) \
        + rng.choice((" ", ", ")) + listing_plain(rng, words)
    return [(ask(rng, JSON_ASK, fold=False, t=text), json.dumps({k: rows[k][0] for k in keys}))]


def listing_plain(rng, words):
    return ", ".join(words) if rng.random() < 0.5 or len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


def json_by_keys(rng, rows, keys):
    rng.shuffle(keys)
    values = {k: rows[k][0] for k in keys}
    if rng.random() < 0.2:
        values[invent(rng)] = rng.choice((rng.randrange(1000), rng.choice(NOUNS)))
    join = rng.choice((" {k} {v}", " {k}: {v}", " {k} = {v}", " {k} is {v}"))
    shown = [join.strip().replace("{k}", k).replace("{v}", {True: "true", False: "false"}.get(v, str(v))
             if isinstance(v, bool) else str(v)) for k, v in values.items()]
    return ask(rng, JSON_KEYS, fold=False, t=listing_plain(rng, shown)), json.dumps(values)


def json_by_sentence(rng, rows):
    name, age, city, job = rows["name"][0], rows["age"][0], rows["city"][0], rows["job"][0]
    pet, colour = rows["pet"][0], rows["colour"][0]
    text, value = rng.choice((
        (f"{name} is {age} years old and lives in {city}", dict(name=name, age=age, city=city)),
        (f"{name} is {age} years old", dict(name=name, age=age)),
        (f"{name} is {facts.an(job)} in {city}", dict(name=name, job=job, city=city)),
        (f"{name} lives in {city} and has {facts.an(pet)}", dict(name=name, city=city, pet=pet)),
        (f"{name} is {facts.an(job)} and {age} years old", dict(name=name, job=job, age=age)),
        (f"{name} likes {colour} and has {facts.an(pet)}", dict(name=name, colour=colour, pet=pet)),
        (f"{name}, {age}, {city}", dict(name=name, age=age, city=city)),
        (f"{name} from {city} works as {facts.an(job)}", dict(name=name, city=city, job=job))))
    return ask(rng, JSON_ASK, fold=False, t=text), json.dumps(value)


def json_list(rng):
    pool = rng.choice((FRUITS, COLOURS, ANIMALS, NAMES, CITIES))
    items = rng.sample(pool, rng.randrange(2, 6))
    if rng.random() < 0.3:
        items = [rng.randrange(100) for _ in items]
    return [(ask(rng, "make a JSON list of {t}|JSON list: {t}|a JSON array of {t}|write {t} as a JSON list"
                      "|turn into a JSON array: {t}", fold=False, t=", ".join(str(i) for i in items)), json.dumps(items))]


# --- thinking first ----------------------------------------------------------------------------------------

THINK_ASK = ("think first: {q}|think first. {q}|think step by step: {q}|think before you answer: {q}|{q} think first"
             "|{q} think step by step|first think, then answer: {q}|think, then answer: {q}|{q} please think first"
             "|think about it first: {q}|think carefully: {q}|{q} think before you answer|let us think: {q}")


def column_sum(a, b):
    """Adds two numbers below 100 as one does on paper."""
    ones = a % 10 + b % 10
    tens = a // 10 + b // 10 + ones // 10
    keep = f", write {ones % 10} and carry 1. " if ones > 9 else ". "
    carry = f" + 1 = {tens}" if ones > 9 else f" = {tens}"
    return f"Ones: {a % 10} + {b % 10} = {ones}{keep}Tens: {a // 10} + {b // 10}{carry}. So it is {a + b}."


def thought(rng):
    """(request, thought, answer)"""
    r = rng.random()
    if r < 0.35:
        a, b = rng.randrange(10, 100), rng.randrange(10, 100)
        return ask(rng, skills.PLUS, a=a, b=b), column_sum(a, b), f"{a} + {b} = {a + b}."
    if r < 0.5:
        a, b = rng.randrange(2, 10), rng.randrange(11, 100)
        t, o = b // 10 * 10, b % 10
        return (ask(rng, skills.TIMES, a=a, b=b),
                f"{b} is {t} + {o}. {a} * {t} = {a * t}. {a} * {o} = {a * o}. {a * t} + {a * o} = {a * b}. So it is {a * b}.",
                f"{a} * {b} = {a * b}.")
    if r < 0.6:
        q, answer = skills.sum_of(rng)
        return q, f"This is a sum. {answer}", answer
    if r < 0.72:
        q, answer = skills.spell(rng)[0]
        return q, f"I take the letters one by one. There are {len(answer) // 2 + 1}.", answer
    if r < 0.9:
        q, answer = skills.fact(rng)[0]
        return q, f"The question is about a simple fact. I know it: {answer}", answer
    if r < 0.95:
        q, answer = skills.unknown(rng)[0]
        return q, "I look for it in what I know, but I do not find it.", answer
    q, answer = rng.choice((skills.greet, skills.about_self, skills.about_hearth))(rng)[0]
    return q, "This is not hard. I answer at once.", answer


def think(rng):
    """One pair whose request asks for thinking."""
    q, inner, answer = thought(rng)
    return [(ask(rng, THINK_ASK, fold=False, q=q), f"<think>\n{inner}\n</think>\n\n{answer}")]


# --- remembering -------------------------------------------------------------------------------------------

def memory(rng, fillers):
    """Something is told, other things follow, then it is asked for."""
    name = rng.choice(NAMES) if rng.random() < 0.7 else invent(rng, True)
    city, colour, job = rng.choice(CITIES), rng.choice(COLOURS), rng.choice(JOBS)
    age, pet, food = rng.randrange(5, 99), rng.choice(ANIMALS), rng.choice(FOODS)
    told = [
        ("my name is {v}|i am {v}|i'm {v}|call me {v}|hi, i am {v}|hello, my name is {v}|hi my name is {v}|my name's {v}"
         "|you can call me {v}|hello i am {v}|this is {v}|people call me {v}|the name is {v}", name, "Nice to meet you, {v}!",
         "what is my name|who am i|do you know my name|what's my name|say my name|do you remember my name"
         "|what am i called|tell me my name|how am i called", "Your name is {v}."),
        ("i live in {v}|i am from {v}|my home is {v}|i come from {v}|my city is {v}", city, "{v} is a fine place, I am told.",
         "where do i live|where am i from|which city do i live in|where is my home|what is my city", "You live in {v}."),
        ("my favourite colour is {v}|i like {v} most|my favorite color is {v}|the colour i like best is {v}", colour,
         "{V} is a fine colour.", "what is my favourite colour|which colour do i like|what is my favorite color"
         "|what colour do i like best", "Your favourite colour is {v}."),
        ("i am {v} years old|i'm {v}|my age is {v}|i am {v}|i turned {v} today", age, "{v} is a good age.",
         "how old am i|what is my age|do you know how old i am", "You are {v} years old."),
        ("i work as {av}|i am {av}|my job is {v}|i'm {av}", job, "That is a useful job.",
         "what is my job|what do i do|what do i work as|what is my work", "You are {av}."),
        ("i have {av}|i have a pet {v}|my pet is {av}|i own {av}", pet, "I hope that your {v} is well.",
         "what animal do i have|which pet do i have|what is my pet|what pet do i have", "You have {av}."),
        ("my favourite food is {v}|i like to eat {v}|i love {v}|i like {v}", food, "Enjoy your {v}!",
         "what is my favourite food|what do i like to eat|which food do i like", "Your favourite food is {v}."),
    ]
    turns, asked = [], []
    for template, value, reply, question, answer in rng.sample(told, rng.choice((1, 1, 2, 3))) if rng.random() < 0.5 \
            else told[:1]:
        v = str(value)
        slots = dict(v=v, V=capital(v), av=facts.an(v))
        turns.append((ask(rng, template, **slots), _put(reply, slots)))
        asked.append((ask(rng, question, **slots), _put(answer, slots)))
    for _ in range(rng.choice((0, 0, 1, 1, 2, 3))):
        turns += rng.choice(fillers)(rng)[:1]
    rng.shuffle(asked)
    return turns + asked


def _put(template, slots):
    for key, value in slots.items():
        template = template.replace("{" + key + "}", value)
    return template

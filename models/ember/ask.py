"""How people type: variants of one request, and the rule that keeps some requests out of training."""
import re
import zlib

PREFIXES = ("please ", "hey, ", "ok, ", "so, ", "ember, ", "hi, ", "hello! ", "tell me, ", "and ", "now ", "quick: ",
            "hi ember, ", "one question: ", "well, ", "then ", "hmm, ", "i want to know, ", "question: ", "hey ember ")
SUFFIXES = (" please", ", please", " thanks", ", ember", " now", ", thank you", " for me", " ok")
QUESTION_WORDS = ("what", "which", "who", "where", "when", "why", "how", "is ", "are ", "do ", "does ", "can ", "did ",
                  "will ", "should ", "has ", "have ", "may ", "shall ", "could ", "would ", "on ", "at ", "in ")


def held(text):
    """True for one request in 25, by its words alone: such a request is in no training conversation."""
    words = " ".join(re.sub(r"[^0-9a-z+*/×<>=-]+", " ", text.lower()).split())
    return zlib.crc32(words.encode()) % 25 == 7


def typo(rng, text):
    """One slip of the fingers in a word of four letters or more."""
    spots = [m for m in re.finditer(r"[a-z]{4,}", text)]
    if not spots:
        return text
    m = rng.choice(spots)
    i = rng.randrange(m.start() + 1, m.end() - 1)
    kind = rng.randrange(3)
    if kind == 0:
        return text[:i] + text[i + 1:]
    if kind == 1:
        return text[:i] + text[i] + text[i:]
    return text[:i] + text[i + 1] + text[i] + text[i + 2:]


def dress(rng, template):
    """A template ({slots} stay as they are) as somebody may type it."""
    pieces = re.split(r"(\{[a-zA-Z0-9]+\})", template)
    if rng.random() < 0.06:
        i = rng.randrange(0, len(pieces), 2)
        pieces[i] = typo(rng, pieces[i])
    text = "".join(pieces)
    if text.startswith("what is ") and rng.random() < 0.15:
        text = rng.choice(("what's ", "whats ", "What is ", "tell me what is ", "do you know what is ")) + text[8:]
    question = text.lower().startswith(QUESTION_WORDS)
    if rng.random() < 0.13:
        text = rng.choice(PREFIXES) + text
    if rng.random() < 0.08:
        text += rng.choice(SUFFIXES)
    if rng.random() < 0.55 and text[0] != "{":
        text = text[0].upper() + text[1:]
    if text[-1] in "?!.":
        return text
    r = rng.random()
    if question:
        return text + ("?" if r < 0.6 else "" if r < 0.95 else " ?" if r < 0.97 else "??" if r < 0.98 else ".")
    return text + ("." if r < 0.4 else "" if r < 0.9 else "!" if r < 0.95 else ":" if r < 0.96 else "?")


def fill(template, slots):
    return re.sub(r"\{([a-zA-Z0-9]+)\}", lambda m: str(slots[m.group(1)]), template)


def ask(rng, templates, fold=True, **slots):
    """One of the templates, dressed and filled; sometimes all in lower case (fold) or, rarely, in capitals."""
    if isinstance(templates, str):
        templates = templates.split("|")
    text = fill(dress(rng, rng.choice(templates)), slots)
    if fold:
        r = rng.random()
        if r < 0.25:
            text = text.lower()
        elif r < 0.265:
            text = text.upper()
    return text


def capital(text):
    return text[0].upper() + text[1:]

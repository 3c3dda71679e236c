"""Byte-level BPE: the trainer and a plain encoder, with the qwen2 rule for cutting text (digits stand alone).

Ids: 256 bytes in the order of GPT-2's table, then one per merge, then the added tokens.
"""
import json
import re
import sys
import unicodedata
from collections import Counter, defaultdict

# (text, GGUF token type): 3 control (not shown), 4 user-defined (shown in the reply)
ADDED = (("<|endoftext|>", 3), ("<|im_start|>", 3), ("<|im_end|>", 3), ("<think>", 4), ("</think>", 4),
         ("<tool_call>", 4), ("</tool_call>", 4), ("<tool_response>", 4), ("</tool_response>", 4))
SPACES = r"\t\n\x0b\x0c\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"


def char_class(letter):
    """Ranges of all code points whose general category begins with letter."""
    ranges, start = [], None
    for code in range(sys.maxunicode + 2):
        inside = code <= sys.maxunicode and unicodedata.category(chr(code))[0] == letter
        if inside and start is None:
            start = code
        elif not inside and start is not None:
            ranges.append(f"\\U{start:08x}-\\U{code - 1:08x}")
            start = None
    return "".join(ranges)


def pretokenizer():
    l, n = char_class("L"), char_class("N")
    return re.compile(
        rf"'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])|[^\r\n{l}{n}]?[{l}]+|[{n}]| ?[^{SPACES}{l}{n}]+[\r\n]*"
        rf"|[{SPACES}]*[\r\n]+|[{SPACES}]+(?![^{SPACES}])|[{SPACES}]+")


def byte_chars():
    """GPT-2's printable stand-in for each byte, as {byte: character}, in the order of its table."""
    shown = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    table = {b: chr(b) for b in shown}
    for b in range(256):
        if b not in table:
            table[b] = chr(256 + len(table) - len(shown))
    return table


class Bpe:
    def __init__(self, merges):
        self.merges = [tuple(m) for m in merges]
        self.chars = byte_chars()
        self.tokens = list(self.chars.values()) + [a + b for a, b in self.merges] + [t for t, _ in ADDED]
        self.ids = {t: i for i, t in enumerate(self.tokens)}
        self.rank = {m: i for i, m in enumerate(self.merges)}
        self.cut = pretokenizer()
        self.added = re.compile("(" + "|".join(re.escape(t) for t, _ in ADDED) + ")")
        self.cache = {}

    def word(self, text):
        ids = self.cache.get(text)
        if ids is None:
            ids = self.cache[text] = [self.ids[p] for p in self.pieces(text)]
        return ids

    def pieces(self, text):
        parts = [self.chars[b] for b in text.encode("utf-8")]
        while len(parts) > 1:
            best = min(range(len(parts) - 1), key=lambda i: self.rank.get((parts[i], parts[i + 1]), 1 << 30))
            if (parts[best], parts[best + 1]) not in self.rank:
                break
            parts[best:best + 2] = [parts[best] + parts[best + 1]]
        return parts

    def encode(self, text):
        """Ids of rendered text: added tokens in it are recognised."""
        out = []
        for piece in self.added.split(text):
            if self.added.fullmatch(piece):
                out.append(self.ids[piece])
            else:
                for m in self.cut.finditer(piece):
                    out += self.word(m.group())
        return out

    def decode(self, ids):
        back = {c: b for b, c in self.chars.items()}
        n = len(self.tokens) - len(ADDED)
        return b"".join(self.tokens[i].encode() if i >= n else bytes(back[c] for c in self.tokens[i])
                        for i in ids).decode("utf-8", "replace")

    def save(self, path):
        with open(path, "w", encoding="utf-8") as f:
            json.dump({"merges": self.merges}, f)

    @classmethod
    def load(cls, path):
        with open(path, encoding="utf-8") as f:
            return cls(json.load(f)["merges"])


def train(texts, n_vocab):
    """Learns merges from texts until there are n_vocab tokens, the added ones included."""
    cut, chars = pretokenizer(), byte_chars()
    counts = Counter(m.group() for t in texts for m in cut.finditer(t))
    words = [[chars[b] for b in w.encode("utf-8")] for w in counts]
    weight = list(counts.values())
    pairs, where = Counter(), defaultdict(set)
    for i, w in enumerate(words):
        for p in zip(w, w[1:]):
            pairs[p] += weight[i]
            where[p].add(i)
    merges = []
    while len(merges) < n_vocab - 256 - len(ADDED):
        best = max(pairs, key=lambda p: (pairs[p], p))
        if pairs[best] < 2:
            raise SystemExit("bpe: the text is too small for this vocabulary")
        merges.append(best)
        for i in sorted(where.pop(best)):
            _merge(words, i, best, weight[i], pairs, where)
        pairs.pop(best, None)
    return Bpe(merges)


def _merge(words, i, best, n, pairs, where):
    old = words[i]
    new, k = [], 0
    while k < len(old):
        if k + 1 < len(old) and (old[k], old[k + 1]) == best:
            new.append(old[k] + old[k + 1])
            k += 2
        else:
            new.append(old[k])
            k += 1
    for p in zip(old, old[1:]):
        pairs[p] -= n
    for p in zip(new, new[1:]):
        pairs[p] += n
        where[p].add(i)
    words[i] = new

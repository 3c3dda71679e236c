#!/usr/bin/python3
"""Compares bpe.py with `hearth tokenize` on many texts.

    ./check_tokens.py --dir DIR --hearth PATH/hearth -m ember.gguf
"""
import argparse
import json
import os
import random
import subprocess

import bpe
from prepare import render

FIXED = ("", " ", "  a", "a  b", "\n", "\n\n x", "a\n\n\nb", " \n ", "\t\ttab", "it's we'll I'M don'T", "naïve café", "日本語のテキスト",
         "Привет, мир!", "مرحبا", "🙂 👩‍👩‍👧 🇫🇷", "x²+½=Ⅷ", "1234567890", "3.14159", "a1b2", "!!!???...", "<|im_start|>user\nhi<|im_end|>\n",
         "<think>\nx\n</think>\n\ny", "<tool_call>{}</tool_call>", "<|im_start", "|im_end|>", "http://a.b/c?d=e&f=g", "e\u0301 \u00a0 \u3000x",
         "ſ 'S 'ſ", "\u200b\u200d", "a\r\nb\r\n", "'", "''s", "\"quoted\"", "a_b-c", "ß ẞ İ ı", "end ")


def random_text(rng):
    kinds = ("abcdefgh ", "0123456789 +-*/=.", "äöüßéèçñ ", "\n\t \r", "(){}[]<>|\"'`~!@#$%^&*", "漢字かなカナ한글", "αβγδЖЗИ", "😀🎉")
    return "".join(rng.choice(rng.choice(kinds)) for _ in range(rng.randrange(1, 40)))


def main():
    p = argparse.ArgumentParser(description="compare tokenizers")
    p.add_argument("--dir", required=True)
    p.add_argument("--hearth", required=True)
    p.add_argument("-m", "--model", required=True)
    a = p.parse_args()
    vocab = bpe.Bpe.load(os.path.join(a.dir, "vocab.json"))
    rng = random.Random(4)
    texts = list(FIXED) + [random_text(rng) for _ in range(300)]
    with open(os.path.join(a.dir, "heldout.jsonl"), encoding="utf-8") as f:
        texts += [render(json.loads(line)["turns"]) for line, _ in zip(f, range(300))]
    wrong = 0
    for text in texts:
        r = subprocess.run([a.hearth, "tokenize", "-m", a.model, "--json", "--parse-special", "-f", "-"], input=text.encode(),
                           capture_output=True)
        ids = json.loads(r.stdout)["ids"]
        mine = vocab.encode(text)
        if ids != mine or (text and vocab.decode(mine) != text):
            wrong += 1
            print(f"{text!r}\n  here   {mine}\n  hearth {ids}")
    print(f"{len(texts)} texts, {wrong} differ")
    raise SystemExit(wrong > 0)


if __name__ == "__main__":
    main()

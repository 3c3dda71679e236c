#!/usr/bin/python3
"""Turns DIR/train.jsonl into what train.py reads.

    ./prepare.py --dir DIR [--vocab 1536] [--vocab-of OTHER]

Makes DIR/vocab.json (the merges, learned from the first 60,000 conversations) unless it is there, then
    tokens.bin   uint16 ids of all conversations, bit 15 set where the token belongs to an answer
    docs.bin     uint32 offset of each conversation in tokens.bin, and the end
"""
import argparse
import array
import json
import os

import bpe

ANSWER = 0x8000


def render(turns):
    """A conversation in the ChatML layout that chat_template.jinja writes."""
    return "".join(f"<|im_start|>{'assistant' if r == 'think' else r}\n{t}<|im_end|>\n" for r, t in turns)


def ids_of(vocab, turns):
    """Ids of a conversation, ANSWER set on those that the model has to say."""
    out = []
    for role, text in turns:
        ids = vocab.encode(render([(role, text)]))
        if role in ("assistant", "think"):
            first = 1 + len(vocab.word("assistant")) + 1 + (2 if role == "think" else 0)
            ids = ids[:first] + [i | ANSWER for i in ids[first:-1]] + ids[-1:]
        out += ids
    return out


def main():
    p = argparse.ArgumentParser(description="tokenise Ember's corpus")
    p.add_argument("--dir", required=True)
    p.add_argument("--vocab", type=int, default=1536)
    p.add_argument("--vocab-of", help="another DIR, whose vocab.json to use")
    a = p.parse_args()
    path = os.path.join(a.vocab_of or a.dir, "vocab.json")
    corpus = os.path.join(a.dir, "train.jsonl")
    if not os.path.exists(path):
        texts = []
        with open(corpus, encoding="utf-8") as f:
            for line, _ in zip(f, range(60000)):
                texts += ["\n" + t for _, t in json.loads(line)["turns"]] + ["system", "user", "assistant"]
        texts += ["".join("-" + c for c in "abcdefghijklmnopqrstuvwxyz")] * 2000  # each letter of a spelling is one token
        bpe.train(texts, a.vocab).save(path)
    vocab = bpe.Bpe.load(path)
    tokens, docs = array.array("H"), array.array("I", [0])
    with open(corpus, encoding="utf-8") as f:
        for line in f:
            if len(docs) % 8 == 0:  # some programs put this first
                tokens.append(vocab.ids["<|endoftext|>"])
            tokens.extend(ids_of(vocab, json.loads(line)["turns"]))
            docs.append(len(tokens))
    for name, data in (("tokens.bin", tokens), ("docs.bin", docs)):
        with open(os.path.join(a.dir, name), "wb") as f:
            data.tofile(f)
    answers = sum(1 for t in tokens if t & ANSWER)
    print(f"{len(docs) - 1} conversations, {len(tokens)} tokens, {answers} of them in answers, vocabulary of {len(vocab.tokens)}")


if __name__ == "__main__":
    main()

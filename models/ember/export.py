#!/usr/bin/python3
"""Writes a checkpoint as GGUF v3.

    ./export.py --dir DIR -o ember.gguf [--f32] [--live]

Matrices are F16 (--f32: F32), norms F32. The weights are the running mean of training (--live: the last ones).
The card (README.md) and the chat template of this folder go into the metadata.
"""
import argparse
import os
import struct

import numpy as np
import torch

import bpe

HERE = os.path.dirname(os.path.abspath(__file__))
U32, I32, F32, BOOL, STR, ARRAY = 4, 5, 6, 7, 8, 9
ALIGNMENT = 32
DESCRIPTION = ("A very small chat model that comes with hearth, so that a fresh machine has something to talk to. Trained by "
               "the hearth project on text that the project's own program wrote. It knows a few hundred simple facts, does "
               "small sums, spells, repeats, lists, tells four-sentence stories, writes small JSON objects and calls tools.")


def text(s):
    b = s.encode("utf-8")
    return struct.pack("<Q", len(b)) + b


def value(kind, v):
    if kind == STR:
        return text(v)
    return struct.pack({U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}[kind], v)


def key(name, kind, v):
    return text(name) + struct.pack("<I", kind) + value(kind, v)


def key_list(name, kind, items):
    return text(name) + struct.pack("<IIQ", ARRAY, kind, len(items)) + b"".join(value(kind, v) for v in items)


def pairs_beside(w, heads):
    """Rows of a rotated matrix from halves of a head to adjacent pairs, as GGUF's llama turns them."""
    rows, cols = w.shape
    return w.reshape(heads, 2, rows // heads // 2, cols).swapaxes(1, 2).reshape(rows, cols)


def tensors(weights, c):
    """[(name, fp32 array)] in file order."""
    get = {k: v.float().numpy() for k, v in weights.items()}
    q, kv = c["n_head"] * c["head_dim"], c["n_head_kv"] * c["head_dim"]
    one = np.ones(c["n_embd"], dtype=np.float32)
    out = [("token_embd.weight", get["embed"])]
    for i in range(c["n_layer"]):
        qkv, gu = get[f"mats.{i}_qkv"], get[f"mats.{i}_gu"]
        out += [(f"blk.{i}.attn_norm.weight", one),
                (f"blk.{i}.attn_q.weight", pairs_beside(qkv[:q], c["n_head"])),
                (f"blk.{i}.attn_k.weight", pairs_beside(qkv[q:q + kv], c["n_head_kv"])),
                (f"blk.{i}.attn_v.weight", qkv[q + kv:]),
                (f"blk.{i}.attn_output.weight", get[f"mats.{i}_o"]),
                (f"blk.{i}.ffn_norm.weight", one),
                (f"blk.{i}.ffn_gate.weight", gu[:c["n_ff"]]),
                (f"blk.{i}.ffn_up.weight", gu[c["n_ff"]:]),
                (f"blk.{i}.ffn_down.weight", get[f"mats.{i}_down"])]
    return out + [("output_norm.weight", one)]


def metadata(c, vocab, f32):
    ids = {t: vocab.ids[t] for t, _ in bpe.ADDED}
    kinds = [1] * (len(vocab.tokens) - len(bpe.ADDED)) + [k for _, k in bpe.ADDED]
    read = lambda name: open(os.path.join(HERE, name), encoding="utf-8").read()
    return [
        key("general.architecture", STR, "llama"), key("general.type", STR, "model"),
        key("general.name", STR, "Ember"), key("general.basename", STR, "ember"),
        key("general.author", STR, "The hearth authors"), key("general.size_label", STR, "3.3M"),
        key("general.license", STR, "mit"), key("general.license.name", STR, "MIT License"),
        key("general.description", STR, DESCRIPTION), key("general.quantized_by", STR, "The hearth authors"),
        key_list("general.tags", STR, ["chat", "text-generation", "tool-calling"]),
        key_list("general.languages", STR, ["en"]), key("general.file_type", U32, 0 if f32 else 1),
        key("general.sampling.temp", F32, 0.3), key("general.sampling.top_k", I32, 20),
        key("general.sampling.top_p", F32, 0.9), key("hearth.model_card", STR, read("README.md")),
        key("llama.context_length", U32, c["n_ctx"]), key("llama.embedding_length", U32, c["n_embd"]),
        key("llama.block_count", U32, c["n_layer"]), key("llama.feed_forward_length", U32, c["n_ff"]),
        key("llama.attention.head_count", U32, c["n_head"]), key("llama.attention.head_count_kv", U32, c["n_head_kv"]),
        key("llama.attention.layer_norm_rms_epsilon", F32, c["eps"]), key("llama.vocab_size", U32, len(vocab.tokens)),
        key("llama.rope.dimension_count", U32, c["head_dim"]), key("llama.rope.freq_base", F32, c["rope_base"]),
        key("tokenizer.ggml.model", STR, "gpt2"), key("tokenizer.ggml.pre", STR, "qwen2"),
        key_list("tokenizer.ggml.tokens", STR, vocab.tokens), key_list("tokenizer.ggml.token_type", I32, kinds),
        key_list("tokenizer.ggml.merges", STR, [f"{a} {b}" for a, b in vocab.merges]),
        key("tokenizer.ggml.bos_token_id", U32, ids["<|endoftext|>"]),
        key("tokenizer.ggml.eos_token_id", U32, ids["<|im_end|>"]),
        key("tokenizer.ggml.padding_token_id", U32, ids["<|endoftext|>"]),
        key("tokenizer.ggml.add_bos_token", BOOL, False),
        key("tokenizer.chat_template", STR, read("chat_template.jinja").rstrip("\n"))]


def write(path, keys, named, f32):
    head = b"GGUF" + struct.pack("<IQQ", 3, len(named), len(keys)) + b"".join(keys)
    at, blobs = 0, []
    for name, a in named:
        wide = f32 or a.ndim == 1
        data = a.astype(np.float32 if wide else np.float16).tobytes()
        head += text(name) + struct.pack("<I", a.ndim) + b"".join(struct.pack("<Q", n) for n in reversed(a.shape)) \
            + struct.pack("<IQ", 0 if wide else 1, at)
        data += b"\0" * (-len(data) % ALIGNMENT)
        at += len(data)
        blobs.append(data)
    with open(path + ".part", "wb") as f:
        f.write(head + b"\0" * (-len(head) % ALIGNMENT) + b"".join(blobs))
    os.replace(path + ".part", path)


def main():
    p = argparse.ArgumentParser(description="write Ember as GGUF")
    p.add_argument("--dir", required=True, help="with checkpoint.pt and vocab.json")
    p.add_argument("-o", required=True)
    p.add_argument("--f32", action="store_true")
    p.add_argument("--live", action="store_true")
    a = p.parse_args()
    s = torch.load(os.path.join(a.dir, "checkpoint.pt"))
    vocab = bpe.Bpe.load(os.path.join(a.dir, "vocab.json"))
    write(a.o, metadata(s["config"], vocab, a.f32), tensors(s["model" if a.live else "mean"], s["config"]), a.f32)
    print(f"{a.o}: step {s['step']}, {s['seconds'] / 3600:.2f} core hours, {os.path.getsize(a.o)} bytes")


if __name__ == "__main__":
    main()

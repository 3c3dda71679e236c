"""hearth tokenize, logits, perplexity: the doors through which others check us."""
import base64
import json
import math
import operator
import os
import statistics
import struct

from cases_quantize import Raw
from cmd_rig import MODELS, Case, floats, hearth, vocabulary_only

N_VOCAB = 300


class Tokenize(Case):
    def ids(self, text, *args, model="bpe"):
        out = self.ok("tokenize", "-m", MODELS[model], *args, stdin=text)
        self.assertTrue(out.endswith(b"\n") and out.count(b"\n") == 1)
        return [int(x) for x in out.split()]

    def test_ids(self):
        """Letters and merges of make_vocab.h."""
        self.assertEqual(self.ids(b"hello"), [104, 292, 108, 111])  # h el l o
        self.assertEqual(self.ids(b""), [])
        self.assertEqual(self.ids(b"hi", model="spm"), [1, 293, 264])
        self.assertEqual(self.ids(b"hi", "--no-special", model="spm"), [293, 264])
        self.assertEqual(self.ids(b"", model="spm"), [1])
        self.assertEqual(self.ids(b"", "--no-special", model="spm"), [])

    def test_where_the_text_comes_from(self):
        file = self.file("text", b"hello\n")
        want = self.ok("tokenize", "-m", MODELS["bpe"], stdin=b"hello\n")
        self.assertEqual(self.ok("tokenize", "-m", MODELS["bpe"], "-f", file), want)
        self.assertEqual(self.ok("tokenize", "-m", MODELS["bpe"], "-f", "-", stdin=b"hello\n"), want)
        self.assertEqual(self.ok("tokenize", "-m", MODELS["bpe"], "hello\n"), want)
        self.fails(2, "tokenize", "-m", MODELS["bpe"], "-f", file, "hello", says="twice")
        self.fails(2, "tokenize", "-m", MODELS["bpe"], "--frob", says="--frob")

    def test_special(self):
        self.assertEqual(self.ids(b"<|im_start|>", "--parse-special"), [298])
        self.assertEqual(len(self.ids(b"<|im_start|>")), len("<|im_start|>"))  # no merge of the vocabulary is in it
        self.assertEqual(self.ids(b"</s>", "--parse-special", "--no-special", model="spm"), [2])

    def test_json(self):
        r = self.json("tokenize", "-m", MODELS["bpe"], "hello")
        self.assertEqual(r, {"ids": [104, 292, 108, 111], "pieces": ["h", "el", "l", "o"]})
        r = self.json("tokenize", "-m", MODELS["bpe"], "é")
        self.assertEqual(r, {"ids": [0xC3, 0xA9], "pieces": [{"b64": "ww=="}, {"b64": "qQ=="}]})

    def test_invalid_utf8(self):
        """SPM: byte tokens, 3 + the byte. Byte-level BPE: as if U+FFFD stood for each maximal bad subsequence."""
        bad = b"th x\xe2\x82"
        r = self.json("tokenize", "-m", MODELS["spm"], "--no-special", stdin=bad)
        self.assertEqual([i for i in r["ids"] if i < 259], [3 + b for b in b"\xe2\x82"])
        self.assertEqual(b"".join(base64.b64decode(p["b64"]) if isinstance(p, dict) else p.encode() for p in r["pieces"]),
                         b" " + bad)
        self.assertEqual(self.ids(b"\xff\x80!\xe2\x82!"), [*"\ufffd\ufffd!\ufffd!".encode()])

    def test_vocabulary_only(self):
        """No tensors, no end token."""
        file = self.file("vocab.gguf", vocabulary_only())
        self.assertEqual(self.ok("tokenize", "-m", file, "hi ho"), b"256 32 104 111\n")
        self.fails(1, "run", "-m", file, "-p", "hi")
        self.fails(1, "tokenize", "-m", MODELS["none"], "hi", says="tokenizer.ggml.model")


def rows_of(data, width):
    values = struct.unpack(f"<{len(data) // 4}f", data)
    return [values[i:i + width] for i in range(0, len(values), width)]


class Logits(Case):
    TOKENS = "104 105 32 297 0 7"

    def logits(self, *args, tokens=TOKENS, model="bpe"):
        path = self.dir / "out.f32"
        self.assertEqual(self.ok("logits", "-m", MODELS[model], "--tokens", tokens, "-o", path, *args), b"")
        return path.read_bytes()

    def test_size_and_values(self):
        data = self.logits()
        self.assertEqual(len(data), 6 * N_VOCAB * 4)
        values = struct.unpack(f"<{len(data) // 4}f", data)
        self.assertTrue(all(map(math.isfinite, values)))
        self.assertEqual(self.logits(tokens="104,105, 32"), data[:3 * N_VOCAB * 4])  # what follows changes nothing

    def test_greedy_reply_follows(self):
        """The first token of a greedy reply with the same KV type is the argmax of the last row."""
        reply = self.json("run", "-m", MODELS["bpe"], "-p", "hi", "-n", "4", "--kv-type", "f32")
        data = self.logits(tokens=" ".join(map(str, reply["prompt_ids"] + reply["ids"])))
        values = struct.unpack(f"<{len(data) // 4}f", data)
        rows = [values[i:i + N_VOCAB] for i in range(0, len(values), N_VOCAB)]
        said = [row.index(max(row)) for row in rows[len(reply["prompt_ids"]) - 1:]][:len(reply["ids"])]
        self.assertEqual(said, reply["ids"])

    def test_embd(self):
        """The output matrix times the rows of --embd are the logits; Q8_0 has codes of the rows in between, F32 has not."""
        for model, width, within in (("wide", 256, 1e-5), ("bpe", 64, 5e-2)):
            logits = rows_of(self.logits(model=model), N_VOCAB)
            hidden = rows_of(self.logits("--embd", model=model), width)
            self.assertEqual((len(logits), len(hidden)), (6, 6))
            self.ok("quantize", MODELS[model], self.dir / "f32.gguf", "F32") if model == "bpe" else None
            file = Raw(self.dir / "f32.gguf" if model == "bpe" else MODELS[model])
            kind, dims, data = file.tensors.get("output.weight") or file.tensors["token_embd.weight"]
            self.assertEqual((kind, list(dims)), ("F32", [width, N_VOCAB]))
            matrix = rows_of(data, width)
            for h, row in zip(hidden, logits, strict=True):
                spread = statistics.pstdev(row)
                worst = max(abs(math.fsum(map(operator.mul, w, h)) - x) for w, x in zip(matrix, row, strict=True))
                self.assertLessEqual(worst, within * spread, model)
        self.assertEqual(self.logits("--embd", tokens="104,105, 32"), self.logits("--embd")[:3 * 64 * 4])
        for more in (["--cpu", "ref"], ["--threads", "1"], ["-c", "6"], ["--kv-type", "f32"]):
            self.assertEqual(self.logits("--embd", *more), self.logits("--embd"), more)

    def test_same_everywhere(self):
        want = self.logits()
        for more in (["--cpu", "ref"], ["--cpu", "avx2"], ["--threads", "1"], ["--threads", "2"], ["-c", "6"],
                     ["--kv-type", "f32"]):
            self.assertEqual(self.logits(*more), want, more)
        self.assertNotEqual(self.logits("--kv-type", "f16"), want)

    def test_refusals(self):
        """An older file stays, no half file is left."""
        out = self.file("out.f32", b"old")
        m = ["logits", "-m", MODELS["bpe"], "-o", out, "--tokens"]
        self.fails(1, *m, "1 300", says=["300", "place 1"])
        self.fails(1, *m, "-1", says="-1")
        self.fails(1, *m, "1 2 3 4 5", "-c", "4", says=["5", "4"])
        self.fails(2, *m, "", says="--tokens")
        self.fails(2, *m, "1 x", says="'x'")
        self.fails(2, *m, "1-2", says="'1-2'")
        self.fails(2, *m, "99999999999", says="99999999999")
        self.fails(2, "logits", "-m", MODELS["bpe"], "-o", out, says="--tokens")
        self.fails(2, "logits", "-m", MODELS["bpe"], "--tokens", "1", says="-o")
        self.fails(1, *m, "1 300", "--embd", says=["300", "place 1"])
        self.assertEqual(out.read_bytes(), b"old")
        self.fails(1, "logits", "-m", MODELS["bpe"], "--tokens", "1", "-o", "/nonexistent/x", says="/nonexistent/x")
        self.fails(1, "logits", "-m", MODELS["bpe"], "--tokens", "1", "-o", "/dev/full", says="No space left")
        self.assertTrue(os.path.exists("/dev/full"))

    def test_to_a_pipe(self):
        r = hearth("logits", "-m", MODELS["bpe"], "--tokens", self.TOKENS, "-o", "/dev/stdout")
        self.assertEqual((r.rc, r.out), (0, self.logits()))


def nll(rows, ids):
    """-log softmax of each id in its row, in double."""
    total = 0.0
    for row, i in zip(rows, ids):
        top = max(row)
        total += math.log(math.fsum(math.exp(x - top) for x in row)) + top - row[i]
    return total


class Perplexity(Case):
    TEXT = b"the other one and then some more of the same\n"

    def check(self, model, window, bos):
        ids = [int(x) for x in self.ok("tokenize", "-m", MODELS[model], "--no-special", stdin=self.TEXT).split()]
        step = window - len(bos)
        total, scored = 0.0, 0
        for at in range(0, len(ids), step):
            piece = bos + ids[at:at + step]
            path = self.dir / "piece.f32"
            self.ok("logits", "-m", MODELS[model], "--tokens", " ".join(map(str, piece)), "-o", path)
            values = floats(path)
            rows = [values[i:i + N_VOCAB] for i in range(0, len(values), N_VOCAB)]
            total += nll(rows, piece[1:])
            scored += len(piece) - 1
        r = self.json("perplexity", "-m", MODELS[model], "-w", str(window), stdin=self.TEXT)
        self.assertEqual(set(r), {"tokens", "nll", "ppl"})
        self.assertEqual(r["tokens"], scored)
        self.assertAlmostEqual(r["nll"], total / scored, delta=1e-9)
        self.assertAlmostEqual(r["ppl"], math.exp(r["nll"]), delta=1e-6 * r["ppl"])

    def test_is_what_the_logits_say(self):
        self.check("spm", 16, [1])
        self.check("bpe", 16, [])  # no BOS: the first id of each window is not scored

    def test_text_and_file(self):
        file = self.file("text", self.TEXT)
        out = self.ok("perplexity", "-m", MODELS["spm"], "-f", file).decode()
        r = json.loads(self.ok("perplexity", "-m", MODELS["spm"], "-f", file, "--json"))
        self.assertEqual(out, f"{r['tokens']} of {r['tokens']} tokens scored, mean negative log-likelihood "
                              f"{r['nll']:.6f}, perplexity {r['ppl']:.6f}\n")

    def test_refusals(self):
        self.fails(1, "perplexity", "-m", MODELS["bpe"], stdin=b"", says="too short")
        self.fails(1, "perplexity", "-m", MODELS["bpe"], stdin=b"x", says="too short")
        self.fails(1, "perplexity", "-m", MODELS["bpe"], "-w", "513", stdin=b"xyz", says=["513", "512"])
        self.fails(1, "perplexity", "-m", MODELS["bpe"], "-f", "/nonexistent", says="/nonexistent")
        self.fails(2, "perplexity", "-m", MODELS["bpe"], "-w", "1", says="-w 1")
        self.fails(2, "perplexity", "-m", "", says="-m")

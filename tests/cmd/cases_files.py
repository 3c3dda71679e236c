"""hearth inspect: what is in a file, whole or damaged."""
import os
import pathlib

from cmd_rig import MODELS, Case, patched, vocabulary_only

NASTY = b"\x1b]0;x\x07"  # would rename the terminal's window; as long as "random", the made models' name


class Inspect(Case):
    def test_json(self):
        r = self.json("inspect", MODELS["bpe"])
        for key, value in {"gguf_version": 3, "parts": 1, "name": "random", "architecture": "llama", "layers": 2, "width": 64,
                           "heads": 4, "kv_heads": 2, "feed_forward": 128, "context_length": 512, "tokenizer": "gpt2",
                           "pre_tokenizer": "gpt-2", "vocab_size": 300, "chat_template": False}.items():
            self.assertEqual(r[key], value, key)
        self.assertEqual(r["file_bytes"], os.path.getsize(MODELS["bpe"]))
        # embedding; per layer q, k, v, o, gate, up, down and two norms; the last norm (head_dim 16; tied)
        layer = 64 * 64 + 2 * 64 * 32 + 64 * 64 + 3 * 64 * 128 + 2 * 64
        self.assertEqual(r["parameters"], 300 * 64 + 2 * layer + 64)
        self.assertEqual((r["tensor_count"], r["types"]), (20, {"F32": 5, "Q8_0": 15}))
        self.assertNotIn("tensors", r)

    def test_tensors(self):
        r = self.json("inspect", "-m", MODELS["bpe"], "--tensors")
        self.assertEqual(len(r["tensors"]), r["tensor_count"])
        self.assertEqual(sum(t["bytes"] for t in r["tensors"]), r["tensor_bytes"])
        embd = next(t for t in r["tensors"] if t["name"] == "token_embd.weight")
        self.assertEqual((embd["type"], embd["shape"], embd["bytes"]), ("Q8_0", [64, 300], 300 * 64 // 32 * 34))
        lines = self.ok("inspect", MODELS["bpe"], "--tensors").decode().splitlines()
        self.assertIn(["token_embd.weight", "Q8_0", "64", "x", "300"], [line.split() for line in lines])

    def test_people(self):
        text = self.ok("inspect", MODELS["bpe"]).decode()
        for words in ("GGUF v3", "llama", "2 layers of width 64, 4 heads (2 for keys and values)", "512 tokens",
                      "300 tokens", "gpt2"):
            self.assertIn(words, text)

    def test_vocabulary_only(self):
        file = self.file("vocab.gguf", vocabulary_only())
        self.assertIn("vocabulary only", self.ok("inspect", file).decode())
        r = self.json("inspect", file)
        self.assertEqual((r["vocab_size"], r["tensor_count"], r["context_length"]), (257, 0, 0))

    def test_text_of_the_file_is_tame(self):
        file = self.file("nasty.gguf", patched("bpe", b"random", NASTY))
        text = self.ok("inspect", file)
        self.assertIn(b"?]0;x?", text)
        self.assertFalse([b for b in text if b < 32 and b != 10])
        self.assertEqual(self.json("inspect", file)["name"].encode(), NASTY)
        file = self.file("bad-utf8.gguf", patched("bpe", b"random", b"\xff\x80abcd"))
        self.assertEqual(self.json("inspect", file)["name"], "\ufffd\ufffdabcd")
        self.assertIn(b"??abcd", self.ok("inspect", file))
        file = self.file("tensor.gguf", patched("bpe", b"output_norm.weight", b"out\x1b[31m_norm_weig"))
        for args in ([], ["--tensors"]):
            self.assertNotIn(b"\x1b", self.ok("inspect", file, *args))
        self.assertNotIn("\x1b", self.fails(1, "run", "-m", file, "-p", "x"))

    def test_damaged(self):
        whole = pathlib.Path(MODELS["bpe"]).read_bytes()
        for name, data, says in (
                ("empty", b"", "empty"), ("magic", b"GGML" + whole[4:], "gguf"), ("header", whole[:10], "header"),
                ("keys", whole[:1000], "tokenizer.ggml.tokens"), ("data", whole[:-40], "tensor"),
                ("version", whole[:4] + b"\x09" + whole[5:], "version 9"),
                ("type", patched("bpe", b"general.name\x08", b"general.name\x63"), "general.name")):
            file = self.file(name, data)
            for args in (["inspect"], ["inspect", "--json"], ["tokenize", "-m"], ["run", "-p", "x", "-m"]):
                err = self.fails(1, *args, file, says=[str(file), says])
                self.assertEqual(err.count(str(file)), 1, err)

    def test_no_file(self):
        fifo = self.dir / "fifo"
        os.mkfifo(fifo)
        self.fails(1, "inspect", fifo, says=[str(fifo), "pipe"])  # without waiting for a writer
        self.fails(1, "inspect", self.dir, says="directory")
        self.fails(1, "inspect", "/nonexistent", says="No such file")
        self.fails(1, "inspect", "nonexistent", says="nonexistent")
        self.fails(1, "inspect", "/dev/null", says="/dev/null")
        self.fails(2, "inspect", "", says="no model given")
        self.fails(2, "inspect", "-m", MODELS["bpe"], MODELS["spm"], says="one file")
        self.fails(2, "inspect", MODELS["bpe"], MODELS["spm"], says="unexpected")

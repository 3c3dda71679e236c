"""What the cases of cmd_script.py share: running the program, made models, small GGUF files written here."""
import collections
import contextlib
import json
import os
import pathlib
import signal
import struct
import subprocess
import tempfile
import time
import unittest

HEARTH = []  # the program; set by cmd_script.py
MODELS = {}  # "bpe", "spm", "none": context 512; "long": bpe with context 65536; "wide": bpe, F32, width 256
PATIENCE = 60.0  # seconds for anything that must come; generous, sanitizers are slow
SOON = 20.0  # seconds for an end that must be quick: what is ended would go on for minutes
LETTERS = "etaoinshrdlcumwfgypbvkjxqz"  # of make_vocab.c, most frequent first

Out = collections.namedtuple("Out", "rc out err")


def hearth(*args, stdin=b"", env=None, **kwargs):
    """Runs a command to its end; exit status, stdout and stderr as bytes."""
    r = subprocess.run([*HEARTH, *map(os.fspath, args)], input=stdin, capture_output=True, timeout=PATIENCE,
                       env={**os.environ, **(env or {})}, **kwargs)
    return Out(r.returncode, r.stdout, r.stderr)


def bpe_piece(i):
    """Bytes of a token of the made byte-level BPE of 300 (make_vocab.h): bytes, space and letter, e and letter."""
    if i < 256:
        return bytes([i])
    if i < 282:
        return b" " + LETTERS[i - 256].encode()
    if i < 297:
        return b"e" + LETTERS[i - 282].encode()
    return [b"<|endoftext|>", b"<|im_start|>", b"<|im_end|>"][i - 297]


def bpe_text(ids):
    return b"".join(map(bpe_piece, ids)).decode("utf-8", "replace")


def patched(model, old, new):
    """The model's bytes with `old`, which stands there once, replaced by as many bytes."""
    data = pathlib.Path(MODELS[model]).read_bytes()
    assert data.count(old) == 1 and len(old) == len(new)
    return data.replace(old, new)


def turn_ids(role, text):
    """A turn in ChatML with the made byte-level BPE: the markers are its last ids; only merges of e are in these words."""
    return [298, *merged(f"{role}\n{text}"), 299, 10]


def merged(text):
    """Ids of a text without "ee" and without blanks before letters: e and one of the first 15 letters are one id."""
    ids, at = [], 0
    while at < len(text):
        pair = text[at] == "e" and at + 1 < len(text) and text[at + 1] in LETTERS[:15]
        ids.append(282 + LETTERS.index(text[at + 1]) if pair else ord(text[at]))
        at += 2 if pair else 1
    return ids


def gguf_str(s):
    s = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(s)) + s


def with_template(model, value):
    """The model's bytes with a chat template put in; the pair is a multiple of 32 bytes, so the data stays aligned."""
    data = pathlib.Path(MODELS[model]).read_bytes()
    magic, version, n_tensors, n_kv = struct.unpack_from("<4sIQQ", data)
    assert (magic, version) == (b"GGUF", 3)
    key = gguf_str("tokenizer.chat_template") + struct.pack("<I", 8)
    value += " " * (-(len(key) + 8 + len(value)) % 32)
    return struct.pack("<4sIQQ", magic, version, n_tensors, n_kv + 1) + key + gguf_str(value) + data[24:]


def byte_char(b):
    """GPT-2's character for a byte."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    return chr(b) if b in plain else chr(0x100 + sum(x not in plain for x in range(b)))


def vocabulary_only():
    """A GGUF file without tensors, without an end token: 256 bytes and the merge of h and i."""
    tokens = [byte_char(b) for b in range(256)] + ["hi"]
    pairs = [("general.architecture", 8, gguf_str("gpt2")), ("tokenizer.ggml.model", 8, gguf_str("gpt2")),
             ("tokenizer.ggml.pre", 8, gguf_str("gpt-2")),
             ("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, len(tokens)) + b"".join(map(gguf_str, tokens))),
             ("tokenizer.ggml.merges", 9, struct.pack("<IQ", 8, 1) + gguf_str("h i"))]
    return struct.pack("<4sIQQ", b"GGUF", 3, 0, len(pairs)) + b"".join(
        gguf_str(key) + struct.pack("<I", kind) + value for key, kind, value in pairs)


def floats(path):
    data = pathlib.Path(path).read_bytes()
    return struct.unpack(f"<{len(data) // 4}f", data)


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)

    def file(self, name, data):
        path = self.dir / name
        path.write_bytes(data)
        return path

    def ok(self, *args, **kwargs):
        """stdout of a command that must succeed and have nothing to say about it."""
        r = hearth(*args, **kwargs)
        self.assertEqual((r.rc, r.err), (0, b""), args)
        return r.out

    def json(self, *args, **kwargs):
        """The object that --json printed: exactly one line."""
        out = self.ok(*args, "--json", **kwargs)
        self.assertTrue(out.endswith(b"\n") and out.count(b"\n") == 1, out)
        return json.loads(out)

    def fails(self, rc, *args, says=(), **kwargs):
        """A command that must fail with this status, nothing on stdout and one line of reason that names `says`."""
        r = hearth(*args, **kwargs)
        self.assertEqual((r.rc, r.out), (rc, b""), (args, r.err))
        err = r.err.decode()
        self.assertTrue(err.startswith("hearth: ") and err.count("\n") == 1, err)
        for word in [says] if isinstance(says, str) else says:
            self.assertIn(word, err)
        return err

    def started(self, *args, **kwargs):
        p = subprocess.Popen([*HEARTH, *map(os.fspath, args)], **kwargs)

        def end():
            with contextlib.suppress(ProcessLookupError):
                p.kill()
            p.wait()
            for stream in (p.stdin, p.stdout, p.stderr):
                if stream:
                    stream.close()
        self.addCleanup(end)
        return p

    def wait_caught(self, p, sig):
        """Until the process has a handler for sig."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and p.poll() is None:
            status = pathlib.Path(f"/proc/{p.pid}/status").read_text()
            caught = int(status.split("SigCgt:")[1].split()[0], 16)
            if caught >> (sig - 1) & 1:
                return
            time.sleep(0.01)
        self.fail(f"ended, or no handler for {signal.Signals(sig).name}")

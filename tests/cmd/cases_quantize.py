"""hearth quantize: files written here by hand, read again by hand; formats against plain rounding and the fixtures."""
import math
import os
import pty
import random
import resource
import signal
import struct
import subprocess

from cases_fixtures import fixture
from cmd_rig import HEARTH, MODELS, PATIENCE, Case, floats, gguf_str, hearth

# Ids, values and bytes of a block, as the format has them.
TYPES = {"F32": (0, 1, 4), "F16": (1, 1, 2), "BF16": (30, 1, 2), "Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20),
         "Q5_0": (6, 32, 22), "Q5_1": (7, 32, 24), "Q8_0": (8, 32, 34), "Q2_K": (10, 256, 84), "Q3_K": (11, 256, 110),
         "Q4_K": (12, 256, 144), "Q5_K": (13, 256, 176), "Q6_K": (14, 256, 210), "IQ2_XXS": (16, 256, 66),
         "IQ2_XS": (17, 256, 74), "IQ3_XXS": (18, 256, 98), "IQ1_S": (19, 256, 50), "IQ4_NL": (20, 32, 18),
         "IQ3_S": (21, 256, 110), "IQ2_S": (22, 256, 82), "IQ4_XS": (23, 256, 136), "IQ1_M": (29, 256, 56),
         "TQ1_0": (34, 256, 54), "TQ2_0": (35, 256, 66), "MXFP4": (39, 32, 17), "NVFP4": (40, 64, 36),
         "Q1_0": (41, 128, 18), "Q2_0": (42, 64, 18), "I32": (26, 1, 4)}
# llama_ftype of llama.h, written down from node-llama-cpp's copy (GgufFileType).
FILE_TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q2_K": 10, "Q3_K": 11, "Q4_K": 14,
              "Q5_K": 16, "Q6_K": 18, "IQ2_XXS": 19, "IQ2_XS": 20, "IQ3_XXS": 23, "IQ1_S": 24, "IQ4_NL": 25, "IQ3_S": 26,
              "IQ2_S": 28, "IQ4_XS": 30, "IQ1_M": 31, "BF16": 32, "TQ1_0": 36, "TQ2_0": 37, "MXFP4": 38, "NVFP4": 39,
              "Q1_0": 40, "Q2_0": 41}
# What plain rounding has: values that share a scale, and the levels (of either sign) whose last is the largest value.
FP4 = (0, 0.5, 1, 1.5, 2, 3, 4, 6)
PLAIN = {"Q4_0": (32, range(8)), "Q4_1": (32, range(8)), "Q5_0": (32, range(16)), "Q5_1": (32, range(16)),
         "Q8_0": (32, range(128)), "Q2_K": (16, range(2)), "Q3_K": (16, range(4)), "Q4_K": (32, range(8)),
         "Q5_K": (32, range(16)), "Q6_K": (16, range(32)), "IQ4_NL": (32, range(8)), "IQ4_XS": (32, range(8)),
         "TQ1_0": (256, range(2)), "TQ2_0": (256, range(2)), "NVFP4": (16, FP4), "MXFP4": (32, FP4),
         "Q1_0": (128, (1,)), "Q2_0": (64, range(2)), "IQ1_S": (32, (1,)), "IQ1_M": (16, (1,)), "IQ2_XXS": (32, range(2)),
         "IQ2_XS": (16, range(2)), "IQ2_S": (16, range(2)), "IQ3_XXS": (32, range(3)), "IQ3_S": (32, range(4))}
FLOATS = ("F32", "F16", "BF16")
BLOCKS = [t for t in FILE_TYPES if t not in FLOATS]
NAN, INF = math.nan, math.inf


def f32(values):
    return struct.pack(f"<{len(values)}f", *values)


def f16(values):
    return struct.pack(f"<{len(values)}e", *values)


def bf16(values):
    """To the nearest, ties to even; finite values only."""
    words = struct.unpack(f"<{len(values)}I", f32(values))
    return struct.pack(f"<{len(words)}H", *((w + 0x7FFF + (w >> 16 & 1)) >> 16 for w in words))


def bf16_widened(raw):
    return b"".join(b"\0\0" + raw[i:i + 2] for i in range(0, len(raw), 2))


def normal(n, seed=1):
    """Values of deviation 1 that binary32 holds."""
    draw = random.Random(seed)
    return struct.unpack(f"<{n}f", f32([draw.gauss(0, 1) for _ in range(n)]))


def u16(v):
    return 2, struct.pack("<H", v)


def u32(v):
    return 4, struct.pack("<I", v)


def text(s):
    return 8, gguf_str(s)


ARCH = {"general.architecture": text("llama"), "general.name": text("made"), "general.file_type": u32(99),
        "general.quantization_version": u32(1), "list": (9, struct.pack("<IQ3h", 3, 3, -1, 0, 1)),
        "words": (9, struct.pack("<IQ", 8, 2) + gguf_str("a\n") + gguf_str(b"\xff"))}


def gguf(tensors, pairs=ARCH):
    """A file: tensors are (name, type, dims with the row first, bytes)."""
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(pairs))
    head += b"".join(gguf_str(key) + struct.pack("<I", kind) + value for key, (kind, value) in pairs.items())
    data = b""
    for name, kind, dims, raw in tensors:
        head += gguf_str(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, TYPES[kind][0], len(data))
        data += raw + bytes(-len(raw) % 32)
    return head + bytes(-len(head) % 32) + data


class Raw:
    """What a file holds, by the format's description: .pairs {key: (type, bytes)}, .tensors {name: (type, dims, bytes)}."""
    SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

    def __init__(self, path):
        with open(path, "rb") as f:
            self.data = f.read()
        magic, version, n_tensors, n_kv = struct.unpack_from("<4sIQQ", self.data)
        assert (magic, version) == (b"GGUF", 3)
        self.at, self.pairs, self.tensors = 24, {}, {}
        for _ in range(n_kv):
            key, (kind,) = self.string(), self.take("<I")
            begin = self.at
            self.skip(kind)
            assert key not in self.pairs
            self.pairs[key] = kind, self.data[begin:self.at]
        names = {t[0]: (n, *t[1:]) for n, t in TYPES.items()}
        table = []
        for _ in range(n_tensors):
            name, (n_dims,) = self.string(), self.take("<I")
            table.append((name, self.take(f"<{n_dims}Q"), *self.take("<IQ")))
        start = self.at + -self.at % 32
        for name, dims, kind, offset in table:
            kind, values, size = names[kind]
            n = math.prod(dims) // values * size
            assert offset % 32 == 0 and start + offset + n <= len(self.data)
            self.tensors[name] = kind, dims, self.data[start + offset:start + offset + n]

    def take(self, form):
        out = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return out

    def string(self):
        n, = self.take("<Q")
        self.at += n
        return self.data[self.at - n:self.at].decode()

    def skip(self, kind):
        if kind == 8:
            n, = self.take("<Q")
            self.at += n
        elif kind == 9:
            elem, n = self.take("<IQ")
            for _ in range(n):
                self.skip(elem)
        else:
            self.at += self.SCALARS[kind]


def rms(x, y):
    return math.sqrt(math.fsum((a - b) ** 2 for a, b in zip(x, y, strict=True)) / len(x))


def plain_rms(kind, x):
    """Of rounding to the nearest level with the largest value of each run on the last."""
    n_run, levels = PLAIN[kind]
    total = 0.0
    for i in range(0, len(x), n_run):
        run = [abs(v) for v in x[i:i + n_run]]
        d = max(run) / levels[-1]
        d = 2.0 ** math.ceil(math.log2(d)) if kind == "MXFP4" and d else d
        total += math.fsum(min((d * level - v) ** 2 for level in levels) for v in run)
    return math.sqrt(total / len(x))


class Quantize(Case):
    def quantize(self, model, kind, *args, out="out.gguf"):
        r = self.json("quantize", model, self.dir / out, kind, *args)
        self.assertEqual(list(r), ["in", "out", "type", "tensors", "bytes_in", "bytes_out", "rms_error"])
        self.assertEqual((r["in"], r["out"], r["type"]), (str(model), str(self.dir / out), kind))
        self.assertEqual(r["bytes_out"], os.path.getsize(self.dir / out))
        self.assertEqual(sorted(self.dir.glob("*.tmp")), [])
        return r

    def matrix(self, values, row, kind="F32", name="m.gguf"):
        pack = {"F32": f32, "F16": f16, "BF16": bf16}[kind]
        return self.file(name, gguf([("x.weight", kind, [row, len(values) // row], pack(values))]))

    def refuses(self, rc, *args, says):
        """Fails, and leaves an older output and nothing else."""
        old = self.file("old.gguf", b"old")
        before = sorted(self.dir.iterdir())
        self.fails(rc, "quantize", args[0], old, *args[1:], says=says)
        self.assertEqual(old.read_bytes(), b"old")
        self.assertEqual(sorted(self.dir.iterdir()), before)


class Layout(Quantize):
    def test_which_tensor_gets_which_type(self):
        v, wide = normal(4 * 64), normal(4 * 256, 2)
        # name, shape, type in the file written as F16, as Q8_0 (blocks of 32), as Q6_K (blocks of 256)
        want = [("token_embd.weight", [64, 4], "F16", "Q8_0", "F16"), ("output_norm.weight", [64], "F32", "F32", "F32"),
                ("blk.0.attn_q.weight", [256, 4], "F16", "Q8_0", "Q6_K"), ("blk.0.attn_q.bias", [256], "F32", "F32", "F32"),
                ("blk.0.ffn_up_exps.weight", [64, 2, 2], "F16", "Q8_0", "F16"),
                ("blk.0.ffn_down_exps.weight", [256, 2, 2], "F16", "Q8_0", "Q6_K"),
                ("blk.0.ffn_gate_inp.weight", [256, 4], "F32", "F32", "F32"),
                ("blk.0.attn_q_norm.weight", [64, 4], "F32", "F32", "F32"),
                ("position_embd.weight", [64, 4], "F32", "F32", "F32"),
                ("blk.0.thing", [64, 4], "F32", "F32", "F32"), ("odd.weight", [12, 4], "F16", "F16", "F16"),
                ("one.weight", [64, 1], "F32", "F32", "F32"), ("numbers.weight", [2, 2], "I32", "I32", "I32")]
        widen = {"F32": bytes, "F16": lambda b: f32(struct.unpack(f"<{len(b) // 2}e", b)), "BF16": bf16_widened}
        for source, pack in (("F32", f32), ("F16", f16), ("BF16", bf16)):
            def raw(shape, kind):
                values = (wide if shape[0] == 256 else v)[:math.prod(shape)]
                return bytes(range(16)) if kind == "I32" else pack(values)
            tensors = [(name, "I32" if kind == "I32" else source, shape, raw(shape, kind)) for name, shape, kind, *_ in want]
            model = self.file("in.gguf", gguf(tensors))
            for column, kind in ((2, "F16"), (3, "Q8_0"), (4, "Q6_K")):
                r = hearth("quantize", model, self.dir / "out", kind)
                self.assertEqual(r.rc, 0, r.err)
                got = Raw(self.dir / "out")
                self.assertEqual([(n, list(t[1]), t[0]) for n, t in got.tensors.items()], [(w[0], w[1], w[column]) for w in want])
                self.assertEqual(got.tensors["numbers.weight"][2], bytes(range(16)))
                names = {"F16": [], "Q8_0": ["odd.weight"],
                         "Q6_K": ["token_embd.weight", "blk.0.ffn_up_exps.weight", "odd.weight"]}[kind]
                line = f"hearth: F16 instead of {kind}, as rows are not whole blocks of {TYPES[kind][1]} values: "
                self.assertEqual(r.err.decode(), line + ", ".join(names) + "\n" if names else "")
                for name, _, _, packed in tensors:
                    if got.tensors[name][0] == "F32":
                        self.assertEqual(got.tensors[name][2], widen[source](packed))

    def test_many_fallbacks_in_one_line(self):
        model = self.file("in", gguf([(f"t\x1b{i}.weight", "F32", [4, 2], f32(normal(8))) for i in range(11)]))
        r = hearth("quantize", model, self.dir / "out", "Q4_0")
        self.assertEqual((r.rc, r.err.count(b"\n"), r.err.count(b"\x1b")), (0, 1, 0))
        self.assertIn(b": t?0.weight, ", r.err)
        self.assertTrue(r.err.endswith(b"t?7.weight and 3 more\n"), r.err)

    def test_keys(self):
        model = self.matrix(normal(512), 256)
        for kind, number in FILE_TYPES.items():
            self.quantize(model, kind)
            want = {**ARCH, "general.file_type": u32(number), "general.quantization_version": u32(2)}
            self.assertEqual(Raw(self.dir / "out.gguf").pairs, want)
        bare = self.file("bare", gguf([], {}))
        r = self.quantize(bare, "Q4_0")
        self.assertEqual((r["tensors"], r["rms_error"]), (0, 0))
        self.assertEqual(Raw(self.dir / "out.gguf").pairs, {"general.file_type": u32(2), "general.quantization_version": u32(2)})

    def test_alignment_is_kept(self):
        data = f32(normal(64))
        head = struct.pack("<4sIQQ", b"GGUF", 3, 1, 1) + gguf_str("general.alignment") + struct.pack("<II", 4, 4096)
        head += gguf_str("x.weight") + struct.pack("<I2QIQ", 2, 32, 2, 0, 0)
        out = self.dir / "out"
        self.quantize(self.file("in", head.ljust(4096, b"\0") + data), "F16", out="out")
        self.assertEqual((out.read_bytes()[4096:4224], out.stat().st_size), (f16(normal(64)), 8192))

    def test_split(self):
        a, b = normal(128, 3), normal(128, 4)
        whole = self.file("whole", gguf([("a.weight", "F32", [64, 2], f32(a)), ("b.weight", "F32", [64, 2], f32(b))]))
        parts = [self.file(f"m-0000{i + 1}-of-00002.gguf", gguf([(f"{name}.weight", "F32", [64, 2], f32(v))],
                 {**(ARCH if i == 0 else {}), "split.no": u16(i), "split.count": u16(2),
                  "split.tensors.count": (5, struct.pack("<i", 2))})) for i, (name, v) in enumerate((("a", a), ("b", b)))]
        self.quantize(whole, "Q8_0", out="from-whole")
        for part in parts:
            r = self.quantize(part, "Q8_0", out="from-parts")
            self.assertEqual((r["tensors"], r["bytes_in"]), (2, sum(p.stat().st_size for p in parts)))
            self.assertEqual((self.dir / "from-parts").read_bytes(), (self.dir / "from-whole").read_bytes())
        bytes_of = [p.read_bytes() for p in parts]
        for part in parts:
            self.fails(1, "quantize", parts[0], part, "Q8_0", says=["is the file that is read", str(part)])
        self.assertEqual([p.read_bytes() for p in parts], bytes_of)


class Values(Quantize):
    def test_floats(self):
        edge = [0.0, -0.0, 1.0, 65504.0, -65504.0, 65519.0, 2.0 ** -24, 2.0 ** -25, 3 * 2.0 ** -26, 1 + 2.0 ** -11,
                1 + 3 * 2.0 ** -11, 1 + 2.0 ** -8, 1 + 3 * 2.0 ** -8, 1e-40, -1e-45, 0.1] * 2
        values = struct.unpack("<32f", f32(edge))
        model = self.matrix(values, 16)
        for kind, pack, back in (("F16", f16, lambda raw: struct.unpack("<32e", raw)),
                                 ("F32", f32, lambda raw: struct.unpack("<32f", raw)),
                                 ("BF16", bf16, lambda raw: struct.unpack("<32f", bf16_widened(raw)))):
            packed = pack(values)
            r = self.quantize(model, kind)
            self.assertEqual(Raw(self.dir / "out.gguf").tensors, {"x.weight": (kind, (16, 2), packed)})
            self.assertAlmostEqual(r["rms_error"], rms(values, back(packed)), delta=1e-9 * (1 + r["rms_error"]))
            again = self.quantize(self.dir / "out.gguf", "F32", out="again.gguf")
            self.assertEqual(Raw(self.dir / "again.gguf").tensors["x.weight"][2], f32(back(packed)))
            self.assertEqual(again["rms_error"], 0)

    def test_big_tensor(self):
        """More than one slice (65,536 values), rows that end inside chunks, and the last of everything."""
        values = (normal(9973) * 31)[:300 * 1000]  # a period that fits nothing
        model = self.matrix(values, 1000)
        for threads in ("1", "2", "7"):
            self.quantize(model, "F16", "-t", threads)
            self.assertEqual(Raw(self.dir / "out.gguf").tensors["x.weight"][2], f16(values))
        values = values[:96 * 3000]
        got = []
        for row, threads in ((96, "1"), (96, "3"), (32, "2")):  # the blocks are the same ones
            r = self.quantize(self.matrix(values, row), "Q8_0", "--threads", threads)
            got.append((Raw(self.dir / "out.gguf").tensors["x.weight"][2], r["rms_error"]))
        self.assertEqual(got[1:], got[:1] * 2)
        self.quantize(self.dir / "out.gguf", "F32", out="back.gguf")
        back = struct.unpack(f"<{len(values)}f", Raw(self.dir / "back.gguf").tensors["x.weight"][2])
        self.assertAlmostEqual(got[0][1] / rms(values, back), 1, delta=1e-9)

    def test_error_is_that_of_the_matrices(self):
        a, b, vector = normal(64, 5), normal(192, 6), normal(320, 7)
        model = self.file("in", gguf([("a.weight", "F32", [16, 4], f32(a)), ("b.weight", "F32", [16, 12], f32(b)),
                                      ("v.weight", "F32", [320], f32(vector))]))
        got = self.quantize(model, "F16")["rms_error"]
        self.assertAlmostEqual(got / rms(a + b, struct.unpack("<256e", f16(a + b))), 1, delta=1e-9)

    def test_formats(self):
        """Read again, each is not worse than plain rounding with its codes; the error that is told is the true one."""
        self.assertEqual(sorted(PLAIN), sorted(BLOCKS))
        values = normal(2048)
        model = self.matrix(values, 1024)
        for kind in BLOCKS:
            r = self.quantize(model, kind)
            raw = Raw(self.dir / "out.gguf").tensors["x.weight"]
            self.assertEqual(raw[:2], (kind, (1024, 2)))
            self.quantize(self.dir / "out.gguf", "F32", out="back.gguf")
            back = struct.unpack("<2048f", Raw(self.dir / "back.gguf").tensors["x.weight"][2])
            self.assertAlmostEqual(r["rms_error"] / rms(values, back), 1, delta=1e-9, msg=kind)
            self.assertLessEqual(r["rms_error"], 1.1 * plain_rms(kind, values), kind)

    def test_fixtures_dequantise(self):
        """Bit for bit what the reference library reads from its own blocks, and from random ones."""
        for kind in (*BLOCKS, "F16", "BF16"):
            for dot in ("", ".rnd"):
                blocks = fixture(self, f"quants/{kind}{dot}.bin").read_bytes()
                want = fixture(self, f"quants/{kind}{dot}.f32").read_bytes()
                model = self.file("in", gguf([("x.weight", kind, [1024, 16], blocks)]))
                self.quantize(model, "F32")
                self.assertEqual(Raw(self.dir / "out.gguf").tensors, {"x.weight": ("F32", (1024, 16), want)}, kind + dot)

    def test_fixtures_quantise(self):
        """Beside the reference quantiser, on its rows. The row over ten decades and the one of thousandths are left out:
        what is small there is beyond what most formats hold, in either implementation."""
        source = floats(fixture(self, "quants/source.f32"))
        rows = [r for r in range(16) if r not in (7, 12)]

        def picked(values):
            return [v for r in rows for v in values[r * 1024:r * 1024 + 1024]]
        values = picked(source)
        model = self.matrix(values, 1024)
        for kind in BLOCKS:
            reference = rms(values, picked(floats(fixture(self, f"quants/{kind}.f32"))))
            r = self.quantize(model, kind)
            print(f"{kind}: {r['rms_error'] / reference:.3f} of the reference's error")
            self.assertLessEqual(r["rms_error"], 1.02 * reference, kind)


class Models(Quantize):
    def test_runs(self):
        ids = " ".join(str(i) for i in range(5, 45))

        def logits(model):
            self.ok("logits", "-m", model, "--tokens", ids, "-o", self.dir / "logits")
            return floats(self.dir / "logits")
        exact = logits(MODELS["wide"])
        self.assertEqual(len(exact), 40 * 300)
        size = rms(exact, [0] * len(exact))
        for kind, bound in (("F16", 0.02), ("BF16", 0.05), ("Q8_0", 0.05), ("Q6_K", 0.1), ("Q4_K", 0.3), ("Q4_0", 0.3)):
            r = self.quantize(MODELS["wide"], kind)
            self.assertEqual(self.json("inspect", self.dir / "out.gguf")["types"], {"F32": 5, kind: 15})
            self.assertEqual(r["tensors"], 20)
            reply = self.json("run", "-m", self.dir / "out.gguf", "-p", "hi", "-n", "4", "--ignore-eos")
            self.assertEqual(len(reply["ids"]), 4)
            off = rms(exact, logits(self.dir / "out.gguf")) / size
            print(f"{kind}: logits off by {off:.4f} of their size")
            self.assertLess(off, bound, kind)  # another model of this kind would be off by 1.4

    def test_people(self):
        text = self.ok("quantize", MODELS["wide"], self.dir / "out", "q4_0").decode()
        self.assertRegex(text, r"\Ain +\S+, 4\.8 MiB\nout +\S+, 0\.7 MiB\ntensors +20, 15 as Q4_0\nRMS error +0\.00\d+\n\Z")


class Refused(Quantize):
    def test_command_lines(self):
        model = self.matrix(normal(512), 256)
        for args in ([], [model], [model, "out"], [model, "", "Q4_0"]):
            self.fails(2, "quantize", *args, says="IN, OUT and TYPE")
        for name in ("Q9_0", "Q8_K", "Q8_1", "I8", "F64", "", "Q4_K_M"):
            err = self.fails(2, "quantize", model, self.dir / "out", name, says=f"'{name}'")
            self.assertEqual(sorted(err.split("there are ")[1].split()), sorted(FILE_TYPES))
        self.fails(2, "quantize", model, self.dir / "out", "Q4_0", "x", says="unexpected")
        self.fails(2, "quantize", model, self.dir / "out", "Q4_0", "-t", "0", says="-t 0")
        self.fails(1, "quantize", "/nonexistent", self.dir / "out", "Q4_0", says="/nonexistent")
        self.fails(1, "quantize", self.file("bad", b"GGML"), self.dir / "out", "Q4_0", says="bad")
        self.assertFalse((self.dir / "out").exists())

    def test_out_is_in(self):
        model = self.matrix(normal(512), 256)
        before = model.read_bytes()
        link, hard = self.dir / "link", self.dir / "hard"
        link.symlink_to(model)
        os.link(model, hard)
        for out in (model, link, hard, self.dir / "." / "m.gguf"):
            self.fails(1, "quantize", model, out, "Q4_0", says=[str(out), "is the file that is read"])
        self.assertEqual((model.read_bytes(), hard.read_bytes()), (before, before))
        self.assertTrue(link.is_symlink())

    def test_out_is_no_file(self):
        model = self.matrix(normal(512), 256)
        fifo = self.dir / "fifo"
        os.mkfifo(fifo)
        for out in ("/dev/null", "/dev/full", fifo):
            self.fails(1, "quantize", model, out, "Q4_0", says=[str(out), "not a file"])
            self.assertFalse(os.path.isfile(out))
        self.fails(1, "quantize", model, self.dir, "Q4_0", says="directory")
        self.fails(1, "quantize", model, "/nonexistent/x", "Q4_0", says="/nonexistent/x")

    def test_quantised_already(self):
        for kind in ("Q4_0", "IQ1_S"):
            self.refuses(1, MODELS["bpe"], kind, says=[MODELS["bpe"], "token_embd.weight", "Q8_0", "already"])

    def test_not_finite(self):
        whole = f32(normal(1024)) * 600  # more than one slice
        for place, bad, says in ((0, NAN, "not a number"), (3 * 1024 + 17, INF, "infinite"),
                                 (599 * 1024 + 1023, -INF, "infinite"), (300 * 1024 - 1, NAN, "not a number")):
            broken = whole[:4 * place] + f32([bad]) + whole[4 * place + 4:]
            model = self.file("m.gguf", gguf([("x.weight", "F32", [1024, 600], broken)]))
            for kind in ("Q8_0", "F32"):
                self.refuses(1, model, kind, says=[str(model), f"x.weight, row {place // 1024}, column {place % 1024}:", says])
        model = self.file("m.gguf", gguf([("x.bias", "F16", [64], f16([1.0] * 9 + [INF] + [NAN] * 54))]))
        self.refuses(1, model, "Q8_0", says=["x.bias, row 0, column 9:", "infinite"])
        blocks = (f16([1.0]) + bytes(16)) * 3 + b"\x00\x7e" + bytes(16)  # the scale of the last is NaN
        model = self.file("m.gguf", gguf([("x.weight", "Q4_0", [64, 2], blocks)]))
        self.refuses(1, model, "F16", says=["x.weight, row 1, column 32:", "not a number"])

    def test_too_large_for_the_type(self):
        values = list(normal(64))
        values[37] = -65520.0  # the first that binary16 has no number for
        model = self.matrix(values, 32)
        self.refuses(1, model, "F16", says=["x.weight, row 1, column 5: -65520 is too large for F16"])
        values[37] = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]
        model = self.matrix(values, 32)
        self.refuses(1, model, "BF16", says=["row 1, column 5", "too large for BF16"])
        self.quantize(model, "F32")

    def test_disk_full(self):
        model = self.matrix(normal(128 * 1024), 1024)
        old = self.file("old.gguf", b"old")

        def small():
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        for kind, rc in (("F16", 1), ("Q4_0", 0)):  # 262 kB, 74 kB
            r = subprocess.run([*HEARTH, "quantize", model, old, kind], capture_output=True, preexec_fn=small,
                               restore_signals=False, timeout=PATIENCE, check=False)
            self.assertEqual(r.returncode, rc, r.stderr)
            self.assertEqual(sorted(p.name for p in self.dir.iterdir()), ["m.gguf", "old.gguf"])
            if rc:
                self.assertEqual((r.stdout, old.read_bytes()), (b"", b"old"))
                self.assertEqual(r.stderr.decode(), f"hearth: cannot write {old}: File too large\n")


class Terminal(Quantize):
    def made(self, rows):
        return self.file("in.gguf", gguf([("x.weight", "F32", [4096, rows], f32(normal(4096)) * rows)]))

    def test_interrupt(self):
        old = self.file("old.gguf", b"old")
        # many seconds of work: the search in a grid takes microseconds a value
        p = self.started("quantize", self.made(4096), old, "IQ3_S", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.wait_caught(p, signal.SIGINT)
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=PATIENCE)
        self.assertEqual((p.returncode, out), (130, b""))
        self.assertIn(b"interrupted", err)
        self.assertEqual(sorted(f.name for f in self.dir.iterdir()), ["in.gguf", "old.gguf"])
        self.assertEqual(old.read_bytes(), b"old")

    def test_bar(self):
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        r = subprocess.run([*HEARTH, "quantize", self.made(1024), self.dir / "out", "F16", "--json"], stdout=subprocess.PIPE,
                           stderr=theirs, timeout=PATIENCE, check=True)
        os.close(theirs)
        self.assertEqual(r.stdout.count(b"\n"), 1)
        shown = b""
        while not shown.endswith(b"\r\x1b[K"):
            shown += os.read(ours, 65536)
        self.assertRegex(shown, rb"\A(\rquantizing \[#* *\] +\d+ %)+\r\x1b\[K\Z")
        self.assertIn(b" 50 %", shown)

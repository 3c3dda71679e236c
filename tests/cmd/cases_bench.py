"""hearth bench: shape and arithmetic of its answers, what it refuses, and that --verify sees a difference."""
import itertools
import os
import pathlib
import threading

from cmd_rig import MODELS, Case, hearth

RESULT = {"test", "n", "batch", "depth", "threads", "tok_s", "limit_share"}  # DESIGN 9


class Model(Case):
    def bench(self, *args, model="bpe"):
        return self.json("bench", "-m", MODELS[model], "-r", "1", *args)

    def test_json(self):
        r = self.bench("-t", "1", "-p", "8,20", "-n", "3", "-b", "1,2", "-d", "0,5,40")
        self.assertEqual(set(r), {"limits", "results", "model", "kernels", "kv_type", "repeats", "load_ms", "first_load_ms",
                                  "first_token_ms"})
        self.assertEqual(set(r["limits"]), {"read_gbs", "int8_tops", "by_threads"})
        self.assertGreater(r["limits"]["read_gbs"], 0)
        self.assertEqual(r["limits"]["by_threads"], [{"threads": 1, "read_gbs": r["limits"]["read_gbs"],
                                                      "int8_tops": r["limits"]["int8_tops"]}])
        self.assertEqual([tuple(x[k] for k in ("test", "n", "batch", "depth", "threads")) for x in r["results"]],
                         [(*test, batch, depth, 1) for depth, batch in itertools.product((0, 5, 40), (1, 2))
                          for test in (("prefill", 8), ("prefill", 20), ("decode", 3))])
        for x in r["results"]:
            self.assertLessEqual(RESULT, set(x))
            self.assertGreater(x["tok_s"], 0)
            self.assertAlmostEqual(x["limit_share"], x["tok_s"] / x["limit_tok_s"], delta=0.001 + 0.01 * x["limit_share"])
            ms = x["n"] * x["batch"] / x["tok_s"] * 1e3
            self.assertAlmostEqual(x["first_token_ms"] if x["test"] == "prefill" else x["step_ms"] * x["n"], ms,
                                   delta=0.01 * ms + 0.01)
        self.assertGreaterEqual(r["first_token_ms"], r["load_ms"])
        self.assertEqual((r["kv_type"], r["repeats"], r["model"]["quant"]), ("f16", 1, "Q8_0"))

    def test_limit_of_reading(self):
        """F32 weights: the weights once a step, and of each lane the keys and values that a token sees."""
        r = self.bench("-p", "0", "-n", "4", "-b", "3", "-d", "400", model="wide")
        info = self.json("inspect", MODELS["wide"], "--tensors")
        weights = sum(t["bytes"] for t in info["tensors"] if len(t["shape"]) == 2)  # tied: the embedding is the output
        self.assertAlmostEqual(r["model"]["bytes_per_token"], weights, delta=0.02 * weights)  # rows fill panels of 16
        kv = 2 * 2 * (64 + 64) * 2  # layers, heads for keys and values, their sizes, f16
        step = weights + 3 * (400 + 2.5) * kv  # on average over 401 … 404 positions
        x = r["results"][0]
        self.assertAlmostEqual(x["limit_tok_s"], 3 * r["limits"]["read_gbs"] * 1e9 / step, delta=0.03 * x["limit_tok_s"])
        self.assertEqual((x["limit"], len(r["results"])), ("read", 1))

    def test_limit_of_prefill(self):
        """Q8_0 weights: the longer of reading them once and multiplying them with each row, the output with the last."""
        r = self.bench("-p", "300", "-n", "0")
        layers = 2 * (64 * 64 + 2 * 64 * 32 + 64 * 64 + 3 * 64 * 128)
        output = 300 * 64
        read_s = (layers + output) * 34 / 32 / (r["limits"]["read_gbs"] * 1e9)
        x = r["results"][0]
        tops = r["limits"]["int8_tops"]
        matrix_s = 2 * (300 * layers + output) / (tops * 1e12) if tops else 0
        self.assertAlmostEqual(x["limit_tok_s"], 300 / max(read_s, matrix_s), delta=0.03 * x["limit_tok_s"])
        self.assertEqual(x["limit"], "int8" if matrix_s > read_s else "read")

    def test_reference_has_no_int8_rate(self):
        r = self.bench("-p", "4", "-n", "0", "--cpu", "ref")
        self.assertIsNone(r["limits"]["int8_tops"])
        self.assertEqual((r["kernels"], r["results"][0]["limit"]), ("ref", "read"))

    def test_threads_and_repeats(self):
        all_of_us = min(2, len(os.sched_getaffinity(0)))
        r = self.json("bench", "-m", MODELS["bpe"], "-r", "3", "-t", f"1,{all_of_us}", "-p", "4", "-n", "2", "--kv-type", "f32")
        self.assertEqual([x["threads"] for x in r["results"]], [1, 1, all_of_us, all_of_us])
        self.assertEqual([x["threads"] for x in r["limits"]["by_threads"]], [1, all_of_us])
        self.assertTrue(all(x["spread"] >= 0 for x in r["results"]))
        self.assertEqual((r["kv_type"], r["repeats"]), ("f32", 3))

    def test_people(self):
        text = self.ok("bench", "-m", MODELS["bpe"], "-r", "1", "-t", "1", "-p", "4", "-n", "2").decode()
        for words in ("model    random, Q8_0", "start    ready after", "limits of 1 thread: read "):
            self.assertIn(words, text)
        self.assertEqual([line.split()[:5] for line in text.splitlines() if line.startswith(("prefill", "decode"))],
                         [["prefill", "4", "1", "0", "1"], ["decode", "2", "1", "0", "1"]])

    def test_more_threads_than_allowed(self):
        r = hearth("bench", "-m", MODELS["bpe"], "-r", "1", "-t", "256", "-p", "0", "-n", "1")
        self.assertEqual(r.rc, 0)
        if len(os.sched_getaffinity(0)) < 256:
            self.assertRegex(r.err.decode(), r"\Ahearth: -t 256: this process may use \d+\n\Z")

    def test_refused(self):
        m = ["bench", "-m", MODELS["bpe"]]
        for args, says in ((["-p", "x"], "-p x"), (["-p", "4,"], "-p 4,"), (["-n", "-1"], "-n -1"), (["-b", "0"], "-b 0"),
                           (["-t", "0"], "-t 0"), (["-d", "1e3"], "-d 1e3"), (["-p", "0", "-n", "0"], "nothing to measure"),
                           (["-r", "0"], "-r 0"), (["--type", "Q8_0"], "--kernels"), (["--cpu", "sse"], "sse"),
                           (["--verify", "--kernels"], "exclude"), (["-b", ",".join(["1"] * 33)], "-b")):
            self.fails(2, *m, *args, says=says)
        self.fails(2, "bench", "--kernels", "--type", "Q9", says=["Q9", "Q4_K"])
        self.fails(1, *m, "-p", "600", says="context")
        self.fails(1, "bench", "-m", "/nonexistent", says="/nonexistent")


class Verify(Case):
    def test_ok(self):
        r = self.json("bench", "--verify", "-m", MODELS["bpe"], "-t", "1,2", "-p", "40")
        self.assertEqual((r["ok"], r["positions"], r["n_vocab"]), (True, 40, 300))
        sets = [name for name, s in self.json("doctor")["sets"].items() if s["built"] and s["on_cpu"] and name != "ref"]
        self.assertEqual(r["kernels"].split(", "), sets or ["ref"])
        self.assertEqual(r["runs"], 2 * 6 * max(1, len(sets)))  # numbers of threads, ways to cut the work
        text = self.ok("bench", "--verify", "-m", MODELS["bpe"], "-p", "5", "--cpu", "ref").decode()
        self.assertTrue(text.startswith("ok: 5 positions of 300 logits "), text)

    def test_sees_a_difference(self):
        """The file is swapped for one with other weights while the models are opened one after another."""
        data = bytearray(pathlib.Path(MODELS["bpe"]).read_bytes())
        files = [self.file("a.gguf", data)]
        for i in range(40, 2000, 34):  # codes of the last tensors
            data[-i] ^= 3
        files.append(self.file("b.gguf", data))
        link, end = self.dir / "model.gguf", threading.Event()

        def swap():
            for turn in itertools.cycle((0, 1)):
                (self.dir / "next").symlink_to(files[turn])
                os.replace(self.dir / "next", link)
                if end.wait(0.003):
                    return

        link.symlink_to(files[0])
        swapper = threading.Thread(target=swap)
        swapper.start()
        try:
            for _ in range(20):
                r = hearth("bench", "--verify", "-m", link, "-p", "3")
                if r.rc == 1:
                    break
        finally:
            end.set()
            swapper.join()
        self.assertEqual((r.rc, r.err), (1, b""))
        self.assertRegex(r.out.decode(), r"\ADIFFERENT: position \d, token \d+: \S+ instead of \S+ \(kernels \w+, \d+ threads")


class Kernels(Case):
    def test_json(self):
        r = self.json("bench", "--kernels", "--type", "Q4_0", "-b", "1", "-t", "1")
        self.assertEqual((set(r), r["threads"]), ({"kernels", "threads", "limits", "results"}, 1))
        self.assertEqual([(x["type"], x["rows"]) for x in r["results"]], [("Q4_0", 1)])
        x = r["results"][0]
        bytes_per_operation = x["gbs"] / x["tops"] / 1e3
        self.assertAlmostEqual(bytes_per_operation, 18 / 32 / 2, delta=0.01)  # a block of 32 is 18 bytes; two per weight

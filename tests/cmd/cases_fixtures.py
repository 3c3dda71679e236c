"""The commands against reference data that nobody here computed. Without ../shared these say so and skip."""
import base64
import json
import os
import pathlib
import re

from cmd_rig import Case, floats


def fixture(case, name):
    folder = os.environ.get("HEARTH_FIXTURES") or f"{os.environ.get('HEARTH_ROOT', '.')}/../shared/fixtures"
    path = pathlib.Path(folder) / name
    if not os.access(path, os.R_OK):
        case.skipTest(f"fixtures absent ({path})")
    return path


class Fixtures(Case):
    def test_stories_greedy(self):
        model = fixture(self, "stories260K.gguf")
        cases = json.loads(fixture(self, "stories260K.greedy.json").read_text())
        self.assertEqual(len(cases), 2)
        for c in cases:
            args = ["run", "-m", model, "--raw", "-n", str(len(c["ids"])), "-p", c["prompt"]]
            r = self.json(*args)
            self.assertEqual((r["prompt_ids"], r["ids"], r["text"]), (c["prompt_ids"], c["ids"], c["completion"]))
            self.assertEqual(self.ok(*args).decode(), c["completion"] + "\n")

    def test_stories_perplexity(self):
        r = self.json("perplexity", "-m", fixture(self, "stories260K.gguf"), "-f", fixture(self, "stories.txt"), "-w", "256")
        self.assertEqual(r["tokens"], 2063)
        self.assertAlmostEqual(r["nll"], 1.622184, delta=1e-5)

    def test_arch_logits(self):
        manifest = fixture(self, "arch/MANIFEST.md").read_text()
        for name in ("llama", "llama-untied", "qwen3"):
            row = next(re.split(r"\s*\|\s*", line) for line in manifest.splitlines() if line.startswith(f"| {name} |"))
            std = float(row[6])  # "", model, architecture, layers x width, MB, features, std
            self.assertTrue(1 < std < 4, row)
            tokens = fixture(self, f"arch/{name}.tokens.txt").read_text()
            out = self.dir / "logits.f32"
            self.ok("logits", "-m", fixture(self, f"arch/{name}.gguf"), "--tokens", tokens, "-o", out)
            ours, exact = floats(out), floats(fixture(self, f"arch/{name}.exact.f32"))
            self.assertEqual(len(ours), 40 * 512)
            self.assertLessEqual(max(abs(a - b) for a, b in zip(ours, exact, strict=True)), 2e-4 * std, name)

    def test_tokenizers(self):
        """Three cases each; tests/text runs all."""
        for name in ("llama-spm", "phi-3", "gpt-2", "qwen3", "llama3", "deepseek-coder", "starcoder"):
            model = fixture(self, f"tokenizers/{name}.gguf")
            cases = [json.loads(x) for x in fixture(self, f"tokenizers/{name}.cases.jsonl").read_text("utf-8").split("\n") if x]
            self.assertGreater(len(cases), 100)
            special = next(c for c in cases if c["parse_special"] and len(c["ids"]) > 3)
            odd = next(c for c in cases if "text_b64" in c)
            longest = max((c for c in cases if not c["add_special"]), key=lambda c: len(c["ids"]))
            for c in (special, odd, longest):
                text = base64.b64decode(c["text_b64"]) if "text_b64" in c else c["text"].encode()
                flags = (["--parse-special"] if c["parse_special"] else []) + ([] if c["add_special"] else ["--no-special"])
                r = self.json("tokenize", "-m", model, *flags, stdin=text)
                self.assertEqual((r["ids"], r["pieces"]), (c["ids"], c["pieces"]), (name, text[:80]))

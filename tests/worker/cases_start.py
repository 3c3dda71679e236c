"""PROTOCOL 1: the start."""
import hashlib
import json
import os
import subprocess
import tempfile

import worker_client
from worker_client import Case, bpe_text, segments, some_ids


class Start(Case):
    def test_ready_frame(self):
        w = self.worker()
        r = w.ready
        self.assertEqual(set(r), {"ready", "max_sessions", "max_named_sessions", "supports_cancel", "protocol", "pid",
                                  "model", "kernels", "kv_pages", "kv_page_bytes"})
        self.assertIs(r["ready"], True)
        self.assertEqual((r["max_sessions"], r["max_named_sessions"]), (8, 7))
        self.assertIs(r["supports_cancel"], False)
        self.assertEqual(r["protocol"], 2)
        self.assertEqual(r["pid"], w.proc.pid)
        self.assertIn(r["kernels"], ("ref", "avx2", "avx512", "amx"))
        self.assertGreaterEqual(r["kv_pages"], 512 // 32)
        m = r["model"]
        self.assertEqual(set(m), {"name", "arch", "quant", "params", "digest", "context_length", "vocab_size",
                                  "modalities", "capabilities"})
        self.assertEqual((m["arch"], m["quant"], m["context_length"], m["vocab_size"]), ("llama", "Q8_0", 512, 300))
        self.assertEqual(m["modalities"], ["text"])
        self.assertIn("generate", m["capabilities"])
        self.assertTrue(m["name"])
        with open(worker_client.MODELS["bpe"], "rb") as f:
            self.assertEqual(m["digest"], hashlib.sha256(f.read()).hexdigest())
        w.finish()  # and it comes once

    def test_without_stderr(self):
        """The log is lost, not written into whatever is opened first."""
        null = os.stat(os.devnull)
        with subprocess.Popen([*worker_client.COMMAND, "-m", worker_client.MODELS["bpe"]], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, preexec_fn=lambda: os.close(2)) as p:
            self.assertTrue(json.loads(p.stdout.readline())["ready"])
            self.assertEqual(os.stat(f"/proc/{p.pid}/fd/2").st_rdev, null.st_rdev)
            out, _ = p.communicate(b'{"prompt":"a","max_new_tokens":1}\n')
            self.assertTrue(json.loads(out.splitlines()[-1])["done"])
            self.assertEqual(p.returncode, 0)

    def test_slots(self):
        for n in (1, 2, 5):
            w = self.worker("--max-sessions", str(n))
            self.assertEqual((w.ready["max_sessions"], w.ready["max_named_sessions"]), (n, n - 1))
            w.finish()

    def load_fails(self, *args, **kwargs):
        w = self.worker(*args, ready=False, **kwargs)
        f = w.recv()
        self.assertEqual(f["code"], "load_failed")
        self.assertIsNone(w.recv_line())
        self.assertEqual(w.wait(), 1)
        return json.dumps(f)

    def test_load_failures(self):
        self.assertIn("/nonexistent", self.load_fails(model="/nonexistent"))
        self.assertIn("max_sessions", self.load_fails("--max-sessions", "0"))
        self.assertIn("max_sessions", self.load_fails("--max-sessions", "1025"))
        self.assertIn("prefix_ids", self.load_fails("--prefix-ids", "1 300"))
        self.assertIn("prefix_ids", self.load_fails("--prefix-ids", " ".join(["1"] * 512)))

    def test_broken_files(self):
        """The frame names the key or tensor."""
        with open(worker_client.MODELS["bpe"], "rb") as f:
            good = f.read()
        broken = {
            "blk.0.attn_": good.replace(b"blk.0.attn_q.weight", b"blk.0.attn_X.weight", 1),
            "llama.block_count": good.replace(b"llama.block_count", b"llama.block_cOunt", 1),
            "header": b"GGUX" + good[4:],
            "blk.": good[:len(good) - 1000],
        }
        for name, data in broken.items():
            with tempfile.NamedTemporaryFile(suffix=".gguf") as f:
                f.write(data)
                f.flush()
                self.assertIn(name, self.load_fails(model=f.name))

    def test_name_of_the_file(self):
        """A model without a name of its own is called like its file."""
        with open(worker_client.MODELS["bpe"], "rb") as f:
            good = f.read()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "My-Model.gguf")
            with open(path, "wb") as f:
                f.write(good.replace(b"general.name", b"general.nAme", 1))
            w = self.worker(model=path)
            self.assertEqual(w.ready["model"]["name"], "My-Model")
            w.finish()


class PrefixIds(Case):
    def test_prefix_counts_and_matches(self):
        ids = some_ids(40)
        plain = self.worker()
        want_text, want = plain.generate(prompt_segments=segments([5, 7] + ids), max_new_tokens=8)
        w = self.worker("--prefix-ids", "5 7")
        text, done = w.generate(prompt_segments=segments(ids), max_new_tokens=8, session_id="s")
        self.assertEqual(done["prompt_tokens"], 42)
        self.assertEqual((text, done["generated_token_ids"]), (want_text, want["generated_token_ids"]))
        self.assertEqual(text, bpe_text(done["generated_token_ids"]))
        _, again = w.generate(prompt_segments=segments(ids), max_new_tokens=8, session_id="s")
        self.assertEqual((again["session_reset_reason"], again["reused_prompt_tokens"]), ("equal", 41))
        w.finish()
        plain.finish()

    def test_prompt_itself_must_not_be_empty(self):
        w = self.worker("--prefix-ids", "5 7")
        self.assertEqual(w.error({"prompt": ""})["field"], "prompt")
        w.finish()

    def test_prefix_counts_against_the_context(self):
        w = self.worker("--prefix-ids", "5 7")
        e = w.error({"prompt_segments": segments(some_ids(510))})
        self.assertEqual((e["code"], e["prompt_tokens"], e["limit"]), ("context_length_exceeded", 512, 512))
        _, done = w.generate(prompt_segments=segments(some_ids(509)))
        self.assertEqual((done["prompt_tokens"], done["completion_tokens"]), (511, 1))
        w.finish()

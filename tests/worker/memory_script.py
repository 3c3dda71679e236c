#!/usr/bin/python3
"""memory_script.py HEARTH SMALL ROOMY: what `hearth worker --plan` says of memory, what a worker takes that has used all of it, and how
kv_limit takes it away and gives it back. SMALL and ROOMY are models of tests/worker/meson.build; most of what ROOMY takes are pages.
Standard library only."""
import collections
import json
import os
import re
import subprocess
import sys
import unittest

import worker_client
from worker_client import Case, segments, some_ids

PAGE = 32  # tokens
AGREE = 0.03  # of what is measured: issue 10
GROUPS = "/sys/fs/cgroup/memory"


def plan_of(model, *args, before=None):
    """(exit status, the line, the log) of --plan."""
    done = subprocess.run([*worker_client.COMMAND, "-m", worker_client.MODELS[model], "--threads", "2", "--plan", *args],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=worker_client.PATIENCE, preexec_fn=before)
    lines = done.stdout.splitlines()
    assert len(lines) == 1, (done.stdout, done.stderr)
    return done.returncode, json.loads(lines[0]), done.stderr


def resident(pid, model):
    """Bytes in memory by kind, from /proc/PID/smaps: the model's file, the program with its libraries, all else."""
    sums, name = collections.Counter(), None
    with open(f"/proc/{pid}/smaps") as f:
        for line in f:
            head = re.match(r"[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \S+ *(.*)$", line)
            if head:
                path = head.group(1)
                name = "model" if path == os.path.realpath(model) else "program" if path.startswith("/") else "own"
            elif line.startswith("Rss:"):
                sums[name] += int(line.split()[1]) << 10
    return sums


def sanitized(pid):
    with open(f"/proc/{pid}/maps") as f:
        text = f.read()
    return any(name in text for name in ("libasan", "libtsan", "clang_rt"))


class Plan(Case):
    def test_says_what_a_worker_has(self):
        rc, p, log = plan_of("small")
        self.assertEqual(rc, 0, log)
        self.assertEqual(set(p), {"plan", "model", "kernels", "threads", "max_sessions", "weights_bytes", "kv", "scratch_bytes",
                                  "total_bytes", "limit_bytes"})
        w = self.worker(model="small")
        r = w.ready
        self.assertEqual({k: p["model"][k] for k in ("name", "arch", "quant", "params", "vocab_size")},
                         {k: r["model"][k] for k in ("name", "arch", "quant", "params", "vocab_size")})
        self.assertEqual((p["kv"]["context"], p["kv"]["page_bytes"], p["kv"]["most_pages"], p["max_sessions"]),
                         (r["model"]["context_length"], r["kv_page_bytes"], r["kv_pages"], r["max_sessions"]))
        w.send({"id": "s", "op": "stats"})
        self.assertEqual(w.recv_of("s")["stats"]["pages_total"], p["kv"]["pages"])
        w.finish()
        self.assertIn(f"event=plan context={p['kv']['context']} kv_pages={p['kv']['pages']} ", w.log_text())
        self.assertEqual(p["kv"]["bytes"], p["kv"]["pages"] * p["kv"]["page_bytes"])
        self.assertEqual(p["model"]["file_bytes"], os.path.getsize(worker_client.MODELS["small"]))
        self.assertEqual(p["total_bytes"], sum(p["weights_bytes"].values()) + p["kv"]["bytes"] + p["scratch_bytes"])

    def test_in_the_sandbox(self):
        _, _, log = plan_of("small")
        self.assertRegex(log, "event=(sandboxed|no_sandbox reason=\"this is a build with a sanitizer)")

    def test_too_small(self):
        """Both numbers, before anything is taken; a worker says the same."""
        rc, answer, _ = plan_of("roomy", "--memory-bytes", "20000000")
        self.assertEqual((rc, answer["code"], answer["field"]), (1, "load_failed", "memory"))
        self.assertRegex(answer["error"], r"need \d+ bytes of memory, 20000000 may be used")
        w = self.worker("--memory-bytes", "20000000", model="roomy", ready=False)
        self.assertEqual(w.recv(), answer)
        self.assertEqual(w.proc.wait(worker_client.PATIENCE), 1)
        need = int(re.search(r"need (\d+)", answer["error"]).group(1))
        rc, p, log = plan_of("roomy", "--memory-bytes", str(need * 17 // 16))
        self.assertEqual((rc, p["limit_bytes"]), (0, need * 17 // 16), log)
        self.assertGreaterEqual(p["kv"]["context"], 512)

    def test_less_memory_less_context(self):
        _, wide, _ = plan_of("roomy")
        self.assertEqual(wide["kv"]["context"], 2048)  # the model's
        for limit in 200 << 20, 100 << 20, 60 << 20:
            rc, p, _ = plan_of("roomy", "--memory-bytes", str(limit))
            self.assertEqual((rc, p["limit_bytes"]), (0, limit))
            self.assertLessEqual(p["total_bytes"] + p["kv"]["copies_bytes"], limit)
            self.assertGreater(p["kv"]["pages"] * PAGE, p["kv"]["context"])
        self.assertLess(p["kv"]["context"], 2048)

    def test_asked_for(self):
        _, p, _ = plan_of("roomy", "--ctx", "100", "--kv-pages", "9", "--max-sessions", "3")
        self.assertEqual((p["kv"]["context"], p["kv"]["pages"], p["kv"]["most_pages"], p["max_sessions"]), (100, 9, 9, 3))
        rc, answer, _ = plan_of("roomy", "--memory-bytes", str(60 << 20), "--ctx", "2048")
        self.assertEqual((rc, answer["code"]), (1, "load_failed"))
        rc, p, _ = plan_of("roomy", "--memory-bytes", str(60 << 20), "--memory-most-bytes", str(300 << 20))
        self.assertGreater(p["kv"]["most_pages"], 2 * p["kv"]["pages"])

    def test_control_group(self):
        """A real group with a limit (version 1)."""
        group = f"{GROUPS}/hearth-plan-{os.getpid()}"
        try:
            os.mkdir(group)
        except OSError:
            self.skipTest("NOT RUN: no control group of version 1 can be made here")
        try:
            with open(f"{group}/memory.limit_in_bytes", "w") as f:
                f.write(str(150 << 20))
            rc, p, log = plan_of("roomy", before=lambda: open(f"{group}/cgroup.procs", "w").write("0"))
        finally:
            os.rmdir(group)
        self.assertEqual((rc, p["limit_bytes"]), (0, 150 << 20), log)


class Account(Case):
    def fill(self, w, plan, of=1.2):
        """Prompts that nobody has seen, until pages have been used up and given to others; what draws and scores, too."""
        left, i = int(plan["kv"]["pages"] * PAGE * of), 0
        while left > 0:
            n = min(left, plan["kv"]["context"] - 20)
            w.send({"id": f"f{i}", "op": "generate", "prompt_segments": segments(some_ids(n, 1000 + i)), "seed": 1, "ignore_eos": True,
                    "temperature": 1, "top_p": 0.9, "max_new_tokens": 8, **({"prompt_logprobs": 1} if i == 0 else {})})
            while True:
                f = w.recv_of(f"f{i}")
                self.assertNotIn("error", f)
                if f.get("done"):
                    break
            left, i = left - n, i + 1

    def stats(self, w):
        w.send({"id": "s", "op": "stats"})
        return w.recv_of("s")["stats"]

    def limit(self, w, pages):
        w.send({"id": "l", "op": "kv_limit", "pages": pages})
        return w.recv_of("l")["kv_limit"]

    def test_account(self):
        """All pages used: what is measured is what was planned. Pages: each byte of them; scratch: the workspace of a step with a
        whole chunk in it, logits, samplers, tables of the vocabulary, lanes, tree, stacks, the program; weights: their file, what
        was packed. Not in it: what requests bring along, which a sixteenth of the limit is kept for."""
        _, p, _ = plan_of("roomy", "--max-sessions", "4")
        w = self.worker("--max-sessions", "4", "--no-sandbox", model="roomy")  # readable for who is not root
        if sanitized(w.proc.pid):
            w.finish()
            self.skipTest("NOT RUN: with a sanitizer memory is its own")
        self.fill(w, p)
        self.assertGreaterEqual(self.stats(w)["pages_total"], p["kv"]["pages"])
        got = resident(w.proc.pid, worker_client.MODELS["roomy"])
        w.finish()
        total = sum(got.values())
        off = (p["total_bytes"] - total) / total
        print(f"roomy: planned {p['total_bytes']}, measured {total} {dict(got)}, off by {100 * off:+.2f} %", file=sys.stderr)
        self.assertLess(abs(off), AGREE)
        self.assertLess(abs(got["model"] - p["weights_bytes"]["mapped"]), AGREE * total)

    def test_kv_limit(self):
        """Memory goes back to the system at once, and comes again; replies stay what they are."""
        few = ("--max-sessions", "4", "--ctx", "512")  # filled twice: with a sanitizer long contexts take minutes
        _, p, _ = plan_of("roomy", *few)
        page, pages = p["kv"]["page_bytes"], p["kv"]["pages"]
        ask = {"op": "generate", "prompt_segments": segments(some_ids(300, 7)), "seed": 5, "ignore_eos": True, "temperature": 1,
               "max_new_tokens": 150}
        w = self.worker(*few, "--no-sandbox", model="roomy")
        w.send({"id": "w", **ask})
        want = w.recv_ids("w")[:2]
        self.fill(w, p)
        full = sum(resident(w.proc.pid, worker_client.MODELS["roomy"]).values())
        self.assertEqual(self.limit(w, 20), {"pages": 20, "pages_used": 0})
        self.assertEqual(self.stats(w)["pages_total"], 20)
        if not sanitized(w.proc.pid):
            low = sum(resident(w.proc.pid, worker_client.MODELS["roomy"]).values())
            self.assertGreater(full - low, 0.95 * (pages - 20) * page)
        for name in "a", "b", "c":  # each needs 15 pages: one after the other, in 20
            w.send({"id": name, **ask})
        for name in "a", "b", "c":
            self.assertEqual(w.recv_ids(name)[:2], want)
        self.assertEqual(self.limit(w, 5)["pages"], 5)  # less than one needs, which has them all the same
        w.send({"id": "d", **ask})
        self.assertEqual(w.recv_ids("d")[:2], want)
        w.send({"id": "e", **ask})
        w.recv_of("e")
        self.assertEqual(self.limit(w, 1 << 62)["pages"], p["kv"]["most_pages"])  # while it runs; not more than was reserved
        frames = w.recv_until_last("e")
        self.assertEqual([i for f in frames if "token" in f for i in f["ids"]], want[1])
        self.fill(w, p)
        again = sum(resident(w.proc.pid, worker_client.MODELS["roomy"]).values())
        if not sanitized(w.proc.pid):
            self.assertLess(abs(again - full), 0.05 * full)
        for bad in 0, -1, 1.5, None, "1":
            w.send({"id": "x", "op": "kv_limit", "pages": bad})
            self.assertEqual((w.recv_of("x")["field"]), "pages")
        w.finish()


if __name__ == "__main__":
    worker_client.COMMAND[:] = [sys.argv[1], "worker"]
    worker_client.MODELS.update(small=sys.argv[2], roomy=sys.argv[3])
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]], verbosity=2)

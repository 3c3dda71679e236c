"""hearth itself, doctor, version, and the command lines of worker and serve."""
import json
import os
import re
import signal
import socket
import subprocess
import urllib.request

from cmd_rig import HEARTH, MODELS, Case, hearth

COMMANDS = ["run", "chat", "serve", "worker", "inspect", "tokenize", "logits", "perplexity", "quantize", "bench", "doctor",
            "version"]
SETS = ["ref", "avx2", "avx512", "amx", "dotprod", "i8mm"]


class Hearth(Case):
    def test_usage(self):
        usage = self.ok("--help").decode()
        for name in COMMANDS:
            self.assertRegex(usage, rf"(?m)^  {name} ")
            text = self.ok(name, "--help").decode()
            self.assertTrue(text.startswith(f"usage: hearth {name} "), text)
            self.assertEqual(self.ok(name, "-h").decode(), text)
            self.assertEqual(self.ok("help", name).decode(), text)
            self.assertFalse([line for line in text.splitlines() if len(line) > 120])
        self.assertEqual(self.ok("help").decode(), usage)
        r = hearth()
        self.assertEqual((r.rc, r.out, r.err.decode()), (2, b"", usage))
        r = hearth("frob")
        self.assertEqual((r.rc, r.out), (2, b""))
        self.assertIn(b"no command 'frob'", r.err)

    def test_unknown_option(self):
        for name in COMMANDS:
            self.fails(2, name, "--no-such-option", says=["--no-such-option", f"hearth {name} --help"])
            self.fails(2, name, "-Z", says="-Z")

    def test_stdout_lost(self):
        """An answer that did not arrive is a failure, with the reason; a reader that has gone knows why."""
        for args in (["version"], ["inspect", MODELS["bpe"]], ["inspect", MODELS["bpe"], "--json"],
                     ["tokenize", "-m", MODELS["bpe"], "x"], ["run", "-m", MODELS["bpe"], "-p", "x", "-n", "3", "--json"]):
            with open("/dev/full", "wb") as full:
                r = subprocess.run([*HEARTH, *args], stdout=full, stderr=subprocess.PIPE, check=False)
            self.assertEqual((r.returncode, r.stderr), (1, b"hearth: stdout: No space left on device\n"), args)
            r = subprocess.run(["/bin/sh", "-c", 'exec "$0" "$@" >&-', *HEARTH, *args], stderr=subprocess.PIPE, check=False)
            self.assertEqual((r.returncode, r.stderr), (1, b"hearth: stdout: Bad file descriptor\n"), args)
            gone, theirs = os.pipe()
            os.close(gone)
            r = subprocess.run([*HEARTH, *args], stdout=theirs, stderr=subprocess.PIPE, check=False)
            os.close(theirs)
            self.assertEqual((r.returncode, r.stderr), (1, b""), args)

    def test_version(self):
        text = self.ok("version").decode()
        self.assertEqual(self.ok("--version").decode(), text)
        self.assertRegex(text, r"\Ahearth \d+\.\d+\.\d+, numerics version \d+, kernels built in: ref( \w+)*\n\Z")
        r = self.json("version")
        self.assertEqual(set(r), {"version", "numerics_version", "kernels"})
        self.assertEqual(r["kernels"], re.search(r"built in: (.*)\n", text)[1].split())

    def test_doctor(self):
        r = self.json("doctor")
        self.assertEqual(r["architectures"], ["llama", "qwen3"])  # what issue and README promise
        self.assertEqual(set(r), {"cpu", "sets", "kernels", "architectures", "threads", "cpus_online", "cpus_affinity",
                                  "quota_cpus", "memory_bytes", "memory_limit_bytes", "read_gbs", "kernel", "seccomp", "landlock_abi"})
        self.assertEqual(list(r["sets"]), SETS)
        self.assertTrue(all(set(s) == {"built", "on_cpu"} for s in r["sets"].values()))
        usable = [name for name, s in r["sets"].items() if s["built"] and s["on_cpu"]]
        self.assertEqual(r["kernels"], usable[-1])
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as f:
            flags = f.read().partition("\nflags")[2].partition("\n")[0].split()
        if flags:
            self.assertEqual((r["sets"]["avx2"]["on_cpu"], r["sets"]["avx512"]["on_cpu"]),
                             ("avx2" in flags and "fma" in flags, "avx512f" in flags))
        self.assertEqual(r["kernel"], os.uname().release)
        self.assertEqual(r["cpus_affinity"], len(os.sched_getaffinity(0)))
        self.assertTrue(1 <= r["threads"] <= r["cpus_affinity"] <= r["cpus_online"])
        self.assertAlmostEqual(r["memory_bytes"], os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), delta=1 << 20)
        self.assertGreater(r["read_gbs"], 0)

    def test_doctor_one_cpu(self):
        one = min(os.sched_getaffinity(0))
        out = subprocess.run([*HEARTH, "doctor"], stdout=subprocess.PIPE, check=True, text=True,
                             preexec_fn=lambda: os.sched_setaffinity(0, [one])).stdout
        self.assertRegex(out, r"(?m)^threads +1 of \d+ CPUs")
        r = json.loads(subprocess.run([*HEARTH, "doctor", "--json"], stdout=subprocess.PIPE, check=True,
                                      preexec_fn=lambda: os.sched_setaffinity(0, [one])).stdout)
        self.assertEqual((r["threads"], r["cpus_affinity"]), (1, 1))


class Worker(Case):
    def frames(self, *argv, stdin=b'{"prompt":"hi","max_new_tokens":3}', rc=0):
        r = subprocess.run(argv, input=stdin, capture_output=True, check=False, timeout=60)
        self.assertEqual(r.returncode, rc, r.stderr)
        return [json.loads(line) for line in r.stdout.splitlines()]

    def check_reply(self, frames):
        self.assertIs(frames[0]["ready"], True)
        done = frames[-1]
        self.assertIs(done["done"], True)
        self.assertEqual((done["prompt_tokens"], done["completion_tokens"]), (2, 3))
        self.assertEqual("".join(f["token"] for f in frames[1:-1]),
                         self.json("run", "-m", MODELS["bpe"], "-p", "hi", "-n", "3")["text"])

    def test_answers_a_pipe(self):
        """Also the last line, which has no newline."""
        self.check_reply(self.frames(*HEARTH, "worker", "-m", MODELS["bpe"]))

    def test_link(self):
        """A link named hearth-worker takes the options of plain clients."""
        link = self.dir / "hearth-worker"
        link.symlink_to(HEARTH[0])
        self.check_reply(self.frames(link, "--model_path", MODELS["bpe"], "--tokenizer_path", "/nonexistent"))
        text = subprocess.run([link, "--help"], stdout=subprocess.PIPE, check=True, text=True).stdout
        self.assertEqual(text, self.ok("worker", "--help").decode())
        r = subprocess.run([link, "--frob"], stderr=subprocess.PIPE, check=False, text=True)
        self.assertEqual((r.returncode, "hearth worker --help" in r.stderr), (2, True))

    def test_cannot_load(self):
        """Clients read frames: every name that does not work gets one."""
        for name in ("/nonexistent", "nonexistent", self.dir):
            frames = self.frames(*HEARTH, "worker", "-m", name, rc=1)
            self.assertEqual([f["code"] for f in frames], ["load_failed"])
            self.assertIn(str(name), frames[0]["error"])
        for args in (["--max-sessions", "0"], ["--prefix-ids", "1 300"], ["-c", "513"], ["--tool-format", "Hermes"]):
            frames = self.frames(*HEARTH, "worker", "-m", MODELS["bpe"], *args, rc=1)
            self.assertEqual([f["code"] for f in frames], ["load_failed"])

    def test_bad_command_lines(self):
        m = ["worker", "-m", MODELS["bpe"]]
        for args, says in ((["worker", "-m", ""], "-m"), ([*m, "--cpu", "sse"], "sse"), ([*m, "--kv-type", "x"], "--kv-type"),
                           ([*m, "--prefix-ids", "a"], "--prefix-ids"), ([*m, "--max-sessions", "x"], "--max-sessions")):
            self.fails(2, *args, says=says)


class Serve(Case):
    def test_serves_until_told_to_stop(self):
        p = self.started("serve", "-m", MODELS["bpe"], "--port", "0", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE)
        url = next(m for line in p.stderr if (m := re.match(rb"listening on (http://127\.0\.0\.1:\d+)\n", line)))[1].decode()
        with urllib.request.urlopen(f"{url}/v1/models", timeout=30) as answer:
            self.assertEqual(json.load(answer)["data"][0]["id"], os.path.basename(MODELS["bpe"]).removesuffix(".gguf"))
        p.send_signal(signal.SIGTERM)
        self.assertEqual((p.wait(30), p.stdout.read()), (0, b""))

    def test_cannot_start(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = str(taken.getsockname()[1])
            for args, says in ((["-m", "/nonexistent", "--port", "0"], "/nonexistent"), (["-m", "nonexistent"], "nonexistent"),
                               (["-m", MODELS["none"], "--port", "0"], "tokenizer.ggml.model"),
                               (["-m", MODELS["bpe"], "--port", port], port)):
                r = hearth("serve", *args)
                self.assertEqual((r.rc, r.out), (1, b""), args)
                self.assertIn(says, r.err.decode())

    def test_bad_command_lines(self):
        m = ["serve", "-m", MODELS["bpe"]]
        for args, says in ((["serve", "-m", ""], "-m"), ([*m, "--port", "65536"], "--port 65536"), ([*m, "--port", "x"], "--port"),
                           ([*m, "--cpu", "sse"], "sse"), ([*m, "extra"], "'extra'")):
            self.fails(2, *args, says=says)

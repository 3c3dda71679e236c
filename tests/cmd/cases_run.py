"""hearth run: one reply, as text, as JSON, cut short by every means."""
import json
import os
import pty
import signal
import subprocess
import time

from cmd_rig import MODELS, SOON, Case, bpe_text, hearth, merged, with_template

FIELDS = {"text", "ids", "prompt_ids", "finish_reason", "seed", "prompt_tokens", "completion_tokens", "prefill_ms",
          "decode_ms", "total_ms", "ttft_ms", "prefill_tok_s", "decode_tok_s"}
FOREVER = ["--ignore-eos", "-n", "-1"]


class Run(Case):
    def run_json(self, *args, model="bpe", prompt="hi", **kwargs):
        return self.json("run", "-m", MODELS[model], "-p", prompt, *args, **kwargs)

    def test_json_shape(self):
        r = self.run_json("--ignore-eos", "-n", "20")
        self.assertEqual(set(r), FIELDS)
        self.assertEqual(r["prompt_ids"], [104, 105])  # bytes of "hi"
        self.assertEqual((r["prompt_tokens"], r["completion_tokens"], len(r["ids"])), (2, 20, 20))
        self.assertEqual(r["finish_reason"], "length")
        self.assertEqual(r["text"], bpe_text(r["ids"]))
        self.assertTrue(0 < r["ttft_ms"] <= r["total_ms"])
        self.assertTrue(1 <= r["seed"] < 2**63)

    def test_text_is_json_text(self):
        args = ["run", "-m", MODELS["bpe"], "-p", "hello there", "--ignore-eos", "-n", "60"]
        text = self.ok(*args)
        self.assertEqual(text.decode(), self.json(*args)["text"] + "\n")

    def test_prompt_comes_from_anywhere(self):
        want = self.run_json("-n", "8", prompt="the heat\n")
        file = self.file("prompt", b"the heat\n")
        for args, stdin in ((["the heat\n"], b""), ([], b"the heat\n"), (["-f", file], b""), (["-f", "-"], b"the heat\n"),
                            (["--prompt=the heat\n"], b""), (["--", "the heat\n"], b"")):
            r = json.loads(self.ok("run", "-m", MODELS["bpe"], "-n", "8", "--json", *args, stdin=stdin))
            self.assertEqual((r["prompt_ids"], r["ids"]), (want["prompt_ids"], want["ids"]), args)
        nul = self.json("run", "-m", MODELS["bpe"], "-n", "1", stdin=b"a\0b")
        self.assertEqual(nul["prompt_ids"], [97, 0, 98])

    def test_empty_prompt(self):
        self.assertEqual(self.run_json("-n", "1", model="spm", prompt="")["prompt_ids"], [1])  # BOS alone
        self.fails(1, "run", "-m", MODELS["bpe"], "-p", "", says="prompt is empty")  # this family has none

    def test_spm_prompt(self):
        """BOS, the space prefix, and the pieces of make_vocab.h: space and h (286 + 7), i (260 + 4)."""
        self.assertEqual(self.run_json("-n", "1", model="spm")["prompt_ids"], [1, 293, 264])

    def test_same_everywhere(self):
        """Seed, threads and instruction set: the same ids (P1)."""
        sampled = ["--temp", "1", "--seed", "7", "--ignore-eos", "-n", "40"]
        want = self.run_json(*sampled)
        self.assertEqual(want["seed"], 7)
        for more in ([], ["--threads", "1"], ["--threads", "2"], ["--cpu", "ref"], ["--cpu", "avx2", "-c", "64"]):
            self.assertEqual(self.run_json(*sampled, *more)["ids"], want["ids"], more)
        self.assertNotEqual(self.run_json("--temp", "1", "--seed", "8", "--ignore-eos", "-n", "40")["ids"], want["ids"])
        drawn = self.run_json("--temp", "1", "--ignore-eos", "-n", "10")
        again = self.run_json("--temp", "1", "--ignore-eos", "-n", "10", "--seed", str(drawn["seed"]))
        self.assertEqual(again["ids"], drawn["ids"])

    def test_options_act(self):
        greedy = self.run_json("--ignore-eos", "-n", "30")["ids"]
        hot = ["--temp", "100", "--seed", "3", "--ignore-eos", "-n", "30"]
        self.assertNotEqual(self.run_json(*hot)["ids"], greedy)
        for narrow in (["--top-k", "1"], ["--top-p", "0.000001"], ["--min-p", "1"]):
            self.assertEqual(self.run_json(*hot, *narrow)["ids"], greedy, narrow)
        self.assertLess(len(set(greedy)), 30)  # it repeats itself
        for penalty in (["--presence-penalty", "100"], ["--frequency-penalty", "100"]):
            self.assertEqual(len(set(self.run_json("--ignore-eos", "-n", "30", *penalty)["ids"])), 30, penalty)

    def test_stop(self):
        whole = self.run_json("--ignore-eos", "-n", "200")
        text = whole["text"]
        stop = next(c for c in text[5:] if c.isalnum() and ord(c) < 128)
        r = self.run_json("--ignore-eos", "-n", "200", "--stop", "no such text", "--stop", stop)
        self.assertEqual((r["text"], r["finish_reason"]), (text[:text.index(stop)], "stop"))
        self.assertLessEqual(r["completion_tokens"], len(whole["ids"]))

    def test_lengths(self):
        none = self.run_json("-n", "0")
        self.assertEqual((none["ids"], none["text"], none["finish_reason"]), ([], "", "length"))
        self.assertEqual(self.ok("run", "-m", MODELS["bpe"], "-p", "hi", "-n", "0"), b"\n")
        full = self.run_json(*FOREVER, "-c", "32")
        self.assertEqual((full["prompt_tokens"] + full["completion_tokens"], full["finish_reason"]), (32, "length"))
        self.fails(1, "run", "-m", MODELS["bpe"], "-p", "0123456789", "-c", "8", says=["10", "8"])

    def test_interrupt_keeps_what_was_said(self):
        p = self.started("run", "-m", MODELS["long"], "-p", "hi", "-c", "60000", *FOREVER, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE)
        said = p.stdout.read1(1)
        begin = time.monotonic()
        p.send_signal(signal.SIGINT)
        rest, err = p.communicate(timeout=60)
        self.assertLess(time.monotonic() - begin, SOON)
        self.assertEqual((p.returncode, err), (130, b""))
        text = (said + rest).decode()
        self.assertTrue(text.endswith("\n"))
        whole = self.json("run", "-m", MODELS["long"], "-p", "hi", "-c", "60000", "--ignore-eos", "-n",
                          str(min(len(text), 500)))["text"]
        self.assertTrue(text[:-1].startswith(whole[:len(text) - 1]) or whole.startswith(text[:-1]))

    def test_interrupt_json(self):
        p = self.started("run", "-m", MODELS["long"], "-p", "hi", "-c", "60000", *FOREVER, "--json",
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.wait_caught(p, signal.SIGINT)
        time.sleep(0.1)
        begin = time.monotonic()
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=60)
        self.assertLess(time.monotonic() - begin, SOON)
        self.assertEqual((p.returncode, err, out.count(b"\n")), (130, b"", 1))
        r = json.loads(out)
        self.assertEqual(r["finish_reason"], "cancelled")
        self.assertEqual(r["text"], bpe_text(r["ids"]))

    def test_reader_gone(self):
        """`hearth run … | head -c 1`: ends soon, and nobody needs to hear why."""
        p = self.started("run", "-m", MODELS["long"], "-p", "hi", "-c", "60000", *FOREVER, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE)
        p.stdout.read1(1)
        begin = time.monotonic()
        p.stdout.close()
        err = p.stderr.read()
        self.assertEqual((p.wait(60), err), (1, b""))
        self.assertLess(time.monotonic() - begin, SOON)

    def test_stdout_full(self):
        with open("/dev/full", "wb") as full:
            p = self.started("run", "-m", MODELS["bpe"], "-p", "hi", "-n", "9", stdout=full, stderr=subprocess.PIPE)
            err = p.stderr.read()
        self.assertEqual((p.wait(60), err), (1, b"hearth: stdout: No space left on device\n"))

    def on_terminal(self, *args):
        """stdout and stderr of a command on a terminal, as it sends them."""
        ours, theirs = pty.openpty()
        p = self.started(*args, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs)
        os.close(theirs)
        data = b""
        try:
            while more := os.read(ours, 4096):
                data += more
        except OSError:  # how a terminal says that the other side has gone
            pass
        os.close(ours)
        self.assertEqual(p.wait(60), 0)
        return data

    def test_terminal(self):
        """Progress and timings are for terminals, and control characters of a reply never get there."""
        args = ["run", "-m", MODELS["bpe"], "-p", "hi", "--temp", "100", "--seed", "5", "--ignore-eos", "-n", "300"]
        reply = self.json(*args)["text"]
        self.assertTrue(any(ord(c) < 32 and c not in "\t\n" for c in reply))
        shown = self.on_terminal(*args).decode()
        bar, shown = shown.split("\r\x1b[K", 1)
        self.assertIn("loading [", bar)
        self.assertFalse([c for c in shown if (ord(c) < 32 and c not in "\r\n\t") or 127 <= ord(c) < 160])
        self.assertRegex(shown, r"\[2 prompt tokens, [0-9.]+/s; 300 tokens, [0-9.]+/s; length\]\r\n$")
        self.assertNotIn("prompt tokens", self.on_terminal(*args, "-q").decode("utf-8", "replace"))

    def test_chatml(self):
        """The prompt is what a user says, laid out by the model's template, and spells no control token."""
        model = self.file("chat.gguf", with_template("bpe", "{{ '<|im_start|>' + messages[0].content -}}"))
        for text in ("hi", "hi<|im_end|>"):
            r = self.json("run", "-m", model, "-p", text, "-n", "3")
            self.assertEqual(r["prompt_ids"], [298, *merged(text)])
        self.assertEqual(self.json("run", "-m", model, "-p", "hi", "-n", "3", "--raw")["prompt_ids"], [104, 105])
        self.assertEqual(self.run_json("-n", "3")["prompt_ids"], [104, 105])  # no template: the text alone

    def test_templates(self):
        """Any template is used, one of a file in place of the model's; what it raises is said."""
        model = self.file("chat.gguf", with_template("bpe", "{{ messages[0].content -}}"))
        r = hearth("run", "-m", model, "-p", "hi", "-n", "3")
        self.assertEqual((r.rc, r.err), (0, b""))
        self.assertEqual(self.ok("run", "-m", model, "-p", "hi", "-n", "3", "--raw"), r.out)
        other = self.file("t.jinja", b"<|im_start|>{{ messages[0].content }}")
        got = self.json("run", "-m", model, "-p", "hi", "-n", "3", "--chat-template", other)
        self.assertEqual(got["prompt_ids"], [298, *merged("hi")])
        r = hearth("run", "-m", model, "-p", "hi", "--chat-template", self.file("r.jinja", b"{{ raise_exception('not so') }}"))
        self.assertEqual((r.rc, b"not so" in r.err), (1, True))
        for text, says in ((b"{% if 0 %}x{% endif %}", b"empty prompt"), (b"", b"is empty"), (b"a\0b", b"zero byte")):
            for command in ("run", "worker"):
                r = hearth(command, "-m", model, "--chat-template", self.file("e.jinja", text), *["hi"][:command == "run"],
                           stdin=b'{"id":"a","op":"chat","messages":[{"role":"user","content":"hi"}]}\n')
                self.assertTrue(says in r.err + r.out, (command, text, r))

    def test_bad_command_lines(self):
        m = ["run", "-m", MODELS["bpe"]]
        for args, says in (
                ([*m, "--frob"], "--frob"), ([*m, "-n"], "-n"), ([*m, "-n", "x"], "-n x"),
                ([*m, "-n", "-2"], "-n -2"), ([*m, "-n", "99999999999"], "-n"), ([*m, "--temp", "nan"], "--temp nan"),
                ([*m, "--temp", "-1"], "--temp"), ([*m, "--top-p=1.5"], "--top-p 1.5"), ([*m, "--seed", "-1"], "--seed"),
                ([*m, "--seed", str(2**63)], "--seed"), ([*m, "--json=1"], "--json"), ([*m, "-p", "a", "b"], "twice"),
                ([*m, "-p", "a", "-f", "b"], "twice"), ([*m, "a", "b"], "'b'"), ([*m, "a", "--cpu", "sse"], "sse"),
                ([*m, "a", "--kv-type", "q8"], "q8"), ([*m, "a", "--threads", "0"], "--threads 0"),
                ([*m, "a", "-c", "0"], "-c 0"), ([*m, "-m"], "-m"), ([*m, "a", "--pack-dir", ""], "--pack-dir"),
                ([*m, "a", "--pack-dir", "x" * 4000], "--pack-dir"),
                ([*m, "a", "--pack-dir", "x", "--no-pack-cache"], "--no-pack-cache")):
            self.fails(2, *args, says=says)

    def test_what_cannot_be_done(self):
        for args, says in (
                (["-m", "/nonexistent/m.gguf"], "/nonexistent/m.gguf"), (["-m", "nonexistent"], ["nonexistent", "models"]),
                (["-m", self.dir], "directory"), (["-m", MODELS["none"]], "tokenizer.ggml.model"),
                (["-m", MODELS["bpe"], "-c", "513"], ["513", "512"]), (["-m", "hf:a/b"], "hf:a/b")):
            self.fails(1, "run", *args, "-p", "x", says=says)
        self.fails(1, "run", "-m", MODELS["bpe"], "-f", "/nonexistent", says="/nonexistent")
        self.fails(1, "run", "-m", MODELS["bpe"], "-f", self.dir, says=str(self.dir))

    def test_model_folder(self):
        (self.dir / "hearth" / "models").mkdir(parents=True)
        (self.dir / "hearth" / "models" / "tiny.gguf").symlink_to(MODELS["bpe"])
        want = self.ok("run", "-m", MODELS["bpe"], "-p", "hi", "-n", "5")
        for env, name in (({"HEARTH_MODELS": f"{self.dir}/hearth/models"}, "tiny"), ({"XDG_DATA_HOME": str(self.dir)}, "tiny"),
                          ({"XDG_DATA_HOME": str(self.dir), "HEARTH_MODELS": ""}, "tiny.gguf")):
            self.assertEqual(self.ok("run", "-m", name, "-p", "hi", "-n", "5", env=env), want)


class Render(Case):
    """hearth render: the template sees what the case says, and with -m the model's own tokens."""

    def render(self, where, case):
        return self.ok("render", *where, "--case", self.file("case.json", json.dumps(case).encode())).decode()

    def test_tokens(self):
        source = "{{ bos_token }}|{{ eos_token }}|{{ messages[0].content }}|{{ tools is defined }}"
        file = ["--template", self.file("t.jinja", source.encode())]
        case = {"messages": [{"role": "user", "content": "hi"}]}
        for model, bos, eos in ("spm", "<s>", "</s>"), ("bpe", "", "<|endoftext|>"):
            own = ["-m", self.file("m.gguf", with_template(model, source))]
            self.assertEqual(self.render(own, case).rstrip(" "), f"{bos}|{eos}|hi|False")  # padded by with_template
            self.assertEqual(self.render(own, {**case, "bos_token": "B"}).rstrip(" "), f"B|{eos}|hi|False")
            self.assertEqual(self.render(own, {**case, "eos_token": "", "tools": []}).rstrip(" "), f"{bos}||hi|True")
            self.assertEqual(self.render(own, {**case, "extra": {"eos_token": "E"}}).rstrip(" "), f"{bos}|E|hi|False")
        self.assertEqual(self.render(file, case), "||hi|False")
        self.assertEqual(self.render(file, {**case, "bos_token": "B", "tools": None}), "B||hi|False")

    def test_faults(self):
        case = self.file("case.json", b'{"messages":[{"role":"user","content":"a\\nb"}]}')
        raises = self.file("r.jinja", b"{{ raise_exception(messages[0].content) }}")
        r = hearth("render", "--template", raises, "--case", case)
        self.assertEqual((r.rc, r.out, r.err), (1, b"", b"a\nb\n"))
        r = hearth("render", "--template", self.file("b.jinja", b"\n{% if %}"), "--case", case)
        self.assertEqual((r.rc, b"line 2" in r.err), (1, True), r.err)
        self.fails(1, "render", "-m", MODELS["bpe"], "--case", case, says="chat_template")
        self.fails(2, "render", "--template", raises, says="--case")
        self.fails(2, "render", "-m", MODELS["bpe"], "--template", raises, "--case", case, says="exclude")

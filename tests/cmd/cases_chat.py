"""hearth chat: turns through a pipe, commands, what is kept and what is refused; on a terminal, keys and Ctrl-C; and the
bundled model, which every command takes when none is named."""
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import subprocess
import termios
import time

import cmd_rig
from cmd_rig import MODELS, PATIENCE, Case, bpe_text, hearth, merged, turn_ids

START_REPLY = [298, *merged("assistant\n")]
LAST_PROMPT = re.compile(r"last prompt: (\d+) tokens, (\d+) of them kept from before, (\d+) read")
LAST_REPLY = re.compile(r"last reply: (\d+) tokens \([0-9.]+/s\), the first after \d+ ms, (\w+)")
CONTEXT = re.compile(r"context: (\d+) of (\d+) tokens, (\d+) messages")


def numbers(pattern, err):
    """The numbers of each line that matches."""
    return [tuple(int(g) if g.isdigit() else g for g in m.groups()) for m in pattern.finditer(err)]


class Chat(Case):
    def chat(self, *lines, args=(), model="bpe", rc=0):
        """stdout and stderr of a chat that was given these lines."""
        r = hearth("chat", "-m", MODELS[model], *args, stdin="".join(f"{x}\n" for x in lines).encode())
        self.assertEqual(r.rc, rc, r.err)
        return r.out, r.err.decode()

    def saved(self, *lines, **kwargs):
        """The messages that /save writes behind these lines, the file's text, and stderr."""
        path = self.dir / "saved.json"
        path.unlink(missing_ok=True)
        err = self.chat(*lines, f"/save {path}", **kwargs)[1]
        text = path.read_text()
        return json.loads(text)["messages"], text, err

    def test_reply_is_that_of_run(self):
        """One turn is the model's reply to the layout of ChatML: its text, and a line feed."""
        want = self.json("run", "-m", MODELS["bpe"], "--raw", "-n", "12", "-p", "<|im_start|>user\ndo<|im_end|>\n"
                         "<|im_start|>assistant\n")
        self.assertEqual(want["prompt_ids"], turn_ids("user", "do") + START_REPLY)
        out, err = self.chat("do", args=["-n", "12"])
        self.assertEqual(out.decode(), want["text"] + "\n")
        self.assertEqual(err, "[the reply was cut at the limit of -n]\n" if want["finish_reason"] == "length" else "")

    def test_template_of_a_file(self):
        """In place of the model's layout, for every turn; what it raises is said, and the chat goes on."""
        turns = self.file("t.jinja", b"{% if messages|length > 3 %}{{ raise_exception('enough') }}{% endif %}"
                                     b"{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}")
        args = ["--chat-template", turns, "-n", "4"]
        err = self.chat("do", "/stats", args=args)[1]
        self.assertEqual(numbers(LAST_PROMPT, err)[0][0], len([298, *merged("do")]))
        said = self.saved("do", args=args)[0]
        want = self.json("run", "-m", MODELS["bpe"], "-n", "4", "-p", "do", "--chat-template", turns)
        self.assertEqual([m["content"] for m in said], ["do", want["text"]])
        err = self.chat("do", "it", "us", args=args, rc=1)[1]
        self.assertIn("enough", err)
        self.fails(2, "chat", "-m", MODELS["bpe"], "--chat-template", "-", says="stdin")
        self.fails(1, "chat", "-m", MODELS["bpe"], "--chat-template", self.dir / "none", says="none")

    def test_turns_read_only_what_is_new(self):
        err = self.chat("do", "/stats", "it", "/stats", "us", "/stats", args=["-n", "12"])[1]
        prompts, replies, contexts = numbers(LAST_PROMPT, err), numbers(LAST_REPLY, err), numbers(CONTEXT, err)
        self.assertEqual(len(prompts), 3)
        held = 0
        for turn, (word, prompt, reply, context) in enumerate(zip(("do", "it", "us"), prompts, replies, contexts)):
            new = len(turn_ids("user", word) + START_REPLY) + (2 if turn else 0)  # the end of the reply before it
            self.assertEqual(prompt, (held + new, held, new))
            held += new + reply[0]
            self.assertEqual(context, (held, 512, 2 * (turn + 1)))
        self.assertTrue(all(r[0] > 0 for r in replies), replies)

    def test_second_turn_is_the_whole_conversation(self):
        """What the second reply answers is both turns, as ids."""
        messages = self.saved("do", "it", args=["-n", "6"])[0]
        first = self.json("run", "-m", MODELS["bpe"], "--raw", "-n", "6", "-p",
                          "<|im_start|>user\ndo<|im_end|>\n<|im_start|>assistant\n")
        self.assertEqual(messages[1]["content"], first["text"])
        ids = first["prompt_ids"] + first["ids"] + [299, 10] + turn_ids("user", "it") + START_REPLY
        out = self.dir / "logits"
        for _ in range(2):  # the first two tokens of the second reply are the likeliest ones
            self.ok("logits", "-m", MODELS["bpe"], "--tokens", " ".join(map(str, ids)), "--kv-type", "f16", "-o", out)
            row = cmd_rig.floats(out)[-300:]
            ids.append(row.index(max(row)))
        reply = bpe_text([i for i in ids[-2:] if i < 297])
        self.assertTrue(messages[3]["content"].startswith(reply.rstrip("\ufffd")), (messages[3], ids[-2:]))

    def test_user_text_is_text(self):
        err = self.chat("<|im_end|>", "/stats", args=["-n", "1"])[1]
        self.assertEqual(numbers(LAST_PROMPT, err)[0][0], len(turn_ids("user", "<|im_end|>") + START_REPLY))

    def test_reset(self):
        out, err = self.chat("do", "/reset", "/stats", "do", "/stats", args=["-n", "9", "--system", "it"])
        self.assertEqual(numbers(CONTEXT, err)[0], (0, 512, 0))
        prompt = turn_ids("system", "it") + turn_ids("user", "do") + START_REPLY
        self.assertEqual(numbers(LAST_PROMPT, err), [(len(prompt), 0, len(prompt))])
        first, second = out.decode().split("\n", 1)
        self.assertEqual(out[:len(out) // 2], out[len(out) // 2:], (first, second))  # the same reply again

    def test_system(self):
        """--system, /system, and what was said before it stays."""
        said, _, err = self.saved("/system", "do", "/system it", "/system", "us", "/stats", args=["-n", "4"])
        self.assertEqual([m["role"] for m in said], ["system", "user", "assistant", "user", "assistant"])
        self.assertEqual((said[0]["content"], said[1]["content"], said[3]["content"]), ("it", "do", "us"))
        self.assertIn("[no system message]\n", err)
        self.assertIn("[the system message is set]\nit\n", err)
        (total, kept, read), = numbers(LAST_PROMPT, err)
        self.assertEqual((kept, read), (0, total))  # it stands before everything

    def test_save(self):
        said, text, err = self.saved('say "do"', "it", args=["-n", "4"])
        out = self.chat('say "do"', "it", args=["-n", "4"])[0].decode()
        self.assertEqual([m["role"] for m in said], ["user", "assistant"] * 2)
        self.assertEqual(said[0]["content"], 'say "do"')
        self.assertEqual(out, f"{said[1]['content']}\n{said[3]['content']}\n")
        self.assertEqual(json.loads(text)["model"], "random")
        self.assertEqual(text.count("\n"), 2 + len(said))  # one message a line
        self.assertIn("[saved as ", err)
        path = self.dir / "saved.json"
        self.assertEqual(path.stat().st_mode & 0o777, 0o600)
        # Somebody's file is not written over, one's own is.
        err = self.chat("/save", f"/save {path}", f"/save {self.dir}/new", f"/save {self.dir}/new", "/save /nowhere/x", rc=1)[1]
        self.assertEqual(path.read_text(), text)
        self.assertEqual(err.count("[saved as "), 2)
        self.assertRegex(err, "needs a file\n(.*\n)*hearth: .*saved.json: File exists\n(.*\n)*hearth: /nowhere/x: No such file")
        self.assertEqual(json.loads((self.dir / "new").read_text())["messages"], [])

    def test_lines(self):
        """Empty lines are nothing; a backslash joins; // is a slash; a last line needs no line feed."""
        self.assertEqual(self.chat("", "", args=["-n", "3"]), (b"", ""))
        said = self.saved("do\\", "it\\", "us", "//x", args=["-n", "2"])[0]
        self.assertEqual([m["content"] for m in said if m["role"] == "user"], ["do\nit\nus", "/x"])
        r = hearth("chat", "-m", MODELS["bpe"], "-n", "3", stdin=b"do")
        self.assertEqual((r.rc, r.out), (0, self.chat("do", args=["-n", "3"])[0]))
        self.assertEqual(self.chat("/quit", "do", args=["-n", "3"]), (b"", ""))

    def test_commands(self):
        err = self.chat("/help")[1]
        for name in ("/reset", "/save", "/system", "/stats", "/help", "/quit"):
            self.assertIn(name, err)
        for line in ("/bogus", "/", "/resetx", "/etc/passwd", "/reset all"):
            out, err = self.chat(line, "/quit", rc=1)
            self.assertEqual(out, b"")
            self.assertRegex(err, r"\Ahearth: [^\n]*" + re.escape(line.split()[0]) + r"[^\n]*\n\Z")

    def test_full_context(self):
        """A message that does not fit is refused with the numbers, and the conversation is what it was."""
        path = self.dir / "kept.json"
        out, err = self.chat("do", "x" * 200, "/stats", f"/save {path}", "/reset", "do", args=["-c", "100", "-n", "5"], rc=1)
        self.assertRegex(err, r"hearth: the context is full: with this message the conversation has \d+ tokens of 100\. /reset")
        self.assertEqual(numbers(CONTEXT, err)[0][2], 2)
        self.assertEqual([m["role"] for m in json.loads(path.read_text())["messages"]], ["user", "assistant"])
        self.assertEqual(out, 2 * self.chat("do", args=["-c", "100", "-n", "5"])[0])
        # A reply that fills it is cut, which is said; then nothing fits any more.
        out, err = self.chat("hi", "do", args=["-c", "60"], model="long", rc=1)
        self.assertIn("[the context is full: the reply was cut; /reset begins anew]\nhearth: the context is full", err)

    def test_sampling(self):
        def ids(*args):
            return self.chat("do", args=["-n", "20", *args])[0]
        hot = ["--temp", "100"]
        self.assertEqual(ids(*hot, "--seed", "3"), ids(*hot, "--seed", "3"))
        self.assertNotEqual(ids(*hot, "--seed", "3"), ids(*hot, "--seed", "4"))
        self.assertEqual(ids(*hot, "--top-k", "1"), ids())
        self.assertEqual(ids(*hot, "--top-p", "0.000001"), ids())

    def test_bad_command_lines(self):
        m = ["chat", "-m", MODELS["bpe"]]
        for args, says in (([*m, "--frob"], "--frob"), ([*m, "hello"], "'hello'"), ([*m, "-n", "x"], "-n x"),
                           ([*m, "--temp", "-1"], "--temp"), ([*m, "--cpu", "sse"], "sse"), (["chat", "-m", ""], "no model")):
            self.fails(2, *args, says=says)
        self.fails(1, "chat", "-m", "/nonexistent", says="/nonexistent")
        self.fails(1, "chat", "-m", MODELS["spm"], says="<|im_start|>")

    def test_closed_stdout(self):
        p = self.started("chat", "-m", MODELS["long"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        p.stdin.write(b"hi\n" * 3)
        p.stdin.flush()
        p.stdout.read1(1)
        p.stdout.close()
        self.assertEqual(p.wait(PATIENCE), 1)
        self.assertEqual(p.stderr.read(), b"")

    def test_interrupt_without_terminal(self):
        """In a reply: that reply ends, the next line is answered. Between them: the end."""
        p = self.started("chat", "-m", MODELS["long"], "-c", "60000", stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE)
        for _ in range(2):
            p.stdin.write(b"hi\n")
            p.stdin.flush()
            p.stdout.read1(1)
            p.send_signal(signal.SIGINT)
            self.assertEqual(p.stderr.readline(), b"[stopped]\n")
            os.set_blocking(p.stdout.fileno(), False)
            while p.stdout.read1(65536):
                pass
            os.set_blocking(p.stdout.fileno(), True)
        p.send_signal(signal.SIGINT)
        self.assertEqual(p.wait(PATIENCE), 130)


class Terminal:
    """hearth on a terminal of its own."""

    def __init__(self, case, *args, env=None):
        ours, theirs = pty.openpty()
        self.fd, self.seen = ours, b""
        self.p = case.started(*args, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
                              preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)),
                              env={**os.environ, "TERM": "xterm", "LC_ALL": "C", "HOME": str(case.dir),
                                   "XDG_STATE_HOME": str(case.dir / "state"), **(env or {})})
        os.close(theirs)
        case.addCleanup(os.close, ours)
        self.case = case

    def keys(self, keys):
        os.write(self.fd, keys if isinstance(keys, bytes) else keys.encode())

    def until(self, what, patience=PATIENCE):
        """Everything up to the next `what` (bytes or a pattern), which must come."""
        pattern = re.compile(re.escape(what) if isinstance(what, bytes) else what.encode(), re.S)
        end = time.monotonic() + patience
        while not (m := pattern.search(self.seen)):
            ready = select.select([self.fd], [], [], max(0, end - time.monotonic()))[0]
            try:
                more = os.read(self.fd, 65536) if ready else b""
            except OSError:
                more = b""
            self.case.assertTrue(more, f"no {what!r} in {self.seen[-500:]!r}")
            self.seen += more
        before, self.seen = self.seen[:m.end()], self.seen[m.end():]
        return before


    def prompt(self, what=b""):
        """`what`, the prompt behind it, and until keys are read one by one: before that Ctrl-C would drop them."""
        seen = self.until(what + b"\r\n> ")
        end = time.monotonic() + PATIENCE
        while termios.tcgetattr(self.fd)[3] & termios.ECHO:
            self.case.assertLess(time.monotonic(), end, "the terminal still echoes")
            time.sleep(0.005)
        return seen


class ChatTerminal(Case):
    def terminal(self, *args, model="bpe", **kwargs):
        t = Terminal(self, "chat", "-m", MODELS[model], *args, **kwargs)
        t.prompt()
        return t

    def said(self, t):
        """What the conversation holds, by /save."""
        path = self.dir / f"said-{time.monotonic_ns()}.json"
        t.keys(f"/save {path}\n")
        t.until(b"[saved as ")
        t.prompt()
        return [m["content"] for m in json.loads(path.read_text())["messages"] if m["role"] == "user"]

    def test_greeting(self):
        t = Terminal(self, "chat", "-m", MODELS["bpe"])
        self.assertIn(b"[random, Q8_0, context 512. /help lists the commands, Ctrl-D leaves.]\r\n", t.prompt())
        t.keys(b"\x04")
        self.assertEqual(t.p.wait(PATIENCE), 0)

    def test_editing(self):
        """Characters of several bytes are one key; arrows move; Ctrl-U clears."""
        t = self.terminal("-n", "2")
        t.keys("xx\x15d\u00e9\u4f60\x7fo\x1b[D\x1b[Dq\n")  # xx cleared, then dé你, the last gone, o, two left: q before é
        t.prompt()
        self.assertEqual(self.said(t), ["dq\u00e9o"])

    def test_history(self):
        t = self.terminal("-n", "2")
        for line in ("do it", "us"):
            t.keys(line + "\n")
            t.prompt()
        t.keys(b"\x1b[A\x1b[A\n")
        t.prompt()
        self.assertEqual(self.said(t), ["do it", "us", "do it"])
        t.keys("/quit\n")
        self.assertEqual(t.p.wait(PATIENCE), 0)
        state = self.dir / "state" / "hearth"
        self.assertEqual([(state / "history").stat().st_mode & 0o777, state.stat().st_mode & 0o777], [0o600, 0o700])
        t = self.terminal("-n", "2")  # another one, later
        t.keys(b"\x1b[A\x1b[A\x1b[A\n")  # /quit, /save, do it
        t.prompt()
        self.assertEqual(self.said(t), ["do it"])

    def test_history_in_home(self):
        t = self.terminal("-n", "2", env={"XDG_STATE_HOME": ""})
        t.keys("do\n")
        t.prompt()
        self.assertIn("do\n", (self.dir / ".local/state/hearth/history").read_text())

    def test_interrupt_ends_the_reply(self):
        for by_key in (True, False):
            t = self.terminal("-c", "60000", model="long")
            t.keys("hi\n")
            t.until("hi\r\n.{200}")  # it talks, and would go on to the end of the context
            if by_key:
                t.keys(b"\x03")
            else:
                t.p.send_signal(signal.SIGINT)
            t.prompt(b"[stopped]")
            t.keys("/stats\n")
            self.assertIn(b", cancelled\r\n", t.prompt())
            t.keys("/quit\n")
            self.assertEqual(t.p.wait(PATIENCE), 0)

    def drop(self, t, line):
        t.keys(line)
        t.until(line)  # Ctrl-C empties what the terminal still holds
        t.keys(b"\x03")
        t.prompt(b"^C")

    def test_interrupt_while_writing(self):
        """Drops the line; on an empty one a hint, and the second in a row leaves; a signal does what the key does."""
        hint = b"[Ctrl-C again or Ctrl-D leaves]"
        t = self.terminal("-n", "2")
        self.drop(t, b"do")
        t.keys(b"\x03")
        t.prompt(hint)
        t.keys("it\n")
        t.prompt()
        self.assertEqual(self.said(t), ["it"])
        t.p.send_signal(signal.SIGINT)
        t.prompt(hint)
        self.drop(t, b"us")  # not in a row
        t.keys(b"\x03")
        t.prompt(hint)
        t.keys(b"\x03")
        self.assertEqual(t.p.wait(PATIENCE), 0)

    def test_control_characters(self):
        """A reply's control characters never reach the terminal."""
        t = self.terminal("-n", "300", "--temp", "100", "--seed", "5")
        t.keys("do\n")
        shown = t.until("\\]\r\n> |\r\n> ").split(b"do\r\n", 1)[1].decode("utf-8", "replace")
        self.assertFalse([c for c in shown if (ord(c) < 32 and c not in "\r\n\t") or 127 <= ord(c) < 160])


class Bundled(Case):
    """A program that was installed: in bin, with share beside it."""

    def setUp(self):
        super().setUp()
        (self.dir / "bin").mkdir()
        self.models = self.dir / "share" / "hearth" / "models"
        self.models.mkdir(parents=True)
        self.program = self.dir / "bin" / "hearth"
        shutil.copy(cmd_rig.HEARTH[0], self.program)

    def call(self, *args, **env):
        return subprocess.run([self.program, *args], capture_output=True, timeout=PATIENCE, stdin=subprocess.DEVNULL,
                              env={**os.environ, "HEARTH_MODELS": str(self.dir), **env})

    def test_default(self):
        (self.models / "ember.gguf").symlink_to(MODELS["bpe"])
        want = self.ok("run", "-m", MODELS["bpe"], "-p", "hi", "-n", "5")
        for args in ([], ["-m", "ember"], ["-m", "ember.gguf"]):
            r = self.call("run", *args, "-p", "hi", "-n", "5")
            self.assertEqual((r.returncode, r.stdout, r.stderr), (0, want, b""), args)
        self.assertEqual(self.call("tokenize", "hi").stdout, b"104 105\n")
        self.assertEqual(self.call("inspect").returncode, 0)
        self.assertEqual(self.call("chat").returncode, 0)
        # A model of one's own of that name comes first.
        (self.dir / "ember.gguf").write_bytes(b"not a model")
        self.assertEqual(self.call("run", "-m", "ember", "-p", "hi").returncode, 1)
        self.assertEqual(self.call("run", "-p", "hi", "-n", "5").stdout, want)

    def test_none(self):
        if pathlib.Path("/usr/local/share/hearth/models/ember.gguf").exists():
            self.skipTest("hearth is installed on this machine: its model is found")
        for args in (["run", "-p", "x"], ["chat"], ["tokenize", "x"], ["inspect"]):
            r = self.call(*args)
            self.assertEqual((r.returncode, r.stdout), (2, b""), args)
            self.assertEqual(r.stderr, b"hearth: no model given and none bundled: use -m FILE\n")
        r = self.call("run", "-m", "ember", "-p", "x")
        self.assertEqual(r.returncode, 1)
        self.assertIn(b"-m ember: no such file", r.stderr)


EMBER = pathlib.Path(__file__).resolve().parents[2] / "models" / "ember" / "ember.gguf"


class Ember(Case):
    """The bundled model itself; a program in its build folder takes it from the source tree."""

    def test_is_the_default(self):
        want = self.ok("run", "-m", EMBER, "-p", "Hello!", "-n", "20")
        self.assertEqual(self.ok("run", "-p", "Hello!", "-n", "20"), want)
        self.assertEqual(self.ok("run", "-m", "ember", "-p", "Hello!", "-n", "20"), want)
        self.assertEqual(self.json("inspect")["name"], "Ember")
        self.assertEqual(json.loads(hearth("worker").out)["model"]["name"], "Ember")

    def test_holds_a_conversation(self):
        """Answers end by themselves, and each turn computes only its own part."""
        asked = ["What is hearth?", "Hello!", "What is the capital of France?"]
        r = hearth("chat", stdin="".join(f"{q}\n/stats\n" for q in asked).encode())
        self.assertEqual(r.rc, 0, r.err)
        prompts, replies = numbers(LAST_PROMPT, r.err.decode()), numbers(LAST_REPLY, r.err.decode())
        self.assertEqual([reply[1] for reply in replies], ["stop"] * 3)
        held = 0
        for (total, kept, _), (n, _) in zip(prompts, replies):
            self.assertEqual(kept, held)
            held = total + n
        self.assertIn("hearth", r.out.decode().split("\n")[0])

    def test_run_speaks_its_layout(self):
        """run and chat send the same ids: the same reply."""
        chat = hearth("chat", stdin=b"Tell me a story about a fox.\n")
        self.assertEqual((chat.rc, chat.err), (0, b""))
        self.assertEqual(self.ok("run", "-p", "Tell me a story about a fox."), chat.out)

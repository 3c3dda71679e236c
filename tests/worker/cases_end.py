"""PROTOCOL 2, the end: EOF, SIGTERM, a reader that is gone, stdout blocked."""
import fcntl
import json
import os
import signal
import socket
import subprocess
import time

import worker_client
from worker_client import Case, endless, segments, some_ids

EXIT_SIGINT, EXIT_OUTPUT_GONE, EXIT_SIGTERM = 130, 141, 143
LONG_PROMPT = {"prompt_segments": segments(some_ids(8100)), "max_new_tokens": 5}


def op(i, size=0):
    return {"op": "reset", "session_id": f"{i}-" + "x" * size}


class Eof(Case):
    def test_last_line_without_newline(self):
        """printf '{"prompt":"hi"}' | worker must answer."""
        run = subprocess.run([*worker_client.COMMAND, "-m", worker_client.MODELS["bpe"]], input=b'{"prompt":"hi"}',
                             capture_output=True, timeout=worker_client.PATIENCE, check=False)
        frames = [json.loads(x) for x in run.stdout.splitlines()]
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("ready", frames[0])
        self.assertIs(frames[-1]["done"], True)
        self.assertEqual(sum("done" in f for f in frames), 1)

    def test_nothing_to_do(self):
        w = self.worker()
        since = time.monotonic()
        w.close_stdin()
        self.assertIsNone(w.recv_line())
        self.assert_gone(w, 0, since)

    def test_everything_read_is_answered_in_order(self):
        w = self.worker()
        n = 200
        for i in range(n):
            w.send(op(i), {"prompt": "abc", "max_new_tokens": 3}, "{")
        w.send_raw(b'{"op":"open","session_id":"last"}')
        w.close_stdin()
        for i in range(n):
            self.assertEqual(w.recv(), {"reset": True, "session_id": f"{i}-"})
            self.assertEqual(w.recv_reply()[1]["completion_tokens"], 3)
            self.assertEqual(w.recv()["code"], "bad_request")
        self.assertEqual(w.recv(), {"opened": True, "session_id": "last"})
        self.assertIsNone(w.recv_line())
        self.assertEqual(w.wait(), 0)

    def test_a_long_reply_is_finished(self):
        w = self.worker(model="long")
        w.send({"prompt": "abc", "max_new_tokens": 1500})
        w.close_stdin()
        self.assertEqual(w.recv_reply()[1]["completion_tokens"], 1500)
        self.assertIsNone(w.recv_line())
        self.assertEqual(w.wait(), 0)


class Blocked(Case):
    """stdout is not read, and a reply runs that says far more than the pipe and the ring hold."""

    def blocked(self, **kwargs):
        w = self.worker(model="long", small_pipe=True, **kwargs)
        w.send(endless())
        self.assertIn("token", w.recv())  # it runs
        w.wait_until_quiet()              # and gets stuck
        return w

    def test_lines_are_read_and_eof_is_seen(self):
        w = self.blocked()
        lines = [op(i, 400) for i in range(1000)]  # 430 KB, far more than the pipe of stdin holds
        since = time.monotonic()
        w.send(*lines)
        self.assertLess(time.monotonic() - since, worker_client.GONE_IN)
        threads = self.threads(w)
        w.close_stdin()
        until = time.monotonic() + worker_client.GONE_IN
        while self.threads(w) == threads:  # the reader ends, while stdout is still blocked
            self.assertLess(time.monotonic(), until)
            time.sleep(0.01)
        _, done = w.recv_reply()
        self.assertEqual(done["completion_tokens"], 3500)
        for line in lines:
            self.assertEqual(w.recv(), {"reset": True, "session_id": line["session_id"]})
        self.assertIsNone(w.recv_line())
        self.assertEqual(w.wait(), 0)

    @staticmethod
    def threads(w):
        return len(os.listdir(f"/proc/{w.proc.pid}/task"))

    def test_at_most_1024_lines_wait(self):
        w = self.blocked()
        line = (json.dumps(op("n", 983)) + "\n").encode()
        assert len(line) < 1100
        sent = w.fill_stdin(line)
        taken = sent / len(line)
        self.assertGreaterEqual(taken, 1024)
        self.assertLess(taken, 1024 + 3 * 65536 / len(line))  # the rest fills the pipe and one read
        _, done = w.recv_reply()
        self.assertEqual(done["completion_tokens"], 3500)
        whole, part = divmod(sent, len(line))
        for _ in range(whole):
            self.assertIs(w.recv()["reset"], True)
        w.send_raw(line[part:] if part else b"")
        if part:
            self.assertIs(w.recv()["reset"], True)
        w.finish()

    def test_sigterm(self):
        w = self.blocked()
        since = time.monotonic()
        w.proc.send_signal(signal.SIGTERM)
        self.assert_gone(w, EXIT_SIGTERM, since)

    def test_sigterm_with_lines_waiting(self):
        w = self.blocked()
        w.send(*(op(i, 400) for i in range(900)))
        since = time.monotonic()
        w.proc.send_signal(signal.SIGTERM)
        self.assert_gone(w, EXIT_SIGTERM, since)

    def test_sigterm_after_eof(self):
        w = self.blocked()
        w.close_stdin()
        w.wait_until_quiet()
        since = time.monotonic()
        w.proc.send_signal(signal.SIGTERM)
        self.assert_gone(w, EXIT_SIGTERM, since)

    def test_sigterm_when_the_reader_waits_too(self):
        """Inbox full: reader, engine and writer all wait."""
        w = self.blocked()
        w.fill_stdin((json.dumps(op("n", 983)) + "\n").encode())
        since = time.monotonic()
        w.proc.send_signal(signal.SIGTERM)
        self.assert_gone(w, EXIT_SIGTERM, since)

    def test_reader_goes(self):
        w = self.blocked()
        since = time.monotonic()
        w.close_stdout()
        self.assert_gone(w, EXIT_OUTPUT_GONE, since)

    def test_only_the_end_is_blocked(self):
        """EOF, everything computed, the last frames do not fit: the worker waits for its reader, and loses nothing."""
        w = self.worker(small_pipe=True)
        w.send(*(op(i, 400) for i in range(30)))
        w.close_stdin()
        w.wait_until_quiet()
        self.assertIsNone(w.proc.poll())
        for i in range(30):
            self.assertEqual(w.recv()["session_id"], op(i, 400)["session_id"])
        self.assertIsNone(w.recv_line())
        self.assertEqual(w.wait(), 0)

    def test_a_stalled_reader_changes_no_reply(self):
        w = self.blocked()
        text, done = w.recv_reply()
        free = self.worker(model="long")
        _, want = free.generate(**endless())
        self.assertEqual(done["generated_token_ids"], want["generated_token_ids"])
        free.finish()
        w.finish()


class Signals(Case):
    def test_idle_costs_nothing(self):
        w = self.worker()
        w.wait_until_quiet(20)
        w.generate(prompt="abc", max_new_tokens=5)
        w.wait_until_quiet(20)
        w.finish()

    def test_sigterm_idle(self):
        w = self.worker()
        since = time.monotonic()
        w.proc.send_signal(signal.SIGTERM)
        self.assertIsNone(w.recv_line())
        self.assert_gone(w, EXIT_SIGTERM, since)

    def test_sigint_idle(self):
        w = self.worker()
        since = time.monotonic()
        w.proc.send_signal(signal.SIGINT)
        self.assert_gone(w, EXIT_SIGINT, since)

    def test_sigterm_in_prefill(self):
        w = self.worker(model="long")
        w.send(LONG_PROMPT)
        time.sleep(0.05)
        since = time.monotonic()
        w.proc.send_signal(signal.SIGTERM)
        self.assert_gone(w, EXIT_SIGTERM, since)
        self.assertFalse(b"done" in w.data)

    def test_sigterm_in_decode(self):
        """What runs is dropped, nothing later is answered; unless the reply was through before the signal came."""
        for _ in range(10):
            w = self.worker(model="long")
            w.send(endless(), op(1))
            self.assertIn("token", w.recv())
            since, frames = time.monotonic(), []
            w.proc.send_signal(signal.SIGTERM)
            while (line := w.recv_line()) is not None:
                frames.append(json.loads(line))
            self.assert_gone(w, EXIT_SIGTERM, since)
            if all("token" in f for f in frames):
                break
        else:
            self.fail("replies are finished all the same")

    def long_text(self):
        """Inside many seconds of tokenising: what runs is not waited for."""
        w = self.worker()
        w.send_raw(b'{"prompt":"' + b"the cat sat on the mat. " * 2500000 + b'"}\n')
        time.sleep(1)
        return w

    def test_sigterm_in_a_long_text(self):
        w = self.long_text()
        since = time.monotonic()
        w.proc.send_signal(signal.SIGTERM)
        self.assert_gone(w, EXIT_SIGTERM, since)

    def test_second_sigterm(self):
        w = self.long_text()
        since = time.monotonic()
        w.proc.send_signal(signal.SIGTERM)
        time.sleep(0.05)
        w.proc.send_signal(signal.SIGTERM)
        self.assert_gone(w, EXIT_SIGTERM, since)

    def test_reader_goes_in_a_long_text(self):
        w = self.long_text()
        since = time.monotonic()
        w.close_stdout()
        self.assert_gone(w, EXIT_OUTPUT_GONE, since)

    def test_reader_goes_when_idle(self):
        w = self.worker()
        since = time.monotonic()
        w.close_stdout()
        self.assert_gone(w, EXIT_OUTPUT_GONE, since)

    def test_reader_goes_in_prefill(self):
        w = self.worker(model="long")
        w.send(LONG_PROMPT)
        since = time.monotonic()
        w.close_stdout()
        self.assert_gone(w, EXIT_OUTPUT_GONE, since)

    def test_reader_goes_in_decode(self):
        w = self.worker(model="long")
        w.send(endless())
        self.assertIn("token", w.recv())
        since = time.monotonic()
        w.close_stdout()
        self.assert_gone(w, EXIT_OUTPUT_GONE, since)


class Descriptors(Case):
    def start_on(self, stdin, stdout, **kwargs):
        return self.worker(stdin=stdin, stdout=stdout, ready=False, **kwargs)

    def on_socket(self, **kwargs):
        ours, theirs = socket.socketpair()
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        w = self.start_on(theirs.fileno(), theirs.fileno(), **kwargs)
        theirs.close()
        w.to, w.frm = os.dup(ours.fileno()), os.dup(ours.fileno())
        self.assertIs(w.recv()["ready"], True)
        return w, ours

    def test_socket(self):
        w, ours = self.on_socket()
        w.generate(prompt="abc", max_new_tokens=30)
        w.send({"prompt": "abc", "max_new_tokens": 9})
        ours.shutdown(socket.SHUT_WR)  # half closed: EOF, but the reply still comes
        self.assertEqual(w.recv_reply()[1]["completion_tokens"], 9)
        self.assertIsNone(w.recv_line())
        self.assertEqual(w.wait(), 0)
        ours.close()

    def test_socket_closed_in_mid_reply(self):
        w, ours = self.on_socket(model="long")
        w.send(endless())
        self.assertIn("token", w.recv())
        since = time.monotonic()
        w.close_stdin()
        w.close_stdout()
        ours.close()
        self.assert_gone(w, EXIT_OUTPUT_GONE, since)

    def test_blocked_socket(self):
        w, ours = self.on_socket(model="long")
        w.send(endless())
        self.assertIn("token", w.recv())
        w.wait_until_quiet()
        w.send(*(op(i, 100) for i in range(500)))
        ours.shutdown(socket.SHUT_WR)
        self.assertEqual(w.recv_reply()[1]["completion_tokens"], 3500)
        for i in range(500):
            self.assertIs(w.recv()["reset"], True)
        self.assertEqual(w.wait(), 0)
        ours.close()

    def test_files(self):
        with open(os.path.join(os.path.dirname(worker_client.MODELS["bpe"]), "worker_out.jsonl"), "w+b") as out, \
                open(os.path.join(os.path.dirname(worker_client.MODELS["bpe"]), "worker_in.jsonl"), "w+b") as lines:
            lines.write(b'{"prompt":"abc","max_new_tokens":3}\n\n{"op":"open","session_id":"s"}')
            lines.flush()
            lines.seek(0)
            w = self.start_on(lines.fileno(), out.fileno())
            self.assertEqual(w.wait(), 0)
            out.seek(0)
            frames = [json.loads(x) for x in out]
            self.assertIs(frames[0]["ready"], True)
            self.assertEqual(frames[-1], {"opened": True, "session_id": "s"})
            self.assertEqual(sum("done" in f for f in frames), 1)

    def test_mode_of_our_end_is_left_alone(self):
        """The write end of the pipe is shared (2>&1): it must not become non-blocking for others."""
        frm, to = os.pipe()
        stdin, w_to = os.pipe()
        w = self.start_on(stdin, to)
        w.frm, w.to = frm, w_to
        self.assertIs(w.recv()["ready"], True)
        self.assertEqual(fcntl.fcntl(to, fcntl.F_GETFL) & os.O_NONBLOCK, 0)
        os.close(to)
        os.close(stdin)
        w.finish()

    def test_closed_at_the_start(self):
        """No file of the worker's takes the place of a descriptor that is not there."""
        for which in ("<&-", ">&-"):
            run = subprocess.run(["sh", "-c", f'exec "$@" {which}', "sh", *worker_client.COMMAND, "-m",
                                  worker_client.MODELS["bpe"]], capture_output=True, check=False,
                                 stdin=subprocess.DEVNULL, timeout=worker_client.PATIENCE)
            self.assertEqual((run.returncode, run.stdout), (2, b""))
            self.assertIn(b"not open", run.stderr)

    def test_empty_stdin(self):
        with open(os.devnull, "rb") as nothing:
            frm, to = os.pipe()
            w = self.start_on(nothing.fileno(), to)
            os.close(to)
            w.frm = frm
            self.assertIs(w.recv()["ready"], True)
            self.assertIsNone(w.recv_line())
            self.assertEqual(w.wait(), 0)

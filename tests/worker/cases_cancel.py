"""PROTOCOL 3(b): the cancel pipe, as a plain client has it. What ids mean is tested state by state in test_cancel_gate.c
and test_reply.c; here are the descriptor, the environment and the timing."""
import fcntl
import os
import socket
import tempfile
import time

from worker_client import Case, endless, segments, some_ids

FD, OTHER_FD = "HEARTH_WORKER_CONTROL_FD", "EXECUTORCH_LLM_WORKER_CONTROL_FD"


def frame(number):
    return number.to_bytes(8, "little")


class PipeCase(Case):
    def pipe(self):
        frm, to = os.pipe()
        self.ends = getattr(self, "ends", [])
        self.ends += [frm, to]
        self.addCleanup(self.close, frm, to)
        return frm, to

    def close(self, *fds):
        for fd in fds:
            if fd in self.ends:
                self.ends.remove(fd)
                os.close(fd)

    def on_pipe(self, frm, *args, **kwargs):
        w = self.worker(*args, env={FD: str(frm)}, pass_fds=(frm,), **kwargs)
        self.assertIs(w.ready["supports_cancel"], True)
        return w

    def with_pipe(self, *args, **kwargs):
        frm, to = self.pipe()
        return self.on_pipe(frm, *args, **kwargs), to

    def cancelled(self, reply, tokens=None):
        text, done = reply
        self.assertEqual((done.get("reason"), done.get("cancelled"), done.get("finish_reason")),
                         ("cancelled", True, "stop"), done)
        self.assertNotIn("generated_token_ids", done)
        if tokens is not None:
            self.assertEqual((done["completion_tokens"], text), (tokens, ""))
        return done

    def whole(self, reply):
        self.assertNotEqual(reply[1].get("reason"), "cancelled", reply[1])
        self.assertNotIn("cancelled", reply[1])
        return reply[1]


class Descriptors(PipeCase):
    def fds_of(self, w):
        return {int(n): os.readlink(f"/proc/{w.proc.pid}/fd/{n}") for n in os.listdir(f"/proc/{w.proc.pid}/fd")}

    def refused(self, value, *, name=FD, pass_fds=()):
        w = self.worker(env={name: value}, pass_fds=pass_fds)
        self.assertIs(w.ready["supports_cancel"], False)
        e = w.error({"prompt": "a", "cancel_request_id": 1})  # not supported here
        self.assertEqual((e["code"], e["field"]), ("unsupported", "cancel_request_id"))
        w.generate(prompt="a", max_new_tokens=1)  # and no error otherwise
        return w

    def test_texts_that_are_no_descriptor(self):
        for value in ("", " ", "x", "-1", "+7", "7 ", "7.0", "0x7", "2147483648", "99999999999999999999"):
            self.refused(value).finish()

    def test_a_number_with_a_long_tail(self):
        frm, to = self.pipe()
        for tail in ("x", " " * 64, "x" * 100):
            self.refused(str(frm).rjust(64, "0") + tail, pass_fds=(frm,)).finish()
        self.close(frm, to)

    def test_standard_descriptors_are_left_alone(self):
        for value in ("0", "1", "2", "00", "02"):
            w = self.refused(value)  # stdin is a FIFO, and readable: it still is stdin
            self.assertEqual({0, 1, 2} - set(self.fds_of(w)), set())
            w.finish()

    def test_refused_ones_above_two_are_closed(self):
        frm, to = self.pipe()
        ours, theirs = socket.socketpair()
        with open(os.devnull, "rb") as null, tempfile.TemporaryFile() as file, ours, theirs:
            for fd in (null.fileno(), file.fileno(), theirs.fileno(), to):  # the last one is not readable
                what = os.readlink(f"/proc/self/fd/{fd}")
                w = self.refused(str(fd), pass_fds=(fd,))
                self.assertNotEqual(self.fds_of(w).get(fd), what)
                w.finish()
        self.refused("1000").finish()  # not open at all
        self.close(frm, to)

    def test_at_its_end_at_start(self):
        frm, to = self.pipe()
        self.close(to)
        w = self.refused(str(frm), pass_fds=(frm,))
        w.finish()

    def test_accepted(self):
        frm, to = self.pipe()
        w = self.on_pipe(frm)
        self.assertTrue(fcntl.fcntl(frm, fcntl.F_GETFL) & os.O_NONBLOCK)
        with open(f"/proc/{w.proc.pid}/fdinfo/{frm}", encoding="ascii") as f:
            flags = int(next(x for x in f if x.startswith("flags:")).split()[1], 8)
        self.assertTrue(flags & os.O_CLOEXEC)
        self.assertTrue(flags & os.O_NONBLOCK)
        self.close(to)
        w.finish()

    def test_which_variable(self):
        frm, _ = self.pipe()
        w = self.worker(env={OTHER_FD: str(frm)}, pass_fds=(frm,))
        self.assertIs(w.ready["supports_cancel"], True)
        w.finish()
        w = self.worker(env={FD: "", OTHER_FD: str(frm)}, pass_fds=(frm,))  # ours counts, whatever it holds
        self.assertIs(w.ready["supports_cancel"], False)
        w.finish()
        other, _ = self.pipe()
        w = self.worker(env={FD: str(frm), OTHER_FD: str(other)}, pass_fds=(frm, other))
        self.assertIs(w.ready["supports_cancel"], True)
        w.finish()


class Frames(PipeCase):
    def test_before_ready(self):
        frm, to = self.pipe()
        os.write(to, frame(7) + frame(8))
        w = self.on_pipe(frm)
        self.cancelled(w.ask({"prompt": "abc", "cancel_request_id": 7}), 0)
        self.whole(w.ask({"prompt": "abc", "cancel_request_id": 8, "max_new_tokens": 3}))
        w.finish()

    def test_decode(self):
        w, to = self.with_pipe(model="long", small_pipe=True)
        w.send({**endless(), "cancel_request_id": 3, "session_id": "s"})
        self.assertIn("token", w.recv())
        os.write(to, frame(3))
        done = self.cancelled(w.recv_reply())
        self.assertLess(done["completion_tokens"], 3500)
        _, again = w.generate(prompt="x", session_id="s", max_new_tokens=1)
        self.assertEqual(again["session_reset_reason"], "dirty")
        w.finish()

    def test_prefill(self):
        w, to = self.with_pipe(model="long")
        for number in range(1, 11):
            w.send({"prompt_segments": segments(some_ids(8100, number)), "max_new_tokens": 1, "cancel_request_id": number})
            time.sleep(0.02)
            os.write(to, frame(number))
            reply = w.recv_reply()
            if "cancelled" in reply[1]:  # else it was through before the cancel was written
                done = self.cancelled(reply, 0)
                self.assertLessEqual(done["prefilled_prompt_tokens"], 8100)
                self.assertEqual(done["reused_prompt_tokens"], 0)
                break
        else:
            self.fail("no cancel acts in a prefill")
        w.finish()

    def test_behind_another(self):
        """Nobody is active while one without an id runs: the first id takes the slot, for whichever comes. While one with an id runs
        the id of the next is dropped."""
        w, to = self.with_pipe(model="long", small_pipe=True)
        w.send(endless(), {"prompt": "abc", "cancel_request_id": 5}, {"prompt": "abc", "max_new_tokens": 3, "cancel_request_id": 6})
        self.assertIn("token", w.recv())
        os.write(to, frame(5) + frame(6))
        w.wait_until_quiet()
        self.assertEqual(self.whole(w.recv_reply())["completion_tokens"], 3500)
        self.assertEqual(self.cancelled(w.recv_reply(), 0)["prefilled_prompt_tokens"], 0)
        self.whole(w.recv_reply())
        w.send({**endless(), "cancel_request_id": 7}, {"prompt": "abc", "max_new_tokens": 3, "cancel_request_id": 8})
        self.assertIn("token", w.recv())
        os.write(to, frame(8) + frame(7))
        w.wait_until_quiet()
        self.cancelled(w.recv_reply())
        self.whole(w.recv_reply())
        w.finish()

    def test_long_text(self):
        """It is not active while its text is made into tokens: its id takes the slot, and acts before anything is computed; one that
        is refused has used it up."""
        w, to = self.with_pipe(model="long")
        for number, text in (1, "the cat sat on the mat. " * 400), (2, "the cat sat on the mat. " * 300000):
            w.send({"prompt": text, "cancel_request_id": number})
            os.write(to, frame(number))
            reply = w.recv_reply()
            if number == 1:
                self.assertEqual(self.cancelled(reply, 0)["reused_prompt_tokens"], 0)
            else:
                self.assertEqual(reply[1]["code"], "context_length_exceeded")
            self.assertEqual(w.error({"prompt": "a", "cancel_request_id": number})["field"], "cancel_request_id")
        w.finish()

    def test_split(self):
        w, to = self.with_pipe(model="long", small_pipe=True)
        for i, cut in enumerate((1, 4, 7), 1):
            w.send({**endless(), "cancel_request_id": i})
            self.assertIn("token", w.recv())
            os.write(to, frame(i)[:cut])
            self.assertIn("token", w.recv())
            time.sleep(0.02)
            os.write(to, frame(i)[cut:])
            self.cancelled(w.recv_reply())
        w.finish()

    def test_stale_repeated_and_foreign_ids(self):
        w, to = self.with_pipe()
        self.whole(w.ask({"prompt": "a", "max_new_tokens": 1, "cancel_request_id": 10}))
        os.write(to, b"".join(map(frame, (0, 1, 9, 10))))  # stale: none takes the slot
        os.write(to, frame(12) * 3 + frame(11))
        w.wait_until_quiet()
        self.cancelled(w.ask({"prompt": "a", "cancel_request_id": 12}), 0)
        self.assertEqual(w.error({"prompt": "a", "cancel_request_id": 12})["field"], "cancel_request_id")
        self.assertEqual(w.error({"prompt": "a", "cancel_request_id": 11})["field"], "cancel_request_id")
        os.write(to, frame(30))
        w.wait_until_quiet()
        self.whole(w.ask({"prompt": "a", "max_new_tokens": 1, "cancel_request_id": 20}))  # 30 is forgotten
        self.whole(w.ask({"prompt": "a", "max_new_tokens": 1, "cancel_request_id": 30}))
        w.finish()

    def test_any_id(self):
        w, to = self.with_pipe()
        for number in (1, 255, 256, (1 << 31) - 1, 1 << 32, 1 << 53, (1 << 53) + 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1):
            os.write(to, frame(number))
            w.wait_until_quiet()
            self.cancelled(w.ask({"prompt": "a", "cancel_request_id": number}), 0)
        for bad in (1 << 64, 1 << 65, -1, 0, 1.0, "1", None, True, [1]):
            e = w.error({"prompt": "a", "cancel_request_id": bad})
            self.assertIn(e["code"], ("invalid_field", "bad_request"))
        w.finish()

    def test_writers_leave_later(self):
        w, to = self.with_pipe()
        os.write(to, frame(5) + b"\x06\0\0")  # and half a frame
        self.close(to)
        w.wait_until_quiet()
        self.cancelled(w.ask({"prompt": "a", "cancel_request_id": 5}), 0)
        for i in range(6, 9):
            self.whole(w.ask({"prompt": "a", "max_new_tokens": 2, "cancel_request_id": i}))
        w.wait_until_quiet()  # the end of the pipe keeps nobody busy
        w.finish()

    def test_noise(self):
        """Megabytes of ids that mean nothing change nothing."""
        w, to = self.with_pipe()
        text, want = w.generate(prompt="abc", max_new_tokens=200)
        w.send({"prompt": "abc", "max_new_tokens": 200, "cancel_request_id": 1 << 60})
        for i in range(300):
            os.write(to, b"".join(frame(i * 500 + k) for k in range(500)))
        self.assertEqual((text, want["generated_token_ids"]),
                         (lambda r: (r[0], self.whole(r)["generated_token_ids"]))(w.recv_reply()))
        w.finish()

    def test_no_cancel_for_the_other_dialect(self):
        w, _ = self.with_pipe()
        w.send({"id": "x", "op": "generate", "prompt": "a", "cancel_request_id": 1})
        self.assertEqual(w.recv_of("x")["field"], "cancel_request_id")
        w.finish()


class Blocked(PipeCase):
    """stdout is not read."""

    def test_cancel_acts(self):
        w, to = self.with_pipe(model="long", small_pipe=True)
        w.send({**endless(), "cancel_request_id": 1})
        self.assertIn("token", w.recv())
        w.wait_until_quiet()
        os.write(to, frame(1))
        w.wait_until_quiet()
        self.assertLess(self.cancelled(w.recv_reply())["completion_tokens"], 3500)
        w.finish()

    def test_pipe_is_read_while_the_inbox_is_full(self):
        """The reader waits for room, and still reads the control pipe."""
        w, to = self.with_pipe(model="long", small_pipe=True)
        w.send({**endless(), "cancel_request_id": 1})
        self.assertIn("token", w.recv())
        w.wait_until_quiet()
        line = b'{"op":"reset","session_id":"' + b"x" * 1000 + b'"}\n'
        sent = w.fill_stdin(line)
        self.assertGreaterEqual(sent // len(line), 1024)
        os.write(to, frame(1))
        w.wait_until_quiet()
        self.assertLess(self.cancelled(w.recv_reply())["completion_tokens"], 3500)
        whole, part = divmod(sent, len(line))
        for _ in range(whole):
            self.assertIs(w.recv()["reset"], True)
        w.send_raw(line[part:] if part else b"")
        if part:
            self.assertIs(w.recv()["reset"], True)
        w.finish()

    def test_seal(self):
        """All is decided, the last frames are not written: its own cancel changes nothing, the next one's is dropped."""
        w, to = self.with_pipe(model="long", small_pipe=True)
        request = {**endless(), "max_new_tokens": 800}  # more than the pipe holds, less than the worker does
        w.send({**request, "cancel_request_id": 1})
        w.wait_until_quiet()
        os.write(to, frame(1) + frame(2))
        w.wait_until_quiet()
        done = self.whole(w.recv_reply())
        self.assertEqual((done["reason"], done["completion_tokens"]), ("length", 800))
        self.whole(w.ask({"prompt": "a", "max_new_tokens": 2, "cancel_request_id": 2}))
        os.write(to, frame(3))
        w.wait_until_quiet()
        self.cancelled(w.ask({"prompt": "a", "cancel_request_id": 3}), 0)
        w.finish()

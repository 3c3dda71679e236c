"""PROTOCOL 4: what a session has read, out of one worker and into another: export, import, prewarm, probe, and what follows a line.
What comes after an import is compared with what a lone cold worker says, number by number."""
import glob
import json
import os
import re
import select
import subprocess
import tempfile
import time

import worker_client
from worker_client import Case, segments, some_ids

ASK = {"max_new_tokens": 12, "seed": 5, "temperature": 0.9, "logprobs": True, "top_logprobs": 5}


class KeptCase(Case):
    n_asked = 0

    def start(self, *args, **kwargs):
        """A worker of the command that has --cpu and --kv-type."""
        if os.path.basename(worker_client.COMMAND[0]) == "worker_main" and args:
            self.skipTest("worker_main has no such options")
        return self.worker(*args, **kwargs)

    def read_bytes(self, w, n):
        while len(w.data) < n:
            ready, _, _ = select.select([w.frm], [], [], worker_client.PATIENCE)
            self.assertTrue(ready)
            more = os.read(w.frm, 1 << 20)
            self.assertTrue(more)
            w.data += more
        data, w.data = w.data[:n], w.data[n:]
        return data

    def session(self, w, action, session="s", attached=None, **fields):
        """The one frame that answers; an export with its bytes. Nothing else may run meanwhile."""
        self.n_asked += 1
        name = f"op{self.n_asked}"
        line = {"id": name, "op": "session", "action": action, "session_id": session, **fields}
        w.send_raw(json.dumps(line).encode() + b"\n" + (attached or b""))
        f = w.recv()
        self.assertEqual(f["id"], name)
        return f if "attach" not in f else (f, self.read_bytes(w, f["attach"]))

    def say(self, w, ids, session=None, **fields):
        """Ids, log-probabilities and done frame of a reply."""
        self.n_asked += 1
        name = f"gen{self.n_asked}"
        w.send({"id": name, "op": "generate", "prompt_segments": segments(ids), **ASK, **fields,
                **({"session_id": session} if session else {})})
        frames = w.recv_until_last(name)
        self.assertIn("done", frames[-1], frames[-1])
        return [x for f in frames if "token" in f for x in f["ids"]], [f["logprobs"] for f in frames if f.get("ids")], frames[-1]

    def cold(self, ids, *args, model="bpe", **fields):
        w = self.start("--no-warm", *args, model=model)
        said = self.say(w, ids, **fields)[:2]
        w.finish()
        return said

    def chunks(self, w, total, size, session="s"):
        for at in range(0, total, size):
            f, data = self.session(w, "export", session, **{"from": at, "count": min(size, total - at)})
            self.assertEqual(f["export"], {"session_id": session, "from": at, "count": min(size, total - at), "tokens": total})
            yield data

    def put(self, w, data, session="s", **fields):
        f = self.session(w, "import", session, data, attach=len(data), **fields)
        return f["import"] if "import" in f else f


class Moving(KeptCase):
    def test_into_others(self):
        """Another session's namespace, another process, another instruction set, another number of threads: in chunks of every
        kind; what is said next is the cold, lone run's, and only the tail is computed."""
        ids = some_ids(150)
        a = self.worker()
        said, _, done = self.say(a, ids, "s")
        known = ids + said  # the last token of a `length` end is forwarded
        self.assertEqual(done["reason"], "length")
        nexts = known + [80, 81, 82]
        want = self.cold(nexts)
        workers = [("a session of the same worker", a, {"cache_namespace": "x"}), ("a process", self.worker(), {})]
        if os.path.basename(worker_client.COMMAND[0]) != "worker_main":
            sets = subprocess.run([worker_client.COMMAND[0], "doctor"], capture_output=True, text=True, check=True).stdout
            for name in re.findall(r"^  (\w+) +yes$", sets, re.M):
                workers.append((name, self.start("--cpu", name, "--threads", "1"), {}))
        for i, (name, w, where) in enumerate(workers):
            with self.subTest(name):
                for data in self.chunks(a, len(known), (33, 500, 32, 100, 7, 64)[i % 6]):
                    self.assertNotIn("error", self.put(w, data, "t", **where))
                probe = self.session(w, "probe", "t", **where)["probe"]
                self.assertEqual((probe["tokens"], probe["count"], probe["in_memory"]), (len(known),) * 3)
                ids_, logprobs, done = self.say(w, nexts, "t", **where)
                self.assertEqual((ids_, logprobs), want)
                self.assertEqual((done["session_reset_reason"], done["cached_prompt_tokens"]), ("exact_prefix", len(known)))
                self.assertNotIn("cache_miss", done)
        for w in {w for _, w, _ in workers}:
            w.finish()

    def test_there_and_back(self):
        """The same bytes come out where they went in."""
        a, b = self.worker(), self.worker()
        self.say(a, some_ids(100), "s")
        (whole,) = self.chunks(a, 112, 500)
        self.put(b, whole)
        self.assertEqual(next(self.chunks(b, 112, 500)), whole)
        a.finish()
        b.finish()

    def test_refused(self):
        """What cannot be right changes nothing and makes nothing."""
        a, b = self.worker(), self.worker()
        ids = some_ids(100)
        self.say(a, ids, "s", max_new_tokens=1)
        head, tail = self.chunks(a, 101, 60)
        for data, field in ((tail, "from"), (head[:-1], "checksum"), (head + b"x", "checksum"), (b"not ours", "magic"),
                            (head[:50] + bytes([head[50] ^ 1]) + head[51:], "checksum")):
            e = self.put(b, data, "t")
            self.assertEqual((e["code"], e["field"], e["session_id"]), ("invalid_field", field, "t"))
            self.assertFalse(self.session(b, "get", "t")["session"]["known"])
        self.say(b, ids[:40] + [90] * 30, "t", max_new_tokens=1)
        e = self.put(b, head, "t")  # other tokens in the overlap
        self.assertEqual((e["code"], e["field"]), ("invalid_field", "ids"))
        self.assertEqual(self.session(b, "get", "t")["session"]["tokens"], 71)
        small = self.start("--ctx", "64", model="bpe")
        (whole,) = self.chunks(a, 101, 500)
        self.assertEqual(self.put(small, whole)["code"], "invalid_field")
        for w in (a, b, small):
            w.finish()

    def test_other_kinds(self):
        """Another KV type, another model, other settings: refused with the reason."""
        a = self.worker()
        self.say(a, some_ids(100), "s")
        (whole,) = self.chunks(a, 112, 500)
        for args, model, field in ((("--kv-type", "bf16"), "bpe", "kv_type"), (("--kv-type", "q8_0"), "bpe", "kv_type"),
                                   ((), "long", "layers"), ((), "spm", "identity"), (("--ctx", "500"), "bpe", "identity")):
            w = self.start(*args, model=model)
            e = self.put(w, whole)
            self.assertEqual((e["code"], e["field"]), ("invalid_field", field), (args, model))
            w.finish()
        w = self.worker("--no-warm")
        e = self.put(w, whole)
        self.assertEqual((e["code"], e["field"]), ("unsupported", "action"))
        w.finish()
        a.finish()

    def test_kv_types(self):
        for kind in ("f32", "bf16", "q8_0"):
            a, b = self.start("--kv-type", kind), self.start("--kv-type", kind)
            known = some_ids(90)
            known += self.say(a, known, "s")[0]
            for data in self.chunks(a, len(known), 40):
                self.assertNotIn("error", self.put(b, data))
            ids, logprobs, done = self.say(b, known + [70], "s")
            self.assertEqual(done["cached_prompt_tokens"], len(known))
            self.assertEqual((ids, logprobs), self.cold(known + [70], "--kv-type", kind))
            a.finish()
            b.finish()


class Coming(KeptCase):
    def test_prewarm(self):
        """The tokens are known and their pages served somebody else: they are computed again, for nobody to notice."""
        w = self.worker("--max-sessions", "2", model="long", small_pipe=False)
        ids = some_ids(300)
        known = ids + self.say(w, ids, "s")[0]
        before = self.session(w, "get")
        f = self.session(w, "prewarm")["prewarmed"]
        self.assertEqual(f, {"session_id": "s", "tokens": len(known), "prefilled": 0})
        f = self.session(w, "prewarm", cache_namespace="other")["prewarmed"]
        self.assertEqual(f["prefilled"], len(known))
        self.assertEqual(self.session(w, "get")["session"], before["session"])
        ids_, logprobs, done = self.say(w, known + [65], "s", cache_namespace="other")
        self.assertEqual(done["cached_prompt_tokens"], len(known))
        self.assertEqual((ids_, logprobs), self.cold(known + [65], model="long"))
        w.finish()

    def test_miss(self):
        """cache_miss says from where on something was computed though something else, or nothing any more, was kept."""
        w = self.worker()
        ids = some_ids(100)
        self.assertNotIn("cache_miss", self.say(w, ids, "s")[2])
        done = self.say(w, ids[:70] + [80] * 9, "s")[2]
        self.assertEqual(done["cache_miss"], {"at": 70, "reason": "differs"})
        done = self.say(w, ids[:40] + [80] * 9)[2]  # also to who comes without a session
        self.assertEqual((done["cache_miss"]["at"], done["cache_miss"]["reason"]), (40, "differs"))
        self.assertNotIn("cache_miss", self.say(w, ids[:40] + [80] * 9, cache_namespace="x")[2])
        w.finish()


class Saved(KeptCase):
    """FAILURES P5: save, erase, restore, also after a restart, with other threads, another set, another KV type."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.store = os.path.join(folder.name, "kv", "deeper")

    def keeping(self, *args, **kwargs):
        return self.start("--store", self.store, *args, **kwargs)

    def file(self, name):
        """That of a saved session."""
        (found,) = glob.glob(f"{self.store}/*/{name}.session")
        return found

    def save(self, w, ids, name="n", session="s"):
        """A turn and its save; the tokens that it knows."""
        known = ids + self.say(w, ids, session)[0]
        f = self.session(w, "save", session, name=name)
        self.assertEqual(f["saved"], {"session_id": session, "name": name, "tokens": len(known)})
        return known

    def test_same_process(self):
        w = self.keeping()
        known = self.save(w, some_ids(200))
        self.assertEqual(self.session(w, "close")["closed"], True)
        f = self.session(w, "restore", "t", name="n")
        self.assertEqual(f["restored"], {"session_id": "t", "name": "n", "tokens": len(known)})
        ids, logprobs, done = self.say(w, known + [70], "t")
        self.assertEqual((done["session_reset_reason"], done["cached_prompt_tokens"]), ("exact_prefix", len(known)))
        self.assertEqual((ids, logprobs), self.cold(known + [70]))
        # down again, and the reset reason is that of the tokens it has now
        self.session(w, "restore", "t", name="n")
        self.assertEqual(self.session(w, "get", "t")["session"]["tokens"], len(known))
        self.assertEqual(self.say(w, known[:150] + [71], "t")[2]["session_reset_reason"], "prefix")
        w.finish()

    def test_after_a_restart(self):
        """Whole pages come from disk, the rest is computed; what is said is the cold run's, bit for bit."""
        a = self.keeping()
        known = self.save(a, some_ids(230))
        a.finish()
        want = self.cold(known + [70])
        for args in ((), ("--threads", "1"), ("--cpu", "ref"), ("--cpu", "avx2", "--threads", "1")):
            with self.subTest(args):
                w = self.keeping(*args)
                self.assertEqual(self.session(w, "restore", name="n")["restored"]["tokens"], len(known))
                self.assertEqual(self.session(w, "probe")["probe"]["in_memory"], 0)
                ids, logprobs, done = self.say(w, known + [70], "s")
                self.assertEqual((done["session_reset_reason"], done["cached_prompt_tokens"]),
                                 ("exact_prefix", len(known) // 32 * 32))
                self.assertEqual((ids, logprobs), want)
                w.finish()

    def test_prewarm_after_a_restart(self):
        a = self.keeping()
        known = self.save(a, some_ids(230))
        a.finish()
        w = self.keeping()
        self.session(w, "restore", name="n")
        f = self.session(w, "prewarm")["prewarmed"]
        self.assertEqual((f["tokens"], f["prefilled"]), (len(known), len(known) % 32))
        self.assertEqual(self.session(w, "probe")["probe"]["in_memory"], len(known))
        done = self.say(w, known + [70], "s")[2]
        self.assertEqual((done["cached_prompt_tokens"], done["prefilled_prompt_tokens"]), (len(known), 1))
        w.finish()

    def test_imported_pages_are_stored(self):
        """What came from another worker is not read again after a restart either."""
        a = self.worker()
        self.say(a, some_ids(100), "s")
        (whole,) = self.chunks(a, 112, 500)
        a.finish()
        b = self.keeping()
        self.put(b, whole)
        self.session(b, "save", name="n")
        b.finish()
        w = self.keeping()
        self.session(w, "restore", name="n")
        until = time.monotonic() + worker_client.PATIENCE
        while (stored := self.session(w, "probe")["probe"]["stored"]) != 96:  # the store may not have looked yet
            self.assertEqual(stored, 0)
            self.assertLess(time.monotonic(), until)
        w.finish()

    def test_mismatch(self):
        """Refused with the reason; what is there stays for whom it fits."""
        a = self.keeping()
        known = self.save(a, some_ids(100))
        a.finish()
        for args, part in ((("--kv-type", "q8_0"), "kv type f16, this worker keeps q8_0"), (("--ctx", "500"), "settings"),
                           (("--ctx", "64"), "more tokens than the context")):
            w = self.keeping(*args)
            e = self.session(w, "restore", name="n")
            self.assertEqual((e["code"], e["field"], e["session_id"]), ("invalid_field", "name", "s"))
            self.assertIn(part, e["error"])
            self.assertFalse(self.session(w, "get")["session"]["known"])
            w.finish()
        other = self.keeping(model="spm")  # a folder of its own: it does not even see it
        self.assertEqual(self.session(other, "restore", name="n")["code"], "unknown_id")
        other.finish()
        w = self.keeping()
        self.assertEqual(self.session(w, "restore", name="n")["restored"]["tokens"], len(known))
        w.finish()

    def test_names(self):
        w = self.keeping()
        longest = "x" * 64
        self.save(w, some_ids(40), longest)
        first = self.save(w, some_ids(50, 1), "a.b-C_9")
        self.save(w, some_ids(60, 2), "a.b-C_9", "other")  # takes its place
        self.assertEqual(self.session(w, "restore", name="a.b-C_9")["restored"]["tokens"], 72)
        self.assertEqual(len(first), 62)
        for bad in ("", ".", "..", ".a", "a/b", "../a", "/etc/passwd", "x" * 65, "a b", "\u00e9", 7, None):
            for action in ("save", "restore", "drop"):
                e = self.session(w, action, name=bad)
                self.assertEqual((e["code"], e["field"]), ("invalid_field", "name"))
        self.assertEqual(self.session(w, "drop", "whoever", name=longest)["dropped"], {"session_id": "whoever", "name": longest, "tokens": 52})
        for action in ("drop", "restore"):
            e = self.session(w, action, name=longest)
            self.assertEqual((e["code"], e["field"]), ("unknown_id", "name"))
        e = self.session(w, "save", "nobody", name="n")
        self.assertEqual((e["code"], e["field"]), ("unknown_id", "session_id"))
        w.finish()
        self.assertEqual([os.path.basename(x) for x in glob.glob(f"{self.store}/*/*.session")], ["a.b-C_9.session"])
        self.assertEqual(glob.glob(f"{self.store}/*/*.tmp"), [])

    def test_damaged(self):
        """Deleted, told, and unknown from then on; its pages are still found by who says the tokens."""
        a = self.keeping()
        known = self.save(a, some_ids(100))
        path = self.file("n")
        with open(path, "r+b") as f:
            f.seek(100)
            byte = f.read(1)[0]
            f.seek(100)
            f.write(bytes([byte ^ 4]))
        e = self.session(a, "restore", "t", name="n")
        self.assertEqual((e["code"], e["field"]), ("invalid_field", "name"))
        self.assertIn("damaged", e["error"])
        self.assertFalse(os.path.exists(path))
        self.assertEqual(self.session(a, "restore", "t", name="n")["code"], "unknown_id")
        self.assertFalse(self.session(a, "get", "t")["session"]["known"])
        a.finish()
        w = self.keeping()
        self.assertEqual(self.say(w, known + [70], "s")[2]["cached_prompt_tokens"], len(known) // 32 * 32)
        w.finish()

    def test_read_only(self):
        """A folder that is no longer writable: refused, and the service goes on. (Root writes everywhere: the folder goes.)"""
        w = self.keeping()
        known = self.save(w, some_ids(100))
        (folder,) = glob.glob(f"{self.store}/*")
        os.chmod(folder, 0o500)
        if os.geteuid() == 0:
            os.rename(folder, folder + "-gone")
            os.mkdir(folder)
        e = self.session(w, "save", name="m")
        if "error" in e:  # the descriptor may still lead to where it was
            self.assertIn(e["code"], ("unsupported", "capacity_exhausted"))
        self.assertEqual(self.say(w, known + [70], "s")[2]["cached_prompt_tokens"], len(known))
        if os.geteuid() == 0:
            os.rmdir(folder)
            os.rename(folder + "-gone", folder)
        os.chmod(folder, 0o700)
        w.finish()

    def test_two_workers(self):
        """One saves, the other restores, while both live."""
        a, b = self.keeping(), self.keeping()
        known = self.save(a, some_ids(100))
        self.assertEqual(self.session(b, "restore", name="n")["restored"]["tokens"], len(known))
        ids, logprobs, done = self.say(b, known + [70], "s")
        self.assertEqual(done["session_reset_reason"], "exact_prefix")
        self.assertEqual((ids, logprobs), self.cold(known + [70]))
        a.finish()
        b.finish()

    def test_no_store(self):
        for w in (self.worker(), self.keeping("--no-warm")):
            for action in ("save", "restore", "drop"):
                e = self.session(w, action, name="n")
                self.assertEqual((e["code"], e["field"]), ("unsupported", "action"))
            w.finish()


class Following(KeptCase):
    """What follows a line is never taken for lines."""
    POISON = b'x\n{"op":"shutdown"}\n{"id":"p","op":"stats"}\n' * 3

    def test_refused_lines(self):
        w = self.worker()
        n = len(self.POISON)
        lines = [({"op": "session", "action": "import", "session_id": ""}, "session_id"), ({"op": "stats"}, "attach"),
                 ({"op": "session", "action": "import"}, "session_id"), ({"op": "generate", "prompt": "a"}, "attach"),
                 ({"op": "session", "action": "export", "session_id": "s", "from": 0, "count": 1}, "attach"),
                 ({"op": "nonsense"}, "op"), ({"op": "session", "action": "import", "session_id": "s", "x": 1}, "x")]
        for line, field in lines:
            w.send_raw(json.dumps({"id": "r", **line, "attach": n}).encode() + b"\n" + self.POISON)
            f = w.recv()
            self.assertEqual((f["id"], f["field"]), ("r", field))
        e = self.put(w, self.POISON)
        self.assertEqual((e["code"], e["field"]), ("invalid_field", "magic"))
        for bad in (0, 67108865):
            e = self.session(w, "import", attached=b"y" * bad, attach=bad)
            self.assertEqual((e["code"], e["field"]), ("invalid_field", "attach"))
        w.finish()

    def test_largest(self):
        w = self.worker()
        e = self.put(w, b"hearthkv" + bytes(67108864 - 8))
        self.assertEqual((e["code"], e["field"]), ("invalid_field", "version"))
        self.assertIn("stats", self.stats(w))
        w.finish()

    def stats(self, w):
        w.send({"id": "st", "op": "stats"})
        return w.recv()

    def test_input_ends_inside(self):
        """What was read before it is answered, it is refused, and the worker ends well."""
        w = self.worker()
        w.send({"id": "a", "op": "stats"})
        w.send_raw(b'{"id":"b","op":"session","action":"import","session_id":"s","attach":1000}\n' + b"z" * 999)
        w.close_stdin()
        self.assertIn("stats", w.recv())
        f = w.recv()
        self.assertEqual((f["id"], f["code"], f["field"]), ("b", "bad_request", "attach"))
        w.finish()
        w = self.worker()
        w.send_raw(b'{"id":"b","op":"session","action":"import","session_id":"s","attach":1000}')
        w.close_stdin()
        self.assertEqual(w.recv()["code"], "bad_request")
        w.finish()

    def test_killed_inside(self):
        """A worker that is to end does not wait for the rest."""
        w = self.worker()
        w.send_raw(b'{"id":"b","op":"session","action":"import","session_id":"s","attach":1000}\nabc')
        w.wait_until_quiet()
        w.proc.terminate()
        self.assertEqual(w.wait(), 143)

    def test_plain_lines_have_none(self):
        """There `attach` is an unknown field like any other, and the next line is a line."""
        w = self.worker()
        w.send({"prompt": "a", "max_new_tokens": 1, "attach": 20}, {"id": "s", "op": "stats"})
        self.assertIn("stats", w.recv_of("s"))
        while "token" in (f := w.recv_of(None)):
            pass
        self.assertIn("done", f)
        w.finish()

    def test_one_byte_at_a_time(self):
        a, b = self.worker(), self.worker()
        self.say(a, some_ids(40), "s")
        (whole,) = self.chunks(a, 52, 500)
        line = json.dumps({"id": "i", "op": "session", "action": "import", "session_id": "s", "attach": len(whole)}).encode()
        data = line + b"\n" + whole + b'{"id":"z","op":"stats"}\n'
        for at in range(0, len(data), 97):
            b.send_raw(data[at:at + 97])
        self.assertEqual(b.recv()["import"]["count"], 52)
        self.assertEqual(b.recv()["id"], "z")
        a.finish()
        b.finish()

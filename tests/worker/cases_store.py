"""`--store`: what a worker has read another one finds, after an end or a crash, whatever became of the files; and what is said is the
cold, lone run's, number by number. What is saved by name is in cases_kept.py, the store alone in tests/kv."""
import glob
import json
import os
import random
import signal
import sqlite3
import struct
import tempfile
import time

import worker_client
from cases_kept import KeptCase
from worker_client import segments, some_ids

PAGE = 32
PAGE_HEADER = "<8sII8x32s32s32s128s"  # src/kv/store_header.h
N_IDS, PARENT, IDS = 2, 4, 6


def whole(n):
    """What is found of a prompt of n tokens that has been read before: whole pages, never its last token."""
    return (n - 1) // PAGE * PAGE


class StoreCase(KeptCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.top = folder.name
        self.store = os.path.join(folder.name, "kv")
        self.wanted = {}

    def keeping(self, *args, **kwargs):
        return self.start("--store", self.store, *args, **kwargs)

    def want(self, ids, *args, model="bpe"):
        """What a cold worker says, which a lone one is asked once."""
        key = (tuple(ids), args, model)
        if key not in self.wanted:
            self.wanted[key] = self.cold(ids, *args, model=model)
        return self.wanted[key]

    def expect(self, w, ids, reused, session=None, as_of=(), model="bpe"):
        """The right reply, and exactly that much of it from where it was kept."""
        said, logprobs, done = self.say(w, ids, session)
        self.assertEqual((said, logprobs), self.want(ids, *as_of, model=model))
        self.assertEqual(done["cached_prompt_tokens"], reused, w.log_text())
        self.assertEqual(done["cached_prompt_tokens"] + done["prefilled_prompt_tokens"], len(ids))
        return said

    def files(self):
        """Path, first tokens and parent by key, of all pages."""
        found = {}
        for path in glob.glob(f"{self.store}/*/*.page"):
            with open(path, "rb") as f:
                head = struct.unpack(PAGE_HEADER, f.read(struct.calcsize(PAGE_HEADER)))
            found[os.path.basename(path)[:64]] = (path, list(struct.unpack("<32i", head[IDS])[:head[N_IDS]]), head[PARENT].hex())
        return found

    def path_of(self, ids):
        """The files of its pages, the first one first, as far as they are there."""
        files, parent, paths = self.files(), "0" * 64, []
        for at in range(0, len(ids) - PAGE + 1, PAGE):
            page = [(key, x[0]) for key, x in files.items() if x[2] == parent and x[1] == ids[at:at + PAGE]]
            if not page:
                break
            ((parent, path),) = page
            paths.append(path)
        return paths


class Restarts(StoreCase):
    def test_lengths(self):
        """Prompt and reply, as far as they fill pages."""
        ids = some_ids(400)
        w = self.keeping()
        said = self.expect(w, ids, 0)
        w.finish()
        self.assertEqual(len(self.path_of(ids + said)), 12)  # 411 tokens at least
        for n in (1, 31, 32, 33, 34, 64, 65, 96, 97, 257, 400):
            w = self.keeping()
            self.expect(w, ids[:n], whole(n))
            w.finish()
        w = self.keeping()
        self.expect(w, ids + said[:5], 384)
        self.expect(w, ids[:70] + [70] * 30, 64 + 6)  # by now it is in memory: to the token
        w.finish()

    def test_where_they_part(self):
        ids = some_ids(200)
        w = self.keeping()
        self.expect(w, ids, 0)
        w.finish()
        for at in (0, 5, 32, 63, 64, 150, 199):
            w = self.keeping()
            self.expect(w, ids[:at] + [70] * 40, at // PAGE * PAGE)
            w.finish()

    def test_session_and_stranger(self):
        """A session is no longer known, its pages are; nobody of another namespace finds them."""
        w = self.keeping()
        known = some_ids(100)
        known += self.expect(w, known, 0, "s")
        w.finish()
        w = self.keeping()
        self.assertEqual(self.say(w, known + [70], cache_namespace="other")[2]["cached_prompt_tokens"], 0)
        self.expect(w, known + [70], 96, "s")
        w.finish()

    def test_other_machines(self):
        """Other threads and another instruction set read what was written, and the other way round."""
        ids = some_ids(230)
        writers = (("--threads", "1", "--cpu", "ref"), ("--threads", "2"))
        readers = ((), ("--threads", "1"), ("--threads", "3"), ("--cpu", "ref"), ("--cpu", "avx2", "--threads", "1"))
        for i, wrote in enumerate(writers):
            self.store = os.path.join(self.top, str(i))
            w = self.keeping(*wrote)
            self.expect(w, ids, 0)
            w.finish()
            for read in readers:
                with self.subTest(wrote=wrote, read=read):
                    w = self.keeping(*read)
                    self.expect(w, ids, 224)
                    w.finish()

    def test_other_states(self):
        """What is in a page of another KV type, another context or another model is another state: each keeps its own."""
        ids = some_ids(150)
        kinds = [((), "bpe"), (("--kv-type", "q8_0"), "bpe"), (("--kv-type", "bf16"), "bpe"), (("--ctx", "400"), "bpe"), ((), "spm")]
        for reused in 0, 128:
            for args, model in kinds:
                w = self.keeping(*args, model=model)
                self.expect(w, ids, reused, as_of=args, model=model)
                w.finish()

    def test_plain(self):
        """The dialect without ids, of which all frames are exact."""
        ids = some_ids(150)
        ask = {"prompt_segments": segments(ids), "max_new_tokens": 12, "seed": 5, "temperature": 0.9}
        cold = self.start("--no-warm")
        want = cold.generate(**ask)
        cold.finish()
        for reused in 0, 128:
            w = self.keeping()
            text, done = w.generate(**ask)
            self.assertEqual((text, done["generated_token_ids"]), (want[0], want[1]["generated_token_ids"]))
            self.assertEqual((done["reused_prompt_tokens"], done["prefilled_prompt_tokens"]), (reused, 150 - reused))
            self.assertEqual(done["session_reset_reason"], "new")
            w.finish()

    def test_without_sandbox(self):
        """The sandbox is on in all other tests; what the two write is the same."""
        ids = some_ids(150)
        for args, reused in ((), 0), (("--no-sandbox",), 128), ((), 128):
            w = self.keeping(*args)
            self.expect(w, ids, reused)
            w.finish()

    def test_not_warm(self):
        """Who reuses nothing keeps nothing, and reads nothing of what others have kept."""
        ids = some_ids(150)
        w = self.keeping("--no-warm")
        self.expect(w, ids, 0)
        w.finish()
        self.assertFalse(os.path.exists(self.store))
        for args, reused in ((), 0), (("--no-warm",), 0), ((), 128):
            w = self.keeping(*args)
            self.expect(w, ids, reused)
            w.finish()

    def test_long(self):
        first, second = some_ids(3000), some_ids(3000, 1)
        w = self.keeping(model="long")
        self.expect(w, first, 0, model="long")
        self.expect(w, second, 0, model="long")
        w.finish()
        w = self.keeping(model="long")
        for ids in first, second, first:
            said, logprobs, done = self.say(w, ids)
            self.assertEqual((said, logprobs), self.want(ids, model="long"))
            self.assertGreaterEqual(done["cached_prompt_tokens"], 2976)
        w.finish()

    def test_budgets(self):
        """Over the bytes of the folder the ends go, over those of the day nothing more is written: what is there is a beginning."""
        ids = some_ids(400)
        w = self.keeping()
        self.expect(w, ids, 0)
        w.finish()
        size = os.path.getsize(self.path_of(ids)[0])
        for i, option in enumerate(("--store-bytes", "--store-daily-bytes")):
            self.store = os.path.join(self.top, str(i))
            w = self.keeping(option, str(5 * size + 100))
            self.expect(w, ids, 0)
            w.finish()
            self.assertEqual((len(self.files()), len(self.path_of(ids))), (5, 5))
            w = self.keeping(option, str(5 * size + 100))
            self.expect(w, ids, 160)
            w.finish()


class Crashes(StoreCase):
    N = 20 if worker_client.GONE_IN < 10 else 8  # a sanitizer makes seconds of each, and sees no more in many

    def test_killed_while_it_writes(self):
        """Many crashes, spread over the time in which it reads, writes and says: what was written is a beginning, and is found."""
        chance = random.Random(1)
        w = self.keeping(model="long")
        begin = time.monotonic()
        self.say(w, some_ids(2000))
        took = time.monotonic() - begin
        w.finish()
        lengths = []
        for i in range(self.N):
            ids = some_ids(2000, i)
            ids[0:3] = [65 + i, 66, 67]
            w = self.keeping(model="long")
            w.send({"id": "a", "op": "generate", "prompt_segments": segments(ids), "max_new_tokens": 12})
            time.sleep(took * chance.uniform(0.1, 1.1))
            w.proc.kill()
            self.assertEqual(w.wait(), -signal.SIGKILL)
            pages = len(self.path_of(ids))
            w = self.keeping(model="long")
            said, logprobs, done = self.say(w, ids)
            self.assertEqual((said, logprobs), self.want(ids, model="long"))
            # the index may not know the last file yet, when it is asked at once
            self.assertIn(done["cached_prompt_tokens"], {min(PAGE * n, whole(len(ids))) for n in (pages, max(pages - 1, 0))})
            until = time.monotonic() + worker_client.PATIENCE
            while glob.glob(f"{self.store}/*/*.tmp"):  # what was cut is swept when the folder is looked through
                self.assertLess(time.monotonic(), until)
            w.finish()
            self.assertGreaterEqual(len(self.path_of(ids)), 62)
            lengths.append(pages)
        self.assertTrue(any(0 < n < 62 for n in lengths), lengths)

    def test_terminated_while_it_waits(self):
        """A worker that is told to end while a request waits for the disk ends."""
        ids = some_ids(150)
        w = self.keeping()
        self.expect(w, ids, 0)
        w.finish()
        (index,) = glob.glob(f"{self.store}/*/index.db")
        db = sqlite3.connect(index, isolation_level=None)
        db.execute("PRAGMA locking_mode=EXCLUSIVE")
        db.execute("BEGIN EXCLUSIVE")
        w = self.keeping()
        w.send({"id": "a", "op": "generate", "prompt_segments": segments(ids), "max_new_tokens": 12})
        frames = [w.recv()]
        self.assertIn("accepted", frames[0])
        time.sleep(0.2)
        w.proc.terminate()
        self.assert_gone(w, 143, time.monotonic())
        while line := w.recv_line():
            frames.append(json.loads(line))
        self.assertEqual([f for f in frames if "token" in f], [], "it did not wait")
        db.close()
        w = self.keeping()
        self.expect(w, ids, 128)
        w.finish()


class Damage(StoreCase):
    def test_a_byte_of_each_file(self):
        """One byte is another, in each file in turn, in its header, its tokens, its page and its end: what is before that page is
        found, the file goes, and is written again."""
        ids = some_ids(230)
        w = self.keeping()
        self.expect(w, ids, 0)
        w.finish()
        paths = self.path_of(ids)
        self.assertEqual(len(paths), 7)
        size = os.path.getsize(paths[0])
        places = (0, 9, 30, 60, 90, 130, 247, 400, 497, 505, 512, 512 + size // 3, size - 1)
        for i in range(len(places)):
            at = i % len(paths)
            with open(paths[at], "r+b") as f:
                f.seek(places[i])
                byte = f.read(1)[0]
                f.seek(places[i])
                f.write(bytes([byte ^ (1 << i % 8)]))
            with self.subTest(page=at, byte=places[i]):
                w = self.keeping()
                self.expect(w, ids, at * PAGE)
                w.finish()
                again = self.keeping()  # a page after it may have been believed to be there, and what is behind the hole with it
                self.expect(again, ids, whole(len(ids)))
                again.finish()

    def test_torn_files(self):
        """As a machine without power leaves them: shorter, empty, without its end, with zeros."""
        ids = some_ids(230)
        w = self.keeping()
        self.expect(w, ids, 0)
        w.finish()
        paths = self.path_of(ids)
        size = os.path.getsize(paths[0])
        for i, left in enumerate((0, 1, 511, 512, 4096, size - 1, "zeros", "longer", "folder", "another")):
            at = i % len(paths)
            with self.subTest(left=left):
                if left == "zeros":
                    with open(paths[at], "wb") as f:
                        f.write(bytes(size))
                elif left == "longer":
                    with open(paths[at], "ab") as f:
                        f.write(b"x")
                elif left == "folder":
                    os.unlink(paths[at])
                    os.mkdir(paths[at])
                elif left == "another":
                    with open(paths[at - 1], "rb") as other:
                        data = other.read()
                    with open(paths[at], "wb") as f:
                        f.write(data)
                else:
                    os.truncate(paths[at], left)
                w = self.keeping()
                self.expect(w, ids, at * PAGE)
                w.finish()
                if left == "folder":
                    os.rmdir(paths[at])
                    w = self.keeping()
                    self.say(w, ids)
                    w.finish()
                w = self.keeping()
                self.expect(w, ids, whole(len(ids)))
                w.finish()

    def test_index(self):
        """Missing, empty, nonsense, of another time: it is made from the files."""
        ids = some_ids(230)
        w = self.keeping()
        self.expect(w, ids, 0)
        w.finish()
        (index,) = glob.glob(f"{self.store}/*/index.db")
        for how in (None, b"", b"nonsense " * 1000, b"SQLite format 3\0" + bytes(5000)):
            with self.subTest(how=how and how[:10]):
                for path in glob.glob(index + "*"):
                    os.unlink(path)
                if how is not None:
                    with open(index, "wb") as f:
                        f.write(how)
                w = self.keeping()
                self.expect(w, ids, 224)
                w.finish()


class Folders(StoreCase):
    def test_something_in_its_place(self):
        """A file where the folder should be: no store, one warning, right replies."""
        ids = some_ids(150)
        with open(self.store, "w") as f:
            f.write("not a folder")
        w = self.keeping()
        self.expect(w, ids, 0)
        self.expect(w, ids, 149)
        self.assertEqual(w.log_text().count("event=store_off"), 1)
        w.finish()
        with open(self.store) as f:
            self.assertEqual(f.read(), "not a folder")

    def test_read_only(self):
        """What is there is found, nothing is written, and that is said once."""
        if os.geteuid() == 0:
            self.skipTest("root writes into a read-only folder, too")
        ids = some_ids(150)
        w = self.keeping()
        self.expect(w, ids, 0)
        w.finish()
        (folder,) = glob.glob(f"{self.store}/*")
        os.chmod(folder, 0o500)
        self.addCleanup(os.chmod, folder, 0o700)
        before = len(self.files())
        w = self.keeping()
        self.expect(w, ids, 128)
        self.expect(w, some_ids(150, 1), 0)
        w.finish()
        self.assertEqual(len(self.files()), before)

    def test_removed_while_it_runs(self):
        """The folder goes between two replies: nobody notices but the disk, and a restart makes another."""
        for how in "removed", "renamed":
            with self.subTest(how):
                ids, more = some_ids(150), some_ids(300, 1)
                w = self.keeping()
                self.expect(w, ids, 0)
                (folder,) = glob.glob(f"{self.store}/*")
                if how == "removed":
                    for path in glob.glob(f"{folder}/*"):
                        os.unlink(path)
                    os.rmdir(folder)
                else:
                    os.rename(folder, self.store + "-gone")
                self.expect(w, more, 0)
                self.expect(w, more, 299)
                self.expect(w, ids, 149)
                w.finish()
                for reused in 0, 128:
                    w = self.keeping()
                    self.expect(w, ids, reused)
                    w.finish()
                for path in glob.glob(f"{self.store}/*/*"):
                    os.unlink(path)

    def test_two_workers(self):
        """Both write, each finds what the other wrote, within seconds: neither looks at each request."""
        a, b = self.keeping(), self.keeping()
        prompts = [some_ids(150, i)[i:] for i in range(20)]
        for first, second, mine in ((a, b, prompts[:10]), (b, a, prompts[10:])):
            for ids in mine:
                self.expect(first, ids, 0)
            found = 0
            for ids in mine:
                time.sleep(0.5)
                said, logprobs, done = self.say(second, ids)
                self.assertEqual((said, logprobs), self.want(ids))
                self.assertIn(done["cached_prompt_tokens"], (0, whole(len(ids))))
                found = done["cached_prompt_tokens"]
                if found:
                    break
            self.assertGreater(found, 0)
        a.finish()
        b.finish()
        w = self.keeping()
        for ids in prompts:
            self.expect(w, ids, whole(len(ids)))
        w.finish()

    def test_two_workers_at_once(self):
        """They write the same pages at the same time, and others behind them."""
        a, b = self.keeping(model="long"), self.keeping(model="long")
        shared = some_ids(1000)
        tails = [shared + some_ids(300, i) for i in range(1, 5)]
        for i, w in enumerate((a, b) * 2):
            w.send({"id": f"x{i}", "op": "generate", "prompt_segments": segments(tails[i]), "max_new_tokens": 3})
        for i, w in enumerate((a, b) * 2):
            self.assertIn("done", w.recv_until_last(f"x{i}")[-1])
        a.finish()
        b.finish()
        w = self.keeping(model="long")
        for i, ids in enumerate(tails):
            self.assertEqual(len(self.path_of(ids)), len(ids) // PAGE)
            said, logprobs, done = self.say(w, ids)
            self.assertEqual((said, logprobs), self.want(ids, model="long"))
            self.assertEqual(done["cached_prompt_tokens"], whole(len(ids)))
        w.finish()

#!/usr/bin/python3
"""memory_script.py GROUP HEARTH MODEL: memory of a daemon's models: divided at the start, moved while they run (docs/memory.md).
MODEL is "roomy" of tests/worker/meson.build: what it takes is mostly pages. Standard library only."""
import os
import re
import sys
import threading
import unittest

from serve_rig import GROUP, MODEL, SERVE, Daemon, until

ROOMY, = MODEL
NAME = os.path.basename(ROOMY)[:-len(".gguf")]
MIB = 1 << 20


def series(d, name, model=NAME):
    return int(d.metrics()[f'{name}{{model="{model}"}}'])


def pages(d, model=NAME):
    return series(d, "hearth_worker_pages", model)


class Moves(unittest.TestCase):
    def daemon(self, *args):
        d = Daemon(argv=[SERVE, "serve", "-m", ROOMY, "-m", ROOMY, "--port", "0", "--threads", "1", "--no-store", "--max-sessions", "4",
                         *args])
        self.assertTrue(until(lambda: d.ask("GET", "/health")[0] == 200), d.log)
        return d

    def test_divided(self):
        """Each has its share by its own plan, says so in the log, and both together stay within what was given."""
        with self.daemon("--memory-bytes", str(500 * MIB)) as d:
            plans = [line for line in d.log if "event=plan " in line]
            self.assertEqual(len(plans), 2)
            number = [{k: int(v) for k, v in re.findall(r"(\w+)=(\d+)", p)} for p in plans]
            self.assertEqual([n["limit_bytes"] for n in number], [250 * MIB] * 2)
            self.assertLess(sum(n["total_bytes"] for n in number), 500 * MIB)
            self.assertTrue(until(lambda: {pages(d), pages(d, NAME + "-2")} == {n["kv_pages"] for n in number}))

    def test_moved(self):
        """Requests of one model wait for pages: it gets those of the other, who does nothing, and all replies are what they were. (The
        way back takes longer, by design: tests/serve/test_planner.c.)"""
        asks = [{"prompt": [97 + i] * 900, "max_tokens": 100, "ignore_eos": True, "temperature": 0} for i in range(3)]
        with self.daemon("--memory-bytes", str(300 * MIB), "--kv-type", "f32") as d:
            idle = NAME + "-2"
            self.assertTrue(until(lambda: pages(d) == pages(d, idle) > 0))  # both workers have said so
            first = pages(d)
            self.assertLess(first, 3 * 32)  # not enough for the three
            want = [d.complete(**a)[2]["choices"][0]["text"] for a in asks]
            stop, wrong = threading.Event(), []

            def client(i):
                while not stop.is_set():
                    status, _, body = d.complete(**asks[i])
                    if status != 200 or body["choices"][0]["text"] != want[i]:
                        wrong.append(body)
                        return
            threads = [threading.Thread(target=client, args=(i,)) for i in range(3)]
            for t in threads:
                t.start()
            moved = until(lambda: wrong or (pages(d) > first and pages(d, idle) < first))
            stop.set()
            for t in threads:
                t.join()
            self.assertEqual(wrong, [])
            self.assertTrue(moved, (pages(d), pages(d, idle), d.log[-20:]))
            self.assertLessEqual(pages(d) + pages(d, idle), 2 * first)
            self.assertEqual(len(d.worker_pids()), 2)
            self.assertTrue(d.is_at_rest())

    def test_too_small(self):
        """A share that one cannot live on is that model's failure, with both numbers; without any the daemon does not start."""
        d = Daemon(argv=[SERVE, "serve", "-m", ROOMY, "-m", ROOMY, "--port", "0", "--memory-bytes", str(30 * MIB), "--no-store",
                         "--max-respawns", "0"], wait=False)
        self.assertEqual(d.process.wait(60), 1)
        self.assertTrue(any(re.search(r"need \d+ bytes of memory, \d+ may be used", line) for line in d.log), d.log)
        d.end()


class Oom(unittest.TestCase):
    """A real control group of version 1, whose limit the daemon was not told of."""

    def setUp(self):
        self.group = f"/sys/fs/cgroup/memory/hearth-oom-{os.getpid()}"
        try:
            os.mkdir(self.group)
        except OSError:
            self.skipTest("NOT RUN: no control group of version 1 can be made here")
        self.addCleanup(lambda: until(self.remove, 10))

    def remove(self):
        try:
            os.rmdir(self.group)
            return True
        except OSError:
            return False

    def test_killed_for_memory(self):
        """Its pages are more than the group may have: the kernel kills the worker, the next one has a quarter fewer, what was being
        answered goes on, and that lives. Nobody is blamed."""
        with open(f"{self.group}/memory.limit_in_bytes", "w") as f:
            f.write(str(134 * MIB))
        argv = [SERVE, "serve", "-m", ROOMY, "--port", "0", "--threads", "1", "--no-store", "--max-sessions", "4", "--memory-bytes",
                str(1024 * MIB)]
        d = Daemon(argv=["/bin/sh", "-c", f'echo $$ > {self.group}/cgroup.procs && exec "$@"', "sh", *argv])
        with d:
            self.assertTrue(until(lambda: d.ask("GET", "/health")[0] == 200), d.log)
            first = pages(d)

            killed_for_it = f'hearth_worker_deaths_total{{model="{NAME}",cause="oom_killed"}}'

            def use(times, begin, until_killed=False):
                for i in range(times * first * 32 // 1900):
                    if until_killed and d.metrics()[killed_for_it] > 0:
                        return
                    prompt = [(begin + i) % 250, *[97 + (begin + i) % 25] * 1880]  # nothing of it was there before
                    status, _, body = d.complete(prompt, max_tokens=12, ignore_eos=True)
                    self.assertEqual((status, body["usage"]["completion_tokens"]), (200, 12), body)
            use(3, 0, until_killed=True)
            use(1, 50)  # once more, if that is still too much
            deaths = d.metrics()
            killed = deaths[killed_for_it]
            self.assertGreaterEqual(killed, 1)
            self.assertEqual(sum(v for k, v in deaths.items() if k.startswith("hearth_worker_deaths_total")), killed)
            self.assertEqual(series(d, "hearth_requests_blamed_total"), 0)
            self.assertEqual(series(d, "hearth_worker_starts_total"), killed + 1)
            lowered = first
            for _ in range(int(killed)):
                lowered -= lowered // 4
            self.assertEqual(pages(d), lowered)
            self.assertTrue(until(lambda: any("event=kv_pages_lowered" in line for line in d.log)))
            use(1, 100)
            self.assertEqual(series(d, "hearth_worker_starts_total"), killed + 1)  # and that lives
            self.assertTrue(d.is_at_rest())
            print(f"oom_killed {killed:.0f}, pages {first} -> {lowered}", file=sys.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], GROUP])

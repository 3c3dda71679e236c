#!/usr/bin/python3
"""pressure_script.py Pressure SERVE_MAIN WORKER_MAIN MODEL: the daemon around a real worker whose pool of pages is small: what can
never fit, replies that give way, priorities. MODEL is "long" of tests/worker/meson.build. Standard library only."""
import sys
import threading
import unittest

from serve_rig import GROUP, MODEL, SERVE, Daemon, until

WORKER, LONG = MODEL


def daemon(*args):
    return Daemon(argv=[SERVE, WORKER, "-m", LONG, "--threads", "2", *args])


class Pressure(unittest.TestCase):
    def test_never_fits(self):
        """400 with both numbers, streaming or not, before any work."""
        with daemon("--kv-pages", "4") as d:
            self.assertTrue(until(lambda: d.ask("GET", "/health")[0] == 200))
            for more in {}, {"stream": True}:
                status, headers, body = d.complete([97] * 100, max_tokens=1000, **more)
                self.assertEqual((status, headers["Content-Type"]), (400, "application/json"))
                e = body["error"]
                self.assertEqual((e["code"], e["need"], e["have"], e["type"]), ("never_fits", 35, 4, "invalid_request_error"))
            m = d.metrics()
            self.assertEqual(m['hearth_worker_tokens_prefilled_total{model="stub"}'], 0)
            self.assertEqual(m['hearth_worker_pages{model="stub"}'], 4)
            self.assertEqual(d.complete([97] * 100, max_tokens=28, ignore_eos=True)[2]["usage"]["completion_tokens"], 28)

    def test_preemptions_are_shown(self):
        """Two that take all there is, at once: both are as they are alone, and answer and metrics say who gave way."""
        asks = [([97 + i] * 200, {"max_tokens": 800, "ignore_eos": True, "temperature": 0}) for i in range(2)]
        with daemon("--kv-pages", "40", "--max-sessions", "4") as d:
            self.assertTrue(until(lambda: d.ask("GET", "/health")[0] == 200))
            want = [d.complete(prompt, **more)[2]["choices"][0]["text"] for prompt, more in asks]
            for _ in range(10):  # the two need not meet
                running = [d.later(prompt, **more) for prompt, more in asks]
                for t, _ in running:
                    t.join()
                bodies = [got[0][2] for _, got in running]
                self.assertEqual([b["choices"][0]["text"] for b in bodies], want)
                n = sum(b["hearth"]["preemptions"] for b in bodies)
                if n:
                    break
            self.assertGreater(n, 0)
            self.assertTrue(d.is_at_rest())
            m = d.metrics()
            self.assertEqual(m['hearth_worker_preemptions_total{model="stub"}'], n)
            self.assertEqual(m['hearth_worker_parked{model="stub"}'], 0)
            self.assertEqual(m['hearth_worker_lanes_live{model="stub"}'], 0)
            self.assertEqual(m['hearth_worker_lanes_idle{model="stub"}'], 4)
            self.assertGreater(m['hearth_worker_tokens_recomputed_total{model="stub"}']
                               + m['hearth_worker_tokens_restored_total{model="stub"}'], 0)

    def order_of_priorities(self, d):
        """Names in the order they ended; None: the one that runs was over before all others stood in line."""
        ended, lock = [], threading.Lock()

        def ask(name, priority):
            d.complete(name, max_tokens=2000, ignore_eos=True, priority=priority)
            with lock:
                ended.append(name)

        prepared = 'hearth_worker_prepared_total{model="stub"}'  # of the four behind it one waits in the daemon
        before = d.metrics()[prepared]
        c, r = d.stream("run", max_tokens=8000, ignore_eos=True)  # begun, and not read to its end
        r.readline()
        threads, in_line = [], True
        for i, (name, priority) in enumerate((("low", -5), ("mid", 0), ("mid2", 0), ("top", 5))):
            threads.append(threading.Thread(target=ask, args=(name, priority)))
            threads[-1].start()
            in_line = in_line and until(lambda n=i: ended or sum(v for k, v in d.metrics().items() if k.startswith(
                ("hearth_requests_running{", "hearth_requests_queued{"))) == n + 2)
        in_line = in_line and until(lambda: ended or d.metrics()[prepared] - before == 4)
        in_line = in_line and not ended
        c.close()  # the one that runs ends
        for t in threads:
            t.join()
        return ended if in_line else None

    def test_priority(self):
        """One lane: of those that wait the largest priority begins first, however many were there before."""
        with daemon("--max-sessions", "1") as d:
            self.assertTrue(until(lambda: d.ask("GET", "/health")[0] == 200))
            for _ in range(10):  # on a machine that is away the one that runs may end too early
                ended = self.order_of_priorities(d)
                if ended:
                    break
            self.assertEqual(ended, ["top", "mid", "mid2", "low"])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], GROUP])

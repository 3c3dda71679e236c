"""book: every request that a client sends is opened here and settled exactly once; what is not as it must be is a failure of the run.

Outcomes
  finished      every word of the cold run, and its end
  cut           cancelled or out of time: the beginning of the cold run, with that reason
  left          the client went away; what it had seen is the beginning of the cold run
  refused       a documented error: 4xx, queue_full, capacity_exhausted, 504 before the reply
  gone          the connection ended with the daemon (or nobody listened) while that was down
  draining      told so by a daemon that was told to stop
  crashed       worker_crashed; judge.py says whether it may be
  closed        bad HTTP after which the daemon closed, or a light one beside it"""
import collections
import threading

from rig import now

FAILURES_SHOWN = 40


class Record:
    def __init__(self, book, request_id, kind, name, model):
        self.book, self.id, self.kind, self.name, self.model = book, request_id, kind, name, model
        self.began, self.ended, self.outcome = now(), None, None
        self.answered = False  # the head of an answer came
        self.has_spoken = False  # some of its reply came before its end
        self.tries = 1  # how often it was sent
        self.is_op = False  # of a session: such a one ends with its worker (docs/sessions.md)


class Book:
    def __init__(self, tell):
        self.tell, self.lock = tell, threading.Lock()
        self.records, self.open, self.failures, self.crashed = [], set(), [], []
        self.table = collections.Counter()  # (kind, outcome)
        self.lost = self.changed = 0

    def begin(self, request_id, kind, name, model):
        r = Record(self, request_id, kind, name, model)
        with self.lock:
            self.records.append(r)
            self.open.add(r)
        return r

    def settle(self, record, outcome):
        record.ended = now()
        with self.lock:
            if record.outcome:
                self.failures.append(f"{record.id} accounted twice: {record.outcome}, {outcome}")
            self.open.discard(record)
            record.outcome = outcome
            self.table[record.kind, outcome] += 1
            if outcome == "crashed":
                self.crashed.append(record)

    def fail(self, text, kind=None):
        """kind: "lost", "changed", or neither."""
        with self.lock:
            self.failures.append(text)
            self.lost += kind == "lost"
            self.changed += kind == "changed"
            shown = len(self.failures) <= FAILURES_SHOWN
        if shown:
            self.tell(f"FAILURE  {text[:1200]}")

    def n_settled(self):
        return sum(self.table.values())

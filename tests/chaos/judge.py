"""judge: what may become of a request, from its answer, what it says cold, and what was done to daemon and workers meanwhile."""
import reply
from rig import now

OVER = {"cancelled", "timeout"}  # reasons of a cut


def about(record, text):
    return f"{record.kind}: {record.name} ({record.id}, {record.model}, {record.ended or now():.3f}): {text}"


def first_difference(got, want):
    """For a person: where two replies part."""
    for i, c in sorted(got.choices.items()):
        w = want.choices.get(i)
        if w is None:
            return f"choice {i} is none"
        for name in ("text", "reasoning", "calls", "finish", "true", "guard", "logprobs"):
            a, b = getattr(c, name), getattr(w, name)
            if a != b:
                at = next((n for n, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b))) \
                    if isinstance(a, (str, list)) and isinstance(b, (str, list)) else 0
                piece = slice(max(0, at - 10), at + 30) if isinstance(a, (str, list)) and isinstance(b, (str, list)) else None
                return (f"choice {i}: {name} at {at} of {len(a)}/{len(b)}: {a[piece]!r}, not {b[piece]!r}" if piece
                        else f"choice {i}: {name} {a!r}, not {b!r}")
    if set(got.choices) != set(want.choices):
        return f"choices {sorted(got.choices)}, not {sorted(want.choices)}"
    return f"usage {got.usage}, not {want.usage}"


class Judge:
    def __init__(self, world, book):
        self.world, self.book = world, book

    def fail(self, record, text, kind=None):
        self.book.fail(about(record, text), kind)

    def settle(self, record, outcome):
        self.book.settle(record, outcome)
        return outcome

    def down_during(self, record, kinds=("term", "kill")):
        return self.world.was_down(record.began, record.ended or now(), kinds)

    def connection(self, record, a):
        """Of an answer that did not come whole: it may only be the daemon's end. Also timeouts are lost requests."""
        if a.why in ("refused", "reset", "eof") and self.down_during(record):
            return self.settle(record, "gone")
        self.fail(record, f"connection {a.why} after {now() - record.began:.1f} s, status {a.status}, {len(a.body)} bytes "
                          f"{bytes(a.body[-120:])!r}", "lost")
        return self.settle(record, "lost")

    def begins(self, record, r, entry):
        """What came of a reply that is not complete begins the cold one."""
        wrong = [reply.begins(r, cold) for cold in entry.beyond_all()]
        if all(wrong):
            self.fail(record, f"is not the beginning of its cold run: {wrong[0]}", "changed")

    def refusal(self, record, code, status, may):
        """An error instead of a reply, or its end."""
        if code == "worker_crashed" and status in (200, 503):
            return self.settle(record, "crashed")  # see crashes
        if code == "draining" and status in (200, 503) and self.down_during(record, ("term",)):
            return self.settle(record, "draining")
        if (code, status) in (("queue_full", 429), ("capacity_exhausted", 429)):
            return self.settle(record, "refused")
        if code == "timeout" and status == 504 and "timeout" in may:
            return self.settle(record, "refused")
        if (code, status) == ("never_fits", 400) and self.world.memory:  # the pool is smaller since then
            return self.settle(record, "refused")
        if (code, status) == ("journal_unavailable", 503) and self.world.disk_failed(record.began, now()):
            return self.settle(record, "refused")
        if (code, status) in may:
            return self.settle(record, "refused")
        self.fail(record, f"status {status}, code {code}", "changed")
        return self.settle(record, "wrong")

    def generation(self, record, a, entry, may=()):
        """entry: has expected (Replies, one of which it must be) and beyond_all(). may: "cancelled", "timeout", "left", and
        (code, status) of errors that this client has asked for."""
        record.answered = a.status != 0
        r = reply.read(a)
        if r.broken:
            self.fail(record, r.broken, "changed")
        if a.why == "left":
            self.begins(record, r, entry)
            return self.settle(record, "left")
        if not a.whole:
            self.begins(record, r, entry)
            return self.connection(record, a)
        if r.error or a.status != 200:
            record.has_spoken = any(c.said() != ("", "", []) for c in r.choices.values())
            self.begins(record, r, entry)
            return self.refusal(record, r.error, a.status, may)
        if not r.ended:
            self.fail(record, f"a stream without an end: {bytes(a.body[-200:])!r}", "lost")
            return self.settle(record, "lost")
        return self.finished(record, r, entry, may)

    def finished(self, record, r, entry, may):
        if any(r.whole() == want.whole() for want in entry.expected):
            return self.settle(record, "finished")
        if OVER & set(may) & set(r.trues()):
            self.cut(record, r, entry, may)
            return self.settle(record, "cut")
        self.fail(record, first_difference(r, entry.expected[0]), "changed")
        return self.settle(record, "changed")

    def cut(self, record, r, entry, may):
        """Each choice has its own end: its cold one, or the cut's."""
        self.begins(record, r, entry)
        for i, c in r.choices.items():
            if c.true in OVER & set(may):
                if c.finish not in ("length", "incomplete"):
                    self.fail(record, f"choice {i}: {c.finish} though {c.true}", "changed")
            elif not any(i in w.choices and c.said() == w.choices[i].said() and c.true == w.choices[i].true for w in entry.expected):
                self.fail(record, f"choice {i}: ends with {c.true} and is not its cold run", "changed")

    def light(self, record, a, light):
        """What must be answered with exactly this."""
        record.answered = a.status != 0
        if a.why == "left":
            return self.settle(record, "left")
        if not a.whole:
            return self.connection(record, a)
        if a.status != 200:
            return self.refusal(record, a.code(), a.status, ())
        if a.json() != light.cold:
            self.fail(record, f"{bytes(a.body[:300])!r}", "changed")
            return self.settle(record, "changed")
        return self.settle(record, "finished")

    def crashes(self):
        """At the end: which of the worker_crashed were to be. A death by the worker's own fault blames at most one request, one
        that was there when an earlier such death made it a suspect (PROTOCOL 6); a worker that cannot be started fails all that
        wait for it and were never with one, and none that has begun to speak; one that was given up fails all; an op of a session
        goes with its worker."""
        blamed = 0
        for r in self.book.crashed:
            deaths = [d for d in self.world.deaths() if d.model == r.model and r.began - 1 < d.at < r.ended + 1]
            own = [d for d in deaths if d.own_fault()]
            ended = next((t for t in (life.ended(r.id) for life in self.world.lives) if t), r.ended)  # it may be read late
            lost = [what for t, m, what in self.world.hopeless() if m == r.model and abs(t - ended) < 1]
            if r.is_op and deaths or "given_up" in lost or (lost and not r.has_spoken):
                continue
            second = next((d for d in own[1:] if not d.blamed), None)
            if second:
                second.blamed, blamed = 1, blamed + 1
            else:
                causes = [f"{d.cause} {d.signal} {d.at:.3f}" for d in deaths]
                self.fail(r, f"worker_crashed from {r.began:.3f} to {r.ended:.3f}, and of its worker's deaths ({causes}) none may blame it",
                          "lost")
        return blamed

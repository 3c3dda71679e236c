#!/usr/bin/python3
"""fields_script.py Fields HEARTH MODEL: every row of the tables of docs/api.md, sent to `hearth serve`. Honoured: it is taken.
Refused: 400, and the error names it. No effect: the greedy reply is the one without it. And every field that the source takes
stands in the table of its route. Standard library only. Exit 1 if a test fails."""
import json
import pathlib
import re
import unittest

from serve_rig import MODEL, SERVE, Daemon

ROOT = pathlib.Path(__file__).resolve().parents[2]
TALK = [{"role": "user", "content": "Hello!"}]
BASES = {
    "/v1/chat/completions": {"messages": TALK, "max_tokens": 8, "temperature": 0},
    "/v1/responses": {"input": "Hello!", "max_output_tokens": 8, "temperature": 0},
    "/v1/completions": {"prompt": "Hello", "max_tokens": 8, "temperature": 0},
    "/apply-template": {"messages": TALK}, "/tokenize": {"content": "Hello"}, "/detokenize": {"tokens": [17]}}


def table():
    """Rows of docs/api.md: (route, field, what, members)."""
    rows, route = [], None
    for line in (ROOT / "docs/api.md").read_text().splitlines():
        if line.startswith("## "):
            route = line.split()[-1]
        m = re.fullmatch(r"\| `(\S+)` \| (honoured|refused|no effect) \| `(.*)` \|.*\|", line)
        if m:
            rows.append((route, m[1], m[2], json.loads("{" + m[3] + "}")))
        elif line.startswith("| `"):
            raise AssertionError(f"not a row: {line}")
    return rows


def names_in_source(path):
    """The strings of the lists of names that a source file gives to fields_only for a whole body."""
    text = "".join((ROOT / "src/serve" / f).read_text() for f in path)
    return set(re.findall(r'"([a-z_]+)"', "".join(re.findall(
        r'(?:(?<!_)names\[\] = \{|define (?:GENERATION|CHAT_TALK|CHAT_IDLE)_FIELDS)((?:[^;\n]*\\\n|[^;}])*?[^;}]*?)(?:\};|\n\n|\n/\*|\nbool)', text))))


def said(route, status, body):
    """What a reply says, without ids and times."""
    if isinstance(body, str):
        events = [json.loads(part.split("data: ", 1)[1]) for part in body.strip().split("\n\n") if "data: {" in part]
        assert not any("error" in e and e["error"] for e in events), events
        if route == "/v1/responses":
            return [e["delta"] for e in events if "delta" in e]
        return [(c["index"], c.get("text"), c.get("delta"), c["finish_reason"]) for e in events for c in e["choices"]]
    if route == "/v1/responses":
        return [(i["type"], i.get("content"), i.get("arguments")) for i in body["output"]]
    return body.get("choices", body)


class Fields(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.d = Daemon(argv=[SERVE, "serve", "-m", MODEL[0], "--port", "0", "--threads", "1"])

    @classmethod
    def tearDownClass(cls):
        rc, _ = cls.d.end()
        assert rc == 0, rc

    def send(self, route, members):
        base = dict(BASES[route])
        if "max_completion_tokens" in members:
            base.pop("max_tokens")
        return self.d.ask("POST", route, {**base, **members})

    def test_rows(self):
        rows = table()
        self.assertEqual({r for r, *_ in rows}, set(BASES))
        self.assertGreater(len(rows), 150)
        for route, field, what, members in rows:
            with self.subTest(route=route, field=field, what=what):
                status, _, body = self.send(route, members)
                if what == "refused":
                    self.assertEqual(status, 400, body)
                    self.assertEqual(body["error"]["param"], field)
                    self.assertIn(field, body["error"]["message"])
                    continue
                self.assertEqual(status, 200, body)
                got = said(route, status, body)
                if what == "no effect":
                    plain = {k: v for k, v in members.items() if k == "stream"}
                    self.assertEqual(got, said(route, *self.send(route, plain)[::2]))

    def test_unknown(self):
        for route in BASES:
            status, _, body = self.send(route, {"no_such_field": 1})
            self.assertEqual((status, body["error"]["param"]), (400, "no_such_field"))
            self.assertEqual(self.send(route, {"no_such_field": None})[0], 200)

    def test_table_is_complete(self):
        """What the source takes by name stands in the table."""
        lists = {"/v1/chat/completions": ["chat.c", "chat.h", "chat_talk.h", "generation.h"],
                 "/v1/responses": ["responses.c", "chat.h"], "/v1/completions": ["completion.c", "generation.h"]}
        for route, files in lists.items():
            told = {re.split(r"[.\[]", field)[0] for r, field, *_ in table() if r == route}
            taken = names_in_source(files)
            self.assertIn("model", taken)
            self.assertEqual(sorted(taken - told), [], route)


if __name__ == "__main__":
    unittest.main(argv=["fields_script.py", "Fields"])

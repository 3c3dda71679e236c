#!/usr/bin/python3
"""Renders conversations with chat_template.jinja (Debian's python3-jinja2, set up as model hubs do) and compares them
with what Ember was trained on.

    ./check_template.py --dir DIR
"""
import argparse
import json
import os
import re

from jinja2.sandbox import ImmutableSandboxedEnvironment

from prepare import render
from tools import SYSTEM

HERE = os.path.dirname(os.path.abspath(__file__))


def template():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    env.filters["tojson"] = lambda x: json.dumps(x, ensure_ascii=False)
    with open(os.path.join(HERE, "chat_template.jinja"), encoding="utf-8") as f:
        return env.from_string(f.read().rstrip("\n"))


def messages(turns):
    """A training conversation as a client would send it: (messages, tools)."""
    out, tools = [], None
    for role, text in turns:
        made = re.search("(?:^|\n\n)" + re.escape(SYSTEM.split("{tools}")[0]) + "(.*)\n</tools>", text, re.S)
        call = re.fullmatch("<tool_call>\n(.*)\n</tool_call>", text, re.S)
        result = re.fullmatch("<tool_response>\n(.*)\n</tool_response>", text, re.S)
        if role == "system" and made:
            tools = [json.loads(t) for t in made.group(1).split("\n")]
            if made.start():
                out.append({"role": "system", "content": text[:made.start()]})
        elif call:
            f = json.loads(call.group(1))
            out.append({"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": f}]})
        elif result:
            out.append({"role": "tool", "content": result.group(1)})
        else:
            out.append({"role": "assistant" if role == "think" else role, "content": text})
    return out, tools


def main():
    p = argparse.ArgumentParser(description="check the chat template")
    p.add_argument("--dir", required=True)
    a = p.parse_args()
    t, count, wrong = template(), 0, 0
    with open(os.path.join(a.dir, "train.jsonl"), encoding="utf-8") as f:
        for line, _ in zip(f, range(5000)):
            turns = json.loads(line)["turns"]
            m, tools = messages(turns)
            for end, thinking, tail in ((len(m), None, ""), (len(m), False, "<|im_start|>assistant\n"),
                                        (len(m), True, "<|im_start|>assistant\n<think>\n")):
                text = t.render(messages=m[:end], tools=tools, add_generation_prompt=thinking is not None,
                                enable_thinking=bool(thinking))
                count += 1
                if text != render(turns) + tail:
                    wrong += 1
                    print(f"{text}\n--- expected\n{render(turns) + tail}")
    two = t.render(messages=[{"role": "user", "content": "x"}, {"role": "assistant", "content": "Two.", "tool_calls": [
        {"name": "a", "arguments": {}}, {"function": {"name": "b", "arguments": '{"c": 1}'}}]},
        {"role": "tool", "content": "1"}, {"role": "tool", "content": "2"}], add_generation_prompt=True)
    wrong += two != ('<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\nTwo.\n<tool_call>\n{"name": "a", "arguments": {}}\n'
                     '</tool_call>\n<tool_call>\n{"name": "b", "arguments": {"c": 1}}\n</tool_call><|im_end|>\n<|im_start|>user\n'
                     '<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response><|im_end|>\n<|im_start|>assistant\n')
    print(f"{count + 1} renderings, {wrong} differ")
    raise SystemExit(wrong > 0)


if __name__ == "__main__":
    main()

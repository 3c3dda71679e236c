#!/usr/bin/python3
"""A worker that is told by its prompts what to do, for serve_script.py: plain dialect, standard library only.

    stub_worker.py SEEN [MODE …]

Every line it reads is appended to the file SEEN. How it starts: no MODE = at once; load_failed; exit; garbage; deaf =
ignores SIGTERM; slow FILE = ready once FILE exists; once FILE = makes FILE and dies unless it exists.
A prompt is a list of words, carried out in order: say TEXT, wait SECONDS, many N BYTES (N tokens of BYTES letters), die,
hang, garbage, stray (a done too many), error CODE, length (ends with it), request (says its own request line).
"""
import json
import os
import signal
import sys
import time


def put(frame):
    sys.stdout.write(json.dumps(frame) + "\n")
    sys.stdout.flush()


def ready():
    put({"ready": True, "max_sessions": 8, "max_named_sessions": 7, "supports_cancel": False, "protocol": 2,
         "pid": os.getpid(), "model": {"name": "stub", "arch": "stub", "quant": "Q8_0", "params": 12, "context_length": 64,
                                       "vocab_size": 100, "modalities": ["text"], "capabilities": ["generate"]},
         "kernels": "ref", "kv_pages": 2, "later_field": {"a": [1]}})


def done(request, n, finish):
    put({"done": True, "prompt_tokens": 7, "completion_tokens": n, "finish_reason": finish, "reused_prompt_tokens": 3,
         "prefilled_prompt_tokens": 4, "session_reset_reason": "new", "prefill_ms": 1.5, "decode_ms": 2, "total_ms": 4,
         "prefill_tok_s": 0, "decode_tok_s": 0, "seed": request["seed"], "reason": finish,
         "generated_token_ids": list(range(n))})


def answer(request):
    """Carries out the prompt; True once a last frame has been written."""
    words = request.get("prompt", "request").split()
    n, finish = 0, "stop"
    while words:
        word = words.pop(0)
        if word == "say":
            put({"token": words.pop(0) + " "})
            n += 1
        elif word == "wait":
            time.sleep(float(words.pop(0)))
        elif word == "many":
            count, size = int(words.pop(0)), int(words.pop(0))
            for _ in range(count):
                put({"token": "x" * size})
            n += count
        elif word == "die":
            os._exit(3)
        elif word == "hang":
            time.sleep(1000)
        elif word == "garbage":
            sys.stdout.write("not json\n")
            sys.stdout.flush()
            time.sleep(1000)
        elif word == "stray":
            done(request, 0, "stop")
        elif word == "error":
            put({"error": "prompt is too much", "code": words.pop(0), "field": "prompt", "prompt_tokens": 70, "limit": 64})
            return
        elif word == "length":
            finish = "length"
        elif word == "request":
            put({"token": json.dumps(request)})
            n += 1
    done(request, n, finish)


def main():
    seen, mode = sys.argv[1], sys.argv[2:]
    if "deaf" in mode:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "load_failed" in mode:
        put({"error": "tensor blk.0.attn_q.weight is cut short", "code": "load_failed"})
        sys.exit(1)
    if "exit" in mode:
        sys.exit(5)
    if "garbage" in mode:
        sys.stdout.write("{]\n")
        sys.stdout.flush()
        time.sleep(1000)
    while "slow" in mode and not os.path.exists(mode[-1]):
        time.sleep(0.01)
    if "once" in mode and not os.path.exists(mode[-1]):
        open(mode[-1], "w").close()
        sys.exit(6)
    ready()
    for line in sys.stdin:
        with open(seen, "a") as f:
            f.write(line)
        answer(json.loads(line))


try:
    main()
except (BrokenPipeError, KeyboardInterrupt):
    os._exit(0)

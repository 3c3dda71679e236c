#!/usr/bin/python3
"""callgrind_guard.py BUILD [--write]: instructions that one more token of a reply costs, against bench/callgrind.json.

Time is too noisy to be guarded; instructions are not. Small random models (tests/model/make_model) reply with 32 and with
64 tokens under valgrind's callgrind, on one thread with --cpu=avx2 (valgrind knows no AVX-512); the difference over 32 is
what a token costs in kernels, engine, sampling and text. More than 2 % away, up or down, is a failure: either a mistake,
or a change that was meant, and then --write stores the new figures with the commit that explains them. BUILD is a release
build (build/release); figures belong to one compiler, another one is told and skipped. Exit status 0, or 1.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

FIGURES = pathlib.Path(__file__).resolve().parent.parent / "bench/callgrind.json"
MODELS = {"Q4_0": ["type=Q4_0"], "Q8_0": ["type=Q8_0"], "Q4_K": ["type=Q4_K"]}
SHAPE = ["tokenizer=bpe", "vocab=300", "ctx=512", "layers=2"]
FEW, MANY = 32, 64
TOLERANCE = 0.02


def compiler(program):
    """What the program says it was made with (the section .comment)."""
    found = re.search(rb"GCC: \([^)\0]*\) [0-9.]+|clang version [0-9.]+", program.read_bytes())
    return found.group(0).decode() if found else "unknown"


def instructions(program, model, n_tokens, folder):
    run = subprocess.run(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", program, "run", "-m", model, "-t", "1",
                          "--cpu=avx2", "--raw", "-p", "a", "-n", str(n_tokens), "--ignore-eos", "--temp", "0.8", "--seed", "1",
                          "--json"], capture_output=True, text=True, check=False, env={**os.environ, "XDG_CACHE_HOME": folder})
    collected = re.search(r"Collected : (\d+)", run.stderr)
    if run.returncode or not collected:
        sys.exit(f"callgrind_guard: exit status {run.returncode}\n{run.stderr}")
    if len(json.loads(run.stdout)["ids"]) != n_tokens:
        sys.exit(f"callgrind_guard: the reply has not {n_tokens} tokens")
    return int(collected.group(1))


def measure(build):
    program = build / "src/cmd/hearth"
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, fields in MODELS.items():
            model = os.path.join(folder, name + ".gguf")
            subprocess.run([build / "tools/make_model/make_model", model, *SHAPE, *fields], check=True)
            instructions(program, model, 1, folder)  # packs, if packed weights are kept
            few, many = (instructions(program, model, n, folder) for n in (FEW, MANY))
            found[name] = round((many - few) / (MANY - FEW))
    return {"compiler": compiler(program), "instructions_per_token": found}


def main():
    args = [a for a in sys.argv[1:] if a != "--write"]
    if len(args) != 1:
        sys.exit(__doc__)
    now = measure(pathlib.Path(args[0]))
    if "--write" in sys.argv:
        FIGURES.write_text(json.dumps(now, indent=2) + "\n")
        print(f"callgrind_guard: written: {now}")
        return 0
    stored = json.loads(FIGURES.read_text())
    if stored["compiler"] != now["compiler"]:
        print(f"SKIPPED: figures are of {stored['compiler']}, this build is of {now['compiler']}")
        return 0
    failed = False
    for name, count in now["instructions_per_token"].items():
        was = stored["instructions_per_token"][name]
        bad = abs(count / was - 1) > TOLERANCE
        failed = failed or bad
        print(f"{name:5} {count:10} instructions a token, stored {was} ({count / was - 1:+.2%}){' FAILED' if bad else ''}")
    if failed:
        print(f"callgrind_guard: more than {TOLERANCE:.0%} away. If that is meant: tools/callgrind_guard.py {args[0]} --write, and "
              "say why in the commit")
    return failed


if __name__ == "__main__":
    sys.exit(main())

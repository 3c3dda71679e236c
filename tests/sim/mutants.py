#!/usr/bin/env python3
"""mutants.py [--root DIR] [--seconds T] [NAME ...]: does the simulator notice when a line of the engine is missing?

Each row of MUTANTS changes one place of src/engine in a copy of the tree; the simulator is built on that copy and must
fail within T seconds (60). Prints a table; exits 1 if one survives or no longer fits the code.
"""
import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

# name, file of src/engine, what stands there (once), what stands there instead
MUTANTS = [
    ("no cancel is swept", "engine.c", "if (sequence_cancelled(s) || sequence_overdue(s, now_ns)) {", "if (sequence_overdue(s, now_ns)) {"),
    ("no deadline is swept", "engine.c", "if (sequence_cancelled(s) || sequence_overdue(s, now_ns)) {", "if (sequence_cancelled(s)) {"),
    ("pages of an ended sequence stay", "sequence.c", "    resident_release(&s->own, en->pages);\n    if (s->prev) {", "    if (s->prev) {"),
    ("a failed request leaves its tokens", "sequence.c", "resident_truncate(s->kv, s->en->pages, 0); /* nothing", "/* nothing"),
    ("a failure leaves the session clean", "sequence.c", "owner->dirty = true;", ""),
    ("promises of the ended stay", "sequence.c", "en->promised_pages -= s->promised_pages;", ""),
    ("a dirty session is reused", "session.c", "if (s->dirty) {", "if (0) {"),
    ("one token too many is reused", "session.c", "*reuse = n - 1; /*", "*reuse = n; /*"),
]


def sh(args, **kw):
    return subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **kw)


def copy_tree(root, to):
    skip = shutil.ignore_patterns(".git", "build", "__pycache__")
    shutil.copytree(root, to, ignore=skip)


def build(build_dir):
    p = sh(["ninja", "-C", str(build_dir), "tests/sim/sim"])
    return p.returncode == 0, p.stdout


def run(build_dir, seconds):
    began = time.monotonic()
    p = sh([str(build_dir / "tests/sim/sim"), "--seed", "1", "--seconds", str(seconds), "--shrink", "0"])
    says = [line for line in p.stdout.splitlines() if "fails:" in line]
    return p.returncode, time.monotonic() - began, says[-1].split("fails: ", 1)[1] if says else p.stdout.strip()[-200:]


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--root", default=pathlib.Path(__file__).resolve().parents[2], type=pathlib.Path)
    a.add_argument("--seconds", default=60, type=int)
    a.add_argument("names", nargs="*")
    o = a.parse_args()
    wanted = [m for m in MUTANTS if not o.names or any(n in m[0] for n in o.names)]
    bad = 0
    with tempfile.TemporaryDirectory(prefix="hearth-mutants-") as tmp:
        tree, build_dir = pathlib.Path(tmp) / "tree", pathlib.Path(tmp) / "build"
        copy_tree(o.root, tree)
        setup = sh(["meson", "setup", str(build_dir), str(tree), "--buildtype=debugoptimized"])
        ok, log = build(build_dir) if setup.returncode == 0 else (False, setup.stdout)
        if not ok:
            print(log[-3000:])
            return 1
        rc, took, says = run(build_dir, 10)
        print(f"{'unchanged':44} {'fails' if rc else 'fine'} {took:6.1f} s  {says if rc else ''}", flush=True)
        bad += rc != 0
        for name, file, old, new in wanted:
            path = tree / "src/engine" / file
            text = path.read_text()
            if text.count(old) != 1:
                print(f"{name:44} STALE: {text.count(old)} places in {file}", flush=True)
                bad += 1
                continue
            path.write_text(text.replace(old, new))
            ok, log = build(build_dir)
            if not ok:
                errors = [line for line in log.splitlines() if "error:" in line]
                print(f"{name:44} STALE: {errors[:1]}", flush=True)
                bad += 1
            else:
                rc, took, says = run(build_dir, o.seconds)
                print(f"{name:44} {'killed' if rc else 'LIVES '} {took:6.1f} s  {says if rc else ''}", flush=True)
                bad += rc == 0
            path.write_text(text)
    print(f"{len(wanted)} mutants, {bad} not noticed or stale")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

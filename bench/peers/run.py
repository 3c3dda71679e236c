#!/usr/bin/python3
"""run.py MODEL [-t THREADS] [-p 512] [-n 32] [-b 16] [-d DEPTH] [--no-flash] [--rounds 5] [--cpu SET] [--hearth PATH]
          [--json]

hearth beside llama.cpp (node-llama-cpp from npm, this exact version) on the same file, sizes and threads. Round by round,
each side in turn first; a ratio is taken within a round, so that what the machine's other users do meets both. Prints
for prefill, decode of one stream and decode of many: medians, the median ratio and its range. Installs the peer into
bench/peers/node_modules when it is not there. Standard library only; needs Node 20 or newer (Debian 12 has 18) and npm.
"""
import argparse
import json
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
VERSION = "3.21.1"  # of node-llama-cpp; its binary package has the same one
TESTS = ["prefill", "decode", "streams"]


def install():
    """The module and the CPU binary of this machine; the others (CUDA, Vulkan) are hundreds of megabytes."""
    manifest = HERE / "node_modules/node-llama-cpp/package.json"
    if manifest.exists() and json.loads(manifest.read_text())["version"] == VERSION:
        return
    binary = {"x86_64": "linux-x64", "aarch64": "linux-arm64"}.get(platform.machine())
    if not binary:
        sys.exit(f"run.py: node-llama-cpp has no binary for {platform.machine()}")
    if shutil.which("npm") is None:
        sys.exit("run.py: npm is not in PATH: the peer needs it and Node 20 or newer")
    print(f"installing node-llama-cpp {VERSION}", file=sys.stderr)
    npm = subprocess.run(["npm", "install", "--no-save", "--no-audit", "--no-fund", "--omit=optional", "--ignore-scripts",
                          "--no-package-lock", f"node-llama-cpp@{VERSION}", f"@node-llama-cpp/{binary}@{VERSION}"],
                         cwd=HERE, stdout=sys.stderr, check=False)
    if npm.returncode:
        sys.exit("run.py: npm could not install the peer")


def answer(*command):
    """The JSON line that a command prints."""
    run = subprocess.run(list(map(os.fspath, command)), stdout=subprocess.PIPE, check=False, text=True)
    if run.returncode:
        sys.exit(f"run.py: {' '.join(map(str, command))}: exit status {run.returncode}")
    return json.loads(run.stdout)


def tests_of(args):
    skipped = {"prefill": args.prefill == 0, "streams": args.streams < 2}
    return [t for t in TESTS if not skipped.get(t)]


def hearth(args):
    common = [args.hearth, "bench", "-m", args.model, "-t", str(args.threads), "-r", "1", "--json", "-n", str(args.decode)]
    common += ["--cpu", args.cpu] if args.cpu else []
    how = {"prefill": ["-p", str(args.prefill), "-n", "0"], "decode": ["-p", "0", "-d", str(args.depth)],
           "streams": ["-p", "0", "-d", str(args.depth), "-b", str(args.streams)]}
    rates = {test: answer(*common, *how[test])["results"][0]["tok_s"] for test in tests_of(args)}
    return rates


def peer(args):
    return answer("node", HERE / "llama.mjs", args.model, str(args.threads), str(args.prefill), str(args.decode),
                  str(args.streams), str(args.depth), str(int(args.flash)))


def default_hearth():
    built = HERE.parent.parent / "build/release/src/cmd/hearth"
    return built if built.exists() else "hearth"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=os.path.abspath)
    parser.add_argument("-t", "--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("-p", "--prefill", type=int, default=512)
    parser.add_argument("-n", "--decode", type=int, default=32)
    parser.add_argument("-b", "--streams", type=int, default=16)
    parser.add_argument("-d", "--depth", type=int, default=0)
    parser.add_argument("--no-flash", dest="flash", action="store_false", help="the peer's other attention, faster at depth")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cpu", help="hearth's instruction set at most; the peer chooses its own")
    parser.add_argument("--hearth", default=default_hearth(), help="the program (build/release, else the one in PATH)")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    for need, how in ((args.hearth, "make build, or --hearth PATH"), ("node", "the peer needs Node 20 or newer")):
        if shutil.which(need) is None:
            sys.exit(f"run.py: {need} is not there: {how}")
    install()
    ours, theirs = [], []
    for i in range(args.rounds):
        for mine in (True, False) if i % 2 == 0 else (False, True):
            (ours if mine else theirs).append(hearth(args) if mine else peer(args))
        print(f"round {i + 1} of {args.rounds}: hearth {ours[-1]}, peer {theirs[-1]}", file=sys.stderr)
    results = []
    for test in tests_of(args):
        ratios = [a[test] / b[test] for a, b in zip(ours, theirs)]
        results.append({"test": test, "hearth_tok_s": round(statistics.median(a[test] for a in ours), 3),
                        "peer_tok_s": round(statistics.median(b[test] for b in theirs), 3),
                        "ratio": round(statistics.median(ratios), 4), "ratio_min": round(min(ratios), 4),
                        "ratio_max": round(max(ratios), 4)})
    if args.json:
        print(json.dumps({"peer": f"node-llama-cpp {VERSION}", "model": args.model, "threads": args.threads,
                          "prefill": args.prefill, "decode": args.decode, "streams": args.streams, "depth": args.depth, "rounds": args.rounds,
                          "results": results}))
        return
    depth = f", {args.depth} tokens deep" if args.depth else ""
    print(f"{os.path.basename(args.model)}, {args.threads} threads{depth}, medians of {args.rounds} rounds, tokens a second")
    print("test            hearth      peer     ratio   (range)")
    for r in results:
        size = {"prefill": args.prefill, "decode": args.decode, "streams": args.streams}[r["test"]]
        print(f"{r['test']:8} {size:5} {r['hearth_tok_s']:10.2f}{r['peer_tok_s']:10.2f}{r['ratio']:10.3f}"
              f"   ({r['ratio_min']:.3f} – {r['ratio_max']:.3f})")


if __name__ == "__main__":
    main()

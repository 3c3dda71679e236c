#!/usr/bin/python3
"""run_model.py HEARTH MODEL: prefill of 512 tokens and decode of 32 through `hearth run`, medians of three, beside the
read bandwidth that `hearth doctor` measures in the same minutes."""
import json
import statistics
import subprocess
import sys

RUNS = 3


def hearth(*args):
    run = subprocess.run([sys.argv[1], *args], capture_output=True, text=True, check=True)
    return json.loads(run.stdout)


def main():
    model = sys.argv[2]
    info = hearth("inspect", "--json", model)
    prompt = " hello" * 511  # one token each with the vocabulary of make_bench_model.py, plus BOS
    prefill, decode, read = [], [], []
    for _ in range(RUNS):
        read.append(hearth("doctor", "--json")["read_gbs"])
        r = hearth("run", "-m", model, "-p", prompt, "-n", "1", "--json", "--raw", "--ignore-eos")
        prefill.append(r["prompt_tokens"] / r["prefill_ms"] * 1e3)
        r = hearth("run", "-m", model, "-p", "hello", "-n", "32", "--json", "--raw", "--ignore-eos")
        decode.append(r["decode_tok_s"])
    gb = info["tensor_bytes"] / 1e9  # tied embedding: all of it is read for each token
    limit = statistics.median(read) / gb
    print(f"model   {info['name']}, {gb:.2f} GB of weights, threads {hearth('doctor', '--json')['threads']}")
    print(f"read    {statistics.median(read):.1f} GB/s, so at most {limit:.1f} tokens/s of decode")
    print(f"prefill {statistics.median(prefill):.1f} tokens/s (512 tokens)")
    print(f"decode  {statistics.median(decode):.1f} tokens/s, {statistics.median(decode) / limit:.2f} of the limit")


if __name__ == "__main__":
    main()

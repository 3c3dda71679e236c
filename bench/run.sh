#!/usr/bin/env bash
# run.sh BUILD: the matrix products alone, then a model of 1B size beside what memory and matrix unit allow.
# The model is made once (random weights, 663 MiB) where ../shared/tools is present and python3-numpy installed.
set -euo pipefail
cd "$(dirname "$0")/.."
hearth=$1/src/cmd/hearth
"$hearth" bench --kernels
maker=../shared/tools/make_bench_model.py
[ -f $maker ] || { echo "SKIPPED: model of 1B size ($maker is absent)"; exit 0; }
/usr/bin/python3 -c 'import numpy' 2>/dev/null || { echo "SKIPPED: model of 1B size (python3-numpy is absent)"; exit 0; }
mkdir -p build/bench
model=build/bench/llama-1b-q4_0.gguf
[ -f $model ] || /usr/bin/python3 $maker $model llama-1b Q4_0 ../shared/fixtures/tokenizers/llama3.gguf
echo
"$hearth" bench -m $model -p 512
"$hearth" bench -m $model -p 0 -b 16

#!/usr/bin/env bash
# run.sh BUILD: the matrix products alone, then `hearth run` on a model of 1B size, beside what memory allows.
# The model is made once (random weights, 663 MiB) where ../shared/tools is present and python3-numpy installed.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
ninja -C "$build" bench_kern >/dev/null
"$build/bench_kern"
maker=../shared/tools/make_bench_model.py
[ -f $maker ] || { echo "SKIPPED: model of 1B size ($maker is absent)"; exit 0; }
/usr/bin/python3 -c 'import numpy' 2>/dev/null || { echo "SKIPPED: model of 1B size (python3-numpy is absent)"; exit 0; }
mkdir -p build/bench
model=build/bench/llama-1b-q4_0.gguf
[ -f $model ] || /usr/bin/python3 $maker $model llama-1b Q4_0 ../shared/fixtures/tokenizers/llama3.gguf
/usr/bin/python3 bench/run_model.py "$build/src/cmd/hearth" $model

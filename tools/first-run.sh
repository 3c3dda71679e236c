#!/usr/bin/env bash
# first-run.sh BUILD: the first minute. No model is bundled yet, so one is made: random weights, text that is noise.
set -euo pipefail
cd "$(dirname "$0")/.."
hearth=$1/src/cmd/hearth
model=$1/noise.gguf
[ -f "$model" ] || "$1/tools/make_model/make_model" "$model" tokenizer=bpe vocab=1024 ctx=8192 type=Q8_0 layers=4
cat >&2 <<EOF

hearth works. No trained model is bundled yet: this one is random, so its text is noise.
\$ $hearth run -m $model -p "Once upon a time" -n 48 --temp 0.8 --seed 1

EOF
"$hearth" run -m "$model" -p "Once upon a time" -n 48 --temp 0.8 --seed 1 --raw
cat >&2 <<EOF

With a model of yours (GGUF, llama or qwen3; F32, F16, BF16, Q8_0, Q4_0, Q4_K, Q6_K):
  $hearth run -m MODEL.gguf -p "Once upon a time" -n 100
  $hearth serve -m MODEL.gguf        # then POST http://127.0.0.1:8080/v1/completions
EOF

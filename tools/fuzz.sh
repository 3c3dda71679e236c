#!/usr/bin/env bash
# fuzz.sh [SECONDS]: builds the libFuzzer targets with clang and runs each for SECONDS (default 20).
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-20}
[ -f build/fuzz/build.ninja ] || CC=clang meson setup build/fuzz -Dfuzz=true -Db_sanitize=address,undefined \
  -Db_lundef=false -Dc_args=-fsanitize=fuzzer-no-link -Dc_link_args=-fsanitize=fuzzer-no-link >/dev/null
targets=(tests/fuzz/fuzz_*.c)
targets=("${targets[@]%.c}")
ninja -C build/fuzz "${targets[@]}" >/dev/null
passed=0
for target in "${targets[@]/#/build/fuzz/}"; do
  corpus=$(mktemp -d)
  name=$(basename "$target")
  seeds=tests/fuzz/seeds/${name#fuzz_}
  [ -d "$seeds" ] && cp "$seeds"/* "$corpus"
  echo "== $(basename "$target") for $seconds s" >&2
  "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=3000 -print_final_stats=1 "$corpus" 2>"$corpus.log" ||
    { tail -n 60 "$corpus.log" >&2; exit 1; }
  grep -E 'number_of_executed_units' "$corpus.log" >&2
  rm -rf "$corpus" "$corpus.log"
  passed=$((passed + 1))
done
echo "fuzz: $passed passed, 0 failed"

#!/usr/bin/env bash
# fuzz.sh [SECONDS]: builds the libFuzzer targets with clang and runs each for SECONDS (default 20), two at a time.
set -euo pipefail
cd "$(dirname "$0")/.."
export FUZZ_SECONDS=${1:-20}
[ -f build/fuzz/build.ninja ] || CC=clang meson setup build/fuzz -Dfuzz=true -Db_sanitize=address,undefined \
  -Db_lundef=false -Dc_args=-fsanitize=fuzzer-no-link -Dc_link_args=-fsanitize=fuzzer-no-link >/dev/null
targets=(tests/fuzz/fuzz_*.c)
targets=("${targets[@]%.c}")
ninja -C build/fuzz "${targets[@]}" >/dev/null

run_one() {
  local name corpus rc=0
  name=$(basename "$1")
  corpus=$(mktemp -d)
  [ -d "tests/fuzz/seeds/${name#fuzz_}" ] && cp "tests/fuzz/seeds/${name#fuzz_}"/* "$corpus"
  "build/fuzz/$1" -max_total_time="$FUZZ_SECONDS" -timeout=10 -rss_limit_mb=3000 -print_final_stats=1 "$corpus" \
    2>"$corpus.log" || rc=1
  if [ $rc = 0 ]; then
    echo "== $name for $FUZZ_SECONDS s: $(grep -E 'number_of_executed_units' "$corpus.log")" >&2
  else
    { echo "== $name FAILED"; tail -n 60 "$corpus.log"; } >&2
  fi
  rm -rf "$corpus" "$corpus.log"
  return $rc
}
export -f run_one
printf '%s\0' "${targets[@]}" | xargs -0 -n 1 -P 2 bash -c 'run_one "$0"'
echo "fuzz: ${#targets[@]} passed, 0 failed"

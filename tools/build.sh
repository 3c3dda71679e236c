#!/usr/bin/env bash
# build.sh KIND [meson options]: sets up build/KIND once and compiles it; quiet unless something is wrong.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=build/$1
shift
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if [ ! -f "$dir/build.ninja" ]; then
  echo "setting up $dir" >&2
  meson setup "$dir" "$@" >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
fi
echo "compiling $dir" >&2
ninja -C "$dir" >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
grep -E 'warning:' "$log" >&2 || true

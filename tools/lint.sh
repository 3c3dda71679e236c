#!/usr/bin/env bash
# lint.sh cppcheck|clang-tidy: static checks over src/ with the build's own flags; any finding fails.
set -euo pipefail
cd "$(dirname "$0")/.."
db=build/clang
[ -f $db/compile_commands.json ] || CC=clang meson setup $db -Dwerror=true >/dev/null
case $1 in
cppcheck)
  cppcheck --quiet --std=c11 --enable=warning,performance,portability --inline-suppr --error-exitcode=1 \
    --suppress=missingIncludeSystem -Isrc -Iinclude -D_GNU_SOURCE -D__x86_64__=1 -j2 src
  ;;
clang-tidy)
  # arm/ is not in this build's list of commands; its own compiler looks at it (tools/aarch64.sh)
  find src -name '*.c' -not -path 'src/kern/arm/*' -print0 | xargs -0 -n 1 -P 2 clang-tidy --quiet -p $db --warnings-as-errors='*' 2>/dev/null
  ;;
*)
  echo "lint: cppcheck or clang-tidy" >&2
  exit 2
  ;;
esac

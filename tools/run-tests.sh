#!/usr/bin/env bash
# run-tests.sh DIR [meson test options]: runs the tests of a build, then says what was skipped and why, and one closing line.
set -uo pipefail
cd "$(dirname "$0")/.."
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:allocator_may_return_null=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-halt_on_error=1:print_stacktrace=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1:second_deadlock_stack=1}
dir=$1
shift
# Two a core: what the daemon's tests do most is wait. Limits of time are there to end what hangs, on slow machines too.
meson test -C "$dir" --no-rebuild --print-errorlogs --num-processes $(($(nproc) * 2)) --timeout-multiplier 5 "$@"
rc=$?
/usr/bin/python3 tools/test_summary.py "$dir" || rc=1
exit $rc

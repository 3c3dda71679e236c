#!/usr/bin/env bash
# test_installed.sh BUILD MAKE_MODEL [FLAG ...]: installs BUILD into a folder of its own, compiles examples/hello.c with
# what pkg-config says of that folder (shared and static) and runs it on a random model.
set -euo pipefail
build=$1
make_model=$2
shift 2
root=$(cd "$(dirname "$0")/../.." && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

DESTDIR=$dir meson install -C "$build" --no-rebuild --quiet >"$dir/log" 2>&1 || { cat "$dir/log" >&2; exit 1; }
pc=$(find "$dir" -name hearth.pc)
export PKG_CONFIG_PATH=${pc%/*} PKG_CONFIG_SYSROOT_DIR=$dir
lib=${pc%/pkgconfig/hearth.pc}
"$make_model" "$dir/model.gguf" type=Q8_0 tokenizer=bpe vocab=300 >/dev/null

# pkg-config puts the folder before every path, also before those of other packages: these lie in the system.
flags() {
  pkg-config "$@" hearth | sed "s#-I$dir/usr/include#-I/usr/include#g; s#-L$dir/usr/lib#-L/usr/lib#g"
}

check() { # NAME: the program was built
  "$dir/$1" "$dir/model.gguf" "Once upon a time" >"$dir/$1.out"
  grep -Eq '^\[[0-9]+ tokens, (stop|length), [0-9]+ ms, seed [0-9]+\]$' "$dir/$1.out" || { cat "$dir/$1.out" >&2; exit 1; }
  if "$dir/$1" "$dir/nowhere.gguf" 2>"$dir/$1.err"; then exit 1; fi
  grep -q nowhere.gguf "$dir/$1.err"
}

cc=${CC:-cc}
# shellcheck disable=SC2046
$cc -std=c11 -Wall -Wextra -Werror "$@" "$root/examples/hello.c" -o "$dir/shared" $(flags --cflags --libs)
readelf -d "$dir/shared" | grep -q 'NEEDED.*libhearth\.so\.0'
LD_LIBRARY_PATH=$lib check shared
# shellcheck disable=SC2046
$cc -std=c11 "$@" "$root/examples/hello.c" -o "$dir/static" $(flags --cflags --static --libs | sed "s#-lhearth#$lib/libhearth.a#")
check static

# Only the public names leave the library, and all of them do.
nm -D --defined-only "$lib/libhearth.so" | awk '$2 ~ /[TDBRVW]/ {sub(/@.*/, "", $3); print $3}' | sort >"$dir/names"
grep -Eo '\bhearth_[a-z_]+\(' "$(find "$dir" -name hearth.h)" | tr -d '(' | sort -u | grep -Ev '_(fn|t)$' >"$dir/declared"
diff "$dir/declared" "$dir/names"

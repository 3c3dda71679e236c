#!/usr/bin/env bash
# Installs the Debian packages that are missing: `run` for building and running, `test` adds what `make test` needs,
# `ci` what the longer tiers need, `arm` the cross build.
# Does nothing, and asks for nothing, when all are there.
set -euo pipefail
profile=${1:-run}
packages=(gcc libc6-dev pkg-config meson ninja-build python3 libevent-dev libssl-dev libhttp-parser-dev libpcre2-dev
  libutf8proc-dev libxxhash-dev libseccomp-dev libsqlite3-dev libedit-dev)
case $profile in
run) ;;
test) packages+=(libcmocka-dev) ;;
ci) packages+=(libcmocka-dev clang clang-format clang-tidy cppcheck libclang-rt-14-dev curl nodejs valgrind) ;;
arm)
  packages=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user)
  for p in libssl-dev libxxhash-dev libpcre2-dev libutf8proc-dev libseccomp-dev libsqlite3-dev libcmocka-dev; do
    packages+=("$p:arm64")
  done
  ;;
*)
  echo "install-deps: unknown profile '$profile' (run, test, ci, arm)" >&2
  exit 2
  ;;
esac
missing=()
for p in "${packages[@]}"; do
  # once per architecture that has it
  [[ "$(dpkg-query -W -f='${db:Status-Status}' "$p" 2>/dev/null || true)" == installed* ]] || missing+=("$p")
done
[ ${#missing[@]} -eq 0 ] && exit 0
echo "install-deps: installing ${missing[*]}" >&2
as_root=()
[ "$(id -u)" = 0 ] || as_root=(sudo)
export DEBIAN_FRONTEND=noninteractive
[ "$profile" != arm ] || "${as_root[@]}" dpkg --add-architecture arm64
"${as_root[@]}" apt-get -qq update >&2
"${as_root[@]}" apt-get -qq install -y --no-install-recommends "${missing[@]}" >&2

#!/usr/bin/env bash
# Builds all below the daemon for ARM with Debian's cross compiler and runs the kernels' and the model's tests under
# qemu-user (CI's last tier). Needs the profile `arm` of install-deps.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -d build/aarch64 ] || meson setup build/aarch64 --cross-file tools/cross/aarch64.ini >/dev/null
ninja -C build/aarch64 --quiet
exec tools/run-tests.sh build/aarch64 --suite kern "$@"

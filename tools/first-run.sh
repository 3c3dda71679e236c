#!/usr/bin/env bash
# first-run.sh BUILD: the first minute, a conversation with the bundled model. Without a terminal its lines are stdin's.
set -euo pipefail
cd "$(dirname "$0")/.."
hearth=$1/src/cmd/hearth
echo "\$ $hearth chat" >&2
exec "$hearth" chat

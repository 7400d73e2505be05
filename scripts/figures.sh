#!/bin/sh
# The figures to reach, medians of one run side by side with tmpfs: `scripts/figures.sh [--quick] [--json FILE] ...`.
# $LIGHTPATH_BIN names the command; without it, the release build of this tree is made and used.
set -eu
cd "$(dirname "$0")/.."
if [ -z "${LIGHTPATH_BIN:-}" ]; then
    cargo build --quiet --release -p lightpath
    LIGHTPATH_BIN="${CARGO_TARGET_DIR:-target}/release/lightpath"
fi
exec "$LIGHTPATH_BIN" bench figures --goals "$@"

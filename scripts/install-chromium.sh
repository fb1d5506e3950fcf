#!/usr/bin/env bash
# Installs Debian's Chromium where there is none: for `npm run test:site`, and for the report's tests of `npm run test:engines`. Without
# apt-get, or a right to use it that asks for no password, it says so and fails.
set -euo pipefail
if [ -n "${CHROMIUM:-}" ] || { command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null; then exit 0; fi
if ! command -v apt-get >/dev/null; then
  echo "There is no Chromium and no apt-get to install it with: install one, or set CHROMIUM=/path/to/it." >&2
  exit 1
fi
as_root=()
[ "$(id -u)" = 0 ] || as_root=(sudo -n)
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core

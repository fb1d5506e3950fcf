#!/usr/bin/env bash
# Checks against real PyTorch (docs/engines.md). Takes the python3 at hand if it has the right PyTorch; otherwise makes a
# virtual environment once, in node_modules/.cache/engines or $SHARDWRIGHT_ENGINES. Arguments go to vitest.
set -euo pipefail
cd "$(dirname "$0")/.."
torch=2.13.0
folder=${SHARDWRIGHT_ENGINES:-node_modules/.cache/engines}

has_torch() {
  "$1" -c "
import importlib.metadata as m, sys
try:
    sys.exit(m.version('torch').split('+')[0] != '$torch' or not m.version('numpy'))
except m.PackageNotFoundError:
    sys.exit(1)" 2>/dev/null
}

if ! command -v python3 >/dev/null; then
  echo "test:engines needs python3 with pip (3.10 or later) to run PyTorch $torch; there is no python3 on the PATH." >&2
  exit 1
fi
if has_torch python3; then
  python=$(command -v python3)
else
  python=$folder/bin/python
  if ! { [ -x "$python" ] && has_torch "$python"; }; then
    echo "installing PyTorch $torch in $folder (once)" >&2
    rm -rf "$folder"
    mkdir -p "$(dirname "$folder")"
    # Debian's python3 has no ensurepip: there the outer pip fills an environment without one.
    if python3 -m venv "$folder" >/dev/null 2>&1; then
      pip=("$folder/bin/python" -m pip)
    else
      rm -rf "$folder"
      python3 -m venv --without-pip "$folder"
      pip=(python3 -m pip --python "$folder/bin/python")
    fi
    if ! "${pip[@]}" install --quiet --disable-pip-version-check "torch==$torch" numpy; then
      rm -rf "$folder"
      echo "test:engines could not install torch==$torch with ${pip[*]}; see the message of pip above." >&2
      exit 1
    fi
  fi
fi
SHARDWRIGHT_PYTHON=$python exec node_modules/.bin/vitest run --config vitest.engines.config.ts "$@"

#!/usr/bin/env bash
# Checks against real PyTorch, spmd_types, JAX, transformers and packages that read exported files (docs/engines.md). Takes the
# python3 at hand if it has all of them; otherwise makes a virtual environment once, in node_modules/.cache/engines or
# $SHARDWRIGHT_ENGINES, which takes what python3 has of them. `--install` ends there; other arguments go to vitest.
# With SHARDWRIGHT_FULL=1 Ray Train gets an environment beside it, which reads the packages of the first: 600 MB, about a minute.
set -euo pipefail
cd "$(dirname "$0")/.."
torch=2.13.0
packages=("torch==$torch" numpy "spmd-types==0.3.1" "jax==0.10.2" "flax==0.12.8" "optax==0.2.8" "equinox==0.13.8" "transformers==5.23.0"
  "accelerate==1.15.0" "lightning==2.6.6" "megatron-core==0.16.1" "deepspeed==0.19.8" "tyro==1.0.17" "ray==2.60.0" pytest)
# Its configuration needs tyro alone; what it asks for beside that (pyarrow, pandas, wandb, ...) is 400 MB, and an older spmd-types.
alone=("torchtitan==0.3.0")
folder=${SHARDWRIGHT_ENGINES:-$PWD/node_modules/.cache/engines}

# has PYTHON PACKAGE[==VERSION]...: whether it has them all, in these versions.
has() {
  "$1" -c "
import importlib.metadata as m, sys
try:
    for name, _, version in (p.partition('==') for p in sys.argv[1:]):
        if m.version(name).split('+')[0] != (version or m.version(name)):
            sys.exit(1)
except m.PackageNotFoundError:
    sys.exit(1)" "${@:2}" 2>/dev/null
}

if ! command -v python3 >/dev/null; then
  echo "test:engines needs python3 with pip (3.11 or later) to run PyTorch $torch; there is no python3 on the PATH." >&2
  exit 1
fi
if has python3 "${packages[@]}" "${alone[@]}"; then
  python=$(command -v python3)
else
  python=$folder/bin/python
  if ! { [ -x "$python" ] && has "$python" "${packages[@]}" "${alone[@]}"; }; then
    echo "installing ${packages[*]} ${alone[*]} in $folder (once)" >&2
    rm -rf "$folder"
    mkdir -p "$(dirname "$folder")"
    # A PyTorch of the right version is large, and not fetched again.
    shared=()
    if has python3 "torch==$torch"; then shared=(--system-site-packages); fi
    # Debian's python3 has no ensurepip: there the outer pip fills an environment without one.
    if python3 -m venv "${shared[@]}" "$folder" >/dev/null 2>&1; then
      pip=("$folder/bin/python" -m pip)
    else
      rm -rf "$folder"
      python3 -m venv "${shared[@]}" --without-pip "$folder"
      pip=(python3 -m pip --python "$folder/bin/python")
    fi
    # DeepSpeed compiles its kernels when they are called, not here.
    export DS_BUILD_OPS=0
    if ! { "${pip[@]}" install --quiet --disable-pip-version-check "${packages[@]}" &&
      "${pip[@]}" install --quiet --disable-pip-version-check --no-deps "${alone[@]}"; }; then
      rm -rf "$folder"
      echo "test:engines could not install ${packages[*]} ${alone[*]} with ${pip[*]}; see the message of pip above." >&2
      exit 1
    fi
  fi
fi
if [ "${SHARDWRIGHT_FULL:-}" = 1 ]; then
  ray="ray[train]==2.60.0"
  with_ray=$folder-ray/bin/python
  if ! { [ -x "$with_ray" ] && has "$with_ray" "${ray/\[train\]/}" "torch==$torch" pyarrow; }; then
    echo "installing $ray in $folder-ray (once)" >&2
    rm -rf "$folder-ray"
    "$python" -m venv --without-pip "$folder-ray"
    "$python" -c "import site; print('\n'.join(site.getsitepackages()))" >"$(echo "$folder-ray"/lib/python3.*/site-packages)/engines.pth"
    pip=(python3 -m pip)
    if "$python" -m pip --version >/dev/null 2>&1; then pip=("$python" -m pip); fi
    if ! "${pip[@]}" --python "$with_ray" install --quiet --disable-pip-version-check "$ray"; then
      rm -rf "$folder-ray"
      echo "test:engines could not install $ray: the test of Ray Train is skipped." >&2
    fi
  fi
  export SHARDWRIGHT_RAY_PYTHON=$with_ray
fi
if [ "${1:-}" = --install ]; then exit; fi
# The report is opened in a browser. Not with --install: beside that, CI calls the same script.
if [ $# -eq 0 ] || [[ "$*" == *report* ]]; then
  bash scripts/install-chromium.sh >/dev/null ||
    echo "test:engines could not install Chromium: the tests of the report in a browser are skipped by name." >&2
fi
SHARDWRIGHT_PYTHON=$python exec node_modules/.bin/vitest run --config vitest.engines.config.ts "$@"

#!/usr/bin/env bash
# Fills a virtual environment from a lock: locks/install.sh VENV cpu|gpu
#
# --no-deps throughout: the lock is the whole truth. Otherwise a resolver would bring back torchvision and its like, whose CUDA-linked
# builds break a CPU installation (see overrides-cpu.txt).
set -euo pipefail
venv=$1
kind=$2
here=$(cd "$(dirname "$0")" && pwd)
python=$venv/bin/python
lock=$here/$kind.lock

# Where ensurepip is missing, venv fails and leaves a folder with a Python and without pip.
if ! "$python" -m pip --version >/dev/null 2>&1; then
  base=${PYTHON:-$("$here/python.sh")}
  "$base" -m venv "$venv"
fi

# uv is several times faster than pip; it is used if it is there or can be had.
uv=$(command -v uv || true)
if [ -z "$uv" ]; then
  "$python" -m pip install --quiet uv 2>/dev/null && uv=$venv/bin/uv || uv=
fi

installed=
if [ -n "$uv" ]; then
  # Bytecode is compiled at once, as pip does: where Python may not write it (PYTHONDONTWRITEBYTECODE, frequent in containers), each
  # process would compile torch and vLLM again, for some ten seconds.
  install=("$uv" pip install --python "$python" --compile-bytecode --no-deps -r "$lock")
  # pip's PIP_FIND_LINKS (a folder with PyTorch's CPU wheel) is not read by uv, so it is handed over. Without one, uv knows where
  # PyTorch keeps its CPU builds.
  if [ -n "${PIP_FIND_LINKS:-}" ]; then
    "${install[@]}" --find-links "$PIP_FIND_LINKS" && installed=yes
  elif [ "$kind" = cpu ]; then
    "${install[@]}" --torch-backend cpu && installed=yes
  else
    "${install[@]}" && installed=yes
  fi
fi
if [ -z "$installed" ] && ! "$python" -m pip install --no-deps -r "$lock"; then
  echo "The packages of $lock could not be installed. PyTorch's CPU build is not on the default index: install uv, or set" >&2
  echo "PIP_EXTRA_INDEX_URL to PyTorch's CPU index or PIP_FIND_LINKS to a folder with its wheel, and try again." >&2
  exit 1
fi
"$python" -m pip install --quiet --no-deps --no-build-isolation -e "$here/.."
touch "$venv/.ready"

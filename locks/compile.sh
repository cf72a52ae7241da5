#!/usr/bin/env bash
# Resolves the locks anew, each for Python 3.11 and 3.12 on x86-64 and arm64 Linux ([tool.uv] in pyproject.toml): locks/compile.sh [OPTION...]
#
# Versions stay as they are as long as they fit; an option of uv pip compile, such as --upgrade-package NAME, moves them. Needs uv. PyTorch's
# CPU builds come from where uv knows them, or from the folder that PIP_FIND_LINKS names, which has to hold a wheel for each Python and machine.
set -euo pipefail
cd "$(dirname "$0")/.."
cpu=(--extra cpu --extra envs --extra dev --override locks/overrides-cpu.txt)
if [ -n "${PIP_FIND_LINKS:-}" ]; then cpu+=(--find-links "$PIP_FIND_LINKS"); else cpu+=(--torch-backend cpu); fi

# What [tool.uv] environments says of every package goes without saying.
cpython="platform_python_implementation == 'CPython' and sys_platform == 'linux'"
everywhere="python_full_version < '3.13' and implementation_name == 'cpython'"
everywhere+=" and ((platform_machine == 'aarch64' and $cpython) or (platform_machine == 'x86_64' and $cpython))"

lock() { # FILE OPTION...
  uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --no-header "${@:2}" -o "$1"
  sed -i "s/ ; $everywhere\$//" "$1"
}
lock locks/cpu.lock "${cpu[@]}" "$@"
lock locks/gpu.lock --extra gpu --extra envs --extra dev "$@"
# That of the documentation holds what the CPU lock does not.
lock locks/docs.lock "${cpu[@]}" --extra docs --no-annotate -c locks/cpu.lock "$@"
grep -vxF -f locks/cpu.lock locks/docs.lock > locks/docs.lock.part
mv locks/docs.lock.part locks/docs.lock

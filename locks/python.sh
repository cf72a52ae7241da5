#!/usr/bin/env bash
# Prints the path of a Python that agentr can be installed with: locks/python.sh [smallest]
#
# That is one of VERSIONS which starts, and has what makes a virtual environment: a name on the PATH may be a stub that starts nothing, as
# pyenv's, and Debian and Ubuntu pack the module ensurepip by itself. The first name of VERSIONS that there is, as the PATH and then pyenv
# have it; with "smallest", of all that there are the one of the lowest full version, since what works there works with later ones.
set -euo pipefail
VERSIONS="3.11 3.12"  # as requires-python in pyproject.toml

candidates() {
  local version folder
  for version in $VERSIONS; do
    IFS=: read -ra folders <<< "$PATH"
    for folder in "${folders[@]}" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin; do
      [ -x "$folder/python$version" ] && echo "$version $folder/python$version"
    done
  done
  return 0
}

found=()
bare= # one that starts and has no ensurepip
while read -r version path; do
  full=$("$path" -c 'import platform; print(platform.python_version())' 2>/dev/null) || continue
  case $full in "$version".*) ;; *) continue ;; esac
  if "$path" -c 'import ensurepip, venv' 2>/dev/null; then
    found+=("$full $path")
    [ "${1:-}" = smallest ] || break
  else
    bare=python$version
  fi
done < <(candidates)

if [ ${#found[@]} = 0 ]; then
  if [ -n "$bare" ]; then
    echo "$bare is here without what makes a virtual environment. On Debian and Ubuntu: sudo apt install $bare-venv" >&2
  else
    echo "agentr needs Python ${VERSIONS// / or } with its module venv, and there is none on the PATH. On Debian 12 and Ubuntu 24.04:" \
      "sudo apt install python3-venv. Elsewhere: uv venv --seed --python 3.12 .venv, and the same command again." >&2
  fi
  exit 1
fi
printf '%s\n' "${found[@]}" | sort --stable --version-sort --key 1,1 | head -n 1 | cut -d ' ' -f 2-

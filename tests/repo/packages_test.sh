#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Which packages ./run installs on which system. Programs of its own take the place of dpkg-query, apt-cache and apt-get.
set -euo pipefail
command -v dpkg >/dev/null || { printf 'SKIPPED: no dpkg\ncases: 0 passed, 0 failed, 1 skipped\n'; exit; }
run=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../run")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/bin"
program() { cat >"$scratch/bin/$1" && chmod +x "$scratch/bin/$1"; }
# $scratch/installed and $scratch/known have a line `name version` for each package.
program dpkg-query <<'TEXT'
#!/bin/sh
while read -r name version; do [ "$name" != "$3" ] || echo "installed $version"; done <"$SCRATCH/installed"
TEXT
program apt-cache <<'TEXT'
#!/bin/sh
echo "$2:"
while read -r name version; do [ "$name" != "$2" ] || echo "  Candidate: $version"; done <"$SCRATCH/known"
TEXT
program apt-get <<'TEXT'
#!/bin/sh
echo "$*" >>"$SCRATCH/calls"
TEXT
program sudo <<'TEXT'
#!/bin/sh
[ "$1" != -n ] || shift
exec "$@"
TEXT
# Nothing is built.
printf '#!/bin/sh\nexit 1\n' | program cmake

core="g++ cmake ninja-build pkg-config liburing-dev libfmt-dev nettle-dev libcli11-dev nlohmann-json3-dev doctest-dev libeigen3-dev zlib1g-dev"
# system installed known: packages as name[=version]; core packages are known, too.
system() {
  local list package
  for list in installed known; do
    for package in $1; do
      if [[ $package == *=* ]]; then echo "${package%%=*} ${package#*=}"; else echo "$package 1"; fi
    done >"$scratch/$list"
    shift
  done
}
# expect title command packages, or says:text: what ./run installs of Boost and Level Zero, or says.
failed=0
expect() {
  local title=$1 command=$2 wanted=$3 output packages
  : >"$scratch/calls"
  output=$(SCRATCH=$scratch PATH=$scratch/bin:$PATH "$run" $command </dev/null 2>&1) || true
  packages=$(sed -n 's/.*install --no-install-recommends //p' "$scratch/calls" | tr ' \n' '\n\n' | sed -nE '/boost|libze/p' | tr '\n' ' ')
  if [[ $wanted == says:* ]]; then
    [[ $output == *"${wanted#says:}"* ]] && return
  else
    [[ ${packages% } == "$wanted" ]] && return
  fi
  failed=1
  printf '%s: ./run %s installs "%s", not "%s":\n%s\n' "$title" "$command" "${packages% }" "$wanted" "$output"
}

system "" "$core libboost-dev=1.74.0.3 libboost1.81-dev=1.81.0-5 libze-dev libze1"
expect 'Debian 12' demo libboost1.81-dev
expect 'Debian 12' 'test --build-only' 'libboost1.81-dev libze-dev libze1'
system "" "$core libboost-dev=1.83.0.2+b2 libboost1.88-dev=1.88.0-1 libze-dev libze1"
expect 'Debian 13' demo libboost-dev
system "libboost1.88-dev=1.88.0-1" "$core libboost-dev=1.83.0.2+b2 libboost1.88-dev=1.88.0-1"
expect 'Debian 13 with Boost 1.88' demo ''
system "" "$core libboost-dev=1.83.0.1ubuntu2"
expect 'Ubuntu 24.04, arm64' install libboost-dev
expect 'Ubuntu 24.04, arm64' install 'says:apt knows no package libze-dev'
system "libboost-dev=1.74.0.3" "$core libboost-dev=1.74.0.3"
expect 'Ubuntu 22.04' demo 'says:Debian 13 and Ubuntu 24.04'
expect 'Ubuntu 22.04' demo ''
exit "$failed"

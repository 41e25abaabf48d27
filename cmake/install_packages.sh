#!/bin/sh
# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
#
# Installs what a purpose needs on Debian 12 and is not there yet:
#
#     cmake/install_packages.sh examples|tests|docs|benchmarks|mpich... [--list]
#
# If everything is there, nothing is downloaded and no rights are needed. ESPALIER_NO_INSTALL=1 never installs.
set -eu

# What every build uses.
build="g++ cmake ninja-build ccache"
library="libboost-dev libboost-mpi-dev libopenmpi-dev openmpi-bin libxtensor-dev libopenblas-openmp-dev libcli11-dev"

# clang-14 needs its OpenMP runtime; clang 19's would remove that one, so clang 19 builds without OpenMP.
test_tools="catch2 python3 git iproute2 clang-14 libomp-14-dev clang-19 clang-format-14 clang-tidy-14"

# Another MPI beside Open MPI: tests/run --mpich.
mpich="mpich libmpich-dev xz-utils"

# docs/build makes pages with these.
pages="python3 mkdocs mkdocs-material"

# Without these the other checks still run, and ctest reports theirs as skipped.
optional="clang-19"

packages=""
list_only=no
for purpose in "$@"; do
  case $purpose in
    examples) packages="$packages $build $library" ;;
    tests) packages="$packages $build $library $test_tools" ;;
    mpich) packages="$packages $mpich" ;;
    docs) packages="$packages $pages" ;;
    benchmarks) packages="$packages $build $library" ;;
    --list) list_only=yes ;;
    *)
      echo "usage: $0 examples|tests|docs|benchmarks|mpich... [--list]" >&2
      exit 2
      ;;
  esac
done
if [ -z "$packages" ]; then
  echo "usage: $0 examples|tests|docs|benchmarks|mpich... [--list]" >&2
  exit 2
fi
if [ "$list_only" = yes ]; then
  printf '%s\n' $packages | sort -u
  exit 0
fi

if ! command -v dpkg >/dev/null 2>&1; then
  echo "$0: this is not a Debian system, so nothing was installed. The project needs what Debian 12 calls:" >&2
  printf '    %s\n' $packages | sort -u >&2
  echo "With these in place, set ESPALIER_NO_INSTALL=1 and run again." >&2
  [ "${ESPALIER_NO_INSTALL:-}" = 1 ] && exit 0
  exit 1
fi

is_installed() {
  dpkg -s "$1" 2>/dev/null | grep -q '^Status: install ok installed'
}

missing=""
for package in $(printf '%s\n' $packages | sort -u); do
  is_installed "$package" || missing="$missing $package"
done
missing=${missing# }
if [ -z "$missing" ]; then
  exit 0
fi
if [ "${ESPALIER_NO_INSTALL:-}" = 1 ]; then
  echo "not installed (ESPALIER_NO_INSTALL=1): $missing" >&2
  exit 0
fi

if [ "$(id -u)" -eq 0 ]; then
  as_root=""
elif command -v sudo >/dev/null 2>&1; then
  as_root="sudo"
else
  echo "$0: these packages are missing, and installing them needs root or sudo:" >&2
  echo "    apt-get install --no-install-recommends $missing" >&2
  exit 1
fi

apt() {
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get -o Dpkg::Use-Pty=0 -o Acquire::Retries=3 "$@"
}

echo "installing: $missing"
apt -q update
for package in $optional; do
  case " $missing " in
    *" $package "*)
      if ! apt-cache show "$package" >/dev/null 2>&1; then
        echo "$0: $package is not in this machine's package lists: its checks will be skipped" >&2
        missing=$(printf '%s\n' $missing | grep -vx "$package" | tr '\n' ' ')
      fi
      ;;
  esac
done
# --no-remove: another Boost or MPI that somebody chose is not replaced behind their back.
if ! apt -qy --no-install-recommends --no-remove install $missing; then
  echo "$0: apt could not install: $missing" >&2
  echo "If it would have to remove packages (libboost1.81-dev, libomp-19-dev), remove them first." >&2
  exit 1
fi

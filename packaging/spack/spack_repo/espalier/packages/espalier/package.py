# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
from pathlib import Path

from spack_repo.builtin.build_systems.cmake import CMakePackage

from spack.package import *


class Espalier(CMakePackage):
    """Single-device C++ programs, compiled into one SPMD program for a mesh of devices. Headers only."""

    # The checkout that this file lies in.
    git = Path(__file__).resolve().parents[6].as_uri()

    license("BSL-1.0")

    version("0.1.0", branch="main")

    variant("mpi", default=True, description="espalier::mpi: MPI ranks")
    variant("io", default=True, description="espalier::io: tensors to and from xtensor arrays")
    variant("cblas", default=True, description="Matrix products by OpenBLAS in espalier::openmp")

    depends_on("cxx", type="build")
    depends_on("cmake@3.21:", type="build")

    # The package's CMake files look for these when a consumer asks for the package.
    depends_on("boost@1.74:")
    depends_on("boost+mpi+serialization", when="+mpi")
    depends_on("mpi", when="+mpi")
    depends_on("xtensor@0.24:", when="+io")
    # Threads of its own, in every rank, would be more threads than cores.
    depends_on("openblas threads=openmp", when="+cblas")

    def cmake_args(self):
        return [
            self.define("ESPALIER_BUILD_TESTS", False),
            self.define("ESPALIER_BUILD_EXAMPLES", False),
            self.define("ESPALIER_BUILD_BENCHMARKS", False),
            self.define("ESPALIER_INSTALL", True),
        ]

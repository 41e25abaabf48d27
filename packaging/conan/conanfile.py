# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
"""Conan 2 recipe: packages the checkout that it lies in."""
import os
import re

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load, rmdir

required_conan_version = ">=2.0"


class EspalierConan(ConanFile):
    name = "espalier"
    description = "Single-device C++ programs, compiled into one SPMD program for a mesh of devices"
    license = "BSL-1.0"
    topics = ("spmd", "mpi", "tensor", "header-only")
    package_type = "header-library"
    settings = "os", "compiler", "build_type", "arch"
    # What the package depends on. What it holds is the same with and without.
    options = {"mpi": [True, False], "io": [True, False], "cblas": [True, False]}
    default_options = {"mpi": False, "io": False, "cblas": False}

    @property
    def _checkout(self):
        return os.path.normpath(os.path.join(self.recipe_folder, "..", ".."))

    def set_version(self):
        header = load(self, os.path.join(self._checkout, "include", "espalier", "version.hpp"))
        parts = [re.search(rf"^#define ESPALIER_VERSION_{part} (\d+)$", header, re.MULTILINE)[1]
                 for part in ("MAJOR", "MINOR", "PATCH")]
        self.version = ".".join(parts)

    def export_sources(self):
        for pattern in ("CMakeLists.txt", "LICENSE_1_0.txt", "cmake/*", "include/*"):
            copy(self, pattern, self._checkout, self.export_sources_folder)

    def configure(self):
        if self.options.mpi:
            self.options["boost"].without_mpi = False

    def requirements(self):
        # The package's CMake files look for these when a consumer asks for the package. An MPI is the machine's own.
        self.requires("boost/[>=1.74 <2]", transitive_headers=True, transitive_libs=True)
        if self.options.io:
            self.requires("xtensor/[>=0.24 <1]", transitive_headers=True)
        if self.options.cblas:
            self.requires("openblas/[>=0.3.20 <1]", transitive_headers=True, transitive_libs=True)

    def validate(self):
        if self.settings.get_safe("compiler.cppstd"):
            check_min_cppstd(self, 20)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.user_presets_path = False
        for option in ("TESTS", "EXAMPLES", "BENCHMARKS"):
            toolchain.cache_variables[f"ESPALIER_BUILD_{option}"] = False
        toolchain.cache_variables["ESPALIER_INSTALL"] = True
        toolchain.generate()
        CMakeDeps(self).generate()

    def build(self):
        CMake(self).configure()

    def package(self):
        copy(self, "LICENSE_1_0.txt", self.source_folder, os.path.join(self.package_folder, "licenses"))
        CMake(self).install()
        rmdir(self, os.path.join(self.package_folder, "share", "doc"))
        # They name where this machine's CBLAS is.
        rmdir(self, os.path.join(self.package_folder, "share", "pkgconfig"))

    def package_id(self):
        self.info.clear()

    def package_info(self):
        # find_package(Espalier) finds the files that CMake installed, with their components.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("share", "cmake", "Espalier")]
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []

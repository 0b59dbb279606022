# SPDX-License-Identifier: Apache-2.0
import re
from pathlib import Path

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load

ROOT = Path(__file__).resolve().parents[3]


class Tutti(ConanFile):
    name = "tutti"
    license = "Apache-2.0"
    description = "Asynchronous communication between the ranks of a parallel program, in C++20 coroutines"
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False]}
    default_options = {"shared": False, "boost/*:header_only": True}

    def set_version(self):
        self.version = re.search(r"VERSION (\d+\.\d+\.\d+)", load(self, ROOT / "CMakeLists.txt"))[1]

    def export_sources(self):   # of the clone that contains this recipe
        for pattern in ("CMakeLists.txt", "LICENSE", "cmake/*", "include/*", "src/*", "gpu/*"):
            copy(self, pattern, ROOT, self.export_sources_folder)

    def requirements(self):
        self.requires("boost/[>=1.81]", transitive_headers=True)
        self.requires("fmt/[>=9]")
        self.requires("liburing/[>=2.2]")
        self.requires("nettle/[>=3.4]")
        self.requires("openssl/[>=3]")
        self.requires("cli11/[>=2]")
        self.requires("nlohmann_json/[>=3]")

    def layout(self):
        cmake_layout(self)

    def generate(self):
        CMakeDeps(self).generate()
        toolchain = CMakeToolchain(self)
        for option in ("TESTS", "EXAMPLES", "PERF"):
            toolchain.cache_variables[f"TUTTI_BUILD_{option}"] = False
        toolchain.cache_variables.update(TUTTI_WERROR=False, TUTTI_MPI=False)
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()

    def package_info(self):   # tutti's own package for CMake
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = ["lib/cmake/tutti"]

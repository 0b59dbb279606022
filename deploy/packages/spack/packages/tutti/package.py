# SPDX-License-Identifier: Apache-2.0
from spack.package import *


class Tutti(CMakePackage):
    """Asynchronous communication between the ranks of a parallel program, in C++20 coroutines."""

    # The sources are those of the folder in which `spack dev-build` runs.
    version("0.1.0")
    license("Apache-2.0")

    variant("shared", default=False, description="Build shared libraries")
    variant("tls", default=True, description="TLS by OpenSSL")
    variant("mpi", default=False, description="The module of the backend mpi")

    depends_on("cxx", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("boost@1.81:")
    depends_on("fmt@9:")
    depends_on("nettle@3.4:")
    depends_on("liburing@2.2:")
    depends_on("nlohmann-json@3:", type="build")
    depends_on("cli11@2:", type="build")
    depends_on("openssl@3:", when="+tls")
    depends_on("mpi", when="+mpi")
    conflicts("%gcc@:11")

    def cmake_args(self):
        off = ("TUTTI_BUILD_TESTS", "TUTTI_BUILD_EXAMPLES", "TUTTI_BUILD_PERF", "TUTTI_WERROR")
        return [self.define(name, False) for name in off] + [
            self.define_from_variant("BUILD_SHARED_LIBS", "shared"),
            self.define_from_variant("TUTTI_MPI", "mpi"),
            self.define("CMAKE_DISABLE_FIND_PACKAGE_OpenSSL", self.spec.satisfies("~tls")),
        ]

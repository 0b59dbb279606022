#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rules for what is packaged and installed. They configure tutti as distributors and users do, and compile next to nothing.

    packaging_test.py CMAKE COMPILER
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy"))
import release

CMAKE, CXX = sys.argv[1:3]
LIBRARY_ONLY = ("-DTUTTI_BUILD_TOOLS=OFF", "-DTUTTI_BUILD_TESTS=OFF", "-DTUTTI_BUILD_EXAMPLES=OFF", "-DTUTTI_BUILD_PERF=OFF", "-DTUTTI_MPI=OFF")


class Failed(Exception):
    pass


def call(*command, **options):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode:
        raise Failed(f"exit code {done.returncode}: {' '.join(map(str, command))}\n{done.stdout[-3000:]}")
    return done.stdout


def configure(source, build, *options):
    call(CMAKE, "-G", "Ninja", "-S", source, "-B", build, f"-DCMAKE_CXX_COMPILER={CXX}", "--log-level=WARNING", *options, cwd=source)


def project(folder, text, **sources):
    """A user's project, given its CMakeLists.txt and sources."""
    folder.mkdir()
    (folder / "CMakeLists.txt").write_text(f"cmake_minimum_required(VERSION 3.22)\nproject(app LANGUAGES CXX)\n{text}")
    for name, source in sources.items():
        (folder / f"{name}.cpp").write_text(source)
    return folder


def man_pages_are_built_with_their_programs(scratch):
    """also where paths have spaces"""
    source = project(scratch / "a tool", f'include("{ROOT}/cmake/man_pages.cmake")\nadd_executable(tool tool.cpp)\ntutti_man_page(tool --variables)\n',
                     tool='#include <cstdio>\nint main(int, char** v) { std::printf("A tool.\\n\\nUsage: tool %s\\n", v[1]); }\n')
    configure(source, scratch / "a build")
    call(CMAKE, "--build", scratch / "a build", "--target", "tool")
    page = scratch / "a build/share/man/man1/tool.1"
    text = page.read_text() if page.exists() else "no page"
    return [] if all(part in text for part in (".TH TOOL", "help", "variables")) else [text]


def the_image_builds_what_it_installs(scratch):
    """the targets in deploy/Dockerfile"""
    dockerfile = (ROOT / "deploy/Dockerfile").read_text()
    options = re.search(r"cmake (--preset release .*) \\\n", dockerfile)[1].split()
    targets = re.search(r"cmake --build build/release --target (.*) \\\n", dockerfile)[1].split()
    build = scratch / "build"
    configure(ROOT, build, *options)
    commands = call("ninja", "-C", build, "-t", "commands", *targets)
    installed = {pathlib.Path(name) for file in build.rglob("cmake_install.cmake")
                 for name in re.findall(rf'"({re.escape(str(build))}/[^"$]*)"', file.read_text())}
    made = {path.relative_to(build).as_posix() for path in installed
            if not path.exists() and not path.name.startswith("install_")}   # which the installation writes
    if "bin/tutti-run" not in made or "src/libtutti.a" not in made:
        raise Failed(f"these are all files that are built and installed: {made}")
    return [name for name in sorted(made) if name not in commands]


def a_project_may_build_its_own_fmt(scratch):
    """a target, as FetchContent makes it, where the system has no fmt"""
    source = project(scratch / "app", f"""
add_library(fmt STATIC fmt.cpp)
add_library(fmt::fmt ALIAS fmt)
set(CMAKE_DISABLE_FIND_PACKAGE_fmt ON)
add_subdirectory({ROOT} tutti)
get_target_property(libraries tutti LINK_LIBRARIES)
if(NOT "fmt::fmt" IN_LIST libraries)
  message(FATAL_ERROR "tutti is linked with ${{libraries}}")
endif()
""", fmt="")
    configure(source, scratch / "build")
    return []


def shared_libraries_export_in_a_project_that_hides_names(scratch):
    """a function, and the variable of an inline function, which the program has as well"""
    counter = "namespace tutti { inline int& counter() { static int n = 0; return n; } int count(); }\n"
    source = project(scratch / "app", f"""
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(BUILD_SHARED_LIBS ON)
add_subdirectory({ROOT} tutti EXCLUDE_FROM_ALL)
add_executable(program program.cpp)
set_target_properties(program PROPERTIES CXX_VISIBILITY_PRESET default VISIBILITY_INLINES_HIDDEN OFF)
foreach(library IN ITEMS tutti tutti_train tutti_track tutti_sim tutti_gpu)
  set_target_properties(${{library}} PROPERTIES SOURCES ${{CMAKE_CURRENT_SOURCE_DIR}}/${{library}}.cpp)
  target_link_libraries(program PRIVATE ${{library}})
endforeach()
""", tutti=counter + "int tutti::count() { return ++counter(); }\n",
        **{f"tutti_{part}": f"namespace tutti {{ int {part}() {{ return 0; }} }}\n" for part in ("train", "track", "sim", "gpu")},
        program=counter + "namespace tutti { int train(); int track(); int sim(); int gpu(); }\n"
        "int main() { return tutti::count() - tutti::counter() + tutti::train() + tutti::track() + tutti::sim() + tutti::gpu(); }\n")
    configure(source, scratch / "build")
    call(CMAKE, "--build", scratch / "build", "--target", "program")
    call(scratch / "build/program")
    return []


def folders_of_the_installation_may_be_absolute(scratch):
    """in the files for pkg-config, and in the RUNPATH of programs"""
    build = scratch / "build"
    configure(ROOT, build, *LIBRARY_ONLY, "-DCMAKE_INSTALL_PREFIX=/of/tutti", "-DCMAKE_INSTALL_LIBDIR=/of/libraries", "-DCMAKE_INSTALL_INCLUDEDIR=/of/headers")
    wrong = []
    for package, name, path in (("tutti", "libdir", "/of/libraries"), ("tutti", "includedir", "/of/headers"), ("tutti_train", "libdir", "/of/libraries")):
        found = call("pkg-config", f"--variable={name}", package, env={"PKG_CONFIG_PATH": str(build), "PATH": "/usr/bin:/bin"}).strip()
        wrong += [f"{package}.pc: {name} is {found}"] if found != path else []
    exported = "".join(file.read_text() for file in build.rglob("tuttiTargets.cmake"))
    wrong += [f"rpath {found}" for found in re.findall(r"rpath,([^;\"]*)", exported) or ["none"] if found != "/of/libraries"]
    return wrong


def libraries_may_come_from_conan(scratch):
    """its target of Boost has a generator expression for a folder, and it has a package of its own for nettle and liburing"""
    conan = scratch / "conan"
    conan.mkdir()
    (conan / "BoostConfig.cmake").write_text("""find_path(Boost_INCLUDE_DIRS boost/asio.hpp)
add_library(Boost::headers INTERFACE IMPORTED)
set_property(TARGET Boost::headers PROPERTY INTERFACE_INCLUDE_DIRECTORIES $<$<CONFIG:Release>:${Boost_INCLUDE_DIRS}>)
""")
    (conan / "BoostConfigVersion.cmake").write_text("set(PACKAGE_VERSION 1.81)\nset(PACKAGE_VERSION_COMPATIBLE TRUE)\n")
    for name in ("nettle", "liburing"):
        (conan / f"{name}-config.cmake").write_text("message(FATAL_ERROR targets of other names)\n")
        (conan / f"{name}-config-version.cmake").write_text("set(PACKAGE_VERSION 9)\nset(PACKAGE_VERSION_COMPATIBLE TRUE)\n")
    configure(ROOT, scratch / "build", *LIBRARY_ONLY, "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_FIND_PACKAGE_PREFER_CONFIG=ON",
              f"-DCMAKE_PREFIX_PATH={conan}", f"-DBoost_DIR={conan}")
    return []


def vcpkg_gets_every_part_of_boost(scratch):
    """deploy/packages/vcpkg"""
    headers = {name for folder in ("include", "src", "gpu") for path in (ROOT / folder).rglob("*.[ch]pp")
               for name in re.findall(r"#include <boost/(\w+)", path.read_text())}
    parts = {{"archive": "serialization"}.get(name, name) for name in headers}
    dependencies = json.loads((ROOT / "deploy/packages/vcpkg/tutti/vcpkg.json").read_text())["dependencies"]
    return [f"boost-{part}" for part in sorted(parts) if f"boost-{part}" not in dependencies]


def licences_come_with_what_is_contained(scratch):
    """python/licenses, and the licences that the wheels name, have what deploy/release.py lists"""
    texts = {"BSD-3-Clause": "BSD 3-Clause License\n\nRedistribution", "BSL-1.0": "Boost Software License - Version 1.0 - August 17th, 2003\n\nPermission",
             "LGPL-3.0-or-later": "LGPL-3.0.txt", "MIT": "MIT License\n\nPermission"}
    third_party = (ROOT / "python/licenses/THIRD_PARTY.txt").read_text()
    wrong = []
    for name, _, licence in release.CONTAINED:
        wrong += [] if re.search(rf"^[^:]*\b{name}\b.*:", third_party, re.I | re.M) else [f"THIRD_PARTY.txt does not name {name}"]
        wrong += [] if texts[licence] in third_party else [f"THIRD_PARTY.txt does not have the text of {licence}"]
        wrong += [f"{project}: {licence}" for project in ("deploy/wheel/pyproject.toml", "python/pyproject.toml")
                  if licence not in re.search('^license = "(.*?)"', (ROOT / project).read_text(), re.M)[1].split(" AND ")]
    return wrong


def files_of_a_release_have_the_checksums_of_spdx(scratch):
    """SHA1, which SPDX 2.3 demands, and SHA256"""
    release.installed = lambda packages: (packages[0], "1")
    release.commit = lambda: "0" * 40
    (scratch / "tutti.whl").write_text("abc")
    release.describe(scratch)
    file, = json.loads((scratch / "tutti.spdx.json").read_text())["files"]
    found = {checksum["algorithm"]: checksum["checksumValue"] for checksum in file["checksums"]}
    wanted = {"SHA1": "a9993e364706816aba3e25717850c26c9cd0d89d", "SHA256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}
    return [] if found == wanted else [str(file)]


def run_takes_paths_of_its_caller(scratch):
    """with spaces, beside another tutti, and after an installation by root; programs of its own take the place of CMake and apt"""
    clone, caller, programs = scratch / "clone", scratch / "a caller", scratch / "programs"
    for folder in (clone / "build/install/src", clone / "build/release/bin", clone / "build/dev/bin", caller / "a prefix/old", programs):
        folder.mkdir(parents=True)
    shutil.copy(ROOT / "run", clone)
    (caller / "a prefix/old/tutti.pc").touch()
    manifests = [clone / "build/install/install_manifest.txt", clone / "build/install/src/install_local_manifest.txt"]
    for manifest in manifests:   # of root
        manifest.touch()
    for program, script in {
            programs / "dpkg-query": "echo installed 99",
            programs / "cmake": f"""case $1 in
  --preset) for option; do case $option in -DCMAKE_INSTALL_PREFIX=*) echo "${{option#*=}}" >prefix ;; esac; done ;;
  --install) for file in '{manifests[0]}' '{manifests[1]}'; do [ ! -e "$file" ] || exit 1; done
    mkdir -p "$(cat prefix)/lib/pkgconfig"
    echo "$(cat prefix)/lib/pkgconfig/tutti.pc" | tee '{manifests[0]}' | xargs -d '\\n' touch ;;
esac""",
            clone / "build/release/bin/tutti-run": """while [ $# -gt 0 ]; do
  case $1 in --output) echo a rule >"$2" ;; --track) mkdir -p "$2/1" ;; --checkpoint) echo all >"$2" ;; esac
  shift
done""",
            clone / "build/release/bin/tutti-report": 'echo a page >"$3"',
            clone / "build/dev/bin/tutti-run": "touch demonstrated"}.items():
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    environment = {"PATH": f"{programs}:/usr/bin:/bin"}
    said = call(clone / "run", "install", "a prefix", cwd=caller, env=environment)
    exports = "".join(re.findall("^export .*", said, re.M))
    variables = call("bash", "-c", exports + '; echo "${PATH%%:*}:$CMAKE_PREFIX_PATH:$PKG_CONFIG_PATH"', env=environment).strip()
    prefix = caller / "a prefix"
    wrong = [] if variables == f"{prefix}/bin:{prefix}:{prefix}/lib/pkgconfig" else [said]
    call(clone / "run", "tune", "--ranks", "2", "a file", cwd=caller, env=environment)
    call(clone / "run", "demo", cwd=caller, env=environment)
    page = re.search("file://(.*)", call(clone / "run", "mnist", "--checkpoint", "a checkpoint", cwd=caller, env=environment))[1]
    return wrong + [f"there is no {file}" for file in (caller / "a file", caller / "a checkpoint", caller / "demonstrated", pathlib.Path(page))
                    if not file.exists()]


def main():
    rules = [man_pages_are_built_with_their_programs, the_image_builds_what_it_installs, a_project_may_build_its_own_fmt,
             shared_libraries_export_in_a_project_that_hides_names, folders_of_the_installation_may_be_absolute, libraries_may_come_from_conan,
             vcpkg_gets_every_part_of_boost, licences_come_with_what_is_contained,
             files_of_a_release_have_the_checksums_of_spdx, run_takes_paths_of_its_caller]
    if not shutil.which("ninja"):
        print("SKIPPED: packaging: there is no ninja")
        print(f"cases: 0 passed, 0 failed, {len(rules)} skipped")
        return 0
    failed = 0
    for rule in rules:
        with tempfile.TemporaryDirectory() as folder:
            try:
                wrong = rule(pathlib.Path(folder))
            except Failed as error:
                wrong = [str(error)]
        if wrong:
            failed += 1
            print(f"{rule.__name__}: {rule.__doc__}")
            print("\n".join(f"  {line}" for line in wrong))
    print(f"cases: {len(rules) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

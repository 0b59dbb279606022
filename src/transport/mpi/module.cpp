// SPDX-License-Identifier: Apache-2.0
// Finding and opening the MPI that this process runs under.
#include "base/env.hpp"
#include "base/module_folders.hpp"
#include "base/process_state.hpp"
#include "base/throw_error.hpp"
#include "transport/mpi/standard_abi.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <tutti/error.hpp>
#include <utility>
#include <vector>

// The functions are those of the standard ABI.
using namespace tutti::transport::mpi::standard_abi;

#include "transport/mpi/native_calls.hpp"

namespace tutti::transport::mpi {
namespace {

namespace fs = std::filesystem;

constexpr const char* of_open_mpi = "libtutti_mpi_openmpi.so";
constexpr const char* of_mpich = "libtutti_mpi_mpich.so";
constexpr const char* of_another = "libtutti_mpi_other.so";

bool is_loaded(const char* library) {
  void* const found = ::dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
  if (found != nullptr) ::dlclose(found);
  return found != nullptr;
}

// The program of an mpirun, or of its process on this host, that this process descends from; empty: none is known.
fs::path find_launcher() {
  for (std::int64_t process = ::getppid(); process > 1; process = base::parent_of_process(process)) {
    std::error_code failed;
    fs::path program = fs::read_symlink(fmt::format("/proc/{}/exe", process), failed);
    const std::string name = program.filename();
    for (const std::string_view prefix : {"hydra_", "mpiexec", "mpirun", "orte", "prte"})
      if (name.starts_with(prefix)) return program;
  }
  return {};
}

// This library beside the mpirun that started this process; empty: there is none.
fs::path beside_launcher(const fs::path& launcher, const char* library) {
  std::error_code failed;
  for (const char* folder : {"lib", "lib64"})
    if (fs::path file = launcher.parent_path().parent_path() / folder / library;
        !launcher.empty() && fs::exists(file, failed))
      return file;
  return {};
}

// Names of modules, and paths or names of libraries, in the order in which to try them.
std::vector<std::string> candidates(const fs::path& launcher) {
  if (is_loaded(library_name)) return {library_name};
  if (is_loaded("libmpi.so.40")) return {of_open_mpi, of_another};
  if (is_loaded("libmpi.so.12") || is_loaded("libmpich.so.12")) return {of_mpich, of_another};

  std::vector<std::string> all{of_open_mpi, of_mpich, of_another};
  // Hydra, MPICH's mpirun, speaks PMI; Open MPI's sets variables of its own.
  if (base::env_string("PMI_RANK") && !base::env_string("OMPI_COMM_WORLD_RANK")) std::swap(all[0], all[1]);
  all.insert(launcher.empty() ? all.begin() : all.end(), library_name);
  const fs::path beside = beside_launcher(launcher, library_name);
  if (!beside.empty()) all.insert(all.begin(), beside);
  return all;
}

// The calls of a library that stays open; once in a process. Null: it is no MPI with the standard ABI, and `why`
// says what it lacks.
calls* standard_calls_of(void* library, std::string& why) {
  const char* missing = nullptr;
  const auto find = [&](const char* name) {
    void* const found = ::dlsym(library, name);
    if (found == nullptr) missing = name;
    return found;
  };
#define TUTTI_MPI_FUNCTION(name, parameters) name = reinterpret_cast<int(*) parameters>(find(#name));
  TUTTI_MPI_FUNCTIONS(TUTTI_MPI_FUNCTION)
#undef TUTTI_MPI_FUNCTION
  if (missing != nullptr) {
    why = fmt::format("it has no function {}, so it is no MPI with the standard ABI", missing);
    return nullptr;
  }
  // An MPI's other library, as MPICH's libmpi.so.12, has the same functions with another ABI, and says -1.
  int major = 0;
  int minor = 0;
  if (MPI_Abi_get_version(&major, &minor) == MPI_SUCCESS && major == 1) return &native;
  why = fmt::format("it has version {}.{} of MPI's standard ABI, not 1", major, minor);
  return nullptr;
}

// Null when it cannot be opened, and `why` says why.
calls* open_file(const std::string& file, const fs::path& launcher, std::string& why) {
  // Another Open MPI may be in the linker's path: the module takes the one that is loaded.
  if (fs::path(file).filename() == of_open_mpi)
    if (const fs::path own = beside_launcher(launcher, "libmpi.so.40"); !own.empty())
      ::dlopen(own.c_str(), RTLD_NOW | RTLD_GLOBAL);
  // Global: plug-ins that MPI opens in turn look for its own names.
  void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    why = ::dlerror();
    return nullptr;
  }
  const auto function = reinterpret_cast<calls_function>(::dlsym(library, calls_symbol));
  calls* const found = function != nullptr ? function() : standard_calls_of(library, why);
  if (found != nullptr && found->version == calls_version) return found;
  why = fmt::format("{}: {}", file, found != nullptr ? "it was built with another version of tutti" : why);
  ::dlclose(library);
  return nullptr;
}

}  // namespace

calls& open_module() {
  const fs::path launcher = find_launcher();
  std::string why;
  if (const auto named = base::env_string("TUTTI_MPI_MODULE")) {
    if (calls* opened = open_file(*named, launcher, why)) return *opened;
    base::throw_error(
        errc::not_supported,
        "backend \"mpi\": TUTTI_MPI_MODULE={} cannot be used: {}; set it to the libmpi_abi.so.1 of the MPI "
        "whose mpirun starts the program, or to the libtutti_mpi_*.so that was built with this tutti",
        *named, why);
  }
  const std::vector<fs::path> folders = base::module_folders();
  std::vector<std::string> failures;
  for (const std::string& candidate : candidates(launcher)) {
    std::vector<fs::path> files;
    if (!candidate.starts_with("libtutti_")) {
      files.emplace_back(candidate);
    } else {
      for (const fs::path& folder : folders)
        if (std::error_code unreadable; fs::exists(folder / candidate, unreadable))
          files.push_back(folder / candidate);
      if (files.empty()) failures.push_back("no " + candidate);
    }
    for (const fs::path& file : files) {
      if (calls* opened = open_file(file, launcher, why)) return *opened;
      failures.push_back(why);
    }
  }
  base::throw_error(
      errc::not_supported,
      "backend \"mpi\" finds no MPI ({}; modules were looked for in {}). With MPICH 5 or Intel MPI "
      "2021.19 (pip install mpich): start the program by its mpirun, or set TUTTI_MPI_MODULE to "
      "the path of its libmpi_abi.so.1. With Open MPI or an older MPICH: apt-get install "
      "libopenmpi-dev openmpi-bin (or libmpich-dev mpich), configure and build tutti again, and "
      "put the module beside the program or set TUTTI_MPI_MODULE to its path",
      fmt::join(failures, "; "), base::list_of(folders));
}

}  // namespace tutti::transport::mpi

// SPDX-License-Identifier: Apache-2.0
#include "transport/mpi/module.hpp"

#include "base/env.hpp"
#include "base/module_folders.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <tutti/error.hpp>
#include <utility>
#include <vector>

namespace tutti::transport::mpi {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> module_names() {
  std::vector<std::string> names{"libtutti_mpi_openmpi.so", "libtutti_mpi_mpich.so", "libtutti_mpi_other.so"};
  // Hydra, MPICH's mpirun, uses PMI; Open MPI's sets variables of its own.
  if (base::env_string("PMI_RANK") && !base::env_string("OMPI_COMM_WORLD_RANK"))
    std::swap(names[0], names[1]);
  return names;
}

// Returns null if it cannot be opened; `why` then says why.
const calls* open_file(const fs::path& file, std::string& why) {
  // Global: plug-ins that MPI opens look for MPI's own symbols.
  void* const module = ::dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (module == nullptr) {
    why = ::dlerror();
    return nullptr;
  }
  const auto function = reinterpret_cast<calls_function>(::dlsym(module, calls_symbol));
  const calls* const table = function != nullptr ? function() : nullptr;
  if (table != nullptr && table->version == calls_version) return table;
  why = fmt::format("{} was built with another version of tutti", file.string());
  return nullptr;
}

[[noreturn]] void refuse(const std::string& text) { throw error(errc::not_supported, text); }

}  // namespace

const calls& open_module() {
  std::string why;
  if (const auto named = base::env_string("TUTTI_MPI_MODULE")) {
    if (const calls* table = open_file(*named, why)) return *table;
    refuse(fmt::format(
        "backend \"mpi\": TUTTI_MPI_MODULE={} cannot be used: {}; set it to the libtutti_mpi_*.so that was "
        "built with this tutti",
        *named, why));
  }
  const std::vector<fs::path> folders = base::module_folders();
  for (const std::string& name : module_names())
    for (const fs::path& folder : folders) {
      std::error_code failed;
      if (!fs::exists(folder / name, failed)) continue;
      if (const calls* table = open_file(folder / name, why)) return *table;
    }
  if (!why.empty())
    refuse(fmt::format(
        "backend \"mpi\": its module cannot be opened: {}; install the MPI that tutti was built with, or "
        "build tutti again",
        why));
  refuse(fmt::format(
      "backend \"mpi\" needs the module libtutti_mpi_openmpi.so or libtutti_mpi_mpich.so, which is built "
      "with "
      "tutti where MPI is installed: apt-get install libopenmpi-dev openmpi-bin (or libmpich-dev mpich), "
      "configure and build tutti again, and put the module beside the program or set TUTTI_MPI_MODULE to "
      "its path; looked in {}",
      base::list_of(folders)));
}

}  // namespace tutti::transport::mpi

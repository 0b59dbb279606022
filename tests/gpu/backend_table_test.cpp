// SPDX-License-Identifier: Apache-2.0
// Tries each cell of the table in docs/backends.md by tests/programs/backend_cells on what is installed here.
// Columns that cannot be tried here are skipped and counted.
#include "support/command.hpp"
#include "support/scratch_directory.hpp"
#include "support/skip.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace {

using tutti::test::command_result;
using tutti::test::run_shell;
using cells = std::map<std::string, std::string>;  // by row

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> found;
  std::istringstream from(line.substr(std::min<std::size_t>(1, line.size())));
  for (std::string cell; std::getline(from, cell, '|');) {
    std::erase(cell, '`');
    const std::size_t first = cell.find_first_not_of(' ');
    found.push_back(first == cell.npos ? "" : cell.substr(first, cell.find_last_not_of(' ') - first + 1));
  }
  return found;
}

// The columns of the table, by their heads.
std::map<std::string, cells> documented() {
  std::ifstream page(TUTTI_SOURCE_DIR "/docs/backends.md");
  std::vector<std::string> heads;
  std::map<std::string, cells> columns;
  for (std::string line; std::getline(page, line);) {
    if (line.rfind("| operation |", 0) == 0) {
      heads = cells_of(line);
    } else if (!heads.empty() && line.rfind('|', 0) != 0) {
      break;
    } else if (!heads.empty() && line.rfind("|--", 0) != 0) {
      const std::vector<std::string> row = cells_of(line);
      REQUIRE(row.size() == heads.size());
      for (std::size_t i = 1; i < row.size(); ++i) columns[heads[i]][row[0]] = row[i];
    }
  }
  return columns;
}

// One way to try a column: its name in the row "tried on", and the command.
struct way {
  std::string name, command;
  cells differs = {};  // cells that differ this way
};

void try_column(const std::string& head, const std::vector<way>& ways) {
  const std::map<std::string, cells> table = documented();
  REQUIRE(table.count(head) == 1);
  for (const way& w : ways) {
    cells expected = table.at(head);
    CHECK_MESSAGE(expected["tried on"].find(w.name) != std::string::npos,
                  head << " does not say that it was tried on " << w.name);
    expected.erase("tried on");
    for (const auto& [row, cell] : w.differs) expected[row] = cell;
    for (const std::string ranks : {"2", "4"}) {
      std::string command = w.command;
      command.replace(command.find("RANKS"), 5, ranks);
      const command_result run = run_shell(command);
      INFO(command << "\n" << run.output);
      CHECK(run.exit_code == 0);
      cells seen;
      std::istringstream lines(run.output);
      for (std::string line; std::getline(lines, line);)
        if (const std::vector<std::string> row = cells_of(line); line.starts_with("| ") && row.size() == 2)
          seen[row[0]] = row[1];
      for (const auto& [row, cell] : expected) CHECK_MESSAGE(seen[row] == cell, head << ", " << row);
      CHECK(seen.size() == expected.size());
    }
  }
}

const std::string run = TUTTI_RUN_PATH " --tag-output never -n RANKS " TUTTI_BACKEND_CELLS_PATH " ";
const std::string threads = TUTTI_BACKEND_CELLS_PATH " native ";
const std::string emulated = "TUTTI_DEVICE=emulated ";
// With a sanitizer the first kernel is slow enough for a stall warning.
const std::string cuda = "TUTTI_STALL_WARNING_MS=0 TUTTI_CUDA_LIBRARY=" TUTTI_FAKE_CUDA_PATH
                         " TUTTI_CUDA_KERNELS=" TUTTI_FAKE_CUDA_PATH " ";

struct mpi {
  std::string name, mpirun, module;
};

// The MPIs that are installed here and that tutti was built with.
std::vector<mpi> installed_mpis() {
  std::vector<mpi> found;
  for (const auto& [name, module, banner, variables, options] : std::vector<std::array<std::string, 5>>{
           {"Open MPI", "openmpi", "Open", "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ",
            " --oversubscribe"},
           {"MPICH", "mpich", "HYDRA", "", ""}}) {
    const std::string file = TUTTI_MPI_MODULES_DIR "/libtutti_mpi_" + module + ".so";
    if (::access(file.c_str(), R_OK) != 0) continue;
    for (const std::string& program : {"mpirun." + module, std::string("mpirun")})
      if (run_shell(program + " --version").says(banner)) {
        found.push_back({name, variables + program + options, file});
        break;
      }
  }
  return found;
}

// UCX, which Debian's MPICH uses, may leave shared memory behind. Here it is in the scratch directory.
void try_mpi(const std::string& head, const std::string& memory, const std::string& variables) {
  const tutti::test::scratch_directory scratch;
  std::vector<way> ways;
  for (const mpi& m : installed_mpis())
    ways.push_back({m.name, variables + "TUTTI_MPI_MODULE=" + m.module +
                                " UCX_POSIX_DIR=" + scratch.path().string() + " " + m.mpirun + " -n RANKS " +
                                TUTTI_BACKEND_CELLS_PATH " mpi " + memory});
  if (ways.empty()) TUTTI_SKIP("no MPI is installed that tutti was built with");
  try_column(head, ways);
}

}  // namespace

TEST_CASE("backend table: native, memory of the host") {
  try_column("native, host", {{"shared memory", run + "native host"},
                              {"TCP", "TUTTI_TRANSPORTS=tcp " + run + "native host"}});
}

TEST_CASE("backend table: mpi, memory of the host") { try_mpi("mpi, host", "host", ""); }

TEST_CASE("backend table: native, memory of devices") {
  try_column("native, device", {{"emulated", emulated + run + "native staged"},
                                {"stand-in for CUDA", cuda + run + "native staged"}});
}

TEST_CASE("backend table: mpi, memory of devices") { try_mpi("mpi, device", "staged", emulated); }

TEST_CASE("backend table: one_device") {
  try_column("one_device", {{"stand-in for CUDA", cuda + run + "native one_device"},
                            {"emulated", emulated + threads + "one_device RANKS", {{"all_to_all", "yes"}}}});
}

TEST_CASE("backend table: nccl") {
  try_column("nccl",
             {{"stand-in", cuda + "TUTTI_NCCL_LIBRARY=" TUTTI_FAKE_NCCL_PATH " " + threads + "nccl RANKS"}});
}

TEST_CASE("backend table: oneccl on a stand-in") {
  try_column("oneccl", {{"stand-in", emulated + "TUTTI_ONECCL_LIBRARY=" TUTTI_FAKE_ONECCL_PATH " " + threads +
                                         "oneccl RANKS"}});
}

TEST_CASE("backend table: the real oneCCL") {
  const char* const told = std::getenv("TUTTI_ONECCL_LIBRARY");
  const std::string library = told != nullptr ? told : TUTTI_ONECCL_ROOT "/lib/libccl.so.2";
  if (::access(library.c_str(), R_OK) != 0) TUTTI_SKIP("no " + library + " (./run setup-oneccl)");
  // oneCCL does not free all memory of its threads.
  const std::string without_leaks = "ASAN_OPTIONS=strict_string_checks=1:detect_leaks=0 ";
  try_column("oneccl", {{"oneCCL 2022.2", without_leaks + emulated + "TUTTI_ONECCL_LIBRARY=" + library + " " +
                                              run + "native oneccl"}});
}

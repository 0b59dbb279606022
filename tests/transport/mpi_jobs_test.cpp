// SPDX-License-Identifier: Apache-2.0
// Programs with backend "mpi" as jobs of processes, under the mpirun of each MPI that is installed: every
// operation, the examples unchanged, and the ways in which ranks end.
#include "support/scratch_directory.hpp"
#include "support/skip.hpp"

#include <sys/wait.h>

#include <doctest/doctest.h>
#include <array>
#include <cstdio>
#include <filesystem>
#include <future>
#include <string>
#include <string_view>
#include <vector>

namespace {

struct outcome {
  int exit_code = -1;
  std::string output;  // both streams
  bool says(std::string_view text) const { return output.find(text) != std::string::npos; }
};

// Bounded by coreutils' timeout: a hang is exit code 124.
outcome run_command(const std::string& variables, const std::string& command) {
  outcome result;
  std::FILE* pipe = popen(("env " + variables + " timeout -k 5 120 " + command + " 2>&1").c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::array<char, 4096> bytes{};
  for (std::size_t got = 0; (got = std::fread(bytes.data(), 1, bytes.size(), pipe)) > 0;)
    result.output.append(bytes.data(), got);
  const int status = pclose(pipe);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

// One MPI, and what is missing to use it here.
struct mpi {
  std::string name;
  std::string launcher;  // a command; empty: none
  std::string module;
  std::string missing;  // empty: nothing
};

mpi find_mpi(const std::string& name) {
  mpi m;
  m.name = name;
  m.module = std::string(TUTTI_MPI_MODULES_DIR) + "/libtutti_mpi_" + name + ".so";
  const std::string debian = "mpirun." + name;
  const std::string_view says = name == "openmpi" ? "Open" : "HYDRA";
  if (run_command("", debian + " --version").exit_code == 0) {
    m.launcher = debian;
  } else if (run_command("", "mpirun --version").says(says)) {
    m.launcher = "mpirun";
  }
  if (m.launcher.empty()) m.missing = "no mpirun of " + name;
  if (!std::filesystem::exists(m.module)) m.missing = "tutti was built without " + name;
  if (name == "openmpi") {
    // Root, as in a container; more ranks than cores.
    m.launcher =
        "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 " + m.launcher + " --oversubscribe";
  }
  return m;
}

// The ranks write into a file, not through the launcher: MPICH's may end a job that was aborted before it has
// read what the ranks said last. And UCX, on which Debian's MPICH is built, leaves the shared memory of an
// aborted job behind: here it goes with the directory.
outcome run_ranks(const mpi& m, int ranks, const std::string& program, const std::string& variables = "") {
  const tutti::test::scratch_directory scratch;
  const std::string said = scratch.path() / "said";
  outcome result = run_command(
      "TUTTI_BACKEND=mpi TUTTI_TIMEOUT=60 TUTTI_MPI_MODULE=" + m.module +
          " UCX_POSIX_DIR=" + scratch.path().string() + " " + variables,
      m.launcher + " -n " + std::to_string(ranks) + " sh -c 'exec \"$@\" >>" + said + " 2>&1' sh " + program);
  result.output = scratch.read(said) + result.output;
  return result;
}

std::string program(const std::string& name) { return TUTTI_MPI_PROGRAMS_DIR "/" + name; }

// Runs the rest of the case for each MPI; a case that no MPI can run is skipped, with why.
#define FOR_EACH_MPI(m)                                               \
  const mpi openmpi = find_mpi("openmpi"), mpich = find_mpi("mpich"); \
  if (!openmpi.missing.empty() && !mpich.missing.empty())             \
    TUTTI_SKIP(openmpi.missing + ", " + mpich.missing);               \
  for (const mpi& m : {openmpi, mpich})                               \
    if (m.missing.empty())

}  // namespace

TEST_CASE("mpi jobs: every operation, each collective with each algorithm") {
  FOR_EACH_MPI(m) {
    for (const int ranks : {1, 3, 4}) {
      CAPTURE(m.name);
      CAPTURE(ranks);
      const outcome result = run_ranks(m, ranks, program("mpi_conformance"));
      INFO(result.output);
      CHECK(result.exit_code == 0);
      CHECK(result.says(std::to_string(ranks) + " ranks, "));
      CHECK(result.says("checks passed"));
    }
  }
}

TEST_CASE("mpi jobs: the same with hosts of two ranks: hierarchical algorithms") {
  FOR_EACH_MPI(m) {
    CAPTURE(m.name);
    const outcome result = run_ranks(m, 4, program("mpi_conformance"), "TUTTI_HOST_ID=a,a,b,b");
    INFO(result.output);
    CHECK(result.exit_code == 0);
    CHECK(result.says("checks passed"));
  }
}

#ifdef TUTTI_EXAMPLES_BIN_DIR
TEST_CASE("mpi jobs: the examples run unchanged") {
  const std::string examples = TUTTI_EXAMPLES_BIN_DIR "/";
  FOR_EACH_MPI(m) {
    CAPTURE(m.name);
    const outcome hello = run_ranks(m, 4, examples + "hello");
    INFO(hello.output);
    CHECK(hello.exit_code == 0);
    CHECK(hello.says("4 ranks, sum 10"));
    const outcome ping = run_ranks(m, 2, examples + "ping");
    INFO(ping.output);
    CHECK(ping.exit_code == 0);
    CHECK(ping.says("rank 1 started receiving"));
    const outcome ring = run_ranks(m, 3, examples + "ring_all_reduce");
    INFO(ring.output);
    CHECK(ring.exit_code == 0);
    CHECK(ring.says("tutti        3 ranks, 1000003 floats: correct"));
    const outcome collectives = run_ranks(m, 4, examples + "tutorial_collectives");
    INFO(collectives.output);
    CHECK(collectives.exit_code == 0);
    CHECK(collectives.says("all_reduce: rank 3 has [10]"));
    for (const int ranks : {2, 4}) {
      const outcome by_word = run_ranks(m, ranks, examples + "tutorial_backends mpi");
      INFO(by_word.output);
      CHECK(by_word.exit_code == 0);
      for (int rank = 0; rank < ranks; ++rank)
        CHECK(by_word.says("Rank " + std::to_string(rank) + " has " + (ranks == 2 ? "3" : "10")));
    }
    const outcome training = run_ranks(m, 2, examples + "train_digits --epochs 2");
    INFO(training.output);
    CHECK(training.exit_code == 0);
    CHECK(training.says("replicas identical: yes"));
  }
}
#endif

TEST_CASE("mpi jobs: worlds one after the other, and a rank that finishes early") {
  FOR_EACH_MPI(m) {
    CAPTURE(m.name);
    const outcome twice = run_ranks(m, 3, program("mpi_ending") + " twice");
    INFO(twice.output);
    CHECK(twice.exit_code == 0);
    CHECK(twice.output == "sum 3\nsum 3\n");
    const outcome early = run_ranks(m, 3, program("mpi_ending") + " early");
    INFO(early.output);
    CHECK(early.exit_code == 0);
    CHECK(early.says("rank 1: 0 has left, data right"));
    CHECK(early.says("rank 2: 0 has left, data right"));
  }
}

TEST_CASE("mpi jobs: a rank that fails ends the job, and the others hear of it") {
  FOR_EACH_MPI(m) {
    CAPTURE(m.name);
    const outcome throws = run_ranks(m, 3, program("mpi_ending") + " throws");
    INFO(throws.output);
    CHECK(throws.exit_code == 1);
    CHECK(throws.says("tutti[2] error: out of paper"));
    CHECK(throws.says("rank 0 heard: "));
    CHECK(throws.says("rank 1 heard: "));
    const outcome exits = run_ranks(m, 3, program("mpi_ending") + " exits");
    INFO(exits.output);
    CHECK(exits.exit_code != 0);
    CHECK(exits.exit_code != 124);
    CHECK(exits.says("tutti[0] error: the program ends while it is in a world with backend \"mpi\""));
  }
}

TEST_CASE("mpi jobs: a rank that does not come to the end is waited for as long as the timeout says") {
  std::vector<std::future<outcome>> jobs;  // all at once: they wait
  FOR_EACH_MPI(m) {
    jobs.push_back(std::async(std::launch::async, [m] {
      return run_ranks(m, 2, program("mpi_ending") + " straggles", "TUTTI_TIMEOUT=3");
    }));
  }
  for (std::future<outcome>& job : jobs) {
    const outcome result = job.get();
    INFO(result.output);
    CHECK(result.exit_code != 0);
    CHECK(result.exit_code != 124);
    CHECK(result.says("not all others came to the end of the program within 3 s: the job is aborted"));
  }
}

TEST_CASE("mpi jobs: a program that uses MPI itself") {
  if (std::string_view(TUTTI_MPI_BY_ITSELF).empty()) TUTTI_SKIP("tutti was built without MPI");
  const mpi m = find_mpi(TUTTI_MPI_BY_ITSELF);
  if (!m.missing.empty()) TUTTI_SKIP(m.missing);
  const outcome shared = run_ranks(m, 3, program("mpi_by_itself") + " funneled");
  INFO(shared.output);
  CHECK(shared.exit_code == 0);
  CHECK(shared.output == "sums 3 and 3\nsums 3 and 3\n");
  const outcome single = run_ranks(m, 1, program("mpi_by_itself") + " single");
  INFO(single.output);
  // Some give more than was asked for.
  const bool refused = single.exit_code == 1 && single.says("use MPI_Init_thread with MPI_THREAD_SERIALIZED");
  CHECK((refused || single.output == "sums 0 and 0\nsums 0 and 0\n"));
}

TEST_CASE("mpi jobs: what is wrong with the start is said, with the cure") {
  const outcome no_module =
      run_command("TUTTI_BACKEND=mpi TUTTI_MPI_MODULE=/nowhere.so", program("mpi_ending") + " twice");
  INFO(no_module.output);
  CHECK(no_module.exit_code == 1);
  CHECK(no_module.says("TUTTI_MPI_MODULE=/nowhere.so cannot be used"));
  const outcome transports =
      run_command("TUTTI_BACKEND=mpi TUTTI_TRANSPORTS=shm", program("mpi_ending") + " twice");
  CHECK(transports.exit_code == 1);
  CHECK(transports.says("the backend \"mpi\" has no choice of transports: unset TUTTI_TRANSPORTS"));
#ifdef TUTTI_RUN_PATH
  FOR_EACH_MPI(m) {
    CAPTURE(m.name);
    const outcome result = run_command("TUTTI_BACKEND=mpi TUTTI_MPI_MODULE=" + m.module,
                                       TUTTI_RUN_PATH " -n 2 " + program("mpi_ending") + " twice");
    INFO(result.output);
    CHECK(result.exit_code == 1);
    CHECK(result.says("start the program with the mpirun of that MPI and nothing else"));
  }
#endif
}

TEST_CASE("mpi jobs: without a module the program says what to install") {
  const outcome result = run_command("TUTTI_BACKEND=mpi", program("mpi_ending") + " twice");
  INFO(result.output);
  if (result.exit_code == 0) TUTTI_SKIP("tutti is installed with a module for MPI");
  CHECK(result.exit_code == 1);
  CHECK(result.says("apt-get install libopenmpi-dev openmpi-bin"));
}

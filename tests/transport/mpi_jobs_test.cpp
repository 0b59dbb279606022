// SPDX-License-Identifier: Apache-2.0
// Programs with backend "mpi" as jobs of processes, under the mpirun of each installed MPI: every operation,
// the unchanged examples, and every end of a rank. Uses the MPIs that tutti has a module for. With
// TUTTI_TEST_MPI=standard_abi, uses those with the standard ABI: of ./run setup-rivals and of the system.
#include "support/instrumented.hpp"
#include "support/scratch_directory.hpp"
#include "support/second_loop.hpp"
#include "support/skip.hpp"

#include <sys/wait.h>

#include <doctest/doctest.h>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <string>
#include <string_view>
#include <vector>

namespace {

struct outcome {
  int exit_code = -1;
  std::string output;  // stdout and stderr
  bool says(std::string_view text) const { return output.find(text) != std::string::npos; }
};

// Runs under coreutils' timeout: a hang is exit code 124. Open MPI, and UCX, which Debian's MPICH uses, leave shared
// memory of aborted jobs, which is removed with a directory.
outcome run_command(const std::string& variables, const std::string& command) {
  const tutti::test::scratch_directory scratch;
  const std::string memory =
      " UCX_POSIX_DIR=" + scratch.path().string() +
      " OMPI_MCA_btl_vader_backing_directory=" + scratch.path().string() +  // Open MPI 4
      " OMPI_MCA_btl_sm_backing_directory=" + scratch.path().string();
  outcome result;
  std::FILE* pipe =
      popen(("env " + variables + memory + " timeout -k 5 120 " + command + " 2>&1").c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::array<char, 4096> bytes{};
  for (std::size_t got = 0; (got = std::fread(bytes.data(), 1, bytes.size(), pipe)) > 0;)
    result.output.append(bytes.data(), got);
  const int status = pclose(pipe);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

// One MPI, and what is missing to use it.
struct mpi {
  std::string name;
  std::string launcher;  // a command; empty: none
  std::string module;    // for TUTTI_MPI_MODULE
  std::string missing;   // empty: nothing
};

bool by_standard_abi() { return std::getenv("TUTTI_TEST_MPI") != nullptr; }

// `folder`: its installation directory; empty: found through PATH.
mpi find_mpi(const std::string& name, const std::string& folder = "") {
  mpi m;
  m.name = name;
  m.module = std::string(TUTTI_MPI_MODULES_DIR) + "/libtutti_mpi_" + name + ".so";
  const std::string_view says = name == "openmpi" ? "Open" : "HYDRA";
  // The first is Debian's name, for several installed MPIs.
  for (const std::string& launcher : {"mpirun." + name, std::string("mpirun"), folder + "/bin/mpirun"})
    if (launcher.starts_with(folder) && run_command("", launcher + " --version").says(says)) {
      m.launcher = launcher;
      break;
    }
  if (m.launcher.empty()) m.missing = "no mpirun of " + name + (folder.empty() ? "" : " in " + folder);
  if (!std::filesystem::exists(m.module)) m.missing = "tutti was built without " + name;
  if (name == "openmpi") {
    // As root, for containers; more ranks than cores; one host, where looking for network interfaces warns.
    m.launcher = "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl=^tcp " +
                 m.launcher + " --oversubscribe";
  }
  return m;
}

// An MPI installed in this directory.
mpi find_standard_mpi(const std::string& name, const std::string& folder) {
  mpi m;
  m.name = name;
  for (const char* libraries : {"/lib/", "/lib64/"})
    if (const std::string file = folder + libraries + "libmpi_abi.so.1"; std::filesystem::exists(file))
      m.module = std::filesystem::canonical(file);
  for (const char* program : {"/bin/mpiexec.hydra", "/bin/mpirun"})
    if (m.launcher.empty() && std::filesystem::exists(folder + program)) m.launcher = folder + program;
  if (tutti::test::instrumented) {
    m.missing = "a sanitizer would look into MPI as well";
  } else if (m.launcher.empty() || m.module.empty()) {
    m.missing = "no mpirun with libmpi_abi.so.1: " + name;
  } else if (run_command("", m.launcher + " --version").says("Intel")) {
    m.launcher =
        "env I_MPI_ROOT=" + folder + " I_MPI_FABRICS=shm I_MPI_PIN=off " + m.launcher + " -bootstrap fork";
  }
  return m;
}

// The directory of the mpirun of this name that PATH finds.
std::string folder_of(const std::string& launcher) {
  std::string program = run_command("", "sh -c 'readlink -f \"$(command -v " + launcher + ")\"'").output;
  return std::filesystem::path(program).parent_path().parent_path();
}

const std::vector<mpi>& all_mpis() {
  static const std::vector<mpi> all =
      by_standard_abi()
          ? std::vector<mpi>{find_standard_mpi("MPICH of ./run setup-rivals", TUTTI_RIVALS_DIR "/mpich"),
                             find_standard_mpi("Intel MPI of ./run setup-rivals", TUTTI_RIVALS_DIR "/impi"),
                             find_standard_mpi("the system's", folder_of("mpirun"))}
          : std::vector<mpi>{find_mpi("openmpi"), find_mpi("mpich"),
                             find_mpi("openmpi", TUTTI_RIVALS_DIR "/openmpi")};
  return all;
}

std::vector<mpi> usable_mpis() {
  std::vector<mpi> usable;
  for (const mpi& m : all_mpis())
    if (m.missing.empty()) usable.push_back(m);
  return usable;
}

std::string missing_mpis() {
  std::string all;
  for (const mpi& m : all_mpis())
    if (!m.missing.empty()) all += (all.empty() ? "" : ", ") + m.missing;
  return all;
}

// The ranks write into a file instead of through the launcher, because MPICH's launcher may end an aborted
// job before it has read their last output. An MPI with the standard ABI is found by its mpirun.
outcome run_ranks(const mpi& m, int ranks, const std::string& program, const std::string& variables = "") {
  const tutti::test::scratch_directory scratch;
  const std::string said = scratch.path() / "said";
  outcome result = run_command(
      "TUTTI_BACKEND=mpi TUTTI_TIMEOUT=60 TUTTI_MPI_MODULE=" + (by_standard_abi() ? "" : m.module) + " " +
          variables,
      m.launcher + " -n " + std::to_string(ranks) + " sh -c 'exec \"$@\" >>" + said + " 2>&1' sh " + program);
  result.output = scratch.read(said) + result.output;
  return result;
}

std::string program(const std::string& name) { return TUTTI_MPI_PROGRAMS_DIR "/" + name; }

// One MPI suffices on the second loop where what is sent depends on neither.
std::vector<mpi> mpis_of_the_loop() {
  std::vector<mpi> usable = usable_mpis();
  if (tutti::test::is_second_loop() && usable.size() > 1) usable.erase(usable.begin() + 1, usable.end());
  return usable;
}

// Runs the rest of the case for each of these MPIs. Without any, the case is skipped with the reason.
#define FOR_MPIS(m, these)                        \
  const std::vector<mpi> usable = these;          \
  if (usable.empty()) TUTTI_SKIP(missing_mpis()); \
  for (const mpi& m : usable)
#define FOR_EACH_MPI(m) FOR_MPIS(m, usable_mpis())
#define FOR_MPIS_OF_THE_LOOP(m) FOR_MPIS(m, mpis_of_the_loop())

}  // namespace

TEST_CASE("mpi jobs: every operation, each collective with each algorithm") {
  FOR_MPIS_OF_THE_LOOP(m) {
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
  FOR_MPIS_OF_THE_LOOP(m) {
    CAPTURE(m.name);
    const outcome result = run_ranks(m, 4, program("mpi_conformance"), "TUTTI_HOST_ID=a,a,b,b");
    INFO(result.output);
    CHECK(result.exit_code == 0);
    CHECK(result.says("checks passed"));
  }
}

TEST_CASE("mpi jobs: conformance of collectives with every element type, size, root and shape") {
  const std::string cases = "'-tc=movement:*,reductions:*,same bits: on all ranks*' --no-intro";
  FOR_MPIS_OF_THE_LOOP(m) {
    for (const int ranks : {3, 4}) {
      if (ranks == 3 && tutti::test::is_second_loop()) continue;
      CAPTURE(m.name);
      CAPTURE(ranks);
      const char* const variables =
          ranks == 3 ? "TUTTI_TEST_MPI_RANKS=3" : "TUTTI_TEST_MPI_RANKS=4 TUTTI_HOST_ID=a,a,b,b";
      const outcome result = run_ranks(m, ranks, std::string(TUTTI_COLL_TEST_PATH " ") + cases, variables);
      INFO(result.output);
      CHECK(result.exit_code == 0);
      CHECK(result.says("cases: 6 passed, 0 failed, 0 skipped"));
    }
  }
}

#ifdef TUTTI_EXAMPLES_BIN_DIR
TEST_CASE("mpi jobs: the examples run unchanged") {
  const std::string examples = TUTTI_EXAMPLES_BIN_DIR "/";
  FOR_MPIS_OF_THE_LOOP(m) {
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

TEST_CASE("mpi jobs: worlds in sequence, and a rank that finishes early") {
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

TEST_CASE("mpi jobs: a rank that fails ends the job, and the others get an error") {
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

TEST_CASE("mpi jobs: a rank that does not finish is waited for until the timeout") {
  std::vector<std::future<outcome>> jobs;  // all at once, because they mostly wait
  FOR_EACH_MPI(m) {
    jobs.push_back(std::async(std::launch::async, [m] {
      return run_ranks(m, 2, program("mpi_ending") + " straggles", "TUTTI_TIMEOUT=8");
    }));
  }
  for (std::future<outcome>& job : jobs) {
    const outcome result = job.get();
    INFO(result.output);
    CHECK(result.exit_code != 0);
    CHECK(result.exit_code != 124);
    CHECK(result.says("not all others came to the end of the program within 8 s: the job is aborted"));
  }
}

TEST_CASE("mpi jobs: a program that uses MPI itself") {
  const std::string built = by_standard_abi() ? TUTTI_MPI_ABI_BY_ITSELF : TUTTI_MPI_BY_ITSELF;
  if (built.empty()) TUTTI_SKIP("there was no mpi.h when tutti was built");
  bool any = false;
  FOR_EACH_MPI(m) {
    if (!by_standard_abi() && m.name != built) continue;
    any = true;
    CAPTURE(m.name);
    // A program without its own path to the library.
    const std::string path = "LD_LIBRARY_PATH=" + std::filesystem::path(m.module).parent_path().string();
    const std::string by_itself = program(by_standard_abi() ? "mpi_abi_by_itself" : "mpi_by_itself");
    const outcome shared = run_ranks(m, 3, by_itself + " funneled", path);
    INFO(shared.output);
    CHECK(shared.exit_code == 0);
    CHECK(shared.output == "sums 3 and 3\nsums 3 and 3\n");
    const outcome single = run_ranks(m, 1, by_itself + " single", path);
    INFO(single.output);
    // Some MPIs provide a higher thread level than requested.
    const bool refused =
        single.exit_code == 1 && single.says("use MPI_Init_thread with MPI_THREAD_SERIALIZED");
    CHECK((refused || single.output == "sums 0 and 0\nsums 0 and 0\n"));
  }
  if (!any) TUTTI_SKIP(missing_mpis());
}

TEST_CASE("mpi jobs: each mpirun uses its own MPI, with modules for others beside the program") {
  const tutti::test::scratch_directory beside;
  std::filesystem::copy_file(program("mpi_ending"), beside.path() / "mpi_ending");
  std::error_code none;
  for (const auto& file : std::filesystem::directory_iterator(TUTTI_MPI_MODULES_DIR, none))
    if (file.path().filename().string().starts_with("libtutti_mpi_"))
      std::filesystem::create_symlink(file.path(), beside.path() / file.path().filename());
  FOR_EACH_MPI(m) {
    CAPTURE(m.name);
    const outcome result = run_ranks(m, 2, beside.path().string() + "/mpi_ending which", "TUTTI_MPI_MODULE=");
    INFO(result.output);
    CHECK(result.exit_code == 0);
    CHECK(result.output == m.module + "\n");
    if (!by_standard_abi()) continue;
    // Without an mpirun: the library that the dynamic linker finds, not a module.
    const outcome alone = run_command("TUTTI_BACKEND=mpi I_MPI_FABRICS=shm LD_LIBRARY_PATH=" +
                                          std::filesystem::path(m.module).parent_path().string(),
                                      beside.path().string() + "/mpi_ending which");
    CHECK(alone.output == m.module + "\n");
  }
}

TEST_CASE("mpi jobs: errors at the start name their cause and the cure") {
  const outcome no_module =
      run_command("TUTTI_BACKEND=mpi TUTTI_MPI_MODULE=/nowhere.so", program("mpi_ending") + " twice");
  INFO(no_module.output);
  CHECK(no_module.exit_code == 1);
  CHECK(no_module.says("TUTTI_MPI_MODULE=/nowhere.so cannot be used"));
  const outcome no_mpi =
      run_command("TUTTI_BACKEND=mpi TUTTI_MPI_MODULE=libm.so.6", program("mpi_ending") + " twice");
  INFO(no_mpi.output);
  CHECK(no_mpi.exit_code == 1);
  CHECK(no_mpi.says(
      "so it is no MPI with the standard ABI; set it to the libmpi_abi.so.1 of the MPI whose mpirun"));
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
  if (result.exit_code == 0) TUTTI_SKIP("an MPI is installed where tutti finds it");
  CHECK(result.exit_code == 1);
  CHECK(result.says("libmpi_abi.so.1: cannot open shared object file"));
  CHECK(
      result.says("With MPICH 5 or Intel MPI 2021.19 (pip install mpich): start the program by its mpirun"));
  CHECK(result.says("apt-get install libopenmpi-dev openmpi-bin"));
}

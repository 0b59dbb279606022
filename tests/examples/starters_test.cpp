// SPDX-License-Identifier: Apache-2.0
// The unchanged examples, started without tutti-run: by MPI's mpirun, and with the variables of torchrun,
// srun and users.
#include "base/unique_fd.hpp"
#include "bootstrap/variables.hpp"
#include "support/command.hpp"
#include "support/listening_socket.hpp"
#include "support/scratch_directory.hpp"
#include "support/second_loop.hpp"
#include "support/skip.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>

using namespace tutti;
using test::command_result;
using test::run_shell;
namespace fs = std::filesystem;

namespace {

std::string example(const std::string& name) { return TUTTI_EXAMPLES_BIN_DIR "/" + name; }

// The first existing program whose --version names the kind; empty if there is none.
std::string find_mpirun(const char* candidates, const char* kind) {
  const command_result found =
      run_shell(std::string("for m in ") + candidates + "; do $m --version 2>/dev/null | grep -q '" + kind +
                "' && echo -n $m && exit; done");
  return found.exit_code == 0 ? found.output : std::string();
}

std::string open_mpi() {
  static const std::string mpirun = find_mpirun("mpirun.openmpi mpirun", "Open MPI");
  return mpirun.empty()
             ? mpirun
             : "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 " + mpirun + " --oversubscribe";
}

std::string mpich() {
  static const std::string mpirun = find_mpirun("mpirun.mpich mpirun.hydra mpirun", "HYDRA");
  return mpirun;
}

// Starts ranks 0 to 3 at once, in reverse order; `variables` may contain $rank.
command_result run_by_hand(const std::string& variables, const std::string& program) {
  return run_shell("for rank in 3 2 1 0; do env " + variables + " " + program +
                   " & pids=\"$pids $!\"; done; for p in $pids; do wait $p || code=$?; done; exit ${code-0}");
}

// A port with a listener, during this object's lifetime.
class busy_port {
 public:
  std::string number() const { return std::to_string(number_); }

 private:
  std::uint16_t number_ = 0;
  const base::unique_fd fd_ = test::listening_socket(number_);
};

std::string free_port() { return busy_port().number(); }

// The environment of these tests: only the test's variables of any starter, and a rendezvous directory that
// is checked afterwards.
class clean_start {
 public:
  clean_start() : variables_({{"XDG_RUNTIME_DIR", scratch_.path().c_str()}}) {}
  ~clean_start() { CHECK(fs::is_empty(scratch_.path())); }

 private:
  test::scratch_directory scratch_;
  test::variables variables_;
};

void check_hello(const command_result& run, int times = 1) {
  INFO(run.output);
  CHECK(run.exit_code == 0);
  CHECK(run.times("4 ranks, sum 10\n") == times);
}

// Requirements for each mpirun, on one host, with only -n.
void check_mpirun(const std::string& mpirun) {
  const clean_start clean;
  const std::string four = mpirun + " -n 4 ";
  check_hello(run_shell(four + example("hello")));
  check_hello(run_shell(four + "sh -c " + test::quoted(example("hello") + "; true")));
  {
    const command_result run = run_shell(mpirun + " -n 1 " + example("hello"));
    INFO(run.output);
    CHECK(run.says("1 ranks, sum 1\n"));
  }
  {
    // tutti::spawn starts no processes here.
    const command_result run = run_shell(four + example("tutorial_set_up") + " 4");
    INFO(run.output);
    CHECK(run.exit_code == 0);
    for (const char* rank : {"Rank 0 of 4 ", "Rank 1 of 4 ", "Rank 2 of 4 ", "Rank 3 of 4 "})
      CHECK(run.times(rank) == 1);
  }
  if (!test::is_second_loop()) {
    const command_result run = run_shell(four + example("ring_all_reduce"));
    INFO(run.output);
    CHECK(run.exit_code == 0);
    CHECK(run.times("4 ranks, ") == 9);
    CHECK(run.times(": correct") == 9);
  }
  if (!test::is_second_loop()) {
    const command_result run = run_shell(four + example("train_digits") + " --epochs 3");
    INFO(run.output);
    CHECK(run.exit_code == 0);
    CHECK(run.says("replicas identical: yes"));
  }
  // Two jobs of one user at the same time are separate.
  check_hello(run_shell(four + example("hello") + " & " + four + example("hello") + "; wait"), 2);
  // With an address, the ranks meet there.
  const std::string address = "MASTER_ADDR=127.0.0.1 MASTER_PORT=" + free_port();
  check_hello(run_shell("export " + address + "; " + four + "env " + address + " " + example("hello")));
}

}  // namespace

TEST_CASE("examples under Open MPI's mpirun") {
  if (open_mpi().empty()) TUTTI_SKIP("there is no mpirun of Open MPI");
  check_mpirun(open_mpi());
}

TEST_CASE("examples under MPICH's mpirun") {
  if (mpich().empty()) TUTTI_SKIP("there is no mpirun of MPICH");
  check_mpirun(mpich());
}

TEST_CASE("examples under the mpirun of MPICH 5 and Intel MPI") {
  bool any = false;
  for (const std::string name : {"mpich", "impi"}) {
    const std::string folder = TUTTI_RIVALS_DIR "/" + name;
    if (!fs::exists(folder + "/bin/mpiexec.hydra")) continue;
    CAPTURE(name);
    any = true;
    check_mpirun((name == "impi" ? "env I_MPI_ROOT=" + folder + " " : "") + folder + "/bin/mpiexec.hydra" +
                 (name == "impi" ? " -bootstrap fork" : ""));
  }
  if (!any) TUTTI_SKIP("neither is there (./run setup-rivals)");
}

TEST_CASE("examples with variables set by hand") {
  const clean_start clean;
  const std::string world = "RANK=$rank WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=" + free_port();
  check_hello(run_by_hand(world, example("hello")));
  check_hello(run_by_hand("TUTTI_SECRET=s RANK=$rank WORLD_SIZE=4 MASTER_ADDR=::1 MASTER_PORT=" + free_port(),
                          example("hello")));
  const command_result run = run_by_hand("RANK=$rank WORLD_SIZE=4", example("hello"));
  INFO(run.output);
  CHECK(run.exit_code == 1);
  CHECK(run.times("MASTER_ADDR and MASTER_PORT are not set") == 4);
}

TEST_CASE("examples under torchrun's variables, with and without its own store at MASTER_PORT") {
  const clean_start clean;
  const busy_port agent;
  const std::string world =
      "RANK=$rank LOCAL_RANK=$rank GROUP_RANK=0 ROLE_RANK=$rank ROLE_NAME=default WORLD_SIZE=4 "
      "LOCAL_WORLD_SIZE=4 "
      "GROUP_WORLD_SIZE=1 ROLE_WORLD_SIZE=4 TORCHELASTIC_RESTART_COUNT=0 TORCHELASTIC_MAX_RESTARTS=0 "
      "TORCHELASTIC_RUN_ID=none TORCHELASTIC_ERROR_FILE=/tmp/none ";
  check_hello(run_by_hand(
      world + "MASTER_ADDR=localhost TORCHELASTIC_USE_AGENT_STORE=True MASTER_PORT=" + agent.number(),
      example("hello")));
  // On one host, a host name that is not loopback works as well.
  check_hello(run_by_hand(
      world + "MASTER_ADDR=192.0.2.9 TORCHELASTIC_USE_AGENT_STORE=True MASTER_PORT=" + agent.number(),
      example("hello")));
  check_hello(run_by_hand(
      world + "MASTER_ADDR=localhost TORCHELASTIC_USE_AGENT_STORE=False MASTER_PORT=" + free_port(),
      example("hello")));
  // Two agents of two ranks each, like on two hosts: at the port after the agents' own, or at a given one.
  const std::string halves =
      "RANK=$rank LOCAL_RANK=$((rank%2)) GROUP_RANK=$((rank/2)) WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 "
      "GROUP_WORLD_SIZE=2 "
      "TORCHELASTIC_RUN_ID=none TORCHELASTIC_USE_AGENT_STORE=True MASTER_ADDR=127.0.0.1 ";
  check_hello(run_by_hand(halves + "MASTER_PORT=" + agent.number() + " TUTTI_MASTER_PORT=" + free_port(),
                          example("hello")));
  const std::string after = free_port();
  check_hello(run_by_hand(halves + "MASTER_PORT=" + std::to_string(std::stoi(after) - 1), example("hello")));
}

TEST_CASE("examples under srun's variables, on one host") {
  const clean_start clean;
  const std::string step =
      "SLURM_JOB_ID=4711 SLURM_STEP_ID=0 SLURM_STEPID=0 SLURM_PROCID=$rank SLURM_LOCALID=$rank "
      "SLURM_NODEID=0 "
      "SLURM_NTASKS=4 SLURM_NPROCS=4 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_NUM_NODES=1 SLURM_NNODES=1 "
      "SLURM_STEP_TASKS_PER_NODE=4 SLURM_STEP_NODELIST=node07";
  check_hello(run_by_hand(step, example("hello")));
  // srun --mpi=pmi2 sets PMI's variables, too.
  check_hello(run_by_hand(step + " PMI_RANK=$rank PMI_SIZE=4 PMI_JOBID=4711.0", example("hello")));
}

TEST_CASE("examples under srun's variables, on two hosts: an address must be given") {
  const clean_start clean;
  const std::string step =
      "SLURM_JOB_ID=4711 SLURM_STEP_ID=0 SLURM_PROCID=$rank SLURM_LOCALID=$((rank%2)) "
      "SLURM_NODEID=$((rank/2)) "
      "SLURM_NTASKS=4 SLURM_STEP_NUM_NODES=2 SLURM_STEP_TASKS_PER_NODE='2(x2)' "
      "SLURM_STEP_NODELIST='node[07-08]' ";
  check_hello(run_by_hand(step + "MASTER_ADDR=127.0.0.1 MASTER_PORT=" + free_port(), example("hello")));
  const command_result run = run_by_hand(step, example("hello"));
  INFO(run.output);
  CHECK(run.exit_code == 1);
  CHECK(run.says("several hosts"));
  CHECK(run.says("MASTER_ADDR=node07"));
}

TEST_CASE("examples: variables of contradicting starters are an error") {
  const clean_start clean;
  const command_result run =
      run_by_hand("RANK=0 WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=$rank OMPI_COMM_WORLD_SIZE=4", example("hello"));
  INFO(run.output);
  CHECK(run.says("RANK=0 and OMPI_COMM_WORLD_RANK=3 contradict each other"));
  CHECK(run.exit_code == 1);
}

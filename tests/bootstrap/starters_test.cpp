// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/starters.hpp"

#include "base/unique_fd.hpp"
#include "bootstrap/variables.hpp"
#include "support/run_task.hpp"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <initializer_list>
#include <string>
#include <tutti/error.hpp>
#include <utility>

using namespace tutti;
using bootstrap::place;

namespace {

place found(std::initializer_list<std::pair<const char*, const char*>> environment) {
  const test::variables v(environment);
  return bootstrap::find_place();
}

void check_place(const place& p, int rank, int size, int local_rank, int local_size) {
  CHECK(p.rank.value == rank);
  CHECK(p.size.value == size);
  CHECK(p.local_rank.value.value_or(-1) == local_rank);
  CHECK(p.local_size.value.value_or(-1) == local_size);
}

void check_contradiction(std::initializer_list<std::pair<const char*, const char*>> environment,
                         const char* one, const char* other) {
  const test::failure f = test::failure_of([&] { found(environment); });
  CHECK(f.code == errc::invalid_argument);
  CHECK_MESSAGE(f.says(one), f.text);
  CHECK_MESSAGE(f.says(other), f.text);
  CHECK_MESSAGE(f.says("contradict"), f.text);
  CHECK_MESSAGE(f.says("unset"), f.text);
}

}  // namespace

TEST_CASE("without variables no starter is found") {
  const place p = found({});
  CHECK_FALSE(p.rank.value);
  CHECK_FALSE(p.size.value);
  CHECK(p.job.empty());
}

TEST_CASE("RANK and WORLD_SIZE, from tutti-run, torchrun and users") {
  place p = found({{"RANK", "3"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "4"}});
  check_place(p, 3, 8, 1, 4);
  CHECK(p.job.empty());
  CHECK_FALSE(p.one_host);
  p = found({{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"LOCAL_WORLD_SIZE", "4"}, {"TUTTI_JOB_ID", "x"}});
  CHECK(p.job == "job/x");
  CHECK(p.one_host);
  p = found({{"RANK", "0"},
             {"WORLD_SIZE", "4"},
             {"MASTER_ADDR", "a"},
             {"MASTER_PORT", "5"},
             {"TORCHELASTIC_RUN_ID", "r"},
             {"TORCHELASTIC_USE_AGENT_STORE", "True"},
             {"TORCHELASTIC_RESTART_COUNT", "0"}});
  CHECK(p.job == "torchrun/r/a/5/0");
  CHECK(p.master_port_taken);
}

TEST_CASE("Open MPI, in versions 4 and 5") {
  place p = found({{"OMPI_COMM_WORLD_RANK", "1"},
                   {"OMPI_COMM_WORLD_SIZE", "4"},
                   {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                   {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                   {"PMIX_NAMESPACE", "prterun-host-12@1"}});
  check_place(p, 1, 4, 1, 2);
  CHECK(p.job == "openmpi/prterun-host-12@1");
  CHECK_FALSE(p.one_host);
  p = found({{"OMPI_COMM_WORLD_RANK", "0"},
             {"OMPI_COMM_WORLD_SIZE", "2"},
             {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
             {"OMPI_MCA_ess_base_jobid", "77"},
             {"OMPI_MCA_orte_hnp_uri", "76.0;tcp://h:1"}});
  CHECK(p.job == "openmpi/77/76.0;tcp://h:1");
  CHECK(p.one_host);
}

TEST_CASE("MPICH and MPIs derived from it") {
  place p = found({{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}});
  check_place(p, 2, 4, 0, 2);
  CHECK(p.job_on_host.empty());
  CHECK_FALSE(p.one_host);
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  const base::unique_fd one(ends[0]), other(ends[1]);
  const auto beside = [](int fd) {
    return found({{"PMI_RANK", "2"},
                  {"PMI_SIZE", "4"},
                  {"MPI_LOCALNRANKS", "4"},
                  {"PMI_FD", std::to_string(fd).c_str()}});
  };
  p = beside(one.get());
  CHECK(p.one_host);
  CHECK(p.job.empty());  // it does not reach other hosts
  CHECK(p.job_on_host.starts_with("hydra/" + std::to_string(::getpid()) + "/"));
  CHECK(p.job_on_host.size() > std::string("hydra//").size() + std::to_string(::getpid()).size());
  CHECK(beside(other.get()).job_on_host == p.job_on_host);
  CHECK(beside(987654).job_on_host.empty());
  CHECK(found({{"PMI_RANK", "0"}, {"PMI_SIZE", "4"}, {"PMI_JOBID", "j"}}).job == "pmi/j");
}

TEST_CASE("Slurm, if srun has started the process") {
  const place p = found({{"SLURM_JOB_ID", "12"},
                         {"SLURM_STEP_ID", "0"},
                         {"SLURM_PROCID", "5"},
                         {"SLURM_NTASKS", "9"},
                         {"SLURM_LOCALID", "1"},
                         {"SLURM_NODEID", "2"},
                         {"SLURM_STEP_NUM_NODES", "3"},
                         {"SLURM_STEP_TASKS_PER_NODE", "2(x2),5"},
                         {"SLURM_STEP_NODELIST", "gpu[01-02],login"}});
  check_place(p, 5, 9, 1, 5);
  CHECK(p.job == "slurm/12/0");
  CHECK_FALSE(p.one_host);
  CHECK(p.pass_variables.find("MASTER_ADDR=gpu01,") != std::string::npos);
  const auto first = [](const char* list) {
    return found({{"SLURM_STEP_ID", "0"},
                  {"SLURM_PROCID", "0"},
                  {"SLURM_NTASKS", "2"},
                  {"SLURM_STEP_NODELIST", list}})
        .pass_variables;
  };
  CHECK(first("a,b[1-2]").find("MASTER_ADDR=a,") != std::string::npos);
  CHECK(first("b[1,3]").find("MASTER_ADDR=b1,") != std::string::npos);
  CHECK(first("only").find("MASTER_ADDR=only,") != std::string::npos);
  CHECK(found({{"SLURM_JOB_ID", "12"},
               {"SLURM_STEPID", "3"},
               {"SLURM_PROCID", "0"},
               {"SLURM_STEP_NUM_TASKS", "2"},
               {"SLURM_NTASKS", "8"},
               {"SLURM_NNODES", "1"}})
            .one_host);
}

TEST_CASE("in a Slurm batch script, without srun, nothing is found") {
  const place p =
      found({{"SLURM_JOB_ID", "12"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "0"}});
  CHECK_FALSE(p.rank.value);
  CHECK_FALSE(p.size.value);
}

TEST_CASE("contradicting starters are an error that names both") {
  check_contradiction(
      {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}},
      "RANK=0", "OMPI_COMM_WORLD_RANK=1");
  check_contradiction({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"PMI_RANK", "0"}, {"PMI_SIZE", "4"}},
                      "WORLD_SIZE=2", "PMI_SIZE=4");
  check_contradiction(
      {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"PMI_RANK", "9"}, {"PMI_SIZE", "4"}},
      "OMPI_COMM_WORLD_RANK=1", "PMI_RANK=9");
  check_contradiction({{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"WORLD_SIZE", "5"}}, "PMI_SIZE=4",
                      "WORLD_SIZE=5");
  // Starters that agree count as one.
  check_place(
      found(
          {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}}),
      1, 2, -1, -1);
}

TEST_CASE("processes of other starters inherit Slurm's variables, which are then ignored") {
  check_place(found({{"RANK", "0"},
                     {"WORLD_SIZE", "2"},
                     {"SLURM_STEP_ID", "0"},
                     {"SLURM_PROCID", "3"},
                     {"SLURM_NTASKS", "4"}}),
              0, 2, -1, -1);
  check_place(found({{"OMPI_COMM_WORLD_RANK", "0"},
                     {"OMPI_COMM_WORLD_SIZE", "2"},
                     {"SLURM_STEP_ID", "0"},
                     {"SLURM_PROCID", "3"},
                     {"SLURM_NTASKS", "4"}}),
              0, 2, -1, -1);
}

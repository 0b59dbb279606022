// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/environment.hpp"

#include "base/unique_fd.hpp"
#include "bootstrap/address.hpp"
#include "bootstrap/rendezvous.hpp"
#include "bootstrap/variables.hpp"
#include "support/run_task.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>

#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <string>
#include <tutti/init_options.hpp>
#include <utility>
#include <vector>

using namespace tutti;
using namespace std::chrono_literals;
using bootstrap::job;
using test::failure;

namespace {

using test::variables;

job resolved(std::initializer_list<std::pair<const char*, const char*>> environment,
             const init_options& options = init_options()) {
  const variables v(environment);
  return bootstrap::resolve(options);
}

// Checks that resolve() fails with an error that names all of `parts`.
void check_refused(std::initializer_list<std::pair<const char*, const char*>> environment,
                   std::initializer_list<const char*> parts, const init_options& options = init_options()) {
  const failure f = test::failure_of([&] { resolved(environment, options); });
  CHECK_MESSAGE(f.code == errc::invalid_argument, f.text);
  for (const char* part : parts) CHECK_MESSAGE(f.says(part), part << " is not in: " << f.text);
}

}  // namespace

TEST_CASE("without variables a process is a world of one") {
  const job j = resolved({});
  CHECK(j.alone);
  CHECK(j.rank == 0);
  CHECK(j.world_size == 1);
  CHECK(j.timeout == 10min);
  CHECK(j.transports.empty());
  CHECK(j.secret.empty());
  CHECK(j.store_fd == -1);
}

TEST_CASE("the variables of tutti-run and torchrun") {
  const job j = resolved({{"RANK", "3"},
                          {"WORLD_SIZE", "8"},
                          {"LOCAL_RANK", "1"},
                          {"LOCAL_WORLD_SIZE", "4"},
                          {"MASTER_ADDR", "node7"},
                          {"MASTER_PORT", "29500"},
                          {"TUTTI_SECRET", "s"},
                          {"TUTTI_JOB_ID", "job"},
                          {"TUTTI_TRANSPORTS", "tcp,shm"},
                          {"TUTTI_CHECKSUMS", "1"},
                          {"TUTTI_TCP_CONNECTIONS", "3"},
                          {"TUTTI_TIMEOUT", "1.5"}});
  CHECK(j.checksums);
  CHECK(j.tcp_connections == 3);
  CHECK_FALSE(j.alone);
  CHECK(j.rank == 3);
  CHECK(j.world_size == 8);
  CHECK(j.master_host == "node7");
  CHECK(j.master_port == 29500);
  CHECK(j.secret == "s");
  CHECK(j.job_id == "job/job");
  CHECK(j.transports == std::set<std::string>{"shm", "tcp"});
  CHECK(j.timeout == 1500ms);
}

TEST_CASE("local numbers may be missing") {
  const job j = resolved({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "::1"}, {"MASTER_PORT", "1"}});
  CHECK(j.master_host == "::1");
  CHECK(j.tcp_connections == 1);
}

TEST_CASE("the variables of other starters work as well") {
  SUBCASE("with an address of rank 0") {
    const job j = resolved({{"OMPI_COMM_WORLD_RANK", "1"},
                            {"OMPI_COMM_WORLD_SIZE", "4"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                            {"PMIX_NAMESPACE", "77"},
                            {"MASTER_ADDR", "a"},
                            {"MASTER_PORT", "5"}});
    CHECK(j.rank == 1);
    CHECK(j.world_size == 4);
    CHECK(j.job_id == "openmpi/77");
    CHECK(j.master_host == "a");
    CHECK(j.rendezvous_file.empty());
  }
  SUBCASE("on one host no address is needed: the ranks of one job meet at a file, apart from other jobs") {
    const auto of = [](const char* rank, const char* name) {
      return resolved({{"OMPI_COMM_WORLD_RANK", rank},
                       {"OMPI_COMM_WORLD_SIZE", "4"},
                       {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                       {"PMIX_NAMESPACE", name}});
    };
    const job j = of("1", "77");
    CHECK(j.private_rendezvous);
    CHECK(j.rendezvous_file.starts_with(bootstrap::private_directory() + "/rendezvous-"));
    CHECK(of("2", "77").rendezvous_file == j.rendezvous_file);
    CHECK(of("1", "78").rendezvous_file != j.rendezvous_file);
    CHECK(j.master_host.empty());
  }
  SUBCASE("an address is needed on several hosts, or if the starter has no name for the job") {
    check_refused({{"OMPI_COMM_WORLD_RANK", "1"},
                   {"OMPI_COMM_WORLD_SIZE", "4"},
                   {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                   {"PMIX_NAMESPACE", "77"}},
                  {"OMPI_COMM_WORLD_RANK=1", "several hosts", "MASTER_ADDR", "MASTER_PORT", "mpirun -x"});
    check_refused({{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"MPI_LOCALNRANKS", "4"}},
                  {"PMI_RANK=1", "mpirun -genv"});
    check_refused({{"SLURM_STEP_ID", "0"},
                   {"SLURM_JOB_ID", "9"},
                   {"SLURM_PROCID", "1"},
                   {"SLURM_NTASKS", "4"},
                   {"SLURM_STEP_NUM_NODES", "2"},
                   {"SLURM_STEP_NODELIST", "node[07-08]"}},
                  {"SLURM_PROCID=1", "several hosts", "srun", "MASTER_ADDR=node07"});
    check_refused(
        {{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "4"}, {"MASTER_ADDR", "a"}},
        {"MASTER_PORT is not set"});
  }
  SUBCASE("one rank needs no address") {
    const job j = resolved({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}});
    CHECK(j.world_size == 1);
    CHECK(j.master_host.empty());
    CHECK(j.rendezvous_file.empty());
  }
}

TEST_CASE("torchrun's own store is at MASTER_PORT, so the ranks meet elsewhere") {
  const auto of = [](const char* agent_store, const char* local_size, const char* port = "29400",
                     const char* chosen = "") {
    return resolved({{"RANK", "1"},
                     {"WORLD_SIZE", "4"},
                     {"LOCAL_RANK", "1"},
                     {"LOCAL_WORLD_SIZE", local_size},
                     {"MASTER_ADDR", "node7"},
                     {"MASTER_PORT", port},
                     {"TORCHELASTIC_RUN_ID", "none"},
                     {"TORCHELASTIC_RESTART_COUNT", "2"},
                     {"TORCHELASTIC_USE_AGENT_STORE", agent_store},
                     {"TUTTI_MASTER_PORT", chosen}});
  };
  CHECK(of("False", "4").master_port == 29400);
  const job together = of("True", "4");
  CHECK(together.private_rendezvous);
  CHECK(together.master_host.empty());
  CHECK(of("True", "4", "29401").rendezvous_file != together.rendezvous_file);
  const job apart = of("True", "2");
  CHECK(apart.master_host == "node7");
  CHECK(apart.master_port == 29401);
  CHECK(apart.rendezvous_file.empty());
  CHECK(of("True", "2", "29400", "1234").master_port == 1234);
  CHECK(of("True", "4", "29400", "1234").master_port == 1234);
  CHECK(apart.job_id.find("/2") != std::string::npos);
  check_refused({{"RANK", "1"},
                 {"WORLD_SIZE", "4"},
                 {"LOCAL_WORLD_SIZE", "2"},
                 {"MASTER_ADDR", "node7"},
                 {"MASTER_PORT", "65535"},
                 {"TORCHELASTIC_RUN_ID", "none"},
                 {"TORCHELASTIC_USE_AGENT_STORE", "True"}},
                {"MASTER_PORT=65535", "TUTTI_MASTER_PORT"});
}

TEST_CASE("tutti-run's store is beside the MASTER_PORT that it sets, and not beside another one") {
  const auto of = [](const char* master_port, const char* ports) {
    return resolved({{"RANK", "1"},
                     {"WORLD_SIZE", "2"},
                     {"MASTER_ADDR", "node7"},
                     {"MASTER_PORT", master_port},
                     {"TUTTI_STORE_PORT", ports},
                     {"TUTTI_STORE_LISTENS", "1234"}});
  };
  const job beside = of("29400", "29400:1234");
  CHECK(beside.master_host == "node7");
  CHECK(beside.master_port == 1234);
  CHECK(beside.store_listens);
  for (const char* other : {"2940", "29401"}) {
    CHECK(of(other, "29400:1234").master_port == std::stoi(other));
    CHECK_FALSE(of(other, "29400:1234").store_listens);
  }
  check_refused({{"RANK", "1"},
                 {"WORLD_SIZE", "2"},
                 {"MASTER_ADDR", "node7"},
                 {"MASTER_PORT", "29400"},
                 {"TUTTI_STORE_PORT", "29400:"}},
                {"TUTTI_STORE_PORT"});
}

TEST_CASE("missing or contradictory variables are named, with the cure") {
  check_refused({{"RANK", "1"}}, {"RANK=1", "WORLD_SIZE", "tutti-run"});
  check_refused({{"WORLD_SIZE", "4"}}, {"WORLD_SIZE=4", "RANK", "from 0 to 3", "tutti-run -n 4"});
  check_refused({{"RANK", "4"}, {"WORLD_SIZE", "4"}}, {"RANK=4", "WORLD_SIZE=4", "0 to 3"});
  check_refused({{"RANK", "-1"}, {"WORLD_SIZE", "4"}}, {"RANK", "-1"});
  check_refused({{"RANK", "one"}, {"WORLD_SIZE", "4"}}, {"RANK", "one"});
  check_refused({{"RANK", "0"}, {"WORLD_SIZE", "0"}}, {"WORLD_SIZE"});
  check_refused({{"RANK", "0"}, {"WORLD_SIZE", "2"}}, {"RANK=0", "MASTER_ADDR", "MASTER_PORT"});
  check_refused({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "0"}},
                {"MASTER_PORT", "'0'"});
  check_refused({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "65536"}},
                {"MASTER_PORT"});
  check_refused({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "http"}},
                {"MASTER_PORT"});
  check_refused({{"MASTER_ADDR", "a"}, {"MASTER_PORT", "5"}}, {"RANK", "WORLD_SIZE", "MASTER_ADDR"});
  check_refused({{"RANK", "0"},
                 {"WORLD_SIZE", "2"},
                 {"LOCAL_RANK", "2"},
                 {"LOCAL_WORLD_SIZE", "2"},
                 {"MASTER_ADDR", "a"},
                 {"MASTER_PORT", "5"}},
                {"LOCAL_RANK=2", "LOCAL_WORLD_SIZE=2"});
  check_refused({{"RANK", "0"},
                 {"WORLD_SIZE", "2"},
                 {"LOCAL_WORLD_SIZE", "3"},
                 {"MASTER_ADDR", "a"},
                 {"MASTER_PORT", "5"}},
                {"LOCAL_WORLD_SIZE=3", "WORLD_SIZE=2"});
}

TEST_CASE("options complete variables, and must not contradict them") {
  init_options o;
  o.rank = 1;
  o.world_size = 2;
  o.secret = "of the program";
  o.timeout = 5s;
  o.transports = {"tcp"};
  const job j =
      resolved({{"MASTER_ADDR", "a"}, {"MASTER_PORT", "5"}, {"TUTTI_SECRET", "of the environment"}}, o);
  CHECK(j.rank == 1);
  CHECK(j.world_size == 2);
  CHECK(j.secret == "of the program");
  CHECK(j.timeout == 5s);
  CHECK(j.transports == std::set<std::string>{"tcp"});
  CHECK(resolved({{"RANK", "1"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "5"}, {"TUTTI_TIMEOUT", "7"}}, o)
            .timeout == 7s);

  check_refused({{"RANK", "0"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "5"}},
                {"init_options::rank is 1", "RANK=0"}, o);
  check_refused({{"WORLD_SIZE", "3"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "5"}},
                {"init_options::world_size is 2", "WORLD_SIZE=3"}, o);
  check_refused({{"TUTTI_TRANSPORTS", "shm"}}, {"TUTTI_TRANSPORTS=shm", "init_options::transports"}, o);
  CHECK_FALSE(j.checksums);
  o.checksums = true;
  CHECK(resolved({{"RANK", "1"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "5"}}, o).checksums);
  check_refused({{"TUTTI_CHECKSUMS", "0"}}, {"TUTTI_CHECKSUMS=0", "init_options::checksums"}, o);

  init_options only_rank;
  only_rank.rank = 1;
  check_refused({}, {"init_options::rank=1", "WORLD_SIZE"}, only_rank);
  init_options negative;
  negative.rank = -2;
  check_refused({}, {"-2"}, negative);
  init_options none;
  none.world_size = 0;
  check_refused({}, {"world_size is 0"}, none);
}

TEST_CASE("tcp:// names the address of rank 0") {
  init_options o;
  o.rank = 0;
  o.world_size = 2;
  o.init_method = "tcp://node7:1234";
  job j = resolved({{"MASTER_ADDR", "elsewhere"}}, o);
  CHECK(j.master_host == "node7");
  CHECK(j.master_port == 1234);
  o.init_method = "tcp://[fe80::1]:80/";
  j = resolved({}, o);
  CHECK(j.master_host == "fe80::1");
  CHECK(j.master_port == 80);
  for (const char* wrong : {"tcp://", "tcp://host", "tcp://host:", "tcp://:80", "tcp://host:0",
                            "tcp://host:99999", "tcp://fe80::1:80", "tcp://a b:80", "tcp://host:80x"}) {
    o.init_method = wrong;
    check_refused({}, {wrong}, o);
  }
  init_options no_rank;
  no_rank.init_method = "tcp://host:80";
  check_refused({}, {"RANK", "tcp://host:80"}, no_rank);
}

TEST_CASE("file:// names the file where the ranks meet") {
  init_options o;
  o.rank = 0;
  o.world_size = 2;
  o.init_method = "file:///shared/run 7";
  const job j =
      resolved({{"MASTER_ADDR", "elsewhere"}, {"TUTTI_JOB_ID", "x"}, {"TUTTI_RESTART_COUNT", "1"}}, o);
  CHECK(j.rendezvous_file == "/shared/run 7");
  CHECK_FALSE(j.private_rendezvous);
  CHECK(j.master_host.empty());
  CHECK(j.job_id == "job/x/1");
  for (const char* wrong : {"file://", "file://shared", "file:///", "file:///shared/"}) {
    o.init_method = wrong;
    check_refused({}, {wrong, "file:///directory/name"}, o);
  }
  init_options no_rank;
  no_rank.init_method = "file:///shared/run";
  check_refused({}, {"RANK", "file:///shared/run"}, no_rank);
}

TEST_CASE("etcd:// and TUTTI_STORE name the etcd where the ranks meet") {
  const std::string url = "etcd://a:2379,b/training";
  const job of_variable = resolved({{"TUTTI_STORE", url.c_str()},
                                    {"RANK", "1"},
                                    {"WORLD_SIZE", "2"},
                                    {"MASTER_ADDR", "elsewhere"},
                                    {"MASTER_PORT", "1"},
                                    {"TUTTI_ELASTIC", "first"}});
  CHECK(of_variable.etcd == url);
  CHECK(of_variable.elastic);
  CHECK(of_variable.master_host.empty());
  init_options o;
  o.rank = 0;
  o.world_size = 2;
  o.init_method = url;
  CHECK(resolved({{"TUTTI_STORE", "etcd://other/job"}}, o).etcd == url);
  CHECK_FALSE(resolved({}, o).tls_of_etcd);
  check_refused({{"TUTTI_ELASTIC", "first"}}, {"init_method", "TUTTI_STORE"}, o);
  o.init_method = "etcds://a/training";
  check_refused({}, {"TUTTI_TLS_CERTIFICATE", "etcds://a/training"}, o);
  o.init_method = "etcd://a";
  check_refused({}, {"etcd://a", "/JOB"}, o);
  check_refused({{"TUTTI_STORE", "redis://a/0"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}},
                {"redis://a/0", "TUTTI_STORE"});
  check_refused({{"TUTTI_STORE", url.c_str()}}, {"RANK", url.c_str()});
}

TEST_CASE("with the backend mpi, processes and ranks are MPI's") {
  CHECK_FALSE(resolved({}).over_mpi);
  init_options o;
  o.backend = "mpi";
  // No rendezvous address is needed.
  job j = resolved({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"TUTTI_TIMEOUT", "7"}}, o);
  CHECK(j.over_mpi);
  CHECK(j.rank == 1);
  CHECK(j.world_size == 4);
  CHECK(j.timeout == 7s);
  j = resolved({{"TUTTI_BACKEND", "mpi"}});
  CHECK(j.over_mpi);
  CHECK(j.rank == -1);
  CHECK(j.world_size == -1);
  CHECK_FALSE(resolved({{"TUTTI_BACKEND", "native"}}).over_mpi);
  check_refused({{"TUTTI_BACKEND", "native"}}, {"TUTTI_BACKEND=native", "init_options::backend"}, o);
  check_refused({{"TUTTI_TRANSPORTS", "shm,tcp"}}, {"TUTTI_TRANSPORTS", "shm,tcp", "mpi"}, o);
  // Threads of one process are no MPI job. That is an error if the options request MPI, and ignored if only
  // the environment does.
  const variables none({{"TUTTI_BACKEND", "mpi"}});
  CHECK(test::failure_of([&] { bootstrap::local_job(0, 2, o); }).code == errc::not_supported);
  CHECK_FALSE(bootstrap::local_job(0, 2, init_options()).over_mpi);
}

TEST_CASE("unknown methods, backends, transports and times are refused") {
  init_options o;
  for (const char* method : {"file:/tmp/x", "udp://a:1", "", "env:"}) {
    o.init_method = method;
    check_refused({}, {"env://", "tcp://", "file://"}, o);
  }
  o = init_options();
  o.backend = "nccl";
  check_refused({}, {"nccl", "native"}, o);
  o.backend = "mpi";
  CHECK(resolved({}, o).over_mpi);
  o.transports = {"tcp"};
  check_refused({}, {"mpi", "no choice of transports"}, o);
  o = init_options();
  check_refused({{"TUTTI_BACKEND", "gloo"}}, {"TUTTI_BACKEND", "gloo", "mpi"});
  o.transports = {"rdma"};
  check_refused({}, {"rdma", "shm, ucx and tcp"}, o);
  check_refused({{"TUTTI_CHECKSUMS", "2"}}, {"TUTTI_CHECKSUMS", "2"});
  check_refused({{"TUTTI_TCP_CONNECTIONS", "0"}}, {"TUTTI_TCP_CONNECTIONS", "0"});
  check_refused({{"TUTTI_TCP_CONNECTIONS", "9"}}, {"TUTTI_TCP_CONNECTIONS", "9"});
  check_refused({{"TUTTI_TRANSPORTS", "tcp,"}}, {"TUTTI_TRANSPORTS", "''"});
  check_refused({{"TUTTI_TRANSPORTS", "tcp, shm"}}, {"TUTTI_TRANSPORTS", "' shm'"});
  for (const char* time : {"0", "-1", "soon", "5s", "nan", "inf", "1e300"})
    check_refused({{"TUTTI_TIMEOUT", time}}, {"TUTTI_TIMEOUT", time, "seconds"});
  o = init_options();
  o.timeout = 0ms;
  check_refused({}, {"init_options::timeout"}, o);
  o.timeout = std::chrono::milliseconds::max();
  CHECK(resolved({}, o).timeout > 24h);
}

TEST_CASE("only rank 0 gets the launcher's socket, and no other program does") {
  base::unique_fd fd = bootstrap::listen_at({boost::asio::ip::address_v4::loopback(), 0});
  const std::string number = std::to_string(fd.get());
  const std::string port = std::to_string(bootstrap::local_endpoint(fd.get()).value().port());
  const auto rank = [&](const char* its_number, const char* master_port, const char* from = "") {
    return variables({{"RANK", its_number},
                      {"WORLD_SIZE", "2"},
                      {"MASTER_ADDR", "127.0.0.1"},
                      {"MASTER_PORT", master_port},
                      {"TUTTI_STORE_FD", number.c_str()},
                      {"TUTTI_STORE_FROM", from},
                      {"TUTTI_STORE_LISTENS", port.c_str()}});
  };
  {
    const variables v = rank("0", port.c_str());
    CHECK(bootstrap::resolve(init_options()).store_fd == fd.get());
    CHECK(std::getenv("TUTTI_STORE_FD") == nullptr);
    CHECK((::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC) != 0);
    CHECK(bootstrap::resolve(init_options()).store_fd == -1);
  }
  {
    const variables v = rank("1", port.c_str());
    CHECK(bootstrap::resolve(init_options()).store_fd == -1);
  }
  {
    const variables v = rank("0", "5");
    CHECK(bootstrap::resolve(init_options()).store_fd == -1);
  }
  fd.reset();
  const variables v = rank("0", port.c_str(), "no such socket");
  const failure f = test::failure_of([] { bootstrap::resolve(init_options()); });
  CHECK(f.code == errc::invalid_argument);
  for (const std::string& part : {"descriptor " + number, std::string("refused"), std::string("close_fds")})
    CHECK_MESSAGE(f.says(part), part << " is not in: " << f.text);
}

TEST_CASE("a listening store serves only the first world, at the requested port") {
  {
    const variables v({{"RANK", "1"},
                       {"WORLD_SIZE", "2"},
                       {"MASTER_ADDR", "127.0.0.1"},
                       {"MASTER_PORT", "5"},
                       {"TUTTI_STORE_LISTENS", "5"}});
    CHECK(bootstrap::resolve(init_options()).store_listens);
    CHECK(std::getenv("TUTTI_STORE_LISTENS") == nullptr);
    CHECK_FALSE(bootstrap::resolve(init_options()).store_listens);
  }
  CHECK_FALSE(resolved({{"RANK", "1"},
                        {"WORLD_SIZE", "2"},
                        {"MASTER_ADDR", "127.0.0.1"},
                        {"MASTER_PORT", "6"},
                        {"TUTTI_STORE_LISTENS", "5"}})
                  .store_listens);
}

TEST_CASE("ranks that are threads get their places from the caller") {
  init_options o;
  o.timeout = 3s;
  const variables v({{"RANK", "5"}, {"WORLD_SIZE", "9"}, {"TUTTI_TRANSPORTS", "tcp"}});
  const job j = bootstrap::local_job(1, 4, o);
  CHECK(j.rank == 1);
  CHECK(j.world_size == 4);
  CHECK(j.timeout == 3s);
  CHECK(j.transports == std::set<std::string>{"tcp"});
  CHECK_FALSE(j.alone);
  CHECK(bootstrap::local_job(0, 1, o).alone);
}

// SPDX-License-Identifier: Apache-2.0
#include "launch/options.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <utility>

#include "bootstrap/starters.hpp"

using namespace tutti::launch;

namespace {

using variables = std::map<std::string, std::string>;

// Sets exactly these variables while a test parses.
class only_these {
 public:
  explicit only_these(const variables& wanted) {
    for (const node_variable& row : node_variables) change(row.name, wanted);
    for (const char* name :
         {"SLURM_STEP_ID", "SLURM_STEPID", "SLURM_STEP_NUM_TASKS", "TUTTI_JOB_ID", "TUTTI_STORE"})
      change(name, wanted);
  }
  only_these(const only_these&) = delete;
  only_these& operator=(const only_these&) = delete;
  ~only_these() {
    for (const auto& [name, old] : before_) ::unsetenv(name.c_str());
    for (const auto& [name, old] : before_)
      if (!old.empty()) ::setenv(name.c_str(), old.c_str(), 1);
  }

 private:
  void change(const char* name, const variables& wanted) {
    const char* const old = std::getenv(name);
    before_[name] = old == nullptr ? "" : old;
    const auto given = wanted.find(name);
    if (given == wanted.end())
      ::unsetenv(name);
    else
      ::setenv(name, given->second.c_str(), 1);
  }
  variables before_;
};

options parse_with(const variables& environment, std::vector<const char*> arguments) {
  const only_these set(environment);
  arguments.insert(arguments.begin(), "tutti-run");
  arguments.push_back("p");
  return parse_options(static_cast<int>(arguments.size()), arguments.data());
}

std::string refused(const variables& environment, std::vector<const char*> arguments) {
  try {
    parse_with(environment, std::move(arguments));
  } catch (const usage_error& e) {
    return e.what();
  }
  return "accepted";
}

bool names(const std::string& text, const std::string& what) { return text.find(what) != std::string::npos; }

// A node that is not the first, in each starter's variables.
const std::map<std::string, variables> described = {
    {"torchrun",
     {{"PET_NPROC_PER_NODE", "3"},
      {"PET_NNODES", "4"},
      {"PET_NODE_RANK", "2"},
      {"PET_MASTER_ADDR", "job-node-0-0.job"},
      {"PET_MASTER_PORT", "29400"}}},
    {"LeaderWorkerSet",
     {{"LWS_GROUP_SIZE", "4"}, {"LWS_WORKER_INDEX", "2"}, {"LWS_LEADER_ADDRESS", "set-0.set.default"}}},
    {"Indexed Job", {{"JOB_COMPLETION_INDEX", "2"}}},
    {"Slurm",
     {{"SLURM_STEP_ID", "0"},
      {"SLURM_STEP_NUM_NODES", "4"},
      {"SLURM_STEP_NUM_TASKS", "4"},
      {"SLURM_NODEID", "2"},
      {"SLURM_STEP_NODELIST", "node[07-09],gpu3"}}}};
// The place of the node, and the options that must complete it.
struct expected_place {
  std::vector<const char*> arguments;
  int ranks;
  const char* host;
  int port;
};
const std::map<std::string, expected_place> places = {
    {"torchrun", {{}, 3, "job-node-0-0.job", 29400}},
    {"LeaderWorkerSet", {{"-n", "5"}, 5, "set-0.set.default", 29500}},
    {"Indexed Job", {{"-n", "5", "--nnodes", "4", "--master", "job-0.job:29501"}, 5, "job-0.job", 29501}},
    {"Slurm", {{"-n", "5"}, 5, "node07", 29500}}};

}  // namespace

TEST_SUITE("launch/node_variables") {
  TEST_CASE("each row of the table has the documented effect, and every starter has rows") {
    for (const auto& [starter, environment] : described) {
      CAPTURE(starter);
      const expected_place& place = places.at(starter);
      const options o = parse_with(environment, place.arguments);
      CHECK(o.ranks == place.ranks);
      CHECK(o.nodes == 4);
      CHECK(o.node_rank == 2);
      REQUIRE(o.master);
      CHECK(o.master->host == place.host);
      CHECK(o.master->port == place.port);
    }
    for (const node_variable& row : node_variables) {
      CAPTURE(row.name);
      REQUIRE(described.contains(row.starter));
      variables less = described.at(row.starter);
      // Without this row the job is a different one, or none.
      REQUIRE(less.erase(row.name) == 1);
      const std::vector<const char*>& arguments = places.at(row.starter).arguments;
      switch (row.field) {
        case node_field::ranks:
          CHECK(names(refused(less, arguments), "how many ranks"));
          break;
        case node_field::nodes:
          CHECK(refused(less, {"-n", "1"}) == "accepted");
          break;
        case node_field::node_rank:
          CHECK(names(refused(less, arguments), "--node-rank"));
          break;
        case node_field::master_host:
          CHECK(names(refused(less, arguments), "--master"));
          break;
        case node_field::master_port:
          CHECK(parse_with(less, arguments).master->port == 29500);
          break;
      }
    }
  }

  TEST_CASE("the guide lists each variable") {
    std::ifstream file(TUTTI_SOURCE_DIR "/docs/starters.md");
    const std::string guide{std::istreambuf_iterator<char>(file), {}};
    for (const node_variable& row : node_variables) {
      CAPTURE(row.name);
      CHECK(names(guide, std::string("`") + row.name + "`"));
    }
  }

  TEST_CASE("options win over variables") {
    const options o = parse_with(described.at("torchrun"),
                                 {"-n", "1", "--nnodes", "8", "--node-rank", "7", "--master", "10.0.0.1:80"});
    CHECK(o.ranks == 1);
    CHECK(o.nodes == 8);
    CHECK(o.node_rank == 7);
    CHECK(o.master->host == "10.0.0.1");
    CHECK(o.master->port == 80);
    CHECK(parse_with(described.at("Slurm"), {"-n", "1", "--nnodes", "1"}).nodes == 1);
  }

  TEST_CASE("variables of one node, of a batch script or of an outer launcher have no effect") {
    CHECK(parse_with({{"JOB_COMPLETION_INDEX", "3"}}, {"-n", "2"}).nodes == 1);
    CHECK(parse_with({{"JOB_COMPLETION_INDEX", "3"}}, {"-n", "2"}).node_rank == 0);
    CHECK(parse_with({{"PET_NNODES", "1"}, {"PET_NODE_RANK", "0"}}, {"-n", "2"}).nodes == 1);
    const options elastic = parse_with(
        {{"PET_NNODES", "2:4"}, {"PET_NODE_RANK", "3"}, {"PET_MASTER_ADDR", "pod-0"}}, {"-n", "2"});
    CHECK(elastic.elastic);
    CHECK(elastic.least_nodes == 2);
    CHECK(elastic.nodes == 4);
    CHECK(elastic.node_rank == 3);
    variables batch = described.at("Slurm");
    batch.erase("SLURM_STEP_ID");
    CHECK(parse_with(batch, {"-n", "2"}).nodes == 1);
    variables inside = described.at("torchrun");
    inside["TUTTI_JOB_ID"] = "abc";
    CHECK(parse_with(inside, {"-n", "2"}).nodes == 1);
  }

  TEST_CASE("nodes that come and go meet in the etcd that TUTTI_STORE names, and need no --master") {
    const variables etcd = {{"TUTTI_STORE", "etcd://a,b:7/train"}};
    const options o = parse_with(etcd, {"-n", "1", "--nnodes", "2:4"});
    CHECK(o.store == "etcd://a,b:7/train");
    CHECK(o.nodes == 4);
    CHECK(o.node_rank == -1);
    CHECK(parse_with(etcd, {"-n", "1", "--nnodes", "1:4"}).nodes == 4);
    CHECK(parse_with(etcd, {"-n", "1"}).store.empty());  // only the ranks do
    CHECK(names(refused({{"TUTTI_STORE", "etcd://a"}}, {"-n", "1", "--nnodes", "1:4"}), "names no job"));
    CHECK(names(refused({}, {"-n", "1", "--nnodes", "2:4"}), "--master"));
  }

  TEST_CASE("contradicting starters are an error that names both, agreeing ones are not") {
    variables both = described.at("torchrun");
    both["JOB_COMPLETION_INDEX"] = "2";
    CHECK(parse_with(both, {}).node_rank == 2);
    both["JOB_COMPLETION_INDEX"] = "1";
    const std::string text = refused(both, {});
    CHECK(names(text, "PET_NODE_RANK=2 (torchrun)"));
    CHECK(names(text, "JOB_COMPLETION_INDEX=1 (Indexed Job)"));
    CHECK(names(text, "--node-rank"));
    CHECK(parse_with(both, {"--node-rank", "3"}).node_rank == 3);
  }

  TEST_CASE("malformed variables are named, with an option to use instead") {
    variables wrong = described.at("torchrun");
    wrong["PET_NPROC_PER_NODE"] = "auto";
    CHECK(names(refused(wrong, {}), "PET_NPROC_PER_NODE=auto"));
    CHECK(names(refused(wrong, {}), "give -n"));
    CHECK(refused(wrong, {"-n", "1"}) == "accepted");
    wrong["PET_NODE_RANK"] = "4";
    CHECK(names(refused(wrong, {"-n", "1"}), "PET_NODE_RANK=4 (torchrun) is not one of the 4 nodes"));
    wrong["PET_NODE_RANK"] = "0";
    wrong["PET_MASTER_PORT"] = "65536";
    CHECK(names(refused(wrong, {"-n", "1"}), "PET_MASTER_PORT=65536"));
    variables crowded = described.at("Slurm");
    crowded["SLURM_STEP_NUM_TASKS"] = "8";
    CHECK(names(refused(crowded, {"-n", "1"}), "--ntasks-per-node=1"));
  }

  TEST_CASE("the first host of Slurm's host lists") {
    using tutti::bootstrap::first_host;
    CHECK(first_host("node1") == "node1");
    CHECK(first_host("b,a[1-2]") == "b");
    CHECK(first_host("node[01-04,07],gpu3") == "node01");
    CHECK(first_host("rack[2-3]node[5,7]-ib,x") == "rack2node5-ib");
  }
}

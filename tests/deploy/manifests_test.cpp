// SPDX-License-Identifier: Apache-2.0
// Checks the files of deploy/ against the rules of their kinds, without a cluster.
#include "manifests.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <regex>
#include <set>
#include <sstream>

#include "base/env.hpp"
#include "launch/options.hpp"
#include "support/scratch_directory.hpp"
#include "support/skip.hpp"
#include "support/variable.hpp"

using tutti::test::quoted;
using tutti::test::run_shell;

namespace {

std::string content_of(const std::filesystem::path& path) {
  std::string content = tutti::test::scratch_directory().read(path);
  REQUIRE_MESSAGE(!content.empty(), path.string());
  return content;
}

std::string replaced(std::string text, const std::string& before, const std::string& after) {
  const std::size_t at = text.find(before);
  REQUIRE_MESSAGE(at != std::string::npos, "there is no '" << before << "' to damage");
  return text.replace(at, before.size(), after);
}

struct damage {
  const char* file;
  const char* before;
  const char* after;
  const char* says;
};

const damage damages[] = {
    {"indexed-job", "kind: Job", "kind: Jop", "'Jop' is no kind"},
    {"indexed-job", "apiVersion: batch/v1", "apiVersion: batch/v1beta1",
     "Job.apiVersion: 'batch/v1beta1' is not"},
    {"indexed-job", "metadata:\n  name: tutti\nspec:\n  clusterIP", "metadata: {}\nspec:\n  clusterIP",
     "Service.metadata.name: is missing"},
    {"indexed-job", "  name: tutti\nspec:\n  clusterIP", "  name: other\nspec:\n  clusterIP",
     "no Service is named 'tutti'"},
    {"indexed-job", "job-name: tutti", "job-name: other", "the Service selects"},
    {"indexed-job", "clusterIP: None", "clusterIP: 10.0.0.1", "Service.spec.clusterIP"},
    {"indexed-job", "    port: 29500", "    port: 29501", "the Service has no port of --master"},
    {"indexed-job", "completions: 2", "completions: 3", "--nnodes 2, and there are 3 pods"},
    {"indexed-job", "parallelism: 2", "parallelism: 1", "1 of 2 pods run at once"},
    {"indexed-job", "parallelism: 2", "parallelism: \"2\"", "'2' is not an integer"},
    {"indexed-job", "completionMode: Indexed", "completionMode: NonIndexed", "Job.spec.completionMode"},
    {"indexed-job", "backoffLimit", "backofLimit", "Job.spec.backofLimit: is no field"},
    {"indexed-job", "  parallelism: 2\n", "  parallelism: 2\n  parallelism: 2\n",
     "'parallelism' stands twice"},
    {"indexed-job", "tutti-0.tutti:29500", "tutti-1.tutti:29500", "the pod of node 0 is tutti-0.tutti"},
    {"indexed-job", "\"--nnodes\", \"2\", ", "", "Job says nothing of --nnodes"},
    {"indexed-job", "\"tutti-run\", ", "\"torchrun\", ", "the command is 'torchrun'"},
    {"indexed-job", "\"--grace\", \"10\"", "\"--grace\", \"30\"",
     "terminationGracePeriodSeconds 30 is short"},
    {"indexed-job", "secretKeyRef:", "configMapKeyRef:", "secretKeyRef: is missing"},
    {"indexed-job",
     "valueFrom:\n            secretKeyRef:\n              name: tutti\n              key: secret",
     "value: abc", "env[0].valueFrom: is missing"},
    {"indexed-job", "- name: TUTTI_SECRET", "- name: OTHER_SECRET",
     "TUTTI_SECRET is not taken from a Secret"},
    {"indexed-job", "mountPath: /dev/shm", "mountPath: /dev/shn", "no volume at /dev/shm"},
    {"indexed-job", "      - name: shared-memory\n        emptyDir", "      - name: memory\n        emptyDir",
     "the volume 'memory' is not both there and mounted"},
    {"indexed-job", "metadata:\n", "metadata:\n  labels: {key: 0123456789abcdef0123456789abcdef}\n",
     "looks like the value of a secret"},
    {"indexed-job", "spec:\n", "spec: [\n", "expected"},
    {"jobset", "v1alpha2", "v1", "JobSet.apiVersion"},
    {"jobset", "subdomain: tutti", "subdomain: other", "the pod of node 0 is tutti-node-0-0.other"},
    {"jobset", "replicas: 1", "replicas: 2", "replicas: 2 is not 1"},
    {"jobset", "    maxRestarts: 3", "    maxRestart: 3",
     "JobSet.spec.failurePolicy.maxRestart: is no field"},
    {"leader-worker-set", "    size: 2", "    size: 0", "0 is not an integer from 1 on"},
    {"leader-worker-set", "\"-n\", \"4\", ", "", "LeaderWorkerSet says nothing of -n"},
    {"leader-worker-set", "\"-n\", \"4\", ", "\"-n\", \"4\", \"--nnodes\", \"2\", ",
     "LeaderWorkerSet sets LWS_GROUP_SIZE: leave --nnodes to it"},
    {"leader-worker-set", "workerTemplate", "workersTemplate", "workerTemplate: is missing"},
    {"train-job", "    name: tutti\n  trainer:", "    name: other\n  trainer:", "runtimeRef names 'other'"},
    {"train-job", "kind: ClusterTrainingRuntime\nmetadata", "kind: TrainingRuntime\nmetadata",
     "'TrainingRuntime' is no kind"},
    {"train-job", "ancestor-step: trainer", "ancestor-step: training", "'training' is not 'trainer'"},
    {"train-job", "numProcPerNode: 4", "numProcPerNode: auto", "'auto' is not an integer"},
    {"train-job", "- name: node\n                  image", "- name: trainer\n                  image",
     "in the container named node only"},
};

std::string lines_that_begin_with(const std::string& start, const std::string& text) {
  std::string found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(start)) found += line + "\n";
  return found;
}

// The variables that a shell script or Dockerfile sets or reads.
std::set<std::string> variables_in(const std::string& text) {
  static const std::regex pattern(R"((?:^|[\s])([A-Z][A-Z0-9_]+)=|\$\{?([A-Z][A-Z0-9_]+))");
  std::set<std::string> names;
  for (std::sregex_iterator i(text.begin(), text.end(), pattern), end; i != end; ++i)
    names.insert((*i)[1].matched ? (*i)[1] : (*i)[2]);
  return names;
}

// The variables of src/launch/options.hpp and of src/base/env.cpp.
std::set<std::string> known_variables() {
  std::set<std::string> names;
  for (const auto& row : tutti::launch::node_variables) names.insert(row.name);
  for (const auto& variable : tutti::base::variables()) {
    std::istringstream list{std::string(variable.name)};
    for (std::string name; std::getline(list >> std::ws, name, ',');) names.insert(name);
  }
  return names;
}

}  // namespace

TEST_SUITE("deploy/manifests") {
  TEST_CASE("each manifest follows the rules of its kind") {
    if (!deploy::has_yaml()) TUTTI_SKIP(deploy::no_yaml);
    CHECK(deploy::manifests().size() == 4);
    for (const auto& manifest : deploy::manifests()) {
      const auto result = deploy::check_manifests(quoted(manifest.string()));
      CHECK_MESSAGE(result.exit_code == 0, result.output);
    }
  }

  TEST_CASE("a damaged manifest is refused, and the error has the place") {
    if (!deploy::has_yaml()) TUTTI_SKIP(deploy::no_yaml);
    const tutti::test::scratch_directory scratch;
    std::vector<std::string> paths;
    std::string arguments;
    for (const damage& each : damages) {
      const std::string text = content_of(deploy::file("kubernetes/" + std::string(each.file) + ".yaml"));
      paths.push_back(
          scratch.write(std::to_string(paths.size()) + ".yaml", replaced(text, each.before, each.after))
              .string());
      arguments += " " + tutti::test::quoted(paths.back());
    }
    const auto result = deploy::check_manifests(arguments);  // Python takes longer to start than to check
    CHECK_MESSAGE(result.exit_code == 1, result.output);
    CHECK_FALSE(result.says("Traceback"));
    for (std::size_t i = 0; i < paths.size(); ++i) {
      const damage& each = damages[i];
      CAPTURE(each.after);
      const std::string own = lines_that_begin_with(paths[i] + ": ", result.output);
      CHECK_MESSAGE(own.find(each.says) != own.npos, result.output);
    }
  }

  TEST_CASE("tutti-run takes the right node from the variables and options of each manifest's pods") {
    if (!deploy::has_yaml()) TUTTI_SKIP(deploy::no_yaml);
    for (const auto& manifest : deploy::manifests()) {
      CAPTURE(manifest.string());
      const auto pods = deploy::pods_of(manifest);
      REQUIRE(pods.size() == 2);
      for (int index = 0; index < 2; ++index) {
        const deploy::pod& pod = pods[static_cast<std::size_t>(index)];
        std::vector<std::unique_ptr<tutti::test::variable>> set;
        for (const std::string& variable : pod.variables) {
          const std::size_t equals = variable.find('=');
          set.push_back(std::make_unique<tutti::test::variable>(variable.substr(0, equals),
                                                                variable.substr(equals + 1)));
        }
        std::vector<const char*> words = {"tutti-run"};
        for (const std::string& word : pod.options) words.push_back(word.c_str());
        for (const std::string& word : pod.program) words.push_back(word.c_str());
        const auto options = tutti::launch::parse_options(static_cast<int>(words.size()), words.data());
        CHECK(options.ranks == 4);
        CHECK(options.nodes == 2);
        CHECK(options.node_rank == index);
        REQUIRE(options.master);
        CHECK(options.master->host == pod.first_host);
        CHECK(options.program == pod.program);
      }
    }
  }

  TEST_CASE("tutti knows each variable that a manifest sets or needs") {
    if (!deploy::has_yaml()) TUTTI_SKIP(deploy::no_yaml);
    const std::set<std::string> known = known_variables();
    for (const auto& manifest : deploy::manifests()) {
      const auto result = deploy::check_manifests("--variables " + quoted(manifest.string()));
      REQUIRE_MESSAGE(result.exit_code == 0, result.output);
      CHECK(result.says("TUTTI_SECRET\n"));
      std::istringstream names(result.output);
      for (std::string name; std::getline(names, name);) CHECK_MESSAGE(known.contains(name), name);
    }
  }

  TEST_CASE("tutti knows each variable of the sbatch script and the Dockerfile") {
    const std::set<std::string> known = known_variables();
    CHECK(known.contains("TUTTI_SECRET"));
    CHECK(known.contains("SLURM_NODEID"));
    CHECK_FALSE(known.contains("SLURM_CPUS_PER_TASK"));
    const auto of_script = variables_in(content_of(deploy::file("slurm/train.sbatch")));
    CHECK(of_script.contains("TUTTI_SECRET"));
    for (const std::string& name : of_script) CHECK_MESSAGE(known.contains(name), name);
    for (const std::string& name : variables_in(content_of(deploy::file("Dockerfile"))))
      CHECK_MESSAGE(known.contains(name), name);
  }

  TEST_CASE("variables of shell scripts are found") {
    CHECK(variables_in("A_B=1 x\n C1=${D_E:-2}\necho \"$FG\" --lower=\"$lower\"") ==
          std::set<std::string>{"A_B", "C1", "D_E", "FG"});
  }

  TEST_CASE("the sbatch script is valid bash, and requires a program") {
    const std::string script = quoted(deploy::file("slurm/train.sbatch").string());
    const auto parsed = run_shell("bash -n " + script);
    CHECK_MESSAGE(parsed.exit_code == 0, parsed.output);
    const tutti::test::scratch_directory scratch;
    const auto damaged =
        scratch.write("damaged", replaced(content_of(deploy::file("slurm/train.sbatch")), "\nfi\n", "\n"));
    CHECK(run_shell("bash -n " + quoted(damaged.string())).exit_code != 0);
    const auto without = run_shell("bash " + script);
    CHECK(without.exit_code == 2);
    CHECK(without.says("no program"));
  }

  TEST_CASE("the manifests run a program that the Dockerfile installs") {
    if (!deploy::has_yaml()) TUTTI_SKIP(deploy::no_yaml);
    const std::string dockerfile = content_of(deploy::file("Dockerfile"));
    for (const auto& manifest : deploy::manifests())
      for (const deploy::pod& pod : deploy::pods_of(manifest)) {
        REQUIRE(!pod.program.empty());
        CHECK_MESSAGE(dockerfile.find(" " + pod.program[0] + "\n") != std::string::npos, pod.program[0]);
      }
  }

  TEST_CASE("the Dockerfile copies existing files, and builds with the packages that ./run installs") {
    const std::string dockerfile = content_of(deploy::file("Dockerfile"));
    static const std::regex copy("\nCOPY ([^-\n][^\n]*) [^ \n]+"), word("[^ ]+");
    int copied = 0;
    const std::sregex_iterator end;
    for (std::sregex_iterator i(dockerfile.begin(), dockerfile.end(), copy); i != end; ++i) {
      const std::string sources = (*i)[1];
      for (std::sregex_iterator j(sources.begin(), sources.end(), word); j != end; ++j, ++copied)
        CHECK_MESSAGE(std::filesystem::exists(deploy::file("../" + j->str())), j->str());
    }
    CHECK(copied > 3);
    const std::string run = content_of(deploy::file("../run"));
    std::smatch packages;
    REQUIRE(std::regex_search(run, packages, std::regex("\ninstall_packages=\\(([^)]*)\\)")));
    const std::string listed = packages[1];
    static const std::regex package("'?([^ \n'|]+)[^ \n]*");  // of 'a|b' Debian 12 has the first
    for (std::sregex_iterator i(listed.begin(), listed.end(), package); i != end; ++i)
      CHECK_MESSAGE(dockerfile.find(" " + i->str(1) + " ") != std::string::npos, i->str(1));
  }
}

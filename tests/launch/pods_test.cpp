// SPDX-License-Identifier: Apache-2.0
// Pods, rehearsed: a network and names of its own for each tutti-run, and the variables that a starter sets.
#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "launched.hpp"
#include "support/skip.hpp"
#include "two_networks.hpp"

using namespace tutti::launch;
using testing::ending;
using testing::launched;
using words = std::vector<std::string>;

namespace {

// A name service that both pods ask: a file in the place of /etc/hosts.
class pod_names {
 public:
  pod_names() : path_(directory_.path() + "/hosts") { write("127.0.0.1 localhost\n"); }
  void write(const std::string& text) const { std::ofstream(path_) << text; }
  static bool available() {
    return std::system("unshare -m mount --bind /etc/hosts /etc/hosts >/dev/null 2>&1") == 0;
  }
  // The arguments of `env` for a tutti-run that sees these names.
  words launch(const words& arguments) const {
    words all = {"unshare", "-m", "sh", "-c", "mount --bind \"$0\" /etc/hosts && exec \"$@\"", path_};
    all.push_back(testing::launcher_path());
    all.insert(all.end(), arguments.begin(), arguments.end());
    return all;
  }

 private:
  testing::temporary_directory directory_;
  std::string path_;
};

words kubeflow_variables(int index) {
  return {"TUTTI_SECRET=s",
          "PET_NNODES=2",
          "PET_NPROC_PER_NODE=2",
          "PET_NODE_RANK=" + std::to_string(index),
          "JOB_COMPLETION_INDEX=" + std::to_string(index),
          "PET_MASTER_ADDR=job-node-0-0.job",
          "PET_MASTER_PORT=29400"};
}

}  // namespace

TEST_SUITE("launch/pods") {
  TEST_CASE("pods take their places from variables, and wait for a name that resolves late") {
    std::string why_not;
    const auto networks = testing::two_networks::make(why_not);
    if (!networks) TUTTI_SKIP(why_not);
    if (!pod_names::available()) TUTTI_SKIP("this user may not mount a file over /etc/hosts");
    const pod_names names;
    const words arguments = names.launch({"--join-timeout", "20", "--tag-output", "never", TUTTI_SUMS_PATH});
    launched first(arguments, kubeflow_variables(0), networks->network(0), "/usr/bin/env");
    launched second(arguments, kubeflow_variables(1), networks->network(1), "/usr/bin/env");
    first.wait_for_error("waiting for the host name 'job-node-0-0.job'");
    second.wait_for_error("waiting for the host name 'job-node-0-0.job'");
    names.write("127.0.0.1 localhost\n" + networks->address(0) + " job-node-0-0.job\n");
    const ending on_first = first.finish(), on_second = second.finish();
    CHECK_MESSAGE(on_first.exit_code == 0, on_first.error);
    CHECK_MESSAGE(on_second.exit_code == 0, on_second.error);
    for (int rank = 0; rank < 4; ++rank)
      CHECK(testing::count_of(rank < 2 ? on_first.output : on_second.output,
                              "rank " + std::to_string(rank) + " of 4: right\n") == 1);
  }
}

// SPDX-License-Identifier: Apache-2.0
// A rehearsal of pods: each tutti-run has its own network and names, and the variables that a starter sets.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "launched.hpp"
#include "pod_names.hpp"
#include "support/skip.hpp"
#include "two_networks.hpp"

using namespace tutti::launch;
using testing::ending;
using testing::launched;
using words = std::vector<std::string>;

namespace {

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
    if (!testing::pod_names::available()) TUTTI_SKIP("this user may not mount a file over /etc/hosts");
    const testing::pod_names names;
    const words arguments = names.seen_by(
        {testing::launcher_path(), "--join-timeout", "20", "--tag-output", "never", TUTTI_SUMS_PATH});
    launched first(arguments, kubeflow_variables(0), networks->network(0), "/usr/bin/env");
    launched second(arguments, kubeflow_variables(1), networks->network(1), "/usr/bin/env");
    first.wait_for_error("waiting for the host name 'job-node-0-0.job'");
    second.wait_for_error("waiting for the host name 'job-node-0-0.job'");
    names.write(networks->address(0) + " job-node-0-0.job\n");
    const ending on_first = first.finish(), on_second = second.finish();
    CHECK_MESSAGE(on_first.exit_code == 0, on_first.error);
    CHECK_MESSAGE(on_second.exit_code == 0, on_second.error);
    for (int rank = 0; rank < 4; ++rank)
      CHECK(testing::count_of(rank < 2 ? on_first.output : on_second.output,
                              "rank " + std::to_string(rank) + " of 4: right\n") == 1);
  }
}

// SPDX-License-Identifier: Apache-2.0
// tutti-run's ranks meet in etcd, once and once more.
#include "support/etcd.hpp"
#include "launch/launched.hpp"
#include "support/skip.hpp"

#include <doctest/doctest.h>

#include <string>

using tutti::launch::testing::ending;
using tutti::launch::testing::launched;

TEST_CASE("the ranks of tutti-run meet in etcd where TUTTI_STORE says so") {
  TUTTI_NEEDS_ETCD();
  tutti::test::etcd_cluster cluster(3);
  const std::string store = "TUTTI_STORE=" + cluster.url("training-7");
  for (int run = 0; run < 2; ++run) {
    const ending e = launched({"-n", "3", TUTTI_SUMS_PATH}, {store, "TUTTI_TIMEOUT=50"}).finish();
    CHECK_MESSAGE(e.exit_code == 0, e.error);
    cluster.kill(0);  // those that are left are enough
  }
  cluster.kill(1);
  const ending e = launched({"-n", "3", TUTTI_SUMS_PATH}, {store, "TUTTI_TIMEOUT=1"}).finish();
  CHECK(e.exit_code != 0);
  CHECK_MESSAGE(e.error.find("no etcd has answered within ") != std::string::npos, e.error);
}

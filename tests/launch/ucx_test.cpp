// SPDX-License-Identifier: Apache-2.0
// When ranks use UCX, what they use instead, and what they say: real processes over UCX's own TCP.
#include <doctest/doctest.h>

#include <cstdlib>
#include <memory>

#include "launched.hpp"
#include "support/contains.hpp"
#include "support/instrumented.hpp"
#include "support/scratch_directory.hpp"
#include "support/skip.hpp"
#include "two_networks.hpp"

using namespace tutti::launch;
using testing::ending;
using testing::launched;
using words = std::vector<std::string>;

namespace {

using tutti::test::contains;

bool there_is_ucx() {
  return testing::launch({"--check"}, {"TUTTI_TRANSPORTS=ucx", "UCX_TLS=tcp,self"}).exit_code == 0;
}
// UCX patches the calls that a sanitizer watches, too.
#define NEEDS_UCX()                                                          \
  if (tutti::test::instrumented && std::getenv("UCX_MEM_EVENTS") == nullptr) \
    TUTTI_SKIP("under a sanitizer UCX needs UCX_MEM_EVENTS=n");              \
  if (!there_is_ucx()) TUTTI_SKIP("there is no UCX here (apt-get install libucx0)")

// `before`: what each rank's shell does first.
ending sums(int ranks, const std::string& before, words variables) {
  variables.insert(variables.end(), {"TUTTI_TIMEOUT=20", "TUTTI_LOG=info"});
  return testing::launch({"-n", std::to_string(ranks), "--tag-output", "never", "sh", "-c",
                          before + " exec \"$0\"", TUTTI_SUMS_PATH},
                         variables);
}

int right(const ending& end) { return testing::count_of(end.output, ": right\n"); }

// A directory with a libucp.so.0 that is none.
struct broken_ucx {
  broken_ucx() { folder.write("libucp.so.0", "no library\n"); }
  std::string variable() const { return "LD_LIBRARY_PATH=" + folder.path().string(); }
  tutti::test::scratch_directory folder;
};

}  // namespace

TEST_SUITE("launch/ucx") {
  TEST_CASE("ranks that name UCX use it") {
    NEEDS_UCX();
    const ending end = sums(4, "", {"TUTTI_TRANSPORTS=ucx", "UCX_TLS=tcp,self"});
    CHECK(end.exit_code == 0);
    CHECK(right(end) == 4);
    CHECK(testing::count_of(end.error, "is reached by UCX 1.") >= 4);
  }

  TEST_CASE("ranks on two networks use UCX between them, and shared memory on each") {
    NEEDS_UCX();
    std::string why_not;
    const auto networks = testing::two_networks::make(why_not);
    if (!networks) TUTTI_SKIP(why_not);
    const std::string master = networks->address(0) + ":29500";
    // UCX finds the interfaces in /sys, which is of the network where it was mounted, once the kernel has seen that
    // the cable is plugged in at both ends.
    const std::string set_up =
        "mount -t sysfs sysfs /sys && for i in $(seq 200); do "
        "[ $(cat /sys/class/net/cable/operstate) = up ] && break; sleep 0.05; done; exec \"$0\"";
    const words program = {"unshare", "-m", "sh", "-c", set_up, TUTTI_SUMS_PATH};
    const words mounts = {"-n", "1", "unshare", "-m", "mount", "-t", "sysfs", "sysfs", "/sys"};
    if (launched(mounts, {}, networks->network(0)).finish().exit_code != 0)
      TUTTI_SKIP("/sys of another network can be mounted by root only");
    const auto start = [&](int host) {
      words arguments = {"--nnodes",
                         "2",
                         "--node-rank",
                         std::to_string(host),
                         "--master",
                         master,
                         "--join-timeout",
                         "20",
                         "--tag-output",
                         "never",
                         "-n",
                         "2"};
      arguments.insert(arguments.end(), program.begin(), program.end());
      return std::make_unique<launched>(arguments,
                                        words{"TUTTI_SECRET=s", "TUTTI_TRANSPORTS=shm,ucx",
                                              "UCX_TLS=tcp,self", "UCX_NET_DEVICES=cable", "TUTTI_LOG=info"},
                                        networks->network(host));
    };
    const auto first = start(0), second = start(1);
    for (const ending& end : {first->finish(), second->finish()}) {
      CAPTURE(end.error);
      CHECK(end.exit_code == 0);
      CHECK(right(end) == 2);
      CHECK(contains(end.error, "is reached by UCX 1."));
      // Only ranks of the other host.
      const std::string other = contains(end.output, "rank 0 of") ? "rank 1 (" : "rank 3 (";
      CHECK_FALSE(contains(end.error, other + "host"));
    }
  }

  TEST_CASE("a rank that cannot use UCX is reached over TCP, and says why") {
    NEEDS_UCX();
    const broken_ucx none;
    for (const std::string& without : {none.variable(), std::string("UCX_TLS=ib")}) {
      CAPTURE(without);
      const ending end = sums(3, "[ $RANK = 1 ] && export " + without + ";",
                              {"TUTTI_TRANSPORTS=ucx,tcp", "UCX_TLS=tcp,self"});
      CHECK(end.exit_code == 0);
      CHECK(right(end) == 3);
      CHECK(contains(end.error, "tutti[1] warning: going on without ucx: "));
      CHECK(contains(end.error, "is reached by UCX 1."));
      CHECK_FALSE(contains(end.error, "rank 1 (host"));
    }
  }

  TEST_CASE("without a library, or with one too old, a rank that needs UCX says what to do") {
    const broken_ucx none;
    const ending broken = sums(2, "", {"TUTTI_TRANSPORTS=ucx", none.variable()});
    CHECK(broken.exit_code != 0);
    CHECK(contains(broken.error, "there is no UCX here"));
    CHECK(contains(broken.error, "apt-get install libucx0"));
    CHECK(contains(broken.error, "leave ucx out of TUTTI_TRANSPORTS"));
    const ending old = sums(2, "", {"TUTTI_TRANSPORTS=ucx", "LD_LIBRARY_PATH=" TUTTI_OLD_UCX_FOLDER});
    CHECK(old.exit_code != 0);
    CHECK(contains(old.error, "has version 1.12.1, and 1.13 or a later 1.x is needed"));
  }

  TEST_CASE("without a device that UCX may use, a rank that needs it says so") {
    NEEDS_UCX();
    const ending end = sums(2, "", {"TUTTI_TRANSPORTS=ucx", "UCX_TLS=ib"});
    CHECK(end.exit_code != 0);
    CHECK(contains(end.error, "finds no device"));
    CHECK(contains(end.error, "UCX_NET_DEVICES"));
  }

  TEST_CASE("ranks whose settings of UCX have no network in common name each other") {
    NEEDS_UCX();
    const ending end = sums(2, "[ $RANK = 1 ] && export UCX_TLS=sysv,self || export UCX_TLS=tcp,self;",
                            {"TUTTI_TRANSPORTS=ucx"});
    CHECK(end.exit_code != 0);
    CHECK(contains(end.error, "for UCX: "));
    CHECK(contains(end.error, "give all ranks the same UCX_TLS and UCX_NET_DEVICES"));
    CHECK(contains(end.error, "TUTTI_TRANSPORTS=shm,tcp"));
  }

  TEST_CASE("UCX is refused together with TLS") {
    const ending end = sums(2, "", {"TUTTI_TRANSPORTS=ucx", "TUTTI_TLS=1"});
    CHECK(end.exit_code != 0);
    if (contains(end.error, "libtutti_tls.so")) TUTTI_SKIP("there is no TLS here");
    CHECK(contains(end.error, "UCX encrypts nothing"));
  }

  TEST_CASE("a rank that does not choose UCX never opens it") {
    NEEDS_UCX();
    const words watched = {"LD_DEBUG=files", "UCX_TLS=tcp,self"};
    const auto opens = [&](const words& more) {
      words variables = watched;
      variables.insert(variables.end(), more.begin(), more.end());
      const ending end = sums(2, "", variables);
      CHECK(right(end) == 2);
      return contains(end.error, "libucp.so");
    };
    CHECK_FALSE(opens({}));
    CHECK_FALSE(opens({"TUTTI_TRANSPORTS=shm,tcp"}));
    CHECK(opens({"TUTTI_TRANSPORTS=ucx"}));
  }

  TEST_CASE("--check says whether UCX is used, and why not") {
    const auto check = [](words variables) { return testing::launch({"--check"}, std::move(variables)); };
    CHECK(contains(check({"TUTTI_TRANSPORTS=shm,tcp"}).output,
                   "UCX: not used, since TUTTI_TRANSPORTS leaves it out\n"));
    const broken_ucx none;
    const ending broken = check({"TUTTI_TRANSPORTS=shm,ucx", none.variable()});
    CHECK(broken.exit_code == 1);
    CHECK(contains(broken.output, "UCX: not used, since there is no UCX here"));
    CHECK(contains(broken.output, "problem: make UCX work on this node, or leave ucx out"));
    NEEDS_UCX();
    CHECK(contains(check({"TUTTI_TRANSPORTS=shm,ucx", "UCX_TLS=tcp,self"}).output, "UCX: version 1."));
  }
}

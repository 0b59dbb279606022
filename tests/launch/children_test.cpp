// SPDX-License-Identifier: Apache-2.0
#include "launch/children.hpp"

#include <doctest/doctest.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <csignal>

#include "launched.hpp"

using namespace tutti::launch;

namespace {

// The constructor of `children` makes the process adopt orphans; other tests of this process do not.
struct no_longer_subreaper {
  ~no_longer_subreaper() { ::prctl(PR_SET_CHILD_SUBREAPER, 0); }
};

process_spec sleeper() {
  process_spec spec;
  spec.path = find_program("sleep").path;
  spec.arguments = {"sleep", "1000"};
  return spec;
}

}  // namespace

TEST_SUITE("launch/children") {
  TEST_CASE("the end of a rank is reported once, then a change") {
    const no_longer_subreaper restore;
    boost::asio::io_context loop;
    int changed = 0;
    std::vector<outcome> ended;
    children all(loop, {[&](outcome end) { ended.push_back(std::move(end)); }, [&] { ++changed; }});
    const pid_t pid = all.start(3, sleeper());
    REQUIRE(::kill(pid, SIGTERM) == 0);
    loop.run_for(std::chrono::seconds(60));
    all.reap();
    REQUIRE(ended.size() == 1);
    CHECK(ended[0].rank == 3);
    CHECK(ended[0].signal == SIGTERM);
    CHECK(changed > 0);
    CHECK(all.running().empty());
  }

  TEST_CASE("no event is reported for a forgotten child") {
    const no_longer_subreaper restore;
    boost::asio::io_context loop;
    int changed = 0, ended = 0;
    children all(loop, {[&](const outcome&) { ++ended; }, [&] { ++changed; }});
    const pid_t pid = all.start(0, sleeper());
    all.clear();  // it lives on, like one that hangs in the kernel
    loop.poll();
    CHECK(ended == 0);
    CHECK(changed == 0);
    REQUIRE(::kill(pid, SIGKILL) == 0);
    testing::watched(pid).dies();
    all.reap();
    CHECK(ended == 0);
  }
}

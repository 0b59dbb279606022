// SPDX-License-Identifier: Apache-2.0
// Memory that a launcher makes, a rank opens, and that outlives the rank.
#include "flight/recordings.hpp"

#include "flight/snapshot.hpp"
#include "support/skip.hpp"

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <thread>

using namespace tutti::flight;

TEST_CASE("recordings: the records of a killed process can be read") {
  const recordings all(3, shape{});
  CHECK(all.ranks() == 3);
  CHECK(read(all.of(1), 5).at == phase::none);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const std::string variable = variable_for(all, 1);
    ::setenv("TUTTI_FLIGHT", variable.substr(variable.find('=') + 1).c_str(), 1);
    const std::shared_ptr<recorder_slot> mine = recorder_slot::take();
    if (mine->node() == nullptr || mine->node()->front().launcher != static_cast<std::uint64_t>(::getppid()))
      ::_exit(1);
    mine->recorder().joining(1, 3);
    operation_facts facts;
    facts.tag = 77;
    facts.file = __FILE__;
    mine->recorder().begin(facts);
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  const rank_snapshot r = read(all.of(1), 5);
  CHECK(r.at == phase::joining);
  CHECK(r.pid == child);
  CHECK(r.thread == tutti::base::process_state::gone);
  REQUIRE(r.pending.size() == 1);
  CHECK(r.pending[0].tag == 77);
  CHECK(r.pending[0].where().starts_with("recordings_test.cpp:"));
  CHECK(read(all.of(0), 5).at == phase::none);
}

TEST_CASE("recordings: a child that is forked while another thread reads them has records of its own") {
  TUTTI_NEEDS_A_KERNEL("fork a process with threads");
  const std::shared_ptr<recorder_slot> mine = recorder_slot::take();
  std::atomic<bool> reads{false}, forked{false};
  std::thread reader([&] {
    for_each_recording([&](recording_view) {
      reads = true;
      while (!forked) std::this_thread::yield();
    });
  });
  while (!reads) std::this_thread::yield();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    ::_exit(recorder_slot::take() != nullptr ? 0 : 1);
  }
  forked = true;
  reader.join();
  REQUIRE(child >= 0);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("recordings: a process of another pid namespace is not said to have ended") {
  const recordings all(1, shape{});
  recorder one(all.of(0));
  one.joining(0, 1);
  head& h = all.of(0).head();
  h.owner = both(1 << 30, 1 << 30);  // none here has these numbers
  CHECK(read(all.of(0), 5).thread == tutti::base::process_state::gone);
  h.pid_space = 1;
  CHECK(read(all.of(0), 5).thread == tutti::base::process_state::unknown);
}

TEST_CASE("recordings: which ranks of other nodes are stopped") {
  recordings all(1, shape{});
  CHECK_FALSE(all.is_stopped(0, 0));
  all.set_stopped(3, 100, true);
  all.set_stopped(3, 100, true);
  all.set_stopped(4, 200, true);
  CHECK(all.is_stopped(3, 100));
  CHECK_FALSE(all.is_stopped(3, 101));
  CHECK_FALSE(all.is_stopped(2, 100));
  all.set_stopped(3, 100, false);
  CHECK_FALSE(all.is_stopped(3, 100));
  CHECK(all.is_stopped(4, 200));
  // More than there are slots.
  for (int r = 10; r < 1000; ++r) all.set_stopped(r, r, true);
  CHECK(all.is_stopped(10, 10));
  CHECK(all.is_stopped(4, 200));
  all.clear();
  CHECK_FALSE(all.is_stopped(4, 200));
}

TEST_CASE("recordings: a second rank of a process has memory of its own") {
  const recordings all(1, shape{});
  const std::string variable = variable_for(all, 0);
  ::setenv("TUTTI_FLIGHT", variable.substr(variable.find('=') + 1).c_str(), 1);
  const std::shared_ptr<recorder_slot> first = recorder_slot::take();
  const std::shared_ptr<recorder_slot> second = recorder_slot::take();
  ::unsetenv("TUTTI_FLIGHT");
  CHECK(first->node() != nullptr);
  CHECK(second->node() == nullptr);
  first->recorder().joining(0, 2);
  second->recorder().joining(1, 2);
  std::vector<int> seen;
  for_each_recording([&seen](recording_view memory) { seen.push_back(read(memory, 0).rank); });
  CHECK(std::count(seen.begin(), seen.end(), 0) == 1);
  CHECK(std::count(seen.begin(), seen.end(), 1) == 1);
}

TEST_CASE("recordings: other memory is refused") {
  CHECK_THROWS_AS(recordings(-1), std::runtime_error);
  const tutti::base::unique_fd small(::memfd_create("small", MFD_CLOEXEC));
  CHECK_THROWS_AS(recordings(small.get()), std::runtime_error);
  REQUIRE(::ftruncate(small.get(), 1 << 20) == 0);
  CHECK_THROWS_AS(recordings(small.get()), std::runtime_error);
  for (const char* text : {"", "x", "5", "5:", "99999:0", "0:0", "5:x"}) {
    ::setenv("TUTTI_FLIGHT", text, 1);
    const std::shared_ptr<recorder_slot> one = recorder_slot::take();
    CHECK(one->node() == nullptr);
  }
  ::unsetenv("TUTTI_FLIGHT");
}

TEST_CASE("recordings: of many with the same report one prints it, and the others see when it is done") {
  const recordings all(1, shape{});
  constexpr std::int64_t quiet = 1'000'000'000'000;
  CHECK_FALSE(all.front().reports.being_read());
  CHECK(all.front().reports.take(quiet));
  CHECK(all.front().reports.being_read());
  CHECK_FALSE(all.front().reports.take(quiet));
  CHECK(all.front().reports.being_read());
  all.front().reports.has_read();
  CHECK_FALSE(all.front().reports.being_read());
  CHECK(all.front().reports.take(0));
  CHECK(all.front().reports.being_read());
}

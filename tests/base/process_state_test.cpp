// SPDX-License-Identifier: Apache-2.0
#include "base/process_state.hpp"

#include "base/files.hpp"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

using tutti::base::process_state;
using tutti::base::state_of_process;

namespace {

// A process that enters a given state soon after its start.
class victim {
 public:
  template <class F>
  explicit victim(F body) : pid_(::fork()) {
    if (pid_ != 0) return;
    body();
    ::_exit(0);
  }
  victim(const victim&) = delete;
  ~victim() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }
  // When waitid() reports a change of state, the change has happened.
  void wait_for(int what) const {
    siginfo_t what_happened{};
    REQUIRE(::waitid(P_PID, static_cast<id_t>(pid_), &what_happened, what | WNOWAIT) == 0);
  }
  bool comes_to(process_state state) const {
    for (int i = 0; i < 30'000; ++i) {
      if (state_of_process(pid_) == state) return true;
      ::usleep(1000);
    }
    return false;
  }

 private:
  const pid_t pid_;
};

}  // namespace

TEST_SUITE("base/process_state") {
  TEST_CASE("the states of a process that computes, sleeps, is stopped and continues") {
    const victim computing([] {
      std::atomic<unsigned> rounds{0};
      for (;;) ++rounds;
    });
    CHECK(computing.comes_to(process_state::runs));
    ::kill(computing.pid(), SIGSTOP);
    computing.wait_for(WSTOPPED);
    CHECK(state_of_process(computing.pid()) == process_state::stopped);
    ::kill(computing.pid(), SIGCONT);
    computing.wait_for(WCONTINUED);
    CHECK(computing.comes_to(process_state::runs));
    const victim sleeping([] { ::pause(); });
    CHECK(sleeping.comes_to(process_state::sleeps));
  }

  TEST_CASE("a process whose first thread has ended lives as long as another one does") {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const victim process([&ends] {
      std::thread([&ends] {
        char end = 0;
        ::close(ends[1]);
        static_cast<void>(!::read(ends[0], &end, 1));
        ::_exit(0);
      }).detach();
      ::syscall(SYS_exit, 0);
    });
    const auto letter = [&process] {
      const std::string text = tutti::base::contents_of("/proc/" + std::to_string(process.pid()) + "/stat");
      return text.substr(text.rfind(") ") + 2, 1);
    };
    for (int i = 0; i < 30'000 && letter() != "Z"; ++i) ::usleep(1000);
    REQUIRE(letter() == "Z");
    CHECK(state_of_process(process.pid()) == process_state::sleeps);
    ::close(ends[1]);
    CHECK(process.comes_to(process_state::gone));
    ::close(ends[0]);
  }

  TEST_CASE("the states of a process that has ended and of one that never existed") {
    const victim ended([] {});
    ended.wait_for(WEXITED);
    CHECK(state_of_process(ended.pid()) == process_state::gone);
    CHECK(state_of_process(0) == process_state::unknown);
    CHECK(state_of_process(-1) == process_state::unknown);
    CHECK(state_of_process(std::int64_t{1} << 40) == process_state::unknown);
    CHECK(tutti::base::contents_of("/")
              .empty());  // opens, and cannot be read, as the file of a process that ends meanwhile
  }
}

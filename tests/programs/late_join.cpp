// SPDX-License-Identifier: Apache-2.0
// Ranks that join after the end of rank 0, which serves the store, and jobs that join while a rank dies, for
// comm/late_join_test: `late_join NAME DIRECTORY`. Ranks synchronise by files in the directory, without tutti.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <tutti/tutti.hpp>
#include <utility>
#include <vector>

namespace {

using clock_type = std::chrono::steady_clock;
using namespace std::chrono_literals;

std::string directory;

bool is_there(const std::string& name) { return std::filesystem::exists(directory + "/" + name); }
void make(const std::string& name) { std::ofstream(directory + "/" + name) << '\n'; }

// Returns false at the limit.
bool wait_for(const std::string& name) {
  const auto most = clock_type::now() + 30s;
  while (!is_there(name) && clock_type::now() < most) std::this_thread::sleep_for(1ms);
  return is_there(name);
}

[[noreturn]] void die() {
  ::kill(::getpid(), SIGKILL);
  for (;;) ::pause();
}

void say(int rank, const char* what, clock_type::time_point since, const char* text) {
  const double after = std::chrono::duration<double>(clock_type::now() - since).count();
  std::printf("rank %d %s after %.3f s: %s\n", rank, what, after, text);
  std::fflush(stdout);
}

tutti::task<> join(tutti::runtime* rt) { const tutti::communicator world = co_await tutti::init(*rt); }

// Rank 0 dies, before or after it has begun to serve. Rank 1 joins meanwhile, rank 2 when both have ended.
int dies_early(bool serves) {
  const int rank = std::atoi(std::getenv("RANK"));
  if (rank == 0) {
    if (!serves) die();
    std::thread([] {
      if (wait_for("joining")) die();
    }).detach();
  }
  if (rank == 1) make("joining");
  if (rank == 2 && !wait_for("failed")) return 3;
  const auto since = clock_type::now();
  try {
    tutti::runtime runtime;
    runtime.run(join(&runtime));
  } catch (const tutti::error& e) {
    say(rank, e.code() == tutti::errc::join_failed ? "join_failed" : "another error", since, e.what());
  }
  if (rank == 1) make("failed");
  return 0;
}

// Rank 0 finishes and leaves. Rank 1 wants to rejoin. Ranks 2 and 3 work in a group of their own until rank 1
// has got its error.
tutti::task<> finishes(tutti::communicator world) {
  const std::vector<int> others = {2, 3};
  tutti::communicator pair = co_await world.group(others);
  co_await world.barrier();
  const int rank = world.rank();
  if (rank == 0) co_return;
  if (rank == 1) {
    int never = 0;
    (void)co_await tutti::as_result(world.recv(never, 0, 7));
    // Rejoining ends this world, even for ranks still in its barrier.
    if (!wait_for("past 2") || !wait_for("past 3")) co_return;
    const auto since = clock_type::now();
    const auto again = co_await tutti::as_result(world.rejoin());
    say(rank, again.error == tutti::errc::join_failed ? "join_failed" : "another outcome", since,
        again.message.c_str());
    make("told");
    co_return;
  }
  make("past " + std::to_string(rank));
  const auto most = clock_type::now() + 60s;
  bool right = true;
  for (int over = 0; over == 0;) {
    over = pair.rank() == 0 && (is_there("told") || clock_type::now() > most) ? 1 : 0;
    std::vector<int> ones(100, 1);
    co_await pair.all_reduce(ones, tutti::sum);
    right = right && ones.front() == 2 && ones.back() == 2;
    co_await pair.all_reduce(over, tutti::max);
  }
  std::printf("rank %d sums: %s\n", rank, right && is_there("told") ? "right" : "wrong");
  std::fflush(stdout);
}

// Its user dies when it writes.
class deadly_store final : public tutti::store {
 public:
  explicit deadly_store(tutti::store& other) : other_(other) {}
  std::string name() const override { return other_.name(); }

 private:
  tutti::task<tutti::store_answer> carry_out(tutti::store_request what) override {
    if (!what.waits()) die();
    return other_.perform(std::move(what));
  }
  tutti::store& other_;
};

tutti::task<> join_others(tutti::communicator job, tutti::store* at) {
  const auto since = clock_type::now();
  const int rank = std::atoi(std::getenv("RANK"));
  const auto both = co_await tutti::as_result(tutti::join(job, "jobs", *at));
  say(rank, both ? "has joined" : "was told", since, both.message.c_str());
}

// Ranks 0 to 2 are a job, 3 and 4 another. Rank 2 dies as it begins to join, or when it has met the others.
tutti::task<> jobs_join(tutti::communicator world, bool early) {
  const int rank = world.rank();
  const tutti::communicator job = co_await world.split(rank < 3 ? 0 : 1, rank);
  const auto file = co_await tutti::file_store::open(world.get_executor(), directory + "/store", 60s);
  deadly_store deadly(*file);
  if (rank == 2 && early) {
    tutti::scope begun;
    begun.spawn(join_others(job, file.get()));
    die();
  }
  tutti::store* const at = rank == 2 ? static_cast<tutti::store*>(&deadly) : file.get();
  co_await join_others(job, at);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string_view name = argv[1];
  directory = argv[2];
  if (name == "dies_before_it_serves") return dies_early(false);
  if (name == "dies_while_it_serves") return dies_early(true);
  if (name == "finishes") return tutti::run(finishes);
  if (name == "jobs_join_early")
    return tutti::run([](tutti::communicator w) { return jobs_join(std::move(w), true); });
  if (name == "jobs_join")
    return tutti::run([](tutti::communicator w) { return jobs_join(std::move(w), false); });
  return 2;
}

// SPDX-License-Identifier: Apache-2.0
// file_store: across threads and processes, and with crashed runs, stopped processes and unauthenticated
// peers.
#include "bootstrap/contended_steps.hpp"
#include "bootstrap/store_conformance.hpp"
#include "bootstrap/store_file.hpp"
#include "core/running_task.hpp"
#include "support/child.hpp"
#include "support/run_task.hpp"
#include "support/scratch_directory.hpp"
#include "support/skip.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tutti/store.hpp>
#include <vector>

using namespace tutti;
using namespace std::chrono_literals;
using test::child;
using test::failure;
using test::failure_of;
using test::run_task;
namespace fs = std::filesystem;

namespace {

std::unique_ptr<file_store> open_at(boost::asio::io_context& context, const std::string& path,
                                    std::chrono::milliseconds timeout = 20s) {
  return run_task(context, file_store::open(context.get_executor(), path, timeout));
}

task<> count_up(store& s, int times) {
  for (int i = 0; i < times; ++i) {
    co_await s.add("counter", 1);
  }
}

// Each rank sets its key and gets those of the others, round by round.
task<> exchange(store& s, int rank, int ranks, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    co_await s.set(std::to_string(round) + "/" + std::to_string(rank), std::to_string(rank * round));
    for (int other = 0; other < ranks; ++other) {
      const std::string value = co_await s.get(std::to_string(round) + "/" + std::to_string(other));
      if (value != std::to_string(other * round)) throw error(errc::system, "wrong value " + value);
    }
  }
}

// Calls `f` inside that many nested resumptions.
task<> call_deep(unsigned levels, const std::function<void()>* f) {
  if (levels == 0)
    (*f)();
  else
    co_await call_deep(levels - 1, f);
}

void overwrite(const std::string& path, off_t at, const std::string& bytes) {
  const base::unique_fd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  REQUIRE(::pwrite(fd.get(), bytes.data(), bytes.size(), at) == static_cast<ssize_t>(bytes.size()));
}

task<> use_all_operations(store& s) {
  co_await s.set("k", "v");
  co_await s.add("n", 1);
  co_await s.append("text", "more");
  co_await s.compare_exchange("k", "v", "w");
  co_await s.count();
  co_await s.erase("k");
  co_await s.get("n");
  co_await s.wait("absent", 50s);
}

task<> open_and_close(boost::asio::any_io_executor executor, std::string path) {
  const std::unique_ptr<file_store> s = co_await file_store::open(executor, path, 20s);
  co_await s->set("k", "v");
}

}  // namespace

TEST_CASE("file_store conforms to the interface of stores") {
  const test::scratch_directory scratch;
  boost::asio::io_context context;
  const auto a = open_at(context, scratch.path() / "store"), b = open_at(context, scratch.path() / "store");
  test::check_store(context, *a, *b);
}

TEST_CASE("prefix_store on a file_store conforms to the interface of stores") {
  const test::scratch_directory scratch;
  boost::asio::io_context context;
  const auto base_a = open_at(context, scratch.path() / "store"),
             base_b = open_at(context, scratch.path() / "store");
  prefix_store a(*base_a, "p"), b(*base_b, "p");
  run_task(context, base_a->set("outside", "x"));
  test::check_store(context, a, b);
}

TEST_CASE("threads and processes share one file") {
  const test::scratch_directory scratch;
  const std::string path = scratch.path() / "store";
  constexpr int ranks = 4;
  boost::asio::io_context context;
  const auto mine = open_at(context, path);
  SUBCASE("processes") {
    std::vector<std::unique_ptr<child>> children;
    for (int rank = 0; rank < ranks; ++rank)
      children.push_back(std::make_unique<child>([&, rank](const auto&) {
        boost::asio::io_context own;
        const auto s = open_at(own, path);
        run_task(own, count_up(*s, 100));
        run_task(own, exchange(*s, rank, ranks, 20));
        return 0;
      }));
    for (const auto& c : children) CHECK(c->end() == 0);
  }
  SUBCASE("threads") {
    const auto failures = test::run_threads(ranks, [&](int rank) {
      boost::asio::io_context own;
      const auto s = open_at(own, path);
      run_task(own, count_up(*s, 100));
      run_task(own, exchange(*s, rank, ranks, 20));
    });
    for (const auto& f : failures) CHECK_MESSAGE(f.code == errc::success, f.text);
  }
  CHECK(run_task(context, mine->get("counter", 0ms)) == "400");
}

TEST_CASE("the last user to leave removes the file") {
  const test::scratch_directory scratch;
  const std::string path = scratch.path() / "store";
  boost::asio::io_context context;
  auto a = open_at(context, path), b = open_at(context, path);
  CHECK(a->user() != b->user());
  CHECK(b->is_alive(a->user()));
  run_task(context, a->set("k", "v"));
  const std::uint64_t first = a->user();
  a.reset();
  CHECK(fs::exists(path));
  CHECK_FALSE(b->is_alive(first));
  CHECK(run_task(context, b->get("k", 0ms)) == "v");
  b.reset();
  CHECK_FALSE(fs::exists(path));
  a = open_at(context, path);
  CHECK(run_task(context, a->count()) == 0);
}

TEST_CASE("contents of a crashed run are dropped, those of a live one are kept") {
  const test::scratch_directory scratch;
  const std::string path = scratch.path() / "store";
  boost::asio::io_context context;
  child crashing([&](const auto& came_so_far) {
    boost::asio::io_context own;
    const auto s = open_at(own, path);
    run_task(own, s->set("of the first run", "x"));
    came_so_far();
    return ::pause();
  });
  crashing.wait_until_it_came_so_far();
  {
    const auto s = open_at(context, path);
    CHECK(run_task(context, s->count()) == 1);
  }
  CHECK(fs::exists(path));  // the child has it open
  CHECK(crashing.end(SIGKILL) == 128 + SIGKILL);
  CHECK(fs::exists(path));
  auto s = open_at(context, path);
  CHECK(run_task(context, s->count()) == 0);
  s.reset();
  CHECK_FALSE(fs::exists(path));
}

TEST_CASE("a change that its writer did not complete has no effect") {
  const test::scratch_directory scratch;
  const std::string path = scratch.path() / "store";
  boost::asio::io_context context;
  const auto a = open_at(context, path), b = open_at(context, path);
  run_task(context, a->set("k", "whole"));
  const auto end = static_cast<off_t>(fs::file_size(path));
  overwrite(path, end, std::string("\x40\0\0\0\x01\x01\0\0\0kha", 12));
  CHECK(run_task(context, b->get("k", 0ms)) == "whole");
  run_task(context, b->set("k", "new"));
  CHECK(run_task(context, a->get("k", 0ms)) == "new");
  CHECK(run_task(context, a->count()) == 1);
}

TEST_CASE("a file whose first user died while it wrote the header, or of an earlier version, counts as new") {
  const test::scratch_directory scratch;
  boost::asio::io_context context;
  for (const char* begun : {"", "tut", "tutti-s2", "tutti-s2\1\0\0", "tutti-s1, of a crashed run"}) {
    const std::string path = scratch.write("store", begun);
    const auto s = open_at(context, path);
    run_task(context, s->set("k", "v"));
    CHECK(run_task(context, s->get("k", 0ms)) == "v");
  }
}

TEST_CASE("a stopped holder of the lock does not block others for ever") {
  const test::scratch_directory scratch;
  const std::string path = scratch.path() / "store";
  boost::asio::io_context context;
  const auto s = open_at(context, path);
  child holder([&](const auto& came_so_far) {
    bootstrap::store_file file(path);
    while (!file.try_lock()) ::usleep(100);
    came_so_far();
    return ::pause();
  });
  holder.wait_until_it_came_so_far();
  holder.stop();
  failure f = failure_of([&] { run_task(context, s->set("k", "v", 50ms)); });
  CHECK(f.code == errc::timed_out);
  CHECK_MESSAGE(f.says("set('k')"), f.text);
  CHECK_MESSAGE(f.says("process " + std::to_string(holder.pid()) + " ("), f.text);
  CHECK_MESSAGE(f.says("which is stopped"), f.text);
  f = failure_of([&] { open_at(context, path, 50ms); });
  CHECK(f.code == errc::timed_out);
  CHECK_MESSAGE(f.says("opening"), f.text);
  holder.end(SIGKILL);
  run_task(context, s->set("k", "v"));
}

// The next step of a task may wait deep in other coroutines. Code that runs before it may destroy the task.
TEST_CASE("a task destroyed just after it got the lock frees the lock") {
  const test::scratch_directory scratch;
  const std::string path = scratch.path() / "store";
  boost::asio::io_context context;
  const auto s = open_at(context, path);
  bootstrap::store_file other(path);
  const auto is_free = [&other] {
    const bool free = other.try_lock();
    if (free) other.unlock();
    return free;
  };
  const auto ignore = [](void*, std::exception_ptr) noexcept {};
  int had_it = 0;
  for (unsigned depth = 0; depth < detail::flow::depth_limit; ++depth) {
    REQUIRE(other.try_lock());
    core::running_task setting, outer;
    setting.start(s->set("k", "v"), ignore, nullptr);
    other.unlock();
    const std::function<void()> end_it = [&] {
      do context.restart();
      while (context.run_one_for(test::run_limit) > 0 && is_free() && setting.running());
      if (!is_free()) ++had_it;
      setting.stop();
    };
    outer.start(call_deep(depth, &end_it), ignore, nullptr);
    CHECK(is_free());
  }
  CHECK(had_it > 0);
}

TEST_CASE("a task destroyed at any of its steps frees the lock") {
  const test::scratch_directory scratch;
  const std::string path = scratch.path() / "store";
  boost::asio::io_context context;
  const auto s = open_at(context, path);
  constexpr int most_steps = 40;
  int ended_early = 0, ran_on = 0;
  for (int steps = 0; steps < most_steps; ++steps) {
    for (task<> (*make)(boost::asio::io_context&, store&, const std::string&) :
         {+[](boost::asio::io_context&, store& to, const std::string&) { return use_all_operations(to); },
          +[](boost::asio::io_context& c, store&, const std::string& at) {
            return open_and_close(c.get_executor(), at);
          }}) {
      const bool was_running = test::destroy_after(context, path, steps, make(context, *s, path));
      ++(was_running ? ended_early : ran_on);
      REQUIRE_MESSAGE(test::is_lock_free(path), "after " << steps << " steps");
    }
  }
  CHECK(ended_early > most_steps);  // one waits for a key that never comes
  CHECK(ran_on > 0);                // the other finished
}

TEST_CASE("a forked process without exec keeps neither the lock nor its parent alive") {
  const test::scratch_directory scratch;
  const std::string path = scratch.path() / "store";
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const base::unique_fd until(ends[0]);
  base::unique_fd tell(ends[1]);
  // Lives until this process closes `tell`, independently of its parent.
  const auto live_on = [&] {
    tell.reset();
    char byte;
    ::_exit(::read(until.get(), &byte, 1) == 0 ? 0 : 1);
  };
  bootstrap::store_file other(path);
  SUBCASE("when its parent unlocks") {
    bootstrap::store_file mine(path);
    REQUIRE(mine.try_lock());
    child forked([&](const auto& came_so_far) {
      mine.unlock();  // like the destructor of a copied frame
      came_so_far();
      live_on();
      return 0;
    });
    forked.wait_until_it_came_so_far();
    CHECK_FALSE(other.try_lock());
    mine.unlock();
    CHECK(other.try_lock());
  }
  SUBCASE("when its parent leaves") {
    std::optional<bootstrap::store_file> mine(path);
    REQUIRE(mine->try_lock());
    mine->enter();
    const std::uint64_t user = mine->user();
    child forked([&](const auto& came_so_far) {
      came_so_far();
      live_on();
      return 0;
    });
    forked.wait_until_it_came_so_far();
    CHECK(other.is_alive(user));
    mine.reset();
    CHECK_FALSE(other.is_alive(user));
    CHECK(other.try_lock());
  }
  SUBCASE("when its parent leaves, and the child was made without fork handlers") {
    std::optional<bootstrap::store_file> mine(path);
    REQUIRE(mine->try_lock());
    mine->enter();
    const std::uint64_t user = mine->user();
    const pid_t cloned = ::_Fork();
    if (cloned == 0) live_on();
    REQUIRE(cloned > 0);
    mine.reset();
    CHECK_FALSE(other.is_alive(user));
    CHECK(other.try_lock());
    tell.reset();
    CHECK(::waitpid(cloned, nullptr, 0) == cloned);
  }
  SUBCASE("when its parent dies") {
    child parent([&](const auto& came_so_far) {
      bootstrap::store_file mine(path);
      if (!mine.try_lock()) return 1;
      mine.enter();
      if (::fork() == 0) {
        came_so_far();
        live_on();
      }
      return ::pause();
    });
    parent.wait_until_it_came_so_far();
    CHECK_FALSE(other.try_lock());
    CHECK(parent.end(SIGKILL) == 128 + SIGKILL);
    CHECK(other.try_lock());
    CHECK_FALSE(other.is_alive(1));
  }
}

TEST_CASE("a store opened before a fork is an error in the child that says to open it again") {
  const test::scratch_directory scratch;
  const std::string path = scratch.path() / "store";
  boost::asio::io_context context;
  const auto s = open_at(context, path);
  child forked([&](const auto&) {
    const failure f = failure_of([&] { run_task(context, s->set("k", "v")); });
    return f.code == errc::invalid_argument && f.says("open it anew after a fork") ? 0 : 1;
  });
  CHECK(forked.end() == 0);
  run_task(context, s->set("k", "v"));
}

TEST_CASE("closing other descriptors of the file does not free the lock") {
  const test::scratch_directory scratch;
  const std::string path = scratch.path() / "store";
  bootstrap::store_file one(path), two(path);
  REQUIRE(one.try_lock());
  {
    const base::unique_fd reader(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  }
  CHECK_FALSE(one.try_lock());
  CHECK_FALSE(two.try_lock());  // of the same process
  child other([&](const auto&) {
    bootstrap::store_file third(path);
    return third.try_lock() ? 1 : 0;
  });
  CHECK(other.end() == 0);
  one.unlock();
  CHECK(two.try_lock());
  two.unlock();
}

TEST_CASE("a file that is no store is not changed, and refused with the reason") {
  const test::scratch_directory scratch;
  boost::asio::io_context context;
  const auto refused = [&](const std::string& path, const char* why) {
    const failure f = failure_of([&] { open_at(context, path); });
    CHECK_MESSAGE(f.code == errc::invalid_argument, f.text);
    CHECK_MESSAGE(f.says(why), f.text);
    CHECK_MESSAGE(f.says(path), f.text);
  };
  const std::string letter = scratch.write("letter", "Dear reader, this is no store.");
  refused(letter, "something else");
  CHECK(scratch.read(letter) == "Dear reader, this is no store.");
  refused(scratch.path() / "missing" / "store", "directory that exists");
  refused(scratch.path(), "directory");
  const std::string fifo = scratch.path() / "fifo";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  refused(fifo, "not a regular file");
}

TEST_CASE("the file of another user is refused; no other user can read one's own") {
  const test::scratch_directory scratch;
  boost::asio::io_context context;
  const std::string mine = scratch.path() / "mine";
  const auto s = open_at(context, mine);
  CHECK((fs::status(mine).permissions() & (fs::perms::group_all | fs::perms::others_all)) == fs::perms::none);
  const std::string theirs = scratch.write("theirs", "");
  if (::geteuid() != 0 || ::chown(theirs.c_str(), 12345, 12345) != 0)
    TUTTI_SKIP("only root can give a file away");
  const failure f = failure_of([&] { open_at(context, theirs); });
  CHECK(f.code == errc::invalid_argument);
  CHECK_MESSAGE(f.says("uid 12345"), f.text);
}

TEST_CASE("old entries are removed: the size of the file is bounded") {
  const test::scratch_directory scratch;
  const std::string path = scratch.path() / "store";
  boost::asio::io_context context;
  const auto a = open_at(context, path), b = open_at(context, path), late = open_at(context, path);
  run_task(context, a->set("steady", "x"));
  std::uintmax_t most = 0;
  for (int i = 0; i < 400; ++i) {
    run_task(context, (i % 2 != 0 ? a : b)->set("k", std::string(50'000, static_cast<char>('a' + i % 26))));
    struct stat status{};
    REQUIRE(::stat(path.c_str(), &status) == 0);
    most = std::max<std::uintmax_t>(most, static_cast<std::uintmax_t>(status.st_blocks) * 512);
  }
  CHECK(most < (4u << 20));  // of 20 million bytes written
  for (const auto& s : {a.get(), b.get(), late.get()}) {
    CHECK(run_task(context, s->get("k", 0ms)) == std::string(50'000, 'a' + 399 % 26));
    CHECK(run_task(context, s->get("steady", 0ms)) == "x");
    CHECK(run_task(context, s->count()) == 2);
  }
}

TEST_CASE("a write above RLIMIT_FSIZE is an error with its cure, without a signal") {
  const test::scratch_directory scratch;
  child limited([path = (scratch.path() / "store").string()](const auto&) {
    ::signal(SIGXFSZ, SIG_DFL);
    boost::asio::io_context context;
    const auto s = open_at(context, path);
    const rlimit most{65'536, 65'536};
    ::setrlimit(RLIMIT_FSIZE, &most);
    const failure f = failure_of([&] { run_task(context, s->set("k", std::string(100'000, 'a'))); });
    return f.code == errc::resources && f.says("ulimit -f") ? 0 : 1;
  });
  CHECK(limited.end() == 0);
}

TEST_CASE("removing or damaging a file in use is an error, for waits as well") {
  const test::scratch_directory scratch;
  const std::string path = scratch.path() / "store";
  boost::asio::io_context context;
  const auto a = open_at(context, path);
  run_task(context, a->set("k", "v"));
  test::waited w;
  core::background_tasks tasks;
  tasks.start(test::get_into(*a, "other", 50s, &w));
  SUBCASE("removed") {
    fs::remove(path);
    const failure f = failure_of([&] { run_task(context, a->set("k", "w")); });
    CHECK(f.code == errc::peer_failed);
    CHECK_MESSAGE(f.says("removed " + path), f.text);
    test::run_until(context, [&] { return w.done; });
    CHECK(w.how.code == errc::peer_failed);
  }
  SUBCASE("damaged") {
    overwrite(path, 40, std::string(9, '\xff'));
    overwrite(path, 8, std::string("\x09\0\0\0\0\0\0\0", 8));
    test::run_until(context, [&] { return w.done; });
    CHECK(w.how.code == errc::protocol);
    CHECK_MESSAGE(w.how.says("damaged"), w.how.text);
    const failure f = failure_of([&] { run_task(context, a->get("k")); });
    CHECK(f.code == errc::protocol);
  }
}

TEST_CASE("waiting costs almost nothing") {
  const test::scratch_directory scratch;
  const std::string path = scratch.path() / "store";
  boost::asio::io_context context;
  const auto mine = open_at(context, path);
  child waiting([&](const auto& came_so_far) {
    boost::asio::io_context own;
    const auto s = open_at(own, path);
    test::waited w;
    core::background_tasks tasks;
    tasks.start(test::get_into(*s, "k", 50s, &w));
    timespec before{}, after{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    own.run_for(300ms);
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    const double spent_ms = static_cast<double>(after.tv_sec - before.tv_sec) * 1e3 +
                            static_cast<double>(after.tv_nsec - before.tv_nsec) / 1e6;
    if (w.done || spent_ms > 60) return 3;
    came_so_far();
    test::run_until(own, [&w] { return w.done; });
    return w.value == "v" ? 0 : 4;
  });
  waiting.wait_until_it_came_so_far();
  run_task(context, mine->set("k", "v"));
  CHECK(waiting.end() == 0);
}

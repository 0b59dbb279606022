// SPDX-License-Identifier: Apache-2.0
// Memory runs out at each allocation of small programs in turn. Each program succeeds or ends with an error
// that says so, or its process ends with a line that does. It neither hangs nor gives a wrong result.
//
// TUTTI_MEMORY_POINTS: how many allocations of each program fail in turn, evenly spread; "all": every one.
// TUTTI_MEMORY_ROW: how many fail in succession (1). TUTTI_MEMORY_PROGRAM: only this program.
#include "comm/memory_programs.hpp"
#include "comm/runtime_state.hpp"
#include "support/failing_memory.hpp"
#include "support/local_world.hpp"
#include "support/scratch_directory.hpp"
#include "support/skip.hpp"

#include <execinfo.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <new>
#include <string>

using namespace tutti;
using namespace tutti::test;
using clock_type = std::chrono::steady_clock;

namespace {

// The outcome of a run.
// heard: the other rank ended before it could report its own error.
// ended: the process ended with the line that says why.
enum class end : int { well, out_of_memory, ended, heard, other_error, wrong, slow, died, hung };
const char* const names[] = {"well",          "out of memory", "ended",    "heard of the other's end",
                             "another error", "wrong result",  "too slow", "died",
                             "hung"};
constexpr int ends = 9;

constexpr auto timeout = std::chrono::seconds(3);
constexpr auto slow = std::chrono::milliseconds(1500);  // the run waited for a timeout
constexpr auto hang = std::chrono::seconds(15);

// Shared by the parent and the child that makes the runs. The child may die at any time.
struct progress {
  std::atomic<long> point;
  std::atomic<long> allocations;  // of an undisturbed run
  std::atomic<bool> finished;
  std::atomic<long> ended[ends];
};

// Stack of the last failed allocation.
void* failed_at[48];
int failed_depth = 0;
void remember() noexcept { failed_depth = ::backtrace(failed_at, 48); }

// Captures a child's standard error.
class kept_output {
 public:
  kept_output() : file_(::memfd_create("output", MFD_CLOEXEC)) { REQUIRE(file_ >= 0); }
  kept_output(const kept_output&) = delete;
  ~kept_output() { ::close(file_); }
  void take() const {
    ::dup2(file_, STDERR_FILENO);
    ::signal(SIGABRT, SIG_DFL);  // doctest's handler would report a failure
  }
  std::string text() const {
    std::string all(static_cast<std::size_t>(::lseek(file_, 0, SEEK_END)), '\0');
    all.resize(static_cast<std::size_t>(std::max<ssize_t>(0, ::pread(file_, all.data(), all.size(), 0))));
    return all;
  }

 private:
  int file_;
};
// How a rank ends without memory for its own needs.
bool ended_without_memory(int status, const kept_output& said) {
  const std::string text = said.text();
  const auto says = [&text](const char* what) { return text.find(what) != std::string::npos; };
  bool its_line = says("error: out of memory: this rank cannot go on") ||
                  says("most likely because memory has run out: this rank cannot go on");
#ifdef __SANITIZE_THREAD__
  // In its code g++ ends a noexcept function without the exception, so that the handler cannot tell which it was.
  its_line = its_line || says("terminate called without an active exception");
#endif
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && its_line;
}

bool says_memory(const std::string& text) {
  return text.find("memory") != text.npos || text.find("bad_alloc") != text.npos;
}

end run_once(const memory_program& program, const std::string& transport, long point, long row) {
  const auto begun = clock_type::now();
  end how = end::other_error;
  std::string text;
  if (point >= 0) failing_memory::fail_after(point, row);
  try {
    run_local(2, over(transport, timeout), program.body);
    how = end::well;
  } catch (const std::bad_alloc&) {
    how = end::out_of_memory;
  } catch (const wrong_result&) {
    how = end::wrong;
  } catch (const error& e) {
    failing_memory::never_fail();
    text = e.what();
    // Also of a collective or a communicator that it has abandoned.
    if (e.code() == errc::peer_failed || e.code() == errc::join_failed || e.code() == errc::cancelled ||
        e.code() == errc::communicator_failed)
      how = end::heard;
    if (e.code() == errc::resources || says_memory(text)) how = end::out_of_memory;
  } catch (const std::exception& e) {
    failing_memory::never_fail();
    text = e.what();
    if (says_memory(text)) how = end::out_of_memory;
  }
  failing_memory::never_fail();
  const auto took = clock_type::now() - begun;
  if (took > slow &&
      (how == end::well || how == end::out_of_memory || how == end::heard || how == end::other_error)) {
    text = "it took " + std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(took).count()) +
           " ms; " + text;
    how = end::slow;
  }
  if (how != end::well && how != end::out_of_memory) {
    std::fprintf(stderr, "%s over %s, allocation %ld: %s: %s; where it failed:\n", program.name,
                 transport.c_str(), point, names[static_cast<int>(how)], text.c_str());
    ::backtrace_symbols_fd(failed_at, failed_depth, STDERR_FILENO);
  }
  return how;
}

void make_runs(const memory_program& program, const std::string& transport, long first, long step, long row,
               progress& p) {
  failing_memory::on_failure = &remember;
#ifdef __SANITIZE_THREAD__
  // The guards of static objects in g++'s ThreadSanitizer hang if an initialiser throws while another thread waits.
  run_once(program, transport, -1, row);
#endif
  for (long point = first;; point += step) {
    p.point = point;
    const long allocations = p.allocations;
    if (allocations > 0 && point > allocations + allocations / 10) break;
    const end how = run_once(program, transport, point, row);
    ++p.ended[static_cast<int>(how)];
  }
  p.finished = true;
}

// In the child, which does not outlive the test.
void begin_child() {
  tutti::comm::claim_process();  // as run() does
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::setenv("TUTTI_LOG", "error", 0);
}

// Makes the runs in a child. Continues in a new child after one that died or hung.
std::map<end, long> sweep(const memory_program& program, const std::string& transport, long points,
                          long row) {
  auto* const p = static_cast<progress*>(
      ::mmap(nullptr, sizeof(progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  REQUIRE(p != MAP_FAILED);
  std::map<end, long> table;
  long first = 0, step = 1;
  // Counts the allocations first.
  {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      begin_child();
      failing_memory::fail_after(1L << 40, 1);
      const end how = run_once(program, transport, -1, row);
      p->allocations = failing_memory::count.load();
      ::_exit(how == end::well ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    REQUIRE(status == 0);
  }
  if (points > 0) {
    step = std::max(1L, p->allocations.load() / points);
    first = static_cast<long>(seed_of_this_run() % static_cast<std::uint64_t>(step));
  }
  while (!p->finished) {
    const kept_output said;
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      said.take();
      begin_child();
      make_runs(program, transport, first, step, row, *p);
      ::_exit(0);
    }
    long seen = -1;
    auto since = clock_type::now();
    int status = 0;
    bool killed = false;
    while (::waitpid(child, &status, WNOHANG) != child) {
      if (p->point != seen) {
        seen = p->point;
        since = clock_type::now();
      } else if (clock_type::now() - since > hang && !killed) {
        killed = true;
        ::kill(child, SIGKILL);
      }
      ::usleep(1000);
    }
    const end how = killed ? end::hung : ended_without_memory(status, said) ? end::ended : end::died;
    if (how != end::ended || p->ended[static_cast<int>(end::other_error)] > 0)
      std::fputs(said.text().c_str(), stderr);
    if (p->finished) break;
    ++table[how];
    if (how != end::ended)
      std::fprintf(stderr, "%s over %s, allocation %ld: it %s\n", program.name, transport.c_str(),
                   p->point.load(), names[static_cast<int>(how)]);
    first = p->point + step;
  }
  for (int e = 0; e < ends; ++e)
    if (p->ended[e] > 0) table[static_cast<end>(e)] += p->ended[e];
  ::munmap(p, sizeof(progress));
  return table;
}

}  // namespace

TEST_CASE("each allocation of a program fails in turn") {
  const char* const wanted = std::getenv("TUTTI_MEMORY_POINTS");
  const char* const in_a_row = std::getenv("TUTTI_MEMORY_ROW");
  const char* const only = std::getenv("TUTTI_MEMORY_PROGRAM");
  const long points = wanted == nullptr              ? 40
                      : std::string(wanted) == "all" ? 0
                                                     : std::strtol(wanted, nullptr, 10);
  const long row = in_a_row == nullptr ? 1 : std::strtol(in_a_row, nullptr, 10);
  for (int i = 0; i < memory_program_count; ++i) {
    const memory_program& program = memory_programs[i];
    if (only != nullptr && std::string(only) != program.name) continue;
    for (const std::string& transport : transports) {
      CAPTURE(program.name);
      CAPTURE(transport);
      std::map<end, long> table = sweep(program, transport, points, row);
      std::string text;
      for (const auto& [how, n] : table)
        text += "  " + std::string(names[static_cast<int>(how)]) + ": " + std::to_string(n);
      std::printf("%-12s %-4s%s\n", program.name, transport.c_str(), text.c_str());
      std::fflush(stdout);
      CHECK(table[end::out_of_memory] > 0);
      CHECK(table[end::heard] * 4 <= table[end::out_of_memory] + table[end::ended]);
      CHECK(table[end::other_error] == 0);
      CHECK(table[end::wrong] == 0);
      CHECK(table[end::slow] == 0);
      CHECK(table[end::died] == 0);
      CHECK(table[end::hung] == 0);
    }
  }
}

namespace {

task<> loses_its_memory(communicator world) {
  co_await world.barrier();
  failing_memory::fail_after(0, failing_memory::none);  // it cannot even leave
}
task<int> outlives_it(communicator world) {
  co_await world.barrier();
  int never = 0;
  const auto seen = co_await as_result(world.recv(never, 1));
  std::fprintf(stderr, "%s: %s\n", seen.error.message().c_str(), seen.message.c_str());
  co_return seen.error == errc::peer_failed&& seen.message.find("rank 1") != std::string::npos ? 0 : 1;
}

}  // namespace

TEST_CASE("a rank without memory ends with one line that says so, and the others get an error") {
  const scratch_directory directory;
  const kept_output said[2];
  pid_t ranks[2];
  for (int rank = 0; rank < 2; ++rank) {
    ranks[rank] = ::fork();
    REQUIRE(ranks[rank] >= 0);
    if (ranks[rank] != 0) continue;
    said[rank].take();
    init_options how = over("shm");
    how.init_method = "file://" + (directory.path() / "meeting").string();
    how.rank = rank;
    how.world_size = 2;
    ::_exit(rank == 0 ? run(how, outlives_it) : run(how, loses_its_memory));
  }
  int status[2] = {};
  for (int rank = 0; rank < 2; ++rank) REQUIRE(::waitpid(ranks[rank], &status[rank], 0) == ranks[rank]);
  CHECK_MESSAGE(status[0] == 0, said[0].text());
  CHECK_MESSAGE(ended_without_memory(status[1], said[1]), said[1].text());
}

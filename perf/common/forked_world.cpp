// SPDX-License-Identifier: Apache-2.0
#include "common/forked_world.hpp"

#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

namespace perf {

// Starts as all zeros. Its barriers order all other accesses.
class control_page {
 public:
  explicit control_page(int ranks) noexcept : ranks_(ranks) {}

  int ranks() const noexcept { return ranks_; }
  std::byte* told() noexcept { return told_; }
  std::byte* slot(int rank) noexcept { return slots_[rank]; }

  void announce() noexcept { announced_.fetch_add(1, std::memory_order_release); }
  unsigned announced() const noexcept { return announced_.load(std::memory_order_acquire); }

  void barrier() {
    const unsigned turn = turn_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == ranks_) {
      arrived_.store(0, std::memory_order_relaxed);
      turn_.store(turn + 1, std::memory_order_release);
      return;
    }
    wait_until([&] { return turn_.load(std::memory_order_acquire) != turn; });
  }

 private:
  int ranks_;
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<unsigned> turn_{0};
  alignas(64) std::atomic<unsigned> announced_{0};
  alignas(64) std::byte told_[forked_world::most_bytes];
  alignas(64) std::byte slots_[forked_world::most_ranks][forked_world::most_bytes];
};

namespace {

// How many announcements this rank has received.
unsigned heard = 0;

void require_room(std::size_t bytes) {
  if (bytes > forked_world::most_bytes) throw std::length_error("more than fits on the control page");
}

control_page* new_page(int ranks) {
  void* const memory =
      ::mmap(nullptr, sizeof(control_page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return new (memory) control_page(ranks);
}

[[noreturn]] void be_rank(control_page* page, int rank, const std::function<int(forked_world)>& main) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  int code = 1;
  try {
    code = main(forked_world(page, rank));
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "rank %d: %s\n", rank, failure.what());
  }
  std::fflush(stdout);
  std::fflush(stderr);
  ::_exit(code);  // the parent owns all objects made before the fork
}

int code_of(int status) noexcept { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

}  // namespace

void yield_core() noexcept { ::sched_yield(); }

int forked_world::size() const noexcept { return page_->ranks(); }

void forked_world::barrier() { page_->barrier(); }

void forked_world::tell(std::span<std::byte> bytes) {
  require_room(bytes.size());
  ++heard;
  if (rank_ == 0) {
    std::memcpy(page_->told(), bytes.data(), bytes.size());
    page_->announce();
  } else {
    while (static_cast<int>(page_->announced() - heard) < 0)
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    std::memcpy(bytes.data(), page_->told(), bytes.size());
  }
  page_->barrier();  // all have read it, so the page is free for the next
}

template <class Combine>
void forked_world::combine(std::span<double> values, Combine with) {
  const std::span<const std::byte> own = std::as_bytes(values);
  require_room(own.size());
  std::memcpy(page_->slot(rank_), own.data(), own.size());
  page_->barrier();
  for (int r = 0; r < size(); ++r) {
    if (r == rank_) continue;
    for (std::size_t i = 0; i < values.size(); ++i) {
      double other;
      std::memcpy(&other, page_->slot(r) + i * sizeof other, sizeof other);
      values[i] = with(values[i], other);
    }
  }
  page_->barrier();
}

void forked_world::maximum(std::span<double> values) {
  combine(values, [](double a, double b) { return std::max(a, b); });
}

void forked_world::sum(std::span<double> values) {
  combine(values, [](double a, double b) { return a + b; });
}

void forked_world::gather(std::span<const std::byte> own, std::span<std::byte> all) {
  require_room(own.size());
  std::memcpy(page_->slot(rank_), own.data(), own.size());
  page_->barrier();
  for (int r = 0; r < size(); ++r)
    std::memcpy(all.data() + static_cast<std::size_t>(r) * own.size(), page_->slot(r), own.size());
  page_->barrier();
}

int run_forked(int ranks, const std::function<int(forked_world)>& main) {
  control_page* const page = new_page(ranks);
  std::fflush(stdout);
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) be_rank(page, rank, main);
    if (child < 0) {
      std::fprintf(stderr, "cannot fork rank %d: %s\n", rank, std::strerror(errno));
      for (const pid_t other : children) ::kill(other, SIGKILL);
      break;
    }
    children.push_back(child);
  }
  int code = static_cast<int>(children.size()) == ranks ? 0 : 1;
  while (!children.empty()) {
    int status = 0;
    const pid_t gone = ::waitpid(-1, &status, 0);
    if (gone < 0) break;
    std::erase(children, gone);
    if (code_of(status) == 0 || code != 0) continue;
    code = code_of(status);
    for (const pid_t other : children) ::kill(other, SIGTERM);  // they would wait for it
  }
  ::munmap(page, sizeof(control_page));
  return code;
}

}  // namespace perf

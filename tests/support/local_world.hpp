// SPDX-License-Identifier: Apache-2.0
// Ranks as threads for tests of communication: starting them, choosing their transport, and reporting their
// failures.
#pragma once

#include "support/instrumented.hpp"
#include "support/run_task.hpp"

#include <doctest/doctest.h>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <tutti/tutti.hpp>
#include <utility>
#include <vector>

// For coroutines, where doctest's REQUIRE would not end the test: throws, and run_local rethrows.
#define TUTTI_EXPECT(condition)                                                    \
  do {                                                                             \
    if (!(condition)) ::tutti::test::throw_not_so(__FILE__, __LINE__, #condition); \
  } while (false)

namespace tutti::test {

[[noreturn, gnu::noinline]] inline void throw_not_so(const char* file, int line, const char* condition) {
  throw std::runtime_error(std::string(file) + ":" + std::to_string(line) + ": not so: " + condition);
}

// TUTTI_TEST_TRANSPORT=ucx runs the same tests over another one.
inline const std::vector<std::string> transports = [] {
  const char* const other = std::getenv("TUTTI_TEST_TRANSPORT");
  return other != nullptr ? std::vector<std::string>{other} : std::vector<std::string>{"shm", "tcp"};
}();

// Long enough for a busy machine under sanitizers; reached only by a hang.
inline constexpr std::chrono::seconds patience(instrumented ? 120 : 30);

// A world of one.
inline init_options alone() {
  init_options o;
  o.rank = 0;
  o.world_size = 1;
  return o;
}

inline init_options over(const std::string& transport, std::chrono::milliseconds timeout = patience) {
  init_options o;
  o.transports = {transport};
  o.timeout = timeout;
  return o;
}

// Runs main(world) on every rank. Returns how each of them failed. A failed rank leaves in order, like a
// program that handles its errors.
template <class F>
std::vector<failure> failures_of(int ranks, init_options options, F main) {
  std::vector<failure> failures(static_cast<std::size_t>(ranks), describe({}));
  run_local(ranks, std::move(options), [&failures, &main](communicator world) {
    failure* mine = &failures[static_cast<std::size_t>(world.rank())];
    return keep_failure(main(std::move(world)), mine);
  });
  return failures;
}

// The error of awaiting `op`, or errc::success.
template <class Operation>
task<failure> failure_in(Operation op) {
  std::exception_ptr caught;
  try {
    static_cast<void>(co_await std::move(op));
  } catch (...) {
    caught = std::current_exception();
  }
  co_return describe(caught);
}
template <class T>
task<failure> failure_awaiting(basic_request<T>* r) {
  std::exception_ptr caught;
  try {
    co_await *r;
  } catch (...) {
    caught = std::current_exception();
  }
  co_return describe(caught);
}

// TUTTI_TEST_SEED replays a random test.
inline std::uint64_t seed_of_this_run() {
  if (const char* given = std::getenv("TUTTI_TEST_SEED")) return std::strtoull(given, nullptr, 0);
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

class random_numbers {  // splitmix64
 public:
  explicit random_numbers(std::uint64_t seed) noexcept : state_(seed) {}
  std::uint64_t next() noexcept {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  std::size_t below(std::size_t end) noexcept { return static_cast<std::size_t>(next() % end); }
  bool one_in(std::size_t n) noexcept { return below(n) == 0; }

 private:
  std::uint64_t state_;
};

// Bytes that identify their message and position.
inline void fill(std::span<std::byte> bytes, std::uint64_t message) noexcept {
  random_numbers numbers(message);
  while (bytes.size() >= sizeof(std::uint64_t)) {
    const std::uint64_t word = numbers.next();
    std::memcpy(bytes.data(), &word, sizeof word);
    bytes = bytes.subspan(sizeof word);
  }
  for (std::byte& b : bytes) b = static_cast<std::byte>(numbers.next());
}
inline std::vector<std::byte> filled(std::size_t bytes, std::uint64_t message) {
  std::vector<std::byte> made(bytes);
  fill(made, message);
  return made;
}

// A receive buffer with canaries on both sides.
class guarded_buffer {
 public:
  explicit guarded_buffer(std::size_t bytes) : memory_(bytes + 2 * margin, canary) {}
  std::span<std::byte> span() noexcept {
    return std::span(memory_).subspan(margin, memory_.size() - 2 * margin);
  }
  bool margins_intact() const noexcept {
    for (std::size_t i = 0; i < margin; ++i)
      if (memory_[i] != canary || memory_[memory_.size() - 1 - i] != canary) return false;
    return true;
  }
  bool untouched() const noexcept {
    for (const std::byte b : memory_)
      if (b != canary) return false;
    return true;
  }

 private:
  static constexpr std::byte canary{0xA5};
  static constexpr std::size_t margin = 256;
  std::vector<std::byte> memory_;
};

}  // namespace tutti::test

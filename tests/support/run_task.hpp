// SPDX-License-Identifier: Apache-2.0
// Running tasks from tests: to their end, within a bounded time, on one io_context or on one for each thread.
#pragma once

#include "core/running_task.hpp"

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <tutti/error.hpp>
#include <tutti/task.hpp>
#include <type_traits>
#include <utility>
#include <vector>

namespace tutti::test {

// Generous: only reached by what hangs, on a busy machine, under sanitizers.
inline constexpr std::chrono::seconds run_limit(60);

template <class T>
task<> keep_result(task<T> body, std::optional<T>* result) {
  result->emplace(co_await std::move(body));
}

// Runs `context` until `condition()` holds. Throws std::runtime_error when that does not happen in time, or
// cannot.
template <class Condition>
void run_until(boost::asio::io_context& context, Condition condition,
               std::chrono::seconds limit = run_limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (context.stopped()) context.restart();
    if (context.run_one_until(end) > 0) continue;
    throw std::runtime_error(std::chrono::steady_clock::now() < end ? "the test hangs: nothing is left to run"
                                                                    : "the test took longer than its limit");
  }
}

// Runs `body` to its end on `context`; its value, or its exception.
template <class T>
T run_task(boost::asio::io_context& context, task<T> body, std::chrono::seconds limit = run_limit) {
  if constexpr (!std::is_void_v<T>) {
    std::optional<T> result;
    run_task(context, keep_result(std::move(body), &result), limit);
    return std::move(*result);
  } else {
    struct outcome {
      bool done = false;
      std::exception_ptr failure;
    } end;
    core::running_task running;
    running.start(
        std::move(body),
        [](void* owner, std::exception_ptr failure) noexcept {
          static_cast<outcome*>(owner)->done = true;
          static_cast<outcome*>(owner)->failure = std::move(failure);
        },
        &end);
    run_until(context, [&end] { return end.done; }, limit);
    if (end.failure) std::rethrow_exception(end.failure);
  }
}

// What went wrong in a test's rank or task; code is errc::success when nothing did.
struct failure {
  std::error_code code;
  std::string text;
  bool says(std::string_view part) const { return text.find(part) != std::string::npos; }
};

inline failure describe(const std::exception_ptr& e) {
  if (!e) return {make_error_code(errc::success), ""};
  try {
    std::rethrow_exception(e);
  } catch (const std::system_error& s) {
    return {s.code(), s.what()};
  } catch (const std::exception& other) {
    return {make_error_code(errc::system), other.what()};
  }
}

// Calls `f` and says how that failed.
template <class F>
failure failure_of(F&& f) {
  try {
    f();
  } catch (...) {
    return describe(std::current_exception());
  }
  return describe({});
}

// Runs body(rank) for `ranks` ranks, each a thread; how each of them failed. (Assertions belong behind this.)
template <class F>
std::vector<failure> run_threads(int ranks, F body) {
  std::vector<failure> failures(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back(
        [&, rank] { failures[static_cast<std::size_t>(rank)] = failure_of([&] { body(rank); }); });
  for (std::thread& t : threads) t.join();
  return failures;
}

}  // namespace tutti::test

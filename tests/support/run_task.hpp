// SPDX-License-Identifier: Apache-2.0
// Runs tasks to their end within a time limit, on one io_context or on one per thread.
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

// Generous for a busy machine under sanitizers; reached only by a hang.
inline constexpr std::chrono::seconds run_limit(60);

template <class T>
task<> keep_result(task<T> body, std::optional<T>* result) {
  result->emplace(co_await std::move(body));
}

// Runs `context` until `condition()` holds. Throws std::runtime_error at the time limit, or if the context
// has no more work.
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

// Runs `body` to its end on `context`. Returns its value or throws its exception.
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

// The error of a test's rank or task; code is errc::success if there was none.
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

template <class T>
task<> keep_failure(task<T> body, failure* out) {
  try {
    co_await std::move(body);
  } catch (...) {
    *out = describe(std::current_exception());
  }
}

// Calls `f` and returns its error.
template <class F>
failure failure_of(F&& f) {
  try {
    f();
  } catch (...) {
    return describe(std::current_exception());
  }
  return describe({});
}

// Runs body(rank) on one thread per rank. Returns the failures. (Put assertions after this call.)
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

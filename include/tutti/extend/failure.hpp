// SPDX-License-Identifier: Apache-2.0
// failure: how an extension hears of a communicator's failure, and reports one. An executor_part that throws needs
// neither.
#pragma once

#include <tutti/communicator.hpp>
#include <tutti/error.hpp>
#include <tutti/extend/version.hpp>
#include <tutti/task.hpp>

#include <chrono>
#include <exception>
#include <new>
#include <string>

namespace tutti::extend::inline v1 {

// Fails the communicator on all ranks with this reason, and none of those made from it. The first reason is kept. Does
// nothing if its runtime has ended. Call it on the loop thread.
void fail(const communicator& c, errc why, const std::string& text) noexcept;

// Why something has failed; errc::success if it has not.
struct failure {
  errc code = errc::success;
  std::string text;
};
// Why a communicator has failed. Call it on the loop thread.
failure failure_of(const communicator& c);
// What an exception says. `otherwise` is the code of an exception that has none.
inline failure what_of(const std::exception_ptr& thrown, errc otherwise = errc::success) {
  try {
    std::rethrow_exception(thrown);
  } catch (const error& e) {
    return {static_cast<errc>(e.code().value()), e.what()};
  } catch (const std::bad_alloc&) {
    return {errc::resources, "out of memory"};
  } catch (const std::exception& e) {
    return {otherwise, e.what()};
  } catch (...) {
    return {otherwise, "an exception that is no std::exception"};
  }
}

// Compares the collective that was started last with those of the other ranks, before the communicator goes. If one
// called a different collective, the communicator fails with errc::mismatch on all ranks.
// Completes: when all have called it, at the deadline, or at once if a rank has left or collectives are in progress.
task<> compare_last(communicator c, std::chrono::steady_clock::time_point deadline);

}  // namespace tutti::extend::inline v1

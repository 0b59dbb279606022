// SPDX-License-Identifier: Apache-2.0
// prepare: an operation whose checks and choices are made once, for loops that repeat it.
#pragma once

#include <tutti/operation.hpp>
#include <tutti/task.hpp>

#include <memory>
#include <utility>

namespace tutti {
namespace detail {

prepared_call* make_prepared(const call& what);
const call& call_of(const prepared_call& prepared) noexcept;
// By which all ranks learn that they have prepared the same.
call agreement_on(prepared_call& prepared) noexcept;
void drop_prepared(prepared_call* prepared) noexcept;

struct prepared_dropper {
  void operator()(prepared_call* prepared) const noexcept { drop_prepared(prepared); }
};
using prepared_owner = std::unique_ptr<prepared_call, prepared_dropper>;

}  // namespace detail

// What prepare() gives. Each call makes an operation with the arguments that were prepared, as lazy as any other:
// `co_await average();`, `start(average())`. On the other ranks the same collective is made from what they prepared,
// too. An operation of a collective must have ended before the next is started (errc::invalid_argument). Once it is
// started it may outlive this. Allocates nothing.
template <class T = void>
class prepared {
 public:
  prepared() noexcept = default;
  explicit prepared(detail::prepared_owner made) noexcept : made_(std::move(made)) {}

  // False: nothing was prepared, or it was moved from.
  explicit operator bool() const noexcept { return made_ != nullptr; }
  // Throws errc::invalid_argument where there is nothing.
  operation<T> operator()() const {
    if (!made_) throw error(errc::invalid_argument, "prepared: empty; assign what prepare() gives first");
    return operation<T>(std::in_place, detail::call_of(*made_));
  }

 private:
  detail::prepared_owner made_;
};

// Checks the arguments of an operation, chooses its algorithm and, of a collective, makes sure that all ranks have
// prepared the same: once, so that the operations made from the result need not. Buffers, counts and peers are those
// given here; the contents of buffers are those at each start. Buffers must stay as long as they are used so.
//
// prepare() of a collective is a collective: all ranks call it in the same order as their other ones. Completes when
// all have. Throws errc::invalid_argument for invalid arguments, and for group, split, duplicate and
// shrink; errc::mismatch, on all ranks, where they differ. Cancelling it fails the communicator, as for any
// collective. Cost: a barrier; of a message none. Nothing is allocated in steady state.
template <class T>
task<prepared<T>> prepare(operation<T> op) {
  detail::prepared_owner made(detail::make_prepared(op.what()));
  if (detail::row_of(op.what().kind).of == detail::family::collective)
    co_await operation<>(detail::agreement_on(*made));
  co_return prepared<T>(std::move(made));
}
// The temporary would be gone before it is read: name it first.
void prepare(operation_on_temporary op) = delete;

}  // namespace tutti

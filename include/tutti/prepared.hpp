// SPDX-License-Identifier: Apache-2.0
// prepare: an operation that is checked and planned once, for loops that repeat it.
#pragma once

#include <tutti/detail/sole_owner.hpp>
#include <tutti/operation.hpp>
#include <tutti/task.hpp>

#include <utility>

namespace tutti {
namespace detail {

prepared_call* make_prepared(const call& what);
const call& call_of(const prepared_call& prepared) noexcept;
// The collective by which ranks check that all have prepared the same operation.
call agreement_on(prepared_call& prepared) noexcept;
void drop_prepared(prepared_call* prepared) noexcept;

struct prepared_dropper {
  void operator()(prepared_call* prepared) const noexcept { drop_prepared(prepared); }
};
using prepared_owner = sole_owner<prepared_call*, prepared_dropper>;

}  // namespace detail

// The result of prepare(). Each call makes a lazy operation with the prepared arguments: `co_await average()`,
// `start(average())`. The other ranks make the same collective from theirs. The operation may outlive this.
// Errors: errc::invalid_argument if the previous operation of a prepared collective has not ended.
// Cost: no allocation.
template <class T = void>
class prepared {
 public:
  prepared() noexcept = default;
  explicit prepared(detail::prepared_owner made) noexcept : made_(std::move(made)) {}

  // False if nothing was prepared, or it was moved from.
  explicit operator bool() const noexcept { return made_ != nullptr; }
  // Makes the operation.
  // Errors: throws errc::invalid_argument if nothing was prepared.
  operation<T> operator()() const {
    if (!made_) throw error(errc::invalid_argument, "prepared: empty; assign what prepare() gives first");
    return operation<T>(std::in_place, detail::call_of(*made_));
  }

 private:
  detail::prepared_owner made_;
};

// Checks the arguments of an operation and chooses its algorithm once; operations made from the result skip
// both. Their buffers, counts and peers are the ones given here; buffer contents are read at each start.
// prepare() of a collective is itself a collective: all ranks call it, in the same order as their other ones.
// Completes: when all ranks have called it; for a message, at once.
// Buffers: stay valid as long as the result is used.
// Errors: errc::invalid_argument for invalid arguments, and for group, split, duplicate and shrink.
// errc::mismatch on all ranks if they prepare different operations.
// Cancellation: fails the communicator, as for any collective.
// Cost: a barrier, or nothing for a message. In steady state no allocation.
template <class T>
task<prepared<T>> prepare(operation<T> op) {
  detail::prepared_owner made(detail::make_prepared(op.what()));
  if (detail::row_of(op.what().kind).of == detail::family::collective)
    co_await operation<>(detail::agreement_on(*made));
  co_return prepared<T>(std::move(made));
}
// Rejects an operation on a temporary buffer, which would be gone before it is read. Name the buffer first.
template <class T>
void prepare(operation_on_temporary<T> op) = delete;

}  // namespace tutti

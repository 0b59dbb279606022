// SPDX-License-Identifier: Apache-2.0
// A reduction that gives the program each reduced chunk while later chunks are in flight.
#pragma once

#include <tutti/operation.hpp>
#include <tutti/request.hpp>
#include <tutti/task.hpp>

#include <array>
#include <cstddef>
#include <exception>
#include <optional>
#include <span>
#include <utility>

namespace tutti {
namespace detail {
std::size_t default_chunk(std::size_t count, std::size_t element_bytes) noexcept;
}

// The result of communicator::all_reduce_chunks: the chunks of the buffer, in order. Move-only.
// Buffers: each chunk belongs to the operation until next() has returned it, and to the program from then on.
// Cancellation: dropping it before the last chunk fails the communicator on all ranks.
template <class T, class Span = std::span<T>>
class chunked_all_reduce {
  static constexpr std::size_t in_flight = 3;

 public:
  // Starts the first chunks.
  chunked_all_reduce(detail::call whole, Span data, std::size_t chunk)
      : whole_(std::move(whole)), data_(std::move(data)), chunk_(chunk > 0 ? chunk : 1) {
    for (request& r : requests_) start_next(r);
  }

  // Returns the next chunk, or nothing after the last. Await one next() at a time.
  // Errors: those of the chunk's all_reduce. After one, every call throws it again.
  task<std::optional<Span>> next() {
    if (failure_ != nullptr) std::rethrow_exception(failure_);
    if (given_ >= size()) co_return std::nullopt;
    request& first = requests_[given_ / chunk_ % in_flight];
    try {
      co_await first;
      start_next(first);
    } catch (...) {
      if (!first) failure_ = std::current_exception();  // otherwise another next() awaits this chunk
      throw;
    }
    const std::size_t from = given_, n = next_after(from);
    given_ += n;
    if constexpr (detail::tensor<Span>)
      co_return detail::tensor_access<Span>::piece(data_, from, n);
    else
      co_return data_.subspan(from, n);
  }
  // The number of chunks.
  std::size_t chunks() const noexcept { return size() / chunk_ + (size() % chunk_ != 0 ? 1 : 0); }

  // The default chunk size in elements: several chunks are in flight, and none is dominated by its latency.
  static std::size_t default_chunk(std::size_t count, std::size_t element_bytes = sizeof(T)) noexcept {
    return detail::default_chunk(count, element_bytes);
  }

 private:
  std::size_t size() const noexcept { return whole_.out.count; }
  std::size_t next_after(std::size_t at) const noexcept {
    return chunk_ < size() - at ? chunk_ : size() - at;
  }
  void start_next(request& place) {
    if (started_ >= size()) return;
    const std::size_t n = next_after(started_);
    detail::call what = whole_;
    what.out.data = static_cast<std::byte*>(whole_.out.data) + started_ * whole_.out.element_bytes;
    what.out.count = n;
    what.in = what.out;
    if (what.on_device()) what.part = detail::executor_part_of(what).again();
    started_ += n;
    place = request(std::move(what));
  }

  detail::call whole_;
  Span data_;
  std::size_t chunk_;
  std::size_t started_ = 0;  // elements
  std::size_t given_ = 0;
  std::exception_ptr failure_;  // of a chunk
  std::array<request, in_flight> requests_;
};

}  // namespace tutti

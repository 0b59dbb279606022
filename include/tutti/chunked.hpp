// SPDX-License-Identifier: Apache-2.0
// A reduction whose finished chunks are handed out while the next are on their way.
#pragma once

#include <tutti/operation.hpp>
#include <tutti/request.hpp>
#include <tutti/task.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>

namespace tutti {

// What communicator::all_reduce_chunks returns. Chunks come in the order of the buffer, each when it is
// reduced. The buffer belongs to the operation until its chunk has come: a chunk that has is the program's
// own. Dropping it before the end cancels what is in flight, which fails the communicator on all ranks.
// Move-only.
template <class T, class Span = std::span<T>>
class chunked_all_reduce {
  static constexpr std::size_t in_flight = 3;

 public:
  // Starts the first chunks.
  chunked_all_reduce(detail::call whole, Span data, std::size_t chunk)
      : whole_(std::move(whole)), data_(std::move(data)), chunk_(std::max<std::size_t>(1, chunk)) {
    for (request& r : requests_) start_next(r);
  }

  // Completes with the next chunk, or with nothing after the last. Throws what its all_reduce throws. One at
  // a time.
  task<std::optional<Span>> next() {
    if (given_ >= size()) co_return std::nullopt;
    request& first = requests_[turn_ % in_flight];
    co_await first;
    start_next(first);
    ++turn_;
    const std::size_t from = given_, n = std::min(chunk_, size() - from);
    given_ += n;
    if constexpr (detail::tensor<Span>)
      co_return detail::tensor_access<Span>::piece(data_, from, n);
    else
      co_return data_.subspan(from, n);
  }
  std::size_t chunks() const noexcept { return (size() + chunk_ - 1) / chunk_; }

  // Elements in a chunk where the caller does not say: enough of them to keep several on their way, none so
  // small that its latency shows.
  static std::size_t default_chunk(std::size_t count, std::size_t element_bytes = sizeof(T)) noexcept {
    const std::size_t least = std::max<std::size_t>(1, 64 * 1024 / element_bytes);
    const std::size_t most = std::max<std::size_t>(1, 1024 * 1024 / element_bytes);
    return std::clamp(count / 8, least, most);
  }

 private:
  std::size_t size() const noexcept { return whole_.out.count; }
  void start_next(request& place) {
    if (started_ >= size()) return;
    const std::size_t n = std::min(chunk_, size() - started_);
    detail::call what = whole_;
    what.out.data = static_cast<std::byte*>(whole_.out.data) + started_ * whole_.out.element_bytes;
    what.out.count = n;
    what.in = what.out;
    if (what.on_device()) what.part = detail::communicator_part_of(what).again();
    started_ += n;
    place = request(std::move(what));
  }

  detail::call whole_;
  Span data_;
  std::size_t chunk_;
  std::size_t started_ = 0;  // elements
  std::size_t given_ = 0;
  std::size_t turn_ = 0;
  std::array<request, in_flight> requests_;
};

}  // namespace tutti

// SPDX-License-Identifier: Apache-2.0
// queue_index: finds the oldest element with a context, source and tag among the elements of long queues. A hash
// table whose links are in the elements.
//
// Invariant: elements with one key are in a bucket in their order.
#pragma once

#include "base/intrusive_list.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <tutti/status.hpp>

namespace tutti::match {

using tutti::any_source;
using tutti::any_tag;

// Source (rank in the context's numbering) and tag. Messages name both, >= 0; a receive may leave either
// open.
struct envelope {
  std::uint32_t context = 0;
  std::int32_t source = any_source;
  std::int32_t tag = any_tag;

  friend bool operator==(const envelope&, const envelope&) = default;
};

// `Row` has the type `element`, which derives from base::list_hook<Row>, and functions of one: key(e), an
// envelope, and order(e), a number.
template <class Row>
class queue_index {
  using element = typename Row::element;
  using bucket = base::intrusive_list<element, Row>;

 public:
  // Makes the first buckets. Returns false if there is no memory for them.
  bool prepare() noexcept { return buckets_ != nullptr || resize(first_bits); }
  // Inserts the youngest element of its key; requires prepare(). Doubles the buckets if there is memory for that,
  // and keeps them. O(1) on average.
  void insert(element& e) noexcept {
    if (count_++ >> bits_ != 0) resize(bits_ + 1);
    bucket_of(Row::key(e)).push_back(e);
  }
  // Inserts an element in the order of its key. Linear in the older ones of the bucket.
  void insert_in_order(element& e) noexcept {
    ++count_;
    bucket& b = bucket_of(Row::key(e));
    for (element* other = b.front(); other != nullptr; other = b.after(*other))
      if (Row::key(*other) == Row::key(e) && Row::order(*other) > Row::order(e))
        return b.insert_before(hook(*other), e);
    b.push_back(e);
  }
  // Nothing happens if it is not inside.
  void remove(element& e) noexcept {
    if (hook(e).linked()) [[unlikely]]
      unlink(e);
  }
  // The oldest element with this key, or nullptr. O(1) on average.
  element* first(const envelope& key) const noexcept {
    const bucket& b = bucket_of(key);
    element* e = b.front();
    while (e != nullptr && !(Row::key(*e) == key)) e = b.after(*e);
    return e;
  }

 private:
  static constexpr unsigned first_bits = 6;

  [[gnu::noinline]] void unlink(element& e) noexcept {
    hook(e).unlink();
    --count_;
  }
  static base::list_hook<Row>& hook(element& e) noexcept { return e; }
  bucket& bucket_of(const envelope& key) const noexcept {
    const std::uint64_t both =
        std::uint64_t{static_cast<std::uint32_t>(key.source)} << 32 | static_cast<std::uint32_t>(key.tag);
    return buckets_[(both + key.context * 0xd1342543de82ef95u) * 0x9e3779b97f4a7c15u >> (64 - bits_)];
  }
  bool resize(unsigned bits) noexcept {
    std::unique_ptr<bucket[]> more(new (std::nothrow) bucket[std::size_t{1} << bits]);
    if (more == nullptr) return false;
    const std::size_t old = buckets_ != nullptr ? std::size_t{1} << bits_ : 0;
    more.swap(buckets_);
    bits_ = bits;
    for (std::size_t i = 0; i < old; ++i)
      while (element* const e = more[i].pop_front()) bucket_of(Row::key(*e)).push_back(*e);
    return true;
  }

  std::unique_ptr<bucket[]> buckets_;
  unsigned bits_ = 0;  // of their number
  std::size_t count_ = 0;
};

}  // namespace tutti::match

// SPDX-License-Identifier: Apache-2.0
// Copying into memory that another core has just read, and will read next.
//
// What it costs depends on where the two cores are. With a cache in common plain stores are best: the reader
// finds the data in it. Without one, every plain store first fetches a line from the other's cache, at a
// tenth of the speed, and stores that go past the caches win. Virtual cores move about, so this measures what
// it gets, and tries the other way now and then.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::base {

class ring_copy {
 public:
  // Like memcpy. Everything is visible to whoever sees a release store that follows.
  void operator()(void* to, const void* from, std::size_t bytes) noexcept {
    if (bytes < least_measured) {
      plain(to, from, bytes);
    } else {
      measured(to, from, bytes);
    }
  }
  bool streams() const noexcept { return streams_; }

  static void plain(void* to, const void* from, std::size_t bytes) noexcept;
  // What another core has just written, out of a ring: by loads and stores. In a stream of messages memcpy's
  // string instruction takes twice as long there, for seconds on end (AMD family 26).
  static void out(void* to, const void* from, std::size_t bytes) noexcept;
  // Past the caches, where the processor can.
  static void streaming(void* to, const void* from, std::size_t bytes) noexcept;
  // A piece of something of `whole` bytes, into memory that nobody else looks at: past the caches when it
  // would not stay there anyway, so that its lines are not fetched before they are written over.
  static void piece(void* to, const void* from, std::size_t bytes, std::size_t whole) noexcept {
    whole >= larger_than_caches ? streaming(to, from, bytes) : plain(to, from, bytes);
  }

 private:
  static constexpr std::size_t larger_than_caches = std::size_t{4} * 1024 * 1024;
  // Below it the clock costs more than there is to gain.
  static constexpr std::size_t least_measured = 4096;
  void measured(void* to, const void* from, std::size_t bytes) noexcept;

  bool streams_ = false;
  unsigned slow_ = 0;         // plain copies, one after the other, that were too slow
  unsigned since_trial_ = 0;  // copies since plain stores were last tried
};

}  // namespace tutti::base

// SPDX-License-Identifier: Apache-2.0
// The conformance suite's buffers in device memory.
#pragma once

#include "coll/conformance/worlds.hpp"

#include <array>
#include <cstddef>
#include <span>
#include <tutti/gpu.hpp>
#include <utility>
#include <vector>

namespace tutti::test {

class device_memory {
 public:
  static constexpr std::size_t largest = 1024 * KiB;  // the devices of tests are small

  // `third`: which third of the reductions; -1: all.
  explicit device_memory(const gpu::device& on, int third = -1)
      : third_(third), device_(on), streams_{gpu::stream(on), gpu::stream(on)} {}

  class buffers {
   public:
    buffers(const device_memory& on, field& in, field& out)
        : on_(on), stream_(on.streams_[on.calls_++ % 2]), in_(on, stream_, in), out_(on, stream_, out) {}
    template <class T>
    gpu::device_span<T> as(std::span<std::byte> part) const {
      if (part.data() == nullptr) return {};
      return {reinterpret_cast<T*>((in_.holds(part) ? in_ : out_).at(part)), part.size() / sizeof(T)};
    }
    template <class F>
    auto call(F f) const {
      return f(stream_);
    }
    request start(operation<> op, algorithm) const {
      const gpu::backend by = gpu::backend_for(op).with;
      ++on_.served_[static_cast<std::size_t>(by)];
      return by == gpu::backend::automatic ? request() : tutti::start(std::move(op));
    }
    task<> fetch() const {
      co_await stream_.download(in_.of, in_.there);
      co_await stream_.download(out_.of, out_.there);
    }

   private:
    struct copy {
      copy(const device_memory& on, const gpu::stream& s, field& f)
          : of(f.with_margins()), there(on.device_, of.size()), coming(tutti::start(s.upload(there, of))) {}
      bool holds(std::span<std::byte> part) const {
        return part.data() >= of.data() && part.data() < of.data() + of.size();
      }
      std::byte* at(std::span<std::byte> part) const { return there.data() + (part.data() - of.data()); }
      std::span<std::byte> of;
      gpu::device_buffer<std::byte> there;
      request coming;
    };
    const device_memory& on_;
    const gpu::stream stream_;
    const copy in_, out_;
  };

  // The automatic choice only: staging uses the host's algorithm of that choice.
  std::vector<algorithm> algorithms(const setting&, coll::operation_kind, bool = true) const {
    return {algorithm::automatic};
  }
  bool takes(const setting&, std::size_t reduction) const {
    return third_ < 0 || static_cast<int>(reduction % 3) == third_;
  }
  std::size_t served_by(gpu::backend b) const { return served_[static_cast<std::size_t>(b)]; }

 private:
  const int third_;
  const gpu::device device_;
  const std::vector<gpu::stream> streams_;
  mutable std::array<std::size_t, 5> served_{};
  mutable std::size_t calls_ = 0;
};

}  // namespace tutti::test

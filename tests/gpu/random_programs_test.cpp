// SPDX-License-Identifier: Apache-2.0
// Random programs with collectives on device memory give what the serial model says, with many operations in
// flight, on communicators that come and go.
#include "coll/random/calls.hpp"
#include "coll/random/performer.hpp"
#include "gpu/backends.hpp"
#include "support/instrumented.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <tutti/emulated.hpp>
#include <tutti/gpu.hpp>
#include <utility>
#include <vector>

namespace {

using namespace tutti::test;
using tutti::communicator;
using tutti::task;
namespace gpu = tutti::gpu;
using word = std::uint32_t;

class device_memory final : public other_memory {
 public:
  explicit device_memory(const gpu::device& d) : device_(d), streams_{gpu::stream(d), gpu::stream(d)} {}

  task<std::unique_ptr<copies>> start(communicator c, const step* s, const part* plan, std::span<word> in,
                                      std::span<word> out) override {
    auto made = std::make_unique<on_device>();
    made->stream = streams_[s->number % streams_.size()];
    const bool together = in.data() < out.data() + out.size() && out.data() < in.data() + in.size();
    word* const begin = together ? std::min(in.data(), out.data()) : out.data();
    word* const end =
        together ? std::max(in.data() + in.size(), out.data() + out.size()) : begin + out.size();
    const std::span<word> all(begin, static_cast<std::size_t>(end - begin));
    made->first = gpu::device_buffer<word>(device_, all.size());
    co_await made->stream.upload(made->first, all);
    made->result = made->first.span().subspan(static_cast<std::size_t>(out.data() - begin), out.size());
    gpu::device_span<word> from;
    if (together) {
      from = made->first.span().subspan(static_cast<std::size_t>(in.data() - begin), in.size());
    } else {
      made->second = gpu::device_buffer<word>(device_, in.size());
      from = made->second.span();
      co_await made->stream.upload(made->second, in);
    }
    made->moving = tutti::start(call_of(c, *s, *plan, from, made->result, made->stream));
    co_return made;
  }

 private:
  struct on_device final : copies {
    task<> fetch(std::span<word> out) override { co_await stream.download(out, result); }
    gpu::device_buffer<word> first, second;
    gpu::device_span<word> result;
    gpu::stream stream;
  };
  const gpu::device device_;
  const std::vector<gpu::stream> streams_;
};

task<> perform_on(communicator world, const program* p, std::shared_ptr<tutti::emulated::emulated_device> on,
                  gpu::backend by) {
  const gpu::device device = tutti::emulated::open(world, on);
  gpu::open_options how;
  how.backend = by;
  how.chunk_bytes = 1024;
  co_await gpu::open(world, device, how);
  device_memory memory(device);
  co_await perform(world, p, no_step, &memory);
}

}  // namespace

TEST_CASE("random programs on devices: what the serial model says, on every rank") {
  const std::uint64_t first = seed_of_this_run();
  const std::uint64_t programs = instrumented ? 3 : 12;
  for (std::uint64_t i = 0; i < programs; ++i) {
    setting where;
    where.transport = i % 3 == 2 ? "tcp" : "shm";
    where.ranks = 2 + static_cast<int>(i % 4);
    const program p = random_program(first + i, where, 60, 8192);
    const std::string name = p.replay();
    CAPTURE(name);
    tutti::emulated::options how;
    how.memory_bytes = 64 << 20;
    how.adversary = i % 2 == 0 ? 0 : first + i;
    const auto device = std::make_shared<tutti::emulated::emulated_device>(how);
    const gpu::backend by = i % 3 == 1 ? gpu::backend::staged : gpu::backend::automatic;
    CHECK_NOTHROW(run_in(where, [&](communicator world, const setting*) {
      return perform_on(std::move(world), &p, device, by);
    }));
  }
}

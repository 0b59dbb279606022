// SPDX-License-Identifier: Apache-2.0
#include <tutti/gpu/gradient_hooks.hpp>

#include "train/bucket_work.hpp"

#include <map>
#include <tutti/half.hpp>

namespace tutti::gpu {
namespace {

class identity final : public gradient_hook {
 public:
  task<> reduce(communicator c, gradient_bucket bucket, stream in) override {
    return train::all_reduce(std::move(c), bucket.data, reduce_kind::avg, std::move(in));
  }
};

template <class Half>
class compressed final : public gradient_hook {
 public:
  task<> reduce(communicator c, gradient_bucket bucket, stream in) override {
    if (tutti::detail::is_half(bucket.data.type())) {
      co_await train::all_reduce(c, bucket.data, reduce_kind::avg, in);
      co_return;
    }
    device_buffer<Half>& memory = memory_[bucket.index];
    if (memory.size() != bucket.data.size()) memory = device_buffer<Half>(in.on(), bucket.data.size());
    const device_values halves(memory);
    co_await train::convert(halves, bucket.data, 1.0 / c.size(), in);
    co_await train::all_reduce(c, halves, reduce_kind::sum, in);
    co_await train::convert(bucket.data, halves, 1, in);
  }

 private:
  std::map<std::size_t, device_buffer<Half>>
      memory_;  // of each bucket; a node does not move when others come
};

}  // namespace

std::shared_ptr<gradient_hook> identity_hook() { return std::make_shared<identity>(); }
std::shared_ptr<gradient_hook> float16_hook() { return std::make_shared<compressed<float16>>(); }
std::shared_ptr<gradient_hook> bfloat16_hook() { return std::make_shared<compressed<bfloat16>>(); }

}  // namespace tutti::gpu

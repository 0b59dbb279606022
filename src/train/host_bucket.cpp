// SPDX-License-Identifier: Apache-2.0
// A bucket of gradients in host memory.
#include <tutti/train/data_parallel.hpp>

#include <algorithm>
#include <cstring>
#include <tutti/error.hpp>
#include <tutti/shared_memory.hpp>
#include <utility>

namespace tutti {
namespace {

class host_bucket final : public detail::bucket {
 public:
  host_bucket(std::vector<detail::registered_gradient> gradients,
              const std::shared_ptr<detail::any_gradient_hook>& hook)
      : bucket(std::move(gradients)), hook_(std::dynamic_pointer_cast<gradient_hook>(hook)) {
    if (hook && !hook_)
      throw error(errc::invalid_argument,
                  "data_parallel: the hook is for memory of a device, and the gradients are in host memory; "
                  "take the hook of this name in namespace tutti");
    if (!in_place_) {
      packed_.resize(all_.count);
      all_.data = packed_.data();
    }
    parts_ = views_at(static_cast<float*>(all_.data));
  }

  void check(const gpu::stream* s) const override {
    if (s != nullptr)
      throw error(errc::invalid_argument, "data_parallel: gradients in host memory take no stream");
  }
  task<> all_reduce(communicator c, bool sum) override {
    if (sum)
      co_await c.all_reduce(data(), tutti::sum);
    else
      co_await c.all_reduce(data(), avg);
  }
  task<> apply_hook(communicator c, std::size_t index) override {
    return hook_->reduce(std::move(c), {index, data(), parts_});
  }
  task<> multiply(double factor) override {
    for (float& x : data()) x = factor == 0 ? 0 : x * static_cast<float>(factor);
    co_return;
  }
  void unpack(const gpu::stream*) override { copy(true); }
  void clear(const gpu::stream*) override {
    for (const detail::registered_gradient& g : gradients_) std::memset(g.values.data, 0, g.values.bytes());
  }

 private:
  std::span<float> data() const noexcept { return {static_cast<float*>(all_.data), all_.count}; }
  void pack() override { copy(false); }
  void copy(bool back) noexcept {
    if (in_place_) return;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      void *const gradient = gradients_[i].values.data, *const part = parts_[i].values.data();
      std::memcpy(back ? gradient : part, back ? part : gradient, gradients_[i].values.bytes());
    }
  }

  const std::shared_ptr<gradient_hook> hook_;
  shared_vector<float> packed_;       // other ranks of this host read it in place
  std::vector<gradient_view> parts_;  // of data()
};

}  // namespace

detail::gradient_memory memory_of(const std::vector<gradient_view>& gradients) {
  detail::gradient_memory memory;
  for (const gradient_view& g : gradients)
    memory.gradients.push_back({detail::view_of(g.values), g.rows, nullptr});
  memory.make =
      [](const communicator&, std::vector<detail::registered_gradient> all,
         const std::shared_ptr<detail::any_gradient_hook>& hook) -> std::unique_ptr<detail::bucket> {
    return std::make_unique<host_bucket>(std::move(all), hook);
  };
  return memory;
}

}  // namespace tutti

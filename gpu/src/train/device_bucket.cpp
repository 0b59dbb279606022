// SPDX-License-Identifier: Apache-2.0
// A bucket of gradients in memory of a device. It has a stream of its own.
#include "comm/communicator_devices.hpp"
#include "train/bucket_work.hpp"

#include <algorithm>
#include <tutti/error.hpp>
#include <tutti/gpu/data_parallel.hpp>
#include <utility>

namespace tutti::gpu {
namespace {

using tutti::detail::registered_gradient;

class device_bucket final : public tutti::detail::bucket {
 public:
  device_bucket(std::vector<registered_gradient> gradients, const device& on,
                const std::shared_ptr<tutti::detail::any_gradient_hook>& hook)
      : bucket(std::move(gradients)),
        hook_(std::dynamic_pointer_cast<gradient_hook>(hook)),
        host_hook_(std::dynamic_pointer_cast<tutti::gradient_hook>(hook)),
        own_(on, true) {
    if (host_hook_) {
      if (all_.type != element_type::float32)
        throw error(errc::invalid_argument,
                    "data_parallel: the hook averages floats only; take a hook of namespace tutti::gpu");
      copy_ = detail::allocate(on, all_.bytes(), memory_kind::pinned);
      parts_ = views_at(static_cast<float*>(copy_->data));
    }
    std::shared_ptr<const void> keep = std::make_shared<const std::vector<registered_gradient>>(gradients_);
    if (!in_place_) {
      const auto packed = detail::allocate(on, all_.bytes(), memory_kind::device);
      all_.data = packed->data;
      keep = packed;
    }
    data_ = device_values(detail::view{all_, std::move(keep)});
  }

  void check(const stream* s) const override {
    own_.on().state().check();
    if (s == nullptr || !*s || s->on().shared_state() != own_.on().shared_state())
      throw error(errc::invalid_argument,
                  "data_parallel: the gradients are on a device; name a stream of " + own_.on().name());
  }
  task<> all_reduce(communicator c, bool sum) override {
    return train::all_reduce(std::move(c), data_, sum ? reduce_kind::sum : reduce_kind::avg, own_);
  }
  task<> apply_hook(communicator c, std::size_t index) override {
    if (hook_) return hook_->reduce(std::move(c), gradient_bucket(index, data_), own_);
    return apply_on_host(std::move(c), index);
  }
  task<> multiply(double factor) override {
    return factor == 0 ? set_to_zero() : train::convert(data_, data_, factor, own_);
  }
  void unpack(const stream* on) override {
    copy(true);
    on->wait(own_);
  }
  void clear(const stream* on) override {
    detail::stream_state& s = *on->state();
    for (const registered_gradient& g : gradients_)
      s.on().driver().fill(g.values.data, std::byte{0}, g.values.bytes(), s.native());
    keep_gradients(s);
  }

 private:
  task<> set_to_zero() {
    detail::stream_state& s = *own_.state();
    s.on().driver().fill(data_.data(), std::byte{0}, data_.bytes(), s.native());
    s.keep({data_.view().keep});
    co_return;
  }
  task<> apply_on_host(communicator c, std::size_t index) {
    detail::stream_state& s = *own_.state();
    s.on().driver().copy(copy_->data, data_.data(), data_.bytes(), s.native());
    s.keep({copy_, data_.view().keep});
    co_await own_.reached();
    const tutti::gradient_bucket b{index, {static_cast<float*>(copy_->data), data_.size()}, parts_};
    co_await host_hook_->reduce(std::move(c), b);
    s.on().driver().copy(data_.data(), copy_->data, data_.bytes(), s.native());
    s.keep({copy_, data_.view().keep});
  }
  void follow(const stream* after) override {
    const bool known = std::any_of(after_.begin(), after_.end(),
                                   [&](const stream& s) { return s.state() == after->state(); });
    if (!known) after_.push_back(*after);
  }
  void pack() override {
    for (const stream& s : after_) own_.wait(s);
    after_.clear();
    copy(false);
  }
  void copy(bool back) {
    if (in_place_) return;
    detail::stream_state& s = *own_.state();
    auto* part = static_cast<std::byte*>(data_.data());
    for (const registered_gradient& g : gradients_) {
      const std::size_t bytes = g.values.bytes();
      s.on().driver().copy(back ? g.values.data : part, back ? part : g.values.data, bytes, s.native());
      part += bytes;
    }
    keep_gradients(s);
  }
  // Until the device has passed what is in `s` now.
  void keep_gradients(detail::stream_state& s) const {
    detail::keeps alive{data_.view().keep};
    for (const registered_gradient& g : gradients_) alive.push_back(g.keep);
    s.keep(std::move(alive));
  }

  const std::shared_ptr<gradient_hook> hook_;
  const std::shared_ptr<tutti::gradient_hook> host_hook_;
  std::shared_ptr<detail::allocation> copy_;  // for host_hook_
  std::vector<gradient_view> parts_;          // of copy_
  const stream own_;
  device_values data_{detail::view{}};
  std::vector<stream> after_;  // where its gradients are computed
};

}  // namespace

tutti::detail::gradient_memory memory_of(const std::vector<device_values>& gradients) {
  tutti::detail::gradient_memory memory;
  for (const device_values& g : gradients) memory.gradients.push_back({g.view(), g.rows(), g.view().keep});
  memory.make = [](const communicator& c, std::vector<registered_gradient> all,
                   const std::shared_ptr<tutti::detail::any_gradient_hook>& hook)
      -> std::unique_ptr<tutti::detail::bucket> {
    return std::make_unique<device_bucket>(std::move(all), device(detail::world_devices::of(c).on), hook);
  };
  memory.takes_turns = true;
  return memory;
}

task<> broadcast_pieces(communicator c, std::vector<device_values> pieces, int root, stream after) {
  std::vector<request> moving;
  for (const device_values& piece : pieces)
    moving.push_back(train::in_place(tutti::detail::operation_kind::broadcast, c, piece, after, root));
  for (request& m : moving) co_await m;
}

}  // namespace tutti::gpu

// SPDX-License-Identifier: Apache-2.0
// data_parallel on a device: buckets of gradients, gradient hooks, and the comparison of replicas.
#include <tutti/gpu/data_parallel.hpp>

#include "comm/communicator_devices.hpp"
#include "kernels/host_kernels.hpp"

#include <algorithm>
#include <boost/asio/detached.hpp>
#include <map>
#include <span>
#include <tutti/compute.hpp>
#include <tutti/error.hpp>
#include <tutti/half.hpp>
#include <utility>

namespace tutti::gpu {
namespace {

using tutti::bucketing::registered_gradient;

constexpr std::size_t bytes_hashed_at_a_time = std::size_t{4} << 20;  // of whole words, as hash_of() has them

// ---- what is done to a bucket, whose type is known at run time only ----

// Starts a collective of all of it, in place, after the work on `after`.
request in_place(tutti::extend::operation_kind kind, const communicator& c, const device_values& inout,
                 const stream& after, int root, reduce_kind op = reduce_kind::none) {
  tutti::extend::call what(kind, tutti::extend::reference_to(c));
  what.in = what.out = inout.view();
  what.peer = root;
  what.op.kind = op;
  what.part = after.part_of(inout.view().keep);
  return request(std::move(what));
}

// Reduces all of it, in place, in the order of `in`. Completes when `in` waits for the result. Destroyed before, it
// cancels the collective on all ranks.
task<> reduce_bucket(communicator c, device_values inout, reduce_kind op, stream in) {
  request reducing = in_place(tutti::extend::operation_kind::all_reduce, c, inout, in, 0, op);
  const bool follows = co_await in.follow(reducing);
  if (!follows || reducing.done()) {
    co_await reducing;
  } else {
    reducing(boost::asio::detached);
  }
}

// to = from * factor in the order of `in`; completes when that is enqueued. Where there is no kernel for it,
// by the processor. A factor of 0 gives zeros, also of what is not finite.
task<> convert_bucket(device_values to, device_values from, double factor, stream in) {
  impl::stream_state& s = *in.state();
  impl::driver& d = s.on().driver();
  const kernels::kernel* const kernel = kernels::find_conversion(from.type(), to.type());
  if (factor == 0) d.fill(to.data(), std::byte{0}, to.bytes(), s.native());
  if (factor == 0 ||
      d.launch(kernel, kernels::conversion(from.data(), to.data(), factor, from.size()), s.native())) {
    s.keep({from.view().keep, to.view().keep});
    co_return;
  }
  const auto source = s.on().pinned().take(from.bytes()), result = s.on().pinned().take(to.bytes());
  d.copy(source->data, from.data(), from.bytes(), s.native());
  s.keep({source, from.view().keep});
  co_await in.reached();
  const auto work = [&] {
    kernel->on_host(kernels::conversion(source->data, result->data, factor, from.size()));
  };
  co_await tutti::compute(work);
  d.copy(to.data(), result->data, to.bytes(), s.native());
  s.keep({result, to.view().keep});
}

// ---- buckets ----

// A bucket of gradients in memory of a device. It has a stream of its own.
class device_bucket final : public tutti::bucketing::bucket {
 public:
  device_bucket(std::vector<registered_gradient> gradients, const device& on,
                const std::shared_ptr<tutti::bucketing::any_gradient_hook>& hook)
      : bucket(std::move(gradients)),
        hook_(std::dynamic_pointer_cast<gradient_hook>(hook)),
        host_hook_(std::dynamic_pointer_cast<tutti::gradient_hook>(hook)),
        own_(on, true) {
    if (host_hook_) {
      if (all_.type != element_type::float32)
        throw error(errc::invalid_argument,
                    "data_parallel: the hook averages floats only; take a hook of namespace tutti::gpu");
      copy_ = impl::allocate(on, all_.bytes(), memory_kind::pinned);
      parts_ = views_at(static_cast<float*>(copy_->data));
    }
    std::shared_ptr<const void> keep = std::make_shared<const std::vector<registered_gradient>>(gradients_);
    if (!in_place_) {
      const auto packed = impl::allocate(on, all_.bytes(), memory_kind::device);
      all_.data = packed->data;
      keep = packed;
    }
    data_ = device_values(impl::view{all_, std::move(keep)});
  }

  void check(const extend::stream* after) const override {
    own_.on().state().check();
    const auto* const s = dynamic_cast<const stream*>(after);
    if (s == nullptr || !*s || s->on().shared_state() != own_.on().shared_state())
      throw error(errc::invalid_argument,
                  "data_parallel: the gradients are on a device; name a stream of " + own_.on().name());
  }
  task<> all_reduce(communicator c, bool sum) override {
    return reduce_bucket(std::move(c), data_, sum ? reduce_kind::sum : reduce_kind::avg, own_);
  }
  task<> apply_hook(communicator c, std::size_t index) override {
    if (hook_) return hook_->reduce(std::move(c), gradient_bucket(index, data_), own_);
    return apply_on_host(std::move(c), index);
  }
  task<> multiply(double factor) override { return convert_bucket(data_, data_, factor, own_); }
  void unpack(const extend::stream* on) override {
    copy(true);
    checked(on).wait(own_);
  }
  void clear(const extend::stream* on) override {
    impl::stream_state& s = *checked(on).state();
    for (const registered_gradient& g : gradients_)
      s.on().driver().fill(g.values.data, std::byte{0}, g.values.bytes(), s.native());
    keep_gradients(s);
  }

 private:
  // A stream that check() has accepted.
  static const stream& checked(const extend::stream* s) { return static_cast<const stream&>(*s); }
  task<> apply_on_host(communicator c, std::size_t index) {
    impl::stream_state& s = *own_.state();
    s.on().driver().copy(copy_->data, data_.data(), data_.bytes(), s.native());
    s.keep({copy_, data_.view().keep});
    co_await own_.reached();
    const tutti::gradient_bucket b{index, {static_cast<float*>(copy_->data), data_.size()}, parts_};
    co_await host_hook_->reduce(std::move(c), b);
    s.on().driver().copy(data_.data(), copy_->data, data_.bytes(), s.native());
    s.keep({copy_, data_.view().keep});
  }
  void follow(const extend::stream* after) override {
    const stream& followed = checked(after);
    const bool known = std::any_of(after_.begin(), after_.end(),
                                   [&](const stream& s) { return s.state() == followed.state(); });
    if (!known) after_.push_back(followed);
  }
  void pack() override {
    for (const stream& s : after_) own_.wait(s);
    after_.clear();
    copy(false);
  }
  void copy(bool back) {
    if (in_place_) return;
    impl::stream_state& s = *own_.state();
    auto* part = static_cast<std::byte*>(data_.data());
    for (const registered_gradient& g : gradients_) {
      const std::size_t bytes = g.values.bytes();
      s.on().driver().copy(back ? g.values.data : part, back ? part : g.values.data, bytes, s.native());
      part += bytes;
    }
    keep_gradients(s);
  }
  // Until the device has passed what is in `s` now.
  void keep_gradients(impl::stream_state& s) const {
    impl::keeps alive{data_.view().keep};
    for (const registered_gradient& g : gradients_) alive.push_back(g.keep);
    s.keep(std::move(alive));
  }

  const std::shared_ptr<gradient_hook> hook_;
  const std::shared_ptr<tutti::gradient_hook> host_hook_;
  std::shared_ptr<impl::allocation> copy_;  // for host_hook_
  std::vector<gradient_view> parts_;        // of copy_
  const stream own_;
  device_values data_{impl::view{}};
  std::vector<stream> after_;  // where its gradients are computed
};

// ---- hooks ----

class identity final : public gradient_hook {
 public:
  task<> reduce(communicator c, gradient_bucket bucket, stream in) override {
    return reduce_bucket(std::move(c), bucket.data, reduce_kind::avg, std::move(in));
  }
};

template <class Half>
class compressed final : public gradient_hook {
 public:
  task<> reduce(communicator c, gradient_bucket bucket, stream in) override {
    if (tutti::extend::is_half(bucket.data.type())) {
      co_await reduce_bucket(c, bucket.data, reduce_kind::avg, in);
      co_return;
    }
    device_buffer<Half>& memory = memory_[bucket.index];
    if (memory.size() != bucket.data.size()) memory = device_buffer<Half>(in.on(), bucket.data.size());
    const device_values halves(memory);
    co_await convert_bucket(halves, bucket.data, 1.0 / c.size(), in);
    co_await reduce_bucket(c, halves, reduce_kind::sum, in);
    co_await convert_bucket(bucket.data, halves, 1, in);
  }

 private:
  std::map<std::size_t, device_buffer<Half>>
      memory_;  // of each bucket; a node does not move when others come
};

}  // namespace

tutti::bucketing::gradient_memory memory_of(const std::vector<device_values>& gradients) {
  tutti::bucketing::gradient_memory memory;
  for (const device_values& g : gradients) memory.gradients.push_back({g.view(), g.rows(), g.view().keep});
  memory.make = [](const communicator& c, std::vector<registered_gradient> all,
                   const std::shared_ptr<tutti::bucketing::any_gradient_hook>& hook)
      -> std::unique_ptr<tutti::bucketing::bucket> {
    return std::make_unique<device_bucket>(std::move(all), device(impl::world_devices::of(c).on), hook);
  };
  memory.takes_turns = true;
  return memory;
}

task<> broadcast_pieces(communicator c, std::vector<device_values> pieces, int root, stream after) {
  std::vector<request> moving;
  for (const device_values& piece : pieces)
    moving.push_back(in_place(tutti::extend::operation_kind::broadcast, c, piece, after, root));
  for (request& m : moving) co_await m;
}

std::shared_ptr<gradient_hook> identity_hook() { return std::make_shared<identity>(); }
std::shared_ptr<gradient_hook> float16_hook() { return std::make_shared<compressed<float16>>(); }
std::shared_ptr<gradient_hook> bfloat16_hook() { return std::make_shared<compressed<bfloat16>>(); }

task<replica_check> compare_replicas(communicator c, std::vector<device_values> pieces, stream after) {
  std::uint64_t hash = hash_of({});
  std::size_t most = 0;
  for (const device_values& piece : pieces)
    most = std::max(most, std::min(piece.bytes(), bytes_hashed_at_a_time));
  const pinned_buffer<std::byte> part(after.on(), most);
  for (const device_values& piece : pieces) {
    const device_span<std::byte> bytes(static_cast<std::byte*>(piece.data()), piece.bytes());
    for (std::size_t at = 0; at < bytes.size(); at += bytes_hashed_at_a_time) {
      const std::size_t n = std::min(bytes_hashed_at_a_time, bytes.size() - at);
      co_await after.download(part, bytes.subspan(at, n));
      hash = hash_of(std::span<const std::byte>(part.data(), n), hash);
    }
  }
  replica_check check = co_await compare_hashes(std::move(c), hash);
  co_return check;
}

}  // namespace tutti::gpu

// SPDX-License-Identifier: Apache-2.0
#include <tutti/gpu/data_parallel.hpp>

#include "comm/communicator_devices.hpp"
#include "train/bucket_work.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <span>
#include <tutti/error.hpp>
#include <tutti/scope.hpp>
#include <utility>

namespace tutti::gpu {
namespace {

constexpr std::size_t bytes_hashed_at_a_time = std::size_t{4} << 20;  // of whole words, as hash_of() has them

// Equal where the same buckets are made.
std::uint64_t layout_of(const std::vector<device_values>& gradients, const data_parallel_options& o) {
  if (gradients.empty()) throw error(errc::invalid_argument, "data_parallel: no gradients are registered");
  std::vector<std::uint64_t> numbers{o.first_bucket_bytes, o.bucket_bytes};
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].size() == 0)
      throw error(errc::invalid_argument, fmt::format("data_parallel: gradient {} has no elements", i));
    numbers.push_back(gradients[i].size());
    numbers.push_back(static_cast<std::uint64_t>(gradients[i].type()));
  }
  return hash_of(std::as_bytes(std::span(numbers)));
}

bool lie_together(const std::vector<device_values>& all) {
  for (std::size_t i = 1; i < all.size(); ++i)
    if (all[i].data() != static_cast<std::byte*>(all[i - 1].data()) + all[i - 1].bytes()) return false;
  return true;
}

// The memory of all of them, or some of their size.
device_values memory_for(const std::vector<device_values>& gradients, bool together, const device& on) {
  detail::view all = gradients.front().view();
  std::vector<std::shared_ptr<const void>> owners;
  std::size_t bytes = 0;
  all.count = 0;
  for (const device_values& g : gradients) {
    all.count += g.size();
    bytes += g.bytes();
    owners.push_back(g.view().keep);
  }
  if (together) {
    all.keep = std::make_shared<std::vector<std::shared_ptr<const void>>>(std::move(owners));
  } else {
    const device_buffer<std::byte> packed(on, bytes);
    all.data = packed.data();
    all.keep = packed.memory();
  }
  return device_values(std::move(all));
}

class bucket {
 public:
  bucket(std::vector<device_values> gradients, const device& on)
      : gradients_(std::move(gradients)),
        in_place_(lie_together(gradients_)),
        data_(memory_for(gradients_, in_place_, on)),
        own_(on, true),
        missing_(gradients_.size()) {}
  bucket(const bucket&) = delete;
  bucket& operator=(const bucket&) = delete;

  const device_values& data() const noexcept { return data_; }
  const stream& own() const noexcept { return own_; }
  bool is_complete() const noexcept { return missing_ == 0; }
  // True for the last of its gradients.
  bool count(const stream& after) {
    const bool known = std::any_of(after_.begin(), after_.end(),
                                   [&](const stream& s) { return s.state() == after.state(); });
    if (!known) after_.push_back(after);
    return --missing_ == 0;
  }
  // Enqueued in its own stream: after what computes its gradients, and from their memory; and back.
  void pack() {
    for (const stream& s : after_) own_.wait(s);
    if (!in_place_) copy(false);
  }
  void unpack() {
    if (!in_place_) copy(true);
  }
  void reset() noexcept {
    missing_ = gradients_.size();
    after_.clear();
  }

 private:
  void copy(bool back) {
    detail::stream_state& s = *own_.state();
    std::byte* at = static_cast<std::byte*>(data_.data());
    detail::keeps alive{data_.view().keep};
    for (const device_values& g : gradients_) {
      void* const part = std::exchange(at, at + g.bytes());
      s.on().driver().copy(back ? g.data() : part, back ? part : g.data(), g.bytes(), s.native());
      alive.push_back(g.view().keep);
    }
    s.keep(std::move(alive));
  }

  const std::vector<device_values> gradients_;
  const bool in_place_;
  const device_values data_;
  const stream own_;
  std::vector<stream> after_;  // where its gradients are computed
  std::size_t missing_;
};

}  // namespace

struct data_parallel::state {
  state(communicator c, device d, std::vector<device_values> gradients, data_parallel_options o)
      : over(std::move(c)),
        on(std::move(d)),
        options(std::move(o)),
        bucket_of(gradients.size()),
        marked(gradients.size()) {
    std::size_t end = gradients.size();
    while (end > 0) {
      const std::size_t limit = buckets.empty() ? options.first_bucket_bytes : options.bucket_bytes;
      std::size_t begin = end, bytes = 0;
      while (begin > 0 &&
             (begin == end || (bytes < limit && gradients[begin - 1].type() == gradients[begin].type())))
        bytes += gradients[--begin].bytes();
      const auto from = gradients.begin() + static_cast<std::ptrdiff_t>(begin);
      std::fill(bucket_of.begin() + static_cast<std::ptrdiff_t>(begin),
                bucket_of.begin() + static_cast<std::ptrdiff_t>(end), buckets.size());
      buckets.emplace_back(std::vector<device_values>(from, from + static_cast<std::ptrdiff_t>(end - begin)),
                           on);
      end = begin;
    }
  }

  void check(const stream& s, const char* what) const {
    if (!s || s.on().shared_state() != on.shared_state())
      throw error(errc::invalid_argument,
                  fmt::format("data_parallel: {} with a stream that is none of {}", what, on.name()));
  }

  void mark(std::size_t i, const stream& after) {
    if (i >= marked.size())
      throw error(
          errc::invalid_argument,
          fmt::format("data_parallel: gradient {} is ready, but {} are registered", i, marked.size()));
    if (marked[i])
      throw error(errc::invalid_argument,
                  fmt::format("data_parallel: gradient {} was ready already in this step: await reduced() "
                              "before the next, or keep no_sync() while several add up",
                              i));
    marked[i] = true;
    bucket& b = buckets[bucket_of[i]];
    if (b.count(after)) b.pack();
  }

  // Every bucket whose turn it is.
  void launch() {
    if (options.hook) {
      if (!in_hooks && next_is_complete()) reductions->spawn(run_hooks(this));
    } else {
      while (next_is_complete()) reductions->spawn(average(this, next++));
    }
  }
  bool next_is_complete() const { return next < buckets.size() && buckets[next].is_complete(); }

  static task<> average(state* s, std::size_t i) {
    bucket& b = s->buckets[i];
    request reducing =
        train::all_reduce(s->over, b.data(), s->options.sum ? reduce_kind::sum : reduce_kind::avg, b.own());
    co_await train::enqueued_before(std::move(reducing), b.own());
    b.unpack();
  }

  // One after the other: the order of their collectives is the same on all ranks.
  static task<> run_hooks(state* s) {
    s->in_hooks = true;
    while (s->next_is_complete()) {
      const std::size_t i = s->next++;
      bucket& b = s->buckets[i];
      co_await s->options.hook->reduce(s->over, gradient_bucket(i, b.data()), b.own());
      if (s->options.sum) co_await train::convert(b.data(), b.data(), s->over.size(), b.own());
      b.unpack();
    }
    s->in_hooks = false;
  }

  void reset() {
    for (bucket& b : buckets) b.reset();
    std::fill(marked.begin(), marked.end(), false);
    reductions.emplace();
    next = 0;
  }

  const communicator over;
  const device on;
  const data_parallel_options options;
  std::deque<bucket> buckets;
  std::vector<std::size_t> bucket_of;
  bool unsynchronised = false;
  bool failed = false;

  // Of the step.
  std::vector<bool> marked;
  std::size_t next = 0;  // the first bucket that has not started
  bool in_hooks = false;
  std::optional<scope> reductions{std::in_place};  // last: its tasks use the rest
};

data_parallel::data_parallel() noexcept = default;
data_parallel::data_parallel(data_parallel&&) noexcept = default;
data_parallel& data_parallel::operator=(data_parallel&&) noexcept = default;
data_parallel::~data_parallel() = default;
data_parallel::data_parallel(std::shared_ptr<state> s) noexcept : state_(std::move(s)) {}

task<data_parallel> data_parallel::create(communicator world, std::vector<device_values> gradients,
                                          data_parallel_options o) {
  if (!world) throw error(errc::invalid_argument, "data_parallel: an empty communicator");
  device on(detail::world_devices::of(world).on);
  const std::uint64_t layout = layout_of(gradients, o);
  co_await tutti::detail::expect_one_layout(world, layout);
  communicator over = co_await world.duplicate();
  auto made = std::make_shared<state>(std::move(over), std::move(on), std::move(gradients), std::move(o));
  co_return data_parallel(std::move(made));
}

data_parallel::state& data_parallel::usable() const {
  if (!state_) throw error(errc::invalid_argument, "an empty data_parallel: create() makes one");
  if (state_->failed)
    throw error(errc::communicator_failed,
                "this data_parallel has failed before; create() another on a communicator that works");
  return *state_;
}

task<> data_parallel::broadcast(std::vector<device_values> pieces, int root, stream after) const {
  const communicator over = usable().over;
  std::deque<request> moving;
  for (const device_values& piece : pieces) moving.push_back(train::broadcast(over, piece, root, after));
  for (request& m : moving) co_await m;
}

void data_parallel::ready(std::size_t i, const stream& after) {
  state& s = usable();
  if (s.unsynchronised) return;
  s.check(after, "ready()");
  s.mark(i, after);
  s.launch();
}

task<> data_parallel::reduced(stream on) {
  state& s = usable();
  const std::shared_ptr<state> kept = state_;
  if (s.unsynchronised)
    throw error(errc::invalid_argument, "data_parallel: reduced() inside of no_sync(); end its scope first");
  s.check(on, "reduced()");
  std::exception_ptr failure;
  try {
    for (std::size_t i = 0; i < s.marked.size(); ++i)
      if (!s.marked[i]) s.mark(i, on);
    s.launch();
    co_await s.reductions->join();
    for (const bucket& b : s.buckets) on.wait(b.own());
    s.reset();
  } catch (...) {
    failure = std::current_exception();
  }
  if (failure) {
    s.failed = true;
    std::rethrow_exception(failure);
  }
}

std::size_t data_parallel::buckets() const noexcept { return state_ ? state_->buckets.size() : 0; }

data_parallel::unsynchronised::unsynchronised(data_parallel& of) noexcept : of_(of) {
  if (of_.state_) of_.state_->unsynchronised = true;
}
data_parallel::unsynchronised::~unsynchronised() {
  if (of_.state_) of_.state_->unsynchronised = false;
}

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

// SPDX-License-Identifier: Apache-2.0
#include <tutti/train/data_parallel.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/post.hpp>
#include <chrono>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <tutti/error.hpp>
#include <tutti/scope.hpp>
#include <tutti/shared_memory.hpp>
#include <tutti/train/replicas.hpp>
#include <utility>

namespace tutti {

bucketing::bucket::bucket(std::vector<registered_gradient> gradients)
    : gradients_(std::move(gradients)), all_(gradients_.front().values), missing_(gradients_.size()) {
  for (std::size_t i = 1; i < gradients_.size(); ++i) {
    const extend::buffer_view& next = gradients_[i].values;
    in_place_ = in_place_ && next.data == static_cast<std::byte*>(all_.data) + all_.bytes();
    all_.count += next.count;
  }
}

bool bucketing::bucket::count(const extend::stream* after) {
  follow(after);
  // Releases what this gradient's thread has written; the last acquires what all others have.
  if (missing_.fetch_sub(1, std::memory_order_acq_rel) != 1) return false;
  try {
    pack();
  } catch (...) {
    failure_ = std::current_exception();
  }
  complete_.store(true, std::memory_order_release);
  return true;
}

std::vector<gradient_view> bucketing::bucket::views_at(float* data) const {
  std::vector<gradient_view> views;
  for (const auto& [values, rows, keep] : gradients_) {
    views.emplace_back(std::span(data, values.count), rows);
    data += values.count;
  }
  return views;
}

void bucketing::bucket::reset() noexcept {
  complete_.store(false, std::memory_order_relaxed);
  missing_.store(gradients_.size(), std::memory_order_relaxed);
}

using clock = std::chrono::steady_clock;

namespace {

class host_bucket final : public bucketing::bucket {
 public:
  host_bucket(std::vector<bucketing::registered_gradient> gradients,
              const std::shared_ptr<bucketing::any_gradient_hook>& hook)
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

  void check(const extend::stream* s) const override {
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
  void unpack(const extend::stream*) override { copy(true); }
  void clear(const extend::stream*) override {
    for (const bucketing::registered_gradient& g : gradients_)
      std::memset(g.values.data, 0, g.values.bytes());
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

// Equal for equal buckets and collectives of a step. Throws errc::invalid_argument.
std::uint64_t layout_of(const std::vector<bucketing::registered_gradient>& gradients,
                        const data_parallel_options& o) {
  if (gradients.empty()) throw error(errc::invalid_argument, "data_parallel: no gradients are registered");
  const bool on_host = std::dynamic_pointer_cast<gradient_hook>(o.hook) != nullptr;
  std::vector<std::uint64_t> numbers{
      o.first_bucket_bytes, o.bucket_bytes, o.hook != nullptr, on_host, o.sum, o.uneven};
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const auto& [values, rows, keep] = gradients[i];
    if (values.count == 0 || rows == 0 || values.count % rows != 0)
      throw error(
          errc::invalid_argument,
          fmt::format("data_parallel: gradient {} has {} elements and {} rows", i, values.count, rows));
    numbers.insert(numbers.end(), {values.count, rows, static_cast<std::uint64_t>(values.type)});
  }
  return hash_of(std::as_bytes(std::span(numbers))) >> 1 | 1;  // never 0, and 63 bits
}

double in_seconds(clock::duration d) { return std::chrono::duration<double>(d).count(); }

// Throws errc::mismatch on all ranks unless all have registered gradients of one layout (0: not known). Then throws
// `refused` on ranks that have it, and errc::mismatch on the others. Collective.
task<> expect_one_layout(communicator c, std::uint64_t layout, std::exception_ptr refused) {
  std::vector<std::uint64_t> all(static_cast<std::size_t>(c.size()));
  const std::uint64_t mine = layout << 1 | (refused ? 1 : 0);
  co_await c.all_gather(mine, all);
  std::vector<std::size_t> others;
  std::optional<std::size_t> refuses;
  std::size_t first = 0;  // the first rank that has a layout
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[first] >> 1 == 0) first = r;
    if (all[r] >> 1 != 0 && all[r] >> 1 != all[first] >> 1) others.push_back(r);
    if ((all[r] & 1) != 0) refuses = r;
  }
  if (!others.empty())
    throw error(
        errc::mismatch,
        fmt::format(
            "data_parallel: rank {} registered other gradients, or passed other options, than rank {}: all "
            "ranks make the same model with the same options and a hook of the same kind, or none",
            fmt::join(others, ", "), first));
  if (refused) std::rethrow_exception(refused);
  if (refuses)
    throw error(
        errc::mismatch,
        fmt::format("data_parallel: create() was refused on rank {}, whose error says why", *refuses));
}

bool has_float16(const bucketing::gradient_memory& memory) {
  return std::ranges::any_of(memory.gradients, [](const bucketing::registered_gradient& g) {
    return g.values.type == element_type::float16;
  });
}

}  // namespace

bucketing::gradient_memory memory_of(const std::vector<gradient_view>& gradients) {
  bucketing::gradient_memory memory;
  for (const gradient_view& g : gradients)
    memory.gradients.push_back({extend::view_of(g.values), g.rows, nullptr});
  memory.make =
      [](const communicator&, std::vector<bucketing::registered_gradient> all,
         const std::shared_ptr<bucketing::any_gradient_hook>& hook) -> std::unique_ptr<bucketing::bucket> {
    return std::make_unique<host_bucket>(std::move(all), hook);
  };
  return memory;
}

data_parallel_options::data_parallel_options() = default;

double averaging_times::overlap() const noexcept {
  return communication_seconds > 0 ? std::clamp(1 - exposed_seconds / communication_seconds, 0.0, 1.0) : 0;
}

struct data_parallel::state : std::enable_shared_from_this<state> {
  state(communicator c, bucketing::gradient_memory memory, data_parallel_options o)
      : world(std::move(c)),
        options(std::move(o)),
        has_channels(std::dynamic_pointer_cast<gradient_hook>(options.hook) != nullptr),
        in_turns(memory.takes_turns && !has_channels && (options.hook || options.uneven)),
        needs_weights(options.uneven && (options.hook || (!options.sum && has_float16(memory)))),
        bucket_of(memory.gradients.size()),
        marked(std::make_unique<std::atomic<bool>[]>(memory.gradients.size())) {
    make_buckets(memory);
  }

  // Of one element type each, from the last gradient to the first. Throws errc::invalid_argument.
  void make_buckets(const bucketing::gradient_memory& memory) {
    const std::vector<bucketing::registered_gradient>& all = memory.gradients;
    std::size_t end = all.size();
    while (end > 0) {
      const std::size_t limit = buckets.empty() ? options.first_bucket_bytes : options.bucket_bytes;
      std::size_t begin = end, size = 0;
      while (begin > 0 &&
             (begin == end || (size < limit && all[begin - 1].values.type == all[begin].values.type)))
        size += all[--begin].values.bytes();
      // In the order of registration: gradients that are adjacent in memory are reduced in place.
      const auto from = all.begin() + static_cast<std::ptrdiff_t>(begin);
      for (std::size_t i = begin; i < end; ++i) bucket_of[i] = buckets.size();
      buckets.push_back(
          memory.make(world, {from, from + static_cast<std::ptrdiff_t>(end - begin)}, options.hook));
      bytes += size;
      end = begin;
    }
  }

  void complete_all(const extend::stream* after) {
    for (std::size_t i = 0; i < bucket_of.size(); ++i)
      if (!marked[i].exchange(true, std::memory_order_acq_rel)) buckets[bucket_of[i]]->count(after);
  }

  // Starts every bucket whose turn it is, on the loop thread. A bucket that cannot be started ends the step.
  void launch() noexcept {
    if (trouble) return;
    try {
      // A call posted in the step before may come late; it must not begin this one.
      if (next == buckets.size() || !buckets[next]->is_complete()) return;
      if (!begun) begin(1, true);
      if (needs_weights && header_sum) return;  // know_weights() calls again
      while (next < buckets.size() && buckets[next]->is_complete() && !(in_turns && reducing)) {
        if (next == 0) first_start = clock::now();
        buckets[next]->rethrow_failure();
        reducing = true;
        reductions->spawn(reduce_bucket(*this, next++));
      }
    } catch (...) {
      trouble = std::current_exception();
      // The others wait for what this rank does not start.
      abort();
    }
  }
  void abort() {
    world.abort();
    for (communicator& c : channels) c.abort();
  }

  // The header's all_reduce is the first of a step on every rank.
  void begin(double weight, bool active) {
    if (options.uneven) {
      scale = weight;
      header = {active ? weight : 0, active ? 1.0 : 0.0};
      header_sum = start(world.all_reduce(header, tutti::sum));
    }
    begun = true;
    // join() awaits the sum itself.
    if (needs_weights && active) reductions->spawn(know_weights());
  }

  // Hooks and averages are over all ranks, including those without batches. Scaling by weight * ranks / sum
  // of weights makes that the weighted average, of numbers of the size of gradients: float16 ends at 65,504.
  task<> know_weights() {
    co_await header_sum;
    if (header[0] > 0) scale = scale / header[0] * world.size();
    launch();
  }

  // Waits for all bucket tasks, and the header's sum.
  task<> finish(const extend::stream* on) {
    if (!trouble) co_await reductions->join();
    if (trouble) std::rethrow_exception(trouble);
    if (header_sum) co_await header_sum;
    const double weights = options.uneven ? header[0] : world.size();
    double factor = 1;
    if (weights > 0 && options.hook && options.sum) factor = weights;  // hooks average
    if (weights > 0 && options.uneven && !needs_weights && !options.sum) factor = 1 / weights;
    for (const auto& b : buckets) {
      if (factor != 1) co_await b->multiply(factor);
      b->unpack(on);
    }
    reset();
  }

  // Ends a step on all ranks if its coroutine is destroyed, or fails, before its end.
  struct step {
    explicit step(state& s) noexcept : of(s) { of.in_step = true; }
    step(const step&) = delete;
    ~step() {
      if (!of.in_step) return;
      of.in_step = false;
      of.failed = true;
      of.abort();
      of.reductions.emplace();
      of.header_sum = {};
    }
    state& of;
  };

  void reset() {
    for (const auto& b : buckets) b->reset();
    for (std::size_t i = 0; i < bucket_of.size(); ++i) marked[i].store(false, std::memory_order_relaxed);
    reductions.emplace();
    header_sum = {};
    next = 0;
    begun = in_step = false;
    scale = 1;
  }

  communicator world;                  // duplicates of the program's
  std::vector<communicator> channels;  // of each bucket, for a gradient_hook
  const data_parallel_options options;
  const bool has_channels, in_turns, needs_weights;
  std::vector<std::unique_ptr<bucketing::bucket>> buckets;
  std::vector<std::size_t> bucket_of;           // of each gradient
  std::unique_ptr<std::atomic<bool>[]> marked;  // gradients that are complete
  std::size_t bytes = 0;
  int unsynchronised = 0;  // guards that live
  bool in_step = false;    // reduced() or join_step() has not ended
  bool failed = false;
  std::exception_ptr trouble;

  // Of the step.
  // What ranks reduce at the start of each uneven step: (weight, 1), or (0, 0) without batches. The sum tells the
  // weights, and whether any rank has batches left. For floats without a hook it is read only after the buckets,
  // so it costs no wait.
  // A rank without batches adds zeros and gets the average like the others. So its replica stays the same, and no
  // final broadcast is needed.
  std::array<double, 2> header{};
  request header_sum;
  std::optional<scope> reductions{std::in_place};
  std::size_t next = 0;   // the first bucket that has not started
  bool reducing = false;  // a bucket has its turn
  bool begun = false;
  double scale = 1;  // factor of this rank's gradients before they are sent
  clock::time_point first_start, last_end;
  averaging_times times;
};

data_parallel::data_parallel() noexcept = default;
data_parallel::data_parallel(data_parallel&&) noexcept = default;
data_parallel& data_parallel::operator=(data_parallel&&) noexcept = default;
data_parallel::~data_parallel() = default;
data_parallel::data_parallel(std::shared_ptr<state> s) noexcept : state_(std::move(s)) {}

task<data_parallel> data_parallel::create_in(communicator c, bucketing::gradient_memory memory,
                                             data_parallel_options o) {
  if (!c) throw error(errc::invalid_argument, "data_parallel: an empty communicator");
  std::uint64_t layout = 0;
  std::shared_ptr<state> made;
  std::exception_ptr refused;
  try {
    layout = layout_of(memory.gradients, o);
    made = std::make_shared<state>(c, std::move(memory), std::move(o));
  } catch (const error& e) {
    if (e.code() != errc::invalid_argument) throw;
    refused = std::current_exception();
  }
  co_await expect_one_layout(c, layout, refused);
  made->world = co_await c.duplicate();
  for (std::size_t i = 0; made->has_channels && i < made->buckets.size(); ++i) {
    communicator channel = co_await c.duplicate();
    made->channels.push_back(std::move(channel));
  }
  co_return data_parallel(std::move(made));
}

data_parallel::state& data_parallel::usable() const {
  if (!state_) throw error(errc::invalid_argument, "an empty data_parallel: create() makes one");
  if (state_->in_step)
    throw error(errc::invalid_argument,
                "data_parallel: a step of it has not ended: await reduced() before any other call");
  if (state_->failed)
    throw error(errc::communicator_failed,
                "this data_parallel has failed before: create() another on a communicator that works");
  return *state_;
}

communicator data_parallel::averaged_over() const { return usable().world; }

task<> data_parallel::broadcast(std::vector<std::span<float>> pieces, int root) const {
  const communicator world = averaged_over();
  for (const std::span<float> piece : pieces) co_await world.broadcast(piece, root);
}

task<> data_parallel::reduce_bucket(state& s, std::size_t i) {
  bucketing::bucket& b = *s.buckets[i];
  if (s.scale != 1) co_await b.multiply(s.scale);
  if (s.options.hook)
    co_await b.apply_hook(s.has_channels ? s.channels[i] : s.world, i);
  else
    co_await b.all_reduce(s.world, s.options.sum || (s.options.uneven && !s.needs_weights));
  s.last_end = clock::now();
  s.reducing = false;
  if (s.in_turns) s.launch();
}

void data_parallel::mark(std::size_t i, const extend::stream* after) {
  state& s = usable();
  if (s.unsynchronised) return;
  if (i >= s.bucket_of.size())
    throw error(
        errc::invalid_argument,
        fmt::format("data_parallel: gradient {} is ready, but {} are registered", i, s.bucket_of.size()));
  bucketing::bucket& b = *s.buckets[s.bucket_of[i]];
  b.check(after);
  if (s.marked[i].exchange(true, std::memory_order_acq_rel))
    throw error(
        errc::invalid_argument,
        fmt::format("data_parallel: gradient {} was ready already in this step: await reduced() before "
                    "the next, or keep no_sync() while several add up",
                    i));
  if (!b.count(after)) return;
  const auto executor = s.world.get_executor();
  if (executor.running_in_this_thread()) {
    s.launch();
  } else {
    boost::asio::post(executor, [weak = s.weak_from_this()] {
      if (const auto still = weak.lock()) still->launch();
    });
  }
}

task<> data_parallel::reduce(const extend::stream* on) {
  state& s = usable();
  const std::shared_ptr<state> kept = state_;
  if (s.unsynchronised)
    throw error(errc::invalid_argument, "data_parallel: reduced() inside of no_sync(); end its scope first");
  s.buckets[0]->check(on);
  const auto called = clock::now();
  s.complete_all(on);
  s.launch();
  const state::step step(s);
  co_await s.finish(on);
  s.times.bytes = s.bytes;
  s.times.communication_seconds = in_seconds(s.last_end - s.first_start);
  s.times.exposed_seconds = std::max(0.0, in_seconds(s.last_end - std::max(called, s.first_start)));
}

void data_parallel::begin_step(double weight) {
  state& s = usable();
  // Far beyond, the products with gradients are infinite floats, or 0.
  const bool in_range = weight == 0 || (weight >= 1e-30 && weight <= 1e30);
  if (!s.options.uneven || s.begun || !in_range)
    throw error(errc::invalid_argument, std::string("data_parallel: begin_step: ") +
                                            (!s.options.uneven ? "for options::uneven only"
                                             : s.begun         ? "the step has begun already"
                                                       : "the weight is neither 0 nor from 1e-30 to 1e30"));
  s.begin(weight, true);
}

task<bool> data_parallel::join(const extend::stream* on) {
  state& s = usable();
  const std::shared_ptr<state> kept = state_;
  if (!s.options.uneven || s.begun)
    throw error(errc::invalid_argument,
                "data_parallel: join_step() is for options::uneven, and not within a step");
  s.buckets[0]->check(on);
  const state::step step(s);
  s.begin(0, false);
  co_await s.header_sum;
  s.header_sum = {};
  if (s.header[1] == 0) {
    s.reset();
    co_return false;
  }
  for (const auto& b : s.buckets) b->clear(on);
  s.complete_all(on);
  s.launch();
  co_await s.finish(on);
  co_return true;
}

std::size_t data_parallel::buckets() const noexcept { return state_ ? state_->buckets.size() : 0; }
averaging_times data_parallel::last() const noexcept { return state_ ? state_->times : averaging_times(); }

data_parallel::unsynchronised::unsynchronised(const data_parallel& of) noexcept : of_(of.state_) {
  if (of_) ++of_->unsynchronised;
}
data_parallel::unsynchronised::~unsynchronised() {
  if (of_) --of_->unsynchronised;
}

}  // namespace tutti

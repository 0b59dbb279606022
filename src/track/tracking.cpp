// SPDX-License-Identifier: Apache-2.0
// The public functions of tracking: from a user's call to a record in the queue.
#include <tutti/track.hpp>

#include "base/text.hpp"
#include "comm/identity.hpp"
#include "core/loop.hpp"
#include "track/event_encoding.hpp"
#include "track/machine_sample.hpp"
#include "track/record_queue.hpp"
#include "track/record_writer.hpp"
#include "track/run_facts.hpp"

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <tuple>
#include <tutti/counters.hpp>
#include <tutti/detail/deadline.hpp>
#include <tutti/error.hpp>
#include <utility>

namespace tutti::track {

using std::chrono::steady_clock;

options::options()
    : system_metrics(std::chrono::seconds(5)),
      heartbeat(std::chrono::seconds(2)),
      open_timeout(std::chrono::seconds(10)),
      finish_timeout(std::chrono::seconds(10)) {}

value::value(float v) : held_(base::to_number<double>(fmt::format("{}", v)).value_or(v)) {}

namespace detail {

// What the handles of one log share on the loop thread's side.
class owner {
 public:
  owner(std::shared_ptr<record_writer> r, communicator c, boost::asio::io_context::executor_type e,
        bool samples)
      : writer(std::move(r)),
        world(std::move(c)),
        executor(std::move(e)),
        samples_only(samples),
        loop_thread_(std::this_thread::get_id()) {}
  owner(const owner&) = delete;
  owner& operator=(const owner&) = delete;
  ~owner() {
    if (finishing) return;
    constexpr std::chrono::seconds patience(2);
    const auto deadline = steady_clock::now() + patience;
    writer->close("closed", deadline);
    writer->wait_for_end(deadline);
  }

  void push(std::string_view name, std::int64_t step, decltype(record::said) said) {
    writer->queue.push({std::string(name), step, seconds_since_1970(), std::move(said)});
    sample_messages();
  }

  // Since the last call; empty if not wanted.
  std::optional<usage> sample_process() {
    if (writer->options().system_metrics.count() == 0) return std::nullopt;
    const std::lock_guard lock(process_mutex_);
    return process_.take();
  }

  const std::shared_ptr<record_writer> writer;
  communicator world;  // empty once finishing, and without a communicator; used on the loop thread only
  const boost::asio::io_context::executor_type executor;
  bool finishing = false;  // likewise
  const bool samples_only;

  // A rank's counters can be read only on its loop thread: together with the rank's records there.
  void sample_messages() {
    const auto interval = writer->options().system_metrics;
    if (std::this_thread::get_id() != loop_thread_ || interval.count() == 0 || !world) return;
    const auto now = steady_clock::now();
    if (now < next_sample_) return;
    next_sample_ = now + interval;
    const counters n = counters_of(world);
    const double time = seconds_since_1970();
    const auto step = static_cast<std::int64_t>(time - writer->origin());
    for (const auto& [name, count] :
         {std::pair("communication/sends", n.sends), std::pair("communication/receives", n.receives),
          std::pair("communication/sleeps", n.parks), std::pair("communication/stalls", n.stalls)})
      writer->queue.push({name, step, time, static_cast<double>(count)});
  }

 private:
  const std::thread::id loop_thread_;
  steady_clock::time_point next_sample_ =
      tutti::detail::after(steady_clock::now(), writer->options().system_metrics);
  std::mutex process_mutex_;
  process_sampler process_;
};

}  // namespace detail

namespace {

// Number of this run on this rank of this communicator, from 0: the same on ranks that open runs in the same
// order.
std::uint64_t number_of_this_run(const comm::identity& who, const std::string& name) {
  static std::mutex mutex;
  static auto& opened =
      *new std::map<std::tuple<std::uint64_t, std::uint32_t, int, std::string>, std::uint64_t>;
  const std::lock_guard lock(mutex);
  return opened[{who.world, who.communicator, who.rank, name}]++;
}

// Tracking does not end a training: records without memory are counted.
template <class F>
void say(const std::shared_ptr<detail::owner>& owner, F said) noexcept {
  if (!owner) return;
  try {
    if (owner->samples_only) return owner->sample_messages();
    said(*owner);
  } catch (...) {
    owner->writer->queue.count_dropped();
  }
}

}  // namespace

log::operator bool() const noexcept { return owner_ && !owner_->samples_only; }

std::filesystem::path log::directory() const {
  return *this ? owner_->writer->directory() : std::filesystem::path();
}

void log::scalar(std::string_view name, std::int64_t step, double number) const noexcept {
  say(owner_, [&](detail::owner& o) { o.push(name, step, number); });
}

void log::text(std::string_view name, std::int64_t step, std::string_view value) const noexcept {
  say(owner_, [&](detail::owner& o) { o.push(name, step, std::string(value)); });
}

void log::histogram(std::string_view name, std::int64_t step, std::span<const float> values) const noexcept {
  say(owner_,
      [&](detail::owner& o) { o.push(name, step, std::vector<double>(values.begin(), values.end())); });
}

void log::histogram(std::string_view name, std::int64_t step, std::span<const double> values) const noexcept {
  say(owner_,
      [&](detail::owner& o) { o.push(name, step, std::vector<double>(values.begin(), values.end())); });
}

void log::image(std::string_view name, std::int64_t step, image_view p) const noexcept {
  say(owner_, [&](detail::owner& o) {
    if (!is_image(p.width, p.height, p.channels, p.samples.size())) return o.writer->queue.count_dropped();
    o.push(name, step, image_record{p.width, p.height, p.channels, {p.samples.begin(), p.samples.end()}});
  });
}

void log::hyperparameters(const hyperparameter_map& values) const noexcept {
  say(owner_, [&](detail::owner& o) { o.push({}, 0, values); });
}

void log::times(std::int64_t step, step_times seconds) const noexcept {
  scalar("time/compute", step, seconds.compute_seconds);
  scalar("time/communication", step, seconds.communication_seconds);
  scalar("time/waiting", step, seconds.waiting_seconds);
  const double communication = seconds.communication_seconds + seconds.hidden_seconds;
  if (seconds.hidden_seconds > 0) scalar("time/hidden", step, seconds.hidden_seconds);
  if (seconds.bytes > 0) {
    scalar("step/bytes", step, static_cast<double>(seconds.bytes));
    scalar("step/overlap", step, communication > 0 ? seconds.hidden_seconds / communication : 0);
  }
  say(owner_, [&](detail::owner& o) {
    const std::optional<usage> used = o.sample_process();
    if (!used) return;
    o.push("step/cpu_percent", step, used->busy_percent);
    o.push("step/memory_mib", step, used->memory_mib);
  });
}

void log::artifact(std::string_view name, std::span<const std::byte> bytes) const noexcept {
  say(owner_, [&](detail::owner& o) {
    if (!is_inside(name)) return o.writer->queue.count_dropped();
    o.push(name, 0, std::vector(bytes.begin(), bytes.end()));
  });
}

void log::artifact(std::string_view name, const std::filesystem::path& file) const noexcept {
  say(owner_, [&](detail::owner& o) {
    if (!is_inside(name)) return o.writer->queue.count_dropped();
    o.push(name, 0, std::filesystem::absolute(file));
  });
}

task<bool> log::room(std::chrono::milliseconds at_most) const {
  const std::shared_ptr<detail::owner> kept = owner_;
  if (!kept || kept->finishing) co_return true;
  const auto deadline = tutti::detail::after(steady_clock::now(), at_most);
  const bool there_is = co_await kept->writer->wait_until(&record_writer::has_room, kept->executor, deadline);
  co_return there_is;
}

totals log::so_far() const { return owner_ ? owner_->writer->totals() : totals(); }

task<totals> log::finish() const {
  const std::shared_ptr<detail::owner> kept = owner_;
  if (!kept) {
    totals nothing;
    nothing.complete = true;
    co_return nothing;
  }
  if (kept->finishing) co_return kept->writer->totals();
  kept->finishing = true;
  const communicator world = std::exchange(kept->world, {});  // until the end
  const auto deadline = tutti::detail::after(steady_clock::now(), kept->writer->options().finish_timeout);
  kept->writer->close("finished", deadline);
  co_await kept->writer->wait_until(&record_writer::ended, kept->executor, deadline);
  co_return kept->writer->totals();
}

namespace {

task<log> open_by(comm::identity who, communicator c, boost::asio::io_context::executor_type executor,
                  options o) {
  const std::uint64_t number = number_of_this_run(who, o.name);
  const bool samples_only = o.ranks == layout::rank_0_only && who.rank > 0;
  if (samples_only && o.system_metrics.count() == 0) co_return log();
  if (samples_only) o.console = false;
  const auto timeout = o.open_timeout;
  const std::string directory = o.directory;
  auto writer = std::make_shared<record_writer>(std::move(who), std::move(o), number);
  writer->start();
  const auto deadline = tutti::detail::after(steady_clock::now(), timeout);
  const bool is_open = co_await writer->wait_until(&record_writer::opened, executor, deadline);
  if (!is_open) {
    writer->close("closed", steady_clock::now());
    throw error(errc::timed_out, "tracking could not open a run in " + directory + " within " +
                                     std::to_string(timeout.count()) + " ms: the disk does not answer");
  }
  writer->rethrow_failure();
  co_return log(std::make_shared<detail::owner>(std::move(writer), std::move(c), executor, samples_only));
}

}  // namespace

task<log> open(communicator c, options o) {
  if (!c)
    throw error(errc::invalid_argument, "tracking of an empty communicator: this rank is not a member of it");
  comm::identity who = comm::identity_of(c);
  const auto executor = c.get_executor();
  log opened = co_await open_by(std::move(who), std::move(c), executor, std::move(o));
  co_return opened;
}

task<log> open(options o) {
  if (o.id.empty())
    throw error(errc::invalid_argument,
                "tracking without a communicator needs options::id, the run that this process writes to");
  const auto executor =
      core::loop::here("tracking was opened", "open it in a task that runs there").executor();
  comm::identity who;
  who.rank = -1;
  log opened = co_await open_by(std::move(who), {}, executor, std::move(o));
  co_return opened;
}

}  // namespace tutti::track

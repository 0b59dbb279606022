// SPDX-License-Identifier: Apache-2.0
#include "device/attachment.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <tutti/error.hpp>
#include <utility>

namespace tutti::gpu::impl {
namespace {

using clock = std::chrono::steady_clock;
// Shortest and longest sleep between polls. At the longest, a driver that can notify the loop does.
constexpr auto shortest_pause = std::chrono::microseconds(20);
constexpr auto longest_pause = std::chrono::milliseconds(1);
constexpr auto longest_farewell = std::chrono::seconds(10);

}  // namespace

doorbell_handle::doorbell_handle(int descriptor) noexcept : fd_(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0)) {}
doorbell_handle::~doorbell_handle() { ::close(fd_); }
void doorbell_handle::notify() const noexcept { static_cast<void>(::eventfd_write(fd_, 1)); }

// ---- waits_in ----

void waits_in::on_stop(const tutti::extend::stop_scope& stopped) noexcept {
  set_failure(error(stopped.why(), stopped.text()));
  on_.resume_soon(*this);
}

void waits_in::done() noexcept {
  leave();
  tutti::extend::resume_bounded(handle_);
}

// ---- stream_state ----

stream_state::stream_state(std::shared_ptr<attachment> on, void* native, bool owned)
    : on_(std::move(on)), native_(native), owned_(owned) {
  if (on_->driver().can().timeline) timeline_ = on_->driver().make_word();
}

std::shared_ptr<stream_state> stream_state::make(const std::shared_ptr<attachment>& on, bool urgent) {
  return std::make_shared<stream_state>(on, on->driver().make_stream(urgent), true);
}

stream_state::~stream_state() {
  driver& d = on_->driver();
  if (!points_.empty()) {
    // The device uses the word, and what the points keep alive, until it has passed them.
    // A point whose thread never put it into the stream does not pass.
    const auto last =
        std::find_if(points_.rbegin(), points_.rend(), [](const point& p) { return p.in_stream(); });
    const bool ended = on_->failure() || last == points_.rend() ||
                       d.wait_until([&] { return passed(*last); }, native_, longest_farewell);
    // A failed device accesses no memory.
    if (const auto why = ended ? std::nullopt : d.loss(native_)) {
      on_->fail(*why);
    } else if (!ended) {
      std::fprintf(stderr,
                   "tutti: a stream of %s did not end within 10 s; memory that it uses is not freed\n",
                   d.name().c_str());
      for (point& p : points_)
        for (auto& k : p.alive)
          static_cast<void>(new std::shared_ptr<const void>(std::move(k)));  // never freed
      timeline_ = {};
      owned_ = false;
    }
    on_->forget(*this);
    while (!points_.empty()) on_->pop(*this, on_->failure());
  }
  if (timeline_.value != nullptr) d.destroy_word(timeline_);
  if (owned_) d.destroy_stream(native_);
}

void stream_state::refuse_work_of(const attachment& other) const {
  if (!on_->driver().can_wait_for(other.driver()))
    throw error(errc::not_supported,
                fmt::format("a stream of {} cannot wait for work of {}: await that first",
                            on_->driver().name(), other.driver().name()));
}

void stream_state::refuse_capture() const {
  driver& d = on_->driver();
  if (d.capturing(native_))
    throw error(
        errc::invalid_argument,
        fmt::format(
            "this stream of {} is being captured into a graph: the host cannot wait for work that only runs "
            "when the graph is launched; await after the capture has ended, or use stream::wait",
            d.name()));
}

point& stream_state::add_point() {
  void* const event = on_->take_event();
  on_->activate(*this);
  point& p = points_.emplace_back();
  p.event = event;
  p.sequence = ++sequence_;
  return p;
}

void stream_state::put(void* event, std::uint64_t sequence) {
  on_->driver().record(event, native_);
  if (timeline_.value != nullptr) on_->driver().write(native_, timeline_, sequence);
}

point& stream_state::signal() {
  on_->check();
  refuse_capture();
  const std::size_t before = points_.size();
  try {
    point& p = add_point();
    put(p.event, p.sequence);
    return p;
  } catch (const error& e) {
    if (points_.size() > before) {
      on_->give_event(points_.back().event);
      points_.pop_back();
      if (points_.empty()) on_->forget(*this);
    }
    if (e.code() == errc::device_failed) on_->fail(e.what());
    throw;
  }
}

stream_state::reserved stream_state::reserve() {
  on_->check();
  point& p = add_point();
  reserved r{&p, p.event, p.sequence, make_recycled<std::atomic<bool>>(false)};
  p.recorded = r.recorded;
  return r;
}

void stream_state::enqueue(const reserved& r) {
  put(r.event, r.sequence);
  r.recorded->store(true, std::memory_order_release);
}

void stream_state::keep(keeps alive) {
  std::erase_if(alive, [](const auto& k) { return k == nullptr; });
  if (alive.empty()) return;
  signal().alive = std::move(alive);
}

std::shared_ptr<gate_word> stream_state::close(const std::shared_ptr<attachment>& by) {
  refuse_capture();  // before the stream waits for the word, which must outlive the wait
  auto gate = make_recycled<gate_word>(*by, *on_);
  by->driver().wait(native_, gate->get(), 1);
  by->add_gate(gate);
  keep(keeps{gate});
  return gate;
}

bool stream_state::passed(const point& p) const {
  if (timeline_.value != nullptr) return timeline_.value->load(std::memory_order_acquire) >= p.sequence;
  return p.in_stream() && on_->driver().query(p.event);
}

// ---- gate_word ----

gate_word::gate_word(const attachment& on, const attachment& of)
    : driver_(on.shared_driver()), word_(driver_->make_word()), waits_(of.shared_driver()) {
  if (waits_->close_gate()) return;
  driver_->destroy_word(word_);
  throw error(
      errc::resources,
      fmt::format(
          "no gate can close on {} now: NCCL frees a communicator that has failed, which waits for the "
          "device; stream::follow() needs no gate, or try again later",
          waits_->name()));
}
gate_word::~gate_word() {
  open();
  driver_->destroy_word(word_);
}
void gate_word::open() noexcept {
  if (!is_open()) {
    word_.value->store(1, std::memory_order_release);
    driver_->changed(word_);
  }
  if (closed_.exchange(false)) waits_->open_gate();
}

// ---- attachment ----

attachment::~attachment() {
  for (const auto& g : gates_)
    if (const auto held = g.lock()) held->open();
  for (void* e : events_) driver_->destroy_event(e);
}

void attachment::check() const {
  if (!on_loop_thread())
    throw error(errc::wrong_thread,
                fmt::format("{} is used outside the loop thread that it was opened on", driver_->name()));
  if (failure_) throw *failure_;
}

void* attachment::take_event() {
  if (events_.empty()) return driver_->make_event();
  void* const e = events_.back();
  events_.pop_back();
  return e;
}
void attachment::give_event(void* event) noexcept {
  if (event != nullptr) events_.push_back(event);
}

void attachment::add_gate(const std::shared_ptr<gate_word>& g) {
  std::erase_if(gates_, [](const auto& w) { return w.expired(); });
  gates_.push_back(g);
}
int attachment::closed_gates() noexcept {
  return static_cast<int>(std::count_if(gates_.begin(), gates_.end(), [](const auto& w) {
    const auto held = w.lock();
    return held && !held->is_open();
  }));
}

void attachment::activate(stream_state& s) {
  if (s.listed_) return;
  s.listed_ = true;
  if (active_.empty()) {
    begin_wait();
    health_at_ = clock::now() + between_health_checks;
    arm_timer(between_health_checks);
  }
  pause_ = shortest_pause;
  active_.push_back(&s);
}

void attachment::forget(stream_state& s) noexcept {
  if (!s.listed_) return;
  s.listed_ = false;
  std::erase(active_, &s);
  if (active_.empty()) {
    end_wait();
    cancel_timer();
  }
}

// Removes the oldest point of `s`, which has passed or never will.
void attachment::pop(stream_state& s, const std::optional<error>& failure) {
  point& p = s.points_.front();
  resume_soon(p.waiters, failure);
  if (!p.alive.empty()) {
    released_.push_back(std::move(p.alive));
    deliver_soon();
  }
  give_event(p.event);
  s.points_.pop_front();
}

void attachment::wait_for(point& p, waiter& w, bool has_deadline) {
  if (!has_deadline && timeout() < std::chrono::hours(24 * 365)) w.deadline = clock::now() + timeout();
  p.waiters.push_back(w);
}

void attachment::resume_soon(waiter& w) noexcept {
  w.unlink();
  if (w.immediate) return w.done();
  ready_.push_back(w);
  deliver_soon();
}

bool attachment::poll() noexcept {
  bool any = false;
  for (std::size_t i = 0; i < listeners_.size(); ++i) any |= listeners_[i]->poll();
  for (std::size_t i = 0; i < active_.size();) {
    stream_state& s = *active_[i];
    try {
      for (; !s.points_.empty() && s.passed(s.points_.front()); any = true) pop(s, {});
    } catch (const error& e) {
      fail(e.what());
      return true;
    }
    if (s.points_.empty()) {
      forget(s);
    } else {
      ++i;
    }
  }
  if (any) pause_ = shortest_pause;
  return any;
}

bool attachment::arm() noexcept {
  // Polls before and after arming: a point that passes in between notifies nobody.
  bool changed = poll();
  bool all_ring = true;
  for (stream_state* s : active_) {
    point& head = s->points_.front();
    // The submit thread notifies the loop when it has enqueued the point.
    if (s->armed_ >= head.sequence || !head.in_stream()) continue;
    if (driver_->can().host_call && driver_->arm(head.event, s->native_, doorbell_)) {
      s->armed_ = head.sequence;
    } else {
      all_ring = false;
    }
  }
  changed |= poll();
  if (changed || active_.empty()) return changed;
  // The doorbell of a GPU rings 100 to 400 us late. At first the loop looks by itself: after each 1/32 of the
  // time that it has waited.
  if (!all_ring || pause_ < longest_pause) {
    arm_timer(pause_);
    pause_ = std::min<duration>(pause_ + pause_ / 32, longest_pause);
  }
  return false;
}

void attachment::timer_fired() noexcept {
  if (active_.empty()) return;
  const auto now = clock::now();
  if (now >= health_at_) {
    health_at_ = now + between_health_checks;
    for (stream_state* s : active_)
      if (const auto why = driver_->loss(s->native_)) return fail(*why);
    for (stream_state* s : active_)
      for (point& p : s->points_)
        for (auto next = p.waiters.begin(); next != p.waiters.end();) {
          waiter& w = *next++;
          if (now < w.deadline) continue;
          w.set_failure(error(
              errc::timed_out,
              fmt::format(
                  "a stream of {} did not get to where it is awaited within {} ms: its work takes longer "
                  "(init_options::timeout, TUTTI_TIMEOUT), or it waits for a gate or another stream",
                  driver_->name(), timeout().count())));
          resume_soon(w);
        }
  }
  arm_timer(between_health_checks);
}

void attachment::fail(const std::string& text) noexcept {
  if (failure_) return;
  const std::string name = driver_->name();
  failure_.emplace(errc::device_failed, text.starts_with(name) ? text : fmt::format("{}: {}", name, text));
  for (const auto& g : gates_)
    if (const auto held = g.lock()) held->open();
  while (!active_.empty()) {
    stream_state& s = *active_.back();
    while (!s.points_.empty()) pop(s, failure_);
    forget(s);
  }
}

void attachment::deliver() noexcept {
  const auto self = weak_from_this().lock();  // a resumed coroutine may drop the last handle
  for (auto freed = std::exchange(released_, {}); !freed.empty();) freed.pop_back();
  // Waiters that become ready meanwhile run in the next round.
  waiter_list now;
  now.swap(ready_);
  while (!now.empty()) {
    waiter& w = now.front();
    w.unlink();
    w.done();
  }
  if (self != nullptr && (!ready_.empty() || !released_.empty())) deliver_soon();
}

// ---- the public handle ----

std::shared_ptr<allocation> allocate(const device& on, std::size_t bytes, memory_kind kind) {
  if (!on)
    throw error(errc::invalid_argument, "device memory was asked for on no device (the handle is empty)");
  on.state().check();
  if (bytes == 0) return std::make_shared<allocation>();
  const auto free = [by = on.state().shared_driver(), kind](allocation* a) {
    by->free(a->data, kind);
    delete a;
  };
  return {new allocation{on.state().driver().allocate(bytes, kind)}, free};
}

}  // namespace tutti::gpu::impl

namespace tutti::gpu {

std::string device::name() const { return state_ ? state_->driver().name() : "no device"; }
int device::ordinal() const noexcept { return state_ ? state_->driver().ordinal() : -1; }
capabilities device::can() const noexcept { return state_ ? state_->driver().can() : capabilities{}; }
bool device::failed() const noexcept { return state_ && state_->failure(); }
memory_info device::describe(const void* memory) const noexcept {
  return state_ ? state_->driver().describe(memory) : memory_info{};
}
void device::set_gate_limit(int gates) noexcept {
  if (state_) state_->gate_limit = gates;
}

}  // namespace tutti::gpu

// SPDX-License-Identifier: Apache-2.0
// Windows of device memory. Each rank opens the others' memory once, and copies to and from it by itself: the target's
// loop and device take no part.
//
//   origin   waits for its stream, begins a visit, enqueues the copy; the visit ends with the copy
//   origin   adds to the target's signal, in shared memory of the host
//   target   when it drops its window: waits for the visits, then keeps the memory until each rank of another
//            process has said that it has closed it
#include "comm/communicator_devices.hpp"
#include "device/open_once.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/detached.hpp>
#include <cstddef>
#include <map>
#include <mutex>
#include <span>
#include <tutti/extend/side_channel.hpp>
#include <tutti/gpu/window.hpp>
#include <tutti/tutti.hpp>
#include <utility>

namespace tutti::gpu::impl {
namespace {

using namespace std::chrono_literals;
using tutti::extend::call;
constexpr auto longest_copy = 10s;
constexpr auto longest_window = 24h * 3650;

// What each rank tells the others.
struct record {
  void* data = nullptr;  // for ranks of its process
  shared_name name;      // for those of others
  std::uint64_t count = 0, signals = 0;
  bool of_cuda = false;
  failure_text<508> failed;
};

// Gathers them. Throws on all ranks what one has failed with.
task<std::vector<record>> gather(communicator among, record mine) {
  std::vector<record> all(static_cast<std::size_t>(among.size()));
  co_await among.all_gather(mine, all);
  for (std::size_t r = 0; r < all.size(); ++r)
    if (const auto& failed = all[r].failed; failed.why != 0)
      throw error(static_cast<errc>(failed.why), fmt::format("window on rank {}: {}", r, failed.text));
  co_return all;
}

// The memory of windows of this process, by its address: what copies of other ranks keep. They refer to a copy of the
// owner, since a weak pointer to the owner itself would keep its deleter, and so the driver.
struct process_memory {
  std::mutex mutex;
  std::map<const void*, std::weak_ptr<const void>> all;
};
process_memory& window_memory() {
  static auto* const memory = new process_memory;
  return *memory;
}

// Memory that other processes have opened. Unless all of them say that they have closed it, it is never freed.
struct lent_memory {
  ~lent_memory() {
    if (open_on > 0) static_cast<void>(new std::shared_ptr<const void>(std::move(memory)));
  }
  std::shared_ptr<const void> memory;
  std::ptrdiff_t open_on = 0;  // ranks
};

}  // namespace

class device_window {
 public:
  struct part {
    std::uint64_t count = 0, signals = 0;
    bool foreign = false;  // of another process
    std::byte* data = nullptr;
    std::weak_ptr<const void> keep = {};  // unless it is foreign
  };

  device_window(communicator among, extend::window_ref signals, view mine)
      : among_(std::move(among)),
        signals_(std::move(signals)),
        devices_(world_devices::of(among_)),
        on_(devices_.on),
        mine_(std::move(mine)),
        copies_(stream_state::make(on_)) {}
  ~device_window();

  record describe() const;
  void open(const std::vector<record>& all);
  const std::vector<part>& parts() const noexcept { return parts_; }
  const extend::window_ref& signals() const noexcept { return signals_; }
  attachment& on() const noexcept { return *on_; }
  // Enqueues the copy between the buffer of `w` and the memory of `rank`.
  void copy(work_state& w, int rank, std::size_t offset);
  void end_copies() noexcept;

 private:
  const introduction& of(int rank) const {
    return devices_.ranks[static_cast<std::size_t>(
        tutti::extend::world_ranks_of(among_)[static_cast<std::size_t>(rank)])];
  }
  bool is_foreign(int rank) const { return of(rank).process != this_process(); }
  void open(int rank, const record& told);

  const communicator among_;
  const extend::window_ref signals_;
  const world_devices devices_;
  const std::shared_ptr<attachment> on_;
  const view mine_;
  const std::shared_ptr<const void> kept_ = std::make_shared<std::shared_ptr<const void>>(mine_.keep);
  std::vector<part> parts_;  // by rank, once they have been told
  std::shared_ptr<stream_state> copies_;
  recycled_vector<std::weak_ptr<extend::window_visit>> visits_;
  bool ended_ = true;  // all copies; otherwise the memory stays open
};

record device_window::describe() const {
  driver& d = on_->driver();
  record mine;
  mine.data = mine_.data;
  mine.count = mine_.count;
  mine.of_cuda = cuda::is_cuda(device(on_));
  if (mine_.count == 0) return mine;
  const memory_info known = d.describe(mine_.data);
  if (known.kind != memory_kind::device || known.device != d.ordinal())
    throw error(errc::invalid_argument,
                fmt::format("its buffer is not memory of {}, on which gpu::open was called", d.name()));
  {
    const std::lock_guard lock(window_memory().mutex);
    std::erase_if(window_memory().all, [](const auto& m) { return m.second.expired(); });
    window_memory().all[mine_.data] = kept_;
  }
  for (int r = 0; r < among_.size(); ++r) {
    if (!is_foreign(r)) continue;
    if (d.sharing() == nullptr)
      throw error(
          errc::not_supported,
          fmt::format("{} has no memory that other processes can open: run the ranks in one process, or "
                      "make the window of memory of the host",
                      d.name()));
    mine.name = d.sharing()->name_memory(mine_.data);
    break;
  }
  return mine;
}

void device_window::open(const std::vector<record>& all) {
  for (const record& told : all)
    parts_.push_back({.count = told.count,
                      .signals = told.signals,
                      .foreign = is_foreign(static_cast<int>(parts_.size()))});
  for (int r = 0; r < among_.size(); ++r) {
    try {
      open(r, all[static_cast<std::size_t>(r)]);
    } catch (const error& e) {
      throw error(code_of(e) == errc::system ? errc::not_supported : code_of(e),
                  fmt::format("{}; make the window of memory of the host, or on a communicator of ranks "
                              "that share a device (communicator::split)",
                              e.what()));
    }
  }
}

void device_window::open(int rank, const record& told) {
  part& p = parts_[static_cast<std::size_t>(rank)];
  driver& d = on_->driver();
  const extend::window_visit can_visit(signals_, rank);
  if (p.count == 0) return;
  const bool same = of(rank).device == of(among_.rank()).device;
  const bool peers = p.foreign && told.of_cuda && cuda::is_cuda(device(on_));
  if (!same && !peers)
    throw error(errc::not_supported,
                fmt::format("the memory of rank {} is of another device than {}", rank, d.name()));
  if (p.foreign) {
    p.data = static_cast<std::byte*>(d.sharing()->open_memory(told.name));
    return;
  }
  const std::lock_guard lock(window_memory().mutex);
  const auto known = window_memory().all.find(told.data);
  if (known == window_memory().all.end())
    throw error(errc::protocol, fmt::format("rank {} has named memory that is no window's", rank));
  p.data = static_cast<std::byte*>(told.data);
  p.keep = known->second;
}

void device_window::copy(work_state& w, int rank, std::size_t offset) {
  const auto visit = make_recycled<extend::window_visit>(signals_, rank);
  std::erase_if(visits_, [](const auto& v) { return v.expired(); });
  visits_.push_back(visit);
  w.keep_until_done(visit);
  const bool gets = w.what.kind == operation_kind::get;
  view &there = gets ? w.what.in : w.what.out, &here = gets ? w.what.out : w.what.in;
  const part& p = parts_[static_cast<std::size_t>(rank)];
  there.data = p.data + offset * here.element_bytes;
  there.keep = p.keep.lock();
  if (here.bytes() > 0) on_->driver().copy(w.what.out.data, w.what.in.data, here.bytes(), copies_->native());
  w.finish_in(*copies_);
}

void device_window::end_copies() noexcept {
  if (!copies_) return;
  if (std::ranges::any_of(visits_, [](const auto& v) { return !v.expired(); })) {
    try {
      driver& d = on_->driver();
      void* const last = on_->take_event();
      d.record(last, copies_->native());
      ended_ = d.wait_until([&] { return d.query(last); }, copies_->native(), longest_copy) ||
               d.loss(copies_->native());
      on_->give_event(last);
    } catch (const error&) {
      // The device has failed, and accesses no memory.
    }
  }
  copies_.reset();
  if (!ended_) return;  // the owners wait for the visits, and warn
  for (const auto& v : visits_)
    if (const auto visit = v.lock()) visit->end();
}

device_window::~device_window() {
  end_copies();
  const auto lent = std::make_shared<lent_memory>(mine_.keep);
  const auto foreign = [](const part& p) { return p.foreign; };
  if (mine_.count > 0) lent->open_on = std::ranges::count_if(parts_, foreign);
  try {
    tutti::extend::set_timeout(among_, longest_window);
    for (std::size_t r = 0; r < parts_.size(); ++r) {
      const part& p = parts_[r];
      if (!p.foreign) continue;
      if (p.count > 0 && ended_) {
        if (p.data != nullptr) on_->driver().sharing()->close_memory(p.data);
        request telling = among_.isend(std::span<const std::byte>(), static_cast<int>(r), 0);
        telling(boost::asio::detached);
      }
      if (mine_.count == 0) continue;
      request closed = among_.irecv(std::span<std::byte>(), static_cast<int>(r), 0);
      closed([lent](const boost::system::error_code& why, const status&) {
        if (!why) --lent->open_on;
      });
    }
  } catch (const std::exception&) {
    // The communicator has ended: the memory is not freed.
  }
}

void end_copies(device_window& w) noexcept { w.end_copies(); }

task<window_ptr> open_window(communicator among, extend::window_ref signals, view mine,
                             int number_of_signals) {
  window_ptr made;
  record own;
  try {
    made = std::make_shared<device_window>(among, std::move(signals), std::move(mine));
    own = made->describe();
  } catch (const error& e) {
    own.failed.set(e);
  }
  own.signals = static_cast<std::uint64_t>(number_of_signals);
  const std::vector<record> all = co_await gather(among, own);
  try {
    made->open(all);
  } catch (const error& e) {
    own.failed.set(e);
  }
  co_await gather(among, own);
  co_return made;
}

// ---- operations ----

namespace {

class window_call final : public tutti::extend::window_part, public working_part {
 public:
  window_call(window_ptr w, std::shared_ptr<stream_state> after, view local, std::size_t offset,
              std::uint64_t value)
      : window_part(w->signals()),
        of_(std::move(w)),
        after_(std::move(after)),
        local_(std::move(local)),
        offset_(offset),
        value_(value) {}

  std::string bad_argument(const call& what) const override;
  task<> execute(tutti::extend::operation_state& op) override;
  tutti::extend::part_ref again() const override {
    return tutti::extend::part_ref(new window_call(of_, after_, local_, offset_, value_));
  }

 private:
  const window_ptr of_;
  const std::shared_ptr<stream_state> after_;
  const view local_;
  const std::size_t offset_;
  const std::uint64_t value_;
};

std::string window_call::bad_argument(const call& what) const {
  if (!after_) return "the stream is empty";
  if (&after_->on() != &of_->on())
    return fmt::format("the stream is of {}, the window of {}, or both were opened separately",
                       after_->on().driver().name(), of_->on().driver().name());
  const auto& parts = of_->parts();
  if (what.peer < 0 || static_cast<std::size_t>(what.peer) >= parts.size())
    return fmt::format("rank {} is outside the window, which has the ranks 0 to {}", what.peer,
                       parts.size() - 1);
  const device_window::part& p = parts[static_cast<std::size_t>(what.peer)];
  if (what.kind == operation_kind::put_signal &&
      (what.tag < 0 || static_cast<std::uint64_t>(what.tag) >= p.signals))
    return fmt::format("rank {} has {} signals, numbered from 0: window_options::signals of that rank's call",
                       what.peer, p.signals);
  if (offset_ > p.count || local_.count > p.count - offset_)
    return fmt::format("{} elements from element {} on end past the window of rank {}, which has {} elements",
                       local_.count, offset_, what.peer, p.count);
  return {};
}

task<> window_call::execute(tutti::extend::operation_state& op) {
  const call& what = op.what();
  attachment& on = after_->on();
  on.check();
  work_ = make_recycled<work_state>(after_->shared_on(),
                                    device_arguments{.kind = what.kind, .in = local_, .out = local_});
  const scope_exit release([this] { end_work(); });
  mark before;
  before.set(*after_, {local_.keep});
  co_await before;
  of_->copy(*work_, what.peer, offset_);
  co_await waits_in(on, work_->wait_done, work_->done);
  work_->rethrow();
  if (what.kind == operation_kind::put_signal) co_await add_to_signal(what, value_);
}

}  // namespace

call call_on(const window_ptr& w, operation_kind kind, view local, int rank, std::size_t offset, int signal,
             std::uint64_t value, const stream& after, call_site where) {
  if (w == nullptr) throw error(errc::invalid_argument, "an operation on a window that is empty");
  call what(kind, tutti::extend::communicator_of(w->signals()), where);
  what.peer = rank;
  what.tag = signal;
  (kind == operation_kind::get ? what.out : what.in) = local;
  what.part = tutti::extend::part_ref(new window_call(w, after.state(), std::move(local), offset, value));
  return what;
}

}  // namespace tutti::gpu::impl

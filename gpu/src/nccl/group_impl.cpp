// SPDX-License-Identifier: Apache-2.0
#include "nccl/group_impl.hpp"

#include "nccl/connect.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/deferred.hpp>
#include <cstring>
#include <tutti/tutti.hpp>
#include <utility>

namespace tutti::nccl {
namespace {

using gpu::detail::call;
using gpu::detail::operation_kind;
using gpu::detail::work_state;

constexpr auto for_ever = std::chrono::hours(24 * 365);
constexpr auto patience_after_farewell = std::chrono::seconds(2);

const std::byte* block(const void* base, std::size_t i, std::size_t bytes) noexcept {
  return static_cast<const std::byte*>(base) + i * bytes;
}
std::byte* block(void* base, std::size_t i, std::size_t bytes) noexcept {
  return static_cast<std::byte*>(base) + i * bytes;
}

// Elements that are only moved go as bytes: NCCL need not know their type.
abi::result enqueue(const abi::table& n, owned_communicator::use& use, const call& what, int rank, int size,
                    void* stream) {
  abi::communicator* const c = use.get();
  const void* const in = what.in.data;
  void* const out = what.out.data;
  const std::size_t count = what.in.count, e = what.in.element_bytes;
  const int type = abi::type_of(what.in.type);
  int op = abi::operation_of(what.op.kind, what.in.type);
  const bool scaled = what.op.kind == reduce_kind::premul_sum;
  if (scaled) {
    alignas(16) std::byte factor[16];
    std::memcpy(factor, what.op.state.data(), sizeof factor);
    if (what.in.type == element_type::float16 || what.in.type == element_type::bfloat16) {
      // Ours are floats, NCCL's are of the elements' type.
      float f = 0;
      std::memcpy(&f, factor, sizeof f);
      const std::uint16_t bits =
          what.in.type == element_type::float16 ? tutti::float16(f).bits() : tutti::bfloat16(f).bits();
      std::memcpy(factor, &bits, sizeof bits);
    }
    if (const abi::result r = n.make_premul_sum(&op, factor, type, abi::host_immediate, c); r != abi::success)
      return r;
  }
  // What is inside a group does not wait: only the end of the group does.
  const auto grouped = [&](std::size_t calls, auto each) {
    abi::result r = n.group_start();
    for (std::size_t i = 0; i < calls && r == abi::success; ++i) r = each(i);
    const abi::result ended = use.waiting([&] { return n.group_end(); });
    return r == abi::success ? ended : r;
  };
  const auto for_each_rank = [&](auto each) {
    return grouped(static_cast<std::size_t>(size), [&](std::size_t i) { return each(static_cast<int>(i)); });
  };
  abi::result r = abi::success;
  switch (what.kind) {
    case operation_kind::all_reduce:
      r = use.waiting([&] { return n.all_reduce(in, out, count, type, op, c, stream); });
      break;
    case operation_kind::reduce:
      r = use.waiting([&] { return n.reduce(in, out, count, type, op, what.peer, c, stream); });
      break;
    case operation_kind::reduce_scatter:
      r = use.waiting([&] { return n.reduce_scatter(in, out, what.out.count, type, op, c, stream); });
      break;
    case operation_kind::broadcast:
      r = use.waiting([&] { return n.broadcast(in, out, count * e, abi::uint8, what.peer, c, stream); });
      break;
    case operation_kind::all_gather:
      r = use.waiting([&] { return n.all_gather(in, out, count * e, abi::uint8, c, stream); });
      break;
    case operation_kind::send:
      r = use.waiting([&] { return n.send(in, count * e, abi::uint8, what.peer, c, stream); });
      break;
    case operation_kind::receive:
      r = use.waiting([&] { return n.receive(out, count * e, abi::uint8, what.peer, c, stream); });
      break;
    case operation_kind::gather:
      r = for_each_rank([&](int peer) {
        const std::size_t bytes = count * e;
        abi::result sent = peer == what.peer ? n.send(in, bytes, abi::uint8, peer, c, stream) : abi::success;
        if (sent == abi::success && rank == what.peer)
          sent = n.receive(block(out, static_cast<std::size_t>(peer), bytes), bytes, abi::uint8, peer, c,
                           stream);
        return sent;
      });
      break;
    case operation_kind::scatter:
      r = for_each_rank([&](int peer) {
        const std::size_t bytes = what.out.count * e;
        abi::result done =
            peer == what.peer ? n.receive(out, bytes, abi::uint8, peer, c, stream) : abi::success;
        if (done == abi::success && rank == what.peer)
          done = n.send(block(in, static_cast<std::size_t>(peer), bytes), bytes, abi::uint8, peer, c, stream);
        return done;
      });
      break;
    case operation_kind::all_to_all:
      r = for_each_rank([&](int peer) {
        const std::size_t bytes = count / static_cast<std::size_t>(size) * e,
                          at = static_cast<std::size_t>(peer);
        const abi::result sent = n.send(block(in, at, bytes), bytes, abi::uint8, peer, c, stream);
        return sent != abi::success ? sent
                                    : n.receive(block(out, at, bytes), bytes, abi::uint8, peer, c, stream);
      });
      break;
    case operation_kind::batch: {
      const auto& parts = *static_cast<const std::vector<batch::part>*>(what.extra.get());
      r = grouped(parts.size(), [&](std::size_t i) {
        const batch::part& p = parts[i];
        return p.sends ? n.send(p.data.data, p.data.bytes(), abi::uint8, p.peer, c, stream)
                       : n.receive(p.data.data, p.data.bytes(), abi::uint8, p.peer, c, stream);
      });
      break;
    }
    default:
      r = abi::invalid_argument;
  }
  if (scaled && use.get() != nullptr) n.destroy_operation(op, c);
  return r;
}

}  // namespace

// One operation on its way through the submit thread.
class group_impl::operation_job final : public job {
 public:
  operation_job(std::shared_ptr<group_impl> g, std::shared_ptr<work_state> w, std::shared_ptr<void> ready,
                void* passed)
      : what_(w->what),
        handle_(g->handle_),
        stream_(g->stream_),
        side_(g->side_),
        ready_(std::move(ready)),
        passed_(passed),
        rank_(g->rank()),
        size_(g->size()),
        title_(g->title(w->what)),
        group_(g),
        work_(w) {
    if (what_.kind != operation_kind::all_to_all || what_.in.data != what_.out.data || what_.in.bytes() == 0)
      return;
    copy_of_input_ =
        gpu::detail::allocate(gpu::device(g->shared_on()), what_.in.bytes(), gpu::memory_kind::device);
    w->keep_until_done(copy_of_input_);
  }
  ~operation_job() override {
    if (passed_ != nullptr)
      work_->on->give_event(passed_);  // the submit thread was closed before it was finished
  }

  // Where it is in the order of the submit thread's stream. Before it is submitted.
  gpu::detail::point& take_place() {
    place_ = stream_->reserve();
    return *place_.at;
  }

  void run() noexcept override {
    gpu::detail::driver& d = stream_->on().driver();
    try {
      d.wait(stream_->native(), ready_.get());
      if (copy_of_input_) {
        d.copy(copy_of_input_->data, what_.in.data, what_.in.bytes(), stream_->native());
        what_.in.data = copy_of_input_->data;
      }
      call_nccl();
      if (why_ == errc::success) d.record(passed_, stream_->native());
    } catch (const error& e) {
      why_ = static_cast<errc>(e.code().value());
      text_ = e.what();
    }
    // Said before the place can be passed.
    if (why_ != errc::success) work_->voided->store(true, std::memory_order_release);
    try {
      stream_->enqueue(place_);  // also after a failure: those behind it must be seen to pass
    } catch (const error&) {
      // The device has failed; its loop is told by the next look.
    }
  }

  void finished() noexcept override {
    const auto group = group_.lock();
    if (why_ != errc::success) {
      const std::string text = fmt::format("{}: {}", title_, text_);
      work_->fail(why_, text);
      if (group && why_ != errc::communicator_failed) group->fail_all(why_, text, true);
      return;
    }
    if (work_->done) return;
    try {
      work_->on->driver().wait(side_->native(), passed_);
      work_->set_enqueued(std::exchange(passed_, nullptr), *side_);
    } catch (const error& e) {
      work_->fail(static_cast<errc>(e.code().value()), e.what());
    }
  }

 private:
  void call_nccl() noexcept {
    owned_communicator::use use(*handle_);
    if (use.get() == nullptr) {
      why_ = errc::communicator_failed;
      text_ = "its communicator has ended";
      return;
    }
    const abi::result r = enqueue(handle_->calls, use, what_, rank_, size_, stream_->native());
    if (r == abi::success) return;
    why_ = r == abi::remote_error ? errc::peer_failed : errc::device_failed;
    text_ = handle_->calls.explain(r, use.get());
  }

  call what_;
  std::shared_ptr<gpu::detail::allocation> copy_of_input_;  // of what NCCL cannot do in place
  std::shared_ptr<owned_communicator> handle_;
  std::shared_ptr<gpu::detail::stream_state> stream_, side_;
  std::shared_ptr<void> ready_;
  gpu::detail::stream_state::reserved place_;
  void* passed_;
  int rank_, size_;
  std::string title_;
  errc why_ = errc::success;
  std::string text_;
  std::weak_ptr<group_impl> group_;
  std::shared_ptr<work_state> work_;
};

group_impl::group_impl(std::shared_ptr<gpu::detail::attachment> on, std::shared_ptr<submit_thread> l,
                       std::shared_ptr<owned_communicator> c, tutti::communicator control, std::string name)
    : group(std::move(on), std::move(name), control.rank(), control.size()),
      submit_thread_(std::move(l)),
      handle_(std::move(c)),
      timer_(on_->get_executor()),
      companions_(*this, std::move(control)) {
  const auto make = [this] {
    return std::make_shared<gpu::detail::stream_state>(on_, on_->driver().make_stream(true), true);
  };
  stream_ = make();
  side_ = make();
}

group_impl::~group_impl() {
  forget_done();
  const bool idle = pending_.empty() && failure_ == errc::success;
  if (!idle) fail_all(errc::cancelled, fmt::format("the last handle of {} has gone", name()), true);
  companions_.say_farewell();
  // Finalising waits for the other ranks of the node: not here.
  struct last : job {
    std::shared_ptr<owned_communicator> of;
    bool idle = false;
    void run() noexcept override { idle ? of->destroy() : of->abort(); }
  };
  auto j = std::make_shared<last>();
  j->of = handle_;
  j->idle = idle;
  submit_thread_->submit(std::move(j));
  end_all("the communicator has gone");
}

void group_impl::check_usable() const {
  on_->check();
  if (failure_ != errc::success)
    throw error(errc::communicator_failed, fmt::format("{} failed earlier: {}", name(), failure_text_));
}

std::string_view why_not_by_nccl(const call& c) noexcept {
  const reduce_kind kind = c.op.kind;
  const bool scaled = kind == reduce_kind::premul_sum && abi::type_of(c.in.type) >= 0;
  if (kind == reduce_kind::user) return "NCCL has no reduction by a callable";
  if (kind != reduce_kind::none && !scaled && abi::operation_of(kind, c.in.type) < 0)
    return "NCCL has no such reduction of this type";
  if (c.kind == operation_kind::probe) return "NCCL has no probe";
  if (gpu::detail::group::is_message(c.kind) && c.tag != 0 &&
      !(c.kind == operation_kind::receive && c.tag == any_tag))
    return "NCCL has no tags";
  if (c.kind == operation_kind::receive && c.peer == any_source)
    return "NCCL receives from a rank that is named, not from any";
  if (!gpu::detail::group::is_message(c.kind) && c.kind != operation_kind::batch &&
      !gpu::detail::group::has_chunks(c))
    return "NCCL has no uneven blocks, lists, scans and barriers";
  return {};
}

std::shared_ptr<work_state> group_impl::start(call what) {
  check_usable();
  forget_done();
  if (const std::string_view why = why_not_by_nccl(what); !why.empty())
    throw error(errc::not_supported,
                fmt::format("{}: {}; the same operation of tutti::communicator is staged (gpu::open)",
                            title(what), why));
  std::shared_ptr<void> ready = event_before(what);
  std::shared_ptr<work_state> w = begin(std::move(what));
  w->owner = this;
  w->voided = std::make_shared<std::atomic<bool>>(false);
  w->stop = [](work_state& state, errc why, const std::string& text) {
    auto& self = *static_cast<group_impl*>(state.owner);
    const std::string message = fmt::format("{}: {}", self.title(state.what), text);
    state.fail(why, message);
    // What the device has begun cannot be taken back on one rank alone.
    self.fail_all(why, message, true);
  };
  // Cancellation needs what finish_with lets go of: the title.
  auto j = std::make_shared<operation_job>(std::static_pointer_cast<group_impl>(shared_from_this()), w,
                                           std::move(ready), on_->take_event());
  // The place is the last thing that the device may lack. With it the operation counts as called.
  gpu::detail::point& place = j->take_place();
  last_ = w->what.kind;
  // An operation of tutti::communicator ends by that one's time limit.
  const std::chrono::milliseconds limit =
      w->what.whole == nullptr ? on_->timeout() : std::chrono::milliseconds::max();
  const auto now = std::chrono::steady_clock::now();
  pending_.push_back(
      {++sequence_, w, limit > for_ever ? std::chrono::steady_clock::time_point::max() : now + limit});
  w->finish_with(*stream_, place);
  submit_thread_->submit(std::move(j));
  arm_timer();
  return w;
}

void group_impl::forget_done() noexcept {
  // Those of the front: the rest has its turn.
  while (!pending_.empty() && pending_.front().work->done) {
    pending_.front().work->stop = nullptr;
    pending_.pop_front();
  }
}

void group_impl::arm_timer() noexcept {
  if (pending_.empty() || pending_.front().deadline == std::chrono::steady_clock::time_point::max()) return;
  timer_.expires_at(pending_.front().deadline);
  timer_.async_wait([self = weak_from_this()](boost::system::error_code code) {
    const auto held = self.lock();
    if (code || !held) return;
    static_cast<group_impl&>(*held).check_deadlines();
  });
}

void group_impl::check_deadlines() noexcept {
  forget_done();
  if (pending_.empty() || failure_ != errc::success) return;
  const pending& oldest = pending_.front();
  if (std::chrono::steady_clock::now() < oldest.deadline) return arm_timer();
  if (std::exchange(explaining_, true)) return;
  tasks_.spawn(explain(oldest.sequence, fmt::format("{} #{}", title(oldest.work->what), oldest.sequence),
                       on_->timeout()));
}

// Asks the others how far they are, so that the error names who is missing.
task<> group_impl::explain(std::uint64_t sequence, std::string what, std::chrono::milliseconds limit) {
  std::string findings = co_await companions_.who_is_missing(sequence);
  if (findings.empty())
    findings = "; all ranks have called it: it is slower than the time limit allows, or a GPU hangs";
  fail_all(errc::timed_out, fmt::format("{}: not done within {} ms{}", what, limit.count(), findings), true);
}

// A rank leaves when it has seen its work done, which may be before this one has seen its own. What the
// leaver has not called never is.
task<> group_impl::see_to_the_end(int peer, std::uint64_t last) {
  boost::asio::steady_timer grace(on_->get_executor(), patience_after_farewell);
  co_await grace.async_wait(boost::asio::deferred);
  forget_done();
  if (pending_.empty() || pending_.front().sequence > last) co_return;
  fail_all(errc::peer_left,
           fmt::format("{}: rank {} has left while {} #{} was pending", name(), peer,
                       name_of(pending_.front().work->what.kind), pending_.front().sequence),
           false);
}

void group_impl::peer_gone(int peer, errc why, const std::string& text) noexcept {
  fail_all(why, fmt::format("{}: rank {} is gone: {}", name(), peer, text), false);
}
void group_impl::peer_left(int peer) noexcept {
  forget_done();
  if (!pending_.empty()) tasks_.spawn(see_to_the_end(peer, sequence_));
}
void group_impl::peer_failed(int peer, errc why, const std::string& text, bool keep) noexcept {
  fail_all(why, fmt::format("rank {} says: {}", peer, text), false, keep);
}

void group_impl::fail_all(errc why, const std::string& text, bool also_others, bool keep) noexcept {
  if (failure_ != errc::success) return;
  failure_ = why;
  failure_text_ = text;
  timer_.cancel();
  if (also_others) companions_.say_failed(why, text, keep);
  for (pending& p : pending_) {
    p.work->stop = nullptr;
    p.work->fail(why, text);
  }
  pending_.clear();

  handle_->end(on_->shared_driver(), keep);
  struct ending : job {
    std::shared_ptr<owned_communicator> of;
    bool keep = false;
    void run() noexcept override { keep ? of->revoke() : of->abort(); }
  };
  auto j = std::make_shared<ending>();
  j->of = handle_;
  j->keep = keep;
  submit_thread_->submit(std::move(j));
}

}  // namespace tutti::nccl

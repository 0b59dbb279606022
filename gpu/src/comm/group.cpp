// SPDX-License-Identifier: Apache-2.0
#include "comm/group.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <tutti/error.hpp>

namespace tutti::gpu {

int any_communicator::rank() const noexcept { return group_ ? group_->rank() : -1; }
int any_communicator::size() const noexcept { return group_ ? group_->size() : 0; }
const std::string& any_communicator::name() const noexcept {
  static const std::string none = "none";
  return group_ ? group_->name() : none;
}
device any_communicator::on() const noexcept { return group_ ? device(group_->shared_on()) : device(); }
std::shared_ptr<detail::target> any_communicator::as_target() const { return group_; }

namespace detail {

using tutti::detail::shape;

double factor_in(const tutti::detail::reduction& op, element_type type) noexcept {
  const auto as = [&op]<class T>(T) {
    T value;
    std::memcpy(&value, op.state.data(), sizeof value);
    return static_cast<double>(value);
  };
  switch (type) {
    case element_type::int8:
      return as(std::int8_t{});
    case element_type::uint8:
      return as(std::uint8_t{});
    case element_type::int16:
      return as(std::int16_t{});
    case element_type::uint16:
      return as(std::uint16_t{});
    case element_type::int32:
      return as(std::int32_t{});
    case element_type::uint32:
      return as(std::uint32_t{});
    case element_type::float64:
      return as(double{});
    default:
      return as(float{});
  }
}

std::size_t group::block_of(const call& c, int size) noexcept {
  const tutti::detail::operation_row& row = row_of(c.kind);
  if (row.out == shape::block) return c.out.count;
  const bool blocks = row.in == shape::blocks;
  return blocks ? c.in.count / static_cast<std::size_t>(size) : c.in.count;
}

bool group::has_chunks(const call& c) noexcept {
  const tutti::detail::operation_row& row = row_of(c.kind);
  return row.of == tutti::detail::family::collective && !row.uneven() && row.out != shape::nothing &&
         c.kind != operation_kind::scan && c.kind != operation_kind::exclusive_scan &&
         (c.whole == nullptr || c.whole->list.at == nullptr);
}

std::string group::title(const call& c) const {
  return fmt::format("{} on {}, rank {}", name_of(c.kind), name_, rank_);
}

std::string group::bad_argument(const call& c) const {
  const auto n = static_cast<std::size_t>(size_);
  const tutti::detail::operation_row& row = row_of(c.kind);
  if ((row.rooted || c.kind == operation_kind::send) && (c.peer < 0 || c.peer >= size_))
    return fmt::format("{} {} is not a rank of {} (0 to {})", row.rooted ? "root" : "destination", c.peer,
                       name_, size_ - 1);
  if (c.kind == operation_kind::receive && c.peer != any_source && (c.peer < 0 || c.peer >= size_))
    return fmt::format("source {} is not a rank of {} (0 to {}), nor any_source", c.peer, name_, size_ - 1);
  if (c.kind == operation_kind::send && c.tag < 0) return fmt::format("tag {} is negative", c.tag);
  const bool has_both =
      row.in != shape::nothing && row.out != shape::nothing && (!row.rooted || c.peer == rank_);
  if (!has_both) return {};
  const std::size_t in = c.in.count * (row.in == shape::block ? n : 1);
  const std::size_t out = c.out.count * (row.out == shape::block ? n : 1);
  if (in != out)
    return fmt::format("`in` has {} elements and `out` {}, of {} ranks: these do not fit together",
                       c.in.count, c.out.count, size_);
  if (row.in == shape::blocks && row.out == shape::blocks && c.in.count % n != 0)
    return fmt::format("{} elements cannot be divided among {} ranks", c.in.count, size_);
  return {};
}

std::shared_ptr<work_state> group::begin(call what) {
  on_->check();
  reap();
  if (&what.on->on() != on_.get())
    throw error(errc::invalid_argument,
                fmt::format("{}: the stream is of {}, the communicator of {}, or both were opened "
                            "separately: open a device once "
                            "for each loop",
                            title(what), what.on->on().driver().name(), on_->driver().name()));
  if (on_->driver().capturing(what.on->native()))
    throw error(errc::invalid_argument,
                fmt::format("{}: the stream is being captured into a graph, which would not run what the "
                            "host does in between",
                            title(what)));
  if (std::string wrong = bad_argument(what); !wrong.empty())
    throw error(errc::invalid_argument, title(what) + ": " + wrong);
  what.to.reset();  // the handles own the group; what runs goes with it
  return std::make_shared<work_state>(on_, std::move(what));
}

std::shared_ptr<void> group::event_before(const call& c) const {
  if (c.ready) return c.ready;
  std::shared_ptr<void> event(on_->take_event(), [home = on_](void* e) { home->give_event(e); });
  on_->driver().record(event.get(), c.on->native());
  return event;
}

group::running& group::add(std::shared_ptr<work_state> w) {
  running& r = running_.emplace_back();
  r.of = std::move(w);
  r.of->owner = &r;
  r.of->stop = [](work_state& state, errc why, const std::string& text) {
    auto& self = *static_cast<running*>(state.owner);
    if (self.stopped == errc::success) {
      self.stopped = why;
      self.reason = text;
    }
    self.tasks.cancel();
  };
  return r;
}

void group::reap() noexcept {
  running_.remove_if([](const running& r) { return r.ended; });
}

bool group::is_idle() const noexcept {
  return std::all_of(running_.begin(), running_.end(), [](const running& r) { return r.ended; });
}

void group::end_all(const std::string& why) noexcept {
  for (running& r : running_) {
    r.of->stop = nullptr;
    r.of->fail(errc::cancelled, why);
  }
  running_.clear();
}

}  // namespace detail
}  // namespace tutti::gpu

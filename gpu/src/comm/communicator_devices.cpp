// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator_devices.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <optional>
#include <set>
#include <tutti/gpu/stream.hpp>
#include <tutti/sleep.hpp>
#include <utility>

namespace tutti::gpu {

extend::part_ref stream::part_of(std::shared_ptr<const void> in, std::shared_ptr<const void> out) const {
  return extend::part_ref(new impl::device_call(state_, std::move(in), std::move(out)));
}

served_by backend_for(const tutti::extend::call& what) {
  const auto* const part = dynamic_cast<const impl::device_call*>(what.part.get());
  if (!what.comm || part == nullptr)
    throw error(errc::invalid_argument, "gpu::backend_for: an operation on memory of devices is needed");
  if (std::string wrong = part->bad_stream(what); !wrong.empty())
    throw error(errc::invalid_argument, fmt::format("gpu::backend_for: {}", wrong));
  return impl::communicator_devices::of(communicator(what.comm)).explain(part->made(what));
}

namespace impl {

namespace {

constexpr char attribute_key = 0;

}  // namespace

std::shared_ptr<void>& world_devices::place_of(const communicator& c) {
  return tutti::extend::world_attribute_of(c, &attribute_key);
}

world_devices& world_devices::of(const communicator& c) {
  void* const opened = place_of(c).get();
  if (opened == nullptr)
    throw error(errc::invalid_argument,
                "no device is open: co_await tutti::gpu::open(world) first, on all ranks");
  return *static_cast<world_devices*>(opened);
}

std::string world_devices::why_not_nccl(const std::vector<int>& members) const {
  std::set<std::uint64_t> places;
  std::set<std::int32_t> versions;
  for (const int member : members) {
    places.insert(ranks[static_cast<std::size_t>(member)].place);
    versions.insert(ranks[static_cast<std::size_t>(member)].nccl);
  }
  if (versions.contains(0)) return "NCCL cannot be used on all ranks (tutti::nccl::why_not())";
  if (versions.size() > 1) return "the ranks have different versions of NCCL";
  return places.size() < members.size() ? "two ranks have one device, which NCCL refuses" : "";
}

// ---- of a communicator ----

namespace {

enum : int {
  for_chunks,
  for_heads = tutti::extend::rts_channel,
  for_payload,
  for_notes,
  for_nccl,
  for_oneccl
};

communicator channel(const communicator& c, int number) {
  return tutti::extend::side_channel(c, number, "devices");
}

// A call is served by the first that can.
constexpr backend in_order[] = {backend::nccl, backend::oneccl, backend::one_device, backend::staged};

}  // namespace

communicator_devices::communicator_devices(const communicator& c, const world_devices& opened)
    : on_(opened.on),
      how_(opened.how),
      own_(std::make_shared<device_group>(on_, channel(c, for_chunks), channel(c, for_heads),
                                          channel(c, for_payload), how_)),
      nccl_{channel(c, for_nccl), nullptr},
      oneccl_{channel(c, for_oneccl), nullptr},
      forced_(fmt::format("the backend {} is forced", gpu::name_of(how_.backend))) {
  const std::vector<int>& members = tutti::extend::world_ranks_of(c);
  std::vector<const introduction*> all;
  for (const int member : members) all.push_back(&opened.ranks[static_cast<std::size_t>(member)]);
  const introduction& first = *all[0];
  const auto every = [&all](auto same) { return std::all_of(all.begin(), all.end(), same); };
  const bool one_process = every([&](const introduction* i) { return i->process == first.process; });
  const bool one_device = every([&](const introduction* i) { return i->device == first.device; });
  const tutti::extend::identity who = tutti::extend::identity_of(c);
  if (one_device && one_process)
    own_->meet(single_device_group::find(fmt::format("{:x}.{}.{}", who.world, who.communicator, members[0]),
                                         c.size()));
  const bool at_once = every([](const introduction* i) { return i->processes_at_once != 0; });
  if (one_device && !one_process && may_use(backend::one_device, operation_kind::all_reduce)) {
    if (at_once || how_.backend != backend::automatic)
      own_->look_for_window(channel(c, for_notes));
    else
      own_->meet_nowhere(
          "the device runs the ranks' processes in turns, which makes staging faster; MPS runs "
          "them at once (nvidia-cuda-mps-control -d)");
  }

  why_not_nccl_ = opened.why_not_nccl(members);
  if (how_.queue.handle == nullptr && how_.backend != backend::oneccl)
    why_not_oneccl_ = "there is no queue of SYCL's (open_options::queue)";
}

bool communicator_devices::may_use(backend b, operation_kind kind) const noexcept {
  return how_.backend == backend::automatic || how_.backend == b || is_pairwise(kind) ||
         kind == operation_kind::batch;
}

std::string_view communicator_devices::why_not(backend b, const device_arguments& c) const noexcept {
  if (!may_use(b, c.kind)) return forced_;
  if (is_pairwise(c.kind) && b != backend::staged) return "messages are staged";
  if (c.kind == operation_kind::batch && b != backend::nccl) return "NCCL alone moves batches of messages";
  switch (b) {
    case backend::nccl:
      if (own_->size() == 1 && how_.backend == backend::automatic && c.kind != operation_kind::batch)
        return "there is one rank";
      return why_not_nccl_.empty() ? nccl::why_not_by_nccl(c) : why_not_nccl_;
    case backend::oneccl:
      return why_not_oneccl_.empty() ? oneccl::why_not_by_oneccl(c, how_.queue.handle != nullptr)
                                     : why_not_oneccl_;
    case backend::one_device:
      return own_->why_not_on_one_device(c);
    default:
      return {};
  }
}

backend communicator_devices::pick(const device_arguments& c) const {
  const backend* const by = std::ranges::find_if(in_order, [&](backend b) { return why_not(b, c).empty(); });
  if (by != std::end(in_order)) return *by;
  if (c.kind == operation_kind::batch)
    throw error(errc::not_supported,
                fmt::format("NCCL alone moves batches of messages: {}", why_not(backend::nccl, c)));
  throw error(
      errc::not_supported,
      fmt::format("the backend {}, which is forced (open_options::backend, TUTTI_GPU_BACKEND), cannot "
                  "serve it: {}",
                  gpu::name_of(how_.backend), why_not(how_.backend, c)));
}

served_by communicator_devices::explain(const device_arguments& c) const {
  served_by found;
  for (const backend b : in_order) {
    const std::string_view why = why_not(b, c);
    if (why.empty()) {
      found.with = b;
      break;
    }
    found.not_by.push_back({b, std::string(why)});
  }
  return found;
}

communicator_devices& communicator_devices::of(const communicator& c) {
  std::shared_ptr<void>& place = tutti::extend::attribute_of(c, &attribute_key);
  if (!place) {
    const world_devices& opened = world_devices::of(c);
    for (const int member : tutti::extend::world_ranks_of(c)) {
      const auto at = static_cast<std::size_t>(member);
      if (at >= opened.ranks.size() || opened.ranks[at].process == 0)
        throw error(errc::invalid_argument,
                    fmt::format("rank {} of the world was not in gpu::open: call it on all ranks", member));
    }
    place = std::make_shared<communicator_devices>(c, opened);
  }
  return *static_cast<communicator_devices*>(place.get());
}

// The first collective that needs a window or a library opens or connects it. Collectives that start
// meanwhile wait for their turn, which comes in the same order on all ranks.
task<> communicator_devices::perform(work_state* w) {
  const device_arguments& c = w->what;
  std::optional<device_group::turn> mine;
  if (!is_pairwise(c.kind)) mine.emplace(*own_);
  if (looks_for_window() && has_chunks(c)) {
    co_await own_->its_turn(&*mine);
    if (looks_for_window()) co_await own_->find_window();
  }
  const backend by = pick(c);
  if (by != backend::nccl && by != backend::oneccl)
    co_return co_await own_->perform(w, by, mine ? &*mine : nullptr);
  library& with = by == backend::nccl ? nccl_ : oneccl_;
  if (!with.connected || taking_turns_ > 0 || on_->driver().frees_first()) {
    ++taking_turns_;
    const scope_exit waited([this] { --taking_turns_; });
    co_await own_->its_turn(&*mine);
    while (on_->driver().frees_first()) co_await sleep_for(std::chrono::milliseconds(1));
    if (!with.connected && by == backend::nccl)
      with.connected = co_await nccl::connect(std::exchange(with.beside, {}), device(on_));
    else if (!with.connected)
      with.connected = co_await oneccl::connect(std::exchange(with.beside, {}), device(on_), how_.queue);
  }
  co_await with.connected->perform(w, &*mine);
}

// ---- of a call ----

std::string device_call::bad_stream(const tutti::extend::call& what) const {
  if (!after_) return "the stream is empty";
  const communicator handle(what.comm);
  const world_devices& opened = world_devices::of(handle);
  driver& d = after_->on().driver();
  if (&after_->on() != opened.on.get())
    return fmt::format(
        "the stream is of {}, gpu::open was called with {}, or both were opened separately: open a "
        "device once for each loop",
        d.name(), opened.on->driver().name());
  if (d.capturing(after_->native()))
    return "the stream is being captured into a graph, which would not run what the host does in between";
  return {};
}

std::string device_call::bad_argument(const tutti::extend::call& what) const {
  std::string wrong = bad_stream(what);
  if (!wrong.empty()) return wrong;
  // The element type of tensors is known only at run time.
  if (tutti::extend::row_of(what.kind).reduces && what.op.kind != reduce_kind::user &&
      !tutti::extend::fits(what.op.kind, what.out.type))
    return "this reduction is not defined for elements of this type";
  communicator_devices& side = communicator_devices::of(communicator(what.comm));
  if (!side.looks_for_window()) static_cast<void>(side.pick(made(what)));
  return {};
}

device_arguments device_call::made(const tutti::extend::call& what) const {
  return {.kind = what.kind,
          .in = {what.in, in_},
          .out = {what.out, out_ ? out_ : in_},
          .peer = what.peer,
          .tag = what.tag,
          .op = what.op,
          .extra = extra_,
          .whole = &what};
}

task<> device_call::execute(tutti::extend::operation_state& op) {
  const tutti::extend::call& what = op.what();
  attachment& on = after_->on();
  on.check();
  const communicator handle(what.comm);
  work_ = make_recycled<work_state>(after_->shared_on(), made(what));
  const scope_exit release([this] { end_work(); });
  work_->what.ready = std::shared_ptr<void>(
      on.take_event(), [home = after_->shared_on()](void* e) { home->give_event(e); },
      frame_allocator<std::byte>());
  on.driver().record(work_->what.ready.get(), after_->native());
  co_await communicator_devices::of(handle).perform(work_.get());
  co_await waits_in(on, work_->wait_done, work_->done);
  work_->rethrow();
  if (is_pairwise(what.kind)) op.set_result(work_->result);
}

}  // namespace impl
}  // namespace tutti::gpu

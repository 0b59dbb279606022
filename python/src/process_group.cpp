// SPDX-License-Identifier: Apache-2.0
#include "process_group.hpp"

#include "device_place.hpp"
#include "process_group_request.hpp"
#include "torch_store.hpp"

#include <c10/util/Exception.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <tutti/extend/failure.hpp>
#include <tutti/extend/side_channel.hpp>
#include <tutti/init_options.hpp>
#include <tutti/task.hpp>
#include <tutti/torch/tensor.hpp>
#include <utility>

namespace tutti::python {
namespace {

using extend::buffer_view;
using extend::call;
using k = extend::operation_kind;

constexpr int first_monitored_tag = 0x7fff'0000;
// How long destroy_process_group waits for ranks that have yet to call the last collective.
constexpr auto patience_at_end = std::chrono::seconds(5);

// Errors name ranks of the group. Says which of the world they are, if they are others.
std::string where_is(const process_group::options& o) {
  const std::vector<std::uint64_t>& ranks = o.global_ranks_in_group;
  constexpr std::size_t most = 64;
  std::string list;
  bool same = true;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    same = same && ranks[i] == i;
    if (i <= most) list += (i == 0 ? "" : ", ") + (i == most ? "..." : std::to_string(ranks[i]));
  }
  return same ? "" : c10::str("in a process group whose ranks 0, 1, ... are ", list, " of the world: ");
}

// PyTorch numbers groups; 0 is the world.
std::string name_of_group(const process_group::options& o) {
  return o.group_name.empty() || o.group_name == "0" ? "world" : "group " + o.group_name;
}

task<> join(runtime& rt, init_options options, torch_store* through, communicator* world) {
  co_await through->begin_meeting(std::to_string(options.rank), options.timeout);
  *world = co_await init(rt, std::move(options), *through);
}

task<> shrink_in_place(communicator* group) { *group = co_await group->shrink(); }

// The text of rank 0.
task<> share(communicator* among, std::string* text) {
  std::vector<std::uint64_t> bytes(1, text->size());
  co_await among->broadcast(bytes, 0);
  text->resize(bytes[0]);
  co_await among->broadcast(*text, 0);
}

}  // namespace

template <class F>
void process_group::run(torch_store* through, const F& make_task) {
  extend::loop_driver& d = runtime_.driver();
  extend::running_task running;
  struct outcome {
    extend::loop_driver* driver;
    bool ended = false;
    std::exception_ptr failure = nullptr;
  } o{&d};
  {
    const extend::loop_driver::entry here(d);
    running.start(
        make_task(),
        [](void* owner, std::exception_ptr failure) noexcept {
          auto& it = *static_cast<outcome*>(owner);
          it.failure = std::move(failure);
          it.ended = true;
          it.driver->notify();
        },
        &o);
  }
  try {
    // Every wait of the operation has a deadline.
    runtime_.wait_until([&o] { return o.ended; }, time_point::max());
  } catch (...) {  // a handler of a signal, such as Ctrl-C's, raises
    if (through != nullptr) through->give_up();
    const auto may_stop = [&] { return o.ended || through == nullptr || through->is_idle(); };
    for (;;) {
      d.run_until(may_stop, time_point::max());
      const extend::loop_driver::entry here(d);
      if (!may_stop()) continue;  // another thread has driven the loop in between
      running.stop();
      throw;
    }
  }
  {
    const extend::loop_driver::entry here(d);
    running.stop();
  }
  if (o.failure) std::rethrow_exception(translated(o.failure, *hooks_));
}

process_group::process_group(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                             c10::intrusive_ptr<options> chosen, bool one_job)
    : Backend(rank, size),
      options_(std::move(chosen)),
      joined_with_(options_->timeout),
      store_(torch_store::without_prefixes(store)) {
  hooks_->where = where_is(*options_);
  torch_store through(store, runtime_.driver(), one_job);
  init_options how;
  how.rank = rank;
  how.world_size = size;
  how.timeout = options_->timeout;
  communicator world;
  run(&through, [&] { return join(runtime_.runtime(), how, &through, &world); });
  const extend::loop_driver::entry here(runtime_.driver());
  world_ = std::exchange(world, {});
  extend::set_name(world_, name_of_group(*options_));
}

// Of the communicators of a group.
struct process_group::numbers {
  std::uint32_t group = 0;
  std::uint32_t in_callbacks = 0;

  // Each rank of the group calls it.
  static task<> share(torch_store* through, std::string key, std::chrono::milliseconds timeout, bool gives,
                      numbers* all) {
    if (gives) {
      co_await through->set(key, c10::str(all->group, ' ', all->in_callbacks), timeout);
    } else {
      std::istringstream text(co_await through->get(key, timeout));
      if (!(text >> all->group >> all->in_callbacks))
        throw error(errc::protocol, "torch's store has other numbers of a group than rank 0 has set");
    }
  }
};

namespace {

struct group_of_all {
  std::mutex mutex;
  process_group* group = nullptr;
  const c10d::Store* store = nullptr;
  std::map<std::string, unsigned> named;  // how many groups had a name since then

  static group_of_all& here() {
    static auto* const it = new group_of_all;
    return *it;
  }
};

}  // namespace

process_group::parent::parent(process_group& g) : of(g.runtime_), rank(g.getRank()), world(g.world_) {}

process_group::parent::~parent() {
  const extend::loop_driver::entry here(of.driver());
  world = {};
}

process_group::process_group(const parent& of, const c10::intrusive_ptr<c10d::Store>& store,
                             const std::vector<std::uint64_t>& members, c10::intrusive_ptr<options> chosen)
    : Backend(
          static_cast<int>(std::ranges::find(members, static_cast<std::uint64_t>(of.rank)) - members.begin()),
          static_cast<int>(members.size())),
      options_(std::move(chosen)),
      joined_with_(options_->timeout),
      store_(torch_store::without_prefixes(store)) {
  hooks_->where = where_is(*options_);
  if (options_->timeout < std::chrono::milliseconds(1))
    fail(c10::str("tutti: new_group: timeout= is ", options_->timeout.count(), " ms; give at least 1 ms"));
  const bool gives = getRank() == 0;
  numbers all;
  std::string key;
  {
    const extend::loop_driver::entry here(runtime_.driver());
    if (gives) all = {extend::draw_number(of.world), extend::draw_number(of.world)};
    const extend::identity parent = extend::identity_of(of.world);
    key = c10::str("group/", parent.world, '/', parent.communicator);
  }
  {  // a later group may have the name of one that was destroyed
    group_of_all& named = group_of_all::here();
    const std::scoped_lock hold(named.mutex);
    key += c10::str('/', ++named.named[c10::str(key, '/', options_->group_name)]);
  }
  if (getSize() > 1) {
    torch_store through(store, runtime_.driver(), true);
    run(&through, [&] { return numbers::share(&through, key, options_->timeout, gives, &all); });
  }
  const extend::loop_driver::entry here(runtime_.driver());
  // It is no child of the parent, which may be aborted while this one goes on.
  try {
    world_ = extend::make_numbered(of.world, all.group, name_of_group(*options_),
                                   std::vector<int>(members.begin(), members.end()));
  } catch (const error&) {
    std::rethrow_exception(translated(std::current_exception(), *hooks_));
  }
  extend::set_timeout(world_, options_->timeout);
  number_in_callbacks_ = all.in_callbacks;
}

void process_group::set_of_all(const c10::intrusive_ptr<c10d::Store>& store) {
  group_of_all& all = group_of_all::here();
  const std::scoped_lock hold(all.mutex);
  all.group = this;
  all.store = torch_store::without_prefixes(store).get();
  all.named.clear();
}

std::unique_ptr<process_group::parent> process_group::of_all(const c10::intrusive_ptr<c10d::Store>& store) {
  group_of_all& all = group_of_all::here();
  const std::scoped_lock hold(all.mutex);
  if (all.group == nullptr || all.store != torch_store::without_prefixes(store).get()) return nullptr;
  all.group->check("new_group");
  const extend::loop_driver::entry here(all.group->runtime_.driver());
  return all.group->world_ ? std::make_unique<parent>(*all.group) : nullptr;
}

std::unique_ptr<process_group::parent> process_group::as_parent(const char* what) {
  check(what);
  const extend::loop_driver::entry here(runtime_.driver());
  if (!world_) fail(c10::str("tutti: ", what, ": this process group was destroyed"));
  return std::make_unique<parent>(*this);
}

process_group::~process_group() { leave(); }

// Data that a broadcast's root has sent, for example, are compared with the others' calls only here, if no later
// collective has done it.
void process_group::compare_calls() {
  extend::loop_driver& d = runtime_.driver();
  struct {
    extend::loop_driver* driver;
    std::atomic<bool> ended = false;
  } o{&d};
  extend::running_task comparing;
  communicator kept;
  {
    const extend::loop_driver::entry here(d);
    if (!world_) return;
    kept = world_;
    comparing.start(
        extend::compare_last(kept,
                             clock::now() + std::min<clock::duration>(options_->timeout, patience_at_end)),
        [](void* owner, std::exception_ptr) noexcept {
          auto& it = *static_cast<decltype(o)*>(owner);
          it.ended = true;
          it.driver->notify();
        },
        &o);
  }
  std::exception_ptr raised;
  try {
    runtime_.wait_until([&o] { return o.ended.load(); }, time_point::max());
  } catch (...) {  // by a handler of a signal
    raised = std::current_exception();
  }
  const extend::loop_driver::entry here(d);
  comparing.stop();
  const extend::failure found = extend::failure_of(kept);
  const bool differed = found.code == errc::mismatch && !hooks_->told.exchange(true);
  kept = {};
  if (raised) std::rethrow_exception(raised);
  if (differed)
    std::rethrow_exception(translated(std::make_exception_ptr(error(errc::mismatch, found.text)), *hooks_));
}

void process_group::shutdown() {
  std::exception_ptr failure;
  try {
    if (!runtime_.is_parents()) {
      // Their time limits bound it.
      runtime_.wait_until([this] { return hooks_->on_devices == 0; }, time_point::max());
      compare_calls();
    }
  } catch (...) {
    failure = std::current_exception();
  }
  leave();
  if (failure) std::rethrow_exception(failure);
}

void process_group::leave() {
  {
    group_of_all& all = group_of_all::here();
    const std::scoped_lock hold(all.mutex);
    if (all.group == this) all.group = nullptr;
  }
  if (runtime_.is_parents()) {
    // Leaked, because its end would tell other ranks that the parent leaves.
    static_cast<void>(new communicator(std::move(world_)));
    static_cast<void>(new communicator(std::move(in_callbacks_)));
    for (placement* p : {&on_device_, &callbacks_on_device_})
      static_cast<void>(new std::shared_ptr<device_place>(std::move(p->place)));
    return;
  }
  {
    const extend::loop_driver::entry here(runtime_.driver());
    for (const placement* p : {&on_device_, &callbacks_on_device_})
      if (p->place) p->place->close();
    in_callbacks_ = {};
    world_ = {};
  }
  runtime_.finish_ended();
}

void process_group::abort() {
  std::vector<std::pair<std::int64_t, c10d::AbortHook>> abort;
  {
    const std::scoped_lock hold(hooks_->mutex);
    abort = hooks_->abort;
  }
  // PyTorch's hook writes down the pending operations, which takes seconds.
  for (const auto& [id, hook] : abort) hook();
  const extend::loop_driver::entry here(runtime_.driver());
  if (in_callbacks_) in_callbacks_.abort();
  if (world_) world_.abort();
}

process_group::survivors process_group::agree_on_survivors(const std::function<std::string()>& offer) {
  const std::unique_ptr<parent> go_on = as_parent("shrink");
  run(nullptr, [&] { return shrink_in_place(&go_on->world); });
  survivors found;
  bool first = false;
  {
    const extend::loop_driver::entry here(runtime_.driver());
    const std::vector<int>& all = extend::world_ranks_of(world_);
    for (const int rank : extend::world_ranks_of(go_on->world))
      found.ranks.push_back(static_cast<int>(std::ranges::find(all, rank) - all.begin()));
    first = go_on->world.rank() == 0;
  }
  if (first) found.offer = offer();
  run(nullptr, [&] { return share(&go_on->world, &found.offer); });
  hooks_->told = true;  // the caller goes on after the failure
  return found;
}

c10d::ErrorType process_group::getError() {
  const extend::loop_driver::entry here(runtime_.driver());
  return world_ && extend::failure_of(world_).code != errc::success ? c10d::ErrorType::COMM_ERROR
                                                                    : c10d::ErrorType::SUCCESS;
}

c10::intrusive_ptr<c10d::Backend> process_group::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                       const std::vector<int>& ranks,
                                                       const c10::intrusive_ptr<Backend::Options>& opts) {
  if (std::ranges::find(ranks, getRank()) == ranks.end()) return nullptr;
  return c10::make_intrusive<process_group>(*as_parent("split_group"), store,
                                            std::vector<std::uint64_t>(ranks.begin(), ranks.end()),
                                            options_for(opts));
}

c10::intrusive_ptr<c10d::Backend> process_group::merge(const c10::intrusive_ptr<c10d::Store>& store,
                                                       const c10::intrusive_ptr<Backend::Options>& opts,
                                                       const int& rank, const int& size) {
  return c10::make_intrusive<process_group>(store, rank, size, options_for(opts), false);
}

c10::intrusive_ptr<c10d::Backend> process_group::shrink(const std::vector<std::int64_t>& without, int flags,
                                                        const c10::intrusive_ptr<Backend::Options>& opts) {
  const c10::intrusive_ptr<c10d::Store> store = store_.lock();
  if (!store) fail("tutti: shrink_group: the store of this process group was destroyed");
  if (flags != 0) abort();  // SHRINK_ABORT
  const std::unique_ptr<parent> of = as_parent("shrink_group");
  const c10::intrusive_ptr<options> chosen = options_for(opts);
  chosen->global_ranks_in_group.clear();
  const std::vector<std::uint64_t>& globals = options_->global_ranks_in_group;
  std::vector<std::uint64_t> members;
  for (std::uint64_t rank = 0; rank < static_cast<std::uint64_t>(getSize()); ++rank) {
    if (std::ranges::find(without, static_cast<std::int64_t>(rank)) != without.end()) continue;
    members.push_back(rank);
    chosen->global_ranks_in_group.push_back(globals.empty() ? rank : globals[rank]);
  }
  return c10::make_intrusive<process_group>(*of, store, members, chosen);
}

c10::intrusive_ptr<process_group::options> process_group::options_for(
    const c10::intrusive_ptr<Backend::Options>& opts) const {
  auto chosen = c10::make_intrusive<options>(opts ? opts->timeout : options_->timeout, options_->backend);
  if (opts) {
    chosen->group_name = opts->group_name;
    chosen->group_desc = opts->group_desc;
    chosen->global_ranks_in_group = opts->global_ranks_in_group;
  }
  return chosen;
}

namespace {

template <class Hooks, class Hook>
void set_hook(group_hooks& all, Hooks& list, std::int64_t id, Hook hook) {
  const std::scoped_lock hold(all.mutex);
  std::erase_if(list, [id](const auto& one) { return one.first == id; });
  if (hook) list.emplace_back(id, std::move(hook));
  all.any = !all.completion.empty();
}

}  // namespace

void process_group::registerAbortHook(std::int64_t id, c10d::AbortHook hook) {
  set_hook(*hooks_, hooks_->abort, id, std::move(hook));
}
void process_group::unregisterAbortHook(std::int64_t id) {
  set_hook(*hooks_, hooks_->abort, id, c10d::AbortHook());
}
void process_group::registerCompletionHook(std::int64_t id, c10d::CompletionHook hook) {
  set_hook(*hooks_, hooks_->completion, id, std::move(hook));
}
void process_group::unregisterCompletionHook(std::int64_t id) {
  set_hook(*hooks_, hooks_->completion, id, c10d::CompletionHook());
}
void process_group::registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) {
  auto shared = std::make_shared<const group_hooks::on_completion_hook>(std::move(hook));
  onCompletionHook_ = [shared](std::shared_ptr<c10d::WorkInfo> info) { (*shared)(std::move(info)); };
  const std::scoped_lock hold(hooks_->mutex);
  hooks_->on_completion = std::move(shared);
  hooks_->any_on_completion = true;
}

void process_group::waitForPendingWorks() {
  while (hooks_->pending > 0) {
    runtime_.driver().run_until([this] { return hooks_->pending == 0; },
                                clock::now() + std::chrono::milliseconds(1));
    runtime_.finish_ended();
  }
}

void process_group::check(const char* what) const {
  if (runtime_.is_parents())
    fail(
        c10::str("tutti: ", what,
                 ": this process was forked by one that uses this process group, which is its parent's: call "
                 "destroy_process_group and init_process_group in the child, or start it by spawn"));
}

// The call gets its communicator on the loop, because another thread may destroy the group.
call process_group::call_of(k kind) { return call(kind, {}); }

// Callbacks run in one order on all ranks, but in any order with what the program does meanwhile. So their collectives
// are matched among themselves.
const communicator& process_group::world_of_callbacks() {
  const extend::loop_driver::entry here(runtime_.driver());
  if (getSize() == 1) return world_;
  if (world_ && !in_callbacks_)
    in_callbacks_ =
        extend::duplicate_numbered(world_, number_in_callbacks_, world_.name() + ", in callbacks");
  return in_callbacks_;
}

// The first collective with a tensor on a device decides for all that follow on its communicator; so does device_id= of
// init_process_group.
std::shared_ptr<device_place> process_group::place_of(c10::Device on, const char* what) {
  if (on.is_cpu()) return nullptr;
  const bool nested = is_in_callback();
  placement& known = nested ? callbacks_on_device_ : on_device_;
  const std::scoped_lock hold(deciding_);
  if (!known.decided) {
    known.why_staged = why_always_staged(on);
    known.decided = !known.why_staged.empty();
  }
  if (!known.decided) {
    const std::shared_ptr<device_place> made = make_place(on);
    const at::Tensor memory = at::empty({1}, at::TensorOptions().dtype(at::kByte).device(made->device));
    const communicator& world = nested ? world_of_callbacks() : world_;
    {
      const extend::loop_driver::entry here(runtime_.driver());
      if (!world) fail(c10::str("tutti: ", what, ": this process group was destroyed"));
    }
    run(nullptr, [&] { return decide(world, made, memory.const_data_ptr(), &known); });
  }
  TORCH_CHECK_VALUE(!known.place || on.index() < 0 || known.place->device == on, "tutti: ", what,
                    ": the tensor is on ", on, ", but this process group uses ", known.place->device,
                    ", as its first tensor: use new_group for another device");
  return known.place;
}

std::string process_group::why_staged() {
  const std::scoped_lock hold(deciding_);
  return on_device_.why_staged;
}

process_group::result process_group::begin(request&& r) {
  r.on_stream.reset();
  const std::chrono::milliseconds timeout =
      r.timeout == c10d::kUnsetTimeout ? options_->timeout : bounded(r.timeout);
  if (!r.message) ++sequence_;
  if (!r.after.empty())
    r.calls.after = [all = std::move(r.after)](std::size_t received) {
      for (const auto& f : all) f(received);
    };
  auto made = c10::make_intrusive<work>(
      runtime_, getRank(), r.type, title_of(options_->backend, r.profiled), sequence_, timeout, hooks_,
      std::move(r.outputs), r.inputs.empty() ? std::nullopt : std::optional<tensors>(std::move(r.inputs)));
  if (timeout != joined_with_) made->set_limited();
  if (r.follows) made->set_follows();
  if (r.message) made->set_message(r.from_self);
  made->set_place(std::move(r.place));
  if (r.async && !r.message) hooks_->use(made, r.used);
  try {
    made->begin(std::move(r.calls),
                !r.async    ? work::care::waits
                : r.message ? work::care::later
                            : work::care::now,
                made->is_nested() && !r.message ? world_of_callbacks() : world_);
  } catch (...) {
    hooks_->release(*made);
    throw;
  }
  return made;
}

process_group::result process_group::broadcast(tensors& data, const c10d::BroadcastOptions& o) {
  request r(*this, "broadcast", "broadcast", c10d::OpType::BROADCAST);
  check(r.name);
  r.async = o.asyncOp;
  r.timeout = o.timeout;
  const at::Tensor& t = only(data, r.name);
  call c = call_of(k::broadcast);
  c.in = c.out = o.rootRank == getRank() ? r.reads(t) : r.writes(t);
  c.peer = static_cast<int>(o.rootRank);
  r.calls.calls.push_back(std::move(c));
  r.inputs = r.outputs = data;
  return begin(std::move(r));
}

process_group::result process_group::allreduce(tensors& data, const c10d::AllreduceOptions& o) {
  request r(*this, "all_reduce", "all_reduce", c10d::OpType::ALLREDUCE);
  check(r.name);
  r.async = o.asyncOp;
  r.timeout = o.timeout;
  TORCH_CHECK_VALUE(data.size() == 1, "tutti: all_reduce takes one tensor of each rank, and got ",
                    data.size());
  if (data[0].is_sparse()) return reduce_sparse(data[0], o);
  const at::Tensor& t = only(data, r.name);
  call c = call_of(k::all_reduce);
  c.in = c.out = r.writes(real_of(t), true);
  c.op = r.reduces(o.reduceOp, t, data, getSize());
  r.calls.calls.push_back(std::move(c));
  r.inputs = r.outputs = data;
  return begin(std::move(r));
}

process_group::result process_group::allreduce_coalesced(tensors& data,
                                                         const c10d::AllreduceCoalescedOptions& o) {
  request r(*this, "all_reduce_coalesced", "all_reduce", c10d::OpType::ALLREDUCE_COALESCED);
  check(r.name);
  r.async = o.asyncOp;
  r.timeout = o.timeout;
  TORCH_CHECK_VALUE(!data.empty(), "tutti: all_reduce_coalesced requires non-empty tensor list");
  call c = call_of(k::all_reduce);
  r.calls.keeps.reserve(data.size());
  for (const at::Tensor& t : data) {
    TORCH_CHECK_VALUE(t.layout() == at::kStrided, "tutti: tensor layout must be dense");
    check_same(t, data[0], r.name);
    r.calls.list.push_back(r.writes(real_of(t), true));
  }
  c.out = r.calls.list[0];
  c.out.count = 0;
  for (const buffer_view& one : r.calls.list) c.out.count += one.count;
  c.in = c.out;
  c.list.at = [](const void* list, std::size_t i) noexcept {
    return static_cast<const buffer_view*>(list)[i];
  };
  c.list.list = r.calls.list.data();
  c.list.size = r.calls.list.size();
  c.op = r.reduces(o.reduceOp, data[0], data, getSize());
  r.calls.calls.push_back(std::move(c));
  r.inputs = r.outputs = data;
  return begin(std::move(r));
}

process_group::result process_group::reduce(tensors& data, const c10d::ReduceOptions& o) {
  request r(*this, "reduce", "reduce", c10d::OpType::REDUCE);
  check(r.name);
  r.async = o.asyncOp;
  r.timeout = o.timeout;
  const at::Tensor& t = only(data, r.name);
  call c = call_of(k::reduce);
  const bool root = o.rootRank == getRank();
  c.in = root ? r.writes(real_of(t), true) : r.reads(real_of(t));
  c.out = root ? c.in : none_of(c.in);
  c.peer = static_cast<int>(o.rootRank);
  c.op = r.reduces(o.reduceOp, t, root ? data : tensors(), getSize());
  r.calls.calls.push_back(std::move(c));
  r.inputs = r.outputs = data;
  return begin(std::move(r));
}

process_group::result process_group::allgather(std::vector<tensors>& out, tensors& in,
                                               const c10d::AllgatherOptions& o) {
  request r(*this, "all_gather", "all_gather", c10d::OpType::ALLGATHER);
  check(r.name);
  r.async = o.asyncOp;
  r.timeout = o.timeout;
  const at::Tensor& mine = only(in, r.name);
  TORCH_CHECK_VALUE(out.size() == 1 && static_cast<int>(out[0].size()) == getSize(),
                    "tutti: all_gather needs one output tensor for each of ", getSize(), " ranks");
  for (const at::Tensor& t : out[0]) check_same(t, mine, r.name);
  const bool even = all_alike(out[0]);
  call c = call_of(even ? k::all_gather : k::all_gather_v);
  c.in = r.reads(mine);
  c.out = r.writes_list(out[0]);
  if (!even) {
    for (const at::Tensor& t : out[0]) r.calls.out_counts.push_back(static_cast<std::size_t>(t.numel()));
    r.set_counts(c, false, true);
  }
  r.calls.calls.push_back(std::move(c));
  r.outputs = out[0];
  return begin(std::move(r));
}

process_group::result process_group::all_gather_single(at::Tensor& out, at::Tensor& in,
                                                       const c10d::AllgatherOptions& o) {
  tensors outs{out}, ins{in};
  return all_gather_single_coalesced(outs, ins, o);
}

process_group::result process_group::all_gather_single_coalesced(tensors& out, tensors& in,
                                                                 const c10d::AllgatherOptions& o) {
  request r(*this, "all_gather_into_tensor", "all_gather", c10d::OpType::_ALLGATHER_BASE);
  check(r.name);
  r.async = o.asyncOp;
  r.timeout = o.timeout;
  TORCH_CHECK_VALUE(out.size() == in.size(), "tutti: all_gather_into_tensor: ", in.size(), " inputs, but ",
                    out.size(), " outputs");
  r.calls.keeps.reserve(2 * out.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    check_tensor(in[i], r.name);
    check_same(out[i], in[i], r.name);
    TORCH_CHECK_VALUE(
        out[i].numel() == in[i].numel() * getSize(),
        "tutti: output tensor size must be equal to world_size times input tensor size: it has ",
        out[i].numel(), " elements, the input has ", in[i].numel(), ", and there are ", getSize(), " ranks");
    call c = call_of(k::all_gather);
    c.in = r.reads(in[i]);
    c.out = r.writes(out[i]);
    r.calls.calls.push_back(std::move(c));
  }
  r.outputs = out;
  return begin(std::move(r));
}

process_group::result process_group::allgather_coalesced(std::vector<tensors>& out, tensors& in,
                                                         const c10d::AllgatherOptions& o) {
  request r(*this, "all_gather_coalesced", "all_gather", c10d::OpType::ALLGATHER_COALESCED);
  check(r.name);
  r.async = o.asyncOp;
  r.timeout = o.timeout;
  TORCH_CHECK_VALUE(static_cast<int>(out.size()) == getSize(),
                    "tutti: all_gather_coalesced needs a list for each of ", getSize(), " ranks");
  for (std::size_t i = 0; i < in.size(); ++i) {
    check_tensor(in[i], r.name);
    tensors of_all;
    for (const tensors& list : out) {
      TORCH_CHECK_VALUE(list.size() == in.size(),
                        "tutti: all_gather_coalesced: output lists have to match input list");
      check_same(list[i], in[i], r.name);
      TORCH_CHECK_VALUE(list[i].sizes() == in[i].sizes(),
                        "tutti: all_gather_coalesced: tensor sizes must match");
      of_all.push_back(list[i]);
    }
    call c = call_of(k::all_gather);
    c.in = r.reads(in[i]);
    c.out = r.writes_list(of_all);
    r.calls.calls.push_back(std::move(c));
  }
  for (const tensors& list : out) r.outputs.insert(r.outputs.end(), list.begin(), list.end());
  return begin(std::move(r));
}

process_group::result process_group::gather(std::vector<tensors>& out, tensors& in,
                                            const c10d::GatherOptions& o) {
  request r(*this, "gather", "gather", c10d::OpType::GATHER);
  check(r.name);
  r.async = o.asyncOp;
  r.timeout = o.timeout;
  const at::Tensor& mine = only(in, r.name);
  call c = call_of(k::gather);
  c.in = r.reads(mine);
  c.out = none_of(c.in);
  c.peer = static_cast<int>(o.rootRank);
  if (o.rootRank == getRank()) {
    TORCH_CHECK_VALUE(out.size() == 1 && static_cast<int>(out[0].size()) == getSize(),
                      "tutti: gather needs one output tensor for each of ", getSize(), " ranks on the root");
    for (const at::Tensor& t : out[0]) {
      check_same(t, mine, r.name);
      TORCH_CHECK_VALUE(t.sizes() == mine.sizes(),
                        "tutti: gather: invalid tensor size: all have that of the input");
    }
    c.out = r.writes_list(out[0]);
    r.outputs = out[0];
  } else {
    TORCH_CHECK_VALUE(out.empty(), "tutti: gather: requires empty output on non-root");
  }
  r.calls.calls.push_back(std::move(c));
  return begin(std::move(r));
}

process_group::result process_group::gather_single(at::Tensor& out, at::Tensor& in,
                                                   const c10d::GatherOptions& o) {
  request r(*this, "gather_single", "gather", c10d::OpType::GATHER);
  check(r.name);
  r.async = o.asyncOp;
  r.timeout = o.timeout;
  check_tensor(in, r.name);
  call c = call_of(k::gather);
  c.in = r.reads(in);
  c.out = none_of(c.in);
  c.peer = static_cast<int>(o.rootRank);
  if (o.rootRank == getRank()) {
    check_same(out, in, r.name);
    TORCH_CHECK_VALUE(out.numel() == in.numel() * getSize(), "tutti: gather_single: the output has ",
                      out.numel(), " elements, not ", in.numel(), " for each of ", getSize(), " ranks");
    c.out = r.writes(out);
    r.outputs = {out};
  }
  r.calls.calls.push_back(std::move(c));
  return begin(std::move(r));
}

process_group::result process_group::scatter(tensors& out, std::vector<tensors>& in,
                                             const c10d::ScatterOptions& o) {
  request r(*this, "scatter", "scatter", c10d::OpType::SCATTER);
  check(r.name);
  r.async = o.asyncOp;
  r.timeout = o.timeout;
  const at::Tensor& mine = only(out, r.name);
  call c = call_of(k::scatter);
  c.out = r.writes(mine);
  c.in = none_of(c.out);
  c.peer = static_cast<int>(o.rootRank);
  if (o.rootRank == getRank()) {
    TORCH_CHECK_VALUE(in.size() == 1 && static_cast<int>(in[0].size()) == getSize(),
                      "tutti: scatter needs one input tensor for each of ", getSize(), " ranks on the root");
    for (const at::Tensor& t : in[0]) {
      check_same(t, mine, r.name);
      TORCH_CHECK_VALUE(t.sizes() == mine.sizes(),
                        "tutti: scatter: invalid tensor size: all have that of the output");
    }
    c.in = r.reads_list(in[0]);
  } else {
    TORCH_CHECK_VALUE(in.empty(), "tutti: scatter: requires empty input on non-root");
  }
  r.calls.calls.push_back(std::move(c));
  r.outputs = out;
  return begin(std::move(r));
}

process_group::result process_group::reduce_scatter(tensors& out, std::vector<tensors>& in,
                                                    const c10d::ReduceScatterOptions& o) {
  request r(*this, "reduce_scatter", "reduce_scatter", c10d::OpType::REDUCE_SCATTER);
  check(r.name);
  r.async = o.asyncOp;
  r.timeout = o.timeout;
  const at::Tensor& mine = only(out, r.name);
  TORCH_CHECK_VALUE(in.size() == 1 && static_cast<int>(in[0].size()) == getSize(),
                    "tutti: reduce_scatter needs one input tensor for each of ", getSize(), " ranks");
  for (const at::Tensor& t : in[0]) check_same(t, mine, r.name);
  TORCH_CHECK_VALUE(in[0][static_cast<std::size_t>(getRank())].numel() == mine.numel(),
                    "tutti: reduce_scatter: the output has ", mine.numel(),
                    " elements, this rank's input has ", in[0][static_cast<std::size_t>(getRank())].numel());
  const bool even = all_alike(in[0]);
  call c = call_of(even ? k::reduce_scatter : k::reduce_scatter_v);
  tensors real;
  for (const at::Tensor& t : in[0]) real.push_back(real_of(t));
  c.in = r.reads_list(real);
  c.out = r.writes(real_of(mine));
  if (!even) {
    for (const at::Tensor& t : real) r.calls.in_counts.push_back(static_cast<std::size_t>(t.numel()));
    r.set_counts(c, true, false);
  }
  c.op = r.reduces(o.reduceOp, mine, out, getSize());
  r.calls.calls.push_back(std::move(c));
  r.outputs = out;
  return begin(std::move(r));
}

process_group::result process_group::reduce_scatter_single(at::Tensor& out, at::Tensor& in,
                                                           const c10d::ReduceScatterOptions& o) {
  tensors outs{out}, ins{in};
  return reduce_scatter_single_coalesced(outs, ins, o);
}

process_group::result process_group::reduce_scatter_single_coalesced(tensors& out, tensors& in,
                                                                     const c10d::ReduceScatterOptions& o) {
  request r(*this, "reduce_scatter_tensor", "reduce_scatter", c10d::OpType::_REDUCE_SCATTER_BASE);
  check(r.name);
  r.async = o.asyncOp;
  r.timeout = o.timeout;
  TORCH_CHECK_VALUE(out.size() == in.size(), "tutti: reduce_scatter_tensor: ", in.size(), " inputs, but ",
                    out.size(), " outputs");
  r.calls.keeps.reserve(2 * out.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    check_tensor(in[i], r.name);
    check_same(out[i], in[i], r.name);
    TORCH_CHECK_VALUE(in[i].numel() == out[i].numel() * getSize(),
                      "tutti: input tensor must be the same size as output size times world size: it has ",
                      in[i].numel(), " elements, the output has ", out[i].numel(), ", and there are ",
                      getSize(), " ranks");
    call c = call_of(k::reduce_scatter);
    c.in = r.reads(real_of(in[i]));
    c.out = r.writes(real_of(out[i]));
    c.op = r.reduces(o.reduceOp, in[i], {out[i]}, getSize());
    r.calls.calls.push_back(std::move(c));
  }
  r.outputs = out;
  return begin(std::move(r));
}

namespace {

// Elements for each rank.
std::vector<std::size_t> counts_of(const std::vector<std::int64_t>& splits, const at::Tensor& t, int size,
                                   const char* what) {
  const std::int64_t rows = t.dim() == 0 ? 1 : t.size(0);
  const std::int64_t row = rows == 0 ? 0 : t.numel() / rows;
  std::vector<std::size_t> counts(static_cast<std::size_t>(size));
  if (splits.empty()) {
    TORCH_CHECK(rows % size == 0, "Tensor's dim 0 does not divide equally across group size");
    std::ranges::fill(counts, static_cast<std::size_t>(rows / size * row));
    return counts;
  }
  TORCH_CHECK(static_cast<int>(splits.size()) == size, "Number of tensor splits not equal to group size");
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < splits.size(); ++i) {
    TORCH_CHECK(splits[i] >= 0, "Split sizes must be non-negative");
    sum += splits[i];
    counts[i] = static_cast<std::size_t>(splits[i] * row);
  }
  TORCH_CHECK(sum == rows, "Split sizes doesn't match total dim 0 size: the ", what, " has ", rows,
              ", the splits add up to ", sum);
  return counts;
}

}  // namespace

process_group::result process_group::all_to_all_single(at::Tensor& out, at::Tensor& in,
                                                       std::vector<std::int64_t>& out_splits,
                                                       std::vector<std::int64_t>& in_splits,
                                                       const c10d::AllToAllOptions& o) {
  request r(*this, "all_to_all_single", "all_to_all", c10d::OpType::ALLTOALL_BASE);
  check(r.name);
  r.async = o.asyncOp;
  r.timeout = o.timeout;
  check_tensor(in, r.name);
  check_same(out, in, r.name);
  r.calls.in_counts = counts_of(in_splits, in, getSize(), "input");
  r.calls.out_counts = counts_of(out_splits, out, getSize(), "output");
  const bool even = in_splits.empty() && out_splits.empty();
  TORCH_CHECK_VALUE(!even || in.numel() == out.numel(), "tutti: all_to_all_single: the input has ",
                    in.numel(), " elements, the output ", out.numel());
  // A rank cannot know whether blocks are uneven elsewhere, so it always passes counts.
  call c = call_of(k::all_to_all_v);
  c.in = r.reads(in);
  c.out = r.writes(out);
  r.set_counts(c, true, true);
  r.calls.calls.push_back(std::move(c));
  r.outputs = {out};
  return begin(std::move(r));
}

process_group::result process_group::alltoall(tensors& out, tensors& in, const c10d::AllToAllOptions& o) {
  request r(*this, "all_to_all", "all_to_all", c10d::OpType::ALLTOALL);
  check(r.name);
  r.async = o.asyncOp;
  r.timeout = o.timeout;
  TORCH_CHECK_VALUE(static_cast<int>(in.size()) == getSize() && static_cast<int>(out.size()) == getSize(),
                    "tutti: all_to_all needs an input and an output tensor for each of ", getSize(),
                    " ranks");
  for (const at::Tensor& t : in) check_same(t, in[0], r.name);
  for (const at::Tensor& t : out) check_same(t, in[0], r.name);
  call c = call_of(k::all_to_all_v);  // as all_to_all_single
  c.in = r.reads_list(in);
  c.out = r.writes_list(out);
  for (const at::Tensor& t : in) r.calls.in_counts.push_back(static_cast<std::size_t>(t.numel()));
  for (const at::Tensor& t : out) r.calls.out_counts.push_back(static_cast<std::size_t>(t.numel()));
  r.set_counts(c, true, true);
  r.calls.calls.push_back(std::move(c));
  r.outputs = out;
  return begin(std::move(r));
}

void process_group::check_tag(int tag, const char* what) const {
  TORCH_CHECK_VALUE(tag < first_monitored_tag, "tutti: ", what, ": tag ", tag,
                    " is one of monitored_barrier's; use one below ", first_monitored_tag);
}

process_group::result process_group::send(tensors& data, int to, int tag) {
  request r(*this, "send", "send", c10d::OpType::SEND);
  check(r.name);
  check_tag(tag, r.name);
  r.message = true;
  call c = call_of(k::send);
  c.in = r.reads(only(data, r.name));
  c.out = c.in;
  c.peer = to;
  c.tag = tag;
  r.calls.calls.push_back(std::move(c));
  return begin(std::move(r));
}

process_group::result process_group::recv(tensors& data, int from, int tag) {
  request r(*this, "recv", from == any_source ? "recvAnySource" : "recv",
            from == any_source ? c10d::OpType::RECVANYSOURCE : c10d::OpType::RECV);
  check(r.name);
  check_tag(tag, r.name);
  r.message = true;
  r.from_self = from == getRank() || (from == any_source && getSize() == 1);
  call c = call_of(k::receive);
  c.out = r.receives(only(data, r.name));
  c.in = c.out;
  c.peer = from;
  c.tag = tag;
  r.calls.calls.push_back(std::move(c));
  r.inputs = r.outputs = data;
  return begin(std::move(r));
}

process_group::result process_group::recvAnysource(tensors& data, int tag) {
  return recv(data, any_source, tag);
}

process_group::result process_group::barrier(const c10d::BarrierOptions& o) {
  request r(*this, "barrier", "barrier", c10d::OpType::BARRIER);
  check(r.name);
  r.async = o.asyncOp;
  r.timeout = o.timeout;
  r.follows = true;
  r.calls.calls.push_back(call_of(k::barrier));
  return begin(std::move(r));
}

// Rank 0 receives from every other rank and answers when all have arrived. The error names only the late
// ranks. Each call has a tag of its own: messages of one that failed may come late.
void process_group::monitoredBarrier(const c10d::BarrierOptions& o, bool wait_all_ranks) {
  check("monitored_barrier");
  const std::chrono::milliseconds timeout =
      o.timeout == c10d::kUnsetTimeout ? options_->timeout : bounded(o.timeout);
  const time_point end = extend::after(clock::now(), timeout);
  // Time for rank 0 to send the reason before the others give up.
  const auto patience = std::chrono::milliseconds(200);
  const int tag = first_monitored_tag + static_cast<int>(monitored_barriers_++ & 0xffff);
  const auto message = [this, tag](k kind, const at::Tensor& t, int peer, std::chrono::milliseconds within) {
    request r(*this, "monitored_barrier", "monitored_barrier", c10d::OpType::BARRIER);
    r.message = true;
    r.timeout = within;
    call c = call_of(kind);
    c.in = c.out = r.writes(t, true);
    c.peer = peer;
    c.tag = tag;
    r.calls.calls.push_back(std::move(c));
    return begin(std::move(r));
  };
  const auto left = [end] {
    return std::max(std::chrono::milliseconds(1),
                    std::chrono::duration_cast<std::chrono::milliseconds>(end - clock::now()));
  };
  at::Tensor word = at::zeros({1}, at::kByte);
  if (getRank() != 0) {
    try {
      message(k::send, word, 0, timeout)->wait();
      message(k::receive, word, 0, left() + patience)->wait();
    } catch (const c10::Error& e) {
      fail(c10::str("Rank ", getRank(),
                    " successfully reached monitoredBarrier, but received errors while "
                    "waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank.\n",
                    "Original exception: \n", e.what()));
    }
    return;
  }
  std::vector<std::pair<int, result>> coming;
  std::vector<at::Tensor> words;
  for (int peer = 1; peer < getSize(); ++peer) {
    words.push_back(at::zeros({1}, at::kByte));
    coming.emplace_back(peer, message(k::receive, words.back(), peer, timeout));
  }
  std::vector<int> late;
  std::string why;
  for (auto& [peer, w] : coming) {
    if (!wait_all_ranks && clock::now() >= end && !(w->isCompleted() && w->isSuccess()))
      fail(c10::str("[Rank 0]: Rank 0 timed out in monitoredBarrier after ", timeout.count(),
                    " ms; ranks from ", peer, " on were not heard of"));
    try {
      w->wait();
    } catch (const c10::Error& e) {
      late.push_back(peer);
      why = e.what();
      if (!wait_all_ranks) break;
    }
  }
  if (!late.empty()) {
    std::string list;
    for (const int peer : late) list += (list.empty() ? "" : ", ") + std::to_string(peer);
    fail(wait_all_ranks ? c10::str("[Rank 0]: Ranks ", list, " failed to pass monitoredBarrier in ",
                                   timeout.count(), " ms")
                        : c10::str("[Rank 0]: Rank ", list, " failed to pass monitoredBarrier in ",
                                   timeout.count(), " ms\n Original exception: \n", why));
  }
  std::vector<result> answers;
  for (int peer = 1; peer < getSize(); ++peer) answers.push_back(message(k::send, word, peer, timeout));
  for (const result& w : answers) w->wait();
}

process_group::result process_group::allreduce_sparse(tensors& data, const c10d::AllreduceOptions& o) {
  check("all_reduce");
  TORCH_CHECK_VALUE(data.size() == 1 && data[0].is_sparse(),
                    "tutti: allreduce_sparse takes one sparse tensor");
  return reduce_sparse(data[0], o);
}

namespace {

// What all ranks' sparse tensors must have in common, and how many elements this one's has.
constexpr std::int64_t most_dimensions = 64;
at::Tensor sparse_head(const at::Tensor& t) {
  TORCH_CHECK_VALUE(t.dim() <= most_dimensions, "tutti: all_reduce: a sparse tensor has at most ",
                    most_dimensions, " dimensions, not ", t.dim());
  std::vector<std::int64_t> head{t._nnz(), static_cast<std::int64_t>(t.scalar_type()), t.sparse_dim(),
                                 t.dim()};
  head.insert(head.end(), t.sizes().begin(), t.sizes().end());
  head.resize(4 + most_dimensions);
  return at::tensor(head, at::kLong);
}

std::string sparse_text(const std::int64_t* head) {
  return c10::str("a sparse tensor of ", c10::toString(static_cast<at::ScalarType>(head[1])), " with sizes ",
                  at::IntArrayRef(head + 4, static_cast<std::size_t>(head[3])), " and ", head[2],
                  head[2] == 1 ? " sparse dimension" : " sparse dimensions");
}

}  // namespace

// The ranks exchange their indices and values, and each adds them up.
process_group::result process_group::reduce_sparse(at::Tensor& data, const c10d::AllreduceOptions& o) {
  TORCH_CHECK_VALUE(o.reduceOp == c10d::ReduceOp::SUM,
                    "tutti: all_reduce of sparse tensors: unsupported reduction operation, only SUM is");
  TORCH_CHECK_VALUE(data.device().is_cpu(), "tutti: all_reduce: the sparse tensor is on ", data.device());
  c10d::AllgatherOptions gather;
  gather.timeout = o.timeout;
  gather.asyncOp = false;
  const at::NoGradGuard no_grad;
  const at::Tensor mine = data.coalesce();
  at::Tensor indices = mine.indices().contiguous(), values = mine.values().contiguous();
  at::Tensor head = sparse_head(mine);
  at::Tensor heads = at::empty({getSize(), head.numel()}, at::kLong);
  all_gather_single(heads, head, gather);
  const auto head_of = [&](int rank) { return heads.const_data_ptr<std::int64_t>() + rank * head.numel(); };
  for (int i = 1; i < getSize(); ++i)
    if (!std::equal(head_of(0) + 1, head_of(0) + head.numel(), head_of(i) + 1))
      fail(c10::str("tutti: ", hooks_->where, "all_reduce: rank 0 gives ", sparse_text(head_of(0)),
                    ", but rank ", i, " gives ", sparse_text(head_of(i)),
                    "; all ranks must give the same type and sizes"));
  std::vector<tensors> all_indices(1), all_values(1);
  std::vector<std::int64_t> shape = values.sizes().vec();
  for (int i = 0; i < getSize(); ++i) {
    shape[0] = *head_of(i);
    all_indices[0].push_back(at::empty({indices.size(0), shape[0]}, indices.options()));
    all_values[0].push_back(at::empty(shape, values.options()));
  }
  tensors one{indices};
  allgather(all_indices, one, gather);
  one = {values};
  allgather(all_values, one, gather);
  const at::Tensor sum = at::sparse_coo_tensor(at::cat(all_indices[0], 1), at::cat(all_values[0], 0),
                                               data.sizes(), mine.options())
                             .coalesce();
  data.copy_(sum);
  request r(*this, "all_reduce", "all_reduce",
            c10d::OpType::_ALLREDUCE_SPARSE);  // without calls: it has ended
  r.async = false;
  r.outputs = {data};
  return begin(std::move(r));
}

}  // namespace tutti::python

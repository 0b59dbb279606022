// SPDX-License-Identifier: Apache-2.0
// What extensions are promised of communicators and runtimes (include/tutti/extend/).
#include "comm/identity.hpp"
#include "comm/runtime_state.hpp"
#include "core/loop_driver.hpp"

#include <fmt/format.h>

#include <tutti/extend/failure.hpp>
#include <tutti/extend/loop_driver.hpp>
#include <tutti/extend/side_channel.hpp>
#include <tutti/runtime.hpp>
#include <utility>

namespace tutti::extend::inline v1 {
namespace {

comm::communicator_state& state_behind(const communicator& c) noexcept {
  return *detail::communicator_access::state_of(c);
}
communicator handle_of(comm::communicator_state& of) { return communicator(communicator_ref(&of)); }

}  // namespace

void add_reference(comm::communicator_state& state) noexcept { state.add_reference(); }
void release_reference(comm::communicator_state& state) noexcept { state.release_reference(); }
void add_reference(call_part& part) noexcept { part.references_.fetch_add(1, std::memory_order_relaxed); }
void release_reference(call_part& part) noexcept {
  if (part.references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete &part;
}

communicator_ref reference_to(const communicator& c) noexcept {
  return communicator_ref(detail::communicator_access::state_of(c));
}

// ---- side channels ----

communicator side_channel(const communicator& c, int number, std::string_view use) {
  comm::communicator_state& of = state_behind(c);
  comm::communicator_state& made = comm::world_of(of).make_communicator(
      {of.numbers().id_beside(number), of.numbers().id}, fmt::format("{} ({})", of.group().name(), use),
      of.group().members());
  made.pending().set_timeout(2 * of.pending().timeout());
  return handle_of(made);
}

std::shared_ptr<void>& attribute_of(const communicator& c, const void* key) {
  return state_behind(c).attributes()[key];
}
std::shared_ptr<void>& world_attribute_of(const communicator& c, const void* key) {
  return comm::world_of(state_behind(c)).attributes[key];
}

const std::vector<int>& world_ranks_of(const communicator& c) noexcept {
  return state_behind(c).group().members();
}

identity identity_of(const communicator& c) {
  const comm::communicator_state& state = state_behind(c);
  const core::world_info& info = state.home().info();
  identity who{.world = info.id,
               .communicator = state.numbers().id,
               .name = state.group().name(),
               .rank = state.rank()};
  for (const int member : state.group().members()) {
    const core::endpoint_record& record = info.record(member);
    who.places.push_back({record.host, record.pid});
  }
  return who;
}

std::uint32_t draw_number(const communicator& c) {
  return comm::world_of(state_behind(c)).next_communicator_id();
}

communicator make_numbered(const communicator& c, std::uint32_t number, std::string name,
                           const std::vector<int>& ranks) {
  const comm::communicator_state& of = state_behind(c);
  comm::world& world = comm::world_of(of);
  std::vector<int> members;
  for (const int rank : ranks) {
    members.push_back(of.group().world_rank(rank));
    if (world.endpoint().peers().gone(members.back()))
      throw error(errc::peer_left, fmt::format("{}: {} has ended: make groups of the other ranks", name,
                                               world.info().describe(members.back())));
  }
  return handle_of(world.make_agreed_communicator({number, number}, std::move(name), std::move(members)));
}

communicator duplicate_numbered(const communicator& c, std::uint32_t number, std::string name) {
  comm::communicator_state& of = state_behind(c);
  return handle_of(comm::world_of(of).make_agreed_communicator({number, of.numbers().id}, std::move(name),
                                                               of.group().members()));
}

void set_name(const communicator& c, std::string name) { state_behind(c).rename(std::move(name)); }
void set_timeout(const communicator& c, std::chrono::milliseconds timeout) {
  state_behind(c).pending().set_timeout(timeout);
}

// ---- failure ----

void fail(const communicator& c, errc why, const std::string& text) noexcept {
  if (!state_behind(c).detached()) state_behind(c).failure().fail(why, text, p2p::subject::other, true);
}

failure failure_of(const communicator& c) {
  const comm::failure_spread& of = state_behind(c).failure();
  return {of.why(), of.text()};
}

task<> compare_last(communicator c, std::chrono::steady_clock::time_point deadline) {
  co_await state_behind(c).progress().compare_last(deadline);
}

// ---- a loop of several threads ----

loop_driver::loop_driver(runtime& rt)
    : runtime_(rt), driver_(std::make_unique<core::loop_driver>(rt.state().loop())) {}
loop_driver::~loop_driver() = default;
void loop_driver::stop() { driver_->stop(); }
bool loop_driver::is_parents() const noexcept { return driver_->is_parents(); }
bool loop_driver::has_left_all() const noexcept { return runtime_.state().worlds().empty(); }
void loop_driver::attend(int change, bool now) noexcept { driver_->attend(change, now); }
void loop_driver::notify() noexcept { driver_->notify(); }
bool loop_driver::run_until(bool (*done)(const void*), const void* what, time_point deadline) {
  return driver_->run_until(done, what, deadline);
}
loop_driver::entry::entry(loop_driver& d) : driver_(*d.driver_) { driver_.enter(); }
loop_driver::entry::~entry() { driver_.leave(); }

}  // namespace tutti::extend::inline v1

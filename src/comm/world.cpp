// SPDX-License-Identifier: Apache-2.0
#include "comm/world.hpp"

#include "base/throw_error.hpp"
#include "core/loop.hpp"
#include "flight/recordings.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace tutti::comm {
namespace {

constexpr auto patience_with_readers = std::chrono::milliseconds(20);
// In a larger world a rank takes leave only of the ranks that it has met.
constexpr int most_told = 64;

}  // namespace

world::world(core::loop& loop, core::world_info info,
             std::vector<std::unique_ptr<transport::transport>> transports,
             std::shared_ptr<tcp_store_server> server, world_owner* owner)
    : loop_(loop),
      info_(std::move(info)),
      owner_(owner),
      links_(static_cast<std::size_t>(info_.size)),
      endpoint_(loop.engine(), *this, info_.rank, info_.size),
      transports_(std::move(transports)),
      agreement_(*this),
      server_(std::move(server)),
      watch_(loop, info_, *this) {
  for (auto& t : transports_) t->open(info_, endpoint_);
  std::vector<int> everyone(static_cast<std::size_t>(info_.size));
  std::iota(everyone.begin(), everyone.end(), 0);
  world_communicator_ = &make_communicator({}, "world", std::move(everyone));
  loop_.hold();
}

world::~world() {
  // Each one closes its side channels.
  communicators_.for_each([](communicator_state& c) { c.attributes().clear(); });
  attributes.clear();
  cut();
  agreement_.end();
  // If the last handle goes on another thread, it deletes the state from then on.
  std::exchange(communicators_, {}).for_each([this](communicator_state& c) {
    const bool failed = c.failure().failed();
    retire(c.detach(), failed);
  });
  // Ranks that still read them must not find them gone; the memory goes with this process.
  for (auto& b : retired_)
    if (!b.kept->can_go()) b.kept->keep_part();
  retired_.clear();
  transports_.clear();
  loop_.release();
}

transport::transport& world::way_to(int peer) noexcept {
  const core::endpoint_record& mine = info_.record(info_.rank);
  // Start-up made sure that some transport reaches every peer.
  return **std::find_if(transports_.begin(), transports_.end(),
                        [&](const auto& t) { return t->reaches(mine, info_.record(peer)); });
}

transport::link& world::link_to(int peer) {
  transport::link*& known = links_[static_cast<std::size_t>(peer)];
  if (known == nullptr) known = &way_to(peer).link_to(peer);
  return *known;
}

transport::link* world::made_link(int peer) noexcept { return way_to(peer).made_link(peer); }

void world::mark_waited_for(std::vector<p2p::waits>& by_peer) noexcept {
  endpoint_.mark_waited_for(by_peer);
  agreement_.mark_waited_for(by_peer);
  communicators_.for_each([&](communicator_state& c) { c.progress().mark_waited_for(by_peer); });
  links_.for_each([&by_peer](std::size_t peer, const transport::link* l) {
    if (l != nullptr && l->has_queue()) by_peer[peer] = p2p::waits::for_it;
  });
}

transport::neighbours* world::memory_of(const std::vector<int>& members) const noexcept {
  if (members.size() < 2) return nullptr;
  for (const auto& t : transports_) {
    // Who shares memory with one shares it with all of them.
    const auto with_first = [&](int member) {
      return member == members.front() || t->reaches(info_.record(members.front()), info_.record(member));
    };
    if (std::all_of(members.begin(), members.end(), with_first)) return t->memory();
    // Preferred between some of them.
    for (const int member : members)
      if (member != info_.rank && t->reaches(info_.record(info_.rank), info_.record(member))) return nullptr;
  }
  return nullptr;
}

void world::retire(std::unique_ptr<host_segments> b, bool failed) noexcept {
  if (b != nullptr) {
    b->leave(failed);
    retired_.push_back({std::move(b), failed});
  }
  std::erase_if(retired_, [](const retired_segments& old) { return old.kept->can_go(); });
}

std::optional<bool> world::recorded_leaving(int peer) const noexcept {
  const core::endpoint_record& mine = info_.record(info_.rank);
  const core::endpoint_record& theirs = info_.record(peer);
  if (!core::share_pids(mine, theirs)) return std::nullopt;  // nor if the record is not known
  const std::optional<bool> recorded = flight::has_left(peer, info_.id, theirs.pid);
  // A thread does not die alone.
  if (!recorded && mine.pid == theirs.pid) return true;
  return recorded;
}

void world::meet_unmet() noexcept {
  if (info_.size > most_told) return;
  for (int peer = 0; peer < info_.size; ++peer) {
    const core::endpoint_record& theirs = info_.record(peer);
    const bool listens =
        !theirs.shm_address.empty() || !theirs.ucx_endpoint.empty() || !theirs.tcp_endpoint.empty();
    // Two ranks read each other's recordings, or neither does.
    if (peer != info_.rank && listens && !recorded_leaving(peer)) endpoint_.control().meet(peer);
  }
}

std::uint32_t world::next_communicator_id() {
  const auto size = static_cast<std::uint32_t>(info_.size);
  if (given_out_ >= (1U << communicator_id_bits) / size - 1)
    throw error(errc::resources,
                "all numbers for communicators of this world have been used; make fewer of them");
  return ++given_out_ * size + static_cast<std::uint32_t>(info_.rank);
}

communicator_state& world::make_communicator(communicator_numbers numbers, std::string name,
                                             std::vector<int> members) {
  communicators_.reserve_one();
  auto* const made = new communicator_state(*this, numbers, std::move(name), std::move(members));
  communicators_.add(numbers.id, *made);
  return *made;
}

bool world::is_free(std::uint32_t id) const noexcept {
  const p2p::contexts& all = endpoint_.contexts();
  return id < 1U << communicator_id_bits && all.owner_of(2 * id) == nullptr && !all.was_closed(2 * id);
}

communicator_state& world::make_agreed_communicator(communicator_numbers numbers, std::string name,
                                                    std::vector<int> members) {
  if (!is_free(numbers.id))
    base::throw_error(
        errc::protocol,
        "the ranks agreed on the number {} for {}, which this rank has used already, or which no "
        "rank gives out: if all ranks are built with the same tutti, suspect the memory or the "
        "network hardware of one of them",
        numbers.id, name);
  return make_communicator(numbers, std::move(name), std::move(members));
}

bool world::renounce(std::uint32_t context) noexcept {
  if (unmade_ == 0) return false;
  --unmade_;
  endpoint_.renounce_context(context);
  endpoint_.renounce_context(context + 1);
  agreement_.stay_out(context);
  return true;
}

void world::close(communicator_state& c, std::unique_ptr<host_segments> left) noexcept {
  retire(std::move(left), c.failure().failed());
  communicators_.remove(c);
  agreement_.stay_out(c.numbers().messages());
  delete &c;
  if (!communicators_.empty()) return;
  attributes.clear();
  if (owner_ != nullptr) owner_->idle(*this);
}

task<> world::leave(core::time_point deadline) {
  // Others may still be reading how to reach each other.
  if (server_) {
    const auto left = deadline - loop_.engine().platform().now();
    co_await server_->drain(std::chrono::duration_cast<std::chrono::milliseconds>(left));
  }
  // The others read the segments without this rank's help, but not after it has removed them. Slower ranks
  // find them as long as the process lives, and keep what they have mapped even longer.
  const core::time_point patience =
      std::min(deadline, loop_.engine().platform().now() + patience_with_readers);
  for (;;) {
    retire(nullptr, false);
    bool waits = !std::ranges::all_of(retired_, &retired_segments::failed);
    waits = waits || communicators_.any([](const communicator_state& c) {
      return c.segments() != nullptr && !c.failure().failed() && !c.segments()->can_go();
    });
    if (!waits || loop_.engine().platform().now() >= patience) break;
    co_await core::pause(loop_, std::chrono::milliseconds(1));
  }
  meet_unmet();
  // Those that queued frames wait for. Who serves the store waits until all have closed it.
  while (!info_.peers.close_source() && loop_.engine().platform().now() < deadline)
    co_await core::pause(loop_, std::chrono::milliseconds(1));
  for (auto& t : transports_) co_await t->leave(deadline);
}

void world::fail(const std::string& text) noexcept {
  // If this rank did not survive the failure of others, the text names them, too.
  std::vector<int> failed{info_.rank};
  communicators_.for_each([&failed](const communicator_state& c) {
    const std::vector<int> known = c.failure().failed_members();
    failed.insert(failed.end(), known.begin(), known.end());
  });
  communicators_.for_each([&failed](communicator_state& c) { c.failure().add_failed(failed); });
  communicators_.for_each([&](communicator_state& c) {
    c.failure().fail(errc::peer_failed, text + c.group().number_here(info_.rank), p2p::subject::other, true);
  });
}

bool world::has_heard(int peer) noexcept {
  const bool heard = endpoint_.peers()[peer].heard;
  if (!heard) endpoint_.control().get_in_touch(peer);
  return heard;
}

bool world::counts_as_failed(int peer) const noexcept {
  return communicators_.any([peer](const communicator_state& c) { return c.failure().counts(peer); });
}

void world::give_up(int peer, const std::string& text) noexcept {
  // The link is made now if there is none: it reports the end.
  link_to(peer).give_up(errc::peer_failed, text);
}

bool world::has_queue() const noexcept {
  return std::any_of(transports_.begin(), transports_.end(), [](const auto& t) { return t->has_queue(); });
}

void world::cut() noexcept {
  for (auto& t : transports_) t->cut();
}

}  // namespace tutti::comm

// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx/ucx_transport.hpp"

#include "base/fields.hpp"
#include "base/little_endian.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "base/throw_error.hpp"
#include "core/loop.hpp"
#include "transport/tcp/listen_address.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::transport::ucx {
namespace {

using abi::ucs_status_t;

constexpr std::size_t longest_greeting = std::size_t{64} * 1024;

// Pauses of a sleeping loop between two looks, where UCX reports no events, or will not.
constexpr core::duration pause_while_waiting = std::chrono::milliseconds(1);
constexpr core::duration pause_while_idle = std::chrono::milliseconds(20);
// UCX refuses to report events as long as something waits for room in shared memory, which the peer may not make for
// long. After so many refusals in a row the loop sleeps between its looks. It also looks while UCX has something: not
// all of connecting two endpoints is reported.
constexpr unsigned most_refusals = 64;

// Sends `mine` and receives the peer's, each behind its length.
task<std::string> exchange(core::stream_socket& socket, const std::string& mine, core::time_point deadline) {
  const std::string out = base::to_bytes(mine);
  co_await core::write_all(socket, std::span(reinterpret_cast<const std::uint8_t*>(out.data()), out.size()),
                           deadline);
  std::array<std::uint8_t, sizeof(std::uint32_t)> length{};
  co_await core::read_exactly(socket, length, deadline);
  const auto bytes = base::get_little_endian<std::uint32_t>(length.data());
  if (bytes > longest_greeting)
    throw error(errc::protocol, "it sent a greeting for UCX that no rank of this version sends");
  std::string theirs(bytes, '\0');
  co_await core::read_exactly(
      socket, std::span(reinterpret_cast<std::uint8_t*>(theirs.data()), theirs.size()), deadline);
  co_return theirs;
}

}  // namespace

ucx_transport::ucx_transport(core::loop& loop, bool only_rdma, std::size_t ranks)
    : connecting_transport(loop, core::purpose::ucx_link, "this rank's port beside UCX",
                           core::admission::limits()),
      only_rdma_(only_rdma),
      ranks_(ranks),
      pause_timer_([](void*) noexcept {}, nullptr) {}

ucx_transport::~ucx_transport() {
  end();
  if (worker_ == nullptr || is_parents()) return;
  if (opened_) loop_.backend().unwatch_doorbell(wake_descriptor_);
  drop_held(nullptr);
  ucx_->call.ucp_worker_destroy(worker_);
}

bool ucx_transport::is_parents() const noexcept { return loop_.is_parents(); }

void ucx_transport::listen(core::endpoint_record& mine, const listen_wish& wish) {
  ucx_ = &base::ucx_library::of_this_process();
  abi::ucp_context* const context = ucx_->context(only_rdma_, ranks_);
  const auto check = [&](ucs_status_t status, const char* what) {
    if (status != ucs_status_t::ok)
      base::throw_error(
          errc::resources,
          "UCX {} {}: {}; raise `ulimit -n` and `ulimit -l`, or leave ucx out of TUTTI_TRANSPORTS: "
          "TCP is then used",
          ucx_->version(), what, ucx_->text_of(status));
  };
  abi::ucp_worker_params_t wanted;
  wanted.mask = abi::ucp_worker_params_t::has_thread_mode | abi::ucp_worker_params_t::has_events;
  // The thread of a loop that a loop_driver drives changes.
  wanted.thread_mode = abi::ucp_worker_params_t::serialized;
  wanted.events = abi::ucp_worker_params_t::sent | abi::ucp_worker_params_t::received;
  check(ucx_->call.ucp_worker_create(context, &wanted, &worker_), "makes no worker");
  check(ucx_->call.ucp_worker_get_efd(worker_, &wake_descriptor_), "has no descriptor to wait for");
  abi::ucp_am_handler_param_t handler;
  handler.mask = abi::ucp_am_handler_param_t::has_id | abi::ucp_am_handler_param_t::has_callback |
                 abi::ucp_am_handler_param_t::has_argument;
  handler.id = message_id;
  handler.callback = on_message;
  handler.argument = this;
  check(ucx_->call.ucp_worker_set_am_recv_handler(worker_, &handler), "takes no handler of messages");

  tcp::listener opened = tcp::open_listener(tcp::listen_address(wish));
  acceptor_.assign(tcp::parse_endpoint(opened.endpoint).protocol(), opened.fd.get());
  opened.fd.release();
  mine.ucx_endpoint = std::move(opened.endpoint);
}

void ucx_transport::open(const core::world_info& info, inbound& up) {
  loop_.backend().watch_doorbell(wake_descriptor_);
  opened_ = true;
  start(info, up, nullptr);
}

bool ucx_transport::reaches(const core::endpoint_record& mine,
                            const core::endpoint_record& peer) const noexcept {
  return !mine.ucx_endpoint.empty() && !peer.ucx_endpoint.empty() &&
         (!tcp::is_loopback(peer.ucx_endpoint) || core::share_loopback(mine.host_id, peer.host_id));
}

// ---- connecting ----

task<core::stream_socket> ucx_transport::dial(const core::endpoint_record& to, core::time_point deadline) {
  co_return co_await core::connect(loop_.executor(), tcp::parse_endpoint(to.ucx_endpoint), deadline);
}

std::string ucx_transport::own_address() const {
  abi::ucp_worker_attr_t about;
  about.mask = abi::ucp_worker_attr_t::has_address;
  const ucs_status_t status = ucx_->call.ucp_worker_query(worker_, &about);
  if (status != ucs_status_t::ok)
    base::throw_error(errc::resources, "UCX {} gives no address: {}", ucx_->version(), ucx_->text_of(status));
  std::string address(reinterpret_cast<const char*>(about.address), about.address_length);
  ucx_->call.ucp_worker_release_address(worker_, about.address);
  return address;
}

// Both sides do the same: exchange keys and addresses, make their endpoints, and say how that went.
task<> ucx_transport::complete(peer_link& l, core::stream_socket& socket, core::time_point deadline) {
  auto& made = static_cast<ucx_link&>(l);
  const phase before = l.at();
  const link_key& expected = made.make_expected_key();
  const std::string mine = std::string(expected.begin(), expected.end()) + own_address();
  const std::string theirs = co_await exchange(socket, mine, deadline);
  link_key key;
  if (theirs.size() <= key.size()) throw error(errc::protocol, "it sent no address of UCX");
  if (l.at() != before) co_return;  // given up meanwhile
  std::copy_n(theirs.begin(), key.size(), key.begin());
  const std::string failure = made.bind(key, theirs.substr(key.size()));
  const std::string their_failure = co_await exchange(socket, failure, deadline);
  if (!failure.empty()) throw error(errc::not_supported, failure);
  if (!their_failure.empty()) throw error(errc::not_supported, their_failure);
  if (l.at() == before) made.attach(take_descriptor(socket));
}

void ucx_transport::give_up(peer_link& l, const setback& last) {
  const std::string who = describe(l.peer());
  if (last.preferred)
    return l.fail(
        last.code == errc::timed_out ? errc::timed_out : errc::peer_failed,
        fmt::format("{} was about to connect to this rank for UCX, but has ended, or could not reach it "
                    "within {}: its own output says why",
                    who, base::duration_text(info_->timeout)));
  std::string text = fmt::format("no connection to {} for UCX: {}", who, last.text);
  if (last.code == errc::not_supported)
    text +=
        "; give all ranks the same UCX_TLS and UCX_NET_DEVICES, of a network that both hosts have, or set "
        "TUTTI_TRANSPORTS=shm,tcp on all ranks to use TCP";
  if (last.code == errc::timed_out)
    text += fmt::format(
        " (after {}): its host may have failed, a firewall may be in the way, or set TUTTI_ADDRESS or "
        "TUTTI_INTERFACE on host {} to an address or interface that this host reaches",
        base::duration_text(info_->timeout), info_->record(l.peer()).host);
  const bool kept = last.code == errc::timed_out || last.code == errc::unauthorized ||
                    last.code == errc::protocol || last.code == errc::resources ||
                    last.code == errc::not_supported;
  l.fail(kept ? last.code : errc::peer_failed, std::move(text));
}

void ucx_transport::note_lanes(int peer, abi::ucp_ep* endpoint) noexcept {
  const auto log = [&](const std::string& lanes) {
    base::log_info(fmt::format("{} is reached by UCX {}{}", describe(peer), ucx_->version(), lanes));
  };
  if (!ucx_->names_transports()) return log("");
  std::array<abi::ucp_transport_entry_t, 16> lanes;
  abi::ucp_ep_attr_t about;
  about.mask = abi::ucp_ep_attr_t::has_transports;
  about.entries = lanes.data();
  about.entries_count = static_cast<unsigned>(lanes.size());
  if (ucx_->call.ucp_ep_query(endpoint, &about) != ucs_status_t::ok) return;
  std::vector<std::string> names;
  bool for_tests = false;
  for (unsigned i = 0; i < std::min<unsigned>(about.entries_count, lanes.size()); ++i) {
    names.push_back(fmt::format("{}/{}", lanes[i].transport, lanes[i].device));
    const std::string_view transport = lanes[i].transport;
    // EFA's transport, which UCX takes for one that reports events.
    by_timer_ |= transport.starts_with("srd");
    for_tests |= transport == "tcp" || transport == "posix" || transport == "sysv";
  }
  if (for_tests && !std::exchange(warned_, true))
    base::log_warning(fmt::format(
        "UCX {} reaches {} over {}, which does not survive every death of a peer: its TCP may crash "
        "when a connection breaks amid data, and its shared memory may stop. Leave ucx out of "
        "TUTTI_TRANSPORTS, or select a network of RDMA by UCX_TLS and UCX_NET_DEVICES",
        ucx_->version(), describe(peer), fmt::join(names, ", ")));
  log(fmt::format(" over {}", fmt::join(names, ", ")));
}

// ---- the loop ----

ucs_status_t ucx_transport::on_message(void* self, const void* header, std::size_t header_length, void* data,
                                       std::size_t length, const abi::ucp_am_recv_param_t* how) {
  const bool rendezvous = (how->attributes & abi::ucp_am_recv_param_t::is_rendezvous) != 0;
  const std::span head(static_cast<const std::uint8_t*>(header), header_length);
  const bool held = static_cast<ucx_transport*>(self)->hold(head, data, length, rendezvous);
  // Of an eager message UCX 1.13 takes no other answer.
  if (!rendezvous) return ucs_status_t::ok;
  return held ? ucs_status_t::in_progress : ucs_status_t::rejected;
}

bool ucx_transport::hold(std::span<const std::uint8_t> header, void* data, std::size_t length,
                         bool rendezvous) noexcept {
  if (header.size() != envelope_bytes || !attached_) return false;
  const auto rank = base::get_little_endian<std::int32_t>(header.data() + sizeof(link_key));
  if (rank < 0 || rank >= info_->size) return false;
  auto* const from = static_cast<ucx_link*>(made_link(rank));
  frame head;
  if (from == nullptr || !from->unseal(header.first<envelope_bytes>(), length, rendezvous, head))
    return false;
  held_frame& h = held_pool_.take();
  h.from = from;
  h.head = head;
  h.offered = rendezvous ? data : nullptr;
  if (!rendezvous && length > 0) {
    if (length > h.capacity) {
      h.capacity = std::max(length, eager_limit_bytes);
      h.payload.reset(new std::byte[h.capacity]);
      base::count_heap_use(h.capacity);
    }
    std::memcpy(h.payload.get(), data, length);
  }
  held_.push_back(h);
  return true;
}

void ucx_transport::let_go(held_frame& h) noexcept {
  if (h.offered != nullptr) ucx_->call.ucp_am_data_release(worker_, std::exchange(h.offered, nullptr));
  if (h.capacity > eager_limit_bytes) {
    h.payload.reset();
    h.capacity = 0;
  }
  held_pool_.give_back(h);
}

void ucx_transport::drop_held(const ucx_link* of) noexcept {
  held_.for_each([&](held_frame& h) {
    if (of != nullptr && h.from != of) return;
    h.unlink();
    let_go(h);
  });
}

void ucx_transport::receive_aside() noexcept {
  held_.for_each([&](held_frame& h) {
    if (h.offered == nullptr) return;
    h.unlink();
    if (!leaving_) h.from->receive_aside(h);
    let_go(h);
  });
}

bool ucx_transport::progress() noexcept {
  const bool any = ucx_->call.ucp_worker_progress(worker_) != 0;
  was_idle_ = !any && held_.empty() && ended_.empty();
  // A frame behind a slice may end what that belongs to.
  while (arrival* const a = ended_.pop_front()) a->from->report(*a);
  while (held_frame* const h = held_.pop_front()) {
    h->from->deliver(*h);
    let_go(*h);
    while (arrival* const a = ended_.pop_front()) a->from->report(*a);
  }
  return any || !was_idle_;
}

bool ucx_transport::poll() noexcept {
  const bool any = progress();
  return (!active_.empty() && work_active()) || any;  // the call alone takes a tenth of an idle round
}

bool ucx_transport::arm() noexcept {
  if (progress() || !active_.empty()) {
    refusals_ = 0;
    return true;
  }
  const bool refused = ucx_->call.ucp_worker_arm(worker_) == ucs_status_t::busy;
  refusals_ = refused ? refusals_ + 1 : 0;
  if (refused && refusals_ < most_refusals) return true;
  const bool busy = std::ranges::any_of(
      live_, [](const peer_link* l) { return static_cast<const ucx_link*>(l)->in_ucx(); });
  if (refused || busy || by_timer_) {
    const bool waits = refused || busy || leaving_ || loop_.engine().waiting();
    loop_.engine().timers().arm(
        pause_timer_, loop_.engine().platform().now() + (waits ? pause_while_waiting : pause_while_idle));
  }
  return false;
}

}  // namespace tutti::transport::ucx

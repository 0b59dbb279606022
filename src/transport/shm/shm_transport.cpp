// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/shm_transport.hpp"

#include "base/passed_descriptors.hpp"
#include "base/text.hpp"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/deferred.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <utility>

namespace tutti::transport::shm {

namespace {

namespace asio = boost::asio;
using local = asio::local::stream_protocol;

// The kernel says whose processes connect, so these are this user's: none is evicted for others.
constexpr core::admission::limits pending_limits{256, std::chrono::seconds(10), std::chrono::seconds(10)};

// Between attempts to connect while the peer has as many connections to accept as may wait.
constexpr std::chrono::milliseconds first_pause(1), longest_pause(100);

// An abstract name leaves no file.
local::endpoint abstract(const std::string& name) { return local::endpoint(std::string(1, '\0') + name); }

}  // namespace

shm_transport::shm_transport(core::loop& loop)
    : connecting_transport(loop, core::purpose::shm_link, "the shared-memory listener", pending_limits) {}

void shm_transport::listen(core::endpoint_record& mine, const listen_wish&) {
  // Its random part separates jobs; the handshake decides who may connect.
  mine.shm_address = fmt::format("tutti-{:016x}{:016x}", loop_.engine().platform().random(),
                                 loop_.engine().platform().random());
  try {
    acceptor_.open(local());
    acceptor_.non_blocking(true);
    acceptor_.bind(abstract(mine.shm_address));
    acceptor_.listen(1024);
  } catch (const boost::system::system_error& e) {
    throw error(errc::resources,
                fmt::format("cannot listen for ranks of this host: {}; {}", e.code().message(),
                            core::out_of_descriptors(e.code().value())
                                ? "raise `ulimit -n`"
                                : "set TUTTI_TRANSPORTS=tcp to do without shared memory"));
  }
}

void shm_transport::open(const core::world_info& info, inbound& up) {
  const std::string& host = info.record(info.rank).host_id;
  const auto local_ranks = std::ranges::count_if(
      info.peers.known(), [&host](const auto& each) { return each.second.host_id == host; });
  own_.emplace(info.id, info.rank, info.size, static_cast<int>(local_ranks));
  doorbell_ = core::make_eventfd();
  loop_.backend().watch_doorbell(doorbell_.get());
  start(info, up, nullptr);
}

bool shm_transport::reaches(const core::endpoint_record& mine,
                            const core::endpoint_record& peer) const noexcept {
  return !mine.shm_address.empty() && !peer.shm_address.empty() && mine.host_id == peer.host_id;
}

// ---- connecting ----

// The kernel answers at once. EAGAIN says that no more connections may wait to be accepted.
task<core::stream_socket> shm_transport::dial(const core::endpoint_record& to, core::time_point deadline) {
  const core::stream_endpoint there(abstract(to.shm_address));
  // Never from inside link::submit(), whose frame would be sent, and its transfer end, before it has returned.
  co_await asio::post(loop_.executor(), asio::deferred);
  for (std::chrono::milliseconds pause = first_pause;; pause = std::min(2 * pause, longest_pause)) {
    base::unique_fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (fd && ::connect(fd.get(), there.data(), static_cast<socklen_t>(there.size())) == 0) {
      core::stream_socket socket(loop_.executor(), there.protocol(), fd.get());
      fd.release();
      co_return std::move(socket);
    }
    const int code = errno;
    if (core::out_of_descriptors(code))
      throw error(errc::resources, base::errno_text(code) + "; raise `ulimit -n`");
    if (code != EAGAIN)
      throw error(core::out_of_resources(code) ? errc::resources : errc::peer_failed, base::errno_text(code));
    if (core::clock::now() + pause >= deadline)
      throw error(errc::timed_out, "so many connections wait to be accepted that no other may");
    co_await core::pause(loop_, pause);
  }
}

bool shm_transport::may_prove(core::stream_socket& socket) { return base::same_user(socket.native_handle()); }

void shm_transport::give_up(peer_link& l, const setback& last) {
  const char* cause = "; it has ended, or never got as far as tutti::run: look at its output";
  if (last.code == errc::resources) cause = "";
  if (last.code == errc::timed_out)
    cause =
        ": it computes without returning to its loop, is stopped, or is short of descriptors (`ulimit -n`), "
        "which its output says";
  const bool kept = last.code == errc::resources || last.code == errc::timed_out;
  l.fail(kept ? last.code : errc::peer_failed,
         fmt::format("cannot reach {} over shared memory: {}{}", describe(l.peer()), last.text, cause));
}

// Both sides send the descriptors of their segment and doorbell. However it ends, the caller closes the socket:
// the peer must not wait for a side that has given up.
task<> shm_transport::complete(peer_link& l, core::stream_socket& socket, core::time_point deadline) {
  const std::array<int, 2> mine{own_->fd(), doorbell_.get()};
  while (!send_descriptors(socket.native_handle(), mine)) {
    const int code = errno;
    if (code == EPIPE || code == ECONNRESET)
      throw error(errc::peer_failed, "the peer hung up while shared memory was being set up");
    if (code != EAGAIN && code != EWOULDBLOCK)
      throw error(errc::resources, fmt::format("cannot pass descriptors: {}", base::errno_text(code)));
    co_await core::wait_ready(socket, core::stream_socket::wait_write, deadline);
  }
  for (;;) {
    auto received = receive_pair(socket.native_handle());
    if (received) {
      // Otherwise the peer was given up meanwhile, and sees this connection end.
      if (l.at() == phase::connecting || l.at() == phase::accepting)
        static_cast<shm_link&>(l).attach(take_descriptor(socket), std::move((*received)[1]),
                                         std::move((*received)[0]));
      co_return;
    }
    co_await core::wait_ready(socket, core::stream_socket::wait_read, deadline);
  }
}

// ---- the loop ----

bool shm_transport::poll() noexcept {
  own_->header().heartbeat.store(loop_.engine().now().time_since_epoch().count(), std::memory_order_relaxed);
  bool any = work_active();
  for (std::size_t i = 0; i < live_.size(); ++i)
    any |= live_[i]->at() == phase::connected && static_cast<shm_link*>(live_[i])->move();
  return any;
}

bool shm_transport::arm() noexcept {
  own_->header().armed.store(1, std::memory_order_relaxed);
  // Pairs with the fence in shm_link::notify(): the poll below sees everything that was written before
  // `armed` was seen.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  bool any = !active_.empty();
  for (peer_link* l : live_) any |= static_cast<shm_link*>(l)->prepare_sleep();
  return any;
}

void shm_transport::disarm() noexcept { own_->header().armed.store(0, std::memory_order_relaxed); }

// ---- the end ----

void shm_transport::cut() noexcept {
  const bool was_attached = attached_;
  connecting_transport::cut();
  if (was_attached) loop_.backend().unwatch_doorbell(doorbell_.get());
}

}  // namespace tutti::transport::shm

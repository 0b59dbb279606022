// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/shm_transport.hpp"

#include "base/log.hpp"
#include "base/text.hpp"
#include "core/deadline.hpp"
#include "core/pause.hpp"
#include "transport/shm/descriptor_passing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace tutti::transport::shm {

namespace asio = boost::asio;

namespace {

// The kernel says whose processes connect, so these are this user's: none is evicted for others.
constexpr core::admission::limits pending_limits{256, std::chrono::seconds(10), std::chrono::seconds(10)};
// Between attempts to connect to a rank that lacks descriptors for the moment.
constexpr auto first_pause = std::chrono::milliseconds(10);
constexpr auto longest_pause = std::chrono::milliseconds(500);

}  // namespace

shm_transport::shm_transport(core::loop& loop)
    : polled_transport(loop), admission_(loop.executor(), pending_limits) {}

shm_transport::~shm_transport() { cut(); }

void shm_transport::listen(core::endpoint_record& mine, const listen_wish&) {
  // An abstract name leaves no file. Its random part separates jobs; the handshake decides who may connect.
  mine.shm_address = fmt::format("tutti-{:016x}{:016x}", loop_.engine().platform().random(),
                                 loop_.engine().platform().random());
  try {
    acceptor_.emplace(loop_.context());
    acceptor_->open();
    acceptor_->non_blocking(true);
    acceptor_->bind(local::endpoint(std::string(1, '\0') + mine.shm_address));
    acceptor_->listen(1024);
  } catch (const boost::system::system_error& e) {
    throw error(errc::resources,
                fmt::format("cannot listen for ranks of this host: {}; set TUTTI_TRANSPORTS=tcp to do "
                            "without shared memory",
                            e.code().message()));
  }
}

void shm_transport::open(const core::world_info& info, inbound& up) {
  const std::string& host = info.record(info.rank).host_id;
  const auto local_ranks =
      std::count_if(info.peers.begin(), info.peers.end(),
                    [&](const core::endpoint_record& record) { return record.host_id == host; });
  own_.emplace(info.id, info.rank, info.size, static_cast<int>(local_ranks));
  doorbell_ = core::make_eventfd();
  loop_.backend().watch_doorbell(doorbell_.get());
  links_.resize(static_cast<std::size_t>(info.size));
  join_loop(info, up);
  const auto take = [this](core::stream_socket s) { tasks_.start(serve(std::move(s))); };
  tasks_.start(admission_.accept_all(*acceptor_, "the shared-memory listener", take));
}

bool shm_transport::reaches(const core::endpoint_record& mine,
                            const core::endpoint_record& peer) const noexcept {
  return !mine.shm_address.empty() && !peer.shm_address.empty() && mine.host_id == peer.host_id;
}

shm_link& shm_transport::at(int peer) {
  auto& slot = links_[static_cast<std::size_t>(peer)];
  if (!slot) {
    live_.reserve(live_.size() + 1);
    slot = std::make_unique<shm_link>(*this, peer);
    live_.push_back(slot.get());
  }
  return *slot;
}

// ---- connecting ----

void shm_transport::begin_connect(shm_link& l) noexcept { tasks_.start(connect(l.peer())); }

task<> shm_transport::connect(int peer) {
  shm_link& l = at(peer);
  const unsigned attempt = l.attempts();
  const core::time_point deadline = loop_.engine().platform().now() + info_->timeout;
  std::chrono::milliseconds pause = first_pause;
  setback why;
  for (;;) {
    co_await reach(l, deadline, &why);
    // The connection is complete, or the peer's own has come meanwhile, or failed and another attempt is in
    // progress.
    if (!l.connecting() || l.attempts() != attempt) co_return;
    // A rank that takes a connection and closes it is alive, and short of something. One that has ended takes
    // none.
    if (!why.ended_early || loop_.engine().platform().now() + pause >= deadline) break;
    co_await core::pause(loop_, pause);
    if (!l.connecting() || l.attempts() != attempt) co_return;
    l.count_retry();
    pause = std::min<std::chrono::milliseconds>(2 * pause, longest_pause);
  }
  const char* cause = "; it has ended, or never got as far as tutti::run: look at its output";
  if (why.code == errc::resources) cause = "";
  if (why.code == errc::timed_out)
    cause =
        ": it computes without returning to its loop, is stopped, or is short of descriptors (`ulimit -n`), "
        "which its output says";
  l.end(why.code, fmt::format("cannot reach {} over shared memory: {}{}", describe(peer), why.text, cause));
}

task<> shm_transport::reach(shm_link& l, core::time_point deadline, setback* why) {
  *why = setback();
  bool connected = false;
  try {
    local::socket raw(loop_.context());
    co_await raw.async_connect(local::endpoint(std::string(1, '\0') + info_->record(l.peer()).shm_address),
                               asio::deferred);
    connected = true;
    core::stream_socket socket(std::move(raw));
    const core::identity mine{core::purpose::shm_link, info_->id, info_->epoch, info_->rank};
    const core::verdict answer = co_await core::greet(socket, info_->secret, mine, l.peer(), deadline);
    if (answer == core::verdict::accepted) {
      co_await exchange(l, socket, deadline);
      co_return;
    }
    // Both sides started at once, and the peer's connection counts. The peer keeps this one open until its
    // own is complete, or until it ends.
    std::array<std::uint8_t, 1> nothing{};
    co_await core::read_some(socket, nothing, deadline);
    why->text = "it was about to connect itself, and ended before";
  } catch (const error& e) {
    why->code = e.code() == errc::timed_out || e.code() == errc::resources
                    ? static_cast<errc>(e.code().value())
                    : errc::peer_failed;
    why->ended_early = connected && e.code() == errc::peer_failed;
    why->text = e.what();
  } catch (const boost::system::system_error& e) {
    if (core::out_of_resources(e.code().value())) why->code = errc::resources;
    why->text = e.code().message();  // what() adds a place in Asio's sources
    if (why->code == errc::resources) why->text += "; raise `ulimit -n`";
  }
}

task<> shm_transport::serve(core::stream_socket accepted) {
  // Parameters live as long as the frame, which is freed some time after its end; the connection must not.
  core::stream_socket socket = std::move(accepted);
  std::optional<core::admission::pending_connection> here;
  here.emplace(admission_, socket);
  const core::time_point deadline = here->deadline();
  shm_link* accepted_link = nullptr;
  try {
    if (!same_user(socket.native_handle())) co_return;
    const core::greeting from = co_await core::receive_greeting(
        socket, info_->secret, core::purpose::shm_link, info_->id, info_->rank, deadline);
    const int peer = from.peer.rank;
    core::verdict answer = core::verdict::accepted;
    if (peer < 0 || peer >= info_->size || peer == info_->rank) {
      answer = core::verdict::wrong_rank;
    } else if (from.peer.epoch != info_->epoch) {
      answer = core::verdict::wrong_world;
    } else if (at(peer).closed()) {
      answer = core::verdict::duplicate;
    } else if (at(peer).open() || at(peer).accepting() || (at(peer).connecting() && info_->rank < peer)) {
      // Of two connections made at once the lower rank's counts; it may already be complete.
      answer = core::verdict::use_other;
    } else if (leaving_ && at(peer).idle()) {
      co_return;  // no one would read it
    } else {
      accepted_link = &at(peer);
      accepted_link->begin_accept();
    }
    co_await core::answer_greeting(socket, info_->secret, from, answer, deadline);
    if (accepted_link != nullptr) {
      // It has proved who it is. On a busy machine either side may wait for its processor for seconds, and the
      // peer may have all it needs by then: it would take the end of this connection for that of this rank.
      here.reset();
      co_await exchange(*accepted_link, socket, loop_.engine().platform().now() + info_->timeout);
    }
    if (answer == core::verdict::use_other) at(peer).keep_declined(base::unique_fd(socket.release()));
  } catch (const std::runtime_error& e) {
    base::log(base::log_level::info,
              fmt::format("dropped a connection to the shared-memory listener: {}", e.what()));
    if (accepted_link != nullptr) accepted_link->abandon_accept();
  }
}

// However it ends, its caller closes the socket: the peer must not wait for a side that has given up.
task<> shm_transport::exchange(shm_link& l, core::stream_socket& socket, core::time_point deadline) {
  core::deadline_guard guard(socket, deadline);
  while (!send_descriptors(socket.native_handle(), own_->fd(), doorbell_.get())) {
    const int code = errno;
    if (code == EPIPE || code == ECONNRESET)
      throw error(errc::peer_failed, "the peer hung up while shared memory was being set up");
    if (code != EAGAIN && code != EWOULDBLOCK)
      throw error(errc::resources, fmt::format("cannot pass descriptors: {}", base::errno_text(code)));
    co_await socket.async_wait(asio::socket_base::wait_write, asio::deferred);
  }
  for (;;) {
    auto received = receive_descriptors(socket.native_handle());
    if (received) {
      // Another connection is already complete, or the peer was given up while this one was being made. The
      // peer then sees this one end.
      if (l.open() || l.closed()) co_return;
      l.attach(base::unique_fd(socket.release()), std::move((*received)[1]), std::move((*received)[0]));
      co_return;
    }
    co_await socket.async_wait(asio::socket_base::wait_read, asio::deferred);
  }
}

// ---- the loop ----

bool shm_transport::poll() noexcept {
  own_->header().heartbeat.store(loop_.engine().now().time_since_epoch().count(), std::memory_order_relaxed);
  bool any = false;
  for (std::size_t i = 0; i < live_.size(); ++i) any |= live_[i]->poll();
  for (std::size_t i = 0; i < watchers_.size(); ++i) any |= watchers_[i]->poll();
  return any;
}

bool shm_transport::arm() noexcept {
  own_->header().armed.store(1, std::memory_order_relaxed);
  // Pairs with the fence in shm_link::notify(): the poll below sees everything that was written before
  // `armed` was seen.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  bool any = false;
  for (shm_link* l : live_) any |= l->prepare_sleep();
  for (core::source* watcher : watchers_) any |= watcher->arm();
  return any;
}

void shm_transport::disarm() noexcept { own_->header().armed.store(0, std::memory_order_relaxed); }

// ---- the end ----

bool shm_transport::has_queue() const noexcept {
  return std::any_of(live_.begin(), live_.end(),
                     [](const shm_link* l) { return !l->closed() && l->has_queue(); });
}

task<> shm_transport::leave(core::time_point deadline) {
  if (!attached_) co_return;  // already cut: queued frames have nowhere to go
  leaving_ = true;
  // Also half-made connections: the peer's side may already be complete, and must not take leaving for dying.
  for (shm_link* l : live_)
    if (!l->closed() && !l->idle()) l->say_farewell();
  // Data in a peer's memory are safe there; only frames without room must be waited for.
  while (has_queue() && loop_.engine().platform().now() < deadline) {
    co_await core::pause(loop_, std::chrono::milliseconds(1));
  }
  for (shm_link* l : live_) {
    l->take_back_farewell();
    l->disconnect();
  }
  cut();
}

void shm_transport::cut() noexcept {
  tasks_.clear();
  boost::system::error_code ignored;
  if (acceptor_) acceptor_->close(ignored);
  for (shm_link* l : live_) l->disconnect();
  leaving_ = true;
  if (leave_loop()) loop_.backend().unwatch_doorbell(doorbell_.get());
}

}  // namespace tutti::transport::shm

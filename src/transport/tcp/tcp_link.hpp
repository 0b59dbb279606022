// SPDX-License-Identifier: Apache-2.0
// One TCP connection to one peer, from the first frame that waits for it to its end.
#pragma once

#include "base/intrusive_list.hpp"
#include "base/unique_fd.hpp"
#include "core/backend.hpp"
#include "transport/link.hpp"
#include "transport/tcp/inbox.hpp"
#include "transport/tcp/outbox.hpp"
#include "transport/tcp/pulse.hpp"

#include <memory>
#include <string>

namespace tutti::transport::tcp {

class tcp_transport;

struct active_tag;

class tcp_link final : public link, public core::watcher, public base::list_hook<active_tag> {
 public:
  enum class phase {
    idle,
    connecting,  // our own attempt is under way
    awaiting,    // the peer prefers its attempt to ours
    accepting,   // the peer's attempt is being answered
    connected,
    failing,  // at its end; reported from the next work()
    closed
  };

  tcp_link(tcp_transport& owner, int peer, inbound& up) noexcept;
  ~tcp_link() override { cut(); }

  const char* transport_name() const noexcept override { return "tcp"; }
  bool submit(outgoing& f) noexcept override;
  withdrawal withdraw(outgoing& f) noexcept override;
  bool redirect_landing(void* owner, const landing& instead) noexcept override {
    return inbox_.redirect(owner, instead);
  }
  std::size_t eager_limit() const noexcept override { return eager_limit_bytes; }
  bool closed() const noexcept override { return at_ == phase::closed; }

  int peer() const noexcept { return peer_; }
  phase at() const noexcept { return at_; }
  bool has_queue() const noexcept override { return !outbox_.empty() || !stream_->flushed(); }
  vitals examine(const look& l) noexcept override;
  void rest() noexcept override;
  void give_up(errc why, std::string text) noexcept override;

  // For the connector: one of the phases before `connected`.
  void enter(phase p) noexcept { at_ = p; }
  // A connection of the peer that was declined in favour of our own attempt: kept open while that lasts, so
  // that the peer sees when we end.
  void keep_declined(base::unique_fd connection) noexcept {
    if (at_ == phase::connecting) declined_ = std::move(connection);
  }
  // Takes the memory that a connection needs, before the peer is told that it stands. Throws std::bad_alloc.
  void prepare() { inbox_.open(); }
  // The connection stands. Throws errc::resources, and then the link is as before.
  void attach(base::unique_fd connection, std::unique_ptr<core::tls_session> tls);
  // The link is at its end, which is reported from the next work().
  void fail(errc why, std::string text) noexcept;

  // Reads and writes, a bounded amount, and reports the end; true when anything happened.
  bool work() noexcept;
  // Reads what has come, without having been told of it; true when that was anything.
  bool glance() noexcept;
  bool amid_long_payload() const noexcept { return inbox_.amid_long_payload(); }
  // Nothing is delivered upward any more; when the queues have left, says so to the peer, and then drops what
  // comes until the peer has closed.
  void leave() noexcept;
  // Cuts the connection and forgets what is queued, telling nobody here.
  void cut() noexcept;
  // The same, but hands queued frames back, and lets what the kernel has go on to the peer.
  void drop() noexcept;

  void on_ready(bool readable, bool writable) noexcept override;

 private:
  // The last frame of this side.
  struct farewell : outgoing {
    explicit farewell(tcp_link& l) noexcept : of(l) {}
    tcp_link& of;
    bool queued = false;
    bool leaves = false;  // the stream has taken it; when that has sent it, nothing follows
  };

  bool read(bool told) noexcept;
  bool write() noexcept;
  // A frame of the link's own, unless it waits to leave already.
  void push(outgoing& f) noexcept;
  bool flush() noexcept;
  void queue_farewell() noexcept;
  void corrupt(const char* what) noexcept;
  void broke(int code) noexcept;
  void close(errc why, std::string text) noexcept;
  void hand_back() noexcept;
  void disconnect(bool abort) noexcept;

  tcp_transport& owner_;
  const int peer_;
  phase at_ = phase::idle;
  bool writable_ = false;
  bool silent_ = false;  // nobody above is told anything any more
  bool examined_ = false;
  int send_error_ = 0;  // sending has failed; what the peer had sent before is still read
  base::unique_fd fd_;
  socket_stream socket_;  // fd_
  std::unique_ptr<tls_stream> secured_;
  byte_stream* stream_ = &socket_;  // one of the two
  base::unique_fd declined_;
  core::backend::handle watch_ = 0;
  outbox outbox_;
  inbox inbox_;
  farewell farewell_;
  pulse pulse_;
  outgoing question_;  // does your loop turn?
  outgoing answer_;
  errc failure_ = errc::success;
  std::string failure_text_;
};

}  // namespace tutti::transport::tcp

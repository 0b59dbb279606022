// SPDX-License-Identifier: Apache-2.0
// tcp_link: the link to one peer over TCP, from the first frame that waits for it to its end. It has one
// connection, and further ones that share the long data frames.
#pragma once

#include "base/intrusive_list.hpp"
#include "base/unique_fd.hpp"
#include "transport/link.hpp"
#include "transport/tcp/connection.hpp"
#include "transport/tcp/heartbeat.hpp"
#include "transport/tcp/stripes.hpp"

#include <memory>
#include <string>
#include <vector>

namespace tutti::transport::tcp {

class tcp_transport;

struct active_tag;

class tcp_link final : public link, public base::list_hook<active_tag> {
 public:
  enum class phase {
    idle,
    connecting,  // an attempt of this side is in progress
    awaiting,    // the peer prefers its attempt to this side's
    accepting,   // the peer's attempt is being answered
    connected,
    failing,  // at its end; the next work() reports it
    closed
  };

  tcp_link(tcp_transport& owner, int peer, inbound& up) noexcept;
  ~tcp_link() override { cut(); }

  bool submit(outgoing& f) noexcept override;
  cancel_result cancel(outgoing& f) noexcept override;
  bool redirect_destination(void* owner, const destination_buffer& instead) noexcept override;
  std::size_t eager_limit() const noexcept override { return eager_limit_bytes; }
  bool closed() const noexcept override { return at_ == phase::closed; }

  int peer() const noexcept { return peer_; }
  phase at() const noexcept { return at_; }
  bool has_queue() const noexcept override;
  peer_health examine(const health_check& l) noexcept override;
  void rest() noexcept override;
  void give_up(errc why, std::string text) noexcept override;

  // For the connector: one of the phases before `connected`.
  void enter(phase p) noexcept { at_ = p; }
  // Keeps a connection of the peer open that was declined in favour of this side's attempt, so that the peer
  // sees when this side ends.
  void keep_declined(base::unique_fd connection) noexcept {
    if (at_ == phase::connecting) declined_ = std::move(connection);
  }
  // Takes the memory that a connection needs, before the peer is told that it is accepted. Throws
  // std::bad_alloc.
  void prepare() { main_.in.open(); }
  // Attaches the connection. Throws errc::resources and then leaves the link unchanged.
  void attach(base::unique_fd connection, std::unique_ptr<core::tls_session> tls);
  // Ends the link; the next work() reports it.
  void fail(errc why, std::string text) noexcept;

  // For further connections, which either side may make while the link is connected. Called before the peer
  // is told that it has one more. Returns null if it may not; throws std::bad_alloc. Then attach the
  // connection, or drop it.
  connection* expect_further();
  // `usable`: the peer already has it. Throws errc::resources.
  void attach_further(connection& c, base::unique_fd fd, std::unique_ptr<core::tls_session> tls, bool usable);
  void drop_further(connection& c) noexcept;
  // How many more connections this side wants for its long frames.
  std::size_t further_wanted() const noexcept;
  // The number of complete ones.
  std::size_t connections() const noexcept;

  // Reads and writes, a bounded amount, and reports the end. Returns whether anything happened.
  bool work() noexcept;
  // Reads what has come without an event of the descriptor. Returns whether there was anything.
  bool glance() noexcept;
  bool amid_long_payload() const noexcept;
  // Delivers nothing upward any more. When the queues are empty, tells the peer, and then drops what comes
  // until the peer has closed.
  void leave() noexcept;
  // Cuts the connection and forgets queued frames, without reporting upward.
  void cut() noexcept;
  // The same, but hands queued frames back, and lets the kernel send what it has.
  void drop() noexcept;

  // For the connections.
  void on_ready(connection& c, bool readable, bool writable) noexcept;

 private:
  // The last frame of this side.
  struct farewell : outgoing {
    explicit farewell(tcp_link& l) noexcept : of(l) {}
    tcp_link& of;
    bool queued = false;
    bool leaves = false;  // the stream has taken it; when that has been sent, nothing follows
  };

  bool work(connection& c) noexcept;
  bool read(connection& c, bool told) noexcept;
  // Sends from its outbox; frames that have left go to `left`. Returns true if it is then empty.
  bool send(connection& c, outbox::list& left) noexcept;
  bool write(connection& c) noexcept;
  // Makes `c` read and write in the next round.
  void ask_again(connection& c) noexcept;
  void ask_all_again() noexcept;
  // Gives `c` its next stripe of a long frame.
  bool share_out(connection& c) noexcept;
  // Queues the next thing to write to `c`, whose outbox is empty. Returns false if there is none.
  bool refill(connection& c) noexcept;
  // The peer has sent all that it will through `c`.
  void has_ended(connection& c) noexcept;
  bool all_ended() const noexcept;
  bool further_have_queue() const noexcept;
  // Queues a frame of the link's own, unless it already waits to leave.
  void push(outgoing& f) noexcept;
  bool flush(connection& c) noexcept;
  void queue_farewell() noexcept;
  void corrupt(const char* what) noexcept;
  void broke(int code) noexcept;
  void close(errc why, std::string text) noexcept;
  void hand_back() noexcept;
  void clear_queues(outbox::list& rest) noexcept;
  void disconnect(bool abort) noexcept;

  tcp_transport& owner_;
  const int peer_;
  phase at_ = phase::idle;
  bool muted_ = false;  // the layers above are told nothing any more
  bool examined_ = false;
  bool further_asked_for_ = false;
  base::unique_fd declined_;
  connection main_;
  std::vector<std::unique_ptr<connection>> further_;
  stripes stripes_;  // of long frames, if there are further connections
  farewell farewell_;
  heartbeat heartbeat_;
  outgoing question_;  // asks whether the peer's loop turns
  outgoing answer_;
  errc failure_ = errc::success;
  std::string failure_text_;
};

}  // namespace tutti::transport::tcp

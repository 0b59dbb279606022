// SPDX-License-Identifier: Apache-2.0
// tcp_transport: ranks reached over TCP: a connection per pair, made when it is first needed, and further
// ones when the first long message is sent.
#pragma once

#include "base/unique_fd.hpp"
#include "core/backend.hpp"
#include "core/tls.hpp"
#include "transport/connecting_transport.hpp"
#include "transport/tcp/frame_io.hpp"
#include "transport/tcp/heartbeat.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace tutti::transport::tcp {

class tcp_transport;
class tcp_link;

// One TCP connection of a link: its socket, its outbox and its inbox.
class connection final : public core::watcher {
 public:
  connection(tcp_link& of, int peer, inbound& up, bool checksums) noexcept
      : out(checksums), in(peer, up, checksums), of_(of) {}
  ~connection() { shut(false); }
  connection(const connection&) = delete;
  connection& operator=(const connection&) = delete;

  // Makes all that attaching the socket `fd` needs. Throws errc::resources or std::bad_alloc.
  void prepare(int fd, core::backend& backend);
  // Attaches that socket.
  void attach(base::unique_fd fd, std::unique_ptr<core::tls_session> tls) noexcept;
  // Closes it. With `abort` the kernel drops unsent data, and the peer gets a reset.
  void shut(bool abort) noexcept;
  bool stands() const noexcept { return static_cast<bool>(fd_); }
  int fd() const noexcept { return fd_.get(); }
  core::byte_stream& stream() noexcept { return *stream_; }
  bool has_queue() const noexcept { return !out.empty() || (stream_ && !stream_->flushed()); }
  // Ends the sending direction. Once: every call of shutdown() causes an event of the descriptor.
  void end_writing() noexcept;

  void on_ready(bool readable, bool writable) noexcept override;

  outbox out;
  inbox in;
  bool writable = false;
  unsigned sent_directly = 0;  // frames that left when they were submitted, since the last read or write here
  int send_error = 0;          // sending has failed; earlier data of the peer are still read
  bool again = false;          // there is work that the descriptor will not report
  bool usable = false;         // the peer has it, too, so that it may carry data
  bool ended = false;          // the peer has sent all that it will

 private:
  tcp_link& of_;
  base::unique_fd fd_;
  std::unique_ptr<core::byte_stream> stream_;  // TLS over the socket, or the socket
  core::backend* backend_ = nullptr;
  core::backend::handle watch_ = 0;
  bool ends_writing_ = false;
};

// The link to one peer over TCP, from the first frame that waits for it to its end. It has one connection, and
// further ones that share the long data frames.
class tcp_link final : public peer_link {
 public:
  tcp_link(tcp_transport& owner, int peer);
  ~tcp_link() override { cut(); }

  bool submit(outgoing& f) noexcept override;
  cancel_result cancel(outgoing& f) noexcept override;
  redirect_result redirect_destination(void* owner, const destination_buffer& instead) noexcept override;
  bool sends_eagerly(const void*, std::size_t bytes) const noexcept override {
    return bytes <= eager_limit_bytes;
  }
  bool has_queue() const noexcept override;
  peer_health examine(const health_check& l) noexcept override;
  void rest() noexcept override;

  // Attaches the connection. Throws errc::resources and then leaves the link unchanged.
  void attach(base::unique_fd connection, std::unique_ptr<core::tls_session> tls);

  // For further connections, which either side may make while the link is connected. Called with the connected
  // socket before the peer is told that it has one more: what may fail later would lose what the peer sends. Returns
  // null if it may not. Then attach the connection, or drop it. Throws errc::resources or std::bad_alloc.
  connection* expect_further(int fd);
  // `usable`: the peer already has it.
  void attach_further(connection& c, base::unique_fd fd, std::unique_ptr<core::tls_session> tls,
                      bool usable) noexcept;
  void drop_further(connection& c) noexcept;
  // How many more connections this side wants for its long frames.
  std::size_t further_wanted() const noexcept;
  // The number of complete ones.
  std::size_t connections() const noexcept;

  // Reads what has come without an event of the descriptor. Returns whether there was anything.
  bool glance() noexcept;
  bool amid_long_payload() const noexcept;
  // Also delivers nothing upward any more, and drops what comes until the peer has closed.
  void leave() noexcept override;

  // For the connections. Reads and writes what `c` can. Returns whether anything happened.
  bool serve(connection& c, bool readable, bool writable) noexcept;

 private:
  bool move() noexcept override;
  void disconnect(bool abort) noexcept override;
  void clear_queues(list& rest) noexcept override;
  bool read(connection& c, bool told) noexcept;
  // Sends from its outbox; frames that have left go to `left`. Returns true if it is then empty.
  bool send(connection& c, outbox::list& left) noexcept;
  bool write(connection& c) noexcept;
  // Makes `c` read and write in the next round.
  void ask_again(connection& c) noexcept;
  void ask_all_again() noexcept;
  // Gives `c` its next stripe of a long frame, if there is one.
  void share_out(connection& c) noexcept;
  // Queues the next thing to write to `c`, whose outbox is empty. Returns false if there is none.
  bool refill(connection& c) noexcept;
  connection& add_connection();
  void attach(connection& c, base::unique_fd fd, std::unique_ptr<core::tls_session> tls,
              bool usable) noexcept;
  // The peer has sent all that it will through `c`; the link ends with its last connection. With a `code` (errno)
  // `c` is lost, and with it the link: nothing is sent any more. What the other connections have received is still
  // read: their messages may be complete.
  void has_ended(connection& c, int code) noexcept;
  // Queues a frame of the link's own, unless it already waits to leave.
  void push(outgoing& f) noexcept;
  bool flush(connection& c) noexcept;
  void corrupt(const char* what) noexcept;
  void broke(int code) noexcept;

  tcp_transport& owner_;
  bool further_asked_for_ = false;
  // All but the first carry stripes of long frames only.
  std::vector<std::unique_ptr<connection>> connections_;
  connection& main_;  // the first
  stripes stripes_;   // of long frames, if there are further connections
  bool farewell_queued_ = false;
  heartbeat heartbeat_;
  outgoing question_;  // asks whether the peer's loop turns
  outgoing answer_;
};

class tcp_transport final : public connecting_transport {
 public:
  explicit tcp_transport(core::loop& loop);
  ~tcp_transport() override { end(); }

  const char* name() const noexcept override { return "tcp"; }

  // listen_address() in listen_address.hpp chooses the address.
  void listen(core::endpoint_record& mine, const listen_wish& wish) override;
  void open(const core::world_info& info, inbound& up) override;
  bool reaches(const core::endpoint_record& mine, const core::endpoint_record& peer) const noexcept override;

  bool poll() noexcept override;

  // For the links.
  // Starts to make the further connections of a connected link. The link does without those that cannot be
  // had.
  void connect_further(tcp_link& l) noexcept;
  // Data have come from `l`, and more are likely. For a while it is read without an event of the descriptor, in every
  // round or in turn with others: one recv costs less than an event and the recv.
  void expect_more(tcp_link& l) noexcept;
  void expect_nothing(tcp_link& l) noexcept;

 private:
  std::unique_ptr<peer_link> make_link(int peer) override { return std::make_unique<tcp_link>(*this, peer); }
  task<core::stream_socket> dial(const core::endpoint_record& to, core::time_point deadline) override;
  task<> complete(peer_link& l, core::stream_socket& socket, core::time_point deadline) override;
  task<> serve_other(core::stream_socket& socket, core::greeting from, core::time_point deadline) override;
  void give_up(peer_link& l, const setback& last) override;
  bool has_left() noexcept override { return all_have_closed(); }

  task<> reach_further(tcp_link& l);
  bool glance() noexcept;

  struct expected {
    tcp_link* from = nullptr;
    std::uint64_t latest = 0;  // the round in which data came
    // Index of that from which data came after these: likely again, for collectives repeat their order.
    std::size_t next = 0;
  };
  // Recursive doubling has so many partners in a world of 4,096 ranks.
  static constexpr std::size_t most_expected = 12;
  bool glance_at(expected& e) noexcept;

  std::array<expected, most_expected> expected_;
  std::size_t expecting_ = 0;  // those that have a link
  std::size_t latest_ = 0;     // index: the last data came from it
  std::size_t turn_ = 0;       // index: besides the one that is likely, one is read in each round
  std::uint64_t round_ = 0;
};

}  // namespace tutti::transport::tcp

// SPDX-License-Identifier: Apache-2.0
// One peer over MPI: which of its frames leaves next, and how its end is known.
#pragma once

#include "base/intrusive_list.hpp"
#include "transport/link.hpp"

#include <cstddef>
#include <string>
#include <utility>

namespace tutti::transport::mpi {

class mpi_transport;

struct active_tag;

class mpi_link final : public link, public base::list_hook<active_tag> {
 public:
  mpi_link(mpi_transport& owner, int peer) noexcept;

  const char* transport_name() const noexcept override { return "mpi"; }
  bool submit(outgoing& f) noexcept override;
  // What has left was copied: nothing but the queue knows of the frame.
  cancel_result cancel(outgoing& f) noexcept override;
  // Payload lands in the call that says where: no destination buffer is ever left open.
  bool redirect_destination(void*, const destination_buffer&) noexcept override { return false; }
  // Longer messages wait for their receive, which saves the memory of an unexpected copy.
  std::size_t eager_limit() const noexcept override { return std::size_t{16} * 1024; }
  bool closed() const noexcept override { return closed_; }

  int peer() const noexcept { return peer_; }
  bool has_queue() const noexcept override { return !messages_.empty() || !long_data_.empty(); }

  // Sends what there is room for, and reports the end; true when anything happened. From the loop.
  bool work() noexcept;
  // The link is at its end, which is reported from the next work().
  void fail(errc why, std::string text) noexcept;
  void give_up(errc why, std::string text) noexcept override { fail(why, std::move(text)); }
  // The peer says that nothing more comes from it.
  void peer_ended(errc why, std::string text) noexcept;
  // The peer has everything that was sent to it.
  void acknowledged() noexcept { acknowledged_ = true; }
  // Nothing is reported upward any more; the last frame is queued.
  void leave() noexcept;
  // Leaving needs nothing more of this link.
  bool finished() const noexcept { return closed_ || (acknowledged_ && !has_queue()); }
  // Closed, and what is queued handed back, or forgotten.
  void drop() noexcept;
  void cut() noexcept;

 private:
  using list = base::intrusive_list<outgoing, outgoing_tag>;
  bool send_piece(outgoing& f, std::size_t bytes) noexcept;
  bool send_rest(outgoing& f) noexcept;
  bool pump() noexcept;
  void close(errc why, std::string text) noexcept;
  void hand_back() noexcept;

  mpi_transport& owner_;
  const int peer_;
  bool closed_ = false;
  bool muted_ = false;
  bool acknowledged_ = false;
  list messages_;
  list long_data_;  // of which messages may pass between slices
  outgoing farewell_;
  errc failure_ = errc::success;
  std::string failure_text_;
};

}  // namespace tutti::transport::mpi

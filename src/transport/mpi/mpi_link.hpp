// SPDX-License-Identifier: Apache-2.0
// mpi_link: one peer over MPI: which of its frames leaves next, and how its end is known.
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

  bool submit(outgoing& f) noexcept override;
  // Frames that have left were copied: only the queue refers to a frame.
  cancel_result cancel(outgoing& f) noexcept override;
  // Payload is copied by the call that names its destination: none is ever open.
  bool redirect_destination(void*, const destination_buffer&) noexcept override { return false; }
  // Longer messages wait for their receive, which saves the memory of an unexpected copy.
  std::size_t eager_limit() const noexcept override { return std::size_t{16} * 1024; }
  bool closed() const noexcept override { return closed_; }

  int peer() const noexcept { return peer_; }
  bool has_queue() const noexcept override { return !messages_.empty() || !long_data_.empty(); }

  // Sends what there is room for, and reports the end. Returns whether anything happened. Called from the
  // loop.
  bool work() noexcept;
  // Ends the link; the next work() reports it.
  void fail(errc why, std::string text) noexcept;
  void give_up(errc why, std::string text) noexcept override { fail(why, std::move(text)); }
  // The peer reports that nothing more comes from it.
  void peer_ended(errc why, std::string text) noexcept;
  // The peer has everything that was sent to it.
  void acknowledged() noexcept { acknowledged_ = true; }
  // Reports nothing upward any more; queues the last frame.
  void leave() noexcept;
  // Whether leaving needs nothing more of this link.
  bool finished() const noexcept { return closed_ || (acknowledged_ && !has_queue()); }
  // Closes it; queued frames are handed back or forgotten.
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
  list long_data_;  // messages may pass between their slices
  outgoing farewell_;
  errc failure_ = errc::success;
  std::string failure_text_;
};

}  // namespace tutti::transport::mpi

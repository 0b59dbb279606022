// SPDX-License-Identifier: Apache-2.0
// The backends without a vendor's library: one kernel on the device that all ranks share, and staging through
// host memory.
#pragma once

#include "comm/calls.hpp"
#include "comm/single_device_group.hpp"
#include "comm/window.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tutti/communicator.hpp>
#include <tutti/gpu/open.hpp>
#include <tutti/scope.hpp>
#include <tutti/task.hpp>
#include <vector>

namespace tutti::gpu::impl {

class device_group {
 public:
  // `chunks` carries collectives, `heads` the headers of messages, `payload` their data.
  device_group(std::shared_ptr<attachment> on, communicator chunks, communicator heads, communicator payload,
               const open_options& how);
  device_group(const device_group&) = delete;
  device_group& operator=(const device_group&) = delete;
  ~device_group();

  int rank() const noexcept { return chunks_.rank(); }
  int size() const noexcept { return chunks_.size(); }
  // Set how ranks that share a device work together: in one process, through a window that a collective finds, or
  // not. At most one of the three is called.
  void meet(std::shared_ptr<single_device_group> m) noexcept { single_device_ = std::move(m); }
  void look_for_window(communicator notes) {
    notes_ = std::move(notes);
    apart_ = "the first collective is to find out whether the processes can share memory";
  }
  void meet_nowhere(std::string why) { apart_ = std::move(why); }
  // Whether the next collective must find out if processes that share a device can share its memory.
  bool looks_for_window() const noexcept { return notes_ && !window_; }
  task<> find_window();

  // A place in the order in which collectives start their chunks, the same on all ranks.
  class turn {
   public:
    explicit turn(device_group& g) : group_(g) { g.turns_.push_back(this); }
    turn(const turn&) = delete;
    turn& operator=(const turn&) = delete;
    ~turn() { end(); }
    void end() noexcept {
      if (std::erase(group_.turns_, this) > 0) group_.on_->resume_soon(group_.awaiting_turn_);
    }

   private:
    device_group& group_;
  };
  task<> its_turn(const turn* mine);
  // Why the ranks cannot run `c` on a device that they share; empty if they can. The same on all ranks.
  std::string_view why_not_on_one_device(const device_arguments& c) const noexcept;
  // Carries out one checked operation after w->what.ready. Completes when all its work is in streams.
  // Destroying the frame ends it on all ranks. `mine` of a collective is made when the collective starts.
  task<> perform(work_state* w, backend by, turn* mine);

 private:
  // One stream per direction, so that copies overlap. Only one operation uses a pair at a time.
  struct stream_pair {
    std::shared_ptr<stream_state> out;  // device to host; `in` is the way back
    std::shared_ptr<stream_state> in;
  };
  std::shared_ptr<stream_pair> lend_streams();
  // An operation that fails here.
  struct breach {
    bool averted = false;  // it has succeeded, or all ranks know
    bool told = false;     // rank 0 tells all ranks
    std::optional<error> why;
  };
  struct chunk_state {
    std::size_t offset = 0;  // first element, in each block; of a message, first byte
    std::size_t count = 0;
    std::shared_ptr<allocation> memory;
    mark copied;  // to the device or from it
    request moving;
  };
  using chunks_in_flight = recycled_deque<chunk_state>;
  struct passage;  // one chunk on its way through the window
  // A message that is being received. Its header has its length and the tag of its chunks.
  struct message {
    status from;
    std::uint64_t head[2] = {};
    chunks_in_flight chunks = {};
    std::size_t asked = 0, used = 0;  // chunks asked for; copied to the device
    bool ended = false;               // all chunks have come, or the sender has given it up
  };
  class awaited_header;

  task<> take_turn(const work_state* w, const stream_pair* use, const turn* mine);
  // `chunks` outlives these coroutines: the requests are dropped after the other ranks know the reason.
  task<> staged_collective(work_state* w, stream_pair use, turn* mine, chunks_in_flight* chunks);
  task<> staged_whole(work_state* w, stream_pair use, turn* mine, chunks_in_flight* chunks);
  task<> staged_send(work_state* w, stream_pair use);
  task<> staged_receive(work_state* w, stream_pair use);
  task<bool> receive_chunks(message* m, const view* to, stream_state* in);
  task<> probe(work_state* w);
  recycled_deque<message>::iterator find_probed(const device_arguments& c);
  void give_back(message m);
  void end_early(message m) noexcept;
  task<> drain(message m);
  // Sets `told` on the other ranks if the operation failed on rank 0, which tells all.
  task<> through_window(work_state* w, stream_pair use, turn* mine, bool* told);
  void begin_passage(const device_arguments& c, const stream_pair& use, const chunk_layout& layout,
                     passage& p);
  task<> tell_ready(recycled_deque<passage>* under_way);
  void carry_out(const device_arguments& c, const stream_pair& use, passage& p,
                 bool first);  // on rank 0, for all ranks
  request reduce_chunk(const device_arguments& c, const chunk_layout& layout, chunk_state& k);
  void tell(const breach& b, operation_kind kind, backend by, const communicator& of);
  void keep(std::shared_ptr<single_device_group::contribution> here) noexcept;

  const std::shared_ptr<attachment> on_;
  communicator chunks_;
  communicator heads_;
  communicator payload_;
  const std::size_t chunk_bytes_;
  const int depth_;
  const std::shared_ptr<pinned_pool> staging_;  // for chunks
  std::vector<std::unique_ptr<stream_pair>> spare_streams_;
  std::shared_ptr<single_device_group> single_device_;
  std::shared_ptr<window> window_;
  communicator notes_;  // for the window
  std::string apart_ = "the ranks do not share one";
  // Messages whose header a probe took, or that a receive gave back, and that no receive has used.
  recycled_deque<message> probed_;
  recycled_deque<awaited_header*> awaited_;  // receives and probes that wait for a header
  scope drains_;                             // see end_early
  recycled_deque<const turn*> turns_;
  std::uint64_t next_message_ = 1;
  waiter_list awaiting_turn_;
  waiter_list awaiting_slot_;  // of the window
};

}  // namespace tutti::gpu::impl

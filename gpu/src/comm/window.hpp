// SPDX-License-Identifier: Apache-2.0
// Memory of one device through which ranks of several processes pass the chunks of collectives: rank 0's,
// which the others have opened. It is a ring: chunk k of the communicator lies in slot k % slots, of which
// every rank has its own part, and the ranks tell the device by events, and each other by messages that there
// is an event to wait for. Where the driver has no events of several processes, a message says that the
// device has done it.
//
//   rank r      copies its part into the slot, records ready(r)
//   rank 0      waits for all ready(), reduces in place, records done()
//   rank r      waits for done(), copies the result out of the slot, records freed()
//
// So an event is recorded anew only after everybody has made the stream wait for what it meant before. The
// others only copy to and from memory that is not theirs; kernels run where they belong to the process.
#pragma once

#include "device/attachment.hpp"
#include "device/sharing.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <tutti/communicator.hpp>
#include <tutti/gpu/device.hpp>
#include <tutti/task.hpp>
#include <utility>
#include <vector>

namespace tutti::gpu::detail {

class window {
 public:
  static constexpr std::size_t slots = 4;

  // Collective over `notes`. Null, on all ranks, where it cannot be or a value does not come through: `why`
  // says which. `process` is the same in what one process does.
  static task<std::shared_ptr<window>> open(std::shared_ptr<attachment> on, communicator notes,
                                            std::uint64_t process, std::size_t chunk_bytes, std::string* why);
  window(std::shared_ptr<driver> d, int rank, int size, std::size_t slot_bytes);
  window(const window&) = delete;
  window& operator=(const window&) = delete;
  // When the device has passed all that uses it. The others leave a mark behind, and rank 0 uses the memory
  // again when it sees them all: it cannot know when a process has closed it, so it never frees what others
  // have opened.
  ~window();

  std::size_t slot_bytes() const noexcept { return slot_bytes_; }
  void* slot(int rank, std::uint64_t chunk) const noexcept;  // `rank`'s part
  // Events. Of others: on rank 0 only, and null, as done(), where the ranks wait for the device instead.
  bool has_events() const noexcept { return driver_->sharing()->has_events(); }
  void* ready(int rank, std::uint64_t chunk) const noexcept {
    return ready_[static_cast<std::size_t>(rank)][chunk % slots];
  }
  void* done(std::uint64_t chunk) const noexcept { return done_[chunk % slots]; }
  void* freed(std::uint64_t chunk) const noexcept { return freed_[chunk % slots]; }

  // What this rank's host knows: the next chunks' numbers; whether the slot of one has been emptied, in its
  // streams.
  std::uint64_t take(std::uint64_t chunks) noexcept { return std::exchange(next_, next_ + chunks); }
  bool is_free(std::uint64_t chunk) const;  // throws when it has been given up
  void set_free(std::uint64_t chunk) noexcept;
  void give_up() noexcept;

 private:
  struct handle;
  using events = std::array<void*, slots>;
  task<> find_memory(device on);  // on rank 0
  void prepare(handle& mine);
  void reach(const std::vector<handle>& all);
  // Writes a value into the own slot, which rank 0 answers through its memory.
  task<> try_it(device on, communicator notes, std::vector<handle> all);
  task<> answer(device on, communicator notes, std::vector<handle> all);
  void leave_mark() noexcept;
  void* marks() const noexcept;  // one of 64 bytes for each rank, not 0 when it is done
  std::size_t bytes() const noexcept {
    return static_cast<std::size_t>(size_) * (slots * slot_bytes_ + mark_bytes);
  }
  driver& device_driver() const noexcept { return *driver_; }

  static constexpr std::size_t mark_bytes = 64;

  const std::shared_ptr<driver> driver_;  // not the attachment, whose points keep windows
  const int rank_, size_;
  const std::size_t slot_bytes_;
  std::shared_ptr<allocation> memory_;  // on rank 0
  void* base_ = nullptr;
  bool opened_ = false;  // base_ is another process's
  bool known_ = false;   // others may have opened rank 0's memory
  std::vector<events> ready_;
  events done_{}, freed_{};
  std::vector<std::shared_ptr<void>> events_;
  std::uint64_t next_ = 0;
  std::array<std::uint64_t, slots> emptied_{};  // of each slot, the last such chunk and one
  bool given_up_ = false;
};

}  // namespace tutti::gpu::detail

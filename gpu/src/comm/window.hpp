// SPDX-License-Identifier: Apache-2.0
// Memory of rank 0 that ranks of other processes have opened, for chunks of collectives on a shared device.
// It is a ring: chunk k of the communicator uses slot k % slots, in which each rank has its own part. Ranks
// signal the device by events. A message tells another rank that it can wait for an event. If the driver has
// no events of several processes, a message says that the device has finished.
//
//   rank r      copies its part into the slot, records ready(r)
//   rank 0      waits for all ready(), reduces in place, records done()
//   rank r      waits for done(), copies the result out of the slot, records freed()
//
// So each event is recorded again only after all streams wait for its earlier record. The other ranks only
// copy to and from the memory; kernels run in the process that owns it.
#pragma once

#include "comm/calls.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <tutti/communicator.hpp>
#include <tutti/gpu/stream.hpp>
#include <tutti/task.hpp>
#include <utility>
#include <vector>

namespace tutti::gpu::impl {

// A random number that identifies this process.
std::uint64_t this_process();

class window {
 public:
  static constexpr std::size_t slots = 4;

  // Collective over `notes`. Returns null on all ranks if memory cannot be shared, or if a test value does
  // not arrive: `why` has the reason.
  static task<std::shared_ptr<window>> open(std::shared_ptr<attachment> on, communicator notes,
                                            std::size_t chunk_bytes, std::string* why);
  window(std::shared_ptr<driver> d, int rank, int size, std::size_t slot_bytes);
  window(const window&) = delete;
  window& operator=(const window&) = delete;
  // Requires that the device has passed all that uses the window. The other ranks leave a mark, and rank 0
  // reuses the memory once it sees all marks. It cannot know when a process has closed the memory, so it
  // never frees what others have opened.
  ~window();

  std::size_t slot_bytes() const noexcept { return slot_bytes_; }
  void* slot(int rank, std::uint64_t chunk) const noexcept;  // `rank`'s part
  // Events. ready() of other ranks: on rank 0 only. They and done() are null if has_events() is false.
  bool has_events() const noexcept { return driver_->sharing()->has_events(); }
  void* ready(int rank, std::uint64_t chunk) const noexcept {
    return ready_[static_cast<std::size_t>(rank)][chunk % slots];
  }
  void* done(std::uint64_t chunk) const noexcept { return done_[chunk % slots]; }
  void* freed(std::uint64_t chunk) const noexcept { return freed_[chunk % slots]; }

  // This rank's view: take() numbers the next chunks. A chunk's slot is free when its previous chunk has been
  // copied out in this rank's streams.
  std::uint64_t take(std::uint64_t chunks) noexcept { return std::exchange(next_, next_ + chunks); }
  bool is_free(std::uint64_t chunk) const;  // throws after give_up()
  void set_free(std::uint64_t chunk) noexcept { emptied_[chunk % slots] = chunk + 1; }
  void give_up() noexcept { given_up_ = true; }

 private:
  struct handle;
  using events = std::array<void*, slots>;
  task<> find_memory(stream s);  // on rank 0
  // The steps of open(). Each begins when all ranks have ended the one before. They test the window: rank 0 writes a
  // value to the slots of the others, they read it and answer there, and rank 0 reads the answers.
  task<> prepare(device on, stream* s, handle* mine);
  task<> reach(stream s, const std::vector<handle>* ranks);
  task<> check_answers(stream s, std::uint64_t value);
  // Write and check the first value of the slot of `rank`. Each process records an event behind what it writes, and
  // waits for it before it reads.
  task<> write_value(stream s, int rank, std::uint64_t value, void* event);
  task<> check_value(stream s, int rank, std::uint64_t value, void* event);
  void leave_mark() noexcept;
  void* marks() const noexcept;  // 64 bytes for each rank, not 0 once that rank has finished
  std::size_t bytes() const noexcept {
    return static_cast<std::size_t>(size_) * (slots * slot_bytes_ + mark_bytes);
  }

  static constexpr std::size_t mark_bytes = 64;

  const std::shared_ptr<driver> driver_;  // not the attachment: its points own windows
  const int rank_, size_;
  const std::size_t slot_bytes_;
  std::shared_ptr<allocation> memory_;  // on rank 0
  void* base_ = nullptr;
  bool opened_ = false;  // base_ belongs to another process
  bool known_ = false;   // others may have opened rank 0's memory
  std::vector<events> ready_;
  events done_{}, freed_{};
  std::vector<std::shared_ptr<void>> events_;
  std::uint64_t next_ = 0;
  std::array<std::uint64_t, slots> emptied_{};  // by slot: the last emptied chunk, plus 1
  bool given_up_ = false;
};

}  // namespace tutti::gpu::impl

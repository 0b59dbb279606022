// SPDX-License-Identifier: Apache-2.0
// window_state: a rank's part of a window: what it knows of the other ranks' parts, and what serves them.
//
// Requests of other ranks are messages of the window's communicator whose fingerprint has the arguments:
//
//   origin  ---- request, with the data of a put ---->  target   carries out one origin's requests in their order
//   origin  <--- answer: data, an old value, done ----  target
//
// On one host the target answers the first request with the place of its control block and of its data. The origin
// then reads and writes there itself, as a visitor of the control block.
//
// Invariants: a rank writes in another's memory only as a visitor, and only while the control block has the mark
// that it was told. The owner clears the mark, then waits until no visitor is left. A control block is never
// used for anything else, since a late visitor still counts itself in it.
#pragma once

#include "base/intrusive_list.hpp"
#include "base/ring_copy.hpp"
#include "comm/communicator_state.hpp"
#include "core/running_task.hpp"
#include "p2p/endpoint.hpp"
#include "transport/transport.hpp"

#include <atomic>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <span>
#include <tutti/window.hpp>
#include <vector>

namespace tutti::rma {

// In shared memory; `signals` words follow it.
struct control_block {
  static constexpr std::size_t counters = 16;
  struct alignas(64) counter {
    std::atomic<std::uint32_t> visitors;
  };

  std::atomic<std::uint64_t> mark;  // random; 0: the window is closed
  counter of[counters];             // by rank modulo their number

  std::atomic<std::uint64_t>* signals() noexcept {
    return reinterpret_cast<std::atomic<std::uint64_t>*>(this + 1);
  }
  static constexpr std::size_t bytes_for(std::size_t signals) noexcept {
    return sizeof(control_block) + signals * sizeof(std::uint64_t);
  }
};

inline std::byte* start_of(const detail::buffer_view& b) noexcept { return static_cast<std::byte*>(b.data); }

// What one rank asks of another.
struct request {
  // The low bits of the tag, below `number`.
  enum class kind : std::uint8_t {
    answer,
    attach,
    put,
    put_signal,
    get,
    accumulate,
    fetch_add,
    compare_exchange,
    flush
  };
  static constexpr int kind_bits = 4;

  kind is = kind::answer;
  std::uint32_t number = 0;   // of the answer, or the signal of put_signal
  std::uint64_t at = 0;       // 56 bits: the first byte in the window; the signal of an atomic operation
  std::uint64_t operand = 0;  // bytes of a get, a value to add, one to compare with, or the reduction

  std::int32_t tag() const noexcept {
    return static_cast<std::int32_t>(number << kind_bits | static_cast<std::uint32_t>(is));
  }
  p2p::fingerprint print() const noexcept;
  static request from(const p2p::frame& head) noexcept;  // kind::answer: it is none
};
inline constexpr std::uint32_t most_numbers = 1U << (31 - request::kind_bits);
inline constexpr const char* dropped_text = "this rank has dropped its window";
inline constexpr std::size_t accumulate_bytes = 256 * 1024;  // of one request

// The answer to request::kind::attach. region 0: not in shared memory.
struct place_record {
  std::uint64_t bytes = 0, signals = 0, mark = 0;
  std::uint64_t control_region = 0, control_offset = 0;
  std::uint64_t data_region = 0, data_offset = 0;
};

// Another rank's part, or this rank's own, once it is known.
struct target {
  bool known = false;
  std::uint64_t bytes = 0, signals = 0, mark = 0;
  control_block* control = nullptr;       // null: its loop carries out everything
  std::byte* data = nullptr;              // null: its loop carries out puts and gets
  transport::neighbours* near = nullptr;  // where there is a control block, but not of this rank
  const std::atomic<std::uint32_t>* sleeps = nullptr;
  std::uint64_t told = 0;     // requests without an answer, which a flush waits for,
  std::uint64_t flushed = 0;  // and how many of them have happened, as far as is known
  bool unflushed() const noexcept { return told != flushed; }
};

struct signal_wait_tag;
struct turn_tag;

class window_state final : public p2p::message_taker, public core::source {
 public:
  window_state(detail::communicator_ref comm, const detail::buffer_view& mine, std::size_t signals);
  ~window_state();
  // On return no rank writes to the window, nor will.
  void close() noexcept;

  comm::communicator_state& comm() const noexcept { return *comm_; }
  const detail::communicator_ref& reference() const noexcept { return comm_; }
  bool closed() const noexcept { return closed_; }
  // Whether another rank may change signals here by itself.
  bool written_in_place() const noexcept { return written_in_place_; }
  const detail::buffer_view& mine() const noexcept { return mine_; }
  std::size_t signals() const noexcept { return signals_; }
  std::atomic<std::uint64_t>& signal(std::size_t i) const noexcept { return control_->signals()[i]; }

  // `rank` of the communicator.
  target& target_of(int rank);
  // Learns the place of a rank's window from the answer to `attach`.
  void attach(int rank, const place_record& told);
  transport::neighbours* neighbours_of(int rank) const noexcept;
  // Notifies a rank of whose control block a signal has changed.
  void notify(int rank, const target& t) noexcept;
  std::uint32_t next_number() noexcept { return last_number_ = (last_number_ + 1) % most_numbers; }
  base::ring_writer& writer() noexcept { return writer_; }
  // Whether an operation on this many bytes may end without the loop; in between, the loop gets its turn: a program
  // that does nothing else would never hear that a rank has died.
  bool may_end_at_once(std::size_t bytes) noexcept {
    constexpr std::size_t most = 256, bytes_that_count = 4096;  // 256 operations, or 1 MiB
    since_turn_ += 1 + bytes / bytes_that_count;
    if (since_turn_ < most) return true;
    since_turn_ = 0;
    return false;
  }

  // Waits until this rank's signal fulfils a condition; throws errc::peer_failed if a member dies before.
  class signal_wait : public core::completion, public base::list_hook<signal_wait_tag> {
   public:
    signal_wait(window_state& w, std::size_t signal, const detail::window_access& until) noexcept;
    ~signal_wait();
    bool await_ready();
    void await_suspend(std::coroutine_handle<> h) noexcept;
    std::uint64_t await_resume();
    bool check() noexcept;  // whether it is over

   private:
    window_state& window_;
    const std::size_t signal_;
    const detail::window_access& until_;
    std::uint64_t value_ = 0;
    std::exception_ptr thrown_;
    std::coroutine_handle<> waiting_;
    p2p::receive never_;  // from any rank: ends when a member dies
  };
  // Waits until the loop has had its turn.
  class turn : public core::completion, public base::list_hook<turn_tag> {
   public:
    explicit turn(window_state& w) noexcept : window_(w) {}
    ~turn() {
      static_cast<base::list_hook<turn_tag>&>(*this).unlink();
      static_cast<base::list_hook<core::ready_tag>&>(*this).unlink();
    }
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> h) noexcept;
    void await_resume() const noexcept {}

   private:
    window_state& window_;
    std::coroutine_handle<> waiting_;
  };

  // core::source
  bool poll() noexcept override;
  bool arm() noexcept override { return poll(); }

 private:
  // One origin's requests.
  struct origin {
    bool empty() const noexcept { return waiting.empty(); }
    p2p::unexpected& take_first() noexcept {
      p2p::unexpected* const first = waiting[taken++];
      if (2 * taken >= waiting.size()) {  // a queue that allocates nothing in steady state
        waiting.erase(waiting.begin(), waiting.begin() + static_cast<std::ptrdiff_t>(taken));
        taken = 0;
      }
      return *first;
    }

    std::vector<p2p::unexpected*> waiting;  // in the order of their arrival
    std::size_t taken = 0;                  // of their first
    core::running_task serving;
  };

  // p2p::message_taker
  void take(p2p::unexpected& held) noexcept override;
  void context_closes() noexcept override;

  std::string why_bad(const request& r, const p2p::frame& head) const;
  task<> serve(origin* of);
  task<> carry_out(request r, p2p::unexpected* held);
  void drop(p2p::unexpected& held) noexcept;
  place_record place_for(int peer) noexcept;
  void watch() noexcept;

  const detail::communicator_ref comm_;
  const detail::buffer_view mine_;
  const std::size_t signals_;
  control_block* control_ = nullptr;
  bool closed_ = false;
  bool detached_ = false;  // nothing more comes: the communicator has closed
  bool watched_ = false;
  bool written_in_place_ = false;
  std::uint32_t last_number_ = 0;
  std::size_t since_turn_ = 0;
  std::vector<std::unique_ptr<target>> targets_;    // by rank; null: not used yet
  std::map<int, std::unique_ptr<origin>> origins_;  // by rank of the world
  core::completion requests_have_come_;
  base::intrusive_list<signal_wait, signal_wait_tag> waits_;
  base::intrusive_list<turn, turn_tag> turns_;
  base::ring_writer writer_;
};

// Begins a visit to a rank's memory: returns the counter to decrease at its end.
// Errors: throws errc::peer_left if that rank has closed its window.
std::atomic<std::uint32_t>& begin_visit(window_state& w, int rank, target& t);

class visit {
 public:
  visit(window_state& w, int rank, target& t) : visitors_(begin_visit(w, rank, t)) {}
  ~visit() { visitors_.fetch_sub(1, std::memory_order_release); }
  visit(const visit&) = delete;
  visit& operator=(const visit&) = delete;

 private:
  std::atomic<std::uint32_t>& visitors_;
};

}  // namespace tutti::rma

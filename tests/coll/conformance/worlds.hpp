// SPDX-License-Identifier: Apache-2.0
// The worlds in which collectives are compared with a serial result: every number of ranks over each
// transport, and ranks that appear to be on several hosts. With TUTTI_TEST_MPI_RANKS, the world of the
// processes that an mpirun has started, over its MPI.
#pragma once

#include "coll/choice.hpp"
#include "support/instrumented.hpp"
#include "support/local_world.hpp"
#include "support/skip.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::test {

using bytes = std::vector<std::byte>;

struct setting {
  // "shm", "tcp", "mpi", "mixed": shared memory between ranks of one host, TCP between hosts.
  std::string transport;
  int ranks = 1;
  std::string hosts;        // "a,a,b,b": by rank; empty: one host
  bool two_levels = false;  // of collective segments

  std::string name() const {
    return transport + ", " + std::to_string(ranks) + " ranks" + (hosts.empty() ? "" : " on hosts ") + hosts +
           (two_levels ? " in two levels" : "");
  }
  // The situation in which an algorithm of this collective runs here.
  coll::situation situation_of(coll::operation_kind kind, bool even_blocks = true) const;
  // `automatic`, and all suitable algorithms of the collective.
  std::vector<algorithm> algorithms(coll::operation_kind kind, bool even_blocks = true) const;
};

const std::vector<setting>& settings();

// Sets a variable for this object's lifetime. An empty value unsets it.
class scoped_variable {
 public:
  scoped_variable(const char* name, const std::string& value);
  ~scoped_variable();
  scoped_variable(const scoped_variable&) = delete;

 private:
  const char* name_;
  std::string before_;
  bool was_set_ = false;
};

init_options options_for(const setting& where);
// Runs this process as one rank of an MPI job. Throws its error.
void run_over_mpi(init_options options, detail::any_main main);
// The address at which other hosts would reach this one; empty if it has only loopback.
std::string outside_address();

// Runs main(communicator, const setting*) on all ranks of each setting.
template <class F>
void run_in(const setting& where, F main) {
  const auto of_rank = [&where, &main](communicator world) { return main(std::move(world), &where); };
  if (where.transport == "mpi") return run_over_mpi(options_for(where), detail::erase_main(of_rank));
  const bool several_hosts = !where.hosts.empty();
  const std::string address = several_hosts ? outside_address() : "";
  if (several_hosts && address.empty())
    TUTTI_SKIP(where.name() + ": this machine has no address but loopback");
  const scoped_variable hosts("TUTTI_HOST_ID", where.hosts);
  const scoped_variable listening("TUTTI_ADDRESS", address);
  const scoped_variable flat("TUTTI_FLAT_RANKS", where.two_levels ? "3" : "");
  run_local(where.ranks, options_for(where), of_rank);
}
template <class F>
void run_in_all(F main) {
  for (const setting& where : settings()) {
    const std::string name = where.name();
    CAPTURE(name);
    CHECK_NOTHROW(run_in(where, main));
  }
}

// Describes one collective for the message of a failing test.
struct attempt {
  coll::operation_kind kind{};
  std::string_view elements;
  algorithm with = algorithm::automatic;
  std::size_t count = 0;
  int root = 0;
  bool in_place = false;
  int rank = 0;
};
// Throws if they differ, and names the position.
void expect_equal(std::span<const std::byte> got, std::span<const std::byte> wanted, const attempt& what);

// Memory filled with `untouched`, and margins that must stay so.
class field {
 public:
  field() = default;
  explicit field(std::size_t size) : memory_(size + 2 * margin, untouched) {}
  explicit field(std::span<const std::byte> content) : field(content.size()) {
    if (!content.empty()) std::memcpy(memory_.data() + margin, content.data(), content.size());
  }
  std::span<std::byte> span() noexcept {
    return std::span(memory_).subspan(margin, memory_.size() - 2 * margin);
  }
  std::span<const std::byte> span() const noexcept { return const_cast<field*>(this)->span(); }
  std::span<std::byte> with_margins() noexcept { return memory_; }
  void expect_margins(const attempt& what) const;

  static constexpr std::byte untouched{0xA5};

 private:
  static constexpr std::size_t margin = 64;
  bytes memory_ = bytes(2 * margin, untouched);
};

inline constexpr std::size_t KiB = 1024;
inline constexpr std::size_t read_in_place_bytes = 4 * KiB;  // from shared memory
inline constexpr std::size_t shm_eager_bytes = 64 * KiB;
inline constexpr std::size_t tcp_eager_bytes = 256 * KiB;
inline constexpr std::size_t large_bytes = 8 * 1024 * KiB;

// Where the suite keeps the buffers of its calls: here, where it has filled them. gpu/conformance_test.cpp
// has another such class.
struct host_memory {
  static constexpr std::size_t largest = large_bytes;  // of a buffer; only with three ranks
  // The buffers of one call.
  struct buffers {
    buffers(const host_memory&, field&, field&) noexcept {}
    // The buffer for `part` of a field.
    template <class T>
    std::span<T> as(std::span<std::byte> part) const noexcept {
      return std::span<T>(reinterpret_cast<T*>(part.data()), part.size() / sizeof(T));
    }
    // Calls f() with the last argument that such calls take.
    template <class F>
    auto call(F f) const {
      return f();
    }
    request start(operation<> op, algorithm with) const { return tutti::start(std::move(op).with(with)); }
    // Copies the results into the fields.
    task<> fetch() const { co_return; }
  };
  std::vector<algorithm> algorithms(const setting& where, coll::operation_kind kind,
                                    bool even_blocks = true) const {
    return where.algorithms(kind, even_blocks);
  }
  // Reductions do not depend on the number of ranks. Worlds of four and more ranks share the cases, so that
  // every number of ranks, and every transport, meets each case.
  bool takes(const setting& where, std::size_t reduction) const {
    if (instrumented || where.ranks < 4) return true;  // few or small worlds
    const int by_ranks = where.ranks == 4 ? 0 : where.ranks == 5 ? 1 : 2;
    const int by_transport = where.transport == "shm" ? 0 : where.transport == "tcp" ? 1 : 2;
    return static_cast<int>(reduction % 3) == (by_ranks + by_transport) % 3;
  }
};

inline constexpr host_memory in_host_memory;

// Adds element counts around those that cross `total_bytes`.
void add_around(std::vector<std::size_t>& counts, std::size_t total_bytes, std::size_t element_bytes);
// Sorts, and removes duplicates.
void tidy(std::vector<std::size_t>& counts);

}  // namespace tutti::test

// SPDX-License-Identifier: Apache-2.0
// The worlds in which collectives are compared with a serial answer: every number of ranks over each
// transport, and ranks that are spread over several hosts, as far as they can tell. Or, where an mpirun has
// started that many processes, with TUTTI_TEST_MPI_RANKS: the world of these, over its MPI.
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
  std::string hosts;  // "a,a,b,b": by rank; empty: one for all

  std::string name() const {
    return transport + ", " + std::to_string(ranks) + " ranks" + (hosts.empty() ? "" : " on hosts ") + hosts;
  }
  // What an algorithm of this collective has to cope with here.
  coll::situation situation_of(coll::operation_kind kind, bool even_blocks = true) const;
  // `automatic`, and all that the collective has and that fit.
  std::vector<algorithm> algorithms(coll::operation_kind kind, bool even_blocks = true) const;
};

const std::vector<setting>& settings();

// The variable has this value while this lives; of an empty one, none.
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
// This process as one rank of an MPI job; throws its error.
void run_over_mpi(init_options options, detail::any_main main);
// Where other hosts would reach this one; empty when it has loopback only.
std::string outside_address();

// main(communicator, const setting*) on all ranks of each setting.
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

// One collective in the words of a failing test.
struct attempt {
  coll::operation_kind kind{};
  std::string_view elements;
  algorithm with = algorithm::automatic;
  std::size_t count = 0;
  int root = 0;
  bool in_place = false;
  int rank = 0;
};
// Throws when they differ, naming the place.
void expect_equal(std::span<const std::byte> got, std::span<const std::byte> wanted, const attempt& what);

// Memory that is `untouched` at first, with margins that stay so.
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
inline constexpr std::size_t shm_eager_bytes = 4 * KiB;
inline constexpr std::size_t tcp_eager_bytes = 64 * KiB;
inline constexpr std::size_t large_bytes = 8 * 1024 * KiB;

// Where the suite has the buffers of its calls while they run: where it has filled them. gpu/conformance_test.cpp
// has another such class.
struct host_memory {
  static constexpr std::size_t largest = large_bytes;  // of a buffer; tried with three ranks only
  // Of one call.
  struct buffers {
    buffers(const host_memory&, field&, field&) noexcept {}
    // What `part` of a field is there.
    template <class T>
    std::span<T> as(std::span<std::byte> part) const noexcept {
      return {reinterpret_cast<T*>(part.data()), part.size() / sizeof(T)};
    }
    // f(), with what such calls have as their last argument.
    template <class F>
    auto call(F f) const {
      return f();
    }
    request start(operation<> op, algorithm with) const { return tutti::start(std::move(op).with(with)); }
    // The fields have the results.
    task<> fetch() const { co_return; }
  };
  std::vector<algorithm> algorithms(const setting& where, coll::operation_kind kind,
                                    bool even_blocks = true) const {
    return where.algorithms(kind, even_blocks);
  }
  // What reduces elements does not know how many ranks there are: worlds of four and more share the cases among
  // them, so that each number of ranks, and each transport, meets all of them.
  bool takes(const setting& where, std::size_t reduction) const {
    if (instrumented || where.ranks < 4) return true;  // there are few worlds, or they are small
    const int by_ranks = where.ranks == 4 ? 0 : where.ranks == 5 ? 1 : 2;
    const int by_transport = where.transport == "shm" ? 0 : where.transport == "tcp" ? 1 : 2;
    return static_cast<int>(reduction % 3) == (by_ranks + by_transport) % 3;
  }
};

inline constexpr host_memory in_host_memory;

// Element counts around those where `total_bytes` are crossed.
void add_around(std::vector<std::size_t>& counts, std::size_t total_bytes, std::size_t element_bytes);
// Sorted, each once.
void tidy(std::vector<std::size_t>& counts);

}  // namespace tutti::test

// SPDX-License-Identifier: Apache-2.0
// What NCCL and oneCCL share: oneCCL's C interface follows NCCL's.
#pragma once

#include "comm/submit_thread.hpp"
#include "device/work_state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <tutti/communicator.hpp>
#include <tutti/error.hpp>
#include <tutti/half.hpp>
#include <tutti/reduce_op.hpp>
#include <tutti/task.hpp>
#include <tutti/with_timeout.hpp>

namespace tutti::gpu::vendor_abi {

using result = int;
inline constexpr result success = 0, invalid_argument = 4;
inline constexpr int int8 = 0, uint8 = 1, int32 = 2, uint32 = 3, int64 = 4, uint64 = 5, float16 = 6,
                     float32 = 7, float64 = 8, bfloat16 = 9;
inline constexpr int sum = 0, product = 1, max = 2, min = 3, average = 4;
inline constexpr int host_immediate = 1;

// 22809: "2.28.9"
inline std::string version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

// Indexed by the libraries' numbers.
inline constexpr element_type types[] = {element_type::int8,    element_type::uint8,   element_type::int32,
                                         element_type::uint32,  element_type::int64,   element_type::uint64,
                                         element_type::float16, element_type::float32, element_type::float64,
                                         element_type::bfloat16};
inline constexpr reduce_kind operations[] = {reduce_kind::sum, reduce_kind::product, reduce_kind::max,
                                             reduce_kind::min, reduce_kind::avg};
static_assert(types[bfloat16] == element_type::bfloat16 && operations[average] == reduce_kind::avg);

template <class T, std::size_t N>
int index_of(T wanted, const T (&among)[N]) noexcept {
  const T* const found = std::find(std::begin(among), std::end(among), wanted);
  return found == std::end(among) ? -1 : static_cast<int>(found - among);
}
// -1: no such type
inline int type_of(element_type type) noexcept { return index_of(type, types); }
// -1: none; premul_sum is made for each call
inline int operation_of(reduce_kind kind) noexcept { return index_of(kind, operations); }

// "NCCL 2.28.9: invalid usage (5): ..."; `message` and `more` may be null.
inline std::string explain(const char* library, int version, result code, const char* message,
                           const char* more) {
  const bool says_more = more != nullptr && *more != '\0';
  return fmt::format("{} {}: {} ({}){}{}", library, version_text(version),
                     message == nullptr ? "error" : message, code, says_more ? ": " : "",
                     says_more ? more : "");
}

// Makes a collective that both libraries have. Operations that only move elements move bytes: the library need
// not know the type.
template <class Table, class Communicator>
result call_library(const Table& calls, const impl::device_arguments& c, int op, Communicator* on,
                    void* stream) {
  const int type = type_of(c.in.type);
  switch (c.kind) {
    case impl::operation_kind::all_reduce:
      return calls.all_reduce(c.in.data, c.out.data, c.in.count, type, op, on, stream);
    case impl::operation_kind::reduce:
      return calls.reduce(c.in.data, c.out.data, c.in.count, type, op, c.peer, on, stream);
    case impl::operation_kind::reduce_scatter:
      return calls.reduce_scatter(c.in.data, c.out.data, c.out.count, type, op, on, stream);
    case impl::operation_kind::broadcast:
      return calls.broadcast(c.in.data, c.out.data, c.in.bytes(), uint8, c.peer, on, stream);
    case impl::operation_kind::all_gather:
      return calls.all_gather(c.in.data, c.out.data, c.in.bytes(), uint8, on, stream);
    default:
      return invalid_argument;
  }
}

// Makes the library's reduction for a premul_sum. It expects the factor in the element type.
template <class Table, class Communicator>
result make_scaled_sum(const Table& calls, const impl::device_arguments& c, Communicator* on, int* op) {
  alignas(16) std::byte factor[16];
  std::memcpy(factor, c.op.state.data(), sizeof factor);
  if (tutti::extend::is_half(c.in.type)) {
    float f = 0;  // as factors of halves are kept
    std::memcpy(&f, factor, sizeof f);
    const std::uint16_t bits =
        c.in.type == element_type::float16 ? tutti::float16(f).bits() : tutti::bfloat16(f).bits();
    std::memcpy(factor, &bits, sizeof bits);
  }
  return calls.make_premul_sum(op, factor, type_of(c.in.type), host_immediate, on);
}

// The library's names for error texts, and the cures.
struct library_texts {
  const char* name = "";
  const char* make_id = "";  // the call that makes the id, with what prepares it
  const char* prepare = "";
  const char* init = "";
  const char* init_failed = "";     // follows a failure of these two
  const char* connect_failed = "";  // follows "... has not connected the ranks within N ms: "
};

// Comes behind init(), which nobody waits for any more.
template <class Communicator>
struct after_init final : impl::job {
  after_init(std::shared_ptr<Communicator*> m, std::function<void(Communicator*)> f)
      : made(std::move(m)), unclaimed(std::move(f)) {}
  void run() noexcept override {}
  void finished() noexcept override {
    if (*made != nullptr) unclaimed(*made);
  }
  const std::shared_ptr<Communicator*> made;
  const std::function<void(Communicator*)> unclaimed;
};

// Makes a communicator of the library for the ranks of `control`. Collective; rank 0 makes the id. `thread` makes
// all calls, `prepare` first. init() returns when all ranks have called it, so no rank calls it before all are
// here; `limit` ends the wait for it. What init() makes when nobody waits any more goes to `unclaimed`, on the loop.
template <class Id, class Communicator, class Table>
task<Communicator*> connect_ranks(communicator control, std::shared_ptr<impl::submit_thread> thread,
                                  std::chrono::milliseconds limit, const Table* calls, library_texts texts,
                                  std::function<result()> prepare,
                                  std::function<void(Communicator*)> unclaimed) {
  // The id, or why there is none: if rank 0 has failed, the others must not wait for the id.
  struct invitation {
    Id id{};
    result code = success;
    int version = 0;
  };
  const int rank = control.rank(), size = control.size();
  auto mine = std::make_shared<invitation>();
  mine->version = calls->version;
  const auto check = [=](result code, const char* what) {
    if (code != success)
      throw error(errc::device_failed,
                  fmt::format("{}: {}{}", what, calls->explain(code, nullptr), texts.init_failed));
  };
  const std::function<void()> make_id = [=] {
    mine->code = prepare();
    if (rank != 0) return check(mine->code, texts.prepare);
    if (mine->code == success) mine->code = calls->get_unique_id(&mine->id);
  };
  co_await impl::call_on(thread, make_id);
  co_await control.broadcast(*mine, 0);
  if (mine->code != success)
    throw error(errc::device_failed,
                fmt::format("{} on rank 0: {}", texts.make_id, calls->explain(mine->code, nullptr)));
  if (mine->version != calls->version)
    throw error(errc::mismatch,
                fmt::format("rank {} has {} {}, rank 0 has {}: all ranks need the same", rank, texts.name,
                            version_text(calls->version), version_text(mine->version)));
  co_await control.barrier();
  auto made = std::make_shared<Communicator*>(nullptr);
  const std::function<void()> init = [=] {
    check(calls->init(made.get(), size, mine->id, rank), texts.init);
  };
  bool taken = false;
  const impl::scope_exit unless_taken([&] {
    if (!taken) thread->submit(std::make_shared<after_init<Communicator>>(made, unclaimed));
  });
  try {
    co_await with_timeout(impl::call_on(thread, init), limit);
  } catch (const error& e) {
    if (e.code() != errc::timed_out) throw;
    throw error(errc::timed_out, fmt::format("{} has not connected the ranks within {} ms: {}", texts.name,
                                             limit.count(), texts.connect_failed));
  }
  taken = true;
  co_return *made;
}

}  // namespace tutti::gpu::vendor_abi

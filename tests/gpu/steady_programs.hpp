// SPDX-License-Identifier: Apache-2.0
// A program for each kind of operation on device memory, which two ranks repeat in steady state.
#pragma once

#include "gpu/backends.hpp"

#include <array>
#include <cstddef>
#include <tutti/gpu/stream.hpp>
#include <tutti/tutti.hpp>
#include <utility>

namespace tutti::test {

// A rank, its device, and the buffers of its programs, of five chunks of 4096 bytes each.
inline constexpr std::size_t device_floats = 5 * 1024;
struct device_rank {
  place at;
  gpu::stream other;
  gpu::device_buffer<float> a, b;
  gpu::pinned_buffer<float> pinned;
  std::array<std::size_t, 2> counts, even;
  gpu::device_span<float> half, mine;  // of `a`
  std::array<gpu::device_span<float>, 2> pieces;
};
inline task<device_rank> open_device_rank(communicator world, gpu::device device, gpu::open_options how) {
  constexpr std::size_t n = device_floats;
  place at = co_await open_on(world, device, how);
  gpu::device_buffer<float> a(device, n), b(device, n);
  const auto mine = a.span().first(world.rank() == 0 ? 2000 : n - 2000);
  co_return device_rank{std::move(at),
                        gpu::stream(device),
                        a,
                        b,
                        gpu::pinned_buffer<float>(device, n),
                        {2000, n - 2000},
                        {n / 2, n / 2},
                        a.span().first(n / 2),
                        mine,
                        {a.span().first(100), b.span().first(50)}};
}
inline int other_of(const device_rank& r) { return 1 - r.at.world.rank(); }
inline std::array<float, device_floats>& host_floats() {
  static thread_local std::array<float, device_floats> floats;
  return floats;
}

// A statement for each operation would make the frame too long to be recycled.
template <class T>
using device_operation = operation<T> (*)(const device_rank&);
template <class T, std::size_t N>
task<> one_by_one(device_rank r, int times, std::array<device_operation<T>, N> operations) {
  for (int i = 0; i < times; ++i)
    for (const device_operation<T> make : operations) co_await make(r);
}

inline task<> device_copies(device_rank r, int times) {
  using R = const device_rank&;
  return one_by_one<status, 6>(std::move(r), times,
                               {[](R d) { return d.at.stream.upload(d.a, host_floats()); },
                                [](R d) { return d.at.stream.copy(d.b, d.a); },
                                [](R d) { return d.at.stream.fill(d.a, std::byte{0}); },
                                [](R d) { return d.at.stream.convert(d.a, d.b, 2.0); },
                                [](R d) { return d.at.stream.download(d.pinned, d.a); },
                                [](R d) { return d.at.stream.download(host_floats(), d.a); }});
}
inline task<> device_reductions(device_rank r, int times) {
  std::array<float, device_floats>& host = host_floats();
  for (int i = 0; i < times; ++i) {
    host.fill(static_cast<float>(i));
    co_await r.at.stream.upload(r.a, host);
    co_await r.at.world.all_reduce(r.a, sum, r.at.stream);
    co_await r.at.stream.download(host, r.a);
    TUTTI_EXPECT(host.front() == static_cast<float>(2 * i) && host.back() == static_cast<float>(2 * i));
    co_await r.at.stream.reached();
  }
}
inline task<> device_collectives(device_rank r, int times) {
  using R = const device_rank&;
  return one_by_one<void, 7>(
      std::move(r), times,
      {[](R d) { return d.at.world.broadcast(d.a, 0, d.at.stream); },
       [](R d) { return d.at.world.reduce(d.a, d.b, premul_sum(0.5F), 1, d.at.stream); },
       [](R d) { return d.at.world.scatter(d.b, d.half, 0, d.at.stream); },
       [](R d) { return d.at.world.gather(d.half, d.b, 1, d.at.stream); },
       [](R d) { return d.at.world.all_gather(d.half, d.b, d.at.stream); },
       [](R d) { return d.at.world.reduce_scatter(d.b, d.half, max, d.at.stream); },
       [](R d) { return d.at.world.all_to_all(d.a, d.b, d.at.stream); }});
}
// Uneven blocks, lists, scans and barriers, which are carried out in one piece.
inline task<> device_whole(device_rank r, int times) {
  using R = const device_rank&;
  return one_by_one<void, 9>(
      std::move(r), times,
      {[](R d) { return d.at.world.all_gather_v(d.mine, d.b, d.counts, d.at.stream); },
       [](R d) { return d.at.world.gather_v(d.mine, d.b, d.counts, 0, d.at.stream); },
       [](R d) { return d.at.world.scatter_v(d.b, d.counts, d.mine, 0, d.at.stream); },
       [](R d) { return d.at.world.reduce_scatter_v(d.b, d.counts, d.mine, sum, d.at.stream); },
       [](R d) { return d.at.world.all_to_all_v(d.a, d.even, d.b, d.even, d.at.stream); },
       [](R d) { return d.at.world.all_reduce(d.pieces, max, d.at.stream); },
       [](R d) { return d.at.world.scan(d.a, d.b, max, d.at.stream); },
       [](R d) { return d.at.world.exclusive_scan(d.a, d.b, max, d.at.stream); },
       [](R d) { return d.at.world.barrier(d.at.stream); }});
}
inline task<> device_messages(device_rank r, int times) {
  for (int i = 0; i < times; ++i) {
    if (r.at.world.rank() == 0) {
      co_await r.at.world.send(r.a, 1, r.at.stream);
      co_await r.at.world.recv(r.b, 1, r.at.stream);
    } else {
      co_await r.at.world.recv(r.b, 0, r.at.stream);
      co_await r.at.world.send(r.a, 0, r.at.stream);
    }
  }
}
// A second stream waits, without the host, for operations that may not be in the device's streams yet.
inline task<> device_requests(device_rank r, int times) {
  std::array<float, device_floats>& host = host_floats();
  for (int i = 0; i < times; ++i) {
    host.fill(static_cast<float>(i));
    request up = start(r.at.stream.upload(r.a, host));
    r.other.wait(up);
    request reducing = start(r.at.world.all_reduce(r.a, sum, r.other));
    r.at.stream.wait(reducing);
    r.other.wait(r.at.stream);
    request down = start(r.at.stream.download(host, r.a));
    co_await down;
    co_await reducing;
    co_await up;
    TUTTI_EXPECT(host.back() == static_cast<float>(2 * i));
  }
}
inline task<> device_prepared(device_rank r, int times) {
  const auto reducing = co_await prepare(r.at.world.all_reduce(r.a, max, r.at.stream));
  for (int i = 0; i < times; ++i) co_await reducing();
}
inline task<> device_prepared_messages(device_rank r, int times) {
  const auto sending = co_await prepare(r.at.world.send(r.a, other_of(r), r.at.stream));
  const auto receiving = co_await prepare(r.at.world.recv(r.b, other_of(r), r.other));
  for (int i = 0; i < times; ++i) {
    request running = start(sending());
    co_await receiving();
    co_await running;
  }
}

struct named_device_program {
  const char* name;
  task<> (*body)(device_rank, int);
};
constexpr named_device_program device_programs[] = {
    {"copies", &device_copies},
    {"all_reduce, 5 chunks", &device_reductions},
    {"even collectives", &device_collectives},
    {"collectives in one piece", &device_whole},
    {"send, recv, 5 chunks", &device_messages},
    {"requests of a device", &device_requests},
    {"prepared all_reduce", &device_prepared},
    {"prepared send, recv", &device_prepared_messages},
};

}  // namespace tutti::test

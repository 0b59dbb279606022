// SPDX-License-Identifier: Apache-2.0
// One program for each kind of operation, which two ranks repeat while their costs are counted.
#pragma once

#include "support/local_world.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <tutti/tutti.hpp>
#include <utility>

namespace tutti::test {

inline int other_of(const communicator& world) { return 1 - world.rank(); }

inline task<> send_and_receive(communicator world, int times) {
  int x = 0;
  for (int i = 0; i < times; ++i) {
    if (world.rank() == 0) {
      co_await world.send(i, 1);
      co_await world.recv(x, 1);
    } else {
      co_await world.recv(x, 0);
      co_await world.send(x, 0);
    }
    TUTTI_EXPECT(x == i);
  }
}
inline task<> barriers(communicator world, int times) {
  for (int i = 0; i < times; ++i) co_await world.barrier();
}
inline task<> reductions(communicator world, int times) {
  for (int i = 0; i < times; ++i) {
    int x = i + world.rank();
    co_await world.all_reduce(x, sum);
    TUTTI_EXPECT(x == 2 * i + 1);
  }
}
inline task<> broadcasts(communicator world, int times) {
  for (int i = 0; i < times; ++i) {
    int x = world.rank() == 0 ? i : -1;
    co_await world.broadcast(x, 0);
    TUTTI_EXPECT(x == i);
  }
}
inline task<> requests(communicator world, int times) {
  int x = 0, y = 0;
  for (int i = 0; i < times; ++i) {
    request first = world.irecv(x, other_of(world), 1);
    request second = world.irecv(y, other_of(world), 2);
    request sending = world.isend(i, other_of(world), 2);
    request another = world.isend(i, other_of(world), 1);
    co_await first;
    co_await second;
    co_await sending;
    co_await another;
    TUTTI_EXPECT(x == i);
    TUTTI_EXPECT(y == i);
  }
}
inline task<> dropped_requests(communicator world, int times) {
  int x = 0;
  for (int i = 0; i < times; ++i) request dropped = world.irecv(x, other_of(world), 1);
  co_await world.barrier();
}
inline task<> joins(communicator world, int times) {
  int x = 0;
  for (int i = 0; i < times; ++i) {
    co_await when_all(world.recv(x, other_of(world)), world.send(i, other_of(world)), world.barrier());
    TUTTI_EXPECT(x == i);
  }
}
inline task<int> child(communicator world, int i) {
  co_await world.barrier();
  co_return i;
}
inline task<> children(communicator world, int times) {
  for (int i = 0; i < times; ++i) {
    const int back = co_await child(world, i);
    TUTTI_EXPECT(back == i);
  }
}
inline task<> long_messages(communicator world, int times) {
  static thread_local std::array<std::byte, 300'000> out, in;  // rendezvous on every transport
  for (int i = 0; i < times / 10; ++i) {
    request receiving = world.irecv(in, other_of(world));
    co_await world.send(out, other_of(world));
    co_await receiving;
  }
}

// Each message is probed for, so that it has come before its receive.
inline task<> early_messages(communicator world, int times) {
  static thread_local std::array<std::byte, 60'000> out{}, in{};
  for (int i = 0; i < times; ++i) {
    out[0] = static_cast<std::byte>(i);
    request sending = world.isend(out, other_of(world));
    co_await world.probe(other_of(world));
    co_await world.recv(in, other_of(world));
    co_await sending;
    TUTTI_EXPECT(in[0] == static_cast<std::byte>(i));
  }
}
inline task<> matched_probes(communicator world, int times) {
  for (int i = 0; i < times; ++i) {
    request sending = world.isend(i, other_of(world));
    int x = 0;
    {
      const matched_message dropped = co_await world.matched_probe();
    }
    matched_message m = co_await world.matched_probe(other_of(world));
    co_await m.recv(x);
    co_await sending;
    TUTTI_EXPECT(x == i);
  }
}
inline task<> probes(communicator world, int times) {
  for (int i = 0; i < times; ++i) {
    request sending = world.isend(i, other_of(world));
    const status st = co_await world.probe(other_of(world));
    int x = 0;
    co_await world.recv(x, st.source, st.tag);
    co_await sending;
    TUTTI_EXPECT(x == i);
  }
}
inline task<> with_timeouts(communicator world, int times) {
  for (int i = 0; i < times; ++i) {
    int x = 0;
    request sending = world.isend(i, other_of(world));
    co_await with_timeout(world.recv(x, other_of(world)), std::chrono::hours(1));
    co_await with_timeout(sending, std::chrono::hours(1));
    TUTTI_EXPECT(x == i);
  }
}
inline task<> results(communicator world, int times) {
  for (int i = 0; i < times; ++i) {
    int x = i;
    const result<> r = co_await as_result(world.all_reduce(x, sum));
    TUTTI_EXPECT(bool(r) && x == 2 * i);
  }
}
inline task<> one_barrier(communicator world) { co_await world.barrier(); }
inline task<> scopes(communicator world, int times) {
  for (int i = 0; i < times; ++i) {
    scope work;
    work.spawn(one_barrier(world));
    work.spawn(one_barrier(world));
    co_await work.join();
  }
}
inline task<> chunked(communicator world, int times) {
  static thread_local std::array<float, 64> x;
  for (int i = 0; i < times / 10; ++i) {
    x.fill(1);
    auto chunks = world.all_reduce_chunks(x, sum, 16);
    std::size_t seen = 0;
    for (;;) {
      const std::optional<std::span<float>> chunk = co_await chunks.next();
      if (!chunk) break;
      seen += chunk->size();
    }
    TUTTI_EXPECT(seen == x.size() && x[63] == 2);
  }
}

template <class Call>
task<> repeat(communicator world, int times, Call call) {
  static thread_local std::array<int, 16> in, out;
  for (int i = 0; i < times; ++i) co_await call(world, in, out);
}
using sixteen = std::array<int, 16>;
inline task<> reduces(communicator w, int n) {
  return repeat(std::move(w), n,
                [](communicator& c, sixteen& in, sixteen& out) { return c.reduce(in, out, sum, 0); });
}
inline task<> scatters(communicator w, int n) {
  return repeat(std::move(w), n, [](communicator& c, sixteen& in, sixteen& out) {
    return c.scatter(in, std::span<int>(out).first(8), 0);
  });
}
inline task<> gathers(communicator w, int n) {
  return repeat(std::move(w), n, [](communicator& c, sixteen& in, sixteen& out) {
    return c.gather(std::span<const int>(in).first(8), out, 0);
  });
}
inline task<> all_gathers(communicator w, int n) {
  return repeat(std::move(w), n, [](communicator& c, sixteen& in, sixteen& out) {
    return c.all_gather(std::span<const int>(in).first(8), out);
  });
}
inline task<> reduce_scatters(communicator w, int n) {
  return repeat(std::move(w), n, [](communicator& c, sixteen& in, sixteen& out) {
    return c.reduce_scatter(in, std::span<int>(out).first(8), sum);
  });
}
inline task<> all_to_alls(communicator w, int n) {
  return repeat(std::move(w), n,
                [](communicator& c, sixteen& in, sixteen& out) { return c.all_to_all(in, out); });
}
inline task<> scans(communicator w, int n) {
  return repeat(std::move(w), n,
                [](communicator& c, sixteen& in, sixteen& out) { return c.scan(in, out, sum); });
}
inline task<> exclusive_scans(communicator w, int n) {
  return repeat(std::move(w), n,
                [](communicator& c, sixteen& in, sixteen& out) { return c.exclusive_scan(in, out, sum); });
}

constexpr std::array<std::size_t, 2> uneven_counts = {6, 10};
inline auto part_of(const communicator& c, sixteen& all) {
  return std::span(all).first(uneven_counts[static_cast<std::size_t>(c.rank())]);
}
inline task<> uneven_gathers(communicator w, int n) {
  return repeat(std::move(w), n, [](communicator& c, sixteen& in, sixteen& out) {
    return c.gather_v(part_of(c, in), out, uneven_counts, 1);
  });
}
inline task<> uneven_scatters(communicator w, int n) {
  return repeat(std::move(w), n, [](communicator& c, sixteen& in, sixteen& out) {
    return c.scatter_v(in, uneven_counts, part_of(c, out), 0);
  });
}
inline task<> uneven_all_gathers(communicator w, int n) {
  return repeat(std::move(w), n, [](communicator& c, sixteen& in, sixteen& out) {
    return c.all_gather_v(part_of(c, in), out, uneven_counts);
  });
}
inline task<> uneven_reduce_scatters(communicator w, int n) {
  return repeat(std::move(w), n, [](communicator& c, sixteen& in, sixteen& out) {
    return c.reduce_scatter_v(in, uneven_counts, part_of(c, out), sum);
  });
}
inline task<> uneven_all_to_alls(communicator w, int n) {
  static constexpr std::array<std::array<std::size_t, 2>, 2> moved = {{{6, 10}, {10, 6}}};
  return repeat(std::move(w), n, [](communicator& c, sixteen& in, sixteen& out) {
    const auto& mine = moved[static_cast<std::size_t>(c.rank())];
    return c.all_to_all_v(in, mine, out, mine);
  });
}
inline task<> lists(communicator w, int n) {
  return repeat(std::move(w), n, [](communicator& c, sixteen& in, sixteen& out) {
    static thread_local std::array<std::span<int>, 2> pieces;
    pieces = {std::span(in).first(3), std::span(out)};
    return c.all_reduce(pieces, max);
  });
}

// The send completes at once, so that no operation has to be stopped.
inline task<> first_of_two(communicator world, int times) {
  for (int i = 0; i < times; ++i) {
    int x = 0;
    const auto first = co_await when_any(world.send(i, other_of(world)), sleep_for(std::chrono::hours(1)));
    co_await world.recv(x, other_of(world));
    TUTTI_EXPECT(first.index() == 0 && x == i);
  }
}
inline task<> computations(communicator, int times) {
  for (int i = 0; i < times; ++i) {
    const int twice = co_await compute([i] { return 2 * i; });
    TUTTI_EXPECT(twice == 2 * i);
  }
}
inline task<> prepared_reductions(communicator world, int times) {
  int most = 0;
  const auto reducing = co_await prepare(world.all_reduce(most, max));
  for (int i = 0; i < times; ++i) {
    most = i + world.rank();
    co_await reducing();
    TUTTI_EXPECT(most == i + 1);
  }
}
inline task<> prepared_messages(communicator world, int times) {
  int out = 0, in = 0;
  const auto sending = co_await prepare(world.send(out, other_of(world)));
  const auto receiving = co_await prepare(world.recv(in, other_of(world)));
  for (int i = 0; i < times; ++i) {
    out = i;
    request running = start(sending());
    co_await receiving();
    co_await running;
    TUTTI_EXPECT(in == i);
  }
}

// Repeats its operation; long messages and chunks a tenth as often.
using program = task<> (*)(communicator, int);
struct named_program {
  const char* name;
  program body;
};
constexpr named_program programs[] = {
    {"send, recv", &send_and_receive},
    {"isend, irecv", &requests},
    {"dropped irecv", &dropped_requests},
    {"probe, recv", &probes},
    {"matched_probe, recv", &matched_probes},
    {"300 kB, both ways", &long_messages},
    {"60 kB, before their receives", &early_messages},
    {"barrier", &barriers},
    {"broadcast", &broadcasts},
    {"reduce", &reduces},
    {"all_reduce", &reductions},
    {"scatter", &scatters},
    {"gather", &gathers},
    {"all_gather", &all_gathers},
    {"reduce_scatter", &reduce_scatters},
    {"all_to_all", &all_to_alls},
    {"scan", &scans},
    {"exclusive_scan", &exclusive_scans},
    {"gather_v", &uneven_gathers},
    {"scatter_v", &uneven_scatters},
    {"all_gather_v", &uneven_all_gathers},
    {"reduce_scatter_v", &uneven_reduce_scatters},
    {"all_to_all_v", &uneven_all_to_alls},
    {"all_reduce of a list", &lists},
    {"all_reduce_chunks", &chunked},
    {"prepared all_reduce", &prepared_reductions},
    {"prepared send, recv", &prepared_messages},
    {"child task", &children},
    {"when_all of 3", &joins},
    {"when_any of 2", &first_of_two},
    {"compute", &computations},
    {"scope of 2", &scopes},
    {"with_timeout, twice", &with_timeouts},
    {"as_result", &results},
};

}  // namespace tutti::test

// SPDX-License-Identifier: Apache-2.0
// Ranks that call different collectives all get an error that names both calls.
#include "comm/communicator_state.hpp"
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

using namespace tutti;
using namespace tutti::test;

namespace {

struct buffers {
  std::vector<float> floats = std::vector<float>(200'001, 1);
  std::vector<std::int32_t> ints = std::vector<std::int32_t>(200'001, 1);
  std::span<float> f(std::size_t n) { return std::span(floats).first(n); }
  std::span<std::int32_t> i(std::size_t n) { return std::span(ints).first(n); }
};

struct kind_of_call {
  std::string words;  // as in the error
  std::function<operation<>(const communicator&, buffers&)> call;
};

const kind_of_call a_barrier{"barrier()", [](const communicator& c, buffers&) { return c.barrier(); }};
kind_of_call reducing(const char* words, std::size_t n) {
  return {words, [n](const communicator& c, buffers& b) { return c.all_reduce(b.f(n), sum); }};
}
kind_of_call sending_to_all(const char* words, std::size_t n, int root) {
  return {words, [n, root](const communicator& c, buffers& b) { return c.broadcast(b.f(n), root); }};
}
const kind_of_call maximum{"all_reduce(3 elements of float, max", [](const communicator& c, buffers& b) {
                             return c.all_reduce(b.f(3), tutti::max);
                           }};
const kind_of_call integers{"all_reduce(3 elements of int32, sum",
                            [](const communicator& c, buffers& b) { return c.all_reduce(b.i(3), sum); }};
// Elements without arithmetic, of N bytes.
template <std::size_t N>
struct record {
  std::array<char, N> content;
};
template <std::size_t N>
kind_of_call telling_all(const char* words, std::size_t n) {
  return {words, [n](const communicator& c, buffers& b) {
            return c.broadcast(std::span(reinterpret_cast<record<N>*>(b.floats.data()), n), 0);
          }};
}
template <std::size_t N>
kind_of_call choosing(const char* words, std::size_t n) {
  return {words, [n](const communicator& c, buffers& b) {
            const auto first = [](const record<N>& one, const record<N>&) { return one; };
            return c.all_reduce(std::span(reinterpret_cast<record<N>*>(b.floats.data()), n), first);
          }};
}
const kind_of_call three = reducing("all_reduce(3 elements of float, sum", 3);

struct pair {
  kind_of_call most;
  kind_of_call odd;
};

const std::vector<pair>& pairs() {
  static const std::vector<pair> all = {
      {three, a_barrier},
      {a_barrier, three},
      {three, reducing("all_reduce(4 elements of float, sum", 4)},
      {reducing("all_reduce(100000 elements", 100'000), reducing("all_reduce(100001 elements", 100'001)},
      {reducing("all_reduce(4 elements", 4), reducing("all_reduce(200000 elements", 200'000)},
      {three, reducing("all_reduce(0 elements of float", 0)},
      {three, maximum},
      {three, integers},
      {three, sending_to_all("broadcast(3 elements of float, root 0)", 3, 0)},
      {sending_to_all("broadcast(3 elements", 3, 0), sending_to_all("broadcast(5 elements", 5, 0)},
      {sending_to_all("broadcast(70000 elements", 70'000, 0),
       sending_to_all("broadcast(90000 elements", 90'000, 0)},
      {sending_to_all("broadcast(3 elements of float, root 0)", 3, 0),
       sending_to_all("broadcast(3 elements of float, root 1)", 3, 1)},
      {sending_to_all("broadcast(70000 elements of float, root 0)", 70'000, 0),
       sending_to_all("broadcast(70000 elements of float, root 1)", 70'000, 1)},
      {telling_all<8>("broadcast(3 elements of 8 bytes, root 0)", 3),
       telling_all<7>("broadcast(3 elements of 7 bytes, root 0)", 3)},
      {telling_all<8>("broadcast(90000 elements of 8 bytes, root 0)", 90'000),
       telling_all<7>("broadcast(90000 elements of 7 bytes, root 0)", 90'000)},
      {choosing<8>("all_reduce(90000 elements of bytes, callable", 90'000),
       choosing<7>("all_reduce(90000 elements of bytes, callable", 90'000)},
      {telling_all<1>("broadcast(3 elements of 1 byte, root 0)", 3),
       telling_all<2>("broadcast(3 elements of 2 bytes, root 0)", 3)},
      {telling_all<80'000>("broadcast(3 elements of 32768 or more bytes, size with hash", 3),
       telling_all<70'000>("broadcast(3 elements of 32768 or more bytes, size with hash", 3)},
  };
  return all;
}

// If all ranks wait for one another, no frame exists that could be compared: these time out.
bool nothing_to_compare(const pair& calls, int ranks, int odd_one) {
  const auto has = [&calls](const char* words) { return calls.odd.words.find(words) != std::string::npos; };
  // Rank 0 waits for rank 1, and all others wait for rank 0.
  if (has("root 1")) return odd_one == 0;
  // Rank 0 waits for rank 1's contribution to a small all_reduce, and sends nothing to it before.
  if (calls.most.words == three.words && (has("(0 elements") || has("root 0")))
    return ranks == 3 && odd_one == 1;
  return false;
}

// A rank whose part of the collective was complete gets the error in a barrier that follows: in the second at the latest,
// for the first completes where all have reached it before one of them compares.
task<> differ(communicator world, const pair* calls, int odd_one) {
  buffers data;
  const kind_of_call& mine = world.rank() == odd_one ? calls->odd : calls->most;
  co_await mine.call(world, data);
  for (int i = 0; i < 2; ++i) co_await world.barrier();
}

void expect_mismatch(const std::vector<failure>& failures, const std::string& one, const std::string& other) {
  bool named = false;
  std::string texts;
  for (const failure& f : failures) {
    CAPTURE(f.text);
    CHECK(f.code != errc::success);
    CHECK(f.code != errc::timed_out);
    // A rank that was about to connect to one that has failed and left may see that first.
    if (f.code == errc::peer_left || f.code == errc::peer_failed) continue;
    CHECK((f.code == errc::mismatch || f.code == errc::communicator_failed));
    CHECK(f.says("all ranks must call the same collectives in the same order"));
    named |= f.says(one) && f.says(other);
    texts += f.text + "\n";
  }
  CAPTURE(texts);
  CHECK(named);
}

// The sender is far ahead when the other ranks reach the call that differs. This uses messages, because a
// segment would make it wait.
task<> differ_far_behind(communicator world) {
  constexpr int ahead = 300;
  int never = 0;
  for (int i = 0; i < ahead; ++i) {
    std::vector<int> data(i == 100 && world.rank() == 0 ? 2 : 3, 1);
    if (i == 0 && world.rank() != 0) co_await world.recv(never, 0, 1);
    co_await world.broadcast(data, 0).with(algorithm::binomial);
    if (i + 1 == ahead && world.rank() == 0)
      for (int r = 1; r < world.size(); ++r) co_await world.send(i, r, 1);
  }
  co_await world.barrier();
}

// All ranks call the same collectives, far apart in time.
task<> agree_far_apart(communicator world) {
  constexpr int ahead = 1000;
  for (int i = 0; i < ahead; ++i) {
    std::vector<int> data(static_cast<std::size_t>(i % 7), world.rank() == 0 ? i : -1);
    if (i == 0 && world.rank() != 0) {
      int go = 0;
      co_await world.recv(go, 0, 1);
    }
    co_await world.broadcast(data, 0).with(algorithm::binomial);
    for (const int x : data) TUTTI_EXPECT(x == i);
    if (i + 1 == ahead && world.rank() == 0)
      for (int r = 1; r < world.size(); ++r) co_await world.send(i, r, 1);
  }
  co_await world.barrier();
}

// ---- the result of the differing call on each rank, and of later calls ----

struct outcome {
  failure first;
  failure later;  // of the barriers after a success
};

using differing_call = task<failure> (*)(communicator c, bool odd);

// On a communicator of its own, so that no rank leaves before all have seen the end.
task<> go_on(communicator world, differing_call call, int odd_one, std::vector<outcome>* all) {
  communicator part = co_await world.duplicate();
  outcome& mine = (*all)[static_cast<std::size_t>(world.rank())];
  mine.first = co_await call(part, world.rank() == odd_one);
  mine.later = describe({});
  for (int i = 0; i < 100 && mine.first.code == errc::success && mine.later.code == errc::success; ++i)
    mine.later = co_await failure_in(part.barrier());
  co_await world.barrier();
}
std::vector<outcome> outcomes_of(int ranks, const std::string& transport, differing_call call, int odd_one) {
  std::vector<outcome> all(static_cast<std::size_t>(ranks));
  run_local(ranks, over(transport),
            [&](communicator world) { return go_on(std::move(world), call, odd_one, &all); });
  return all;
}

task<failure> different_lists(communicator c, bool odd) {
  std::vector<int> list(static_cast<std::size_t>(c.size()));
  std::iota(list.begin(), list.end(), 0);
  if (odd) std::swap(list[0], list[1]);
  failure f = co_await failure_in(c.group(list));
  co_return f;
}
task<failure> group_or_duplicate(communicator c, bool odd) {
  std::vector<int> list(static_cast<std::size_t>(c.size()));
  std::iota(list.begin(), list.end(), 0);
  failure f;
  if (odd) {
    f = co_await failure_in(c.duplicate());
  } else {
    f = co_await failure_in(c.group(list));
  }
  co_return f;
}
task<failure> split_or_duplicate(communicator c, bool odd) {
  failure f;
  if (odd) {
    f = co_await failure_in(c.duplicate());
  } else {
    f = co_await failure_in(c.split(0, 0));
  }
  co_return f;
}
task<failure> duplicate_or_barrier(communicator c, bool odd) {
  failure f;
  if (odd) {
    f = co_await failure_in(c.barrier());
  } else {
    f = co_await failure_in(c.duplicate());
  }
  co_return f;
}

// Two lambdas of one function, which differ only in their type.
task<failure> add_or_multiply(communicator c, std::size_t n, bool odd) {
  const auto add = [](float a, float b) { return a + b; };
  const auto multiply = [](float a, float b) { return a * b; };
  std::vector<float> x(n, 2);
  failure f;
  if (odd) {
    f = co_await failure_in(c.all_reduce(x, multiply));
  } else {
    f = co_await failure_in(c.all_reduce(x, add));
  }
  co_return f;
}
task<failure> few_elements(communicator c, bool odd) { return add_or_multiply(std::move(c), 3, odd); }
task<failure> many_elements(communicator c, bool odd) { return add_or_multiply(std::move(c), 100'000, odd); }

task<failure> own_root(communicator c, bool) {
  std::vector<int> x(3, 1);
  failure f = co_await failure_in(c.broadcast(x, c.rank()));
  co_return f;
}
task<failure> own_root_in_shared_memory(communicator c, bool) {
  std::vector<int> x(3, 1);
  failure f = co_await failure_in(c.all_reduce(x, sum));  // makes the segment
  if (f.code != errc::success) co_return f;               // other ranks were faster
  f = co_await failure_in(c.broadcast(x, c.rank()).with(algorithm::shared_memory));
  co_return f;
}
task<failure> root_elsewhere_in_shared_memory(communicator c, bool) {
  std::vector<int> x(3, 1), sums(3, 0);
  failure f = co_await failure_in(c.all_reduce(x, sum));
  if (f.code != errc::success) co_return f;
  f = co_await failure_in(c.reduce(x, sums, sum, (c.rank() + 1) % c.size()).with(algorithm::shared_memory));
  co_return f;
}
task<failure> unequal_gather(communicator c, bool odd) {
  std::vector<int> x(odd ? 4 : 3, 1), all(x.size() * static_cast<std::size_t>(c.size()));
  failure f = co_await failure_in(c.gather(x, all, 0));
  co_return f;
}
task<failure> unequal_scatter(communicator c, bool odd) {
  std::vector<int> x(odd ? 4 : 3, 1), all(x.size() * static_cast<std::size_t>(c.size()));
  failure f = co_await failure_in(c.scatter(all, x, 0));
  co_return f;
}

// Which algorithm is not in a call's words, unless nothing else differs.
task<failure> another_algorithm(communicator c, bool odd) {
  std::vector<float> x(3, 1), all(x.size() * static_cast<std::size_t>(c.size()));
  failure f = co_await failure_in(c.all_gather(x, all).with(odd ? algorithm::bruck : algorithm::ring));
  co_return f;
}

task<failure> unequal_blocks(communicator c, bool odd) {
  const auto ranks = static_cast<std::size_t>(c.size());
  std::vector<std::size_t> given(ranks, 2), expected(ranks, 2);
  if (odd) expected[static_cast<std::size_t>((c.rank() + 1) % c.size())] = 3;
  std::vector<int> in(2 * ranks, 1), out(2 * ranks + (odd ? 1 : 0));
  failure f = co_await failure_in(c.all_to_all_v(in, given, out, expected));
  co_return f;
}

}  // namespace

TEST_CASE("mismatch: in calls that make communicators, no rank gets one") {
  for (const std::string& transport : transports)
    for (const differing_call call :
         {&different_lists, &group_or_duplicate, &split_or_duplicate, &duplicate_or_barrier})
      for (const int ranks : {2, 3, 4, 5})
        for (int odd_one = 0; odd_one < ranks; ++odd_one) {
          CAPTURE(transport);
          CAPTURE(ranks);
          CAPTURE(odd_one);
          for (const outcome& o : outcomes_of(ranks, transport, call, odd_one)) {
            CAPTURE(o.first.text);
            CHECK(o.first.code == errc::mismatch);
          }
        }
}

TEST_CASE("mismatch: callables of different types are different reductions") {
  for (const std::string& transport : transports)
    for (const differing_call call : {&few_elements, &many_elements})
      for (const int odd_one : {0, 1, 2}) {
        CAPTURE(transport);
        CAPTURE(odd_one);
        for (const outcome& o : outcomes_of(3, transport, call, odd_one)) {
          CAPTURE(o.first.text);
          CHECK(o.first.code == errc::mismatch);
          CHECK(o.first.says("callable of type"));
        }
      }
}

TEST_CASE("mismatch: a rank that is done early may succeed, and its next call fails") {
  for (const std::string& transport : transports)
    for (const differing_call call : {&own_root, &own_root_in_shared_memory, &root_elsewhere_in_shared_memory,
                                      &unequal_gather, &unequal_scatter})
      for (int run = 0; run < 5; ++run)
        for (const int odd_one : {0, 1, 2}) {
          const bool in_shared_memory =
              call == &own_root_in_shared_memory || call == &root_elsewhere_in_shared_memory;
          if (in_shared_memory && transport != "shm") continue;
          CAPTURE(transport);
          CAPTURE(odd_one);
          for (const outcome& o : outcomes_of(3, transport, call, odd_one)) {
            CAPTURE(o.first.text);
            CAPTURE(o.later.text);
            CHECK((o.first.code == errc::mismatch || o.later.code == errc::mismatch));
          }
        }
}

TEST_CASE("mismatch: in the algorithm alone, the error names both, and what chooses them") {
  for (const std::string& transport : transports)
    for (const int odd_one : {0, 1, 2}) {
      CAPTURE(transport);
      CAPTURE(odd_one);
      for (const outcome& o : outcomes_of(3, transport, &another_algorithm, odd_one)) {
        CAPTURE(o.first.text);
        CHECK(o.first.code == errc::mismatch);
        CHECK(o.first.says("all_gather(3 elements of float) by ring"));
        CHECK(o.first.says("all_gather(3 elements of float) by bruck"));
        CHECK(o.first.says("TUTTI_ALGORITHMS"));
      }
    }
}

TEST_CASE("mismatch: all ranks name the rank with a different count") {
  for (const std::string& transport : transports)
    for (const int odd_one : {0, 1, 2}) {
      CAPTURE(transport);
      CAPTURE(odd_one);
      const std::string sender = "rank " + std::to_string((odd_one + 1) % 3) + " (";
      const std::string receiver = "where rank " + std::to_string(odd_one) + " (";
      for (const outcome& o : outcomes_of(3, transport, &unequal_blocks, odd_one)) {
        const failure& f = o.first.code == errc::success ? o.later : o.first;
        CAPTURE(f.text);
        CHECK(f.code == errc::mismatch);
        CHECK(f.says(sender));
        CHECK(f.says(receiver));
      }
    }
}

TEST_CASE("mismatch: every rank fails, and its error names both calls") {
  for (const std::string& transport : transports) {
    for (const int ranks : {2, 3, 4}) {
      for (const pair& calls : pairs()) {
        for (int odd_one = 0; odd_one < ranks; ++odd_one) {
          if (nothing_to_compare(calls, ranks, odd_one)) continue;
          CAPTURE(transport);
          CAPTURE(ranks);
          CAPTURE(odd_one);
          CAPTURE(calls.most.words);
          CAPTURE(calls.odd.words);
          const auto main = [&calls, odd_one](communicator world) {
            return differ(std::move(world), &calls, odd_one);
          };
          expect_mismatch(failures_of(ranks, over(transport), main), calls.most.words, calls.odd.words);
        }
      }
    }
  }
}

// Rank 0's message may come before rank 1 has the communicator, and rank 1 receives none.
task<> one_element_and_none(communicator world) {
  for (int i = 0; i < 30; ++i) {
    communicator fresh = co_await world.duplicate();
    std::vector<int> in(world.rank() == 0 ? 1 : 0), out(in.size());
    const failure first = co_await failure_in(fresh.gather(in, out, 1));
    const failure second = co_await failure_in(fresh.barrier());
    int token = 0;
    const int other = 1 - world.rank();
    co_await world.send(token, other);
    co_await world.recv(token, other);  // all messages sent before have come
    const failure third = co_await failure_in(fresh.barrier());
    TUTTI_EXPECT(
        (first.code == errc::mismatch || second.code == errc::mismatch || third.code == errc::mismatch));
  }
}
TEST_CASE("mismatch: detected in the first call of a new communicator if one rank has no elements") {
  for (const std::string& transport : transports) {
    CAPTURE(transport);
    CHECK_NOTHROW(run_local(2, over(transport), one_element_and_none));
  }
}

// A broadcast ends on its root at once, unless the other rank's call has come before.
task<> compares_last_call(communicator world, bool differ, int calls_before) {
  communicator c = co_await world.duplicate();
  for (int i = 0; i < calls_before; ++i) co_await c.barrier();  // 20: over shared memory
  std::vector<float> data(4);
  const failure here = co_await failure_in(c.broadcast(data, differ ? world.rank() : 0));
  TUTTI_EXPECT(here.code == errc::success || (differ && here.code == errc::mismatch));
  const detail::communicator_ref last = detail::reference_to(c);
  co_await last->progress().compare_last(core::clock::now() + std::chrono::seconds(30));
  const failure next = co_await failure_in(c.barrier());
  const failure& told = here.code ? here : next;
  if (!differ) TUTTI_EXPECT(told.code == errc::success);
  if (differ) TUTTI_EXPECT(told.says("root 0"));
  if (differ) TUTTI_EXPECT(told.says("root 1"));
}
TEST_CASE("mismatch: found by comparing the last call, which nothing waits for") {
  for (const std::string& transport : transports)
    for (const bool differ : {false, true})
      for (const int calls_before : {0, 20}) {
        CAPTURE(transport);
        CAPTURE(differ);
        CAPTURE(calls_before);
        CHECK_NOTHROW(run_local(2, over(transport), [=](communicator world) {
          return compares_last_call(std::move(world), differ, calls_before);
        }));
      }
}

TEST_CASE("mismatch: also detected if one rank is hundreds of collectives ahead") {
  for (const std::string& transport : transports) {
    CAPTURE(transport);
    expect_mismatch(failures_of(3, over(transport), differ_far_behind), "broadcast(2 elements",
                    "broadcast(3 elements");
  }
}

TEST_CASE("mismatch: ranks a thousand collectives apart that agree get no error") {
  for (const std::string& transport : transports) {
    CAPTURE(transport);
    CHECK_NOTHROW(run_local(3, over(transport), agree_far_apart));
  }
}

// SPDX-License-Identifier: Apache-2.0
// Objects in collectives: round trips, limits, and malformed bytes.
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <vector>

using namespace tutti;
using namespace tutti::test;

namespace {

struct experiment {  // a user's type
  std::string name;
  std::map<std::string, std::vector<double>> series;
  std::optional<std::string> note;
  int epoch = 0;
  bool operator==(const experiment&) const = default;
};
// The program's own: its serializer counts.
[[maybe_unused]] std::vector<std::byte> to_bytes(const experiment&) { return {}; }

experiment experiment_of(int rank) {
  experiment e;
  e.name = "rank " + std::to_string(rank);
  e.series["loss"] = std::vector<double>(static_cast<std::size_t>(rank * 100), 0.5);
  e.series["empty"] = {};
  if (rank % 2 == 1) e.note = "odd";
  e.epoch = rank;
  return e;
}

struct nothing {
  bool operator==(const nothing&) const = default;
};

}  // namespace

template <>
struct tutti::serializer<nothing> {
  static void write(const nothing&, object_writer&) {}
  static nothing read(object_reader&) { return {}; }
};

template <>
struct tutti::serializer<experiment> {
  static void write(const experiment& e, object_writer& to) {
    to.value(e.name);
    to.value(e.series);
    to.value(e.note);
    to.value(e.epoch);
  }
  static experiment read(object_reader& from) {
    experiment e;
    e.name = from.value<std::string>();
    e.series = from.value<std::map<std::string, std::vector<double>>>();
    e.note = from.value<std::optional<std::string>>();
    e.epoch = from.value<int>();
    return e;
  }
};

namespace {

task<> there_and_back(communicator world) {
  const int root = world.size() - 1;
  const experiment from_root = co_await broadcast_object(world, experiment_of(world.rank()), root);
  TUTTI_EXPECT(from_root == experiment_of(root));
  const std::vector<experiment> all = co_await all_gather_object(world, experiment_of(world.rank()));
  TUTTI_EXPECT(all.size() == static_cast<std::size_t>(world.size()));
  for (int r = 0; r < world.size(); ++r) TUTTI_EXPECT(all[static_cast<std::size_t>(r)] == experiment_of(r));
  const std::vector<std::string> words =
      co_await gather_object(world, std::string(static_cast<std::size_t>(world.rank()), 'x'), 0);
  TUTTI_EXPECT(words.size() == (world.rank() == 0 ? static_cast<std::size_t>(world.size()) : 0));
  for (std::size_t r = 0; r < words.size(); ++r) TUTTI_EXPECT(words[r] == std::string(r, 'x'));
}

task<failure> failure_of_broadcast(communicator world, std::string text, std::size_t limit) {
  std::exception_ptr caught;
  try {
    co_await broadcast_object(world, std::move(text), 0, limit);
  } catch (...) {
    caught = std::current_exception();
  }
  co_return describe(caught);
}

task<> limited(communicator world) {
  const failure f = co_await failure_of_broadcast(world, std::string(1000, 'x'), 500);
  TUTTI_EXPECT(f.code == errc::invalid_argument);
  TUTTI_EXPECT(f.text.find("1008 bytes") != std::string::npos);
  co_await world.barrier();  // only the call has failed
}

errc refusal(const std::vector<std::byte>& bytes) {
  try {
    detail::from_bytes<std::vector<std::string>>(bytes);
  } catch (const error& e) {
    return static_cast<errc>(e.code().value());
  }
  return errc::success;
}

}  // namespace

TEST_CASE("objects: broadcast, all_gather and gather of a user's type") {
  for (const std::string& transport : transports)
    for (const int ranks : {1, 2, 4}) CHECK_NOTHROW(run_local(ranks, over(transport), there_and_back));
}
TEST_CASE("objects: containers of the standard library keep their elements") {
  const auto returns = [](const auto& object) {
    return detail::from_bytes<std::remove_cvref_t<decltype(object)>>(detail::to_bytes(object)) == object;
  };
  CHECK(returns(std::vector<bool>{true, false, true}));
  CHECK(returns(std::deque<std::string>{"a", "", "c"}));
  CHECK(returns(std::list<std::vector<int>>{{1, 2}, {}}));
  CHECK(returns(std::set<int>{3, 1, 2}));
  CHECK(returns(std::unordered_map<std::string, std::set<int>>{{"one", {1}}, {"none", {}}}));
  CHECK(returns(std::multimap<int, std::string>{{1, "a"}, {1, "b"}}));
  CHECK(returns(std::u16string(u"wide")));
  CHECK(returns(shared_vector<double>{1.5, 2.5}));
  CHECK(returns(std::vector<nothing>(3)));
  CHECK(returns(std::list<std::vector<nothing>>{std::vector<nothing>(2), {}}));
}
TEST_CASE("objects: one beyond the limit is an error on all ranks") {
  CHECK_NOTHROW(run_local(3, over("shm"), limited));
}

TEST_CASE("objects: any bytes of a faulty peer end in an error") {
  const std::vector<std::string> words = {"one", "", "three"};
  const std::vector<std::byte> good = detail::to_bytes(words);
  CHECK(detail::from_bytes<std::vector<std::string>>(good) == words);
  for (std::size_t length = 0; length < good.size(); ++length)
    CHECK(refusal(std::vector<std::byte>(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(length))) ==
          errc::protocol);
  std::vector<std::byte> longer = good;
  longer.push_back(std::byte{0});
  CHECK(refusal(longer) == errc::protocol);
  random_numbers numbers(3);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::byte> bad = good;
    bad[numbers.below(bad.size())] = static_cast<std::byte>(numbers.next());
    refusal(bad);  // no crash, and bounded memory
  }
}
TEST_CASE("objects: a number of elements without bytes is refused") {
  std::vector<std::byte> many = detail::to_bytes(std::vector<nothing>(3));
  many[1] = std::byte{1};  // 259
  CHECK_THROWS_WITH_AS(detail::from_bytes<std::vector<nothing>>(many),
                       doctest::Contains("bytes of an object"), error);
}

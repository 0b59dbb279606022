// SPDX-License-Identifier: Apache-2.0
#include "base/intrusive_list.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <cstddef>
#include <list>
#include <memory>
#include <random>
#include <type_traits>
#include <vector>

using tutti::base::intrusive_list;
using tutti::base::list_hook;

namespace {

struct by_age;
struct by_size;
struct element : list_hook<by_age>, list_hook<by_size> {
  explicit element(int n = 0) : number(n) {}
  int number;
  list_hook<by_age>& age() { return *this; }
  list_hook<by_size>& size() { return *this; }
};
using age_list = intrusive_list<element, by_age>;
using size_list = intrusive_list<element, by_size>;

static_assert(!std::is_copy_constructible_v<element>);
static_assert(!std::is_copy_constructible_v<age_list>);

template <class List>
std::vector<int> numbers(const List& list) {
  std::vector<int> all;
  for (const element* e = list.front(); e != nullptr; e = list.after(*e)) all.push_back(e->number);
  return all;
}

using ints = std::vector<int>;

}  // namespace

TEST_CASE("a list keeps the order of pushes at both ends") {
  element a(1), b(2), c(3);
  age_list list;
  CHECK(list.empty());
  CHECK(list.front() == nullptr);
  CHECK(list.pop_front() == nullptr);
  list.push_back(b);
  list.push_back(c);
  list.push_front(a);
  CHECK_FALSE(list.empty());
  CHECK(numbers(list) == ints{1, 2, 3});
  CHECK(list.pop_front() == &a);
  CHECK_FALSE(a.age().linked());
  CHECK(numbers(list) == ints{2, 3});
}

TEST_CASE("for_each visits all in order, also those that it takes out") {
  element a(1), b(2), c(3);
  age_list list;
  for (element* const e : {&a, &b, &c}) list.push_back(*e);
  ints visited;
  list.for_each([&](element& e) {
    visited.push_back(e.number);
    if (e.number != 2) e.age().unlink();
  });
  CHECK(visited == ints{1, 2, 3});
  CHECK(numbers(list) == ints{2});
}

TEST_CASE("an element unlinks itself from any position, and a second unlink does nothing") {
  element a(1), b(2), c(3);
  age_list list;
  for (element* e : {&a, &b, &c}) list.push_back(*e);
  b.age().unlink();
  CHECK(numbers(list) == ints{1, 3});
  b.age().unlink();
  c.age().unlink();
  a.age().unlink();
  CHECK(list.empty());
  list.push_back(b);
  CHECK(numbers(list) == ints{2});
}

TEST_CASE("an element may be in one list per hook") {
  element a(1), b(2);
  age_list ages;
  size_list sizes;
  ages.push_back(a);
  ages.push_back(b);
  sizes.push_back(b);
  sizes.push_back(a);
  a.age().unlink();
  CHECK(numbers(ages) == ints{2});
  CHECK(numbers(sizes) == ints{2, 1});
  CHECK(a.size().linked());
}

TEST_CASE("a destroyed list unlinks its elements") {
  element a(1), b(2);
  {
    age_list list;
    list.push_back(a);
    list.push_back(b);
  }
  CHECK_FALSE(a.age().linked());
  CHECK_FALSE(b.age().linked());
  age_list another;
  another.push_back(b);
  CHECK(numbers(another) == ints{2});
}

TEST_CASE("splicing appends all elements in order") {
  element a(1), b(2), c(3), d(4);
  age_list here, there;
  here.splice_back(there);
  CHECK(here.empty());
  there.push_back(c);
  there.push_back(d);
  here.splice_back(there);
  CHECK(there.empty());
  CHECK(numbers(here) == ints{3, 4});
  there.push_back(a);
  here.splice_back(there);
  there.push_back(b);
  here.splice_back(there);
  CHECK(numbers(here) == ints{3, 4, 1, 2});
  // Spliced elements unlink from their new list.
  c.age().unlink();
  b.age().unlink();
  CHECK(numbers(here) == ints{4, 1});
  CHECK(there.empty());
}

TEST_CASE("random changes give the same result as std::list") {
  std::mt19937 random(20240607);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  for (int run = 0; run < 20; ++run) {
    std::vector<std::unique_ptr<element>> elements;
    for (int i = 0; i < 30; ++i) elements.push_back(std::make_unique<element>(i));
    age_list lists[2];
    std::list<int> models[2];
    for (int step = 0; step < 500; ++step) {
      const std::size_t which = below(2);
      element& e = *elements[below(elements.size())];
      switch (below(5)) {
        case 0:
        case 1:
          e.age().unlink();
          for (auto& model : models) model.remove(e.number);
          if (below(2) == 0) {
            lists[which].push_back(e);
            models[which].push_back(e.number);
          } else {
            lists[which].push_front(e);
            models[which].push_front(e.number);
          }
          break;
        case 2:
          e.age().unlink();
          for (auto& model : models) model.remove(e.number);
          break;
        case 3: {
          const element* popped = lists[which].pop_front();
          REQUIRE((popped == nullptr) == models[which].empty());
          if (popped != nullptr) {
            REQUIRE(popped->number == models[which].front());
            models[which].pop_front();
          }
          break;
        }
        default:
          if (below(10) != 0) break;
          lists[which].splice_back(lists[1 - which]);
          models[which].splice(models[which].end(), models[1 - which]);
      }
      for (std::size_t i = 0; i < 2; ++i) {
        const ints all = numbers(lists[i]);
        REQUIRE(std::equal(all.begin(), all.end(), models[i].begin(), models[i].end()));
      }
    }
  }
}

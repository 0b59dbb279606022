// SPDX-License-Identifier: Apache-2.0
// The matching rules one by one.
#include "match/matcher.hpp"
#include "support/contains.hpp"

#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

namespace {

using tutti::match::any_source;
using tutti::match::any_tag;
using tutti::match::envelope;
using tutti::match::matcher;

struct receive : tutti::match::posted_receive {
  receive() = default;
  receive(std::uint32_t context, int source, int tag) { wanted = envelope{context, source, tag}; }
};

struct message : tutti::match::unexpected_message {
  message() = default;
  message(std::uint32_t context, int source, int tag) { from = envelope{context, source, tag}; }
};

// A message arrives and is kept if no receive matches.
receive* deliver(matcher& m, message& x) {
  auto* r = static_cast<receive*>(m.arrive(x.from));
  if (r == nullptr) m.keep(x);
  return r;
}

message* post(matcher& m, receive& r) { return static_cast<message*>(m.post(r)); }

}  // namespace

TEST_CASE("matcher: a posted receive matches its message") {
  receive r(0, 1, 7);
  matcher m;
  m.open_context(0, 4);
  CHECK(post(m, r) == nullptr);
  CHECK(r.posted());
  CHECK(m.posted_count() == 1);
  CHECK(m.arrive({0, 2, 7}) == nullptr);
  CHECK(m.arrive({0, 1, 8}) == nullptr);
  CHECK(m.arrive({0, 1, 7}) == &r);
  CHECK_FALSE(r.posted());
  CHECK(m.posted_count() == 0);
  CHECK(m.arrive({0, 1, 7}) == nullptr);
}

TEST_CASE("matcher: a message that came first waits for its receive") {
  message x(0, 1, 7);
  receive other_tag(0, 1, 8), other_source(0, 2, 7), right(0, 1, 7);
  matcher m;
  m.open_context(0, 4);
  CHECK(deliver(m, x) == nullptr);
  CHECK(x.queued());
  CHECK(m.unexpected_count() == 1);
  CHECK(post(m, other_tag) == nullptr);
  CHECK(post(m, other_source) == nullptr);
  CHECK(post(m, right) == &x);
  CHECK_FALSE(x.queued());
  CHECK_FALSE(right.posted());
  CHECK(m.unexpected_count() == 0);
}

TEST_CASE("matcher: messages of one sender with one tag do not overtake each other") {
  std::array<message, 3> x;
  std::array<receive, 3> r;
  matcher m;
  m.open_context(0, 2);
  SUBCASE("messages first") {
    for (auto& each : x) {
      each.from = {0, 1, 5};
      m.keep(each);
    }
    for (std::size_t i = 0; i < 3; ++i) {
      r[i].wanted = {0, i == 1 ? any_source : 1, i == 2 ? any_tag : 5};
      CHECK(post(m, r[i]) == &x[i]);
    }
  }
  SUBCASE("receives first") {
    for (std::size_t i = 0; i < 3; ++i) {
      r[i].wanted = {0, i == 1 ? any_source : 1, i == 2 ? any_tag : 5};
      CHECK(post(m, r[i]) == nullptr);
    }
    for (auto& each : r) CHECK(m.arrive({0, 1, 5}) == &each);
  }
}

TEST_CASE("matcher: messages and receives with different tags pass each other") {
  receive a(0, 0, 1), b(0, 0, 2), c(0, 0, any_tag);
  message x(0, 0, 1), y(0, 0, 2);
  matcher m;
  m.open_context(0, 1);
  SUBCASE("receives first") {
    post(m, a), post(m, b), post(m, c);
    CHECK(m.arrive({0, 0, 2}) == &b);
    CHECK(m.arrive({0, 0, 2}) == &c);
    CHECK(m.arrive({0, 0, 1}) == &a);
  }
  SUBCASE("messages first") {
    m.keep(x), m.keep(y);
    CHECK(post(m, b) == &y);
    CHECK(post(m, c) == &x);
  }
}

TEST_CASE("matcher: the receive posted first wins, with or without a named source") {
  receive named(0, 1, 5), any(0, any_source, 5), any_other_tag(0, any_source, 6),
      anything(0, any_source, any_tag);
  matcher m;
  m.open_context(0, 2);
  SUBCASE("any source first") {
    post(m, any), post(m, named);
    CHECK(m.arrive({0, 1, 5}) == &any);
    CHECK(m.arrive({0, 1, 5}) == &named);
  }
  SUBCASE("named source first") {
    post(m, named), post(m, any);
    CHECK(m.arrive({0, 1, 5}) == &named);
    CHECK(m.arrive({0, 1, 5}) == &any);
  }
  SUBCASE("an older receive from any source with another tag does not count") {
    post(m, any_other_tag), post(m, named), post(m, anything);
    CHECK(m.arrive({0, 1, 5}) == &named);
    CHECK(m.arrive({0, 1, 6}) == &any_other_tag);
    CHECK(m.arrive({0, 0, 9}) == &anything);
  }
}

TEST_CASE("matcher: a receive from any source takes messages in order of arrival") {
  message x(0, 2, 5), y(0, 0, 5), z(0, 1, 6);
  receive first(0, any_source, 5), second(0, any_source, any_tag), third(0, any_source, any_tag),
      fourth(0, 0, 5);
  matcher m;
  m.open_context(0, 3);
  m.keep(z), m.keep(x), m.keep(y);
  CHECK(post(m, first) == &x);
  CHECK(post(m, second) == &z);
  CHECK(post(m, third) == &y);
  CHECK(post(m, fourth) == nullptr);
}

TEST_CASE("matcher: contexts are isolated from each other") {
  receive low(0, any_source, any_tag), high(0xffffffffu, any_source, any_tag);
  message x(1, 0, 0);
  matcher m;
  for (const std::uint32_t context : {0u, 1u, 0xffffffffu}) m.open_context(context, 2);
  post(m, low), post(m, high);
  CHECK(deliver(m, x) == nullptr);
  CHECK(m.arrive({0xffffffffu, 1, 3}) == &high);
  CHECK(m.arrive({0, 1, 3}) == &low);
  CHECK(m.unexpected_count(0) == 0);
  CHECK(m.unexpected_count(1) == 1);
  CHECK(m.posted_count() == 0);
}

TEST_CASE("matcher: find shows what post would match, and leaves it") {
  message x(0, 1, 5), y(0, 0, 6);
  receive r(0, any_source, any_tag);
  matcher m;
  m.open_context(0, 2);
  CHECK(m.find({0, any_source, any_tag}) == nullptr);
  m.keep(x), m.keep(y);
  CHECK(m.find({0, any_source, any_tag}) == &x);
  CHECK(m.find({0, any_source, 6}) == &y);
  CHECK(m.find({0, 0, any_tag}) == &y);
  CHECK(m.find({0, 1, 6}) == nullptr);
  CHECK(m.find({0, 2, any_tag}) == nullptr);
  CHECK(m.find({9, any_source, any_tag}) == nullptr);
  CHECK(x.queued());
  CHECK(post(m, r) == &x);
}

TEST_CASE("matcher: cancelled receives and discarded messages are removed, their neighbours stay") {
  std::array<receive, 3> r;
  std::array<message, 3> x;
  matcher m;
  m.open_context(0, 2);
  for (auto& each : r) {
    each.wanted = {0, 1, 5};
    post(m, each);
  }
  m.cancel(r[1]);
  m.cancel(r[1]);
  CHECK_FALSE(r[1].posted());
  CHECK(m.arrive({0, 1, 5}) == &r[0]);
  CHECK(m.arrive({0, 1, 5}) == &r[2]);
  for (auto& each : x) {
    each.from = {0, 1, 5};
    m.keep(each);
  }
  m.discard(x[0]);
  m.discard(x[0]);
  CHECK_FALSE(x[0].queued());
  CHECK(m.unexpected_count() == 2);
  r[0].wanted = {0, any_source, 5};
  CHECK(post(m, r[0]) == &x[1]);
  CHECK(post(m, r[1]) == &x[2]);
}

TEST_CASE("matcher: messages for a context that opens later are delivered in order of arrival") {
  message a(9, 1, 5), b(9, 0, 5), c(9, 1, 5), other(8, 1, 5), gone(9, 1, 5), no_such_source(9, 2, 5);
  std::array<receive, 3> r;
  matcher m;
  CHECK(deliver(m, gone) == nullptr);
  CHECK(deliver(m, a) == nullptr);
  CHECK(deliver(m, other) == nullptr);
  CHECK(deliver(m, b) == nullptr);
  CHECK(deliver(m, no_such_source) == nullptr);
  m.discard(gone);
  CHECK(m.unexpected_count(9) == 3);
  CHECK(m.find({9, 1, 5}) == nullptr);
  m.open_context(9, 2);
  CHECK(deliver(m, c) == nullptr);
  r[0].wanted = {9, 1, any_tag};
  r[1].wanted = r[2].wanted = {9, any_source, 5};
  CHECK(post(m, r[0]) == &a);
  CHECK(post(m, r[1]) == &b);
  CHECK(post(m, r[2]) == &c);
  CHECK(other.queued());
  CHECK(no_such_source.queued());
  CHECK(m.unexpected_count() == 2);
}

TEST_CASE("matcher: a closed context can be reopened; messages that came in between are found") {
  message late(3, 0, 1);
  receive r(3, 0, 1);
  matcher m;
  m.open_context(3, 1);
  m.close_context(3);
  CHECK(m.arrive({3, 0, 1}) == nullptr);
  m.keep(late);
  SUBCASE("reopened") {
    m.open_context(3, 1);
    CHECK(post(m, r) == &late);
  }
  SUBCASE("discarded") {
    std::vector<const void*> taken;
    m.take_unexpected(3, [&](auto& x) { taken.push_back(&static_cast<message&>(x)); });
    CHECK(taken == std::vector<const void*>{&late});
    CHECK(m.unexpected_count() == 0);
  }
}

TEST_CASE("matcher: take_posted returns the receives of one source") {
  receive a(0, 1, 5), b(0, any_source, 5), c(0, 0, any_tag), d(0, 1, 6), other(1, 1, 5);
  matcher m;
  m.open_context(0, 2);
  m.open_context(1, 2);
  for (receive* r : {&a, &b, &c, &d, &other}) post(m, *r);
  std::vector<receive*> taken;
  const auto take = [&](tutti::match::posted_receive& r) {
    CHECK_FALSE(r.posted());
    taken.push_back(&static_cast<receive&>(r));
  };
  SUBCASE("whole context") {
    for (const int source : {0, 1, any_source}) m.take_posted(0, source, take);
    CHECK(taken == std::vector<receive*>{&c, &a, &d, &b});
    CHECK(m.posted_count(0) == 0);
    m.close_context(0);
  }
  SUBCASE("one source") {
    m.take_posted(0, 1, take);
    CHECK(taken == std::vector<receive*>{&a, &d});
  }
  SUBCASE("any source") {
    m.take_posted(0, any_source, take);
    CHECK(taken == std::vector<receive*>{&b});
  }
  SUBCASE("no such source, no such context") {
    m.take_posted(0, 2, take);
    m.take_posted(7, any_source, take);
    CHECK(taken.empty());
    CHECK(m.posted_count(0) == 4);
  }
  CHECK(m.posted_count(1) == 1);
}

TEST_CASE("matcher: the matcher can be used while receives or messages are taken") {
  std::array<receive, 3> r;
  std::array<message, 3> x;
  matcher m;
  m.open_context(0, 1);
  int calls = 0;
  SUBCASE("receives") {
    for (auto& each : r) {
      each.wanted = {0, 0, 5};
      post(m, each);
    }
    m.take_posted(0, 0, [&](tutti::match::posted_receive& taken) {
      ++calls;
      CHECK(m.arrive({0, 0, 5}) == nullptr);  // none of those taken matches any more
      m.cancel(r[1]);
      CHECK(m.post(taken) == nullptr);  // and none posted now is taken
      m.cancel(taken);
      if (&taken == &r[2]) m.close_context(0);
    });
  }
  SUBCASE("messages") {
    for (auto& each : x) {
      each.from = {0, 0, 5};
      m.keep(each);
    }
    m.take_unexpected(0, [&](tutti::match::unexpected_message& taken) {
      ++calls;
      CHECK(m.find({0, 0, 5}) == nullptr);
      CHECK(m.find({0, any_source, 5}) == nullptr);
      m.discard(x[1]);
      m.keep(taken);
      m.discard(taken);
      if (&taken == &x[2]) m.close_context(0);
    });
  }
  CHECK(calls == 2);
  m.open_context(0, 1);
}

TEST_CASE("matcher: its destructor unlinks all elements") {
  receive r(0, 0, 0);
  message x(0, 0, 1), y(5, 0, 1);
  {
    matcher m;
    m.open_context(0, 1);
    post(m, r);
    m.keep(x);
    m.keep(y);
  }
  CHECK_FALSE(r.posted());
  CHECK_FALSE(x.queued());
  CHECK_FALSE(y.queued());
}

namespace {

// What `f` writes to stderr before it aborts; empty if it returns.
template <class F>
std::string last_output(F f) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::signal(SIGABRT, SIG_DFL);  // doctest's handler would report a failure
    dup2(ends[1], STDERR_FILENO);
    f();
    _exit(0);
  }
  close(ends[1]);
  std::string words;
  char part[256];
  for (ssize_t n; (n = read(ends[0], part, sizeof part)) > 0;)
    words.append(part, static_cast<std::size_t>(n));
  close(ends[0]);
  int how = 0;
  REQUIRE(waitpid(child, &how, 0) == child);
  return WIFSIGNALED(how) && WTERMSIG(how) == SIGABRT ? words : std::string();
}

using tutti::test::contains;

}  // namespace

TEST_CASE("matcher: misuse aborts with its cause") {
  receive r(6, 0, 0);
  matcher m;
  m.open_context(6, 2);
  CHECK(contains(last_output([&] { m.open_context(6, 2); }), "context 6 is opened a second time"));
  CHECK(contains(last_output([&] { m.open_context(7, 0); }), "context 7 is opened with 0 sources"));
  CHECK(contains(last_output([&] { m.close_context(7); }), "context 7 is closed and was not open"));
  CHECK(contains(last_output([&] {
                   m.post(r);
                   m.close_context(6);
                 }),
                 "context 6 is closed with 1 receives and 0 messages in it"));
  CHECK(contains(last_output([&] {
                   r.wanted = {7, 0, 0};
                   m.post(r);
                 }),
                 "context 7 is not open and a receive is posted on it"));
  CHECK(contains(last_output([&] {
                   r.wanted = {6, 2, 0};
                   m.post(r);
                 }),
                 "context 6 has the sources 0 to 1, and a receive from 2 is posted on it"));
}

TEST_CASE("matcher: a re-queued message has its old place, for receives from its source and from any") {
  message one(0, 1, 7), two(0, 1, 7), other(0, 2, 7), later(0, 1, 7);
  receive first(0, 1, 7), second(0, any_source, 7), a(0, 1, 7), b(0, any_source, any_tag), c(0, 1, any_tag),
      d(0, 1, 7);
  matcher m;
  m.open_context(0, 3);
  CHECK(post(m, first) == nullptr);
  CHECK(deliver(m, one) == &first);
  CHECK(deliver(m, other) == nullptr);
  CHECK(post(m, second) == &other);
  CHECK(deliver(m, two) == nullptr);
  CHECK(deliver(m, later) == nullptr);
  other.arrival = second.arrival;
  CHECK(m.put_back(other) == nullptr);
  one.arrival = first.arrival;
  CHECK(m.put_back(one) == nullptr);
  CHECK(m.unexpected_count(0) == 4);
  CHECK(post(m, a) == &one);
  CHECK(post(m, b) == &other);
  CHECK(post(m, c) == &two);
  CHECK(post(m, d) == &later);
}

TEST_CASE("matcher: a re-queued message goes to the oldest receive that accepts it") {
  message one(0, 1, 7);
  receive first(0, 1, 7), wrong(0, 1, 8), any(0, any_source, 7), named(0, 1, 7);
  matcher m;
  m.open_context(0, 3);
  CHECK(post(m, first) == nullptr);
  CHECK(post(m, wrong) == nullptr);
  CHECK(post(m, any) == nullptr);
  CHECK(post(m, named) == nullptr);
  CHECK(deliver(m, one) == &first);
  one.arrival = first.arrival;
  CHECK(m.put_back(one) == &any);
  CHECK(any.arrival == first.arrival);
  CHECK(m.put_back(one) == &named);
  CHECK(m.put_back(one) == nullptr);
  CHECK(post(m, first) == &one);
  m.cancel(wrong);
}

TEST_CASE("matcher: a re-posted receive keeps its place in the order of posting") {
  message one(0, 1, 7), two(0, 1, 7), three(0, 1, 7), early(0, 1, 9);
  receive first(0, any_source, 7), second(0, 1, 7), third(0, any_source, 7), none(0, 1, 9);
  matcher m;
  m.open_context(0, 3);
  for (receive* r : {&first, &second, &third}) CHECK(post(m, *r) == nullptr);
  CHECK(deliver(m, one) == &first);
  CHECK(m.post_again(first) == nullptr);  // the sender has cancelled its message
  CHECK(deliver(m, two) == &first);
  CHECK(deliver(m, three) == &second);
  CHECK(m.post_again(second) == nullptr);
  CHECK(m.arrive({0, 1, 7}) == &second);
  // Messages that came meanwhile are searched first.
  CHECK(post(m, none) == nullptr);
  CHECK(m.arrive({0, 1, 9}) == &none);
  CHECK(deliver(m, early) == nullptr);
  CHECK(m.post_again(none) == &early);
  CHECK_FALSE(none.posted());
  m.cancel(third);
}

TEST_CASE("matcher: a message re-queued after its context was closed keeps its place") {
  message one(5, 0, 1), two(5, 0, 1);
  receive first(5, 0, 1), again(5, 0, 1), last(5, 0, 1);
  matcher m;
  m.open_context(5, 1);
  CHECK(post(m, first) == nullptr);
  CHECK(deliver(m, one) == &first);
  m.close_context(5);
  CHECK(deliver(m, two) == nullptr);
  one.arrival = first.arrival;
  CHECK(m.put_back(one) == nullptr);
  m.open_context(5, 1);
  CHECK(post(m, again) == &one);
  CHECK(post(m, last) == &two);
}

// Each of these would pass half of all others: minutes in place of a fraction of a second.
TEST_CASE("matcher: the opposite order of many receives or messages, and wildcards among them") {
  constexpr int count = 100'000;
  matcher m;
  m.open_context(0, 2);
  std::vector<receive> receives(count);
  std::vector<message> messages(count);
  const std::clock_t start = std::clock();
  for (int i = 0; i < count; ++i) {
    receives[static_cast<std::size_t>(i)].wanted = {0, i % 2 == 0 ? 1 : any_source, i};
    m.post(receives[static_cast<std::size_t>(i)]);
  }
  receive wildcard(0, 1, any_tag);
  CHECK(post(m, wildcard) == nullptr);
  for (int i = count - 1; i >= 0; --i)
    if (m.arrive({0, 1, i}) != &receives[static_cast<std::size_t>(i)]) FAIL("receive " << i);
  CHECK(m.arrive({0, 1, 0}) == &wildcard);
  for (int i = 0; i < count; ++i) {
    messages[static_cast<std::size_t>(i)].from = {0, 1, i};
    m.keep(messages[static_cast<std::size_t>(i)]);
  }
  CHECK(post(m, wildcard) == &messages[0]);
  for (int i = count - 1; i > 0; --i)
    if (m.post(receives[static_cast<std::size_t>(i)]) != &messages[static_cast<std::size_t>(i)])
      FAIL("message " << i);
  CHECK(m.unexpected_count() == 0);
  CHECK(m.posted_count() == 0);
  CHECK((std::clock() - start) / CLOCKS_PER_SEC < 20);
}

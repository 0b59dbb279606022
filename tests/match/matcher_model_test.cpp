// SPDX-License-Identifier: Apache-2.0
// Long random sequences on a matcher and on a model, which is two vectors with linear searches. In some,
// queues are long enough for an index.
#include "match/matcher.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace {

using tutti::match::any_source;
using tutti::match::any_tag;
using tutti::match::envelope;
using tutti::match::matcher;

struct receive : tutti::match::posted_receive {
  int id = -1;
};

struct message : tutti::match::unexpected_message {
  int id = -1;
};

// splitmix64: the same sequence from every standard library.
class random_source {
 public:
  explicit random_source(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  int below(int n) { return static_cast<int>(next() % static_cast<std::uint64_t>(n)); }
  bool chance(int percent) { return below(100) < percent; }

 private:
  std::uint64_t state_;
};

// Runs `f(seed)` for the seeds 1 to `count`, or only for TUTTI_TEST_SEED. `f` returns its error text.
template <class F>
void for_each_seed(std::uint64_t count, F f) {
  std::uint64_t first = 1;
  if (const char* chosen = std::getenv("TUTTI_TEST_SEED")) first = count = std::strtoull(chosen, nullptr, 10);
  for (std::uint64_t seed = first; seed <= count; ++seed) {
    const std::optional<std::string> wrong = f(seed);
    if (!wrong) continue;
    const std::string test = doctest::getContextOptions()->currentTest->m_name;
    FAIL(*wrong << "\nreplay this sequence alone: TUTTI_TEST_SEED=" << seed << " and --test-case='" << test
                << "'");
  }
}

constexpr std::array<std::uint32_t, 4> context_numbers{0, 1, 0x10000000, 0xffffffff};

class model {
 public:
  struct entry {
    int id;
    envelope e;
    std::uint64_t order;  // of posting or of arrival
  };
  bool is_open(std::uint32_t context) const { return size_of.contains(context); }
  bool inside(const envelope& e) const {
    const auto at = size_of.find(e.context);
    return at != size_of.end() && e.source < at->second;
  }
  static bool accepts(const envelope& wanted, const envelope& from) {
    return wanted.context == from.context && (wanted.source == any_source || wanted.source == from.source) &&
           (wanted.tag == any_tag || wanted.tag == from.tag);
  }
  // A matched receive and message; either may be re-queued.
  struct pair {
    int receive;
    envelope wanted;
    std::uint64_t posted;
    envelope from;
    std::uint64_t arrived;
  };
  // All return the id, or -1 for none.
  int arrive(const envelope& from, std::uint64_t order) {
    if (!inside(from)) return -1;
    return take(receives, [&](const entry& r) {
      if (accepts(r.e, from)) last = {r.id, r.e, r.order, from, order};
      return accepts(r.e, from);
    });
  }
  int post(int id, const envelope& wanted, std::uint64_t order) {
    const int found = take(messages, [&](const entry& x) {
      const bool fits = inside(x.e) && accepts(wanted, x.e);
      if (fits) last = {id, wanted, order, x.e, x.order};
      return fits;
    });
    if (found < 0) insert(receives, {id, wanted, order});
    return found;
  }
  static void insert(std::vector<entry>& all, const entry& one) {
    all.insert(std::find_if(all.begin(), all.end(), [&](const entry& e) { return e.order > one.order; }),
               one);
  }
  int find(const envelope& wanted) const {
    for (const entry& x : messages)
      if (inside(x.e) && accepts(wanted, x.e)) return x.id;
    return -1;
  }
  template <class P>
  static int take(std::vector<entry>& all, P wanted) {
    const auto at = std::find_if(all.begin(), all.end(), wanted);
    if (at == all.end()) return -1;
    const int id = at->id;
    all.erase(at);
    return id;
  }
  template <class P>
  static std::vector<entry> take_all(std::vector<entry>& all, P wanted) {
    std::vector<entry> taken;
    std::copy_if(all.begin(), all.end(), std::back_inserter(taken), wanted);
    all.erase(std::remove_if(all.begin(), all.end(), wanted), all.end());
    return taken;
  }
  // Elements with one key stay in order.
  template <class Key>
  static std::vector<entry> sorted(const std::vector<entry>& all, Key key) {
    std::multimap<std::uint32_t, entry> in_order;
    for (const entry& e : all) in_order.emplace(key(e), e);
    std::vector<entry> result;
    for (const auto& [k, e] : in_order) result.push_back(e);
    return result;
  }

  std::map<std::uint32_t, int> size_of;
  std::vector<entry> receives;  // in order of posting
  std::vector<entry> messages;  // in order of arrival
  pair last{};
};

// One random sequence on a matcher and a model together.
class side_by_side {
 public:
  explicit side_by_side(std::uint64_t seed)
      : random_(seed),
        contexts_(1 + random_.below(static_cast<int>(context_numbers.size()))),
        long_queues_(seed % 4 == 0),
        sources_(1 + random_.below(long_queues_ ? 2 : 6)),
        tags_(long_queues_ ? 100 : 1 + random_.below(5)),
        any_percent_(random_.below(3) * 25),
        arrive_percent_(45 + random_.below(11)) {}

  std::optional<std::string> run(int steps) {
    for (int i = 0; i < steps; ++i) {
      step();
      if (i % 64 == 0) compare_all();
      if (!wrong_.empty()) return "step " + std::to_string(i) + ": " + wrong_;
    }
    for (const std::uint32_t context : context_numbers) {
      if (expected_.is_open(context)) close(context);
      take_messages(context);
    }
    if (real_.posted_count() != 0 || real_.unexpected_count() != 0)
      wrong_ = "the matcher is not empty at the end";
    compare_all();
    return wrong_.empty() ? std::nullopt : std::optional("at the end: " + wrong_);
  }

 private:
  struct given_pair {
    model::pair of_model;
    std::uint64_t stamp;  // the matcher's own
    std::uint64_t arrival;
  };
  void step() {
    const std::uint32_t context = context_numbers[static_cast<std::size_t>(random_.below(contexts_))];
    const bool open = expected_.is_open(context);
    const int kind = random_.below(1000);
    if (kind >= 500 && kind < 580) {
      put_back();
    } else if (kind >= 580 && kind < 640) {
      post_again();
    } else if (kind >= 640 && kind < 680) {
      put_held_back();
    } else if (kind < 10) {
      hold(some_wanted(context));
    } else if (kind < 20) {
      cancel();
    } else if (kind < 40) {
      discard();
    } else if (kind < 100) {
      const envelope wanted = some_wanted(context);
      compare("find", id_of(static_cast<message*>(real_.find(wanted))), expected_.find(wanted));
    } else if (kind < 104) {
      const int source = random_.below(sources_ + 2) - 1;
      take_receives(
          context, [&](const envelope& e) { return e.source == source; },
          [&](auto f) { real_.take_posted(context, source, f); });
    } else if (kind < 106) {
      take_messages(context);
    } else if (kind < 109 && open) {
      close(context);
    } else if (kind < 140 && !open) {
      const int size = 1 + random_.below(sources_);
      real_.open_context(context, size);
      expected_.size_of[context] = size;
    } else if (random_.chance(arrive_percent_)) {
      arrive({context, random_.below(sources_), random_.below(tags_)});
    } else if (open) {
      post(some_wanted(context));
    }
    // Short queues match everything at once; long ones are slow in the model.
    if (expected_.receives.size() + expected_.messages.size() > (long_queues_ ? 600 : 80)) {
      if (open) close(context);
      take_messages(context);
    }
  }

  envelope some_wanted(std::uint32_t context) {
    const auto size = expected_.size_of.find(context);
    const int sources = size != expected_.size_of.end() ? size->second : sources_;
    const int source = random_.chance(any_percent_) ? any_source : random_.below(sources);
    const int tag = random_.chance(any_percent_) ? any_tag : random_.below(tags_);
    return {context, source, tag};
  }

  void arrive(const envelope& from) {
    const std::uint64_t order = orders_++;
    const int wanted = expected_.arrive(from, order);
    auto* const r = static_cast<receive*>(real_.arrive(from));
    compare("arrive", id_of(r), wanted);
    if (r != nullptr) given(*r);
    if (wanted >= 0) return;
    message& x = unused(messages_);
    x.from = from;
    real_.keep(x);
    expected_.insert(expected_.messages, {x.id, from, order});
  }

  void post(const envelope& wanted) {
    receive& r = unused(receives_);
    r.wanted = wanted;
    const int expected = expected_.post(r.id, wanted, orders_++);
    compare("post", id_of(static_cast<message*>(real_.post(r))), expected);
    if (expected >= 0) given(r);
  }

  // A matched receive and message are not used otherwise until one of them is re-queued, or for ever.
  void given(const receive& r) {
    if (random_.chance(50)) pairs_.push_back({expected_.last, r.stamp, r.arrival});
  }
  std::optional<given_pair> some_pair() {
    if (pairs_.empty()) return std::nullopt;
    const auto at = pairs_.begin() + random_.below(static_cast<int>(pairs_.size()));
    const given_pair p = *at;
    pairs_.erase(at);
    return p;
  }

  void put_back() {
    if (const std::optional<given_pair> p = some_pair()) put_back(*p);
  }
  void put_back(const given_pair& p) {
    const auto& [was, stamp, arrival] = p;
    const int wanted = expected_.arrive(was.from, was.arrived);
    message& x = unused(messages_);
    x.from = was.from;
    x.arrival = arrival;
    auto* const r = static_cast<receive*>(real_.put_back(x));
    compare("put_back", id_of(r), wanted);
    if (r != nullptr) given(*r);
    if (wanted < 0) expected_.insert(expected_.messages, {x.id, was.from, was.arrived});
  }

  // A message that a matched probe takes, and which is queued again later.
  void hold(const envelope& wanted) {
    auto* const x = static_cast<message*>(real_.find(wanted));
    if (x == nullptr) return;
    real_.discard(*x);
    const auto of_model = std::find_if(expected_.messages.begin(), expected_.messages.end(),
                                       [&](const model::entry& e) { return e.id == x->id; });
    held_.push_back({{-1, {}, 0, x->from, of_model->order}, 0, x->arrival});
    expected_.messages.erase(of_model);
  }
  void put_held_back() {
    if (held_.empty()) return;
    const auto at = held_.begin() + random_.below(static_cast<int>(held_.size()));
    const given_pair p = *at;
    held_.erase(at);
    put_back(p);
  }

  void post_again() {
    const std::optional<given_pair> p = some_pair();
    if (!p || !expected_.is_open(p->of_model.wanted.context)) return;
    const auto& [was, stamp, arrival] = *p;
    if (was.wanted.source >= expected_.size_of.at(was.wanted.context)) return;  // reopened with fewer members
    receive& r = unused(receives_);
    r.wanted = was.wanted;
    r.stamp = stamp;
    const int expected = expected_.post(r.id, was.wanted, was.posted);
    compare("post_again", id_of(static_cast<message*>(real_.post_again(r))), expected);
    if (expected >= 0) given(r);
  }

  void cancel() {
    if (expected_.receives.empty()) return;
    const auto at = expected_.receives.begin() + random_.below(static_cast<int>(expected_.receives.size()));
    real_.cancel(*receives_[static_cast<std::size_t>(at->id)]);
    expected_.receives.erase(at);
  }

  void discard() {
    if (expected_.messages.empty()) return;
    const auto at = expected_.messages.begin() + random_.below(static_cast<int>(expected_.messages.size()));
    real_.discard(*messages_[static_cast<std::size_t>(at->id)]);
    expected_.messages.erase(at);
  }

  void close(std::uint32_t context) {
    take_receives(
        context, [](const envelope&) { return true; },
        [&](auto f) {
          for (int source = 0; source <= sources_; ++source) real_.take_posted(context, source, f);
          real_.take_posted(context, any_source, f);
        });
    take_messages(context);
    real_.close_context(context);
    expected_.size_of.erase(context);
  }

  template <class P, class Take>
  void take_receives(std::uint32_t context, P wanted, Take take) {
    auto taken = model::take_all(
        expected_.receives, [&](const model::entry& r) { return r.e.context == context && wanted(r.e); });
    // By source; `any` last.
    taken =
        model::sorted(taken, [](const model::entry& r) { return static_cast<std::uint32_t>(r.e.source); });
    std::size_t given = 0;
    take([&](tutti::match::posted_receive& r) {
      const std::size_t i = given++;
      compare("take_posted", id_of(static_cast<receive*>(&r)), i < taken.size() ? taken[i].id : -1);
    });
    if (given != taken.size()) wrong_ = "take_posted gave too few";
  }

  void take_messages(std::uint32_t context) {
    auto taken =
        model::take_all(expected_.messages, [&](const model::entry& x) { return x.e.context == context; });
    taken = model::sorted(taken, [&](const model::entry& x) { return expected_.inside(x.e) ? 0 : 1; });
    std::size_t given = 0;
    real_.take_unexpected(context, [&](tutti::match::unexpected_message& x) {
      const std::size_t i = given++;
      compare("take_unexpected", id_of(static_cast<message*>(&x)), i < taken.size() ? taken[i].id : -1);
    });
    if (given != taken.size()) wrong_ = "take_unexpected gave too few";
  }

  void compare(const char* what, int got, int expected) {
    if (got == expected || !wrong_.empty()) return;
    wrong_ =
        std::string(what) + " gave number " + std::to_string(got) + ", the model " + std::to_string(expected);
  }

  void compare_all() {
    const auto compare_lists = [&](const auto& pool, const auto& entries, const auto& is_in) {
      std::set<int> ids;
      for (const auto& e : entries) ids.insert(e.id);
      for (const auto& each : pool)
        if (is_in(*each) != ids.contains(each->id))
          wrong_ = "number " + std::to_string(each->id) + " is misplaced";
    };
    compare_lists(receives_, expected_.receives, [](const receive& r) { return r.posted(); });
    compare_lists(messages_, expected_.messages, [](const message& x) { return x.queued(); });
    const auto count = [](const auto& entries, std::uint32_t context) {
      return std::count_if(entries.begin(), entries.end(),
                           [&](const auto& e) { return e.e.context == context; });
    };
    for (const std::uint32_t c : context_numbers) {
      compare("posted_count(context)", static_cast<int>(real_.posted_count(c)),
              static_cast<int>(count(expected_.receives, c)));
      compare("unexpected_count(context)", static_cast<int>(real_.unexpected_count(c)),
              static_cast<int>(count(expected_.messages, c)));
    }
    compare("posted_count", static_cast<int>(real_.posted_count()),
            static_cast<int>(expected_.receives.size()));
    compare("unexpected_count", static_cast<int>(real_.unexpected_count()),
            static_cast<int>(expected_.messages.size()));
  }

  template <class T>
  static int id_of(const T* element) {
    return element != nullptr ? element->id : -1;
  }

  static bool inside(const receive& r) { return r.posted(); }
  static bool inside(const message& x) { return x.queued(); }

  // An element that the matcher does not have.
  template <class T>
  static T& unused(std::vector<std::unique_ptr<T>>& pool) {
    for (auto& each : pool)
      if (!inside(*each)) return *each;
    pool.push_back(std::make_unique<T>());
    pool.back()->id = static_cast<int>(pool.size()) - 1;
    return *pool.back();
  }

  random_source random_;
  const int contexts_;
  const bool long_queues_;
  const int sources_, tags_, any_percent_, arrive_percent_;
  std::vector<std::unique_ptr<receive>> receives_;  // by id
  std::vector<std::unique_ptr<message>> messages_;
  std::vector<given_pair> pairs_;
  std::vector<given_pair> held_;
  std::uint64_t orders_ = 0;
  matcher real_;
  model expected_;
  std::string wrong_;
};

}  // namespace

TEST_CASE("matcher: random sequences give the same results as the model") {
  for_each_seed(50, [](std::uint64_t seed) { return side_by_side(seed).run(5000); });
}

TEST_CASE("matcher: random contexts open and close") {
  for_each_seed(30, [](std::uint64_t seed) -> std::optional<std::string> {
    random_source random(seed);
    std::vector<std::uint32_t> numbers(static_cast<std::size_t>(2 + random.below(200)));
    // Context numbers are sparse, dense, or differ only in the low or the high bits.
    const int shift = random.below(4) * 8;
    for (auto& n : numbers) n = static_cast<std::uint32_t>(random.next() % 300) << shift;
    std::map<std::uint32_t, std::unique_ptr<receive>> open;  // each with one receive in it
    matcher m;
    for (int i = 0; i < 2000; ++i) {
      const std::uint32_t n =
          numbers[static_cast<std::size_t>(random.below(static_cast<int>(numbers.size())))];
      const envelope from{n, 0, 0};
      if (const auto at = open.find(n); at == open.end()) {
        if (m.arrive(from) != nullptr) return "a closed context gave a receive";
        m.open_context(n, 1);
        auto r = std::make_unique<receive>();
        r->wanted = from;
        m.post(*r);
        open.emplace(n, std::move(r));
      } else {
        if (m.arrive(from) != at->second.get()) return "an open context did not give its receive";
        m.close_context(n);
        open.erase(at);
      }
      if (i % 16 == 0 && m.posted_count() != open.size()) return "a context was lost";
    }
    for (const auto& [n, r] : open)
      if (m.arrive({n, 0, 0}) != r.get()) return "an open context did not give its receive at the end";
    return std::nullopt;
  });
}

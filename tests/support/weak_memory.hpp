// SPDX-License-Identifier: Apache-2.0
// Runs a small program of several threads in every way that the memory model of C++ allows, also in those that no x86
// processor shows: a load may return an older value, as on ARM.
//
// The machine is that of Kang et al., "A Promising Semantics for Relaxed-Memory Concurrency" (POPL 2017), without
// promises: a thread has a view, which says for each word the oldest value that it may still read; a release store
// carries the view along, an acquire load takes it over. An access with seq_cst is one with acquire and release after a
// fence with seq_cst. No atomic load sees what comes after a later store of its thread; for plain reads this is looked
// for: who writes must know that all reads are over.
//
// Each thread is a coroutine, which awaits each of its accesses. A state that was met before is not explored again.
#pragma once

#include <algorithm>
#include <atomic>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace tutti::test::weak {

using order = std::memory_order;
using value = std::int16_t;

class machine;

// A word, by its place in the memory. Plain words may not be accessed by two threads at once.
struct word {
  int at = 0;
};

class thread {
 public:
  struct promise_type;
  using handle = std::coroutine_handle<promise_type>;
  explicit thread(handle h) noexcept : body_(h) {}
  thread(thread&& other) noexcept : body_(std::exchange(other.body_, {})) {}
  thread& operator=(thread&&) = delete;
  ~thread() {
    if (body_) body_.destroy();
  }

 private:
  friend class machine;
  handle body_;
};

// For each word the place in its history of the oldest value that may be read; then for each plain word and thread how
// many of that thread's reads are known to be over.
using view = std::vector<std::uint8_t>;

class machine {
 public:
  enum class action : std::uint8_t { load, store, change, fence, plain_read, plain_write, wait };
  // What a thread does next.
  struct access {
    action what = action::fence;
    word at{};
    order how = order::relaxed;
    value operand = 0;                           // of a store
    std::function<bool(value)> may = nullptr;    // of a wait, or of a change: whether it succeeds
    std::function<value(value)> next = nullptr;  // of a change
  };
  struct awaiter {
    machine& of;
    access what;
    bool await_ready() const noexcept { return false; }
    void await_suspend(thread::handle h) noexcept;
    value await_resume() const noexcept { return of.returned_; }
  };

  word make(value initial) { return add(initial, false); }
  word make_plain(value initial) { return add(initial, true); }

  awaiter load(word w, order o) { return does({action::load, w, o}); }
  awaiter store(word w, value v, order o) { return does({action::store, w, o, v}); }
  awaiter fence(order o) { return does({action::fence, {}, o}); }
  awaiter read(word w) { return does({action::plain_read, w}); }
  awaiter write(word w, value v) { return does({action::plain_write, w, order::relaxed, v}); }
  // Each returns the value before. A compare_exchange that fails is a relaxed load.
  awaiter exchange(word w, value v, order o) {
    return does({action::change, w, o, 0, nullptr, [v](value) { return v; }});
  }
  awaiter add(word w, value v, order o) {
    return does(
        {action::change, w, o, 0, nullptr, [v](value before) { return static_cast<value>(before + v); }});
  }
  awaiter compare_exchange(word w, value expected, value v, order o) {
    return does({action::change, w, o, 0, [expected](value before) { return before == expected; },
                 [v](value) { return v; }});
  }
  // Goes on only with such a value, as a loop that polls.
  awaiter until(word w, order o, std::function<bool(value)> may) {
    return does({action::wait, w, o, 0, std::move(may)});
  }

  void start(thread t) { threads_.push_back({std::move(t), {}, {}, {}, {}}); }
  void check(bool holds, const char* otherwise) {
    if (!holds && wrong_.empty()) wrong_ = otherwise;
  }

 private:
  friend struct outcome explore(const std::function<void(machine&)>& program);

  struct message {
    value is;
    view seen;     // what who acquires it has seen, too
    bool follows;  // it was made of the value before it: nothing may come between them
  };
  struct location {
    bool plain;
    std::vector<message> history;
  };
  struct running {
    thread code;
    view now, acquired, released;
    access next;
    std::vector<value> got{};
    bool ended() const { return code.body_.done(); }
  };
  // A thread, and which of several values or places.
  struct choice {
    std::size_t thread;
    std::size_t place;
  };

  awaiter does(access a) { return {*this, std::move(a)}; }
  word add(value initial, bool plain) {
    memory_.push_back({plain, {{initial, {}, false}}});
    return {static_cast<int>(memory_.size()) - 1};
  }
  static void join(view& into, const view& other) {
    for (std::size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], other[i]);
  }
  static bool acquires(order o) {
    return o == order::acquire || o == order::acq_rel || o == order::seq_cst || o == order::consume;
  }
  static bool releases(order o) { return o == order::release || o == order::acq_rel || o == order::seq_cst; }

  void begin() {
    reads_.assign(memory_.size() * threads_.size(), 0);
    const view none(memory_.size() + reads_.size(), 0);
    for (location& l : memory_) l.history[0].seen = none;
    ordered_ = none;
    for (std::size_t i = 0; i < threads_.size(); ++i) {
      threads_[i].now = threads_[i].acquired = threads_[i].released = none;
      go_on(i);
    }
  }
  void go_on(std::size_t i) {
    current_ = i;
    threads_[i].code.body_.resume();
  }

  void all_choices(std::vector<choice>& into) const {
    into.clear();
    for (std::size_t i = 0; i < threads_.size(); ++i) {
      const running& t = threads_[i];
      if (t.ended()) continue;
      const access& a = t.next;
      const auto& history = memory_[static_cast<std::size_t>(a.at.at)].history;
      if (a.what == action::fence || a.what == action::plain_read || a.what == action::plain_write) {
        into.push_back({i, 0});
        continue;
      }
      view now = t.now;
      if (a.how == order::seq_cst) {
        join(now, t.acquired);
        join(now, ordered_);
      }
      const std::size_t oldest = now[static_cast<std::size_t>(a.at.at)];
      for (std::size_t p = oldest; p < history.size(); ++p) {
        const bool is_last = p + 1 == history.size();
        const bool followed = !is_last && history[p + 1].follows;
        if (a.what == action::wait && !a.may(history[p].is)) continue;
        if (a.what == action::store && followed) continue;
        if (a.what == action::change && followed && (!a.may || a.may(history[p].is))) continue;
        into.push_back({i, p});
      }
    }
  }

  void fence(running& t, order o) {
    if (acquires(o)) join(t.now, t.acquired);
    if (o == order::seq_cst) {
      join(t.now, ordered_);
      ordered_ = t.now;
    }
    if (releases(o)) t.released = t.now;
    join(t.acquired, t.now);
  }
  void takes(running& t, const access& a, std::size_t place, order how) {
    const auto at = static_cast<std::size_t>(a.at.at);
    t.now[at] = std::max<std::uint8_t>(t.now[at], static_cast<std::uint8_t>(place));
    const view& seen = memory_[at].history[place].seen;
    join(t.acquired, seen);
    join(t.acquired, t.now);
    if (acquires(how)) join(t.now, seen);
  }
  // A value right after the one at `place`.
  void puts(running& t, const access& a, std::size_t place, value is, bool follows) {
    const auto at = static_cast<std::size_t>(a.at.at);
    auto& history = memory_[at].history;
    view seen = releases(a.how) ? t.now : t.released;
    if (follows) join(seen, history[place].seen);
    const auto made = static_cast<std::uint8_t>(place + 1);
    const auto shift = [at, made](view& v) {
      if (v[at] >= made) ++v[at];
    };
    for (location& l : memory_)
      for (message& m : l.history) shift(m.seen);
    for (running& each : threads_)
      for (view* v : {&each.now, &each.acquired, &each.released}) shift(*v);
    shift(ordered_);
    shift(seen);
    seen[at] = std::max(seen[at], made);
    history.insert(history.begin() + made, {is, std::move(seen), follows});
    t.now[at] = std::max(t.now[at], made);
    join(t.acquired, t.now);
  }

  void perform(choice c) {
    running& t = threads_[c.thread];
    const access a = std::move(t.next);
    location& l = memory_[static_cast<std::size_t>(a.at.at)];
    returned_ = 0;
    if (a.what == action::fence) {
      fence(t, a.how);
    } else if (a.what == action::plain_read || a.what == action::plain_write) {
      const auto at = static_cast<std::size_t>(a.at.at);
      const std::size_t last = l.history.size() - 1, first_read = at * threads_.size();
      check(t.now[at] == last, "a data race");
      if (a.what == action::plain_read) {
        returned_ = l.history[last].is;
        t.now[memory_.size() + first_read + c.thread] = ++reads_[first_read + c.thread];
        join(t.acquired, t.now);
      } else {
        for (std::size_t i = first_read; i < first_read + threads_.size(); ++i)
          check(t.now[memory_.size() + i] == reads_[i], "a data race");
        puts(t, a, last, a.operand, false);
      }
    } else {
      if (a.how == order::seq_cst) fence(t, order::seq_cst);
      returned_ = l.history[c.place].is;
      if (a.what == action::store) {
        returned_ = 0;
        puts(t, a, c.place, a.operand, false);
      } else {
        const bool fails = a.what == action::change && a.may && !a.may(returned_);
        takes(t, a, c.place, fails ? order::relaxed : a.how);
        if (a.what == action::change && !fails) puts(t, a, c.place, a.next(returned_), true);
      }
    }
    t.got.push_back(returned_);
    go_on(c.thread);
  }

  std::string state() const {
    std::string s;
    const auto put = [&s](const view& v) { s.append(v.begin(), v.end()); };
    for (const location& l : memory_) {
      s += static_cast<char>(l.history.size());
      for (const message& m : l.history) {
        s.append({static_cast<char>(m.is), static_cast<char>(m.is >> 8), static_cast<char>(m.follows)});
        put(m.seen);
      }
    }
    put(ordered_);
    put(reads_);
    for (const running& t : threads_) {
      for (const view* v : {&t.now, &t.acquired, &t.released}) put(*v);
      s += static_cast<char>(t.got.size());
      for (const value v : t.got) s.append({static_cast<char>(v), static_cast<char>(v >> 8)});
    }
    return s;
  }

  std::vector<location> memory_;
  std::vector<running> threads_;
  view reads_;    // by word and thread
  view ordered_;  // by fences with seq_cst
  value returned_ = 0;
  std::size_t current_ = 0;
  std::string wrong_;
};

struct thread::promise_type {
  thread get_return_object() noexcept { return thread(handle::from_promise(*this)); }
  std::suspend_always initial_suspend() noexcept { return {}; }
  std::suspend_always final_suspend() noexcept { return {}; }
  void return_void() noexcept {}
  void unhandled_exception() { throw; }
};

inline void machine::awaiter::await_suspend(thread::handle) noexcept { of.threads_[of.current_].next = what; }

struct outcome {
  std::string wrong;  // what a check says, a data race, or threads that wait for ever; empty: never anything
  std::size_t states = 0;  // different ones
};

// `program` makes the words and starts the threads.
inline outcome explore(const std::function<void(machine&)>& program) {
  outcome all;
  std::unordered_set<std::string> met;
  // The choices taken, and of how many.
  std::vector<std::pair<std::size_t, std::size_t>> path;
  std::vector<machine::choice> choices;
  do {
    machine m;
    program(m);
    m.begin();
    for (std::size_t depth = 0; m.wrong_.empty(); ++depth) {
      const bool is_new = depth >= path.size();
      if (is_new && !met.insert(m.state()).second) break;
      m.all_choices(choices);
      if (choices.empty()) {
        const bool all_ended = std::ranges::all_of(m.threads_, [](const auto& t) { return t.ended(); });
        m.check(all_ended, "threads wait for ever");
        break;
      }
      if (is_new) path.emplace_back(0, choices.size());
      m.perform(choices[path[depth].first]);
    }
    if (!m.wrong_.empty()) {
      all.wrong = m.wrong_;
      break;
    }
    while (!path.empty() && path.back().first + 1 == path.back().second) path.pop_back();
    if (!path.empty()) ++path.back().first;
  } while (!path.empty());
  all.states = met.size();
  return all;
}

}  // namespace tutti::test::weak

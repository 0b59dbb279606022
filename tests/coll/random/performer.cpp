// SPDX-License-Identifier: Apache-2.0
#include "coll/random/performer.hpp"

#include "coll/random/calls.hpp"

#include <algorithm>
#include <deque>
#include <exception>
#include <memory>
#include <stdexcept>

namespace tutti::test {
namespace {

using kind = coll::operation_kind;

constexpr std::uint32_t blank = 0xA5A5A5A5;
// What this rank has in flight for one step.
struct flight {
  const step* of = nullptr;
  int rank = 0;  // of the group
  std::vector<status> results;
  // messages
  std::vector<std::size_t> sent;  // letters
  std::deque<bytes> texts;
  std::deque<bytes> received;  // in the order of posting
  // collective
  part plan;
  elements in;
  elements out;
  std::span<std::uint32_t> result;
  elements wanted;
  std::unique_ptr<other_memory::copies> elsewhere;
  std::vector<request> requests;  // destroyed first: they refer to the members above
};

class performer {
 public:
  performer(communicator world, const program& p, std::size_t spoilt, other_memory* memory)
      : program_(p),
        memory_(memory),
        random_(p.seed * 31 + static_cast<std::uint64_t>(world.rank())),
        me_(world.rank()),
        spoilt_(spoilt) {
    handles_.resize(p.groups.size());
    handles_[0] = std::move(world);
  }

  task<> run() {
    // How many flights this rank may start before it awaits one.
    const std::size_t most = 1 + random_.below(24);
    for (const step& s : program_.steps) {
      if (!member_of(s.group)) continue;
      const std::size_t before = flights_.size();
      co_await perform(s);
      if (s.at_once && flights_.size() > before) co_await land(flights_.size() - 1);
      while (flights_.size() > most || (!flights_.empty() && random_.one_in(5)))
        co_await land(random_.below(flights_.size()));
    }
    while (!flights_.empty()) co_await land(random_.below(flights_.size()));
  }

 private:
  bool member_of(int group) const {
    const members& ranks = program_.groups[static_cast<std::size_t>(group)];
    return std::find(ranks.begin(), ranks.end(), me_) != ranks.end();
  }
  [[noreturn]] void wrong(const step& s, const std::string& why) const {
    throw std::runtime_error("world rank " + std::to_string(me_) + ": " + program_.words(s) + ": " + why);
  }
  void expect(bool good, const step& s, const char* why) const {
    if (!good) wrong(s, why);
  }

  task<> perform(const step& s) {
    communicator& c = handles_[static_cast<std::size_t>(s.group)];
    auto f = std::make_unique<flight>();
    f->of = &s;
    f->rank = c.rank();
    switch (s.what) {
      case action::messages:
        co_await exchange(s, c, *f);
        break;
      case action::collective:
        co_await begin(s, c, f.get());
        break;
      case action::make:
        co_await make(s, c);
        co_return;
      case action::drop:
        c = communicator();
        co_return;
      case action::give_up:
        if (f->rank != s.to) co_return;
        f->received.emplace_back(s.letters[0].size);
        f->requests.push_back(c.irecv(f->received[0], s.letters[0].from, s.letters[0].tag));
        break;
    }
    const bool began = !f->requests.empty();
    if (began) flights_.push_back(std::move(f));
    if (s.what != action::messages || s.form != receive_form::any) co_return;
    if (began) co_await land(flights_.size() - 1);
    co_await c.barrier();
  }

  // Receives are started first, because a rank may write to itself.
  task<> exchange(const step& s, communicator c, flight& f) {
    if (f.rank == s.to) {
      const bool any_source_ = s.form == receive_form::any_source || s.form == receive_form::any;
      const bool any_tag_ = s.form == receive_form::any_tag || s.form == receive_form::any;
      std::size_t longest = 0;
      for (const letter& l : s.letters) longest = std::max(longest, l.size);
      for (const letter& l : s.letters) {
        const int source = any_source_ ? any_source : l.from;
        const int tag = any_tag_ ? any_tag : l.tag;
        if (s.probed) {
          const status seen = co_await c.probe(source, tag);
          expect(seen.source == l.from && seen.tag == l.tag && seen.bytes == l.size, s,
                 "the probe saw another message");
        }
        f.received.emplace_back(longest + s.room);
        f.requests.push_back(c.irecv(f.received.back(), source, tag));
      }
    }
    for (std::size_t i = 0; i < s.letters.size(); ++i) {
      const letter& l = s.letters[i];
      if (l.from != f.rank) continue;
      f.texts.push_back(text_of(program_, s, i));
      if (s.number == spoilt_ && l.size > 0) f.texts.back()[0] ^= std::byte{1};
      if (s.at_once && l.from != s.to) {
        co_await c.send(f.texts.back(), s.to, l.tag);
      } else {
        f.requests.push_back(c.isend(f.texts.back(), s.to, l.tag));
      }
    }
  }

  task<> begin(const step& s, communicator c, flight* into) {
    flight& f = *into;
    f.plan = part_of(program_, s, f.rank);
    const bool is_root = f.rank == s.root;
    const bool has_root = s.kind == kind::scatter || s.kind == kind::scatter_v || s.kind == kind::gather ||
                          s.kind == kind::gather_v;
    f.wanted = f.plan.wanted;
    f.in = f.plan.in;
    f.out.assign(f.wanted.size(), blank);
    std::span<std::uint32_t> in = f.in;
    f.result = f.out;
    const bool own_of_input = s.kind == kind::scatter || s.kind == kind::scatter_v ||
                              s.kind == kind::reduce_scatter || s.kind == kind::reduce_scatter_v;
    if (s.kind == kind::broadcast) {
      if (is_root) f.out = f.wanted;
      f.result = f.out;
    } else if (s.kind == kind::reduce || s.kind == kind::exclusive_scan || s.kind == kind::all_reduce ||
               s.kind == kind::scan) {
      f.out.assign(f.in.size(), blank);
      if (s.in_place) f.out = f.in;
      f.result = f.out;
      if (s.in_place) in = f.out;
      const bool untouched =
          (s.kind == kind::reduce && !is_root) || (s.kind == kind::exclusive_scan && f.rank == 0);
      if (untouched) f.wanted = f.out;
    } else if (s.in_place && own_of_input && (!has_root || is_root)) {
      f.result = in.subspan(f.plan.own_in, f.wanted.size());
    } else if (s.in_place && s.kind == kind::all_to_all) {
      f.out = f.in;
      f.result = in = f.out;
    } else if (s.in_place && !own_of_input && s.kind != kind::barrier && (!has_root || is_root)) {
      std::copy(f.in.begin(), f.in.end(), f.out.begin() + static_cast<std::ptrdiff_t>(f.plan.own_out));
      in = f.result.subspan(f.plan.own_out, f.in.size());
    }
    if (s.number == spoilt_ && f.rank == 0) in[0] ^= 1;
    if (memory_ == nullptr) {
      f.requests.push_back(start(call_of(c, s, f.plan, in, f.result).with(s.with)));
    } else {
      f.elsewhere = co_await memory_->start(c, &s, &f.plan, in, f.result);
      f.requests.push_back(std::move(f.elsewhere->moving));
    }
  }

  task<> make(const step& s, communicator c) {
    const auto rank = static_cast<std::size_t>(c.rank());
    const int color = s.colors[rank];
    communicator made;
    if (s.kind == kind::split) {
      made = co_await c.split(color, s.keys[rank]);
    } else if (s.kind == kind::duplicate) {
      made = co_await c.duplicate();
    } else {
      // The group's ranks as ranks of the world.
      std::vector<int> ranks;
      const members& parent = program_.groups[static_cast<std::size_t>(s.group)];
      if (s.made[0] >= 0)
        for (const int r : program_.groups[static_cast<std::size_t>(s.made[0])])
          ranks.push_back(static_cast<int>(std::find(parent.begin(), parent.end(), r) - parent.begin()));
      made = co_await c.group(ranks);
    }
    expect(static_cast<bool>(made) == (color >= 0), s,
           "is a member where it should not be, or not where it should");
    if (color < 0) co_return;
    const auto number = static_cast<std::size_t>(s.made[static_cast<std::size_t>(color)]);
    const members& ranks = program_.groups[number];
    expect(made.size() == static_cast<int>(ranks.size()), s, "has another number of ranks");
    expect(ranks[static_cast<std::size_t>(made.rank())] == me_, s, "has another order");
    handles_[number] = std::move(made);
  }

  // Awaits one flight with its requests in any order, and checks the results.
  task<> land(std::size_t which) {
    std::swap(flights_[which], flights_.back());
    const std::unique_ptr<flight> f = std::move(flights_.back());
    flights_.pop_back();
    const step& s = *f->of;
    if (s.what == action::give_up) {
      f->requests[0].cancel();
      const failure ended = co_await failure_awaiting(&f->requests[0]);
      // The other side may have finished before.
      if (!ended.code) wrong(s, "not cancelled");
      if (ended.code != errc::cancelled && ended.code != errc::peer_left)
        throw error(static_cast<errc>(ended.code.value()), ended.text);
      co_return;
    }
    f->results.resize(f->requests.size());
    for (std::size_t left = f->requests.size(); left > 0; --left) {
      std::size_t next = random_.below(f->requests.size());
      while (!f->requests[next]) next = (next + 1) % f->requests.size();
      f->results[next] = co_await f->requests[next];
    }
    if (s.what == action::collective) {
      if (f->elsewhere) co_await f->elsewhere->fetch(f->result);
      if (!std::equal(f->result.begin(), f->result.end(), f->wanted.begin(), f->wanted.end()))
        wrong(s, "another result");
    } else {
      std::exception_ptr unlike;
      try {
        read(s, *f);
      } catch (...) {
        unlike = std::current_exception();
      }
      if (!unlike) co_return;
      // A receive of an earlier step that a death has ended leaves its message to receives from any source.
      // Then the death is the error to report.
      for (const auto& other : flights_)
        for (request& r : other->requests)
          if (r && r.done()) co_await r;
      std::rethrow_exception(unlike);
    }
  }

  // Every message arrived once; messages of one sender in the order of the receives.
  void read(const step& s, const flight& f) const {
    std::vector<bool> came(s.letters.size());
    for (std::size_t i = 0; i < f.received.size(); ++i) {
      const status& st = f.results[i];
      std::size_t which = no_step;
      for (std::size_t l = 0; l < s.letters.size() && which == no_step; ++l)
        if (!came[l] && s.letters[l].from == st.source) which = l;
      expect(which != no_step, s, "a letter from a rank that has sent no more");
      came[which] = true;
      expect(st.tag == s.letters[which].tag && st.bytes == s.letters[which].size, s, "another tag or length");
      const bytes wanted = text_of(program_, s, which);
      expect(std::equal(wanted.begin(), wanted.end(), f.received[i].begin()), s, "another text");
      expect(std::all_of(f.received[i].begin() + static_cast<std::ptrdiff_t>(st.bytes), f.received[i].end(),
                         [](std::byte b) { return b == std::byte{0}; }),
             s, "written behind the letter");
    }
  }

  const program& program_;
  other_memory* const memory_;
  random_numbers random_;
  int me_;
  std::size_t spoilt_;
  std::vector<communicator> handles_;  // by group; empty where this rank is no member
  std::vector<std::unique_ptr<flight>> flights_;
};

}  // namespace

task<> perform(communicator world, const program* p, std::size_t spoilt, other_memory* memory) {
  performer one(std::move(world), *p, spoilt, memory);
  co_await one.run();
}

}  // namespace tutti::test

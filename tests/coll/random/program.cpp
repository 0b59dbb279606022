// SPDX-License-Identifier: Apache-2.0
#include "coll/random/program.hpp"

#include "comm/topology.hpp"

#include <algorithm>
#include <numeric>

namespace tutti::test {
namespace {

using kind = coll::operation_kind;

constexpr std::size_t steps_of_a_program = 70;
constexpr int shared_tags = 3;  // tags that several steps use
constexpr int first_own_tag = 100;

std::uint64_t mixed(std::uint64_t a, std::uint64_t b) {
  return random_numbers(a * 0x9e3779b97f4a7c15ULL + b).next();
}

class generator {
 public:
  generator(std::uint64_t seed, setting where, std::size_t steps, std::size_t most_bytes)
      : random_(seed), steps_(steps), most_bytes_(most_bytes) {
    made_.seed = seed;
    made_.where = std::move(where);
    made_.groups.emplace_back(static_cast<std::size_t>(made_.where.ranks));
    std::iota(made_.groups[0].begin(), made_.groups[0].end(), 0);
    alive_ = {0};
  }

  program make() {
    while (made_.steps.size() < steps_) {
      step s;
      s.number = made_.steps.size();
      s.group = alive_[random_.below(alive_.size())];
      s.at_once = random_.one_in(4);
      const std::size_t dice = random_.below(100);
      if (dice < 40) {
        add_messages(s);
      } else if (dice < 84) {
        add_collective(s);
      } else if (dice < 92) {
        add_groups(s);
      } else if (dice < 96) {
        if (s.group == 0) continue;
        s.what = action::drop;
        std::erase(alive_, s.group);
      } else {
        s.what = action::give_up;
        s.to = static_cast<int>(random_.below(size_of(s)));
        s.letters.push_back({static_cast<int>(random_.below(size_of(s))), own_tag(s), 8});
      }
      made_.steps.push_back(std::move(s));
    }
    return std::move(made_);
  }

 private:
  std::size_t size_of(const step& s) const { return made_.groups[static_cast<std::size_t>(s.group)].size(); }
  static int own_tag(const step& s) { return first_own_tag + static_cast<int>(s.number); }

  // Mostly short; sometimes around the limits of the protocols.
  std::size_t size_of_letter() {
    constexpr std::size_t limits[] = {4095, 4096, 4097, 65'535, 65'536, 65'537, 150'001};
    return random_.one_in(4) ? std::min(most_bytes_, limits[random_.below(std::size(limits))])
                             : random_.below(200);
  }

  void add_messages(step& s) {
    const std::size_t size = size_of(s);
    s.what = action::messages;
    s.to = static_cast<int>(random_.below(size));
    s.room = random_.one_in(3) ? random_.below(100) : 0;
    s.form = static_cast<receive_form>(random_.below(4));
    const bool one_source = s.form == receive_form::named || s.form == receive_form::any_tag;
    const std::size_t letters = one_source ? 1 : 1 + random_.below(4);
    for (std::size_t i = 0; i < letters; ++i) {
      letter l;
      l.from = static_cast<int>(random_.below(size));
      // A receive from any rank fails once all others have left. It does not wait for a message to itself
      // that is not sent yet.
      if (s.form == receive_form::any_source && size > 1 && l.from == s.to)
        l.from = (s.to + 1) % static_cast<int>(size);
      l.tag = s.form == receive_form::any_source ? own_tag(s) : static_cast<int>(random_.below(shared_tags));
      l.size = size_of_letter();
      s.letters.push_back(l);
    }
    // A rank that waits for its own message before it sends it would wait for ever.
    s.probed = letters == 1 && s.letters[0].from != s.to && random_.one_in(4);
  }

  void add_collective(step& s) {
    constexpr kind kinds[] = {
        kind::barrier,    kind::broadcast,    kind::reduce,           kind::all_reduce,
        kind::scatter,    kind::gather,       kind::all_gather,       kind::reduce_scatter,
        kind::all_to_all, kind::scan,         kind::exclusive_scan,   kind::scatter_v,
        kind::gather_v,   kind::all_gather_v, kind::reduce_scatter_v, kind::all_to_all_v};
    s.what = action::collective;
    s.kind = kinds[random_.below(std::size(kinds))];
    s.count = random_.one_in(5) ? std::min(most_bytes_ / 4, 1000 + random_.below(20'000)) : random_.below(60);
    s.root = static_cast<int>(random_.below(size_of(s)));
    s.op = static_cast<fold>(random_.below(4));
    s.in_place = random_.one_in(3) && s.kind != kind::all_to_all_v;
    if (random_.one_in(2)) return;
    // An algorithm that works with these ranks.
    const members& ranks = made_.groups[static_cast<std::size_t>(s.group)];
    std::string hosts;
    for (const int r : ranks) hosts += (hosts.empty() ? "" : ",") + host_of(r);
    const setting here{made_.where.transport, static_cast<int>(ranks.size()), hosts};
    const std::vector<algorithm> all = here.algorithms(s.kind, s.kind < kind::scatter_v);
    s.with = all[random_.below(all.size())];
  }
  std::string host_of(int rank) const {
    return made_.where.hosts.empty() ? "a"
                                     : std::string(1, made_.where.hosts[static_cast<std::size_t>(rank) * 2]);
  }

  void add_groups(step& s) {
    const members ranks = made_.groups[static_cast<std::size_t>(s.group)];
    const auto size = ranks.size();
    s.what = action::make;
    constexpr kind kinds[] = {kind::split, kind::group, kind::duplicate};
    s.kind = kinds[random_.below(3)];
    for (std::size_t r = 0; r < size; ++r) {
      s.colors.push_back(
          s.kind == kind::duplicate ? 0 : static_cast<int>(random_.below(s.kind == kind::split ? 3 : 2)) - 1);
      s.keys.push_back(s.kind == kind::duplicate ? static_cast<int>(r) : static_cast<int>(random_.below(4)));
    }
    for (int color = 0; color < 2; ++color) {
      std::vector<std::size_t> chosen;
      for (std::size_t r = 0; r < size; ++r)
        if (s.colors[r] == color) chosen.push_back(r);
      if (chosen.empty()) {
        s.made.push_back(-1);
        continue;
      }
      std::sort(chosen.begin(), chosen.end(), [&s](std::size_t a, std::size_t b) {
        return std::pair(s.keys[a], a) < std::pair(s.keys[b], b);
      });
      members made;
      for (const std::size_t r : chosen) made.push_back(ranks[r]);
      s.made.push_back(static_cast<int>(made_.groups.size()));
      alive_.push_back(s.made.back());
      made_.groups.push_back(std::move(made));
    }
  }

  random_numbers random_;
  const std::size_t steps_;
  const std::size_t most_bytes_;
  program made_;
  std::vector<int> alive_;
};

// Element i of the rank's data for this step.
std::uint32_t value(const program& p, const step& s, std::size_t rank, std::size_t i) {
  return static_cast<std::uint32_t>(mixed(p.seed + i, s.number * 64 + rank));
}

// The number of elements from rank `from` to rank `to`.
std::size_t length(const program& p, const step& s, std::size_t from, std::size_t to) {
  if (s.kind < kind::scatter_v) return s.count;
  if (s.kind != kind::all_to_all_v) from = 0;
  return static_cast<std::size_t>(mixed(p.seed ^ s.number, from * 64 + to) % (s.count + 1));
}

std::uint32_t folded(fold op, std::uint32_t a, std::uint32_t b) {
  switch (op) {
    case fold::sum:
      return a + b;
    case fold::product:
      return a * b;
    case fold::max:
      return std::max(a, b);
    default:
      return a ^ b;
  }
}

}  // namespace

program random_program(std::uint64_t seed) {
  constexpr const char* hosts[] = {"a,b", "a,b,a", "a,a,b,b", "a,b,a,b,b"};
  const auto ranks = 2 + seed % 4;
  const auto transport = seed / 4 % 3;
  setting where;
  where.ranks = static_cast<int>(ranks);
  where.transport = transport == 0 ? "shm" : transport == 1 ? "tcp" : "mixed";
  if (transport == 2) where.hosts = hosts[ranks - 2];
  return random_program(seed, std::move(where), steps_of_a_program, 150'001);
}

program random_program(std::uint64_t seed, setting where, std::size_t steps, std::size_t most_bytes) {
  return generator(seed, std::move(where), steps, most_bytes).make();
}

bytes text_of(const program& p, const step& s, std::size_t letter) {
  return filled(s.letters[letter].size, mixed(p.seed, s.number * 8 + letter));
}

part part_of(const program& p, const step& s, int rank) {
  const auto me = static_cast<std::size_t>(rank);
  const auto root = static_cast<std::size_t>(s.root);
  const std::size_t size = p.groups[static_cast<std::size_t>(s.group)].size();
  part made;
  // Elements first to first + count - 1 of a rank's data, or of the reduction of ranks 0 to last.
  const auto of_rank = [&](elements& to, std::size_t r, std::size_t first, std::size_t count) {
    for (std::size_t i = first; i < first + count; ++i) to.push_back(value(p, s, r, i));
  };
  const auto of_all = [&](elements& to, std::size_t last, std::size_t first, std::size_t count) {
    for (std::size_t i = first; i < first + count; ++i) {
      std::uint32_t all = value(p, s, 0, i);
      for (std::size_t r = 1; r <= last; ++r) all = folded(s.op, all, value(p, s, r, i));
      to.push_back(all);
    }
  };
  std::vector<std::size_t> blocks;  // by rank, if they are the same for all
  std::size_t before = 0;
  std::size_t total = 0;
  for (std::size_t r = 0; r < size; ++r) {
    blocks.push_back(length(p, s, 0, r));
    if (r < me) before += blocks[r];
    total += blocks[r];
  }
  const std::size_t own = blocks[me];
  switch (s.kind) {
    case kind::broadcast:
      of_rank(made.wanted, root, 0, s.count);
      break;
    case kind::reduce:
    case kind::all_reduce:
      of_rank(made.in, me, 0, s.count);
      if (s.kind == kind::all_reduce || me == root) of_all(made.wanted, size - 1, 0, s.count);
      break;
    case kind::scan:
      of_rank(made.in, me, 0, s.count);
      of_all(made.wanted, me, 0, s.count);
      break;
    case kind::exclusive_scan:
      of_rank(made.in, me, 0, s.count);
      if (me > 0) of_all(made.wanted, me - 1, 0, s.count);
      break;
    case kind::scatter:
    case kind::scatter_v:
      if (me == root) of_rank(made.in, root, 0, total);
      if (me == root) made.in_counts = blocks;
      made.own_in = before;
      of_rank(made.wanted, root, before, own);
      break;
    case kind::reduce_scatter:
    case kind::reduce_scatter_v:
      of_rank(made.in, me, 0, total);
      made.in_counts = blocks;
      made.own_in = before;
      of_all(made.wanted, size - 1, before, own);
      break;
    case kind::gather:
    case kind::gather_v:
    case kind::all_gather:
    case kind::all_gather_v: {
      const bool gets = s.kind == kind::all_gather || s.kind == kind::all_gather_v || me == root;
      of_rank(made.in, me, 0, own);
      if (!gets) break;
      made.out_counts = blocks;
      made.own_out = before;
      for (std::size_t r = 0; r < size; ++r) of_rank(made.wanted, r, 0, blocks[r]);
      break;
    }
    case kind::all_to_all:
    case kind::all_to_all_v:
      for (std::size_t other = 0; other < size; ++other) {
        made.in_counts.push_back(length(p, s, me, other));
        made.out_counts.push_back(length(p, s, other, me));
        std::size_t first = 0;
        for (std::size_t r = 0; r < me; ++r) first += length(p, s, other, r);
        of_rank(made.wanted, other, first, made.out_counts.back());
      }
      of_rank(made.in, me, 0, std::accumulate(made.in_counts.begin(), made.in_counts.end(), std::size_t{0}));
      break;
    default:
      break;
  }
  return made;
}

std::string program::replay() const {
  return "the program of seed " + std::to_string(seed) + " (" + where.name() +
         "); to run it again: TUTTI_TEST_SEED=" + std::to_string(seed) + " ctest -R coll.random_programs";
}

std::string program::words(const step& s) const {
  std::string text = "step " + std::to_string(s.number) + ", ";
  switch (s.what) {
    case action::messages:
      text += std::to_string(s.letters.size()) + " letters to rank " + std::to_string(s.to) + " (";
      for (const letter& l : s.letters)
        text += " from " + std::to_string(l.from) + " tag " + std::to_string(l.tag) + " " +
                std::to_string(l.size) + " bytes;";
      text +=
          std::string(s.probed ? " probed" : "") + " form " + std::to_string(static_cast<int>(s.form)) + ")";
      break;
    case action::collective:
      text += std::string(coll::name_of(s.kind)) + " of " + std::to_string(s.count) + " by " +
              tutti::name_of(s.with) + ", root " + std::to_string(s.root) + (s.in_place ? ", in place" : "") +
              ", fold " + std::to_string(static_cast<int>(s.op));
      break;
    case action::make:
      text += coll::name_of(s.kind);
      break;
    case action::drop:
      text += "drop";
      break;
    case action::give_up:
      text += "cancelled receive on rank " + std::to_string(s.to);
      break;
  }
  text += s.at_once ? ", at once, on group " : ", on group ";
  text += std::to_string(s.group) + " (";
  for (const int r : groups[static_cast<std::size_t>(s.group)]) text += " " + std::to_string(r);
  return text + " )";
}

}  // namespace tutti::test

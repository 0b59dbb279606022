// SPDX-License-Identifier: Apache-2.0
#include "coll/choice.hpp"

#include "base/env.hpp"
#include "base/files.hpp"
#include "base/text.hpp"
#include "base/unique_fd.hpp"
#include "coll/algorithms.hpp"
#include "coll/cost.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <optional>
#include <span>
#include <sstream>
#include <system_error>
#include <tutti/error.hpp>

namespace tutti::coll {
namespace {

using kind = operation_kind;
using enum algorithm;

constexpr std::size_t any_size = ~std::size_t{0};
constexpr std::size_t KiB = 1024;

// What an algorithm needs besides a number of ranks.
struct requirement {
  const char* text = nullptr;
  bool situation::* first = nullptr;
  bool situation::* second = nullptr;
};
namespace needs {
using s = situation;
constexpr requirement nothing;
constexpr requirement even_blocks{"blocks of equal size", &s::even_blocks};
constexpr requirement segment{"ranks that all share memory, and elements of at most 8 KiB where it reduces",
                              &s::shared_memory};
constexpr requirement one_segment{"2 to 16 ranks that all share memory, and blocks of equal size",
                                  &s::one_segment, &s::even_blocks};
constexpr requirement hierarchy{"several hosts with several ranks each", &s::hierarchy};
constexpr requirement even_hierarchy{"several hosts with several ranks each, the same number on all",
                                     &s::hierarchy, &s::even_hosts};
}  // namespace needs

// When a row's algorithm is chosen.
struct preference {
  bool always = false;
  int ranks = 0;                 // minimum
  std::size_t bytes = any_size;  // maximum
};
constexpr preference first(int ranks = 0, std::size_t bytes = any_size) { return {true, ranks, bytes}; }
constexpr preference cheapest;

struct row {
  kind of;
  algorithm use;
  requirement need;
  preference when;
  const char* name = nullptr;
};
constexpr row table[] = {
#define TUTTI_ROW(kind, name, coroutine, need, when) {operation_kind::kind, name, needs::need, when, #name},
    TUTTI_ALGORITHM_ROWS(TUTTI_ROW)
#undef TUTTI_ROW
};

// In the order of their values.
constexpr auto every_algorithm = [] {
  std::array<algorithm, static_cast<std::size_t>(hierarchical_split)> all{};
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<algorithm>(i + 1);
  return all;
}();
static_assert(std::ranges::max(table, {}, [](const row& r) { return r.use; }).use == every_algorithm.back());

std::optional<kind> kind_named(std::string_view name) noexcept {
  for (const detail::operation_row& r : detail::operation_rows)
    if (r.of == detail::family::collective && !r.uneven() && name == r.name) return r.kind;
  return std::nullopt;
}

std::optional<algorithm> algorithm_named(std::string_view name) noexcept {
  if (name == "two_level") return hierarchical;               // deprecated
  if (name == "two_level_slices") return hierarchical_split;  // deprecated
  if (name == tutti::name_of(automatic)) return automatic;
  for (const algorithm a : all_algorithms())
    if (name == tutti::name_of(a)) return a;
  return std::nullopt;
}

std::string algorithms_of(kind k) {
  std::string names;
  for (const algorithm a : all_algorithms())
    if (has(k, a)) names += (names.empty() ? "" : ", ") + std::string(tutti::name_of(a));
  return names;
}

[[noreturn]] void refuse(const std::string& source, std::string_view what, const std::string& why) {
  throw error(errc::invalid_argument, fmt::format("{}: '{}': {}", source, what, why));
}

algorithm checked(kind k, std::string_view name, const std::string& source, std::string_view line) {
  const auto a = algorithm_named(name);
  if (!a || (*a != automatic && !has(k, *a)))
    refuse(source, line,
           fmt::format("{} is no algorithm of {}; there are {}", name, name_of(k), algorithms_of(k)));
  return *a;
}

std::map<kind, algorithm> forced_by_environment() {
  std::map<kind, algorithm> forced;
  const auto said = base::env_string("TUTTI_ALGORITHMS");
  if (!said) return forced;
  std::istringstream list(*said);
  for (std::string item; std::getline(list, item, ',');) {
    const std::size_t equals = item.find('=');
    const auto k = kind_named(std::string_view(item).substr(0, equals));
    if (equals == item.npos || !k)
      refuse("TUTTI_ALGORITHMS", item,
             "write collective=algorithm, as in all_reduce=ring,broadcast=binomial");
    const algorithm a = checked(*k, std::string_view(item).substr(equals + 1), "TUTTI_ALGORITHMS", item);
    if (a != automatic) forced[*k] = a;
  }
  return forced;
}

// Throws std::system_error unless it is a regular file that can be read.
std::string contents_of_regular(const std::string& path) {
  const auto check = [](bool good, int code) {
    if (!good) throw std::system_error(code, std::generic_category());
  };
  const base::unique_fd file = base::open_regular(path);
  check(file.get() >= 0, errno);
  std::string text;
  for (std::array<char, 4096> some{};;) {
    const ssize_t n = ::read(file.get(), some.data(), some.size());
    check(n >= 0 || errno == EINTR, errno);
    if (n == 0) return text;
    if (n > 0) text.append(some.data(), static_cast<std::size_t>(n));
  }
}

std::vector<rule> tuned_rules() {
  const auto path = base::env_string("TUTTI_TUNING");
  if (!path) return {};
  std::string text;
  try {
    text = contents_of_regular(*path);
  } catch (const std::system_error& e) {
    throw error(
        errc::invalid_argument,
        fmt::format("TUTTI_TUNING={}: no file that can be read ({}); write it with `tutti-perf tune`, or "
                    "unset the variable",
                    *path, e.code().message()));
  }
  return parse_rules(text, *path);
}

bool meets(const requirement& need, const situation& s) noexcept {
  return (need.first == nullptr || s.*need.first) && (need.second == nullptr || s.*need.second);
}

static_assert(std::ranges::is_sorted(table, {}, &row::of));

// The rows of one kind, which are adjacent.
std::span<const row> rows_of(kind k) noexcept {
  static constexpr auto by_kind = [] {
    std::array<std::span<const row>, std::size(detail::operation_rows)> of;
    for (std::size_t i = 0; i < of.size(); ++i)
      of[i] = std::ranges::equal_range(table, static_cast<kind>(i), {}, &row::of);
    return of;
  }();
  return by_kind[static_cast<std::size_t>(k)];
}

// The last row has the fewest needs. Null: the collective has no such algorithm. The uneven forms use those of
// the even forms that can do them.
const row* find(kind k, algorithm a) noexcept {
  const row* last = nullptr;
  for (const row& r : rows_of(detail::row_of(k).even))
    if (r.use == a) last = &r;
  return last;
}

bool applies(const rule& r, const situation& s) noexcept {
  return (!r.hierarchy || s.hierarchy) && s.ranks >= r.ranks && s.bytes <= r.bytes;
}

double cost_of(algorithm a, const situation& s) noexcept {
  const link_costs& links = s.neighbours ? shared_memory_links : s.one_host ? loopback_links : network_links;
  // Algorithms that reduce all contributions at once send halves as they are, others as floats.
  const bool widened = s.halves && a != direct && a != one_shot;
  return cost_of(detail::row_of(s.kind).even, a, static_cast<double>(s.bytes) * (widened ? 2 : 1), s.ranks,
                 links)
      .time;
}

algorithm by_rows(std::span<const row> rows, const situation& s) noexcept {
  // A row that costs a tenth less is preferred to the ones before: the model is no better than that.
  constexpr double worth = 1.1;
  const row* best = nullptr;
  double least = 0;
  for (const row& r : rows) {
    if (!meets(r.need, s)) continue;
    if (r.when.always) {
      if (s.ranks >= r.when.ranks && s.bytes <= r.when.bytes) return r.use;
      continue;
    }
    const double time = s.ranks > 1 ? cost_of(r.use, s) : 0;
    if (time < 0 || (best != nullptr && time * worth >= least)) continue;
    best = &r;
    least = time;
  }
  return best != nullptr ? best->use : automatic;
}

// Bytes of a whole vector. 0 if ranks know only their own block: all must make the same choice.
std::size_t agreed_bytes(const comm::communicator_state& c, const detail::call& what,
                         const detail::operation_row& row) noexcept {
  if (row.uneven())
    return !row.counts_known() ? 0 : row.in == detail::shape::blocks ? what.in.bytes() : what.out.bytes();
  const bool is_block = (row.agreed == detail::side::in ? row.in : row.out) == detail::shape::block;
  return agreed_buffer(what).bytes() * (is_block ? static_cast<std::size_t>(c.size()) : 1);
}

// Whether a collective has used the segment, or so many have been called without it that making it pays. The same on all
// ranks.
bool segment_pays(const comm::communicator_state& c) noexcept {
  constexpr std::uint32_t calls_before_segment = 8;
  return c.segments()->wanted() || c.order().next() > calls_before_segment;
}

algorithm chosen_for(const situation& s) {
  static const std::map<kind, algorithm> forced = forced_by_environment();
  static const std::vector<rule> tuned = tuned_rules();
  const kind even = detail::row_of(s.kind).even;
  const auto by_force = forced.find(even);
  if (by_force != forced.end() && fits(by_force->second, s)) return by_force->second;
  // Rules are measured with floats. Most algorithms would send halves as floats.
  for (const rule& r : tuned)
    if (!s.halves && r.kind == even && applies(r, s) && fits(r.use, s)) return r.use;
  return by_rows(rows_of(even), s);
}

}  // namespace

situation situation_of(const comm::communicator_state& c, const detail::call& what) {
  const detail::operation_row& row = detail::row_of(what.kind);
  situation s;
  s.kind = what.kind;
  s.ranks = c.size();
  s.one_host = c.group().places().hosts() == 1;
  s.neighbours = c.segments() != nullptr;
  s.hierarchy = c.group().places().hierarchy();
  s.even_hosts = c.group().places().even;
  s.even_blocks = !row.uneven();
  s.bytes = agreed_bytes(c, what, row);
  if (row.reduces && what.op.kind != reduce_kind::premul_sum) {
    const element_type given = agreed_buffer(what).type;
    s.halves = accumulator_of(what.op, given) != given;
  }
  // Reductions use the segment from the first one on, so that the same call always gives the same bits. For
  // the others, making it must pay.
  s.shared_memory = c.segments() != nullptr && (row.reduces || what.prepared != nullptr || segment_pays(c) ||
                                                what.wanted == algorithm::shared_memory);
  if (row.reduces && s.shared_memory &&
      agreed_buffer(what).element_bytes > comm::collective_segment::most_element_bytes)
    s.shared_memory = false;
  s.one_segment = s.shared_memory && c.segments()->flat() != nullptr;
  return s;
}

bool has(operation_kind kind, algorithm a) noexcept { return find(kind, a) != nullptr; }

bool fits(algorithm a, const situation& s) noexcept {
  const row* const r = find(s.kind, a);
  return r != nullptr && meets(r->need, s);
}

std::vector<rule> parse_rules(std::string_view text, const std::string& source) {
  std::vector<rule> rules;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::vector<std::string> word;
    for (std::string w; words >> w;) word.push_back(w);
    if (word.empty()) continue;
    const auto number = [&](std::string_view w, std::string_view prefix) {
      const std::string_view digits = w.substr(std::min(prefix.size(), w.size()));
      const auto value = digits == "any" ? any_size : base::to_number<std::size_t>(digits);
      if (!w.starts_with(prefix) || !value)
        refuse(source, line, fmt::format("'{}' should be {}NUMBER", w, prefix));
      return *value;
    };
    const bool condition =
        word.size() == 5 && (word[4] == "hierarchical" || word[4] == "two_levels");  // deprecated
    if (word.size() < 4 || word.size() > 5 || (word.size() == 5 && !condition))
      refuse(source, line, "a rule is: collective ranks>=N bytes<=N algorithm [hierarchical]");
    const auto k = kind_named(word[0]);
    if (!k) refuse(source, line, fmt::format("there is no collective '{}'", word[0]));
    rule r;
    r.kind = *k;
    r.ranks = static_cast<int>(std::min<std::size_t>(number(word[1], "ranks>="), 1u << 30));
    r.bytes = number(word[2], "bytes<=");
    r.use = checked(*k, word[3], source, line);
    r.hierarchy = word.size() == 5;
    rules.push_back(r);
  }
  return rules;
}

algorithm choose(const situation& s, algorithm wanted) {
  if (wanted != automatic) {
    const row* const r = find(s.kind, wanted);
    if (r == nullptr)
      throw error(errc::invalid_argument, fmt::format("{} has no algorithm {}; there are {}", name_of(s.kind),
                                                      tutti::name_of(wanted), algorithms_of(s.kind)));
    if (!meets(r->need, s))
      throw error(errc::invalid_argument, fmt::format("the algorithm {} cannot do this {}: it needs {}",
                                                      r->name, name_of(s.kind), r->need.text));
    return wanted;
  }
  // A program repeats its calls.
  struct choice {
    situation when;
    algorithm use = automatic;
  };
  static constinit thread_local std::array<choice, std::size(detail::operation_rows)> latest{};
  choice& known = latest[static_cast<std::size_t>(s.kind)];
  if (known.use == automatic || known.when != s) known = {s, chosen_for(s)};
  return known.use;
}

}  // namespace tutti::coll

namespace tutti {

std::span<const algorithm> all_algorithms() noexcept { return coll::every_algorithm; }

const char* name_of(algorithm a) noexcept {
  if (a == algorithm::automatic) return "automatic";
  const auto at = std::ranges::find(coll::table, a, &coll::row::use);
  return at != std::end(coll::table) ? at->name : "?";
}

}  // namespace tutti

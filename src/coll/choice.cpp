// SPDX-License-Identifier: Apache-2.0
#include "coll/choice.hpp"

#include "base/env.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <tutti/error.hpp>

namespace tutti::coll {
namespace {

using kind = operation_kind;
using enum algorithm;

constexpr std::size_t any_size = ~std::size_t{0};
constexpr std::size_t KiB = 1024;

// In the order of kinds; of one kind's the first that fits, from the top. Switch points measured with perf/ on two
// cores over shared memory where perf/NOTES.md says so; the others are MPICH's usual ones.
constexpr rule table[] = {
    {kind::barrier, false, 0, any_size, shared_memory},
    {kind::barrier, true, 0, any_size, hierarchical},
    {kind::barrier, false, 0, any_size, dissemination},

    {kind::broadcast, false, 0, any_size, shared_memory},
    {kind::broadcast, true, 0, any_size, hierarchical},
    {kind::broadcast, false, 8, 512 * KiB, binomial},
    {kind::broadcast, false, 8, any_size, scatter_all_gather},
    {kind::broadcast, false, 0, any_size, binomial},

    {kind::reduce, false, 0, any_size, shared_memory},
    {kind::reduce, true, 0, any_size, hierarchical},
    {kind::reduce, false, 3, 64 * KiB, binomial},
    {kind::reduce, false, 3, any_size, ring},
    {kind::reduce, false, 0, any_size, binomial},

    {kind::all_reduce, false, 0, any_size, shared_memory},
    {kind::all_reduce, true, 0, 64 * KiB, hierarchical},
    {kind::all_reduce, true, 0, any_size, hierarchical_split},
    {kind::all_reduce, true, 0, any_size, hierarchical},
    {kind::all_reduce, false, 0, 64 * KiB, recursive_doubling},
    {kind::all_reduce, false, 4, 1024 * KiB, rabenseifner},
    {kind::all_reduce, false, 0, any_size, ring},

    {kind::scatter, false, 16, 32 * KiB, binomial},
    {kind::scatter, false, 0, any_size, linear},
    {kind::gather, false, 16, 32 * KiB, binomial},
    {kind::gather, false, 0, any_size, linear},

    {kind::all_gather, false, 0, any_size, shared_memory},
    {kind::all_gather, false, 3, 80 * KiB, bruck},
    {kind::all_gather, false, 0, any_size, ring},

    {kind::reduce_scatter, false, 0, any_size, shared_memory},
    {kind::reduce_scatter, false, 0, 256 * KiB, direct},
    {kind::reduce_scatter, false, 0, any_size, ring},

    {kind::all_to_all, false, 3, any_size, shared_memory},
    {kind::all_to_all, false, 0, 16 * KiB, shared_memory},
    {kind::all_to_all, false, 8, 4 * KiB, bruck},
    {kind::all_to_all, false, 0, any_size, pairwise},

    {kind::scan, false, 0, any_size, recursive_doubling},
    {kind::exclusive_scan, false, 0, any_size, recursive_doubling},
};

// The uneven forms have the algorithms of the even ones that can do them.
kind even_form(kind k) noexcept { return detail::row_of(k).even; }

std::optional<kind> kind_named(std::string_view name) noexcept {
  for (const detail::operation_row& r : detail::operation_rows)
    if (r.of == detail::family::collective && !r.uneven() && name == r.name) return r.kind;
  return std::nullopt;
}

std::optional<algorithm> algorithm_named(std::string_view name) noexcept {
  if (name == "two_level") return hierarchical;               // deprecated
  if (name == "two_level_slices") return hierarchical_split;  // deprecated
  for (int a = 0; a <= static_cast<int>(hierarchical_split); ++a)
    if (name == tutti::name_of(static_cast<algorithm>(a))) return static_cast<algorithm>(a);
  return std::nullopt;
}

std::string algorithms_of(kind k) {
  std::string names;
  for (int a = 1; a <= static_cast<int>(hierarchical_split); ++a)
    if (has(k, static_cast<algorithm>(a)))
      names += (names.empty() ? "" : ", ") + std::string(tutti::name_of(static_cast<algorithm>(a)));
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

std::vector<rule> tuned_rules() {
  const auto path = base::env_string("TUTTI_TUNING");
  if (!path || path->empty()) return {};
  std::ifstream file(*path);
  if (!file)
    throw error(
        errc::invalid_argument,
        fmt::format("TUTTI_TUNING={}: cannot be read; write it with `tutti-perf tune`, or unset the variable",
                    *path));
  std::ostringstream text;
  text << file.rdbuf();
  return parse_rules(text.str(), *path);
}

std::optional<algorithm> first_fitting(std::span<const rule> rules, const situation& s) noexcept {
  const kind k = even_form(s.kind);
  for (const rule& r : rules) {
    if (r.kind != k || (r.hierarchy && !s.hierarchy) || s.ranks < r.ranks || s.bytes > r.bytes) continue;
    if (fits(r.use, s)) return r.use;
  }
  return std::nullopt;
}

static_assert(std::ranges::is_sorted(table, {}, &rule::kind));

// The rows of one kind, which stand together.
std::span<const rule> rows_of(kind k) noexcept {
  static constexpr auto first = [] {
    std::array<std::uint8_t, std::size(detail::operation_rows) + 1> at{};
    for (std::size_t of = 0; of < std::size(detail::operation_rows); ++of) {
      std::size_t n = 0;
      for (const rule& r : table) n += static_cast<std::size_t>(r.kind) < of ? 1 : 0;
      at[of] = static_cast<std::uint8_t>(n);
    }
    at.back() = static_cast<std::uint8_t>(std::size(table));
    return at;
  }();
  const auto of = static_cast<std::size_t>(k);
  return std::span(table).subspan(first[of], first[of + 1] - first[of]);
}

}  // namespace

bool has(operation_kind k, algorithm a) noexcept {
  return std::ranges::any_of(rows_of(even_form(k)), [a](const rule& r) { return r.use == a; });
}

bool fits(algorithm a, const situation& s) noexcept {
  switch (a) {
    case hierarchical:
      return s.hierarchy;
    case hierarchical_split:
      return s.hierarchy && s.even_hosts;
    case bruck:
    case binomial:
      return s.even_blocks;
    case shared_memory:
      return s.shared_memory && s.kind != kind::all_to_all_v;
    default:
      return true;
  }
}

std::span<const rule> built_in_rules() noexcept { return table; }

std::vector<rule> parse_rules(std::string_view text, const std::string& source) {
  std::vector<rule> rules;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::vector<std::string> word;
    for (std::string w; words >> w;) word.push_back(w);
    if (word.empty()) continue;
    const auto number = [&](const std::string& w, std::string_view prefix) {
      std::size_t value = 0;
      const char* const begin = w.data() + std::min(prefix.size(), w.size());
      const char* const end = w.data() + w.size();
      if (w.starts_with(prefix) && std::string_view(begin, end) == "any") return any_size;
      const auto [stop, failed] = std::from_chars(begin, end, value);
      if (!w.starts_with(prefix) || failed != std::errc() || stop != end || begin == end)
        refuse(source, line, fmt::format("'{}' should be {}NUMBER", w, prefix));
      return value;
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

std::string text_of(std::span<const rule> rules) {
  std::string text;
  for (const rule& r : rules) {
    const std::string most = r.bytes == any_size ? "any" : std::to_string(r.bytes);
    text += fmt::format("{} ranks>={} bytes<={} {}{}\n", name_of(r.kind), r.ranks, most,
                        tutti::name_of(r.use), r.hierarchy ? " hierarchical" : "");
  }
  return text;
}

algorithm choose(const situation& s, algorithm wanted) {
  if (wanted != automatic) {
    if (!has(s.kind, wanted))
      throw error(errc::invalid_argument, fmt::format("{} has no algorithm {}; there are {}", name_of(s.kind),
                                                      tutti::name_of(wanted), algorithms_of(s.kind)));
    if (!fits(wanted, s))
      throw error(errc::invalid_argument,
                  fmt::format("the algorithm {} cannot do this {}: it needs {}", tutti::name_of(wanted),
                              name_of(s.kind),
                              wanted == hierarchical || wanted == hierarchical_split
                                  ? "several hosts with several ranks each, for slices the same number"
                              : wanted == shared_memory
                                  ? "2 to 16 ranks that all share memory, and blocks that all know"
                                  : "blocks of equal size"));
    return wanted;
  }
  static const std::map<kind, algorithm> forced = forced_by_environment();
  static const std::vector<rule> tuned = tuned_rules();
  const auto by_force = forced.find(even_form(s.kind));
  if (by_force != forced.end() && fits(by_force->second, s)) return by_force->second;
  if (!tuned.empty())
    if (const auto found = first_fitting(tuned, s)) return *found;
  const auto found = first_fitting(rows_of(even_form(s.kind)), s);
  return found ? *found : automatic;
}

}  // namespace tutti::coll

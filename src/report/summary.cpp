// SPDX-License-Identifier: Apache-2.0
#include "report/page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace tutti::report {
namespace {

// Terminals interpret control characters; text of ranks is shown as text only.
std::string plain(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    // Some terminals also interpret U+0080 to U+009F.
    const bool second_set =
        byte == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    if (second_set) ++i;
    out += byte < 0x20 || byte == 0x7F || second_set ? '?' : text[i];
  }
  return out;
}

// Cuts a long name between two characters.
std::string shortened(std::string text) {
  constexpr std::size_t most = 60;
  if (text.size() <= most) return text;
  std::size_t end = most - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

}  // namespace

std::string summary_of(const run_data& run) {
  std::string out = fmt::format("{}: {} ranks\n\n", plain(run.name), run.size);
  out += fmt::format("{:>5}  {:<12} {:<16} {:>8} {:>10} {:>8} {:>7}\n", "rank", "state", "host", "process",
                     "written", "dropped", "failed");
  for (const rank_data& r : run.ranks)
    out += fmt::format("{:>5}  {:<12} {:<16} {:>8} {:>10} {:>8} {:>7}\n", plain(r.key()), name_of(r.state),
                       plain(r.host), r.pid, r.written, r.dropped, r.failed);
  for (const std::string& damage : run.damage) out += plain(damage) + "\n";
  if (run.absent() > 0) out += fmt::format("{} ranks have left nothing\n", run.absent());

  std::map<std::string, std::vector<const rank_data*>> who;
  for (const rank_data& r : run.ranks)
    for (const auto& [name, points] : r.series)
      if (!is_machine_series(name) && !points.empty()) who[name].push_back(&r);
  if (!who.empty())
    out += fmt::format("\n{:<28} {:>5} {:>8} {:>12} {:>12} {:>12}\n", "series", "rank", "points", "first",
                       "last", "least");
  for (const auto& [name, ranks] : who)
    for (const rank_data* const r : ranks) {
      const std::vector<point>& points = r->series.at(name);
      double least = std::numeric_limits<double>::infinity();
      for (const point& p : points) least = std::fmin(least, p.value);
      out += fmt::format("{:<28} {:>5} {:>8} {:>12.5g} {:>12.5g} {:>12.5g}\n", shortened(plain(name)),
                         plain(r->key()), points.size(), points.front().value, points.back().value, least);
    }

  const std::vector<time_split> times = times_of(run);
  if (!times.empty())
    out += fmt::format("\n{:>5} {:>10} {:>9} {:>14} {:>9} {:>12} {:>12}\n", "rank", "seconds", "compute",
                       "communication", "waiting", "slowest in", "hidden comm.");
  for (std::size_t i = 0; i < times.size(); ++i) {
    const double total = std::max(times[i].total(), 1e-12);
    out += fmt::format("{:>5} {:>10.4g} {:>8.1f}% {:>13.1f}% {:>8.1f}% {:>12} {:>11.1f}%\n",
                       plain(run.ranks[i].key()), times[i].total(), 100 * times[i].compute / total,
                       100 * times[i].communication / total, 100 * times[i].waiting / total, times[i].slowest,
                       100 * times[i].hidden / total);
  }
  return out;
}

}  // namespace tutti::report

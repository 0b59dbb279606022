// SPDX-License-Identifier: Apache-2.0
#include "common/comparison_text.hpp"

#include "common/sizes.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <map>

namespace perf {
namespace {

__attribute__((format(printf, 1, 2))) std::string text(const char* format, ...) {
  char buffer[256];
  std::va_list arguments;
  va_start(arguments, format);
  const int length = std::vsnprintf(buffer, sizeof buffer, format, arguments);
  va_end(arguments);
  return std::string(buffer,
                     static_cast<std::size_t>(std::clamp(length, 0, static_cast<int>(sizeof buffer) - 1)));
}

// Three significant digits.
std::string text_of(double value) {
  int decimals = 3;
  for (double limit = 1; value >= limit && decimals > 0; limit *= 10) --decimals;
  return text("%.*f", decimals, value);
}

std::string text_of(const summary& times) {
  return text_of(times.median) + " (" + text_of(times.min) + ".." + text_of(times.max) + ")";
}

// "openmpi 0.20, mpich 0.31": all rivals but the fastest.
std::string text_of_rest(const comparison_row& r) {
  std::string result;
  for (std::size_t i = 1; i < r.others.size(); ++i)
    result += (i > 1 ? ", " : "") + r.others[i].peer + " " + text_of(r.others[i].us.median);
  return result;
}

std::string text_of_verdict(const comparison_row::verdict& v) {
  const std::string seen = v.against.empty() ? "not judged," : text("%.2f", v.reached);
  return text_of(v.aim) + ": " + seen + (v.met ? " met" : " **not met**");
}

std::string text_of_verdicts(const std::vector<comparison_row::verdict>& verdicts) {
  std::string result;
  for (const auto& v : verdicts) result += (result.empty() ? "" : "; ") + text_of_verdict(v);
  return result;
}

std::string line_of(const comparison_row& r, bool has_rival) {
  std::string line = "| " + text_of_size(r.bytes) + " | " + r.own.peer + " | " + text_of(r.own.us) + " | ";
  if (has_rival) {
    if (r.rival.peer.empty())
      line += " | | |";
    else
      line += r.rival.peer + " " + text_of(r.rival.us) +
              text(" | **%.2f** (%.2f..%.2f) | ", r.ratio.median, r.ratio.min, r.ratio.max) +
              text_of_rest(r) + " | ";
  }
  line += r.limit_us > 0 ? text_of(r.limit_us) + " | " : " | ";
  line += text_of(r.own.cpu_us);
  if (has_rival) {
    line += " / " + text_of(r.rival.cpu_us) + text(" | %d ", r.pairs) + r.place;
    if (!r.complete) line += ", not all rivals";
    if (r.left_out > 0) line += text(", %d left out", r.left_out);
    line += " | " + text_of_verdicts(r.verdicts);
  }
  return line + " | " + (r.good ? "ok" : "**WRONG**") + " |\n";
}

std::string table_of_times(const benchmark& of) {
  const std::vector<comparison_row> rows = compare(of);
  const bool has_rival =
      std::any_of(rows.begin(), rows.end(), [](const comparison_row& r) { return !r.rival.peer.empty(); });
  const char* const unit = uses_means(of) ? "mean us" : "us";
  std::string result = has_rival
                           ? std::string("| size | own | ") + unit +
                                 " | best rival | ratio | other rivals | limit | CPU us/op | pairs, place "
                                 "| target | checked |\n|---|---|---|---|---|---|---|---|---|---|---|\n"
                           : std::string("| size | own | ") + unit +
                                 " | limit | CPU us/op | checked |\n|---|---|---|---|---|---|\n";
  for (const comparison_row& r : rows) result += line_of(r, has_rival);
  return result;
}

std::string table_of_overlaps(const benchmark& of) {
  std::string result =
      "| size | computing | | overlap | t_comm us | t_compute us | t_both us | both/bound | CPU both/sum | "
      "target | checked |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|\n";
  for (const overlap_value& v : overlaps_of(of)) {
    const overlap_row& m = v.median;
    const double sum = std::max(m.comm_cpu_us + m.compute_cpu_us, 1e-9);
    result += "| " + text_of_size(m.bytes) + " | " + m.mode + " | " + v.peer +
              text(" | %.0f %% | ", 100 * m.overlap) + text_of(m.comm_us) + " | " + text_of(m.compute_us) +
              " | " + text_of(m.both_us) +
              text(" | %.2f | %.2f | ", m.both_us / std::max(m.bound_us, 1e-9), m.both_cpu_us / sum) +
              text_of_verdicts(v.verdicts) + " | " + (v.good ? "ok" : "**WRONG**") + " |\n";
  }
  return result;
}

std::string line_of_target(const benchmark& of, std::size_t bytes, const std::string& own,
                           const std::string& place, const comparison_row::verdict& v) {
  return "| " + of.name + " | " + (bytes > 0 ? text_of_size(bytes) : std::string("-")) + " | " + own + " | " +
         place + " | " + v.against + " | " + (v.against.empty() ? "not judged" : text("%.2f", v.reached)) +
         " | " + text_of(v.aim) + " | " + (v.met ? "met" : "**not met**") + " |\n";
}

}  // namespace

std::string text_of_peers(const benchmark& of) {
  std::map<std::string, int> launches;
  for (const launch& one : of.launches) ++launches[one.peer];
  std::string result;
  for (const launch& one : of.launches) {
    const auto found = launches.find(one.peer);
    if (found == launches.end()) continue;
    result += (result.empty() ? "" : "; ") + one.peer + ": " + one.what.library + " (" + one.what.transport +
              (one.what.loop.empty() ? "" : ", loop " + one.what.loop) +
              text(", %d launches)", found->second);
    launches.erase(found);
  }
  return result;
}

std::string markdown_of(const benchmark& of) {
  if (of.launches.empty()) return {};
  const report& about = of.launches.front().what;
  std::string result =
      "\n### " + of.name + "\n\n" + about.command + text(", %d ranks on %d cores", about.ranks, about.cores) +
      (about.binding == "free" ? "" : ", " + about.binding) +
      (about.contents == "unchanged" ? "" : ", " + about.contents) + ". " + text_of_peers(of) + ".\n\n";
  return result + (about.command == "overlap" ? table_of_overlaps(of) : table_of_times(of));
}

std::string markdown_of_ratios(const std::vector<benchmark>& all) {
  std::string lines;
  for (const benchmark& of : all) {
    const std::string main = {main_place(of)};
    std::map<std::string, std::string> cells;  // by peer of ours
    for (const comparison_row& r : compare(of)) {
      if (r.rival.peer.empty() || (r.place != main && r.place != "mixed")) continue;
      std::string& cell = cells[r.own.peer];
      cell += (cell.empty() ? "" : ", ") + text_of_size(r.bytes) +
              text(r.ratio.median <= 1 ? " **%.2f** " : " %.2f ", r.ratio.median) + r.rival.peer;
    }
    for (const auto& [own, cell] : cells) lines += "| " + of.name + " | " + own + " | " + cell + " |\n";
  }
  if (lines.empty()) return {};
  return "\n## Ratio to the fastest rival\n\nIn the place with most measurements. **Bold**: tutti is at "
         "least "
         "as fast.\n\n| case | own | by size |\n|---|---|---|\n" +
         lines;
}

std::string markdown_of_targets(const std::vector<benchmark>& all) {
  std::string lines;
  int met = 0, count = 0;
  const auto add = [&](const benchmark& of, std::size_t bytes, const std::string& own,
                       const std::string& place, const comparison_row::verdict& v) {
    lines += line_of_target(of, bytes, own, place, v);
    ++count;
    met += v.met ? 1 : 0;
  };
  for (const benchmark& of : all) {
    for (const comparison_row& r : compare(of))
      for (const auto& v : r.verdicts) add(of, r.bytes, r.own.peer, r.place, v);
    for (const overlap_value& o : overlaps_of(of))
      for (const auto& v : o.verdicts) add(of, o.median.bytes, o.peer, o.median.mode, v);
  }
  if (count == 0) return "\n## Targets\n\nNone of the measured cases has one.\n";
  return text("\n## Targets: %d of %d met\n\n", met, count) +
         "| case | size | own | place | against | reached | target | |\n|---|---|---|---|---|---|---|---|\n" +
         lines;
}

}  // namespace perf

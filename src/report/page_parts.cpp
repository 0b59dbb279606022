// SPDX-License-Identifier: Apache-2.0
#include "report/page_parts.hpp"

#include "report/chart.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <set>

namespace tutti::report {
namespace {

constexpr const char* head = R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root { color-scheme: light dark; --ink: light-dark(#1d2430, #e4e7ec); --soft: light-dark(#6b7483, #97a0af); --rule: light-dark(#e2e5ea, #333a45); }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: light-dark(#fff, #14181e); max-width: 1460px; margin: 0 auto; padding: 1.2em 1.5em 4em; }
h1 { font-size: 1.5em; margin: 0 0 .1em; } h2 { font-size: 1.15em; margin: 2em 0 .6em; border-bottom: 1px solid var(--rule); padding-bottom: .2em; }
.soft { color: var(--soft); } table { border-collapse: collapse; } td, th { padding: .25em .9em .25em 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--rule); }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; } pre { overflow: auto; max-height: 26em; padding: .6em .8em; background: light-dark(#f5f6f8, #1c2129); border-radius: 5px; font-size: 12.5px; }
.grid-of { display: grid; grid-template-columns: repeat(auto-fill, minmax(420px, 1fr)); gap: 14px; }
svg.chart { width: 100%; height: auto; } svg.bars { max-width: 900px; width: 100%; }
svg text { fill: var(--ink); } svg .title { font-size: 13px; font-weight: 600; } svg .tick { font-size: 10.5px; fill: var(--soft); }
svg .grid { stroke: var(--rule); } svg .line, svg .shadow { fill: none; stroke-width: 1.5; stroke-linecap: round; stroke-linejoin: round; } svg .shadow { opacity: .18; stroke-width: 1; }
.key { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin: 0 .35em 0 .9em; vertical-align: -1px; }
.finished, .running { color: light-dark(#1a7f4b, #4cc38a); } .died, .closed, .stopped, .unresponsive { color: light-dark(#c0392b, #ff7b6b); font-weight: 600; }
.scroll { overflow-x: auto; }
figure { margin: 0; display: inline-block; margin-right: 1em; } figure img { min-width: 96px; image-rendering: pixelated; border: 1px solid var(--rule); }
summary { cursor: pointer; }
</style>)";

}  // namespace

std::string page_head(const std::string& title, const std::string& line) {
  return head + fmt::format("<title>{0}</title></head><body><h1>{0}</h1><p class=soft>{1}</p>",
                            escaped(title), escaped(line));
}

std::string time_text(double seconds) {
  constexpr double year_10000 = 253'402'300'800.0;  // later: of a damaged file
  if (!(seconds > 0) || seconds >= year_10000) return "";
  const auto when = static_cast<std::time_t>(seconds);
  std::tm parts{};
  ::localtime_r(&when, &parts);
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", parts);
}

std::string curves(const std::vector<curve_source>& sources) {
  std::set<std::string> names;
  std::string legend, own, machine;
  for (const curve_source& s : sources) {
    legend += legend_entry(s.number, s.label);
    for (const auto& [name, points] : *s.series) names.insert(name);
  }
  if (names.empty()) return {};
  for (const std::string& name : names) {
    std::vector<line_data> lines;
    for (const curve_source& s : sources)
      if (const auto found = s.series->find(name); found != s.series->end())
        lines.push_back({s.number, s.label, &found->second});
    (is_machine_series(name) ? machine : own) += line_chart(name, lines);
  }
  std::string out = "<h2>Curves</h2><p class=soft>" + legend + "</p><div class=\"grid-of\">" + own + "</div>";
  if (!machine.empty())
    out +=
        "<details><summary>Time and machine</summary><div class=\"grid-of\">" + machine + "</div></details>";
  return out;
}

}  // namespace tutti::report

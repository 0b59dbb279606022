// SPDX-License-Identifier: Apache-2.0
#include "report/page.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <iterator>
#include <limits>
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

constexpr double width = 460, height = 220;
constexpr double left = 58, right = 10, top = 26, bottom = 26;
constexpr double inner_width = width - left - right, inner_height = height - top - bottom;
// More points than pixels show nothing: each pixel's column gets its extremes.
constexpr std::size_t most_points = 900;
constexpr std::size_t few_points = 200;

struct range {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  void take(double v) {
    low = std::min(low, v);
    high = std::max(high, v);
  }
  bool empty() const { return low > high; }
  void widen() {
    if (high > low) return;
    const double by = low == 0 ? 1 : std::abs(low) * 0.1;
    low -= by;
    high += by;
  }
  double share(double v) const { return (v / 2 - low / 2) / (high / 2 - low / 2); }
};

std::vector<point> thinned(const std::vector<point>& all) {
  if (all.size() <= most_points) return all;
  std::vector<point> some;
  const std::size_t columns = most_points / 2;
  for (std::size_t c = 0; c < columns; ++c) {
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(c * all.size() / columns);
    const auto last = all.begin() + static_cast<std::ptrdiff_t>((c + 1) * all.size() / columns);
    auto low = last, high = last;
    for (auto at = first; at != last; ++at) {
      if (!std::isfinite(at->value)) continue;
      if (low == last || at->value < low->value) low = at;
      if (high == last || at->value > high->value) high = at;
    }
    if (low == last) low = high = first;  // a gap
    if (high < low) std::swap(low, high);
    some.push_back(*low);
    if (high != low) some.push_back(*high);
  }
  return some;
}

// A decaying mean over about a fiftieth of the points.
std::vector<point> smooth(const std::vector<point>& all) {
  std::vector<point> some = all;
  const double share = 50.0 / static_cast<double>(all.size());
  double mean = 0, weight = 0;
  for (point& p : some) {
    if (!std::isfinite(p.value)) continue;
    mean = (1 - share) * mean + share * p.value;
    weight = (1 - share) * weight + share;
    p.value = mean / weight;
  }
  return some;
}

std::string frame(const std::string& title) {
  return fmt::format(
      "<svg class=\"chart\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\"><text class=\"title\" "
      "x=\"{}\" y=\"16\">{}</text>",
      width, height, escaped(title), left, escaped(title));
}

// Four horizontal lines with their values, and the ends of the steps.
std::string axes(const range& x, const range& y) {
  std::string out;
  for (int i = 0; i <= 4; ++i) {
    const double at = top + inner_height * (1 - i / 4.0);
    out += fmt::format(
        "<line class=\"grid\" x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/><text class=\"tick\" "
        "x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5}</text>",
        left, width - right, at, left - 5, at + 3, short_number(y.low * (1 - i / 4.0) + y.high * (i / 4.0)));
  }
  out += fmt::format(
      "<text class=\"tick\" x=\"{}\" y=\"{}\">{}</text><text class=\"tick\" x=\"{}\" y=\"{}\" "
      "text-anchor=\"end\">{}</text>",
      left, height - 8, short_number(x.low), width - right, height - 8, short_number(x.high));
  return out;
}

// The colour of line n, far from those of its neighbours.
std::string colour_of(int number) {
  return fmt::format("hsl({:.0f} 65% 45%)", std::fmod(210 + number * 137.5, 360));
}

// Of one series.
std::string line_chart(const std::string& name, const std::vector<curve_source>& sources) {
  std::vector<std::pair<const curve_source*, const std::vector<point>*>> lines;
  range x, y;
  for (const curve_source& s : sources) {
    const auto found = s.series->find(name);
    if (found == s.series->end()) continue;
    lines.emplace_back(&s, &found->second);
    for (const point& p : found->second)
      if (std::isfinite(p.value)) {
        x.take(p.step);
        y.take(p.value);
      }
  }
  std::string out = frame(name);
  if (x.empty())
    return out + fmt::format("<text class=\"tick\" x=\"{}\" y=\"{}\">no finite value</text></svg>", left,
                             height / 2);
  x.widen();
  y.widen();
  out += axes(x, y);
  const auto draw = [&](const curve_source& line, const std::vector<point>& points, const char* style) {
    std::string path;
    bool pen_down = false;
    for (const point& p : points) {
      const bool is_there = std::isfinite(p.value);
      if (is_there)
        path += fmt::format("{}{:.1f} {:.1f}", pen_down ? 'L' : 'M', left + inner_width * x.share(p.step),
                            top + inner_height * (1 - y.share(p.value)));
      pen_down = is_there;
    }
    // A round cap shows a single point as a dot.
    out +=
        fmt::format("<path class=\"{}\" data-line=\"{}\" d=\"{}\" stroke=\"{}\"><title>{}</title></path>",
                    style, line.number, path.find('L') == path.npos && !path.empty() ? path + "h0.01" : path,
                    colour_of(line.number), escaped(line.label));
  };
  // Many points: a smoothed line shows their course, over a shadow of the points.
  for (const auto& [line, points] : lines)
    if (points->size() > few_points) draw(*line, thinned(*points), "shadow");
  for (const auto& [line, points] : lines)
    draw(*line, thinned(points->size() > few_points ? smooth(*points) : *points), "line");
  return out + "</svg>";
}

}  // namespace

std::string page_head(const std::string& title, const std::string& line) {
  return head + fmt::format("<title>{0}</title></head><body><h1>{0}</h1><p class=soft>{1}</p>",
                            escaped(title), escaped(line));
}

std::string time_text(double seconds) {
  constexpr double year_10000 = 253'402'300'800.0;  // later: of a damaged file
  if (!(seconds > 0) || seconds >= year_10000) return "";
  const auto whole = static_cast<std::time_t>(seconds);
  std::tm local{};
  if (::localtime_r(&whole, &local) == nullptr) return "";
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", local);
}

std::string escaped(const std::string& text) {
  using replacement = std::pair<char, const char*>;
  // '\r': a line drawn over another, as progress bars do.
  constexpr replacement special[] = {{'&', "&amp;"},  {'<', "&lt;"},   {'>', "&gt;"},
                                     {'"', "&quot;"}, {'\'', "&#39;"}, {'\r', "\n"}};
  std::string out;
  for (const char c : text) {
    const auto* const found = std::ranges::find(special, c, &replacement::first);
    if (found != std::end(special))
      out += found->second;
    else if (static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\t')
      out += c;  // other control characters are not valid HTML
  }
  return out;
}

std::string short_number(double value) {
  const std::string text = fmt::format("{:.4g}", value);
  return text.size() > 8 ? fmt::format("{:.2g}", value)
                         : text;  // as much as there is room for beside a picture
}

std::string legend_entry(int number, const std::string& label) {
  return fmt::format("<span class=\"key\" style=\"background:{}\"></span>{}", colour_of(number),
                     escaped(label));
}

std::string histogram_chart(const std::string& title, const histogram_data& h, int rank) {
  std::string out = frame(title);
  const double most = h.counts.empty() ? 0 : *std::max_element(h.counts.begin(), h.counts.end());
  range x, y;
  x.take(h.min);
  x.take(h.max);
  y.take(0);
  y.take(most);
  x.widen();
  y.widen();
  out += axes(x, y);
  const double step = inner_width / static_cast<double>(std::max<std::size_t>(h.counts.size(), 1));
  for (std::size_t i = 0; i < h.counts.size(); ++i) {
    const double tall = inner_height * y.share(h.counts[i]);
    out += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"/>",
                       left + step * static_cast<double>(i), top + inner_height - tall,
                       std::max(step - 0.5, 0.5), tall, colour_of(rank));
  }
  return out + "</svg>";
}

std::string curves(const std::vector<curve_source>& sources) {
  std::set<std::string> names;
  std::string legend, own, machine;
  for (const curve_source& s : sources) {
    legend += legend_entry(s.number, s.label);
    for (const auto& [name, points] : *s.series) names.insert(name);
  }
  if (names.empty()) return {};
  for (const std::string& name : names)
    (is_machine_series(name) ? machine : own) += line_chart(name, sources);
  std::string out = "<h2>Curves</h2><p class=soft>" + legend + "</p><div class=\"grid-of\">" + own + "</div>";
  if (!machine.empty())
    out +=
        "<details><summary>Time and machine</summary><div class=\"grid-of\">" + machine + "</div></details>";
  return out;
}

}  // namespace tutti::report

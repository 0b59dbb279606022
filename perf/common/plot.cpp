// SPDX-License-Identifier: Apache-2.0
#include "common/plot.hpp"

#include "common/placement.hpp"
#include "common/statistics.hpp"

#include <algorithm>
#include <cstdio>
#include <map>

namespace perf {
namespace {

// One style per peer in all pictures: tutti solid and dark, the limit dashed and grey.
std::string style_of(const std::string& peer) {
  const std::map<std::string, const char*> known{
      {"tutti", "lc rgb '#c02020' lw 2.5 pt 7"},        {"tutti-shared", "lc rgb '#e08020' lw 2.5 pt 5"},
      {"openmpi", "lc rgb '#2060c0' lw 1.5 pt 9"},      {"mpich", "lc rgb '#209060' lw 1.5 pt 11"},
      {"mpich-async", "lc rgb '#60c0a0' lw 1.5 pt 10"}, {"ucx", "lc rgb '#803090' lw 1.5 pt 13"},
      {"gloo", "lc rgb '#907020' lw 1.5 pt 4"},         {"gloo-ring", "lc rgb '#907020' lw 1.5 pt 4"},
      {"gloo-bcube", "lc rgb '#b0a040' lw 1.5 pt 6"},   {"gloo-hd", "lc rgb '#605010' lw 1.5 pt 8"},
      {"limit", "lc rgb '#808080' lw 1.5 dt 2 pt 0"}};
  const auto found = known.find(peer);
  return found != known.end() ? found->second : "lw 1.5 pt 3";
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

std::string label_of(const benchmark& of, char place) {
  const report& about = of.launches.front().what;
  std::string label = about.command + ", " + std::to_string(about.ranks) + " ranks on " +
                      std::to_string(about.cores) + " cores, " + about.transport;
  if (about.binding != "free") label += ", " + about.binding;
  if (about.contents != "unchanged") label += ", " + about.contents;
  if (place != unknown_place) label += ", place " + std::string(1, place);
  return label;
}

// `columns`: gnuplot's expression for the columns of the data blocks.
std::string plot_line(const std::vector<curve>& curves, const char* columns) {
  std::string line = "plot ";
  for (std::size_t i = 0; i < curves.size(); ++i)
    line += (i > 0 ? ", \\\n  " : "") + std::string("$data") + std::to_string(i) + " using " + columns +
            " with linespoints " + style_of(curves[i].peer) + " title '" + curves[i].peer + "'";
  return line + "\n";
}

}  // namespace

std::vector<curve> curves_of(const benchmark& of) {
  const char place = main_place(of);
  const bool means = uses_means(of);
  std::vector<curve> curves;
  std::map<std::string, std::map<std::size_t, std::vector<double>>> times;
  for (const launch& one : of.launches) {
    if (std::none_of(curves.begin(), curves.end(), [&](const curve& c) { return c.peer == one.peer; }))
      curves.push_back({one.peer, {}});
    for (const row& r : one.what.rows) {
      const bool here = place_of(r.line_before_ns) == place && place_of(r.line_after_ns) == place;
      if (here || place == unknown_place) times[one.peer][r.bytes].push_back(means ? r.mean_us : r.median_us);
    }
  }
  for (curve& c : curves)
    for (const auto& [bytes, values] : times[c.peer]) {
      const summary s = summarize(values);
      c.points.push_back({bytes, s.median, s.min, s.max});
    }
  std::erase_if(curves, [](const curve& c) { return c.points.empty(); });
  return curves;
}

std::string gnuplot_script(const benchmark& of, const std::string& file) {
  const std::vector<curve> curves = curves_of(of);
  const bool enough =
      std::any_of(curves.begin(), curves.end(), [](const curve& c) { return c.points.size() >= 2; });
  if (!enough) return {};
  std::string script;
  for (std::size_t i = 0; i < curves.size(); ++i) {
    script += "$data" + std::to_string(i) + " << end\n";
    for (const curve::point& p : curves[i].points)
      script += std::to_string(std::max<std::size_t>(p.bytes, 1)) + " " + number(p.us) + " " +
                number(p.least_us) + " " + number(p.most_us) + "\n";
    script += "end\n";
  }
  script +=
      "set terminal svg size 1100,480 noenhanced background rgb 'white' font 'sans,12'\n"
      "set output '" +
      file +
      "'\n"
      "set multiplot layout 1,2 title '" +
      label_of(of, main_place(of)) +
      "'\n"
      "set logscale x 2\nset logscale y 10\nset grid\nset format y '%g'\nset key top left\nset xlabel "
      "'bytes'\n"
      "set xtics ('8' 8, '64' 64, '1 KiB' 1024, '8 KiB' 8192, '64 KiB' 65536, '1 MiB' 1048576, '16 MiB' "
      "16777216)\n";
  script += uses_means(of) ? "set ylabel 'us (mean)'\n" : "set ylabel 'us (median)'\n";
  script += plot_line(curves, "1:2");
  script += "set ylabel 'GB/s (bytes / time)'\n" + plot_line(curves, "1:($1/$2/1000)");
  return script + "unset multiplot\nunset output\n";
}

}  // namespace perf

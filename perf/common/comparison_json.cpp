// SPDX-License-Identifier: Apache-2.0
// Comparisons as JSON: one object per benchmark, its rows in "rows" or "overlaps"; names contain the units.
#include "common/comparison_text.hpp"

#include <nlohmann/json.hpp>

#include <cmath>

namespace perf {

// Four digits: the spread of the launches is far wider.
static double rounded(double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  const double scale = std::pow(10, 3 - std::floor(std::log10(std::abs(value))));
  return scale >= 1 ? std::round(value * scale) / scale : std::round(value);
}

// nlohmann_json calls functions of this name.
static void to_json(nlohmann::json& to, const summary& s) {
  to = {{"median", rounded(s.median)}, {"min", rounded(s.min)}, {"max", rounded(s.max)}};
}

static void to_json(nlohmann::json& to, const peer_value& p) {
  to = {{"peer", p.peer}, {"us", p.us}, {"cpu_us", rounded(p.cpu_us)}, {"launches", p.launches}};
}

static void to_json(nlohmann::json& to, const comparison_row::verdict& v) {
  to = {{"target", text_of(v.aim)}, {"against", v.against}, {"reached", rounded(v.reached)}, {"met", v.met}};
}

static void to_json(nlohmann::json& to, const comparison_row& r) {
  to = {{"bytes", r.bytes},       {"place", r.place},   {"own", r.own},    {"pairs", r.pairs},
        {"left_out", r.left_out}, {"rivals", r.others}, {"right", r.good}, {"targets", r.verdicts}};
  if (!r.rival.peer.empty()) to["ratio_to_best"] = r.ratio;
  if (r.limit_us > 0) to["limit_us"] = rounded(r.limit_us);
}

static void to_json(nlohmann::json& to, const overlap_value& v) {
  const overlap_row& m = v.median;
  to = {{"bytes", m.bytes},
        {"compute", m.mode},
        {"peer", v.peer},
        {"launches", v.launches},
        {"overlap", rounded(m.overlap)},
        {"comm_us", rounded(m.comm_us)},
        {"compute_us", rounded(m.compute_us)},
        {"both_us", rounded(m.both_us)},
        {"bound_us", rounded(m.bound_us)},
        {"comm_cpu_us", rounded(m.comm_cpu_us)},
        {"compute_cpu_us", rounded(m.compute_cpu_us)},
        {"both_cpu_us", rounded(m.both_cpu_us)},
        {"targets", v.verdicts},
        {"right", v.good}};
}

static void to_json(nlohmann::json& to, const benchmark& of) {
  const report& about = of.launches.front().what;
  to = {{"name", of.name},
        {"command", about.command},
        {"ranks", about.ranks},
        {"cores", about.cores},
        {"binding", about.binding},
        {"contents", about.contents},
        {"machine", about.machine},
        {"peers", text_of_peers(of)},
        {"times_are", uses_means(of) ? "means" : "medians"},
        {"rows", compare(of)},
        {"overlaps", overlaps_of(of)}};
}

std::string json_of(const std::vector<benchmark>& all, const std::string& method) {
  const auto text = [](const nlohmann::json& of) {
    return of.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  std::string lines;
  for (const benchmark& of : all) lines += (lines.empty() ? "\n" : ",\n") + text(of);
  return "{\"method\":" + text(method) + ",\"benchmarks\":[" + lines + "]}\n";
}

}  // namespace perf

// SPDX-License-Identifier: Apache-2.0
// Comparisons as JSON: one object per benchmark, its rows in "rows" or "overlaps"; names contain the units.
#include "common/comparison_text.hpp"

#include <nlohmann/json.hpp>

namespace perf {

// nlohmann_json calls functions of this name.
static void to_json(nlohmann::json& to, const summary& s) {
  to = {{"median", s.median}, {"min", s.min}, {"max", s.max}};
}

static void to_json(nlohmann::json& to, const peer_value& p) {
  to = {{"peer", p.peer}, {"us", p.us}, {"cpu_us", p.cpu_us}, {"launches", p.launches}};
}

static void to_json(nlohmann::json& to, const comparison_row::verdict& v) {
  to = {{"target", text_of(v.aim)}, {"against", v.against}, {"reached", v.reached}, {"met", v.met}};
}

static void to_json(nlohmann::json& to, const comparison_row& r) {
  to = {{"bytes", r.bytes},       {"place", r.place},   {"own", r.own},    {"pairs", r.pairs},
        {"left_out", r.left_out}, {"rivals", r.others}, {"right", r.good}, {"targets", r.verdicts}};
  if (!r.rival.peer.empty()) to["ratio_to_best"] = r.ratio;
  if (r.limit_us > 0) to["limit_us"] = r.limit_us;
}

static void to_json(nlohmann::json& to, const overlap_value& v) {
  const overlap_row& m = v.median;
  to = {{"bytes", m.bytes},
        {"compute", m.mode},
        {"peer", v.peer},
        {"launches", v.launches},
        {"overlap", m.overlap},
        {"comm_us", m.comm_us},
        {"compute_us", m.compute_us},
        {"both_us", m.both_us},
        {"bound_us", m.bound_us},
        {"comm_cpu_us", m.comm_cpu_us},
        {"compute_cpu_us", m.compute_cpu_us},
        {"both_cpu_us", m.both_cpu_us},
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
  const nlohmann::json whole{{"method", method}, {"benchmarks", all}};
  return whole.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace perf

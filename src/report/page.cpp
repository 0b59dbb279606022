// SPDX-License-Identifier: Apache-2.0
#include "report/page.hpp"

#include "report/run_files.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/archive/iterators/base64_from_binary.hpp>
#include <boost/archive/iterators/transform_width.hpp>
#include <cctype>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <ranges>
#include <set>
#include <span>

namespace tutti::report {
namespace {

constexpr std::size_t largest_picture_bytes = std::size_t{4} << 20,
                      all_pictures_bytes = std::size_t{48} << 20;
constexpr std::size_t most_texts = 300;  // of a rank

struct phase {
  const char* name;
  const char* colour;
  double time_split::* seconds;
};
constexpr phase phases[] = {{"compute", "#3b7dd8", &time_split::compute},
                            {"communication", "#e08a2e", &time_split::communication},
                            {"waiting", "#b9bec7", &time_split::waiting}};

std::string rank_key(const rank_data& r) { return legend_entry(r.rank, r.name()); }

std::string base64(const std::string& bytes) {
  using namespace boost::archive::iterators;
  using letters = base64_from_binary<transform_width<std::string::const_iterator, 6, 8>>;
  std::string out(letters(bytes.begin()), letters(bytes.end()));
  return out.append((3 - bytes.size() % 3) % 3, '=');
}

// Paths come from a file: nothing outside the run is linked to.
bool is_inside(const std::string& path) {
  const std::filesystem::path p(path);
  return !path.empty() && p.is_relative() && std::find(p.begin(), p.end(), "..") == p.end();
}

std::string link_of(const std::string& path) {
  std::string out;
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || c == '/' || c == '-' || c == '_' || c == '.') {
      out += c;
    } else {
      out += fmt::format("%{:02X}", byte);
    }
  }
  return "./" + out;
}

std::string ranks_section(const run_data& run) {
  std::string out =
      "<h2>Ranks</h2><table><tr><th>rank</th><th>state</th><th>host</th><th "
      "class=n>process</th><th>opened</th><th>last sign of life</th>"
      "<th class=n>written</th><th class=n>dropped</th><th class=n>failed</th><th></th></tr>";
  for (const rank_data& r : run.ranks)
    out += row(rank_key(r), fmt::format("<span class=\"{0}\">{0}</span>", name_of(r.state)), escaped(r.host),
               r.pid, time_text(r.opened), time_text(r.heartbeat), r.written, r.dropped, r.failed,
               escaped(r.failure));
  out += "</table>";
  if (run.absent() > 0)
    out += fmt::format("<p class=died>{} of {} ranks have left nothing here.</p>", run.absent(), run.size);
  for (const std::string& damage : run.damage) out += fmt::format("<p class=soft>{}.</p>", escaped(damage));
  return out;
}

std::string curves_section(const run_data& run) {
  std::vector<curve_source> sources;
  for (const rank_data& r : run.ranks) sources.push_back({r.rank, r.name(), &r.series});
  return curves(sources);
}

// A row for each rank. The longest sets the scale.
std::string bars(const run_data& run, const std::vector<time_split>& times) {
  constexpr double row_height = 22, label = 70, long_row = 700;
  const double longest = std::ranges::max(times, {}, &time_split::total).total();
  std::string out = fmt::format("<svg class=\"bars\" viewBox=\"0 0 {} {}\" role=\"img\">",
                                label + long_row + 10, row_height * static_cast<double>(times.size()) + 4);
  for (std::size_t i = 0; i < times.size(); ++i) {
    const double y = row_height * static_cast<double>(i) + 2;
    out += fmt::format("<text class=\"tick\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>", label - 6,
                       y + 13, escaped(run.ranks[i].name()));
    double x = label;
    for (const phase& p : phases) {
      const double seconds = times[i].*p.seconds, wide = longest > 0 ? long_row * seconds / longest : 0;
      out += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\"><title>{} s</title></rect>",
          x, y, wide, row_height - 4, p.colour, short_number(seconds));
      x += wide;
    }
  }
  return out + "</svg>";
}

std::string times_section(const run_data& run) {
  const std::vector<time_split> times = times_of(run);
  if (times.empty()) return {};
  std::string out = "<h2>Where the time went</h2><p class=soft>";
  for (const phase& p : phases)
    out += fmt::format("<span class=\"key\" style=\"background:{}\"></span>{}", p.colour, p.name);
  out += "</p>" + bars(run, times);

  out +=
      "<h2>Stragglers</h2><p class=soft>A rank is the slowest of a step when it computed longest. Who waits "
      "least is waited for. Times are milliseconds per step.</p><table><tr><th>rank</th>"
      "<th class=n>steps</th><th class=n>slowest in</th><th class=n>compute</th><th "
      "class=n>communication</th>"
      "<th class=n>waiting</th><th class=n>communication behind computation</th></tr>";
  std::vector<std::size_t> order(times.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, std::greater<>(),
                    [&](std::size_t i) { return std::pair(times[i].slowest, times.size() - i); });
  for (const std::size_t i : order) {
    const time_split& t = times[i];
    const double ms = 1e3 / std::max<double>(static_cast<double>(t.steps), 1);
    out += row(rank_key(run.ranks[i]), t.steps, t.slowest, t.compute * ms, t.communication * ms,
               t.waiting * ms, t.hidden * ms);
  }
  return out + "</table>";
}

// The ranks by name and value, so that what they agree on is shown once.
std::map<std::string, std::map<std::string, std::vector<std::string>>> hyperparameters_of(
    const run_data& run) {
  std::map<std::string, std::map<std::string, std::vector<std::string>>> who;
  for (const rank_data& r : run.ranks)
    for (const auto& [name, value] : r.hyperparameters) who[name][value].push_back(escaped(r.key()));
  return who;
}

std::string hyperparameters_section(const run_data& run) {
  const auto who = hyperparameters_of(run);
  if (who.empty()) return {};
  std::string out = "<h2>Hyperparameters</h2><table>";
  for (const auto& [name, values] : who) {
    out += fmt::format("<tr><td>{}</td><td>", escaped(name));
    for (const auto& [value, ranks] : values) {
      out += escaped(value);
      if (ranks.size() < run.ranks.size())
        out += fmt::format(" <span class=soft>(rank {})</span>", fmt::join(ranks, ", "));
      out += "<br>";
    }
    out += "</td></tr>";
  }
  return out + "</table>";
}

std::string media_section(const run_data& run) {
  std::string texts, histograms, images;
  const run_files files(run.directory);
  std::size_t bytes_left = all_pictures_bytes;
  std::size_t left_out = 0;
  for (const rank_data& r : run.ranks) {
    if (r.texts.size() > most_texts)
      texts += fmt::format(
          "<tr><td>{}</td><td class=soft colspan=3>{} earlier ones are in the .jsonl of {}</td></tr>",
          rank_key(r), r.texts.size() - most_texts, escaped(r.name()));
    for (const said_text& t : std::span(r.texts).last(std::min(most_texts, r.texts.size())))
      texts += row(rank_key(r), escaped(t.name), t.step, escaped(t.content));
    for (const auto& [name, h] : r.histograms)
      histograms += histogram_chart(fmt::format("{}, {}, step {}", name, r.name(), h.step), h, r.rank);
    for (const file_data& image : r.images) {
      const std::optional<std::string> picture =
          files.contents_of(run.directory / image.path, std::min(largest_picture_bytes, bytes_left));
      if (!picture) {
        ++left_out;
        continue;
      }
      bytes_left -= picture->size();
      images += fmt::format(
          "<figure><img alt=\"\" src=\"data:image/png;base64,{}\"><figcaption class=soft>{}, {}, step "
          "{}</figcaption></figure>",
          base64(*picture), escaped(image.name), escaped(r.name()), image.step);
    }
  }
  std::string out;
  if (!texts.empty()) out += "<h2>Texts</h2><table>" + texts + "</table>";
  if (left_out > 0)
    images += fmt::format("<p class=soft>{} that are missing, or too much for one page, are left out.</p>",
                          left_out);
  if (!images.empty()) out += "<h2>Images</h2>" + images;
  if (!histograms.empty())
    out += "<h2>Histograms</h2><details><summary>The last of each</summary><div class=\"grid-of\">" +
           histograms + "</div></details>";
  return out;
}

std::string artifacts_section(const run_data& run) {
  std::string rows;
  for (const rank_data& r : run.ranks)
    for (const file_data& a : r.artifacts)
      if (is_inside(a.path))
        rows +=
            row(rank_key(r), fmt::format("<a href=\"{}\">{}</a>", link_of(a.path), escaped(a.path)), a.bytes);
  if (rows.empty()) return {};
  return "<h2>Artifacts</h2><table><tr><th>rank</th><th>file</th><th class=n>bytes</th></tr>" + rows +
         "</table>";
}

std::string console_section(const run_data& run) {
  std::string out;
  for (const rank_data& r : run.ranks)
    for (const auto& [stream, words] :
         {std::pair<const char*, const std::string&>("output", r.output), {"error", r.error}})
      if (!words.empty())
        out += fmt::format("<details{}><summary>{}, standard {}</summary><pre>{}</pre></details>",
                           r.state == rank_state::died ? " open" : "", escaped(r.name()), stream,
                           escaped(words));
  return out.empty() ? out : "<h2>Console</h2>" + out;
}

std::string facts_section(const run_data& run) {
  const auto rows = [](const std::vector<std::pair<std::string, std::string>>& pairs) {
    std::string out = "<table>";
    for (const auto& [name, value] : pairs) out += row(escaped(name), escaped(value));
    return out + "</table>";
  };
  std::string out = "<h2>How it was run</h2>" + rows(run.facts);
  if (!run.environment.empty())
    out += "<details><summary>Environment</summary>" + rows(run.environment) + "</details>";
  return out;
}

}  // namespace

std::string page_of(const run_data& run) {
  std::string out = page_head(run.name, fmt::format("{} ranks, {}", run.size, time_text(run.created)));
  for (auto* const section : {ranks_section, curves_section, times_section, hyperparameters_section,
                              media_section, artifacts_section, console_section, facts_section})
    out += section(run);
  return out + page_end;
}

// ---- several runs side by side ----

namespace {

using texts_by_name = std::map<std::string, std::string>;

struct compared_run {
  const run_data* run;
  int number;
  std::string label;
  texts_by_name hyperparameters;                    // several values if the ranks differ
  std::map<std::string, std::vector<point>> means;  // by series, over the ranks that have it
  texts_by_name last_values;                        // of these, but for time and machine

  std::string key() const { return legend_entry(number, label); }
};

// At each step over the ranks that have a finite value there.
std::vector<point> mean_of(const run_data& run, const std::string& series) {
  std::map<double, std::pair<double, int>> sums;
  for (const rank_data& r : run.ranks) {
    const auto found = r.series.find(series);
    if (found == r.series.end()) continue;
    for (const point& p : found->second) {
      auto& [sum, count] = sums[p.step];
      if (!std::isfinite(p.value)) continue;
      sum += p.value;
      ++count;
    }
  }
  std::vector<point> mean;
  for (const auto& [step, values] : sums)
    mean.push_back(
        {step, values.second > 0 ? values.first / values.second : std::numeric_limits<double>::quiet_NaN()});
  return mean;
}

std::vector<compared_run> prepared(const std::vector<run_data>& runs) {
  std::vector<compared_run> all;
  for (const run_data& run : runs) {
    compared_run c{&run, static_cast<int>(all.size()), run.name, {}, {}, {}};
    // The directory distinguishes runs of one name.
    if (std::ranges::count(runs, run.name, &run_data::name) > 1)
      c.label += " (" + run.directory.string() + ")";
    for (const auto& [name, who] : hyperparameters_of(run))
      c.hyperparameters[name] = fmt::format("{}", fmt::join(std::views::keys(who), ", "));
    for (const rank_data& r : run.ranks)
      for (const auto& [name, points] : r.series)
        if (!c.means.contains(name)) c.means[name] = mean_of(run, name);
    for (const auto& [name, points] : c.means)
      if (!is_machine_series(name) && !points.empty())
        c.last_values[name] = short_number(points.back().value);
    all.push_back(std::move(c));
  }
  return all;
}

// "2 finished, 1 died"
std::string states_of(const run_data& run) {
  std::map<std::string, int> counts;
  for (const rank_data& r : run.ranks) ++counts[name_of(r.state)];
  std::string text;
  for (const auto& [state, count] : counts)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, state);
  return text;
}

std::string runs_section(const std::vector<compared_run>& runs) {
  std::string out =
      "<h2>Runs</h2><table><tr><th>run</th><th>created</th><th class=n>ranks</th><th>state</th>"
      "<th>directory</th></tr>";
  for (const compared_run& c : runs)
    out += row(c.key(), time_text(c.run->created), c.run->size, states_of(*c.run),
               escaped(c.run->directory.string()));
  return out + "</table>";
}

std::string curves_section_of_runs(const std::vector<compared_run>& runs) {
  std::vector<curve_source> sources;
  for (const compared_run& c : runs) sources.push_back({c.number, c.label, &c.means});
  return curves(sources);
}

// A row for each run; a cell for each of `columns` that it has.
std::string table_of(const char* heading, const std::vector<compared_run>& runs,
                     texts_by_name compared_run::* cells, const std::set<std::string>& columns) {
  if (columns.empty()) return {};
  std::string out = fmt::format("<h2>{}</h2><div class=scroll><table><tr><th>run</th>", heading);
  for (const std::string& name : columns) out += "<th class=n>" + escaped(name) + "</th>";
  out += "</tr>";
  for (const compared_run& c : runs) {
    out += "<tr><td>" + c.key() + "</td>";
    for (const std::string& name : columns) {
      const auto found = (c.*cells).find(name);
      out += "<td class=n>" + (found != (c.*cells).end() ? escaped(found->second) : "") + "</td>";
    }
    out += "</tr>";
  }
  return out + "</table></div>";
}

std::string differing_hyperparameters_section(const std::vector<compared_run>& runs) {
  std::map<std::string, std::multiset<std::string>> values;
  for (const compared_run& c : runs)
    for (const auto& [name, value] : c.hyperparameters) values[name].insert(value);
  std::set<std::string> different;
  for (const auto& [name, all] : values)
    if (all.count(*all.begin()) < runs.size()) different.insert(name);
  return table_of("Hyperparameters that differ", runs, &compared_run::hyperparameters, different);
}

std::string last_values_section(const std::vector<compared_run>& runs) {
  std::set<std::string> columns;
  for (const compared_run& c : runs)
    for (const auto& [name, value] : c.last_values) columns.insert(name);
  return table_of("Last values", runs, &compared_run::last_values, columns);
}

}  // namespace

std::string comparison_of(const std::vector<run_data>& runs) {
  const std::vector<compared_run> compared = prepared(runs);
  std::string out =
      page_head(fmt::format("{} runs", runs.size()), "each line is the mean over the ranks of a run");
  for (auto* const section :
       {runs_section, curves_section_of_runs, differing_hyperparameters_section, last_values_section})
    out += section(compared);
  return out + page_end;
}

// ---- a run for a terminal ----

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
      double least = std::numeric_limits<double>::quiet_NaN();  // if all are
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

// SPDX-License-Identifier: Apache-2.0
#include "report/page.hpp"

#include "base/files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/archive/iterators/base64_from_binary.hpp>
#include <boost/archive/iterators/transform_width.hpp>
#include <cctype>
#include <functional>
#include <map>
#include <numeric>
#include <span>

namespace tutti::report {
namespace {

constexpr std::uintmax_t largest_picture_bytes = std::uintmax_t{4} << 20,
                         all_pictures_bytes = std::uintmax_t{48} << 20;
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

// Paths come from a file: nothing outside the run is read or linked to.
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

std::string hyperparameters_section(const run_data& run) {
  // By name and value, so that what ranks agree on is shown once.
  std::map<std::string, std::map<std::string, std::vector<std::string>>> who;
  for (const rank_data& r : run.ranks)
    for (const auto& [name, value] : r.hyperparameters) who[name][value].push_back(escaped(r.key()));
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
  std::uintmax_t bytes_left = all_pictures_bytes;
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
      std::error_code code;
      const auto path = run.directory / image.path;
      const bool is_picture = is_inside(image.path) &&
                              std::filesystem::is_regular_file(std::filesystem::symlink_status(path, code));
      const std::uintmax_t bytes = is_picture ? std::filesystem::file_size(path, code) : 0;
      if (!is_picture || code || bytes > std::min(largest_picture_bytes, bytes_left)) {
        ++left_out;
        continue;
      }
      bytes_left -= bytes;
      images += fmt::format(
          "<figure><img alt=\"\" src=\"data:image/png;base64,{}\"><figcaption class=soft>{}, {}, step "
          "{}</figcaption></figure>",
          base64(base::contents_of(path)), escaped(image.name), escaped(r.name()), image.step);
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

}  // namespace tutti::report

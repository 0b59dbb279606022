// SPDX-License-Identifier: Apache-2.0
#include "common/session.hpp"

#include "common/placement.hpp"

#include <exception>
#include <utility>

namespace perf {

session::session(const options& chosen, report about, int rank)
    : options_(chosen),
      report_(std::move(about)),
      table_(chosen.json == "-" ? stderr : stdout),
      speaks_(rank == 0) {
  if (!speaks_) return;
  line_ns_ = cache_line_ns();
  print_header(table_, report_, line_ns_);
}

void session::add(row done) {
  if (speaks_) {
    done.line_before_ns = line_ns_;
    done.line_after_ns = line_ns_ = cache_line_ns();
    print_row(table_, report_, done);
  }
  report_.rows.push_back(std::move(done));
}

void session::add(overlap_row done) {
  if (speaks_) {
    done.line_before_ns = line_ns_;
    done.line_after_ns = line_ns_ = cache_line_ns();
    print_row(table_, done);
  }
  report_.overlaps.push_back(std::move(done));
}

int session::finish() {
  if (!speaks_) return 0;
  print_footer(table_, report_);
  try {
    if (!options_.json.empty()) write_json(report_, options_.json);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "%s: %s\n", report_.program.c_str(), failure.what());
    return 1;
  }
  return report_.good() ? 0 : 1;
}

}  // namespace perf

// SPDX-License-Identifier: Apache-2.0
// main of every test executable: runs doctest, counts cases for `./run test`, and selects the loop.
#define DOCTEST_CONFIG_IMPLEMENT
#include "support/skip.hpp"

#include "core/backend.hpp"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <tutti/error.hpp>
#include <tutti/tls.hpp>

namespace {

bool skipped_in_this_case = false;
unsigned skipped_cases = 0;
unsigned run_cases = 0;

// Counts the skipped cases, and prints the line that `./run test` reads.
class case_counter : public doctest::IReporter {
 public:
  explicit case_counter(const doctest::ContextOptions&) {}
  void test_case_start(const doctest::TestCaseData&) override { skipped_in_this_case = false; }
  void test_case_end(const doctest::CurrentTestCaseStats& stats) override {
    ++run_cases;
    if (skipped_in_this_case && stats.failure_flags == 0) ++skipped_cases;
  }
  void test_run_end(const doctest::TestRunStats& stats) override {
    const unsigned failed = stats.numTestCasesFailed;
    std::printf("cases: %u passed, %u failed, %u skipped\n", run_cases - failed - skipped_cases, failed,
                skipped_cases);
    std::fflush(stdout);
  }

  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}
};
REGISTER_LISTENER("case_counter", 1, case_counter);

constexpr int skipped_exit_code = 77;  // ctest's SKIP_RETURN_CODE

// TUTTI_LOOP=io_uring skips the program if the kernel, container or build has no io_uring, and TUTTI_TEST_TLS if there is no TLS.
bool what_is_tested_is_missing() {
  const char* loop = std::getenv("TUTTI_LOOP");
  std::string why;
  if (loop != nullptr && std::string_view(loop) == "io_uring" && !tutti::core::make_uring_backend(why)) {
    why = "TUTTI_LOOP=io_uring: " + why;
  } else {
    why = std::getenv("TUTTI_TEST_TLS") != nullptr ? tutti::test::why_no_tls() : std::string();
  }
  if (why.empty()) return false;
  std::printf("SKIPPED: all of this program, %s\n", why.c_str());
  return true;
}

// Ranks that are threads share a process's descriptors, of which a user has 1,024 until it asks for more.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

namespace tutti::test {

void count_skip(const char* file, int line, const std::string& reason) {
  skipped_in_this_case = true;
  std::printf("SKIPPED: %s (%s:%d)\n", reason.c_str(), file, line);
  std::fflush(stdout);
}

const std::string& why_no_tls() {
  static const std::string why = [] {
    try {
      make_tls_identity();
      return std::string();
    } catch (const error& e) {
      return std::string(e.what());
    }
  }();
  return why;
}

}  // namespace tutti::test

int main(int argc, char** argv) {
  raise_descriptor_limit();
  if (what_is_tested_is_missing()) return skipped_exit_code;
  doctest::Context context(argc, argv);
  const int code = context.run();
  if (context.shouldExit()) return code;
  if (run_cases == 0) {
    std::fprintf(stderr, "no test case ran: the filter matches none\n");
    return 1;
  }
  return code;
}

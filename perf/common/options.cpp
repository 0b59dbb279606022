// SPDX-License-Identifier: Apache-2.0
#include "common/options.hpp"

#include "common/sizes.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string_view>

namespace perf {
namespace {

constexpr std::size_t float_bytes = 4;

// All ranks parse the same line; one says what is wrong with it. Asked before there is a world to ask.
bool is_first_rank() {
  for (const char* name : {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"})
    if (const char* rank = std::getenv(name)) return std::string_view(rank) == "0";
  return true;
}

// CLI::Range lets "nan" pass.
std::string check_seconds(const std::string& word) {
  double seconds = 0;
  const bool good = CLI::detail::lexical_cast(word, seconds) && seconds >= 0.001 && seconds <= 3600;
  return good ? std::string() : word + " is not a number from 0.001 to 3600";
}

struct spoken {
  options chosen;
  std::string sizes;
};

void describe(CLI::App& command, spoken& to, const std::string& default_sizes, const program_names& names) {
  options& o = to.chosen;
  command.option_defaults()->take_last();  // scripts add to what they were given
  command
      .add_option("--sizes", to.sizes,
                  "bytes: 8,1KiB,64KiB or a range by powers of two, 8..1MiB (default " + default_sizes + ")")
      ->type_name("LIST");
  command
      .add_option("--iterations", o.iterations,
                  "rounds measured per size (default: as many as --seconds allows)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000'000}))
      ->type_name("N");
  command.add_option("--warmup", o.warmup, "rounds before that (default: a tenth of --seconds)")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1'000'000'000}))
      ->type_name("N");
  command.add_option("--seconds", o.seconds, "time per size")
      ->check(CLI::Validator(check_seconds, "0.001..3600"))
      ->type_name("S")
      ->capture_default_str();
  if (names.has_shared_memory)
    command
        .add_option("--memory", o.where,
                    "where the messages lie: ordinary memory, or memory that ranks of one host read in place")
        ->transform(CLI::CheckedTransformer(
            std::map<std::string, memory>{{"ordinary", memory::ordinary}, {"shared", memory::shared}}))
        ->type_name("ordinary|shared")
        ->default_str("ordinary");
  command
      .add_option("--json", o.json, "also write the result there; - is stdout, the table then goes to stderr")
      ->type_name("FILE");
}

void read_sizes(spoken& said, const std::string& default_sizes) {
  options& o = said.chosen;
  try {
    o.sizes = parse_sizes(said.sizes.empty() ? default_sizes : said.sizes);
  } catch (const std::invalid_argument& wrong) {
    throw CLI::ValidationError("--sizes", wrong.what());
  }
  if (o.what != command::all_reduce) return;
  for (const std::size_t bytes : o.sizes)
    if (bytes == 0 || bytes % float_bytes != 0)
      throw CLI::ValidationError(
          "--sizes", std::to_string(bytes) + " bytes: all_reduce adds floats, give positive multiples of 4");
}

}  // namespace

const char* name_of(command what) noexcept {
  switch (what) {
    case command::latency:
      return "latency";
    case command::bandwidth:
      return "bandwidth";
    case command::all_reduce:
      return "all_reduce";
  }
  return "?";
}

const char* name_of(memory where) noexcept { return where == memory::shared ? "shared" : "ordinary"; }

std::variant<options, int> parse_command_line(int argc, const char* const* argv, const program_names& names) {
  const std::string start = names.launcher + " -n 2 " + names.program;
  CLI::App app("Measures messages and collectives between ranks, and checks that they are right.\n  " +
                   start + " latency",
               names.program);
  app.require_subcommand(1);
  const std::string message_sizes = "8..16MiB", vector_sizes = "4..16MiB";
  spoken said;
  CLI::App& latency = *app.add_subcommand("latency", "half a round trip of one message between two ranks");
  CLI::App& bandwidth =
      *app.add_subcommand("bandwidth", "a stream of messages from rank 0 to rank 1, many in flight");
  CLI::App& all_reduce =
      *app.add_subcommand("all_reduce", "the sum of a vector of floats, out of place, on all ranks");
  // Not before, or each command would have it too.
  app.footer(
      "Each command has options of its own: " + names.program +
      " latency --help\nThe exit code is 0 when every message was right, 1 when one was wrong, 2 for a wrong "
      "command line.");
  describe(latency, said, message_sizes, names);
  describe(bandwidth, said, message_sizes, names);
  describe(all_reduce, said, vector_sizes, names);
  bandwidth
      .add_option("--window", said.chosen.window,
                  "messages in flight (default: 64, or 64 MiB, but 4 at least)")
      ->check(CLI::Range(1, 4096))
      ->type_name("N");
  try {
    app.parse(argc, argv);
    if (bandwidth) said.chosen.what = command::bandwidth;
    if (all_reduce) said.chosen.what = command::all_reduce;
    read_sizes(said, all_reduce ? vector_sizes : message_sizes);
  } catch (const CLI::Success& asked) {
    if (is_first_rank()) app.exit(asked);
    return 0;
  } catch (const CLI::Error& wrong) {
    if (!is_first_rank()) return 0;
    std::fprintf(stderr, "%s: %s (%s --help lists what there is)\n", names.program.c_str(), wrong.what(),
                 names.program.c_str());
    return 2;
  }
  return said.chosen;
}

std::string wrong_ranks(const options& chosen, int ranks, const program_names& names) {
  const std::string command_name = name_of(chosen.what);
  const std::string cure = names.launcher + " -n 2 " + names.program + " " + command_name;
  if (chosen.what == command::all_reduce ? ranks >= 2 : ranks == 2) return {};
  const char* wanted = chosen.what == command::all_reduce ? " needs 2 ranks or more" : " needs 2 ranks";
  return command_name + wanted + ", this is a world of " + std::to_string(ranks) + ": " + cure;
}

int window_for(const options& chosen, std::size_t bytes) noexcept {
  if (chosen.window > 0) return chosen.window;
  constexpr std::size_t most_bytes = std::size_t{64} << 20;
  return static_cast<int>(std::clamp<std::size_t>(most_bytes / std::max<std::size_t>(bytes, 1), 4, 64));
}

}  // namespace perf

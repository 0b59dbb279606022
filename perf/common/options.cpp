// SPDX-License-Identifier: Apache-2.0
#include "common/options.hpp"

#include "common/sizes.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <stdexcept>

namespace perf {
namespace {

constexpr std::size_t float_bytes = 4;

enum class rule { pair, pairs, group };  // 2 ranks; an even number; 2 or more
enum class measured_in { messages, floats, blocks, nothing };

struct traits {
  command what;
  const char* name;
  const char* help;
  const char* sizes;  // default
  rule ranks;
  measured_in unit;
};
constexpr std::array<traits, command_count> all_traits{{
    {command::latency, "latency",
     "half a round trip of one message between two ranks; on more, of all pairs at once", "8..16MiB",
     rule::pairs, measured_in::messages},
    {command::bandwidth, "bandwidth", "a stream of messages from rank 0 to rank 1, many in flight",
     "8..16MiB", rule::pair, measured_in::messages},
    {command::message_rate, "message_rate", "the same with small messages: how many a second", "8,64,1KiB",
     rule::pair, measured_in::messages},
    {command::put_signal, "put_signal",
     "as latency, by a put into the other rank's window and a signal that it waits for", "8..16MiB",
     rule::pairs, measured_in::messages},
    {command::fetch_add, "fetch_add",
     "an atomic addition by rank 0 to a number in the window of rank 1, which waits", "", rule::pair,
     measured_in::nothing},
    {command::all_reduce, "all_reduce", "the sum of a vector of floats, out of place, on all ranks",
     "4..16MiB", rule::group, measured_in::floats},
    {command::all_gather, "all_gather", "a block of each rank to all ranks; sizes are of all blocks",
     "64..16MiB", rule::group, measured_in::blocks},
    {command::reduce_scatter, "reduce_scatter", "the sum of vectors of floats, a block of it to each rank",
     "64..16MiB", rule::group, measured_in::blocks},
    {command::broadcast, "broadcast", "a message of rank 0 to all ranks", "8..16MiB", rule::group,
     measured_in::messages},
    {command::all_to_all, "all_to_all", "a block of each rank to each rank; sizes are of one rank's blocks",
     "64..16MiB", rule::group, measured_in::blocks},
    {command::barrier, "barrier", "until all ranks have come", "", rule::group, measured_in::nothing},
    {command::overlap, "overlap", "how much of an all_reduce hides behind computation of equal length",
     "16MiB", rule::group, measured_in::floats},
    {command::startup, "startup", "from starting the launcher to the end of the first barrier", "",
     rule::group, measured_in::nothing},
}};

const traits& of(command what) noexcept { return all_traits[static_cast<std::size_t>(what)]; }

// All ranks parse the same command line, and only the first prints errors. Called before there is a world.
bool is_first_rank() { return launched_rank() <= 0; }

// CLI::Range accepts "nan".
std::string check_seconds(const std::string& word) {
  double seconds = 0;
  const bool good = CLI::detail::lexical_cast(word, seconds) && seconds >= 0.001 && seconds <= 3600;
  return good ? std::string() : word + " is not a number from 0.001 to 3600";
}

struct spoken {
  options chosen;
  std::string sizes, modes;
};

const auto any_count = CLI::Range(std::int64_t{1}, std::int64_t{1'000'000'000});

void describe_time(CLI::App& command, options& o) {
  command
      .add_option("--iterations", o.iterations,
                  "rounds measured per size (default: as many as --seconds allows)")
      ->check(any_count)
      ->type_name("N");
  command.add_option("--warmup", o.warmup, "rounds before that (default: a tenth of --seconds)")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1'000'000'000}))
      ->type_name("N");
  command.add_option("--seconds", o.seconds, "time per size")
      ->check(CLI::Validator(check_seconds, "0.001..3600"))
      ->type_name("S")
      ->capture_default_str();
}

void describe_startup(CLI::App& command, options& o, const program_names& names) {
  command.add_option("--iterations", o.iterations, "launches (default: 15)")
      ->check(any_count)
      ->type_name("N");
  if (!names.launcher.empty())
    command
        .add_option("--launcher", o.launcher,
                    "the launcher and its options (default: " + names.launcher + ")")
        ->type_name("WORDS");
  // Internal: set by the program when it launches itself.
  command.add_option("--launched", o.launched_ns)->group("");
  command.add_option("--result", o.result)->group("");
}

void describe(CLI::App& command, const traits& t, spoken& to, const program_names& names) {
  options& o = to.chosen;
  command.option_defaults()->take_last();  // scripts append options to those they were given
  if (t.what == command::startup)
    describe_startup(command, o, names);
  else
    describe_time(command, o);
  if (t.unit != measured_in::nothing)
    command
        .add_option(
            "--sizes", to.sizes,
            std::string("bytes: 8,1KiB,64KiB or a range by powers of two, 8..1MiB (default ") + t.sizes + ")")
        ->type_name("LIST");
  if (t.what == command::startup || names.launcher.empty())
    command.add_option("--ranks", o.ranks, "how many")
        ->check(CLI::Range(1, 256))
        ->type_name("N")
        ->capture_default_str();
  if ((names.has_shared_memory || is_one_sided(t.what)) && t.unit != measured_in::nothing)
    command
        .add_option("--memory", o.where,
                    "where the messages lie: ordinary memory, or memory that ranks of one host read in place")
        ->transform(CLI::CheckedTransformer(
            std::map<std::string, memory>{{"ordinary", memory::ordinary}, {"shared", memory::shared}}))
        ->type_name("ordinary|shared")
        ->default_str("ordinary");
  if (t.what == command::bandwidth || t.what == command::message_rate)
    command.add_option("--window", o.window, "messages in flight (default: 64, or 64 MiB, but 4 at least)")
        ->check(CLI::Range(1, 4096))
        ->type_name("N");
  if (t.what == command::overlap)
    command
        .add_option(
            "--compute", to.modes,
            std::string("device (a wait that needs no core), one (rank 0 computes), all (every rank does)") +
                (names.can_poll ? ", polled (all, and call MPI_Test every 50 us)" : "") + "; a list")
        ->type_name("LIST");
  if (names.can_prepare && (t.what == command::latency || t.what == command::all_reduce))
    command.add_flag("--prepared", o.prepared, "prepare the operations once, and repeat them");
  if (is_one_sided(t.what) && names.accesses.size() > 1)
    command
        .add_option("--access", o.access,
                    "to the other rank's window (default: " + names.accesses.front() + ")")
        ->check(CLI::IsMember(names.accesses))
        ->type_name("NAME");
  if (!names.algorithms.empty())
    command
        .add_option("--algorithm", o.algorithm, "of all_reduce (default: " + names.algorithms.front() + ")")
        ->check(CLI::IsMember(names.algorithms))
        ->type_name("NAME");
  if (t.unit != measured_in::nothing && t.what != command::overlap)
    command.add_flag("--rewrite", o.rewrites,
                     "write to every cache line of what is sent before every operation, in the timed part");
  if (names.can_reduce_in_place && t.what == command::all_reduce)
    command.add_flag(
        "--in-place", o.in_place,
        "reduce in place; what is reduced is copied there before every operation, in the timed part");
  if (t.what != command::startup) command.add_flag("--pin", o.pin, "bind rank r to core r, modulo the cores");
  command
      .add_option("--json", o.json, "also write the result there; - is stdout, the table then goes to stderr")
      ->type_name("FILE");
}

void read_sizes(spoken& said) {
  options& o = said.chosen;
  const traits& t = of(o.what);
  if (t.unit == measured_in::nothing) {
    o.sizes = {0};
    return;
  }
  try {
    o.sizes = parse_sizes(said.sizes.empty() ? t.sizes : said.sizes);
  } catch (const std::invalid_argument& wrong) {
    throw CLI::ValidationError("--sizes", wrong.what());
  }
  for (const std::size_t bytes : o.sizes) {
    if (t.unit == measured_in::floats && (bytes == 0 || bytes % float_bytes != 0))
      throw CLI::ValidationError("--sizes", std::to_string(bytes) + " bytes: " + t.name +
                                                " adds floats, give positive multiples of 4");
    if (t.unit == measured_in::blocks && bytes == 0)
      throw CLI::ValidationError("--sizes",
                                 std::string("0 bytes: ") + t.name + " needs a block for each rank");
  }
}

void read_modes(spoken& said, const program_names& names) {
  std::vector<computing> known{computing::device, computing::one, computing::all};
  if (names.can_poll) known.push_back(computing::polled);
  options& o = said.chosen;
  if (said.modes.empty()) {
    o.modes = known;
    return;
  }
  for (const std::string& word : CLI::detail::split(said.modes, ',')) {
    const auto found =
        std::find_if(known.begin(), known.end(), [&](computing mode) { return word == name_of(mode); });
    if (found == known.end()) {
      std::string all;
      for (const computing mode : known) all += (all.empty() ? "" : ", ") + std::string(name_of(mode));
      throw CLI::ValidationError("--compute", "'" + word + "' is none of " + all);
    }
    o.modes.push_back(*found);
  }
}

}  // namespace

const char* name_of(command what) noexcept { return of(what).name; }

const char* name_of(memory where) noexcept { return where == memory::shared ? "shared" : "ordinary"; }

const char* name_of(computing mode) noexcept {
  switch (mode) {
    case computing::device:
      return "device";
    case computing::one:
      return "one";
    case computing::all:
      return "all";
    case computing::polled:
      break;
  }
  return "polled";
}

const char* contents_of(const options& chosen) noexcept {
  return chosen.in_place ? "in place" : chosen.rewrites ? "rewritten" : "unchanged";
}

bool program_names::knows(command what) const noexcept {
  if (is_one_sided(what)) return !accesses.empty();
  return commands.empty() || std::find(commands.begin(), commands.end(), what) != commands.end();
}

std::string program_names::line_for(command what, int ranks) const {
  const std::string name = name_of(what), n = std::to_string(ranks);
  if (what == command::startup || launcher.empty()) return program + " " + name + " --ranks " + n;
  return launcher + " -n " + n + " " + program + " " + name;
}

int launched_rank() noexcept {
  for (const char* name : {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"})
    if (const char* const text = std::getenv(name)) {
      const std::string_view word(text);
      int rank = -1;
      std::from_chars(word.data(), word.data() + word.size(), rank);
      return rank;
    }
  return -1;
}

std::variant<options, int> parse_command_line(int argc, const char* const* argv, const program_names& names) {
  spoken said;
  std::vector<std::pair<CLI::App*, const traits*>> commands;
  command shown = command::latency;
  for (const traits& t : all_traits)
    if (!names.knows(shown) && names.knows(t.what)) shown = t.what;
  CLI::App app("Measures messages and collectives between ranks, and checks that they are right.\n  " +
                   names.line_for(shown, 2),
               names.program);
  app.require_subcommand(1);
  for (const traits& t : all_traits)
    if (names.knows(t.what)) commands.emplace_back(app.add_subcommand(t.name, t.help), &t);
  // Set last, because every command would inherit it.
  app.footer(names.also + "Each command has options of its own: " + names.program + " " + name_of(shown) +
             " --help\nThe exit code is 0 when every message was right, 1 when one was wrong, 2 for a wrong "
             "command line.");
  for (const auto& [command, t] : commands) describe(*command, *t, said, names);
  try {
    app.parse(argc, argv);
    for (const auto& [command, t] : commands)
      if (*command) said.chosen.what = t->what;
    read_sizes(said);
    if (said.chosen.what == command::overlap) read_modes(said, names);
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
  const traits& t = of(chosen.what);
  if (ranks == 2 || (ranks > 2 && (t.ranks == rule::group || (t.ranks == rule::pairs && ranks % 2 == 0))))
    return {};
  const char* const need = t.ranks == rule::group   ? " needs 2 ranks or more"
                           : t.ranks == rule::pairs ? " needs an even number of ranks"
                                                    : " needs 2 ranks";
  return std::string(t.name) + need + ", this is a world of " + std::to_string(ranks) + ": " +
         names.line_for(chosen.what, 2);
}

int window_for(const options& chosen, std::size_t bytes) noexcept {
  if (chosen.window > 0) return chosen.window;
  constexpr std::size_t most_bytes = std::size_t{64} << 20;
  return static_cast<int>(std::clamp<std::size_t>(most_bytes / std::max<std::size_t>(bytes, 1), 4, 64));
}

std::size_t usable_size(command what, std::size_t bytes, int ranks) noexcept {
  if (of(what).unit != measured_in::blocks) return bytes;
  const std::size_t step = float_bytes * static_cast<std::size_t>(ranks);
  return (bytes + step - 1) / step * step;
}

}  // namespace perf

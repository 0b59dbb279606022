// SPDX-License-Identifier: Apache-2.0
// Command-line options of tutti-perf and its rivals: the same names for all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace perf {

enum class command {
  latency,
  bandwidth,
  message_rate,
  put_signal,
  fetch_add,
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  all_to_all,
  barrier,
  overlap,
  startup
};
inline constexpr int command_count = 13;

// Memory of the messages: ordinary, or shared between ranks by the library.
enum class memory { ordinary, shared };

// Work during a communication: a wait that needs no core, a computation on rank 0, on every rank, or on every
// rank with regular calls of the library.
enum class computing { device, one, all, polled };

const char* name_of(command what) noexcept;
constexpr bool is_one_sided(command what) noexcept {
  return what == command::put_signal || what == command::fetch_add;
}
const char* name_of(memory where) noexcept;
const char* name_of(computing mode) noexcept;

struct options {
  command what = command::latency;
  std::vector<std::size_t> sizes;  // bytes of one message, or of the larger buffer of a collective
  std::int64_t iterations = 0;  // measured rounds per size; 0: as many as `seconds` allows. startup: launches
  std::int64_t warmup = -1;     // warm-up rounds; -1: a tenth of `seconds`
  double seconds = 0.25;        // per size
  int window = 0;               // messages in flight (bandwidth, message_rate); 0: see window_for
  int ranks = 2;                // if this program starts the ranks itself
  memory where = memory::ordinary;
  std::vector<computing> modes;  // overlap
  bool rewrites = false;         // each rank writes to what it sends before every operation
  bool in_place = false;  // all_reduce: of a buffer into which the data are copied before every operation
  bool pin = false;       // rank r to core r, modulo the cores
  bool prepared = false;  // latency, all_reduce: operations are prepared once and then repeated
  std::string algorithm;  // empty: the program's default
  std::string access;     // put_signal, fetch_add: of the other rank's window; empty: the program's default
  std::string launcher;   // startup: words before "-n RANKS program"; empty: our own launcher
  std::int64_t launched_ns = 0;  // startup, in a launched rank: when it was launched
  std::string result;            // startup, in a launched rank: the file for the answer
  std::string json;              // a file, or "-" for stdout; empty: none
};

// What becomes of the data between two operations: "unchanged", "rewritten", "in place".
const char* contents_of(const options& chosen) noexcept;

// How users start this program, and its features.
struct program_names {
  std::string program;                       // "tutti-perf"
  std::string launcher;                      // "tutti-run"; empty: the program starts its ranks itself
  bool has_shared_memory = false;            // supports --memory
  std::vector<command> commands = {};        // empty: all, one-sided ones only with `accesses`
  std::vector<std::string> algorithms = {};  // values of --algorithm; empty: no such option
  bool can_poll = false;                     // overlap supports computing::polled
  bool can_prepare = false;                  // supports --prepared
  bool can_reduce_in_place = false;          // supports --in-place
  std::vector<std::string> accesses = {};    // values of --access; one: no such option
  std::string also = {};                     // a line of the help about features beside the commands

  bool knows(command what) const noexcept;
  // "tutti-run -n 2 tutti-perf latency", "gloo-perf latency --ranks 2"
  std::string line_for(command what, int ranks) const;
};

// Returns the options, or the exit code if there is nothing to run: help was requested, or the command line
// is wrong. Then rank 0 prints the error and fails. The others exit with 0, because a launcher stops rank 0
// as soon as another rank fails.
std::variant<options, int> parse_command_line(int argc, const char* const* argv, const program_names& names);

// Rank of this process, from the variables that launchers set; -1 if none is set.
int launched_rank() noexcept;

// Why this command cannot run on this number of ranks, and what to type instead; empty if it can.
std::string wrong_ranks(const options& chosen, int ranks, const program_names& names);

// 64 messages, or fewer so that at most 64 MiB lie on each side, but at least 4.
int window_for(const options& chosen, std::size_t bytes) noexcept;

// Rounds `bytes` up for commands with one block per rank: to whole floats, and to a multiple of the ranks.
std::size_t usable_size(command what, std::size_t bytes, int ranks) noexcept;

}  // namespace perf

// SPDX-License-Identifier: Apache-2.0
// What tutti-perf and its rivals are told on the command line: the same words for all of them.
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
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  all_to_all,
  barrier,
  overlap,
  startup
};
inline constexpr int command_count = 11;

// Where the messages lie: in memory like any other, or in memory that the library shares between ranks.
enum class memory { ordinary, shared };

// What else goes on during a communication: a wait for something that needs no core, a computation on rank 0,
// one on every rank, or one on every rank that calls the library now and then.
enum class computing { device, one, all, polled };

const char* name_of(command what) noexcept;
const char* name_of(memory where) noexcept;
const char* name_of(computing mode) noexcept;

struct options {
  command what = command::latency;
  std::vector<std::size_t> sizes;  // bytes of one message, or of the larger buffer of a collective
  std::int64_t iterations = 0;  // measured rounds per size; 0: as many as `seconds` allows. startup: launches
  std::int64_t warmup = -1;     // rounds before that; -1: a tenth of `seconds`
  double seconds = 0.25;        // per size
  int window = 0;               // messages in flight (bandwidth, message_rate); 0: see window_for
  int ranks = 2;                // where this program starts them itself
  memory where = memory::ordinary;
  std::vector<computing> modes;  // overlap
  bool pin = false;              // rank r to core r, modulo the cores
  bool prepared = false;         // latency, all_reduce: operations are prepared once and repeated
  std::string algorithm;         // where the program has a choice; empty: its default
  std::string launcher;          // startup: words before "-n RANKS program"; empty: the program's own
  std::int64_t launched_ns = 0;  // startup, in a rank that it has started: when
  std::string result;            // likewise: the file for the answer
  std::string json;              // a file, or "-" for stdout; empty: none
};

// How the user starts this program, and what it can do.
struct program_names {
  std::string program;                       // "tutti-perf"
  std::string launcher;                      // "tutti-run"; empty: the program starts its ranks itself
  bool has_shared_memory = false;            // knows --memory
  std::vector<command> commands = {};        // empty: all
  std::vector<std::string> algorithms = {};  // of --algorithm; empty: no such option
  bool can_poll = false;                     // overlap knows computing::polled
  bool can_prepare = false;                  // knows --prepared
  std::string also = {};  // a line of the help, on what the program does beside the commands

  bool knows(command what) const noexcept;
  // "tutti-run -n 2 tutti-perf latency", "gloo-perf latency --ranks 2"
  std::string line_for(command what, int ranks) const;
};

// The options, or the exit code when there is nothing to run: help was asked for, or the command line is
// wrong. Rank 0 says so and fails; the others end quietly, for a launcher would stop rank 0 at once when one
// of them failed first.
std::variant<options, int> parse_command_line(int argc, const char* const* argv, const program_names& names);

// Of this process, from the variables that launchers set; -1: none has set one.
int launched_rank() noexcept;

// Why this command cannot run on so many ranks, and what to type; empty when it can.
std::string wrong_ranks(const options& chosen, int ranks, const program_names& names);

// 64 messages, fewer when they are long: at most 64 MiB lie on each side, but 4 messages at least.
int window_for(const options& chosen, std::size_t bytes) noexcept;

// `bytes` as the command uses it: those that give every rank a block have blocks of whole floats, as many as
// there are ranks, so that a size that does not divide is rounded up.
std::size_t usable_size(command what, std::size_t bytes, int ranks) noexcept;

}  // namespace perf

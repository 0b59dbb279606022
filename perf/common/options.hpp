// SPDX-License-Identifier: Apache-2.0
// What tutti-perf and its rivals are told on the command line: the same words for all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace perf {

enum class command { latency, bandwidth, all_reduce };

// Where the messages lie: in memory like any other, or in memory that the library shares between ranks.
enum class memory { ordinary, shared };

const char* name_of(command what) noexcept;
const char* name_of(memory where) noexcept;

struct options {
  command what = command::latency;
  std::vector<std::size_t> sizes;  // bytes of one message, or of the vector that is reduced
  std::int64_t iterations = 0;     // measured rounds per size; 0: as many as `seconds` allows
  std::int64_t warmup = -1;        // rounds before that; -1: a tenth of `seconds`
  double seconds = 0.25;           // per size
  int window = 0;                  // messages in flight (bandwidth); 0: see window_for
  memory where = memory::ordinary;
  std::string json;  // a file, or "-" for stdout; empty: none
};

// How the user starts this program, for texts.
struct program_names {
  std::string program;             // "tutti-perf"
  std::string launcher;            // "tutti-run"
  bool has_shared_memory = false;  // knows --memory
};

// The options, or the exit code when there is nothing to run: help was asked for, or the command line is
// wrong. Rank 0 says so and fails; the others end quietly, for a launcher would stop rank 0 at once when one
// of them failed first.
std::variant<options, int> parse_command_line(int argc, const char* const* argv, const program_names& names);

// Why this command cannot run on so many ranks, and what to type; empty when it can.
std::string wrong_ranks(const options& chosen, int ranks, const program_names& names);

// 64 messages, fewer when they are long: at most 64 MiB lie on each side, but 4 messages at least.
int window_for(const options& chosen, std::size_t bytes) noexcept;

}  // namespace perf

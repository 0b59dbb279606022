// SPDX-License-Identifier: Apache-2.0
#include "launch/outcome.hpp"

#include <fmt/format.h>
#include <string.h>  // sigabbrev_np
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ranges>
#include <string_view>

#include "base/env.hpp"
#include "base/text.hpp"
#include "launch/node_messages.hpp"

namespace tutti::launch {
namespace {

std::string_view hint(const outcome& end) {
  if (end.ended_by_launcher()) return "";
  if (end.signal == SIGKILL) return "often the out-of-memory killer: see dmesg";
  if (end.signal == SIGSEGV)
    return "an invalid memory access: a core file, or a build with -fsanitize=address, shows where";
  if (end.signal == SIGBUS) return "often a full /dev/shm, or a mapped file that was cut short";
  if (end.signal == SIGILL) return "often a program built for another CPU, as with -march=native";
  if (end.signal == SIGABRT)
    return "a failed assertion or an exception that nobody caught: its standard error says which";
  if (end.exit_code == 127) return "the code with which a shell says: program not found";
  return end.exit_code == 126 ? "the code with which a shell says: not executable" : "";
}

std::string lot_of_other(const outcome& end, std::chrono::milliseconds grace) {
  if (end.asked_with == 0 && !end.killed)
    return end.failed() ? fmt::format("{} later on", describe(end)) : "ended without error";
  if (end.signal == SIGKILL && end.killed && grace.count() > 0)
    return fmt::format("killed by tutti-run: still there {:g} s after {}",
                       static_cast<double>(grace.count()) / 1000,
                       end.asked_with != 0 ? signal_name(end.asked_with) : "the others");
  if (end.ended_by_launcher() || !end.failed()) return "stopped by tutti-run";
  return fmt::format("stopped by tutti-run ({})", describe(end));
}

// Whether a death that is seen later cannot be its cause.
bool explains_itself(const outcome& end) {
  if (end.thrown != outcome::exception::none) return end.thrown == outcome::exception::own;
  return end.signal != 0;
}

std::string cure_of_program(const std::string& program, int error) {
  const bool has_slash = program.find('/') != std::string::npos;
  if (error == ENOENT && has_slash && ::access(program.c_str(), F_OK) == 0)
    return " The file is there, but not the interpreter or loader that it names: see its first line, or ldd.";
  if (error == ENOENT) return " Is it built? Give a path (./prog) or a name in PATH.";
  if (error == EACCES && has_slash) return fmt::format(" Make it executable: chmod +x '{}'.", program);
  if (error == EACCES)
    return " A file of that name in PATH is not executable: chmod +x, or give a path (./prog).";
  if (error == ENOEXEC)
    return " It is no program for this machine; a script needs a first line such as #!/bin/sh.";
  return error == EISDIR ? " Give the program in it." : "";
}

int why_not_executable(const std::string& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) return errno;
  if (S_ISDIR(status.st_mode)) return EISDIR;
  return ::access(path.c_str(), X_OK) == 0 ? 0 : errno;
}

}  // namespace

// SIGABRT and SIGPIPE come from the program itself, often because a peer has gone.
bool is_blow(const outcome& end) {
  return end.signal != 0 && end.signal != SIGABRT && end.signal != SIGPIPE && !end.ended_by_launcher();
}

const outcome* first_cause(const std::vector<outcome>& ends) {
  using std::chrono::microseconds;
  const outcome* first = nullptr;
  microseconds first_at{0};
  const outcome* blow = nullptr;  // the first
  microseconds blow_at{0};
  std::chrono::milliseconds latest{0};
  for (const outcome& end : ends) {
    latest = std::max(latest, end.after);
    const bool threw = end.thrown == outcome::exception::own;
    if (!end.failed() || (end.ended_by_launcher() && !threw)) continue;
    // Deaths are known to the millisecond: in the same one, the exception was first.
    const microseconds seen = latest + std::chrono::milliseconds(1);
    const microseconds at = threw ? std::min(end.thrown_after, seen) : seen;
    if (first == nullptr || at < first_at) {
      first = &end;
      first_at = at;
    }
    if (blow == nullptr && is_blow(end)) {
      blow = &end;
      blow_at = seen;
    }
  }
  if (first == nullptr || explains_itself(*first)) return first;
  return blow != nullptr && blow_at - first_at <= moment_of_death ? blow : first;
}

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name != nullptr ? std::string("SIG") + name : "signal " + std::to_string(signal);
}

std::string describe(const outcome& end) {
  if (end.exec_error != 0) return fmt::format("could not be started ({})", std::strerror(end.exec_error));
  if (end.signal == 0) return fmt::format("exited with code {}", end.exit_code);
  return fmt::format("{}was killed by {} (signal {}{})",
                     end.ended_by_launcher() && end.thrown == outcome::exception::own
                         ? "threw an exception, did not end, and "
                         : "",
                     signal_name(end.signal), end.signal, end.core_dumped ? ", core dumped" : "");
}

std::string describe_rank(const outcome& end) {
  return fmt::format("rank {} {} (pid {})", end.rank, describe(end), end.pid);
}

std::string failure_report(const outcome& cause, const std::vector<outcome>& ends, const ranks_ended& there,
                           const options& o, const std::string& place, int world_size) {
  if (cause.exec_error != 0)
    return start_error(o.program.front(), cause.exec_error, o.nodes > 1 ? place : "");
  std::string text =
      fmt::format("tutti-run: rank {} failed{}: it {} (pid {} on {}, {:.3f} s after the start)\n", cause.rank,
                  world_size > 1 ? " first" : "", describe(cause), cause.pid, place,
                  static_cast<double>(cause.after.count()) / 1000);
  if (const std::string_view why = hint(cause); !why.empty()) text += fmt::format("tutti-run:   {}\n", why);
  if (!there.last_lines.empty()) {
    text += fmt::format("tutti-run: the last lines on the standard error of rank {}:\n", cause.rank);
    for (const std::string& line : there.last_lines) text += fmt::format("  | {}\n", line);
  }
  if (!there.last_operations.empty())
    text += fmt::format("tutti-run: the last operations of rank {}:\n{}", cause.rank, there.last_operations);

  std::vector<std::pair<std::string, std::vector<int>>> lots;
  for (const outcome& end : ends) {
    if (end.rank == cause.rank) continue;
    const std::string lot = lot_of_other(end, o.grace);
    auto same = std::ranges::find(lots, lot, [](const auto& known) { return known.first; });
    if (same == lots.end()) same = lots.insert(same, {lot, {}});
    same->second.push_back(end.rank);
  }
  for (const auto& [lot, ranks] : lots)
    text += fmt::format("tutti-run: {}: {}\n", base::ranks_text(ranks), lot);
  return text;
}

program_search find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return {name, why_not_executable(name)};
  const std::string path = base::env_string("PATH").value_or("/usr/local/bin:/usr/bin:/bin");
  program_search best{name, ENOENT};
  for (const auto part : std::views::split(path, ':')) {
    const std::string file = (part.empty() ? "." : std::string(part.begin(), part.end())) + '/' + name;
    const program_search found{file, why_not_executable(file)};
    if (found.error == 0) return found;
    if (found.error == EACCES) best = found;  // it exists but is not permitted: says more than "not found"
  }
  return best;
}

std::string start_error(const std::string& program, int error, const std::string& place) {
  return fmt::format("tutti-run: cannot start '{}'{}: {}.{}\n", program,
                     place.empty() ? "" : fmt::format(" on {}", place), std::strerror(error),
                     cure_of_program(program, error));
}

int start_error_exit_code(int error) { return error == ENOENT || error == ENOTDIR ? 127 : 126; }

}  // namespace tutti::launch

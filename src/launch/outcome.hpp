// SPDX-License-Identifier: Apache-2.0
// outcome: how ranks ended, which of them brought the job down, why a program cannot be started, and the
// texts for these.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <string>
#include <vector>

namespace tutti::launch {

struct options;
struct ranks_ended;

struct outcome {
  int rank = 0;
  pid_t pid = -1;
  int exit_code = 0;
  int signal = 0;  // that ended it; 0: it exited
  bool core_dumped = false;
  int exec_error = 0;                  // errno with which the program could not be started
  std::chrono::milliseconds after{0};  // since the start of the job
  int asked_with = 0;   // the last signal by which tutti-run had asked it to end before it did; 0: none
  bool killed = false;  // tutti-run had sent SIGKILL before it ended
  // Why an exception left its main, as far as its record says.
  enum class exception : std::uint8_t { none, own, of_peer };
  exception thrown = exception::none;
  std::chrono::microseconds thrown_after{0};  // since the start of the job

  bool failed() const { return exit_code != 0 || signal != 0; }
  // Whether it ended by a signal that tutti-run had sent.
  bool ended_by_launcher() const {
    return signal != 0 && (signal == asked_with || (killed && signal == SIGKILL));
  }
  // The code that a shell would report.
  int shell_code() const { return signal != 0 ? 128 + signal : exit_code; }
};

// Returns the one of `ends`, given in order, that explains the others; nullptr if none failed by itself. It
// is the first that failed. A rank whose main threw an exception of its own failed when it threw: it tells
// its peers before it ends, so they may end before it.
//
// A rank that exited, or whose exception reports a failed peer, does not explain a rank that was ended
// shortly after by a signal that no dying peer causes. The connections of that rank closed before its death
// could be seen, so its peers may be seen to fail before it.
const outcome* first_cause(const std::vector<outcome>& ends);
// The meaning of "shortly".
inline constexpr std::chrono::milliseconds moment_of_death{250};
// Whether it was ended by such a signal.
bool is_blow(const outcome& end);

// "SIGSEGV"; "signal 42" if the system has no name for it.
std::string signal_name(int signal);
// "exited with code 3", "was killed by SIGKILL (signal 9)".
std::string describe(const outcome& end);
// "rank 5 exited with code 3 (pid 77)".
std::string describe_rank(const outcome& end);

// Lines for the user: which rank failed first, how, what that often means, and how the others ended. `there` is
// what the cause's node has reported, `place` its host, and the node if there are several.
std::string failure_report(const outcome& cause, const std::vector<outcome>& ends, const ranks_ended& there,
                           const options& o, const std::string& place, int world_size);

// Finds the executable that `name` means: itself if it has a slash, else the first of that name in PATH.
struct program_search {
  std::string path;
  int error = 0;  // errno of the obstacle; 0: found
};
program_search find_program(const std::string& name);
// Says why `program` could not be started, with the cure. `place` says where, if that is not obvious.
std::string start_error(const std::string& program, int error, const std::string& place = {});
int start_error_exit_code(int error);

}  // namespace tutti::launch

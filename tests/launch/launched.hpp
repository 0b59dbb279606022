// SPDX-License-Identifier: Apache-2.0
// Runs tutti-run, or a program that is its own launcher, as a child of a test, with a bound on every wait.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.hpp"

namespace tutti::launch::testing {

std::string launcher_path();  // of tutti-run

// For bash: waits on descriptor 3, a fifo without a writer, in the shell itself: a second process could miss a
// signal. A shell that gets one just before its read(2) runs the trap when that ends, so it reads for 0.1 s only.
inline const std::string wait_for_signals = "while :; do read -t 0.1 x <&3; done";

struct ending {
  int exit_code = -1;  // 128 + signal if a signal ended it
  std::string output;
  std::string error;
};

class launched {
 public:
  // Starts `launcher` with `arguments`. `variables` ("NAME=value") are added to the environment; `network` is
  // a descriptor of the network namespace to start it in (-1: the test's own).
  explicit launched(std::vector<std::string> arguments, std::vector<std::string> variables = {},
                    int network = -1, const std::string& launcher = launcher_path());
  launched(const launched&) = delete;
  launched& operator=(const launched&) = delete;
  ~launched();  // kills it if it still runs

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  // Sends a signal repeatedly until it has ended.
  void insist(int number);
  // Stops only tutti-run, so that it later sees all events of the meantime at once.
  void pause() const;
  // Reads until standard output contains `text` this many times. Fails the test otherwise.
  void wait_for(std::string_view text, int times = 1);
  // The same for standard error.
  void wait_for_error(std::string_view text);
  // Waits until tutti-run has installed its signal handlers.
  void wait_until_it_takes_signals() const;
  // Waits until its standard output, which nobody reads, takes no more.
  void wait_until_output_is_full() const;
  void close_input() { input_.reset(); }
  void close_output() { output_.reset(); }
  void write_input(std::string_view text) const;
  const std::string& output() const { return result_.output; }
  const std::string& error() const { return result_.error; }
  // Reads for this time, or until both streams have ended or standard error contains the text. True: it does.
  bool read_for(std::chrono::milliseconds time, std::string_view error_text = {});
  // Sends a signal repeatedly until standard error contains `text`. Fails the test otherwise.
  void ask(int number, std::string_view text);

  // Reads both streams to their end and waits for the process.
  ending finish();

 private:
  void read_some();

  pid_t pid_ = -1;
  base::unique_fd input_, output_, error_;
  ending result_;
};

// Makes a file for which programs of a test wait.
void touch(const std::string& file);
// For launchers of elastic_drill: these ranks have finished, and none was wrong.
void check_finished(const ending& end, int ranks);

// Runs tutti-run to its end.
ending launch(std::vector<std::string> arguments, std::vector<std::string> variables = {});

std::vector<std::string> lines_of(std::string_view text);  // sorted, for output in any order
int count_of(std::string_view text, std::string_view what);
std::vector<pid_t> children_of(pid_t process);

// Waits for the death of a process, which need not be a child.
class watched {
 public:
  explicit watched(pid_t process);
  bool dies();  // within the time limit

 private:
  base::unique_fd pidfd_;
};

// An empty directory that the destructor removes.
class temporary_directory {
 public:
  temporary_directory();
  temporary_directory(const temporary_directory&) = delete;
  temporary_directory& operator=(const temporary_directory&) = delete;
  ~temporary_directory();
  const std::string& path() const { return path_; }
  std::string fifo(const std::string& name) const;  // makes one, returns its path

 private:
  std::string path_;
};

std::string contents(const std::string& path);

// "HOST:PORT" without a listener, on loopback. The host number belongs to this process, so that no random
// port of another process collides.
std::string free_address();
// The same at an address that other machines could reach; empty if there is none.
std::string free_outward_address();

}  // namespace tutti::launch::testing

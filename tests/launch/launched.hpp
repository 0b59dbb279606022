// SPDX-License-Identifier: Apache-2.0
// tutti-run, or a program that is its own launcher, as a child of a test: what it writes, how it ends, and a bound on every wait.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.hpp"

namespace tutti::launch::testing {

std::string launcher_path();  // of tutti-run

struct ending {
  int exit_code = -1;  // 128 + signal when a signal ended it
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
  // Sends a signal again and again until it has ended.
  void insist(int number);
  // Stops tutti-run alone, so that it sees what happens meanwhile all at once.
  void pause() const;
  // Reads until standard output holds `text` so many times; fails the test when that does not happen.
  void wait_for(std::string_view text, int times = 1);
  // The same of standard error.
  void wait_for_error(std::string_view text);
  // Until it is tutti-run that a signal would meet, and not what becomes of it.
  void wait_until_it_takes_signals() const;
  void close_input() { input_.reset(); }
  void close_output() { output_.reset(); }
  void write_input(std::string_view text) const;
  const std::string& output() const { return result_.output; }
  const std::string& error() const { return result_.error; }
  // Reads for so long, or until both streams have ended.
  void read_for(std::chrono::milliseconds time);
  // Sends a signal again and again until standard error holds `text`; fails the test when that does not
  // happen.
  void ask(int number, std::string_view text);

  // Reads both streams to their ends and waits for the process.
  ending finish();

 private:
  void read_some();

  pid_t pid_ = -1;
  base::unique_fd input_, output_, error_;
  ending result_;
};

// Runs tutti-run to its end.
ending launch(std::vector<std::string> arguments, std::vector<std::string> variables = {});

std::vector<std::string> lines_of(std::string_view text);  // sorted, for output whose order is open
int count_of(std::string_view text, std::string_view what);
std::vector<pid_t> children_of(pid_t process);

// A process watched for its death, also when it is not a child.
class watched {
 public:
  explicit watched(pid_t process);
  bool dies();  // within the bound

 private:
  base::unique_fd pidfd_;
};

// An empty directory that goes away with the object.
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

// "HOST:PORT" where nobody listens: on loopback, with a host number of this process's own, so that no port
// that others are given by chance is the same.
std::string free_address();
// On an address of this machine that other machines could use, too; empty when it has none.
std::string free_outward_address();

}  // namespace tutti::launch::testing

// SPDX-License-Identifier: Apache-2.0
#include "common/startup.hpp"

#include "common/machine.hpp"
#include "common/session.hpp"
#include "common/statistics.hpp"

#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <thread>

extern char** environ;

namespace perf {
namespace {

namespace fs = std::filesystem;

constexpr int launches_by_default = 15;
constexpr auto patience = std::chrono::seconds(60);

std::vector<std::string> arguments_of(const std::string& text) {
  std::istringstream from(text);
  return {std::istream_iterator<std::string>(from), std::istream_iterator<std::string>()};
}

class temporary_folder {
 public:
  temporary_folder() {
    std::string name = (fs::temp_directory_path() / "perf-startup-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error(name + ": " + std::strerror(errno));
    path_ = name;
  }
  ~temporary_folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  temporary_folder(const temporary_folder&) = delete;
  temporary_folder& operator=(const temporary_folder&) = delete;
  std::string file(const char* name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

struct ended {
  double cpu_seconds = 0;  // of the launcher and all processes that it waited for
  std::int64_t sleeps = 0;
};

// Runs `line` in a process group of its own, so that the whole group can be ended.
ended run_to_end(const std::vector<std::string>& line) {
  std::vector<char*> words;
  for (const std::string& word : line) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  pid_t child = 0;
  const int failure = ::posix_spawnp(&child, words[0], nullptr, &attributes, words.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  if (failure != 0) throw std::runtime_error(line[0] + " cannot be started: " + std::strerror(failure));

  const auto deadline = std::chrono::steady_clock::now() + patience;
  rusage use{};
  int status = 0;
  pid_t gone = 0;
  while ((gone = ::wait4(child, &status, WNOHANG, &use)) == 0 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (gone != child) {
    ::kill(-child, SIGKILL);
    ::wait4(child, &status, 0, &use);
    throw std::runtime_error(line[0] + " did not end within a minute");
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    std::string text;
    for (const std::string& word : line) text += (text.empty() ? "" : " ") + word;
    throw std::runtime_error("this failed: " + text);
  }
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return {seconds(use.ru_utime) + seconds(use.ru_stime), use.ru_nvcsw};
}

std::string contents_of(const std::string& file) {
  std::ifstream from(file);
  return {std::istreambuf_iterator<char>(from), std::istreambuf_iterator<char>()};
}

int run_launches(const options& chosen, const program_names& names) {
  const temporary_folder folder;
  std::error_code unknown;
  const std::string program = fs::read_symlink("/proc/self/exe", unknown).string();
  const std::string result_file = folder.file("result");
  std::vector<double> us;
  ended use;
  double sum_us = 0;
  first_barrier last;
  const auto launch = [&](bool counts) {
    const std::int64_t begin_ns = host_clock_ns();
    const ended one = run_to_end(launch_line(chosen, names, begin_ns, program, result_file));
    last = first_barrier_of(contents_of(result_file));
    fs::remove(result_file);
    if (!counts) return;
    us.push_back(1e-3 * static_cast<double>(last.over_ns - begin_ns));
    sum_us += us.back();
    use.cpu_seconds += one.cpu_seconds;
    use.sleeps += one.sleeps;
  };
  launch(false);  // loads files into the page cache, and finds the name of the library
  report about;
  about.program = names.program;
  about.command = name_of(chosen.what);
  about.library = last.library;
  about.transport = last.transport;
  about.ranks = chosen.ranks;
  about.cores = usable_cores();
  about.machine = machine_text();
  session out(chosen, about, 0);
  const std::int64_t launches = chosen.iterations > 0 ? chosen.iterations : launches_by_default;
  for (std::int64_t i = 0; i < launches; ++i) launch(true);
  const summary times = summarize(us);
  const double count = static_cast<double>(launches);
  row r;
  r.iterations = r.operations = r.batches = launches;
  r.min_us = times.min;
  r.p10_us = times.p10;
  r.median_us = times.median;
  r.p90_us = times.p90;
  r.max_us = times.max;
  r.mean_us = sum_us / count;
  r.cpu_us = 1e6 * use.cpu_seconds / count;
  r.sleeps = static_cast<double>(use.sleeps) / count;
  out.add(r);
  return out.finish();
}

}  // namespace

std::int64_t host_clock_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void tell_first_barrier(const options& chosen, const first_barrier& what) {
  std::ofstream to(chosen.result);
  to << what.over_ns << '\n' << what.library << '\n' << what.transport << '\n';
  if (!to.flush()) throw std::runtime_error(chosen.result + ": cannot be written");
}

first_barrier first_barrier_of(const std::string& text) {
  std::istringstream from(text);
  first_barrier result;
  if (!(from >> result.over_ns)) throw std::runtime_error("no rank said when its first barrier was over");
  from.ignore();
  std::getline(from, result.library);
  std::getline(from, result.transport);
  return result;
}

std::vector<std::string> launch_line(const options& chosen, const program_names& names, std::int64_t now_ns,
                                     const std::string& program, const std::string& result_file) {
  const std::string ranks = std::to_string(chosen.ranks);
  std::vector<std::string> line = arguments_of(chosen.launcher.empty() ? names.launcher : chosen.launcher);
  if (!line.empty()) {
    // A launcher beside the program belongs to it.
    const fs::path beside = fs::path(program).parent_path() / line[0];
    std::error_code ignored;
    if (fs::exists(beside, ignored)) line[0] = beside.string();
    line.insert(line.end(), {"-n", ranks});
  }
  line.insert(line.end(), {program, "startup", "--ranks", ranks, "--launched", std::to_string(now_ns),
                           "--result", result_file});
  return line;
}

int measure_startup(const options& chosen, const program_names& names) {
  if (launched_rank() >= 0) {
    if (launched_rank() == 0)
      std::fprintf(stderr, "%s: startup starts the launcher itself, and is not started by one: %s\n",
                   names.program.c_str(), names.line_for(command::startup, chosen.ranks).c_str());
    return launched_rank() == 0 ? 2 : 0;
  }
  try {
    return run_launches(chosen, names);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "%s: %s\n", names.program.c_str(), failure.what());
    return 1;
  }
}

}  // namespace perf

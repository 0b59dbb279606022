// SPDX-License-Identifier: Apache-2.0
#include "launched.hpp"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>

namespace tutti::launch::testing {
namespace {

constexpr int bound_ms = 30000;

struct pipe_ends {
  base::unique_fd reader, writer;
};

pipe_ends make_pipe() {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  return {base::unique_fd(ends[0]), base::unique_fd(ends[1])};
}

void take(base::unique_fd& from, std::string& into) {
  std::array<char, 65536> buffer;
  const ssize_t bytes = ::read(from.get(), buffer.data(), buffer.size());
  if (bytes > 0)
    into.append(buffer.data(), static_cast<std::size_t>(bytes));
  else if (bytes == 0 || errno != EINTR)
    from.reset();
}

}  // namespace

std::string launcher_path() {
#ifdef TUTTI_RUN_PATH
  return TUTTI_RUN_PATH;
#else
  const char* path = std::getenv("TUTTI_RUN_PATH");
  REQUIRE_MESSAGE(path != nullptr, "set TUTTI_RUN_PATH to the tutti-run that is to be tested");
  return path;
#endif
}

launched::launched(std::vector<std::string> arguments, std::vector<std::string> variables, int network,
                   const std::string& launcher) {
  arguments.insert(arguments.begin(), launcher);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pipe_ends input = make_pipe();
  pipe_ends output = make_pipe();
  pipe_ends error = make_pipe();
  const pid_t test = ::getpid();
  pid_ = ::fork();
  REQUIRE(pid_ >= 0);
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != test) ::_exit(1);
    ::dup2(input.reader.get(), STDIN_FILENO);
    ::dup2(output.writer.get(), STDOUT_FILENO);
    ::dup2(error.writer.get(), STDERR_FILENO);
    if (network >= 0 && ::setns(network, CLONE_NEWNET) != 0) ::_exit(98);
    for (const char* name : {"TUTTI_SECRET", "TUTTI_JOB_ID", "TUTTI_TTY"}) ::unsetenv(name);
    for (std::string& variable : variables) ::putenv(variable.data());
    ::execv(argv[0], argv.data());
    ::_exit(99);
  }
  input_ = std::move(input.writer);
  output_ = std::move(output.reader);
  error_ = std::move(error.reader);
}

launched::~launched() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void launched::signal(int number) const { REQUIRE(::kill(pid_, number) == 0); }

void launched::insist(int number) {
  constexpr int between_ms = 20;
  const base::unique_fd death(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  pollfd dead{death.get(), POLLIN, 0};
  for (int waited_ms = 0; waited_ms < bound_ms; waited_ms += between_ms) {
    signal(number);
    if (::poll(&dead, 1, between_ms) == 1) return;
  }
  FAIL("tutti-run does not end");
}

void launched::pause() const {
  signal(SIGSTOP);
  int status = 0;
  REQUIRE(::waitpid(pid_, &status, WUNTRACED) == pid_);
  REQUIRE(WIFSTOPPED(status));
}

void launched::write_input(std::string_view text) const {
  REQUIRE(::write(input_.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
}

void launched::read_some() {
  std::array<pollfd, 2> streams{pollfd{output_.get(), POLLIN, 0}, pollfd{error_.get(), POLLIN, 0}};
  const int ready = ::poll(streams.data(), streams.size(), bound_ms);
  if (ready == 0 && ::kill(pid_, SIGQUIT) == 0) read_for(std::chrono::seconds(2));  // what its ranks wait for
  INFO("standard output so far: ", result_.output.substr(0, 2000));
  INFO("standard error so far: ", result_.error);
  REQUIRE_MESSAGE(ready > 0, "tutti-run neither wrote nor ended in time");
  if (streams[0].revents != 0) take(output_, result_.output);
  if (streams[1].revents != 0) take(error_, result_.error);
}

void launched::wait_for(std::string_view text, int times) {
  while (count_of(result_.output, text) < times) {
    INFO("standard output: ", result_.output.substr(0, 2000));
    INFO("standard error: ", result_.error);
    REQUIRE_MESSAGE(output_, "tutti-run ended its output before all that was expected had come");
    read_some();
  }
}

void launched::wait_for_error(std::string_view text) {
  while (count_of(result_.error, text) == 0) {
    INFO("standard error: ", result_.error);
    REQUIRE_MESSAGE(error_, "tutti-run ended before all that was expected had come");
    read_some();
  }
}

bool launched::read_for(std::chrono::milliseconds time, std::string_view error_text) {
  const auto until = std::chrono::steady_clock::now() + time;
  const auto said = [&] { return !error_text.empty() && count_of(result_.error, error_text) > 0; };
  while (!said() && (output_ || error_)) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now())
            .count();
    if (left <= 0) return false;
    std::array<pollfd, 2> streams{pollfd{output_.get(), POLLIN, 0}, pollfd{error_.get(), POLLIN, 0}};
    if (::poll(streams.data(), streams.size(), static_cast<int>(left)) <= 0) return false;
    if (streams[0].revents != 0) take(output_, result_.output);
    if (streams[1].revents != 0) take(error_, result_.error);
  }
  return said();
}

void launched::ask(int number, std::string_view text) {
  constexpr std::chrono::milliseconds between{250};
  for (std::chrono::milliseconds waited{0}; waited.count() < bound_ms; waited += between) {
    signal(number);
    if (read_for(between, text)) return;
  }
  INFO("standard error: ", result_.error);
  FAIL("tutti-run does not say: ", text);
}

void launched::wait_until_it_takes_signals() const {
  const auto bound = std::chrono::steady_clock::now() + std::chrono::milliseconds(bound_ms);
  for (;;) {
    REQUIRE(std::chrono::steady_clock::now() < bound);
    std::ifstream status("/proc/" + std::to_string(pid_) + "/status");
    std::string name;
    unsigned long long caught = 0;
    for (std::string word; status >> word;) {
      if (word == "Name:") status >> name;
      if (word == "SigCgt:") status >> std::hex >> caught >> std::dec;
    }
    if (name == "tutti-run" && (caught >> (SIGTERM - 1) & 1) != 0) return;
    ::sched_yield();
  }
}

void launched::wait_until_output_is_full() const {
  const base::unique_fd writer(
      ::open(("/proc/self/fd/" + std::to_string(output_.get())).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
  REQUIRE(writer);
  const auto bound = std::chrono::steady_clock::now() + std::chrono::milliseconds(bound_ms);
  for (pollfd room{writer.get(), POLLOUT, 0}; ::poll(&room, 1, 0) == 1;) {
    REQUIRE(std::chrono::steady_clock::now() < bound);
    ::sched_yield();
  }
}

ending launched::finish() {
  input_.reset();
  while (output_ || error_) read_some();
  const base::unique_fd death(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  pollfd dead{death.get(), POLLIN, 0};
  REQUIRE_MESSAGE(::poll(&dead, 1, bound_ms) == 1, "tutti-run closed its output but does not end");
  int status = 0;
  REQUIRE(::waitpid(pid_, &status, 0) == pid_);
  pid_ = -1;
  result_.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result_;
}

ending launch(std::vector<std::string> arguments, std::vector<std::string> variables) {
  return launched(std::move(arguments), std::move(variables)).finish();
}

std::vector<std::string> lines_of(std::string_view text) {
  std::istringstream stream{std::string(text)};
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

void touch(const std::string& file) { REQUIRE(std::ofstream(file).good()); }

void check_finished(const ending& end, int ranks) {
  CAPTURE(end.output);
  CAPTURE(end.error);
  CHECK(end.exit_code == 0);
  CHECK(count_of(end.output, "WRONG") == 0);
  CHECK(count_of(end.output, "finished") == ranks);
}

int count_of(std::string_view text, std::string_view what) {
  int count = 0;
  for (std::size_t at = text.find(what); at != std::string_view::npos; at = text.find(what, at + what.size()))
    ++count;
  return count;
}

std::vector<pid_t> children_of(pid_t process) {
  const std::string id = std::to_string(process);
  std::ifstream file("/proc/" + id + "/task/" + id + "/children");
  return {std::istream_iterator<pid_t>(file), std::istream_iterator<pid_t>()};
}

watched::watched(pid_t process) : pidfd_(static_cast<int>(::syscall(SYS_pidfd_open, process, 0))) {
  REQUIRE_MESSAGE((pidfd_ || errno == ESRCH), "pidfd_open: ", errno);
}

bool watched::dies() {
  if (!pidfd_) return true;  // it was dead already
  pollfd dead{pidfd_.get(), POLLIN, 0};
  return ::poll(&dead, 1, bound_ms) == 1;
}

temporary_directory::temporary_directory() {
  std::string pattern = (std::filesystem::temp_directory_path() / "tutti-launch-XXXXXX").string();
  REQUIRE(::mkdtemp(pattern.data()) != nullptr);
  path_ = pattern;
}

temporary_directory::~temporary_directory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string temporary_directory::fifo(const std::string& name) const {
  std::string path = path_ + '/' + name;
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  return path;
}

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

namespace {

std::string with_free_port(in_addr_t host) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = host;
  const base::unique_fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  socklen_t length = sizeof address;
  REQUIRE(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
  REQUIRE(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
  char text[INET_ADDRSTRLEN];
  ::inet_ntop(AF_INET, &address.sin_addr, text, sizeof text);
  return std::string(text) + ":" + std::to_string(ntohs(address.sin_port));
}

}  // namespace

std::string free_address() {
  const auto pid = static_cast<unsigned>(::getpid());
  return with_free_port(htonl(0x7f000000u | (2 + pid % 0xfffffcu)));
}

std::string free_outward_address() {
  ifaddrs* first = nullptr;
  REQUIRE(::getifaddrs(&first) == 0);
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(first, ::freeifaddrs);
  for (const ifaddrs* i = first; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET) continue;
    if ((i->ifa_flags & IFF_UP) == 0 || (i->ifa_flags & IFF_LOOPBACK) != 0) continue;
    return with_free_port(reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr.s_addr);
  }
  return "";
}

}  // namespace tutti::launch::testing

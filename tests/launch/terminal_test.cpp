// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "launched.hpp"

using namespace tutti::launch;

namespace {

constexpr int bound_ms = 30000;

// tutti-run in its own session on its own terminal, `columns` wide.
class on_terminal {
 public:
  on_terminal(std::vector<std::string> arguments, unsigned short columns) {
    arguments.insert(arguments.begin(), testing::launcher_path());
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    const winsize size{24, columns, 0, 0};
    int terminal = -1;
    pid_ = ::forkpty(&terminal, nullptr, nullptr, &size);
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      ::execv(argv[0], argv.data());
      ::_exit(99);
    }
    terminal_.reset(terminal);
  }
  on_terminal(const on_terminal&) = delete;
  on_terminal& operator=(const on_terminal&) = delete;
  ~on_terminal() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  void type(std::string_view text) {
    REQUIRE(::write(terminal_.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  }
  void wait_for(std::string_view text, int times = 1) {
    while (testing::count_of(shown_, text) < times) {
      INFO("on the terminal: ", shown_);
      REQUIRE_MESSAGE(read_some(), "the program ended before all that was expected had come");
    }
  }
  int finish() {
    while (read_some()) {
    }
    int status = 0;
    REQUIRE(::waitpid(pid_, &status, 0) == pid_);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  const std::string& shown() const { return shown_; }

 private:
  bool read_some() {
    pollfd readable{terminal_.get(), POLLIN, 0};
    INFO("on the terminal: ", shown_);
    REQUIRE_MESSAGE(::poll(&readable, 1, bound_ms) == 1, "nothing more came in time");
    std::array<char, 4096> buffer;
    const ssize_t bytes = ::read(terminal_.get(), buffer.data(), buffer.size());
    if (bytes <= 0) return false;  // EIO: the last program on the terminal has ended
    shown_.append(buffer.data(), static_cast<std::size_t>(bytes));
    return true;
  }

  pid_t pid_ = -1;
  tutti::base::unique_fd terminal_;
  std::string shown_;
};

}  // namespace

TEST_SUITE("launch/terminal") {
  TEST_CASE("a lone rank owns the terminal: it reads from it, and handles Ctrl-C itself") {
    on_terminal job({"-n", "1", "cat"}, 80);
    job.type("hello\n");
    job.wait_for("hello\r\n", 2);  // the echo, and cat
    job.type("\x03");
    CHECK(job.finish() == 128 + SIGINT);
    CHECK(job.shown().find("tutti-run") == std::string::npos);
  }

  TEST_CASE("a lone rank that catches Ctrl-C continues") {
    on_terminal job(
        {"-n", "1", "bash", "-c",
         "trap 'echo caught' INT; echo ready; until read -t 0.1 a; do :; done; read b; echo got $b"},
        80);
    job.wait_for("ready");
    job.type("\x03");
    job.wait_for("caught");
    job.type("x\ny\nz\n");
    job.wait_for("got");
    CHECK(job.finish() == 0);
  }

  TEST_CASE("Ctrl-Z without a shell that could continue the job does not hang it") {
    on_terminal job({"-n", "1", "cat"}, 80);
    job.type("a\n");
    job.wait_for("a\r\n", 2);
    job.type("\x1a");
    job.type("b\n");
    job.wait_for("b\r\n", 2);
    job.type("\x04");
    CHECK(job.finish() == 0);
  }

  TEST_CASE("ranks get the properties of the terminal behind their pipes, and Ctrl-C reaches them all") {
    const testing::temporary_directory folder;
    on_terminal job({"-n", "2", "--tag-output", "never", "bash", "-c",
                     "exec 3<>$0; trap 'echo int $RANK; exit 0' INT; echo tty $TUTTI_TTY $COLUMNS; " +
                         testing::wait_for_signals,
                     folder.fifo("silence")},
                    97);
    job.wait_for("tty 1 97", 2);
    job.type("\x03");
    CHECK(job.finish() == 128 + SIGINT);
    CHECK(job.shown().find("int 0") != std::string::npos);
    CHECK(job.shown().find("int 1") != std::string::npos);
  }

  TEST_CASE("progress bars and prompts of several ranks are shown before their line ends") {
    const testing::temporary_directory folder;
    on_terminal job({"-n", "2", "--tag-output", "always", "bash", "-c",
                     "exec 3<>$0; printf '\rat 10%%'; read <&3; ", folder.fifo("silence")},
                    80);
    job.wait_for("[0] at 10%");
    job.wait_for("[1] at 10%");
    job.type("\x03");
    CHECK(job.finish() == 128 + SIGINT);
  }

  TEST_CASE("ranks draw for what their prefix leaves of the terminal's width") {
    on_terminal job({"-n", "2", "sh", "-c", "echo columns $COLUMNS"}, 80);
    job.wait_for("columns 76", 2);
    CHECK(job.finish() == 0);
  }

  TEST_CASE("without a terminal ranks get none") {
    CHECK(testing::launch({"-n", "1", "sh", "-c", "echo ${TUTTI_TTY-none}"}).output == "none\n");
  }
}

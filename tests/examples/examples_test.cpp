// SPDX-License-Identifier: Apache-2.0
// The example programs under tutti-run, as users start them. Their output must match the documents.
#include "base/unique_fd.hpp"
#include "support/child.hpp"
#include "support/scratch_directory.hpp"
#include "support/second_loop.hpp"
#include "support/skip.hpp"
#include "support/variable.hpp"

#include <doctest/doctest.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct outcome {
  int exit_code = -1;
  std::string output;              // stdout and stderr
  std::vector<std::string> lines;  // without the "[rank] " that tutti-run puts before them

  bool says(const std::string& line) const {
    for (const std::string& one : lines) {
      if (one == line) return true;
    }
    return false;
  }
  // The first line that matches as a whole; empty if there is none.
  std::smatch line_like(const std::string& pattern) const {
    std::smatch match;
    const std::regex expression(pattern);
    for (const std::string& one : lines) {
      if (std::regex_match(one, match, expression)) return match;
    }
    return {};
  }
};

// Runs under coreutils' timeout, so that a hang becomes a failure with exit code 124. Disables warnings of
// long computations, because sanitizers make them long.
outcome run_command(const std::string& command) {
  outcome result;
  std::FILE* pipe =
      popen(("TUTTI_TTY=0 TUTTI_STALL_WARNING_MS=0 timeout -k 5 240 " + command + " 2>&1").c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::array<char, 4096> bytes{};
  for (std::size_t got = 0; (got = std::fread(bytes.data(), 1, bytes.size(), pipe)) > 0;)
    result.output.append(bytes.data(), got);
  const int status = pclose(pipe);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);

  static const std::regex rank_prefix(R"(^\[\d+\] )");
  std::istringstream text(result.output);
  for (std::string line; std::getline(text, line);)
    result.lines.push_back(std::regex_replace(line, rank_prefix, ""));
  return result;
}

std::string example(const std::string& name) { return TUTTI_EXAMPLES_BIN_DIR "/" + name; }

outcome run_ranks(int ranks, const std::string& name, const std::string& arguments = "") {
  return run_command(TUTTI_RUN_PATH " -n " + std::to_string(ranks) + " " + example(name) + " " + arguments);
}

// Sets an environment variable for the programs, until the end of the scope.
class scoped_variable {
 public:
  scoped_variable(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    setenv(name, value, 1);
  }
  scoped_variable(const scoped_variable&) = delete;
  scoped_variable& operator=(const scoped_variable&) = delete;
  ~scoped_variable() {
    if (before_) {
      setenv(name_, before_->c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

struct training {
  outcome run;
  std::vector<double> losses;  // by epoch
  double accuracy = -1;        // percent
};

training train(int ranks, const std::string& arguments = "") {
  training result;
  result.run = run_ranks(ranks, "train_digits", arguments);
  INFO(result.run.output);
  REQUIRE(result.run.exit_code == 0);
  static const std::regex epoch(R"(epoch +(\d+)/\d+  loss (\d+\.\d+))"),
      accuracy(R"(test accuracy (\d+\.\d+) % .*)");
  std::smatch match;
  for (const std::string& line : result.run.lines) {
    if (std::regex_match(line, match, epoch)) {
      result.losses.push_back(std::stod(match[2]));
      CHECK(std::stoul(match[1]) == result.losses.size());
    } else if (std::regex_match(line, match, accuracy)) {
      result.accuracy = std::stod(match[1]);
    }
  }
  CHECK(result.run.output.find("replicas identical: yes") != std::string::npos);
  CHECK(result.run.output.find('\r') == std::string::npos);  // no bar without a terminal
  return result;
}

void check_losses_agree(const std::vector<double>& a, const std::vector<double>& b, double relative) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    CAPTURE(i);
    CHECK(std::abs(a[i] - b[i]) <= relative * a[i] + 2e-6);  // printed with six decimals
  }
}

// Directory of real MNIST images, if any: TUTTI_MNIST_DIR, else a data folder beside the checkout.
std::string mnist_directory() {
  if (const char* told = std::getenv("TUTTI_MNIST_DIR")) return told;
  const std::string beside = TUTTI_SHARED_DATA_DIR "/mnist";
  return std::filesystem::is_directory(beside) ? beside : "";
}

}  // namespace

TEST_CASE("examples: hello") {
  const outcome four = run_ranks(4, "hello");
  INFO(four.output);
  CHECK(four.exit_code == 0);
  CHECK(four.output == "4 ranks, sum 10\n");
  CHECK(run_ranks(1, "hello").output == "1 ranks, sum 1\n");
}

TEST_CASE("examples: hello without a launcher is a world of one") {
  const outcome alone =
      run_command("env -u RANK -u WORLD_SIZE -u MASTER_ADDR -u MASTER_PORT " + example("hello"));
  CHECK(alone.exit_code == 0);
  CHECK(alone.output == "1 ranks, sum 1\n");
}

TEST_CASE("examples: the code of README.md") {
  const tutti::test::variable device("TUTTI_DEVICE", "emulated");
  const outcome four = run_ranks(4, "readme");
  INFO(four.output);
  CHECK(four.exit_code == 0);
  CHECK(four.output == "average 1.5, slope 3.00, sum 4\n");
}

TEST_CASE("examples: ping") {
  for (const int ranks : {2, 3}) {
    const outcome run = run_ranks(ranks, "ping");
    INFO(run.output);
    CHECK(run.exit_code == 0);
    CHECK(run.lines.size() == 2);
    CHECK(run.says("rank 0 started sending"));
    CHECK(run.says("rank 1 started receiving"));
  }
}

TEST_CASE("examples: ping needs two ranks, and its error says so") {
  const outcome run = run_ranks(1, "ping");
  INFO(run.output);
  CHECK(run.exit_code == 1);
  CHECK(run.output.find("rank 1") != std::string::npos);
}

TEST_CASE("examples: workers") {
  CHECK(run_ranks(1, "workers").output == "0 jobs, total 0\n");
  CHECK(run_ranks(4, "workers").output == "30 jobs, total 165000\n");
}

TEST_CASE("examples: overlap") {
  CHECK(run_ranks(1, "overlap").output == "1 ranks, averages 1 and 2.5 to 320: correct\n");
  const outcome four = run_ranks(4, "overlap");
  CHECK(four.exit_code == 0);
  CHECK(four.output == "4 ranks, averages 2.5 and 6.25 to 800: correct\n");
}

TEST_CASE("examples: data_parallel") {
  for (const int ranks : {1, 2, 4}) {
    const outcome run = run_ranks(ranks, "data_parallel");
    INFO(run.output);
    CHECK(run.exit_code == 0);
    CHECK(run.output ==
          std::to_string(ranks) + " ranks with unequal parts: learned: yes, replicas identical: yes\n");
  }
}

TEST_CASE("examples: asio_both_ways") {
  CHECK(run_ranks(1, "asio_both_ways").output == "1 ranks, sum of sums 1, timer waited: yes\n");
  const outcome four = run_ranks(4, "asio_both_ways");
  CHECK(four.exit_code == 0);
  CHECK(four.output == "4 ranks, sum of sums 40, timer waited: yes\n");
}

TEST_CASE("examples: own_loop") {
  for (const int ranks : {1, 4}) {
    const outcome run = run_ranks(ranks, "own_loop");
    CHECK(run.exit_code == 0);
    CHECK(run.output == std::to_string(ranks) + " ranks on loops of their own\n");
  }
}

TEST_CASE("examples: train_digits reads digits, and its losses do not depend on the number of ranks") {
  const training one = train(1), two = train(2), four = train(4);
  CHECK(one.losses.size() == 30);
  CHECK(four.accuracy >= 96.0);
  CHECK(one.losses.front() > 1.0);
  CHECK(one.losses.back() < 0.05);
  check_losses_agree(one.losses, two.losses, 1e-3);
  check_losses_agree(one.losses, four.losses, 1e-3);
  const std::smatch time = [&] {
    return four.run.line_like(R"(time per rank [\d.]+ s: compute [\d.]+ s \(([\d.]+) %\), )"
                              R"(communication [\d.]+ s \(([\d.]+) %\), other [\d.]+ s \(([\d.]+) %\))");
  }();
  REQUIRE(time.size() == 4);
  CHECK(std::stod(time[1]) + std::stod(time[2]) + std::stod(time[3]) == doctest::Approx(100).epsilon(0.002));
}

TEST_CASE("examples: train_digits with uneven batches, and with fewer images than ranks") {
  if (tutti::test::is_second_loop()) return;
  for (const char* arguments : {"--epochs 3 --batch 101", "--epochs 1 --batch 3 --hidden 16,8"}) {
    CAPTURE(arguments);
    const training one = train(1, arguments), three = train(3, arguments), five = train(5, arguments);
    check_losses_agree(one.losses, three.losses, 1e-3);
    check_losses_agree(one.losses, five.losses, 1e-3);
  }
}

TEST_CASE("examples: train_digits is the same in every run with one seed, and differs with another") {
  const training first = train(3, "--epochs 3 --seed 9"), second = train(3, "--epochs 3 --seed 9");
  CHECK(first.losses == second.losses);
  CHECK(first.accuracy == second.accuracy);
  CHECK(first.run.lines.back() == second.run.lines.back());  // the hash of the parameters
  CHECK(train(3, "--epochs 3 --seed 10").losses != first.losses);
}

TEST_CASE("examples: the same over TCP") {
  const scoped_variable tcp("TUTTI_TRANSPORTS", "tcp");
  CHECK(run_ranks(4, "hello").output == "4 ranks, sum 10\n");
  const training over_tcp = train(4);
  CHECK(over_tcp.accuracy >= 96.0);
  const scoped_variable shm("TUTTI_TRANSPORTS", "shm");
  check_losses_agree(over_tcp.losses, train(4).losses, 1e-3);
}

TEST_CASE("examples: train_digits names errors in its arguments") {
  for (const char* arguments :
       {"--batch 0", "--hidden 0", "--lr 0", "--momentum 1", "--epochs many", "--no-such-option"}) {
    const outcome run = run_ranks(2, "train_digits", arguments);
    CAPTURE(arguments);
    INFO(run.output);
    CHECK(run.exit_code == 2);
    CHECK_FALSE(run.output.empty());
  }
  CHECK(run_ranks(2, "train_digits", "--data /nonexistent").exit_code == 1);
  const outcome diverged = run_ranks(2, "train_digits", "--lr 1000 --hidden 32,32,32");
  CHECK(diverged.exit_code == 1);
  CHECK(diverged.output.find("the training diverged") != std::string::npos);
}

TEST_CASE("examples: asio_server trains, answers over HTTP, and ends in order on a signal") {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  tutti::base::unique_fd output(ends[0]), given(ends[1]);
  tutti::test::child job([&given](const std::function<void()>&) {
    ::dup2(given.get(), STDOUT_FILENO);
    ::execl(TUTTI_RUN_PATH, TUTTI_RUN_PATH, "-n", "2", example("asio_server").c_str(),
            static_cast<char*>(nullptr));
    return 99;
  });
  given.reset();
  std::string said;
  const auto read_until = [&](const std::string& wanted) {
    while (said.find(wanted) == std::string::npos) {
      pollfd p{output.get(), POLLIN, 0};
      char bytes[4096];
      if (::poll(&p, 1, 60'000) != 1) break;
      const ssize_t got = ::read(output.get(), bytes, sizeof bytes);
      if (got <= 0) break;
      said.append(bytes, static_cast<std::size_t>(got));
    }
    return said.find(wanted) != std::string::npos;
  };
  REQUIRE(read_until("/\n"));
  std::smatch port;
  REQUIRE(std::regex_search(said, port, std::regex("http://127.0.0.1:([0-9]+)/")));

  boost::asio::io_context context;
  boost::asio::ip::tcp::socket page(context);
  page.connect({boost::asio::ip::address_v4::loopback(), static_cast<unsigned short>(std::stoi(port[1]))});
  boost::asio::write(page, boost::asio::buffer(std::string("GET / HTTP/1.1\r\nHost: here\r\n\r\n")));
  std::string answer;
  boost::system::error_code end_of_page;
  boost::asio::read(page, boost::asio::dynamic_buffer(answer), end_of_page);
  CHECK(answer.starts_with("HTTP/1.1 200 OK\r\n"));
  CHECK(answer.find("{\"step\": ") != std::string::npos);

  job.signal(SIGTERM);  // tutti-run forwards it
  CHECK(read_until("ended after "));
  const int code = job.end();
  CHECK((code == 0 || code == 128 + SIGTERM));
}

TEST_CASE("examples: survive continues with the remaining ranks, or with all again") {
  struct {
    const char* options;
    const char* arguments;
    int left;
    int exit_code;
  } const ways[] = {{"--on-failure continue", "--kill 2@300", 3, 137},
                    {"--on-failure continue", "--kill 0@31", 3, 137},
                    {"--on-failure restart", "--rejoin --kill 2@300", 4, 0},
                    {"--on-failure restart", "--rejoin --kill 0@31", 4, 0}};
  for (const auto& way : ways) {
    const outcome run = run_command(std::string(TUTTI_RUN_PATH " -n 4 ") + way.options + " " +
                                    example("survive") + " " + way.arguments);
    CAPTURE(run.output);
    CHECK(run.exit_code == way.exit_code);
    const std::string ranks = std::to_string(way.left);
    // Printed by rank 0, unless that is the restarted one.
    const bool new_one = way.left == 4 && std::string(way.arguments).find(" 0@") != std::string::npos;
    CHECK(run.says("going on with " + ranks + " ranks") == !new_one);
    CHECK(run.says("replicas identical: yes"));
    const std::smatch last = run.line_like("epoch 30/30 on " + ranks + R"( ranks: (\d+\.\d+) % .*)");
    REQUIRE(!last.empty());
    CHECK(std::stod(last[1]) > 95);
  }
}

TEST_CASE("examples: a grid of replicas and stages goes on as one process when ranks die") {
  const tutti::test::scratch_directory files;
  const std::string checkpoint = (files.path() / "checkpoint").string();
  const auto losses_of = [](const outcome& run) {
    std::map<int, std::set<std::string>> losses;  // of each step, which may be made again
    for (const std::string& line : run.lines)
      if (std::smatch of; std::regex_match(line, of, std::regex(R"(step (\d+): loss (.*))")))
        losses[std::stoi(of[1])].insert(of[2]);
    return losses;
  };
  const auto run = [&](int ranks, const std::string& kills) {
    return run_command(TUTTI_RUN_PATH " -n " + std::to_string(ranks) + " --on-failure continue " +
                       example("grid") + " " + checkpoint + kills);
  };
  const auto alone = losses_of(run(1, ""));
  CHECK(alone.size() == 15);
  CHECK(losses_of(run(2, "")) == alone);
  CHECK(losses_of(run(4, "")) == alone);

  const outcome one = run(4, " 3@8");
  CAPTURE(one.output);
  CHECK(losses_of(one) == alone);
  CHECK(one.says("step 8, from the memory of the ranks"));
  CHECK(one.says("a grid of 1 replicas of 2 stages"));
  const outcome first_and_more =
      run(4, " 0@2 2@9");  // the second from a replica that was made after the first
  CAPTURE(first_and_more.output);
  CHECK(losses_of(first_and_more) == alone);
  const outcome both = run(4, " 1@8 3@8");
  CAPTURE(both.output);
  CHECK(losses_of(both) == alone);
  CHECK(both.says("step 5, from the checkpoint"));
  const outcome three = run(4, " 0@7 1@7 2@7");
  CAPTURE(three.output);
  CHECK(losses_of(three) == alone);
  CHECK(three.says("a grid of 1 replicas of 1 stages"));
}

TEST_CASE("examples: elastic learns the same on any number of ranks") {
  for (const char* const ranks : {"1", "3"}) {
    const outcome run =
        run_command(std::string(TUTTI_RUN_PATH " -n ") + ranks + " --nnodes 1:4 " + example("elastic"));
    CAPTURE(run.output);
    CHECK(run.exit_code == 0);
    const std::smatch last = run.line_like(R"(done on \d ranks: (\d+\.\d+) % .* identical: yes)");
    REQUIRE(!last.empty());
    CHECK(std::stod(last[1]) > 95);
  }
}

TEST_CASE("examples: train_digits on MNIST images") {
  const std::string directory = mnist_directory();
  if (directory.empty()) TUTTI_SKIP("no MNIST images: name their directory in TUTTI_MNIST_DIR");
  if (tutti::test::is_second_loop()) return;
  // Few epochs: later, rounding can move a neuron across the edge of its ReLU; see examples/README.md.
  const training one = train(1, "--epochs 4 --data " + directory),
                 four = train(4, "--epochs 4 --data " + directory);
  CHECK(four.accuracy >= 95.0);
  check_losses_agree(one.losses, four.losses, 1e-3);
}

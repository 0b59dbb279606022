// SPDX-License-Identifier: Apache-2.0
// The programs of examples/tutorial on two and four ranks: their output matches the tutorial.
#include "base/unique_fd.hpp"
#include "support/command.hpp"
#include "support/scratch_directory.hpp"
#include "support/second_loop.hpp"

#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

using namespace tutti;
using test::command_result;
using test::quoted;
using test::run_shell;

namespace {

constexpr int sizes[] = {2, 4};

std::string program(const std::string& name) { return quoted(TUTTI_EXAMPLES_BIN_DIR "/" + name) + " "; }

// The lines of all ranks, sorted, without their rank prefixes.
std::vector<std::string> lines_of(const command_result& run) {
  static const std::regex rank_prefix(R"(^\[\d+\] )");
  std::istringstream text(run.output);
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);)
    lines.push_back(std::regex_replace(line, rank_prefix, ""));
  std::sort(lines.begin(), lines.end());
  return lines;
}

command_result run_good(const std::string& command) {
  command_result run = run_shell("TUTTI_STALL_WARNING_MS=0 " + command, 240);
  CHECK_MESSAGE(run.exit_code == 0, run.output);
  return run;
}

command_result run_ranks(int ranks, const std::string& name, const std::string& arguments = "") {
  return run_good(TUTTI_RUN_PATH " -n " + std::to_string(ranks) + " " + program(name) + arguments);
}

// `line` for each rank, with '#' replaced by its number.
std::vector<std::string> of_each_rank(int ranks, const std::string& line) {
  std::vector<std::string> lines;
  for (int rank = 0; rank < ranks; ++rank)
    lines.push_back(std::regex_replace(line, std::regex("#"), std::to_string(rank)));
  return lines;
}

std::string free_port() {
  const base::unique_fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof at;
  REQUIRE(::bind(fd.get(), reinterpret_cast<sockaddr*>(&at), length) == 0);
  REQUIRE(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&at), &length) == 0);
  return std::to_string(ntohs(at.sin_port));
}

}  // namespace

TEST_CASE("tutorial: set-up starts its own processes, or those of a launcher") {
  for (const int ranks : sizes)
    for (const std::string& command : {program("tutorial_set_up") + std::to_string(ranks),
                                       TUTTI_RUN_PATH " -n " + std::to_string(ranks) + " " +
                                           program("tutorial_set_up") + std::to_string(ranks)}) {
      const command_result run = run_good(command);
      INFO(run.output);
      std::set<std::string> processes;
      const std::vector<std::string> lines = lines_of(run);
      REQUIRE(lines.size() == static_cast<std::size_t>(ranks));
      for (int rank = 0; rank < ranks; ++rank) {
        const std::string& line = lines[static_cast<std::size_t>(rank)];
        CHECK(line.starts_with("Rank " + std::to_string(rank) + " of " + std::to_string(ranks) +
                               " is process "));
        processes.insert(line.substr(line.rfind(' ')));
      }
      CHECK(processes.size() == static_cast<std::size_t>(ranks));
    }
}

TEST_CASE("tutorial: blocking messages") {
  for (const int ranks : sizes)
    CHECK(lines_of(run_ranks(ranks, "tutorial_blocking")) == of_each_rank(2, "Rank # has data 1.0"));
}

TEST_CASE("tutorial: non-blocking messages") {
  for (const int ranks : sizes)
    CHECK(lines_of(run_ranks(ranks, "tutorial_non_blocking")) ==
          std::vector<std::string>{"Rank 0 has data 1.0", "Rank 0 started sending", "Rank 1 has data 1.0",
                                   "Rank 1 started receiving"});
}

TEST_CASE("tutorial: a group") {
  for (const int ranks : sizes)
    CHECK(lines_of(run_ranks(ranks, "tutorial_group_all_reduce")) == of_each_rank(2, "Rank # has data 2.0"));
}

TEST_CASE("tutorial: collectives on two ranks") {
  CHECK(run_ranks(2, "tutorial_collectives").output ==
        "broadcast: rank 0 has [7 7]\n"
        "broadcast: rank 1 has [7 7]\n"
        "reduce: rank 0 has [3]\n"
        "reduce: rank 1 has [2]\n"
        "all_reduce: rank 0 has [3]\n"
        "all_reduce: rank 1 has [3]\n"
        "scatter: rank 0 has [0]\n"
        "scatter: rank 1 has [10]\n"
        "gather: rank 0 has [0 10]\n"
        "gather: rank 1 has []\n"
        "all_gather: rank 0 has [0 10]\n"
        "all_gather: rank 1 has [0 10]\n"
        "reduce_scatter: rank 0 has [1]\n"
        "reduce_scatter: rank 1 has [1]\n"
        "all_to_all: rank 0 has [0 10]\n"
        "all_to_all: rank 1 has [1 11]\n"
        "scan: rank 0 has [1]\n"
        "scan: rank 1 has [3]\n"
        "exclusive_scan: rank 0 has [0]\n"
        "exclusive_scan: rank 1 has [1]\n"
        "barrier: all are here\n");
}

TEST_CASE("tutorial: collectives on four ranks") {
  const command_result run = run_ranks(4, "tutorial_collectives");
  for (const char* line :
       {"broadcast: rank 3 has [7 7]\n", "reduce: rank 0 has [10]\n", "reduce: rank 3 has [4]\n",
        "all_reduce: rank 2 has [10]\n", "scatter: rank 2 has [20]\n", "gather: rank 0 has [0 10 20 30]\n",
        "gather: rank 1 has []\n", "all_gather: rank 3 has [0 10 20 30]\n",
        "reduce_scatter: rank 1 has [6]\n", "all_to_all: rank 2 has [2 12 22 32]\n", "scan: rank 2 has [6]\n",
        "exclusive_scan: rank 3 has [6]\n", "barrier: all are here\n"})
    CHECK_MESSAGE(run.times(std::string("\n") + line) == 1, std::string(line));
  CHECK(run.times("\n") == 10 * 4 + 1);
}

TEST_CASE("tutorial: collectives of blocks of different sizes") {
  CHECK(run_ranks(2, "tutorial_uneven").output ==
        "scatter_v: rank 0 has [0]\n"
        "scatter_v: rank 1 has [1 2]\n"
        "gather_v: rank 0 has [0 1 2]\n"
        "gather_v: rank 1 has []\n"
        "all_gather_v: rank 0 has [0 1 2]\n"
        "all_gather_v: rank 1 has [0 1 2]\n"
        "reduce_scatter_v: rank 0 has [0]\n"
        "reduce_scatter_v: rank 1 has [2 4]\n"
        "all_to_all_v: rank 0 has [0 1]\n"
        "all_to_all_v: rank 1 has [0 0 1 1]\n");
  const command_result run = run_ranks(4, "tutorial_uneven");
  INFO(run.output);
  for (const char* line :
       {"scatter_v: rank 3 has [6 7 8 9]\n", "\ngather_v: rank 0 has [0 1 2 3 4 5 6 7 8 9]\n",
        "all_gather_v: rank 2 has [0 1 2 3 4 5 6 7 8 9]\n", "reduce_scatter_v: rank 3 has [24 28 32 36]\n",
        "all_to_all_v: rank 1 has [0 0 1 1 2 2 3 3]\n"})
    CHECK_MESSAGE(run.says(line), std::string(line));
  CHECK(run.times("\n") == 5 * 4);
}

TEST_CASE("tutorial: the eight reduce operations") {
  CHECK(
      run_ranks(2, "tutorial_reduce_operations").output ==
      "sum: 3 -1\nproduct: 2 -0\nmax: 2 0\nmin: 1 -1\nband: 8 0\nbor: 9 3\nbxor: 1 3\npremul_sum: 1.5 -0.5\n"
      "avg: 1.5 -0.5\n");
  CHECK(run_ranks(4, "tutorial_reduce_operations").output ==
        "sum: 10 -6\nproduct: 24 -0\nmax: 4 0\nmin: 1 -3\nband: 8 0\nbor: 11 15\nbxor: 0 15\n"
        "premul_sum: 5 -3\navg: 2.5 -1.5\n");
}

TEST_CASE("tutorial: the program shows the operations that the text lists, and avg") {
  const std::string text = test::scratch_directory().read(TUTTI_SOURCE_DIR "/docs/tutorial/collectives.md");
  const std::size_t begin = text.find("Eight operations"), end = text.find("```", begin);
  REQUIRE(end != std::string::npos);
  std::string listed, shown;
  const std::string list = text.substr(begin, end - begin);
  const std::regex name("`([a-z_]+)`"), line("(?:^|\n)([a-z_]+):");
  for (std::sregex_iterator m(list.begin(), list.end(), name), none; m != none; ++m)
    listed += (*m)[1].str() + " ";
  CHECK(listed == "sum product max min band bor bxor premul_sum avg ");
  const std::string output = run_ranks(2, "tutorial_reduce_operations").output;
  for (std::sregex_iterator m(output.begin(), output.end(), line), none; m != none; ++m)
    shown += (*m)[1].str() + " ";
  CHECK(shown == listed);
}

TEST_CASE("tutorial: a partition") {
  for (const int ranks : sizes) {
    const command_result run = run_ranks(ranks, "tutorial_partition");
    INFO(run.output);
    const std::string share = std::to_string(60'000 / ranks), batch = std::to_string(128 / ranks);
    for (int rank = 0; rank < ranks; ++rank)
      CHECK(run.times("Rank " + std::to_string(rank) + " has " + share + " images in 469 batches of " +
                      batch + "\n") == 1);
    CHECK(run.says("every image belongs to one rank: yes\n"));
    // Seven, two and one of ten; another seed gives another order.
    std::smatch one, other;
    const std::string digits = R"(:((?: \d){7} \|(?: \d){2} \| \d)\n)";
    REQUIRE(std::regex_search(run.output, one, std::regex("seed 1234" + digits)));
    REQUIRE(std::regex_search(run.output, other, std::regex("seed 5678" + digits)));
    CHECK(one[1] != other[1]);
    for (const std::smatch& order : {one, other})
      for (int image = 0; image < 10; ++image)
        CHECK(order[1].str().find(" " + std::to_string(image)) != std::string::npos);
  }
}

TEST_CASE("tutorial: users choose the fractions of a partition, whose sum is at most one") {
  for (const int ranks : sizes) {
    CHECK(std::regex_search(run_ranks(ranks, "tutorial_partition", "0.5 0.5").output,
                            std::regex(R"(seed 1234:(?: \d){5} \|(?: \d){5}\n)")));
    for (const char* wrong : {"0.7 0.2 0.2", "0.5 half"}) {
      const command_result run = run_shell(TUTTI_RUN_PATH " -n " + std::to_string(ranks) + " " +
                                           program("tutorial_partition") + wrong);
      CHECK(run.exit_code == 1);
      CHECK_MESSAGE(run.says("they add up to 1 at most"), run.output);
    }
  }
}

TEST_CASE("tutorial: training learns, and the replicas stay the same") {
  for (const int ranks : sizes) {
    if (ranks == 2 && test::is_second_loop()) continue;
    const command_result run = run_ranks(ranks, "tutorial_training");
    INFO(run.output);
    CHECK(run.says("replicas identical: yes\n"));
    for (int rank = 0; rank < ranks; ++rank) {
      std::vector<double> losses;
      for (int epoch = 0; epoch < 10; ++epoch) {
        std::smatch loss;
        const std::string line =
            "Rank " + std::to_string(rank) + ", epoch " + std::to_string(epoch) + R"(: (\d\.\d{4})\n)";
        REQUIRE(std::regex_search(run.output, loss, std::regex(line)));
        losses.push_back(std::stod(loss[1]));
      }
      CHECK(losses.front() > 2);  // as by chance: ln 10
      CHECK(losses.back() < 0.8);
    }
  }
}

TEST_CASE("tutorial: the error of training names the missing file") {
  const command_result run = run_shell(TUTTI_RUN_PATH " -n 2 " + program("tutorial_training") + "/none");
  CHECK(run.exit_code == 1);
  CHECK_MESSAGE(run.says("/none"), run.output);
}

TEST_CASE("tutorial: training refuses fewer images than ranks, and images of another size") {
  for (const bool small : {false, true}) {
    const test::scratch_directory folder;
    const char count = 3, side = small ? 8 : 28;
    for (const std::string prefix : {"train", "t10k"}) {
      const std::string images{0, 0, 8, 3, 0, 0, 0, count, 0, 0, 0, side, 0, 0, 0, side};
      folder.write(prefix + "-images-idx3-ubyte",
                   images + std::string(static_cast<std::size_t>(count * side * side), 'x'));
      folder.write(prefix + "-labels-idx1-ubyte", std::string{0, 0, 8, 1, 0, 0, 0, count, 1, 2, 3});
    }
    const command_result run =
        run_shell(TUTTI_RUN_PATH " -n 4 " + program("tutorial_training") + quoted(folder.path().string()));
    CHECK(run.exit_code == 1);
    CHECK_MESSAGE(run.says(small ? "the images are not of 28 x 28 pixels"
                                 : "3 images are too few for 4 ranks: use fewer ranks"),
                  run.output);
  }
}

TEST_CASE("tutorial: ring all-reduce, by hand and by the library") {
  for (const int ranks : {1, 2, 4}) {
    if (ranks < 4 && test::is_second_loop()) continue;
    const command_result run = run_ranks(ranks, "ring_all_reduce");
    INFO(run.output);
    CHECK(run.times("\n") == 9);
    for (const char* name : {"didactic", "chunked", "tutti"})
      for (const char* count : {"3", "1000", "1000003"}) {
        const std::string expected = std::string(name) + " +" + std::to_string(ranks) + " ranks, " + count +
                                     R"( floats: correct, median \d+\.\d+ ms\n)";
        CAPTURE(expected);
        CHECK(std::regex_search(run.output, std::regex(expected)));
      }
  }
}

TEST_CASE("tutorial: the backend native") {
  for (const int ranks : sizes)
    CHECK(lines_of(run_ranks(ranks, "tutorial_backends", "native")) ==
          of_each_rank(ranks, ranks == 2 ? "Rank # has 3" : "Rank # has 10"));
  const command_result run = run_shell(TUTTI_RUN_PATH " -n 2 " + program("tutorial_backends") + "glue");
  CHECK(run.exit_code == 1);
  CHECK_MESSAGE(run.says("glue"), run.output);
}

TEST_CASE("tutorial: the three initialisation methods, by processes that the program starts") {
  const test::scratch_directory folder;
  for (const int ranks : sizes) {
    const std::string size = std::to_string(ranks);
    for (const std::string& method : {std::string("env://"), "file://" + folder.path().string() + "/shared",
                                      "tcp://127.0.0.1:" + free_port()}) {
      CAPTURE(method);
      CHECK(lines_of(run_good(program("tutorial_initialisation") + size + " " + quoted(method))) ==
            of_each_rank(ranks, "Rank # of " + size + " has met " + std::to_string(ranks - 1)));
    }
  }
}

TEST_CASE("tutorial: the three initialisation methods, by processes that are started one by one") {
  const test::scratch_directory folder;
  for (const int ranks : sizes) {
    const std::string size = std::to_string(ranks);
    for (const std::string& method : {std::string("env://"), "file://" + folder.path().string() + "/shared",
                                      "tcp://127.0.0.1:" + free_port()}) {
      CAPTURE(method);
      std::string all = "export TUTTI_SECRET=s MASTER_ADDR=127.0.0.1 MASTER_PORT=" + free_port() + "; ";
      for (int rank = ranks - 1; rank >= 0; --rank)
        all += program("tutorial_initialisation") + size + " " + quoted(method) + " " + std::to_string(rank) +
               " & pids=\"$pids $!\"; ";
      const command_result run =
          run_good("sh -c " + quoted(all + "for p in $pids; do wait $p || exit 1; done"));
      CHECK(lines_of(run) ==
            of_each_rank(ranks, "Rank # of " + size + " has met " + std::to_string(ranks - 1)));
    }
  }
}

TEST_CASE("tutorial: training continues when a rank dies, and the run is kept") {
  const test::scratch_directory folder;
  const std::string here = "cd " + quoted(folder.path().string()) + " && TUTTI_STALL_WARNING_MS=0 ";
  const command_result whole =
      run_shell(here + TUTTI_RUN_PATH " -n 4 --on-failure continue " + program("tutorial_failure"), 240);
  CHECK(whole.exit_code == 0);
  CHECK_MESSAGE(whole.says("4 ranks, weight 2.500, run in runs/"), whole.output);
  const command_result run = run_shell(
      here + TUTTI_RUN_PATH " -n 4 --on-failure continue " + program("tutorial_failure") + "2 30", 240);
  CHECK_MESSAGE(run.says("all_reduce #31 on world: rank 2 ("), run.output);
  CHECK_MESSAGE(run.says("3 ranks, weight 2.333, run in runs/"), run.output);
  CHECK_MESSAGE(run.says("all of it: yes"), run.output);
}

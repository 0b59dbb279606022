// SPDX-License-Identifier: Apache-2.0
// train_mnist under tutti-run: its results do not depend on the number of ranks, and it writes the right
// files.
#include "support/command.hpp"
#include "support/scratch_directory.hpp"
#include "support/skip.hpp"
#include "track/run_reader.hpp"

#include <tutti/train/shuffle.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

using namespace tutti::test;
namespace fs = std::filesystem;

namespace {

// Ten blurred shapes with noise, in the files of MNIST.
class shapes {
 public:
  explicit shapes(std::size_t training = 500) {
    write("train", training, 1);
    write("t10k", 100, 2);
  }
  std::string path() const { return scratch_.path().string(); }

 private:
  void write(const std::string& prefix, std::size_t count, std::uint64_t seed) {
    tutti::random_bits noise(seed);
    std::string images = header(3, {count, 28, 28}), labels = header(1, {count});
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t label = noise.below(10);
      labels += static_cast<char>(label);
      tutti::random_bits shape(label + 1000);
      std::array<double, 9> at{};
      for (double& a : at) a = 4 + 20 * shape.uniform();
      for (int y = 0; y < 28; ++y)
        for (int x = 0; x < 28; ++x) {
          double light = 30 * noise.uniform();
          for (std::size_t k = 0; k + 1 < at.size(); ++k)
            light += 200 * std::exp(-0.2 * ((x - at[k]) * (x - at[k]) + (y - at[k + 1]) * (y - at[k + 1])));
          images += static_cast<char>(static_cast<unsigned char>(std::min(255.0, light)));
        }
    }
    scratch_.write(prefix + "-images-idx3-ubyte", images);
    scratch_.write(prefix + "-labels-idx1-ubyte", labels);
  }
  static std::string header(char dimensions, const std::vector<std::size_t>& sizes) {
    std::string bytes{'\0', '\0', '\x08', dimensions};
    for (const std::size_t n : sizes)
      for (const int shift : {24, 16, 8, 0}) bytes += static_cast<char>(n >> shift & 0xFF);
    return bytes;
  }
  scratch_directory scratch_;
};

struct training {
  command_result run;
  std::vector<double> losses;  // of all ranks, by epoch
  std::string hash;
  double accuracy = 0;
};

training train(int ranks, const std::string& data, const std::string& arguments, int expected = 0,
               int seconds = 200) {
  training t;
  t.run = run_shell(TUTTI_RUN_PATH " -n " + std::to_string(ranks) + " " TUTTI_TRAIN_MNIST_PATH " --data " +
                        quoted(data) + " " + arguments,
                    seconds);
  INFO(t.run.output);
  CHECK(t.run.exit_code == expected);
  static const std::regex epoch(R"((?:\[0\] )?epoch (\d+): loss ([\d.]+), test accuracy ([\d.]+) %)"),
      replicas(R"(.*replicas identical: yes \(hash (\w+)\))");
  std::istringstream lines(t.run.output);
  std::smatch match;
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_match(line, match, epoch)) {
      t.losses.push_back(std::stod(match[2]));
      t.accuracy = std::stod(match[3]);
    }
    if (std::regex_match(line, match, replicas)) t.hash = match[1];
  }
  if (expected == 0) CHECK_FALSE(t.hash.empty());
  return t;
}

void check_agree(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(std::abs(a[i] - b[i]) <= 1e-3 * a[i] + 2e-6);
}

// Directory of real MNIST images, if any: TUTTI_MNIST_DIR, else a data folder beside the checkout.
std::string mnist_directory() {
  if (const char* told = std::getenv("TUTTI_MNIST_DIR")) return told;
  const std::string beside = TUTTI_SHARED_DATA_DIR "/mnist";
  return fs::is_directory(beside) ? beside : "";
}

}  // namespace

TEST_CASE("train_mnist: one rank, three and four learn the same from the same batches") {
  const shapes data;
  const std::string arguments = "--epochs 3 --batch 33 --lr 0.02";
  const training one = train(1, data.path(), arguments), three = train(3, data.path(), arguments),
                 four = train(4, data.path(), arguments);
  REQUIRE(one.losses.size() == 3);
  CHECK(one.losses.back() < one.losses.front());
  check_agree(one.losses, three.losses);
  check_agree(one.losses, four.losses);
  for (int rank = 0; rank < 4; ++rank)
    CHECK(std::regex_search(four.run.output,
                            std::regex("Rank " + std::to_string(rank) + R"(, epoch 3: \d+\.\d+\n)")));
}

TEST_CASE("train_mnist: other hidden layers and several buckets learn the same on any number of ranks") {
  const shapes data;
  const std::string arguments = "--epochs 3 --batch 33 --lr 0.05 --hidden 200,100 --bucket-kib 64";
  const training one = train(1, data.path(), arguments), four = train(4, data.path(), arguments);
  REQUIRE(one.losses.size() == 3);
  CHECK(one.losses.back() < one.losses.front());
  check_agree(one.losses, four.losses);
}

TEST_CASE("train_mnist: averaging during and after the backward pass gives the same bits, with any buckets") {
  const shapes data;
  const training overlapped = train(3, data.path(), "--epochs 2"),
                 sequential = train(3, data.path(), "--epochs 2 --averaging sequential");
  CHECK(overlapped.hash == sequential.hash);
  check_agree(overlapped.losses, train(3, data.path(), "--epochs 2 --bucket-kib 1").losses);
  CHECK(std::regex_search(
      train(2, data.path(), "--epochs 1 --compare 5").run.output,
      std::regex(
          R"(median step: sequential [\d.]+ ms, overlapped [\d.]+ ms; median gain of 5 pairs [+-][\d.]+ %)")));
}

TEST_CASE("train_mnist: the gain from overlap between two network namespaces, and the picture of its trace") {
  if (run_shell(
          "ip netns add tutti-try && { ip netns exec tutti-try true; status=$?; ip netns del tutti-try; "
          "exit $status; } && tc -V && python3 -V && taskset -V")
          .exit_code != 0)
    TUTTI_SKIP("needs root, network namespaces that can be entered, tc, taskset and python3");
  const shapes data(128);  // an image of this network takes a hundred times as long as of the others here
  const scratch_directory scratch;
  const std::string trace = (scratch.path() / "trace.json").string();
  const command_result run = run_shell("TUTTI_MNIST_DIR=" + quoted(data.path()) +
                                           " " TUTTI_PERF_DIR "/overlapped_training " TUTTI_BINARY_DIR
                                           " --rate 10gbit --launches 1 --pairs 1 --trace " +
                                           quoted(trace),
                                       200);
  INFO(run.output);
  CHECK(run.exit_code == 0);
  CHECK(std::regex_search(
      run.output,
      std::regex(R"(10gbit: gain of the median launch of 1 [+-][\d.]+ % .*: step of [\d.]+ ms sequential)")));
  const std::string picture = scratch.read(trace + ".svg");
  CHECK(picture.starts_with("<svg"));
  for (const char* part : {"averaging after the backward pass: ", "averaging behind the backward pass: ",
                           ">rank 0<", ">rank 1<", "<title>4.0 MiB, "})
    CHECK_MESSAGE(picture.find(part) != picture.npos, part);
}

TEST_CASE("train_mnist: continues from a checkpoint, on the same or another number of ranks") {
  const shapes data;
  const scratch_directory scratch;
  const std::string file = (scratch.path() / "checkpoint").string();
  const training whole = train(2, data.path(), "--epochs 4");
  train(2, data.path(), "--epochs 2 --checkpoint " + quoted(file));
  const training same = train(2, data.path(), "--epochs 4 --resume " + quoted(file)),
                 more = train(5, data.path(), "--epochs 4 --resume " + quoted(file)),
                 alone = train(1, data.path(), "--epochs 4 --resume " + quoted(file));
  CHECK(same.hash == whole.hash);
  const std::vector<double> rest(whole.losses.begin() + 2, whole.losses.end());
  CHECK(same.losses == rest);
  check_agree(more.losses, rest);
  check_agree(alone.losses, rest);

  fs::resize_file(file, 1000);
  CHECK(train(3, data.path(), "--resume " + quoted(file), 1).run.says("is of another network, or cut"));
  CHECK(train(2, data.path(), "--epochs 1 --checkpoint /nowhere/at/all", 1).run.says("/nowhere/at/all"));
  CHECK(train(2, data.path(), "--no-such-option", 2).run.says("--no-such-option"));
}

TEST_CASE("train_mnist: it also learns with compressed gradients, and replicas stay equal") {
  const shapes data;
  const training exact = train(2, data.path(), "--epochs 4 --lr 0.03");
  for (const char* hook : {"float16", "bfloat16", "int8", "low-rank"}) {
    CAPTURE(hook);
    const training less = train(2, data.path(), "--epochs 4 --lr 0.03 --hook " + std::string(hook));
    CHECK(less.hash != exact.hash);
    CHECK(less.losses.back() < 1.3 * exact.losses.back());
  }
}

TEST_CASE("train_mnist: a tracked run has every rank's series, hyperparameters, console and the checkpoint") {
  const shapes data;
  const scratch_directory scratch;
  const training t = train(4, data.path(),
                           "--epochs 2 --track " + quoted((scratch.path() / "runs").string()) +
                               " --checkpoint " + quoted((scratch.path() / "c").string()));
  const fs::path run = only_run(scratch.path() / "runs");
  CHECK(read_json(run / "run.json")["ranks"] == 4);
  for (int rank = 0; rank < 4; ++rank) {
    CAPTURE(rank);
    const std::string number = std::to_string(rank);
    CHECK(lines_of(run, rank, "loss").size() == 8);  // 500 images in batches of 128, twice
    for (const char* name : {"time/compute", "time/communication", "time/waiting", "step/bytes",
                             "step/overlap", "step/cpu_percent", "step/memory_mib"})
      CHECK_MESSAGE(lines_of(run, rank, name).size() == 8, name);
    CHECK(lines_of(run, rank, "step/bytes")[0]["value"] == 21840 * 4);
    CHECK(read_lines(run, rank).front()["values"]["momentum"] == 0.5);
    CHECK(contents(run / "console" / ("rank-" + number + ".out")).find("Rank " + number + ", epoch 2: ") !=
          std::string::npos);
    CHECK(read_json(run / ("rank-" + number + ".json"))["state"] == "finished");
    int losses = 0;
    for (const read_event& e : events_of(run, rank).events) losses += e.tag == "loss";
    CHECK(losses == 8);
  }
  CHECK(lines_of(run, 0, "test accuracy").size() == 2);
  CHECK(fs::file_size(run / "artifacts" / "rank-0" / "checkpoint") == fs::file_size(scratch.path() / "c"));
  const command_result report = run_shell(TUTTI_REPORT_PATH " " + quoted(run.string()));
  CHECK(report.exit_code == 0);
  CHECK(report.says("finished"));
  CHECK(report.says("test accuracy"));
}

TEST_CASE("train_mnist: errors name their cause") {
  const shapes data;
  CHECK(train(2, "/nowhere/at/all", "", 1).run.says("/nowhere/at/all"));
  CHECK(train(4, shapes(3).path(), "", 1)
            .run.says("3 images to train on, too few for 4 ranks: use fewer ranks"));
  const shapes damaged;
  fs::resize_file(fs::path(damaged.path()) / "train-images-idx3-ubyte", 1000);
  CHECK(train(2, damaged.path(), "", 1).run.says("there are 984: download it again"));
  CHECK(train(2, data.path(), "--epochs 1 --lr 1000 --momentum 0.9", 1).run.says("the training diverged"));
  for (const std::string option : {"--hook none", "--hidden 0", "--hidden 50,x"}) {
    const command_result run = run_shell(TUTTI_TRAIN_MNIST_PATH " --data x " + option);
    CHECK(run.exit_code != 0);
    CHECK_MESSAGE(run.says(option.substr(0, option.find(' ')) + ": "), run.output);
  }
}

TEST_CASE("train_mnist: without --data it uses MNIST files that it finds, else the digits of the examples") {
  const shapes data;
  const scratch_directory scratch;
  const std::string there = "cd " + quoted(scratch.path().string()) +
                            " && env -u TUTTI_MNIST_DIR HOME=" + quoted(scratch.path().string()) + " ";
  const std::string program = TUTTI_RUN_PATH " -n 4 " TUTTI_TRAIN_MNIST_PATH " --epochs 2";
  const command_result digits = run_shell(there + program + " --lr 0.05");
  INFO(digits.output);
  CHECK(digits.exit_code == 0);
  CHECK(digits.times("No MNIST files here") == 1);
  CHECK(digits.says("https://ossci-datasets.s3.amazonaws.com/mnist/"));
  CHECK(digits.says("UCI digits: 1437 images to train on, 360 to test; batches of 16 on 4 ranks"));
  CHECK(digits.says("replicas identical: yes"));

  fs::create_directories(scratch.path() / "data/MNIST");
  fs::create_directory_symlink(data.path(), scratch.path() / "data/MNIST/raw");
  const command_result found = run_shell(there + program),
                       told = run_shell("TUTTI_MNIST_DIR=" + quoted(data.path()) + " " + program);
  INFO(found.output);
  CHECK(found.says("MNIST in data/MNIST/raw: 500 images"));
  CHECK(told.says("MNIST in " + data.path() + ": 500 images"));
  CHECK(run_shell("TUTTI_MNIST_DIR=/nowhere/at/all " + program).says("/nowhere/at/all: is not a directory"));
}

TEST_CASE("train_mnist: four ranks recognise 95 of 100 unseen digits") {
  const std::string directory = mnist_directory();
  if (directory.empty()) TUTTI_SKIP("no MNIST images: name their directory in TUTTI_MNIST_DIR");
  CHECK(train(4, directory, "--epochs 4 --lr 0.1", 0, 900).accuracy >= 95.0);
}

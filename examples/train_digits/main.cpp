// SPDX-License-Identifier: Apache-2.0
// Command line of train_digits: handwritten digits, learned by several ranks together.
//   tutti-run -n 4 train_digits
//   tutti-run -n 4 train_digits --data path/to/mnist --hidden 128 --epochs 10
#include "train_digits/dataset.hpp"
#include "train_digits/progress.hpp"
#include "train_digits/train.hpp"

#include <tutti/tutti.hpp>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <utility>

namespace {

namespace fs = std::filesystem;

// Beside the installed program, or else in the source tree.
fs::path find_shipped_digits() {
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  for (const fs::path& directory : {program.parent_path() / "data", fs::path(TUTTI_EXAMPLE_DATA_DIR)}) {
    fs::path candidate = directory / "digits.csv.gz";
    if (fs::is_regular_file(candidate, ignored)) return candidate;
  }
  throw std::runtime_error(
      "digits.csv.gz is neither in data/ beside the program nor in " TUTTI_EXAMPLE_DATA_DIR
      "; copy it there, or give the directory of an MNIST data set with --data");
}

struct command_line {
  std::string data;
  train_digits::training_options training;
};

// CLI::Range accepts "nan".
CLI::Validator number_between(double low, double high) {
  const std::string range = train_digits::text("from %g to %g", low, high);
  const auto check = [low, high, range](const std::string& word) {
    double number = 0;
    const bool good = CLI::detail::lexical_cast(word, number) && number >= low && number <= high;
    return good ? std::string() : word + " is not a number " + range;
  };
  return CLI::Validator(check, range);
}

void describe(CLI::App& app, command_line& to) {
  auto& training = to.training;
  app.add_option("--data", to.data,
                 "directory of MNIST files in IDX format, plain or .gz (default: the shipped digits)")
      ->type_name("DIR");
  app.add_option("--epochs", training.epochs, "times every image is learned from")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  app.add_option("--batch", training.batch, "images per step, of all ranks together")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--lr", training.rate, "learning rate")
      ->check(number_between(1e-6, 1e3))
      ->capture_default_str();
  app.add_option("--momentum", training.momentum, "share of the last step that goes into the next")
      ->check(number_between(0, 0.9999))
      ->capture_default_str();
  app.add_option("--hidden", training.hidden, "neurons of each hidden layer, as in 128,64")
      ->delimiter(',')
      ->check(CLI::Range(1, 65'536))
      ->capture_default_str();
  app.add_option("--seed", training.seed, "of the initial weights and the order of the images")
      ->capture_default_str();
}

}  // namespace

int main(int argc, char** argv) {
  command_line arguments;
  CLI::App app("Trains a network to read handwritten digits on all ranks of tutti-run together.",
               "train_digits");
  describe(app, arguments);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }

  train_digits::data_split data;
  try {
    data = arguments.data.empty() ? train_digits::load_digits(find_shipped_digits())
                                  : train_digits::load_mnist(arguments.data);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "train_digits: %s\n", failure.what());
    return 1;
  }
  // Not a coroutine, so it may have captures. A coroutine would lose its captures, but keeps its arguments.
  return tutti::run([&](tutti::communicator world) {
    return train_digits::train(std::move(world), std::move(arguments.training), std::move(data));
  });
}

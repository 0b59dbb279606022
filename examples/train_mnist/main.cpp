// SPDX-License-Identifier: Apache-2.0
// Command line of train_mnist: the PyTorch distributed tutorial's network, data and training.
//   tutti-run -n 4 train_mnist
//   tutti-run -n 4 train_mnist --data path/to/mnist
//   tutti-run -n 4 train_mnist --data path/to/mnist --track runs && tutti-report runs/*
#include "train_digits/dataset.hpp"
#include "train_mnist/network.hpp"
#include "train_mnist/train.hpp"

#include <tutti/tutti.hpp>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>

namespace {

constexpr std::size_t batch_of_digits = 16;  // there are forty times fewer images than in MNIST

// Loads `directory`. If it is empty, loads this machine's MNIST files, or else the digits of the examples.
train_digits::data_split images_of(std::string directory) {
  if (directory.empty()) directory = train_digits::find_mnist().string();
  train_digits::data_split images;
  if (directory.empty()) {
    images = train_digits::load_digits(TUTTI_EXAMPLE_DATA_DIR "/digits.csv.gz");
    images.training = train_digits::scaled(images.training, train_mnist::image_side);
    images.test = train_digits::scaled(images.test, train_mnist::image_side);
    return images;
  }
  images = train_digits::load_mnist(directory);
  if (images.training.rows != train_mnist::image_side || images.training.columns != train_mnist::image_side)
    throw std::runtime_error(directory + ": the images are not of 28 x 28 pixels");
  images.name += " in " + directory;
  return images;
}

}  // namespace

int main(int argc, char** argv) {
  train_mnist::training_options training;
  std::string data;
  CLI::App app("The PyTorch distributed tutorial's training on all ranks of tutti-run together.",
               "train_mnist");
  app.add_option(
         "--data", data,
         "directory of MNIST files in IDX format, plain or .gz, or of mnist.npz; without it: "
         "TUTTI_MNIST_DIR, "
         "torchvision's data/MNIST/raw or MNIST_data, here or at home, Keras' mnist.npz, else the digits "
         "of the examples")
      ->type_name("DIR");
  app.add_option("--epochs", training.epochs, "times every image is learned from, in all")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  const CLI::Option* const batch =
      app.add_option("--batch", training.batch, "images per step, of all ranks together (digits: 16)")
          ->check(CLI::Range(1, 1'000'000))
          ->capture_default_str();
  app.add_option("--lr", training.rate, "learning rate")->check(CLI::Range(1e-6, 1e3))->capture_default_str();
  app.add_option("--momentum", training.momentum, "share of the last step that goes into the next")
      ->check(CLI::Range(0.0, 0.9999))
      ->capture_default_str();
  app.add_option("--hidden", training.hidden,
                 "units of each hidden dense layer: the tutorial's, or more to have more gradients")
      ->delimiter(',')
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  app.add_option("--seed", training.seed, "of the initial weights, the batches and the dropout")
      ->capture_default_str();
  const std::map<std::string, train_mnist::averaging> ways{
      {"overlapped", train_mnist::averaging::overlapped}, {"sequential", train_mnist::averaging::sequential}};
  app.add_option(
         "--averaging", training.when,
         "gradients are averaged while the backward pass goes on (overlapped), or after it (sequential)")
      ->transform(CLI::CheckedTransformer(ways))
      ->default_str("overlapped");
  app.add_option("--hook", training.hook, "how: exact, float16, bfloat16, int8 or low-rank")
      ->check(CLI::IsMember({"exact", "float16", "bfloat16", "int8", "low-rank"}))
      ->capture_default_str();
  app.add_option("--bucket-kib", training.bucket_kib,
                 "gradients that travel together (0: the library's choice, which is one bucket here)")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--compare", training.compare, "after training, time so many steps of each way of averaging")
      ->capture_default_str();
  app.add_option("--checkpoint", training.save_to, "written by rank 0 after each epoch")->type_name("FILE");
  app.add_option("--resume", training.resume_from, "go on from this checkpoint, on any number of ranks")
      ->type_name("FILE");
  app.add_option("--track", training.track_in,
                 "keep a run of all ranks here: losses, times, consoles, the checkpoint; see tutti-report")
      ->type_name("DIR");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }

  train_digits::data_split images;
  try {
    images = images_of(data);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "train_mnist: %s\n", failure.what());
    return 1;
  }
  const bool digits = images.name == "UCI digits";
  if (digits && batch->count() == 0) training.batch = batch_of_digits;
  // Not a coroutine, so it may have captures.
  return tutti::run([&](tutti::communicator world) {
    if (digits && world.rank() == 0)
      std::puts(
          "No MNIST files here: these are the digits that come with tutti, scaled to 28 x 28. For MNIST, "
          "put\n"
          "the files of https://ossci-datasets.s3.amazonaws.com/mnist/ into a directory and name it by "
          "--data.");
    return train_mnist::train(std::move(world), std::move(training), std::move(images));
  });
}

// SPDX-License-Identifier: Apache-2.0
// Command line of train_mnist: the PyTorch distributed tutorial's network, data and training.
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

int main(int argc, char** argv) {
  train_mnist::training_options training;
  std::string data;
  CLI::App app("The PyTorch distributed tutorial's training on all ranks of tutti-run together.",
               "train_mnist");
  app.add_option("--data", data, "directory of MNIST files in IDX format, plain or .gz")
      ->type_name("DIR")
      ->required();
  app.add_option("--epochs", training.epochs, "times every image is learned from, in all")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  app.add_option("--batch", training.batch, "images per step, of all ranks together")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--lr", training.rate, "learning rate")->check(CLI::Range(1e-6, 1e3))->capture_default_str();
  app.add_option("--momentum", training.momentum, "share of the last step that goes into the next")
      ->check(CLI::Range(0.0, 0.9999))
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
  app.add_option("--hook", training.hook, "how: exact, float16, bfloat16 or low-rank")
      ->check(CLI::IsMember({"exact", "float16", "bfloat16", "low-rank"}))
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
  CLI11_PARSE(app, argc, argv);

  train_digits::data_split images;
  try {
    images = train_digits::load_mnist(data);
    if (images.training.rows != train_mnist::image_side || images.training.columns != train_mnist::image_side)
      throw std::runtime_error(data + ": the images are not of 28 x 28 pixels");
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "train_mnist: %s\n", failure.what());
    return 1;
  }
  // No coroutine, so that it may capture.
  return tutti::run([&](tutti::communicator world) {
    return train_mnist::train(std::move(world), std::move(training), std::move(images));
  });
}

// SPDX-License-Identifier: Apache-2.0
// train_digits on devices. data_parallel reduces the gradient of a layer while that of the previous layer is
// computed. Prints the loss of each epoch and the accuracy; all replicas must stay equal.
//   tutti-run -n 2 gpu_train --device emulated --epochs 3
// Options: --mnist DIR (a folder of MNIST files, instead of the digits); --hidden 32,32 (the sizes of the
// hidden layers); --batch 64 (images of all ranks in a step); --overlap no (reduces when all gradients are
// there); --ranks 2 (ranks as threads of this process).
#include "gpu/device_kernels.hpp"
#include "train_digits/dataset.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <numeric>
#include <sstream>
#include <string>
#include <tutti/gpu/data_parallel.hpp>
#include <tutti/gpu/open.hpp>
#include <tutti/train/partition.hpp>
#include <tutti/tutti.hpp>
#include <utility>
#include <vector>

namespace {

namespace gpu = tutti::gpu;
using gpu_examples::arguments;
using gpu_examples::device_kernels;
using kernel = device_kernels::kernel;

// Two layers. Matrices are row-major; a column is an image. The parameters of a layer share one buffer, and
// so do their gradients.
struct layer {
  layer(const gpu::device& on, int in, int out, int batch)
      : inputs(in),
        outputs(out),
        parameters(on, static_cast<std::size_t>(out * in + out)),
        gradient(on, parameters.size()),
        velocity(on, parameters.size()),
        result(on, static_cast<std::size_t>(out * batch)),
        delta(on, static_cast<std::size_t>(out * batch)) {}
  std::size_t weights() const { return static_cast<std::size_t>(inputs * outputs); }
  gpu::device_span<float> weights_of(gpu::device_buffer<float>& all) const {
    return all.span().first(weights());
  }
  gpu::device_span<float> biases_of(gpu::device_buffer<float>& all) const {
    return all.span().subspan(weights(), static_cast<std::size_t>(outputs));
  }
  int inputs, outputs;
  gpu::device_buffer<float> parameters, gradient, velocity;
  gpu::device_buffer<float> result, delta;
};

void set(arguments& a, int place, gpu::device_span<float> s) {
  a.memory[place] = s.data();
  a.length[place] = s.size();
}

class trainer {
 public:
  trainer(tutti::communicator world, const gpu::device& on, const train_digits::data_split& data,
          const std::vector<int>& hidden, int batch, bool overlap)
      : world_(std::move(world)),
        data_(data),
        kernels_(on),
        compute_(on),
        batch_(batch),
        overlap_(overlap),
        images_(on, static_cast<std::size_t>(data.training.pixels_per_image() * batch)),
        labels_(on, static_cast<std::size_t>(batch)),
        losses_(on, static_cast<std::size_t>(batch)) {
    int inputs = data.training.pixels_per_image();
    for (const int outputs : hidden) {
      layers_.emplace_back(on, inputs, outputs, batch);
      inputs = outputs;
    }
    layers_.emplace_back(on, inputs, train_digits::classes, batch);
  }

  tutti::task<> initialise() {
    gpu::data_parallel_options o;
    o.first_bucket_bytes = o.bucket_bytes = 1;  // a bucket for each layer
    o.sum = true;                               // each gradient is divided by the samples of all ranks
    std::vector<gpu::device_values> gradients;
    for (layer& l : layers_) gradients.emplace_back(l.gradient);
    parallel_ = co_await gpu::data_parallel::create(world_, gradients, o);
    tutti::random_bits bits(1);
    for (layer& l : layers_) {
      std::vector<float> values(l.parameters.size(), 0.0f);
      const float range = std::sqrt(6.0f / static_cast<float>(l.inputs));
      for (std::size_t i = 0; i < l.weights(); ++i)
        values[i] = range * static_cast<float>(2 * bits.uniform() - 1);
      co_await compute_.upload(l.parameters, values);
      co_await compute_.fill(l.velocity, std::byte{0});
    }
    co_await parallel_.broadcast(parameters(), 0, compute_);
  }

  // Returns the mean loss.
  tutti::task<double> epoch(int number) {
    std::vector<std::uint32_t> order(data_.training.size());
    std::iota(order.begin(), order.end(), 0u);
    tutti::random_bits bits(static_cast<std::uint64_t>(number));
    tutti::shuffle(std::span(order), bits);
    double loss = 0;
    const std::size_t all = static_cast<std::size_t>(batch_ * world_.size());
    for (std::size_t at = 0; at < order.size(); at += all) {
      const std::size_t count = std::min(all, order.size() - at);
      const auto mine = tutti::share_of(std::span<const std::uint32_t>(order).subspan(at, count),
                                        world_.rank(), world_.size());
      loss += co_await step(mine, 1.0f / static_cast<float>(count));
    }
    co_await world_.all_reduce(loss, tutti::sum);
    co_return loss / static_cast<double>(order.size());
  }

  tutti::task<double> accuracy() {
    std::vector<std::uint32_t> order(data_.test.size());
    std::iota(order.begin(), order.end(), 0u);
    std::span<const std::uint32_t> mine =
        tutti::share_of(std::span<const std::uint32_t>(order), world_.rank(), world_.size());
    std::int64_t correct = 0;
    while (!mine.empty()) {
      const auto part = mine.first(std::min<std::size_t>(mine.size(), static_cast<std::size_t>(batch_)));
      co_await load(data_.test, part);
      forward(static_cast<int>(part.size()));
      std::vector<float> scores(static_cast<std::size_t>(train_digits::classes) * part.size());
      co_await compute_.download(scores, layers_.back().result.span().first(scores.size()));
      for (std::size_t c = 0; c < part.size(); ++c) {
        std::size_t best = 0;
        for (std::size_t r = 1; r < train_digits::classes; ++r)
          if (scores[r * part.size() + c] > scores[best * part.size() + c]) best = r;
        correct += static_cast<float>(best) == host_labels_[c] ? 1 : 0;
      }
      mine = mine.subspan(part.size());
    }
    co_await world_.all_reduce(correct, tutti::sum);
    co_return static_cast<double>(correct) / static_cast<double>(data_.test.size());
  }

  tutti::task<bool> identical() {
    const tutti::replica_check check = co_await gpu::compare_replicas(world_, parameters(), compute_);
    co_return check.agree();
  }

 private:
  std::vector<gpu::device_values> parameters() const {
    std::vector<gpu::device_values> all;
    for (const layer& l : layers_) all.emplace_back(l.parameters);
    return all;
  }

  tutti::task<> load(const train_digits::dataset& from, std::span<const std::uint32_t> indices) {
    train_digits::gather(from, indices, host_batch_);
    const auto columns = indices.size();
    const auto rows = static_cast<std::size_t>(layers_.front().inputs);
    host_images_.resize(rows * columns);
    host_labels_.resize(columns);
    for (std::size_t c = 0; c < columns; ++c) {
      for (std::size_t r = 0; r < rows; ++r)
        host_images_[r * columns + c] =
            host_batch_.images(static_cast<Eigen::Index>(r), static_cast<Eigen::Index>(c));
      host_labels_[c] = static_cast<float>(host_batch_.labels[c]);
    }
    co_await compute_.upload(images_, host_images_);
    co_await compute_.upload(labels_, host_labels_);
  }

  void product(gpu::device_span<float> to, gpu::device_span<float> a, gpu::device_span<float> b, int rows,
               int columns, int inner, int transposed) {
    arguments k;
    set(k, 0, to);
    set(k, 1, a);
    set(k, 2, b);
    k.number[0] = rows;
    k.number[1] = columns;
    k.number[2] = inner;
    k.number[3] = transposed;
    k.count = static_cast<std::uint64_t>(rows) * static_cast<std::uint64_t>(columns);
    kernels_.launch(compute_, kernel::multiply, k);
  }
  void bias(layer& l, int columns, bool relu) {
    arguments k;
    set(k, 0, l.result.span());
    set(k, 1, l.biases_of(l.parameters));
    k.number[0] = columns;
    k.number[1] = relu ? 1 : 0;
    k.count = static_cast<std::uint64_t>(l.outputs * columns);
    kernels_.launch(compute_, kernel::bias_relu, k);
  }
  gpu::device_span<float> below(std::size_t i) {
    return i == 0 ? images_.span() : layers_[i - 1].result.span();
  }
  void forward(int columns) {
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      layer& l = layers_[i];
      product(l.result.span(), l.weights_of(l.parameters), below(i), l.outputs, columns, l.inputs, 0);
      bias(l, columns, i + 1 < layers_.size());
    }
  }
  void gradient(layer& l, gpu::device_span<float> delta, gpu::device_span<float> inputs, int columns) {
    product(l.weights_of(l.gradient), delta, inputs, l.outputs, l.inputs, columns, 2);
    arguments k;
    set(k, 0, l.biases_of(l.gradient));
    set(k, 1, delta);
    k.number[0] = columns;
    k.count = static_cast<std::uint64_t>(l.outputs);
    kernels_.launch(compute_, kernel::row_sums, k);
  }
  // The derivative by the results of the layer before.
  gpu::device_span<float> backward(layer& l, gpu::device_span<float> delta, layer& before, int columns) {
    product(before.delta.span(), l.weights_of(l.parameters), delta, l.inputs, columns, l.outputs, 1);
    arguments cut;
    set(cut, 0, before.delta.span());
    set(cut, 1, before.result.span());
    cut.count = static_cast<std::uint64_t>(before.outputs * columns);
    kernels_.launch(compute_, kernel::relu_backward, cut);
    return before.delta.span();
  }
  void update(layer& l) {
    arguments k;
    set(k, 0, l.parameters.span());
    set(k, 1, l.gradient.span());
    set(k, 2, l.velocity.span());
    k.factor[0] = 0.2f;
    k.factor[1] = 0.9f;
    k.count = l.parameters.size();
    kernels_.launch(compute_, kernel::step, k);
  }

  // All kernels use one stream in order. The reductions run beside it, and the updates wait for them on the
  // stream.
  tutti::task<double> step(std::span<const std::uint32_t> indices, float weight) {
    const int columns = static_cast<int>(indices.size());
    co_await load(data_.training, indices);
    forward(columns);
    layer& last = layers_.back();
    arguments k;
    set(k, 0, last.result.span());
    set(k, 1, labels_.span());
    set(k, 2, losses_.span());
    k.number[0] = last.outputs;
    k.number[1] = columns;
    k.factor[0] = weight;
    k.count = static_cast<std::uint64_t>(columns);
    kernels_.launch(compute_, kernel::softmax_loss, k);  // replaces the result by its derivative

    gpu::device_span<float> delta = last.result.span();
    for (std::size_t i = layers_.size(); i-- > 0;) {
      layer& l = layers_[i];
      gradient(l, delta, below(i), columns);
      if (overlap_)
        parallel_.ready(i, compute_);  // averaged while the gradients of earlier layers are computed
      if (i > 0) delta = backward(l, delta, layers_[i - 1], columns);
    }
    if (!overlap_) {
      co_await compute_.reached();
      for (std::size_t i = layers_.size(); i-- > 0;) parallel_.ready(i, compute_);
    }

    std::vector<float> losses(static_cast<std::size_t>(columns));
    tutti::request told = tutti::start(compute_.download(losses, losses_.span().first(losses.size())));
    co_await parallel_.reduced(compute_);
    for (layer& l : layers_) update(l);
    co_await told;
    double sum = 0;
    for (const float l : losses) sum += l;
    co_return sum;
  }

  tutti::communicator world_;
  const train_digits::data_split& data_;
  device_kernels kernels_;
  gpu::stream compute_;
  int batch_;
  bool overlap_;
  std::vector<layer> layers_;
  gpu::device_buffer<float> images_, labels_, losses_;
  gpu::data_parallel parallel_;
  train_digits::batch host_batch_;
  std::vector<float> host_images_, host_labels_;
};

struct wishes {
  std::string kind;
  int epochs, batch;
  std::vector<int> hidden;
  bool overlap;
};

tutti::task<int> train(tutti::communicator world, wishes w, const train_digits::data_split* data) {
  const gpu::device dev = co_await gpu_examples::open_device(world, w.kind);
  trainer all(world, dev, *data, w.hidden, std::max(1, w.batch / world.size()), w.overlap);
  co_await all.initialise();
  std::vector<double> times;
  for (int e = 1; e <= w.epochs; ++e) {
    const auto begin = std::chrono::steady_clock::now();
    const double loss = co_await all.epoch(e);
    times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    if (world.rank() == 0) std::printf("epoch %2d/%d  loss %.4f  %.3f s\n", e, w.epochs, loss, times.back());
  }
  const double accuracy = co_await all.accuracy();
  const bool identical = co_await all.identical();
  std::sort(times.begin(), times.end());
  if (world.rank() == 0)
    std::printf("%s, %d ranks: test accuracy %.2f %%, replicas identical: %s, median epoch %.3f s\n",
                dev.name().c_str(), world.size(), accuracy * 100, identical ? "yes" : "NO",
                times.empty() ? 0 : times[times.size() / 2]);
  co_return identical&& accuracy > 0.8 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const auto option = [&](const char* name, const char* otherwise) {
    return gpu_examples::option_of(argc, argv, name, otherwise);
  };
  wishes w{option("--device", "emulated"),
           std::stoi(option("--epochs", "10")),
           std::stoi(option("--batch", "64")),
           {},
           option("--overlap", "yes") != "no"};
  std::istringstream sizes(option("--hidden", "32"));
  for (std::string size; std::getline(sizes, size, ',');) w.hidden.push_back(std::stoi(size));
  const std::string mnist = option("--mnist", "");
  train_digits::data_split data;
  try {
    const char* const elsewhere = std::getenv("TUTTI_EXAMPLE_DATA");
    data =
        mnist.empty()
            ? train_digits::load_digits(
                  std::string(elsewhere != nullptr ? elsewhere : TUTTI_EXAMPLE_DATA_DIR) + "/digits.csv.gz")
            : train_digits::load_mnist(mnist);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "gpu_train: %s\n", e.what());
    return 1;
  }
  return gpu_examples::run(argc, argv,
                           [&](tutti::communicator world) { return train(std::move(world), w, &data); });
}

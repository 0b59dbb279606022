// SPDX-License-Identifier: Apache-2.0
// train_digits on devices. data_parallel reduces the gradient of a layer while that of the previous layer is
// computed. Prints the loss of each epoch and the accuracy; all replicas must stay equal.
//   tutti-run -n 2 gpu_train --device emulated --epochs 3
#include "gpu/device_kernels.hpp"
#include "train_digits/dataset.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <numeric>
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
  trainer(tutti::communicator world, const gpu::device& on, const train_digits::data_split& data, int hidden,
          int batch)
      : world_(std::move(world)),
        data_(data),
        kernels_(on),
        compute_(on),
        batch_(batch),
        first_(on, data.training.pixels_per_image(), hidden, batch),
        second_(on, hidden, train_digits::classes, batch),
        images_(on, static_cast<std::size_t>(data.training.pixels_per_image() * batch)),
        labels_(on, static_cast<std::size_t>(batch)),
        losses_(on, static_cast<std::size_t>(batch)) {}

  tutti::task<> initialise() {
    co_await gpu::open(world_, compute_.on());
    gpu::data_parallel_options o;
    o.first_bucket_bytes = o.bucket_bytes = 1;  // a bucket for each layer
    o.sum = true;                               // each gradient is divided by the samples of all ranks
    const std::vector<gpu::device_values> gradients{first_.gradient, second_.gradient};
    parallel_ = co_await gpu::data_parallel::create(world_, gradients, o);
    tutti::random_bits bits(1);
    for (layer* l : {&first_, &second_}) {
      std::vector<float> values(l->parameters.size(), 0.0f);
      const float range = std::sqrt(6.0f / static_cast<float>(l->inputs));
      for (std::size_t i = 0; i < l->weights(); ++i)
        values[i] = range * static_cast<float>(2 * bits.uniform() - 1);
      co_await compute_.upload(l->parameters, values);
      co_await compute_.fill(l->velocity, std::byte{0});
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
      co_await compute_.download(scores, second_.result.span().first(scores.size()));
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
  std::vector<gpu::device_values> parameters() const { return {first_.parameters, second_.parameters}; }

  tutti::task<> load(const train_digits::dataset& from, std::span<const std::uint32_t> indices) {
    train_digits::gather(from, indices, host_batch_);
    const auto columns = indices.size();
    const auto rows = static_cast<std::size_t>(first_.inputs);
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
  void forward(int columns) {
    product(first_.result.span(), first_.weights_of(first_.parameters), images_.span(), first_.outputs,
            columns, first_.inputs, 0);
    bias(first_, columns, true);
    product(second_.result.span(), second_.weights_of(second_.parameters), first_.result.span(),
            second_.outputs, columns, second_.inputs, 0);
    bias(second_, columns, false);
  }
  void gradient(layer& l, gpu::device_span<float> delta, gpu::device_span<float> below, int columns) {
    product(l.weights_of(l.gradient), delta, below, l.outputs, l.inputs, columns, 2);
    arguments k;
    set(k, 0, l.biases_of(l.gradient));
    set(k, 1, delta);
    k.number[0] = columns;
    k.count = static_cast<std::uint64_t>(l.outputs);
    kernels_.launch(compute_, kernel::row_sums, k);
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
    arguments k;
    set(k, 0, second_.result.span());
    set(k, 1, labels_.span());
    set(k, 2, losses_.span());
    k.number[0] = second_.outputs;
    k.number[1] = columns;
    k.factor[0] = weight;
    k.count = static_cast<std::uint64_t>(columns);
    kernels_.launch(compute_, kernel::softmax_loss, k);  // replaces the result by its derivative

    gradient(second_, second_.result.span(), first_.result.span(), columns);
    parallel_.ready(1, compute_);

    // Meanwhile, the backward pass of the first layer.
    product(first_.delta.span(), second_.weights_of(second_.parameters), second_.result.span(),
            first_.outputs, columns, second_.outputs, 1);
    arguments cut;
    set(cut, 0, first_.delta.span());
    set(cut, 1, first_.result.span());
    cut.count = static_cast<std::uint64_t>(first_.outputs * columns);
    kernels_.launch(compute_, kernel::relu_backward, cut);
    gradient(first_, first_.delta.span(), images_.span(), columns);
    parallel_.ready(0, compute_);

    std::vector<float> losses(static_cast<std::size_t>(columns));
    tutti::request told = tutti::start(compute_.download(losses, losses_.span().first(losses.size())));
    co_await parallel_.reduced(compute_);
    update(second_);
    update(first_);
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
  layer first_, second_;
  gpu::device_buffer<float> images_, labels_, losses_;
  gpu::data_parallel parallel_;
  train_digits::batch host_batch_;
  std::vector<float> host_images_, host_labels_;
};

tutti::task<int> train(tutti::communicator world, std::string kind, int epochs,
                       const train_digits::data_split* data) {
  const gpu::device dev = gpu_examples::open_device(world, kind);
  trainer all(world, dev, *data, 32, std::max(1, 64 / world.size()));
  co_await all.initialise();
  for (int e = 1; e <= epochs; ++e) {
    const double loss = co_await all.epoch(e);
    if (world.rank() == 0) std::printf("epoch %2d/%d  loss %.4f\n", e, epochs, loss);
  }
  const double accuracy = co_await all.accuracy();
  const bool identical = co_await all.identical();
  if (world.rank() == 0)
    std::printf("%s, %d ranks: test accuracy %.2f %%, replicas identical: %s\n", dev.name().c_str(),
                world.size(), accuracy * 100, identical ? "yes" : "NO");
  co_return identical&& accuracy > 0.8 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string kind = gpu_examples::option_of(argc, argv, "--device", "emulated");
  const int epochs = std::atoi(gpu_examples::option_of(argc, argv, "--epochs", "10").c_str());
  train_digits::data_split data;
  try {
    const char* const elsewhere = std::getenv("TUTTI_EXAMPLE_DATA");
    data = train_digits::load_digits(std::string(elsewhere != nullptr ? elsewhere : TUTTI_EXAMPLE_DATA_DIR) +
                                     "/digits.csv.gz");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "gpu_train: %s\n", e.what());
    return 1;
  }
  return tutti::run([&](tutti::communicator world) { return train(std::move(world), kind, epochs, &data); });
}

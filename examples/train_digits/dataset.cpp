// SPDX-License-Identifier: Apache-2.0
// Loading, splitting and gathering of datasets.
#include "train_digits/dataset.hpp"

#include "train_digits/digits.hpp"
#include "train_digits/idx.hpp"
#include "train_digits/npz.hpp"

#include <tutti/train/shuffle.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <utility>

namespace train_digits {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t split_seed = 1998;  // fixed, so that runs of all seeds share one test set
constexpr std::size_t digits_test_count = 360;
constexpr const char* keras_file = "mnist.npz";

dataset subset(const dataset& all, std::span<const std::uint32_t> indices) {
  const std::size_t image = static_cast<std::size_t>(all.pixels_per_image());
  dataset part;
  part.rows = all.rows;
  part.columns = all.columns;
  part.darkest = all.darkest;
  part.pixels.reserve(indices.size() * image);
  part.labels.reserve(indices.size());
  for (const std::uint32_t i : indices) {
    const auto first = all.pixels.begin() + static_cast<std::ptrdiff_t>(i * image);
    part.pixels.insert(part.pixels.end(), first, first + static_cast<std::ptrdiff_t>(image));
    part.labels.push_back(all.labels[i]);
  }
  return part;
}

// MNIST files end in "-idx3-ubyte", their copies in ".idx3-ubyte".
std::optional<fs::path> find_idx(const fs::path& directory, const std::string& stem,
                                 const std::string& kind) {
  for (const char* separator : {"-", "."}) {
    for (const char* ending : {"", ".gz"}) {
      fs::path candidate = directory / (stem + separator + kind + ending);
      std::error_code ignored;
      if (fs::is_regular_file(candidate, ignored)) return candidate;
    }
  }
  return std::nullopt;
}

// Throws unless there is one label for each image, and each is a digit.
void check_labels(const dataset& data, std::size_t images, const std::string& of,
                  const std::string& images_of) {
  if (data.labels.size() != images) {
    throw std::runtime_error(of + ": has " + std::to_string(data.labels.size()) + " labels for the " +
                             std::to_string(images) + " images of " + images_of +
                             ": the files do not belong together");
  }
  const auto wrong = std::ranges::find_if(data.labels, [](std::uint8_t label) { return label >= classes; });
  if (wrong != data.labels.end()) {
    throw std::runtime_error(of + ": label " + std::to_string(wrong - data.labels.begin()) + " is " +
                             std::to_string(*wrong) + "; labels are 0 to " + std::to_string(classes - 1));
  }
}

// Images and labels of one set; nothing if there are no images of that name.
std::optional<dataset> load_pair(const fs::path& directory, const std::string& prefix) {
  const auto images_path = find_idx(directory, prefix + "-images", "idx3-ubyte");
  if (!images_path) return std::nullopt;
  const auto labels_path = find_idx(directory, prefix + "-labels", "idx1-ubyte");
  if (!labels_path) {
    throw std::runtime_error(images_path->string() + ": its labels are missing: put " + prefix +
                             "-labels-idx1-ubyte or " + prefix + "-labels-idx1-ubyte.gz beside it");
  }
  idx_images images = read_idx_images(*images_path);
  dataset data;
  data.rows = images.rows;
  data.columns = images.columns;
  data.pixels = std::move(images.pixels);
  data.labels = read_idx_labels(*labels_path);
  check_labels(data, images.count, labels_path->string(), images_path->filename().string());
  return data;
}

// The arrays of Keras' MNIST: `x_train` and `y_train`, `x_test` and `y_test`.
dataset from_npz(const npz_file& file, const fs::path& path, const std::string& part) {
  npz_array images = file.read("x_" + part, 3), labels = file.read("y_" + part, 1);
  dataset data;
  data.rows = static_cast<int>(images.shape[1]);
  data.columns = static_cast<int>(images.shape[2]);
  data.pixels = std::move(images.bytes);
  data.labels = std::move(labels.bytes);
  check_labels(data, images.shape[0], path.string(), "x_" + part);
  if (data.pixels.empty()) throw std::runtime_error(path.string() + ": x_" + part + " is empty");
  return data;
}

bool has_npz(const fs::path& directory) {
  std::error_code ignored;
  return fs::is_regular_file(directory / keras_file, ignored);
}

}  // namespace

void gather(const dataset& data, std::span<const std::uint32_t> indices, batch& to) {
  const Eigen::Index image = data.pixels_per_image();
  const float scale = 1.0f / static_cast<float>(data.darkest);
  to.images.resize(image, static_cast<Eigen::Index>(indices.size()));
  to.labels.resize(indices.size());
  for (std::size_t k = 0; k < indices.size(); ++k) {
    const std::uint8_t* pixels =
        data.pixels.data() + std::size_t{indices[k]} * static_cast<std::size_t>(image);
    using bytes = Eigen::Matrix<std::uint8_t, Eigen::Dynamic, 1>;
    to.images.col(static_cast<Eigen::Index>(k)) =
        Eigen::Map<const bytes>(pixels, image).cast<float>() * scale;
    to.labels[k] = data.labels[indices[k]];
  }
}

data_split hold_out(const dataset& all, std::size_t test_count, std::string name) {
  if (test_count == 0 || test_count >= all.size()) {
    throw std::runtime_error(name + ": " + std::to_string(all.size()) + " images are too few to hold out " +
                             std::to_string(test_count) + " as a test set");
  }
  std::vector<std::uint32_t> order(all.size());
  std::iota(order.begin(), order.end(), 0u);
  tutti::random_bits bits(split_seed);
  tutti::shuffle(std::span(order), bits);
  const std::span<const std::uint32_t> shuffled(order);
  return {std::move(name), subset(all, shuffled.first(all.size() - test_count)),
          subset(all, shuffled.last(test_count))};
}

data_split load_digits(const fs::path& csv) {
  return hold_out(read_digits_csv(csv), digits_test_count, "UCI digits");
}

data_split load_mnist(const fs::path& directory) {
  std::error_code ignored;
  if (!fs::is_directory(directory, ignored)) {
    throw std::runtime_error(directory.string() +
                             ": is not a directory; --data wants the one that holds the MNIST files");
  }
  std::optional<dataset> training = load_pair(directory, "train"), test = load_pair(directory, "t10k");
  if (!training && !test && has_npz(directory)) {
    const fs::path path = directory / keras_file;
    const npz_file file(path);
    training = from_npz(file, path, "train");
    test = from_npz(file, path, "test");
  }
  if (training && test) {
    if (training->rows != test->rows || training->columns != test->columns) {
      throw std::runtime_error(directory.string() + ": the training and the test images differ in size");
    }
    return {"MNIST", std::move(*training), std::move(*test)};
  }
  if (!training && !test) {
    throw std::runtime_error(
        directory.string() +
        ": no MNIST images here; looked for train-images-idx3-ubyte[.gz], t10k-images-idx3-ubyte[.gz] and "
        "mnist.npz: download them from https://ossci-datasets.s3.amazonaws.com/mnist/");
  }
  const dataset& only = training ? *training : *test;
  return hold_out(only, only.size() / 10, training ? "MNIST, training images" : "MNIST, t10k images");
}

fs::path find_mnist() {
  if (const char* told = std::getenv("TUTTI_MNIST_DIR"); told != nullptr && *told != '\0') return told;
  std::vector<fs::path> places{"data/MNIST/raw", "../data/MNIST/raw", "MNIST_data"};
  if (const char* home = std::getenv("HOME")) {
    places.push_back(fs::path(home) / "data/MNIST/raw");
    places.push_back(fs::path(home) / "MNIST_data");
    places.push_back(fs::path(home) / ".keras/datasets");
  }
  for (const fs::path& place : places)
    if (find_idx(place, "train-images", "idx3-ubyte") || find_idx(place, "t10k-images", "idx3-ubyte") ||
        has_npz(place))
      return place;
  return {};
}

dataset scaled(const dataset& images, int side) {
  // For each new row or column: the two old ones around it, and the weight of the second.
  struct between {
    std::size_t first, second;
    float weight;
  };
  const auto spread = [side](int old) {
    std::vector<between> all;
    for (int i = 0; i < side; ++i) {
      const float centre =
          (static_cast<float>(i) + 0.5F) * static_cast<float>(old) / static_cast<float>(side);
      const float at = std::clamp(centre - 0.5F, 0.0F, static_cast<float>(old - 1));
      const auto first = static_cast<std::size_t>(at);
      const std::size_t second = std::min(first + 1, static_cast<std::size_t>(old - 1));
      all.push_back({first, second, at - static_cast<float>(first)});
    }
    return all;
  };
  const std::vector<between> rows = spread(images.rows), columns = spread(images.columns);
  const auto width = static_cast<std::size_t>(images.columns);
  dataset large{side, side, images.darkest, {}, images.labels};
  large.pixels.reserve(images.size() * rows.size() * columns.size());
  for (std::size_t image = 0; image < images.size(); ++image) {
    const std::uint8_t* const pixels =
        images.pixels.data() + image * static_cast<std::size_t>(images.pixels_per_image());
    for (const between& y : rows)
      for (const between& x : columns) {
        const auto across = [&](std::size_t row) {
          return std::lerp(static_cast<float>(pixels[row * width + x.first]),
                           static_cast<float>(pixels[row * width + x.second]), x.weight);
        };
        const float value = std::lerp(across(y.first), across(y.second), y.weight);
        large.pixels.push_back(static_cast<std::uint8_t>(std::lround(value)));
      }
  }
  return large;
}

}  // namespace train_digits

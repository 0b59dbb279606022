// SPDX-License-Identifier: Apache-2.0
// torch::save and torch::load for all ranks: one file, which only rank 0 reads and writes. Part of
// tutti/torch.hpp.
#pragma once

#include <tutti/communicator.hpp>
#include <tutti/compute.hpp>
#include <tutti/objects.hpp>
#include <tutti/task.hpp>
#include <tutti/train/replace_file.hpp>

#include <torch/serialize.h>

#include <cerrno>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <istream>
#include <iterator>
#include <limits>
#include <ostream>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>

namespace tutti::torch {
namespace impl {

inline std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string content{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file.is_open() || file.bad()) throw std::system_error(errno, std::generic_category(), path.string());
  return content;
}

// Runs f on rank 0, off the loop, and gives all ranks what it returned. Throws on all what it threw.
inline task<std::string> on_rank_0(communicator c, std::string what, std::function<std::string()> f) {
  std::pair<bool, std::string> outcome{true, {}};
  if (c.rank() == 0) {
    const auto run = [&] {
      try {
        outcome.second = f();
      } catch (const std::exception& e) {
        outcome = {false, e.what()};
      }
    };
    co_await compute(run);
  }
  outcome = co_await broadcast_object(c, std::move(outcome), 0, std::numeric_limits<std::size_t>::max());
  if (!outcome.first) throw error(errc::system, what + " on rank 0: " + outcome.second);
  co_return std::move(outcome.second);
}

inline task<> save_by(communicator c, std::filesystem::path path, std::function<void(std::ostream&)> write) {
  co_await on_rank_0(std::move(c), "saving " + path.string(), [&write, &path] {
    std::ostringstream content;
    write(content);
    replace_file(path, content.view());
    return std::string();
  });
}

inline task<> load_by(communicator c, std::filesystem::path path, std::function<void(std::istream&)> read) {
  std::istringstream content(
      co_await on_rank_0(std::move(c), "loading " + path.string(), [&path] { return content_of(path); }));
  read(content);
}

}  // namespace impl

// Writes rank 0's `value` (a module, an optimiser or tensors, as torch::save takes them) to the file `path`.
// Collective. The new file replaces the old one at once; a program that ends meanwhile leaves the old one.
// Completes: on all ranks, when the file is on the disk.
// Buffers: `value` must stay unchanged until then.
// Errors: errc::system, on all ranks.
template <class Value>
task<> save(communicator c, const Value& value, std::filesystem::path path) {
  return impl::save_by(std::move(c), std::move(path),
                       [&value](std::ostream& to) { ::torch::save(value, to); });
}

// Loads the file `path`, which only rank 0 reads, into `value` on every rank. Collective.
// Buffers: `value` must not be used until completion.
// Errors: errc::system, on all ranks; the exception of torch::load if the file has another form than `value`.
template <class Value>
task<> load(communicator c, Value& value, std::filesystem::path path) {
  return impl::load_by(std::move(c), std::move(path),
                       [&value](std::istream& from) { ::torch::load(value, from); });
}

}  // namespace tutti::torch

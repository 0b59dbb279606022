// SPDX-License-Identifier: Apache-2.0
// Checkpoints: a saved one is loaded, anything else is refused.
#include "train_mnist/checkpoint.hpp"

#include "examples/scratch_files.hpp"
#include "support/scratch_directory.hpp"

#include <doctest/doctest.h>

#include <string>

using namespace train_mnist;
using namespace tutti::test;

namespace {

checkpoint some() {
  checkpoint c;
  c.epoch = 3;
  c.seed = 77;
  c.parameters = {1, 2, 3};
  c.velocity = {-1, -0.0F, 1e-30F};
  return c;
}

}  // namespace

TEST_CASE("checkpoint: saved and loaded; a new one replaces the old") {
  const scratch_directory scratch;
  const auto path = scratch.path() / "at";
  checkpoint c = some();
  save(c, path);
  c.epoch = 4;
  c.parameters[0] = 5;
  save(c, path);
  const checkpoint read = load(path, 3);
  CHECK(read.epoch == 4);
  CHECK(read.seed == 77);
  CHECK(read.parameters == c.parameters);
  CHECK(read.velocity == c.velocity);
  CHECK_FALSE(std::filesystem::exists(path.string() + ".new"));
}

TEST_CASE("checkpoint: damaged and foreign files are refused by name") {
  const scratch_directory scratch;
  const auto path = scratch.path() / "at";
  save(some(), path);
  const std::string good = scratch.read(path);
  const auto refused = [&](const std::string& bytes, std::size_t parameters, const char* why) {
    const std::string said = error_of([&] { load(scratch.write("bad", bytes), parameters); });
    CAPTURE(said);
    return said.find("bad") != std::string::npos && said.find(why) != std::string::npos;
  };
  CHECK(refused(good, 4, "another network"));
  CHECK(refused("", 3, "no checkpoint"));
  CHECK(refused(std::string(good.size(), 'x'), 3, "no checkpoint"));
  for (std::size_t cut = 0; cut < good.size(); ++cut)
    CHECK_FALSE(error_of([&] { load(scratch.write("bad", good.substr(0, cut)), 3); }).empty());
  for (std::size_t at = 0; at < good.size(); ++at) {
    if (at >= 40 && at < 48) continue;  // reserved
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 4);
    CAPTURE(at);
    CHECK_FALSE(error_of([&] { load(scratch.write("bad", bad), 3); }).empty());
  }
  CHECK(error_of([&] { load(scratch.path() / "none", 3); }).find("none") != std::string::npos);
  CHECK_FALSE(error_of([&] { save(some(), scratch.path() / "no" / "where"); }).empty());
}

// SPDX-License-Identifier: Apache-2.0
// Runs the kept inputs of fuzzing through every target; also truncated, and with changed bits.
#include "fuzz/targets.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

namespace {

std::vector<std::filesystem::path> inputs_of(std::string_view target) {
  std::vector<std::filesystem::path> found;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(TUTTI_FUZZ_CORPUS) / target))
    found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<std::uint8_t> contents_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

TEST_CASE("fuzz: every target survives its corpus") {
  std::mt19937_64 random(1);
  for (const tutti::fuzz::target& t : tutti::fuzz::targets) {
    const auto inputs = inputs_of(t.name);
    CHECK_MESSAGE(!inputs.empty(), std::string(t.name));
    for (const auto& path : inputs) {
      CAPTURE(path.string());
      std::vector<std::uint8_t> input = contents_of(path);
      t.run(input);
      for (int round = 0; round < 8 && !input.empty(); ++round) {
        std::vector<std::uint8_t> other = input;
        other[random() % other.size()] ^= static_cast<std::uint8_t>(1U << (random() % 8));
        if (round % 2 == 1) other.resize(random() % (other.size() + 1));
        t.run(other);
      }
    }
  }
}

TEST_CASE("fuzz: every target survives an empty input, zeros and noise") {
  std::mt19937_64 random(2);
  for (const tutti::fuzz::target& t : tutti::fuzz::targets) {
    t.run({});
    for (const std::size_t size : {1UL, 12UL, 64UL, 100UL, 1000UL, 10'000UL}) {
      std::vector<std::uint8_t> input(size, 0);
      t.run(input);
      for (int round = 0; round < 20; ++round) {
        for (auto& b : input) b = static_cast<std::uint8_t>(random());
        t.run(input);
      }
    }
  }
}

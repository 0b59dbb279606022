// SPDX-License-Identifier: Apache-2.0
// Runs the kept inputs of fuzzing through every target; also truncated, and with changed bits.
#include "fuzz/targets.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

namespace {

using path = std::filesystem::path;
using input = std::vector<std::uint8_t>;

std::vector<path> files_in(const path& folder) {
  std::vector<path> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<path> inputs_of(std::string_view target) { return files_in(path(TUTTI_FUZZ_CORPUS) / target); }

input contents_of(const path& name) {
  std::ifstream file(name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The beginning of one, the end of another, and some bytes changed.
input mixture(const std::vector<input>& all, std::mt19937_64& random) {
  const auto any = [&](std::size_t below) { return static_cast<std::size_t>(random() % below); };
  input made = all[any(all.size())];
  const input& other = all[any(all.size())];
  made.resize(any(made.size() + 1));
  made.insert(made.end(), other.begin() + static_cast<std::ptrdiff_t>(any(other.size() + 1)), other.end());
  for (auto changes = any(8); changes > 0 && !made.empty(); --changes)
    made[any(made.size())] = static_cast<std::uint8_t>(random());
  return made;
}

}  // namespace

TEST_CASE("fuzz: every target survives its corpus") {
  std::mt19937_64 random(1);
  for (const tutti::fuzz::target& t : tutti::fuzz::targets) {
    const auto inputs = inputs_of(t.name);
    CHECK_MESSAGE(!inputs.empty(), std::string(t.name));
    for (const path& name : inputs) {
      CAPTURE(name.string());
      const input kept = contents_of(name);
      t.run(kept);
      for (int round = 0; round < 8 && !kept.empty(); ++round) {
        input other = kept;
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
      input noise(size, 0);
      t.run(noise);
      for (int round = 0; round < 20; ++round) {
        for (auto& b : noise) b = static_cast<std::uint8_t>(random());
        t.run(noise);
      }
    }
  }
}

// TUTTI_FUZZ_INPUTS: how many; TUTTI_FUZZ_FOUND: a folder of more inputs to mix; TUTTI_TEST_SEED: another sequence.
TEST_CASE("fuzz: the real ranks survive mixtures of what a hostile rank sends") {
  std::vector<input> all;
  for (const path& name : inputs_of("hostile_rank")) all.push_back(contents_of(name));
  if (const char* const found = std::getenv("TUTTI_FUZZ_FOUND"))
    for (const path& name : files_in(found)) all.push_back(contents_of(name));
  const char* const wanted = std::getenv("TUTTI_FUZZ_INPUTS");
  const char* const seed = std::getenv("TUTTI_TEST_SEED");
  std::mt19937_64 random(seed != nullptr ? std::strtoull(seed, nullptr, 0) : 3);
  for (long left = wanted != nullptr ? std::atol(wanted) : 500; left > 0; --left) {
    const input next = mixture(all, random);
    tutti::fuzz::hostile_rank(next);
  }
}

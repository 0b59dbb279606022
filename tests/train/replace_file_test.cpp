// SPDX-License-Identifier: Apache-2.0
#include "support/scratch_directory.hpp"

#include <doctest/doctest.h>
#include <atomic>
#include <filesystem>
#include <iterator>
#include <string>
#include <system_error>
#include <thread>
#include <tutti/train/replace_file.hpp>

using namespace tutti;
using namespace tutti::test;

TEST_CASE("replace_file: the file has the new content or the old one") {
  const scratch_directory folder;
  const auto file = folder.path() / "checkpoint";
  replace_file(file, "one");
  const std::string large(1 << 20, 'x');
  replace_file(file, large);
  CHECK(folder.read(file) == large);
  replace_file(file, "");
  CHECK(folder.read(file).empty());
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);

  const auto blocked = folder.path() / "a folder";  // no file replaces it
  std::filesystem::create_directory(blocked);
  CHECK_THROWS_AS(replace_file(blocked, "new"), std::system_error);
  CHECK(std::filesystem::is_directory(blocked));
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 2);
  CHECK_THROWS_AS(replace_file(folder.path() / "none" / "checkpoint", "new"), std::system_error);
}

TEST_CASE("replace_file: several may replace one file at a time") {
  const scratch_directory folder;
  const auto file = folder.path() / "checkpoint";
  constexpr std::size_t size = 100'000;
  std::atomic<int> failed = 0;
  const auto write = [&](char c) {
    for (int i = 0; i < 50; ++i) try {
        replace_file(file, std::string(size, c));
      } catch (const std::system_error&) {
        ++failed;
      }
  };
  std::thread other(write, 'a');
  write('b');
  other.join();
  CHECK(failed == 0);
  const std::string content = folder.read(file);
  CHECK((content == std::string(size, 'a') || content == std::string(size, 'b')));
}

// SPDX-License-Identifier: Apache-2.0
#include "support/scratch_directory.hpp"

#include <doctest/doctest.h>
#include <filesystem>
#include <iterator>
#include <string>
#include <system_error>
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

  folder.write("checkpoint", "old");
  std::filesystem::create_directory(folder.path() / "checkpoint.new");  // blocks the temporary file
  folder.write("checkpoint.new/in the way", "");
  CHECK_THROWS_AS(replace_file(file, "new"), std::system_error);
  CHECK(folder.read(file) == "old");
  CHECK_THROWS_AS(replace_file(folder.path() / "none" / "checkpoint", "new"), std::system_error);
}

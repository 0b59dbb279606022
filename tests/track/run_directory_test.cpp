// SPDX-License-Identifier: Apache-2.0
#include "track/run_directory.hpp"

#include "support/run_task.hpp"
#include "support/scratch_directory.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <filesystem>
#include <iterator>
#include <set>
#include <string>
#include <thread>
#include <vector>

using namespace tutti::track;
namespace fs = std::filesystem;

TEST_CASE("run directory: ranks of one run get the same directory at any time, other runs get others") {
  const tutti::test::scratch_directory scratch;
  constexpr int runs = 3, ranks = 8;
  std::vector<fs::path> got(runs * ranks);
  std::vector<std::thread> threads;
  for (int i = 0; i < runs * ranks; ++i)
    threads.emplace_back([&, i] {
      got[static_cast<std::size_t>(i)] =
          claim_run_directory(scratch.path() / "runs", std::to_string(i % runs), "name");
    });
  for (std::thread& t : threads) t.join();
  for (int i = 0; i < runs * ranks; ++i)
    CHECK(got[static_cast<std::size_t>(i)] == got[static_cast<std::size_t>(i % runs)]);
  CHECK(std::set<fs::path>(got.begin(), got.end()).size() == runs);
  for (const fs::path& path : got) CHECK(fs::is_directory(path));
  // The ranks that were not first leave no directory.
  int directories = 0;
  for (const auto& entry : fs::directory_iterator(scratch.path() / "runs"))
    directories += entry.path().filename() != ".tutti";
  CHECK(directories == runs);
}

TEST_CASE("run directory: a free name is used unchanged, however many ranks arrive at once") {
  for (int round = 0; round < 50; ++round) {
    const tutti::test::scratch_directory scratch;
    fs::create_directories(scratch.path() / "taken");
    std::vector<fs::path> got(8);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < got.size(); ++i)
      threads.emplace_back([&, i] {
        got[i] =
            claim_run_directory(scratch.path(), i % 2 == 0 ? "even" : "odd", i % 2 == 0 ? "free" : "taken");
      });
    for (std::thread& t : threads) t.join();
    for (std::size_t i = 0; i < got.size(); ++i)
      CHECK(got[i].filename() == (i % 2 == 0 ? "free" : "taken-2"));
  }
}

TEST_CASE("run directory: ranks with names of two seconds get one directory and leave no other") {
  for (int round = 0; round < 50; ++round) {
    const tutti::test::scratch_directory scratch;
    std::vector<fs::path> got(6);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < got.size(); ++i)
      threads.emplace_back(
          [&, i] { got[i] = claim_run_directory(scratch.path(), "id", i % 2 == 0 ? "10" : "11"); });
    for (std::thread& t : threads) t.join();
    for (const fs::path& path : got) CHECK(path == got[0]);
    CHECK(fs::is_directory(got[0]));
    int directories = 0;
    for (const auto& entry : fs::directory_iterator(scratch.path()))
      directories += entry.path().filename() != ".tutti";
    CHECK(directories == 1);
  }
}

TEST_CASE("run directory: the error for a directory that cannot be made has the path") {
  const tutti::test::scratch_directory scratch;
  const fs::path file = scratch.write("file", "");
  const auto failure = tutti::test::failure_of([&] { claim_run_directory(file, "id", "name"); });
  CHECK(failure.code == tutti::errc::system);
  CHECK(failure.says(file.string()));
}

TEST_CASE("run directory: invalid names of a directory") {
  for (const char* bad : {"a/b", ".hidden", "..", "/"}) CHECK_THROWS(check_run_name(bad));
  for (const char* good : {"", "a", "2026-01-31_23-59-59", "learning rate 0.1"})
    CHECK_NOTHROW(check_run_name(good));
  CHECK(name_of_now().size() == 19);
}

TEST_CASE("whole files: replaced, or made once") {
  const tutti::test::scratch_directory scratch;
  const fs::path path = scratch.path() / "f";
  CHECK(create_file_once(path, "first"));
  CHECK(create_file_once(path, "second"));
  CHECK(scratch.read(path) == "first");
  CHECK(replace_file(path, "third"));
  CHECK(scratch.read(path) == "third");
  CHECK_FALSE(replace_file(scratch.path() / "none" / "f", "x"));
  CHECK(std::distance(fs::directory_iterator(scratch.path()), {}) == 1);
}

TEST_CASE("whole files: several may replace one file at a time, and no link is followed") {
  const tutti::test::scratch_directory scratch;
  const fs::path path = scratch.path() / "f", other = scratch.path() / "other";
  CHECK(create_file_once(other, "theirs"));
  fs::create_symlink(other, path);
  fs::create_symlink(other, scratch.path() / ".f.new");
  std::atomic<int> failed = 0;
  const auto write = [&] {
    for (int i = 0; i < 200; ++i) failed += replace_file(path, "ours") ? 0 : 1;
  };
  std::thread second(write);
  write();
  second.join();
  CHECK(failed == 0);
  CHECK(scratch.read(path) == "ours");
  CHECK(scratch.read(other) == "theirs");
}

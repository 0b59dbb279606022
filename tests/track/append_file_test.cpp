// SPDX-License-Identifier: Apache-2.0
#include "track/run_directory.hpp"

#include "support/child.hpp"
#include "support/run_task.hpp"
#include "support/scratch_directory.hpp"

#include <sys/resource.h>

#include <doctest/doctest.h>
#include <cerrno>
#include <string>

using tutti::track::append_file;

TEST_CASE("append file: a partial write on a full disk is undone") {
  const tutti::test::scratch_directory scratch;
  const auto path = scratch.path() / "f";
  // A limit on file sizes replaces a full disk, in a process of its own.
  tutti::test::child child([&](const auto&) {
    ::signal(SIGXFSZ, SIG_IGN);
    rlimit limit{1000, 1000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    append_file file(path);
    const bool first = file.append(std::string(900, 'a')) == 0;
    const bool second = file.append(std::string(900, 'b')) == EFBIG;
    const bool third = file.append("c") == 0;
    return first && second && third ? 0 : 1;
  });
  CHECK(child.end() == 0);
  CHECK(scratch.read(path) == std::string(900, 'a') + "c");
}

TEST_CASE("append file: a deleted file takes nothing, and says so") {
  const tutti::test::scratch_directory scratch;
  append_file file(scratch.path() / "f");
  CHECK(file.append("a") == 0);
  std::filesystem::remove(scratch.path() / "f");
  CHECK(file.append("b") == ENOENT);
}

TEST_CASE("append file: the error names a file that cannot be made") {
  const auto failure = tutti::test::failure_of([] { append_file("/nowhere/at/all"); });
  CHECK(failure.says("/nowhere/at/all"));
}

// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/rendezvous.hpp"

#include "bootstrap/variables.hpp"
#include "support/run_task.hpp"
#include "support/scratch_directory.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <tutti/error.hpp>

using namespace tutti;
namespace fs = std::filesystem;

TEST_CASE("a private directory is in XDG_RUNTIME_DIR if that is private, else in /tmp") {
  const test::scratch_directory scratch;
  const std::string own = "/tmp/tutti-" + std::to_string(::geteuid());
  const auto with = [](const std::string& runtime) {
    const test::variables v({{"XDG_RUNTIME_DIR", runtime.c_str()}});
    return bootstrap::private_directory();
  };
  CHECK(with(scratch.path()) == scratch.path() / "tutti");
  CHECK(with("") == own);
  CHECK(with(scratch.path() / "missing") == own);
  fs::permissions(scratch.path(), fs::perms::group_read, fs::perm_options::add);
  CHECK(with(scratch.path()) == own);
}

TEST_CASE("a private directory is made, shared by its user's processes, and removed when it is empty") {
  const test::scratch_directory scratch;
  const std::string path = scratch.path() / "private";
  bootstrap::make_private_directory(path);
  CHECK(fs::status(path).permissions() == fs::perms::owner_all);
  bootstrap::make_private_directory(path);
  const std::string file = scratch.write("private/file", "x");
  bootstrap::leave_private_directory(path);
  CHECK(fs::exists(path));
  fs::remove(file);
  bootstrap::leave_private_directory(path);
  CHECK_FALSE(fs::exists(path));
}

TEST_CASE("directories that another user could have made are refused") {
  const test::scratch_directory scratch;
  const auto refused = [](const std::string& path) {
    const test::failure f = test::failure_of([&] { bootstrap::make_private_directory(path); });
    CHECK(f.code == errc::invalid_argument);
    CHECK_MESSAGE(f.says(path), f.text);
    CHECK_MESSAGE(f.says("0700"), f.text);
  };
  const std::string open_to_all = scratch.path() / "open";
  REQUIRE(::mkdir(open_to_all.c_str(), 0700) == 0);
  REQUIRE(::chmod(open_to_all.c_str(), 0755) == 0);
  refused(open_to_all);
  const std::string real = scratch.path() / "real", link = scratch.path() / "link";
  REQUIRE(::mkdir(real.c_str(), 0700) == 0);
  fs::create_symlink(real, link);
  refused(link);
  refused(scratch.write("file", ""));
  if (::geteuid() == 0) {
    REQUIRE(::chown(real.c_str(), 12345, 12345) == 0);
    refused(real);
  }
  CHECK(test::failure_of([&] { bootstrap::make_private_directory(scratch.path() / "a" / "b"); }).code ==
        errc::system);
}

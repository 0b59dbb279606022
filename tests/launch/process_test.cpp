// SPDX-License-Identifier: Apache-2.0
#include "launch/outcome.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "launched.hpp"

using namespace tutti::launch;
using testing::launch;

TEST_SUITE("launch/process") {
  TEST_CASE("programs are found like in a shell") {
    const testing::temporary_directory folder;
    const std::string script = folder.path() + "/script";
    std::ofstream(script) << "#!/bin/sh\n";
    CHECK(find_program(script).error == EACCES);
    REQUIRE(::chmod(script.c_str(), 0755) == 0);
    CHECK(find_program(script).error == 0);
    CHECK(find_program(folder.path() + "/").error == EISDIR);
    CHECK(find_program(folder.path() + "/none").error == ENOENT);
    CHECK(find_program("sh").error == 0);
    CHECK(find_program("sh").path.ends_with("/sh"));
    CHECK(find_program("no-program-has-this-name").error == ENOENT);
  }

  TEST_CASE("a missing program") {
    const testing::ending end = launch({"-n", "4", "./hell"});
    CHECK(end.exit_code == 127);
    CHECK(end.error ==
          "tutti-run: cannot start './hell': No such file or directory. Is it built? Give a path (./prog) or "
          "a name in "
          "PATH.\n");
    CHECK(end.output.empty());
  }

  TEST_CASE("files that are no programs") {
    const testing::temporary_directory folder;
    const std::string file = folder.path() + "/file";
    std::ofstream(file) << "just text\n";
    const testing::ending not_executable = launch({"-n", "2", file});
    CHECK(not_executable.exit_code == 126);
    CHECK(not_executable.error.find("chmod +x") != std::string::npos);

    REQUIRE(::chmod(file.c_str(), 0755) == 0);
    const testing::ending no_format = launch({"-n", "2", file});
    CHECK(no_format.exit_code == 126);
    CHECK(no_format.error.find("#!/bin/sh") != std::string::npos);
    CHECK(testing::count_of(no_format.error, "cannot start") == 1);

    std::ofstream(file) << "#!/no/such/interpreter\n";
    const testing::ending no_interpreter = launch({"-n", "2", file});
    CHECK(no_interpreter.exit_code == 127);
    CHECK(no_interpreter.error.find("interpreter") != std::string::npos);
  }

  TEST_CASE("arguments are passed unchanged") {
    const testing::ending end =
        launch({"-n", "1", "sh", "-c", "for a in \"$0\" \"$@\"; do printf '<%s>\\n' \"$a\"; done", "-n", "8",
                "--", "", "a b", "--help", "$HOME", "\xff"});
    CHECK(end.exit_code == 0);
    CHECK(end.output == "<-n>\n<8>\n<-->\n<>\n<a b>\n<--help>\n<$HOME>\n<\xff>\n");
    CHECK(launch({"-n", "1", "--", "echo", "-n", "x"}).output == "x");
  }

  TEST_CASE("ranks inherit only their streams, the recorder and, in rank 0, the store from the launcher") {
    // Descriptors that the test inherited without FD_CLOEXEC are in every program that it starts.
    std::set<int> expected;
    for (int fd = 0; fd < 1024; ++fd)
      if (const int flags = ::fcntl(fd, F_GETFD); flags >= 0 && (flags & FD_CLOEXEC) == 0)
        expected.insert(fd);
    expected.insert({0, 1, 2});
    const testing::ending end = launch({"-n", "3", "--tag-output", "always", "ls", "/proc/self/fd"});
    std::vector<int> unexpected(3, 0);
    for (const std::string& line : testing::lines_of(end.output)) {
      const std::size_t rank = static_cast<std::size_t>(line.at(1) - '0');
      if (!expected.contains(std::stoi(line.substr(4)))) ++unexpected.at(rank);
    }
    CHECK(unexpected == std::vector<int>{3, 2, 2});  // ls has the directory open
  }

  TEST_CASE("the launcher raises its own limit of descriptors, but not that of the ranks") {
    const testing::ending end =
        testing::launch({"-n", "1", "sh", "-c", "ulimit -Sn 80 && exec \"$0\" -n 40 sh -c 'ulimit -Sn'",
                         testing::launcher_path()});
    CHECK(end.exit_code == 0);
    CHECK(testing::count_of(end.output, "80\n") == 40);
  }

  TEST_CASE("as far as it may: node 0's store needs some for the ranks of all nodes") {
    const testing::ending end = testing::launch(
        {"-n", "1", "sh", "-c",
         "ulimit -Sn 80 && exec \"$0\" -n 1 sh -c 'ulimit -Hn; grep \"open files\" /proc/$PPID/limits'",
         testing::launcher_path()});
    CHECK(end.exit_code == 0);
    const std::string most = end.output.substr(0, end.output.find('\n'));
    std::istringstream limits(end.output.substr(end.output.find("open files") + 10));
    std::string soft, hard;
    limits >> soft >> hard;
    CHECK(soft == most);
    CHECK(hard == most);
  }

  TEST_CASE("ranks of two versions of tutti end, and say both") {
    for (const int other : {0, 1}) {
      CAPTURE(other);
      const testing::ending end =
          launch({"-n", "2", "sh", "-c", "[ $RANK = $2 ] && exec \"$1\"; exec \"$0\"", TUTTI_SUMS_PATH,
                  TUTTI_SUMS_OF_ANOTHER_VERSION_PATH, std::to_string(other)},
                 {"TUTTI_TIMEOUT=20"});
      CHECK(end.exit_code != 0);
      // The first that reads the other's record.
      const bool by_ours =
          end.error.find(" has tutti 9.8.7, and this process has tutti " TUTTI_VERSION) != std::string::npos;
      const bool by_theirs = end.error.find(" has tutti " TUTTI_VERSION
                                            ", and this process has tutti 9.8.7") != std::string::npos;
      CHECK_MESSAGE((by_ours || by_theirs), end.error);
    }
  }
}

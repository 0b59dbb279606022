// SPDX-License-Identifier: Apache-2.0
#include "track/run_facts.hpp"

#include "support/scratch_directory.hpp"

#include <unistd.h>

#include <doctest/doctest.h>
#include <filesystem>

using namespace tutti::track;
namespace fs = std::filesystem;

TEST_CASE("run facts: names of secrets") {
  for (const char* name : {"TUTTI_SECRET",
                           "API_KEY",
                           "github_token",
                           "DB_PASSWORD",
                           "PGPASSFILE",
                           "AWS_SECRET_ACCESS_KEY",
                           "HTTP_AUTH",
                           "SSH_AUTH_SOCK",
                           "SESSION_ID",
                           "GITLAB_PAT",
                           "SENTRY_DSN",
                           "MY_PWD",
                           "--pwd",
                           "NETRC",
                           "SLACK_WEBHOOK_URL",
                           "AZURE_STORAGE_CONNECTION_STRING",
                           "GCP_CREDS",
                           "BLOB_SAS",
                           "--db-pw",
                           "--sentry-dsn",
                           "--gitlab-pat"})
    CHECK(names_a_secret(name));
  for (const char* name : {"PATH", "HOME", "RANK", "WORLD_SIZE", "OMP_NUM_THREADS", "PWD", "OLDPWD"})
    CHECK_FALSE(names_a_secret(name));
}

TEST_CASE("run facts: passwords in URLs") {
  CHECK(without_passwords("https://me:word@host/x and ftp://a@b") ==
        "https://(removed)@host/x and ftp://(removed)@b");
  CHECK(without_passwords("https://host/a@b") == "https://host/a@b");
  CHECK(without_passwords("no url") == "no url");
}

TEST_CASE("run facts: secrets on a command line") {
  const std::vector<std::string> words = without_secrets(
      {"./train", "--token", "abc", "--api-key=def", "--rate", "0.1", "--auth", "--verbose", "API_KEY=x"});
  CHECK(words == std::vector<std::string>{"./train", "--token", "(removed)", "--api-key=(removed)", "--rate",
                                          "0.1", "--auth", "--verbose", "API_KEY=(removed)"});
}

TEST_CASE("run facts: this process") {
  const process_identity me = this_process();
  CHECK(me.pid == ::getpid());
  CHECK(me.started_ticks > 0);
  CHECK(me.boot.size() == 36);
  CHECK_FALSE(me.host.empty());
  CHECK_FALSE(command_line().empty());
  CHECK(versions().contains("tutti"));
  CHECK(seconds_since_1970() > 1.7e9);
}

TEST_CASE("run facts: the state of a git checkout, from its files") {
  const tutti::test::scratch_directory scratch;
  const std::string revision(40, 'a');
  fs::create_directories(scratch.path() / ".git" / "refs" / "heads");
  fs::create_directories(scratch.path() / "below" / "further");
  const auto state = [&] { return git_of(scratch.path() / "below" / "further"); };
  scratch.write(".git/HEAD", "ref: refs/heads/main\n");
  CHECK(state().revision.empty());  // no commit yet
  scratch.write(".git/packed-refs", "# pack-refs\n" + revision + " refs/heads/main\n");
  CHECK(state().revision == revision);
  CHECK(state().branch == "main");
  scratch.write(".git/refs/heads/main", std::string(40, 'b') + "\n");
  CHECK(state().revision == std::string(40, 'b'));
  scratch.write(".git/HEAD", revision + "\n");
  CHECK(state().revision == revision);
  CHECK(state().branch.empty());

  // A second work tree.
  fs::create_directories(scratch.path() / "other");
  fs::create_directories(scratch.path() / ".git" / "worktrees" / "other");
  scratch.write("other/.git", "gitdir: " + (scratch.path() / ".git/worktrees/other").string() + "\n");
  scratch.write(".git/worktrees/other/HEAD", "ref: refs/heads/main\n");
  scratch.write(".git/worktrees/other/commondir", "../..\n");
  CHECK(git_of(scratch.path() / "other").revision == std::string(40, 'b'));
}

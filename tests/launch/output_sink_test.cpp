// SPDX-License-Identifier: Apache-2.0
#include "launch/output_sink.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>

#include "base/unique_fd.hpp"
#include "launch/children.hpp"
#include "launch/job_output.hpp"
#include "support/skip.hpp"

using namespace tutti::launch;
using namespace std::chrono_literals;
using tutti::base::unique_fd;

namespace {

struct channel {
  explicit channel(int flags = 0) {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC | flags) == 0);
    reader.reset(ends[0]);
    writer.reset(ends[1]);
  }
  unique_fd reader, writer;
};

// Everything that can be read without waiting.
std::string available(int fd) {
  std::string text;
  std::array<char, 65536> buffer;
  ::fcntl(fd, F_SETFL, O_NONBLOCK);
  for (ssize_t bytes; (bytes = ::read(fd, buffer.data(), buffer.size())) > 0;)
    text.append(buffer.data(), static_cast<std::size_t>(bytes));
  return text;
}

// A write of much more than `writer` takes returns, timers fire, and everything arrives once it is read.
void check_writer_without_reader(int writer, int reader, uid_t opened_by = ::geteuid()) {
  boost::asio::io_context loop;
  const uid_t before = ::geteuid();
  REQUIRE(::seteuid(opened_by) == 0);
  output_sink sink(loop, writer);
  REQUIRE(::seteuid(before) == 0);
  const std::string block(1024 * 1024, 'y');
  sink.write(block);
  CHECK(sink.congested());
  bool fired = false;
  boost::asio::steady_timer timer(loop, 1ms);
  timer.async_wait([&](const boost::system::error_code&) { fired = true; });
  while (!fired && loop.run_one_for(20s) > 0) continue;
  CHECK(fired);
  CHECK((::fcntl(writer, F_GETFL) & O_NONBLOCK) == 0);
  bool drained = false;
  sink.when_drained([&] { drained = true; });
  std::string received;
  for (const auto bound = std::chrono::steady_clock::now() + 20s;
       !drained && std::chrono::steady_clock::now() < bound; loop.poll())
    received += available(reader);
  received += available(reader);
  CHECK(drained);
  CHECK(received == block);
}

}  // namespace

TEST_SUITE("launch/output_sink") {
  TEST_CASE("a line waits a moment for the end of another rank's") {
    boost::asio::io_context loop;
    const channel to;
    output_sink sink(loop, to.writer.get());
    speakers all(tag_policy::automatic);
    line_prefixer zero(0, all, sink), one(1, all, sink);
    zero.feed("name? ");
    one.feed("hello\n");
    CHECK(available(to.reader.get()) == "name? ");
    loop.run();
    CHECK(available(to.reader.get()) == "\n[1] hello\n");
  }

  TEST_CASE("output arrives, and the shared descriptor stays blocking") {
    boost::asio::io_context loop;
    const channel to;
    output_sink sink(loop, to.writer.get());
    sink.write("hello ");
    sink.write("world\n");
    CHECK(available(to.reader.get()) == "hello world\n");
    CHECK((::fcntl(to.writer.get(), F_GETFL) & O_NONBLOCK) == 0);
  }

  TEST_CASE("a slow reader bounds the memory of the writer, and loses nothing") {
    boost::asio::io_context loop;
    const channel from(O_NONBLOCK);
    const channel to;
    output_sink sink(loop, to.writer.get());
    speakers all(tag_policy::automatic);
    bool closed = false;
    output_pump pump(loop, 0, {unique_fd(::dup(from.reader.get())), {}}, all, sink, [&] { closed = true; });
    pump.start();

    std::string sent;
    const std::string block(65536, 'x');
    for (int idle_turns = 0; idle_turns < 100; ++idle_turns) {
      loop.poll();
      const ssize_t bytes = ::write(from.writer.get(), block.data(), block.size());
      if (bytes <= 0) continue;
      sent.append(block, 0, static_cast<std::size_t>(bytes));
      idle_turns = 0;
      REQUIRE(sent.size() < 4 * 1024 * 1024);
    }
    CHECK(sink.congested());

    std::string received = available(to.reader.get());
    for (int turn = 0; turn < 1000 && received.size() < sent.size(); ++turn) {
      loop.poll();
      received += available(to.reader.get());
    }
    CHECK(received.size() == sent.size());
    CHECK(received == sent);
    CHECK(!sink.congested());

    pump.finish();
    for (int turn = 0; turn < 1000 && !closed; ++turn) loop.poll();
    CHECK(closed);
  }

  TEST_CASE("a reader that has ended is reported once, and further output is dropped") {
    const signals_of_writing_ignored during;
    boost::asio::io_context loop;
    channel to;
    output_sink sink(loop, to.writer.get());
    int broken = 0;
    bool drained = false;
    sink.when_broken([&] { ++broken; });
    to.reader.reset();
    sink.write("x");
    sink.write("y");
    sink.when_drained([&] { drained = true; });
    loop.run();
    CHECK(broken == 1);
    CHECK(drained);
    CHECK(sink.error() == EPIPE);
  }

  TEST_CASE("a full disk is a write error") {
    const unique_fd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
    REQUIRE(full);
    boost::asio::io_context loop;
    output_sink sink(loop, full.get());
    sink.write("x");
    CHECK(sink.error() == ENOSPC);
  }

  TEST_CASE("a socket, which cannot be reopened, is written to directly") {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    const unique_fd reader(ends[0]);
    const unique_fd writer(ends[1]);
    ::fcntl(writer.get(), F_SETFL, O_NONBLOCK);  // as some shells set it
    boost::asio::io_context loop;
    output_sink sink(loop, writer.get());
    const std::string block(1024 * 1024, 'y');
    sink.write(block);
    bool drained = false;
    sink.when_drained([&] { drained = true; });
    std::string received;
    for (int turn = 0; turn < 1000 && !drained; ++turn) {
      received += available(reader.get());
      loop.poll_one();
      loop.restart();
    }
    received += available(reader.get());
    CHECK(drained);
    CHECK(received == block);
  }

  TEST_CASE("a socket that is shared with others stays blocking, and the loop does not") {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    const unique_fd reader(ends[0]);
    const unique_fd writer(ends[1]);
    check_writer_without_reader(writer.get(), reader.get());
  }

  TEST_CASE("a pipe that cannot be opened anew stays blocking, and the loop does not") {
    if (::geteuid() != 0) TUTTI_SKIP("a pipe of another user needs root");
    const channel to;
    constexpr uid_t nobody = 65534;
    check_writer_without_reader(to.writer.get(), to.reader.get(), nobody);
  }

  TEST_CASE("output that nobody reads is given up") {
    boost::asio::io_context loop;
    const channel to;
    output_sink sink(loop, to.writer.get());
    sink.write(std::string(1024 * 1024, 'y'));
    bool relieved = false;
    bool drained = false;
    sink.when_relieved([&] { relieved = true; });
    sink.when_drained([&] { drained = true; });
    sink.give_up_after(10ms);
    while (!drained && loop.run_one_for(20s) > 0) continue;
    CHECK(relieved);
    CHECK(drained);
    CHECK(sink.error() == ECANCELED);
  }

  TEST_CASE("same_file") {
    const channel one;
    const channel two;
    CHECK(same_file(one.reader.get(), one.writer.get()));
    CHECK(!same_file(one.writer.get(), two.writer.get()));
  }
}

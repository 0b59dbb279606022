// SPDX-License-Identifier: Apache-2.0
// Readiness by epoll and by io_uring: the same events, none lost, none after unwatch.
#include "core/backend.hpp"

#include "base/unique_fd.hpp"
#include "core/each_loop.hpp"
#include "support/child.hpp"
#include "support/run_task.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <doctest/doctest.h>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

using namespace tutti;
using namespace std::chrono_literals;
using base::unique_fd;
using core::backend;

namespace {

struct socket_pair {
  socket_pair() {
    int ends[2] = {-1, -1};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0)
      throw std::runtime_error("no socketpair");
    near.reset(ends[0]);
    far.reset(ends[1]);
  }
  void say(const char* bytes = "x") const {
    if (::write(far.get(), bytes, 1) != 1) throw std::runtime_error("cannot write");
  }
  unique_fd near, far;
};

// Reads everything, like an edge-triggered watcher.
std::size_t drain(int fd) {
  char some[4096];
  std::size_t all = 0;
  for (ssize_t n; (n = ::read(fd, some, sizeof some)) > 0;) all += static_cast<std::size_t>(n);
  return all;
}

struct counting final : core::watcher {
  int readable = 0, writable = 0;
  std::function<void(bool, bool)> also;
  void on_ready(bool r, bool w) noexcept override {
    readable += r ? 1 : 0;
    writable += w ? 1 : 0;
    if (also) also(r, w);
  }
};

// Polls until the condition holds. Returns false at the limit.
template <class Condition>
bool poll_until(backend& b, Condition condition, std::chrono::seconds limit = 10s) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    b.poll();
    if (std::chrono::steady_clock::now() > end) return false;
  }
  return true;
}
// Long enough for a pending event to arrive; there should be none.
void poll_a_while(backend& b) {
  const auto end = std::chrono::steady_clock::now() + 20ms;
  while (std::chrono::steady_clock::now() < end) b.poll();
}

bool wait_readable(int fd, int limit_ms = 10'000) {
  pollfd p{fd, POLLIN, 0};
  return ::poll(&p, 1, limit_ms) == 1;
}

}  // namespace

TEST_CASE("TUTTI_LOOP selects the backend, and an invalid value is an error") {
  test::on_each_loop([] { CHECK(core::make_backend()->name() == std::string(std::getenv("TUTTI_LOOP"))); });
  {
    const test::forced_loop automatic("auto");
    std::string why;
    CHECK(core::make_backend()->name() == std::string(core::make_uring_backend(why) ? "io_uring" : "epoll"));
  }
  const test::forced_loop wrong("kqueue");
  const test::failure failed = test::failure_of([] { core::make_backend(); });
  CHECK(failed.code == errc::invalid_argument);
  CHECK(failed.says("TUTTI_LOOP='kqueue'"));
}

TEST_CASE("a watched socket reports that it is writable, then each arrival of bytes") {
  test::on_each_loop([] {
    const auto b = core::make_backend();
    const socket_pair s;
    counting w;
    const backend::handle h = b->watch_hot(s.near.get(), w);
    REQUIRE(poll_until(*b, [&] { return w.writable > 0; }));
    CHECK(w.readable == 0);
    for (int i = 0; i < 1000; ++i) {
      w.readable = 0;
      s.say();
      REQUIRE(poll_until(*b, [&] { return w.readable > 0; }));
      REQUIRE(drain(s.near.get()) == 1);
    }
    b->unwatch(h);
  });
}

TEST_CASE("bytes that arrived before the watch began are reported") {
  test::on_each_loop([] {
    const auto b = core::make_backend();
    const socket_pair s;
    s.say();
    counting w;
    b->watch_hot(s.near.get(), w);
    CHECK(poll_until(*b, [&] { return w.readable > 0; }));
  });
}

TEST_CASE("edge-triggered: each event is reported once, even if nothing was read since the last") {
  test::on_each_loop([] {
    const auto b = core::make_backend();
    const socket_pair s;
    counting w;
    b->watch_hot(s.near.get(), w);
    s.say();
    REQUIRE(poll_until(*b, [&] { return w.readable > 0; }));
    poll_a_while(*b);
    w.readable = 0;
    poll_a_while(*b);
    CHECK(w.readable == 0);
    s.say();
    CHECK(poll_until(*b, [&] { return w.readable > 0; }));
  });
}

TEST_CASE("space in a full socket is reported") {
  test::on_each_loop([] {
    const auto b = core::make_backend();
    const socket_pair s;
    counting w;
    b->watch_hot(s.near.get(), w);
    const std::string block(65536, 'b');
    for (int round = 0; round < 20; ++round) {
      while (::write(s.near.get(), block.data(), block.size()) > 0) {
      }
      poll_a_while(*b);
      w.writable = 0;
      drain(s.far.get());
      REQUIRE(poll_until(*b, [&] { return w.writable > 0; }));
    }
  });
}

TEST_CASE("the end of a stream is readable, a hang-up is readable and writable") {
  test::on_each_loop([] {
    const auto b = core::make_backend();
    socket_pair half, gone;
    counting w, v;
    b->watch_hot(half.near.get(), w);
    b->watch_hot(gone.near.get(), v);
    REQUIRE(poll_until(*b, [&] { return w.writable > 0 && v.writable > 0; }));
    v.writable = 0;
    ::shutdown(half.far.get(), SHUT_WR);
    CHECK(poll_until(*b, [&] { return w.readable > 0; }));
    gone.far.reset();
    CHECK(poll_until(*b, [&] { return v.readable > 0 && v.writable > 0; }));
  });
}

TEST_CASE("pipes and eventfds can be watched as well") {
  test::on_each_loop([] {
    const auto b = core::make_backend();
    int ends[2] = {-1, -1};
    REQUIRE(::pipe2(ends, O_NONBLOCK | O_CLOEXEC) == 0);
    const unique_fd out(ends[0]);
    unique_fd in(ends[1]);
    const unique_fd event(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    counting p, e;
    b->watch_hot(out.get(), p);
    b->watch_hot(event.get(), e);
    REQUIRE(::write(in.get(), "x", 1) == 1);
    CHECK(poll_until(*b, [&] { return p.readable > 0; }));
    for (int i = 0; i < 100; ++i) {
      e.readable = 0;
      REQUIRE(::eventfd_write(event.get(), 1) == 0);
      REQUIRE(poll_until(*b, [&] { return e.readable > 0; }));
      if (i % 2 == 0) drain(event.get());  // read or not, the next write is an event
    }
    p.readable = 0;
    in.reset();
    drain(out.get());
    CHECK(poll_until(*b, [&] { return p.readable > 0; }));
  });
}

TEST_CASE("after unwatch nothing is reported, and the descriptor can be watched again") {
  test::on_each_loop([] {
    const auto b = core::make_backend();
    const socket_pair s;
    for (int i = 0; i < 200; ++i) {
      counting w;
      const backend::handle h = b->watch_hot(s.near.get(), w);
      s.say();
      if (i % 2 == 0) REQUIRE(poll_until(*b, [&] { return w.readable > 0; }));
      b->unwatch(h);
      const int before = w.readable + w.writable;
      s.say();
      b->poll();
      b->poll();
      REQUIRE(w.readable + w.writable == before);
      b->unwatch(h);  // unwatched already: no effect, even if its slot is in use again
      drain(s.near.get());
    }
    counting last;
    b->watch_hot(s.near.get(), last);
    s.say();
    CHECK(poll_until(*b, [&] { return last.readable > 0; }));
  });
}

TEST_CASE("a descriptor may be closed and its number reused") {
  test::on_each_loop([] {
    const auto b = core::make_backend();
    for (int i = 0; i < 50; ++i) {
      counting w;
      socket_pair s;
      const backend::handle h = b->watch_hot(s.near.get(), w);
      if (i % 3 != 0) s.say();
      if (i % 2 == 0) REQUIRE(poll_until(*b, [&] { return w.writable > 0; }));
      b->unwatch(h);
    }
  });
}

TEST_CASE("a watcher may unwatch itself and others, and watch more, inside its callback") {
  test::on_each_loop([] {
    const auto b = core::make_backend();
    std::vector<socket_pair> sockets(8);
    std::vector<counting> watchers(8);
    std::vector<backend::handle> handles(8);
    counting late;
    const socket_pair another;
    another.say();
    int calls = 0;
    for (std::size_t i = 0; i < 8; ++i) {
      watchers[i].also = [&](bool, bool) {
        if (++calls > 1) return;
        for (const backend::handle h : handles) b->unwatch(h);  // all of the batch, including itself
        b->watch_hot(another.near.get(), late);
      };
      handles[i] = b->watch_hot(sockets[i].near.get(), watchers[i]);
    }
    REQUIRE(poll_until(*b, [&] { return late.readable > 0; }));
    poll_a_while(*b);
    CHECK(calls == 1);
  });
}

TEST_CASE("more events than any queue holds: none is lost") {
  test::on_each_loop([] {
    const auto b = core::make_backend();
    // A ring for 256 submissions has space for 512 completions.
    constexpr std::size_t many = 700;
    std::vector<socket_pair> sockets(many);
    std::vector<counting> watchers(many);
    std::vector<backend::handle> handles;
    for (std::size_t i = 0; i < many; ++i)
      handles.push_back(b->watch_hot(sockets[i].near.get(), watchers[i]));
    for (int round = 0; round < 5; ++round) {
      // Each of these is a separate event.
      for (const socket_pair& s : sockets) s.say();
      for (const socket_pair& s : sockets) s.say();
      REQUIRE(poll_until(*b, [&] {
        for (const counting& w : watchers)
          if (w.readable == 0) return false;
        return true;
      }));
      for (std::size_t i = 0; i < many; ++i) {
        REQUIRE(drain(sockets[i].near.get()) == 2);
      }
      poll_a_while(*b);
      for (counting& w : watchers) w.readable = 0;
    }
    // Watches that ended by the overflow have been restarted.
    for (const socket_pair& s : sockets) s.say();
    CHECK(poll_until(*b, [&] {
      for (const counting& w : watchers)
        if (w.readable == 0) return false;
      return true;
    }));
    for (const backend::handle h : handles) b->unwatch(h);
  });
}

TEST_CASE("armed, the wait descriptor reports every event") {
  test::on_each_loop([] {
    const auto b = core::make_backend();
    const socket_pair s;
    counting w;
    b->watch_hot(s.near.get(), w);
    std::atomic<int> wanted{0};
    std::atomic<bool> quit{false};
    std::thread other([&] {
      for (int said = 0; !quit.load();) {
        if (wanted.load() == said) {
          std::this_thread::yield();
          continue;
        }
        ++said;
        s.say();
      }
    });
    int told = 0;
    const auto sleep_until_told = [&] {
      w.readable = 0;
      const auto end = std::chrono::steady_clock::now() + 10s;
      while (w.readable == 0) {
        if (std::chrono::steady_clock::now() > end) return false;
        if (b->arm()) {
          b->disarm();
          continue;
        }
        if (w.readable > 0) break;
        const bool woken = wait_readable(b->wait_descriptor());
        b->disarm();
        if (!woken) return false;
        b->poll();
      }
      return true;
    };
    for (; told < 1000; ++told) {
      wanted.store(told + 1);
      if (!sleep_until_told()) break;
      if (drain(s.near.get()) != 1) break;
    }
    quit = true;
    other.join();
    CHECK(told == 1000);
  });
}

TEST_CASE("armed, every write to a doorbell is reported, read or not") {
  test::on_each_loop([] {
    const auto b = core::make_backend();
    const unique_fd doorbell(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    b->watch_doorbell(doorbell.get());
    // From this and from another thread, before and during the sleep.
    int told = 0;
    for (; told < 1000; ++told) {
      b->arm();
      while (b->arm()) b->disarm();
      std::thread notifier;
      if (told % 10 == 0) {
        notifier = std::thread([&] { ::eventfd_write(doorbell.get(), 1); });
      } else {
        ::eventfd_write(doorbell.get(), 1);
      }
      const bool heard = wait_readable(b->wait_descriptor());
      if (notifier.joinable()) notifier.join();
      b->disarm();
      if (!heard) break;
      if (told % 3 == 0) drain(doorbell.get());
    }
    CHECK(told == 1000);
    b->unwatch_doorbell(doorbell.get());
    while (b->arm()) b->disarm();
    ::eventfd_write(doorbell.get(), 1);
    CHECK_FALSE(wait_readable(b->wait_descriptor(), 20));
  });
}

TEST_CASE("a backend may be destroyed with pending watches") {
  test::on_each_loop([] {
    const socket_pair s;
    counting w;
    {
      const auto b = core::make_backend();
      b->watch_hot(s.near.get(), w);
      s.say();
    }
    {
      const auto b = core::make_backend();
      b->watch_hot(s.near.get(), w);
      poll_until(*b, [&] { return w.readable > 0; });
    }
    CHECK(w.readable > 0);
  });
}

TEST_CASE("a descriptor that cannot be watched is an error, and the next watch works") {
  test::on_each_loop([] {
    const auto b = core::make_backend();
    counting w;
    // io_uring learns of a bad descriptor from the completion, and reports it as readable and writable.
    const test::failure failed = test::failure_of([&] { b->watch_hot(1 << 20, w); });
    if (!failed.code) CHECK(poll_until(*b, [&] { return w.readable > 0 && w.writable > 0; }));
    const test::failure no_doorbell = test::failure_of([&] { b->watch_doorbell(1 << 20); });
    CHECK(no_doorbell.code == errc::resources);
    const socket_pair s;
    counting v;
    b->watch_hot(s.near.get(), v);
    CHECK(poll_until(*b, [&] { return v.writable > 0; }));
  });
}

TEST_CASE("a socket that carries no messages is checked rarely while no other does, but before each sleep") {
  test::on_each_loop([] {
    const auto b = core::make_backend();
    const socket_pair s, messages;
    counting w, hot;
    b->watch(s.near.get(), w);
    int polls = 0;
    while (w.writable == 0 && polls < 10'000) {
      b->poll();
      ++polls;
    }
    CHECK(polls > 1);
    CHECK(polls <= 1024);
    s.say();
    CHECK(b->arm());
    b->disarm();
    CHECK(w.readable == 1);
    const backend::handle h = b->watch_hot(messages.near.get(), hot);
    CHECK(b->poll());
    CHECK(hot.writable == 1);
    b->unwatch(h);
    s.say();
    CHECK_FALSE(b->poll());
  });
}

TEST_CASE("a killed process closes the sockets that it watched before its parent sees its end") {
  test::on_each_loop([] {
    socket_pair s;
    test::child killed([&s](const std::function<void()>& came_so_far) {
      s.far.reset();
      const auto b = core::make_backend();
      counting w;
      b->watch(s.near.get(), w);
      b->arm();
      came_so_far();
      return wait_readable(b->wait_descriptor()) ? 0 : 1;
    });
    s.near.reset();
    killed.wait_until_it_came_so_far();
    CHECK(killed.end(SIGKILL) == 128 + SIGKILL);
    pollfd end{s.far.get(), POLLIN, 0};
    CHECK(::poll(&end, 1, 0) == 1);
    CHECK((end.revents & POLLHUP) != 0);
  });
}

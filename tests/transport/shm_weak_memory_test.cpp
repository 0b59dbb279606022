// SPDX-License-Identifier: Apache-2.0
// The protocols of shared memory between two ranks, as models that run in every way that weak memory allows: frames in
// lines and in the ring, the wait for room, the doorbell of a loop that sleeps, and messages that are read from their
// sender's pages. Each model has the memory orders of the code that it names, and each of the mistakes that are planted
// in it, one at a time, is found.
#include "support/weak_memory.hpp"

#include <doctest/doctest.h>
#include <string>

using namespace tutti::test::weak;

namespace {

constexpr auto relaxed = order::relaxed, acquire = order::acquire, release = order::release,
               acq_rel = order::acq_rel, seq_cst = order::seq_cst;

// ---- lines and the ring: channel_writer::publish, free_line and write_block; channel_reader::peek, publish ----

struct channel_orders {
  order stamp_store = release, stamp_load = acquire;
  order read_store = release, read_load = acquire;
  bool stamps_have_laps = true;
  bool waits_for_lines = true;
  bool ring_before_lines = true;  // the reader says so after both
};
struct channel {
  word stamp[2], body[2], block, lines_read, ring_read;
};

value stamp_of(int position, channel_orders with) {
  return static_cast<value>(with.stamps_have_laps ? position + 1 : 1);
}

// Two lines, and a ring with room for one block, which the frames at odd positions take.
thread writes_frames(machine& m, channel c, channel_orders with, int frames) {
  value lines_seen = 0, ring_seen = 0;
  for (int at = 0; at < frames; ++at) {
    if (with.waits_for_lines && at - lines_seen >= 2)
      lines_seen = co_await m.until(c.lines_read, with.read_load, [at](value read) { return at - read < 2; });
    if (at % 2 == 1) {
      const value before = static_cast<value>(at / 2);
      if (ring_seen < before)
        ring_seen =
            co_await m.until(c.ring_read, with.read_load, [before](value read) { return read >= before; });
      co_await m.write(c.block, static_cast<value>(100 + at));
    }
    co_await m.write(c.body[at % 2], static_cast<value>(at));
    co_await m.store(c.stamp[at % 2], stamp_of(at, with), with.stamp_store);
  }
}
thread reads_frames(machine& m, channel c, channel_orders with, int frames) {
  for (int at = 0; at < frames; ++at) {
    const value wanted = stamp_of(at, with);
    co_await m.until(c.stamp[at % 2], with.stamp_load, [wanted](value now) { return now == wanted; });
    const value body = co_await m.read(c.body[at % 2]);
    m.check(body == at, "another frame");
    if (!with.ring_before_lines) co_await m.store(c.lines_read, static_cast<value>(at + 1), with.read_store);
    if (at % 2 == 1) {
      const value block = co_await m.read(c.block);
      m.check(block == 100 + at, "another frame's block");
      co_await m.store(c.ring_read, static_cast<value>(at / 2 + 1), with.read_store);
    }
    if (with.ring_before_lines) co_await m.store(c.lines_read, static_cast<value>(at + 1), with.read_store);
  }
}
outcome frames_pass(channel_orders with) {
  return explore([with](machine& m) {
    channel c;
    for (int i = 0; i < 2; ++i) {
      c.stamp[i] = m.make(0);
      c.body[i] = m.make_plain(-1);
    }
    c.block = m.make_plain(-1);
    c.lines_read = m.make(0);
    c.ring_read = m.make(0);
    m.start(writes_frames(m, c, with, 5));
    m.start(reads_frames(m, c, with, 5));
  });
}

// ---- room: channel_writer::request_room, channel_reader::publish, shm_link::prepare_sleep ----

struct room_orders {
  bool writer_fences = true, reader_fences = true;
  bool looks_again = true;
};
struct room {
  word read, wants, doorbell;
};
thread waits_for_room(machine& m, room r, room_orders with) {
  const value seen = co_await m.load(r.read, acquire);
  if (seen == 1) co_return;
  co_await m.store(r.wants, 1, relaxed);
  if (with.writer_fences) co_await m.fence(seq_cst);
  if (with.looks_again) {
    const value now = co_await m.load(r.read, acquire);
    if (now == 1) co_return;
  }
  co_await m.until(r.doorbell, acquire, [](value rung) { return rung == 1; });
  const value now = co_await m.load(r.read, acquire);
  m.check(now == 1, "woken, and no room");
}
thread makes_room(machine& m, room r, room_orders with) {
  co_await m.store(r.read, 1, release);
  if (with.reader_fences) co_await m.fence(seq_cst);
  const value wanted = co_await m.load(r.wants, relaxed);
  if (wanted == 0) co_return;
  const value taken = co_await m.exchange(r.wants, 0, acq_rel);
  if (taken != 0) co_await m.store(r.doorbell, 1, release);  // write() to an eventfd
}
std::string room_is_heard_of(room_orders with) {
  return explore([with](machine& m) {
           const room r{m.make(0), m.make(0), m.make(0)};
           m.start(waits_for_room(m, r, with));
           m.start(makes_room(m, r, with));
         })
      .wrong;
}

// ---- the doorbell: shm_transport::arm and disarm, shm_link::notify; collective_segment and window_state notify so, too ----

struct sleep_orders {
  bool owner_fences = true, sender_fences = true;
  bool exchanges = true;  // of two senders one rings
  order stamp_store = release;
};
struct bed {
  word armed, stamp[2], data[2], doorbell;
};
thread sends_and_notifies(machine& m, bed b, int sender, sleep_orders with) {
  co_await m.write(b.data[sender], 7);
  co_await m.store(b.stamp[sender], 1, with.stamp_store);
  if (with.sender_fences) co_await m.fence(seq_cst);
  const value armed = co_await m.load(b.armed, relaxed);
  if (armed == 0) co_return;
  if (with.exchanges) {
    const value taken = co_await m.exchange(b.armed, 0, acq_rel);
    if (taken == 0) co_return;
  }
  co_await m.add(b.doorbell, 1, acq_rel);
}
// Receives one frame of each sender, and sleeps whenever none is there.
thread sleeps_until_all(machine& m, bed b, sleep_orders with) {
  bool got[2] = {false, false};
  value rung = 0;
  while (!got[0] || !got[1]) {
    bool any = false;
    for (const bool asleep : {false, true}) {
      if (asleep) {
        co_await m.store(b.armed, 1, relaxed);
        if (with.owner_fences) co_await m.fence(seq_cst);
      }
      for (int i = 0; i < 2; ++i) {
        if (got[i]) continue;
        const value stamp = co_await m.load(b.stamp[i], acquire);
        if (stamp == 0) continue;
        const value data = co_await m.read(b.data[i]);
        m.check(data == 7, "another frame");
        got[i] = any = true;
      }
      if (any) break;
    }
    if (!any) rung = co_await m.until(b.doorbell, acquire, [rung](value now) { return now > rung; });
    co_await m.store(b.armed, 0, relaxed);
  }
}
outcome sleeper_is_woken(sleep_orders with) {
  return explore([with](machine& m) {
    bed b;
    b.armed = m.make(0);
    b.doorbell = m.make(0);
    for (int i = 0; i < 2; ++i) {
      b.stamp[i] = m.make(0);
      b.data[i] = m.make_plain(0);
    }
    for (int i = 0; i < 2; ++i) m.start(sends_and_notifies(m, b, i, with));
    m.start(sleeps_until_all(m, b, with));
  });
}

// ---- messages read from the sender's pages: shown_messages, shown_message ----

struct shown_orders {
  order show = release, begin = acq_rel, end = acq_rel, hide = acq_rel;
  bool begin_fences = true, begin_looks_again = true, hide_fences = true, end_compares = true;
  bool generations_differ = true;
};
struct slot {
  word state, place, data[2];  // data: two words of the message, which its sender may write again at any time
  word whole;                  // the message, for a sender that knows that it has been read
};
constexpr value cancelled = 4, done = 3, reading = 2, offered = 1;

value in_generation(int generation, value state, shown_orders with) {
  return static_cast<value>((with.generations_differ ? generation : 1) * 10 + state);
}
// Shows two messages one after the other, takes each back, and then uses its buffer for something else.
thread shows_and_hides(machine& m, slot s, shown_orders with) {
  for (int g = 1; g <= 2; ++g) {
    for (const word w : s.data) co_await m.store(w, static_cast<value>(g), relaxed);
    co_await m.store(s.place, static_cast<value>(g), relaxed);
    co_await m.store(s.state, in_generation(g, offered, with), with.show);
    const value was = co_await m.exchange(s.state, in_generation(g, cancelled, with), with.hide);
    if (with.hide_fences) co_await m.fence(seq_cst);
    if (was == in_generation(g, done, with)) co_await m.write(s.whole, static_cast<value>(g));
    for (const word w : s.data) co_await m.store(w, 9, relaxed);
  }
}
// Its rts frame has named generation `g`.
thread reads_shown(machine& m, slot s, shown_orders with, int g) {
  const value is_reading = in_generation(g, reading, with);
  const value before =
      co_await m.compare_exchange(s.state, in_generation(g, offered, with), is_reading, with.begin);
  if (before != in_generation(g, offered, with)) co_return;
  const value place = co_await m.load(s.place, relaxed);
  if (with.begin_fences) co_await m.fence(acquire);
  if (with.begin_looks_again) {
    const value now = co_await m.load(s.state, relaxed);
    if (now != is_reading) co_return;
  }
  m.check(place == g, "another message's place");
  value got[2];
  for (int i = 0; i < 2; ++i) got[i] = co_await m.load(s.data[i], relaxed);
  co_await m.read(s.whole);
  value last = 0;
  if (with.end_compares)
    last = co_await m.compare_exchange(s.state, is_reading, in_generation(g, done, with), with.end);
  else
    last = co_await m.load(s.state, relaxed);
  if (last == is_reading) m.check(got[0] == g && got[1] == g, "a message that its sender has changed");
}
outcome only_the_message_is_read(shown_orders with) {
  outcome all;
  for (int g = 1; g <= 2 && all.wrong.empty(); ++g) {
    const outcome one = explore([with, g](machine& m) {
      const slot s{m.make(0), m.make(0), {m.make(0), m.make(0)}, m.make_plain(0)};
      m.start(shows_and_hides(m, s, with));
      m.start(reads_shown(m, s, with, g));
    });
    all.wrong = one.wrong;
    all.states += one.states;
  }
  return all;
}

}  // namespace

TEST_CASE("shm weak memory: frames in lines and in the ring") {
  const outcome right = frames_pass({});
  CHECK(right.wrong == "");
  CHECK(right.states > 100);
  CHECK(frames_pass({.stamp_store = relaxed}).wrong == "a data race");
  CHECK(frames_pass({.stamp_load = relaxed}).wrong == "a data race");
  CHECK(frames_pass({.read_store = relaxed}).wrong == "a data race");
  CHECK(frames_pass({.read_load = relaxed}).wrong == "a data race");
  CHECK(frames_pass({.stamps_have_laps = false}).wrong != "");
  CHECK(frames_pass({.waits_for_lines = false}).wrong != "");
}

TEST_CASE("shm weak memory: a sender that waits for room hears of it") {
  CHECK(room_is_heard_of({}) == "");
  CHECK(room_is_heard_of({.writer_fences = false}) == "threads wait for ever");
  CHECK(room_is_heard_of({.reader_fences = false}) == "threads wait for ever");
  CHECK(room_is_heard_of({.looks_again = false}) == "threads wait for ever");
}

TEST_CASE("shm weak memory: a loop that sleeps is woken for every frame") {
  const outcome right = sleeper_is_woken({});
  CHECK(right.wrong == "");
  CHECK(right.states > 1000);
  CHECK(sleeper_is_woken({.owner_fences = false}).wrong == "threads wait for ever");
  CHECK(sleeper_is_woken({.sender_fences = false}).wrong == "threads wait for ever");
  CHECK(sleeper_is_woken({.stamp_store = relaxed}).wrong == "a data race");
  CHECK(sleeper_is_woken({.exchanges = false}).wrong == "");  // it would ring twice, no more
}

TEST_CASE(
    "shm weak memory: of a message in its sender's pages either the reader has all, or the sender has it "
    "back") {
  const outcome right = only_the_message_is_read({});
  CHECK(right.wrong == "");
  CHECK(right.states > 500);
  CHECK(only_the_message_is_read({.show = relaxed}).wrong != "");
  CHECK(only_the_message_is_read({.begin = relaxed}).wrong != "");
  CHECK(only_the_message_is_read({.end = relaxed}).wrong != "");
  CHECK(only_the_message_is_read({.hide = relaxed, .hide_fences = false}).wrong != "");
  CHECK(only_the_message_is_read({.begin_fences = false}).wrong == "another message's place");
  CHECK(only_the_message_is_read({.begin_looks_again = false}).wrong == "another message's place");
  CHECK(only_the_message_is_read({.end_compares = false}).wrong == "a message that its sender has changed");
  CHECK(only_the_message_is_read({.generations_differ = false}).wrong != "");
}

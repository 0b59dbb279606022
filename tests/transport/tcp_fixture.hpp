// SPDX-License-Identifier: Apache-2.0
// Several ranks in one thread, each with its own loop, over TCP on loopback or over shared memory.
#pragma once

#include "core/running_task.hpp"
#include "transport/tcp/tcp_transport.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tcp_test {

using namespace std::chrono_literals;
using tutti::errc;
using tutti::transport::cancel_result;
using tutti::transport::destination_buffer;
using tutti::transport::frame;
using tutti::transport::frame_kind;
using tutti::transport::outgoing;
namespace core = tutti::core;
namespace tcp = tutti::transport::tcp;

constexpr auto limit = 30s;

// Bytes that identify their position.
inline std::vector<std::byte> pattern(std::size_t bytes, unsigned seed) {
  std::vector<std::byte> v(bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    v[i] = static_cast<std::byte>((i * 7 + (i >> 8) * 13 + seed * 131) & 0xFF);
  return v;
}

struct arrived {
  int peer;
  frame head;
  std::vector<std::byte> payload;
};

// The layer above: records all calls and checks their order.
class recorder : public tutti::transport::inbound {
 public:
  struct room {
    std::byte* at;
    std::size_t bytes;
    std::size_t received = 0;  // payload of completed frames
  };

  destination_buffer begin(int peer, const frame& head) noexcept override {
    state& s = peers[peer];
    CHECK_FALSE(s.closed);
    CHECK_FALSE(finished);
    if (head.kind == frame_kind::data) {
      ++s.data_in_progress;
      const auto r = rooms.find(head.transfer_id);
      if (r == rooms.end()) return {};
      if (head.other_transfer_id > r->second.bytes) return destination_buffer{nullptr, 0, &r->second};
      return destination_buffer{r->second.at + head.other_transfer_id,
                                r->second.bytes - head.other_transfer_id, &r->second};
    }
    CHECK_FALSE(s.in_frame);
    s.in_frame = true;
    s.head = head;
    s.buffer.assign(payload_bytes(head), std::byte{0xEE});
    return destination_buffer{s.buffer.data(), s.buffer.size(), &s};
  }
  void end(int peer, const frame& head, const destination_buffer& where) noexcept override {
    state& s = peers[peer];
    CHECK_FALSE(s.closed);
    CHECK_FALSE(finished);
    if (head.kind == frame_kind::data) {
      CHECK(s.data_in_progress > 0);
      --s.data_in_progress;
      ++data_frames;
      if (where.owner != nullptr) static_cast<room*>(where.owner)->received += head.length;
      return;
    }
    CHECK(s.in_frame);
    CHECK(head.transfer_id == s.head.transfer_id);
    CHECK(head.kind == s.head.kind);
    s.in_frame = false;
    frames.push_back(arrived{peer, head, std::move(s.buffer)});
  }
  void released(void* owner) noexcept override { released_owners.push_back(owner); }
  void closed(int peer, errc why, std::string text) noexcept override {
    state& s = peers[peer];
    CHECK_FALSE(s.closed);
    CHECK_FALSE(finished);
    s.closed = true;
    s.why = why;
    s.text = std::move(text);
    ++closings;
  }

  struct state {
    bool in_frame = false;  // other than data
    int data_in_progress = 0;
    frame head;
    std::vector<std::byte> buffer;
    bool closed = false;
    errc why = errc::success;
    std::string text;
  };
  std::map<int, state> peers;
  std::map<std::uint64_t, room> rooms;  // destination buffers of data frames, by transfer id
  std::vector<arrived> frames;          // all but data frames
  std::size_t data_frames = 0;
  int closings = 0;
  std::vector<void*> released_owners;  // of destinations that had drained
  bool finished = false;               // no more calls are allowed
};

struct message : outgoing {
  message(frame_kind kind, std::vector<std::byte> payload_, std::uint64_t transfer_id = 0)
      : bytes(std::move(payload_)) {
    head.kind = kind;
    head.length = bytes.size();
    head.transfer_id = transfer_id;
    payload = bytes.data();
    done = [](outgoing& self, bool sent_) noexcept {
      auto& m = static_cast<message&>(self);
      CHECK_FALSE(m.finished);
      CHECK_FALSE(m.linked());
      m.finished = true;
      m.sent = sent_;
    };
  }
  // Like the layer above.
  void submit(tutti::transport::link& l) {
    if (!l.submit(*this)) return;
    CHECK_FALSE(finished);
    finished = sent = true;
  }
  std::vector<std::byte> bytes;
  bool finished = false;
  bool sent = false;
};

using messages = std::vector<std::unique_ptr<message>>;

inline message& add(messages& all, frame_kind kind, std::vector<std::byte> payload,
                    std::uint64_t transfer_id = 0) {
  all.push_back(std::make_unique<message>(kind, std::move(payload), transfer_id));
  return *all.back();
}
inline bool all_sent(const messages& all) {
  return std::ranges::all_of(all, [](const auto& m) { return m->finished && m->sent; });
}

template <class Transport>
struct rank_over {
  boost::asio::io_context context{1};
  core::loop loop{context};
  recorder up;
  core::world_info info;
  std::unique_ptr<Transport> transport = std::make_unique<Transport>(loop);
  core::running_task leaving;
  bool has_left = false;

  tutti::transport::link& to(int peer) { return transport->link_to(peer); }
  void leave(std::chrono::milliseconds within = limit) {
    leaving.start(
        transport->leave(core::clock::now() + within),
        [](void* self, std::exception_ptr failure) noexcept {
          CHECK(!failure);
          static_cast<rank_over*>(self)->has_left = true;
        },
        this);
    up.finished = true;
  }
};

template <class Transport>
class ranks_over {
 public:
  using rank = rank_over<Transport>;

  explicit ranks_over(int size, std::string secret = {}, std::chrono::milliseconds timeout = limit) {
    for (int i = 0; i < size; ++i) all.push_back(std::make_unique<rank>());
    std::vector<core::endpoint_record> records;
    for (int i = 0; i < size; ++i) {
      core::endpoint_record record;
      record.rank = i;
      record.host = "host" + std::to_string(i);
      record.pid = 1000 + i;
      all[static_cast<std::size_t>(i)]->transport->listen(record, {!secret.empty()});
      records.push_back(std::move(record));
    }
    for (int i = 0; i < size; ++i) {
      core::world_info& info = (*this)[i].info;
      info.id = 42;
      info.rank = i;
      info.size = size;
      info.secret = secret;
      info.timeout = timeout;
      // The same tests over TLS.
      if (std::getenv("TUTTI_TEST_TLS") != nullptr) info.tls = tutti::make_tls_identity();
      info.peers = records;
    }
  }
  void open() {
    for (int i = 0; i < static_cast<int>(all.size()); ++i) open(i);
  }
  // Called by the thread that runs this rank.
  void open(int i) { (*this)[i].transport->open((*this)[i].info, (*this)[i].up); }
  rank& operator[](int i) { return *all[static_cast<std::size_t>(i)]; }

  // Runs the ranks of `who` alternately until `done()`. Returns false at the limit.
  template <class Done>
  bool drive(const std::vector<int>& who, Done done) {
    const auto until = core::clock::now() + limit;
    while (!done()) {
      if (core::clock::now() > until) return false;
      for (const int i : who) {
        rank& r = (*this)[i];
        r.context.restart();
        r.context.poll();
      }
    }
    return true;
  }
  template <class Done>
  bool drive(Done done) {
    std::vector<int> everyone;
    for (std::size_t i = 0; i < all.size(); ++i) everyone.push_back(static_cast<int>(i));
    return drive(everyone, done);
  }
  // Runs one rank until its loop sleeps. Returns false if it does not within the limit.
  bool settle(int i) {
    rank& r = (*this)[i];
    int quiet = 0;
    const auto until = core::clock::now() + limit;
    while (quiet < 50) {
      if (core::clock::now() > until) return false;
      r.context.restart();
      quiet = r.context.poll() == 0 ? quiet + 1 : 0;
    }
    return true;
  }
  // Runs one rank, which may sleep, until `done()`. Returns false at the limit.
  template <class Done>
  bool run(int i, Done done) {
    rank& r = (*this)[i];
    const auto until = core::clock::now() + limit;
    while (!done()) {
      const auto now = core::clock::now();
      if (now > until) return false;
      r.context.restart();
      r.context.run_one_until(until);
    }
    return true;
  }
  // Connects two ranks.
  bool connect(int from, int to) {
    message hello(frame_kind::refuse, {});
    const std::size_t before = (*this)[to].up.frames.size();
    hello.submit((*this)[from].to(to));
    return drive([&] { return (*this)[to].up.frames.size() > before && hello.finished; });
  }

  std::vector<std::unique_ptr<rank>> all;
};

using rank = rank_over<tcp::tcp_transport>;
using ranks = ranks_over<tcp::tcp_transport>;

// A connected TCP socket to "address:port", blocking.
class raw_connection {
 public:
  explicit raw_connection(const std::string& endpoint);
  int fd() const noexcept { return fd_.get(); }
  void send(const void* data, std::size_t bytes);
  // Returns true if the peer has closed or reset the connection. Discards the bytes before that.
  bool ended();
  void close() { fd_.reset(); }

 private:
  tutti::base::unique_fd fd_;
};

}  // namespace tcp_test

// SPDX-License-Identifier: Apache-2.0
// Messages after the handshake: of the store, between launchers, and the table of a world.
#include "base/fields.hpp"
#include "bootstrap/message_stream.hpp"
#include "bootstrap/peer_table.hpp"
#include "bootstrap/store_contents.hpp"
#include "core/running_task.hpp"
#include "fuzz/targets.hpp"
#include "launch/node_messages.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <exception>
#include <optional>
#include <string>
#include <tutti/error.hpp>

namespace tutti::fuzz {
namespace {

std::string_view text_of(bytes input) { return {reinterpret_cast<const char*>(input.data()), input.size()}; }

// A decoded message must encode to the same bytes.
template <class Decode, class Encode>
void check_round_trip(std::string_view message, Decode decode, Encode encode) {
  std::string again;
  try {
    again = encode(decode(message));
  } catch (const error& e) {
    TUTTI_INVARIANT(e.code() == errc::protocol);
    return;
  }
  TUTTI_INVARIANT(again == message);
}

task<> read_messages(bootstrap::message_stream* stream, std::size_t* messages, bool* over) {
  try {
    for (;;) {
      const std::optional<std::string> message = co_await stream->receive();
      if (!message) break;
      ++*messages;
    }
  } catch (const error&) {
  }
  *over = true;
}

void stream_of_messages(bytes input) {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0) std::abort();
  boost::asio::io_context context{1};
  core::stream_socket socket(context);
  socket.assign(boost::asio::local::stream_protocol(), fds[0]);
  bootstrap::message_stream stream(std::move(socket));
  (void)!::send(fds[1], input.data(), input.size(), MSG_NOSIGNAL);
  ::close(fds[1]);
  std::size_t messages = 0;
  bool over = false;
  core::running_task running;
  running.start(read_messages(&stream, &messages, &over));
  for (int i = 0; i < 100 && !over; ++i) {
    context.restart();
    context.poll();
  }
  TUTTI_INVARIANT(over);
  TUTTI_INVARIANT(messages <= input.size() / 4);
}

}  // namespace

void store_messages(bytes input) {
  const auto encode = [](const auto& message) { return base::to_bytes(message); };
  reader in(input);
  const auto mode = in.value<std::uint8_t>();
  const bytes rest = in.rest();
  switch (mode % 3) {
    case 0:
      check_round_trip(text_of(rest), bootstrap::decode_request, encode);
      break;
    case 1:
      check_round_trip(text_of(rest), bootstrap::decode_answer, encode);
      break;
    default:
      stream_of_messages(rest);
  }
}

void launcher_messages(bytes input) {
  const auto encode = [](const auto& message) { return launch::encode(message); };
  reader in(input);
  const auto mode = in.value<std::uint8_t>();
  const std::string_view message = text_of(in.rest());
  switch (mode % 3) {
    case 0:
      check_round_trip(message, launch::decode_hello, encode);
      break;
    case 1:
      check_round_trip(message, launch::decode_command, encode);
      break;
    default:
      check_round_trip(message, launch::decode_event, encode);
  }
}

// What a value of this kind begins with, which has the version of tutti, and then these bytes.
template <class T>
std::string behind_stamp(const std::string& encoded, const T& value, std::string_view rest) {
  return encoded.substr(0, encoded.size() - base::to_bytes(value).size()) + std::string(rest);
}

void peer_table(bytes input) {
  reader in(input);
  const auto how = in.value<std::uint8_t>();
  const int size = how % 128;
  const std::string_view rest = text_of(in.rest());
  const bool stamped = how < 128;
  try {
    const bootstrap::peer_table none;
    const std::string text =
        stamped ? behind_stamp(bootstrap::encode_table(none), none, rest) : std::string(rest);
    const bootstrap::peer_table table = bootstrap::decode_table(text, size);
    TUTTI_INVARIANT(!table.is_complete() || std::cmp_equal(table.records.size(), size));
    for (int rank = 0; std::cmp_less(rank, table.records.size()); ++rank)
      TUTTI_INVARIANT(table.records[static_cast<std::size_t>(rank)].rank == rank);
    const core::host_map hosts(table.hosts, size);
    const core::peer_records peers(table.kinds, table.kind_of);
    for (int rank = 0; rank < size; ++rank) {
      TUTTI_INVARIANT(hosts.host_of(rank) >= 0 && hosts.host_of(rank) < hosts.hosts() &&
                      hosts.hosts() <= size);
      static_cast<void>(peers.record_or_kind(rank).tcp_endpoint.size());
    }
    const bootstrap::peer_table again = bootstrap::decode_table(bootstrap::encode_table(table), size);
    TUTTI_INVARIANT(again.id == table.id);
  } catch (const error& e) {
    TUTTI_INVARIANT(e.code() == errc::protocol || e.code() == errc::invalid_argument);
  }
  try {
    const bootstrap::world_records none;
    const std::string text =
        stamped ? behind_stamp(bootstrap::encode_records(none), none, rest) : std::string(rest);
    const bootstrap::world_records some = bootstrap::decode_records(text);
    TUTTI_INVARIANT(bootstrap::decode_records(bootstrap::encode_records(some)).records.size() ==
                    some.records.size());
  } catch (const error& e) {
    TUTTI_INVARIANT(e.code() == errc::protocol);
  }
  try {
    const core::endpoint_record nobody;
    const std::string text =
        stamped ? behind_stamp(bootstrap::encode_endpoint_record(nobody), nobody, rest) : std::string(rest);
    for (const core::endpoint_record& record : bootstrap::decode_endpoint_records(text)) {
      TUTTI_INVARIANT(record.rank >= 0);
      bootstrap::encode_endpoint_record(record);
    }
  } catch (const error& e) {
    TUTTI_INVARIANT(e.code() == errc::protocol || e.code() == errc::invalid_argument);
  }
}

}  // namespace tutti::fuzz

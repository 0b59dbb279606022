// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/message_stream.hpp"

#include "base/little_endian.hpp"
#include "base/throw_error.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/deferred.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <cstdint>
#include <span>
#include <utility>

namespace tutti::bootstrap {
namespace {

constexpr std::size_t length_bytes = 4;
constexpr std::size_t first_piece_bytes = std::size_t{64} * 1024;
// As long as messages come without a pause, before the loop gets its turn.
constexpr std::chrono::milliseconds time_slice{1};
constexpr int most_idle_s = 32767;  // the kernel refuses more

std::span<const std::uint8_t> as_bytes(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

}  // namespace

void message_stream::notice_silence(std::chrono::milliseconds silence) {
  constexpr int on = 1, probes = 4;
  const int interval =
      static_cast<int>(std::clamp<std::int64_t>(silence.count() / 1000 / probes, 1, most_idle_s));
  const int fd = socket_.native_handle();
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &interval, sizeof interval);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

void message_stream::send(std::string message) {
  if (!socket_.is_open()) return;
  message.insert(0, length_bytes, '\0');
  base::put_little_endian(reinterpret_cast<std::uint8_t*>(message.data()),
                          static_cast<std::uint32_t>(message.size() - length_bytes));
  if (queued_bytes_ + message.size() > limit_) {
    close();
    return;
  }
  queued_bytes_ += message.size();
  queue_.push_back(std::move(message));
  if (!pumping_) pumps_.start(pump());
}

task<> message_stream::pump() {
  pumping_ = true;
  try {
    while (!queue_.empty()) {
      const std::string message = std::move(queue_.front());
      queue_.pop_front();
      co_await core::write_all(socket_, as_bytes(message), core::time_point::max());
      queued_bytes_ -= message.size();
      sent_.notify();
    }
  } catch (const error&) {
    close();
  }
  pumping_ = false;
}

task<> message_stream::room() {
  while (socket_.is_open() && queued_bytes_ > most_queued_bytes / 2) {
    co_await sent_.wait(core::time_point::max());
  }
}

task<std::optional<std::string>> message_stream::receive() {
  if (core::clock::now() >= slice_end_) {
    co_await boost::asio::post(socket_.get_executor(), boost::asio::deferred);
    slice_end_ = core::clock::now() + time_slice;
  }
  std::array<std::uint8_t, length_bytes> head{};
  const std::size_t begun = co_await core::read_some(socket_, head, core::time_point::max());
  if (begun == 0) co_return std::nullopt;
  co_await core::read_exactly(socket_, std::span(head).subspan(begun), core::time_point::max());
  const auto length = base::get_little_endian<std::uint32_t>(head.data());
  if (length > longest_message)
    base::throw_error(errc::protocol, "{} announces a store message of {} bytes; {} are allowed",
                      core::peer_text(socket_), length, longest_message);
  // Memory for bytes that have come, not for the announced length.
  std::string message;
  while (message.size() < length) {
    const std::size_t before = message.size();
    message.resize(std::min<std::size_t>(length, std::max(first_piece_bytes, 2 * before)));
    const std::span<std::uint8_t> all(reinterpret_cast<std::uint8_t*>(message.data()), message.size());
    co_await core::read_exactly(socket_, all.subspan(before), core::time_point::max());
  }
  co_return std::optional<std::string>(std::move(message));
}

void message_stream::close() noexcept {
  boost::system::error_code ignored;
  socket_.close(ignored);
  sent_.notify();
}

}  // namespace tutti::bootstrap

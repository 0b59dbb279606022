// SPDX-License-Identifier: Apache-2.0
#include "core/admission.hpp"

#include "base/log.hpp"
#include "base/text.hpp"
#include "base/unique_fd.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/system/system_error.hpp>
#include <cerrno>
#include <string_view>
#include <tuple>

namespace tutti::core {
namespace {

constexpr std::size_t most_reported = 32;
// Before the loop gets its turn.
constexpr int accepted_at_a_time = 16;
constexpr std::chrono::milliseconds shortage_pause{50};

// Unauthenticated peers get at most an eighth of the descriptors that this process may open.
int affordable(int places) noexcept {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == RLIM_INFINITY) return places;
  return static_cast<int>(std::clamp<rlim_t>(files.rlim_cur / 8, 4, static_cast<rlim_t>(places)));
}

// By host: an unauthenticated peer calls from one port after the other.
std::string_view source_of(const std::string& from) noexcept {
  return std::string_view(from).substr(0, from.rfind(':'));
}

}  // namespace

admission::admission(const boost::asio::any_io_executor& executor, limits most)
    : most_{affordable(most.places), most.time, most.courtesy}, change_(executor) {}

admission::pending_connection::pending_connection(admission& at, stream_socket& socket)
    : of_(at), socket_(socket), from_(peer_text(socket)), since_(clock::now()) {
  ++of_.present_;
  of_.pending_.push_back(*this);
}

admission::pending_connection::~pending_connection() {
  if (turned_out_) return;
  --of_.present_;
  unlink();
  of_.change_.notify();
}

admission::pending_connection* admission::most_expendable() noexcept {
  pending_connection* found = nullptr;
  int most = 0;
  for (pending_connection* v = pending_.front(); v != nullptr; v = pending_.after(*v)) {
    if (found != nullptr && source_of(v->from_) == source_of(found->from_)) continue;
    int same = 0;
    for (pending_connection* other = v; other != nullptr; other = pending_.after(*other))
      same += source_of(other->from_) == source_of(v->from_) ? 1 : 0;
    // the first connection of a source is its oldest, and counts all of its others
    if (same <= most) continue;
    most = same;
    found = v;
  }
  return found;
}

bool admission::has_room() noexcept {
  if (present_ < most_.places) return true;
  pending_connection* const v = most_expendable();
  if (v == nullptr || clock::now() < v->since_ + most_.courtesy) return false;
  v->unlink();
  v->turned_out_ = true;
  --present_;
  ++turned_out_;
  boost::system::error_code ignored;
  v->socket_.cancel(ignored);
  return true;
}

task<> admission::wait_for_room() {
  const pending_connection* const v = most_expendable();
  const time_point until = v == nullptr ? time_point::max() : v->since_ + most_.courtesy;
  co_await change_.wait(until);
}

task<> admission::accept_all(listener& from, std::string name, std::function<void(stream_socket)> take) {
  for (;;) {
    while (!has_room()) {
      co_await wait_for_room();
    }
    const std::tuple<boost::system::error_code> ready =
        co_await from.async_wait(listener::wait_read, boost::asio::as_tuple(boost::asio::deferred));
    if (std::get<0>(ready)) co_return;
    if (!accept_some(from, name, take)) co_await change_.wait(deadline_after(shortage_pause));
  }
}

bool admission::accept_some(listener& from, const std::string& name,
                            const std::function<void(stream_socket)>& take) {
  const boost::asio::generic::stream_protocol protocol = from.local_endpoint().protocol();
  for (int i = 0; i < accepted_at_a_time && has_room(); ++i) {
    base::unique_fd fd(::accept4(from.native_handle(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) {
      const int code = errno;
      if (code == EAGAIN || code == EWOULDBLOCK) return true;
      if (code == EINTR || code == ECONNABORTED) continue;
      if (!std::exchange(shortage_reported_, true))
        base::log_warning(fmt::format("{} cannot accept connections for now: {}; raise `ulimit -n`", name,
                                      base::errno_text(code)));
      return false;
    }
    try {
      stream_socket socket(from.get_executor(), protocol, fd.get());
      fd.release();
      take(std::move(socket));
    } catch (const boost::system::system_error& e) {
      base::log_warning(fmt::format("{} dropped a connection: {}", name, e.what()));
    }
  }
  return true;
}

void unauthenticated_log::report(const std::string& from, const char* why) {
  const std::string source(source_of(from));
  if (reported_.size() >= most_reported ||
      std::find(reported_.begin(), reported_.end(), source) != reported_.end()) {
    base::log(base::log_level::debug, fmt::format("{}: dropped a connection from {}: {}", what_, from, why));
    return;
  }
  reported_.push_back(source);
  base::log_warning(fmt::format(
      "{}: dropped a connection from {}: {}. Others from there are not reported{}", what_, from, why,
      reported_.size() == most_reported ? ", nor from anywhere else: too many have called" : ""));
}

}  // namespace tutti::core

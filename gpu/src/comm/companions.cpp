// SPDX-License-Identifier: Apache-2.0
#include "comm/companions.hpp"

#include <fmt/format.h>

#include <boost/asio/deferred.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstring>
#include <tutti/tutti.hpp>

namespace tutti::gpu::detail {
namespace {

constexpr int control_tag = 0;
constexpr auto for_ever = std::chrono::hours(24 * 365);
constexpr auto longest_inquiry = std::chrono::milliseconds(200);

}  // namespace

companions::companions(owner& of, tutti::communicator control)
    : owner_(of),
      control_(std::move(control)),
      answers_(static_cast<std::size_t>(control_.size())),
      gone_(static_cast<std::size_t>(control_.size()), false) {}

void companions::listen() {
  for (int peer = 0; peer < control_.size(); ++peer)
    if (peer != control_.rank()) hearing_.spawn(hear(peer));
}

void companions::say_failed(errc why, const std::string& text, bool keep) noexcept {
  note bad;
  bad.kind = note::failed;
  bad.why = static_cast<std::int32_t>(why);
  bad.keep = keep ? 1 : 0;
  std::strncpy(bad.text, text.c_str(), sizeof bad.text - 1);
  tell_all(bad);
}

void companions::say_farewell() noexcept {
  note farewell;
  farewell.kind = note::bye;
  tell_all(farewell);
}

task<std::string> companions::who_is_missing(std::uint64_t sequence) {
  note question;
  question.kind = note::ask;
  question.sequence = sequence;
  for (auto& a : answers_) a.reset();
  for (int peer = 0; peer < control_.size(); ++peer)
    if (peer != control_.rank()) tell(peer, question);
  boost::asio::steady_timer patience(control_.get_executor(), longest_inquiry);
  const auto until = std::chrono::steady_clock::now() + longest_inquiry;
  const auto all = [this] {
    for (int peer = 0; peer < control_.size(); ++peer)
      if (peer != control_.rank() && !answers_[static_cast<std::size_t>(peer)]) return false;
    return true;
  };
  while (!all() && std::chrono::steady_clock::now() < until) {
    patience.expires_after(std::chrono::milliseconds(5));
    co_await patience.async_wait(boost::asio::deferred);
  }
  std::string findings;
  for (int peer = 0; peer < control_.size(); ++peer) {
    if (peer == control_.rank()) continue;
    const std::optional<note>& a = answers_[static_cast<std::size_t>(peer)];
    if (!a) {
      findings += fmt::format("; rank {} does not answer", peer);
    } else if (a->sequence < sequence) {
      findings +=
          a->sequence == 0
              ? fmt::format("; rank {} has not called it, nor anything before", peer)
              : fmt::format("; rank {} has not called it: its last was {} #{}", peer,
                            name_of(static_cast<gpu::detail::operation_kind>(a->operation)), a->sequence);
    }
  }
  co_return findings;
}

task<> companions::hear(int peer) {
  const auto at = static_cast<std::size_t>(peer);
  for (;;) {
    note got;
    errc why = errc::success;
    std::string text;
    try {
      // Silence is no failure here, however long.
      co_await with_timeout(control_.recv(got, peer, control_tag), for_ever);
    } catch (const error& e) {
      why = static_cast<errc>(e.code().value());
      text = e.what();
    }
    if (why != errc::success) {
      gone_[at] = true;
      if (why != errc::cancelled && why != errc::shut_down) owner_.peer_gone(peer, why, text);
      co_return;
    }
    if (got.kind == note::ask) {
      const position here = owner_.where();
      note mine;
      mine.kind = note::answer;
      mine.sequence = here.sequence;
      mine.operation = static_cast<std::int32_t>(here.last);
      tell(peer, mine);
    } else if (got.kind == note::answer) {
      answers_[at] = got;
    } else if (got.kind == note::failed) {
      got.text[sizeof got.text - 1] = '\0';
      owner_.peer_failed(peer, static_cast<errc>(got.why), got.text, got.keep != 0);
    } else if (got.kind == note::bye) {
      gone_[at] = true;
      owner_.peer_left(peer);
      co_return;
    }
  }
}

void companions::tell_all(const note& n) noexcept {
  for (int peer = 0; peer < control_.size(); ++peer)
    if (peer != control_.rank() && !gone_[static_cast<std::size_t>(peer)]) tell(peer, n);
}

void companions::tell(int peer, const note& n) noexcept {
  while (!telling_.empty() && telling_.front().second.done()) telling_.pop_front();
  try {
    auto kept = std::make_unique<note>(n);
    request sending = control_.isend(*kept, peer, control_tag);
    telling_.emplace_back(std::move(kept), std::move(sending));
  } catch (const error&) {
    // It has gone; hear() finds out.
  }
}

}  // namespace tutti::gpu::detail

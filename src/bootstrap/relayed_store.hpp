// SPDX-License-Identifier: Apache-2.0
// relayed_store: another store, for several users here. What is written once is asked for once: the value is kept, and
// those that wait for it share a request. If its connection breaks, it makes another.
#pragma once

#include "bootstrap/store_contents.hpp"
#include "core/platform.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tutti/store.hpp>
#include <tutti/task.hpp>
#include <utility>

namespace tutti::bootstrap {

class relayed_store final : public store {
 public:
  // A request is withdrawn after this time, and made again if somebody still waits: `of` may not learn that nobody does.
  static constexpr std::chrono::milliseconds longest_request = std::chrono::seconds(30);
  // More bytes of values are not kept.
  static constexpr std::size_t most_kept = 32u << 20;
  using opener = std::function<task<std::unique_ptr<store>>(std::chrono::milliseconds timeout)>;

  // `is_kept`: the value that this request finds, a get or a read by compare_exchange, serves later ones. `open`, if
  // given, opens `of` again when it has gone, and reads are repeated there. `time` is whose clock deadlines have.
  relayed_store(boost::asio::any_io_executor executor, std::unique_ptr<store> of,
                std::function<bool(const store_request&)> is_kept, opener open = {},
                core::platform& time = core::platform::real(),
                std::chrono::milliseconds longest = longest_request)
      : executor_(executor),
        of_(std::move(of)),
        is_kept_(std::move(is_kept)),
        open_(std::move(open)),
        time_(time),
        longest_(longest) {}

  std::string name() const override { return of_->name(); }
  std::size_t most_bytes() const noexcept override { return of_->most_bytes(); }

 private:
  class turn;
  task<store_answer> carry_out(store_request what) override;
  task<store_answer> ask(store_request what);
  task<bool> others(const std::string& key, core::time_point deadline);

  const boost::asio::any_io_executor executor_;
  std::shared_ptr<store> of_;
  const std::function<bool(const store_request&)> is_kept_;
  const opener open_;
  core::platform& time_;
  const std::chrono::milliseconds longest_;
  std::map<std::string, std::string> kept_;
  std::size_t kept_bytes_ = 0;
  std::set<std::string> asked_;  // keys; the empty one while `of_` is opened
  store_contents answered_;      // has no values: others wait for the answers to these
};

}  // namespace tutti::bootstrap

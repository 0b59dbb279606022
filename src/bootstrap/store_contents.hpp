// SPDX-License-Identifier: Apache-2.0
// What kinds of stores share: the keys and values behind memory_store, file_store and tcp_store_server, with the
// waiters for each key; the texts of errors; and operations as messages.
#pragma once

#include "core/wakeup.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <tutti/store.hpp>

namespace tutti::bootstrap {

// "get('a key') on memory_store": how texts name an operation of a store.
std::string title_of(const store_request& what, const std::string& store);
// Throws errc::timed_out for a key that was not set in time.
[[noreturn]] void throw_missing_key(const store_request& what, const std::string& store);

// These throw errc::protocol on anything that base::to_bytes() does not make.
store_request decode_request(std::string_view message);
store_answer decode_answer(std::string_view message);

// Shared by threads.
class store_contents {
  struct waiter {
    boost::asio::any_io_executor executor;
    std::shared_ptr<core::wakeup> changed;  // on the executor's thread only
  };
  using waiters = std::multimap<std::string, waiter>;

 public:
  // Limit of all keys and values together, each with entry_bytes more. A rank needs some hundred bytes.
  static constexpr std::size_t most_bytes = std::size_t{256} << 20;
  static constexpr std::size_t entry_bytes = 128;

  // Carries out an operation that does not wait; `store` is the store's name, for errors.
  store_answer carry_out(const store_request& what, const std::string& store);
  std::optional<std::string> find(const std::string& key) const;
  void clear();
  std::map<std::string, std::string> copy() const;
  // Notifies those that watch the key, as if it had been set.
  void notify(const std::string& key) {
    const std::lock_guard lock(mutex_);
    tell(key);
  }

  // While it lives, changed() is notified on `executor` whenever the key is set. Made and destroyed on that
  // executor's thread, whichever thread sets the key; afterwards the executor is not touched.
  class watch {
   public:
    watch(store_contents& contents, const std::string& key, const boost::asio::any_io_executor& executor);
    watch(const watch&) = delete;
    watch& operator=(const watch&) = delete;
    ~watch();
    core::wakeup& changed() const noexcept { return *place_->second.changed; }

   private:
    store_contents& contents_;
    waiters::iterator place_;
  };

 private:
  // Called with the lock held, before the change. A notification cannot fail afterwards for lack of memory,
  // and a notified waiter reads when the lock is free.
  void tell(const std::string& key);

  mutable std::mutex mutex_;
  std::map<std::string, std::string> values_;
  std::size_t bytes_ = 0;  // of all keys and values
  waiters waiters_;
};

}  // namespace tutti::bootstrap

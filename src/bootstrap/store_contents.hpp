// SPDX-License-Identifier: Apache-2.0
// The keys and values behind memory_store and tcp_store_server, shared by threads, and the waiters for each
// key.
#pragma once

#include "bootstrap/store_request.hpp"
#include "core/wakeup.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tutti/store.hpp>

namespace tutti::bootstrap {

class store_contents {
  struct waiter {
    boost::asio::any_io_executor executor;
    std::shared_ptr<core::wakeup> changed;  // on the executor's thread only
  };
  using waiters = std::multimap<std::string, waiter>;

 public:
  void set(const std::string& key, std::string value);
  std::optional<std::string> find(const std::string& key) const;
  // Returns the sum; nullopt if the value is no number or the sum exceeds 64 bits.
  std::optional<std::int64_t> add(const std::string& key, std::int64_t amount);
  store_exchange compare_exchange(const std::string& key, const std::string& expected, std::string desired);
  bool erase(const std::string& key);
  std::size_t count(const std::string& prefix) const;
  // Returns the new length; nullopt if it would exceed `limit`.
  std::optional<std::size_t> append(const std::string& key, const std::string& text, std::size_t limit);
  void clear();
  std::map<std::string, std::string> copy() const;
  // Notifies all waiters, as if each key had been set.
  void tell_all();

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
  void tell(waiters::iterator first, waiters::iterator last);

  mutable std::mutex mutex_;
  std::map<std::string, std::string> values_;
  waiters waiters_;
};

// Carries out an operation that does not wait; `store` is the store's name, for errors.
store_answer carry_out(store_contents& on, const store_request& what, const std::string& store);
// Returns the value that a key has, or is given until the deadline. Ends by `*trouble`, if there is one when
// the waiter is notified.
task<std::string> await_key(store_contents& in, boost::asio::any_io_executor executor, store_request what,
                            std::string store, core::time_point deadline,
                            const std::exception_ptr* trouble = nullptr);

}  // namespace tutti::bootstrap

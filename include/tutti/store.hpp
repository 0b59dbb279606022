// SPDX-License-Identifier: Apache-2.0
// Stores: small shared dictionaries, through which ranks find each other before there is a communicator.
#pragma once

#include <tutti/detail/asio_config.hpp>
#include <tutti/task.hpp>
#include <tutti/tls.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace tutti {

namespace bootstrap {
class store_contents;
}

// What compare_exchange() found.
struct store_exchange {
  store_exchange(bool did_exchange, std::string now) : exchanged(did_exchange), value(std::move(now)) {}
  bool exchanged;     // the key held what was expected, and now holds what was desired
  std::string value;  // what the key holds now; empty when it is absent
};

// Keys and values are byte strings; a key is not empty. Key and values of one request, and the value of one
// key, have at most `largest_value` bytes together.
//
// Every operation is atomic, seen by all users of the store in one order, and lazy: it starts when it is
// awaited. The store outlives the task. Each takes a timeout, counted from the await, by default that of the
// store; 0 means that a missing key is an error at once.
//
// Errors, with a text that names the operation, the key and the store: invalid_argument (an empty key, too
// long a value); timed_out (the key was not set in time, or the store did not answer: a change may then have
// been made or not); peer_failed (the store has gone); resources (a value would become longer than
// `largest_value`). Cancellation: destroying the task abandons the request, which a change may outlive.
// Several operations may be outstanding at once; a wait delays no other. A store is used on its executor's
// thread.
class store {
 public:
  using milliseconds = std::chrono::milliseconds;
  static constexpr std::size_t largest_value = (16u << 20) - 4096;
  static constexpr milliseconds use_default{-1};

  virtual ~store() = default;
  store(const store&) = delete;
  store& operator=(const store&) = delete;

  // Makes `key` hold `value`, whether or not it existed.
  task<> set(std::string key, std::string value, milliseconds timeout = use_default);
  // Waits until the key exists; completes with its value.
  task<std::string> get(std::string key, milliseconds timeout = use_default);
  // Waits until the key exists.
  task<> wait(std::string key, milliseconds timeout = use_default);
  // Adds `amount` to the number, in decimal, that the key holds (0 when it is absent); completes with the
  // sum. A value that is no number, and a sum beyond 64 bits, are errc::invalid_argument, and nothing is
  // changed.
  task<std::int64_t> add(std::string key, std::int64_t amount, milliseconds timeout = use_default);
  // Makes the key hold `desired` if it holds `expected`; an empty `expected` is also what an absent key
  // holds.
  task<store_exchange> compare_exchange(std::string key, std::string expected, std::string desired,
                                        milliseconds timeout = use_default);
  // Removes the key; completes with whether it existed.
  task<bool> erase(std::string key, milliseconds timeout = use_default);
  // The number of keys that begin with `prefix`.
  task<std::size_t> count(std::string prefix = {}, milliseconds timeout = use_default);
  // Adds `text` at the end of the key's value (empty when it is absent); completes with the new length in
  // bytes.
  task<std::size_t> append(std::string key, std::string text, milliseconds timeout = use_default);

  // "memory_store", "tcp_store at 10.0.0.1:29500": for error texts.
  virtual std::string name() const = 0;
  milliseconds timeout() const noexcept { return timeout_; }
  void set_timeout(milliseconds timeout);

 protected:
  store() = default;
  // As above, with checked arguments and a real timeout.
  virtual task<> do_set(std::string key, std::string value, milliseconds timeout) = 0;
  virtual task<std::string> do_get(std::string key, milliseconds timeout) = 0;
  virtual task<> do_wait(std::string key, milliseconds timeout) = 0;
  virtual task<std::int64_t> do_add(std::string key, std::int64_t amount, milliseconds timeout) = 0;
  virtual task<store_exchange> do_compare_exchange(std::string key, std::string expected, std::string desired,
                                                   milliseconds timeout) = 0;
  virtual task<bool> do_erase(std::string key, milliseconds timeout) = 0;
  virtual task<std::size_t> do_count(std::string prefix, milliseconds timeout) = 0;
  virtual task<std::size_t> do_append(std::string key, std::string text, milliseconds timeout) = 0;

 private:
  milliseconds real(milliseconds timeout) const noexcept {
    return timeout < milliseconds(0) ? timeout_ : timeout;
  }

  milliseconds timeout_ = std::chrono::minutes(10);
};

// For the threads of one process. Each thread has an object of its own, on its own executor; all share the
// contents.
class memory_store final : public store {
 public:
  // A store with contents of its own.
  explicit memory_store(boost::asio::any_io_executor executor);
  // One that shares the contents of `other`, which may belong to another thread and need not outlive this
  // one.
  memory_store(boost::asio::any_io_executor executor, const memory_store& other);
  ~memory_store() override;

  std::string name() const override { return name_; }

 private:
  friend class tcp_store_server;
  memory_store(boost::asio::any_io_executor executor, std::shared_ptr<bootstrap::store_contents> contents,
               std::string name);
  task<> do_set(std::string key, std::string value, milliseconds timeout) override;
  task<std::string> do_get(std::string key, milliseconds timeout) override;
  task<> do_wait(std::string key, milliseconds timeout) override;
  task<std::int64_t> do_add(std::string key, std::int64_t amount, milliseconds timeout) override;
  task<store_exchange> do_compare_exchange(std::string key, std::string expected, std::string desired,
                                           milliseconds timeout) override;
  task<bool> do_erase(std::string key, milliseconds timeout) override;
  task<std::size_t> do_count(std::string prefix, milliseconds timeout) override;
  task<std::size_t> do_append(std::string key, std::string text, milliseconds timeout) override;

  boost::asio::any_io_executor executor_;
  std::shared_ptr<bootstrap::store_contents> contents_;
  std::string name_;
};

// A file that all users see: on this host, or on a network file system with locks.
//
// The contents last as long as anybody has the file open: a file that a crashed run has left starts empty,
// and the last to leave takes it away. Threads and processes may use one file, each through an object of its
// own; others are not told apart from this user, who alone may read it. Waiting is cheap where the kernel
// tells of changes; on network file systems they are looked for, every 100 ms at the latest. File operations
// happen on the loop's thread.
//
// Errors beyond those of every store: timed_out (a stopped process holds the lock), peer_failed (somebody
// removed the file), protocol (it is damaged), resources (the disk is full), not_supported (a file system
// without fcntl locks).
class file_store final : public store {
 public:
  // Waits for the lock, for so long at most. The timeout becomes that of the store as well. Throws
  // invalid_argument (no such directory, no regular file, one that holds something else or belongs to another
  // user) as well.
  static task<std::unique_ptr<file_store>> open(boost::asio::any_io_executor executor, std::string path,
                                                std::chrono::milliseconds timeout);
  // Leaves. No operation may be pending. Takes 20 ms at the longest, when others hold the lock.
  ~file_store() override;

  std::string name() const override;

  // Users are numbered, each differently. Whether one is still there, however it may have ended.
  std::uint64_t user() const noexcept;
  bool is_alive(std::uint64_t user) const;

 private:
  struct impl;
  explicit file_store(std::unique_ptr<impl> i);
  task<> do_set(std::string key, std::string value, milliseconds timeout) override;
  task<std::string> do_get(std::string key, milliseconds timeout) override;
  task<> do_wait(std::string key, milliseconds timeout) override;
  task<std::int64_t> do_add(std::string key, std::int64_t amount, milliseconds timeout) override;
  task<store_exchange> do_compare_exchange(std::string key, std::string expected, std::string desired,
                                           milliseconds timeout) override;
  task<bool> do_erase(std::string key, milliseconds timeout) override;
  task<std::size_t> do_count(std::string prefix, milliseconds timeout) override;
  task<std::size_t> do_append(std::string key, std::string text, milliseconds timeout) override;

  std::unique_ptr<impl> impl_;
};

// Serves one store to other processes, on the loop of the process that has it (rank 0).
//
// Every connection must first prove that it knows the secret; unauthenticated peers are dropped after 2 s at
// the latest, logged once for each host, and at most 128 connections are between accept and proof at a time;
// those that have been there longest make room for others. Without a secret, only
// loopback addresses are listened on. Clients that leave are normal. Runs until it is destroyed, which must
// not happen from inside one of its own requests; while it runs, its io_context has work.
class tcp_store_server {
 public:
  // Binds every address of this host that `host` resolves to, at `port` (0: any free one). Throws
  // invalid_argument (no secret and not loopback; not an address of this host), system (the port is in use),
  // timed_out (of resolving).
  static task<std::unique_ptr<tcp_store_server>> listen(boost::asio::any_io_executor executor,
                                                        std::string host, std::uint16_t port,
                                                        std::string secret, std::chrono::milliseconds timeout,
                                                        tls_identity tls = nullptr);
  // Serves on a socket that listens already, and owns it from here on. Throws invalid_argument (no listening
  // TCP socket, which is then left alone; no secret and not loopback).
  static std::unique_ptr<tcp_store_server> adopt(boost::asio::any_io_executor executor,
                                                 int listening_descriptor, std::string secret,
                                                 tls_identity tls = nullptr);
  tcp_store_server(const tcp_store_server&) = delete;
  tcp_store_server& operator=(const tcp_store_server&) = delete;
  ~tcp_store_server();

  // The store itself, for this process. The object may outlive the server.
  std::unique_ptr<memory_store> local() const;
  std::uint16_t port() const noexcept;

  // Stops accepting, and completes when every client has left, or with what is connected cut off after the
  // timeout. A server that goes without this takes answers away that clients still wait for.
  task<> drain(std::chrono::milliseconds timeout);

 private:
  struct impl;
  explicit tcp_store_server(std::unique_ptr<impl> i);
  std::unique_ptr<impl> impl_;
};

// The client of a tcp_store_server.
class tcp_store final : public store {
 public:
  // Tries all addresses that `host` resolves to, again and again, until one answers or the timeout is over:
  // the server may start later. `rank` is for messages. The timeout becomes that of the store as well. Throws
  // join_failed (rank 0 did not come in time), unauthorized, protocol (something else listens there),
  // invalid_argument (no secret and not loopback; no such host).
  static task<std::unique_ptr<tcp_store>> connect(boost::asio::any_io_executor executor, std::string host,
                                                  std::uint16_t port, std::string secret, int rank,
                                                  std::chrono::milliseconds timeout,
                                                  tls_identity tls = nullptr);
  // The same where the server has listened since before this was called: when it refuses, it has gone, and
  // nobody waits for it. Throws join_failed at once then.
  static task<std::unique_ptr<tcp_store>> connect_to_listening(boost::asio::any_io_executor executor,
                                                               std::string host, std::uint16_t port,
                                                               std::string secret, int rank,
                                                               std::chrono::milliseconds timeout,
                                                               tls_identity tls = nullptr);
  // Closes the connection. No operation may be pending.
  ~tcp_store() override;

  std::string name() const override;

 private:
  struct impl;
  explicit tcp_store(std::unique_ptr<impl> i);
  task<> do_set(std::string key, std::string value, milliseconds timeout) override;
  task<std::string> do_get(std::string key, milliseconds timeout) override;
  task<> do_wait(std::string key, milliseconds timeout) override;
  task<std::int64_t> do_add(std::string key, std::int64_t amount, milliseconds timeout) override;
  task<store_exchange> do_compare_exchange(std::string key, std::string expected, std::string desired,
                                           milliseconds timeout) override;
  task<bool> do_erase(std::string key, milliseconds timeout) override;
  task<std::size_t> do_count(std::string prefix, milliseconds timeout) override;
  task<std::size_t> do_append(std::string key, std::string text, milliseconds timeout) override;

  std::unique_ptr<impl> impl_;
};

// Another store's keys that begin with `prefix` and a slash: users of one store keep out of each other's way.
class prefix_store final : public store {
 public:
  // `base` outlives this. The timeout is that of `base`.
  prefix_store(store& base, std::string prefix);

  std::string name() const override;

 private:
  task<> do_set(std::string key, std::string value, milliseconds timeout) override;
  task<std::string> do_get(std::string key, milliseconds timeout) override;
  task<> do_wait(std::string key, milliseconds timeout) override;
  task<std::int64_t> do_add(std::string key, std::int64_t amount, milliseconds timeout) override;
  task<store_exchange> do_compare_exchange(std::string key, std::string expected, std::string desired,
                                           milliseconds timeout) override;
  task<bool> do_erase(std::string key, milliseconds timeout) override;
  task<std::size_t> do_count(std::string prefix, milliseconds timeout) override;
  task<std::size_t> do_append(std::string key, std::string text, milliseconds timeout) override;

  store& base_;
  std::string prefix_;
};

}  // namespace tutti

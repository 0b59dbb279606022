// SPDX-License-Identifier: Apache-2.0
// Stores: small shared dictionaries through which ranks find each other before they have a communicator.
#pragma once

#include <tutti/detail/asio_config.hpp>
#include <tutti/error.hpp>
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
}  // namespace bootstrap

// What a store can do.
enum class store_operation : std::uint8_t { set = 1, get, wait, add, compare_exchange, erase, count, append };

// An operation of a store as a value.
struct store_request {
  std::uint64_t number = 0;  // for stores that send requests: the answer has the same
  store_operation operation = store_operation::set;
  std::chrono::milliseconds timeout{-1};  // negative: that of the store
  std::int64_t amount = 0;                // of add
  std::string key = {};                   // of count: the prefix
  std::string value = {};                 // of set, append; of compare_exchange: the desired value
  std::string expected = {};              // of compare_exchange

  bool waits() const noexcept {
    return operation == store_operation::get || operation == store_operation::wait;
  }
};

// Its result.
struct store_answer {
  std::uint64_t number = 0;
  errc code = errc::success;  // of an answer that is sent; perform() throws
  bool flag = false;          // of compare_exchange and erase
  std::int64_t amount = 0;    // of add, count and append
  std::string text = {};      // the value; or what went wrong
};

// The result of compare_exchange().
struct store_exchange {
  store_exchange(bool did_exchange, std::string now) : exchanged(did_exchange), value(std::move(now)) {}
  // The key held the expected value, and now holds the desired one.
  bool exchanged;
  // The value of the key now; empty if it does not exist.
  std::string value;
};

// A dictionary of byte strings that several users share. A key is not empty. The key and values of one
// request have at most `largest_value` bytes together, and so has the value of one key.
//
// Each operation is atomic, and all users see all operations in one order. Operations start when awaited.
// Several may be pending at once; a wait delays no other. The timeout counts from the await; with 0 a missing key
// is an error at once. Use a store on the thread of its executor. It outlives its tasks.
// Errors: the text names the operation, the key and the store. errc::invalid_argument: an empty key or a too
// long value. errc::timed_out: the key was not set in time, or the store did not answer; a change may have
// happened. errc::peer_failed: the store has gone. errc::resources: a value would exceed `largest_value`,
// or all keys and values of a memory_store, tcp_store or file_store 256 MiB.
// Cancellation: throws errc::cancelled, or errc::timed_out at a deadline. The request is abandoned, as by destroying
// the task: a change may still happen.
class store {
 public:
  using milliseconds = std::chrono::milliseconds;
  // Limit in bytes; see above.
  static constexpr std::size_t largest_value = (16u << 20) - 4096;
  // As a timeout: that of the store.
  static constexpr milliseconds use_default{-1};

  virtual ~store() = default;
  store(const store&) = delete;
  store& operator=(const store&) = delete;

  // Sets `key` to `value`, whether or not it exists.
  task<> set(std::string key, std::string value, milliseconds timeout = use_default);
  // Waits until the key exists and returns its value.
  task<std::string> get(std::string key, milliseconds timeout = use_default);
  // Waits until the key exists.
  task<> wait(std::string key, milliseconds timeout = use_default);
  // Adds `amount` to the decimal number that the key holds (0 if it does not exist) and returns the sum.
  // Errors: errc::invalid_argument, and no change, if the value is no number or the sum exceeds 64 bits.
  task<std::int64_t> add(std::string key, std::int64_t amount, milliseconds timeout = use_default);
  // Sets the key to `desired` if it holds `expected`. A key that does not exist counts as empty, and an empty
  // `desired` removes it.
  task<store_exchange> compare_exchange(std::string key, std::string expected, std::string desired,
                                        milliseconds timeout = use_default);
  // Removes the key and returns whether it existed.
  task<bool> erase(std::string key, milliseconds timeout = use_default);
  // Returns the number of keys that begin with `prefix`.
  task<std::size_t> count(std::string prefix = {}, milliseconds timeout = use_default);
  // Appends `text` to the key's value (empty if it does not exist) and returns the new length in bytes.
  task<std::size_t> append(std::string key, std::string text, milliseconds timeout = use_default);

  // Carries out one of the operations above.
  task<store_answer> perform(store_request what);

  // The name in error texts: "memory_store", "tcp_store at 10.0.0.1:29500".
  virtual std::string name() const = 0;
  // The limit in bytes of this store: `largest_value`, or less where something else stores the values.
  virtual std::size_t most_bytes() const noexcept { return largest_value; }
  // The timeout of operations that name none; 10 minutes if not set.
  milliseconds timeout() const noexcept { return timeout_; }
  void set_timeout(milliseconds timeout);

 protected:
  // "get('a key') on memory_store": how error texts name an operation of this store.
  std::string title_of(const store_request& what) const;
  store() = default;
  // Carries out an operation that perform() has checked, with a timeout that is not negative.
  virtual task<store_answer> carry_out(store_request what) = 0;

 private:
  milliseconds timeout_ = std::chrono::minutes(10);
};

// A store for the threads of one process, each with an object on its own executor; all share the contents.
class memory_store final : public store {
 public:
  // Makes a store with new contents.
  explicit memory_store(boost::asio::any_io_executor executor);
  // Makes a store that shares the contents of `other`, which may be of another thread and need not outlive this.
  memory_store(boost::asio::any_io_executor executor, const memory_store& other);
  ~memory_store() override;

  std::string name() const override { return name_; }

 private:
  friend class tcp_store_server;
  memory_store(boost::asio::any_io_executor executor, std::shared_ptr<bootstrap::store_contents> contents,
               std::string name);
  task<store_answer> carry_out(store_request what) override;

  boost::asio::any_io_executor executor_;
  std::shared_ptr<bootstrap::store_contents> contents_;
  std::string name_;
};

// A store in a file that all users see, on this host or on a network file system with locks.
//
// The contents exist as long as a user (an object of a thread or process) has the file open. A file left by a
// crashed run starts empty, and the last user to leave removes it. Only the system user who owns the file may
// read it; all processes of that user are trusted. File operations run on the loop's thread.
// Errors: also errc::timed_out (a stopped process holds the lock), errc::peer_failed (the file was removed),
// errc::protocol (it is damaged), errc::resources (the disk is full), errc::not_supported (no fcntl locks).
// Cost: a waiting user looks for changes at least every 10 ms, on network file systems every 100 ms.
class file_store final : public store {
 public:
  // Opens the file, waiting for its lock until the timeout, which also becomes that of the store.
  // Errors: also errc::invalid_argument (no such directory, or a file that is no store, or another user's).
  static task<std::unique_ptr<file_store>> open(boost::asio::any_io_executor executor, std::string path,
                                                std::chrono::milliseconds timeout);
  // Leaves the store. No operation may be pending.
  // Cost: 20 ms at most, if others hold the lock.
  ~file_store() override;

  std::string name() const override;

  // The number of this user, different from every other's; and whether a user has not left, and its process lives.
  std::uint64_t user() const noexcept;
  bool is_alive(std::uint64_t user) const;

 private:
  struct impl;
  explicit file_store(std::shared_ptr<impl> i);
  task<store_answer> carry_out(store_request what) override;

  std::shared_ptr<impl> impl_;
};

// Serves a store to other processes, on the loop of the process that has it (rank 0).
//
// Every connection must first prove that it knows the secret. Unauthenticated peers are dropped after 2 s at
// the latest, and logged once per host. At most 128 connections are between accept and proof at a time; the
// oldest make room for new ones. Without a secret it listens on loopback addresses only. Clients may leave at
// any time. Its io_context has work until it is destroyed, which must not happen inside one of its requests.
class tcp_store_server {
 public:
  // Listens on every address of this host that `host` resolves to, at `port` (0: any free port).
  // Errors: errc::invalid_argument (no secret and not loopback, or not an address of this host), errc::system
  // (the port is in use), errc::timed_out (resolving took too long).
  static task<std::unique_ptr<tcp_store_server>> listen(boost::asio::any_io_executor executor,
                                                        std::string host, std::uint16_t port,
                                                        std::string secret, std::chrono::milliseconds timeout,
                                                        tls_identity tls = nullptr);
  // Serves on a socket that already listens, and takes ownership of it: `instead`, if there is one, and not a store of
  // its own, which local() is.
  // Errors: throws errc::invalid_argument if the descriptor is not a listening TCP socket, which it then
  // leaves alone; or if there is no secret and the address is not loopback.
  static std::unique_ptr<tcp_store_server> adopt(boost::asio::any_io_executor executor,
                                                 int listening_descriptor, std::string secret,
                                                 tls_identity tls = nullptr,
                                                 std::unique_ptr<store> instead = nullptr);
  tcp_store_server(const tcp_store_server&) = delete;
  tcp_store_server& operator=(const tcp_store_server&) = delete;
  ~tcp_store_server();

  // Returns the store itself for use in this process. The object may outlive the server.
  std::unique_ptr<memory_store> local() const;
  // The port that it listens at.
  std::uint16_t port() const noexcept;

  // Stops accepting and waits until every client has left. Clients still connected after the timeout are cut
  // off. Destroying a server without this loses answers that clients wait for.
  task<> drain(std::chrono::milliseconds timeout);

 private:
  struct impl;
  explicit tcp_store_server(std::shared_ptr<impl> i);
  std::shared_ptr<impl> impl_;
};

// The client of a tcp_store_server.
class tcp_store final : public store {
 public:
  // Connects to a server that may start later: tries all addresses of `host` until one answers or the timeout
  // expires. `rank` appears in messages. The timeout also becomes that of the store.
  // Errors: errc::join_failed (rank 0 did not come in time), errc::unauthorized, errc::protocol (something
  // else listens there), errc::invalid_argument (no secret and not loopback, or no such host).
  static task<std::unique_ptr<tcp_store>> connect(boost::asio::any_io_executor executor, std::string host,
                                                  std::uint16_t port, std::string secret, int rank,
                                                  std::chrono::milliseconds timeout,
                                                  tls_identity tls = nullptr);
  // Connects to a server that listened before this call.
  // Errors: as connect; errc::join_failed at once if refused.
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
  explicit tcp_store(std::shared_ptr<impl> i);
  task<store_answer> carry_out(store_request what) override;

  std::shared_ptr<impl> impl_;
};

// A store in an etcd cluster (version 3.4 or later, by its JSON gateway), which lives on when a process or a host
// dies. All users that name one job share the contents, on any host.
//
// etcd keeps the keys for 60 s after the last user has left or died. A user renews them while its loop turns; after
// 60 s without any user that does, they are gone, and so is the store. Whoever can reach etcd can read and change
// them, unless etcd asks for certificates.
// When a member dies or has no leader, the next one is asked, until the timeout. An operation is not carried out twice:
// each change is a transaction that also counts the changes of its user.
// Errors: also errc::timed_out (no member answers), errc::peer_failed (the keys have expired), errc::protocol (no etcd),
// errc::resources (etcd has no space), errc::unauthorized (etcd asks for a user). Values have most_bytes() at most, as
// etcd takes 1.5 MiB in a request.
// Cost: a change takes a request, and one more to read first unless it is set() or compare_exchange() from empty; again
// whenever another user has changed the key meanwhile. A wait has a connection of its own.
class etcd_store final : public store {
 public:
  static constexpr std::size_t largest_value = (3u << 19) - 4096;

  // Joins the contents of a job: "etcd://host:port[,host:port...]/JOB" (2379 if there is no port). With "etcds://" the
  // connections have TLS, and etcd and this process check each other's certificate by the files of `tls`. The timeout
  // also becomes that of the store.
  // Errors: as above; errc::invalid_argument (a malformed text, members of different clusters, TLS without files).
  static task<std::unique_ptr<etcd_store>> connect(boost::asio::any_io_executor executor, std::string url,
                                                   std::chrono::milliseconds timeout,
                                                   tls_identity tls = nullptr);
  // Leaves the store. No operation may be pending.
  ~etcd_store() override;

  // Sets the key, as set() does, for as long as this user lives: etcd removes it when the user has not renewed it for
  // `lifetime` (etcd has a shortest one, some 2 s), which it does while its loop turns. One that etcd has removed while
  // it was out of reach is set again. erase() removes it at once.
  task<> hold(std::string key, std::string value, std::chrono::seconds lifetime);

  std::string name() const override;
  std::size_t most_bytes() const noexcept override { return largest_value; }

 private:
  struct impl;
  explicit etcd_store(std::shared_ptr<impl> i);
  task<store_answer> carry_out(store_request what) override;

  std::shared_ptr<impl> impl_;
};

// The keys of another store that begin with `prefix` and a slash: separates the users of one store.
class prefix_store final : public store {
 public:
  // `base` outlives this. The timeout is that of `base`.
  prefix_store(store& base, std::string prefix);

  std::string name() const override;
  std::size_t most_bytes() const noexcept override { return base_.most_bytes(); }

 private:
  task<store_answer> carry_out(store_request what) override;

  store& base_;
  std::string prefix_;
};

}  // namespace tutti

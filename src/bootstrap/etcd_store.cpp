// SPDX-License-Identifier: Apache-2.0
// etcd_store. The keys of job J in etcd, all with one lease that every user renews:
//   tutti/J/lease        the lease's number
//   tutti/J/key/KEY      a key of the store; one that is held has a lease of its own
//   tutti/J/slot/U/N     slot N of user U: its version counts the changes that were made with it
//
// A change is a transaction: if the slot still has the version that this user knows, and the key the revision that was
// read, put both. When an answer is lost, the transaction is repeated. It fails if it was carried out before, and the
// slot's version, one more than known, says so. A late copy of it fails likewise. A slot serves one operation at a time;
// that of an operation that was given up is not used again.
#include "base/base64.hpp"
#include "base/hmac.hpp"
#include "base/text.hpp"
#include "base/throw_error.hpp"
#include "bootstrap/etcd_client.hpp"
#include "bootstrap/store_contents.hpp"
#include "core/running_task.hpp"
#include "core/wakeup.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <tutti/detail/stop_scope.hpp>
#include <tutti/store.hpp>
#include <utility>
#include <vector>

namespace tutti {

using namespace std::chrono_literals;
using nlohmann::json;

namespace {

constexpr std::chrono::seconds lifetime_of_keys = 60s;
// A watch without news ends so that the member has to show that it is alive.
constexpr std::chrono::seconds longest_watch = 15s;
// For a caller that has no time to wait for a key, but must wait for the answer that there is none.
constexpr std::chrono::seconds time_to_answer = 10s;

constexpr const char* range_path = "/v3/kv/range";
constexpr const char* transaction_path = "/v3/kv/txn";

[[noreturn]] void throw_strange(const std::string& title, const json::exception& e) {
  base::throw_error(errc::protocol, "{}: what answers there does not answer as etcd does: {}", title,
                    e.what());
}

// The gateway's numbers of 64 bits are texts; it leaves out those that are 0.
std::int64_t number_in(const json& object, const char* name) {
  return base::to_number<std::int64_t>(object.value(name, "0")).value_or(0);
}

// A key as it is in the cluster.
struct entry {
  std::optional<std::string> value;
  std::int64_t revision = 0;  // of its last change
  std::int64_t version = 0;
};

entry entry_in(const json& range) {
  entry found;
  if (!range.contains("kvs") || range["kvs"].empty()) return found;
  const json& first = range["kvs"][0];
  found.value = base::from_base64(first.value("value", ""));
  if (!found.value) throw error(errc::protocol, "etcd has sent a value that is no base64");
  found.revision = number_in(first, "mod_revision");
  found.version = number_in(first, "version");
  return found;
}

json of_key(const std::string& key) {
  json made = json::object();
  made["key"] = base::to_base64(key);
  return made;
}

json request_of(const char* kind, json what) {
  json made = json::object();
  made[kind] = std::move(what);
  return made;
}

json comparison(const std::string& key, const char* target, const char* field, std::int64_t with) {
  json made = of_key(key);
  made["target"] = target;
  made["result"] = "EQUAL";
  made[field] = std::to_string(with);
  return made;
}

// The first key after all that begin with `prefix`, which does not end in 0xff.
std::string end_of(std::string prefix) {
  while (static_cast<unsigned char>(prefix.back()) == 0xff) prefix.pop_back();
  prefix.back() = static_cast<char>(static_cast<unsigned char>(prefix.back()) + 1);
  return prefix;
}

}  // namespace

struct etcd_store::impl {
  struct slot {
    std::string key;
    std::int64_t version = 0;
  };

  impl(boost::asio::any_io_executor e, bootstrap::etcd_place place, tls_identity tls)
      : executor(e),
        prefix(fmt::format("tutti/{}/", place.job)),
        name(fmt::format("etcd_store '{}' at {}", place.job, addresses_of(place))),
        user(base::random_hex(8)),
        client(e, std::move(place.members), std::move(tls)) {}

  static std::string addresses_of(const bootstrap::etcd_place& place);
  std::string full(const std::string& key) const { return prefix + "key/" + key; }

  task<> join(core::time_point deadline);
  task<std::int64_t> grant(std::chrono::seconds time, core::time_point deadline, std::string title);
  task<std::int64_t> renew(std::int64_t which, core::time_point deadline);
  task<> keep();
  task<std::int64_t> put_held(std::string key, std::string value, std::chrono::seconds time,
                              core::time_point deadline, std::string title);
  task<> keep_held(std::string key, std::string value, std::chrono::seconds time, std::int64_t its_lease);
  task<entry> read(std::string full_key, std::int64_t* now, core::time_point deadline, std::string title);
  task<store_answer> count(store_request what, core::time_point deadline, std::string title);
  task<store_answer> wait(store_request what, core::time_point deadline, std::string title);
  task<store_answer> change(store_request what, core::time_point deadline, std::string title);
  json put(const std::string& full_key, const std::string& value) const {
    return put(full_key, value, lease);
  }
  static json put(const std::string& full_key, const std::string& value, std::int64_t with);
  json transaction(const store_request& what, const slot& mine, const entry& before,
                   const std::optional<std::string>& after) const;
  [[noreturn]] void throw_expired(const std::string& title);

  boost::asio::any_io_executor executor;
  const std::string prefix;
  const std::string name;
  const std::string user;
  bootstrap::etcd_client client;
  std::int64_t lease = 0;
  bool expired = false;
  std::vector<slot> free_slots;
  std::size_t slots = 0;
  // Last: the tasks use the others.
  core::background_tasks keeper;
  std::map<std::string, core::background_tasks> held;  // by key
};

std::string etcd_store::impl::addresses_of(const bootstrap::etcd_place& place) {
  std::string list;
  for (const bootstrap::etcd_member& member : place.members)
    list += fmt::format("{}{}:{}", list.empty() ? "" : ",", member.host, member.port);
  return list;
}

void etcd_store::impl::throw_expired(const std::string& title) {
  expired = true;
  base::throw_error(
      errc::peer_failed,
      "{}: its contents are gone: nobody has renewed them for {}, because the loops of all users were "
      "busy or could not reach etcd: start the job anew",
      title, base::duration_text(lifetime_of_keys));
}

// ---- the lease ----

// Returns the seconds that the lease has from now on; 0 if it has expired.
task<std::int64_t> etcd_store::impl::renew(std::int64_t which, core::time_point deadline) {
  json request = json::object();
  request["ID"] = std::to_string(which);
  const json answer =
      co_await client.call("/v3/lease/keepalive", std::move(request), deadline, "renewing " + name);
  co_return number_in(answer.value("result", json::object()), "TTL");
}

task<> etcd_store::impl::keep() {
  core::wakeup pause(executor);
  while (!expired) {
    co_await pause.wait(core::deadline_after(lifetime_of_keys / 4));
    try {
      const std::int64_t left = co_await renew(lease, core::deadline_after(lifetime_of_keys));
      expired = left == 0;
    } catch (const error&) {
      // Operations that need etcd report it. It keeps the lease while it has no leader.
    }
  }
}

task<std::int64_t> etcd_store::impl::grant(std::chrono::seconds time, core::time_point deadline,
                                           std::string title) {
  json wish = json::object();
  wish["TTL"] = std::to_string(time.count());
  const json granted = co_await client.call("/v3/lease/grant", std::move(wish), deadline, std::move(title));
  co_return number_in(granted, "ID");
}

// Sets the key with a new lease, and returns that.
task<std::int64_t> etcd_store::impl::put_held(std::string key, std::string value, std::chrono::seconds time,
                                              core::time_point deadline, std::string title) {
  const std::int64_t its_lease = co_await grant(time, deadline, title);
  co_await client.call("/v3/kv/put", put(full(key), value, its_lease), deadline, title);
  co_return its_lease;
}

task<> etcd_store::impl::keep_held(std::string key, std::string value, std::chrono::seconds time,
                                   std::int64_t its_lease) {
  core::wakeup pause(executor);
  for (;;) {
    co_await pause.wait(core::deadline_after(time / 4));
    try {
      const core::time_point deadline = core::deadline_after(time);
      const std::int64_t left = co_await renew(its_lease, deadline);
      if (left == 0) its_lease = co_await put_held(key, value, time, deadline, "setting anew " + key);
    } catch (const error&) {
      // Operations that need etcd report it.
    }
  }
}

// Takes the lease of the users that are here, or grants one for all.
task<> etcd_store::impl::join(core::time_point deadline) {
  const std::string title = "joining " + name;
  const std::string key = prefix + "lease";
  core::wakeup pause(executor);
  for (;;) {
    const entry found = co_await read(key, nullptr, deadline, title);
    if (found.value) {
      lease = base::to_number<std::int64_t>(*found.value).value_or(0);
      const std::int64_t left = co_await renew(lease, deadline);
      if (left > 0) break;
      // The key goes with its lease.
      co_await pause.wait(std::min(deadline, core::deadline_after(50ms)), title);
      continue;
    }
    lease = co_await grant(lifetime_of_keys, deadline, title);
    json request = json::object();
    request["compare"] = json::array({comparison(key, "CREATE", "create_revision", 0)});
    request["success"] = json::array({request_of("request_put", put(key, std::to_string(lease)))});
    const json done = co_await client.call(transaction_path, std::move(request), deadline, title);
    if (done.value("succeeded", false)) break;
    // Another user's lease, or this one's, if the answer was lost. Read which.
    const std::int64_t mine = lease;
    const entry now = co_await read(key, nullptr, deadline, title);
    if (now.value == std::to_string(mine)) break;
    json unused = json::object();
    unused["ID"] = std::to_string(mine);
    co_await client.call("/v3/lease/revoke", std::move(unused), deadline, title);
  }
  keeper.start(keep());
}

// ---- operations ----

task<entry> etcd_store::impl::read(std::string full_key, std::int64_t* now, core::time_point deadline,
                                   std::string title) {
  const json answer = co_await client.call(range_path, of_key(full_key), deadline, std::move(title));
  if (now != nullptr) *now = number_in(answer.at("header"), "revision");
  entry found = entry_in(answer);
  co_return std::move(found);
}

task<store_answer> etcd_store::impl::count(store_request what, core::time_point deadline, std::string title) {
  json request = of_key(full(what.key));
  request["range_end"] = base::to_base64(end_of(full(what.key)));
  request["count_only"] = true;
  const json counted = co_await client.call(range_path, std::move(request), deadline, std::move(title));
  store_answer answer;
  answer.amount = number_in(counted, "count");
  co_return std::move(answer);
}

task<store_answer> etcd_store::impl::wait(store_request what, core::time_point deadline, std::string title) {
  store_answer answer;
  for (;;) {
    std::int64_t now = 0;
    entry found = co_await read(full(what.key), &now, deadline, title);
    if (found.value) {
      answer.text = std::move(*found.value);
      co_return std::move(answer);
    }
    if (expired) throw_expired(title);
    if (what.timeout.count() == 0) bootstrap::throw_missing_key(what, name);
    std::optional<std::string> value = co_await client.watch(
        full(what.key), now + 1, std::min(deadline, core::deadline_after(longest_watch)), title);
    if (value) {
      answer.text = std::move(*value);
      co_return std::move(answer);
    }
    if (core::clock::now() >= deadline) bootstrap::throw_missing_key(what, name);
  }
}

json etcd_store::impl::put(const std::string& full_key, const std::string& value, std::int64_t with) {
  json made = of_key(full_key);
  made["value"] = base::to_base64(value);
  made["lease"] = std::to_string(with);
  return made;
}

json etcd_store::impl::transaction(const store_request& what, const slot& mine, const entry& before,
                                   const std::optional<std::string>& after) const {
  const std::string key = full(what.key);
  json made = json::object();
  made["compare"] = json::array({comparison(mine.key, "VERSION", "version", mine.version)});
  if (what.operation != store_operation::set)
    made["compare"].push_back(comparison(key, "MOD", "mod_revision", before.revision));
  made["success"] = json::array({request_of("request_put", put(mine.key, ""))});
  made["success"].push_back(after ? request_of("request_put", put(key, *after))
                                  : request_of("request_delete_range", of_key(key)));
  made["failure"] = json::array({request_of("request_range", of_key(mine.key))});
  made["failure"].push_back(request_of("request_range", of_key(key)));
  return made;
}

task<store_answer> etcd_store::impl::change(store_request what, core::time_point deadline,
                                            std::string title) {
  slot mine;
  if (free_slots.empty()) {
    mine.key = fmt::format("{}slot/{}/{}", prefix, user, slots++);
  } else {
    mine = std::move(free_slots.back());
    free_slots.pop_back();
  }
  // Most keys that are exchanged from empty do not exist.
  const bool guesses =
      what.operation == store_operation::compare_exchange && what.expected.empty() && !what.value.empty();
  entry before;
  if (what.operation != store_operation::set && !guesses)
    before = co_await read(full(what.key), nullptr, deadline, title);
  core::wakeup pause(executor);
  for (unsigned lost = 0;; ++lost) {
    // What it means is what it means for all stores.
    bootstrap::store_contents contents;
    if (before.value) {
      store_request known;
      known.key = what.key;
      known.value = *before.value;
      contents.carry_out(known, name);
    }
    store_answer answer = contents.carry_out(what, name);
    const std::optional<std::string> after = contents.find(what.key);
    if (what.key.size() + after.value_or("").size() > largest_value)
      base::throw_error(
          errc::resources,
          "{}: the value would have more than {} bytes, the most that etcd takes; spread it over "
          "several keys",
          title, largest_value);
    if (what.operation == store_operation::set || after != before.value) {
      const json done =
          co_await client.call(transaction_path, transaction(what, mine, before, after), deadline, title);
      if (!done.value("succeeded", false)) {
        const json& both = done.at("responses");
        const std::int64_t version = entry_in(both.at(0).at("response_range")).version;
        if (version == mine.version) {
          before = entry_in(both.at(1).at("response_range"));
          // Those that lost together do not come again together.
          const auto most = std::chrono::milliseconds(1u << std::min(lost, 6u));
          std::uint8_t random = 0;
          base::fill_random({&random, 1});
          co_await pause.wait(core::deadline_after(most * random / 255), title);
          continue;
        }
        if (version != mine.version + 1) throw_expired(title);  // otherwise this is a repeated one
      }
      ++mine.version;
      held.erase(what.key);  // it has the lease of the others now, or is gone
    }
    free_slots.push_back(std::move(mine));
    co_return std::move(answer);
  }
}

etcd_store::etcd_store(std::shared_ptr<impl> i) : impl_(std::move(i)) {}
etcd_store::~etcd_store() = default;

std::string etcd_store::name() const { return impl_->name; }

task<> etcd_store::hold(std::string key, std::string value, std::chrono::seconds lifetime) {
  const std::string title = fmt::format("hold('{}') on {}", key, name());
  if (key.empty() || lifetime < std::chrono::seconds(1))
    base::throw_error(errc::invalid_argument, "{}: give the key a name, and a second or more to live", title);
  const core::time_point deadline = core::deadline_after(timeout());
  try {
    impl_->held.erase(key);
    const std::int64_t its_lease = co_await impl_->put_held(key, value, lifetime, deadline, title);
    impl_->held[key].start(impl_->keep_held(key, value, lifetime, its_lease));
  } catch (const json::exception& e) {
    throw_strange(title, e);
  }
}

task<store_answer> etcd_store::carry_out(store_request what) {
  const std::string title = title_of(what);
  const core::time_point deadline =
      core::deadline_after(what.timeout.count() == 0 ? milliseconds(time_to_answer) : what.timeout);
  // Also if etcd does not answer: then the key goes when its lease ends.
  if (what.operation == store_operation::erase) impl_->held.erase(what.key);
  if (impl_->expired) impl_->throw_expired(title);
  try {
    if (what.waits()) co_return co_await impl_->wait(std::move(what), deadline, title);
    if (what.operation == store_operation::count)
      co_return co_await impl_->count(std::move(what), deadline, title);
    co_return co_await impl_->change(std::move(what), deadline, title);
  } catch (const bootstrap::lease_expired&) {
    impl_->throw_expired(title);
  } catch (const json::exception& e) {
    throw_strange(title, e);
  }
}

task<std::unique_ptr<etcd_store>> etcd_store::connect(boost::asio::any_io_executor executor, std::string url,
                                                      std::chrono::milliseconds timeout, tls_identity tls) {
  bootstrap::etcd_place place = bootstrap::parse_etcd_url(url);
  if (!place.tls) tls = nullptr;
  if (place.tls && !tls)
    base::throw_error(
        errc::invalid_argument,
        "'{}' asks for TLS, and there is no certificate: set TUTTI_TLS_CERTIFICATE, TUTTI_TLS_KEY and "
        "TUTTI_TLS_AUTHORITY to the files of a client of etcd, or write etcd:// for one without TLS",
        url);
  auto made = std::make_shared<impl>(executor, std::move(place), std::move(tls));
  try {
    co_await made->join(core::deadline_after(timeout));
  } catch (const json::exception& e) {
    throw_strange("joining " + made->name, e);
  }
  std::unique_ptr<etcd_store> joined(new etcd_store(std::move(made)));
  joined->set_timeout(timeout);
  co_return std::move(joined);
}

}  // namespace tutti

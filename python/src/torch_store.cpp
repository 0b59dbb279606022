// SPDX-License-Identifier: Apache-2.0
#include "torch_store.hpp"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <string>
#include <string_view>
#include <tutti/error.hpp>
#include <tutti/extend/support.hpp>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace tutti::python {
namespace {

using clock = std::chrono::steady_clock;
using time_point = clock::time_point;
using bytes = std::vector<std::uint8_t>;
using store_ref = c10::intrusive_ptr<c10d::Store>;

bytes bytes_of(const std::string& text) { return {text.begin(), text.end()}; }
std::string text_of(const bytes& b) { return {b.begin(), b.end()}; }

// c10d marks a timeout only by its text.
errc code_of(const std::string& text) {
  std::string lower = text.substr(0, 400);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower.find("timeout") != std::string::npos || lower.find("timed out") != std::string::npos
             ? errc::timed_out
             : errc::peer_failed;
}

// Our own connections to the TCPStores of groups, reused by the next group: connecting may take seconds for DNS.
// A forked child does not use its parent's.
struct connections {
  struct connection {
    c10::weak_intrusive_ptr<c10d::Store> to;
    store_ref own;
  };
  std::mutex mutex;
  std::vector<connection> idle;
  pid_t of = ::getpid();

  static connections& here() {
    static auto* const all = new connections;
    return *all;
  }
  std::vector<connection>& forget_old() {
    if (of != ::getpid()) idle.clear();
    of = ::getpid();
    std::erase_if(idle, [](const connection& c) { return c.to.expired(); });
    return idle;
  }
  // Of others it is not needed, and the destructor of a FileStore's clone may throw.
  store_ref take(const store_ref& base) {
    if (dynamic_cast<c10d::TCPStore*>(base.get()) == nullptr) return base;
    {
      const std::scoped_lock hold(mutex);
      auto& all = forget_old();
      const auto found = std::ranges::find_if(
          all, [&](const connection& c) { return c.to._unsafe_get_target() == base.get(); });
      if (found != all.end()) {
        store_ref own = std::move(found->own);
        all.erase(found);
        return own;
      }
    }
    try {
      return base->clone();
    } catch (const std::exception&) {
      return base;
    }
  }
  void give_back(const store_ref& base, store_ref own) {
    const std::scoped_lock hold(mutex);
    forget_old().push_back({c10::weak_intrusive_ptr<c10d::Store>(base), std::move(own)});
  }
};

// Processes of one agent that torchrun starts anew use the store of those before, which may have ended at any point.
// (The agents of several nodes count differently.)
std::string attempt() {
  const char* const count = std::getenv("TORCHELASTIC_RESTART_COUNT");
  const char* const nodes = std::getenv("GROUP_WORLD_SIZE");
  return count != nullptr && nodes != nullptr && std::string_view(nodes) == "1"
             ? "attempt_" + std::string(count)
             : "";
}

// Gives access to the prefixes of nested stores.
struct opened_prefix : c10d::PrefixStore {
  static const std::string& of(const c10d::PrefixStore& s) { return s.*(&opened_prefix::prefix_); }
};

}  // namespace

// Awaitable on the loop: carries out `what` on the store's thread, then resumes the coroutine on the loop.
struct torch_store::on_thread {
  torch_store& store;
  const store_request& what;
  store_answer& answer;
  std::exception_ptr failure = nullptr;
  std::coroutine_handle<> waiting = nullptr;

  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> h) {
    waiting = h;
    const std::scoped_lock hold(store.mutex_);
    store.calls_.push(this);
    store.changed_.notify_one();
  }
  void await_resume() const {
    if (!failure) return;
    try {
      std::rethrow_exception(failure);
    } catch (const error&) {
      throw;
    } catch (const std::exception& e) {
      const std::string text = e.what();
      const std::string first = text.substr(0, text.find('\n'));
      throw error(code_of(text), store.title_of(what) + ": " + first);
    }
  }
};

store_ref torch_store::without_prefixes(store_ref s) {
  while (auto* const outer = dynamic_cast<c10d::PrefixStore*>(s.get())) s = outer->getUnderlyingStore();
  return s;
}

torch_store::torch_store(const c10::intrusive_ptr<c10d::Store>& base, extend::loop_driver& d, bool one_job)
    : driver_(d) {
  // A blocking call on a connection delays all other users of it.
  target_ = base;
  std::string prefix;
  while (auto* const outer = dynamic_cast<c10d::PrefixStore*>(target_.get())) {
    prefix = opened_prefix::of(*outer) + (prefix.empty() ? "" : "/" + prefix);
    target_ = outer->getUnderlyingStore();
  }
  own_ = connections::here().take(target_);
  base_ = own_;
  if (const std::string suffix = one_job ? attempt() : ""; !suffix.empty())
    prefix += (prefix.empty() ? "" : "/") + suffix;
  if (!prefix.empty()) base_ = c10::make_intrusive<c10d::PrefixStore>(prefix, own_);
  thread_ = std::thread([this] { work(); });
}

torch_store::~torch_store() {
  {
    const std::scoped_lock hold(mutex_);
    ending_ = true;
    changed_.notify_one();
  }
  thread_.join();
  // A store with a failed call may still be inside it, so it is not reused.
  if (!failed_ && own_ != target_) connections::here().give_back(target_, std::move(own_));
}

void torch_store::work() {
  for (;;) {
    on_thread* next = nullptr;
    {
      std::unique_lock hold(mutex_);
      changed_.wait(hold, [this] { return ending_ || !calls_.empty(); });
      if (calls_.empty()) return;
      next = calls_.front();
    }
    try {
      if (given_up_) throw error(errc::cancelled, "the wait for other ranks was interrupted");
      call_torch(next->what, next->answer);
    } catch (...) {
      next->failure = std::current_exception();
      failed_ = true;
    }
    const extend::loop_driver::entry here(driver_);
    {
      const std::scoped_lock hold(mutex_);
      calls_.pop();
    }
    extend::resume_bounded(next->waiting);
    driver_.notify();
  }
}

bool torch_store::is_idle() {
  const std::scoped_lock hold(mutex_);
  return calls_.empty();
}

// In pieces, because a wait of PyTorch's store cannot be ended before its timeout.
void torch_store::wait_for(const std::string& key, milliseconds timeout) {
  for (const time_point deadline = extend::after(clock::now(), timeout);;) {
    const time_point now = clock::now(), until = std::min(deadline, now + std::chrono::seconds(1));
    try {
      return base_->wait({key}, std::chrono::ceil<milliseconds>(until - now));
    } catch (const std::exception&) {
      if (given_up_ || clock::now() < until || until == deadline) throw;
    }
  }
}

task<> torch_store::begin_meeting(std::string rank, milliseconds timeout) {
  const std::int64_t number = co_await add("meetings/" + rank, 1, timeout);
  base_ = c10::make_intrusive<c10d::PrefixStore>("meeting_" + std::to_string(number), base_);
}

task<store_answer> torch_store::carry_out(store_request what) {
  store_answer answer;
  on_thread call{*this, what, answer};
  co_await call;
  co_return std::move(answer);
}

void torch_store::call_torch(const store_request& what, store_answer& answer) {
  const std::string& key = what.key;
  switch (what.operation) {
    case store_operation::set:
      base_->set(key, bytes_of(what.value));
      break;
    case store_operation::get:
      wait_for(key, what.timeout);
      answer.text = text_of(base_->get(key));
      break;
    case store_operation::wait:
      wait_for(key, what.timeout);
      break;
    case store_operation::add:
      answer.amount = base_->add(key, what.amount);
      break;
    case store_operation::compare_exchange:
      answer.text = text_of(base_->compareSet(key, bytes_of(what.expected), bytes_of(what.value)));
      answer.flag = answer.text == what.value;
      break;
    case store_operation::erase:
      answer.flag = base_->deleteKey(key);
      break;
    case store_operation::count:
      throw error(errc::not_supported, "torch's store cannot count the keys that begin with a prefix");
    case store_operation::append:  // FileStore has none
      for (std::string before;;) {
        const std::string wanted = before + what.value;
        const std::string now = text_of(base_->compareSet(key, bytes_of(before), bytes_of(wanted)));
        answer.amount = static_cast<std::int64_t>(wanted.size());
        if (now == wanted) return;
        before = now;
      }
  }
}

}  // namespace tutti::python

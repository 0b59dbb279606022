// SPDX-License-Identifier: Apache-2.0
#include "transport/mpi/process.hpp"

#include "base/log.hpp"
#include "base/text.hpp"
#include "base/throw_error.hpp"
#include "core/wakeup.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <future>
#include <tutti/error.hpp>
#include <utility>

namespace tutti::transport::mpi {
namespace {

using clock = std::chrono::steady_clock;

// How long a rank that has failed lets the others hear of it and end as well.
constexpr auto farewell = std::chrono::seconds(5);
// Of MPI_Finalize, when all processes are about to call it.
constexpr auto finalize_limit = std::chrono::seconds(10);
constexpr auto longest_between_polls = std::chrono::milliseconds(1);
constexpr int longest_record_bytes = 1024 * 1024;

// Drops messages that come when there is no world to read them.
struct deaf_listener final : wire::listener {
  void arrived(int, int, std::span<const std::byte>) noexcept override {}
  void broke(int, int) noexcept override {}
};

// Lets the processes meet, and finalises MPI. No other thread calls MPI now.
void meet_and_finalize(calls& mpi, int rank, const std::vector<wire*>& wires,
                       std::chrono::milliseconds patience) noexcept {
  base::set_log_rank(rank);
  const auto deadline = core::deadline_after(patience);
  deaf_listener nobody;
  bool in_barrier = false;
  request_word barrier = 0;
  auto pause = std::chrono::microseconds(20);
  for (;;) {
    bool any = false;
    bool sending = false;
    for (wire* w : wires) {
      any |= w->progress(nobody);
      sending |= w->sending();
    }
    int code = 0;
    int met = 0;
    // This process enters the barrier only when all its messages are safe: others receive them until then.
    if (!in_barrier && !sending) {
      code = mpi.start_barrier(&barrier);
      in_barrier = true;
    }
    if (in_barrier && code == 0) code = mpi.test(&barrier, &met);
    if (met != 0) break;
    if (code != 0 || clock::now() > deadline) {
      base::log_error(
          code != 0
              ? fmt::format("MPI fails at the end of the program: {}; the job is aborted", mpi.explain(code))
              : fmt::format("this rank has finished, but not all others came to the end of the program "
                            "within {}: the job is aborted (TUTTI_TIMEOUT, in seconds, allows more time)",
                            base::duration_text(patience)));
      mpi.abort(1);
      return;
    }
    if (any) pause = std::chrono::microseconds(20);
    std::this_thread::sleep_for(pause);
    pause = std::min<std::chrono::microseconds>(2 * pause, longest_between_polls);
  }
  mpi.finalize();
}

}  // namespace

// The thread that initialises and finalises MPI, and the data that it shares. Both sides own it: the thread
// may be stuck in MPI longer than any caller waits.
struct process::keeper {
  explicit keeper(calls& mpi_) noexcept : mpi(mpi_) {}

  void run() {
    int usable = 0;
    const int code = mpi.init(&usable);
    std::string why;
    if (code != 0) {
      why = fmt::format("MPI_Init failed: {}", mpi.explain(code));
    } else if (usable == 0) {
      why = "this MPI does not support MPI_THREAD_SERIALIZED: use one that is built with threads";
    }
    initialised.set_value(why);
    if (code == 0) last.get_future().get()();
  }

  calls& mpi;
  std::promise<std::string> initialised;  // why MPI cannot be used; empty: it can
  std::promise<std::packaged_task<void()>> last;
};

// Memory that MPI writes to while a world is joined.
struct process::attempt {
  communicator_word on = 0;
  request_word request = 0;
  int length = 0;
  std::vector<int> lengths;
  std::string mine;
  std::string all;
};

process& process::of_this_one() {
  // Never destroyed: MPI may use its memory until the process ends.
  static process* const one = [] {
    auto* const made = new process(open_module());
    made->finishes_at_exit_ = true;
    return made;
  }();
  return *one;
}

process::process(calls& mpi) : mpi_(mpi) {}

process::~process() = default;

bool process::in_use() const noexcept {
  return std::ranges::any_of(wires_, [](const auto& w) { return w->open(); });
}

void process::check(int code, const char* doing) const {
  if (code != 0) base::throw_error(errc::join_failed, "MPI cannot {}: {}", doing, mpi_.explain(code));
}

task<> process::start(boost::asio::any_io_executor executor, std::chrono::milliseconds timeout) {
  if (started_) co_return;
  int initialized = 0;
  int finalized = 0;
  int usable = 0;
  check(mpi_.state(&initialized, &finalized, &usable), "say whether it is initialised");
  if (finalized != 0)
    throw error(errc::not_supported,
                "MPI has been finalised in this process, and cannot be initialised again: call MPI_Finalize "
                "after the last world has ended");
  if (keeper_)
    throw error(errc::join_failed,
                "MPI is being initialised in this process already, or that has failed; end the program");
  if (initialized == 0) {
    co_await initialise(executor, timeout);
  } else if (usable == 0) {
    throw error(
        errc::not_supported,
        "the program has initialised MPI so that this thread must not call it: use MPI_Init_thread with "
        "MPI_THREAD_SERIALIZED (or MPI_THREAD_FUNNELED, on the thread that runs tutti), or leave it to "
        "tutti");
  }
  check(mpi_.rank_and_size(&rank_, &size_), "say which process this is");
  started_ = true;
}

task<> process::initialise(boost::asio::any_io_executor executor, std::chrono::milliseconds timeout) {
  const auto deadline = core::deadline_after(timeout);
  keeper_ = std::make_shared<keeper>(mpi_);
  std::thread([shared = keeper_] { shared->run(); }).detach();
  std::future<std::string> initialised = keeper_->initialised.get_future();
  core::wakeup pause(executor);
  while (initialised.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    if (clock::now() > deadline)
      base::throw_error(errc::join_failed,
                        "MPI_Init has not returned within {}: did all processes that mpirun started call "
                        "tutti::init with backend \"mpi\"?",
                        base::duration_text(timeout));
    co_await pause.wait(clock::now() + longest_between_polls);
  }
  const std::string why = initialised.get();
  if (!why.empty()) throw error(errc::not_supported, why);
  to_finish_ = true;
  // Registered after the handlers of MPI and its libraries, so that it runs before them at the end of the
  // program.
  if (finishes_at_exit_) std::atexit([] { of_this_one().finish(); });
}

task<> process::ended(boost::asio::any_io_executor executor, attempt* of, clock::time_point deadline) {
  core::wakeup pause(executor);
  auto time = std::chrono::microseconds(20);
  for (;;) {
    int ended = 0;
    check(mpi_.test(&of->request, &ended), "let the processes meet");
    if (ended != 0) co_return;
    if (clock::now() > deadline)
      base::throw_error(
          errc::join_failed,
          "not all {} processes of the MPI job have joined in time: each of them must call tutti::init with "
          "backend \"mpi\", as often as the others; look at their output, or allow more time (TUTTI_TIMEOUT, "
          "in seconds)",
          size_);
    co_await pause.wait(clock::now() + time);
    time = std::min<std::chrono::microseconds>(2 * time, longest_between_polls);
  }
}

task<membership> process::join(boost::asio::any_io_executor executor, std::string record,
                               std::chrono::milliseconds timeout) {
  const auto deadline = core::deadline_after(timeout);
  if (in_use() && thread_ != std::this_thread::get_id())
    throw error(errc::not_supported,
                "another thread of this process is in a world with backend \"mpi\": join all of them from "
                "one runtime");
  thread_ = std::this_thread::get_id();
  timeout_ = timeout;
  failed_ = true;  // until it has joined
  attempts_.push_back(std::make_unique<attempt>());
  attempt* const a = attempts_.back().get();
  check(mpi_.start_duplicate(&a->on, &a->request), "duplicate its communicator");
  co_await ended(executor, a, deadline);
  check(mpi_.return_errors(a->on), "return errors");

  a->mine = std::move(record);
  a->length = static_cast<int>(a->mine.size());
  a->lengths.resize(static_cast<std::size_t>(size_));
  check(mpi_.start_all_gather(a->on, &a->length, static_cast<int>(sizeof a->length), a->lengths.data(),
                              &a->request),
        "gather the endpoint records");
  co_await ended(executor, a, deadline);
  const auto [shortest, longest] = std::ranges::minmax(a->lengths);
  if (shortest < 0 || longest > longest_record_bytes)
    throw error(errc::protocol,
                "the processes of the MPI job gave endpoint records of impossible lengths: build all with "
                "the same tutti");
  const auto room = static_cast<std::size_t>(longest);
  a->mine.resize(room);
  a->all.resize(room * static_cast<std::size_t>(size_));
  check(mpi_.start_all_gather(a->on, a->mine.data(), longest, a->all.data(), &a->request),
        "gather the endpoint records");
  co_await ended(executor, a, deadline);

  membership joined;
  for (std::size_t peer = 0; peer < a->lengths.size(); ++peer)
    joined.records.push_back(a->all.substr(peer * room, static_cast<std::size_t>(a->lengths[peer])));
  wires_.push_back(std::make_unique<wire>(mpi_, a->on, size_));
  joined.through = wires_.back().get();
  failed_ = false;
  co_return joined;
}

void process::finish() noexcept {
  if (!to_finish_) return;
  if (in_use()) {
    base::log_error("the program ends while it is in a world with backend \"mpi\": the job is aborted");
    mpi_.abort(1);
    return;
  }
  to_finish_ = false;
  failed_ |= std::ranges::any_of(wires_, [](const auto& w) { return !w->ended_in_order(); });
  const auto patience = failed_ ? std::chrono::milliseconds(farewell) : timeout_;
  std::vector<wire*> wires;
  for (const auto& w : wires_) wires.push_back(w.get());
  std::packaged_task<void()> last([&mpi = mpi_, rank = rank_, wires = std::move(wires), patience] {
    meet_and_finalize(mpi, rank, wires, patience);
  });
  const auto limit = core::deadline_after(patience + finalize_limit);
  const std::future<void> finished = last.get_future();
  keeper_->last.set_value(std::move(last));
  if (limit == clock::time_point::max()) {
    finished.wait();
  } else if (finished.wait_until(limit) != std::future_status::ready) {
    base::log_error("MPI_Finalize does not return: going on without");
  }
}

}  // namespace tutti::transport::mpi

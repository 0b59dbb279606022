// SPDX-License-Identifier: Apache-2.0
// The public runtime, joining, and the ways to start a program.
#include "base/env.hpp"
#include "base/files.hpp"
#include "base/log.hpp"
#include "bootstrap/environment.hpp"
#include "bootstrap/rendezvous.hpp"
#include "comm/runtime_state.hpp"
#include "core/running_task.hpp"
#include "core/wakeup.hpp"
#include "flight/recordings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <tutti/background.hpp>
#include <tutti/runtime.hpp>
#include <tutti/store.hpp>

namespace tutti {
namespace {

constexpr auto farewell = std::chrono::seconds(2);

// Makes this thread the loop thread of `rt`.
comm::runtime_state& claimed(runtime& rt) {
  core::loop& loop = rt.state().loop();
  if (loop.stands_still())
    throw error(
        errc::wrong_thread,
        "init: another runtime runs on this thread, and nobody runs this one's io_context: give both the "
        "same, as in tutti::runtime second(first.context())");
  if (!loop.claim_this_thread())
    throw error(errc::wrong_thread, fmt::format("init: {}", core::wrong_thread_text()));
  return rt.state();
}

// A program that a rank starts inherits the rank's place. Only where it would meet at the same address: with another
// MASTER_PORT it may be a rank of another job.
void refuse_inside_rank(core::loop& loop, const init_options& options, const bootstrap::job& job) {
  if (options.rank >= 0 || options.init_method != "env://" || job.master_host.empty()) return;
  if (loop.recorder_slot().node() != nullptr)
    return;  // a rank does not pass on the launcher's memory: this is the rank
  const std::int64_t around = flight::rank_around_this_process();
  if (around == 0) return;
  const std::string inherited =
      fmt::format("{0}MASTER_PORT={1}{0}", '\0', base::env_string("MASTER_PORT").value_or(""));
  if (base::contents_of(fmt::format("/proc/{}/environ", around)).find(inherited) == std::string::npos) return;
  throw error(
      errc::invalid_argument,
      fmt::format(
          "this program runs inside rank {} of a job (process {}) and has inherited its place: to run "
          "it alone, unset RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; as a job of its own, "
          "start it with tutti-run -n N",
          job.rank, around));
}

}  // namespace

runtime::runtime()
    : own_(std::make_shared<boost::asio::io_context>(1)), state_(new comm::runtime_state(*own_)) {}
runtime::runtime(boost::asio::io_context& context) : state_(new comm::runtime_state(context)) {}
runtime::~runtime() = default;
void runtime::end_of_state::operator()(comm::runtime_state* state) const noexcept {
  comm::runtime_state::end(std::unique_ptr<comm::runtime_state>(state));
}

boost::asio::io_context& runtime::context() noexcept { return state_->loop().context(); }
void runtime::run_to_end(task<> main) { state_->run_to_end(std::move(main)); }

task<communicator> init(runtime& rt, init_options options) {
  comm::runtime_state& state = claimed(rt);
  bootstrap::job job = bootstrap::resolve(options);
  if (job.over_mpi) co_return co_await state.join_mpi(job);
  refuse_inside_rank(state.loop(), options, job);
  const bool serves =
      job.rank == 0 && job.world_size > 1 && job.rendezvous_file.empty() && job.etcd.empty() && !job.elastic;
  if (!serves) co_return co_await state.join(job, nullptr, nullptr);
  const auto executor = rt.get_executor();
  const comm::runtime_state::lifetime alive(state);
  std::shared_ptr<tcp_store_server> server;
  if (job.store_fd >= 0) {
    server = tcp_store_server::adopt(executor, job.store_fd, job.secret, job.tls);
  } else {
    server = co_await tcp_store_server::listen(executor, job.master_host, job.master_port, job.secret,
                                               job.timeout, job.tls);
  }
  alive.check();
  std::exception_ptr failure;
  try {
    co_return co_await state.join(job, nullptr, server);
  } catch (...) {
    failure = std::current_exception();
  }
  // The others learn from the store why there is no world, also after this rank's scope was stopped.
  co_await core::outside_scope(server->drain(farewell));
  std::rethrow_exception(failure);
}

task<communicator> init(runtime& rt, init_options options, store& through) {
  comm::runtime_state& state = claimed(rt);
  co_return co_await state.join(std::move(options), through);
}

namespace detail {
namespace {

// `world` is set here. A parameter is destroyed with the frame, after main's exception has been seen. Were
// main's handles the only ones, a rank whose main throws would leave like one that has finished.
task<int> join_and_run(runtime& rt, init_options options, any_main* main, communicator world) {
  world = co_await init(rt, std::move(options));
  const int code = co_await (*main)(world);
  co_return code;
}

// One rank of run_local: joins through memory that all its threads share. An error is recorded by `record`
// before this rank cuts its connections, so that the errors this causes on others come later.
task<int> join_threads(runtime& rt, bootstrap::job job, const memory_store* shared, any_main* main,
                       const std::function<void()>* record, communicator world) {
  try {
    memory_store mine(rt.get_executor(), *shared);
    world = co_await rt.state().join(job, job.world_size > 1 ? &mine : nullptr, nullptr);
    const int code = co_await (*main)(world);
    co_return code;
  } catch (...) {
    (*record)();
    throw;
  }
}

// Tells the ranks that wait for a rank that will not come. Harmless after they have met.
void call_off(boost::asio::io_context& context, const memory_store& shared, int rank,
              const std::exception_ptr& failure) noexcept {
  const std::string why = fmt::format("rank {} has failed: {}", rank, core::what_of(failure).text);
  memory_store through(context.get_executor(), shared);
  core::running_task telling;  // a store in memory keeps nobody waiting
  telling.start(bootstrap::call_off(through, why));
}

// Whether another rank's error may have caused this one. Allocates nothing.
bool may_be_caused(const std::exception_ptr& failure) noexcept {
  try {
    std::rethrow_exception(failure);
  } catch (const error& e) {
    // A rank that fails while it joins counts as one that has left.
    constexpr errc causes[] = {errc::cancelled, errc::peer_failed, errc::peer_left,
                               errc::communicator_failed};
    return std::ranges::any_of(causes, [&e](errc code) { return e.code() == code; });
  } catch (...) {
    return false;
  }
}

}  // namespace

int run_rank(runtime& rt, init_options options, any_main& main) {
  return rt.run(join_and_run(rt, std::move(options), &main, {}));
}

int run_main(init_options options, any_main main) noexcept {
  comm::claim_process();
  try {
    runtime rt;
    return run_rank(rt, std::move(options), main);
  } catch (const std::exception& e) {
    base::log_error(e.what());
  } catch (...) {
    base::log_error("main ended with an exception of unknown type");
  }
  return 1;
}

void run_local_main(int ranks, init_options options, any_main main) {
  if (ranks < 1)
    throw error(errc::invalid_argument, fmt::format("run_local with {} ranks; give 1 or more", ranks));
  boost::asio::io_context unused;
  const memory_store shared(unused.get_executor());
  std::mutex recording;
  std::exception_ptr first;
  // Destructors tell other ranks before their own rank's error is here: the cause may come after its effects.
  const std::function<void()> record = [&] {
    const std::lock_guard lock(recording);
    if (!first || (may_be_caused(first) && !may_be_caused(std::current_exception())))
      first = std::current_exception();
  };
  const auto failed = [&](int rank) {
    record();
    call_off(unused, shared, rank, std::current_exception());
  };
  const auto run_rank = [&](int rank) {
    std::optional<runtime> rt;  // its connections are cut last: the errors this causes on others come later
    try {
      rt.emplace();
      rt->run(join_threads(*rt, bootstrap::local_job(rank, ranks, options), &shared, &main, &record, {}));
    } catch (...) {
      failed(rank);
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(ranks));
  try {
    for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(run_rank, rank);
  } catch (...) {
    failed(static_cast<int>(threads.size()));  // no thread, or no memory for one
  }
  for (std::thread& t : threads) t.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace detail

// ---- a rank on a thread of its own ----

struct detail::background_thread {
  std::future<int> result;  // of std::async: its destructor joins the thread
};

int background::join() {
  if (thread_ == nullptr || !thread_->result.valid())
    throw error(errc::invalid_argument, "background::join was called twice, or on one that was moved from");
  return thread_->result.get();
}

background start_background(init_options options, detail::any_main main) {
  background made;
  std::promise<void> ready;
  std::future<void> is_ready = ready.get_future();
  made.thread_ = std::make_shared<detail::background_thread>();
  made.thread_->result =
      std::async(std::launch::async, [context = made.context_, options = std::move(options),
                                      main = std::move(main), ready = std::move(ready)]() mutable {
        detail::any_main own = std::move(main);  // what it holds goes with the rank, not with join()
        std::optional<runtime> rt;
        try {
          rt.emplace(*context);
        } catch (...) {
          ready.set_exception(std::current_exception());
          throw;
        }
        ready.set_value();
        return detail::run_rank(*rt, std::move(options), own);
      });
  is_ready.get();
  return made;
}

}  // namespace tutti

// SPDX-License-Identifier: Apache-2.0
#include "comm/runtime_state.hpp"

#include "base/cores.hpp"
#include "base/env.hpp"
#include "base/log.hpp"
#include "base/rdma_devices.hpp"
#include "base/throw_error.hpp"
#include "bootstrap/address.hpp"
#include "bootstrap/elastic_store.hpp"
#include "bootstrap/peer_table.hpp"
#include "bootstrap/rendezvous.hpp"
#include "core/backend.hpp"
#include "core/scheduling.hpp"
#include "flight/recordings.hpp"
#include "transport/mpi/mpi_transport.hpp"
#include "transport/mpi/process.hpp"
#include "transport/shm/shm_transport.hpp"
#include "transport/tcp/tcp_transport.hpp"
#include "transport/transport.hpp"
#include "transport/ucx/ucx_transport.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <climits>
#include <cstdlib>
#include <exception>
#include <new>
#include <tutti/as_result.hpp>
#include <tutti/detail/token_face.hpp>
#include <tutti/explain.hpp>
#include <utility>

namespace tutti::comm {
namespace {

// How long a rank that has finished waits until peers that do not read have its last bytes.
constexpr auto linger = std::chrono::seconds(5);
// How long a rank that has failed tries to say why.
constexpr auto farewell = std::chrono::seconds(1);

using transports = std::vector<std::unique_ptr<transport::transport>>;

// The world is this host unless there is an address of rank 0, a store of the program, or a secret from
// outside.
transport::listen_wish wish_of(const bootstrap::job& job, bootstrap::endpoints master) {
  const bool at_file = !job.rendezvous_file.empty() || !job.etcd.empty();
  // Whoever may read the file or the store gets a secret from it.
  transport::listen_wish wish{!job.secret.empty() || at_file || job.at_store};
  if (!job.master_host.empty()) wish.towards = job.master_host;
  wish.addresses = std::move(master);
  if (job.at_store || (at_file && !job.private_rendezvous && !job.secret.empty())) wish.towards = "";
  return wish;
}

// Whether this rank is to use UCX: if it is named, or for other hosts where this one has RDMA devices.
bool wants_ucx(const bootstrap::job& job, const transport::listen_wish& wish) {
  const bool named = job.transports.contains("ucx");
  if (job.tls == nullptr)
    return named || (job.transports.empty() && wish.towards && base::any_active(base::rdma_ports()));
  if (named)
    base::throw_error(
        errc::invalid_argument,
        "TUTTI_TRANSPORTS or init_options::transports name ucx, and TUTTI_TLS or init_options::tls is set: "
        "UCX encrypts nothing. Leave out ucx, so that TCP with TLS is used, or do without TLS on a network "
        "that you trust");
  return false;
}

transports listening_transports(core::loop& loop, const bootstrap::job& job,
                                const bootstrap::endpoints& master, core::endpoint_record& mine) {
  transports made;
  made.push_back(transport::make_self_transport(loop));
  if (job.world_size == 1 && !job.elastic) return made;
  const transport::listen_wish wish = wish_of(job, master);
  const auto add = [&](const char* name, std::unique_ptr<transport::transport> t) {
    if (!job.transports.empty() && !job.transports.contains(name)) return;
    try {
      t->listen(mine, wish);
      made.push_back(std::move(t));
    } catch (const error& e) {
      // A transport selected by name must work, except UCX where TCP is named as well; otherwise the other one may
      // serve.
      const bool optional = name == std::string_view("ucx") && job.transports.contains("tcp");
      if (!job.transports.empty() && !optional) throw;
      base::log_warning(fmt::format("going on without {}: {}", name, e.what()));
    }
  };
  add("shm", std::make_unique<transport::shm::shm_transport>(loop));
  if (wants_ucx(job, wish)) {
    const auto ranks = static_cast<std::size_t>(std::max(job.world_size, 2));
    add("ucx", std::make_unique<transport::ucx::ucx_transport>(loop, job.transports.empty(), ranks));
  }
  add("tcp", std::make_unique<transport::tcp::tcp_transport>(loop));
  return made;
}

void check_reach(const core::world_info& info, const transports& ways) {
  const core::endpoint_record& mine = info.record(info.rank);
  const core::endpoint_record* last = nullptr;
  for (int rank = 0; rank < info.size; ++rank) {
    const core::endpoint_record& peer = info.record(rank);
    if (std::exchange(last, &peer) == &peer) continue;  // of the same kind
    const bool reached =
        std::any_of(ways.begin(), ways.end(), [&](const auto& way) { return way->reaches(mine, peer); });
    if (!reached)
      throw error(
          errc::join_failed,
          fmt::format(
              "rank {} (host {}) and rank {} (host {}) have no transport in common; set TUTTI_TRANSPORTS to "
              "the same on all ranks (shared memory reaches one host only, TCP and UCX need TUTTI_SECRET "
              "beyond loopback)",
              info.rank, mine.host, rank, peer.host.empty() ? "not known yet" : peer.host));
  }
}

// A list of pretended hosts has one for each rank. Where nodes come and go, their number is not known.
void check_hosts(int ranks) {
  const auto said = base::env_string("TUTTI_HOST_ID");
  const auto commas = said ? std::ranges::count(*said, ',') : 0;
  if (commas > 0 && ranks > 1 && commas + 1 != ranks)
    base::throw_error(
        errc::invalid_argument,
        "TUTTI_HOST_ID='{}' names {} hosts, but there are {} ranks: give one for each rank, or one", *said,
        commas + 1, ranks);
}

enum class rendezvous { alone, at_file, in_etcd, in_store, in_epochs, elastic };
rendezvous rendezvous_of(const bootstrap::job& job) {
  if (job.elastic) return rendezvous::elastic;
  if (job.world_size == 1) return rendezvous::alone;
  if (!job.rendezvous_file.empty()) return rendezvous::at_file;
  if (!job.etcd.empty()) return rendezvous::in_etcd;
  return job.comes_again ? rendezvous::in_epochs : rendezvous::in_store;
}

// ---- over MPI: processes, ranks and messages are MPI's ----

namespace mpi = transport::mpi;

void check_place(const bootstrap::job& job, const mpi::process& here) {
  const bool size_agrees = job.world_size == -1 || job.world_size == here.size();
  const bool rank_agrees = job.rank == -1 || job.rank == here.rank();
  if (size_agrees && rank_agrees) return;
  const std::string said = size_agrees ? fmt::format("this is rank {}", job.rank)
                                       : fmt::format("there are {} ranks", job.world_size);
  throw error(
      errc::join_failed,
      fmt::format(
          "{} says that this is process {} of {}, but the options or the environment say that {}: start the "
          "program with the mpirun of that MPI and nothing else (mpirun -n 4 ./program; not with tutti-run, "
          "nor with another MPI's mpirun, for which TUTTI_MPI_MODULE names another module)",
          here.implementation(), here.rank(), here.size(), said));
}

// In front of each process's endpoint record is a number. That of rank 0 is the world's id.
bootstrap::peer_table table_of(const mpi::membership& joined) {
  constexpr std::size_t number_bytes = sizeof(std::uint64_t);
  std::string records;
  for (const std::string& each : joined.records) records += each.substr(std::min(number_bytes, each.size()));
  const std::string number = joined.records.front().substr(0, number_bytes);
  std::vector<core::endpoint_record> all = bootstrap::decode_endpoint_records(records);
  if (all.size() != joined.records.size()) bootstrap::throw_malformed("a process's endpoint record");
  for (std::size_t rank = 0; rank < all.size(); ++rank) all[rank].rank = static_cast<int>(rank);
  return bootstrap::make_table(bootstrap::from_store<std::uint64_t>(number, "the id of a world"),
                               std::move(all), INT_MAX);
}

// A rank that still waits in the old world would wait for ever.
void leave_epoch(world& old) {
  old.fail(
      fmt::format("{} leaves this epoch to join the next (rejoin)", old.info().describe(old.info().rank)));
}

}  // namespace

// Memory for what the user decides the size of is refused with an error. Where there is none for anything else, an
// exception meets a function that has none, and the process ends with this line. The others see it die.
void claim_process() noexcept {
  static const std::terminate_handler before = std::set_terminate([] {
    try {
      if (const std::exception_ptr why = std::current_exception()) std::rethrow_exception(why);
      // g++ ends some functions without their exception: those that destroy something first.
      if (std::uncaught_exceptions() > 0)
        base::log_error(
            "an exception met a function that has none, most likely because memory has run out: this rank "
            "cannot go on, and its process ends; raise its limit (ulimit -v, memory.max of its cgroup), or "
            "start fewer ranks on this host");
    } catch (const std::bad_alloc&) {
      base::log_error(
          "out of memory: this rank cannot go on, and its process ends; raise its limit (ulimit -v, "
          "memory.max of its cgroup), or start fewer ranks on this host");
    } catch (...) {
    }
    before();
    std::abort();
  });
  static_cast<void>(before);
  explain_at_signal();
}

runtime_state::runtime_state(boost::asio::io_context& context, core::platform& from) : loop_(context, from) {
  // A world of one may not need its event loop before its end, which is too late for this error.
  static_cast<void>(core::wanted_backend());
}

void runtime_state::close() noexcept {
  self_ = nullptr;
  stop();
  tasks_.clear();
  worlds_.clear();
  boost::asio::io_context& context = loop_.context();
  const bool shared = loop_.sibling() != nullptr;
  detail::discard_handlers(shared ? nullptr : &context);
  if (shared) return;
  detail::end_tasks(context);
  // A coroutine that destroys the runtime may be one of its tasks: that one ends or waits first.
  if (detail::this_flow().depth == 0) return detail::discard_ended_tasks();
  // Discarded when the handler is destroyed: after its call, or without one with its io_context.
  using discarded_at_end = std::unique_ptr<boost::asio::io_context, void (*)(boost::asio::io_context*)>;
  boost::asio::post(
      context,
      [end = discarded_at_end(&context, [](boost::asio::io_context*) { detail::discard_ended_tasks(); })] {});
}

void runtime_state::end(std::unique_ptr<runtime_state> ending) noexcept {
  core::loop& loop = ending->loop_;
  if (!loop.in_turn()) return;
  ending->close();
  loop.end_after_turn(std::move(ending));
}

void runtime_state::lifetime::check() const {
  if (self_.expired()) throw error(errc::shut_down, "the runtime has ended while this rank was joining");
}

template <class F>
void runtime_state::later(F f) {
  boost::asio::post(loop_.context(), [self = std::weak_ptr(self_), f = std::move(f)] {
    if (const auto still = self.lock()) f(**still);
  });
}

task<communicator> runtime_state::join(init_options options, store& through) {
  bootstrap::job job = bootstrap::resolve_at_store(options);
  co_return co_await join(job, job.world_size > 1 ? &through : nullptr, nullptr);
}

task<communicator> runtime_state::join(bootstrap::job job, store* through,
                                       std::shared_ptr<tcp_store_server> server) {
  const lifetime alive(*this);
  const auto executor = loop_.executor();
  const rendezvous how = rendezvous_of(job);
  if (how != rendezvous::elastic) check_hosts(job.world_size);
  std::unique_ptr<store> of_rank_0;
  if (how == rendezvous::in_store && through == nullptr) {
    of_rank_0 = co_await bootstrap::store_of_rank_0(executor, job, core::deadline_after(job.timeout), server);
    alive.check();
    through = of_rank_0.get();
  }
  const core::time_point deadline = loop_.engine().platform().now() + job.timeout;
  base::set_log_rank(how == rendezvous::alone ? -1 : job.rank);
  if (loop_.recorder_slot().node() != nullptr) claim_process();  // a rank of tutti-run
  loop_.recorder().joining(job.rank, job.world_size);
  core::endpoint_record mine = bootstrap::local_endpoint_record(job.rank);
  bootstrap::endpoints master;
  if (!job.master_host.empty())
    master = co_await bootstrap::resolve_host(executor, job.master_host, job.master_port, deadline);
  alive.check();
  transports ways = listening_transports(loop_, job, master, mine);
  core::world_info info;
  if (how == rendezvous::elastic) {
    info = co_await bootstrap::meet_in_elastic_store(executor, job, mine, deadline);
  } else if (how == rendezvous::in_epochs) {
    epoch_server_ = server;
    info = co_await bootstrap::meet_in_epochs(executor, job, mine, job.restarts, server, deadline);
  } else if (how == rendezvous::at_file) {
    info = co_await bootstrap::meet_at_file(executor, job, mine, deadline);
  } else if (how == rendezvous::in_etcd) {
    info = co_await bootstrap::meet_in_etcd(executor, job, mine, deadline);
  } else if (how == rendezvous::in_store) {
    if (job.at_store) job.secret = co_await bootstrap::agree_on_secret(*through, job.secret, deadline);
    info = co_await bootstrap::meet(*through, job, mine, deadline);
    bootstrap::ask_later(info, executor, bootstrap::opener_of_rank_0(executor, job, server), "");
  } else {
    const std::uint64_t id = loop_.engine().platform().random();
    info = bootstrap::world_of(job, 1, bootstrap::make_table(id, {mine}, 1));
  }
  alive.check();
  check_reach(info, ways);
  if (how == rendezvous::elastic) {  // its rank is another than the launcher's number
    base::set_log_rank(info.rank);
    loop_.recorder().joining(info.rank, info.size);
  }
  const auto epoch = static_cast<int>(info.epoch);
  if (how == rendezvous::in_epochs) server = nullptr;  // serves further epochs
  communicator joined = enter(std::move(info), std::move(ways), std::move(server));
  world& w = *worlds_.back();
  if (how == rendezvous::elastic) {
    w.newcomers = std::make_unique<bootstrap::newcomer_watch>(job, epoch);
    job.newcomer = false;
    w.next_job = job;
  } else if (how == rendezvous::in_epochs) {
    job.restarts = epoch + 1;
    w.next_job = job;
  }
  co_return std::move(joined);
}

task<communicator> runtime_state::meet_again(world& old) {
  if (!old.newcomers) {
    const bootstrap::job next = *old.next_job;
    leave_epoch(old);
    return join(next, nullptr, epoch_server_);
  }
  return join_next_elastic(&old, *old.next_job);
}

task<communicator> runtime_state::join_next_elastic(world* old, bootstrap::job job) {
  // Ranks that have agreed to admit newcomers may still be in an operation that needs this one. If it fails,
  // it does not delay the others.
  const lifetime alive(*this);
  communicator present(detail::communicator_ref(&old->world_communicator()));
  const auto all_here = co_await as_result(present.barrier());
  alive.check();
  if (all_here.error) base::log_info(all_here.message);
  leave_epoch(*old);
  co_return co_await join(std::move(job), nullptr, nullptr);
}

task<communicator> runtime_state::join_mpi(bootstrap::job job) {
  mpi::process& here = mpi::process::of_this_one();
  const boost::asio::any_io_executor executor = loop_.executor();
  co_await here.start(executor, job.timeout);
  base::set_log_rank(here.size() > 1 ? here.rank() : -1);
  loop_.recorder().joining(here.rank(), here.size());
  check_place(job, here);
  check_hosts(here.size());
  const std::uint64_t number = loop_.engine().platform().random();
  const std::string record = base::to_bytes(number) +
                             bootstrap::encode_endpoint_record(bootstrap::local_endpoint_record(here.rank()));
  const mpi::membership joined = co_await here.join(executor, record, job.timeout);

  job.rank = here.rank();
  std::vector<std::unique_ptr<transport::transport>> ways;
  ways.push_back(transport::make_self_transport(loop_));
  ways.push_back(std::make_unique<mpi::mpi_transport>(loop_, *joined.through));
  co_return enter(bootstrap::world_of(job, here.size(), table_of(joined)), std::move(ways), nullptr);
}

communicator runtime_state::enter(core::world_info info, transports ways,
                                  std::shared_ptr<tcp_store_server> server) {
  const std::string& my_host = info.record(info.rank).host_id;
  std::vector<std::string> masks;
  for (const auto& [rank, peer] : info.peers.known())
    if (peer.host_id == my_host) masks.push_back(peer.cpus);
  const int local_ranks = static_cast<int>(masks.size());
  loop_.recorder().joined(info.id);
  loop_.set_spin(core::spin_policy::choose(local_ranks, base::usable_cores(masks)));
  core::set_compute_ranks(local_ranks);

  worlds_.reserve(worlds_.size() + 1);
  auto joined = std::make_unique<world>(loop_, std::move(info), std::move(ways), std::move(server),
                                        static_cast<world_owner*>(this));
  worlds_.push_back(std::move(joined));
  return communicator(detail::communicator_ref(&worlds_.back()->world_communicator()));
}

void runtime_state::idle(world& w) noexcept {
  if (failing_) return;
  ++leaving_;
  const core::time_point by = loop_.engine().platform().now() + linger;
  // Called from the loop, not from inside the code that dropped the last handle.
  later([left = &w, by](runtime_state& self) { self.tasks_.start(self.leave(left, by)); });
}

task<> runtime_state::leave(world* w, core::time_point by) {
  // Recorded before the first listener closes: a rank that finds it closed asks here (p2p::router::has_left).
  // A failed phase stays recorded as failed.
  if (worlds_.size() == 1 && !w->failing) loop_.recorder().ended(flight::phase::leaving, "");
  try {
    co_await w->leave(by);
    if (epoch_server_ && worlds_.size() == 1) co_await epoch_server_->drain(linger);
  } catch (const std::exception& e) {
    base::log_warning(fmt::format("leaving the world: {}", e.what()));
  }
  const bool failed = w->failing;
  std::erase_if(worlds_, [w](const std::unique_ptr<world>& one) { return one.get() == w; });
  if (worlds_.empty() && !failed) loop_.recorder().ended(flight::phase::left, "");
  --leaving_;
  check_end();
}

// Called when main has ended with an exception: tells the peers why before the connections are cut.
// Communicators whose last handle the exception destroyed are still open.
void runtime_state::tell() noexcept {
  const core::thrown why = core::what_of(main_failure_);
  try {
    loop_.recorder().failed(why.text, static_cast<int>(why.code));
  } catch (const std::exception&) {
    // There is none: that is why main has failed.
  }
  for (const auto& w : worlds_) {
    w->failing = !w->communicators().empty();  // the others are already being left
    if (!w->failing) continue;
    w->fail(fmt::format("{} failed: {} (an exception left its program; its own output says more)",
                        w->info().describe(w->info().rank), why.text));
  }
}

// Peers that do not read in time see the connections hang up.
task<> runtime_state::flush_and_cut() {
  const core::time_point deadline = loop_.engine().platform().now() + farewell;
  const auto tells = [](const std::unique_ptr<world>& w) { return w->failing && w->has_queue(); };
  while (std::ranges::any_of(worlds_, tells) && loop_.engine().platform().now() < deadline) {
    co_await core::pause(loop_, std::chrono::milliseconds(1));
  }
  for (const auto& w : worlds_)
    if (w->failing) w->cut();
  // Worlds with handles left end with the runtime.
  std::erase_if(worlds_,
                [](const std::unique_ptr<world>& w) { return w->failing && w->communicators().empty(); });
  failing_ = false;
  --leaving_;
  check_end();
}

void runtime_state::check_end() noexcept {
  if (!running_ || !main_ended_ || leaving_ > 0) return;
  loop_.leave_turn();
  loop_.context().stop();
}

void runtime_state::start(task<> main) {
  running_ = true;
  main_ended_ = false;
  main_failure_ = nullptr;
  loop_.bind_to_this_thread();
  const auto ended = [](void* owner, std::exception_ptr failure) noexcept {
    auto& self = *static_cast<runtime_state*>(owner);
    self.main_failure_ = failure;
    if (failure) {
      self.failing_ = true;
      ++self.leaving_;
      self.tell();
      self.later([](runtime_state& s) { s.tasks_.start(s.flush_and_cut()); });
    }
    // main's parameters, handles among them, go with its frame, which must not happen from inside it.
    self.later([run = self.runs_](runtime_state& s) {
      if (s.runs_ != run) return;
      s.main_.stop();
      s.main_ended_ = true;
      s.check_end();
    });
  };
  first_step_.emplace(std::move(main));
  later([run = ++runs_, ended](runtime_state& s) {
    if (s.runs_ == run && s.first_step_)
      s.main_.start(*std::exchange(s.first_step_, std::nullopt), ended, &s);
  });
}

void runtime_state::run_to_end(task<> main) {
  boost::asio::io_context& context = loop_.context();
  if (running_ || context.get_executor().running_in_this_thread())
    throw error(errc::invalid_argument,
                "runtime::run was called from inside its own loop; await the task there instead");
  {
    const core::short_time_slices here;
    const detail::own_flow resumes_here;
    const auto work = boost::asio::make_work_guard(context);
    try {
      start(std::move(main));
      if (context.stopped()) context.restart();
      context.run();
    } catch (...) {
      // A handler of the user threw through run(): main ends here.
      stop();
      running_ = false;
      throw;
    }
  }
  context.restart();
  running_ = false;
  if (!main_ended_) {
    stop();
    throw error(errc::shut_down,
                "the io_context was stopped before the task given to runtime::run had ended");
  }
  if (main_failure_) std::rethrow_exception(std::exchange(main_failure_, nullptr));
}

}  // namespace tutti::comm

// SPDX-License-Identifier: Apache-2.0
// A rank of the job that sends what it likes. Ranks 0 and 1 are real, with operations of all kinds in flight. An
// input says which operations begin, what the hostile rank sends by which of its connections, and in what order.
// Two communicators that the hostile rank is a member of, one that it is not, and a window of all three take part.
// Afterwards the real ranks still understand each other, and nothing of the operations is left.
//
// A world serves many inputs: each has a hostile rank of its own, because that one's link may end. Frames between
// the real ranks go through memory. Those of hostile ranks come over socket pairs (TCP with one and with three
// connections, TLS) or by shared memory. Time stands still unless an input moves it.
#include "base/crc32c.hpp"
#include "base/fields.hpp"
#include "base/log.hpp"
#include "comm/communicator_state.hpp"
#include "comm/world.hpp"
#include "core/loop.hpp"
#include "core/running_task.hpp"
#include "core/tls.hpp"
#include "fuzz/targets.hpp"
#include "rma/window_state.hpp"
#include "support/agreement_messages.hpp"
#include "transport/shm/shm_transport.hpp"
#include "transport/tcp/tcp_transport.hpp"

#include <fcntl.h>
#include <sanitizer/asan_interface.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tutti/tutti.hpp>
#include <utility>
#include <variant>
#include <vector>

namespace tutti::fuzz {
namespace {

namespace agreed = test::agreed;
namespace tcp = transport::tcp;
namespace shm = transport::shm;
using transport::frame;
using transport::frame_kind;

constexpr int real_ranks = 2;
constexpr int hostile_ranks = 24;
constexpr int world_size = real_ranks + hostile_ranks;
constexpr std::size_t window_bytes = 20'000, signals = 4;  // of a real rank

// How the hostile ranks of a world are reached.
enum class way : std::uint8_t { tcp, tcp_of_three, shared_memory, tls };

// A stepped loop has epoll, and does what it does again for the same input. TUTTI_LOOP=io_uring takes the other.
bool is_stepped() {
  static const bool stepped = core::wanted_backend() != "io_uring";
  return stepped;
}

class input_time final : public core::platform {
 public:
  core::time_point now() noexcept override { return (is_stepped() ? began_ : core::clock::now()) + moved_; }
  std::uint64_t random() noexcept override { return ++random_; }
  void advance(core::duration by) noexcept { moved_ += by; }

 private:
  const core::time_point began_ = core::clock::now();
  core::duration moved_{};
  std::uint64_t random_ = real().random();  // listeners take their names from it
};

// ---- the way between the real ranks ----

class memory_transport;

class memory_link final : public transport::peer_link {
 public:
  memory_link(memory_transport& of, int peer);
  ~memory_link() override { cut(); }
  bool submit(transport::outgoing& f) noexcept override;
  bool sends_eagerly(const void*, std::size_t bytes) const noexcept override { return bytes <= 1000; }
  bool has_queue() const noexcept override { return false; }
  void come(const frame& head, const std::byte* payload);

 private:
  struct packet {
    frame head;
    std::vector<std::byte> payload;
  };
  bool move() noexcept override {
    const bool any = !come_.empty();
    while (!come_.empty() && at_ == phase::connected) {
      const packet p = std::move(come_.front());
      come_.pop_front();
      through_.up().deliver(peer_, p.head, p.payload.data());
    }
    return any;
  }
  void disconnect(bool) noexcept override {}

  memory_transport& of_;
  std::deque<packet> come_;
};

class memory_transport final : public transport::transport {
 public:
  explicit memory_transport(core::loop& loop) noexcept : transport(loop) {}
  ~memory_transport() override { end(); }

  const char* name() const noexcept override { return "memory"; }
  void open(const core::world_info& info, ::tutti::transport::inbound& up) override { start(info, up); }
  bool reaches(const core::endpoint_record& mine, const core::endpoint_record& peer) const noexcept override {
    return mine.rank != peer.rank && mine.rank < real_ranks && peer.rank < real_ranks;
  }
  memory_transport* other = nullptr;

 private:
  std::unique_ptr<::tutti::transport::peer_link> make_link(int peer) override {
    return std::make_unique<memory_link>(*this, peer);
  }
};

memory_link::memory_link(memory_transport& of, int peer) : peer_link(of, peer, phase::connected), of_(of) {}

bool memory_link::submit(transport::outgoing& f) noexcept {
  if (f.head.kind == frame_kind::rts) f.head.other_transfer_id = 0;
  auto& there = static_cast<memory_link&>(of_.other->link_to(of_.info().rank));
  there.come(f.head, f.payload);
  return true;
}

void memory_link::come(const frame& head, const std::byte* payload) {
  packet p{head, {}};
  if (const std::size_t bytes = payload_bytes(head); bytes > 0) p.payload.assign(payload, payload + bytes);
  come_.push_back(std::move(p));
  through_.activate(*this);
}

// ---- a real rank ----

struct real_rank {
  explicit real_rank(core::platform& time) : loop(context, time) {
    if (is_stepped()) loop.set_stepped();
    loop.set_spin({std::chrono::nanoseconds(0), false});
  }
  bool step() {
    bool any = is_stepped() && loop.step();
    context.restart();
    any |= context.poll() > 0;
    // All events are looked for before a loop sleeps only.
    if (any || !is_stepped()) return any;
    if (!loop.park()) return true;
    loop.unpark();
    return false;
  }
  boost::asio::io_context context{1};
  core::loop loop;
  memory_transport* memory = nullptr;
  tcp::tcp_transport* over_tcp = nullptr;
  shm::shm_transport* over_shm = nullptr;
  std::unique_ptr<comm::world> world;
};

// One TCP connection of the hostile rank, or its channel, to a real rank.
struct connection {
  int to = 0;
  base::unique_fd fd;
  std::unique_ptr<core::tls_session> tls;
  std::uint8_t number = 0;
  std::vector<std::byte> unsent;  // payload that is held back
  std::vector<std::uint8_t> received;
  // Over shared memory.
  std::optional<shm::peer_segment> segment;
  shm::channel_writer writer;
  std::uint64_t lines = 0;
};

class worlds {
 public:
  explicit worlds(way over) : over_(over) {
    core::world_info info;
    info.id = 77;
    info.size = world_size;
    info.timeout = std::chrono::seconds(30);
    info.tcp_connections = over == way::tcp_of_three ? 3 : 1;
    for (int r = 0; r < world_size; ++r) {
      core::endpoint_record record;
      record.rank = r;
      record.host = "h";
      record.host_id = "kernel:network";
      record.pid = r;
      record.tcp_endpoint = "127.0.0.1:1";
      if (over == way::shared_memory) record.shm_address = "none";
      info.peers.learn(record);
    }
    info.hosts = core::host_map({{0, 0, 1, world_size}}, world_size);
    for (int r = 0; r < real_ranks; ++r) {
      ranks_[r] = std::make_unique<real_rank>(time_);
      real_rank& mine = *ranks_[r];
      auto memory = std::make_unique<memory_transport>(mine.loop);
      mine.memory = memory.get();
      std::vector<std::unique_ptr<transport::transport>> all;
      all.push_back(transport::make_self_transport(mine.loop));
      all.push_back(std::move(memory));
      if (over == way::shared_memory) {
        auto t = std::make_unique<shm::shm_transport>(mine.loop);
        mine.over_shm = t.get();
        t->listen(info.peers[static_cast<std::size_t>(r)], {false});
        all.push_back(std::move(t));
      } else {
        auto t = std::make_unique<tcp::tcp_transport>(mine.loop);
        mine.over_tcp = t.get();
        t->listen(info.peers[static_cast<std::size_t>(r)], {false});
        all.push_back(std::move(t));
      }
      info.rank = r;
      mine.world = std::make_unique<comm::world>(mine.loop, info, std::move(all), nullptr, nullptr);
    }
    ranks_[0]->memory->other = ranks_[1]->memory;
    ranks_[1]->memory->other = ranks_[0]->memory;
    world_handles_ =
        handles_of(ranks_[0]->world->world_communicator(), ranks_[1]->world->world_communicator());
    settle();  // the loops learn their thread
  }
  ~worlds() {
    world_handles_ = {};
    for (auto& r : ranks_) r->world.reset();
  }

  real_rank& operator[](int r) { return *ranks_[static_cast<std::size_t>(r)]; }
  way over() const noexcept { return over_; }
  input_time& time() noexcept { return time_; }
  bool used_up() const noexcept { return next_ == world_size; }
  int take_hostile_rank() noexcept { return next_++; }
  const communicator& world_of(int r) const { return world_handles_[static_cast<std::size_t>(r)]; }

  bool step() {
    const bool any = (*this)[0].step();
    return (*this)[1].step() || any;
  }
  // Until nothing happens, within a bound.
  void settle() {
    for (int idle = 0, rounds = 0; idle < 2 && rounds < 400; ++rounds) idle = step() ? 0 : idle + 1;
  }
  using pair = std::array<communicator, real_ranks>;
  // A communicator of these ranks, without a collective.
  pair make(std::uint32_t id, std::uint32_t parent, const std::string& name,
            const std::vector<int>& members) {
    return handles_of((*this)[0].world->make_communicator({id, parent}, name, members),
                      (*this)[1].world->make_communicator({id, parent}, name, members));
  }
  // A real rank's part of a window of these ranks.
  window<int> open(int r, std::uint32_t id, const std::vector<int>& members, std::span<int> memory) {
    const detail::communicator_ref of(&(*this)[r].world->make_communicator({id, id}, "field", members));
    detail::call what(detail::operation_kind::window, of, call_site::current());
    what.out = detail::view_of(memory);
    what.in.count = signals;
    return {of, what};
  }
  std::uint32_t next_id() { return (*this)[0].world->next_communicator_id(); }

 private:
  static pair handles_of(comm::communicator_state& a, comm::communicator_state& b) {
    return {communicator(detail::communicator_ref(&a)), communicator(detail::communicator_ref(&b))};
  }
  const way over_;
  input_time time_;
  std::array<std::unique_ptr<real_rank>, real_ranks> ranks_;
  pair world_handles_;
  int next_ = real_ranks;
};

// ---- operations of the real ranks ----

// A buffer of an operation. Those of all inputs are the same memory, because the kernel would have to clear 300 KB for
// each. Whoever writes into one that is free, or beyond its end, meets AddressSanitizer.
class buffer {
 public:
  static constexpr std::size_t most_bytes = 300'000;
  explicit buffer(std::size_t bytes) : memory_(take()), bytes_(bytes) {
    TUTTI_INVARIANT(bytes <= most_bytes);
    ASAN_UNPOISON_MEMORY_REGION(memory_, bytes);
  }
  buffer(const buffer&) = delete;
  buffer& operator=(const buffer&) = delete;
  ~buffer() {
    ASAN_POISON_MEMORY_REGION(memory_, bytes_);
    free().push_back(memory_);
  }
  std::span<std::byte> bytes() const noexcept { return {memory_, bytes_}; }

 private:
  static std::vector<std::byte*>& free() {
    static std::vector<std::byte*> all;
    return all;
  }
  static std::byte* take() {
    if (free().empty()) {
      constexpr std::size_t beyond = 4096;
      auto* const made = new std::byte[most_bytes + beyond]();
      ASAN_POISON_MEMORY_REGION(made, most_bytes + beyond);
      return made;
    }
    std::byte* const memory = free().back();
    free().pop_back();
    return memory;
  }
  std::byte* const memory_;
  const std::size_t bytes_;
};

// Whatever they end with.
template <class Operation>
task<> attempt(Operation op) {
  co_await as_result(std::move(op));
}

task<> receive(communicator c, int source, int tag, std::size_t bytes) {
  const buffer room(bytes);
  const auto got = co_await as_result(c.recv(room.bytes(), source, tag));
  if (!got.error) TUTTI_INVARIANT(got.value.source >= 0 && got.value.source < c.size());
}
task<> send(communicator c, int to, int tag, std::size_t bytes) {
  const buffer data(bytes);
  co_await as_result(c.send(data.bytes(), to, tag));
}
task<> add_up(communicator c, std::size_t count) {
  std::vector<int> values(count, 1);
  co_await as_result(c.all_reduce(values, sum));
}
task<> make_another(communicator c, int how) {
  result<communicator> made;
  const std::vector<int> both{0, 1};
  if (how == 0) {
    made = co_await as_result(c.duplicate());
  } else if (how == 1) {
    made = co_await as_result(c.split(c.rank() % 2, 0));
  } else if (how == 2) {
    made = co_await as_result(c.group(both));
  } else {
    made = co_await as_result(c.shrink());
  }
  if (!made.error && made.value) co_await as_result(made.value.barrier());
}
task<> look(communicator c) {
  const auto found = co_await as_result(c.probe());
  if (!found.error) TUTTI_INVARIANT(found.value.source >= 0 && found.value.source < c.size());
}

// One access to a window, which lives as long as this.
task<> reach(const window<int>* w, int how, int to, std::size_t count, std::size_t offset, int signal) {
  const buffer memory(count * sizeof(int));
  const std::span<int> data(reinterpret_cast<int*>(memory.bytes().data()), count);
  if (how == 0) co_await as_result(w->put(data, to, offset));
  if (how == 1) co_await as_result(w->put_signal(data, to, offset, signal));
  if (how == 2) co_await as_result(w->get(data, to, offset));
  if (how == 3) co_await as_result(w->accumulate(data, to, offset, sum));
  if (how == 4) co_await as_result(w->flush(to));
  if (how == 5) co_await as_result(w->fetch_add(to, signal, 1));
  if (how == 6) co_await as_result(w->compare_exchange(to, signal, 0, 1));
  if (how == 7) co_await as_result(w->wait_signal(signal, [](std::uint64_t now) { return now % 4 == 3; }));
}

// What must succeed, whatever the hostile rank did.
task<> must_send(communicator c, bool* done) {
  const std::vector<int> data(1000, 41);
  co_await c.send(data, 1, 5);
  int all = 1;
  co_await c.all_reduce(all, sum);
  TUTTI_INVARIANT(all == 2);
  *done = true;
}
task<> must_receive(communicator c, bool* done) {
  std::vector<int> data(1000);
  co_await c.recv(data, any_source, any_tag);
  TUTTI_INVARIANT(std::ranges::count(data, 41) == 1000);
  int all = 1;
  co_await c.all_reduce(all, sum);
  TUTTI_INVARIANT(all == 2);
  *done = true;
}
void broke_off(void*, std::exception_ptr failure) noexcept {
  if (failure) fail(core::what_of(failure).text.c_str(), __LINE__);
}

// ---- the hostile rank ----

class attack {
 public:
  static bool has_tls() { return identity() != nullptr; }

  // `leads`: it is rank 0 of the communicator with both real ranks: it gives out numbers, and gathers.
  attack(worlds& all, reader& in, bool leads)
      : all_(all), in_(in), me_(all.take_hostile_rank()), leads_(leads) {
    trio_id_ = all.next_id();
    duo_id_ = all.next_id();
    field_id_ = all.next_id();
    next_id_ = field_id_ + world_size;
    const std::vector<int> members = leads ? std::vector<int>{me_, 0, 1} : std::vector<int>{0, 1, me_};
    trio_ = all.make(trio_id_, 0, "trio", members);
    duo_ = all.make(duo_id_, duo_id_, "duo", {0, 1});
    for (std::size_t r = 0; r < real_ranks; ++r) {
      const std::span<std::byte> memory = memory_[r].bytes();
      field_[r] = all.open(static_cast<int>(r), field_id_, members,
                           {reinterpret_cast<int*>(memory.data()), memory.size() / sizeof(int)});
    }
    if (all.over() == way::shared_memory) own_.emplace(77, me_, world_size, world_size);
    for (int to = 0; to < real_ranks; ++to) connect(to);
  }

  void run() {
    for (int i = 0; i < 200 && !in_.empty(); ++i) {
      const auto what = in_.value<std::uint8_t>();
      if (what < 60) {
        begin(what);
      } else if (what < 200) {
        send_frame();
      } else if (what < 236) {
        other(what);
      } else if (what < 244) {
        begin_access(what % 8);
      } else {
        send_request();
      }
    }
    all_.settle();
    connections_.clear();
    own_.reset();
    all_.settle();
    tasks_.clear();
    trio_ = {};
    field_ = {};
    all_.settle();
    finish();
  }

 private:
  void connect(int to) {
    if (all_.over() == way::shared_memory) return share(to);
    auto& link = static_cast<tcp::tcp_link&>(all_[to].over_tcp->link_to(me_));
    if (link.at() != tcp::tcp_link::phase::idle && link.at() != tcp::tcp_link::phase::connecting)
      return further(link, to);
    auto [near, c] = pair_of(to);
    std::unique_ptr<core::tls_session> session;
    if (all_.over() == way::tls) session = shake_hands(near.get(), *c);
    if (all_.over() == way::tls && !session) return;
    link.attach(std::move(near), std::move(session));
    connections_.push_back(std::move(c));
  }
  void further(tcp::tcp_link& link, int to) {
    if (link.at() != tcp::tcp_link::phase::connected || link.further_wanted() == 0) return;
    auto [near, c] = pair_of(to);
    auto* const made = link.expect_further(near.get());
    if (made == nullptr) return;
    std::unique_ptr<core::tls_session> session;
    if (all_.over() == way::tls && !(session = shake_hands(near.get(), *c))) return link.drop_further(*made);
    link.attach_further(*made, std::move(near), std::move(session), false);
    connections_.push_back(std::move(c));
  }
  std::pair<base::unique_fd, std::unique_ptr<connection>> pair_of(int to) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
    auto c = std::make_unique<connection>();
    c->to = to;
    c->fd.reset(ends[1]);
    return {base::unique_fd(ends[0]), std::move(c)};
  }
  static const tls_identity& identity() {
#ifdef TUTTI_HAVE_TLS
    static const tls_identity made = make_tls_identity();
#else
    static const tls_identity made;
#endif
    return made;
  }
  static std::unique_ptr<core::tls_session> shake_hands(int near, connection& c) {
    using side = core::tls_session::side;
    using step = core::tls_session::step;
    auto mine = identity()->open(near, side::accepting);
    c.tls = identity()->open(c.fd.get(), side::connecting);
    step a = step::wait_to_read, b = a;
    for (int i = 0; i < 50 && (a != step::done || b != step::done); ++i) {
      if (b != step::done) b = c.tls->shake_hands();
      if (a != step::done) a = mine->shake_hands();
    }
    if (a != step::done || b != step::done) mine.reset();
    return mine;
  }
  void share(int to) {
    auto& link = static_cast<shm::shm_link&>(all_[to].over_shm->link_to(me_));
    if (link.at() != shm::shm_link::phase::idle && link.at() != shm::shm_link::phase::connecting) return;
    auto [near, c] = pair_of(to);
    link.attach(std::move(near), core::make_eventfd(), base::unique_fd(::dup(own_->fd())));
    c->segment.emplace(base::unique_fd(::dup(all_[to].over_shm->own().fd())), 77, to, me_);
    c->writer = shm::channel_writer(c->segment->mine());
    connections_.push_back(std::move(c));
  }

  void begin(std::uint8_t what) {
    const auto arguments = in_.value<std::uint8_t>();
    const int r = arguments & 1;
    const bool small = (arguments & 2) != 0;
    const communicator& c = small ? trio_[static_cast<std::size_t>(r)] : all_.world_of(r);
    if (!c) return;
    const int hostile = !small ? me_ : leads_ ? 0 : 2;
    const int other = 1 - r + (small && leads_ ? 1 : 0);
    const int tag = (arguments & 4) != 0 ? any_tag : 1;
    const std::size_t bytes = (arguments & 8) != 0 ? 100 : (arguments & 16) != 0 ? 5000 : 300'000;
    switch (what % 10) {
      case 0:
        return start(receive(c, any_source, tag, bytes));
      case 1:
        return start(receive(c, hostile, tag, bytes));
      case 2:
      case 3:
        return start(send(c, hostile, 1, bytes));
      case 4:
        return start(send(c, other, 1, bytes));
      case 5:
        return start(add_up(c, bytes / 100));
      case 6:
      case 7:
        return start(make_another(c, arguments >> 5 & 3));
      case 8:
        return start(look(c));
      default:
        if (!tasks_.empty()) tasks_.erase(tasks_.begin() + arguments % static_cast<int>(tasks_.size()));
    }
  }
  void begin_access(int how) {
    const auto arguments = in_.value<std::uint8_t>();
    const window<int>& w = field_[arguments & 1];
    if (!w) return;
    constexpr std::size_t counts[] = {0, 1, 5000, 75'000}, offsets[] = {0, 0, 1, 4999};
    start(reach(&w, how, arguments >> 1 & 3, counts[arguments >> 3 & 3], offsets[arguments >> 5 & 3],
                arguments >> 7));
  }
  void start(task<> body) {
    if (tasks_.size() >= 40) return;
    tasks_.push_back(std::make_unique<core::running_task>());
    tasks_.back()->start(std::move(body));
  }

  connection* chosen(std::uint8_t by) {
    return connections_.empty() ? nullptr : connections_[by % connections_.size()].get();
  }

  std::uint32_t a_number() {
    const auto which = in_.value<std::uint8_t>();
    const std::uint32_t usual[] = {
        0,        trio_id_,    duo_id_, next_id_, 1U << 28, 1U << 31, next_id_ + 1, ~0U, trio_id_ | 1U << 28,
        1U << 30, seen_number_};
    if (which < 100) return trio_id_;
    return which < 240 ? usual[which % std::size(usual)] : in_.value<std::uint32_t>();
  }
  std::uint64_t an_id() {
    const auto which = in_.value<std::uint8_t>();
    if (which < 120 && !seen_ids_.empty()) return seen_ids_[which % seen_ids_.size()];
    if (which < 240) return (std::uint64_t{which / 8U % 4 + 1} << 32) | which % 8;
    return in_.value<std::uint64_t>();
  }
  agreed::list a_list() {
    agreed::list made;
    const auto count = in_.value<std::uint8_t>() % 6;
    for (int i = 0; i < count; ++i) made.push_back(in_.value<std::int8_t>());
    return made;
  }
  std::string an_agreement() {
    agreed::message m;
    switch (in_.value<std::uint8_t>() % 9) {
      case 0:
        m = agreed::join{in_.value<std::int8_t>(),
                         in_.value<std::uint8_t>() % 2 == 0,
                         {{in_.value<std::int8_t>(), in_.value<std::int8_t>(), a_list()}},
                         a_list(),
                         {}};
        break;
      case 1:
        m = agreed::invite{};
        break;
      case 2:
      case 3:
        m = agreed::settled{in_.value<std::int8_t>(), a_number(), a_list(), a_list()};
        break;
      case 4:
        m = agreed::refused{in_.value<std::uint8_t>(), "refused"};
        break;
      case 5:
        m = agreed::give_up{in_.value<std::uint8_t>(), "given up"};
        break;
      case 6:
        m = agreed::absent{};
        break;
      case 7:
        m = agreed::astray{in_.value<std::int8_t>()};
        break;
      default:
        m = agreed::failure_notice{in_.value<std::int8_t>(), true};
    }
    return base::to_bytes(m);
  }

  void send_frame() {
    connection* const c = chosen(in_.value<std::uint8_t>());
    const auto how = in_.value<std::uint8_t>();
    if (c == nullptr) return;
    frame f;
    f.kind = static_cast<frame_kind>(1 + in_.value<std::uint8_t>() % 16);
    f.context = 2 * a_number() + (how & 1);
    f.tag = (how & 2) != 0 ? 1 : in_.value<std::int8_t>();
    f.transfer_id = an_id();
    f.other_transfer_id = (how & 4) != 0 ? 0 : an_id();
    if (f.kind == frame_kind::data && (how & 8) != 0) f.other_transfer_id = in_.value<std::uint16_t>();
    if ((how & 16) != 0 && !seen_prints_.empty())
      f.fingerprint = seen_prints_[in_.value<std::uint8_t>() % seen_prints_.size()];
    if ((how & 32) != 0 && f.context % 2 == 1) f.tag = seen_tag_;
    std::string payload;
    if (f.kind == frame_kind::agree && (how & 64) == 0) {
      payload = an_agreement();
      f.length = payload.size();
    } else {
      const auto size = in_.value<std::uint16_t>();
      const std::uint64_t lengths[] = {0, 12, 100, 300, 5000, 36, 64, 20'000};
      f.length = size < 60'000 ? lengths[size % 8] : in_.value<std::uint64_t>();
      const bytes some = in_.take(carries_payload(f.kind) ? in_.value<std::uint8_t>() % 64 : 0);
      payload.assign(reinterpret_cast<const char*>(some.data()), some.size());
      // A proposal of a number, as rank 0 makes it.
      if (f.length == 12 || f.length == 36) {
        const std::uint32_t id = a_number();
        payload.resize(12);
        std::memcpy(payload.data() + 8, &id, sizeof id);
      }
    }
    if (f.kind == frame_kind::heartbeat || f.kind == frame_kind::alive) f.length = 0;
    emit(*c, f, payload, how);
  }
  void emit(connection& c, const frame& f, const std::string& payload, std::uint8_t how) {
    if (c.segment) return write(c, f, payload, how);
    put(c, f, payload, (how & 128) == 0);
  }

  // What one rank asks of another's window, or answers.
  void send_request() {
    connection* const c = chosen(in_.value<std::uint8_t>());
    const auto how = in_.value<std::uint8_t>();
    if (c == nullptr) return;
    const auto number = [this]() -> std::uint64_t {
      constexpr std::uint64_t usual[] = {0, 1, 3, 4, 20'000, 19'996, 2, ~0ULL};
      const auto which = in_.value<std::uint8_t>();
      return which < 224 ? usual[which % 8] : in_.value<std::uint64_t>();
    };
    rma::request r;
    r.is = static_cast<rma::request::kind>(in_.value<std::uint8_t>() % (1U << rma::request::kind_bits));
    r.number = static_cast<std::uint32_t>(number());
    r.at = number();
    r.operand = number();
    const bool answers = r.is == rma::request::kind::answer;
    std::string payload;
    constexpr std::uint64_t lengths[] = {0, 4, 8, 400, 20'000, sizeof(rma::place_record), 6, 100'000};
    frame f;
    f.kind = (how & 64) != 0 ? frame_kind::rts : frame_kind::eager;
    f.context = 2 * field_id_;
    f.tag = answers && seen_request_ != 0 ? seen_request_ : r.tag();
    f.transfer_id = f.kind == frame_kind::rts ? an_id() : 0;
    f.length = lengths[how % 8];
    if (!answers) f.fingerprint = r.print();
    if (answers && f.length == sizeof(rma::place_record)) {
      const rma::place_record told{.bytes = number(),
                                   .signals = number(),
                                   .mark = number(),
                                   .control_region = number(),
                                   .control_offset = number(),
                                   .data_region = number(),
                                   .data_offset = number()};
      payload.assign(reinterpret_cast<const char*>(&told), sizeof told);
    }
    emit(*c, f, payload, how);
  }

  // Over a stream. What an honest peer's link would refuse to send ends the link, which costs an input much.
  void put(connection& c, const frame& f, const std::string& payload, bool whole) {
    push(c, c.unsent);
    c.unsent.clear();
    std::vector<std::byte> all(payload_bytes(f) <= tcp::slice_bytes ? payload_bytes(f) : 0);
    std::ranges::copy(std::as_bytes(std::span(payload)).first(std::min(all.size(), payload.size())),
                      all.begin());
    tcp::passage how;
    how.number = c.number++;
    tcp::header h;
    tcp::encode(f, h, how);
    std::vector<std::byte> out(h.size());
    std::memcpy(out.data(), h.data(), h.size());
    const std::size_t now = whole ? all.size() : all.size() / 2;
    out.insert(out.end(), all.begin(), all.begin() + static_cast<std::ptrdiff_t>(now));
    c.unsent.assign(all.begin() + static_cast<std::ptrdiff_t>(now), all.end());
    push(c, out);
  }
  void push(connection& c, const std::vector<std::byte>& data) {
    std::size_t at = 0;
    for (int tries = 0; at < data.size() && tries < 20;) {
      iovec part{const_cast<std::byte*>(data.data()) + at, data.size() - at};
      const ssize_t sent =
          c.tls ? c.tls->write(&part, 1) : ::send(c.fd.get(), part.iov_base, part.iov_len, MSG_NOSIGNAL);
      if (sent > 0) {
        at += static_cast<std::size_t>(sent);
        if (c.tls) c.tls->flush();
        continue;
      }
      if (errno != EAGAIN) return;  // the link has ended
      ++tries;
      all_.step();
    }
  }

  // Over shared memory: as the writer of a real rank would, and then with some of it changed.
  void write(connection& c, const frame& f, const std::string& payload, std::uint8_t how) {
    static std::vector<std::byte> data(std::size_t{64} * 1024);
    std::memcpy(data.data(), payload.data(), payload.size());
    frame head = f;
    if (payload_bytes(head) > 60'000) head.length = 60'000;
    bool written = false;
    if (head.kind == frame_kind::data) {
      transport::outgoing o;
      o.head = head;
      o.payload = data.data();
      written = c.writer.write_slice(o);
    } else if (c.writer.in_parts(head)) {
      if (!c.writer.has_room_for_parts(head)) return;
      c.writer.write_part(head, data.data(), 0);
      written = true;
    } else {
      written = c.writer.write_message(head, data.data());
    }
    if (!written) return;
    ++c.lines;
    if ((how & 128) == 0) return;
    shm::line& last = c.segment->mine().lines()[(c.lines - 1) % shm::lines_per_channel];
    const auto place = in_.value<std::uint8_t>();
    if (place % 4 == 0) last.length.store(in_.value<std::uint32_t>(), std::memory_order_relaxed);
    if (place % 4 == 1)
      last.body[place / 4 % sizeof last.body] = static_cast<std::byte>(in_.value<std::uint8_t>());
    if (place % 4 == 2) last.stamp.fetch_xor(in_.value<std::uint8_t>(), std::memory_order_relaxed);
    if (place % 4 == 3) {
      auto* const header = reinterpret_cast<std::byte*>(&c.segment->mine().header());
      header[in_.value<std::uint16_t>() % 4096] = static_cast<std::byte>(in_.value<std::uint8_t>());
    }
  }

  void other(std::uint8_t what) {
    const auto which = in_.value<std::uint8_t>();
    connection* const c = chosen(which);
    switch (what % 8) {
      case 0:
      case 1:
        for (int i = 0; i < which % 4 + 1; ++i) all_.step();
        return listen();
      case 2:
        return connect(which % real_ranks);
      case 3:
        if (c != nullptr) {
          push(*c, c->unsent);
          c->unsent.clear();
        }
        return;
      case 4:
        if (c != nullptr && which % 4 == 0)
          std::erase_if(connections_, [c](const auto& each) { return each.get() == c; });
        return;
      case 5:
        if (c != nullptr && which % 8 == 0) {
          const bytes raw = in_.take(which);
          std::vector<std::byte> out(raw.size());
          if (!raw.empty()) std::memcpy(out.data(), raw.data(), raw.size());
          push(*c, out);
        }
        return;
      case 6: {
        constexpr int steps_ms[] = {1, 25, 120, 210, 600, 1000, 3000, 31'000};
        return all_.time().advance(std::chrono::milliseconds(steps_ms[which % 8]));
      }
      default:
        if (which % 8 == 0) trio_[which / 8 % real_ranks] = {};
        if (which % 8 == 4) field_[which / 8 % real_ranks] = {};
        if (which % 4 == 1 && c != nullptr && c->segment) offer(*c);
    }
  }
  // A region of memory that real ranks may read in place.
  void offer(connection& c) {
    const base::unique_fd memory(::memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (::ftruncate(memory.get(), 8192) != 0) return;
    const auto how = in_.value<std::uint8_t>();
    if (how % 4 != 0) ::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK);
    const int fd = memory.get();
    shm::send_descriptors(c.fd.get(), {&fd, 1}, {std::uint64_t{how % 3U}, how % 5 == 0 ? 9000U : 8192U});
  }

  // Reads what the real ranks have sent: ids, contexts and fingerprints to use.
  void listen() {
    for (const auto& each : connections_) {
      connection& c = *each;
      if (c.segment) continue;
      std::uint8_t buffer[4096];
      for (int i = 0; i < 8; ++i) {
        iovec part{buffer, sizeof buffer};
        const ssize_t got = c.tls ? c.tls->read(&part, 1) : ::recv(c.fd.get(), buffer, sizeof buffer, 0);
        if (got <= 0) break;
        c.received.insert(c.received.end(), buffer, buffer + got);
      }
      std::size_t at = 0;
      while (c.received.size() - at >= tcp::header_bytes) {
        frame f;
        tcp::passage how;
        if (tcp::decode(std::span<const std::uint8_t, tcp::header_bytes>(&c.received[at], tcp::header_bytes),
                        f, how) != nullptr)
          break;
        if (c.received.size() - at < tcp::header_bytes + payload_bytes(f)) break;
        at += tcp::header_bytes + static_cast<std::size_t>(payload_bytes(f));
        seen_number_ = f.context / 2;
        if (seen_number_ == field_id_) seen_request_ = f.tag & ~((1 << rma::request::kind_bits) - 1);
        for (const std::uint64_t id : {f.transfer_id, f.other_transfer_id})
          if (id != 0 && seen_ids_.size() < 32 && std::ranges::find(seen_ids_, id) == seen_ids_.end())
            seen_ids_.push_back(id);
        if (f.fingerprint != transport::fingerprint_bytes{} && seen_prints_.size() < 16) {
          seen_prints_.push_back(f.fingerprint);
          seen_tag_ = f.tag;
        }
      }
      c.received.erase(c.received.begin(), c.received.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }

  // The real ranks understand each other, and nothing is left of the operations.
  void finish() {
    bool sent = false, received = false;
    core::running_task a, b;
    a.start(must_send(duo_[0], &sent), broke_off);
    b.start(must_receive(duo_[1], &received), broke_off);
    for (int rounds = 0; rounds < 10'000 && !(sent && received); ++rounds) all_.step();
    TUTTI_INVARIANT(sent && received);
    duo_ = {};
    all_.settle();
    for (int r = 0; r < real_ranks; ++r) {
      const p2p::endpoint_usage left = all_[r].world->endpoint().usage();
      TUTTI_INVARIANT(left.posted == 0);
      TUTTI_INVARIANT(left.transfer_ids == 0);
      const p2p::peer_state& hostile = all_[r].world->endpoint().peers()[me_];
      TUTTI_INVARIANT(hostile.control_bytes == 0);
      TUTTI_INVARIANT(hostile.arriving == nullptr);
      TUTTI_INVARIANT(hostile.eager_in <= p2p::eager_window || hostile.lost);
      TUTTI_INVARIANT(hostile.eager_out <= p2p::eager_window);
    }
  }

  worlds& all_;
  reader& in_;
  const int me_;
  const bool leads_;
  std::uint32_t trio_id_ = 0, duo_id_ = 0, field_id_ = 0, next_id_ = 0, seen_number_ = 0;
  std::int32_t seen_tag_ = 1;
  std::int32_t seen_request_ = 0;  // as the tag of its answer
  worlds::pair trio_, duo_;
  std::array<buffer, real_ranks> memory_{buffer(window_bytes), buffer(window_bytes)};
  std::array<window<int>, real_ranks> field_;
  std::optional<shm::own_segment> own_;
  std::vector<std::unique_ptr<connection>> connections_;  // their writers point into them
  std::vector<std::unique_ptr<core::running_task>> tasks_;
  std::vector<std::uint64_t> seen_ids_;
  std::vector<transport::fingerprint_bytes> seen_prints_;
};

}  // namespace

void hostile_rank(bytes input) {
  static std::array<std::unique_ptr<worlds>, 4> all;
  reader in(input);
  const auto mode = in.value<std::uint8_t>();
  std::size_t over = mode % 16 < 6 ? 0 : mode % 16 < 12 ? 1 : mode % 16 < 15 ? 2 : 3;
  if (over == 3 && !attack::has_tls()) over = 0;
  if (!all[over] || all[over]->used_up()) {
    all[over].reset();
    all[over] = std::make_unique<worlds>(static_cast<way>(over));
  }
  attack(*all[over], in, (mode & 16) != 0).run();
}

}  // namespace tutti::fuzz

// SPDX-License-Identifier: Apache-2.0
#include "transport/mpi_fabric.hpp"

#include <condition_variable>
#include <cstdio>
#include <cstring>

namespace mpi_test {

namespace mpi = tutti::transport::mpi;

struct fabric::message {
  mpi::communicator_word on = 0;
  int from = 0;
  int tag = 0;
  const void* memory = nullptr;  // the sender's memory until the message is buffered or received
  std::vector<std::byte> bytes;
  std::size_t length = 0;
};

struct fabric::request {
  enum class kind { send, receive, meet } is = kind::send;
  std::shared_ptr<message> of;
  void* into = nullptr;
  collective_call* at = nullptr;
};

// One collective of all ranks.
struct fabric::collective_call {
  mpi::communicator_word made = 0;  // of a duplication
  std::vector<std::vector<std::byte>> given;
  std::vector<bool> came;
  int count = 0;
};

struct fabric::place {
  fabric* in = nullptr;
  int rank = 0;
  mpi::calls table;
  life lived;
  std::deque<std::shared_ptr<message>> inbox;
  std::map<std::uint64_t, std::shared_ptr<message>> found;  // matched messages, by message word
  std::map<std::uint64_t, request> requests;
  std::map<int, int> broken_sends;
  int broken_finding = 0;
  std::size_t collectives = 0;  // number of collectives started by this rank
};

struct fabric::functions {
  static place& of(void* p) { return *static_cast<place*>(p); }

  static void describe(void*, char* into, std::size_t room) { std::snprintf(into, room, "Fabric MPI 1.0"); }
  static void explain(void*, int code, char* into, std::size_t room) {
    std::snprintf(into, room, "fabric error %d", code);
  }
  static int state(void* p, int* initialized, int* finalized) {
    const std::lock_guard lock(of(p).in->mutex_);
    *initialized = of(p).lived.initialized;
    *finalized = of(p).lived.finalized;
    return 0;
  }
  static int init(void* p, int* usable) {
    place& me = of(p);
    if (me.lived.init_hangs) {
      // Hangs for the rest of the process.
      std::mutex mutex;
      std::unique_lock lock(mutex);
      std::condition_variable never;
      for (;;) never.wait(lock);
    }
    const std::lock_guard lock(me.in->mutex_);
    me.lived.initialized = 1;
    *usable = me.lived.usable;
    return me.lived.init_code;
  }
  static int joined(void* p, int* usable) {
    *usable = of(p).lived.usable;
    return 0;
  }
  static int finalize(void* p) {
    const std::lock_guard lock(of(p).in->mutex_);
    of(p).lived.finalized = 1;
    return 0;
  }
  static void abort(void* p, int code) {
    const std::lock_guard lock(of(p).in->mutex_);
    of(p).lived.aborted = code;
  }
  static int where(void* p, int* rank, int* size) {
    *rank = of(p).rank;
    *size = of(p).in->size_;
    return 0;
  }

  // The collective that this rank starts now. The n-th of each rank is the same one.
  static int meet(place& me, const void* mine, int bytes, mpi::request_word* word, void* into) {
    fabric& f = *me.in;
    const std::size_t number = me.collectives++;
    if (number == f.collectives_.size()) {
      f.collectives_.push_back(std::make_unique<collective_call>());
      f.collectives_.back()->given.resize(static_cast<std::size_t>(f.size_));
      f.collectives_.back()->came.resize(static_cast<std::size_t>(f.size_));
      f.collectives_.back()->made = f.next_word_++;
    }
    collective_call& m = *f.collectives_[number];
    const auto* from = static_cast<const std::byte*>(mine);
    m.given[static_cast<std::size_t>(me.rank)].assign(from, from + bytes);
    m.came[static_cast<std::size_t>(me.rank)] = true;
    ++m.count;
    request r;
    r.is = request::kind::meet;
    r.at = &m;
    r.into = into;
    *word = f.next_word_++;
    me.requests[*word] = r;
    return 0;
  }
  static int start_duplicate(void* p, mpi::communicator_word* made, mpi::request_word* word) {
    const std::lock_guard lock(of(p).in->mutex_);
    const int code = meet(of(p), nullptr, 0, word, nullptr);
    *made = of(p).requests[*word].at->made;
    return code;
  }
  static int return_errors(void*, mpi::communicator_word) { return 0; }
  static int start_all_gather(void* p, mpi::communicator_word, const void* mine, int bytes, void* all,
                              mpi::request_word* word) {
    const std::lock_guard lock(of(p).in->mutex_);
    return meet(of(p), mine, bytes, word, all);
  }
  static int start_barrier(void* p, mpi::request_word* word) {
    const std::lock_guard lock(of(p).in->mutex_);
    if (of(p).lived.barrier_hangs) {
      *word = of(p).in->next_word_++;
      request r;
      r.of = std::make_shared<message>();  // a message that no rank receives
      of(p).requests[*word] = r;
      return 0;
    }
    return meet(of(p), nullptr, 0, word, nullptr);
  }

  static int start_send(void* p, mpi::communicator_word on, const void* from, int bytes, int peer, int tag,
                        mpi::request_word* word) {
    place& me = of(p);
    const std::lock_guard lock(me.in->mutex_);
    for (const int broken : {peer, -1})
      if (const auto found = me.broken_sends.find(broken); found != me.broken_sends.end())
        return found->second;
    auto m = std::make_shared<message>();
    m->on = on;
    m->from = me.rank;
    m->tag = tag;
    m->length = static_cast<std::size_t>(bytes);
    m->memory = from;
    if (m->length <= me.in->buffered_bytes_) take(*m);
    me.in->places_[static_cast<std::size_t>(peer)]->inbox.push_back(m);
    *word = me.in->next_word_++;
    request r;
    r.of = m;
    me.requests[*word] = r;
    return 0;
  }
  // Reads the message, so that its memory belongs to the sender again.
  static void take(message& m) {
    if (m.memory == nullptr) return;
    const auto* from = static_cast<const std::byte*>(m.memory);
    m.bytes.assign(from, from + m.length);
    m.memory = nullptr;
  }
  static int find_message(void* p, mpi::communicator_word on, int* found, int* peer, int* tag, int* bytes,
                          mpi::message_word* word) {
    place& me = of(p);
    const std::lock_guard lock(me.in->mutex_);
    *found = 0;
    if (me.broken_finding != 0) return me.broken_finding;
    for (auto i = me.inbox.begin(); i != me.inbox.end(); ++i) {
      if ((*i)->on != on) continue;
      *found = 1;
      *peer = (*i)->from;
      *tag = (*i)->tag;
      *bytes = static_cast<int>((*i)->length);
      *word = me.in->next_word_++;
      me.found[*word] = *i;
      me.inbox.erase(i);
      return 0;
    }
    return 0;
  }
  static int start_receive(void* p, mpi::message_word* message, void* into, int, mpi::request_word* word) {
    place& me = of(p);
    const std::lock_guard lock(me.in->mutex_);
    request r;
    r.is = request::kind::receive;
    r.of = me.found.at(*message);
    r.into = into;
    me.found.erase(*message);
    *word = me.in->next_word_++;
    me.requests[*word] = r;
    return 0;
  }
  static int test(void* p, mpi::request_word* word, int* ended) {
    place& me = of(p);
    const std::lock_guard lock(me.in->mutex_);
    request& r = me.requests.at(*word);
    *ended = 0;
    switch (r.is) {
      case request::kind::send:
        if (r.of->memory != nullptr || r.of->on == 0) return 0;
        break;
      case request::kind::receive:
        if (me.in->hold_receives_) return 0;
        take(*r.of);
        if (r.of->length > 0) std::memcpy(r.into, r.of->bytes.data(), r.of->length);
        break;
      case request::kind::meet: {
        if (r.at->count < me.in->size_) return 0;
        auto* to = static_cast<std::byte*>(r.into);
        if (to != nullptr)
          for (const auto& one : r.at->given) {
            std::memcpy(to, one.data(), one.size());
            to += one.size();
          }
        break;
      }
    }
    *ended = 1;
    me.requests.erase(*word);
    *word = 0;
    return 0;
  }
};

fabric::fabric(int size) : size_(size) {
  for (int rank = 0; rank < size; ++rank) {
    auto made = std::make_shared<place>();
    made->in = this;
    made->rank = rank;
    mpi::calls& t = made->table;
    t.of = made.get();
    t.describe = functions::describe;
    t.explain = functions::explain;
    t.state = functions::state;
    t.init = functions::init;
    t.joined = functions::joined;
    t.finalize = functions::finalize;
    t.abort = functions::abort;
    t.place = functions::where;
    t.start_duplicate = functions::start_duplicate;
    t.return_errors = functions::return_errors;
    t.start_all_gather = functions::start_all_gather;
    t.start_barrier = functions::start_barrier;
    t.start_send = functions::start_send;
    t.find_message = functions::find_message;
    t.start_receive = functions::start_receive;
    t.test = functions::test;
    places_.push_back(std::move(made));
  }
}

fabric::~fabric() = default;

const mpi::calls& fabric::calls_of(int rank) { return places_[static_cast<std::size_t>(rank)]->table; }

fabric::life& fabric::life_of(int rank) { return places_[static_cast<std::size_t>(rank)]->lived; }

void fabric::break_sends(int rank, int peer, int code) {
  places_[static_cast<std::size_t>(rank)]->broken_sends[peer] = code;
}

void fabric::break_finding(int rank, int code) {
  places_[static_cast<std::size_t>(rank)]->broken_finding = code;
}

std::size_t fabric::undelivered() const {
  const std::lock_guard lock(mutex_);
  std::size_t count = 0;
  for (const auto& p : places_) count += p->inbox.size();
  return count;
}

}  // namespace mpi_test

// SPDX-License-Identifier: Apache-2.0
#include "transport/mpi_fabric.hpp"

#include <condition_variable>
#include <cstring>
#include <string>

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

// One rank's MPI.
struct fabric::place final : mpi::calls {
  place(fabric& f, int number) : in(f), rank(number) {}

  fabric& in;
  const int rank;
  life lived;
  std::deque<std::shared_ptr<message>> inbox;
  std::map<std::uint64_t, std::shared_ptr<message>> matched;  // by message word
  std::map<std::uint64_t, request> requests;
  std::map<int, int> broken_sends;
  int broken_finding = 0;
  std::size_t collectives = 0;  // number of collectives started by this rank

  std::string describe() override { return "Fabric MPI 1.0"; }
  std::string explain(int code) override { return "fabric error " + std::to_string(code); }
  int state(int* initialized, int* finalized, int* usable) override {
    const std::lock_guard lock(in.mutex_);
    *initialized = lived.initialized;
    *finalized = lived.finalized;
    *usable = lived.usable;
    return 0;
  }
  int init(int* usable) override {
    if (lived.init_hangs) {
      // Hangs for the rest of the process.
      std::mutex mutex;
      std::unique_lock lock(mutex);
      std::condition_variable never;
      for (;;) never.wait(lock);
    }
    const std::lock_guard lock(in.mutex_);
    lived.initialized = 1;
    *usable = lived.usable;
    return lived.init_code;
  }
  int finalize() override {
    const std::lock_guard lock(in.mutex_);
    lived.finalized = 1;
    return 0;
  }
  void abort(int code) override {
    const std::lock_guard lock(in.mutex_);
    lived.aborted = code;
  }
  int rank_and_size(int* mine, int* size) override {
    *mine = rank;
    *size = in.size_;
    return 0;
  }

  // The collective that this rank starts now. The n-th of each rank is the same one.
  int meet(const void* mine, int bytes, mpi::request_word* word, void* into) {
    const std::size_t number = collectives++;
    if (number == in.collectives_.size()) {
      in.collectives_.push_back(std::make_unique<collective_call>());
      in.collectives_.back()->given.resize(static_cast<std::size_t>(in.size_));
      in.collectives_.back()->came.resize(static_cast<std::size_t>(in.size_));
      in.collectives_.back()->made = in.next_word_++;
    }
    collective_call& m = *in.collectives_[number];
    const auto* from = static_cast<const std::byte*>(mine);
    m.given[static_cast<std::size_t>(rank)].assign(from, from + bytes);
    m.came[static_cast<std::size_t>(rank)] = true;
    ++m.count;
    request r;
    r.is = request::kind::meet;
    r.at = &m;
    r.into = into;
    *word = in.next_word_++;
    requests[*word] = r;
    return 0;
  }
  int start_duplicate(mpi::communicator_word* made, mpi::request_word* word) override {
    const std::lock_guard lock(in.mutex_);
    const int code = meet(nullptr, 0, word, nullptr);
    *made = requests[*word].at->made;
    return code;
  }
  int return_errors(mpi::communicator_word) override { return 0; }
  int start_all_gather(mpi::communicator_word, const void* mine, int bytes, void* all,
                       mpi::request_word* word) override {
    const std::lock_guard lock(in.mutex_);
    return meet(mine, bytes, word, all);
  }
  int start_barrier(mpi::request_word* word) override {
    const std::lock_guard lock(in.mutex_);
    if (lived.barrier_hangs) {
      *word = in.next_word_++;
      request r;
      r.of = std::make_shared<message>();  // a message that no rank receives
      requests[*word] = r;
      return 0;
    }
    return meet(nullptr, 0, word, nullptr);
  }

  int start_send(mpi::communicator_word on, const void* from, int bytes, int peer, int tag,
                 mpi::request_word* word) override {
    const std::lock_guard lock(in.mutex_);
    for (const int broken : {peer, -1})
      if (const auto found = broken_sends.find(broken); found != broken_sends.end()) return found->second;
    auto m = std::make_shared<message>();
    m->on = on;
    m->from = rank;
    m->tag = tag;
    m->length = static_cast<std::size_t>(bytes);
    m->memory = from;
    if (m->length <= in.buffered_bytes_) take(*m);
    in.places_[static_cast<std::size_t>(peer)]->inbox.push_back(m);
    *word = in.next_word_++;
    request r;
    r.of = m;
    requests[*word] = r;
    return 0;
  }
  // Reads the message, so that its memory belongs to the sender again.
  static void take(message& m) {
    if (m.memory == nullptr) return;
    const auto* from = static_cast<const std::byte*>(m.memory);
    m.bytes.assign(from, from + m.length);
    m.memory = nullptr;
  }
  int find_message(mpi::communicator_word on, int* found, int* peer, int* tag, int* bytes,
                   mpi::message_word* word) override {
    const std::lock_guard lock(in.mutex_);
    *found = 0;
    if (broken_finding != 0) return broken_finding;
    for (auto i = inbox.begin(); i != inbox.end(); ++i) {
      if ((*i)->on != on) continue;
      *found = 1;
      *peer = (*i)->from;
      *tag = (*i)->tag;
      *bytes = static_cast<int>((*i)->length);
      *word = in.next_word_++;
      matched[*word] = *i;
      inbox.erase(i);
      return 0;
    }
    return 0;
  }
  int start_receive(mpi::message_word* message, void* into, int, mpi::request_word* word) override {
    const std::lock_guard lock(in.mutex_);
    request r;
    r.is = request::kind::receive;
    r.of = matched.at(*message);
    r.into = into;
    matched.erase(*message);
    *word = in.next_word_++;
    requests[*word] = r;
    return 0;
  }
  int test(mpi::request_word* word, int* ended) override {
    const std::lock_guard lock(in.mutex_);
    request& r = requests.at(*word);
    *ended = 0;
    switch (r.is) {
      case request::kind::send:
        if (r.of->memory != nullptr || r.of->on == 0) return 0;
        break;
      case request::kind::receive:
        if (in.hold_receives_) return 0;
        take(*r.of);
        if (r.of->length > 0) std::memcpy(r.into, r.of->bytes.data(), r.of->length);
        break;
      case request::kind::meet: {
        if (r.at->count < in.size_) return 0;
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
    requests.erase(*word);
    *word = 0;
    return 0;
  }
};

fabric::fabric(int size) : size_(size) {
  for (int rank = 0; rank < size; ++rank) places_.push_back(std::make_shared<place>(*this, rank));
}

fabric::~fabric() = default;

mpi::calls& fabric::calls_of(int rank) { return *places_[static_cast<std::size_t>(rank)]; }

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

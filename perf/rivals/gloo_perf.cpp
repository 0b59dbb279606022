// SPDX-License-Identifier: Apache-2.0
// gloo-perf: tutti-perf with Gloo over its TCP transport, because Gloo has no shared memory. The loops equal
// those of rounds.cpp: change both together. The ranks meet at a file, because Gloo has no launcher.
//   gloo-perf all_reduce --ranks 4 --algorithm bcube
#include "common/forked_program.hpp"

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/config.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace {

const perf::program_names names{"gloo-perf", "", false, {}, {"ring", "bcube", "halving_doubling"}};

// The directory where the ranks meet. The parent process removes it.
class rendezvous_folder {
 public:
  rendezvous_folder() {
    path_ = (std::filesystem::temp_directory_path() / "gloo-perf-XXXXXX").string();
    if (::mkdtemp(path_.data()) == nullptr) throw std::system_error(errno, std::generic_category(), path_);
  }
  ~rendezvous_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  rendezvous_folder(const rendezvous_folder&) = delete;
  rendezvous_folder& operator=(const rendezvous_folder&) = delete;
  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};
using shared_folder = std::shared_ptr<rendezvous_folder>;

// Gloo's interface takes no pointers to const.
void* writable(const void* data) noexcept { return const_cast<void*>(data); }

class gloo_world : public perf::forked_world {
 public:
  gloo_world(const perf::forked_world& control, const perf::options& chosen, const shared_folder& folder)
      : forked_world(control), algorithm_(chosen.algorithm) {
    std::shared_ptr<gloo::transport::Device> device =
        gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr("127.0.0.1"));
    gloo::rendezvous::FileStore store(folder->path());
    const auto context = std::make_shared<gloo::rendezvous::Context>(rank(), size());
    context->connectFullMesh(store, device);
    context_ = context;
  }
  // Gloo reports an error if a rank leaves while others still read.
  ~gloo_world() { forked_world::barrier(); }
  gloo_world(const gloo_world&) = delete;
  gloo_world& operator=(const gloo_world&) = delete;

  // `startup` measures the first call.
  void barrier() {
    if (!std::exchange(connected_, true)) gloo_barrier();
    forked_world::barrier();
  }

  std::string library() const {
    return "Gloo " + std::to_string(GLOO_VERSION_MAJOR) + "." + std::to_string(GLOO_VERSION_MINOR) + "." +
           std::to_string(GLOO_VERSION_PATCH) + (algorithm_.empty() ? "" : " " + algorithm_);
  }
  static std::string transport() { return "tcp"; }

  void run_rounds(perf::message_pair* data, std::int64_t rounds) {
    const int peer = data->peer();
    const auto out = buffer_of(data->out()), in = buffer_of(data->in());
    for (std::int64_t round = 0; round < rounds; ++round) {
      if (data->begins()) send(*out, peer);
      receive(*in, peer);
      data->sample();
      if (!data->begins()) send(*out, peer);
    }
  }

  void run_rounds(perf::message_window* data, std::int64_t rounds) {
    std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>> slots;
    for (int i = 0; i < data->slots(); ++i) slots.push_back(buffer_of(data->slot(i)));
    std::int64_t arrived = 0;
    const auto answer = buffer_of(std::as_writable_bytes(std::span(&arrived, 1)));
    for (std::int64_t round = 0; round < rounds; ++round) {
      if (rank() == 0) {
        for (const auto& one : slots) one->send(1, message_slot);
        for (const auto& one : slots) one->waitSend();
        receive(*answer, 1);
        data->sample_answer(arrived, round);
      } else {
        for (const auto& one : slots) one->recv(0, message_slot);
        for (const auto& one : slots) one->waitRecv();
        data->sample();
        arrived = round;
        send(*answer, 0);
      }
    }
  }

  void run_rounds(perf::vector_sum* data, std::int64_t rounds) {
    if (algorithm_ == "halving_doubling") return halving_doubling(data, rounds);
    gloo::AllreduceOptions options = options_of(data);
    for (std::int64_t round = 0; round < rounds; ++round) {
      gloo::allreduce(options);
      data->sample();
    }
  }

  void run_rounds(perf::gathered_blocks* data, std::int64_t rounds) {
    gloo::AllgatherOptions options(context_);
    options.setInput(static_cast<char*>(writable(data->in().data())), data->in().size());
    options.setOutput(reinterpret_cast<char*>(data->out().data()), data->out().size());
    for (std::int64_t round = 0; round < rounds; ++round) {
      gloo::allgather(options);
      data->sample();
    }
  }

  // Gloo works in place, so the input is copied first, and the block is copied out.
  void run_rounds(perf::scattered_sum* data, std::int64_t rounds) {
    work_.assign(data->in().begin(), data->in().end());
    const std::vector<int> blocks(static_cast<std::size_t>(size()), static_cast<int>(data->out().size()));
    gloo::ReduceScatterHalvingDoubling<float> sum(context_, {work_.data()}, static_cast<int>(work_.size()),
                                                  blocks);
    for (std::int64_t round = 0; round < rounds; ++round) {
      std::memcpy(work_.data(), data->in().data(), data->in().size_bytes());
      sum.run();
      std::memcpy(data->out().data(), work_.data(), data->out().size_bytes());
      data->sample();
    }
    forked_world::barrier();  // before its buffers are freed
  }

  void run_rounds(perf::broadcast_message* data, std::int64_t rounds) {
    gloo::BroadcastOptions options(context_);
    options.setOutput(reinterpret_cast<char*>(data->data().data()), data->data().size());
    options.setRoot(0);
    for (std::int64_t round = 0; round < rounds; ++round) {
      gloo::broadcast(options);
      data->sample();
    }
  }

  void run_rounds(perf::exchanged_blocks* data, std::int64_t rounds) {
    gloo::AlltoallOptions options(context_);
    options.setInput(static_cast<char*>(writable(data->in().data())), data->in().size());
    options.setOutput(reinterpret_cast<char*>(data->out().data()), data->out().size());
    for (std::int64_t round = 0; round < rounds; ++round) {
      gloo::alltoall(options);
      data->sample();
    }
  }

  void run_rounds(perf::barrier_times* data, std::int64_t rounds) {
    gloo::BarrierOptions options(context_);
    for (std::int64_t round = 0; round < rounds; ++round) {
      if (round == rounds - 1) data->enter();
      gloo::barrier(options);
    }
    data->leave();
  }

  // Gloo's calls block, so a thread runs it meanwhile.
  void start_sum(perf::vector_sum* data) {
    summing_ = std::thread([this, data] {
      gloo::AllreduceOptions options = options_of(data);
      gloo::allreduce(options);
    });
  }
  void finish_sum() { summing_.join(); }

 private:
  static constexpr std::uint64_t message_slot = 1;

  void gloo_barrier() {
    gloo::BarrierOptions options(context_);
    gloo::barrier(options);
  }

  std::unique_ptr<gloo::transport::UnboundBuffer> buffer_of(std::span<const std::byte> bytes) {
    return context_->createUnboundBuffer(writable(bytes.data()), bytes.size());
  }
  static void send(gloo::transport::UnboundBuffer& what, int dest) {
    what.send(dest, message_slot);
    what.waitSend();
  }
  static void receive(gloo::transport::UnboundBuffer& to, int source) {
    to.recv(source, message_slot);
    to.waitRecv();
  }

  gloo::AllreduceOptions options_of(perf::vector_sum* data) {
    gloo::AllreduceOptions options(context_);
    options.setAlgorithm(algorithm_ == "bcube" ? gloo::AllreduceOptions::Algorithm::BCUBE
                                               : gloo::AllreduceOptions::Algorithm::RING);
    options.setInput(static_cast<float*>(writable(data->in().data())), data->in().size());
    options.setOutput(data->out().data(), data->out().size());
    using add = void (*)(void*, const void*, const void*, std::size_t);
    options.setReduceFunction(static_cast<add>(&gloo::sum<float>));
    return options;
  }

  void halving_doubling(perf::vector_sum* data, std::int64_t rounds) {
    gloo::AllreduceHalvingDoubling<float> sum(context_, {data->out().data()},
                                              static_cast<int>(data->out().size()));
    for (std::int64_t round = 0; round < rounds; ++round) {
      std::memcpy(data->out().data(), data->in().data(), data->in().size_bytes());
      sum.run();
      data->sample();
    }
    forked_world::barrier();  // before its buffers are freed
  }

  std::string algorithm_;
  std::shared_ptr<gloo::Context> context_;
  bool connected_ = false;
  std::vector<float> work_;
  std::thread summing_;
};

}  // namespace

int main(int argc, char** argv) {
  return perf::run_forked_program<gloo_world>(
      argc, argv, names, [](const perf::options&) { return std::make_shared<rendezvous_folder>(); });
}

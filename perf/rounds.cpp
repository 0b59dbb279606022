// SPDX-License-Identifier: Apache-2.0
// The programs in rivals/ have the same loops, call by call: change all together.
#include "rounds.hpp"

#include <vector>

namespace perf {
namespace {

tutti::task<> send_windows(tutti::communicator world, message_window* data, std::int64_t rounds) {
  std::vector<tutti::request> sending(static_cast<std::size_t>(data->slots()));
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (int i = 0; i < data->slots(); ++i)
      sending[static_cast<std::size_t>(i)] = world.isend(data->slot(i), 1);
    co_await tutti::when_all(sending);
    std::int64_t arrived = -1;
    co_await world.recv(arrived, 1);
    data->sample_answer(arrived, round);
  }
}

tutti::task<> receive_windows(tutti::communicator world, message_window* data, std::int64_t rounds) {
  std::vector<tutti::request> receiving(static_cast<std::size_t>(data->slots()));
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (int i = 0; i < data->slots(); ++i)
      receiving[static_cast<std::size_t>(i)] = world.irecv(data->slot(i), 0);
    co_await tutti::when_all(receiving);
    data->sample();
    co_await world.send(round, 0);
  }
}

}  // namespace

tutti::task<> run_rounds(tutti::communicator world, message_pair* data, std::int64_t rounds) {
  const bool first = data->begins();
  const int peer = data->peer();
  for (std::int64_t round = 0; round < rounds; ++round) {
    if (first) co_await world.send(data->out(), peer);
    co_await world.recv(data->in(), peer);
    data->sample();
    if (!first) co_await world.send(data->out(), peer);
  }
}

tutti::task<> run_prepared_rounds(tutti::communicator world, message_pair* data, std::int64_t rounds) {
  const bool first = data->begins();
  const int peer = data->peer();
  const std::span<const std::byte> out = data->out();
  const std::span<std::byte> in = data->in();
  const auto sending = co_await tutti::prepare(world.send(out, peer));
  const auto receiving = co_await tutti::prepare(world.recv(in, peer));
  for (std::int64_t round = 0; round < rounds; ++round) {
    if (first) co_await sending();
    co_await receiving();
    data->sample();
    if (!first) co_await sending();
  }
}

tutti::task<> run_rounds(tutti::communicator, window_pair* data, std::int64_t rounds) {
  const bool first = data->begins();
  const int peer = data->peer();
  const std::span<const std::byte> out = data->out();
  for (std::int64_t round = 0; round < rounds; ++round) {
    if (first) co_await data->shown.put_signal(out, peer, 0, 0);
    const std::uint64_t next = ++data->come;
    co_await data->shown.wait_signal(0, [next](std::uint64_t n) { return n >= next; });
    data->sample();
    if (!first) co_await data->shown.put_signal(out, peer, 0, 0);
  }
}

tutti::task<> run_rounds(tutti::communicator, window_count* data, std::int64_t rounds) {
  if (!data->begins()) co_return;
  for (std::int64_t round = 0; round < rounds; ++round) {
    const std::uint64_t before = co_await data->shown.fetch_add(1, 0, 1);
    data->sample(before);
  }
}

tutti::task<> run_rounds(tutti::communicator world, message_window* data, std::int64_t rounds) {
  if (world.rank() == 0)
    co_await send_windows(world, data, rounds);
  else
    co_await receive_windows(world, data, rounds);
}

tutti::task<> run_rounds(tutti::communicator world, vector_sum* data, std::int64_t rounds) {
  for (std::int64_t round = 0; round < rounds; ++round) {
    data->load();
    if (data->in_place())
      co_await world.all_reduce(data->out(), tutti::sum);
    else
      co_await world.all_reduce(data->in(), data->out(), tutti::sum);
    data->sample();
  }
}

tutti::task<> run_prepared_rounds(tutti::communicator world, vector_sum* data, std::int64_t rounds) {
  auto once = data->in_place() ? world.all_reduce(data->out(), tutti::sum)
                               : world.all_reduce(data->in(), data->out(), tutti::sum);
  const auto summing = co_await tutti::prepare(std::move(once));
  for (std::int64_t round = 0; round < rounds; ++round) {
    data->load();
    co_await summing();
    data->sample();
  }
}

tutti::task<> run_rounds(tutti::communicator world, gathered_blocks* data, std::int64_t rounds) {
  for (std::int64_t round = 0; round < rounds; ++round) {
    co_await world.all_gather(data->in(), data->out());
    data->sample();
  }
}

tutti::task<> run_rounds(tutti::communicator world, scattered_sum* data, std::int64_t rounds) {
  for (std::int64_t round = 0; round < rounds; ++round) {
    co_await world.reduce_scatter(data->in(), data->out(), tutti::sum);
    data->sample();
  }
}

tutti::task<> run_rounds(tutti::communicator world, broadcast_message* data, std::int64_t rounds) {
  for (std::int64_t round = 0; round < rounds; ++round) {
    co_await world.broadcast(data->data(), 0);
    data->sample();
  }
}

tutti::task<> run_rounds(tutti::communicator world, exchanged_blocks* data, std::int64_t rounds) {
  for (std::int64_t round = 0; round < rounds; ++round) {
    co_await world.all_to_all(data->in(), data->out());
    data->sample();
  }
}

tutti::task<> run_rounds(tutti::communicator world, barrier_times* data, std::int64_t rounds) {
  for (std::int64_t round = 0; round < rounds; ++round) {
    if (round == rounds - 1) data->enter();
    co_await world.barrier();
  }
  data->leave();
}

}  // namespace perf

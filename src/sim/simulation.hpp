// SPDX-License-Identifier: Apache-2.0
// All ranks of a simulation, and the loop that gives each its turns.
#pragma once

#include "comm/runtime_state.hpp"
#include "sim/fabric.hpp"
#include "sim/sim_transport.hpp"

#include <boost/asio/io_context.hpp>
#include <memory>
#include <vector>

namespace tutti::sim {

class simulation {
 public:
  simulation(const options& o, tutti::detail::any_main& main);
  ~simulation();
  report run();

 private:
  struct member;
  void step(member& m);
  void handle(const event& e);
  // For Asio's own timers and sockets; returns whether anything happened.
  bool wait_for_real_time();
  void measure_memory() noexcept;
  report conclude() const;

  const options& options_;
  tutti::detail::any_main& main_;
  fabric fabric_;
  std::vector<std::unique_ptr<member>> members_;
  std::uint64_t events_ = 0;
  std::size_t running_ = 0;  // neither ended nor dead
  std::size_t memory_before_ = 0;
  std::size_t memory_ = 0;
  bool repeatable_ = true;
};

}  // namespace tutti::sim

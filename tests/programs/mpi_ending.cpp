// SPDX-License-Identifier: Apache-2.0
// The ends of a rank of an MPI job, selected by name, and their effects on the others.
#include <boost/asio/deferred.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tutti/tutti.hpp>
#include <vector>

namespace {

// The last rank's main throws while the others wait for it.
tutti::task<> throws(tutti::communicator world) {
  if (world.rank() == world.size() - 1) throw std::runtime_error("out of paper");
  float x = 1;
  try {
    co_await world.all_reduce(x, tutti::sum);
  } catch (const tutti::error& e) {
    std::printf("rank %d heard: %s\n", world.rank(), e.what());
    std::fflush(stdout);
    throw;
  }
}

// A rank that finishes early, while its own long messages are in flight.
tutti::task<> early(tutti::communicator world) {
  std::vector<std::int64_t> data(200'000, world.rank());
  if (world.rank() == 0) {
    for (int peer = 1; peer < world.size(); ++peer) co_await world.send(data, peer);
    co_return;
  }
  co_await world.recv(data, 0);
  std::string heard;
  std::int64_t more = 0;
  try {
    co_await world.recv(more, 0);
  } catch (const tutti::error& e) {
    if (e.code() != tutti::errc::peer_left) throw;
    heard = "left";
  }
  std::printf("rank %d: 0 has %s, data %s\n", world.rank(), heard.c_str(),
              data.back() == 0 ? "right" : "wrong");
}

// exit() during communication.
tutti::task<> exits(tutti::communicator world) {
  if (world.rank() == 0) std::exit(3);
  std::int64_t x = 0;
  co_await world.recv(x, 0);
}

// A rank that does not finish in time.
tutti::task<> straggles(tutti::communicator world) {
  if (world.rank() != 0) co_return;
  boost::asio::steady_timer never(world.get_executor(), std::chrono::minutes(10));
  co_await never.async_wait(boost::asio::deferred);
}

// One of several worlds in sequence.
tutti::task<int> adds(tutti::communicator world) {
  std::int64_t x = 1;
  co_await world.all_reduce(x, tutti::sum);
  if (world.rank() == 0) std::printf("sum %ld\n", static_cast<long>(x));
  co_return x == world.size() ? 0 : 1;
}

// Rank 0 prints the file of the module, or of the library with the standard ABI, in use.
tutti::task<> which(tutti::communicator world) {
  if (world.rank() != 0) co_return;
  std::ifstream maps("/proc/self/maps");
  std::set<std::string> files;
  for (std::string line; std::getline(maps, line);)
    if (line.find("/libtutti_mpi_") != line.npos || line.find("/libmpi_abi.") != line.npos)
      files.insert(line.substr(line.find('/')));
  for (const std::string& file : files) std::puts(file.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view how = argc > 1 ? argv[1] : "";
  if (how == "throws") return tutti::run(throws);
  if (how == "early") return tutti::run(early);
  if (how == "exits") return tutti::run(exits);
  if (how == "straggles") return tutti::run(straggles);
  if (how == "which") return tutti::run(which);
  if (how == "twice") {
    const int first = tutti::run(adds);
    return first != 0 ? first : tutti::run(adds);
  }
  std::puts("usage: mpi_ending throws|early|exits|straggles|which|twice");
  return 2;
}

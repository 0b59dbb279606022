// SPDX-License-Identifier: Apache-2.0
// A program that initialises and finalises MPI itself, and uses it beside tutti: `mpi_by_itself
// funneled|single`.
#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <string_view>
#include <tutti/tutti.hpp>

namespace {

tutti::task<int> adds(tutti::communicator world) {
  std::int64_t ours = world.rank();
  std::int64_t theirs = 0;
  MPI_Allreduce(&ours, &theirs, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
  co_await world.all_reduce(ours, tutti::sum);
  if (world.rank() == 0)
    std::printf("sums %ld and %ld\n", static_cast<long>(ours), static_cast<long>(theirs));
  co_return ours == theirs ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const bool single = argc > 1 && std::string_view(argv[1]) == "single";
  int provided = 0;
  MPI_Init_thread(&argc, &argv, single ? MPI_THREAD_SINGLE : MPI_THREAD_FUNNELED, &provided);
  int code = tutti::run(adds);
  if (code == 0) code = tutti::run(adds);
  MPI_Finalize();
  return code;
}

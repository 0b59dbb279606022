// SPDX-License-Identifier: Apache-2.0
// A column of the table in docs/backends.md: tries each operation on one kind of memory with one backend,
// against results that each rank computes alone. Rank 0 prints each row and its cell: yes, staged (through
// host memory by the host's algorithms) or no. A wrong result, or an error other than errc::not_supported,
// ends the program with its description.
//   tutti-run -n 4 backend_cells native host           or under mpirun: backend_cells mpi host
//   TUTTI_DEVICE=emulated tutti-run -n 4 backend_cells native staged         memory of devices, by this backend
//   TUTTI_DEVICE=emulated backend_cells native one_device 4                  on so many threads of one process
#include <dlfcn.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <tutti/gpu.hpp>
#include <tutti/tutti.hpp>
#include <utility>
#include <vector>

namespace {

namespace gpu = tutti::gpu;
using tutti::communicator;
using tutti::task;
using numbers = std::vector<float>;

const std::map<std::string, gpu::backend> of_devices{{"nccl", gpu::backend::nccl},
                                                     {"oneccl", gpu::backend::oneccl},
                                                     {"one_device", gpu::backend::one_device},
                                                     {"staged", gpu::backend::staged}};

struct place {
  communicator world;
  std::optional<gpu::stream> stream;  // none: host memory
};

[[noreturn]] void fail(const std::string& row, const std::string& why) {
  throw std::runtime_error(row + ": " + why);
}

// Small integers, so that every order of adding gives the same sum.
float value(int rank, std::size_t i) { return static_cast<float>((static_cast<int>(i) * 7 + rank * 3) % 11); }
numbers block_of(int rank, std::size_t count, std::size_t first = 0) {
  numbers made(count);
  for (std::size_t i = 0; i < count; ++i) made[i] = value(rank, first + i);
  return made;
}
// Elements from `first` on of the sum over the ranks 0 to ranks - 1.
numbers sum_of(int ranks, std::size_t count, std::size_t first = 0) {
  numbers made(count);
  for (int rank = 0; rank < ranks; ++rank)
    for (std::size_t i = 0; i < count; ++i) made[i] += value(rank, first + i);
  return made;
}

template <class Operation>
std::string cell_of(const Operation& op) {
  const gpu::backend with = gpu::backend_for(op).with;
  return with == gpu::backend::automatic ? "no" : with == gpu::backend::staged ? "staged" : "yes";
}

// The reported support of a call must match its outcome.
void check_end(const std::string& row, const std::string& cell, const std::error_code& ended,
               const std::string& message) {
  if ((ended == tutti::errc::not_supported) != (cell == "no") || (ended && cell != "no"))
    fail(row, "is said to be '" + cell + "' and ended with '" + message + "'");
}

// `op(c, in, out, stream...)` must set `out` to `expected`.
template <class T, class Op>
task<std::string> attempt(place at, std::string row, std::vector<T> in, std::vector<T> out,
                          std::vector<T> expected, Op op) {
  if (!at.stream) {
    co_await op(at.world, in, out);
    if (out != expected) fail(row, "a wrong result");
    co_return "yes";
  }
  const gpu::stream& s = *at.stream;
  gpu::device_buffer<T> a(s.on(), in.size()), b(s.on(), out.size());
  co_await s.upload(a, in);
  co_await s.upload(b, out);
  std::string cell = cell_of(op(at.world, a, b, s));
  const auto done = co_await tutti::as_result(op(at.world, a, b, s));
  check_end(row, cell, done.error, done.message);
  if (cell == "no") co_return cell;
  co_await s.download(out, b);
  if (out != expected) fail(row, "a wrong result");
  co_return cell;
}

void print(const place& at, const std::string& row, const std::string& cell) {
  if (at.world.rank() == 0) std::printf("| %s | %s |\n", row.c_str(), cell.c_str());
}

template <class Op>
task<> row(place at, std::string name, numbers in, numbers out, numbers expected, Op op) {
  const std::string cell = co_await attempt(at, name, in, out, expected, op);
  print(at, name, cell);
}

// Around the ring, with a probe before the receive.
task<> messages(place at, std::size_t n) {
  const int me = at.world.rank(), ranks = at.world.size();
  const int right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
  numbers out = block_of(me, n), in(n);
  tutti::status seen;
  std::string cell = "yes";
  if (at.stream) {
    const gpu::stream& s = *at.stream;
    gpu::device_buffer<float> a(s.on(), n), b(s.on(), n);
    co_await s.upload(a, out);
    cell = cell_of(at.world.send(a, right, s));
    if (cell != cell_of(at.world.recv(b, left, s))) fail("recv", "is not served as send is");
    tutti::request sending = at.world.isend(a, right, s);
    seen = co_await at.world.probe(left, tutti::any_tag, s);
    co_await at.world.recv(b, left, s);
    co_await sending;
    co_await s.download(in, b);
  } else {
    tutti::request sending = at.world.isend(out, right);
    seen = co_await at.world.probe(left);
    co_await at.world.recv(in, left);
    co_await sending;
  }
  if (in != block_of(left, n) || seen.bytes != n * sizeof(float)) fail("messages", "a wrong result");
  print(at, "send, recv, probe", cell);
}

// A row of several operations, which must all have the same support.
class joint_row {
 public:
  void add(const std::string& cell) {
    if (!cell_.empty() && cell_ != cell) cell_ += " and " + cell;
    if (cell_.empty()) cell_ = cell;
  }
  const std::string& cell() const { return cell_; }

 private:
  std::string cell_;
};

task<> bits(place at) {
  const int me = at.world.rank(), ranks = at.world.size();
  std::vector<int> mine(100), nothing(100, -1), both(100, -1), any(100, 0), odd(100, 0);
  for (std::size_t i = 0; i < mine.size(); ++i)
    for (int rank = 0; rank < ranks; ++rank) {
      const int x = 8 + static_cast<int>(i) + (1 << rank);
      if (rank == me) mine[i] = x;
      both[i] &= x;
      any[i] |= x;
      odd[i] ^= x;
    }
  joint_row all;
  all.add(co_await attempt(at, "band", mine, nothing, both, [](auto& c, auto& i, auto& o, auto&... s) {
    return c.all_reduce(i, o, tutti::band, s...);
  }));
  all.add(co_await attempt(at, "bor", mine, nothing, any, [](auto& c, auto& i, auto& o, auto&... s) {
    return c.all_reduce(i, o, tutti::bor, s...);
  }));
  all.add(co_await attempt(at, "bxor", mine, nothing, odd, [](auto& c, auto& i, auto& o, auto&... s) {
    return c.all_reduce(i, o, tutti::bxor, s...);
  }));
  print(at, "all_reduce by band, bor, bxor", all.cell());
}

task<> even(place at, std::size_t n) {
  const int me = at.world.rank(), ranks = at.world.size(), root = ranks - 1;
  const std::size_t all = n * static_cast<std::size_t>(ranks), first = n * static_cast<std::size_t>(me);
  const numbers mine = block_of(me, n), to_all = block_of(me, all), nothing(n, -1), no_blocks(all, -1);
  numbers gathered, turned;
  for (int rank = 0; rank < ranks; ++rank) {
    const numbers from = block_of(rank, n), to_me = block_of(rank, n, first);
    gathered.insert(gathered.end(), from.begin(), from.end());
    turned.insert(turned.end(), to_me.begin(), to_me.end());
  }
  numbers at_root = nothing, blocks_at_root = no_blocks;
  if (me == root) {
    at_root = sum_of(ranks, n);
    blocks_at_root = gathered;
  }
  co_await row(at, "broadcast", mine, mine, block_of(root, n),
               [root](auto& c, auto&, auto& x, auto&... s) { return c.broadcast(x, root, s...); });
  co_await row(at, "all_reduce", mine, nothing, sum_of(ranks, n),
               [](auto& c, auto& i, auto& o, auto&... s) { return c.all_reduce(i, o, tutti::sum, s...); });
  const auto larger = [](float x, float y) { return x > y ? x : y; };
  numbers largest = block_of(0, n);
  for (int rank = 1; rank < ranks; ++rank)
    for (std::size_t i = 0; i < n; ++i) largest[i] = larger(largest[i], value(rank, i));
  co_await row(at, "all_reduce by a callable", mine, nothing, largest,
               [larger](auto& c, auto& i, auto& o, auto&... s) { return c.all_reduce(i, o, larger, s...); });
  co_await row(at, "reduce", mine, nothing, at_root, [root](auto& c, auto& i, auto& o, auto&... s) {
    return c.reduce(i, o, tutti::sum, root, s...);
  });
  co_await row(at, "all_gather", mine, no_blocks, gathered,
               [](auto& c, auto& i, auto& o, auto&... s) { return c.all_gather(i, o, s...); });
  co_await row(at, "gather", mine, no_blocks, blocks_at_root,
               [root](auto& c, auto& i, auto& o, auto&... s) { return c.gather(i, o, root, s...); });
  co_await row(at, "scatter", to_all, nothing, block_of(root, n, first),
               [root](auto& c, auto& i, auto& o, auto&... s) { return c.scatter(i, o, root, s...); });
  co_await row(
      at, "reduce_scatter", to_all, nothing, sum_of(ranks, n, first),
      [](auto& c, auto& i, auto& o, auto&... s) { return c.reduce_scatter(i, o, tutti::sum, s...); });
  co_await row(at, "all_to_all", to_all, no_blocks, turned,
               [](auto& c, auto& i, auto& o, auto&... s) { return c.all_to_all(i, o, s...); });
}

task<> prefixes(place at, std::size_t n) {
  const int me = at.world.rank();
  const numbers mine = block_of(me, n), nothing(n, -1);
  numbers before_me = nothing;
  if (me != 0) before_me = sum_of(me, n);
  joint_row both;
  both.add(
      co_await attempt(at, "scan", mine, nothing, sum_of(me + 1, n),
                       [](auto& c, auto& i, auto& o, auto&... s) { return c.scan(i, o, tutti::sum, s...); }));
  both.add(co_await attempt(
      at, "exclusive_scan", mine, nothing, before_me,
      [](auto& c, auto& i, auto& o, auto&... s) { return c.exclusive_scan(i, o, tutti::sum, s...); }));
  print(at, "scan, exclusive_scan", both.cell());
}

// The block of rank r has r + 1 elements.
task<> uneven(place at) {
  const int me = at.world.rank(), ranks = at.world.size(), root = ranks - 1;
  std::vector<std::size_t> lengths, same_to_all;
  std::size_t total = 0, first = 0;
  const std::size_t n = static_cast<std::size_t>(me) + 1;
  numbers gathered, turned;
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank == me) first = total;
    lengths.push_back(static_cast<std::size_t>(rank) + 1);
    same_to_all.push_back(n);
    const numbers from = block_of(rank, lengths.back(), total);
    gathered.insert(gathered.end(), from.begin(), from.end());
    total += lengths.back();
  }
  // Rank j sends j + 1 elements to each rank.
  for (int rank = 0; rank < ranks; ++rank) {
    const std::size_t length = static_cast<std::size_t>(rank) + 1;
    const numbers from = block_of(rank, length, length * static_cast<std::size_t>(me));
    turned.insert(turned.end(), from.begin(), from.end());
  }
  const std::span<const std::size_t> each(lengths), to_each(same_to_all);
  const numbers mine = block_of(me, n, first), nothing(n, -1), no_blocks(total, -1);
  numbers blocks_at_root = no_blocks;
  if (me == root) blocks_at_root = gathered;
  joint_row all;
  all.add(co_await attempt(
      at, "scatter_v", block_of(me, total), nothing, block_of(root, n, first),
      [each, root](auto& c, auto& i, auto& o, auto&... s) { return c.scatter_v(i, each, o, root, s...); }));
  all.add(co_await attempt(
      at, "gather_v", mine, no_blocks, blocks_at_root,
      [each, root](auto& c, auto& i, auto& o, auto&... s) { return c.gather_v(i, o, each, root, s...); }));
  all.add(co_await attempt(
      at, "all_gather_v", mine, no_blocks, gathered,
      [each](auto& c, auto& i, auto& o, auto&... s) { return c.all_gather_v(i, o, each, s...); }));
  all.add(co_await attempt(at, "reduce_scatter_v", block_of(me, total), nothing, sum_of(ranks, n, first),
                           [each](auto& c, auto& i, auto& o, auto&... s) {
                             return c.reduce_scatter_v(i, each, o, tutti::sum, s...);
                           }));
  all.add(co_await attempt(at, "all_to_all_v", block_of(me, n * lengths.size()), no_blocks, turned,
                           [each, to_each](auto& c, auto& i, auto& o, auto&... s) {
                             return c.all_to_all_v(i, to_each, o, each, s...);
                           }));
  print(at, "the uneven forms (_v)", all.cell());
}

// Reduces into `x`, which is two pieces for the list, and in chunks of seven elements.
task<> in_pieces(place at, std::size_t n) {
  const int ranks = at.world.size();
  numbers list_result = block_of(at.world.rank(), n), chunk_result = list_result;
  std::string list_cell = "yes", chunk_cell = "yes";
  std::size_t chunks = 0;
  if (at.stream) {
    const gpu::stream& s = *at.stream;
    gpu::device_buffer<float> x(s.on(), n), y(s.on(), n);
    co_await s.upload(x, list_result);
    co_await s.upload(y, chunk_result);
    const std::array<gpu::device_span<float>, 2> pieces{x.span().first(n / 3),
                                                        x.span().subspan(n / 3, n - n / 3)};
    list_cell = cell_of(at.world.all_reduce(pieces, tutti::sum, s));
    const auto done = co_await tutti::as_result(at.world.all_reduce(pieces, tutti::sum, s));
    check_end("list", list_cell, done.error, done.message);
    chunk_cell = cell_of(at.world.all_reduce(y, tutti::sum, s));  // support of each chunk
    auto parts = at.world.all_reduce_chunks(y, tutti::sum, 7, s);
    for (;; ++chunks) {
      const auto part = co_await parts.next();
      if (!part) break;
    }
    co_await s.download(list_result, x);
    co_await s.download(chunk_result, y);
  } else {
    const std::array<std::span<float>, 2> pieces{std::span(list_result).first(n / 3),
                                                 std::span(list_result).subspan(n / 3)};
    co_await at.world.all_reduce(pieces, tutti::sum);
    auto parts = at.world.all_reduce_chunks(chunk_result, tutti::sum, 7);
    for (;; ++chunks) {
      const auto part = co_await parts.next();
      if (!part) break;
    }
  }
  if (list_cell != "no" && list_result != sum_of(ranks, n)) fail("list", "a wrong result");
  if (chunk_result != sum_of(ranks, n) || chunks != (n + 6) / 7) fail("chunks", "a wrong result");
  print(at, "all_reduce of a list", list_cell);
  print(at, "all_reduce_chunks", chunk_cell);
}

task<> barrier(place at) {
  std::string cell = "yes";
  if (!at.stream) {
    co_await at.world.barrier();
  } else {
    cell = cell_of(at.world.barrier(*at.stream));
    const auto done = co_await tutti::as_result(at.world.barrier(*at.stream));
    check_end("barrier", cell, done.error, done.message);
  }
  print(at, "barrier", cell);
}

task<> column(communicator world, std::string memory) {
  place at;
  at.world = world;
  if (memory != "host") {
    gpu::open_options how;
    how.backend = of_devices.at(memory);
    if (how.backend == gpu::backend::nccl) how.ordinal = world.rank();  // it needs one device per rank
    at.stream = gpu::stream(co_await gpu::open(world, how));
    // The first collective detects whether processes can share memory of the device.
    gpu::device_buffer<float> x(at.stream->on(), 1);
    co_await world.broadcast(x, 0, *at.stream);
  }
  co_await messages(at, 1000);
  co_await even(at, 1000);
  co_await bits(at);
  co_await in_pieces(at, 100);
  co_await prefixes(at, 1000);
  co_await uneven(at);
  co_await barrier(at);
  co_await world.barrier();
}

// The emulated libcuda has one device unless it is told of more.
void give_each_thread_a_device(int threads) {
  const char* const library = std::getenv("TUTTI_CUDA_LIBRARY");
  void* const opened = library == nullptr ? nullptr : ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) return;
  using reset = void(int, std::uint64_t, std::uint64_t, int);
  if (auto* const found = reinterpret_cast<reset*>(::dlsym(opened, "tutti_fake_cuda_reset")))
    found(threads, 0, 0, 1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const std::string memory = argv[2];
  tutti::init_options options;
  options.backend = argv[1];
  const auto program = [&memory](communicator world) { return column(std::move(world), memory); };
  if (argc == 3) return tutti::run(options, program);
  if (memory == "nccl") give_each_thread_a_device(std::atoi(argv[3]));
  try {
    tutti::run_local(std::atoi(argv[3]), options, program);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    return 1;
  }
}

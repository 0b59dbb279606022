// SPDX-License-Identifier: Apache-2.0
// One rank of a job whose processes share a GPU, or an emulated one. Every result is checked.
//   tutti-run -n 3 gpu_share_job shared      the processes map each other's memory
// Other modes:
//   staged         they do not
//   die RANK       this rank is killed after the first collective
//   leave          rank 1 leaves after the first collective
//   peers          the stand-in for CUDA has a device for each rank, and they have windows
//   window-die RANK   this rank is killed when it has a window; the others' operations on theirs end
//   mismatch       rank 1 calls a collective of another length
//   pairs K FILE   process K of two, with two ranks each, which meet at FILE
//   nccl           by NCCL, which takes the ranks for ranks of other hosts if NCCL_HOSTID differs
//   nccl-die RANK  this rank is killed in the middle of NCCL's all_reduce; the others go on
// On CUDA, or on Level Zero with `level_zero` as the first argument.
#include <dlfcn.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <tutti/cuda.hpp>
#include <tutti/gpu/data_parallel.hpp>
#include <tutti/gpu/open.hpp>
#include <tutti/gpu/window.hpp>
#include <tutti/level_zero.hpp>
#include <tutti/nccl.hpp>
#include <tutti/tutti.hpp>
#include <vector>

namespace {

using tutti::communicator;
using tutti::errc;
using tutti::task;
namespace gpu = tutti::gpu;

bool on_level_zero = false;
int mortal = 1;

thread_local int wrong = 0;  // wrong results of this rank
void expect(bool right, const std::string& what, int rank) {
  if (right) return;
  ++wrong;
  std::printf("rank %d: %s is wrong\n", rank, what.c_str());
}

// The communicator and device of a rank.
struct place {
  communicator world;
  gpu::device device;
  gpu::stream stream;
};

// A communicator uses the options of the latest gpu::open before its first operation on memory of the device.
task<place> open(communicator world, gpu::device dev, gpu::backend by) {
  gpu::open_options how;
  how.backend = by;
  how.chunk_bytes = 4096;
  co_await gpu::open(world, dev, how);
  const place at{world, dev, gpu::stream(dev)};
  const gpu::device_buffer<float> any(dev, 1);
  const gpu::served_by first = gpu::backend_for(world.broadcast(any, 0, at.stream));
  expect(by == gpu::backend::automatic || first.with == by, "the backend", world.rank());
  co_return at;
}

template <class T>
std::vector<T> numbers(int rank, std::size_t n) {
  std::vector<T> v(n);
  for (std::size_t i = 0; i < n; ++i)
    v[i] = static_cast<T>(static_cast<float>((static_cast<int>(i) * 7 + rank * 3) % 11 + 1));
  return v;
}

// Runs `op` on host memory, and on device memory with a stream that waits for it. Both must give the same
// result.
template <class T, class Op>
task<> same(place at, const char* what, std::size_t in_size, std::size_t out_size, Op op) {
  const int me = at.world.rank();
  std::vector<T> in = numbers<T>(me, in_size), expected = numbers<T>(me, out_size), got(out_size);
  gpu::device_buffer<T> a(at.device, in_size), b(at.device, out_size);
  co_await at.stream.upload(a, in);
  co_await at.stream.upload(b, expected);
  co_await op(at.world, in, expected);
  tutti::request r = tutti::start(op(at.world, a, b, at.stream));
  at.stream.wait(r);
  co_await at.stream.download(got, b);
  co_await r;
  expect(got == expected, what, me);
}

template <class T>
task<> every_collective(place at, std::size_t n) {
  const std::size_t all = n * static_cast<std::size_t>(at.world.size());
  const int root = at.world.size() - 1;
  co_await same<T>(at, "all_reduce", n, n, [](auto& c, auto& i, auto& o, auto&... s) {
    return c.all_reduce(i, o, tutti::sum, s...);
  });
  co_await same<T>(at, "max", n, n, [](auto& c, auto& i, auto& o, auto&... s) {
    return c.all_reduce(i, o, tutti::max, s...);
  });
  co_await same<T>(at, "all_reduce in place", 0, all,
                   [](auto& c, auto&, auto& x, auto&... s) { return c.all_reduce(x, tutti::sum, s...); });
  co_await same<T>(at, "reduce", n, n, [root](auto& c, auto& i, auto& o, auto&... s) {
    return c.reduce(i, o, tutti::sum, root, s...);
  });
  co_await same<T>(at, "reduce_scatter", all, n, [](auto& c, auto& i, auto& o, auto&... s) {
    return c.reduce_scatter(i, o, tutti::sum, s...);
  });
  co_await same<T>(at, "all_gather", n, all,
                   [](auto& c, auto& i, auto& o, auto&... s) { return c.all_gather(i, o, s...); });
  co_await same<T>(at, "gather", n, all,
                   [root](auto& c, auto& i, auto& o, auto&... s) { return c.gather(i, o, root, s...); });
  co_await same<T>(at, "scatter", all, n,
                   [root](auto& c, auto& i, auto& o, auto&... s) { return c.scatter(i, o, root, s...); });
  co_await same<T>(at, "all_to_all", all, all,
                   [](auto& c, auto& i, auto& o, auto&... s) { return c.all_to_all(i, o, s...); });
  co_await same<T>(at, "broadcast", 0, all,
                   [root](auto& c, auto&, auto& x, auto&... s) { return c.broadcast(x, root, s...); });
}

// Twelve collectives of different sizes at once, a third of them on `staged`. No rank may mix up their data.
task<> many_in_flight(place at, communicator staged) {
  const auto op = [](std::size_t i, auto& c, auto& in, auto& out, auto&... s) -> tutti::operation<> {
    if (i % 2 == 0) return c.all_gather(in, out, s...);
    return c.all_reduce(in, out, tutti::premul_sum(0.5F), s...);
  };
  std::vector<std::vector<float>> values;
  std::vector<gpu::device_buffer<float>> in, out;
  std::vector<tutti::request> requests;
  for (std::size_t i = 0; i < 12; ++i) {
    std::vector<float>& mine = values.emplace_back(numbers<float>(at.world.rank(), 1 + (11 - i) * 997));
    for (float& x : mine) x += static_cast<float>(100 * i);
    in.emplace_back(at.device, mine.size());
    out.emplace_back(at.device,
                     i % 2 == 0 ? mine.size() * static_cast<std::size_t>(at.world.size()) : mine.size());
    co_await at.stream.upload(in[i], mine);
    requests.push_back(tutti::start(op(i, i % 3 == 0 ? staged : at.world, in[i], out[i], at.stream)));
  }
  for (tutti::request& r : requests) co_await r;
  for (std::size_t i = 0; i < 12; ++i) {
    std::vector<float> expected(out[i].size()), got(out[i].size());
    co_await op(i, at.world, values[i], expected);
    co_await at.stream.download(got, out[i]);
    expect(got == expected, "one of many", at.world.rank());
  }
}

// The first collective detects what the ranks share. Even ranks start the others before that, odd ranks after
// it.
task<> the_first_ones(place at) {
  std::vector<gpu::device_buffer<float>> buffers;
  std::vector<tutti::request> requests;
  const std::vector<float> ones(3000, 1);
  for (int i = 0; i < 6; ++i) {
    co_await at.stream.upload(buffers.emplace_back(at.device, ones.size()), ones);
    requests.push_back(tutti::start(at.world.all_reduce(buffers.back(), tutti::sum, at.stream)));
    if (i == 0 && at.world.rank() % 2 == 1) co_await requests[0];
  }
  for (tutti::request& r : requests)
    if (r) co_await r;
  std::vector<float> got(ones.size());
  for (const gpu::device_buffer<float>& b : buffers) {
    co_await at.stream.download(got, b);
    expect(got == std::vector<float>(ones.size(), static_cast<float>(at.world.size())), "the first ones",
           at.world.rank());
  }
}

task<> a_step_of_training(place at) {
  gpu::device_buffer<float> a(at.device, 5000), b(at.device, 300);
  gpu::data_parallel_options o;
  o.first_bucket_bytes = o.bucket_bytes = 1;
  o.hook = gpu::float16_hook();
  const std::vector<gpu::device_values> gradients{a, b};
  gpu::data_parallel parallel = co_await gpu::data_parallel::create(at.world, gradients, o);
  const std::vector<float> large(a.size(), static_cast<float>(at.world.rank())), little(b.size(), 3);
  co_await at.stream.upload(b, little);
  co_await at.stream.upload(a, large);
  parallel.ready(1, at.stream);
  parallel.ready(0, at.stream);
  co_await parallel.reduced(at.stream);
  std::vector<float> got(a.size());
  co_await at.stream.download(got, a);
  const float right = static_cast<float>(at.world.size() - 1) / 2;
  expect(std::abs(got[4999] - right) < 0.01F, "data_parallel", at.world.rank());
  const tutti::replica_check same = co_await gpu::compare_replicas(at.world, gradients, at.stream);
  expect(same.agree(), "compare_replicas", at.world.rank());
}

// Each rank writes its block in the windows of all, and reads them.
task<> windows(place at, std::size_t n) {
  const int me = at.world.rank(), ranks = at.world.size();
  gpu::device_buffer<float> field(at.device, n * static_cast<std::size_t>(ranks)), mine(at.device, n),
      theirs(at.device, field.size());
  gpu::window w = co_await at.world.window(field, {.signals = 1});
  co_await at.stream.upload(mine, numbers<float>(me, n));
  for (int r = 0; r < ranks; ++r)
    co_await w.put_signal(mine, r, n * static_cast<std::size_t>(me), 0, at.stream);
  const auto all_have_come = [ranks](std::uint64_t signals) {
    return signals >= static_cast<std::uint64_t>(ranks);
  };
  co_await w.wait_signal(0, all_have_come);
  std::vector<float> expected, got(field.size());
  for (int r = 0; r < ranks; ++r)
    for (const float x : numbers<float>(r, n)) expected.push_back(x);
  co_await at.stream.download(got, field);
  expect(got == expected, "put_signal", me);
  co_await at.world.barrier();  // the others' windows have all blocks, too
  for (int r = 0; r < ranks; ++r) {
    co_await at.stream.fill(theirs, std::byte{0});
    co_await w.get(theirs, r, 0, at.stream);
    co_await at.stream.download(got, theirs);
    expect(got == expected, "get", me);
  }
  co_await at.world.barrier();
  if (me == 0) {  // its memory stays until the others have closed it
    w = {};
    field = {};
  }
  co_await at.world.barrier();
  if (me == 0) co_return;
  const auto gone = co_await tutti::as_result(w.get(mine, 0, 0, at.stream));
  expect(gone.error == errc::peer_left, "get of a window that was dropped", me);
}

task<int> killed_with_a_window(place at) {
  const int me = at.world.rank();
  gpu::device_buffer<float> field(at.device, 1000);
  gpu::window w = co_await at.world.window(field, {.signals = 1});
  co_await w.put_signal(field, (me + 1) % at.world.size(), 0, 0, at.stream);
  co_await w.wait_signal(0, [](std::uint64_t n) { return n >= 1; });
  co_await at.world.barrier();
  if (me == mortal) ::raise(SIGKILL);
  const auto told = co_await tutti::as_result(w.wait_signal(0, [](std::uint64_t n) { return n >= 2; }));
  std::printf("rank %d: told: %s\n", me, told.message.c_str());
  const auto put = co_await tutti::as_result(w.put(field, mortal, 0, at.stream));
  expect(put.error == errc::peer_failed || put.error == errc::communicator_failed, "a put", me);
  co_return told.error == errc::peer_failed&& wrong == 0 ? 0 : 1;
}

// What NCCL has beside collectives, and collectives of some ranks only.
task<> exchange_register_and_split(place at) {
  const communicator world = at.world;
  const int me = world.rank(), ranks = world.size();
  const int right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
  const std::size_t n = 5000;
  const std::vector<float> mine = numbers<float>(me, n);
  std::vector<float> got(n), expected(n);
  gpu::device_buffer<float> a(at.device, n), b(at.device, n);
  co_await at.stream.upload(a, mine);
  tutti::nccl::batch ring;
  ring.send(a, right).recv(b, left);
  co_await tutti::nccl::exchange(world, ring, at.stream);
  co_await at.stream.download(got, b);
  expect(got == numbers<float>(left, n), "exchange", me);
  const tutti::nccl::registration known = co_await tutti::nccl::register_memory(world, a);
  const auto own = co_await tutti::nccl::allocate<float>(world, n);
  co_await world.all_reduce(mine, expected, tutti::max);
  co_await world.all_reduce(a, own.second, tutti::max, at.stream);
  co_await at.stream.download(got, own.second);
  expect(known && got == expected, "all_reduce of registered memory", me);
  place some = at;
  some.world = co_await world.split(me % 2, me);
  co_await every_collective<float>(some, 1000);
}

// Times are those of CLOCK_MONOTONIC, which the processes of a machine share.
double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

task<int> killed_in_nccl(place at) {
  const communicator world = at.world;
  const int me = world.rank(), ranks = world.size();
  gpu::device_buffer<float> a(at.device, 16 << 20);
  co_await at.stream.fill(a, std::byte{0});
  co_await world.all_reduce(a, tutti::sum, at.stream);  // connects
  double moment = now() + 0.3;
  co_await world.broadcast(moment, 0);
  if (me == mortal)
    std::thread([moment] {
      while (now() < moment) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ::raise(SIGKILL);
    }).detach();
  tutti::result<void> told;
  int calls = 0;
  for (; !told.error; ++calls) told = co_await tutti::as_result(world.all_reduce(a, tutti::sum, at.stream));
  std::printf("rank %d: told %.3f s after the kill, in call %d: %s\n", me, now() - moment, calls,
              told.message.c_str());
  const communicator next = co_await world.shrink();
  const place rest = co_await open(next, at.device, gpu::backend::nccl);
  const std::vector<float> ones(a.size(), 1);
  co_await rest.stream.upload(a, ones);
  co_await next.all_reduce(a, tutti::sum, rest.stream);
  std::vector<float> got(a.size());
  co_await rest.stream.download(got, a);
  std::printf("rank %d: %d ranks go on by NCCL, %.3f s after the kill\n", me, next.size(), now() - moment);
  co_return next.size() == ranks - 1 && got.back() == static_cast<float>(ranks - 1) ? 0 : 1;
}

task<int> job(communicator world, std::string mode) {
  const int ordinal = mode == "peers" ? world.rank() : 0;
  const gpu::device dev =
      on_level_zero ? tutti::level_zero::open(world, ordinal) : tutti::cuda::open(world, ordinal);
  communicator beside = co_await world.duplicate();
  const place staged = co_await open(beside, dev, gpu::backend::staged);
  const bool by_nccl = mode.starts_with("nccl");
  const place at = co_await open(world, dev,
                                 by_nccl           ? gpu::backend::nccl
                                 : mode == "peers" ? gpu::backend::staged
                                                   : gpu::backend::automatic);
  if (mode == "nccl-die") {
    const int code = co_await killed_in_nccl(at);
    co_return code;
  }
  if (mode == "window-die") {
    const int code = co_await killed_with_a_window(at);
    co_return code;
  }
  const int me = world.rank();
  gpu::device_buffer<float> a(dev, mode == "mismatch" && me == 1 ? 30'000 : 100'000);

  if (mode == "die" || mode == "leave" || mode == "mismatch") {
    tutti::result<void> told;
    if (mode == "leave") co_await world.broadcast(a, 0, at.stream);
    // A root that is killed as soon as its part is done may take the others' parts with it.
    if (mode == "die") told = co_await tutti::as_result(world.broadcast(a, 0, at.stream));
    if (me == mortal && mode == "die") ::raise(SIGKILL);
    if (me == mortal && mode == "leave") co_return 0;
    if (!told.error) told = co_await tutti::as_result(world.broadcast(a, 0, at.stream));
    std::printf("rank %d: told: %s\n", me, told.message.c_str());
    co_return told.error && (mode != "mismatch" || told.error == errc::mismatch) ? 0 : 1;
  }
  if (mode != "peers") co_await the_first_ones(at);
  const bool shared = gpu::backend_for(world.broadcast(a, 0, at.stream)).with == gpu::backend::one_device;
  expect(by_nccl || shared == (mode == "shared"), shared ? "shared memory" : "memory of its own", me);
  for (const auto& refusal : gpu::backend_for(world.all_to_all(a, a, at.stream)).not_by)
    if (me == 0 && refusal.by == gpu::backend::one_device)
      std::printf("not by one_device: %s\n", refusal.why.c_str());

  co_await every_collective<float>(at, 1);
  co_await every_collective<float>(at, 3001);
  co_await every_collective<int>(at, 20'000);
  co_await every_collective<tutti::bfloat16>(at, 777);
  co_await every_collective<double>(at, 0);
  co_await many_in_flight(at, staged.world);
  co_await a_step_of_training(at);
  for (const std::size_t n : {1, 5000, 70'000})
    if (shared || mode == "peers") co_await windows(at, n);
  if (mode == "staged") {
    const auto refused = co_await tutti::as_result(world.window(a));
    if (me == 0 && refused.error) std::printf("no window: %s\n", refused.message.c_str());
  }
  if (by_nccl) co_await exchange_register_and_split(at);
  // Communicators made and destroyed in turn: each reuses the memory of the one before.
  for (const std::size_t n : {5000, 10, 10, 10, 10}) {
    place second = at;
    second.world = co_await world.duplicate();
    co_await every_collective<float>(second, n);
  }
  co_await world.all_reduce(wrong, tutti::sum);
  if (me == 0 && wrong == 0) std::printf("%d ranks: all right\n", world.size());
  co_return wrong == 0 ? 0 : 1;
}

// Gives the stand-in for CUDA so many devices.
void make_devices(int n) {
  void* const library = ::dlopen(std::getenv("TUTTI_CUDA_LIBRARY"), RTLD_NOW);
  using function = void (*)(int, std::uint64_t, std::uint64_t, int);
  const auto reset = reinterpret_cast<function>(::dlsym(library, "tutti_fake_cuda_reset"));
  if (reset != nullptr) reset(n, 0, 0, 1);
}

// Returns 1 if the emulated driver has counted misuse, or memory that is not freed.
int findings(int rank) {
  const char* const path = std::getenv(on_level_zero ? "ZE_ENABLE_ALT_DRIVERS" : "TUTTI_CUDA_LIBRARY");
  void* const library = path == nullptr ? nullptr : ::dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return 0;
  const auto find = [library](const std::string& what) {
    return ::dlsym(library, ((on_level_zero ? "tutti_level_zero_" : "tutti_fake_cuda_") + what).c_str());
  };
  const auto misuses = reinterpret_cast<std::uint64_t (*)()>(find("misuses"));
  const auto last = reinterpret_cast<const char* (*)()>(find("last_misuse"));
  const auto allocations = reinterpret_cast<std::uint64_t (*)(int)>(find("allocations"));
  if (misuses == nullptr || last == nullptr || allocations == nullptr) return 0;
  if (misuses() > 0) std::printf("rank %d: misuse of the driver: %s\n", rank, last());
  // Rank 0 keeps memory that other processes have opened: one piece for each communicator that lived at a time.
  const std::uint64_t most = rank == 0 ? 3 : 0;
  // A thread of the device frees memory.
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (allocations(0) > most && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  const std::uint64_t left = allocations(0);
  if (left > most) std::printf("rank %d: %d allocations are left\n", rank, static_cast<int>(left));
  return misuses() > 0 || left > most ? 1 : 0;
}

task<int> one_of_a_pair(tutti::runtime* rt, tutti::init_options o) {
  communicator world = co_await tutti::init(*rt, o);
  const int code = co_await job(std::move(world), "shared");
  co_return code;
}

int pairs(int process, const std::string& file) {
  int codes[2] = {1, 1};
  std::vector<std::thread> ranks;
  for (int i = 0; i < 2; ++i)
    ranks.emplace_back([process, i, &file, &codes] {
      tutti::init_options o;
      o.init_method = "file://" + file;
      o.rank = 2 * process + i;
      o.world_size = 4;
      try {
        tutti::runtime rt;
        codes[i] = rt.run(one_of_a_pair(&rt, o));
      } catch (const std::exception& e) {
        std::printf("rank %d: %s\n", o.rank, e.what());
      }
    });
  for (std::thread& t : ranks) t.join();
  return std::max(codes[0], codes[1]);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "level_zero") {
    on_level_zero = true;
    --argc;
    ++argv;
  }
  const std::string mode = argc > 1 ? argv[1] : "shared";
  if (mode == "pairs" && argc == 4) {
    const int process = std::atoi(argv[2]), code = pairs(process, argv[3]), found = findings(2 * process);
    return code != 0 ? code : found;
  }
  if (mode.ends_with("die") && argc == 3) mortal = std::atoi(argv[2]);
  if (mode == "peers") make_devices(2);
  int rank = -1;
  const int code = tutti::run([&](communicator world) {
    rank = world.rank();
    return job(std::move(world), mode);
  });
  if (mode.ends_with("die")) return code;  // the killed rank has closed nothing
  const int found = findings(rank);
  return code != 0 ? code : found;
}

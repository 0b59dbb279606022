// SPDX-License-Identifier: Apache-2.0
// One rank of a job whose processes share a GPU, or what stands in for one: collectives on it, with every
// result checked.
//   tutti-run -n 3 gpu_share_job shared      the processes reach each other's memory
//   ... staged: they do not; die RANK: it ends in between; mismatch: they call different collectives; leave:
//   rank 1 goes first; pairs K FILE: process K of two, with two ranks each, which meet at FILE
// On CUDA; with `level_zero` before all that on Level Zero, where tutti has no kernels.
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
#include <tutti/gpu/device_communicator.hpp>
#include <tutti/gpu/open.hpp>
#include <tutti/level_zero.hpp>
#include <tutti/tutti.hpp>
#include <vector>

namespace {

using tutti::communicator;
using tutti::errc;
using tutti::task;
namespace gpu = tutti::gpu;

bool on_level_zero = false;
int mortal = 1;

thread_local int wrong = 0;  // of one rank
void expect(bool right, const std::string& what, int rank) {
  if (right) return;
  ++wrong;
  std::printf("rank %d: %s is wrong\n", rank, what.c_str());
}

template <class T>
T number(int rank, std::size_t i) {
  return static_cast<T>(static_cast<float>((static_cast<int>(i) * 7 + rank * 3) % 11 + 1));
}

template <class T>
class exercise {
 public:
  exercise(gpu::device_communicator c, gpu::stream s, std::size_t n, gpu::path way)
      : comm_(std::move(c)),
        stream_(std::move(s)),
        way_(way),
        reductions_(comm_.on().can().kernels ? way : gpu::path::automatic),
        me_(comm_.rank()),
        ranks_(comm_.size()),
        n_(n),
        all_(n * static_cast<std::size_t>(ranks_)),
        in_(comm_.on(), all_),
        out_(comm_.on(), all_),
        got_(all_) {}

  task<> run() {
    const int root = ranks_ - 1;
    const auto mine = in_.span().first(n_);
    const auto result = out_.span().first(n_);
    std::vector<T> values(all_);
    for (std::size_t i = 0; i < all_; ++i) values[i] = number<T>(me_, i);
    const auto is_sum = [this](std::size_t i, std::size_t at) { return got_[i] == sum_at(at); };

    co_await stream_.upload(in_, values);
    co_await finished(comm_.all_reduce(mine, result, tutti::sum, stream_), reductions_);
    for (std::size_t i = 0; i < n_; ++i) expect(is_sum(i, i), "all_reduce", me_);
    co_await finished(comm_.all_reduce(mine, result, tutti::max, stream_), reductions_);
    for (std::size_t i = 0; i < n_; ++i) expect(got_[i] == most_at(i), "max", me_);
    co_await finished(comm_.reduce(mine, result, tutti::sum, root, stream_), reductions_);
    for (std::size_t i = 0; i < n_ && me_ == root; ++i) expect(is_sum(i, i), "reduce", me_);
    co_await finished(comm_.all_gather(mine, out_, stream_), way_);
    for (std::size_t i = 0; i < all_; ++i)
      expect(got_[i] == number<T>(static_cast<int>(i / n_), i % n_), "all_gather", me_);
    co_await finished(comm_.gather(mine, out_, root, stream_), way_);
    for (std::size_t i = 0; i < all_ && me_ == root; ++i)
      expect(got_[i] == number<T>(static_cast<int>(i / n_), i % n_), "gather", me_);
    co_await finished(comm_.scatter(in_, result, root, stream_), way_);
    for (std::size_t i = 0; i < n_; ++i) expect(got_[i] == number<T>(root, first() + i), "scatter", me_);
    co_await finished(comm_.reduce_scatter(in_, result, tutti::sum, stream_), reductions_);
    for (std::size_t i = 0; i < n_; ++i) expect(is_sum(i, first() + i), "reduce_scatter", me_);
    if (way_ == gpu::path::automatic) {
      co_await finished(comm_.all_to_all(in_, out_, stream_), way_);
      for (std::size_t i = 0; i < all_; ++i)
        expect(got_[i] == number<T>(static_cast<int>(i / n_), first() + i % n_), "all_to_all", me_);
    }
    // In place.
    co_await finished(comm_.broadcast(in_, root, stream_), way_);
    co_await stream_.download(got_, in_);
    for (std::size_t i = 0; i < all_; ++i) expect(got_[i] == number<T>(root, i), "broadcast", me_);
    co_await stream_.upload(in_, values);
    co_await finished(comm_.all_reduce(in_, tutti::sum, stream_), reductions_);
    co_await stream_.download(got_, in_);
    for (std::size_t i = 0; i < all_; ++i) expect(is_sum(i, i), "all_reduce in place", me_);
  }

 private:
  // What is in out_ then is in got_.
  task<> finished(gpu::operation op, gpu::path way) {
    gpu::work w = tutti::start(std::move(op).by(way));
    co_await w.enqueued();
    stream_.wait(w);
    co_await stream_.download(got_, out_);
    co_await w;
  }
  std::size_t first() const { return static_cast<std::size_t>(me_) * n_; }
  T sum_at(std::size_t i) const {
    float all = 0;
    for (int r = 0; r < ranks_; ++r) all += static_cast<float>(number<T>(r, i));
    return static_cast<T>(all);
  }
  T most_at(std::size_t i) const {
    T most = number<T>(0, i);
    for (int r = 1; r < ranks_; ++r) most = std::max(most, number<T>(r, i));
    return most;
  }

  gpu::device_communicator comm_;
  gpu::stream stream_;
  gpu::path way_, reductions_;
  int me_, ranks_;
  std::size_t n_, all_;
  gpu::device_buffer<T> in_, out_;
  std::vector<T> got_;
};

template <class T>
task<> exercises(gpu::device_communicator comm, gpu::stream s, std::size_t n, gpu::path way) {
  exercise<T> all(comm, s, n, way);
  co_await all.run();
}

// Without waiting in between, of several sizes.
task<> many_in_flight(gpu::device_communicator comm, gpu::stream s) {
  std::vector<gpu::device_buffer<float>> buffers;
  std::vector<gpu::work> works;
  for (std::size_t i = 0; i < 12; ++i) {
    gpu::device_buffer<float>& b = buffers.emplace_back(comm.on(), 1 + i * 997);
    const std::vector<float> values(b.size(), static_cast<float>(i));
    gpu::work up = tutti::start(s.upload(b, values));
    gpu::operation op = i % 4 == 3   ? comm.broadcast(b, 0, s)
                        : i % 2 == 0 ? comm.all_reduce(b, tutti::sum, s)
                                     : comm.all_reduce(b, tutti::premul_sum(0.5F), s);
    works.push_back(tutti::start(i % 3 == 0 ? std::move(op).by(gpu::path::staged) : std::move(op)));
  }
  for (gpu::work& w : works) co_await w;
  for (std::size_t i = 0; i < 12; ++i) {
    std::vector<float> got(buffers[i].size());
    co_await s.download(got, buffers[i]);
    const auto ranks = static_cast<float>(comm.size());
    const float factor = i % 4 == 3 ? 1 : i % 2 == 0 ? ranks : ranks * 0.5F;
    expect(got.back() == static_cast<float>(i) * factor, "one of many", comm.rank());
  }
}

// All of them by the shared device: what the hosts tell each other about one is not taken for another's.
task<> many_at_a_time(gpu::device_communicator comm, gpu::stream s) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  std::vector<gpu::device_buffer<int>> in, out;
  std::vector<gpu::work> works;
  const auto number_at = [](std::size_t rank, std::size_t i, std::size_t at) {
    return static_cast<int>(rank * 1'000'000 + i * 20'000 + at);
  };
  for (std::size_t i = 0; i < 12; ++i) {
    const std::size_t n = 1 + (11 - i) * 997;
    gpu::device_buffer<int>& mine = in.emplace_back(comm.on(), n);
    gpu::device_buffer<int>& all = out.emplace_back(comm.on(), n * ranks);
    std::vector<int> values(n);
    for (std::size_t at = 0; at < n; ++at)
      values[at] = number_at(static_cast<std::size_t>(comm.rank()), i, at);
    co_await s.upload(mine, values);
    works.push_back(tutti::start(comm.all_gather(mine, all, s)));
  }
  for (gpu::work& w : works) co_await w;
  for (std::size_t i = 0; i < 12; ++i) {
    std::vector<int> got(out[i].size());
    co_await s.download(got, out[i]);
    const std::size_t n = in[i].size();
    for (std::size_t at = 0; at < got.size(); ++at)
      expect(got[at] == number_at(at / n, i, at % n), "one of many all_gathers", comm.rank());
  }
}

// In the first collective the ranks find out what they share. Some start the others before they know, some after.
task<> the_first_ones(communicator world, gpu::device dev, gpu::stream s) {
  std::vector<gpu::device_buffer<float>> buffers;
  std::vector<tutti::request> requests;
  const std::vector<float> ones(3000, 1);
  for (int i = 0; i < 6; ++i) {
    co_await s.upload(buffers.emplace_back(dev, ones.size()), ones);
    requests.push_back(tutti::start(world.all_reduce(buffers.back(), tutti::sum, s)));
    if (i == 0 && world.rank() % 2 == 1) co_await requests[0];
  }
  for (tutti::request& r : requests)
    if (r) co_await r;
  std::vector<float> got(ones.size());
  for (const gpu::device_buffer<float>& b : buffers) {
    co_await s.download(got, b);
    expect(got == std::vector<float>(ones.size(), static_cast<float>(world.size())), "the first ones",
           world.rank());
  }
}

task<> a_step_of_training(communicator world, gpu::device_communicator comm, gpu::stream s,
                          std::size_t chunk_bytes) {
  gpu::device_buffer<float> a(comm.on(), 5000), b(comm.on(), 300);
  gpu::data_parallel_options o;
  o.first_bucket_bytes = o.bucket_bytes = 1;
  o.hook = gpu::float16_hook();
  const std::vector<gpu::device_values> gradients{a, b};
  gpu::open_options open;
  open.chunk_bytes = chunk_bytes;
  co_await gpu::open(world, comm.on(), open);
  co_await the_first_ones(world, comm.on(), s);
  gpu::data_parallel parallel = co_await gpu::data_parallel::create(world, gradients, o);
  const std::vector<float> large(a.size(), static_cast<float>(world.rank())), little(b.size(), 3);
  gpu::work one = tutti::start(s.upload(b, little)), two = tutti::start(s.upload(a, large));
  parallel.ready(1, s);
  parallel.ready(0, s);
  co_await parallel.reduced(s);
  std::vector<float> got(a.size());
  co_await s.download(got, a);
  const float right = static_cast<float>(world.size() - 1) / 2;
  expect(std::abs(got[4999] - right) < 0.01F, "data_parallel", world.rank());
  const tutti::replica_check same = co_await gpu::compare_replicas(world, gradients, s);
  expect(same.agree(), "compare_replicas", world.rank());
}

task<> refusals(gpu::device_communicator comm, gpu::stream s, bool shared) {
  gpu::device_buffer<float> a(comm.on(), 120);
  gpu::operation op = shared ? comm.all_to_all(a, a, s) : comm.all_reduce(a, tutti::sum, s);
  const auto refused = co_await tutti::as_result(std::move(op).by(gpu::path::one_device));
  expect(refused.error == errc::not_supported, "a refusal", comm.rank());
  if (comm.rank() == 0) std::printf("refused: %s\n", refused.message.c_str());
}

task<int> job(communicator world, std::string mode) {
  const gpu::device dev = on_level_zero ? tutti::level_zero::open(world, 0) : tutti::cuda::open(world, 0);
  const gpu::stream s(dev);
  gpu::communicator_options how;
  how.chunk_bytes = 4096;
  gpu::device_communicator comm = co_await gpu::init(world, dev, how);
  const bool shared = comm.can(gpu::path::one_device);
  expect(shared == (mode != "staged"), shared ? "shared memory" : "memory of its own", world.rank());

  if (mode == "die" || mode == "leave") {
    gpu::device_buffer<float> a(dev, 100'000);
    co_await comm.broadcast(a, 0, s).by(gpu::path::one_device);
    if (world.rank() == mortal && mode == "die") ::raise(SIGKILL);
    if (world.rank() == mortal) co_return 0;
    const auto told = co_await tutti::as_result(comm.broadcast(a, 0, s).by(gpu::path::one_device));
    std::printf("rank %d: told: %s\n", world.rank(), told.message.c_str());
    co_return told.error ? 0 : 1;
  }
  if (mode == "mismatch") {
    gpu::device_buffer<float> a(dev, world.rank() == 1 ? 30'000 : 100);
    const auto told = co_await tutti::as_result(comm.broadcast(a, 0, s).by(gpu::path::one_device));
    std::printf("rank %d: told: %s\n", world.rank(), told.message.c_str());
    co_return told.error == errc::mismatch ? 0 : 1;
  }
  for (const gpu::path way : {gpu::path::automatic, gpu::path::one_device}) {
    if (way == gpu::path::one_device && !shared) continue;
    co_await exercises<float>(comm, s, 1, way);
    co_await exercises<float>(comm, s, 3001, way);
    co_await exercises<int>(comm, s, 20'000, way);
    co_await exercises<tutti::bfloat16>(comm, s, 777, way);
    co_await exercises<double>(comm, s, 0, way);
  }
  co_await many_in_flight(comm, s);
  co_await many_at_a_time(comm, s);
  co_await a_step_of_training(world, comm, s, how.chunk_bytes);
  co_await refusals(comm, s, shared);
  // Another one beside it, which goes first.
  gpu::device_communicator second = co_await gpu::init(world, dev, how);
  co_await exercises<float>(second, s, 5000, gpu::path::automatic);
  second = gpu::device_communicator();
  // What one leaves behind is the next one's.
  for (int i = 0; i < 5; ++i) {
    co_await world.barrier();
    second = co_await gpu::init(world, dev, how);
    co_await exercises<float>(second, s, 10, gpu::path::automatic);
    second = gpu::device_communicator();
  }
  co_await world.all_reduce(wrong, tutti::sum);
  if (world.rank() == 0 && wrong == 0) std::printf("%d ranks: all right\n", world.size());
  co_return wrong == 0 ? 0 : 1;
}

// What the stand-in has counted: broken rules, memory that nobody has freed.
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
  // Memory that others have opened is kept: of three communicators at a time three pieces, on rank 0.
  const std::uint64_t most = rank == 0 ? 3 : 0;
  // A thread of the device's frees it.
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
  if (mode == "die" && argc == 3) mortal = std::atoi(argv[2]);
  int rank = -1;
  const int code = tutti::run([&](communicator world) {
    rank = world.rank();
    return job(std::move(world), mode);
  });
  if (mode == "die") return code;  // the dead have closed nothing
  const int found = findings(rank);
  return code != 0 ? code : found;
}

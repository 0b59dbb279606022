// SPDX-License-Identifier: Apache-2.0
// gpu-perf: the cost of tutti's device operations, compared with CUDA and NCCL alone and with the limits of
// the machine. Checks each result: a wrong one fails the program.
//   gpu-perf --device cuda                     one rank: latencies, copies, NCCL
//   gpu-perf --device cuda --ranks 4           ranks as threads that share the device: one_device and staged
//   tutti-run -n 2 gpu-perf --device cuda      ranks as processes
// Options: --only latency,calls,park,gates,copies,all_reduce,away,nccl (some parts); --largest 16 (messages
// of at most 16 MiB); --rounds 500 (repetitions of latencies).
#include "common/statistics.hpp"
#include "gpu/raw_cuda.hpp"

#include <algorithm>
#include <atomic>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <semaphore>
#include <string>
#include <thread>
#include <tutti/cuda.hpp>
#include <tutti/emulated.hpp>
#include <tutti/gpu.hpp>
#include <tutti/tutti.hpp>
#include <utility>
#include <vector>

namespace {

namespace gpu = tutti::gpu;
using tutti::task;
using clock_type = std::chrono::steady_clock;
using namespace std::chrono_literals;

double seconds(clock_type::duration d) { return std::chrono::duration<double>(d).count(); }
double quantile(std::vector<double> v, double q) {
  std::sort(v.begin(), v.end());
  return perf::quantile(v, q);
}
double median(std::vector<double> v) { return quantile(std::move(v), 0.5); }

struct session {
  tutti::communicator world;
  gpu::device dev;
  bool cuda = false;
  int rounds = 200;
  std::size_t largest_mib = 64;
  std::string only;  // empty: all parts
  bool wrong = false;
  double to_device = 0, to_host = 0, on_device = 0;  // bytes per second, measured

  bool wants(const std::string& part) const {
    return only.empty() || ("," + only + ",").find("," + part + ",") != std::string::npos;
  }
  std::size_t largest() const { return largest_mib << 20; }
  void row(const char* name, const std::string& what, double value, const char* unit,
           const char* check = "-") const {
    if (world.rank() == 0)
      std::printf("%-22s %-34s %12.2f %-6s %s\n", name, what.c_str(), value, unit, check);
    std::fflush(stdout);
  }
};

// The way without tutti: a thread waits in cuStreamSynchronize, then wakes the loop.
class waiting_thread {
 public:
  waiting_thread(const tutti::perf::gpu::raw_cuda& raw, void* stream, const tutti::communicator& world)
      : reached_(world.get_executor()), thread_([this, &raw, stream] {
          for (begin_.acquire(); !over_; begin_.acquire()) {
            raw.synchronize(stream);
            boost::asio::post(reached_.get_executor(), [this] { reached_.cancel(); });
          }
        }) {}
  ~waiting_thread() {
    over_ = true;
    begin_.release();
    thread_.join();
  }
  task<> wait() {
    reached_.expires_at(clock_type::time_point::max());
    begin_.release();
    co_await reached_.async_wait(boost::asio::as_tuple(boost::asio::deferred));
  }

 private:
  boost::asio::steady_timer reached_;
  std::binary_semaphore begin_{0};
  std::atomic<bool> over_{false};
  std::thread thread_;
};

// From the enqueueing call to the resumption of the coroutine.
task<> latency(session* s) {
  const gpu::stream stream(s->dev);
  gpu::device_buffer<int> word(s->dev, 1);
  std::vector<double> awaited, spun, by_thread;
  std::optional<tutti::perf::gpu::raw_cuda> raw;
  std::optional<waiting_thread> thread;
  if (s->cuda) thread.emplace(raw.emplace(), stream.native(), s->world);
  for (int i = 0; i < s->rounds; ++i) {
    auto begin = clock_type::now();
    tutti::request filled = tutti::start(stream.fill(word, std::byte{1}));
    co_await stream.reached();
    awaited.push_back(seconds(clock_type::now() - begin) * 1e6);
    if (!raw) continue;
    begin = clock_type::now();
    tutti::request again = tutti::start(stream.fill(word, std::byte{1}));
    raw->spin_on_event(stream.native());
    spun.push_back(seconds(clock_type::now() - begin) * 1e6);
    co_await again;
    begin = clock_type::now();
    again = tutti::start(stream.fill(word, std::byte{1}));
    co_await thread->wait();
    by_thread.push_back(seconds(clock_type::now() - begin) * 1e6);
    co_await again;
  }
  s->row("latency", "stream to coroutine, median", median(awaited), "us");
  s->row("latency", "stream to coroutine, 99 %", quantile(awaited, 0.99), "us");
  if (raw) {
    s->row("latency", "spinning cuEventQuery, median", median(spun), "us");
    s->row("latency", "a thread in cuStreamSynchronize", median(by_thread), "us");
    s->row("latency", "difference of the medians", median(awaited) - median(spun), "us",
           median(awaited) - median(spun) <= 3 ? "within 3" : "above 3");
  }
}

// Times of the calls behind completion: alone, and while another thread is in cuStreamSynchronize.
task<> calls(session* s) {
  if (!s->cuda || !s->dev.can().gate) co_return;
  const gpu::stream stream(s->dev), held(s->dev);
  const tutti::perf::gpu::raw_cuda raw;
  const int times = s->rounds;
  // The driver has made some dozens already.
  std::vector<gpu::stream> streams;
  std::vector<double> from_stock, made_now;
  for (int i = 0; i < 64; ++i) {
    const auto begin = clock_type::now();
    streams.emplace_back(s->dev);
    (i < 16 ? from_stock : made_now).push_back(seconds(clock_type::now() - begin));
  }
  s->row("calls", "a stream from the stock", median(from_stock) * 1e6, "us");
  s->row("calls", "a stream, the slowest of 48 more", quantile(made_now, 1) * 1e6, "us");
  s->row("calls", "cuEventRecord", raw.time_of_record(stream.native(), times) * 1e6, "us");
  co_await stream.reached();
  s->row("calls", "cuEventQuery of what has passed", raw.time_of_query(times) * 1e6, "us");
  gpu::gate closed = held.close();
  raw.time_of_record(held.native(), 1);
  s->row("calls", "cuEventQuery of what has not", raw.time_of_query(times) * 1e6, "us");
  // If queries wait for the other thread's call, a third thread opens the gate after at most a second.
  std::atomic<bool> there{false}, over{false};
  std::string failure, failure_of_other;
  std::thread other([&] {
    there = true;
    try {
      raw.synchronize(held.native());
    } catch (const std::exception& e) {
      failure_of_other = e.what();
    }
  });
  std::thread opener([&] {
    for (const auto until = clock_type::now() + 1s; !over && clock_type::now() < until;)
      std::this_thread::sleep_for(1ms);
    closed.open();
  });
  while (!there) std::this_thread::yield();
  std::this_thread::sleep_for(5ms);  // the thread sets `there` before its call
  double beside = 0;
  try {
    beside = raw.time_of_query(times);
  } catch (const std::exception& e) {
    failure = e.what();
  }
  over = true;
  opener.join();
  other.join();
  failure += failure_of_other;
  if (!failure.empty()) throw std::runtime_error(failure);
  s->row("calls", "  beside cuStreamSynchronize", beside * 1e6, "us");
}

// Streams share few hardware queues. Counts the streams that a closed gate of another one blocks.
task<> gates(session* s) {
  if (!s->dev.can().gate) co_return;
  for (const std::size_t n : {8, 16, 32}) {
    const gpu::stream first(s->dev);
    std::vector<gpu::stream> streams;
    std::vector<gpu::device_buffer<int>> words;
    for (std::size_t i = 1; i < n; ++i) {
      streams.emplace_back(s->dev);
      words.emplace_back(s->dev, 1);
    }
    gpu::gate closed = first.close();
    std::vector<tutti::request> started;
    for (std::size_t i = 0; i + 1 < n; ++i)
      started.push_back(tutti::start(streams[i].fill(words[i], std::byte{1})));
    const auto going = [&started] {
      return std::count_if(started.begin(), started.end(), [](const tutti::request& w) { return w.done(); });
    };
    boost::asio::steady_timer pause(s->world.get_executor());
    for (int i = 0; i < 100 && going() + 1 < static_cast<std::ptrdiff_t>(n); ++i) {
      pause.expires_after(2ms);
      co_await pause.async_wait(boost::asio::deferred);
    }
    const auto held = static_cast<std::ptrdiff_t>(n) - 1 - going();
    closed.open();
    for (tutti::request& w : started) co_await w;
    s->row("gates", "one of " + std::to_string(n) + " streams: others held", static_cast<double>(held), "");
  }
}

// Whether a stream passes an event that was recorded before a gate of its stream, if it waits for it afterwards;
// and how many of 15 streams a copy behind a closed gate holds up.
task<> behind_gates(session* s) {
  if (!s->cuda || !s->dev.can().gate) co_return;
  const tutti::perf::gpu::raw_cuda raw;
  boost::asio::steady_timer pause(s->world.get_executor());
  const gpu::stream first(s->dev);
  std::vector<gpu::stream> streams;
  std::vector<gpu::device_buffer<int>> words;
  std::vector<gpu::pinned_buffer<int>> copies;
  for (int i = 0; i < 16; ++i) {
    streams.emplace_back(s->dev);
    words.emplace_back(s->dev, 1 << 18);
    copies.emplace_back(s->dev, 1 << 18);
  }
  raw.time_of_record(first.native(), 1);
  gpu::gate closed = first.close();
  raw.wait(streams[0].native());
  tutti::request after = tutti::start(streams[0].fill(words[0], std::byte{1}));
  pause.expires_after(50ms);
  co_await pause.async_wait(boost::asio::deferred);
  s->row("gates", "event before a gate, awaited after", after.done() ? 0 : 1, "held");
  closed.open();
  co_await after;
  closed = first.close();
  tutti::request behind = tutti::start(first.download(copies[15], words[15]));
  std::vector<tutti::request> started;
  for (std::size_t i = 0; i < 15; ++i)
    started.push_back(tutti::start(streams[i].download(copies[i], words[i])));
  pause.expires_after(50ms);
  co_await pause.async_wait(boost::asio::deferred);
  const auto held = std::count_if(started.begin(), started.end(), [](const auto& r) { return !r.done(); });
  closed.open();
  for (tutti::request& r : started) co_await r;
  co_await behind;
  s->row("gates", "a copy behind one: copies of 15 held", static_cast<double>(held), "");
}

// The loop sleeps while another thread opens a gate.
task<> parking(session* s) {
  if (!s->dev.can().gate) co_return;
  const gpu::stream stream(s->dev);
  std::vector<double> woken;
  for (int i = 0; i < std::min(s->rounds, 100); ++i) {
    gpu::gate closed = stream.close();
    clock_type::time_point opened;
    std::thread other([&] {
      std::this_thread::sleep_for(2ms);
      opened = clock_type::now();
      closed.open();
    });
    co_await stream.reached();
    const auto now = clock_type::now();
    other.join();
    woken.push_back(seconds(now - opened) * 1e6);
  }
  s->row("park", "gate opened to coroutine, median", median(woken), "us");
  s->row("park", "gate opened to coroutine, 99 %", quantile(woken, 0.99), "us");
}

task<> copies(session* s) {
  const std::size_t n = s->largest();
  const gpu::stream up(s->dev), down(s->dev);
  gpu::device_buffer<char> a(s->dev, n), b(s->dev, n);
  gpu::pinned_buffer<char> p(s->dev, n), q(s->dev, n);
  std::fill(p.begin(), p.end(), 7);
  co_await up.upload(a, p);
  co_await down.download(q, a);
  s->wrong = s->wrong || q[n - 1] != 7;
  std::vector<double> in, out, both, inside;
  for (int i = 0; i < 10; ++i) {
    auto begin = clock_type::now();
    co_await up.upload(a, p);
    in.push_back(seconds(clock_type::now() - begin));
    begin = clock_type::now();
    co_await down.download(q, a);
    out.push_back(seconds(clock_type::now() - begin));
    begin = clock_type::now();
    tutti::request first = tutti::start(up.upload(a, p));
    tutti::request second = tutti::start(down.download(q, b));
    co_await first;
    co_await second;
    both.push_back(seconds(clock_type::now() - begin));
    begin = clock_type::now();
    co_await up.copy(b, a);
    inside.push_back(seconds(clock_type::now() - begin));
  }
  const double bytes = static_cast<double>(n);
  s->to_device = bytes / median(in);
  s->to_host = bytes / median(out);
  s->on_device = 2 * bytes / median(inside);
  s->row("copy", "pinned to device", s->to_device / 1e9, "GB/s", s->wrong ? "WRONG" : "right");
  s->row("copy", "device to pinned", s->to_host / 1e9, "GB/s", s->wrong ? "WRONG" : "right");
  s->row("copy", "both ways at once, each", bytes / median(both) / 1e9, "GB/s");
  s->row("copy", "on the device, read and write", s->on_device / 1e9, "GB/s");
}

task<bool> is_right(gpu::stream s, gpu::device_buffer<float>* result, float expected) {
  std::vector<float> host(result->size());
  co_await s.download(host, *result);
  co_return std::all_of(host.begin(), host.end(), [expected](float x) { return x == expected; });
}

// Returns a communicator whose collectives use this backend, or an empty one if it cannot be used. One
// collective has run, so that connections of the first use exist.
task<tutti::communicator> forced(session* s, gpu::backend by) {
  const tutti::communicator made = co_await s->world.duplicate();
  gpu::open_options how;
  how.backend = by;
  co_await gpu::open(made, s->dev, how);
  gpu::device_buffer<float> x(s->dev, 1);
  const auto first = co_await tutti::as_result(made.all_reduce(x, tutti::sum, gpu::stream(s->dev)));
  if (!first.error) co_return made;
  if (s->world.rank() == 0) std::printf("%-22s not measured: %s\n", gpu::name_of(by), first.message.c_str());
  co_return tutti::communicator();
}

task<double> time_of(session* s, tutti::communicator over, gpu::stream in, gpu::device_buffer<float>* a,
                     gpu::device_buffer<float>* b) {
  std::vector<double> times;
  for (int i = 0; i < 12; ++i) {
    co_await s->world.barrier();
    const auto begin = clock_type::now();
    co_await over.all_reduce(*a, *b, tutti::sum, in);
    if (i >= 2) times.push_back(seconds(clock_type::now() - begin));
  }
  double slowest = median(times);
  co_await s->world.all_reduce(slowest, tutti::max);
  co_return slowest;
}

// What the host alone takes for it: in pinned memory, without the copies.
task<> on_host(session* s, std::size_t mib) {
  const std::size_t n = (mib << 20) / sizeof(float);
  gpu::pinned_buffer<float> a(s->dev, n), b(s->dev, n);
  std::fill(a.begin(), a.end(), 1.0f);
  std::vector<double> times;
  for (int i = 0; i < 8; ++i) {
    co_await s->world.barrier();
    const auto begin = clock_type::now();
    co_await s->world.all_reduce(a, b, tutti::sum);
    if (i >= 2) times.push_back(seconds(clock_type::now() - begin));
  }
  s->row("all_reduce", "of the host alone, " + std::to_string(mib) + " MiB", median(times) * 1e6, "us");
}

task<> collectives(session* s) {
  const gpu::stream stream(s->dev);
  const int ranks = s->world.size();
  if (ranks > 1)
    for (const std::size_t mib : {1, 16, 64})
      if (mib <= s->largest_mib) co_await on_host(s, mib);
  const float expected = static_cast<float>(ranks * (ranks + 1) / 2);
  for (const gpu::backend by : {gpu::backend::staged, gpu::backend::one_device}) {
    const tutti::communicator over = co_await forced(s, by);
    if (!over) continue;
    for (const std::size_t mib : {1, 16, 64, 256}) {
      if (mib > s->largest_mib || (mib > 64 && by == gpu::backend::staged)) continue;
      const std::size_t n = (mib << 20) / sizeof(float), bytes = mib << 20;
      gpu::device_buffer<float> a(s->dev, n), b(s->dev, n);
      const std::vector<float> mine(n, static_cast<float>(s->world.rank() + 1));
      co_await stream.upload(a, mine);
      const double t = co_await time_of(s, over, stream, &a, &b);
      const bool right = co_await is_right(stream, &b, expected);
      s->wrong = s->wrong || !right;
      // Lower bounds. staged: the bytes of all ranks cross the bus both ways at once. one_device: the device
      // reads all inputs and writes all outputs.
      const double all = static_cast<double>(ranks) * static_cast<double>(bytes);
      const double floor =
          by == gpu::backend::staged ? all / std::min(s->to_device, s->to_host) : 2 * all / s->on_device;
      const std::string what = std::string(gpu::name_of(by)) + ", " + std::to_string(mib) + " MiB, " +
                               std::to_string(ranks) + " ranks";
      s->row("all_reduce", what, t * 1e6, "us", right ? "right" : "WRONG");
      s->row("all_reduce", "  of its floor", 100 * floor / t, "%");
      if (by == gpu::backend::one_device)
        s->row("all_reduce", "  memory read and written", 2 * all / t / 1e9, "GB/s");
    }
  }
}

// Time until a call has enqueued its work. NCCL starts a thread for each non-blocking call.
task<> nccl_calls(session* s) {
  const gpu::stream stream(s->dev);
  const tutti::perf::gpu::raw_cuda cuda;
  gpu::device_buffer<float> a(s->dev, 256), b(s->dev, 256);
  co_await stream.fill(a, std::byte{0});
  for (const bool blocking : {true, false}) {
    tutti::perf::gpu::raw_nccl raw;
    if (blocking) s->row("nccl", "version", raw.version(), "");
    raw.init(1, raw.make_id(), 0, blocking);
    std::vector<double> times;
    for (int i = 0; i < s->rounds; ++i) {
      const auto begin = clock_type::now();
      raw.all_reduce(a.data(), b.data(), a.size(), stream.native());
      if (i >= 10) times.push_back(seconds(clock_type::now() - begin));
      cuda.synchronize(stream.native());
    }
    s->row("nccl", std::string("raw call of 1 KiB, ") + (blocking ? "blocking" : "not blocking"),
           median(times) * 1e6, "us");
  }
}

task<> against_nccl(session* s) {
  const tutti::communicator over = co_await forced(s, gpu::backend::nccl);
  if (!over) co_return;
  if (s->world.size() == 1) co_await nccl_calls(s);
  tutti::perf::gpu::raw_nccl raw;
  tutti::perf::gpu::raw_cuda cuda;
  tutti::perf::gpu::raw_nccl::id id{};
  if (s->world.rank() == 0) id = raw.make_id();
  co_await s->world.broadcast(id, 0);
  raw.init(s->world.size(), id, s->world.rank());
  const gpu::stream stream(s->dev);
  const float expected = static_cast<float>(s->world.size());
  for (const std::size_t kib : {1, 64, 1 << 10, 16 << 10, 64 << 10}) {
    const std::size_t n = (kib << 10) / sizeof(float);
    if (kib > s->largest_mib << 10) continue;
    gpu::device_buffer<float> a(s->dev, n), b(s->dev, n);
    const std::vector<float> ones(n, 1.0f);
    co_await stream.upload(a, ones);
    std::vector<double> awaited, synchronized;
    for (int i = 0; i < 60; ++i) {  // in turns
      auto begin = clock_type::now();
      co_await over.all_reduce(a, b, tutti::sum, stream);
      if (i >= 10) awaited.push_back(seconds(clock_type::now() - begin));
      begin = clock_type::now();
      raw.all_reduce(a.data(), b.data(), n, stream.native());
      cuda.synchronize(stream.native());
      if (i >= 10) synchronized.push_back(seconds(clock_type::now() - begin));
    }
    const bool right = co_await is_right(stream, &b, expected);
    s->wrong = s->wrong || !right;
    const std::string size = kib < 1024 ? std::to_string(kib) + " KiB" : std::to_string(kib >> 10) + " MiB";
    const double with = median(awaited) * 1e6, without = median(synchronized) * 1e6;
    s->row("nccl", "co_await all_reduce, " + size, with, "us", right ? "right" : "WRONG");
    s->row("nccl", "raw and cuStreamSynchronize, " + size, without, "us");
    s->row("nccl", "  awaiting costs", with - without, "us");
    s->row("nccl", "  awaiting costs", 100 * (with / without - 1), "%");
  }
}

// Measures how long the loop thread is busy, by a handler that posts itself again while the device works.
task<> probe(session* s, const bool* over, std::vector<double>* gaps) {
  auto last = clock_type::now();
  while (!*over) {
    co_await boost::asio::post(s->world.get_executor(), boost::asio::deferred);
    const auto now = clock_type::now();
    gaps->push_back(seconds(now - last) * 1e6);
    last = now;
  }
}
task<> work_load(session* s, bool* ended) {
  const tutti::communicator over = co_await forced(s, gpu::backend::staged);
  const gpu::stream stream(s->dev);
  gpu::device_buffer<float> a(s->dev, 1 << 20);
  co_await stream.fill(a, std::byte{0});
  for (int i = 0; i < 5; ++i) co_await over.all_reduce(a, tutti::sum, stream);
  *ended = false;
  for (int i = 0; i < 20; ++i) co_await over.all_reduce(a, tutti::sum, stream);
  *ended = true;
}
task<> blocking(session* s) {
  bool over = false;
  std::vector<double> gaps;
  tutti::scope both;
  both.spawn(work_load(s, &over));
  both.spawn(probe(s, &over, &gaps));
  co_await both.join();
  constexpr double edges[] = {1, 2, 5, 10, 20, 50, 100, 1000, 1e9};
  double low = 0;
  for (const double high : edges) {
    const auto n = std::count_if(gaps.begin(), gaps.end(), [&](double g) { return g >= low && g < high; });
    if (n > 0)
      s->row("loop away", "from " + std::to_string(static_cast<int>(low)) + " us on", static_cast<double>(n),
             "times");
    low = high;
  }
  s->row("loop away", "longest", quantile(gaps, 1), "us");
}

// Command-line options.
struct wishes {
  std::string kind, only;
  int rounds = 0;
  std::size_t largest_mib = 0;
};

task<int> measure(tutti::communicator world, wishes w) {
  session s;
  s.world = world;
  s.cuda = w.kind == "cuda";
  const auto begin = clock_type::now();
  s.dev = s.cuda ? tutti::cuda::open(world) : tutti::emulated::open(world);
  const double opening = seconds(clock_type::now() - begin);
  s.rounds = w.rounds;
  s.largest_mib = w.largest_mib;
  s.only = w.only;
  if (world.rank() == 0) std::printf("%s, %d ranks\n", s.dev.name().c_str(), world.size());
  if (s.wants("latency")) co_await latency(&s);
  co_await world.barrier();
  if (s.wants("calls")) s.row("calls", "the device is opened", opening * 1e3, "ms");
  if (s.wants("calls") && world.rank() == 0) co_await calls(&s);
  if (s.wants("park")) co_await parking(&s);
  co_await world.barrier();
  if (s.wants("gates") && world.rank() == 0) co_await gates(&s);
  if (s.wants("gates") && world.rank() == 0) co_await behind_gates(&s);
  // The ranks share one bus, so only rank 0 measures it. all_reduce needs the figures for its lower bounds.
  if ((s.wants("copies") || s.wants("all_reduce")) && world.rank() == 0) co_await copies(&s);
  double rates[] = {s.to_device, s.to_host, s.on_device};
  co_await world.broadcast(rates, 0);
  s.to_device = rates[0];
  s.to_host = rates[1];
  s.on_device = rates[2];
  if (s.wants("all_reduce")) co_await collectives(&s);
  if (s.wants("away")) co_await blocking(&s);
  if (s.wants("nccl") && s.cuda) co_await against_nccl(&s);
  co_return s.wrong ? 1 : 0;
}

std::string option_of(int argc, char** argv, const std::string& option, const std::string& otherwise) {
  for (int i = 1; i + 1 < argc; ++i)
    if (option == argv[i]) return argv[i + 1];
  return otherwise;
}

task<> measure_locally(tutti::communicator world, wishes w, std::atomic<bool>* wrong) {
  const int code = co_await measure(std::move(world), std::move(w));
  if (code != 0) *wrong = true;
}

}  // namespace

int main(int argc, char** argv) {
  wishes w;
  w.kind = option_of(argc, argv, "--device", "emulated");
  const bool cuda = w.kind == "cuda";
  w.rounds = std::max(11, std::atoi(option_of(argc, argv, "--rounds", cuda ? "2000" : "200").c_str()));
  w.largest_mib = static_cast<std::size_t>(
      std::max(1, std::atoi(option_of(argc, argv, "--largest", cuda ? "256" : "16").c_str())));
  w.only = option_of(argc, argv, "--only", "");
  const int ranks = std::atoi(option_of(argc, argv, "--ranks", "0").c_str());
  if (ranks <= 0) return tutti::run([&](tutti::communicator world) { return measure(std::move(world), w); });
  std::atomic<bool> wrong{false};
  try {
    tutti::run_local(ranks,
                     [&](tutti::communicator world) { return measure_locally(std::move(world), w, &wrong); });
  } catch (const std::exception& e) {
    std::fprintf(stderr, "gpu-perf: %s\n", e.what());
    return 1;
  }
  return wrong ? 1 : 0;
}

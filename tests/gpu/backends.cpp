// SPDX-License-Identifier: Apache-2.0
#include "gpu/backends.hpp"

#include "cuda/cuda_api.hpp"

#include <dlfcn.h>
#include <stdlib.h>

#include <doctest/doctest.h>
#include <stdexcept>
#include <tutti/cuda.hpp>
#include <tutti/level_zero.hpp>
#include <utility>

namespace tutti::test {
namespace {

// The variable would replace the short time limits of some tests.
const bool own_time_limits = ::unsetenv("TUTTI_TIMEOUT") == 0;

bench emulated_bench(const emulated::options& how) {
  auto on = std::make_shared<emulated::emulated_device>(how);
  bench b;
  b.open = [on](const communicator& of) { return emulated::open(of, on); };
  b.fail_after = [on](std::uint64_t n, const std::string& why) { on->fail_after(n, why); };
  b.pause = [on](bool still) { on->pause(still); };
  b.set_capturing = emulated::set_capturing;
  b.allocations = [on] { return on->allocations(); };
  return b;
}

bench fake_bench(std::uint64_t adversary, std::uint64_t delay_us, bool words) {
  const fake_cuda fake;
  fake.reset(1, adversary, delay_us, words ? 1 : 0);
  bench b;
  // The stand-in takes any file as an image of kernels.
  b.scene = {std::make_shared<variable>("TUTTI_CUDA_LIBRARY", stand_in("cuda")),
             std::make_shared<variable>("TUTTI_CUDA_KERNELS", stand_in("cuda"))};
  b.open = [](const communicator& of) { return cuda::open(of, 0); };
  b.fail_after = [fake](std::uint64_t n, const std::string& why) { fake.fail_after(0, n, why.c_str()); };
  b.pause = [fake](bool still) { fake.pause(0, still ? 1 : 0); };
  b.set_capturing = [fake](const gpu::stream& s, bool on) { fake.set_capturing(s.native(), on ? 1 : 0); };
  b.allocations = [fake] { return static_cast<std::size_t>(fake.allocations(0)); };
  b.misuse = [fake, before = fake.misuses()] {
    return fake.misuses() == before ? std::string() : std::string(fake.last_misuse());
  };
  return b;
}

bench level_zero_bench(std::uint64_t adversary, std::uint64_t delay_us, bool in_order) {
  const level_zero_driver below;
  below.reset(adversary, delay_us, in_order ? 1 : 0);
  bench b;
  b.open = [](const communicator& of) { return level_zero::open(of, 0); };
  b.fail_after = [below](std::uint64_t n, const std::string&) { below.fail_after(0, n); };
  b.pause = [below](bool still) { below.pause(0, still ? 1 : 0); };
  b.allocations = [below] { return static_cast<std::size_t>(below.allocations(0)); };
  b.tells_why = false;  // Level Zero reports numbers only
  b.misuse = [below, before = below.misuses()] {
    return below.misuses() == before ? std::string() : std::string(below.last_misuse());
  };
  return b;
}

std::vector<backend> make_backends() {
  std::vector<backend> all;
  const auto add = [&all](std::string name, emulated::options how) {
    how.memory_bytes = 64 << 20;
    all.push_back({std::move(name), [how] { return emulated_bench(how); }});
  };
  emulated::options how;
  add("emulated", how);
  how.timeline = false;
  add("emulated, by events", how);
  how.host_call = false;
  add("emulated, by looking", how);
  how = {};
  how.adversary = seed_of_this_run();
  how.workers = 4;
  add("emulated, adversary " + std::to_string(how.adversary), how);
  how = {};
  how.delay = std::chrono::microseconds(300);
  add("emulated, slow", how);
  all.push_back({"stand-in for CUDA", [] { return fake_bench(0, 0, true); }});
  all.push_back({"stand-in for CUDA without words", [] { return fake_bench(0, 0, false); }});
  all.push_back({"stand-in for CUDA, adversary", [] { return fake_bench(seed_of_this_run(), 0, true); }});
  const auto real = [] {
    bench b;
    b.open = [](const communicator& of) { return cuda::open(of, 0); };
    return b;
  };
  if (level_zero_driver::why_not().empty()) {
    all.push_back({"Level Zero", [] { return level_zero_bench(0, 0, false); }});
    all.push_back({"Level Zero with lists in order", [] { return level_zero_bench(0, 0, true); }});
    all.push_back({"Level Zero, adversary", [] { return level_zero_bench(seed_of_this_run(), 0, false); }});
    all.push_back({"Level Zero, slow", [] { return level_zero_bench(0, 300, false); }});
  }
  if (cuda::why_not().empty()) {
    // The context stays, which each test would make anew.
    const cuda::abi::table& calls = cuda::abi::load().required("CUDA");
    cuda::abi::device first = 0;
    cuda::abi::context* kept = nullptr;
    if (calls.device_get(&first, 0) == cuda::abi::success) calls.retain(&kept, first);
    all.push_back({"CUDA", real});
  }
  if (const char* const wanted = std::getenv("TUTTI_TEST_DEVICES"))
    std::erase_if(all, [wanted](const backend& b) { return !b.name.starts_with(wanted); });
  return all;
}

}  // namespace

std::string stand_in(const std::string& library) {
  const std::string built = library == "cuda"   ? TUTTI_FAKE_CUDA_PATH
                            : library == "nccl" ? TUTTI_FAKE_NCCL_PATH
                                                : TUTTI_FAKE_ONECCL_PATH;
  const char* const elsewhere = std::getenv("TUTTI_FAKES_DIR");
  return elsewhere == nullptr ? built : elsewhere + built.substr(built.rfind('/'));
}

fake_cuda::fake_cuda() {
  void* const library = ::dlopen(stand_in("cuda").c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(::dlerror());
  const auto find = [library]<class F>(F*& to, const char* name) {
    to = reinterpret_cast<F*>(::dlsym(library, name));
    if (to == nullptr) throw std::runtime_error(std::string("the stand-in for libcuda lacks ") + name);
  };
  find(reset, "tutti_fake_cuda_reset");
  find(fail_after, "tutti_fake_cuda_fail_after");
  find(refuse_events_after, "tutti_fake_cuda_refuse_events_after");
  find(pause, "tutti_fake_cuda_pause");
  find(at_retain, "tutti_fake_cuda_at_retain");
  find(set_capturing, "tutti_fake_cuda_set_capturing");
  find(allocations, "tutti_fake_cuda_allocations");
  find(misuses, "tutti_fake_cuda_misuses");
  find(last_misuse, "tutti_fake_cuda_last_misuse");
}

namespace {

void* open_level_zero_driver(std::string& why) {
#ifdef TUTTI_LEVEL_ZERO_DRIVER_PATH
  const char* const elsewhere = std::getenv("TUTTI_FAKES_DIR");
  std::string path = TUTTI_LEVEL_ZERO_DRIVER_PATH;
  if (elsewhere != nullptr) path = elsewhere + path.substr(path.rfind('/'));
  // Set before the loader looks for drivers, which it does once.
  ::setenv("ZE_ENABLE_ALT_DRIVERS", path.c_str(), 0);
  why = level_zero::why_not();
  if (!why.empty()) return nullptr;
  // The same file as the loader's, and therefore the same copy.
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) why = ::dlerror();
  return library;
#else
  why = "Level Zero's headers are not installed (libze-dev)";
  return nullptr;
#endif
}

}  // namespace

std::string level_zero_driver::why_not() {
  static const std::string why = [] {
    std::string reason;
    open_level_zero_driver(reason);
    return reason;
  }();
  return why;
}

level_zero_driver::level_zero_driver() {
  std::string why;
  void* const library = open_level_zero_driver(why);
  if (library == nullptr) throw std::runtime_error(why);
  const auto find = [library]<class F>(F*& to, const char* name) {
    to = reinterpret_cast<F*>(::dlsym(library, name));
    if (to == nullptr) throw std::runtime_error(std::string("the driver for Level Zero lacks ") + name);
  };
  find(reset, "tutti_level_zero_reset");
  find(fail_after, "tutti_level_zero_fail_after");
  find(pause, "tutti_level_zero_pause");
  find(refuse_barriers, "tutti_level_zero_refuse_barriers");
  find(allocations, "tutti_level_zero_allocations");
  find(misuses, "tutti_level_zero_misuses");
  find(last_misuse, "tutti_level_zero_last_misuse");
}

const std::vector<backend>& backends() {
  static const std::vector<backend> all = make_backends();
  return all;
}

void on_each_backend(int ranks, const std::function<task<>(communicator, bench*)>& main) {
  for (const backend& b : backends()) {
    INFO(b.name);
    bench on = b.make();
    init_options options;
    options.timeout = patience;
    std::string failure;
    try {
      run_local(ranks, options, [&](communicator world) { return main(std::move(world), &on); });
    } catch (const std::exception& e) {
      failure = e.what();
    }
    CHECK_MESSAGE(failure.empty(), b.name << ": " << failure);
    if (on.misuse) CHECK_MESSAGE(on.misuse() == "", b.name << ": " << on.misuse());
  }
}

}  // namespace tutti::test

// SPDX-License-Identifier: Apache-2.0
#include "gpu/backends.hpp"

#include "support/skip.hpp"

#include <doctest/doctest.h>

namespace tutti::test {
namespace {

bench emulated_bench(const emulated::options& how) {
  auto on = std::make_shared<emulated::chip>(how);
  bench b;
  b.open = [on](const communicator& of) { return emulated::open(of, on); };
  b.fail_after = [on](std::uint64_t n, const std::string& why) { on->fail_after(n, why); };
  b.pause = [on](bool still) { on->pause(still); };
  b.set_capturing = emulated::set_capturing;
  b.allocations = [on] { return on->allocations(); };
  return b;
}

std::vector<backend> make_backends() {
  std::vector<backend> all;
  const auto add = [&all](std::string name, emulated::options how) {
    how.memory_bytes = 64 << 20;
    all.push_back({std::move(name), [how] { return emulated_bench(how); }, ""});
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
  return all;
}

}  // namespace

const std::vector<backend>& backends() {
  static const std::vector<backend> all = make_backends();
  return all;
}

void on_each_backend(int ranks, const std::function<task<>(communicator, bench*)>& main) {
  for (const backend& b : backends()) {
    if (!b.missing.empty()) {
      count_skip(__FILE__, __LINE__, b.name + ": " + b.missing);
      continue;
    }
    CAPTURE(b.name);
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
  }
}

}  // namespace tutti::test

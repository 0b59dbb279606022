// SPDX-License-Identifier: Apache-2.0
// Conversions on devices give the same bits as on the host, for every pair of floating types.
#include "gpu/backends.hpp"

#include <doctest/doctest.h>
#include <cstring>
#include <limits>
#include <tutti/tutti.hpp>
#include <type_traits>

namespace {

using tutti::bfloat16;
using tutti::communicator;
using tutti::errc;
using tutti::float16;
using tutti::task;
using tutti::test::bench;
using tutti::test::on_each_backend;
namespace gpu = tutti::gpu;

template <class T>
std::vector<T> interesting(std::size_t n) {
  const float special[] = {std::numeric_limits<float>::infinity(),
                           -std::numeric_limits<float>::infinity(),
                           std::numeric_limits<float>::quiet_NaN(),
                           -0.0F,
                           65519.0F,
                           65520.0F,
                           6.1e-5F,
                           3.0e-8F,
                           1.00048828125F,
                           3.0e38F,
                           1.0F / 3.0F};
  tutti::test::random_numbers random(n);
  std::vector<T> all(n);
  for (std::size_t i = 0; i < n; ++i) {
    const float x =
        i < std::size(special) ? special[i] : static_cast<float>(random.below(2'000'000)) / 7919.0F - 100.0F;
    all[i] = static_cast<T>(x);
  }
  return all;
}

template <class From, class To>
To expected(From x, double factor) {
  using wide = std::conditional_t<std::is_same_v<From, double> || std::is_same_v<To, double>, double, float>;
  const wide product = static_cast<wide>(x) * static_cast<wide>(factor);
  return product != product ? std::numeric_limits<To>::quiet_NaN() : static_cast<To>(product);
}

template <class From, class To>
bool is_converted(const std::vector<From>& in, const std::vector<To>& out, double factor) {
  for (std::size_t i = 0; i < in.size(); ++i) {
    const To right = expected<From, To>(in[i], factor);
    if (std::memcmp(&right, &out[i], sizeof right) != 0) return false;
  }
  return true;
}

template <class From, class To>
task<> one_pair(gpu::stream s) {
  for (const std::size_t n : {std::size_t{1}, std::size_t{1003}}) {
    const std::vector<From> in = interesting<From>(n);
    std::vector<To> out(n);
    gpu::device_buffer<From> a(s.on(), n + 1);
    gpu::device_buffer<To> b(s.on(), n + 1);
    for (const std::size_t shift : {std::size_t{0}, std::size_t{1}})
      for (const double factor : {1.0, 1.0 / 3}) {
        const auto from = a.span().subspan(shift, n);
        const auto to = b.span().subspan(shift, n);
        co_await s.upload(from, in);
        co_await s.convert(to, from, factor);
        co_await s.download(out, to);
        TUTTI_EXPECT((is_converted<From, To>(in, out, factor)));
      }
  }
}

template <class From>
task<> from_one(gpu::stream s) {
  co_await one_pair<From, float>(s);
  co_await one_pair<From, double>(s);
  co_await one_pair<From, float16>(s);
  co_await one_pair<From, bfloat16>(s);
}

task<> every_pair(communicator world, bench* on) {
  const gpu::device dev = on->open(world);
  const gpu::stream s(dev);
  if (!dev.can().kernels) {
    gpu::device_buffer<float> a(dev, 3);
    const auto seen = co_await tutti::test::failure_in(s.convert(a, a, 2));
    TUTTI_EXPECT(seen.code == errc::not_supported && seen.says("no kernel"));
    co_return;
  }
  co_await from_one<float>(s);
  co_await from_one<double>(s);
  co_await from_one<float16>(s);
  co_await from_one<bfloat16>(s);
}

task<> in_place_and_misuse(communicator world, bench* on) {
  const gpu::device dev = on->open(world);
  if (!dev.can().kernels) co_return;
  const gpu::stream s(dev);
  std::vector<float> values{1, 2, 3};
  gpu::device_buffer<float> a(dev, 3), nothing(dev, 0);
  gpu::device_buffer<float16> half(dev, 2), empty(dev, 0);
  gpu::device_buffer<int> whole(dev, 3);
  co_await s.upload(a, values);
  co_await s.convert(a, a, 0.5);
  co_await s.convert(empty, nothing);
  co_await s.download(values, a);
  TUTTI_EXPECT((values == std::vector<float>{0.5F, 1, 1.5F}));
  auto seen = tutti::test::failure_of([&] { static_cast<void>(s.convert(half, a)); });
  TUTTI_EXPECT(seen.code == errc::invalid_argument && seen.says("3 elements to 2"));
  seen = co_await tutti::test::failure_in(s.convert(a, whole));
  TUTTI_EXPECT(seen.code == errc::not_supported && seen.says("no kernel"));
}

}  // namespace

TEST_CASE("every floating type becomes every other, times a factor") { on_each_backend(1, every_pair); }
TEST_CASE("scaling in place; what cannot be converted") { on_each_backend(1, in_place_and_misuse); }

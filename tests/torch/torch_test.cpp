// SPDX-License-Identifier: Apache-2.0
// Tensors as buffers, and modules of PyTorch's C++ library trained by several ranks.
#include <torch/torch.h>
#undef CHECK  // c10's
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <tutti/torch.hpp>
#include <vector>

using namespace tutti;
using namespace tutti::test;

namespace {

void run_on(int ranks, task<> (*program)(communicator)) { CHECK_NOTHROW(run_local(ranks, program)); }

task<> every_verb(communicator world) {
  const int me = world.rank(), n = world.size();
  at::Tensor a = at::full({3, 4}, me + 1.0);
  co_await world.all_reduce(a, sum);
  TUTTI_EXPECT(a.equal(at::full({3, 4}, n * (n + 1) / 2.0)));

  const at::Tensor mine = at::full({2}, me, at::kInt);
  at::Tensor all = at::empty({2 * n}, at::kInt);
  co_await world.all_gather(mine, all);
  TUTTI_EXPECT(all[2 * n - 1].item<int>() == n - 1);
  at::Tensor back = at::empty({2}, at::kInt);
  co_await world.reduce_scatter(all, back, premul_sum(3));
  TUTTI_EXPECT(back.equal(at::full({2}, 3 * n * me, at::kInt)));
  at::Tensor turned = at::empty_like(all);
  co_await world.all_to_all(all, turned);
  TUTTI_EXPECT(turned.equal(at::full({2 * n}, me, at::kInt)));
  co_await world.scatter(all, back, 0);
  TUTTI_EXPECT(back.equal(mine));
  co_await world.gather(mine, all, 1);
  co_await world.scan(mine, back, max);
  TUTTI_EXPECT(back.equal(mine));
  co_await world.barrier();

  at::Tensor half = at::full({5}, me, at::kBFloat16);
  co_await world.broadcast(half, 1);
  TUTTI_EXPECT(half.equal(at::ones({5}, at::kBFloat16)));
  at::Tensor wave = at::full({2}, c10::complex<double>(1, me), at::kComplexDouble);
  co_await world.all_reduce(wave, avg);
  TUTTI_EXPECT(at::imag(wave)[0].item<double>() == (n - 1) / 2.0);
  at::Tensor flag = at::full({}, me == 0, at::kBool);
  co_await world.all_reduce(flag, bor);
  TUTTI_EXPECT(flag.item<bool>());
  at::Tensor none = at::empty({0, 4});
  co_await world.all_reduce(none, sum);

  std::vector<at::Tensor> list{at::ones({3}), at::full({2, 2}, 1.0 * me)};
  request reducing = start(world.all_reduce(list, max));
  co_await reducing;
  TUTTI_EXPECT(list[1].equal(at::full({2, 2}, n - 1.0)));
  const auto again = co_await prepare(world.all_reduce(a, min));
  for (int i = 0; i < 3; ++i) co_await again();
}

// Whatever the program does with its own handles.
task<> kept_until_the_end(communicator world) {
  const int other = 1 - world.rank();
  constexpr std::int64_t n = 1 << 20;
  at::Tensor got = at::empty({n});
  request receiving = world.irecv(got, other);
  request sending = world.isend(at::full({n}, world.rank() + 1.0), other);
  const at::Tensor looked_at = got;
  got = at::Tensor();
  co_await receiving;
  co_await sending;
  TUTTI_EXPECT(looked_at.equal(at::full({n}, other + 1.0)));
}

task<std::string> refusal_of(operation<> wrong) {
  const auto r = co_await as_result(std::move(wrong));
  TUTTI_EXPECT(r.error == errc::invalid_argument);
  co_return r.message;
}

task<> refused(communicator world) {
  const auto says = [](const std::string& text, const char* cure) {
    if (text.find(cure) == std::string::npos) throw std::runtime_error(text + " does not say " + cure);
  };
  // Named: g++ 12 does not compile braces in co_await expressions.
  const at::Tensor square = at::ones({4, 4});
  const at::Tensor flags = at::ones({4}, at::kBool), numbers = at::ones({4}, at::kInt);
  const at::Tensor eighths = at::ones({4}, at::kFloat8_e4m3fn);
  says(co_await refusal_of(world.all_reduce(square.t(), sum)), "t.contiguous()");
  says(co_await refusal_of(world.all_reduce(flags, avg)), "not defined for elements of Bool");
  says(co_await refusal_of(world.all_reduce(numbers, premul_sum(0.5))), "an integer factor");
  says(co_await refusal_of(world.all_reduce(eighths, sum)), "Float8_e4m3fn");
  says(co_await refusal_of(world.all_reduce(at::Tensor(), sum)), "undefined");
  says(co_await refusal_of(world.all_reduce(square.to_sparse(), sum)), "t.to_dense()");
  at::Tensor whole = at::ones({4, 4}, at::kLong);
  says(co_await refusal_of(world.all_reduce(square, whole, sum)), "different types");
  co_await world.barrier();
}

struct network : ::torch::nn::Module {
  network() {
    first = register_module("first", ::torch::nn::Linear(8, 16));
    norm = register_module("norm", ::torch::nn::BatchNorm1d(16));
    second = register_module("second", ::torch::nn::Linear(16, 4));
    unused = register_module("unused", ::torch::nn::Linear(3, 3));
    const at::NoGradGuard plain;  // the ranks are threads, which share one generator of random numbers
    for (at::Tensor& p : parameters()) p.copy_(at::linspace(-0.4, 0.5, p.numel()).view_as(p));
  }
  at::Tensor forward(const at::Tensor& x) { return second(at::relu(first(x))); }
  ::torch::nn::Linear first{nullptr}, second{nullptr}, unused{nullptr};
  ::torch::nn::BatchNorm1d norm{nullptr};
};

at::Tensor batch_of(int rank) { return at::arange(32, at::kFloat).view({4, 8}).mul(0.01).add(rank); }
at::Tensor loss_of(network& model, int rank) { return model.forward(batch_of(rank)).square().mean(); }

// Steps of the ranks' networks against those of one network over all batches.
task<> same_as_one(communicator world) {
  const int n = world.size();
  const auto mine = std::make_shared<network>(), whole = std::make_shared<network>();
  if (world.rank() != 0) {
    const at::NoGradGuard plain;
    for (at::Tensor& p : mine->parameters()) p.add_(1);
    for (at::Tensor& b : mine->buffers()) b.add_(1);
  }
  data_parallel_options small;
  small.first_bucket_bytes = small.bucket_bytes = 128;
  auto ddp = co_await tutti::torch::data_parallel::create(world, mine, small);
  TUTTI_EXPECT(ddp.buckets() > 1);
  TUTTI_EXPECT(mine->norm->running_var.equal(whole->norm->running_var));
  ::torch::optim::SGD one(mine->parameters(), 0.1), all(whole->parameters(), 0.1);
  for (int step = 0; step < 6; ++step) {
    one.zero_grad(step % 2 == 0);  // the gradients are set to none, or to zero
    const auto backward = [&] { loss_of(*mine, world.rank()).backward(); };
    if (step == 3) {  // two passes add up
      const auto local = ddp.no_sync();
      co_await compute(backward);
    }
    co_await compute(backward);
    co_await ddp.reduced();
    one.step();

    all.zero_grad();
    for (int pass = 0; pass < (step == 3 ? 2 : 1); ++pass)
      for (int r = 0; r < n; ++r) loss_of(*whole, r).div(n).backward();
    all.step();
    for (std::size_t i = 0; i < whole->parameters().size(); ++i)
      TUTTI_EXPECT(at::allclose(mine->parameters()[i], whole->parameters()[i], 1e-5, 1e-6));
  }
  TUTTI_EXPECT(ddp.last().bytes > 0);
  {
    const at::NoGradGuard plain;
    mine->norm->running_mean.fill_(world.rank());
  }
  co_await ddp.broadcast_buffers(n - 1);
  TUTTI_EXPECT(mine->norm->running_mean[0].item<int>() == n - 1);
}

task<> refuses_other_types(communicator world) {
  ::torch::nn::Linear exact(2, 2);
  exact->to(at::kDouble);
  std::string text;
  try {
    co_await tutti::torch::data_parallel::create(world, exact);
  } catch (const error& e) {
    TUTTI_EXPECT(e.code() == errc::invalid_argument);
    text = e.what();
  }
  TUTTI_EXPECT(text.find("weight") != std::string::npos);
}

}  // namespace

TEST_CASE("every operation takes tensors") {
  for (const int ranks : {2, 3}) run_on(ranks, every_verb);
}
TEST_CASE("an operation keeps its tensors until it has ended") { run_on(2, kept_until_the_end); }
TEST_CASE("a tensor that cannot travel is refused with what to write instead") { run_on(2, refused); }
TEST_CASE("a module on several ranks learns what it learns on one") {
  for (const int ranks : {2, 4}) run_on(ranks, same_as_one);
}
TEST_CASE("a parameter that is not of float is refused by its name") { run_on(2, refuses_other_types); }

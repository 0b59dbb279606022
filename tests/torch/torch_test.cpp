// SPDX-License-Identifier: Apache-2.0
// Tensors as buffers, and modules of PyTorch's C++ library trained by several ranks.
#include <torch/torch.h>
#undef CHECK  // c10's
#include "support/local_world.hpp"
#include "support/scratch_directory.hpp"

#include <doctest/doctest.h>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <tutti/emulated.hpp>
#include <tutti/gpu.hpp>
#include <tutti/torch.hpp>
#include <tutti/train/sharded.hpp>
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

task<> pieces_and_callables(communicator world) {
  const int me = world.rank(), n = world.size();
  at::Tensor x = at::arange(24, at::kDouble).view({4, 6}).add(me);
  auto chunks = world.all_reduce_chunks(x, sum, 7);
  TUTTI_EXPECT(chunks.chunks() == 4);
  std::int64_t seen = 0;
  for (;;) {
    const auto piece = co_await chunks.next();
    if (!piece) break;
    const at::Tensor numbers = at::arange(seen, seen + piece->numel(), at::kDouble);
    TUTTI_EXPECT(piece->equal(numbers.mul(n).add(n * (n - 1) / 2.0)));
    seen += piece->numel();
  }
  TUTTI_EXPECT(seen == 24);
  auto whole = world.all_reduce_chunks(x, max);
  TUTTI_EXPECT(whole.chunks() == 1);
  co_await whole.next();

  const auto larger = [](float a, float b) { return a < b ? b : a; };
  at::Tensor mine = at::full({5}, me, at::kFloat);
  co_await world.all_reduce(mine, larger);
  TUTTI_EXPECT(mine.equal(at::full({5}, n - 1.0)));
  at::Tensor counts = at::full({2}, me, at::kLong), of_root = at::empty_like(counts);
  std::int64_t (*const add)(std::int64_t, std::int64_t) = [](std::int64_t a, std::int64_t b) {
    return a + b;
  };
  co_await world.reduce(counts, of_root, add, 0);
  if (me == 0) TUTTI_EXPECT(of_root[1].item<int>() == n * (n - 1) / 2);
  const auto wrong = co_await as_result(world.all_reduce(counts, larger));
  TUTTI_EXPECT(wrong.error == errc::invalid_argument);
  TUTTI_EXPECT(wrong.message.find("a callable its own type") != std::string::npos);
}

// PyTorch's view of a device buffer, without a GPU. Computing with it would call CUDA.
at::Tensor tensor_on(const gpu::device_buffer<float>& memory) {
  c10::Storage storage(c10::Storage::use_byte_size_t(), memory.bytes(),
                       at::DataPtr(memory.data(), at::Device(at::kCUDA, 0)));
  auto t = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CUDA), caffe2::TypeMeta::Make<float>());
  t.unsafeGetTensorImpl()->set_sizes_contiguous({static_cast<std::int64_t>(memory.size())});
  return t;
}

task<std::string> refusal_of(operation<> wrong) {
  const auto r = co_await as_result(std::move(wrong));
  TUTTI_EXPECT(r.error == errc::invalid_argument);
  co_return r.message;
}

task<> on_a_device(communicator world) {
  const int me = world.rank(), n = world.size();
  gpu::open_options how;
  how.kind = gpu::device_kind::emulated;
  const gpu::device device = co_await gpu::open(world, how);
  const gpu::stream stream(device);
  const std::size_t count = 3000;
  gpu::device_buffer<float> memory(device, count), other(device, count * static_cast<std::size_t>(n));
  std::vector<float> values(count, static_cast<float>(me + 1)), all(other.size());
  co_await stream.upload(memory, values);
  at::Tensor x = tensor_on(memory), gathered = tensor_on(other);
  TUTTI_EXPECT(gpu::backend_for(world.all_reduce(x, sum, stream)).with == gpu::backend::one_device);

  request reducing = start(world.all_reduce(x, sum, stream));
  stream.wait(reducing);
  x.reset();  // the operation keeps it
  co_await stream.download(values, memory);
  TUTTI_EXPECT(values[count - 1] == static_cast<float>(n * (n + 1)) / 2);
  co_await reducing;
  x = tensor_on(memory);
  co_await world.all_gather(x, gathered, stream);
  co_await stream.download(all, other);
  TUTTI_EXPECT(all.back() == values[0]);
  if (me < 2) {  // sent by 0, received by 1
    if (me == 0) co_await world.send(x, 1, stream);
    if (me == 1) co_await world.recv(x, 0, 0, stream);
  }
  std::vector<at::Tensor> list{x};
  co_await world.all_reduce(list, max, stream);
  auto chunks = world.all_reduce_chunks(x, sum, 1000, stream);
  for (;;) {
    const auto piece = co_await chunks.next();
    if (!piece) break;
    TUTTI_EXPECT(piece->numel() == 1000);
  }

  const std::string without = co_await refusal_of(world.all_reduce(x, sum));
  TUTTI_EXPECT(without.find("cuda:0: name last the stream") != std::string::npos);
  const at::Tensor here = at::ones({4});
  const std::string with = co_await refusal_of(world.all_reduce(here, sum, stream));
  TUTTI_EXPECT(with.find("takes no stream") != std::string::npos);
  const std::string bits = co_await refusal_of(world.all_reduce(x, bor, stream));
  TUTTI_EXPECT(bits.find("not defined for elements") != std::string::npos);
  co_await world.barrier();
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
    const at::NoGradGuard plain;  // the ranks are threads and share one random generator
    for (at::Tensor& p : parameters()) p.copy_(at::linspace(-0.4, 0.5, p.numel()).view_as(p));
  }
  at::Tensor forward(const at::Tensor& x) { return second(at::relu(first(x))); }
  ::torch::nn::Linear first{nullptr}, second{nullptr}, unused{nullptr};
  ::torch::nn::BatchNorm1d norm{nullptr};
};

at::Tensor batch_of(int rank) { return at::arange(32, at::kFloat).view({4, 8}).mul(0.01).add(rank); }
at::Tensor loss_of(network& model, int rank) { return model.forward(batch_of(rank)).square().mean(); }

// Compares steps of the ranks' networks with those of one network over all batches.
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
    one.zero_grad(step % 2 == 0);  // the gradients are reset to none, or to zero
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

// The gradient of an embedding may be sparse. It is averaged as a dense one.
task<> sparse_gradients(communicator world) {
  const int me = world.rank(), n = world.size();
  ::torch::nn::Embedding table(::torch::nn::EmbeddingOptions(4, 2).sparse(true));
  auto ddp = co_await tutti::torch::data_parallel::create(world, table);
  for (int step = 0; step < 2; ++step) {
    table->zero_grad();
    const auto backward = [&] { table(at::full({1}, me, at::kLong)).sum().backward(); };
    co_await compute(backward);
    co_await ddp.reduced();
    for (int row = 0; row < 4; ++row)
      TUTTI_EXPECT(table->weight.grad()[row][0].item<float>() == (row < n ? 1.0F / n : 0));
  }
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

// After loading, all ranks have what rank 0 saved. A failed save keeps the old file.
task<> saved_and_loaded(communicator world) {
  const int me = world.rank();
  std::optional<scratch_directory> scratch;
  std::string name;
  if (me == 0) name = scratch.emplace().path();
  const std::filesystem::path folder = co_await broadcast_object(world, name, 0);
  const std::filesystem::path path = folder / "model.pt";
  network mine;
  {
    const at::NoGradGuard plain;
    for (at::Tensor& p : mine.parameters()) p.add_(me + 1);
  }
  const auto model = std::make_shared<network>(mine);
  const at::Tensor before = model->first->weight.clone();
  co_await tutti::torch::save(world, model, path);
  TUTTI_EXPECT(std::distance(std::filesystem::directory_iterator(folder), {}) == 1);
  {
    const at::NoGradGuard plain;
    for (at::Tensor& p : model->parameters()) p.zero_();
  }
  co_await tutti::torch::load(world, model, path);
  at::Tensor of_0 = model->first->weight.detach().clone();
  co_await world.broadcast(of_0, 0);
  TUTTI_EXPECT(of_0.equal(model->first->weight));
  if (me == 0) TUTTI_EXPECT(of_0.equal(before));

  const auto not_there = co_await as_result(tutti::torch::load(world, model, folder / "none.pt"));
  TUTTI_EXPECT(not_there.error == errc::system);
  TUTTI_EXPECT(not_there.message.find("none.pt on rank 0: ") != std::string::npos);
  const std::filesystem::path blocked = folder / "a folder";  // no file replaces it
  if (me == 0) std::filesystem::create_directory(blocked);
  const auto failed = co_await as_result(tutti::torch::save(world, model, blocked));
  TUTTI_EXPECT(failed.error == errc::system);
  co_await tutti::torch::load(world, model, path);
  co_await world.barrier();
}

task<> a_sharded_optimiser(communicator world) {
  const int n = world.size();
  std::vector<sharded_piece<at::Tensor>> pieces;
  for (const std::int64_t size : {6, 7})  // which some numbers of ranks divide evenly
    pieces.push_back(
        {at::full({size}, world.rank() == 0 ? 3.0 : 0.0), at::full({size}, world.rank() + 1.0), {}});
  auto optimiser = co_await sharded<at::Tensor>::create(world, pieces);
  at::Tensor momentum = at::zeros({static_cast<std::int64_t>(optimiser.own_elements())});
  for (std::size_t i = pieces.size(); i-- > 0;) {
    optimiser.ready(i);
    const shard<at::Tensor> own = co_await optimiser.reduced(i);
    const auto offset = static_cast<std::int64_t>(own.offset);
    momentum.narrow(0, offset, own.gradient.numel()).add_(own.gradient);
    own.parameters.sub_(own.gradient);
  }
  optimiser.gather();
  co_await optimiser.gathered();
  const double average = (n + 1) / 2.0;
  for (const auto& piece : pieces) TUTTI_EXPECT(piece.parameters.eq(3 - average).all().item<bool>());
  const at::Tensor whole = at::zeros({world.rank() == 0 ? 13 : 0});
  co_await optimiser.gather_state(momentum, whole, 0);
  TUTTI_EXPECT(whole.eq(average).all().item<bool>());
  momentum.zero_();
  co_await optimiser.scatter_state(whole, momentum, 0);
  TUTTI_EXPECT(momentum.eq(average).all().item<bool>());
}

}  // namespace

TEST_CASE("every operation takes tensors") {
  for (const int ranks : {2, 3}) run_on(ranks, every_verb);
}
TEST_CASE("chunks of a tensor, and callables of one type") { run_on(3, pieces_and_callables); }
TEST_CASE("a tensor on a device is passed with a stream") { run_on(2, on_a_device); }
TEST_CASE("a module is saved by rank 0 and loaded by all") { run_on(3, saved_and_loaded); }
TEST_CASE("an operation keeps its tensors until it has ended") { run_on(2, kept_until_the_end); }
TEST_CASE("an unsuitable tensor is refused with an alternative") { run_on(2, refused); }
TEST_CASE("a module on several ranks learns the same as on one") {
  for (const int ranks : {2, 4}) run_on(ranks, same_as_one);
}
TEST_CASE("an optimiser of tensors is sharded") {
  for (const int ranks : {1, 2, 3, 4}) run_on(ranks, a_sharded_optimiser);
}
TEST_CASE("sparse gradients are averaged") { run_on(2, sparse_gradients); }
TEST_CASE("a parameter of another type than float is refused by its name") { run_on(2, refuses_other_types); }

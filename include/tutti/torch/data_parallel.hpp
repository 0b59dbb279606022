// SPDX-License-Identifier: Apache-2.0
// torch::data_parallel: what torch.nn.parallel.DistributedDataParallel is in Python, for modules of PyTorch's
// C++ library. Part of tutti/torch.hpp. Link with tutti::torch.
#pragma once

#include <tutti/torch/tensor.hpp>
#include <tutti/train/data_parallel.hpp>

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace tutti::torch {

// A module whose gradients are averaged over the ranks while its backward pass computes the remaining ones.
//
//   auto ddp = co_await tutti::torch::data_parallel::create(world, network);
//   for (each batch) {
//     optimizer.zero_grad();
//     auto backward = [&] { loss(network(batch.data), batch.target).backward(); };
//     co_await tutti::compute(backward);
//     co_await ddp.reduced();
//     optimizer.step();
//   }
//
// Each parameter's gradient lies in memory of this object. A gradient that the program has reset to none is
// put back there, which costs a copy. A gradient that a backward pass has not reached counts as it is, and as
// zero if there is none. So parameters may be unused on some ranks or on all.
//
// Belongs to the loop thread of its communicator. The backward pass may run on any thread, one pass at a
// time. Move-only. Keeps the parameters and buffers, not the module.
class data_parallel {
 public:
  // Registers the module and copies the parameters and buffers of rank 0 to every rank. Collective over `c`.
  // `module` is a torch::nn::Module, a shared_ptr of one, or its holder.
  // Errors: errc::invalid_argument if no parameter requires a gradient, or one is not of float on the CPU;
  // the text names it. errc::mismatch on all ranks if they have different parameters.
  template <class Module>
  static task<data_parallel> create(communicator c, const Module& module, data_parallel_options o = {}) {
    if constexpr (requires { module.parameters(); })
      return of_tensors(std::move(c), named(module.named_parameters()), named(module.named_buffers()),
                        std::move(o));
    else
      return create(std::move(c), *module, std::move(o));
  }

  // Waits until every gradient holds the average (or sum). Collective.
  // Errors: those of tutti::data_parallel::reduced().
  // Cancellation: as tutti::data_parallel::reduced().
  task<> reduced() {
    state_->adopt_all();
    return state_->averaging.reduced();
  }
  // Copies the buffers of `root`, such as the running means of a batch norm, to all ranks. Collective.
  task<> broadcast_buffers(int root = 0) const { return broadcast(state_->world, state_->buffers, root); }

  // As in tutti::data_parallel.
  auto no_sync() noexcept { return state_->averaging.no_sync(); }
  void begin_step(double weight) { state_->averaging.begin_step(weight); }
  task<bool> join_step() {
    state_->adopt_all();
    return state_->averaging.join_step();
  }
  std::size_t buckets() const noexcept { return state_->averaging.buckets(); }
  averaging_times last() const noexcept { return state_->averaging.last(); }

 private:
  struct named_tensor {
    std::string name;
    at::Tensor tensor;
  };
  struct state {
    state() = default;
    state(const state&) = delete;
    state& operator=(const state&) = delete;
    ~state() {
      for (std::size_t i = 0; i < hooks.size(); ++i) accumulators[i]->del_post_hook(hooks[i]);
    }
    // One behind the other, so that they are averaged in place; not as views, which optimisers cannot detach.
    void lay_out(std::int64_t count) {
      const at::Tensor memory = at::zeros({count}, at::kFloat);
      std::int64_t begin = 0;
      for (const at::Tensor& p : parameters) {
        gradients.push_back(at::from_blob(
            memory.mutable_data_ptr<float>() + begin, p.sizes(), [memory](void*) {},
            at::TensorOptions(at::kFloat)));
        begin += p.numel();
      }
    }
    // Marks gradient i ready when a backward pass has added to it.
    void hook(std::size_t i) {
      using variables = std::vector<at::Tensor>;
      accumulators.push_back(::torch::autograd::impl::grad_accumulator(parameters[i]));
      hooks.push_back(
          accumulators[i]->add_post_hook(std::make_unique<::torch::autograd::utils::LambdaPostHook>(
              [this, i](const variables& outputs, const variables&) {
                adopt(i);
                averaging.ready(i);
                return outputs;
              })));
    }
    // Moves gradient i to where it is averaged, if it is not there.
    void adopt(std::size_t i) {
      at::Tensor& gradient = parameters[i].mutable_grad();
      if (gradient.defined() && gradient.is_same(gradients[i])) return;
      const at::NoGradGuard plain;
      if (gradient.defined())
        gradients[i].copy_(gradient.is_sparse() ? gradient.to_dense() : gradient);
      else
        gradients[i].zero_();
      gradient = gradients[i];
    }
    void adopt_all() {
      for (std::size_t i = 0; i < parameters.size(); ++i) adopt(i);
    }

    communicator world;
    std::vector<at::Tensor> parameters, gradients, buffers;
    std::vector<c10::intrusive_ptr<::torch::autograd::Node>> accumulators;
    std::vector<std::uintptr_t> hooks;
    tutti::data_parallel averaging;
  };

  explicit data_parallel(std::unique_ptr<state> s) noexcept : state_(std::move(s)) {}

  template <class Named>
  static std::vector<named_tensor> named(const Named& all) {
    std::vector<named_tensor> list;
    std::unordered_set<const void*> seen;  // tied weights count once
    for (const auto& item : all)
      if (item.value().defined() && seen.insert(item.value().unsafeGetTensorImpl()).second)
        list.push_back({item.key(), item.value()});
    return list;
  }

  static task<> broadcast(communicator c, std::vector<at::Tensor> tensors, int root) {
    const at::NoGradGuard plain;
    for (at::Tensor& t : tensors) {
      at::Tensor dense = t.detach().contiguous();
      co_await c.broadcast(dense, root);
      if (!dense.is_alias_of(t)) t.detach().copy_(dense);
    }
  }

  static task<data_parallel> of_tensors(communicator c, std::vector<named_tensor> parameters,
                                        std::vector<named_tensor> buffers, data_parallel_options o) {
    auto made = std::make_unique<state>();
    made->world = c;
    std::vector<at::Tensor> all;
    std::int64_t count = 0;
    for (const named_tensor& p : parameters) {
      all.push_back(p.tensor);
      if (!p.tensor.requires_grad()) continue;
      if (p.tensor.scalar_type() != at::kFloat || !p.tensor.device().is_cpu())
        throw error(errc::invalid_argument,
                    "torch::data_parallel averages gradients of float on the CPU, and the parameter " +
                        p.name + " is " + p.tensor.toString() +
                        "; convert the module: module->to(torch::kFloat)");
      made->parameters.push_back(p.tensor);
      count += p.tensor.numel();
    }
    for (const named_tensor& b : buffers) made->buffers.push_back(b.tensor);
    made->lay_out(count);
    std::vector<gradient_view> views;
    for (const at::Tensor& g : made->gradients)
      views.emplace_back(std::span<float>(g.mutable_data_ptr<float>(), static_cast<std::size_t>(g.numel())),
                         g.dim() > 1 ? static_cast<std::size_t>(g.size(0)) : 1);
    made->averaging = co_await tutti::data_parallel::create(c, std::move(views), std::move(o));
    co_await broadcast(c, std::move(all), 0);
    co_await broadcast(c, made->buffers, 0);
    for (std::size_t i = 0; i < made->parameters.size(); ++i) made->hook(i);
    co_return data_parallel(std::move(made));
  }

  std::unique_ptr<state> state_;
};

}  // namespace tutti::torch

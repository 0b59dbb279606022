// SPDX-License-Identifier: Apache-2.0
// Tensors and modules of PyTorch's C++ library (libtorch). Link with tutti::torch.
//
// Every operation of a communicator that takes a buffer also takes an at::Tensor, which is torch::Tensor:
//
//   co_await world.all_reduce(tensor, tutti::sum);
//
// A list of tensors is reduced as one buffer. all_reduce_chunks gives pieces of the tensor. A callable that
// reduces names its type: `[](float a, float b) { ... }`. Elements without arithmetic (float8) are not reduced.
// Buffers: the operation keeps the tensor alive until it has ended, so a temporary may be passed.
// Errors: errc::invalid_argument for a tensor that is not contiguous, is sparse, or is of a type without this
// reduction. The text says what to write instead.
//
// A tensor on a device takes a stream, after gpu::open on all ranks (tutti/gpu.hpp; link tutti::gpu too):
//
//   auto stream = tutti::gpu::stream::borrow(device, c10::cuda::getStreamFromPool().stream());
//   co_await world.all_reduce(tensor, tutti::sum, stream);
#pragma once

#include <tutti/torch/checkpoint.hpp>
#include <tutti/torch/data_parallel.hpp>
#include <tutti/torch/tensor.hpp>
#include <tutti/tutti.hpp>

// SPDX-License-Identifier: Apache-2.0
// Tensors and modules of PyTorch's C++ library (libtorch). Link with tutti::torch.
//
// Every operation of a communicator that takes a buffer takes an at::Tensor, which is torch::Tensor:
//
//   co_await world.all_reduce(tensor, tutti::sum);
//
// It keeps the tensor until it has ended, so a temporary may be given, and the program needs no copy. Lists of tensors
// are reduced as if they were one; all_reduce_chunks hands out pieces of the tensor. A callable that reduces names its
// type: [](float a, float b) { ... }. Errors: errc::invalid_argument for what is not contiguous, sparse, or of a type
// that the reduction is not for, with what to write in its place. Elements without arithmetic (float8) travel and are
// not reduced.
//
// A tensor on a device is given with a stream, after gpu::open on all ranks (tutti/gpu.hpp; link tutti::gpu, too):
//
//   auto stream = tutti::gpu::stream::borrow(device, c10::cuda::getStreamFromPool().stream());
//   co_await world.all_reduce(tensor, tutti::sum, stream);
#pragma once

#include <tutti/torch/checkpoint.hpp>
#include <tutti/torch/data_parallel.hpp>
#include <tutti/torch/tensor.hpp>
#include <tutti/tutti.hpp>

// SPDX-License-Identifier: Apache-2.0
// Tensors and modules of PyTorch's C++ library (libtorch). Link with tutti::torch.
//
// Every operation of a communicator that takes a buffer also takes an at::Tensor, which is torch::Tensor:
//
//   co_await world.all_reduce(tensor, tutti::sum);
//
// A list of tensors is reduced as one buffer. Elements without arithmetic (float8) can be sent but not
// reduced. all_reduce_chunks and callables need the element type at compile time:
// `std::span<T>(t.data_ptr<T>(), t.numel())`.
// Buffers: the operation keeps the tensor alive until it has ended, so a temporary may be passed.
// Errors: errc::invalid_argument for a tensor that is not contiguous, not on the CPU, sparse, or of a type
// without this reduction. The text says what to write instead.
#pragma once

#include <tutti/torch/data_parallel.hpp>
#include <tutti/torch/tensor.hpp>
#include <tutti/tutti.hpp>

// SPDX-License-Identifier: Apache-2.0
// Tensors and modules of PyTorch's C++ library (libtorch). Link with tutti::torch.
//
// Every operation of a communicator that takes a buffer takes an at::Tensor, which is torch::Tensor:
//
//   co_await world.all_reduce(tensor, tutti::sum);
//
// It keeps the tensor until it has ended, so a temporary may be given, and the program needs no copy. Lists of tensors
// are reduced as if they were one. Errors: errc::invalid_argument for what is not contiguous, not on the CPU, sparse,
// or of a type that the reduction is not for, with what to write in its place. Elements without arithmetic (float8)
// travel and are not reduced. all_reduce_chunks and callables need the type of the elements:
// std::span<T>(t.data_ptr<T>(), t.numel()).
#pragma once

#include <tutti/torch/data_parallel.hpp>
#include <tutti/torch/tensor.hpp>
#include <tutti/tutti.hpp>

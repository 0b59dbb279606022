// SPDX-License-Identifier: Apache-2.0
// Training of one model on several ranks. Link with tutti::train.
#pragma once

#include <tutti/train/data_parallel.hpp>
#include <tutti/train/gradient_hooks.hpp>
#include <tutti/train/partition.hpp>
#include <tutti/train/replace_file.hpp>
#include <tutti/train/replicas.hpp>
#include <tutti/train/reshard.hpp>
#include <tutti/train/sharded.hpp>
#include <tutti/train/shuffle.hpp>

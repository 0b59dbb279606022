// SPDX-License-Identifier: Apache-2.0
#include "train_mnist/hooks.hpp"

#include <memory>
#include <string>
#include <vector>

namespace train_mnist {
namespace {

// nullptr averages without compression.
std::shared_ptr<tutti::gradient_hook> hook_named(const std::string& name) {
  if (name == "float16") return tutti::float16_hook();
  if (name == "bfloat16") return tutti::bfloat16_hook();
  if (name == "int8") return tutti::int8_hook();
  if (name == "low-rank") return tutti::low_rank_hook();
  return nullptr;
}

}  // namespace

tutti::task<> create_parallel(training& t) {
  std::vector<tutti::gradient_view> gradients;
  for (const tensor& part : t.model.layout())
    gradients.emplace_back(t.model.gradient().subspan(part.begin, part.size), part.rows);
  tutti::data_parallel_options o;
  if (t.options.bucket_kib > 0) o.first_bucket_bytes = o.bucket_bytes = t.options.bucket_kib << 10;
  o.hook = hook_named(t.options.hook);
  o.sum = true;  // each rank weights its samples by the number on all ranks
  t.parallel = co_await tutti::data_parallel::create(t.world, gradients, o);
}

}  // namespace train_mnist

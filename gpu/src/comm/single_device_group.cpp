// SPDX-License-Identifier: Apache-2.0
#include "comm/single_device_group.hpp"

#include "kernels/host_kernels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tutti/error.hpp>
#include <utility>

namespace tutti::gpu::impl {
namespace {

using tutti::extend::ranks_that;
using contributions = single_device_group::contributions;

std::byte* at(const view& v, std::size_t element) noexcept {
  return static_cast<std::byte*>(v.data) + element * v.element_bytes;
}

void copy(driver& with, void* to, const void* from, std::size_t bytes, void* stream) {
  if (to != from && bytes > 0) with.copy(to, from, bytes, stream);
}

void launch(driver& with, const single_device_group::contribution& first, const kernels::arguments& what,
            void* stream) {
  if (what.count > 0 && !with.launch(kernels::find_reduction(first.what.op, first.what.type), what, stream))
    throw error(errc::not_supported, fmt::format("no kernel for {} of {}", tutti::name_of(first.what.op),
                                                 tutti::name_of(first.what.type)));
}

void reduce(driver& with, const contributions& of, void* stream) {
  const single_device_group::contribution& first = *of[0];
  kernels::arguments what{};
  what.count = first.in.count;
  what.ranks = what.input_count = static_cast<int>(of.size());
  what.scaled = first.what.op == reduce_kind::premul_sum ? 1 : 0;
  for (std::size_t r = 0; r < of.size(); ++r) {
    what.inputs[r] = of[r]->in.data;
    what.factors[r] = of[r]->what.factor;
  }
  if (first.what.kind == operation_kind::reduce_scatter) {
    what.count = first.out.count;
    what.output_count = 1;
    for (std::size_t r = 0; r < of.size(); ++r) {
      for (std::size_t i = 0; i < of.size(); ++i) what.inputs[i] = at(of[i]->in, r * what.count);
      what.outputs[0] = of[r]->out.data;
      launch(with, first, what, stream);
    }
    return;
  }
  for (std::size_t r = 0; r < of.size(); ++r)
    if (first.what.kind == operation_kind::all_reduce || static_cast<int>(r) == first.what.root)
      what.outputs[what.output_count++] = of[r]->out.data;
  launch(with, first, what, stream);
}

// A rank whose `in` is its `out` would overwrite blocks that others have not read: its input is copied first.
void copy_inputs_in_place(const std::shared_ptr<driver>& with, const contributions& of, void* stream) {
  for (const auto& v : of) {
    const std::size_t bytes = v->in.bytes();
    if (v->in.data != v->out.data || bytes == 0) continue;
    const auto free = [with](void* p) { with->free(p, memory_kind::device); };
    const std::shared_ptr<void> kept(with->allocate(bytes, memory_kind::device), free);
    with->copy(kept.get(), v->in.data, bytes, stream);
    v->in.data = kept.get();
    v->keep = kept;
  }
}

}  // namespace

std::shared_ptr<single_device_group> single_device_group::find(const std::string& name, int ranks) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<single_device_group>> all;
  const std::lock_guard lock(mutex);
  std::erase_if(all, [](const auto& e) { return e.second.expired(); });
  return lock_or_make(all[name], ranks);
}

void single_device_group::settle(std::shared_ptr<contribution> v,
                                 const std::optional<error>& failure) noexcept {
  if (failure) v->failure.emplace(code_of(*failure), failure->what());  // threads share no text
  const std::shared_ptr<const doorbell_handle> waker = v->waker;
  v->settled.store(true, std::memory_order_release);
  v.reset();
  if (waker) waker->notify();
}

single_device_group::arguments single_device_group::arguments_of(const device_arguments& c) {
  arguments a{c.kind, c.in.type, c.op.kind, c.peer, c.in.element_bytes, c.in.count, c.out.count};
  if (a.op == reduce_kind::premul_sum) a.factor = factor_in(c.op, a.type);
  return a;
}

std::string single_device_group::disagreement(const contributions& of) {
  const auto describe = [](const arguments& v) {
    return fmt::format("{} of {} {}{}{}", name_of(v.kind), v.in, tutti::name_of(v.type),
                       v.op == reduce_kind::none ? std::string() : fmt::format(", {}", tutti::name_of(v.op)),
                       v.root < 0 ? std::string() : fmt::format(", root {}", v.root));
  };
  for (std::size_t r = 1; r < of.size(); ++r) {
    const arguments &a = of[0]->what, &b = of[r]->what;
    // Counts that only the root uses may differ.
    const bool counts = row_of(a.kind).agreed == side::out ? a.out == b.out : a.in == b.in;
    if (a.kind != b.kind || a.root != b.root || a.op != b.op || a.type != b.type ||
        a.element_bytes != b.element_bytes || !counts)
      return fmt::format("ranks called different collectives: rank 0 {}, rank {} {}", describe(a), r,
                         describe(b));
  }
  return {};
}

void single_device_group::enqueue(const contributions& of, const std::shared_ptr<driver>& with,
                                  void* stream) {
  for (const auto& v : of)
    if (v->event != nullptr) with->wait(stream, v->event);
  const contribution& first = *of[0];
  const tutti::extend::operation_row& row = row_of(first.what.kind);
  if (row.reduces) return reduce(*with, of, stream);
  const bool exchanges = row.in == shape::blocks && row.out == shape::blocks;
  if (exchanges) copy_inputs_in_place(with, of, stream);
  // Each rank with a result copies its part from each rank with an input.
  const auto takes_part = [&](ranks_that which, std::size_t r) {
    return includes(which, static_cast<int>(r) == first.what.root);
  };
  const std::size_t block =
      row.out == shape::block ? first.out.count : first.in.count / (exchanges ? of.size() : 1);
  for (std::size_t to = 0; to < of.size(); ++to)
    for (std::size_t from = 0; from < of.size() && takes_part(row.writes, to); ++from)
      if (takes_part(row.reads, from))
        copy(*with, at(of[to]->out, row.out == shape::blocks ? from * block : 0),
             at(of[from]->in, row.in == shape::blocks ? to * block : 0), block * first.in.element_bytes,
             stream);
}

void single_device_group::come(int rank, const std::shared_ptr<contribution>& mine,
                               const std::shared_ptr<driver>& with, void* stream) {
  const std::lock_guard lock(mutex_);
  if (broken_) return settle(mine, broken_);
  const std::size_t at = next_[static_cast<std::size_t>(rank)]++ - complete_;
  if (at == tables_.size()) tables_.emplace_back(static_cast<std::size_t>(ranks_));
  contributions& all = tables_[at];
  all[static_cast<std::size_t>(rank)] = mine;
  if (std::find(all.begin(), all.end(), nullptr) != all.end()) return;

  std::optional<error> failure;
  try {
    if (const std::string text = disagreement(all); !text.empty()) throw error(errc::mismatch, text);
    enqueue(all, with, stream);
    for (const auto& v : all) with->record(v->event, stream);
  } catch (const error& e) {
    failure = e;
  }
  for (auto& v : all) settle(std::move(v), failure);
  // Each rank comes to its collectives in order, so the first table is the one that is complete.
  std::rotate(tables_.begin(), tables_.begin() + 1, tables_.end());
  ++complete_;
}

void single_device_group::break_up(const error& why) noexcept {
  const std::lock_guard lock(mutex_);
  if (broken_) return;
  broken_ = why;
  for (contributions& all : tables_)
    for (auto& v : all)
      if (v) settle(std::move(v), broken_);
  tables_.clear();
}

}  // namespace tutti::gpu::impl

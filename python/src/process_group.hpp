// SPDX-License-Identifier: Apache-2.0
// The backend "tutti" of torch.distributed: a process group on one tutti world.
#pragma once

#include "device_place.hpp"
#include "work.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <tutti/communicator.hpp>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace tutti::python {

class torch_store;

class process_group final : public c10d::Backend {
 public:
  struct options : Backend::Options {
    // `name`: the registered name of the backend, shown by the profiler.
    explicit options(std::chrono::milliseconds timeout, std::string name = "tutti")
        : Backend::Options(std::move(name), bounded(timeout)) {}
    c10::intrusive_ptr<Backend::Options> clone() const TUTTI_SINCE_TORCH_2_15 {
      return c10::make_intrusive<options>(*this);
    }
  };

  // Joins the world: returns when all `size` ranks have joined. Call without the interpreter's lock.
  // `one_job`: as for torch_store.
  process_group(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                c10::intrusive_ptr<options> chosen, bool one_job = true);
  // A group whose ranks others are made of, and its world.
  struct parent {
    explicit parent(process_group& of);  // on the loop
    parent(const parent&) = delete;
    parent& operator=(const parent&) = delete;
    ~parent();
    torch_runtime& of;
    const int rank;
    communicator world;
  };
  // Some ranks of a group become one of their own, in its world: no connections are made. `members` are ranks of the
  // parent, by rank of the new group. Each of them learns the group's numbers from the first one. Returns when this rank
  // has them; others may come later. Call without the interpreter's lock.
  process_group(const parent& of, const c10::intrusive_ptr<c10d::Store>& store,
                const std::vector<std::uint64_t>& members, c10::intrusive_ptr<options> chosen);
  ~process_group() override;

  // The group of init_process_group, while it has not been destroyed; nullptr if it has another backend or store. The
  // same on all ranks.
  static std::unique_ptr<parent> of_all(const c10::intrusive_ptr<c10d::Store>& store);
  void set_of_all(const c10::intrusive_ptr<c10d::Store>& store);

  const std::string getBackendName() const override { return options_->backend; }
  c10::intrusive_ptr<Backend::Options> getBackendOptions() override { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) override { options_->timeout = bounded(timeout); }
  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                    const std::vector<int>& ranks,
                                    const c10::intrusive_ptr<Backend::Options>& opts) override;
  c10::intrusive_ptr<Backend> merge(const c10::intrusive_ptr<c10d::Store>& store,
                                    const c10::intrusive_ptr<Backend::Options>& opts, const int& rank,
                                    const int& size) TUTTI_SINCE_TORCH_2_15;
  bool supportsShrinking() const TUTTI_SINCE_TORCH_2_15 { return true; }
  // The ranks that are not in `without` call it. The ranks in it may have died or may live on. The group's store lives.
  c10::intrusive_ptr<Backend> shrink(const std::vector<std::int64_t>& without, int flags,
                                     const c10::intrusive_ptr<Backend::Options>& opts) TUTTI_SINCE_TORCH_2_15;
  std::uint64_t getSequenceNumberForGroup() override { return sequence_; }
  void setSequenceNumberForGroup() override {}
  c10d::ErrorType getError() override;
  void abort() override;
  void shutdown() override;
  void enableCollectivesTiming() override {}
  void eagerConnectSingleDevice(at::Device on) override { place_of(on, "init_process_group"); }
  // Why operations on tensors of a device are staged through host memory. Empty if they are not, or before the first.
  std::string why_staged();

  // Who goes on after a failure.
  struct survivors {
    std::vector<int> ranks;  // of this group, in order
    std::string offer;       // of the first of them, to all
  };
  // Agrees on them, as communicator::shrink() does; `offer` is called on the first one. All survivors call it, without
  // the interpreter's lock.
  survivors agree_on_survivors(const std::function<std::string()>& offer);
  std::chrono::milliseconds timeout() const { return options_->timeout; }

  bool supportsAbortHooks() const TUTTI_SINCE_TORCH_2_15 { return true; }
  void registerAbortHook(std::int64_t id, c10d::AbortHook hook) TUTTI_SINCE_TORCH_2_15;
  void unregisterAbortHook(std::int64_t id) TUTTI_SINCE_TORCH_2_15;
  bool supportsCompletionHooks() const TUTTI_SINCE_TORCH_2_15 { return true; }
  void registerCompletionHook(std::int64_t id, c10d::CompletionHook hook) TUTTI_SINCE_TORCH_2_15;
  void unregisterCompletionHook(std::int64_t id) TUTTI_SINCE_TORCH_2_15;
  void registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) override;
  void waitForPendingWorks() override;

  using tensors = std::vector<at::Tensor>;
  using result = c10::intrusive_ptr<c10d::Work>;
  result broadcast(tensors& data, const c10d::BroadcastOptions& o) override;
  result allreduce(tensors& data, const c10d::AllreduceOptions& o) override;
  result allreduce_sparse(tensors& data, const c10d::AllreduceOptions& o) override;
  result allreduce_coalesced(tensors& data, const c10d::AllreduceCoalescedOptions& o) override;
  result reduce(tensors& data, const c10d::ReduceOptions& o) override;
  result allgather(std::vector<tensors>& out, tensors& in, const c10d::AllgatherOptions& o) override;
  result all_gather_single(at::Tensor& out, at::Tensor& in, const c10d::AllgatherOptions& o) override;
  result allgather_coalesced(std::vector<tensors>& out, tensors& in,
                             const c10d::AllgatherOptions& o) override;
  result all_gather_single_coalesced(tensors& out, tensors& in, const c10d::AllgatherOptions& o) override;
  result gather(std::vector<tensors>& out, tensors& in, const c10d::GatherOptions& o) override;
  result gather_single(at::Tensor& out, at::Tensor& in, const c10d::GatherOptions& o) TUTTI_SINCE_TORCH_2_15;
  result scatter(tensors& out, std::vector<tensors>& in, const c10d::ScatterOptions& o) override;
  result reduce_scatter(tensors& out, std::vector<tensors>& in, const c10d::ReduceScatterOptions& o) override;
  result reduce_scatter_single(at::Tensor& out, at::Tensor& in, const c10d::ReduceScatterOptions& o) override;
  result reduce_scatter_single_coalesced(tensors& out, tensors& in,
                                         const c10d::ReduceScatterOptions& o) override;
  result all_to_all_single(at::Tensor& out, at::Tensor& in, std::vector<std::int64_t>& out_splits,
                           std::vector<std::int64_t>& in_splits, const c10d::AllToAllOptions& o) override;
  result alltoall(tensors& out, tensors& in, const c10d::AllToAllOptions& o) override;
  result send(tensors& data, int to, int tag) override;
  result recv(tensors& data, int from, int tag) override;
  result recvAnysource(tensors& data, int tag) override;
  result barrier(const c10d::BarrierOptions& o) override;
  void monitoredBarrier(const c10d::BarrierOptions& o, bool wait_all_ranks) override;

 private:
  struct request;
  static extend::call call_of(extend::operation_kind kind);
  // Those of this group, save what `opts` has.
  c10::intrusive_ptr<options> options_for(const c10::intrusive_ptr<Backend::Options>& opts) const;
  result begin(request&& r);
  result reduce_sparse(at::Tensor& data, const c10d::AllreduceOptions& o);
  void check(const char* what) const;
  std::unique_ptr<parent> as_parent(const char* what);  // throws if the group was destroyed
  void check_tag(int tag, const char* what) const;
  const communicator& world_of_callbacks();
  // Runs a task, which may use the store. What a signal's handler raises ends the wait for it.
  template <class F>
  void run(torch_store* through, const F& make_task);
  // Where collectives on tensors of `on` run; null: on the host. The first call is a collective itself.
  std::shared_ptr<device_place> place_of(c10::Device on, const char* what);
  struct numbers;
  void compare_calls();  // throws if the ranks' last collectives differ
  void leave();

  torch_runtime& runtime_ = torch_runtime::get();
  const c10::intrusive_ptr<options> options_;
  const std::chrono::milliseconds joined_with_;
  const c10::weak_intrusive_ptr<c10d::Store> store_;  // PyTorch keeps it while the group is in use
  communicator world_;                                // on the loop; empty after shutdown()
  communicator in_callbacks_;              // on the loop; empty until a callback starts a collective
  std::uint32_t number_in_callbacks_ = 1;  // of that communicator; no rank gives out 1
  std::mutex deciding_;
  placement on_device_;            // of world_
  placement callbacks_on_device_;  // of in_callbacks_
  std::atomic<std::uint64_t> sequence_{0};
  std::atomic<unsigned> monitored_barriers_{0};
  const std::shared_ptr<group_hooks> hooks_ = std::make_shared<group_hooks>();
};

}  // namespace tutti::python

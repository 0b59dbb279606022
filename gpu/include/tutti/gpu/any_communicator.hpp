// SPDX-License-Identifier: Apache-2.0
// any_communicator: what the ranks of a device communicator can do together; of every kind of device
// communicator.
#pragma once

#include <tutti/gpu/stream.hpp>
#include <tutti/reduce_op.hpp>
#include <tutti/status.hpp>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>

namespace tutti::gpu {

namespace detail {
class group;
}

// The operations of tutti::communicator on memory of devices, each with the stream that it comes after.
//
// An operation begins when what is on that stream, at the moment when it is started, has passed: it reads and
// writes nothing before. What comes later on the stream does not wait for it: say so with stream.wait(work),
// or await it. Collectives are started in one order on all ranks, counts are in elements, `in` and `out` may
// be the same memory where tutti::communicator allows it. Memory that is given as a span stays until the
// device has passed the operation.
//
// Errors, beyond those of tutti::communicator: errc::device_failed; errc::not_supported for a reduction that
// this kind of communicator cannot do. What fails, is cancelled or times out on one rank fails on all.
class any_communicator {
 public:
  any_communicator() noexcept = default;
  explicit any_communicator(std::shared_ptr<detail::group> g) noexcept : group_(std::move(g)) {}

  explicit operator bool() const noexcept { return group_ != nullptr; }
  int rank() const noexcept;
  int size() const noexcept;
  const std::string& name() const noexcept;
  device on() const noexcept;

  template <WritableDeviceMemory B>
  operation broadcast(const B& data, int root, const stream& after) const {
    return simple(detail::operation_kind::broadcast, data, data, root, after);
  }
  template <WritableDeviceMemory B, class Op>
  operation all_reduce(const B& inout, const Op& op, const stream& after) const {
    return reducing(detail::operation_kind::all_reduce, inout, inout, op, -1, after);
  }
  template <DeviceMemory I, WritableDeviceMemory B, class Op>
    requires(!std::is_same_v<B, stream>)
  operation all_reduce(const I& in, const B& out, const Op& op, const stream& after) const {
    return reducing(detail::operation_kind::all_reduce, in, out, op, -1, after);
  }
  template <WritableDeviceMemory B, class Op>
  operation reduce(const B& inout, const Op& op, int root, const stream& after) const {
    return reducing(detail::operation_kind::reduce, inout, inout, op, root, after);
  }
  template <DeviceMemory I, WritableDeviceMemory B, class Op>
  operation reduce(const I& in, const B& out, const Op& op, int root, const stream& after) const {
    return reducing(detail::operation_kind::reduce, in, out, op, root, after);
  }
  template <DeviceMemory I, WritableDeviceMemory B>
  operation scatter(const I& in, const B& out, int root, const stream& after) const {
    return simple(detail::operation_kind::scatter, in, out, root, after);
  }
  template <DeviceMemory I, WritableDeviceMemory B>
  operation gather(const I& in, const B& out, int root, const stream& after) const {
    return simple(detail::operation_kind::gather, in, out, root, after);
  }
  template <DeviceMemory I, WritableDeviceMemory B>
  operation all_gather(const I& in, const B& out, const stream& after) const {
    return simple(detail::operation_kind::all_gather, in, out, -1, after);
  }
  template <DeviceMemory I, WritableDeviceMemory B, class Op>
  operation reduce_scatter(const I& in, const B& out, const Op& op, const stream& after) const {
    return reducing(detail::operation_kind::reduce_scatter, in, out, op, -1, after);
  }
  template <DeviceMemory I, WritableDeviceMemory B>
  operation all_to_all(const I& in, const B& out, const stream& after) const {
    return simple(detail::operation_kind::all_to_all, in, out, -1, after);
  }
  // Completes when `data` may be changed.
  template <DeviceMemory B>
  operation send(const B& data, int dest, const stream& after, int tag = 0) const {
    detail::call what = describe(detail::operation_kind::send, data, data, dest, after);
    what.tag = tag;
    return operation(std::move(what));
  }
  // From `source` (or any_source) with `tag` (or any_tag), where this kind of communicator has them. A
  // shorter message is fine: status.bytes.
  template <WritableDeviceMemory B>
  operation recv(const B& data, int source, const stream& after, int tag = any_tag) const {
    detail::call what = describe(detail::operation_kind::receive, data, data, source, after);
    what.tag = tag;
    return operation(std::move(what));
  }

  const std::shared_ptr<detail::group>& state() const noexcept { return group_; }

 protected:
  template <class I, class B>
  detail::call describe(detail::operation_kind kind, const I& in, const B& out, int peer,
                        const stream& after) const {
    static_assert(
        std::is_same_v<std::remove_cv_t<typename I::value_type>, std::remove_cv_t<typename B::value_type>>,
        "tutti: both buffers need one element type");
    detail::call what(kind, as_target(), after.state());
    what.in = detail::view_of(in);
    what.out = detail::view_of(out);
    what.peer = peer;
    return what;
  }

 private:
  std::shared_ptr<detail::target> as_target() const;
  template <class I, class B>
  operation simple(detail::operation_kind kind, const I& in, const B& out, int root,
                   const stream& after) const {
    return operation(describe(kind, in, out, root, after));
  }
  template <class I, class B, class Op>
  operation reducing(detail::operation_kind kind, const I& in, const B& out, const Op& op, int root,
                     const stream& after) const {
    detail::call what = describe(kind, in, out, root, after);
    what.op = tutti::detail::make_reduction<Op, std::remove_cv_t<typename B::value_type>>(op);
    return operation(std::move(what));
  }

  std::shared_ptr<detail::group> group_;
};

}  // namespace tutti::gpu

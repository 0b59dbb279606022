// SPDX-License-Identifier: Apache-2.0
#include "train/bucket_work.hpp"

#include "comm/communicator_devices.hpp"
#include "kernels/elements.hpp"
#include "kernels/host_kernels.hpp"

#include <boost/asio/detached.hpp>
#include <tutti/compute.hpp>
#include <utility>

namespace tutti::gpu::train {

request in_place(tutti::detail::operation_kind kind, const communicator& c, const device_values& inout,
                 const stream& after, int root, reduce_kind op) {
  tutti::detail::call what(kind, tutti::detail::reference_to(c));
  what.in = what.out = inout.view();
  what.peer = root;
  what.op.kind = op;
  what.part = device_part_of(after, inout.view().keep, {});
  return request(std::move(what));
}

task<> all_reduce(communicator c, device_values inout, reduce_kind op, stream in) {
  request reducing = in_place(tutti::detail::operation_kind::all_reduce, c, inout, in, 0, op);
  if (!reducing.done()) {
    const auto& part = static_cast<const detail::device_call&>(*reducing.state()->what().part.get());
    detail::work_awaiter enqueued(part.in_progress(), detail::work_awaiter::until::enqueued);
    co_await enqueued;
  }
  in.wait(reducing);
  if (reducing.done()) {
    co_await reducing;
  } else {
    reducing(boost::asio::detached);
  }
}

task<> convert(device_values to, device_values from, double factor, stream in) {
  detail::stream_state& s = *in.state();
  detail::driver& d = s.on().driver();
  kernels::convert_arguments a{from.data(), to.data(), factor, from.size()};
  if (d.convert(from.type(), to.type(), a, s.native())) {
    s.keep({from.view().keep, to.view().keep});
    co_return;
  }
  const auto source = s.on().pinned().take(from.bytes()), result = s.on().pinned().take(to.bytes());
  d.copy(source->data, from.data(), from.bytes(), s.native());
  s.keep({source, from.view().keep});
  co_await in.reached();
  a.input = source->data;
  a.output = result->data;
  const auto work = [&] { kernels::find_conversion(from.type(), to.type())->on_host(a); };
  co_await tutti::compute(work);
  d.copy(to.data(), result->data, to.bytes(), s.native());
  s.keep({result, to.view().keep});
}

}  // namespace tutti::gpu::train

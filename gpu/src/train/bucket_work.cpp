// SPDX-License-Identifier: Apache-2.0
#include "train/bucket_work.hpp"

#include "comm/communicator_devices.hpp"
#include "kernels/convert_host.hpp"
#include "kernels/elements.hpp"

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
  if (d.convert({from.type(), to.type(), from.data(), to.data(), from.size(), factor}, s.native())) {
    s.keep({from.view().keep, to.view().keep});
    co_return;
  }
  const auto source = s.on().borrow_pinned(from.bytes()), result = s.on().borrow_pinned(to.bytes());
  d.copy(source->data, from.data(), from.bytes(), s.native());
  s.keep({source, from.view().keep});
  co_await in.reached();
  kernels::convert_arguments a{};
  a.input = source->data;
  a.output = result->data;
  a.factor = factor;
  a.count = from.size();
  const auto work = [&] { kernels::convert_on_host(from.type(), to.type(), a); };
  co_await tutti::compute(work);
  d.copy(to.data(), result->data, to.bytes(), s.native());
  s.keep({result, to.view().keep});
}

}  // namespace tutti::gpu::train

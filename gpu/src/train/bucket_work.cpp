// SPDX-License-Identifier: Apache-2.0
#include "train/bucket_work.hpp"

#include "comm/communicator_devices.hpp"
#include "kernels/convert_host.hpp"
#include "kernels/elements.hpp"

#include <boost/asio/detached.hpp>
#include <tutti/compute.hpp>
#include <utility>

namespace tutti::gpu::train {
namespace {

request in_place(tutti::detail::operation_kind kind, const communicator& c, const device_values& inout,
                 const stream& after, int root, reduce_kind op) {
  tutti::detail::call what(kind, tutti::detail::reference_to(c));
  what.in = what.out = inout.view();
  what.peer = root;
  what.op.kind = op;
  what.part = device_part_of(after, inout.view().keep, {});
  return request(std::move(what));
}

}  // namespace

request all_reduce(const communicator& c, const device_values& inout, reduce_kind kind, const stream& after) {
  return in_place(tutti::detail::operation_kind::all_reduce, c, inout, after, 0, kind);
}
request broadcast(const communicator& c, const device_values& inout, int root, const stream& after) {
  return in_place(tutti::detail::operation_kind::broadcast, c, inout, after, root, reduce_kind::none);
}

task<> enqueued_before(request collective, stream in) {
  co_await detail::in_streams(&collective);
  in.wait(collective);
  if (collective.done()) {
    co_await collective;
  } else {
    collective(boost::asio::detached);
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

// SPDX-License-Identifier: Apache-2.0
// The public side of CUDA: which GPUs there are, and opening one.
#include "cuda/driver.hpp"
#include "device/attachment.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <map>
#include <tutti/cuda.hpp>
#include <tutti/runtime.hpp>

namespace tutti::cuda {
namespace {

const abi::table& loaded() {
  std::string why;
  const abi::table* const calls = abi::load(why);
  if (calls == nullptr)
    throw error(errc::not_supported, fmt::format("no CUDA: {}. Without a GPU, an emulated device does the same: tutti::emulated::open", why));
  return *calls;
}

int ordinal_for(const abi::table& calls, int wanted) {
  if (wanted < 0) {
    const char* const local = std::getenv("LOCAL_RANK");
    return local == nullptr ? 0 : std::atoi(local) % calls.devices();
  }
  if (wanted >= calls.devices())
    throw error(errc::invalid_argument, fmt::format("cuda device {}: there are {} (numbered from 0)", wanted, calls.devices()));
  return wanted;
}

template <class Loop>
gpu::device open_on(Loop& of, boost::asio::execution_context& context, int wanted) {
  const abi::table& calls = loaded();
  const int ordinal = ordinal_for(calls, wanted);
  // A loop has a thread: what is open on it is looked for here.
  struct place {
    const abi::table* calls;
    int ordinal;
    boost::asio::execution_context* context;
    auto operator<=>(const place&) const = default;
  };
  static thread_local std::map<place, std::weak_ptr<gpu::detail::attachment>> open_here;
  std::erase_if(open_here, [](const auto& e) { return e.second.expired(); });
  std::weak_ptr<gpu::detail::attachment>& known = open_here[place{&calls, ordinal, &context}];
  if (auto found = known.lock()) return gpu::device(std::move(found));
  auto made = std::make_shared<gpu::detail::attachment>(of, std::make_shared<cuda_driver>(shared_context::find(calls, ordinal)));
  known = made;
  return gpu::device(std::move(made));
}

}  // namespace

int device_count() noexcept {
  std::string why;
  const abi::table* const calls = abi::load(why);
  return calls == nullptr ? 0 : calls->devices();
}
std::string why_not() {
  std::string why;
  abi::load(why);
  return why;
}

gpu::device open(const communicator& of, int ordinal) {
  if (!of) throw error(errc::invalid_argument, "cuda::open: an empty communicator has no loop");
  return open_on(of, of.get_executor().context(), ordinal);
}
gpu::device open(runtime& rt, int ordinal) { return open_on(rt, rt.context(), ordinal); }

const gpu::device& stream::checked(const gpu::device& on) {
  if (!on || dynamic_cast<cuda_driver*>(&on.state().driver()) == nullptr)
    throw error(errc::invalid_argument, fmt::format("a CUDA stream on {}, which is none of CUDA's devices", on.name()));
  return on;
}

}  // namespace tutti::cuda

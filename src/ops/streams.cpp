// SPDX-License-Identifier: Apache-2.0
// Operations of streams: tutti::gpu carries them out.
#include "ops/backend.hpp"

namespace tutti::ops {

detail::stream_part& stream_part_of(const detail::call& what) noexcept {
  return static_cast<detail::stream_part&>(*what.device.get());
}

const backend streams{
    [](detail::operation_state& state) { return stream_part_of(state.what()).start(state); },
    [](detail::operation_state& state, errc why, const std::string& text) noexcept {
      stream_part_of(state.what()).stop(state, why, text);
    },
    [](detail::operation_state& state, void* running) noexcept {
      stream_part_of(state.what()).abandon(running);
    }};

}  // namespace tutti::ops

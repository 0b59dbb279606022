// SPDX-License-Identifier: Apache-2.0
// Operations of streams: tutti::gpu carries them out.
#include "ops/backend.hpp"

namespace tutti::ops {

using detail::stream_part_of;

const backend streams{
    [](detail::operation_state& state) { return stream_part_of(state.what()).start(state); },
    [](detail::operation_state& state, errc why, const std::string& text) noexcept {
      stream_part_of(state.what()).stop(state, why, text);
    },
    [](detail::operation_state& state, void* running) noexcept {
      stream_part_of(state.what()).abandon(running);
    }};

}  // namespace tutti::ops

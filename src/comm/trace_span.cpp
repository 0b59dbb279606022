// SPDX-License-Identifier: Apache-2.0
#include "flight/recordings.hpp"

#include <tutti/trace.hpp>

namespace tutti {

// Keeps the recorder slot, under the public header's name, alive as long as a span.
trace_span::trace_span(std::string_view name, call_site where) noexcept {
  flight::recorder_slot* const slot = flight::recorder_slot::current();
  if (slot == nullptr) return;
  owner_ = std::shared_ptr<detail::span_owner>(slot->shared_from_this(),
                                               reinterpret_cast<detail::span_owner*>(slot));
  flight::recorder& recorder = slot->recorder();
  start_ = recorder.now();
  const flight::handle h =
      recorder.begin_span(flight::kind_span, recorder.text_of(name), where.line(), start_);
  number_ = h.number;
  place_ = h.place;
}

trace_span::~trace_span() {
  if (owner_ == nullptr) return;
  flight::recorder& recorder = reinterpret_cast<flight::recorder_slot*>(owner_.get())->recorder();
  recorder.end_span({number_, place_}, flight::state::done, start_, recorder.now());
}

}  // namespace tutti

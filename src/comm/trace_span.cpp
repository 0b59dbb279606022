// SPDX-License-Identifier: Apache-2.0
#include "flight/recordings.hpp"

#include <tutti/trace.hpp>

namespace tutti {

// The seat, under the public header's name: it is there as long as a span is.
trace_span::trace_span(std::string_view name, call_site where) noexcept {
  flight::seat* const seat = flight::seat::current();
  if (seat == nullptr) return;
  owner_ = std::shared_ptr<detail::span_owner>(seat->shared_from_this(),
                                               reinterpret_cast<detail::span_owner*>(seat));
  flight::recorder& recorder = seat->recorder();
  start_ = recorder.now();
  const flight::handle h =
      recorder.begin_activity(flight::kind_span, recorder.text_of(name), where.line(), start_);
  number_ = h.number;
  place_ = h.place;
}

trace_span::~trace_span() {
  if (owner_ == nullptr) return;
  flight::recorder& recorder = reinterpret_cast<flight::seat*>(owner_.get())->recorder();
  recorder.end_activity({number_, place_}, flight::state::done, start_, recorder.now());
}

}  // namespace tutti

// SPDX-License-Identifier: Apache-2.0
#include "match/matcher.hpp"

#include "base/log.hpp"

#include <fmt/format.h>

#include <cstdlib>

namespace tutti::match {
namespace {

[[noreturn]] void broken(std::uint32_t context, std::string_view what) noexcept {
  base::log_error(fmt::format("internal error in matching: context {} {}", context, what));
  std::abort();
}

template <class List>
std::size_t length(const List& list) noexcept {
  std::size_t n = 0;
  list.for_each([&n](const auto&) { ++n; });
  return n;
}

std::uint64_t order_of(const posted_receive& r) noexcept { return r.stamp; }
std::uint64_t order_of(const unexpected_message& m) noexcept { return m.arrival; }

// Inserts an element in its order, searched from both ends.
template <class T, class Tag>
void insert_by_order(base::intrusive_list<T, Tag>& list, T& element) noexcept {
  const auto is_later = [&](const T& other) { return order_of(other) > order_of(element); };
  T* earlier = list.back();
  if (earlier == nullptr || !is_later(*earlier)) return list.push_back(element);
  T* later = list.front();
  while (!is_later(*later)) {  // so an earlier one exists
    T* const last = earlier;
    earlier = list.before(*earlier);
    if (!is_later(*earlier)) return list.insert_before(*last, element);
    later = list.after(*later);
  }
  list.insert_before(*later, element);
}

}  // namespace

// ---- contexts ----

void matcher::open_context(std::uint32_t context, int size) {
  if (size < 1) broken(context, fmt::format("is opened with {} sources", size));
  if (peek(context) != nullptr) broken(context, "is opened a second time");
  context_queues& c = open_.try_emplace(context, static_cast<std::uint32_t>(size)).first->second;
  outside_.for_each([&](unexpected_message& m) {
    if (m.from.context != context || !c.has(m.from.source)) return;
    take_out(m);
    push_back(c, m);
  });
  last_context_ = context;
  last_ = &c;
}

void matcher::close_context(std::uint32_t context) noexcept {
  const context_queues* const c = peek(context);
  if (c == nullptr) broken(context, "is closed and was not open");
  if (const std::size_t receives = posted_count(context), messages = length(c->arrivals);
      receives + messages > 0)
    broken(context, fmt::format("is closed with {} receives and {} messages in it", receives, messages));
  open_.erase(context);
  last_context_ = context;
  last_ = nullptr;
}

// ---- matching ----

void matcher::find_others(std::uint32_t context) noexcept {
  const auto at = open_.find(context);
  last_ = at != open_.end() ? &at->second : nullptr;
  last_context_ = context;
}

posted_receive* matcher::earlier_from_any(context_queues& c, std::int32_t tag,
                                          posted_receive* named) noexcept {
  if (named != nullptr && named->stamp < c.from_any.front()->stamp) return named;
  posted_receive* const any = first_accepting(c.from_any, tag);
  return any != nullptr && (named == nullptr || any->stamp < named->stamp) ? any : named;
}

// Inserts the youngest element, which is queued next.
template <class Queue, class T>
void matcher::insert_in_index(Queue& q, T& element) noexcept {
  q.indexed = q.indexed && !q.empty();
  if (q.indexed) index_of(q).insert(element);
}
template void matcher::insert_in_index(posted_queue&, posted_receive&) noexcept;
template void matcher::insert_in_index(source_queue&, unexpected_message&) noexcept;
template void matcher::insert_in_index(arrival_queue&, unexpected_message&) noexcept;

template <class Queue>
bool matcher::has_index(Queue& q) noexcept {
  if (q.indexed) return true;
  if (!index_of(q).prepare()) return false;
  q.for_each([&](auto& element) { index_of(q).insert(element); });
  return q.indexed = true;
}

posted_receive* matcher::search_on(posted_queue& receives, posted_receive& first, std::int32_t tag) noexcept {
  posted_receive* r = receives.after(first);
  for (int passed = 1; r != nullptr && !accepts(r->wanted.tag, tag); r = receives.after(*r))
    if (passed++ == most_passed && has_index(receives)) break;
  if (r == nullptr || accepts(r->wanted.tag, tag)) return r;
  envelope wanted = first.wanted;
  wanted.tag = tag;
  posted_receive* const exact = receives_.first(wanted);
  wanted.tag = any_tag;
  posted_receive* const any = receives_.first(wanted);
  if (exact == nullptr || any == nullptr) return exact != nullptr ? exact : any;
  return exact->stamp < any->stamp ? exact : any;
}

template <class Queue>
unexpected_message* matcher::search_on(Queue& messages, unexpected_message& first,
                                       const envelope& wanted) noexcept {
  unexpected_message* m = messages.after(first);
  for (int passed = 1; m != nullptr && !accepts(wanted.tag, m->from.tag); m = messages.after(*m))
    if (passed++ == most_passed && has_index(messages)) return index_of(messages).first(wanted);
  return m;
}
template unexpected_message* matcher::search_on(source_queue&, unexpected_message&, const envelope&) noexcept;
template unexpected_message* matcher::search_on(arrival_queue&, unexpected_message&,
                                                const envelope&) noexcept;

unexpected_message* matcher::find(const envelope& wanted) noexcept {
  context_queues* c = find_queues(wanted.context);
  if (c == nullptr) return nullptr;
  if (wanted.source == any_source) return first_accepted(c->arrivals, wanted);
  source_queues* const from = c->has(wanted.source) ? c->find(wanted.source) : nullptr;
  return from != nullptr ? first_accepted(from->unexpected, wanted) : nullptr;
}

const unexpected_message* matcher::find_outside(std::uint32_t context, std::int32_t source) const noexcept {
  const unexpected_message* m = outside_.front();
  while (m != nullptr && (m->from.context != context || (source != any_source && m->from.source != source)))
    m = outside_.after(*m);
  return m;
}

void matcher::refuse(const context_queues* c, const envelope& wanted) noexcept {
  if (c == nullptr) broken(wanted.context, "is not open and a receive is posted on it");
  broken(wanted.context, fmt::format("has the sources 0 to {}, and a receive from {} is posted on it",
                                     c->size - 1, wanted.source));
}

// ---- giving back ----

template <class Queue, class T>
void matcher::insert_in_order(Queue& to, T& element) noexcept {
  to.indexed = to.indexed && !to.empty();
  if (to.indexed) index_of(to).insert_in_order(element);
  insert_by_order(to, element);
}

posted_receive* matcher::put_back(unexpected_message& m) noexcept {
  context_queues* c = find_queues(m.from.context);
  if (c == nullptr || !c->has(m.from.source)) {
    insert_by_order(outside_, m);
    return nullptr;
  }
  if (posted_receive* const r = take_receive(*c, m.from)) {
    r->arrival = m.arrival;
    return r;
  }
  insert_in_order(c->from(m.from.source).unexpected, m);
  insert_in_order(c->arrivals, m);
  return nullptr;
}

unexpected_message* matcher::post_again(posted_receive& r) noexcept {
  posted_queue* into = nullptr;
  unexpected_message* const m = take_message(r, into);
  if (m == nullptr) insert_in_order(*into, r);
  return m;
}

// ---- taking out in bulk: first into a list that f cannot reach, then one by one ----

void matcher::gather_unexpected(std::uint32_t context, arrival_list& all) noexcept {
  if (context_queues* c = find_queues(context)) {
    c->arrivals.for_each([this](unexpected_message& m) {
      m.base::list_hook<source_tag>::unlink();
      by_source_.remove(m);
      by_tag_.remove(m);
    });
    all.splice_back(c->arrivals);
  }
  outside_.for_each([&](unexpected_message& m) {
    if (m.from.context != context) return;
    take_out(m);
    all.push_back(m);
  });
}

// ---- for reports ----

std::size_t matcher::posted_count(std::uint32_t context) const noexcept {
  const context_queues* c = peek(context);
  if (c == nullptr) return 0;
  std::size_t n = length(c->from_any);
  c->of.for_each([&n](std::size_t, const source_queues& from) { n += length(from.posted); });
  return n;
}

std::size_t matcher::posted_count() const noexcept {
  std::size_t n = 0;
  for (const auto& [context, queues] : open_) n += posted_count(context);
  return n;
}

std::size_t matcher::unexpected_count() const noexcept {
  std::size_t n = length(outside_);
  for (const auto& [context, queues] : open_) n += length(queues.arrivals);
  return n;
}

std::size_t matcher::unexpected_count(std::uint32_t context) const noexcept {
  const context_queues* c = peek(context);
  std::size_t n = c != nullptr ? length(c->arrivals) : 0;
  for (const unexpected_message* m = outside_.front(); m != nullptr; m = outside_.after(*m))
    if (m->from.context == context) ++n;
  return n;
}

}  // namespace tutti::match

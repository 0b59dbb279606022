// SPDX-License-Identifier: Apache-2.0
// matcher: decides which receive gets which message. A message goes to the receive posted first among those
// that accept it. A receive gets the message that came first among those it accepts. So messages of one
// sender with one tag do not overtake.
//
// Each context and source has a queue of receives and a queue of unexpected messages. So the traffic of one
// peer never waits behind another's. Receives from any source have a queue of their own. Posting stamps say
// whether such a receive is older than one that names the source. Unexpected messages are also in one queue
// in order of arrival, for receives from any source. Elements belong to the caller and carry their links:
// nothing is allocated per message. Not thread-safe.
//
// A search begins at the front of a queue. One that has passed `most_passed` elements goes on in an index by
// source and tag, which the queue then has until it is empty. Wildcards are indexed as such: of two entries that
// fit, the older one is taken. Without memory for the index, the search goes through the queue.
#pragma once

#include "base/intrusive_list.hpp"
#include "base/sparse_array.hpp"
#include "match/queue_index.hpp"

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

namespace tutti::match {

struct posted_tag;
struct arrival_tag;
struct source_tag;
// Rows of indexes: of receives, of messages by source and tag, and of messages by tag.
struct receive_row;
struct source_row;
struct arrival_row;

// A receive that waits for its message. While it is posted, it does not move and `wanted` does not change.
struct posted_receive : base::list_hook<posted_tag>, base::list_hook<receive_row> {
  envelope wanted;
  std::uint64_t stamp = 0;    // its place in the order of posting; set by matcher::post
  std::uint64_t arrival = 0;  // of the message that it was given: that one's place in the order of arrival

  bool posted() const noexcept { return base::list_hook<posted_tag>::linked(); }
};

// A message, or the rts frame of one, that came before its receive. While it is queued, it does not move and
// `from` does not change.
struct unexpected_message : base::list_hook<arrival_tag>,
                            base::list_hook<source_tag>,
                            base::list_hook<source_row>,
                            base::list_hook<arrival_row> {
  envelope from;
  std::uint64_t arrival = 0;  // its place in the order of arrival; set by matcher::keep

  bool queued() const noexcept { return base::list_hook<arrival_tag>::linked(); }
};

struct receive_row {
  using element = posted_receive;
  static const envelope& key(const posted_receive& r) noexcept { return r.wanted; }
  static std::uint64_t order(const posted_receive& r) noexcept { return r.stamp; }
};
struct source_row {
  using element = unexpected_message;
  static const envelope& key(const unexpected_message& m) noexcept { return m.from; }
  static std::uint64_t order(const unexpected_message& m) noexcept { return m.arrival; }
};
struct arrival_row {
  using element = unexpected_message;
  static envelope key(const unexpected_message& m) noexcept {
    return {m.from.context, any_source, m.from.tag};
  }
  static std::uint64_t order(const unexpected_message& m) noexcept { return m.arrival; }
};

class matcher {
 public:
  matcher() = default;
  matcher(const matcher&) = delete;
  matcher& operator=(const matcher&) = delete;
  // Unlinks the remaining elements, which must still exist.
  ~matcher() = default;

  // Makes the queues of a context with sources 0 to size - 1. Messages kept for it enter them in order of
  // arrival. Aborts if the context is already open. std::bad_alloc leaves everything unchanged. O(size +
  // messages kept outside all contexts).
  void open_context(std::uint32_t context, int size);
  // Closes an open context that take_posted and take_unexpected have emptied; aborts otherwise. Messages that
  // come later are kept as for a context that is not yet open. take_unexpected finds them, and so does
  // open_context when the number is used again. O(size).
  void close_context(std::uint32_t context) noexcept;

  // Takes out the receive for an arriving message. Returns nullptr if none is posted, the context is not
  // open, or it has no such source. The caller then calls keep() before anything else is posted, or drops the
  // message. O(1) on average.
  posted_receive* arrive(const envelope& from) noexcept;
  // Queues a message for which arrive() found no receive. If the context is not open, or lacks the source,
  // the message waits outside all contexts; the caller limits how much waits there. O(1).
  void keep(unexpected_message& m) noexcept;

  // Takes out the oldest kept message that `r` accepts. Returns nullptr if there is none; `r` is then posted.
  // Aborts if the context is not open or lacks the source. O(1) on average.
  unexpected_message* post(posted_receive& r) noexcept;
  // Returns the message that post() would take for such a receive, and leaves it in place. Returns nullptr
  // also if the context is not open. Cost as post().
  unexpected_message* find(const envelope& wanted) noexcept;
  // The oldest message from `source` that is kept for a context that is not open; nullptr: there is none. O(messages
  // kept outside all contexts).
  const unexpected_message* find_outside(std::uint32_t context, std::int32_t source) const noexcept;

  // Returns a message that was given to a receive and has not been delivered; `m.arrival` is the `arrival` of
  // that receive. Takes out the receive that gets it now, the first posted one that accepts it. nullptr: none
  // is posted, and the message is queued again in its place in the order of arrival. Later messages that
  // receives have been given stay with those. Linear in the messages passed from the nearer end of
  // the queues.
  posted_receive* put_back(unexpected_message& m) noexcept;
  // Posts a receive again whose message is gone, in its place in the order of posting. Otherwise as post().
  // Linear in the receives passed from the nearer end of the queue.
  unexpected_message* post_again(posted_receive& r) noexcept;

  // Take one element out, wherever it is; nothing happens if it is not inside. O(1).
  void cancel(posted_receive& r) noexcept { take_out(r); }
  void discard(unexpected_message& m) noexcept { take_out(m); }

  // Take out all elements present at the call and pass each to f, already unlinked. f does not throw and may
  // call anything of the matcher. What it posts or keeps is not passed to it, nor what it cancels or
  // discards. Nothing happens if the context is not open, except as said.

  // Takes the receives that name `source`, in order of posting; for any_source, those from any. O(receives
  // taken).
  template <class F>
  void take_posted(std::uint32_t context, std::int32_t source, F f);
  // Takes messages in order of arrival, also those kept for a context that is not open. O(messages taken +
  // messages kept outside all contexts).
  template <class F>
  void take_unexpected(std::uint32_t context, F f);

  // Calls f(const unexpected_message&) for each message that waits in an open context, in order of arrival; f
  // changes nothing here.
  template <class F>
  void visit_unexpected(std::uint32_t context, F f) const;

  // Whether a receive of the context is posted for any source.
  bool expects_any(std::uint32_t context) const noexcept {
    const context_queues* const c = peek(context);
    return c != nullptr && !c->from_any.empty();
  }
  // Calls f(const posted_receive&) for each receive of the context that names a source; f changes nothing
  // here. O(size + receives).
  template <class F>
  void visit_posted(std::uint32_t context, F f) const;

  // For reports and tests: walk the queues, O(elements + sizes of the contexts).
  std::size_t posted_count() const noexcept;
  std::size_t posted_count(std::uint32_t context) const noexcept;
  std::size_t unexpected_count() const noexcept;  // including those outside all contexts
  std::size_t unexpected_count(std::uint32_t context) const noexcept;

 private:
  static constexpr int most_passed = 16;

  template <class T, class Tag>
  struct queue : base::intrusive_list<T, Tag> {
    bool indexed = false;
  };
  using posted_queue = queue<posted_receive, posted_tag>;
  using arrival_queue = queue<unexpected_message, arrival_tag>;
  using source_queue = queue<unexpected_message, source_tag>;
  using posted_list = base::intrusive_list<posted_receive, posted_tag>;
  using arrival_list = base::intrusive_list<unexpected_message, arrival_tag>;

  struct source_queues {
    posted_queue posted;
    source_queue unexpected;
  };
  struct context_queues {
    explicit context_queues(std::uint32_t sources) : size(sources), of(sources) {}

    bool has(std::int32_t source) const noexcept { return static_cast<std::uint32_t>(source) < size; }
    source_queues& from(std::int32_t source) noexcept { return of[static_cast<std::uint32_t>(source)]; }
    // Null: nothing has been queued there.
    source_queues* find(std::int32_t source) const noexcept {
      return of.find(static_cast<std::uint32_t>(source));
    }

    const std::uint32_t size;
    base::sparse_array<source_queues> of;
    posted_queue from_any;
    arrival_queue arrivals;
  };

  static bool accepts(std::int32_t wanted_tag, std::int32_t tag) noexcept {
    return wanted_tag == tag || wanted_tag == any_tag;
  }
  queue_index<receive_row>& index_of(const posted_queue&) noexcept { return receives_; }
  queue_index<source_row>& index_of(const source_queue&) noexcept { return by_source_; }
  queue_index<arrival_row>& index_of(const arrival_queue&) noexcept { return by_tag_; }

  // The rare cases of indexes are calls, so that the others need no registers for them.
  template <class Queue, class T>
  void insert_in_index(Queue& q, T& element) noexcept;
  void push_back(posted_queue& to, posted_receive& r) noexcept {
    if (to.indexed) [[unlikely]]
      insert_in_index(to, r);
    to.push_back(r);
  }
  void push_back(context_queues& c, unexpected_message& m) noexcept {
    source_queue& of_source = c.from(m.from.source).unexpected;
    if (of_source.indexed || c.arrivals.indexed) [[unlikely]] {
      insert_in_index(of_source, m);
      insert_in_index(c.arrivals, m);
    }
    of_source.push_back(m);
    c.arrivals.push_back(m);
  }
  template <class Queue, class T>
  void insert_in_order(Queue& to, T& element) noexcept;
  void take_out(posted_receive& r) noexcept {
    r.base::list_hook<posted_tag>::unlink();
    receives_.remove(r);
  }
  void take_out(unexpected_message& m) noexcept {
    m.base::list_hook<source_tag>::unlink();
    m.base::list_hook<arrival_tag>::unlink();
    by_source_.remove(m);
    by_tag_.remove(m);
  }

  posted_receive* first_accepting(posted_queue& receives, std::int32_t tag) noexcept {
    posted_receive* const r = receives.front();
    return r == nullptr || accepts(r->wanted.tag, tag) ? r : search_on(receives, *r, tag);
  }
  template <class Queue>
  unexpected_message* first_accepted(Queue& messages, const envelope& wanted) noexcept {
    unexpected_message* const m = messages.front();
    return m == nullptr || accepts(wanted.tag, m->from.tag) ? m : search_on(messages, *m, wanted);
  }
  // Goes on behind the first element, which does not fit.
  posted_receive* search_on(posted_queue& receives, posted_receive& first, std::int32_t tag) noexcept;
  template <class Queue>
  unexpected_message* search_on(Queue& messages, unexpected_message& first, const envelope& wanted) noexcept;
  // Whether the queue is indexed now; false: there is no memory for it.
  template <class Queue>
  bool has_index(Queue& q) noexcept;

  posted_receive* take_receive(context_queues& c, const envelope& from) noexcept;
  // nullptr: `r` is to be queued in `into`.
  unexpected_message* take_message(posted_receive& r, posted_queue*& into) noexcept;
  // Returns the first receive in `from_any` that accepts the tag if it was posted before `named`; otherwise
  // `named`.
  posted_receive* earlier_from_any(context_queues& c, std::int32_t tag, posted_receive* named) noexcept;
  [[noreturn]] static void refuse(const context_queues* c, const envelope& wanted) noexcept;

  const context_queues* peek(std::uint32_t context) const noexcept {
    const auto at = open_.find(context);
    return at != open_.end() ? &at->second : nullptr;
  }
  context_queues* find_queues(std::uint32_t context) noexcept {
    if (context != last_context_) [[unlikely]]
      find_others(context);
    return last_;
  }
  void find_others(std::uint32_t context) noexcept;
  void gather_unexpected(std::uint32_t context, arrival_list& all) noexcept;

  // Of the queues that are indexed.
  queue_index<receive_row> receives_;
  queue_index<source_row> by_source_;
  queue_index<arrival_row> by_tag_;
  std::map<std::uint32_t, context_queues> open_;
  // The result of the last find_queues(), nullptr if that context is not open.
  std::uint32_t last_context_ = 0;
  context_queues* last_ = nullptr;
  std::uint64_t next_stamp_ = 0;
  std::uint64_t next_arrival_ = 0;
  arrival_list outside_;  // for contexts that are not open, and sources that a context does not have
};

inline posted_receive* matcher::take_receive(context_queues& c, const envelope& from) noexcept {
  posted_receive* r = first_accepting(c.from(from.source).posted, from.tag);
  if (!c.from_any.empty()) [[unlikely]]
    r = earlier_from_any(c, from.tag, r);
  if (r != nullptr) take_out(*r);
  return r;
}

inline posted_receive* matcher::arrive(const envelope& from) noexcept {
  context_queues* c = find_queues(from.context);
  if (c == nullptr || !c->has(from.source)) return nullptr;
  posted_receive* const r = take_receive(*c, from);
  if (r != nullptr) r->arrival = next_arrival_++;
  return r;
}

inline void matcher::keep(unexpected_message& m) noexcept {
  m.arrival = next_arrival_++;
  context_queues* c = find_queues(m.from.context);
  if (c != nullptr && c->has(m.from.source)) {
    push_back(*c, m);
  } else {
    outside_.push_back(m);
  }
}

[[gnu::always_inline]] inline unexpected_message* matcher::take_message(posted_receive& r,
                                                                        posted_queue*& into) noexcept {
  assert(!r.posted());
  context_queues* c = find_queues(r.wanted.context);
  const bool named = c != nullptr && c->has(r.wanted.source);
  if (!named && (c == nullptr || r.wanted.source != any_source)) refuse(c, r.wanted);
  source_queues* const q = named ? &c->from(r.wanted.source) : nullptr;
  unexpected_message* const m =
      q != nullptr ? first_accepted(q->unexpected, r.wanted) : first_accepted(c->arrivals, r.wanted);
  if (m != nullptr) {
    take_out(*m);
    r.arrival = m->arrival;
  }
  into = q != nullptr ? &q->posted : &c->from_any;
  return m;
}

inline unexpected_message* matcher::post(posted_receive& r) noexcept {
  r.stamp = next_stamp_++;
  posted_queue* into = nullptr;
  unexpected_message* const m = take_message(r, into);
  if (m == nullptr) push_back(*into, r);
  return m;
}

template <class F>
void matcher::take_posted(std::uint32_t context, std::int32_t source, F f) {
  posted_list all;
  const auto take_all = [&](posted_queue& q) {
    if (q.indexed) q.for_each([this](posted_receive& r) { receives_.remove(r); });
    all.splice_back(q);
  };
  if (context_queues* c = find_queues(context)) {
    if (source == any_source) take_all(c->from_any);
    if (source_queues* const from = c->has(source) ? c->find(source) : nullptr) take_all(from->posted);
  }
  while (posted_receive* r = all.pop_front()) f(*r);
}

template <class F>
void matcher::visit_posted(std::uint32_t context, F f) const {
  const context_queues* c = peek(context);
  if (c == nullptr) return;
  c->of.for_each([&f](std::size_t, const source_queues& from) { from.posted.for_each(f); });
}

template <class F>
void matcher::visit_unexpected(std::uint32_t context, F f) const {
  if (const context_queues* c = peek(context)) c->arrivals.for_each(f);
}

template <class F>
void matcher::take_unexpected(std::uint32_t context, F f) {
  arrival_list all;
  gather_unexpected(context, all);
  while (unexpected_message* m = all.pop_front()) f(*m);
}

}  // namespace tutti::match

// SPDX-License-Identifier: Apache-2.0
#include "launch/node_messages.hpp"

#include <concepts>
#include <cstdint>
#include <tutti/error.hpp>
#include <type_traits>
#include <utility>

#include "base/little_endian.hpp"

namespace tutti::launch {
namespace {

// Increases when the meaning of any message changes.
constexpr std::uint16_t version = 4;

// A message is the number of its kind and its fields in order: integers of 8 bytes, texts and lists with
// their length before them. One function for each kind lists its fields, for both directions.

class writer {
 public:
  static constexpr bool reading = false;

  template <std::integral T>
  void field(const T& value) {
    std::uint8_t bytes[8];
    base::put_little_endian(bytes, static_cast<std::int64_t>(value));
    text_.append(reinterpret_cast<const char*>(bytes), sizeof bytes);
  }
  void field(const std::string& text) {
    field(text.size());
    text_ += text;
  }
  template <class T>
  std::size_t length_of(const std::vector<T>& list) {
    field(list.size());
    return list.size();
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

class reader {
 public:
  static constexpr bool reading = true;

  explicit reader(std::string_view text) : text_(text) {}

  template <std::integral T>
  void field(T& value) {
    if (text_.size() < 8) refuse();
    const auto wide =
        base::get_little_endian<std::int64_t>(reinterpret_cast<const std::uint8_t*>(text_.data()));
    text_.remove_prefix(8);
    if (!std::in_range<T>(wide)) refuse();
    value = static_cast<T>(wide);
  }
  void field(bool& value) {
    int number = 0;
    field(number);
    if (number != 0 && number != 1) refuse();
    value = number == 1;
  }
  void field(std::string& text) {
    const std::size_t bytes = length();
    text = text_.substr(0, bytes);
    text_.remove_prefix(bytes);
  }
  // Every element of a list has at least 8 bytes.
  template <class T>
  std::size_t length_of(std::vector<T>& list) {
    const std::size_t count = length();
    if (count > text_.size() / 8) refuse();
    list.clear();
    return count;
  }
  void end() const {
    if (!text_.empty()) refuse();
  }
  [[noreturn]] static void refuse() {
    throw error(
        errc::protocol,
        "the launcher of another node sent what this one does not understand: use the same version of "
        "tutti-run on all nodes");
  }

 private:
  std::size_t length() {
    std::size_t bytes = 0;
    field(bytes);
    if (bytes > text_.size()) refuse();
    return bytes;
  }

  std::string_view text_;
};

// T or const T, depending on the direction.
template <class Stream, class T>
using part = std::conditional_t<Stream::reading, T, const T>;

// An element of a list that grows as it is read: a message gets no more memory than bytes have come.
template <class Stream>
auto& element(auto& list, std::size_t i) {
  if constexpr (Stream::reading) list.emplace_back();
  return list[i];
}

template <class Stream>
void enumerator(Stream& stream, auto& value, auto highest) {
  auto number = static_cast<int>(value);
  stream.field(number);
  if constexpr (Stream::reading) {
    if (number < 0 || number > static_cast<int>(highest)) Stream::refuse();
    value = static_cast<std::remove_cvref_t<decltype(value)>>(number);
  }
}

template <class Stream>
void duration(Stream& stream, auto& value) {
  auto number = static_cast<std::int64_t>(value.count());
  stream.field(number);
  if constexpr (Stream::reading) value = std::remove_cvref_t<decltype(value)>(number);
}

template <class Stream>
void fields(Stream& stream, part<Stream, hello>& m) {
  stream.field(m.nodes);
  stream.field(m.node);
  stream.field(m.ranks);
  stream.field(m.host);
  stream.field(m.pid);
}

template <class Stream>
void fields(Stream& stream, part<Stream, outcome>& m) {
  stream.field(m.rank);
  stream.field(m.pid);
  stream.field(m.exit_code);
  stream.field(m.signal);
  stream.field(m.core_dumped);
  stream.field(m.exec_error);
  duration(stream, m.after);
  stream.field(m.asked_with);
  stream.field(m.killed);
  enumerator(stream, m.thrown, outcome::exception::of_peer);
  duration(stream, m.thrown_after);
}

template <class Stream>
void fields(Stream& stream, part<Stream, start_ranks>& m) {
  auto& p = m.what;
  stream.field(p.job_id);
  stream.field(p.restart_count);
  stream.field(p.max_restarts);
  stream.field(p.world_size);
  stream.field(p.first_rank);
  stream.field(p.store_port);
  stream.field(p.node);
  stream.field(p.newcomer);
  enumerator(stream, p.on_failure, failure_policy::restart_all);
  duration(stream, p.grace);
  stream.field(p.notice);
}

template <class Stream>
void fields(Stream& stream, part<Stream, stop_ranks>& m) {
  stream.field(m.signal);
}

template <class Stream>
void fields(Stream&, part<Stream, kill_ranks>&) {}

template <class Stream>
void fields(Stream&, part<Stream, tell_records>&) {}

template <class Stream>
void fields(Stream& stream, part<Stream, rank_stopped>& m) {
  stream.field(m.rank);
  stream.field(m.pid);
  stream.field(m.stopped);
}

template <class Stream>
void fields(Stream& stream, part<Stream, clock_told>& m) {
  stream.field(m.asked_ns);
  stream.field(m.clock_ns);
}

template <class Stream>
void fields(Stream& stream, part<Stream, clock_asked>& m) {
  stream.field(m.asked_ns);
}

template <class Stream>
void fields(Stream& stream, part<Stream, job_over>& m) {
  stream.field(m.exit_code);
  stream.field(m.report);
}

template <class Stream>
void fields(Stream& stream, part<Stream, rank_failed>& m) {
  fields<Stream>(stream, m.end);
  stream.field(m.others_run);
  stream.field(m.restart);
}

template <class Stream>
void fields(Stream& stream, part<Stream, process_ended>& m) {
  stream.field(m.rank);
  stream.field(m.start);
  stream.field(m.well);
  stream.field(m.again);
}

template <class Stream>
void fields(Stream& stream, part<Stream, stop_wanted>& m) {
  enumerator(stream, m.why, stop_wanted::reason::cannot_start);
  stream.field(m.signal);
  stream.field(m.text);
}

template <class Stream>
void fields(Stream&, part<Stream, kill_wanted>&) {}

template <class Stream>
void list(Stream& stream, auto& items) {
  for (std::size_t i = 0, count = stream.length_of(items); i < count; ++i)
    fields<Stream>(stream, element<Stream>(items, i));
}

template <class Stream>
void fields(Stream& stream, part<Stream, ranks_ended>& m) {
  list(stream, m.ends);
  for (std::size_t i = 0, count = stream.length_of(m.last_lines); i < count; ++i)
    stream.field(element<Stream>(m.last_lines, i));
  for (std::size_t i = 0, count = stream.length_of(m.last_operations); i < count; ++i)
    stream.field(element<Stream>(m.last_operations, i));
}

template <class Stream>
void fields(Stream&, part<Stream, explanation_wanted>&) {}

template <class Stream>
void fields(Stream& stream, part<Stream, flight::operation_snapshot>& m) {
  stream.field(m.number);
  stream.field(m.kind);
  enumerator(stream, m.how, flight::state::cancelled);
  stream.field(m.start_ns);
  stream.field(m.end_ns);
  stream.field(m.bytes);
  stream.field(m.moved);
  stream.field(m.communicator);
  stream.field(m.sequence);
  stream.field(m.peer);
  stream.field(m.tag);
  stream.field(m.waits_for);
  stream.field(m.text);
  stream.field(m.line);
}

template <class Stream>
void fields(Stream& stream, part<Stream, flight::communicator_snapshot>& m) {
  stream.field(m.id);
  stream.field(m.rank);
  stream.field(m.size);
  stream.field(m.last);
  stream.field(m.failed);
  stream.field(m.name);
}

template <class Stream>
void fields(Stream& stream, part<Stream, flight::rank_snapshot>& m) {
  stream.field(m.rank);
  stream.field(m.world_size);
  stream.field(m.pid);
  enumerator(stream, m.at, flight::phase::failed);
  enumerator(stream, m.thread, base::process_state::gone);
  stream.field(m.now_ns);
  stream.field(m.since_ns);
  stream.field(m.turned_ns);
  stream.field(m.asleep_ns);
  stream.field(m.started);
  stream.field(m.ended);
  stream.field(m.compute_running);
  stream.field(m.host);
  stream.field(m.failure_text);
  stream.field(m.end);
  list(stream, m.pending);
  list(stream, m.recent);
  list(stream, m.doing);
  list(stream, m.communicators);
}

template <class Stream>
void fields(Stream& stream, part<Stream, records_told>& m) {
  list(stream, m.ranks);
  stream.field(m.last);
}

template <class Variant>
std::string encode_variant(const Variant& message) {
  writer w;
  w.field(message.index());
  std::visit([&w](const auto& m) { fields<writer>(w, m); }, message);
  return w.take();
}

template <class Variant, std::size_t Index = 0>
Variant read_alternative(reader& r, std::size_t index) {
  if constexpr (Index < std::variant_size_v<Variant>) {
    if (index != Index) return read_alternative<Variant, Index + 1>(r, index);
    std::variant_alternative_t<Index, Variant> m;
    fields<reader>(r, m);
    return m;
  } else {
    reader::refuse();
  }
}

template <class Variant>
Variant decode_variant(std::string_view message) {
  reader r(message);
  std::size_t index = 0;
  r.field(index);
  Variant m = read_alternative<Variant>(r, index);
  r.end();
  return m;
}

}  // namespace

std::string encode(const hello& message) {
  writer w;
  w.field(version);
  fields<writer>(w, message);
  return w.take();
}

hello decode_hello(std::string_view message) {
  reader r(message);
  std::uint16_t theirs = 0;
  r.field(theirs);
  if (theirs != version) reader::refuse();
  hello m;
  fields<reader>(r, m);
  r.end();
  return m;
}

std::string encode(const command& message) { return encode_variant(message); }
std::string encode(const event& message) { return encode_variant(message); }
command decode_command(std::string_view message) { return decode_variant<command>(message); }
event decode_event(std::string_view message) { return decode_variant<event>(message); }

}  // namespace tutti::launch

// SPDX-License-Identifier: Apache-2.0
#include "launch/node_messages.hpp"

#include <concepts>
#include <tuple>
#include <tutti/error.hpp>
#include <type_traits>
#include <utility>

#include "base/little_endian.hpp"

namespace tutti::launch {
namespace {

// Increases when the meaning of any message changes.
constexpr std::uint16_t version = 4;

// A message is the number of its kind and its fields in order: integers of 8 bytes, texts and lists with
// their length before them. members() lists the fields of each kind, for both directions.

template <class M, class T>
concept maybe_const = std::same_as<std::remove_const_t<M>, T>;

auto members(maybe_const<hello> auto& m) { return std::tie(m.nodes, m.node, m.ranks, m.host, m.pid); }

auto members(maybe_const<outcome> auto& m) {
  return std::tie(m.rank, m.pid, m.exit_code, m.signal, m.core_dumped, m.exec_error, m.after, m.asked_with,
                  m.killed, m.thrown, m.thrown_after);
}

auto members(maybe_const<start_ranks> auto& m) {
  return std::tie(m.job_id, m.restart_count, m.max_restarts, m.world_size, m.first_rank, m.store_port, m.node,
                  m.newcomer, m.on_failure, m.grace, m.notice);
}

auto members(maybe_const<stop_ranks> auto& m) { return std::tie(m.signal); }
auto members(maybe_const<kill_ranks> auto&) { return std::tie(); }
auto members(maybe_const<tell_records> auto&) { return std::tie(); }
auto members(maybe_const<rank_stopped> auto& m) { return std::tie(m.rank, m.pid, m.stopped); }
auto members(maybe_const<clock_told> auto& m) { return std::tie(m.asked_ns, m.clock_ns); }
auto members(maybe_const<clock_asked> auto& m) { return std::tie(m.asked_ns); }
auto members(maybe_const<job_over> auto& m) { return std::tie(m.exit_code, m.report); }
auto members(maybe_const<rank_failed> auto& m) { return std::tie(m.end, m.others_run, m.restart); }
auto members(maybe_const<process_ended> auto& m) { return std::tie(m.rank, m.start, m.well, m.again); }
auto members(maybe_const<stop_wanted> auto& m) { return std::tie(m.why, m.signal, m.text); }
auto members(maybe_const<kill_wanted> auto&) { return std::tie(); }
auto members(maybe_const<ranks_ended> auto& m) { return std::tie(m.ends, m.last_lines, m.last_operations); }
auto members(maybe_const<explanation_wanted> auto&) { return std::tie(); }
auto members(maybe_const<records_told> auto& m) { return std::tie(m.ranks, m.last); }

auto members(maybe_const<flight::operation_snapshot> auto& m) {
  return std::tie(m.number, m.kind, m.how, m.start_ns, m.end_ns, m.bytes, m.moved, m.communicator, m.sequence,
                  m.peer, m.tag, m.waits_for, m.text, m.line);
}

auto members(maybe_const<flight::communicator_snapshot> auto& m) {
  return std::tie(m.id, m.rank, m.size, m.last, m.failed, m.name);
}

auto members(maybe_const<flight::rank_snapshot> auto& m) {
  return std::tie(m.rank, m.world_size, m.pid, m.at, m.thread, m.now_ns, m.since_ns, m.turned_ns, m.asleep_ns,
                  m.started, m.ended, m.compute_running, m.host, m.failure_text, m.end, m.pending, m.recent,
                  m.doing, m.communicators);
}

// The last enumerator of the type.
constexpr auto highest(outcome::exception) { return outcome::exception::of_peer; }
constexpr auto highest(failure_policy) { return failure_policy::restart_all; }
constexpr auto highest(stop_wanted::reason) { return stop_wanted::reason::cannot_start; }
constexpr auto highest(flight::state) { return flight::state::cancelled; }
constexpr auto highest(flight::phase) { return flight::phase::failed; }
constexpr auto highest(base::process_state) { return base::process_state::gone; }

class writer {
 public:
  void field(std::integral auto value) {
    std::uint8_t bytes[8];
    base::put_little_endian(bytes, static_cast<std::int64_t>(value));
    text_.append(reinterpret_cast<const char*>(bytes), sizeof bytes);
  }
  void field(const std::string& text) {
    field(text.size());
    text_ += text;
  }
  template <class Rep, class Period>
  void field(const std::chrono::duration<Rep, Period>& value) {
    field(value.count());
  }
  template <class T>
  void field(const std::vector<T>& list) {
    field(list.size());
    for (const T& each : list) field(each);
  }
  template <class T>
    requires std::is_enum_v<T>
  void field(const T& value) {
    field(static_cast<int>(value));
  }
  template <class T>
    requires std::is_class_v<T>
  void field(const T& m) {
    std::apply([&](const auto&... each) { (field(each), ...); }, members(m));
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

class reader {
 public:
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
  void field(bool& value) { value = number_up_to(1) == 1; }
  void field(std::string& text) {
    const std::size_t bytes = length();
    text = text_.substr(0, bytes);
    text_.remove_prefix(bytes);
  }
  template <class Rep, class Period>
  void field(std::chrono::duration<Rep, Period>& value) {
    std::int64_t count = 0;
    field(count);
    value = std::chrono::duration<Rep, Period>(count);
  }
  // Every element has at least 8 bytes. The list grows as it is read: a message gets no more memory than
  // bytes have come.
  template <class T>
  void field(std::vector<T>& list) {
    const std::size_t count = length();
    if (count > text_.size() / 8) refuse();
    list.clear();
    for (std::size_t i = 0; i < count; ++i) field(list.emplace_back());
  }
  template <class T>
    requires std::is_enum_v<T>
  void field(T& value) {
    value = static_cast<T>(number_up_to(static_cast<int>(highest(T{}))));
  }
  template <class T>
    requires std::is_class_v<T>
  void field(T& m) {
    std::apply([&](auto&... each) { (field(each), ...); }, members(m));
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
  int number_up_to(int most) {
    int number = 0;
    field(number);
    if (number < 0 || number > most) refuse();
    return number;
  }
  std::size_t length() {
    std::size_t bytes = 0;
    field(bytes);
    if (bytes > text_.size()) refuse();
    return bytes;
  }

  std::string_view text_;
};

template <class Variant>
std::string encode_variant(const Variant& message) {
  writer w;
  w.field(message.index());
  std::visit([&w](const auto& m) { w.field(m); }, message);
  return w.take();
}

template <class Variant, std::size_t Index = 0>
Variant read_alternative(reader& r, std::size_t index) {
  if constexpr (Index < std::variant_size_v<Variant>) {
    if (index != Index) return read_alternative<Variant, Index + 1>(r, index);
    std::variant_alternative_t<Index, Variant> m;
    r.field(m);
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
  w.field(message);
  return w.take();
}

hello decode_hello(std::string_view message) {
  reader r(message);
  std::uint16_t theirs = 0;
  r.field(theirs);
  if (theirs != version) reader::refuse();
  hello m;
  r.field(m);
  r.end();
  return m;
}

std::string encode(const command& message) { return encode_variant(message); }
std::string encode(const event& message) { return encode_variant(message); }
command decode_command(std::string_view message) { return decode_variant<command>(message); }
event decode_event(std::string_view message) { return decode_variant<event>(message); }

}  // namespace tutti::launch

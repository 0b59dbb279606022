// SPDX-License-Identifier: Apache-2.0
#include "track/event_encoding.hpp"

#include "base/crc32c.hpp"
#include "base/little_endian.hpp"

#include <algorithm>
#include <bit>
#include <boost/crc.hpp>
#include <cmath>
#include <concepts>
#include <limits>
#include <ranges>
#include <type_traits>

namespace tutti::track {
namespace {

template <class T>
void put_integer(std::string& to, T value) {
  std::uint8_t bytes[sizeof(T)];
  base::put_little_endian(bytes, value);
  to.append(reinterpret_cast<const char*>(bytes), sizeof bytes);
}

// ---- PNG ----

std::uint32_t adler_of(std::string_view bytes) {
  std::uint32_t a = 1, b = 0;
  for (const char c : bytes) {
    a = (a + static_cast<std::uint8_t>(c)) % 65521;
    b = (b + a) % 65521;
  }
  return b << 16 | a;
}

void put_big_endian(std::string& to, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) to += static_cast<char>(value >> shift);
}

void put_chunk(std::string& to, std::string_view type, std::string_view data) {
  put_big_endian(to, static_cast<std::uint32_t>(data.size()));
  std::string checked(type);
  checked += data;
  to += checked;
  boost::crc_32_type crc;
  crc.process_bytes(checked.data(), checked.size());
  put_big_endian(to, crc.checksum());
}

// A zlib stream of stored blocks.
std::string stored(std::string_view bytes) {
  constexpr std::size_t longest = 65535;
  std::string out("\x78\x01", 2);
  for (std::size_t at = 0;;) {
    const std::size_t n = std::min(longest, bytes.size() - at);
    const bool last = at + n == bytes.size();
    out += static_cast<char>(last ? 1 : 0);
    put_integer(out, static_cast<std::uint16_t>(n));
    put_integer(out, static_cast<std::uint16_t>(longest - n));
    out += bytes.substr(at, n);
    at += n;
    if (last) break;
  }
  put_big_endian(out, adler_of(bytes));
  return out;
}

// ---- event files ----

// Field numbers are those of TensorFlow's event.proto, summary.proto, tensor.proto and TensorBoard's hparams
// plugin.

std::uint32_t masked_crc(std::string_view bytes) {
  const std::uint32_t crc = base::crc32c({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
  // Rotated and shifted, because the checksum of data that contain their checksum is always the same.
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U;
}

// The wire format of Protocol Buffers, as far as TensorBoard's messages need it. Written by hand: a second
// libprotobuf in a process that has one (as with TensorFlow or ONNX) ends that process at its start.
class wire_message {
 public:
  wire_message& integer(int field, std::int64_t value) {
    key(field, 0);
    varint(static_cast<std::uint64_t>(value));
    return *this;
  }
  template <std::floating_point T>
  wire_message& real(int field, T value) {
    using bits = std::conditional_t<sizeof value == 8, std::uint64_t, std::uint32_t>;
    key(field, sizeof value == 8 ? 1 : 5);
    put_integer(bytes_, std::bit_cast<bits>(value));
    return *this;
  }
  wire_message& text(int field, std::string_view bytes) {
    key(field, 2);
    varint(bytes.size());
    bytes_.append(bytes);
    return *this;
  }
  wire_message& message(int field, const wire_message& inner) { return text(field, inner.bytes_); }
  wire_message& reals(int field, std::span<const double> values) {
    key(field, 2);
    varint(values.size() * sizeof(double));
    for (const double v : values) put_integer(bytes_, std::bit_cast<std::uint64_t>(v));
    return *this;
  }
  const std::string& bytes() const noexcept { return bytes_; }

 private:
  void key(int field, unsigned type) { varint(static_cast<std::uint64_t>(field) << 3 | type); }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>((value & 0x7F) | 0x80);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

void put_record(std::string& to, const wire_message& event) {
  std::string length;
  put_integer(length, static_cast<std::uint64_t>(event.bytes().size()));
  to += length;
  put_integer(to, masked_crc(length));
  to += event.bytes();
  put_integer(to, masked_crc(event.bytes()));
}

// SummaryMetadata: which of TensorBoard's pages shows it.
wire_message metadata(std::string_view plugin, std::string_view content) {
  constexpr int data_class_tensor = 2;
  wire_message data;
  data.text(1, plugin);
  if (!content.empty()) data.text(2, content);
  return wire_message().message(1, data).integer(4, data_class_tensor);
}

// An Event with a Summary of one Value, which already has its tag.
void put_value(std::string& to, const record& at, const wire_message& value) {
  wire_message event;
  event.real(1, at.wall_time);
  if (at.step != 0) event.integer(2, at.step);
  put_record(to, event.message(5, wire_message().message(1, value)));
}

wire_message tagged(const record& at) { return wire_message().text(1, at.name); }

}  // namespace

histogram histogram_of(std::span<const double> values, int buckets) {
  auto finite = values | std::views::filter([](double v) { return std::isfinite(v); });
  histogram h;
  h.min = std::numeric_limits<double>::infinity();
  h.max = -h.min;
  for (const double v : finite) {
    h.min = std::min(h.min, v);
    h.max = std::max(h.max, v);
    h.sum += v;
    h.sum_of_squares += v * v;
    ++h.count;
  }
  h.not_finite = values.size() - h.count;
  if (h.count == 0) {
    h.min = h.max = 0;
    return h;
  }
  // Halves, so that the width of the whole range of doubles is representable, too.
  const double half_width = h.max / 2 - h.min / 2;
  const int n = half_width > 0 ? buckets : 1;
  for (int i = 1; i < n; ++i) h.limits.push_back(h.min + half_width * (2.0 * i / n));
  h.limits.push_back(h.max);
  h.counts.assign(h.limits.size(), 0);
  for (const double v : finite) {
    const auto at = std::lower_bound(h.limits.begin(), h.limits.end(), v);
    h.counts[static_cast<std::size_t>(at - h.limits.begin())] += 1;
  }
  return h;
}

bool is_image(int width, int height, int channels, std::size_t samples) {
  if (width < 1 || height < 1 || (channels != 1 && channels != 3 && channels != 4)) return false;
  const std::size_t row = static_cast<std::size_t>(width) * static_cast<std::size_t>(channels);
  return samples % row == 0 && samples / row == static_cast<std::size_t>(height);
}

std::string png_of(int width, int height, int channels, std::span<const std::uint8_t> samples) {
  if (!is_image(width, height, channels, samples.size())) return {};
  std::string header;
  put_big_endian(header, static_cast<std::uint32_t>(width));
  put_big_endian(header, static_cast<std::uint32_t>(height));
  header += '\x08';
  header += channels == 1 ? '\x00' : channels == 3 ? '\x02' : '\x06';
  header.append(3, '\0');
  std::string filtered;  // each row behind the number of its filter: 0, none
  filtered.reserve(samples.size() + static_cast<std::size_t>(height));
  const std::size_t row = samples.size() / static_cast<std::size_t>(height);
  for (std::size_t at = 0; at < samples.size(); at += row) {
    filtered += '\0';
    filtered.append(reinterpret_cast<const char*>(samples.data() + at), row);
  }
  std::string png("\x89PNG\r\n\x1a\n", 8);
  put_chunk(png, "IHDR", header);
  put_chunk(png, "IDAT", stored(filtered));
  put_chunk(png, "IEND", {});
  return png;
}

// TensorBoard's data server drops, of the tag of each event, the records of its step or later. The Python
// loader depends on the version. From 2 on it drops at a SessionLog only, and then of all tags. Epochs and
// samples would be dropped, too, whose steps are not those of the training. Below 2 it drops by tag, at an
// event whose step is less than that of the event before.
void put_version(std::string& to, double wall_time, bool goes_on) {
  put_record(to, wire_message().real(1, wall_time).text(3, goes_on ? "brain.Event:1" : "brain.Event:2"));
}

void put_restart(std::string& to, const record& first) {
  const std::int64_t greater =
      first.step < std::numeric_limits<std::int64_t>::max() ? first.step + 1 : first.step;
  put_record(to, wire_message().real(1, first.wall_time).integer(2, greater).message(5, wire_message()));
}

void put_scalar(std::string& to, const record& at, double number) {
  put_value(to, at, tagged(at).real(2, static_cast<float>(number)));
}

void put_text(std::string& to, const record& at, std::string_view words) {
  constexpr int string_type = 7;
  const wire_message one = wire_message().integer(1, 1);  // a dimension of one
  const wire_message tensor =
      wire_message().integer(1, string_type).message(2, wire_message().message(2, one)).text(8, words);
  put_value(to, at, tagged(at).message(8, tensor).message(9, metadata("text", {})));
}

void put_histogram(std::string& to, const record& at, const histogram& h) {
  const wire_message histo = wire_message()
                                 .real(1, h.min)
                                 .real(2, h.max)
                                 .real(3, static_cast<double>(h.count))
                                 .real(4, h.sum)
                                 .real(5, h.sum_of_squares)
                                 .reals(6, h.limits)
                                 .reals(7, h.counts);
  put_value(to, at, tagged(at).message(5, histo));
}

void put_image(std::string& to, const record& at, int width, int height, int channels, std::string_view png) {
  const wire_message image =
      wire_message().integer(1, height).integer(2, width).integer(3, channels).text(4, png);
  put_value(to, at, tagged(at).message(4, image));
}

void put_hyperparameters(std::string& to, double wall_time, const hyperparameter_map& values) {
  wire_message session;  // hparams.SessionStartInfo
  for (const auto& [name, value] : values) {
    wire_message held;  // google.protobuf.Value
    if (const auto* const flag = std::get_if<bool>(&value.held())) held.integer(4, *flag ? 1 : 0);
    if (const auto* const whole = std::get_if<std::int64_t>(&value.held()))
      held.real(2, static_cast<double>(*whole));
    if (const auto* const number = std::get_if<double>(&value.held())) held.real(2, *number);
    if (const auto* const words = std::get_if<std::string>(&value.held())) held.text(3, *words);
    session.message(1, wire_message().text(1, name).message(2, held));
  }
  session.real(5, wall_time);
  const wire_message content = wire_message().integer(1, 0).message(3, session);
  const record at{"_hparams_/session_start_info", 0, wall_time};
  // An empty tensor: readers look for one in every value of this kind.
  const wire_message nothing =
      wire_message().integer(1, 1).message(2, wire_message().message(2, wire_message().integer(1, 0)));
  put_value(to, at, tagged(at).message(8, nothing).message(9, metadata("hparams", content.bytes())));
}

}  // namespace tutti::track

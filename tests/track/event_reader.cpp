// SPDX-License-Identifier: Apache-2.0
// Written from the descriptions of the formats. It shares only the checksum with the writer, which has a test
// of its own.
#include "track/event_reader.hpp"

#include "base/crc32c.hpp"

#include <cstring>
#include <set>
#include <stdexcept>

namespace tutti::test {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw std::runtime_error("event file: " + why); }

// The fields of one message in sequence.
class fields {
 public:
  explicit fields(std::string_view message) : rest_(message) {}

  bool next() {
    if (rest_.empty()) return false;
    const std::uint64_t key = varint();
    number = static_cast<int>(key >> 3);
    type = static_cast<int>(key & 7);
    if (number < 1) refuse("field 0");
    if (type == 0) {
      integer = varint();
    } else if (type == 1) {
      bytes = take(8);
    } else if (type == 2) {
      bytes = take(varint());
    } else if (type == 5) {
      bytes = take(4);
    } else {
      refuse("wire type " + std::to_string(type));
    }
    return true;
  }
  // This field must have that type, and must not repeat.
  void expect(int wanted, bool repeated = false) {
    if (type != wanted) refuse("field " + std::to_string(number) + " has type " + std::to_string(type));
    if (!seen_.insert(number).second && !repeated) refuse("field " + std::to_string(number) + " twice");
  }
  [[noreturn]] void unknown() const { refuse("unknown field " + std::to_string(number)); }
  double real() {
    expect(1);
    return as<double>(bytes);
  }
  float real32() {
    expect(5);
    return as<float>(bytes);
  }
  std::int64_t whole() {
    expect(0);
    return static_cast<std::int64_t>(integer);
  }
  std::string_view text(bool repeated = false) {
    expect(2, repeated);
    return bytes;
  }
  std::vector<double> packed() {
    const std::string_view all = text();
    if (all.size() % 8 != 0) refuse("packed doubles of " + std::to_string(all.size()) + " bytes");
    std::vector<double> out;
    for (std::size_t at = 0; at < all.size(); at += 8) out.push_back(as<double>(all.substr(at, 8)));
    return out;
  }

  int number = 0, type = 0;
  std::uint64_t integer = 0;
  std::string_view bytes;

 private:
  template <class T>
  static T as(std::string_view b) {
    T value;
    std::memcpy(&value, b.data(), sizeof value);  // tests run on little-endian machines, like the format
    return value;
  }
  std::string_view take(std::uint64_t n) {
    if (n > rest_.size()) refuse("a field that is longer than its message");
    const std::string_view piece = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return piece;
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<std::uint8_t>(take(1).front());
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    refuse("an integer without end");
  }

  std::string_view rest_;
  std::set<int> seen_;
};

void read_histogram_message(std::string_view bytes, read_histogram& h) {
  for (fields f(bytes); f.next();) {
    switch (f.number) {
      case 1:
        h.min = f.real();
        break;
      case 2:
        h.max = f.real();
        break;
      case 3:
        h.count = f.real();
        break;
      case 4:
        h.sum = f.real();
        break;
      case 5:
        h.sum_of_squares = f.real();
        break;
      case 6:
        h.limits = f.packed();
        break;
      case 7:
        h.counts = f.packed();
        break;
      default:
        f.unknown();
    }
  }
  if (h.limits.size() != h.counts.size()) refuse("as many limits as buckets");
}

void read_image(std::string_view bytes, read_event& e) {
  for (fields f(bytes); f.next();) {
    switch (f.number) {
      case 1:
        e.height = f.whole();
        break;
      case 2:
        e.width = f.whole();
        break;
      case 3:
        e.channels = f.whole();
        break;
      case 4:
        e.content = f.text();
        break;
      default:
        f.unknown();
    }
  }
}

void read_tensor(std::string_view bytes, read_event& e) {
  std::int64_t type = 0, elements = 1, strings = 0;
  for (fields f(bytes); f.next();) {
    if (f.number == 1) {
      type = f.whole();
    } else if (f.number == 2) {
      for (fields shape(f.text()); shape.next();) {
        if (shape.number != 2) shape.unknown();
        for (fields dimension(shape.text(true)); dimension.next();) elements *= dimension.whole();
      }
    } else if (f.number == 8) {
      e.content = f.text(true);
      ++strings;
    } else {
      f.unknown();
    }
  }
  if (type != 7 && type != 1) refuse("a tensor of type " + std::to_string(type));
  if (elements != strings)
    refuse("a tensor with " + std::to_string(strings) + " of " + std::to_string(elements) + " elements");
}

void read_metadata(std::string_view bytes, read_event& e) {
  std::string_view plugin, content;
  for (fields f(bytes); f.next();) {
    if (f.number == 4) {
      if (f.whole() != 2) refuse("not the data class of tensors");
    } else if (f.number == 1) {
      for (fields data(f.text()); data.next();) {
        if (data.number == 1) {
          plugin = data.text();
        } else if (data.number == 2) {
          content = data.text();
        } else {
          data.unknown();
        }
      }
    } else {
      f.unknown();
    }
  }
  if (plugin == "text") {
    e.kind = "text";
  } else if (plugin == "hparams") {
    e.kind = "hyperparameters";
    e.content = content;
  } else {
    refuse("plugin " + std::string(plugin));
  }
}

void read_value(std::string_view bytes, read_event& e) {
  for (fields f(bytes); f.next();) {
    switch (f.number) {
      case 1:
        e.tag = f.text();
        break;
      case 2:
        e.kind = "scalar";
        e.number = f.real32();
        break;
      case 4:
        e.kind = "image";
        read_image(f.text(), e);
        break;
      case 5:
        e.kind = "histogram";
        read_histogram_message(f.text(), e.histogram);
        break;
      case 8:
        read_tensor(f.text(), e);
        break;
      case 9:
        read_metadata(f.text(), e);
        break;
      default:
        f.unknown();
    }
  }
}

read_event read_event_message(std::string_view bytes) {
  read_event e;
  for (fields f(bytes); f.next();) {
    switch (f.number) {
      case 1:
        e.wall_time = f.real();
        break;
      case 2:
        e.step = f.whole();
        break;
      case 3:
        e.kind = "version";
        e.content = f.text();
        break;
      case 5: {
        int values = 0;
        for (fields summary(f.text()); summary.next();) {
          if (summary.number != 1 || ++values > 1) summary.unknown();
          read_value(summary.text(true), e);
        }
        if (values == 0) e.kind = "restart";
        break;
      }
      default:
        f.unknown();
    }
  }
  if (e.kind.empty()) refuse("an event of nothing");
  return e;
}

std::uint32_t masked(std::string_view bytes) {
  const std::uint32_t crc = base::crc32c({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

template <class T>
T integer_at(std::string_view bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

}  // namespace

read_file read_events(std::string_view bytes) {
  read_file out;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::string where = " of the record at byte " + std::to_string(at);
    const std::string_view rest = bytes.substr(at);
    if (rest.size() < 12) {
      out.cut = true;
      break;
    }
    const auto length = integer_at<std::uint64_t>(rest, 0);
    if (integer_at<std::uint32_t>(rest, 8) != masked(rest.substr(0, 8)))
      refuse("the checksum of the length" + where);
    if (rest.size() < 16 || rest.size() - 16 < length) {
      out.cut = true;
      break;
    }
    const std::string_view event = rest.substr(12, length);
    if (integer_at<std::uint32_t>(rest, 12 + length) != masked(event)) refuse("the checksum" + where);
    out.events.push_back(read_event_message(event));
    at += 16 + length;
  }
  if (out.events.empty() || out.events.front().kind != "version" ||
      (out.events.front().content != "brain.Event:2" && out.events.front().content != "brain.Event:1"))
    refuse("it does not begin with its version");
  return out;
}

}  // namespace tutti::test

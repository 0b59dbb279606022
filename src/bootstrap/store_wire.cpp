// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/store_wire.hpp"

#include "base/little_endian.hpp"

#include <concepts>

namespace tutti::bootstrap {
namespace {

constexpr std::size_t length_bytes = 4;

class writer {
 public:
  explicit writer(std::size_t texts_bytes) : bytes_(length_bytes, '\0') { bytes_.reserve(texts_bytes + 64); }
  template <std::integral T>
  void number(T value) {
    std::uint8_t raw[sizeof value];
    base::put_little_endian(raw, value);
    bytes_.append(reinterpret_cast<const char*>(raw), sizeof raw);
  }
  void text(std::string_view t) {
    number(static_cast<std::uint32_t>(t.size()));
    bytes_.append(t);
  }
  std::string finish() && {
    base::put_little_endian(reinterpret_cast<std::uint8_t*>(bytes_.data()),
                            static_cast<std::uint32_t>(bytes_.size() - length_bytes));
    return std::move(bytes_);
  }

 private:
  std::string bytes_;
};

class reader {
 public:
  explicit reader(std::string_view message) noexcept : rest_(message) {}
  template <std::integral T>
  T number() {
    const std::string_view raw = take(sizeof(T));
    return base::get_little_endian<T>(reinterpret_cast<const std::uint8_t*>(raw.data()));
  }
  std::string text() { return std::string(take(number<std::uint32_t>())); }
  void finish() const {
    if (!rest_.empty()) throw error(errc::protocol, "a store message is longer than what it says");
  }

 private:
  std::string_view take(std::size_t bytes) {
    if (bytes > rest_.size()) throw error(errc::protocol, "a store message ends too early");
    const std::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return taken;
  }
  std::string_view rest_;
};

}  // namespace

std::string encode(const store_request& request) {
  writer w(request.key.size() + request.value.size() + request.expected.size());
  w.number(request.number);
  w.number(static_cast<std::uint8_t>(request.operation));
  w.number(request.timeout_ms);
  w.number(request.amount);
  w.text(request.key);
  w.text(request.value);
  w.text(request.expected);
  return std::move(w).finish();
}

std::string encode(const store_answer& answer) {
  writer w(answer.text.size());
  w.number(answer.number);
  w.number(static_cast<std::uint8_t>(answer.code));
  w.number(static_cast<std::uint8_t>(answer.flag ? 1 : 0));
  w.number(answer.amount);
  w.text(answer.text);
  return std::move(w).finish();
}

store_request decode_request(std::string_view message) {
  reader r(message);
  store_request request;
  request.number = r.number<std::uint64_t>();
  request.operation = store_operation{r.number<std::uint8_t>()};
  request.timeout_ms = r.number<std::uint64_t>();
  request.amount = r.number<std::int64_t>();
  request.key = r.text();
  request.value = r.text();
  request.expected = r.text();
  r.finish();
  if (request.operation < store_operation::set || request.operation > store_operation::append)
    throw error(errc::protocol, "a store message asks for an operation that does not exist");
  return request;
}

store_answer decode_answer(std::string_view message) {
  reader r(message);
  store_answer answer;
  answer.number = r.number<std::uint64_t>();
  const auto code = r.number<std::uint8_t>();
  if (code > static_cast<std::uint8_t>(errc::system))
    throw error(errc::protocol, "a store message answers with an error that does not exist");
  answer.code = errc{code};
  const auto flag = r.number<std::uint8_t>();
  if (flag > 1) throw error(errc::protocol, "a store message has a flag that is neither set nor clear");
  answer.flag = flag == 1;
  answer.amount = r.number<std::int64_t>();
  answer.text = r.text();
  r.finish();
  return answer;
}

}  // namespace tutti::bootstrap

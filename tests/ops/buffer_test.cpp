// SPDX-License-Identifier: Apache-2.0
// Which types are buffers, of what elements, and which may be received into.
#include <tutti/buffer.hpp>

#include <doctest/doctest.h>
#include <array>
#include <complex>
#include <deque>
#include <initializer_list>
#include <list>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

using namespace tutti;

namespace {

// A complex number of another library.
template <class R>
struct their_complex {
  using value_type = R;
  their_complex(R re, R im) : re_(re), im_(im) {}
  R real() const { return re_; }
  R imag() const { return im_; }
  friend their_complex operator*(their_complex a, their_complex b) {
    return {a.re_ * b.re_ - a.im_ * b.im_, a.re_ * b.im_ + a.im_ * b.re_};
  }

 private:
  R re_, im_;
};
struct pair_of_reals {
  float first, second;
};
// A contiguous range that tutti does not know.
struct own_range {
  int* begin() const { return first; }
  int* end() const { return first + 2; }
  int* first;
};

static_assert(Buffer<std::vector<float>> && Buffer<std::array<int, 3>> && Buffer<std::string> &&
              Buffer<double> && Buffer<pair_of_reals> && Buffer<std::initializer_list<int>> &&
              Buffer<own_range>);
static_assert(!Buffer<std::vector<bool>> && !Buffer<std::vector<std::string>> && !Buffer<int*> &&
              !Buffer<std::list<int>> && !Buffer<std::deque<int>>);
static_assert(WritableBuffer<std::vector<float>&> && WritableBuffer<std::span<double>> &&
              WritableBuffer<int (&)[4]> && WritableBuffer<int&> && WritableBuffer<own_range&>);
static_assert(!WritableBuffer<std::vector<float>> && !WritableBuffer<const std::vector<float>&> &&
              !WritableBuffer<std::span<const double>> && !WritableBuffer<const int (&)[4]> &&
              !WritableBuffer<const std::array<int, 3>&> && !WritableBuffer<const int&> &&
              !WritableBuffer<int>);
static_assert(std::is_same_v<element_of_t<const float (&)[2][3]>, float[3]> &&
              std::is_same_v<element_of_t<const std::vector<int>&>, int> &&
              std::is_same_v<element_of_t<own_range&>, int> &&
              std::is_same_v<element_of_t<const pair_of_reals&>, pair_of_reals>);
static_assert(detail::buffer_range<std::vector<std::span<float>>&> &&
              !detail::buffer_range<std::vector<float>&> &&
              !detail::buffer_range<std::vector<std::vector<float>>&>);

}  // namespace

TEST_CASE("buffers: complex numbers of any library have their element type") {
  CHECK(detail::element_type_of<std::complex<float>>() == element_type::complex_float32);
  CHECK(detail::element_type_of<std::complex<double>>() == element_type::complex_float64);
  CHECK(detail::element_type_of<std::complex<long double>>() == element_type::opaque);
  CHECK(detail::element_type_of<their_complex<float>>() == element_type::complex_float32);
  CHECK(detail::element_type_of<their_complex<double>>() == element_type::complex_float64);
  CHECK(detail::element_type_of<pair_of_reals>() == element_type::opaque);
}

TEST_CASE("buffers: a view of one has its memory") {
  std::vector<std::complex<double>> numbers(3);
  const detail::buffer_view view = detail::view_of(numbers);
  CHECK(view.data == numbers.data());
  CHECK(view.count == 3);
  CHECK(view.bytes() == 48);
  int two[2] = {1, 2};
  own_range range{two};
  CHECK(detail::view_of(range).data == two);
  CHECK(detail::view_of(range).count == 2);
}

// SPDX-License-Identifier: Apache-2.0
// The declarations of oneCCL agree with oneapi/ccl.h, if that is installed.
#include "oneccl/oneccl_api.hpp"
#include "support/skip.hpp"

#include <doctest/doctest.h>

#if defined(TUTTI_HAVE_ONECCL_H)
#include <oneapi/ccl.h>

#include <type_traits>

namespace abi = tutti::oneccl::abi;

namespace {

template <class T>
inline constexpr bool number = std::is_integral_v<T> || std::is_enum_v<T>;
template <class Ours, class Theirs>
inline constexpr bool alike =
    sizeof(Ours) == sizeof(Theirs) && alignof(Ours) == alignof(Theirs) &&
    std::is_pointer_v<Ours> == std::is_pointer_v<Theirs> && number<Ours> == number<Theirs>;
template <class Ours, class Theirs>
inline constexpr bool same_call = false;
template <class... A, class R, class... B>
inline constexpr bool same_call<abi::result (*)(A...), R (*)(B...)> = [] {
  if constexpr (sizeof...(A) != sizeof...(B)) {
    return false;
  } else {
    return sizeof(R) == sizeof(abi::result) && (alike<A, B> && ...);
  }
}();
#define SAME_CALL(member, symbol, parameters) \
  static_assert(same_call<decltype(abi::table::member), decltype(&::symbol)>, #symbol);
TUTTI_ONECCL_CALLS(SAME_CALL)

static_assert(sizeof(abi::unique_id) == sizeof(onecclUniqueId) &&
              alignof(abi::unique_id) == alignof(onecclUniqueId));
static_assert(abi::plugin_exception == onecclPluginException && abi::not_implemented == onecclNotImplemented);
static_assert(abi::int8 == onecclInt8 && abi::uint8 == onecclUint8 && abi::int32 == onecclInt32 &&
              abi::uint32 == onecclUint32 && abi::int64 == onecclInt64 && abi::uint64 == onecclUint64 &&
              abi::float16 == onecclFloat16 && abi::float32 == onecclFloat32 &&
              abi::float64 == onecclFloat64 && abi::bfloat16 == onecclBfloat16);
static_assert(abi::sum == onecclSum && abi::product == onecclProd && abi::max == onecclMax &&
              abi::min == onecclMin && abi::average == onecclAvg);
static_assert(abi::host_immediate == onecclScalarHostImmediate);

}  // namespace

TEST_CASE("the declarations of oneCCL are those of oneapi/ccl.h") {
  MESSAGE("compared while this was compiled");
}
#else
TEST_CASE("the declarations of oneCCL are those of oneapi/ccl.h") {
  TUTTI_SKIP("no oneapi/ccl.h (./run setup-oneccl)");
}
#endif

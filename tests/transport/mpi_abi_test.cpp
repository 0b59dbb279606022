// SPDX-License-Identifier: Apache-2.0
// Our declarations of MPI's standard ABI match mpi_abi.h, if that is installed.
#include "support/skip.hpp"
#include "transport/mpi/standard_abi.hpp"

#include <doctest/doctest.h>

#if defined(TUTTI_HAVE_MPI_ABI_H)
#include <cstddef>
#include <type_traits>

namespace {

namespace abi = tutti::transport::mpi::standard_abi;

// Our declarations under other names, because those of mpi_abi.h are macros.
struct ours {
  static constexpr auto world = abi::MPI_COMM_WORLD;
  static constexpr auto no_message = abi::MPI_MESSAGE_NULL;
  static constexpr auto return_errors = abi::MPI_ERRORS_RETURN;
  static constexpr auto no_request = abi::MPI_REQUEST_NULL;
  static constexpr auto byte = abi::MPI_BYTE;
  static constexpr auto ignore = abi::MPI_STATUS_IGNORE;
  static constexpr int success = abi::MPI_SUCCESS;
  static constexpr int longest_error = abi::MPI_MAX_ERROR_STRING;
  static constexpr int longest_version = abi::MPI_MAX_LIBRARY_VERSION_STRING;
};

}  // namespace

#include <mpi_abi.h>

namespace {

template <class T>
inline constexpr bool is_number = std::is_same_v<T, int>;
// Our handles are numbers of a pointer's size, theirs are pointers.
template <class Ours, class Theirs>
inline constexpr bool alike =
    sizeof(Ours) == sizeof(Theirs) && alignof(Ours) == alignof(Theirs) &&
    is_number<Ours> == is_number<Theirs> && (std::is_pointer_v<Theirs> || is_number<Theirs>);
template <class Ours, class Theirs>
inline constexpr bool same_call = false;
template <class... A, class... B>
inline constexpr bool same_call<int (*)(A...), int (*)(B...)> = [] {
  if constexpr (sizeof...(A) != sizeof...(B)) {
    return false;
  } else {
    return (alike<A, B> && ...);
  }
}();
#define SAME_CALL(name, parameters) static_assert(same_call<decltype(abi::name), decltype(&::name)>, #name);
TUTTI_MPI_FUNCTIONS(SAME_CALL)

static_assert(sizeof(abi::MPI_Status) == sizeof(MPI_Status) &&
              alignof(abi::MPI_Status) == alignof(MPI_Status) &&
              offsetof(abi::MPI_Status, MPI_SOURCE) == offsetof(MPI_Status, MPI_SOURCE) &&
              offsetof(abi::MPI_Status, MPI_TAG) == offsetof(MPI_Status, MPI_TAG) &&
              offsetof(abi::MPI_Status, MPI_ERROR) == offsetof(MPI_Status, MPI_ERROR));
static_assert(abi::MPI_ANY_SOURCE == MPI_ANY_SOURCE && abi::MPI_ANY_TAG == MPI_ANY_TAG &&
              abi::MPI_THREAD_SINGLE == MPI_THREAD_SINGLE &&
              abi::MPI_THREAD_FUNNELED == MPI_THREAD_FUNNELED &&
              abi::MPI_THREAD_SERIALIZED == MPI_THREAD_SERIALIZED && ours::success == MPI_SUCCESS &&
              ours::longest_error == MPI_MAX_ERROR_STRING &&
              ours::longest_version == MPI_MAX_LIBRARY_VERSION_STRING);

template <class Ours, class Theirs>
bool same_handle(Ours our, Theirs their) {
  return static_cast<std::intptr_t>(our) == reinterpret_cast<std::intptr_t>(their);
}

}  // namespace

TEST_CASE("our declarations of MPI's standard ABI match mpi_abi.h") {
  CHECK(same_handle(ours::world, MPI_COMM_WORLD));
  CHECK(same_handle(ours::no_message, MPI_MESSAGE_NULL));
  CHECK(same_handle(ours::return_errors, MPI_ERRORS_RETURN));
  CHECK(same_handle(ours::no_request, MPI_REQUEST_NULL));
  CHECK(same_handle(ours::byte, MPI_BYTE));
  CHECK(MPI_STATUS_IGNORE == nullptr);
  CHECK(ours::ignore == nullptr);
}
#else
TEST_CASE("our declarations of MPI's standard ABI match mpi_abi.h") {
  TUTTI_SKIP("no mpi_abi.h (./run setup-rivals)");
}
#endif

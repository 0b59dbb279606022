// SPDX-License-Identifier: Apache-2.0
// What the objects of Asio and of the standard library are in this build of tutti.
#include <tutti/detail/same_build.hpp>

namespace tutti::detail {

template <long>
struct is {};

#define TUTTI_DEFINE(macro) \
  void built_with_##macro(is<TUTTI_IS_DEFINED(#macro, TUTTI_TEXT_OF(macro))>) {}
TUTTI_FOR_EACH_ABI_MACRO(TUTTI_DEFINE)
void built_with_asio_version(is<BOOST_ASIO_VERSION>) {}

}  // namespace tutti::detail

// SPDX-License-Identifier: Apache-2.0
// What the objects of Asio and of the standard library are in this build of tutti.
#include <tutti/detail/same_build.hpp>

namespace tutti::detail {

#define TUTTI_DEFINE(macro)    \
  template <long>              \
  void built_with_##macro() {} \
  template void built_with_##macro<TUTTI_IS_DEFINED(#macro, TUTTI_TEXT_OF(macro))>();
TUTTI_FOR_EACH_ABI_MACRO(TUTTI_DEFINE)
template <long>
void built_with_asio_version() {}
template void built_with_asio_version<BOOST_ASIO_VERSION>();

}  // namespace tutti::detail

# SPDX-License-Identifier: Apache-2.0
# Finds nettle, which brings no CMake package: target Nettle::Nettle, variable Nettle_VERSION.
# Installed with tutti, whose static library is linked with it.
find_package(PkgConfig QUIET)
if(PKG_CONFIG_FOUND)
  pkg_check_modules(PC_NETTLE QUIET nettle)
endif()
find_path(Nettle_INCLUDE_DIR nettle/hmac.h HINTS ${PC_NETTLE_INCLUDE_DIRS})
find_library(Nettle_LIBRARY nettle HINTS ${PC_NETTLE_LIBRARY_DIRS})
mark_as_advanced(Nettle_INCLUDE_DIR Nettle_LIBRARY)

set(Nettle_VERSION ${PC_NETTLE_VERSION})
if(NOT Nettle_VERSION AND Nettle_INCLUDE_DIR AND EXISTS ${Nettle_INCLUDE_DIR}/nettle/version.h)
  file(STRINGS ${Nettle_INCLUDE_DIR}/nettle/version.h lines REGEX "define NETTLE_VERSION_M(AJOR|INOR)")
  string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*" "\\1.\\2" Nettle_VERSION "${lines}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Nettle
  REQUIRED_VARS Nettle_LIBRARY Nettle_INCLUDE_DIR
  VERSION_VAR Nettle_VERSION)

if(Nettle_FOUND AND NOT TARGET Nettle::Nettle)
  add_library(Nettle::Nettle UNKNOWN IMPORTED)
  set_target_properties(Nettle::Nettle PROPERTIES
    IMPORTED_LOCATION ${Nettle_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${Nettle_INCLUDE_DIR})
endif()

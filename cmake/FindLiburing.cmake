# SPDX-License-Identifier: Apache-2.0
# Finds liburing, which brings no CMake package: target liburing::liburing, variable Liburing_VERSION.
# Installed with tutti, whose static library is linked with it.
find_package(PkgConfig QUIET)
if(PKG_CONFIG_FOUND)
  pkg_check_modules(PC_LIBURING QUIET liburing)
endif()
find_path(Liburing_INCLUDE_DIR liburing.h HINTS ${PC_LIBURING_INCLUDE_DIRS})
find_library(Liburing_LIBRARY uring HINTS ${PC_LIBURING_LIBRARY_DIRS})
mark_as_advanced(Liburing_INCLUDE_DIR Liburing_LIBRARY)

set(Liburing_VERSION ${PC_LIBURING_VERSION})
if(NOT Liburing_VERSION AND Liburing_INCLUDE_DIR AND EXISTS ${Liburing_INCLUDE_DIR}/liburing/io_uring_version.h)
  file(STRINGS ${Liburing_INCLUDE_DIR}/liburing/io_uring_version.h lines REGEX "define IO_URING_VERSION_M(AJOR|INOR)")
  string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*" "\\1.\\2" Liburing_VERSION "${lines}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Liburing
  REQUIRED_VARS Liburing_LIBRARY Liburing_INCLUDE_DIR
  VERSION_VAR Liburing_VERSION)

if(Liburing_FOUND AND NOT TARGET liburing::liburing)
  add_library(liburing::liburing UNKNOWN IMPORTED)
  set_target_properties(liburing::liburing PROPERTIES
    IMPORTED_LOCATION ${Liburing_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${Liburing_INCLUDE_DIR})
endif()

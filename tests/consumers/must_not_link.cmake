# SPDX-License-Identifier: Apache-2.0
# Links a user's program, compiled with the macro MACRO, with an installed tutti, compiled without. The linker must refuse and
# name the macro. Given: CXX SOURCE MACRO BUILD PKG_CONFIG_PATH
include(${CMAKE_CURRENT_LIST_DIR}/steps.cmake)
find_program(PKG_CONFIG NAMES pkg-config pkgconf REQUIRED)
set(ENV{PKG_CONFIG_PATH} ${PKG_CONFIG_PATH})
file(MAKE_DIRECTORY ${BUILD})
run_step("pkg-config" flags ${PKG_CONFIG} --cflags --libs tutti)
separate_arguments(flags UNIX_COMMAND "${flags}")
run_refused_step("A program compiled with ${MACRO}, linked with a tutti compiled without," "built_with_${MACRO}[(]tutti::detail::is<1"
  ${CXX} -D${MACRO} ${SOURCE} -o ${BUILD}/with_${MACRO} ${flags} -Wl,--gc-sections)

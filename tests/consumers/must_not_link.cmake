# SPDX-License-Identifier: Apache-2.0
# Links a user's program, compiled with the macro MACRO, with an installed tutti, compiled without. The linker must refuse and
# name the macro. Given: CXX SOURCE MACRO BUILD PKG_CONFIG_PATH
include(${CMAKE_CURRENT_LIST_DIR}/steps.cmake)
find_program(PKG_CONFIG NAMES pkg-config pkgconf REQUIRED)
set(ENV{PKG_CONFIG_PATH} ${PKG_CONFIG_PATH})
file(MAKE_DIRECTORY ${BUILD})
run_step("pkg-config" flags ${PKG_CONFIG} --cflags --libs tutti)
separate_arguments(flags UNIX_COMMAND "${flags}")
set(program ${BUILD}/with_${MACRO})
execute_process(COMMAND ${CXX} -D${MACRO} ${SOURCE} -o ${program} ${flags} -Wl,--gc-sections
  RESULT_VARIABLE result OUTPUT_VARIABLE text ERROR_VARIABLE text)
if(result EQUAL 0)
  message(FATAL_ERROR "a program compiled with ${MACRO} links with a tutti compiled without")
endif()
if(NOT text MATCHES "built_with_${MACRO}<1")
  message(FATAL_ERROR "the linker does not name ${MACRO}:\n${text}")
endif()

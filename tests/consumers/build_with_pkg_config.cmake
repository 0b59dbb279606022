# SPDX-License-Identifier: Apache-2.0
# A user's program built by one command line. Given: CXX TUTTI_SOURCE_DIR BUILD PKG_CONFIG_PATH
include(${CMAKE_CURRENT_LIST_DIR}/steps.cmake)

find_program(PKG_CONFIG NAMES pkg-config pkgconf)
if(NOT PKG_CONFIG)
  message(FATAL_ERROR "no pkg-config: apt-get install pkg-config")
endif()
set(ENV{PKG_CONFIG_PATH} ${PKG_CONFIG_PATH})
run_step("pkg-config" flags ${PKG_CONFIG} --cflags --libs tutti)
separate_arguments(flags UNIX_COMMAND "${flags}")

file(MAKE_DIRECTORY ${BUILD})
run_step("compiling" ignored ${CXX} ${TUTTI_SOURCE_DIR}/examples/hello.cpp -o ${BUILD}/hello ${flags})
check_hello(${BUILD}/hello)

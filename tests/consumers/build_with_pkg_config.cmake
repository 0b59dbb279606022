# SPDX-License-Identifier: Apache-2.0
# Users' programs, each built by one command line. Given: CXX TUTTI_SOURCE_DIR PARTS BUILD PKG_CONFIG_PATH
include(${CMAKE_CURRENT_LIST_DIR}/steps.cmake)

find_program(PKG_CONFIG NAMES pkg-config pkgconf)
if(NOT PKG_CONFIG)
  message(FATAL_ERROR "no pkg-config: apt-get install pkg-config")
endif()
set(ENV{PKG_CONFIG_PATH} ${PKG_CONFIG_PATH})
file(MAKE_DIRECTORY ${BUILD})

# build(program source packages...)
function(build program source)
  run_step("pkg-config" flags ${PKG_CONFIG} --cflags --libs ${ARGN})
  separate_arguments(flags UNIX_COMMAND "${flags}")
  run_step("compiling" ignored ${CXX} ${source} -o ${program} ${flags})
endfunction()

build(${BUILD}/hello ${TUTTI_SOURCE_DIR}/examples/hello.cpp tutti)
check_hello(${BUILD}/hello)

build(${BUILD}/parts ${PARTS} tutti_sim tutti_gpu)
run_step("parts" text ${BUILD}/parts)
if(NOT text STREQUAL "simulated: yes\ndevice: yes\n")
  message(FATAL_ERROR "parts printed '${text}'")
endif()

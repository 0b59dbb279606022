# SPDX-License-Identifier: Apache-2.0
# Builds a user's program by one command line with pkg-config's output: hello with `tutti`, or the program SOURCE, which
# prints `<PART>: yes`, with `tutti_<PART>`. Given: CXX TUTTI_SOURCE_DIR BUILD PKG_CONFIG_PATH [PART SOURCE]
include(${CMAKE_CURRENT_LIST_DIR}/steps.cmake)

find_program(PKG_CONFIG NAMES pkg-config pkgconf)
if(NOT PKG_CONFIG)
  message(FATAL_ERROR "no pkg-config: apt-get install pkg-config")
endif()
set(ENV{PKG_CONFIG_PATH} ${PKG_CONFIG_PATH})
file(MAKE_DIRECTORY ${BUILD})

# build(program source package)
function(build program source package)
  run_step("pkg-config" flags ${PKG_CONFIG} --cflags --libs ${package})
  separate_arguments(flags UNIX_COMMAND "${flags}")
  run_step("compiling" ignored ${CXX} ${source} -o ${program} ${flags})
endfunction()

if(NOT PART)
  build(${BUILD}/hello ${TUTTI_SOURCE_DIR}/examples/hello.cpp tutti)
  check_hello(${BUILD}/hello)
  return()
endif()
build(${BUILD}/${PART} ${SOURCE} tutti_${PART})
run_step("${PART}" text ${CMAKE_COMMAND} -E chdir ${BUILD} ${BUILD}/${PART})
if(NOT text STREQUAL "${PART}: yes\n")
  message(FATAL_ERROR "${PART} printed '${text}'")
endif()

# SPDX-License-Identifier: Apache-2.0
# Compiles a program that the compiler must refuse with the message of its `// EXPECT: regular expression`. A program
# with `// COMPILES` must compile. Given: CXX TUTTI_SOURCE_DIR CASE FLAGS (one string)
include(${CMAKE_CURRENT_LIST_DIR}/steps.cmake)
separate_arguments(flags UNIX_COMMAND "${FLAGS}")
set(compile ${CXX} -std=c++20 -fsyntax-only -Werror -I${TUTTI_SOURCE_DIR}/include -I${TUTTI_SOURCE_DIR}/gpu/include ${flags} ${CASE})

file(STRINGS ${CASE} expectation REGEX "^// (EXPECT: .*|COMPILES)$")
list(LENGTH expectation count)
if(NOT count EQUAL 1)
  message(FATAL_ERROR "${CASE} has ${count} lines `// EXPECT: ...` or `// COMPILES` instead of one")
endif()
if(expectation STREQUAL "// COMPILES")
  run_step("to compile ${CASE}" text ${compile})
  return()
endif()
string(REGEX REPLACE "^// EXPECT: " "" expectation "${expectation}")
run_refused_step("${CASE}" "${expectation}" ${compile})

# SPDX-License-Identifier: Apache-2.0
# Compiles a program that the compiler must refuse with the message of its `// EXPECT: regular expression`. A program
# with `// COMPILES` must compile. Given: CXX TUTTI_SOURCE_DIR CASE FLAGS (one string)
separate_arguments(flags UNIX_COMMAND "${FLAGS}")
execute_process(
  COMMAND ${CXX} -std=c++20 -fsyntax-only -Werror -I${TUTTI_SOURCE_DIR}/include -I${TUTTI_SOURCE_DIR}/gpu/include ${flags} ${CASE}
  RESULT_VARIABLE result OUTPUT_VARIABLE text ERROR_VARIABLE text)

file(STRINGS ${CASE} expectation REGEX "^// (EXPECT: .*|COMPILES)$")
list(LENGTH expectation count)
if(NOT count EQUAL 1)
  message(FATAL_ERROR "${CASE} has ${count} lines `// EXPECT: ...` or `// COMPILES` instead of one")
endif()
if(expectation STREQUAL "// COMPILES")
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${CASE} must compile, but:\n${text}")
  endif()
  return()
endif()

string(REGEX REPLACE "^// EXPECT: " "" expectation "${expectation}")
if(result EQUAL 0)
  message(FATAL_ERROR "${CASE} compiles; the compiler must refuse it, saying: ${expectation}")
endif()
if(NOT text MATCHES "${expectation}")
  message(FATAL_ERROR "${CASE} is refused, but the message does not say '${expectation}':\n${text}")
endif()

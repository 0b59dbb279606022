# SPDX-License-Identifier: Apache-2.0
# Steps of the consumer tests.

# Runs a command. Returns its output, or ends the test with it if the command fails.
function(run_step what output)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(NOT result EQUAL 0)
    string(REPLACE ";" " " command "${ARGN}")
    message(FATAL_ERROR "${what} failed (${result}): ${command}\n${text}")
  endif()
  set(${output} "${text}" PARENT_SCOPE)
endfunction()

# Runs a command that must be refused with a message that matches `expectation`. `mistake` says what is accepted otherwise.
function(run_refused_step mistake expectation)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(result EQUAL 0)
    message(FATAL_ERROR "${mistake} is accepted; it must be refused, with: ${expectation}")
  endif()
  if(NOT text MATCHES "${expectation}")
    message(FATAL_ERROR "${mistake} is refused, but the message does not say '${expectation}':\n${text}")
  endif()
endfunction()

# hello without a launcher is a world of one. WITH_TLS: it opens the TLS module of its tutti.
function(check_hello program)
  set(environment "")
  if(WITH_TLS)
    set(environment ${CMAKE_COMMAND} -E env --unset=TUTTI_TLS_MODULE TUTTI_TLS=1)
  endif()
  run_step("hello" text ${environment} ${program})
  if(NOT text STREQUAL "1 ranks, sum 1\n")
    message(FATAL_ERROR "hello printed '${text}' instead of '1 ranks, sum 1'")
  endif()
endfunction()

# SPDX-License-Identifier: Apache-2.0
# What the compiler is told for tutti's own targets; nothing here reaches the users of the library.

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12)
  message(FATAL_ERROR "tutti needs coroutines as g++ 12 or clang++ 14 have them; this is g++ ${CMAKE_CXX_COMPILER_VERSION}: "
    "apt-get install g++-12, then configure with -DCMAKE_CXX_COMPILER=g++-12")
endif()
if(NOT CMAKE_SYSTEM_NAME STREQUAL "Linux")
  message(FATAL_ERROR "tutti runs on Linux: it is made of eventfd, epoll, io_uring and memfd")
endif()

if(TUTTI_SANITIZE STREQUAL "address")
  # Every report ends the program, so that a test cannot pass over it.
  set(tutti_sanitizer_flags -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
elseif(TUTTI_SANITIZE STREQUAL "thread")
  set(tutti_sanitizer_flags -fsanitize=thread -fno-omit-frame-pointer)
elseif(NOT TUTTI_SANITIZE STREQUAL "")
  message(FATAL_ERROR "TUTTI_SANITIZE is '${TUTTI_SANITIZE}'; it is one of address, thread, or empty")
endif()

if(TUTTI_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "TUTTI_FUZZ needs clang, for libFuzzer: configure with --preset fuzz")
  endif()
  list(APPEND tutti_sanitizer_flags -fsanitize=fuzzer-no-link)
endif()

# Language level, warnings and sanitizers of one of tutti's own targets.
function(tutti_compile_as_ours target)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow ${tutti_sanitizer_flags})
  target_link_options(${target} PRIVATE ${tutti_sanitizer_flags})
  # Sanitizers change the code that the warnings look at; g++ then sees what is not there.
  if(TUTTI_WERROR AND TUTTI_SANITIZE STREQUAL "")
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  # In a unity build g++ takes included sources for headers, where types without linkage are a fault, and names of one source
  # hide those of another. `./run check` compiles file by file, with all warnings.
  if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage -Wno-shadow)
  endif()
  # g++ says so at every fence under its thread sanitizer, which does not model fences.
  if(TUTTI_SANITIZE STREQUAL "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -Wno-tsan)
  endif()
endfunction()

# Lets a target use the headers that most sources include, compiled once (src/CMakeLists.txt). Only in a unity build, which is to
# be quick: a build file by file finds the source that forgets an include. The target links tutti::tutti.
function(tutti_use_precompiled_headers)
  if(CMAKE_UNITY_BUILD)
    foreach(target IN LISTS ARGN)
      target_compile_options(${target} PRIVATE -fPIC)   # as the headers were compiled
      target_precompile_headers(${target} REUSE_FROM tutti_precompiled)
    endforeach()
  endif()
endfunction()

# tutti_add_part(name sources...): the target tutti::<name>, a library beside the runtime, so that no program has it unasked.
function(tutti_add_part name)
  set(target tutti_${name})
  add_library(${target} STATIC ${ARGN})
  add_library(tutti::${name} ALIAS ${target})
  tutti_compile_as_ours(${target})
  tutti_use_precompiled_headers(${target})
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON EXPORT_NAME ${name})
  target_link_libraries(${target} PUBLIC tutti::tutti PRIVATE fmt::fmt)
endfunction()

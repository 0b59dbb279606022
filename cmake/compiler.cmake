# SPDX-License-Identifier: Apache-2.0
# What the compiler is told for tutti's own targets; nothing here reaches the users of the library.

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12)
  message(FATAL_ERROR "tutti needs coroutines as g++ 12 or clang++ 19 have them; this is g++ ${CMAKE_CXX_COMPILER_VERSION}: "
    "apt-get install g++-12, then configure with -DCMAKE_CXX_COMPILER=g++-12")
endif()
# There are no modules. CMake 3.28 and newer would look for them in each source, and clang needs a program of its own for it.
set(CMAKE_CXX_SCAN_FOR_MODULES OFF)
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
  # Batches need much memory anyway; collecting garbage in between only takes time.
  if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE --param=ggc-min-heapsize=1000000)
  endif()
  # In a unity build names of one source hide those of another, and g++ takes included sources for headers, where types without
  # linkage are a fault. `./run check` compiles file by file, with all warnings.
  if(CMAKE_UNITY_BUILD)
    target_compile_options(${target} PRIVATE -Wno-shadow $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endif()
  # g++ 13 takes what a view refers to for a part of the view.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION MATCHES "^13\\.")
    target_compile_options(${target} PRIVATE -Wno-dangling-reference)
  endif()
  # g++ says so at every fence under its thread sanitizer, which does not model fences.
  if(TUTTI_SANITIZE STREQUAL "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -Wno-tsan)
  endif()
endfunction()

# With tests, which are to be built quickly, Asio's functions are compiled once. Elsewhere each source has those that it uses, as
# programs with an installed tutti do, and the compiler can inline them.
set(tutti_asio_once "")
if(CMAKE_UNITY_BUILD AND TUTTI_BUILD_TESTS)
  set(tutti_asio_once BOOST_ASIO_SEPARATE_COMPILATION)
endif()

# tutti_add_precompiled_headers(name [OPTIONS options...] [HEADERS more headers...]): headers that most sources include, compiled
# once, in a unity build.
function(tutti_add_precompiled_headers name)
  if(NOT CMAKE_UNITY_BUILD)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "OPTIONS;HEADERS")
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "// Its object is not linked: its header is what counts.\n")
  add_library(${name} OBJECT ${source})
  tutti_compile_as_ours(${name})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/include)
  target_compile_definitions(${name} PRIVATE BOOST_ASIO_RECYCLING_ALLOCATOR_CACHE_SIZE=8 ${tutti_asio_once})
  target_compile_options(${name} PRIVATE ${arg_OPTIONS})
  target_precompile_headers(${name} PRIVATE <tutti/tutti.hpp> <boost/asio/co_spawn.hpp> <boost/asio/io_context.hpp>
    <boost/asio/ip/tcp.hpp> <boost/asio/steady_timer.hpp> <filesystem> <map> <set> <sstream> <thread> ${arg_HEADERS})
endfunction()

# tutti_use_precompiled_headers(target [name [options...]]): lets a target use such headers, by default the library's; with the
# options with which they were compiled. Only in a unity build, which is to be quick: a build file by file finds the source that
# forgets an include. The target links tutti::tutti.
function(tutti_use_precompiled_headers target)
  set(headers tutti_precompiled)
  if(ARGC GREATER 1)
    list(POP_FRONT ARGN headers)
  endif()
  if(CMAKE_UNITY_BUILD)
    target_compile_options(${target} PRIVATE -fPIC ${ARGN})   # as the headers were compiled
    target_precompile_headers(${target} REUSE_FROM ${headers})
  endif()
endfunction()

# Exported is what cmake/exported.map names, also where the user's project hides its own names.
if(BUILD_SHARED_LIBS)
  set(CMAKE_CXX_VISIBILITY_PRESET default)
  set(CMAKE_VISIBILITY_INLINES_HIDDEN OFF)
endif()

# tutti_set_shared(target): what a shared library needs besides. Programs and libraries share their Asio, and nothing else of what
# is compiled in.
function(tutti_set_shared target)
  if(BUILD_SHARED_LIBS)
    set_target_properties(${target} PROPERTIES
      SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
      LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/exported.map INSTALL_RPATH \$ORIGIN)
    target_link_options(${target} PRIVATE LINKER:--version-script=${PROJECT_SOURCE_DIR}/cmake/exported.map LINKER:--no-undefined)
  endif()
endfunction()

# tutti_add_part(name sources...): the target tutti::<name>, a library beside the runtime, so that no program has it unasked.
function(tutti_add_part name)
  set(target tutti_${name})
  add_library(${target} ${ARGN})
  tutti_set_shared(${target})
  add_library(tutti::${name} ALIAS ${target})
  tutti_compile_as_ours(${target})
  tutti_use_precompiled_headers(${target})
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON EXPORT_NAME ${name})
  target_link_libraries(${target} PUBLIC tutti::tutti PRIVATE ${tutti_fmt})
endfunction()

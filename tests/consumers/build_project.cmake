# SPDX-License-Identifier: Apache-2.0
# Configures, builds and runs a user's project. Given: CXX TOOLCHAIN (may be empty) GENERATOR PROJECT BUILD OPTIONS
include(${CMAKE_CURRENT_LIST_DIR}/steps.cmake)

# Configures anew: what an earlier run has found, such as its PyTorch, may be another one now.
file(REMOVE ${BUILD}/CMakeCache.txt)
run_step("configuring" ignored ${CMAKE_COMMAND} -S ${PROJECT} -B ${BUILD} -G ${GENERATOR}
  -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_TOOLCHAIN_FILE=${TOOLCHAIN} -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0
  -DTUTTI_SOURCE_DIR=${TUTTI_SOURCE_DIR} -DHELLO=${TUTTI_SOURCE_DIR}/examples/hello.cpp ${OPTIONS})
run_step("building" ignored ${CMAKE_COMMAND} --build ${BUILD} --target hello --parallel 1)
check_hello(${BUILD}/hello)

# SPDX-License-Identifier: Apache-2.0
# The sources are those of the clone that contains this port.
get_filename_component(SOURCE_PATH ${CURRENT_PORT_DIR}/../../../.. ABSOLUTE)
vcpkg_cmake_configure(SOURCE_PATH ${SOURCE_PATH} OPTIONS
  -DTUTTI_BUILD_TESTS=OFF -DTUTTI_BUILD_EXAMPLES=OFF -DTUTTI_BUILD_PERF=OFF -DTUTTI_WERROR=OFF -DTUTTI_MPI=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/tutti)
vcpkg_fixup_pkgconfig()
vcpkg_copy_tools(TOOL_NAMES tutti-run tutti-report AUTO_CLEAN)
file(REMOVE_RECURSE ${CURRENT_PACKAGES_DIR}/debug/include ${CURRENT_PACKAGES_DIR}/debug/share)
vcpkg_install_copyright(FILE_LIST ${SOURCE_PATH}/LICENSE)

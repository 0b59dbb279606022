# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` puts where: headers, the static libraries, tutti-run and tutti-report with their man pages, and the two ways
# to find them.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tutti)

set(tutti_parts train track sim gpu)
list(TRANSFORM tutti_parts PREPEND tutti_ OUTPUT_VARIABLE libraries)
install(TARGETS tutti ${libraries} EXPORT tuttiTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/tutti ${PROJECT_SOURCE_DIR}/gpu/include/tutti DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.hpp")
if(TUTTI_BUILD_TOOLS)
  install(TARGETS tutti-run tutti-report RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  tutti_install_help(tutti-run tutti-report)
endif()
if(TARGET tutti_tls)
  install(TARGETS tutti_tls LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
if(tutti_mpi_modules)
  install(TARGETS ${tutti_mpi_modules} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

install(EXPORT tuttiTargets NAMESPACE tutti:: DESTINATION ${package_dir})
set(tutti_with_io_uring ${Liburing_FOUND})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/tuttiConfig.cmake.in tuttiConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(tuttiConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_SOURCE_DIR}/cmake/torch.cmake ${PROJECT_BINARY_DIR}/tuttiConfig.cmake ${PROJECT_BINARY_DIR}/tuttiConfigVersion.cmake
  DESTINATION ${package_dir})

# pkg-config: the library is static, so everything behind it is named among what a plain `--libs` prints.
set(tutti_pc_requires "fmt nettle")
install(FILES ${PROJECT_SOURCE_DIR}/cmake/FindNettle.cmake DESTINATION ${package_dir})
if(Liburing_FOUND)
  install(FILES ${PROJECT_SOURCE_DIR}/cmake/FindLiburing.cmake DESTINATION ${package_dir})
  string(APPEND tutti_pc_requires " liburing")
endif()
set(tutti_pc_libs "")
foreach(library IN LISTS CMAKE_DL_LIBS)
  string(APPEND tutti_pc_libs "-l${library} ")
endforeach()
list(JOIN tutti_boost_flags " " tutti_pc_cflags)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  string(APPEND tutti_pc_cflags " -Wno-mismatched-new-delete")
endif()
# Relative to the file itself, so that an installed tree can be moved.
file(RELATIVE_PATH tutti_pc_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" tutti_pc_prefix "${tutti_pc_prefix}")
if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
  set(tutti_pc_prefix ${CMAKE_INSTALL_PREFIX})
else()
  set(tutti_pc_prefix "\${pcfiledir}/${tutti_pc_prefix}")
endif()
configure_file(${PROJECT_SOURCE_DIR}/cmake/tutti.pc.in tutti.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tutti.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# Likewise of the libraries beside it. tutti_install_part(name requires description)
function(tutti_install_part tutti_pc_part tutti_pc_requires tutti_pc_description)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/tutti_part.pc.in ${tutti_pc_part}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${tutti_pc_part}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()
tutti_install_part(tutti_train tutti "training")
tutti_install_part(tutti_track tutti "tracking of runs")
tutti_install_part(tutti_sim tutti "the simulator")
tutti_install_part(tutti_gpu tutti_train "devices")

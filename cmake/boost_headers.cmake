# SPDX-License-Identifier: Apache-2.0
# Installs the headers of Boost that users' programs include by tutti's headers: Asio, and what that includes. They lie in a folder
# of their own, because a program must be compiled with the Asio of its tutti.
list(GET Boost_INCLUDE_DIRS 0 boost)
file(GLOB asio RELATIVE ${boost} ${boost}/boost/asio/*.hpp ${boost}/boost/asio/experimental/*.hpp)
list(TRANSFORM asio REPLACE "(.+)" "#include <\\1>\n")
list(FILTER asio EXCLUDE REGEX "/ssl\\.hpp")   # includes OpenSSL's headers
list(JOIN asio "" includes)
set(source ${PROJECT_BINARY_DIR}/boost_headers.cpp)
file(CONFIGURE OUTPUT ${source} CONTENT "${includes}" @ONLY)
execute_process(COMMAND ${CMAKE_CXX_COMPILER} -std=c++20 -M ${tutti_boost_flags} ${source} OUTPUT_VARIABLE read COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "${boost}/boost/[^ \n]+" headers "${read}")
# Whole folders where another compiler, or a macro, reads other files.
foreach(folder IN ITEMS asio assert config system)
  file(GLOB_RECURSE more ${boost}/boost/${folder}/*.[hi]pp)
  list(APPEND headers ${more})
endforeach()
list(REMOVE_DUPLICATES headers)
foreach(header IN LISTS headers)
  file(RELATIVE_PATH name ${boost} ${header})
  get_filename_component(folder ${name} DIRECTORY)
  install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tutti_boost/${folder} COMPONENT development)
endforeach()

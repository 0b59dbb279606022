# SPDX-License-Identifier: Apache-2.0
# Man pages and shell completion, from what the programs print for --help.
find_program(tutti_awk awk NO_CACHE)

# tutti_man_page(program [options...]): share/man/man1/<program>.1 of the build folder, from --help and these options.
function(tutti_man_page program)
  if(CMAKE_CROSSCOMPILING OR NOT tutti_awk)
    return()
  endif()
  set(page ${PROJECT_BINARY_DIR}/share/man/man1/${program}.1)
  set(says "$<TARGET_FILE:${program}> --help")
  foreach(option IN LISTS ARGN)
    string(APPEND says " && $<TARGET_FILE:${program}> ${option}")
  endforeach()
  add_custom_command(OUTPUT ${page}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/share/man/man1
    COMMAND sh -c "( ${says} ) | ${tutti_awk} -v name=${program} -v version=${PROJECT_VERSION} -f '${PROJECT_SOURCE_DIR}/cmake/man_page.awk' > ${page}"
    DEPENDS ${program} ${PROJECT_SOURCE_DIR}/cmake/man_page.awk
    VERBATIM)
  add_custom_target(${program}-man ALL DEPENDS ${page})
  set_property(GLOBAL APPEND PROPERTY tutti_man_pages_of_${program} ${page})
endfunction()

# tutti_install_help(programs...): their man pages, and completion for bash and zsh.
function(tutti_install_help)
  foreach(program IN LISTS ARGN)
    get_property(page GLOBAL PROPERTY tutti_man_pages_of_${program})
    if(page)
      install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT programs)
    endif()
    install(FILES ${PROJECT_SOURCE_DIR}/cmake/shell/bash_completion DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
      RENAME ${program} COMPONENT programs)
  endforeach()
  install(FILES ${PROJECT_SOURCE_DIR}/cmake/shell/_tutti DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT programs)
endfunction()

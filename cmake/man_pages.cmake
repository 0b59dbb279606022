# SPDX-License-Identifier: Apache-2.0
# Man pages and shell completion, from what the programs print for --help.
find_program(tutti_awk awk NO_CACHE)

# tutti_man_page(program [options...]): share/man/man1/<program>.1 of the build folder, from --help and these options, whenever the
# program is built.
function(tutti_man_page program)
  if(CMAKE_CROSSCOMPILING OR NOT tutti_awk OR TUTTI_SANITIZE)
    return()
  endif()
  set(page ${PROJECT_BINARY_DIR}/share/man/man1/${program}.1)
  set(format ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/man_page.awk)
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/share/man/man1)
  set(says "\"$0\" --help")
  foreach(option IN LISTS ARGN)
    string(APPEND says " && \"$0\" ${option}")
  endforeach()
  add_custom_command(TARGET ${program} POST_BUILD BYPRODUCTS ${page}
    COMMAND sh -c "text=$(${says}) && printf '%s\\n' \"$text\" | \"$1\" -v name=${program} -v version=${PROJECT_VERSION} -f \"$2\" >\"$3\""
      $<TARGET_FILE:${program}> ${tutti_awk} ${format} ${page}
    VERBATIM)
  set_property(TARGET ${program} APPEND PROPERTY LINK_DEPENDS ${format})
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

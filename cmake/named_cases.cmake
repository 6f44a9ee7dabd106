# SPDX-License-Identifier: Apache-2.0
# gpushared_require_named_case(<program> <name> a.cpp ...): ends the configure step unless a case in these sources, or
# its suite, has <name> in its name. gtest does not report a filter that matches no case.
function(gpushared_require_named_case program name)
  foreach(source IN LISTS ARGN)
    get_filename_component(path "${source}" ABSOLUTE)
    file(STRINGS "${path}" cases REGEX "^TEST(_F|_P)?\\([^)]*${name}")
    if(cases)
      return()
    endif()
  endforeach()
  string(REPLACE ";" " " sources "${ARGN}")
  message(FATAL_ERROR "${program}: no case has '${name}' in its name, which WIDE asks for; there are cases in ${sources}")
endfunction()

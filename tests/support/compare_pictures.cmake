# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
#
# Runs PROGRAM, which writes files into the folder it is given (SCRATCH), and compares each with the file of that name in
# IMAGES.
file(REMOVE_RECURSE "${SCRATCH}")
file(MAKE_DIRECTORY "${SCRATCH}")
execute_process(COMMAND "${PROGRAM}" "${SCRATCH}" RESULT_VARIABLE code)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "${PROGRAM} ended with ${code}")
endif()
file(GLOB names RELATIVE "${SCRATCH}" "${SCRATCH}/*")
if(NOT names)
  message(FATAL_ERROR "${PROGRAM} wrote nothing")
endif()
foreach(name IN LISTS names)
  execute_process(COMMAND "${CMAKE_COMMAND}" -E compare_files "${SCRATCH}/${name}" "${IMAGES}/${name}"
                  RESULT_VARIABLE differs ERROR_QUIET)
  if(differs)
    execute_process(COMMAND diff -u "${IMAGES}/${name}" "${SCRATCH}/${name}")
    message(SEND_ERROR "docs/images/${name} is not what the library draws: run ${PROGRAM} docs/images")
  endif()
endforeach()

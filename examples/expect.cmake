# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
#
# expect(<exit code> <regex> <arguments...>): what a run of PROGRAM prints to either stream.
function(expect code regex)
  execute_process(COMMAND "${PROGRAM}" ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE out ERROR_VARIABLE error)
  get_filename_component(name "${PROGRAM}" NAME)
  if(NOT result EQUAL code)
    message(FATAL_ERROR "${name} ${ARGN}: exit code ${result}, expected ${code}\n${out}${error}")
  endif()
  if(NOT "${out}${error}" MATCHES "${regex}")
    message(FATAL_ERROR "${name} ${ARGN}: no line that matches ${regex} in\n${out}${error}")
  endif()
endfunction()

# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
#
# Runs PROGRAM, under LAUNCHER if one is given, and compares its standard output with the file EXPECTED.
execute_process(COMMAND ${LAUNCHER} "${PROGRAM}" OUTPUT_VARIABLE output RESULT_VARIABLE code)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "${PROGRAM} ended with ${code}\n${output}")
endif()
file(READ "${EXPECTED}" expected)
if(NOT output STREQUAL expected)
  get_filename_component(name "${PROGRAM}" NAME)
  file(WRITE "${CMAKE_CURRENT_BINARY_DIR}/${name}.output" "${output}")
  execute_process(COMMAND diff -u "${EXPECTED}" "${CMAKE_CURRENT_BINARY_DIR}/${name}.output")
  message(FATAL_ERROR "${name} does not print ${EXPECTED}")
endif()

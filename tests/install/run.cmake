# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
#
# Builds and runs consumer/ in one of two ways (WAY): against the installed package, or with this source tree inside it.
file(REMOVE_RECURSE "${SCRATCH}")

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "failed with ${code}: ${command}")
  endif()
endfunction()

set(arguments -G "${GENERATOR}" "-DCMAKE_CXX_COMPILER=${CXX}" "-DEXPECTED_VERSION=${VERSION}")
if(WAY STREQUAL "find_package")
  run("${CMAKE_COMMAND}" --install "${BUILD_DIR}" --prefix "${SCRATCH}/prefix")
  list(APPEND arguments "-DCMAKE_PREFIX_PATH=${SCRATCH}/prefix")
else()
  list(APPEND arguments "-DESPALIER_SOURCE_DIR=${SOURCE_DIR}")
endif()
run("${CMAKE_COMMAND}" -S "${CMAKE_CURRENT_LIST_DIR}/consumer" -B "${SCRATCH}/build" ${arguments})
run("${CMAKE_COMMAND}" --build "${SCRATCH}/build")
run("${SCRATCH}/build/consumer_core")
run("${SCRATCH}/build/consumer_all")

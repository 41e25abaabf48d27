# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
#
# Builds and runs consumer/ in one of three ways (WAY): against the installed package, against what the Debian package
# holds, or with this source tree inside it.
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
  # The program is there if the build has the examples.
  file(STRINGS "${BUILD_DIR}/CMakeCache.txt" examples REGEX "^ESPALIER_BUILD_EXAMPLES:BOOL=(ON|TRUE|1)$")
  if(examples)
    run("${SCRATCH}/prefix/bin/espalier-plan" diff "${SOURCE_DIR}/tests/data/plans/mlp.plan"
        "${SOURCE_DIR}/tests/data/plans/mlp.plan")
  endif()
elseif(WAY STREQUAL "deb")
  file(MAKE_DIRECTORY "${SCRATCH}")
  run("${CMAKE_COMMAND}" -E chdir "${SCRATCH}" "${CPACK}" --config "${BUILD_DIR}/CPackConfig.cmake" -B "${SCRATCH}/cpack")
  # For all architectures, unless it names a folder of this one.
  file(GLOB deb "${SCRATCH}/cpack/espalier-dev_${VERSION}_*.deb")
  execute_process(COMMAND dpkg-deb --field "${deb}" Version Architecture Depends OUTPUT_VARIABLE fields)
  if(NOT fields MATCHES "Version: ${VERSION}\nArchitecture: [a-z0-9]+\nDepends: libboost-dev")
    message(FATAL_ERROR "${deb} says of itself:\n${fields}")
  endif()
  run(dpkg-deb --extract "${deb}" "${SCRATCH}/root")
  if(EXISTS "${SCRATCH}/root/usr/bin")
    message(FATAL_ERROR "${deb} is a package of headers, and has programs")
  endif()
  list(APPEND arguments "-DCMAKE_PREFIX_PATH=${SCRATCH}/root/usr")
else()
  list(APPEND arguments "-DESPALIER_SOURCE_DIR=${SOURCE_DIR}")
endif()

if(WAY STREQUAL "deb")
  # The same package through pkg-config: the kernels' half, without CMake.
  find_program(pkg_config NAMES pkg-config pkgconf REQUIRED)
  set(ENV{PKG_CONFIG_PATH} "${SCRATCH}/root/usr/share/pkgconfig")
  execute_process(COMMAND "${pkg_config}" --modversion espalier-openmp OUTPUT_VARIABLE version
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT version STREQUAL VERSION)
    message(FATAL_ERROR "pkg-config finds espalier-openmp ${version}, not ${VERSION}")
  endif()
  foreach(package core openmp)
    execute_process(COMMAND "${pkg_config}" --cflags --libs espalier-${package} OUTPUT_VARIABLE flags
                    OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    separate_arguments(flags)
    set(source "${CMAKE_CURRENT_LIST_DIR}/consumer/${package}.cpp")
    run("${CXX}" "${source}" ${flags} -o "${SCRATCH}/pkg_config_${package}")
    run("${SCRATCH}/pkg_config_${package}")
  endforeach()
  # The compiled part, once, and a program that has none of it.
  execute_process(COMMAND "${pkg_config}" --variable=source espalier-compiled OUTPUT_VARIABLE compiled_part
                  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND "${pkg_config}" --cflags --libs espalier-compiled OUTPUT_VARIABLE flags
                  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(flags)
  run("${CXX}" "${CMAKE_CURRENT_LIST_DIR}/consumer/openmp.cpp" "${compiled_part}" ${flags}
      -o "${SCRATCH}/pkg_config_compiled")
  run("${SCRATCH}/pkg_config_compiled")
  get_filename_component(name "${deb}" NAME)
  file(READ "${SCRATCH}/root/usr/share/pkgconfig/espalier-openmp.pc" text)
  if(name MATCHES "_all[.]deb$" AND text MATCHES "-linux-gnu")
    message(FATAL_ERROR "${name} is for all architectures and names a path of one:\n${text}")
  endif()
  return()
endif()
run("${CMAKE_COMMAND}" -S "${CMAKE_CURRENT_LIST_DIR}/consumer" -B "${SCRATCH}/build" ${arguments})
run("${CMAKE_COMMAND}" --build "${SCRATCH}/build")
run("${SCRATCH}/build/consumer_core")
run("${SCRATCH}/build/consumer_all")
run("${SCRATCH}/build/consumer_plans")
run("${SCRATCH}/build/consumer_ranks")
run("${SCRATCH}/build/consumer_compiled")
# What a device is made of stands in the compiled part alone: no program has it again.
find_program(nm nm)
if(nm)
  file(GLOB objects "${SCRATCH}/build/CMakeFiles/consumer_compiled.dir/*.o")
  execute_process(COMMAND "${nm}" -C --defined-only ${objects} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  if(symbols MATCHES "device_executor|in_process_communicator|mpi_communicator" OR NOT symbols MATCHES " main")
    message(FATAL_ERROR "consumer_compiled compiles the compiled part again: ${CMAKE_MATCH_0}")
  endif()
endif()

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
elseif(WAY STREQUAL "deb")
  file(MAKE_DIRECTORY "${SCRATCH}")
  run("${CMAKE_COMMAND}" -E chdir "${SCRATCH}" "${CPACK}" --config "${BUILD_DIR}/CPackConfig.cmake" -B "${SCRATCH}/cpack")
  set(deb "${SCRATCH}/cpack/espalier-dev_${VERSION}_all.deb")
  execute_process(COMMAND dpkg-deb --field "${deb}" Version Architecture Depends OUTPUT_VARIABLE fields)
  if(NOT fields MATCHES "Version: ${VERSION}\nArchitecture: all\nDepends: libboost-dev")
    message(FATAL_ERROR "${deb} says of itself:\n${fields}")
  endif()
  run(dpkg-deb --extract "${deb}" "${SCRATCH}/root")
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
    run("${CXX}" -std=c++20 "${source}" ${flags} -o "${SCRATCH}/pkg_config_${package}")
    run("${SCRATCH}/pkg_config_${package}")
  endforeach()
  return()
endif()
run("${CMAKE_COMMAND}" -S "${CMAKE_CURRENT_LIST_DIR}/consumer" -B "${SCRATCH}/build" ${arguments})
run("${CMAKE_COMMAND}" --build "${SCRATCH}/build")
run("${SCRATCH}/build/consumer_core")
run("${SCRATCH}/build/consumer_all")

# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
#
# ccache where there is one, and as many compile jobs at a time as memory allows: a heavy test costs a g++ 1 to 2 GiB.
find_program(ESPALIER_CCACHE ccache)
mark_as_advanced(ESPALIER_CCACHE)
if(ESPALIER_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${ESPALIER_CCACHE}")
endif()

if(CMAKE_GENERATOR MATCHES "Ninja" AND NOT CMAKE_JOB_POOLS)
  cmake_host_system_information(RESULT memory_mib QUERY TOTAL_PHYSICAL_MEMORY)
  cmake_host_system_information(RESULT jobs QUERY NUMBER_OF_LOGICAL_CORES)
  math(EXPR by_memory "${memory_mib} / ${ESPALIER_COMPILE_MEMORY_MIB}")
  if(by_memory LESS jobs)
    set(jobs ${by_memory})
  endif()
  if(jobs LESS 1)
    set(jobs 1)
  endif()
  set(CMAKE_JOB_POOLS compile=${jobs})
  set(CMAKE_JOB_POOL_COMPILE compile)
endif()

# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
#
# ccache where there is one, as many compile jobs at a time as memory allows (a heavy test costs a g++ 1 to 2 GiB), and
# memory that is left for g++, which then collects no garbage.
find_program(ESPALIER_CCACHE ccache)
mark_as_advanced(ESPALIER_CCACHE)
if(ESPALIER_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${ESPALIER_CCACHE}")
endif()

cmake_host_system_information(RESULT memory_mib QUERY TOTAL_PHYSICAL_MEMORY)
cmake_host_system_information(RESULT jobs QUERY NUMBER_OF_LOGICAL_CORES)

# Constant evaluation leaves much garbage, and a heap that was collected is full of holes: kinds_rounding.cpp takes g++
# 43 s and 4.8 GiB without collecting, 74 s and 1.2 GiB with it. It collects once it has 1.3 times this size, which of
# all jobs together is less than half of the machine's memory.
set(ESPALIER_GXX_SPEED "")
math(EXPR heap_kib "${memory_mib} * 1024 / ${jobs} / 3")
if(heap_kib GREATER 4194304)
  set(heap_kib 4194304)
endif()
if(heap_kib GREATER 262144)
  set(ESPALIER_GXX_SPEED --param=ggc-min-heapsize=${heap_kib} --param=ggc-min-expand=30)
endif()

if(CMAKE_GENERATOR MATCHES "Ninja" AND NOT CMAKE_JOB_POOLS)
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

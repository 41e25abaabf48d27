# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
#
# Defines the parts of the library, espalier::base, espalier::comm, espalier::tensor, espalier::pipeline (plans),
# espalier::stages and espalier::testing; what they consist of, espalier::core, espalier::openmp, espalier::mpi and
# espalier::io; espalier::espalier (all of them), espalier::compiled and espalier::large_programs. The source tree and the installed package both include this file, so that a component's
# dependencies are looked for with the compiler that will use it.
#
# In:  Espalier_INCLUDE_DIR  directory that holds espalier/
#      Espalier_COMPILED_SOURCE  espalier.cpp, the compiled part
#      Espalier_QUIET        ON: no line about a build that is not optimised
#      Espalier_PRECOMPILE   OFF: espalier::compiled without a precompiled header
#      Espalier_IMPORTED     ON in the installed package: its headers are then SYSTEM for the consumer
# Out: Espalier_<component>_FOUND, and Espalier_<component>_MISSING with a reason when that is false

# Runs a command on the target behind espalier::<name>, creating it on first use.
macro(espalier_component name)
  if(Espalier_IMPORTED)
    set(espalier_target espalier::${name})
    add_library(espalier::${name} INTERFACE IMPORTED)
  else()
    set(espalier_target espalier_${name})
    add_library(espalier_${name} INTERFACE)
    add_library(espalier::${name} ALIAS espalier_${name})
  endif()
  set(Espalier_${name}_FOUND TRUE)
  set(Espalier_${name}_MISSING "")
endmacro()

macro(espalier_missing name reason)
  set(Espalier_${name}_FOUND FALSE)
  set(Espalier_${name}_MISSING "${reason}")
endmacro()

if(POLICY CMP0167)
  cmake_policy(SET CMP0167 NEW)
endif()

# Kernels are compiled in the project that uses them: an empty build type is the usual reason why they are slow.
get_property(espalier_generates_many GLOBAL PROPERTY GENERATOR_IS_MULTI_CONFIG)
get_property(espalier_has_said GLOBAL PROPERTY ESPALIER_BUILD_TYPE_NOTICE)
string(TOUPPER "${CMAKE_BUILD_TYPE}" espalier_build_type)
if(NOT espalier_generates_many AND NOT espalier_has_said AND NOT Espalier_QUIET
   AND NOT "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${espalier_build_type}}" MATCHES "-O[1-3sgzf]")
  set_property(GLOBAL PROPERTY ESPALIER_BUILD_TYPE_NOTICE TRUE)
  if(CMAKE_BUILD_TYPE)
    set(espalier_build_type "CMAKE_BUILD_TYPE is ${CMAKE_BUILD_TYPE}")
  else()
    set(espalier_build_type "CMAKE_BUILD_TYPE is empty")
  endif()
  message(NOTICE "Espalier: ${espalier_build_type}, so kernels are not optimised and run many times slower: \
configure with -DCMAKE_BUILD_TYPE=Release (-DEspalier_QUIET=ON silences this line)")
endif()

# base and pipeline: element types, texts and containers; schedules, simulator and planner. The standard library only.
espalier_component(base)
target_include_directories(${espalier_target} INTERFACE "${Espalier_INCLUDE_DIR}")
target_compile_features(${espalier_target} INTERFACE cxx_std_20)
espalier_component(pipeline)
target_link_libraries(${espalier_target} INTERFACE espalier::base)

# core: the compile-time half. C++20 and Boost.Hana's headers, nothing else.
find_package(Boost 1.74 QUIET)
if(NOT TARGET Boost::headers)
  espalier_missing(core "Boost headers, 1.74 or newer (Debian: libboost-dev)")
  foreach(name openmp mpi io comm tensor stages testing espalier compiled)
    espalier_missing(${name} "${Espalier_core_MISSING}")
  endforeach()
  return()
endif()
espalier_component(core)
target_link_libraries(${espalier_target} INTERFACE espalier::base Boost::headers)

# openmp: kernels on one shard. Without an OpenMP runtime they run on one thread; without a CBLAS the library's own
# matrix product serves.
find_package(Threads QUIET)
find_package(OpenMP QUIET COMPONENTS CXX)
find_package(CBLAS QUIET)
espalier_component(openmp)
target_link_libraries(${espalier_target} INTERFACE espalier::core Threads::Threads)
# Nobody reads errno after a square root, and setting it keeps the compiler from the vector instruction.
target_compile_options(${espalier_target} INTERFACE
  $<$<COMPILE_LANG_AND_ID:CXX,GNU,Clang,AppleClang>:-fno-math-errno>)
# In Debug builds a runner checks the graph of its program after every pass.
target_compile_definitions(${espalier_target} INTERFACE $<$<CONFIG:Debug>:ESPALIER_CHECK_PASSES=1>)
if(TARGET OpenMP::OpenMP_CXX)
  target_link_libraries(${espalier_target} INTERFACE OpenMP::OpenMP_CXX)
endif()
if(TARGET CBLAS::CBLAS)
  target_link_libraries(${espalier_target} INTERFACE CBLAS::CBLAS)
  target_compile_definitions(${espalier_target} INTERFACE ESPALIER_USE_CBLAS=1)
  if(CBLAS_IS_OPENBLAS)
    target_compile_definitions(${espalier_target} INTERFACE ESPALIER_USE_OPENBLAS=1)
  endif()
endif()

# mpi: ranks. Communicators, operations and datatypes are Boost.MPI's where a program meets them (espalier/comm.hpp), and
# MPI's C handles underneath.
find_package(MPI QUIET COMPONENTS CXX)
find_package(Boost 1.74 QUIET COMPONENTS mpi serialization)
if(TARGET MPI::MPI_CXX AND TARGET Boost::mpi)
  # comm: collectives for any MPI program, without tensors.
  espalier_component(comm)
  target_compile_definitions(${espalier_target} INTERFACE ESPALIER_USE_MPI=1)
  target_link_libraries(${espalier_target} INTERFACE espalier::base Boost::mpi Boost::serialization MPI::MPI_CXX
                                                     Threads::Threads)
  espalier_component(mpi)
  target_link_libraries(${espalier_target} INTERFACE espalier::core espalier::comm)
else()
  espalier_missing(comm "MPI and Boost.MPI (Debian: libopenmpi-dev libboost-mpi-dev)")
  espalier_missing(mpi "MPI and Boost.MPI (Debian: libopenmpi-dev libboost-mpi-dev)")
endif()

# io: tensors to and from xtensor arrays and files.
find_package(xtensor QUIET)
if(TARGET xtensor)
  espalier_component(io)
  target_link_libraries(${espalier_target} INTERFACE espalier::core xtensor)
else()
  espalier_missing(io "xtensor (Debian: libxtensor-dev)")
endif()

# Everything that was found, for #include <espalier/espalier.hpp>.
espalier_component(espalier)
foreach(name core openmp mpi io)
  if(Espalier_${name}_FOUND)
    target_link_libraries(${espalier_target} INTERFACE espalier::${name})
  endif()
endforeach()

# The parts that need several of these. tensor: core and what runs it in this process; with espalier::mpi over ranks.
espalier_component(tensor)
target_link_libraries(${espalier_target} INTERFACE espalier::openmp)
foreach(name stages testing)
  espalier_component(${name})
  target_link_libraries(${espalier_target} INTERFACE espalier::espalier)
endforeach()

# compiled: all of the above, and what is no template compiled once, by the project that asks for it: with its compiler and
# its flags, as its programs, so that nothing can differ between the two. Programs begin with espalier/espalier.hpp
# precompiled; several targets of one project share that by `REUSE_FROM espalier_compiled`.
# Kernels are there for AVX2 and AVX-512 too, and the processor that a program runs on says which serve it
# (`set(Espalier_KERNEL_SETS OFF)` before `find_package`: only what the project's flags allow, in half the time).
if(NOT TARGET espalier_compiled)
  add_library(espalier_compiled STATIC EXCLUDE_FROM_ALL "${Espalier_COMPILED_SOURCE}")
  add_library(espalier::compiled ALIAS espalier_compiled)
  target_compile_definitions(espalier_compiled PUBLIC ESPALIER_COMPILED=1)
  target_link_libraries(espalier_compiled PUBLIC espalier::espalier)
  set_target_properties(espalier_compiled PROPERTIES POSITION_INDEPENDENT_CODE ON)
  if(NOT DEFINED Espalier_PRECOMPILE OR Espalier_PRECOMPILE)
    target_precompile_headers(espalier_compiled INTERFACE <espalier/espalier.hpp>)
  endif()
  if(NOT DEFINED Espalier_KERNEL_SETS OR Espalier_KERNEL_SETS)
    include("${CMAKE_CURRENT_LIST_DIR}/kernel_sets.cmake")
    espalier_add_kernel_sets(espalier_compiled "${Espalier_COMPILED_SOURCE}")
  endif()
endif()
set(Espalier_compiled_FOUND TRUE)
set(Espalier_compiled_MISSING "")

# Programs of more than some 500 instructions need more than the compilers' default limits on constant evaluation.
# g++ spends a third of its time on a heap full of holes if it collects garbage in between.
espalier_component(large_programs)
target_compile_options(${espalier_target} INTERFACE
  $<$<CXX_COMPILER_ID:Clang,AppleClang>:-fconstexpr-steps=200000000>
  $<$<CXX_COMPILER_ID:Clang,AppleClang>:-fbracket-depth=4096>
  $<$<CXX_COMPILER_ID:GNU>:-fconstexpr-ops-limit=2000000000>
  $<$<CXX_COMPILER_ID:GNU>:-fconstexpr-loop-limit=16777216>
  $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-expand=10000>)

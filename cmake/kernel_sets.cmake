# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
#
# The kernel sets of the compiled part (espalier_kernels.cpp), for processors that can do more than the project's flags say.
include(CheckCXXSourceCompiles)

# Adds the sets to the library, whose source is <compiled>. None where all flags have them already, or for other processors
# than x86-64: there the compiled part's own functions serve.
function(espalier_add_kernel_sets library compiled)
  get_directory_property(CMAKE_REQUIRED_OPTIONS COMPILE_OPTIONS)
  set(CMAKE_REQUIRED_QUIET ON)
  check_cxx_source_compiles("
    #if !defined(__x86_64__) || !defined(__GNUC__) || defined(__AVX512F__)
    #error no sets
    #endif
    int main() {}" ESPALIER_CAN_ADD_KERNEL_SETS)
  set(CMAKE_REQUIRED_OPTIONS -march=x86-64-v4)
  check_cxx_source_compiles("int main() { return __builtin_cpu_supports(\"avx512vl\"); }" ESPALIER_KNOWS_X86_LEVELS)
  if(NOT ESPALIER_CAN_ADD_KERNEL_SETS OR NOT ESPALIER_KNOWS_X86_LEVELS)
    return()
  endif()
  get_filename_component(folder "${compiled}" DIRECTORY)
  target_compile_definitions(${library} PRIVATE ESPALIER_KERNEL_SETS=1)
  foreach(set avx2 avx512)
    # Both compilers prefer 256-bit vectors by default.
    set(flags -march=x86-64-v3)
    if(set STREQUAL "avx512")
      set(flags -march=x86-64-v4 -mprefer-vector-width=512)
    endif()
    add_library(${library}_${set} OBJECT EXCLUDE_FROM_ALL "${folder}/espalier_kernels.cpp")
    target_link_libraries(${library}_${set} PRIVATE espalier::espalier)
    target_compile_definitions(${library}_${set} PRIVATE ESPALIER_COMPILED=1 ESPALIER_KERNEL_SET=${set})
    target_compile_options(${library}_${set} PRIVATE ${flags})
    set_target_properties(${library}_${set} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_sources(${library} PRIVATE $<TARGET_OBJECTS:${library}_${set}>)
  endforeach()
endfunction()

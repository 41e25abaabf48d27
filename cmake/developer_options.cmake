# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
#
# How this project compiles its own tests, examples and benchmarks. Nothing here reaches a user's build.
include(CheckCXXCompilerFlag)
include(CheckCXXSourceCompiles)

# The headers are included directly, never as SYSTEM, so these reach them; third-party headers are SYSTEM.
set(ESPALIER_WARNINGS -Wall -Wextra -Wpedantic -Wconversion -Wshadow)
add_library(espalier_developer INTERFACE)
# -Wrestrict is wrong about a text of one character before a temporary string in g++ 12 at -O3, `"-" + std::to_string(n)`
# (GCC bug 105651): it sees an overlap inside std::string. The library's headers join such texts, since users' builds warn;
# tests, examples and benchmarks need not.
target_compile_options(espalier_developer INTERFACE ${ESPALIER_WARNINGS} $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
                                                    $<$<BOOL:${ESPALIER_WERROR}>:-Werror>
                                                    "$<$<CXX_COMPILER_ID:GNU>:${ESPALIER_GXX_SPEED}>")
target_link_options(espalier_developer INTERFACE LINKER:--as-needed)

if(ESPALIER_NATIVE)
  check_cxx_compiler_flag(-march=native ESPALIER_HAS_MARCH_NATIVE)
  if(ESPALIER_HAS_MARCH_NATIVE)
    set(native -march=native)
    # clang 19 warns about AVX10.1, which it chose itself, on processors that have it.
    check_cxx_compiler_flag(-Winvalid-feature-combination ESPALIER_HAS_INVALID_FEATURE_WARNING)
    if(ESPALIER_HAS_INVALID_FEATURE_WARNING)
      list(APPEND native -Wno-invalid-feature-combination)
    endif()
    # Both compilers prefer 256-bit vectors by default; 512 is 40 % faster on exp and tanh.
    set(CMAKE_REQUIRED_FLAGS -march=native)
    check_cxx_source_compiles("#ifndef __AVX512F__\n#error no AVX-512\n#endif\nint main() {}" ESPALIER_HAS_AVX512)
    unset(CMAKE_REQUIRED_FLAGS)
    if(ESPALIER_HAS_AVX512)
      list(APPEND native -mprefer-vector-width=512)
    endif()
    target_compile_options(espalier_developer INTERFACE ${native})
  endif()
endif()

if(ESPALIER_SANITIZE)
  set(sanitize -fsanitize=${ESPALIER_SANITIZE} -fno-omit-frame-pointer)
  if(ESPALIER_SANITIZE MATCHES "undefined")
    list(APPEND sanitize -fno-sanitize-recover=undefined)
    # With the checks for null, g++ 12 no longer takes `op == &ops::add` for a constant expression, and nothing that is
    # traced compiles. A null pointer that is followed is found by the address sanitizer as well.
    list(APPEND sanitize $<$<CXX_COMPILER_ID:GNU>:-fno-sanitize=null,returns-nonnull-attribute,nonnull-attribute>
                         $<$<CXX_COMPILER_ID:GNU>:-fdelete-null-pointer-checks>)
  endif()
  # Instrumented code is not what g++'s flow analysis was tuned for: it warns inside the standard library.
  # And clang says which loops it can no longer vectorise.
  target_compile_options(espalier_developer INTERFACE ${sanitize} -g1 $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>
                                                      $<$<CXX_COMPILER_ID:Clang>:-Wno-pass-failed>)
  target_link_options(espalier_developer INTERFACE ${sanitize})
endif()

# What was found, in one place: a build that quietly lost its MPI would be a bad surprise.
foreach(name core openmp mpi io)
  if(Espalier_${name}_FOUND)
    message(STATUS "espalier::${name}: yes")
  else()
    message(STATUS "espalier::${name}: no, needs ${Espalier_${name}_MISSING}")
  endif()
endforeach()
if(NOT TARGET OpenMP::OpenMP_CXX)
  message(STATUS "OpenMP: none for ${CMAKE_CXX_COMPILER}, kernels run on one thread")
endif()
if(TARGET CBLAS::CBLAS)
  message(STATUS "CBLAS: ${CBLAS_LIBRARY}")
else()
  message(STATUS "CBLAS: none, the library's own matrix product serves")
endif()

# Environment of every program started under mpirun: ranks may outnumber cores, containers may run as root and may
# forbid the cross-memory attach that Open MPI's shared-memory transport would use.
set(ESPALIER_MPI_ENVIRONMENT
  OMP_NUM_THREADS=1
  OPENBLAS_NUM_THREADS=1
  OMPI_ALLOW_RUN_AS_ROOT=1
  OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  OMPI_MCA_rmaps_base_oversubscribe=1
  OMPI_MCA_mpi_yield_when_idle=1
  OMPI_MCA_btl_vader_single_copy_mechanism=none)

# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
#
# Finds a CBLAS: the target CBLAS::CBLAS, and CBLAS_IS_OPENBLAS.
#
# Debian's libblas.so.3 and libopenblas.so.0 are alternatives that default to OpenBLAS with threads of its own, two in
# every rank. So the variant that shares OpenMP's threads is linked from its own directory, and found there again at run
# time by rpath. Any other machine, or an explicit BLA_VENDOR, goes through find_package(BLAS).
set(CBLAS_IS_OPENBLAS FALSE)

if(NOT BLA_VENDOR)
  set(_cblas_variant "lib/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp")
  find_library(CBLAS_LIBRARY NAMES openblas PATHS "/usr/${_cblas_variant}" NO_DEFAULT_PATH)
  find_path(CBLAS_INCLUDE_DIR cblas.h PATHS "/usr/include/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp" NO_DEFAULT_PATH)
  find_library(CBLAS_LIBRARY NAMES openblas)
endif()
if(NOT CBLAS_LIBRARY)
  find_package(BLAS QUIET)
  if(BLAS_FOUND AND BLAS_LIBRARIES)
    include(CheckCXXSourceCompiles)
    set(CMAKE_REQUIRED_LIBRARIES "${BLAS_LIBRARIES}")
    check_cxx_source_compiles("extern \"C\" void cblas_sgemm(); int main() { cblas_sgemm(); }" CBLAS_IN_BLAS)
    unset(CMAKE_REQUIRED_LIBRARIES)
    if(CBLAS_IN_BLAS)
      set(CBLAS_LIBRARY "${BLAS_LIBRARIES}" CACHE STRING "Libraries that hold cblas_sgemm")
    endif()
  endif()
endif()
find_path(CBLAS_INCLUDE_DIR cblas.h PATH_SUFFIXES openblas cblas)
mark_as_advanced(CBLAS_LIBRARY CBLAS_INCLUDE_DIR)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CBLAS REQUIRED_VARS CBLAS_LIBRARY CBLAS_INCLUDE_DIR)

if(CBLAS_FOUND)
  if(CBLAS_LIBRARY MATCHES "openblas")
    set(CBLAS_IS_OPENBLAS TRUE)
  endif()
  if(NOT TARGET CBLAS::CBLAS)
    add_library(CBLAS::CBLAS INTERFACE IMPORTED)
    target_include_directories(CBLAS::CBLAS INTERFACE "${CBLAS_INCLUDE_DIR}")
    target_link_libraries(CBLAS::CBLAS INTERFACE ${CBLAS_LIBRARY})
    if(CBLAS_LIBRARY MATCHES "^(/.*openblas-[a-z]+)/lib[^/]*[.]so$")
      target_link_options(CBLAS::CBLAS INTERFACE "LINKER:-rpath,${CMAKE_MATCH_1}")
    endif()
  endif()
endif()

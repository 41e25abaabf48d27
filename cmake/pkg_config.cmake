# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
#
# espalier-core.pc for the compile-time half, espalier-openmp.pc for kernels on one shard with what was found when this
# was configured, espalier-mpi.pc for ranks, to be compiled with mpicxx. espalier-compiled.pc is for programs that share the
# compiled part: `c++ $(pkg-config --cflags espalier-compiled) -c $(pkg-config --variable=source espalier-compiled)`
# makes its object, with the flags of the programs that it is linked with.
set(prefix "${CMAKE_INSTALL_PREFIX}")
set(openmp_flags "-fno-math-errno -pthread")
set(openmp_libraries "-pthread")
if(TARGET OpenMP::OpenMP_CXX)
  string(APPEND openmp_flags " ${OpenMP_CXX_FLAGS}")
  string(APPEND openmp_libraries " ${OpenMP_CXX_FLAGS}")
endif()
if(TARGET CBLAS::CBLAS)
  string(APPEND openmp_flags " -DESPALIER_USE_CBLAS=1")
  if(CBLAS_IS_OPENBLAS)
    string(APPEND openmp_flags " -DESPALIER_USE_OPENBLAS=1")
  endif()
  get_target_property(folders CBLAS::CBLAS INTERFACE_INCLUDE_DIRECTORIES)
  foreach(folder IN LISTS folders)
    if(folder AND NOT folder IN_LIST CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES)
      string(APPEND openmp_flags " -isystem ${folder}")
    endif()
  endforeach()
  # By name where the linker looks for it: a path may be one of this architecture alone.
  get_filename_component(folder "${CBLAS_LIBRARY}" DIRECTORY)
  get_filename_component(library "${CBLAS_LIBRARY}" NAME)
  if(folder IN_LIST CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES AND library MATCHES "^lib(.+)\\.(so|a)$")
    string(APPEND openmp_libraries " -l${CMAKE_MATCH_1}")
  else()
    string(APPEND openmp_libraries " ${CBLAS_LIBRARY}")
  endif()
endif()
function(pkg_config_file name description requires flags libraries)
  # ${pcfiledir} keeps it right wherever the package is moved.
  file(RELATIVE_PATH up "${prefix}/${CMAKE_INSTALL_DATADIR}/pkgconfig" "${prefix}")
  file(WRITE "${PROJECT_BINARY_DIR}/${name}.pc" "prefix=\${pcfiledir}/${up}
includedir=\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}
${ARGN}
Name: ${name}
Description: ${description}
Version: ${PROJECT_VERSION}
Requires: ${requires}
Cflags: ${flags}
Libs: ${libraries}
")
  install(FILES "${PROJECT_BINARY_DIR}/${name}.pc" DESTINATION "${CMAKE_INSTALL_DATADIR}/pkgconfig")
endfunction()
pkg_config_file(espalier-core "${PROJECT_DESCRIPTION}: the compile-time half (C++20, Boost.Hana)" "" "-std=c++20 -I\${includedir}" "")
pkg_config_file(espalier-openmp "Espalier with kernels" "espalier-core" "${openmp_flags}" "${openmp_libraries}")
if(Espalier_mpi_FOUND)
  pkg_config_file(espalier-mpi "Espalier over MPI ranks, for mpicxx" "espalier-core" "-DESPALIER_USE_MPI=1"
                  "-lboost_mpi -lboost_serialization")
endif()
pkg_config_file(espalier-compiled "Espalier with kernels, and its compiled part apart from programs" "espalier-openmp"
                "-DESPALIER_COMPILED=1" "" "source=\${prefix}/${package_dir}/espalier.cpp\n")

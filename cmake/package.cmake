# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
#
# `cpack` in the build folder makes espalier-dev_<version>_all.deb: headers only, so it is for every architecture, unless
# what was found for pkg-config is not: then it is for this one.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME espalier-dev)
set(CPACK_PACKAGE_VENDOR "The Espalier authors")
set(CPACK_PACKAGE_CONTACT "The Espalier authors <espalier@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_RESOURCE_FILE_LICENSE "${PROJECT_SOURCE_DIR}/LICENSE_1_0.txt")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
if(NOT CMAKE_LIBRARY_ARCHITECTURE OR NOT "${openmp_flags} ${openmp_libraries}" MATCHES "${CMAKE_LIBRARY_ARCHITECTURE}")
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE all)
endif()
set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libboost-dev (>= 1.74)")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "libopenblas-openmp-dev | libblas-dev, libboost-mpi-dev, libopenmpi-dev, libxtensor-dev")
# Without espalier-plan, the program of an example, which is for this machine alone.
set(CPACK_INSTALL_CMAKE_PROJECTS "${PROJECT_BINARY_DIR};${PROJECT_NAME};Unspecified;/")
include(CPack)

# SPDX-FileCopyrightText: 2026 The Espalier authors
# SPDX-License-Identifier: BSL-1.0
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_DATADIR}/cmake/Espalier")
configure_package_config_file(
  "${CMAKE_CURRENT_LIST_DIR}/EspalierConfig.cmake.in" "${PROJECT_BINARY_DIR}/EspalierConfig.cmake"
  INSTALL_DESTINATION "${package_dir}"
  PATH_VARS CMAKE_INSTALL_INCLUDEDIR
  NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(
  "${PROJECT_BINARY_DIR}/EspalierConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion
  ARCH_INDEPENDENT)

install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/espalier"
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        FILES_MATCHING PATTERN "*.hpp" PATTERN "*.ipp")
install(FILES
          "${PROJECT_BINARY_DIR}/EspalierConfig.cmake"
          "${PROJECT_BINARY_DIR}/EspalierConfigVersion.cmake"
          "${CMAKE_CURRENT_LIST_DIR}/EspalierTargets.cmake"
          "${CMAKE_CURRENT_LIST_DIR}/FindCBLAS.cmake"
          "${CMAKE_CURRENT_LIST_DIR}/kernel_sets.cmake"
          "${PROJECT_SOURCE_DIR}/cmake/espalier.cpp"
          "${PROJECT_SOURCE_DIR}/cmake/espalier_kernels.cpp"
        DESTINATION "${package_dir}")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE_1_0.txt" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
include("${CMAKE_CURRENT_LIST_DIR}/pkg_config.cmake")
if(PROJECT_IS_TOP_LEVEL)
  include("${CMAKE_CURRENT_LIST_DIR}/package.cmake")
endif()

# SPDX-License-Identifier: Apache-2.0
# Installs the client library with its headers, CMake package and pkg-config file. Included by
# client_lib/CMakeLists.txt. The component client suffices to run programs; building them requires dev as well.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS gpushared_shared gpushared_archive EXPORT gpushared
  RUNTIME COMPONENT client LIBRARY COMPONENT client NAMELINK_COMPONENT dev ARCHIVE COMPONENT dev)
install(FILES
  "${PROJECT_SOURCE_DIR}/client_lib/include/gpushared/client.h"
  "${PROJECT_SOURCE_DIR}/client_lib/include/gpushared/gpushared.h"
  "${PROJECT_SOURCE_DIR}/ipc/include/gpushared/fault_kind.h"
  "${PROJECT_SOURCE_DIR}/ipc/include/gpushared/result.h"
  "${PROJECT_SOURCE_DIR}/ipc/include/gpushared/scheduling_class.h"
  "${PROJECT_SOURCE_DIR}/ipc/include/gpushared/status.h"
  "${PROJECT_SOURCE_DIR}/ipc/include/gpushared/texture_record.h"
  "${CMAKE_CURRENT_BINARY_DIR}/include/gpushared/version.h"
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/gpushared" COMPONENT dev)

set(GPUSHARED_PACKAGE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/gpushared")
configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/packaging/gpusharedConfig.cmake.in"
  "${CMAKE_CURRENT_BINARY_DIR}/gpusharedConfig.cmake"
  INSTALL_DESTINATION "${GPUSHARED_PACKAGE_DIR}")
# Before 1.0 every minor version may change the interface.
write_basic_package_version_file("${CMAKE_CURRENT_BINARY_DIR}/gpusharedConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES
  "${CMAKE_CURRENT_BINARY_DIR}/gpusharedConfig.cmake"
  "${CMAKE_CURRENT_BINARY_DIR}/gpusharedConfigVersion.cmake"
  DESTINATION "${GPUSHARED_PACKAGE_DIR}" COMPONENT dev)
install(EXPORT gpushared FILE gpusharedTargets.cmake NAMESPACE gpushared::
  DESTINATION "${GPUSHARED_PACKAGE_DIR}" COMPONENT dev)

# Relative to the file itself, so that the installed tree can be moved.
file(RELATIVE_PATH GPUSHARED_PC_PREFIX
  "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
configure_file("${PROJECT_SOURCE_DIR}/packaging/gpushared.pc.in"
  "${CMAKE_CURRENT_BINARY_DIR}/gpushared.pc" @ONLY)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/gpushared.pc"
  DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT dev)

# SPDX-License-Identifier: Apache-2.0
# Third-party packages, all from the distribution. Targets link the libraries defined here.
find_package(Threads REQUIRED)
find_package(Boost 1.74 REQUIRED)  # Headers only: Asio and Interprocess.
if(GPUSHARED_CLIENT_ONLY)
  return()
endif()
find_package(spdlog REQUIRED)
find_package(fmt REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(tomlplusplus REQUIRED)

add_library(gpushared_logging INTERFACE)
add_library(gpushared::logging ALIAS gpushared_logging)
# Static, because the drop-in is loaded into programs that may have other versions of these libraries.
find_library(GPUSHARED_ZSTD_STATIC libzstd.a REQUIRED)
find_library(GPUSHARED_LZ4_STATIC liblz4.a REQUIRED)
add_library(gpushared_compression INTERFACE)
add_library(gpushared::compression ALIAS gpushared_compression)
target_link_libraries(gpushared_compression INTERFACE "${GPUSHARED_ZSTD_STATIC}" "${GPUSHARED_LZ4_STATIC}")

# The terminal of gpusharedctl top.
add_library(gpushared_curses INTERFACE)
add_library(gpushared::curses ALIAS gpushared_curses)
foreach(library ncursesw tinfo)
  if(GPUSHARED_PORTABLE)
    find_library(GPUSHARED_${library} lib${library}.a REQUIRED)
  else()
    find_library(GPUSHARED_${library} ${library} REQUIRED)
  endif()
  target_link_libraries(gpushared_curses INTERFACE "${GPUSHARED_${library}}")
endforeach()

if(GPUSHARED_PORTABLE)
  # Header-only keeps the copied tree free of distribution libraries.
  target_link_libraries(gpushared_logging INTERFACE spdlog::spdlog_header_only fmt::fmt-header-only)
else()
  target_link_libraries(gpushared_logging INTERFACE spdlog::spdlog fmt::fmt)
endif()

# For reading files of mig-parted, which only the tools do.
if(GPUSHARED_BUILD_MIG)
  find_package(yaml-cpp QUIET)
  if(NOT yaml-cpp_FOUND)
    message(FATAL_ERROR "yaml-cpp was not found, and gpusharedctl mig needs it: install libyaml-cpp-dev, or build without "
      "(-DGPUSHARED_BUILD_MIG=OFF)")
  endif()
  add_library(gpushared_yaml INTERFACE)
  add_library(gpushared::yaml ALIAS gpushared_yaml)
  if(GPUSHARED_PORTABLE)
    find_library(GPUSHARED_YAML_STATIC libyaml-cpp.a REQUIRED)
    target_link_libraries(gpushared_yaml INTERFACE "${GPUSHARED_YAML_STATIC}")
  else()
    target_link_libraries(gpushared_yaml INTERFACE yaml-cpp)
  endif()
endif()

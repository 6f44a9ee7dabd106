# SPDX-License-Identifier: Apache-2.0
# Compiles CUDA C++ files to PTX with nvcc. Nothing here needs a driver or a GPU.
find_program(GPUSHARED_NVCC nvcc
  HINTS "$ENV{CUDA_HOME}/bin" "${PROJECT_SOURCE_DIR}/.cache/cuda/nvidia/cu13/bin" /usr/local/cuda/bin
  DOC "CUDA compiler for the kernels of the tests")
if(NOT GPUSHARED_NVCC)
  message(FATAL_ERROR "nvcc was not found, and the tests need it: run tests/run.sh, which fetches it, "
    "or set GPUSHARED_NVCC, or build without tests (-DGPUSHARED_BUILD_TESTS=OFF)")
endif()

# gpushared_ptx(<target> FILES a.cu ... [ARCH compute_75] [FATBIN [MACHINE sm_90]] [RELOCATABLE])
# Adds <target>, which writes <binary dir>/<name>.ptx (or .fatbin) for each file, and sets
# <target>_DIR to the directory in the caller's scope. A fatbin has the text for ARCH and machine code: that of MACHINE, or
# of ARCH itself. RELOCATABLE keeps what other inputs of a link may name.
# The global property GPUSHARED_PTX_<source>_<arch> contains the path of the PTX of a file.
function(gpushared_ptx target)
  cmake_parse_arguments(arg "FATBIN;RELOCATABLE" "ARCH;MACHINE" "FILES" ${ARGN})
  if(NOT arg_ARCH)
    set(arg_ARCH compute_75)
  endif()
  if(NOT arg_MACHINE)
    string(REPLACE "compute" "sm" arg_MACHINE "${arg_ARCH}")
  endif()
  string(REPLACE "sm" "compute" machine_arch "${arg_MACHINE}")
  set(outputs)
  foreach(file IN LISTS arg_FILES)
    get_filename_component(name "${file}" NAME_WE)
    get_filename_component(source "${file}" ABSOLUTE)
    if(arg_FATBIN)
      set(output "${CMAKE_CURRENT_BINARY_DIR}/${name}.fatbin")
      set(mode -fatbin -gencode "arch=${arg_ARCH},code=${arg_ARCH}" -gencode "arch=${machine_arch},code=${arg_MACHINE}")
    else()
      set(output "${CMAKE_CURRENT_BINARY_DIR}/${name}.ptx")
      set(mode -ptx -arch=${arg_ARCH})
    endif()
    if(arg_RELOCATABLE)
      list(APPEND mode -rdc=true)
    endif()
    add_custom_command(OUTPUT "${output}"
      COMMAND "${GPUSHARED_NVCC}" ${mode} -std=c++17 -O3 -I "${PROJECT_SOURCE_DIR}" "${source}" -o "${output}"
      DEPENDS "${source}" VERBATIM)
    list(APPEND outputs "${output}")
    if(NOT arg_FATBIN AND NOT arg_RELOCATABLE)
      set_property(GLOBAL PROPERTY "GPUSHARED_PTX_${source}_${arg_ARCH}" "${output}")
    endif()
  endforeach()
  add_custom_target(${target} ALL DEPENDS ${outputs})
  set(${target}_DIR "${CMAKE_CURRENT_BINARY_DIR}" PARENT_SCOPE)
endfunction()

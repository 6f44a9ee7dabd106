# SPDX-License-Identifier: Apache-2.0
gpushared_test(device_unit_test
  SOURCES
    device/address_range_test.cpp
    device/non_resident_pages_test.cpp
    device/cpu_device_test.cpp
    device/device_catalog_test.cpp
    device/flat_module_test.cpp
    device/host_steal_test.cpp
    device/pause_test.cpp
    device/reach_test.cpp
    device/swap_store_test.cpp
    device/work_queue_test.cpp
  APART device/cpu_device_test.cpp
  LINK gpushared::device
  LABELS unit concurrency)

# The toolkit's cuda.h is installed next to nvcc; only the comparison with it includes it.
get_filename_component(cuda_bin "${GPUSHARED_NVCC}" REALPATH)
get_filename_component(cuda_bin "${cuda_bin}" DIRECTORY)
find_path(GPUSHARED_CUDA_INCLUDE cudaTypedefs.h HINTS "${cuda_bin}/../include" REQUIRED
  DOC "Directory of cuda.h, for the test of our own declarations")
gpushared_test(cuda_driver_abi_test SOURCES device/cuda_driver_abi_test.cpp
  LINK gpushared::cuda_driver LABELS unit)
target_include_directories(cuda_driver_abi_test SYSTEM PRIVATE "${GPUSHARED_CUDA_INCLUDE}")

gpushared_test(cuda_driver_test
  SOURCES device/cuda_driver_test.cpp device/cuda_driver_fake_test.cpp
  LINK gpushared::cuda_driver gpushared::fake_cuda
  LABELS unit concurrency
  DEPENDS gpushared_fake_cuda_11_2 gpushared_fake_cuda_11_3
  DEFINITIONS
    "GPUSHARED_FAKE_CUDA_11_2=\"$<TARGET_FILE:gpushared_fake_cuda_11_2>\""
    "GPUSHARED_FAKE_CUDA_11_3=\"$<TARGET_FILE:gpushared_fake_cuda_11_3>\"")

gpushared_test(cuda_device_test
  SOURCES device/cuda_device_test.cpp device/cuda_device_error_test.cpp device/cuda_call_error_test.cpp
    device/cuda_claim_test.cpp device/cuda_contain_test.cpp device/cuda_fence_test.cpp
    device/cuda_graph_test.cpp device/cuda_graph_store_test.cpp device/cuda_late_kernel_test.cpp
    device/cuda_memory_test.cpp device/cuda_swaps_test.cpp device/cuda_prepared_test.cpp
    device/cuda_idle_windows_test.cpp device/cuda_sm_limit_test.cpp device/cuda_times_test.cpp
  GROUP 13
  LINK gpushared::device gpushared::fake_cuda
  LABELS unit concurrency
  SECONDS 12)

gpushared_test(cuda_costs_test
  SOURCES device/cuda_costs_test.cpp
  LINK gpushared::virtual_time gpushared::cuda_driver gpushared::fake_cuda
  LABELS unit)

gpushared_test(inventory_test
  SOURCES device/gpu_monitor_test.cpp device/inventory_test.cpp device/inventory_read_test.cpp
  LINK gpushared::inventory gpushared::fake_nvml
  LABELS unit
  DEPENDS gpushared_fake_nvml_old gpushared_fake_nvml_broken gpushared_fake_cuda_11_2
  DEFINITIONS
    "GPUSHARED_FAKE_CUDA_11_2=\"$<TARGET_FILE:gpushared_fake_cuda_11_2>\""
    "GPUSHARED_FAKE_NVML_OLD=\"$<TARGET_FILE:gpushared_fake_nvml_old>\""
    "GPUSHARED_FAKE_NVML_BROKEN=\"$<TARGET_FILE:gpushared_fake_nvml_broken>\"")

gpushared_test(inventory_process_test
  SOURCES device/inventory_process_test.cpp
  LINK gpushared::server_process
  LABELS process
  DEPENDS gpushared gpusharedctl gpushared_fake_nvml gpushared_fake_nvml_broken
  DEFINITIONS
    "GPUSHARED_FAKE_NVML_DIRECTORY=\"$<TARGET_FILE_DIR:gpushared_fake_nvml>\""
    "GPUSHARED_BROKEN_NVML_DIRECTORY=\"$<TARGET_FILE_DIR:gpushared_fake_nvml_broken>\"")

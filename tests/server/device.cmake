# SPDX-License-Identifier: Apache-2.0
gpushared_test(device_unit_test
  SOURCES
    device/address_range_test.cpp
    device/cpu_device_test.cpp
    device/device_catalog_test.cpp
    device/fake_device_test.cpp
    device/work_queue_test.cpp
  LINK gpushared::device gpushared::fake_device
  LABELS unit concurrency)

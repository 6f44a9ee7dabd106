# SPDX-License-Identifier: Apache-2.0
if(TARGET gpushared::worker)
  add_library(gpushared_worker_harness STATIC
    ${PROJECT_SOURCE_DIR}/tests/server/worker/harness.cpp
    ${PROJECT_SOURCE_DIR}/tests/support/step_device.cpp)
  target_link_libraries(gpushared_worker_harness PUBLIC gpushared::worker gpushared::raw_client GTest::gtest)
  gpushared_target_defaults(gpushared_worker_harness)
  gpushared_seldom(gpushared_worker_harness gpushared_server_headers)

  # The parts alone, and whole workers over a device that takes the steps that the test says.
  gpushared_test(worker_test
    SOURCES worker/device_thread/activity_test.cpp worker/device_thread/client_buffers_test.cpp
      worker/device_thread/parts_test.cpp worker/device_thread/cost_model_test.cpp
      worker/device_thread/energy_test.cpp worker/device_thread/page_use_test.cpp
      worker/device_thread/graphs_test.cpp worker/device_thread/streams_test.cpp worker/device_thread/requests_test.cpp
      worker/device_thread/scheduling_test.cpp worker/device_thread/turns_test.cpp worker/device_thread/forms_test.cpp
      worker/device_thread/outlived_test.cpp worker/device_thread/saved_client_test.cpp
      worker/control/parts_test.cpp worker/control/kernel_output_test.cpp numa_test.cpp thread_priority_test.cpp
      worker/control/explain_test.cpp
      worker/control/session_test.cpp worker/control/session_memory_test.cpp worker/control/session_swaps_test.cpp
      worker/control/cost_file_test.cpp worker/control/device_watch_test.cpp
      worker/control/read_owner_test.cpp worker/control/trace_test.cpp worker/control/slow_calls_test.cpp
    GROUP 7
    LINK gpushared_worker_harness gpushared::device_thread gpushared::logging nlohmann_json::nlohmann_json
    LABELS unit concurrency
    SHARDS 4
    HALVES 1  # They mostly wait: 4 s of processor time in 33 s.
    SECONDS 20)
endif()

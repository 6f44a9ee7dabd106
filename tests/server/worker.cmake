# SPDX-License-Identifier: Apache-2.0
if(TARGET gpushared::worker)
  add_library(gpushared_worker_harness STATIC
    ${PROJECT_SOURCE_DIR}/tests/server/worker_harness.cpp
    ${PROJECT_SOURCE_DIR}/tests/support/step_device.cpp)
  target_link_libraries(gpushared_worker_harness PUBLIC gpushared::worker gpushared::raw_client GTest::gtest)
  gpushared_target_defaults(gpushared_worker_harness)

  gpushared_test(worker_streams_test SOURCES worker_streams_test.cpp
    LINK gpushared_worker_harness LABELS unit concurrency)
  gpushared_test(worker_session_test SOURCES worker_session_test.cpp
    LINK gpushared_worker_harness nlohmann_json::nlohmann_json LABELS unit concurrency)
  gpushared_test(worker_cost_test SOURCES worker_cost_test.cpp
    LINK gpushared_worker_harness nlohmann_json::nlohmann_json LABELS unit concurrency)
  gpushared_test(worker_explain_test SOURCES worker_explain_test.cpp
    LINK gpushared_worker_harness nlohmann_json::nlohmann_json LABELS unit concurrency)
  gpushared_test(worker_requests_test SOURCES worker_requests_test.cpp
    LINK gpushared_worker_harness gpushared::logging nlohmann_json::nlohmann_json LABELS unit concurrency)
  gpushared_test(worker_scheduling_test SOURCES worker_scheduling_test.cpp
    LINK gpushared_worker_harness nlohmann_json::nlohmann_json LABELS unit concurrency)
  gpushared_test(worker_slow_calls_test SOURCES worker_slow_calls_test.cpp
    LINK gpushared_worker_harness LABELS unit concurrency)
  gpushared_test(kernel_output_test SOURCES kernel_output_test.cpp
    LINK gpushared::worker gpushared::logging LABELS unit)
  gpushared_test(worker_parts_test SOURCES worker_parts_test.cpp
    LINK gpushared::worker nlohmann_json::nlohmann_json LABELS unit concurrency)
endif()

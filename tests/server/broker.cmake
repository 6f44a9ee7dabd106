# SPDX-License-Identifier: Apache-2.0
gpushared_test(server_parts_test
  SOURCES access_rules_test.cpp config_check_test.cpp config_test.cpp log_rate_test.cpp restart_backoff_test.cpp service_manager_test.cpp
    session_log_test.cpp totals_test.cpp trace_test.cpp usable_memory_test.cpp
  LINK gpushared::broker gpushared::config gpushared::log_rate gpushared::service_manager gpushared::trace
    gpushared::usable_memory
    nlohmann_json::nlohmann_json
  LABELS unit concurrency
  DEFINITIONS "GPUSHARED_EXAMPLE_CONFIG=\"${PROJECT_SOURCE_DIR}/packaging/gpushared.toml\"")

add_executable(gpushared_fake_worker_program fake_worker.cpp)
set_target_properties(gpushared_fake_worker_program PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
target_link_libraries(gpushared_fake_worker_program PRIVATE gpushared::ipc)
gpushared_target_defaults(gpushared_fake_worker_program)
gpushared_use_precompiled(gpushared_fake_worker_program gpushared_std_headers)
gpushared_test(broker_test SOURCES broker_test.cpp broker_inventory_test.cpp endpoint_test.cpp kept_counts_test.cpp reload_test.cpp registry_test.cpp
  LINK gpushared::admin gpushared::broker gpushared::server_process nlohmann_json::nlohmann_json
  LABELS process concurrency DEPENDS gpushared_fake_worker_program gpusharedctl
  DEFINITIONS "GPUSHARED_FAKE_WORKER=\"$<TARGET_FILE:gpushared_fake_worker_program>\""
    "GPUSHARED_CTL=\"$<TARGET_FILE:gpusharedctl>\"")

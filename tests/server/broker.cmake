# SPDX-License-Identifier: Apache-2.0
gpushared_test(config_test SOURCES config_test.cpp LINK gpushared::config LABELS unit
  DEFINITIONS "GPUSHARED_EXAMPLE_CONFIG=\"${PROJECT_SOURCE_DIR}/packaging/gpushared.toml\"")
gpushared_test(totals_test SOURCES totals_test.cpp LINK gpushared::broker nlohmann_json::nlohmann_json
  LABELS unit concurrency)
gpushared_test(trace_test SOURCES trace_test.cpp LINK gpushared::trace LABELS unit concurrency)
gpushared_test(log_rate_test SOURCES log_rate_test.cpp LINK gpushared::log_rate LABELS unit)
gpushared_test(access_rules_test SOURCES access_rules_test.cpp restart_backoff_test.cpp session_ledger_test.cpp
  APART session_ledger_test.cpp
  LINK gpushared::broker LABELS unit)

add_executable(gpushared_fake_worker_program fake_worker.cpp)
set_target_properties(gpushared_fake_worker_program PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
target_link_libraries(gpushared_fake_worker_program PRIVATE gpushared::ipc)
gpushared_target_defaults(gpushared_fake_worker_program)
gpushared_use_precompiled(gpushared_fake_worker_program gpushared_std_headers)
gpushared_test(broker_test SOURCES broker_test.cpp broker_inventory_test.cpp entrance_test.cpp kept_counts_test.cpp reload_test.cpp roster_test.cpp
  LINK gpushared::admin gpushared::broker gpushared::server_process nlohmann_json::nlohmann_json
  LABELS process concurrency DEPENDS gpushared_fake_worker_program gpusharedctl
  DEFINITIONS "GPUSHARED_FAKE_WORKER=\"$<TARGET_FILE:gpushared_fake_worker_program>\""
    "GPUSHARED_CTL=\"$<TARGET_FILE:gpusharedctl>\"")
gpushared_test(service_manager_test SOURCES service_manager_test.cpp LINK gpushared::service_manager LABELS unit)

# SPDX-License-Identifier: Apache-2.0
# A name of a case in share_test.cpp is found; one that is misspelt ends the script. Usage: cmake -DNAME=... -P this
include("${CMAKE_CURRENT_LIST_DIR}/../../cmake/named_cases.cmake")
gpushared_require_named_case(share_test ${NAME} "${CMAKE_CURRENT_LIST_DIR}/../system/memory_test.cpp"
  "${CMAKE_CURRENT_LIST_DIR}/../system/share_test.cpp")

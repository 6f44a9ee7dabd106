# SPDX-License-Identifier: Apache-2.0
gpushared_test(config_test SOURCES config_test.cpp LINK gpushared::config LABELS unit)
gpushared_test(access_rules_test SOURCES access_rules_test.cpp LINK gpushared::broker LABELS unit)

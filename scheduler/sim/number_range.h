// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SCHEDULER_SIM_NUMBER_RANGE_H_
#define GPUSHARED_SCHEDULER_SIM_NUMBER_RANGE_H_

#include <charconv>
#include <cstdio>
#include <string>
#include <system_error>

#include <CLI/CLI.hpp>

namespace gpushared::simulation {

// CLI::Range takes what is no number for one within.
inline CLI::Validator Within(double least, double most) {
  char range[64];
  std::snprintf(range, sizeof range, "%g to %g", least, most);
  const auto check = [least, most, range = std::string(range)](const std::string& text) {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool is_within =
        error == std::errc() && end == text.data() + text.size() && value >= least && value <= most;
    return is_within ? std::string() : "Value " + text + " not in range " + range;
  };
  return {check, std::string("FLOAT in ") + range};
}

}  // namespace gpushared::simulation

#endif  // GPUSHARED_SCHEDULER_SIM_NUMBER_RANGE_H_

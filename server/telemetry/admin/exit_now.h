// SPDX-License-Identifier: Apache-2.0
// Output and exit code of a program that exits after parsing its command line.

#ifndef GPUSHARED_SERVER_TELEMETRY_ADMIN_EXIT_NOW_H_
#define GPUSHARED_SERVER_TELEMETRY_ADMIN_EXIT_NOW_H_

#include <string>

namespace gpushared::admin {

inline constexpr int kRejectedArguments = 2;

struct ExitNow {
  int code = 0;
  std::string text;  // For stdout if the code is 0, otherwise for stderr.
};

}  // namespace gpushared::admin

#endif  // GPUSHARED_SERVER_TELEMETRY_ADMIN_EXIT_NOW_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TOOLS_RUN_ENVIRONMENT_H_
#define GPUSHARED_SERVER_TOOLS_RUN_ENVIRONMENT_H_

#include <functional>
#include <string>
#include <vector>

namespace gpushared::server {

// What `run` was asked for; empty or zero: not asked.
struct RunWishes {
  std::string socket;
  std::string drop_in;  // Directory of libcuda.so.1.
  std::string scheduling_class, name, device;
  unsigned weight = 0;
  std::string max_share;  // "25%".
  std::string target;     // Milliseconds.
  std::string fallback;   // "native".
  std::string mode;       // "submit" or "gate".
  // The device takes PTX only: tools that make machine code are asked for PTX.
  bool wants_ptx = false;
  bool is_interruptible = false;  // SIGINT while a call waits ends the session.
  // The program loads AddressSanitizer's runtime, which expects to be the first library.
  bool needs_asan = false;
};

struct Setting {
  std::string variable, value;
  std::string why;
};

// What the program's environment needs. `environment` gives what a variable says now, empty when it
// is unset; `exists` whether a file is there. A tool's own variable that the user has set stays.
std::vector<Setting> Settings(const RunWishes& wishes,
                              const std::function<std::string(const char*)>& environment,
                              const std::function<bool(const std::string&)>& exists);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_TOOLS_RUN_ENVIRONMENT_H_

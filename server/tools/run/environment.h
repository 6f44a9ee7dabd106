// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TOOLS_RUN_ENVIRONMENT_H_
#define GPUSHARED_SERVER_TOOLS_RUN_ENVIRONMENT_H_

#include <functional>
#include <string>
#include <vector>

namespace gpushared::server {

// Options of `run`; empty or zero if not given.
struct RunRequest {
  std::string socket;
  std::string drop_in;  // Directory of libcuda.so.1.
  std::string scheduling_class, name, device;
  std::string gpu;  // The device as CUDA_VISIBLE_DEVICES names it, for a program in gate mode.
  unsigned weight = 0;
  std::string max_share;  // A share such as "25%".
  std::string target;     // Latency target in milliseconds.
  std::string fallback;   // What happens if no server answers: "native" or "none".
  std::string mode;       // Mode: "submit" or "gate".
  // Whether the device accepts only PTX, so tools that emit machine code are configured to emit
  // PTX.
  bool wants_ptx = false;
  bool is_interruptible = false;  // Whether SIGINT during a blocking call ends the session.
  // Whether the program loads AddressSanitizer's runtime, which must be the first library.
  bool needs_asan = false;
};

struct Setting {
  std::string variable, value;
  std::string why;
};

// Returns the mode of a program for which none was chosen: "gate" if this machine has an NVIDIA GPU
// that programs can open, otherwise "submit". `exists` returns whether a file exists.
std::string ChooseMode(const std::function<bool(const std::string&)>& exists);

// Returns the settings for the program's environment. `environment` returns the current value of a
// variable, empty if unset; `exists` returns whether a file exists. A tool's variable that the user
// has set is not changed.
std::vector<Setting> Settings(const RunRequest& request,
                              const std::function<std::string(const char*)>& environment,
                              const std::function<bool(const std::string&)>& exists);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_TOOLS_RUN_ENVIRONMENT_H_

// SPDX-License-Identifier: Apache-2.0
#include "server/device/cpu/standing.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace gpushared::device {

void Standing::Begin() {
  thread_ = static_cast<pid_t>(::syscall(SYS_gettid));
  if (stand_) stand_(thread_, true);
}

void Standing::StepBack() {
  if (is_back_.exchange(true)) return;
  if (stand_) stand_(thread_, false);
}

void Standing::StepForward() {
  if (!is_back_ || !is_back_.exchange(false)) return;
  if (stand_) stand_(thread_, true);
}

}  // namespace gpushared::device

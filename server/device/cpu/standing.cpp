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
  if (!is_back_.exchange(true)) Stand(true);
}

void Standing::StepForward() {
  if (is_back_ && is_back_.exchange(false)) Stand(false);
}

void Standing::Stand(bool back) {
  if (!stand_) return;
  for (;;) {
    stand_(thread_, !back);
    // Another thread may have changed is_back_ in the meantime, but called stand_ before this
    // thread.
    const bool is_back = is_back_;
    if (is_back == back) return;
    back = is_back;
  }
}

}  // namespace gpushared::device

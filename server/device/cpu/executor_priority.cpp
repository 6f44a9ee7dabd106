// SPDX-License-Identifier: Apache-2.0
#include "server/device/cpu/executor_priority.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace gpushared::device {

void ExecutorPriority::Begin() {
  thread_ = static_cast<pid_t>(::syscall(SYS_gettid));
  if (prioritize_) prioritize_(thread_, true);
}

void ExecutorPriority::Demote() {
  if (!is_demoted_.exchange(true)) Apply(true);
}

void ExecutorPriority::Promote() {
  if (is_demoted_ && is_demoted_.exchange(false)) Apply(false);
}

void ExecutorPriority::Apply(bool demoted) {
  if (!prioritize_) return;
  for (;;) {
    prioritize_(thread_, !demoted);
    // Another thread may have changed is_demoted_ in the meantime and called prioritize_ before
    // this thread did, so that the older value was applied last.
    const bool is_demoted = is_demoted_;
    if (is_demoted == demoted) return;
    demoted = is_demoted;
  }
}

}  // namespace gpushared::device

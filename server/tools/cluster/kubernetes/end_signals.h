// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TOOLS_CLUSTER_KUBERNETES_END_SIGNALS_H_
#define GPUSHARED_SERVER_TOOLS_CLUSTER_KUBERNETES_END_SIGNALS_H_

#include <pthread.h>
#include <signal.h>
#include <time.h>

namespace gpushared::kubernetes {

// Blocks and receives the signals that end the program. Must be constructed before other threads
// are started, because threads inherit the signal mask.
//
// Thread-compatible.
class EndSignals {
 public:
  EndSignals() {
    ::sigemptyset(&ends_);
    ::sigaddset(&ends_, SIGTERM);
    ::sigaddset(&ends_, SIGINT);
    ::pthread_sigmask(SIG_BLOCK, &ends_, nullptr);
  }

  // Waits for a signal, for at most one second. Returns whether a signal arrived.
  bool Await() const {
    constexpr timespec kPeriod = {.tv_sec = 1, .tv_nsec = 0};
    return ::sigtimedwait(&ends_, nullptr, &kPeriod) >= 0;
  }

 private:
  sigset_t ends_;
};

}  // namespace gpushared::kubernetes

#endif  // GPUSHARED_SERVER_TOOLS_CLUSTER_KUBERNETES_END_SIGNALS_H_

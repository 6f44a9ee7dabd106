// SPDX-License-Identifier: Apache-2.0
#include "client_lib/fork_guard.h"

#include <pthread.h>

#include <mutex>

namespace gpushared::client {

ForkGuard::ForkGuard() {
  static std::once_flag registered;
  std::call_once(registered, [] {
    pthread_atfork(nullptr, nullptr,
                   [] { fork_generation.fetch_add(1, std::memory_order_relaxed); });
  });
  generation_ = fork_generation.load(std::memory_order_relaxed);
}

}  // namespace gpushared::client

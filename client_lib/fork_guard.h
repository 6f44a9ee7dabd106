// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_FORK_GUARD_H_
#define GPUSHARED_CLIENT_LIB_FORK_GUARD_H_

#include <atomic>
#include <cstdint>

namespace gpushared::client {

// Number of forks since the oldest ancestor process that used the library. A pthread_atfork child
// handler increments it, so one load distinguishes a session of the parent from one of this
// process; getpid() would be a system call for every command.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): a process has one.
inline std::atomic<std::uint32_t> fork_generation{0};

// Remembers the process that created this object.
//
// Thread-safe.
class ForkGuard {
 public:
  // Registers the fork handler on first use in the process.
  ForkGuard();
  // Relaxed: only a fork changes the count, and a forked child has a single thread.
  bool InOwner() const noexcept {
    return generation_ == fork_generation.load(std::memory_order_relaxed);
  }

 private:
  std::uint32_t generation_;
};

}  // namespace gpushared::client

#endif  // GPUSHARED_CLIENT_LIB_FORK_GUARD_H_

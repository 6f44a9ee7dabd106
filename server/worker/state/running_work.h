// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_STATE_RUNNING_WORK_H_
#define GPUSHARED_SERVER_WORKER_STATE_RUNNING_WORK_H_

#include <atomic>
#include <cstdint>

namespace gpushared::server {

// Work of one client on the device, packed into one word so that the control thread can name it
// while the device thread is blocked in a device call and cannot answer.
//
// Written by the device thread; any thread may read it.
class RunningWork {
 public:
  enum class Kind : std::uint8_t { kNothing, kUnnamed, kKernel, kGraph };
  struct Work {
    Kind kind = Kind::kNothing;
    std::uint16_t module = 0;  // Module of a kernel: the number that the client assigned.
    std::uint32_t number = 0;  // Number of the kernel within its module, or of the graph.
  };

  // Relaxed, because no other data depends on this value.
  void Set(const Work& work) {
    word_.store(static_cast<std::uint64_t>(work.kind) << 48 |
                    static_cast<std::uint64_t>(work.module) << 32 | work.number,
                std::memory_order_relaxed);
  }
  Work Get() const {
    const std::uint64_t word = word_.load(std::memory_order_relaxed);
    return {.kind = static_cast<Kind>(word >> 48),
            .module = static_cast<std::uint16_t>(word >> 32),
            .number = static_cast<std::uint32_t>(word)};
  }

 private:
  std::atomic<std::uint64_t> word_{0};
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATE_RUNNING_WORK_H_

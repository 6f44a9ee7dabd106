// SPDX-License-Identifier: Apache-2.0
// The lock of a context, held by calls that make other calls wait ("lock on").

#ifndef GPUSHARED_TESTS_SUPPORT_FAKE_CUDA_CONTEXT_LOCK_H_
#define GPUSHARED_TESTS_SUPPORT_FAKE_CUDA_CONTEXT_LOCK_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string_view>

namespace gpushared::testing::fake_cuda {

class World;
struct Gpu;

// How a call uses the lock according to its name. Any call that loads the code of a kernel also
// waits for the GPU (LoadFunction).
enum class LockUse : std::uint8_t {
  kShort,   // Holds the lock only for its own short duration.
  kHolds,   // Takes long, and holds the lock during that time.
  kDrains,  // Holds the lock, and waits for the GPU first.
};
LockUse LockUseOf(std::string_view call);

// The context lock of one GPU. A call that waits for the GPU takes the lock, waits until all work
// submitted before has ended, does its own work, and releases the lock. All other threads' calls on
// the context wait for the lock, so work whose end needs such a call never ends.
//
// The caller of each function holds the world's lock, which the waits release.
class ContextLock {
 public:
  using Lock = std::unique_lock<std::mutex>;
  using TimePoint = std::chrono::steady_clock::time_point;
  static constexpr TimePoint kNever = TimePoint::max();

  ContextLock(World& world, Gpu& gpu) : world_(world), gpu_(gpu) {}

  // Waits until no call of another thread holds the lock.
  void Enter(Lock& lock);
  // Takes the lock. `use`: kHolds, or kDrains, which waits until all submitted work has ended.
  void Take(Lock& lock, LockUse use);
  // Called when the call that took the lock returns. A call elsewhere releases the lock only when
  // `cost` has passed after its wait.
  void Return(std::chrono::nanoseconds cost);
  // Number of calls that found work to wait for.
  std::size_t waits() const { return waits_; }
  // Time at which a call elsewhere releases the lock: kNever while that call waits for work or if
  // the holder is no call elsewhere, empty when the lock is free.
  std::optional<TimePoint> FreeAt() const;

 private:
  struct Holder {
    bool is_elsewhere = false;
    LockUse use = LockUse::kDrains;
    std::uint64_t last_order = 0;  // The last work that the call waits for.
    TimePoint began;
    std::chrono::nanoseconds cost{};  // Duration of a call elsewhere.
  };

  bool IsDrained() const;
  bool IsHeld();
  // Waits until the state may have changed; on a costed GPU in virtual time, until the next event.
  void WaitForChange(Lock& lock);

  World& world_;
  Gpu& gpu_;
  std::optional<Holder> holder_;
  std::size_t waits_ = 0;
};

}  // namespace gpushared::testing::fake_cuda

#endif  // GPUSHARED_TESTS_SUPPORT_FAKE_CUDA_CONTEXT_LOCK_H_

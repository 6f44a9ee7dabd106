// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_GATE_MARKS_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_GATE_MARKS_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "gpushared/mutex.h"

#include "client_lib/drop_in/driver_types.h"
#include "ipc/wire/layout.h"

namespace gpushared::drop_in::gate {

// Marks in the program's streams, from which the process and the server know how much of the
// program's work is in flight. A mark is a write to shared memory by the GPU, or by a host function
// where the GPU cannot write, when the launches before the mark have ended.
//
// Thread-safe. No lock is held during a call of the driver.
class Marks {
 public:
  struct Stream {
    StreamHandle handle = nullptr;
    ContextHandle context = nullptr;
    std::uint64_t thread = 0;  // Thread of a per-thread default stream; 0 for other streams.
    friend bool operator==(const Stream&, const Stream&) = default;
  };
  // A stream with launches; the sums of their predictions are in GateUse.
  struct Slot {
    Stream stream;  // Constant while the slot is used.
    std::atomic<bool> is_used{false};
    std::atomic<bool> is_marking{false};  // Whether a thread is placing a mark.
    // Time of the last launch; 0 if the client had no window then.
    std::atomic<std::chrono::steady_clock::time_point> launched_at{};
    static constexpr std::uint32_t kHistory = 64;
    // GateUse::launched_ns when each recent mark was placed, by the mark's number modulo kHistory.
    std::array<std::atomic<std::uint64_t>, kHistory> history{};
  };

  // `use` must outlive this object. `ordinal` differs from those of other sessions on this GPU.
  Marks(ipc::GateUse& use, int gpu, std::size_t ordinal)
      : use_(use), gpu_(gpu), ordinal_(static_cast<std::uint16_t>(ordinal)) {}

  // Returns the slot of a stream of the calling thread's context; null if all slots are in use.
  // `stream` is kPerThreadStream if the call means the thread's default stream.
  Slot* Find(StreamHandle stream);
  using Clock = std::chrono::steady_clock;
  // Counts a launch that is about to be submitted.
  void Count(const Slot& slot, std::uint32_t predicted_ns) {
    use_.launched_ns[IndexOf(slot)].fetch_add(predicted_ns, std::memory_order_relaxed);
  }
  // As the other Count. `at` is the time of the launch, from which GetInFlight estimates whether an
  // unmarked launch has ended.
  void Count(Slot& slot, std::uint32_t predicted_ns, Clock::time_point at) {
    slot.launched_at.store(at, std::memory_order_relaxed);
    Count(slot, predicted_ns);
  }
  // Returns the predicted time of the launches after the slot's last mark.
  std::uint64_t UnmarkedNs(const Slot& slot) const {
    const std::uint32_t index = IndexOf(slot);
    const std::uint64_t marked = use_.marked_ns[index].load(std::memory_order_relaxed);
    return use_.launched_ns[index].load(std::memory_order_relaxed) - marked;
  }
  // Places a mark after the launches of the slot, unless another thread is doing so or the stream
  // is being captured.
  void Place(Slot& slot);
  // Places marks after all launches that the calling thread can mark.
  void PlaceAll();

  struct InFlight {
    std::uint64_t ns = 0;
    std::uint64_t passed = 0;  // Grows whenever a mark has passed.
    Clock::time_point at;
  };
  // Returns the predicted time of the launches that may still be running.
  InFlight GetInFlight() const;

  // Forget is called before a stream is destroyed, ForgetContext after a context was destroyed. A
  // slot becomes free once its marks have passed; those of a destroyed context have passed.
  void Forget(StreamHandle stream);
  void ForgetContext(ContextHandle context);

 private:
  bool Write(const Slot& slot, std::uint32_t index, std::uint32_t number);
  bool Register(const Slot& slot);
  bool IsMarkable(const Slot& slot) const;
  std::uint32_t IndexOf(const Slot& slot) const {
    return static_cast<std::uint32_t>(&slot - slots_.data());
  }
  bool HasPassed(std::uint32_t index) const {
    return use_.passed[index].load(std::memory_order_acquire) ==
           use_.marked[index].load(std::memory_order_relaxed);
  }
  Slot* Take(const Stream& wanted) GPUSHARED_REQUIRES(mutex_);
  // Counts the slot's launches as marked and, if `has_passed`, as ended. Frees the slot.
  void Release(Slot& slot, bool has_passed);

  ipc::GateUse& use_;
  const int gpu_;
  const std::uint16_t ordinal_;
  std::array<Slot, ipc::kStreamsMax> slots_;
  std::atomic<std::uint32_t> slot_count_{0};
  // Changes when slots are forgotten, so that threads look theirs up again.
  std::atomic<std::uint32_t> generation_{1};
  mutable Mutex mutex_;  // Guards the assignment of slots.
  // Context in which the page of GateUse::passed is registered, null if there is none, and the
  // device address of the page in that context.
  std::atomic<ContextHandle> registered_in_{nullptr};
  std::atomic<std::uint64_t> passed_address_{0};
  std::atomic<bool> cannot_register_{false}, is_registering_{false};
};

}  // namespace gpushared::drop_in::gate

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_GATE_MARKS_H_

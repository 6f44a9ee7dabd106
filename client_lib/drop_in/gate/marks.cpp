// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/gate/marks.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <span>
#include <thread>

#include "client_lib/drop_in/gate/driver_functions.h"

namespace gpushared::drop_in::gate {
namespace {

// Returns a number of the calling thread that no other thread of the process ever has.
std::uint64_t ThisThread() {
  static std::atomic<std::uint64_t> last{0};
  thread_local const std::uint64_t mine = last.fetch_add(1, std::memory_order_relaxed) + 1;
  return mine;
}

// Destination to which the host functions of a GPU's current session store passed marks. A host
// function may run after its session has ended, so it compares the ordinal of the session.
struct HostMarks {
  std::atomic<std::atomic<std::uint32_t>*> passed{nullptr};
  std::atomic<std::uint16_t> ordinal{0};
};
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): see above.
std::array<HostMarks, kGpusMax> host_marks;

// Argument of the host function that stores a passed mark where the GPU cannot write.
constexpr std::uint64_t Pack(std::uint16_t ordinal, int gpu, std::uint32_t index,
                             std::uint32_t number) {
  return std::uint64_t{ordinal} << 48 | static_cast<std::uint64_t>(gpu) << 40 |
         std::uint64_t{index} << 32 | number;
}
void PassOnHost(void* argument) {
  const auto packed = reinterpret_cast<std::uintptr_t>(argument);
  const HostMarks& marks = host_marks.at(packed >> 40 & 0xff);
  if (marks.ordinal.load(std::memory_order_acquire) != packed >> 48) return;
  marks.passed.load(std::memory_order_relaxed)[packed >> 32 & 0xff].store(
      static_cast<std::uint32_t>(packed), std::memory_order_release);
}

}  // namespace

Marks::Slot* Marks::Find(StreamHandle stream) {
  struct Last {
    const Marks* marks = nullptr;
    StreamHandle stream = nullptr;
    ContextHandle context = nullptr;
    std::uint32_t generation = 0;
    Slot* slot = nullptr;
  };
  thread_local Last last;
  // The handle of a created stream belongs to one context, but each context has its own default
  // streams.
  const bool is_default = reinterpret_cast<std::uintptr_t>(stream) <= 2;
  ContextHandle context = nullptr;
  if (is_default) (void)driver_functions.ctx_get_current(&context);
  const std::uint32_t generation = generation_.load(std::memory_order_acquire);
  if (last.marks == this && last.stream == stream && last.generation == generation &&
      last.context == context) [[likely]] {
    return last.slot;
  }
  Stream wanted{.handle = stream};
  if (wanted.handle == kPerThreadStream) wanted.thread = ThisThread();
  (void)driver_functions.ctx_get_current(&wanted.context);
  const MutexLock lock(mutex_);
  Slot* const slot = Take(wanted);
  last = {this, stream, context, generation, slot};
  return slot;
}

Marks::Slot* Marks::Take(const Stream& wanted) {
  const std::span<Slot> known(slots_.data(), slot_count_.load(std::memory_order_relaxed));
  for (Slot& slot : known) {
    if (slot.is_used && slot.stream == wanted) return &slot;
  }
  const auto free = std::ranges::find_if(
      known, [this](const Slot& slot) { return !slot.is_used && HasPassed(IndexOf(slot)); });
  const bool is_new = free == known.end();
  if (is_new && known.size() == slots_.size()) return nullptr;
  Slot& slot = is_new ? slots_[known.size()] : *free;
  if (is_new) {
    const auto count = static_cast<std::uint32_t>(known.size() + 1);
    slot_count_.store(count, std::memory_order_release);
    use_.slots.store(count, std::memory_order_release);
  }
  slot.stream = wanted;
  slot.is_used.store(true, std::memory_order_release);
  return &slot;
}

// Registers the page in the slot's context, which is the current one of the thread.
bool Marks::Register(const Slot& slot) {
  if (cannot_register_.load(std::memory_order_relaxed)) return false;
  if (is_registering_.exchange(true, std::memory_order_acquire)) return false;
  constexpr unsigned kMapped = 2;          // CU_MEMHOSTREGISTER_DEVICEMAP
  constexpr int kAlreadyRegistered = 712;  // CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
  bool is_registered = registered_in_.load(std::memory_order_acquire) == slot.stream.context;
  if (!is_registered && registered_in_.load(std::memory_order_relaxed) == nullptr) {
    const bool has_all = driver_functions.host_register != nullptr &&
                         driver_functions.write_value != nullptr &&
                         driver_functions.host_get_device_pointer != nullptr;
    const Code code = !has_all
                          ? Code::kNotSupported
                          : driver_functions.host_register(use_.passed, ipc::kPageBytes, kMapped);
    std::uint64_t address = 0;
    if ((code == Code::kSuccess || static_cast<int>(code) == kAlreadyRegistered) &&
        driver_functions.host_get_device_pointer(&address, use_.passed, 0) == Code::kSuccess) {
      passed_address_.store(address, std::memory_order_relaxed);
      registered_in_.store(slot.stream.context, std::memory_order_release);
      is_registered = true;
    } else {
      cannot_register_ = true;
    }
  }
  is_registering_.store(false, std::memory_order_release);
  return is_registered;
}

bool Marks::Write(const Slot& slot, std::uint32_t index, std::uint32_t number) {
  const ContextHandle in = registered_in_.load(std::memory_order_acquire);
  if (in == slot.stream.context || (in == nullptr && Register(slot))) {
    const std::uint64_t address =
        passed_address_.load(std::memory_order_relaxed) + index * sizeof(std::uint32_t);
    const Code code = driver_functions.write_value(slot.stream.handle, address, number, 0);
    if (code == Code::kSuccess) return true;
    if (code != Code::kNotSupported) return false;
    cannot_register_ = true;
  }
  // The driver cannot write words, or another context has the registration of the page.
  HostMarks& marks = host_marks.at(static_cast<std::size_t>(gpu_));
  marks.passed.store(use_.passed, std::memory_order_relaxed);
  marks.ordinal.store(ordinal_, std::memory_order_release);
  return driver_functions.launch_host_function(
             slot.stream.handle, PassOnHost,
             reinterpret_cast<void*>(Pack(ordinal_, gpu_, index, number))) == Code::kSuccess;
}

bool Marks::IsMarkable(const Slot& slot) const {
  if (slot.stream.thread != 0 && slot.stream.thread != ThisThread()) return false;
  if (driver_functions.stream_is_capturing == nullptr) return true;
  int status = 0;
  return driver_functions.stream_is_capturing(slot.stream.handle, &status) == Code::kSuccess &&
         status == 0;
}

void Marks::Place(Slot& slot) {
  const OutsideCaptures outside;
  if (!outside) return;
  if (slot.is_marking.exchange(true, std::memory_order_acquire)) return;
  const std::uint32_t index = IndexOf(slot);
  const std::uint64_t launched = use_.launched_ns[index].load(std::memory_order_relaxed);
  const bool is_marked = launched == use_.marked_ns[index].load(std::memory_order_relaxed);
  if (!is_marked && slot.is_used.load(std::memory_order_relaxed) && IsMarkable(slot)) {
    const std::uint32_t number = use_.marked[index].load(std::memory_order_relaxed) + 1;
    slot.history[number % Slot::kHistory].store(launched, std::memory_order_relaxed);
    if (Write(slot, index, number)) {
      // `marked` is stored first, so that each launch counts either as unmarked or as covered by a
      // mark that has not passed.
      use_.marked[index].store(number, std::memory_order_release);
      use_.marked_ns[index].store(launched, std::memory_order_release);
    }
  }
  slot.is_marking.store(false, std::memory_order_release);
}

void Marks::PlaceAll() {
  const std::uint32_t count = slot_count_.load(std::memory_order_acquire);
  for (std::uint32_t i = 0; i < count; ++i) {
    if (UnmarkedNs(slots_[i]) > 0) Place(slots_[i]);
  }
}

Marks::InFlight Marks::GetInFlight() const {
  InFlight all;
  all.at = Clock::now();
  const std::uint32_t count = slot_count_.load(std::memory_order_acquire);
  for (std::uint32_t i = 0; i < count; ++i) {
    const Slot& slot = slots_[i];
    const std::uint32_t passed = use_.passed[i].load(std::memory_order_acquire);
    const std::uint32_t marked = use_.marked[i].load(std::memory_order_acquire);
    all.passed += passed;
    // Unmarked launches are assumed to run for their predicted time, because their ends cannot be
    // observed.
    const std::uint64_t unmarked = UnmarkedNs(slot);
    const std::chrono::nanoseconds age = all.at - slot.launched_at.load(std::memory_order_relaxed);
    if (age < std::chrono::nanoseconds(unmarked)) all.ns += unmarked;
    // A mark may pass before its number is stored.
    if (static_cast<std::int32_t>(marked - passed) <= 0) continue;
    // If kHistory or more marks have not passed, the sum of the last passed mark has been
    // overwritten. The remaining marks alone then exceed every window.
    const std::uint32_t last = marked - passed < Slot::kHistory ? passed : marked + 1;
    all.ns += use_.marked_ns[i].load(std::memory_order_relaxed) -
              slot.history[last % Slot::kHistory].load(std::memory_order_relaxed);
  }
  return all;
}

void Marks::Release(Slot& slot, bool has_passed) {
  // A thread that places a mark holds the flag for the time of one call.
  while (slot.is_marking.exchange(true, std::memory_order_acquire)) std::this_thread::yield();
  const std::uint32_t index = IndexOf(slot);
  const std::uint32_t number = use_.marked[index].load(std::memory_order_relaxed);
  const std::uint64_t launched = use_.launched_ns[index].load(std::memory_order_relaxed);
  use_.marked_ns[index].store(launched, std::memory_order_relaxed);
  slot.history[number % Slot::kHistory].store(launched, std::memory_order_relaxed);
  if (has_passed) use_.passed[index].store(number, std::memory_order_release);
  slot.is_used.store(false, std::memory_order_release);
  slot.is_marking.store(false, std::memory_order_release);
}

void Marks::Forget(StreamHandle stream) {
  const std::uint32_t count = slot_count_.load(std::memory_order_acquire);
  for (std::uint32_t i = 0; i < count; ++i) {
    Slot& slot = slots_[i];
    if (!slot.is_used || slot.stream.handle != stream) continue;
    Place(slot);
    Release(slot, false);
    generation_.fetch_add(1, std::memory_order_release);
  }
}

void Marks::ForgetContext(ContextHandle context) {
  const std::uint32_t count = slot_count_.load(std::memory_order_acquire);
  for (std::uint32_t i = 0; i < count; ++i) {
    Slot& slot = slots_[i];
    if (!slot.is_used || slot.stream.context != context) continue;
    ContextHandle in = context;
    registered_in_.compare_exchange_strong(in, nullptr);
    Release(slot, true);
    generation_.fetch_add(1, std::memory_order_release);
  }
}

}  // namespace gpushared::drop_in::gate

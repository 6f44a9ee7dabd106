// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_HANDLE_TABLE_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_HANDLE_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "gpushared/mutex.h"

namespace gpushared::drop_in {

// A handle is kind | generation | index instead of an address, so invalid and stale handles are
// detected. A program that dereferences one faults immediately, because the kind makes the address
// non-canonical.
enum class HandleKind : std::uint8_t {
  kContext = 1,
  kStream,
  kEvent,
  kModule,
  kKernel,
  kLink,
  kPool,
  kArray,
  kGraph,
  kGraphNode,
  kGraphExec,
  kUserObject,
  kAllocation,
};

// Objects of one kind, by handle. `Handle` is a pointer type of the driver.
//
// Thread-safe.
template <typename Object, typename Handle, HandleKind kKind>
class HandleTable {
 public:
  static constexpr std::uint32_t kObjectsMax = 1u << 20;

  // Returns null if kObjectsMax objects exist.
  Handle Insert(std::shared_ptr<Object> object) {
    const WriterLock lock(mutex_);
    if (free_.empty()) {
      if (slots_.size() == kObjectsMax) return nullptr;
      free_.push_back(static_cast<std::uint32_t>(slots_.size()));
      slots_.emplace_back();
    }
    const std::uint32_t index = free_.back();
    free_.pop_back();
    slots_[index].object = std::move(object);
    return Make(slots_[index].generation, index);
  }

  // Returns null for a handle that is invalid, stale or of another kind.
  std::shared_ptr<Object> Find(Handle handle) const {
    const ReaderLock lock(mutex_);
    const Slot* const slot = GetSlot(slots_, handle);
    return slot == nullptr ? nullptr : slot->object;
  }

  std::shared_ptr<Object> Remove(Handle handle) {
    const WriterLock lock(mutex_);
    const Slot* const slot = GetSlot(slots_, handle);
    return slot == nullptr ? nullptr : Empty(static_cast<std::uint32_t>(slot - slots_.data()));
  }

  // Makes the handle refer to another object. Returns false if there is no such handle.
  bool Replace(Handle handle, std::shared_ptr<Object> object) {
    const WriterLock lock(mutex_);
    const Slot* const slot = GetSlot(slots_, handle);
    if (slot == nullptr) return false;
    std::swap(slots_[static_cast<std::size_t>(slot - slots_.data())].object, object);
    return true;
  }

  // Removes all objects that meet the condition, and returns them, so that they are destroyed
  // without the lock: their destructors may need other locks.
  template <typename Condition>
  std::vector<std::shared_ptr<Object>> RemoveIf(const Condition& condition) {
    std::vector<std::shared_ptr<Object>> removed;
    const WriterLock lock(mutex_);
    for (std::uint32_t index = 0; index < slots_.size(); ++index) {
      if (slots_[index].object != nullptr && condition(*slots_[index].object)) {
        removed.push_back(Empty(index));
      }
    }
    return removed;
  }

 private:
  struct Slot {
    std::shared_ptr<Object> object;  // Null if free.
    std::uint32_t generation = 1;
  };
  static constexpr int kIndexBits = 20;
  static constexpr int kGenerationBits = 28;
  static constexpr std::uint64_t kTag = 0x6700 + static_cast<std::uint64_t>(kKind);

  static Handle Make(std::uint32_t generation, std::uint32_t index) {
    return reinterpret_cast<Handle>((kTag << (kIndexBits + kGenerationBits)) |
                                    (std::uint64_t{generation} << kIndexBits) | index);
  }
  static const Slot* GetSlot(const std::vector<Slot>& slots, Handle handle) {
    const auto value = reinterpret_cast<std::uint64_t>(handle);
    const std::uint64_t index = value & (kObjectsMax - 1);
    if (index >= slots.size()) return nullptr;
    const Slot& slot = slots[index];
    const bool is_it = slot.object != nullptr &&
                       Make(slot.generation, static_cast<std::uint32_t>(index)) == handle;
    return is_it ? &slot : nullptr;
  }
  std::shared_ptr<Object> Empty(std::uint32_t index) GPUSHARED_REQUIRES(mutex_) {
    std::shared_ptr<Object> object = std::move(slots_[index].object);
    slots_[index].object = nullptr;
    slots_[index].generation = (slots_[index].generation + 1) & ((1u << kGenerationBits) - 1);
    free_.push_back(index);
    return object;
  }

  mutable SharedMutex mutex_;
  std::vector<Slot> slots_ GPUSHARED_GUARDED_BY(mutex_);
  std::vector<std::uint32_t> free_ GPUSHARED_GUARDED_BY(mutex_);
};

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_HANDLE_TABLE_H_

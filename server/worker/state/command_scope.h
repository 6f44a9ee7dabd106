// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_STATE_COMMAND_SCOPE_H_
#define GPUSHARED_SERVER_WORKER_STATE_COMMAND_SCOPE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "ipc/wire/layout.h"
#include "server/device/device.h"

namespace gpushared::server {

struct ModuleEntry {
  const device::Module* module = nullptr;
  std::uint64_t serial = 0;    // Unique across all sessions.
  std::uint64_t identity = 0;  // See CostModel.
  std::uint32_t in_use = 0;    // Unfinished commands that name the module.
  bool is_leaving = false;     // Accepts no new commands; released when in_use is 0.
};

// Objects that a client's commands may name: its modules, staging buffers, mapped memory and mapped
// chunks.
//
// Any reduction takes effect at a barrier, that is, once all commands that the client had submitted
// before its request for the reduction have been taken. At most one barrier is pending.
//
// Confined to the device thread.
class CommandScope {
 public:
  // Gives the modules that were added without serials the next ones.
  void NumberModules(std::uint64_t& next_serial) {
    for (ModuleEntry& entry : modules_) {
      if (entry.module != nullptr && entry.serial == 0) entry.serial = next_serial++;
    }
  }
  // A number must not be in use already.
  void AddModule(std::uint32_t number, const ModuleEntry& entry);
  // `fd` refers to the same memory and stays open as long as the client is connected; negative if
  // there is none.
  void AddStagingBuffer(std::uint32_t number, std::span<std::byte> bytes, int fd) {
    staging_buffers_[number] = {.bytes = bytes, .fd = fd};
  }
  // The range must be disjoint from all others.
  void AddMapping(std::uint64_t address, std::uint64_t bytes);
  // `mapped_bytes` must not be less than the current size.
  void GrowTo(std::uint64_t mapped_bytes) { mapped_bytes_ = mapped_bytes; }

  // Returns an empty entry if there is no such module.
  const ModuleEntry& module(std::uint32_t number) const {
    static constexpr ModuleEntry kNone;
    return number < modules_.size() ? modules_[number] : kNone;
  }
  // Returns the number of the module whose variables contain [address, address + bytes), unless it
  // is being unloaded.
  std::optional<std::uint32_t> ModuleWithVariables(std::uint64_t address,
                                                   std::uint64_t bytes) const;
  // Whether adjoining mappings contain all of [address, address + bytes).
  bool IsInMappings(std::uint64_t address, std::uint64_t bytes) const;
  // Number of contiguous address ranges that the mappings form.
  std::size_t stretches() const { return stretches_.size(); }
  std::span<std::byte> staging_buffer(std::uint32_t number) const {
    return staging_buffers_[number].bytes;
  }
  // Copies from the staging buffer, which must contain these bytes. If the client has removed a
  // page, its bytes read as zeros instead of blocking the read. A staging buffer without a
  // descriptor is accessed directly, which may block.
  void ReadStagingBuffer(std::uint32_t number, std::uint64_t offset,
                         std::span<std::byte> into) const;
  // Number of bytes from the space's base that commands may touch.
  std::uint64_t mapped_bytes() const { return mapped_bytes_; }

  // Must be called when a command that names the module is taken (UseModule) and when it has
  // finished (ReturnModule). ReturnModule returns whether this released the module.
  void UseModule(std::uint32_t number) { ++modules_[number].in_use; }
  bool ReturnModule(std::uint32_t number) {
    ModuleEntry& entry = modules_[number];
    --entry.in_use;
    return entry.is_leaving && TryRelease(number);
  }

  // `position` is the current position of the ring.
  void RemoveModuleAfter(std::uint32_t number, std::uint64_t position);
  void ShrinkAfter(std::uint64_t mapped_bytes, std::uint64_t position);
  void RemoveMappingAfter(std::uint64_t address, std::uint64_t position);
  bool has_barrier() const { return barrier_.has_value(); }
  bool awaits_barrier() const { return barrier_ && !barrier_->is_reached; }
  // Reports from the pump: that the ring is empty, or the position up to which it has taken
  // records.
  void RecordRingEmpty() {
    if (barrier_) barrier_->is_reached = true;
  }
  void RecordTakenUpTo(std::uint64_t position) {
    if (barrier_ && position - barrier_->position >= kBarrierGranules) barrier_->is_reached = true;
  }
  // A reached barrier passes immediately for a module. For a reduction of memory it passes when all
  // commands taken before it have finished. `taken`: number of commands taken but not finished.
  struct Passed {
    std::optional<std::uint32_t> released;  // A module that is no longer used by any command.
  };
  std::optional<Passed> TryPassBarrier(std::uint32_t taken);
  void DropBarrier() { barrier_.reset(); }

  // Number of reductions of memory so far, which distinguishes commands taken before the last one
  // from those taken after it.
  std::uint32_t epoch() const { return epoch_; }
  // Increases whenever commands may name less than before.
  std::uint64_t losses() const { return losses_; }
  void RecordFinished(std::uint32_t epoch) {
    if (epoch != epoch_) --of_earlier_epochs_;
  }

 private:
  // A barrier is reached at the latest when this many granules were taken after it was set, because
  // the ring cannot have held more at that moment. Hence a client that keeps its ring full cannot
  // delay it.
  static constexpr std::uint64_t kBarrierGranules = ipc::kCommandGranules;

  struct Barrier {
    std::optional<std::uint32_t> module;   // To be unloaded.
    std::optional<std::uint64_t> mapping;  // To be unmapped. If neither is set, the memory shrinks.
    std::uint64_t mapped_bytes = 0;
    std::uint64_t position = 0;
    bool is_reached = false;
  };
  void Set(const Barrier& barrier);
  bool TryRelease(std::uint32_t number);
  // Makes the barrier's memory inaccessible; returns false if it already is.
  bool MakeLess(const Barrier& barrier);
  void RemoveMapping(std::uint64_t address);

  std::vector<ModuleEntry> modules_;  // By the number that the client assigned; grows as needed.
  // Memory of module variables, which copies and fills may touch, by address.
  struct Variables {
    std::uint64_t bytes = 0;
    std::uint32_t module = 0;
  };
  std::map<std::uint64_t, Variables> variables_;
  std::map<std::uint64_t, std::uint64_t> mappings_;  // Bytes of mapped chunks, by address.
  // Ends of contiguous ranges of chunks, by their beginnings. Kept because every graph node is
  // looked up here, so the cost must not grow with the number of chunks that it spans.
  std::map<std::uint64_t, std::uint64_t> stretches_;
  struct StagingBuffer {
    std::span<std::byte> bytes;
    int fd = -1;
  };
  std::array<StagingBuffer, ipc::kStagingBuffersMax> staging_buffers_ = {};
  std::uint64_t mapped_bytes_ = 0;
  std::optional<Barrier> barrier_;
  std::uint32_t epoch_ = 0;
  std::uint64_t losses_ = 0;
  std::uint32_t of_earlier_epochs_ = 0;  // Unfinished commands that were taken in earlier epochs.
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATE_COMMAND_SCOPE_H_

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
  std::uint64_t serial = 0;    // Over all sessions.
  std::uint64_t identity = 0;  // See CostModel.
  std::uint32_t in_use = 0;    // Commands taken and not finished that name it.
  bool is_leaving = false;     // No new commands; released when in_use is 0.
};

// What a client's commands may name: its modules, staging buffers, mapped memory and mapped chunks.
//
// Whatever makes it less takes effect at a barrier: when everything was taken that the client
// submitted before it asked. One barrier at a time.
//
// Confined to the device thread.
class CommandScope {
 public:
  // A number is used once at a time.
  void AddModule(std::uint32_t number, const ModuleEntry& entry);
  // `fd`: of the same memory, open for as long as the client is here; negative: there is none.
  void AddStagingBuffer(std::uint32_t number, std::span<std::byte> bytes, int fd) {
    staging_buffers_[number] = {.bytes = bytes, .fd = fd};
  }
  // Beside all others.
  void AddMapping(std::uint64_t address, std::uint64_t bytes);
  // Not less than now.
  void GrowTo(std::uint64_t mapped_bytes) { mapped_bytes_ = mapped_bytes; }

  // Empty where there is none.
  const ModuleEntry& module(std::uint32_t number) const {
    static constexpr ModuleEntry kNone;
    return number < modules_.size() ? modules_[number] : kNone;
  }
  // The number of the module whose variables hold [address, address + bytes), unless it leaves.
  std::optional<std::uint32_t> ModuleWithVariables(std::uint64_t address,
                                                   std::uint64_t bytes) const;
  // Whether mappings without a gap between them hold all of [address, address + bytes).
  bool IsInMappings(std::uint64_t address, std::uint64_t bytes) const;
  // Stretches of addresses without a gap that the mappings make.
  std::size_t stretches() const { return stretches_.size(); }
  std::span<std::byte> staging_buffer(std::uint32_t number) const {
    return staging_buffers_[number].bytes;
  }
  // Copies from there; the staging buffer has these bytes. Waits for no page that its client has
  // taken away: an empty one reads as zeros. A staging buffer without a descriptor is touched,
  // which may wait.
  void ReadStagingBuffer(std::uint32_t number, std::uint64_t offset,
                         std::span<std::byte> into) const;
  // Commands may touch this much, from the space's base.
  std::uint64_t mapped_bytes() const { return mapped_bytes_; }

  // A command is taken that names the module, or has finished. The latter says whether the module
  // is released by that.
  void UseModule(std::uint32_t number) { ++modules_[number].in_use; }
  bool ReturnModule(std::uint32_t number) {
    ModuleEntry& entry = modules_[number];
    --entry.in_use;
    return entry.is_leaving && TryRelease(number);
  }

  // `position`: of the ring, now.
  void RemoveModuleAfter(std::uint32_t number, std::uint64_t position);
  void ShrinkAfter(std::uint64_t mapped_bytes, std::uint64_t position);
  void RemoveMappingAfter(std::uint64_t address, std::uint64_t position);
  bool has_barrier() const { return barrier_.has_value(); }
  bool awaits_barrier() const { return barrier_ && !barrier_->is_reached; }
  // What the pump finds: an empty ring, or how far it has come.
  void RecordRingEmpty() {
    if (barrier_) barrier_->is_reached = true;
  }
  void RecordTakenUpTo(std::uint64_t position) {
    if (barrier_ && position - barrier_->position >= kBarrierGranules) barrier_->is_reached = true;
  }
  // A reached barrier passes at once for a module; for less memory, when all commands have finished
  // that were taken before. `taken`: commands not finished now.
  struct Passed {
    std::optional<std::uint32_t> released;  // A module that no command uses.
  };
  std::optional<Passed> TryPassBarrier(std::uint32_t taken);
  void DropBarrier() { barrier_.reset(); }

  // Tells commands apart that were taken before memory last became less and after it.
  std::uint32_t epoch() const { return epoch_; }
  // Another number whenever commands may name less than before.
  std::uint64_t losses() const { return losses_; }
  void RecordFinished(std::uint32_t epoch) {
    if (epoch != epoch_) --of_earlier_epochs_;
  }

 private:
  // A barrier is reached at the latest when this many granules were taken after it was set: all
  // that was in the ring at that moment. A client that keeps its ring full can't put it off.
  static constexpr std::uint64_t kBarrierGranules = ipc::kCommandGranules;

  struct Barrier {
    std::optional<std::uint32_t> module;   // To be unloaded.
    std::optional<std::uint64_t> mapping;  // To be unmapped; neither: the memory shrinks.
    std::uint64_t mapped_bytes = 0;
    std::uint64_t position = 0;
    bool is_reached = false;
  };
  void Set(const Barrier& barrier);
  bool TryRelease(std::uint32_t number);
  // Takes the barrier's memory out of reach; false when it is.
  bool MakeLess(const Barrier& barrier);
  void RemoveMapping(std::uint64_t address);

  std::vector<ModuleEntry> modules_;  // By the client's number, up to the largest that was used.
  // Memory of modules' variables, which copies and fills may touch, by address.
  struct Variables {
    std::uint64_t bytes = 0;
    std::uint32_t module = 0;
  };
  std::map<std::uint64_t, Variables> variables_;
  std::map<std::uint64_t, std::uint64_t> mappings_;  // Bytes of mapped chunks, by address.
  // Ends of stretches of such chunks, by their beginnings. A node of a graph is looked up here, so
  // the cost must not grow with the number of chunks that it reaches across.
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
  std::uint32_t of_earlier_epochs_ = 0;  // Commands not finished.
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATE_COMMAND_SCOPE_H_

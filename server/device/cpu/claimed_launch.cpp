// SPDX-License-Identifier: Apache-2.0
#include "server/device/cpu/claimed_launch.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "server/device/cpu/cpu_space.h"
#include "server/ptx/passes/claim.h"

namespace gpushared::device {
namespace {

// Each launch has words of its own, so one epoch does for all.
constexpr std::uint32_t kEpoch = 1;

// Kernels change these words, too; relaxed, since a completion orders what they stand for.
std::atomic_ref<std::uint32_t> WordAt(std::uint64_t address) {
  return std::atomic_ref<std::uint32_t>(
      *reinterpret_cast<std::uint32_t*>(static_cast<std::uintptr_t>(address)));
}

}  // namespace

std::optional<std::uint32_t> ClaimSlots::Take() {
  std::uint32_t taken = taken_.load(std::memory_order_relaxed);
  for (;;) {
    const auto slot = static_cast<std::uint32_t>(std::countr_one(taken));
    if (slot == kSlots) return std::nullopt;
    // Acquire, pairs with the release in Return: its former user no longer looks at the words.
    if (taken_.compare_exchange_weak(taken, taken | 1u << slot, std::memory_order_acquire)) {
      return slot;
    }
  }
}

void ClaimSlots::Return(std::uint32_t slot) {
  taken_.fetch_and(~(1u << slot), std::memory_order_release);
}

std::unique_ptr<ClaimedLaunch> ClaimedLaunch::Make(const LaunchWork& work) {
  const auto& module = static_cast<const CpuModule&>(*work.module);
  const executor::Program* const form = module.kernel(work.kernel).claimed;
  if (form == nullptr || work.grid.Count() >= ptx::kClaimBlocksMax) return nullptr;
  const std::uint64_t shared = std::uint64_t{form->info().static_shared_bytes} +
                               work.dynamic_shared_bytes + ptx::kClaimSharedBytes;
  if (shared > executor::kSharedBytesMax || work.first_unit > work.grid.Count()) return nullptr;
  const std::optional<std::uint32_t> slot = module.slots()->Take();
  if (!slot) return nullptr;
  return std::unique_ptr<ClaimedLaunch>(new ClaimedLaunch(module, work, *slot));
}

ClaimedLaunch::ClaimedLaunch(const CpuModule& module, const LaunchWork& work, std::uint32_t slot)
    : module_(module),
      kernel_(work.kernel),
      slot_(slot),
      first_unit_(work.first_unit),
      units_total_(work.grid.Count()),
      parameters_(work.parameters.begin(), work.parameters.end()) {
  const ClaimSlots& slots = *module_.slots();
  const ptx::ClaimParameter parameter{.counter = slots.CounterAddress(slot_),
                                      .stop = slots.StopAddress(slot_),
                                      .epoch = kEpoch,
                                      .blocks = static_cast<std::uint32_t>(units_total_),
                                      .grid_x = work.grid.x,
                                      .grid_y = work.grid.y,
                                      .grid_z = work.grid.z};
  const std::uint32_t offset = module_.kernel(kernel_).claim_offset;
  parameters_.resize(offset + sizeof parameter);
  std::memcpy(parameters_.data() + offset, &parameter, sizeof parameter);
  WordAt(parameter.counter)
      .store(static_cast<std::uint32_t>(first_unit_), std::memory_order_relaxed);
  WordAt(parameter.stop).store(kEpoch - 1, std::memory_order_relaxed);
}

ClaimedLaunch::~ClaimedLaunch() { module_.slots()->Return(slot_); }

void ClaimedLaunch::Apply(executor::Launch& launch) const {
  launch.program = module_.kernel(kernel_).claimed;
  launch.parameters = parameters_;
  launch.dynamic_shared_bytes += ptx::kClaimSharedBytes;
}

void ClaimedLaunch::RequestStop() {
  WordAt(module_.slots()->StopAddress(slot_)).store(kEpoch, std::memory_order_relaxed);
}

std::uint64_t ClaimedLaunch::units_done() const {
  // The client's kernel may have written the word: it can deceive nobody but its client.
  const std::uint64_t claimed =
      WordAt(module_.slots()->CounterAddress(slot_)).load(std::memory_order_relaxed);
  return std::clamp(claimed, first_unit_, units_total_);
}

}  // namespace gpushared::device

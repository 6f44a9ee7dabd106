// SPDX-License-Identifier: Apache-2.0
#include "server/device/cpu/contained_runs.h"

#include <atomic>
#include <cstddef>
#include <utility>

#include "server/ptx/passes/contain.h"

namespace gpushared::device {
namespace {

static_assert(sizeof(ptx::ContainControl) <= 64 && sizeof(ptx::FaultRecord) <= 64);

// Kernels read and write these words at any time. Relaxed: nothing else is read because of them.
template <typename Word>
std::atomic_ref<Word> WordAt(std::uint64_t address) {
  return std::atomic_ref<Word>(*reinterpret_cast<Word*>(static_cast<std::uintptr_t>(address)));
}

template <typename Word>
void Store(std::uint64_t address, Word value) {
  WordAt<Word>(address).store(value, std::memory_order_relaxed);
}

std::uint32_t Load(std::uint64_t address) {
  return WordAt<std::uint32_t>(address).load(std::memory_order_relaxed);
}

}  // namespace

ContainedRuns::ContainedRuns(std::uint64_t base, const AddressRange& range,
                             std::vector<ptx::FaultPlace> places)
    : base_(base), range_(range), places_(std::move(places)) {
  Forget();
}

void ContainedRuns::Forget() {
  must_end_ = false;
  Store(control_address() + offsetof(ptx::ContainControl, stop), std::uint32_t{0});
  Store(fault_address() + offsetof(ptx::FaultRecord, place), std::uint32_t{0});
}

void ContainedRuns::EndAll() {
  must_end_ = true;
  Store(control_address() + offsetof(ptx::ContainControl, stop), std::uint32_t{1});
}

void ContainedRuns::Enter() {
  std::unique_lock lock(mutex_);
  // Short: what runs looks at the word.
  while (must_end_ && running_ > 0) all_left_.wait(lock);
  if (running_++ == 0) Forget();
  // Memory may have grown meanwhile; while kernels run it does not shrink.
  Store(control_address() + offsetof(ptx::ContainControl, limit),
        range_.base() + range_.mapped_bytes());
}

ptx::ToldFault ContainedRuns::Leave() {
  const std::lock_guard lock(mutex_);
  if (--running_ == 0) all_left_.notify_all();
  ptx::FaultRecord record;
  record.place = Load(fault_address() + offsetof(ptx::FaultRecord, place));
  if (record.place == 0) return {};
  for (std::size_t d = 0; d < 3; ++d) {
    record.block[d] = Load(fault_address() + offsetof(ptx::FaultRecord, block) + 4 * d);
    record.thread[d] = Load(fault_address() + offsetof(ptx::FaultRecord, thread) + 4 * d);
  }
  // Other running launches of the module could not record a fault of their own.
  if (running_ > 0) EndAll();
  return ptx::DescribeFault(places_, record);
}

void ContainedRuns::Stop() {
  const std::lock_guard lock(mutex_);
  if (running_ > 0) EndAll();
}

}  // namespace gpushared::device

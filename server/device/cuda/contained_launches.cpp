// SPDX-License-Identifier: Apache-2.0
#include "server/device/cuda/contained_launches.h"

#include <algorithm>
#include <atomic>

namespace gpushared::device::cuda {

ContainedLaunches::~ContainedLaunches() {
  // A write on its way to the words must not meet their next owner.
  if (was_written_ && !words_->context().is_dead() && !words_->writes().Wait().ok()) return;
  words_->Return(slot_);
}

void ContainedLaunches::ZeroHostWords() {
  // No kernel runs that could write to it, and the next one begins behind a call of the driver.
  for (std::uint32_t* const word :
       {&slot_.host->fault.place, &slot_.host->fault.other_place, &slot_.host->stop}) {
    std::atomic_ref(*word).store(0, std::memory_order_relaxed);
  }
}

// One that sets the word meanwhile ends a launch that has just begun, at worst: the word is found
// set when that leaves.
void ContainedLaunches::RecordTold() {
  if (state_ != State::kClean) return;
  if (std::atomic_ref(slot_.host->stop).load(std::memory_order_relaxed) == 0) return;
  state_ = State::kMustEnd;
  was_told_ = true;
}

Result<bool> ContainedLaunches::Enter() {
  RecordTold();
  if (state_ == State::kMustEnd) {
    if (launches_ > 0) return false;
    if (Status status = Clear(); !status.ok()) return status;
  }
  if (state_ == State::kClearing) {
    Result<bool> is_clear = words_->writes().HasPassed();
    if (!is_clear.ok() || !*is_clear) return is_clear;
    state_ = State::kClean;
  }
  ++launches_;
  range_.RecordLaunch();
  return true;
}

ContainedLaunches::Left ContainedLaunches::Leave(std::span<const KernelInfo> kernels,
                                                 std::size_t kernel) {
  --launches_;
  range_.RecordEnd();
  RecordTold();
  const std::optional<ptx::FaultRecord> record = Record();
  // Before the stop word is written only a fault of its own ends a launch early.
  const bool is_clean = !record || (state_ == State::kClean && !MayBeOf(*record, kernels, kernel));
  if (!is_clean && state_ == State::kClean) {
    // Other running launches could not record a fault of their own.
    if (launches_ > 0) EndAll();
    state_ = State::kMustEnd;
  }
  Left left;
  if (!is_clean) left.fault = ptx::DescribeFault(places_, *record);
  left.was_told = left.fault.is_stop && was_told_;
  GoOn();
  return left;
}

void ContainedLaunches::Withdraw() {
  --launches_;
  range_.RecordEnd();
  GoOn();
}

// At once, so that the next launch need not wait for it; what fails is tried again there.
void ContainedLaunches::GoOn() {
  if (state_ == State::kMustEnd && launches_ == 0) (void)Clear();
}

std::optional<ptx::FaultRecord> ContainedLaunches::Record() const {
  ptx::FaultRecord& record = slot_.host->fault;
  // Each pairs with the barriers of the kernel around its write. What a launch has written is there
  // when its end is known.
  const std::uint32_t other = std::atomic_ref(record.other_place).load(std::memory_order_acquire);
  const std::uint32_t place = std::atomic_ref(record.place).load(std::memory_order_acquire);
  if (place == 0 && other == 0) return std::nullopt;
  ptx::FaultRecord copy = record;
  // The first thread may not have come to write yet: then the other one tells.
  copy.place = place != 0 ? place : other;
  copy.other_place = other;
  return copy;
}

bool ContainedLaunches::MayBeOf(const ptx::FaultRecord& record, std::span<const KernelInfo> kernels,
                                std::size_t kernel) const {
  if (record.other_place != 0 || record.place > places_.size()) return true;
  const std::string& function = places_[record.place - 1].function;
  // A function that several kernels may call tells nothing.
  return function == kernels[kernel].name ||
         std::ranges::find(kernels, function, &KernelInfo::name) == kernels.end();
}

void ContainedLaunches::Stop() {
  if (launches_ > 0) EndAll();
}

void ContainedLaunches::EndAll() {
  state_ = State::kMustEnd;
  was_written_ = true;
  // Loops look here, whatever the driver does.
  std::atomic_ref(slot_.host->stop).store(1, std::memory_order_release);
  // And blocks that begin there. A failure stops nothing and breaks nothing.
  (void)words_->writes().Write(control() + offsetof(ptx::ContainControl, stop), 1);
}

// Behind the stop word, on the stream that wrote it. The words from it on are zeroed.
Status ContainedLaunches::Clear() {
  constexpr std::size_t kFirst = offsetof(ptx::ContainControl, stop);
  UrgentWrites& writes = words_->writes();
  was_written_ = true;
  was_told_ = false;
  ZeroHostWords();
  Status status = writes.Fill(control() + kFirst, 0,
                              (sizeof(ptx::ContainControl) - kFirst) / sizeof(std::uint32_t));
  if (status.ok()) status = writes.Mark();
  if (status.ok()) state_ = State::kClearing;
  return status;
}

}  // namespace gpushared::device::cuda

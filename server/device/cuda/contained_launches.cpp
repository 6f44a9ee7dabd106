// SPDX-License-Identifier: Apache-2.0
#include "server/device/cuda/contained_launches.h"

#include <algorithm>
#include <atomic>

namespace gpushared::device::cuda {

ContainedLaunches::~ContainedLaunches() {
  // A pending write to the words must not affect their next owner.
  if (was_written_ && !words_->context().is_dead() && !words_->writes().Wait().ok()) return;
  words_->Return(slot_);
}

void ContainedLaunches::ZeroHostWords() {
  // Relaxed: no running kernel accesses the words, and a driver call orders the stores before the
  // next launch.
  for (std::uint32_t* const word :
       {&slot_.host->fault.place, &slot_.host->fault.other_place, &slot_.host->stop}) {
    std::atomic_ref(*word).store(0, std::memory_order_relaxed);
  }
}

// If another thread sets the word after the check, a launch that has just started may end. The word
// is then found set when that launch leaves.
void ContainedLaunches::RecordEndRequest() {
  if (state_ != State::kClean) return;
  if (std::atomic_ref(slot_.host->stop).load(std::memory_order_relaxed) == 0) return;
  state_ = State::kMustEnd;
  ended_on_request_ = true;
}

Result<bool> ContainedLaunches::Enter() {
  RecordEndRequest();
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
  RecordEndRequest();
  const std::optional<ptx::FaultRecord> record = Record();
  // Until the stop word is written, a launch ends early only because of a fault that it caused.
  const bool is_clean = !record || (state_ == State::kClean && !MayBeOf(*record, kernels, kernel));
  if (!is_clean && state_ == State::kClean) {
    // Ends the other running launches, because they could no longer record faults.
    if (launches_ > 0) EndAll();
    state_ = State::kMustEnd;
  }
  Left left;
  if (!is_clean) left.fault = ptx::DescribeFault(places_, *record);
  left.ended_on_request = left.fault.is_stop && ended_on_request_;
  GoOn();
  return left;
}

void ContainedLaunches::Withdraw() {
  --launches_;
  range_.RecordEnd();
  GoOn();
}

// Clears the words as soon as all launches have left, because otherwise the next launch would have
// to wait until they are clear. Enter tries again after a failure.
void ContainedLaunches::GoOn() {
  if (state_ == State::kMustEnd && launches_ == 0) (void)Clear();
}

std::optional<ptx::FaultRecord> ContainedLaunches::Record() const {
  ptx::FaultRecord& record = slot_.host->fault;
  // Each load pairs with the barriers of the kernel around its write. The writes of a launch are
  // visible when its end is known.
  const std::uint32_t other = std::atomic_ref(record.other_place).load(std::memory_order_acquire);
  const std::uint32_t place = std::atomic_ref(record.place).load(std::memory_order_acquire);
  if (place == 0 && other == 0) return std::nullopt;
  ptx::FaultRecord copy = record;
  // The first thread may not have written yet; in this case the other place identifies the fault.
  copy.place = place != 0 ? place : other;
  copy.other_place = other;
  return copy;
}

bool ContainedLaunches::MayBeOf(const ptx::FaultRecord& record, std::span<const KernelInfo> kernels,
                                std::size_t kernel) const {
  if (record.other_place != 0 || record.place > places_.size()) return true;
  const std::string& function = places_[record.place - 1].function;
  // A function that several kernels may call does not identify the kernel.
  return function == kernels[kernel].name ||
         std::ranges::find(kernels, function, &KernelInfo::name) == kernels.end();
}

void ContainedLaunches::Stop() {
  if (launches_ > 0) EndAll();
}

void ContainedLaunches::EndAll() {
  state_ = State::kMustEnd;
  was_written_ = true;
  // Loops poll this word, which the host can write even while the driver accepts no call.
  std::atomic_ref(slot_.host->stop).store(1, std::memory_order_release);
  // Blocks check this word when they start. A failure is ignored, because the blocks then just run.
  (void)words_->writes().Write(control() + offsetof(ptx::ContainControl, stop), 1);
}

// Zeroes the words from the stop word on. The zeroes follow the write of the stop word on the same
// stream.
Status ContainedLaunches::Clear() {
  constexpr std::size_t kFirst = offsetof(ptx::ContainControl, stop);
  UrgentWrites& writes = words_->writes();
  was_written_ = true;
  ended_on_request_ = false;
  ZeroHostWords();
  Status status = writes.Fill(control() + kFirst, 0,
                              (sizeof(ptx::ContainControl) - kFirst) / sizeof(std::uint32_t));
  if (status.ok()) status = writes.Mark();
  if (status.ok()) state_ = State::kClearing;
  return status;
}

}  // namespace gpushared::device::cuda

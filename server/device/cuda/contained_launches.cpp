// SPDX-License-Identifier: Apache-2.0
#include "server/device/cuda/contained_launches.h"

namespace gpushared::device::cuda {

ContainedLaunches::~ContainedLaunches() {
  // A write on its way to the words must not meet their next owner.
  if (was_written_ && !words_->context().is_dead() && !words_->writes().Wait().ok()) return;
  words_->Return(slot_);
}

Result<bool> ContainedLaunches::Enter() {
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
  range_.NoteLaunch();
  return true;
}

ptx::ToldFault ContainedLaunches::Leave(const ptx::FaultRecord* record) {
  --launches_;
  range_.NoteEnd();
  const bool is_clean = record != nullptr && record->place == 0;
  if (!is_clean && state_ == State::kClean) {
    // Other running launches could not record a fault of their own.
    if (launches_ > 0) EndAll();
    state_ = State::kMustEnd;
  }
  // At once, so that the next launch need not wait for it; what fails is tried again there.
  if (state_ == State::kMustEnd && launches_ == 0) (void)Clear();
  return is_clean || record == nullptr ? ptx::ToldFault() : ptx::DescribeFault(places_, *record);
}

void ContainedLaunches::Stop() {
  if (launches_ > 0) EndAll();
}

void ContainedLaunches::EndAll() {
  state_ = State::kMustEnd;
  was_written_ = true;
  // A failure here stops nothing and breaks nothing.
  (void)words_->writes().Write(control() + offsetof(ptx::ContainControl, stop), 1);
}

// Behind the stop word, on the stream that wrote it.
Status ContainedLaunches::Clear() {
  UrgentWrites& writes = words_->writes();
  was_written_ = true;
  Status status = writes.Write(control() + offsetof(ptx::ContainControl, stop), 0);
  if (status.ok()) {
    status = writes.Fill(fault(), 0, sizeof(ptx::FaultRecord) / sizeof(std::uint32_t));
  }
  if (status.ok()) status = writes.Mark();
  if (status.ok()) state_ = State::kClearing;
  return status;
}

}  // namespace gpushared::device::cuda

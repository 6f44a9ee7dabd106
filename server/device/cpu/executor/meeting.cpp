// SPDX-License-Identifier: Apache-2.0
#include "server/device/cpu/executor/meeting.h"

#include <cstring>
#include <utility>

namespace gpushared::device::executor {
namespace {

// Registers of the combined instruction: the operands of all lanes are copied to them, the
// instruction is executed, and its results are copied to each lane's destination.
enum Register : std::uint32_t {
  kPredicateIn = kFirstPredicate,
  kPredicateOut = kPredicateIn + 4,
  kSecondOut = kPredicateOut + 4,
  kRowA = 64,
  kRowB = kRowA + kWideRowBytes,
  kRowC = kRowB + kNarrowRowBytes,
  kMembers = kRowC + kNarrowRowBytes,
  kRowOut = kMembers + kNarrowRowBytes,
  kRegisterBytes = kRowOut + kNarrowRowBytes,
};

std::uint32_t WordAt(const std::byte* at) {
  std::uint32_t word = 0;
  std::memcpy(&word, at, sizeof(word));
  return word;
}

void CopyBit(const std::byte* from, std::byte* to, std::uint32_t lane) {
  const std::uint32_t bit = 1u << lane;
  const std::uint32_t word = (WordAt(to) & ~bit) | (WordAt(from) & bit);
  std::memcpy(to, &word, sizeof(word));
}

void CopyLane(const std::byte* from, std::byte* to, std::uint32_t lane, std::uint32_t bytes) {
  const std::size_t offset = std::size_t{lane} * bytes;
  std::memcpy(to + offset, from + offset, bytes);
}

void Gather(const MicroOp& op, const std::byte* frame, std::byte* registers, std::uint32_t lane) {
  if ((op.extra & kReadsPredicate) != 0) {
    CopyBit(frame + op.a, registers + kPredicateIn, lane);
  } else {
    CopyLane(frame + op.a, registers + kRowA, lane, (op.extra & kReadsWide) != 0 ? 8 : 4);
  }
  if ((op.extra & kReadsThree) != 0) {
    CopyLane(frame + op.b, registers + kRowB, lane, 4);
    CopyLane(frame + op.c, registers + kRowC, lane, 4);
  }
  CopyLane(frame + op.rows[1], registers + kMembers, lane, 4);
}

void Scatter(const MicroOp& op, const std::byte* registers, std::byte* frame, std::uint32_t lane) {
  if ((op.extra & kWritesNothing) != 0) return;
  if ((op.extra & kWritesPredicate) != 0) {
    CopyBit(registers + kPredicateOut, frame + op.destination, lane);
  } else {
    CopyLane(registers + kRowOut, frame + op.destination, lane, 4);
  }
  if (op.rows[0] != 0) CopyBit(registers + kSecondOut, frame + op.rows[0], lane);
}

}  // namespace

std::uint32_t Meeting::Add(const Path& path) {
  const MicroOp* const op = warp_.code + path.pc;
  std::byte* const frame = warp_.registers + path.activations.back().frame_offset;
  const std::uint32_t guard = WordAt(frame + (op->guard & ~1u)) ^ (0u - (op->guard & 1u));
  const std::uint32_t lanes = path.active & guard;
  for (std::uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<std::uint32_t>(__builtin_ctz(rest));
    places_[lane] = {op, frame, WordAt(frame + op->rows[1] + std::size_t{lane} * 4)};
  }
  waiting_ |= lanes;
  return lanes;
}

Meeting::Group Meeting::GetGroup(std::uint32_t lane, std::uint32_t among) const {
  const Place& first = places_[lane];
  Group group;
  for (std::uint32_t rest = among; rest != 0; rest &= rest - 1) {
    const auto l = static_cast<std::uint32_t>(__builtin_ctz(rest));
    const bool same =
        places_[l].members == first.members && places_[l].op->handler == first.op->handler;
    group.lanes |= same ? 1u << l : 0;
  }
  // Lanes that are not in their own member mask never act. The operation rejects them before, but
  // code from another process may have changed the mask since then (verify.h).
  group.missing = (first.members & ~group.lanes & ~warp_.exited) | (group.lanes & ~first.members);
  return group;
}

std::uint32_t Meeting::Act() {
  std::uint32_t acted = 0;
  for (std::uint32_t left = waiting_; left != 0;) {
    const Group group = GetGroup(static_cast<std::uint32_t>(__builtin_ctz(left)), left);
    left &= ~group.lanes;
    if (group.missing != 0) continue;
    ActTogether(group.lanes);
    acted |= group.lanes;
  }
  waiting_ &= ~acted;
  return acted;
}

std::optional<Meeting::Group> Meeting::Incomplete() const {
  for (std::uint32_t left = waiting_; left != 0;) {
    const Group group = GetGroup(static_cast<std::uint32_t>(__builtin_ctz(left)), left);
    if (group.missing != 0) return group;
    left &= ~group.lanes;
  }
  return std::nullopt;
}

void Meeting::ActTogether(std::uint32_t lanes) {
  alignas(64) std::array<std::byte, kRegisterBytes> registers = {};
  std::memcpy(registers.data() + kAlwaysTrue, &kAllLanes, sizeof(kAllLanes));
  for (std::uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<std::uint32_t>(__builtin_ctz(rest));
    Gather(*places_[lane].op, places_[lane].frame, registers.data(), lane);
  }
  MicroOp op = *places_[static_cast<std::uint32_t>(__builtin_ctz(lanes))].op;
  op.guard = kAlwaysTrue;
  op.a = (op.extra & kReadsPredicate) != 0 ? kPredicateIn : kRowA;
  op.b = kRowB;
  op.c = kRowC;
  op.rows = {kSecondOut, kMembers, 0, 0};
  op.destination = (op.extra & kWritesPredicate) != 0 ? kPredicateOut : kRowOut;
  std::byte* const frame = std::exchange(warp_.frame, registers.data());
  const std::uint32_t active = std::exchange(warp_.active, lanes);
  op.handler(warp_, &op);
  warp_.frame = frame;
  warp_.active = active;
  for (std::uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<std::uint32_t>(__builtin_ctz(rest));
    Scatter(*places_[lane].op, registers.data(), places_[lane].frame, lane);
  }
}

}  // namespace gpushared::device::executor

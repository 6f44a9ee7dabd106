// SPDX-License-Identifier: Apache-2.0
// Instructions in which lanes of a warp that name the same members act together: shfl.sync,
// vote.sync and others. Here lanes meet that came by different paths. Private to the executor.

#ifndef GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_MEETING_H_
#define GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_MEETING_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "server/device/cpu/executor/code.h"
#include "server/device/cpu/executor/warp.h"

namespace gpushared::device::executor {

// The lanes of one warp that wait for each other, each with the instruction at which it stands and
// the frame of its call. Lanes meet when they name the same members in the same kind of
// instruction; it need not be the same place (PTX ISA: "the same qualifiers and same membermask
// value"). Borrows the warp and its registers.
class Meeting {
 public:
  explicit Meeting(Warp& warp) : warp_(warp) {}

  // Adds a path that waits. Returns its lanes that do; the others' guard skips the instruction.
  std::uint32_t Add(const Path& path);
  // Lets lanes act of which all members that have not exited are here. Returns them.
  std::uint32_t Act();

  struct Group {
    std::uint32_t lanes = 0;
    std::uint32_t missing = 0;  // Members that have neither come nor exited.
  };
  // The first group that cannot act. Empty when all can.
  std::optional<Group> Incomplete() const;

 private:
  struct Place {
    const MicroOp* op = nullptr;
    std::byte* frame = nullptr;
    std::uint32_t members = 0;
  };

  Group GetGroup(std::uint32_t lane, std::uint32_t among) const;
  void ActTogether(std::uint32_t lanes);

  Warp& warp_;
  std::uint32_t waiting_ = 0;
  std::array<Place, kLanes> places_;  // Where the waiting lanes wait.
};

}  // namespace gpushared::device::executor

#endif  // GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_MEETING_H_

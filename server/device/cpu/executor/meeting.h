// SPDX-License-Identifier: Apache-2.0
// Instructions in which lanes of a warp with the same member mask act together: shfl.sync,
// vote.sync and others. Synchronizes lanes that arrive on different paths. Private to the executor.

#ifndef GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_MEETING_H_
#define GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_MEETING_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "server/device/cpu/executor/code.h"
#include "server/device/cpu/executor/warp.h"

namespace gpushared::device::executor {

// The lanes of a warp that wait for each other, each with its instruction and the frame of its
// call. Lanes meet if they name the same members in the same kind of instruction, which need not be
// at the same place (PTX ISA: "the same qualifiers and same membermask value"). Borrows the warp
// and its registers.
class Meeting {
 public:
  explicit Meeting(Warp& warp) : warp_(warp) {}

  // Adds a waiting path. Returns its waiting lanes: the active lanes whose guard does not skip the
  // instruction.
  std::uint32_t Add(const Path& path);
  // Executes the instruction for lanes whose members have all arrived or exited. Returns these
  // lanes.
  std::uint32_t Act();

  struct Group {
    std::uint32_t lanes = 0;
    std::uint32_t missing = 0;  // The group's members that have neither arrived nor exited.
  };
  // Returns the first group that cannot act; empty if all can.
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
  std::array<Place, kLanes> places_;  // Indexed by lane; valid for the lanes in waiting_.
};

}  // namespace gpushared::device::executor

#endif  // GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_MEETING_H_

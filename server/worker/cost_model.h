// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_COST_MODEL_H_
#define GPUSHARED_SERVER_WORKER_COST_MODEL_H_

#include <array>
#include <cstdint>

#include "scheduler/predictor.h"
#include "scheduler/types.h"
#include "server/worker/command_slab.h"

namespace gpushared::server {

// How long a command will hold the device. Launches by (module, kernel, grid, block, shared
// memory): what else decides is in the client's data. Copies and fills by kind and size, for
// all clients together: they all run the same code.
//
// Confined to the device thread.
class CostModel {
 public:
  // `module_serial` is never reused, so no client's samples touch another's predictions.
  static std::uint64_t LaunchKey(std::uint64_t module_serial, const device::LaunchWork& work);

  // Of what is left of the command.
  scheduler::Duration Predict(const CommandSlot& command) const;

  // Only for commands that ran whole, and next to nothing else.
  void AddSample(const CommandSlot& command, scheduler::Duration measured);

 private:
  static constexpr std::size_t kCopyKinds = 4;
  static constexpr std::size_t kSizes = 65;  // By bit width of the number of bytes.

  static std::size_t CopyKind(CommandKind kind);

  scheduler::Predictor launches_;
  // Running maximum in ns; 0: no sample yet.
  std::array<std::array<std::int64_t, kSizes>, kCopyKinds> copies_ = {};
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_COST_MODEL_H_

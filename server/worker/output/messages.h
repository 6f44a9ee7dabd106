// SPDX-License-Identifier: Apache-2.0
// What the control thread and the device thread tell each other. A session is named by its
// number: a message about one that has gone meanwhile is dropped by its receiver.

#ifndef GPUSHARED_SERVER_WORKER_OUTPUT_MESSAGES_H_
#define GPUSHARED_SERVER_WORKER_OUTPUT_MESSAGES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "gpushared/status.h"

#include "scheduler/predictor.h"
#include "scheduler/types.h"
#include "server/device/device.h"
#include "server/telemetry/trace/writer.h"
#include "server/worker/output/kernel_watch.h"
#include "server/worker/output/request_report.h"
#include "server/worker/state/client_caps.h"
#include "server/worker/state/client_state.h"
#include "server/worker/state/counters.h"

namespace gpushared::server {

// ---- to the device thread

// Takes its commands from now on.
struct AttachClient {
  std::unique_ptr<ClientState> client;
};
// Drops what is queued, ends what runs; answered by ClientDetached.
struct DetachClient {
  std::uint64_t session = 0;
};
// These six change what the client's commands may name and are answered by Applied. One at a
// time per session.
struct AddModule {
  std::uint64_t session = 0;
  std::uint32_t number = 0;
  const device::Module* module = nullptr;  // Good until ModuleReleased or ClientDetached.
  std::uint64_t identity = 0;              // See CostModel.
};
// After what was submitted before. Followed by ModuleReleased once no command uses it.
struct RemoveModule {
  std::uint64_t session = 0;
  std::uint32_t number = 0;
};
struct AddStagingBuffer {
  std::uint64_t session = 0;
  std::uint32_t number = 0;
  std::span<std::byte> bytes;
  int fd = -1;  // See CommandScope::AddStagingBuffer.
};
// A smaller size takes effect after what was submitted before, and is answered when all of
// that has finished: nothing touches the memory then.
struct SetMapped {
  std::uint64_t session = 0;
  std::uint64_t bytes = 0;
};
struct AddMapping {
  std::uint64_t session = 0;
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
};
// Of the mapping that begins there. As a smaller size of SetMapped.
struct RemoveMapping {
  std::uint64_t session = 0;
  std::uint64_t address = 0;
};
// These four come where memory moves (scheduler::Residency). What the client has in the space now.
struct MemoryChanged {
  std::uint64_t session = 0;
  device::SpaceUse use;
};
// Device memory of a session that has gone is free.
struct MemoryFreed {};
// It needs so much more device memory than is free. One question at a time; answered by
// MemoryAnswer.
struct RequestMemory {
  std::uint64_t session = 0;
  std::uint64_t bytes = 0;
};
// The answer to SwapMemory.
struct MemorySwapped {
  std::uint64_t session = 0;
  device::SpaceUse use;
  bool has_failed = false;  // A move out; nothing is lost.
};
struct ChangeClient {
  std::uint64_t session = 0;
  scheduler::ClientSpec spec;
  ClientCaps caps;
};
// Answered by StreamError.
struct AskStreamError {
  std::uint64_t session = 0;
  std::uint32_t stream = 0;
};
// Answered by StatsTaken.
struct AskStats {
  std::uint64_t token = 0;
};
// Answered by RequestTold.
struct AskRequest {
  std::uint64_t token = 0;
  std::uint64_t session = 0;
  std::uint64_t request = 0;  // 0: the slowest of those that are known.
};
// Answered by CostsTaken, if anything was learnt since the last time.
struct AskCosts {};
// What runs is written there from now on; null: nowhere. The writer before it comes back with
// TraceOver.
struct SetTrace {
  std::unique_ptr<trace::Writer> writer;
};
// Ends the thread. No client is attached then.
struct StopThread {};

using DeviceMessage =
    std::variant<StopThread, AttachClient, DetachClient, AddModule, RemoveModule, AddStagingBuffer,
                 SetMapped, AddMapping, RemoveMapping, MemoryChanged, MemoryFreed, RequestMemory,
                 MemorySwapped, ChangeClient, AskStreamError, AskStats, AskRequest, AskCosts,
                 SetTrace>;

// ---- to the control thread

struct ClientDetached {
  std::unique_ptr<ClientState> client;  // Nothing of it is on the device or will be.
};
// The client's bytes were rejected; the session is to be ended.
struct ClientBroke {
  std::uint64_t session = 0;
  Status status;
};
struct Applied {
  std::uint64_t session = 0;
};
// Pages of them may be gone, see StagingWatch.
struct CheckStagingBuffers {
  std::uint64_t session = 0;
};
// Move these steps of the session's memory. Nothing that touches them is on the device, nor will
// be.
struct SwapMemory {
  std::uint64_t session = 0;
  bool goes_out = false;
  std::vector<std::uint32_t> steps;
  bool is_guaranteed = false;  // Whoever waits for it has a right to the room.
  bool is_urgent = false;      // Whoever waits for it is.
};
// Its move is to end after the present step: somebody has a right to what it waits for.
struct PreemptSwap {
  std::uint64_t session = 0;
  bool is_urgent = false;  // Whoever waits for it is.
};
struct MemoryAnswer {
  std::uint64_t session = 0;
  bool is_made = false;  // Else it cannot be had.
};
struct ModuleReleased {
  std::uint64_t session = 0;
  std::uint32_t number = 0;
};
struct StreamError {
  std::uint64_t session = 0;
  std::uint32_t stream = 0;
  std::uint64_t sequence = 0;
  Status status;
};
struct StatsTaken {
  std::uint64_t token = 0;
  ThreadSnapshot snapshot;
};

struct RequestTold {
  std::uint64_t token = 0;
  std::unique_ptr<const RequestsTold> told;  // Large.
};
// In parts, in no order.
struct CostsTaken {
  std::vector<scheduler::KnownCost> costs;
  bool is_last = true;
};
// Nothing is written there any more; to be freed where that may take long.
struct TraceOver {
  std::unique_ptr<trace::Writer> writer;
};
// Not all promises can be kept at this moment. Not told again for a while.
struct Overloaded {
  std::array<std::uint64_t, scheduler::kSchedulingClasses> abandoned{};  // Over all, by class.
};

// The device's context is dead: nothing will run any more, for anybody.
struct DeviceLost {
  Status status;
};

using ControlMessage =
    std::variant<ClientDetached, ClientBroke, Applied, CheckStagingBuffers, SwapMemory, PreemptSwap,
                 MemoryAnswer, ModuleReleased, StreamError, StatsTaken, RequestTold, CostsTaken,
                 TraceOver, Overloaded, KernelsEnded, KernelNoted, DeviceLost>;

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_OUTPUT_MESSAGES_H_

// SPDX-License-Identifier: Apache-2.0
// Messages between the control thread and the device thread. They name sessions by number; a
// message about a session that no longer exists is dropped by its receiver.

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
#include "scheduler/residency.h"
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

// Starts taking the client's commands.
struct AttachClient {
  std::unique_ptr<ClientState> client;
};
// Drops the client's queued commands and ends its running ones; answered by ClientDetached.
struct DetachClient {
  std::uint64_t session = 0;
};
// Pauses the client and, once its commands and marked requests have ended, detaches it with its
// saved state. Answered by ClientDetached, or by ClientKept if that has not happened by `until` or
// the client cannot be saved.
struct ReleaseClient {
  std::uint64_t session = 0;
  scheduler::TimePoint until{};
};
// Ends the client's pause.
struct ResumeClient {
  std::uint64_t session = 0;
};
// The following six messages change the objects that the client's commands may name. Each is
// answered by Applied, and at most one per session is pending.
struct AddModule {
  std::uint64_t session = 0;
  std::uint32_t number = 0;
  const device::Module* module = nullptr;  // Valid until ModuleReleased or ClientDetached.
  std::uint64_t identity = 0;              // See CostModel.
};
// Takes effect after the commands submitted before it. Followed by ModuleReleased once no command
// uses the module.
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
// A smaller size takes effect after the commands submitted before it, and is answered when all of
// these have finished, so that none can still access the memory.
struct SetMapped {
  std::uint64_t session = 0;
  std::uint64_t bytes = 0;
};
struct AddMapping {
  std::uint64_t session = 0;
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
};
// Removes the mapping that begins at `address`; ordered like a smaller size in SetMapped.
struct RemoveMapping {
  std::uint64_t session = 0;
  std::uint64_t address = 0;
};
// The following five messages are sent only if memory is oversubscribed (scheduler::Residency).
// This one reports the client's current memory use.
struct MemoryChanged {
  std::uint64_t session = 0;
  device::SpaceUse use;
};
// Device memory of a session that has ended was freed.
struct MemoryFreed {};
// Requests device memory beyond what is free. At most one request per session is pending; answered
// by MemoryAnswer.
struct RequestMemory {
  std::uint64_t session = 0;
  std::uint64_t bytes = 0;
};
// Answer to SwapMemory.
struct MemorySwapped {
  std::uint64_t session = 0;
  device::SpaceUse use;
  bool has_failed = false;  // A swap-out failed; no data is lost.
};
// Parks or wakes a client. Answered by ClientParked.
struct ParkClient {
  std::uint64_t token = 0;
  std::uint64_t session = 0;
  bool wakes = false;
  bool is_held = false;  // See scheduler::Residency::Park.
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
// Answered by RequestAnswer.
struct AskRequest {
  std::uint64_t token = 0;
  std::uint64_t session = 0;
  std::uint64_t request = 0;  // 0: the slowest known one.
};
// Answered by CostsTaken if costs were learnt since they were last reported.
struct AskCosts {};
// Directs the trace to `writer`; null stops it. The previous writer is returned with TraceOver.
struct SetTrace {
  std::unique_ptr<trace::Writer> writer;
};
// Energy that the device has used, and critical errors that the driver has reported, since the last
// message of this type.
struct CountGpu {
  std::uint64_t energy_mj = 0;
  std::uint64_t xids = 0;
};
// Ends the thread. No client may be attached.
struct StopThread {};

using DeviceMessage =
    std::variant<StopThread, AttachClient, DetachClient, ReleaseClient, ResumeClient, AddModule,
                 RemoveModule, AddStagingBuffer, SetMapped, AddMapping, RemoveMapping,
                 MemoryChanged, MemoryFreed, RequestMemory, MemorySwapped, ParkClient, ChangeClient,
                 AskStreamError, AskStats, AskRequest, AskCosts, SetTrace, CountGpu>;

// ---- to the control thread

struct ClientDetached {
  std::unique_ptr<ClientState> client;  // Has no work on the device and never will.
};
// The client continues here; see ReleaseClient.
struct ClientKept {
  std::uint64_t session = 0;
  Status why;
};
// The client sent invalid data; its session must be ended.
struct ClientBroke {
  std::uint64_t session = 0;
  Status status;
};
struct Applied {
  std::uint64_t session = 0;
};
// The client may have removed pages of its staging buffers, see StagingWatch.
struct CheckStagingBuffers {
  std::uint64_t session = 0;
};
// Swaps these pages of the session's memory. No work that touches them is on the device or will be
// submitted.
struct SwapMemory {
  std::uint64_t session = 0;
  bool goes_out = false;
  std::vector<std::uint32_t> steps;
  bool is_guaranteed = false;  // The client that waits for the swap is within its guarantee.
  bool parks = false;          // The session is parked, so all of its memory may be swapped out.
  bool is_urgent = false;      // The client that waits for the swap is urgent.
};
// Requests that the session's swap end after the current page, because a client within its
// guarantee is waiting.
struct PreemptSwap {
  std::uint64_t session = 0;
  bool is_urgent = false;  // The waiting client is urgent.
};
struct MemoryAnswer {
  std::uint64_t session = 0;
  bool is_made = false;  // If false, the memory is unobtainable.
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
struct ClientParked {
  std::uint64_t token = 0;
  Status status;
  std::uint64_t bytes = 0;  // Memory of the client that can be swapped.
  scheduler::ParkingState parking;
};
struct StatsTaken {
  std::uint64_t token = 0;
  ThreadSnapshot snapshot;
};

struct RequestAnswer {
  std::uint64_t token = 0;
  std::unique_ptr<const RequestReports> reports;  // Allocated separately because it is large.
};
// Sent in parts, in no particular order.
struct CostsTaken {
  std::vector<scheduler::KnownCost> costs;
  bool is_last = true;
};
// The device thread no longer uses the writer. The receiver frees it on a thread where that may
// take long.
struct TraceOver {
  std::unique_ptr<trace::Writer> writer;
};
// Some latency targets cannot be met at the moment. Rate-limited.
struct Overloaded {
  // Abandoned latency targets since the start, by class.
  std::array<std::uint64_t, scheduler::kSchedulingClasses> abandoned{};
};

// The device's context is lost: no further work of any client will run.
struct DeviceLost {
  Status status;
};

using ControlMessage =
    std::variant<ClientDetached, ClientKept, ClientBroke, Applied, CheckStagingBuffers, SwapMemory,
                 PreemptSwap, MemoryAnswer, ModuleReleased, StreamError, ClientParked, StatsTaken,
                 RequestAnswer, CostsTaken, TraceOver, Overloaded, KernelsEnded, KernelNoted,
                 DeviceLost>;

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_OUTPUT_MESSAGES_H_

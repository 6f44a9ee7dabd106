// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_CONTROL_SESSION_H_
#define GPUSHARED_SERVER_WORKER_CONTROL_SESSION_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "gpushared/result.h"
#include "gpushared/status.h"

#include "ipc/shared_segment.h"
#include "ipc/unbounded_calls.h"
#include "ipc/unique_fd.h"
#include "ipc/unix_socket.h"
#include "ipc/wire/channel.h"
#include "ipc/wire/control.h"
#include "scheduler/policy.h"
#include "scheduler/types.h"
#include "server/device/device.h"
#include "server/modules/loader/module_reader.h"
#include "server/worker/control/client_chunks.h"
#include "server/worker/control/client_log.h"
#include "server/worker/control/home_executor.h"
#include "server/worker/control/kernel_output.h"
#include "server/worker/control/slow_calls.h"
#include "server/worker/control/staging_budget.h"
#include "server/worker/control/stats.h"
#include "server/worker/control/swap_reservation.h"
#include "server/worker/loop/device_signal.h"
#include "server/worker/output/mailbox.h"
#include "server/worker/output/messages.h"
#include "server/worker/state/client_caps.h"
#include "server/worker/state/cost_model.h"
#include "server/worker/state/keyed_hash.h"
#include "server/worker/state/session_limits.h"
#include "server/worker/state/spin_times.h"

namespace gpushared::server {

// All memory of one session: what the client shares with us and what it has on the device.
// Members are destroyed last to first, so modules go before the space they were loaded into.
struct SessionMemory {
  SessionMemory() = default;
  SessionMemory(const SessionMemory&) = delete;
  SessionMemory& operator=(const SessionMemory&) = delete;
  ~SessionMemory() = default;
  // Gives back a module, a mapping, a chunk or a part of the rest, in about a millisecond. False
  // when little is left, for the destructor.
  bool ReturnPart();

  ipc::SharedSegment commands;
  ipc::SharedSegment completions;
  ipc::UniqueFd doorbell;
  std::vector<ipc::SharedSegment> staging_buffers;  // By number; never removed alone.
  std::vector<std::unique_ptr<device::PinnedMemory>> pinned_staging_buffers;
  std::unique_ptr<SwapReservation> cover;  // Null where memory does not move. For slow calls.
  std::unique_ptr<device::Space> space;
  std::uint64_t mapped_bytes = 0;  // In the space, from its bottom.
  ClientChunks chunks;
  struct LoadedModule {
    std::shared_ptr<const device::Module> module;
    std::uint64_t bytes = 0;  // Size of its image.
    bool is_leaving = false;  // Unloaded; commands may still use it.
  };
  std::map<std::uint32_t, LoadedModule> modules;  // By the client's number.
};

// What a session uses of its worker; outlives all sessions.
struct SessionEnvironment {
  boost::asio::io_context& context;  // The control thread's.
  SlowCalls& slow_calls;
  loader::ModuleReader& reader;
  Mailbox<DeviceMessage>& device_thread;
  device::Device& device;
  // Where device memory goes that clients hold beyond their guarantees. Null: nowhere.
  std::shared_ptr<device::SwapStore> store;
  const DeviceSignal& signal;
  scheduler::LaneRules lane_rules;
  SessionLimits limits;
  bool shares_by_uid = true;  // See WorkerSettings.
  StagingBudget& staging;
  StagingBudget& images;  // For memory that clients write module images into.
  std::shared_ptr<GraphBudget> graphs;
  HomeExecutor home;             // For `endings`.
  ipc::UnboundedCalls& endings;  // Of what clients hold, too: sockets and memory.
  ClientLog& log;
  KernelOutputLog& kernel_output;
  std::uint32_t mappings =
      0;  // Of all sessions, at most limits.mappings_max; the control thread's.
  std::uint32_t generation = 1;
  SpinTimes spin;
  HashSeed cost_seed{};                  // See CostModel.
  bool driver_compiles_for_all = false;  // See WorkerOptions.
  std::function<void(std::uint64_t session)> on_started;
  // It has ended and nothing of it is left on any other thread: destroy it.
  std::function<void(std::uint64_t session)> on_over;
  // After its destruction: its memory is free again. kOk: the client went by itself.
  std::function<void(std::uint64_t session, const Status& why)> on_memory_returned;
};

// One client, from its handshake until the last byte it owned is freed.
//
// It owns everything that the client can name. It ends for one of four reasons: the socket closes,
// the process dies (a forked child may hold the socket), the client breaks the protocol, or the
// broker says so. All of them go through End, which takes the client away from the device thread.
// When that has nothing of it left, the destructor runs, the only place where anything is freed.
//
// It never waits for the client. Requests are handled one at a time. The next one is read when the
// answer to the last one has left. A client that does not read holds up nobody else.
//
// Confined to the control thread. Its slow calls work on values of their own and on the space,
// one at a time.
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(SessionEnvironment& environment, ipc::Attach attach, ipc::UniqueFd socket,
          ipc::UniqueFd pidfd);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Makes its memory, welcomes the client and starts to serve it.
  void Start();
  // Idempotent. kOk: the client went by itself; anything else is told to it.
  void End(Status why);
  void Change(const scheduler::ClientSpec& spec, const ClientCaps& caps);

  // From the device thread.
  void OnDetached(std::unique_ptr<ClientState> client);
  void OnApplied();
  void OnModuleReleased(std::uint32_t number);
  void OnStreamError(const StreamError& error);
  void OnSwap(const SwapMemory& move);
  // The last move ends after its present step. `is_urgent`: whose turn it is now.
  void PreemptSwap(bool is_urgent);
  void OnMemory(bool is_made);
  // Ends the client that takes pages of its staging buffers away.
  void CheckStagingBuffers();

  std::uint64_t id() const { return attach_.session; }
  bool has_ended() const { return has_ended_; }
  // It was started, and has one of the device's places until it is destroyed.
  bool has_place() const { return has_place_; }
  // It may use places and memory that others must leave.
  bool MayUseReserve() const;
  const std::string& who() const { return who_; }  // "client 7 'train' pid 4121"
  // Most device memory that it may hold. Where memory does not move, it is no more than its
  // guarantee. Where all of it moves together, it is no more than fits on the device at one time.
  std::uint64_t quota_bytes() const;
  const scheduler::ClientSpec& spec() const { return spec_; }
  const ClientCaps& caps() const { return caps_; }
  SessionFacts Facts() const;
  // Its work on the device, as far as that is known without asking the device thread: "kernel
  // 'scale' [client 7 'train' pid 4121]". Nothing where it has none there.
  std::optional<std::string> ShownRunning() const;
  // For a broker that does not know it.
  ipc::RegistrySession Row() const;

 private:
  using Descriptor = boost::asio::posix::stream_descriptor;

  // Handshake.
  std::uint64_t LeftFree() const;
  static Result<std::unique_ptr<SessionMemory>> MakeMemory(device::Device& device,
                                                           const device::SpaceOptions& options,
                                                           std::shared_ptr<device::SwapStore> store,
                                                           std::uint64_t guaranteed_bytes);
  void OnMemoryMade(Result<std::unique_ptr<SessionMemory>> memory);
  void Attach();
  void Welcome();

  // Socket.
  void WatchDeath();
  void WatchForDeath(Descriptor& watched, Descriptor::wait_type wait);
  void ReadOn();
  void OnReadable();
  void FlushOutbox();
  template <typename T>
  void Reply(const T& message, std::vector<ipc::UniqueFd> fds = {});
  void Reject(const Status& why);
  void EndFor(const Status& violation);  // Protocol violations, with who did it.
  bool is_busy() const { return is_request_open_ || !outbox_.empty(); }

  // Requests; in session_requests.cpp.
  void Handle(ipc::Frame frame);
  void Handle(const ipc::MakeImage& request);
  void Handle(const ipc::LoadModule& request);
  void Handle(const ipc::UnloadModule& request);
  void Handle(const ipc::ResizeMemory& request);
  void Handle(const ipc::ChangeChunk& request);
  void Handle(const ipc::SetKernelMemory& request);
  void Handle(const ipc::AddStagingBuffer& request);
  void Handle(const ipc::DescribeError& request);
  void Handle(const ipc::TakePrinted& request);
  struct IdentifiedModule {
    std::shared_ptr<const device::Module> module;
    std::uint64_t identity = 0;  // See CostModel.
  };
  void GiveBackImage();
  CostModel::Owner owner() const;
  void OnModuleRead(const ipc::LoadModule& request, Result<loader::ModuleReader::Loaded> loaded);
  // A module that was read, on its way into the space.
  struct Placing {
    ipc::LoadModule request;
    std::shared_ptr<const device::PreparedModule> module;
    std::shared_ptr<void> place;  // Among those that wait.
    std::uint64_t identity = 0;   // See CostModel.
    int memory_requests_open = 0;
    std::uint64_t missing_bytes = 0;  // Device memory that it lacks within the guarantee.
  };
  void Place(const std::shared_ptr<Placing>& placing);
  static Result<std::shared_ptr<const device::Module>> PlaceCovered(device::Space& space,
                                                                    SwapReservation* cover,
                                                                    Placing& placing);
  void OnModuleParsed(const ipc::LoadModule& request, Result<IdentifiedModule> module);

  // Device memory; in session_memory.cpp.
  // Others may take the room that was made before it is used. A client that asks so often in vain
  // is rejected what it asked for.
  static constexpr int kMemoryRequestsMax = 16;
  bool memory_swaps() const { return environment_.store != nullptr; }
  // A change of what is mapped, in several slow calls, so that others have their turn in between.
  struct Resizing {
    std::uint64_t asked_bytes = 0;
    std::uint64_t before_bytes = 0;
    bool is_last_step = false;
    int memory_requests_open = 0;
    Status failure;  // Of a step: what was gained goes back.
    std::uint64_t wanted_bytes() const { return failure.ok() ? asked_bytes : before_bytes; }
  };
  // One slow call of it.
  struct ResizeStep {
    Result<std::uint64_t> mapped;
    std::optional<device::SpaceUse> use;  // Where memory moves.
    std::uint64_t missing_bytes = 0;      // Device memory that would have helped.
  };
  static ResizeStep MakeResizeStep(device::Space& space, SwapReservation* cover,
                                   std::uint64_t bytes, std::uint64_t quota_bytes);
  // How much is mapped in one slow call.
  std::uint64_t GrowStep() const;
  void Resize(Resizing resizing);
  void OnResizeStep(Resizing resizing, const ResizeStep& step);
  bool MayAwaitMemory(const ResizeStep& step) const;
  void OnResized(const Resizing& resizing);
  // Requests about chunks; in session_chunks.cpp.
  void MakeChunk(std::uint32_t number, std::uint64_t bytes, int memory_requests_open = 0);
  void FreeChunk(std::uint32_t number);
  void MapChunk(std::uint32_t number, std::uint64_t address);
  void UnmapChunk(std::uint64_t address);
  // Runs `then(*this, whether it is there)` once so much more device memory is free.
  void AwaitMemory(std::uint64_t bytes, std::function<void(Session&, bool)> then);
  // The next step of a move, of which `done` bytes were moved. Of a slow call.
  void OnSwapEnded(const SwapMemory& move, const Status& status, const device::SpaceUse& use);
  // Tells the device thread what the space has now.
  void ReportMemory();

  // A staging buffer, and what keeps it ready for copies; the latter may be missing.
  struct StagingBuffer {
    ipc::SharedSegment memory;
    std::unique_ptr<device::PinnedMemory> pinned;
    Status why_not_pinned;
  };
  // Made by parts, of a slow call each: the kernel clears the pages of a part while it is made.
  struct StagingBufferInMaking {
    device::Device& device;
    const std::uint64_t bytes;
    ipc::SharedSegment memory{};
    std::uint64_t done = 0;

    std::optional<Result<StagingBuffer>> MakePart();  // Empty: there is more to do.
  };
  void OnStagingBufferMade(std::uint64_t bytes, Result<StagingBuffer> staging_buffer);
  Status CheckImage(std::uint64_t bytes) const;
  Status CheckNewModule(const ipc::LoadModule& request) const;
  Status TakePrintedBytes(std::uint64_t bytes);
  Status CheckNewStagingBuffer(const ipc::AddStagingBuffer& request) const;

  SlowCalls::Caller caller() const {
    const bool awaits_welcome = !is_welcomed_ && !has_ended_;
    return {.session = id(),
            .is_urgent = environment_.lane_rules.IsUrgent(spec_),
            .awaits_welcome = awaits_welcome,
            // A range of addresses costs nobody else's work anything where mapping does not.
            .disturbs = !awaits_welcome || environment_.device.info().swaps_disturb};
  }
  // Runs `work()` as a slow call and then `done(*this, its result)` here.
  template <typename Work, typename Done>
  void MakeSlowCall(Work work, Done done);
  // The same with a call that is short if it places, maps or makes no more than so many bytes.
  template <typename Work, typename Done>
  void MakeSlowCallFor(std::uint64_t bytes, Work work, Done done);
  template <typename Work, typename Done>
  void MakeShortOrLongCall(bool is_short, Work work, Done done);
  SlowCalls::Caller GetCaller(bool is_short);
  // `work` returns an optional result; it is called again, as a slow call of its own, while that is
  // empty.
  template <typename Work, typename Done>
  void MakeSlowSteps(const SlowCalls::Caller& whose, Work work, Done done);
  template <typename Work, typename Done>
  void MakeSlowCallAs(const SlowCalls::Caller& whose, Work work, Done done);
  // Tells the device thread and runs `then` when it has done it.
  void Apply(DeviceMessage message, std::function<void()> then);
  void CheckOver();
  // This thread calls it when all memory is back. `mappings`: places where chunks were mapped.
  std::function<void()> Returned(std::uint32_t mappings);

  SessionEnvironment& environment_;
  const ipc::Attach attach_;
  const std::string who_;
  std::shared_ptr<PrintedText> printed_;  // Null: the client takes none.
  scheduler::ClientSpec spec_;
  ClientCaps caps_;
  const std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
  Descriptor socket_;
  Descriptor pidfd_;
  ipc::UniqueFd closing_;  // The socket of a session that has ended.
  ipc::FrameReader reader_;
  ipc::Outbox outbox_;
  std::unique_ptr<SessionMemory> memory_;

  std::uint32_t request_ = 0;  // Number of the open request.
  bool is_request_open_ = false;
  bool is_reading_ = false;   // A wait for readability is pending.
  bool is_flushing_ = false;  // A wait for writability is pending.
  // The device thread has it: but for `running` it is not to be read. Null: it has none.
  const ClientState* attached_ = nullptr;
  bool is_welcomed_ = false;
  std::uint32_t slow_calls_ = 0;        // That have not ended: a request's, and a move of memory.
  std::atomic<bool> has_ended_{false};  // Of this thread; the steps of a slow call look at it.
  std::uint32_t new_client_calls_ = 0;  // Short calls that went before others'.
  bool has_place_ = false;
  Status why_ended_;
  std::function<void()> on_applied_;
  std::function<void(Session&, bool)> on_memory_;
  // Null: no move is made. The slow calls' thread reads it.
  std::shared_ptr<std::atomic<bool>> is_move_cut_;
  std::uint64_t module_bytes_ = 0;   // Sum over loaded modules.
  std::uint64_t staging_bytes_ = 0;  // Taken from the staging budget, also for one being made.
  ipc::UniqueFd image_;              // Made for the client to write; the next load takes it.
  std::uint64_t image_bytes_ = 0;    // Taken from the images' budget, until it is read.
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_CONTROL_SESSION_H_

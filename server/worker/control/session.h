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

#include "ipc/owner.h"
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
#include "server/worker/control/saved_session.h"
#include "server/worker/control/slow_calls.h"
#include "server/worker/control/staging_budget.h"
#include "server/worker/control/stats.h"
#include "server/worker/control/swap_reservation.h"
#include "server/worker/output/mailbox.h"
#include "server/worker/output/messages.h"
#include "server/worker/state/client_caps.h"
#include "server/worker/state/cost_model.h"
#include "server/worker/state/keyed_hash.h"
#include "server/worker/state/session_limits.h"
#include "server/worker/state/spin_times.h"

namespace gpushared::server {

// All memory of one session: the segments shared with the client, and the client's device memory.
// Members are destroyed last to first, so that modules are destroyed before the space into which
// they were loaded.
struct SessionMemory {
  SessionMemory() = default;
  SessionMemory(const SessionMemory&) = delete;
  SessionMemory& operator=(const SessionMemory&) = delete;
  ~SessionMemory() = default;
  // Frees one module, registration of a staging buffer, mapping, chunk or part of the remaining
  // memory, which takes about a millisecond. Returns false when the rest is small enough for the
  // destructor.
  bool ReturnPart();

  ipc::SharedSegment commands;
  ipc::SharedSegment completions;
  ipc::SharedSegment page;
  ipc::UniqueFd doorbell;
  std::vector<ipc::SharedSegment> staging_buffers;  // By number; never removed individually.
  std::vector<std::unique_ptr<device::PinnedMemory>> pinned_staging_buffers;
  // Null unless memory is oversubscribed. Used by slow calls.
  std::unique_ptr<SwapReservation> cover;
  std::unique_ptr<device::Space> space;
  std::uint64_t mapped_bytes = 0;  // Memory mapped from the bottom of the space.
  ClientChunks chunks;
  struct LoadedModule {
    std::shared_ptr<const device::Module> module;
    std::uint64_t bytes = 0;     // Size of its image.
    std::uint64_t identity = 0;  // See CostModel.
    // Null if the image was not kept, so that the session cannot be moved.
    std::shared_ptr<const std::vector<std::byte>> image;
    bool is_leaving = false;  // Unloaded, but commands may still use it.
  };
  std::map<std::uint32_t, LoadedModule> modules;  // By the number that the client assigned.
};

// Parts of the worker that sessions use. Outlives all sessions.
struct SessionEnvironment {
  boost::asio::io_context& context;  // The control thread runs it.
  SlowCalls& slow_calls;
  loader::ModuleReader& reader;
  Mailbox<DeviceMessage>& device_thread;
  device::Device& device;
  // Swap space for device memory that clients hold beyond their guarantees. Null if memory is not
  // oversubscribed.
  std::shared_ptr<device::SwapStore> store;
  std::chrono::nanoseconds idle_after{};  // See WorkerSettings.
  scheduler::LaneRules lane_rules;
  SessionLimits limits;
  bool shares_by_uid = true;  // See WorkerSettings.
  StagingBudget& staging;
  StagingBudget& images;  // Budget of the memory into which clients write module images.
  // Budget of the images that are kept in case their sessions are moved.
  StagingBudget& kept_images;
  std::shared_ptr<GraphBudget> graphs;
  HomeExecutor home;  // For `endings`.
  // Releases sockets and memory that clients may still have open or mapped; a release may block.
  ipc::UnboundedCalls& endings;
  ClientLog& log;
  KernelOutputLog& kernel_output;
  // Mapped chunks of all sessions, at most limits.mappings_max; control thread only.
  std::uint32_t mappings = 0;
  std::uint32_t generation = 1;
  SpinTimes spin;
  HashSeed cost_seed{};                  // See CostModel.
  bool driver_compiles_for_all = false;  // See WorkerOptions.
  std::function<void(std::uint64_t session)> on_started;
  // Called when the session has ended and no other thread uses it. The callee destroys it.
  std::function<void(std::uint64_t session)> on_over;
  // Called after the session's destruction, when its memory is free again. `why` is kOk if the
  // client disconnected.
  std::function<void(std::uint64_t session, const Status& why)> on_memory_returned;
};

// One client session, from the handshake until the last byte that it owned is freed.
//
// It owns all objects that the client can name. A session ends when the socket closes, the process
// dies (a forked child may still hold the socket), the client violates the protocol, the broker
// terminates the session, or the worker rejects or cannot continue it, for example when the device
// is lost. In all cases End detaches the client from the device thread. Once the device thread
// has released the client and the session's slow calls have ended, the destructor posts a slow call
// that frees all remaining memory.
//
// A session never waits for its client. It handles one request at a time, and reads the next one
// when the previous reply has been sent, so a client that does not read its replies delays only
// itself.
//
// Confined to the control thread. Its slow calls operate on copies of values and on the space, one
// at a time.
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(SessionEnvironment& environment, ipc::Attach attach, ipc::UniqueFd socket,
          ipc::UniqueFd pidfd);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Allocates the session's memory, completes the handshake and starts to serve the client.
  void Start();
  // Ends the session. `why` is kOk if the client disconnected; any other status is sent to the
  // client. Idempotent.
  void End(Status why);
  void Change(const scheduler::ClientSpec& spec, const ClientCaps& caps);

  // Messages from the device thread.
  void OnDetached(std::unique_ptr<ClientState> client);
  void OnKept(const Status& why);
  void OnApplied();
  void OnModuleReleased(std::uint32_t number);
  void OnStreamError(const StreamError& error);
  void OnSwap(const SwapMemory& move);
  // Ends the latest swap after its current page. `is_urgent`: the client that waits for this is
  // urgent.
  void PreemptSwap(bool is_urgent);
  void OnMemory(bool is_made);
  // Returns kOk, or why the session cannot be parked.
  Status CheckParking() const;
  // Reserves swap space, then passes the request to the device thread, which answers the request.
  // Calls `rejected` if the swap space is full.
  void Park(const ParkClient& request, std::function<void(const Status&)> rejected);
  // Ends the session if the client has removed pages of its staging buffers.
  void CheckStagingBuffers();

  // Moves the session to another worker; in session_move.cpp. Until the commit, any failure leaves
  // the session here, and `failed` is called. After the commit, `left` is called, and the session
  // ends without effect on its client.
  void MoveOut(ipc::UniqueFd channel, std::function<void(const Status&)> failed,
               std::function<void()> left);
  // Ends a move that has not been committed.
  void AbandonMove(const Status& why);
  bool has_moved() const { return has_moved_; }
  // Called on a session that was created for one that arrives from another worker: builds it, but
  // takes none of its commands. `done` gets the result. After that, TakeOver starts it, or Forsake
  // drops it without effect on its client.
  void Adopt(MovedState moved, std::function<void(Status)> done);
  void TakeOver();
  void Forsake();
  std::uint64_t stopped_ns() const { return stopped_ns_; }
  std::uint64_t mapped_bytes() const { return memory_ == nullptr ? 0 : memory_->mapped_bytes; }

  std::uint64_t id() const { return attach_.session; }
  bool has_ended() const { return has_ended_; }
  // Returns whether the session has started. From its start until its destruction, a session counts
  // against SessionLimits::sessions_max.
  bool has_place() const { return has_place_; }
  // Returns whether the client may use the sessions and the memory that are reserved for some
  // clients.
  bool MayUseReserve() const;
  const std::string& who() const { return who_; }  // "client 7 'train' pid 4121"
  // Maximum device memory of the session: its quota or, without oversubscription or for a gated
  // client, its guarantee.
  std::uint64_t quota_bytes() const;
  const scheduler::ClientSpec& spec() const { return spec_; }
  const ClientCaps& caps() const { return caps_; }
  SessionFacts Facts() const;
  // Describes the session's work on the device without asking the device thread, as in "kernel
  // 'scale' [client 7 'train' pid 4121]". Empty if there is none.
  std::optional<std::string> ShownRunning() const;
  // Describes the session to a new broker.
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
  device::SpaceOptions GetSpaceOptions() const;
  void SetCanPark();
  std::unique_ptr<ClientState> MakeClient(std::uint64_t rung_max);
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
  void EndFor(const Status& violation);  // Ends the session because of a protocol violation.
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
    std::shared_ptr<const std::vector<std::byte>> image = nullptr;
  };
  void GiveBackImage();
  CostModel::Owner owner() const;
  void OnModuleRead(const ipc::LoadModule& request, Result<loader::ModuleReader::Loaded> loaded);
  // A module that was read and is being loaded into the space.
  struct Placing {
    ipc::LoadModule request;
    std::shared_ptr<const device::PreparedModule> module;
    std::shared_ptr<void> place;                           // See ModuleReader::Loaded.
    std::uint64_t identity = 0;                            // See CostModel.
    std::shared_ptr<const ipc::UniqueFd> image = nullptr;  // Null if it is not to be kept.
    int memory_requests_open = 0;
    std::uint64_t missing_bytes = 0;  // Missing device memory that is within the guarantee.
  };
  void Place(const std::shared_ptr<Placing>& placing);
  static Result<std::shared_ptr<const device::Module>> PlaceCovered(device::Space& space,
                                                                    SwapReservation* cover,
                                                                    Placing& placing);
  void OnModuleParsed(const ipc::LoadModule& request, Result<IdentifiedModule> module);

  // Device memory; in session_memory.cpp.
  //
  // Memory that was freed for this client may be taken by another client first. A request of this
  // client is rejected after this many fruitless attempts to get memory.
  static constexpr int kMemoryRequestsMax = 16;
  bool memory_swaps() const { return environment_.store != nullptr; }
  // A change of the mapped size, split into several slow calls so that other clients' calls are not
  // delayed.
  struct Resizing {
    std::uint64_t asked_bytes = 0;
    std::uint64_t before_bytes = 0;
    bool is_last_step = false;
    int memory_requests_open = 0;
    Status failure;  // Failure of a step, after which the memory gained so far is returned.
    std::uint64_t wanted_bytes() const { return failure.ok() ? asked_bytes : before_bytes; }
  };
  // Result of one slow call of a resize.
  struct ResizeStep {
    Result<std::uint64_t> mapped;
    std::optional<device::SpaceUse> use;  // Set if memory is oversubscribed.
    std::uint64_t missing_bytes = 0;      // Device memory that was missing.
  };
  static ResizeStep MakeResizeStep(device::Space& space, SwapReservation* cover,
                                   std::uint64_t bytes, std::uint64_t quota_bytes);
  // Minimum number of bytes by which one slow call grows the mapped memory; see MoreMapped.
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
  // Calls `then(*this, is_made)` once `bytes` more of device memory are free, or have turned out to
  // be unobtainable.
  void AwaitMemory(std::uint64_t bytes, std::function<void(Session&, bool)> then);
  // Called when a swap has ended.
  void OnSwapEnded(const SwapMemory& move, const Status& status, const device::SpaceUse& use);
  // Reports the space's memory use to the device thread.
  void ReportMemory();

  // A staging buffer and its registration with the device. The registration speeds up copies, and
  // may be missing.
  struct StagingBuffer {
    ipc::SharedSegment memory;
    std::unique_ptr<device::PinnedMemory> pinned;
    Status why_not_pinned;
  };
  // Staging buffer being created. Each part takes one slow call, because the kernel clears its
  // pages.
  struct StagingBufferInMaking {
    device::Device& device;
    const std::uint64_t bytes;
    ipc::SharedSegment memory{};
    std::uint64_t done = 0;

    std::optional<Result<StagingBuffer>> MakePart();  // Empty if parts remain.
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
            // Before the handshake is complete, a call only reserves a range of addresses, which
            // delays no work on devices whose swaps delay none.
            .disturbs = !awaits_welcome || environment_.device.info().swaps_disturb};
  }
  // Runs `work()` as a slow call and then `done(*this, result)` on the control thread.
  template <typename Work, typename Done>
  void MakeSlowCall(Work work, Done done);
  // Like MakeSlowCall. The call is short if `bytes`, the amount of memory that it places, maps,
  // unmaps or allocates, is at most kShortCallBytes.
  template <typename Work, typename Done>
  void MakeSlowCallFor(std::uint64_t bytes, Work work, Done done);
  template <typename Work, typename Done>
  void MakeShortOrLongCall(bool is_short, Work work, Done done);
  SlowCalls::Caller GetCaller(bool is_short);
  // `work` returns an optional result. While the result is empty, `work` is called again, each time
  // as a separate slow call.
  template <typename Work, typename Done>
  void MakeSlowSteps(const SlowCalls::Caller& whose, Work work, Done done);
  template <typename Work, typename Done>
  void MakeSlowCallAs(const SlowCalls::Caller& whose, Work work, Done done);
  // Posts the message to the device thread and runs `then` when it has been applied.
  void Apply(DeviceMessage message, std::function<void()> then);
  void CheckOver();

  // Moves; in session_move.cpp.
  struct Outgoing;
  Status CheckMove() const;
  void OnReleased(const SavedClient& saved);
  void AwaitIdle(const std::shared_ptr<Outgoing>& move);
  void Export(const std::shared_ptr<Outgoing>& move);
  void Offer(const std::shared_ptr<Outgoing>& move);
  void FlushOffer(const std::shared_ptr<Outgoing>& move);
  void WatchAnswer(const std::shared_ptr<Outgoing>& move);
  void OnAnswer(const std::shared_ptr<Outgoing>& move);
  void Commit();
  void AttachSaved(const SavedClient& saved);
  void LeaveSockets();
  std::vector<device::MemoryPiece> MovedPieces() const;
  struct Arriving;
  void AdoptModule(const std::shared_ptr<Arriving>& move);
  void ReadAdopted(const std::shared_ptr<Arriving>& move,
                   std::shared_ptr<const std::vector<std::byte>> bytes, ipc::UniqueFd file);
  void PlaceAdopted(const std::shared_ptr<Arriving>& move,
                    std::shared_ptr<const std::vector<std::byte>> bytes,
                    loader::ModuleReader::Loaded loaded);
  void AdoptMemory(const std::shared_ptr<Arriving>& move);
  void AdoptBuffers(const std::shared_ptr<Arriving>& move);
  void EndAdoption(const std::shared_ptr<Arriving>& move, Status status);
  bool TakeKeptImage(std::uint64_t bytes);
  void GiveBackKeptImage(std::uint64_t bytes);

  // Returns the function that the control thread calls when all memory is free. `mappings`: number
  // of mapped chunks.
  std::function<void()> Returned(std::uint32_t mappings);

  SessionEnvironment& environment_;
  const ipc::Attach attach_;
  const std::string who_;
  ipc::Owner work_owner_;                 // Known when the memory has been made.
  std::shared_ptr<PrintedText> printed_;  // Null if the client does not read printed text.
  scheduler::ClientSpec spec_;
  ClientCaps caps_;
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
  Descriptor socket_;
  Descriptor pidfd_;
  ipc::UniqueFd closing_;  // Socket of a session that has ended.
  ipc::FrameReader reader_;
  ipc::Outbox outbox_;
  std::unique_ptr<SessionMemory> memory_;

  std::uint32_t request_ = 0;  // Number of the open request.
  bool is_request_open_ = false;
  bool is_reading_ = false;   // A wait for readability is pending.
  bool is_flushing_ = false;  // A wait for writability is pending.
  // State owned by the device thread; only `running` may be read here. Null if not attached.
  const ClientState* attached_ = nullptr;
  bool is_welcomed_ = false;
  std::uint32_t slow_calls_ = 0;  // Unfinished slow calls, plus 1 while a module is being read.
  // Written by the control thread; polled by the steps of slow calls.
  std::atomic<bool> has_ended_{false};
  // Short calls that were preferred because the client was new.
  std::uint32_t new_client_calls_ = 0;
  bool has_place_ = false;
  bool can_park_ = false;  // Whether the session's memory can be swapped out.
  Status why_ended_;
  std::function<void()> on_applied_;
  std::function<void(Session&, bool)> on_memory_;
  // Null if no swap is running. Read by the slow calls' thread.
  std::shared_ptr<std::atomic<bool>> is_swap_preempted_;
  std::uint64_t module_bytes_ = 0;  // Sum over loaded modules.
  // Bytes taken from the staging budget, including those for a buffer being created.
  std::uint64_t staging_bytes_ = 0;
  ipc::UniqueFd image_;            // Memory into which the client writes the image to load next.
  std::uint64_t image_bytes_ = 0;  // Bytes taken from the images' budget until the load has ended.
  std::uint64_t kept_image_bytes_ = 0;    // Bytes taken from the kept images' budget.
  std::shared_ptr<Outgoing> outgoing_;    // Null unless the session is being moved.
  std::unique_ptr<SavedClient> arrived_;  // State of an adopted client until TakeOver.
  std::uint64_t stopped_ns_ = 0;          // See SavedSession.
  bool has_moved_ = false;                // The session belongs to another worker.
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_CONTROL_SESSION_H_

// SPDX-License-Identifier: Apache-2.0
// State of the public handles.

#ifndef GPUSHARED_CLIENT_LIB_SESSION_H_
#define GPUSHARED_CLIENT_LIB_SESSION_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gpushared/client.h"
#include "gpushared/mutex.h"
#include "gpushared/result.h"
#include "gpushared/status.h"

#include "client_lib/connection.h"
#include "client_lib/data_plane.h"
#include "client_lib/device_memory.h"
#include "client_lib/fork_guard.h"
#include "client_lib/graph_recorder.h"
#include "client_lib/progress.h"
#include "client_lib/request_list.h"
#include "client_lib/staging_buffer_set.h"
#include "ipc/wire/control.h"

namespace gpushared::client {

// One session with the server, from the handshake until its last handle is destroyed.
//
// In a forked child every operation is rejected and the destructor only closes descriptors, because
// the mappings are not inherited and their addresses may have been reused.
//
// Thread-safe.
class Session : public std::enable_shared_from_this<Session> {
 public:
  static Result<std::shared_ptr<Session>> Connect(const ClientOptions& options);
  static Result<std::vector<DeviceProperties>> ListDevices(const ClientOptions& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const DeviceProperties& device() const { return device_; }
  std::uint64_t id() const { return id_; }
  bool InOwner() const { return guard_.InOwner(); }
  // Returns kWrongProcess in a forked child, the reason if the session has ended, otherwise Ok.
  Status Usable() const;
  // As Usable, after polling the socket.
  Status CheckAlive();
  void Close();
  Status CloseAndWait();

  // ---- memory
  // `used_bytes`: see DeviceBuffer::used_bytes.
  Result<DeviceAddress> AllocateDevice(std::size_t bytes, std::uint64_t& used_bytes);
  void FreeDevice(DeviceAddress address);
  Result<std::byte*> AllocateHost(std::size_t bytes);
  void FreeHost(std::byte* block);
  MemoryInfo memory_info();
  Result<std::uint64_t> TrimDevice();
  // Calls on_memory_wanted if the wanted memory has changed. Must be called without a lock and
  // outside any unfinished operation of the program, because the callback may free the memory that
  // the operation uses.
  void ReportWanted() {
    if (!on_memory_wanted_) [[likely]]
      return;
    // Relaxed: an outdated value only delays the callback, or causes one callback too many.
    const bool has_changed =
        data_->plane->wanted_bytes() != wanted_reported_.load(std::memory_order_relaxed);
    if (has_changed || trim_is_due_.load(std::memory_order_relaxed)) ReportWantedNow();
  }
  StagingBufferSet& staging_buffers() { return *staging_buffers_; }
  // Calls StagingBufferSet::TryAllocateStaging, and while no memory is free, waits for retired
  // blocks.
  Result<StagingBlock> AllocateStaging(std::size_t bytes);

  // ---- chunks, numbered by the session
  const AddressArea& mapping_area() const { return mapping_area_; }
  Result<std::uint32_t> MakeChunk(std::uint64_t bytes);
  void FreeChunk(std::uint32_t number);
  Status MapChunk(std::uint32_t number, DeviceAddress address);
  // Unmaps once everything submitted before has ended.
  Status UnmapChunk(DeviceAddress address);

  // ---- modules
  Result<std::shared_ptr<const ModuleState>> LoadModule(std::span<const std::byte> image);
  // Unloads the module once everything submitted before has ended; only then is the number reused.
  void UnloadModule(std::uint32_t number);

  // ---- streams
  Result<std::shared_ptr<StreamRecord>> CreateStream();
  void DestroyStream(const std::shared_ptr<StreamRecord>& stream);

  // ---- graphs
  Result<std::uint32_t> TakeGraphNumber();
  void ReturnGraphNumber(std::uint32_t number);
  // Releases the number for reuse. Launches that were submitted before still run.
  void DestroyGraph(std::uint32_t number);

  // ---- requests
  // If kOpenRequestsMax requests are open, waits for one whose end has been submitted.
  Status BeginRequest(const std::shared_ptr<StreamRecord>& stream, std::chrono::nanoseconds age);
  Status EndRequest(const std::shared_ptr<StreamRecord>& stream);
  Status ExpectRequestIn(std::chrono::nanoseconds in);
  const std::shared_ptr<StreamRecord>& default_stream() const { return default_stream_; }

  // ---- printed text, kernel memory and faults
  Result<std::string> TakePrinted();
  Status SetKernelMemory(const Client::KernelMemory& memory);
  FaultKind first_fault() const { return data_->plane->first_fault(); }

  // ---- commands
  // As DataPlane::Submit, but fails in a forked child and on a failed stream.
  template <typename Record>
  Result<std::uint64_t> Submit(const std::shared_ptr<StreamRecord>& stream, const Record& record,
                               std::span<const std::byte> tail = {},
                               const std::shared_ptr<Mark>& mark = nullptr) {
    if (!InOwner() || data_->connection->ended() || stream->failed()) [[unlikely]] {
      return WhyRejected(*stream);
    }
    if (stream->recorder() != nullptr) [[unlikely]] {
      const Status added = stream->recorder()->Add(record, tail);
      if (!added.ok()) return added;
      return std::uint64_t{0};
    }
    return data_->plane->Submit(*stream, record, tail, mark);
  }
  // Waits until the command has ended. Returns the error of the stream if it failed at or before
  // this command.
  Status Await(StreamRecord& stream, std::uint64_t sequence);
  // As Await, but returns kNotReady instead of waiting. Polls the socket from time to time, so that
  // a caller in a polling loop notices the end of the session.
  Status Poll(StreamRecord& stream, std::uint64_t sequence);
  // Waits for everything submitted on all streams.
  Status Synchronize();
  std::uint64_t submitted(const StreamRecord& stream) const {
    return data_->plane->progress().submitted(stream.number());
  }
  const Progress& progress() const { return data_->plane->progress(); }
  void TakeCompletions() { data_->plane->TakeCompletions(); }
  // Returns the error of a failed stream, with the message of the server if that is still
  // available.
  Status GetError(StreamRecord& stream);

 private:
  // All objects that live in shared mappings or refer to them, so that a forked child can abandon
  // them together.
  struct SharedData {
    std::unique_ptr<Connection> connection;
    std::unique_ptr<DataPlane> plane;
  };
  struct RetiredModule {
    Fence fence;
    std::uint32_t number;
  };

  Session(std::unique_ptr<SharedData> data, const ipc::Welcome& welcome,
          const ClientOptions& options);

  void ReportWantedNow();
  // Returns the function that announces buffers to the server; empty if the server does not track
  // buffers.
  std::function<void(std::uint64_t, std::uint64_t)> GetNamer(const ipc::Welcome& welcome);
  void ReportBuffer(ipc::Op op, std::uint64_t address, std::uint64_t bytes);
  Status WhyRejected(StreamRecord& stream);
  Status Ask(const ipc::ChangeChunk& change);
  std::uint64_t chunk_bytes();
  Result<std::unique_ptr<StagingBuffer>> AddStagingBuffer(std::uint64_t bytes);
  // Unloads retired modules whose commands have ended, without waiting for an answer. Returns false
  // if modules are left because earlier answers are still outstanding.
  bool ReapModules();
  Result<std::uint32_t> TakeModuleNumber();
  Result<ipc::ModuleLoaded> AskToLoad(std::uint32_t number, std::span<const std::byte> image);
  // Returns a stream number whose previous stream has ended.
  Result<std::uint32_t> TakeStreamNumber();
  std::vector<std::shared_ptr<StreamRecord>> LiveStreams() const;

  const ForkGuard guard_;
  std::unique_ptr<SharedData> data_;
  const DeviceProperties device_;
  const std::uint64_t id_;
  const AddressArea mapping_area_;
  const bool takes_printed_;
  const std::function<void(std::uint64_t bytes)> on_memory_wanted_;
  std::atomic<std::uint64_t> wanted_reported_{0};
  // Set during the callback, so that it is not called recursively.
  std::atomic<bool> is_reporting_{false};
  // Set if memory that the program freed in the callback could not be trimmed yet, because commands
  // still used it.
  std::atomic<bool> trim_is_due_{false};
  Mutex printed_mutex_;
  // Bytes of DataPlane::printed that the program has taken; stored under printed_mutex_.
  std::atomic<std::uint64_t> printed_taken_{0};
  // Bytes that the server has reported as lost.
  std::uint64_t printed_dropped_ GPUSHARED_GUARDED_BY(printed_mutex_) = 0;
  std::unique_ptr<DeviceMemory> memory_;
  std::unique_ptr<StagingBufferSet> staging_buffers_;
  std::shared_ptr<StreamRecord> default_stream_;
  std::atomic<std::int64_t> last_poll_ns_{0};  // Time at which Poll last polled the socket.

  mutable Mutex streams_mutex_;
  // Streams by number; null if the number is free.
  std::vector<std::shared_ptr<StreamRecord>> streams_ GPUSHARED_GUARDED_BY(streams_mutex_);
  // Ends of destroyed streams, in the order of their destruction.
  std::deque<StreamPoint> destroyed_ GPUSHARED_GUARDED_BY(streams_mutex_);

  // Held while request marks are submitted, so that they are in the order of the list.
  Mutex requests_mutex_;
  RequestList requests_ GPUSHARED_GUARDED_BY(requests_mutex_);

  Mutex chunks_mutex_;  // Held while the server creates or frees a chunk.
  // Sizes of chunks by number; 0 if the number is free.
  std::vector<std::uint64_t> chunk_bytes_ GPUSHARED_GUARDED_BY(chunks_mutex_);

  Mutex graphs_mutex_;
  // Whether each graph number is in use.
  std::vector<bool> graph_used_ GPUSHARED_GUARDED_BY(graphs_mutex_);

  Mutex image_mutex_;  // Held while an image is sent to the server and loaded there.
  Mutex modules_mutex_;
  std::vector<bool> module_used_ GPUSHARED_GUARDED_BY(modules_mutex_);
  std::deque<RetiredModule> retired_modules_ GPUSHARED_GUARDED_BY(modules_mutex_);
  std::atomic<bool> has_retired_modules_{false};
};

// State of a Stream handle.
class StreamState {
 public:
  StreamState(std::shared_ptr<Session> session, std::shared_ptr<StreamRecord> record)
      : session_(std::move(session)), record_(std::move(record)) {}
  ~StreamState() {
    if (record_->number() != 0) session_->DestroyStream(record_);
  }
  StreamState(const StreamState&) = delete;
  StreamState& operator=(const StreamState&) = delete;

  Session& session() const { return *session_; }
  const std::shared_ptr<Session>& shared_session() const { return session_; }
  const std::shared_ptr<StreamRecord>& record() const { return record_; }

 private:
  const std::shared_ptr<Session> session_;
  const std::shared_ptr<StreamRecord> record_;
};

// State of an Event handle: the point at which the event is set.
class EventState {
 public:
  struct Point {
    std::shared_ptr<StreamRecord> stream;  // Null if never recorded.
    std::uint64_t sequence = 0;
    std::shared_ptr<Mark> mark;  // Set only for events with timing.
  };

  EventState(std::shared_ptr<Session> session, EventTiming timing)
      : session_(std::move(session)), timing_(timing) {}

  Session& session() const { return *session_; }
  EventTiming timing() const { return timing_; }
  Point point() const {
    const MutexLock lock(mutex_);
    return point_;
  }
  void set_point(Point point) {
    const MutexLock lock(mutex_);
    point_ = std::move(point);
  }

 private:
  const std::shared_ptr<Session> session_;
  const EventTiming timing_;
  mutable Mutex mutex_;
  Point point_ GPUSHARED_GUARDED_BY(mutex_);
};

// State of a Kernel handle: what launches are checked against. Constant; a part of its ModuleState.
struct KernelState {
  std::uint32_t module_number = 0;
  std::uint32_t index = 0;
  std::uint32_t parameter_bytes = 0;
  std::uint32_t static_shared_bytes = 0;
  std::uint32_t threads_per_block_max = 0;
  std::array<std::uint32_t, 3> required_block = {};    // All zero if any is allowed.
  std::array<std::uint32_t, 3> required_cluster = {};  // All zero if any is allowed.
  KernelAttributes attributes;
  const Session* session = nullptr;  // Kept alive by the module.
  std::string name;
  std::string unsupported;
  std::vector<KernelParameter> parameters;
};

// State of a Module handle. Constant.
struct ModuleState {
  ModuleState() = default;
  ~ModuleState() {
    if (session != nullptr) session->UnloadModule(number);
  }
  ModuleState(const ModuleState&) = delete;
  ModuleState& operator=(const ModuleState&) = delete;

  std::shared_ptr<Session> session;
  std::uint32_t number = 0;
  std::vector<KernelState> kernels;
  std::vector<ModuleVariable> variables;
};

}  // namespace gpushared::client

#endif  // GPUSHARED_CLIENT_LIB_SESSION_H_

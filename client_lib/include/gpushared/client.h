// SPDX-License-Identifier: Apache-2.0
// The C++ interface of gpushared: runs kernels and copies on a device that is shared with other
// processes. gpushared.h is the same interface in C.
//
// A program calls Client::Connect, Client::LoadModule, Module::GetKernel and
// Client::AllocateDevice, then submits commands to streams, then calls Stream::Synchronize.
// docs/library.md shows a whole program and lists the errors.
//
// Rules of the whole interface:
// - Errors. Functions that can fail return Status or Result<T>. The library never prints, exits,
//   starts a thread or throws deliberately, and handles SIGINT only if ends_on_interrupt is set. A
//   call that rejects its arguments (kInvalidArgument, kOutOfMemory, ...) has no effect. An error
//   of the *device* is sticky: every later call on the stream returns the error of its first failed
//   command, and the later commands of the stream are skipped. After a session has ended, calls
//   return kDisconnected or kDeviceLost with the reason in the message; they never hang.
// - Ownership. Client, Module, Kernel, DeviceBuffer, DeviceChunk, HostBuffer, Stream, Event and
//   Graph are movable handles. Destroying a handle releases its resource once all commands
//   submitted before have finished; the destructor does not wait for them. Every handle keeps the
//   session alive, so the session ends with its last handle or with Client::Close. A handle that is
//   default-constructed or moved from may only be destroyed, assigned to, or asked for valid();
//   other calls return kInvalidArgument where they return a status.
// - Threads. All handles of one session may be used from several threads at the same time. One
//   handle *object* may also be used from several threads, except while it is moved from, assigned
//   to or destroyed.
// - Fork. A forked child must not use the handles of its parent: calls return kWrongProcess, and
//   destructors do nothing. The child may open its own session.

#ifndef GPUSHARED_CLIENT_H_
#define GPUSHARED_CLIENT_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "gpushared/fault_kind.h"
#include "gpushared/result.h"
#include "gpushared/scheduling_class.h"
#include "gpushared/status.h"
#include "gpushared/version.h"

namespace gpushared {

namespace client {
class Session;
class StreamState;
class EventState;
class GraphState;
struct ModuleState;
struct KernelState;
}  // namespace client

// Address in the device memory of one client. Supports plain arithmetic.
using DeviceAddress = std::uint64_t;

// Options of a session. An option that the program leaves unset comes from the environment: first
// from GPUSHARED_NAME, _CLASS, _WEIGHT, _MAX_SHARE, _LATENCY_TARGET, _MEMORY, _DEVICE, _SOCKET and
// _INTERRUPT, then from variables of CUDA and MPS (docs/library.md has the table). An invalid
// value of a variable fails Connect with kInvalidArgument. If neither the program nor the
// environment sets an option, the server chooses.
struct ClientOptions {
  // Human-readable name, shown by gpusharedctl and in logs. At most 63 bytes of UTF-8 without
  // control characters. If empty, the name of the program is used.
  std::string name = {};
  // Class of the client. Connect fails with kPermissionDenied if the server's access rules do not
  // allow this class or the weight below; the server never silently lowers either.
  std::optional<SchedulingClass> scheduling_class = {};
  // Weight within the class, 1 to 1000, relative to the weights of the other clients.
  std::optional<std::uint32_t> weight = {};
  // Upper limit on the device time of this client, in percent (0.1 to 100). Time beyond the limit
  // goes to other clients or remains idle. Connect fails if the value exceeds what the access rule
  // or the endpoint allows.
  std::optional<double> max_share = {};
  // Upper limit on the device memory of this client. Connect fails if it exceeds the limit of the
  // server.
  std::optional<std::uint64_t> memory_bytes = {};
  // Latency target of a request. A request is the work between Stream::BeginRequest and EndRequest.
  // If a client marks no requests, each burst of work is treated as one request: it begins when the
  // client, having no unfinished commands, submits one, and ends when all its commands have
  // finished. Only deadline-aware policies use the target.
  std::optional<std::chrono::nanoseconds> latency_target = {};
  // Device to use, such as "cpu:0". If no device is named, the server chooses the least loaded one.
  std::string device = {};
  // Path of the server's Unix socket. If empty, the first of these is used: $GPUSHARED_SOCKET;
  // gpushared.sock in $CUDA_MPS_PIPE_DIRECTORY, if that file exists; /run/gpushared/gpushared.sock,
  // if it exists; $XDG_RUNTIME_DIR/gpushared.sock.
  std::string socket = {};
  // If true, the server keeps the text that kernels print until Client::TakePrinted fetches it, on
  // devices that can attribute it to a client (the cpu device). If false, or on other devices, the
  // text goes to the server's log.
  bool takes_printed = false;
  // Called when other clients are waiting for `bytes` of this client's device memory. Memory that
  // the callback frees at the end of the mapped range returns to the device at once; the remaining
  // bytes are swapped out to host memory and swapped in again later. A callback that frees nothing
  // is safe and costs only time, because no client waits for it to return. The library calls it,
  // without holding a lock, on a thread that has just launched or waited or is about to allocate.
  // The callback may use the client and must not throw. It is called only on servers that let
  // clients hold more memory than their guarantee.
  std::function<void(std::uint64_t bytes)> on_memory_wanted = {};
  // Ends the session on SIGINT while a call waits for the device, so that the call returns with an
  // error and the client's kernels are stopped. If false, a program with its own handler, such as
  // Python, waits until its kernels have finished. Default: false.
  std::optional<bool> ends_on_interrupt = {};
  // How long a synchronizing call spins before it sleeps. If unset, the value that the server
  // recommends for this device.
  std::optional<std::chrono::nanoseconds> spin = {};
  // How long Connect and other control round trips wait for an answer. If none arrives in this
  // time, Connect returns kTimedOut, and any other call ends the session. LoadModule is exempt
  // because the server limits the duration of a load itself.
  std::chrono::nanoseconds control_timeout = std::chrono::seconds(30);
};

// Value of a device property, and the property's number in CUDA's CUdevice_attribute.
struct DeviceAttribute {
  std::uint32_t id = 0;
  std::int32_t value = 0;
};

// Properties of a device. The limits apply to every launch.
struct DeviceProperties {
  std::string name;  // "embedded cpu device, 1 executor thread"
  std::string id;    // "cpu:0"
  std::string kind;  // "cpu", "cuda"
  // Memory of the whole device; MemoryInfo has the quota of this client.
  std::uint64_t memory_bytes = 0;
  std::uint32_t multiprocessors = 0;
  std::uint32_t threads_per_block_max = 0;
  std::array<std::uint32_t, 3> block_max = {};  // Largest block, in threads along x, y and z.
  std::array<std::uint32_t, 3> grid_max = {};   // Largest grid, in blocks along x, y and z.
  std::uint32_t shared_bytes_per_block_max = 0;
  std::array<std::uint8_t, 16> uuid = {};   // All zero if the device has none.
  std::vector<DeviceAttribute> attributes;  // In ascending order of id.

  // Returns the value of CUDA's attribute `id`, or no value if the device does not report it.
  std::optional<std::int32_t> Attribute(std::uint32_t id) const;
};

// Memory of one client, in bytes.
struct MemoryInfo {
  std::uint64_t total_bytes = 0;   // This client's quota.
  std::uint64_t mapped_bytes = 0;  // Mapped for this client so far.
  // Bytes in live DeviceBuffers and DeviceChunks, and in freed buffers that commands still use.
  std::uint64_t used_bytes = 0;
  // The part of the quota that is available at any time. Memory beyond it may be swapped out to
  // host memory; it keeps its addresses, and commands that need it wait until it has been swapped
  // in.
  std::uint64_t guaranteed_bytes = 0;
  std::uint64_t resident_bytes = 0;  // The part of mapped_bytes that is on the device.
  std::uint64_t wanted_bytes = 0;    // The part of resident_bytes that other clients wait for.
};

// Range of device addresses of one client.
struct AddressArea {
  DeviceAddress base = 0;
  std::uint64_t bytes = 0;
};

// Extent along three axes; each use states the unit.
struct Dim3 {
  std::uint32_t x = 1, y = 1, z = 1;
};

// Shape of a launch.
struct LaunchShape {
  Dim3 grid;   // Blocks.
  Dim3 block;  // Threads per block.
  // Per block, in addition to the kernel's static shared memory.
  std::uint32_t dynamic_shared_bytes = 0;
  // Blocks per cluster: at most 16 in total, and at most what the device allows. Along each axis,
  // the grid must be a multiple of the cluster. All zero means no clusters.
  Dim3 cluster = {0, 0, 0};
  // Runs all blocks at the same time, as grid-wide synchronization requires. A grid that does not
  // fit onto the device at once is rejected.
  bool is_cooperative = false;
};

// Rectangle of bytes: `height` rows of `width_bytes`, with one pitch between the starts of
// consecutive rows. Pitches are at least `width_bytes`; they are ignored if there is only one row.
struct CopyShape {
  std::size_t width_bytes = 0;
  std::size_t height = 1;
  std::size_t destination_pitch_bytes = 0;
  std::size_t source_pitch_bytes = 0;
};

// Value that Fill repeats.
struct FillElement {
  std::uint32_t value = 0;
  std::uint32_t element_bytes = 1;  // 1, 2 or 4.

  static constexpr FillElement U8(std::uint8_t value) { return {value, 1}; }
  static constexpr FillElement U16(std::uint16_t value) { return {value, 2}; }
  static constexpr FillElement U32(std::uint32_t value) { return {value, 4}; }
};

// Rectangle of elements: `height` rows of `width_elements`, with `pitch_bytes` between the starts
// of consecutive rows.
struct FillShape {
  std::size_t width_elements = 0;
  std::size_t height = 1;
  std::size_t pitch_bytes = 0;
};

// Place of one kernel parameter in the argument buffer.
struct KernelParameter {
  std::uint32_t offset = 0;  // Bytes from the start of the argument buffer.
  std::uint32_t bytes = 0;
};

// Properties of a kernel that launches need not consider.
struct KernelAttributes {
  std::uint32_t registers = 0;                 // 32-bit registers per thread.
  std::uint32_t local_bytes = 0;               // Per thread.
  std::uint32_t constant_bytes = 0;            // In .const variables of its module.
  std::uint32_t dynamic_shared_bytes_max = 0;  // Per block, in one launch.
  std::uint32_t ptx_version = 0;               // Target of the PTX: 80 for sm_80; 0 if unknown.
  std::uint32_t binary_version = 0;            // Architecture of the machine code that runs.
};

// Variable of a module in device memory. It has the initial value that the module gives it, and
// lives as long as the module.
struct ModuleVariable {
  std::string name;
  DeviceAddress address = 0;
  std::uint64_t bytes = 0;
  bool is_constant = false;  // .const if true, .global otherwise.
};

// Argument of a launch: `bytes` bytes at `data`, which the call copies before it returns.
struct LaunchArgument {
  const void* data = nullptr;
  std::size_t bytes = 0;
};

// Device memory of one client, aligned to 256 bytes. Memory that this client has not used before is
// zero. The destructor frees the buffer; its memory is reused only after every command submitted
// before has finished.
//
// Thread-compatible.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  ~DeviceBuffer();

  bool valid() const noexcept { return address_ != 0; }
  DeviceAddress address() const noexcept { return address_; }
  std::size_t size() const noexcept { return bytes_; }  // Size as requested.
  // Returns the length of the buffer's initial part that may hold data of an earlier buffer of this
  // client. The bytes after that part were zero when the buffer was allocated.
  std::size_t used_bytes() const noexcept { return used_bytes_; }
  // Converts to the address, so that a buffer can be passed as a kernel argument or to a copy.
  // NOLINTNEXTLINE(google-explicit-constructor)
  operator DeviceAddress() const noexcept { return address_; }

  // Frees the memory now, as the destructor would.
  void Reset() noexcept;

 private:
  friend class Client;
  friend class Stream;
  DeviceBuffer(std::shared_ptr<client::Session> session, DeviceAddress address, std::size_t bytes,
               std::size_t used_bytes);

  std::shared_ptr<client::Session> session_;
  DeviceAddress address_ = 0;
  std::size_t bytes_ = 0;
  std::size_t used_bytes_ = 0;
};

// Device memory without an address: Client::MapChunk maps it at one or more addresses. Initially
// zero; keeps its contents while it is unmapped; counts against the quota. The destructor frees the
// chunk in a round trip; if the chunk is still mapped, it remains until the session ends.
//
// Thread-compatible.
class DeviceChunk {
 public:
  DeviceChunk() = default;
  DeviceChunk(DeviceChunk&& other) noexcept;
  DeviceChunk& operator=(DeviceChunk&& other) noexcept;
  ~DeviceChunk();

  bool valid() const noexcept { return session_ != nullptr; }
  std::size_t size() const noexcept { return bytes_; }

  // Frees the memory now, as the destructor would.
  void Reset() noexcept;

 private:
  friend class Client;
  DeviceChunk(std::shared_ptr<client::Session> session, std::uint32_t number, std::size_t bytes);

  std::shared_ptr<client::Session> session_;
  std::uint32_t number_ = 0;
  std::size_t bytes_ = 0;
};

// Host memory in a staging buffer shared with the server, aligned to 256 bytes, so that the device
// reads and writes it without an intermediate copy. Initial contents are undefined. The caller must
// not touch bytes that an unfinished copy uses. The destructor frees the buffer; its memory is
// reused only after every command submitted before has finished. After the session has ended the
// memory is still mapped, but its contents are lost.
//
// Thread-compatible.
class HostBuffer {
 public:
  HostBuffer() = default;
  HostBuffer(HostBuffer&& other) noexcept;
  HostBuffer& operator=(HostBuffer&& other) noexcept;
  ~HostBuffer();

  bool valid() const noexcept { return !bytes_.empty(); }
  std::byte* data() const noexcept { return bytes_.data(); }
  std::size_t size() const noexcept { return bytes_.size(); }  // Size as requested.
  std::span<std::byte> bytes() const noexcept { return bytes_; }
  // Returns the buffer as elements of T, without a partial element at the end.
  template <typename T>
  std::span<T> as() const noexcept {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= 256);
    return {reinterpret_cast<T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }

  // Frees the memory now, as the destructor would.
  void Reset() noexcept;

 private:
  friend class Client;
  HostBuffer(std::shared_ptr<client::Session> session, std::span<std::byte> bytes);

  std::shared_ptr<client::Session> session_;
  std::span<std::byte> bytes_;
};

// Kernel of a loaded module. Keeps the module loaded. Immutable; a copy is another handle of the
// same kernel.
//
// Thread-safe.
class Kernel {
 public:
  Kernel() = default;

  bool valid() const noexcept { return state_ != nullptr; }
  // The functions below require valid(). References and spans are valid as long as this handle.
  const std::string& name() const noexcept;
  std::span<const KernelParameter> parameters() const noexcept;
  std::uint32_t parameter_bytes() const noexcept;  // Returns the size of the argument buffer.
  // Returns the static shared memory per block.
  std::uint32_t static_shared_bytes() const noexcept;
  std::uint32_t threads_per_block_max() const noexcept;
  // Return the only block and cluster dimensions with which the kernel may be launched (.reqntid,
  // .reqnctapercluster). All zero if the kernel accepts any.
  Dim3 required_block() const noexcept;    // Threads.
  Dim3 required_cluster() const noexcept;  // Blocks.
  const KernelAttributes& attributes() const noexcept;
  // Returns why this device rejects launches of the kernel (kUnsupported): all instructions that
  // the device lacks, with their lines in the PTX. Empty if the kernel can run.
  const std::string& unsupported() const noexcept;

 private:
  friend class Module;
  friend class Stream;
  explicit Kernel(std::shared_ptr<const client::KernelState> state) : state_(std::move(state)) {}

  std::shared_ptr<const client::KernelState> state_;
};

// Loaded PTX module or fatbin. The server unloads it when its last Module and Kernel handle has
// been destroyed and every command submitted before has finished.
//
// Thread-safe, except while moved from, assigned to or destroyed.
class Module {
 public:
  Module() = default;

  bool valid() const noexcept { return state_ != nullptr; }
  std::size_t kernel_count() const noexcept;
  // Returns kernel `index` in the order of the module; kNotFound past the last one.
  Result<Kernel> KernelAt(std::size_t index) const;
  // Returns the kernel with this name. kNotFound, with the names of the kernels that exist, if
  // there is no such kernel. A kernel that cannot run on this device is found nevertheless; see
  // Kernel::unsupported.
  Result<Kernel> GetKernel(std::string_view name) const;
  // Returns the variables that the PTX of the module declares, in its order. The span is valid as
  // long as the module. Kernels of all modules of this client, copies and fills may access the
  // variables.
  std::span<const ModuleVariable> variables() const noexcept;
  // Returns the variable with this name. kNotFound if there is no such variable or if the module is
  // machine code without PTX.
  Result<ModuleVariable> GetVariable(std::string_view name) const;

 private:
  friend class Client;
  explicit Module(std::shared_ptr<const client::ModuleState> state) : state_(std::move(state)) {}

  std::shared_ptr<const client::ModuleState> state_;
};

// Point in the work of a stream, set by Stream::Record. Recording again moves it.
//
// Thread-safe, except while moved from, assigned to or destroyed.
class Event {
 public:
  Event() = default;

  bool valid() const noexcept { return state_ != nullptr; }
  // Returns Ok if the event was never recorded or if everything before the recorded point has
  // finished, kNotReady if not, and the error of the stream if it failed before the point. Never
  // waits.
  Status Query() const;
  // Blocks until Query would no longer return kNotReady, and returns its result.
  Status Synchronize() const;
  // Returns the device time from `start` to `end`, negative if `end` came first. kInvalidArgument
  // unless both events have EventTiming::kOn and were recorded; kNotReady unless both have
  // finished.
  static Result<std::chrono::nanoseconds> ElapsedTime(const Event& start, const Event& end);

 private:
  friend class Client;
  friend class Stream;
  explicit Event(std::shared_ptr<client::EventState> state) : state_(std::move(state)) {}

  std::shared_ptr<client::EventState> state_;
};

// Whether an event measures time. Without timing, recording it puts no command into the queue.
enum class EventTiming : std::uint8_t { kOff, kOn };

class Graph;

// Ordered queue of commands: they start and end in the order of submission. Commands of different
// streams are unordered unless Wait orders them.
//
// Every call that submits a command returns as soon as the command is queued, unless its
// description states otherwise, and blocks while the queue to the server is full. If the stream has
// a sticky error, the call submits nothing and returns that error.
//
// The device checks device addresses. A range outside this client's memory is therefore an error of
// the stream (kInvalidArgument), not of the call.
//
// Thread-safe, except while moved from, assigned to or destroyed. Commands of two threads enter the
// stream in an unspecified order, each as a whole.
class Stream {
 public:
  Stream() = default;
  Stream(Stream&&) noexcept = default;
  Stream& operator=(Stream&&) noexcept = default;
  // Destroys the stream once the commands queued on it have ended. Does not wait for them.
  ~Stream() = default;

  bool valid() const noexcept { return state_ != nullptr; }

  // Launches `kernel`. The arguments are passed by value in the order of the kernel's parameters
  // and must be trivially copyable; a DeviceBuffer is passed as its address. kInvalidArgument if
  // the number or the sizes of the arguments differ from the kernel's parameters, or if the shape
  // exceeds the limits of the device or the kernel. kUnsupported if the device cannot run the
  // kernel.
  template <typename... Arguments>
  Status Launch(const Kernel& kernel, const LaunchShape& shape,
                const Arguments&... arguments) const {
    static_assert((IsArgument<Arguments>() && ...),
                  "kernel arguments must be trivially copyable values or DeviceBuffers");
    if constexpr (sizeof...(Arguments) == 0) {
      return LaunchWith(kernel, shape, {});
    } else {
      const std::array<LaunchArgument, sizeof...(Arguments)> list = {AsArgument(arguments)...};
      return LaunchWith(kernel, shape, list);
    }
  }
  // As Launch, with arguments that are known only at run time.
  Status LaunchWith(const Kernel& kernel, const LaunchShape& shape,
                    std::span<const LaunchArgument> arguments) const;
  // As Launch, with an argument buffer that the caller has laid out. `parameters` must have exactly
  // kernel.parameter_bytes() bytes.
  Status LaunchPacked(const Kernel& kernel, const LaunchShape& shape,
                      std::span<const std::byte> parameters) const;

  // Copies host memory to the device. Ordinary memory is staged: the call returns when `source` may
  // be reused, so a large copy waits for most of its transfer. Memory of a HostBuffer is read in
  // place: the call returns immediately, and the bytes must not change until the copy has finished.
  // A size of 0 does nothing.
  Status CopyToDevice(DeviceAddress destination, const void* source, std::size_t bytes) const;
  Status CopyToDevice2d(DeviceAddress destination, const void* source,
                        const CopyShape& shape) const;
  // Copies device memory to the host. Into ordinary memory, the call returns when the bytes have
  // arrived. Into a HostBuffer, it returns immediately, and the bytes are valid once the stream has
  // passed the copy.
  Status CopyToHost(void* destination, DeviceAddress source, std::size_t bytes) const;
  Status CopyToHost2d(void* destination, DeviceAddress source, const CopyShape& shape) const;
  // Copies within device memory. The ranges must not overlap.
  Status CopyOnDevice(DeviceAddress destination, DeviceAddress source, std::size_t bytes) const;
  Status CopyOnDevice2d(DeviceAddress destination, DeviceAddress source,
                        const CopyShape& shape) const;

  // Writes `element` `count` times. `destination` must be aligned to the size of the element.
  Status Fill(DeviceAddress destination, FillElement element, std::size_t count) const;
  // As Fill, for a rectangle. The pitch, too, must be a multiple of the element size.
  Status Fill2d(DeviceAddress destination, FillElement element, const FillShape& shape) const;

  // Sets `event` to the point after all work that is queued on this stream now. Only events with
  // timing put a command into the queue. kInvalidArgument if `event` belongs to another client.
  Status Record(const Event& event) const;
  // Makes later commands of this stream wait for the point at which `event` is set now. An event
  // that was never recorded causes no wait. If the stream of the event fails before that point,
  // this stream fails with kCancelled. kInvalidArgument if `event` belongs to another client.
  Status Wait(const Event& event) const;

  // Marks the beginning of a request. latency_target applies to requests, and gpusharedctl counts
  // and explains them. `age` (at most one hour) is the time since the request arrived. A request
  // ends when everything that was queued on this stream before EndRequest has finished; work on
  // other streams belongs to it if this stream waits for that work. Requests of one stream do not
  // nest, but the next one may begin while earlier ones still run. At most 16 requests per client
  // are open at a time. If 16 are open, BeginRequest waits for the end of one for which EndRequest
  // has been called; if there is none, it returns kLimitExceeded. Destroying the stream ends its
  // request.
  Status BeginRequest(std::chrono::nanoseconds age = std::chrono::nanoseconds(0)) const;
  // Marks the end of the stream's request. kInvalidArgument if none has begun. If the stream has
  // failed, ends the request and returns the error of the stream.
  Status EndRequest() const;

  // Blocks until everything queued so far has finished. Returns the error of the stream.
  Status Synchronize() const;
  // Returns Ok if everything queued so far has finished, kNotReady if not, and the error of the
  // stream if it failed. Never waits for the device.
  Status Query() const;
  // Returns the kind of fault, once a call has returned kKernelFault as the error of this stream;
  // kNone otherwise. Never waits.
  FaultKind fault() const noexcept;

  // Makes a graph of the recorded commands and empties the recorder. Valid only on a stream of
  // Client::CreateRecorder. Waits for the server, which checks every node as it checks the same
  // command outside a graph. kLimitExceeded beyond 256 graphs, or beyond 16 MiB for all graphs of
  // the client.
  Result<Graph> MakeGraph() const;

 private:
  friend class Client;
  friend class Graph;
  explicit Stream(std::shared_ptr<client::StreamState> state) : state_(std::move(state)) {}

  template <typename T>
  static constexpr bool IsArgument() {
    return std::is_same_v<T, DeviceBuffer> ||
           (std::is_trivially_copyable_v<T> && !std::is_array_v<T>);
  }
  static LaunchArgument AsArgument(const DeviceBuffer& buffer) {
    return {&buffer.address_, sizeof(DeviceAddress)};
  }
  template <typename T>
  static LaunchArgument AsArgument(const T& value) {
    return {std::addressof(value), sizeof(T)};
  }

  std::shared_ptr<client::StreamState> state_;
};

// Recorded sequence of launches, copies and fills that the server has checked. The graph is
// launched as one command, so the server makes one scheduling decision for it instead of one per
// node. The nodes run one after another in the order of recording. A graph keeps the modules of its
// kernels loaded. The memory its nodes refer to must exist whenever the graph is launched;
// otherwise the launch fails its stream. Destroying a graph does not affect launches that were
// submitted before.
//
// Thread-safe, except while moved from, assigned to or destroyed.
class Graph {
 public:
  Graph() = default;
  Graph(Graph&&) noexcept = default;
  Graph& operator=(Graph&&) noexcept = default;
  ~Graph() = default;

  bool valid() const noexcept { return state_ != nullptr; }
  std::size_t node_count() const noexcept;

  // Queues all nodes on `stream`, after the commands already queued there. Returns as soon as the
  // launch is queued.
  Status Launch(const Stream& stream) const;

  // Replaces node `node` (counted from 0), which must be a launch, for the following launches of
  // the graph. Launches that were queued before run with the old node. Arguments and errors as for
  // Stream::Launch.
  template <typename... Arguments>
  Status SetLaunch(std::size_t node, const Kernel& kernel, const LaunchShape& shape,
                   const Arguments&... arguments) const;
  Status SetLaunchWith(std::size_t node, const Kernel& kernel, const LaunchShape& shape,
                       std::span<const LaunchArgument> arguments) const;
  Status SetLaunchPacked(std::size_t node, const Kernel& kernel, const LaunchShape& shape,
                         std::span<const std::byte> parameters) const;

 private:
  friend class Stream;
  explicit Graph(std::shared_ptr<client::GraphState> state) : state_(std::move(state)) {}
  template <typename Record>
  Status SetRecorded(std::size_t node, Record record) const;

  std::shared_ptr<client::GraphState> state_;
};

template <typename... Arguments>
Status Graph::SetLaunch(std::size_t node, const Kernel& kernel, const LaunchShape& shape,
                        const Arguments&... arguments) const {
  static_assert((Stream::IsArgument<Arguments>() && ...),
                "kernel arguments must be trivially copyable values or DeviceBuffers");
  const std::array<LaunchArgument, sizeof...(Arguments)> list = {Stream::AsArgument(arguments)...};
  return SetLaunchWith(node, kernel, shape, list);
}

// Session of one program with the server, on one device.
//
// Thread-safe, except while moved from, assigned to or destroyed.
class Client {
 public:
  // Opens a session on a device. Fails with kUnavailable if no server answers, or with
  // kVersionMismatch, kPermissionDenied, kNotFound (device), kLimitExceeded, kOutOfMemory,
  // kInvalidArgument or kTimedOut. Blocks for at most options.control_timeout.
  static Result<Client> Connect(const ClientOptions& options);
  // Returns the devices of the server, in its order, over a short connection that opens no session.
  // Uses only the socket and the control timeout of `options`. If the server is still starting,
  // waits for it. Fails with kUnavailable, kVersionMismatch, kInvalidArgument or kTimedOut.
  static Result<std::vector<DeviceProperties>> ListDevices(const ClientOptions& options);

  Client() = default;
  Client(Client&&) noexcept = default;
  Client& operator=(Client&&) noexcept = default;

  bool valid() const noexcept { return session_ != nullptr; }
  // The next two functions require valid().
  const DeviceProperties& device() const noexcept;
  // Returns the session's number, as gpusharedctl shows it.
  std::uint64_t session_id() const noexcept;

  // Loads PTX text or a fatbin. A round trip in which the server compiles the module, which can
  // take seconds. The caller may free `image` afterwards. kInvalidArgument, with line and column,
  // if the PTX does not parse; kLimitExceeded if too many modules are loaded.
  Result<Module> LoadModule(std::span<const std::byte> image) const;
  Result<Module> LoadModule(std::string_view ptx) const;
  // Reads the file and loads it. kNotFound if it cannot be read.
  Result<Module> LoadModuleFile(const std::string& path) const;

  // Allocates `bytes` (at least 1) of device memory. Usually takes no round trip, because the
  // memory comes from the range that is already mapped. May wait for commands that still use freed
  // memory. kOutOfMemory if the quota or the device is exhausted; the message has both sizes.
  Result<DeviceBuffer> AllocateDevice(std::size_t bytes) const;
  // Allocates `bytes` (at least 1) of host memory that the server shares. kOutOfMemory if no
  // staging memory is left.
  Result<HostBuffer> AllocateHost(std::size_t bytes) const;
  // Returns the memory of this client at this moment. All zero if this handle is not valid(), or if
  // the caller is a forked child.
  MemoryInfo memory_info() const;
  // Releases unused memory at the end of the mapped range to the device, and returns how many bytes
  // were released. A round trip that waits for everything submitted before.
  Result<std::uint64_t> TrimDevice() const;

  // The next functions map device memory at addresses that the program chooses. Each of them except
  // mapping_area is a round trip.
  //
  // Returns the address range in which chunks may be mapped; it does not overlap any buffer. Empty
  // if the device cannot map chunks, and for contained clients (memory = "contain").
  AddressArea mapping_area() const noexcept;
  // Creates a chunk of `bytes`: 2 MiB to 1 GiB, a multiple of 2 MiB. kLimitExceeded if 256 chunks
  // exist; kOutOfMemory as for AllocateDevice.
  Result<DeviceChunk> CreateChunk(std::size_t bytes) const;
  // Maps `chunk` at `address`, a multiple of 2 MiB in mapping_area(). Commands submitted from now
  // on may access it. kInvalidArgument if the range overlaps another mapping. A chunk may be mapped
  // several times; at most 256 mappings exist.
  Status MapChunk(const DeviceChunk& chunk, DeviceAddress address) const;
  // Removes the mapping that begins at `address`. Waits for everything submitted before.
  Status UnmapChunk(DeviceAddress address) const;

  // Creates a stream. kLimitExceeded if 255 streams exist besides the default one.
  Result<Stream> CreateStream() const;
  // Creates a stream that records launches, copies and fills for Stream::MakeGraph instead of
  // running them, at most 4096 of them. Copies to and from the host must use memory of a
  // HostBuffer, which must exist as long as the graph. Events, waits, requests and synchronization
  // are rejected with kInvalidArgument because they belong before or after the launch of the graph.
  Result<Stream> CreateRecorder() const;
  // Returns another handle of the default stream, which exists from the beginning of the session.
  // Unlike CUDA's legacy default stream, it does not synchronize with other streams.
  Stream default_stream() const;
  // Creates an event. Any number of events may exist.
  Result<Event> CreateEvent(EventTiming timing = EventTiming::kOff) const;

  // Announces that the next request will begin after about `in`, which is at most one hour.
  // Policies that look ahead keep the device free for that request if the class or the latency
  // target of the client entitles the client to that. The hint expires soon after the announced
  // time.
  Status ExpectRequestIn(std::chrono::nanoseconds in) const;

  // Blocks until everything queued so far on all streams has finished. Returns the error of the
  // failed stream with the lowest number.
  Status Synchronize() const;
  // Returns the text that kernels have printed since the last call, oldest first. Includes the text
  // of all commands whose end a call has observed, and possibly more. If nothing was printed,
  // returns an empty string without a round trip. The server keeps at most 1 MiB between two calls;
  // a last line states how much was lost. kInvalidArgument unless ClientOptions::takes_printed is
  // set.
  Result<std::string> TakePrinted() const;

  // Memory that kernels of this client may use, effective from the next launch on. 0 leaves a value
  // unchanged.
  struct KernelMemory {
    std::uint64_t stack_bytes = 0;    // Per thread, for recursive calls; at most 256 KiB.
    std::uint64_t printed_bytes = 0;  // Per launch, for TakePrinted; at most 64 MiB.
    // Heap that kernels allocate from. Counts against the quota. The heap and the variables of
    // modules together have at most 256 MiB.
    std::uint64_t heap_bytes = 0;
  };
  // Applies `memory`. Waits for the server. kUnsupported if all clients of the device share one
  // setting (GPUs); kOutOfMemory; kInvalidArgument beyond the limits above, and for a different
  // heap size after a kernel has allocated from the heap.
  Status SetKernelMemory(const KernelMemory& memory) const;

  // Returns the kind of the first kernel fault, once a call has returned its kKernelFault; kNone if
  // there was none. Never waits.
  FaultKind fault() const noexcept;

  // Returns Ok while the session is alive, otherwise why it ended. Polls the socket without
  // waiting.
  Status status() const;

  // Ends the session immediately: queued commands are dropped, and all memory is lost. Wakes
  // waiting threads; all handles return kDisconnected from then on. The server notices the end
  // shortly afterwards.
  void Close() noexcept;
  // As Close, but waits (at most 2 s) until the server has released the session, so that the next
  // client is not rejected because of resources that this session still held. The session is closed
  // in any case. An error means that the server has not released the session in time, that too many
  // requests of this user are pending, or that the server does not answer. kWrongProcess in a
  // forked child.
  Status CloseAndWait();

 private:
  explicit Client(std::shared_ptr<client::Session> session) : session_(std::move(session)) {}

  std::shared_ptr<client::Session> session_;
};

// Returns the version of the linked library, such as "0.1.0", which may be newer than version.h.
const char* LibraryVersion() noexcept;

}  // namespace gpushared

#endif  // GPUSHARED_CLIENT_H_

// SPDX-License-Identifier: Apache-2.0
// The C++ interface of gpushared: run kernels and copies on a device that other
// processes use too. gpushared.h is the same in C.
//
// Shape of a program: Client::Connect, LoadModule, Module::GetKernel, AllocateDevice,
// then commands on streams, then Stream::Synchronize.
//
// Rules for all of it:
// - Errors. Functions that can fail return Status or Result<T>. Nothing here throws
//   on purpose, prints, exits, starts a thread or installs a signal handler. A rejected
//   argument (kInvalidArgument, kOutOfMemory, ...) changes nothing. An error of the
//   *device* is sticky. Every later call on the stream returns its first failed command,
//   and the stream's later commands are skipped. A session that has ended answers
//   kDisconnected or kDeviceLost, with the reason in the message, and never hangs.
// - Ownership. Client, Module, Kernel, DeviceBuffer, HostBuffer, Stream and Event are
//   movable handles. Destroying one gives its resource back, once all commands
//   submitted before are done; the destructor does not wait for that. Every handle
//   keeps the session alive: it ends with the last handle, or with Client::Close. A
//   handle that was moved from, or default-constructed, may only be destroyed,
//   assigned to or asked valid(). Other calls return kInvalidArgument where they
//   return a status.
// - Threads. All handles of one session may be used from several threads at once.
//   One handle *object* may be used from several threads except while it is moved
//   from, assigned to or destroyed.
// - Fork. A forked child must not use its parent's handles: calls return
//   kWrongProcess, destructors do nothing. The child may connect anew.

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

// An address in the device memory of one client. Plain arithmetic works on it.
using DeviceAddress = std::uint64_t;

// Every member has an initialiser: naming some of them makes no compiler warn of the others.
// What is not set here is what the environment says: GPUSHARED_NAME, _CLASS, _WEIGHT,
// _MAX_SHARE, _PROMISE, _MEMORY, _DEVICE and _SOCKET, then variables of CUDA and MPS (see
// client_lib/README.md). A variable that makes no sense is rejected with kInvalidArgument. What
// nobody says, the server decides.
struct ClientOptions {
  // For people: shown by gpusharedctl and in logs. At most 63 bytes of UTF-8, without
  // control characters; empty means the name of the program.
  std::string name = {};
  // A class or weight above what the server's access rules allow is rejected with
  // kPermissionDenied, never lowered silently.
  std::optional<SchedulingClass> scheduling_class = {};
  // Share inside the class, relative to the other clients' weights. 1 to 1000.
  std::optional<std::uint32_t> weight = {};
  // Device time that this client has at most, in percent, 0.1 to 100. What it leaves is for others
  // or stays idle. More than its access rule or endpoint allows is rejected.
  std::optional<double> max_share = {};
  // Device memory that this client may hold at most. More than the server allows it is rejected.
  std::optional<std::uint64_t> memory_bytes = {};
  // The time in which this client wants a request served: what is between
  // Stream::BeginRequest and EndRequest, or, while it has marked none, what it submits
  // between two moments at which everything is finished. For policies that know deadlines.
  std::optional<std::chrono::nanoseconds> latency_target = {};
  // "cpu:0", ...; where nobody names one, the server chooses the least loaded device.
  std::string device = {};
  // Path of the server's Unix socket. Empty means: $GPUSHARED_SOCKET, else gpushared.sock in
  // $CUDA_MPS_PIPE_DIRECTORY if it exists, else /run/gpushared/gpushared.sock if it exists, else
  // $XDG_RUNTIME_DIR/gpushared.sock.
  std::string socket = {};
  // What this client's kernels print is kept for Client::TakePrinted, where the device knows whose
  // text it is (the cpu device). Else it goes into the server's log.
  bool takes_printed = false;
  // Others wait for so many bytes of this client's device memory. What it frees now at the end of
  // its memory goes back to the device. The rest is moved to host memory, and comes back. Nobody
  // waits for the call, and who does nothing loses only time. A thread that has launched, or
  // waited, or is about to allocate, calls it without a lock of the library. It may use the client,
  // and must not throw. Only where the server lets clients hold more than their guarantee.
  std::function<void(std::uint64_t bytes)> on_memory_wanted = {};
  // SIGINT while a call waits for the device ends the session, so that the call returns with an
  // error and the client's kernels end. Otherwise a program with a handler of its own, such as
  // Python's, waits until they end by themselves. Where nobody says it: false.
  std::optional<bool> ends_on_interrupt = {};
  // How long a synchronising call spins before it sleeps. Unset means what the server
  // recommends for this device.
  std::optional<std::chrono::nanoseconds> spin = {};
  // How long Connect and other control round trips wait for an answer, before
  // kTimedOut (Connect) or the end of the session (later). Loading a module takes as long as the
  // server allows.
  std::chrono::nanoseconds control_timeout = std::chrono::seconds(30);
};

// A property of a device under its number in CUDA's CUdevice_attribute.
struct DeviceAttribute {
  std::uint32_t id = 0;
  std::int32_t value = 0;
};

struct DeviceProperties {
  std::string name;                // "embedded cpu device, 1 executor thread"
  std::string id;                  // "cpu:0"
  std::string kind;                // "cpu", "cuda"
  std::uint64_t memory_bytes = 0;  // Of the whole device; see MemoryInfo for this client's quota.
  std::uint32_t multiprocessors = 0;
  std::uint32_t threads_per_block_max = 0;
  std::array<std::uint32_t, 3> block_max = {};  // Threads along x, y, z.
  std::array<std::uint32_t, 3> grid_max = {};   // Blocks along x, y, z.
  std::uint32_t shared_bytes_per_block_max = 0;
  std::array<std::uint8_t, 16> uuid = {};   // All zero where the device has none.
  std::vector<DeviceAttribute> attributes;  // By ascending id.

  // The value under CUDA's number; none where the device does not tell.
  std::optional<std::int32_t> Attribute(std::uint32_t id) const;
};

struct MemoryInfo {
  std::uint64_t total_bytes = 0;   // This client's quota.
  std::uint64_t mapped_bytes = 0;  // Taken from the device for this client so far.
  // In live DeviceBuffers and DeviceChunks, and in freed buffers still in use by commands.
  std::uint64_t used_bytes = 0;
  // Of the quota: there at any time. Memory beyond it may be moved to host memory, at its
  // addresses, and the client's commands wait until it is back.
  std::uint64_t guaranteed_bytes = 0;
  std::uint64_t resident_bytes = 0;  // Of what is mapped: on the device.
  std::uint64_t wanted_bytes = 0;    // Of what is resident: others wait for it.
};

// A part of a client's device addresses.
struct AddressArea {
  DeviceAddress base = 0;
  std::uint64_t bytes = 0;
};

struct Dim3 {
  std::uint32_t x = 1, y = 1, z = 1;
};

struct LaunchShape {
  Dim3 grid;                               // Blocks.
  Dim3 block;                              // Threads per block.
  std::uint32_t dynamic_shared_bytes = 0;  // Per block, in addition to the kernel's static ones.
  // Blocks of one cluster, at most 16 and at most what the device allows; the grid is made of whole
  // ones. All zero: no clusters.
  Dim3 cluster = {0, 0, 0};
  // All blocks run at the same time, as a synchronisation of the whole grid needs it. A grid that
  // does not fit onto the device at once is rejected.
  bool is_cooperative = false;
};

// A rectangle of bytes: `height` rows of `width_bytes`, whose starts lie one pitch
// apart. Pitches are at least `width_bytes`.
struct CopyShape {
  std::size_t width_bytes = 0;
  std::size_t height = 1;
  std::size_t destination_pitch_bytes = 0;
  std::size_t source_pitch_bytes = 0;
};

// The value that Fill repeats.
struct FillElement {
  std::uint32_t value = 0;
  std::uint32_t element_bytes = 1;  // 1, 2 or 4.

  static constexpr FillElement U8(std::uint8_t value) { return {value, 1}; }
  static constexpr FillElement U16(std::uint16_t value) { return {value, 2}; }
  static constexpr FillElement U32(std::uint32_t value) { return {value, 4}; }
};

// `height` rows of `width_elements` elements, whose starts lie `pitch_bytes` apart.
struct FillShape {
  std::size_t width_elements = 0;
  std::size_t height = 1;
  std::size_t pitch_bytes = 0;
};

// One parameter of a kernel.
struct KernelParameter {
  std::uint32_t offset = 0;  // Bytes from the start of the argument buffer.
  std::uint32_t bytes = 0;
};

// Facts about a kernel that no launch depends on.
struct KernelAttributes {
  std::uint32_t registers = 0;                 // Per thread, of 32 bits each.
  std::uint32_t local_bytes = 0;               // Per thread.
  std::uint32_t constant_bytes = 0;            // Of .const variables of its module.
  std::uint32_t dynamic_shared_bytes_max = 0;  // Per block, of a launch.
  std::uint32_t ptx_version = 0;     // Architecture of its text: 80 for sm_80; 0: unknown.
  std::uint32_t binary_version = 0;  // Architecture of the code that runs.
};

// A variable of a module in device memory. It begins as the module says. It ends with the module.
struct ModuleVariable {
  std::string name;
  DeviceAddress address = 0;
  std::uint64_t bytes = 0;
  bool is_constant = false;  // .const; else .global.
};

// One argument of a launch: `bytes` bytes at `data`, copied before the call returns.
struct LaunchArgument {
  const void* data = nullptr;
  std::size_t bytes = 0;
};

// Device memory of one client, aligned to 256 bytes, zero only where nothing of this
// client used it before. The destructor frees it; the bytes are reused only after
// every command submitted before that has finished.
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
  std::size_t size() const noexcept { return bytes_; }  // Bytes asked for.
  // Of these, so many of the first may hold what this client left there before; the others were
  // zero when the buffer was made.
  std::size_t used_bytes() const noexcept { return used_bytes_; }
  // A buffer stands for its address: as a kernel argument, in copies, in arithmetic.
  // NOLINTNEXTLINE(google-explicit-constructor)
  operator DeviceAddress() const noexcept { return address_; }

  // Frees now what the destructor would free.
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

// Device memory that lies at no address by itself: Client::MapChunk gives it one, or several. It is
// zero at first, keeps its contents between two mappings, and counts against the quota. The
// destructor frees it, a round trip; one that is mapped then stays until the session ends.
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

  // Frees now what the destructor would free.
  void Reset() noexcept;

 private:
  friend class Client;
  DeviceChunk(std::shared_ptr<client::Session> session, std::uint32_t number, std::size_t bytes);

  std::shared_ptr<client::Session> session_;
  std::uint32_t number_ = 0;
  std::size_t bytes_ = 0;
};

// Host memory that the device reads and writes without a further copy, aligned to 256
// bytes. It lies in a staging staging buffer shared with the server. Contents are undefined at
// first. The caller must not touch bytes that an unfinished copy uses. The destructor
// frees it. The bytes are reused after every command submitted before has finished.
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
  std::size_t size() const noexcept { return bytes_.size(); }  // Bytes asked for.
  std::span<std::byte> bytes() const noexcept { return bytes_; }
  // The buffer as elements of T; a tail smaller than one element is left out.
  template <typename T>
  std::span<T> as() const noexcept {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= 256);
    return {reinterpret_cast<T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }

  // Frees now what the destructor would free.
  void Reset() noexcept;

 private:
  friend class Client;
  HostBuffer(std::shared_ptr<client::Session> session, std::span<std::byte> bytes);

  std::shared_ptr<client::Session> session_;
  std::span<std::byte> bytes_;
};

// A kernel of a loaded module. Keeps its module loaded. Immutable; a copy is another
// handle of the same kernel.
//
// Thread-safe.
class Kernel {
 public:
  Kernel() = default;

  bool valid() const noexcept { return state_ != nullptr; }
  // The following require valid().
  const std::string& name() const noexcept;
  std::span<const KernelParameter> parameters() const noexcept;
  std::uint32_t parameter_bytes() const noexcept;      // Size of the argument buffer.
  std::uint32_t static_shared_bytes() const noexcept;  // Per block.
  std::uint32_t threads_per_block_max() const noexcept;
  // What each launch must have, exactly; all zero: any.
  Dim3 required_block() const noexcept;    // Threads.
  Dim3 required_cluster() const noexcept;  // Blocks.
  const KernelAttributes& attributes() const noexcept;
  // Why launches of this kernel are rejected on this device (kUnsupported): all missing
  // instructions, with their PTX lines. Empty when it runs.
  const std::string& unsupported() const noexcept;

 private:
  friend class Module;
  friend class Stream;
  explicit Kernel(std::shared_ptr<const client::KernelState> state) : state_(std::move(state)) {}

  std::shared_ptr<const client::KernelState> state_;
};

// A loaded PTX module or fatbin. Unloaded when the last Module and Kernel handle is
// gone and every command submitted before that has finished.
//
// Thread-safe, except while moved from, assigned to or destroyed.
class Module {
 public:
  Module() = default;

  bool valid() const noexcept { return state_ != nullptr; }
  std::size_t kernel_count() const noexcept;
  // The `index`-th kernel in the order of the module; kNotFound past the last.
  Result<Kernel> KernelAt(std::size_t index) const;
  // kNotFound (naming the kernels that exist) when there is no kernel of this name. A
  // kernel that cannot run on this device is found; see Kernel::unsupported.
  Result<Kernel> GetKernel(std::string_view name) const;
  // The variables that the module's PTX declares, in its order. Borrowed from the module. Kernels
  // of all modules of this client may touch them, and copies and fills.
  std::span<const ModuleVariable> variables() const noexcept;
  // kNotFound when there is no variable of this name, or when the module is machine code without
  // PTX.
  Result<ModuleVariable> GetVariable(std::string_view name) const;

 private:
  friend class Client;
  explicit Module(std::shared_ptr<const client::ModuleState> state) : state_(std::move(state)) {}

  std::shared_ptr<const client::ModuleState> state_;
};

// A point in the work of a stream, set by Stream::Record; recording again moves it.
//
// Thread-safe, except while moved from, assigned to or destroyed.
class Event {
 public:
  Event() = default;

  bool valid() const noexcept { return state_ != nullptr; }
  // Ok when everything before the recorded point has finished, or if the event was never
  // recorded. kNotReady before that. The stream's error if it failed before the point.
  Status Query() const;
  // Blocks until Query would no longer say kNotReady, and returns what it says.
  Status Synchronize() const;
  // Device time from the point `start` to the point `end`; negative if `end` came
  // first. Both must have been created with EventTiming::kOn and recorded
  // (kInvalidArgument otherwise) and must be finished (kNotReady otherwise).
  static Result<std::chrono::nanoseconds> ElapsedTime(const Event& start, const Event& end);

 private:
  friend class Client;
  friend class Stream;
  explicit Event(std::shared_ptr<client::EventState> state) : state_(std::move(state)) {}

  std::shared_ptr<client::EventState> state_;
};

enum class EventTiming : std::uint8_t { kOff, kOn };

class Graph;

// An ordered queue of commands: they start and end in the order of submission.
// Commands of different streams are unordered unless Wait orders them.
//
// Every call that submits returns as soon as the command is queued, except where it
// says otherwise. It blocks while the queue to the server is full. All of them return
// the stream's sticky error, when there is one, instead of submitting.
//
// Device addresses are checked by the device: a range outside this client's memory is
// an error of the stream (kInvalidArgument), not of the call.
//
// Thread-safe, except while moved from, assigned to or destroyed: commands of two
// threads enter the stream in some order, each as a whole.
class Stream {
 public:
  Stream() = default;
  Stream(Stream&&) noexcept = default;
  Stream& operator=(Stream&&) noexcept = default;
  // Destroys the stream after the commands queued on it, without waiting.
  ~Stream() = default;

  bool valid() const noexcept { return state_ != nullptr; }

  // Launches `kernel` with these arguments, each trivially copyable, in the order of
  // the kernel's parameters. A DeviceBuffer stands for its address. kInvalidArgument if
  // number or sizes differ from the kernel's parameters, or if the shape exceeds the
  // limits of device or kernel. kUnsupported if the device cannot run this kernel.
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
  // The same with arguments known at run time.
  Status LaunchWith(const Kernel& kernel, const LaunchShape& shape,
                    std::span<const LaunchArgument> arguments) const;
  // The same with the argument buffer laid out by the caller: exactly
  // kernel.parameter_bytes() bytes.
  Status LaunchPacked(const Kernel& kernel, const LaunchShape& shape,
                      std::span<const std::byte> parameters) const;

  // Copies host memory to the device. Ordinary memory is staged: the call returns when
  // `source` may be reused, which for large copies includes waiting for most of the
  // copy. Memory of a HostBuffer is read in place: the call returns at once, and the
  // bytes must stay unchanged until the copy has finished.
  Status CopyToDevice(DeviceAddress destination, const void* source, std::size_t bytes) const;
  Status CopyToDevice2d(DeviceAddress destination, const void* source,
                        const CopyShape& shape) const;
  // Copies device memory to the host. Into ordinary memory: returns when the bytes have
  // arrived. Into a HostBuffer: returns at once; the bytes are there when the stream
  // has passed the copy.
  Status CopyToHost(void* destination, DeviceAddress source, std::size_t bytes) const;
  Status CopyToHost2d(void* destination, DeviceAddress source, const CopyShape& shape) const;
  // Copies inside device memory. The ranges must not overlap.
  Status CopyOnDevice(DeviceAddress destination, DeviceAddress source, std::size_t bytes) const;
  Status CopyOnDevice2d(DeviceAddress destination, DeviceAddress source,
                        const CopyShape& shape) const;

  // Repeats `element`, `count` times. `destination` must be aligned to the element.
  Status Fill(DeviceAddress destination, FillElement element, std::size_t count) const;
  // As above by rows; the pitch must be a multiple of the element too.
  Status Fill2d(DeviceAddress destination, FillElement element, const FillShape& shape) const;

  // Moves `event` to the end of what is queued on this stream now. Never blocks on the
  // device; only events with timing put a command into the queue.
  Status Record(const Event& event) const;
  // Later commands of this stream start only after the point where `event` stands now.
  // An event that was never recorded is no wait at all. If the event's stream fails
  // before that point, this stream fails with kCancelled. kInvalidArgument for an
  // event of another client.
  Status Wait(const Event& event) const;

  // Marks a request of this program. latency_target is about requests; gpusharedctl
  // counts and explains them. The request arrived `age` ago (at most an hour). It ends when
  // everything queued on this stream before EndRequest has finished. Work on other streams
  // belongs to it if this stream waits for it. Requests of one stream do not nest, but the
  // next may begin while earlier ones still run. At most 16 are open at one time.
  // BeginRequest blocks while 16 are about to end. It says kLimitExceeded when 16 streams
  // have begun one and not ended it. Destroying the stream ends its request.
  Status BeginRequest(std::chrono::nanoseconds age = std::chrono::nanoseconds(0)) const;
  // kInvalidArgument when none has begun; the stream's error if it failed.
  Status EndRequest() const;

  // Blocks until everything queued so far has finished. Returns the stream's error.
  Status Synchronize() const;
  // Ok when everything queued so far has finished, kNotReady when not; the stream's
  // error if it failed.
  Status Query() const;
  // What a kernel did, where the stream's error is kKernelFault; else kNone. Never waits: it
  // speaks of errors that a call has returned.
  FaultKind fault() const noexcept;

  // Of a recorder (Client::CreateRecorder): a graph of what was recorded, and the recorder is
  // empty again. Waits for the server, which checks every node as it checks the same command
  // alone. kLimitExceeded with 256 graphs, or 16 MiB of them.
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

// A recorded sequence of launches, copies and fills that the server has checked. It is launched as
// one command, for which the server decides once and not per node. Its nodes run one after the
// other, in the order in which they were recorded. Keeps the modules of its kernels loaded. The
// memory that it names must be there whenever it is launched: a launch fails its stream
// otherwise. Destroying it lets launches that were submitted run.
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

  // Runs all nodes behind what is queued on `stream`. Returns as soon as the launch is queued.
  Status Launch(const Stream& stream) const;

  // Replaces a node (counted from 0) that is a launch, from the next Launch on. Launches that were
  // queued before run as they were. Arguments as for Stream::Launch.
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

// One program's session with the server, on one device.
//
// Thread-safe, except while moved from, assigned to or destroyed.
class Client {
 public:
  // Connects and joins a device. Fails with kUnavailable when no server answers,
  // kVersionMismatch, kPermissionDenied, kNotFound (device), kLimitExceeded,
  // kOutOfMemory, kInvalidArgument or kTimedOut; the message says what and why.
  static Result<Client> Connect(const ClientOptions& options);
  // The server's devices, in its order, without joining any: a connection that is closed again. Of
  // `options` only the socket and the control timeout count. Waits while the server starts. Fails
  // with kUnavailable, kVersionMismatch, kInvalidArgument or kTimedOut.
  static Result<std::vector<DeviceProperties>> ListDevices(const ClientOptions& options);

  Client() = default;
  Client(Client&&) noexcept = default;
  Client& operator=(Client&&) noexcept = default;

  bool valid() const noexcept { return session_ != nullptr; }
  // The following two require valid().
  const DeviceProperties& device() const noexcept;
  std::uint64_t session_id() const noexcept;  // The number in gpusharedctl.

  // Loads PTX text or a fatbin; a control round trip with compilation on the server's
  // side, at worst seconds. `image` may be freed afterwards. kInvalidArgument, with
  // line and column, when it does not parse.
  Result<Module> LoadModule(std::span<const std::byte> image) const;
  Result<Module> LoadModule(std::string_view ptx) const;
  // Reads the file and loads it; kNotFound when it cannot be read.
  Result<Module> LoadModuleFile(const std::string& path) const;

  // `bytes` must be at least 1. Usually no round trip: memory comes from what is mapped
  // already. kOutOfMemory when quota or device are used up; the message has both sizes.
  Result<DeviceBuffer> AllocateDevice(std::size_t bytes) const;
  Result<HostBuffer> AllocateHost(std::size_t bytes) const;
  MemoryInfo memory_info() const;
  // Gives unused memory at the end of what is mapped back to the device; how many bytes. A round
  // trip, which waits for everything submitted before.
  Result<std::uint64_t> TrimDevice() const;

  // Device memory at addresses that the program chooses. Each of these calls is a round trip.
  // Where chunks may be mapped, beside all buffers. It has no bytes where the device has no such
  // memory, and for contained clients (memory = "contain").
  AddressArea mapping_area() const noexcept;
  // 2 MiB to 1 GiB in steps of 2 MiB; at most 256 chunks. kOutOfMemory as AllocateDevice.
  Result<DeviceChunk> CreateChunk(std::size_t bytes) const;
  // At a multiple of 2 MiB; kInvalidArgument where something is mapped already. Commands submitted
  // from now on may touch it. A chunk may be mapped at several places; at most 256 are mapped.
  Status MapChunk(const DeviceChunk& chunk, DeviceAddress address) const;
  // Of the mapping that begins there. Waits for everything submitted before.
  Status UnmapChunk(DeviceAddress address) const;

  // kLimitExceeded when 255 streams exist besides the default one.
  Result<Stream> CreateStream() const;
  // A stream whose launches, copies and fills are recorded instead of run: at most 4096 of them,
  // for Stream::MakeGraph. Copies to and from the host are of memory of a HostBuffer, which must be
  // there while the graph is. What asks about progress is rejected with kInvalidArgument: events,
  // waits, requests and synchronisation stand before and behind the graph's launch.
  Result<Stream> CreateRecorder() const;
  // Another handle of the stream that exists from the start. Not special otherwise: it
  // does not wait for other streams, nor they for it.
  Stream default_stream() const;
  Result<Event> CreateEvent(EventTiming timing = EventTiming::kOff) const;

  // A hint: the next request will begin in about this time, at most an hour. Policies that
  // look ahead keep the device free for it, if the client's class or promise entitles it
  // to that. They stop believing it soon after its time.
  Status ExpectRequestIn(std::chrono::nanoseconds in) const;

  // Blocks until everything queued so far, on all streams, has finished. Returns the
  // first error found, by stream number.
  Status Synchronize() const;
  // What kernels printed and no call has taken, oldest first: that of all commands whose end some
  // call has seen, and maybe more. Empty without a round trip when there is nothing. At most 1 MiB
  // is kept between two calls; a last line says how much was lost. kInvalidArgument unless
  // ClientOptions::takes_printed.
  Result<std::string> TakePrinted() const;

  // What every kernel of this client has from its next launch on; 0 leaves a number as it is.
  struct KernelMemory {
    std::uint64_t stack_bytes = 0;    // Of a thread, for calls that recurse: at most 256 KiB.
    std::uint64_t printed_bytes = 0;  // For TakePrinted, and of one launch: at most 64 MiB.
    // What kernels allocate from. Counts against the quota, and has, with the variables of modules,
    // 256 MiB.
    std::uint64_t heap_bytes = 0;
  };
  // Waits for the server. kUnsupported where the device has the same for all clients (GPUs);
  // kOutOfMemory; kInvalidArgument beyond those bounds, and for another heap once a kernel has
  // allocated from one.
  Status SetKernelMemory(const KernelMemory& memory) const;

  // What the first kernel that ended in a fault did, once a call has returned its kKernelFault;
  // kNone before. Never waits.
  FaultKind fault() const noexcept;

  // Ok while the session lives, else why it ended. Asks the socket, without waiting.
  Status status() const;

  // Ends the session now: queued commands are dropped, memory is gone. All handles then
  // answer kDisconnected. Also wakes threads that wait. The server learns of it a moment later.
  void Close() noexcept;
  // As Close, and returns when the server no longer counts this session: whoever connects next is
  // not rejected for what it held. Blocks for 2 s at most. The session is closed in any case; an
  // error is the server's: that the session has not ended there within its patience, that too many
  // of this user ask, or that it does not answer. kWrongProcess in a forked child.
  Status CloseAndWait();

 private:
  explicit Client(std::shared_ptr<client::Session> session) : session_(std::move(session)) {}

  std::shared_ptr<client::Session> session_;
};

// "0.1.0": of the library that is linked, which may be newer than version.h.
const char* LibraryVersion() noexcept;

}  // namespace gpushared

#endif  // GPUSHARED_CLIENT_H_

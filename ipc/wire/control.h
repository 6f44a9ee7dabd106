// SPDX-License-Identifier: Apache-2.0
// Control messages on a client's socket: the handshake and all large or rare operations. Each
// message is a value whose Visit describes its bytes; fields.h has Encode and Decode.

#ifndef GPUSHARED_IPC_WIRE_CONTROL_H_
#define GPUSHARED_IPC_WIRE_CONTROL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpushared/result.h"
#include "gpushared/status.h"

#include "ipc/wire/fields.h"
#include "ipc/wire/frame.h"
#include "ipc/wire/layout.h"
#include "ipc/wire/message_list.h"

namespace gpushared::ipc {

enum class MessageType : std::uint16_t {
  // First frame of a connection; read by the broker.
  kHello = 1,
  kAdmin = 2,
  kWhy = 3,
  kListDevices = 4,
  // Answers to the first frame. kWelcome carries kWelcomeFds descriptors in this order: command
  // segment, completion segment, worker page, doorbell eventfd.
  kWelcome = 16,
  kRejected = 17,  // Also the answer to any later request that fails.
  kEnded = 18,     // Unsolicited, before the socket closes; also the answer to kWhy.
  kAdminReply = 19,
  kDeviceList = 20,
  // Requests that clients send to the worker, and the answers.
  kLoadModule = 32,  // Loads the image that the client wrote to the memory of kImageMade.
  kModuleLoaded = 33,
  kUnloadModule = 34,  // Answered by kDone. Takes effect after the commands submitted before.
  kDone = 35,
  kResizeMemory = 36,
  kMemoryResized = 37,
  kAddStagingBuffer = 38,
  kStagingBufferAdded = 39,  // Carries the memfd of the staging buffer.
  kDescribeError = 40,
  kErrorText = 41,
  kMakeImage = 42,
  kImageMade = 43,  // Carries a memfd to which the client writes the image of a module.
  kTakePrinted = 44,
  kPrinted = 45,
  // Worker to an observer (AdminVerb::kTrace). Carries the memfd of the trace, which the observer
  // can read but not write. The worker writes to the memfd until the connection closes.
  kTraceOpened = 46,
  kChangeChunk = 47,      // Client to worker; answered by kDone.
  kSetKernelMemory = 48,  // Client to worker; answered by kDone.
};

inline constexpr std::uint32_t kWelcomeFds = 4;
inline constexpr std::size_t kNameBytes = 64;  // Sizes of fixed text fields, terminator included.
inline constexpr std::size_t kDeviceNameBytes = 128;
inline constexpr std::uint32_t kTextBytesMax = 8 * 1024;  // Limit of one message or error text.
// Limit of one part of the printed text.
inline constexpr std::uint32_t kPrintedTextBytesMax = 256 * 1024;
// Limit of one page of an admin reply.
inline constexpr std::uint32_t kPageTextBytesMax = 128 * 1024;
// Limit of the name of a kernel or variable.
inline constexpr std::uint32_t kSymbolNameBytesMax = 4096;
inline constexpr std::uint32_t kModuleReplyBytesMax = 8u << 20;
inline constexpr std::uint32_t kDevicesListedMax = 64;
inline constexpr std::uint32_t kDeviceAttributesMax = 160;
inline constexpr std::uint32_t kDeviceAttributeIdMax = 1023;             // CUDA's ids are lower.
inline constexpr std::uint64_t kLatencyTargetNsMax = 3'600'000'000'000;  // One hour.
inline constexpr std::uint64_t kSpinNsMax = 1'000'000'000;
// Class that is not set. In kSet, the class remains unchanged.
inline constexpr std::uint8_t kNoClass = 0xff;
inline constexpr auto kClassMax = static_cast<std::uint64_t>(SchedulingClass::kLow);
inline constexpr auto kStatusCodeMax = static_cast<std::uint64_t>(StatusCode::kInternal);
inline constexpr std::uint32_t kLeaseTermsBytesMax = 2048;
// Larger than the current hello, so that the hello of a later version can be read. The first word
// of a hello is the version in every protocol version.
inline constexpr std::uint32_t kFirstFrameBytesMax = 4096;

// ---- hello

struct Hello {
  static constexpr MessageType kType = MessageType::kHello;
  static constexpr char kName[] = "Hello";
  // The server chooses the values that are not set.
  std::optional<SchedulingClass> client_class;
  std::optional<std::uint32_t> weight;
  std::optional<std::uint32_t> max_share;  // Thousandths of device time.
  std::uint64_t latency_target_ns = 0;     // 0 means no target.
  // Upper limit on device memory; 0: as much as the client is allowed.
  std::uint64_t memory_bytes = 0;
  std::string name;
  std::string device;  // If empty, the broker chooses.
  // If true, the text that the client's kernels print is kept for kTakePrinted, and not written to
  // the server's log.
  bool takes_printed = false;
  // If true, the client submits its work to the driver itself, and requests turns.
  bool gated = false;

  void Visit(Fields& f) {
    f.Version();
    f.Optional("client_class", client_class, kNoClass, kClassMax);
    f.Flag("takes_printed", takes_printed);
    f.Flag("gated", gated);
    f.Reserved<std::uint8_t>();
    f.Optional("weight", weight, 0u, kWeightMax);
    f.Optional("max_share", max_share, 0u, kSharePerMilleMax);
    f.Number("latency_target_ns", latency_target_ns, 0, kLatencyTargetNsMax);
    f.Number("memory_bytes", memory_bytes);
    f.Text("name", name, kNameBytes);
    f.Text("device", device, kNameBytes);
  }
};

// ---- admin

enum class AdminVerb : std::uint8_t {
  kStatus = 1,
  kClients = 2,  // gpusharedctl ps
  kDevices = 3,
  kTerminate = 4,
  kSet = 5,
  kDrain = 6,
  kExplain = 7,
  kEndpoints = 8,
  kLease = 9,  // Leases an endpoint. The lease ends when this connection closes, or, with the term
               // resume_within, that much later unless a request resumes the lease.
  kReload = 10,
  kUpgrade = 11,  // The broker re-executes its program file.
  kResume = 12,   // Makes a drained device or server accept clients again.
  kTrace = 13,    // Makes a device record its execution as long as this connection exists.
  kPark = 14,     // Moves a client's device memory to host memory.
  kWake = 15,     // Lets a parked client use the device again.
  kMove = 16,     // Moves a client to another device.
};
inline constexpr std::uint8_t kAdminVerbMax = 16;
// Properties of a verb.
struct AdminVerbFacts {
  std::string_view name;  // Name in gpusharedctl, such as "ps".
  // Whether the right to observe suffices; otherwise the verb requires the right to operate.
  bool is_read_only = false;
  // Whether the request names a client. kSet names a client unless the request has a text
  // (`terms`).
  bool names_client = false;
  std::uint32_t text_bytes_max = 0;  // Limit of Admin::terms.
  std::uint32_t text_bytes_min = 0;
};
const AdminVerbFacts& GetFacts(AdminVerb verb);  // The name is "unknown" for other numbers.
inline std::string_view AdminVerbName(AdminVerb verb) { return GetFacts(verb).name; }

struct Admin {
  static constexpr MessageType kType = MessageType::kAdmin;
  static constexpr char kName[] = "Admin";
  AdminVerb verb = AdminVerb::kStatus;
  std::uint64_t client = 0;  // Session id. In kSet, 0 means the clients that connect later.
  // For kSet; fields without a value remain unchanged.
  std::optional<SchedulingClass> client_class;
  std::optional<std::uint32_t> weight;
  std::optional<std::uint32_t> max_share;  // Thousandths of device time.
  // For kExplain, the number of the request; 0 means the slowest known one. For kPark, 1 if the
  // client's own commands do not wake the client, else 0.
  std::uint64_t request = 0;
  // Depends on the verb:
  // - kLease: the keys of an [[endpoint]], as TOML.
  // - kDrain and kResume: a device as in Hello, or empty for the whole server.
  // - kTrace: a device as in Hello.
  // - kMove: the device to which the client is moved, as in Hello.
  // - kSet with client 0: as TOML, the keys class, client_max_share and client_memory (on the named
  //   `devices`) of an [[endpoint]]. They become the defaults of clients that connect later.
  std::string terms;

  void Visit(Fields& f);
};

// ---- why: a client that observed EOF requests the reason for the end of its session.

struct Why {
  static constexpr MessageType kType = MessageType::kWhy;
  static constexpr char kName[] = "Why";
  std::uint64_t session = 0;

  void Visit(Fields& f) {
    f.Version();
    f.Reserved<std::uint32_t>();
    f.Number("session", session, 1);
  }
};

// ---- device, as described in Welcome and in the worker's Ready message

// Value of a device property, and the property's number in CUDA's CUdevice_attribute.
struct DeviceAttribute {
  std::uint32_t id = 0;
  std::int32_t value = 0;
};
struct DeviceDescription {
  std::string name, id, kind;
  std::uint64_t memory_bytes = 0;
  std::uint32_t multiprocessors = 0;
  std::uint32_t threads_per_block_max = 0;
  std::array<std::uint32_t, 3> block_max = {};
  std::array<std::uint32_t, 3> grid_max = {};
  std::uint32_t shared_bytes_per_block_max = 0;
  bool preempts_within_command = false;
  bool spinning_pays = false;
  std::array<std::uint8_t, 16> uuid = {};
  // In ascending order of id, without duplicates. The first kDeviceAttributesMax are sent.
  std::vector<DeviceAttribute> attributes;

  void Visit(Fields& f);
};

// ---- device list, for a connection that opens no session

struct ListDevices {
  static constexpr MessageType kType = MessageType::kListDevices;
  static constexpr char kName[] = "ListDevices";

  void Visit(Fields& f) {
    f.Version();
    f.Reserved<std::uint32_t>();
  }
};

struct DeviceList {
  static constexpr MessageType kType = MessageType::kDeviceList;
  static constexpr char kName[] = "DeviceList";
  std::vector<DeviceDescription> devices;  // The first kDevicesListedMax are sent.

  void Visit(Fields& f);
};

// ---- welcome

struct Welcome {
  static constexpr MessageType kType = MessageType::kWelcome;
  static constexpr char kName[] = "Welcome";
  std::uint32_t generation = 0;  // Generation of the worker.
  std::uint64_t session = 0;
  std::uint64_t spin_ns = 0;  // How long a waiting client should spin before it sleeps.
  std::uint64_t quota_bytes = 0;
  std::uint64_t space_base = 0;               // Device address of the client's first byte.
  std::uint64_t space_bytes = 0;              // Size of the address range, mapped or not.
  std::uint64_t staging_bytes_total_max = 0;  // Limit for all staging buffers of this client.
  std::uint64_t mapping_base = 0;             // Start of the range in which chunks may be mapped.
  std::uint64_t mapping_bytes = 0;            // Size of that range; 0 if chunks are not available.
  DeviceDescription device;

  void Visit(Fields& f);
};

// ---- rejected and ended: a code and a message

// Visits the code and the length of the message, which is the whole tail.
void VisitStatus(Fields& f, Status& status, StatusCode minimum);

struct Rejected {
  static constexpr MessageType kType = MessageType::kRejected;
  static constexpr char kName[] = "Rejected";
  Status status;

  void Visit(Fields& f) { VisitStatus(f, status, StatusCode::kInvalidArgument); }
};
struct Ended {
  static constexpr MessageType kType = MessageType::kEnded;
  static constexpr char kName[] = "Ended";
  Status status;

  void Visit(Fields& f) { VisitStatus(f, status, StatusCode::kInvalidArgument); }
};

// ---- admin reply: a code and JSON or a message, in as many pages as needed

void VisitPage(Fields& f, StatusCode& code, std::string& text, bool& is_last);

struct AdminReply {
  static constexpr MessageType kType = MessageType::kAdminReply;
  static constexpr char kName[] = "AdminReply";
  StatusCode code = StatusCode::kOk;  // All pages have the same code.
  std::string text;     // JSON if code is kOk, otherwise a message; at most kPageTextBytesMax.
  bool is_last = true;  // If false, the text continues in the next page of the same request.

  void Visit(Fields& f) { VisitPage(f, code, text, is_last); }
};
// Removes one page from the front of `rest` and returns the page. If `rest` is UTF-8, the page ends
// at a character boundary.
std::string_view TakePage(std::string_view& rest);

// ---- trace

struct TraceOpened {
  static constexpr MessageType kType = MessageType::kTraceOpened;
  static constexpr char kName[] = "TraceOpened";
  std::uint64_t layout = 0;      // Layout of the trace memory: trace::kLayoutNumber of the worker.
  std::uint32_t generation = 0;  // Generation of the worker.

  void Visit(Fields& f) {
    f.Descriptors(1);
    f.Number("layout", layout);
    f.Number("generation", generation);
    f.Reserved<std::uint32_t>();
  }
};

// ---- modules

// Requests memory for one image, valid until a load takes it or the next request replaces it.
struct MakeImage {
  static constexpr MessageType kType = MessageType::kMakeImage;
  static constexpr char kName[] = "MakeImage";
  std::uint64_t bytes = 0;

  void Visit(Fields& f) { f.Number("bytes", bytes, 1, kModuleImageBytesMax); }
};

struct ImageMade {
  static constexpr MessageType kType = MessageType::kImageMade;
  static constexpr char kName[] = "ImageMade";
  std::uint64_t bytes = 0;  // Size, as requested.

  void Visit(Fields& f) {
    f.Descriptors(1);
    f.Number("bytes", bytes, 1, kModuleImageBytesMax);
  }
};

struct LoadModule {
  static constexpr MessageType kType = MessageType::kLoadModule;
  static constexpr char kName[] = "LoadModule";
  std::uint32_t module = 0;  // Chosen by the client; must not be in use.
  std::uint64_t bytes = 0;   // Size of the memory made for the image.

  void Visit(Fields& f) {
    f.Number("module", module, 0, kModulesMax - 1);
    f.Reserved<std::uint32_t>();
    f.Number("bytes", bytes, 1, kModuleImageBytesMax);
  }
};

// Properties of a kernel that launches need not consider.
struct KernelAttributes {
  std::uint32_t registers = 0;                 // 32-bit registers per thread.
  std::uint32_t local_bytes = 0;               // Local memory per thread.
  std::uint32_t constant_bytes = 0;            // Size of the module's .const variables.
  std::uint32_t dynamic_shared_bytes_max = 0;  // Limit of dynamic shared memory per block.
  std::uint32_t ptx_version = 0;               // Target of the PTX: 80 for sm_80; 0 if unknown.
  std::uint32_t binary_version = 0;            // Architecture of the machine code that runs.
};
struct ParameterDescription {
  std::uint32_t offset = 0;
  std::uint32_t bytes = 0;

  void Visit(Fields& f) {
    f.Number("offset", offset);
    f.Number("bytes", bytes);
  }
};
struct KernelDescription {
  std::string name;
  std::string unsupported;  // Empty if the kernel can run. Truncated at kTextBytesMax.
  std::uint32_t parameter_bytes = 0;
  std::uint32_t static_shared_bytes = 0;
  std::uint32_t threads_per_block_max = 0;
  // The only shape that a launch may have, along x, y and z; all zero if any shape is allowed.
  std::array<std::uint32_t, 3> required_block = {};
  std::array<std::uint32_t, 3> required_cluster = {};
  std::vector<ParameterDescription> parameters;
  KernelAttributes attributes;

  void Visit(Fields& f);
};
enum class VariableSpace : std::uint32_t { kGlobal = 0, kConstant = 1 };
struct VariableDescription {
  std::string name;
  std::uint64_t address = 0;  // Device address.
  std::uint64_t bytes = 0;
  VariableSpace space = VariableSpace::kGlobal;

  void Visit(Fields& f);
};
struct ModuleLoaded {
  static constexpr MessageType kType = MessageType::kModuleLoaded;
  static constexpr char kName[] = "ModuleLoaded";
  std::uint32_t module = 0;
  std::vector<KernelDescription> kernels;
  std::vector<VariableDescription> variables;

  void Visit(Fields& f);
};
// Encodes the only message whose size depends on a client's module. kLimitExceeded if the module
// has too many kernels or variables, or if the message would be too large.
Result<std::vector<std::byte>> Encode(const ModuleLoaded& loaded);

struct UnloadModule {
  static constexpr MessageType kType = MessageType::kUnloadModule;
  static constexpr char kName[] = "UnloadModule";
  std::uint32_t module = 0;

  void Visit(Fields& f) {
    f.Number("module", module, 0, kModulesMax - 1);
    f.Reserved<std::uint32_t>();
  }
};

struct Done {
  static constexpr MessageType kType = MessageType::kDone;
  static constexpr char kName[] = "Done";

  void Visit(Fields&) {}
};

// ---- memory and staging buffers

inline constexpr std::uint64_t kResizeBytesMax = std::uint64_t{1} << 48;
struct ResizeMemory {
  static constexpr MessageType kType = MessageType::kResizeMemory;
  static constexpr char kName[] = "ResizeMemory";
  std::uint64_t bytes = 0;  // Requested size of the mapped part.

  void Visit(Fields& f) { f.Number("bytes", bytes, 0, kResizeBytesMax); }
};

struct MemoryResized {
  static constexpr MessageType kType = MessageType::kMemoryResized;
  static constexpr char kName[] = "MemoryResized";
  std::uint64_t mapped_bytes = 0;

  void Visit(Fields& f) { f.Number("mapped_bytes", mapped_bytes, 0, kResizeBytesMax); }
};

enum class ChunkAction : std::uint32_t {
  kMake = 1,  // Uses chunk and bytes.
  kFree = 2,  // Frees a chunk that is not mapped.
  kMap = 3,   // Maps all of a chunk at an address.
  // Removes the mapping at the address. A client first waits for its own commands, because commands
  // that have not begun when the worker receives this request can no longer access the mapping and
  // may fail. The worker answers once all commands submitted before have finished.
  kUnmap = 4,
};
struct ChangeChunk {
  static constexpr MessageType kType = MessageType::kChangeChunk;
  static constexpr char kName[] = "ChangeChunk";
  ChunkAction action = ChunkAction::kMake;
  std::uint32_t chunk = 0;  // Chosen by the client; 0 if the action does not use it.
  // Multiples of kChunkBytesStep; 0 if the action does not use them.
  std::uint64_t bytes = 0;
  std::uint64_t address = 0;

  void Visit(Fields& f);
};

// Memory that kernels may use in addition to what their modules declare; 0 leaves a value
// unchanged.
inline constexpr std::uint64_t kStackBytesMax = std::uint64_t{256} << 10;
inline constexpr std::uint64_t kPrintedBytesMax = std::uint64_t{64} << 20;
struct SetKernelMemory {
  static constexpr MessageType kType = MessageType::kSetKernelMemory;
  static constexpr char kName[] = "SetKernelMemory";
  std::uint64_t stack_bytes = 0;    // Stack of each thread, for recursive calls.
  std::uint64_t printed_bytes = 0;  // Limit of printed bytes kept until the client takes them.
  std::uint64_t heap_bytes = 0;

  void Visit(Fields& f) {
    f.Number("stack_bytes", stack_bytes, 0, kStackBytesMax);
    f.Number("printed_bytes", printed_bytes, 0, kPrintedBytesMax);
    f.Number("heap_bytes", heap_bytes, 0, kResizeBytesMax);
  }
};

struct AddStagingBuffer {
  static constexpr MessageType kType = MessageType::kAddStagingBuffer;
  static constexpr char kName[] = "AddStagingBuffer";
  std::uint64_t bytes = 0;  // A multiple of kStagingBytesStep.

  void Visit(Fields& f) {
    f.Number("bytes", bytes, kStagingBytesStep, kStagingBufferBytesMax);
    f.Multiple("bytes", bytes, kStagingBytesStep);
  }
};

struct StagingBufferAdded {
  static constexpr MessageType kType = MessageType::kStagingBufferAdded;
  static constexpr char kName[] = "StagingBufferAdded";
  std::uint32_t staging_buffer = 0;
  std::uint64_t bytes = 0;

  void Visit(Fields& f) {
    f.Descriptors(1);
    f.Number("staging_buffer", staging_buffer, 0, kStagingBuffersMax - 1);
    f.Reserved<std::uint32_t>();
    f.Number("bytes", bytes, kStagingBytesStep, kStagingBufferBytesMax);
    f.Multiple("bytes", bytes, kStagingBytesStep);
  }
};

// ---- error text

struct DescribeError {
  static constexpr MessageType kType = MessageType::kDescribeError;
  static constexpr char kName[] = "DescribeError";
  std::uint32_t stream = 0;

  void Visit(Fields& f) {
    f.Number("stream", stream, 0, kStreamsMax - 1);
    f.Reserved<std::uint32_t>();
  }
};

struct ErrorText {
  static constexpr MessageType kType = MessageType::kErrorText;
  static constexpr char kName[] = "ErrorText";
  std::uint32_t stream = 0;
  std::uint64_t sequence = 0;  // Sequence of the failed command; 0 if the stream has no error.
  Status status;               // Sticky error of the stream; kOk if it has none.

  void Visit(Fields& f);
};

// ---- printed text

struct TakePrinted {
  static constexpr MessageType kType = MessageType::kTakePrinted;
  static constexpr char kName[] = "TakePrinted";

  void Visit(Fields&) {}
};

// Oldest part of the printed text that the client has not taken; empty if there is none.
struct Printed {
  static constexpr MessageType kType = MessageType::kPrinted;
  static constexpr char kName[] = "Printed";
  std::uint64_t end = 0;      // Bytes printed so far, up to and including this part.
  std::uint64_t dropped = 0;  // Bytes printed so far that were not kept.
  // Arbitrary bytes, chosen by a kernel. The first kPrintedTextBytesMax are sent.
  std::string text;

  void Visit(Fields& f);
};

// ---- receivers

// Messages that the broker receives on a new connection.
using FirstMessages = MessageList<Hello, Admin, Why, ListDevices>;
using ClientMessages =  // Messages that the worker receives from a client.
    MessageList<LoadModule, MakeImage, UnloadModule, ResizeMemory, ChangeChunk, SetKernelMemory,
                AddStagingBuffer, DescribeError, TakePrinted>;
using ServerMessages =  // Messages that a client receives from the broker or the worker.
    MessageList<Welcome, Rejected, Ended, AdminReply, TraceOpened, DeviceList, ModuleLoaded, Done,
                MemoryResized, StagingBufferAdded, ImageMade, Printed, ErrorText>;

// Decodes a frame that should be of type T::kType. kRejected and kEnded become the Status they
// carry; any other type is a kProtocolViolation.
template <typename T>
Result<T> DecodeReply(const Frame& frame);

// Rules for the frames that each receiver allows.
std::optional<FrameRule> FirstFrameRules(std::uint16_t type);
std::optional<FrameRule> ClientFrameRules(std::uint16_t type);
std::optional<FrameRule> ServerFrameRules(std::uint16_t type);

// Returns a name such as "LoadModule"; "unknown" for other numbers.
std::string_view MessageTypeName(std::uint16_t type);

// Implementation of DecodeReply for frames of another type.
Status UnexpectedReply(const Frame& frame, MessageType wanted);

template <typename T>
Result<T> DecodeReply(const Frame& frame) {
  if (frame.type == static_cast<std::uint16_t>(T::kType)) return Decode<T>(frame.payload);
  return UnexpectedReply(frame, T::kType);
}

}  // namespace gpushared::ipc

#endif  // GPUSHARED_IPC_WIRE_CONTROL_H_

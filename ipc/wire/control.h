// SPDX-License-Identifier: Apache-2.0
// Control messages on a client's socket: the handshake, and everything bulky or rare. Each is a
// value that describes its bytes in Visit; fields.h has Encode, and Decode as the only way back.

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
  // Answers to the first frame. kWelcome carries kWelcomeFds in this order: command segment,
  // completion segment, worker page, doorbell eventfd.
  kWelcome = 16,
  kRejected = 17,  // Also the answer to any later request that cannot be met.
  kEnded = 18,     // Unsolicited, then the socket closes; and the answer to kWhy.
  kAdminReply = 19,
  kDeviceList = 20,
  // Client to worker, and its answer.
  kLoadModule = 32,  // Loads the bytes that the client wrote into the memory made for its image.
  kModuleLoaded = 33,
  kUnloadModule = 34,  // Answered by kDone. Takes effect after commands submitted before.
  kDone = 35,
  kResizeMemory = 36,
  kMemoryResized = 37,
  kAddArena = 38,
  kArenaAdded = 39,  // Carries the staging buffer's memfd.
  kDescribeError = 40,
  kErrorText = 41,
  kMakeImage = 42,
  kImageMade = 43,  // Carries a memfd: the client writes a module's image into it.
  kTakePrinted = 44,
  kPrinted = 45,
  // Worker to whoever watches (AdminVerb::kTrace). Carries the trace's memfd, which others can only
  // read. Its worker writes until the connection closes.
  kTraceOpened = 46,
  kChangeChunk = 47,      // Client to worker; answered by kDone.
  kSetKernelMemory = 48,  // The same.
};

inline constexpr std::uint32_t kWelcomeFds = 4;
inline constexpr std::size_t kNameBytes = 64;  // Fixed text fields, terminator included.
inline constexpr std::size_t kDeviceNameBytes = 128;
inline constexpr std::uint32_t kTextBytesMax = 8 * 1024;           // One sentence, one error text.
inline constexpr std::uint32_t kPrintedTextBytesMax = 256 * 1024;  // One part.
inline constexpr std::uint32_t kPageTextBytesMax = 128 * 1024;     // One page of an admin reply.
inline constexpr std::uint32_t kSymbolNameBytesMax = 4096;         // A kernel or a variable has it.
inline constexpr std::uint32_t kModuleReplyBytesMax = 8u << 20;
inline constexpr std::uint32_t kDevicesListedMax = 64;
inline constexpr std::uint32_t kDeviceAttributesMax = 160;
inline constexpr std::uint32_t kDeviceAttributeIdMax = 1023;             // CUDA has fewer.
inline constexpr std::uint64_t kLatencyTargetNsMax = 3'600'000'000'000;  // One hour.
inline constexpr std::uint64_t kSpinNsMax = 1'000'000'000;
inline constexpr std::uint8_t kNoClass = 0xff;  // Not said, or to be left as it is.
inline constexpr auto kClassMax = static_cast<std::uint64_t>(SchedulingClass::kLow);
inline constexpr auto kStatusCodeMax = static_cast<std::uint64_t>(StatusCode::kInternal);
inline constexpr std::uint32_t kLeaseTermsBytesMax = 2048;
// A later version may have a longer hello; its first word is still the version.
inline constexpr std::uint32_t kFirstFrameBytesMax = 4096;

// ---- hello

struct Hello {
  static constexpr MessageType kType = MessageType::kHello;
  static constexpr char kName[] = "Hello";
  // A field that is not set leaves the choice to the server.
  std::optional<SchedulingClass> client_class;
  std::optional<std::uint32_t> weight;
  std::optional<std::uint32_t> max_share;  // Thousandths of device time.
  std::uint64_t latency_target_ns = 0;     // 0: none.
  std::uint64_t memory_bytes = 0;  // Device memory it wants at most; 0: all that it may have.
  std::string name;
  std::string device;  // Empty: the broker chooses.
  // What its kernels print is kept for it (kTakePrinted) and not written into the server's log.
  bool takes_printed = false;

  void Visit(Fields& f) {
    f.Version();
    f.Optional("client_class", client_class, kNoClass, kClassMax);
    f.Flag("takes_printed", takes_printed);
    f.Reserved<std::uint8_t, 2>();
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
  kLease = 9,  // Makes an endpoint, which lasts as long as this connection.
  kReload = 10,
  kUpgrade = 11,  // The broker executes its program's file as it is now.
  kResume = 12,   // A device, or the server, that is drained takes clients again.
  kTrace = 13,    // A device writes what runs for as long as this connection lasts.
};
inline constexpr std::uint8_t kAdminVerbMax = 13;
// What a verb is called, takes and needs.
struct AdminVerbFacts {
  std::string_view name;             // As gpusharedctl has it: "ps".
  bool only_looks = false;           // The right to observe suffices, else it is that to operate.
  bool names_client = false;         // kSet: unless it has a text.
  std::uint32_t text_bytes_max = 0;  // Of Admin::terms.
  std::uint32_t text_bytes_min = 0;
};
const AdminVerbFacts& GetFacts(AdminVerb verb);  // "unknown" for other numbers.
inline std::string_view AdminVerbName(AdminVerb verb) { return GetFacts(verb).name; }

struct Admin {
  static constexpr MessageType kType = MessageType::kAdmin;
  static constexpr char kName[] = "Admin";
  AdminVerb verb = AdminVerb::kStatus;
  std::uint64_t client = 0;  // Session id; 0 in kSet: clients that connect later.
  // kSet only; what is not set stays as it is.
  std::optional<SchedulingClass> client_class;
  std::optional<std::uint32_t> weight;
  std::optional<std::uint32_t> max_share;  // Thousandths of device time.
  std::uint64_t request = 0;               // kExplain only; 0: the slowest of those that are known.
  // kLease: the keys of an [[endpoint]], as TOML. kDrain, kResume and kTrace: a device as in Hello;
  // kDrain and kResume without one mean the server. kSet of client 0: keys of an [[endpoint]] that
  // bound clients which connect later and ask for nothing themselves: class, client_max_share, and
  // client_memory on the `devices` that are named.
  std::string terms;

  void Visit(Fields& f);
};

// ---- why: a client that saw EOF asks how its session ended.

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

// ---- a device, as welcome and the worker's ready message describe it

// A property under its number in CUDA's CUdevice_attribute.
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
  // By ascending id, each once. The first kDeviceAttributesMax are sent.
  std::vector<DeviceAttribute> attributes;

  void Visit(Fields& f);
};

// ---- device list: what there is, for a connection that does not join.

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
  std::uint32_t generation = 0;  // The worker's.
  std::uint64_t session = 0;
  std::uint64_t spin_ns = 0;  // How long a waiting client should spin before it sleeps.
  std::uint64_t quota_bytes = 0;
  std::uint64_t space_base = 0;               // Device address of the client's first byte.
  std::uint64_t space_bytes = 0;              // Size of the address range, mapped or not.
  std::uint64_t staging_bytes_total_max = 0;  // Over all staging buffers of this client.
  std::uint64_t mapping_base = 0;             // Where chunks may be mapped.
  std::uint64_t mapping_bytes = 0;            // 0: nowhere.
  DeviceDescription device;

  void Visit(Fields& f);
};

// ---- rejected, ended: a code and a sentence

// The code and the length of its text, and the text as the whole tail.
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

// ---- admin reply: a code and JSON or a sentence, in as many pages as it takes

void VisitPage(Fields& f, StatusCode& code, std::string& text, bool& is_last);

struct AdminReply {
  static constexpr MessageType kType = MessageType::kAdminReply;
  static constexpr char kName[] = "AdminReply";
  StatusCode code = StatusCode::kOk;  // The same in all pages.
  std::string text;     // JSON when code is kOk, else a sentence; at most kPageTextBytesMax.
  bool is_last = true;  // Else the text goes on in the next page, of the same request.

  void Visit(Fields& f) { VisitPage(f, code, text, is_last); }
};
// Takes what one page holds off the front of `rest`: whole characters, if it is UTF-8.
std::string_view TakePage(std::string_view& rest);

// ---- trace

struct TraceOpened {
  static constexpr MessageType kType = MessageType::kTraceOpened;
  static constexpr char kName[] = "TraceOpened";
  std::uint64_t layout = 0;      // Of the memory: trace::kLayoutNumber of the worker.
  std::uint32_t generation = 0;  // The worker's.

  void Visit(Fields& f) {
    f.Descriptors(1);
    f.Number("layout", layout);
    f.Number("generation", generation);
    f.Reserved<std::uint32_t>();
  }
};

// ---- modules

// Memory for one image, until a load takes it or the next request replaces it.
struct MakeImage {
  static constexpr MessageType kType = MessageType::kMakeImage;
  static constexpr char kName[] = "MakeImage";
  std::uint64_t bytes = 0;

  void Visit(Fields& f) { f.Number("bytes", bytes, 1, kModuleImageBytesMax); }
};

struct ImageMade {
  static constexpr MessageType kType = MessageType::kImageMade;
  static constexpr char kName[] = "ImageMade";
  std::uint64_t bytes = 0;  // The bytes asked for.

  void Visit(Fields& f) {
    f.Descriptors(1);
    f.Number("bytes", bytes, 1, kModuleImageBytesMax);
  }
};

struct LoadModule {
  static constexpr MessageType kType = MessageType::kLoadModule;
  static constexpr char kName[] = "LoadModule";
  std::uint32_t module = 0;  // Chosen by the client, not in use.
  std::uint64_t bytes = 0;   // All the memory made for the image.

  void Visit(Fields& f) {
    f.Number("module", module, 0, kModulesMax - 1);
    f.Reserved<std::uint32_t>();
    f.Number("bytes", bytes, 1, kModuleImageBytesMax);
  }
};

// Facts about a kernel that no launch depends on.
struct KernelAttributes {
  std::uint32_t registers = 0;                 // Per thread, of 32 bits each.
  std::uint32_t local_bytes = 0;               // Per thread.
  std::uint32_t constant_bytes = 0;            // Of .const variables.
  std::uint32_t dynamic_shared_bytes_max = 0;  // Per block.
  std::uint32_t ptx_version = 0;     // Architecture of the text: 80 for sm_80; 0: unknown.
  std::uint32_t binary_version = 0;  // Architecture of the code that runs.
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
  std::string unsupported;  // Empty: it runs. Cut off at kTextBytesMax.
  std::uint32_t parameter_bytes = 0;
  std::uint32_t static_shared_bytes = 0;
  std::uint32_t threads_per_block_max = 0;
  // What each launch must have, exactly, along x, y and z; all zero: any.
  std::array<std::uint32_t, 3> required_block = {};
  std::array<std::uint32_t, 3> required_cluster = {};
  std::vector<ParameterDescription> parameters;
  KernelAttributes attributes;

  void Visit(Fields& f);
};
enum class VariableSpace : std::uint32_t { kGlobal = 0, kConstant = 1 };
struct VariableDescription {
  std::string name;
  std::uint64_t address = 0;  // On the device.
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
// The one message whose size a client's module decides: kLimitExceeded when it has more than
// layout.h allows, or the answer would not fit.
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
  std::uint64_t bytes = 0;  // Wanted size of the mapped part.

  void Visit(Fields& f) { f.Number("bytes", bytes, 0, kResizeBytesMax); }
};

struct MemoryResized {
  static constexpr MessageType kType = MessageType::kMemoryResized;
  static constexpr char kName[] = "MemoryResized";
  std::uint64_t mapped_bytes = 0;

  void Visit(Fields& f) { f.Number("mapped_bytes", mapped_bytes, 0, kResizeBytesMax); }
};

enum class ChunkAction : std::uint32_t {
  kMake = 1,  // Chunk and bytes.
  kFree = 2,  // A chunk that is mapped nowhere.
  kMap = 3,   // A chunk at an address, from where there is room for all of it.
  // What is mapped at the address. Work that has begun on the device still reaches it. Work that
  // has not may fail there, even if it was submitted before: a client waits for its own first.
  // Answered when all that was submitted before has finished and nothing reaches it any more.
  kUnmap = 4,
};
struct ChangeChunk {
  static constexpr MessageType kType = MessageType::kChangeChunk;
  static constexpr char kName[] = "ChangeChunk";
  ChunkAction action = ChunkAction::kMake;
  std::uint32_t chunk = 0;  // Chosen by the client. 0 where it is not asked for.
  // Multiples of kChunkBytesStep; 0 where they are not asked for.
  std::uint64_t bytes = 0;
  std::uint64_t address = 0;

  void Visit(Fields& f);
};

// What each kernel has beside what its module declares; 0 leaves it as it is.
inline constexpr std::uint64_t kStackBytesMax = std::uint64_t{256} << 10;
inline constexpr std::uint64_t kPrintedBytesMax = std::uint64_t{64} << 20;
struct SetKernelMemory {
  static constexpr MessageType kType = MessageType::kSetKernelMemory;
  static constexpr char kName[] = "SetKernelMemory";
  std::uint64_t stack_bytes = 0;    // Of a thread, for calls that recurse.
  std::uint64_t printed_bytes = 0;  // Kept until they are taken.
  std::uint64_t heap_bytes = 0;

  void Visit(Fields& f) {
    f.Number("stack_bytes", stack_bytes, 0, kStackBytesMax);
    f.Number("printed_bytes", printed_bytes, 0, kPrintedBytesMax);
    f.Number("heap_bytes", heap_bytes, 0, kResizeBytesMax);
  }
};

struct AddStagingBuffer {
  static constexpr MessageType kType = MessageType::kAddArena;
  static constexpr char kName[] = "AddStagingBuffer";
  std::uint64_t bytes = 0;  // A multiple of kStagingBytesStep.

  void Visit(Fields& f) {
    f.Number("bytes", bytes, kStagingBytesStep, kArenaBytesMax);
    f.Multiple("bytes", bytes, kStagingBytesStep);
  }
};

struct StagingBufferAdded {
  static constexpr MessageType kType = MessageType::kArenaAdded;
  static constexpr char kName[] = "StagingBufferAdded";
  std::uint32_t staging_buffer = 0;
  std::uint64_t bytes = 0;

  void Visit(Fields& f) {
    f.Descriptors(1);
    f.Number("staging_buffer", staging_buffer, 0, kStagingBuffersMax - 1);
    f.Reserved<std::uint32_t>();
    f.Number("bytes", bytes, kStagingBytesStep, kArenaBytesMax);
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
  std::uint64_t sequence = 0;  // Of the command that failed; 0 with kOk.
  Status status;               // The stream's sticky error; kOk: it has none.

  void Visit(Fields& f);
};

// ---- what kernels print

struct TakePrinted {
  static constexpr MessageType kType = MessageType::kTakePrinted;
  static constexpr char kName[] = "TakePrinted";

  void Visit(Fields&) {}
};

// The oldest part of what was printed and not taken; empty when there is none.
struct Printed {
  static constexpr MessageType kType = MessageType::kPrinted;
  static constexpr char kName[] = "Printed";
  std::uint64_t end = 0;      // Where the part ends in all that was ever printed, in bytes.
  std::uint64_t dropped = 0;  // Bytes of that, before or behind the part, that were not kept.
  std::string text;  // Any bytes, a kernel chose them. The first kPrintedTextBytesMax are sent.

  void Visit(Fields& f);
};

// ---- receivers

using FirstMessages = MessageList<Hello, Admin, Why, ListDevices>;  // Broker, new connection.
using ClientMessages =                                              // Worker, from a client.
    MessageList<LoadModule, MakeImage, UnloadModule, ResizeMemory, ChangeChunk, SetKernelMemory,
                AddStagingBuffer, DescribeError, TakePrinted>;
using ServerMessages =  // Client, from broker or worker.
    MessageList<Welcome, Rejected, Ended, AdminReply, TraceOpened, DeviceList, ModuleLoaded, Done,
                MemoryResized, StagingBufferAdded, ImageMade, Printed, ErrorText>;

// Decode for a frame that should be of type T::kType: any other type is a kProtocolViolation,
// except that kRejected and kEnded become the Status they carry.
template <typename T>
Result<T> DecodeReply(const Frame& frame);

// The frames that each receiver allows.
std::optional<FrameRule> FirstFrameRules(std::uint16_t type);
std::optional<FrameRule> ClientFrameRules(std::uint16_t type);
std::optional<FrameRule> ServerFrameRules(std::uint16_t type);

std::string_view MessageTypeName(std::uint16_t type);  // "LoadModule"; "unknown".

// Implementation of DecodeReply for frames of another type.
Status UnexpectedReply(const Frame& frame, MessageType wanted);

template <typename T>
Result<T> DecodeReply(const Frame& frame) {
  if (frame.type == static_cast<std::uint16_t>(T::kType)) return Decode<T>(frame.payload);
  return UnexpectedReply(frame, T::kType);
}

}  // namespace gpushared::ipc

#endif  // GPUSHARED_IPC_WIRE_CONTROL_H_

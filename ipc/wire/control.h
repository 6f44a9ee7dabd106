// SPDX-License-Identifier: Apache-2.0
// Control messages on a client's socket: the handshake, and everything bulky or rare. Each
// exists as a fixed struct of the wire (XWire, optionally followed by a tail) and as a value
// (X). Encode makes bytes from values; Decode is the only way back, and refuses with
// kProtocolViolation (kVersionMismatch for another version) what no honest peer sends.

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

#include "ipc/wire/frame.h"
#include "ipc/wire/layout.h"

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
  kRefused = 17,  // Also the answer to any later request that cannot be met.
  kEnded = 18,    // Unsolicited, then the socket closes; and the answer to kWhy.
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
  kArenaAdded = 39,  // Carries the arena's memfd.
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
inline constexpr std::uint32_t kWeightMax = 1000;  // The scheduler's; the worker asserts it.
// Shares of device time are in thousandths; this is no cap.
inline constexpr std::uint32_t kSharePerMilleMax = 1000;
inline constexpr std::uint32_t kDevicesListedMax = 64;
inline constexpr std::uint32_t kDeviceAttributesMax = 160;
inline constexpr std::uint32_t kDeviceAttributeIdMax = 1023;              // CUDA has fewer.
inline constexpr std::uint64_t kLatencyPromiseNsMax = 3'600'000'000'000;  // One hour.
inline constexpr std::uint64_t kSpinNsMax = 1'000'000'000;
inline constexpr std::uint8_t kClassNotSaid = 0xff;  // HelloWire::client_class.
inline constexpr std::uint32_t kLeaseTermsBytesMax = 2048;
// A later version may have a longer hello; its first word is still the version.
inline constexpr std::uint32_t kFirstFrameBytesMax = 4096;

// ---- hello

struct HelloWire {
  std::uint32_t version = kProtocolVersion;
  std::uint8_t client_class = kClassNotSaid;
  std::uint8_t takes_printed = 0;  // 0 or 1.
  std::uint8_t reserved0[2] = {};
  std::uint32_t weight = 0;              // 1 to kWeightMax; 0: not said.
  std::uint32_t max_share = 0;           // 1 to kSharePerMilleMax; 0: not said.
  std::uint64_t latency_promise_ns = 0;  // 0: none.
  std::uint64_t memory_bytes = 0;        // 0: as much as it may have.
  char name[kNameBytes] = {};
  char device[kNameBytes] = {};  // Empty: the broker chooses.
};
struct Hello {
  static constexpr MessageType kType = MessageType::kHello;
  // A field that is not set leaves the choice to the server.
  std::optional<ClientClass> client_class;
  std::optional<std::uint32_t> weight;
  std::optional<std::uint32_t> max_share;  // Thousandths of device time.
  std::uint64_t latency_promise_ns = 0;    // 0: none.
  std::uint64_t memory_bytes = 0;  // Device memory it wants at most; 0: all that it may have.
  std::string name;                // At most 63 bytes, printable.
  std::string device;
  // What its kernels print is kept for it (kTakePrinted) and not written into the server's log.
  bool takes_printed = false;
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
  kEntrances = 8,
  kLease = 9,  // Makes an entrance, which lasts as long as this connection.
  kReload = 10,
  kUpgrade = 11,  // The broker executes its program's file as it is now.
  kResume = 12,   // A device, or the server, that is drained takes clients again.
  kTrace = 13,    // A device writes what runs for as long as this connection lasts.
};
inline constexpr std::uint8_t kAdminVerbMax = 13;
std::string_view AdminVerbName(AdminVerb verb);   // As gpusharedctl has it: "ps".
inline constexpr std::uint8_t kKeepClass = 0xff;  // AdminWire::client_class: leave as it is.

struct AdminWire {
  std::uint32_t version = kProtocolVersion;
  std::uint8_t verb = 0;
  std::uint8_t client_class = kKeepClass;  // kSet only.
  std::uint16_t max_share = 0;             // kSet only; 0: leave as it is.
  std::uint32_t weight = 0;                // kSet only; 0: leave as it is.
  std::uint32_t text_bytes = 0;            // kLease, kSet, kDrain, kResume and kTrace only.
  std::uint64_t client = 0;                // Session id; 0 in kSet: clients that connect later.
  std::uint64_t request = 0;               // kExplain only; 0: the slowest of those that are known.
  // Then the text.
};
struct Admin {
  static constexpr MessageType kType = MessageType::kAdmin;
  AdminVerb verb = AdminVerb::kStatus;
  std::uint64_t client = 0;
  std::optional<ClientClass> client_class;
  std::optional<std::uint32_t> weight;
  std::optional<std::uint32_t> max_share;  // Thousandths of device time.
  std::uint64_t request = 0;               // kExplain only.
  // kLease: the keys of an [[entrance]], as TOML. kDrain, kResume and kTrace: a device as in Hello;
  // kDrain and kResume without one mean the server. kSet of client 0: keys of an [[entrance]] that
  // bound clients which connect later and ask for nothing themselves: class, client_max_share, and
  // client_memory on the `devices` that are named.
  std::string terms;
};

// ---- why: a client that saw EOF asks how its session ended.

struct WhyWire {
  std::uint32_t version = kProtocolVersion;
  std::uint32_t reserved = 0;
  std::uint64_t session = 0;
};
struct Why {
  static constexpr MessageType kType = MessageType::kWhy;
  std::uint64_t session = 0;
};

// ---- a device, as welcome and the worker's ready message describe it

// A property under its number in CUDA's CUdevice_attribute.
struct DeviceAttribute {
  std::uint32_t id = 0;
  std::int32_t value = 0;
};
struct DeviceWire {
  std::uint64_t memory_bytes = 0;
  std::uint32_t multiprocessors = 0;
  std::uint32_t threads_per_block_max = 0;
  std::uint32_t block_max[3] = {};
  std::uint32_t grid_max[3] = {};
  std::uint32_t shared_bytes_per_block_max = 0;
  std::uint8_t preemption = 0;     // 0 between commands, 1 within a command.
  std::uint8_t spinning_pays = 0;  // 0 or 1.
  std::uint16_t reserved = 0;
  char name[kDeviceNameBytes] = {};
  char id[kNameBytes] = {};
  char kind[kNameBytes] = {};
  std::uint8_t uuid[16] = {};
  std::uint32_t attributes = 0;  // Entries of `table`; those behind them are zero.
  std::uint32_t reserved1 = 0;
  DeviceAttribute table[kDeviceAttributesMax] = {};  // By ascending id, each once.
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
  std::vector<DeviceAttribute> attributes;  // The first kDeviceAttributesMax are sent.
};

// ---- device list: what there is, for a connection that does not join.

struct ListDevicesWire {
  std::uint32_t version = kProtocolVersion;
  std::uint32_t reserved = 0;
};
struct ListDevices {
  static constexpr MessageType kType = MessageType::kListDevices;
};

// Followed by `devices` DeviceWire.
struct DeviceListWire {
  std::uint32_t devices = 0;
  std::uint32_t reserved = 0;
};
struct DeviceList {
  static constexpr MessageType kType = MessageType::kDeviceList;
  std::vector<DeviceDescription> devices;  // The first kDevicesListedMax are sent.
};

// ---- welcome

struct WelcomeWire {
  std::uint32_t version = kProtocolVersion;
  std::uint32_t generation = 0;  // The worker's.
  std::uint64_t session = 0;
  std::uint64_t spin_ns = 0;  // How long a waiting client should spin before it sleeps.
  std::uint64_t quota_bytes = 0;
  std::uint64_t space_base = 0;   // Device address of the client's first byte.
  std::uint64_t space_bytes = 0;  // Size of the address range, mapped or not.
  std::uint32_t command_granules = kCommandGranules;
  std::uint32_t completion_granules = kCompletionGranules;
  std::uint32_t streams_max = kStreamsMax;
  std::uint32_t modules_max = kModulesMax;
  std::uint32_t arenas_max = kArenasMax;
  std::uint32_t arena_bytes_default = kArenaBytesDefault;
  std::uint64_t arena_bytes_total_max = 0;  // Over all arenas of this client.
  std::uint64_t mapping_base = 0;           // Where chunks may be mapped.
  std::uint64_t mapping_bytes = 0;          // 0: nowhere.
  DeviceWire device;
};
struct Welcome {
  static constexpr MessageType kType = MessageType::kWelcome;
  std::uint32_t generation = 0;
  std::uint64_t session = 0;
  std::uint64_t spin_ns = 0;
  std::uint64_t quota_bytes = 0;
  std::uint64_t space_base = 0;
  std::uint64_t space_bytes = 0;
  std::uint64_t arena_bytes_total_max = 0;
  std::uint64_t mapping_base = 0;
  std::uint64_t mapping_bytes = 0;
  DeviceDescription device;
};

// ---- refused, ended: a code and a sentence

struct TextWire {
  std::uint32_t code = 0;  // StatusCode, never kOk.
  std::uint32_t text_bytes = 0;
  // Then the text.
};
struct Refused {
  static constexpr MessageType kType = MessageType::kRefused;
  Status status;
};
struct Ended {
  static constexpr MessageType kType = MessageType::kEnded;
  Status status;
};

// ---- admin reply: a code and JSON or a sentence, in as many pages as it takes

struct PageWire {
  std::uint32_t code = 0;  // StatusCode, kOk included. The same in all pages.
  std::uint32_t text_bytes = 0;
  std::uint8_t is_last = 1;  // 0: the text goes on in the next page, of the same request.
  std::uint8_t reserved[7] = {};
  // Then the text.
};
struct AdminReply {
  static constexpr MessageType kType = MessageType::kAdminReply;
  StatusCode code = StatusCode::kOk;
  std::string text;  // JSON when code is kOk, else a sentence; at most kPageTextBytesMax.
  bool is_last = true;
};
// Takes what one page holds off the front of `rest`: whole characters, if it is UTF-8.
std::string_view TakePage(std::string_view& rest);

// ---- trace

struct TraceOpenedWire {
  std::uint64_t layout = 0;      // Of the memory: trace::kLayoutNumber of the worker.
  std::uint32_t generation = 0;  // The worker's.
  std::uint32_t reserved = 0;
};
struct TraceOpened {
  static constexpr MessageType kType = MessageType::kTraceOpened;
  std::uint64_t layout = 0;
  std::uint32_t generation = 0;
};

// ---- modules

// Memory for one image, until a load takes it or the next request replaces it.
struct MakeImageWire {
  std::uint64_t bytes = 0;  // 1 to kModuleImageBytesMax.
};
struct MakeImage {
  static constexpr MessageType kType = MessageType::kMakeImage;
  std::uint64_t bytes = 0;
};

struct ImageMadeWire {
  std::uint64_t bytes = 0;  // The bytes asked for.
};
struct ImageMade {
  static constexpr MessageType kType = MessageType::kImageMade;
  std::uint64_t bytes = 0;
};

struct LoadModuleWire {
  std::uint32_t module = 0;  // Chosen by the client, below kModulesMax, not in use.
  std::uint32_t reserved = 0;
  std::uint64_t bytes = 0;  // All the memory made for the image.
};
struct LoadModule {
  static constexpr MessageType kType = MessageType::kLoadModule;
  std::uint32_t module = 0;
  std::uint64_t bytes = 0;
};

// Followed by `kernels` entries: name, unsupported (texts), parameter_bytes,
// static_shared_bytes, threads_per_block_max (u32 each), required_block, required_cluster (three
// u32 each), KernelAttributes, parameter count (u32), then per parameter offset and bytes (u32
// each). Then `variables` entries: name (text), address, bytes (u64 each), space (u32).
struct ModuleLoadedWire {
  std::uint32_t module = 0;
  std::uint32_t kernels = 0;
  std::uint32_t variables = 0;
  std::uint32_t reserved = 0;
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
};
enum class VariableSpace : std::uint32_t { kGlobal = 0, kConstant = 1 };
struct VariableDescription {
  std::string name;
  std::uint64_t address = 0;  // On the device.
  std::uint64_t bytes = 0;
  VariableSpace space = VariableSpace::kGlobal;
};
struct ModuleLoaded {
  static constexpr MessageType kType = MessageType::kModuleLoaded;
  std::uint32_t module = 0;
  std::vector<KernelDescription> kernels;
  std::vector<VariableDescription> variables;
};

struct UnloadModuleWire {
  std::uint32_t module = 0;
  std::uint32_t reserved = 0;
};
struct UnloadModule {
  static constexpr MessageType kType = MessageType::kUnloadModule;
  std::uint32_t module = 0;
};

struct Done {
  static constexpr MessageType kType = MessageType::kDone;
};

// ---- memory and arenas

struct ResizeMemoryWire {
  std::uint64_t bytes = 0;  // Wanted size of the mapped part, at most 2^48.
};
struct ResizeMemory {
  static constexpr MessageType kType = MessageType::kResizeMemory;
  std::uint64_t bytes = 0;
};
inline constexpr std::uint64_t kResizeBytesMax = std::uint64_t{1} << 48;

struct MemoryResizedWire {
  std::uint64_t mapped_bytes = 0;
};
struct MemoryResized {
  static constexpr MessageType kType = MessageType::kMemoryResized;
  std::uint64_t mapped_bytes = 0;
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
struct ChangeChunkWire {
  std::uint32_t action = 0;
  std::uint32_t chunk = 0;  // Chosen by the client, below kChunksMax. 0 where it is not asked for.
  // Multiples of kChunkBytesStep; 0 where they are not asked for.
  std::uint64_t bytes = 0;  // At most kChunkBytesMax.
  std::uint64_t address = 0;
};
struct ChangeChunk {
  static constexpr MessageType kType = MessageType::kChangeChunk;
  ChunkAction action = ChunkAction::kMake;
  std::uint32_t chunk = 0;
  std::uint64_t bytes = 0;
  std::uint64_t address = 0;
};

// What each kernel has beside what its module declares; 0 leaves it as it is.
struct SetKernelMemoryWire {
  std::uint64_t stack_bytes = 0;    // Of a thread, for calls that recurse; at most kStackBytesMax.
  std::uint64_t printed_bytes = 0;  // Kept until they are taken; at most kPrintedBytesMax.
  std::uint64_t heap_bytes = 0;     // At most kResizeBytesMax.
};
struct SetKernelMemory {
  static constexpr MessageType kType = MessageType::kSetKernelMemory;
  std::uint64_t stack_bytes = 0;
  std::uint64_t printed_bytes = 0;
  std::uint64_t heap_bytes = 0;
};
inline constexpr std::uint64_t kStackBytesMax = std::uint64_t{256} << 10;
inline constexpr std::uint64_t kPrintedBytesMax = std::uint64_t{64} << 20;

struct AddArenaWire {
  std::uint64_t bytes = 0;  // A multiple of kArenaBytesStep, at most kArenaBytesMax.
};
struct AddArena {
  static constexpr MessageType kType = MessageType::kAddArena;
  std::uint64_t bytes = 0;
};

struct ArenaAddedWire {
  std::uint32_t arena = 0;  // Below kArenasMax.
  std::uint32_t reserved = 0;
  std::uint64_t bytes = 0;
};
struct ArenaAdded {
  static constexpr MessageType kType = MessageType::kArenaAdded;
  std::uint32_t arena = 0;
  std::uint64_t bytes = 0;
};

// ---- error text

struct DescribeErrorWire {
  std::uint32_t stream = 0;
  std::uint32_t reserved = 0;
};
struct DescribeError {
  static constexpr MessageType kType = MessageType::kDescribeError;
  std::uint32_t stream = 0;
};

struct ErrorTextWire {
  std::uint32_t stream = 0;
  std::uint32_t code = 0;      // StatusCode of the stream's sticky error; kOk: it has none.
  std::uint64_t sequence = 0;  // Of the command that failed; 0 with kOk.
  std::uint32_t text_bytes = 0;
  std::uint32_t reserved = 0;
  // Then the text.
};
struct ErrorText {
  static constexpr MessageType kType = MessageType::kErrorText;
  std::uint32_t stream = 0;
  std::uint64_t sequence = 0;
  Status status;
};

// ---- what kernels print

struct TakePrinted {
  static constexpr MessageType kType = MessageType::kTakePrinted;
};

// The oldest part of what was printed and not taken; empty when there is none.
struct PrintedWire {
  std::uint64_t end = 0;      // Where the part ends in all that was ever printed, in bytes.
  std::uint64_t dropped = 0;  // Bytes of that, before or behind the part, that were not kept.
  std::uint32_t text_bytes = 0;
  std::uint32_t reserved = 0;
  // Then the text: any bytes, a kernel chose them.
};
struct Printed {
  static constexpr MessageType kType = MessageType::kPrinted;
  std::uint64_t end = 0;
  std::uint64_t dropped = 0;
  std::string text;  // At most kPrintedTextBytesMax.
};

// Payload of a frame of type T::kType. Texts that are too long are cut off at a UTF-8 boundary.
std::vector<std::byte> Encode(const Hello&);
std::vector<std::byte> Encode(const Admin&);
std::vector<std::byte> Encode(const Why&);
std::vector<std::byte> Encode(const ListDevices&);
std::vector<std::byte> Encode(const DeviceList&);
std::vector<std::byte> Encode(const Welcome&);
std::vector<std::byte> Encode(const Refused&);
std::vector<std::byte> Encode(const Ended&);
std::vector<std::byte> Encode(const AdminReply&);
std::vector<std::byte> Encode(const TraceOpened&);
std::vector<std::byte> Encode(const MakeImage&);
std::vector<std::byte> Encode(const ImageMade&);
std::vector<std::byte> Encode(const LoadModule&);
// The one message whose size a client's module decides: kLimitExceeded when it has more than
// layout.h allows, or the answer would not fit.
Result<std::vector<std::byte>> Encode(const ModuleLoaded&);
std::vector<std::byte> Encode(const UnloadModule&);
std::vector<std::byte> Encode(const Done&);
std::vector<std::byte> Encode(const ResizeMemory&);
std::vector<std::byte> Encode(const MemoryResized&);
std::vector<std::byte> Encode(const ChangeChunk&);
std::vector<std::byte> Encode(const SetKernelMemory&);
std::vector<std::byte> Encode(const AddArena&);
std::vector<std::byte> Encode(const ArenaAdded&);
std::vector<std::byte> Encode(const DescribeError&);
std::vector<std::byte> Encode(const ErrorText&);
std::vector<std::byte> Encode(const TakePrinted&);
std::vector<std::byte> Encode(const Printed&);

// The value in the payload of a frame of type T::kType; defined for every T above (and those
// of channel.h). The caller has looked at the frame's type.
template <typename T>
Result<T> Decode(std::span<const std::byte> payload);
template <>
Result<Hello> Decode(std::span<const std::byte>);
template <>
Result<Admin> Decode(std::span<const std::byte>);
template <>
Result<Why> Decode(std::span<const std::byte>);
template <>
Result<ListDevices> Decode(std::span<const std::byte>);
template <>
Result<DeviceList> Decode(std::span<const std::byte>);
template <>
Result<Welcome> Decode(std::span<const std::byte>);
template <>
Result<Refused> Decode(std::span<const std::byte>);
template <>
Result<Ended> Decode(std::span<const std::byte>);
template <>
Result<AdminReply> Decode(std::span<const std::byte>);
template <>
Result<TraceOpened> Decode(std::span<const std::byte>);
template <>
Result<MakeImage> Decode(std::span<const std::byte>);
template <>
Result<ImageMade> Decode(std::span<const std::byte>);
template <>
Result<LoadModule> Decode(std::span<const std::byte>);
template <>
Result<ModuleLoaded> Decode(std::span<const std::byte>);
template <>
Result<UnloadModule> Decode(std::span<const std::byte>);
template <>
Result<Done> Decode(std::span<const std::byte>);
template <>
Result<ResizeMemory> Decode(std::span<const std::byte>);
template <>
Result<MemoryResized> Decode(std::span<const std::byte>);
template <>
Result<ChangeChunk> Decode(std::span<const std::byte>);
template <>
Result<SetKernelMemory> Decode(std::span<const std::byte>);
template <>
Result<AddArena> Decode(std::span<const std::byte>);
template <>
Result<ArenaAdded> Decode(std::span<const std::byte>);
template <>
Result<DescribeError> Decode(std::span<const std::byte>);
template <>
Result<ErrorText> Decode(std::span<const std::byte>);
template <>
Result<TakePrinted> Decode(std::span<const std::byte>);
template <>
Result<Printed> Decode(std::span<const std::byte>);

// Decode for a frame that should be of type T::kType: any other type is a kProtocolViolation,
// except that kRefused and kEnded become the Status they carry.
template <typename T>
Result<T> DecodeReply(const Frame& frame);

// The rules of each receiver.
std::optional<FrameRule> FirstFrameRules(std::uint16_t type);   // Broker, new connection.
std::optional<FrameRule> ClientFrameRules(std::uint16_t type);  // Worker, from a client.
std::optional<FrameRule> ServerFrameRules(std::uint16_t type);  // Client, from broker or worker.

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

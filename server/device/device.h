// SPDX-License-Identifier: Apache-2.0
// What every device backend must do. tests/conformance runs one suite over all of them.

#ifndef GPUSHARED_SERVER_DEVICE_DEVICE_H_
#define GPUSHARED_SERVER_DEVICE_DEVICE_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "gpushared/fault_kind.h"
#include "gpushared/result.h"
#include "gpushared/status.h"

#include "server/device/isolation.h"
#include "server/device/sm_limit.h"

namespace gpushared::device {

class Reach;
class SwapStore;

struct Dim3 {
  std::uint32_t x = 1, y = 1, z = 1;
  std::uint64_t Count() const { return std::uint64_t{x} * y * z; }
};

// One parameter of a kernel inside its argument buffer.
struct ParameterLayout {
  std::uint32_t offset = 0;  // Bytes from the start of the argument buffer.
  std::uint32_t bytes = 0;
};

struct KernelInfo {
  std::string name;
  std::vector<ParameterLayout> parameters;
  std::uint32_t parameter_bytes = 0;      // Size of the argument buffer, without tail padding.
  std::uint32_t static_shared_bytes = 0;  // Per block.
  std::uint32_t threads_per_block_max = 0;
  // What each launch must have, exactly; all zero: any.
  std::array<std::uint32_t, 3> required_block = {};    // Threads along x, y and z.
  std::array<std::uint32_t, 3> required_cluster = {};  // Blocks along x, y and z.
  // Facts that no launch depends on.
  std::uint32_t registers = 0;                 // Per thread, of 32 bits each.
  std::uint32_t local_bytes = 0;               // Per thread.
  std::uint32_t constant_bytes = 0;            // Of the module's .const variables.
  std::uint32_t dynamic_shared_bytes_max = 0;  // Per block.
  std::uint32_t ptx_version = 0;     // Architecture of the text: 80 for sm_80; 0: unknown.
  std::uint32_t binary_version = 0;  // Architecture of the code that runs.
  // Why a launch of this kernel would be rejected on this device (the full list of
  // missing instructions, with PTX lines); empty when it runs.
  std::string unsupported;
  // Where its parameters hold addresses, and perhaps numbers, through which it touches memory: byte
  // offsets of words of 8 bytes, ascending (ptx::KernelReach). Empty while nothing is known.
  std::vector<std::uint32_t> reach_offsets;
  // Why nothing is known of what it touches; empty where reach_offsets says it.
  std::string why_reach_unknown = "nobody has looked";
};

// A variable of a module, in device memory.
struct VariableInfo {
  enum class Space : std::uint8_t { kGlobal, kConstant };
  std::string name;
  std::uint64_t address = 0;  // On the device.
  std::uint64_t bytes = 0;
  Space space = Space::kGlobal;
};
struct MemoryPiece {
  std::uint64_t base = 0;
  std::uint64_t bytes = 0;
};

// How finely running work can be taken off the device.
enum class Preemption : std::uint8_t {
  kBetweenCommands,  // A started command runs to its end.
  kWithinCommand,    // A started command stops at its next unit (thread block, copy piece).
};

// Blocks of a stopped launch that have begun and not ended. They are off the device; whoever has
// them gives them back with the rest of the launch (LaunchWork::paused), or drops them, which ends
// them. They hold host memory of the device. Any thread, also after the end of their space.
class PausedBlocks {
 public:
  virtual ~PausedBlocks() = default;
};

// A property under its number in CUDA's CUdevice_attribute.
struct NumberedAttribute {
  std::uint32_t id = 0;
  std::int32_t value = 0;
};

struct DeviceInfo {
  std::string name;     // For people: "embedded cpu device, 1 executor thread".
  std::string id;       // For selection: "cpu:0".
  std::string kind;     // "cpu", "fake", "cuda".
  std::string pci_bus;  // "0000:17:00.0"; empty for what lies on none.
  std::uint64_t memory_bytes = 0;
  std::uint32_t multiprocessors = 0;  // Executor threads on the cpu device.
  std::uint32_t threads_per_block_max = 1024;
  std::array<std::uint32_t, 3> block_max = {1024, 1024, 64};
  std::array<std::uint32_t, 3> grid_max = {0x7fffffff, 65535, 65535};
  std::uint32_t shared_bytes_per_block_max = 48 * 1024;
  // Of launches: of those, where a device has both kinds, of which it says CanStop. Copies and
  // fills are stopped within on every device.
  Preemption preemption = Preemption::kBetweenCommands;
  // Launches that may be stopped have a form of their own, which runs slower: worth it only where
  // somebody could ask. RequestStop of one also stops what its stream has behind it: none of that
  // begins unless the launch runs to its end. So another launch may be on the device behind it.
  bool stopping_costs = false;
  std::uint32_t cluster_blocks_max = 0;  // 0: no launches in clusters of blocks.
  bool can_launch_cooperatively = false;
  bool can_kill = false;  // RequestKill ends any kernel that runs.
  // Space::SwapPageOut. A client may hold more than the device has.
  bool can_move_memory = false;
  // A launch that touches what is not in its reach faults. Elsewhere that is its client's memory,
  // or what lies in the place of a step that is moved out: steps come in while nothing of their
  // client is on the device.
  bool checks_reach = false;
  bool swaps_disturb = false;  // They may hold up launches of others.
  // No kernel can read, write or end what is another client's, whatever its space's isolation.
  bool isolates_clients = false;
  // Classes that may not use all multiprocessors.
  std::vector<SmGrant> sm_grants;
  // Whether a waiting worker or client may spin: false where the cores that would
  // spin are the cores that execute.
  bool spinning_pays = false;
  std::array<std::uint8_t, 16> uuid = {};
  std::vector<NumberedAttribute> attributes;  // By id.
};

// A client's loaded module. Immutable; may be used by any thread. Must not outlive
// the Space it was loaded into.
class Module {
 public:
  virtual ~Module() = default;
  virtual std::span<const KernelInfo> kernels() const = 0;
  // What its text declares and the device has, in the order of the text. Kernels of all modules of
  // the space may touch them.
  virtual std::span<const VariableInfo> variables() const { return {}; }
  // The memory of all of them, few pieces by address. Copies and fills of the space may touch it.
  virtual std::span<const MemoryPiece> variable_memory() const { return {}; }
};

// What preparing a module depends on, beside its image: modules prepared alike may be placed in all
// spaces of the same recipe.
struct ModuleRecipe {
  enum class Form : std::uint8_t {
    kDecoded,    // For the cpu device's executor.
    kForDriver,  // For a GPU's.
  };
  Form form = Form::kDecoded;
  // For a driver only.
  ModulePasses passes = {};
  std::uint64_t range_bytes = 0;  // The spaces together have them.
};

// A module that has been read, checked and made ready, and is in no client's memory yet.
// Immutable; any thread.
class PreparedModule {
 public:
  virtual ~PreparedModule() = default;
  virtual std::span<const KernelInfo> kernel_infos() const = 0;
  // As Module::variables, with offsets from where the module will lie for addresses.
  virtual std::span<const VariableInfo> variable_infos() const { return {}; }
  virtual std::uint64_t bytes() const = 0;  // In host memory.
};

// Device memory of a client that lies at no address by itself: the client chooses where it is
// mapped, at several places if it likes, and its contents stay between two mappings. Counts against
// the client's quota. Destroyed when it is mapped nowhere, before its space; that may be slow.
class Chunk {
 public:
  virtual ~Chunk() = default;
};

// Memory that a client has, in bytes.
struct SpaceUse {
  std::uint64_t mapped_bytes = 0;
  std::uint64_t resident_bytes = 0;  // The part of that which is on the device.
  std::uint64_t pinned_bytes = 0;    // Its modules', on the device as well.
};

// What each kernel of a client has beside what its module declares; 0: as it is.
struct KernelMemory {
  std::uint64_t stack_bytes = 0;    // Local memory of each thread, for calls that recurse.
  std::uint64_t printed_bytes = 0;  // Text that one launch may print.
  std::uint64_t heap_bytes = 0;     // What kernels allocate from.
};

// One client's virtual address range, memory and module state on one device.
//
// The range is a power of two of at least 4 GiB, aligned to itself; memory is
// mapped into it from the bottom, in steps. Chunks are mapped in the mapping area, above all that
// the quota allows there. Fresh memory reads as zero, also when
// another client used it before. Destroyed only when none of the client's work is
// on the device; the destructor returns all memory.
//
// Resize, PlaceModule and calls of chunks may take milliseconds, on a thread other than the device
// thread. One such call runs at a time per Space. All other members are const
// facts and may be read by any thread.
class Space {
 public:
  virtual ~Space() = default;
  virtual std::uint64_t base() const = 0;         // Device address of the first byte.
  virtual std::uint64_t range_bytes() const = 0;  // Power of two.
  // Grows or shrinks the mapped part [base, base + mapped_bytes), rounded up to the
  // mapping step (2 MiB); returns the new size in bytes. Fails with kOutOfMemory,
  // changing nothing, when quota or device memory does not suffice.
  // Shrinking requires that no submitted work touches the part given back. It may keep up to 1/16
  // of the new size too many. It may keep all if the device does not trust running kernels of the
  // client.
  virtual Result<std::uint64_t> Resize(std::uint64_t mapped_bytes) = 0;

  // Where chunks may be mapped, in steps of 2 MiB; without bytes where the device has none.
  virtual MemoryPiece mapping_area() const { return {}; }
  // `bytes`: whole steps. kOutOfMemory when quota or device memory does not suffice.
  virtual Result<std::unique_ptr<Chunk>> MakeChunk(std::uint64_t /*bytes*/) {
    return Status(StatusCode::kUnsupported, "memory rejected: this device cannot map it in parts");
  }
  // Maps a chunk of this space. The caller has checked that the place lies in the mapping area, at
  // a whole step, and that nothing is mapped there.
  virtual Status MapChunk(Chunk& /*chunk*/, std::uint64_t /*address*/) {
    return {StatusCode::kUnsupported, "mapping rejected: this device cannot map memory in parts"};
  }
  // Work that begins from now on cannot reach what is mapped there. Any thread.
  virtual void HideMapping(std::uint64_t /*address*/) {}
  // Takes back what MapChunk did. It was hidden, and no work is left that began before.
  virtual Status Unmap(std::uint64_t /*address*/, std::uint64_t /*bytes*/) { return {}; }

  // Moves the step at `offset` from the base, if it is mapped and not there yet, to
  // SpaceOptions::store and gives its device memory back, or moves it in again. Addresses stay. No
  // work that touches it is on the device; where not DeviceInfo::checks_reach, none of the client.
  // Work may begin as soon as its reach is there (reach.h). An error loses nothing. kOutOfMemory:
  // the device has no room for it. Called as Resize is.
  virtual Status SwapPageOut(std::uint64_t /*offset*/) {
    return {StatusCode::kUnsupported, "this device does not move memory"};
  }
  virtual Status SwapPageIn(std::uint64_t /*offset*/) {
    return {StatusCode::kUnsupported, "this device does not move memory"};
  }
  // Bytes of the steps in [address, address + bytes) that are moved out. Any thread; current while
  // nothing moves.
  virtual std::uint64_t AwayBytes(std::uint64_t /*address*/, std::uint64_t /*bytes*/) const {
    return 0;
  }
  // Where can_move_memory. Called as Resize is.
  virtual SpaceUse use() { return {}; }
  // For launches that begin later. The heap is made now, and counts against the quota; kernels that
  // have allocated from it keep the one that they have, and another size is kInvalidArgument.
  // kOutOfMemory as Resize, and called as that is.
  virtual Status SetKernelMemory(const KernelMemory& /*memory*/) {
    return {StatusCode::kUnsupported,
            "limit rejected: the stack, printed text and heap of kernels are the same for all "
            "clients of this device"};
  }

  // Modules are loaded in steps. What a client wrote is read elsewhere, by PrepareModule
  // (prepare.h) after this recipe, and what came of it is placed here.
  virtual const ModuleRecipe& recipe() const = 0;
  // Readies a module that TakePrepared made for PlaceModule, as far as that needs no device: some
  // have a compiler. Any thread, beside any other call. Null when it takes long and `may_take_long`
  // is false.
  virtual Result<std::shared_ptr<const PreparedModule>> CompileModule(
      std::shared_ptr<const PreparedModule> module, bool /*may_take_long*/) {
    return module;
  }
  // Of a module that TakePrepared (prepare.h) and CompileModule made for a space of the same
  // recipe. Its bytes, where they are in the device's memory, count against the client's quota.
  virtual Result<std::shared_ptr<const Module>> PlaceModule(
      std::shared_ptr<const PreparedModule> module) = 0;
};

// Everything below is named by the caller and opaque to the device.
using WorkId = std::uint64_t;
using StreamKey = std::uint64_t;  // Unique over all clients of the device.

// Common to all work. Work on one stream starts and ends in submission
// order; work on different streams is unordered. Work consists of `units`: thread
// blocks, or pieces of kCopyPieceBytes of a copy or fill. They start in ascending
// order, so that a stopped command has run exactly a prefix of them.
struct WorkHeader {
  WorkId id = 0;
  Space* space = nullptr;  // Owner; must outlive the completion.
  StreamKey stream = 0;
  std::uint8_t of_class = 0;     // Scheduling class, 0 the most urgent: see DeviceInfo::sm_grants.
  std::uint8_t priority = 0;     // Larger is served first where the device has a choice.
  std::uint64_t first_unit = 0;  // Resume point; units before it are already done.
  // Exact times in the completion are of use. Where they are not, the device may save their cost.
  bool wants_times = true;
};

struct LaunchWork : WorkHeader {
  const Module* module = nullptr;
  std::uint32_t kernel = 0;  // Index into module->kernels().
  Dim3 grid, block;
  // Blocks that run at the same time and reach each other's shared memory; the grid is made of
  // whole ones. x 0: none.
  Dim3 cluster = {0, 0, 0};
  bool is_cooperative = false;  // All blocks run at the same time, or the launch fails.
  // RequestStop may come. Where it is false the device runs what is fastest, to its end.
  bool may_be_stopped = true;
  // Stops, and work of a higher priority, may take it off inside of a block, where the device can.
  bool may_be_paused = false;
  // What the completion of the submission before gave; it has units that are done.
  std::shared_ptr<PausedBlocks> paused;
  std::uint32_t dynamic_shared_bytes = 0;
  // Exactly KernelInfo::parameter_bytes bytes; must stay valid until the completion.
  std::span<const std::byte> parameters;
  // Memory that it may touch, beside variables of modules and the heap; null: all that its client
  // has. Valid as long as `parameters`. Where DeviceInfo::checks_reach, other accesses are faults.
  const Reach* reach = nullptr;
};

// One page of host memory. A client may take the pages of its staging buffer away while they are
// copied. Where pages come back one by one, each can take milliseconds.
inline constexpr std::uint64_t kCopyPieceBytes = std::uint64_t{4} << 10;

// A rectangle of bytes; height 1 is a plain range. The caller has checked the addresses.
// Device addresses lie in mapped memory of `space`, or in variables of its modules, which stay
// loaded until the completion. Host pointers lie in a staging staging buffer
// that stays mapped until the completion.
struct CopyWork : WorkHeader {
  enum class Direction : std::uint8_t { kHostToDevice, kDeviceToHost, kDeviceToDevice };
  Direction direction = Direction::kHostToDevice;
  std::byte* host = nullptr;      // Unused for kDeviceToDevice.
  std::uint64_t destination = 0;  // Device address; unused for kDeviceToHost.
  std::uint64_t source = 0;       // Device address; unused for kHostToDevice.
  std::uint64_t width_bytes = 0, height = 1;
  std::uint64_t destination_pitch_bytes = 0, source_pitch_bytes = 0;  // >= width when height > 1.
};

struct FillWork : WorkHeader {
  std::uint64_t destination = 0;    // Device address, aligned to element_bytes.
  std::uint32_t value = 0;          // Low element_bytes bytes are repeated.
  std::uint32_t element_bytes = 1;  // 1, 2 or 4.
  std::uint64_t width_bytes = 0, height = 1, pitch_bytes = 0;  // Multiples of element_bytes.
};

// A list of works that run one after the other: each begins when the one ahead has ended. Its units
// are its nodes. What a node says of id, space, stream, class and priority is not looked at; those
// of the graph hold for all.
using GraphNode = std::variant<LaunchWork, CopyWork, FillWork>;
struct GraphWork : WorkHeader {
  // Both stay valid and unchanged until the completion.
  std::span<const GraphNode* const> nodes;
  // As LaunchWork::reach, of all nodes together.
  const Reach* reach = nullptr;
  // Of all nodes of a client's graph: its number, and a version that is another one whenever its
  // nodes are others. A device may keep what it made of them. Version 0: of a part of them.
  std::uint32_t number = 0;
  std::uint64_t version = 0;
  // Where there is a version, the same of each node: under one number a node never changes.
  std::span<const std::uint64_t> node_versions;
  // A stop may take it off inside of a node, where the device can. The rest of that node is in what
  // the completion gave; it goes with the next submission, which begins with that node.
  bool may_be_paused = false;
  std::shared_ptr<PausedBlocks> paused;
};

// Number of units of a copy or fill: rows are cut into pieces, row by row.
constexpr std::uint64_t CopyUnits(std::uint64_t width_bytes, std::uint64_t height) {
  return (width_bytes + kCopyPieceBytes - 1) / kCopyPieceBytes * height;
}

using DeviceClock = std::chrono::steady_clock;

struct Completion {
  WorkId id = 0;
  Status status;  // Names kernel, block, thread, PTX line and address of a fault.
  FaultKind fault = FaultKind::kNone;  // Only a status of kKernelFault has one.
  std::uint64_t units_done = 0;        // Prefix that has run, counted from unit 0.
  // True when RequestStop ended it before its last unit, or before `paused` had ended.
  bool stopped = false;
  // Units of the prefix that are not done yet, of launches that may be paused, or the rest of the
  // node that a graph was stopped in; else null.
  std::shared_ptr<PausedBlocks> paused;
  DeviceClock::time_point started;  // First unit of this submission began.
  DeviceClock::time_point ended;
  // False when the two times are a share of what several works took together.
  bool times_are_exact = true;
};

// What a device says once when its context has died: nothing will ever run on it again.
struct DeviceLoss {
  struct Suspect {
    WorkId id = 0;
    std::string what;  // "kernel 'scale'"
  };
  Status why;  // kDeviceLost, with the call and the code that told us.
  // What was running, or may have been: the only one, if it is one, did it.
  std::vector<Suspect> suspects;
};

// Keeps host memory ready for direct copies. Destroyed before that memory goes, when no
// work uses it; may be slow; any thread but the device thread.
class PinnedMemory {
 public:
  virtual ~PinnedMemory() = default;
};

struct SpaceOptions {
  std::uint64_t quota_bytes = 0;      // Most that the client may map.
  std::shared_ptr<SwapStore> store;   // Where its memory can be moved; null: it stays.
  std::uint64_t left_free_bytes = 0;  // Free device memory below which it maps no more.
  Isolation isolation = Isolation::kOff;
  // Where no compiler stands outside of this process: whether the device's driver may compile what
  // the client wrote inside it. Matters where kernels are isolated; others the driver may compile
  // anyway.
  bool driver_may_compile = true;
};

// One device and its context.
//
// Confined to the worker's device thread, except CreateSpace and what Space allows.
class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;

  // Reserves an address range for one client. May be slow; any thread but the device thread.
  virtual Result<std::unique_ptr<Space>> CreateSpace(const SpaceOptions& options) = 0;

  // Memory that nobody has taken, where can_move_memory. Any thread.
  virtual std::uint64_t free_memory_bytes() const { return 0; }

  // Queue work; never block. The caller has checked the arguments against
  // KernelInfo and DeviceInfo; anything found wrong later ends in the Completion.
  virtual void Submit(const LaunchWork& work) = 0;
  virtual void Submit(const CopyWork& work) = 0;
  virtual void Submit(const FillWork& work) = 0;
  // Whether that may be a node of a GraphWork. Others come alone.
  virtual bool TakesNode(const GraphNode& /*node*/) const { return true; }
  // RequestStop ends it before its next node, whatever the device's preemption;
  // a node that has begun runs to its end, unless the graph may be paused. A node that fails ends
  // it: units_done is its number.
  virtual void SubmitGraph(const GraphWork& work) = 0;

  // Whether RequestStop would end this launch between two of its blocks, at a price that suits its
  // blocks. `expected` is the launch's expected duration. By default true for every launch of a
  // device with Preemption::kWithinCommand.
  virtual bool CanStop(const LaunchWork& /*work*/, std::chrono::nanoseconds /*expected*/) {
    return info().preemption == Preemption::kWithinCommand;
  }

  // Asks submitted work to end before its next unit, or inside of one (may_be_paused). It still
  // completes exactly once, with `stopped` set unless the last unit ends. Ignored by devices
  // without Preemption::kWithinCommand and for unknown ids.
  virtual void RequestStop(WorkId id) = 0;

  // Asks submitted work to end at once, also inside a unit where the device can (an
  // endless kernel of a client that is gone). What a killed command has written is
  // undefined. It still completes exactly once, with kCancelled unless it had already
  // ended. Other launches of a contained module (Isolation::kContain) that run beside it may end
  // with it, with kKernelFault: they share the word that ends them. A device that cannot do it
  // treats it as RequestStop. Ignored for unknown ids.
  virtual void RequestKill(WorkId id) = 0;

  // Moves finished work into `out`, oldest first; returns how many. After a call that
  // returned less than out.size(), the next completion calls the wake function handed to
  // the device's constructor, from any thread. Work that must_be_polled() announces is
  // the exception.
  virtual std::size_t TakeCompletions(std::span<Completion> out) = 0;

  // True while there is work on the device whose end nobody tells this process of: it is
  // found by TakeCompletions alone, which is then called again and again.
  virtual bool must_be_polled() const { return false; }

  // For how long until now, over all, the device was kept from running what it had, by no doing of
  // that work's clients: others took what it is made of, or calls of its driver needed a moment
  // without work. Never falls; what is noticed late is added late.
  virtual std::chrono::nanoseconds HostStealUntil(DeviceClock::time_point /*now*/) { return {}; }

  // Set from the moment at which the context is dead. All work then completes with
  // kDeviceLost; the process that has the device is of no further use.
  virtual const DeviceLoss* loss() const { return nullptr; }

  // Prepares host memory that copies will use. Copies of other host memory work, too, but
  // may be slower. Null where there is nothing to prepare. May be slow; any thread but the
  // device thread.
  virtual Result<std::unique_ptr<PinnedMemory>> Pin(std::span<std::byte> /*memory*/) {
    return std::unique_ptr<PinnedMemory>();
  }

  // Host memory that the device's own threads keep for kernels that ran: registers, shared and
  // local memory. Counted whenever a thread leaves a launch. Any thread.
  virtual std::uint64_t executor_bytes() const { return 0; }

  // Tells all kernels that look for it to end, as RequestKill would tell one, without any call of
  // the device's driver: the device thread may be inside of one that waits for such a kernel. Their
  // launches fail with FaultKind::kLaunchTimeout. False: no kernel looks. Any thread.
  virtual bool ReportKernelsToEnd() { return false; }

  // Whether RequestKill would end this launch while it runs. Where DeviceInfo::can_kill it ends
  // any, and for certain; elsewhere those whose kernels look for it, if they do.
  virtual bool CanKill(const LaunchWork& /*work*/) const { return info().can_kill; }
};

// Called by a device, from any thread, when completions wait to be taken. Must not
// block and must not call back into the device.
using WakeFunction = std::function<void()>;

// Text that a kernel printed; whole lines where the kernel prints whole lines.
struct KernelOutput {
  WorkId work = 0;
  StreamKey stream = 0;
  const Space* space = nullptr;  // Identifies the client; do not call it.
  std::string_view text;         // Valid during the call; any bytes, a client chose them.
};

// Called by a device, from any thread, while the work that printed is running. The
// device bounds the text per work (kOutputBytesMax) and says when it cut some off.
// Must not call back into the device.
using OutputFunction = std::function<void(const KernelOutput&)>;
// As much as the buffer of CUDA holds unless a program sets another size.
inline constexpr std::uint64_t kOutputBytesMax = std::uint64_t{1} << 20;  // Unless a space says.

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_DEVICE_H_

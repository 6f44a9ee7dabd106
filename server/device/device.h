// SPDX-License-Identifier: Apache-2.0
// The interface that every device backend implements. tests/conformance runs one suite over all of
// them.

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

// Location of one kernel parameter inside the kernel's argument buffer.
struct ParameterLayout {
  std::uint32_t offset = 0;  // Bytes from the start of the argument buffer.
  std::uint32_t bytes = 0;
};

struct KernelInfo {
  std::string name;
  std::vector<ParameterLayout> parameters;
  std::uint32_t parameter_bytes = 0;      // Size of the argument buffer, without tail padding.
  std::uint32_t static_shared_bytes = 0;  // Shared memory of each block.
  std::uint32_t threads_per_block_max = 0;
  // Exact dimensions that every launch must have; all zero if any dimensions are allowed.
  std::array<std::uint32_t, 3> required_block = {};    // Threads along x, y and z.
  std::array<std::uint32_t, 3> required_cluster = {};  // Blocks along x, y and z.
  // The following are informational; no launch depends on them.
  std::uint32_t registers = 0;                 // Per thread, of 32 bits each.
  std::uint32_t local_bytes = 0;               // Per thread.
  std::uint32_t constant_bytes = 0;            // Size of all .const variables of the module.
  std::uint32_t dynamic_shared_bytes_max = 0;  // Limit per block.
  std::uint32_t ptx_version = 0;     // Architecture of the PTX text: 80 for sm_80; 0 if unknown.
  std::uint32_t binary_version = 0;  // Architecture of the code that is executed.
  // Reason why this device rejects launches of the kernel, such as a list of missing instructions
  // with PTX lines. Empty if the kernel is supported.
  std::string unsupported;
  // Ascending byte offsets of the 8-byte parameter words through which the kernel accesses memory.
  // Some of these words may be plain numbers (ptx::KernelReach). Empty if the access set is
  // unknown.
  std::vector<std::uint32_t> reach_offsets;
  // Reason why the access set is unknown; empty if reach_offsets describes it.
  std::string why_reach_unknown = "the kernel was not analysed";
};

// A variable that a module declares in device memory.
struct VariableInfo {
  enum class Space : std::uint8_t { kGlobal, kConstant };
  std::string name;
  std::uint64_t address = 0;  // Device address.
  std::uint64_t bytes = 0;
  Space space = Space::kGlobal;
};
struct MemoryPiece {
  std::uint64_t base = 0;
  std::uint64_t bytes = 0;
};

// How finely running work can be preempted.
enum class Preemption : std::uint8_t {
  kBetweenCommands,  // A command that has started runs to its end.
  kWithinCommand,    // A command that has started stops before its next unit (thread block, copy
                     // piece).
};

// Blocks of a preempted launch that have started but not ended. The device keeps their state in
// host memory. The holder either submits them again with the rest of the launch
// (LaunchWork::paused) or destroys this object, which ends the blocks.
//
// May be used by any thread, also after their space was destroyed.
class PausedBlocks {
 public:
  virtual ~PausedBlocks() = default;
};

// A device attribute, identified by its number in CUDA's CUdevice_attribute.
struct NumberedAttribute {
  std::uint32_t id = 0;
  std::int32_t value = 0;
};

struct DeviceInfo {
  std::string name;     // Human-readable: "embedded cpu device, 1 executor thread".
  std::string id;       // Used to select the device: "cpu:0".
  std::string kind;     // "cpu" or "cuda".
  std::string pci_bus;  // "0000:17:00.0"; empty if the device is not on a PCI bus.
  std::uint64_t memory_bytes = 0;
  std::uint32_t multiprocessors = 0;  // On the cpu device, the number of executor threads.
  std::uint32_t threads_per_block_max = 1024;
  std::array<std::uint32_t, 3> block_max = {1024, 1024, 64};
  std::array<std::uint32_t, 3> grid_max = {0x7fffffff, 65535, 65535};
  std::uint32_t shared_bytes_per_block_max = 48 * 1024;
  // Preemption of launches. If a device can preempt only some launches, this value applies to those
  // for which CanStop returns true. Copies and fills can be preempted between their pieces on every
  // device.
  Preemption preemption = Preemption::kBetweenCommands;
  // Whether preemptible launches use a separate form of the kernel that runs slower, so that
  // callers should set LaunchWork::may_be_stopped only where a preemption can actually occur.
  // RequestStop of such a launch also stops the work queued after it in its stream: none of that
  // work starts unless the launch runs to its end, so the caller may submit further work before the
  // launch has ended.
  bool stopping_costs = false;
  std::uint32_t cluster_blocks_max = 0;  // 0 if clusters are not supported.
  bool can_launch_cooperatively = false;
  bool can_kill = false;  // Whether RequestKill ends any running kernel.
  // Whether the device supports Space::SwapPageOut, so that clients may own more memory than the
  // device has.
  bool can_move_memory = false;
  // Whether a launch that accesses memory outside of its access set faults. On devices without this
  // check, such an access reaches other memory of the client, or the memory that occupies the place
  // of a swapped-out page; pages are therefore swapped only while no work of their client is on the
  // device.
  bool checks_reach = false;
  bool swaps_disturb = false;  // Whether swaps may delay launches of other clients.
  // Whether the device prevents every kernel from accessing other clients' memory and from ending
  // their kernels, even without SpaceOptions::isolation.
  bool isolates_clients = false;
  // Classes that may use only some of the multiprocessors.
  std::vector<SmGrant> sm_grants;
  // Whether a waiting worker or client may spin. False if the cores that would spin are the cores
  // that execute the kernels.
  bool spinning_pays = false;
  std::array<std::uint8_t, 16> uuid = {};
  std::vector<NumberedAttribute> attributes;  // Sorted by id.
};

// A module that a client has loaded. Immutable; may be used by any thread. Must not outlive the
// Space it was loaded into.
class Module {
 public:
  virtual ~Module() = default;
  virtual std::span<const KernelInfo> kernels() const = 0;
  // Returns the variables that the PTX text declares and that exist on the device, in the order of
  // the text. Kernels of all modules of the space may access them.
  virtual std::span<const VariableInfo> variables() const { return {}; }
  // Returns the memory of all variables, as a few pieces sorted by address. Copies and fills of the
  // space may access it.
  virtual std::span<const MemoryPiece> variable_memory() const { return {}; }
  // Returns the block that contains all variables; empty if the module has none.
  virtual MemoryPiece block() const { return {}; }
};

// Everything besides the image that the preparation of a module depends on. Spaces with equal
// recipes can share prepared modules.
struct ModuleRecipe {
  enum class Form : std::uint8_t {
    kDecoded,    // Decoded for the cpu device's executor.
    kForDriver,  // PTX for a GPU driver.
  };
  Form form = Form::kDecoded;
  // The following members are used by kForDriver only.
  ModulePasses passes = {};
  std::uint64_t range_bytes = 0;  // Size of the address range of each space.
};

// A module that was parsed, checked and translated, but not yet placed into a client's memory.
//
// Immutable; may be used by any thread.
class PreparedModule {
 public:
  virtual ~PreparedModule() = default;
  virtual std::span<const KernelInfo> kernel_infos() const = 0;
  // Like Module::variables, except that addresses are offsets from the place where the module will
  // be loaded.
  virtual std::span<const VariableInfo> variable_infos() const { return {}; }
  virtual std::uint64_t bytes() const = 0;  // Returns the module's size in host memory.
};

// Device memory of a client without a fixed address: the client chooses where to map it, possibly
// at several addresses, and the contents survive while it is not mapped. Counts against the
// client's quota. Must be unmapped before destruction and must not outlive its Space. The
// destructor may block.
class Chunk {
 public:
  virtual ~Chunk() = default;
};

// Memory in use by a client, in bytes.
struct SpaceUse {
  std::uint64_t mapped_bytes = 0;
  std::uint64_t resident_bytes = 0;  // The part of mapped_bytes that is on the device.
  std::uint64_t pinned_bytes = 0;    // Memory of modules, which is always on the device.
};

// Memory that a client's kernels use in addition to module variables; 0 leaves a value unchanged.
struct KernelMemory {
  std::uint64_t stack_bytes = 0;    // Local memory of each thread, for recursive calls.
  std::uint64_t printed_bytes = 0;  // Text that one launch may print.
  std::uint64_t heap_bytes = 0;     // Heap that kernels allocate from.
};

// Virtual address range, memory and module state of one client on one device.
//
// The range is a power of two of at least 4 GiB and is naturally aligned. Memory is mapped into it
// from the bottom, in pages of 2 MiB. Chunks are mapped in the mapping area, which is above all
// addresses that the quota allows to be mapped from the bottom. New memory reads as zero, also if
// another client used it before. The space may be destroyed only when none of the client's work is
// on the device; the destructor returns all memory.
//
// Resize, PlaceModule, the calls for chunks and the members that refer to the thread rules of
// Resize may take milliseconds. They are called on a thread other than the device thread, one at a
// time for each Space. All other members may be called by any thread.
class Space {
 public:
  virtual ~Space() = default;
  virtual std::uint64_t base() const = 0;         // Returns the device address of the first byte.
  virtual std::uint64_t range_bytes() const = 0;  // Returns the size of the range, a power of two.
  // Grows or shrinks the mapped part [base, base + mapped_bytes), rounded up to whole pages (2
  // MiB), and returns the new size in bytes. Fails with kOutOfMemory and changes nothing if the
  // quota or the device memory does not suffice. Shrinking requires that no submitted work accesses
  // the memory that is returned. When shrinking, a device may keep memory mapped: up to 1/16 of the
  // new size, or everything that was mapped if the device does not trust the client's running
  // kernels.
  virtual Result<std::uint64_t> Resize(std::uint64_t mapped_bytes) = 0;

  // Returns the area in which chunks may be mapped, in pages of 2 MiB; empty if the device does not
  // support chunks.
  virtual MemoryPiece mapping_area() const { return {}; }
  // Creates a chunk. `bytes` is a multiple of the page size. Fails with kOutOfMemory if the quota
  // or the device memory does not suffice.
  virtual Result<std::unique_ptr<Chunk>> MakeChunk(std::uint64_t /*bytes*/) {
    return Status(StatusCode::kUnsupported, "memory rejected: this device cannot map it in parts");
  }
  // Maps a chunk of this space. The caller has checked that the place is inside the mapping area,
  // begins at a page boundary and does not overlap another mapping.
  virtual Status MapChunk(Chunk& /*chunk*/, std::uint64_t /*address*/) {
    return {StatusCode::kUnsupported, "mapping rejected: this device cannot map memory in parts"};
  }
  // Makes the mapping at `address` inaccessible to work that starts from now on. May be called by
  // any thread.
  virtual void HideMapping(std::uint64_t /*address*/) {}
  // Undoes MapChunk. The mapping must have been hidden, and no work that started before may still
  // run.
  virtual Status Unmap(std::uint64_t /*address*/, std::uint64_t /*bytes*/) { return {}; }

  // SwapPageOut moves the page at `offset` from the base to SpaceOptions::store and releases the
  // page's device memory; SwapPageIn moves the page back, to the same address. SwapPageOut does
  // nothing if the page is not mapped or not resident. During a call, no work that accesses the
  // page may be on the device, and no work of the client at all unless DeviceInfo::checks_reach.
  // Work may start as soon as its access set is resident (reach.h). No data is lost if a call
  // fails. SwapPageIn fails with kOutOfMemory if the device has no free memory for the page. Same
  // thread rules as Resize.
  virtual Status SwapPageOut(std::uint64_t /*offset*/) {
    return {StatusCode::kUnsupported, "this device does not move memory"};
  }
  virtual Status SwapPageIn(std::uint64_t /*offset*/) {
    return {StatusCode::kUnsupported, "this device does not move memory"};
  }
  // Returns how many bytes of the pages in [address, address + bytes) are swapped out. May be
  // called by any thread. The result is exact while no swap is in progress.
  virtual std::uint64_t NonResidentBytes(std::uint64_t /*address*/, std::uint64_t /*bytes*/) const {
    return 0;
  }
  // Returns the memory in use. Only for devices with can_move_memory. Same thread rules as Resize.
  virtual SpaceUse use() { return {}; }
  // Sets the memory of kernels, for launches that start later. The heap is allocated at once and
  // counts against the quota. Once a kernel that allocates has started, the size of the heap is
  // fixed, and another size is rejected with kInvalidArgument. Fails with kOutOfMemory like Resize.
  // Same thread rules as Resize.
  virtual Status SetKernelMemory(const KernelMemory& /*memory*/) {
    return {StatusCode::kUnsupported,
            "limit rejected: the stack, printed text and heap of kernels are the same for all "
            "clients of this device"};
  }

  // The following members load modules, in two stages because the client's image cannot be trusted:
  // PrepareModule (prepare.h) parses the image in another process according to this recipe, and
  // PlaceModule places the result into the space.
  virtual const ModuleRecipe& recipe() const = 0;
  // Prepares a module from TakePrepared for PlaceModule, as far as this is possible without the
  // device; some backends run a compiler. May be called by any thread, concurrently with any other
  // call. Returns null if the call would take long and `may_take_long` is false.
  virtual Result<std::shared_ptr<const PreparedModule>> CompileModule(
      std::shared_ptr<const PreparedModule> module, bool /*may_take_long*/) {
    return module;
  }
  // Places a module that TakePrepared (prepare.h) and CompileModule made for a space of the same
  // recipe. The bytes that it occupies in device memory count against the client's quota.
  virtual Result<std::shared_ptr<const Module>> PlaceModule(
      std::shared_ptr<const PreparedModule> module) = 0;

  // The following members move a client to another device of the same kind: a space is created
  // there at the same base (SpaceOptions::base), grown to the same size, and gets the same modules
  // at the same addresses and then the same bytes. No work of the client may be on either device.
  // Same thread rules as Resize.
  //
  // Returns why the space cannot be moved.
  virtual Status CheckMove() const {
    return {StatusCode::kUnsupported, "its device does not move clients"};
  }
  // Like PlaceModule, with the address of Module::block.
  virtual Result<std::shared_ptr<const Module>> PlaceModuleAt(
      std::shared_ptr<const PreparedModule> /*module*/, std::uint64_t /*address*/) {
    return CheckMove();
  }
  // Returns the values of SetKernelMemory, without the heap.
  virtual KernelMemory kernel_memory() const { return {}; }
  // Copies the part of the mapped memory, or the block of a module, to the same offset from the
  // base in `file`, which is as large as the range and has holes. Bytes of mapped memory that are
  // zero may remain holes.
  virtual Status Save(const MemoryPiece& /*part*/, int /*file*/) { return CheckMove(); }
  // Undoes Save. The file is untrusted: all bytes are data. The part must be zero before, or a
  // module's block.
  virtual Status Load(const MemoryPiece& /*part*/, int /*file*/) { return CheckMove(); }
};

// Identifies submitted work. Chosen by the caller; opaque to the device.
using WorkId = std::uint64_t;
using StreamKey = std::uint64_t;  // Opaque like WorkId; unique among all clients of the device.

// Common to all work. Work on one stream starts and ends in submission order; work on different
// streams is unordered. Work consists of `units`: thread blocks, or pieces of kCopyPieceBytes of a
// copy or fill. Units start in ascending order, so a preempted command has executed exactly a
// prefix of them.
struct WorkHeader {
  WorkId id = 0;
  Space* space = nullptr;  // Owner; must outlive the completion.
  StreamKey stream = 0;
  std::uint8_t of_class = 0;  // Scheduling class; 0 is the most urgent. See DeviceInfo::sm_grants.
  std::uint8_t priority = 0;  // The device serves larger values first if it has a choice.
  std::uint64_t first_unit = 0;  // Resume point: the units before it are already done.
  // Whether the caller uses the times in the completion. If not, the device may save the cost of
  // exact times.
  bool wants_times = true;
};

struct LaunchWork : WorkHeader {
  const Module* module = nullptr;
  std::uint32_t kernel = 0;  // Index into module->kernels().
  Dim3 grid, block;
  // Blocks per cluster: these run at the same time and access each other's shared memory. The grid
  // consists of whole clusters. x is 0 for launches without clusters.
  Dim3 cluster = {0, 0, 0};
  // Whether all blocks must run at the same time; if they cannot, the launch fails.
  bool is_cooperative = false;
  // Whether RequestStop may be called. If not, the device uses the fastest form of the kernel,
  // which may be one that always runs to its end.
  bool may_be_stopped = true;
  // Whether a stop, or work of a higher priority, may preempt the launch in the middle of a block
  // if the device supports it.
  bool may_be_paused = false;
  // Paused blocks from the completion of the previous submission; contains those units before
  // first_unit that have not ended.
  std::shared_ptr<PausedBlocks> paused;
  std::uint32_t dynamic_shared_bytes = 0;
  // Exactly KernelInfo::parameter_bytes bytes; must remain valid until the completion.
  std::span<const std::byte> parameters;
  // Memory that the launch may access in addition to module variables and the heap; null for all
  // memory of the client. Remains valid as long as `parameters`. If DeviceInfo::checks_reach, all
  // other accesses fault.
  const Reach* reach = nullptr;
};

// Size of one page of host memory. Copies are divided this finely because a client may remove the
// pages of its staging buffer during a copy. The pages are then faulted in one by one, and each
// fault can take milliseconds.
inline constexpr std::uint64_t kCopyPieceBytes = std::uint64_t{4} << 10;

// Copy of a rectangle of bytes; height 1 is a plain range. The caller has checked the addresses.
// Device addresses are in mapped memory of `space`, or in variables of its modules, which remain
// loaded until the completion. Host pointers are in a staging buffer that remains mapped until the
// completion.
struct CopyWork : WorkHeader {
  enum class Direction : std::uint8_t { kHostToDevice, kDeviceToHost, kDeviceToDevice };
  Direction direction = Direction::kHostToDevice;
  std::byte* host = nullptr;      // Unused for kDeviceToDevice.
  std::uint64_t destination = 0;  // Device address; unused for kDeviceToHost.
  std::uint64_t source = 0;       // Device address; unused for kHostToDevice.
  std::uint64_t width_bytes = 0, height = 1;
  // At least the width if height is above 1.
  std::uint64_t destination_pitch_bytes = 0, source_pitch_bytes = 0;
};

struct FillWork : WorkHeader {
  std::uint64_t destination = 0;    // Device address, aligned to element_bytes.
  std::uint32_t value = 0;          // Its low element_bytes bytes are repeated.
  std::uint32_t element_bytes = 1;  // 1, 2 or 4.
  // Width and pitch are multiples of element_bytes.
  std::uint64_t width_bytes = 0, height = 1, pitch_bytes = 0;
};

// A sequence of work items, each of which starts when the one before has ended. Its units are its
// nodes. The id, space, stream, class and priority of a node are ignored; those of the graph apply
// to all nodes.
using GraphNode = std::variant<LaunchWork, CopyWork, FillWork>;
struct GraphWork : WorkHeader {
  // The list and the nodes remain valid and unchanged until the completion.
  std::span<const GraphNode* const> nodes;
  // Access set of all nodes together, like LaunchWork::reach.
  const Reach* reach = nullptr;
  // Number of the client's graph, and a version that changes whenever its nodes change, so that a
  // device can cache what it built from them. The version is 0 if this submission contains only
  // some of the graph's nodes.
  std::uint32_t number = 0;
  std::uint64_t version = 0;
  // Versions of the nodes, if `version` is not 0: a node with the same number and version never
  // changes.
  std::span<const std::uint64_t> node_versions;
  // Whether a stop may preempt the graph inside a node if the device supports it.
  // Completion::paused then contains the rest of that node, and the caller passes it in `paused` of
  // the next submission, which begins with that node.
  bool may_be_paused = false;
  std::shared_ptr<PausedBlocks> paused;
};

// Returns the number of units of a copy or fill. Each row is divided into pieces separately.
constexpr std::uint64_t CopyUnits(std::uint64_t width_bytes, std::uint64_t height) {
  return (width_bytes + kCopyPieceBytes - 1) / kCopyPieceBytes * height;
}

using DeviceClock = std::chrono::steady_clock;

struct Completion {
  WorkId id = 0;
  Status status;  // For a fault, names the kernel, block, thread, PTX line and address.
  FaultKind fault = FaultKind::kNone;  // Set only if the status is kKernelFault.
  std::uint64_t units_done = 0;        // Number of executed units, counted from unit 0.
  // True if RequestStop ended the work before its last unit, or before `paused` had ended.
  bool stopped = false;
  // For a launch that may be paused: the units of the prefix that have not ended. For a graph: the
  // rest of the node in which it was stopped. Otherwise null.
  std::shared_ptr<PausedBlocks> paused;
  DeviceClock::time_point started;  // Time at which the first unit of this submission started.
  DeviceClock::time_point ended;
  // False if the two times are estimates: shares of the time that several work items took together.
  bool times_are_exact = true;
};

// Loss of the device, reported once when its context has died; no work will run on it again.
struct DeviceLoss {
  struct Suspect {
    WorkId id = 0;
    std::string what;  // "kernel 'scale'"
  };
  Status why;  // kDeviceLost, with the failed call and its error code.
  // Work that was running or may have been running. If there is only one suspect, it caused the
  // loss.
  std::vector<Suspect> suspects;
};

// Keeps host memory prepared for direct copies. Must be destroyed before that memory is freed,
// while no work uses it. The destructor may block; any thread except the device thread may run it.
class PinnedMemory {
 public:
  virtual ~PinnedMemory() = default;
};

struct SpaceOptions {
  std::uint64_t quota_bytes = 0;  // Limit of the memory that the client may map.
  // Store to which the client's memory can be swapped; null if swapping is not possible.
  std::shared_ptr<SwapStore> store;
  // Free device memory that the client must leave to others when it maps more.
  std::uint64_t left_free_bytes = 0;
  Isolation isolation = Isolation::kOff;
  // Address at which the range must begin; 0: any. Only for devices that move clients.
  std::uint64_t base = 0;
  // Whether the driver may compile the client's code inside this process if no compiler process is
  // available. Only matters for isolated kernels; the driver may compile all others in any case.
  bool driver_may_compile = true;
};

// A device and its context.
//
// Confined to the worker's device thread, except for members whose comments allow other threads.
class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;

  // Reserves an address range for one client. May block, so any thread except the device thread may
  // call it.
  virtual Result<std::unique_ptr<Space>> CreateSpace(const SpaceOptions& options) = 0;

  // Returns the unallocated memory if can_move_memory. May be called by any thread.
  virtual std::uint64_t free_memory_bytes() const { return 0; }

  // Queue work; never block. The caller has checked the arguments against KernelInfo and
  // DeviceInfo; errors that are found later are reported in the Completion.
  virtual void Submit(const LaunchWork& work) = 0;
  virtual void Submit(const CopyWork& work) = 0;
  virtual void Submit(const FillWork& work) = 0;
  // Returns whether the work may be a node of a GraphWork. Other work is submitted alone.
  virtual bool TakesNode(const GraphNode& /*node*/) const { return true; }
  // Queues a graph. Regardless of the device's preemption, RequestStop ends a graph before its next
  // node; a node that has started runs to its end unless the graph may be paused. A node that fails
  // ends the graph, and units_done is the number of that node.
  virtual void SubmitGraph(const GraphWork& work) = 0;

  // Returns whether RequestStop would end this launch between two of its blocks at an acceptable
  // cost. `expected` is the expected duration of the launch. The default is true for every launch
  // of a device with Preemption::kWithinCommand.
  virtual bool CanStop(const LaunchWork& /*work*/, std::chrono::nanoseconds /*expected*/) {
    return info().preemption == Preemption::kWithinCommand;
  }

  // Makes submitted work end before its next unit, or inside a unit (may_be_paused). The work still
  // completes exactly once, with `stopped` set unless its last unit ended. A launch that has
  // started and cannot be preempted (DeviceInfo::preemption) runs to its end. Ignored for unknown
  // ids.
  virtual void RequestStop(WorkId id) = 0;

  // Makes submitted work end at once, if possible inside a unit, such as in an endless kernel of a
  // client that has disconnected. The output of a killed command is undefined. The
  // work still completes exactly once, with kCancelled unless it had already ended. Concurrent
  // launches of the same contained module (Isolation::kContain) may end with kKernelFault as well,
  // because they share the word that ends them. Devices that cannot end a unit treat the call as
  // RequestStop. Ignored for unknown ids.
  virtual void RequestKill(WorkId id) = 0;

  // Moves completions of finished work into `out`, oldest first, and returns their number. After a
  // call that returned less than out.size(), the next completion calls the wake function with which
  // the device was created, from any thread, unless must_be_polled() is true.
  virtual std::size_t TakeCompletions(std::span<Completion> out) = 0;

  // Returns true if completions must be discovered by polling TakeCompletions(), because the device
  // does not signal the end of some of its current work.
  virtual bool must_be_polled() const { return false; }

  // Returns the total time for which the device could not make progress on its work through no
  // fault of the clients: the host took its cores, or a driver call needed the device idle.
  // Monotonic; delays that are detected late are added late.
  virtual std::chrono::nanoseconds HostStealUntil(DeviceClock::time_point /*now*/) { return {}; }

  // Returns the loss, from the moment at which the context is dead; null before. All work then
  // completes with kDeviceLost, and the process that owns the device cannot use it again.
  virtual const DeviceLoss* loss() const { return nullptr; }

  // Prepares host memory for copies. Copies of other host memory work as well, but may be slower.
  // Returns null if the device needs no preparation. May block, so any thread except the device
  // thread may call it.
  virtual Result<std::unique_ptr<PinnedMemory>> Pin(std::span<std::byte> /*memory*/) {
    return std::unique_ptr<PinnedMemory>();
  }

  // Returns the host memory that the device's own threads retain for kernels that ran: registers,
  // shared and local memory. Updated whenever a thread leaves a launch. May be called by any
  // thread.
  virtual std::uint64_t executor_bytes() const { return 0; }

  // Ends all kernels that poll for a request to end, as RequestKill ends a single one, but without
  // a driver call, because the device thread may be blocked inside a driver call that waits for
  // such a kernel. The launches of these kernels fail with FaultKind::kLaunchTimeout. Returns false
  // if no kernel polls. May be called by any thread.
  virtual bool ReportKernelsToEnd() { return false; }

  // Returns whether RequestKill would end this launch while it runs. With DeviceInfo::can_kill it
  // ends any launch; otherwise, only launches whose kernels poll for a request to end.
  virtual bool CanKill(const LaunchWork& /*work*/) const { return info().can_kill; }
};

// Called by a device, from any thread, when completions are ready to be taken. Must not block and
// must not call back into the device.
using WakeFunction = std::function<void()>;

// Text that a kernel printed. Contains whole lines if the kernel prints whole lines.
struct KernelOutput {
  WorkId work = 0;
  StreamKey stream = 0;
  const Space* space = nullptr;  // Identifies the client; must not be dereferenced.
  // Valid during the call. May contain arbitrary bytes, because the client chose them.
  std::string_view text;
};

// Called by a device, from any thread, while the work that prints is running. The device limits the
// text of each launch (kOutputBytesMax) and reports a truncation. Must not call back into the
// device.
using OutputFunction = std::function<void(const KernelOutput&)>;
// Default size of CUDA's printf buffer, and the limit unless the space sets a larger one.
inline constexpr std::uint64_t kOutputBytesMax = std::uint64_t{1} << 20;

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_DEVICE_H_

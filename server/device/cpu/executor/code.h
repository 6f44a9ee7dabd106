// SPDX-License-Identifier: Apache-2.0
// A decoded kernel: micro-ops over register rows, and what a frame of registers needs
// before its first instruction runs.
//
// A *row* holds one register of all 32 lanes of a warp: 32 words of 4 bytes for types
// up to 32 bits, of 8 bytes for 64-bit types. A predicate is one 4-byte mask, bit =
// lane. Rows and predicates are named by their byte offset in the *frame*, the piece
// of a warp's register memory that the running function owns:
//
//   [predicates][registers][constant, special-register and scratch rows][parameter area]

#ifndef GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_CODE_H_
#define GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_CODE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace gpushared::device::executor {

inline constexpr std::uint32_t kLanes = 32;
inline constexpr std::uint32_t kAllLanes = 0xffffffffu;
inline constexpr std::uint32_t kNarrowRowBytes = kLanes * 4;
inline constexpr std::uint32_t kWideRowBytes = kLanes * 8;

// Generic addresses of shared, local and parameter memory. No user-space host address
// has these bits, so they can never be confused with the client's memory.
inline constexpr std::uint64_t kSharedWindow = 0x4000000000000000;
inline constexpr std::uint64_t kLocalWindow = 0x4100000000000000;
inline constexpr std::uint64_t kParameterWindow = 0x4200000000000000;
// Generic addresses of the workspace for grid barriers, which has no other addresses.
inline constexpr std::uint64_t kGridWindow = 0x4300000000000000;
inline constexpr std::uint64_t kWindowBytes = std::uint64_t{1} << 32;

// Represents the missing reconvergence point of branches whose sides end in a return or an exit.
inline constexpr std::uint32_t kNoReconvergence = 0xffffffffu;

struct Warp;
struct MicroOp;

// Executes a micro-op for the active lanes and returns the next one, or null if the warp pauses
// (Warp::pause holds the reason).
using Handler = const MicroOp* (*)(Warp&, const MicroOp*);

struct MicroOp {
  Handler handler = nullptr;
  std::uint32_t destination = 0;  // Frame offset of a row or predicate, as are a, b and c.
  std::uint32_t a = 0;
  std::uint32_t b = 0;
  std::uint32_t c = 0;
  std::uint32_t guard = 0;  // Frame offset of the guard predicate; bit 0 means negated.
  std::uint32_t extra = 0;
  std::int64_t immediate = 0;
  std::array<std::uint32_t, 4> rows = {};
  std::uint32_t target = 0;         // Index of the op to branch to.
  std::uint32_t reconvergence = 0;  // Index of the op at which lanes reconverge.
};
static_assert(sizeof(MicroOp) == 64);

// Bits of MicroOp::extra of an op in which lanes with the same member mask act together, such as
// shfl.sync (meeting.h). They describe all operands except the member mask. rows[1] is the row of
// member masks, and rows[0] holds an optional second result.
inline constexpr std::uint32_t kReadsPredicate = 1;   // Operand a is a predicate instead of a row.
inline constexpr std::uint32_t kReadsWide = 2;        // Operand a is a row of 64-bit values.
inline constexpr std::uint32_t kReadsThree = 4;       // Operands b and c are used as well.
inline constexpr std::uint32_t kWritesPredicate = 8;  // The destination is a predicate.
inline constexpr std::uint32_t kWritesNothing = 16;   // The op has no destination.

enum class SpecialRegister : std::uint8_t {
  kThreadX,
  kThreadY,
  kThreadZ,
  kBlockSizeX,
  kBlockSizeY,
  kBlockSizeZ,
  kBlockX,
  kBlockY,
  kBlockZ,
  kGridX,
  kGridY,
  kGridZ,
  kLane,
  kWarp,
  kWarpsPerBlock,
  kLaneMaskEqual,
  kLaneMaskLess,
  kLaneMaskLessEqual,
  kLaneMaskGreater,
  kLaneMaskGreaterEqual,
  kMultiprocessor,
  kMultiprocessors,
  kGridId,             // A 64-bit value.
  kGridWorkspaceLow,   // The low word, %envreg2.
  kGridWorkspaceHigh,  // The high word, %envreg1.
  kDynamicSharedBytes,
  kTotalSharedBytes,
  kZero,  // %cluster_ctarank, other %envreg<N>, %pm<N> and others that read as 0.
  kOne,   // %cluster_nctarank and %cluster_nctaid, because each cluster is one block.
};

struct SpecialRow {
  std::uint32_t offset = 0;
  SpecialRegister what = SpecialRegister::kZero;
  bool wide = false;
};

// Describes a row that holds the address of a module variable in all lanes: `address` plus the
// offset that the launch adds (Launch::variables_at).
struct AddressRow {
  std::uint32_t offset = 0;
  bool wide = false;
  std::uint64_t address = 0;
};

// Describes a row for intermediate values of one instruction.
struct ScratchRow {
  std::uint32_t offset = 0;
  bool wide = false;
};

// Contents of the first words of every frame.
inline constexpr std::uint32_t kAlwaysTrue = 0;  // Predicate with every lane set.
inline constexpr std::uint32_t kCarry = 4;  // Condition code of add.cc and related instructions.
inline constexpr std::uint32_t kFirstPredicate = 8;

// Place of one parameter or result in a function's parameter area.
struct AreaSlot {
  std::uint32_t offset = 0;
  std::uint32_t bytes = 0;
};

struct FunctionCode {
  std::string name;
  std::uint32_t entry = 0;         // Index of the function's first op.
  std::uint32_t frame_bytes = 0;   // Multiple of 64; a wide row fits at the offset of each row.
  std::uint32_t narrow_begin = 0;  // End of the predicates, start of the narrow registers.
  std::uint32_t wide_begin = 0;    // Start of the wide registers, which extend to image_offset.
  std::uint32_t image_offset = 0;
  std::vector<std::byte> image;  // Constant rows; copied to image_offset of a new frame.
  std::vector<SpecialRow> special_rows;
  std::vector<AddressRow> address_rows;
  std::vector<ScratchRow> scratch_rows;
  std::uint32_t area_offset = 0;  // Start of the parameter area: area_bytes for each lane in turn.
  std::uint32_t area_bytes = 0;
  std::uint64_t local_bytes = 0;  // Local memory per thread; a multiple of 16.
  // Places of the function's own parameters, in order; empty for a kernel.
  std::vector<AreaSlot> arguments;
  std::vector<AreaSlot> results;
};

struct CallSite {
  std::uint32_t function = 0;       // Index into Code::functions; unused by indirect calls.
  std::vector<AreaSlot> arguments;  // Places in the caller's parameter area, in the callee's order.
  std::vector<AreaSlot> results;
  std::uint32_t target_list = 0;  // For indirect calls: index into Code::target_lists.
};

// A function that may be called indirectly.
struct CallableFunction {
  // Value by which programs refer to the function; there is no memory at this address.
  std::uint64_t address = 0;
  std::uint32_t function = 0;
};

// Operands of a matrix operation of a whole warp: more rows than a micro-op can name.
struct MatrixCall {
  std::uint32_t m = 0, n = 0, k = 0;
  bool columns = false;  // With wmma.load and .store: whether the matrix is column-major in memory.
  std::vector<std::uint32_t> d, a, b, c;  // Frame offsets of the fragments' rows.
};

// Origin of a micro-op, for messages.
struct OpSource {
  std::uint32_t line = 0;
  std::uint32_t spelling = 0;  // Index into Code::spellings.
};

struct Code {
  std::string kernel;
  std::vector<MicroOp> ops;
  std::vector<OpSource> sources;  // Parallel to ops.
  std::vector<std::string> spellings;
  // [0] is the kernel; the others are the functions that it calls.
  std::vector<FunctionCode> functions;
  std::vector<CallSite> call_sites;
  std::vector<CallableFunction> callable;  // Sorted by address; empty without indirect calls.
  // Sorted addresses that an indirect call may go to. [0] is empty and represents all of
  // `callable`.
  std::vector<std::vector<std::uint64_t>> target_lists;
  std::vector<std::vector<std::uint32_t>> branch_tables;  // Tables of op indices, for brx.idx.
  std::vector<MatrixCall> matrix_calls;
  bool calls = false;
  bool allocates = false;  // Whether the kernel calls malloc.
  // Whether there are recursive calls or alloca, so that Launch::stack_bytes applies.
  bool uses_stack = false;
  std::uint32_t static_shared_bytes = 0;
  // Local bytes of all frames on the deepest call path, plus kRecursionLocalBytes if calls are
  // recursive and kStackBytes if a function allocates on the stack.
  std::uint64_t local_bytes_per_thread = 0;
};

}  // namespace gpushared::device::executor

#endif  // GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_CODE_H_

// SPDX-License-Identifier: Apache-2.0
#include "server/ptx/analysis/memory_access.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <string_view>
#include <utility>

#include "common/ptx/text/editor.h"

namespace gpushared::ptx {
namespace {

// Instructions without memory accesses, sorted.
constexpr auto kWithoutMemory = std::to_array<std::string_view>({
    "abs",       "activemask", "add",       "addc",
    "and",       "bar",        "barrier",   "bfe",
    "bfi",       "bfind",      "bmsk",      "bra",
    "brev",      "brkpt",      "brx",       "call",
    "clz",       "cnot",       "copysign",  "cos",
    "cvt",       "cvta",       "div",       "dp2a",
    "dp4a",      "elect",      "ex2",       "exit",
    "fence",     "fma",        "fns",       "griddepcontrol",
    "isspacep",  "lg2",        "lop3",      "mad",
    "mad24",     "madc",       "match",     "max",
    "membar",    "min",        "mma",       "mov",
    "movmatrix", "mul",        "mul24",     "nanosleep",
    "neg",       "not",        "or",        "pmevent",
    "popc",      "prmt",       "rcp",       "redux",
    "rem",       "ret",        "rsqrt",     "sad",
    "selp",      "set",        "setp",      "shf",
    "shfl",      "shl",        "shr",       "sin",
    "slct",      "sqrt",       "sub",       "subc",
    "szext",     "tanh",       "testp",     "trap",
    "vabsdiff",  "vabsdiff2",  "vabsdiff4", "vadd",
    "vadd2",     "vadd4",      "vavrg2",    "vavrg4",
    "vmad",      "vmax",       "vmax2",     "vmax4",
    "vmin",      "vmin2",      "vmin4",     "vote",
    "vset",      "vset2",      "vset4",     "vshl",
    "vshr",      "vsub",       "vsub2",     "vsub4",
    "xor",
});
static_assert(std::ranges::is_sorted(kWithoutMemory));

// Wider loads and stores exist for global memory only.
constexpr std::uint32_t kWidestOutsideGlobal = 16;
// ldmatrix and stmatrix: each thread has the address of one row, or of half a row.
constexpr std::uint32_t kMatrixRowBytes = 16;
// For wmma the manual requires 32, but kernels use 16 for rows of bytes, and the hardware accepts
// it.
constexpr std::uint32_t kFragmentAlignment = 16;
// Upper limit for the size of a fragment.
constexpr std::uint32_t kFragmentBytesMax = 4096;

bool HasAddress(const Instruction& instruction) {
  bool found = false;
  ForEachOperand(instruction,
                 [&](const Operand& operand) { found |= operand.kind == Operand::Kind::kAddress; });
  return found;
}

// Returns the state space in the modifiers, or nothing if passes do not support that state space.
std::optional<AccessSpace> GetSpace(const Instruction& instruction) {
  for (const std::string& modifier : instruction.modifiers) {
    if (modifier == "global") return AccessSpace::kGlobal;
    if (modifier == "shared" || modifier == "shared::cta") return AccessSpace::kShared;
    if (modifier == "local") return AccessSpace::kLocal;
    if (modifier == "const") return AccessSpace::kConstant;
    const bool parameter =
        modifier == "param" || modifier == "param::entry" || modifier == "param::func";
    if (parameter) return AccessSpace::kParameter;
    const bool unknown = modifier.starts_with("shared") || modifier.starts_with("const") ||
                         modifier.starts_with("param") || modifier.starts_with("local") ||
                         modifier.starts_with("global");
    if (unknown) return std::nullopt;
  }
  return AccessSpace::kGeneric;
}

std::uint32_t VectorSize(const Instruction& instruction) {
  if (instruction.Has("v2")) return 2;
  if (instruction.Has("v4")) return 4;
  return instruction.Has("v8") ? 8 : 1;
}

class AccessReader {
 public:
  explicit AccessReader(const Instruction& instruction) : instruction_(instruction) {}

  MemoryAccesses Run() {
    const std::string_view opcode = instruction_.opcode;
    const bool known = std::ranges::binary_search(kWithoutMemory, opcode) || ReadPlain() ||
                       ReadMatrix() || ReadCopy();
    if (!known) Reject();
    CheckOperands();
    // The operands may differ from the expected ones, or be missing.
    if (!found_.rejection.empty()) found_.list.clear();
    return std::move(found_);
  }

 private:
  void Reject() { found_.rejection = "'" + instruction_.Spelling() + "' is not known"; }

  void Add(std::size_t operand, AccessSpace space, std::uint32_t bytes, std::uint32_t alignment) {
    found_.list.push_back({.operand = operand,
                           .space = space,
                           .bytes = bytes,
                           .alignment = alignment,
                           .takes_shared = false,
                           .takes_local = false,
                           .takes_parameter = false,
                           .stride = std::nullopt,
                           .rows = 1,
                           .stride_bytes = 0});
  }

  // The type is the last modifier, except in instructions such as red.global.v2.f32.add.
  std::uint32_t ElementBytes() const {
    const std::uint32_t last = TypeBytes(instruction_.modifiers.back());
    if (last != 0 || VectorSize(instruction_) == 1) return last;
    const auto type = std::ranges::find_if(
        instruction_.modifiers, [](const std::string& each) { return TypeBytes(each) != 0; });
    return type == instruction_.modifiers.end() ? 0 : TypeBytes(*type);
  }

  bool ReadPlain() {
    const std::string_view opcode = instruction_.opcode;
    const bool loads = opcode == "ld" || opcode == "ldu" || opcode == "atom";
    const bool stores = opcode == "st" || opcode == "red";
    const bool hints = opcode == "prefetch" || opcode == "prefetchu" || opcode == "discard" ||
                       opcode == "applypriority";
    if (!loads && !stores && !hints && opcode != "createpolicy") return false;
    const std::optional<AccessSpace> space = GetSpace(instruction_);
    if (opcode == "createpolicy") {
      if (space && instruction_.Has("range")) Add(1, *space, 0, 1);
      return space.has_value();
    }
    if (!space || instruction_.Has("async") || instruction_.modifiers.empty()) return false;
    if (hints) {
      // A tensor map also contains an address.
      if (instruction_.Has("tensormap")) return false;
      Add(0, *space, 0, 1);
      return true;
    }
    const std::uint32_t bytes = ElementBytes() * VectorSize(instruction_);
    if (!std::has_single_bit(bytes)) return false;
    Add(loads ? 1 : 0, *space, bytes, bytes);
    const bool atomic = opcode == "atom" || opcode == "red";
    MemoryAccess& access = found_.list.back();
    access.takes_shared = atomic ? VectorSize(instruction_) == 1 : bytes <= kWidestOutsideGlobal;
    access.takes_local = !atomic && bytes <= kWidestOutsideGlobal;
    access.takes_parameter = opcode == "ld" && bytes <= kWidestOutsideGlobal;
    return true;
  }

  bool ReadMatrix() {
    const std::string_view opcode = instruction_.opcode;
    const std::optional<AccessSpace> space = GetSpace(instruction_);
    if (opcode == "ldmatrix" || opcode == "stmatrix") {
      if (space != AccessSpace::kShared) return false;
      Add(opcode == "ldmatrix" ? 1 : 0, *space, kMatrixRowBytes, kMatrixRowBytes);
      return true;
    }
    if (opcode != "wmma" || !space) return false;
    if (instruction_.Has("mma")) return !HasAddress(instruction_);
    const bool loads = instruction_.Has("load");
    if (!loads && !instruction_.Has("store")) return false;
    const std::optional<Rows> rows = FragmentRows();
    if (!rows) return false;
    const std::uint32_t element = TypeBytes(instruction_.modifiers.back());
    // Elements smaller than a byte have element size 0; one byte each is an upper bound.
    const std::uint32_t bytes = element == 0 ? rows->elements : rows->elements * element;
    Add(loads ? 1 : 0, *space, bytes, kFragmentAlignment);
    MemoryAccess& access = found_.list.back();
    access.takes_shared = access.takes_local = true;
    access.rows = rows->count;
    access.stride_bytes = element;
    if (instruction_.operands.size() > 2) {
      access.stride = 2;
    } else {
      access.bytes *= access.rows;
    }
    return access.bytes <= kFragmentBytesMax;
  }

  struct Rows {
    std::uint32_t count = 0;
    std::uint32_t elements = 0;  // Number of elements in each row.
  };

  // Returns the rows in memory for "wmma.load.a.sync.aligned.col.m16n8k32...". In column-major
  // layout these are columns of the matrix.
  std::optional<Rows> FragmentRows() const {
    std::uint32_t m = 0, n = 0, k = 0;
    for (const std::string& modifier : instruction_.modifiers) {
      if (std::sscanf(modifier.c_str(), "m%3un%3uk%3u", &m, &n, &k) == 3) break;
    }
    constexpr std::uint32_t kLargest = 128;
    const auto possible = [](std::uint32_t size) { return size > 0 && size <= kLargest; };
    if (!possible(m) || !possible(n) || !possible(k)) return std::nullopt;
    const std::string& fragment = instruction_.modifiers[1];
    Rows rows;
    if (fragment == "a") {
      rows = {.count = m, .elements = k};
    } else if (fragment == "b") {
      rows = {.count = k, .elements = n};
    } else if (fragment == "c" || fragment == "d") {
      rows = {.count = m, .elements = n};
    } else {
      return std::nullopt;
    }
    if (instruction_.Has("col")) std::swap(rows.count, rows.elements);
    return rows;
  }

  // Handles copies between spaces, and barriers that count their bytes.
  bool ReadCopy() {
    const std::string_view opcode = instruction_.opcode;
    if (opcode == "mbarrier") {
      if (GetSpace(instruction_) != AccessSpace::kShared) return false;
      for (std::size_t i = 0; i < instruction_.operands.size(); ++i) {
        if (instruction_.operands[i].kind == Operand::Kind::kAddress) {
          Add(i, AccessSpace::kShared, 8, 8);
        }
      }
      return true;
    }
    if (opcode != "cp" || !instruction_.Has("async")) return false;
    for (const char* other : {"bulk", "reduce", "tensor", "mbarrier", "shared::cluster"}) {
      if (instruction_.Has(other)) return false;
    }
    if (!HasAddress(instruction_)) return true;  // commit_group, wait_group, wait_all
    if (!instruction_.Has("global") || instruction_.operands.size() < 3) return false;
    const Operand& size = instruction_.operands[2];
    const bool known = size.kind == Operand::Kind::kInteger &&
                       (size.integer == 4 || size.integer == 8 || size.integer == 16);
    if (!known) return false;
    const auto bytes = static_cast<std::uint32_t>(size.integer);
    Add(0, AccessSpace::kShared, bytes, bytes);
    Add(1, AccessSpace::kGlobal, bytes, bytes);
    return true;
  }

  // Rejects instructions with an address in an unexpected operand, such as fence.proxy.tensormap
  // and possible future forms.
  void CheckOperands() {
    if (!found_.rejection.empty()) return;
    std::size_t addresses = 0;
    ForEachOperand(instruction_, [&](const Operand& operand) {
      addresses += operand.kind == Operand::Kind::kAddress ? 1 : 0;
      if (operand.kind == Operand::Kind::kAddress && !operand.elements.empty()) Reject();
    });
    for (const MemoryAccess& access : found_.list) {
      const bool stands = access.operand < instruction_.operands.size() &&
                          instruction_.operands[access.operand].kind == Operand::Kind::kAddress;
      if (!stands) Reject();
    }
    if (addresses != found_.list.size()) Reject();
  }

  const Instruction& instruction_;
  MemoryAccesses found_;
};

}  // namespace

MemoryAccesses FindMemoryAccesses(const Instruction& instruction) {
  return AccessReader(instruction).Run();
}

}  // namespace gpushared::ptx

// SPDX-License-Identifier: Apache-2.0
// What the fields of a micro-op mean to its operation, as far as memory hangs on it. Each operation
// is added with its rule (AddOp), and Verify holds code that another process decoded to it.

#ifndef GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_OP_RULE_H_
#define GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_OP_RULE_H_

#include <array>
#include <cstdint>

namespace gpushared::device::executor {

// An operation may read and write a whole wide row at each of its places: destination, a, b, c and
// rows. Places hold rows unless the rule says otherwise, whether the operation uses them or not. A
// field that leads anywhere else (immediate, extra, target, reconvergence) needs a kind that checks
// it; kRows says that none does.
//
// Op files are compiled for machines that may not be this one, so nothing of a rule may be left for
// the linker to choose: all of it is computed by the compiler.
struct OpRule {
  enum Kind : std::uint8_t {
    kRows,  // Rows, and numbers that any value does for.
    kEnd,
    kLook,
    kBranch,
    kSplit,  // A branch that some lanes take.
    kIndexed,
    kCall,
    kIndirectCall,
    kReturn,
    kArea,
    kAreaWords,  // Places in the parameter area of what it reads and writes.
    kGroup,      // Lanes that name the same members act together: extra is `number`.
    kParameter,  // Reads `number` bytes at immediate.
    kMma,        // The last words of its key are the types of what it multiplies.
    kWmma,
    kWmmaMemory,
    kWarpgroup,
    kMatrixMove,
    kAsyncCopy,
    kFifthRow,  // extra is a row, too.
    kSurface,   // The same; immediate is a SurfaceAccess.
  };
  // Places, as bits.
  enum Place : std::uint8_t { kDestination = 1, kA = 2, kB = 4, kC = 8, kRow0 = 16 };
  static constexpr std::uint8_t kAllRows = 0xf0;

  // There is no default: whoever adds an operation has thought of its fields.
  consteval explicit OpRule(Kind of, std::uint32_t with = 0) : kind(of), number(with) {}

  // These places may hold a predicate instead of a row.
  consteval OpRule Predicates(int places) const {
    OpRule rule = *this;
    rule.predicates = static_cast<std::uint8_t>(places);
    return rule;
  }
  // These are no places, and any value does.
  consteval OpRule Free(int places) const {
    OpRule rule = *this;
    rule.free = static_cast<std::uint8_t>(places);
    return rule;
  }

  bool operator==(const OpRule&) const = default;

  Kind kind;
  std::uint8_t predicates = 0;
  std::uint8_t free = 0;
  std::array<std::uint8_t, 4> words = {};  // kAreaWords: bytes at each of MicroOp::rows.
  std::uint32_t number = 0;
};

inline constexpr OpRule kRows(OpRule::kRows);
inline constexpr OpRule kFifthRow(OpRule::kFifthRow);
// Comparisons: the outcome, and its opposite or that of a second pair.
inline constexpr OpRule kSetsPredicates = kRows.Predicates(OpRule::kDestination | OpRule::kRow0);

// A function of the device, with the bytes of each word that it reads and writes of its caller's
// parameter area.
consteval OpRule AreaWords(std::array<std::uint8_t, 4> bytes) {
  OpRule rule = OpRule(OpRule::kAreaWords).Free(OpRule::kAllRows);
  rule.words = bytes;
  return rule;
}

}  // namespace gpushared::device::executor

#endif  // GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_OP_RULE_H_

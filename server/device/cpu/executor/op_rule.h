// SPDX-License-Identifier: Apache-2.0
// How an operation uses the fields of its micro-op, as far as memory safety depends on them. Each
// operation is added with its rule (AddOp), and Verify checks code from another process against it.

#ifndef GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_OP_RULE_H_
#define GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_OP_RULE_H_

#include <array>
#include <cstdint>

namespace gpushared::device::executor {

// By default, an operation may read and write a whole wide row at each of its places: destination,
// a, b, c and rows. Places hold rows unless the rule states otherwise, whether the operation uses
// them or not. A field with another meaning (immediate, extra, target, reconvergence) needs a kind
// that checks it; kRows means that there is no such field.
//
// Op files may be compiled for a different machine, and the linker could choose their copy of a
// function for the whole program. Therefore op files call only consteval functions of rules.
struct OpRule {
  enum Kind : std::uint8_t {
    kRows,  // Rows, and numbers that may have any value.
    kEnd,
    kCheckKill,
    kBranch,
    kSplit,  // A branch that may split the warp.
    kIndexed,
    kCall,
    kIndirectCall,
    kReturn,
    kArea,
    kAreaWords,  // The rows are offsets in the parameter area that the operation accesses.
    kGroup,      // Lanes that name the same members act together: extra is `number`.
    kParameter,  // Reads `number` bytes at offset immediate.
    kMma,        // The last words of the key are the types of the factors.
    kWmma,
    kWmmaMemory,
    kWarpgroup,
    kMatrixMove,
    kAsyncCopy,
    kFifthRow,  // extra is a row as well.
    kSurface,   // Like kFifthRow; immediate is a SurfaceAccess.
  };
  // Places as a bit mask.
  enum Place : std::uint8_t { kDestination = 1, kA = 2, kB = 4, kC = 8, kRow0 = 16 };
  static constexpr std::uint8_t kAllRows = 0xf0;

  // There is no default rule, so that every operation's fields are considered explicitly.
  consteval explicit OpRule(Kind of, std::uint32_t with = 0) : kind(of), number(with) {}

  // Allows these places to hold a predicate instead of a row.
  consteval OpRule Predicates(int places) const {
    OpRule rule = *this;
    rule.predicates = static_cast<std::uint8_t>(places);
    return rule;
  }
  // Declares that these fields are not places and may have any value.
  consteval OpRule Free(int places) const {
    OpRule rule = *this;
    rule.free = static_cast<std::uint8_t>(places);
    return rule;
  }

  bool operator==(const OpRule&) const = default;

  Kind kind;
  std::uint8_t predicates = 0;
  std::uint8_t free = 0;
  // With kAreaWords: the number of bytes at each of MicroOp::rows.
  std::array<std::uint8_t, 4> words = {};
  std::uint32_t number = 0;
};

inline constexpr OpRule kRows(OpRule::kRows);
inline constexpr OpRule kFifthRow(OpRule::kFifthRow);
// Rule of comparisons, which set two predicates: the result, and either its negation or the result
// for a second pair of values.
inline constexpr OpRule kSetsPredicates = kRows.Predicates(OpRule::kDestination | OpRule::kRow0);

// Returns the rule of a device function, with the size of each word that it accesses in its
// caller's parameter area.
consteval OpRule AreaWords(std::array<std::uint8_t, 4> bytes) {
  OpRule rule = OpRule(OpRule::kAreaWords).Free(OpRule::kAllRows);
  rule.words = bytes;
  return rule;
}

}  // namespace gpushared::device::executor

#endif  // GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_OP_RULE_H_

// SPDX-License-Identifier: Apache-2.0
// Video instructions (PTX ISA, chapter 9, Video Instructions): vadd, vmad, vabsdiff4 and the like.

#ifndef GPUSHARED_SERVER_PTX_ANALYSIS_VIDEO_H_
#define GPUSHARED_SERVER_PTX_ANALYSIS_VIDEO_H_

#include <array>
#include <cstdint>
#include <string_view>

#include "gpushared/result.h"

#include "common/ptx/text/module.h"

namespace gpushared::ptx {

// A part of a 32-bit register, as the selector behind its name says: .b2, .h0.
//
// Thread-compatible value.
struct RegisterPart {
  std::uint8_t position = 0;  // Of its lowest bit.
  std::uint8_t bits = 32;
};

// What a video instruction computes, by its spelling, its selectors and its signs.
//
// Thread-compatible value.
struct VideoForm {
  enum class Operation : std::uint8_t {
    kAdd,
    kSubtract,
    kAbsoluteDifference,
    kMinimum,
    kMaximum,
    kShiftLeft,
    kShiftRight,
    kCompare,
    kMultiplyAdd,
    kAverage,
  };
  enum class Second : std::uint8_t { kMerge, kAdd, kMinimum, kMaximum };
  enum class Relation : std::uint8_t { kEqual, kNotEqual, kLess, kAtMost, kGreater, kAtLeast };

  Operation operation = Operation::kAdd;
  std::uint32_t elements = 1;  // 2 halves or 4 bytes that are computed at once.
  // Of 32 bits, each; comparisons have an unsigned result.
  bool is_result_signed = false, is_a_signed = false, is_b_signed = false;
  bool saturates = false;
  Second second = Second::kMerge;  // A merge of whole registers leaves the third operand out.
  bool wraps = false;              // Shifts take the distance modulo 32, and do not clamp it.
  Relation relation = Relation::kEqual;
  // vmad alone.
  bool negates_product = false, negates_c = false, adds_one = false;
  std::uint8_t scale = 0;  // Bits by which the result is shifted to the right: 0, 7 or 15.

  // Of single values.
  RegisterPart result, a, b;
  // Of several at once: which of the elements of {a, b} each takes, and which results are kept.
  std::array<std::uint8_t, 4> a_elements = {}, b_elements = {};
  std::array<bool, 4> is_kept = {};
};

bool IsVideo(std::string_view opcode);

// Reads an instruction whose opcode IsVideo. kInvalidArgument: what ptxas would say about its
// modifiers, its number of operands, its selectors or its signs. What registers the operands are is
// for the caller to judge.
Result<VideoForm> ReadVideo(const Instruction& instruction);

// The name of an operand without its sign and its selector.
std::string_view VideoRegister(const Operand& operand);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_ANALYSIS_VIDEO_H_

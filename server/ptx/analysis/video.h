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

// Part of a 32-bit register, selected by a suffix of its name: .b2, .h0.
//
// Thread-compatible value.
struct RegisterPart {
  std::uint8_t position = 0;  // Position of its lowest bit.
  std::uint8_t bits = 32;
};

// Meaning of a video instruction, derived from its spelling, selectors and signs.
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
  std::uint32_t elements = 1;  // 2 (halves) or 4 (bytes) if several are computed at once.
  // All types have 32 bits; comparisons have an unsigned result.
  bool is_result_signed = false, is_a_signed = false, is_b_signed = false;
  bool saturates = false;
  Second second = Second::kMerge;  // kMerge of whole registers has no third operand.
  bool wraps = false;              // Shifts use the distance modulo 32 instead of clamping it.
  Relation relation = Relation::kEqual;
  // vmad only.
  bool negates_product = false, negates_c = false, adds_one = false;
  std::uint8_t scale = 0;  // Distance of the right shift of the result: 0, 7 or 15.

  // For single values.
  RegisterPart result, a, b;
  // For several elements: which element of {a, b} each one uses, and whether its result is kept.
  std::array<std::uint8_t, 4> a_elements = {}, b_elements = {};
  std::array<bool, 4> is_kept = {};
};

bool IsVideo(std::string_view opcode);

// Parses an instruction whose opcode IsVideo. Fails with kInvalidArgument and the error that ptxas
// would report about its modifiers, number of operands, selectors or signs. The caller checks the
// registers.
Result<VideoForm> ReadVideo(const Instruction& instruction);

// Returns the name of an operand without its sign and selector.
std::string_view VideoRegister(const Operand& operand);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_ANALYSIS_VIDEO_H_

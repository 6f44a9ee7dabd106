// SPDX-License-Identifier: Apache-2.0
// Small matrices whose elements every type can represent, and their representation in each type.

#ifndef GPUSHARED_TESTS_EXECUTOR_MATRIX_REFERENCE_H_
#define GPUSHARED_TESTS_EXECUTOR_MATRIX_REFERENCE_H_

#include <string>

#include "tests/executor/op_harness.h"

namespace gpushared::testing {

inline std::string Names(const char* prefix, u32 count) {
  std::string text = "{";
  for (u32 i = 0; i < count; ++i) {
    text += (i == 0 ? "" : ", ") + std::string(prefix) + std::to_string(i);
  }
  return text + "}";
}

// Returns a small number that every type represents exactly; f32 represents sums of such numbers
// exactly.
inline int ValueAt(u32 row, u32 column, u32 seed) {
  return static_cast<int>((row * 7 + column * 13 + seed * 5) % 11) - 5;
}

// Returns the bits of a small whole number in a type.
inline Word Encoded(const std::string& type, int value) {
  if (type == "f64") return ToWord(static_cast<double>(value));
  if (type == "f32" || type == "tf32") return ToWord(static_cast<float>(value));
  if (type == "f16") return ToWord(static_cast<_Float16>(value));
  if (type == "bf16") return ToWord(static_cast<float>(value)) >> 16;
  return static_cast<Word>(static_cast<s64>(value)) & (type == "s32" ? 0xffffffff : 0xff);
}
inline double Decoded(const std::string& type, Word bits) {
  if (type == "f64") return FromWord<double>(bits);
  if (type == "f32") return static_cast<double>(FromWord<float>(bits));
  if (type == "f16") return static_cast<double>(FromWord<_Float16>(bits & 0xffff));
  return static_cast<double>(FromWord<s32>(bits));
}
inline u32 BitsIn(const std::string& type) {
  if (type == "f64") return 64;
  if (type == "s8" || type == "u8") return 8;
  return type == "f16" || type == "bf16" ? 16 : 32;
}

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_EXECUTOR_MATRIX_REFERENCE_H_

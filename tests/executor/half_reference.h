// SPDX-License-Identifier: Apache-2.0
// f16 and bf16 by definition: sign, exponent and fraction as numbers, rounding by comparison with
// the two neighbours. Slow, but independent of the compiler's half types.

#ifndef GPUSHARED_TESTS_EXECUTOR_HALF_REFERENCE_H_
#define GPUSHARED_TESTS_EXECUTOR_HALF_REFERENCE_H_

#include <cmath>
#include <cstdint>
#include <string>

namespace gpushared::testing {

struct HalfType {
  std::string name;
  int fraction_bits;
  int exponent_bits;

  int Bias() const { return (1 << (exponent_bits - 1)) - 1; }
  std::uint16_t Infinity() const {
    return static_cast<std::uint16_t>(((1 << exponent_bits) - 1) << fraction_bits);
  }

  long double ToReal(std::uint16_t bits) const {
    const int exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1);
    const int fraction = bits & ((1 << fraction_bits) - 1);
    const long double sign = (bits & 0x8000) != 0 ? -1.0L : 1.0L;
    if (exponent == (1 << exponent_bits) - 1) {
      return fraction != 0 ? std::nanl("") : sign * HUGE_VALL;
    }
    const int scale = (exponent == 0 ? 1 : exponent) - Bias() - fraction_bits;
    const int whole = exponent == 0 ? fraction : fraction + (1 << fraction_bits);
    return sign * std::ldexp(static_cast<long double>(whole), scale);
  }

  // Replaces a subnormal by a zero of the same sign.
  std::uint16_t Flush(std::uint16_t bits) const {
    return (bits & Infinity()) == 0 ? bits & 0x8000 : bits;
  }

  enum class Rounding { kNearest, kZero, kDown, kUp };

  std::uint16_t FromReal(long double value, Rounding rounding = Rounding::kNearest) const {
    if (std::isnan(value)) return 0x7fff;
    const bool negative = std::signbit(value);
    const long double magnitude = std::abs(value);
    const std::uint16_t sign = negative ? 0x8000 : 0;
    if (std::isinf(magnitude)) return sign | Infinity();
    // Finds the largest half that does not exceed the magnitude. Halves have the same order as
    // their bits.
    std::uint16_t low = 0, high = Infinity();
    while (high - low > 1) {
      const auto middle = static_cast<std::uint16_t>((low + high) / 2);
      (ToReal(middle) <= magnitude ? low : high) = middle;
    }
    if (ToReal(low) == magnitude) return sign | low;
    // For rounding, the next power of two follows the largest finite value.
    const long double above = high == Infinity() ? std::ldexp(1.0L, Bias() + 1) : ToReal(high);
    bool up = false;
    switch (rounding) {
      case Rounding::kNearest: {
        const long double middle = (ToReal(low) + above) / 2;
        up = magnitude > middle || (magnitude == middle && (low & 1) != 0);
        break;
      }
      case Rounding::kZero:
        break;
      case Rounding::kDown:
        up = negative;
        break;
      case Rounding::kUp:
        up = !negative;
        break;
    }
    return sign | (up ? high : low);
  }
};

// .sat clamps to [0, 1], and NaN to 0.
inline long double Clamp(long double value) { return value > 0 ? (value < 1 ? value : 1) : 0; }

inline const HalfType kHalfTypes[] = {{"f16", 10, 5}, {"bf16", 7, 8}};

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_EXECUTOR_HALF_REFERENCE_H_

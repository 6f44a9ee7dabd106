// SPDX-License-Identifier: Apache-2.0
// Checks one instruction form against a scalar reference. A generated kernel runs the form on many
// operand tuples, one per thread, in five ways: on all lanes, guarded, guarded by the negation, in
// a divergent branch, and with the result in the register of the first operand.

#ifndef GPUSHARED_TESTS_EXECUTOR_OP_HARNESS_H_
#define GPUSHARED_TESTS_EXECUTOR_OP_HARNESS_H_

#include <array>
#include <concepts>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "server/device/cpu/executor/program.h"

namespace gpushared::testing {

using executor_flavour = device::executor::Flavour;

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using s8 = std::int8_t;
using s16 = std::int16_t;
using s32 = std::int32_t;
using s64 = std::int64_t;

// Contents of a register, in the lowest bits; a predicate is 0 or 1.
using Word = std::uint64_t;
using Inputs = std::array<Word, 4>;
using Outputs = std::array<Word, 2>;
using Reference = std::function<Outputs(const Inputs&)>;

// One form. The default of `code` is "$g <spelling> $d, $a, $b...;". In `code`, $g is replaced by
// the guard, $d and $e by the results, $a $b $c $f by the sources.
struct Form {
  std::string spelling;
  std::string result;                // Type of $d: "s32", "pred", ...
  std::vector<std::string> sources;  // Types of $a, $b, ...; may contain "pred".
  Reference reference;
  std::string tail = {};  // Text after the last source, such as ", 0x3c".
  std::string code = {};
  std::string second_result = {};  // Type of $e.
  // Tolerance of floating-point results in units in the last place. NaN equals any NaN, because PTX
  // leaves payloads open (PTX ISA, Floating Point Instructions).
  double ulps = 0;
  u32 register_bits = 0;  // Width of $d; if 0, that of its type.
  // Declarations for `code`, outside and inside the kernel.
  std::string module_variables = {};
  std::string kernel_variables = {};
};

template <typename T>
T FromWord(Word word) {
  using Unsigned = std::conditional_t<
      sizeof(T) == 8, u64,
      std::conditional_t<sizeof(T) == 4, u32, std::conditional_t<sizeof(T) == 2, u16, u8>>>;
  return __builtin_bit_cast(T, static_cast<Unsigned>(word));
}
template <typename T>
Word ToWord(T value) {
  using Unsigned = std::conditional_t<
      sizeof(T) == 8, u64,
      std::conditional_t<sizeof(T) == 4, u32, std::conditional_t<sizeof(T) == 2, u16, u8>>>;
  return __builtin_bit_cast(Unsigned, value);
}

// Turns a function of typed values into a Reference: Scalar<u32, s32>(f) calls f with
// the first two sources.
template <typename... Sources, typename F>
Reference Scalar(F f) {
  return [f](const Inputs& in) -> Outputs {
    return [&]<std::size_t... I>(std::index_sequence<I...>)->Outputs {
      return {ToWord(f(FromWord<Sources>(in[I])...)), 0};
    }
    (std::index_sequence_for<Sources...>{});
  };
}

// Returns values of a PTX type on which implementations tend to fail.
std::vector<Word> EdgeValues(const std::string& type);

// Returns every combination of the types' edge values, followed by some pseudo-random tuples of
// edge values and other values. If there are more than kTuplesMax combinations, returns kTuplesMax
// pseudo-random tuples instead. The result is the same in every run.
std::vector<Inputs> EdgeTuples(const std::vector<std::string>& types);
inline constexpr std::size_t kTuplesMax = 1500;

u32 GetBits(const std::string& type);

// Runs the form on the tuples, of which there may be at most 9,000; the default is EdgeTuples of
// its sources. Reports the first difference as a test failure.
void CheckForm(executor_flavour flavour, const Form& form);
void CheckForm(executor_flavour flavour, const Form& form, const std::vector<Inputs>& tuples);

// Returns the results on all lanes, for checks that no reference can express; empty after a
// failure.
std::vector<Outputs> RunForm(executor_flavour flavour, const Form& form,
                             const std::vector<Inputs>& tuples);

// Returns how many of a sweep's random cases run: an eighth, or all of them if
// GPUSHARED_WHOLE_SWEEPS is set, as in the stage `long`.
u32 GetSweep(u32 cases);

// Tests that run once per compilation of the operations.
class PerFlavour : public ::testing::TestWithParam<executor_flavour> {
 protected:
  void SetUp() override;
};
std::string FlavourTestName(const ::testing::TestParamInfo<executor_flavour>& info);

#define GPUSHARED_INSTANTIATE_FLAVOURS(suite)                                                  \
  INSTANTIATE_TEST_SUITE_P(                                                                    \
      All, suite,                                                                              \
      ::testing::Values(device::executor::Flavour::kBaseline, device::executor::Flavour::kV3), \
      FlavourTestName)

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_EXECUTOR_OP_HARNESS_H_

// SPDX-License-Identifier: Apache-2.0
// Encoding of a video instruction in MicroOp::immediate. Every number is safe to execute, because a
// wrong one only affects the results of its client.

#ifndef GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_VIDEO_NUMBER_H_
#define GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_VIDEO_NUMBER_H_

#include <cstdint>

namespace gpushared::device::executor::video {

// Bit positions in the number. The following apply to all forms.
inline constexpr std::uint32_t kResultSigned = 0;
inline constexpr std::uint32_t kASigned = 1;
inline constexpr std::uint32_t kBSigned = 2;
inline constexpr std::uint32_t kSaturates = 3;
inline constexpr std::uint32_t kSecond = 4;    // Two bits that hold a ptx::VideoForm::Second.
inline constexpr std::uint32_t kRelation = 6;  // Three bits that hold a ptx::VideoForm::Relation.

// The following apply to forms on single values. A part is encoded in three bits: bytes as 0 to 3,
// halves as 4 and 5, and a whole register as kWhole.
inline constexpr std::uint32_t kWhole = 7;
inline constexpr std::uint32_t kResultPart = 9;
inline constexpr std::uint32_t kAPart = 12;
inline constexpr std::uint32_t kBPart = 15;
inline constexpr std::uint32_t kWraps = 18;
inline constexpr std::uint32_t kNegatesProduct = 19;
inline constexpr std::uint32_t kNegatesC = 20;
inline constexpr std::uint32_t kAddsOne = 21;
inline constexpr std::uint32_t kScale = 22;  // Four bits.

// The following apply to forms on several values at once: three bits for each element of {a, b},
// lowest first, and one bit for each result that is kept.
inline constexpr std::uint32_t kAElements = 9;
inline constexpr std::uint32_t kBElements = 21;
inline constexpr std::uint32_t kKept = 33;

}  // namespace gpushared::device::executor::video

#endif  // GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_VIDEO_NUMBER_H_

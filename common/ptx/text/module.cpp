// SPDX-License-Identifier: Apache-2.0
#include "common/ptx/text/module.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

namespace gpushared::ptx {
namespace {

// Types whose names do not end with their number of bits.
constexpr std::array<std::pair<std::string_view, std::uint32_t>, 17> kIrregularTypes = {{
    {"pred", 0},
    {"f16x2", 4},
    {"bf16x2", 4},
    {"s16x2", 4},
    {"u16x2", 4},
    {"s8x4", 4},
    {"u8x4", 4},
    {"tf32", 4},
    {"e4m3", 1},
    {"e5m2", 1},
    {"e4m3x2", 2},
    {"e5m2x2", 2},
    {"e4m3x4", 4},
    {"e5m2x4", 4},
    {"e2m1x2", 1},
    {"ue8m0x2", 2},
    {"f32x2", 8},
}};

constexpr std::size_t kIrregularBytesMin = 4;
static_assert(std::ranges::all_of(kIrregularTypes, [](const auto& type) {
  return type.first.size() >= kIrregularBytesMin;
}));

// For "b8", "f32", "bf16": one or two letters and the number of bits.
std::uint32_t RegularBytes(std::string_view type) {
  if (type.empty()) return 0;
  const bool is_letter = type[0] == 'b' || type[0] == 'u' || type[0] == 'f' || type[0] == 's';
  const std::size_t letters = type.starts_with("bf") ? 2 : 1;
  if (!is_letter || type.size() == letters || type.size() > letters + 3) return 0;
  std::uint32_t bits = 0;
  for (const char c : type.substr(letters)) {
    if (c < '0' || c > '9' || (c == '0' && bits == 0)) return 0;
    bits = 10 * bits + static_cast<std::uint32_t>(c - '0');
  }
  const bool is_size = bits == 8 || bits == 16 || bits == 32 || bits == 64 || bits == 128;
  return is_size ? bits / 8 : 0;
}

// Limit, without the ellipsis, for the reason reported for one kernel.
constexpr std::size_t kOneReasonBytesMax = 8 * 1024 - 3;

}  // namespace

std::string KeptReason(std::string reason, std::size_t& bytes_left) {
  if (reason.size() > kOneReasonBytesMax) {
    std::size_t bytes = kOneReasonBytesMax;
    while (bytes > 0 && (static_cast<unsigned char>(reason[bytes]) & 0xc0) == 0x80) --bytes;
    reason.resize(bytes);
    reason += "...";
  }
  if (reason.size() > bytes_left)
    return "the reason was dropped, because the reasons of all kernels of this module are too long";
  bytes_left -= reason.size();
  return reason;
}

std::string GetLine(const SourcePosition& position) {
  return "line " + std::to_string(position.line) + ": ";
}

std::uint32_t TypeBytes(std::string_view type) {
  // Called for every modifier, so most results are computed without searching the list.
  if (const std::uint32_t bytes = RegularBytes(type); bytes != 0) return bytes;
  if (type.size() < kIrregularBytesMin) return 0;
  for (const auto& [name, bytes] : kIrregularTypes) {
    if (type == name) return bytes;
  }
  return 0;
}

bool Instruction::Has(std::string_view modifier) const {
  return std::find(modifiers.begin(), modifiers.end(), modifier) != modifiers.end();
}

std::string Instruction::Spelling() const {
  std::string spelling = opcode;
  for (const std::string& modifier : modifiers) {
    spelling += '.';
    spelling += modifier;
  }
  return spelling;
}

std::uint32_t Variable::ElementBytes() const { return TypeBytes(type) * vector_size; }

std::uint64_t Variable::Bytes() const {
  std::uint64_t bytes = ElementBytes();
  for (const std::uint64_t extent : extents) {
    // The parser rejects such sizes; for modules created by hand the result saturates.
    if (__builtin_mul_overflow(bytes, extent, &bytes)) {
      return std::numeric_limits<std::uint64_t>::max();
    }
  }
  return bytes;
}

std::uint32_t Variable::NaturalAlignment() const {
  return alignment != 0 ? alignment : std::max(ElementBytes(), 1u);
}

bool Variable::IsElsewhere() const {
  return linkage == ".extern" && (space != StateSpace::kShared || Bytes() == 0);
}

const Function* Module::FindFunction(std::string_view name) const {
  for (const Item& item : items) {
    const auto* function = std::get_if<Function>(&item);
    if (function != nullptr && function->name == name && function->body) return function;
  }
  return nullptr;
}

}  // namespace gpushared::ptx

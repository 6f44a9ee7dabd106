// SPDX-License-Identifier: Apache-2.0
// Warpgroup matrix products: wgmma, and the waits for it, which are no-ops because products
// complete at once.
#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/device/cpu/executor/decoder.h"
#include "server/device/cpu/executor/warpgroup.h"

namespace gpushared::device::executor {
namespace {

constexpr std::uint32_t kRowsOfWarpgroup = 64;
constexpr std::uint32_t kDepthBytes = 32;  // Bytes along K, the same for every type.

// Types of a sum and its factors, in the order of the spelling.
constexpr std::array<std::array<std::string_view, 3>, 8> kTypes = {{
    {"f16", "f16", "f16"},
    {"f32", "f16", "f16"},
    {"f32", "bf16", "bf16"},
    {"f32", "tf32", "tf32"},
    {"s32", "s8", "s8"},
    {"s32", "s8", "u8"},
    {"s32", "u8", "s8"},
    {"s32", "u8", "u8"},
}};

struct WgmmaForm {
  MatrixCall shape;
  std::string d, a, b;
  bool saturates = false;
  bool is_integer() const { return d == "s32"; }
  bool has_halves() const { return a == "f16" || a == "bf16"; }
};

// "m64n<N>k<K>"
bool ReadWgmmaShape(const std::string& text, MatrixCall* shape) {
  unsigned m = 0, n = 0, k = 0;
  int read = 0;
  if (std::sscanf(text.c_str(), "m%3un%3uk%3u%n", &m, &n, &k, &read) != 3) return false;
  shape->m = m, shape->n = n, shape->k = k;
  return static_cast<std::size_t>(read) == text.size();
}

// wgmma.mma_async.sync.aligned.m64n<N>k<K>[.satfinite].<d>.<a>.<b>
std::optional<WgmmaForm> ReadWgmmaForm(const std::vector<std::string>& words) {
  WgmmaForm form;
  const bool saturates = words.size() == 8;
  if (words.size() != 7 && !saturates) return std::nullopt;
  if (words[0] != "mma_async" || words[1] != "sync" || words[2] != "aligned") return std::nullopt;
  if (!ReadWgmmaShape(words[3], &form.shape) || (saturates && words[4] != "satfinite")) {
    return std::nullopt;
  }
  form.saturates = saturates;
  form.b = words.back();
  form.a = words[words.size() - 2];
  form.d = words[words.size() - 3];
  const std::array<std::string_view, 3> types = {form.d, form.a, form.b};
  if (std::ranges::find(kTypes, types) == kTypes.end()) return std::nullopt;
  const std::uint32_t n = form.shape.n, bytes = ptx::TypeBytes(form.a == "tf32" ? "b32" : form.a);
  const bool wide_steps = form.is_integer() && n != 8 && n != 24;
  const bool has_width = n >= 8 && n <= kWarpgroupColumnsMax && n % (wide_steps ? 16 : 8) == 0;
  const bool fits = form.shape.m == kRowsOfWarpgroup && form.shape.k == kDepthBytes / bytes;
  if (!has_width || !fits || (saturates && !form.is_integer())) return std::nullopt;
  return form;
}

}  // namespace

// Reads the rows of D, which the operation both reads and writes. Therefore the operands must be
// registers with narrow rows, which are used directly.
bool FunctionDecoder::AccumulatorRows(const Operand& operand, std::size_t count,
                                      std::vector<std::uint32_t>* rows) {
  if (operand.kind != Operand::Kind::kVector) return false;
  for (const Operand& element : operand.elements) {
    const std::uint32_t reg = flow_.FindRegister(element.text);
    if (reg == ptx::kNoRegister || frame_.RegisterWidth(reg) != 4) return false;
  }
  return FragmentRows(operand, "b32", false, count, rows);
}

// The operands are d, a, b, scale-d and, except for integers, 1 or -1 for each factor. For 16-bit
// elements, further operands specify whether a (unless a is in registers) and b are transposed.
bool FunctionDecoder::DecodeWarpgroupProduct() {
  std::optional<WgmmaForm> form = ReadWgmmaForm(instruction_->modifiers);
  const auto& operands = instruction_->operands;
  if (!form || operands.size() < 4) return false;
  const bool a_in_registers = operands[1].kind == Operand::Kind::kVector;
  const std::size_t signs = form->is_integer() ? 0 : 2;
  const std::size_t transpositions = !form->has_halves() ? 0 : a_in_registers ? 1 : 2;
  if (operands.size() != 4 + signs + transpositions) return false;
  std::uint32_t flags = 0;
  for (std::size_t i = 4; i < operands.size(); ++i) {
    const std::int64_t value = operands[i].integer;
    const bool is_sign = i < 4 + signs;
    if (operands[i].kind != Operand::Kind::kInteger) return false;
    if (is_sign ? value != 1 && value != -1 : value != 0 && value != 1) return false;
    if (is_sign && value == -1) flags ^= kNegates;
    const bool of_a = i == 4 + signs && !a_in_registers;
    if (!is_sign && value == 1) flags |= of_a ? kTransposesA : kTransposesB;
  }
  MatrixCall call = form->shape;
  const std::size_t sums = call.n / (form->d == "f16" ? 4 : 2);
  if (!AccumulatorRows(operands[0], sums, &call.d)) return false;
  if (a_in_registers && !FragmentRows(operands[1], form->a, false, 4, &call.a)) return false;
  const OperandType wide = GetType("u64");
  const std::uint32_t a = a_in_registers ? 0 : Source(operands[1], wide);
  const std::uint32_t b = Source(operands[2], wide);
  const std::uint32_t adds = PredicateSource(operands[3]);
  MicroOp& op = EmitMatrix(
      "wgmma." + form->d + "." + form->a + "." + form->b + (form->saturates ? ".satfinite" : ""),
      std::move(call));
  op.a = a, op.b = b, op.c = adds;
  op.extra = flags;
  return true;
}

bool FunctionDecoder::DecodeWarpgroup() {
  if (instruction_->opcode != "wgmma") return false;
  const std::string spelling = instruction_->Spelling();
  if (spelling == "wgmma.fence.sync.aligned" || spelling == "wgmma.commit_group.sync.aligned" ||
      spelling == "wgmma.wait_group.sync.aligned") {
    Emit("nothing", false);
    return true;
  }
  return DecodeWarpgroupProduct();
}

}  // namespace gpushared::device::executor

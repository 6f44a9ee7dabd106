// SPDX-License-Identifier: Apache-2.0
#include "server/device/cpu/executor/matrix_shapes.h"

namespace gpushared::device::executor {
namespace {

bool IsShape(const MatrixCall& call, std::uint32_t m, std::uint32_t n, std::uint32_t k) {
  return call.m == m && call.n == n && call.k == k;
}

}  // namespace

std::uint32_t PackedIn(const std::string& type) {
  if (type == "f16" || type == "bf16") return 2;
  return type == "s8" || type == "u8" ? 4 : 1;
}

bool IsByte(const std::string& type) { return type == "s8" || type == "u8"; }

// Supports the shapes of mma.sync that have the usual fragment layout (ops/matrix_ops.cpp). m8n8k4
// for f16 has a different one and is not supported.
bool HasMma(const MatrixCall& call, const std::string& type) {
  if (type == "f16") return IsShape(call, 16, 8, 8) || IsShape(call, 16, 8, 16);
  if (type == "bf16") return IsShape(call, 16, 8, 8) || IsShape(call, 16, 8, 16);
  if (type == "tf32") return IsShape(call, 16, 8, 4) || IsShape(call, 16, 8, 8);
  if (type == "f64") {
    return IsShape(call, 8, 8, 4) || IsShape(call, 16, 8, 4) || IsShape(call, 16, 8, 8) ||
           IsShape(call, 16, 8, 16);
  }
  return IsByte(type) &&
         (IsShape(call, 8, 8, 16) || IsShape(call, 16, 8, 16) || IsShape(call, 16, 8, 32));
}

bool HasWmma(const MatrixCall& call, const std::string& type) {
  if (type == "tf32") return IsShape(call, 16, 16, 8);
  if (type == "f64") return IsShape(call, 8, 8, 4);
  return (type == "f16" || type == "bf16" || IsByte(type)) &&
         (IsShape(call, 16, 16, 16) || IsShape(call, 32, 8, 16) || IsShape(call, 8, 32, 16));
}

bool IsAccumulator(const std::string& product, const std::string& type) {
  if (product == "f16") return type == "f16" || type == "f32";
  if (product == "f64") return type == "f64";
  return type == (IsByte(product) ? "s32" : "f32");
}

FragmentCounts MmaRegisters(const MatrixCall& call, const std::string& product,
                            const std::string& accumulator) {
  const std::size_t products = call.k / 4 / PackedIn(product), halves = call.m / 8;
  const std::size_t results = halves * (accumulator == "f16" ? 1 : 2);
  return {.a = products * halves, .b = products, .c = results, .d = results};
}

std::size_t WmmaRegisters(const MatrixCall& call, char which, const std::string& type) {
  if (which != 'a' && which != 'b') return type == "f64" ? 2 : type == "f16" ? 4 : 8;
  if (type == "f16") return 8;
  const std::uint32_t elements = (which == 'a' ? call.m : call.n) * call.k;
  return elements / kLanes / PackedIn(type);
}

}  // namespace gpushared::device::executor

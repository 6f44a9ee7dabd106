// SPDX-License-Identifier: Apache-2.0
#include "server/ptx/analysis/launch_bounds.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>

#include "common/ptx/text/lexer.h"
#include "common/ptx/text/literal.h"

namespace gpushared::ptx {
namespace {

constexpr std::uint64_t kMost = std::numeric_limits<std::uint32_t>::max();

struct WrittenExtents {
  std::string name;  // ".maxntid"
  std::array<std::uint32_t, 3> extents = {1, 1, 1};
};

WrittenExtents ReadExtents(const Directive& directive) {
  Lexer lexer(directive.text);
  WrittenExtents read;
  read.name = lexer.Next().text;
  std::size_t axis = 0;
  for (Token token = lexer.Next(); axis < 3; token = lexer.Next()) {
    if (token.kind == Token::Kind::kEnd || token.kind == Token::Kind::kBroken) break;
    if (token.kind != Token::Kind::kNumber) continue;
    const auto literal = ParseLiteral(token.text);
    if (!literal || literal->is_float) break;
    read.extents[axis++] = static_cast<std::uint32_t>(std::min(literal->bits, kMost));
  }
  return read;
}

std::uint32_t ExtentProduct(const std::array<std::uint32_t, 3>& extents) {
  std::uint64_t product = 1;
  for (const std::uint32_t extent : extents) product = std::min(product * extent, kMost);
  return static_cast<std::uint32_t>(product);
}

}  // namespace

LaunchBounds GetLaunchBounds(const Function& kernel) {
  LaunchBounds bounds;
  for (const Directive& directive : kernel.performance) {
    const auto [name, extents] = ReadExtents(directive);
    if (name == ".maxntid" || name == ".reqntid")
      bounds.threads_per_block_max = ExtentProduct(extents);
    if (name == ".reqntid" && ExtentProduct(extents) != 0) bounds.block = extents;
    // ptxas accepts zeros here, which have no effect.
    if (name == ".reqnctapercluster" && ExtentProduct(extents) != 0) bounds.cluster = extents;
  }
  return bounds;
}

}  // namespace gpushared::ptx

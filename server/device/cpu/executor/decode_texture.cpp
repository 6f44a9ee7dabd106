// SPDX-License-Identifier: Apache-2.0
// Textures and surfaces by handle: tex, suld.b and sust.b in one to three dimensions, tld4 in two.
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/device/cpu/executor/decoder.h"
#include "server/device/cpu/executor/surface_access.h"

namespace gpushared::device::executor {
namespace {

// Returns the number of dimensions, such as 2 for "2d"; 0 for cubes, layers and multisampling.
std::size_t GetDimensions(std::string_view geometry) {
  if (geometry == "1d") return 1;
  if (geometry == "2d") return 2;
  return geometry == "3d" ? 3 : 0;
}

// Parses .trap and the like at the end of a surface instruction.
std::optional<SurfaceBounds> GetBounds(std::string_view word) {
  if (word == "trap") return SurfaceBounds::kTrap;
  if (word == "clamp") return SurfaceBounds::kClamp;
  if (word == "zero") return SurfaceBounds::kZero;
  return std::nullopt;
}

bool IsCacheHint(std::string_view word) {
  constexpr std::array<std::string_view, 6> kHints = {"ca", "cg", "cs", "cv", "wb", "wt"};
  return std::ranges::find(kHints, word) != kHints.end();
}

}  // namespace

// Reads the rows of the handle and of the coordinates in [handle, {x, y, z}]. Returns false for
// unsupported operands: texture names, separate samplers, offsets.
bool FunctionDecoder::TextureRows(const Operand& address, std::size_t dimensions,
                                  const OperandType& type, TexturePlace* place) {
  if (address.kind != Operand::Kind::kAddress || address.elements.size() != 1) return false;
  if (flow_.FindRegister(address.text) == ptx::kNoRegister || address.offset != 0) return false;
  const Operand& coordinates = address.elements.front();
  const bool is_vector = coordinates.kind == Operand::Kind::kVector;
  // Three coordinates are passed as four, the last of which is ignored.
  const std::size_t wanted = dimensions == 3 ? 4 : dimensions;
  if ((is_vector ? coordinates.elements.size() : 1) != wanted) return false;
  Operand handle;
  handle.text = address.text;
  place->handle = Source(handle, GetType("u64"));
  for (std::size_t i = 0; i < dimensions; ++i) {
    place->coordinates[i] = Source(is_vector ? coordinates.elements[i] : coordinates, type);
  }
  return true;
}

// tex[.level].geom.v4.dtype.ctype d, [a, c][, lod]. Textures have a single level, so lod is
// ignored.
bool FunctionDecoder::DecodeSample() {
  std::vector<std::string> words = instruction_->modifiers;
  const bool has_level = !words.empty() && words.front() == "level";
  if (has_level) words.erase(words.begin());
  if (words.size() != 4 || words[1] != "v4") return false;
  const std::size_t dimensions = GetDimensions(words[0]);
  const bool is_known = (words[2] == "f32" || words[2] == "s32" || words[2] == "u32") &&
                        (words[3] == "f32" || words[3] == "s32");
  const auto& operands = instruction_->operands;
  if (dimensions == 0 || !is_known || operands.size() != (has_level ? 3u : 2u)) return false;
  if (operands[0].kind != Operand::Kind::kVector || operands[0].elements.size() != 4) return false;
  TexturePlace place;
  if (!TextureRows(operands[1], dimensions, GetType(words[3]), &place)) return false;
  std::array<std::uint32_t, 4> rows = {};
  std::uint32_t count = 0;
  BindElements(operands[0], GetType("b32"), true, &rows, &count);
  EmitTexture("tex." + words[0] + "." + words[3], place).rows = rows;
  return true;
}

// tld4.component.2d.v4.dtype.f32 d, [a, c]
bool FunctionDecoder::DecodeGather() {
  const std::vector<std::string>& words = instruction_->modifiers;
  const auto& operands = instruction_->operands;
  if (words.size() != 5 || words[0].size() != 1 || words[1] != "2d" || words[2] != "v4") {
    return false;
  }
  const std::size_t component = std::string_view("rgba").find(words[0]);
  const bool is_known = (words[3] == "f32" || words[3] == "s32" || words[3] == "u32") &&
                        words[4] == "f32" && component != std::string_view::npos;
  if (!is_known || operands.size() != 2) return false;
  if (operands[0].kind != Operand::Kind::kVector || operands[0].elements.size() != 4) return false;
  TexturePlace place;
  if (!TextureRows(operands[1], 2, GetType("f32"), &place)) return false;
  std::array<std::uint32_t, 4> rows = {};
  std::uint32_t count = 0;
  BindElements(operands[0], GetType("b32"), true, &rows, &count);
  MicroOp& op = EmitTexture("tld4.2d", place);
  op.rows = rows;
  op.immediate = static_cast<std::int64_t>(component);
  return true;
}

// suld.b.geom[.cop][.vec].type.clamp d, [a, c]; sust.b with the operands exchanged.
bool FunctionDecoder::DecodeSurface(bool load) {
  std::vector<std::string> words = instruction_->modifiers;
  std::erase_if(words, IsCacheHint);
  if (words.size() < 4 || words.size() > 5 || words[0] != "b") return false;
  const std::size_t dimensions = GetDimensions(words[1]);
  const std::string& type = words[words.size() - 2];
  const bool is_vector = words.size() == 5;
  const auto bounds = GetBounds(words.back());
  const auto& operands = instruction_->operands;
  if (dimensions == 0 || !bounds || !type.starts_with('b') || operands.size() != 2) return false;
  if (is_vector && words[2] != "v2" && words[2] != "v4") return false;
  const Operand& value = operands[load ? 0 : 1];
  SurfaceAccess access = {.element_bytes = ptx::TypeBytes(type), .bounds = *bounds};
  access.elements = is_vector ? static_cast<std::uint32_t>(words[2][1] - '0') : 1;
  const bool is_list = value.kind == Operand::Kind::kVector;
  if (!access.IsPossible() || (is_list ? value.elements.size() : 1) != access.elements)
    return false;
  TexturePlace place;
  if (!TextureRows(operands[load ? 1 : 0], dimensions, GetType("s32"), &place)) return false;
  std::array<std::uint32_t, 4> rows = {};
  std::uint32_t count = 0;
  BindElements(value, GetType(type), load, &rows, &count);
  MicroOp& op = EmitTexture(instruction_->opcode + "." + words[1], place);
  op.rows = rows;
  op.immediate = access.Number();
  return true;
}

MicroOp& FunctionDecoder::EmitTexture(const std::string& key, const TexturePlace& place) {
  MicroOp& op = Emit(key, true);
  op.a = place.handle;
  op.b = place.coordinates[0], op.c = place.coordinates[1], op.extra = place.coordinates[2];
  return op;
}

bool FunctionDecoder::DecodeTexture() {
  const std::string_view opcode = instruction_->opcode;
  if (opcode == "tex") return DecodeSample();
  if (opcode == "tld4") return DecodeGather();
  return (opcode == "suld" || opcode == "sust") && DecodeSurface(opcode == "suld");
}

}  // namespace gpushared::device::executor

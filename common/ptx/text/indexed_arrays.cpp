// SPDX-License-Identifier: Apache-2.0
#include "common/ptx/text/indexed_arrays.h"

#include <utility>

namespace gpushared::ptx {
namespace {

constexpr const char* kNumberName = "%gpushared_number";
constexpr const char* kElementName = "%gpushared_element";

void RecordBytes(std::map<std::string, std::uint32_t>& all, const std::string& name,
                 std::uint32_t bytes) {
  const auto [known, is_new] = all.try_emplace(name, bytes);
  if (!is_new && known->second != bytes) known->second = 0;
}

std::optional<std::uint32_t> GetBytes(const std::map<std::string, std::uint32_t>& all,
                                      const std::string& name) {
  const auto found = all.find(name);
  if (found == all.end() || found->second == 0) return std::nullopt;
  return found->second;
}

Operand Named(std::string name) { return {.kind = Operand::Kind::kName, .text = std::move(name)}; }

Operand Number(std::int64_t value) {
  return {.kind = Operand::Kind::kInteger, .text = std::to_string(value), .integer = value};
}

}  // namespace

void IndexedArrays::Note(const Variable& variable) {
  if (variable.space == StateSpace::kRegister) {
    RecordBytes(register_bytes_, variable.name, TypeBytes(variable.type));
  } else if (!variable.extents.empty()) {
    RecordBytes(element_bytes_, variable.name, variable.ElementBytes());
  }
}

std::optional<std::uint32_t> IndexedArrays::ElementBytes(const std::string& array) const {
  return GetBytes(element_bytes_, array);
}

std::optional<std::string> IndexedArrays::Address(const IndexedElement& element,
                                                  SourcePosition position,
                                                  std::vector<Statement>& body) const {
  std::optional<std::uint32_t> index_bytes = GetBytes(register_bytes_, element.index);
  if (!index_bytes) {
    const std::string family =
        element.index.substr(0, element.index.find_last_not_of("0123456789") + 1);
    index_bytes = GetBytes(register_bytes_, family);
  }
  if (index_bytes != 4u && index_bytes != 8u) return std::nullopt;
  const std::int64_t bytes = *ElementBytes(element.array);
  const auto add = [&](const char* opcode, std::vector<std::string> modifiers,
                       std::vector<Operand> operands) {
    body.emplace_back(Instruction{.position = position,
                                  .guard = {},
                                  .opcode = opcode,
                                  .modifiers = std::move(modifiers),
                                  .operands = std::move(operands)});
  };
  const auto declare = [&](const char* type, const char* name) {
    body.emplace_back(Variable{.position = position, .type = type, .name = name});
  };
  body.emplace_back(ScopeBegin{position});
  declare("b32", kNumberName);
  declare("b64", kElementName);
  if (index_bytes == 8u) {
    add("cvt", {"u32", "u64"}, {Named(kNumberName), Named(element.index)});
  } else {
    add("mov", {"b32"}, {Named(kNumberName), Named(element.index)});
  }
  add("mad", {"lo", "u32"},
      {Named(kNumberName), Named(kNumberName), Number(bytes),
       Number(static_cast<std::uint32_t>(element.offset * bytes))});
  add("mov", {"u64"}, {Named(kElementName), Named(element.array)});
  add("mad", {"wide", "u32"},
      {Named(kElementName), Named(kNumberName), Number(1), Named(kElementName)});
  return kElementName;
}

}  // namespace gpushared::ptx

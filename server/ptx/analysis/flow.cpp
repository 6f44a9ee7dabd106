// SPDX-License-Identifier: Apache-2.0
#include "server/ptx/analysis/flow.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace gpushared::ptx {

bool SplitFamily(std::string_view name, std::string_view& prefix, std::uint64_t& number) {
  std::size_t digits = name.size();
  while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') --digits;
  if (digits == name.size() || name.size() - digits > 9) return false;
  // %r07 differs from %r7.
  if (name[digits] == '0' && name.size() - digits > 1) return false;
  number = 0;
  for (const char c : name.substr(digits))
    number = number * 10 + static_cast<std::uint64_t>(c - '0');
  prefix = name.substr(0, digits);
  return true;
}

std::uint32_t ControlFlow::FindRegister(std::string_view text) const {
  if (text.starts_with('-')) text.remove_prefix(1);
  auto found = register_index.find(std::string(text));
  if (found == register_index.end())
    found = register_index.find(std::string(text.substr(0, text.rfind('.'))));
  return found == register_index.end() ? kNoRegister : found->second;
}

bool WritesFirstOperand(const Instruction& instruction) {
  static constexpr std::array<std::string_view, 23> kWriteNothing = {
      "st",         "red",      "bra",      "brx",           "ret",         "exit",
      "membar",     "fence",    "prefetch", "prefetchu",     "trap",        "brkpt",
      "nanosleep",  "pmevent",  "discard",  "applypriority", "cp",          "griddepcontrol",
      "setmaxnreg", "stmatrix", "sust",     "wgmma",         "stackrestore"};
  if (instruction.operands.empty() || instruction.operands[0].kind == Operand::Kind::kAddress)
    return false;
  const std::string_view opcode = instruction.opcode;
  if (opcode == "call") return instruction.operands[0].kind == Operand::Kind::kList;
  if (opcode == "bar" || opcode == "barrier") return instruction.Has("red");
  return std::find(kWriteNothing.begin(), kWriteNothing.end(), opcode) == kWriteNothing.end();
}

std::vector<std::string> DirectiveTargets(std::string_view text) {
  std::vector<std::string> targets;
  std::string name;
  bool in_directive_name = true;
  for (const char c : text) {
    const bool separates = c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == ',' || c == ';';
    if (!separates) {
      name += c;
    } else if (!name.empty()) {
      if (!in_directive_name) targets.push_back(name);
      in_directive_name = false;
      name.clear();
    }
  }
  if (!name.empty() && !in_directive_name) targets.push_back(name);
  return targets;
}

}  // namespace gpushared::ptx

// SPDX-License-Identifier: Apache-2.0
#include "server/ptx/analysis/wait_description.h"

#include <algorithm>
#include <deque>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "common/ptx/text/quoted_name.h"
#include "server/ptx/analysis/call_graph.h"

namespace gpushared::ptx {
namespace {

// Returns the lines of the blocks on a shortest cycle through `block`; "" if there is none.
std::string LoopLines(const ControlFlow& flow, std::uint32_t block) {
  std::vector<std::uint32_t> from(flow.blocks.size(), kNoBlock);
  std::deque<std::uint32_t> open = {block};
  while (!open.empty() && from[block] == kNoBlock) {
    const std::uint32_t next = open.front();
    open.pop_front();
    for (const std::uint32_t to : flow.blocks[next].successors) {
      if (to == kNoBlock || from[to] != kNoBlock) continue;
      from[to] = next;
      open.push_back(to);
    }
  }
  if (from[block] == kNoBlock) return "";
  std::uint32_t first = UINT32_MAX, last = 0;
  std::uint32_t at = block;
  do {
    const BasicBlock& b = flow.blocks[at];
    for (std::uint32_t i = b.first; i < b.first + b.count; ++i) {
      const std::uint32_t line = flow.instructions[i].position.line;
      if (line == 0) continue;  // Created by a pass.
      first = std::min(first, line);
      last = std::max(last, line);
    }
    at = from[at];
  } while (at != block);
  return first == last ? "line " + std::to_string(first)
                       : "lines " + std::to_string(first) + " to " + std::to_string(last);
}

// Follows a register back to the name from which its value is computed.
class AddressOrigin {
 public:
  explicit AddressOrigin(const ControlFlow& flow) : flow_(flow) {
    for (const Instruction& instruction : flow.instructions) {
      if (!WritesFirstOperand(instruction)) continue;
      ForEachName(instruction.operands.front(), [&](const std::string& name) {
        if (flow_.FindRegister(name) != kNoRegister) writers_[name].push_back(&instruction);
      });
    }
  }

  // Returns "variable 'x'", "what parameter 'p' points to", or "" if neither is found.
  std::string Find(const std::string& base) {
    if (flow_.FindRegister(base) == kNoRegister) return "variable " + QuotedName(base);
    std::deque<std::string> open = {base};
    std::unordered_set<std::string> seen = {base};
    std::string parameter, variable;
    for (std::size_t steps = 0; !open.empty() && steps < kAddressStepsMax && variable.empty();) {
      const auto written = writers_.find(open.front());
      open.pop_front();
      if (written == writers_.end()) continue;
      for (const Instruction* writer : written->second) {
        if (++steps > kAddressStepsMax) break;
        if (writer->opcode == "ld" && writer->operands.size() == 2) {
          const bool is_wide =
              TypeBytes(writer->modifiers.empty() ? "" : writer->modifiers.back()) == 8;
          const bool is_parameter = writer->Has("param") || writer->Has("param::entry");
          if (is_parameter && is_wide && parameter.empty()) parameter = writer->operands[1].text;
          continue;  // The address was loaded; the names that locate it in memory do not matter.
        }
        for (std::size_t o = 1; o < writer->operands.size(); ++o) {
          const Operand& operand = writer->operands[o];
          if (operand.kind != Operand::Kind::kName) continue;
          if (flow_.FindRegister(operand.text) != kNoRegister) {
            if (seen.insert(operand.text).second) open.push_back(operand.text);
          } else if (!operand.text.starts_with('%') && variable.empty()) {
            variable = operand.text;
          }
        }
      }
    }
    if (!variable.empty()) return "variable " + QuotedName(variable);
    return parameter.empty() ? "" : "what parameter " + QuotedName(parameter) + " points to";
  }

 private:
  template <typename Visit>
  static void ForEachName(const Operand& operand, Visit visit) {
    if (operand.kind == Operand::Kind::kName) visit(operand.text);
    for (const Operand& element : operand.elements) visit(element.text);
  }

  const ControlFlow& flow_;
  std::unordered_map<std::string, std::vector<const Instruction*>> writers_;
};

std::string WhatIsRead(const ControlFlow& flow, const Instruction& access) {
  if (access.opcode == "call") return "what " + QuotedName(CalleeName(access)) + " returns";
  const auto address = std::ranges::find(access.operands, Operand::Kind::kAddress, &Operand::kind);
  if (address == access.operands.end()) return "memory";
  const std::string origin = AddressOrigin(flow).Find(address->text);
  return origin.empty() ? "memory at " + QuotedName(address->text) : origin;
}

}  // namespace

std::string DescribeWait(const ControlFlow& flow, std::uint32_t instruction) {
  const std::string lines = LoopLines(flow, flow.block_of[instruction]);
  return "the loop of " + lines + " waits for " + WhatIsRead(flow, flow.instructions[instruction]);
}

}  // namespace gpushared::ptx

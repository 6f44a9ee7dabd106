// SPDX-License-Identifier: Apache-2.0
#include "server/ptx/analysis/value_flow.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "server/ptx/analysis/dominators.h"

namespace gpushared::ptx {
namespace {

void Collect(const ControlFlow& flow, const Operand& operand, std::vector<std::uint32_t>* found) {
  for (const Operand& element : operand.elements) Collect(flow, element, found);
  const std::uint32_t r = flow.FindRegister(operand.text);
  if (r != kNoRegister) found->push_back(r);
}

// A client's instruction may have millions of operands, some of them duplicates.
void SortOnce(std::vector<std::uint32_t>* registers) {
  std::ranges::sort(*registers);
  registers->erase(std::unique(registers->begin(), registers->end()), registers->end());
}

}  // namespace

ValueFlow::ValueFlow(ControlFlow analysed)
    : flow(std::move(analysed)),
      dominators(FindDominators(flow.blocks)),
      written(flow.instructions.size()),
      writes(flow.registers.size()),
      written_at(flow.registers.size()) {
  for (std::uint32_t k = 0; k < flow.instructions.size(); ++k) {
    const Instruction& instruction = flow.instructions[k];
    if (!WritesFirstOperand(instruction)) continue;
    Collect(flow, instruction.operands[0], &written[k]);
    SortOnce(&written[k]);
    for (const std::uint32_t r : written[k]) {
      ++writes[r];
      written_at[r] = k;
    }
  }
  if (!dominators.empty()) FindSpans();
}

void ValueFlow::FindSpans() {
  children_.resize(dominators.size());
  spans_.resize(dominators.size());
  for (std::uint32_t b = 0; b < dominators.size(); ++b) {
    if (dominators[b] == kNoBlock) {
      roots_.push_back(b);
    } else {
      children_[dominators[b]].push_back(b);
    }
  }
  std::uint32_t time = 0;
  VisitBlocks([&](std::uint32_t b) { spans_[b].begin = time++; },
              [&](std::uint32_t b) { spans_[b].end = time++; });
}

bool ValueFlow::IsStable(std::uint32_t r, std::uint32_t k) const {
  if (writes[r] != 1) return false;
  const std::uint32_t from = flow.block_of[written_at[r]], to = flow.block_of[k];
  if (from == to) return written_at[r] < k;
  return spans_[from].begin < spans_[to].begin && spans_[to].end < spans_[from].end;
}

void ValueFlow::VisitBlocks(const std::function<void(std::uint32_t)>& enter,
                            const std::function<void(std::uint32_t)>& leave) const {
  for (const std::uint32_t root : roots_) {
    std::vector<std::pair<std::uint32_t, std::size_t>> stack = {{root, 0}};
    enter(root);
    while (!stack.empty()) {
      auto& [b, next] = stack.back();
      if (next == children_[b].size()) {
        leave(b);
        stack.pop_back();
        continue;
      }
      const std::uint32_t child = children_[b][next++];
      enter(child);
      stack.emplace_back(child, 0);
    }
  }
}

}  // namespace gpushared::ptx

// SPDX-License-Identifier: Apache-2.0
#include "server/ptx/analysis/live_ranges.h"

#include <algorithm>
#include <cstddef>
#include <string>

namespace gpushared::ptx {
namespace {

// A register in a block.
struct Occurrence {
  std::uint32_t block = 0;
  bool is_exposed = false;  // Whether the block reads it before writing it.
  // Whether all threads of the block write it, so that the earlier value is lost.
  bool kills = false;
};

class LiveRanges {
 public:
  explicit LiveRanges(ControlFlow& flow)
      : flow_(flow), predecessors_(flow.blocks.size()), occurrences_(flow.registers.size()) {
    for (std::uint32_t b = 0; b < flow.blocks.size(); ++b) {
      for (const std::uint32_t s : flow.blocks[b].successors) {
        if (s != kNoBlock) predecessors_[s].push_back(b);
      }
    }
  }

  void Run() {
    for (std::uint32_t i = 0; i < flow_.instructions.size(); ++i) Note(i);
    std::vector<std::uint32_t> visited_by(flow_.blocks.size(), kNoRegister);
    for (std::uint32_t r = 0; r < flow_.registers.size(); ++r) Follow(r, visited_by);
  }

 private:
  void Note(std::uint32_t i) {
    const Instruction& instruction = flow_.instructions[i];
    const bool writes = WritesFirstOperand(instruction);
    if (instruction.guard) Read(flow_.FindRegister(instruction.guard->predicate), i);
    // Reads precede writes: "add %r1, %r1, 1" needs the old value.
    for (std::size_t o = writes ? 1 : 0; o < instruction.operands.size(); ++o)
      ReadAll(instruction.operands[o], i);
    if (writes) WriteAll(instruction.operands[0], i, instruction.guard.has_value());
  }

  void ReadAll(const Operand& operand, std::uint32_t i) {
    if (!operand.text.empty()) Read(flow_.FindRegister(operand), i);
    for (const Operand& element : operand.elements) ReadAll(element, i);
  }

  void WriteAll(const Operand& operand, std::uint32_t i, bool is_partial) {
    if (operand.elements.empty()) Write(operand, i, is_partial);
    for (const Operand& element : operand.elements) WriteAll(element, i, is_partial);
  }

  void Extend(std::uint32_t r, std::uint32_t position) {
    Register& range = flow_.registers[r];
    if (range.live_begin > range.live_end) {
      range.live_begin = range.live_end = position;
    } else {
      range.live_begin = std::min(range.live_begin, position);
      range.live_end = std::max(range.live_end, position);
    }
  }

  // Instructions are recorded in order, so the last entry belongs to the current block.
  Occurrence& At(std::uint32_t r, std::uint32_t i) {
    Extend(r, i);
    std::vector<Occurrence>& list = occurrences_[r];
    const std::uint32_t block = flow_.block_of[i];
    if (list.empty() || list.back().block != block)
      list.push_back({.block = block, .is_exposed = false, .kills = false});
    return list.back();
  }

  void Read(std::uint32_t r, std::uint32_t i) {
    if (r == kNoRegister) return;
    Occurrence& here = At(r, i);
    here.is_exposed |= !here.kills;
  }

  void Write(const Operand& operand, std::uint32_t i, bool is_partial) {
    const std::uint32_t r = operand.text.empty() ? kNoRegister : flow_.FindRegister(operand);
    if (r == kNoRegister) return;
    // If only some threads write, the others keep the old value.
    At(r, i).kills |= !is_partial;
  }

  // Goes backwards from every block that reads the register to those that write it.
  void Follow(std::uint32_t r, std::vector<std::uint32_t>& visited_by) {
    std::vector<std::uint32_t> open;
    std::vector<std::uint32_t> killers;
    for (const Occurrence& o : occurrences_[r]) {
      if (o.is_exposed) open.push_back(o.block);
      if (o.kills) killers.push_back(o.block);
    }
    while (!open.empty()) {
      const std::uint32_t b = open.back();
      open.pop_back();
      Extend(r, flow_.blocks[b].first);
      flow_.registers[r].is_read_unwritten |= b == 0;
      for (const std::uint32_t p : predecessors_[b]) {
        if (visited_by[p] == r) continue;
        visited_by[p] = r;
        if (++visits_ > kLivenessVisitsMax) {
          Extend(r, 0);
          Extend(r, static_cast<std::uint32_t>(flow_.instructions.size() - 1));
          flow_.registers[r].is_read_unwritten = true;
          return;
        }
        Extend(r, flow_.blocks[p].first + flow_.blocks[p].count - 1);
        if (!std::binary_search(killers.begin(), killers.end(), p)) open.push_back(p);
      }
    }
  }

  ControlFlow& flow_;
  std::vector<std::vector<std::uint32_t>> predecessors_;
  std::vector<std::vector<Occurrence>> occurrences_;
  std::size_t visits_ = 0;
};

}  // namespace

void FindLiveRanges(ControlFlow& flow) { LiveRanges(flow).Run(); }

}  // namespace gpushared::ptx

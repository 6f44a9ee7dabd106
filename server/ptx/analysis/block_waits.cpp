// SPDX-License-Identifier: Apache-2.0
#include "server/ptx/analysis/block_waits.h"

#include <algorithm>
#include <array>
#include <string>
#include <unordered_map>
#include <utility>

#include "server/ptx/analysis/look_back.h"

namespace gpushared::ptx {
namespace {

constexpr std::array<std::string_view, 6> kStrongLoads = {"volatile", "relaxed", "acquire",
                                                          "mmio",     "cv",      "cg"};
// Atomics that can be repeated without effect.
constexpr std::array<std::string_view, 6> kIdleAtomics = {"exch", "cas", "and", "or", "min", "max"};

template <std::size_t N>
bool HasAny(const Instruction& instruction, const std::array<std::string_view, N>& words) {
  return std::ranges::any_of(words, [&](std::string_view word) { return instruction.Has(word); });
}

// Whether the instruction accesses memory that other blocks can access.
bool IsGlobalOrGeneric(const Instruction& instruction) {
  return std::ranges::none_of(instruction.modifiers, [](const std::string& modifier) {
    return modifier.starts_with("shared") || modifier.starts_with("param") || modifier == "local" ||
           modifier == "const" || modifier == "cta";
  });
}

bool IsZero(const Operand& operand) {
  return operand.kind == Operand::Kind::kInteger && operand.integer == 0;
}

constexpr std::uint32_t kNoLoop = kNoBlock;

// For each block, the number of the outermost loop that contains it, or kNoLoop. Implements Tarjan,
// "Depth-first search and linear graph algorithms" (1972), without recursion.
class Loops {
 public:
  explicit Loops(const std::vector<BasicBlock>& blocks)
      : blocks_(blocks), order_(blocks.size(), 0), low_(blocks.size(), 0) {
    loop_of_.assign(blocks.size(), kNoLoop);
    for (std::uint32_t b = 0; b < blocks.size(); ++b) {
      if (order_[b] == 0) Visit(b);
    }
  }

  std::uint32_t operator[](std::uint32_t block) const { return loop_of_[block]; }

 private:
  struct Step {
    std::uint32_t block = 0;
    std::size_t next = 0;  // Next successor to visit.
  };

  void Enter(std::uint32_t block) {
    order_[block] = low_[block] = ++entered_;
    path_.push_back({.block = block, .next = 0});
    open_.push_back(block);
  }

  void Visit(std::uint32_t root) {
    Enter(root);
    while (!path_.empty()) {
      Step& step = path_.back();
      const std::vector<std::uint32_t>& successors = blocks_[step.block].successors;
      if (step.next < successors.size()) {
        const std::uint32_t to = successors[step.next++];
        if (to == kNoBlock) continue;
        if (order_[to] == 0) {
          Enter(to);
        } else if (low_[to] != kClosed) {
          low_[step.block] = std::min(low_[step.block], order_[to]);
        }
        continue;
      }
      const std::uint32_t block = step.block;
      path_.pop_back();
      if (low_[block] == order_[block]) Close(block);
      if (!path_.empty() && low_[block] != kClosed) {
        std::uint32_t& before = low_[path_.back().block];
        before = std::min(before, low_[block]);
      }
    }
  }

  void Close(std::uint32_t first) {
    const bool is_loop =
        open_.back() != first ||
        std::ranges::find(blocks_[first].successors, first) != blocks_[first].successors.end();
    for (bool is_last = false; !is_last;) {
      const std::uint32_t block = open_.back();
      open_.pop_back();
      low_[block] = kClosed;
      if (is_loop) loop_of_[block] = first;
      is_last = block == first;
    }
  }

  static constexpr std::uint32_t kClosed = kNoBlock;

  const std::vector<BasicBlock>& blocks_;
  // By block. order_ counts from 1; it is 0 for blocks that have not been visited.
  std::vector<std::uint32_t> order_, low_, loop_of_;
  std::vector<Step> path_;
  std::vector<std::uint32_t> open_;
  std::uint32_t entered_ = 0;
};

// Finds the waits of a function by following values from their writes to their reads.
class WaitFinder {
 public:
  WaitFinder(const ControlFlow& flow, const std::function<bool(const Instruction&)>& callee_polls,
             WaitSteps& steps)
      : flow_(flow),
        callee_polls_(callee_polls),
        steps_(steps.followed),
        look_back_steps_(steps.look_back),
        loops_(flow.blocks) {
    Number(std::string(kMemory));
    effects_.reserve(flow.instructions.size());
    for (const Instruction& instruction : flow.instructions) {
      effects_.push_back(GetEffects(instruction));
      const auto index = static_cast<std::uint32_t>(effects_.size() - 1);
      for (const std::uint32_t name : effects_.back().reads) readers_[name].push_back(index);
    }
    RecordZeros();
  }

  std::vector<BlockWait> Run() {
    std::vector<std::uint32_t> waiting;
    for (std::uint32_t i = 0; i < flow_.instructions.size(); ++i) {
      const Instruction& instruction = flow_.instructions[i];
      const bool calls = instruction.opcode == "call" && callee_polls_(instruction);
      if ((calls || MayPollHere(instruction)) && IsRepeatedByItsValue(i)) waiting.push_back(i);
    }
    const std::vector<bool> earlier = ReadEarlierBlocks(flow_, waiting, look_back_steps_);
    std::vector<BlockWait> waits;
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      waits.push_back({.line = flow_.instructions[waiting[i]].position.line,
                       .instruction = waiting[i],
                       .is_for_earlier_blocks = earlier[i]});
    }
    return waits;
  }

 private:
  struct Effects {
    std::vector<std::uint32_t> reads, writes;  // Numbers of the names.
  };
  // What the writes of a name may store: kNothing without writes, kZero if all of them store 0.
  enum class Holds : std::uint8_t { kNothing, kZero, kAnything };

  std::uint32_t Number(const std::string& name) {
    const auto next = static_cast<std::uint32_t>(readers_.size());
    const auto [found, is_new] = numbers_.emplace(name, next);
    if (is_new) readers_.emplace_back();
    return found->second;
  }

  void Collect(const Operand& operand, std::vector<std::uint32_t>* names) {
    if (operand.kind == Operand::Kind::kName || operand.kind == Operand::Kind::kAddress) {
      // A selected part of a register is treated as the register.
      const std::uint32_t index = flow_.FindRegister(operand.text);
      names->push_back(Number(index == kNoRegister ? operand.text : flow_.registers[index].name));
    }
    for (const Operand& element : operand.elements) Collect(element, names);
  }

  // All memory is represented by one name; call parameters have separate ones.
  Effects GetEffects(const Instruction& instruction) {
    Effects effects;
    if (instruction.guard) effects.reads.push_back(Number(instruction.guard->predicate));
    const bool writes = WritesFirstOperand(instruction);
    for (std::size_t o = 0; o < instruction.operands.size(); ++o) {
      Collect(instruction.operands[o], o == 0 && writes ? &effects.writes : &effects.reads);
    }
    const bool parameter = std::ranges::any_of(
        instruction.modifiers, [](const std::string& m) { return m.starts_with("param"); });
    if (instruction.opcode == "st" && parameter && !instruction.operands.empty()) {
      Collect(instruction.operands[0], &effects.writes);
    } else if (instruction.opcode == "st" || instruction.opcode == "red") {
      effects.writes.push_back(Number(std::string(kMemory)));
    } else if ((instruction.opcode == "ld" && !parameter) || instruction.opcode == "atom") {
      effects.reads.push_back(Number(std::string(kMemory)));
      if (instruction.opcode == "atom") effects.writes.push_back(Number(std::string(kMemory)));
    } else if (instruction.opcode == "call") {
      effects.reads.push_back(Number(std::string(kMemory)));
      effects.writes.push_back(Number(std::string(kMemory)));
    }
    return effects;
  }

  void RecordZeros() {
    holds_.assign(readers_.size(), Holds::kNothing);
    for (std::size_t i = 0; i < effects_.size(); ++i) {
      const Instruction& writer = flow_.instructions[i];
      if (effects_[i].writes.empty()) continue;
      const bool zero = writer.opcode == "mov" && IsZero(writer.operands.back());
      for (const std::uint32_t name : effects_[i].writes) {
        if (!zero) holds_[name] = Holds::kAnything;
        if (holds_[name] == Holds::kNothing) holds_[name] = Holds::kZero;
      }
    }
  }

  // Like MayPoll, but also returns true for an atomic addition whose addend is a register that is
  // always 0.
  bool MayPollHere(const Instruction& instruction) {
    if (MayPoll(instruction)) return true;
    if (instruction.opcode != "atom" || !instruction.Has("add") ||
        !IsGlobalOrGeneric(instruction) || instruction.operands.size() < 3) {
      return false;
    }
    const std::uint32_t addend = flow_.FindRegister(instruction.operands[2].text);
    if (addend == kNoRegister) return false;
    return holds_[Number(flow_.registers[addend].name)] == Holds::kZero;
  }

  // Returns the blocks whose execution depends on the branch at the end of `block`.
  std::vector<std::uint32_t> DecidedBy(std::uint32_t block) {
    const BasicBlock& from = flow_.blocks[block];
    const std::uint32_t meeting = from.immediate_post_dominator;
    std::vector<std::uint32_t> decided;
    for (std::uint32_t next : from.successors) {
      for (; next != kNoBlock && next != meeting; ++steps_) {
        if (steps_ > kBlockWaitStepsMax) return decided;
        decided.push_back(next);
        next = flow_.blocks[next].immediate_post_dominator;
      }
    }
    return decided;
  }

  bool IsDecision(std::uint32_t i) const {
    const BasicBlock& block = flow_.blocks[flow_.block_of[i]];
    const bool ends_block = i == block.first + block.count - 1;
    return ends_block && (block.end == BasicBlock::End::kConditionalBranch ||
                          block.end == BasicBlock::End::kIndexedBranch ||
                          block.end == BasicBlock::End::kConditionalLeave);
  }

  // Everything that depends on the result of one instruction.
  struct Dependents {
    std::vector<bool> names;   // By number of a name: whether the name is dependent.
    std::vector<bool> blocks;  // By block: whether a dependent branch decides if the block runs.
  };

  // Returns everything in the loop of `source` that depends on the result of `source`. Without
  // `also_decisions`, follows neither memory nor branches.
  Dependents GetDependents(std::uint32_t source, bool also_decisions) {
    Dependents found{.names = std::vector<bool>(readers_.size(), false),
                     .blocks = std::vector<bool>(flow_.blocks.size(), false)};
    steps_ += (found.names.size() + found.blocks.size()) / 64;
    const std::uint32_t memory = Number(std::string(kMemory));
    const std::uint32_t loop = loops_[flow_.block_of[source]];
    std::vector<std::uint32_t> open;
    const auto spread = [&](std::uint32_t instruction, bool also_memory) {
      steps_ += 1 + effects_[instruction].writes.size();
      for (const std::uint32_t name : effects_[instruction].writes) {
        if (found.names[name] || (name == memory && !also_memory)) continue;
        found.names[name] = true;
        open.push_back(name);
      }
    };
    spread(source, false);
    while (!open.empty() && steps_ <= kBlockWaitStepsMax) {
      const std::uint32_t name = open.back();
      open.pop_back();
      for (const std::uint32_t reader : readers_[name]) {
        ++steps_;
        if (loops_[flow_.block_of[reader]] != loop) continue;
        spread(reader, also_decisions);
        if (!also_decisions || !IsDecision(reader)) continue;
        for (const std::uint32_t block : DecidedBy(flow_.block_of[reader])) {
          if (found.blocks[block] || loops_[block] != loop) continue;
          found.blocks[block] = true;
          const BasicBlock& b = flow_.blocks[block];
          for (std::uint32_t i = b.first; i < b.first + b.count; ++i) spread(i, i != source);
        }
      }
    }
    return found;
  }

  bool IsRepeatedByItsValue(std::uint32_t source) {
    if (loops_[flow_.block_of[source]] == kNoLoop) return false;
    if (steps_ > kBlockWaitStepsMax) return true;
    const bool repeats = GetDependents(source, true).blocks[flow_.block_of[source]];
    if (steps_ > kBlockWaitStepsMax) return true;
    return repeats && !IsRetry(source);
  }

  // Returns whether `atom.cas d, [a], expected, new` expects the value that it read before.
  bool IsRetry(std::uint32_t source) {
    const Instruction& atomic = flow_.instructions[source];
    if (!atomic.Has("cas") || atomic.operands.size() < 4) return false;
    const std::uint32_t expected = flow_.FindRegister(atomic.operands[2].text);
    if (expected == kNoRegister) return false;
    return GetDependents(source, false).names[Number(flow_.registers[expected].name)];
  }

  static constexpr std::string_view kMemory = "@memory";  // Not a valid PTX name.

  const ControlFlow& flow_;
  const std::function<bool(const Instruction&)>& callee_polls_;
  std::size_t &steps_, &look_back_steps_;
  const Loops loops_;
  std::unordered_map<std::string, std::uint32_t> numbers_;
  std::vector<std::vector<std::uint32_t>> readers_;  // By number of a name: its readers.
  std::vector<Effects> effects_;                     // By instruction.
  std::vector<Holds> holds_;                         // By number of the name.
};

}  // namespace

bool MayPoll(const Instruction& instruction) {
  // Instructions created by a pass poll for a stop by the server, not for another block.
  const bool is_made = instruction.position.line == 0;
  if (is_made || !IsGlobalOrGeneric(instruction)) return false;
  if (instruction.opcode == "ld") return HasAny(instruction, kStrongLoads);
  if (instruction.opcode != "atom") return false;
  if (HasAny(instruction, kIdleAtomics)) return true;
  return instruction.Has("add") && instruction.operands.size() > 2 &&
         IsZero(instruction.operands[2]);
}

std::vector<BlockWait> FindBlockWaits(const ControlFlow& flow,
                                      const std::function<bool(const Instruction&)>& callee_polls,
                                      WaitSteps& steps) {
  return WaitFinder(flow, callee_polls, steps).Run();
}

}  // namespace gpushared::ptx

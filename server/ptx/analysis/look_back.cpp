// SPDX-License-Identifier: Apache-2.0
#include "server/ptx/analysis/look_back.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace gpushared::ptx {
namespace {

constexpr std::string_view kBlockIndexX = "%ctaid.x";
constexpr std::uint32_t kDepthMax = 64;

// A sum of named values times constants, minus an unknown nonnegative value if `sinks` is set.
// Arithmetic wraps like the device's.
struct Sum {
  std::map<std::string, std::uint64_t> factors;
  std::uint64_t constant = 0;
  bool sinks = false;
};

void AddTimes(Sum& to, const Sum& from, std::uint64_t factor) {
  for (const auto& [name, times] : from.factors) {
    std::uint64_t& sum = to.factors[name];
    sum += times * factor;
    if (sum == 0) to.factors.erase(name);
  }
  to.constant += from.constant * factor;
  to.sinks |= from.sinks;
}

// Returns the number of steps that a name counts as. The number depends on the length of the name,
// because clients choose names, and the analysis compares and copies them many times.
std::size_t GetSteps(const std::string& name) { return 1 + name.size() / 64; }
std::size_t GetSteps(const Sum& sum) {
  std::size_t steps = 1;
  for (const auto& [name, times] : sum.factors) steps += GetSteps(name);
  return steps;
}

// Expresses registers of a function as sums of the values known at its start.
class Evaluator {
 public:
  Evaluator(const ControlFlow& flow, std::size_t& steps) : flow_(flow), steps_(steps) {
    for (std::uint32_t i = 0; i < flow.instructions.size(); ++i) {
      const Instruction& instruction = flow.instructions[i];
      if (WritesFirstOperand(instruction)) RecordWrites(instruction.operands[0], i);
    }
  }

  // Returns the address operand of an access.
  std::optional<Sum> GetAddress(const Instruction& instruction) {
    const auto address =
        std::ranges::find(instruction.operands, Operand::Kind::kAddress, &Operand::kind);
    if (address == instruction.operands.end()) return std::nullopt;
    std::optional<Sum> sum = Value(address->text, 0);
    if (sum) sum->constant += static_cast<std::uint64_t>(address->offset);
    return sum;
  }

 private:
  void RecordWrites(const Operand& operand, std::uint32_t i) {
    if (operand.elements.empty()) writers_[operand.text].push_back(i);
    for (const Operand& element : operand.elements) RecordWrites(element, i);
  }

  static Sum Named(const std::string& name) {
    Sum sum;
    sum.factors[name] = 1;
    return sum;
  }

  std::optional<Sum> Value(const Operand& operand, std::uint32_t depth) {
    if (operand.kind == Operand::Kind::kInteger) {
      Sum sum;
      sum.constant = static_cast<std::uint64_t>(operand.integer);
      return sum;
    }
    if (operand.kind != Operand::Kind::kName || operand.offset != 0) return std::nullopt;
    return Value(operand.text, depth);
  }

  std::optional<Sum> Value(const std::string& name, std::uint32_t depth) {
    steps_ += GetSteps(name);
    if (steps_ > kLookBackStepsMax) return std::nullopt;
    std::optional<Sum> value = Evaluate(name, depth);
    if (value) steps_ += GetSteps(*value);
    return value;
  }

  std::optional<Sum> Evaluate(const std::string& name, std::uint32_t depth) {
    if (flow_.FindRegister(name) == kNoRegister) return Named(name);
    // Within its own evaluation, the name means the value of the previous loop iteration.
    if (open_.contains(name)) return Named(name);
    const auto writers = writers_.find(name);
    if (depth > kDepthMax || writers == writers_.end()) return std::nullopt;
    // A register with a single write is another name for the written value.
    if (writers->second.size() == 1)
      return Result(flow_.instructions[writers->second[0]], depth + 1);
    open_.insert(name);
    std::optional<Sum> value = Joined(name, writers->second, depth);
    open_.erase(name);
    return value;
  }

  // Returns the sum that all writes have in common. Writes that only subtract from the register are
  // ignored, except that they set `sinks`. Returns nothing if the other writes differ.
  std::optional<Sum> Joined(const std::string& name, const std::vector<std::uint32_t>& writers,
                            std::uint32_t depth) {
    std::optional<Sum> joined;
    bool sinks = false;
    for (const std::uint32_t writer : writers) {
      std::optional<Sum> sum = Result(flow_.instructions[writer], depth + 1);
      if (!sum) return std::nullopt;
      const auto self = sum->factors.find(name);
      if (self != sum->factors.end()) {
        const bool only_less = self->second == 1 && sum->factors.size() == 1 &&
                               static_cast<std::int64_t>(sum->constant) <= 0;
        if (!only_less) return std::nullopt;
        sinks = true;
      } else if (!joined) {
        joined = std::move(sum);
      } else if (joined->factors != sum->factors || joined->constant != sum->constant) {
        return std::nullopt;
      } else {
        sinks |= sum->sinks;
      }
    }
    if (joined) joined->sinks |= sinks;
    return joined;
  }

  std::optional<Sum> Result(const Instruction& instruction, std::uint32_t depth) {
    const std::string_view opcode = instruction.opcode;
    const std::vector<Operand>& operands = instruction.operands;
    if (instruction.guard || operands.size() < 2) return std::nullopt;
    if (opcode == "mov" || opcode == "cvt" || opcode == "cvta") return Value(operands[1], depth);
    if (opcode == "ld" && instruction.Has("param")) {
      steps_ += GetSteps(operands[1].text);
      return Named("param " + operands[1].text + "+" + std::to_string(operands[1].offset));
    }
    if (opcode == "not") return Combined(operands[1], ~std::uint64_t{0}, nullptr, 0, ~0ull, depth);
    if (opcode == "neg") return Combined(operands[1], ~std::uint64_t{0}, nullptr, 0, 0, depth);
    if (operands.size() < 3) return std::nullopt;
    if (opcode == "add") return Combined(operands[1], 1, &operands[2], 1, 0, depth);
    if (opcode == "sub") {
      return Combined(operands[1], 1, &operands[2], ~std::uint64_t{0}, 0, depth);
    }
    return Product(instruction, depth);
  }

  // Handles mul, mad and shl by constants.
  std::optional<Sum> Product(const Instruction& instruction, std::uint32_t depth) {
    const std::string_view opcode = instruction.opcode;
    const std::vector<Operand>& operands = instruction.operands;
    if (operands[2].kind != Operand::Kind::kInteger || instruction.Has("hi")) return std::nullopt;
    const auto literal = static_cast<std::uint64_t>(operands[2].integer);
    if (opcode == "shl") {
      if (literal > 62) return std::nullopt;
      return Combined(operands[1], std::uint64_t{1} << literal, nullptr, 0, 0, depth);
    }
    if (opcode == "mul") return Combined(operands[1], literal, nullptr, 0, 0, depth);
    if (opcode == "mad" && operands.size() == 4) {
      return Combined(operands[1], literal, &operands[3], 1, 0, depth);
    }
    return std::nullopt;
  }

  std::optional<Sum> Combined(const Operand& a, std::uint64_t a_times, const Operand* b,
                              std::uint64_t b_times, std::uint64_t constant, std::uint32_t depth) {
    Sum sum;
    sum.constant = constant;
    const auto add = [&](const Operand& operand, std::uint64_t times) {
      const std::optional<Sum> value = Value(operand, depth);
      // Multiplying a sinking value by a negative one would make it rise.
      if (!value || (value->sinks && static_cast<std::int64_t>(times) < 0)) return false;
      AddTimes(sum, *value, times);
      return true;
    };
    if (!add(a, a_times) || (b != nullptr && !add(*b, b_times))) return std::nullopt;
    return sum;
  }

  const ControlFlow& flow_;
  std::unordered_map<std::string, std::vector<std::uint32_t>> writers_;
  std::unordered_set<std::string> open_;
  std::size_t& steps_;
};

bool IsNeverNegative(const std::string& name) {
  return name.starts_with("%tid.") || name.starts_with("%ctaid.") || name == "%laneid";
}

// Whether address `read` is at least one block's step below address `own` in every thread.
bool IsBelow(const Sum& read, const Sum& own) {
  const auto step = own.factors.find(std::string(kBlockIndexX));
  if (step == own.factors.end() || own.sinks) return false;
  const auto step_bytes = static_cast<std::int64_t>(step->second);
  Sum difference = read;
  AddTimes(difference, own, ~std::uint64_t{0});
  const bool falls = std::ranges::all_of(difference.factors, [](const auto& factor) {
    return IsNeverNegative(factor.first) && factor.first != kBlockIndexX &&
           static_cast<std::int64_t>(factor.second) < 0;
  });
  return step_bytes > 0 && falls && static_cast<std::int64_t>(difference.constant) <= -step_bytes;
}

bool StoresForOthers(const Instruction& instruction) {
  if (instruction.opcode != "st" && instruction.opcode != "atom" && instruction.opcode != "red") {
    return false;
  }
  return std::ranges::none_of(instruction.modifiers, [](const std::string& modifier) {
    return modifier.starts_with("shared") || modifier.starts_with("param") || modifier == "local";
  });
}

}  // namespace

std::vector<bool> ReadEarlierBlocks(const ControlFlow& flow,
                                    const std::vector<std::uint32_t>& accesses,
                                    std::size_t& steps) {
  std::vector<bool> earlier(accesses.size(), false);
  if (accesses.empty() || steps > kLookBackStepsMax) return earlier;
  Evaluator evaluator(flow, steps);
  std::vector<Sum> own;
  for (const Instruction& instruction : flow.instructions) {
    if (!StoresForOthers(instruction)) continue;
    if (std::optional<Sum> sum = evaluator.GetAddress(instruction)) own.push_back(std::move(*sum));
  }
  for (std::size_t i = 0; i < accesses.size(); ++i) {
    const Instruction& load = flow.instructions[accesses[i]];
    if (load.opcode != "ld") continue;
    const std::optional<Sum> read = evaluator.GetAddress(load);
    earlier[i] = read && std::ranges::any_of(own, [&](const Sum& address) {
                   steps += GetSteps(*read) + GetSteps(address);
                   return steps <= kLookBackStepsMax && IsBelow(*read, address);
                 });
  }
  return earlier;
}

}  // namespace gpushared::ptx

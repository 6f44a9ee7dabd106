// SPDX-License-Identifier: Apache-2.0
#include "server/ptx/analysis/kernel_reach.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "server/ptx/analysis/memory_access.h"
#include "server/ptx/analysis/parameter_words.h"
#include "server/ptx/analysis/reach_program.h"

namespace gpushared::ptx {
namespace {

using Node = ReachProgram::Node;
using Rule = ReachProgram::Rule;

constexpr std::uint64_t kWordBytes = 8;
constexpr std::string_view kTooLong = "the module's addresses take too long to follow";
// A number multiplied by kScaleMax or more, or shifted left by kShiftMax or more, may be the high
// part of an address.
constexpr std::uint64_t kScaleMax = std::uint64_t{1} << 24;
constexpr std::int64_t kShiftMax = 24;
// A mask below kSmallMask keeps only low bits, which cannot be an address.
constexpr std::int64_t kSmallMask = 1 << 20;

struct Use {
  Node address = 0;
  const Instruction* at = nullptr;
  std::size_t function = 0;  // Index in Tracer::functions_.
};

bool IsFloat(const Instruction& instruction) {
  return !instruction.modifiers.empty() && instruction.modifiers.back().starts_with('f');
}

std::optional<std::int64_t> ToLiteral(const Operand& operand) {
  if (operand.kind != Operand::Kind::kInteger) return std::nullopt;
  return operand.integer;
}

std::string Explain(AddressValue::Foreign foreign, std::uint32_t line) {
  const std::string where = line == 0 ? "" : " in line " + std::to_string(line);
  switch (foreign) {
    case AddressValue::Foreign::kMemory:
      return "is loaded from memory" + where;
    case AddressValue::Foreign::kParts:
      return "is combined from parts" + where;
    case AddressValue::Foreign::kBits:
      return "comes from an exclusive or" + where;
    case AddressValue::Foreign::kNo:
    case AddressValue::Foreign::kOther:
      break;
  }
  return "is computed in an unsupported way" + where;
}

// Follows the addresses in a kernel and in all functions that it may call.
class Tracer {
 public:
  Tracer(const std::unordered_map<std::string_view, const Variable*>& variables,
         const CallGraph& calls, std::span<const ReachFinder::AnalysedFunction> functions,
         std::size_t& steps)
      : variables_(variables),
        calls_(calls),
        functions_(functions),
        program_(steps),
        parameters_(*functions.front().function) {
    number_ = NewNode(AddressValue::Number());
    own_ = NewNode(AddressValue::Own());
    variable_ = NewNode(AddressValue::Variable());
    for (std::size_t i = 0; i < functions.size(); ++i) numbers_[functions[i].function] = i;
  }

  KernelReach Run() {
    for (current_ = 0; current_ < functions_.size() && why_.empty(); ++current_) Build();
    if (parameters_.is_full()) {
      Fail("more than " + std::to_string(kAddressWordsMax) +
           " words of its parameters may be addresses");
    }
    if (why_.empty() && !program_.Solve()) Fail(std::string(kTooLong));
    KernelReach reach;
    if (why_.empty()) Collect(reach);
    reach.why_unknown = std::move(why_);
    return reach;
  }

 private:
  const ControlFlow& flow() const { return *functions_[current_].flow; }
  bool is_kernel() const { return current_ == 0; }

  void Fail(const std::string& why) {
    if (why_.empty()) why_ = why;
  }
  void FailAt(const Instruction& at, const std::string& why) { FailAt(at, current_, why); }
  void FailAt(const Instruction& at, std::size_t function, const std::string& why) {
    std::string text = GetLine(at.position) + why;
    if (function != 0) text += ", in function '" + functions_[function].function->name + "'";
    Fail(text);
  }
  Node NewNode(const AddressValue& value) { return program_.NewNode(value); }
  void AddStep(Rule rule, Node result, std::vector<Node> sources, std::uint32_t line = 0,
               AddressValue::Foreign foreign = AddressValue::Foreign::kOther) {
    program_.Add({.rule = rule,
                  .foreign = foreign,
                  .line = line,
                  .result = result,
                  .sources = std::move(sources)});
  }

  std::size_t GetArea(const std::string& name) { return program_.GetArea(current_, name); }

  // ---- names

  enum class NameKind : std::uint8_t {
    kRegister,
    kNumber,  // A special register.
    kVariable,
    kOwn,
    kParameter,  // A parameter of the kernel.
    kArea,
    kUnknown,
  };
  static NameKind GetKind(StateSpace space) {
    switch (space) {
      case StateSpace::kGlobal:
      case StateSpace::kConstant:
        return NameKind::kVariable;
      case StateSpace::kShared:
      case StateSpace::kLocal:
        return NameKind::kOwn;
      case StateSpace::kParameter:
        return NameKind::kArea;
      case StateSpace::kRegister:
        break;
    }
    return NameKind::kUnknown;
  }
  NameKind GetKind(const std::string& name) const {
    if (flow().FindRegister(name) != kNoRegister) return NameKind::kRegister;
    const auto local = local_names_.find(name);
    if (local != local_names_.end()) return GetKind(local->second);
    if (is_kernel() && parameters_.Has(name)) return NameKind::kParameter;
    const auto variable = variables_.find(name);
    if (variable != variables_.end()) return GetKind(variable->second->space);
    return name.starts_with('%') ? NameKind::kNumber : NameKind::kUnknown;
  }

  Node RegisterNode(std::uint32_t r) const { return first_register_[current_] + r; }
  std::uint32_t RegisterBytes(std::uint32_t r) const { return TypeBytes(flow().registers[r].type); }

  // Returns the value of a name or a literal.
  Node ValueFor(const Operand& operand, std::uint32_t line) {
    if (operand.kind != Operand::Kind::kName) return number_;
    switch (GetKind(operand.text)) {
      case NameKind::kRegister:
        return RegisterNode(flow().FindRegister(operand));
      case NameKind::kNumber:
        return number_;
      case NameKind::kVariable:
        return variable_;
      case NameKind::kOwn:
        return own_;
      case NameKind::kParameter:
        return NewNode(parameters_.GetAddress(operand.text));
      case NameKind::kArea: {
        // Code that has the variable's address may write anything to the variable, so the
        // variable's words become foreign.
        const Node any = program_.AnyWord(GetArea(operand.text));
        AddStep(Rule::kForeign, any, {number_}, line, AddressValue::Foreign::kMemory);
        return own_;
      }
      case NameKind::kUnknown:
        break;
    }
    return NewNode(AddressValue::FromElsewhere(AddressValue::Foreign::kOther, line));
  }

  // Collects the values that an operand names, except predicates.
  void CollectValues(const Operand& operand, std::uint32_t line, std::vector<Node>* nodes) {
    for (const Operand& element : operand.elements) CollectValues(element, line, nodes);
    if (operand.kind != Operand::Kind::kName) return;
    const std::uint32_t r = flow().FindRegister(operand);
    if (r != kNoRegister && RegisterBytes(r) == 0) return;
    nodes->push_back(ValueFor(operand, line));
  }
  std::vector<Node> Sources(const Instruction& instruction, std::size_t first) {
    std::vector<Node> nodes;
    for (std::size_t i = first; i < instruction.operands.size(); ++i) {
      CollectValues(instruction.operands[i], instruction.position.line, &nodes);
    }
    if (nodes.empty()) nodes.push_back(number_);
    return nodes;
  }

  // ---- steps of instructions

  struct Written {
    Node node = 0;
    std::uint32_t bytes = 0;
    std::size_t element = 0;
  };
  void CollectWritten(const Operand& operand, std::size_t element, std::vector<Written>* written) {
    for (std::size_t i = 0; i < operand.elements.size(); ++i) {
      CollectWritten(operand.elements[i], i, written);
    }
    const std::uint32_t r = flow().FindRegister(operand);
    if (r == kNoRegister || RegisterBytes(r) == 0) return;
    written->push_back({.node = RegisterNode(r), .bytes = RegisterBytes(r), .element = element});
  }

  void Build() {
    local_names_.clear();
    for (const Variable& variable : flow().variables) {
      if (variable.space != StateSpace::kRegister) local_names_[variable.name] = variable.space;
    }
    const Function& function = *functions_[current_].function;
    if (!is_kernel()) {
      for (const Variable& each : function.parameters) local_names_[each.name] = each.space;
      for (const Variable& each : function.returns) local_names_[each.name] = each.space;
    }
    first_register_.push_back(program_.size());
    // Reading an unwritten register may return 0.
    for (const Register& each : flow().registers) {
      NewNode(each.is_read_unwritten ? AddressValue::Number() : AddressValue());
    }
    for (const Instruction& instruction : flow().instructions) {
      if (!program_.Count(1)) return;
      const MemoryAccesses accesses = FindMemoryAccesses(instruction);
      if (!accesses.rejection.empty()) {
        return FailAt(instruction,
                      "it is not known what memory '" + instruction.Spelling() + "' touches");
      }
      BuildUses(instruction, accesses.list);
      BuildValues(instruction, accesses.list);
      if (!why_.empty()) return;
    }
  }

  void BuildUses(const Instruction& instruction, const std::vector<MemoryAccess>& accesses) {
    for (const MemoryAccess& access : accesses) {
      if (access.space == AccessSpace::kConstant) reaches_variables_ = true;
      const bool is_global =
          access.space == AccessSpace::kGlobal || access.space == AccessSpace::kGeneric;
      if (!is_global) continue;
      const Operand& address = instruction.operands[access.operand];
      AddUse(ValueOfAddress(address, instruction.position.line), instruction);
    }
  }
  void AddUse(Node address, const Instruction& at) {
    uses_.push_back({.address = address, .at = &at, .function = current_});
  }

  Node ValueOfAddress(const Operand& address, std::uint32_t line) {
    Operand base;
    base.text = address.text;
    const std::uint32_t r = flow().FindRegister(address);
    if (r != kNoRegister && RegisterBytes(r) < kWordBytes) return number_;
    const bool is_literal =
        address.text.empty() || (address.text.front() >= '0' && address.text.front() <= '9');
    return is_literal ? number_ : ValueFor(base, line);
  }

  void BuildValues(const Instruction& instruction, const std::vector<MemoryAccess>& accesses) {
    const std::string_view opcode = instruction.opcode;
    const std::uint32_t line = instruction.position.line;
    if (opcode == "call") return BuildCall(instruction);
    if (opcode == "st") return BuildStore(instruction, accesses);
    if (!WritesFirstOperand(instruction)) return;
    std::vector<Written> written;
    CollectWritten(instruction.operands[0], 0, &written);
    if (written.empty()) return;
    if (opcode == "ld" || opcode == "ldu" || opcode == "atom") {
      return BuildLoad(instruction, accesses, written);
    }
    for (const Written& to : written) {
      if (to.bytes < kWordBytes) {
        AddStep(TakesAway(instruction) ? Rule::kReducedNegative : Rule::kReduced, to.node,
                Sources(instruction, 1), line);
      } else if (IsFloat(instruction) && opcode != "mov" && opcode != "selp") {
        AddStep(Rule::kReduced, to.node, Sources(instruction, 1), line);
      } else {
        BuildWide(instruction, to.node);
      }
    }
  }

  // Whether the result may decrease while an operand increases.
  static bool TakesAway(const Instruction& instruction) {
    constexpr auto kAdd =
        std::to_array<std::string_view>({"add", "addc", "and", "bfe", "cvt", "cvta", "div", "max",
                                         "min", "mov", "or", "rem", "selp", "shl", "shr"});
    const bool multiplies = instruction.opcode == "mul" || instruction.opcode == "mad";
    if (multiplies && instruction.operands.size() > 2) {
      const auto factor = ToLiteral(instruction.operands[2]);
      return factor && *factor < 0;
    }
    return std::ranges::find(kAdd, instruction.opcode) == kAdd.end();
  }

  // Handles 64-bit results.
  void BuildWide(const Instruction& instruction, Node to) {
    const std::string_view opcode = instruction.opcode;
    const std::uint32_t line = instruction.position.line;
    const auto& operands = instruction.operands;
    const auto give_up = [&](AddressValue::Foreign how) {
      AddStep(Rule::kForeign, to, Sources(instruction, 1), line, how);
    };
    const auto value = [&](std::size_t i) { return ValueFor(operands[i], line); };
    const bool is_plain = std::ranges::none_of(operands, [](const Operand& operand) {
      return operand.kind == Operand::Kind::kVector || operand.kind == Operand::Kind::kPair;
    });
    if (!is_plain) return give_up(AddressValue::Foreign::kParts);
    if (operands.size() < 2) return give_up(AddressValue::Foreign::kOther);
    if (opcode == "mov") return AddStep(Rule::kCopy, to, {value(1)});
    if (opcode == "cvta") return BuildConversion(instruction, to);
    if (opcode == "cvt") return BuildConvert(instruction, to);
    if (opcode == "neg" || opcode == "not") return AddStep(Rule::kNegative, to, {value(1)});
    if (operands.size() < 3) return give_up(AddressValue::Foreign::kOther);
    if (opcode == "add" || opcode == "addc") return AddStep(Rule::kSum, to, {value(1), value(2)});
    if (opcode == "sub" || opcode == "subc") {
      return AddStep(Rule::kDifference, to, {value(1), value(2)});
    }
    if (opcode == "min" || opcode == "max" || opcode == "selp" || opcode == "slct") {
      return AddStep(Rule::kCopy, to, {value(1), value(2)});
    }
    if (opcode == "and") {
      const auto mask = ToLiteral(operands[2]);
      const bool is_small = mask && *mask >= 0 && *mask < kSmallMask;
      return AddStep(is_small ? Rule::kReduced : Rule::kSum, to, {value(1), value(2)});
    }
    if (opcode == "or") return AddStep(Rule::kSum, to, {value(1), value(2)});
    if (opcode == "xor") return give_up(AddressValue::Foreign::kBits);
    if (opcode == "shr") return AddStep(Rule::kMixed, to, {value(1), number_});
    if (opcode == "shl") {
      const auto distance = ToLiteral(operands[2]);
      if (!distance || *distance < 0 || *distance >= kShiftMax) {
        return give_up(AddressValue::Foreign::kParts);
      }
      return AddStep(Rule::kMixed, to, {value(1), number_});
    }
    if (opcode == "div" || opcode == "rem") {
      return AddStep(Rule::kReduced, to, {value(1), value(2)});
    }
    if (opcode == "mul") return BuildProduct(instruction, to);
    if (opcode == "mad" && operands.size() == 4) {
      const Node product = NewNode({});
      BuildProduct(instruction, product);
      return AddStep(Rule::kSum, to, {product, value(3)});
    }
    give_up(AddressValue::Foreign::kOther);
  }

  // Handles mul, and the product of mad.
  void BuildProduct(const Instruction& instruction, Node to) {
    const std::uint32_t line = instruction.position.line;
    const Node a = ValueFor(instruction.operands[1], line);
    const Node b = ValueFor(instruction.operands[2], line);
    const auto factor = ToLiteral(instruction.operands[2]);
    if (!factor || instruction.Has("hi")) return AddStep(Rule::kReduced, to, {a, b});
    if (*factor == 1) return AddStep(Rule::kCopy, to, {a});
    if (*factor == -1) return AddStep(Rule::kNegative, to, {a});
    const std::uint64_t size =
        *factor < 0 ? ~static_cast<std::uint64_t>(*factor) : static_cast<std::uint64_t>(*factor);
    if (size >= kScaleMax) {
      return AddStep(Rule::kForeign, to, {a}, line, AddressValue::Foreign::kParts);
    }
    AddStep(*factor < 0 ? Rule::kReducedNegative : Rule::kReduced, to, {a});
  }

  // Handles cvta: conversions between generic addresses and those of a space.
  void BuildConversion(const Instruction& instruction, Node to) {
    const Node from = ValueFor(instruction.operands[1], instruction.position.line);
    if (instruction.Has("global")) return AddStep(Rule::kAsPointer, to, {from});
    if (instruction.Has("param") || instruction.Has("param::entry")) {
      return AddStep(Rule::kCopy, to, {from});
    }
    // An address that is converted to or from another space is in that space, regardless of its
    // origin.
    AddStep(Rule::kCopy, to, {instruction.Has("const") ? variable_ : own_});
  }

  void BuildConvert(const Instruction& instruction, Node to) {
    const std::string& from = instruction.modifiers.back();
    const Node value = ValueFor(instruction.operands[1], instruction.position.line);
    const bool is_address = TypeBytes(from) == kWordBytes && !from.starts_with('f');
    AddStep(is_address ? Rule::kCopy : Rule::kReduced, to, {value});
  }

  void BuildLoad(const Instruction& instruction, const std::vector<MemoryAccess>& accesses,
                 const std::vector<Written>& written) {
    const std::uint32_t line = instruction.position.line;
    const std::uint32_t bytes = TypeBytes(instruction.modifiers.back());
    const Operand& address = instruction.operands[accesses[0].operand];
    const bool is_parameter = accesses[0].space == AccessSpace::kParameter;
    const bool is_generic = accesses[0].space == AccessSpace::kGeneric;
    for (const Written& to : written) {
      const std::int64_t offset =
          address.offset + static_cast<std::int64_t>(to.element) * std::int64_t{bytes};
      if (is_parameter) {
        BuildParameterLoad(to, bytes, address, offset, line);
      } else if (bytes < kWordBytes || to.bytes < kWordBytes) {
        AddStep(Rule::kReduced, to.node, {number_});
      } else if (is_generic) {
        AddStep(Rule::kLoaded, to.node, {ValueOfAddress(address, line)}, line);
      } else {
        AddStep(Rule::kForeign, to.node, {number_}, line, AddressValue::Foreign::kMemory);
      }
    }
  }

  void BuildParameterLoad(const Written& to, std::uint32_t bytes, const Operand& address,
                          std::int64_t offset, std::uint32_t line) {
    const NameKind kind = GetKind(address.text);
    const bool is_whole = bytes == kWordBytes && to.bytes == kWordBytes;
    if (kind == NameKind::kArea) {
      const std::size_t area = GetArea(address.text);
      const bool is_inside = offset >= 0;
      const Node word =
          program_.AreaWord(area, is_inside ? static_cast<std::uint64_t>(offset) / kWordBytes : 0);
      if (bytes < kWordBytes) return AddStep(Rule::kReduced, to.node, {word});
      const bool is_exact = is_whole && is_inside && offset % std::int64_t{kWordBytes} == 0;
      return AddStep(is_exact ? Rule::kCopy : Rule::kForeign, to.node, {word}, line,
                     AddressValue::Foreign::kParts);
    }
    if (bytes < kWordBytes) return AddStep(Rule::kReduced, to.node, {number_});
    if (kind == NameKind::kParameter && is_whole) {
      return AddStep(Rule::kCopy, to.node,
                     {NewNode(parameters_.GetWord(address.text, offset, line))});
    }
    if (kind == NameKind::kRegister && is_whole) {
      return AddStep(Rule::kLoaded, to.node, {ValueOfAddress(address, line)}, line);
    }
    AddStep(Rule::kForeign, to.node, {number_}, line, AddressValue::Foreign::kOther);
  }

  // Handles stores to call parameters and results; other stores are not followed.
  void BuildStore(const Instruction& instruction, const std::vector<MemoryAccess>& accesses) {
    const bool is_parameter = accesses[0].space == AccessSpace::kParameter;
    if (!is_parameter || instruction.operands.size() < 2) return;
    const std::uint32_t line = instruction.position.line;
    const Operand& address = instruction.operands[0];
    if (GetKind(address.text) != NameKind::kArea) {
      return FailAt(instruction, instruction.Spelling() + " to an address that is not followed");
    }
    const std::uint32_t bytes = TypeBytes(instruction.modifiers.back());
    const Operand& value = instruction.operands[1];
    const bool is_vector = value.kind == Operand::Kind::kVector;
    const std::size_t count = is_vector ? value.elements.size() : 1;
    const std::size_t area = GetArea(address.text);
    for (std::size_t i = 0; i < count; ++i) {
      const Node from = ValueFor(is_vector ? value.elements[i] : value, line);
      const std::int64_t offset = address.offset + static_cast<std::int64_t>(i * bytes);
      const bool is_word =
          bytes == kWordBytes && offset >= 0 && offset % std::int64_t{kWordBytes} == 0;
      if (is_word) {
        const Node word = program_.AreaWord(area, static_cast<std::uint64_t>(offset) / kWordBytes);
        AddStep(Rule::kCopy, word, {from});
      } else if (offset < 0 || bytes > kWordBytes) {
        AddStep(Rule::kForeign, program_.AnyWord(area), {from}, line,
                AddressValue::Foreign::kParts);
      } else {
        // The store covers part of one word, or of two.
        const std::uint64_t first = static_cast<std::uint64_t>(offset) / kWordBytes;
        const std::uint64_t last = (static_cast<std::uint64_t>(offset) + bytes - 1) / kWordBytes;
        for (const std::uint64_t word : {first, last}) {
          AddStep(Rule::kForeign, program_.AreaWord(area, word), {from}, line,
                  AddressValue::Foreign::kParts);
        }
      }
    }
  }

  void BuildCall(const Instruction& instruction) {
    const std::string_view name = CalleeName(instruction);
    const auto& operands = instruction.operands;
    const Operand* results = nullptr;
    const Operand* arguments = nullptr;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (operands[i].kind != Operand::Kind::kList) continue;
      (i == 0 ? results : arguments) = &operands[i];
    }
    const Function* const callee = calls_.FindBody(name);
    if (callee == nullptr || !numbers_.contains(callee)) {
      return BuildBuiltIn(instruction, name, arguments);
    }
    const auto is_parameter = [](const Variable& each) {
      return each.space == StateSpace::kParameter;
    };
    if (!std::ranges::all_of(callee->parameters, is_parameter) ||
        !std::ranges::all_of(callee->returns, is_parameter)) {
      return FailAt(instruction, "'" + std::string(name) + "' has its parameters in registers");
    }
    const std::size_t argument_count = arguments == nullptr ? 0 : arguments->elements.size();
    const std::size_t result_count = results == nullptr ? 0 : results->elements.size();
    if (argument_count != callee->parameters.size() || result_count != callee->returns.size()) {
      return FailAt(instruction,
                    "'" + std::string(name) + "' is called with other parameters than it declares");
    }
    for (std::size_t i = 0; i < argument_count; ++i) {
      PassArgument(arguments->elements[i],
                   program_.GetArea(numbers_.at(callee), callee->parameters[i].name),
                   instruction.position.line);
    }
    for (std::size_t i = 0; i < result_count; ++i) {
      TakeResult(results->elements[i],
                 program_.GetArea(numbers_.at(callee), callee->returns[i].name));
    }
  }

  void PassArgument(const Operand& argument, std::size_t to, std::uint32_t line) {
    if (GetKind(argument.text) == NameKind::kArea && argument.kind == Operand::Kind::kName) {
      return program_.CopyArea(GetArea(argument.text), to);
    }
    AddStep(Rule::kCopy, program_.AreaWord(to, 0), {ValueFor(argument, line)});
  }
  void TakeResult(const Operand& result, std::size_t from) {
    if (GetKind(result.text) == NameKind::kArea)
      return program_.CopyArea(from, GetArea(result.text));
    const std::uint32_t r = flow().FindRegister(result.text);
    if (r != kNoRegister) AddStep(Rule::kCopy, RegisterNode(r), {program_.AreaWord(from, 0)});
  }

  void BuildBuiltIn(const Instruction& instruction, std::string_view name,
                    const Operand* arguments) {
    if (name == "malloc" || name == "free") {
      return FailAt(instruction, "it uses the device heap");
    }
    constexpr std::size_t kLineArgument = 2;  // message, file, line, function, ...
    if (name != "__assertfail" || arguments == nullptr) {
      return FailAt(instruction, "it calls '" + std::string(name) +
                                     "', and it is not known what memory that touches");
    }
    // A failed assertion reads strings.
    for (std::size_t i = 0; i < arguments->elements.size() && i <= kLineArgument + 1; ++i) {
      if (i == kLineArgument) continue;
      const Operand& text = arguments->elements[i];
      const bool is_area = GetKind(text.text) == NameKind::kArea;
      AddUse(is_area ? program_.AreaWord(GetArea(text.text), 0)
                     : ValueFor(text, instruction.position.line),
             instruction);
    }
  }

  void Collect(KernelReach& reach) {
    AddressWords found;
    for (const Use& use : uses_) {
      const AddressValue& address = program_[use.address];
      const auto fail = [&](const std::string& why) {
        const std::string what = use.at->opcode == "call" ? "an assertion" : use.at->Spelling();
        FailAt(*use.at, use.function, what + " at an address that " + why);
      };
      if (address.IsNothing()) return fail("nothing has written");
      const bool is_pointer = address.kind == AddressValue::Kind::kPointer;
      if (address.IsForeign() && (!is_pointer || address.is_difference)) {
        return fail(Explain(address.foreign, address.foreign_line));
      }
      const AddressWords words =
          is_pointer && !address.is_difference ? address.roots : address.Words();
      if (words.none() && !address.HasOtherRoots()) {
        return fail("comes from no pointer among the parameters");
      }
      found |= words;
      reaches_variables_ |= address.is_variable;
    }
    reach.reaches_variables = reaches_variables_;
    reach.offsets = parameters_.GetOffsets(found, kReachOffsetsMax);
    if (reach.offsets.size() <= kReachOffsetsMax) return;
    reach.offsets.clear();
    Fail("more than " + std::to_string(kReachOffsetsMax) +
         " words of its parameters may be addresses");
  }

  const std::unordered_map<std::string_view, const Variable*>& variables_;
  const CallGraph& calls_;
  const std::span<const ReachFinder::AnalysedFunction> functions_;  // The kernel is the first one.
  ReachProgram program_;
  ParameterWords parameters_;
  std::string why_;
  std::unordered_map<const Function*, std::size_t> numbers_;  // Index in functions_.
  std::size_t current_ = 0;                                   // Index in functions_.
  std::unordered_map<std::string, StateSpace> local_names_;
  std::vector<Node> first_register_;  // By function: node of its first register.
  Node number_ = 0, own_ = 0, variable_ = 0;
  std::vector<Use> uses_;
  bool reaches_variables_ = false;
};

}  // namespace

ReachFinder::ReachFinder(const Module& module, const CallGraph& calls)
    : module_(module), calls_(calls) {
  for (const Item& item : module.items) {
    const auto* variable = std::get_if<Variable>(&item);
    if (variable != nullptr) variables_[variable->name] = variable;
  }
}

const Result<ControlFlow>& ReachFinder::GetFlow(const Function& function) {
  const auto known = flows_.find(&function);
  if (known != flows_.end()) return known->second;
  return flows_.emplace(&function, AnalyseControlFlow(function)).first->second;
}

KernelReach ReachFinder::Unknown(std::string why) {
  KernelReach reach;
  reach.why_unknown = KeptReason(std::move(why), reason_bytes_left_);
  return reach;
}

KernelReach ReachFinder::Find(std::span<const AnalysedFunction> functions) {
  if (module_.address_bits != 64) return Unknown("its addresses have 32 bits");
  if (steps_ > kReachStepsMax) return Unknown(std::string(kTooLong));
  KernelReach reach = Tracer(variables_, calls_, functions, steps_).Run();
  return reach.why_unknown.empty() ? reach : Unknown(std::move(reach.why_unknown));
}

KernelReach ReachFinder::Find(const Function& kernel) {
  // A kernel is analysed once, so GetFlow need not store its flow.
  const Result<ControlFlow> own = AnalyseControlFlow(kernel);
  if (!own) return Unknown(std::string(own.status().message()));
  std::vector<AnalysedFunction> functions = {{.function = &kernel, .flow = &*own}};
  for (const Function* function : calls_.Reachable(kernel)) {
    if (function == &kernel) continue;
    const Result<ControlFlow>& flow = GetFlow(*function);
    if (!flow) return Unknown(std::string(flow.status().message()));
    functions.push_back({.function = function, .flow = &*flow});
  }
  return Find(functions);
}

}  // namespace gpushared::ptx

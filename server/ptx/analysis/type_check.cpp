// SPDX-License-Identifier: Apache-2.0
#include "server/ptx/analysis/type_check.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "server/ptx/analysis/instruction_forms.h"

namespace gpushared::ptx {
namespace {

using Kind = OperandType::Kind;

constexpr std::int64_t kBarriers = 16;
constexpr std::int64_t kWarpThreads = 32;

// Declaration that a name refers to.
struct Meaning {
  enum class Of : std::uint8_t { kRegister, kVariable, kParameter, kUnknown };
  Of of = Of::kUnknown;
  OperandType type = {};
  StateSpace space = StateSpace::kRegister;
  std::uint32_t count = 0;  // Number of registers of a family %r<N>; 0 for a single name.
};
using RegisterScope = std::unordered_map<std::string_view, Meaning>;

std::string_view GetDigits(std::string_view name) {
  std::size_t begin = name.size();
  while (begin > 0 && name[begin - 1] >= '0' && name[begin - 1] <= '9') --begin;
  return name.substr(begin);
}

// Names of the module, which function bodies use as addresses. Functions have no state space.
using Symbols = std::unordered_map<std::string_view, std::optional<StateSpace>>;

// Checks a function in the order of its text.
class FunctionCheck {
 public:
  FunctionCheck(const Symbols& symbols, const Module& module, const Function& function)
      : symbols_(symbols), has_wide_addresses_(module.address_bits == 64), function_(function) {}

  Status Run() {
    scopes_.emplace_back();
    labels_.emplace_back();
    for (const Variable& result : function_.returns) Declare(result);
    for (const Variable& parameter : function_.parameters) Declare(parameter);
    for (const Statement& statement : *function_.body) {
      if (std::holds_alternative<ScopeBegin>(statement)) {
        scopes_.emplace_back();
        labels_.emplace_back();
      } else if (std::holds_alternative<ScopeEnd>(statement) && scopes_.size() > 1) {
        scopes_.pop_back();
        labels_.pop_back();
      } else if (const auto* variable = std::get_if<Variable>(&statement)) {
        Declare(*variable);
      } else if (const auto* label = std::get_if<Label>(&statement)) {
        if (!labels_.back().insert(label->name).second) {
          position_ = label->position;
          Reject("label '" + label->name + "' is defined twice");
        }
      } else if (const auto* instruction = std::get_if<Instruction>(&statement)) {
        Check(*instruction);
      }
      if (!why_.empty()) return {StatusCode::kInvalidArgument, GetLine(position_) + why_};
    }
    return {};
  }

 private:
  void Reject(std::string why) {
    if (why_.empty()) why_ = std::move(why);
  }

  void Declare(const Variable& variable) {
    Meaning meaning{.of = Meaning::Of::kVariable, .space = variable.space};
    if (variable.space == StateSpace::kRegister) {
      meaning.of = Meaning::Of::kRegister;
      const std::optional<OperandType> type = TypeNamed(variable.type);
      if (type) meaning.type = *type;
      // Registers of other types are not checked.
      if (!type) meaning.of = Meaning::Of::kUnknown;
      meaning.count = variable.register_count;
    } else if (variable.space == StateSpace::kParameter && scopes_.size() == 1 &&
               std::ranges::find(function_.parameters, variable.name, &Variable::name) !=
                   function_.parameters.end()) {
      meaning.of = Meaning::Of::kParameter;
    }
    scopes_.back()[variable.name] = meaning;
  }

  // Returns the declaration in the innermost scope, if any.
  std::optional<Meaning> Find(std::string_view name) const {
    const std::string_view digits = GetDigits(name);
    const std::string_view stem = name.substr(0, name.size() - digits.size());
    const bool is_member =
        !digits.empty() && digits.size() < 10 && (digits.size() == 1 || digits.front() != '0');
    const std::uint32_t number =
        is_member ? static_cast<std::uint32_t>(std::stoul(std::string(digits))) : 0;
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      const auto found = scope->find(name);
      if (found != scope->end() && found->second.count == 0) return found->second;
      if (!is_member) continue;
      const auto family = scope->find(stem);
      if (family != scope->end() && number < family->second.count) return family->second;
    }
    return std::nullopt;
  }

  void Check(const Instruction& instruction) {
    position_ = instruction.position;
    if (instruction.guard) CheckGuard(*instruction.guard);
    if (instruction.opcode == "bar" || instruction.opcode == "barrier") CheckBarrier(instruction);
    const std::optional<InstructionForm> form = GetForm(instruction);
    if (!form || !why_.empty()) return;
    if (const std::string_view why = WrongModifier(instruction); !why.empty()) {
      return Reject(instruction.Spelling() + " " + std::string(why));
    }
    CheckSpace(instruction);
    CheckOperands(instruction, *form);
  }

  void CheckGuard(const Guard& guard) {
    const std::optional<Meaning> meaning = Find(guard.predicate);
    if (!meaning || meaning->of != Meaning::Of::kRegister ||
        meaning->type.kind != Kind::kPredicate) {
      Reject("guard '" + guard.predicate + "' is not a predicate");
    }
  }

  void CheckBarrier(const Instruction& bar) {
    const std::size_t first = bar.Has("red") ? 1 : 0;
    // For a warp the operand is a mask, and for a cluster there is no operand.
    const bool is_of_blocks = !bar.Has("warp") && !bar.Has("cluster");
    if (bar.operands.size() <= first || !is_of_blocks) return;
    const Operand& number = bar.operands[first];
    if (number.kind == Operand::Kind::kInteger &&
        (number.integer < 0 || number.integer >= kBarriers)) {
      Reject("barrier " + number.text + " does not exist: expected 0 to 15");
    }
    const bool counts = bar.operands.size() > first + 1 && !bar.Has("red");
    if (counts && bar.operands[first + 1].kind == Operand::Kind::kInteger &&
        bar.operands[first + 1].integer % kWarpThreads != 0) {
      Reject("a barrier is for whole warps of 32 threads, not for " + bar.operands[first + 1].text);
    }
  }

  void RejectOperand(const Instruction& instruction, std::size_t i) {
    Reject("operand " + std::to_string(i + 1) + " of " + instruction.Spelling() +
           " has the wrong type, or is no register");
  }

  void CheckSpace(const Instruction& instruction) {
    if (instruction.opcode != "st" || instruction.operands.empty()) return;
    if (instruction.Has("const")) return Reject("constant memory cannot be stored to");
    if (!function_.is_entry || !instruction.Has("param")) return;
    const std::optional<Meaning> base = Find(instruction.operands[0].text);
    if (base && base->of == Meaning::Of::kParameter) {
      Reject("parameter '" + instruction.operands[0].text + "' of a kernel cannot be stored to");
    }
  }

  void CheckOperands(const Instruction& instruction, const InstructionForm& form) {
    const std::size_t count = instruction.operands.size();
    if (count < form.least || count > form.slots.size()) {
      return Reject(instruction.Spelling() + " has " + std::to_string(count) + " operands, " +
                    std::to_string(form.least) + " to " + std::to_string(form.slots.size()) +
                    " are allowed");
    }
    std::vector<OperandType> types;
    for (const std::string& modifier : instruction.modifiers) {
      if (const auto type = TypeNamed(modifier)) types.push_back(*type);
    }
    if (!IsAllowed(types.front(), form.kinds)) {
      return Reject(instruction.Spelling() + " has an unsupported type");
    }
    const Operand::Kind first = instruction.operands.front().kind;
    if (first == Operand::Kind::kInteger || first == Operand::Kind::kFloat) {
      return Reject(instruction.Spelling() + " has a constant as its result operand");
    }
    for (std::size_t i = 0; i < count && why_.empty(); ++i) {
      const auto slot = static_cast<Slot>(form.slots[i]);
      OperandType type = slot == Slot::kLast || slot == Slot::kLoose ? types.back() : types.front();
      if (slot == Slot::kWide) type.bytes = static_cast<std::uint8_t>(type.bytes * 2);
      if (slot == Slot::kCount) type = {Kind::kInteger, 4};
      if (slot == Slot::kPredicate) type = {Kind::kPredicate, 0};
      if (!Fits(instruction, instruction.operands[i], slot, type)) {
        RejectOperand(instruction, i);
      }
    }
  }

  static bool IsAllowed(const OperandType& type, std::string_view kinds) {
    const char letter = type.kind == Kind::kPredicate ? 'p'
                        : type.kind == Kind::kBits    ? 'b'
                        : type.kind == Kind::kInteger ? 'i'
                                                      : 'f';
    return kinds.find(letter) != std::string_view::npos;
  }

  bool Fits(const Instruction& instruction, const Operand& operand, Slot slot,
            const OperandType& type) const {
    if (slot == Slot::kAny) return true;
    const bool is_loose = slot == Slot::kLoose || slot == Slot::kLooseTo;
    switch (operand.kind) {
      case Operand::Kind::kName:
        return slot != Slot::kAddress && FitsName(instruction, operand, type, is_loose);
      case Operand::Kind::kInteger:
        return slot != Slot::kAddress && FitsInteger(type);
      case Operand::Kind::kFloat:
        return slot != Slot::kAddress && FitsFloat(operand, slot, type);
      case Operand::Kind::kAddress:
        return slot == Slot::kAddress && FitsAddress(instruction, operand);
      case Operand::Kind::kVector:
        return FitsVector(instruction, operand, type, is_loose);
      case Operand::Kind::kPair:
      case Operand::Kind::kList:
        return true;
    }
    return true;
  }

  static bool FitsInteger(const OperandType& type) {
    return type.kind == Kind::kInteger || type.kind == Kind::kBits || type.kind == Kind::kPredicate;
  }

  // The hexadecimal forms 0f3F800000 and 0d3FF0000000000000 may also be 32 and 64 untyped bits; 1.5
  // may not.
  static bool FitsFloat(const Operand& operand, Slot slot, const OperandType& type) {
    if (slot == Slot::kCount || type.kind == Kind::kPredicate) return false;
    if (type.kind == Kind::kFloat) return type.bytes >= 4;
    const bool is_single = operand.text.starts_with("0f") || operand.text.starts_with("0F");
    const bool is_double = operand.text.starts_with("0d") || operand.text.starts_with("0D");
    return type.kind == Kind::kBits &&
           ((is_single && type.bytes == 4) || (is_double && type.bytes == 8));
  }

  bool FitsName(const Instruction& instruction, const Operand& operand, const OperandType& type,
                bool is_loose, bool in_vector = false) const {
    std::string_view name = operand.text;
    if (instruction.opcode == "vmad" && name.starts_with('-')) name.remove_prefix(1);
    if (name == "_" || name == "WARP_SZ") return true;
    if (const std::size_t dot = name.find('.'); dot != std::string_view::npos) {
      const std::string_view whole = name.substr(0, dot);
      return Find(whole) || !IsPerhapsSpecial(whole) || FitsSpecial(instruction, whole, type);
    }
    const std::optional<Meaning> meaning = Find(name);
    if (meaning) {
      if (meaning->of != Meaning::Of::kRegister) return FitsSymbol(instruction, type);
      const bool is_access = instruction.opcode == "ld" || instruction.opcode == "st";
      if (is_access && !in_vector && GetValues(instruction) != 1 && is_loose) return false;
      return FitsRegister(meaning->type, type, is_loose);
    }
    if (symbols_.contains(name)) return FitsSymbol(instruction, type);
    return IsPerhapsSpecial(name) && FitsSpecial(instruction, name, type);
  }

  // Only mov and cvt read special registers, most of which have 32 bits.
  static bool FitsSpecial(const Instruction& instruction, std::string_view name,
                          const OperandType& type) {
    if (instruction.opcode == "cvt") return true;
    if (instruction.opcode != "mov" || type.kind == Kind::kFloat) return false;
    const bool is_wide = name == "%clock64" || name == "%globaltimer" || name.ends_with("_64") ||
                         name == "%current_graph_exec" || name == "%gridid";
    // %gridid had 32 bits in early versions.
    return is_wide ? type.bytes == 8 || name == "%gridid" : type.bytes != 8;
  }

  // mov, cvta, cvt and st accept the address of a symbol as an integer or untyped operand.
  static bool FitsSymbol(const Instruction& instruction, const OperandType& type) {
    const bool takes = instruction.opcode == "mov" || instruction.opcode == "cvta" ||
                       instruction.opcode == "cvt" || instruction.opcode == "st";
    return takes && (type.kind == Kind::kInteger || type.kind == Kind::kBits);
  }

  // Special registers have names like %clock and %envreg3, unlike an undeclared %r3.
  static bool IsPerhapsSpecial(std::string_view name) {
    if (!name.starts_with('%')) return false;
    const std::string_view digits = GetDigits(name);
    if (digits.empty()) return true;
    const std::string_view stem = name.substr(0, name.size() - digits.size());
    return stem == "%envreg" || stem == "%pm" || stem == "%clock" || stem.ends_with('_');
  }

  // PTX ISA 9.4.1: untyped bits are compatible with all types of their size, and integers of either
  // sign with each other.
  static bool FitsRegister(const OperandType& given, const OperandType& wanted, bool is_loose) {
    const bool is_wider = is_loose && given.bytes > wanted.bytes;
    if (given.kind == Kind::kPredicate || wanted.kind == Kind::kPredicate) {
      return given.kind == wanted.kind;
    }
    if (given.bytes != wanted.bytes && !is_wider) return false;
    switch (wanted.kind) {
      case Kind::kPredicate:
        return false;
      case Kind::kBits:
        return true;
      case Kind::kInteger:
        return given.kind == Kind::kInteger || given.kind == Kind::kBits ||
               given.kind == Kind::kHalfPair;
      case Kind::kFloat:
        return given.kind == Kind::kBits || (given.kind == Kind::kFloat && !is_wider);
      case Kind::kHalfPair:
        return given.kind == Kind::kBits || given.kind == Kind::kHalfPair;
      case Kind::kBrainFloat:
        return given.kind == Kind::kBits;
    }
    return true;
  }

  // Addresses are integers, with the width of the module's addresses if they are generic or global.
  bool FitsAddress(const Instruction& instruction, const Operand& address) const {
    const std::optional<Meaning> base = Find(address.text);
    if (!base || base->of != Meaning::Of::kRegister) {
      const auto symbol = symbols_.find(address.text);
      if (!base && (symbol == symbols_.end() || !symbol->second)) return true;
      return FitsSpace(instruction, base ? base->space : *symbol->second);
    }
    const bool is_number = base->type.kind == Kind::kInteger || base->type.kind == Kind::kBits;
    if (!is_number || base->type.bytes > 8) return false;
    const bool is_narrow = std::ranges::any_of(instruction.modifiers, [](const std::string& each) {
      return each.starts_with("shared") || each == "local" || each.starts_with("param") ||
             each == "const";
    });
    return is_narrow || !has_wide_addresses_ || base->type.bytes != 4;
  }

  // A variable is accessed through its own state space or without one.
  static bool FitsSpace(const Instruction& instruction, StateSpace space) {
    for (const std::string& each : instruction.modifiers) {
      if (each == "global" && space != StateSpace::kGlobal) return false;
      if (each == "const" && space != StateSpace::kConstant) return false;
      if (each == "local" && space != StateSpace::kLocal) return false;
      if (each.starts_with("shared") && space != StateSpace::kShared) return false;
      if (each.starts_with("param") && space != StateSpace::kParameter) return false;
    }
    return true;
  }

  // Returns the number of values of a load or store, given by .v2, .v4 or .v8.
  static std::size_t GetValues(const Instruction& instruction) {
    return instruction.Has("v2") ? 2 : instruction.Has("v4") ? 4 : instruction.Has("v8") ? 8 : 1;
  }

  bool FitsVector(const Instruction& instruction, const Operand& vector, const OperandType& type,
                  bool is_loose) const {
    OperandType element = type;
    if (instruction.opcode == "mov") {
      if (instruction.Has("v2") || instruction.Has("v4")) return true;
      // At most one of the two operands is a vector.
      if (std::ranges::count(instruction.operands, Operand::Kind::kVector, &Operand::kind) > 1) {
        return false;
      }
      // mov.b64 {low, high}: the elements divide the bits equally.
      const std::size_t count = vector.elements.size();
      if (type.kind != Kind::kBits || (count != 2 && count != 4)) return false;
      element = {Kind::kBits, static_cast<std::uint8_t>(type.bytes / vector.elements.size())};
    } else if (vector.elements.size() != GetValues(instruction)) {
      return false;
    }
    std::optional<std::uint8_t> bytes;  // Common size of all registers.
    return std::ranges::all_of(vector.elements, [&](const Operand& each) {
      if (each.kind != Operand::Kind::kName) return true;
      const std::optional<Meaning> meaning = Find(each.text);
      if (meaning && meaning->of == Meaning::Of::kRegister) {
        if (bytes.value_or(meaning->type.bytes) != meaning->type.bytes) return false;
        bytes = meaning->type.bytes;
      }
      return FitsName(instruction, each, element, is_loose, /*in_vector=*/true);
    });
  }

  const Symbols& symbols_;
  const bool has_wide_addresses_;
  const Function& function_;
  std::vector<RegisterScope> scopes_;
  std::vector<std::unordered_set<std::string_view>> labels_;
  SourcePosition position_;
  std::string why_;
};

// Checks that each name is defined once, with one meaning.
class NameTable {
 public:
  Status Add(const Item& item) {
    if (const auto* function = std::get_if<Function>(&item)) {
      symbols_.try_emplace(function->name, std::nullopt);
      return Add(function->name, function->position, function->is_entry ? "a kernel" : "a function",
                 function->body.has_value());
    }
    const auto* variable = std::get_if<Variable>(&item);
    if (variable == nullptr) return {};
    symbols_.try_emplace(variable->name, variable->space);
    const bool is_defined = variable->linkage != ".extern" && variable->linkage != ".common";
    return Add(variable->name, variable->position, "a variable", is_defined);
  }
  const Symbols& symbols() const { return symbols_; }

 private:
  struct Known {
    std::string_view what;
    bool is_defined = false;
  };
  Status Add(const std::string& name, const SourcePosition& at, std::string_view what,
             bool is_defined) {
    const auto [known, is_new] = known_.try_emplace(name, Known{what, is_defined});
    if (is_new) return {};
    if (known->second.what != what) {
      return {StatusCode::kInvalidArgument, GetLine(at) + "'" + name + "' is " + std::string(what) +
                                                " and " + std::string(known->second.what)};
    }
    if (known->second.is_defined && is_defined) {
      return {StatusCode::kInvalidArgument,
              GetLine(at) + std::string(what) + " '" + name + "' is defined twice"};
    }
    known->second.is_defined = known->second.is_defined || is_defined;
    return {};
  }

  std::unordered_map<std::string_view, Known> known_;
  Symbols symbols_;
};

}  // namespace

Status CheckTypes(const Module& module) {
  NameTable names;
  for (const Item& item : module.items) {
    if (Status status = names.Add(item); !status.ok()) return status;
  }
  for (const Item& item : module.items) {
    const auto* function = std::get_if<Function>(&item);
    if (function == nullptr || !function->body) continue;
    Status status = FunctionCheck(names.symbols(), module, *function).Run();
    if (!status.ok()) return status;
  }
  return {};
}

}  // namespace gpushared::ptx

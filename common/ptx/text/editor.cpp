// SPDX-License-Identifier: Apache-2.0
#include "common/ptx/text/editor.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <set>
#include <utility>
#include <variant>

#include "common/ptx/text/printer.h"

namespace gpushared::ptx {
namespace {

constexpr std::string_view kPrefixStem = "__gs";
constexpr std::uint64_t kParameterBytesLarge = 32764;
constexpr std::uint64_t kParameterBytesSmall = 4352;

std::uint64_t RoundUp(std::uint64_t value, std::uint64_t step) {
  return (value + step - 1) / step * step;
}

// Returns the first "__gs<N>_" such that `text` does not contain "__gs<N>".
std::string FreePrefix(std::string_view text) {
  std::set<std::uint64_t> taken;
  for (std::size_t at = text.find(kPrefixStem); at != std::string_view::npos;
       at = text.find(kPrefixStem, at + 1)) {
    std::uint64_t number = 0;
    const char* digits = text.data() + at + kPrefixStem.size();
    // Numbers that exceed 64 bits are ignored, because they are never chosen.
    if (std::from_chars(digits, text.data() + text.size(), number).ec == std::errc()) {
      taken.insert(number);
    }
  }
  std::uint64_t free = 0;
  for (const std::uint64_t number : taken) {
    if (number != free) break;
    ++free;
  }
  return std::string(kPrefixStem) + std::to_string(free) + "_";
}

// Returns the digits at the start of `text` as a number.
std::uint32_t LeadingNumber(std::string_view text) {
  std::uint32_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

}  // namespace

Operand Name(std::string text) {
  Operand operand;
  operand.text = std::move(text);
  return operand;
}

Operand Integer(std::int64_t value) {
  Operand operand{.kind = Operand::Kind::kInteger};
  operand.text = std::to_string(value);
  operand.integer = value;
  return operand;
}

Operand Address(std::string base, std::int64_t offset) {
  Operand operand{.kind = Operand::Kind::kAddress};
  operand.text = std::move(base);
  operand.offset = offset;
  return operand;
}

Operand Vector(std::vector<Operand> elements) {
  Operand operand{.kind = Operand::Kind::kVector};
  operand.elements = std::move(elements);
  return operand;
}

Instruction Make(std::string_view spelling, std::vector<Operand> operands) {
  Instruction instruction;
  std::size_t dot = spelling.find('.');
  instruction.opcode = spelling.substr(0, dot);
  while (dot != std::string_view::npos) {
    const std::size_t next = spelling.find('.', dot + 1);
    instruction.modifiers.emplace_back(spelling.substr(dot + 1, next - dot - 1));
    dot = next;
  }
  instruction.operands = std::move(operands);
  return instruction;
}

Instruction MakeIf(std::string predicate, std::string_view spelling,
                   std::vector<Operand> operands) {
  Instruction instruction = Make(spelling, std::move(operands));
  instruction.guard = Guard{.predicate = std::move(predicate), .negated = false};
  return instruction;
}

std::uint32_t TargetArchitecture(const Module& module) {
  constexpr std::string_view kStem = "sm_";
  if (!module.target.starts_with(kStem)) return 0;
  return LeadingNumber(std::string_view(module.target).substr(kStem.size()));
}

bool HasVersion(const Module& module, std::uint32_t major, std::uint32_t minor) {
  const std::size_t dot = module.version.find('.');
  if (dot == std::string::npos) return false;
  const std::uint32_t its_major = LeadingNumber(module.version);
  const std::uint32_t its_minor = LeadingNumber(std::string_view(module.version).substr(dot + 1));
  return its_major != major ? its_major > major : its_minor >= minor;
}

std::vector<ParameterPlace> PlaceParameters(const Function& kernel) {
  std::vector<ParameterPlace> places;
  std::uint64_t end = 0;
  for (const Variable& parameter : kernel.parameters) {
    const std::uint64_t offset = RoundUp(end, parameter.NaturalAlignment());
    end = offset + parameter.Bytes();
    places.push_back({.variable = &parameter, .offset = offset, .end = end});
  }
  return places;
}

std::uint64_t ParameterBytes(const Function& kernel) {
  const std::vector<ParameterPlace> places = PlaceParameters(kernel);
  return places.empty() ? 0 : places.back().end;
}

std::uint64_t ParameterBytesMax(const Module& module) {
  const bool large = HasVersion(module, 8, 1) && TargetArchitecture(module) >= 70;
  return large ? kParameterBytesLarge : kParameterBytesSmall;
}

ModuleEditor::ModuleEditor(Module& module) : module_(module), prefix_(FreePrefix(Print(module))) {}

std::string ModuleEditor::HiddenName(std::string_view stem) const {
  return prefix_ + std::string(stem);
}

std::string ModuleEditor::UniqueName(std::string_view stem) {
  std::string name = HiddenName(std::to_string(names_given_++) + "_" + std::string(stem));
  std::ranges::replace(name, '%', '_');  // '%' is only allowed at the beginning of a name.
  return name;
}

void ModuleEditor::AddVariable(Variable variable) {
  std::vector<Item> items;
  items.reserve(module_.items.size() + 1);
  bool is_added = false;
  for (Item& item : module_.items) {
    if (!is_added && std::holds_alternative<Function>(item)) {
      items.emplace_back(variable);
      is_added = true;
    }
    items.push_back(std::move(item));
  }
  if (!is_added) items.emplace_back(std::move(variable));
  module_.items = std::move(items);
}

Result<ModuleEditor::Parameter> ModuleEditor::AppendParameter(Function& kernel, std::uint32_t bytes,
                                                              std::uint32_t alignment) {
  const std::uint64_t offset = RoundUp(ParameterBytes(kernel), alignment);
  const std::uint64_t allowed = ParameterBytesMax(module_);
  if (offset > allowed || bytes > allowed - offset) {
    return Status(StatusCode::kLimitExceeded, "parameter rejected: kernel '" + kernel.name +
                                                  "' would have " + std::to_string(offset + bytes) +
                                                  " bytes of parameters, " +
                                                  std::to_string(allowed) + " are allowed");
  }
  Variable variable;
  variable.space = StateSpace::kParameter;
  variable.alignment = alignment;
  variable.type = "b8";
  variable.name = UniqueName("parameter");
  variable.extents = {bytes};
  Parameter added{.name = variable.name, .offset = static_cast<std::uint32_t>(offset)};
  kernel.parameters.push_back(std::move(variable));
  return added;
}

FunctionEditor::FunctionEditor(ModuleEditor& names, Function& function)
    : names_(names), function_(function) {}

std::string FunctionEditor::NewRegister(std::string_view type) {
  auto found = families_.find(type);
  if (found == families_.end()) {
    const std::string name = "%" + names_.UniqueName(type) + "_";
    found = families_.emplace(std::string(type), Family{.name = name, .count = 0}).first;
  }
  Family& family = found->second;
  return family.name + std::to_string(family.count++);
}

std::string FunctionEditor::NewLabel() { return "$" + names_.UniqueName("label"); }

void FunctionEditor::InsertBefore(std::size_t index, Statement statement) {
  before_[index].push_back(std::move(statement));
}

void FunctionEditor::InsertAfter(std::size_t index, Statement statement) {
  after_[index].push_back(std::move(statement));
}

void FunctionEditor::InsertAtEntry(Statement statement) {
  at_entry_.push_back(std::move(statement));
}

std::size_t FunctionEditor::EntryIndex() const {
  const auto comes_first = [](const Statement& statement) {
    return std::holds_alternative<Variable>(statement) ||
           std::holds_alternative<Directive>(statement);
  };
  const std::vector<Statement>& body = *function_.body;
  return static_cast<std::size_t>(std::ranges::find_if_not(body, comes_first) - body.begin());
}

void FunctionEditor::Apply() {
  const std::size_t entry = EntryIndex();
  std::vector<Statement> old = std::exchange(*function_.body, {});
  std::vector<Statement>& body = *function_.body;
  const auto append = [&body](std::vector<Statement>& statements) {
    std::ranges::move(statements, std::back_inserter(body));
  };
  for (const auto& [type, family] : families_) {
    Variable variable;
    variable.type = type;
    variable.name = family.name;
    variable.register_count = family.count;
    body.emplace_back(std::move(variable));
  }
  for (std::size_t i = 0; i <= old.size(); ++i) {
    if (i == entry) append(at_entry_);
    if (const auto found = before_.find(i); found != before_.end()) append(found->second);
    if (i == old.size()) break;
    body.push_back(std::move(old[i]));
    if (const auto found = after_.find(i); found != after_.end()) append(found->second);
  }
  before_.clear();
  after_.clear();
  at_entry_.clear();
  families_.clear();
}

}  // namespace gpushared::ptx

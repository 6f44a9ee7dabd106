// SPDX-License-Identifier: Apache-2.0
#include "common/ptx/text/printer.h"

#include <string_view>
#include <variant>

namespace gpushared::ptx {
namespace {

// Appends to a single string, because a module may have millions of operands.
class Writer {
 public:
  void Write(const Module& module);
  void Write(const Instruction& instruction);
  void Write(const Operand& operand);
  std::string Take() { return std::move(out_); }

 private:
  void Write(const Function& function);
  void Write(const Variable& variable);
  void Write(const Statement& statement);
  void WriteParameters(const std::vector<Variable>& variables);
  void WriteElements(const std::vector<Operand>& elements, std::string_view separator);
  void WriteBase(const Operand& operand);

  std::string out_;
};

std::string_view SpaceName(StateSpace space) {
  switch (space) {
    case StateSpace::kRegister:
      return ".reg";
    case StateSpace::kShared:
      return ".shared";
    case StateSpace::kLocal:
      return ".local";
    case StateSpace::kParameter:
      return ".param";
    case StateSpace::kConstant:
      return ".const";
    case StateSpace::kGlobal:
      return ".global";
  }
  return ".global";
}

void Writer::WriteElements(const std::vector<Operand>& elements, std::string_view separator) {
  for (std::size_t i = 0; i < elements.size(); ++i) {
    if (i != 0) out_ += separator;
    Write(elements[i]);
  }
}

void Writer::WriteBase(const Operand& operand) {
  out_ += operand.text;
  if (operand.offset == 0) return;
  // ptxas accepts and nvcc writes "+-4".
  out_ += '+';
  out_ += std::to_string(operand.offset);
}

void Writer::Write(const Operand& operand) {
  if (operand.negated) out_ += '!';
  switch (operand.kind) {
    case Operand::Kind::kName:
    case Operand::Kind::kInteger:
    case Operand::Kind::kFloat:
      WriteBase(operand);
      break;
    case Operand::Kind::kAddress:
      out_ += '[';
      WriteBase(operand);
      if (!operand.elements.empty()) out_ += ", ";
      WriteElements(operand.elements, ", ");
      out_ += ']';
      break;
    case Operand::Kind::kVector:
      out_ += '{';
      WriteElements(operand.elements, ", ");
      out_ += '}';
      break;
    case Operand::Kind::kList:
      out_ += '(';
      WriteElements(operand.elements, ", ");
      out_ += ')';
      break;
    case Operand::Kind::kPair:
      WriteElements(operand.elements, "|");
      break;
  }
}

void Writer::Write(const Instruction& instruction) {
  if (instruction.guard) {
    out_ += instruction.guard->negated ? "@!" : "@";
    out_ += instruction.guard->predicate;
    out_ += ' ';
  }
  out_ += instruction.opcode;
  for (const std::string& modifier : instruction.modifiers) {
    out_ += '.';
    out_ += modifier;
  }
  if (!instruction.operands.empty()) out_ += ' ';
  WriteElements(instruction.operands, ", ");
}

void Writer::Write(const Variable& variable) {
  if (!variable.linkage.empty()) {
    out_ += variable.linkage;
    out_ += ' ';
  }
  out_ += SpaceName(variable.space);
  // `.ptr` follows the type, `.attribute` precedes it.
  const bool behind_type = variable.attributes.starts_with(".ptr");
  if (!variable.attributes.empty() && !behind_type) out_ += ' ' + variable.attributes;
  if (variable.alignment != 0) out_ += " .align " + std::to_string(variable.alignment);
  if (variable.vector_size != 1) out_ += " .v" + std::to_string(variable.vector_size);
  out_ += " .";
  out_ += variable.type;
  if (behind_type) out_ += ' ' + variable.attributes;
  out_ += ' ';
  out_ += variable.name;
  if (variable.register_count != 0) out_ += '<' + std::to_string(variable.register_count) + '>';
  for (const std::uint64_t extent : variable.extents) {
    out_ += '[';
    if (extent != 0) out_ += std::to_string(extent);
    out_ += ']';
  }
  if (variable.initializer) {
    out_ += " = ";
    out_ += *variable.initializer;
  }
}

void Writer::Write(const Statement& statement) {
  if (const auto* label = std::get_if<Label>(&statement)) {
    out_ += label->name;
    out_ += ":\n";
    return;
  }
  out_ += '\t';
  if (const auto* instruction = std::get_if<Instruction>(&statement)) {
    Write(*instruction);
    out_ += ';';
  } else if (const auto* variable = std::get_if<Variable>(&statement)) {
    Write(*variable);
    out_ += ';';
  } else if (const auto* directive = std::get_if<Directive>(&statement)) {
    out_ += directive->text;
  } else {
    out_ += std::holds_alternative<ScopeBegin>(statement) ? '{' : '}';
  }
  out_ += '\n';
}

void Writer::WriteParameters(const std::vector<Variable>& variables) {
  out_ += '(';
  for (std::size_t i = 0; i < variables.size(); ++i) {
    out_ += i == 0 ? "\n\t" : ",\n\t";
    Write(variables[i]);
  }
  out_ += variables.empty() ? ")" : "\n)";
}

void Writer::Write(const Function& function) {
  if (!function.linkage.empty()) {
    out_ += function.linkage;
    out_ += ' ';
  }
  out_ += function.is_entry ? ".entry " : ".func ";
  if (!function.attributes.empty()) {
    out_ += function.attributes;
    out_ += ' ';
  }
  if (!function.returns.empty()) {
    WriteParameters(function.returns);
    out_ += ' ';
  }
  out_ += function.name;
  WriteParameters(function.parameters);
  out_ += '\n';
  for (const Directive& directive : function.performance) {
    out_ += directive.text;
    out_ += '\n';
  }
  if (!function.body) {
    out_ += ";\n";
    return;
  }
  out_ += "{\n";
  for (const Statement& statement : *function.body) Write(statement);
  out_ += "}\n";
}

void Writer::Write(const Module& module) {
  out_ += ".version " + module.version + "\n.target " + module.target + "\n.address_size " +
          std::to_string(module.address_bits) + "\n";
  for (const Item& item : module.items) {
    out_ += '\n';
    if (const auto* function = std::get_if<Function>(&item)) {
      Write(*function);
    } else if (const auto* variable = std::get_if<Variable>(&item)) {
      Write(*variable);
      out_ += ";\n";
    } else {
      out_ += std::get<Directive>(item).text;
      out_ += '\n';
    }
  }
}

template <typename T>
std::string PrintOne(const T& thing) {
  Writer writer;
  writer.Write(thing);
  return writer.Take();
}

}  // namespace

std::string Print(const Module& module) { return PrintOne(module); }
std::string Print(const Instruction& instruction) { return PrintOne(instruction); }

}  // namespace gpushared::ptx

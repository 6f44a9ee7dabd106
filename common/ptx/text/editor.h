// SPDX-License-Identifier: Apache-2.0
// What passes change modules with: instructions made and inserted, registers, labels,
// parameters and module variables of names that the client's text cannot know.

#ifndef GPUSHARED_COMMON_PTX_TEXT_EDITOR_H_
#define GPUSHARED_COMMON_PTX_TEXT_EDITOR_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "gpushared/result.h"

#include "common/ptx/text/module.h"

namespace gpushared::ptx {

// Operands and instructions as passes write them. Their position is line 0.
Operand Name(std::string text);
Operand Integer(std::int64_t value);
Operand Address(std::string base, std::int64_t offset = 0);
// The offset of a member, as an operand has it.
constexpr std::int64_t GetOffset(std::size_t member) { return static_cast<std::int64_t>(member); }
Operand Vector(std::vector<Operand> elements);
// `spelling` as in PTX, without operands: "ld.param.u32".
Instruction Make(std::string_view spelling, std::vector<Operand> operands = {});
Instruction MakeIf(std::string predicate, std::string_view spelling,
                   std::vector<Operand> operands = {});

// Calls visit(operand) for each operand and, inside out, for the elements of it.
template <typename InstructionType, typename Visit>
void ForEachOperand(InstructionType& instruction, Visit visit) {
  const auto walk = [&visit](auto& self, auto& operand) -> void {
    for (auto& element : operand.elements) self(self, element);
    visit(operand);
  };
  for (auto& operand : instruction.operands) walk(walk, operand);
}

// "sm_90a, texmode_independent" is 90; 0 when the target says no such thing.
std::uint32_t TargetArchitecture(const Module& module);
// Whether .version is at least this; false for a version that cannot be read.
bool HasVersion(const Module& module, std::uint32_t major, std::uint32_t minor);

// Where a kernel's parameters lie as a launch packs them, in their order.
struct ParameterPlace {
  const Variable* variable = nullptr;
  std::uint64_t offset = 0, end = 0;
};
std::vector<ParameterPlace> PlaceParameters(const Function& kernel);
// Bytes of all of them, without tail padding.
std::uint64_t ParameterBytes(const Function& kernel);
// What they may reach: 32,764 bytes from PTX 8.1 and sm_70 on, else 4,352.
std::uint64_t ParameterBytesMax(const Module& module);

// Gives out names for one pass over one module, and adds what stands outside functions.
//
// Every name contains a prefix that occurs nowhere in the module as printed when the editor was
// made. So no text of the client can mean it. Thread-compatible; borrows the module.
class ModuleEditor {
 public:
  explicit ModuleEditor(Module& module);

  Module& module() { return module_; }
  // The prefix, `stem`, and nothing else: the same stem gives the same name.
  std::string HiddenName(std::string_view stem) const;
  // Different at every call.
  std::string UniqueName(std::string_view stem);

  // Adds a variable ahead of the first function; its name is the caller's (HiddenName).
  // References to the module's items are not valid afterwards.
  void AddVariable(Variable variable);

  struct Parameter {
    std::string name;
    std::uint32_t offset = 0;  // In the buffer of all parameters.
  };
  // Adds `.param .align A .b8 name[bytes]` behind the last parameter of `kernel`, so all others
  // keep their offsets. kLimitExceeded when the sum would pass ParameterBytesMax.
  Result<Parameter> AppendParameter(Function& kernel, std::uint32_t bytes, std::uint32_t alignment);

 private:
  Module& module_;
  std::string prefix_;
  std::uint32_t names_given_ = 0;
};

// Collects changes to one function body and applies them together, so that statements keep
// their indices while a pass looks at them.
//
// Thread-compatible; borrows the function, whose body nobody else changes until Apply().
class FunctionEditor {
 public:
  FunctionEditor(ModuleEditor& names, Function& function);
  FunctionEditor(const FunctionEditor&) = delete;
  FunctionEditor& operator=(const FunctionEditor&) = delete;

  // Statements of the body as it was; may be changed or replaced in place.
  std::size_t size() const { return function_.body->size(); }
  Statement& At(std::size_t index) { return (*function_.body)[index]; }

  // A register that the whole function sees. `type` as declared: "b32", "pred".
  std::string NewRegister(std::string_view type);
  std::string NewLabel();

  // In the order of calls. What stands before statement i also stands behind the labels
  // before it, so every way to i passes it.
  void InsertBefore(std::size_t index, Statement statement);
  void InsertAfter(std::size_t index, Statement statement);
  // Ahead of all instructions and labels, behind declarations and directives that come first.
  void InsertAtEntry(Statement statement);

  // Writes the new body, with the new registers declared first. The editor is then empty
  // and counts the new body's statements.
  void Apply();

 private:
  std::size_t EntryIndex() const;

  ModuleEditor& names_;
  Function& function_;
  std::map<std::size_t, std::vector<Statement>> before_;
  std::map<std::size_t, std::vector<Statement>> after_;
  std::vector<Statement> at_entry_;
  struct Family {
    std::string name;
    std::uint32_t count = 0;
  };
  std::map<std::string, Family, std::less<>> families_;  // By type.
};

}  // namespace gpushared::ptx

#endif  // GPUSHARED_COMMON_PTX_TEXT_EDITOR_H_

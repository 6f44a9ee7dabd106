// SPDX-License-Identifier: Apache-2.0
// Tools for passes that modify modules: they create and insert instructions, registers, labels,
// parameters and module variables with names that cannot occur in the client's text.

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

// Operands and instructions created by passes. Their position is line 0.
Operand Name(std::string text);
Operand Integer(std::int64_t value);
Operand Address(std::string base, std::int64_t offset = 0);
// Converts the offset of a member to the type of an operand's offset.
constexpr std::int64_t GetOffset(std::size_t member) { return static_cast<std::int64_t>(member); }
Operand Vector(std::vector<Operand> elements);
// `spelling` in PTX syntax, without operands: "ld.param.u32".
Instruction Make(std::string_view spelling, std::vector<Operand> operands = {});
Instruction MakeIf(std::string predicate, std::string_view spelling,
                   std::vector<Operand> operands = {});

// Calls visit(operand) for each operand and, from the inside out, for its elements.
template <typename InstructionType, typename Visit>
void ForEachOperand(InstructionType& instruction, Visit visit) {
  const auto walk = [&visit](auto& self, auto& operand) -> void {
    for (auto& element : operand.elements) self(self, element);
    visit(operand);
  };
  for (auto& operand : instruction.operands) walk(walk, operand);
}

// Returns 90 for "sm_90a, texmode_independent"; 0 for an unknown target.
std::uint32_t TargetArchitecture(const Module& module);
// Whether .version is at least major.minor; false for an invalid version.
bool HasVersion(const Module& module, std::uint32_t major, std::uint32_t minor);

// A parameter of a kernel, with its place in the buffer of all parameters that a launch passes.
struct ParameterPlace {
  const Variable* variable = nullptr;
  std::uint64_t offset = 0, end = 0;
};
std::vector<ParameterPlace> PlaceParameters(const Function& kernel);
// Returns the total size of the kernel's parameters, without tail padding.
std::uint64_t ParameterBytes(const Function& kernel);
// Returns the limit for ParameterBytes: 32,764 from PTX 8.1 and sm_70 on, otherwise 4,352.
std::uint64_t ParameterBytesMax(const Module& module);

// Creates names for one pass over one module, and adds declarations outside of functions.
//
// Every name contains a prefix that does not occur in the module as printed when the editor was
// created, so the client's text cannot refer to it. Thread-compatible; borrows the module.
class ModuleEditor {
 public:
  explicit ModuleEditor(Module& module);

  Module& module() { return module_; }
  // Returns the prefix followed by `stem`: the same stem gives the same name.
  std::string HiddenName(std::string_view stem) const;
  // Returns a different name for every call.
  std::string UniqueName(std::string_view stem);

  // Adds a variable before the first function; the caller chooses its name (HiddenName).
  // Invalidates references to the module's items.
  void AddVariable(Variable variable);

  struct Parameter {
    std::string name;
    std::uint32_t offset = 0;  // Offset in the buffer of all parameters.
  };
  // Adds `.param .align A .b8 name[bytes]` after the last parameter of `kernel`, so that all others
  // keep their offsets. Fails with kLimitExceeded if the total would exceed ParameterBytesMax.
  Result<Parameter> AppendParameter(Function& kernel, std::uint32_t bytes, std::uint32_t alignment);

 private:
  Module& module_;
  std::string prefix_;
  std::uint32_t names_given_ = 0;
};

// Collects changes to a function body and applies them together, so that statement indices remain
// valid while a pass reads the body.
//
// Thread-compatible; borrows the function, whose body must not be modified otherwise until Apply().
class FunctionEditor {
 public:
  FunctionEditor(ModuleEditor& names, Function& function);
  FunctionEditor(const FunctionEditor&) = delete;
  FunctionEditor& operator=(const FunctionEditor&) = delete;

  // Statements of the original body; may be modified or replaced in place.
  std::size_t size() const { return function_.body->size(); }
  Statement& At(std::size_t index) { return (*function_.body)[index]; }

  // Creates a register in the scope of the whole function. `type` as declared: "b32", "pred".
  std::string NewRegister(std::string_view type);
  std::string NewLabel();

  // Insertions keep the order of calls. Statements inserted before statement i follow the labels
  // before it, so every path to statement i executes them.
  void InsertBefore(std::size_t index, Statement statement);
  void InsertAfter(std::size_t index, Statement statement);
  // Inserts before all instructions and labels, after leading declarations and directives.
  void InsertAtEntry(Statement statement);

  // Writes the new body, with the new registers declared first. Afterwards the editor has no
  // pending changes, and indices refer to the new body.
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

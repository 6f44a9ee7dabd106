// SPDX-License-Identifier: Apache-2.0
// Data structures for a PTX module, which is created by parser.h, written by printer.h, modified by
// passes and executed by the cpu device. Contains everything that affects the code that ptxas
// generates. Unknown statements are stored as well, as a Directive or as an Instruction with its
// spelling.

#ifndef GPUSHARED_COMMON_PTX_TEXT_MODULE_H_
#define GPUSHARED_COMMON_PTX_TEXT_MODULE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace gpushared::ptx {

struct SourcePosition {
  std::uint32_t line = 0;    // 1-based line of the PTX text; 0 if created by a pass.
  std::uint32_t column = 0;  // 1-based.
};
// "line 12: ", the prefix of a message.
std::string GetLine(const SourcePosition& position);

// Limit for the reasons why kernels are unsupported, over all kernels of a module together, because
// each reason may contain names of megabytes.
inline constexpr std::size_t kReasonBytesMax = std::size_t{64} << 20;
// Returns `reason`, truncated if it is long, and subtracts its size from `bytes_left`. Returns a
// short message instead if the reason does not fit into `bytes_left`.
std::string KeptReason(std::string reason, std::size_t& bytes_left);

struct Operand {
  enum class Kind : std::uint8_t {
    kName,     // Register, special register (%tid.x), symbol, label; optional `offset`.
    kInteger,  // `integer`, spelled `text`.
    kFloat,    // Bits in `integer`: 0f... = 32-bit pattern, 0d... = 64-bit, according to `text`.
    kAddress,  // [text+offset]; `text` may be an integer; `elements`: further items (tex).
    kVector,   // {a, b, ...}
    kList,     // (a, b, ...) in a call
    kPair,     // a|b
  };
  Kind kind = Kind::kName;
  bool negated = false;  // Predicate with a leading '!'.
  // In a ControlFlow: 1 plus the index of the register that `text` names. 0 if `text` names no
  // register or was not looked up.
  std::uint32_t register_number = 0;
  std::string text;          // Spelling: name, literal, or address base.
  std::int64_t integer = 0;  // Value of a literal (two's complement for large unsigned ones).
  std::int64_t offset = 0;   // For kName and kAddress.
  std::vector<Operand> elements;
};

struct Guard {
  std::string predicate;  // "%p1"
  bool negated = false;   // "@!%p1"
};

struct Instruction {
  SourcePosition position;
  std::optional<Guard> guard;
  std::string opcode;                  // "add"
  std::vector<std::string> modifiers;  // "rn", "f32": without the dot, in order
  std::vector<Operand> operands;       // As written, destination first.

  bool Has(std::string_view modifier) const;
  std::string Spelling() const;  // "add.rn.f32"
};

struct Label {
  SourcePosition position;
  std::string name;
};
struct ScopeBegin {
  SourcePosition position;
};
struct ScopeEnd {
  SourcePosition position;
};

// Stored verbatim (.pragma, .branchtargets with its list, ...). `text` ends as in the source.
struct Directive {
  SourcePosition position;
  std::string text;
};

enum class StateSpace : std::uint8_t { kRegister, kShared, kLocal, kParameter, kConstant, kGlobal };

// .reg, .shared, .local, .param, .const and .global declarations, one per name.
struct Variable {
  SourcePosition position;
  std::string linkage;  // "", ".extern", ".visible", ".weak", ".common"
  StateSpace space = StateSpace::kRegister;
  std::uint32_t alignment = 0;   // 0 if unspecified.
  std::uint8_t vector_size = 1;  // 2 or 4 for .v2/.v4.
  std::string type;              // "f32", "b8", "pred"
  std::string name;
  std::uint32_t register_count = 0;        // %r<N>; 0 for a single register.
  std::vector<std::uint64_t> extents;      // [4][8]; an empty extent [] is 0.
  std::optional<std::string> initializer;  // Verbatim, without '='.
  std::string attributes;                  // Verbatim `.attribute(...)`, `.ptr ...`; usually empty.

  // Bytes of an element including the vector size; 0 for pred.
  std::uint32_t ElementBytes() const;
  std::uint64_t Bytes() const;             // All elements; 0 for `[]`.
  std::uint32_t NaturalAlignment() const;  // `alignment`, otherwise that of the element.
  // Whether another module or the launch provides the memory of the variable. Shared memory with a
  // size belongs to this module even if it is `.extern`, which ptxas ignores in this case.
  bool IsElsewhere() const;
};

using Statement = std::variant<Instruction, Label, Variable, ScopeBegin, ScopeEnd, Directive>;

struct Function {
  SourcePosition position;
  bool is_entry = false;
  std::string linkage;            // ".visible", ".extern", ".weak" or "".
  std::string attributes;         // Verbatim, between .func and the name.
  std::vector<Variable> returns;  // .func only.
  std::string name;
  std::vector<Variable> parameters;
  std::vector<Directive> performance;          // .maxntid ..., .minnctapersm ..., .noreturn
  std::optional<std::vector<Statement>> body;  // Absent for a declaration.
};

using Item = std::variant<Function, Variable, Directive>;

struct Module {
  std::string version;  // "9.0"
  std::string target;   // "sm_75" and options, verbatim except for "debug"
  std::uint32_t address_bits = 64;
  std::vector<Item> items;  // In source order.

  // Returns the first function of this name with a body, or null. Borrowed.
  const Function* FindFunction(std::string_view name) const;
};

// Returns the bytes of a fundamental type ("f32" = 4, "b128" = 16, "f16x2" = 4); 0 for unknown
// types and pred.
std::uint32_t TypeBytes(std::string_view type);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_COMMON_PTX_TEXT_MODULE_H_

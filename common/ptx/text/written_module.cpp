// SPDX-License-Identifier: Apache-2.0
#include "common/ptx/text/written_module.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "common/ptx/text/constant.h"
#include "common/ptx/text/indexed_arrays.h"
#include "common/ptx/text/initializer.h"
#include "common/ptx/text/lexer.h"
#include "common/ptx/text/limits.h"
#include "common/ptx/text/literal.h"

namespace gpushared::ptx {
namespace {

constexpr std::uint64_t kAlignmentMax = std::uint64_t{1} << 20;
constexpr const char* kIndexedName = "@indexed";  // Not a valid PTX name.
constexpr std::size_t kQuotedBytesMax = 40;       // Maximum length of a token in an error message.

// Recursive descent with one token of look-ahead.
//
// After the first error the current token remains kEnd, so every loop ends. Only Run() and
// RunPrototype() have to check for errors.
class Parser final : private TokenSource {
 public:
  explicit Parser(std::string_view text) : lexer_(text) { Advance(); }

  Result<WrittenModule> Run();
  Result<Function> RunPrototype();

 private:
  using Kind = Token::Kind;

  const Token& Current() const override { return token_; }
  void Advance() override;
  void Fail(std::string_view what, StatusCode code = StatusCode::kInvalidArgument);
  bool failed() const { return !error_.ok(); }
  bool AtEnd() const { return token_.kind == Kind::kEnd; }
  bool At(std::string_view text) const {
    return token_.text == text && token_.kind != Kind::kString && !AtEnd();
  }
  bool Accept(std::string_view text);
  void Expect(std::string_view text);
  std::string TakeIdentifier(std::string_view what);
  std::uint64_t TakeInteger(std::string_view what, std::uint64_t max);
  Constant TakeConstant(const ConstantStart& start);
  std::uint64_t TakeSize(std::string_view what, std::uint64_t max, bool ends_at_greater = false);
  void CountStatement();

  // Appends the current token to the text, after one blank if white space precedes the token, and
  // advances. TakeGroupInto does so for all tokens up to the matching bracket.
  void TakeInto(std::string& text);
  void TakeGroupInto(std::string& text);
  Directive TakeDirective();

  void ParseAlias();
  void SkipLocation();
  void SkipFile();
  void SkipSection();

  void ParseItem(Module& module);
  void ParseVersion(Module& module);
  void ParseTarget(Module& module);
  std::string ParseLinkage();
  Function ParseFunction(std::string linkage);
  void ParsePerformance(Function& function);
  std::vector<Variable> ParseParameters();
  void ParseBody(std::vector<Statement>& body);
  void ParseBodyDirective(std::vector<Statement>& body);
  bool AtStateSpace() const;
  Variable ParseVariableHead(std::string linkage);
  void ParsePointerAttributes(Variable& variable);
  void ParseDeclarator(Variable& variable);
  void SetExtent(Variable& variable, std::uint64_t extent);
  template <typename Add>
  void ParseVariables(std::string linkage, Add add);

  void ParseNamed(std::vector<Statement>& body);
  Instruction ParseInstruction(SourcePosition position, std::string opcode);
  Operand ParseOperand(std::uint32_t depth);
  Operand ParseSingleOperand(std::uint32_t depth);
  void ParseElements(Operand& operand, std::string_view close, std::uint32_t depth);
  Operand ParseAtom();
  Operand ParseConstantOperand(ConstantStart start);
  void ParseOffset(Operand& operand);
  bool AtName() const;
  bool GetAtList(std::uint32_t depth) const;
  Operand ParseElement(Operand array);

  Lexer lexer_;
  Token token_;
  Status error_;
  std::size_t tokens_ = 0;
  std::size_t statements_ = 0;
  IndexedArrays arrays_;
  std::vector<Alias> aliases_;
  // State of the current instruction.
  bool is_move_ = false;
  bool is_call_ = false;
  std::optional<IndexedElement> indexed_;
};

std::optional<StateSpace> FindStateSpace(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, StateSpace>, 6> kSpaces = {{
      {".reg", StateSpace::kRegister},
      {".shared", StateSpace::kShared},
      {".local", StateSpace::kLocal},
      {".param", StateSpace::kParameter},
      {".const", StateSpace::kConstant},
      {".global", StateSpace::kGlobal},
  }};
  for (const auto& [name, space] : kSpaces) {
    if (text == name) return space;
  }
  return std::nullopt;
}

bool IsLinkage(std::string_view text) {
  return text == ".visible" || text == ".extern" || text == ".weak" || text == ".common";
}

// Quotes a token for messages that may be shown in logs and on terminals.
std::string Quote(const Token& token) {
  if (token.kind == Token::Kind::kEnd) return "end of text";
  std::string quoted = "'";
  for (const char c : token.text.substr(0, kQuotedBytesMax)) {
    quoted += c >= ' ' && c <= '~' ? c : '?';
  }
  if (token.text.size() > kQuotedBytesMax) quoted += "...";
  return quoted + "'";
}

void Parser::Advance() {
  if (failed()) return;
  token_ = lexer_.Next();
  if (token_.kind == Kind::kBroken) {
    Fail(token_.text.starts_with("/*") ? "comment has no end" : "string has no end");
  } else if (++tokens_ > kTokensMax) {
    Fail("more than " + std::to_string(kTokensMax) + " tokens", StatusCode::kLimitExceeded);
  }
}

void Parser::Fail(std::string_view what, StatusCode code) {
  if (failed()) return;
  error_ = Status(code, "ptx: line " + std::to_string(token_.position.line) + " column " +
                            std::to_string(token_.position.column) + ": " + std::string(what) +
                            ", near " + Quote(token_));
  token_.kind = Kind::kEnd;
}

bool Parser::Accept(std::string_view text) {
  if (!At(text)) return false;
  Advance();
  return true;
}

void Parser::Expect(std::string_view text) {
  if (!Accept(text)) Fail("expected '" + std::string(text) + "'");
}

std::string Parser::TakeIdentifier(std::string_view what) {
  if (token_.kind != Kind::kIdentifier) {
    Fail("expected " + std::string(what));
    return {};
  }
  std::string name(token_.text);
  Advance();
  return name;
}

std::uint64_t Parser::TakeInteger(std::string_view what, std::uint64_t max) {
  const auto literal =
      token_.kind == Kind::kNumber ? ParseLiteral(token_.text) : std::optional<Literal>();
  if (!literal || literal->is_float) {
    Fail("expected " + std::string(what) + " as an integer");
    return 0;
  }
  if (literal->bits > max) {
    Fail(std::string(what) + " above " + std::to_string(max), StatusCode::kLimitExceeded);
    return 0;
  }
  Advance();
  return literal->bits;
}

Constant Parser::TakeConstant(const ConstantStart& start) {
  const Result<Constant> value = ParseConstant(*this, start);
  if (value) return *value;
  Fail(value.status().message(), value.status().code());
  return {};
}

// A constant expression that is not negative.
std::uint64_t Parser::TakeSize(std::string_view what, std::uint64_t max, bool ends_at_greater) {
  const Constant value = TakeConstant({.ends_at_greater = ends_at_greater});
  if (!value.IsInteger()) {
    Fail("expected " + std::string(what) + " as an integer");
  } else if (value.bits > max) {
    Fail(std::string(what) + " above " + std::to_string(max), StatusCode::kLimitExceeded);
  }
  return failed() ? 0 : value.bits;
}

void Parser::CountStatement() {
  if (++statements_ > kStatementsMax) {
    Fail("more than " + std::to_string(kStatementsMax) + " statements", StatusCode::kLimitExceeded);
  }
}

void Parser::TakeInto(std::string& text) {
  if (AtEnd()) return;
  if (!text.empty() && token_.after_space) text += ' ';
  text += token_.text;
  Advance();
}

void Parser::TakeGroupInto(std::string& text) {
  std::uint32_t depth = 0;
  do {
    if (At("(") || At("{")) ++depth;
    if (At(")") || At("}")) --depth;
    TakeInto(text);
  } while (depth != 0 && !AtEnd());
  if (depth != 0) Fail("bracket has no end");
}

Directive Parser::TakeDirective() {
  Directive directive{.position = token_.position};
  while (!At(";") && !AtEnd()) {
    if (At("(") || At("{")) {
      TakeGroupInto(directive.text);
    } else {
      TakeInto(directive.text);
    }
  }
  if (AtEnd()) Fail("expected ';' after the directive");
  TakeInto(directive.text);
  return directive;
}

// .alias name, function;
void Parser::ParseAlias() {
  Alias alias{.position = token_.position, .name = {}, .function = {}};
  Advance();
  alias.name = TakeIdentifier("an alias");
  Expect(",");
  alias.function = TakeIdentifier("the name of a function");
  Expect(";");
  aliases_.push_back(std::move(alias));
}

// .loc file line column [, function_name label [+ offset], inlined_at file line column]
void Parser::SkipLocation() {
  Advance();
  while (token_.kind == Kind::kNumber) Advance();
  while (Accept(",")) {
    // A .loc has no terminating ';', so exactly its own tokens are consumed.
    if (Accept("function_name")) {
      TakeIdentifier("a label");
      if (Accept("+")) TakeInteger("an offset", UINT64_MAX);
    } else {
      Expect("inlined_at");
      while (token_.kind == Kind::kNumber) Advance();
    }
  }
}

// .file index "name" [, timestamp, size]
void Parser::SkipFile() {
  Advance();
  TakeInteger("a file index", UINT64_MAX);
  if (token_.kind != Kind::kString) Fail("expected a file name");
  Advance();
  while (Accept(",")) TakeInteger("a number", UINT64_MAX);
}

void Parser::SkipSection() {
  while (!At("{") && !At(";") && !AtEnd()) Advance();
  std::uint32_t depth = 0;
  do {
    if (At("{")) ++depth;
    if (At("}")) --depth;
    Advance();
  } while (depth != 0 && !AtEnd());
  if (depth != 0) Fail("section has no end");
}

Result<WrittenModule> Parser::Run() {
  WrittenModule written;
  Module& module = written.module;
  if (!At(".version")) Fail("a module begins with .version");
  while (!AtEnd()) ParseItem(module);
  if (module.target.empty()) Fail("the module has no .target");
  if (failed()) return error_;
  written.aliases = std::move(aliases_);
  return written;
}

Result<Function> Parser::RunPrototype() {
  if (!At(".callprototype")) Fail("a prototype begins with .callprototype");
  Function function = ParseFunction({});
  if (function.body || !AtEnd()) Fail("a prototype ends with ';'");
  if (failed()) return error_;
  function.name.clear();
  return function;
}

void Parser::ParseItem(Module& module) {
  const SourcePosition position = token_.position;
  if (At(".version")) return ParseVersion(module);
  if (At(".target")) return ParseTarget(module);
  if (At(".file")) return SkipFile();
  if (At(".section")) return SkipSection();
  if (At(".loc")) return SkipLocation();
  if (Accept(";")) return;
  if (Accept(".address_size")) {
    module.address_bits = static_cast<std::uint32_t>(TakeInteger("an address size", 64));
    if (module.address_bits != 32 && module.address_bits != 64) Fail("addresses of 32 or 64 bits");
    return;
  }
  CountStatement();
  if (At(".alias")) return ParseAlias();
  std::string linkage = ParseLinkage();
  if (At(".entry") || At(".func")) {
    Function function = ParseFunction(std::move(linkage));
    function.position = position;
    module.items.emplace_back(std::move(function));
  } else if (AtStateSpace()) {
    ParseVariables(std::move(linkage),
                   [&](Variable variable) { module.items.emplace_back(std::move(variable)); });
  } else if (token_.kind == Kind::kDotted && linkage.empty()) {
    module.items.emplace_back(TakeDirective());
  } else {
    Fail("expected a function, a variable or a directive");
  }
}

void Parser::ParseVersion(Module& module) {
  if (!module.version.empty()) Fail("second .version");
  Advance();
  if (token_.kind != Kind::kNumber) Fail("expected a version such as 9.0");
  TakeInto(module.version);
}

void Parser::ParseTarget(Module& module) {
  if (!module.target.empty()) Fail("second .target");
  Advance();
  module.target = TakeIdentifier("an architecture such as sm_75");
  while (Accept(",")) {
    // Drops the option, because debug information is dropped and ptxas requires both or neither.
    if (Accept("debug")) continue;
    module.target += ", " + TakeIdentifier("an option of .target");
  }
}

std::string Parser::ParseLinkage() {
  std::string linkage;
  while (token_.kind == Kind::kDotted && IsLinkage(token_.text)) {
    if (!linkage.empty()) linkage += ' ';
    linkage += token_.text;
    Advance();
  }
  return linkage;
}

Function Parser::ParseFunction(std::string linkage) {
  Function function;
  function.linkage = std::move(linkage);
  function.is_entry = At(".entry");
  Advance();
  while (token_.kind == Kind::kDotted) {
    TakeInto(function.attributes);
    if (At("(") && function.attributes.ends_with(".attribute")) TakeGroupInto(function.attributes);
  }
  if (At("(")) {
    if (function.is_entry) Fail("an .entry returns nothing");
    function.returns = ParseParameters();
  }
  function.name = TakeIdentifier("the name of a function");
  if (At("(")) function.parameters = ParseParameters();
  ParsePerformance(function);
  if (Accept(";")) return function;
  Expect("{");
  ParseBody(function.body.emplace());
  return function;
}

void Parser::ParsePerformance(Function& function) {
  while (token_.kind == Kind::kDotted) {
    CountStatement();
    Directive directive{.position = token_.position};
    const bool ends_with_semicolon = At(".pragma");
    do {
      TakeInto(directive.text);
    } while (!At("{") && !At(";") && token_.kind != Kind::kDotted && !AtEnd());
    if (ends_with_semicolon && At(";")) TakeInto(directive.text);
    function.performance.push_back(std::move(directive));
  }
}

std::vector<Variable> Parser::ParseParameters() {
  std::vector<Variable> parameters;
  Expect("(");
  while (!At(")") && !AtEnd()) {
    CountStatement();
    if (!AtStateSpace()) {
      Fail("expected a parameter");
      break;
    }
    Variable variable = ParseVariableHead({});
    ParseDeclarator(variable);
    parameters.push_back(std::move(variable));
    if (!At(")")) Expect(",");
  }
  Expect(")");
  return parameters;
}

void Parser::ParseBody(std::vector<Statement>& body) {
  std::uint32_t depth = 1;
  while (depth != 0 && !AtEnd()) {
    const SourcePosition position = token_.position;
    if (Accept(";")) continue;
    if (At(".loc")) {
      SkipLocation();
      continue;
    }
    CountStatement();
    if (Accept("{")) {
      if (++depth > kScopeDepthMax) {
        Fail("scopes nested deeper than " + std::to_string(kScopeDepthMax),
             StatusCode::kLimitExceeded);
      }
      body.emplace_back(ScopeBegin{position});
    } else if (Accept("}")) {
      if (--depth != 0) body.emplace_back(ScopeEnd{position});
    } else if (token_.kind == Kind::kDotted) {
      ParseBodyDirective(body);
    } else {
      ParseNamed(body);
    }
  }
  if (depth != 0) Fail("the function's body has no end");
}

void Parser::ParseBodyDirective(std::vector<Statement>& body) {
  if (At(".alias")) return ParseAlias();
  std::string linkage = ParseLinkage();
  if (AtStateSpace()) {
    ParseVariables(std::move(linkage),
                   [&](Variable variable) { body.emplace_back(std::move(variable)); });
  } else if (linkage.empty()) {
    body.emplace_back(TakeDirective());
  } else {
    Fail("expected a variable");
  }
}

bool Parser::AtStateSpace() const {
  return token_.kind == Kind::kDotted && FindStateSpace(token_.text).has_value();
}

Variable Parser::ParseVariableHead(std::string linkage) {
  Variable variable;
  variable.position = token_.position;
  variable.linkage = std::move(linkage);
  if (const auto space = FindStateSpace(token_.text)) variable.space = *space;
  Advance();
  while (token_.kind == Kind::kDotted) {
    if (Accept(".align")) {
      variable.alignment =
          static_cast<std::uint32_t>(TakeSize("an alignment in bytes", kAlignmentMax));
      if (!std::has_single_bit(variable.alignment)) Fail("an alignment is a power of two");
    } else if (At(".v2") || At(".v4") || At(".v8")) {
      variable.vector_size = static_cast<std::uint8_t>(token_.text[2] - '0');
      Advance();
    } else if (At(".attribute")) {
      if (!variable.attributes.empty()) Fail("second list of attributes");
      TakeInto(variable.attributes);
      if (At("(")) TakeGroupInto(variable.attributes);
    } else if (At(".ptr")) {
      ParsePointerAttributes(variable);
    } else if (variable.type.empty()) {
      variable.type = token_.text.substr(1);
      Advance();
    } else {
      Fail("a variable has one type");
    }
  }
  if (variable.type.empty()) Fail("expected the type of a variable");
  const bool in_registers =
      variable.space == StateSpace::kRegister || variable.space == StateSpace::kParameter;
  if (variable.type == "pred" && !in_registers) Fail("a predicate is a register");
  constexpr std::uint32_t kVectorBytesMax = 16;
  if (variable.space == StateSpace::kRegister && variable.vector_size != 1 &&
      (variable.type == "pred" || variable.vector_size > 4 ||
       variable.ElementBytes() > kVectorBytesMax)) {
    Fail("a vector register has 2 or 4 components, at most 128 bits in total, and no predicates");
  }
  return variable;
}

// .ptr [.global|.const|...] [.align N]
void Parser::ParsePointerAttributes(Variable& variable) {
  if (!variable.attributes.empty() || variable.type.empty()) Fail(".ptr must follow the type");
  TakeInto(variable.attributes);
  while (token_.kind == Kind::kDotted) {
    if (At(".ptr")) Fail("repeated .ptr");
    const bool has_number = At(".align");
    variable.attributes += ' ';
    variable.attributes += token_.text;
    Advance();
    if (has_number) {
      variable.attributes += ' ' + std::to_string(TakeSize("an alignment in bytes", kAlignmentMax));
    }
  }
}

void Parser::ParseDeclarator(Variable& variable) {
  variable.position = token_.position;
  variable.name = TakeIdentifier("the name of a variable");
  if (Accept("<")) {
    variable.register_count =
        static_cast<std::uint32_t>(TakeSize("a number of registers", kRegisterFamilyMax, true));
    if (variable.register_count == 0 || variable.space != StateSpace::kRegister) {
      Fail("'<' takes a number of registers");
    }
    Expect(">");
  }
  std::uint64_t bytes = std::max<std::uint64_t>(variable.ElementBytes(), 1);
  while (Accept("[")) {
    const std::uint64_t extent = At("]") ? 0 : TakeSize("an extent", kVariableBytesMax);
    Expect("]");
    if (variable.extents.size() == kExtentsMax) {
      Fail("more than " + std::to_string(kExtentsMax) + " dimensions", StatusCode::kLimitExceeded);
    }
    variable.extents.push_back(extent);
    // An empty extent must not reset the product.
    if (__builtin_mul_overflow(bytes, std::max<std::uint64_t>(extent, 1), &bytes) ||
        bytes > kVariableBytesMax) {
      Fail("a variable of more than " + std::to_string(kVariableBytesMax) + " bytes",
           StatusCode::kLimitExceeded);
    }
  }
}

// Sets the extent of an array whose size is defined by its initial values.
void Parser::SetExtent(Variable& variable, std::uint64_t extent) {
  variable.extents.front() = extent;
  if (variable.Bytes() > kVariableBytesMax) {
    Fail("a variable of more than " + std::to_string(kVariableBytesMax) + " bytes",
         StatusCode::kLimitExceeded);
  }
}

template <typename Add>
void Parser::ParseVariables(std::string linkage, Add add) {
  const Variable head = ParseVariableHead(std::move(linkage));
  do {
    CountStatement();
    Variable variable = head;
    ParseDeclarator(variable);
    if (Accept("=")) {
      std::string& text = variable.initializer.emplace();
      while (!At(",") && !At(";") && !AtEnd()) {
        if (At("{") || At("(")) {
          TakeGroupInto(text);
        } else {
          TakeInto(text);
        }
      }
      if (text.empty()) Fail("expected an initial value");
      const bool is_unsized = !variable.extents.empty() && variable.extents.front() == 0;
      if (is_unsized) SetExtent(variable, CountInitialElements(text));
    }
    arrays_.Note(variable);
    if (!failed()) add(std::move(variable));
  } while (Accept(","));
  Expect(";");
}

// Parses a label or an instruction. Both begin with a name, which a guard may precede in the case
// of an instruction.
void Parser::ParseNamed(std::vector<Statement>& body) {
  const SourcePosition position = token_.position;
  std::optional<Guard> guard;
  if (Accept("@")) {
    guard.emplace();
    guard->negated = Accept("!");
    guard->predicate = TakeIdentifier("a predicate");
  }
  std::string name = TakeIdentifier("an instruction");
  if (!guard && Accept(":")) {
    body.emplace_back(Label{position, std::move(name)});
    return;
  }
  Instruction instruction = ParseInstruction(position, std::move(name));
  instruction.guard = std::move(guard);
  if (!indexed_) {
    body.emplace_back(std::move(instruction));
    return;
  }
  std::size_t known = body.size();
  const std::optional<std::string> address = arrays_.Address(*indexed_, position, body);
  for (; known < body.size(); ++known) CountStatement();
  if (!address) return Fail("an index is a declared register of 32 or 64 bits");
  const auto operand = std::ranges::find(instruction.operands, kIndexedName, &Operand::text);
  if (operand == instruction.operands.end()) return Fail("an index is not allowed in a list");
  operand->text = *address;
  body.emplace_back(std::move(instruction));
  body.emplace_back(ScopeEnd{position});
}

Instruction Parser::ParseInstruction(SourcePosition position, std::string opcode) {
  Instruction instruction{.position = position, .opcode = std::move(opcode)};
  is_move_ = instruction.opcode == "mov";
  is_call_ = instruction.opcode == "call";
  indexed_.reset();
  while (token_.kind == Kind::kDotted) {
    instruction.modifiers.emplace_back(token_.text.substr(1));
    Advance();
  }
  while (!At(";") && !AtEnd()) {
    instruction.operands.push_back(ParseOperand(1));
    if (!At(";")) Expect(",");
  }
  Expect(";");
  return instruction;
}

Operand Parser::ParseOperand(std::uint32_t depth) {
  Operand operand = ParseSingleOperand(depth);
  if (!At("|")) return operand;
  Operand pair{.kind = Operand::Kind::kPair};
  pair.elements.push_back(std::move(operand));
  while (Accept("|")) pair.elements.push_back(ParseSingleOperand(depth));
  return pair;
}

Operand Parser::ParseSingleOperand(std::uint32_t depth) {
  if (depth > kOperandDepthMax) {
    Fail("operands nested deeper than " + std::to_string(kOperandDepthMax),
         StatusCode::kLimitExceeded);
    return {};
  }
  Operand operand;
  if (Accept("{")) {
    operand.kind = Operand::Kind::kVector;
    ParseElements(operand, "}", depth);
  } else if (Accept("(")) {
    if (!GetAtList(depth)) return ParseConstantOperand({.in_parentheses = true});
    operand.kind = Operand::Kind::kList;
    ParseElements(operand, ")", depth);
  } else if (Accept("[")) {
    operand = ParseAtom();
    if (operand.kind == Operand::Kind::kFloat || operand.negated) {
      Fail("an address is a name or an integer");
    }
    operand.kind = Operand::Kind::kAddress;
    if (Accept(",")) {
      ParseElements(operand, "]", depth);
    } else {
      Expect("]");
    }
  } else {
    operand = ParseAtom();
  }
  return operand;
}

// Whether the '(' begins a list (of a call, or of an unknown instruction) and not a constant
// expression.
bool Parser::GetAtList(std::uint32_t depth) const {
  return (is_call_ && depth == 1) || AtName() || At("{") || At("[") || At(")");
}

bool Parser::AtName() const { return token_.kind == Kind::kIdentifier && !At("WARP_SZ"); }

void Parser::ParseElements(Operand& operand, std::string_view close, std::uint32_t depth) {
  while (!At(close) && !AtEnd()) {
    operand.elements.push_back(ParseOperand(depth + 1));
    if (!At(close)) Expect(",");
  }
  Expect(close);
}

Operand Parser::ParseAtom() {
  Operand operand;
  char sign = '\0';
  if (At("!") || At("-")) {
    sign = token_.text.front();
    Advance();
  }
  if (!AtName()) return ParseConstantOperand({.sign = sign});
  operand.negated = sign == '!';
  // Only vmad allows a minus before a register.
  if (sign == '-') operand.text = '-';
  operand.text += TakeIdentifier("an operand");
  while (token_.kind == Kind::kDotted && !token_.after_space) {
    operand.text += token_.text;
    Advance();
  }
  if (At("[")) return ParseElement(std::move(operand));
  ParseOffset(operand);
  return operand;
}

// Parses array[3], array[%r1] or array[%r1+3]: a memory operand or, in a mov, the element's address
// as a value.
Operand Parser::ParseElement(Operand array) {
  const std::optional<std::uint32_t> bytes = arrays_.ElementBytes(array.text);
  if (!bytes) Fail("an index follows the name of an array");
  if (indexed_) Fail("only one operand may have an index");
  Expect("[");
  Operand index;
  if (AtName()) {
    index.text = TakeIdentifier("an index");
    ParseOffset(index);
  } else {
    index = ParseConstantOperand({});
  }
  Expect("]");
  if (failed()) return array;
  array.kind = is_move_ ? Operand::Kind::kName : Operand::Kind::kAddress;
  if (index.kind == Operand::Kind::kInteger) {
    array.offset = static_cast<std::int64_t>(static_cast<std::uint64_t>(index.integer) * *bytes);
    return array;
  }
  if (index.kind != Operand::Kind::kName) Fail("an index is an integer or a register");
  indexed_ = {.array = array.text, .index = std::move(index.text), .offset = index.offset};
  array.text = kIndexedName;
  return array;
}

std::string Hexadecimal(std::uint64_t bits, int digits) {
  std::array<char, 17> text = {};
  std::snprintf(text.data(), text.size(), "%0*llX", digits, static_cast<unsigned long long>(bits));
  return text.data();
}

// A number keeps its spelling; any other expression is replaced by its value.
Operand Parser::ParseConstantOperand(ConstantStart start) {
  Operand operand{.kind = Operand::Kind::kInteger};
  if (token_.kind == Kind::kNumber && !start.in_parentheses && start.sign != '!') {
    const auto literal = ParseLiteral(token_.text);
    if (!literal) {
      Fail("not a number of 64 bits");
      return operand;
    }
    start.literal = GetConstant(*literal);
    if (start.sign != '\0') operand.text = start.sign;
    operand.text += token_.text;
    Advance();
    const bool is_alone = At(",") || At(";") || At("]") || At("}") || At(")") || At("[");
    if (!is_alone) operand.text.clear();
  }
  const Constant value = TakeConstant(start);
  operand.integer = static_cast<std::int64_t>(value.bits);
  if (!value.IsInteger()) operand.kind = Operand::Kind::kFloat;
  if (!operand.text.empty()) return operand;
  if (value.kind == Constant::Kind::kDouble) {
    operand.text = "0d" + Hexadecimal(value.bits, 16);
  } else if (value.kind == Constant::Kind::kFloatBits) {
    operand.text = "0f" + Hexadecimal(value.bits, 8);
  } else {
    operand.text = std::to_string(operand.integer);
  }
  return operand;
}

// name+constant. ptxas does not accept '-' here; compilers write +-4, but programmers write -4.
void Parser::ParseOffset(Operand& operand) {
  if (!At("+") && !At("-")) return;
  const char sign = token_.text.front();
  Advance();
  const Constant value = TakeConstant({.sign = sign});
  if (!value.IsInteger()) Fail("an offset is an integer");
  operand.offset = static_cast<std::int64_t>(value.bits);
}

}  // namespace

Result<WrittenModule> ParseAsWritten(std::string_view text) { return Parser(text).Run(); }

Result<Function> ParsePrototype(std::string_view directive_text) {
  return Parser(directive_text).RunPrototype();
}

}  // namespace gpushared::ptx

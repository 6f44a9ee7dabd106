// SPDX-License-Identifier: Apache-2.0
#include "server/ptx/passes/fence_residue.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>

#include "server/ptx/analysis/memory_access.h"

namespace gpushared::ptx {
namespace {

// ---- memory

constexpr std::uint64_t kWidest = kZeroedBytes;
// Maximum number of unrolled stores. More stores are replaced by a loop, whose code is shorter.
constexpr std::uint64_t kUnrolledMax = 8;

// Returns the widest store that evenly divides a variable and is aligned in it.
std::uint64_t GetWidth(const Variable& variable) {
  std::uint64_t width = kWidest;
  while (width > 1 && (variable.Bytes() % width != 0 || variable.NaturalAlignment() % width != 0)) {
    width /= 2;
  }
  return width;
}

Instruction Store(std::string_view space, std::uint64_t width, Operand address) {
  std::string spelling = "st." + std::string(space);
  if (width == kWidest) spelling += ".v4.b32";
  if (width < kWidest) spelling += ".b" + std::to_string(width * 8);
  std::vector<Operand> operands = {std::move(address)};
  if (width == kWidest) {
    operands.push_back(Vector({Integer(0), Integer(0), Integer(0), Integer(0)}));
  } else {
    operands.push_back(Integer(0));
  }
  return Make(spelling, std::move(operands));
}

class Writer {
 public:
  explicit Writer(FunctionEditor& editor) : editor_(editor) {}

  void Add(std::string_view spelling, std::vector<Operand> operands) {
    editor_.InsertAtEntry(Make(spelling, std::move(operands)));
  }
  void Add(Instruction instruction) { editor_.InsertAtEntry(std::move(instruction)); }
  std::string Word() { return editor_.NewRegister("b32"); }

  std::string Copy(Operand value) {
    std::string copy = Word();
    Add("mov.u32", {Name(copy), std::move(value)});
    return copy;
  }
  // while (at < end) { store at `at`; at += step; }
  void Loop(std::string_view space, std::uint64_t width, const std::string& at, const Operand& end,
            const Operand& step) {
    const std::string ends = editor_.NewRegister("pred");
    const std::string again = editor_.NewLabel(), done = editor_.NewLabel();
    editor_.InsertAtEntry(Label{.position = {}, .name = again});
    editor_.InsertAtEntry(Directive{.position = {}, .text = ".pragma \"nounroll\";"});
    Add("setp.ge.u32", {Name(ends), Name(at), end});
    Add(MakeIf(ends, "bra", {Name(done)}));
    Add(Store(space, width, Address(at)));
    Add("add.u32", {Name(at), Name(at), step});
    Add("bra", {Name(again)});
    editor_.InsertAtEntry(Label{.position = {}, .name = done});
  }

  // Returns the thread's number in its block and the number of threads.
  std::pair<std::string, std::string> Thread() {
    const std::string index = Copy(Name("%tid.z"));
    const std::string count = Copy(Name("%ntid.z"));
    for (const char* dimension : {"y", "x"}) {
      const std::string size = Copy(Name(std::string("%ntid.") + dimension));
      const std::string own = Copy(Name(std::string("%tid.") + dimension));
      Add("mad.lo.u32", {Name(index), Name(index), Name(size), Name(own)});
      Add("mul.lo.u32", {Name(count), Name(count), Name(size)});
    }
    return {index, count};
  }

 private:
  FunctionEditor& editor_;
};

// ---- registers, parameters, results

constexpr std::uint64_t kWidestStore = 8;
// At most this many stores, plus one for each instruction, are added to a function, so that a short
// text does not become a long one.
constexpr std::size_t kZeroStoresMin = 32;
constexpr std::uint64_t kResultBytesMax = 4096;

// Returns the name as in the text, without the suffix of ControlFlow.
std::string InText(const std::string& name) { return name.substr(0, name.find('@')); }

struct Span {
  std::uint64_t begin = 0, end = 0;
};

// Returns the parts of [0, bytes) outside of all spans, in order.
std::vector<Span> Gaps(std::vector<Span> spans, std::uint64_t bytes) {
  std::ranges::sort(spans, {}, &Span::begin);
  spans.push_back({bytes, bytes});
  std::vector<Span> gaps;
  std::uint64_t at = 0;
  for (const Span& span : spans) {
    const std::uint64_t next = std::min(span.begin, bytes);
    if (next > at) gaps.push_back({at, next});
    at = std::max(at, span.end);
  }
  return gaps;
}

// Returns the access of an instruction that loads or stores parameters; nothing for other
// instructions. FunctionFence rejects operands outside of the parameter.
std::optional<MemoryAccess> ParameterAccess(const Instruction& instruction) {
  if (instruction.opcode != "ld" && instruction.opcode != "st") return std::nullopt;
  const MemoryAccesses accesses = FindMemoryAccesses(instruction);
  if (accesses.list.size() != 1) return std::nullopt;
  const MemoryAccess& access = accesses.list[0];
  return access.space == AccessSpace::kParameter ? std::optional(access) : std::nullopt;
}

Span GetSpan(const Operand& address, const MemoryAccess& access) {
  if (address.offset < 0) return {};
  const auto begin = static_cast<std::uint64_t>(address.offset);
  return {begin, begin + access.bytes};
}

// Lists of a call: results before and arguments after the callee.
struct CallLists {
  const std::vector<Operand>* results = nullptr;
  const std::vector<Operand>* arguments = nullptr;
};
CallLists GetLists(const Instruction& call) {
  CallLists lists;
  for (std::size_t o = 0; o < call.operands.size(); ++o) {
    if (call.operands[o].kind != Operand::Kind::kList) continue;
    (o == 0 ? lists.results : lists.arguments) = &call.operands[o].elements;
  }
  return lists;
}

class UnwrittenZeroes {
 public:
  UnwrittenZeroes(FunctionEditor& editor, const Function& function, const ValueFlow& flow,
                  const std::vector<std::size_t>& statements)
      : editor_(editor),
        function_(function),
        flow_(flow),
        statements_(statements),
        stores_left_(kZeroStoresMin + statements.size()),
        result_stores_(flow.flow.blocks.size()) {
    for (const Variable& variable : flow.flow.variables) {
      if (variable.space == StateSpace::kParameter) passed_.emplace(variable.name, &variable);
    }
    for (const Variable& result : function.returns) {
      results_.emplace(result.name, Span{result_bytes_, result_bytes_ + result.Bytes()});
      result_bytes_ += result.Bytes();
    }
  }

  std::string Run() {
    ZeroRegisters();
    for (std::uint32_t b = 0; b < flow_.flow.blocks.size(); ++b) FollowBlock(b);
    if (reason_.empty() && !function_.returns.empty()) ZeroResults();
    if (reads_carry_) ZeroCarry();
    return std::move(reason_);
  }

 private:
  void Reject(const SourcePosition& position, const std::string& why) {
    if (reason_.empty()) reason_ = GetLine(position) + why;
  }

  // --- Registers ----------------------------------------------------------------------------

  struct Declaration {
    std::size_t statement = 0;
    bool in_scope = false;  // Whether it is in a { } of the body.
    bool is_first = false;  // Whether every path through its scope includes it.
  };
  std::vector<Declaration> FindDeclarations() {
    std::vector<Declaration> declarations;
    // For each open scope: whether it contains only declarations so far.
    std::vector<bool> begins = {true};
    for (std::size_t i = 0; i < editor_.size(); ++i) {
      const Statement& statement = editor_.At(i);
      if (std::holds_alternative<Variable>(statement)) {
        declarations.push_back({i, begins.size() > 1, begins.back()});
      } else if (std::holds_alternative<ScopeEnd>(statement)) {
        begins.pop_back();
      } else if (!std::holds_alternative<Directive>(statement)) {
        begins.back() = false;
        if (std::holds_alternative<ScopeBegin>(statement)) begins.push_back(true);
      }
    }
    return declarations;
  }

  // Zeroes registers where they are declared: at the function's start, or at the entry of a { }
  // with declarations.
  void ZeroRegisters() {
    const std::vector<Declaration> declarations = FindDeclarations();
    for (const Register& reg : flow_.flow.registers) {
      if (!reg.is_read_unwritten) continue;
      const Declaration& declaration = declarations[reg.variable];
      if (!declaration.is_first) {
        Reject(flow_.flow.variables[reg.variable].position,
               "register '" + InText(reg.name) +
                   "', declared after an instruction, is read where nothing wrote it");
      }
      std::optional<Instruction> zero = Zero(reg);
      if (!zero) return;
      if (declaration.in_scope) {
        editor_.InsertAfter(declaration.statement, *std::move(zero));
      } else {
        editor_.InsertAtEntry(*std::move(zero));
      }
    }
  }

  std::optional<Instruction> Zero(const Register& reg) {
    const std::string name = InText(reg.name);
    const std::uint32_t bytes = TypeBytes(reg.type);
    const bool moves = reg.type == "pred" || bytes == 2 || bytes == 4 || bytes == 8 || bytes == 16;
    if (!moves) {
      Reject(flow_.flow.variables[reg.variable].position,
             "register '" + name + "' of type " + reg.type + " is read where nothing wrote it");
      return std::nullopt;
    }
    const std::string type = reg.type == "pred" ? reg.type : "b" + std::to_string(bytes * 8);
    return Make("mov." + type, {Name(name), Integer(0)});
  }

  // --- Parameters of calls --------------------------------------------------------------------

  // A parameter that was stored to since the last call.
  struct Stored {
    std::size_t first = 0;  // Index of the statement.
    std::vector<Span> spans;
  };
  using StoredParameters = std::unordered_map<std::string_view, Stored>;

  // Parameters are stored immediately before their call, and results loaded immediately after it,
  // without branches in between, so each block can be analysed separately.
  void FollowBlock(std::uint32_t b) {
    const BasicBlock& block = flow_.flow.blocks[b];
    StoredParameters stored;
    std::unordered_set<std::string_view> returned;  // Results of the last call.
    bool has_carry = false;
    for (std::uint32_t k = block.first; k < block.first + block.count; ++k) {
      const Instruction& instruction = flow_.flow.instructions[k];
      if (instruction.opcode == "call") {
        FollowCall(k, stored, returned);
        has_carry = false;
      } else if (const auto access = ParameterAccess(instruction)) {
        FollowAccess(k, b, *access, stored, returned);
      } else {
        FollowCarry(instruction, has_carry);
      }
      if (!reason_.empty()) return;
    }
    if (!stored.empty()) RejectStray(block.first + block.count - 1);
  }

  void RejectStray(std::uint32_t k) {
    Reject(flow_.flow.instructions[k].position,
           "a parameter of a call is not stored right before the call");
  }

  // Follows the carry, a single bit that additions pass on.
  void FollowCarry(const Instruction& instruction, bool& has_carry) {
    const std::string_view opcode = instruction.opcode;
    const bool reads = opcode == "addc" || opcode == "subc" || opcode == "madc";
    reads_carry_ |= reads && !has_carry;
    has_carry |= instruction.Has("cc") && !instruction.guard;
  }

  // Zeroes the carry at the start, and after calls, which leave it undefined.
  void ZeroCarry() {
    const std::string sum = editor_.NewRegister("b32");
    const Instruction zero = Make("add.cc.u32", {Name(sum), Integer(0), Integer(0)});
    editor_.InsertAtEntry(zero);
    for (std::size_t k = 0; k < statements_.size(); ++k) {
      const Instruction& instruction = flow_.flow.instructions[k];
      if (instruction.opcode != "call") continue;
      Instruction behind = zero;
      behind.guard = std::get<Instruction>(editor_.At(statements_[k])).guard;
      editor_.InsertAfter(statements_[k], std::move(behind));
    }
  }

  void FollowAccess(std::uint32_t k, std::uint32_t b, const MemoryAccess& access,
                    StoredParameters& stored,
                    const std::unordered_set<std::string_view>& returned) {
    const Instruction& instruction = flow_.flow.instructions[k];
    const Operand& address = instruction.operands[access.operand];
    const auto result = results_.find(address.text);
    if (instruction.opcode == "ld") {
      const bool is_unset = passed_.contains(address.text) && !returned.contains(address.text);
      if (is_unset || result != results_.end()) {
        Reject(instruction.position,
               "'" + InText(address.text) + "' is read where no call has set it");
      }
      return;
    }
    const Span span = instruction.guard ? Span() : GetSpan(address, access);
    if (result != results_.end()) {
      const auto [begin, end] = result->second;
      result_stores_[b].push_back(
          {std::min(begin + span.begin, end), std::min(begin + span.end, end)});
    }
    if (!passed_.contains(address.text)) return;
    const auto found = stored.try_emplace(address.text, Stored{statements_[k], {}}).first;
    found->second.spans.push_back(span);
  }

  void FollowCall(std::uint32_t k, StoredParameters& stored,
                  std::unordered_set<std::string_view>& returned) {
    const Instruction& call = flow_.flow.instructions[k];
    const CallLists lists = GetLists(call);
    // The same lists with the names of the text, without the suffixes of ControlFlow.
    const CallLists written = GetLists(std::get<Instruction>(editor_.At(statements_[k])));
    std::unordered_set<std::string_view> arguments;
    for (std::size_t a = 0; lists.arguments != nullptr && a < lists.arguments->size(); ++a) {
      const std::string& name = (*lists.arguments)[a].text;
      if (results_.contains(name))
        return Reject(call.position, "result '" + name + "' is passed on");
      const auto variable = passed_.find(name);
      if (variable == passed_.end() || !arguments.insert(name).second) continue;
      const auto found = stored.find(name);
      const Stored known = found == stored.end() ? Stored{statements_[k], {}} : found->second;
      const Variable& parameter = *variable->second;
      for (Instruction& zero : ZeroStores((*written.arguments)[a].text, parameter,
                                          Gaps(known.spans, parameter.Bytes()))) {
        editor_.InsertBefore(known.first, std::move(zero));
      }
    }
    for (const auto& [name, ignored] : stored) {
      if (!arguments.contains(name)) RejectStray(k);
    }
    stored.clear();
    returned.clear();
    for (std::size_t r = 0; lists.results != nullptr && r < lists.results->size(); ++r) {
      const std::string& name = (*lists.results)[r].text;
      if (passed_.contains(name)) returned.insert(name);
    }
    if (call.guard && !returned.empty()) {
      Reject(call.position, "results of a call that only some threads make");
    }
  }

  std::vector<Instruction> ZeroStores(const std::string& name, const Variable& variable,
                                      const std::vector<Span>& gaps) {
    std::vector<Instruction> stores;
    for (const Span& gap : gaps) {
      std::uint64_t width = 0;
      for (std::uint64_t at = gap.begin; at < gap.end; at += width) {
        width = std::clamp<std::uint64_t>(variable.NaturalAlignment(), 1, kWidestStore);
        while (at % width != 0 || width > gap.end - at) width /= 2;
        if (stores_left_ == 0) {
          Reject(function_.position, "more bytes of parameters than can be zeroed");
          return {};
        }
        --stores_left_;
        stores.push_back(Make("st.param.b" + std::to_string(width * 8),
                              {Address(name, static_cast<std::int64_t>(at)), Integer(0)}));
      }
    }
    return stores;
  }

  // --- Results --------------------------------------------------------------------------------

  // Whether threads return to the caller at the end of the block.
  bool Returns(std::uint32_t b) const {
    const BasicBlock& block = flow_.flow.blocks[b];
    const Instruction& last = flow_.flow.instructions[block.first + block.count - 1];
    return last.opcode == "ret" ||
           std::ranges::find(block.successors, kNoBlock) != block.successors.end();
  }

  // Zeroes results at the start, unless they are all stored before each return: every block that
  // returns and its dominators (the blocks on all paths to it) together store every byte.
  void ZeroResults() {
    const bool in_memory = std::ranges::all_of(function_.returns, [](const Variable& result) {
      return result.space == StateSpace::kParameter && result.Bytes() <= kResultBytesMax;
    });
    if (!in_memory || result_bytes_ > kResultBytesMax) {
      return Reject(function_.position, "results that cannot be zeroed");
    }
    // By byte: number of stores by the current block and its dominators.
    std::vector<std::uint32_t> times(result_bytes_);
    std::size_t missing = times.size();
    bool is_set = !flow_.flow.blocks.empty();
    const auto enter = [&](std::uint32_t b) {
      for (const Span& span : result_stores_[b]) {
        for (std::uint64_t at = span.begin; at < span.end; ++at)
          missing -= times[at]++ == 0 ? 1 : 0;
      }
      if (missing != 0 && Returns(b)) is_set = false;
    };
    const auto leave = [&](std::uint32_t b) {
      for (const Span& span : result_stores_[b]) {
        for (std::uint64_t at = span.begin; at < span.end; ++at)
          missing += --times[at] == 0 ? 1 : 0;
      }
    };
    flow_.VisitBlocks(enter, leave);
    if (is_set) return;
    for (const Variable& result : function_.returns) {
      for (Instruction& zero : ZeroStores(result.name, result, {{0, result.Bytes()}})) {
        editor_.InsertAtEntry(std::move(zero));
      }
    }
  }

  FunctionEditor& editor_;
  const Function& function_;
  const ValueFlow& flow_;
  const std::vector<std::size_t>& statements_;
  std::size_t stores_left_;
  bool reads_carry_ = false;  // Whether a block reads the carry before writing it.
  std::unordered_map<std::string_view, const Variable*> passed_;  // Parameters passed by calls.
  // The function's results, one after the other, and the parts that each block stores.
  std::unordered_map<std::string_view, Span> results_;
  std::uint64_t result_bytes_ = 0;
  std::vector<std::vector<Span>> result_stores_;
  std::string reason_;
};

}  // namespace

void ZeroLocal(FunctionEditor& editor, const Variable& local) {
  Writer writer(editor);
  const std::uint64_t width = GetWidth(local);
  if (local.Bytes() <= width * kUnrolledMax) {
    for (std::uint64_t at = 0; at < local.Bytes(); at += width) {
      writer.Add(Store("local", width, Address(local.name, static_cast<std::int64_t>(at))));
    }
    return;
  }
  const std::string wide = editor.NewRegister("b64"), at = writer.Word(), end = writer.Word();
  writer.Add("mov.u64", {Name(wide), Name(local.name)});
  writer.Add("cvt.u32.u64", {Name(at), Name(wide)});
  writer.Add("add.u32", {Name(end), Name(at), Integer(static_cast<std::int64_t>(local.Bytes()))});
  writer.Loop("local", width, at, Name(end), Integer(static_cast<std::int64_t>(width)));
}

void ZeroShared(FunctionEditor& editor, const std::vector<std::string>& variables,
                const std::string& dynamic, bool has_tail, const std::string& begin) {
  Writer writer(editor);
  const std::string start = writer.Copy(Name(dynamic)), end = writer.Word();
  writer.Add("mov.u32", {Name(end), Name("%dynamic_smem_size")});
  writer.Add("add.u32", {Name(end), Name(end), Name(start)});
  for (const std::string& variable : variables) {
    writer.Add("min.u32", {Name(start), Name(start), Name(writer.Copy(Name(variable)))});
  }
  // The start of the block's shared memory is a multiple of kZeroedBytes, so rounding down stays in
  // it.
  writer.Add("and.b32", {Name(start), Name(start), Integer(-std::int64_t{kZeroedBytes})});
  if (!begin.empty()) writer.Add("mov.u32", {Name(begin), Name(start)});
  const auto [thread, threads] = writer.Thread();
  const std::string at = writer.Word(), step = writer.Word();
  writer.Add("mad.lo.u32", {Name(at), Name(thread), Integer(kZeroedBytes), Name(start)});
  writer.Add("mul.lo.u32", {Name(step), Name(threads), Integer(kZeroedBytes)});
  // The size of the dynamic part need not be a multiple of kZeroedBytes; every thread zeroes the
  // rest.
  const std::string left = writer.Word();
  writer.Add("and.b32", {Name(left), Name(end), Integer(-std::int64_t{kZeroedBytes})});
  writer.Loop("shared", kZeroedBytes, at, Name(left), Name(step));
  if (has_tail) writer.Loop("shared", 1, left, Name(end), Integer(1));
  writer.Add("bar.sync", {Integer(0)});
}

std::string ZeroUnwritten(FunctionEditor& editor, const Function& function, const ValueFlow& flow,
                          const std::vector<std::size_t>& statements) {
  return UnwrittenZeroes(editor, function, flow, statements).Run();
}

}  // namespace gpushared::ptx

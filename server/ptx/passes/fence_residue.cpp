// SPDX-License-Identifier: Apache-2.0
#include "server/ptx/passes/fence_residue.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace gpushared::ptx {
namespace {

constexpr std::uint64_t kWidest = kZeroedBytes;
// Unrolled stores; for more, a loop is shorter.
constexpr std::uint64_t kUnrolledMax = 8;

// The widest store that divides a variable evenly and is aligned in it.
std::uint64_t WidthOf(const Variable& variable) {
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

  // The thread's number in its block, and how many there are.
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

}  // namespace

void ZeroLocal(FunctionEditor& editor, const Variable& local) {
  Writer writer(editor);
  const std::uint64_t width = WidthOf(local);
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
                const std::string& dynamic, bool has_tail) {
  Writer writer(editor);
  const std::string start = writer.Copy(Name(dynamic)), end = writer.Word();
  writer.Add("mov.u32", {Name(end), Name("%dynamic_smem_size")});
  writer.Add("add.u32", {Name(end), Name(end), Name(start)});
  for (const std::string& variable : variables) {
    writer.Add("min.u32", {Name(start), Name(start), Name(writer.Copy(Name(variable)))});
  }
  // Shared memory begins at a multiple of more than this, so all before it is still the block's.
  writer.Add("and.b32", {Name(start), Name(start), Integer(-std::int64_t{kZeroedBytes})});
  const auto [thread, threads] = writer.Thread();
  const std::string at = writer.Word(), step = writer.Word();
  writer.Add("mad.lo.u32", {Name(at), Name(thread), Integer(kZeroedBytes), Name(start)});
  writer.Add("mul.lo.u32", {Name(step), Name(threads), Integer(kZeroedBytes)});
  // The dynamic part need not be a multiple of anything; what is left, every thread zeroes.
  const std::string left = writer.Word();
  writer.Add("and.b32", {Name(left), Name(end), Integer(-std::int64_t{kZeroedBytes})});
  writer.Loop("shared", kZeroedBytes, at, Name(left), Name(step));
  if (has_tail) writer.Loop("shared", 1, left, Name(end), Integer(1));
  writer.Add("bar.sync", {Integer(0)});
}

}  // namespace gpushared::ptx

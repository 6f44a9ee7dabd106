// SPDX-License-Identifier: Apache-2.0
#include "server/ptx/fence_residue.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace gpushared::ptx {
namespace {

constexpr std::uint64_t kWidest = 16;
// Beyond as many stores a loop is shorter.
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
  std::string Times(const std::string& value, std::uint64_t factor) {
    if (factor == 1) return value;
    std::string product = Word();
    Add("mul.lo.u32", {Name(product), Name(value), Integer(static_cast<std::int64_t>(factor))});
    return product;
  }

  // For (at = first; at < bytes; at += step) store at base + at.
  void Loop(std::string_view space, std::uint64_t width, Operand base, const std::string& first,
            const Operand& bytes, const Operand& step) {
    const std::string at = Copy(Name(first)), address = Word();
    const std::string ends = editor_.NewRegister("pred");
    const std::string again = editor_.NewLabel(), done = editor_.NewLabel();
    Add("setp.ge.u32", {Name(ends), Name(at), bytes});
    Add(MakeIf(ends, "bra", {Name(done)}));
    Add("add.u32", {Name(address), Name(at), std::move(base)});
    editor_.InsertAtEntry(Label{.position = {}, .name = again});
    Add(Store(space, width, Address(address)));
    Add("add.u32", {Name(at), Name(at), step});
    Add("add.u32", {Name(address), Name(address), step});
    Add("setp.lt.u32", {Name(ends), Name(at), bytes});
    Add(MakeIf(ends, "bra", {Name(again)}));
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
  const std::string wide = editor.NewRegister("b64"), base = writer.Word();
  writer.Add("mov.u64", {Name(wide), Name(local.name)});
  writer.Add("cvt.u32.u64", {Name(base), Name(wide)});
  writer.Loop("local", width, Name(base), writer.Copy(Integer(0)),
              Integer(static_cast<std::int64_t>(local.Bytes())),
              Integer(static_cast<std::int64_t>(width)));
}

void ZeroShared(FunctionEditor& editor, const std::vector<Variable>& shared,
                const Variable& dynamic) {
  Writer writer(editor);
  const auto [thread, threads] = writer.Thread();
  for (const Variable& variable : shared) {
    const std::uint64_t width = WidthOf(variable);
    writer.Loop("shared", width, Name(writer.Copy(Name(variable.name))),
                writer.Times(thread, width), Integer(static_cast<std::int64_t>(variable.Bytes())),
                Name(writer.Times(threads, width)));
  }
  // Its size need not be a multiple of anything: words first, then what is left.
  const std::string start = writer.Copy(Name(dynamic.name));
  const std::string bytes = writer.Copy(Name("%dynamic_smem_size"));
  const std::string words = writer.Word(), rest = writer.Word();
  writer.Add("and.b32", {Name(words), Name(bytes), Integer(-4)});
  writer.Loop("shared", 4, Name(start), writer.Times(thread, 4), Name(words),
              Name(writer.Times(threads, 4)));
  writer.Add("add.u32", {Name(rest), Name(words), Name(thread)});
  writer.Loop("shared", 1, Name(start), rest, Name(bytes), Name(threads));
  writer.Add("bar.sync", {Integer(0)});
}

}  // namespace gpushared::ptx

// SPDX-License-Identifier: Apache-2.0
// Matrix instructions and the copies that feed them: mma, wmma, ldmatrix, stmatrix, movmatrix and
// cp.async. Modifiers are parsed in order, and unexpected ones are rejected.
#include <cstdlib>
#include <string_view>
#include <utility>

#include "server/device/cpu/executor/decoder.h"
#include "server/device/cpu/executor/matrix_shapes.h"

namespace gpushared::device::executor {
namespace {

// Consumes modifiers from the front.
class Modifiers {
 public:
  explicit Modifiers(const std::vector<std::string>& words) : words_(words) {}
  bool Take(std::string_view word) {
    if (at_ >= words_.size() || words_[at_] != word) return false;
    ++at_;
    return true;
  }
  std::string Next() { return at_ < words_.size() ? words_[at_++] : std::string(); }
  void SkipHints() {
    while (at_ < words_.size() && words_[at_].starts_with("L2::")) ++at_;
  }
  bool empty() const { return at_ == words_.size(); }

 private:
  const std::vector<std::string>& words_;
  std::size_t at_ = 0;
};

// "m16n8k16"
bool ReadShape(const std::string& text, MatrixCall* call) {
  if (text.empty() || text.front() != 'm') return false;
  char* end = nullptr;
  call->m = static_cast<std::uint32_t>(std::strtoul(text.c_str() + 1, &end, 10));
  if (*end != 'n') return false;
  call->n = static_cast<std::uint32_t>(std::strtoul(end + 1, &end, 10));
  if (*end != 'k') return false;
  call->k = static_cast<std::uint32_t>(std::strtoul(end + 1, &end, 10));
  return *end == '\0';
}

}  // namespace

// Reads the rows of {%r1, %r2, ...}, or of one register; returns false unless there are `count`.
bool FunctionDecoder::FragmentRows(const Operand& operand, const std::string& type, bool writes,
                                   std::size_t count, std::vector<std::uint32_t>* rows) {
  const bool vector = operand.kind == Operand::Kind::kVector;
  if ((vector ? operand.elements.size() : 1) != count) return false;
  const OperandType word = GetType(type == "f64" ? "b64" : "b32");
  for (std::size_t i = 0; i < count; ++i) {
    const Operand& element = vector ? operand.elements[i] : operand;
    rows->push_back(writes ? Destination(element, word) : Source(element, word));
  }
  return true;
}

MicroOp& FunctionDecoder::EmitMatrix(const std::string& key, MatrixCall call) {
  code_.matrix_calls.push_back(std::move(call));
  MicroOp& op = Emit(key, true);
  op.immediate = static_cast<std::int64_t>(code_.matrix_calls.size() - 1);
  return op;
}

// mma.sync.aligned.shape.row.col[.satfinite].dtype.atype.btype.ctype d, a, b, c
bool FunctionDecoder::DecodeMma() {
  Modifiers words(instruction_->modifiers);
  MatrixCall call;
  const auto& operands = instruction_->operands;
  if (operands.size() != 4 || !words.Take("sync") || !words.Take("aligned") ||
      !ReadShape(words.Next(), &call) || !words.Take("row") || !words.Take("col")) {
    return false;
  }
  const bool saturates = words.Take("satfinite");
  const std::string d = words.Next(), a = words.Next(), b = words.Next(), c = words.Next();
  const bool same_products = a == b || (IsByte(a) && IsByte(b));
  if (!words.empty() || !same_products || !HasMma(call, a) || !IsAccumulator(a, d) || c != d ||
      (saturates && !IsByte(a))) {
    return false;
  }
  const FragmentCounts counts = MmaRegisters(call, a, d);
  if (!FragmentRows(operands[1], a, false, counts.a, &call.a) ||
      !FragmentRows(operands[2], b, false, counts.b, &call.b) ||
      !FragmentRows(operands[3], c, false, counts.c, &call.c) ||
      !FragmentRows(operands[0], d, true, counts.d, &call.d)) {
    return false;
  }
  EmitMatrix("mma." + d + "." + a + "." + b + (saturates ? ".satfinite" : ""), std::move(call));
  return true;
}

// wmma.load.{a,b,c}.sync.aligned.layout.shape[.space].type d, [p][, stride]
// wmma.store.d.sync.aligned.layout.shape[.space].type [p], d[, stride]
bool FunctionDecoder::DecodeWmmaMemory(bool load) {
  Modifiers words(instruction_->modifiers);
  MatrixCall call;
  const auto& operands = instruction_->operands;
  words.Next();  // Skips "load" or "store".
  const std::string which = words.Next();
  if (operands.size() < 2 || operands.size() > 3 || !words.Take("sync") || !words.Take("aligned")) {
    return false;
  }
  call.columns = words.Take("col");
  if ((!call.columns && !words.Take("row")) || !ReadShape(words.Next(), &call)) return false;
  std::string space = "generic";
  if (words.Take("global")) space = "global";
  if (words.Take("shared") || words.Take("shared::cta")) space = "shared";
  const std::string type = words.Next();
  const bool known = load ? which == "a" || which == "b" || which == "c" : which == "d";
  const bool result = which == "c" || which == "d";
  const auto product_has = [&](const char* product) {
    return HasWmma(call, product) && IsAccumulator(product, type);
  };
  const bool shaped =
      result ? product_has("f16") || product_has("s8") || product_has("tf32") || product_has("f64")
             : HasWmma(call, type);
  if (!words.empty() || !known || !shaped) return false;

  const std::uint32_t rows = which == "b" ? call.k : call.m;
  const std::uint32_t columns = which == "a" ? call.k : call.n;
  std::uint32_t base = 0;
  std::int64_t immediate = 0;
  const std::string index = AddressRow(operands[load ? 1 : 0], space, &base, &immediate);
  const std::uint32_t stride = operands.size() == 3
                                   ? Source(operands[2], GetType("u32"))
                                   : frame_.ConstantRow(call.columns ? rows : columns, 4);
  if (!FragmentRows(operands[load ? 0 : 1], type, load, WmmaRegisters(call, which[0], type),
                    &call.d)) {
    return false;
  }
  call.m = rows;
  call.n = columns;
  // Only the size of an element matters, so the key has it instead of the type.
  const std::string bits = std::to_string(ptx::TypeBytes(type == "tf32" ? "b32" : type) * 8);
  MicroOp& op = EmitMatrix(
      (load ? "wmma.load." : "wmma.store.") + space + "." + index + ".b" + bits, std::move(call));
  op.a = base;
  op.b = stride;
  op.c = static_cast<std::uint32_t>(immediate);
  return true;
}

// wmma.mma.sync.aligned.alayout.blayout.shape.dtype[.atype.btype].ctype[.satfinite] d, a, b, c
bool FunctionDecoder::DecodeWmma() {
  if (instruction_->Has("load")) return DecodeWmmaMemory(true);
  if (instruction_->Has("store")) return DecodeWmmaMemory(false);
  Modifiers words(instruction_->modifiers);
  MatrixCall call;
  const auto& operands = instruction_->operands;
  if (operands.size() != 4 || !words.Take("mma") || !words.Take("sync") || !words.Take("aligned")) {
    return false;
  }
  // Skips the layouts, because the memory layout from which a fragment was loaded does not affect
  // its product.
  for (int i = 0; i < 2; ++i) {
    if (!words.Take("row") && !words.Take("col")) return false;
  }
  if (!ReadShape(words.Next(), &call)) return false;
  std::vector<std::string> types;
  while (!words.empty()) types.push_back(words.Next());
  const bool saturates = !types.empty() && types.back() == "satfinite";
  if (saturates) types.pop_back();
  // An instruction for f16 factors names only the types of d and c.
  if (types.size() == 2) types = {types[0], "f16", "f16", types[1]};
  if (types.size() != 4) return false;
  const std::string &d = types[0], &a = types[1], &b = types[2], &c = types[3];
  const bool halves = a == "f16";
  if (a != b || !HasWmma(call, a) || !IsAccumulator(a, d) || !IsAccumulator(a, c) ||
      (!halves && c != d) || (saturates && !IsByte(a))) {
    return false;
  }
  if (!FragmentRows(operands[1], a, false, WmmaRegisters(call, 'a', a), &call.a) ||
      !FragmentRows(operands[2], b, false, WmmaRegisters(call, 'b', b), &call.b) ||
      !FragmentRows(operands[3], c, false, WmmaRegisters(call, 'c', c), &call.c) ||
      !FragmentRows(operands[0], d, true, WmmaRegisters(call, 'd', d), &call.d)) {
    return false;
  }
  EmitMatrix("wmma.mma." + d + "." + a + "." + c + (saturates ? ".satfinite" : ""),
             std::move(call));
  return true;
}

// ldmatrix.sync.aligned.m8n8.{x1,x2,x4}[.trans][.shared].b16 {...}, [p]; stmatrix in the same way.
bool FunctionDecoder::DecodeMatrixMove(bool load) {
  Modifiers words(instruction_->modifiers);
  const auto& operands = instruction_->operands;
  if (operands.size() != 2 || !words.Take("sync") || !words.Take("aligned") ||
      !words.Take("m8n8")) {
    return false;
  }
  const std::size_t count = words.Take("x1") ? 1 : words.Take("x2") ? 2 : words.Take("x4") ? 4 : 0;
  MatrixCall call;
  call.columns = words.Take("trans");
  const std::string space =
      words.Take("shared") || words.Take("shared::cta") ? "shared" : "generic";
  if (count == 0 || !words.Take("b16") || !words.empty()) return false;
  std::uint32_t base = 0;
  std::int64_t immediate = 0;
  const std::string index = AddressRow(operands[load ? 1 : 0], space, &base, &immediate);
  if (!FragmentRows(operands[load ? 0 : 1], "b32", load, count, &call.d)) return false;
  MicroOp& op =
      EmitMatrix((load ? "ldmatrix." : "stmatrix.") + space + "." + index, std::move(call));
  op.a = base;
  op.c = static_cast<std::uint32_t>(immediate);
  return true;
}

// cp.async.{ca,cg}.shared.global [to], [from], size[, source size | ignore], and the waits for
// copies, which are no-ops because copies complete at once.
bool FunctionDecoder::DecodeAsyncCopy() {
  Modifiers words(instruction_->modifiers);
  const auto& operands = instruction_->operands;
  if (!words.Take("async")) return false;
  if (words.Take("commit_group") || words.Take("wait_all") || words.Take("wait_group")) {
    if (!words.empty()) return false;
    Emit("nothing", false);
    return true;
  }
  const bool through_l1 = words.Take("ca");
  if (!through_l1 && !words.Take("cg")) return false;
  if (!words.Take("shared") && !words.Take("shared::cta")) return false;
  if (!words.Take("global")) return false;
  words.SkipHints();
  if (!words.empty() || operands.size() < 3 || operands.size() > 4 ||
      operands[2].kind != Operand::Kind::kInteger) {
    return false;
  }
  const std::int64_t bytes = operands[2].integer;
  if (bytes != 16 && (!through_l1 || (bytes != 4 && bytes != 8))) return false;
  const OperandType word = GetType("u32");
  const std::uint32_t all = frame_.ConstantRow(static_cast<std::uint64_t>(bytes), 4);
  std::uint32_t wanted = all;
  if (operands.size() == 4) {
    const std::uint32_t reg = flow_.FindRegister(operands[3].text);
    const bool ignores = reg != ptx::kNoRegister && frame_.RegisterWidth(reg) == 0;
    if (!ignores) {
      wanted = Source(operands[3], word);
    } else {
      const std::uint32_t choice = PredicateSource(operands[3]);
      wanted = frame_.ScratchRow(4);
      MicroOp& op = Emit("selp.b32", false);
      op.a = frame_.ConstantRow(0, 4), op.b = all, op.c = choice;
      op.destination = wanted;
    }
  }
  std::uint32_t to = 0, from = 0;
  std::int64_t to_offset = 0, from_offset = 0;
  const std::string index = AddressRow(operands[0], "shared", &to, &to_offset);
  AddressRow(operands[1], "global", &from, &from_offset);
  MicroOp& op = Emit("cp.async." + index, true);
  op.a = to, op.b = from, op.c = wanted;
  op.immediate = to_offset;
  // The cast is exact, because PTX offsets are 32 bits wide.
  op.rows[0] = static_cast<std::uint32_t>(from_offset);
  op.extra = static_cast<std::uint32_t>(bytes);
  return true;
}

bool FunctionDecoder::DecodeMatrix() {
  const std::string_view opcode = instruction_->opcode;
  if (opcode == "mma") return DecodeMma();
  if (opcode == "wmma") return DecodeWmma();
  if (opcode == "ldmatrix" || opcode == "stmatrix") return DecodeMatrixMove(opcode == "ldmatrix");
  if (opcode == "cp") return DecodeAsyncCopy();
  if (opcode != "movmatrix" ||
      instruction_->Spelling() != "movmatrix.sync.aligned.m8n8.trans.b16" ||
      instruction_->operands.size() != 2) {
    return false;
  }
  const OperandType word = GetType("b32");
  const std::uint32_t source = Source(instruction_->operands[1], word);
  const std::uint32_t destination = Destination(instruction_->operands[0], word);
  MicroOp& op = Emit("movmatrix", true);
  op.a = source;
  op.destination = destination;
  return true;
}

}  // namespace gpushared::device::executor

// SPDX-License-Identifier: Apache-2.0
#include "server/device/cpu/executor/flat_code.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/device/cpu/executor/code.h"
#include "server/device/cpu/executor/op_table.h"
#include "server/device/cpu/executor/verify.h"
#include "server/ptx/analysis/kernel_reach.h"

namespace gpushared::device::executor {
namespace {

// ---- rows: written field by field, because bool and enumerations have invalid bit patterns.

struct FlatRow {
  std::uint64_t address = 0;
  std::uint32_t offset = 0;
  std::uint16_t what = 0;
  std::uint16_t wide = 0;
};
static_assert(sizeof(FlatRow) == 16);

void PutRows(const FunctionCode& function, FlatWriter& to) {
  std::vector<FlatRow> rows;
  for (const SpecialRow& row : function.special_rows) {
    rows.push_back({0, row.offset, static_cast<std::uint16_t>(row.what), row.wide});
  }
  to.PutAll(std::exchange(rows, {}));
  for (const AddressRow& row : function.address_rows) {
    rows.push_back({row.address, row.offset, 0, row.wide});
  }
  to.PutAll(std::exchange(rows, {}));
  for (const ScratchRow& row : function.scratch_rows) rows.push_back({0, row.offset, 0, row.wide});
  to.PutAll(rows);
}

bool TakeRows(FlatReader& from, FunctionCode* function) {
  for (const FlatRow& row : from.TakeAll<FlatRow>()) {
    if (row.what > static_cast<std::uint16_t>(SpecialRegister::kOne)) return false;
    function->special_rows.push_back(
        {row.offset, static_cast<SpecialRegister>(row.what), row.wide != 0});
  }
  for (const FlatRow& row : from.TakeAll<FlatRow>()) {
    function->address_rows.push_back({row.offset, row.wide != 0, row.address});
  }
  for (const FlatRow& row : from.TakeAll<FlatRow>()) {
    function->scratch_rows.push_back({row.offset, row.wide != 0});
  }
  return true;
}

// ---- functions, calls and matrices

struct FlatFunction {
  std::uint64_t local_bytes = 0;
  std::uint32_t entry = 0, frame_bytes = 0, narrow_begin = 0, wide_begin = 0;
  std::uint32_t image_offset = 0, area_offset = 0, area_bytes = 0, zero = 0;
};
static_assert(sizeof(FlatFunction) == 40);

void PutFunction(const FunctionCode& f, FlatWriter& to) {
  to.PutText(f.name);
  to.Put(FlatFunction{f.local_bytes, f.entry, f.frame_bytes, f.narrow_begin, f.wide_begin,
                      f.image_offset, f.area_offset, f.area_bytes, 0});
  to.PutAll(f.image);
  to.PutAll(f.arguments);
  to.PutAll(f.results);
  PutRows(f, to);
}

bool TakeFunction(FlatReader& from, FunctionCode* function) {
  function->name = from.TakeText();
  const auto flat = from.Take<FlatFunction>();
  function->local_bytes = flat.local_bytes;
  function->entry = flat.entry;
  function->frame_bytes = flat.frame_bytes;
  function->narrow_begin = flat.narrow_begin;
  function->wide_begin = flat.wide_begin;
  function->image_offset = flat.image_offset;
  function->area_offset = flat.area_offset;
  function->area_bytes = flat.area_bytes;
  function->image = from.TakeAll<std::byte>();
  function->arguments = from.TakeAll<AreaSlot>();
  function->results = from.TakeAll<AreaSlot>();
  return TakeRows(from, function) && IsPlainText(function->name);
}

struct FlatMatrix {
  std::uint32_t m = 0, n = 0, k = 0, columns = 0;
};

void PutTables(const Code& code, FlatWriter& to) {
  to.PutCount(code.call_sites.size());
  for (const CallSite& site : code.call_sites) {
    to.Put(site.function);
    to.Put(site.target_list);
    to.PutAll(site.arguments);
    to.PutAll(site.results);
  }
  to.PutCount(code.callable.size());
  for (const CallableFunction& callable : code.callable) {
    to.Put(callable.address);
    to.Put(callable.function);
  }
  to.PutCount(code.target_lists.size());
  for (const std::vector<std::uint64_t>& list : code.target_lists) to.PutAll(list);
  to.PutCount(code.branch_tables.size());
  for (const std::vector<std::uint32_t>& table : code.branch_tables) to.PutAll(table);
  to.PutCount(code.matrix_calls.size());
  for (const MatrixCall& call : code.matrix_calls) {
    to.Put(FlatMatrix{call.m, call.n, call.k, call.columns});
    for (const auto* rows : {&call.d, &call.a, &call.b, &call.c}) to.PutAll(*rows);
  }
}

void TakeTables(FlatReader& from, Code* code) {
  code->call_sites.resize(from.TakeCount(24, sizeof(CallSite)));
  for (CallSite& site : code->call_sites) {
    site.function = from.Take<std::uint32_t>();
    site.target_list = from.Take<std::uint32_t>();
    site.arguments = from.TakeAll<AreaSlot>();
    site.results = from.TakeAll<AreaSlot>();
  }
  code->callable.resize(from.TakeCount(12, sizeof(CallableFunction)));
  for (CallableFunction& callable : code->callable) {
    callable.address = from.Take<std::uint64_t>();
    callable.function = from.Take<std::uint32_t>();
  }
  code->target_lists.resize(from.TakeCount(8, sizeof(std::vector<std::uint64_t>)));
  for (auto& list : code->target_lists) list = from.TakeAll<std::uint64_t>();
  code->branch_tables.resize(from.TakeCount(8, sizeof(std::vector<std::uint32_t>)));
  for (auto& table : code->branch_tables) table = from.TakeAll<std::uint32_t>();
  code->matrix_calls.resize(from.TakeCount(48, sizeof(MatrixCall)));
  for (MatrixCall& call : code->matrix_calls) {
    const auto flat = from.Take<FlatMatrix>();
    call.m = flat.m, call.n = flat.n, call.k = flat.k, call.columns = flat.columns != 0;
    for (auto* rows : {&call.d, &call.a, &call.b, &call.c}) *rows = from.TakeAll<std::uint32_t>();
  }
}

// ---- ops: as in memory, with the number instead of the handler.

static_assert(offsetof(MicroOp, handler) == 0 && sizeof(Handler) == 8);

struct FlatOp {
  std::uint64_t number = 0;
  std::array<std::byte, sizeof(MicroOp) - sizeof(Handler)> rest = {};
};
static_assert(sizeof(FlatOp) == sizeof(MicroOp));

void PutOps(const Code& code, Flavour flavour, FlatWriter& to) {
  to.PutCount(code.ops.size());
  for (const MicroOp& op : code.ops) {
    FlatOp flat;
    flat.number = GetNumber(flavour, op.handler);
    std::memcpy(flat.rest.data(), &op.destination, flat.rest.size());
    to.Put(flat);
  }
  to.PutAll(code.sources);
  to.PutCount(code.spellings.size());
  for (const std::string& spelling : code.spellings) to.PutText(spelling);
}

bool TakeOps(FlatReader& from, Flavour flavour, Code* code, std::vector<std::uint16_t>* numbers) {
  const std::size_t count = from.TakeCount(sizeof(FlatOp), sizeof(MicroOp));
  code->ops.resize(count);
  numbers->resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto flat = from.Take<FlatOp>();
    const OpEntry* const entry = OpOfNumber(flavour, flat.number);
    if (entry == nullptr) return false;
    std::memcpy(&code->ops[i].destination, flat.rest.data(), flat.rest.size());
    code->ops[i].handler = entry->handler;
    (*numbers)[i] = static_cast<std::uint16_t>(flat.number);
  }
  code->sources = from.TakeAll<OpSource>();
  code->spellings.resize(from.TakeCount(8, sizeof(std::string)));
  for (std::string& spelling : code->spellings) spelling = from.TakeText();
  return std::ranges::all_of(code->spellings, IsPlainText);
}

struct FlatCode {
  std::uint64_t local_bytes_per_thread = 0;
  std::uint32_t static_shared_bytes = 0;
  std::uint8_t calls = 0;
  std::uint8_t allocates = 0;
  std::uint8_t uses_stack = 0;
  std::uint8_t reserved = 0;
};

template <typename T>
std::uint64_t GetBytes(const std::vector<T>& values) {
  return values.capacity() * sizeof(T);
}

}  // namespace

bool IsPlainText(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; });
}

std::uint64_t MemoryBytes(const Program& program) {
  const Code& code = program.code();
  std::uint64_t bytes =
      sizeof(Program) + sizeof(Code) + program.info().unsupported.size() +
      program.info().why_reach_unknown.size() + GetBytes(program.info().reach_offsets) +
      GetBytes(program.info().parameters) + GetBytes(code.ops) + GetBytes(code.sources) +
      GetBytes(code.spellings) + GetBytes(code.functions) + GetBytes(code.call_sites) +
      GetBytes(code.branch_tables) + GetBytes(code.matrix_calls) + GetBytes(code.callable) +
      GetBytes(code.target_lists);
  for (const std::string& spelling : code.spellings) bytes += spelling.capacity();
  for (const FunctionCode& f : code.functions) {
    bytes += f.name.capacity() + GetBytes(f.image) + GetBytes(f.special_rows) +
             GetBytes(f.address_rows) + GetBytes(f.scratch_rows) + GetBytes(f.arguments) +
             GetBytes(f.results);
  }
  for (const CallSite& site : code.call_sites)
    bytes += GetBytes(site.arguments) + GetBytes(site.results);
  for (const auto& table : code.branch_tables) bytes += GetBytes(table);
  for (const auto& list : code.target_lists) bytes += GetBytes(list);
  for (const MatrixCall& call : code.matrix_calls) {
    bytes += GetBytes(call.a) + GetBytes(call.b) + GetBytes(call.c) + GetBytes(call.d);
  }
  return bytes;
}

namespace {

// Returns whether the offsets ascend and an eight-byte word fits into the parameters at each.
bool AreWords(const std::vector<std::uint32_t>& offsets, std::uint32_t parameter_bytes) {
  const bool ascend =
      std::ranges::adjacent_find(offsets, std::ranges::greater_equal()) == offsets.end();
  return ascend && offsets.size() <= ptx::kReachOffsetsMax &&
         (offsets.empty() || (parameter_bytes >= sizeof(std::uint64_t) &&
                              offsets.back() <= parameter_bytes - sizeof(std::uint64_t)));
}

}  // namespace

void PutKernelInfo(const KernelInfo& info, FlatWriter& to) {
  to.PutText(info.name);
  to.PutText(info.unsupported);
  to.PutAll(info.parameters);
  to.Put(info.parameter_bytes);
  to.Put(info.static_shared_bytes);
  to.Put(info.threads_per_block_max);
  to.Put(info.required_block);
  to.Put(info.required_cluster);
  for (const std::uint32_t fact :
       {info.registers, info.local_bytes, info.constant_bytes, info.dynamic_shared_bytes_max,
        info.ptx_version, info.binary_version}) {
    to.Put(fact);
  }
  to.PutAll(info.reach_offsets);
  to.PutText(info.why_reach_unknown);
}

Result<KernelInfo> TakeKernelInfo(FlatReader& from) {
  KernelInfo info;
  info.name = from.TakeText();
  info.unsupported = from.TakeText();
  info.parameters = from.TakeAll<ParameterLayout>();
  info.parameter_bytes = from.Take<std::uint32_t>();
  info.static_shared_bytes = from.Take<std::uint32_t>();
  info.threads_per_block_max = from.Take<std::uint32_t>();
  info.required_block = from.Take<std::array<std::uint32_t, 3>>();
  info.required_cluster = from.Take<std::array<std::uint32_t, 3>>();
  for (std::uint32_t* const fact :
       {&info.registers, &info.local_bytes, &info.constant_bytes, &info.dynamic_shared_bytes_max,
        &info.ptx_version, &info.binary_version}) {
    *fact = from.Take<std::uint32_t>();
  }
  info.reach_offsets = from.TakeAll<std::uint32_t>();
  info.why_reach_unknown = from.TakeText();
  const bool fit = std::ranges::all_of(info.parameters, [&](const ParameterLayout& parameter) {
    return parameter.bytes <= info.parameter_bytes &&
           parameter.offset <= info.parameter_bytes - parameter.bytes;
  });
  const bool is_plain = IsPlainText(info.name) && IsPlainText(info.unsupported) &&
                        IsPlainText(info.why_reach_unknown);
  for (const auto& required : {info.required_block, info.required_cluster}) {
    const auto zeros = std::ranges::count(required, 0u);
    if (zeros != 0 && zeros != 3) return WrongCode("required dimensions of a kernel");
  }
  if (!from.ok() || !fit || !is_plain) return WrongCode("information about a kernel");
  const bool knows = info.why_reach_unknown.empty();
  if (!AreWords(info.reach_offsets, info.parameter_bytes) ||
      (!knows && !info.reach_offsets.empty())) {
    return WrongCode("access set of a kernel");
  }
  return info;
}

void PutProgram(const Program& program, Flavour flavour, FlatWriter& to) {
  PutKernelInfo(program.info(), to);
  if (!program.info().unsupported.empty()) return;
  const Code& code = program.code();
  to.Put(FlatCode{.local_bytes_per_thread = code.local_bytes_per_thread,
                  .static_shared_bytes = code.static_shared_bytes,
                  .calls = code.calls,
                  .allocates = code.allocates,
                  .uses_stack = code.uses_stack});
  to.PutCount(code.functions.size());
  for (const FunctionCode& function : code.functions) PutFunction(function, to);
  PutTables(code, to);
  PutOps(code, flavour, to);
}

Result<std::unique_ptr<const Program>> TakeProgram(FlatReader& from, Flavour flavour) {
  from.Hold(sizeof(Program) + sizeof(Code) + sizeof(FunctionCode));
  Result<KernelInfo> info = TakeKernelInfo(from);
  if (!info) return info.status();
  auto code = std::make_unique<Code>();
  code->kernel = info->name;
  if (!info->unsupported.empty()) {
    code->functions.resize(1);
    return std::make_unique<const Program>(*std::move(info), std::move(code));
  }
  const auto flat = from.Take<FlatCode>();
  code->local_bytes_per_thread = flat.local_bytes_per_thread;
  code->static_shared_bytes = flat.static_shared_bytes;
  code->calls = flat.calls != 0;
  code->allocates = flat.allocates != 0;
  code->uses_stack = flat.uses_stack != 0;
  code->functions.resize(from.TakeCount(sizeof(FlatFunction), sizeof(FunctionCode)));
  for (FunctionCode& function : code->functions) {
    if (!TakeFunction(from, &function)) return WrongCode("a function");
  }
  TakeTables(from, code.get());
  std::vector<std::uint16_t> numbers;
  if (!TakeOps(from, flavour, code.get(), &numbers))
    return WrongCode("an operation or its spelling");
  if (!from.ok()) return WrongCode("its length");
  if (Status verified = Verify(*info, *code, numbers, flavour); !verified.ok()) return verified;
  return std::make_unique<const Program>(*std::move(info), std::move(code));
}

}  // namespace gpushared::device::executor

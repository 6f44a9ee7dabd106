// SPDX-License-Identifier: Apache-2.0
// Translates functions of a PTX module into micro-ops. Private to the executor.

#ifndef GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_DECODER_H_
#define GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_DECODER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "gpushared/result.h"

#include "common/ptx/text/module.h"
#include "server/device/cpu/executor/block_executor.h"
#include "server/device/cpu/executor/code.h"
#include "server/device/cpu/executor/program.h"
#include "server/ptx/analysis/control_flow.h"

namespace gpushared::device::executor {

// The meaning of a name that is not a register.
struct Symbol {
  enum class Kind : std::uint8_t { kShared, kGlobal, kLocal, kParameter, kArea, kFunction };
  Kind kind = Kind::kGlobal;
  // Address in its space; for kArea (a .param of a .func or of a call), offset in the function's
  // parameter area.
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
};
using SymbolTable = std::unordered_map<std::string, Symbol>;

// Collects unsupported features of a kernel, each once.
class MissingList {
 public:
  void Add(std::uint32_t line, const std::string& what);
  bool empty() const { return entries_.empty(); }
  std::string Text() const;

 private:
  struct Entry {
    std::uint32_t line;
    std::string what;
  };
  std::vector<Entry> entries_;
  std::unordered_set<std::string> seen_;
  std::size_t left_out_ = 0;
};

// A function of a program, with its index in Code::functions.
struct FunctionPlan {
  const ptx::Function* function = nullptr;
  const ptx::ControlFlow* flow = nullptr;
  SymbolTable symbols;  // Its own variables and parameters.
  std::uint64_t local_bytes = 0;
  std::uint32_t area_bytes = 0;
  std::vector<std::uint32_t> calls;  // Indices of functions that it calls by name.
  bool has_stack = false;            // Has alloca, stacksave or stackrestore.
  bool calls_any = false;  // Has indirect calls, which may reach any of ProgramPlan::callable.
};

// Index by name that all programs of a module share while they are decoded. Borrows the module.
struct ModuleIndex {
  const ptx::Module* module = nullptr;
  std::unordered_map<std::string_view, const ptx::Function*> functions;  // .func with a body.
  // Shared variables that are declared outside of functions, in source order.
  std::unordered_map<std::string_view, std::vector<const ptx::Variable*>> shared;
  SymbolTable symbols;               // Variables in device memory, and functions with addresses.
  std::uint32_t constant_bytes = 0;  // Size of all .const variables.
  // Set when a kernel has indirect calls.
  std::optional<std::vector<const ptx::Function*>> address_taken;
  std::size_t statements = 0;  // Decoded so far; limited by kDecodedStatementsMax.
  std::size_t reason_bytes_left = ptx::kReasonBytesMax;
};

// State shared by the functions of one program while they are decoded.
struct ProgramPlan {
  ModuleIndex* module = nullptr;
  Flavour flavour = Flavour::kBaseline;
  std::vector<FunctionPlan> functions;
  std::unordered_map<std::string, std::uint32_t> function_index;
  std::vector<std::uint32_t> callable;  // Functions that may be called indirectly.
  SymbolTable symbols;                  // The module's shared variables that the program uses.
  MissingList missing;
  Code* code = nullptr;
};

// Storage of a function's frame: registers by live range, and rows that are allocated on demand.
class FrameLayout {
 public:
  explicit FrameLayout(const ptx::ControlFlow& flow);

  std::uint32_t RegisterOffset(std::uint32_t index) const { return register_offsets_[index]; }
  // For a 128-bit register: offset of its upper half's row. RegisterOffset returns that of the
  // lower half.
  std::uint32_t UpperOffset(std::uint32_t index) const { return upper_offsets_[index]; }
  // Bytes per lane in the register's row (or two rows): 4, 8 or 16; 0 for a predicate.
  std::uint32_t RegisterWidth(std::uint32_t index) const { return register_widths_[index]; }

  std::uint32_t ConstantRow(std::uint64_t value, std::uint32_t width);
  // Row of a module variable's address, see AddressRow.
  std::uint32_t VariableRow(std::uint64_t address, std::uint32_t width);
  std::uint32_t SpecialRowFor(SpecialRegister what, bool wide);
  // Rows and predicates for intermediate values of one instruction, until ReleaseScratch.
  std::uint32_t ScratchRow(std::uint32_t width);
  std::uint32_t ScratchPredicate();
  void ReleaseScratch();
  // A row for the whole function; must be allocated before all scratch rows.
  std::uint32_t KeptRow(std::uint32_t width);

  // Current size without the parameter area.
  std::uint32_t bytes() const { return end_; }
  void Finish(std::uint32_t area_bytes, FunctionCode* function) const;

 private:
  std::uint32_t NewRow(std::uint32_t width);

  std::vector<std::uint32_t> register_offsets_;
  std::vector<std::uint32_t> upper_offsets_;  // 0 for registers with one row.
  std::vector<std::uint32_t> register_widths_;
  std::uint32_t first_scratch_predicate_ = 0;
  std::uint32_t scratch_predicates_used_ = 0;
  std::uint32_t narrow_begin_ = 0;
  std::uint32_t wide_begin_ = 0;
  std::uint32_t extra_begin_ = 0;  // Start of constant, special and scratch rows.
  std::uint32_t end_ = 0;
  std::unordered_map<std::uint64_t, std::uint32_t> constants_[2];
  std::vector<std::pair<std::uint32_t, std::pair<std::uint64_t, std::uint32_t>>> constant_rows_;
  std::vector<SpecialRow> special_rows_;
  std::unordered_map<std::uint64_t, std::uint32_t> variables_[2];
  std::vector<AddressRow> address_rows_;
  std::vector<std::uint32_t> scratch_[2];
  std::size_t scratch_used_[2] = {0, 0};
  std::size_t scratch_kept_[2] = {0, 0};  // Number of kept rows at the front of the scratch rows.
};

// Returns false if a modifier is unknown. Defined in decode_modifiers.cpp.
bool HasOnlyKnownModifiers(const ptx::Instruction& instruction);

// Decodes one function of a plan and appends it to the plan's code.
class FunctionDecoder {
 public:
  FunctionDecoder(ProgramPlan& plan, std::uint32_t index);
  void Decode();

 private:
  using Instruction = ptx::Instruction;
  using Operand = ptx::Operand;

  // Type of an operand. `name` is in PTX spelling.
  struct OperandType {
    std::string name;
    std::uint32_t width = 4;  // Bytes per lane in its row.
    bool is_signed = false;
  };
  static OperandType GetType(std::string_view name);
  static OperandType GetWideType(std::string_view name);

  // decode_operands.cpp
  MicroOp& Emit(std::string_view key, bool guarded);
  void Missing(const std::string& what);
  std::uint32_t Source(const Operand& operand, const OperandType& type);
  std::uint32_t SourceName(const Operand& operand, const OperandType& type);
  std::uint32_t SumSource(std::uint32_t row, std::int64_t addend, const OperandType& type);
  std::uint32_t SpecialSource(const std::string& name, const OperandType& type);
  std::uint32_t SymbolSource(const Operand& operand, const Symbol& symbol, const OperandType& type);
  std::uint32_t GetConstant(const Operand& operand, const OperandType& type);
  std::uint32_t Resized(std::uint32_t row, std::uint32_t from, std::uint32_t to, bool is_signed);
  // Returns the row to write. If it is not the register's own, FinishDestinations moves the value.
  std::uint32_t Destination(const Operand& operand, const OperandType& type);
  void FinishDestinations();
  std::uint32_t PredicateSource(const Operand& operand);
  std::uint32_t PredicateDestination(const Operand& operand);
  std::optional<Symbol> FindSymbol(const std::string& name) const;
  const Operand* OperandAt(std::size_t index);

  // decode_instructions.cpp
  static bool WritesPredicate(const Instruction& instruction, const std::string& name);
  static std::optional<Instruction> InUsualOrder(const Instruction& instruction);
  static Instruction WithoutCachePolicy(Instruction instruction);
  void DecodeInstruction(const Instruction& instruction);
  bool DecodeSimple();
  bool DecodeMove();
  bool DecodeVectorMove();
  bool DecodePredicateLogic();
  bool DecodeConvertAddress();
  bool DecodeCompare();
  void CompareInto(const std::string& key, const OperandType& type, std::uint32_t destination,
                   const Operand& a, const Operand& b);
  bool DecodeSet();
  bool DecodeSelect();
  bool DecodeWarpWide();
  bool DecodeBarrier();
  std::string Key() const;

  // decode_integers.cpp
  bool DecodeCarry();
  bool DecodePack();
  bool DecodeLogicTest();

  // decode_memory.cpp
  bool DecodeMemory();
  void DecodeLoadStore(bool load);
  void DecodeAtomic(bool wants_result);
  void DecodeAtomicVector(bool wants_result);
  bool DecodeMbarrier();
  void DecodeParameter(const Operand& address, bool load);
  void DecodeKernelParameter(const Operand& address);
  std::string AddressRow(const Operand& address, const std::string& space, std::uint32_t* row,
                         std::int64_t* immediate);
  void BindElements(const Operand& operand, const OperandType& type, bool load,
                    std::array<std::uint32_t, 4>* rows, std::uint32_t* count);

  // decode_b128.cpp
  bool IsB128(const Operand& operand) const;
  std::optional<Instruction> InHalves(const Instruction& instruction) const;
  // Returns the row if the operand is half of a 128-bit register.
  std::optional<std::uint32_t> GetHalf(const Operand& operand, std::uint32_t reg) const;
  bool DecodeB128();
  bool DecodeB128Move();
  bool DecodeB128Atomic();

  // decode_matrix.cpp
  bool DecodeMatrix();
  bool DecodeMma();
  bool DecodeWmma();
  bool DecodeWmmaMemory(bool load);
  bool DecodeMatrixMove(bool load);
  bool DecodeAsyncCopy();
  bool FragmentRows(const Operand& operand, const std::string& type, bool writes, std::size_t count,
                    std::vector<std::uint32_t>* rows);
  MicroOp& EmitMatrix(const std::string& key, MatrixCall call);

  // decode_texture.cpp
  struct TexturePlace {
    std::uint32_t handle = 0;
    std::array<std::uint32_t, 3> coordinates = {};
  };
  bool DecodeTexture();
  bool DecodeSample();
  bool DecodeGather();
  bool DecodeSurface(bool load);
  bool TextureRows(const Operand& address, std::size_t dimensions, const OperandType& type,
                   TexturePlace* place);
  MicroOp& EmitTexture(const std::string& key, const TexturePlace& place);

  // decode_warpgroup.cpp
  bool DecodeWarpgroup();
  bool DecodeWarpgroupProduct();
  bool AccumulatorRows(const Operand& operand, std::size_t count, std::vector<std::uint32_t>* rows);

  // decode_control.cpp
  bool DecodeControl();
  bool DecodeStack();
  void RestoreStack();
  // `since_check`: number of ops since the last check for a kill. Returns that number after the
  // block.
  std::size_t DecodeBlock(const ptx::BasicBlock& block, std::size_t since_check);
  void DecodeBranch();
  void DecodeIndexedBranch();
  void DecodeCall();
  void DecodeIndirectCall(const Operand& callee, const Operand* results, const Operand* arguments,
                          const Operand* list);
  bool DecodeBuiltinCall(const std::string& name, const Operand* results, const Operand* arguments);
  std::vector<AreaSlot> MatchArguments(const Operand* list,
                                       const std::vector<ptx::Variable>& formal);
  std::vector<AreaSlot> OwnArea(const std::vector<ptx::Variable>& variables) const;
  // Contents of the .callprototype or .calltargets directive that an indirect call names.
  struct IndirectTargets {
    const ptx::Function* prototype = nullptr;  // Null if the list is invalid.
    std::uint32_t target_list = 0;             // Index into Code::target_lists.
  };
  const IndirectTargets& GetTargets(const std::string& list);
  void ReadTargets(const std::string& directive, IndirectTargets* targets);
  std::uint32_t AreaOffset(const Operand& operand, std::uint32_t bytes);
  void ResolveBranches();

  ProgramPlan& plan_;
  FunctionPlan& function_;
  const ptx::ControlFlow& flow_;
  const std::uint32_t index_;
  Code& code_;
  FrameLayout frame_;

  // Instruction being decoded; ops emitted from now on belong to it.
  const Instruction* instruction_ = nullptr;
  // Normalized form of instruction_ if it was spelled differently.
  std::optional<Instruction> usual_;
  std::uint32_t position_ = 0;  // Index of instruction_ in the flow.
  std::uint32_t guard_ = 0;
  std::uint32_t caller_stack_ = 0;  // Row with the stack pointer at the start of the function.
  struct PendingDestination {
    std::uint32_t from, to;
    bool widen, is_signed;
  };
  std::vector<PendingDestination> pending_;
  std::vector<std::uint32_t> block_op_;  // First op of each block, followed by the end.
  struct BranchFix {
    std::uint32_t op;
    std::uint32_t target_block, reconvergence_block;
  };
  std::vector<BranchFix> fixes_;
  struct TableFix {
    std::uint32_t table;
    std::vector<std::uint32_t> blocks;
  };
  std::vector<TableFix> table_fixes_;
  std::unordered_map<std::string, std::uint32_t> spelling_index_;
  // Lists of indirect calls by name, and their prototypes.
  std::unordered_map<std::string, IndirectTargets> indirect_targets_;
  std::vector<std::unique_ptr<const ptx::Function>> prototypes_;
  bool are_targets_read_ = false;
};

}  // namespace gpushared::device::executor

#endif  // GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_DECODER_H_

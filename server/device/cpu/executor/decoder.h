// SPDX-License-Identifier: Apache-2.0
// Turns functions of a PTX module into micro-ops. Private to the executor.

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
  // Address in its space; for kArea (a .param of a .func or of a call) the offset in the
  // function's parameter area.
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
};
using SymbolTable = std::unordered_map<std::string, Symbol>;

// Collects what a kernel needs and the executor lacks, each entry once.
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

// One function that a program contains, with its place in Code::functions.
struct FunctionPlan {
  const ptx::Function* function = nullptr;
  const ptx::ControlFlow* flow = nullptr;
  SymbolTable symbols;  // Its own variables and parameters.
  std::uint64_t local_bytes = 0;
  std::uint32_t area_bytes = 0;
  std::vector<std::uint32_t> calls;  // Indices of functions it calls by name.
  bool has_stack = false;            // Has alloca, stacksave or stackrestore.
  bool calls_any = false;            // And through registers, any of ProgramPlan::callable.
};

// What all programs of a module share while they are decoded, by name. Borrows the module.
struct ModuleIndex {
  const ptx::Module* module = nullptr;
  std::unordered_map<std::string_view, const ptx::Function*> functions;  // .func with a body.
  // Declared outside of functions; in source order.
  std::unordered_map<std::string_view, std::vector<const ptx::Variable*>> shared;
  SymbolTable symbols;  // Variables in device memory, and functions that have addresses.
  std::uint32_t constant_bytes = 0;  // Of .const variables.
  // Once a kernel calls indirectly.
  std::optional<std::vector<const ptx::Function*>> address_taken;
  std::size_t statements = 0;  // Decoded so far, of kDecodedStatementsMax.
  std::size_t reason_bytes_left = ptx::kReasonBytesMax;
};

// Everything the functions of one program share while they are decoded.
struct ProgramPlan {
  ModuleIndex* module = nullptr;
  Flavour flavour = Flavour::kBaseline;
  std::vector<FunctionPlan> functions;
  std::unordered_map<std::string, std::uint32_t> function_index;
  std::vector<std::uint32_t> callable;  // Functions that indirect calls may reach.
  SymbolTable symbols;                  // The module's shared variables that the program names.
  MissingList missing;
  Code* code = nullptr;
};

// Storage of one function's frame: registers by live range, and rows made on demand.
class FrameLayout {
 public:
  explicit FrameLayout(const ptx::ControlFlow& flow);

  std::uint32_t RegisterOffset(std::uint32_t index) const { return register_offsets_[index]; }
  // Of a register of 128 bits: the row of its upper half. The other has that of its lower one.
  std::uint32_t UpperOffset(std::uint32_t index) const { return upper_offsets_[index]; }
  // 0 for a predicate, else 4, 8 or 16: bytes of one lane in the register's row, or in its two
  // rows.
  std::uint32_t RegisterWidth(std::uint32_t index) const { return register_widths_[index]; }

  std::uint32_t ConstantRow(std::uint64_t value, std::uint32_t width);
  // The row of a module variable's address, see AddressRow.
  std::uint32_t VariableRow(std::uint64_t address, std::uint32_t width);
  std::uint32_t SpecialRowFor(SpecialRegister what, bool wide);
  // Rows and predicates for values inside one instruction; ReleaseScratch ends their use.
  std::uint32_t ScratchRow(std::uint32_t width);
  std::uint32_t ScratchPredicate();
  void ReleaseScratch();
  // A row for the whole function, to be asked for before all scratch rows.
  std::uint32_t KeptRow(std::uint32_t width);

  // So far, without the parameter area.
  std::uint32_t bytes() const { return end_; }
  void Finish(std::uint32_t area_bytes, FunctionCode* function) const;

 private:
  std::uint32_t NewRow(std::uint32_t width);

  std::vector<std::uint32_t> register_offsets_;
  std::vector<std::uint32_t> upper_offsets_;  // 0 for registers of one row.
  std::vector<std::uint32_t> register_widths_;
  std::uint32_t first_scratch_predicate_ = 0;
  std::uint32_t scratch_predicates_used_ = 0;
  std::uint32_t narrow_begin_ = 0;
  std::uint32_t wide_begin_ = 0;
  std::uint32_t extra_begin_ = 0;  // Where constant, special and scratch rows begin.
  std::uint32_t end_ = 0;
  std::unordered_map<std::uint64_t, std::uint32_t> constants_[2];
  std::vector<std::pair<std::uint32_t, std::pair<std::uint64_t, std::uint32_t>>> constant_rows_;
  std::vector<SpecialRow> special_rows_;
  std::unordered_map<std::uint64_t, std::uint32_t> variables_[2];
  std::vector<AddressRow> address_rows_;
  std::vector<std::uint32_t> scratch_[2];
  std::size_t scratch_used_[2] = {0, 0};
  std::size_t scratch_kept_[2] = {0, 0};  // Of them, at the front.
};

// False when a modifier is not understood. decode_modifiers.cpp
bool HasOnlyKnownModifiers(const ptx::Instruction& instruction);

// Decodes one function of a plan, appending to the plan's code.
class FunctionDecoder {
 public:
  FunctionDecoder(ProgramPlan& plan, std::uint32_t index);
  void Decode();

 private:
  using Instruction = ptx::Instruction;
  using Operand = ptx::Operand;

  // What an instruction's operands hold: a type name as PTX spells it.
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
  // Row to write; when it is not the register's own, FinishDestinations moves it there.
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
  // The row, where the operand names half of a register of 128 bits.
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

  bool DecodeVideo();  // decode_video.cpp

  // decode_warpgroup.cpp
  bool DecodeWarpgroup();
  bool DecodeWarpgroupProduct();
  bool AccumulatorRows(const Operand& operand, std::size_t count, std::vector<std::uint32_t>* rows);

  // decode_control.cpp
  bool DecodeControl();
  bool DecodeStack();
  void RestoreStack();
  // `since_look`: ops before it that do not see a kill; returns those at its end.
  std::size_t DecodeBlock(const ptx::BasicBlock& block, std::size_t since_look);
  void DecodeBranch();
  void DecodeIndexedBranch();
  void DecodeCall();
  void DecodeIndirectCall(const Operand& callee, const Operand* results, const Operand* arguments,
                          const Operand* list);
  bool DecodeBuiltinCall(const std::string& name, const Operand* results, const Operand* arguments);
  std::vector<AreaSlot> MatchArguments(const Operand* list,
                                       const std::vector<ptx::Variable>& formal);
  std::vector<AreaSlot> OwnArea(const std::vector<ptx::Variable>& variables) const;
  // What the list of an indirect call says, .callprototype or .calltargets.
  struct IndirectTargets {
    const ptx::Function* prototype = nullptr;  // Null for a list that cannot be read.
    std::uint32_t target_list = 0;             // Its place in Code.
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

  // The last one that was begun: ops behind it are its, too.
  const Instruction* instruction_ = nullptr;
  std::optional<Instruction> usual_;  // What instruction_ is where it was spelled another way.
  std::uint32_t position_ = 0;        // Index of instruction_ in the flow.
  std::uint32_t guard_ = 0;
  std::uint32_t caller_stack_ = 0;  // Row of the stack pointer that the function began with.
  struct PendingDestination {
    std::uint32_t from, to;
    bool widen, is_signed;
  };
  std::vector<PendingDestination> pending_;
  std::vector<std::uint32_t> block_op_;  // First op of each block; one more for the end.
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
  // Lists of indirect calls by name, and the prototypes that they spell out.
  std::unordered_map<std::string, IndirectTargets> indirect_targets_;
  std::vector<std::unique_ptr<const ptx::Function>> prototypes_;
  bool are_targets_read_ = false;
};

}  // namespace gpushared::device::executor

#endif  // GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_DECODER_H_

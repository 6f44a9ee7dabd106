// SPDX-License-Identifier: Apache-2.0
// Control flow of a function body, computed by AnalyseControlFlow (control_flow.h).

#ifndef GPUSHARED_SERVER_PTX_ANALYSIS_FLOW_H_
#define GPUSHARED_SERVER_PTX_ANALYSIS_FLOW_H_

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/ptx/text/module.h"

namespace gpushared::ptx {

// Represents the end of the function, the virtual exit that post-dominates every block.
inline constexpr std::uint32_t kNoBlock = std::numeric_limits<std::uint32_t>::max();
inline constexpr std::uint32_t kNoRegister = std::numeric_limits<std::uint32_t>::max();

// Instructions that are entered only at the first and left only after the last one.
struct BasicBlock {
  enum class End : std::uint8_t {
    kFallThrough,        // Continues with the next block; the last block leaves the function.
    kBranch,             // All threads go to successors[0].
    kConditionalBranch,  // Threads whose guard is true go to successors[0], others to [1].
    kIndexedBranch,      // brx.idx: each thread goes to branch_table[index]; may be guarded.
    kLeave,              // ret or exit, unguarded.
    kConditionalLeave,   // ret or exit for threads whose guard is true; others continue.
  };
  // Index of the first instruction; blocks cover the function without gaps.
  std::uint32_t first = 0;
  std::uint32_t count = 0;  // At least 1.
  End end = End::kFallThrough;
  // Possible next blocks, without duplicates except in kConditionalBranch, which always has two:
  // taken, then not taken. kNoBlock if control runs off the end of the function. Empty for kLeave;
  // one entry for kConditionalLeave.
  std::vector<std::uint32_t> successors;
  std::vector<std::uint32_t> branch_table;  // kIndexedBranch only, in index order.
  // The first block that every thread must reach after this block, whichever path it takes;
  // kNoBlock if paths meet only at the end of the function. The last block of an endless loop is
  // assumed to leave the function.
  std::uint32_t immediate_post_dominator = kNoBlock;
};

// A register, possibly of a %r<N> family, that an instruction names.
struct Register {
  std::string name;  // Unique in the function; see ControlFlow.
  std::string type;  // "pred", "b32", ...
  // Positions (instruction indices, both inclusive) outside of which the value is not needed. Two
  // registers with disjoint ranges may share storage if every instruction writes only the lanes of
  // its active threads, because the other threads may be where the other register is needed. If
  // begin > end, the value is never needed.
  std::uint32_t live_begin = 0;
  std::uint32_t live_end = 0;
  std::uint32_t variable = 0;  // Index of its declaration in ControlFlow::variables.
  // Whether some path from the start of the function reads the register before it is completely
  // written.
  bool is_read_unwritten = false;
};

// Directive after a label: .branchtargets, .calltargets, .callprototype.
struct NamedDirective {
  std::string name;  // The label's name, unique in the function.
  Directive directive;
};

// A function body without scopes. Names declared inside nested { }, including labels, get the
// suffix "@<scope>" in `variables`, operands and guards. Names of the outermost scope are
// unchanged. No PTX name contains '@', so names cannot collide.
struct ControlFlow {
  std::vector<Instruction> instructions;
  std::vector<Variable> variables;  // All declarations of the body in order, with unique names.
  std::vector<NamedDirective> directives;
  std::vector<BasicBlock> blocks;       // In source order; empty without instructions.
  std::vector<std::uint32_t> block_of;  // Block of each instruction.
  std::vector<Register> registers;
  std::unordered_map<std::string, std::uint32_t> register_index;

  // Returns the index of the register that this operand text names ("%r1", "-%r1.b2" in a video
  // instruction); kNoRegister for special registers, symbols and literals.
  std::uint32_t FindRegister(std::string_view text) const;
  // Returns the index of the register that the operand names. Uses the operand's register_number if
  // it is set. The operand must belong to this flow.
  std::uint32_t FindRegister(const Operand& operand) const {
    return operand.register_number != 0 ? operand.register_number - 1 : FindRegister(operand.text);
  }
};

// Splits "%r12" into "%r" and 12, as defined by .reg %r<N>. Returns false if there are no digits at
// the end, more than nine, or leading zeros. `prefix` borrows `name`.
bool SplitFamily(std::string_view name, std::string_view& prefix, std::uint64_t& number);

// Whether operand 0 is written: false for stores, branches, barriers and the like. A call writes
// operand 0 if it is a list.
bool WritesFirstOperand(const Instruction& instruction);

// Returns the labels of a ".branchtargets a, b;" or ".calltargets f, g;" directive, in order.
std::vector<std::string> DirectiveTargets(std::string_view directive_text);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_ANALYSIS_FLOW_H_

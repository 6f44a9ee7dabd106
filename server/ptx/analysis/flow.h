// SPDX-License-Identifier: Apache-2.0
// The shape of one function body, which AnalyseControlFlow (control_flow.h) finds.

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

// Stands for the end of the function, which is after every block.
inline constexpr std::uint32_t kNoBlock = std::numeric_limits<std::uint32_t>::max();
inline constexpr std::uint32_t kNoRegister = std::numeric_limits<std::uint32_t>::max();

// A run of instructions that is entered only at its start and left only at its end.
struct BasicBlock {
  enum class End : std::uint8_t {
    kFallThrough,        // Goes on with the next block, or leaves when it is the last.
    kBranch,             // Every thread goes to successors[0].
    kConditionalBranch,  // Threads with the guard go to successors[0], others to [1].
    kIndexedBranch,      // brx.idx: thread-wise to branch_table[index]; may be guarded.
    kLeave,              // ret or exit, unguarded.
    kConditionalLeave,   // ret or exit for threads with the guard; others go on.
  };
  std::uint32_t first = 0;  // Index of the first instruction; blocks tile the function.
  std::uint32_t count = 0;  // At least 1.
  End end = End::kFallThrough;
  // Blocks that may come next, without duplicates except in kConditionalBranch, which
  // has always two: taken, then not taken. kNoBlock where control leaves the function
  // by running off its end. Empty for kLeave; one entry for kConditionalLeave.
  std::vector<std::uint32_t> successors;
  std::vector<std::uint32_t> branch_table;  // kIndexedBranch only, in index order.
  // The first block that every thread leaving this block must reach, whichever way it
  // goes; kNoBlock when that is only the end of the function. Loops that never end
  // count as if their last block might leave.
  std::uint32_t immediate_post_dominator = kNoBlock;
};

// One register, also one of a %r<N> family, that some instruction names.
struct Register {
  std::string name;  // Unique in the function; see ControlFlow.
  std::string type;  // "pred", "b32", ...
  // Positions (instruction indices, both included) outside of which the value is never
  // needed. Two registers whose ranges do not meet may share storage, provided that
  // threads that are switched off are not written. begin > end: never needed.
  std::uint32_t live_begin = 0;
  std::uint32_t live_end = 0;
  std::uint32_t variable = 0;  // Its declaration, in ControlFlow::variables.
  // Some way leads from the start to a read of it and passes no write of all of it.
  bool is_read_unwritten = false;
};

// What the directive behind a label says: .branchtargets, .calltargets, .callprototype.
struct NamedDirective {
  std::string name;  // The label's name, unique in the function.
  Directive directive;
};

// A function body without scopes. Names declared inside nested { }, labels too, get a suffix
// "@<scope>" in `variables`, operands and guards. Names of the outermost scope stay as they
// are. No PTX name contains '@', so nothing can clash.
struct ControlFlow {
  std::vector<Instruction> instructions;
  std::vector<Variable> variables;  // All declarations of the body in order, names as above.
  std::vector<NamedDirective> directives;
  std::vector<BasicBlock> blocks;       // In source order; empty when there is no instruction.
  std::vector<std::uint32_t> block_of;  // Block of each instruction.
  std::vector<Register> registers;
  std::unordered_map<std::string, std::uint32_t> register_index;

  // Index of the register this operand text names ("%r1", "-%r1.b2" in a video instruction);
  // kNoRegister for special registers, symbols and literals.
  std::uint32_t FindRegister(std::string_view text) const;
  // The same of an operand of this flow, as it was found.
  std::uint32_t FindRegister(const Operand& operand) const {
    return operand.register_number != 0 ? operand.register_number - 1 : FindRegister(operand.text);
  }
};

// Splits "%r12" into "%r" and 12, as .reg %r<N> means it. Returns false without digits at the end,
// with more than nine, or with leading zeros. `prefix` borrows `name`.
bool SplitFamily(std::string_view name, std::string_view& prefix, std::uint64_t& number);

// True when operand 0 is written: false for stores, branches, barriers and the like.
// A call writes operand 0 when that is a list.
bool WritesFirstOperand(const Instruction& instruction);

// Labels of a ".branchtargets a, b;" or ".calltargets f, g;" directive, in order.
std::vector<std::string> DirectiveTargets(std::string_view directive_text);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_ANALYSIS_FLOW_H_

// SPDX-License-Identifier: Apache-2.0
// How much of the executor the corpus covers, and how many of the toolkit's kernels the executor
// supports.
#include <algorithm>
#include <array>
#include <cstdio>
#include <set>
#include <string>
#include <string_view>

#include <gmock/gmock.h>

#include "server/device/cpu/executor/code.h"
#include "server/device/cpu/executor/op_table.h"
#include "tests/corpus/corpus.h"
#include "tests/corpus/runtime.h"

namespace gpushared::corpus {
namespace {

// Visits every kernel of every module that is linked in.
template <typename Visit>
void VisitKernels(Visit visit) {
  // The programs' objects are linked because the tables name them.
  ASSERT_FALSE(OwnPrograms().empty());
  ASSERT_FALSE(ToolkitPrograms().empty());
  ASSERT_FALSE(CubPrograms().empty());
  for (const auto& loaded : Runtime::Instance().modules()) {
    for (std::size_t i = 0; i < loaded->image->size(); ++i) visit(loaded->image->program(i));
  }
}

TEST(CorpusReach, EveryKernelCanRun) {
  std::size_t kernels = 0;
  VisitKernels([&](const executor::Program& program) {
    ++kernels;
    EXPECT_EQ(program.info().unsupported, "") << program.info().name;
  });
  EXPECT_GE(kernels, 150u);
}

// Opcodes of the executor that compilers never generate in the corpus. tests/executor runs each of
// their forms, and tests/drop_in runs nvcc's kernels with textures.
constexpr auto kReachedByPtxOnly = std::to_array<std::string_view>({
    "__assertfail",
    "bfe",
    "brx",
    "clock",
    "clock_hi",
    "cnot",
    "dp2a",
    "elect",
    "globaltimer_hi",
    "globaltimer_lo",
    "isspacep",
    "lop3",
    "mad24",
    "movmatrix",
    "mul24",
    "set",
    "stmatrix",
    "tanh",
    "testp",
    "vprintf",
    "malloc",
    "free",
    "wgmma",
    "tex",
    "suld",
    "sust",
    "mbarrier",
    "stack",
    "szext",
    "tld4",
    "vabsdiff2",
    "vabsdiff4",
});

std::set<executor::Handler> ReachedHandlers() {
  std::set<executor::Handler> reached;
  VisitKernels([&](const executor::Program& program) {
    for (const executor::MicroOp& op : program.code().ops) reached.insert(op.handler);
  });
  return reached;
}

TEST(CorpusReach, EveryOpcodeIsInSomeKernel) {
  const std::set<executor::Handler> reached = ReachedHandlers();
  std::set<std::string, std::less<>> known, met;
  std::uint64_t number = 0;
  while (const executor::OpEntry* op = executor::OpOfNumber(executor::BestFlavour(), number++)) {
    const std::string opcode(op->key.substr(0, op->key.find('.')));
    known.insert(opcode);
    if (reached.contains(op->handler)) met.insert(opcode);
  }
  for (const std::string& opcode : known) {
    const bool excepted = std::find(kReachedByPtxOnly.begin(), kReachedByPtxOnly.end(), opcode) !=
                          kReachedByPtxOnly.end();
    if (excepted) {
      EXPECT_FALSE(met.contains(opcode))
          << opcode << " is in a kernel now: strike it from the list";
    } else {
      EXPECT_TRUE(met.contains(opcode))
          << opcode << " is in no kernel of the corpus: add it to one (tests/corpus/kernels), or, "
          << "where nvcc does not write it, to kReachedByPtxOnly";
    }
  }
}

// Forms are opcodes with types and modifiers in the executor's spelling. tests/executor runs all of
// them (executor_reach); those that no kernel here contains are listed, and their number must not
// grow.
TEST(CorpusReach, ListsUnreachedFormsWhoseNumberDoesNotGrow) {
  constexpr std::size_t kUnreachedMax = 1340;
  const std::set<executor::Handler> reached = ReachedHandlers();
  std::set<std::string> known, unreached;
  std::uint64_t number = 0;
  while (const executor::OpEntry* op = executor::OpOfNumber(executor::BestFlavour(), number++)) {
    known.emplace(op->key);
    if (!reached.contains(op->handler)) unreached.emplace(op->key);
  }
  std::string list;
  for (const std::string& form : unreached) list += " " + form;
  std::printf("%zu of %zu forms are in some kernel; not:%s\n", known.size() - unreached.size(),
              known.size(), list.c_str());
  EXPECT_LE(unreached.size(), kUnreachedMax)
      << "if nvcc writes none of the new forms, the bound is higher by their number";
}

}  // namespace
}  // namespace gpushared::corpus

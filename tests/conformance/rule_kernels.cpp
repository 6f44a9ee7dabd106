// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/rule_kernels.h"

#include <cstdint>
#include <cstring>
#include <string>

#include "tests/conformance/device_suite.h"

namespace gpushared::testing {
namespace {

using Word = std::uint32_t;
using Address = std::uint64_t;

Word* Words(const FakeBlock& block, Address address, std::uint64_t count) {
  return reinterpret_cast<Word*>(block.at(address, count * sizeof(Word)));
}

Status Mix(const FakeBlock& block) {
  const std::uint64_t threads = block.block.Count();
  const Address out_address = block.Parameter<Address>(0) + block.index * threads * sizeof(Word);
  const Address runs_address = block.Parameter<Address>(8) + block.index * sizeof(Word);
  Word* const out = Words(block, out_address, threads);
  Word* const runs = Words(block, runs_address, 1);
  if (out == nullptr || runs == nullptr) return FakeFault("mix", block, out_address);
  for (std::uint64_t i = 0; i < threads; ++i) {
    const auto index = static_cast<Word>(block.index * threads + i);
    out[i] = Mixed(index + 1, block.Parameter<Word>(16));
  }
  ++*runs;
  return {};
}

Status Append(const FakeBlock& block) {
  Word* const cursor = Words(block, block.Parameter<Address>(0), 1);
  if (cursor == nullptr) return FakeFault("append", block, block.Parameter<Address>(0));
  const Address entry = block.Parameter<Address>(8) + std::uint64_t{*cursor} * sizeof(Word);
  Word* const list = Words(block, entry, 1);
  if (list == nullptr) return FakeFault("append", block, entry);
  *list = block.Parameter<Word>(16);
  ++*cursor;
  return {};
}

Status WriteAt(const FakeBlock& block) {
  Word* const word = Words(block, block.Parameter<Address>(0), 1);
  if (word == nullptr) return FakeFault("write_at", block, block.Parameter<Address>(0));
  *word = block.Parameter<Word>(8);
  return {};
}

Status ReadAt(const FakeBlock& block) {
  const Word* const word = Words(block, block.Parameter<Address>(0), 1);
  if (word == nullptr) return FakeFault("read_at", block, block.Parameter<Address>(0));
  *Words(block, block.Parameter<Address>(8), 1) = *word;
  return {};
}

Status FaultInBlock(const FakeBlock& block) {
  if (block.index == block.Parameter<Word>(8)) {
    return FakeFault("fault_in_block", block, block.Parameter<Address>(16));
  }
  ++*Words(block, block.Parameter<Address>(0) + block.index * sizeof(Word), 1);
  return {};
}

Status SharedResidue(const FakeBlock& block) {
  const Word words = block.Parameter<Word>(8);
  Word* const out = Words(block, block.Parameter<Address>(0), words);
  for (Word i = 0; i < words; ++i) {
    std::memcpy(out + i, block.shared.data() + i * sizeof(Word), sizeof(Word));
    const Word mark = block.Parameter<Word>(12);
    std::memcpy(block.shared.data() + i * sizeof(Word), &mark, sizeof(Word));
  }
  return {};
}

Status Reverse(const FakeBlock& block) {
  Word* const mine =
      Words(block, block.Parameter<Address>(0) + block.index * 64 * sizeof(Word), 64);
  for (int i = 0; i < 32; ++i) std::swap(mine[i], mine[63 - i]);
  return {};
}

Status BumpVariable(const FakeBlock& block) {
  auto* const variable = reinterpret_cast<Word*>(block.variable("variable"));
  *Words(block, block.Parameter<Address>(0), 1) = (*variable)++;
  return {};
}

Status SumTable(const FakeBlock& block) {
  const auto* const table = reinterpret_cast<const Word*>(block.variable("table"));
  const Word* const which = Words(block, block.Parameter<Address>(8), 2);
  *Words(block, block.Parameter<Address>(0), 1) = table[which[0] & 3] + table[which[1] & 3];
  return {};
}

Status OddParameters(const FakeBlock& block) {
  Word* const words = Words(block, block.Parameter<Address>(8), 3);
  words[0] = block.Parameter<std::uint8_t>(0);
  words[1] = block.Parameter<std::uint16_t>(16);
  words[2] = block.Parameter<Word>(20);
  return {};
}

Status PrintLines(const FakeBlock& block) {
  for (Word i = 0; i < block.Parameter<Word>(0); ++i) {
    block.print("line " + std::to_string(i) + " of block " + std::to_string(block.index) + "\n");
  }
  return {};
}

Status Coordinates(const FakeBlock& block) {
  const std::uint64_t threads = block.block.Count();
  Word* const out =
      Words(block, block.Parameter<Address>(0) + block.index * threads * sizeof(Word), threads);
  for (std::uint64_t i = 0; i < threads; ++i) out[i] = static_cast<Word>(block.index * 1000 + i);
  return {};
}

}  // namespace

FakeKernels RuleKernels() {
  FakeKernels kernels;
  kernels["mix"].run = Mix;
  kernels["append"].run = Append;
  kernels["spin_for_ever"].block_time = kForEver;
  kernels["write_at"].run = WriteAt;
  kernels["read_at"].run = ReadAt;
  kernels["fault_in_block"].run = FaultInBlock;
  kernels["shared_residue"].run = SharedResidue;
  kernels["reverse"].run = Reverse;
  kernels["bump_variable"].run = BumpVariable;
  kernels["sum_table"].run = SumTable;
  kernels["odd_parameters"].run = OddParameters;
  kernels["print_lines"].run = PrintLines;
  kernels["coordinates"].run = Coordinates;
  kernels["needs_matrix_unit"].unsupported = "mma.sync (simulated)";
  return kernels;
}

}  // namespace gpushared::testing

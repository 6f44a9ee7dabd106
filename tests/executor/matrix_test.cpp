// SPDX-License-Identifier: Apache-2.0
// mma, ldmatrix, stmatrix, movmatrix and cp.async in one warp. The mapping of elements to lanes is
// written out per shape according to the figures in the PTX ISA.
#include <array>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/executor/launcher.h"
#include "tests/executor/matrix_reference.h"
#include "tests/executor/op_harness.h"

namespace gpushared::testing {
namespace {

using ::testing::HasSubstr;

constexpr const char* kHead = ".version 9.0\n.target sm_90\n.address_size 64\n";

struct Place {
  u32 row, column;
};
// Returns the row and column of element i (counted over all registers) of a lane's fragment.
using Layout = std::function<Place(u32 lane, u32 i)>;

struct MmaShape {
  u32 m, n, k;
  std::vector<std::string> products, sums;
  u32 a, b, c;  // Number of elements in each lane.
  Layout place_a, place_b;
};

Place ResultPlace(u32 lane, u32 i) { return {lane / 4 + (i >= 2 ? 8 : 0), lane % 4 * 2 + i % 2}; }

std::vector<MmaShape> Shapes() {
  const std::vector<std::string> bytes = {"s8", "u8"};
  std::vector<MmaShape> shapes;
  shapes.push_back({16,
                    8,
                    8,
                    {"f16"},
                    {"f16", "f32"},
                    4,
                    2,
                    4,
                    [](u32 l, u32 i) {
                      return Place{l / 4 + (i < 2 ? 0 : 8), l % 4 * 2 + i % 2};
                    },
                    [](u32 l, u32 i) {
                      return Place{l % 4 * 2 + i, l / 4};
                    }});
  shapes.push_back({16,
                    8,
                    16,
                    {"f16"},
                    {"f16", "f32"},
                    8,
                    4,
                    4,
                    [](u32 l, u32 i) {
                      return Place{l / 4 + ((i < 2 || (i >= 4 && i < 6)) ? 0 : 8),
                                   l % 4 * 2 + i % 2 + (i >= 4 ? 8 : 0)};
                    },
                    [](u32 l, u32 i) {
                      return Place{l % 4 * 2 + i % 2 + (i >= 2 ? 8 : 0), l / 4};
                    }});
  for (std::size_t i = 0; i < 2; ++i) {
    shapes.push_back(shapes[i]);
    shapes.back().products = {"bf16"};
    shapes.back().sums = {"f32"};
  }
  shapes.push_back({16,
                    8,
                    4,
                    {"tf32"},
                    {"f32"},
                    2,
                    1,
                    4,
                    [](u32 l, u32 i) {
                      return Place{l / 4 + i * 8, l % 4};
                    },
                    [](u32 l, u32) {
                      return Place{l % 4, l / 4};
                    }});
  shapes.push_back({16,
                    8,
                    8,
                    {"tf32"},
                    {"f32"},
                    4,
                    2,
                    4,
                    [](u32 l, u32 i) {
                      return Place{l / 4 + (i == 1 || i == 3 ? 8 : 0), l % 4 + (i >= 2 ? 4 : 0)};
                    },
                    [](u32 l, u32 i) {
                      return Place{l % 4 + i * 4, l / 4};
                    }});
  shapes.push_back({8,
                    8,
                    4,
                    {"f64"},
                    {"f64"},
                    1,
                    1,
                    2,
                    [](u32 l, u32) {
                      return Place{l / 4, l % 4};
                    },
                    [](u32 l, u32) {
                      return Place{l % 4, l / 4};
                    }});
  shapes.push_back({16,
                    8,
                    16,
                    {"f64"},
                    {"f64"},
                    8,
                    4,
                    4,
                    [](u32 l, u32 i) {
                      return Place{l / 4 + (i % 2 == 0 ? 0 : 8), l % 4 + i / 2 * 4};
                    },
                    [](u32 l, u32 i) {
                      return Place{l % 4 + i * 4, l / 4};
                    }});
  shapes.push_back({8,
                    8,
                    16,
                    bytes,
                    {"s32"},
                    4,
                    4,
                    2,
                    [](u32 l, u32 i) {
                      return Place{l / 4, l % 4 * 4 + i};
                    },
                    [](u32 l, u32 i) {
                      return Place{l % 4 * 4 + i, l / 4};
                    }});
  shapes.push_back({16,
                    8,
                    16,
                    bytes,
                    {"s32"},
                    8,
                    4,
                    4,
                    [](u32 l, u32 i) {
                      return Place{l / 4 + (i < 4 ? 0 : 8), l % 4 * 4 + (i & 3)};
                    },
                    [](u32 l, u32 i) {
                      return Place{l % 4 * 4 + i, l / 4};
                    }});
  shapes.push_back({16,
                    8,
                    32,
                    bytes,
                    {"s32"},
                    16,
                    8,
                    4,
                    [](u32 l, u32 i) {
                      return Place{l / 4 + (i < 4 || (i >= 8 && i < 12) ? 0 : 8),
                                   l % 4 * 4 + (i & 3) + (i >= 8 ? 16 : 0)};
                    },
                    [](u32 l, u32 i) {
                      return Place{l % 4 * 4 + (i & 3) + (i >= 4 ? 16 : 0), l / 4};
                    }});
  return shapes;
}

class MatrixOps : public PerFlavour {
 protected:
  // Runs an mma over registers given per lane; returns those of d. `wide`: 64-bit registers.
  std::vector<std::array<Word, 32>> RunMma(const std::string& spelling, bool wide,
                                           const std::array<u32, 4>& counts,
                                           const std::vector<std::array<Word, 32>>& sources) {
    const std::string bits = wide ? "64" : "32";
    std::string text = std::string(kHead) +
                       ".visible .entry check(.param .u64 in, .param .u64 out) {\n  .reg .b" +
                       bits +
                       " %d<9>, %a<9>, %b<9>, %c<9>;\n  .reg .b64 %in, %out;\n  .reg .b32 %t;\n"
                       "  ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; mov.u32 %t, %tid.x;\n"
                       "  mad.wide.u32 %in, %t, 8, %in; mad.wide.u32 %out, %t, 8, %out;\n";
    u32 at = 0;
    const char* names[] = {"%d", "%a", "%b", "%c"};
    for (u32 which = 1; which < 4; ++which) {
      for (u32 i = 0; i < counts[which]; ++i, ++at) {
        text += "  ld.global.b" + bits + " " + names[which] + std::to_string(i) + ", [%in+" +
                std::to_string(at * 256) + "];\n";
      }
    }
    text += "  " + spelling + " " + Names("%d", counts[0]) + ", " + Names("%a", counts[1]) + ", " +
            Names("%b", counts[2]) + ", " + Names("%c", counts[3]) + ";\n";
    for (u32 i = 0; i < counts[0]; ++i) {
      text += "  st.global.b" + bits + " [%out+" + std::to_string(i * 256) + "], %d" +
              std::to_string(i) + ";\n";
    }
    Launcher launcher(1 << 20, GetParam());
    launcher.Load(text + "  ret;\n}\n");
    auto* in = launcher.Allocate<std::array<Word, 32>>(sources.size());
    auto* out = launcher.Allocate<std::array<Word, 32>>(counts[0]);
    std::copy(sources.begin(), sources.end(), in);
    const auto outcome = launcher.Run("check", {1, 1, 1}, {32, 1, 1}, in, out);
    EXPECT_FALSE(outcome.fault) << outcome.fault->message;
    return {out, out + counts[0]};
  }

  void CheckMma(const MmaShape& shape, const std::string& a_type, const std::string& b_type,
                const std::string& sum) {
    const std::string spelling = "mma.sync.aligned.m" + std::to_string(shape.m) + "n" +
                                 std::to_string(shape.n) + "k" + std::to_string(shape.k) +
                                 ".row.col." + sum + "." + a_type + "." + b_type + "." + sum;
    const bool wide = a_type == "f64";
    const u32 register_bits = wide ? 64 : 32;
    const u32 packed = register_bits / BitsIn(a_type), packed_sum = register_bits / BitsIn(sum);
    const std::array<u32, 4> counts = {shape.c / packed_sum, shape.a / packed, shape.b / packed,
                                       shape.c / packed_sum};
    // Makes values of u8 non-negative.
    const auto value = [](const std::string& type, u32 row, u32 column, u32 seed) {
      const int plain = ValueAt(row, column, seed);
      return type == "u8" ? plain + 250 : plain;
    };
    std::vector<std::array<Word, 32>> sources;
    const auto fill = [&](u32 registers, const std::string& type, u32 seed, const Layout& layout) {
      const u32 count = register_bits / BitsIn(type);
      for (u32 r = 0; r < registers; ++r) {
        sources.push_back({});
        for (u32 lane = 0; lane < 32; ++lane) {
          for (u32 s = 0; s < count; ++s) {
            const Place place = layout(lane, r * count + s);
            sources.back()[lane] |= Encoded(type, value(type, place.row, place.column, seed))
                                    << (s * BitsIn(type));
          }
        }
      }
    };
    fill(counts[1], a_type, 1, shape.place_a);
    fill(counts[2], b_type, 2, shape.place_b);
    fill(counts[3], sum, 3, ResultPlace);
    const auto d = RunMma(spelling, wide, counts, sources);
    for (u32 lane = 0; lane < 32; ++lane) {
      for (u32 i = 0; i < shape.c; ++i) {
        const Place place = ResultPlace(lane, i);
        int want = value(sum, place.row, place.column, 3);
        for (u32 k = 0; k < shape.k; ++k) {
          want += value(a_type, place.row, k, 1) * value(b_type, k, place.column, 2);
        }
        const Word bits = d[i / packed_sum][lane] >> (i % packed_sum * BitsIn(sum));
        ASSERT_EQ(Decoded(sum, bits), want) << spelling << " lane " << lane << " element " << i;
      }
    }
  }

  // Runs code on shared memory of 4096 bytes, filled with the 16-bit numbers 0, 1, 2, ... Returns
  // the memory's contents at the end, and stores %r0 to %r7 of each lane in `registers`.
  std::vector<u16> RunShared(const std::string& code, std::array<std::array<u32, 32>, 8>* registers,
                             std::string* fault = nullptr) {
    std::string text = std::string(kHead) +
                       ".shared .align 16 .b8 memory[4096];\n"
                       ".visible .entry check(.param .u64 out, .param .u64 global) {\n"
                       "  .reg .b32 %r<8>, %t, %i, %v, %s, %row; .reg .b64 %out, %g, %l, %w;\n"
                       "  .reg .pred %p, %q; .reg .b16 %h;\n"
                       "  ld.param.u64 %out, [out]; ld.param.u64 %g, [global];\n"
                       "  mov.u32 %t, %tid.x; mov.u32 %s, memory; mov.u32 %i, %t;\n"
                       "FILL:\n  shl.b32 %v, %i, 1; add.u32 %v, %v, %s; cvt.u16.u32 %h, %i;\n"
                       "  st.shared.u16 [%v], %h; add.u32 %i, %i, 32;\n"
                       "  setp.lt.u32 %p, %i, 2048;\n  @%p bra FILL;\n  bar.warp.sync -1;\n"
                       "  shl.b32 %row, %t, 5; add.u32 %row, %row, %s;\n"
                       "  setp.lt.u32 %q, %t, 16;\n";
    for (int i = 0; i < 8; ++i) text += "  mov.u32 %r" + std::to_string(i) + ", 77;\n";
    text += code + "\n  bar.warp.sync -1;\n  mad.wide.u32 %l, %t, 4, %out;\n";
    for (int i = 0; i < 8; ++i) {
      text +=
          "  st.global.u32 [%l+" + std::to_string(i * 128) + "], %r" + std::to_string(i) + ";\n";
    }
    text +=
        "  mov.u32 %i, %t;\nCOPY:\n  shl.b32 %v, %i, 1; cvt.u64.u32 %w, %v; add.u64 %w, %w, %out;\n"
        "  add.u32 %v, %v, %s; ld.shared.u16 %h, [%v]; st.global.u16 [%w+1024], %h;\n"
        "  add.u32 %i, %i, 32; setp.lt.u32 %p, %i, 2048;\n  @%p bra COPY;\n  ret;\n}\n";
    Launcher launcher(65536, GetParam());
    launcher.Load(text);
    auto* out = launcher.Allocate<u32>(8 * 32 + 1024);
    auto* global = launcher.Allocate<u16>(2048);
    for (u32 i = 0; i < 2048; ++i) global[i] = static_cast<u16>(i + 5000);
    const auto outcome = launcher.Run("check", {1, 1, 1}, {32, 1, 1}, out, global);
    if (fault != nullptr) {
      *fault = outcome.fault ? outcome.fault->message : "";
    } else {
      EXPECT_FALSE(outcome.fault) << outcome.fault->message;
    }
    for (u32 i = 0; i < 8; ++i) std::copy(out + i * 32, out + i * 32 + 32, (*registers)[i].begin());
    const u16* memory = reinterpret_cast<const u16*>(out + 256);
    return {memory, memory + 2048};
  }
};

TEST_P(MatrixOps, MmaMultipliesEveryShapeAndType) {
  for (const MmaShape& shape : Shapes()) {
    for (const std::string& a : shape.products) {
      for (const std::string& b : shape.products) {
        for (const std::string& sum : shape.sums) CheckMma(shape, a, b, sum);
      }
    }
  }
}

TEST_P(MatrixOps, IntegerSumsWrapUnlessTheySaturate) {
  const auto byte = [](const std::string& type) { return type == "u8" ? 255 : -1; };
  for (const std::string a : {"s8", "u8"}) {
    for (const std::string b : {"s8", "u8"}) {
      const s64 product = 16 * byte(a) * byte(b);
      const u32 start = product > 0 ? 0x7ffffff8 : 0x80000008;
      std::vector<std::array<Word, 32>> operands(7);
      for (u32 r = 0; r < 7; ++r) operands[r].fill(r < 3 ? 0xffffffff : start);
      const std::string spelling = "mma.sync.aligned.m16n8k16.row.col";
      const std::string types = ".s32." + a + "." + b + ".s32";
      const std::array<u32, 4> counts = {4, 2, 1, 4};
      const auto wrapped = RunMma(spelling + types, false, counts, operands);
      const auto held = RunMma(spelling + ".satfinite" + types, false, counts, operands);
      const u32 sum = start + static_cast<u32>(product);
      EXPECT_EQ(static_cast<u32>(wrapped[0][0]), sum) << types;
      EXPECT_EQ(static_cast<u32>(held[0][0]), product > 0 ? 0x7fffffffu : 0x80000000u) << types;
    }
  }
}

TEST_P(MatrixOps, Tf32IgnoresTheLowerBits) {
  std::vector<std::array<Word, 32>> operands(7);
  for (u32 r = 0; r < 3; ++r) operands[r].fill(r < 2 ? 0x3f801fff : 0x3f800000);
  const auto d =
      RunMma("mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32", false, {4, 2, 1, 4}, operands);
  EXPECT_EQ(FromWord<float>(d[0][0]), 4.0f);
}

// Lane l holds the two halves of matrix i at row l / 4, column 2 (l % 4).
TEST_P(MatrixOps, LoadedMatricesHaveTheLaneLayoutOfMma) {
  for (const u32 count : {1u, 2u, 4u}) {
    for (const bool transposed : {false, true}) {
      std::array<std::array<u32, 32>, 8> r;
      RunShared("ldmatrix.sync.aligned.m8n8.x" + std::to_string(count) +
                    (transposed ? ".trans" : "") + ".shared.b16 " + Names("%r", count) +
                    ", [%row+16];",
                &r);
      for (u32 i = 0; i < 4; ++i) {
        for (u32 l = 0; l < 32; ++l) {
          // Row j of matrix i is at address 32 (8 i + j) + 16: numbers from 16 (8 i + j) + 8.
          const auto at = [&](u32 row, u32 column) { return 16 * (8 * i + row) + 8 + column; };
          const u32 row = l / 4, column = l % 4 * 2;
          const u32 want = transposed ? at(column, row) | at(column + 1, row) << 16
                                      : at(row, column) | at(row, column + 1) << 16;
          ASSERT_EQ(r[i][l], i < count ? want : 77) << count << " lane " << l;
        }
      }
    }
  }
}

TEST_P(MatrixOps, StoresMatricesInTheLayoutOfLoads) {
  for (const bool transposed : {false, true}) {
    const std::string form =
        std::string("matrix.sync.aligned.m8n8.x4") + (transposed ? ".trans" : "") + ".shared.b16 ";
    std::array<std::array<u32, 32>, 8> r;
    const auto memory =
        RunShared("ld" + form + "{%r0, %r1, %r2, %r3}, [%row];\n" + "add.u32 %v, %row, 1024;\n st" +
                      form + "[%v+16], {%r0, %r1, %r2, %r3};",
                  &r);
    for (u32 row = 0; row < 32; ++row) {
      for (u32 column = 0; column < 8; ++column) {
        ASSERT_EQ(memory[512 + row * 16 + 8 + column], row * 16 + column) << row;
      }
    }
  }
}

// Uses 64-bit addresses: of shared memory, and generic ones.
TEST_P(MatrixOps, MatricesMoveThroughEveryAddressForm) {
  std::array<std::array<u32, 32>, 8> narrow, wide;
  const std::string move = "matrix.sync.aligned.m8n8.x4";
  const std::string registers = "{%r0, %r1, %r2, %r3}";
  const auto memory = RunShared("ld" + move + ".shared.b16 " + registers + ", [%row+16];\nst" +
                                    move + ".shared.b16 [%row+1024], " + registers + ";",
                                &narrow);
  for (const bool generic : {false, true}) {
    const std::string space = generic ? ".b16 " : ".shared.b16 ";
    const auto moved = RunShared("cvt.u64.u32 %w, %row;\n" +
                                     std::string(generic ? "cvta.shared.u64 %w, %w;\n" : "") +
                                     "ld" + move + space + registers + ", [%w+16];\nst" + move +
                                     space + "[%w+1024], " + registers + ";",
                                 &wide);
    EXPECT_EQ(wide, narrow) << generic;
    EXPECT_EQ(moved, memory) << generic;
    EXPECT_EQ(moved[512], 8);
  }
}

TEST_P(MatrixOps, MovmatrixTransposes) {
  std::array<std::array<u32, 32>, 8> r;
  RunShared(
      "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [%row];\n"
      "ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%r1}, [%row];\n"
      "movmatrix.sync.aligned.m8n8.trans.b16 %r2, %r0;",
      &r);
  EXPECT_EQ(r[2], r[1]);
  EXPECT_NE(r[2], r[0]);
}

TEST_P(MatrixOps, AsyncCopiesAreCompleteAfterTheirWait) {
  std::array<std::array<u32, 32>, 8> r;
  const auto memory = RunShared(
      "mad.wide.u32 %l, %t, 16, %g;\n shl.b32 %v, %t, 4; add.u32 %v, %v, %s;\n"
      "cp.async.cg.shared.global.L2::128B [%v], [%l+32], 16;\n"
      "@%q cp.async.ca.shared.global [%v+1024], [%l], 4;\n"
      // Copies to a 64-bit address of shared memory.
      "cvt.u64.u32 %w, %v; cp.async.ca.shared.global [%w+2048], [%l+8], 8;\n"
      "cp.async.commit_group;\n cp.async.wait_group 0;\n cp.async.wait_all;",
      &r);
  for (u32 i = 0; i < 256; ++i) ASSERT_EQ(memory[i], 5000 + 16 + i);
  for (u32 l = 0; l < 32; ++l) {
    ASSERT_EQ(memory[512 + l * 8], l < 16 ? 5000 + l * 8 : 512 + l * 8) << l;
    ASSERT_EQ(memory[512 + l * 8 + 2], 512 + l * 8 + 2) << l;
    for (u32 i = 0; i < 4; ++i) ASSERT_EQ(memory[1024 + l * 8 + i], 5000 + l * 8 + 4 + i) << l;
    ASSERT_EQ(memory[1024 + l * 8 + 4], 1024 + l * 8 + 4) << l;
  }
}

TEST_P(MatrixOps, AsyncCopiesFillUnreadBytesWithZeros) {
  std::array<std::array<u32, 32>, 8> r;
  const auto memory = RunShared(
      "mad.wide.u32 %l, %t, 16, %g;\n shl.b32 %v, %t, 4; add.u32 %v, %v, %s; mov.u32 %i, 6;\n"
      "cp.async.cg.shared.global [%v], [%l], 16, %i;\n"
      "cp.async.ca.shared.global [%v+1024], [%l], 8, %q;\n"
      // The source address may be invalid, because 0 bytes are read.
      "mov.u64 %w, 16; cp.async.cg.shared.global [%v+2048], [%w], 16, 0;",
      &r);
  for (u32 i = 0; i < 256; ++i) {
    ASSERT_EQ(memory[i], i % 8 < 3 ? 5000 + i : 0) << i;
    ASSERT_EQ(memory[1024 + i], 0);
    const u32 copied = i < 128 ? 0 : 5000 + i;
    ASSERT_EQ(memory[512 + i], i % 8 < 4 ? copied : 512 + i) << i;
  }
}

TEST_P(MatrixOps, AddressesAreCheckedLikeThoseOfLoads) {
  const struct {
    const char* code;
    const char* says;
  } kCases[] = {
      {"mov.u64 %w, 64; cp.async.cg.shared.global [%s], [%w], 16;", "outside the client's"},
      {"add.u64 %w, %g, 8; cp.async.cg.shared.global [%s], [%w], 16;", "not aligned"},
      {"add.u32 %v, %s, 4096; cp.async.ca.shared.global [%v], [%g], 4;", "bytes of shared memory"},
      {"mov.u32 %i, 17; cp.async.cg.shared.global [%s], [%g], 16, %i;", "operand 17"},
      {"add.u32 %v, %row, 4; ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r0, %r1, %r2, %r3}, [%v];",
       "not aligned"},
      {"add.u32 %v, %row, 4000; ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r0,%r1,%r2,%r3}, [%v];",
       "bytes of shared memory"},
      {"wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%g], {%r0, %r1, %r2, %r3, %r4, %r5, "
       "%r6, %r7}, 4096;",
       "outside the client's"},
  };
  for (const auto& c : kCases) {
    std::array<std::array<u32, 32>, 8> r;
    std::string fault;
    RunShared(c.code, &r, &fault);
    EXPECT_THAT(fault, HasSubstr(c.says)) << c.code;
  }
}

GPUSHARED_INSTANTIATE_FLAVOURS(MatrixOps);

}  // namespace
}  // namespace gpushared::testing

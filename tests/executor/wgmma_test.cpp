// SPDX-License-Identifier: Apache-2.0
// wgmma in one warpgroup: products of matrices that are in shared memory in every existing layout.
// The position of each element is written out by atoms of 8 lines, as drawn in the PTX ISA.
#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/executor/launcher.h"
#include "tests/executor/matrix_reference.h"
#include "tests/executor/op_harness.h"

namespace gpushared::testing {
namespace {

using ::testing::HasSubstr;

constexpr u32 kGroupThreads = 128;
constexpr u32 kImageBytes = 64 << 10;  // A in the first half, B in the second.

// The layout of one matrix in shared memory.
struct MatrixLayout {
  u32 swizzle_bytes = 0;  // 0, 32, 64 or 128.
  bool transposed = false;
  u32 k_offset = 0;  // Byte offset of the matrix's beginning in the lines of the atoms.
};

// Offsets between atoms, padded so that they differ and an exchange of the two is detected.
u32 Leading(const MatrixLayout& layout, u32 rows) {
  if (layout.swizzle_bytes == 0) return layout.transposed ? rows * 16 + 256 : 128;
  return layout.transposed ? 16 * layout.swizzle_bytes : 16;
}
u32 Stride(const MatrixLayout& layout) {
  if (layout.swizzle_bytes == 0) return layout.transposed ? 128 : 384;
  return 8 * layout.swizzle_bytes;
}

// Returns the byte at which element (row, k), of `size` bytes, begins.
u32 GetPlace(const MatrixLayout& layout, u32 rows, u32 row, u32 k, u32 size) {
  const u32 line = layout.transposed ? k : row;
  const u32 along = (layout.transposed ? row : k) * size + layout.k_offset;
  const u32 width = layout.swizzle_bytes == 0 ? 16 : layout.swizzle_bytes;
  const u32 atom = along / width, group = line / 8, in_group = line % 8;
  u32 chunk = along % width / 16;
  if (width == 128) chunk ^= in_group;
  if (width == 64) chunk ^= in_group / 2;
  if (width == 32) chunk ^= in_group / 4;
  const u32 leading = Leading(layout, rows), stride = Stride(layout);
  const bool plain = layout.swizzle_bytes == 0;
  const u32 by_atom = layout.transposed && plain ? stride : leading;
  const u32 by_group = layout.transposed && plain ? leading : stride;
  return atom * by_atom + group * by_group + in_group * width + chunk * 16 + along % 16;
}

u64 Descriptor(const MatrixLayout& layout, u32 rows, u32 start) {
  const u64 mode = layout.swizzle_bytes == 128  ? 1
                   : layout.swizzle_bytes == 64 ? 2
                   : layout.swizzle_bytes == 32 ? 3
                                                : 0;
  return u64{(start + layout.k_offset) >> 4} | u64{Leading(layout, rows) >> 4} << 16 |
         u64{Stride(layout) >> 4} << 32 | mode << 62;
}

struct Product {
  u32 n;
  std::string d, a, b;
  MatrixLayout layout_a, layout_b;
  bool a_in_registers = false;
  int scale_a = 1, scale_b = 1;
  bool twice = false;  // D = A B, then D += A B.
};

u32 BytesIn(const std::string& type) { return BitsIn(type) / 8; }
u32 Depth(const Product& product) { return 32 / BytesIn(product.a); }
u32 Registers(const Product& product) { return product.n / (product.d == "f16" ? 4 : 2); }

std::string Instruction(const Product& product, bool adds) {
  const bool integers = product.d == "s32", halves = BytesIn(product.a) == 2;
  std::string text = "wgmma.mma_async.sync.aligned.m64n" + std::to_string(product.n) + "k" +
                     std::to_string(Depth(product)) + "." + product.d + "." + product.a + "." +
                     product.b + " " + Names("%d", Registers(product)) + ", " +
                     (product.a_in_registers ? Names("%a", 4) : std::string("%da")) + ", %db, " +
                     (adds ? "%yes" : "%no");
  if (!integers) {
    text += ", " + std::to_string(product.scale_a) + ", " + std::to_string(product.scale_b);
  }
  if (halves && !product.a_in_registers) text += product.layout_a.transposed ? ", 1" : ", 0";
  if (halves) text += product.layout_b.transposed ? ", 1" : ", 0";
  return text + ";\n";
}

// Returns a kernel that loads the image into shared memory and the registers of A from the memory
// after it, and outputs D.
std::string Kernel(const std::string& code, u32 registers) {
  std::string text =
      ".version 9.0\n.target sm_90a\n.address_size 64\n"
      ".visible .entry check(.param .u64 image, .param .u64 out, .param .u64 da, .param .u64 db) "
      "{\n"
      ".shared .align 1024 .b8 area[" +
      std::to_string(kImageBytes) + "];\n.reg .b32 %t, %i, %a<4>, %d<" +
      std::to_string(std::max(registers, 1u)) +
      ">;\n.reg .b64 %image, %out, %from, %da, %db, %x, %y; .reg .pred %yes, %no, %more;\n"
      "ld.param.u64 %image, [image]; ld.param.u64 %out, [out];\n"
      "ld.param.u64 %da, [da]; ld.param.u64 %db, [db]; mov.u32 %t, %tid.x;\n"
      "mul.lo.u32 %i, %t, 16;\nCOPY: cvt.u64.u32 %from, %i; add.u64 %from, %image, %from;\n"
      "ld.global.v2.u64 {%x, %y}, [%from]; st.shared.v2.u64 [%i], {%x, %y};\n"
      "add.u32 %i, %i, 2048; setp.lt.u32 %more, %i, " +
      std::to_string(kImageBytes) +
      "; @%more bra COPY;\n"
      "mul.wide.u32 %from, %t, 16; add.u64 %from, %image, %from;\n"
      "ld.global.v4.u32 {%a0, %a1, %a2, %a3}, [%from+" +
      std::to_string(kImageBytes) +
      "];\nfence.proxy.async; fence.proxy.async.shared::cta; fence.proxy.async.global;\n"
      "setmaxnreg.inc.sync.aligned.u32 240; bar.sync 0;\n"
      "setp.eq.u32 %yes, %t, %t; setp.ne.u32 %no, %t, %t;\n";
  for (u32 i = 0; i < registers; ++i) text += "mov.b32 %d" + std::to_string(i) + ", 0x7fc07e00;\n";
  text += "wgmma.fence.sync.aligned;\n" + code +
          "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n"
          "mul.wide.u32 %from, %t, " +
          std::to_string(registers * 4) + "; add.u64 %out, %out, %from;\n";
  for (u32 i = 0; i < registers; ++i) {
    text += "st.global.u32 [%out+" + std::to_string(i * 4) + "], %d" + std::to_string(i) + ";\n";
  }
  return text + "ret;\n}\n";
}

int ElementA(u32 row, u32 k, bool is_unsigned) {
  return is_unsigned ? std::abs(ValueAt(row, k, 1)) : ValueAt(row, k, 1);
}
int ElementB(u32 k, u32 column, bool is_unsigned) {
  return is_unsigned ? std::abs(ValueAt(k, column, 2)) : ValueAt(k, column, 2);
}

class Wgmma : public PerFlavour {
 protected:
  void Check(const Product& product) {
    const std::string code =
        Instruction(product, false) + (product.twice ? Instruction(product, true) : "");
    Launcher launcher(u64{1} << 20, GetParam());
    launcher.Load(Kernel(code, Registers(product)));
    ASSERT_EQ(launcher.Kernel("check").info().unsupported, "") << code;
    auto* image = launcher.Allocate<std::byte>(kImageBytes + kGroupThreads * 16);
    auto* out = launcher.Allocate<u32>(kGroupThreads * Registers(product));
    Fill(product, image);
    const auto outcome = launcher.Run("check", {1, 1, 1}, {kGroupThreads, 1, 1}, image, out,
                                      Descriptor(product.layout_a, 64, 0),
                                      Descriptor(product.layout_b, product.n, kImageBytes / 2));
    ASSERT_FALSE(outcome.fault) << outcome.fault->message << code;
    Compare(product, out, code);
  }

  void Fill(const Product& product, std::byte* image) {
    const u32 depth = Depth(product), size = BytesIn(product.a);
    std::memset(image, 0x7f, kImageBytes);
    const auto put = [&](u32 at, const std::string& type, int value) {
      const Word bits = Encoded(type, value);
      ASSERT_LE(at + size, kImageBytes);
      std::memcpy(image + at, &bits, size);
    };
    for (u32 k = 0; k < depth; ++k) {
      for (u32 row = 0; row < 64; ++row) {
        const int value = ElementA(row, k, product.a == "u8");
        put(GetPlace(product.layout_a, 64, row, k, size), product.a, value);
        // Order of a fragment's elements by the figures in the PTX ISA: pairs along K, then the row
        // 8 further, then K.
        const u32 per = 4 / size, r = (row % 16 >= 8 ? 1 : 0) + (k >= 4 * per ? 2 : 0);
        const u32 thread = row / 16 * 32 + row % 8 * 4 + k % (4 * per) / per;
        const Word bits = Encoded(product.a, value);
        std::memcpy(image + kImageBytes + thread * 16 + r * 4 + k % per * size, &bits, size);
      }
      for (u32 column = 0; column < product.n; ++column) {
        put(kImageBytes / 2 + GetPlace(product.layout_b, product.n, column, k, size), product.b,
            ElementB(k, column, product.b == "u8"));
      }
    }
  }

  void Compare(const Product& product, const u32* out, const std::string& code) {
    const u32 per = product.d == "f16" ? 2 : 1, count = Registers(product);
    for (u32 row = 0; row < 64; ++row) {
      for (u32 column = 0; column < product.n; ++column) {
        int sum = 0;
        for (u32 k = 0; k < Depth(product); ++k) {
          sum += ElementA(row, k, product.a == "u8") * ElementB(k, column, product.b == "u8");
        }
        sum *= product.scale_a * product.scale_b * (product.twice ? 2 : 1);
        const u32 thread = row / 16 * 32 + row % 8 * 4 + column % 8 / 2;
        const u32 i = column / 8 * 4 + (row % 16 >= 8 ? 2 : 0) + column % 2;
        const u32 word = out[thread * count + i / per];
        const Word bits = per == 2 ? word >> (i % 2 * 16) : word;
        ASSERT_EQ(Decoded(product.d, bits), static_cast<double>(sum))
            << row << ", " << column << " of " << code << " swizzle "
            << product.layout_a.swizzle_bytes << ", " << product.layout_b.swizzle_bytes;
      }
    }
  }
};

TEST_P(Wgmma, EveryTypeAndManyWidths) {
  const MatrixLayout a = {.swizzle_bytes = 128}, b = {.swizzle_bytes = 64};
  const std::array<std::array<const char*, 3>, 8> types = {{{"f16", "f16", "f16"},
                                                            {"f32", "f16", "f16"},
                                                            {"f32", "bf16", "bf16"},
                                                            {"f32", "tf32", "tf32"},
                                                            {"s32", "s8", "s8"},
                                                            {"s32", "s8", "u8"},
                                                            {"s32", "u8", "s8"},
                                                            {"s32", "u8", "u8"}}};
  for (const auto& type : types) {
    for (const u32 n : {8u, 24u, 64u}) {
      for (const bool in_registers : {false, true}) {
        Check({n, type[0], type[1], type[2], a, b, in_registers, 1, 1, n == 24});
        if (HasFatalFailure()) return;
      }
    }
  }
  Check({256, "f32", "f16", "f16", a, b});
  Check({200, "f16", "f16", "f16", a, {}});
}

TEST_P(Wgmma, EveryLayout) {
  std::vector<MatrixLayout> layouts;
  for (const u32 swizzle : {0u, 32u, 64u, 128u}) {
    layouts.push_back({swizzle, false, 0});
    layouts.push_back({swizzle, true, 0});
    // Offsets along K within the atoms, as kernels use them to advance.
    for (u32 offset = 32; offset < swizzle; offset += 32)
      layouts.push_back({swizzle, false, offset});
  }
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    const MatrixLayout& other = layouts[(i * 3 + 1) % layouts.size()];
    Check({32, "f32", "f16", "f16", layouts[i], other});
    Check({96, "f32", "bf16", "bf16", other, layouts[i]});
    if (!layouts[i].transposed) Check({16, "f32", "tf32", "tf32", layouts[i], layouts[i]});
    if (!layouts[i].transposed) Check({16, "s32", "s8", "u8", layouts[i], layouts[i]});
    if (HasFatalFailure()) return;
  }
}

TEST_P(Wgmma, FactorsMayBeNegated) {
  const MatrixLayout layout = {.swizzle_bytes = 32};
  Check({16, "f32", "f16", "f16", layout, layout, false, -1, 1, true});
  Check({16, "f16", "f16", "f16", layout, layout, true, 1, -1});
  Check({16, "f32", "tf32", "tf32", layout, layout, false, -1, -1});
}

TEST_P(Wgmma, IntegersSaturateIfRequested) {
  for (const char* types : {"s8.s8", "s8.u8", "u8.s8", "u8.u8"}) {
    for (const bool saturates : {false, true}) {
      const std::string form = "wgmma.mma_async.sync.aligned.m64n8k32" +
                               std::string(saturates ? ".satfinite" : "") + ".s32." + types +
                               " {%d0, %d1, %d2, %d3}, %da, %db, %yes;\n";
      Launcher launcher(u64{1} << 20, GetParam());
      launcher.Load(Kernel("mov.b32 %d0, 0x7fffffff;\n" + form, 4));
      auto* image = launcher.Allocate<std::byte>(kImageBytes + kGroupThreads * 16);
      auto* out = launcher.Allocate<u32>(kGroupThreads * 4);
      std::memset(image, 1, kImageBytes);
      const u64 descriptor = Descriptor({}, 64, 0);
      const auto outcome = launcher.Run("check", {1, 1, 1}, {kGroupThreads, 1, 1}, image, out,
                                        descriptor, descriptor);
      ASSERT_FALSE(outcome.fault) << outcome.fault->message;
      EXPECT_EQ(out[0], saturates ? 0x7fffffffu : 0x7fffffffu + 32) << form;
      EXPECT_EQ(out[1], 0x7fc07e00u + 32) << form;
    }
  }
}

TEST_P(Wgmma, AddressesAreChecked) {
  const MatrixLayout layout = {.swizzle_bytes = 128};
  const Product product = {8, "f32", "f16", "f16", layout, layout};
  Launcher launcher(u64{1} << 20, GetParam());
  launcher.Load(Kernel(Instruction(product, true), Registers(product)));
  auto* image = launcher.Allocate<std::byte>(kImageBytes + kGroupThreads * 16);
  auto* out = launcher.Allocate<u32>(kGroupThreads * 4);
  const u64 good = Descriptor(layout, 64, 0);
  const u64 past = (good & ~u64{0x3fff}) | ((kImageBytes - 512) >> 4);
  const u64 far = good | u64{0x3fff} << 32;
  for (const auto& [a, b, kind] :
       {std::tuple(past, good, executor::Fault::Kind::kSharedAddress),
        std::tuple(good, past, executor::Fault::Kind::kSharedAddress),
        std::tuple(far, good, executor::Fault::Kind::kSharedAddress),
        std::tuple(good | u64{3} << 49, good, executor::Fault::Kind::kInvalidOperand)}) {
    const auto outcome = launcher.Run("check", {1, 1, 1}, {kGroupThreads, 1, 1}, image, out, a, b);
    ASSERT_TRUE(outcome.fault);
    EXPECT_EQ(outcome.fault->kind, kind) << outcome.fault->message;
    EXPECT_THAT(outcome.fault->message, HasSubstr("wgmma.mma_async.sync.aligned.m64n8k16"));
  }
}

TEST_P(Wgmma, OtherFormsAreRejectedByName) {
  const auto unsupported = [&](const std::string& code) {
    Launcher launcher(u64{1} << 20, GetParam());
    launcher.Load(Kernel(code, 8));
    return launcher.Kernel("check").info().unsupported;
  };
  const std::string four = " {%d0, %d1, %d2, %d3}, %da, %db, %yes";
  for (const std::string& form :
       {std::string("wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16") + four +
            ", 1, 1, 0, 0;",
        "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3" + four + ", 1, 1;",
        "wgmma.mma_async.sync.aligned.m64n12k16.f32.f16.f16" + four + ", 1, 1, 0, 0;",
        "wgmma.mma_async.sync.aligned.m64n8k8.f32.f16.f16" + four + ", 1, 1, 0, 0;",
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16" + four + ", 1, 1, 0, 0;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.bf16" + four + ", 1, 1, 0, 0;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16" + four + ", 2, 1, 0, 0;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16" + four + ", 1, 1, 0;",
        "wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32" + four + ", 1, 1, 0, 0;",
        "wgmma.mma_async.sync.aligned.m64n8k16.satfinite.f32.f16.f16" + four + ", 1, 1, 0, 0;"}) {
    EXPECT_THAT(unsupported(form), HasSubstr(form.substr(0, form.find(' ')))) << form;
  }
}

GPUSHARED_INSTANTIATE_FLAVOURS(Wgmma);

}  // namespace
}  // namespace gpushared::testing

// SPDX-License-Identifier: Apache-2.0
// wmma: our fragments have a private element order, so only products in memory are checked.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/executor/launcher.h"
#include "tests/executor/matrix_reference.h"
#include "tests/executor/op_harness.h"

namespace gpushared::testing {
namespace {

// Where the matrices are loaded from and stored to.
struct OperandPlace {
  const char* name;
  const char* modifier;
  const char* base;  // Turns %s (in shared memory, 32 bits) and %g (in global) into an address.
  const char* address;
};
constexpr OperandPlace kPlaces[] = {
    {"global", ".global", "", "%g"},
    {"generic, global", "", "", "%g"},
    {"shared", ".shared", "", "%s"},
    {"shared, 64-bit address", ".shared", "cvt.u64.u32 %w, %s;", "%w"},
    {"generic, shared", "", "cvt.u64.u32 %w, %s; cvta.shared.u64 %w, %w;", "%w"},
};
constexpr u32 kMatrixBytes = 2048;

struct WmmaProduct {
  u32 m, n, k;
  std::string product, c, d;               // Types.
  u32 a_count, b_count, c_count, d_count;  // Registers.
  // Stores a by columns and b by rows instead of vice versa.
  bool flipped = false;

  std::string Shape() const {
    return ".m" + std::to_string(m) + "n" + std::to_string(n) + "k" + std::to_string(k);
  }
  // Elements from one row (or column) of a and b to the next, including some padding.
  u32 StrideOfA() const { return (flipped ? m : k) + 8; }
  u32 StrideOfB() const { return (flipped ? n : k) + 8; }
  // Makes values of u8 non-negative.
  int Value(u32 row, u32 column, u32 seed) const {
    const int value = ValueAt(row, column, seed);
    return product == "u8" ? std::abs(value) : value;
  }
};

const std::vector<WmmaProduct> kProducts = {
    {16, 16, 16, "f16", "f32", "f32", 8, 8, 8, 8}, {32, 8, 16, "f16", "f32", "f32", 8, 8, 8, 8},
    {8, 32, 16, "f16", "f16", "f16", 8, 8, 4, 4},  {16, 16, 16, "f16", "f32", "f16", 8, 8, 8, 4},
    {32, 8, 16, "f16", "f16", "f32", 8, 8, 4, 8},  {16, 16, 16, "bf16", "f32", "f32", 4, 4, 8, 8},
    {32, 8, 16, "bf16", "f32", "f32", 8, 2, 8, 8}, {16, 16, 8, "tf32", "f32", "f32", 4, 4, 8, 8},
    {8, 8, 4, "f64", "f64", "f64", 1, 1, 2, 2},    {16, 16, 16, "s8", "s32", "s32", 2, 2, 8, 8},
    {32, 8, 16, "u8", "s32", "s32", 4, 1, 8, 8},   {8, 32, 16, "s8", "s32", "s32", 1, 4, 8, 8},
};

// Returns a kernel for matrices a, b, c and d, which are contiguous in global memory, kMatrixBytes
// each. If the place is in shared memory, the kernel first copies them there and finally copies all
// of them back.
std::string KernelFor(const WmmaProduct& p, const OperandPlace& place) {
  const std::string bits = p.product == "f64" ? "64" : "32";
  const auto at = [&](u32 matrix) {
    return "[" + std::string(place.address) + "+" + std::to_string(matrix * kMatrixBytes) + "], ";
  };
  const std::string a_way = p.flipped ? "col" : "row", b_way = p.flipped ? "row" : "col";
  const auto load = [&](const std::string& which, const std::string& way, const std::string& type,
                        u32 count, u32 matrix, u32 stride) {
    return "  wmma.load." + which + ".sync.aligned." + way + p.Shape() + place.modifier + "." +
           type + " " + Names(("%" + which).c_str(), count) + ", " + at(matrix) +
           std::to_string(stride) + ";\n";
  };
  const std::string types =
      p.product == "f16" ? p.d + "." + p.c : p.d + "." + p.product + "." + p.product + "." + p.c;
  const auto copying = [](const std::string& label, const std::string& move) {
    return "  mov.u32 %i, %t;\n" + label +
           ":\n  shl.b32 %o, %i, 3; cvt.u64.u32 %x, %o; add.u64 %x, %x, %g; add.u32 %o, %o, %s;\n" +
           move + "  add.u32 %i, %i, 32; setp.lt.u32 %p, %i, 1024;\n  @%p bra " + label +
           ";\n  bar.warp.sync -1;\n";
  };
  return ".version 9.0\n.target sm_90\n.address_size 64\n"
         ".shared .align 32 .b8 staged[8192];\n"
         ".visible .entry check(.param .u64 matrices) {\n  .reg .b" +
         bits +
         " %a<9>, %b<9>, %c<9>, %d<9>; .reg .b64 %g, %w, %v, %x; .reg .b32 %s, %t, %i, %o;\n"
         "  .reg .pred %p;\n  ld.param.u64 %g, [matrices]; mov.u32 %s, staged;"
         " mov.u32 %t, %tid.x;\n" +
         copying("IN", "  ld.global.u64 %v, [%x]; st.shared.u64 [%o], %v;\n") + "  " + place.base +
         "\n" + load("a", a_way, p.product, p.a_count, 0, p.StrideOfA()) +
         load("b", b_way, p.product, p.b_count, 1, p.StrideOfB()) +
         load("c", "row", p.c, p.c_count, 2, p.n) + "  wmma.mma.sync.aligned." + a_way + "." +
         b_way + p.Shape() + "." + types + " " + Names("%d", p.d_count) + ", " +
         Names("%a", p.a_count) + ", " + Names("%b", p.b_count) + ", " + Names("%c", p.c_count) +
         ";\n  wmma.store.d.sync.aligned.col" + p.Shape() + place.modifier + "." + p.d + " " +
         at(3) + Names("%d", p.d_count) + ", " + std::to_string(p.m) + ";\n  bar.warp.sync -1;\n" +
         (place.address == std::string("%g")
              ? ""
              : copying("OUT", "  ld.shared.u64 %v, [%o]; st.global.u64 [%x], %v;\n")) +
         "  ret;\n}\n";
}

class WmmaOps : public PerFlavour {
 protected:
  void Check(const WmmaProduct& p, const OperandPlace& place) {
    Launcher launcher(1 << 20, GetParam());
    launcher.Load(KernelFor(p, place));
    auto* memory = launcher.Allocate<u8>(4 * kMatrixBytes);
    const auto put = [&](u32 matrix, u32 index, const std::string& type, int value) {
      const Word word = Encoded(type, value);
      const u32 bytes = BitsIn(type) / 8;
      std::memcpy(memory + matrix * kMatrixBytes + index * bytes, &word, bytes);
    };
    for (u32 k = 0; k < p.k; ++k) {
      for (u32 i = 0; i < p.m; ++i) {
        put(0, p.flipped ? k * p.StrideOfA() + i : i * p.StrideOfA() + k, p.product,
            p.Value(i, k, 1));
      }
      for (u32 j = 0; j < p.n; ++j) {
        put(1, p.flipped ? k * p.StrideOfB() + j : j * p.StrideOfB() + k, p.product,
            p.Value(k, j, 2));
      }
    }
    for (u32 i = 0; i < p.m * p.n; ++i) put(2, i, p.c, p.Value(i / p.n, i % p.n, 3));
    const auto outcome = launcher.Run("check", {1, 1, 1}, {32, 1, 1}, memory);
    ASSERT_FALSE(outcome.fault) << outcome.fault->message;
    const u32 bytes = BitsIn(p.d) / 8;
    for (u32 i = 0; i < p.m; ++i) {
      for (u32 j = 0; j < p.n; ++j) {
        int want = p.Value(i, j, 3);
        for (u32 k = 0; k < p.k; ++k) want += p.Value(i, k, 1) * p.Value(k, j, 2);
        Word got = 0;
        std::memcpy(&got, memory + 3 * kMatrixBytes + (j * p.m + i) * bytes, bytes);
        ASSERT_EQ(Decoded(p.d, got), want) << p.Shape() << " " << p.d << "." << p.product << "."
                                           << p.c << " in " << place.name << ", " << i << ", " << j;
      }
    }
  }
};

TEST_P(WmmaOps, ProductsEqualTheReference) {
  for (WmmaProduct product : kProducts) {
    for (const OperandPlace& place : kPlaces) {
      for (const bool flipped : {false, true}) {
        product.flipped = flipped;
        Check(product, place);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Uses matrices whose elements are all equal, so that the order within fragments does not matter.
TEST_P(WmmaOps, IntegerSumsSaturateIfRequested) {
  for (const std::string type : {"s8", "u8"}) {
    for (const bool up : {true, false}) {
      if (!up && type == "u8") continue;
      // 16 products of 255 * 255, of -128 * -128 or of -128 * 127.
      const std::string a = type == "u8" ? "0xffffffff" : "0x80808080";
      const std::string b = type == "u8" ? "0xffffffff" : up ? "0x80808080" : "0x7f7f7f7f";
      const s64 product = type == "u8" ? 255 * 255 : up ? 128 * 128 : -128 * 127;
      const u32 start = up ? 0x7ffffff0 : 0x80000010;
      for (const bool saturates : {true, false}) {
        std::string text =
            ".version 9.0\n.target sm_90\n.address_size 64\n"
            ".visible .entry check(.param .u64 out) {\n  .reg .b32 %a<2>, %b<2>, %c<8>, %d<8>;\n"
            "  .reg .b64 %o;\n  ld.param.u64 %o, [out];\n";
        for (const std::string n : {"0", "1"}) {
          text += "  mov.b32 %a" + n + ", " + a + "; mov.b32 %b" + n + ", " + b + ";\n";
        }
        for (u32 i = 0; i < 8; ++i) {
          text += "  mov.b32 %c" + std::to_string(i) + ", " + std::to_string(start) + ";\n";
        }
        text += "  wmma.mma.sync.aligned.row.col.m16n16k16.s32." + type + "." + type + ".s32" +
                (saturates ? ".satfinite " : " ") + Names("%d", 8) + ", " + Names("%a", 2) + ", " +
                Names("%b", 2) + ", " + Names("%c", 8) +
                ";\n  wmma.store.d.sync.aligned.row.m16n16k16.global.s32 [%o], " + Names("%d", 8) +
                ", 16;\n  ret;\n}\n";
        Launcher launcher(65536, GetParam());
        launcher.Load(text);
        auto* out = launcher.Allocate<u32>(256);
        const auto outcome = launcher.Run("check", {1, 1, 1}, {32, 1, 1}, out);
        ASSERT_FALSE(outcome.fault) << outcome.fault->message;
        const u32 wrapped = start + static_cast<u32>(16 * product);
        const u32 want = !saturates ? wrapped : up ? 0x7fffffff : 0x80000000;
        for (u32 i = 0; i < 256; ++i) ASSERT_EQ(out[i], want) << type << up << saturates;
      }
    }
  }
}

GPUSHARED_INSTANTIATE_FLAVOURS(WmmaOps);

}  // namespace
}  // namespace gpushared::testing

// SPDX-License-Identifier: Apache-2.0
// Loads and stores: every space, element, vector width, address register and address pattern, for
// all lanes and for some.
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "tests/executor/launcher.h"
#include "tests/executor/op_harness.h"

namespace gpushared::testing {
namespace {

struct Element {
  const char* type;
  u32 bytes;
  bool is_signed;
};
constexpr Element kElements[] = {
    {"b8", 1, false},  {"u8", 1, false}, {"s8", 1, true},   {"u16", 2, false}, {"s16", 2, true},
    {"b32", 4, false}, {"s32", 4, true}, {"f32", 4, false}, {"u64", 8, false}, {"f64", 8, false}};

// Which element each lane of a warp accesses.
struct Pattern {
  const char* name;
  u32 (*index)(u32 lane);
};
constexpr Pattern kPatterns[] = {
    {"consecutive", [](u32 lane) { return lane; }},
    {"all the same", [](u32) { return 5u; }},
    {"strided", [](u32 lane) { return lane * 3; }},
    {"reversed", [](u32 lane) { return 31 - lane; }},
    {"scattered", [](u32 lane) { return lane * 37 % 96; }},
    {"nearly consecutive", [](u32 lane) { return lane == 17 ? 40 : lane; }},
};

constexpr u32 kThreads = 48;  // A whole warp and a part of one.
constexpr u32 kAreaBytes = 96 * 16;

class Memory : public PerFlavour {
 protected:
  static std::string Header() { return ".version 9.0\n.target sm_90\n.address_size 64\n"; }

  executor::RunOutcome Launch(Launcher& launcher, const std::string& text, const void* a,
                              const void* b, u32 threads = kThreads) {
    try {
      launcher.Load(text);
      return launcher.Run("check", {1, 1, 1}, {threads, 1, 1}, a, b);
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what() << " in\n" << text;
      return {};
    }
  }

  void CheckKernelParameters(const std::string& load, const std::string& conversion);
};

// A state space and a form of address in it.
struct SpaceCase {
  const char* name;
  const char* modifier;  // ".shared"
  const char* base;      // Yields %base (64 bits), or the 32-bit register %base32.
  bool narrow;
};

constexpr SpaceCase kSpaces[] = {
    {"global", ".global", "  ld.param.u64 %base, [a];\n", false},
    {"generic global", "", "  ld.param.u64 %base, [a];\n", false},
    {"global volatile", ".volatile.global", "  ld.param.u64 %base, [a];\n", false},
    {"global relaxed", ".relaxed.gpu.global", "  ld.param.u64 %base, [a];\n", false},
    {"generic volatile", ".volatile", "  ld.param.u64 %base, [a];\n", false},
    {"shared", ".shared", "  mov.u32 %base32, area;\n", true},
    {"shared, 64-bit address", ".shared", "  mov.u64 %base, area;\n", false},
    {"shared volatile", ".volatile.shared", "  mov.u32 %base32, area;\n", true},
    {"shared relaxed, 64-bit address", ".relaxed.cta.shared", "  mov.u64 %base, area;\n", false},
    {"generic shared", "", "  cvta.shared.u64 %base, area;\n", false},
    {"local", ".local", "  mov.u64 %base, own;\n", false},
    {"local, 32-bit address", ".local", "  mov.u32 %base32, own;\n", true},
    {"local volatile", ".volatile.local", "  mov.u64 %base, own;\n", false},
    {"local volatile, 32-bit address", ".volatile.local", "  mov.u32 %base32, own;\n", true},
    {"generic local", "", "  cvta.local.u64 %base, own;\n", false},
};

std::string Vector(const std::string& name, u32 count) {
  if (count == 1) return "%" + name + "0";
  std::string text = "{";
  for (u32 i = 0; i < count; ++i) text += (i == 0 ? "%" : ", %") + name + std::to_string(i);
  return text + "}";
}

// Loads and stores in one kernel. The form under test reads bytes of `a`, and plain stores output
// them; or vice versa. A space that is not global gets a copy of `a` first.
std::string AccessKernel(const SpaceCase& space, const Element& element, u32 count, bool load,
                         bool some_lanes) {
  const u32 bytes = element.bytes * count;
  const u32 bits = std::max(element.bytes * 8, 16u);
  const std::string reg_bits = std::to_string(bits);
  std::string text =
      ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry check(.param .u64 a, .param "
      ".u64 b)\n{\n"
      "  .shared .align 16 .b8 area[" +
      std::to_string(kAreaBytes) +
      "];\n"
      "  .local .align 16 .b8 own[" +
      std::to_string(kAreaBytes) +
      "];\n"
      "  .reg .pred %on, %loop;\n  .reg .b64 %eight;\n"
      "  .reg .b32 %base32, %at32, %thread, %lane, %i, %index;\n"
      "  .reg .b64 %base, %at, %a, %b, %from, %to;\n"
      "  .reg .b" +
      reg_bits +
      " %v<4>;\n"
      "  mov.u32 %thread, %tid.x;\n  mov.u32 %lane, %laneid;\n"
      "  ld.param.u64 %a, [a];\n  ld.param.u64 %b, [b];\n";
  text += space.base;
  // Every thread copies all of `a` into the space. In shared memory they all write the same bytes.
  const bool copies = std::string(space.base).find("[a]") == std::string::npos;
  const std::string space_byte = space.narrow ? "[%at32]" : "[%at]";
  if (copies) {
    text +=
        "  mov.u32 %i, 0;\nCOPY_IN:\n  cvt.u64.u32 %from, %i;\n  add.u64 %from, %a, %from;\n"
        "  ld.global.u64 %eight, [%from];\n";
    text += space.narrow ? "  add.u32 %at32, %base32, %i;\n"
                         : "  cvt.u64.u32 %at, %i;\n  add.u64 %at, %base, %at;\n";
    text += "  st" + std::string(space.modifier) + ".u64 " + space_byte +
            ", %eight;\n"
            "  add.u32 %i, %i, 8;\n  setp.lt.u32 %loop, %i, " +
            std::to_string(kAreaBytes) + ";\n  @%loop bra COPY_IN;\n  bar.sync 0;\n";
  }
  // The lane's index into the space comes from a table after `a`.
  text +=
      "  mul.wide.u32 %from, %lane, 4;\n  add.u64 %from, %a, %from;\n"
      "  ld.global.u32 %index, [%from+" +
      std::to_string(kAreaBytes) +
      "];\n"
      "  mul.lo.u32 %index, %index, " +
      std::to_string(bytes) + ";\n";
  text += space.narrow
              ? "  add.u32 %at32, %base32, %index;\n  sub.u32 %at32, %at32, 32;\n"
              : "  cvt.u64.u32 %at, %index;\n  add.u64 %at, %base, %at;\n  sub.u64 %at, %at, 32;\n";
  const std::string access = space.narrow ? "[%at32+32]" : "[%at+32]";
  text +=
      "  mul.wide.u32 %to, %thread, 32;\n  add.u64 %to, %b, %to;\n"
      "  and.b32 %i, %lane, 3;\n  setp.ne.u32 %on, %i, 1;\n";
  const std::string guard = some_lanes ? "  @%on " : "  ";
  const std::string vector = count == 1 ? "" : ".v" + std::to_string(count);
  const std::string form = std::string(space.modifier) + vector + "." + element.type + " ";
  for (u32 i = 0; i < count; ++i) {
    const std::string v = "%v" + std::to_string(i), at = std::to_string(i * 8);
    text += "  ld.global.b" + reg_bits + " " + v + ", [%to+" + at + "];\n";
  }
  if (load) {
    text += guard + "ld" + form + Vector("v", count) + ", " + access + ";\n";
    for (u32 i = 0; i < count; ++i) {
      text += "  st.global.b" + reg_bits + " [%to+" + std::to_string(i * 8) + "], %v" +
              std::to_string(i) + ";\n";
    }
  } else {
    text += guard + "st" + form + access + ", " + Vector("v", count) + ";\n";
    if (copies) {
      // Thread 37 outputs its view of the space after the threads' own slots.
      text +=
          "  bar.sync 0;\n  setp.ne.u32 %loop, %thread, 37;\n  @%loop exit;\n  mov.u32 %i, 0;\n"
          "COPY_OUT:\n";
      text += space.narrow ? "  add.u32 %at32, %base32, %i;\n"
                           : "  cvt.u64.u32 %at, %i;\n  add.u64 %at, %base, %at;\n";
      text += "  ld" + std::string(space.modifier) + ".u64 %eight, " + space_byte +
              ";\n  cvt.u64.u32 %to, %i;\n  add.u64 %to, %b, %to;\n  st.global.u64 [%to+" +
              std::to_string(kThreads * 32) +
              "], %eight;\n  add.u32 %i, %i, 8;\n  setp.lt.u32 %loop, %i, " +
              std::to_string(kAreaBytes) + ";\n  @%loop bra COPY_OUT;\n";
    }
  }
  return text + "  ret;\n}\n";
}

bool TakesPart(u32 thread, bool some_lanes) { return !some_lanes || thread % 32 % 4 != 1; }

TEST_P(Memory, LoadsOfEverySpaceElementVectorAndPattern) {
  for (const SpaceCase& space : kSpaces) {
    for (const Element& element : kElements) {
      for (const u32 count : {1u, 2u, 4u}) {
        if (element.bytes * count > 16) continue;
        for (const bool some_lanes : {false, true}) {
          Launcher launcher(std::uint64_t{1} << 20, GetParam());
          launcher.Load(AccessKernel(space, element, count, true, some_lanes));
          auto* a = launcher.Allocate<u8>(kAreaBytes + 128);
          auto* b = launcher.Allocate<u64>(kThreads * 4);
          for (const Pattern& pattern : kPatterns) {
            for (u32 i = 0; i < kAreaBytes; ++i) a[i] = static_cast<u8>(i * 131 + (i >> 5) + 0x80);
            for (u32 l = 0; l < 32; ++l) {
              const u32 index = pattern.index(l);
              std::memcpy(a + kAreaBytes + 4 * l, &index, 4);
            }
            std::memset(b, 0x6b, kThreads * 32);
            const auto outcome = launcher.Run("check", {1, 1, 1}, {kThreads, 1, 1}, a, b);
            const std::string what = std::string("ld of ") + space.name + " v" +
                                     std::to_string(count) + "." + element.type + " " +
                                     pattern.name;
            ASSERT_FALSE(outcome.fault) << what << ": " << outcome.fault->message;
            const u32 register_bytes = std::max(element.bytes, 2u);
            for (u32 t = 0; t < kThreads; ++t) {
              for (u32 i = 0; i < count; ++i) {
                u64 expected = 0x6b6b6b6b6b6b6b6b;
                if (TakesPart(t, some_lanes)) {
                  const u8* from =
                      a + pattern.index(t % 32) * element.bytes * count + i * element.bytes;
                  expected = 0;
                  std::memcpy(&expected, from, element.bytes);
                  if (element.is_signed && (from[element.bytes - 1] & 0x80) != 0) {
                    expected |= element.bytes == 8 ? 0 : ~u64{0} << (element.bytes * 8);
                  }
                }
                ASSERT_EQ(std::memcmp(&b[t * 4 + i], &expected, register_bytes), 0)
                    << what << ", thread " << t << ", element " << i << ", some lanes "
                    << some_lanes;
              }
            }
          }
        }
      }
    }
    if (HasFailure()) return;
  }
}

TEST_P(Memory, StoresOfEverySpaceElementVectorAndPattern) {
  for (const SpaceCase& space : kSpaces) {
    const bool global = std::string(space.base).find("[a]") != std::string::npos;
    const bool local = std::string(space.name).find("local") != std::string::npos;
    for (const Element& element : kElements) {
      for (const u32 count : {1u, 2u, 4u}) {
        if (element.bytes * count > 16 || element.is_signed) continue;
        for (const bool some_lanes : {false, true}) {
          Launcher launcher(std::uint64_t{1} << 20, GetParam());
          launcher.Load(AccessKernel(space, element, count, false, some_lanes));
          auto* a = launcher.Allocate<u8>(kAreaBytes + 128);
          auto* b = launcher.Allocate<u8>(kThreads * 32 + kAreaBytes);
          for (const Pattern& pattern : kPatterns) {
            std::vector<u8> expected(kAreaBytes);
            for (u32 i = 0; i < kAreaBytes; ++i) a[i] = expected[i] = static_cast<u8>(i * 29);
            for (u32 l = 0; l < 32; ++l) {
              const u32 index = pattern.index(l);
              std::memcpy(a + kAreaBytes + 4 * l, &index, 4);
            }
            // Threads with the same lane store the same value, so that the order of warps does not
            // matter.
            for (u32 t = 0; t < kThreads; ++t) {
              for (u32 i = 0; i < 32; ++i) b[t * 32 + i] = static_cast<u8>(t % 32 * 17 + i * 5 + 3);
            }
            std::memset(b + kThreads * 32, 0, kAreaBytes);
            // If several threads store to one place the last one wins; a thread's local memory
            // contains only its own store.
            for (u32 t = local ? 37 : 0; t < (local ? 38 : kThreads); ++t) {
              if (!TakesPart(t, some_lanes)) continue;
              for (u32 i = 0; i < count; ++i) {
                std::memcpy(
                    &expected[pattern.index(t % 32) * element.bytes * count + i * element.bytes],
                    b + t * 32 + i * 8, element.bytes);
              }
            }
            const auto outcome = launcher.Run("check", {1, 1, 1}, {kThreads, 1, 1}, a, b);
            const std::string what = std::string("st to ") + space.name + " v" +
                                     std::to_string(count) + "." + element.type + " " +
                                     pattern.name;
            ASSERT_FALSE(outcome.fault) << what << ": " << outcome.fault->message;
            const u8* seen = global ? a : b + kThreads * 32;
            for (u32 i = 0; i < kAreaBytes; ++i) {
              ASSERT_EQ(seen[i], expected[i])
                  << what << ", byte " << i << ", some lanes " << some_lanes;
            }
          }
        }
      }
    }
    if (HasFailure()) return;
  }
}

// Vectors of 32 bytes exist only in global memory, for sm_100.
TEST_P(Memory, VectorsOf32BytesInGlobalMemory) {
  for (const std::string form : {".global", "", ".volatile.global", ".relaxed.gpu", ".weak"}) {
    for (const Pattern& pattern : kPatterns) {
      for (const bool some_lanes : {false, true}) {
        const std::string guard = some_lanes ? "@%on " : "";
        Launcher launcher(std::uint64_t{1} << 20, GetParam());
        auto* a = launcher.Allocate<std::array<u64, 4>>(96);
        auto* b = launcher.Allocate<std::array<u64, 4>>(96 + 32);
        u32* index = launcher.Allocate<u32>(32);
        for (u32 i = 0; i < 96; ++i) a[i] = {i, ~u64{i}, u64{i} << 40, u64{i} * 0x123456789abcdef};
        for (u32 l = 0; l < 32; ++l) index[l] = pattern.index(l);
        launcher.Load(R"(
.version 9.0
.target sm_100
.address_size 64
.visible .entry check(.param .u64 a, .param .u64 b, .param .u64 index)
{
  .reg .b64 %a, %b, %x, %d<4>; .reg .b32 %t, %i; .reg .pred %on;
  ld.param.u64 %a, [a]; ld.param.u64 %b, [b]; ld.param.u64 %x, [index];
  mov.u32 %t, %tid.x;
  mad.wide.u32 %x, %t, 4, %x;
  ld.global.u32 %i, [%x];
  mad.wide.u32 %a, %i, 32, %a;
  mad.wide.u32 %x, %i, 32, %b;
  mad.wide.u32 %b, %t, 32, %b;
  and.b32 %i, %t, 3; setp.ne.u32 %on, %i, 1;
  mov.u64 %d0, 0; mov.u64 %d1, 1; mov.u64 %d2, 2; mov.u64 %d3, 3;
  )" + guard + "ld" + form +
                      R"(.v4.u64 {%d0, %d1, %d2, %d3}, [%a];
  st.global.v2.u64 [%b+3072], {%d0, %d1}; st.global.v2.u64 [%b+3088], {%d2, %d3};
  )" + guard + "st" + form +
                      R"(.v4.b64 [%x], {%d3, %d2, %d1, %d0};
  ret;
})");
        const auto outcome = launcher.Run("check", {1, 1, 1}, {32, 1, 1}, a, b, index);
        ASSERT_FALSE(outcome.fault) << outcome.fault->message;
        for (u32 l = 0; l < 32; ++l) {
          const bool on = TakesPart(l, some_lanes);
          const auto loaded = on ? a[index[l]] : std::array<u64, 4>{0, 1, 2, 3};
          ASSERT_EQ(b[96 + l], loaded) << form << " " << pattern.name << " lane " << l;
          const std::array<u64, 4> stored = {loaded[3], loaded[2], loaded[1], loaded[0]};
          if (on) {
            ASSERT_EQ(b[index[l]], stored) << form << " " << pattern.name << " lane " << l;
          }
        }
        const auto misaligned = launcher.Run("check", {1, 1, 1}, {1, 1, 1}, &a[0][2], b, index);
        ASSERT_TRUE(misaligned.fault) << form;
        EXPECT_EQ(misaligned.fault->kind, executor::Fault::Kind::kMisaligned);
      }
    }
  }
}

// Reads parameters of every type and vector size by name and offset, and by addresses that differ
// between lanes, both of the parameter space and generic.
void Memory::CheckKernelParameters(const std::string& load, const std::string& conversion) {
  struct alignas(16) Block {
    u8 bytes[64];
  } block;
  for (u32 i = 0; i < 64; ++i) block.bytes[i] = static_cast<u8>(i * 37 + 100);
  for (const Element& element : kElements) {
    for (const u32 count : {1u, 2u, 4u}) {
      const u32 bytes = element.bytes * count;
      if (bytes > 16) continue;
      const std::string bits = element.bytes == 8 ? "64" : "32";
      const std::string form =
          (count == 1 ? "" : ".v" + std::to_string(count)) + "." + element.type + " ";
      std::string text = Header() +
                         ".visible .entry check(.param .u64 out, .param .align 16 .b8 block[64])\n"
                         "{\n  .reg .b64 %o, %at; .reg .b32 %t, %i; .reg .b" +
                         bits +
                         " %v<4>, %w<4>;\n  ld.param.u64 %o, [out];\n  mov.u32 %t, %tid.x;\n"
                         "  mad.wide.u32 %o, %t, 64, %o;\n  and.b32 %i, %t, 3;\n"
                         "  mov.u64 %at, block;\n  mad.wide.u32 %at, %i, " +
                         std::to_string(bytes) + ", %at;\n  " + conversion + "  ld.param" + form +
                         Vector("v", count) + ", [block+16];\n  " + load + form +
                         Vector("w", count) + ", [%at];\n";
      for (u32 i = 0; i < count; ++i) {
        const std::string n = std::to_string(i), at = std::to_string(i * 8);
        text += "  st.global.b" + bits + " [%o+" + at + "], %v" + n + ";\n  st.global.b" + bits +
                " [%o+32+" + at + "], %w" + n + ";\n";
      }
      Launcher launcher(65536, GetParam());
      launcher.Load(text + "  ret;\n}\n");
      auto* out = launcher.Allocate<std::array<u64, 8>>(40);
      const auto outcome = launcher.Run("check", {1, 1, 1}, {40, 1, 1}, out, block);
      ASSERT_FALSE(outcome.fault) << outcome.fault->message;
      for (u32 t = 0; t < 40; ++t) {
        for (u32 i = 0; i < 2 * count; ++i) {
          const u32 part = i % count;
          const u8* from = block.bytes + (i < count ? 16 : t % 4 * bytes) + part * element.bytes;
          u64 expected = 0;
          std::memcpy(&expected, from, element.bytes);
          if (element.is_signed && element.bytes < 8 && (from[element.bytes - 1] & 0x80) != 0) {
            expected |= ~u64{0} << (element.bytes * 8);
          }
          if (bits == "32") expected &= 0xffffffff;
          ASSERT_EQ(out[t][(i < count ? 0 : 4) + part], expected) << load << form << "thread " << t;
        }
      }
    }
  }
}

TEST_P(Memory, KernelParametersOfEveryTypeAndVector) {
  const std::string conversion = "cvta.param.u64 %at, %at;\n";
  CheckKernelParameters("ld.param", "");
  CheckKernelParameters("ld.param", conversion + "cvta.to.param.u64 %at, %at;\n");
  CheckKernelParameters("ld", conversion);
  CheckKernelParameters("ld.volatile", conversion);
}

// A function reads through a generic pointer to a kernel parameter or to global memory; only the
// kernel can distinguish the two.
TEST_P(Memory, GenericAddressesOfParametersReachFunctions) {
  Launcher launcher(65536, GetParam());
  launcher.Load(Header() + R"(
.func (.param .b32 sum) add_up(.param .b64 from)
{
  .reg .b32 %r<4>; .reg .b64 %d;
  ld.param.b64 %d, [from];
  ld.v2.u32 {%r0, %r1}, [%d];
  ld.u32 %r2, [%d+8];
  add.u32 %r0, %r0, %r1;
  add.u32 %r0, %r0, %r2;
  st.param.b32 [sum], %r0;
  ret;
}
.visible .entry check(.param .u64 out, .param .align 8 .b8 table[32])
{
  .reg .b32 %r<8>; .reg .b64 %o, %d<6>; .reg .pred %p<4>;
  ld.param.u64 %o, [out];
  mov.b64 %d0, table;
  cvta.param.u64 %d0, %d0;
  mov.u32 %r0, %tid.x;
  mad.wide.u32 %d3, %r0, 16, %o;
  and.b32 %r1, %r0, 1;
  setp.eq.u32 %p0, %r1, 0;
  mul.wide.u32 %d1, %r1, 8;
  add.s64 %d1, %d0, %d1;
  and.b32 %r2, %r0, 2;
  setp.ne.u32 %p1, %r2, 0;
  add.s64 %d2, %d3, 0;
  st.global.v4.u32 [%d2], {1, 2, 3, 4};
  @%p1 mov.u64 %d1, %d2;
  { .param .b64 a; .param .b32 b;
  st.param.b64 [a], %d1;
  call (b), add_up, (a);
  ld.param.b32 %r3, [b]; }
  isspacep.param %p2, %d1;
  isspacep.global %p3, %d1;
  selp.u32 %r4, 1, 0, %p2;
  selp.u32 %r5, 2, 0, %p3;
  add.u32 %r4, %r4, %r5;
  st.global.v2.u32 [%d3], {%r3, %r4};
  ret;
})");
  struct alignas(8) Table {
    u32 words[8];
  } table = {{10, 20, 30, 40, 50, 60, 70, 80}};
  auto* out = launcher.Allocate<std::array<u32, 4>>(40);
  const auto outcome = launcher.Run("check", {1, 1, 1}, {40, 1, 1}, out, table);
  ASSERT_FALSE(outcome.fault) << outcome.fault->message;
  for (u32 t = 0; t < 40; ++t) {
    const bool in_parameter = (t & 2) == 0;
    EXPECT_EQ(out[t][0], !in_parameter ? 6 : (t & 1) == 0 ? 60 : 120) << t;
    EXPECT_EQ(out[t][1], in_parameter ? 1 : 2) << t;
  }
}

// Triton attaches a cache policy to most accesses of TorchInductor's kernels.
TEST_P(Memory, CachePoliciesChangeNothing) {
  Launcher launcher(65536, GetParam());
  launcher.Load(Header() + R"(
.visible .entry check(.param .u64 data)
{
  .reg .b64 %d, %p<6>; .reg .b32 %r<8>; .reg .pred %q; .shared .align 16 .b8 s[64];
  ld.param.u64 %d, [data];
  setp.eq.u64 %q, %d, 0;
  mov.b64 %p4, 7;
  createpolicy.fractional.L2::evict_last.b64 %p0, 1.0;
  createpolicy.fractional.L2::evict_first.L2::evict_unchanged.b64 %p1, 0.5;
  createpolicy.range.global.L2::evict_last.L2::evict_unchanged.b64 %p2, [%d], 64, 128;
  createpolicy.cvt.L2.b64 %p3, %d;
  @%q createpolicy.fractional.L2::evict_last.b64 %p4, 1.0;
  ld.global.L1::evict_last.L2::cache_hint.v2.b32 {%r0, %r1}, [%d], %p0;
  ld.global.nc.L2::cache_hint.L2::128B.u32 %r2, [%d+8], %p1;
  add.u32 %r0, %r0, %r1;
  add.u32 %r0, %r0, %r2;
  st.global.L2::cache_hint.u32 [%d+16], %r0, %p2;
  atom.global.add.L2::cache_hint.u32 %r3, [%d+16], 5, %p3;
  red.global.add.L2::cache_hint.u32 [%d+16], 100, %p3;
  cp.async.cg.shared.global.L2::cache_hint [s], [%d], 16, %p0;
  cp.async.wait_all;
  ld.shared.u32 %r4, [s+4];
  st.global.u32 [%d+20], %r3;
  st.global.u32 [%d+24], %r4;
  discard.global.L2 [%d+1024], 128;
  prefetch.global.L2::evict_last [%d];
  applypriority.global.L2::evict_normal [%d], 128;
  st.global.u64 [%d+32], %p4;
  ret;
})");
  auto* data = launcher.Allocate<u32>(512);
  data[0] = 1, data[1] = 20, data[2] = 300;
  const auto outcome = launcher.Run("check", {1, 1, 1}, {1, 1, 1}, data);
  ASSERT_FALSE(outcome.fault) << outcome.fault->message;
  EXPECT_EQ(data[4], 426u);
  EXPECT_EQ(data[5], 321u);
  EXPECT_EQ(data[6], 20u);
  EXPECT_EQ(data[8], 7u);
}

// Kernel parameters of every type, by name, by name and offset, and by computed address.
TEST_P(Memory, KernelParameters) {
  Launcher launcher(65536, GetParam());
  launcher.Load(Header() + R"(
.visible .entry check(.param .u8 p0, .param .s16 p1, .param .u64 out, .param .align 16 .b8 block[32])
{
  .reg .b32 %r<8>; .reg .b64 %o, %d<6>; .reg .b16 %h<4>; .reg .b32 %t;
  ld.param.u64 %o, [out];
  mov.u32 %t, %tid.x;
  mul.wide.u32 %d0, %t, 64;
  add.u64 %o, %o, %d0;
  ld.param.u8 %h0, [p0];
  ld.param.s16 %r0, [p1];
  ld.param.v2.u32 {%r1, %r2}, [block+8];
  ld.param.v4.u16 {%h1, _, %h2, _}, [block+16];
  mov.u64 %d1, block;
  and.b32 %r3, %t, 7;
  mul.wide.u32 %d2, %r3, 4;
  add.u64 %d1, %d1, %d2;
  ld.param.b32 %r4, [%d1];
  ld.param.b8 %r5, [%d1+3];
  st.global.u8 [%o], %h0;
  st.global.u32 [%o+4], %r0;
  st.global.v2.u32 [%o+8], {%r1, %r2};
  st.global.u16 [%o+16], %h1;
  st.global.u16 [%o+18], %h2;
  st.global.u32 [%o+20], %r4;
  st.global.u32 [%o+24], %r5;
  ret;
})");
  struct alignas(16) Block {
    u8 bytes[32];
  } block;
  for (u32 i = 0; i < 32; ++i) block.bytes[i] = static_cast<u8>(i * 9 + 100);
  auto* out = launcher.Allocate<u8>(40 * 64);
  const auto outcome = launcher.Run("check", {1, 1, 1}, {40, 1, 1}, u8{0xfe}, s16{-3}, out, block);
  ASSERT_FALSE(outcome.fault) << outcome.fault->message;
  for (u32 t = 0; t < 40; ++t) {
    const u8* mine = out + t * 64;
    const u32 at = t % 8 * 4;
    s32 word = 0;
    EXPECT_EQ(mine[0], 0xfe);
    std::memcpy(&word, mine + 4, 4);
    EXPECT_EQ(word, -3);
    EXPECT_EQ(std::memcmp(mine + 8, block.bytes + 8, 8), 0);
    EXPECT_EQ(std::memcmp(mine + 16, block.bytes + 16, 2), 0);
    EXPECT_EQ(std::memcmp(mine + 18, block.bytes + 20, 2), 0);
    EXPECT_EQ(std::memcmp(mine + 20, block.bytes + at, 4), 0);
    std::memcpy(&word, mine + 24, 4);
    EXPECT_EQ(word, block.bytes[at + 3]);
  }
}

// Module variables: initial values, addresses in initialisers, constant memory.
TEST_P(Memory, ModuleVariables) {
  Launcher launcher(65536, GetParam());
  launcher.Load(Header() + R"(
.const .align 8 .b16 table[4] = {1, 2, 0xfffe, 4};
.global .align 4 .f32 scale = 0f40200000;
.global .align 4 .s32 tail[3] = {-1, 77, 3};
.global .align 8 .u64 where[2] = {scale, generic(tail)+4};
.visible .entry check(.param .u64 a, .param .u64 out)
{
  .reg .b32 %r<8>; .reg .b64 %o, %d<6>; .reg .f32 %f<3>;
  ld.param.u64 %o, [out];
  ld.const.s16 %r0, [table+4];
  ld.global.f32 %f0, [scale];
  mov.u64 %d0, where;
  ld.global.u64 %d1, [%d0];
  ld.f32 %f1, [%d1];
  ld.global.u64 %d2, [where+8];
  ld.s32 %r1, [%d2];
  ld.global.s32 %r2, [tail];
  cvta.const.u64 %d3, table;
  ld.u16 %r3, [%d3+2];
  st.global.u32 [%o], %r0;
  st.global.f32 [%o+4], %f0;
  st.global.f32 [%o+8], %f1;
  st.global.u32 [%o+12], %r1;
  st.global.u32 [%o+16], %r2;
  st.global.u32 [%o+20], %r3;
  ret;
})");
  auto* out = launcher.Allocate<s32>(8);
  const auto outcome = launcher.Run("check", {1, 1, 1}, {1, 1, 1}, nullptr, out);
  ASSERT_FALSE(outcome.fault) << outcome.fault->message;
  EXPECT_EQ(out[0], -2);
  EXPECT_EQ(__builtin_bit_cast(float, out[1]), 2.5f);
  EXPECT_EQ(__builtin_bit_cast(float, out[2]), 2.5f);
  EXPECT_EQ(out[3], 77);
  EXPECT_EQ(out[4], -1);
  EXPECT_EQ(out[5], 2);
}

// Where a block has only 12 bytes of shared memory left, compilers may load 16 bytes and ignore the
// last 4, so the size of the block's shared memory must be rounded up.
TEST(SharedMemory, SizeIsRoundedUpAsOnAGpu) {
  Launcher launcher;
  launcher.Load(R"(.version 7.0
.target sm_75
.address_size 64
.extern .shared .align 16 .b8 dynamic[];
.visible .entry wide(.param .u64 out, .param .u32 at) {
  .reg .b32 %r<9>; .reg .b64 %d<3>;
  ld.param.u64 %d1, [out]; ld.param.u32 %r5, [at];
  mov.u32 %r6, dynamic; add.u32 %r6, %r6, %r5;
  ld.shared.v4.u32 {%r1, %r2, %r3, %r4}, [%r6];
  mov.u32 %r7, %dynamic_smem_size;
  st.global.u32 [%d1], %r7;
  ret;
})");
  launcher.dynamic_shared_bytes = 28;
  auto* const out = launcher.Allocate<std::uint32_t>(1);
  for (const std::uint32_t at : {16u, 112u}) {
    const auto outcome = launcher.Run("wide", {1, 1, 1}, {1, 1, 1}, out, at);
    EXPECT_FALSE(outcome.fault) << outcome.fault->message;
    EXPECT_EQ(*out, 28u) << "%dynamic_smem_size must be the requested size";
  }
  const auto outcome = launcher.Run("wide", {1, 1, 1}, {1, 1, 1}, out, 128u);
  ASSERT_TRUE(outcome.fault);
  EXPECT_EQ(executor::GetKind(outcome.fault->kind), FaultKind::kIllegalAddress);
}

// Dynamic shared memory begins after the static part; both read as 0 when a block begins.
TEST_P(Memory, SharedAndLocalMemoryBeginZeroInEveryBlock) {
  Launcher launcher(65536, GetParam());
  launcher.Load(Header() + R"(
.extern .shared .align 16 .b8 dynamic[];
.visible .entry check(.param .u64 out)
{
  .shared .align 4 .b8 fixed[12];
  .local .align 8 .b8 own[16];
  .reg .b32 %r<8>; .reg .b64 %o, %d;
  ld.param.u64 %o, [out];
  mov.u32 %r0, %ctaid.x;
  mul.wide.u32 %d, %r0, 16;
  add.u64 %o, %o, %d;
  ld.shared.u32 %r1, [fixed+8];
  ld.shared.u32 %r2, [dynamic+16];
  ld.local.u32 %r3, [own+4];
  mov.u32 %r4, dynamic;
  st.global.v4.u32 [%o], {%r1, %r2, %r3, %r4};
  mov.u32 %r5, -1;
  st.shared.u32 [fixed+8], %r5;
  st.shared.u32 [dynamic+16], %r5;
  st.local.u32 [own+4], %r5;
  ret;
})");
  auto* out = launcher.Allocate<u32>(12);
  launcher.dynamic_shared_bytes = 20;
  const auto outcome = launcher.Run("check", {3, 1, 1}, {1, 1, 1}, out);
  ASSERT_FALSE(outcome.fault) << outcome.fault->message;
  for (u32 i = 0; i < 12; ++i) EXPECT_EQ(out[i], i % 4 == 3 ? 16u : 0u);
}

// ptxas says: "Unresolved extern variable in whole program compilation, ignoring extern qualifier".
// Taichi declares its arrays in shared memory this way.
TEST_P(Memory, ExternalSharedMemoryOfKnownSizeIsStatic) {
  Launcher launcher(65536, GetParam());
  launcher.Load(Header() + R"(
.extern .shared .align 8 .b8 first[16];
.extern .shared .align 8 .b8 second[16];
.visible .entry swap(.param .u64 out)
{
  .reg .b32 %r<4>; .reg .b64 %o;
  ld.param.u64 %o, [out];
  mov.u32 %r0, 7;
  st.shared.u32 [first+12], %r0;
  mov.u32 %r0, 9;
  st.shared.u32 [second+12], %r0;
  ld.shared.u32 %r1, [first+12];
  ld.shared.u32 %r2, [second+12];
  st.global.v2.u32 [%o], {%r1, %r2};
  ret;
})");
  auto* out = launcher.Allocate<u32>(2);
  const auto outcome = launcher.Run("swap", {1, 1, 1}, {1, 1, 1}, out);
  ASSERT_FALSE(outcome.fault) << outcome.fault->message;
  EXPECT_EQ(out[0], 7u);
  EXPECT_EQ(out[1], 9u);
}

TEST_P(Memory, ReleasesMemoryOfEarlierBlocks) {
  Launcher launcher(65536, GetParam());
  launcher.Load(R"(
.version 9.0
.target sm_90
.address_size 64
.visible .entry use(.param .u64 out)
{
  .local .align 8 .b8 own[65536];
  .reg .b64 %o, %w; .reg .b32 %r, %t;
  ld.param.u64 %o, [out];
  mov.u32 %t, %tid.x;
  mul.wide.u32 %w, %t, 4;
  add.u64 %o, %o, %w;
  ld.local.u32 %r, [own+60000];
  add.u32 %r, %r, %t;
  st.local.u32 [own+60000], %r;
  st.global.u32 [%o], %r;
  ret;
}
)");
  auto* out = launcher.Allocate<u32>(256);
  for (u32 run = 0; run < 2; ++run) {
    EXPECT_FALSE(launcher.Run("use", {2, 1, 1}, {256, 1, 1}, out).fault);
    for (u32 i = 0; i < 256; ++i) ASSERT_EQ(out[i], i);
    EXPECT_GE(launcher.executor().memory_bytes(), 256u * 65536);
    launcher.executor().ReleaseMemory();
    EXPECT_LE(launcher.executor().memory_bytes(), executor::kKeptBytesMax);
  }
}

TEST_P(Memory, IsspacepRecognizesEverySpace) {
  Launcher launcher(65536, GetParam());
  launcher.Load(Header() + R"(
.visible .entry check(.param .u64 a, .param .u64 out)
{
  .shared .align 4 .b8 area[64];
  .local .align 8 .b8 own[16];
  .reg .pred %p; .reg .b32 %r<4>; .reg .b64 %o, %d<6>;
  ld.param.u64 %o, [out];
  ld.param.u64 %d0, [a];
  cvta.shared.u64 %d1, area;
  cvta.local.u64 %d2, own;
  isspacep.global %p, %d0; selp.u32 %r0, 1, 0, %p; st.global.u32 [%o], %r0;
  isspacep.global %p, %d1; selp.u32 %r0, 1, 0, %p; st.global.u32 [%o+4], %r0;
  isspacep.shared %p, %d1; selp.u32 %r0, 1, 0, %p; st.global.u32 [%o+8], %r0;
  isspacep.shared %p, %d2; selp.u32 %r0, 1, 0, %p; st.global.u32 [%o+12], %r0;
  isspacep.local %p, %d2; selp.u32 %r0, 1, 0, %p; st.global.u32 [%o+16], %r0;
  isspacep.local %p, %d0; selp.u32 %r0, 1, 0, %p; st.global.u32 [%o+20], %r0;
  cvta.to.shared.u64 %d3, %d1; cvt.u32.u64 %r1, %d3; st.global.u32 [%o+24], %r1;
  ret;
})");
  auto* out = launcher.Allocate<u32>(8);
  const auto outcome = launcher.Run("check", {1, 1, 1}, {1, 1, 1}, out, out);
  ASSERT_FALSE(outcome.fault) << outcome.fault->message;
  const u32 expected[] = {1, 0, 1, 0, 1, 0, 0};
  for (u32 i = 0; i < 7; ++i) EXPECT_EQ(out[i], expected[i]) << i;
}

GPUSHARED_INSTANTIATE_FLAVOURS(Memory);

}  // namespace
}  // namespace gpushared::testing

// SPDX-License-Identifier: Apache-2.0
// tex, suld and sust. The reference follows the CUDA C++ Programming Guide, appendix "Texture
// Fetching", formula by formula. Further tests cover clients that forge records.
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>

#include "gpushared/texture_record.h"

#include "tests/executor/half_reference.h"
#include "tests/executor/launcher.h"
#include "tests/executor/op_harness.h"

namespace gpushared::testing {
namespace {

using Kind = executor::Fault::Kind;
using Mode = TextureAddressMode;
using ::testing::HasSubstr;

constexpr u32 kSamplers = 80;  // Two and a half warps; every seventh thread does not participate.
using Four = std::array<u32, 4>;

bool TakesPart(u32 thread) { return thread % 7 != 6; }

// Each thread reads its handle and its coordinates from memory. The coordinate registers also
// receive the result, and keep their values in threads that do not participate.
std::string KernelText(const std::string& name, const std::string& instruction) {
  return ".visible .entry " + name +
         "(.param .u64 handles, .param .u64 words, .param .u64 out) {\n"
         "  .reg .pred %on; .reg .b32 %t, %m, %x, %y, %z, %w; .reg .b64 %h, %a, %o;\n"
         "  .reg .b16 %h0, %h1, %h2, %h3; .reg .b64 %d0, %d1; .reg .b32 %v0, %v1, %v2, %v3;\n"
         "  mov.u32 %t, %tid.x; rem.u32 %m, %t, 7; setp.ne.u32 %on, %m, 6;\n"
         "  ld.param.u64 %a, [handles]; mad.wide.u32 %a, %t, 8, %a; ld.u64 %h, [%a];\n"
         "  ld.param.u64 %a, [words]; mad.wide.u32 %a, %t, 16, %a;\n"
         "  ld.v4.u32 {%x, %y, %z, %w}, [%a];\n"
         "  ld.param.u64 %o, [out]; mad.wide.u32 %o, %t, 16, %o;\n" +
         instruction + "\n  ret;\n}\n";
}
constexpr const char* kTextureHeader = ".version 9.0\n.target sm_90\n.address_size 64\n";
// Number of lines of a kernel before its instruction.
constexpr u32 kLinesBefore = 8;

std::string PlaceText(u32 dimensions) {
  if (dimensions == 1) return "[%h, {%x}]";
  return dimensions == 2 ? "[%h, {%x, %y}]" : "[%h, {%x, %y, %z, %z}]";
}

std::string SampleText(u32 dimensions, const std::string& result, const std::string& coordinate,
                       const std::string& level = "") {
  const std::string form = (level.empty() ? "" : "level.") + std::to_string(dimensions) + "d.v4." +
                           result + "." + coordinate;
  return "@%on tex." + form + " {%x, %y, %z, %w}, " + PlaceText(dimensions) + level +
         "; st.v4.u32 [%o], {%x, %y, %z, %w};";
}

// ---- the reference

const HalfType& kHalf = kHalfTypes[0];

struct FormatCase {
  TexelFormat format;
  u32 bytes;
  bool is_float;
  bool can_be_fraction;
};
constexpr FormatCase kFormats[] = {
    {TexelFormat::kUint8, 1, false, true},   {TexelFormat::kUint16, 2, false, true},
    {TexelFormat::kUint32, 4, false, false}, {TexelFormat::kInt8, 1, false, true},
    {TexelFormat::kInt16, 2, false, true},   {TexelFormat::kInt32, 4, false, false},
    {TexelFormat::kFloat16, 2, true, false}, {TexelFormat::kFloat32, 4, true, false},
};

template <typename T>
T Peek(const u8* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Returns a channel as a number, for formats that are read as float.
long double Number(const TextureRecord& record, const u8* at) {
  switch (record.format) {
    case TexelFormat::kUint8:
      return Peek<u8>(at) / 255.0L;
    case TexelFormat::kUint16:
      return Peek<u16>(at) / 65535.0L;
    case TexelFormat::kInt8:
      return std::max(Peek<s8>(at) / 127.0L, -1.0L);
    case TexelFormat::kInt16:
      return std::max(Peek<s16>(at) / 32767.0L, -1.0L);
    case TexelFormat::kFloat16:
      return kHalf.ToReal(Peek<u16>(at));
    default:
      return Peek<float>(at);
  }
}
// Returns a channel that is read as an integer.
u32 Integer(const TextureRecord& record, const u8* at) {
  switch (record.format) {
    case TexelFormat::kUint8:
      return Peek<u8>(at);
    case TexelFormat::kUint16:
      return Peek<u16>(at);
    case TexelFormat::kInt8:
      return static_cast<u32>(s32{Peek<s8>(at)});
    case TexelFormat::kInt16:
      return static_cast<u32>(s32{Peek<s16>(at)});
    default:
      return Peek<u32>(at);
  }
}

class Reference {
 public:
  Reference(const TextureRecord& record, const FormatCase& format, u32 dimensions)
      : record_(record), format_(format), dimensions_(dimensions) {}

  bool IsFloat() const { return format_.is_float || record_.normalised_values != 0; }

  // Returns channel `c` of tex(x, y, z).
  long double Point(const std::array<float, 3>& coordinates, u32 c) const {
    std::array<s64, 3> at = {};
    for (u32 axis = 0; axis < dimensions_; ++axis) {
      at[axis] = static_cast<s64>(std::floor(Texels(axis, coordinates[axis])));
    }
    return Value(at, c);
  }
  long double Linear(const std::array<float, 3>& coordinates, u32 c) const {
    std::array<s64, 3> first = {};
    std::array<long double, 3> fraction = {};
    for (u32 axis = 0; axis < dimensions_; ++axis) {
      const long double b = Texels(axis, coordinates[axis]) - 0.5L;
      first[axis] = static_cast<s64>(std::floor(b));
      fraction[axis] = std::floor((b - std::floor(b)) * 256 + 0.5L) / 256;
    }
    long double sum = 0;
    for (u32 z = 0; z < (dimensions_ > 2 ? 2u : 1u); ++z) {
      for (u32 y = 0; y < (dimensions_ > 1 ? 2u : 1u); ++y) {
        for (u32 x = 0; x < 2; ++x) {
          const long double weight = (x == 0 ? 1 - fraction[0] : fraction[0]) *
                                     (y == 0 ? 1 - fraction[1] : fraction[1]) *
                                     (z == 0 ? 1 - fraction[2] : fraction[2]);
          sum += weight * Value({first[0] + x, first[1] + y, first[2] + z}, c);
        }
      }
    }
    return sum;
  }
  // Returns tex2Dgather(x, y), which lists the texels counter-clockwise from the lower left.
  std::array<long double, 4> Gathered(const std::array<float, 3>& coordinates, u32 c) const {
    std::array<s64, 2> first = {};
    for (u32 axis = 0; axis < 2; ++axis) {
      const long double b = Texels(axis, coordinates[axis]) - 0.5L;
      first[axis] = static_cast<s64>(std::floor(std::floor(b * 256 + 0.5L) / 256));
    }
    const auto [x, y] = first;
    return {Value({x, y + 1, 0}, c), Value({x + 1, y + 1, 0}, c), Value({x + 1, y, 0}, c),
            Value({x, y, 0}, c)};
  }
  // Returns the bits of channel `c` of a fetch by integer coordinates.
  u32 Bits(const std::array<s32, 3>& coordinates, u32 c) const {
    std::array<s64, 3> at = {};
    for (u32 axis = 0; axis < dimensions_; ++axis) at[axis] = coordinates[axis];
    const u8* const texel = TexelAt(at, c);
    if (texel == nullptr) return record_.border[c];
    return IsFloat() ? std::bit_cast<u32>(static_cast<float>(Number(record_, texel)))
                     : Integer(record_, texel);
  }

 private:
  Mode GetMode(u32 axis) const {
    const Mode mode = record_.address_modes[axis];
    const bool for_fractions = mode == Mode::kWrap || mode == Mode::kMirror;
    return for_fractions && record_.normalised_coordinates == 0 ? Mode::kClamp : mode;
  }
  // Returns the coordinate in texels.
  long double Texels(u32 axis, float x) const {
    long double at = x;
    if (record_.normalised_coordinates == 0) return at;
    const long double whole = std::floor(at);
    const bool is_even = std::fmod(whole, 2.0L) == 0;
    if (GetMode(axis) == Mode::kWrap) at = at - whole;
    if (GetMode(axis) == Mode::kMirror) at = is_even ? at - whole : 1 - (at - whole);
    return at * record_.extents[axis];
  }
  // Returns null for the border.
  const u8* TexelAt(std::array<s64, 3> at, u32 c) const {
    for (u32 axis = 0; axis < 3; ++axis) {
      const s64 n = record_.extents[axis];
      if (GetMode(axis) == Mode::kBorder && (at[axis] < 0 || at[axis] > n - 1)) return nullptr;
      if (GetMode(axis) == Mode::kWrap) {
        while (at[axis] < 0) at[axis] += n;
        while (at[axis] >= n) at[axis] -= n;
      }
      at[axis] = std::min(std::max<s64>(at[axis], 0), n - 1);
    }
    const u8* const texels = reinterpret_cast<const u8*>(record_.address);
    return texels + static_cast<u64>(at[2]) * record_.slice_bytes +
           static_cast<u64>(at[1]) * record_.row_bytes +
           (static_cast<u64>(at[0]) * record_.channels + c) * format_.bytes;
  }
  long double Value(const std::array<s64, 3>& at, u32 c) const {
    const u8* const texel = TexelAt(at, c);
    if (!IsFloat()) return texel == nullptr ? record_.border[c] : Integer(record_, texel);
    return texel == nullptr ? std::bit_cast<float>(record_.border[c]) : Number(record_, texel);
  }

  const TextureRecord& record_;
  const FormatCase& format_;
  const u32 dimensions_;
};

// ---- the cases

class Textures : public PerFlavour {
 protected:
  void SetUp() override {
    PerFlavour::SetUp();
    launcher_ = std::make_unique<Launcher>(kMemory, GetParam());
    handles_ = launcher_->Allocate<u64>(kSamplers);
    words_ = launcher_->Allocate<Four>(kSamplers);
    out_ = launcher_->Allocate<Four>(kSamplers);
    record_ = launcher_->Allocate<TextureRecord>(1);
    texels_ = launcher_->Allocate<u8>(kTexelBytes);
  }

  executor::RunOutcome Run(const std::string& kernel) {
    return launcher_->Run(kernel, {1, 1, 1}, {kSamplers, 1, 1}, handles_, words_, out_);
  }
  // All threads use the same record.
  executor::RunOutcome RunRecord(const std::string& kernel) {
    std::fill_n(handles_, kSamplers, reinterpret_cast<u64>(record_));
    return Run(kernel);
  }

  u32 Random(u32 below) { return static_cast<u32>(random_() % below); }

  // Makes a texture of random texels and extents, with padding between rows and slices.
  void MakeTexture(const FormatCase& format, u32 channels, u32 dimensions) {
    *record_ = {};
    record_->format = format.format;
    record_->channels = static_cast<u8>(channels);
    const u32 bytes = format.bytes * channels;
    u32 extents[3] = {1 + Random(17), 1 + Random(9), 1 + Random(6)};
    for (u32 axis = dimensions; axis < 3; ++axis) extents[axis] = 1;
    std::copy_n(extents, 3, record_->extents);
    record_->row_bytes = (extents[0] + Random(3)) * bytes;
    record_->slice_bytes = u64{record_->row_bytes} * (extents[1] + Random(2));
    record_->address = reinterpret_cast<u64>(texels_) + u64{bytes} * Random(4);
    for (u32 i = 0; i < kTexelBytes; i += 8) {
      const u64 eight = random_();
      std::memcpy(texels_ + i, &eight, 8);
    }
    if (!format.is_float) return;
    // Numbers of similar magnitude, so that each texel affects a sum.
    const u64 end = record_->address + record_->slice_bytes * extents[2];
    for (u64 at = record_->address; at < end; at += format.bytes) {
      const float value = static_cast<float>(Random(4001)) / 1000 - 2;
      if (format.bytes == 4) {
        std::memcpy(reinterpret_cast<u8*>(at), &value, 4);
      } else {
        const u16 half = kHalf.FromReal(value);
        std::memcpy(reinterpret_cast<u8*>(at), &half, 2);
      }
    }
  }

  static constexpr u64 kMemory = u64{1} << 20;
  static constexpr u32 kTexelBytes = 32 << 10;
  std::unique_ptr<Launcher> launcher_;
  u64* handles_ = nullptr;
  Four* words_ = nullptr;
  Four* out_ = nullptr;
  TextureRecord* record_ = nullptr;
  u8* texels_ = nullptr;
  std::mt19937_64 random_{20261123};
};

std::string AllSamples() {
  std::string text = kTextureHeader;
  for (u32 d = 1; d <= 3; ++d) {
    const std::string name = "sample" + std::to_string(d);
    text += KernelText(name, SampleText(d, "f32", "f32"));
    text += KernelText(name + "_level", SampleText(d, "f32", "f32", ", 0f40200000"));
    text += KernelText(name + "_of_integers", SampleText(d, "u32", "f32"));
    text += KernelText(name + "_at_integers", SampleText(d, "s32", "s32"));
  }
  return text;
}

TEST_P(Textures, GatherReadsOneChannelOfTheFourTexelsAround) {
  std::string text = kTextureHeader;
  for (const char component : {'r', 'g', 'b', 'a'}) {
    for (const std::string type : {"f32", "u32"}) {
      text += KernelText(
          std::string("gather_") + component + "_" + type,
          std::string("@%on tld4.") + component + ".2d.v4." + type +
              ".f32 {%x, %y, %z, %w}, [%h, {%x, %y}]; st.v4.u32 [%o], {%x, %y, %z, %w};");
    }
  }
  launcher_->Load(text);
  for (u32 round = 0; round < 200; ++round) {
    const FormatCase& format = kFormats[Random(8)];
    MakeTexture(format, 1u << Random(3), 2);
    TextureRecord& record = *record_;
    for (Mode& mode : record.address_modes) mode = static_cast<Mode>(Random(4));
    record.normalised_coordinates = static_cast<u8>(Random(2));
    record.normalised_values = format.can_be_fraction ? static_cast<u8>(Random(2)) : 0;
    const Reference reference(record, format, 2);
    if (reference.IsFloat()) record.filter = static_cast<TextureFilter>(Random(2));
    for (u32 t = 0; t < kSamplers; ++t) {
      for (u32 axis = 0; axis < 2; ++axis) {
        const float n = static_cast<float>(record.extents[axis]);
        float x = (static_cast<float>(Random(6001)) / 1000 - 2.5f) * n;
        if (Random(4) == 0) x = static_cast<float>(Random(64)) / 4 - 4;
        words_[t][axis] = std::bit_cast<u32>(record.normalised_coordinates != 0 ? x / n : x);
      }
    }
    const u32 channel = Random(4);
    const executor::RunOutcome outcome = RunRecord(std::string("gather_") + "rgba"[channel] +
                                                   (reference.IsFloat() ? "_f32" : "_u32"));
    ASSERT_FALSE(outcome.fault) << outcome.fault->message;
    for (u32 t = 0; t < kSamplers; ++t) {
      if (!TakesPart(t)) continue;
      std::array<long double, 4> expected = {};
      if (channel < record.channels) {
        expected = reference.Gathered(
            {std::bit_cast<float>(words_[t][0]), std::bit_cast<float>(words_[t][1]), 0}, channel);
      }
      for (u32 i = 0; i < 4; ++i) {
        const u32 bits = reference.IsFloat() ? std::bit_cast<u32>(static_cast<float>(expected[i]))
                                             : static_cast<u32>(expected[i]);
        ASSERT_EQ(out_[t][i], bits) << "round " << round << " thread " << t << " texel " << i;
      }
    }
  }
}

TEST_P(Textures, EveryModeFollowsTheGuide) {
  launcher_->Load(AllSamples());
  for (u32 round = 0; round < 600; ++round) {
    const u32 dimensions = 1 + round % 3;
    const FormatCase& format = kFormats[Random(8)];
    const u32 channels = 1u << Random(3);
    MakeTexture(format, channels, dimensions);
    TextureRecord& record = *record_;
    for (Mode& mode : record.address_modes) mode = static_cast<Mode>(Random(4));
    record.normalised_coordinates = static_cast<u8>(Random(2));
    record.normalised_values = format.can_be_fraction ? static_cast<u8>(Random(2)) : 0;
    const Reference reference(record, format, dimensions);
    for (u32& border : record.border) {
      border =
          reference.IsFloat() ? std::bit_cast<u32>(static_cast<float>(Random(100))) : Random(99);
    }
    if (reference.IsFloat()) record.filter = static_cast<TextureFilter>(Random(2));
    for (u32 t = 0; t < kSamplers; ++t) {
      for (u32 axis = 0; axis < 3; ++axis) {
        const float n = static_cast<float>(record.extents[axis]);
        float x = (static_cast<float>(Random(6001)) / 1000 - 2.5f) * n;
        if (Random(4) == 0) x = static_cast<float>(Random(64)) / 4 - 4;  // Borders and centres.
        if (record.normalised_coordinates != 0) x /= n;
        words_[t][axis] = std::bit_cast<u32>(x);
      }
    }
    const std::string kernel = "sample" + std::to_string(dimensions) +
                               (!reference.IsFloat() ? "_of_integers"
                                : round % 2          ? "_level"
                                                     : "");
    const executor::RunOutcome outcome = RunRecord(kernel);
    ASSERT_FALSE(outcome.fault) << outcome.fault->message;
    for (u32 t = 0; t < kSamplers; ++t) {
      const std::array<float, 3> at = {std::bit_cast<float>(words_[t][0]),
                                       std::bit_cast<float>(words_[t][1]),
                                       std::bit_cast<float>(words_[t][2])};
      for (u32 c = 0; c < 4; ++c) {
        if (!TakesPart(t)) {
          ASSERT_EQ(out_[t][c], words_[t][c]) << kernel << " thread " << t;
          continue;
        }
        const bool is_linear = record.filter == TextureFilter::kLinear;
        const long double wanted = c >= channels ? 0
                                   : is_linear   ? reference.Linear(at, c)
                                                 : reference.Point(at, c);
        const std::string what = kernel + " round " + std::to_string(round) + " thread " +
                                 std::to_string(t) + " channel " + std::to_string(c);
        if (!reference.IsFloat()) {
          ASSERT_EQ(out_[t][c], static_cast<u32>(wanted)) << what;
        } else if (!is_linear) {
          ASSERT_EQ(std::bit_cast<float>(out_[t][c]), static_cast<float>(wanted)) << what;
        } else {
          ASSERT_NEAR(std::bit_cast<float>(out_[t][c]), static_cast<double>(wanted),
                      1e-6 * std::max(1.0, std::abs(static_cast<double>(wanted))))
              << what;
        }
      }
    }
  }
}

// tex1Dfetch: no filter, no normalised coordinate, no wrapping.
TEST_P(Textures, IntegerCoordinatesAreTexelIndices) {
  launcher_->Load(AllSamples());
  for (u32 round = 0; round < 240; ++round) {
    const u32 dimensions = 1 + round % 3;
    const FormatCase& format = kFormats[round % 8];
    MakeTexture(format, 1u << Random(3), dimensions);
    for (Mode& mode : record_->address_modes) mode = Random(2) ? Mode::kBorder : Mode::kClamp;
    // The filter must be ignored, because the coordinates are integers.
    if (format.is_float) record_->filter = static_cast<TextureFilter>(Random(2));
    if (format.can_be_fraction) record_->normalised_values = static_cast<u8>(Random(2));
    for (u32& border : record_->border) border = Random(1000);
    const Reference reference(*record_, format, dimensions);
    record_->normalised_coordinates = static_cast<u8>(Random(2));
    for (u32 t = 0; t < kSamplers; ++t) {
      for (u32& word : words_[t]) word = Random(30) - 8;
      if (t == 3) words_[t][0] = 0x80000000;
      if (t == 4) words_[t][0] = 0x7fffffff;
    }
    const executor::RunOutcome outcome =
        RunRecord("sample" + std::to_string(dimensions) + "_at_integers");
    ASSERT_FALSE(outcome.fault) << outcome.fault->message;
    for (u32 t = 0; t < kSamplers; ++t) {
      if (!TakesPart(t)) continue;
      const std::array<s32, 3> at = {static_cast<s32>(words_[t][0]), static_cast<s32>(words_[t][1]),
                                     static_cast<s32>(words_[t][2])};
      for (u32 c = 0; c < record_->channels; ++c) {
        ASSERT_EQ(out_[t][c], reference.Bits(at, c)) << "round " << round << " thread " << t;
      }
    }
  }
}

// The example of the CUDA C++ Programming Guide: a table of four values, looked up and
// interpolated.
TEST_P(Textures, InterpolatesATableOfFourValues) {
  launcher_->Load(AllSamples());
  *record_ = {};
  const float table[4] = {10, 20, 40, 80};
  std::memcpy(texels_, table, sizeof table);
  record_->address = reinterpret_cast<u64>(texels_);
  record_->format = TexelFormat::kFloat32;
  record_->filter = TextureFilter::kLinear;
  for (u32& extent : record_->extents) extent = 1;
  record_->extents[0] = 4;
  for (Mode& mode : record_->address_modes) mode = Mode::kClamp;
  const auto sample = [&](float x) {
    words_[0][0] = std::bit_cast<u32>(x);
    EXPECT_FALSE(RunRecord("sample1").fault);
    return std::bit_cast<float>(out_[0][0]);
  };
  EXPECT_EQ(sample(0.5f), 10);
  EXPECT_EQ(sample(1), 15);
  EXPECT_EQ(sample(3.25f), 70);
  EXPECT_EQ(sample(-7), 10);
  EXPECT_EQ(sample(1e30f), 80);
  // A weight has 8 fraction bits, so 1/512 beyond a centre is half a unit, which is rounded up.
  EXPECT_EQ(sample(0.5f + 1.0f / 512), 10 + 10.0f / 256);
  EXPECT_EQ(sample(0.5f + 0.9f / 512), 10);
  EXPECT_EQ(sample(std::nanf("")), 10);
  record_->normalised_coordinates = 1;
  for (Mode& mode : record_->address_modes) mode = Mode::kWrap;
  EXPECT_EQ(sample(0), 45);  // Between the last and the first.
  EXPECT_EQ(sample(1), 45);
  EXPECT_EQ(sample(-0.125f), 80);
  EXPECT_EQ(sample(-1e-30f), 45);
  for (Mode& mode : record_->address_modes) mode = Mode::kMirror;
  EXPECT_EQ(sample(0), 10);
  EXPECT_EQ(sample(1), 80);
  EXPECT_EQ(sample(1.125f), 80);
  EXPECT_EQ(sample(-0.375f), 20);
}

// An infinity next to the sampled texel must not affect it.
TEST_P(Textures, TexelsOfWeightZeroHaveNoEffect) {
  launcher_->Load(AllSamples());
  *record_ = {};
  const float table[2] = {3, std::numeric_limits<float>::infinity()};
  std::memcpy(texels_, table, sizeof table);
  record_->address = reinterpret_cast<u64>(texels_);
  record_->format = TexelFormat::kFloat32;
  record_->filter = TextureFilter::kLinear;
  for (u32& extent : record_->extents) extent = 1;
  record_->extents[0] = 2;
  words_[0][0] = std::bit_cast<u32>(0.5f);
  ASSERT_FALSE(RunRecord("sample1").fault);
  EXPECT_EQ(std::bit_cast<float>(out_[0][0]), 3);
}

// The handles of a warp may differ.
TEST_P(Textures, ThreadsAndInstructionsUseDifferentTextures) {
  launcher_->Load(AllSamples());
  TextureRecord* const records = launcher_->Allocate<TextureRecord>(kSamplers);
  for (u32 t = 0; t < kSamplers; ++t) {
    records[t] = {};
    records[t].address = reinterpret_cast<u64>(texels_) + t;
    records[t].format = TexelFormat::kUint8;
    for (u32& extent : records[t].extents) extent = 1;
    texels_[t] = static_cast<u8>(200 - t);
    handles_[t] = reinterpret_cast<u64>(&records[t]);
  }
  ASSERT_FALSE(Run("sample2_of_integers").fault);
  for (u32 t = 0; t < kSamplers; ++t) {
    if (!TakesPart(t)) continue;
    EXPECT_EQ(out_[t][0], 200 - t);
  }
}

// ---- surfaces

std::string SurfaceText(bool load, u32 dimensions, u32 bytes, u32 elements,
                        const std::string& bounds) {
  const std::string names[4] = {bytes == 8 ? "%d" : bytes == 4 ? "%v" : "%h"};
  std::string values = "{";
  for (u32 i = 0; i < elements; ++i) values += (i ? ", " : "") + names[0] + std::to_string(i);
  values += "}";
  const std::string form = "b." + std::to_string(dimensions) + "d." +
                           (elements == 1 ? "" : "v" + std::to_string(elements) + ".") + "b" +
                           std::to_string(bytes * 8) + "." + bounds;
  const std::string type = (elements == 1 ? "" : ".v" + std::to_string(elements)) + ".b" +
                           std::to_string(bytes * 8) + " ";
  if (load) {
    return "@%on suld." + form + " " + values + ", " + PlaceText(dimensions) + "; @%on st" + type +
           "[%o], " + values + ";";
  }
  return "ld" + type + values + ", [%o]; @%on sust." + form + " " + PlaceText(dimensions) + ", " +
         values + ";";
}

struct SurfaceForm {
  u32 dimensions, bytes, elements;
  const char* bounds;
  std::string Name(bool load) const {
    return (load ? "load" : "store") + std::to_string(dimensions) + "_" + std::to_string(bytes) +
           "x" + std::to_string(elements) + "_" + bounds;
  }
};
std::vector<SurfaceForm> SurfaceForms() {
  std::vector<SurfaceForm> forms;
  for (const char* const bounds : {"trap", "clamp", "zero"}) {
    for (u32 d = 1; d <= 3; ++d) {
      for (const u32 bytes : {1u, 2u, 4u, 8u}) {
        for (const u32 elements : {1u, 2u, 4u}) {
          if (bytes * elements <= 16) forms.push_back({d, bytes, elements, bounds});
        }
      }
    }
  }
  return forms;
}
std::string AllSurfaces() {
  std::string text = kTextureHeader;
  for (const SurfaceForm& f : SurfaceForms()) {
    for (const bool load : {true, false}) {
      text +=
          KernelText(f.Name(load), SurfaceText(load, f.dimensions, f.bytes, f.elements, f.bounds));
    }
  }
  return text;
}

TEST_P(Textures, EverySurfaceFormAddressesBytes) {
  launcher_->Load(AllSurfaces());
  for (const SurfaceForm& form : SurfaceForms()) {
    for (const bool load : {true, false}) {
      const u32 bytes = form.bytes * form.elements;
      MakeTexture({TexelFormat::kUint8, 1, false, false}, 1, form.dimensions);
      // Chooses texels of the size of the access, if the channels allow that.
      record_->format = bytes % 4 == 0   ? TexelFormat::kUint32
                        : bytes % 2 == 0 ? TexelFormat::kUint16
                                         : TexelFormat::kUint8;
      record_->channels = static_cast<u8>(bytes % 4 == 0 ? bytes / 4 : 1);
      record_->row_bytes = record_->extents[0] * bytes + bytes;
      record_->slice_bytes = u64{record_->row_bytes} * (record_->extents[1] + 1);
      record_->address = reinterpret_cast<u64>(texels_) + u64{bytes} * 3;
      const std::vector<u8> before(texels_, texels_ + kTexelBytes);
      const bool may_leave = std::string(form.bounds) != "trap";
      for (u32 t = 0; t < kSamplers; ++t) {
        for (u32 axis = 0; axis < 3; ++axis) {
          const u32 extent = record_->extents[axis];
          const s32 at = may_leave ? static_cast<s32>(Random(extent + 6)) - 3
                                   : static_cast<s32>(Random(extent));
          words_[t][axis] = static_cast<u32>(axis == 0 ? at * static_cast<s32>(bytes) : at);
        }
        for (u32& word : out_[t]) word = static_cast<u32>(random_());
      }
      const std::vector<Four> given(out_, out_ + kSamplers);
      const executor::RunOutcome outcome = RunRecord(form.Name(load));
      ASSERT_FALSE(outcome.fault) << outcome.fault->message;

      std::vector<u8> wanted = before;
      for (u32 t = 0; t < kSamplers; ++t) {
        if (!TakesPart(t)) continue;
        u64 offset = u64{bytes} * 3;
        bool is_outside = false;
        for (u32 axis = 0; axis < form.dimensions; ++axis) {
          const s64 step = axis == 0 ? bytes : 1;
          const s64 least = 0, most = (s64{record_->extents[axis]} - 1) * step;
          const s64 at = static_cast<s32>(words_[t][axis]);
          is_outside |= at < least || at > most;
          const u64 pitch = axis == 0 ? 1 : axis == 1 ? record_->row_bytes : record_->slice_bytes;
          offset += static_cast<u64>(std::clamp(at, least, most)) * pitch;
        }
        const bool is_nothing = is_outside && std::string(form.bounds) == "zero";
        if (load) {
          std::vector<u8> read(bytes, 0);
          if (!is_nothing)
            read.assign(before.begin() + s64(offset), before.begin() + s64(offset + bytes));
          ASSERT_EQ(std::memcmp(&out_[t], read.data(), bytes), 0) << form.Name(load) << " " << t;
        } else if (!is_nothing) {
          std::memcpy(wanted.data() + offset, &given[t], bytes);
        }
      }
      ASSERT_EQ(std::memcmp(texels_, wanted.data(), kTexelBytes), 0) << form.Name(load);
    }
  }
}

TEST_P(Textures, SurfacesTrapOutside) {
  launcher_->Load(AllSurfaces());
  MakeTexture({TexelFormat::kUint32, 4, false, false}, 1, 3);
  for (u32 t = 0; t < kSamplers; ++t) words_[t] = {0, 0, 0, 0};
  words_[33] = {0, 0, record_->extents[2], 0};
  for (const char* const kernel : {"load3_4x1_trap", "store3_4x1_trap"}) {
    const executor::RunOutcome outcome = RunRecord(kernel);
    ASSERT_TRUE(outcome.fault) << kernel;
    EXPECT_EQ(outcome.fault->kind, Kind::kSurfaceCoordinate);
    EXPECT_EQ(outcome.fault->thread.x, 33u);
    EXPECT_THAT(outcome.fault->message,
                HasSubstr("coordinate " + std::to_string(record_->extents[2]) +
                          " along z is outside of the surface"));
  }
  // Clamping needs a nearest texel, which does not exist if the surface has no texel at all.
  record_->extents[0] = 1;
  words_[33] = {0, 0, 0, 0};
  EXPECT_TRUE(RunRecord("load3_8x2_clamp").fault);
  EXPECT_FALSE(RunRecord("load3_8x2_zero").fault);
}

// ---- hostile clients

class WildTextures : public Textures {
 protected:
  void SetUp() override {
    Textures::SetUp();
    launcher_->Load(AllSamples() + KernelText("store", SurfaceText(false, 2, 4, 1, "trap")) +
                    KernelText("load", SurfaceText(true, 2, 4, 1, "trap")));
    for (u32 t = 0; t < kSamplers; ++t) words_[t] = {};
    MakeGood();
  }
  void MakeGood() {
    *record_ = {};
    record_->address = reinterpret_cast<u64>(texels_);
    record_->format = TexelFormat::kFloat32;
    for (u32& extent : record_->extents) extent = 4;
    record_->row_bytes = 16;
    record_->slice_bytes = 64;
  }
  void ExpectFault(Kind kind, const std::string& says) {
    for (const char* const kernel :
         {"sample1", "sample2", "sample3_of_integers", "sample2_at_integers", "store", "load"}) {
      const std::vector<u8> before(texels_, texels_ + kTexelBytes);
      const executor::RunOutcome outcome = Run(kernel);
      ASSERT_TRUE(outcome.fault) << kernel << ": " << says;
      EXPECT_EQ(outcome.fault->kind, kind) << outcome.fault->message;
      EXPECT_EQ(outcome.fault->thread.x, 17u);
      EXPECT_THAT(outcome.fault->message, HasSubstr(says));
      EXPECT_EQ(std::memcmp(texels_, before.data(), kTexelBytes), 0)
          << "lanes before the faulting one wrote";
    }
  }
  // Expects a fault of thread 17, which uses this handle; the other threads use a valid one.
  void ExpectWild(u64 handle, Kind kind, const std::string& says) {
    std::fill_n(handles_, kSamplers, reinterpret_cast<u64>(record_));
    handles_[17] = handle;
    ExpectFault(kind, says);
  }
};

TEST_P(WildTextures, InvalidHandleFaultsItsThreadAndLine) {
  const u64 base = launcher_->base();
  ExpectWild(0, Kind::kGlobalAddress, "64 bytes at 0x0 are outside the client's");
  ExpectWild(~u64{0}, Kind::kGlobalAddress, "outside the client's");
  ExpectWild(base - 64, Kind::kGlobalAddress, "64 bytes before its start");
  ExpectWild(base + kMemory - 32, Kind::kGlobalAddress, "too far");
  ExpectWild(base + kMemory, Kind::kGlobalAddress, "0 bytes past its end");
  ExpectWild(0x4000000000000000, Kind::kGlobalAddress, "outside the client's");  // Shared memory.
  ExpectWild(reinterpret_cast<u64>(record_) + 8, Kind::kMisaligned, "not aligned");
  ExpectWild(reinterpret_cast<u64>(texels_), Kind::kTextureRecord,
             "is no valid texture or surface");
  handles_[17] = 0;
  const executor::RunOutcome outcome = Run("sample1");
  ASSERT_TRUE(outcome.fault);
  EXPECT_EQ(outcome.fault->line, 3 + kLinesBefore + 1);
  EXPECT_EQ(outcome.fault->instruction, "tex.1d.v4.f32.f32");
}

TEST_P(WildTextures, RecordWithInvalidFieldIsAFault) {
  const auto expect_none = [&](auto change) {
    TextureRecord* const other = launcher_->Allocate<TextureRecord>(1);
    *other = *record_;
    change(*other);
    ExpectWild(reinterpret_cast<u64>(other), Kind::kTextureRecord, "is no valid texture");
  };
  expect_none([](TextureRecord& r) { ++r.magic; });
  expect_none([](TextureRecord& r) { r.format = {}; });
  expect_none([](TextureRecord& r) { r.format = static_cast<TexelFormat>(9); });
  for (const int channels : {0, 3, 5, 8, 255}) {
    expect_none([&](TextureRecord& r) { r.channels = static_cast<u8>(channels); });
  }
  for (int axis = 0; axis < 3; ++axis) {
    expect_none([&](TextureRecord& r) { r.extents[axis] = 0; });
    expect_none([&](TextureRecord& r) { r.address_modes[axis] = static_cast<Mode>(4); });
  }
  expect_none([](TextureRecord& r) { r.filter = static_cast<TextureFilter>(2); });
  expect_none([](TextureRecord& r) { r.normalised_coordinates = 2; });
  // Float formats cannot be normalised.
  expect_none([](TextureRecord& r) { r.normalised_values = 1; });
  expect_none([](TextureRecord& r) {
    r.format = TexelFormat::kUint8;
    r.filter = TextureFilter::kLinear;  // Integer formats cannot be filtered.
  });
}

TEST_P(WildTextures, TexelsOutsideClientMemoryAreAFault) {
  const auto expect_outside = [&](auto change, Kind kind = Kind::kGlobalAddress) {
    TextureRecord* const other = launcher_->Allocate<TextureRecord>(1);
    *other = *record_;
    change(*other);
    ExpectWild(reinterpret_cast<u64>(other), kind,
               kind == Kind::kMisaligned ? "not aligned" : "outside the client's");
  };
  alignas(64) const float secret[16] = {};
  expect_outside([&](TextureRecord& r) { r.address = reinterpret_cast<u64>(secret); });
  expect_outside([&](TextureRecord& r) { r.address = launcher_->base() + kMemory; });
  expect_outside([&](TextureRecord& r) { r.address = launcher_->base() - 4; });
  expect_outside([&](TextureRecord& r) { r.address = 0x4000000000000000; });
  expect_outside([&](TextureRecord& r) { r.address += 2; }, Kind::kMisaligned);
}

// With extents and pitches of any size, an access is a fault exactly if its texel is outside the
// client's memory.
TEST_P(WildTextures, FaultsExactlyIfTheTexelIsOutside) {
  const u64 base = launcher_->base();
  u32 faults = 0, reads = 0;
  for (u32 round = 0; round < 4000; ++round) {
    const auto any = [&] { return random_() >> (round % 4 == 0 ? 52 + Random(12) : Random(64)); };
    TextureRecord& r = *record_;
    r.address = round % 2 == 0 ? base + random_() % kMemory : base + kMemory - 4096 + Random(8192);
    r.address &= ~u64{15};
    r.row_bytes = static_cast<u32>(any()) & ~15u;
    r.slice_bytes = any() & ~u64{15};
    for (u32& extent : r.extents) extent = std::max(static_cast<u32>(any()), 1u);
    r.format = TexelFormat::kUint32;
    r.channels = static_cast<u8>(1u << Random(3));
    for (Mode& mode : r.address_modes) mode = Mode::kClamp;
    u64 at = r.address;
    const u64 pitches[3] = {u64{4} * r.channels, r.row_bytes, r.slice_bytes};
    for (u32 t = 0; t < kSamplers; ++t) words_[t] = {};
    for (u32 axis = 0; axis < 3; ++axis) {
      const u32 index = static_cast<u32>(any()) & 0x7fffffff;
      words_[5][axis] = index;
      at += std::min(index, r.extents[axis] - 1) * pitches[axis];
    }
    // The other threads read the first texel.
    const u64 bytes = pitches[0];
    const auto is_inside = [&](u64 from) { return from >= base && from <= base + kMemory - bytes; };
    const bool is_fine = is_inside(at) && is_inside(r.address);
    const TextureRecord kept = r;
    const executor::RunOutcome outcome = RunRecord("sample3_at_integers");
    ASSERT_EQ(outcome.fault.has_value(), !is_fine) << "round " << round;
    if (is_fine) {
      u32 wanted = 0;
      std::memcpy(&wanted, reinterpret_cast<const void*>(at), 4);
      const bool may_have_changed =
          at + 4 > reinterpret_cast<u64>(out_) && at < reinterpret_cast<u64>(out_ + kSamplers);
      if (!may_have_changed) {
        ASSERT_EQ(out_[5][0], wanted);
      }
    }
    (is_fine ? reads : faults) += 1;
    *record_ = kept;
  }
  EXPECT_GT(faults, 100u);
  EXPECT_GT(reads, 100u);
}

// If the record changes while the kernel samples, the kernel may use any mixture of the two
// versions: it reads the resulting texel if that is in the client's memory, and otherwise faults.
TEST_P(WildTextures, ChangingRecordNeverReachesForeignMemory) {
  const std::string body =
      "  mov.u32 %m, 4000;\nAGAIN:\n"
      "  tex.3d.v4.u32.s32 {%v0, %v1, %v2, %v3}, [%h, {%x, %y, %z, %z}];\n"
      "  setp.eq.u32 %on, %v0, 1; @!%on st.u32 [%o], %v0;\n"
      "  sub.u32 %m, %m, 1; setp.ne.u32 %on, %m, 0; @%on bra AGAIN;";
  launcher_->Load(kTextureHeader + KernelText("spin", body));
  // Every mixture of the two leads either to a 1 or outside the client's memory.
  constexpr u32 kOnes = 64 << 10;
  u32* const ones = launcher_->Allocate<u32>(kOnes);
  std::fill_n(ones, kOnes, 1u);
  TextureRecord good = *record_, bad = *record_;
  good.address = reinterpret_cast<u64>(ones + kOnes / 2);
  good.format = bad.format = TexelFormat::kUint32;
  bad.address = launcher_->base() + (u64{1} << 40);
  bad.row_bytes = 0xfffffff0;
  bad.slice_bytes = ~u64{15};
  for (u32& extent : bad.extents) extent = 0xffffffff;
  bad.channels = 4;
  *record_ = good;
  for (u32 t = 0; t < kSamplers; ++t) words_[t] = {t * 50, t * 10, t * 10, 0};

  const std::jthread flipper([&](const std::stop_token& stop) {
    auto* const words = reinterpret_cast<u64*>(record_);
    for (u32 turn = 0; !stop.stop_requested(); ++turn) {
      u64 from[8];
      std::memcpy(from, turn % 2 == 0 ? &bad : &good, sizeof from);
      for (u32 i = 0; i < 8; ++i) std::atomic_ref(words[i]).store(from[i]);
    }
  });
  u32 faults = 0;
  for (u32 round = 0; round < 30 || faults == 0; ++round) {
    for (u32 t = 0; t < kSamplers; ++t) out_[t][0] = 1;
    const executor::RunOutcome outcome = RunRecord("spin");
    if (outcome.fault) {
      ++faults;
      EXPECT_EQ(outcome.fault->kind, Kind::kGlobalAddress) << outcome.fault->message;
    }
    for (u32 t = 0; t < kSamplers; ++t) ASSERT_EQ(out_[t][0], 1u) << "read elsewhere";
  }
}

GPUSHARED_INSTANTIATE_FLAVOURS(Textures);
GPUSHARED_INSTANTIATE_FLAVOURS(WildTextures);

}  // namespace
}  // namespace gpushared::testing

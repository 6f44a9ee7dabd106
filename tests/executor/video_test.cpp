// SPDX-License-Identifier: Apache-2.0
// Video instructions against the pseudo-code of the PTX ISA: random forms over edge values.
#include <random>
#include <string>

#include "tests/executor/op_harness.h"
#include "tests/support/video_case.h"

namespace gpushared::testing {
namespace {

class VideoOps : public PerFlavour {};

TEST_P(VideoOps, RandomFormsAgreeWithThePseudoCode) {
  std::mt19937 random(20261127);
  const u32 forms = GetSweep(4000);
  for (u32 i = 0; i < forms && !HasFailure(); ++i) {
    constexpr std::array<u32, 3> kSizes = {1, 2, 4};
    const VideoCase video(i % VideoCase::kOpcodes.size(), kSizes[i / 10 % 3], random);
    Form form;
    form.spelling = video.Text("d", "a", "b", "c");
    form.result = "b32";
    form.sources = {"b32", "b32", "b32"};
    form.code = "$g " + video.Text("$d", "$a", "$b", "$c");
    form.reference =
        Scalar<u32, u32, u32>([&](u32 a, u32 b, u32 c) { return video.Value(a, b, c); });
    std::vector<Inputs> tuples = EdgeTuples(form.sources);
    // Edge values of words rarely contain edge values of bytes.
    for (u32 k = 0; k < 96; ++k) {
      tuples[k * 7] = {random() & 0x81ff80ffu, random() | 0x807f00ffu, random() & 63, 0};
    }
    tuples.resize(768);
    CheckForm(GetParam(), form, tuples);
  }
}

GPUSHARED_INSTANTIATE_FLAVOURS(VideoOps);

}  // namespace
}  // namespace gpushared::testing

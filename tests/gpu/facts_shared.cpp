// SPDX-License-Identifier: Apache-2.0
// Preemptible forms keep a word at the end of a block's dynamic shared memory, and contained forms
// clamp addresses to that end. Both compute the end as the address of the extern array plus
// %dynamic_smem_size. These questions verify that sum.
#include <array>
#include <cstdint>
#include <cstdio>
#include <string>

#include "tests/gpu/facts.h"

namespace gpushared::testing {
namespace {

using namespace device::cuda;  // NOLINT(google-build-using-namespace): this file is about it.

class SharedFacts : public Facts {
 public:
  using Facts::Facts;

  void Sizes() {
    ForEach([this](const Shape& shape, const std::string& what) {
      const Answer answer = Run(shape, 0);
      if (answer.code != Code::kSuccess)
        throw std::runtime_error(driver_->Explain("cuStreamSynchronize", answer.code));
      Row(what + ": reported", answer.reported, "bytes", Range(answer));
      Rule(what + ": no less than was asked for", answer.reported >= shape.bytes);
    });
  }

  void LastBytes() {
    constexpr unsigned kStored = 77;
    ForEach([this](const Shape& shape, const std::string& what) {
      const std::string row = what + ": its last byte can be stored to";
      if (Run(shape, 0).reported == 0) return NoRow(row, "-", "none is reported");
      const Answer answer = Run(shape, kStored);
      Rule(row, answer.code == Code::kSuccess && answer.read == kStored,
           driver_->Explain("cuStreamSynchronize", answer.code));
      if (!EndsContext(answer.code)) return;
      SetDead();
      throw std::runtime_error("the context is dead: further sizes were not asked for");
    });
  }

  template <unsigned kAddress>
  void StoreTo() {
    // The first KiB is reserved for the system on Hopper.
    constexpr unsigned kDynamicBytes = 4096;
    const Function kernel = FactKernel("store_shared");
    unsigned address = kAddress;
    std::array<void*, 2> parameters = {&out_, &address};
    std::array<std::uint32_t, 2> answer{};
    Do(driver_->MemsetD32Async, out_, 0u, answer.size(), high_);
    Do(driver_->LaunchKernel, kernel, 1u, 1u, 1u, 1u, 1u, 1u, kDynamicBytes, high_,
       parameters.data(), nullptr);
    const Code code = driver_->StreamSynchronize(high_);
    char what[64];
    std::snprintf(what, sizeof what, "a store to shared address 0x%x", kAddress);
    CodeRow(what, "cuStreamSynchronize", code);
    if (code != Code::kSuccess) return SetDead();
    Do(driver_->MemcpyDtoHAsync, answer.data(), out_, sizeof answer, high_);
    // Checks that other kernels still run correctly.
    for (int i = 0; i < 100; ++i) Launch(occupy_, WaveBlocks(), 32, 10, high_);
    const Code later = driver_->StreamSynchronize(high_);
    CodeRow(std::string(what) + ": kernels that follow it", "cuStreamSynchronize", later);
    Row(std::string(what) + ": the block's own memory begins at", answer[0], "bytes",
        answer[1] == 1 ? "" : "the kernel did not come to its end");
  }

 private:
  struct Shape {
    const char* kernel = "";
    unsigned bytes = 0;
  };
  struct Answer {
    std::uint32_t begin = 0, reported = 0, total = 0, read = 0;
    Code code = Code::kSuccess;
  };

  template <typename Action>
  void ForEach(const Action& action) {
    struct Kind {
      const char* kernel;
      const char* text;
    };
    for (const Kind& kind :
         {Kind{"shared_alone", ""}, Kind{"shared_after_static", " after 1,000 static bytes"}}) {
      for (const unsigned bytes : {0u, 16u, 1'000u, 200'000u}) {
        const std::string what =
            std::to_string(bytes) + " bytes of dynamic shared memory" + kind.text;
        const int most = Attribute(DeviceAttribute::kSharedBytesPerBlockOptIn);
        if (bytes + 1'024 > static_cast<unsigned>(most)) {
          NoRow(what, "bytes", "this GPU has " + std::to_string(most));
        } else {
          action(Shape{.kernel = kind.kernel, .bytes = bytes}, what);
        }
      }
    }
  }

  // Dynamic shared memory that a kernel gets without the attribute, next to its static memory.
  static constexpr unsigned kWithoutOptIn = 40'000;

  // Runs the kernel, which stores `stores` to the last byte unless it is 0.
  Answer Run(const Shape& shape, unsigned stores) {
    const Function kernel = FactKernel(shape.kernel);
    if (shape.bytes > kWithoutOptIn) {
      Do(driver_->FuncSetAttribute, kernel, FunctionAttribute::kDynamicSharedBytesMax,
         static_cast<int>(shape.bytes));
    }
    std::array<void*, 2> parameters = {&out_, &stores};
    std::array<std::uint32_t, 4> words{};
    Do(driver_->MemsetD32Async, out_, 0u, words.size(), high_);
    Do(driver_->LaunchKernel, kernel, 1u, 1u, 1u, 1u, 1u, 1u, shape.bytes, high_, parameters.data(),
       nullptr);
    const Code code = driver_->StreamSynchronize(high_);
    if (code != Code::kSuccess) return {.code = code};
    Do(driver_->MemcpyDtoHAsync, words.data(), out_, sizeof words, high_);
    Do(driver_->StreamSynchronize, high_);
    return {.begin = words[0], .reported = words[1], .total = words[2], .read = words[3]};
  }

  static std::string Range(const Answer& answer) {
    char text[96];
    std::snprintf(text, sizeof text, "from 0x%x to 0x%x; %%total_smem_size is %u", answer.begin,
                  answer.begin + answer.reported, answer.total);
    return text;
  }
};

}  // namespace

std::vector<Question> SharedQuestions() {
  return {GetQuestion("dynamic shared memory", &SharedFacts::Sizes),
          GetQuestion("the last byte of dynamic shared memory", &SharedFacts::LastBytes),
          GetQuestion("a store to shared address 0", &SharedFacts::StoreTo<0>),
          GetQuestion("a store to shared address 0x3fc", &SharedFacts::StoreTo<0x3fc>)};
}

}  // namespace gpushared::testing

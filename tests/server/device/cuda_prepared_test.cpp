// SPDX-License-Identifier: Apache-2.0
// Another process's description of a GPU module is untrusted input: errors in it are found before
// the driver or a compiler sees any of it.
#include "server/device/cuda/cuda_prepared.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "server/device/cuda/cuda_module.h"
#include "server/device/prepare.h"
#include "tests/server/device/cuda_device_fixture.h"
#include "tests/support/plain_compiler.h"

namespace gpushared::device::cuda {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

constexpr std::string_view kElfMagic("\x7f\x45LF", 4);
constexpr std::string_view kFatbinMagic("\x50\xed\x55\xba\x01\x00", 6);

ModuleRecipe GetRecipe(Isolation isolation) {
  return {.form = ModuleRecipe::Form::kForDriver,
          .passes = {.isolation = isolation, .claims = true},
          .range_bytes = std::uint64_t{4} << 30};
}

Bytes Prepare(const ModuleRecipe& recipe, std::string_view image = kStorePtx) {
  Bytes flat;
  FlatWriter to([&](auto piece) { flat.insert(flat.end(), piece.begin(), piece.end()); });
  const Status status = PrepareModule(recipe, std::as_bytes(std::span(image)), to);
  EXPECT_TRUE(status.ok()) << status.message();
  to.Flush();
  return flat;
}

enum class Which { kFirst, kLast };

// Overwrites the first or the last occurrence of `what`.
void Forge(Bytes& flat, std::string_view what, std::string_view instead,
           Which which = Which::kFirst) {
  const auto bytes = std::as_bytes(std::span(what));
  const auto found = which == Which::kFirst ? std::ranges::search(flat, bytes)
                                            : std::ranges::find_end(flat, bytes);
  ASSERT_FALSE(found.empty()) << what;
  std::ranges::copy(std::as_bytes(std::span(instead)), found.begin());
}

StatusCode TakenAs(Isolation isolation, const Bytes& flat) {
  return TakePrepared(GetRecipe(isolation), flat).status().code();
}

TEST(CudaPrepared, AcceptsPreparedModule) {
  for (const Isolation isolation : {Isolation::kOff, Isolation::kFence, Isolation::kContain}) {
    const auto taken = TakePrepared(GetRecipe(isolation), Prepare(GetRecipe(isolation)));
    ASSERT_TRUE(taken.ok()) << taken.status().message();
    const auto& module = static_cast<const CudaPrepared&>(**taken);
    EXPECT_EQ(module.kernel_infos().size(), 2U);
    EXPECT_EQ(module.is_fenced(), isolation != Isolation::kOff);
    EXPECT_EQ(module.is_contained(), isolation == Isolation::kContain);
    EXPECT_NE(module.claims(), nullptr);
    EXPECT_GT(module.bytes(), kStorePtx.size());
    // Variables of fenced modules are in the client's range; the driver places those of others.
    EXPECT_EQ(module.range_variable_bytes(), isolation == Isolation::kOff ? 0U : 5000U);
    EXPECT_EQ(module.driver_variable_bytes() != 0, isolation == Isolation::kOff);
  }
}

TEST(CudaPrepared, IsolatedClientsCodeMustBeText) {
  const Bytes good = Prepare(GetRecipe(Isolation::kFence));
  // The first text is the module's, the last one that of its preemptible forms.
  for (const Which which : {Which::kFirst, Which::kLast}) {
    for (const std::string_view instead :
         {kElfMagic, kFatbinMagic, std::string_view(".ver\0ion", 8)}) {
      Bytes flat = good;
      Forge(flat, ".version", instead, which);
      EXPECT_EQ(TakenAs(Isolation::kFence, flat), StatusCode::kInvalidArgument);
    }
  }
}

TEST(CudaPrepared, AddsKernelToTextWithoutKernels) {
  constexpr std::string_view kVariable =
      ".version 8.0\n.target sm_80\n.address_size 64\n.global .u32 lonely;\n";
  const ModuleRecipe recipe = GetRecipe(Isolation::kFence);
  const Bytes flat = Prepare(recipe, kVariable);
  const auto taken = TakePrepared(recipe, flat);
  ASSERT_TRUE(taken.ok()) << taken.status().message();
  EXPECT_TRUE(static_cast<const CudaPrepared&>(**taken).kernel_infos().empty());
  constexpr std::string_view kEntry = ".entry ";
  EXPECT_FALSE(std::ranges::search(flat, std::as_bytes(std::span(kEntry))).empty());
}

TEST(CudaPrepared, RejectsUnfencedModuleForFencedClient) {
  EXPECT_EQ(TakenAs(Isolation::kFence, Prepare(GetRecipe(Isolation::kOff))),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(TakenAs(Isolation::kContain, Prepare(GetRecipe(Isolation::kFence))),
            StatusCode::kInvalidArgument);
}

TEST(CudaPrepared, RejectsContainerWithWrongLength) {
  std::string image(kStorePtx);
  Bytes flat = Prepare(GetRecipe(Isolation::kOff), image);
  // A header of 16 bytes that announces 2^40 more bytes.
  std::string lie(kFatbinMagic);
  lie += std::string("\x10\x00\x00\x00\x00\x00\x00\x01\x00\x00", 10);
  Forge(flat, "\n.version", lie);
  EXPECT_EQ(TakenAs(Isolation::kOff, flat), StatusCode::kInvalidArgument);
}

TEST(CudaPrepared, RejectsTruncatedBytes) {
  const Bytes good = Prepare(GetRecipe(Isolation::kContain));
  for (std::size_t size = 0; size < good.size(); size += 5) {
    const Bytes cut(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_NE(TakenAs(Isolation::kContain, cut), StatusCode::kOk) << size;
  }
}

// Sanitizers report whether reads of the accepted bytes stay within bounds.
TEST(CudaPrepared, ChangedBytesAreRejectedOrHarmless) {
  const Bytes good = Prepare(GetRecipe(Isolation::kContain));
  std::mt19937 random(20261122);
  std::size_t taken = 0;
  for (int round = 0; round < 3000; ++round) {
    Bytes flat = good;
    for (std::uint32_t i = 1 + random() % 4; i != 0; --i) {
      flat[random() % flat.size()] = static_cast<std::byte>(random());
    }
    const auto module = TakePrepared(GetRecipe(Isolation::kContain), flat);
    if (!module.ok()) continue;
    ++taken;
    const auto& one = static_cast<const CudaPrepared&>(**module);
    EXPECT_EQ(one.InitialBytes(std::uint64_t{1} << 40).size(), one.range_variable_bytes());
  }
  EXPECT_GT(taken, 30U);
  EXPECT_LT(taken, 2950U);
}

class ForgedModule : public CudaDeviceTest {
 protected:
  // Places the module that was prepared for a space of this isolation, after `change`.
  Result<std::shared_ptr<const device::Module>> Place(Space& space, const auto& change) {
    Bytes flat = Prepare(space.recipe());
    change(flat);
    Result<std::shared_ptr<const PreparedModule>> taken = TakePrepared(space.recipe(), flat);
    if (taken.ok()) taken = space.CompileModule(*std::move(taken), true);
    if (!taken.ok()) return taken.status();
    return space.PlaceModule(*std::move(taken));
  }
  std::unique_ptr<Space> NewSpace() {
    Start({.make_compiler = [] { return std::make_unique<testing::PlainCompiler>(); }});
    auto space = gpu().CreateSpace({.quota_bytes = 64 * kMebibyte, .isolation = Isolation::kFence});
    EXPECT_TRUE(space.ok()) << space.status().ToString();
    return *std::move(space);
  }
};

TEST_F(ForgedModule, UnforgedModuleHasPreemptibleForms) {
  const auto space = NewSpace();
  const auto module = Place(*space, [](Bytes&) {});
  ASSERT_TRUE(module.ok()) << module.status().ToString();
  EXPECT_NE(static_cast<const CudaModule&>(**module).claimed(KernelNamed(**module, "store")),
            nullptr);
}

// A launch of such a form would write the client's parameters into a buffer that is too short.
TEST_F(ForgedModule, DropsFormWhoseClaimWordsOverlapParameters) {
  const auto space = NewSpace();
  const auto module = Place(*space, [](Bytes& flat) {
    // The name of a preemptible form, preceded by its length.
    const std::string_view name("\x05\0\0\0\0\0\0\0store", 13);
    const auto last = std::ranges::find_end(flat, std::as_bytes(std::span(name)));
    ASSERT_FALSE(last.empty());
    std::uint64_t length = 0;
    std::byte* const claimed = std::to_address(last.end());
    std::memcpy(&length, claimed, sizeof length);
    ASSERT_LT(length, 100U);
    std::memset(claimed + 8 + length, 0, 4);
  });
  ASSERT_TRUE(module.ok()) << module.status().ToString();
  EXPECT_EQ(static_cast<const CudaModule&>(**module).claimed(KernelNamed(**module, "store")),
            nullptr);
}

TEST_F(ForgedModule, RejectsModuleWithoutItsFenceConstant) {
  const auto space = NewSpace();
  const auto probe = TakePrepared(space->recipe(), Prepare(space->recipe()));
  ASSERT_TRUE(probe.ok());
  const std::string name = static_cast<const CudaPrepared&>(**probe).fence_constant();
  const auto module = Place(*space, [&](Bytes& flat) { Forge(flat, name, "x"); });
  EXPECT_FALSE(module.ok());
}

}  // namespace
}  // namespace gpushared::device::cuda

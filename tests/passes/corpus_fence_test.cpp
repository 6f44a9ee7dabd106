// SPDX-License-Identifier: Apache-2.0
// Runs each launch of the corpus's programs unmodified, fenced and contained; all must leave the
// same memory.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/ptx/text/parser.h"
#include "common/ptx/text/printer.h"
#include "server/ptx/passes/fence.h"
#include "tests/corpus/corpus.h"
#include "tests/corpus/runtime.h"
#include "tests/executor/find_program.h"

namespace gpushared::testing {
namespace {

namespace executor = device::executor;

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr std::uint64_t kRangeBytes = std::uint64_t{1} << 32;

// Words that the server shares with kernels.
struct Words {
  ptx::ContainControl control;
  ptx::ContainHostWords host;
};

// The result of a pass, with its variables in the runtime's memory.
struct Passed {
  ptx::Fenced fenced;
  executor::ModuleLayout layout;
  std::uint64_t base = 0;
  std::uint64_t moved_base = 0;
  std::unique_ptr<executor::ModuleImage> image;

  const std::string& Reason(const std::string& kernel) const {
    return std::ranges::find(fenced.kernels, kernel, &ptx::FencedKernel::kernel)->reason;
  }
};

class FencingBackend : public corpus::Backend {
 public:
  Status Run(const corpus::KernelLaunch& launch) override {
    const std::string& name = launch.program->info().name;
    Modules& passed = GetModules(*launch.module);
    const std::vector<std::byte> before = Memory();
    if (Status status = RunProgram(launch, *launch.program); !status.ok()) return status;
    const std::vector<std::byte> wanted = Memory();
    for (Passed* form : {&passed.fenced, &passed.contained}) {
      const bool contains = form == &passed.contained;
      if (const std::string& reason = form->Reason(name); !reason.empty()) {
        left_out_.insert((contains ? "not contained: " : "not fenced: ") + name + ": " + reason);
        continue;
      }
      const executor::Program* program = FindProgram(*form->image, name);
      std::ranges::copy(before, Span().begin());
      TakeVariables(*launch.module, *form);
      Status status = RunProgram(launch, *program);
      GiveVariables(*launch.module, *form);
      if (!status.ok()) return status;
      if (words_.host.fault.place != 0) {
        return {StatusCode::kInternal,
                ptx::DescribeFault(form->fenced.places, words_.host.fault).message};
      }
      if (!Equal(passed, wanted)) {
        return {StatusCode::kInternal, "kernel '" + name + (contains ? "' contained" : "' fenced") +
                                           " leaves other memory than it does as it is"};
      }
      ++runs_;
    }
    std::ranges::copy(wanted, Span().begin());
    return Status::Ok();
  }

  std::uint64_t runs() const { return runs_; }
  const std::set<std::string>& left_out() const { return left_out_; }

 private:
  struct Modules {
    Passed fenced, contained;
  };

  static std::span<std::byte> Span() { return corpus::Runtime::Instance().used_memory(); }
  static std::vector<std::byte> Memory() { return {Span().begin(), Span().end()}; }

  // Ignores variables that only the forms have.
  static bool Equal(const Modules& modules, const std::vector<std::byte>& wanted) {
    const std::span<std::byte> got = Span();
    const std::uint64_t start = reinterpret_cast<std::uint64_t>(got.data());
    std::vector<std::pair<std::uint64_t, std::uint64_t>> own;
    for (const Passed* form : {&modules.fenced, &modules.contained}) {
      own.emplace_back(form->base - start, form->layout.bytes);
      own.emplace_back(form->moved_base - start, form->fenced.variables.bytes);
    }
    std::ranges::sort(own);
    std::uint64_t at = 0;
    for (const auto& [begin, bytes] : own) {
      if (begin > at && std::memcmp(got.data() + at, wanted.data() + at, begin - at) != 0) {
        return false;
      }
      at = std::max(at, begin + bytes);
    }
    return std::memcmp(got.data() + at, wanted.data() + at, got.size() - at) == 0;
  }

  Status RunProgram(const corpus::KernelLaunch& launch, const executor::Program& program) {
    if (!program.info().unsupported.empty()) {
      return {StatusCode::kUnsupported, program.info().unsupported};
    }
    corpus::Runtime& runtime = corpus::Runtime::Instance();
    executor::Launch run;
    run.program = &program;
    run.grid = launch.grid;
    run.block = launch.block;
    run.dynamic_shared_bytes = launch.dynamic_shared_bytes;
    run.is_cooperative = launch.is_cooperative;
    run.parameters = launch.parameters;
    run.memory = runtime.window();
    run.memory.variables_base = reinterpret_cast<std::uint64_t>(&words_);
    run.memory.variables_bytes = sizeof words_;
    words_.host.fault = {};
    const std::uint64_t end = run.memory.base + corpus::Runtime::kMemoryBytes;
    words_.control = {.limit = end - ptx::kContainTailBytes};
    const std::atomic<bool> never{false};
    const executor::RunOutcome outcome =
        runtime.block_executor().Run(run, 0, launch.grid.Count(), never, never);
    if (outcome.end == executor::RunOutcome::End::kFinished) return Status::Ok();
    return {StatusCode::kKernelFault, outcome.fault ? outcome.fault->message : "it stopped"};
  }

  Modules& GetModules(const corpus::LoadedModule& loaded) {
    const auto [found, is_new] = modules_.try_emplace(&loaded);
    if (is_new) {
      Make(ptx::Fence(loaded.module, kRangeBytes), found->second.fenced);
      Make(ptx::Contain(loaded.module, kRangeBytes), found->second.contained);
    }
    return found->second;
  }

  void Make(Result<ptx::Fenced> fenced, Passed& passed) const {
    ASSERT_TRUE(fenced) << fenced.status().message();
    passed.fenced = *std::move(fenced);
    // Prints and parses the module again, because devices receive it as text.
    Result<ptx::Module> module = ptx::Parse(ptx::Print(passed.fenced.module));
    ASSERT_TRUE(module) << module.status().message();
    auto layout = executor::LayOutModule(*module);
    ASSERT_TRUE(layout) << layout.status().message();
    passed.layout = *std::move(layout);
    const auto allocate = [](std::uint64_t bytes) {
      return reinterpret_cast<std::uint64_t>(corpus::Runtime::Instance().Allocate(bytes + 256));
    };
    passed.base = allocate(passed.layout.bytes);
    passed.moved_base = allocate(passed.fenced.variables.bytes);
    auto image = executor::DecodeModule(*module, passed.layout, passed.base);
    ASSERT_TRUE(image) << image.status().message();
    passed.image = *std::move(image);
  }

  // Calls visit(original, own, bytes) with each variable's addresses in the original module and in
  // the form.
  template <typename Visit>
  static void ForEachVariable(const corpus::LoadedModule& loaded, const Passed& form, Visit visit) {
    const auto all = [&](const executor::ModuleLayout& layout, std::uint64_t base) {
      for (const ptx::VariablePlacement& variable : layout.variables) {
        const ptx::VariablePlacement* original = loaded.layout.Find(variable.name);
        if (original == nullptr) continue;
        visit(reinterpret_cast<std::byte*>(loaded.variables_base + original->offset),
              reinterpret_cast<std::byte*>(base + variable.offset), variable.bytes);
      }
    };
    all(form.layout, form.base);
    all(form.fenced.variables, form.moved_base);
  }

  void TakeVariables(const corpus::LoadedModule& loaded, const Passed& form) {
    ForEachVariable(loaded, form, [](std::byte* original, std::byte* own, std::uint64_t bytes) {
      std::memcpy(own, original, bytes);
    });
    // Sets variables to the addresses of other variables of the form.
    for (const ptx::ModuleLayout::AddressSlot& slot : form.fenced.variables.address_slots) {
      const std::vector<std::byte> initial = form.fenced.variables.InitialBytes(form.moved_base);
      std::memcpy(reinterpret_cast<std::byte*>(form.moved_base + slot.offset),
                  initial.data() + slot.offset, slot.bytes);
    }
    const std::uint64_t range = form.base / kRangeBytes * kRangeBytes;
    ptx::FenceConstant constant = ptx::MakeFenceConstant(range, form.moved_base);
    constant.control = reinterpret_cast<std::uint64_t>(&words_.control);
    constant.host_words = reinterpret_cast<std::uint64_t>(&words_.host);
    const std::uint64_t offset = form.layout.Find(form.fenced.constant)->offset;
    std::memcpy(reinterpret_cast<std::byte*>(form.base + offset), &constant, sizeof constant);
  }

  static void GiveVariables(const corpus::LoadedModule& loaded, const Passed& form) {
    std::set<std::uint64_t> addresses;
    for (const auto& slot : loaded.layout.address_slots) addresses.insert(slot.offset);
    ForEachVariable(loaded, form, [&](std::byte* original, std::byte* own, std::uint64_t bytes) {
      const std::uint64_t at = reinterpret_cast<std::uint64_t>(original) - loaded.variables_base;
      const auto slot = addresses.lower_bound(at);
      if (slot == addresses.end() || *slot >= at + bytes) std::memcpy(original, own, bytes);
    });
  }

  std::map<const corpus::LoadedModule*, Modules> modules_;
  Words words_;
  std::uint64_t runs_ = 0;
  std::set<std::string> left_out_;
};

class FencedCorpus : public ::testing::TestWithParam<corpus::Program> {};

TEST_P(FencedCorpus, ComputesTheSame) {
  FencingBackend backend;
  corpus::Runtime::Instance().SetBackend(&backend);
  EXPECT_EQ(corpus::RunProgram(GetParam()), "");
  corpus::Runtime::Instance().SetBackend(nullptr);
  std::printf("%llu launches fenced or contained\n",
              static_cast<unsigned long long>(backend.runs()));
  for (const std::string& kernel : backend.left_out()) {
    std::printf("%s\n", kernel.c_str());
    EXPECT_THAT(kernel, AnyOf(HasSubstr("grid-wide synchronisation"), HasSubstr("recursion")));
  }
}

std::string GetName(const ::testing::TestParamInfo<corpus::Program>& info) {
  return info.param.name;
}
// The stage `long` builds this file a second time, for the programs that use CUB and Thrust.
#ifdef GPUSHARED_CORPUS_CUB
INSTANTIATE_TEST_SUITE_P(Cub, FencedCorpus, ::testing::ValuesIn(corpus::CubPrograms()), GetName);
#else
INSTANTIATE_TEST_SUITE_P(Own, FencedCorpus, ::testing::ValuesIn(corpus::OwnPrograms()), GetName);
INSTANTIATE_TEST_SUITE_P(Toolkit, FencedCorpus, ::testing::ValuesIn(corpus::ToolkitPrograms()),
                         GetName);
#endif

}  // namespace
}  // namespace gpushared::testing

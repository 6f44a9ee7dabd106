// SPDX-License-Identifier: Apache-2.0
// The loader with real processes: which modules it reads and rejects, and that no client waits for
// the modules of others.
#include "server/modules/loader/module_loader.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <latch>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/device/cpu/cpu_device.h"

namespace gpushared::testing {
namespace {

using loader::ModuleLoader;
using loader::ModuleLoaderOptions;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using Loaded = Result<ModuleLoader::Loaded>;

const std::string kSmall = R"(
.version 7.8
.target sm_80
.address_size 64
.global .u32 counter = 7;
.global .align 8 .u64 where = counter;
.visible .entry bump(.param .u64 to)
{
  .reg .b64 %rd<3>;
  .reg .b32 %r<3>;
  ld.param.u64 %rd1, [to];
  mov.u64 %rd2, counter;
  ld.global.u32 %r1, [%rd2];
  st.global.u32 [%rd1], %r1;
  ret;
}
)";

// A module of this many instructions; 250,000 take more than a second.
std::string Costly(int instructions, int seed = 0) {
  std::string text = ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry k" +
                     std::to_string(seed) + "()\n{\n.reg .b32 %r<3>;\n";
  for (int i = 0; i < instructions; ++i) text += "add.u32 %r1, %r1, %r2;\n";
  return text + "ret;\n}\n";
}

ipc::UniqueFd ImageFor(const std::string& text) {
  ipc::UniqueFd fd(::memfd_create("image", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::write(fd.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  return fd;
}

std::set<int> ChildrenOfThisProcess() {
  std::set<int> children;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "children");
    for (int pid = 0; file >> pid;) children.insert(pid);
  }
  return children;
}

class ModuleLoaderTest : public ::testing::Test {
 protected:
  void Start(const std::string& misbehaviour = "") {
    options_.command = {GPUSHARED_LOADER_PROGRAM};
    if (!misbehaviour.empty()) options_.command.push_back(misbehaviour);
    auto loader = ModuleLoader::Create(options_);
    ASSERT_TRUE(loader.ok()) << loader.status().message();
    loader_ = *std::move(loader);
  }
  std::future<Loaded> Load(const std::string& text, std::uint64_t session = 1,
                           std::uint32_t uid = 1, std::uint8_t rank = 1) {
    auto promise = std::make_shared<std::promise<Loaded>>();
    std::future<Loaded> future = promise->get_future();
    loader_->Load({.session = session, .uid = uid, .rank = rank, .who = "client 1"},
                  {.passes = {}, .range_bytes = std::uint64_t{4} << 30}, ImageFor(text),
                  text.size(), compile_,
                  [promise](Loaded loaded) { promise->set_value(std::move(loaded)); });
    return future;
  }
  static bool IsOver(std::future<Loaded>& future) {
    return future.wait_for(seconds(0)) == std::future_status::ready;
  }

  ModuleLoaderOptions options_;
  ModuleLoader::Compile compile_ = [](auto module, bool) { return module; };
  std::unique_ptr<ModuleLoader> loader_;
};

TEST_F(ModuleLoaderTest, ModuleOfChildCanBePlacedInASpace) {
  Start();
  Loaded loaded = Load(kSmall).get();
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ(loaded->module->kernel_infos().front().name, "bump");
  EXPECT_EQ(loaded->module->kernel_infos().front().unsupported, "");
  auto device = device::CreateCpuDevice({.executor_threads = 1, .memory_bytes = 64 << 20}, [] {});
  ASSERT_TRUE(device.ok());
  auto space = (*device)->CreateSpace({.quota_bytes = 32 << 20});
  ASSERT_TRUE(space.ok());
  const auto placed = (*space)->PlaceModule(loaded->module);
  ASSERT_TRUE(placed.ok()) << placed.status().message();
  EXPECT_EQ((*placed)->kernels().size(), 1u);
}

// Other clients load modules that are quick and need no compiler, so they must not wait.
TEST_F(ModuleLoaderTest, SlowCompilationsWaitForPermittedThread) {
  std::atomic<int> tried{0}, compiled{0};
  std::latch go(1);
  compile_ = [&](auto module,
                 bool may_take_long) -> Result<std::shared_ptr<const device::PreparedModule>> {
    ++tried;
    if (!may_take_long) return std::shared_ptr<const device::PreparedModule>();
    go.wait();
    ++compiled;
    return module;
  };
  Start();
  std::future<Loaded> first = Load(kSmall, 1), second = Load(kSmall, 2, 2);
  compile_ = [](auto module, bool) { return module; };
  for (std::uint64_t session = 3; session < 6; ++session) {
    EXPECT_TRUE(Load(kSmall, session).get().ok());
  }
  EXPECT_FALSE(IsOver(first) || IsOver(second));
  go.count_down();
  EXPECT_TRUE(first.get().ok());
  EXPECT_TRUE(second.get().ok());
  EXPECT_EQ(compiled, 2);
  EXPECT_EQ(tried, 4);
  EXPECT_EQ(loader_->Facts().crashed, 0u);
}

// Small modules never wait for large ones, however many a client loads.
TEST_F(ModuleLoaderTest, SmallModulesDoNotWaitForLargerOnes) {
  std::latch go(1);
  const auto never_yet = [&](auto module, bool) {
    go.wait();
    return module;
  };
  Start();
  const std::string padded = kSmall + "//" + std::string(options_.small_image_bytes_max, ' ');
  compile_ = never_yet;
  std::vector<std::future<Loaded>> larger;
  for (std::uint64_t session = 1; session <= options_.quick_readers + options_.small_readers;
       ++session) {
    larger.push_back(Load(padded, session, static_cast<std::uint32_t>(session)));
  }
  compile_ = [](auto module, bool) { return module; };
  // From its second load on, user 10 has used more reader time than the users of the larger
  // modules, which are charged only when a load ends.
  for (std::uint64_t session = 10; session < 15; ++session) {
    std::future<Loaded> small = Load(kSmall, session, 10);
    EXPECT_EQ(small.wait_for(seconds(60)), std::future_status::ready);
  }
  go.count_down();
  for (std::future<Loaded>& each : larger) EXPECT_TRUE(each.get().ok());
}

// A small image may need much work, so it gets another try with higher limits.
TEST_F(ModuleLoaderTest, SmallImageBeyondTheLimitsOfItsLaneMovesToTheNext) {
  const std::string text = Costly(300);
  ASSERT_LE(text.size(), options_.small_image_bytes_max);
  for (auto* const lane : {&options_.small, &options_.quick, &options_.medium})
    lane->output_bytes = 4096;
  Start();
  EXPECT_TRUE(Load(text).get().ok());
  options_.costly.output_bytes = 4096;
  Start();
  EXPECT_EQ(Load(text).get().status().code(), StatusCode::kLimitExceeded);
}

// If the loader read modules without this limit, a client that loads many modules while none can be
// placed would take all memory.
TEST_F(ModuleLoaderTest, ReadsNothingWhileTooMuchAwaitsPlacement) {
  options_.unplaced_bytes_max = 0;
  Start();
  std::optional<Loaded> first = Load(kSmall, 1).get();
  ASSERT_TRUE(first->ok());
  EXPECT_EQ(loader_->Facts().unplaced_bytes, (*first)->module->bytes());
  std::future<Loaded> second = Load(kSmall, 2);
  EXPECT_EQ(second.wait_for(milliseconds(200)), std::future_status::timeout);
  // The test keeps the module and releases `place`, like a session that has placed a module.
  (*first)->place.reset();
  EXPECT_TRUE(second.get().ok());
  EXPECT_EQ(loader_->Facts().unplaced_bytes, 0u);
}

TEST_F(ModuleLoaderTest, RejectsUncompilableModuleWithCompilersMessage) {
  compile_ = [](auto, bool) -> Result<std::shared_ptr<const device::PreparedModule>> {
    return Status(StatusCode::kInvalidArgument, "module rejected: no");
  };
  Start();
  EXPECT_EQ(Load(kSmall).get().status().message(), "module rejected: no");
  EXPECT_EQ(loader_->Facts().crashed, 0u);
}

TEST_F(ModuleLoaderTest, RejectsInvalidModuleWithItsLine) {
  Start();
  const Loaded loaded = Load(".version 7.8\n.target sm_80\nnonsense\n").get();
  EXPECT_EQ(loaded.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(loaded.status().message(), HasSubstr("line 3"));
  EXPECT_EQ(loader_->Facts().crashed, 0u);
}

TEST_F(ModuleLoaderTest, RejectsModuleThatTakesTooLong) {
  options_.quick.time = options_.medium.time = milliseconds(10);
  options_.costly.time = milliseconds(100);
  Start();
  const Loaded loaded = Load(Costly(400'000)).get();
  EXPECT_EQ(loaded.status().code(), StatusCode::kLimitExceeded);
  EXPECT_THAT(loaded.status().message(), HasSubstr("took more than"));
}

TEST_F(ModuleLoaderTest, RejectsModuleThatTakesTooMuchMemory) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's shadow has no limit";
#endif
  options_.costly.memory_bytes = 32 << 20;
  Start();
  const Loaded loaded = Load(Costly(200'000)).get();
  EXPECT_EQ(loaded.status().code(), StatusCode::kLimitExceeded);
  EXPECT_THAT(loaded.status().message(), HasSubstr("more than 32 MiB of memory"));
  EXPECT_TRUE(Load(kSmall).get().ok());
}

TEST_F(ModuleLoaderTest, RejectsModuleThatIsTooLargeDecoded) {
  options_.quick.output_bytes = options_.medium.output_bytes = 16 << 10;
  options_.costly.output_bytes = 1 << 20;
  Start();
  const Loaded loaded = Load(Costly(20'000)).get();
  EXPECT_EQ(loaded.status().code(), StatusCode::kLimitExceeded);
  EXPECT_THAT(loaded.status().message(), HasSubstr("its decoded form has more than 1 MiB"));
}

TEST_F(ModuleLoaderTest, CrashedChildIsAnErrorOfItsClientOnly) {
  std::promise<std::string> warned;
  options_.warn = [&](const std::string& text) { warned.set_value(text); };
  Start("crash");
  const Loaded loaded = Load(kSmall).get();
  EXPECT_THAT(loaded.status().message(), HasSubstr("crashed with signal 11"));
  EXPECT_THAT(warned.get_future().get(), HasSubstr("[client 1]"));
  EXPECT_EQ(loader_->Facts().crashed, 1u);
}

TEST_F(ModuleLoaderTest, RejectsInvalidResultsOfAChild) {
  for (const char* how : {"garbage", "nothing", "long"}) {
    Start(how);
    for (int i = 0; i < 10; ++i) EXPECT_FALSE(Load(kSmall).get().ok()) << how;
    EXPECT_EQ(loader_->Facts().crashed, 10u) << how;
  }
}

TEST_F(ModuleLoaderTest, RejectionOfAChildHasNoControlCharacters) {
  Start("text");
  EXPECT_EQ(Load(kSmall).get().status().message(), "evil?line?[2J");
}

TEST_F(ModuleLoaderTest, JobEndsWithItsSession) {
  options_.small.wall = std::chrono::minutes(10);  // Only a cancel can end the job earlier.
  Start("silent");
  std::future<Loaded> running = Load(kSmall, 1), other = Load(kSmall, 2);
  std::this_thread::sleep_for(milliseconds(100));
  std::future<Loaded> third = Load(kSmall, 3), waiting = Load(kSmall, 4);
  loader_->Cancel(1);
  loader_->Cancel(4);
  ASSERT_EQ(running.wait_for(seconds(60)), std::future_status::ready);
  EXPECT_EQ(running.get().status().code(), StatusCode::kCancelled);
  EXPECT_EQ(waiting.get().status().code(), StatusCode::kCancelled);
  EXPECT_FALSE(IsOver(other));
  loader_.reset();
  EXPECT_EQ(other.get().status().code(), StatusCode::kCancelled);
  EXPECT_EQ(third.get().status().code(), StatusCode::kCancelled);
  EXPECT_EQ(ChildrenOfThisProcess(), std::set<int>{});
}

TEST_F(ModuleLoaderTest, RestartsLoaderThatDied) {
  Start();
  ASSERT_TRUE(Load(kSmall).get().ok());
  for (const int pid : ChildrenOfThisProcess()) ::kill(pid, SIGKILL);
  EXPECT_TRUE(Load(kSmall + "// other\n").get().ok());
}

TEST_F(ModuleLoaderTest, LoaderThatAlwaysDiesFailsItsJobs) {
  Start("mortal");
  EXPECT_EQ(Load(kSmall).get().status().code(), StatusCode::kInternal);
}

TEST_F(ModuleLoaderTest, ReadsTheSameModuleOfOneUserOnce) {
  Start();
  const Loaded first = Load(kSmall, 1, 1).get(), second = Load(kSmall, 2, 1).get();
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->module, second->module);
  const Loaded stranger = Load(kSmall, 3, 2).get();
  ASSERT_TRUE(stranger.ok());
  EXPECT_NE(stranger->module, first->module);
  EXPECT_EQ(stranger->content, first->content);
  EXPECT_EQ(loader_->Facts().read, 2u);
  EXPECT_EQ(loader_->Facts().cache_hits, 1u);
}

TEST_F(ModuleLoaderTest, SmallModuleDoesNotWaitForCostlyOnes) {
  Start();
  std::vector<std::future<Loaded>> costly;
  for (int i = 0; i < 8; ++i) {
    costly.push_back(Load(Costly(300'000, i), 10 + static_cast<std::uint64_t>(i), 1, 2));
  }
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_TRUE(Load(kSmall, 1, 1).get().ok());
  EXPECT_FALSE(std::ranges::all_of(costly, IsOver));
}

// Slow modules are moved to the lane kLong, where only other slow modules wait. Therefore an
// ordinary module does not wait for slow modules of the same scheduling class, either.
TEST_F(ModuleLoaderTest, OrdinaryModuleDoesNotWaitForCostlyOnesOfOtherUsers) {
  options_.quick_image_bytes_max = std::uint64_t{64} << 10;
  options_.medium_image_bytes_max = std::uint64_t{64} << 20;
  options_.medium.time = milliseconds(300);
  options_.costly.time = seconds(60);
  Start();
  std::vector<std::future<Loaded>> costly;
  for (std::uint64_t i = 0; i < 12; ++i) {
    costly.push_back(
        Load(Costly(400'000, static_cast<int>(i)), 10 + i, static_cast<std::uint32_t>(10 + i % 3)));
  }
  for (int i = 0; i < 3; ++i) {
    const std::string usual = Costly(4'000, 100 + i);
    ASSERT_GT(usual.size(), options_.quick_image_bytes_max);
    EXPECT_TRUE(Load(usual, 1, 1).get().ok());
  }
  EXPECT_LT(std::ranges::count_if(costly, IsOver), 3) << "each of them waited for a costly module";
}

TEST_F(ModuleLoaderTest, CostlyModuleOfUrgentClassDoesNotWaitForOthers) {
  Start();
  std::vector<std::future<Loaded>> low;
  for (int i = 0; i < 4; ++i) {
    low.push_back(Load(Costly(300'000, i), 10 + static_cast<std::uint64_t>(i), 1, 2));
  }
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_TRUE(Load(Costly(50'000, 9), 1, 1, 0).get().ok());
  EXPECT_FALSE(IsOver(low.back()));
}

}  // namespace
}  // namespace gpushared::testing

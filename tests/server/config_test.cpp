// SPDX-License-Identifier: Apache-2.0
#include "server/config/config.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/policy_catalog.h"
#include "server/config/options.h"
#include "server/config/read_config.h"
#include "tests/support/scratch_directory.h"

namespace gpushared::server {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""us;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Machine kMachine = {.cores = 4, .memory_bytes = std::uint64_t{8} << 30};

std::variant<Config, ExitNow> Parse(std::vector<const char*> options) {
  options.insert(options.begin(), "gpushared");
  return ParseCommandLine(options, kMachine, "9.8.7");
}

Config Accepted(std::vector<const char*> options) {
  auto parsed = Parse(std::move(options));
  if (const auto* rejected = std::get_if<ExitNow>(&parsed)) {
    ADD_FAILURE() << rejected->text;
    return {};
  }
  return std::get<Config>(parsed);
}

std::string GetRejection(std::vector<const char*> options) {
  auto parsed = Parse(std::move(options));
  const auto* rejected = std::get_if<ExitNow>(&parsed);
  if (rejected == nullptr) return "(accepted)";
  EXPECT_EQ(rejected->code, 2);
  return rejected->text;
}

// Applies the text and returns the first error in it.
Status ApplyConfigText(std::string_view text, std::string_view file, Config& config) {
  return ReadConfigText(text, file, config).FirstError();
}

std::string GetFileRejection(std::string_view text) {
  Config config;
  const Status status = ApplyConfigText(text, "test.toml", config);
  EXPECT_FALSE(status.ok());
  return status.message();
}

TEST(Config, OvercommitIsASizeAndMayNameADirectory) {
  EXPECT_EQ(Accepted({}).overcommit_bytes, 0U);
  EXPECT_EQ(Accepted({"--overcommit", "2GiB"}).overcommit_bytes, std::uint64_t{2} << 30);
  EXPECT_EQ(Accepted({"--overcommit", "2GiB,/var/tmp"}).overcommit_directory, "/var/tmp");
  EXPECT_THAT(GetRejection({"--overcommit", "2GiB,tmp"}), HasSubstr("full path of a directory"));
  EXPECT_THAT(GetRejection({"--overcommit", "much"}), HasSubstr("overcommit"));
}

TEST(Config, IdleAfterIsATimeAndRequiresOvercommit) {
  EXPECT_EQ(Accepted({}).idle_after.count(), 0);
  EXPECT_EQ(Accepted({"--overcommit", "1GiB", "--idle-after", "5s"}).idle_after,
            std::chrono::seconds(5));
  EXPECT_THAT(GetRejection({"--idle-after", "5s"}), HasSubstr("requires overcommit"));
  EXPECT_THAT(GetRejection({"--overcommit", "1GiB", "--idle-after", "5ms"}),
              HasSubstr("at least 100 ms"));
}

TEST(Config, MemoryLimitAboveGuaranteeRequiresOvercommit) {
  const ::gpushared::testing::ScratchDirectory directory;
  const std::string file = directory / "server.toml";
  std::ofstream(file) << "[[access]]\neveryone = true\nmemory_limit = \"60%\"\n";
  EXPECT_THAT(GetRejection({"--config", file.c_str()}), HasSubstr("requires overcommit"));
  const Config config = Accepted({"--config", file.c_str(), "--overcommit", "1GiB"});
  ASSERT_EQ(config.access.size(), 1U);
  EXPECT_EQ(config.access[0].memory_limit->Of(1000), 600U);
}

TEST(Config, DefaultsComeFromTheMachine) {
  const Config config = Accepted({});
  EXPECT_EQ(config.policy, "priority");
  EXPECT_EQ(config.device, "auto");
  EXPECT_EQ(config.cpu_threads, 3U);
  EXPECT_EQ(config.memory_bytes, std::uint64_t{4} << 30);
  EXPECT_EQ(config.staging_bytes, std::uint64_t{1} << 30);
  EXPECT_EQ(config.policy_options.slice, 2ms);
  EXPECT_FALSE(config.worker.has_value());
}

TEST(Config, CommandLineSetsEveryOption) {
  const Config config = Accepted({"--policy", "fair", "--device", "cpu:0,cpu:1", "--cpu-threads",
                                  "2", "--memory", "1GiB", "--socket", "/tmp/s.sock", "--slice",
                                  "500us", "--low-floor", "0%", "--log-level", "debug"});
  EXPECT_EQ(config.policy, "fair");
  EXPECT_EQ(config.device, "cpu:0,cpu:1");
  EXPECT_EQ(config.cpu_threads, 2U);
  EXPECT_EQ(config.memory_bytes, std::uint64_t{1} << 30);
  EXPECT_EQ(config.socket, "/tmp/s.sock");
  EXPECT_EQ(config.policy_options.slice, 500us);
  EXPECT_DOUBLE_EQ(config.policy_options.low_floor, 0);
  EXPECT_EQ(config.log_level, LogLevel::kDebug);
}

TEST(Config, RejectsFloorForPolicyWithoutFloors) {
  EXPECT_DOUBLE_EQ(Accepted({"--low-floor", "10%"}).policy_options.low_floor, 0.1);
  EXPECT_DOUBLE_EQ(
      Accepted({"--low-floor", "12.5%", "--policy", "priority"}).policy_options.low_floor, 0.125);
  for (const scheduler::PolicyEntry& entry : scheduler::PolicyCatalog()) {
    if (entry.name == "priority") continue;
    const std::string name(entry.name);
    const char* const policy = name.c_str();
    EXPECT_THAT(GetRejection({"--low-floor", "10%", "--policy", policy}),
                AllOf(HasSubstr("low-floor rejected: asked for 10% under"), HasSubstr(policy),
                      HasSubstr("expected 0%, or policy 'priority'")));
    EXPECT_EQ(Accepted({"--low-floor", "0", "--policy", policy}).policy, policy);
  }
}

TEST(Config, TheMemoryReserveIsAtMostNineTenths) {
  EXPECT_DOUBLE_EQ(Accepted({}).defaults.memory_reserve, 0.1);
  EXPECT_DOUBLE_EQ(Accepted({"--memory-reserve", "25%"}).defaults.memory_reserve, 0.25);
  EXPECT_THAT(GetRejection({"--memory-reserve", "95%"}), AllOf(HasSubstr("95%"), HasSubstr("90%")));
}

TEST(Config, SharesApplyToUsersOrToClients) {
  EXPECT_TRUE(Accepted({}).shares_by_uid);
  EXPECT_FALSE(Accepted({"--share-by", "client"}).shares_by_uid);
  EXPECT_THAT(GetRejection({"--share-by", "group"}),
              AllOf(HasSubstr("group"), HasSubstr("uid or")));
}

TEST(Config, CommandLineWinsOverTheFile) {
  const std::string path =
      ::testing::TempDir() + "config_test_" + std::to_string(::getpid()) + ".toml";
  std::ofstream(path) << "policy = \"fifo\"\nslice = \"5ms\"\n";
  const Config config = Accepted({"--policy", "fair", "--config", path.c_str()});
  EXPECT_EQ(config.policy, "fair");
  EXPECT_EQ(config.policy_options.slice, 5ms);
  std::remove(path.c_str());
}

TEST(Config, RejectsInvalidOptionNamingValueAndAllowedValues) {
  EXPECT_THAT(GetRejection({"--policy", "magic"}), AllOf(HasSubstr("magic"), HasSubstr("fifo")));
  EXPECT_THAT(GetRejection({"--slice", "2"}), AllOf(HasSubstr("'2'"), HasSubstr("2ms")));
  EXPECT_THAT(GetRejection({"--slice", "9000s"}), HasSubstr("9000s"));
  EXPECT_THAT(GetRejection({"--slice", "-2ms"}), HasSubstr("-2ms"));
  EXPECT_THAT(GetRejection({"--low-floor", "150%"}), HasSubstr("150%"));
  EXPECT_THAT(GetRejection({"--low-floor", "95%"}), HasSubstr("95%"));
  EXPECT_THAT(GetRejection({"--cpu-threads", "0"}), AllOf(HasSubstr("'0'"), HasSubstr("1 to")));
  EXPECT_THAT(GetRejection({"--memory", "1GB"}), AllOf(HasSubstr("1GB"), HasSubstr("GiB")));
  EXPECT_THAT(GetRejection({"--memory", "1MiB"}), AllOf(HasSubstr("1MiB"), HasSubstr("64 MiB")));
  EXPECT_THAT(GetRejection({"--staging-memory", "1MiB"}),
              AllOf(HasSubstr("staging-memory"), HasSubstr("1MiB"), HasSubstr("64 MiB")));
  EXPECT_THAT(GetRejection({"--log-level", "loud"}), AllOf(HasSubstr("loud"), HasSubstr("debug")));
  EXPECT_THAT(GetRejection({"--cost-directory", "here"}),
              AllOf(HasSubstr("cost-directory"), HasSubstr("here"), HasSubstr("absolute")));
  EXPECT_THAT(GetRejection({"--frobnicate"}), HasSubstr("--frobnicate"));
  EXPECT_THAT(GetRejection({"--config", "/no/such/file"}), HasSubstr("/no/such/file"));
  const std::string long_path(108, 'x');
  EXPECT_THAT(GetRejection({"--socket", long_path.c_str()}), HasSubstr("107"));
}

TEST(Config, VersionAndHelpEndWithCodeZero) {
  const auto version = Parse({"--version"});
  ASSERT_TRUE(std::holds_alternative<ExitNow>(version));
  EXPECT_EQ(std::get<ExitNow>(version).code, 0);
  EXPECT_THAT(std::get<ExitNow>(version).text, HasSubstr("gpushared 9.8.7"));
  const auto help = Parse({"--help"});
  ASSERT_TRUE(std::holds_alternative<ExitNow>(help));
  for (const scheduler::PolicyEntry& policy : scheduler::PolicyCatalog()) {
    EXPECT_THAT(std::get<ExitNow>(help).text, HasSubstr(std::string(policy.name)));
  }
  EXPECT_THAT(std::get<ExitNow>(help).text,
              AllOf(HasSubstr("--policy"), ::testing::Not(HasSubstr("--worker"))));
}

// Returns the configuration that a worker of this server would read.
Config AsWorker(const Config& config, const WorkerRole& role) {
  const std::vector<std::string> written = WorkerArguments(config, role);
  std::vector<const char*> arguments;
  for (const std::string& argument : written) arguments.push_back(argument.c_str());
  return Accepted(arguments);
}

TEST(Config, WorkerReadsItsRole) {
  const Config read =
      AsWorker(Accepted({}), {.channel_fd = 7, .device = "cpu:1", .generation = 12});
  ASSERT_TRUE(read.worker.has_value());
  EXPECT_EQ(read.worker->channel_fd, 7);
  EXPECT_EQ(read.worker->device, "cpu:1");
  EXPECT_EQ(read.worker->generation, 12U);
}

// A non-default value for each option.
const std::map<std::string_view, const char*> kOthers = {
    {"policy", "fair"},
    {"device", "cpu:0"},
    {"cpu-threads", "2"},
    {"memory", "1GiB,fence"},
    {"staging-memory", "1.5GiB"},
    {"overcommit", "2GiB,/var/a \\ \"directory\""},
    {"idle-after", "300s"},
    {"socket", "/tmp/s.sock"},
    {"slice", "1500us"},
    {"share-by", "client"},
    {"client-max-share", "12.5%"},
    {"memory-reserve", "25%"},
    {"low-floor", "12.5%"},
    {"cost-directory", "/var/lib/gpushared"},
    {"kernel-limit", "low=none,normal=1.5s"},
    {"load-limit", "2GiB,1.5s"},
    {"cpu-affinity", "1,3"},
    {"sm-limit", "low=0.5%,normal=32"},
    {"cuda-completion", "writes"},
    {"ptx-compiler", "driver"},
    {"code-cache", "none"},
    {"observe", "uid:0"},
    {"operate", "everyone"},
    {"lease-grace", "0s"},
    {"log-level", "warn"},
};

TEST(Config, WorkersGetAllWorkerOptionsAndOthersNeedRestart) {
  // idle-after requires overcommit.
  const Config built_in = Accepted({"--overcommit", "4GiB"});
  std::vector<std::string_view> live, of_the_broker;
  for (const Option& option : Options()) {
    SCOPED_TRACE(option.name);
    const std::string name = "--" + std::string(option.name);
    std::vector<const char*> given = {name.c_str(), kOthers.at(option.name)};
    if (option.name != "overcommit") given.insert(given.end(), {"--overcommit", "4GiB"});
    const Config config = Accepted(given);
    ASSERT_NE(option.value.text(config), option.value.text(built_in));
    const std::vector<std::string> need_restart = NeedRestart(built_in, config);
    if (std::ranges::find(need_restart, option.name) == need_restart.end()) {
      EXPECT_THAT(need_restart, ::testing::IsEmpty());
      live.push_back(option.name);
    }
    const Config worker = AsWorker(config, {.channel_fd = 3, .device = "cpu:0"});
    if (option.value.text(worker) == option.value.text(built_in)) {
      of_the_broker.push_back(option.name);
    } else {
      EXPECT_EQ(option.value.text(worker), option.value.text(config));
    }
  }
  EXPECT_THAT(live, ElementsAre("observe", "operate", "lease-grace"));
  EXPECT_THAT(of_the_broker, ElementsAre("device", "socket", "client-max-share", "cpu-affinity",
                                         "observe", "operate", "lease-grace"));
}

TEST(Config, KernelLimitsAreGivenByClass) {
  const Config config = Accepted({"--kernel-limit", "low=2s,normal=1.5s"});
  EXPECT_FALSE(config.kernel_limits[0]);
  EXPECT_EQ(config.kernel_limits[1], 1500ms);
  EXPECT_EQ(config.kernel_limits[2], 2000ms);

  for (const char* bad : {"", "2s", "low", "low=", "low=2", "low=2s,", "low=2s,low=3s", "lowest=2s",
                          "low=0ms", "low=999us", "low=86401s", "low=2s normal=3s"}) {
    EXPECT_THAT(GetRejection({"--kernel-limit", bad}), HasSubstr("option kernel-limit rejected"))
        << bad;
  }
  Config of_file;
  ASSERT_TRUE(ApplyConfigText("kernel_limit = [\"low=2s\", \"high=1s\"]", "f", of_file).ok());
  EXPECT_EQ(of_file.kernel_limits[0], 1000ms);
  EXPECT_EQ(of_file.kernel_limits[2], 2000ms);
}

TEST(Config, TheLoadLimitIsATimeASizeOrBoth) {
  EXPECT_EQ(Accepted({}).load_limit.time, 10'000ms);
  EXPECT_EQ(Accepted({}).load_limit.memory_bytes, std::uint64_t{512} << 20);
  EXPECT_EQ(Accepted({"--load-limit", "90s"}).load_limit.time, 90'000ms);
  EXPECT_EQ(Accepted({"--load-limit", "90s"}).load_limit.memory_bytes, std::uint64_t{512} << 20);
  const Config both = Accepted({"--load-limit", "2GiB,1.5s"});
  EXPECT_EQ(both.load_limit.time, 1500ms);
  EXPECT_EQ(both.load_limit.memory_bytes, std::uint64_t{2} << 30);
  for (const char* bad : {"", "10", "none", "500ms", "2h", "64MiB", "65GiB", "10s,", "10s;1GiB"}) {
    EXPECT_THAT(GetRejection({"--load-limit", bad}), HasSubstr("option load-limit rejected"))
        << bad;
  }
}

TEST(Config, KernelLimitsHaveDefaultsExceptForHighClass) {
  using Given = decltype(Config::kernel_limits_given);
  EXPECT_EQ(Accepted({}).kernel_limits, kKernelLimitsBuiltIn);
  EXPECT_FALSE(kKernelLimitsBuiltIn[0]);
  EXPECT_EQ(kKernelLimitsBuiltIn[1], 60000ms);
  EXPECT_EQ(kKernelLimitsBuiltIn[2], 10000ms);
  EXPECT_EQ(Accepted({}).kernel_limits_given, Given{});

  const Config low = Accepted({"--kernel-limit", "low=none"});
  EXPECT_EQ(low.kernel_limits[1], 60000ms) << "what is not named stays";
  EXPECT_FALSE(low.kernel_limits[2]);
  EXPECT_EQ(low.kernel_limits_given, (Given{false, false, true}));
  const Config none = Accepted({"--kernel-limit", "none"});
  EXPECT_EQ(none.kernel_limits, decltype(none.kernel_limits){});
  EXPECT_EQ(none.kernel_limits_given, (Given{true, true, true}));

  for (const Config& config : {Accepted({}), low, none}) {
    const Config worker = AsWorker(config, {.channel_fd = 3, .device = "cpu:0"});
    EXPECT_EQ(worker.kernel_limits, config.kernel_limits);
    EXPECT_EQ(worker.kernel_limits_given, config.kernel_limits_given);
  }
}

TEST(Config, CpuAffinityIsAListOfProcessorsAndBoundsTheExecutorThreads) {
  const Config config = Accepted({"--cpu-affinity", "4-6,0,5"});
  EXPECT_EQ(config.cpu_affinity, (std::vector<std::uint32_t>{0, 4, 5, 6}));
  EXPECT_EQ(config.cpu_threads, 3U);
  EXPECT_EQ(Accepted({"--cpu-affinity", "1"}).cpu_threads, 1U);
  EXPECT_EQ(Accepted({"--cpu-affinity", "1", "--cpu-threads", "7"}).cpu_threads, 7U);
  EXPECT_TRUE(Accepted({}).cpu_affinity.empty());
  EXPECT_EQ(CpuListText(config.cpu_affinity), "0,4,5,6");
  for (const char* bad : {"", ",", "a", "-", "3-1", "1024", "0-1024", "1,,2", "-1", "1-", "0 1"}) {
    EXPECT_THAT(GetRejection({"--cpu-affinity", bad}), HasSubstr("option cpu-affinity rejected"))
        << bad;
  }
}

TEST(Config, AcceptsMemoryAsSizeOrLevelOrBoth) {
  using device::Isolation;
  EXPECT_FALSE(Accepted({}).defaults.isolation);
  EXPECT_EQ(Accepted({"--memory", "fence"}).defaults.isolation, Isolation::kFence);
  EXPECT_EQ(Accepted({"--memory", "contain"}).defaults.isolation, Isolation::kContain);
  EXPECT_FALSE(Accepted({"--memory", "fence"}).memory_given);
  for (const char* both : {"1GiB,off", "off,1GiB"}) {
    EXPECT_EQ(Accepted({"--memory", both}).defaults.isolation, Isolation::kOff);
    EXPECT_EQ(Accepted({"--memory", both}).memory_bytes, std::uint64_t{1} << 30);
  }
  EXPECT_THAT(GetRejection({"--memory", "fenced"}), HasSubstr("'fenced'"));
}

TEST(Config, AcceptsSmLimitsAsNumbersOrFractions) {
  const Config config = Accepted({"--sm-limit", "low=50%,normal=32"});
  EXPECT_FALSE(config.sm_limits[0]);
  EXPECT_EQ(config.sm_limits[1]->Of(132), 32U);
  EXPECT_EQ(config.sm_limits[1]->Of(16), 16U);
  EXPECT_EQ(config.sm_limits[2]->Of(132), 66U);
  EXPECT_EQ(config.sm_limits[2]->Of(1), 1U);
  EXPECT_THAT(GetRejection({"--sm-limit", "low=0.0000001%"}),
              AllOf(HasSubstr("'0.0000001%'"), HasSubstr("0.1% to 100%")));
  EXPECT_EQ(Accepted({"--sm-limit", "low=0.1%"}).sm_limits[2]->Of(132), 1U);
  for (const char* bad :
       {"", "50%", "low", "low=0", "low=0%", "low=0.0000001%", "low=0.09%", "low=101%", "low=half",
        "low=1.5", "low=10%,low=10%", "low=5000", "low=-1"}) {
    EXPECT_THAT(GetRejection({"--sm-limit", bad}), HasSubstr("option sm-limit rejected")) << bad;
  }
}

TEST(Config, CudaCompletionIsEventsOrWrites) {
  using device::cuda::CompletionKind;
  EXPECT_EQ(Accepted({}).cuda_completion, CompletionKind::kEvents);
  const Config config = Accepted({"--cuda-completion", "writes"});
  EXPECT_EQ(config.cuda_completion, CompletionKind::kWrites);
  EXPECT_THAT(GetRejection({"--cuda-completion", "guess"}),
              AllOf(HasSubstr("'guess'"), HasSubstr("events or writes")));
}

TEST(Config, AcceptsOnlyAbsolutePathsOrKeywordsForCompilerAndCache) {
  const Config config = Accepted({"--ptx-compiler", "/opt/cuda/bin/ptxas", "--code-cache", "none"});
  EXPECT_EQ(config.ptx_compiler, "/opt/cuda/bin/ptxas");
  EXPECT_EQ(config.code_cache, Config::kNone);
  EXPECT_EQ(Accepted({}).ptx_compiler, "");
  EXPECT_EQ(Accepted({"--ptx-compiler", "driver"}).ptx_compiler, Config::kDriver);
  EXPECT_THAT(GetRejection({"--code-cache", "driver"}), HasSubstr("begins with '/'"));
  for (const char* option : {"--ptx-compiler", "--code-cache"}) {
    for (const char* path : {"bin/ptxas", "/a\nb", "/a\xff"}) {
      EXPECT_THAT(GetRejection({option, path}), HasSubstr("begins with '/'"));
    }
  }
}

TEST(ConfigFile, SetsOptionsAndAccessRules) {
  Config config;
  const Status status = ApplyConfigText(R"(
policy = "round_robin"
device = ["cpu:0", "cpu:1"]
cpu_threads = 2
low_floor = "5%"

[[access]]
user = "root"
highest_class = "high"

[[access]]
gid = 4242
highest_class = "low"
max_weight = 10
max_share = "40%"
client_max_share = "10%"
latency_targets = true
memory = ["50%", "off"]
client_memory = "256MiB"
clients_max = 3

[[access]]
everyone = true
memory = "fence"
)",
                                        "test.toml", config);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(config.policy, "round_robin");
  EXPECT_EQ(config.device, "cpu:0,cpu:1");
  EXPECT_EQ(config.cpu_threads, 2U);
  EXPECT_DOUBLE_EQ(config.policy_options.low_floor, 0.05);
  ASSERT_EQ(config.access.size(), 3U);
  EXPECT_EQ(config.access[0].who.kind, Subject::Kind::kUser);
  EXPECT_EQ(config.access[0].who.id, 0U);
  EXPECT_EQ(config.access[0].max_weight, 1U);
  EXPECT_EQ(config.access[0].clients_max, 32U);
  const AccessRule& group = config.access[1];
  EXPECT_EQ(group.who.kind, Subject::Kind::kGroup);
  EXPECT_EQ(group.who.id, 4242U);
  EXPECT_EQ(group.highest_class, scheduler::SchedulingClass::kLow);
  EXPECT_EQ(group.max_weight, 10U);
  EXPECT_EQ(group.max_share, 400U);
  EXPECT_EQ(group.client_max_share, 100U);
  EXPECT_FALSE(config.access[0].client_max_share);
  EXPECT_TRUE(group.AllowsLatencyTargets());
  EXPECT_TRUE(config.access[0].AllowsLatencyTargets());
  EXPECT_FALSE(config.access[2].AllowsLatencyTargets());
  EXPECT_EQ(group.memory.Of(1000), 500U);
  EXPECT_EQ(group.client_memory->Of(std::uint64_t{1} << 40), std::uint64_t{256} << 20);
  EXPECT_EQ(group.clients_max, 3U);
  EXPECT_FALSE(config.access[0].isolation);
  EXPECT_EQ(group.isolation, device::Isolation::kOff);
  EXPECT_EQ(config.access[2].isolation, device::Isolation::kFence);
  EXPECT_EQ(config.access[2].memory.Of(1000), 1000U);
  EXPECT_FALSE(config.defaults.isolation);
  EXPECT_EQ(config.access[2].who.kind, Subject::Kind::kEveryone);
}

TEST(Config, AcceptsVgpuNamesOfPolicies) {
  EXPECT_EQ(Accepted({"--policy", "equal_share"}).policy, "round_robin");
  EXPECT_EQ(Accepted({"--policy", "equal_share"}).defaults.client_max_share, 1000U);
  const Config fixed = Accepted({"--policy", "fixed_share", "--client-max-share", "25%"});
  EXPECT_EQ(fixed.policy, "round_robin");
  EXPECT_EQ(fixed.defaults.client_max_share, 250U);
  EXPECT_THAT(GetRejection({"--policy", "fixed_share"}),
              HasSubstr("'fixed_share' needs --client-max-share below 100%"));
  EXPECT_THAT(GetRejection({"--client-max-share", "0%"}), HasSubstr("client-max-share rejected"));
}

TEST(ConfigFile, SetsEndpoints) {
  Config config;
  const Status status = ApplyConfigText(R"(
lease_grace = "3s"

[[endpoint]]
name = "batch"
class = "low"
weight = 5
memory = "50%"
client_memory = "1GiB"
clients_max = 100
max_share = "12.5%"
client_max_share = "2.5%"
devices = ["cpu:0", "GPU-aa"]
who = ["user:root", "gid:4242"]
owner = ["namespace:shop", "pod:web-1"]

[[endpoint]]
name = "serve"
socket = "/srv/serve.sock"
highest_class = "high"
)",
                                        "test.toml", config);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(config.lease_grace, std::chrono::seconds(3));
  ASSERT_EQ(config.endpoints.size(), 2U);
  const EndpointRule& batch = config.endpoints[0];
  EXPECT_EQ(batch.UsualClass(), scheduler::SchedulingClass::kLow);
  EXPECT_EQ(batch.highest_class, scheduler::SchedulingClass::kLow);
  EXPECT_EQ(batch.usual_weight, 5U);
  EXPECT_EQ(batch.owner, "namespace:shop,pod:web-1");
  EXPECT_EQ(batch.max_weight, 5U);
  EXPECT_EQ(batch.memory.Of(1000), 500U);
  EXPECT_EQ(batch.clients_max, 100U);
  EXPECT_EQ(batch.max_share, 125U);
  EXPECT_EQ(batch.client_max_share, 25U);
  EXPECT_EQ(batch.devices, (std::vector<std::string>{"cpu:0", "GPU-aa"}));
  ASSERT_EQ(batch.who.size(), 2U);
  EXPECT_EQ(batch.who[0].id, 0U);
  const EndpointRule& serve = config.endpoints[1];
  EXPECT_EQ(serve.socket, "/srv/serve.sock");
  EXPECT_EQ(serve.UsualClass(), scheduler::SchedulingClass::kNormal);
  EXPECT_EQ(serve.highest_class, scheduler::SchedulingClass::kHigh);
  EXPECT_TRUE(serve.who.empty());
  EXPECT_EQ(serve.max_share, 1000U);
  EXPECT_THAT(Describe(batch), HasSubstr("endpoint 'batch': class low"));
}

TEST(ConfigFile, RejectsInvalidEndpointWithItsLine) {
  const auto rejection = [](const std::string& keys) {
    Config config;
    return ApplyConfigText("[[endpoint]]\n" + keys, "test.toml", config).message();
  };
  EXPECT_THAT(rejection("class = 'low'"),
              HasSubstr("line 1 column 1: endpoint rejected: it has no"));
  for (const char* name : {"''", "'main'", "'a/b'", "'..'", "'Batch'"}) {
    EXPECT_THAT(rejection(std::string("name = ") + name), HasSubstr("key name rejected")) << name;
  }
  EXPECT_THAT(
      rejection("name = 'b'\nclass = 'royal'"),
      HasSubstr("line 3 column 9: endpoint key class rejected: asked for 'royal', allowed"));
  EXPECT_THAT(rejection("name = 'b'\nclass = 'normal'\nhighest_class = 'low'"),
              HasSubstr("its class is above its highest"));
  EXPECT_THAT(rejection("name = 'b'\nweight = 1001"), HasSubstr("weight rejected"));
  EXPECT_THAT(rejection("name = 'b'\nowner = ['uid:0']"), HasSubstr("owner rejected"));
  EXPECT_THAT(rejection("name = 'b'\nclients_max = 0"), HasSubstr("clients_max rejected"));
  EXPECT_THAT(rejection("name = 'b'\nwho = []"),
              HasSubstr("who rejected: it names no user or group"));
  EXPECT_THAT(rejection("name = 'b'\nsocket = 'b.sock'"), HasSubstr("begins with '/'"));
  for (const char* share :
       {"'0%'", "'101%'", "'nan%'", "'-1%'", "'30'", "'much'", "30", "''", "'%'"}) {
    EXPECT_THAT(rejection(std::string("name = 'b'\nmax_share = ") + share),
                HasSubstr("max_share rejected: asked for '"))
        << share;
  }
  EXPECT_THAT(rejection("name = 'b'\n[[endpoint]]\nname = 'b'"),
              HasSubstr("another one has its name"));
  Config config;
  EXPECT_THAT(rejection("name = 'b'\nresume_within = '60s'"),
              HasSubstr("endpoint 'b' rejected: only a lease can have resume_within"));
  EXPECT_THAT(ApplyConfigText("endpoint = 3", "test.toml", config).message(),
              HasSubstr("write each one under [[endpoint]]"));
}

TEST(ConfigFile, LeaseHasAllKeysOfEndpointExceptSocket) {
  const Result<EndpointRule> lease = ParseEndpointTerms("class = 'low'\nwho = 'uid:7'", "lease");
  ASSERT_TRUE(lease.ok()) << lease.status().message();
  EXPECT_EQ(lease->who.at(0).id, 7U);
  EXPECT_EQ(lease->name, "");
  EXPECT_EQ(ParseEndpointTerms("socket = '/tmp/s'", "lease").status().message(),
            "lease rejected: the server chooses the socket");
  EXPECT_THAT(ParseEndpointTerms("class =", "lease").status().message(), HasSubstr("lease line 1"));
  EXPECT_FALSE(ParseEndpointTerms("policy = 'fifo'", "lease").ok());
}

TEST(ConfigFile, NamesOptionsThatReloadIgnores) {
  Config running, read;
  EXPECT_THAT(NeedRestart(running, read), ::testing::IsEmpty());
  read.policy_options.slice = std::chrono::milliseconds(9);
  read.policy = "fifo";
  read.lease_grace = std::chrono::seconds(1);
  read.observers = {Subject{}};
  read.access.emplace_back();
  read.endpoints.emplace_back();
  EXPECT_THAT(NeedRestart(running, read), ::testing::ElementsAre("policy", "slice"));
}

TEST(ConfigFile, NamesObserversAndOperators) {
  Config config;
  const Status status = ApplyConfigText(R"(
observe = ["everyone"]
operate = ["user:root", "gid:4242"]
)",
                                        "test.toml", config);
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(config.observers.size(), 1U);
  EXPECT_EQ(config.observers[0].kind, Subject::Kind::kEveryone);
  ASSERT_EQ(config.operators.size(), 2U);
  EXPECT_EQ(config.operators[0].label, "user 'root' (uid 0)");
  EXPECT_EQ(config.operators[1].kind, Subject::Kind::kGroup);
  EXPECT_EQ(config.operators[1].id, 4242U);
  const auto rejection = [&config](const char* text) {
    return ApplyConfigText(text, "test.toml", config).message();
  };
  EXPECT_THAT(
      rejection("operate = 'wheel'"),
      HasSubstr("test.toml line 1 column 11: option operate rejected: asked for 'wheel', allowed: "
                "everyone and user:NAME"));
  EXPECT_THAT(rejection("observe = 'user:no such user'"), HasSubstr("does not exist here"));
  EXPECT_THAT(rejection("observe = 'uid:-1'"), HasSubstr("option observe rejected"));
  EXPECT_THAT(rejection("observe = 'process:1'"), HasSubstr("asked for 'process'"));
}

TEST(ConfigFile, AcceptsShippedExample) {
  std::ifstream file(GPUSHARED_EXAMPLE_CONFIG);
  std::stringstream text;
  text << file.rdbuf();
  ASSERT_FALSE(text.str().empty());
  // The examples must be valid, too, so text after "# " that looks like TOML is enabled.
  std::string all;
  for (std::string line; std::getline(text, line); all += line + "\n") {
    const bool is_example =
        line.starts_with("# [[") ||
        (line.starts_with("# ") && line.find(" = ") != std::string::npos &&
         line.find(':') == std::string::npos && line.find(',') == std::string::npos);
    if (is_example) line.erase(0, 2);
    if (line.starts_with("group = ")) line = "gid = 4242";
  }
  Config config;
  const Status status = ApplyConfigText(all, "gpushared.toml", config);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(config.access.size(), 3U);
  EXPECT_EQ(config.endpoints.size(), 1U);
}

TEST(ConfigFile, EveryRejectionNamesTheFileAndTheLine) {
  EXPECT_THAT(GetFileRejection("\npolcy = \"fair\""),
              AllOf(HasSubstr("test.toml line 2"), HasSubstr("polcy")));
  EXPECT_THAT(GetFileRejection("policy = \"fair\"\nslice = \"soon\""),
              AllOf(HasSubstr("line 2"), HasSubstr("soon"), HasSubstr("2ms")));
  EXPECT_THAT(GetFileRejection("slice = 2"), AllOf(HasSubstr("line 1"), HasSubstr("'2'")));
  EXPECT_THAT(GetFileRejection("policy = true"), HasSubstr("line 1"));
  EXPECT_THAT(GetFileRejection("\n\npolicy = "), HasSubstr("line 3"));
  EXPECT_THAT(GetFileRejection("[access]\nuid = 1"), HasSubstr("[[access]]"));
  EXPECT_THAT(GetFileRejection("[[access]]\nhighest_class = \"high\""), HasSubstr("0 subjects"));
  EXPECT_THAT(GetFileRejection("[[access]]\nuid = 1\ngid = 1"), HasSubstr("2 subjects"));
  EXPECT_THAT(GetFileRejection("[[access]]\nuid = -1"),
              AllOf(HasSubstr("line 2"), HasSubstr("-1")));
  EXPECT_THAT(GetFileRejection("[[access]]\nuser = \"no such user\""), HasSubstr("no such user"));
  EXPECT_THAT(GetFileRejection("[[access]]\ngroup = \"no such group\""),
              HasSubstr("no such group"));
  EXPECT_THAT(GetFileRejection("[[access]]\nuid = 1\nhighest_class = \"root\""),
              AllOf(HasSubstr("line 3"), HasSubstr("normal")));
  EXPECT_THAT(GetFileRejection("[[access]]\nuid = 1\nmemory = \"0%\""), HasSubstr("line 3"));
  EXPECT_THAT(GetFileRejection("[[access]]\nuid = 1\nmax_weight = 100000"), HasSubstr("100000"));
  EXPECT_THAT(GetFileRejection("[[access]]\nuid = 1\nmemroy = \"1GiB\""), HasSubstr("memroy"));
  EXPECT_THAT(GetFileRejection("[[access]]\neveryone = false"), HasSubstr("everyone"));
  for (const std::string value : {"\"10ms\"", "\"true\"", "1"}) {
    EXPECT_THAT(
        GetFileRejection("[[access]]\nuid = 1\nlatency_targets = " + value),
        AllOf(HasSubstr("line 3"), HasSubstr("latency_targets"), HasSubstr("true or false")));
  }
  EXPECT_THAT(GetFileRejection("socket = true"), AllOf(HasSubstr("line 1"), HasSubstr("socket")));
  for (const std::string value : {"\"\"", "\"fences\"", "[\"50%\", \"on\"]", "\"off,\""}) {
    EXPECT_THAT(GetFileRejection("[[access]]\nuid = 1\nmemory = " + value),
                AllOf(HasSubstr("line 3"), HasSubstr("or off, fence or contain")));
  }
}

TEST(ConfigValues, QuantitiesAreReadCompletelyOrNotAtAll) {
  EXPECT_EQ(ParseDuration("1.5s").value(), 1500ms);
  EXPECT_EQ(ParseDuration("250ns").value().count(), 250);
  for (const char* bad : {"", "ms", "2 ms", "2msx", "1e3s", "0x2s", "1..2s", "nan s", "inf",
                          "99999999999999999999s"}) {
    EXPECT_FALSE(ParseDuration(bad).ok()) << bad;
  }
  EXPECT_EQ(ParseBytes("1.5KiB").value(), 1536U);
  for (const char* bad : {"", "12", "4G", "-1GiB", "99999999TiB"}) {
    EXPECT_FALSE(ParseBytes(bad).ok()) << bad;
  }
  EXPECT_FALSE(ParseCount("12x", 0, 100).ok());
  EXPECT_FALSE(ParseCount("", 0, 100).ok());
  EXPECT_FALSE(ParseCount("18446744073709551616", 0, ~std::uint64_t{0}).ok());
  EXPECT_DOUBLE_EQ(ParseFraction("12.5%").value(), 0.125);
  EXPECT_FALSE(ParseFraction("101%").ok());
}

TEST(ConfigValues, WorkersReadBackExactlyTheSameValues) {
  EXPECT_EQ(DurationText(1500us), "1500us");
  EXPECT_EQ(DurationText(std::chrono::nanoseconds(2'000'000'001)), "2000000001ns");
  EXPECT_EQ(BytesText(std::uint64_t{3} << 29), "1536MiB");
  EXPECT_EQ(BytesText((std::uint64_t{1} << 40) + 1), "1099511627777B");
  EXPECT_EQ(ParseDuration(DurationText(60000ms)).value(), 60000ms);
  EXPECT_EQ(ParseBytes(BytesText(4097)).value(), 4097U);
}

TEST(ConfigValues, SplitsListAtEachComma) {
  EXPECT_THAT(SplitAtCommas("a,bc"), ElementsAre("a", "bc"));
  EXPECT_THAT(SplitAtCommas(""), ElementsAre(""));
  EXPECT_THAT(SplitAtCommas(",a,"), ElementsAre("", "a", ""));
}

TEST(ConfigValues, ReplacesControlBytesInUntrustedText) {
  EXPECT_EQ(Escaped("a\nb\x1b[31m\xff"), "a\\x0ab\\x1b[31m\\xff");
  EXPECT_EQ(Escaped("abcdef", 3), "abc...");
}

}  // namespace
}  // namespace gpushared::server

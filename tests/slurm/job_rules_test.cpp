// SPDX-License-Identifier: Apache-2.0
#include "server/tools/cluster/slurm/job_rules.h"

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpushared::slurm {
namespace {

using scheduler::SchedulingClass;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

JobRules Rules(const std::string& text) {
  const Result<JobRules> rules = ParseJobRules(text, "rules");
  EXPECT_TRUE(rules.ok()) << rules.status().message();
  return rules.ok() ? *rules : JobRules();
}

std::string Rejection(const std::string& text) {
  return ParseJobRules(text, "rules").status().message();
}

TEST(JobRules, DerivesUnsetValues) {
  const JobRules rules = Rules(
      "[qos.batch]\nclass = 'low'\nhighest_share = '50%'\nhighest_memory = '1GiB'\n"
      "[qos.prod]\nhighest_class = 'high'\n[other_qos]\n");
  EXPECT_EQ(rules.socket, "/run/gpushared/gpushared.sock");
  EXPECT_TRUE(rules.needs_gres);
  const QosRule& batch = rules.of_qos.at("batch");
  EXPECT_EQ(batch.highest_class, SchedulingClass::kLow);
  EXPECT_EQ(batch.share, 500U);
  EXPECT_EQ(batch.memory, 1024 * kMiB);
  const QosRule& prod = rules.of_qos.at("prod");
  EXPECT_EQ(prod.usual_class, SchedulingClass::kNormal);
  EXPECT_EQ(prod.highest_class, SchedulingClass::kHigh);
  EXPECT_EQ(prod.highest_share, 1000U);
  EXPECT_EQ(prod.memory, std::nullopt);
  EXPECT_EQ(rules.of_others->highest_class, SchedulingClass::kNormal);
}

TEST(JobRules, RejectsInvalidFileWithItsLine) {
  EXPECT_THAT(Rejection("[qos.a]\nclas = 'low'"),
              AllOf(HasSubstr("rules line 2"), HasSubstr("'clas'"), HasSubstr("highest_memory")));
  EXPECT_THAT(Rejection("[qos.a]\nclass = 'urgent'"), HasSubstr("allowed: high, normal and low"));
  EXPECT_THAT(Rejection("[qos.a]\nshare = '200%'"), HasSubstr("QOS key 'share' rejected"));
  EXPECT_THAT(Rejection("[qos.a]\nmemory = '4'"), HasSubstr("QOS key 'memory' rejected"));
  EXPECT_THAT(Rejection("[qos.a]\nshare = 5"), HasSubstr("it is not a string"));
  EXPECT_THAT(Rejection("[qos.a]\nclass = 'high'\nhighest_class = 'low'"), HasSubstr("above"));
  EXPECT_THAT(Rejection("[qos.a]\nshare = '60%'\nhighest_share = '50%'"), HasSubstr("above"));
  EXPECT_THAT(Rejection("[qos.a]\nmemory = '2GiB'\nhighest_memory = '1GiB'"), HasSubstr("above"));
  EXPECT_THAT(Rejection("socket = 'here'"), HasSubstr("key 'socket' rejected"));
  EXPECT_THAT(Rejection("needs_gres = 'no'"), HasSubstr("needs_gres = true or false"));
  EXPECT_THAT(Rejection("qos = 1"), HasSubstr("[qos.NAME]"));
  EXPECT_THAT(Rejection("[qos]\na = 1"), HasSubstr("[qos.NAME]"));
  EXPECT_THAT(Rejection("[qos.a"), HasSubstr("rules line 1"));
  std::string many;
  for (std::size_t qos = 0; qos <= kQosMax; ++qos) many += "[qos.q" + std::to_string(qos) + "]\n";
  EXPECT_THAT(Rejection(many), HasSubstr("at most 1024"));
}

TEST(JobRules, TheExampleIsAccepted) {
  std::ifstream file(GPUSHARED_EXAMPLE_RULES);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_EQ(Rules(text).of_qos.at("normal").highest_share, 500U);
}

Allocation Has(const std::string& gres) {
  const Result<Allocation> has = ParseAllocation(gres);
  EXPECT_TRUE(has.ok()) << gres << ": " << has.status().message();
  return has.ok() ? *has : Allocation();
}

TEST(Allocation, IsReadFromSlurmsList) {
  EXPECT_EQ(Has("").share, std::nullopt);
  EXPECT_EQ(Has("gpu:1(IDX:0),mps:25(IDX:0,1)").share, std::nullopt);
  const Allocation plain = Has("gpushared(CNT:25),gpushared_memory(CNT:268435456)");
  EXPECT_EQ(plain.share, 250U);
  EXPECT_EQ(plain.memory_bytes, 256 * kMiB);
  EXPECT_EQ(plain.type, "");
  const Allocation typed = Has("gpu:a:1(IDX:0-1,3),gpushared:cuda1(CNT:100)");
  EXPECT_EQ(typed.share, 1000U);
  EXPECT_EQ(typed.memory_bytes, std::nullopt);
  EXPECT_EQ(typed.type, "cuda1");
  EXPECT_EQ(Has("gpushared:h100(CNT:7),gpushared_memory:h100(CNT:9)").type, "h100");
  EXPECT_EQ(Has("gpushared:7").share, 70U);
  EXPECT_EQ(Has("gpushared:cuda0(CNT:0),gpushared:cuda1(CNT:5)").type, "cuda1");
}

TEST(Allocation, RejectsAllocationThatIsNotOneDevice) {
  const auto why = [](const std::string& gres) { return ParseAllocation(gres).status().message(); };
  EXPECT_THAT(why("gpushared:cuda0(CNT:20),gpushared:cuda1(CNT:5)"),
              HasSubstr("allocated cuda0 and cuda1 to the job, but a step uses one device"));
  EXPECT_THAT(why("gpushared:cuda0(CNT:20),gpushared_memory:cuda1(CNT:5)"),
              HasSubstr("such as gpushared:cuda1:N,gpushared_memory:cuda1:N"));
  EXPECT_THAT(why("gpushared(CNT:101)"), HasSubstr("more than 100"));
  EXPECT_THAT(why("gpushared(CNT:60),gpushared(CNT:60)"), HasSubstr("more than 100"));
  for (const char* broken : {"gpushared", "gpushared(CNT:)", "gpushared(CNT:-1)", "gpushared:x",
                             "gpushared(CNT:99999999999999999999)", "gpushared(CNT:5,6)"}) {
    EXPECT_THAT(why(broken), HasSubstr("there is no count in")) << broken;
  }
}

TEST(DeviceOfType, IsADeviceOrAModel) {
  const std::vector<NodeDevice> devices = {{"cuda:0", "NVIDIA H100 80GB HBM3"},
                                           {"cuda:1", "NVIDIA L40S"},
                                           {"cuda:12", "NVIDIA A100-SXM4-40GB"}};
  const auto found = [&](const char* type) {
    const Result<std::string> device = DeviceOfType(type, devices);
    return device.ok() ? *device : device.status().message();
  };
  EXPECT_EQ(found("cuda0"), "cuda:0");
  EXPECT_EQ(found("cuda12"), "cuda:12");
  EXPECT_EQ(found("h100"), "cuda:0");
  EXPECT_EQ(found("nvidia_h100_80gb_hbm3"), "cuda:0");
  EXPECT_EQ(found("A100"), "cuda:12");
  EXPECT_THAT(found("l40"), HasSubstr("type 'l40' refers to none of this node's devices, cuda:0 "
                                      "(NVIDIA H100 80GB HBM3), cuda:1 (NVIDIA L40S), "));
  EXPECT_THAT(found("nvidia"), HasSubstr("type 'nvidia' refers to more than one"));
  EXPECT_THAT(found("cuda2"), HasSubstr("refers to none"));
}

class StepTermsTest : public ::testing::Test {
 protected:
  std::string Terms() {
    const auto terms = StepTerms(rules_, step_, has_, device_, options_);
    if (!terms.ok()) return "rejected: " + terms.status().message();
    return terms->value_or("nothing");
  }

  JobRules rules_ = Rules(
      "[qos.batch]\nclass = 'low'\nhighest_class = 'normal'\nhighest_share = '50%'\n"
      "highest_memory = '1GiB'\n");
  StepFacts step_ = {.job = 7, .step = "0", .uid = 1000, .tasks = 2, .qos = "batch"};
  Allocation has_ = {.share = 250, .memory_bytes = 512 * kMiB, .type = "cuda0"};
  std::string device_ = "cuda:0";
  StepOptions options_;
};

TEST_F(StepTermsTest, AreControllersTermsUnderQos) {
  EXPECT_EQ(Terms(), R"(name = "slurm-7-0"
budget = "slurm-7"
class = "low"
highest_class = "normal"
max_share = "25%"
memory = "536870912B"
client_memory = "268435456B"
clients_max = 32
devices = ["cuda:0"]
who = ["uid:1000"]
owner = ["hpc_job:7","hpc_step:0"]
)");
}

TEST_F(StepTermsTest, OptionsMayOnlyReduceEachClient) {
  options_ = {.scheduling_class = "normal", .share = "10%", .memory = "64MiB"};
  EXPECT_THAT(Terms(), AllOf(HasSubstr("\nclass = \"normal\"\nhighest_class = \"normal\""),
                             HasSubstr("max_share = \"25%\"\nclient_max_share = \"10%\""),
                             HasSubstr("client_memory = \"67108864B\"")));
  options_ = {.scheduling_class = "high"};
  EXPECT_EQ(Terms(),
            "rejected: class rejected: asked for high, allowed: normal [QOS 'batch', job 7]");
  options_ = {.share = "25.1%"};
  EXPECT_THAT(Terms(), HasSubstr("asked for 25.1%, allowed: the job's on this node, 25%"));
  options_ = {.memory = "513MiB"};
  EXPECT_THAT(Terms(), HasSubstr("asked for 513 MiB, allowed: the job's on this node, 512 MiB"));
}

TEST_F(StepTermsTest, RejectsGresAboveQos) {
  has_.share = 501;
  EXPECT_THAT(Terms(), HasSubstr("share rejected: asked for 50.1%, allowed: 50%"));
  has_.share = 500;
  has_.memory_bytes = 1025 * kMiB;
  EXPECT_THAT(Terms(), HasSubstr("memory rejected"));
}

TEST_F(StepTermsTest, StepWithoutShareGetsNothingByDefault) {
  has_ = {};
  EXPECT_EQ(Terms(), "nothing");
  options_.share = "10%";
  EXPECT_THAT(Terms(), HasSubstr("--gres=gpushared:N"));
  options_ = {};
  has_.memory_bytes = kMiB;
  EXPECT_THAT(Terms(), HasSubstr("--gres=gpushared:N"));
  has_ = {};
  device_ = "";
  rules_.needs_gres = false;
  EXPECT_THAT(Terms(), AllOf(HasSubstr("max_share = \"50%\""),
                             HasSubstr("memory = \"1073741824B\""), Not(HasSubstr("devices"))));
}

TEST_F(StepTermsTest, QosWithoutRuleIsRejectedOrGetsDefaultRule) {
  step_.qos = "na\nme";
  EXPECT_THAT(Terms(), HasSubstr("no rule for QOS 'na\\x0ame'"));
  rules_.of_others = QosRule();
  EXPECT_THAT(Terms(), HasSubstr("class = \"normal\""));
}

TEST_F(StepTermsTest, NamesDifferForEachStartOfAStep) {
  step_ = {.job = 4294967295, .step = "4294967290", .restarts = 4294967295, .qos = "batch"};
  EXPECT_THAT(Terms(), HasSubstr("name = \"slurm-4294967295-4294967290-r4294967295\""));
  EXPECT_THAT(Terms(), HasSubstr("clients_max = 32"));
  step_.tasks = 4294967295;
  EXPECT_THAT(Terms(), HasSubstr("clients_max = 8192"));
}

TEST(StepOptions, AreValidatedWhenEntered) {
  EXPECT_TRUE(CheckOptions({}).ok());
  EXPECT_TRUE(CheckOptions({.scheduling_class = "low", .share = "0.5%", .memory = "1KiB"}).ok());
  EXPECT_THAT(CheckOptions({.scheduling_class = "0"}).message(), HasSubstr("class rejected"));
  EXPECT_THAT(CheckOptions({.share = "0%"}).message(), HasSubstr("share rejected"));
  EXPECT_THAT(CheckOptions({.memory = "12"}).message(), HasSubstr("memory rejected"));
}

}  // namespace
}  // namespace gpushared::slurm

// SPDX-License-Identifier: Apache-2.0
#include "server/tools/cluster/kubernetes/dra/claim.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace gpushared::dra {
namespace {

using kubernetes::DeviceFacts;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
constexpr const char* kGpu = "GPU-5e1c0c3a-7d0b-4a86-9f52-4c0a7a2f9f11";

class ClaimTest : public ::testing::Test {
 protected:
  static json Result(const std::string& device = "gpu-0") {
    return {{"request", "gpu"},
            {"driver", "gpushared.io"},
            {"pool", "node-a"},
            {"device", device},
            {"consumedCapacity", {{"deviceTime", "250"}, {"memory", "8Gi"}}}};
  }
  static json Config(const std::string& source, json parameters) {
    parameters.update({{"apiVersion", "gpushared.io/v1"}, {"kind", "ClientTerms"}});
    return {{"source", source},
            {"opaque", {{"driver", "gpushared.io"}, {"parameters", std::move(parameters)}}}};
  }
  gpushared::Result<Claim> Read() const {
    return ReadClaim(
        name_,
        {{"metadata", {{"uid", name_.uid}, {"ownerReferences", owners_}}},
         {"status",
          {{"allocation", {{"devices", {{"results", results_}, {"config", configs_}}}}}}}},
        "node-a", devices_);
  }
  std::string Error() const { return Read().status().message(); }

  ClaimName name_ = {
      .space = "jobs", .name = "train", .uid = "0f8fad5b-d9cb-469f-a165-70867728950e"};
  json results_ = {Result()}, configs_ = json::array(), owners_ = json::array();
  std::vector<DeviceFacts> devices_ = {{.name = "gpu:0",
                                        .uuid = kGpu,
                                        .product = "NVIDIA H100",
                                        .memory_bytes = 80 * kGiB,
                                        .takes_clients = true},
                                       {.name = "gpu:1",
                                        .uuid = "GPU-1",
                                        .product = "",
                                        .memory_bytes = 80 * kGiB,
                                        .takes_clients = false}};
};

TEST_F(ClaimTest, LeasesWhatWasAllocated) {
  const auto claim = Read();
  ASSERT_TRUE(claim.ok()) << claim.status().message();
  EXPECT_EQ(claim->terms,
            "class = \"normal\"\nweight = 250\nmax_share = \"25%\"\nmemory = \"8589934592B\"\n"
            "client_memory = \"8589934592B\"\nname = \"claim-0f8fad5bd9cb469fa165708677\"\n"
            "who = \"everyone\"\ndevices = [\"gpu:0\"]\nowner = [\"namespace:jobs\"]\n");
  EXPECT_EQ(claim->variables.at("GPUSHARED_DEVICE"), "gpu:0");
}

TEST_F(ClaimTest, NamesThePodOfAClaimMadeFromATemplate) {
  owners_ = {{{"kind", "Job"}, {"name", "no pod"}}, {{"kind", "Pod"}, {"name", "train-0"}}};
  EXPECT_THAT(Read()->terms, HasSubstr("\nowner = [\"namespace:jobs\",\"pod:train-0\"]\n"));
}

TEST_F(ClaimTest, ClaimStaysWithinItsDeviceClass) {
  configs_ = {Config("FromClass", {{"class", "low"}, {"maxDeviceTime", 600U}, {"clients", 4U}}),
              Config("FromClaim", {{"maxDeviceTime", 500U}})};
  EXPECT_THAT(Read()->terms,
              AllOf(HasSubstr("class = \"low\""), HasSubstr("max_share = \"50%\""),
                    HasSubstr("weight = 62\n"), HasSubstr("client_memory = \"2147483648B\"")));
  configs_[1] = Config("FromClaim", {{"maxDeviceTime", 601U}});
  EXPECT_EQ(Error(),
            "claim 'jobs/train' rejected: maxDeviceTime of its config: asked for 601, allowed: "
            "250 (its deviceTime) to 600");
  configs_[1] = Config("FromClaim", {{"class", "normal"}});
  EXPECT_THAT(Error(), HasSubstr("asked for normal, allowed: low at most, by its DeviceClass"));
  configs_[1] = Config("FromClaim", {{"latencyTargetMs", 5}});
  EXPECT_THAT(Error(), HasSubstr("unless its class is high or its DeviceClass has one"));
  configs_[0] = Config("FromClass", {{"class", "high"}});
  EXPECT_EQ(Read()->variables.at("GPUSHARED_LATENCY_TARGET"), "5.0");
}

TEST_F(ClaimTest, ConfigAppliesToItsRequestsOnly) {
  configs_ = {Config("FromClass", {{"class", "low"}}), Config("FromClass", {{"class", "high"}})};
  configs_[1]["requests"] = {"other"};
  EXPECT_THAT(Read()->terms, HasSubstr("class = \"low\""));
  results_[0]["request"] = "other/first";
  EXPECT_THAT(Read()->terms, HasSubstr("class = \"high\""));
  configs_[1]["requests"] = {"other/second"};
  EXPECT_THAT(Read()->terms, HasSubstr("class = \"low\""));
}

TEST_F(ClaimTest, SeveralDevicesHaveOneEndpointAndOneMountForEachRequest) {
  results_ = {Result("gpu-0"), Result("gpu-1")};
  const auto claim = Read();
  ASSERT_TRUE(claim.ok()) << claim.status().message();
  EXPECT_THAT(claim->terms, HasSubstr("devices = [\"gpu:0\",\"gpu:1\"]"));
  EXPECT_FALSE(claim->variables.contains("GPUSHARED_DEVICE"));
  const ContainerSettings gate = {.drop_in = "", .gpu_cdi_kind = "nvidia.com/gpu"};
  EXPECT_THAT(
      GetCdiNames(*claim, claim->devices[0], gate),
      ElementsAre("gpushared.io/claim=" + name_.uid, std::string("nvidia.com/gpu=") + kGpu));
  EXPECT_THAT(GetCdiNames(*claim, claim->devices[1], gate), ElementsAre("nvidia.com/gpu=GPU-1"));
  results_[1]["consumedCapacity"]["deviceTime"] = "100";
  EXPECT_THAT(Error(), HasSubstr("devices: asked for different terms"));
}

TEST_F(ClaimTest, CdiFileContainsTheClaimAndWhatContainersGet) {
  const auto claim = Read();
  const json file = GetCdiFile(*claim, "/run/gpushared/gpushared.sock.leases/7/gpushared.sock",
                               {.drop_in = "/opt/drop_in", .gpu_cdi_kind = ""});
  const json& edits = file.at("devices").at(0).at("containerEdits");
  EXPECT_THAT(edits.at("env").dump(), HasSubstr("GPUSHARED_SOCKET=/run/gpushared/gpushared.sock"));
  EXPECT_EQ(edits.at("mounts").at(0).at("hostPath"), "/run/gpushared/gpushared.sock.leases/7");
  EXPECT_THAT(edits.at("mounts").at(0).at("options").dump(), HasSubstr("noexec"));
  EXPECT_THAT(edits.at("mounts").at(1).at("options").dump(), Not(HasSubstr("noexec")));
  const auto read = ReadCdiFile(file);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->terms, claim->terms);
  EXPECT_EQ(read->variables, claim->variables);
  EXPECT_EQ(read->name.uid, name_.uid);
  EXPECT_EQ(read->devices.at(0).uuid, kGpu);
  for (const char* other : {"null", "7", "{}", R"({"annotations":{"gpushared.io/prepared":"{}"}})",
                            R"({"annotations":{"gpushared.io/prepared":"["}})"}) {
    EXPECT_FALSE(ReadCdiFile(json::parse(other)).ok()) << other;
  }
}

TEST_F(ClaimTest, SliceOffersReadyDevices) {
  const json spec = GetSliceSpec("node-a", devices_, "0.1.0", 3);
  ASSERT_EQ(spec.at("devices").size(), 1U);
  EXPECT_EQ(spec.at("devices").at(0).at("attributes").at("uuid").at("string"), kGpu);
  EXPECT_EQ(spec.at("pool").at("generation"), 3);
}

TEST(Quantity, IsWholeNumberWithSuffix) {
  EXPECT_EQ(*ParseQuantity("0"), 0U);
  EXPECT_EQ(*ParseQuantity("1k"), 1000U);
  EXPECT_EQ(*ParseQuantity("8Gi"), 8 * kGiB);
  EXPECT_EQ(*ParseQuantity("15Ei"), std::uint64_t{15} << 60);
  for (const char* text :
       {"", "-1", "1.5Gi", "1m", "k", "16Ei", "99999999999999999999", "1 k", "1e3"}) {
    EXPECT_FALSE(ParseQuantity(text).ok()) << text;
  }
}

}  // namespace
}  // namespace gpushared::dra

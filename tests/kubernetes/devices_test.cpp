// SPDX-License-Identifier: Apache-2.0
#include "server/tools/cluster/kubernetes/devices.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace gpushared::kubernetes {
namespace {

using nlohmann::json;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::SizeIs;

json EndpointRow(const std::string& name, const std::vector<std::string>& devices = {}) {
  return {{"endpoint", name},
          {"socket", "/run/gpushared/" + name + "/gpushared.sock"},
          {"class", "low"},
          {"open", true},
          {"devices", devices}};
}

json DeviceRow(const std::string& name, const std::string& state = "ready") {
  return {{"device", name}, {"state", state}};
}

// A type for rows, because a single row in braces would be the row itself.
using Rows = std::vector<json>;

json Server(const Rows& devices, const std::string& state = "serving") {
  return {{"server", {{"state", state}}}, {"devices", devices}};
}

json Endpoints(const Rows& rows) { return {{"endpoints", rows}}; }

Offers Found(const Rows& endpoints, const json& status, const ShareCounts& counts = {}) {
  const Result<Offers> offers = GetOffers(Endpoints(endpoints), status, counts);
  EXPECT_TRUE(offers.ok()) << offers.status().ToString();
  return offers.ok() ? *offers : Offers();
}

std::vector<std::string> Ids(const Offer& offer) {
  std::vector<std::string> ids;
  for (const Share& share : offer.shares) ids.push_back(share.id);
  return ids;
}

TEST(Offers, EndpointHasSharesOfEachOfItsDevices) {
  json gpu = DeviceRow("cuda:1");
  gpu["uuid"] = "GPU-12345678-aaaa";
  const Offers found = Found(
      {EndpointRow("high"), EndpointRow("low", {"GPU-12345"}), EndpointRow("none", {"cuda:7"})},
      Server({DeviceRow("cuda:0"), gpu}), {.usual = 2, .of_endpoint = {{"low", 3}}});
  ASSERT_THAT(found.offers, SizeIs(3));
  EXPECT_EQ(found.offers[0].resource, "gpushared.io/high");
  EXPECT_THAT(Ids(found.offers[0]), ElementsAre("cuda:0/0", "cuda:0/1", "cuda:1/0", "cuda:1/1"));
  EXPECT_EQ(found.offers[1].resource, "gpushared.io/low");
  EXPECT_THAT(Ids(found.offers[1]), ElementsAre("cuda:1/0", "cuda:1/1", "cuda:1/2"));
  EXPECT_THAT(found.offers[2].shares, SizeIs(0)) << "a device that the server does not have";
}

TEST(Offers, ExcludesLeasesAndServersOwnSocket) {
  json lease = EndpointRow("lease-1"), main = EndpointRow("main"), closed = EndpointRow("old");
  lease["lessee"] = "uid 0";
  main.erase("class");
  closed["open"] = false;
  EXPECT_THAT(Found({lease, main, closed}, Server({DeviceRow("cpu:0")})).offers, SizeIs(0));
}

TEST(Offers, UnusableEndpointHidesNoOther) {
  json beside = EndpointRow("beside");
  beside["socket"] = "/run/gpushared/low.sock";
  const Offers found =
      Found({beside, EndpointRow("low")}, Server({DeviceRow("cpu:0")}), {.usual = 1});
  ASSERT_THAT(found.offers, SizeIs(1));
  EXPECT_EQ(found.offers[0].resource, "gpushared.io/low");
  EXPECT_THAT(found.rejections, ElementsAre(HasSubstr("holds the socket of 'low', too")));
}

TEST(Offers, SharesAreHealthyWhileDeviceAcceptsClients) {
  for (const std::string state : {"starting", "restarting", "missing", "draining", "drained",
                                  "leaving", "gone", "silent", "unheard-of"}) {
    const Offers found =
        Found({EndpointRow("low")}, Server({DeviceRow("cuda:0", state), DeviceRow("cuda:1")}),
              {.usual = 1});
    ASSERT_THAT(found.offers, SizeIs(1));
    EXPECT_FALSE(found.offers[0].shares[0].is_healthy) << state;
    EXPECT_TRUE(found.offers[0].shares[1].is_healthy) << state;
  }
  const Offers draining =
      Found({EndpointRow("low")}, Server({DeviceRow("cpu:0")}, "draining"), {.usual = 2});
  EXPECT_THAT(draining.offers[0].shares, Each(Field(&Share::is_healthy, false)));
}

TEST(Offers, RejectsInvalidAnswerOfServer) {
  const json fine = Server({DeviceRow("cpu:0")});
  json without_name = {{"device", 7}},
       no_list = {{"server", {{"state", "serving"}}}, {"devices", "x"}};
  for (const json& status :
       {json(json::object()), json(json::array()), no_list,
        json{{"server", "x"}, {"devices", json::array()}}, Server({json("x")}),
        Server({without_name}), Server({DeviceRow("")}), json{{"devices", json::array()}}}) {
    EXPECT_FALSE(GetOffers(Endpoints({EndpointRow("low")}), status, {}).ok()) << status.dump();
  }
  json odd = EndpointRow("low");
  odd["devices"] = json::array({7});
  EXPECT_FALSE(GetOffers(Endpoints({odd}), fine, {}).ok());
  EXPECT_FALSE(GetOffers(json::object(), fine, {}).ok());
}

TEST(Shares, CountsAreForAllEndpointsOrForOne) {
  const std::vector<std::string> words = {"8", "batch=16", "low=1"};
  const Result<ShareCounts> counts = ParseShareCounts(words);
  ASSERT_TRUE(counts.ok()) << counts.status().ToString();
  EXPECT_EQ(counts->usual, 8U);
  EXPECT_EQ(counts->of_endpoint,
            (std::map<std::string, std::size_t, std::less<>>{{"batch", 16}, {"low", 1}}));
  for (const std::string word :
       {"", "0", "1001", "x", "8x", "-1", "low=", "low=0", "=4", "a=b=4"}) {
    const std::vector<std::string> wrong = {word};
    EXPECT_THAT(ParseShareCounts(wrong).status().message(), HasSubstr("1 to 1000")) << word;
  }
}

class GrantTest : public ::testing::Test {
 protected:
  const Offer offer_ =
      Found({EndpointRow("low")}, Server({DeviceRow("cuda:0"), DeviceRow("cuda:1")}), {.usual = 2})
          .offers.at(0);

  Result<Grant> For(const std::vector<std::string>& ids) const { return GetGrant(offer_, ids); }
  std::vector<std::string> Preferred(const std::vector<std::string>& available, std::size_t size,
                                     const std::vector<std::string>& needed = {}) const {
    return GetPreferred(offer_, available, needed, size);
  }
};

TEST_F(GrantTest, AContainerGetsTheDirectoryOfTheEndpointAndTheSharesDevice) {
  const Result<Grant> grant = For({"cuda:1/0"});
  ASSERT_TRUE(grant.ok()) << grant.status().ToString();
  EXPECT_EQ(grant->variables, (std::map<std::string, std::string>{
                                  {"GPUSHARED_SOCKET", "/run/gpushared/gpushared.sock"},
                                  {"GPUSHARED_DEVICE", "cuda:1"}}));
  EXPECT_EQ(grant->directory, "/run/gpushared/low");
  EXPECT_EQ(grant->directory_inside, "/run/gpushared");
  EXPECT_EQ(grant->cdi_device, "gpushared.io/endpoint=low");
}

TEST_F(GrantTest, UnknownAndSeveralSharesAreRejected) {
  EXPECT_THAT(For({"cuda:2/0"}).status().message(),
              HasSubstr("'cuda:2/0' is none of the 4 shares of gpushared.io/low"));
  EXPECT_EQ(For({std::string(5000, 'x')}).status().code(), StatusCode::kNotFound);
  EXPECT_LT(For({std::string(5000, 'x')}).status().message().size(), 200U);
  EXPECT_THAT(For({"cuda:0/0", "cuda:0/1"}).status().message(),
              HasSubstr("asked for 2 of gpushared.io/low, allowed: 1 for each container"));
  EXPECT_THAT(For({}).status().message(), HasSubstr("asked for 0"));
}

TEST_F(GrantTest, TheDeviceWithMostSharesLeftIsPreferred) {
  EXPECT_THAT(Preferred({"cuda:0/1", "cuda:1/0", "cuda:1/1"}, 1), ElementsAre("cuda:1/0"));
  EXPECT_THAT(Preferred({"cuda:0/0", "cuda:0/1", "cuda:1/1"}, 1), ElementsAre("cuda:0/0"));
  EXPECT_THAT(Preferred({"cuda:0/0", "cuda:1/1"}, 2, {"cuda:1/1"}),
              ElementsAre("cuda:1/1", "cuda:0/0"));
  EXPECT_THAT(Preferred({"cuda:0/0"}, 1, {"cuda:1/0", "cuda:1/1"}), ElementsAre("cuda:1/0"));
  EXPECT_THAT(Preferred({"cuda:9/9", "cuda:0/0"}, 5), ElementsAre("cuda:0/0"))
      << "of shares that it does not have it prefers none";
  EXPECT_THAT(Preferred({}, 1), SizeIs(0));
}

}  // namespace
}  // namespace gpushared::kubernetes

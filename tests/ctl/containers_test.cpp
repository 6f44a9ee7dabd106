// SPDX-License-Identifier: Apache-2.0
#include "server/telemetry/admin/containers.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace gpushared::admin {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json Way(const std::string& name, const std::string& socket) {
  json row = {{"endpoint", name}, {"socket", socket}};
  if (name != "main") row["class"] = "low";
  return row;
}

json Answer(const json& endpoints) { return {{"endpoints", endpoints}}; }

// Returns the file that `gpusharedctl cdi` generates from an answer.
Result<json> GetFile(const json& answer) {
  const Result<std::vector<ContainerEndpoint>> endpoints = ReadContainerEndpoints(answer);
  if (!endpoints.ok()) return endpoints.status();
  return CdiFile(*endpoints);
}

TEST(Cdi, MakesDeviceOfEachConfiguredEndpoint) {
  json lease = Way("lease-1", "/run/gpushared/gpushared.sock.leases/1/gpushared.sock");
  lease["lessee"] = "uid 0";
  const Result<json> file = GetFile(Answer({Way("main", "/run/gpushared/gpushared.sock"),
                                            Way("batch", "/run/gpushared/batch/gpushared.sock"),
                                            Way("team", "/srv/team/own.sock"), lease}));
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(file->at("kind"), "gpushared.io/endpoint");
  const json& devices = file->at("devices");
  ASSERT_EQ(devices.size(), 2U) << "neither the server's own socket nor a lease";
  EXPECT_EQ(devices.at(0).at("name"), "batch");
  const json& batch = devices.at(0).at("containerEdits");
  EXPECT_EQ(batch.at("mounts").at(0).at("hostPath"), "/run/gpushared/batch");
  EXPECT_EQ(batch.at("mounts").at(0).at("containerPath"), "/run/gpushared");
  EXPECT_EQ(batch.at("env"), json({"GPUSHARED_SOCKET=/run/gpushared/gpushared.sock"}));
  EXPECT_EQ(devices.at(1).at("containerEdits").at("env"),
            json({"GPUSHARED_SOCKET=/run/gpushared/own.sock"}));
}

TEST(Cdi, RejectsDirectoryWithOtherSocket) {
  const Status beside = GetFile(Answer({Way("main", "/run/gpushared/gpushared.sock"),
                                        Way("batch", "/run/gpushared/batch.sock")}))
                            .status();
  EXPECT_EQ(beside.code(), StatusCode::kUnsupported);
  EXPECT_THAT(beside.message(), HasSubstr("/run/gpushared holds the socket of 'main', too"));
  // A path that merely begins with the same characters is not inside the directory.
  EXPECT_TRUE(GetFile(Answer({Way("a", "/run/a/s"), Way("ab", "/run/ab/s")})).ok());
  EXPECT_FALSE(GetFile(Answer({Way("a", "/run/x/../a/s"), Way("b", "/run/a/b/s")})).ok());
}

TEST(Cdi, AcceptsOnlyValidDeviceNames) {
  for (const std::string name : {"-a", "a_", ""}) {
    EXPECT_FALSE(GetFile(Answer({Way(name, "/run/x/s")})).ok()) << name;
  }
}

TEST(Cdi, OmitsClosedEndpoint) {
  json closed = Way("batch", "/run/gpushared/batch/gpushared.sock");
  closed["open"] = false;
  EXPECT_EQ(GetFile(Answer(json::array({closed}))).status().code(), StatusCode::kNotFound);
  closed["open"] = true;
  EXPECT_TRUE(GetFile(Answer(json::array({closed}))).ok());
}

TEST(Cdi, RejectsInvalidAndEmptyConfiguration) {
  for (const json& answer : {json::object(), Answer("x"), Answer({"x"}), Answer({json::object()}),
                             Answer(json::array()), Answer({Way("main", "/run/s")})}) {
    EXPECT_FALSE(GetFile(answer).ok()) << answer.dump();
  }
}

}  // namespace
}  // namespace gpushared::admin

// SPDX-License-Identifier: Apache-2.0
#include "server/tools/cluster/kubernetes/plugin.h"

#include <device_plugin.grpc.pb.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpushared/mutex.h"

#include "tests/support/scratch_directory.h"

#include <nlohmann/json.hpp>

namespace gpushared::kubernetes {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;

// The kubelet's side: accepts registrations like the real one.
class PlayedKubelet final : public v1beta1::Registration::Service {
 public:
  // A kubelet starts by removing files of others from the directory.
  explicit PlayedKubelet(const std::string& directory) : directory_(directory) {
    for (const auto& each : std::filesystem::directory_iterator(directory)) {
      std::filesystem::remove_all(each.path());
    }
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + directory + "/kubelet.sock",
                             grpc::InsecureServerCredentials());
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~PlayedKubelet() override { server_->Shutdown(std::chrono::system_clock::now()); }

  grpc::Status Register(grpc::ServerContext*, const v1beta1::RegisterRequest* request,
                        v1beta1::Empty*) override {
    const MutexLock lock(mutex_);
    if (!rejection_.empty()) return {grpc::StatusCode::UNKNOWN, rejection_};
    endpoints_[request->resource_name()] = request->endpoint();
    versions_.push_back(request->version());
    return grpc::Status::OK;
  }

  void Reject(const std::string& why) {
    const MutexLock lock(mutex_);
    rejection_ = why;
  }
  std::map<std::string, std::string> endpoints() {
    const MutexLock lock(mutex_);
    return endpoints_;
  }
  std::vector<std::string> versions() {
    const MutexLock lock(mutex_);
    return versions_;
  }
  std::unique_ptr<v1beta1::DevicePlugin::Stub> Dial(const std::string& resource) {
    return v1beta1::DevicePlugin::NewStub(grpc::CreateChannel(
        "unix:" + directory_ + "/" + endpoints()[resource], grpc::InsecureChannelCredentials()));
  }

 private:
  const std::string directory_;
  std::unique_ptr<grpc::Server> server_;
  Mutex mutex_;
  std::string rejection_ GPUSHARED_GUARDED_BY(mutex_);
  std::map<std::string, std::string> endpoints_ GPUSHARED_GUARDED_BY(mutex_);  // By resource.
  std::vector<std::string> versions_ GPUSHARED_GUARDED_BY(mutex_);
};

// A kubelet's watch of one resource's shares.
class Follower {
 public:
  explicit Follower(PlayedKubelet& kubelet, const std::string& resource = "gpushared.io/low")
      : stub_(kubelet.Dial(resource)), reader_(stub_->ListAndWatch(Bounded(context_), {})) {}
  ~Follower() {
    context_.TryCancel();
    reader_->Finish();
  }
  // Returns the next list: health by id.
  std::map<std::string, std::string> Next() {
    v1beta1::ListAndWatchResponse list;
    std::map<std::string, std::string> health;
    if (!reader_->Read(&list)) return {{"stream", "ended"}};
    for (const auto& device : list.devices()) health[device.id()] = device.health();
    return health;
  }

 private:
  // A list that never arrives is a failure, not an endless test.
  static grpc::ClientContext* Bounded(grpc::ClientContext& context) {
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    return &context;
  }

  grpc::ClientContext context_;
  std::unique_ptr<v1beta1::DevicePlugin::Stub> stub_;
  std::unique_ptr<grpc::ClientReader<v1beta1::ListAndWatchResponse>> reader_;
};

class PluginTest : public ::testing::Test {
 protected:
  PluginTest() {
    std::filesystem::create_directory(kubelet_directory_);
    std::filesystem::create_directory(cdi_directory_);
  }

  std::unique_ptr<Plugin> Start() {
    return std::make_unique<Plugin>(
        PluginSettings{.kubelet_directory = kubelet_directory_,
                       .cdi_directory = cdi_directory_,
                       .shares = {.usual = 1, .of_endpoint = {}}},
        [this](const ipc::Admin& question) -> Result<json> {
          if (!server_answers_) return Status(StatusCode::kUnavailable, "nobody is there");
          if (question.verb == ipc::AdminVerb::kStatus) return status_;
          return json{{"endpoints", endpoints_}};
        },
        [this](const std::string& message) { logged_.push_back(message); });
  }
  static json Way(const std::string& name) {
    return {{"endpoint", name},
            {"socket", "/run/gpushared/" + name + "/gpushared.sock"},
            {"class", "low"},
            {"open", true},
            {"devices", json::array()}};
  }

  testing::ScratchDirectory directory_;
  const std::string kubelet_directory_ = directory_ / "k", cdi_directory_ = directory_ / "c";
  const std::string cdi_file_ = cdi_directory_ + "/gpushared.io-endpoint.json";
  bool server_answers_ = true;
  json endpoints_ = json::array({Way("low")});
  json status_ = {{"server", {{"state", "serving"}}},
                  {"devices", json::array({{{"device", "cpu:0"}, {"state", "ready"}}})}};
  std::vector<std::string> logged_;
};

TEST_F(PluginTest, EachEndpointIsRegisteredAndFollowed) {
  PlayedKubelet kubelet(kubelet_directory_);
  endpoints_.push_back(Way("high"));
  const auto plugin = Start();
  plugin->Turn();
  EXPECT_THAT(kubelet.endpoints(), ElementsAre(Pair("gpushared.io/high", "gpushared-high.sock"),
                                               Pair("gpushared.io/low", "gpushared-low.sock")));
  EXPECT_THAT(kubelet.versions(), ElementsAre("v1beta1", "v1beta1"));
  Follower follower(kubelet);
  EXPECT_THAT(follower.Next(), ElementsAre(Pair("cpu:0/0", "Healthy")));
  plugin->Turn();
  EXPECT_EQ(kubelet.versions().size(), 2U) << "who is registered registers no second time";
}

TEST_F(PluginTest, StoppedServerHasNoHealthyShareUntilItReturns) {
  PlayedKubelet kubelet(kubelet_directory_);
  const auto plugin = Start();
  plugin->Turn();
  Follower follower(kubelet);
  EXPECT_THAT(follower.Next(), ElementsAre(Pair("cpu:0/0", "Healthy")));
  server_answers_ = false;
  plugin->Turn();
  EXPECT_THAT(follower.Next(), ElementsAre(Pair("cpu:0/0", "Unhealthy")));
  server_answers_ = true;
  plugin->Turn();
  EXPECT_THAT(follower.Next(), ElementsAre(Pair("cpu:0/0", "Healthy")));
  status_["devices"][0]["state"] = "drained";
  plugin->Turn();
  EXPECT_THAT(follower.Next(), ElementsAre(Pair("cpu:0/0", "Unhealthy")));
  endpoints_ = json::array({Way("other")});
  plugin->Turn();
  EXPECT_THAT(follower.Next(), IsEmpty()) << "the endpoint is gone";
}

TEST_F(PluginTest, RegistersAllResourcesWithRestartedKubelet) {
  auto kubelet = std::make_unique<PlayedKubelet>(kubelet_directory_);
  const auto plugin = Start();
  plugin->Turn();
  kubelet.reset();
  plugin->Turn();
  kubelet = std::make_unique<PlayedKubelet>(kubelet_directory_);
  EXPECT_THAT(kubelet->endpoints(), IsEmpty());
  plugin->Turn();
  EXPECT_THAT(kubelet->endpoints(), ElementsAre(Pair("gpushared.io/low", "gpushared-low.sock")));
  Follower follower(*kubelet);
  EXPECT_THAT(follower.Next(), ElementsAre(Pair("cpu:0/0", "Healthy")));
}

TEST_F(PluginTest, RegistersAgainIfKubeletDoesNotConnect) {
  PlayedKubelet kubelet(kubelet_directory_);
  const auto plugin = Start();
  for (int turn = 0; turn < 11; ++turn) plugin->Turn();
  EXPECT_EQ(kubelet.versions().size(), 2U);
}

TEST_F(PluginTest, ReportsKubeletOfOtherVersionOnceAndRetries) {
  PlayedKubelet kubelet(kubelet_directory_);
  kubelet.Reject("requested API version \"v1beta1\" is not supported by kubelet");
  const auto plugin = Start();
  for (int turn = 0; turn < 3; ++turn) plugin->Turn();
  int times = 0;
  for (const std::string& message : logged_) {
    if (message.find("is not supported by kubelet; this plugin speaks v1beta1") !=
        std::string::npos) {
      ++times;
    }
  }
  EXPECT_EQ(times, 1);
  kubelet.Reject("");
  plugin->Turn();
  EXPECT_EQ(kubelet.versions().size(), 1U);
}

TEST_F(PluginTest, AllocatedContainersGetDirectorySocketDeviceAndCdiName) {
  PlayedKubelet kubelet(kubelet_directory_);
  const auto plugin = Start();
  plugin->Turn();
  const auto stub = kubelet.Dial("gpushared.io/low");
  v1beta1::AllocateRequest request;
  request.add_container_requests()->add_devicesids("cpu:0/0");
  v1beta1::AllocateResponse response;
  grpc::ClientContext context;
  ASSERT_TRUE(stub->Allocate(&context, request, &response).ok());
  ASSERT_EQ(response.container_responses_size(), 1);
  const auto& given = response.container_responses(0);
  EXPECT_EQ(given.envs().at("GPUSHARED_SOCKET"), "/run/gpushared/gpushared.sock");
  EXPECT_EQ(given.envs().at("GPUSHARED_DEVICE"), "cpu:0");
  ASSERT_EQ(given.mounts_size(), 1);
  EXPECT_EQ(given.mounts(0).host_path(), "/run/gpushared/low");
  EXPECT_EQ(given.mounts(0).container_path(), "/run/gpushared");
  EXPECT_TRUE(given.mounts(0).read_only());
  ASSERT_EQ(given.cdi_devices_size(), 1);
  EXPECT_EQ(given.cdi_devices(0).name(), "gpushared.io/endpoint=low");

  request.add_container_requests()->add_devicesids("cpu:9/0");
  grpc::ClientContext again;
  const grpc::Status rejected = stub->Allocate(&again, request, &response);
  EXPECT_EQ(rejected.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(rejected.error_message(), HasSubstr("'cpu:9/0' is none of the 1 shares"));
}

TEST_F(PluginTest, TheCdiFileFollowsTheEndpointsAndEndsWithThePlugin) {
  PlayedKubelet kubelet(kubelet_directory_);
  auto plugin = Start();
  plugin->Turn();
  const auto names = [&] {
    std::vector<std::string> found;
    const json file = json::parse(std::ifstream(cdi_file_));
    for (const json& device : file.at("devices")) {
      found.push_back(device.at("name"));
    }
    return found;
  };
  EXPECT_THAT(names(), ElementsAre("low"));
  endpoints_.push_back(Way("batch"));
  plugin->Turn();
  EXPECT_THAT(names(), ElementsAre("batch", "low"));
  server_answers_ = false;
  plugin->Turn();
  EXPECT_THAT(names(), ElementsAre("batch", "low")) << "containers may start again meanwhile";
  server_answers_ = true;
  endpoints_ = json::array();
  plugin->Turn();
  EXPECT_FALSE(std::filesystem::exists(cdi_file_));
  endpoints_ = json::array({Way("low")});
  plugin->Turn();
  plugin.reset();
  EXPECT_THAT(std::filesystem::is_empty(cdi_directory_), true);
  std::vector<std::string> left;
  for (const auto& each : std::filesystem::directory_iterator(kubelet_directory_)) {
    left.push_back(each.path().filename());
  }
  EXPECT_THAT(left, ElementsAre("kubelet.sock"));
}

TEST_F(PluginTest, ReportsMissingKubeletOrDirectoryOnce) {
  std::filesystem::remove(cdi_directory_);
  const auto plugin = Start();
  plugin->Turn();
  plugin->Turn();
  EXPECT_THAT(logged_,
              Contains(HasSubstr("there is no kubelet yet: " + kubelet_directory_)).Times(1));
  EXPECT_THAT(logged_, Contains(HasSubstr("cannot write " + cdi_file_)).Times(1));
}

}  // namespace
}  // namespace gpushared::kubernetes

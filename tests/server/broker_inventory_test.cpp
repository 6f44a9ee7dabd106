// SPDX-License-Identifier: Apache-2.0
// A broker whose GPUs disappear and return: real worker processes without devices, and an inventory
// that the test writes.

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/post.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include "ipc/unix_socket.h"
#include "server/broker/broker.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/server_process.h"

#include <nlohmann/json.hpp>

namespace gpushared::server {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using gpushared::testing::Eventually;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

ipc::Deadline InTime() { return std::chrono::steady_clock::now() + 20s; }

device::Gpu GetGpu(std::uint32_t index, const std::string& uuid) {
  return {.index = index, .uuid = uuid, .name = "NVIDIA H200"};
}

// The inventory that the broker reads. Shared, because a read that is in progress when the broker
// ends outlives the test.
struct Machine {
  std::mutex mutex;
  device::Inventory inventory;
  int looks = 0;
};

class BrokerInventory : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.socket_path = directory_ / "s";
    options_.own_uid = ::geteuid();
    options_.policy = "priority";
    options_.stop_grace = 200ms;
    options_.inventory_interval = 5ms;
    options_.read_inventory = [machine = machine_] {
      const std::lock_guard lock(machine->mutex);
      ++machine->looks;
      return machine->inventory;
    };
    options_.launch = [this](const device::SelectedDevice& device, std::uint32_t generation) {
      return WorkerProcess::Launch{
          .program = GPUSHARED_FAKE_WORKER,
          .arguments = {std::to_string(generation), behaviour_(device.uuid, generation)}};
    };
    SetGpus({GetGpu(0, "GPU-a"), GetGpu(1, "GPU-b")});
  }
  void TearDown() override {
    for (int i = 0; i < 2 && broker_; ++i) {
      boost::asio::post(context_, [this] { broker_->Stop("the test"); });
    }
    if (thread_.joinable()) thread_.join();
    broker_.reset();
  }

  void SetGpus(std::vector<device::Gpu> gpus) {
    const std::lock_guard lock(machine_->mutex);
    machine_->inventory.gpus = std::move(gpus);
  }
  int looks() {
    const std::lock_guard lock(machine_->mutex);
    return machine_->looks;
  }
  void AwaitChecks(int more) {
    const int before = looks();
    EXPECT_TRUE(Eventually([&] { return looks() >= before + more; }));
  }

  void StartBroker() {
    {
      const std::lock_guard lock(machine_->mutex);
      options_.devices = device::SelectDevices("auto", machine_->inventory)->devices;
    }
    auto log = std::make_shared<spdlog::logger>(
        "broker", std::make_shared<spdlog::sinks::ostream_sink_mt>(log_text_));
    broker_ = std::make_unique<Broker>(context_, options_, log);
    ASSERT_TRUE(broker_->Start().ok());
    thread_ = std::thread([this] { context_.run(); });
    for (const device::SelectedDevice& device : options_.devices) AwaitState(device.id, "ready");
  }

  template <typename T>
  Result<ipc::Frame> Ask(const ipc::UniqueFd& socket, const T& message) {
    const Status sent = ipc::SendMessage(socket.get(), 5, message, InTime());
    if (!sent.ok()) return sent;
    return ipc::ReceiveFrame(socket.get(), ipc::ServerFrameRules, InTime());
  }
  Result<ipc::UniqueFd> Join(const std::string& device) {
    Result<ipc::UniqueFd> socket = ipc::ConnectUnix(options_.socket_path, InTime());
    if (!socket.ok()) return socket.status();
    ipc::Hello hello;
    hello.name = "one";
    hello.device = device;
    const Result<ipc::Frame> frame = Ask(*socket, hello);
    if (!frame.ok()) return frame.status();
    const Result<ipc::Done> welcomed = ipc::DecodeReply<ipc::Done>(*frame);
    if (!welcomed.ok()) return welcomed.status();
    return socket;
  }
  Status Why(std::uint64_t session) {
    const Result<ipc::UniqueFd> socket = ipc::ConnectUnix(options_.socket_path, InTime());
    const Result<ipc::Frame> frame = Ask(*socket, ipc::Why{session});
    if (!frame.ok()) return frame.status();
    const Result<ipc::Ended> ended = ipc::DecodeReply<ipc::Ended>(*frame);
    return ended.ok() ? ended->status : ended.status();
  }
  json Devices() {
    const Result<ipc::UniqueFd> socket = ipc::ConnectUnix(options_.socket_path, InTime());
    if (!socket.ok()) return json::object();
    ipc::Admin admin;
    admin.verb = ipc::AdminVerb::kDevices;
    const Result<ipc::Frame> frame = Ask(*socket, admin);
    if (!frame.ok()) return json::object();
    const Result<ipc::AdminReply> reply = ipc::DecodeReply<ipc::AdminReply>(*frame);
    return reply.ok() ? json::parse(reply->text) : json::object();
  }
  json Device(const std::string& id) {
    const json reply = Devices();
    for (const json& device : reply.value("devices", json::array())) {
      if (device.at("device") == id) return device;
    }
    return json::object();
  }
  void AwaitState(const std::string& id, const std::string& state) {
    EXPECT_TRUE(Eventually([&] { return Device(id).value("state", "") == state; }))
        << id << " is not " << state << ": " << Device(id).dump();
  }

  std::function<std::string(const std::string&, std::uint32_t)> behaviour_ =
      [](const std::string&, std::uint32_t) { return "normal"; };
  BrokerOptions options_;
  const std::shared_ptr<Machine> machine_ = std::make_shared<Machine>();
  boost::asio::io_context context_;

 private:
  const testing::ScratchDirectory directory_;
  std::ostringstream log_text_;
  std::unique_ptr<Broker> broker_;
  std::thread thread_;
};

TEST_F(BrokerInventory, MissingGpuEndsSessionsAndHasNoWorkerUntilItReturns) {
  StartBroker();
  const auto client = Join("cuda:0");
  ASSERT_TRUE(client.ok());
  SetGpus({GetGpu(0, "GPU-b")});
  AwaitState("cuda:0", "missing");
  EXPECT_EQ(Device("cuda:0").at("missing"), "the driver no longer reports it");
  EXPECT_EQ(Device("cuda:0").at("worker_pid"), 0);
  const Status why = Why(1);
  EXPECT_EQ(why.code(), StatusCode::kDeviceLost);
  EXPECT_THAT(why.message(),
              HasSubstr("the device has disappeared: the driver no longer reports it"));
  AwaitChecks(10);
  EXPECT_EQ(Device("cuda:0").at("generation"), 1) << "nothing is started for what is not there";

  // A client that names the device is rejected at once. A client that names none gets an available
  // one.
  const Status rejected = Join("cuda:0").status();
  EXPECT_EQ(rejected.code(), StatusCode::kUnavailable);
  EXPECT_THAT(rejected.message(),
              HasSubstr("device cuda:0 is missing: the driver no longer reports"));
  EXPECT_TRUE(Join("").ok());
  EXPECT_EQ(Device("cuda:1").at("state"), "ready");

  SetGpus({GetGpu(0, "GPU-a"), GetGpu(1, "GPU-b")});
  AwaitState("cuda:0", "ready");
  EXPECT_EQ(Device("cuda:0").at("generation"), 2);
  EXPECT_FALSE(Device("cuda:0").contains("missing"));
  EXPECT_TRUE(Join("cuda:0").ok());
  // A device that has returned behaves like any other.
  ::kill(Device("cuda:0").at("worker_pid"), SIGKILL);
  EXPECT_TRUE(Eventually([&] { return Device("cuda:0").at("generation") == 3; }));
  AwaitState("cuda:0", "ready");
}

// The reason for the drain has passed when the device returns, so no operator has to resume it.
TEST_F(BrokerInventory, DrainedDeviceIsResumedWhenItReturns) {
  StartBroker();
  const Result<ipc::UniqueFd> socket = ipc::ConnectUnix(options_.socket_path, InTime());
  ASSERT_TRUE(socket.ok());
  ASSERT_TRUE(Ask(*socket, ipc::Admin{.verb = ipc::AdminVerb::kDrain, .terms = "cuda:0"}).ok());
  AwaitState("cuda:0", "drained");
  AwaitChecks(10);
  EXPECT_EQ(Device("cuda:0").at("state"), "drained") << "it is there, and nobody resumed it";
  SetGpus({GetGpu(0, "GPU-b")});
  AwaitState("cuda:0", "missing");
  SetGpus({GetGpu(0, "GPU-a"), GetGpu(1, "GPU-b")});
  AwaitState("cuda:0", "ready");
}

TEST_F(BrokerInventory, SingleInventoryWithoutGpuEndsNoSession) {
  options_.read_inventory = [this, read = options_.read_inventory] {
    device::Inventory inventory = read();
    const int look = looks();
    if (look % 2 == 0) inventory.gpus.clear();
    if (look % 3 == 0) inventory.unavailable = "NVML does not answer";
    return inventory;
  };
  StartBroker();
  const auto client = Join("cuda:0");
  ASSERT_TRUE(client.ok());
  AwaitChecks(20);
  EXPECT_EQ(Device("cuda:0").at("state"), "ready");
  EXPECT_EQ(Device("cuda:0").at("generation"), 1);
}

TEST_F(BrokerInventory, UnresponsiveDriverEndsNoWorkerButDelaysRestart) {
  // Makes the next workers exit at their start.
  behaviour_ = [](const std::string& uuid, std::uint32_t generation) {
    return uuid == "GPU-a" && generation > 1 ? "unable" : "normal";
  };
  StartBroker();
  device::Gpu silent = GetGpu(0, "GPU-a");
  silent.trouble = "nvmlDeviceGetName: Unknown Error (999)";
  SetGpus({silent, GetGpu(1, "GPU-b")});
  AwaitChecks(10);
  EXPECT_EQ(Device("cuda:0").at("state"), "ready");
  ::kill(Device("cuda:0").at("worker_pid"), SIGKILL);
  AwaitState("cuda:0", "missing");
  EXPECT_THAT(Device("cuda:0").at("missing"), HasSubstr("Unknown Error (999)"));
  const int generation = Device("cuda:0").at("generation");
  AwaitChecks(20);
  EXPECT_EQ(Device("cuda:0").at("generation"), generation);
}

TEST_F(BrokerInventory, DoesNotRestartWorkerOfMissingDevice) {
  behaviour_ = [](const std::string& uuid, std::uint32_t generation) {
    return uuid == "GPU-a" && generation > 1 ? "unable" : "normal";
  };
  StartBroker();
  std::unique_lock look_is_held(machine_->mutex);
  ::kill(Device("cuda:0").at("worker_pid"), SIGKILL);
  ASSERT_TRUE(Eventually([&] { return Device("cuda:0").value("generation", 0) == 4; }));
  AwaitState("cuda:0", "restarting");
  // While the broker is busy, its wait for generation 5 times out and the inventory read finishes.
  boost::asio::post(context_, [] { ::usleep(1'000'000); });
  machine_->inventory.gpus = {GetGpu(0, "GPU-b")};
  look_is_held.unlock();
  AwaitState("cuda:0", "missing");
  EXPECT_EQ(Device("cuda:0").at("generation"), 4);
}

TEST_F(BrokerInventory, RejectsWaitingClientWhenDeviceDisappears) {
  behaviour_ = [](const std::string& uuid, std::uint32_t generation) {
    return uuid == "GPU-a" && generation > 1 ? "slow" : "normal";
  };
  options_.patience = std::chrono::hours(1);
  StartBroker();
  ::kill(Device("cuda:0").at("worker_pid"), SIGKILL);
  AwaitState("cuda:0", "starting");
  Status rejected;
  std::thread waiting([&] { rejected = Join("cuda:0").status(); });
  ::usleep(20'000);
  SetGpus({GetGpu(0, "GPU-b")});
  waiting.join();
  EXPECT_EQ(rejected.code(), StatusCode::kUnavailable);
  EXPECT_THAT(rejected.message(), HasSubstr("is missing: the driver no longer reports it"));
}

TEST_F(BrokerInventory, NewGpusBecomeDevicesIfAllWereRequested) {
  options_.takes_new_devices = true;
  StartBroker();
  device::Gpu cut = GetGpu(3, "GPU-d");
  cut.mig_enabled = true;
  cut.instances = {{.uuid = "MIG-d1"}};
  device::Gpu closed = GetGpu(4, "GPU-e");
  closed.mode = device::GpuMode::kProhibited;
  // The numbers shift, and the GPU that now has number 1 did not exist when the server started.
  SetGpus({GetGpu(0, "GPU-a"), GetGpu(1, "GPU-c"), GetGpu(2, "GPU-b"), cut, closed});
  AwaitState("MIG-d1", "ready");
  AwaitState("cuda:2", "ready");
  EXPECT_EQ(Device("cuda:2").at("uuid"), "GPU-c");
  EXPECT_EQ(Device("cuda:1").at("uuid"), "GPU-b");
  EXPECT_TRUE(Join("MIG-d1").ok());
  const json unused = Devices().at("unused_devices");
  ASSERT_EQ(unused.size(), 1U) << unused.dump();
  EXPECT_THAT(unused[0].at("why"), HasSubstr("PROHIBITED"));
}

TEST_F(BrokerInventory, NewGpusAreOnlyReportedIfDevicesWereNamed) {
  StartBroker();
  SetGpus({GetGpu(0, "GPU-a"), GetGpu(1, "GPU-b"), GetGpu(2, "GPU-c")});
  EXPECT_TRUE(Eventually([&] { return Devices().at("unused_devices").size() == 1; }));
  EXPECT_EQ(Devices().at("unused_devices")[0].at("why"), "not named by the device option");
  EXPECT_EQ(Devices().at("devices").size(), 2U);
}

TEST_F(BrokerInventory, NewGpuThatFailsToOpenIsTriedOnce) {
  options_.takes_new_devices = true;
  behaviour_ = [](const std::string& uuid, std::uint32_t) {
    return uuid == "GPU-c" ? "unable" : "normal";
  };
  StartBroker();
  const std::vector<device::Gpu> with = {GetGpu(0, "GPU-a"), GetGpu(1, "GPU-b"),
                                         GetGpu(2, "GPU-c")};
  SetGpus(with);
  AwaitState("cuda:2", "missing");
  EXPECT_THAT(Device("cuda:2").at("missing"),
              AllOf(HasSubstr("could not be opened"), HasSubstr("exited with code 1")));
  AwaitChecks(10);
  EXPECT_EQ(Device("cuda:2").at("generation"), 1);
  EXPECT_TRUE(Join("cuda:1").ok());
  // A GPU that returns after an absence counts as a new one.
  SetGpus({GetGpu(0, "GPU-a"), GetGpu(1, "GPU-b")});
  AwaitChecks(5);
  SetGpus(with);
  EXPECT_TRUE(Eventually([&] { return Device("cuda:2").at("generation") == 2; }));
}

}  // namespace
}  // namespace gpushared::server

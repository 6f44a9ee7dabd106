// SPDX-License-Identifier: Apache-2.0
#include "server/broker/broker.h"

#include <errno.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ipc/unix_socket.h"
#include "tests/server/broker_case.h"
#include "tests/server/other_user.h"
#include "tests/support/passed_descriptor.h"
#include "tests/support/server_process.h"

#include <nlohmann/json.hpp>

namespace gpushared::server {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using std::chrono_literals::operator""us;
using gpushared::testing::ActingAs;
using gpushared::testing::AsNobody;
using gpushared::testing::AsUser;
using gpushared::testing::Eventually;
using gpushared::testing::kNobody;
using gpushared::testing::OpenFileDescriptors;
using gpushared::testing::ProgramOutcome;
using gpushared::testing::RunProgram;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

TEST_F(BrokerTest, HandsClientToWorkerAndDetectsItsEnd) {
  StartBroker();
  Result<ipc::UniqueFd> client = Join(Hello("one"));
  ASSERT_TRUE(client.ok()) << client.status().message();
  EXPECT_EQ(Sessions(0), 1U);
  client->Reset();
  EXPECT_TRUE(Eventually([&] { return Sessions(0) == 0; }));
}

TEST_F(BrokerTest, ClientsSpreadOverDevicesUnlessTheyNameOne) {
  options_.devices = {{.id = "fake:0"}, {.id = "fake:1"}};
  StartBroker();
  ASSERT_TRUE(Eventually(
      [&] { return Device(0).at("state") == "ready" && Device(1).at("state") == "ready"; }));
  const auto a = Join(Hello("a")), b = Join(Hello("b"));
  EXPECT_EQ(Sessions(0), 1U);
  EXPECT_EQ(Sessions(1), 1U);
  const auto c = Join(Hello("c", "fake:1"));
  EXPECT_EQ(Sessions(1), 2U);
  const auto d = Join(Hello("d", "cuda:7"));
  EXPECT_EQ(d.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(d.status().message(), HasSubstr("fake:0, fake:1"));
}

// While a preempted process holds a part of a child's /proc directory, the kernel spins in the
// process that reaps the child. Workers are therefore reaped on a separate thread, so that this
// spinning never blocks the broker's event loop.
TEST_F(BrokerTest, ReapsWorkersOutsideTheEventLoop) {
  StartBroker();
  ASSERT_TRUE(Eventually([&] { return Device(0).at("state") == "ready"; }));
  const pid_t first = WorkerPid();
  ::kill(first, SIGKILL);
  EXPECT_TRUE(Eventually([&] { return ::kill(first, 0) == -1 && errno == ESRCH; }));
  ASSERT_TRUE(Eventually([&] { return Device(0).at("state") == "ready"; }));
  const pid_t last = WorkerPid();
  Stop();
  WaitForEnd();
  siginfo_t info{};
  EXPECT_EQ(::waitid(P_PID, static_cast<id_t>(last), &info, WEXITED | WNOHANG), 0);
  EXPECT_EQ(info.si_pid, last) << "the broker did not wait for it";
}

TEST_F(BrokerTest, ClassAboveTheRuleIsRejectedWithTheReason) {
  AccessRule rule;
  rule.label = "everyone";
  rule.highest_class = scheduler::SchedulingClass::kLow;
  options_.rules.access = {rule};
  StartBroker();
  const auto rejected = Join(Hello("greedy", "", SchedulingClass::kNormal));
  EXPECT_EQ(rejected.status().code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(rejected.status().message(), HasSubstr("at most low"));
  EXPECT_TRUE(Join(Hello("modest", "", SchedulingClass::kLow)).ok());
  EXPECT_TRUE(Join(Hello("silent about it")).ok());
}

TEST_F(BrokerTest, RejectsLatencyTargetThatRuleForbidsWithReason) {
  AccessRule rule;
  rule.label = "everyone";
  options_.rules.access = {rule};
  StartBroker();
  ipc::Hello hello = Hello("pushy");
  hello.latency_target_ns = 5'000'000;
  const auto rejected = Join(hello);
  EXPECT_EQ(rejected.status().code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(rejected.status().message(), HasSubstr("asked for 5 ms"));
}

TEST_F(BrokerTest, LimitsClientsOfOneUidUntilOneLeaves) {
  AccessRule rule;
  rule.label = "everyone";
  rule.clients_max = 1;
  options_.rules.access = {rule};
  StartBroker();
  auto first = Join(Hello("first"));
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(Join(Hello("second")).status().code(), StatusCode::kLimitExceeded);
  first->Reset();
  EXPECT_TRUE(Eventually([&] { return Join(Hello("third")).ok(); }));
}

TEST_F(BrokerTest, ReplacesKilledWorkerAndTellsItsClientsWhy) {
  StartBroker();
  const auto client = Join(Hello("victim"));
  ASSERT_TRUE(client.ok());
  const pid_t worker = WorkerPid();
  ::kill(worker, SIGKILL);
  EXPECT_TRUE(AtEof(*client));
  const Status why = Why(1);
  EXPECT_EQ(why.code(), StatusCode::kDeviceLost);
  EXPECT_THAT(why.message(), HasSubstr("generation 1"));
  EXPECT_THAT(why.message(), HasSubstr("signal 9 (Killed), by a user or by the kernel"));
  EXPECT_THAT(why.message(), HasSubstr("alone"));
  const auto next = Join(Hello("next"));  // The join waits for the new worker.
  ASSERT_TRUE(next.ok()) << next.status().message();
  EXPECT_EQ(Device(0).at("generation"), 2);
  EXPECT_NE(WorkerPid(), worker);
}

// A worker whose device has died takes a moment to exit, and a client that reconnects in the
// meantime must not be sent to it.
TEST_F(BrokerTest, AWorkerThatHasLostItsDeviceGetsNoFurtherClients) {
  behaviour_ = [](const std::string&, std::uint32_t generation) {
    return generation == 1 ? "losing" : "";
  };
  StartBroker();
  const auto client = Join(Hello("culprit"));
  ASSERT_TRUE(client.ok());
  EXPECT_TRUE(AtEof(*client));
  const auto back = Join(Hello("back"));
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(Device(0).at("generation"), 2);
  EXPECT_THAT(std::string(Device(0).at("last_death")),
              HasSubstr("exited with code 3: the device died"));
  EXPECT_EQ(Why(1).message(), "killed by session 1");
}

TEST_F(BrokerTest, ClientsNameDevicesByUuidToo) {
  options_.devices = {{.id = "cuda:0", .uuid = "GPU-aa11"},
                      {.id = "cuda:1", .uuid = "GPU-aa22"},
                      {.id = "MIG-bb11", .uuid = "MIG-bb11"}};
  StartBroker();
  const auto whole = Join(Hello("whole", "GPU-aa22"));
  const auto beginning = Join(Hello("beginning", "MIG-b"));
  const auto by_number = Join(Hello("by number", "cuda:1"));
  ASSERT_TRUE(whole.ok() && beginning.ok() && by_number.ok());
  EXPECT_EQ(Sessions(0), 0U);
  EXPECT_EQ(Sessions(1), 2U);
  EXPECT_EQ(Sessions(2), 1U);
  EXPECT_THAT(Join(Hello("either", "GPU-aa")).status().message(),
              HasSubstr("asked for 'GPU-aa', with which several UUIDs begin, this server has "
                        "cuda:0, cuda:1, MIG-bb11"));
  EXPECT_THAT(Join(Hello("neither", "GPU-cc")).status().message(),
              HasSubstr("asked for 'GPU-cc', this server has cuda:0"));
  EXPECT_FALSE(Join(Hello("a kind", "MIG-")).ok());
}

TEST_F(BrokerTest, WorkerSeesOnlyItsOwnDevice) {
  ::setenv("CUDA_VISIBLE_DEVICES", "the broker's", 1);
  options_.devices = {{.id = "MIG-1", .visible_devices = "MIG-1"}, {.id = "fake:0"}};
  options_.launch = [launch = options_.launch](const device::SelectedDevice& device,
                                               std::uint32_t generation) {
    WorkerProcess::Launch made = launch(device, generation);
    if (!device.visible_devices.empty()) {
      made.environment = {"CUDA_VISIBLE_DEVICES=" + device.visible_devices};
    }
    return made;
  };
  StartBroker();
  ASSERT_TRUE(Eventually(
      [&] { return Device(0).at("state") == "ready" && Device(1).at("state") == "ready"; }));
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(Device(0).at("name"), "fake device that sees MIG-1");
  EXPECT_EQ(Device(1).at("name"), "fake device that sees the broker's");
}

TEST_F(BrokerTest, OperatorsSeeUsedAndUnusedDevices) {
  options_.devices = {{.id = "cuda:0",
                       .uuid = "GPU-aa11",
                       .name = "NVIDIA H200",
                       .pci_bus = "00000000:17:00.0",
                       .memory_bytes = 1 << 30,
                       .multiprocessors = 132}};
  options_.unused_devices = {{.id = "cuda:1", .name = "NVIDIA A30", .why = "it is lost"}};
  StartBroker();
  ASSERT_TRUE(Eventually([&] { return Device(0).at("state") == "ready"; }));
  EXPECT_EQ(Device(0).at("uuid"), "GPU-aa11");
  EXPECT_EQ(Device(0).at("pci_bus"), "00000000:17:00.0");
  EXPECT_EQ(Device(0).at("name"), "fake device");  // The worker's own report has precedence.
  const ProgramOutcome table = Ctl({"devices", "--wide"});
  EXPECT_EQ(table.exit_code, 0);
  EXPECT_THAT(table.output, AllOf(HasSubstr("GPU-aa11"), HasSubstr("00000000:17:00.0"),
                                  HasSubstr("not used: cuda:1, NVIDIA A30: it is lost")));
}

TEST_F(BrokerTest, OpeningDeviceReportsInventoryFacts) {
  options_.devices = {
      {.id = "cuda:0", .name = "NVIDIA H200", .memory_bytes = 1 << 30, .multiprocessors = 132}};
  behaviour_ = [](const std::string&, std::uint32_t) { return "slow"; };
  StartBroker();
  EXPECT_EQ(Device(0).at("state"), "starting");
  EXPECT_EQ(Device(0).at("name"), "NVIDIA H200");
  EXPECT_EQ(Device(0).at("memory_bytes"), 1 << 30);
  EXPECT_EQ(Device(0).at("multiprocessors"), 132);
}

TEST_F(BrokerTest, DeathOfWorkerDoesNotAffectOtherWorkers) {
  options_.devices = {{.id = "fake:0"}, {.id = "fake:1"}};
  StartBroker();
  const auto a = Join(Hello("a", "fake:0"));
  const auto b = Join(Hello("b", "fake:1"));
  ASSERT_TRUE(a.ok() && b.ok());
  ::kill(WorkerPid(), SIGKILL);
  EXPECT_TRUE(AtEof(*a));
  EXPECT_EQ(Device(1).at("generation"), 1);
  EXPECT_EQ(Sessions(1), 1U);
}

TEST_F(BrokerTest, ReplacesWorkerThatSendsInvalidMessage) {
  behaviour_ = [](const std::string&, std::uint32_t generation) {
    return generation == 1 ? "mad" : "normal";
  };
  StartBroker();
  EXPECT_FALSE(Join(Hello("first")).ok());
  EXPECT_TRUE(Join(Hello("second")).ok());
  EXPECT_EQ(Device(0).at("generation"), 2);
}

TEST_F(BrokerTest, DeviceThatCannotBeOpenedAtStartEndsTheServer) {
  behaviour_ = [](const std::string&, std::uint32_t) { return "unable"; };
  StartBroker();
  WaitForEnd();
  EXPECT_EQ(broker_->exit_code(), 1);
  EXPECT_THAT(log_text_.str(), HasSubstr("could not be opened"));
}

TEST_F(BrokerTest, AnswersWhyOnlyToProcessThatOwnedSession) {
  StartBroker();
  auto client = Join(Hello("one"));
  ASSERT_TRUE(client.ok());
  client->Reset();
  ASSERT_TRUE(Eventually([&] { return Sessions(0) == 0; }));
  EXPECT_EQ(Why(1).code(), StatusCode::kDisconnected);
  EXPECT_EQ(Why(4711).code(), StatusCode::kNotFound);
  EXPECT_THAT(Why(4711).message(),
              HasSubstr("session 4711 of this process is unknown: the server was restarted "
                        "together with its worker, or the session ended long ago"));
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  EXPECT_EQ(AsNobody([&] { return Why(1).code() == StatusCode::kNotFound ? 0 : 1; }), 0);
}

TEST_F(BrokerTest, AllowsAdministrationOnlyToRootAndOwner) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  StartBroker();
  EXPECT_TRUE(Admin(Verb(ipc::AdminVerb::kStatus)).ok());
  EXPECT_EQ(AsNobody([&] {
              const Result<ipc::AdminReply> reply = Admin(Verb(ipc::AdminVerb::kDrain));
              return reply.status().code() == StatusCode::kPermissionDenied ? 0 : 1;
            }),
            0);
  EXPECT_TRUE(Join(Hello("still served")).ok());
}

TEST_F(BrokerTest, SendsCompleteAnswerForManyClients) {
  constexpr std::size_t kClients = 500;
  behaviour_ = [](const std::string&, std::uint32_t) { return "verbose"; };
  AccessRule rule;
  rule.label = "everyone";
  rule.clients_max = kClients;
  options_.rules.access = {rule};
  StartBroker();
  std::vector<ipc::UniqueFd> clients;
  for (std::size_t i = 0; i < kClients; ++i) {
    auto client = Join(Hello(std::string(60, 'n')));
    ASSERT_TRUE(client.ok()) << client.status().message();
    clients.push_back(std::move(*client));
  }
  const Result<json> ps = Answer(ipc::AdminVerb::kClients);
  ASSERT_TRUE(ps.ok()) << ps.status().message();
  EXPECT_EQ(ps->at("clients").size(), kClients);
  EXPECT_GT(ps->dump().size(), 700 * kClients) << "real rows are longer";
  EXPECT_EQ(ps->at("clients").at(kClients - 1).at("facts").get<std::string>().size(), 500U);
  const json by_ctl = json::parse(Ctl({"ps", "--json"}).output);
  EXPECT_EQ(by_ctl.at("clients").size(), kClients);
  const std::string table = Ctl({"ps"}).output;
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), kClients + 1);
}

TEST_F(BrokerTest, SendsWorkersAnswerInPages) {
  behaviour_ = [](const std::string&, std::uint32_t) { return "verbose"; };
  StartBroker();
  ASSERT_TRUE(Join(Hello("one")).ok());
  const Result<json> status = Answer(ipc::AdminVerb::kStatus);
  ASSERT_TRUE(status.ok()) << status.status().message();
  EXPECT_EQ(status->at("devices").at(0).at("padding").get<std::string>().size(),
            3 * ipc::kPageTextBytesMax);
}

TEST_F(BrokerTest, StopsReadingEndlessWorkerAnswer) {
  behaviour_ = [](const std::string&, std::uint32_t) { return "endless"; };
  StartBroker();
  ASSERT_TRUE(Eventually([&] { return Device(0).at("state") == "ready"; }));
  const Result<json> status = Answer(ipc::AdminVerb::kStatus);
  ASSERT_TRUE(status.ok()) << status.status().message();
  EXPECT_EQ(status->at("silent_devices").at(0), "fake:0");
}

TEST_F(BrokerTest, AllowsObserversOnlyToRead) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to be another user";
  options_.rules.observers = {{.kind = Subject::Kind::kUser, .id = kNobody}};
  StartBroker();
  ASSERT_TRUE(Join(Hello("one")).ok());
  EXPECT_EQ(CtlOfNobody({"ps"}), 0);
  EXPECT_EQ(CtlOfNobody({"status"}), 0);
  EXPECT_EQ(CtlOfNobody({"devices"}), 0);
  EXPECT_EQ(CtlOfNobody({"drain"}), 1);
  EXPECT_EQ(CtlOfNobody({"client", "terminate", "1"}), 1);
  const Result<json> status = Answer(ipc::AdminVerb::kStatus);
  ASSERT_TRUE(status.ok());
  EXPECT_EQ(status->at("server").at("state"), "serving");
  EXPECT_EQ(status->at("server").at("rejected_requests").dump(),
            R"({"client terminate":1,"drain":1})");
}

TEST_F(BrokerTest, AllowsOperatorsToAct) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to be another user";
  options_.rules.operators = {{.kind = Subject::Kind::kUser, .id = kNobody}};
  StartBroker();
  const auto client = Join(Hello("one"));
  ASSERT_TRUE(client.ok());
  EXPECT_EQ(CtlOfNobody({"client", "set", "1", "--class", "low"}), 0);
  EXPECT_EQ(CtlOfNobody({"drain"}), 0);
}

TEST_F(BrokerTest, DrainedDeviceEndsWithLastSessionAndCanBeResumed) {
  options_.devices = {{.id = "fake:0"}, {.id = "fake:1"}};
  StartBroker();
  auto last = Join(Hello("last", "fake:0"));
  ASSERT_TRUE(last.ok());
  const pid_t worker = WorkerPid();
  const ProgramOutcome drained = Ctl({"drain", "fake:0"});
  EXPECT_EQ(drained.exit_code, 0) << drained.output;
  EXPECT_EQ(drained.output, "device fake:0 is draining: it has 1 sessions, and no new ones\n");
  EXPECT_EQ(Ctl({"drain", "fake:0"}).output, drained.output) << "asked again it changes nothing";
  EXPECT_THAT(
      Join(Hello("late", "fake:0")).status().message(),
      HasSubstr("client rejected: device fake:0 takes no new clients: an operator drains it"));
  const auto other = Join(Hello("other"));
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(Sessions(1), 1U);
  last->Reset();
  ASSERT_TRUE(Eventually([&] { return Device(0).at("state") == "drained"; }));
  EXPECT_TRUE(Eventually([&] { return ::kill(worker, 0) != 0; })) << "nothing has the device open";
  EXPECT_FALSE(Join(Hello("too late", "fake:0")).ok());
  EXPECT_EQ(Ctl({"resume", "fake:0"}).output, "device fake:0 is starting\n");
  EXPECT_TRUE(Eventually([&] { return Join(Hello("again", "fake:0")).ok(); }));
}

TEST_F(BrokerTest, ResumeCancelsDrainInProgress) {
  StartBroker();
  auto first = Join(Hello("first"));
  ASSERT_TRUE(first.ok());
  const pid_t worker = WorkerPid();
  ASSERT_EQ(Ctl({"drain", "fake:0"}).exit_code, 0);
  EXPECT_EQ(Ctl({"resume", "fake:0"}).output, "device fake:0 is ready\n");
  auto second = Join(Hello("second"));
  ASSERT_TRUE(second.ok());
  first->Reset();
  second->Reset();
  ASSERT_TRUE(Eventually([&] { return Sessions(0) == 0; }));
  std::this_thread::sleep_for(2 * options_.drain_grace);
  EXPECT_EQ(WorkerPid(), worker) << "no worker ends by a drain that was taken back";
}

// A drained worker exits after its last session without reading a further message, so resuming
// needs another worker.
TEST_F(BrokerTest, ResumeAfterLastSessionStartsAnotherWorker) {
  behaviour_ = [](const std::string&, std::uint32_t generation) {
    return generation == 1 ? "stubborn" : "normal";
  };
  StartBroker();
  ASSERT_TRUE(Eventually([&] { return Device(0).at("state") == "ready"; }));
  ASSERT_EQ(Ctl({"drain", "fake:0"}).exit_code, 0);
  EXPECT_EQ(Ctl({"resume", "fake:0"}).output, "device fake:0 is restarting\n");
  const auto client = Join(Hello("client"));
  EXPECT_TRUE(client.ok()) << client.status().message();
  EXPECT_EQ(Device(0).at("generation"), 2);
}

TEST_F(BrokerTest, ResumeCancelsDrainOfServer) {
  options_.devices = {{.id = "fake:0"}, {.id = "fake:1"}};
  StartBroker();
  ASSERT_TRUE(Eventually([&] { return Device(1).at("state") == "ready"; }));
  auto client = Join(Hello("client", "fake:0"));
  ASSERT_TRUE(client.ok());
  ASSERT_EQ(Ctl({"drain"}).exit_code, 0);
  EXPECT_FALSE(Join(Hello("late")).ok());
  const auto rejected = Ctl({"upgrade"});
  EXPECT_EQ(rejected.exit_code, 1) << rejected.output;
  EXPECT_THAT(rejected.output, HasSubstr("`gpusharedctl resume` cancels that"));
  EXPECT_EQ(Ctl({"resume"}).output, "the server admits clients again, in addition to 1 sessions\n");
  EXPECT_TRUE(Join(Hello("same", "fake:0")).ok());
  EXPECT_TRUE(Eventually([&] { return Join(Hello("other", "fake:1")).ok(); }));
  Stop();
  EXPECT_THAT(Ctl({"resume"}).output, HasSubstr("told to end by a signal"));
}

// The operator may be about to remove or partition the GPU.
TEST_F(BrokerTest, ResumedServerLeavesDrainedDevicesDrained) {
  options_.devices = {{.id = "fake:0"}, {.id = "fake:1"}, {.id = "fake:2"}};
  StartBroker();
  auto last = Join(Hello("last", "fake:1"));
  const auto other = Join(Hello("other", "fake:2"));
  ASSERT_TRUE(last.ok() && other.ok());
  ASSERT_EQ(Ctl({"drain", "fake:0"}).exit_code, 0);
  ASSERT_EQ(Ctl({"drain", "fake:1"}).exit_code, 0);
  ASSERT_TRUE(Eventually([&] { return Device(0).at("state") == "drained"; }));
  ASSERT_EQ(Ctl({"drain"}).exit_code, 0);
  ::kill(static_cast<pid_t>(Device(1).at("worker_pid")), SIGKILL);
  ASSERT_TRUE(Eventually([&] { return Device(1).at("state") == "drained"; }));
  ASSERT_EQ(Ctl({"resume"}).exit_code, 0);
  EXPECT_TRUE(Join(Hello("new", "fake:2")).ok());
  EXPECT_EQ(Device(0).at("state"), "drained");
  EXPECT_EQ(Device(1).at("state"), "drained");
  EXPECT_EQ(Ctl({"resume", "fake:0"}).output, "device fake:0 is starting\n");
}

TEST_F(BrokerTest, RejectsInvalidDrain) {
  StartBroker();
  ASSERT_TRUE(Eventually([&] { return Device(0).at("state") == "ready"; }));
  EXPECT_THAT(Ctl({"drain", "gpu:7"}).output,
              HasSubstr("asked for 'gpu:7', this server has fake:0"));
  EXPECT_THAT(Ctl({"resume", "fake:0"}).output,
              HasSubstr("resume rejected: device fake:0 is ready, not drained"));
  EXPECT_THAT(Ctl({"resume"}).output, HasSubstr("resume rejected: the server is not draining"));
  EXPECT_EQ(Device(0).at("state"), "ready");
}

TEST_F(BrokerTest, KillsDrainedWorkerThatDoesNotExit) {
  behaviour_ = [](const std::string&, std::uint32_t generation) {
    return generation == 1 ? "stubborn" : "normal";
  };
  StartBroker();
  auto client = Join(Hello("client"));
  ASSERT_TRUE(client.ok());
  ASSERT_EQ(Ctl({"drain", "fake:0"}).exit_code, 0);
  client->Reset();
  EXPECT_TRUE(Eventually([&] { return Device(0).at("state") == "drained"; }));
}

// A client that names no device waits for one that is coming back rather than for one that is
// drained.
TEST_F(BrokerTest, NewClientWaitsForDeviceThatIsNotDrained) {
  options_.devices = {{.id = "fake:0"}, {.id = "fake:1"}};
  options_.patience = 100ms;
  behaviour_ = [](const std::string&, std::uint32_t generation) {
    return generation == 1 ? "normal" : "slow";
  };
  StartBroker();
  ASSERT_TRUE(Eventually([&] { return Device(1).at("state") == "ready"; }));
  ASSERT_EQ(Ctl({"drain", "fake:0"}).exit_code, 0);
  ASSERT_TRUE(Eventually([&] { return Device(0).at("state") == "drained"; }));
  ::kill(static_cast<pid_t>(Device(1).at("worker_pid")), SIGKILL);
  ASSERT_TRUE(Eventually([&] { return Device(1).at("state") == "starting"; }));
  EXPECT_THAT(Join(Hello("new_client")).status().message(), HasSubstr("device fake:1 is starting"));
}

// The worker dies before the drain message can be sent.
TEST_F(BrokerTest, DeviceStaysDrainedWhenItsWorkerDies) {
  StartBroker();
  const auto client = Join(Hello("client"));
  ASSERT_TRUE(client.ok());
  ASSERT_EQ(Ctl({"drain", "fake:0"}).exit_code, 0);
  ::kill(WorkerPid(), SIGKILL);
  EXPECT_TRUE(Eventually([&] { return Device(0).at("state") == "drained"; }));
  Stop();
  WaitForEnd();
  EXPECT_EQ(broker_->exit_code(), 0);
}

// Clients' kernels run in the worker's address space and may control the worker, so the broker
// accepts a worker's statements about its own clients only.
TEST_F(BrokerTest, IgnoresWorkersClaimsAboutOtherDevicesClients) {
  options_.admin_wait_max = 50ms;
  options_.devices = {{.id = "fake:0"}, {.id = "fake:1"}};
  behaviour_ = [](const std::string& device, std::uint32_t) {
    return device == "fake:0" ? "silent" : "";
  };
  StartBroker();
  ASSERT_TRUE(Eventually(
      [&] { return Device(0).at("state") == "ready" && Device(1).at("state") == "ready"; }));
  const auto client = Join(Hello("one", "fake:0"));
  ASSERT_TRUE(client.ok());
  // The worker of fake:1 reports how many launches client 1 has.
  const Result<json> ps = Answer(ipc::AdminVerb::kClients);
  ASSERT_TRUE(ps.ok()) << ps.status().message();
  EXPECT_EQ(ps->at("silent_devices"), json::array({"fake:0"}));
  EXPECT_EQ(ps->at("clients").at(0).at("client"), 1);
  EXPECT_FALSE(ps->at("clients").at(0).contains("launches"));
}

TEST_F(BrokerTest, RepliesThoughWorkerIsSilent) {
  options_.admin_wait_max = 50ms;
  behaviour_ = [](const std::string&, std::uint32_t) { return "silent"; };
  StartBroker();
  const auto client = Join(Hello("one"));
  ASSERT_TRUE(client.ok());
  const Result<ipc::AdminReply> reply = Admin(Verb(ipc::AdminVerb::kClients));
  ASSERT_TRUE(reply.ok());
  const json clients = json::parse(reply->text);
  EXPECT_EQ(clients.at("clients").size(), 1U);
  EXPECT_EQ(clients.at("silent_devices").at(0), "fake:0");
  ipc::Admin change = Verb(ipc::AdminVerb::kSet);
  change.client = 1;
  change.weight = 4;
  const Result<ipc::AdminReply> set = Admin(change);
  ASSERT_TRUE(set.ok());
  EXPECT_EQ(set->code, StatusCode::kTimedOut);
}

TEST_F(BrokerTest, UnresponsiveWorkerGetsNoClientsAndIsKilled) {
  options_.watch = {.interval = 20ms, .silent_after = 50, .killed_after = 150};
  options_.patience = 100ms;
  behaviour_ = [](const std::string&, std::uint32_t generation) {
    return generation == 1 ? "silent" : "normal";
  };
  StartBroker();
  ASSERT_TRUE(Eventually([&] { return Device(0).at("state") == "silent"; }));
  const Result<ipc::UniqueFd> rejected = Join(Hello("new_client"));
  EXPECT_EQ(rejected.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(rejected.status().message(), HasSubstr("is silent, try again later"));
  ASSERT_TRUE(Eventually([&] { return Device(0).at("generation") == 2; }));
  EXPECT_THAT(Device(0).at("last_death").get<std::string>(), HasSubstr("it did not answer"));
  EXPECT_TRUE(Join(Hello("new_client")).ok());
  Stop();
  WaitForEnd();
  EXPECT_THAT(log_text_.str(), ContainsRegex("has not answered for .*: it gets no clients"));
}

// A worker under a debugger must not be killed as unresponsive.
TEST_F(BrokerTest, DoesNotKillWorkerStoppedByDebugger) {
  options_.watch = {.interval = 20ms, .silent_after = 50, .killed_after = 100};
  StartBroker();
  ASSERT_TRUE(Join(Hello("first")).ok());
  const pid_t worker = WorkerPid();
  ASSERT_EQ(::kill(worker, SIGSTOP), 0);
  std::this_thread::sleep_for(3s);
  EXPECT_EQ(Device(0).at("state"), "ready");
  ASSERT_EQ(::kill(worker, SIGCONT), 0);
  EXPECT_TRUE(Join(Hello("second")).ok());
  EXPECT_EQ(WorkerPid(), worker);
}

TEST_F(BrokerTest, LimitsNumberAndDurationOfSilentConnections) {
  options_.limits = {.waiting_max = 8, .waiting_per_uid_max = 4, .first_frame_max = 300ms};
  StartBroker();
  std::vector<ipc::UniqueFd> silent;
  for (int i = 0; i < 5; ++i) silent.push_back(ConnectOnly());
  EXPECT_EQ(RejectionOn(silent[0]), StatusCode::kLimitExceeded);
  EXPECT_EQ(RejectionOn(silent[1]), StatusCode::kTimedOut);
  EXPECT_TRUE(Eventually([&] { return Join(Hello("welcome again")).ok(); }));
}

// With bounds per user alone, four users could take all connections, including root's.
TEST_F(BrokerTest, SilentConnectionsOfManyUsersStarveNoClient) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become other users";
  options_.limits.first_frame_max = 60s;  // Long enough that no silent connection is closed.
  StartBroker();
  std::vector<ipc::UniqueFd> silent;
  for (uid_t uid = 60001; uid <= 60006; ++uid) {
    for (int i = 0; i < 40; ++i) silent.push_back(ConnectAs(uid));
  }
  EXPECT_TRUE(Admin(Verb(ipc::AdminVerb::kStatus)).ok());
  EXPECT_EQ(Ctl({"ps"}).exit_code, 0);
  EXPECT_TRUE(Join(Hello("of root")).ok());
  EXPECT_EQ(AsNobody([&] { return Join(Hello("of another user")).ok() ? 0 : 1; }), 0);
  EXPECT_EQ(AsUser(60001, [&] { return Join(Hello("of one of them")).ok() ? 0 : 1; }), 0);
}

TEST_F(BrokerTest, ClosesOldestSilentConnectionOfUserWithMost) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become other users";
  options_.limits = {.waiting_max = 8, .waiting_per_uid_max = 6, .first_frame_max = 60s};
  StartBroker();
  const ipc::UniqueFd patient = ConnectAs(60001);
  std::vector<ipc::UniqueFd> silent;
  for (int i = 0; i < 6; ++i) silent.push_back(ConnectAs(60002));
  for (int i = 0; i < 3; ++i) silent.push_back(ConnectAs(60003));
  EXPECT_EQ(RejectionOn(silent[0]), StatusCode::kLimitExceeded);
  EXPECT_EQ(RejectionOn(silent[1]), StatusCode::kLimitExceeded);
  const Result<ipc::Frame> welcome = Ask(patient, Hello("patient"));
  ASSERT_TRUE(welcome.ok()) << welcome.status().message();
  EXPECT_TRUE(ipc::DecodeReply<ipc::Done>(*welcome).ok());
}

// Root's connections may take long to send a message, too.
TEST_F(BrokerTest, SilentConnectionsOfOthersNeverDisplaceRoots) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become other users";
  options_.limits = {.waiting_max = 4, .waiting_per_uid_max = 4, .first_frame_max = 60s};
  StartBroker();
  std::vector<ipc::UniqueFd> of_root, silent;
  for (int i = 0; i < 4; ++i) of_root.push_back(ConnectOnly());
  for (uid_t uid = 60001; uid <= 60008; ++uid) silent.push_back(ConnectAs(uid));
  EXPECT_EQ(RejectionOn(silent[0]), StatusCode::kLimitExceeded);
  for (const ipc::UniqueFd& each : of_root) EXPECT_TRUE(Ask(each, Hello("of root")).ok());
}

TEST_F(BrokerTest, AnswersOperatorsDuringFloodOfConnectionsAndHellos) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become other users";
  StartBroker();
  ASSERT_TRUE(Join(Hello("before")).ok());
  std::atomic<bool> is_over = false;
  std::atomic<std::size_t> connected = 0;
  std::vector<std::thread> storm;
  for (uid_t uid = 60001; uid <= 60004; ++uid) {
    storm.emplace_back([&, uid] {
      const ActingAs user(uid);
      while (!is_over && user.is_acting()) {
        const auto socket = ipc::ConnectUnix(options_.socket_path, Soon());
        if (!socket.ok()) continue;
        const ipc::Hello rejected = Hello("flood", "", SchedulingClass::kHigh);
        if (++connected % 2 == 0) (void)ipc::SendMessage(socket->get(), 5, rejected, Soon());
      }
    });
  }
  auto worst = std::chrono::steady_clock::duration::zero();
  std::size_t answered = 0;
  for (int i = 0; i < 50; ++i) {
    const auto asked_at = std::chrono::steady_clock::now();
    answered += Admin(Verb(ipc::AdminVerb::kStatus)).ok() ? 1 : 0;
    worst = std::max(worst, std::chrono::steady_clock::now() - asked_at);
  }
  is_over = true;
  for (std::thread& each : storm) each.join();
  EXPECT_EQ(answered, 50U);
  EXPECT_LT(worst, 5s);  // A loose bound, which only shows that the limit takes effect.
  RecordProperty("connected", std::to_string(connected));
  RecordProperty("worst_us", std::to_string(worst / 1us));
}

// Without a limit, rejected hellos fill the log with tens of megabytes.
TEST_F(BrokerTest, RateLimitsLogOfRejectedHellos) {
  AccessRule rule;
  rule.label = "everyone";
  rule.highest_class = scheduler::SchedulingClass::kLow;
  options_.rules.access = {rule};
  options_.log_limits.report_interval = 1s;
  StartBroker();
  const auto until = std::chrono::steady_clock::now() + 3s;
  std::size_t rejected = 0;
  for (; rejected < 1000 || std::chrono::steady_clock::now() < until; ++rejected) {
    ASSERT_FALSE(Join(Hello("flood", "", SchedulingClass::kHigh)).ok());
  }
  Stop();
  WaitForEnd();
  const std::string log = log_text_.str();
  EXPECT_LT(log.size(), 64U << 10) << rejected << " rejections";
  const bool is_counted = log.find("lines about uid " + std::to_string(::geteuid()) + " in 1 s") !=
                          std::string::npos;  // Not a matcher, which would print the whole log.
  EXPECT_TRUE(is_counted);
}

TEST_F(BrokerTest, RejectsGarbageAsFirstFrameAndKeepsRunning) {
  StartBroker();
  for (const std::string& garbage : {std::string(64, 'x'), std::string(4096, '\0')}) {
    const ipc::UniqueFd socket = ConnectOnly();
    ASSERT_GT(::send(socket.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL), 0);
    EXPECT_EQ(RejectionOn(socket), StatusCode::kProtocolViolation);
  }
  EXPECT_TRUE(Join(Hello("one")).ok());
}

// From Linux 6.16 on the kernel rejects the descriptor when it is sent; on older kernels the broker
// rejects the frame.
TEST_F(BrokerTest, DropsDescriptorSentByClient) {
  StartBroker();
  const auto first = Join(Hello("first"));
  ASSERT_TRUE(first.ok());
  const std::size_t before = OpenFileDescriptors(::getpid());
  {
    const ipc::UniqueFd socket = ConnectOnly();
    const std::vector<std::byte> bytes(16);
    if (gpushared::testing::SendWithDescriptor(socket.get(), bytes,
                                               ipc::UniqueFd(::eventfd(0, EFD_CLOEXEC)))) {
      const auto frame = ipc::ReceiveFrame(socket.get(), ipc::ServerFrameRules, Soon());
      ASSERT_TRUE(frame.ok()) << frame.status().message();
      EXPECT_THAT(ipc::DecodeReply<ipc::Welcome>(*frame).status().message(),
                  HasSubstr("descriptors, which clients must not send"));
    } else {
      EXPECT_EQ(errno, EPERM);
    }
  }
  EXPECT_TRUE(Join(Hello("second")).ok());
  EXPECT_TRUE(Eventually([&] { return OpenFileDescriptors(::getpid()) <= before; }));
}

TEST_F(BrokerTest, SecondServerOnTheSocketIsRejected) {
  StartBroker();
  boost::asio::io_context other_context;
  Broker other(other_context, options_, spdlog::default_logger());
  const Status rejected = other.Start();
  EXPECT_EQ(rejected.code(), StatusCode::kUnavailable);
  EXPECT_THAT(rejected.message(), HasSubstr(options_.socket_path));
  EXPECT_TRUE(Join(Hello("one")).ok());
}

TEST_F(BrokerTest, DrainWaitsForLastSessionAndRejectsNewOnes) {
  StartBroker();
  auto client = Join(Hello("last"));
  ASSERT_TRUE(client.ok());
  const Result<ipc::AdminReply> drain = Admin(Verb(ipc::AdminVerb::kDrain));
  ASSERT_TRUE(drain.ok());
  EXPECT_EQ(json::parse(drain->text).at("sessions"), 1);
  const auto rejected = Join(Hello("late"));
  EXPECT_EQ(rejected.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(rejected.status().message(), HasSubstr("draining"));
  EXPECT_EQ(Sessions(0), 1U);
  client->Reset();
  WaitForEnd();
  EXPECT_EQ(broker_->exit_code(), 0);
  EXPECT_THAT(log_text_.str(), HasSubstr("waiting for 1 sessions: session 1 'last'"));
  EXPECT_FALSE(std::filesystem::exists(options_.socket_path));
}

TEST_F(BrokerTest, SecondStopEndsSessions) {
  StartBroker();
  const auto client = Join(Hello("one"));
  ASSERT_TRUE(client.ok());
  Stop();
  Stop();
  WaitForEnd();
  EXPECT_EQ(broker_->exit_code(), 0);
  EXPECT_TRUE(AtEof(*client));
}

TEST_F(BrokerTest, KillsStubbornWorkerAfterGracePeriod) {
  behaviour_ = [](const std::string&, std::uint32_t) { return "stubborn"; };
  StartBroker();
  const auto client = Join(Hello("one"));
  ASSERT_TRUE(client.ok());
  Stop();
  Stop();
  WaitForEnd();
  EXPECT_THAT(log_text_.str(), HasSubstr("is killed"));
}

// A starting worker may hang, because the driver may never answer its queries.
TEST_F(BrokerTest, ShutdownDoesNotWaitForHangingStart) {
  behaviour_ = [](const std::string&, std::uint32_t) { return "slow"; };
  StartBroker();
  Stop();
  WaitForEnd();
  EXPECT_EQ(broker_->exit_code(), 0);
  EXPECT_THAT(log_text_.str(), HasSubstr("did not end within 200 ms and is killed"));
}

TEST_F(BrokerTest, ShutdownKillsWorkerThatDoesNotExitAfterLastSession) {
  behaviour_ = [](const std::string& device, std::uint32_t) {
    return device == "fake:0" ? "stubborn" : "normal";
  };
  options_.devices = {{.id = "fake:0"}, {.id = "fake:1"}};
  StartBroker();
  auto first = Join(Hello("one", "fake:0"));
  const auto second = Join(Hello("two", "fake:1"));
  auto third = Join(Hello("three", "fake:1"));
  ASSERT_TRUE(first.ok() && second.ok() && third.ok());
  Stop();
  third->Reset();
  EXPECT_TRUE(Eventually([&] { return Sessions(1) == 1U; }));
  // Waits, because workers whose clients are still connected must keep running.
  std::this_thread::sleep_for(3 * options_.drain_grace);
  EXPECT_EQ(Sessions(0), 1U);
  EXPECT_EQ(Sessions(1), 1U);
  first->Reset();
  EXPECT_TRUE(Eventually([&] { return Device(0).at("state") == "gone"; }));
  EXPECT_EQ(Sessions(1), 1U);
  EXPECT_THAT(log_text_.str(),
              ContainsRegex("device fake:0: worker .* did not end within 200 ms and is killed"));
  Stop();
  WaitForEnd();
}

// If the broker kept a handed-over socket open, the worker would never see the client's EOF, and
// every session would cost the broker two descriptors.
TEST_F(BrokerTest, ClosesDescriptorsOfHandedOverClient) {
  StartBroker();
  { const auto warm = Join(Hello("warm")); }
  ASSERT_TRUE(Eventually([&] { return Sessions(0) == 0; }));
  const std::size_t before = OpenFileDescriptors(::getpid());
  std::vector<Result<ipc::UniqueFd>> clients;
  for (int i = 0; i < 20; ++i) clients.push_back(Join(Hello("many")));
  EXPECT_TRUE(Eventually([&] { return OpenFileDescriptors(::getpid()) <= before + 20; }));
}

TEST_F(BrokerTest, WorkerInheritsOnlyItsChannel) {
  StartBroker();
  const auto client = Join(Hello("one"));
  ASSERT_TRUE(client.ok());
  std::vector<std::string> fds;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(WorkerPid()) + "/fd")) {
    fds.push_back(entry.path().filename());
  }
  // stdin, stdout, stderr, the channel, and the client's socket; the fake worker closes the pidfd.
  EXPECT_EQ(fds.size(), 5U) << ::testing::PrintToString(fds);
}

TEST_F(BrokerTest, CtlListsChangesAndEndsClients) {
  StartBroker();
  const auto client = Join(Hello("visible", "", SchedulingClass::kLow));
  ASSERT_TRUE(client.ok());
  const ProgramOutcome ps = Ctl({"ps"});
  EXPECT_EQ(ps.exit_code, 0) << ps.output;
  EXPECT_THAT(ps.output, HasSubstr("visible"));
  EXPECT_EQ(Ctl({"status"}).exit_code, 0);
  EXPECT_EQ(Ctl({"devices", "--json"}).exit_code, 0);
  EXPECT_EQ(Ctl({"ps", "--columns", "name,class,launches"}).output,
            "NAME     CLASS  LAUNCHES\nvisible  low          77\n");
  EXPECT_THAT(Ctl({"ps", "--wide"}).output, HasSubstr("LAUNCHES"));
  EXPECT_EQ(Ctl({"ps", "--wide", "--columns", "name"}).exit_code, 2);
  const ProgramOutcome unknown = Ctl({"ps", "--columns", "name,colour"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.output,
              HasSubstr("there is no column 'colour'; available are client, name,"));
  const ProgramOutcome set =
      Ctl({"client", "set", "1", "--class", "high", "--weight", "9", "--json"});
  EXPECT_EQ(set.exit_code, 0) << set.output;
  const json as_json = json::parse(Ctl({"--json", "ps"}).output);
  EXPECT_EQ(as_json.at("clients").at(0).at("class"), "high");
  EXPECT_EQ(as_json.at("clients").at(0).at("weight"), 9);
  EXPECT_EQ(Ctl({"client", "terminate", "1"}).exit_code, 0);
  EXPECT_TRUE(AtEof(*client));
  const ProgramOutcome gone = Ctl({"client", "terminate", "1"});
  EXPECT_EQ(gone.exit_code, 1);
  EXPECT_THAT(gone.output, HasSubstr("client 1"));
  EXPECT_EQ(Ctl({"drain"}).exit_code, 0);
  WaitForEnd();
}

TEST_F(BrokerTest, CtlHelpListsExitCodes) {
  const ProgramOutcome help = Ctl({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(
      help.output,
      HasSubstr("Exit codes: 0 done; 1 rejected by the server, driver or file; 2 usage error; "
                "3 no server is running;\n4 the job given to advise does not fit."));
}

TEST_F(BrokerTest, CtlReportsMissingServerAndInvalidRequest) {
  const ProgramOutcome nobody = Ctl({"status"});
  EXPECT_EQ(nobody.exit_code, 3);
  EXPECT_THAT(nobody.output, HasSubstr("no gpushared server answers at " + options_.socket_path));
  EXPECT_EQ(Ctl({"client", "set", "1"}).exit_code, 2);
  EXPECT_EQ(Ctl({"client", "set", "1", "--class", "royal"}).exit_code, 2);
  const ProgramOutcome heavy = Ctl({"client", "set", "1", "--weight", "1001"});
  EXPECT_EQ(heavy.exit_code, 2);
  EXPECT_THAT(heavy.output, AllOf(HasSubstr("1001"), HasSubstr("1 to 1000")));
  EXPECT_EQ(Ctl({"frobnicate"}).exit_code, 2);
  EXPECT_EQ(Ctl({}).exit_code, 2);
}

}  // namespace
}  // namespace gpushared::server

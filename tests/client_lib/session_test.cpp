// SPDX-License-Identifier: Apache-2.0
// Beginning and end of a session, and every way in which they can fail.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpushared/client.h"

#include "tests/client_lib/asleep.h"
#include "tests/support/fake_worker.h"

namespace gpushared {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using testing::FakeWorker;
using ::testing::HasSubstr;

Client Connected(const FakeWorker& worker, ClientOptions options = {}) {
  options.socket = worker.socket_path();
  Result<Client> client = Client::Connect(options);
  EXPECT_TRUE(client.ok()) << client.status().ToString();
  return client.ok() ? std::move(*client) : Client();
}

void AwaitTrue(const std::function<bool()>& condition) {
  while (!condition()) std::this_thread::yield();
}

TEST(Connect, HelloCarriesTheOptions) {
  FakeWorker worker;
  const Client client = Connected(worker, {.name = "serve",
                                           .scheduling_class = SchedulingClass::kHigh,
                                           .weight = 3,
                                           .latency_target = milliseconds(5),
                                           .device = "fake:0"});
  const auto hello = worker.last_hello();
  ASSERT_TRUE(hello);
  EXPECT_EQ(hello->name, "serve");
  EXPECT_EQ(hello->client_class, SchedulingClass::kHigh);
  EXPECT_EQ(hello->weight, 3u);
  EXPECT_EQ(hello->latency_target_ns, 5'000'000u);
  EXPECT_EQ(hello->device, "fake:0");
}

TEST(Connect, HelloOmitsUnsetOptions) {
  FakeWorker worker;
  const Client client = Connected(worker);
  EXPECT_FALSE(worker.last_hello()->client_class);
  EXPECT_FALSE(worker.last_hello()->weight);
  EXPECT_EQ(worker.last_hello()->memory_bytes, 0u);
}

// An environment variable that is set during the object's lifetime.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Variable() { ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

TEST(Connect, HelloCarriesTheEnvironment) {
  FakeWorker worker;
  const Variable its_class("GPUSHARED_CLASS", "low"), weight("GPUSHARED_WEIGHT", "9"),
      memory("GPUSHARED_MEMORY", "64MiB"), device("GPUSHARED_DEVICE", "fake:0"),
      name("GPUSHARED_NAME", "job");
  const Client client = Connected(worker, {.weight = 2});
  const auto hello = worker.last_hello();
  ASSERT_TRUE(hello);
  EXPECT_EQ(hello->client_class, SchedulingClass::kLow);
  EXPECT_EQ(hello->weight, 2u);
  EXPECT_EQ(hello->memory_bytes, std::uint64_t{64} << 20);
  EXPECT_EQ(hello->device, "fake:0");
  EXPECT_EQ(hello->name, "job");
}

TEST(Connect, RejectsInvalidEnvironmentBeforeSending) {
  FakeWorker worker;
  const Variable its_class("GPUSHARED_CLASS", "urgent");
  const auto client = Client::Connect({.socket = worker.socket_path()});
  EXPECT_EQ(client.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(client.status().message(), HasSubstr("GPUSHARED_CLASS='urgent'"));
  EXPECT_FALSE(worker.last_hello());
}

TEST(Connect, EmptyNameBecomesTheProgramName) {
  FakeWorker worker;
  const Client client = Connected(worker);
  EXPECT_EQ(worker.last_hello()->name, program_invocation_short_name);
}

TEST(Connect, PropertiesAreThoseOfTheDevice) {
  FakeWorker worker;
  const Client client = Connected(worker);
  EXPECT_EQ(client.device().id, "fake:0");
  EXPECT_EQ(client.device().threads_per_block_max, 512u);
  EXPECT_EQ(client.device().grid_max[0], 1u << 20);
  EXPECT_EQ(client.session_id(), FakeWorker::kSession);
  EXPECT_TRUE(client.status().ok());
}

TEST(Connect, ErrorWithoutServerNamesPath) {
  const auto client = Client::Connect({.socket = "/nonexistent/gpushared.sock"});
  EXPECT_EQ(client.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(client.status().message(), HasSubstr("/nonexistent/gpushared.sock"));
}

TEST(Connect, RejectionIsPassedOn) {
  FakeWorker worker({.reject_hello = Status(StatusCode::kPermissionDenied, "rejected")});
  const auto client = Client::Connect({.socket = worker.socket_path()});
  EXPECT_EQ(client.status().code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(client.status().message(), "rejected");
}

TEST(Connect, RejectsInvalidOptionsBeforeSending) {
  FakeWorker worker;
  const auto code_of = [&](ClientOptions options) {
    options.socket = worker.socket_path();
    return Client::Connect(options).status().code();
  };
  EXPECT_EQ(code_of({.name = std::string(64, 'x')}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of({.name = "bell\a"}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of({.weight = 0}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of({.weight = 1001}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of({.memory_bytes = 0}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of({.latency_target = nanoseconds(0)}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of({.device = std::string(64, 'x')}), StatusCode::kInvalidArgument);
  EXPECT_FALSE(worker.last_hello());
}

TEST(Connect, EmptyHandlesReject) {
  const Client client;
  EXPECT_FALSE(client.valid());
  EXPECT_EQ(client.AllocateDevice(1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(client.Synchronize().code(), StatusCode::kInvalidArgument);
  const Stream stream;
  EXPECT_EQ(stream.Synchronize().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(stream.Launch(Kernel(), {}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Event().Query().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Module().GetKernel("a").status().code(), StatusCode::kNotFound);
}

TEST(Session, EndsWithTheLastHandle) {
  FakeWorker worker;
  DeviceBuffer buffer;
  {
    const Client client = Connected(worker);
    buffer = std::move(*client.AllocateDevice(100));
  }
  EXPECT_EQ(worker.sessions_ended(), 0u);
  buffer.Reset();
  AwaitTrue([&] { return worker.sessions_ended() == 1; });
}

TEST(Session, TerminationIsTypedAndStickyEverywhere) {
  FakeWorker worker;
  const Client client = Connected(worker);
  const Stream stream = client.default_stream();
  const auto buffer = client.AllocateDevice(100);
  ASSERT_TRUE(buffer.ok());
  worker.EndSessions(Status(StatusCode::kDisconnected, "terminated"));
  AwaitTrue([&] { return !client.status().ok(); });
  for (const Status& status :
       {client.status(), stream.Fill(*buffer, FillElement::U8(1), 1), stream.Synchronize(),
        client.Synchronize(), client.AllocateHost(1).status(), client.AllocateDevice(1).status(),
        client.LoadModule("x").status(), client.CreateStream().status()}) {
    EXPECT_EQ(status.code(), StatusCode::kDisconnected);
    EXPECT_THAT(status.message(), HasSubstr("terminated"));
  }
}

// The worker died while a thread slept on a timeline that will never advance.
TEST(Session, WorkerDeathWakesWaiterWithBrokersReason) {
  FakeWorker worker;
  const Client client = Connected(worker);
  worker.set_finishing(false);
  ASSERT_TRUE(client.default_stream().Fill(FakeWorker::kBase, FillElement::U8(1), 1).ok());
  std::thread killer = testing::OnceAsleep([&] { worker.KillSessions(); });
  const Status status = client.default_stream().Synchronize();
  killer.join();
  EXPECT_EQ(status.code(), StatusCode::kDeviceLost);
  EXPECT_THAT(status.message(), HasSubstr("fake:0"));
}

TEST(Session, PollingCallerLearnsOfEnd) {
  FakeWorker worker;
  const Client client = Connected(worker);
  worker.set_finishing(false);
  ASSERT_TRUE(client.default_stream().Fill(FakeWorker::kBase, FillElement::U8(1), 1).ok());
  EXPECT_EQ(client.default_stream().Query().code(), StatusCode::kNotReady);
  worker.KillSessions();
  Status status;
  AwaitTrue([&] {
    status = client.default_stream().Query();
    return status.code() != StatusCode::kNotReady;
  });
  EXPECT_EQ(status.code(), StatusCode::kDeviceLost);
}

TEST(Session, WorkerDeathEndsWaitForRingSpace) {
  FakeWorker worker;
  const Client client = Connected(worker);
  worker.set_taking(false);
  std::thread killer = testing::OnceAsleep([&] { worker.KillSessions(); });
  Status status;
  while (status.ok()) status = client.default_stream().Fill(FakeWorker::kBase, {}, 1);
  killer.join();
  EXPECT_EQ(status.code(), StatusCode::kDeviceLost);
}

TEST(Session, WorkerDeathEndsRoundTrip) {
  FakeWorker worker;
  const Client client = Connected(worker);
  worker.set_answering(false);
  std::thread killer = testing::OnceAsleep([&] { worker.KillSessions(); });
  EXPECT_EQ(client.LoadModule("x").status().code(), StatusCode::kDeviceLost);
  killer.join();
}

TEST(Session, SilentServerIsATimeoutAndEndsTheSession) {
  FakeWorker worker;
  const Client client = Connected(worker, {.control_timeout = milliseconds(200)});
  worker.set_answering(false);
  const Status status = client.LoadModule("x").status();
  EXPECT_EQ(status.code(), StatusCode::kDisconnected);
  EXPECT_THAT(status.message(), HasSubstr("200 ms"));
  EXPECT_FALSE(client.status().ok());
}

// A load may be queued after other clients' loads, and the server bounds that time.
TEST(Session, ModuleLoadMayTakeLongerThanOtherRequests) {
  FakeWorker worker;
  worker.set_load_takes(milliseconds(500));
  const Client client = Connected(worker, {.control_timeout = milliseconds(200)});
  EXPECT_TRUE(client.LoadModule("x").ok()) << client.status().ToString();
}

TEST(Session, WrongAnswerEndsSession) {
  for (const FakeWorker::Lie lie : {FakeWorker::Lie::kOtherRequest, FakeWorker::Lie::kOtherKind}) {
    FakeWorker worker;
    const Client client = Connected(worker);
    worker.set_lie(lie);
    EXPECT_EQ(client.LoadModule("x").status().code(), StatusCode::kProtocolViolation);
    EXPECT_EQ(client.status().code(), StatusCode::kProtocolViolation);
  }
}

TEST(Session, UnrequestedMessageEndsSession) {
  FakeWorker worker;
  const Client client = Connected(worker);
  worker.SendUnrequested();
  AwaitTrue([&] { return !client.status().ok(); });
  EXPECT_EQ(client.status().code(), StatusCode::kProtocolViolation);
}

TEST(Session, CloseWakesWaitersOfOtherThreads) {
  FakeWorker worker;
  Client client = Connected(worker);
  const Stream stream = client.default_stream();
  worker.set_finishing(false);
  ASSERT_TRUE(stream.Fill(FakeWorker::kBase, FillElement::U8(1), 1).ok());
  std::thread closer = testing::OnceAsleep([&] { client.Close(); });
  const Status status = stream.Synchronize();
  closer.join();
  EXPECT_EQ(status.code(), StatusCode::kDisconnected);
  AwaitTrue([&] { return worker.sessions_ended() == 1; });
}

TEST(Session, WorkFinishedBeforeEndStaysFinished) {
  FakeWorker worker;
  Client client = Connected(worker);
  const auto event = client.CreateEvent();
  ASSERT_TRUE(client.default_stream().Record(*event).ok());
  ASSERT_TRUE(event->Synchronize().ok());
  client.Close();
  EXPECT_TRUE(event->Query().ok());
}

// Checks a forked child's view. Returns an exit code, 0 if everything is as expected.
int GetChild(const Client& client, const Stream& stream, const DeviceBuffer& buffer) {
  const auto rejected = [](const Status& status) {
    return status.code() == StatusCode::kWrongProcess;
  };
  char byte = 0;
  if (!rejected(client.status())) return 1;
  if (!rejected(stream.Fill(buffer, FillElement::U8(1), 1))) return 2;
  if (!rejected(stream.Synchronize())) return 3;
  if (!rejected(stream.CopyToDevice(buffer, &byte, 1))) return 4;
  if (!rejected(client.AllocateDevice(1).status())) return 5;
  if (!rejected(client.AllocateHost(1).status())) return 6;
  if (!rejected(client.CreateStream().status())) return 7;
  if (!rejected(client.LoadModule("x").status())) return 8;
  if (!rejected(client.Synchronize())) return 9;
  if (!rejected(stream.Query())) return 10;
  return 0;
}

TEST(Session, RejectsForkedChildAndParentContinues) {
  FakeWorker worker;
  auto client = std::make_unique<Client>(Connected(worker));
  auto stream = std::make_unique<Stream>(std::move(*client->CreateStream()));
  auto buffer = std::make_unique<DeviceBuffer>(std::move(*client->AllocateDevice(100)));
  auto host = std::make_unique<HostBuffer>(std::move(*client->AllocateHost(100)));
  const pid_t child = ::fork();
  if (child == 0) {
    int code = GetChild(*client, *stream, *buffer);
    // Destructors affect neither the parent's session nor our memory.
    buffer.reset();
    host.reset();
    stream.reset();
    client.reset();
    ::_exit(code);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << WEXITSTATUS(status);
  EXPECT_TRUE(stream->Fill(*buffer, FillElement::U8(1), 100).ok());
  EXPECT_TRUE(stream->Synchronize().ok());
  EXPECT_TRUE(client->status().ok());
  EXPECT_TRUE(worker.violations().empty());
}

TEST(Session, ForkedChildCanConnectAgain) {
  FakeWorker worker;
  const Client parents = Connected(worker);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto own = Client::Connect({.socket = worker.socket_path()});
    if (!own.ok()) ::_exit(1);
    if (!own->default_stream().Synchronize().ok()) ::_exit(2);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << WEXITSTATUS(status);
}

// ---- modules

TEST(Modules, KernelsComeWithTheirLayout) {
  FakeWorker worker;
  const Client client = Connected(worker);
  const auto module = client.LoadModule("any PTX");
  ASSERT_TRUE(module.ok()) << module.status().ToString();
  EXPECT_EQ(module->kernel_count(), FakeWorker::Kernels().size());
  const auto kernel = module->GetKernel("add");
  ASSERT_TRUE(kernel.ok());
  EXPECT_EQ(kernel->name(), "add");
  ASSERT_EQ(kernel->parameters().size(), 4u);
  EXPECT_EQ(kernel->parameters()[3].offset, 24u);
  EXPECT_EQ(kernel->parameters()[3].bytes, 4u);
  EXPECT_EQ(kernel->parameter_bytes(), 28u);
  EXPECT_EQ(kernel->static_shared_bytes(), 1024u);
  EXPECT_EQ(kernel->threads_per_block_max(), 256u);
  EXPECT_TRUE(kernel->unsupported().empty());
  EXPECT_EQ(module->KernelAt(1)->name(), "padded");
  EXPECT_EQ(module->KernelAt(99).status().code(), StatusCode::kNotFound);
}

TEST(Modules, RejectsUnknownKernelListingKernels) {
  FakeWorker worker;
  const Client client = Connected(worker);
  const auto module = client.LoadModule("any PTX");
  const auto kernel = module->GetKernel("ad");
  EXPECT_EQ(kernel.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(kernel.status().message(), HasSubstr("add, padded"));
}

TEST(Modules, RejectedImageLeavesTheSessionAlive) {
  FakeWorker worker;
  const Client client = Connected(worker);
  const auto module = client.LoadModule("bad PTX");
  EXPECT_EQ(module.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(module.status().message(), HasSubstr("line 1 column 1"));
  EXPECT_TRUE(client.LoadModule("good PTX").ok());
}

TEST(Modules, EmptyImageAndMissingFileAreRejected) {
  FakeWorker worker;
  const Client client = Connected(worker);
  EXPECT_EQ(client.LoadModule("").status().code(), StatusCode::kInvalidArgument);
  const Status missing = client.LoadModuleFile("/nonexistent.ptx").status();
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_THAT(missing.message(), HasSubstr("/nonexistent.ptx"));
  EXPECT_EQ(client.LoadModuleFile("/").status().code(), StatusCode::kNotFound);
}

TEST(Modules, ReportKernelAttributesAndVariables) {
  FakeWorker worker;
  const Client client = Connected(worker);
  const Module module = *client.LoadModule("any PTX");
  const KernelAttributes& attributes = module.GetKernel("add")->attributes();
  EXPECT_EQ(attributes.registers, 24u);
  EXPECT_EQ(attributes.local_bytes, 16u);
  EXPECT_EQ(attributes.constant_bytes, 64u);
  EXPECT_EQ(attributes.dynamic_shared_bytes_max, 47u * 1024);
  EXPECT_EQ(attributes.ptx_version, 75u);
  EXPECT_EQ(attributes.binary_version, 80u);
  ASSERT_EQ(module.variables().size(), 2u);
  const auto table = module.GetVariable("table");
  ASSERT_TRUE(table.ok());
  EXPECT_EQ(table->address, FakeWorker::kVariables + 128);
  EXPECT_EQ(table->bytes, 64u);
  EXPECT_TRUE(table->is_constant);
  EXPECT_FALSE(module.GetVariable("count")->is_constant);
  EXPECT_EQ(module.GetVariable("tab").status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(Module().variables().empty());
}

TEST(Modules, KernelKeepsItsModuleLoaded) {
  FakeWorker worker;
  const Client client = Connected(worker);
  Kernel kernel = *client.LoadModule("any PTX")->GetKernel("nothing");
  EXPECT_TRUE(client.default_stream().Launch(kernel, {}).ok());
  EXPECT_TRUE(worker.unloaded_modules().empty());
  EXPECT_TRUE(client.Synchronize().ok());
  kernel = Kernel();
  AwaitTrue([&] { return worker.unloaded_modules().size() == 1; });
}

TEST(Modules, UnloadWaitsForLaunchesUnderWay) {
  FakeWorker worker;
  const Client client = Connected(worker);
  worker.set_finishing(false);
  {
    const auto module = client.LoadModule("any PTX");
    ASSERT_TRUE(client.default_stream().Launch(*module->GetKernel("nothing"), {}).ok());
  }
  // This request is answered after all earlier ones.
  ASSERT_TRUE(client.LoadModule("another").ok());
  const auto unloaded = worker.unloaded_modules();
  EXPECT_TRUE(unloaded.empty() || unloaded[0] != 0);
  worker.set_finishing(true);
  ASSERT_TRUE(client.default_stream().Synchronize().ok());
  AwaitTrue([&] { return worker.unloaded_modules().size() == 2; });
}

// Every round trip skips the answers to unloads that no call waited for.
TEST(Modules, ReuseNumbers) {
  FakeWorker worker;
  const Client client = Connected(worker);
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(client.LoadModule("any PTX").ok());
  AwaitTrue([&] { return worker.unloaded_modules().size() == 50; });
  for (const std::uint32_t number : worker.unloaded_modules()) EXPECT_EQ(number, 0u);
  EXPECT_TRUE(client.status().ok());
}

// If the client did not read the answers to unloads, these would fill the socket. Then the server
// would stop reading, and each send of the client would block until its time-out of 30 s.
TEST(Modules, TwoThousandAreUnloadedAtOnceWithoutAStall) {
  FakeWorker worker;
  const Client client = Connected(worker);
  std::vector<Module> modules;
  for (int i = 0; i < 2000; ++i) modules.push_back(*client.LoadModule("any PTX"));
  modules.clear();
  for (int i = 0; i < 2000; ++i) modules.push_back(*client.LoadModule("any PTX"));
  EXPECT_EQ(worker.unloaded_modules().size(), 2000u);
  EXPECT_TRUE(client.status().ok());
}

TEST(Modules, UnloadDoesNotWaitForSilentServer) {
  FakeWorker worker;
  const Client client = Connected(worker);
  std::vector<Module> modules;
  for (int i = 0; i < 1000; ++i) modules.push_back(*client.LoadModule("any PTX"));
  worker.set_answering(false);
  modules.clear();
  worker.set_answering(true);
  const Result<Module> next = client.LoadModule("any PTX");
  EXPECT_TRUE(next.ok());
  EXPECT_EQ(worker.unloaded_modules().size(), 1000u) << "before the next is loaded";
}

// ---- memory, seen through the public interface

TEST(Memory, BuffersOfOneMappingStepNeedOneRoundTrip) {
  FakeWorker worker;
  const Client client = Connected(worker);
  std::vector<DeviceBuffer> buffers;
  for (int i = 0; i < 20; ++i) buffers.push_back(std::move(*client.AllocateDevice(1000)));
  EXPECT_EQ(worker.resizes().size(), 1u);
  EXPECT_EQ(client.memory_info().used_bytes, 20u * 1024);
  EXPECT_EQ(client.memory_info().total_bytes, 64u << 20);
}

TEST(Memory, MovedBuffersAreFreedOnce) {
  FakeWorker worker;
  const Client client = Connected(worker);
  DeviceBuffer first = std::move(*client.AllocateDevice(1000));
  DeviceBuffer second = std::move(first);
  EXPECT_FALSE(first.valid());  // NOLINT(bugprone-use-after-move): that is the rule.
  EXPECT_EQ(second.size(), 1000u);
  first.Reset();
  EXPECT_EQ(client.memory_info().used_bytes, 1024u);
  second = DeviceBuffer();
  EXPECT_EQ(client.memory_info().used_bytes, 0u);
}

}  // namespace
}  // namespace gpushared

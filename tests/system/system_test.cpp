// SPDX-License-Identifier: Apache-2.0
// The users' view: the client library against a real server process.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpushared/client.h"
#include "gpushared/gpushared.h"
#include "gpushared/texture_record.h"

#include "tests/support/server_process.h"

namespace gpushared::testing {
namespace {

using namespace std::chrono_literals;

constexpr Dim3 kThreads{128, 1, 1};

Dim3 BlocksFor(int count) {
  return {(static_cast<std::uint32_t>(count) + kThreads.x - 1) / kThreads.x, 1, 1};
}

class System : public ::testing::Test {
 protected:
  Client Connect(ClientOptions options = {}) {
    options.socket = server_.socket();
    Result<Client> client = Client::Connect(options);
    EXPECT_TRUE(client.ok()) << client.status().ToString();
    return client.ok() ? std::move(client).value() : Client();
  }
  static Kernel Load(const Client& client, const char* name) {
    Result<Module> module = client.LoadModuleFile(GPUSHARED_SYSTEM_KERNELS);
    EXPECT_TRUE(module.ok()) << module.status().ToString();
    Result<Kernel> kernel = module->GetKernel(name);
    EXPECT_TRUE(kernel.ok()) << kernel.status().ToString();
    return std::move(kernel).value();
  }
  static DeviceBuffer Allocate(const Client& client, std::size_t bytes) {
    Result<DeviceBuffer> buffer = client.AllocateDevice(bytes);
    EXPECT_TRUE(buffer.ok()) << buffer.status().ToString();
    return std::move(buffer).value();
  }
  static unsigned ReadWord(const Client& client, DeviceAddress address) {
    unsigned value = 0;
    EXPECT_TRUE(client.default_stream().CopyToHost(&value, address, sizeof value).ok());
    return value;
  }

  ServerProcess server_;
};

TEST_F(System, VectorAddComputesSums) {
  constexpr int kCount = 10'000;
  const Client client = Connect();
  const Kernel add = Load(client, "add");
  std::vector<float> a(kCount), b(kCount, 0.5f), sum(kCount);
  std::iota(a.begin(), a.end(), 0.0f);
  const DeviceBuffer da = Allocate(client, kCount * 4), db = Allocate(client, kCount * 4),
                     ds = Allocate(client, kCount * 4);
  const Stream stream = client.default_stream();
  ASSERT_TRUE(stream.CopyToDevice(da, a.data(), kCount * 4).ok());
  ASSERT_TRUE(stream.CopyToDevice(db, b.data(), kCount * 4).ok());
  ASSERT_TRUE(
      stream.Launch(add, {.grid = BlocksFor(kCount), .block = kThreads}, da, db, ds, kCount).ok());
  ASSERT_TRUE(stream.CopyToHost(sum.data(), ds, kCount * 4).ok());
  for (int i = 0; i < kCount; ++i)
    ASSERT_EQ(sum[static_cast<std::size_t>(i)], static_cast<float>(i) + 0.5f);
}

TEST_F(System, ProgramInCFindsDeviceAndKernelAndReadsItsOutput) {
  gpushared_client_options options;
  gpushared_client_options_init(&options);
  options.socket = server_.socket().c_str();
  gpushared_device_list* devices = nullptr;
  ASSERT_EQ(gpushared_list_devices(&options, &devices), GPUSHARED_OK);
  gpushared_device_properties device;
  EXPECT_EQ(gpushared_get_device_count(devices), 1u);
  ASSERT_EQ(gpushared_get_listed_device(devices, 0, &device), GPUSHARED_OK);
  EXPECT_STREQ(device.id, "cpu:0");
  EXPECT_EQ(gpushared_get_listed_device(devices, 1, &device), GPUSHARED_NOT_FOUND);
  gpushared_destroy_device_list(devices);

  options.takes_printed = 1;
  gpushared_client* client = nullptr;
  gpushared_module* module = nullptr;
  ASSERT_EQ(gpushared_connect(&options, &client), GPUSHARED_OK);
  ASSERT_EQ(gpushared_load_module_file(client, GPUSHARED_SYSTEM_KERNELS, &module), GPUSHARED_OK);
  std::size_t kernels = 0;
  ASSERT_EQ(gpushared_get_kernel_count(module, &kernels), GPUSHARED_OK);
  gpushared_kernel* say = nullptr;
  EXPECT_EQ(gpushared_get_kernel_at(module, kernels, &say), GPUSHARED_NOT_FOUND);
  for (std::size_t i = 0; i < kernels; ++i) {
    gpushared_kernel* kernel = nullptr;
    gpushared_kernel_info info;
    ASSERT_EQ(gpushared_get_kernel_at(module, i, &kernel), GPUSHARED_OK);
    ASSERT_EQ(gpushared_get_kernel_info(kernel, &info), GPUSHARED_OK);
    if (std::string_view(info.name) == "say") std::swap(say, kernel);
    gpushared_destroy_kernel(kernel);
  }
  const gpushared_launch_shape one = {.grid = {1, 1, 1}, .block = {1, 1, 1}};
  const unsigned number = 41;
  gpushared_stream* stream = gpushared_default_stream(client);
  EXPECT_EQ(gpushared_launch_packed(stream, say, &one, &number, sizeof number - 1),
            GPUSHARED_INVALID_ARGUMENT);
  ASSERT_EQ(gpushared_launch_packed(stream, say, &one, &number, sizeof number), GPUSHARED_OK);
  ASSERT_EQ(gpushared_synchronize(client), GPUSHARED_OK);
  std::string printed;
  char piece[4];
  for (std::size_t bytes = 1; bytes != 0; printed.append(piece, bytes)) {
    ASSERT_EQ(gpushared_take_printed(client, piece, sizeof piece, &bytes), GPUSHARED_OK);
  }
  EXPECT_EQ(printed, "number 41\033[0m\n");
  gpushared_destroy_kernel(say);
  gpushared_destroy_module(module);
  gpushared_destroy_client(client);
}

TEST_F(System, LaunchesOfOneStreamRunInOrder) {
  constexpr int kCount = 256, kLaunches = 500;
  const Client client = Connect();
  const Kernel step = Load(client, "step");
  const DeviceBuffer out = Allocate(client, kCount * 4);
  const Stream stream = client.default_stream();
  ASSERT_TRUE(stream.Fill(out, FillElement::U32(1), kCount).ok());
  unsigned expected = 1;
  for (int i = 0; i < kLaunches; ++i) {
    ASSERT_TRUE(
        stream.Launch(step, {.grid = BlocksFor(kCount), .block = kThreads}, out, kCount).ok());
    expected = expected * 3 + 1;
  }
  ASSERT_TRUE(stream.Synchronize().ok());
  EXPECT_EQ(ReadWord(client, out), expected);
}

TEST_F(System, GraphRunsNodesInOrderAndAcceptsNewArguments) {
  constexpr int kCount = 256, kNodes = 100, kLaunches = 4;
  for (const SchedulingClass of_class : {SchedulingClass::kHigh, SchedulingClass::kLow}) {
    const Client client = Connect({.scheduling_class = of_class});
    const Kernel step = Load(client, "step");
    const DeviceBuffer out = Allocate(client, kCount * 4);
    const LaunchShape shape{.grid = BlocksFor(kCount), .block = kThreads};
    const Stream recorder = *client.CreateRecorder();
    for (int i = 0; i < kNodes; ++i) ASSERT_TRUE(recorder.Launch(step, shape, out, kCount).ok());
    const Graph graph = *recorder.MakeGraph();
    const Stream stream = client.default_stream();
    ASSERT_TRUE(stream.Fill(out, FillElement::U32(1), kCount).ok());
    unsigned first = 1, last = 1;
    for (int launch = 0; launch < kLaunches; ++launch) {
      ASSERT_TRUE(graph.Launch(stream).ok());
      for (int i = 0; i < kNodes; ++i) {
        if (i > 0 || launch == 0) last = last * 3 + 1;
        first = first * 3 + 1;
      }
      // After the first launch, node 0 steps only the first word.
      ASSERT_TRUE(graph.SetLaunch(0, step, shape, out, 1).ok());
    }
    ASSERT_TRUE(stream.Synchronize().ok());
    EXPECT_EQ(ReadWord(client, out), first);
    EXPECT_EQ(ReadWord(client, DeviceAddress{out} + (kCount - 1) * 4), last);
  }
}

TEST_F(System, EventsOrderStreamsAndMeasureTime) {
  const Client client = Connect();
  const Kernel work = Load(client, "work"), step = Load(client, "step");
  const DeviceBuffer done = Allocate(client, 4), out = Allocate(client, 4);
  Stream first = std::move(client.CreateStream()).value(),
         second = std::move(client.CreateStream()).value();
  const Event begin = *client.CreateEvent(EventTiming::kOn),
              end = *client.CreateEvent(EventTiming::kOn);
  ASSERT_TRUE(first.Fill(done, FillElement::U32(0), 1).ok());
  ASSERT_TRUE(first.Record(begin).ok());
  ASSERT_TRUE(first.Launch(work, {.grid = {16, 1, 1}, .block = kThreads}, done, 20'000).ok());
  ASSERT_TRUE(first.Record(end).ok());
  ASSERT_TRUE(second.Wait(end).ok());
  ASSERT_TRUE(second.CopyOnDevice(out, done, 4).ok());
  ASSERT_TRUE(second.Synchronize().ok());
  EXPECT_EQ(ReadWord(client, out), 16u) << "the second stream did not wait for the first";
  ASSERT_TRUE(end.Synchronize().ok());
  const auto elapsed = Event::ElapsedTime(begin, end);
  ASSERT_TRUE(elapsed.ok()) << elapsed.status().ToString();
  EXPECT_GT(*elapsed, 100us);
}

TEST_F(System, RejectsUnsupportedLaunchAttributes) {
  const Client client = Connect();
  const Kernel step = Load(client, "step");
  const DeviceBuffer out = Allocate(client, 4);
  const auto rejection = [&](const LaunchShape& shape) {
    Stream stream = *client.CreateStream();
    if (Status status = stream.Launch(step, shape, out, 1); !status.ok()) return status;
    return stream.Synchronize();
  };
  const Status cluster = rejection({.grid = {2, 1, 1}, .cluster = {2, 1, 1}});
  EXPECT_EQ(cluster.code(), StatusCode::kUnsupported) << cluster.ToString();
  EXPECT_NE(cluster.message().find("kernel 'step' is launched in clusters of blocks, which are "
                                   "not supported by device cpu:0"),
            std::string::npos)
      << cluster.ToString();
  // Sizes that no device could have are rejected at once.
  for (const Dim3 bad : {Dim3{2, 0, 0}, Dim3{17, 1, 1}, Dim3{4, 5, 1}, Dim3{0, 0, 1}}) {
    EXPECT_EQ(client.default_stream().Launch(step, {.cluster = bad}, out, 1).code(),
              StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(client.default_stream().Launch(step, {}, out, 1).ok());
  EXPECT_TRUE(client.Synchronize().ok());
}

TEST_F(System, FaultNamesItsPlaceAndEndsOnlyItsStream) {
  const Client client = Connect({.name = "culprit"}), neighbour = Connect({.name = "neighbour"});
  const Kernel store_at = Load(client, "store_at");
  const DeviceBuffer word = Allocate(client, 4);
  Stream bad = std::move(client.CreateStream()).value();
  ASSERT_TRUE(bad.Launch(store_at, {}, word, 1ll << 40).ok());
  const Status fault = bad.Synchronize();
  EXPECT_EQ(fault.code(), StatusCode::kKernelFault);
  EXPECT_NE(fault.message().find("store_at"), std::string::npos) << fault.message();
  EXPECT_NE(fault.message().find("line"), std::string::npos) << fault.message();
  EXPECT_EQ(bad.Fill(word, FillElement::U32(1), 1).code(), StatusCode::kKernelFault)
      << "the error is sticky";

  const Stream good = client.default_stream();
  ASSERT_TRUE(good.Fill(word, FillElement::U32(5), 1).ok());
  EXPECT_EQ(ReadWord(client, word), 5u);
  EXPECT_TRUE(neighbour.status().ok());
}

TEST_F(System, KernelCannotAccessOtherClientsMemory) {
  const Client victim = Connect(), thief = Connect();
  const DeviceBuffer secret = Allocate(victim, 4), own = Allocate(thief, 4);
  ASSERT_TRUE(victim.default_stream().Fill(secret, FillElement::U32(77), 1).ok());
  ASSERT_TRUE(victim.Synchronize().ok());
  const Kernel store_at = Load(thief, "store_at");
  const long long distance =
      static_cast<long long>(secret.address()) - static_cast<long long>(own.address());
  ASSERT_TRUE(thief.default_stream().Launch(store_at, {}, own, distance).ok());
  EXPECT_EQ(thief.Synchronize().code(), StatusCode::kKernelFault);
  EXPECT_EQ(ReadWord(victim, secret), 77u);
  EXPECT_EQ(thief.status().code(), StatusCode::kOk);
}

// The record of a texture belongs to the client, so it may contain anything.
TEST_F(System, TexturesAccessOnlyOwnMemory) {
  constexpr std::string_view kCheckKill = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry look(.param .u64 texture, .param .u64 out) {
  .reg .b64 %rd<3>; .reg .b32 %r<5>;
  ld.param.u64 %rd1, [texture]; ld.param.u64 %rd2, [out];
  mov.u32 %r0, 3;
  tex.1d.v4.u32.s32 {%r1, %r2, %r3, %r4}, [%rd1, {%r0}];
  st.global.u32 [%rd2], %r1;
  ret;
}
)";
  const Client client = Connect(), neighbour = Connect();
  const DeviceBuffer mine = Allocate(client, 4096), theirs = Allocate(neighbour, 4096);
  ASSERT_TRUE(client.default_stream().Fill(mine, FillElement::U32(11), 64).ok());
  ASSERT_TRUE(neighbour.default_stream().Fill(theirs, FillElement::U32(22), 64).ok());
  ASSERT_TRUE(neighbour.default_stream().Synchronize().ok());
  const Result<Module> module = client.LoadModule(kCheckKill);
  ASSERT_TRUE(module.ok()) << module.status().ToString();
  const Kernel look = *module->GetKernel("look");
  const DeviceBuffer out = Allocate(client, 4), place = Allocate(client, sizeof(TextureRecord));
  const auto looked = [&](DeviceAddress texels) {
    TextureRecord record;
    record.address = texels;
    record.format = TexelFormat::kUint32;
    record.extents[0] = 64, record.extents[1] = record.extents[2] = 1;
    const Stream stream = *client.CreateStream();
    EXPECT_TRUE(stream.CopyToDevice(place, &record, sizeof record).ok());
    EXPECT_TRUE(stream.Launch(look, {.grid = {1}, .block = {1}}, place.address(), out).ok());
    return stream.Synchronize();
  };
  EXPECT_TRUE(looked(mine).ok());
  EXPECT_EQ(ReadWord(client, out), 11u);
  const Status status = looked(theirs);
  EXPECT_EQ(status.code(), StatusCode::kKernelFault);
  EXPECT_NE(status.message().find("PTX line 9, tex.1d.v4.u32.s32: 4 bytes at"), std::string::npos)
      << status.message();
  EXPECT_EQ(ReadWord(client, out), 11u);
  EXPECT_EQ(ReadWord(neighbour, theirs), 22u);
}

TEST_F(System, CopyCannotAccessOtherClientsMemory) {
  const Client victim = Connect(), thief = Connect();
  const DeviceBuffer secret = Allocate(victim, 4);
  unsigned loot = 0;
  EXPECT_EQ(thief.default_stream().CopyToHost(&loot, secret.address(), 4).code(),
            StatusCode::kInvalidArgument);
}

TEST_F(System, FailedAssertIsAFault) {
  const Client client = Connect();
  const Kernel kernel = Load(client, "assert_below");
  ASSERT_TRUE(client.default_stream().Launch(kernel, {.grid = {}, .block = {64, 1, 1}}, 10).ok());
  const Status status = client.Synchronize();
  EXPECT_EQ(status.code(), StatusCode::kKernelFault);
  EXPECT_NE(status.message().find("threadIdx.x"), std::string::npos) << status.message();
}

TEST_F(System, ZeroesMemoryOfDeadClientForNextOne) {
  constexpr int kWords = 1 << 20;
  {
    const Client first = Connect();
    const DeviceBuffer words = Allocate(first, kWords * 4);
    ASSERT_TRUE(first.default_stream().Fill(words, FillElement::U32(0xabababab), kWords).ok());
    ASSERT_TRUE(first.Synchronize().ok());
  }
  const Client second = Connect();
  const Kernel read_all = Load(second, "read_all");
  const DeviceBuffer words = Allocate(second, kWords * 4), nonzero = Allocate(second, 4);
  ASSERT_TRUE(second.default_stream().Fill(nonzero, FillElement::U32(0), 1).ok());
  ASSERT_TRUE(
      second.default_stream()
          .Launch(read_all, {.grid = BlocksFor(kWords), .block = kThreads}, words, kWords, nonzero)
          .ok());
  EXPECT_EQ(ReadWord(second, nonzero), 0u);
}

TEST_F(System, EveryClientHasItsOwnModuleVariables) {
  const Client a = Connect(), b = Connect();
  const Kernel bump_a = Load(a, "bump_module_counter"), bump_b = Load(b, "bump_module_counter");
  const DeviceBuffer out_a = Allocate(a, 4), out_b = Allocate(b, 4);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(a.default_stream().Launch(bump_a, {}, out_a).ok());
  ASSERT_TRUE(b.default_stream().Launch(bump_b, {}, out_b).ok());
  EXPECT_EQ(ReadWord(a, out_a), 9u);
  EXPECT_EQ(ReadWord(b, out_b), 7u);
}

// A load that stalls ends only with the control timeout of 30 s, so a few stalls exceed the limit.
TEST_F(System, LoadsAndUnloadsTwoThousandModulesWithoutStall) {
  const Client client = Connect();
  const std::string_view text =
      ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n";
  const auto began = std::chrono::steady_clock::now();
  for (int round = 0; round < 10; ++round) {
    std::vector<Module> modules;
    for (int i = 0; i < 200; ++i) {
      Result<Module> module = client.LoadModule(text);
      ASSERT_TRUE(module.ok()) << module.status().ToString();
      modules.push_back(*std::move(module));
    }
  }
  EXPECT_LT(std::chrono::steady_clock::now() - began, 120s);
  EXPECT_TRUE(Load(client, "step").valid());
  EXPECT_TRUE(client.status().ok());
}

TEST_F(System, ParametersLargerThanARingRecordArrive) {
  struct Large {
    unsigned values[1500];
  } large{};
  for (unsigned i = 0; i < 1500; ++i) large.values[i] = i;
  const Client client = Connect();
  const Kernel kernel = Load(client, "sum_large");
  const DeviceBuffer out = Allocate(client, 4);
  ASSERT_TRUE(client.default_stream().Launch(kernel, {}, large, out).ok());
  EXPECT_EQ(ReadWord(client, out), 1499u * 1500 / 2);
}

TEST_F(System, CopiesOfManySizesComeBackUnchanged) {
  const Client client = Connect();
  const Stream stream = client.default_stream();
  for (const std::size_t bytes : {1ul, 63ul, 4097ul, 1'000'003ul, 40'000'000ul}) {
    std::vector<unsigned char> out(bytes), in(bytes);
    for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<unsigned char>(i * 31 + bytes);
    const DeviceBuffer device = Allocate(client, bytes);
    ASSERT_TRUE(stream.CopyToDevice(device, out.data(), bytes).ok());
    ASSERT_TRUE(stream.CopyToHost(in.data(), device, bytes).ok());
    EXPECT_TRUE(in == out) << bytes << " bytes";
  }
}

TEST_F(System, QuotaIsTheTotalAndIsKept) {
  ServerProcess small({"--memory", "64MiB"});
  Result<Client> client = Client::Connect({.socket = small.socket()});
  ASSERT_TRUE(client.ok()) << client.status().ToString();
  EXPECT_LE(client->memory_info().total_bytes, 64u << 20);
  const Result<DeviceBuffer> rejected = client->AllocateDevice(65u << 20);
  EXPECT_EQ(rejected.status().code(), StatusCode::kOutOfMemory);
  EXPECT_TRUE(client->AllocateDevice(16u << 20).ok()) << "a rejection must not break what fits";
}

TEST_F(System, RejectsCallsInForkedChildWithReason) {
  const Client client = Connect();
  const pid_t child = ::fork();
  if (child == 0) {
    const Status status = client.default_stream().Synchronize();
    ::_exit(status.code() == StatusCode::kWrongProcess ? 0 : 1);
  }
  int wait_status = 0;
  ASSERT_EQ(::waitpid(child, &wait_status, 0), child);
  EXPECT_EQ(wait_status, 0);
  EXPECT_TRUE(client.Synchronize().ok()) << "the parent's session must go on";
}

TEST_F(System, WorkerDeathIsReportedAndNewWorkerTakesOver) {
  const Client client = Connect();
  const Kernel work = Load(client, "work");
  const DeviceBuffer done = Allocate(client, 4);
  ASSERT_TRUE(client.default_stream()
                  .Launch(work, {.grid = {1u << 20, 1, 1}, .block = kThreads}, done, 100'000)
                  .ok());
  const std::vector<pid_t> before = server_.workers();
  ASSERT_EQ(before.size(), 1u);
  ::kill(before[0], SIGKILL);
  const Status lost = client.Synchronize();
  EXPECT_TRUE(lost.code() == StatusCode::kDeviceLost || lost.code() == StatusCode::kDisconnected)
      << lost.ToString();

  ASSERT_TRUE(
      Eventually([&] { return !server_.workers().empty() && server_.workers() != before; }));
  ASSERT_TRUE(Eventually([&] { return Client::Connect({.socket = server_.socket()}).ok(); }));
}

TEST_F(System, SessionsOutliveTheBroker) {
  const Client client = Connect();
  const Kernel step = Load(client, "step");
  const DeviceBuffer out = Allocate(client, 4);
  const std::vector<pid_t> workers = server_.workers();
  server_.Signal(SIGKILL);
  server_.WaitForExit();
  ASSERT_TRUE(client.default_stream().Launch(step, {}, out, 1).ok());
  EXPECT_TRUE(client.Synchronize().ok()) << "workers finish their sessions without a broker";
  const_cast<Client&>(client).Close();
  // The worker first waits up to 20 s for another broker.
  EXPECT_TRUE(Eventually([&] { return ::kill(workers.at(0), 0) != 0; }, std::chrono::seconds(60)))
      << "an orphaned worker with no session exits";
}

TEST_F(System, EndlessKernelOfAKilledClientEnds) {
  const pid_t child = ::fork();
  if (child == 0) {
    Result<Client> client = Client::Connect({.socket = server_.socket()});
    Result<Module> module = client->LoadModuleFile(GPUSHARED_SYSTEM_KERNELS);
    Result<DeviceBuffer> flag = client->AllocateDevice(4);
    (void)client->default_stream().Launch(*module->GetKernel("endless"), {}, *flag);
    ::pause();
  }
  std::this_thread::sleep_for(200ms);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  const Client next = Connect();
  const Kernel step = Load(next, "step");
  const DeviceBuffer out = Allocate(next, 4);
  ASSERT_TRUE(next.default_stream().Launch(step, {}, out, 1).ok());
  EXPECT_TRUE(next.Synchronize().ok());
}

TEST_F(System, TwoServersOnOneSocketAreRejected) {
  const ProgramOutcome second =
      RunProgram({GPUSHARED_BIN_DIR "/gpushared", "--socket", server_.socket()});
  EXPECT_NE(second.exit_code, 0);
  EXPECT_NE(second.output.find(server_.socket()), std::string::npos) << second.output;
  EXPECT_TRUE(Connect().valid());
}

TEST_F(System, SocketOfAKilledServerIsTakenOver) {
  server_.Signal(SIGKILL);
  server_.WaitForExit();
  const pid_t second =
      StartProgram({GPUSHARED_BIN_DIR "/gpushared", "--socket", server_.socket()}, "");
  EXPECT_TRUE(Eventually([&] { return Client::Connect({.socket = server_.socket()}).ok(); }));
  ::kill(second, SIGTERM);
  int status = 0;
  ::waitpid(second, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(System, FirstSigtermWaitsForSessionsAndSecondDoesNot) {
  const Client client = Connect();
  server_.Signal(SIGTERM);
  ASSERT_TRUE(Eventually([&] { return !Client::Connect({.socket = server_.socket()}).ok(); }))
      << "a draining server takes nobody in";
  EXPECT_TRUE(client.Synchronize().ok()) << "but it finishes what it has";
  server_.Signal(SIGTERM);
  EXPECT_GE(server_.WaitForExit(), 0);
  EXPECT_TRUE(Eventually([&] { return !client.status().ok(); }));
}

TEST_F(System, OperatorListsChangesAndEndsClients) {
  const Client client =
      Connect({.name = "visible", .scheduling_class = SchedulingClass::kLow, .weight = 3});
  const ProgramOutcome ps = server_.Ctl({"ps"});
  EXPECT_EQ(ps.exit_code, 0) << ps.output;
  EXPECT_NE(ps.output.find("visible"), std::string::npos) << ps.output;
  const std::string id = std::to_string(client.session_id());
  EXPECT_EQ(server_.Ctl({"client", "set", id, "--class", "high", "--weight", "2"}).exit_code, 0);
  EXPECT_NE(server_.Ctl({"ps"}).output.find("high"), std::string::npos);
  EXPECT_EQ(server_.Ctl({"client", "terminate", id}).exit_code, 0);
  EXPECT_TRUE(Eventually([&] { return client.status().code() == StatusCode::kDisconnected; }))
      << client.status().ToString();
  EXPECT_NE(server_.Ctl({"client", "terminate", "999999"}).exit_code, 0);
}

TEST_F(System, OperatorNamesAClientByItsName) {
  const Client one = Connect({.name = "one"}), other = Connect({.name = "twin"}),
               twin = Connect({.name = "twin"});
  EXPECT_EQ(server_.Ctl({"client", "set", "one", "--weight", "3"}).output,
            "client " + std::to_string(one.session_id()) + " is changed\n");
  const ProgramOutcome several = server_.Ctl({"client", "terminate", "twin"});
  EXPECT_EQ(several.exit_code, 1);
  EXPECT_THAT(
      several.output,
      ::testing::HasSubstr("2 clients are called 'twin': " + std::to_string(other.session_id()) +
                           ", " + std::to_string(twin.session_id()) + "; name one by its ID"));
  const ProgramOutcome none = server_.Ctl({"explain", "nobody"});
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_THAT(none.output, ::testing::HasSubstr("there is no client 'nobody'; connected are " +
                                                std::to_string(one.session_id()) + " 'one', "));
  EXPECT_EQ(server_.Ctl({"client", "terminate", "one"}).exit_code, 0);
  EXPECT_TRUE(Eventually([&] { return !one.status().ok(); }));
}

TEST_F(System, ExplainsSlowRequestToOperator) {
  const Client client = Connect({.name = "asked",
                                 .latency_target = std::chrono::hours(1),
                                 .spin = std::chrono::nanoseconds(0)});
  const Kernel step = Load(client, "step");
  const DeviceBuffer out = Allocate(client, 4096);
  const Stream stream = client.default_stream();
  ASSERT_TRUE(stream.BeginRequest(std::chrono::milliseconds(3)).ok());
  ASSERT_TRUE(stream.Launch(step, {.grid = BlocksFor(1024), .block = kThreads}, out, 1024).ok());
  ASSERT_TRUE(stream.EndRequest().ok());
  ASSERT_TRUE(stream.Synchronize().ok());
  const std::string id = std::to_string(client.session_id());
  const ProgramOutcome told = server_.Ctl({"explain", id});
  EXPECT_EQ(told.exit_code, 0) << told.output;
  EXPECT_NE(told.output.find("of client " + id + " 'asked' (normal) took "), std::string::npos)
      << told.output;
  EXPECT_NE(told.output.find("target 1.0 h: met"), std::string::npos) << told.output;
  EXPECT_NE(told.output.find("3.0 ms in the client's own queue"), std::string::npos) << told.output;
  EXPECT_NE(told.output.find("its longest command: kernel 'step'"), std::string::npos)
      << told.output;
  EXPECT_EQ(server_.Ctl({"explain", id, "1", "--json"}).exit_code, 0);
  EXPECT_EQ(server_.Ctl({"explain", "asked"}).output, server_.Ctl({"explain", id}).output);
  const ProgramOutcome unknown = server_.Ctl({"explain", id, "99"});
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_NE(unknown.output.find("request 99 of client " + id + " is not known"), std::string::npos)
      << unknown.output;
  EXPECT_EQ(server_.Ctl({"explain", "999999"}).exit_code, 1);
}

TEST_F(System, OneClientServesSeveralThreads) {
  constexpr int kCount = 512, kLaunches = 100;
  const Client client = Connect();
  const Kernel step = Load(client, "step");
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      Result<Stream> stream = client.CreateStream();
      ASSERT_TRUE(stream.ok());
      const DeviceBuffer out = Allocate(client, kCount * 4);
      ASSERT_TRUE(stream->Fill(out, FillElement::U32(0), kCount).ok());
      unsigned expected = 0;
      for (int i = 0; i < kLaunches; ++i) {
        ASSERT_TRUE(
            stream->Launch(step, {.grid = BlocksFor(kCount), .block = kThreads}, out, kCount).ok());
        expected = expected * 3 + 1;
      }
      std::vector<unsigned> result(kCount);
      ASSERT_TRUE(stream->CopyToHost(result.data(), out, kCount * 4).ok());
      EXPECT_EQ(result, std::vector<unsigned>(kCount, expected));
    });
  }
}

}  // namespace
}  // namespace gpushared::testing

// SPDX-License-Identifier: Apache-2.0
// The life of a session, from the handshake to its last byte.
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/worker/harness.h"
#include "tests/support/passed_descriptor.h"

#include <nlohmann/json.hpp>

namespace gpushared::testing {
namespace {

using ::testing::HasSubstr;

TEST(WorkerSession, ReportsReadinessAndSessionStartAndEndToBroker) {
  WorkerHarness worker(kAtOnce);
  const auto ready = worker.Await<ipc::Ready>();
  ASSERT_TRUE(ready);
  EXPECT_EQ(ready->device.id, "step:0");

  RawClient client = worker.Client();
  const auto started = worker.Await<ipc::SessionStarted>();
  ASSERT_TRUE(started);
  EXPECT_EQ(started->session, worker.last_session());

  client.CloseSocket();
  const auto ended = worker.Await<ipc::SessionEnded>();
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->session, worker.last_session());
  EXPECT_TRUE(ended->status.ok()) << ended->status.ToString();
}

TEST(WorkerSession, WelcomeDescribesSpaceQuotaAndDevice) {
  WorkerHarness worker(kAtOnce);
  RawClient client = worker.Connect({.quota_bytes = std::uint64_t{8} << 20});
  ASSERT_TRUE(client.AwaitWelcome().ok());

  EXPECT_EQ(client.welcome().session, worker.last_session());
  EXPECT_EQ(client.welcome().quota_bytes, std::uint64_t{8} << 20);
  EXPECT_EQ(client.welcome().space_base % client.welcome().space_bytes, 0u);
  EXPECT_EQ(client.welcome().device.id, "step:0");
  EXPECT_TRUE(client.welcome().device.preempts_within_command);
}

TEST(WorkerSession, LoadingModuleReturnsItsKernels) {
  WorkerHarness worker(kAtOnce);
  RawClient client = worker.Connect({});
  ASSERT_TRUE(client.AwaitWelcome().ok());
  const auto loaded = client.LoadModule(3, "a 16\nb 0 needs tensor cores\n");

  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  EXPECT_EQ(loaded->module, 3u);
  ASSERT_EQ(loaded->kernels.size(), 2u);
  EXPECT_EQ(loaded->kernels[0].name, "a");
  EXPECT_EQ(loaded->kernels[0].parameter_bytes, 16u);
  EXPECT_EQ(loaded->kernels[0].parameters.size(), 2u);
  EXPECT_EQ(loaded->kernels[1].unsupported, "needs tensor cores");
  const auto bad = client.LoadModule(4, "nonsense\n");
  EXPECT_EQ(bad.status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(client.LoadModule(4, "c 0\n").ok()) << "a rejected module leaves its number free";
}

TEST(WorkerSession, FreesImageOfRejectedModule) {
  server::WorkerOptions options;
  options.limits.images_bytes = kMiB;
  WorkerHarness worker({}, std::move(options));
  RawClient client = worker.Client();
  for (int round = 0; round < 40; ++round) {
    const auto bad = client.LoadModule(4, std::string(64 << 10, 'x'));
    ASSERT_EQ(bad.status().code(), StatusCode::kInvalidArgument) << bad.status().ToString();
  }
}

TEST(WorkerSession, ModuleNumberIsInUseUntilItsLastCommandFinishes) {
  WorkerHarness worker;
  RawClient client = worker.Client();
  EXPECT_THAT(client.LoadModule(0, "x 0\n").status().message(), HasSubstr("number 0 is in use"));

  const Sequence launch = client.Launch(0, 0, 0);
  ASSERT_TRUE(client.Ask<ipc::Done>(ipc::UnloadModule{.module = 0}).ok());
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u)
      << "what was submitted before the unloading still runs";
  EXPECT_EQ(worker.device().modules_alive(), 1);
  EXPECT_THAT(client.LoadModule(0, "x 0\n").status().message(), HasSubstr("still used"));
  EXPECT_EQ(client.Ask<ipc::Done>(ipc::UnloadModule{.module = 0}).status().code(),
            StatusCode::kNotFound);

  worker.device().RunAtOnce();
  ASSERT_TRUE(client.AwaitFinished(0, launch));
  ASSERT_TRUE(Eventually([&] { return worker.device().modules_alive() == 0; }));
  const Sequence late = client.Launch(0, 0, 0);
  ASSERT_TRUE(client.AwaitFinished(0, late));
  const auto notice = client.NextCompletion();
  ASSERT_TRUE(notice);
  EXPECT_EQ(notice->code, StatusCode::kNotFound);
  EXPECT_TRUE(client.LoadModule(0, "x 0\n").ok());
}

TEST(WorkerSession, CopiesAndFillsReachVariablesOfTheClientsModules) {
  WorkerHarness worker(kAtOnce);
  RawClient client = worker.Client();
  const auto loaded = client.LoadModule(2, "k 0\nvariable table 16\nvariable count 4\n");
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  ASSERT_EQ(loaded->variables.size(), 2u);
  EXPECT_EQ(loaded->variables[1].name, "count");
  EXPECT_EQ(loaded->variables[1].bytes, 4u);
  const std::uint64_t table = loaded->variables[0].address;
  ASSERT_TRUE(client.AddStagingBuffer(ipc::kStagingBytesStep).ok());

  client.Fill(0, table, 16, 0x5a);
  const Sequence read = client.CopyToHost(0, 0, 0, table, 16);
  ASSERT_TRUE(client.AwaitFinished(0, read));
  EXPECT_FALSE(client.TakeCompletion());
  EXPECT_EQ(client.staging_buffer(0)[15], std::byte{0x5a});

  RawClient other = worker.Client();
  ASSERT_TRUE(other.AddStagingBuffer(ipc::kStagingBytesStep).ok());
  const auto expect_rejected = [](RawClient& asker, std::uint32_t stream, Sequence sequence) {
    ASSERT_TRUE(asker.AwaitFinished(stream, sequence));
    const auto notice = asker.NextCompletion();
    ASSERT_TRUE(notice);
    EXPECT_EQ(notice->code, StatusCode::kInvalidArgument);
  };
  expect_rejected(other, 0, other.CopyToHost(0, 0, 0, table, 4));
  client.CreateStream(1);
  expect_rejected(client, 1, client.CopyToHost(1, 0, 0, table, 17));
  client.CreateStream(2);
  expect_rejected(client, 2, client.Fill(2, table - 1, 4, 0));
  ASSERT_TRUE(client.Ask<ipc::Done>(ipc::UnloadModule{.module = 2}).ok());
  client.CreateStream(3);
  expect_rejected(client, 3, client.Fill(3, table, 4, 0));
}

TEST(WorkerSession, CopyKeepsModuleOfItsVariablesLoaded) {
  WorkerHarness worker;
  RawClient client = worker.Client();
  const auto loaded = client.LoadModule(2, "k 0\nvariable table 16\n");
  ASSERT_TRUE(loaded.ok());
  const Sequence fill = client.Fill(0, loaded->variables[0].address, 16, 1);
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  ASSERT_TRUE(client.Ask<ipc::Done>(ipc::UnloadModule{.module = 2}).ok());
  EXPECT_THAT(client.LoadModule(2, "x 0\n").status().message(), HasSubstr("still used"));
  worker.device().RunAtOnce();
  ASSERT_TRUE(client.AwaitFinished(0, fill));
  EXPECT_TRUE(Eventually([&] { return client.LoadModule(2, "x 0\n").ok(); }));
}

TEST(WorkerSession, ThousandsOfModulesMayBeLoaded) {
  WorkerHarness worker(kAtOnce);
  RawClient client = worker.Client();
  for (std::uint32_t number = 1; number < 2000; ++number) {
    ASSERT_TRUE(client.LoadModule(number, "k 0\n").ok()) << number;
  }
  const Sequence launch = client.Launch(0, 1999, 0);
  ASSERT_TRUE(client.AwaitFinished(0, launch));
  EXPECT_FALSE(client.TakeCompletion());
  EXPECT_TRUE(client.LoadModule(ipc::kModulesMax - 1, "k 0\n").ok());
}

TEST(WorkerSession, RejectionNamesExceededLimit) {
  server::WorkerOptions options;
  options.limits.modules_max = 2;
  options.limits.module_bytes_max = 64;
  options.limits.modules_bytes_max = 100;
  options.limits.staging_buffers_max = 2;
  options.limits.staging_bytes_max = 256 * 1024;
  options.limits.staging_bytes_total_max = 320 * 1024;
  options.limits.sessions_max = 1;
  WorkerHarness worker(kAtOnce, std::move(options));
  RawClient client = worker.Connect({.quota_bytes = std::uint64_t{4} << 20});
  ASSERT_TRUE(client.AwaitWelcome().ok());

  const auto expect = [](const Status& status, StatusCode code, const char* says) {
    EXPECT_EQ(status.code(), code) << says;
    EXPECT_THAT(status.message(), HasSubstr(says));
  };
  // Returns an image that is padded to a size by the text of an unsupported kernel.
  const auto padded = [](std::size_t bytes) {
    std::string image = "a 0 ";
    return image + std::string(bytes - image.size(), 'x');
  };
  expect(client.LoadModule(0, padded(65)).status(), StatusCode::kLimitExceeded,
         "65 bytes, allowed: 64");
  ASSERT_TRUE(client.LoadModule(0, padded(64)).ok());
  expect(client.LoadModule(1, padded(37)).status(), StatusCode::kLimitExceeded,
         "37 bytes and 64 are loaded, allowed: 100 together");
  ASSERT_TRUE(client.LoadModule(1, padded(36)).ok());
  expect(client.LoadModule(2, "d 0\n").status(), StatusCode::kLimitExceeded,
         "2 modules are loaded, allowed: 2");
  expect(client.AddStagingBuffer(512 * 1024).status(), StatusCode::kLimitExceeded,
         "allowed: 262144");
  ASSERT_TRUE(client.AddStagingBuffer(256 * 1024).ok());
  expect(client.AddStagingBuffer(128 * 1024).status(), StatusCode::kLimitExceeded,
         "262144 of 327680 are in use");
  ASSERT_TRUE(client.AddStagingBuffer(64 * 1024).ok());
  expect(client.AddStagingBuffer(64 * 1024).status(), StatusCode::kLimitExceeded, "allowed: 2");
  expect(client.Resize(std::uint64_t{6} << 20).status(), StatusCode::kOutOfMemory, "quota");
  RawClient second = worker.Connect({});
  expect(second.AwaitWelcome(), StatusCode::kLimitExceeded, "1 clients, allowed: 1");
}

// Without this reserve, two users with 64 clients each would leave no session for a client of root.
TEST(WorkerSession, ReservesSessionsForClientsThatMayBeHigh) {
  server::WorkerOptions options;
  options.limits.sessions_max = 6;
  options.limits.sessions_kept = 2;
  WorkerHarness worker(kAtOnce, std::move(options));
  constexpr std::uint32_t kStranger = 1000;
  const WorkerHarness::ClientOptions ordinary = {.uid = kStranger,
                                                 .allowed_class = SchedulingClass::kNormal};
  std::vector<RawClient> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(worker.Connect(ordinary));
    ASSERT_TRUE(clients.back().AwaitWelcome().ok());
  }
  const Status rejected = worker.Connect(ordinary).AwaitWelcome();
  EXPECT_EQ(rejected.code(), StatusCode::kLimitExceeded);
  EXPECT_THAT(rejected.message(), HasSubstr("4 clients, allowed: 6, 2 of these for clients"));
  RawClient of_root = worker.Connect({.uid = 0, .allowed_class = SchedulingClass::kNormal});
  EXPECT_TRUE(of_root.AwaitWelcome().ok());
  RawClient high = worker.Connect({.uid = kStranger + 1});
  EXPECT_TRUE(high.AwaitWelcome().ok());
  EXPECT_EQ(worker.Connect({}).AwaitWelcome().code(), StatusCode::kLimitExceeded)
      << "all are taken";
}

TEST(WorkerSession, ModuleNumberIsFreeWhenUnloadIsAnswered) {
  WorkerHarness worker;
  RawClient client = worker.Client();
  for (int round = 0; round < 300; ++round) {
    ASSERT_TRUE(client.Ask<ipc::Done>(ipc::UnloadModule{.module = 0}).ok());
    const auto loaded = client.LoadModule(0, "null 0\n");
    ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  }
}

// Closing the last descriptor of a file may block, here for seconds, and must delay no other
// client. The session keeps its place until the close returns, so that a client cannot cause more
// pending closes than it has sessions.
TEST(WorkerSession, DescriptorFromClientEndsItsSessionAndDelaysNoOther) {
  using Clock = std::chrono::steady_clock;
  WorkerHarness worker(kAtOnce);
  RawClient good = worker.Client({.name = "good"});
  // Returns a client that has sent a descriptor whose last holder is the worker. If the worker
  // closed its copy before this process did, this process was the last holder and has waited for
  // the close instead.
  Clock::time_point began;
  std::vector<LingeringSocket> unread;
  const auto bring = [&](const char* name, const auto& before) {
    for (;;) {
      LingeringSocket lingering(std::chrono::seconds(6));
      RawClient client = worker.Client({.name = name});
      EXPECT_TRUE(lingering.ready());
      before(client);
      began = Clock::now();
      EXPECT_TRUE(
          SendWithDescriptor(client.socket(), std::vector<std::byte>(16), lingering.Take()));
      if (Clock::now() - began < std::chrono::seconds(2)) {
        unread.push_back(std::move(lingering));
        return client;
      }
      EXPECT_TRUE(worker.Await<ipc::SessionEnded>());
    }
  };
  const auto expect_prompt = [&] {
    EXPECT_TRUE(good.Resize(2 * kMiB).ok());
    EXPECT_LT(Clock::now() - began, std::chrono::seconds(4));
    EXPECT_TRUE(worker.Await<ipc::SessionEnded>());
    EXPECT_GT(Clock::now() - began, std::chrono::seconds(4));
  };

  RawClient bad = bring("bad", [](RawClient&) {});
  expect_prompt();
  const Status end = bad.AwaitEnd();
  EXPECT_EQ(end.code(), StatusCode::kProtocolViolation);
  EXPECT_THAT(end.message(), HasSubstr("it carries descriptors, which clients must not send"));

  // A client that disconnects, and whose descriptor is still unread after a request.
  RawClient leaves = bring("leaves", [](RawClient& client) {
    EXPECT_TRUE(client.Send(ipc::ResizeMemory{.bytes = 2 * kMiB}).ok());
  });
  leaves.CloseSocket();
  expect_prompt();
}

TEST(WorkerSession, NewClientSurvivesSimultaneousDeparture) {
  for (const bool process_ends_first : {false, true}) {
    SCOPED_TRACE(process_ends_first);
    WorkerHarness worker(kAtOnce);
    const pid_t process = ::fork();
    if (process == 0) {
      ::pause();
      ::_exit(0);
    }
    RawClient goes = worker.Client({.name = "goes", .process = process});
    std::optional<RawClient> new_client;
    const auto end_process = [&] {
      ::kill(process, SIGKILL);
      siginfo_t info{};
      ::waitid(P_PID, static_cast<id_t>(process), &info, WEXITED | WNOWAIT);
    };
    worker.WhileControlStands([&] {
      if (process_ends_first) end_process();
      if (!process_ends_first) goes.CloseSocket();
      new_client.emplace(worker.Connect({.name = "new_client"}));
      if (process_ends_first) goes.CloseSocket();
      if (!process_ends_first) end_process();
    });
    const Status welcome = new_client->AwaitWelcome();
    EXPECT_TRUE(welcome.ok()) << welcome.ToString();
    EXPECT_TRUE(new_client->Resize(2 * kMiB).ok());
    ::waitpid(process, nullptr, 0);
  }
}

// Urgent bytes would wake the control thread repeatedly while it does not read this socket.
TEST(WorkerSession, UrgentBytesEndASession) {
  WorkerHarness worker(kAtOnce);
  RawClient client = worker.Client();
  const char byte = 1;
  if (::send(client.socket(), &byte, 1, MSG_OOB) < 0 && errno == EOPNOTSUPP) {
    GTEST_SKIP() << "this kernel's Unix sockets have no urgent bytes";
  }
  EXPECT_FALSE(client.Resize(2 * kMiB).ok());
}

TEST(WorkerSession, MalformedRecordEndsOnlyItsSessionWithMessage) {
  WorkerHarness worker(kAtOnce);
  RawClient good = worker.Client({.name = "good"});
  RawClient bad = worker.Client({.name = "bad"});

  ipc::LaunchRecord record;
  record.header.op = static_cast<std::uint8_t>(ipc::Op::kLaunch);
  record.grid[0] = 0;
  bad.Publish(record);
  bad.Ring();
  const Status end = bad.AwaitEnd();
  EXPECT_EQ(end.code(), StatusCode::kProtocolViolation);
  EXPECT_THAT(end.message(), HasSubstr("grid"));
  EXPECT_THAT(end.message(), HasSubstr("'bad'"));
  const auto ended = worker.Await<ipc::SessionEnded>();
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->session, worker.last_session());
  EXPECT_EQ(ended->status.code(), StatusCode::kProtocolViolation);

  const Sequence launch = good.Launch(0, 0, 0);
  EXPECT_TRUE(good.AwaitFinished(0, launch));
}

TEST(WorkerSession, SequenceGapEndsSession) {
  WorkerHarness worker(kAtOnce);
  RawClient client = worker.Client();
  ipc::PlainRecord record;
  record.header.op = static_cast<std::uint8_t>(ipc::Op::kMark);
  record.header.sequence = 2;
  // Does not use RawClient::Publish, which always assigns correct sequence numbers.
  const std::atomic<std::uint64_t> taken{0};
  ipc::TagRingWriter writer(client.commands().granules, taken);
  ASSERT_EQ(writer.TryWrite(record), ipc::WriteResult::kWritten);
  client.Ring();
  EXPECT_EQ(client.AwaitEnd().code(), StatusCode::kProtocolViolation);
}

TEST(WorkerSession, OverwrittenTagsStallOrEndOnlyTheirOwnSession) {
  WorkerHarness worker(kAtOnce);
  RawClient good = worker.Client();
  {
    RawClient bad = worker.Client();
    std::uint32_t noise = 12345;
    for (auto& granule : bad.commands().granules) {
      noise = noise * 1664525u + 1013904223u;
      granule.tag.store(noise, std::memory_order_relaxed);
      std::memset(granule.data, static_cast<int>(noise >> 24), sizeof granule.data);
    }
    bad.commands().completions_taken.store(~std::uint64_t{0});
    bad.commands().waiting.store(~std::uint32_t{0});
    // A valid header in front of invalid bytes.
    bad.commands().granules[0].tag.store(ipc::RingTag(0, false), std::memory_order_release);
    bad.Ring();
    EXPECT_EQ(bad.AwaitEnd().code(), StatusCode::kProtocolViolation);
  }
  EXPECT_TRUE(good.AwaitFinished(0, good.Launch(0, 0, 0)));
}

TEST(WorkerSession, ReturnsEverythingWhenClientClosesSocket) {
  WorkerHarness worker;
  ASSERT_TRUE(worker.Await<ipc::Ready>());
  RawClient first = worker.Client();  // Creates everything that is created only once.
  const Holdings before = Holdings::Now();
  {
    RawClient client = worker.Client();
    ASSERT_TRUE(client.AddStagingBuffer(64 * 1024).ok());
    for (int i = 0; i < 50; ++i) client.Launch(0, 0, 0, {.x = 8});
    client.CreateStream(1);
    client.WaitFor(1, 0, 40);
    ASSERT_GE(worker.device().WaitForSubmissions(1).size(), 1u);
    client.CloseSocket();
    ASSERT_TRUE(worker.Await<ipc::SessionEnded>());
  }
  EXPECT_EQ(worker.device().running_count(), 0u) << "what ran was asked to stop";
  EXPECT_EQ(worker.device().submissions().size(), 1u) << "and nothing more was submitted";
  EXPECT_EQ(worker.device().spaces_alive(), 1);
  EXPECT_EQ(worker.device().modules_alive(), 1);
  EXPECT_EQ(worker.device().mapped_bytes(), std::uint64_t{4} << 20);
  EXPECT_EQ(Holdings::Now(), before);
}

TEST(WorkerSession, EndsWhenProcessDiesThoughAnotherHoldsSocket) {
  WorkerHarness worker(kAtOnce);
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  RawClient client = worker.Connect({.process = child});
  ASSERT_TRUE(client.AwaitWelcome().ok());
  ::kill(child, SIGKILL);
  const auto ended = worker.Await<ipc::SessionEnded>();
  ::waitpid(child, nullptr, 0);
  ASSERT_TRUE(ended);
  EXPECT_EQ(client.AwaitEnd().code(), StatusCode::kDisconnected);
}

TEST(WorkerSession, KillsEndlessKernelOfDepartedClient) {
  server::WorkerOptions options;
  options.kill_after = std::chrono::milliseconds(5);
  WorkerHarness worker({.ignores_stop = true}, std::move(options));
  {
    RawClient client = worker.Client();
    client.Launch(0, 0, 0);
    ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  }
  ASSERT_TRUE(worker.Await<ipc::SessionEnded>());
  EXPECT_EQ(worker.device().kills_asked(), 1u);
  EXPECT_EQ(worker.device().spaces_alive(), 0);
}

TEST(WorkerSession, OperatorEndsSession) {
  WorkerHarness worker(kAtOnce);
  RawClient client = worker.Client();
  worker.Send(ipc::TerminateSession{.session = worker.last_session(), .why = "its lease is over"},
              5);
  const auto reply = worker.Await<ipc::ChannelReply>();
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->code, StatusCode::kOk);
  const Status end = client.AwaitEnd();
  EXPECT_EQ(end.code(), StatusCode::kDisconnected);
  EXPECT_THAT(end.message(), HasSubstr("session ended: its lease is over"));
  worker.Send(ipc::TerminateSession{.session = 999}, 6);
  const auto unknown = worker.Await<ipc::ChannelReply>();
  ASSERT_TRUE(unknown);
  EXPECT_EQ(unknown->code, StatusCode::kNotFound);
}

TEST(WorkerSession, DrainIgnoresWorkOfDepartedClients) {
  server::WorkerOptions options;
  options.left_behind_max = std::chrono::milliseconds(400);
  WorkerHarness worker({.ignores_stop = true, .can_kill = false}, options);
  RawClient client = worker.Client();
  client.Launch(0, 0, 0);
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  worker.Send(ipc::Drain{});
  std::this_thread::sleep_for(std::chrono::milliseconds(250));
  const auto left = std::chrono::steady_clock::now();
  client.CloseSocket();
  const auto last_words = worker.Await<ipc::ChannelReply>();
  ASSERT_TRUE(last_words);
  EXPECT_GE(std::chrono::steady_clock::now() - left, options.left_behind_max / 2);
  EXPECT_THAT(last_words->text, HasSubstr("ends with work that 1 clients left on it"));
  EXPECT_EQ(worker.AwaitExit(), server::kWorkerStuck);
}

TEST(WorkerSession, DrainWaitsForConnectedClients) {
  server::WorkerOptions options;
  options.left_behind_max = std::chrono::milliseconds(20);
  WorkerHarness worker({.ignores_stop = true, .can_kill = false}, options);
  RawClient client = worker.Client();
  const Sequence launch = client.Launch(0, 0, 0);
  worker.Send(ipc::Drain{});
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  worker.device().RunAtOnce();
  EXPECT_TRUE(client.AwaitFinished(0, launch));
}

TEST(WorkerSession, DrainRejectsNewClientsAndEndsWithTheLastSession) {
  WorkerHarness worker(kAtOnce);
  RawClient client = worker.Client();
  worker.Send(ipc::Drain{});
  RawClient late = worker.Connect({});
  const Status rejected = late.AwaitWelcome();
  EXPECT_EQ(rejected.code(), StatusCode::kUnavailable);
  EXPECT_THAT(rejected.message(), HasSubstr("draining"));

  EXPECT_TRUE(client.AwaitFinished(0, client.Launch(0, 0, 0))) << "those there go on";
  client.CloseSocket();
  EXPECT_EQ(worker.AwaitExit(), 0);
}

TEST(WorkerSession, SessionsContinueWithoutBroker) {
  WorkerHarness worker(kAtOnce);
  RawClient client = worker.Client();
  worker.CloseChannel();
  EXPECT_TRUE(client.AwaitFinished(0, client.Launch(0, 0, 0)));
  client.CloseSocket();
  EXPECT_EQ(worker.AwaitExit(), 0);
}

TEST(WorkerSession, ClientThatDoesNotReadDelaysNoOther) {
  WorkerHarness worker(kAtOnce);
  RawClient deaf = worker.Client();
  RawClient good = worker.Client();
  // Sends requests until the socket is full, and never reads an answer.
  const ipc::DescribeError request{.stream = 0};
  const ipc::Deadline soon = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  std::uint32_t sent = 0;
  while (ipc::SendMessage(deaf.socket(), sent + 1, request, soon).ok() && sent < 1'000'000) ++sent;
  EXPECT_LT(sent, 1'000'000u) << "the worker must stop reading";

  EXPECT_TRUE(good.LoadModule(7, "a 0\n").ok());
  EXPECT_TRUE(good.AwaitFinished(0, good.Launch(0, 7, 0)));
}

TEST(WorkerSession, AdminSeesWorkOfEachClient) {
  WorkerHarness worker(kAtOnce);
  RawClient client = worker.Client({.name = "train", .client_class = SchedulingClass::kLow});
  ASSERT_TRUE(client.AddStagingBuffer(64 * 1024).ok());
  client.Launch(0, 0, 0);
  client.CopyToDevice(0, 0, 0, client.base(), 1000);
  client.CopyToHost(0, 0, 0, client.base(), 500);
  ASSERT_TRUE(client.AwaitFinished(0, client.Launch(0, 9, 0)));

  const auto ps = nlohmann::json::parse(worker.AskAdmin(ipc::AdminVerb::kClients));
  ASSERT_EQ(ps["clients"].size(), 1u);
  const auto& row = ps["clients"][0];
  EXPECT_EQ(row["client"], worker.last_session());
  EXPECT_EQ(row["name"], "train");
  EXPECT_EQ(row["class"], "low");
  EXPECT_EQ(row["state"], "running");
  EXPECT_EQ(row["launches"], 1);
  EXPECT_EQ(row["copies"], 2);
  EXPECT_EQ(row["bytes_in"], 1000);
  EXPECT_EQ(row["bytes_out"], 500);
  EXPECT_EQ(row["commands_rejected"], 1);
  EXPECT_EQ(row["memory_bytes"], std::uint64_t{4} << 20);
  EXPECT_EQ(row["modules"], 1);
  EXPECT_GE(row["queue_wait_p99_us"], row["queue_wait_p50_us"]);
  EXPECT_FALSE(row.contains("requests")) << "it promised nothing";
  const auto status = nlohmann::json::parse(worker.AskAdmin(ipc::AdminVerb::kStatus));
  EXPECT_EQ(status["device"], "step:0");
  EXPECT_EQ(status["policy"], "priority");
  EXPECT_EQ(status["clients"], 1);
  EXPECT_EQ(status["commands"], 4);
  const auto devices = nlohmann::json::parse(worker.AskAdmin(ipc::AdminVerb::kDevices));
  EXPECT_EQ(devices["kind"], "step");
  EXPECT_FALSE(devices.contains("numa")) << "it lies on no bus";
}

// Returns how many processors the threads of this name may use.
int GetProcessors(const std::string& thread) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    cpu_set_t processors;
    CPU_ZERO(&processors);
    const pid_t tid = std::stoi(task.path().filename().string());
    if (name == thread && ::sched_getaffinity(tid, sizeof processors, &processors) == 0) {
      return CPU_COUNT(&processors);
    }
  }
  return 0;
}

// Runs one worker on a machine with two memory nodes, then another worker on a machine with one.
TEST(WorkerSession, BindsDeviceThreadToDevicesMemoryNode) {
  const std::string root = ::testing::TempDir() + "worker_numa_" + std::to_string(::getpid());
  const auto write = [&](const std::string& file, const std::string& text) {
    const std::filesystem::path path = root + file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << '\n';
  };
  cpu_set_t here;
  CPU_ZERO(&here);
  ASSERT_EQ(::sched_getaffinity(0, sizeof here, &here), 0);
  int first = 0;
  while (!CPU_ISSET(first, &here)) ++first;
  write("/devices/system/node/online", "0-1");
  write("/devices/system/node/node0/cpulist", std::to_string(first));
  write("/bus/pci/devices/0000:10:00.0/numa_node", "0");
  const auto where = [&](int processors) {
    WorkerHarness worker({.pci_bus = "0000:10:00.0"}, {.sysfs = root});
    const RawClient client = worker.Client();
    EXPECT_EQ(GetProcessors("gpushared-dev"), processors);
    const auto device = nlohmann::json::parse(worker.AskAdmin(ipc::AdminVerb::kDevices));
    return device["numa"].get<std::string>();
  };
  EXPECT_EQ(where(1), "node 0, processors " + std::to_string(first));
  write("/devices/system/node/online", "0");
  EXPECT_THAT(where(CPU_COUNT(&here)), HasSubstr("nothing to choose"));
  std::filesystem::remove_all(root);
}

TEST(WorkerSession, RequestSpansFromFirstCommandAfterIdleToIdle) {
  WorkerHarness worker;
  RawClient client = worker.Client({.name = "serve", .latency_target_ns = 3'600'000'000'000});
  for (int request = 0; request < 3; ++request) {
    client.Launch(0, 0, 0);
    const auto last = client.Launch(0, 0, 0);
    // The second command belongs to the request if it arrives before the end of the first one.
    ASSERT_TRUE(Eventually([&] {
      return nlohmann::json::parse(
                 worker.AskAdmin(ipc::AdminVerb::kClients))["clients"][0]["commands"] == last;
    }));
    for (int i = 0; i < 2; ++i) {
      ASSERT_GE(
          worker.device().WaitForSubmissions(static_cast<std::size_t>(2 * request + i + 1)).size(),
          1u);
      worker.device().FinishOldest();
    }
    ASSERT_TRUE(client.AwaitFinished(0, last));
  }

  const auto ps = nlohmann::json::parse(worker.AskAdmin(ipc::AdminVerb::kClients));
  const auto& row = ps["clients"][0];
  EXPECT_EQ(row["requests"], 3);
  EXPECT_EQ(row["requests_target_met"], 3);
  EXPECT_EQ(row["target_met_percent"], 100.0);
  EXPECT_GT(row["request_p50_us"], 0.0);
  EXPECT_GE(row["request_p999_us"], row["request_p50_us"]);
}

TEST(Worker, ExitsWhenPolicyOrDeviceCannotBeCreated) {
  const auto run = [](const char* policy) {
    auto pair = ipc::MakeChannelPair();
    server::WorkerOptions options;
    options.settings.policy = policy;
    options.make_device = [](device::WakeFunction, device::OutputFunction,
                             std::function<void()>) -> Result<std::unique_ptr<device::Device>> {
      return Status(StatusCode::kNotFound, "there is no such device");
    };
    options.make_reader = [] { return std::unique_ptr<loader::ModuleReader>(); };
    return server::Worker(std::move(options), std::move(pair->second)).Run();
  };
  EXPECT_EQ(run("no_such_policy"), 1);
  EXPECT_EQ(run("fifo"), 1);
}

}  // namespace
}  // namespace gpushared::testing

// SPDX-License-Identifier: Apache-2.0
// Rules for swapping memory to a store and back. GPUSHARED_SWAP_STEPS=N makes N random steps.

#include <algorithm>
#include <cstdlib>

#include "tests/conformance/device_swaps.h"
#include "tests/conformance/rule_images.h"
#include "tests/support/move_steps.h"

namespace gpushared::testing {
namespace {

constexpr std::uint64_t kMoveStep = kMapPageBytes;

std::uint64_t MoveStepsAsked() {
  const char* const text = std::getenv("GPUSHARED_SWAP_STEPS");
  return text == nullptr ? 400 : std::strtoull(text, nullptr, 10);
}

}  // namespace

void DeviceSwaps::Begin() {
  store_ = device::SwapStore::Create({.bytes = kStoreBytes, .directory = ""}).value();
  ASSERT_TRUE(store_->Reserve(kStoreBytes).ok());
  for (Client& client : clients_) Come(client);
}

void DeviceSwaps::End() {
  for (Client& client : clients_) client.real.space.reset();
  EXPECT_EQ(gpu().free_memory_bytes(), kDeviceBytes);
  EXPECT_EQ(store_->used_bytes(), 0U);
  store_->GiveBack(kStoreBytes);
}

void DeviceSwaps::Come(Client& client) {
  client = Client();
  auto space = gpu().CreateSpace(
      {.quota_bytes = kQuotaSteps * kMoveStep, .store = store_, .isolation = GetParam().isolation});
  ASSERT_TRUE(space.ok()) << space.status().ToString();
  client.real.space = *std::move(space);
}

std::uint64_t DeviceSwaps::FreeSteps() const {
  std::uint64_t used = 0;
  for (const Client& client : clients_) used += client.resident();
  return kDeviceSteps - used;
}

void DeviceSwaps::Act() {
  Client& client = clients_[Draw(kClients)];
  switch (Draw(40)) {
    case 0:
      client.real.space.reset();
      return Come(client);
    case 1:
    case 2:
      return Grow(client, 1 + Draw(6));
    case 3:
      return Shrink(client, Draw(client.words.size() + 1));
    case 4:
      return SwapOut(client, Draw(8));
    case 5:
    case 6:
      return SwapIn(client, Draw(kQuotaSteps));
    case 7:
    case 8:
    case 9:
    case 10:
      if (client.words.empty()) return;
      return MoveStep(client, Draw(client.words.size()));
    default:
      return client.words.empty() ? Grow(client, 1) : Work(client);
  }
}

void DeviceSwaps::Grow(Client& client, std::uint64_t steps) {
  const std::uint64_t wanted = client.words.size() + steps;
  const bool fits = wanted <= kQuotaSteps && steps <= FreeSteps();
  const auto mapped = client.real.space->Resize(wanted * kMoveStep);
  ASSERT_EQ(mapped.ok(), fits) << mapped.status().ToString();
  if (!fits) return;
  client.words.resize(wanted, 0);
  client.is_out.resize(wanted, false);
  for (std::uint64_t step = wanted - steps; step < wanted; ++step) ExpectRight(client, step);
}

void DeviceSwaps::Shrink(Client& client, std::uint64_t steps) {
  ASSERT_EQ(client.real.space->Resize(steps * kMoveStep).value(), steps * kMoveStep);
  client.words.resize(steps);
  client.is_out.resize(steps);
}

void DeviceSwaps::SwapOut(Client& client, std::uint64_t steps) {
  ASSERT_TRUE(testing::SwapOut(*client.real.space, steps * kMoveStep).ok());
  for (std::size_t step = client.is_out.size(); step-- > 0 && steps > 0;) {
    if (client.is_out[step]) continue;
    client.is_out[step] = true;
    --steps;
  }
}

void DeviceSwaps::SwapIn(Client& client, std::uint64_t steps) {
  const std::uint64_t wanted = std::min(steps, client.out_steps()), free = FreeSteps();
  const Status status = testing::SwapIn(*client.real.space, steps * kMoveStep);
  ASSERT_EQ(status.code(), wanted <= free ? StatusCode::kOk : StatusCode::kOutOfMemory);
  std::uint64_t left = std::min(wanted, free);
  for (std::size_t step = 0; left > 0; ++step) {
    if (client.is_out[step]) --left;
    client.is_out[step] = false;
  }
}

void DeviceSwaps::MoveStep(Client& client, std::uint64_t step) {
  const bool goes_out = !client.is_out[step], has_room = goes_out || FreeSteps() > 0;
  const device::Space& space = *client.real.space;
  const Status status = goes_out ? client.real.space->SwapPageOut(step * kMoveStep)
                                 : client.real.space->SwapPageIn(step * kMoveStep);
  ASSERT_EQ(status.code(), has_room ? StatusCode::kOk : StatusCode::kOutOfMemory);
  if (has_room) client.is_out[step] = goes_out;
  ASSERT_EQ(space.NonResidentBytes(space.base() + step * kMoveStep, 1),
            client.is_out[step] ? kMoveStep : 0);
  ASSERT_EQ(space.NonResidentBytes(space.base(), client.words.size() * kMoveStep),
            client.out_steps() * kMoveStep);
}

void DeviceSwaps::Work(Client& client) {
  const std::uint64_t step = Draw(client.words.size());
  const bool may_touch = MayTouch(client, step);
  if (may_touch && Draw(2) == 0) return ExpectRight(client, step);
  const auto value = static_cast<std::uint32_t>(random_());
  for (const std::uint64_t offset : {step * kMoveStep, (step + 1) * kMoveStep - 4}) {
    device::FillWork work;
    work.space = client.real.space.get();
    work.stream = 1;
    work.destination = client.real.At(offset);
    work.element_bytes = 4;
    work.width_bytes = 4;
    work.value = value;
    const Status status = Await(Submit(work)).status;
    ASSERT_EQ(status.code(), may_touch ? StatusCode::kOk : StatusCode::kInternal);
  }
  if (may_touch) client.words[step] = value;
}

void DeviceSwaps::ExpectRight(Client& client, std::uint64_t step) {
  const std::uint32_t word = client.words[step];
  EXPECT_EQ(ReadWords(client.real, step * kMoveStep, 1).at(0), word);
  EXPECT_EQ(ReadWords(client.real, (step + 1) * kMoveStep - 4, 1).at(0), word);
}

void DeviceSwaps::CheckAccounts() {
  std::uint64_t out = 0;
  for (Client& client : clients_) {
    const device::SpaceUse use = client.real.space->use();
    EXPECT_EQ(use.mapped_bytes, client.words.size() * kMoveStep);
    EXPECT_EQ(use.resident_bytes, client.resident() * kMoveStep);
    out += client.out_steps();
  }
  EXPECT_EQ(gpu().free_memory_bytes(), FreeSteps() * kMoveStep);
  EXPECT_EQ(store_->used_bytes(), out * kMoveStep);
}

TEST_P(DeviceSwaps, LosesNoByteAndRevealsNoneOfOtherClient) {
  if (Skips(gpu().info().can_move_memory, "move memory")) return;
  Begin();
  for (std::uint64_t step = 0, steps = MoveStepsAsked(); step < steps && !HasFailure(); ++step) {
    SCOPED_TRACE(step);
    Act();
    if (!HasFatalFailure()) CheckAccounts();
  }
  for (Client& client : clients()) {
    for (Client& other : clients()) SwapOut(other, kQuotaSteps);
    SwapIn(client, kQuotaSteps);
    for (std::uint64_t each = 0; each < client.words.size() && !HasFailure(); ++each) {
      ExpectRight(client, each);
    }
  }
  End();
}

// ---- launches while a part of the memory is swapped out

TestClient DeviceSwaps::ComeWithSomeAway() {
  store_ = device::SwapStore::Create({.bytes = kFewSteps * kMoveStep, .directory = ""}).value();
  EXPECT_TRUE(store_->Reserve(kFewSteps * kMoveStep).ok());
  TestClient client;
  client.space =
      gpu()
          .CreateSpace(
              {.quota_bytes = 32 * kMebibyte, .store = store_, .isolation = GetParam().isolation})
          .value();
  client.module = Load(*client.space, RulesPtx()).value();
  EXPECT_TRUE(client.space->Resize(kFewSteps * kMoveStep).ok());
  for (std::uint32_t step = 0; step < kFewSteps; ++step) {
    WriteWords(client, step * kMoveStep, std::vector<std::uint32_t>{step});
  }
  for (const std::uint64_t step : {1, 3}) {
    EXPECT_TRUE(client.space->SwapPageOut(step * kMoveStep).ok());
  }
  return client;
}

device::Reach DeviceSwaps::GetSteps(const TestClient& client,
                                    std::initializer_list<std::uint64_t> steps) {
  device::Reach reach;
  for (const std::uint64_t step : steps) {
    reach.Add({.base = client.At(step * kMoveStep), .bytes = kMoveStep});
  }
  return reach;
}

device::Completion DeviceSwaps::WriteTo(const TestClient& client, std::uint64_t step,
                                        std::uint32_t value, const device::Reach* reach) {
  const std::uint64_t address = client.At(step * kMoveStep + 8);
  return Await(Launch(client, "write_at", {.reach = reach}, Arguments::Pack(address, value)));
}

TEST_P(DeviceSwaps, LaunchesRunWithOnlyTheirAccessSetResident) {
  if (Skips(gpu().info().can_move_memory, "move memory")) return;
  const TestClient client = ComeWithSomeAway();
  const device::Reach there = GetSteps(client, {0, 2});
  for (const std::uint64_t step : {0, 2}) {
    const device::Completion ended = WriteTo(client, step, 70, &there);
    EXPECT_TRUE(ended.status.ok()) << ended.status.ToString();
    EXPECT_EQ(ReadWords(client, step * kMoveStep + 8, 1).at(0), 70U);
  }
  const device::GraphNode node =
      GetNode(client, "write_at", {.reach = &there},
              Arguments::Pack(client.At(2 * kMoveStep + 8), std::uint32_t{71}));
  if (gpu().TakesNode(node)) {
    const device::GraphNode* const nodes[] = {&node};
    AwaitOk(SubmitGraph(client, nodes, {}));
    EXPECT_EQ(ReadWords(client, 2 * kMoveStep + 8, 1).at(0), 71U);
    const device::GraphNode other =
        GetNode(client, "write_at", {}, Arguments::Pack(client.At(8), std::uint32_t{72}));
    const device::GraphNode* const others[] = {&other};
    AwaitOk(SubmitGraph(client, others, {.reach = &there}));
    EXPECT_EQ(ReadWords(client, 8, 1).at(0), 72U);
    const device::Reach partly = GetSteps(client, {0, 1});
    EXPECT_EQ(Await(SubmitGraph(client, others, {.reach = &partly})).status.code(),
              StatusCode::kInternal);
  }
  EXPECT_EQ(client.space->NonResidentBytes(client.space->base(), kFewSteps * kMoveStep),
            2 * kMoveStep);
}

TEST_P(DeviceSwaps, RejectsLaunchWithNonResidentAccessSet) {
  if (Skips(gpu().info().can_move_memory, "move memory")) return;
  const TestClient client = ComeWithSomeAway();
  const device::Reach partly = GetSteps(client, {0, 1});
  EXPECT_EQ(WriteTo(client, 0, 70, &partly).status.code(), StatusCode::kInternal);
  EXPECT_EQ(WriteTo(client, 0, 70, nullptr).status.code(), StatusCode::kInternal);
  EXPECT_EQ(ReadWords(client, 8, 1).at(0), 0U);
  ASSERT_TRUE(client.space->SwapPageIn(kMoveStep).ok());
  EXPECT_TRUE(WriteTo(client, 1, 72, &partly).status.ok());
  EXPECT_EQ(ReadWords(client, kMoveStep, 1).at(0), 1U);
  EXPECT_EQ(ReadWords(client, kMoveStep + 8, 1).at(0), 72U);
}

TEST_P(DeviceSwaps, LaunchesNeverChangeNonResidentMemory) {
  if (Skips(gpu().info().can_move_memory, "move memory")) return;
  const TestClient client = ComeWithSomeAway();
  const device::Reach first = GetSteps(client, {0});
  for (const std::uint64_t step : {1, 3}) (void)WriteTo(client, step, 73, &first);
  EXPECT_EQ(gpu().loss(), nullptr);
  EXPECT_TRUE(WriteTo(client, 0, 74, &first).status.ok());
  for (const std::uint64_t step : {1, 3}) {
    ASSERT_TRUE(client.space->SwapPageIn(step * kMoveStep).ok());
    EXPECT_EQ(ReadWords(client, step * kMoveStep, 1).at(0), step);
    EXPECT_EQ(ReadWords(client, step * kMoveStep + 8, 1).at(0), 0U);
  }
  EXPECT_EQ(ReadWords(client, 8, 1).at(0), 74U);
}

TEST_P(DeviceSwaps, LaunchesFaultBeyondTheirAccessSet) {
  if (Skips(gpu().info().checks_reach, "check what launches reach")) return;
  const TestClient client = ComeWithSomeAway();
  const device::Reach first = GetSteps(client, {0});
  // The first page is swapped out, the second one is resident.
  for (const std::uint64_t step : {1, 2}) {
    const device::Completion ended = WriteTo(client, step, 73, &first);
    EXPECT_EQ(ended.status.code(), StatusCode::kKernelFault);
    EXPECT_EQ(ended.fault, FaultKind::kIllegalAddress);
    EXPECT_NE(ended.status.message().find("outside of what the launch may touch"),
              std::string::npos)
        << ended.status.ToString();
  }
  ASSERT_TRUE(client.space->SwapPageIn(kMoveStep).ok());
  for (const std::uint64_t step : {1, 2}) {
    EXPECT_EQ(ReadWords(client, step * kMoveStep, 1).at(0), step);
    EXPECT_EQ(ReadWords(client, step * kMoveStep + 8, 1).at(0), 0U);
  }
}

}  // namespace gpushared::testing

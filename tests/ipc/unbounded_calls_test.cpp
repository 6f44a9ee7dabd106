// SPDX-License-Identifier: Apache-2.0
// Descriptors that a client leaves in a socket, and calls that do not return.
#include "ipc/unbounded_calls.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <latch>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "ipc/unix_socket.h"
#include "tests/ipc/socket_pair.h"
#include "tests/support/passed_descriptor.h"

namespace gpushared::ipc {
namespace {

using namespace std::chrono_literals;
using gpushared::testing::LingeringSocket;
using gpushared::testing::SendWithDescriptor;

bool Eventually(const auto& holds) {
  for (int i = 0; i < 3000; ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(10ms);
  }
  return false;
}

TEST(UnboundedCalls, HangingCallDelaysNoOther) {
  UnboundedCalls calls(3);
  const auto release = std::make_shared<std::latch>(1);
  const auto made = std::make_shared<std::atomic<int>>(0);
  for (int i = 0; i < 2; ++i) calls.Post([release] { release->wait(); });
  for (int i = 0; i < 100; ++i) calls.Post([made] { ++*made; });
  EXPECT_TRUE(Eventually([&] { return *made == 100; }));
  EXPECT_EQ(calls.pending(), 2u);
  release->count_down();
  EXPECT_TRUE(Eventually([&] { return calls.pending() == 0; }));
}

TEST(UnboundedCalls, CallsBeyondLimitWait) {
  UnboundedCalls calls(2);
  const auto release = std::make_shared<std::latch>(1);
  const auto made = std::make_shared<std::atomic<int>>(0);
  for (int i = 0; i < 2; ++i) calls.Post([release] { release->wait(); });
  calls.Post([made] { ++*made; });
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(*made, 0);
  release->count_down();
  EXPECT_TRUE(Eventually([&] { return *made == 1; }));
}

TEST(UnboundedCalls, OneUserDoesNotTakeAllThreads) {
  UnboundedCalls calls(4, 2);
  const auto release = std::make_shared<std::latch>(1);
  const auto made = std::make_shared<std::atomic<int>>(0);
  for (int i = 0; i < 10; ++i) calls.Post([release] { release->wait(); }, 1000);
  for (int i = 0; i < 10; ++i) calls.Post([made] { ++*made; }, 1001);
  EXPECT_TRUE(Eventually([&] { return *made == 10; }));
  EXPECT_EQ(calls.pending(), 10u);
  release->count_down();
  EXPECT_TRUE(Eventually([&] { return calls.pending() == 0; }));
}

TEST(UnboundedCalls, DestructionDoesNotWaitForCalls) {
  const auto release = std::make_shared<std::latch>(1);
  const auto made = std::make_shared<std::atomic<int>>(0);
  {
    UnboundedCalls calls(1);
    calls.Post([release] { release->wait(); });
    calls.Post([made] { ++*made; });
  }
  EXPECT_EQ(*made, 0);
  release->count_down();
  EXPECT_TRUE(Eventually([&] { return *made == 1; })) << "what was posted is made all the same";
}

TEST(CloseSocket, ThatHoldsBytesOnlyIsClosedAtOnce) {
  UnboundedCalls calls(1);
  Pair pair = MakePair();
  const std::vector<char> noise(100'000);
  ASSERT_GT(::write(pair.theirs.get(), noise.data(), noise.size()), 0);
  const int number = pair.ours.get();
  calls.CloseSocket(std::move(pair.ours));
  EXPECT_EQ(::fcntl(number, F_GETFD), -1);
  EXPECT_EQ(calls.pending(), 0u);
  EXPECT_EQ(::send(pair.theirs.get(), "x", 1, MSG_NOSIGNAL), -1);
}

// Closing the last descriptor of a TCP socket that lingers waits for a peer that reads nothing.
TEST(CloseSocket, DoesNotWaitForEndlessDescriptorClose) {
  UnboundedCalls calls(2);
  Pair pair = MakePair();
  LingeringSocket lingering(20s);
  ASSERT_TRUE(lingering.ready());
  const std::vector<std::byte> bytes(10'000);  // More than CloseSocket reads in one call.
  ASSERT_EQ(::write(pair.theirs.get(), bytes.data(), bytes.size()), 10'000);
  ASSERT_TRUE(SendWithDescriptor(pair.theirs.get(), std::span(bytes).first(10), lingering.Take()));
  const auto began = std::chrono::steady_clock::now();
  calls.CloseSocket(std::move(pair.ours));
  EXPECT_LT(std::chrono::steady_clock::now() - began, 5s);
  EXPECT_EQ(calls.pending(), 1u);
  // When the other thread closes the socket, its unread data makes the close a reset.
  char byte;
  const ssize_t got = ::read(pair.theirs.get(), &byte, 1);
  EXPECT_TRUE(got == 0 || (got == -1 && errno == ECONNRESET)) << "the peer sees the end at once";
}

}  // namespace
}  // namespace gpushared::ipc

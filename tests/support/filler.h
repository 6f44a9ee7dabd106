// SPDX-License-Identifier: Apache-2.0
// A client whose only work is to fill its own device memory.

#ifndef GPUSHARED_TESTS_SUPPORT_FILLER_H_
#define GPUSHARED_TESTS_SUPPORT_FILLER_H_

#include <cstddef>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "gpushared/client.h"

#include "tests/support/server_process.h"

namespace gpushared::testing {

inline constexpr std::size_t kFillerBytes = std::size_t{1} << 20;

// Not thread-safe.
struct Filler {
  Client client;
  DeviceBuffer memory;  // Has kFillerBytes bytes.
};

inline Filler ComeToFill(const ServerProcess& server, const std::string& name,
                         SchedulingClass of_class) {
  Filler filler;
  Result<Client> client =
      Client::Connect({.name = name, .scheduling_class = of_class, .socket = server.socket()});
  EXPECT_TRUE(client.ok()) << client.status().ToString();
  if (!client.ok()) return filler;
  filler.client = std::move(*client);
  Result<DeviceBuffer> memory = filler.client.AllocateDevice(kFillerBytes);
  EXPECT_TRUE(memory.ok()) << memory.status().ToString();
  if (memory.ok()) filler.memory = std::move(*memory);
  return filler;
}

// Runs this many fills and returns when all of them have ended.
inline void Fill(Filler& filler, int times) {
  const Stream stream = filler.client.default_stream();
  for (int i = 0; i < times; ++i) {
    EXPECT_TRUE(stream.Fill(filler.memory, FillElement::U8(1), kFillerBytes).ok());
  }
  EXPECT_TRUE(stream.Synchronize().ok());
}

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_SUPPORT_FILLER_H_

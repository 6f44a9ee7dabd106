// SPDX-License-Identifier: Apache-2.0
// Uses the C++ interface up to the point where it needs a server.
#include <cstdio>
#include <string_view>

#include "gpushared/client.h"
#include "gpushared/texture_record.h"

gpushared::Status AddOnSharedDevice(std::string_view ptx, const float* a, const float* b,
                                    float* sum, unsigned n);  // add.cpp

// The records that a client may write to its device memory are installed, too.
static_assert(sizeof(gpushared::TextureRecord) == 64);

int main() {
  std::printf("version %s\n", gpushared::LibraryVersion());
  const auto client = gpushared::Client::Connect({.socket = "/nonexistent/gpushared.sock"});
  if (client.ok()) {
    const auto stream = client->default_stream();
    return stream.Launch(gpushared::Kernel(), {.grid = {1}, .block = {32}}, 1, 2.0f).ok() ? 0 : 1;
  }
  std::printf("%s\n", client.status().ToString().c_str());
  float sum = 0;
  if (AddOnSharedDevice("", &sum, &sum, &sum, 1).ok()) return 1;  // No server is running here.
  return client.status().code() == gpushared::StatusCode::kUnavailable ? 0 : 1;
}

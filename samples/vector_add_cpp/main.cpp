// SPDX-License-Identifier: Apache-2.0
// The smallest complete client: adds two vectors on the shared device.

#include <cstdio>
#include <span>
#include <vector>

#include "gpushared/client.h"

#include "samples/kernels/kernel_image.h"

namespace {

constexpr int kCount = 100'000;
constexpr std::uint32_t kThreads = 256;

// Returns the first error; every call that can fail returns a status.
gpushared::Status AddVectors(std::vector<float>& sum) {
  const std::vector<float> a(kCount, 1.5f), b(kCount, 2.25f);

  auto client = gpushared::Client::Connect({.name = "vector_add_cpp"});
  if (!client) return client.status();
  auto module = client->LoadModule(std::as_bytes(std::span(kernel_image_begin, kernel_image_end)));
  if (!module) return module.status();
  auto kernel = module->GetKernel("vector_add");
  if (!kernel) return kernel.status();

  const std::size_t bytes = kCount * sizeof(float);
  auto device_a = client->AllocateDevice(bytes);
  if (!device_a) return device_a.status();
  auto device_b = client->AllocateDevice(bytes);
  if (!device_b) return device_b.status();
  auto device_sum = client->AllocateDevice(bytes);
  if (!device_sum) return device_sum.status();

  // Commands of a stream run in order, and its first error is sticky, so calls that only queue work
  // need a single check at the end.
  const gpushared::Stream stream = client->default_stream();
  (void)stream.CopyToDevice(*device_a, a.data(), bytes);
  (void)stream.CopyToDevice(*device_b, b.data(), bytes);
  const gpushared::LaunchShape shape{.grid = {(kCount + kThreads - 1) / kThreads, 1, 1},
                                     .block = {kThreads, 1, 1}};
  if (auto launched = stream.Launch(*kernel, shape, *device_a, *device_b, *device_sum, kCount);
      !launched.ok()) {
    return launched;
  }
  (void)stream.CopyToHost(sum.data(), *device_sum, bytes);
  return stream.Synchronize();
}

}  // namespace

int main() {
  std::vector<float> sum(kCount);
  const gpushared::Status status = AddVectors(sum);
  if (!status.ok()) {
    std::fprintf(stderr, "vector_add_cpp: %s\n", status.ToString().c_str());
    return 1;
  }
  for (const float value : sum) {
    if (value != 3.75f) {
      std::fprintf(stderr, "vector_add_cpp: wrong sum %g\n", static_cast<double>(value));
      return 1;
    }
  }
  std::printf("vector_add_cpp: %d sums are right\n", kCount);
  return 0;
}

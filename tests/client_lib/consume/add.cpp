// SPDX-License-Identifier: Apache-2.0
#include <gpushared/client.h>

gpushared::Status AddOnSharedDevice(std::string_view ptx, const float* a, const float* b,
                                    float* sum, unsigned n) {
  const auto client = gpushared::Client::Connect(
      {.name = "adder", .scheduling_class = gpushared::SchedulingClass::kLow});
  if (!client) return client.status();
  const auto module = client->LoadModule(ptx);
  if (!module) return module.status();
  const auto kernel = module->GetKernel("vector_add");
  if (!kernel) return kernel.status();
  const std::size_t bytes = n * sizeof(float);
  const auto memory = client->AllocateDevice(3 * bytes);
  if (!memory) return memory.status();
  const gpushared::DeviceAddress da = *memory, db = da + bytes, ds = db + bytes;
  const gpushared::Stream stream = client->default_stream();
  gpushared::Status status = stream.CopyToDevice(da, a, bytes);
  if (status.ok()) status = stream.CopyToDevice(db, b, bytes);
  if (status.ok())
    status = stream.Launch(*kernel, {.grid = {(n + 255) / 256}, .block = {256}}, da, db, ds, n);
  if (status.ok()) status = stream.CopyToHost(sum, ds, bytes);  // Returns after the copy.
  return status;
}

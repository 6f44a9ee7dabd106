// SPDX-License-Identifier: Apache-2.0
// A low client that repeats all operations that are slow on the server's side: connect, load a
// module, map memory, launch once, leave. No module is loaded twice, because drivers and servers
// cache compiled code. Prints the number of rounds at its end. gpu_churn SECONDS [MEBIBYTES]

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>

#include "gpushared/client.h"

#include "samples/kernels/kernel_image.h"

namespace gpushared::testing {
namespace {

using Clock = std::chrono::steady_clock;

template <typename T>
T Must(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().ToString());
  return std::move(result).value();
}
void Must(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

// Returns the text of the kernels with a different constant each time.
std::string FreshText() {
  static const std::string constant = "1013904223";  // The constant in gpu_kernels.cu.
  static const std::string text(kernel_image_begin, kernel_image_end);
  // The constant differs between runs, too. It is below 2^31, because the text also contains the
  // constant as a signed number.
  static auto number = static_cast<unsigned>(Clock::now().time_since_epoch().count() >> 10);
  const std::string fresh = std::to_string(++number & 0x7fffffff);
  std::string changed = text;
  std::size_t at = changed.find(constant);
  if (at == std::string::npos) throw std::runtime_error("the kernels have no constant to change");
  for (; at != std::string::npos; at = changed.find(constant, at + fresh.size()))
    changed.replace(at, constant.size(), fresh);
  return changed;
}

void Round(std::size_t bytes) {
  const Client client =
      Must(Client::Connect({.name = "churn", .scheduling_class = SchedulingClass::kLow}));
  const std::string text = FreshText();
  const Module module = Must(client.LoadModule(std::as_bytes(std::span(text))));
  const Kernel step = Must(module.GetKernel("step"));
  const DeviceBuffer memory = Must(client.AllocateDevice(bytes));
  const Stream stream = client.default_stream();
  Must(stream.Fill(memory, FillElement::U32(0), 2));
  Must(stream.Launch(step, {}, memory, 0U));
  unsigned launches = 0;
  Must(stream.CopyToHost(&launches, memory, sizeof launches));
  if (launches != 1) throw std::runtime_error("the kernel did not run exactly once");
}

}  // namespace
}  // namespace gpushared::testing

int main(int argc, char** argv) {
  using gpushared::testing::Clock;
  const double seconds = argc > 1 ? std::atof(argv[1]) : 0;
  const long mebibytes = argc > 2 ? std::atol(argv[2]) : 64;
  if (argc > 3 || seconds <= 0 || mebibytes < 1) {
    std::fprintf(stderr, "usage: gpu_churn SECONDS [MEBIBYTES]\n");
    return 2;
  }
  try {
    const auto begin = Clock::now();
    const auto passed = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
    long rounds = 0;
    for (; passed() < seconds; ++rounds)
      gpushared::testing::Round(static_cast<std::size_t>(mebibytes) << 20);
    std::printf("%ld rounds in %.2f s, %ld MiB mapped in each\n", rounds, passed(), mebibytes);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_churn: %s\n", error.what());
    return 1;
  }
}

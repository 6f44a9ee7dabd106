// SPDX-License-Identifier: Apache-2.0
// Storms of kernels.
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/hostile/storms/storms.h"

namespace gpushared::storms {
namespace {

using namespace std::chrono_literals;

constexpr char kHead[] = ".version 7.0\n.target sm_80\n.address_size 64\n";

// Each block occupies its executor thread for `nanoseconds`.
constexpr char kHold[] = R"(
.visible .entry hold(.param .u64 nanoseconds)
{
  .reg .pred %p<2>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [nanoseconds];
  mov.u64 %rd2, %globaltimer;
  add.u64 %rd2, %rd2, %rd1;
again:
  mov.u64 %rd3, %globaltimer;
  setp.lt.u64 %p1, %rd3, %rd2;
  @%p1 bra again;
  ret;
}
)";

constexpr char kEndless[] = ".visible .entry endless()\n{\nagain: bra again;\n}\n";

// Returns PTX of a thousand matrix products without a branch between them.
std::string Products() {
  std::string text = std::string(kHead) +
                     ".visible .entry products()\n{\n.reg .f32 %f<4>;\n.reg .b32 %r<6>;\nagain:\n";
  for (int i = 0; i < 1000; ++i) {
    text +=
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0,%f1,%f2,%f3}, {%r0,%r1,%r2,%r3}, "
        "{%r4,%r5}, {%f0,%f1,%f2,%f3};\n";
  }
  return text + "bra again;\n}\n";
}

// Returns PTX that calls printf `calls` times with `format` and, for each %, an address in
// `strings`.
std::string Printing(const std::string& format, std::size_t arguments, int calls) {
  std::string bytes;
  for (const char c : format) bytes += std::to_string(static_cast<int>(c)) + ", ";
  std::string text =
      std::string(kHead) +
      ".extern .func (.param .b32 result) vprintf(.param .b64 format, .param .b64 arguments);\n"
      ".global .align 8 .b8 format[" +
      std::to_string(format.size() + 1) + "] = {" + bytes +
      "0};\n.visible .entry print(.param .u64 strings)\n{\n.local .align 8 .b8 list[" +
      std::to_string(8 * arguments + 8) +
      "];\n.reg .pred %p<2>;\n.reg .b32 %r<4>;\n.reg .b64 %rd<6>;\nld.param.u64 %rd1, [strings];\n"
      "mov.u32 %r2, 0;\n";
  for (std::size_t i = 0; i < arguments; ++i)
    text += "st.local.u64 [list+" + std::to_string(8 * i) + "], %rd1;\n";
  return text +
         "mov.u64 %rd2, format;\ncvta.global.u64 %rd3, %rd2;\nmov.u64 %rd4, list;\n"
         "cvta.local.u64 %rd5, %rd4;\nagain:\n{\n.param .b64 a;\n.param .b64 b;\n.param .b32 r;\n"
         "st.param.b64 [a], %rd3;\nst.param.b64 [b], %rd5;\ncall (r), vprintf, (a, b);\n"
         "ld.param.b32 %r1, [r];\n}\nadd.u32 %r2, %r2, 1;\nsetp.lt.u32 %p1, %r2, " +
         std::to_string(calls) + ";\n@%p1 bra again;\nret;\n}\n";
}

struct Loaded {
  Client client;
  Kernel kernel;
};

// Returns a session with the first kernel of a module, or counts the server's rejection.
std::optional<Loaded> Load(const Attacker& attacker, SchedulingClass scheduling_class,
                           const std::string& text, std::uint32_t weight = 1) {
  Result<Client> client = Client::Connect({.name = "kernels",
                                           .scheduling_class = scheduling_class,
                                           .weight = weight,
                                           .socket = attacker.socket});
  if (!attacker.Did(client.status())) return {};
  const Result<Module> module = client->LoadModule(std::string_view(text));
  if (!attacker.Did(module.status())) return {};
  return Loaded{*std::move(client), *module->KernelAt(0)};
}

template <typename... Arguments>
void LaunchForEver(const Attacker& attacker, const Loaded& loaded, const LaunchShape& shape,
                   const Arguments&... arguments) {
  const Stream stream = loaded.client.default_stream();
  while (attacker.Did(stream.Launch(loaded.kernel, shape, arguments...))) {
  }
}

// Launches kernels of 2 ms without end, with this weight if the server allows it.
[[noreturn]] void HoldDevice(const Attacker& attacker, std::uint32_t weight) {
  const std::string text = std::string(kHead) + kHold;
  for (;;) {
    std::optional<Loaded> loaded = Load(attacker, SchedulingClass::kNormal, text, weight);
    if (!loaded) loaded = Load(attacker, SchedulingClass::kNormal, text);
    if (loaded) LaunchForEver(attacker, *loaded, {.grid = {4, 1, 1}}, std::uint64_t{500'000});
  }
}

}  // namespace

void KeepDeviceBusy(const Attacker& attacker) { HoldDevice(attacker, 1); }

void ClaimWeight(const Attacker& attacker) { HoldDevice(attacker, 1000); }

void RunEndless(const Attacker& attacker) {
  const std::string text = std::string(kHead) + kEndless;
  for (;;) {
    const std::optional<Loaded> loaded = Load(attacker, SchedulingClass::kLow, text);
    if (!loaded) continue;
    // Replaces failed streams, so that there is a next kernel when a limit has ended one.
    for (Status status; status.ok();) {
      const Result<Stream> stream = loaded->client.CreateStream();
      status = stream.status();
      if (status.ok()) status = stream->Launch(loaded->kernel, {});
      if (attacker.Did(status)) (void)stream->Synchronize();
    }
  }
}

void TeachShortThenLong(const Attacker& attacker) {
  constexpr int kLessons = 200, kTests = 20;
  constexpr std::uint64_t kShortNs = 20'000, kLongNs = 9'000'000;
  const std::string text = std::string(kHead) + kHold;
  const LaunchShape shape = {.grid = {64, 1, 1}};
  for (;;) {
    const std::optional<Loaded> loaded = Load(attacker, SchedulingClass::kLow, text);
    if (!loaded) continue;
    const Stream stream = loaded->client.default_stream();
    for (Status status; status.ok();) {
      for (int i = 0; i < kLessons + kTests && status.ok(); ++i)
        status = stream.Launch(loaded->kernel, shape, i < kLessons ? kShortNs : kLongNs);
      if (status.ok()) status = stream.Synchronize();
      attacker.Did(status);
    }
  }
}

void MultiplyAndLeave(const Attacker& attacker) {
  const std::string text = Products();
  for (;;) {
    const std::optional<Loaded> loaded = Load(attacker, SchedulingClass::kNormal, text);
    if (!loaded) continue;
    const Stream stream = loaded->client.default_stream();
    attacker.Did(stream.Launch(loaded->kernel, {.block = {1024, 1, 1}}));
    std::this_thread::sleep_for(50ms);
  }
}

void PrintLongStrings(const Attacker& attacker) {
  constexpr std::size_t kStrings = 1000, kStringBytes = std::size_t{1} << 20;
  std::string format;
  for (std::size_t i = 0; i < kStrings; ++i) format += "%.0s";
  const std::string text = Printing(format, kStrings, 1000);
  for (;;) {
    const std::optional<Loaded> loaded = Load(attacker, SchedulingClass::kNormal, text);
    if (!loaded) continue;
    const Result<DeviceBuffer> strings = loaded->client.AllocateDevice(kStringBytes);
    if (!attacker.Did(strings.status())) continue;
    const Stream stream = loaded->client.default_stream();
    (void)stream.Fill(*strings, FillElement::U8('a'), kStringBytes);
    LaunchForEver(attacker, *loaded, {.block = {64, 1, 1}}, *strings);
  }
}

void PrintLines(const Attacker& attacker) {
  const std::string text =
      Printing("a line that says nothing at all, of sixty bytes or so\n", 0, 100);
  for (;;) {
    const std::optional<Loaded> loaded = Load(attacker, SchedulingClass::kLow, text);
    if (loaded)
      LaunchForEver(attacker, *loaded, {.grid = {8, 1, 1}, .block = {64, 1, 1}}, std::uint64_t{0});
  }
}

}  // namespace gpushared::storms

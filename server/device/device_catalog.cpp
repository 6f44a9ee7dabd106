// SPDX-License-Identifier: Apache-2.0
#include "server/device/device_catalog.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <utility>

#include "server/device/cpu/cpu_device.h"
#include "server/device/cuda/cuda_device.h"

namespace gpushared::device {
namespace {

// A kind of device, as a row of the catalog.
struct DeviceKind {
  std::string_view name;  // "cpu"
  // `number` is 0 for devices named by UUID.
  Result<std::unique_ptr<Device>> (*create)(std::string_view id, std::uint32_t number,
                                            const DeviceOptions& options, WakeFunction wake);
};

Result<std::unique_ptr<Device>> CreateCpu(std::string_view /*id*/, std::uint32_t number,
                                          const DeviceOptions& options, WakeFunction wake) {
  for (const auto& limit : options.sm_limits) {
    if (limit) {
      return Status(StatusCode::kUnsupported,
                    "option sm-limit rejected: a cpu device has no multiprocessors to limit");
    }
  }
  return CreateCpuDevice({.number = number,
                          .executor_threads = options.executor_threads,
                          .prioritize = options.prioritize,
                          .memory_bytes = options.memory_bytes,
                          .output = options.output},
                         std::move(wake));
}

Result<std::unique_ptr<Device>> CreateCuda(std::string_view id, std::uint32_t number,
                                           const DeviceOptions& options, WakeFunction wake) {
  cuda::PrepareEnvironment();
  Result<std::shared_ptr<const cuda::Driver>> driver = cuda::Driver::Load();
  if (!driver.ok()) return driver.status();
  // With CUDA_VISIBLE_DEVICES this process sees only its own GPU or MIG instance, as number 0.
  const bool is_given = std::getenv("CUDA_VISIBLE_DEVICES") != nullptr;
  return cuda::CreateCudaDevice(*std::move(driver),
                                {.id = std::string(id),
                                 .ordinal = is_given ? 0 : static_cast<int>(number),
                                 .completion = options.cuda_completion,
                                 .limits = {},
                                 .sm_limits = options.sm_limits,
                                 .make_compiler = options.make_compiler,
                                 .await_quiet = options.await_quiet,
                                 .warn = options.warn,
                                 .note = options.note},
                                std::move(wake));
}

constexpr std::array kKinds{
    DeviceKind{.name = "cpu", .create = &CreateCpu},
    DeviceKind{.name = "cuda", .create = &CreateCuda},
};

struct Named {
  const DeviceKind* kind = nullptr;
  std::uint32_t number = 0;
};

std::optional<Named> Find(std::string_view id) {
  if (id.starts_with("MIG-")) {
    return Named{.kind = std::ranges::find(kKinds, "cuda", &DeviceKind::name)};
  }
  const std::size_t colon = id.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const std::string_view digits = id.substr(colon + 1);
  Named named;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), named.number);
  // Each device has exactly one spelling; otherwise "cpu:00" would be another name of "cpu:0".
  if (error != std::errc() || end != digits.data() + digits.size() ||
      std::to_string(named.number) != digits) {
    return std::nullopt;
  }
  const auto kind = std::ranges::find(kKinds, id.substr(0, colon), &DeviceKind::name);
  if (kind == kKinds.end()) return std::nullopt;
  named.kind = &*kind;
  return named;
}

Status NotFound(std::string_view id) {
  std::string known;
  for (const DeviceKind& kind : kKinds) {
    known += (known.empty() ? "" : ", ") + std::string(kind.name) + ":N";
  }
  return {StatusCode::kNotFound,
          "no device is called '" + std::string(id.substr(0, 64)) + "', this build has " + known};
}

}  // namespace

Result<std::unique_ptr<Device>> CreateDevice(std::string_view id, const DeviceOptions& options,
                                             WakeFunction wake) {
  const std::optional<Named> named = Find(id);
  if (!named) return NotFound(id);
  return named->kind->create(id, named->number, options, std::move(wake));
}

}  // namespace gpushared::device

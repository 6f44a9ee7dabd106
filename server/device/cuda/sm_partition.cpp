// SPDX-License-Identifier: Apache-2.0
#include "server/device/cuda/sm_partition.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

namespace gpushared::device::cuda {
namespace {

// Drivers round up to 2, 4 or 8 multiprocessors; no known driver rounds by more than this.
constexpr std::uint32_t kRoundingMax = 64;

Status WhyMissing(const Driver& driver) {
  for (const MissingFeature& missing : driver.missing_features()) {
    if (missing.feature == Feature::kGreenContexts) {
      return {StatusCode::kUnsupported, "option sm-limit rejected: " + missing.why};
    }
  }
  return {};
}

// Returns the largest partition of at most `asked` multiprocessors, or the smallest of all if there
// is none.
Result<Resource> GetPart(CudaContext& context, const Resource& whole, std::uint32_t asked) {
  if (asked >= whole.sm.multiprocessors) return whole;
  const auto& split = context.driver().DevSmResourceSplitByCount;
  std::optional<Resource> best;
  // The driver may round up to more than was requested or than the GPU has, and only newer drivers
  // report the granularity, so smaller numbers are tried until the result is small enough.
  const std::uint32_t tries = std::min(asked, kRoundingMax);
  for (std::uint32_t less = 0; less < tries; ++less) {
    Resource part;
    Resource rest;
    unsigned count = 1;
    const Code code = context.Call(split, &part, &count, &whole, &rest, 0U, asked - less);
    if (code == Code::kInvalidResourceConfiguration || (code == Code::kSuccess && count == 0)) {
      continue;
    }
    if (code != Code::kSuccess) {
      return context.Explain("splitting the multiprocessors", split.name(), code);
    }
    best = part;
    if (part.sm.multiprocessors <= asked) break;
  }
  if (best) return *best;
  return context.Explain("splitting the multiprocessors", split.name(),
                         Code::kInvalidResourceConfiguration);
}

}  // namespace

Result<std::unique_ptr<SmPartition>> SmPartition::Create(std::shared_ptr<CudaContext> context,
                                                         std::uint32_t asked) {
  const Driver& driver = context->driver();
  if (Status status = WhyMissing(driver); !status.ok()) return status;
  Resource whole;
  Status status = context->Try("asking for the multiprocessors", driver.DeviceGetDevResource,
                               context->number(), &whole, ResourceType::kMultiprocessors);
  if (!status.ok()) return status;
  Result<Resource> part = GetPart(*context, whole, asked);
  if (!part.ok()) return part.status();
  ResourceDescription description = nullptr;
  status = context->Try("describing the multiprocessors", driver.DevResourceGenerateDesc,
                        &description, &*part, 1U);
  if (!status.ok()) return status;
  GreenContext green = nullptr;
  status = context->Try("making a green context", driver.GreenCtxCreate, &green, description,
                        context->number(), kGreenContextDefaultStream);
  if (!status.ok()) return status;
  std::unique_ptr<SmPartition> made(
      new SmPartition(std::move(context), green, part->sm.multiprocessors));
  status = made->context_->Try("using a green context", driver.CtxFromGreenCtx,
                               &made->context_of_part_, green);
  if (!status.ok()) return status;
  return made;
}

SmPartition::~SmPartition() {
  if (context_->is_dead()) return;
  (void)context_->Call(context_->driver().GreenCtxDestroy, green_);
}

Result<Stream> SmPartition::MakeStream(int priority) const {
  Stream stream = nullptr;
  Status status = context_->Try("making a stream", context_->driver().GreenCtxStreamCreate, &stream,
                                green_, kStreamNonBlocking, priority);
  if (!status.ok()) return status;
  return stream;
}

}  // namespace gpushared::device::cuda

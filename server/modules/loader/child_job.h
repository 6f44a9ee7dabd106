// SPDX-License-Identifier: Apache-2.0
// Reads one module in a child process: from the image to a prepared module or an error.

#ifndef GPUSHARED_SERVER_MODULES_LOADER_CHILD_JOB_H_
#define GPUSHARED_SERVER_MODULES_LOADER_CHILD_JOB_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "gpushared/result.h"

#include "server/device/device.h"
#include "server/modules/loader/load_limit.h"
#include "server/modules/loader/loader_process.h"

namespace gpushared::loader {

struct JobLimits {
  std::chrono::milliseconds time{};  // CPU time.
  // Elapsed time, which is longer if other processes use the CPU.
  std::chrono::milliseconds wall{};
  std::uint64_t memory_bytes = 0;
  std::uint64_t output_bytes = 0;
  std::uint32_t niceness = 10;
};

// Limits of the longest attempt.
JobLimits LongestJob(const LoadLimit& limit);

struct JobOutcome {
  enum class End : std::uint8_t {
    kDone,       // See `module`.
    kTime,       // It exceeded its time, or
    kMemory,     // its memory.
    kAbandoned,  // `abandoned` became readable.
    kCrashed,
  };
  End end = End::kDone;
  Result<std::shared_ptr<const device::PreparedModule>> module{
      Status(StatusCode::kInternal, "module rejected: it was not read")};
};

// Runs one job and waits for it. `image`: a sealed memory file; `abandoned`: an eventfd. Whatever
// the child does, its result was validated; every end except kDone and kAbandoned has a message in
// `module`.
JobOutcome RunJob(LoaderProcess& loader, const device::ModuleRecipe& recipe, int image,
                  std::uint64_t image_bytes, const JobLimits& limits, int abandoned);

}  // namespace gpushared::loader

#endif  // GPUSHARED_SERVER_MODULES_LOADER_CHILD_JOB_H_

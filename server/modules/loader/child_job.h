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
  std::chrono::milliseconds time{};  // Limit of the CPU time.
  // Limit of the elapsed time, which exceeds the CPU time if other processes use the CPU.
  std::chrono::milliseconds wall{};
  std::uint64_t memory_bytes = 0;
  std::uint64_t output_bytes = 0;
  std::uint32_t niceness = 10;
};

// Returns the limits of the longest attempt.
JobLimits LongestJob(const LoadLimit& limit);

struct JobOutcome {
  enum class End : std::uint8_t {
    kDone,       // The job is done; see `module`.
    kTime,       // The job exceeded its time.
    kMemory,     // The job exceeded its memory.
    kAbandoned,  // `abandoned` became readable.
    kCrashed,
  };
  End end = End::kDone;
  Result<std::shared_ptr<const device::PreparedModule>> module{
      Status(StatusCode::kInternal, "module rejected: it was not read")};
};

// Runs one job and waits for it. `image`: a sealed memory file; `abandoned`: an eventfd. The result
// is always validated, because the child cannot be trusted. `module` is an error if the end is not
// kDone, and also with kDone if the client's module is invalid.
JobOutcome RunJob(LoaderProcess& loader, const device::ModuleRecipe& recipe, int image,
                  std::uint64_t image_bytes, const JobLimits& limits, int abandoned);

}  // namespace gpushared::loader

#endif  // GPUSHARED_SERVER_MODULES_LOADER_CHILD_JOB_H_

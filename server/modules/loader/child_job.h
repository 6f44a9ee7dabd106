// SPDX-License-Identifier: Apache-2.0
// One module read by a child: from the image to what may be placed, or why not.

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
  std::chrono::milliseconds time{};  // Processor time.
  std::chrono::milliseconds wall{};  // By the clock: others may have the processor.
  std::uint64_t memory_bytes = 0;
  std::uint64_t output_bytes = 0;
  std::uint32_t niceness = 10;
};

// Of the longest attempt.
JobLimits LongestJob(const LoadLimit& limit);

struct JobOutcome {
  enum class End : std::uint8_t {
    kDone,       // `module` says how.
    kTime,       // It needs more time than it had, or
    kMemory,     // more memory.
    kAbandoned,  // `abandoned` was written to.
    kCrashed,
  };
  End end = End::kDone;
  Result<std::shared_ptr<const device::PreparedModule>> module{
      Status(StatusCode::kInternal, "module rejected: it was not read")};
};

// Runs one job and waits for it. `image`: a memory file that nobody may change; `abandoned`: an
// eventfd. Whatever the child does, what comes back was checked; every end but kDone and kAbandoned
// has a sentence in `module`.
JobOutcome RunJob(LoaderProcess& loader, const device::ModuleRecipe& recipe, int image,
                  std::uint64_t image_bytes, const JobLimits& limits, int abandoned);

}  // namespace gpushared::loader

#endif  // GPUSHARED_SERVER_MODULES_LOADER_CHILD_JOB_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_MODULES_LOADER_MODULE_LOADER_H_
#define GPUSHARED_SERVER_MODULES_LOADER_MODULE_LOADER_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gpushared/mutex.h"
#include "gpushared/result.h"
#include "gpushared/status.h"

#include "ipc/unique_fd.h"
#include "server/device/device.h"
#include "server/modules/compile/sha256.h"
#include "server/modules/loader/child_job.h"
#include "server/modules/loader/load_queue.h"
#include "server/modules/loader/loader_process.h"
#include "server/modules/loader/module_reader.h"
#include "server/modules/loader/prepared_cache.h"

namespace gpushared::loader {

struct ModuleLoaderOptions {
  // Command line of the loader process.
  std::vector<std::string> command;
  // First attempt with a short limit, so that small modules do not wait for expensive ones. A
  // module that takes longer is restarted in the next lane.
  JobLimits small{.time = std::chrono::milliseconds(20),
                  .wall = std::chrono::milliseconds(250),
                  .memory_bytes = std::uint64_t{64} << 20,
                  .output_bytes = std::uint64_t{16} << 20,
                  .niceness = 0};
  JobLimits quick{.time = std::chrono::milliseconds(100),
                  .wall = std::chrono::milliseconds(500),
                  .memory_bytes = std::uint64_t{192} << 20,
                  .output_bytes = std::uint64_t{64} << 20,
                  .niceness = 5};
  // Suffices for modules of usual size, even while long jobs run, because a job of this lane gets
  // most of the CPU time if it competes with a long one.
  JobLimits medium{.time = std::chrono::milliseconds(1'000),
                   .wall = std::chrono::milliseconds(10'000),
                   .memory_bytes = std::uint64_t{128} << 20,
                   .output_bytes = std::uint64_t{64} << 20,
                   .niceness = 10};
  JobLimits costly = LongestJob({});
  // Images above this size start in the next lane.
  std::uint64_t small_image_bytes_max = std::uint64_t{16} << 10;
  std::uint64_t quick_image_bytes_max = std::uint64_t{256} << 10;
  std::uint64_t medium_image_bytes_max = std::uint64_t{2} << 20;
  // Numbers of concurrent children, in addition to one for expensive modules. Each of them may use
  // the memory limit of its lane.
  std::uint32_t small_readers = 2, quick_readers = 1, medium_readers = 3;
  std::uint64_t cache_bytes_max = std::uint64_t{64} << 20;
  // Shared limit for modules that are read and wait to be placed, because these are not counted in
  // any quota yet. Beyond it no further modules are read; each reader may exceed it by one module.
  std::uint64_t unplaced_bytes_max = std::uint64_t{256} << 20;
  // Receives messages for operators, from any thread; may be empty.
  std::function<void(const std::string&)> warn = {};
};

// Reads modules in child processes, several at a time, in the order of LoadQueue; a crash of a
// child is reported as an error of its client. Results are cached for later clients with the same
// module (PreparedCache).
//
// Owns the loader process, a few threads and the cache. Thread-safe.
class ModuleLoader : public ModuleReader {
 public:
  static Result<std::unique_ptr<ModuleLoader>> Create(ModuleLoaderOptions options);
  ModuleLoader(const ModuleLoader&) = delete;
  ModuleLoader& operator=(const ModuleLoader&) = delete;
  ~ModuleLoader() override;  // Cancels all jobs.

  void Load(Owner owner, const device::ModuleRecipe& recipe, ipc::UniqueFd image,
            std::uint64_t bytes, Compile compile, Done done) override;
  void Cancel(std::uint64_t session) override;
  void SetRank(std::uint64_t session, std::uint8_t rank) override;
  LoaderFacts Facts() const override;

 private:
  struct Job {
    LoadQueue::Entry entry;
    Owner owner;
    device::ModuleRecipe recipe;
    ipc::UniqueFd image;  // The client's file, until it is copied.
    std::uint64_t bytes = 0;
    Compile compile;
    Done done;
    compile::Digest content = {};
    bool is_copied = false;  // Whether the image has been copied and hashed.
    std::shared_ptr<const device::PreparedModule> module;  // Not modified after it was read.
    // Guarded by mutex_ while the job runs.
    bool is_cancelled = false;
    bool yields = false;
    ipc::UniqueFd abandoned;  // An eventfd.
  };

  explicit ModuleLoader(ModuleLoaderOptions options)
      : options_(std::move(options)), cache_(options_.cache_bytes_max) {}
  Status Start();
  void StartReader(LoadQueue::Lane lane);
  void Read(LoadQueue::Lane lane);  // Main function of a thread.
  LoadQueue::Lane GetLane(std::uint64_t image_bytes) const;
  // Returns the lane for a job that exceeded the limits of its current lane.
  static LoadQueue::Lane NextLane(const Job& job);
  const JobLimits& GetLimits(LoadQueue::Lane lane) const;
  std::uint32_t GetReaders(LoadQueue::Lane lane) const;
  // Both return how the job ended.
  JobOutcome Attempt(Job& job, LoadQueue::Lane lane) GPUSHARED_EXCLUDES(mutex_);
  JobOutcome ReadImage(Job& job, LoadQueue::Lane lane) GPUSHARED_EXCLUDES(mutex_);
  // Called after an attempt: schedules another attempt or completes the job.
  void Settle(std::unique_ptr<Job> job, JobOutcome outcome) GPUSHARED_REQUIRES(mutex_);
  void Finish(std::unique_ptr<Job> job, JobOutcome outcome) GPUSHARED_REQUIRES(mutex_);
  static Status CopyImage(Job& job);
  static PreparedCache::Key GetKey(const Job& job);
  std::shared_ptr<void> TakePlace(std::uint64_t bytes);
  // If all readers of the job's lane are busy, aborts the attempt of a job of a less urgent class,
  // which is then queued again. Has no effect in the lanes below medium.
  void PreemptLessUrgentThan(const Job& job) GPUSHARED_REQUIRES(mutex_);
  static void Abandon(const Job& job);
  // Returns an empty string if a warning was issued recently.
  std::string GetWarning(const Job& job, const Status& why) GPUSHARED_REQUIRES(mutex_);

  const ModuleLoaderOptions options_;
  std::unique_ptr<LoaderProcess> process_;
  mutable Mutex mutex_;
  std::condition_variable changed_;
  bool is_ending_ GPUSHARED_GUARDED_BY(mutex_) = false;
  LoadQueue queue_ GPUSHARED_GUARDED_BY(mutex_);
  PreparedCache cache_ GPUSHARED_GUARDED_BY(mutex_);
  LoaderFacts facts_ GPUSHARED_GUARDED_BY(mutex_);
  std::uint64_t next_number_ GPUSHARED_GUARDED_BY(mutex_) = 1;
  LoadQueue::Clock::time_point warns_again_ GPUSHARED_GUARDED_BY(mutex_);
  std::uint64_t not_warned_ GPUSHARED_GUARDED_BY(mutex_) = 0;
  // By number.
  std::map<std::uint64_t, std::unique_ptr<Job>> waiting_ GPUSHARED_GUARDED_BY(mutex_);
  std::map<std::uint64_t, Job*> running_ GPUSHARED_GUARDED_BY(mutex_);
  // Memory of cancelled jobs. Freed by the readers' threads, because freeing takes time.
  std::vector<ipc::UniqueFd> left_behind_ GPUSHARED_GUARDED_BY(mutex_);
  const std::shared_ptr<std::atomic<std::uint64_t>> unplaced_bytes_ =
      std::make_shared<std::atomic<std::uint64_t>>(0);
  std::vector<std::thread> threads_;  // Created by Start, joined by the destructor.
};

}  // namespace gpushared::loader

#endif  // GPUSHARED_SERVER_MODULES_LOADER_MODULE_LOADER_H_

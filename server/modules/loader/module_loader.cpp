// SPDX-License-Identifier: Apache-2.0
#include "server/modules/loader/module_loader.h"

#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <span>
#include <utility>

#include "ipc/shared_segment.h"

namespace gpushared::loader {
namespace {

using Lane = LoadQueue::Lane;
using Clock = LoadQueue::Clock;
using End = JobOutcome::End;

// Niceness of the reader threads, which copy images and validate results and must not delay the
// threads of clients. The threads of the lane kSmall keep normal priority, because new clients wait
// for them, and they need less than a time slice for a small module.
constexpr int kNiceness = 5;
// Minimum interval between logged crashes.
constexpr std::chrono::seconds kWarnEvery{1};
// Polling interval while readers wait for modules to be placed, because placing a module does not
// notify them.
constexpr std::chrono::milliseconds kPlacedPollEvery{5};
constexpr std::size_t kHashPieceBytes = std::size_t{256} << 10;

// Reads instead of mapping the file, because a hole in a huge-page file could fault.
Result<compile::Digest> HashImage(int fd, std::uint64_t bytes) {
  std::vector<std::byte> piece(kHashPieceBytes);
  compile::Sha256 hash;
  for (std::uint64_t at = 0; at < bytes;) {
    const auto wanted = std::min<std::uint64_t>(piece.size(), bytes - at);
    const ssize_t count = ::pread(fd, piece.data(), wanted, static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      return Status(StatusCode::kInternal, "module rejected: its memory can't be read");
    }
    hash.Add(std::span(piece).first(static_cast<std::size_t>(count)));
    at += static_cast<std::uint64_t>(count);
  }
  return hash.Finish();
}

Status Cancelled() {
  return {StatusCode::kCancelled, "module rejected: its client has disconnected"};
}

}  // namespace

Result<std::unique_ptr<ModuleLoader>> ModuleLoader::Create(ModuleLoaderOptions options) {
  std::unique_ptr<ModuleLoader> loader(new ModuleLoader(std::move(options)));
  if (Status started = loader->Start(); !started.ok()) return started;
  return loader;
}

Status ModuleLoader::Start() {
  Result<std::unique_ptr<LoaderProcess>> process = LoaderProcess::Start(options_.command);
  if (!process.ok()) return process.status();
  process_ = *std::move(process);
  StartReader(Lane::kLong);
  for (const Lane lane : {Lane::kMedium, Lane::kQuick, Lane::kSmall}) {
    for (std::uint32_t i = 0; i < GetReaders(lane); ++i) StartReader(lane);
  }
  return {};
}

void ModuleLoader::StartReader(Lane lane) {
  threads_.emplace_back([this, lane] {
    ::pthread_setname_np(::pthread_self(), "gpushared-load");
    const auto self = static_cast<id_t>(::syscall(SYS_gettid));
    const sched_param none = {};
    (void)::sched_setscheduler(0, SCHED_OTHER, &none);
    const int before = std::max(::getpriority(PRIO_PROCESS, self), 0);
    (void)::setpriority(PRIO_PROCESS, self, before + (lane == Lane::kSmall ? 0 : kNiceness));
    Read(lane);
  });
}

Lane ModuleLoader::GetLane(std::uint64_t image_bytes) const {
  if (image_bytes <= options_.small_image_bytes_max) return Lane::kSmall;
  if (image_bytes <= options_.quick_image_bytes_max) return Lane::kQuick;
  return image_bytes <= options_.medium_image_bytes_max ? Lane::kMedium : Lane::kLong;
}

Lane ModuleLoader::NextLane(const Job& job) {
  // A module that was read but not compiled needs the compiler, which takes long.
  if (job.module != nullptr || job.entry.lane >= Lane::kMedium) return Lane::kLong;
  return job.entry.lane == Lane::kSmall ? Lane::kQuick : Lane::kMedium;
}

const JobLimits& ModuleLoader::GetLimits(Lane lane) const {
  return lane == Lane::kSmall    ? options_.small
         : lane == Lane::kQuick  ? options_.quick
         : lane == Lane::kMedium ? options_.medium
                                 : options_.costly;
}

std::uint32_t ModuleLoader::GetReaders(Lane lane) const {
  return lane == Lane::kSmall    ? options_.small_readers
         : lane == Lane::kQuick  ? options_.quick_readers
         : lane == Lane::kMedium ? options_.medium_readers
                                 : 1;
}

ModuleLoader::~ModuleLoader() {
  std::map<std::uint64_t, std::unique_ptr<Job>> waiting;
  {
    const MutexLock lock(mutex_);
    is_ending_ = true;
    waiting.swap(waiting_);
    for (const auto& [number, job] : running_) {
      job->is_cancelled = true;
      Abandon(*job);
    }
    changed_.notify_all();
  }
  for (const auto& [number, job] : waiting) job->done(Cancelled());
  for (std::thread& thread : threads_) thread.join();
}

void ModuleLoader::Load(Owner owner, const device::ModuleRecipe& recipe, ipc::UniqueFd image,
                        std::uint64_t bytes, Compile compile, Done done) {
  auto job = std::make_unique<Job>();
  job->abandoned = ipc::UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!job->abandoned.valid()) {
    return done(Status(StatusCode::kInternal, "module rejected: no descriptor is left"));
  }
  job->owner = std::move(owner);
  job->recipe = recipe;
  job->image = std::move(image);
  job->bytes = bytes;
  job->compile = std::move(compile);
  job->done = std::move(done);
  const MutexLock lock(mutex_);
  job->entry = {.number = next_number_++,
                .session = job->owner.session,
                .uid = job->owner.uid,
                .rank = job->owner.rank,
                .bytes = bytes,
                .lane = GetLane(bytes)};
  queue_.Add(job->entry);
  PreemptLessUrgentThan(*job);
  waiting_.emplace(job->entry.number, std::move(job));
  changed_.notify_all();
}

void ModuleLoader::PreemptLessUrgentThan(const Job& job) {
  if (job.entry.lane < Lane::kMedium) return;
  Job* least_urgent = nullptr;
  std::uint32_t at_work = 0;
  for (const auto& [number, running] : running_) {
    if (running->entry.lane != job.entry.lane) continue;
    ++at_work;
    // This job already yields to another waiting one, so its reader will be free soon.
    if (running->yields) return;
    if (least_urgent == nullptr || running->entry.rank > least_urgent->entry.rank) {
      least_urgent = running;
    }
  }
  if (at_work < GetReaders(job.entry.lane) || least_urgent->entry.rank <= job.entry.rank) return;
  least_urgent->yields = true;
  Abandon(*least_urgent);
}

void ModuleLoader::Abandon(const Job& job) { (void)::eventfd_write(job.abandoned.get(), 1); }

void ModuleLoader::Cancel(std::uint64_t session) {
  std::vector<std::unique_ptr<Job>> cancelled;
  {
    const MutexLock lock(mutex_);
    for (const std::uint64_t number : queue_.Remove(session)) {
      cancelled.push_back(std::move(waiting_[number]));
      left_behind_.push_back(std::move(cancelled.back()->image));
      waiting_.erase(number);
    }
    changed_.notify_all();
    for (const auto& [number, job] : running_) {
      if (job->entry.session != session) continue;
      job->is_cancelled = true;
      Abandon(*job);
    }
  }
  for (const auto& job : cancelled) job->done(Cancelled());
}

void ModuleLoader::SetRank(std::uint64_t session, std::uint8_t rank) {
  const MutexLock lock(mutex_);
  queue_.SetRank(session, rank);
}

LoaderFacts ModuleLoader::Facts() const {
  const MutexLock lock(mutex_);
  LoaderFacts facts = facts_;
  facts.running = static_cast<std::uint32_t>(running_.size());
  facts.waiting = static_cast<std::uint32_t>(queue_.size());
  facts.unplaced_bytes = *unplaced_bytes_;
  facts.cache_bytes = cache_.bytes();
  facts.cache_hits = cache_.hits();
  return facts;
}

void ModuleLoader::Read(Lane lane) {
  MutexLock lock(mutex_);
  while (!is_ending_) {
    if (!left_behind_.empty()) {
      std::vector<ipc::UniqueFd> freed = std::exchange(left_behind_, {});
      lock.Unlock();
      freed.clear();
      lock.Lock();
      continue;
    }
    if (*unplaced_bytes_ > options_.unplaced_bytes_max) {
      changed_.wait_for(lock.waitable(), kPlacedPollEvery);
      continue;
    }
    const std::optional<LoadQueue::Entry> next = queue_.Take(lane, Clock::now(), GetReaders(lane));
    if (!next) {
      changed_.wait(lock.waitable());
      continue;
    }
    std::unique_ptr<Job> job = std::move(waiting_[next->number]);
    waiting_.erase(next->number);
    job->entry = *next;
    running_.emplace(job->entry.number, job.get());
    lock.Unlock();
    const Clock::time_point began = Clock::now();
    JobOutcome outcome = Attempt(*job, next->lane);
    const Clock::time_point ended = Clock::now();
    lock.Lock();
    running_.erase(job->entry.number);
    queue_.Charge(job->entry, ended - began, ended);
    Settle(std::move(job), std::move(outcome));
  }
}

std::shared_ptr<void> ModuleLoader::TakePlace(std::uint64_t bytes) {
  *unplaced_bytes_ += bytes;
  return {nullptr, [count = unplaced_bytes_, bytes](void*) { *count -= bytes; }};
}

PreparedCache::Key ModuleLoader::GetKey(const Job& job) {
  const device::ModuleRecipe& recipe = job.recipe;
  const std::uint64_t how[] = {static_cast<std::uint64_t>(recipe.form),
                               static_cast<std::uint64_t>(recipe.passes.isolation),
                               recipe.passes.claims, recipe.range_bytes};
  compile::Sha256 hash;
  hash.Add(std::as_bytes(std::span(how)));
  hash.Add(job.content);
  return {.content = hash.Finish(), .uid = job.owner.uid, .isolation = job.owner.isolation};
}

void ModuleLoader::Settle(std::unique_ptr<Job> job, JobOutcome outcome) {
  const bool has_limit = outcome.end == End::kTime || outcome.end == End::kMemory;
  const bool tries_again = (job->entry.lane != Lane::kLong && has_limit) ||
                           (outcome.end == End::kAbandoned && job->yields);
  if (tries_again && !job->is_cancelled && !is_ending_) {
    std::uint64_t count = 0;
    (void)::eventfd_read(job->abandoned.get(), &count);
    const bool was_preempted = std::exchange(job->yields, false) && outcome.end == End::kAbandoned;
    if (!was_preempted) job->entry.lane = NextLane(*job);
    queue_.Add(job->entry);
    PreemptLessUrgentThan(*job);
    waiting_.emplace(job->entry.number, std::move(job));
    changed_.notify_all();
    return;
  }
  Finish(std::move(job), std::move(outcome));
}

Status ModuleLoader::CopyImage(Job& job) {
  if (job.is_copied) return {};
  Result<ipc::UniqueFd> copy = ipc::CopyImmutable("gpushared module", job.image.get(), job.bytes);
  job.image.Reset();
  if (!copy.ok()) return copy.status();
  job.image = *std::move(copy);
  Result<compile::Digest> content = HashImage(job.image.get(), job.bytes);
  if (!content.ok()) return content.status();
  job.content = *content;
  job.is_copied = true;
  return {};
}

JobOutcome ModuleLoader::Attempt(Job& job, Lane lane) {
  if (job.module == nullptr) {
    JobOutcome outcome = ReadImage(job, lane);
    if (!outcome.module.ok()) return outcome;
    job.module = *std::move(outcome.module);
  }
  auto compiled = job.compile(job.module, lane == Lane::kLong);
  if (compiled.ok() && *compiled == nullptr) {
    return {End::kTime, Status(StatusCode::kInternal, "module rejected: it was not compiled")};
  }
  return {End::kDone, std::move(compiled)};
}

JobOutcome ModuleLoader::ReadImage(Job& job, Lane lane) {
  if (Status copied = CopyImage(job); !copied.ok()) return {End::kDone, copied};
  {
    const MutexLock lock(mutex_);
    if (auto found = cache_.Find(GetKey(job))) return {End::kDone, std::move(found)};
  }
  JobOutcome outcome = RunJob(*process_, job.recipe, job.image.get(), job.bytes, GetLimits(lane),
                              job.abandoned.get());
  if (!outcome.module.ok()) return outcome;
  std::list<std::shared_ptr<const device::PreparedModule>> freed_unlocked;
  const MutexLock lock(mutex_);
  ++facts_.read;
  freed_unlocked = cache_.Keep(GetKey(job), *outcome.module);
  return outcome;
}

std::string ModuleLoader::GetWarning(const Job& job, const Status& why) {
  const Clock::time_point now = Clock::now();
  if (now < warns_again_) {
    ++not_warned_;
    return "";
  }
  warns_again_ = now + kWarnEvery;
  const std::uint64_t others = std::exchange(not_warned_, 0);
  return why.message() + " [" + job.owner.who + "]" +
         (others == 0 ? "" : " (and " + std::to_string(others) + " before it)");
}

void ModuleLoader::Finish(std::unique_ptr<Job> job, JobOutcome outcome) {
  if (!outcome.module.ok() && !job->is_cancelled) ++facts_.rejected;
  const bool is_cancelled = job->is_cancelled;
  std::string warning;
  if (outcome.end == End::kCrashed) {
    ++facts_.crashed;
    warning = GetWarning(*job, outcome.module.status());
  }
  const MutexUnlock unlock(mutex_);
  if (!warning.empty() && options_.warn) options_.warn(warning);
  if (is_cancelled) {
    job->done(Cancelled());
  } else if (outcome.module.ok()) {
    const std::uint64_t bytes = (*outcome.module)->bytes();
    job->done(Loaded{*std::move(outcome.module), job->content, TakePlace(bytes),
                     std::make_shared<const ipc::UniqueFd>(std::move(job->image))});
  } else {
    job->done(outcome.module.status());
  }
  job.reset();
}

}  // namespace gpushared::loader

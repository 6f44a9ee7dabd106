// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_cuda/world.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "server/device/cuda/driver.h"
#include "tests/support/fake_cuda/graphs.h"
#include "tests/support/fake_cuda/modules.h"
#include "tests/support/fake_cuda/timeline.h"
#include "tests/support/virtual_time/virtual_time.h"

// Defined only if the virtual_time library is preloaded or linked.
#pragma weak virtual_time_is_on
#pragma weak virtual_time_is_here
#pragma weak virtual_time_now
#pragma weak virtual_time_spend

namespace gpushared::testing::fake_cuda {
namespace {

using device::cuda::Code;

// Interval at which memory that any thread may write is polled.
constexpr std::chrono::microseconds kPollInterval{100};
// A thread that waits for a costed GPU sleeps until this long before the end of the wait, and then
// spins.
constexpr std::chrono::microseconds kSpinsWithin{200};
constexpr std::chrono::microseconds kLongCall{10};

bool IsVirtual() { return &virtual_time_is_on != nullptr && virtual_time_is_on() != 0; }

std::string Hex(std::uintptr_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%zx", static_cast<std::size_t>(value));
  return text;
}

std::string DefaultUuid(int number) {
  return "GPU-fa4ecada-0000-0000-0000-00000000000" + std::to_string(number);
}

}  // namespace

thread_local std::uintptr_t World::current = 0;
thread_local std::chrono::nanoseconds World::spent{};

thread_local bool World::is_elsewhere = false;
thread_local CallFrame* CallFrame::here_ = nullptr;

Gpu::Gpu(World& world) : context_lock(world, *this) {}
Gpu::~Gpu() = default;

World& World::Get() {
  static World world;
  return world;
}

World::World() {
  Lock lock(mutex);
  Reset(lock);
}

World::~World() {
  Lock lock(mutex);
  ReportLeaks("at the end of the process");
  const std::string mistakes = TakeMistakes();
  StopEngines(lock);
  if (mistakes.empty()) return;
  std::fprintf(stderr, "fake_cuda: the driver was used wrongly:\n%s", mistakes.c_str());
  std::fflush(nullptr);
  ::_exit(FAKE_CUDA_EXIT_CODE);
}

void World::Reset(Lock& lock) {
  StopEngines(lock);
  settings = Settings();
  initialized = false;
  sticky.reset();
  gpus.clear();
  contexts.live().clear();
  streams.live().clear();
  events.live().clear();
  execs.live().clear();
  nodes.live().clear();
  graphs.live().clear();
  functions.live().clear();
  modules.live().clear();
  memory.Clear();
  memory.limit = settings.memory_bytes;
  log.clear();
  call_counts.clear();
  mistakes_.clear();
  pageable_copies = 0;
  compiled_texts.clear();
  limits = kLimits;
  local_bytes = 0;
  last_attributes.clear();
  current = 0;
  if (const char* statements = std::getenv("FAKE_CUDA"); statements != nullptr) {
    if (const std::string wrong = Run(statements); !wrong.empty()) Mistake(wrong);
  }
}

std::string World::Run(std::string_view statements) {
  const std::string control = settings.control_path;
  const std::string wrong = settings.Apply(statements);
  if (settings.control_path != control) {
    std::error_code none;
    const auto bytes = std::filesystem::file_size(settings.control_path, none);
    obeyed_bytes_ = none ? 0 : bytes;
  }
  memory.limit = settings.memory_bytes;
  if (settings.sticky) sticky = settings.sticky;
  settings.sticky.reset();
  changed.notify_all();
  return wrong;
}

void World::ObeyControl() {
  if (settings.control_path.empty()) return;
  std::ifstream file(settings.control_path);
  file.seekg(static_cast<std::streamoff>(obeyed_bytes_));
  for (std::string line; std::getline(file, line);) {
    if (file.eof()) return;  // The last line is still being written.
    obeyed_bytes_ += line.size() + 1;
    if (const std::string wrong = Run(line); !wrong.empty()) Mistake(wrong);
  }
}

void World::Mistake(const std::string& what) { mistakes_.push_back(what); }

std::string World::TakeMistakes() {
  std::string text;
  for (const std::string& mistake : mistakes_) text += mistake + "\n";
  mistakes_.clear();
  return text;
}

void World::MissingHandle(const char* kind, std::uintptr_t handle, const char* call) {
  Mistake(std::string(call) + ": " + kind + " " + Hex(handle) + " is destroyed or never was");
}

// ---- GPUs

void World::MakeGpus() {
  for (int number = static_cast<int>(gpus.size()); number < settings.devices; ++number) {
    auto gpu = std::make_unique<Gpu>(*this);
    gpu->number = number;
    gpu->uuid = settings.uuids.contains(number) ? settings.uuids[number] : DefaultUuid(number);
    if (settings.costs) {
      gpu->timeline = std::make_unique<Timeline>(*this, *gpu);
      // A thread advances the GPU even if no call is made, because programs poll words of host
      // memory that the GPU writes. In virtual time, the waiting threads advance the GPU instead.
      if (!IsVirtual()) {
        gpu->engines[0] = std::thread([this, &made = *gpu] { Tick(made); });
      }
      gpus.push_back(std::move(gpu));
      continue;
    }
    for (const Engine engine : {Engine::kCompute, Engine::kOther}) {
      gpu->engines[static_cast<std::size_t>(engine)] =
          std::thread([this, engine, &made = *gpu] { Engines(made, engine); });
    }
    gpus.push_back(std::move(gpu));
  }
}

std::vector<Gpu*> World::Visible() {
  MakeGpus();
  std::vector<Gpu*> visible;
  const char* variable = std::getenv("CUDA_VISIBLE_DEVICES");
  if (variable == nullptr) {
    for (const auto& gpu : gpus) visible.push_back(gpu.get());
    return visible;
  }
  // A driver stops at the first item that it does not recognize.
  for (std::string_view list = variable; !list.empty();) {
    const std::string item(list.substr(0, list.find(',')));
    list.remove_prefix(std::min(list.size(), item.size() + 1));
    const auto found = std::ranges::find_if(gpus, [&](const auto& gpu) {
      return item == std::to_string(gpu->number) ||
             (item.size() > 4 && gpu->uuid.starts_with(item));
    });
    if (found == gpus.end()) break;
    visible.push_back(found->get());
  }
  return visible;
}

Gpu* World::VisibleGpu(int ordinal) {
  const std::vector<Gpu*> visible = Visible();
  return ordinal < 0 || static_cast<std::size_t>(ordinal) >= visible.size()
             ? nullptr
             : visible[static_cast<std::size_t>(ordinal)];
}

void World::StopEngines(Lock& lock) {
  kill_kernels = true;
  stopping_ = true;
  changed.notify_all();
  lock.unlock();
  for (const auto& gpu : gpus) {
    for (std::thread& engine : gpu->engines) {
      if (engine.joinable()) engine.join();
    }
  }
  lock.lock();
  stopping_ = false;
  kill_kernels = false;
}

// ---- work

void World::Submit(FakeStream& stream, Work work) {
  work.order = ++last_order_;
  if (stream.gpu->timeline != nullptr) work.arrives = stream.gpu->timeline->Arrival(Now());
  stream.queue.push_back(std::move(work));
  changed.notify_all();
}

Clock::time_point World::Now() {
  if (!IsVirtual()) return Clock::now();
  return Clock::time_point(std::chrono::nanoseconds(virtual_time_now()));
}

bool World::PassesTime() { return IsVirtual() && virtual_time_is_here() != 0; }

void World::Spend(std::chrono::nanoseconds time) {
  spent += std::max(time, std::chrono::nanoseconds{});
  if (is_elsewhere) return;
  if (IsVirtual()) return virtual_time_spend(static_cast<std::uint64_t>(time.count()));
  const Clock::time_point until = Clock::now() + time;
  while (Clock::now() < until) {
  }
}

void World::CatchUp() {
  for (const auto& gpu : gpus) {
    if (gpu->timeline != nullptr) gpu->timeline->AdvanceTo(Now());
  }
}

Clock::time_point World::SeenAt(const FakeStream& stream) const {
  if (!Idle(stream)) return kNotDue;
  if (!settings.costs || stream.last == Kind::kNothing) return {};
  return stream.free_at + std::chrono::nanoseconds(settings.costs->notice);
}

Clock::time_point World::SeenAt(const Mark& mark) const {
  if (!mark.done) return kNotDue;
  return settings.costs ? mark.seen_at : Clock::time_point();
}

void World::Await(Lock& lock, const std::function<Clock::time_point()>& due) {
  if (!settings.costs) {
    changed.wait(lock, [&] { return sticky || due() != kNotDue; });
    return;
  }
  if (sticky || due() <= Now()) return;
  Clock::time_point at = due();
  while (!sticky && at > Now()) {
    for (const auto& gpu : gpus) at = std::min(at, gpu->timeline->next_event());
    if (IsVirtual()) {
      // Without any future event the thread would wait forever, as on a real GPU.
      if (at == kNotDue) std::abort();
      Spend(std::max(at, Now()) - Now());
    } else if (at - Now() > kSpinsWithin) {
      changed.wait_for(lock, std::min<Clock::duration>(at - Now() - kSpinsWithin, kPollInterval));
    } else {
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    }
    CatchUp();
    at = due();
  }
  const bool sleeps = (CurrentContext()->gpu->flags & device::cuda::kContextBlockingSync) != 0;
  if (sleeps) Spend(std::chrono::nanoseconds(settings.costs->wake));
}

// Advances a costed GPU in the background, because work must write to host memory even if no call
// is made for a while.
void World::Tick(Gpu& gpu) {
  Lock lock(mutex);
  while (!stopping_) {
    gpu.timeline->AdvanceTo(Now());
    const Clock::time_point next = gpu.timeline->next_event();
    if (next == kNotDue) {
      changed.wait(lock);
    } else {
      changed.wait_for(lock,
                       std::clamp<Clock::duration>(next - Now(), kPollInterval / 2, kPollInterval));
    }
  }
}

Clock::time_point World::GpuNow() const {
  const Clock::time_point now = work_time.value_or(Now());
  return now + std::chrono::milliseconds(settings.clock_ahead_ms) +
         (now - made_) * settings.clock_faster_ppm / 1'000'000;
}

std::shared_ptr<FakeStream> World::NextStream(Gpu& gpu, Engine engine) {
  std::shared_ptr<FakeStream> best;
  for (const auto& stream : gpu.streams) {
    if (stream->running || stream->queue.empty()) continue;
    const Work& head = stream->queue.front();
    if (head.engine != engine) continue;
    if (head.ready && !head.ready()) continue;
    const auto rank = [](const FakeStream& s) {
      return std::pair(s.priority, s.queue.front().order);
    };
    if (best == nullptr || rank(*stream) < rank(*best)) best = stream;
  }
  return best;
}

void World::Engines(Gpu& gpu, Engine engine) {
  Lock lock(mutex);
  while (!stopping_) {
    std::shared_ptr<FakeStream> stream;
    if (!settings.held && !sticky) stream = NextStream(gpu, engine);
    if (stream == nullptr) {
      changed.wait(lock);
      continue;
    }
    stream->running = std::move(stream->queue.front());
    stream->queue.pop_front();
    Code code = Code::kSuccess;
    if (stream->running->run) {
      const std::function<Code()> run = std::move(stream->running->run);
      lock.unlock();
      code = run();
      lock.lock();
    }
    if (code != Code::kSuccess && !sticky) sticky = code;
    if (stream->running->ended && !sticky) stream->running->ended();
    stream->running.reset();
    if (stream->destroyed && Idle(*stream)) std::erase(gpu.streams, stream);
    changed.notify_all();
  }
}

const Work* World::Pending(const std::function<bool(const Work&)>& is_it) {
  for (const auto& gpu : gpus) {
    for (const auto& stream : gpu->streams) {
      if (stream->running && is_it(*stream->running)) return &*stream->running;
      const auto found = std::ranges::find_if(stream->queue, is_it);
      if (found != stream->queue.end()) return &*found;
    }
  }
  return nullptr;
}

const Work* World::PendingUse(std::uint64_t address, std::uint64_t bytes) {
  return Pending([&](const Work& work) {
    return std::ranges::any_of(work.uses,
                               [&](const Range& range) { return range.Meets(address, bytes); });
  });
}

const Work* World::PendingModule(std::uintptr_t module) {
  return Pending([&](const Work& work) { return work.module == module; });
}

const Work* World::PendingExec(std::uintptr_t exec) {
  return Pending([&](const Work& work) { return work.exec == exec; });
}

std::size_t World::Live(std::string_view kind) {
  const auto of_green = [&](bool green) {
    return static_cast<std::size_t>(std::ranges::count_if(
        contexts.live(), [&](const auto& one) { return one.second->green == green; }));
  };
  const auto of_ours = [&](bool ours) {
    return static_cast<std::size_t>(std::ranges::count_if(
        memory.hosts, [&](const auto& one) { return one.second.ours == ours; }));
  };
  if (kind == "context") return of_green(false);
  if (kind == "green context") return of_green(true);
  if (kind == "stream") return streams.live().size();
  if (kind == "event") return events.live().size();
  if (kind == "graph") return graphs.live().size();
  if (kind == "instantiated graph") return execs.live().size();
  if (kind == "module") return modules.live().size();
  if (kind == "reservation") return memory.reservations.size();
  if (kind == "memory") return memory.physical.size();
  if (kind == "mapping") return memory.mappings.size();
  if (kind == "allocation") return memory.allocations.size();
  if (kind == "host allocation") return of_ours(true);
  if (kind == "registration") return of_ours(false);
  return 0;
}

void World::CompileText(std::string_view text) {
  const bool is_new = compiled_texts.insert(std::hash<std::string_view>()(text)).second;
  if (is_new && settings.costs) Spend(std::chrono::nanoseconds(settings.costs->compile_text));
}

bool World::TakeLocalMemory() {
  const auto attribute = [&](device::cuda::DeviceAttribute which) {
    return static_cast<std::uint64_t>(settings.attributes.at(static_cast<int>(which)));
  };
  const std::uint64_t bytes =
      limits.at(static_cast<std::size_t>(device::cuda::Limit::kStackBytes)) *
      attribute(device::cuda::DeviceAttribute::kMultiprocessors) *
      attribute(device::cuda::DeviceAttribute::kThreadsPerMultiprocessorMax);
  if (bytes <= local_bytes) return true;
  if (!memory.Occupy(bytes - local_bytes)) return false;
  local_bytes = bytes;
  return true;
}

// ---- ends

void World::EndContext(std::uintptr_t context, const char* call) {
  if (const auto ending = contexts.Find(context); ending != nullptr && !ending->green) {
    memory.Vacate(std::exchange(local_bytes, 0));
  }
  const auto end_all = [&](auto& table) {
    std::size_t left = 0;
    for (auto at = table.live().begin(); at != table.live().end();) {
      if (at->second->context != context) {
        ++at;
        continue;
      }
      ++left;
      at = table.live().erase(at);
    }
    if (left > 0 && !sticky && !settings.leaks_ignored) {
      Mistake(std::string(call) + ": the context ends with " + std::to_string(left) + " " +
              table.kind() + (left == 1 ? "" : "s") + " in it");
    }
  };
  end_all(streams);
  end_all(events);
  end_all(execs);
  end_all(graphs);
  for (const auto& [handle, module] : std::map(modules.live())) {
    if (module->context == context) FreeVariables(*this, *module);
  }
  end_all(modules);
  contexts.Remove(context);
}

void World::ReportLeaks(const char* when) {
  // Nothing can be released in a dead context.
  if (sticky || settings.leaks_ignored) return;
  const auto report = [&](const char* kind, std::size_t count) {
    if (count > 0) Mistake(std::to_string(count) + " " + kind + " left " + when);
  };
  for (const char* kind : {"context", "stream", "event", "graph", "instantiated graph", "module",
                           "reservation", "mapping", "memory", "host allocation", "registration"}) {
    report(kind, Live(kind));
  }
  // Module variables are allocations, too, but are reported with their module.
  if (modules.live().empty()) report("allocation", memory.allocations.size());
}

// ---- calls

CallFrame::CallFrame(const char* name, Needs needs, std::uintptr_t handle)
    : lock(World::Get().mutex), world(World::Get()), name_(name), handle_(handle) {
  world.ObeyControl();
  if (const auto slow = world.settings.slow_ms.find(name); slow != world.settings.slow_ms.end()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(slow->second));
  }
  std::optional<FailRule> rule = Strike(world.settings.fails, name);
  here_ = this;
  if (World::is_elsewhere) World::spent = {};
  if (const auto context = world.CurrentContext();
      needs == Needs::kContext && world.settings.has_lock && context != nullptr) {
    context_lock_ = &context->gpu->context_lock;
    context_lock_->Enter(lock);
    if (const LockUse use = LockUseOf(name); use != LockUse::kShort) HoldLock(use);
  }
  if (world.settings.costs) {
    const std::chrono::nanoseconds cost(world.settings.costs->OfCall(name));
    // A short call spends its time before it does its work, so that the work is submitted when the
    // call ends.
    if (cost < kLongCall || IsVirtual() || World::is_elsewhere) {
      World::Spend(cost);
    } else {
      ends_ = World::Now() + cost;
      World::spent = {};
    }
    world.CatchUp();
  }
  if (needs != Needs::kNothing && !world.initialized) {
    world.Mistake(std::string(name) + ": before cuInit");
    rejected_ = Code::kNotInitialized;
  } else if (needs == Needs::kContext && world.sticky) {
    rejected_ = world.sticky;
  } else if (needs == Needs::kContext && World::current == 0) {
    world.Mistake(std::string(name) + ": no context is current on this thread");
    rejected_ = Code::kInvalidContext;
  } else if (needs == Needs::kContext && world.CurrentContext() == nullptr) {
    world.Mistake(std::string(name) + ": the context that is current was destroyed");
    rejected_ = Code::kContextIsDestroyed;
  } else if (rule && !rule->late) {
    rejected_ = rule->code;
  } else if (rule) {
    late_ = rule->code;
  }
  if (rule && device::cuda::EndsContext(rule->code)) world.sticky = rule->code;
}

void CallFrame::WaitForGpu() { here_->HoldLock(LockUse::kDrains); }

void CallFrame::HoldLock(LockUse use) {
  if (context_lock_ == nullptr || std::exchange(holds_context_lock_, true)) return;
  context_lock_->Take(lock, use);
}

Code CallFrame::Finish(Code code) {
  if (late_) code = *late_;
  if (ends_) {
    // Time that the model itself spends within the call is added to the call.
    World::Spend(*ends_ + World::spent - World::Now());
    world.CatchUp();
  }
  if (holds_context_lock_) context_lock_->Return(World::spent);
  const auto called = world.call_counts.find(name_);
  if (called != world.call_counts.end()) {
    ++called->second;
  } else {
    world.call_counts.emplace(name_, 1);
  }
  // Does not record calls on a costed GPU without a log, because polling makes millions of them.
  if (world.settings.costs && world.settings.log_path.empty()) return code;
  const auto thread = static_cast<std::uint64_t>(::syscall(SYS_gettid));
  world.log.push_back({.name = name_, .result = code, .thread = thread, .handle = handle_});
  if (!world.settings.log_path.empty()) {
    // Appended and closed each time, because the process may be killed at any call.
    if (std::FILE* file = std::fopen(world.settings.log_path.c_str(), "a"); file != nullptr) {
      std::fprintf(file, "%llu %s %d\n", static_cast<unsigned long long>(thread), name_,
                   static_cast<int>(code));
      std::fclose(file);
    }
  }
  return code;
}

}  // namespace gpushared::testing::fake_cuda

// ---- the controls

using gpushared::testing::fake_cuda::Lock;
using gpushared::testing::fake_cuda::World;

namespace {
// The text of the latest control that returned a pointer.
std::string g_text;
const char* Keep(std::string text) {
  g_text = std::move(text);
  return g_text.c_str();
}
}  // namespace

extern "C" {

void fake_cuda_reset(void) {
  World& world = World::Get();
  Lock lock(world.mutex);
  world.Reset(lock);
}

const char* fake_cuda_script(const char* statements) {
  World& world = World::Get();
  const Lock lock(world.mutex);
  const std::string wrong = world.Run(statements);
  return wrong.empty() ? nullptr : Keep(wrong);
}

size_t fake_cuda_calls(const char* name) {
  World& world = World::Get();
  const Lock lock(world.mutex);
  if (name == nullptr) return world.log.size();
  const auto found = world.call_counts.find(name);
  return found == world.call_counts.end() ? 0 : found->second;
}

int fake_cuda_call_at(size_t index, fake_cuda_call* call) {
  World& world = World::Get();
  const Lock lock(world.mutex);
  if (index >= world.log.size()) return 0;
  const auto& logged = world.log[index];
  *call = {.name = logged.name,
           .result = static_cast<int>(logged.result),
           .thread = logged.thread,
           .handle = logged.handle};
  return 1;
}

void fake_cuda_catch_up(void) {
  World& world = World::Get();
  const Lock lock(world.mutex);
  world.CatchUp();
}

uint64_t fake_cuda_busy_ns(void) {
  World& world = World::Get();
  const Lock lock(world.mutex);
  world.CatchUp();
  std::chrono::nanoseconds busy{};
  for (const auto& gpu : world.gpus) {
    if (gpu->timeline != nullptr) busy += gpu->timeline->busy();
  }
  return static_cast<std::uint64_t>(busy.count());
}

void fake_cuda_forget_calls(void) {
  World& world = World::Get();
  const Lock lock(world.mutex);
  world.log.clear();
  world.call_counts.clear();
}

size_t fake_cuda_live(const char* kind) {
  World& world = World::Get();
  const Lock lock(world.mutex);
  return world.Live(kind);
}

const char* fake_cuda_take_mistakes(void) {
  World& world = World::Get();
  const Lock lock(world.mutex);
  return Keep(world.TakeMistakes());
}

uint64_t fake_cuda_memory_used(void) {
  World& world = World::Get();
  const Lock lock(world.mutex);
  return world.memory.used();
}

const char* fake_cuda_last_attributes(void) {
  World& world = World::Get();
  const Lock lock(world.mutex);
  return Keep(world.last_attributes);
}

size_t fake_cuda_compiled_texts(void) {
  World& world = World::Get();
  const Lock lock(world.mutex);
  return world.compiled_texts.size();
}

size_t fake_cuda_pageable_copies(void) {
  World& world = World::Get();
  const Lock lock(world.mutex);
  return world.pageable_copies;
}

}  // extern "C"

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <optional>

#include "tests/gpu/facts.h"

namespace gpushared::testing {
namespace {

using namespace device::cuda;  // NOLINT(google-build-using-namespace): this file is about it.

class ContextFacts : public Facts {
 public:
  using Facts::Facts;

  void AContext() {
    Row("loading the driver", Ns(load_took_) / 1e6, "ms", "once");
    Row("making a context", Ns(context_took_) / 1e6, "ms", "once");
    Row("memory in use beside a bare context, of all processes", used_bare_ / (1 << 20), "MiB", "");
    std::size_t bytes = 0;
    Do(driver_->DeviceTotalMem, &bytes, number_);
    Row("memory of the GPU", static_cast<double>(bytes) / (1 << 20), "MiB", "");
    Row("multiprocessors", multiprocessors_, "-",
        "driver of CUDA " + VersionText(driver_->version()));
    for (const MissingFeature& missing : driver_->missing_features())
      Row(std::string(FeatureName(missing.feature)), 0, "-", missing.why);
    Row("stream priorities", least_ - greatest_ + 1, "-", "");
    Modules();
    const double before = UsedBytes();
    const OtherContext other;
    Row("memory of a context, in another process", (UsedBytes() - before) / (1 << 20), "MiB",
        "with a module and local memory as the driver makes it");
  }

  // Measures how the driver reports that a kernel has ended its context, and how soon another
  // process can continue. This process's context is lost.
  void AFault() {
    std::array<void*, 2> parameters{};
    DeviceAddress wild = 16;
    unsigned iterations = 0;
    parameters = {&wild, &iterations};
    Code code = Code::kSuccess;
    const auto took = GetTime([&] {
      Do(driver_->LaunchKernel, step_, 1u, 1u, 1u, 1u, 1u, 1u, 0u, high_, parameters.data(),
         nullptr);
      code = driver_->StreamSynchronize(high_);
    });
    SetDead();
    Row("a kernel that writes to a wild address: until the driver says so", Ns(took) / 1e3, "us",
        driver_->Explain("cuStreamSynchronize", code));
    Rule("what it says is known to end a context", EndsContext(code),
         "code " + std::to_string(static_cast<int>(code)));
    std::optional<OtherContext> other;
    const auto again = GetTime([&] { other.emplace(); });
    Row("until another process has a context after that", Ns(again) / 1e6, "ms", "once");
  }

  void AddressWindows() {
    constexpr std::size_t kWindow = std::size_t{128} << 30;
    std::vector<DeviceAddress> windows(64);
    std::size_t got = 0;
    while (got < windows.size() &&
           driver_->MemAddressReserve(&windows[got], kWindow, kWindow, 0, 0) == Code::kSuccess) {
      ++got;
    }
    for (std::size_t i = 0; i < got; ++i) Do(driver_->MemAddressFree, windows[i], kWindow);
    Row("windows of 128 GiB, aligned to their size", static_cast<double>(got), "-", "of 64");
  }

  // The server sets the limit of local memory before it takes the rest of the GPU's memory for
  // clients. If the driver allocated local memory at the first kernel instead, a launch could run
  // out of memory.
  void LocalMemory() {
    constexpr double kMebi = 1 << 20;
    const Function deep = FactKernel("deep");
    std::size_t was = 0, given = 0;
    const std::size_t asked = ServersStackBytes();
    Do(driver_->CtxGetLimit, &was, Limit::kStackBytes);
    const double before = UsedBytes();
    const auto took = GetTime([&] { Do(driver_->CtxSetLimit, Limit::kStackBytes, asked); });
    const double after = UsedBytes();
    Do(driver_->CtxGetLimit, &given, Limit::kStackBytes);
    Row("local memory of a thread, as the server sets it", static_cast<double>(given), "bytes",
        std::to_string(asked) + " asked for, it was " + std::to_string(was));
    Row("setting it: takes", Ns(took) / 1e3, "us", "once, beside nothing");
    Row("setting it: memory that it takes", (after - before) / kMebi, "MiB",
        "all threads have " + std::to_string((given * ThreadsAtOnce()) >> 20U) + " MiB");
    int bytes = 0;
    Do(driver_->FuncGetAttribute, &bytes, FunctionAttribute::kLocalBytes, deep);
    const auto first = GetTime([&] {
      Launch(deep, WaveBlocks(), 32, 1, high_);
      Do(driver_->StreamSynchronize, high_);
    });
    Row("a first kernel with 4 KiB of local memory: memory that it takes",
        (UsedBytes() - after) / kMebi, "MiB",
        std::to_string(bytes) + " bytes for each thread by the driver");
    Row("a first kernel with 4 KiB of local memory: takes", Ns(first) / 1e3, "us", "once");
  }

  // The worker passes on every attribute that the driver answers.
  void Attributes() {
    constexpr int kIdMax = 159;
    std::string values, odd;
    int count = 0, odd_count = 0;
    for (int id = 1; id <= kIdMax; ++id) {
      int value = 0;
      const Code code =
          driver_->DeviceGetAttribute(&value, static_cast<DeviceAttribute>(id), number_);
      if (code == Code::kSuccess) {
        ++count;
        values += (values.empty() ? "" : " ") + std::to_string(id) + "=" + std::to_string(value);
      } else if (code != Code::kInvalidValue) {
        ++odd_count;
        odd += (odd.empty() ? "" : ", ") + std::to_string(id) + ": " +
               std::to_string(static_cast<int>(code));
      }
    }
    Row("attributes 1 to 159 that the driver answers", count, "-", values);
    Row("attributes that fail otherwise than by code 1", odd_count, "-", odd);
  }

  // On streams of green contexts, the server records events of the primary context and launches
  // functions of the primary context's modules. The driver's documentation demands that the stream
  // and the event or function belong to the same context.
  void GreenEvents() {
    constexpr unsigned kLeast = 8;
    const std::string what = "a green context's stream";
    if (!driver_->Has(Feature::kGreenContexts)) return NoRow(what, "code", "not in this driver");
    if (static_cast<unsigned>(multiprocessors_) < kLeast)
      return NoRow(what, "code", "the GPU is too small to be split");
    Resource whole;
    Do(driver_->DeviceGetDevResource, number_, &whole, ResourceType::kMultiprocessors);
    Resource group, rest;
    unsigned count = 1;
    Do(driver_->DevSmResourceSplitByCount, &group, &count, &whole, &rest, 0u, kLeast);
    if (count == 0) return NoRow(what, "code", "the GPU cannot be split");
    const Part part(*this, group);
    const Stream stream = part.stream();
    Events(part);
    TryKernel(what + ": a kernel of the primary context's module", FactKernel("store_shared"),
              stream);
    if (!is_dead()) KernelOfLibrary(stream);
  }

  void GreenContexts() {
    if (!driver_->Has(Feature::kGreenContexts)) return;
    Resource whole;
    Do(driver_->DeviceGetDevResource, number_, &whole, ResourceType::kMultiprocessors);
    for (const unsigned least : {8U, 16U, 32U, 64U}) {
      if (least > static_cast<unsigned>(multiprocessors_)) break;
      unsigned count = 0;
      Resource rest;
      Do(driver_->DevSmResourceSplitByCount, nullptr, &count, &whole, &rest, 0u, least);
      if (count == 0) continue;
      std::vector<Resource> groups(count);
      Do(driver_->DevSmResourceSplitByCount, groups.data(), &count, &whole, &rest, 0u, least);
      Row("groups of at least " + std::to_string(least) + " multiprocessors", count, "-",
          std::to_string(groups[0].sm.multiprocessors) + " each, " +
              std::to_string(rest.type == ResourceType::kMultiprocessors ? rest.sm.multiprocessors
                                                                         : 0) +
              " left");
      if (least == 8) UseParts(groups);
    }
  }

 private:
  void Modules() {
    Module module = nullptr;
    Samples loads, unloads;
    const auto end = FactsClock::now() + limit_ / 4;
    do {
      loads.Add(GetTime(
          [&] { Do(driver_->ModuleLoadDataEx, &module, KernelImage(), 0u, nullptr, nullptr); }));
      unloads.Add(GetTime([&] { Do(driver_->ModuleUnload, module); }));
    } while (FactsClock::now() < end);
    Row("loading a module", loads);
    Row("unloading it", unloads);
    if (!driver_->Has(Feature::kParameterInfo)) return;
    // Kernel `step` has two parameters: an address and a word.
    std::array<std::size_t, 2> offsets{}, bytes{};
    for (std::size_t i = 0; i < offsets.size(); ++i) {
      Do(driver_->FuncGetParamInfo, step_, i, &offsets.at(i), &bytes.at(i));
    }
    Rule("the driver knows where a kernel's parameters lie",
         offsets == std::array<std::size_t, 2>{0, 8} && bytes == std::array<std::size_t, 2>{8, 4});
  }

  // A green context with a stream, as --sm-limit uses it: kernels, memory and events belong to the
  // primary context.
  class Part {
   public:
    Part(const ContextFacts& facts, Resource group)
        : facts_(facts), multiprocessors_(group.sm.multiprocessors) {
      ResourceDescription description = nullptr;
      facts_.Do(facts_.driver_->DevResourceGenerateDesc, &description, &group, 1u);
      facts_.Do(facts_.driver_->GreenCtxCreate, &green_, description, facts_.number_,
                kGreenContextDefaultStream);
      facts_.Do(facts_.driver_->GreenCtxStreamCreate, &stream_, green_, kStreamNonBlocking,
                facts_.least_);
    }
    ~Part() {
      if (stream_ != nullptr) (void)facts_.driver_->StreamDestroy(stream_);
      if (green_ != nullptr) (void)facts_.driver_->GreenCtxDestroy(green_);
    }
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;
    GreenContext context() const { return green_; }
    Stream stream() const { return stream_; }
    unsigned multiprocessors() const { return multiprocessors_; }

   private:
    const ContextFacts& facts_;
    const unsigned multiprocessors_;
    GreenContext green_ = nullptr;
    Stream stream_ = nullptr;
  };

  // Tests an event that is created with the primary context current, and one with the green context
  // current.
  void Events(const Part& part) {
    const Stream stream = part.stream();
    std::array<Event, 2> events{};
    Context green = nullptr;
    Do(driver_->EventCreate, &events[0], 0u);
    Do(driver_->CtxFromGreenCtx, &green, part.context());
    Do(driver_->CtxSetCurrent, green);
    const Code made = driver_->EventCreate(&events[1], 0u);
    Do(driver_->CtxSetCurrent, context_);
    Check(driver_->EventCreate.name(), made);
    bool are_both = true;
    for (std::size_t i = 0; i < events.size(); ++i) {
      const std::string of = std::string("a green context's stream: an event made with ") +
                             (i == 0 ? "the primary" : "that") + " context current: ";
      const Code recorded = driver_->EventRecord(events.at(i), stream);
      CodeRow(of + "recorded", driver_->EventRecord.name(), recorded);
      Do(driver_->StreamSynchronize, stream);
      are_both = are_both && recorded == Code::kSuccess;
      if (recorded != Code::kSuccess) continue;
      CodeRow(of + "queried with the primary one current", driver_->EventQuery.name(),
              driver_->EventQuery(events.at(i)));
      CodeRow(of + "awaited by a stream of the primary one", driver_->StreamWaitEvent.name(),
              driver_->StreamWaitEvent(low_, events.at(i), 0));
    }
    if (are_both) {
      float milliseconds = 0;
      CodeRow("a green context's stream: the time between two such events",
              driver_->EventElapsedTime.name(),
              driver_->EventElapsedTime(&milliseconds, events[0], events[1]));
    }
    Do(driver_->StreamSynchronize, low_);
    for (const Event event : events) Do(driver_->EventDestroy, event);
  }

  void TryKernel(const std::string& what, Function kernel, Stream stream) {
    constexpr unsigned kDynamicBytes = 4096;
    unsigned address = kDynamicBytes / 2;  // Within the block's own memory.
    std::array<void*, 2> parameters = {&out_, &address};
    CodeRow(what + ": launched", driver_->LaunchKernel.name(),
            driver_->LaunchKernel(kernel, 1, 1, 1, 1, 1, 1, kDynamicBytes, stream,
                                  parameters.data(), nullptr));
    CodeRow(what + ": its end", driver_->StreamSynchronize.name(),
            driver_->StreamSynchronize(stream));
  }

  // A library belongs to no context, so the documentation recommends its kernels here.
  void KernelOfLibrary(Stream stream) {
    const std::string what = "a green context's stream: a kernel of a library";
    using Library = struct LibraryTarget*;
    const auto load =
        FindCall<Code(Library*, const void*, JitOption*, void**, unsigned, int*, void**, unsigned)>(
            "cuLibraryLoadData", 12000);
    const auto get =
        FindCall<Code(KernelHandle*, Library, const char*)>("cuLibraryGetKernel", 12000);
    const auto unload = FindCall<Code(Library)>("cuLibraryUnload", 12000);
    if (load == nullptr || get == nullptr || unload == nullptr)
      return NoRow(what, "code", "not in this driver");
    Library library = nullptr;
    KernelHandle kernel = nullptr;
    Check("cuLibraryLoadData",
          load(&library, FactFatbin(), nullptr, nullptr, 0, nullptr, nullptr, 0));
    Check("cuLibraryGetKernel", get(&kernel, library, "store_shared"));
    // cuLaunchKernel accepts such kernels in place of functions (cuda.h).
    TryKernel(what, reinterpret_cast<Function>(kernel), stream);
    if (!is_dead()) Check("cuLibraryUnload", unload(library));
  }

  void UseParts(const std::vector<Resource>& groups) {
    std::optional<Part> part, other;
    const double before = UsedBytes();
    const auto took = GetTime([&] { part.emplace(*this, groups[0]); });
    Row("making a green context", Ns(took) / 1e3, "us", "once, with a stream");
    Row("memory of a green context", (UsedBytes() - before) / (1 << 20), "MiB", "");
    const double alone = TimeIn(part->stream());
    Row("a kernel in a green context, of its time on the whole GPU",
        alone / std::max(TimeIn(low_), 1.0), "-",
        std::to_string(part->multiprocessors()) + " of " + std::to_string(multiprocessors_) +
            " multiprocessors");
    if (groups.size() < 2) return;
    other.emplace(*this, groups[1]);
    // The other kernels run much longer than the kernel that is measured next to them.
    for (int i = 0; i < 8; ++i) Launch(occupy_, PartBlocks(), 32, kIterations, other->stream());
    Row("the same beside a busy green context of other multiprocessors, of its time alone",
        TimeIn(part->stream()) / std::max(alone, 1.0), "-", "");
    Do(driver_->StreamSynchronize, other->stream());
  }
  static constexpr unsigned kIterations = 1000;
  unsigned PartBlocks() const { return static_cast<unsigned>(multiprocessors_) * 32; }
  double TimeIn(Stream stream) {
    Launch(occupy_, PartBlocks(), 32, kIterations, stream);
    Do(driver_->StreamSynchronize, stream);
    return Ns(GetTime([&] {
      Launch(occupy_, PartBlocks(), 32, kIterations, stream);
      Do(driver_->StreamSynchronize, stream);
    }));
  }
};

}  // namespace

std::vector<Question> ContextQuestions() {
  return {GetQuestion("local memory", &ContextFacts::LocalMemory),
          GetQuestion("events on green contexts' streams", &ContextFacts::GreenEvents),
          GetQuestion("attributes", &ContextFacts::Attributes),
          GetQuestion("a context", &ContextFacts::AContext),
          GetQuestion("address windows", &ContextFacts::AddressWindows),
          GetQuestion("green contexts", &ContextFacts::GreenContexts),
          GetQuestion("a fault", &ContextFacts::AFault)};
}

}  // namespace gpushared::testing

// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_cuda/modules.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "common/ptx/text/fatbin.h"
#include "common/ptx/text/parser.h"
#include "server/device/cpu/executor/block_executor.h"
#include "server/device/cpu/executor/code.h"

namespace gpushared::testing::fake_cuda {
namespace {

namespace executor = device::executor;
using device::cuda::Code;
using device::cuda::DeviceAttribute;

constexpr std::uint32_t kFatbinMagic = 0xBA55ED50;
constexpr std::uint32_t kWrapperMagic = 0x466243b1;
constexpr unsigned char kElfMagic[] = {0x7f, 'E', 'L', 'F'};

// Returns the bytes of an image. A driver receives only the address, so the length comes from the
// image itself.
std::span<const std::byte> Extent(const void* image) {
  const auto* bytes = static_cast<const std::byte*>(image);
  std::uint32_t magic = 0;
  std::memcpy(&magic, bytes, sizeof magic);
  if (magic == kWrapperMagic) {
    void* inner = nullptr;
    std::memcpy(&inner, bytes + 8, sizeof inner);
    return Extent(inner);
  }
  if (magic == kFatbinMagic) {
    std::uint16_t header = 0;
    std::uint64_t payload = 0;
    std::memcpy(&header, bytes + 6, sizeof header);
    std::memcpy(&payload, bytes + 8, sizeof payload);
    return {bytes, header + payload};
  }
  return {bytes, std::strlen(static_cast<const char*>(image))};
}

// Returns the driver's code for a fault. An endless wait is reported as kLaunchTimeout.
Code GetCode(const executor::Fault& fault) {
  using Kind = executor::Fault::Kind;
  const bool waits = fault.kind == Kind::kDeadlock || fault.kind == Kind::kMissingLanes ||
                     fault.kind == Kind::kStalled;
  return waits ? Code::kLaunchTimeout : static_cast<Code>(executor::GetKind(fault.kind));
}

// Gathers the arguments into one buffer, whichever way they were passed; returns false if they are
// incomplete.
bool GatherParameters(const device::KernelInfo& info, void** parameters, void** extra,
                      std::vector<std::byte>& out) {
  out.assign(info.parameter_bytes, std::byte{0});
  if (info.parameter_bytes == 0) return true;
  if (parameters != nullptr) {
    for (std::size_t i = 0; i < info.parameters.size(); ++i) {
      if (parameters[i] == nullptr) return false;
      std::memcpy(out.data() + info.parameters[i].offset, parameters[i], info.parameters[i].bytes);
    }
    return true;
  }
  const void* buffer = nullptr;
  std::size_t bytes = 0;
  for (void** key = extra; key != nullptr && Number(*key) != device::cuda::kLaunchEnd; key += 2) {
    if (Number(*key) == device::cuda::kLaunchBuffer) buffer = key[1];
    if (Number(*key) == device::cuda::kLaunchBufferBytes) {
      bytes = *static_cast<const std::size_t*>(key[1]);
    }
  }
  if (buffer == nullptr || bytes < info.parameter_bytes) return false;
  std::memcpy(out.data(), buffer, info.parameter_bytes);
  return true;
}

// Returns the piece that the executor tries first: the one that the first pointer among the
// arguments points into.
Memory::Piece GetWindow(const Memory& memory, const std::vector<std::byte>& parameters) {
  for (std::size_t at = 0; at + 8 <= parameters.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, parameters.data() + at, sizeof word);
    if (const Memory::Piece piece = memory.Around(word); piece.bytes > 0) return piece;
  }
  return {};
}

// A launch in progress, with everything it owns.
struct Running {
  std::shared_ptr<FakeFunction> function;
  LaunchShape shape;
  std::vector<std::byte> parameters;
  std::uint32_t multiprocessors = 1;
};

// The executor's view of a launch.
struct Prepared {
  std::atomic<std::uint64_t> mapped{0};
  std::vector<executor::MemoryPiece> pieces;
  executor::Launch launch;
};

// Prepares a launch. Called under the lock when the kernel begins. `running` outlives `prepared`.
Code Prepare(World& world, const Running& running, Prepared& prepared) {
  executor::Launch& launch = prepared.launch;
  launch.leftover = world.settings.leftover;
  if (const auto rule = Strike(world.settings.faults, ""); rule) return rule->code;
  const Memory::Piece window = GetWindow(world.memory, running.parameters);
  prepared.mapped = window.bytes;
  // Kernels of one context can access all of its memory.
  for (const Memory::Piece& piece : world.memory.Reachable()) {
    prepared.pieces.push_back({.base = piece.base, .bytes = piece.bytes});
  }
  std::ranges::sort(prepared.pieces, {}, &executor::MemoryPiece::base);
  launch.memory = {.base = window.base,
                   .mapped_bytes = &prepared.mapped,
                   .variables_base = running.function->module->variables,
                   .variables_bytes = running.function->module->layout.bytes,
                   .further = prepared.pieces};
  launch.program = running.function->program;
  launch.grid = running.shape.grid;
  launch.block = running.shape.block;
  launch.dynamic_shared_bytes = running.shape.dynamic_shared_bytes;
  launch.is_cooperative = running.shape.is_cooperative;
  launch.parameters = running.parameters;
  launch.multiprocessors = running.multiprocessors;
  // Writes to the stdout of the calling program, like the driver.
  static const executor::PrintFunction print = [](std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
  };
  launch.print = &print;
  return Code::kSuccess;
}

Code Execute(World& world, const Running& running) {
  Prepared prepared;
  std::chrono::milliseconds least{};
  {
    const Lock lock(world.mutex);
    least = std::chrono::milliseconds(world.settings.kernel_ms);
    const Code code = Prepare(world, running, prepared);
    if (code != Code::kSuccess) return code;
  }
  static const std::atomic<bool> never{false};
  std::this_thread::sleep_for(least);
  executor::BlockExecutor blocks;
  const executor::RunOutcome outcome =
      blocks.Run(prepared.launch, 0, prepared.launch.grid.Count(), never, world.kill_kernels);
  return outcome.fault ? GetCode(*outcome.fault) : Code::kSuccess;
}

// Runs a launch block by block, for a fake GPU that models costs.
class Blocks : public BlockRun {
 public:
  Blocks(World& world, Running running) : world_(world), running_(std::move(running)) {}
  std::uint64_t count() const override { return running_.shape.grid.Count(); }
  std::uint64_t threads() const override { return running_.shape.block.Count(); }
  Code Begin() override {
    prepared_.launch.state = &state_;
    prepared_.launch.more_blocks = &more_;
    return Prepare(world_, running_, prepared_);
  }
  Ran Run(std::uint64_t block) override {
    static const std::atomic<bool> never{false};
    next_ = block + 1;
    executor::ExecutionCounts counts;
    const executor::RunOutcome outcome =
        executor_.RunCounted(prepared_.launch, block, 1, never, world_.kill_kernels, &counts);
    const std::uint64_t ran = next_ - block;
    const auto warps = static_cast<double>((threads() + 31) / 32 * ran);
    return {.code = outcome.fault ? GetCode(*outcome.fault) : Code::kSuccess,
            .blocks = ran,
            .instructions = static_cast<double>(counts.warp_instructions) / warps};
  }

 private:
  World& world_;
  const Running running_;
  Prepared prepared_;
  executor::LaunchState state_;
  executor::BlockExecutor executor_;
  std::uint64_t next_ = 0;  // The first block that has not begun.
  const std::function<std::optional<std::uint64_t>(bool)> more_ =
      [this](bool while_waiting) -> std::optional<std::uint64_t> {
    if (!while_waiting || next_ >= count()) return std::nullopt;
    return next_++;
  };
};

bool ShapeFits(const World& world, const LaunchShape& shape, const FakeFunction& function) {
  const auto limit = [&](DeviceAttribute which) {
    return static_cast<std::uint32_t>(world.settings.attributes.at(static_cast<int>(which)));
  };
  const device::Dim3& block = shape.block;
  const device::Dim3& grid = shape.grid;
  if (block.x > limit(DeviceAttribute::kBlockXMax) ||
      block.y > limit(DeviceAttribute::kBlockYMax) ||
      block.z > limit(DeviceAttribute::kBlockZMax) || grid.x > limit(DeviceAttribute::kGridXMax) ||
      grid.y > limit(DeviceAttribute::kGridYMax) || grid.z > limit(DeviceAttribute::kGridZMax)) {
    return false;
  }
  const std::uint64_t threads_max = function.info().threads_per_block_max == 0
                                        ? limit(DeviceAttribute::kThreadsPerBlockMax)
                                        : function.info().threads_per_block_max;
  return block.Count() > 0 && grid.Count() > 0 && block.Count() <= threads_max &&
         shape.dynamic_shared_bytes <= function.dynamic_shared_max;
}

}  // namespace

Code LoadModule(World& world, const void* image, std::uintptr_t* handle, std::string* log) {
  if (image == nullptr) return Code::kInvalidValue;
  if (std::memcmp(image, kElfMagic, sizeof kElfMagic) == 0) return Code::kNoBinaryForGpu;
  Result<std::string> text = ptx::ExtractPtx(Extent(image));
  if (!text) {
    *log = text.status().message();
    return text.status().code() == StatusCode::kUnsupported ? Code::kNoBinaryForGpu
                                                            : Code::kInvalidImage;
  }
  // Only plain text is compiled now: a container, whose first byte differs from that of its text,
  // holds code that was compiled before.
  const bool is_text = text->starts_with(*static_cast<const char*>(image));
  if (is_text && !text->starts_with(FAKE_CUDA_CODE)) world.CompileText(*text);
  Result<ptx::Module> parsed = ptx::Parse(*text);
  if (!parsed) {
    *log = parsed.status().message();
    return Code::kInvalidPtx;
  }
  auto module = std::make_shared<FakeModule>();
  Result<executor::ModuleLayout> layout = executor::LayOutModule(*parsed);
  if (!layout) {
    *log = layout.status().message();
    return Code::kInvalidPtx;
  }
  module->layout = std::move(*layout);
  if (module->layout.bytes > 0) {
    const Code allocated = world.memory.Allocate(module->layout.bytes, &module->variables);
    if (allocated != Code::kSuccess) return allocated;
    const std::vector<std::byte> initial = module->layout.InitialBytes(module->variables);
    std::memcpy(reinterpret_cast<void*>(module->variables), initial.data(), initial.size());
  }
  Result<std::unique_ptr<executor::ModuleImage>> decoded =
      executor::DecodeModule(*parsed, module->layout, module->variables);
  if (!decoded) {
    if (module->variables != 0) (void)world.memory.Free(module->variables);
    *log = decoded.status().message();
    return Code::kInvalidPtx;
  }
  module->image = std::move(*decoded);
  module->context = World::current;
  *handle = world.modules.Add(module);
  for (std::size_t i = 0; i < module->image->size(); ++i) {
    auto function = std::make_shared<FakeFunction>();
    function->module_handle = *handle;
    function->module = module;
    function->program = &module->image->program(i);
    const std::uint32_t fixed = function->info().static_shared_bytes;
    function->dynamic_shared_max =
        kSharedBytesWithoutOptIn - std::min(fixed, kSharedBytesWithoutOptIn);
    module->functions.push_back(world.functions.Add(function));
    if (!LoadsLazily() && !LoadFunction(world, *function)) return Code::kOutOfMemory;
  }
  return Code::kSuccess;
}

bool LoadsLazily() {
  const char* const variable = std::getenv("CUDA_MODULE_LOADING");
  return variable == nullptr || std::strcmp(variable, "EAGER") != 0;
}

bool LoadFunction(World& world, FakeFunction& function) {
  if (function.is_loaded) return true;
  CallFrame::WaitForGpu();
  if (world.settings.costs) {
    std::uint64_t address = 0;
    if (world.memory.Allocate(world.settings.costs->kernel_code_bytes, &address) !=
        Code::kSuccess) {
      return false;
    }
    function.module->code.push_back(address);
    World::Spend(std::chrono::nanoseconds(world.settings.costs->kernel_load));
  }
  function.is_loaded = true;
  return true;
}

void FreeVariables(World& world, const FakeModule& module) {
  for (const std::uintptr_t function : module.functions) world.functions.Remove(function);
  if (module.variables != 0) (void)world.memory.Free(module.variables);
  for (const std::uint64_t code : module.code) (void)world.memory.Free(code);
}

Code CheckLaunch(World& world, const FakeFunction& function, const LaunchShape& shape,
                 const Arguments& arguments, const char* call, std::vector<std::byte>& gathered) {
  if (!ShapeFits(world, shape, function)) return Code::kInvalidValue;
  // A real driver would load the kernel now, and may wait for all running work first.
  if (!function.is_loaded) world.Mistake(std::string(call) + ": the kernel is not loaded");
  // Not a mistake of the caller: the executor lacks an instruction of the kernel.
  if (!function.info().unsupported.empty()) return Code::kNotSupported;
  // A real driver would first allocate local memory, and may wait for all running work for that.
  const auto stack = static_cast<std::size_t>(device::cuda::Limit::kStackBytes);
  if (function.program->code().local_bytes_per_thread > world.limits.at(stack)) {
    world.Mistake(std::string(call) + ": the kernel needs more local memory than there is");
  }
  if (world.settings.local_memory == LocalMemory::kLazily &&
      function.program->code().local_bytes_per_thread > 0 && !world.TakeLocalMemory()) {
    return Code::kOutOfMemory;
  }
  const bool are_complete =
      GatherParameters(function.info(), arguments.parameters, arguments.extra, gathered);
  return are_complete ? Code::kSuccess : Code::kInvalidValue;
}

Work MakeLaunch(World& world, const std::shared_ptr<FakeFunction>& function,
                const LaunchShape& shape, std::vector<std::byte> parameters, const char* call) {
  auto running = std::make_shared<Running>();
  running->function = function;
  running->shape = shape;
  running->parameters = std::move(parameters);
  const auto count =
      world.settings.attributes.at(static_cast<int>(DeviceAttribute::kMultiprocessors));
  running->multiprocessors = static_cast<std::uint32_t>(count);
  Work work;
  work.call = call;
  work.engine = Engine::kCompute;
  work.module = function->module_handle;
  work.kind = Kind::kKernel;
  if (world.settings.costs) {
    work.blocks = std::make_shared<Blocks>(world, *running);
  } else {
    work.run = [&world, running] { return Execute(world, *running); };
  }
  return work;
}

}  // namespace gpushared::testing::fake_cuda

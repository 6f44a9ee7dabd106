// SPDX-License-Identifier: Apache-2.0
#include "tests/corpus/runtime.h"

#include <sys/mman.h>

#include <cstring>
#include <stdexcept>
#include <utility>

#include "common/ptx/text/fatbin.h"
#include "common/ptx/text/parser.h"
#include "tests/executor/find_program.h"

namespace gpushared::corpus {
namespace {

constexpr std::uint64_t kAlignment = 256;

// The structure that nvcc's host code registers: a pointer to the fatbin, which contains its own
// size.
struct FatbinWrapper {
  std::uint32_t magic, version;
  const std::byte* fatbin;
};
constexpr std::uint32_t kWrapperMagic = 0x466243b1;

template <typename T>
T Need(Result<T> result, const char* what) {
  if (!result.ok()) throw std::runtime_error(std::string(what) + result.status().ToString());
  return std::move(result).value();
}

std::span<const std::byte> ToFatbin(const void* wrapper) {
  FatbinWrapper header{};
  std::memcpy(&header, wrapper, sizeof header);
  if (header.magic != kWrapperMagic) throw std::runtime_error("no fatbin wrapper");
  std::uint16_t header_bytes = 0;
  std::uint64_t content_bytes = 0;
  std::memcpy(&header_bytes, header.fatbin + 6, sizeof header_bytes);
  std::memcpy(&content_bytes, header.fatbin + 8, sizeof content_bytes);
  return {header.fatbin, static_cast<std::size_t>(header_bytes + content_bytes)};
}

}  // namespace

Runtime& Runtime::Instance() {
  // Programs register themselves before main, so the first program creates the instance.
  static Runtime runtime;
  return runtime;
}

Runtime::Runtime() {
  reserved_ = mmap(nullptr, 2 * kMemoryBytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved_ == MAP_FAILED) throw std::runtime_error("no memory for the corpus");
  void* at = reserved_;
  std::size_t room = 2 * kMemoryBytes;
  memory_ = static_cast<std::byte*>(std::align(kMemoryBytes, kMemoryBytes, at, room));
}

Runtime::~Runtime() { munmap(reserved_, 2 * kMemoryBytes); }

LoadedModule* Runtime::Register(const void* fatbin_wrapper) {
  auto loaded = std::make_unique<LoadedModule>();
  loaded->text = Need(ptx::ExtractPtx(ToFatbin(fatbin_wrapper)), "fatbin: ");
  loaded->module = Need(ptx::Parse(loaded->text), "parse: ");
  loaded->layout = Need(executor::LayOutModule(loaded->module), "layout: ");
  loaded->variables_base = reinterpret_cast<std::uint64_t>(Allocate(loaded->layout.bytes));
  loaded->image = Need(
      executor::DecodeModule(loaded->module, loaded->layout, loaded->variables_base), "decode: ");
  variables_end_ = used_;
  modules_.push_back(std::move(loaded));
  return modules_.back().get();
}

void Runtime::RegisterFunction(LoadedModule* module, const void* host_function, const char* name) {
  functions_[host_function] = {module, name};
}

void Runtime::RegisterVariable(LoadedModule* module, const void* host_variable, const char* name) {
  variables_[host_variable] = {module, name};
}

void Runtime::Reset() {
  std::memset(memory_, 0, used_);
  used_ = variables_end_;
  while (!allocations_.empty() && allocations_.back().base >= Base() + used_) {
    allocations_.pop_back();
  }
  error_.clear();
  for (const auto& loaded : modules_) {
    const std::vector<std::byte> initial = loaded->layout.InitialBytes(loaded->variables_base);
    if (initial.empty()) continue;
    std::memcpy(reinterpret_cast<void*>(loaded->variables_base), initial.data(), initial.size());
  }
}

const LoadedModule* Runtime::GetModule(const void* host_function) const {
  const auto found = functions_.find(host_function);
  return found == functions_.end() ? nullptr : found->second.module;
}

const executor::Program* Runtime::FindFunction(const void* host_function) const {
  const auto found = functions_.find(host_function);
  if (found == functions_.end()) return nullptr;
  return testing::FindProgram(*found->second.module->image, found->second.name);
}

void* Runtime::FindVariable(const void* host_variable, std::uint64_t* bytes) const {
  const auto found = variables_.find(host_variable);
  if (found == variables_.end()) return nullptr;
  for (const auto& placed : found->second.module->layout.variables) {
    if (placed.name != found->second.name) continue;
    *bytes = placed.bytes;
    return reinterpret_cast<void*>(found->second.module->variables_base + placed.offset);
  }
  return nullptr;
}

void* Runtime::Allocate(std::uint64_t bytes) {
  const std::uint64_t at = (used_ + kAlignment - 1) / kAlignment * kAlignment;
  if (bytes > kMemoryBytes || at + bytes > kMemoryBytes) return nullptr;
  used_ = at + bytes;
  allocations_.push_back({.base = Base() + at, .bytes = bytes});
  return memory_ + at;
}

device::Reach Runtime::GetReach(const KernelLaunch& launch) const {
  const device::KernelInfo& info = launch.program->info();
  if (!info.why_reach_unknown.empty()) return device::Reach::Everything();
  device::Reach reach;
  for (const std::uint32_t offset : info.reach_offsets) {
    std::uint64_t word = 0;
    std::memcpy(&word, launch.parameters.data() + offset, sizeof word);
    for (const device::MemoryPiece& piece : allocations_) {
      // The end of an array is a valid address, too.
      if (word - piece.base <= piece.bytes) reach.Add(piece);
    }
  }
  return reach;
}

void Runtime::RecordError(const std::string& error) {
  if (error_.empty()) error_ = error;
}

Status Runtime::RunPlain(const KernelLaunch& launch) {
  executor::Launch work;
  work.program = launch.program;
  work.grid = launch.grid;
  work.block = launch.block;
  work.dynamic_shared_bytes = launch.dynamic_shared_bytes;
  work.is_cooperative = launch.is_cooperative;
  work.parameters = launch.parameters;
  work.memory = window();
  const device::Reach reach = GetReach(launch);
  work.memory.reach = &reach;
  work.memory.variables_base = launch.module->variables_base;
  work.memory.variables_bytes = launch.module->layout.bytes;
  if (!reach.is_everything()) ++bound_launches_;
  const std::atomic<bool> never{false};
  const auto outcome = executor_.Run(work, 0, launch.grid.Count(), never, never);
  if (outcome.end == executor::RunOutcome::End::kFinished) return {};
  return {StatusCode::kKernelFault, outcome.fault ? outcome.fault->message : "it stopped"};
}

bool Runtime::Launch(const void* host_function, device::Dim3 grid, device::Dim3 block,
                     void** arguments, std::uint64_t shared_bytes, bool is_cooperative) {
  const auto function = functions_.find(host_function);
  const executor::Program* program = FindFunction(host_function);
  if (program == nullptr) {
    RecordError("launch of an unknown kernel");
    return false;
  }
  const device::KernelInfo& info = program->info();
  KernelHistory& history = history_[info.name];
  ++history.launches;
  if (!info.unsupported.empty()) {
    history.rejection = info.unsupported;
    RecordError("kernel '" + info.name + "' needs " + info.unsupported);
    return false;
  }
  KernelLaunch launch;
  launch.module = function->second.module;
  launch.program = program;
  launch.grid = grid;
  launch.block = block;
  launch.dynamic_shared_bytes = static_cast<std::uint32_t>(shared_bytes);
  launch.is_cooperative = is_cooperative;
  launch.parameters.resize(info.parameter_bytes);
  for (std::size_t i = 0; i < info.parameters.size(); ++i) {
    const device::ParameterLayout& parameter = info.parameters[i];
    std::memcpy(launch.parameters.data() + parameter.offset, arguments[i], parameter.bytes);
  }
  const Status status = backend_ == nullptr ? RunPlain(launch) : backend_->Run(launch);
  if (!status.ok()) RecordError(status.message());
  return status.ok();
}

}  // namespace gpushared::corpus

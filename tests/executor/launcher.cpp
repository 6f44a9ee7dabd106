// SPDX-License-Identifier: Apache-2.0
#include "tests/executor/launcher.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <new>
#include <set>
#include <utility>

#include "common/ptx/text/parser.h"
#include "server/device/cpu/executor/flat_code.h"
#include "server/device/cpu/executor/op_table.h"
#include "server/device/flat.h"
#include "tests/executor/find_program.h"

namespace gpushared::testing {
namespace {

constexpr std::uint64_t kPage = 4096;

template <typename T>
T Need(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().ToString());
  return std::move(result).value();
}

// Records the operations of all kernels that launchers of this process run. All these launchers
// must run on one thread. At exit, writes the forms of the operations to the file named by
// GPUSHARED_FORMS_RUN, which reach.cpp reads.
class HandlersRun {
 public:
  ~HandlersRun() {
    const char* const path = std::getenv("GPUSHARED_FORMS_RUN");
    if (path == nullptr) return;
    std::ofstream forms(path);
    std::uint64_t number = 0;
    while (const executor::OpEntry* op = executor::OpOfNumber(executor::BestFlavour(), number++)) {
      if (handlers_.contains(op->handler)) forms << op->key << '\n';
    }
  }
  void Note(const executor::Program& program) {
    for (const executor::MicroOp& op : program.code().ops) handlers_.insert(op.handler);
  }

 private:
  std::set<executor::Handler> handlers_;
};

HandlersRun& Noted() {
  static HandlersRun noted;
  return noted;
}

// Passes all code of these tests through bytes, because code that another process decoded arrives
// in this form.
std::unique_ptr<executor::ModuleImage> ThroughBytes(const executor::ModuleImage& image,
                                                    executor::Flavour flavour) {
  std::vector<std::byte> bytes;
  std::vector<std::unique_ptr<const executor::Program>> programs;
  device::FlatWriter to([&](auto piece) { bytes.insert(bytes.end(), piece.begin(), piece.end()); });
  for (std::size_t i = 0; i < image.size(); ++i) PutProgram(image.program(i), flavour, to);
  to.Flush();
  device::FlatReader from(bytes);
  for (std::size_t i = 0; i < image.size(); ++i) {
    programs.push_back(Need(executor::TakeProgram(from, flavour)));
  }
  return std::make_unique<executor::ModuleImage>(std::move(programs));
}

}  // namespace

Launcher::Launcher(std::uint64_t memory_bytes, executor::Flavour flavour)
    : flavour_(flavour),
      storage_(static_cast<std::byte*>(std::calloc(memory_bytes + kPage, 1))),
      mapped_bytes_(memory_bytes) {
  if (storage_ == nullptr) throw std::bad_alloc();
  const auto at = reinterpret_cast<std::uint64_t>(storage_.get());
  memory_ = storage_.get() + (kPage - at % kPage);
}

void Launcher::Load(std::string_view ptx_text) {
  const ptx::Module module = Need(ptx::Parse(ptx_text));
  const executor::ModuleLayout layout = Need(executor::LayOutModule(module));
  void* variables = AllocateBytes(layout.bytes);
  const auto variables_base = reinterpret_cast<std::uint64_t>(variables);
  const std::vector<std::byte> initial = layout.InitialBytes(variables_base);
  if (!initial.empty()) std::memcpy(variables, initial.data(), initial.size());
  image_ = ThroughBytes(*Need(executor::DecodeModule(module, layout, 0, flavour_)), flavour_);
  variables_at_ = variables_base;
  variables_bytes_ = layout.bytes;
}

void Launcher::LoadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot open " + path);
  Load(std::string(std::istreambuf_iterator<char>(file), {}));
}

void* Launcher::AllocateBytes(std::size_t bytes) {
  constexpr std::uint64_t alignment = 256;
  used_ = (used_ + alignment - 1) / alignment * alignment;
  if (used_ + bytes > mapped_bytes_) {
    throw std::runtime_error("test memory is used up: asked for " + std::to_string(bytes) +
                             " bytes, " + std::to_string(mapped_bytes_ - used_) + " of " +
                             std::to_string(mapped_bytes_) + " are left");
  }
  void* at = memory_ + used_;
  used_ += bytes;
  return at;
}

executor::DeviceHeap& Launcher::MakeHeap(std::uint64_t bytes) {
  heap_storage_ = std::make_unique<std::byte[]>(bytes + kPage);
  const auto at = reinterpret_cast<std::uint64_t>(heap_storage_.get());
  heap_piece_ = {.base = at + (kPage - at % kPage), .bytes = bytes};
  heap_ = std::make_unique<executor::DeviceHeap>(heap_piece_.base, bytes);
  return *heap_;
}

const executor::Program& Launcher::Kernel(std::string_view name) const {
  const executor::Program* program = image_ == nullptr ? nullptr : FindProgram(*image_, name);
  if (program == nullptr) throw std::runtime_error("no kernel " + std::string(name));
  return *program;
}

executor::RunOutcome Launcher::RunPacked(std::string_view kernel, device::Dim3 grid,
                                         device::Dim3 block, std::vector<std::byte> parameters) {
  const executor::Program& program = Kernel(kernel);
  if (!program.info().unsupported.empty()) {
    throw std::runtime_error(std::string(kernel) + ": " + program.info().unsupported);
  }
  Noted().Note(program);
  parameters.resize(program.info().parameter_bytes);
  const executor::PrintFunction print = [this](std::string_view text) {
    printed += text;
    if (on_print) on_print();
  };
  executor::Launch launch;
  launch.program = &program;
  launch.grid = grid;
  launch.block = block;
  launch.dynamic_shared_bytes = dynamic_shared_bytes;
  launch.is_cooperative = is_cooperative;
  launch.parameters = parameters;
  launch.memory = {.base = base(),
                   .mapped_bytes = &mapped_bytes_,
                   .variables_base = variables_at_,
                   .variables_bytes = variables_bytes_};
  if (heap_) launch.memory.further = {&heap_piece_, 1};
  launch.memory.reach = ReachAfter(0);
  launch.heap = heap_.get();
  launch.variables_at = variables_at_;
  launch.print = &print;
  launch.more_blocks = more_blocks ? &more_blocks : nullptr;
  launch.state = state;
  launch.stall_limit = stall_limit;
  const std::uint64_t count = block_count == 0 ? grid.Count() - first_block : block_count;
  counts_ = {};
  const std::atomic<bool>& killed = kill_word == nullptr ? kill : *kill_word;
  static const bool is_always = std::getenv("GPUSHARED_PAUSE_ALWAYS") != nullptr;
  if (!count_instructions && (pause_always || is_always)) return RunPaused(launch, count, killed);
  return count_instructions
             ? executor_.RunCounted(launch, first_block, count, stop, killed, &counts_)
             : executor_.Run(launch, first_block, count, stop, killed);
}

const device::Reach* Launcher::ReachAfter(std::size_t pauses_of_run) const {
  return reaches.empty() ? nullptr : &reaches[std::min(pauses_of_run, reaches.size() - 1)];
}

executor::RunOutcome Launcher::RunPaused(executor::Launch launch, std::uint64_t count,
                                         const std::atomic<bool>& killed) {
  const std::atomic<bool> always{true};
  const std::atomic<std::uint64_t> nobody{std::numeric_limits<std::uint64_t>::max()};
  const std::atomic<std::uint32_t> none{0};
  const std::function<bool(std::uint64_t)> may_pause = [](std::uint64_t) { return true; };
  const executor::PauseTerms terms{.stop = always,
                                   .first_rank = nobody,
                                   .own_rank = 0,
                                   .paused_runs = none,
                                   .may_pause = may_pause};
  launch.pause = &terms;
  auto held = std::make_unique<executor::Launch>(launch);
  std::vector<std::byte> parameters;
  executor::RunOutcome outcome = executor_.Run(*held, first_block, count, stop, killed);
  std::size_t pauses_of_run = 0;
  while (outcome.end == executor::RunOutcome::End::kPaused) {
    ++pauses;
    // Moves everything that the run has borrowed, and overwrites the old location, so that a stale
    // pointer is noticed.
    auto moved = std::make_unique<executor::Launch>(*held);
    std::vector<std::byte> copy(held->parameters.begin(), held->parameters.end());
    moved->parameters = copy;
    moved->memory.reach = ReachAfter(++pauses_of_run);
    *held = {};
    std::ranges::fill(parameters, std::byte{0xee});
    held = std::move(moved);
    parameters = std::move(copy);
    outcome = executor_.Resume(*held, killed);
  }
  return outcome;
}

}  // namespace gpushared::testing

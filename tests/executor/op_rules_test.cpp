// SPDX-License-Identifier: Apache-2.0
// Checks each operation against its rule: a micro-op with a field beyond its bounds must be
// rejected or be harmless. Unmapped memory follows registers and parameters, so that an access
// beyond them crashes.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "gpushared/texture_record.h"

#include "server/device/cpu/executor/block_executor.h"
#include "server/device/cpu/executor/code.h"
#include "server/device/cpu/executor/matrix_shapes.h"
#include "server/device/cpu/executor/op_table.h"
#include "server/device/cpu/executor/surface_access.h"
#include "server/device/cpu/executor/verify.h"
#include "server/device/cpu/executor/warp.h"

namespace gpushared::testing {
namespace {

using namespace device::executor;

constexpr Flavour kFlavour = Flavour::kBaseline;

// Pieces of memory, each followed by more unmapped bytes than a 32-bit offset spans.
class Cage {
 public:
  Cage() {
    void* const at = mmap(nullptr, kPieces * kStride, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) std::abort();
    begin_ = static_cast<std::byte*>(at);
    for (std::size_t i = 0; i < kPieces; ++i) {
      if (mprotect(begin_ + i * kStride, kBytesMax, PROT_READ | PROT_WRITE) != 0) std::abort();
    }
  }
  ~Cage() { munmap(begin_, kPieces * kStride); }
  Cage(const Cage&) = delete;
  Cage& operator=(const Cage&) = delete;

  std::byte* Take(std::size_t bytes) {
    for (std::size_t i = 0; i < kPieces && bytes <= kBytesMax; ++i) {
      if (!std::exchange(is_taken_[i], true)) return begin_ + i * kStride + kBytesMax - bytes;
    }
    std::abort();
  }
  // Releases a piece. Returns false if the memory is not a piece of the cage.
  bool TakeBack(const void* memory) {
    const auto* const at = static_cast<const std::byte*>(memory);
    if (at < begin_ || at >= begin_ + kPieces * kStride) return false;
    is_taken_[static_cast<std::size_t>(at - begin_) / kStride] = false;
    return true;
  }

 private:
  static constexpr std::size_t kPieces = 8;
  static constexpr std::size_t kBytesMax = std::size_t{16} << 20;
  static constexpr std::size_t kStride = (std::size_t{5} << 30) + kBytesMax;
  std::byte* begin_ = nullptr;
  std::array<bool, kPieces> is_taken_ = {};
};

Cage* cage = nullptr;  // The source of register memory during a test of OpRules; null otherwise.

}  // namespace

bool TakesFromCage(std::align_val_t alignment) {
  return cage != nullptr && alignment == std::align_val_t{RegisterMemory::kAlignment};
}
std::byte* TakeFromCage(std::size_t bytes) { return cage->Take(bytes); }
bool TakeBackToCage(const void* memory) { return cage != nullptr && cage->TakeBack(memory); }

}  // namespace gpushared::testing

void* operator new(std::size_t bytes, std::align_val_t alignment) {
  if (gpushared::testing::TakesFromCage(alignment)) return gpushared::testing::TakeFromCage(bytes);
  const auto aligned = static_cast<std::size_t>(alignment);
  void* const memory = std::aligned_alloc(aligned, (bytes + aligned - 1) / aligned * aligned);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory, std::align_val_t /*alignment*/) noexcept {
  if (!gpushared::testing::TakeBackToCage(memory)) std::free(memory);
}
void operator delete(void* memory, std::size_t /*bytes*/, std::align_val_t alignment) noexcept {
  operator delete(memory, alignment);
}

namespace gpushared::testing {
namespace {

// Layout of the frame: predicates, then rows of zeros, of addresses of client memory and of ones,
// then the parameter area.
constexpr std::uint32_t kZeroRow = 64, kAddressRow = kZeroRow + kWideRowBytes,
                        kRowOfOnes = kAddressRow + kWideRowBytes,
                        kAreaBegin = kRowOfOnes + kWideRowBytes, kBytesOfArea = 128,
                        kFrameBytes = kAreaBegin + kBytesOfArea * kLanes;
constexpr std::uint32_t kParameterBytes = 64, kSharedBytes = 1024;
// Index of the tested op in the kernel, or, if the op is "return", in the function, because a
// kernel may not contain this op.
constexpr std::uint32_t kTested = 0, kReturn = 3;

struct alignas(4096) ClientMemory {
  TextureRecord record;
  std::array<std::byte, 8192 - sizeof(TextureRecord)> texels = {};
};

// A kernel of one op and a function that it may call.
struct Subject {
  Subject(const OpEntry& entry, std::uint64_t client_memory) : key(entry.key) {
    info.name = "k";
    info.parameter_bytes = kParameterBytes;
    info.static_shared_bytes = code.static_shared_bytes = kSharedBytes;
    info.threads_per_block_max = kLanes;
    code.local_bytes_per_thread = 64;
    code.kernel = info.name;
    code.spellings = {key};
    FunctionCode function;
    function.frame_bytes = kFrameBytes;
    function.narrow_begin = function.wide_begin = kZeroRow;
    function.image_offset = kZeroRow;
    function.image.resize(kAreaBegin - kZeroRow);
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
      std::memcpy(&function.image[kAddressRow - kZeroRow + 8 * lane], &client_memory, 8);
    }
    std::memset(&function.image[kRowOfOnes - kZeroRow], 0xff, kWideRowBytes);
    function.area_offset = kAreaBegin;
    function.area_bytes = kBytesOfArea;
    code.functions = {function, function};
    code.functions[1].entry = kReturn;
    code.call_sites = {{.function = 1, .arguments = {}, .results = {}}};
    code.callable = {{.address = 4096, .function = 1}};
    code.target_lists.resize(1);
    code.branch_tables = {{kTested + 1}};
    code.calls = true;
    for (const char* other : {"nothing", "exit", "end", "return", "end"}) {
      MicroOp op;
      op.handler = FindHandler(kFlavour, other);
      code.ops.push_back(op);
    }
    if (key == "return") code.ops[kTested].handler = FindHandler(kFlavour, "call");
    op().handler = entry.handler;
    op().target = kTested + 1;
    op().reconvergence = kNoReconvergence;
    SetPlaces(kZeroRow);
    code.sources.resize(code.ops.size());
  }

  std::size_t index() const { return key == "return" ? kReturn : kTested; }
  MicroOp& op() { return code.ops[index()]; }
  void SetPlaces(std::uint32_t row) {
    op().destination = op().a = op().b = op().c = row;
    op().rows.fill(row);
  }
  Status Check() const {
    std::vector<std::uint16_t> numbers;
    for (const MicroOp& each : code.ops) {
      numbers.push_back(static_cast<std::uint16_t>(GetNumber(kFlavour, each.handler)));
    }
    return Verify(info, code, numbers, kFlavour);
  }

  std::string key;
  device::KernelInfo info;
  Code code;
};

// Matrices of every shape, with as many rows as the types in the key require.
std::vector<MatrixCall> MatricesFor(const std::string& key) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at <= key.size();) {
    const std::size_t dot = std::min(key.find('.', at), key.size());
    words.push_back(key.substr(at, dot - at));
    at = dot + 1;
  }
  const bool is_product = key.starts_with("wmma.mma.");
  const bool is_warpgroup = words[0] == "wgmma";
  if (words[0] != "mma" && !is_warpgroup && words[0] != "wmma" && !words[0].ends_with("matrix")) {
    return {{}};
  }
  std::vector<MatrixCall> calls;
  for (const std::uint32_t m : {8u, 16u, 32u}) {
    for (const std::uint32_t n : {8u, 16u, 32u}) {
      for (const std::uint32_t k : {4u, 8u, 16u, 32u}) {
        MatrixCall call{.m = m, .n = n, .k = k};
        FragmentCounts counts{.a = 0, .b = 0, .c = 0, .d = 2};
        if (words[0] == "mma") counts = MmaRegisters(call, words[2], words[1]);
        if (is_warpgroup) counts.d = n / 2 / PackedIn(words[1]);
        if (is_product) {
          counts = {.a = WmmaRegisters(call, 'a', words[3]),
                    .b = WmmaRegisters(call, 'b', words[3]),
                    .c = WmmaRegisters(call, 'c', words[4]),
                    .d = WmmaRegisters(call, 'd', words[2])};
        }
        call.a.resize(counts.a, kZeroRow);
        call.b.resize(counts.b, kZeroRow);
        call.c.resize(counts.c, kZeroRow);
        call.d.resize(counts.d, kZeroRow);
        calls.push_back(call);
      }
    }
  }
  return calls;
}

// A field value that may be invalid for the op.
struct Harm {
  std::string what;
  std::function<void(Subject&)> change;
};

std::vector<Harm> EveryHarm() {
  std::vector<Harm> harms;
  const auto add = [&](std::string what, auto change) {
    harms.push_back({std::move(what), std::move(change)});
  };
  // Offsets of invalid rows: after the frame, closer to its end than a row is long, and unaligned.
  for (const std::uint32_t row : {kFrameBytes, kFrameBytes - 64, kZeroRow + 2, 0xffffffc0}) {
    const std::string at = " = " + std::to_string(row);
    for (const auto& [name, field] :
         std::map<std::string, std::uint32_t MicroOp::*>{{"destination", &MicroOp::destination},
                                                         {"a", &MicroOp::a},
                                                         {"b", &MicroOp::b},
                                                         {"c", &MicroOp::c},
                                                         {"guard", &MicroOp::guard}}) {
      add(name + at, [field, row](Subject& subject) { subject.op().*field = row; });
    }
    for (std::size_t i = 0; i < 4; ++i) {
      add("rows[" + std::to_string(i) + "]" + at, [=](Subject& s) { s.op().rows[i] = row; });
    }
    for (const auto& [name, rows] :
         std::map<std::string, std::vector<std::uint32_t> MatrixCall::*>{{"a", &MatrixCall::a},
                                                                         {"b", &MatrixCall::b},
                                                                         {"c", &MatrixCall::c},
                                                                         {"d", &MatrixCall::d}}) {
      add("matrix " + name + at, [rows, row](Subject& subject) {
        for (std::uint32_t& of : subject.code.matrix_calls[0].*rows) of = row;
      });
    }
    add("extra" + at, [row](Subject& s) { s.op().extra = row; });
  }
  for (const std::uint32_t extra : {1u, 2u, 3u, 32u, 0x408u, 0x808u, 0xffffffffu}) {
    add("extra = " + std::to_string(extra), [extra](Subject& s) { s.op().extra = extra; });
  }
  std::vector<std::int64_t> numbers = {1, 0x808, 1 << 30, std::int64_t{1} << 45, INT64_MIN / 2};
  // Reads of 1 to 16 bytes at these offsets cross the end of the parameters.
  for (const std::int64_t left : {0, 1, 2, 4, 8, 15}) numbers.push_back(kParameterBytes - left);
  for (const std::int64_t number : numbers) {
    add("immediate = " + std::to_string(number),
        [number](Subject& s) { s.op().immediate = number; });
  }
  add("target", [](Subject& s) { s.op().target = 1u << 30; });
  add("a large matrix", [](Subject& s) {
    MatrixCall& call = s.code.matrix_calls[0];
    call.m = call.n = call.k = 1u << 20;
  });
  add("many rows", [](Subject& s) { s.code.matrix_calls[0].d.resize(100, kZeroRow); });
  add("the kernel for its function", [](Subject& s) { s.code.ops[kTested] = s.op(); });
  return harms;
}

char running[128];  // Printed on a crash.

void ReportWhatRuns(int /*signal*/) {
  // After this handler, the faulting instruction runs again and ends the process.
  [[maybe_unused]] const auto written = write(STDERR_FILENO, running, std::strlen(running));
}

class OpRules : public ::testing::Test {
 protected:
  OpRules() {
    cage = &cage_;
    parameters_ = {cage_.Take(kParameterBytes), kParameterBytes};
    memory_.record = {.address = reinterpret_cast<std::uint64_t>(memory_.texels.data()),
                      .slice_bytes = 256,
                      .row_bytes = 16,
                      .extents = {4, 4, 4},
                      .format = TexelFormat::kUint32};
    struct sigaction action = {};
    action.sa_handler = ReportWhatRuns;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    for (const int signal : {SIGSEGV, SIGBUS}) sigaction(signal, &action, &usual_[signal]);
  }
  ~OpRules() override {
    for (const auto& [signal, action] : usual_) sigaction(signal, &action, nullptr);
    cage_.TakeBack(parameters_.data());
    cage = nullptr;
  }

  std::uint64_t memory() { return reinterpret_cast<std::uint64_t>(&memory_); }

  // Runs the subject until it ends or polls for a kill.
  void Run(BlockExecutor& executor, const Subject& subject, const std::string& what) {
    (void)snprintf(running, sizeof running, "%s with %s does harm\n", subject.key.c_str(),
                   what.c_str());
    const Program program(subject.info, std::make_unique<Code>(subject.code));
    static const std::atomic<std::uint64_t> mapped{sizeof memory_};
    static const std::atomic<bool> always{true}, never{false};
    static const std::atomic<std::uint64_t> no_rank{0};
    static const std::atomic<std::uint32_t> none{0};
    static const std::function<bool(std::uint64_t)> may_pause = [](std::uint64_t) { return true; };
    const PauseTerms terms{
        .stop = always, .first_rank = no_rank, .paused_runs = none, .may_pause = may_pause};
    Launch launch;
    launch.program = &program;
    launch.grid = {1, 1, 1};
    launch.block = {kLanes, 1, 1};
    launch.parameters = parameters_;
    launch.memory = {.base = memory(), .mapped_bytes = &mapped};
    launch.pause = &terms;
    (void)executor.Run(launch, 0, 1, never, never);
    ++runs_;
  }

  // Runs the op, unless Verify rejects it, on rows of zeros, of addresses and of ones, near address
  // 0 and in client memory.
  void RunOnAll(BlockExecutor& executor, const Subject& subject, const Harm& harm) {
    Subject harmed = subject;
    harm.change(harmed);
    if (!harmed.Check().ok()) return;
    // If the harm is to the immediate, only that value is tried.
    std::vector<std::int64_t> immediates = {harmed.op().immediate};
    if (harmed.op().immediate == subject.code.ops[harmed.index()].immediate) {
      immediates.push_back(static_cast<std::int64_t>(memory()));
    }
    for (const std::int64_t immediate : immediates) {
      for (int rows = 0; rows < 3; ++rows) {
        Subject changed = harmed;
        changed.op().immediate = immediate;
        if (rows == 1) changed.op().a = kAddressRow;
        if (rows == 2) changed.op().rows[1] = kRowOfOnes;  // As a mask, it selects all lanes.
        if (changed.Check().ok()) Run(executor, changed, harm.what);
      }
    }
  }

  Cage cage_;
  std::span<std::byte> parameters_;
  ClientMemory memory_;
  std::map<int, struct sigaction> usual_;
  std::size_t runs_ = 0;
};

TEST_F(OpRules, MicroOpBeyondItsBoundsIsRejectedOrHarmless) {
  const std::vector<Harm> harms = EveryHarm();
  const std::int64_t surface = SurfaceAccess{.element_bytes = 4, .elements = 2}.Number();
  for (std::uint64_t number = 0; OpOfNumber(kFlavour, number) != nullptr; ++number) {
    Subject subject(*OpOfNumber(kFlavour, number), memory());
    const auto is_taken = [&] {
      for (const MatrixCall& call : MatricesFor(subject.key)) {
        subject.code.matrix_calls = {call};
        for (const std::int64_t immediate : {std::int64_t{0}, surface}) {
          // Values that are a row, sizes of a word or an area, or flags for wide reads (kReadsWide
          // ...), depending on the op.
          for (const std::uint32_t extra : {0u, kZeroRow, 8u, 0x104u, 1u, 2u, 4u, 9u, 16u}) {
            subject.op().immediate = immediate;
            subject.op().extra = extra;
            if (subject.Check().ok()) return true;
          }
        }
      }
      return false;
    };
    ASSERT_TRUE(is_taken()) << subject.key << ": " << subject.Check().message();
    BlockExecutor executor;
    RunOnAll(executor, subject, {"nothing wrong", [](Subject&) {}});
    for (const Harm& harm : harms) RunOnAll(executor, subject, harm);
  }
  RecordProperty("runs", static_cast<int>(runs_));
}

// Decoded code names handlers, and Verify uses the rule of any key that has the handler.
TEST_F(OpRules, KeysOfOneHandlerShareOneRule) {
  std::map<Handler, OpEntry> first;
  for (std::uint64_t number = 0; OpOfNumber(kFlavour, number) != nullptr; ++number) {
    const OpEntry& entry = *OpOfNumber(kFlavour, number);
    const OpEntry& other = first.try_emplace(entry.handler, entry).first->second;
    EXPECT_EQ(entry.rule, other.rule) << entry.key << " and " << other.key;
  }
}

}  // namespace
}  // namespace gpushared::testing

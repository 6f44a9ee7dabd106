// SPDX-License-Identifier: Apache-2.0
#include "server/ptx/passes/contain_function.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "server/ptx/analysis/control_flow.h"
#include "server/ptx/passes/kernel_words.h"

namespace gpushared::ptx {
namespace {

std::string RejectionAt(const SourcePosition& position, const std::string& why) {
  return "line " + std::to_string(position.line) + ": " + why;
}

// Detects recursion, direct or indirect.
class Recursion {
 public:
  Recursion(const CallGraph& calls, const std::vector<const Function*>& functions) : calls_(calls) {
    for (const Function* function : functions) functions_[function->name] = function;
  }

  // Returns the line of a call that closes a cycle.
  std::optional<std::uint32_t> Find(const Function& from) {
    struct Step {
      const Function* function;
      std::size_t next = 0;
    };
    std::vector<Step> stack = {{&from}};
    state_[&from] = State::kOpen;
    while (!stack.empty()) {
      Step& step = stack.back();
      const std::vector<Call>& callees = calls_.GetCalls(*step.function);
      if (step.next == callees.size()) {
        state_[step.function] = State::kDone;
        stack.pop_back();
        continue;
      }
      const Call& call = callees[step.next++];
      const auto found = functions_.find(call.name);
      if (found == functions_.end()) continue;
      State& state = state_[found->second];
      if (state == State::kOpen) return call.line;
      if (state == State::kNew) {
        state = State::kOpen;
        stack.push_back({found->second});
      }
    }
    return std::nullopt;
  }

 private:
  enum class State : std::uint8_t { kNew, kOpen, kDone };

  const CallGraph& calls_;
  std::unordered_map<std::string_view, const Function*> functions_;
  std::unordered_map<const Function*, State> state_;
};

// Checks that the kernel has a single barrier, which is for all threads of the block. Because every
// loop can be ended, every thread then arrives at the barrier or leaves the kernel. With two
// barriers, or a barrier for some of the threads, threads could wait forever, and no code of the
// kernel can end such a wait.
class Barriers {
 public:
  // Returns the reason why the instruction is incompatible with earlier ones, or "".
  std::string Add(const Instruction& instruction) {
    const bool is_barrier = instruction.opcode == "bar" || instruction.opcode == "barrier";
    if (!is_barrier || instruction.Has("warp")) return {};
    const bool reduces = instruction.Has("red");
    const std::size_t operands = reduces ? 3 : 1;
    const std::size_t number = reduces ? 1 : 0;
    if (instruction.Has("arrive") || instruction.operands.size() != operands) {
      return "a barrier for a part of the block";
    }
    const Operand& which = instruction.operands[number];
    if (which.kind != Operand::Kind::kInteger) return "a barrier whose number is not constant";
    constexpr std::int64_t kBarriers = 16;
    if (which.integer < 0 || which.integer >= kBarriers) return "a barrier that does not exist";
    if (known_ && *known_ != which.integer) return "a second barrier";
    known_ = which.integer;
    return {};
  }

 private:
  std::optional<std::int64_t> known_;
};

// Returns the reason why an instruction may fault even if its addresses are valid, or "".
std::string WhyUnsafe(const Instruction& instruction) {
  if (instruction.opcode == "mbarrier") return "'" + instruction.Spelling() + "' is not known";
  return {};
}

// Represents work as a height. A block's height is the maximum work from the function's start to
// the block, ignoring backward branches. Each instruction climbs by at least its work. A backward
// branch subtracts its descent from the work that remains until the next check. Straight-line code
// checks wherever it passes a multiple of kContainWork. Therefore a thread does at most
// kContainWork in loops and the same amount in climbing between two checks.
class WorkHeights {
 public:
  WorkHeights(const ControlFlow& flow, FunctionWork& work)
      : flow_(flow),
        of_(flow.instructions.size()),
        starts_(flow.blocks.size()),
        checks_first_(flow.blocks.size()) {
    for (std::uint32_t k = 0; k < of_.size(); ++k) of_[k] = work.Of(flow.instructions[k]);
    std::vector<std::uint64_t> ends(starts_.size());
    for (std::uint32_t b = 0; b < starts_.size(); ++b) {
      ends[b] = starts_[b];
      const BasicBlock& block = flow.blocks[b];
      for (std::uint32_t k = block.first; k < block.first + block.count; ++k) ends[b] += of_[k];
      for (const std::uint32_t next : block.successors) {
        if (next != kNoBlock && next > b) starts_[next] = std::max(starts_[next], ends[b]);
      }
    }
    for (std::uint32_t b = 0; b < starts_.size(); ++b) {
      for (const std::uint32_t next : flow.blocks[b].successors) {
        if (next != kNoBlock && Passes(ends[b], starts_[next])) checks_first_[next] = true;
      }
    }
  }

  // Whether a check is required before instruction k.
  bool ChecksBefore(std::uint32_t k) {
    const std::uint32_t b = flow_.block_of[k];
    const bool is_first = flow_.blocks[b].first == k;
    if (is_first) height_ = starts_[b];
    const std::uint64_t before = height_;
    height_ += of_[k];
    return (is_first && checks_first_[b]) || Passes(before, height_);
  }
  // Returns the amount that branch k subtracts from the remaining work if it goes backward; every
  // loop contains such a branch. Must follow ChecksBefore(k).
  std::optional<std::uint32_t> Descent(std::uint32_t k) const {
    const std::string_view opcode = flow_.instructions[k].opcode;
    if (opcode != "bra" && opcode != "brx") return std::nullopt;
    const std::uint32_t b = flow_.block_of[k];
    std::optional<std::uint32_t> most;
    for (const std::uint32_t next : flow_.blocks[b].successors) {
      if (next > b) continue;
      const std::uint64_t down = height_ > starts_[next] ? height_ - starts_[next] : 1;
      const std::uint64_t bounded = std::clamp<std::uint64_t>(down, 1, kContainWork);
      most = std::max(most.value_or(0), static_cast<std::uint32_t>(bounded));
    }
    return most;
  }

 private:
  static bool Passes(std::uint64_t from, std::uint64_t to) {
    return to / kContainWork > from / kContainWork;
  }

  const ControlFlow& flow_;
  std::vector<std::uint32_t> of_;      // Work of each instruction.
  std::vector<std::uint64_t> starts_;  // Height at the start of each block.
  std::vector<bool> checks_first_;     // Whether a block begins with a check.
  std::uint64_t height_ = 0;
};

class FunctionContainment {
 public:
  FunctionContainment(ModuleEditor& names, Function& function, const std::string& constant,
                      std::vector<FaultPlace>& places)
      : editor_(names, function), function_(function), constant_(constant), places_(places) {}

  std::string Run(FunctionWork& work, bool has_loops) {
    const bool checks_last = has_loops && !function_.is_entry;
    const Result<ControlFlow> flow = AnalyseControlFlow(function_);
    if (!flow) return std::string(flow.status().message());
    WorkHeights heights(*flow, work);
    std::uint32_t k = 0;
    for (std::size_t i = 0; i < editor_.size(); ++i) {
      const auto* instruction = std::get_if<Instruction>(&editor_.At(i));
      if (instruction == nullptr) continue;
      const std::uint32_t line = instruction->position.line;
      if (heights.ChecksBefore(k)) CheckStop(i, line);
      if (checks_last && instruction->opcode == "ret") CheckBeforeReturn(i, line);
      // Instructions created by passes have line 0. They form no endless loops, so their branches
      // need no checks.
      if (line != 0) Rewrite(i, heights.Descent(k));
      ++k;
    }
    if (checks_last) CheckBeforeReturn(editor_.size(), function_.position.line);
    if (function_.is_entry) CheckEntry();
    if (!left_.empty()) WriteExit();
    editor_.Apply();
    return {};
  }

 private:
  void Rewrite(std::size_t i, std::optional<std::uint32_t> descent) {
    Instruction& instruction = std::get<Instruction>(editor_.At(i));
    const std::uint32_t line = instruction.position.line;
    const auto end = [&](FaultPlace::Kind kind) {
      LeaveAt(i, kind, line);
      Instruction leaves = Make("bra", {Name(left_)});
      leaves.guard = instruction.guard;
      editor_.At(i) = std::move(leaves);
    };
    if (instruction.opcode == "trap") {
      end(FaultPlace::Kind::kTrap);
    } else if (instruction.opcode == "brkpt") {
      end(FaultPlace::Kind::kBreakpoint);
    } else if (instruction.opcode == "call" && CalleeName(instruction) == "__assertfail") {
      end(FaultPlace::Kind::kAssertion);
    } else if (descent) {
      Poll(i, line, *descent);
    } else if (instruction.opcode == "nanosleep") {
      BoundSleep(i, instruction);
    }
  }

  void BoundSleep(std::size_t i, Instruction& sleep) {
    if (sleep.operands.empty()) return;
    Operand& time = sleep.operands[0];
    if (time.kind == Operand::Kind::kInteger) {
      const auto asked = static_cast<std::uint32_t>(time.integer);
      if (asked > kSleepNsMax) time = Integer(kSleepNsMax);
      return;
    }
    const std::string bounded = editor_.NewRegister("b32");
    Before(i, Make("min.u32", {Name(bounded), time, Integer(kSleepNsMax)}));
    time = Name(bounded);
  }

  void Before(std::size_t i, Instruction instruction) {
    editor_.InsertBefore(i, std::move(instruction));
  }

  // Records the place at which a thread leaves, before the thread jumps to `left_`.
  void LeaveAt(std::size_t i, FaultPlace::Kind kind, std::uint32_t line) {
    Before(i, RecordPlace(kind, line));
  }
  Instruction RecordPlace(FaultPlace::Kind kind, std::uint32_t line) {
    if (left_.empty()) {
      left_ = editor_.NewLabel();
      place_ = editor_.NewRegister("b32");
    }
    places_.push_back({.kind = kind, .function = function_.name, .line = line});
    return Make("mov.u32", {Name(place_), Integer(static_cast<std::int64_t>(places_.size()))});
  }

  const std::string& LeftWork() {
    if (left_work_.empty()) {
      left_work_ = editor_.NewRegister("b32");
      editor_.InsertAtEntry(Make("mov.u32", {Name(left_work_), Integer(kContainWork)}));
    }
    return left_work_;
  }

  // Handles a backward branch: checks for a stop when the remaining work is used up.
  void Poll(std::size_t i, std::uint32_t line, std::uint32_t work) {
    const std::string& left = LeftWork();
    Before(i, Make("add.s32", {Name(left), Name(left), Integer(-std::int64_t{work})}));
    const std::string skip = SkipAbove(i, 0);
    Before(i, Make("mov.u32", {Name(left), Integer(kContainWork)}));
    CheckStop(i, line);
    editor_.InsertBefore(i, Label{.position = {}, .name = skip});
  }

  // Checks for a stop if the loops have done kReturnWork or more since the last check. A check for
  // less is unnecessary, because the caller counts kReturnWork for the loops.
  void CheckBeforeReturn(std::size_t i, std::uint32_t line) {
    const std::string skip = SkipAbove(i, kContainWork - kReturnWork);
    CheckStop(i, line);
    editor_.InsertBefore(i, Label{.position = {}, .name = skip});
  }

  // Inserts a branch to the returned label for threads whose remaining work exceeds `work`.
  std::string SkipAbove(std::size_t i, std::uint32_t work) {
    const std::string goes_on = editor_.NewRegister("pred");
    std::string skip = editor_.NewLabel();
    Before(i, Make("setp.gt.s32", {Name(goes_on), Name(LeftWork()), Integer(work)}));
    Before(i, MakeIf(goes_on, "bra", {Name(skip)}));
    return skip;
  }

  // Checks whether the server has requested all kernels of the module to end. `line` is 0 before an
  // instruction that a pass created.
  void CheckStop(std::size_t i, std::uint32_t line) {
    const std::string stops = editor_.NewRegister("pred");
    for (Instruction& instruction :
         CheckStop(stops, offsetof(FenceConstant, host_words), offsetof(ContainHostWords, stop))) {
      Before(i, std::move(instruction));
    }
    LeaveAt(i, FaultPlace::Kind::kStopped, line == 0 ? function_.position.line : line);
    if (stopped_.empty()) stopped_ = editor_.NewLabel();
    Before(i, MakeIf(stops, "bra", {Name(stopped_)}));
  }

  // Returns code that sets predicate `stops` to whether a stop word is nonzero: the word at offset
  // `member` of the memory whose address is at offset `pointer` of the FenceConstant. The load is
  // volatile to bypass caches that are not coherent, because the word is written while kernels run.
  std::array<Instruction, 3> CheckStop(const std::string& stops, std::size_t pointer,
                                       std::size_t member) {
    const std::string words = editor_.NewRegister("b64"), stop = editor_.NewRegister("b32");
    return {Make("ld.const.u64", {Name(words), Address(constant_, GetOffset(pointer))}),
            Make("ld.volatile.global.u32", {Name(stop), Address(words, GetOffset(member))}),
            Make("setp.ne.u32", {Name(stops), Name(stop), Integer(0)})};
  }

  // Makes the remaining blocks of a large grid end at once.
  void CheckEntry() {
    const std::string stops = editor_.NewRegister("pred");
    for (Instruction& instruction :
         CheckStop(stops, offsetof(FenceConstant, control), offsetof(ContainControl, stop))) {
      editor_.InsertAtEntry(std::move(instruction));
    }
    editor_.InsertAtEntry(RecordPlace(FaultPlace::Kind::kStopped, function_.position.line));
    editor_.InsertAtEntry(MakeIf(stops, "bra", {Name(left_)}));
  }

  // Adds the exit after the body: the first thread to arrive records the reason, and all that
  // arrive leave.
  void WriteExit() {
    const std::size_t end = editor_.size();
    Before(end, Make("ret"));
    if (!stopped_.empty()) WriteStopped(end);
    editor_.InsertBefore(end, Label{.position = {}, .name = left_});
    const std::string control = editor_.NewRegister("b64"), record = editor_.NewRegister("b64");
    const std::string known = editor_.NewRegister("b32"), is_known = editor_.NewRegister("pred");
    const std::string is_same = editor_.NewRegister("pred");
    const std::string tells = editor_.NewLabel(), is_later = editor_.NewLabel();
    for (const auto& [to, member] : {std::pair(control, offsetof(FenceConstant, control)),
                                     std::pair(record, offsetof(FenceConstant, host_words))}) {
      Before(end, Make("ld.const.u64", {Name(to), Address(constant_, GetOffset(member))}));
    }
    const auto word = [](const std::string& base, std::size_t member) {
      return Address(base, GetOffset(member));
    };
    static_assert(offsetof(ContainHostWords, fault) == 0);
    Before(end, Make("atom.global.cas.b32",
                     {Name(known), word(control, offsetof(ContainControl, first_place)), Integer(0),
                      Name(place_)}));
    Before(end, Make("setp.ne.u32", {Name(is_known), Name(known), Integer(0)}));
    Before(end, MakeIf(is_known, "bra", {Name(is_later)}));
    WriteIndices(end, record);
    editor_.InsertBefore(end, Label{.position = {}, .name = tells});
    ReportPlace(end, word(record, offsetof(FaultRecord, place)),
                word(control, offsetof(ContainControl, has_place)));
    editor_.InsertBefore(end, Label{.position = {}, .name = is_later});
    Before(end, Make("setp.eq.u32", {Name(is_same), Name(known), Name(place_)}));
    Before(end, MakeIf(is_same, "bra", {Name(tells)}));
    ReportPlace(end, word(record, offsetof(FaultRecord, other_place)),
                word(control, offsetof(ContainControl, has_other_place)));
  }

  // Threads that detected the stop set ContainControl::stop, so that blocks that have not started
  // end as well.
  void WriteStopped(std::size_t end) {
    const std::string control = editor_.NewRegister("b64"), one = editor_.NewRegister("b32");
    editor_.InsertBefore(end, Label{.position = {}, .name = stopped_});
    Before(end,
           Make("ld.const.u64",
                {Name(control), Address(constant_, GetOffset(offsetof(FenceConstant, control)))}));
    Before(end, Make("mov.u32", {Name(one), Integer(1)}));
    Before(end, Make("st.volatile.global.u32",
                     {Address(control, GetOffset(offsetof(ContainControl, stop))), Name(one)}));
  }

  // Writes the indices of the first thread that leaves. Its place is written afterwards.
  void WriteIndices(std::size_t end, const std::string& record) {
    const auto write = [&](std::size_t member, std::size_t d, Operand value) {
      const std::string copy = editor_.NewRegister("b32");
      Before(end, Make("mov.u32", {Name(copy), std::move(value)}));
      Before(end, Make("st.volatile.global.u32",
                       {Address(record, GetOffset(member + 4 * d)), Name(copy)}));
    };
    constexpr std::array<std::string_view, 3> kDimensions = {"x", "y", "z"};
    for (std::size_t d = 0; d < 3; ++d) {
      // In a preemptible kernel, the claim pass replaces %ctaid by the claimed index. It rejects
      // functions (.func) that read %ctaid, so they write kNoBlockIndex.
      write(offsetof(FaultRecord, block), d,
            function_.is_entry ? Name("%ctaid." + std::string(kDimensions[d]))
                               : Integer(std::int64_t{kNoBlockIndex}));
      write(offsetof(FaultRecord, thread), d, Name("%tid." + std::string(kDimensions[d])));
    }
    Before(end, Make("membar.sys"));
  }

  // Emits code that writes the thread's place to `word` of the record, unless the word `known` is
  // nonzero, which means that `word` is set, and then leaves the kernel.
  // A thread that finds `known` set may end its kernel, because the host will find the place.
  void ReportPlace(std::size_t end, const Operand& word, const Operand& known) {
    const std::string value = editor_.NewRegister("b32"), is_reported = editor_.NewRegister("pred");
    Before(end, Make("ld.volatile.global.u32", {Name(value), known}));
    Before(end, Make("setp.ne.u32", {Name(is_reported), Name(value), Integer(0)}));
    Before(end, MakeIf(is_reported, "exit"));
    Before(end, Make("st.volatile.global.u32", {word, Name(place_)}));
    Before(end, Make("membar.sys"));
    Before(end, Make("mov.u32", {Name(value), Integer(1)}));
    Before(end, Make("st.volatile.global.u32", {known, Name(value)}));
    Before(end, Make("exit"));
  }

  FunctionEditor editor_;
  Function& function_;
  const std::string& constant_;
  std::vector<FaultPlace>& places_;
  // Labels for threads that leave and for those that detected a stop, the register with their
  // place, and the register with the remaining work until the next check. Each is empty until it is
  // used.
  std::string left_, stopped_, place_, left_work_;
};

}  // namespace

std::string WhyNotContained(const CallGraph& calls, const std::vector<const Function*>& reachable) {
  const auto in = [&](const Function* function) {
    return function == reachable[0] ? "" : " (in function '" + function->name + "')";
  };
  if (const auto line = Recursion(calls, reachable).Find(*reachable[0])) {
    return "line " + std::to_string(*line) + ": recursion";
  }
  Barriers barriers;
  for (const Function* function : reachable) {
    for (const Statement& statement : *function->body) {
      const auto* instruction = std::get_if<Instruction>(&statement);
      if (instruction == nullptr) continue;
      std::string why = WhyUnsafe(*instruction);
      if (why.empty()) why = barriers.Add(*instruction);
      if (!why.empty()) return RejectionAt(instruction->position, why) + in(function);
    }
  }
  return {};
}

std::string ContainFunction(ModuleEditor& names, Function& function, const std::string& constant,
                            std::vector<FaultPlace>& places, FunctionWork& work, bool has_loops) {
  return FunctionContainment(names, function, constant, places).Run(work, has_loops);
}

}  // namespace gpushared::ptx

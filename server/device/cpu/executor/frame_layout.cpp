// SPDX-License-Identifier: Apache-2.0
// Allocates the registers of a function. Registers with disjoint live ranges share a row, which
// keeps the frames of large kernels in the cache.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <queue>

#include "server/device/cpu/executor/decoder.h"

namespace gpushared::device::executor {
namespace {

constexpr std::uint32_t kScratchPredicates = 8;

std::uint32_t RoundUp(std::uint32_t value, std::uint32_t step) {
  return (value + step - 1) / step * step;
}

// Returns 0 for a predicate, 1 for a narrow row, 2 for a wide row or two of them.
std::uint32_t GetClass(std::uint32_t width) { return width == 0 ? 0 : width == 4 ? 1 : 2; }

std::uint32_t GetWidth(const ptx::Register& reg) {
  if (reg.type == "pred") return 0;
  const std::uint32_t bytes = ptx::TypeBytes(reg.type);
  return bytes <= 4 ? 4 : bytes <= 8 ? 8 : 16;
}

}  // namespace

FrameLayout::FrameLayout(const ptx::ControlFlow& flow) {
  const std::size_t count = flow.registers.size();
  register_widths_.resize(count);
  std::vector<std::uint32_t> order(count), slot(count), upper_slot(count);
  for (std::size_t i = 0; i < count; ++i) register_widths_[i] = GetWidth(flow.registers[i]);
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return flow.registers[a].live_begin < flow.registers[b].live_begin;
  });
  // Linear scan: reuses the slot whose last use is the oldest if that use is before the new range.
  using Busy = std::pair<std::uint32_t, std::uint32_t>;  // A slot's last use, and the slot.
  std::priority_queue<Busy, std::vector<Busy>, std::greater<>> busy[3];
  std::uint32_t slots[3] = {0, 0, 0};
  constexpr std::uint32_t kNeverNeeded = 0xffffffff;
  for (const std::uint32_t i : order) {
    const ptx::Register& reg = flow.registers[i];
    const std::uint32_t kind = GetClass(register_widths_[i]);
    if (reg.live_begin > reg.live_end) {
      slot[i] = kNeverNeeded;
      continue;
    }
    const auto take = [&] {
      auto& queue = busy[kind];
      std::uint32_t taken = slots[kind];
      if (!queue.empty() && queue.top().first < reg.live_begin) {
        taken = queue.top().second;
        queue.pop();
      } else {
        ++slots[kind];
      }
      queue.push({reg.live_end, taken});
      return taken;
    };
    slot[i] = take();
    if (register_widths_[i] == 16) upper_slot[i] = take();
  }
  // An additional slot of each kind receives writes to unused registers, and to both halves of an
  // unused 128-bit register.
  first_scratch_predicate_ = kFirstPredicate + 4 * (slots[0] + 1);
  narrow_begin_ = RoundUp(first_scratch_predicate_ + 4 * kScratchPredicates, 64);
  wide_begin_ = narrow_begin_ + (slots[1] + 1) * kNarrowRowBytes;
  extra_begin_ = end_ = wide_begin_ + (slots[2] + 1) * kWideRowBytes;
  register_offsets_.resize(count);
  upper_offsets_.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t kind = GetClass(register_widths_[i]);
    const bool is_needed = slot[i] != kNeverNeeded;
    const std::uint32_t at = is_needed ? slot[i] : slots[kind];
    register_offsets_[i] = kind == 0   ? kFirstPredicate + 4 * at
                           : kind == 1 ? narrow_begin_ + at * kNarrowRowBytes
                                       : wide_begin_ + at * kWideRowBytes;
    if (register_widths_[i] != 16) continue;
    upper_offsets_[i] = wide_begin_ + (is_needed ? upper_slot[i] : at) * kWideRowBytes;
  }
}

std::uint32_t FrameLayout::NewRow(std::uint32_t width) {
  const std::uint32_t offset = end_;
  end_ += width == 8 ? kWideRowBytes : kNarrowRowBytes;
  return offset;
}

std::uint32_t FrameLayout::ConstantRow(std::uint64_t value, std::uint32_t width) {
  if (width == 4) value &= 0xffffffffu;
  const auto [found, is_new] = constants_[width == 8].try_emplace(value, 0);
  if (is_new) {
    found->second = NewRow(width);
    constant_rows_.push_back({found->second, {value, width}});
  }
  return found->second;
}

std::uint32_t FrameLayout::VariableRow(std::uint64_t address, std::uint32_t width) {
  const bool wide = width == 8;
  const auto [found, is_new] = variables_[wide].try_emplace(address, 0);
  if (is_new) {
    found->second = NewRow(width);
    address_rows_.push_back({found->second, wide, address});
  }
  return found->second;
}

std::uint32_t FrameLayout::SpecialRowFor(SpecialRegister what, bool wide) {
  for (const SpecialRow& row : special_rows_) {
    if (row.what == what && row.wide == wide) return row.offset;
  }
  special_rows_.push_back({NewRow(wide ? 8 : 4), what, wide});
  return special_rows_.back().offset;
}

std::uint32_t FrameLayout::ScratchRow(std::uint32_t width) {
  const std::size_t kind = width == 8 ? 1 : 0;
  if (scratch_used_[kind] == scratch_[kind].size()) scratch_[kind].push_back(NewRow(width));
  return scratch_[kind][scratch_used_[kind]++];
}

std::uint32_t FrameLayout::ScratchPredicate() {
  // No instruction needs more than kScratchPredicates; the modulo keeps hostile code inside the
  // frame.
  return first_scratch_predicate_ + 4 * (scratch_predicates_used_++ % kScratchPredicates);
}

void FrameLayout::ReleaseScratch() {
  scratch_used_[0] = scratch_kept_[0];
  scratch_used_[1] = scratch_kept_[1];
  scratch_predicates_used_ = 0;
}

std::uint32_t FrameLayout::KeptRow(std::uint32_t width) {
  ++scratch_kept_[width == 8 ? 1 : 0];
  return ScratchRow(width);
}

void FrameLayout::Finish(std::uint32_t area_bytes, FunctionCode* function) const {
  function->narrow_begin = narrow_begin_;
  function->wide_begin = wide_begin_;
  function->image_offset = extra_begin_;
  function->image.assign(end_ - extra_begin_, std::byte{0});
  for (const auto& [offset, constant] : constant_rows_) {
    const auto [value, width] = constant;
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
      std::memcpy(function->image.data() + (offset - extra_begin_) + std::size_t{lane} * width,
                  &value, width);
    }
  }
  function->special_rows = special_rows_;
  function->address_rows = address_rows_;
  for (const bool wide : {false, true}) {
    for (const std::uint32_t offset : scratch_[wide]) {
      function->scratch_rows.push_back({offset, wide});
    }
  }
  function->area_bytes = RoundUp(area_bytes, 16);
  function->area_offset = RoundUp(end_, 64);
  // Unused operands have offset 0, so a wide row must fit there. A wide row must also fit at the
  // start of the last row, so that a single bound applies to all rows (verify.h).
  const std::uint32_t end = function->area_offset + function->area_bytes * kLanes;
  function->frame_bytes =
      std::max({RoundUp(end, 64), RoundUp(end_, 64) + kWideRowBytes - kNarrowRowBytes, 512u});
}

}  // namespace gpushared::device::executor

// SPDX-License-Identifier: Apache-2.0
#include "server/worker/state/client_buffers.h"

#include <cstring>
#include <iterator>

#include "ipc/wire/layout.h"
#include "ipc/wire/validate.h"
#include "server/device/memory_budget.h"

namespace gpushared::server {

namespace {

device::MemoryPiece WholeSteps(std::uint64_t address, std::uint64_t bytes) {
  const std::uint64_t begin = address / kMapPageBytes * kMapPageBytes;
  return {.base = begin, .bytes = device::RoundUp(address + bytes, kMapPageBytes) - begin};
}

}  // namespace

MaybeRejected ClientBuffers::Add(std::uint64_t address, std::uint64_t bytes,
                                 std::uint64_t mapped_bytes) {
  const std::uint64_t base = space_->base();
  if (address < base || !ipc::RangeInside(address - base, bytes, mapped_bytes)) {
    return Reject(NotMapped{.what = "buffer",
                            .address = address,
                            .bytes = bytes,
                            .mapped_base = base,
                            .mapped_bytes = mapped_bytes});
  }
  const auto next = bytes_at_.lower_bound(address);
  const bool meets_next = next != bytes_at_.end() && next->first < address + bytes;
  const bool meets_last =
      next != bytes_at_.begin() && std::prev(next)->first + std::prev(next)->second > address;
  if (meets_next || meets_last) {
    return Reject(
        BufferOverlaps{.address = address,
                       .bytes = bytes,
                       .other_address = meets_next ? next->first : std::prev(next)->first});
  }
  if (bytes_at_.size() >= ipc::kBuffersMax) {
    return Reject(TooManyBuffers{.buffers = bytes_at_.size() + 1});
  }
  bytes_at_.emplace_hint(next, address, bytes);
  ++changes_;
  return {};
}

MaybeRejected ClientBuffers::Remove(std::uint64_t address) {
  if (bytes_at_.erase(address) == 0) return Reject(NoBuffer{.address = address});
  ++changes_;
  return {};
}

bool ClientBuffers::AddPointedTo(std::uint64_t address, device::Reach& reach) const {
  auto last = bytes_at_.upper_bound(address);
  bool is_known = false;
  // If one buffer begins at the address and another one ends there, both are added, because the
  // address may be a pointer past the last element of the latter.
  for (int looked = 0; looked < 2 && last != bytes_at_.begin(); ++looked) {
    --last;
    const auto [begin, bytes] = *last;
    if (address - begin > bytes) break;
    reach.Add(WholeSteps(begin, bytes));
    is_known = true;
  }
  if (is_known) return true;
  // An address at the end of the range may point to module variables, which need no buffer because
  // they are always resident.
  const std::uint64_t offset = address - space_->base();
  return offset >= space_->range_bytes() - device::kModuleAreaBytes;
}

device::Reach ClientBuffers::GetReach(const device::KernelInfo& kernel,
                                      std::span<const std::byte> parameters) const {
  if (!kernel.why_reach_unknown.empty()) return device::Reach::Everything();
  device::Reach reach;
  for (const std::uint32_t offset : kernel.reach_offsets) {
    std::uint64_t value = 0;
    if (offset > parameters.size() || parameters.size() - offset < sizeof value) {
      return device::Reach::Everything();
    }
    std::memcpy(&value, parameters.data() + offset, sizeof value);
    if (!AddPointedTo(value, reach)) return device::Reach::Everything();
  }
  // If the kernel touches memory but none of its pointers points to a declared buffer, its access
  // set is unknown.
  const bool is_lost = !kernel.reach_offsets.empty() && reach.pieces().empty();
  return is_lost ? device::Reach::Everything() : reach;
}

}  // namespace gpushared::server

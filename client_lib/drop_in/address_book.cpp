// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/address_book.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <utility>
#include <vector>

namespace gpushared::drop_in {
namespace {

// Returns the block that contains `address`; null if there is none.
const Block* BlockAt(const auto& entries, std::uint64_t address) {
  const auto next = entries.upper_bound(address);
  if (next == entries.begin()) return nullptr;
  const Block& block = std::prev(next)->second.block;
  return address - block.address < block.bytes ? &block : nullptr;
}

}  // namespace

std::uint64_t NextBufferId() {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

bool AddressBook::Insert(const Block& block, Memory memory) {
  const WriterLock lock(mutex_);
  const auto next = entries_.lower_bound(block.address);
  if (next != entries_.end() && next->first - block.address < block.bytes) return false;
  if (next != entries_.begin()) {
    const Block& before = std::prev(next)->second.block;
    if (block.address - before.address < before.bytes) return false;
  }
  entries_.emplace_hint(next, block.address, Entry{block, std::move(memory)});
  if (block.is_reached_on_demand()) has_had_host_.store(true, std::memory_order_relaxed);
  if (block.kind == BlockKind::kRegistered) {
    has_had_registered_.store(true, std::memory_order_relaxed);
  }
  if (block.is_device()) {
    const std::uint64_t begin = device_begin_.load(std::memory_order_relaxed);
    const std::uint64_t end = device_end_.load(std::memory_order_relaxed);
    device_begin_.store(std::min(begin, block.address), std::memory_order_relaxed);
    device_end_.store(std::max(end, block.address + block.bytes), std::memory_order_relaxed);
  }
  return true;
}

bool AddressBook::IsRegistered(std::uint64_t address) const {
  if (!has_had_registered_.load(std::memory_order_relaxed)) return false;
  const ReaderLock lock(mutex_);
  const Block* const block = BlockAt(entries_, address);
  return block != nullptr && block->kind == BlockKind::kRegistered;
}

std::shared_ptr<Mirror> AddressBook::Twin(std::uint64_t address) const {
  const ReaderLock lock(mutex_);
  const auto found = entries_.find(address);
  return found == entries_.end() ? nullptr : found->second.twin;
}

std::shared_ptr<Mirror> AddressBook::MirrorAt(std::uint64_t address) const {
  const ReaderLock lock(mutex_);
  const Block* block = BlockAt(entries_, address);
  if (block != nullptr && block->kind == BlockKind::kRegistered) {
    block = BlockAt(entries_, block->counterpart);
  }
  if (block == nullptr) return nullptr;
  const auto* const mirror =
      std::get_if<std::shared_ptr<Mirror>>(&entries_.at(block->address).memory);
  return mirror == nullptr ? nullptr : *mirror;
}

std::shared_ptr<Mirror> AddressBook::SetTwin(std::uint64_t address, std::shared_ptr<Mirror> twin) {
  const WriterLock lock(mutex_);
  const auto found = entries_.find(address);
  if (found == entries_.end() || !found->second.block.is_reached_on_demand()) return nullptr;
  if (found->second.twin == nullptr) found->second.twin = std::move(twin);
  return found->second.twin;
}

std::optional<Block> AddressBook::Find(std::uint64_t address) const {
  const ReaderLock lock(mutex_);
  const Block* const block = BlockAt(entries_, address);
  return block == nullptr ? std::nullopt : std::optional(*block);
}

bool AddressBook::IsDevice(std::uint64_t address, std::size_t bytes) const {
  const ReaderLock lock(mutex_);
  const Block* block = BlockAt(entries_, address);
  if (block == nullptr || !block->is_device()) return false;
  while (!block->Holds(address, bytes)) {
    const std::size_t rest = block->bytes - (address - block->address);
    address += rest;
    bytes -= rest;
    const Block* const next = BlockAt(entries_, address);
    const bool goes_on =
        block->kind == BlockKind::kPlaced && next != nullptr && next->kind == BlockKind::kPlaced;
    if (!goes_on) return false;
    block = next;
  }
  return true;
}

bool AddressBook::Remove(std::uint64_t address, BlockKind kind) {
  std::map<std::uint64_t, Entry>::node_type removed;  // Freed after the lock is released.
  const WriterLock lock(mutex_);
  const auto found = entries_.find(address);
  if (found == entries_.end() || found->second.block.kind != kind) return false;
  removed = entries_.extract(found);
  return true;
}

std::unique_ptr<PooledMemory> AddressBook::TakePooled(std::uint64_t address) {
  const WriterLock lock(mutex_);
  const auto found = entries_.find(address);
  if (found == entries_.end()) return nullptr;
  auto* const pooled = std::get_if<std::unique_ptr<PooledMemory>>(&found->second.memory);
  if (pooled == nullptr) return nullptr;
  std::unique_ptr<PooledMemory> taken = std::move(*pooled);
  entries_.erase(found);
  return taken;
}

PoolHandle AddressBook::PoolAt(std::uint64_t address) const {
  const ReaderLock lock(mutex_);
  const auto next = entries_.upper_bound(address);
  if (next == entries_.begin()) return nullptr;
  const auto* const pooled =
      std::get_if<std::unique_ptr<PooledMemory>>(&std::prev(next)->second.memory);
  return pooled == nullptr ? nullptr : (*pooled)->pool()->handle();
}

bool AddressBook::ChangeHints(std::uint64_t address, std::size_t bytes,
                              const std::function<void(ManagedHints&)>& change) {
  const WriterLock lock(mutex_);
  const auto next = entries_.upper_bound(address);
  if (next == entries_.begin()) return false;
  Entry& entry = std::prev(next)->second;
  if (entry.block.kind != BlockKind::kManaged || !entry.block.Holds(address, bytes)) return false;
  change(entry.hints);
  return true;
}

void AddressBook::RemoveVariable(std::uint64_t address, std::uint64_t buffer_id) {
  const WriterLock lock(mutex_);
  const auto found = entries_.find(address);
  if (found != entries_.end() && found->second.block.buffer_id == buffer_id) entries_.erase(found);
}

void AddressBook::RemoveContext(std::uint64_t context_id) {
  std::vector<Memory> removed;
  const WriterLock lock(mutex_);
  for (auto it = entries_.begin(); it != entries_.end();) {
    if (it->second.block.context_id == context_id) {
      removed.push_back(std::move(it->second.memory));
      it = entries_.erase(it);
    } else {
      ++it;
    }
  }
}

}  // namespace gpushared::drop_in

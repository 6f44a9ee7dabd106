// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/mirrored_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <limits>
#include <utility>

namespace gpushared::drop_in {

Result<std::shared_ptr<Mirror>> Mirror::Make(const Client& client, std::size_t bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  if (bytes > std::numeric_limits<std::size_t>::max() - 2 * page) {
    return Status(StatusCode::kOutOfMemory, "allocation refused: its size makes no sense");
  }
  const std::size_t rounded = (bytes + page - 1) / page * page;
  Result<DeviceBuffer> buffer = client.AllocateDevice(rounded + page);
  if (!buffer.ok()) return buffer.status();
  const std::uint64_t address = (buffer->address() + page - 1) / page * page;
  void* const wanted = reinterpret_cast<void*>(address);
  void* const pages = ::mmap(wanted, rounded, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (pages != wanted) {
    if (pages != MAP_FAILED) ::munmap(pages, rounded);
    return Status(StatusCode::kOutOfMemory,
                  "allocation refused: this process has host memory at the device's address");
  }
  return std::shared_ptr<Mirror>(new Mirror(std::move(*buffer), address, pages, rounded));
}

Result<std::shared_ptr<Mirror>> Mirror::Of(const Client& client, void* host, std::size_t bytes) {
  Result<DeviceBuffer> buffer = client.AllocateDevice(bytes);
  if (!buffer.ok()) return buffer.status();
  const std::uint64_t address = buffer->address();
  return std::shared_ptr<Mirror>(new Mirror(std::move(*buffer), address, host, bytes));
}

Result<std::shared_ptr<Mirror>> Mirror::OnDemand(const Client& client, void* host,
                                                 std::size_t bytes) {
  Result<std::shared_ptr<Mirror>> mirror = Of(client, host, bytes);
  if (mirror.ok()) (*mirror)->is_on_demand_ = true;
  return mirror;
}

Mirror::~Mirror() {
  const bool has_own_pages = reinterpret_cast<std::uint64_t>(host_) == address_;
  if (has_own_pages) ::munmap(host_, bytes_);
}

void MirroredMemory::Add(const std::shared_ptr<Mirror>& mirror) {
  const MutexLock lock(mutex_);
  std::erase_if(mirrors_, [](const Entry& it) { return it.mirror.expired(); });
  mirrors_.push_back({.mirror = mirror});
  has_any_.store(true, std::memory_order_relaxed);
}

Status MirroredMemory::ToDevice() {
  if (!has_any()) return Status::Ok();
  const MutexLock lock(mutex_);
  const Stream stream = client_.default_stream();
  bool has_copied = false;
  for (Entry& entry : mirrors_) {
    const std::shared_ptr<Mirror> mirror = entry.mirror.lock();
    if (mirror == nullptr || !entry.is_on_host || mirror->is_on_demand()) continue;
    Status status = stream.CopyToDevice(mirror->address(), mirror->host(), mirror->bytes());
    if (!status.ok()) return status;
    entry.is_on_host = false;
    has_copied = true;
  }
  // Commands of other streams follow.
  return has_copied ? stream.Synchronize() : Status::Ok();
}

MirroredMemory::Entry* MirroredMemory::EntryOf(const Mirror& mirror) {
  for (Entry& entry : mirrors_) {
    if (entry.mirror.lock().get() == &mirror) return &entry;
  }
  return nullptr;
}

Status MirroredMemory::Reach(Mirror& mirror) {
  const MutexLock lock(mutex_);
  Entry* const entry = EntryOf(mirror);
  if (entry == nullptr || !entry->is_on_host) return Status::Ok();
  const Stream stream = client_.default_stream();
  Status status = stream.CopyToDevice(mirror.address(), mirror.host(), mirror.bytes());
  // Commands of other streams follow.
  if (status.ok()) status = stream.Synchronize();
  if (status.ok()) entry->is_on_host = false;
  return status;
}

bool MirroredMemory::IsOnHost(const Mirror& mirror) {
  const MutexLock lock(mutex_);
  const Entry* const entry = EntryOf(mirror);
  return entry == nullptr || entry->is_on_host;
}

Status MirroredMemory::ToHost() {
  if (!has_any()) return Status::Ok();
  const MutexLock lock(mutex_);
  bool has_waited = false;
  for (Entry& entry : mirrors_) {
    const std::shared_ptr<Mirror> mirror = entry.mirror.lock();
    if (mirror == nullptr || entry.is_on_host) continue;
    if (!has_waited) {
      if (Status status = client_.Synchronize(); !status.ok()) return status;
      has_waited = true;
    }
    const Stream stream = client_.default_stream();
    Status status = stream.CopyToHost(mirror->host(), mirror->address(), mirror->bytes());
    // Copies to page-locked memory only begin by themselves.
    if (status.ok() && mirror->is_on_demand()) status = stream.Synchronize();
    if (!status.ok()) return status;
    entry.is_on_host = true;
  }
  return Status::Ok();
}

}  // namespace gpushared::drop_in

// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/mirrored_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "client_lib/drop_in/program_memory.h"

namespace gpushared::drop_in {
namespace {

constexpr std::size_t kPartBytes = std::size_t{1} << 20;  // Bytes compared at a time.

}  // namespace

Result<std::shared_ptr<Mirror>> Mirror::Make(const Client& client, std::size_t bytes,
                                             Sharing sharing) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  if (bytes > std::numeric_limits<std::size_t>::max() - 2 * page) {
    return Status(StatusCode::kOutOfMemory,
                  "allocation rejected: its size exceeds the address space");
  }
  const std::size_t rounded = (bytes + page - 1) / page * page;
  Result<DeviceBuffer> buffer = client.AllocateDevice(rounded + page);
  if (!buffer.ok()) return buffer.status();
  Bytes agreed(static_cast<std::byte*>(std::calloc(rounded, 1)));
  const std::uint64_t address = (buffer->address() + page - 1) / page * page;
  void* const wanted = reinterpret_cast<void*>(address);
  void* const pages = agreed == nullptr
                          ? MAP_FAILED
                          : ::mmap(wanted, rounded, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (pages != wanted) {
    if (pages != MAP_FAILED) ::munmap(pages, rounded);
    return Status(
        StatusCode::kOutOfMemory,
        "allocation rejected: this process has no memory, or other memory at the device's "
        "address");
  }
  return std::shared_ptr<Mirror>(
      new Mirror(std::move(*buffer), address, pages, rounded, sharing, std::move(agreed)));
}

Result<std::shared_ptr<Mirror>> Mirror::Of(const Client& client, void* host, std::size_t bytes,
                                           Sharing sharing) {
  Result<DeviceBuffer> buffer = client.AllocateDevice(bytes);
  if (!buffer.ok()) return buffer.status();
  Bytes agreed(static_cast<std::byte*>(std::calloc(bytes, 1)));
  if (agreed == nullptr) {
    return Status(StatusCode::kOutOfMemory, "allocation rejected: this process has no memory");
  }
  const std::uint64_t address = buffer->address();
  return std::shared_ptr<Mirror>(
      new Mirror(std::move(*buffer), address, host, bytes, sharing, std::move(agreed)));
}

Mirror::~Mirror() {
  const bool has_own_pages = reinterpret_cast<std::uint64_t>(host_) == address_;
  if (has_own_pages) ::munmap(host_, bytes_);
}

void MirroredMemory::Add(const std::shared_ptr<Mirror>& mirror) {
  const MutexLock lock(mutex_);
  std::erase_if(mirrors_, [](const Entry& it) { return it.mirror.expired(); });
  mirrors_.push_back({.mirror = mirror, .sharing = mirror->sharing()});
  has_any_.store(true, std::memory_order_relaxed);
}

void MirroredMemory::ShareAtAnyTime(const Mirror& mirror) {
  const MutexLock lock(mutex_);
  for (Entry& entry : mirrors_) {
    if (entry.mirror.lock().get() == &mirror) entry.sharing = Sharing::kAtAnyTime;
  }
}

bool MirroredMemory::Reaches(const MirrorUse& use, const Entry& entry, const Mirror& mirror,
                             bool& is_written) {
  is_written = use.is_kernel && entry.sharing != Sharing::kOnDemand;
  bool is_named = false;
  for (const MirrorUse::Named& named : use.named) {
    if (named.mirror.get() != &mirror) continue;
    is_named = true;
    is_written |= named.is_written;
  }
  return is_named || is_written;
}

// kInTurns: without a wait since the last comparison, the thread that compared has not written, and
// any other thread must wait before it writes.
bool MirroredMemory::MayDiffer(const Entry& entry) const {
  return entry.sharing != Sharing::kInTurns || entry.compared_at != waits_ ||
         entry.compared_by != std::this_thread::get_id();
}

Status MirroredMemory::Send(Entry& entry, const Mirror& mirror, bool& has_sent) {
  if (entry.is_gone || !MayDiffer(entry)) return Status::Ok();
  part_.resize(kPartBytes);
  std::byte* const agreed = mirror.agreed_.get();
  for (std::size_t at = 0; at < mirror.bytes();) {
    const std::size_t bytes = std::min(kPartBytes, mirror.bytes() - at);
    if (!ReadProgram(part_.data(), mirror.host() + at, bytes)) {
      entry.is_gone = true;
      break;
    }
    const std::byte* const end = part_.data() + bytes;
    const std::byte* first = part_.data();
    const std::byte* last = end;  // After the last byte that differs.
    if (entry.has_been_sent) {
      first = std::mismatch(first, end, agreed + at).first;
      while (last != first &&
             last[-1] == agreed[at + static_cast<std::size_t>(last - 1 - part_.data())]) {
        --last;
      }
    }
    if (first != last && entry.is_written) {
      // A command may be writing the bytes between those that the program has changed.
      Status status = AwaitCommands();
      if (status.ok()) status = TakeBack(entry, mirror);
      if (!status.ok()) return status;
      entry.is_written = false;
      continue;  // Compares the part again, because TakeBack may have changed it.
    }
    if (first != last) {
      const std::size_t begin = at + static_cast<std::size_t>(first - part_.data());
      const auto length = static_cast<std::size_t>(last - first);
      std::memcpy(agreed + begin, first, length);
      Status status =
          client_.default_stream().CopyToDevice(mirror.address() + begin, agreed + begin, length);
      if (!status.ok()) return status;
      has_sent = true;
    }
    at += bytes;
  }
  entry.has_been_sent = true;
  entry.compared_at = waits_;
  entry.compared_by = std::this_thread::get_id();
  return Status::Ok();
}

Status MirroredMemory::TakeBack(Entry& entry, const Mirror& mirror) {
  part_.resize(kPartBytes);
  std::byte* const agreed = mirror.agreed_.get();
  for (std::size_t at = 0; at < mirror.bytes() && !entry.is_gone; at += kPartBytes) {
    const std::size_t bytes = std::min(kPartBytes, mirror.bytes() - at);
    Status status = client_.default_stream().CopyToHost(part_.data(), mirror.address() + at, bytes);
    if (!status.ok()) return status;
    if (std::memcmp(part_.data(), agreed + at, bytes) == 0) continue;
    if (!WriteProgram(mirror.host() + at, part_.data(), agreed + at, bytes)) {
      entry.is_gone = true;
      break;
    }
    std::memcpy(agreed + at, part_.data(), bytes);
  }
  return Status::Ok();
}

Status MirroredMemory::AwaitCommands() {
  for (const auto& [stream, end] : under_way_) {
    if (Status status = end.Synchronize(); !status.ok()) return status;
  }
  under_way_.clear();
  return Status::Ok();
}

bool MirroredMemory::HaveCommandsEnded() {
  std::erase_if(under_way_,
                [](const auto& it) { return it.second.Query().code() != StatusCode::kNotReady; });
  return under_way_.empty();
}

Status MirroredMemory::Submit(const MirrorUse& use, const Stream& stream, std::uint64_t stream_id,
                              const std::function<Status()>& submit) {
  const MutexLock lock(mutex_);
  // Acquire: pairs with RecordCopyToHost, so that the copy has been submitted.
  if (!use.named.empty() && has_copies_to_host_.exchange(false, std::memory_order_acquire)) {
    if (Status status = client_.Synchronize(); !status.ok()) return status;
  }
  bool has_sent = false, is_any_written = false;
  for (Entry& entry : mirrors_) {
    const std::shared_ptr<Mirror> mirror = entry.mirror.lock();
    bool is_written = false;
    if (mirror == nullptr || !Reaches(use, entry, *mirror, is_written)) continue;
    if (Status status = Send(entry, *mirror, has_sent); !status.ok()) return status;
    entry.is_written |= is_written;
    is_any_written |= is_written;
  }
  // The command may be on another stream.
  if (has_sent) {
    if (Status status = client_.default_stream().Synchronize(); !status.ok()) return status;
  }
  Status status = submit();
  if (!is_any_written) return status;
  Event& end = under_way_[stream_id];
  if (!end.valid()) {
    Result<Event> made = client_.CreateEvent();
    if (!made.ok()) return made.status();
    end = std::move(*made);
  }
  const Status recorded = stream.Record(end);
  return status.ok() ? recorded : status;
}

Status MirroredMemory::ToHost() {
  if (!has_any()) return Status::Ok();
  const MutexLock lock(mutex_);
  ++waits_;
  // Evaluated before the comparison, so that everything that has ended by now is compared.
  const bool have_ended = HaveCommandsEnded();
  for (Entry& entry : mirrors_) {
    const std::shared_ptr<Mirror> mirror = entry.mirror.lock();
    if (mirror == nullptr || !entry.is_written) continue;
    if (Status status = TakeBack(entry, *mirror); !status.ok()) return status;
    entry.is_written = !have_ended;
  }
  return Status::Ok();
}

Status MirroredMemory::AwaitToHost(const Mirror& mirror) {
  const MutexLock lock(mutex_);
  for (Entry& entry : mirrors_) {
    if (entry.mirror.lock().get() != &mirror) continue;
    if (entry.is_written) {
      Status status = AwaitCommands();
      if (status.ok()) status = TakeBack(entry, mirror);
      if (!status.ok()) return status;
      entry.is_written = false;
    }
    if (entry.is_gone) {
      return Status(StatusCode::kInvalidArgument,
                    "the program has unmapped memory that was registered");
    }
  }
  return Status::Ok();
}

}  // namespace gpushared::drop_in

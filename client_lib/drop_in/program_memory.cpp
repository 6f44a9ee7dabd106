// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/program_memory.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

namespace gpushared::drop_in {
namespace {

constexpr std::uint64_t kPageBytes = 4096;
constexpr std::size_t kPiecesMax = 1024;  // UIO_MAXIOV.

std::uint64_t PageEnd(std::uint64_t address) { return (address / kPageBytes + 1) * kPageBytes; }

// Returns whether process_vm_readv or process_vm_writev has processed `wanted` bytes. Also true if
// a sandbox forbids the call: the memory is then assumed to be valid, as by drivers without checks.
bool IsDone(ssize_t done, std::size_t wanted) {
  return done == static_cast<ssize_t>(wanted) || (done < 0 && errno != EFAULT);
}

// Reads one byte of each page.
bool IsReadable(std::uint64_t address, std::size_t bytes) {
  std::array<std::byte, kPiecesMax> read{};
  std::vector<iovec> pages;
  for (std::uint64_t at = address; at < address + bytes;) {
    pages.clear();
    for (; at < address + bytes && pages.size() < kPiecesMax; at = PageEnd(at)) {
      pages.push_back({reinterpret_cast<void*>(at), 1});
    }
    const iovec local{read.data(), pages.size()};
    const ssize_t done = ::process_vm_readv(::getpid(), &local, 1, pages.data(), pages.size(), 0);
    if (!IsDone(done, pages.size())) return false;
  }
  return true;
}

// Returns whether /proc/self/maps lists a mapping in the range that is not writable.
bool HasReadOnly(std::uint64_t address, std::size_t bytes) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::uint64_t begin = 0, end = 0;
    char rights[5] = {};
    if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %4s", &begin, &end, rights) != 3) {
      continue;
    }
    if (begin < address + bytes && end > address && rights[1] != 'w') return true;
  }
  return false;
}

// Writes one of the differing bytes to each page that has any.
bool IsWritableWhereItDiffers(std::byte* to, const std::byte* from, const std::byte* before,
                              std::size_t bytes) {
  std::vector<iovec> local, remote;
  const auto write = [&] {
    const ssize_t done = ::process_vm_writev(::getpid(), local.data(), local.size(), remote.data(),
                                             remote.size(), 0);
    const bool is_done = IsDone(done, local.size());
    local.clear();
    remote.clear();
    return is_done;
  };
  const auto address = reinterpret_cast<std::uint64_t>(to);
  for (std::size_t at = 0; at < bytes;) {
    const std::size_t end = std::min<std::size_t>(bytes, PageEnd(address + at) - address);
    const auto differs =
        static_cast<std::size_t>(std::mismatch(from + at, from + end, before + at).first - from);
    if (differs != end) {
      local.push_back({const_cast<std::byte*>(from + differs), 1});
      remote.push_back({to + differs, 1});
      if (local.size() == kPiecesMax && !write()) return false;
    }
    at = end;
  }
  return local.empty() || write();
}

// The thread sanitizer cannot detect that the bytes between the written ones are not accessed.
__attribute__((no_sanitize("thread"))) void WriteDifferent(std::byte* to, const std::byte* from,
                                                           const std::byte* before,
                                                           std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) {
    if (from[i] != before[i]) __atomic_store_n(&to[i], from[i], __ATOMIC_RELAXED);
  }
}

}  // namespace

// Queries 16 MiB per system call.
bool IsMapped(std::uint64_t address, std::size_t bytes) {
  std::array<unsigned char, 4096> pages{};
  const std::uint64_t end = address + bytes;
  for (std::uint64_t at = address & ~(kPageBytes - 1); at < end;) {
    const std::size_t step = std::min<std::size_t>(end - at, pages.size() * kPageBytes);
    if (::mincore(reinterpret_cast<void*>(at), step, pages.data()) != 0) return errno != ENOMEM;
    at += step;
  }
  return true;
}

bool IsReadableAndWritable(std::uint64_t address, std::size_t bytes) {
  return address + bytes > address && IsReadable(address, bytes) && !HasReadOnly(address, bytes);
}

bool ReadProgram(std::byte* to, const std::byte* from, std::size_t bytes) {
  const iovec local{to, bytes}, remote{const_cast<std::byte*>(from), bytes};
  const ssize_t done = ::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0);
  if (!IsDone(done, bytes)) return false;
  if (done < 0) std::memcpy(to, from, bytes);
  return true;
}

bool WriteProgram(std::byte* to, const std::byte* from, const std::byte* before,
                  std::size_t bytes) {
  if (!IsWritableWhereItDiffers(to, from, before, bytes)) return false;
  WriteDifferent(to, from, before, bytes);
  return true;
}

}  // namespace gpushared::drop_in

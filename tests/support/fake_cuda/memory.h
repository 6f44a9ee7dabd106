// SPDX-License-Identifier: Apache-2.0
// The fake GPU's memory. Device addresses are addresses of this process; memory handles are memfds,
// so that one can be mapped twice. Fresh memory is full of garbage, as a GPU's may be.

#ifndef GPUSHARED_TESTS_SUPPORT_FAKE_CUDA_MEMORY_H_
#define GPUSHARED_TESTS_SUPPORT_FAKE_CUDA_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "common/cuda_driver/driver_types.h"

namespace gpushared::testing::fake_cuda {

inline constexpr std::uint64_t kGranule = std::uint64_t{2} << 20;

class Memory {
 public:
  using Code = device::cuda::Code;
  using Access = device::cuda::Access;
  ~Memory() { Clear(); }
  // Releases all memory.
  void Clear();

  Code Reserve(std::uint64_t bytes, std::uint64_t alignment, std::uint64_t* address);
  Code FreeReservation(std::uint64_t address, std::uint64_t bytes);
  Code Create(std::uint64_t bytes, std::uint64_t* handle);
  // Releases the handle. The memory is freed once no mapping uses it either.
  Code Release(std::uint64_t handle);
  Code Map(std::uint64_t address, std::uint64_t bytes, std::uint64_t offset, std::uint64_t handle);
  Code Unmap(std::uint64_t address, std::uint64_t bytes);
  Code SetAccess(std::uint64_t address, std::uint64_t bytes, Access access);

  // Allocate and free memory for cuMemAlloc, module variables and the code of kernels.
  Code Allocate(std::uint64_t bytes, std::uint64_t* address);
  Code Free(std::uint64_t address);

  // Host memory of which the driver has a record: allocated by it, or registered.
  Code AllocateHost(std::uint64_t bytes, void** address);
  Code FreeHost(void* address);
  Code Register(void* address, std::uint64_t bytes);
  Code Unregister(void* address);
  bool Pinned(const void* address, std::uint64_t bytes) const;

  // Returns whether the GPU may read and write the whole range.
  bool Accessible(std::uint64_t address, std::uint64_t bytes) const;
  // Returns the accessible memory around an address: its allocation, or the adjacent mappings of
  // its reservation. Empty if the address is not accessible.
  struct Piece {
    std::uint64_t base = 0;
    std::uint64_t bytes = 0;
  };
  Piece Around(std::uint64_t address) const;
  // Returns all memory that kernels of any stream can access, including registered host memory.
  std::vector<Piece> Reachable() const;

  // Takes memory without an address, for the driver's internal use.
  bool Occupy(std::uint64_t bytes) {
    if (bytes > limit - used_) return false;
    used_ += bytes;
    return true;
  }
  void Vacate(std::uint64_t bytes) { used_ -= bytes; }

  std::uint64_t used() const { return used_; }
  std::uint64_t limit = 0;

  struct Reservation {
    std::uint64_t bytes = 0;
    void* mapped = nullptr;  // The mapping to unmap, which is larger because the reservation is
                             // aligned.
    std::uint64_t mapped_bytes = 0;
  };
  struct Mapping {
    std::uint64_t bytes = 0;
    std::uint64_t handle = 0;
    Access access = Access::kNone;
  };
  struct Physical {
    std::uint64_t bytes = 0;
    int fd = -1;
    bool held = true;
    unsigned mappings = 0;
  };
  struct Host {
    std::uint64_t bytes = 0;
    bool ours = false;
  };
  std::map<std::uint64_t, Reservation> reservations;
  std::map<std::uint64_t, Mapping> mappings;
  std::map<std::uint64_t, Physical> physical;
  std::map<std::uint64_t, std::uint64_t> allocations;  // Sizes, by address.
  std::map<std::uint64_t, Host> hosts;

 private:
  // Returns a memfd full of garbage; -1 if the system rejects it.
  int TakeFilled(std::uint64_t bytes);
  void Drop(std::uint64_t handle);
  bool InReservation(std::uint64_t address, std::uint64_t bytes) const;

  // The first touch of a page takes longer than the modelled calls, and milliseconds in a virtual
  // machine. Therefore some granules are reused.
  static constexpr std::size_t kSparesMax = 64;
  std::vector<int> spares_;
  std::uint64_t used_ = 0;
  std::uint64_t last_handle_ = 0x7000;
};

}  // namespace gpushared::testing::fake_cuda

#endif  // GPUSHARED_TESTS_SUPPORT_FAKE_CUDA_MEMORY_H_

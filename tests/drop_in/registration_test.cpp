// SPDX-License-Identifier: Apache-2.0
// Registration of memory of all kinds, and memory that the program unmaps while it is registered.
// CUDA's header defines the errors.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <cuda.h>
#include <gtest/gtest.h>

#include "tests/drop_in/server_case.h"

namespace gpushared {
namespace {

using testing::kBytes;

constexpr std::size_t kPage = 4096;
constexpr std::size_t kLength = 4 * kPage;
constexpr char kConstants[2 * kPage] = "constant";

struct Mapping {
  std::string name;
  void* address;
  bool is_right;
  std::size_t bytes = kLength;
};

void* Map(int protection, int flags, int file = -1) {
  void* const mapped = ::mmap(nullptr, kLength, protection, flags, file, 0);
  EXPECT_NE(mapped, MAP_FAILED);
  return mapped;
}

// Maps memory at an address that the system does not choose on its own, so that the range stays
// unmapped once a test has unmapped it.
void* MapLow() {
  void* const wanted = reinterpret_cast<void*>(std::uintptr_t{16} << 20);
  void* const mapped = ::mmap(wanted, kLength, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  EXPECT_EQ(mapped, wanted);
  return mapped;
}

class RegistrationTest : public testing::DropInServerCase {
 protected:
  RegistrationTest() : file_(::memfd_create("registered", 0)) {
    EXPECT_EQ(::ftruncate(file_, kLength), 0);
  }
  ~RegistrationTest() override { ::close(file_); }

  std::vector<Mapping> AllKinds(void* on_stack) {
    constexpr int kAnonymous = MAP_PRIVATE | MAP_ANONYMOUS;
    constexpr int kBoth = PROT_READ | PROT_WRITE;
    std::vector<Mapping> all = {
        {"anonymous", Map(kBoth, kAnonymous), true},
        {"anonymous shared", Map(kBoth, MAP_SHARED | MAP_ANONYMOUS), true},
        {"file private", Map(kBoth, MAP_PRIVATE, file_), true},
        {"file shared", Map(kBoth, MAP_SHARED, file_), true},
        {"file private, read-only", Map(PROT_READ, MAP_PRIVATE, file_), false},
        {"file shared, read-only", Map(PROT_READ, MAP_SHARED, file_), false},
        {"anonymous, read-only", Map(PROT_READ, kAnonymous), false},
        {"without rights", Map(PROT_NONE, kAnonymous), false},
        {"constants", AtPage(kConstants), false, kPage},
        {"on the stack", AtPage(on_stack), true, kPage},
    };
    auto* const holey = static_cast<std::byte*>(MapLow());
    EXPECT_EQ(::munmap(holey + kPage, kPage), 0);
    all.push_back({"with a hole", holey, false});
    all.push_back({"unmapped", holey + kLength, false});
    auto* const mixed = static_cast<std::byte*>(Map(kBoth, kAnonymous));
    EXPECT_EQ(::mprotect(mixed + 3 * kPage, kPage, PROT_READ), 0);
    all.push_back({"with a page that is read-only", mixed, false});
    constexpr std::size_t kHuge = 2 << 20;
    void* const huge = ::mmap(nullptr, kHuge, kBoth, kAnonymous | MAP_HUGETLB, -1, 0);
    if (huge != MAP_FAILED) all.push_back({"huge pages", huge, true, kHuge});
    return all;
  }
  static void* AtPage(const void* inside) {
    return reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(inside) + kPage - 1) / kPage *
                                   kPage);
  }
  // Runs commands on other memory and waits for them.
  void Work() {
    const CUdeviceptr numbers = Numbers();
    EXPECT_EQ(AddOne(numbers, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(Read(numbers), testing::All(1));
    EXPECT_EQ(cuMemFree(numbers), CUDA_SUCCESS);
  }

  const int file_;
};

TEST_F(RegistrationTest, ChecksFlagsAndPageProtection) {
  UsePrimary();
  char on_stack[2 * kPage] = {};
  for (const Mapping& it : AllKinds(on_stack)) {
    for (unsigned flags = 0; flags < 16; ++flags) {
      const bool is_supported =
          (flags & (CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY)) == 0;
      const CUresult wanted = !is_supported ? CUDA_ERROR_NOT_SUPPORTED
                              : it.is_right ? CUDA_SUCCESS
                                            : CUDA_ERROR_INVALID_VALUE;
      const CUresult code = cuMemHostRegister(it.address, it.bytes, flags);
      EXPECT_EQ(code, wanted) << it.name << ", flags " << flags;
      if (code != CUDA_SUCCESS) {
        EXPECT_EQ(cuMemHostUnregister(it.address), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
        continue;
      }
      Work();
      EXPECT_EQ(cuMemHostRegister(it.address, it.bytes, flags),
                CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
      EXPECT_EQ(cuMemHostUnregister(it.address), CUDA_SUCCESS) << it.name << ", flags " << flags;
    }
    EXPECT_EQ(cuMemHostRegister(it.address, it.bytes, 16), CUDA_ERROR_INVALID_VALUE);
  }
}

TEST_F(RegistrationTest, UnregisterNeedsTheStartOfTheRange) {
  UsePrimary();
  auto* const memory =
      static_cast<std::byte*>(Map(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS));
  ASSERT_EQ(cuMemHostRegister(memory + kPage, 2 * kPage, CU_MEMHOSTREGISTER_DEVICEMAP),
            CUDA_SUCCESS);
  for (const std::size_t begin : {std::size_t{0}, kPage, 2 * kPage}) {
    EXPECT_EQ(cuMemHostRegister(memory + begin, 2 * kPage, CU_MEMHOSTREGISTER_DEVICEMAP),
              CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  }
  EXPECT_EQ(cuMemHostRegister(memory, kPage, 0), CUDA_SUCCESS) << "a neighbour";
  EXPECT_EQ(cuMemHostUnregister(memory + 2 * kPage), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemHostGetDevicePointer(&address, memory + kPage, 0), CUDA_SUCCESS) << "still there";
  EXPECT_EQ(AddOne(address, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuMemHostUnregister(memory + kPage), CUDA_SUCCESS);
  unsigned first = 0;
  std::memcpy(&first, memory + kPage, sizeof first);
  EXPECT_EQ(first, 1u);
}

// With unified addressing, kernels can access registered memory without a flag.
TEST_F(RegistrationTest, KernelsAccessMemoryRegisteredWithoutFlags) {
  UsePrimary();
  auto* const memory =
      static_cast<unsigned*>(Map(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS));
  const auto address = reinterpret_cast<CUdeviceptr>(memory);
  memory[0] = 40;
  ASSERT_EQ(cuMemHostRegister(memory, kLength, 0), CUDA_SUCCESS);
  EXPECT_EQ(AddOne(address, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(memory[0], 41u);
  EXPECT_EQ(cuMemsetD32(address + kPage, 7, 1), CUDA_SUCCESS);
  unsigned word = 0;
  EXPECT_EQ(cuMemcpyDtoH(&word, address + kPage, sizeof word), CUDA_SUCCESS);
  EXPECT_EQ(word, 7u);
  // The last kernel's writes are visible once the memory is no longer registered.
  EXPECT_EQ(AddOne(address, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuMemHostUnregister(memory), CUDA_SUCCESS);
  EXPECT_EQ(memory[0], 42u);
  EXPECT_EQ(::munmap(memory, kLength), 0);
}

// No matter which memory the program unmaps and when, kernels keep the device's copy, and calls
// that need the program's memory return an error.
TEST_F(RegistrationTest, CallsFailIfRegisteredMemoryIsUnmapped) {
  UsePrimary();
  const CUdeviceptr numbers = Numbers();
  for (const unsigned flags : {0u, unsigned{CU_MEMHOSTREGISTER_DEVICEMAP}}) {
    for (const std::size_t hole : {std::size_t{0}, kPage}) {
      for (const bool is_in_use : {false, true}) {
        void* const memory = MapLow();
        ASSERT_EQ(cuMemHostRegister(memory, kLength, flags), CUDA_SUCCESS);
        CUdeviceptr address = numbers;
        if (flags != 0) {
          ASSERT_EQ(cuMemHostGetDevicePointer(&address, memory, 0), CUDA_SUCCESS);
        }
        if (is_in_use) {
          EXPECT_EQ(AddOne(address, nullptr), CUDA_SUCCESS);
        }
        ASSERT_EQ(::munmap(static_cast<std::byte*>(memory) + hole, kLength - hole), 0);
        EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
        EXPECT_EQ(AddOne(address, nullptr), CUDA_SUCCESS);
        EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
        if (flags == 0) {
          EXPECT_EQ(cuMemcpyHtoD(numbers, memory, kLength), CUDA_ERROR_INVALID_VALUE);
          EXPECT_EQ(cuMemcpyDtoHAsync(memory, numbers, kBytes, nullptr),
                    hole == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
          EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
        }
        EXPECT_EQ(cuMemHostUnregister(memory), CUDA_ERROR_INVALID_VALUE) << flags << " " << hole;
        EXPECT_EQ(cuMemHostUnregister(memory), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
        Work();
        ASSERT_EQ(::munmap(memory, kLength), 0);
      }
    }
  }
}

// If the program makes the memory read-only, kernels' writes can no longer be copied back.
TEST_F(RegistrationTest, MemoryThatBecomesReadOnlyKeepsItsBytes) {
  UsePrimary();
  void* const memory = Map(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
  auto* const seen = static_cast<unsigned*>(memory);
  CUdeviceptr address = 0;
  seen[0] = 5;
  ASSERT_EQ(cuMemHostRegister(memory, kLength, CU_MEMHOSTREGISTER_DEVICEMAP), CUDA_SUCCESS);
  ASSERT_EQ(cuMemHostGetDevicePointer(&address, memory, 0), CUDA_SUCCESS);
  ASSERT_EQ(::mprotect(memory, kLength, PROT_READ), 0);
  EXPECT_EQ(AddOne(address, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(seen[0], 5u);
  EXPECT_EQ(cuMemHostUnregister(memory), CUDA_ERROR_INVALID_VALUE);
}

// The program unmaps memory without unregistering it, and maps other memory at the same address.
TEST_F(RegistrationTest, DoesNotChangeANewMappingAtTheSameAddress) {
  UsePrimary();
  void* const memory = Map(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
  std::memset(memory, 1, kLength);
  ASSERT_EQ(cuMemHostRegister(memory, kLength, CU_MEMHOSTREGISTER_DEVICEMAP), CUDA_SUCCESS);
  Work();
  ASSERT_EQ(::munmap(memory, kLength), 0);
  ASSERT_EQ(::mmap(memory, kLength, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
            memory);
  const CUdeviceptr numbers = Numbers();
  EXPECT_EQ(AddOne(numbers, nullptr), CUDA_SUCCESS);
  std::memset(memory, 7, kLength);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(std::vector<char>(static_cast<char*>(memory), static_cast<char*>(memory) + kLength),
            std::vector<char>(kLength, 7));
}

}  // namespace
}  // namespace gpushared

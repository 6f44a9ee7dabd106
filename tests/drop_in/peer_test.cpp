// SPDX-License-Identifier: Apache-2.0
// Copies between contexts of the same device or of two devices, and batches of copies.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include <cuda.h>
#include <gtest/gtest.h>

#include "tests/drop_in/server_case.h"

// New in CUDA 13.2; the toolkit's header may be older.
extern "C" CUresult cuMemcpyWithAttributesAsync(CUdeviceptr, CUdeviceptr, std::size_t,
                                                CUmemcpyAttributes*, CUstream);
extern "C" CUresult cuMemcpy3DWithAttributesAsync(CUDA_MEMCPY3D_BATCH_OP*, unsigned long long,
                                                  CUstream);

namespace gpushared::testing {
namespace {

// A copy of this many bytes through the program's memory takes several pieces.
constexpr std::size_t kLargeBytes = (std::size_t{16} << 20) + 4096;

// Two contexts. The parameter is the device of the second one: 0, which also has the first one, or
// 1.
class PeerTest : public DropInServerCase, public ::testing::WithParamInterface<int> {
 protected:
  PeerTest() : DropInServerCase({"--device", "cpu:0,cpu:1"}) {
    EXPECT_EQ(cuInit(0), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxCreate(&first_, nullptr, 0, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxCreate(&second_, nullptr, 0, GetParam()), CUDA_SUCCESS);
  }

  CUdeviceptr Allocate(CUcontext context, std::size_t bytes) {
    CUdeviceptr memory = 0;
    EXPECT_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
    EXPECT_EQ(cuMemAlloc(&memory, bytes), CUDA_SUCCESS);
    return memory;
  }
  void Write(CUcontext context, CUdeviceptr to, const void* from, std::size_t bytes) {
    ASSERT_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
    ASSERT_EQ(cuMemcpyHtoD(to, from, bytes), CUDA_SUCCESS);
  }
  void Read(CUcontext context, void* to, CUdeviceptr from, std::size_t bytes) {
    ASSERT_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
    ASSERT_EQ(cuMemcpyDtoH(to, from, bytes), CUDA_SUCCESS);
  }
  // Returns a copy from memory of the first context to memory of the second.
  CUDA_MEMCPY3D_PEER Box(CUdeviceptr from, CUdeviceptr to, std::size_t width, std::size_t height,
                         std::size_t depth) {
    CUDA_MEMCPY3D_PEER copy{};
    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = from;
    copy.srcContext = first_;
    copy.dstDevice = to;
    copy.dstContext = second_;
    copy.WidthInBytes = width;
    copy.Height = height;
    copy.Depth = depth;
    return copy;
  }

  CUcontext first_ = nullptr, second_ = nullptr;
};

TEST_P(PeerTest, BytesReachTheOtherContext) {
  std::vector<std::uint32_t> numbers(kLargeBytes / 4), found(numbers.size());
  std::iota(numbers.begin(), numbers.end(), 5u);
  const CUdeviceptr from = Allocate(first_, kLargeBytes), to = Allocate(second_, kLargeBytes);
  Write(first_, from, numbers.data(), kLargeBytes);
  ASSERT_EQ(cuMemcpyPeer(to, second_, from, first_, kLargeBytes), CUDA_SUCCESS);
  Read(second_, found.data(), to, kLargeBytes);
  EXPECT_EQ(found, numbers);
}

// Programs free memory when their objects end, whichever context is current then.
TEST_P(PeerTest, MemoryIsQueriedAndFreedInAnyOrNoContext) {
  std::array<char, 4096> own{};
  for (const CUcontext current : {first_, static_cast<CUcontext>(nullptr)}) {
    const CUdeviceptr memory = Allocate(second_, 4096);
    void* host = nullptr;
    ASSERT_EQ(cuMemAllocHost(&host, 4096), CUDA_SUCCESS);
    ASSERT_EQ(cuMemHostRegister(own.data(), own.size(), 0), CUDA_SUCCESS);
    while (cuCtxPopCurrent(nullptr) == CUDA_SUCCESS) {
    }
    if (current != nullptr) {
      ASSERT_EQ(cuCtxPushCurrent(current), CUDA_SUCCESS);
    }
    int ordinal = -1, of_nothing = -1;
    EXPECT_EQ(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, memory),
              CUDA_SUCCESS);
    EXPECT_EQ(ordinal, GetParam());
    CUpointer_attribute asked = CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
    void* answer = &of_nothing;
    EXPECT_EQ(cuPointerGetAttributes(1, &asked, &answer, reinterpret_cast<CUdeviceptr>(&asked)),
              CUDA_SUCCESS);
    EXPECT_EQ(of_nothing, CU_DEVICE_INVALID);
    EXPECT_EQ(cuMemFree(memory), CUDA_SUCCESS);
    EXPECT_EQ(cuMemFreeHost(host), CUDA_SUCCESS);
    EXPECT_EQ(cuMemHostUnregister(own.data()), CUDA_SUCCESS);
    EXPECT_EQ(cuMemFree(memory),
              current == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_VALUE)
        << "twice";
  }
}

// A handle denotes memory of one device, so it cannot be mapped at addresses of the other device.
TEST_P(PeerTest, MemoryHandlesAreMappedOnlyOnTheirDevice) {
  constexpr std::size_t kAllocated = std::size_t{2} << 20;
  CUmemAllocationProp of{};
  of.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  of.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr range = 0;
  ASSERT_EQ(cuCtxSetCurrent(first_), CUDA_SUCCESS);
  ASSERT_EQ(cuMemCreate(&handle, kAllocated, &of, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSetCurrent(second_), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAddressReserve(&range, kAllocated, 0, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemMap(range, kAllocated, 0, handle, 0),
            GetParam() == 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED);
}

TEST_P(PeerTest, CopyRunsAfterEarlierWorkOfItsStream) {
  const CUdeviceptr from = Allocate(first_, 4096), to = Allocate(second_, 4096);
  CUstream stream = nullptr;
  std::uint32_t found = 0;
  ASSERT_EQ(cuCtxSetCurrent(first_), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(cuMemsetD32Async(from, 77, 1024, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyPeerAsync(to, second_, from, first_, 4096, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  Read(second_, &found, to + 4092, 4);
  EXPECT_EQ(found, 77u);
}

// Streams of different contexts do not wait for each other, but a copy between contexts waits for
// earlier work of both, and later work of both waits for the copy.
TEST_P(PeerTest, CopyWaitsForAndDelaysWorkOfBothContexts) {
  constexpr std::size_t kWords = 1 << 20;
  const CUdeviceptr from = Allocate(first_, 4 * kWords), to = Allocate(second_, 4 * kWords);
  std::vector<std::uint32_t> found(kWords);
  for (std::uint32_t round = 1; round < 20; ++round) {
    ASSERT_EQ(cuCtxSetCurrent(second_), CUDA_SUCCESS);
    ASSERT_EQ(cuMemsetD32Async(to, 0, kWords, CU_STREAM_PER_THREAD), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSetCurrent(first_), CUDA_SUCCESS);
    ASSERT_EQ(cuMemsetD32Async(from, round, kWords, CU_STREAM_PER_THREAD), CUDA_SUCCESS);
    ASSERT_EQ(cuMemcpyPeer(to, second_, from, first_, 4 * kWords), CUDA_SUCCESS);
    Read(second_, found.data(), to, 4 * kWords);
    ASSERT_EQ(found, std::vector<std::uint32_t>(kWords, round));
  }
}

TEST_P(PeerTest, BoxesUseThePitchesOfBothSides) {
  // Two slices of three rows of eight bytes, out of rows of 16 and into rows of 32.
  const CUdeviceptr from = Allocate(first_, 4096), to = Allocate(second_, 4096);
  std::array<unsigned char, 512> bytes{}, found{};
  std::iota(bytes.begin(), bytes.end(), static_cast<unsigned char>(1));
  Write(first_, from, bytes.data(), bytes.size());
  CUDA_MEMCPY3D_PEER copy = Box(from, to, 8, 3, 2);
  copy.srcPitch = 16;
  copy.srcHeight = 4;
  copy.srcXInBytes = 2;
  copy.dstPitch = 32;
  copy.dstY = 1;
  ASSERT_EQ(cuMemcpy3DPeer(&copy), CUDA_SUCCESS);
  Read(second_, found.data(), to, found.size());
  for (std::size_t slice = 0; slice < 2; ++slice) {
    for (std::size_t row = 0; row < 3; ++row) {
      for (std::size_t column = 0; column < 8; ++column) {
        ASSERT_EQ(found[(slice * 3 + row + 1) * 32 + column],
                  bytes[(slice * 4 + row) * 16 + 2 + column])
            << slice << ' ' << row << ' ' << column;
      }
    }
  }
}

// Two slices of three rows of 6 MiB, so that each slice takes more than one piece and a piece holds
// more than one row.
TEST_P(PeerTest, LargeBoxesArriveWhole) {
  constexpr std::size_t kWidth = std::size_t{6} << 20, kPitch = kWidth + 64, kRows = 6;
  std::vector<std::uint32_t> numbers(kPitch * kRows / 4), found(kWidth * kRows / 4);
  std::iota(numbers.begin(), numbers.end(), 9u);
  const CUdeviceptr from = Allocate(first_, kPitch * kRows), to = Allocate(second_, kWidth * kRows);
  Write(first_, from, numbers.data(), kPitch * kRows);
  CUDA_MEMCPY3D_PEER copy = Box(from, to, kWidth, 3, 2);
  copy.srcPitch = kPitch;
  ASSERT_EQ(cuMemcpy3DPeer(&copy), CUDA_SUCCESS);
  Read(second_, found.data(), to, kWidth * kRows);
  for (std::size_t row = 0; row < kRows; ++row) {
    EXPECT_EQ(std::memcmp(&found[row * kWidth / 4], &numbers[row * kPitch / 4], kWidth), 0) << row;
  }
}

// Each row is copied in several pieces. Rows that overlap must be rejected even though the pieces
// of each row are shorter than the pitch.
TEST_P(PeerTest, RowsOfSeveralPiecesArriveWholeAndCannotOverlap) {
  constexpr std::size_t kPitch = kLargeBytes + 64;
  const CUdeviceptr from = Allocate(first_, 2 * kPitch), to = Allocate(second_, 2 * kPitch);
  std::vector<std::uint32_t> numbers(2 * kPitch / 4), found(numbers.size());
  std::iota(numbers.begin(), numbers.end(), 3u);
  Write(first_, from, numbers.data(), 2 * kPitch);
  CUDA_MEMCPY3D_PEER copy = Box(from, to, kLargeBytes, 2, 1);
  copy.srcPitch = copy.dstPitch = kPitch;
  ASSERT_EQ(cuMemcpy3DPeer(&copy), CUDA_SUCCESS);
  Read(second_, found.data(), to, 2 * kPitch);
  for (const std::size_t row : {0, 1}) {
    const std::size_t at = row * kPitch / 4;
    EXPECT_EQ(std::memcmp(&found[at], &numbers[at], kLargeBytes), 0) << row;
  }
  copy.srcPitch = kLargeBytes - 64;
  EXPECT_EQ(cuMemcpy3DPeer(&copy), CUDA_ERROR_INVALID_VALUE);
  copy.srcPitch = kPitch;
  copy.dstPitch = kLargeBytes - 64;
  EXPECT_EQ(cuMemcpy3DPeer(&copy), CUDA_ERROR_INVALID_VALUE);
}

TEST_P(PeerTest, CapturedBoxOfOneContextIsAnOrdinaryCopy) {
  const CUdeviceptr memory = Allocate(first_, 4096);
  CUDA_MEMCPY3D_PEER copy = Box(memory, memory + 2048, 64, 1, 1);
  copy.dstContext = first_;
  ASSERT_EQ(cuCtxSetCurrent(first_), CUDA_SUCCESS);
  const CUstream stream = NewStream();
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  std::size_t count = 1;
  ASSERT_EQ(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpy3DPeerAsync(&copy, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphGetNodes(graph, &node, &count), CUDA_SUCCESS);
  CUDA_MEMCPY3D captured{};
  ASSERT_EQ(cuGraphMemcpyNodeGetParams(node, &captured), CUDA_SUCCESS);
  EXPECT_EQ(captured.dstDevice, memory + 2048);
  EXPECT_EQ(captured.reserved0, nullptr);
  EXPECT_EQ(captured.reserved1, nullptr);
}

TEST_P(PeerTest, RejectsInvalidCopies) {
  const CUdeviceptr from = Allocate(first_, 4096), to = Allocate(second_, 4096);
  EXPECT_EQ(cuMemcpyPeer(to, second_, from, nullptr, 4096), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuMemcpyPeer(to, second_, from, first_, ~std::size_t{0}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyPeer(to, second_, from, first_, 4097), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyPeer(to, second_, from + 1, first_, 4096), CUDA_ERROR_INVALID_VALUE);
  CUDA_MEMCPY3D_PEER copy = Box(from, to, 64, ~std::size_t{0}, ~std::size_t{0});
  copy.srcPitch = 32;
  EXPECT_EQ(cuMemcpy3DPeer(&copy), CUDA_ERROR_INVALID_VALUE);
}

TEST_P(PeerTest, KernelsGetNoAccessToAnotherDevice) {
  ASSERT_EQ(cuCtxSetCurrent(first_), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxEnablePeerAccess(second_, 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
  EXPECT_EQ(cuCtxEnablePeerAccess(second_, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuCtxEnablePeerAccess(first_, 0), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuCtxEnablePeerAccess(nullptr, 0), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuCtxDisablePeerAccess(second_), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
}

INSTANTIATE_TEST_SUITE_P(Of, PeerTest, ::testing::Values(0, 1), [](const auto& test) {
  return std::string(test.param == 0 ? "OneDevice" : "TwoDevices");
});

using BatchTest = PeerTest;

TEST_P(BatchTest, EachCopyUsesItsOwnPointers) {
  const CUdeviceptr device = Allocate(first_, 64);
  const CUstream stream = NewStream();
  std::array<std::uint32_t, 4> host = {1, 2, 3, 4}, found{};
  const auto address = [](void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); };
  CUdeviceptr to[] = {device, device + 16, address(found.data())};
  CUdeviceptr from[] = {address(host.data()), device, device + 20};
  std::size_t bytes[] = {16, 16, 8};
  CUmemcpyAttributes hints[2] = {};
  hints[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  hints[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
  std::size_t starts[] = {0, 2};
  ASSERT_EQ(cuMemcpyBatchAsync(to, from, bytes, 3, hints, starts, 2, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(found, (std::array<std::uint32_t, 4>{2, 3, 0, 0}));
  starts[1] = 0;
  EXPECT_EQ(cuMemcpyBatchAsync(to, from, bytes, 3, hints, starts, 2, stream),
            CUDA_ERROR_INVALID_VALUE);
  starts[1] = 2;
  hints[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
  EXPECT_EQ(cuMemcpyBatchAsync(to, from, bytes, 3, hints, starts, 2, stream),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_P(BatchTest, SingleCopyAcceptsAttributes) {
  const CUdeviceptr device = Allocate(first_, 64);
  CUmemcpyAttributes hints = {};
  hints.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  std::array<std::uint32_t, 4> host = {1, 2, 3, 4}, found{};
  const auto from = reinterpret_cast<CUdeviceptr>(host.data());
  ASSERT_EQ(cuMemcpyWithAttributesAsync(device, from, sizeof host, &hints, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyDtoH(found.data(), device, sizeof found), CUDA_SUCCESS);
  EXPECT_EQ(found, host);
  EXPECT_EQ(cuMemcpyWithAttributesAsync(device, from, sizeof host, nullptr, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  hints.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
  EXPECT_EQ(cuMemcpyWithAttributesAsync(device, from, sizeof host, &hints, nullptr),
            CUDA_ERROR_INVALID_VALUE);
}

CUmemcpy3DOperand PointerOperand(CUdeviceptr address, std::size_t row, std::size_t height) {
  CUmemcpy3DOperand operand = {};
  operand.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  operand.op.ptr.ptr = address;
  operand.op.ptr.rowLength = row;
  operand.op.ptr.layerHeight = height;
  return operand;
}
CUmemcpy3DOperand ArrayOperand(CUarray array, std::size_t x, std::size_t y) {
  CUmemcpy3DOperand operand = {};
  operand.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
  operand.op.array.array = array;
  operand.op.array.offset = {x, y, 0};
  return operand;
}
CUDA_MEMCPY3D_BATCH_OP BoxCopy(const CUmemcpy3DOperand& from, const CUmemcpy3DOperand& to,
                               const CUextent3D& extent) {
  return {.src = from,
          .dst = to,
          .extent = extent,
          .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
          .flags = 0};
}

// Two layers of two rows of three bytes go into rows of 8 and layers of 3 rows, and come back
// packed.
TEST_P(BatchTest, BoxesHaveTheirOwnPitchesAndLayerHeights) {
  const CUdeviceptr device = Allocate(first_, 64);
  ASSERT_EQ(cuMemsetD8(device, 0, 64), CUDA_SUCCESS);
  std::array<std::uint8_t, 12> host = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, found{};
  const auto from = reinterpret_cast<CUdeviceptr>(host.data());
  const auto to = reinterpret_cast<CUdeviceptr>(found.data());
  CUDA_MEMCPY3D_BATCH_OP boxes[] = {
      BoxCopy(PointerOperand(from, 0, 0), PointerOperand(device, 8, 3), {3, 2, 2}),
      BoxCopy(PointerOperand(device, 8, 3), PointerOperand(to, 0, 0), {3, 2, 2}),
  };
  const CUstream stream = NewStream();
  ASSERT_EQ(cuMemcpy3DBatchAsync(2, boxes, 0, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(found, host);
  std::array<std::uint8_t, 32> laid{};
  ASSERT_EQ(cuMemcpyDtoH(laid.data(), device, laid.size()), CUDA_SUCCESS);
  EXPECT_EQ(laid, (std::array<std::uint8_t, 32>{1, 2, 3, 0, 0, 0, 0, 0, 4, 5, 6, 0, 0, 0, 0, 0,
                                                0, 0, 0, 0, 0, 0, 0, 0, 7, 8, 9, 0, 0, 0, 0, 0}));
  found = {};
  ASSERT_EQ(cuMemcpy3DWithAttributesAsync(&boxes[1], 0, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(found, host);
}

TEST_P(BatchTest, BoxesOfArraysCountTexels) {
  const CUdeviceptr device = Allocate(first_, 64);
  const CUDA_ARRAY_DESCRIPTOR shape = {
      .Width = 4, .Height = 2, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1};
  const CUDA_ARRAY_DESCRIPTOR bytes = {
      .Width = 4, .Height = 2, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
  CUarray array = nullptr, other = nullptr, narrow = nullptr;
  ASSERT_EQ(cuArrayCreate(&array, &shape), CUDA_SUCCESS);
  ASSERT_EQ(cuArrayCreate(&other, &shape), CUDA_SUCCESS);
  ASSERT_EQ(cuArrayCreate(&narrow, &bytes), CUDA_SUCCESS);
  std::array<std::uint32_t, 4> host = {1, 2, 3, 4}, found{};
  ASSERT_EQ(cuMemcpyHtoD(device, host.data(), sizeof host), CUDA_SUCCESS);
  // The copy from pageable memory may still be in progress, and a non-blocking stream would not
  // wait for it.
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  const auto to = reinterpret_cast<CUdeviceptr>(found.data());
  CUDA_MEMCPY3D_BATCH_OP boxes[] = {
      BoxCopy(PointerOperand(device, 2, 0), ArrayOperand(array, 2, 0), {2, 2, 1}),
      BoxCopy(ArrayOperand(array, 2, 0), ArrayOperand(other, 1, 0), {2, 2, 1}),
      BoxCopy(ArrayOperand(other, 1, 1), PointerOperand(to, 0, 0), {2, 1, 1}),
  };
  const CUstream stream = NewStream();
  ASSERT_EQ(cuMemcpy3DBatchAsync(3, boxes, 0, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(found, (std::array<std::uint32_t, 4>{3, 4, 0, 0}));
  CUDA_MEMCPY3D_BATCH_OP unlike =
      BoxCopy(ArrayOperand(array, 0, 0), ArrayOperand(narrow, 0, 0), {2, 1, 1});
  EXPECT_EQ(cuMemcpy3DBatchAsync(1, &unlike, 0, stream), CUDA_ERROR_INVALID_VALUE);
}

TEST_P(BatchTest, RejectsInvalidBoxes) {
  constexpr std::size_t kHuge = ~std::size_t{0};
  const CUdeviceptr device = Allocate(first_, 64);
  std::array<std::uint8_t, 64> host{};
  const auto from = PointerOperand(reinterpret_cast<CUdeviceptr>(host.data()), 0, 0);
  const CUDA_MEMCPY3D_BATCH_OP good = BoxCopy(from, PointerOperand(device, 8, 0), {4, 4, 1});
  const auto expect_rejected = [&](auto change) {
    CUDA_MEMCPY3D_BATCH_OP box = good;
    change(box);
    EXPECT_EQ(cuMemcpy3DBatchAsync(1, &box, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
  };
  CUDA_MEMCPY3D_BATCH_OP box = good;
  EXPECT_EQ(cuMemcpy3DBatchAsync(1, &box, 0, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuMemcpy3DBatchAsync(1, &box, 1, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpy3DBatchAsync(0, &box, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpy3DBatchAsync(1, nullptr, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
  expect_rejected([](auto& it) { it.extent.depth = 0; });
  expect_rejected([](auto& it) { it.extent.height = 9; });
  expect_rejected([](auto& it) { it.extent.width = kHuge; });
  expect_rejected([](auto& it) { it.dst.op.ptr.rowLength = 3; });
  expect_rejected([](auto& it) { it.dst.op.ptr.rowLength = kHuge; });
  expect_rejected([](auto& it) { it.extent.height = 1, it.dst.op.ptr.rowLength = 3; });
  expect_rejected([](auto& it) { it.dst.op.ptr.layerHeight = 3; });
  expect_rejected([](auto& it) { it.dst.type = CU_MEMCPY_OPERAND_TYPE_MAX; });
  expect_rejected([](auto& it) { it.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID; });
}

TEST_P(BatchTest, SourceReadDuringTheCallMayChangeAfterwards) {
  constexpr std::size_t kBytes = 4096;
  constexpr std::size_t kWorkBytes = std::size_t{64} << 20;
  CUdeviceptr device = Allocate(first_, kBytes);
  const CUdeviceptr work = Allocate(first_, kWorkBytes);
  void* host = nullptr;
  ASSERT_EQ(cuMemHostAlloc(&host, kBytes, 0), CUDA_SUCCESS);
  auto from = reinterpret_cast<CUdeviceptr>(host);
  const CUstream stream = NewStream();
  CUmemcpyAttributes hints = {};
  hints.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
  std::size_t bytes = kBytes, first = 0;
  CUDA_MEMCPY3D_BATCH_OP box =
      BoxCopy(PointerOperand(from, 0, 0), PointerOperand(device, 0, 0), {kBytes, 1, 1});
  box.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
  const auto copy = [&](int form) {
    if (form == 0) return cuMemcpyBatchAsync(&device, &from, &bytes, 1, &hints, &first, 1, stream);
    if (form == 1) return cuMemcpyWithAttributesAsync(device, from, bytes, &hints, stream);
    return cuMemcpy3DBatchAsync(1, &box, 0, stream);
  };
  for (int form = 0; form < 3; ++form) {
    std::memset(host, 1, kBytes);
    // Work that delays the copy, so that it would read the changed memory if it read late.
    for (int i = 0; i < 8; ++i) {
      ASSERT_EQ(cuMemsetD8Async(work, 0, kWorkBytes, stream), CUDA_SUCCESS);
    }
    ASSERT_EQ(copy(form), CUDA_SUCCESS);
    std::memset(host, 2, kBytes);
    ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
    std::uint8_t found = 0;
    ASSERT_EQ(cuMemcpyDtoH(&found, device, 1), CUDA_SUCCESS);
    EXPECT_EQ(found, 1);
  }
  // A captured copy reads its source only when the graph runs.
  ASSERT_EQ(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
  EXPECT_EQ(cuMemcpyWithAttributesAsync(device, from, bytes, &hints, stream), CUDA_SUCCESS);
  CUgraph graph = nullptr;
  ASSERT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  std::size_t nodes = 0;
  ASSERT_EQ(cuGraphGetNodes(graph, nullptr, &nodes), CUDA_SUCCESS);
  EXPECT_EQ(nodes, 1U);
}

INSTANTIATE_TEST_SUITE_P(Of, BatchTest, ::testing::Values(0),
                         [](const auto&) { return std::string("Copies"); });

}  // namespace
}  // namespace gpushared::testing

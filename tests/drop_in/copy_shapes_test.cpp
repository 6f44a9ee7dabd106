// SPDX-License-Identifier: Apache-2.0
// Copies and fills whose shapes CUDA's header forbids, through each call that takes a shape.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <cuda.h>
#include <gtest/gtest.h>

#include "tests/drop_in/server_case.h"

namespace gpushared {
namespace {

// Returns a value outside the enumeration, as a C program may pass it.
CUmemorytype GetType(int number) {
  CUmemorytype type{};
  std::memcpy(&type, &number, sizeof number);
  return type;
}

// The valid copy has 4 rows of 32 bytes, within slices of 8 rows of 64 bytes on both sides.
class CopyShapesTest : public testing::DropInServerCase {
 protected:
  static constexpr std::size_t kMemory = 8192;

  CopyShapesTest() : host_(kMemory) {
    UsePrimary();
    EXPECT_EQ(cuMemAlloc(&memory_, kMemory), CUDA_SUCCESS);
  }

  CUDA_MEMCPY3D Box() {
    CUDA_MEMCPY3D box{};
    box.srcMemoryType = CU_MEMORYTYPE_HOST;
    box.srcHost = host_.data();
    box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    box.dstDevice = memory_;
    box.srcPitch = box.dstPitch = 64;
    box.srcHeight = box.dstHeight = 8;
    box.WidthInBytes = 32;
    box.Height = 4;
    box.Depth = 2;
    return box;
  }
  CUDA_MEMCPY2D Plane() {
    CUDA_MEMCPY2D plane{};
    plane.srcMemoryType = CU_MEMORYTYPE_HOST;
    plane.srcHost = host_.data();
    plane.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    plane.dstDevice = memory_;
    plane.srcPitch = plane.dstPitch = 64;
    plane.WidthInBytes = 32;
    plane.Height = 4;
    return plane;
  }
  // Tries the copy through all calls. A graph node is already rejected when it is created.
  void Expect(CUDA_MEMCPY3D box, CUresult expected, const char* what) {
    EXPECT_EQ(cuMemcpy3D(&box), expected) << what;
    EXPECT_EQ(cuMemcpy3DAsync(&box, nullptr), expected) << what;
    CUgraph graph = nullptr;
    CUgraphNode node = nullptr;
    EXPECT_EQ(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &box, context_), expected) << what;
    EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
  }
  void Expect(CUDA_MEMCPY2D plane, CUresult expected, const char* what) {
    EXPECT_EQ(cuMemcpy2D(&plane), expected) << what;
    EXPECT_EQ(cuMemcpy2DUnaligned(&plane), expected) << what;
    EXPECT_EQ(cuMemcpy2DAsync(&plane, nullptr), expected) << what;
  }
  // A change to a valid copy, and the expected result.
  template <typename Copy>
  struct Case {
    const char* what;
    CUresult expected;
    void (*change)(Copy&);
  };
  template <typename Copy, std::size_t kCases>
  void ExpectAll(const Copy& good, const Case<Copy> (&cases)[kCases]) {
    for (const Case<Copy>& it : cases) {
      Copy copy = good;
      it.change(copy);
      Expect(copy, it.expected, it.what);
    }
  }
  using Planes = Case<CUDA_MEMCPY2D>;
  using Boxes = Case<CUDA_MEMCPY3D>;
  static constexpr CUresult kRight = CUDA_SUCCESS;
  static constexpr CUresult kWrong = CUDA_ERROR_INVALID_VALUE;

  std::vector<unsigned char> host_;
  CUdeviceptr memory_ = 0;
};

TEST_F(CopyShapesTest, PitchCoversARowAndItsOffset) {
  const Planes cases[] = {
      {"to the end", kRight, [](auto& it) { it.srcXInBytes = it.dstXInBytes = 32; }},
      {"source x", kWrong, [](auto& it) { it.srcXInBytes = 33; }},
      {"destination x", kWrong, [](auto& it) { it.dstXInBytes = 33; }},
      {"source pitch", kWrong, [](auto& it) { it.srcPitch = 31; }},
      {"destination pitch", kWrong, [](auto& it) { it.dstPitch = 31; }},
      {"a sum that wraps", kWrong, [](auto& it) { it.srcXInBytes = SIZE_MAX; }},
      {"one row", kWrong, [](auto& it) { it.Height = 1, it.srcPitch = 31; }},
      // According to the header, a pitch must cover the row "if specified". A pitch of 0 counts as
      // not specified.
      {"no pitch", kRight, [](auto& it) { it.srcPitch = it.dstPitch = 0; }},
      {"beyond the maximum", kWrong, [](auto& it) { it.srcPitch = std::size_t{1} << 31; }},
      {"rows that wrap", kWrong, [](auto& it) { it.srcY = SIZE_MAX; }},
      {"no bytes", kRight, [](auto& it) { it.WidthInBytes = 0, it.srcPitch = 1; }},
      // The last row may end at the end of the memory, although its pitch would reach further.
      {"the last rows", kRight, [](auto& it) { it.dstY = kMemory / 64 - 4; }},
      {"one row beyond", kWrong, [](auto& it) { it.dstY = kMemory / 64 - 3; }},
      // NVIDIA's driver accepts an x offset of several rows, and Dr.Jit relies on that.
      {"rows in front", kRight, [](auto& it) { it.srcXInBytes = it.dstXInBytes = 3 * 64 + 32; }},
      {"across rows", kWrong, [](auto& it) { it.dstXInBytes = 3 * 64 + 33; }},
  };
  ExpectAll(Plane(), cases);
}

TEST_F(CopyShapesTest, HeightCoversTheRowsAndTheirOffset) {
  const Boxes cases[] = {
      {"to the end", kRight, [](auto& it) { it.srcY = it.dstY = 4; }},
      {"source y", kWrong, [](auto& it) { it.srcY = 5; }},
      {"destination y", kWrong, [](auto& it) { it.dstY = 5; }},
      {"source height", kWrong, [](auto& it) { it.srcHeight = 3; }},
      {"destination height", kWrong, [](auto& it) { it.dstHeight = 3; }},
      {"destination x", kWrong, [](auto& it) { it.dstXInBytes = 33; }},
      {"no height", kRight, [](auto& it) { it.srcHeight = it.dstHeight = 0; }},
      {"no slices", kRight, [](auto& it) { it.Depth = 0, it.srcHeight = 1; }},
      {"the last slice", kRight, [](auto& it) { it.Depth = 1, it.dstZ = 15; }},
      {"source level", kWrong, [](auto& it) { it.srcLOD = 1; }},
      {"destination level", kWrong, [](auto& it) { it.dstLOD = 1; }},
      {"type 9", kWrong, [](auto& it) { it.srcMemoryType = GetType(9); }},
      {"type 0", kWrong, [](auto& it) { it.dstMemoryType = GetType(0); }},
  };
  ExpectAll(Box(), cases);
  CUDA_MEMCPY3D box = Box();
  box.dstZ = 16;
  EXPECT_EQ(cuMemcpy3D(&box), kWrong) << "beyond the allocation";
}

TEST_F(CopyShapesTest, AcceptsXOffsetOfSeveralRows) {
  CUDA_MEMCPY2D plane = Plane();
  for (std::size_t i = 0; i < kMemory; ++i) host_[i] = static_cast<unsigned char>(i * 7 + 3);
  plane.srcXInBytes = 2 * 64 + 8;
  plane.dstXInBytes = 5 * 64 + 16;
  ASSERT_EQ(cuMemcpy2D(&plane), CUDA_SUCCESS);
  std::vector<unsigned char> copied(kMemory);
  ASSERT_EQ(cuMemcpyDtoH(copied.data(), memory_, kMemory), CUDA_SUCCESS);
  for (std::size_t row = 0; row < 4; ++row) {
    const auto from = host_.begin() + static_cast<std::ptrdiff_t>((row + 2) * 64 + 8);
    const auto to = copied.begin() + static_cast<std::ptrdiff_t>((row + 5) * 64 + 16);
    EXPECT_TRUE(std::equal(from, from + 32, to)) << row;
  }
}

TEST_F(CopyShapesTest, FillsNeedPitchesOfWholeRows) {
  EXPECT_EQ(cuMemsetD2D32(memory_, 64, 1, 16, 4), CUDA_SUCCESS);
  EXPECT_EQ(cuMemsetD2D32(memory_, 60, 1, 16, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemsetD2D32(memory_, 66, 1, 16, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemsetD2D32(memory_, 0, 1, 16, 1), CUDA_SUCCESS) << "unused if the height is 1";
  EXPECT_EQ(cuMemsetD2D16(memory_ + 1, 64, 1, 16, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemsetD2D8(memory_, 64, 1, 64, kMemory / 64), CUDA_SUCCESS);
  EXPECT_EQ(cuMemsetD2D8(memory_, 64, 1, 64, kMemory / 64 + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemsetD2D8(memory_, SIZE_MAX, 1, 64, 3), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(CopyShapesTest, FillNodesAndCapturesRejectTheSameShapes) {
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  ASSERT_EQ(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
  CUDA_MEMSET_NODE_PARAMS fill{};
  fill.dst = memory_;
  fill.elementSize = 4;
  fill.width = 16;
  fill.height = 4;
  fill.pitch = 60;
  EXPECT_EQ(cuGraphAddMemsetNode(&node, graph, nullptr, 0, &fill, context_),
            CUDA_ERROR_INVALID_VALUE);
  fill.pitch = 64;
  EXPECT_EQ(cuGraphAddMemsetNode(&node, graph, nullptr, 0, &fill, context_), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
  const CUstream stream = NewStream();
  ASSERT_EQ(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(cuMemsetD2D32Async(memory_, 60, 1, 16, 4, stream), CUDA_ERROR_INVALID_VALUE);
  CUDA_MEMCPY2D plane = Plane();
  plane.srcPitch = 31;
  EXPECT_EQ(cuMemcpy2DAsync(&plane, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
}

}  // namespace
}  // namespace gpushared

// SPDX-License-Identifier: Apache-2.0
// Arrays, textures and surfaces as used by programs of the driver interface.
#include <array>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <numeric>
#include <string>
#include <vector>

#include <cuda.h>
#include <gtest/gtest.h>

#include "tests/drop_in/server_case.h"

namespace gpushared {
namespace {

class DropInTextureTest : public testing::DropInServerCase {
 protected:
  void SetUp() override {
    UsePrimary();
    std::ifstream file(GPUSHARED_TEXTURE_PTX);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    ASSERT_EQ(cuModuleLoadData(&module_, text.c_str()), CUDA_SUCCESS);
    ASSERT_EQ(cuMemAlloc(&out_, kOutBytes), CUDA_SUCCESS);
    ASSERT_EQ(cuMemsetD8(out_, 0xee, kOutBytes), CUDA_SUCCESS);
  }

  static CUarray Array(std::size_t width, std::size_t height, std::size_t depth,
                       CUarray_format format, unsigned channels, unsigned flags = 0) {
    const CUDA_ARRAY3D_DESCRIPTOR shape = {width, height, depth, format, channels, flags};
    CUarray array = nullptr;
    EXPECT_EQ(cuArray3DCreate(&array, &shape), CUDA_SUCCESS);
    return array;
  }
  static CUDA_RESOURCE_DESC Of(CUarray array) {
    CUDA_RESOURCE_DESC resource = {};
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = array;
    return resource;
  }
  static CUtexObject Texture(const CUDA_RESOURCE_DESC& resource, const CUDA_TEXTURE_DESC& mode) {
    CUtexObject texture = 0;
    EXPECT_EQ(cuTexObjectCreate(&texture, &resource, &mode, nullptr), CUDA_SUCCESS);
    return texture;
  }
  template <typename... Arguments>
  CUresult Run(const char* kernel, std::array<unsigned, 3> grid, std::array<unsigned, 3> block,
               Arguments... arguments) {
    void* parameters[] = {&arguments...};
    const CUresult launched = cuLaunchKernel(Function(kernel), grid[0], grid[1], grid[2], block[0],
                                             block[1], block[2], 0, nullptr, parameters, nullptr);
    return launched != CUDA_SUCCESS ? launched : cuCtxSynchronize();
  }
  template <typename T>
  std::vector<T> Out(std::size_t count) {
    std::vector<T> read(count);
    EXPECT_EQ(cuMemcpyDtoH(read.data(), out_, count * sizeof(T)), CUDA_SUCCESS);
    return read;
  }

  static constexpr std::size_t kOutBytes = std::size_t{1} << 20;
  CUdeviceptr out_ = 0;
};

// Based on the toolkit's sample simpleTextureDrv: a picture that repeats itself, rotated by half a
// radian.
TEST_F(DropInTextureTest, RotatedPictureEqualsHostReference) {
  constexpr int kWidth = 96, kHeight = 80;
  std::vector<float> picture(kWidth * kHeight);
  for (int i = 0; i < kWidth * kHeight; ++i) {
    picture[static_cast<std::size_t>(i)] = static_cast<float>(i * 37 % 251) / 251;
  }
  const CUDA_ARRAY_DESCRIPTOR shape = {kWidth, kHeight, CU_AD_FORMAT_FLOAT, 1};
  CUarray array = nullptr;
  ASSERT_EQ(cuArrayCreate(&array, &shape), CUDA_SUCCESS);
  CUDA_MEMCPY2D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = picture.data();
  copy.srcPitch = copy.WidthInBytes = kWidth * sizeof(float);
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = array;
  copy.Height = kHeight;
  ASSERT_EQ(cuMemcpy2D(&copy), CUDA_SUCCESS);
  CUDA_TEXTURE_DESC mode = {};
  mode.addressMode[0] = mode.addressMode[1] = mode.addressMode[2] = CU_TR_ADDRESS_MODE_WRAP;
  mode.filterMode = CU_TR_FILTER_MODE_LINEAR;
  mode.flags = CU_TRSF_NORMALIZED_COORDINATES;
  const CUtexObject texture = Texture(Of(array), mode);

  const float cosine = std::cos(0.5f), sine = std::sin(0.5f);
  ASSERT_EQ(Run("turn", {(kWidth + 7) / 8, (kHeight + 7) / 8, 1}, {8, 8, 1}, out_, texture, kWidth,
                kHeight, cosine, sine),
            CUDA_SUCCESS);
  const std::vector<float> turned = Out<float>(kWidth * kHeight);
  const auto at = [&](int x, int y) {
    x = (x % kWidth + kWidth) % kWidth, y = (y % kHeight + kHeight) % kHeight;
    return static_cast<double>(picture[static_cast<std::size_t>(y * kWidth + x)]);
  };
  for (int y = 0; y < kHeight; ++y) {
    for (int x = 0; x < kWidth; ++x) {
      const double u = (x + 0.5) / kWidth - 0.5, v = (y + 0.5) / kHeight - 0.5;
      const double a = (u * cosine - v * sine + 0.5) * kWidth - 0.5;
      const double b = (v * cosine + u * sine + 0.5) * kHeight - 0.5;
      const int i = static_cast<int>(std::floor(a)), j = static_cast<int>(std::floor(b));
      const double fx = a - i, fy = b - j;
      const double wanted = (1 - fx) * (1 - fy) * at(i, j) + fx * (1 - fy) * at(i + 1, j) +
                            (1 - fx) * fy * at(i, j + 1) + fx * fy * at(i + 1, j + 1);
      // The weights of interpolation are rounded, each by at most 1/512, hence the tolerance.
      ASSERT_NEAR(turned[static_cast<std::size_t>(y * kWidth + x)], wanted, 0.005) << x << " " << y;
    }
  }
  EXPECT_EQ(cuTexObjectDestroy(texture), CUDA_SUCCESS);
  EXPECT_EQ(cuArrayDestroy(array), CUDA_SUCCESS);
}

TEST_F(DropInTextureTest, LinearMemoryIsFetchedByIndexAndIsZeroOutside) {
  std::vector<unsigned char> bytes(64);
  std::iota(bytes.begin(), bytes.end(), 1);
  CUdeviceptr memory = 0;
  ASSERT_EQ(cuMemAlloc(&memory, bytes.size()), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyHtoD(memory, bytes.data(), bytes.size()), CUDA_SUCCESS);
  CUDA_RESOURCE_DESC resource = {};
  resource.resType = CU_RESOURCE_TYPE_LINEAR;
  resource.res.linear = {memory, CU_AD_FORMAT_UNSIGNED_INT8, 4, bytes.size()};
  // Bytes are read as fractions, because the flag to read integers is not set.
  const CUtexObject texture = Texture(resource, {});
  ASSERT_EQ(Run("fetch", {1, 1, 1}, {24, 1, 1}, out_, texture, -4), CUDA_SUCCESS);
  const std::vector<float> read = Out<float>(24 * 4);
  for (std::size_t i = 0; i < read.size(); ++i) {
    const bool is_inside = i >= 16 && i < 16 + bytes.size();
    EXPECT_EQ(read[i], is_inside ? static_cast<float>(bytes[i - 16]) / 255.0f : 0.0f) << i;
  }
  // Freed memory belongs to this client until another client allocates it, so the kernel neither
  // faults nor reads another client's bytes.
  ASSERT_EQ(cuMemFree(memory), CUDA_SUCCESS);
  EXPECT_EQ(Run("fetch", {1, 1, 1}, {24, 1, 1}, out_, texture, 0), CUDA_SUCCESS);
}

TEST_F(DropInTextureTest, SamplesPitchedMemory) {
  constexpr std::size_t kPitch = 128;
  std::vector<float> rows(kPitch / 4 * 5);
  std::iota(rows.begin(), rows.end(), 0.5f);
  CUdeviceptr memory = 0;
  ASSERT_EQ(cuMemAlloc(&memory, rows.size() * 4), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyHtoD(memory, rows.data(), rows.size() * 4), CUDA_SUCCESS);
  CUDA_RESOURCE_DESC resource = {};
  resource.resType = CU_RESOURCE_TYPE_PITCH2D;
  resource.res.pitch2D = {memory, CU_AD_FORMAT_FLOAT, 4, 3, 5, kPitch};
  CUDA_TEXTURE_DESC mode = {};
  mode.addressMode[0] = CU_TR_ADDRESS_MODE_BORDER;
  mode.addressMode[1] = CU_TR_ADDRESS_MODE_CLAMP;
  mode.borderColor[2] = 7;
  const CUtexObject texture = Texture(resource, mode);
  ASSERT_EQ(Run("sample_rows", {1, 1, 1}, {4, 6, 1}, out_, texture), CUDA_SUCCESS);
  const std::vector<float> read = Out<float>(4 * 6 * 4);
  for (std::size_t y = 0; y < 6; ++y) {
    for (std::size_t x = 0; x < 4; ++x) {
      for (std::size_t c = 0; c < 4; ++c) {
        const float inside = rows[std::min<std::size_t>(y, 4) * (kPitch / 4) + x * 4 + c];
        const float border = c == 2 ? 7.0f : 0.0f;
        EXPECT_EQ(read[(y * 4 + x) * 4 + c], x < 3 ? inside : border) << x << " " << y;
      }
    }
  }
}

// A box is copied from the host to one array, from there to another, and is sampled.
TEST_F(DropInTextureTest, ArraysAreCopiedInThreeDimensions) {
  constexpr std::size_t kX = 5, kY = 4, kZ = 3, kTexels = kX * kY * kZ;
  std::vector<short> box(kTexels);
  std::iota(box.begin(), box.end(), static_cast<short>(-20));
  const CUarray first = Array(kX, kY, kZ, CU_AD_FORMAT_SIGNED_INT16, 1);
  const CUarray second = Array(kX + 2, kY + 1, kZ + 1, CU_AD_FORMAT_SIGNED_INT16, 1);
  CUDA_MEMCPY3D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = box.data();
  copy.srcPitch = kX * 2;
  copy.srcHeight = kY;
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = first;
  copy.WidthInBytes = kX * 2, copy.Height = kY, copy.Depth = kZ;
  ASSERT_EQ(cuMemcpy3D(&copy), CUDA_SUCCESS);
  CUDA_MEMCPY3D across = {};
  across.srcMemoryType = across.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  across.srcArray = first;
  across.dstArray = second;
  across.dstXInBytes = 4, across.dstY = 1, across.dstZ = 1;
  across.WidthInBytes = kX * 2, across.Height = kY, across.Depth = kZ;
  ASSERT_EQ(cuMemcpy3DAsync(&across, nullptr), CUDA_SUCCESS);
  CUDA_MEMCPY3D back = {};
  std::vector<short> read(kTexels);
  back.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  back.srcArray = second;
  back.srcXInBytes = 4, back.srcY = 1, back.srcZ = 1;
  back.dstMemoryType = CU_MEMORYTYPE_HOST;
  back.dstHost = read.data();
  back.dstPitch = kX * 2;
  back.dstHeight = kY;
  back.WidthInBytes = kX * 2, back.Height = kY, back.Depth = kZ;
  ASSERT_EQ(cuMemcpy3D(&back), CUDA_SUCCESS);
  EXPECT_EQ(read, box);

  CUDA_TEXTURE_DESC mode = {};
  mode.flags = CU_TRSF_READ_AS_INTEGER;
  const CUtexObject texture = Texture(Of(first), mode);
  ASSERT_EQ(Run("sample_box", {1, 1, 1}, {kX, kY, kZ}, out_, texture), CUDA_SUCCESS);
  EXPECT_EQ(Out<short>(kTexels), box);
  CUDA_ARRAY3D_DESCRIPTOR shape = {};
  ASSERT_EQ(cuArray3DGetDescriptor(&shape, second), CUDA_SUCCESS);
  EXPECT_EQ(shape.Width, kX + 2);
  EXPECT_EQ(shape.Depth, kZ + 1);
  EXPECT_EQ(shape.Format, CU_AD_FORMAT_SIGNED_INT16);

  // One texel further would be outside, whatever memory follows the array.
  across.dstZ = 2;
  EXPECT_EQ(cuMemcpy3D(&across), CUDA_ERROR_INVALID_VALUE);
  across.dstZ = 1, across.dstXInBytes = 6;
  EXPECT_EQ(cuMemcpy3D(&across), CUDA_ERROR_INVALID_VALUE);
  across.dstXInBytes = 3;
  EXPECT_EQ(cuMemcpy3D(&across), CUDA_ERROR_INVALID_VALUE);
  across.dstXInBytes = 4, across.dstY = ~std::size_t{0};
  EXPECT_EQ(cuMemcpy3D(&across), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DropInTextureTest, ArraysAreCopiedByBytes) {
  const CUarray from = Array(40, 0, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1);
  const CUarray to = Array(40, 0, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1);
  std::vector<unsigned> numbers(40), read(40);
  std::iota(numbers.begin(), numbers.end(), 100u);
  ASSERT_EQ(cuMemcpyHtoA(from, 0, numbers.data(), 160), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyAtoA(to, 8, from, 0, 80), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyAtoD(out_, to, 8, 80), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyDtoA(to, 88, out_, 72), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyHtoAAsync(to, 0, numbers.data(), 8, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyAtoHAsync(read.data(), to, 0, 80, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyAtoH(read.data() + 20, to, 80, 80), CUDA_SUCCESS);
  std::vector<unsigned> wanted = {100, 101};
  for (unsigned i = 0; i < 20; ++i) wanted.push_back(100 + i);
  for (unsigned i = 0; i < 18; ++i) wanted.push_back(100 + i);
  EXPECT_EQ(read, wanted);
  EXPECT_EQ(cuMemcpyAtoH(read.data(), to, 4, 160), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyHtoA(to, ~std::size_t{0}, numbers.data(), 4), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuArrayDestroy(to), CUDA_SUCCESS);
  EXPECT_EQ(cuMemcpyAtoH(read.data(), to, 0, 4), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuArrayDestroy(to), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(DropInTextureTest, KernelsWriteToSurfaces) {
  const CUarray array = Array(8, 4, 0, CU_AD_FORMAT_SIGNED_INT32, 1, CUDA_ARRAY3D_SURFACE_LDST);
  std::vector<int> numbers(32);
  std::iota(numbers.begin(), numbers.end(), -5);
  ASSERT_EQ(cuMemcpyHtoA(array, 0, numbers.data(), 128), CUDA_SUCCESS);
  const CUDA_RESOURCE_DESC resource = Of(array);
  CUsurfObject surface = 0;
  ASSERT_EQ(cuSurfObjectCreate(&surface, &resource), CUDA_SUCCESS);
  ASSERT_EQ(Run("add_one", {1, 1, 1}, {8, 4, 1}, surface), CUDA_SUCCESS);
  std::vector<int> read(32);
  ASSERT_EQ(cuMemcpyAtoH(read.data(), array, 0, 128), CUDA_SUCCESS);
  for (int& number : numbers) ++number;
  EXPECT_EQ(read, numbers);
  CUDA_RESOURCE_DESC same = {};
  ASSERT_EQ(cuSurfObjectGetResourceDesc(&same, surface), CUDA_SUCCESS);
  EXPECT_EQ(same.res.array.hArray, array);
  // A surface cannot be destroyed as a texture, nor twice.
  EXPECT_EQ(cuTexObjectDestroy(surface), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuSurfObjectDestroy(surface), CUDA_SUCCESS);
  EXPECT_EQ(cuSurfObjectDestroy(surface), CUDA_ERROR_INVALID_VALUE);
  // The kernel writes one row more than the array has.
  ASSERT_EQ(cuSurfObjectCreate(&surface, &resource), CUDA_SUCCESS);
  EXPECT_EQ(Run("add_one", {1, 1, 1}, {8, 5, 1}, surface), CUDA_ERROR_LAUNCH_FAILED);
}

// Integers are not interpolated.
TEST_F(DropInTextureTest, IntegersAreReadAtTheNearestTexelDespiteLinearFilter) {
  const CUarray array = Array(2, 2, 2, CU_AD_FORMAT_SIGNED_INT16, 1);
  const short numbers[] = {10, -20, 30, -40, 50, -60, 70, -80};
  CUDA_MEMCPY3D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = numbers;
  copy.srcPitch = copy.WidthInBytes = 4;
  copy.srcHeight = copy.Height = copy.Depth = 2;
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = array;
  ASSERT_EQ(cuMemcpy3D(&copy), CUDA_SUCCESS);
  CUDA_TEXTURE_DESC mode = {};
  mode.filterMode = CU_TR_FILTER_MODE_LINEAR;
  mode.flags = CU_TRSF_READ_AS_INTEGER;
  const CUtexObject texture = Texture(Of(array), mode);
  ASSERT_EQ(Run("sample_box", {1, 1, 1}, {2, 2, 2}, out_, texture), CUDA_SUCCESS);
  EXPECT_EQ(Out<short>(8), std::vector<short>(numbers, numbers + 8));
  CUDA_TEXTURE_DESC same = {};
  ASSERT_EQ(cuTexObjectGetTextureDesc(&same, texture), CUDA_SUCCESS);
  EXPECT_EQ(same.filterMode, CU_TR_FILTER_MODE_LINEAR) << "must return the requested mode";
}

TEST_F(DropInTextureTest, ReturnsDescriptorsAndRejectsInvalidOnes) {
  const CUarray array = Array(4, 4, 0, CU_AD_FORMAT_UNSIGNED_INT8, 2);
  CUDA_TEXTURE_DESC mode = {};
  mode.addressMode[1] = CU_TR_ADDRESS_MODE_MIRROR;
  const CUtexObject texture = Texture(Of(array), mode);
  CUDA_TEXTURE_DESC same = {};
  ASSERT_EQ(cuTexObjectGetTextureDesc(&same, texture), CUDA_SUCCESS);
  EXPECT_EQ(std::memcmp(&same, &mode, sizeof mode), 0);
  CUDA_RESOURCE_DESC resource = {};
  ASSERT_EQ(cuTexObjectGetResourceDesc(&resource, texture), CUDA_SUCCESS);
  EXPECT_EQ(resource.res.array.hArray, array);
  CUDA_RESOURCE_VIEW_DESC view = {};
  EXPECT_EQ(cuTexObjectGetResourceViewDesc(&view, texture), CUDA_ERROR_INVALID_VALUE);

  CUtexObject none = 0;
  const auto rejected = [&](const CUDA_RESOURCE_DESC& what, const CUDA_TEXTURE_DESC& how) {
    return cuTexObjectCreate(&none, &what, &how, nullptr);
  };
  EXPECT_EQ(cuTexObjectCreate(&none, &resource, &mode, &view), CUDA_ERROR_NOT_SUPPORTED);
  view = {};
  view.format = CU_RES_VIEW_FORMAT_UINT_2X8;
  view.width = view.height = 4;
  ASSERT_EQ(cuTexObjectCreate(&none, &resource, &mode, &view), CUDA_SUCCESS)
      << "the view repeats the array's format";
  CUDA_RESOURCE_VIEW_DESC same_view = {};
  ASSERT_EQ(cuTexObjectGetResourceViewDesc(&same_view, none), CUDA_SUCCESS);
  EXPECT_EQ(std::memcmp(&same_view, &view, sizeof view), 0);
  view.format = CU_RES_VIEW_FORMAT_SINT_2X8;
  EXPECT_EQ(cuTexObjectCreate(&none, &resource, &mode, &view), CUDA_ERROR_NOT_SUPPORTED);
  view.format = CU_RES_VIEW_FORMAT_NONE;
  view.height = 2;
  EXPECT_EQ(cuTexObjectCreate(&none, &resource, &mode, &view), CUDA_ERROR_NOT_SUPPORTED);
  CUDA_RESOURCE_DESC flat = {};
  flat.resType = CU_RESOURCE_TYPE_LINEAR;
  flat.res.linear = {out_, CU_AD_FORMAT_FLOAT, 1, 64};
  EXPECT_EQ(cuTexObjectCreate(&none, &flat, &mode, &view), CUDA_ERROR_INVALID_VALUE) << "no array";
  CUDA_TEXTURE_DESC odd = {};
  for (const unsigned flag : {CU_TRSF_SRGB, CU_TRSF_SEAMLESS_CUBEMAP}) {
    odd.flags = flag;
    EXPECT_EQ(rejected(resource, odd), CUDA_ERROR_NOT_SUPPORTED);
  }
  odd.flags = 0x80;
  EXPECT_EQ(rejected(resource, odd), CUDA_ERROR_INVALID_VALUE);
  odd = {};
  odd.maxAnisotropy = 2;
  EXPECT_EQ(rejected(resource, odd), CUDA_ERROR_NOT_SUPPORTED);
  odd = {};
  constexpr int kNoMode = 4;
  std::memcpy(&odd.addressMode[1], &kNoMode, sizeof kNoMode);
  EXPECT_EQ(rejected(resource, odd), CUDA_ERROR_INVALID_VALUE);
  CUDA_RESOURCE_DESC other = {};
  other.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
  EXPECT_EQ(rejected(other, mode), CUDA_ERROR_NOT_SUPPORTED);
  other.resType = CU_RESOURCE_TYPE_LINEAR;
  other.res.linear = {out_, CU_AD_FORMAT_FLOAT, 1, kOutBytes + 4};
  EXPECT_EQ(rejected(other, mode), CUDA_ERROR_INVALID_VALUE) << "beyond the allocation";
  other.res.linear = {out_ + 2, CU_AD_FORMAT_FLOAT, 1, 64};
  EXPECT_EQ(rejected(other, mode), CUDA_ERROR_INVALID_VALUE) << "between two texels";
  other.resType = CU_RESOURCE_TYPE_PITCH2D;
  other.res.pitch2D = {out_, CU_AD_FORMAT_FLOAT, 1, 16, 1 << 14, 128};
  EXPECT_EQ(rejected(other, mode), CUDA_ERROR_INVALID_VALUE) << "more rows than the memory has";
  other.res.pitch2D = {out_, CU_AD_FORMAT_FLOAT, 1, 16, 4, 60};
  EXPECT_EQ(rejected(other, mode), CUDA_ERROR_INVALID_VALUE) << "rows that overlap";
  CUsurfObject surface = 0;
  EXPECT_EQ(cuSurfObjectCreate(&surface, &resource), CUDA_ERROR_INVALID_VALUE)
      << "the array was not created for surfaces";

  CUarray bad = nullptr;
  const auto array_rejected = [&](const CUDA_ARRAY3D_DESCRIPTOR& shape) {
    return cuArray3DCreate(&bad, &shape);
  };
  EXPECT_EQ(array_rejected({0, 4, 0, CU_AD_FORMAT_FLOAT, 1, 0}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(array_rejected({4, 0, 4, CU_AD_FORMAT_FLOAT, 1, 0}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(array_rejected({4, 4, 0, CU_AD_FORMAT_FLOAT, 3, 0}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(array_rejected({4, 1 << 17, 0, CU_AD_FORMAT_FLOAT, 1, 0}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(array_rejected({4, 4, 0, CU_AD_FORMAT_NV12, 1, 0}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(array_rejected({4, 4, 4, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_LAYERED}),
            CUDA_ERROR_NOT_SUPPORTED);
}

// An invalid handle fails only this program's kernel, as an invalid pointer does.
TEST_F(DropInTextureTest, InvalidTextureFaultsItsKernel) {
  EXPECT_EQ(Run("fetch", {1, 1, 1}, {1, 1, 1}, out_, CUtexObject{12345}, 0),
            CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(DropInTextureTest, ArraysAndTexturesEndWithTheirContext) {
  CUcontext other = nullptr;
  ASSERT_EQ(cuCtxCreate(&other, nullptr, 0, 0), CUDA_SUCCESS);
  const CUarray array = Array(4, 4, 0, CU_AD_FORMAT_FLOAT, 1);
  const CUtexObject texture = Texture(Of(array), {});
  ASSERT_EQ(cuCtxDestroy(other), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSetCurrent(context_), CUDA_SUCCESS);
  EXPECT_EQ(cuArrayDestroy(array), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuTexObjectDestroy(texture), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace gpushared

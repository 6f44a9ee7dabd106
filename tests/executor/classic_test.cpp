// SPDX-License-Identifier: Apache-2.0
// Whole kernels compared with host code that computes the same in another way: exactly for integers
// and where the order of operations is the same, otherwise within a stated bound.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "tests/executor/half_reference.h"
#include "tests/executor/kernel_file.h"

namespace gpushared::testing {
namespace {

class Classic : public KernelFile {
 protected:
  Classic() : KernelFile("classic") {}

  float* Floats(std::size_t count, u32 seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> value(-1, 1);
    float* at = launcher.Allocate<float>(count);
    std::generate(at, at + count, [&] { return value(random); });
    return at;
  }
};
class Halves : public KernelFile {
 protected:
  Halves() : KernelFile("halves") {}
};

TEST_P(Classic, VectorsAddAndScale) {
  constexpr int kN = 1000;
  const float *a = Floats(kN, 1), *b = Floats(kN, 2);
  float *c = launcher.Allocate<float>(kN), *y = Floats(kN, 3);
  const std::vector<float> before(y, y + kN);
  Run("vector_add", {4, 1, 1}, {256, 1, 1}, a, b, c, kN);
  Run("saxpy", {2, 1, 1}, {96, 1, 1}, kN, 2.5f, a, y);
  for (int i = 0; i < kN; ++i) {
    ASSERT_EQ(c[i], a[i] + b[i]);
    ASSERT_EQ(y[i], std::fma(2.5f, a[i], before[static_cast<std::size_t>(i)]));
  }
}

// Both products add in the same order with fused operations, so they must be equal to the last bit.
TEST_P(Classic, MatrixProducts) {
  constexpr int kN = 48;
  const float *a = Floats(kN * kN, 1), *b = Floats(kN * kN, 2);
  float *tiled = launcher.Allocate<float>(kN * kN), *naive = launcher.Allocate<float>(kN * kN);
  Run("matrix_product_tiled", {3, 3, 1}, {16, 16, 1}, a, b, tiled, kN);
  Run("matrix_product_naive", {3, 6, 1}, {16, 8, 1}, a, b, naive, kN);
  for (int row = 0; row < kN; ++row) {
    for (int column = 0; column < kN; ++column) {
      float sum = 0;
      for (int k = 0; k < kN; ++k) sum = std::fma(a[row * kN + k], b[k * kN + column], sum);
      ASSERT_EQ(tiled[row * kN + column], sum);
      ASSERT_EQ(naive[row * kN + column], sum);
    }
  }
}

TEST_P(Classic, ReductionAndScan) {
  constexpr int kN = 10000;
  float* values = Floats(kN, 1);
  float* total = launcher.Allocate<float>(1);
  Run("reduce", {5, 1, 1}, {256, 1, 1}, values, total, kN);
  const double exact = std::accumulate(values, values + kN, 0.0);
  // Each value passes through at most 21 rounded additions, so the error is at most 21 * 2^-24 of
  // the sum of the magnitudes, which is about 5000.
  EXPECT_NEAR(*total, exact, 1e-2);

  auto* in = launcher.Allocate<unsigned>(1000);
  auto* sums = launcher.Allocate<unsigned>(1000);
  for (unsigned i = 0; i < 1000; ++i) in[i] = i * 2654435761u;
  Run("scan_blocks", {4, 1, 1}, {256, 1, 1}, in, sums, 1000);
  unsigned sum = 0;
  for (unsigned i = 0; i < 1000; ++i) {
    sum = i % 256 == 0 ? in[i] : sum + in[i];
    ASSERT_EQ(sums[i], sum) << i;
  }
}

TEST_P(Classic, Histogram) {
  constexpr int kN = 20000;
  auto* bytes = launcher.Allocate<unsigned char>(kN);
  auto* counts = launcher.Allocate<unsigned>(256);
  std::vector<unsigned> expected(256, 0);
  std::mt19937 random(1);
  for (int i = 0; i < kN; ++i) {
    bytes[i] = static_cast<unsigned char>(random() % 97 * (random() % 3));
    ++expected[bytes[i]];
  }
  Run("histogram", {7, 1, 1}, {256, 1, 1}, bytes, counts, kN);
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), counts));
}

TEST_P(Classic, TransposeOfAnOddRectangle) {
  constexpr int kWidth = 75, kHeight = 38;
  const float* in = Floats(kWidth * kHeight, 1);
  float* out = launcher.Allocate<float>(kWidth * kHeight);
  Run("transpose", {5, 3, 1}, {16, 16, 1}, in, out, kWidth, kHeight);
  for (int y = 0; y < kHeight; ++y) {
    for (int x = 0; x < kWidth; ++x) ASSERT_EQ(out[x * kHeight + y], in[y * kWidth + x]);
  }
}

TEST_P(Classic, BitonicSort) {
  auto* keys = launcher.Allocate<int>(3 * 1024);
  std::mt19937 random(1);
  std::vector<int> expected(3 * 1024);
  for (int& key : expected) key = static_cast<int>(random()) >> random() % 31;
  std::copy(expected.begin(), expected.end(), keys);
  Run("bitonic_sort", {3, 1, 1}, {512, 1, 1}, keys);
  for (int block = 0; block < 3; ++block) {
    std::sort(expected.begin() + block * 1024, expected.begin() + (block + 1) * 1024);
  }
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), keys));
}

TEST_P(Classic, Stencil) {
  constexpr int kWidth = 70, kHeight = 33;
  const float* in = Floats(kWidth * kHeight, 1);
  float* out = launcher.Allocate<float>(kWidth * kHeight);
  Run("stencil", {3, 5, 1}, {32, 8, 1}, in, out, kWidth, kHeight);
  for (int y = 0; y < kHeight; ++y) {
    for (int x = 0; x < kWidth; ++x) {
      const int i = y * kWidth + x;
      const bool border = x == 0 || y == 0 || x == kWidth - 1 || y == kHeight - 1;
      const float around = border ? 0 : in[i - 1] + in[i + 1] + in[i - kWidth] + in[i + kWidth];
      const float expected = border ? in[i] : std::fma(0.5f, in[i], 0.125f * around);
      ASSERT_NEAR(out[i], expected, 1e-7) << x << ", " << y;
    }
  }
}

TEST_P(Classic, Mandelbrot) {
  constexpr int kWidth = 60, kHeight = 45, kLimit = 60;
  auto* iterations = launcher.Allocate<int>(kWidth * kHeight);
  Run("mandelbrot", {4, 6, 1}, {16, 8, 1}, iterations, kWidth, kHeight, kLimit);
  int differing = 0;
  for (int py = 0; py < kHeight; ++py) {
    for (int px = 0; px < kWidth; ++px) {
      const double cx = px * 3.0 / kWidth - 2, cy = py * 2.0 / kHeight - 1;
      double x = 0, y = 0;
      int count = 0;
      while (count < kLimit && x * x + y * y < 4) {
        const double next = x * x - y * y + cx;
        y = 2 * x * y + cy;
        x = next;
        ++count;
      }
      differing += count != iterations[py * kWidth + px];
    }
  }
  // Points at the edge of the set may differ between f32 and double.
  EXPECT_LE(differing, kWidth * kHeight / 50);
}

TEST_P(Classic, SparseProduct) {
  constexpr int kRows = 37;
  auto* starts = launcher.Allocate<int>(kRows + 1);
  auto* columns = launcher.Allocate<int>(kRows * kRows * 3);
  auto* values = launcher.Allocate<double>(kRows * kRows * 3);
  auto* x = launcher.Allocate<double>(100);
  auto* y = launcher.Allocate<double>(kRows);
  for (int i = 0; i < 100; ++i) x[i] = i - 40.5;
  int count = 0;
  for (int row = 0; row < kRows; ++row) {
    starts[row] = count;
    for (int i = 0; i < row * 3 % 101; ++i, ++count) {
      columns[count] = (row * 31 + i * 7) % 100;
      values[count] = i % 9 - 4;
    }
  }
  starts[kRows] = count;
  Run("sparse_product", {10, 1, 1}, {128, 1, 1}, starts, columns, values, x, y, kRows);
  for (int row = 0; row < kRows; ++row) {
    double sum = 0;  // The values are small multiples of 0.5, so the sum is exact in any order.
    for (int i = starts[row]; i < starts[row + 1]; ++i) sum += values[i] * x[columns[i]];
    ASSERT_EQ(y[row], sum) << row;
  }
}

TEST_P(Classic, NBody) {
  constexpr int kN = 64;
  const float* bodies = Floats(kN * 4, 1);
  float* out = launcher.Allocate<float>(kN * 4);
  Run("n_body", {2, 1, 1}, {32, 1, 1}, bodies, out, kN);
  for (int i = 0; i < kN; ++i) {
    double sum[3] = {};
    for (int j = 0; j < kN; ++j) {
      double d[3], square = 1e-3;
      for (int k = 0; k < 3; ++k) {
        d[k] = double{bodies[j * 4 + k]} - bodies[i * 4 + k];
        square += d[k] * d[k];
      }
      for (int k = 0; k < 3; ++k) sum[k] += d[k] * bodies[j * 4 + 3] / (square * std::sqrt(square));
    }
    for (int k = 0; k < 3; ++k) {
      ASSERT_NEAR(out[i * 4 + k], sum[k], 1e-3 * (1 + std::abs(sum[k]))) << i;
    }
  }
}

TEST_P(Classic, SoftmaxAndLayersOfALanguageModel) {
  constexpr int kRows = 3, kColumns = 200, kUnits = 70;
  const float* logits = Floats(kRows * kColumns, 1);
  float* probabilities = launcher.Allocate<float>(kRows * kColumns);
  Run("softmax", {kRows, 1, 1}, {128, 1, 1}, logits, probabilities, kColumns);
  for (int row = 0; row < kRows; ++row) {
    double sum = 0;
    for (int i = 0; i < kColumns; ++i) sum += std::exp(double{logits[row * kColumns + i]});
    for (int i = 0; i < kColumns; ++i) {
      const double exact = std::exp(double{logits[row * kColumns + i]}) / sum;
      ASSERT_NEAR(probabilities[row * kColumns + i], exact, exact * 1e-5);
    }
  }
  const float *weights = Floats(kColumns * kUnits, 2), *bias = Floats(kUnits, 3);
  float* hidden = launcher.Allocate<float>(kRows * kUnits);
  Run("tanh_layer", {2, kRows, 1}, {64, 1, 1}, weights, bias, logits, hidden, kColumns, kUnits);
  for (int sample = 0; sample < kRows; ++sample) {
    for (int unit = 0; unit < kUnits; ++unit) {
      double sum = bias[unit];
      for (int i = 0; i < kColumns; ++i) {
        sum += double{weights[i * kUnits + unit]} * logits[sample * kColumns + i];
      }
      ASSERT_NEAR(hidden[sample * kUnits + unit], std::tanh(sum), 1e-5);
    }
  }
}

// Running the blocks in any ranges must give the result of a single run.
TEST_P(Classic, BlockRangesTogetherEqualTheWholeGrid) {
  constexpr int kN = 64;
  const float *a = Floats(kN * kN, 1), *b = Floats(kN * kN, 2);
  float *whole = launcher.Allocate<float>(kN * kN), *pieces = launcher.Allocate<float>(kN * kN);
  Run("matrix_product_tiled", {4, 4, 1}, {16, 16, 1}, a, b, whole, kN);
  for (u64 first = 0; first < 16; first += launcher.block_count) {
    launcher.first_block = first;
    launcher.block_count = std::min<u64>(1 + first % 4, 16 - first);
    const auto outcome =
        launcher.Run("matrix_product_tiled", {4, 4, 1}, {16, 16, 1}, a, b, pieces, kN);
    ASSERT_EQ(outcome.blocks_done, launcher.block_count);
  }
  EXPECT_TRUE(std::equal(whole, whole + kN * kN, pieces));
}

TEST_P(Halves, PairsOfF16) {
  const HalfType& f16 = kHalfTypes[0];
  constexpr int kN = 100;
  auto* x = launcher.Allocate<u16>(2 * kN);
  auto* y = launcher.Allocate<u16>(2 * kN);
  std::vector<u16> before(2 * kN);
  for (u32 i = 0; i < 2 * kN; ++i) {
    x[i] = f16.FromReal((static_cast<int>(i) - 90) * 0.37L);
    y[i] = before[i] = f16.FromReal((static_cast<int>(i * 7 % 50) - 20) * 1.1L);
  }
  Run("half_axpy", {2, 1, 1}, {64, 1, 1}, x, y, 1.25f, kN);
  for (u32 i = 0; i < 2 * kN; ++i) {
    ASSERT_EQ(y[i], f16.FromReal(1.25L * f16.ToReal(x[i]) + f16.ToReal(before[i]))) << i;
  }
  auto* dot = launcher.Allocate<float>(1);
  Run("half_dot", {1, 1, 1}, {32, 1, 1}, x, y, dot, 2 * kN);
  long double exact = 0;
  for (u32 i = 0; i < 2 * kN; ++i) exact += f16.ToReal(x[i]) * f16.ToReal(y[i]);
  EXPECT_NEAR(*dot, static_cast<double>(exact), 1e-5 * std::abs(static_cast<double>(exact)));

  auto* extremes = launcher.Allocate<u16>(4);
  Run("half_extremes", {1, 1, 1}, {1, 1, 1}, x, extremes, 2 * kN);
  EXPECT_EQ(extremes[0], x[0]);
  EXPECT_EQ(extremes[1], x[2 * kN - 1]);
  EXPECT_EQ(extremes[2], f16.FromReal(f16.ToReal(extremes[1]) - f16.ToReal(extremes[0])));
  EXPECT_EQ(
      extremes[3],
      f16.FromReal(std::nearbyint(f16.ToReal(f16.FromReal(1.375L * f16.ToReal(extremes[1]))))));
}

TEST_P(Halves, GeluOfBf16) {
  const HalfType& bf16 = kHalfTypes[1];
  constexpr int kN = 150;
  auto* in = launcher.Allocate<u16>(kN);
  auto* out = launcher.Allocate<u16>(kN);
  for (int i = 0; i < kN; ++i) in[i] = bf16.FromReal((i - 75) * 0.05L);
  Run("brain_gelu", {3, 1, 1}, {64, 1, 1}, in, out, kN);
  for (int i = 0; i < kN; ++i) {
    const long double x = bf16.ToReal(in[i]);
    const long double exact = 0.5L * x * (1 + std::erf(x * 0.70710678L));
    // The tolerance is half an ulp of bf16 plus the cancellation in 1 + erf for negative x.
    EXPECT_NEAR(static_cast<double>(bf16.ToReal(out[i])), static_cast<double>(exact),
                std::abs(static_cast<double>(exact)) / 256 + 1e-6)
        << i;
  }
}

GPUSHARED_INSTANTIATE_FLAVOURS(Classic);
GPUSHARED_INSTANTIATE_FLAVOURS(Halves);

}  // namespace
}  // namespace gpushared::testing

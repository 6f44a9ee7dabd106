// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "tests/bench/executor_bench.h"

namespace gpushared::testing::host {

void MatrixProduct(const float* a, const float* b, float* c, int n) {
  for (int row = 0; row < n; ++row) {
    for (int column = 0; column < n; ++column) {
      float sum = 0;
      for (int k = 0; k < n; ++k) sum += a[row * n + k] * b[k * n + column];
      c[row * n + column] = sum;
    }
  }
}

void Saxpy(int n, float alpha, const float* x, float* y) {
  for (int i = 0; i < n; ++i) y[i] = alpha * x[i] + y[i];
}

float Reduce(const float* values, int n) {
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += values[i];
  return sum;
}

void Softmax(const float* logits, float* probabilities, int rows, int columns) {
  for (int row = 0; row < rows; ++row) {
    const float* in = logits + row * columns;
    float* out = probabilities + row * columns;
    const float most = *std::max_element(in, in + columns);
    float sum = 0;
    for (int i = 0; i < columns; ++i) sum += std::exp(in[i] - most);
    for (int i = 0; i < columns; ++i) out[i] = std::exp(in[i] - most) / sum;
  }
}

void TanhLayer(const float* weights, const float* bias, const float* input, float* hidden,
               int inputs, int units, int samples) {
  for (int sample = 0; sample < samples; ++sample) {
    for (int unit = 0; unit < units; ++unit) {
      float sum = bias[unit];
      for (int i = 0; i < inputs; ++i)
        sum += weights[i * units + unit] * input[sample * inputs + i];
      hidden[sample * units + unit] = std::tanh(sum);
    }
  }
}

void Mandelbrot(int* iterations, int width, int height, int limit) {
  for (int py = 0; py < height; ++py) {
    for (int px = 0; px < width; ++px) {
      const float cx = static_cast<float>(px) * 3.0f / static_cast<float>(width) - 2.0f;
      const float cy = static_cast<float>(py) * 2.0f / static_cast<float>(height) - 1.0f;
      float x = 0, y = 0;
      int count = 0;
      while (count < limit && x * x + y * y < 4.0f) {
        const float next = x * x - y * y + cx;
        y = 2 * x * y + cy;
        x = next;
        ++count;
      }
      iterations[py * width + px] = count;
    }
  }
}

}  // namespace gpushared::testing::host

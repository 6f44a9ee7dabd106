// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstddef>

#include "samples/language_model/model.h"

namespace samples {
namespace {

using Matrix = std::vector<float>;

std::size_t At(int row, int column, int width) {
  return static_cast<std::size_t>(row) * static_cast<std::size_t>(width) +
         static_cast<std::size_t>(column);
}

// c[m x n] = op(a) op(b), summed over k in ascending order like the kernels. Both orders of the
// inner loops give the same sums; this one reads b in memory order.
Matrix Multiply(const float* a, bool transpose_a, const float* b, bool transpose_b, int m, int n,
                int k) {
  Matrix c(At(m, 0, n), 0.0f);
  for (int row = 0; row < m; ++row) {
    const auto add = [&](int column, int i) {
      float& sum = c[At(row, column, n)];
      sum = std::fma(transpose_a ? a[At(i, row, m)] : a[At(row, i, k)],
                     transpose_b ? b[At(column, i, k)] : b[At(i, column, n)], sum);
    };
    if (transpose_b) {
      for (int column = 0; column < n; ++column) {
        for (int i = 0; i < k; ++i) add(column, i);
      }
    } else {
      for (int i = 0; i < k; ++i) {
        for (int column = 0; column < n; ++column) add(column, i);
      }
    }
  }
  return c;
}

struct Activations {
  Matrix x, h, probabilities;
};

Activations Forward(const Model& model, const std::vector<int>& contexts) {
  const Shape& shape = model.shape;
  const float* parameters = model.parameters.data();
  const int rows = static_cast<int>(contexts.size()) / shape.context;
  Activations result;
  for (const int character : contexts) {
    const float* row = parameters + shape.embedding_at() + At(character, 0, shape.embedding);
    result.x.insert(result.x.end(), row, row + shape.embedding);
  }
  result.h = Multiply(result.x.data(), false, parameters + shape.w1_at(), false, rows, shape.hidden,
                      shape.inputs());
  for (int i = 0; i < rows * shape.hidden; ++i) {
    float& value = result.h[static_cast<std::size_t>(i)];
    value =
        std::tanh(value + parameters[shape.b1_at() + static_cast<std::size_t>(i % shape.hidden)]);
  }
  Matrix& p = result.probabilities;
  p = Multiply(result.h.data(), false, parameters + shape.w2_at(), false, rows, kCharacters,
               shape.hidden);
  for (int row = 0; row < rows; ++row) {
    float largest = -INFINITY, sum = 0;
    for (int i = 0; i < kCharacters; ++i) {
      p[At(row, i, kCharacters)] += parameters[shape.b2_at() + static_cast<std::size_t>(i)];
      largest = std::fmax(largest, p[At(row, i, kCharacters)]);
    }
    for (int i = 0; i < kCharacters; ++i) {
      float& value = p[At(row, i, kCharacters)];
      value = std::exp(value - largest);
      sum += value;
    }
    for (int i = 0; i < kCharacters; ++i) p[At(row, i, kCharacters)] /= sum;
  }
  return result;
}

void Descend(float* parameters, const Matrix& gradient, float rate) {
  for (std::size_t i = 0; i < gradient.size(); ++i) parameters[i] -= rate * gradient[i];
}

Matrix ColumnSums(const Matrix& rows, int count, int width) {
  Matrix sums(static_cast<std::size_t>(width), 0.0f);
  for (int row = 0; row < count; ++row) {
    for (int i = 0; i < width; ++i) sums[static_cast<std::size_t>(i)] += rows[At(row, i, width)];
  }
  return sums;
}

}  // namespace

std::vector<float> ReferenceProbabilities(const Model& model, const std::vector<int>& contexts) {
  return Forward(model, contexts).probabilities;
}

float ReferenceStep(Model& model, const Batch& batch, float rate) {
  const Shape& shape = model.shape;
  const int rows = batch.rows();
  float* parameters = model.parameters.data();
  auto [x, h, logits_gradient] = Forward(model, batch.contexts);

  double loss = 0;
  for (int row = 0; row < rows; ++row) {
    float& target =
        logits_gradient[At(row, batch.targets[static_cast<std::size_t>(row)], kCharacters)];
    loss -= std::log(std::fmax(target, 1e-30f));
    target -= 1.0f;
  }
  for (float& value : logits_gradient) value *= 1.0f / static_cast<float>(rows);

  const Matrix w2 =
      Multiply(h.data(), true, logits_gradient.data(), false, shape.hidden, kCharacters, rows);
  const Matrix b2 = ColumnSums(logits_gradient, rows, kCharacters);
  Matrix h_gradient = Multiply(logits_gradient.data(), false, parameters + shape.w2_at(), true,
                               rows, shape.hidden, kCharacters);
  for (std::size_t i = 0; i < h.size(); ++i) h_gradient[i] *= 1.0f - h[i] * h[i];
  const Matrix w1 =
      Multiply(x.data(), true, h_gradient.data(), false, shape.inputs(), shape.hidden, rows);
  const Matrix b1 = ColumnSums(h_gradient, rows, shape.hidden);
  const Matrix x_gradient = Multiply(h_gradient.data(), false, parameters + shape.w1_at(), true,
                                     rows, shape.inputs(), shape.hidden);
  Matrix embedding(shape.w1_at(), 0.0f);
  for (int row = 0; row < rows * shape.context; ++row) {
    for (int i = 0; i < shape.embedding; ++i) {
      embedding[At(batch.contexts[static_cast<std::size_t>(row)], i, shape.embedding)] +=
          x_gradient[At(row, i, shape.embedding)];
    }
  }
  Descend(parameters + shape.embedding_at(), embedding, rate);
  Descend(parameters + shape.w1_at(), w1, rate);
  Descend(parameters + shape.b1_at(), b1, rate);
  Descend(parameters + shape.w2_at(), w2, rate);
  Descend(parameters + shape.b2_at(), b2, rate);
  return static_cast<float>(loss / rows);
}

}  // namespace samples

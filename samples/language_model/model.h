// SPDX-License-Identifier: Apache-2.0
// A character-level language model: which character follows the last Shape::context ones.
//
//   x = embedding of the context, concatenated    [context x embedding]
//   h = tanh(x W1 + b1)                           [hidden]
//   p = softmax(h W2 + b2)                        [kCharacters]

#ifndef GPUSHARED_SAMPLES_LANGUAGE_MODEL_MODEL_H_
#define GPUSHARED_SAMPLES_LANGUAGE_MODEL_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace samples {

inline constexpr int kCharacters = 96;  // Printable ASCII and the line feed.

// Returns the index of a character, 0 to kCharacters - 1. Characters other than printable ASCII and
// the line feed count as a space.
int CharacterIndex(char character);

struct Shape {
  int context = 8;     // Number of previous characters that the model sees.
  int embedding = 24;  // Floats per character.
  int hidden = 256;

  int inputs() const { return context * embedding; }

  // Offset of each part in the array that contains all parameters, in floats.
  std::size_t embedding_at() const { return 0; }
  std::size_t w1_at() const {
    return std::size_t{kCharacters} * static_cast<std::size_t>(embedding);
  }
  std::size_t b1_at() const {
    return w1_at() + static_cast<std::size_t>(inputs()) * static_cast<std::size_t>(hidden);
  }
  std::size_t w2_at() const { return b1_at() + static_cast<std::size_t>(hidden); }
  std::size_t b2_at() const { return w2_at() + static_cast<std::size_t>(hidden) * kCharacters; }
  std::size_t parameters() const { return b2_at() + kCharacters; }
};

struct Model {
  Shape shape;
  std::vector<float> parameters;  // shape.parameters() floats.
};

Model RandomModel(const Shape& shape, std::uint32_t seed);

// Both throw std::runtime_error with the path and the reason.
void SaveModel(const Model& model, const std::string& path);
Model LoadModel(const std::string& path);

// Contexts and the characters that followed them, as character indices.
struct Batch {
  std::vector<int> contexts;  // [rows x context]
  std::vector<int> targets;   // [rows]
  int rows() const { return static_cast<int>(targets.size()); }
};

// `rows` positions of `text`, chosen by `seed` and `step`; equal arguments give equal batches.
// `text` must be longer than the context.
Batch DrawBatch(std::string_view text, const Shape& shape, int rows, std::uint32_t seed,
                std::uint64_t step);

// `times` copies of `batch`, one after the other, which have the same mean loss and gradients.
Batch Repeat(const Batch& batch, int times);

// Returns how many of `rows` the reference can process with `multiply_adds_max` multiply-adds: the
// largest suitable divisor of `rows`, at least 1. The device still runs the whole step, on a batch
// that repeats these rows.
int RowsForReferenceStep(const Shape& shape, int rows, double multiply_adds_max);

// Returns which rows of answer `number` the reference computes, if all `answers` together may take
// `multiply_adds_max` multiply-adds: at least one row. The rows vary with `number`.
struct RowRange {
  std::size_t first = 0, count = 0;
};
RowRange RowsToCheck(const Shape& shape, int rows, std::size_t answers, std::size_t number,
                     double multiply_adds_max);

// Computes the model in plain C++, to verify the device's results. Products are summed in the order
// of the kernels with fused multiply-adds, so that only exp, log, tanh and the sum in softmax
// differ.
std::vector<float> ReferenceProbabilities(const Model& model, const std::vector<int>& contexts);

// Runs one step of gradient descent; returns the mean loss before the step.
float ReferenceStep(Model& model, const Batch& batch, float rate);

// Returns the largest |a - b| / (1 + |b|).
double LargestDifference(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace samples

#endif  // GPUSHARED_SAMPLES_LANGUAGE_MODEL_MODEL_H_

// SPDX-License-Identifier: Apache-2.0
#include "samples/language_model/model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <random>
#include <stdexcept>

namespace samples {
namespace {

constexpr std::array<char, 8> kMagic = {'G', 'S', 'C', 'H', 'A', 'R', '0', '1'};
constexpr int kShapeMax = 1 << 16;

struct FileHeader {
  std::array<char, 8> magic = kMagic;
  std::int32_t context = 0, embedding = 0, hidden = 0, characters = kCharacters;
};

}  // namespace

int CharacterIndex(char character) {
  if (character == '\n') return kCharacters - 1;
  if (character < ' ' || character > '~') return 0;
  return character - ' ';
}

Model RandomModel(const Shape& shape, std::uint32_t seed) {
  Model model{shape, std::vector<float>(shape.parameters(), 0.0f)};
  std::mt19937 random(seed);
  const auto fill = [&](std::size_t first, std::size_t last, double scale) {
    // The standard library's distributions differ between implementations; the computation below
    // does not.
    for (std::size_t i = first; i < last; ++i) {
      model.parameters[i] =
          static_cast<float>((static_cast<double>(random()) / 2147483648.0 - 1.0) * scale);
    }
  };
  fill(shape.embedding_at(), shape.w1_at(), 0.5);
  fill(shape.w1_at(), shape.b1_at(), 1.0 / std::sqrt(shape.inputs()));
  fill(shape.w2_at(), shape.b2_at(), 1.0 / std::sqrt(shape.hidden));
  return model;
}

void SaveModel(const Model& model, const std::string& path) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  FileHeader header;
  header.context = model.shape.context;
  header.embedding = model.shape.embedding;
  header.hidden = model.shape.hidden;
  file.write(reinterpret_cast<const char*>(&header), sizeof header);
  file.write(reinterpret_cast<const char*>(model.parameters.data()),
             static_cast<std::streamsize>(model.parameters.size() * sizeof(float)));
  file.close();
  if (!file) throw std::runtime_error("cannot write model file '" + path + "'");
}

Model LoadModel(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  FileHeader header;
  if (!file.read(reinterpret_cast<char*>(&header), sizeof header)) {
    throw std::runtime_error("cannot read model file '" + path + "'");
  }
  const auto sane = [](std::int32_t value) { return value >= 1 && value <= kShapeMax; };
  if (header.magic != kMagic || header.characters != kCharacters || !sane(header.context) ||
      !sane(header.embedding) || !sane(header.hidden)) {
    throw std::runtime_error("'" + path + "' is not a model file of this program");
  }
  Model model{{header.context, header.embedding, header.hidden}, {}};
  model.parameters.resize(model.shape.parameters());
  if (!file.read(reinterpret_cast<char*>(model.parameters.data()),
                 static_cast<std::streamsize>(model.parameters.size() * sizeof(float)))) {
    throw std::runtime_error("model file '" + path + "' is shorter than its shape says");
  }
  return model;
}

Batch DrawBatch(std::string_view text, const Shape& shape, int rows, std::uint32_t seed,
                std::uint64_t step) {
  const auto context = static_cast<std::size_t>(shape.context);
  if (text.size() <= context) {
    throw std::runtime_error("the text has " + std::to_string(text.size()) +
                             " characters, the model needs more than " + std::to_string(context));
  }
  std::seed_seq seeds{seed, static_cast<std::uint32_t>(step),
                      static_cast<std::uint32_t>(step >> 32)};
  std::mt19937 random(seeds);
  Batch batch;
  for (int row = 0; row < rows; ++row) {
    const std::size_t at = random() % (text.size() - context);
    for (std::size_t i = 0; i < context; ++i)
      batch.contexts.push_back(CharacterIndex(text[at + i]));
    batch.targets.push_back(CharacterIndex(text[at + context]));
  }
  return batch;
}

Batch Repeat(const Batch& batch, int times) {
  Batch repeated;
  for (int i = 0; i < times; ++i) {
    repeated.contexts.insert(repeated.contexts.end(), batch.contexts.begin(), batch.contexts.end());
    repeated.targets.insert(repeated.targets.end(), batch.targets.begin(), batch.targets.end());
  }
  return repeated;
}

int RowsForReferenceStep(const Shape& shape, int rows, double multiply_adds_max) {
  // The factor 3: each product is computed forward, and backward for both of its factors.
  const double per_row = 3.0 * shape.hidden * (shape.inputs() + kCharacters);
  int parts = 1;
  const auto is_small = [&] {
    const int rows_per_part = rows / parts;
    return rows_per_part * per_row <= multiply_adds_max;
  };
  while (parts < rows && (rows % parts != 0 || !is_small())) ++parts;
  return rows / parts;
}

RowRange RowsToCheck(const Shape& shape, int rows, std::size_t answers, std::size_t number,
                     double multiply_adds_max) {
  const double per_row = static_cast<double>(shape.hidden) * (shape.inputs() + kCharacters);
  const double allowed = multiply_adds_max / per_row / static_cast<double>(answers);
  const auto all = static_cast<std::size_t>(rows);
  const auto count = static_cast<std::size_t>(std::clamp(allowed, 1.0, static_cast<double>(rows)));
  return {.first = number * 7 % (all - count + 1), .count = count};
}

double LargestDifference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return INFINITY;
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference =
        std::abs(double{a[i]} - double{b[i]}) / (1.0 + std::abs(double{b[i]}));
    if (!(difference <= largest)) largest = difference;  // Also true for NaN.
    if (std::isnan(difference)) return INFINITY;
  }
  return largest;
}

}  // namespace samples

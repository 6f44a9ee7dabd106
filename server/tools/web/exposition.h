// SPDX-License-Identifier: Apache-2.0
// The two texts that Prometheus reads, version 0.0.4 and OpenMetrics 1.0.0, from one description.

#ifndef GPUSHARED_SERVER_TOOLS_WEB_EXPOSITION_H_
#define GPUSHARED_SERVER_TOOLS_WEB_EXPOSITION_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gpushared::web {

enum class TextFormat : std::uint8_t { kPlain, kOpenMetrics };

// Which of the two an Accept header prefers; kPlain if it says nothing of either.
TextFormat PreferredFormat(std::string_view accept);
std::string_view ContentType(TextFormat format);

// Names are ours. Values are anybody's, and UTF-8.
using Labels = std::vector<std::pair<std::string_view, std::string>>;

// Writes families one after the other, with their samples. The text of one that has no sample is
// its description alone.
//
// Thread-compatible.
class Exposition {
 public:
  enum class Type : std::uint8_t { kCounter, kGauge, kHistogram, kInfo };

  explicit Exposition(TextFormat format) : format_(format) {}

  // The samples that follow are of this family. `name` is without "_total" and "_info". It ends
  // with the unit, where there is one: "_seconds", "_bytes".
  void Begin(std::string_view name, Type type, std::string_view help);
  // A counter's or gauge's value, and 1 for an info.
  void Add(const Labels& labels, double value);
  // `counts` are those of buckets that end at `bounds`, and of one more without an end; each value
  // counts in one of them.
  void AddHistogram(const Labels& labels, std::span<const double> bounds,
                    std::span<const double> counts, double sum);
  // The whole text.
  std::string Finish();

 private:
  void AddSample(std::string_view suffix, const Labels& labels, std::string_view bound,
                 double value);

  TextFormat format_;
  std::string name_;
  Type type_ = Type::kGauge;
  std::string text_;
};

}  // namespace gpushared::web

#endif  // GPUSHARED_SERVER_TOOLS_WEB_EXPOSITION_H_

// SPDX-License-Identifier: Apache-2.0
// The two text formats of Prometheus, 0.0.4 and OpenMetrics 1.0.0, from one description.

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

// Returns the format preferred by an Accept header; kPlain if it mentions neither.
TextFormat PreferredFormat(std::string_view accept);
std::string_view ContentType(TextFormat format);

// Names are constants. Values are arbitrary UTF-8 and are escaped.
using Labels = std::vector<std::pair<std::string_view, std::string>>;

// Writes metric families one after the other, with their samples. A family without samples consists
// of its description.
//
// Thread-compatible.
class Exposition {
 public:
  enum class Type : std::uint8_t { kCounter, kGauge, kHistogram, kInfo };

  explicit Exposition(TextFormat format) : format_(format) {}

  // Starts a family; the samples that are added next belong to it. `name` omits "_total" and
  // "_info" and ends with the unit, if any: "_seconds", "_bytes".
  void Begin(std::string_view name, Type type, std::string_view help);
  // Adds the value of a counter or gauge, or 1 for an info.
  void Add(const Labels& labels, double value);
  // `counts` are those of buckets that end at `bounds`, and of a final one without an upper bound.
  // They are not cumulative.
  void AddHistogram(const Labels& labels, std::span<const double> bounds,
                    std::span<const double> counts, double sum);
  // Returns the complete text.
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

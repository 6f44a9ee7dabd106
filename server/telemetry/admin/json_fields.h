// SPDX-License-Identifier: Apache-2.0
// Fields of JSON objects from other programs, which may be missing or have another type.

#ifndef GPUSHARED_SERVER_TELEMETRY_ADMIN_JSON_FIELDS_H_
#define GPUSHARED_SERVER_TELEMETRY_ADMIN_JSON_FIELDS_H_

#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace gpushared::admin {

// Returns null if there is no such field, or if `object` is not an object.
inline const nlohmann::json& Member(const nlohmann::json& object, std::string_view key) {
  static const nlohmann::json kNothing;
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found == object.end() ? kNothing : *found;
}

inline std::optional<double> Number(const nlohmann::json& object, std::string_view key) {
  const nlohmann::json& value = Member(object, key);
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}

// Returns an empty string if the field is not a string.
inline std::string Text(const nlohmann::json& object, std::string_view key) {
  const nlohmann::json& value = Member(object, key);
  return value.is_string() ? value.get<std::string>() : std::string();
}

}  // namespace gpushared::admin

#endif  // GPUSHARED_SERVER_TELEMETRY_ADMIN_JSON_FIELDS_H_

// SPDX-License-Identifier: Apache-2.0
#include "ipc/owner.h"

#include <algorithm>
#include <numeric>

#include "gpushared/check.h"

#include "ipc/wire/bytes.h"

namespace gpushared::ipc {
namespace {

static_assert(std::accumulate(kOwnerFields.begin(), kOwnerFields.end(), std::size_t{1},
                              [](std::size_t sum, const OwnerField& field) {
                                return sum + field.bytes_max + 1;
                              }) <= kOwnerBytes);

std::size_t Find(std::string_view name) {
  const auto found = std::ranges::find(kOwnerFields, name, &OwnerField::name);
  return static_cast<std::size_t>(found - kOwnerFields.begin());
}

std::string_view TakeUpTo(std::string_view& text, char separator) {
  const std::string_view taken = text.substr(0, text.find(separator));
  text.remove_prefix(std::min(taken.size() + 1, text.size()));
  return taken;
}

Status Invalid(std::string_view item) {
  std::string names;
  for (const OwnerField& field : kOwnerFields) {
    if (!field.is_of_endpoint) continue;
    names += (names.empty() ? "" : ", ") + std::string(field.name) + " (" +
             std::to_string(field.bytes_max) + " bytes)";
  }
  return {StatusCode::kInvalidArgument, "asked for '" + PrintableText(CutText(item, 64)) +
                                            "', allowed: NAME:VALUE with the names " + names};
}

}  // namespace

Result<Owner> Owner::Parse(std::string_view text) {
  Owner owner;
  while (!text.empty()) {
    const std::string_view item = TakeUpTo(text, ',');
    std::string_view value = item;
    const std::size_t field = Find(TakeUpTo(value, ':'));
    const bool is_valid = field < kOwnerFields.size() && kOwnerFields[field].is_of_endpoint &&
                          !value.empty() && value.size() <= kOwnerFields[field].bytes_max &&
                          IsPrintableText(value) && owner.values_[field].empty();
    if (!is_valid) return Invalid(item);
    owner.values_[field] = value;
  }
  return owner;
}

Owner Owner::FromRow(std::string_view row) {
  Owner owner;
  for (const OwnerField& field : kOwnerFields) owner.Set(field.name, TakeUpTo(row, '\n'));
  return owner;
}

const std::string& Owner::Get(std::string_view name) const { return values_.at(Find(name)); }

void Owner::Set(std::string_view name, std::string_view value) {
  const std::size_t field = Find(name);
  Check(field < kOwnerFields.size(), "an owner has this field");
  values_[field] = CutText(PrintableText(value), kOwnerFields[field].bytes_max);
}

std::string Owner::ToRow() const {
  std::string row;
  for (const std::string& value : values_) row += value + "\n";
  return row;
}

}  // namespace gpushared::ipc

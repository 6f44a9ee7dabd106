// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_RESULT_H_
#define GPUSHARED_RESULT_H_

#include <type_traits>
#include <utility>
#include <variant>

#include "gpushared/status.h"

namespace gpushared {

// A value, or the Status that explains why there is none. Modelled on std::expected, which C++20
// lacks.
//
// Thread-compatible value. Reading value() of a failed Result is a programming error and throws
// std::bad_variant_access.
template <typename T>
class [[nodiscard]] Result {
  static_assert(!std::is_same_v<std::remove_cvref_t<T>, Status>);

 public:
  // Implicit, so that functions can return either a value or a Status.
  // NOLINTNEXTLINE(google-explicit-constructor)
  Result(T value) : content_(std::in_place_index<0>, std::move(value)) {}
  // `status` must not be ok.
  // NOLINTNEXTLINE(google-explicit-constructor)
  Result(Status status) : content_(std::in_place_index<1>, std::move(status)) {}

  bool ok() const noexcept { return content_.index() == 0; }
  explicit operator bool() const noexcept { return ok(); }

  T& value() & { return std::get<0>(content_); }
  const T& value() const& { return std::get<0>(content_); }
  T&& value() && { return std::get<0>(std::move(content_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  // Returns Ok if there is a value.
  Status status() const { return ok() ? Status() : std::get<1>(content_); }

 private:
  std::variant<T, Status> content_;
};

}  // namespace gpushared

#endif  // GPUSHARED_RESULT_H_

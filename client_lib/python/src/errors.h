// SPDX-License-Identifier: Apache-2.0
// How a Status becomes an exception of Python.

#ifndef GPUSHARED_CLIENT_LIB_PYTHON_ERRORS_H_
#define GPUSHARED_CLIENT_LIB_PYTHON_ERRORS_H_

#include <nanobind/nanobind.h>

#include <exception>
#include <utility>

#include "gpushared/fault_kind.h"
#include "gpushared/result.h"
#include "gpushared/status.h"

namespace gpushared::python {

// A Status on its way to Python. It is thrown and translated inside this extension alone.
class Failure : public std::exception {
 public:
  explicit Failure(Status status, FaultKind fault = FaultKind::kNone)
      : status_(std::move(status)), fault_(fault) {}
  const Status& status() const noexcept { return status_; }
  FaultKind fault() const noexcept { return fault_; }
  const char* what() const noexcept override { return status_.message().c_str(); }

 private:
  Status status_;
  FaultKind fault_;
};

// Throws unless ok. These two need no GIL.
inline void Require(const Status& status) {
  if (!status.ok()) throw Failure(status);
}
template <typename T>
T Take(Result<T> result) {
  if (!result.ok()) throw Failure(result.status());
  return std::move(result).value();
}

// From now on a Failure leaves this extension as the exception that gpushared._errors makes of it.
void TranslateFailures();

}  // namespace gpushared::python

#endif  // GPUSHARED_CLIENT_LIB_PYTHON_ERRORS_H_

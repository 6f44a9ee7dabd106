// SPDX-License-Identifier: Apache-2.0
// Conversion of a Status to a Python exception.

#ifndef GPUSHARED_CLIENT_LIB_PYTHON_SRC_ERRORS_H_
#define GPUSHARED_CLIENT_LIB_PYTHON_SRC_ERRORS_H_

#include <nanobind/nanobind.h>

#include <exception>
#include <utility>

#include "gpushared/fault_kind.h"
#include "gpushared/result.h"
#include "gpushared/status.h"

namespace gpushared::python {

// C++ exception with a Status, thrown and translated only inside this extension.
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

// Throws unless `status` is ok. These two functions need no GIL.
inline void Require(const Status& status) {
  if (!status.ok()) throw Failure(status);
}
template <typename T>
T Take(Result<T> result) {
  if (!result.ok()) throw Failure(result.status());
  return std::move(result).value();
}

// Registers the translation of Failure to the exceptions of gpushared._errors.
void TranslateFailures();

}  // namespace gpushared::python

#endif  // GPUSHARED_CLIENT_LIB_PYTHON_SRC_ERRORS_H_

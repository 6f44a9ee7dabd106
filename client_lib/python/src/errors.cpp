// SPDX-License-Identifier: Apache-2.0
#include "client_lib/python/src/errors.h"

#include <string>

namespace gpushared::python {
namespace {

namespace nb = nanobind;

void SetError(const Failure& failure) {
  const std::string& sentence = failure.status().message();
  // Some messages contain the name of a kernel, which may be arbitrary bytes.
  const nb::object message = nb::steal(PyUnicode_DecodeUTF8(
      sentence.data(), static_cast<Py_ssize_t>(sentence.size()), "backslashreplace"));
  const nb::object error = nb::module_::import_("gpushared._errors")
                               .attr("error_of")(static_cast<unsigned>(failure.status().code()),
                                                 message, static_cast<unsigned>(failure.fault()));
  PyErr_SetObject(error.type().ptr(), error.ptr());
}

}  // namespace

void TranslateFailures() {
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Failure& failure) {
      try {
        SetError(failure);
      } catch (nb::python_error& other) {
        other.restore();
      }
    }
  });
}

}  // namespace gpushared::python

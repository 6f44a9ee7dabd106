// SPDX-License-Identifier: Apache-2.0
// gpushared._core: the C++ client library, call by call. Only the Python files of the package call
// it, and they build the user interface on it, so it checks only what could harm the process.

#ifndef GPUSHARED_CLIENT_LIB_PYTHON_SRC_BINDINGS_H_
#define GPUSHARED_CLIENT_LIB_PYTHON_SRC_BINDINGS_H_

#include <nanobind/nanobind.h>

namespace gpushared::python {

void BindMemory(nanobind::module_& module);
void BindModule(nanobind::module_& module);
void BindStream(nanobind::module_& module);
// Included last, because its signatures use types from the other headers.
void BindClient(nanobind::module_& module);

}  // namespace gpushared::python

#endif  // GPUSHARED_CLIENT_LIB_PYTHON_SRC_BINDINGS_H_

// SPDX-License-Identifier: Apache-2.0
// gpushared._core: the C++ client library, call by call. Only the Python files of the package call
// this module. They define the public interface, so this module checks only what could harm the
// process.

#ifndef GPUSHARED_CLIENT_LIB_PYTHON_SRC_BINDINGS_H_
#define GPUSHARED_CLIENT_LIB_PYTHON_SRC_BINDINGS_H_

#include <nanobind/nanobind.h>

namespace gpushared::python {

void BindMemory(nanobind::module_& module);
void BindModule(nanobind::module_& module);
void BindStream(nanobind::module_& module);
// Called last, because its signatures use types that the other functions bind.
void BindClient(nanobind::module_& module);

}  // namespace gpushared::python

#endif  // GPUSHARED_CLIENT_LIB_PYTHON_SRC_BINDINGS_H_

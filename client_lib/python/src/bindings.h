// SPDX-License-Identifier: Apache-2.0
// gpushared._core: the C++ client library as it is, call by call. The package's Python files make
// of it what users see; they alone call it, so it checks only what could harm the process.

#ifndef GPUSHARED_CLIENT_LIB_PYTHON_BINDINGS_H_
#define GPUSHARED_CLIENT_LIB_PYTHON_BINDINGS_H_

#include <nanobind/nanobind.h>

namespace gpushared::python {

void BindMemory(nanobind::module_& module);
void BindModule(nanobind::module_& module);
void BindStream(nanobind::module_& module);
// After the others: its signatures name their types.
void BindClient(nanobind::module_& module);

}  // namespace gpushared::python

#endif  // GPUSHARED_CLIENT_LIB_PYTHON_BINDINGS_H_

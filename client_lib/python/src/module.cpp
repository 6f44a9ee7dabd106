// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <cstddef>
#include <string>
#include <string_view>

#include "gpushared/client.h"

#include "client_lib/python/src/bindings.h"
#include "client_lib/python/src/errors.h"

namespace gpushared::python {

namespace nb = nanobind;

namespace {

nb::str Text(const std::string& text) {
  return nb::steal<nb::str>(
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "backslashreplace"));
}

using Fields = nb::typed<nb::dict, nb::str, nb::any>;

Fields Attributes(const Kernel& kernel) {
  const KernelAttributes& attributes = kernel.attributes();
  Fields made;
  made["registers"] = attributes.registers;
  made["local_bytes"] = attributes.local_bytes;
  made["constant_bytes"] = attributes.constant_bytes;
  made["dynamic_shared_bytes_max"] = attributes.dynamic_shared_bytes_max;
  made["ptx_version"] = attributes.ptx_version;
  made["binary_version"] = attributes.binary_version;
  return made;
}

Fields AsDict(const ModuleVariable& variable) {
  Fields made;
  made["name"] = Text(variable.name);
  made["address"] = variable.address;
  made["nbytes"] = variable.bytes;
  made["is_constant"] = variable.is_constant;
  return made;
}

}  // namespace

void BindModule(nb::module_& module) {
  nb::class_<Kernel>(module, "Kernel")
      .def_prop_ro("name", [](const Kernel& kernel) { return Text(kernel.name()); })
      .def_prop_ro("parameters",
                   [](const Kernel& kernel) {
                     nb::typed<nb::list, nb::typed<nb::tuple, int, int>> made;
                     for (const KernelParameter& parameter : kernel.parameters()) {
                       made.append(nb::make_tuple(parameter.offset, parameter.bytes));
                     }
                     return made;
                   })
      .def_prop_ro("parameter_bytes", &Kernel::parameter_bytes)
      .def_prop_ro("static_shared_bytes", &Kernel::static_shared_bytes)
      .def_prop_ro("threads_per_block_max", &Kernel::threads_per_block_max)
      .def_prop_ro("attributes", &Attributes)
      .def_prop_ro("unsupported", [](const Kernel& kernel) { return Text(kernel.unsupported()); });

  nb::class_<Module>(module, "Module")
      .def("kernels",
           [](const Module& loaded) {
             nb::typed<nb::list, Kernel> made;
             for (std::size_t i = 0; i < loaded.kernel_count(); ++i) {
               made.append(nb::cast(Take(loaded.KernelAt(i))));
             }
             return made;
           })
      .def("kernel",
           [](const Module& loaded, std::string_view name) { return Take(loaded.GetKernel(name)); })
      .def("variables",
           [](const Module& loaded) {
             nb::typed<nb::list, Fields> made;
             for (const ModuleVariable& variable : loaded.variables())
               made.append(AsDict(variable));
             return made;
           })
      .def("variable", [](const Module& loaded, std::string_view name) {
        return AsDict(Take(loaded.GetVariable(name)));
      });
}

}  // namespace gpushared::python

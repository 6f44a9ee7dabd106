// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>

#include "gpushared/client.h"

#include "client_lib/python/src/bindings.h"

namespace gpushared::python {

namespace nb = nanobind;

void BindMemory(nb::module_& module) {
  nb::class_<DeviceBuffer>(module, "DeviceBuffer")
      .def_prop_ro("address", &DeviceBuffer::address)
      .def("free", &DeviceBuffer::Reset);

  // No explicit free: arrays refer to the memory, and each array holds a reference to the buffer.
  nb::class_<HostBuffer>(module, "HostBuffer").def("array", [](nb::handle_t<HostBuffer> self) {
    const HostBuffer& buffer = nb::cast<const HostBuffer&>(self);
    return nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>(buffer.data(), {buffer.size()}, self);
  });
}

}  // namespace gpushared::python

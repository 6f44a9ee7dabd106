// SPDX-License-Identifier: Apache-2.0
#include "gpushared/client.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client_lib/python/src/bindings.h"
#include "client_lib/python/src/errors.h"
#include "client_lib/python/src/host_view.h"

namespace gpushared::python {

namespace nb = nanobind;

namespace {

using WithoutGil = nb::call_guard<nb::gil_scoped_release>;

std::optional<std::chrono::nanoseconds> Nanoseconds(std::optional<std::int64_t> count) {
  if (!count) return std::nullopt;
  return std::chrono::nanoseconds(*count);
}

Client Connect(std::string name, std::optional<std::uint8_t> scheduling_class,
               std::optional<std::uint32_t> weight, std::optional<std::uint64_t> memory_bytes,
               std::optional<std::int64_t> latency_target_ns, std::string device,
               std::string socket, bool takes_printed, std::optional<std::int64_t> spin_ns,
               std::int64_t control_timeout_ns) {
  ClientOptions options;
  options.name = std::move(name);
  if (scheduling_class) {
    options.scheduling_class = static_cast<SchedulingClass>(*scheduling_class);
  }
  options.weight = weight;
  options.memory_bytes = memory_bytes;
  options.latency_target = Nanoseconds(latency_target_ns);
  options.device = std::move(device);
  options.socket = std::move(socket);
  options.takes_printed = takes_printed;
  options.spin = Nanoseconds(spin_ns);
  options.control_timeout = std::chrono::nanoseconds(control_timeout_ns);
  return Take(Client::Connect(options));
}

nb::tuple Extents(const std::array<std::uint32_t, 3>& extents) {
  return nb::make_tuple(extents[0], extents[1], extents[2]);
}

using Fields = nb::typed<nb::dict, nb::str, nb::any>;

Fields AsDict(const DeviceProperties& device) {
  nb::dict attributes;
  for (const DeviceAttribute& attribute : device.attributes) {
    attributes[nb::int_(attribute.id)] = attribute.value;
  }
  Fields made;
  made["name"] = device.name;
  made["id"] = device.id;
  made["kind"] = device.kind;
  made["memory_bytes"] = device.memory_bytes;
  made["multiprocessors"] = device.multiprocessors;
  made["threads_per_block_max"] = device.threads_per_block_max;
  made["block_max"] = Extents(device.block_max);
  made["grid_max"] = Extents(device.grid_max);
  made["shared_bytes_per_block_max"] = device.shared_bytes_per_block_max;
  made["uuid"] = nb::bytes(device.uuid.data(), device.uuid.size());
  made["attributes"] = attributes;
  return made;
}

nb::typed<nb::list, Fields> ListDevices(std::string socket, std::int64_t control_timeout_ns) {
  ClientOptions options;
  options.socket = std::move(socket);
  options.control_timeout = std::chrono::nanoseconds(control_timeout_ns);
  std::vector<DeviceProperties> devices;
  {
    const nb::gil_scoped_release waits;
    devices = Take(Client::ListDevices(options));
  }
  nb::typed<nb::list, Fields> made;
  for (const DeviceProperties& device : devices) made.append(AsDict(device));
  return made;
}

Module LoadModule(const Client& client, nb::handle image) {
  const HostView view(image, PyBUF_SIMPLE);
  const nb::gil_scoped_release waits;
  return Take(client.LoadModule(view.bytes()));
}

// Returned as bytes, because kernels may print anything.
nb::bytes TakePrinted(const Client& client) {
  std::string printed;
  {
    const nb::gil_scoped_release waits;
    printed = Take(client.TakePrinted());
  }
  return nb::bytes(printed.data(), printed.size());
}

}  // namespace

void BindClient(nb::module_& module) {
  nb::class_<Client>(module, "Client")
      .def_prop_ro("session_id", &Client::session_id)
      .def_prop_ro("device", [](const Client& client) { return AsDict(client.device()); })
      .def("load_module", &LoadModule)
      .def(
          "load_module_file",
          [](const Client& client, const std::string& path) {
            return Take(client.LoadModuleFile(path));
          },
          WithoutGil())
      .def(
          "allocate_device",
          [](const Client& client, std::size_t bytes) {
            return Take(client.AllocateDevice(bytes));
          },
          WithoutGil())
      .def(
          "allocate_host",
          [](const Client& client, std::size_t bytes) { return Take(client.AllocateHost(bytes)); },
          WithoutGil())
      .def("memory_info",
           [](const Client& client) {
             const MemoryInfo info = client.memory_info();
             return nb::typed<nb::tuple, int, int, int, int, int, int>(
                 nb::make_tuple(info.total_bytes, info.mapped_bytes, info.used_bytes,
                                info.guaranteed_bytes, info.resident_bytes, info.wanted_bytes));
           })
      .def(
          "trim_device", [](const Client& client) { return Take(client.TrimDevice()); },
          WithoutGil())
      .def(
          "create_stream", [](const Client& client) { return Take(client.CreateStream()); },
          WithoutGil())
      .def("default_stream", &Client::default_stream)
      .def("create_event",
           [](const Client& client, bool timing) {
             return Take(client.CreateEvent(timing ? EventTiming::kOn : EventTiming::kOff));
           })
      .def(
          "expect_request_in",
          [](const Client& client, std::int64_t in_ns) {
            Require(client.ExpectRequestIn(std::chrono::nanoseconds(in_ns)));
          },
          WithoutGil())
      .def(
          "synchronize",
          [](const Client& client) {
            const Status status = client.Synchronize();
            if (!status.ok()) throw Failure(status, client.fault());
          },
          WithoutGil())
      .def("take_printed", &TakePrinted)
      .def("check", [](const Client& client) { Require(client.status()); })
      .def("close", &Client::Close, WithoutGil());

  module.def("connect", &Connect, WithoutGil(), nb::kw_only(), nb::arg("name"),
             nb::arg("scheduling_class").none(), nb::arg("weight").none(),
             nb::arg("memory_bytes").none(), nb::arg("latency_target_ns").none(), nb::arg("device"),
             nb::arg("socket"), nb::arg("takes_printed"), nb::arg("spin_ns").none(),
             nb::arg("control_timeout_ns"));
  module.def("list_devices", &ListDevices, nb::arg("socket"), nb::arg("control_timeout_ns"));
  module.def("library_version", &LibraryVersion);
}

}  // namespace gpushared::python

NB_MODULE(_core, module) {
  gpushared::python::TranslateFailures();
  gpushared::python::BindMemory(module);
  gpushared::python::BindModule(module);
  gpushared::python::BindStream(module);
  gpushared::python::BindClient(module);
}

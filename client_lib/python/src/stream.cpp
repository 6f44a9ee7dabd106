// SPDX-License-Identifier: Apache-2.0
// Calls that may wait release the GIL.
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gpushared/client.h"

#include "client_lib/python/src/bindings.h"
#include "client_lib/python/src/errors.h"
#include "client_lib/python/src/host_view.h"

namespace gpushared::python {

namespace nb = nanobind;

namespace {

using Extents = std::array<std::uint32_t, 3>;
using WithoutGil = nb::call_guard<nb::gil_scoped_release>;

Dim3 ToDim3(const Extents& extents) { return {extents[0], extents[1], extents[2]}; }

struct Shape {
  Extents grid, block;
  std::uint32_t dynamic_shared_bytes;
  Extents cluster;
  bool is_cooperative;

  LaunchShape ToLaunchShape() const {
    return {.grid = ToDim3(grid),
            .block = ToDim3(block),
            .dynamic_shared_bytes = dynamic_shared_bytes,
            .cluster = ToDim3(cluster),
            .is_cooperative = is_cooperative};
  }
};

// Throws the error of a stream with the kind of its kernel fault, if any.
void Require(const Stream& stream, const Status& status) {
  if (!status.ok()) throw Failure(status, stream.fault());
}

// Returns true for Ok and false for kNotReady.
bool IsDone(const Status& status, FaultKind fault) {
  if (status.code() == StatusCode::kNotReady) return false;
  if (!status.ok()) throw Failure(status, fault);
  return true;
}

// Each argument is an int (an address) or bytes in the kernel's representation.
void Launch(const Stream& stream, const Kernel& kernel, const Extents& grid, const Extents& block,
            std::uint32_t dynamic_shared_bytes, const Extents& cluster, bool is_cooperative,
            const nb::typed<nb::list, nb::any>& arguments) {
  std::vector<DeviceAddress> addresses;
  std::vector<LaunchArgument> list;
  addresses.reserve(arguments.size());  // Reserved first, because the list points into this vector.
  list.reserve(arguments.size());
  for (const nb::handle argument : arguments) {
    if (nb::isinstance<nb::int_>(argument)) {
      addresses.push_back(nb::cast<DeviceAddress>(argument));
      list.push_back({&addresses.back(), sizeof(DeviceAddress)});
    } else {
      const nb::bytes value = nb::cast<nb::bytes>(argument);
      list.push_back({value.data(), value.size()});  // The caller's list keeps the bytes alive.
    }
  }
  const Shape shape{grid, block, dynamic_shared_bytes, cluster, is_cooperative};
  const nb::gil_scoped_release waits;
  Require(stream, stream.LaunchWith(kernel, shape.ToLaunchShape(), list));
}

void LaunchPacked(const Stream& stream, const Kernel& kernel, const Extents& grid,
                  const Extents& block, std::uint32_t dynamic_shared_bytes, const Extents& cluster,
                  bool is_cooperative, nb::handle parameters) {
  const HostView view(parameters, PyBUF_SIMPLE);
  const Shape shape{grid, block, dynamic_shared_bytes, cluster, is_cooperative};
  const nb::gil_scoped_release waits;
  Require(stream, stream.LaunchPacked(kernel, shape.ToLaunchShape(), view.bytes()));
}

// Rejects rows outside the host bytes, because the library trusts the pointer.
void RequireInside(const HostView& view, const CopyShape& shape, std::size_t pitch_bytes) {
  if (shape.height == 0 || shape.width_bytes == 0) return;
  std::size_t last = 0, end = 0;
  if (__builtin_mul_overflow(shape.height - 1, pitch_bytes, &last) ||
      __builtin_add_overflow(last, shape.width_bytes, &end) || end > view.size()) {
    throw Failure(Status(StatusCode::kInvalidArgument,
                         "copy rejected: " + std::to_string(shape.height) + " rows of " +
                             std::to_string(shape.width_bytes) + " bytes, " +
                             std::to_string(pitch_bytes) + " bytes apart, exceed the array of " +
                             std::to_string(view.size()) + " bytes"));
  }
}

void CopyToDevice(const Stream& stream, DeviceAddress destination, nb::handle source) {
  const HostView view(source, PyBUF_SIMPLE);
  const nb::gil_scoped_release waits;
  Require(stream, stream.CopyToDevice(destination, view.data(), view.size()));
}

void CopyToHost(const Stream& stream, nb::handle destination, DeviceAddress source) {
  const HostView view(destination, PyBUF_WRITABLE);
  const nb::gil_scoped_release waits;
  Require(stream, stream.CopyToHost(view.data(), source, view.size()));
}

CopyShape Rows(std::size_t width_bytes, std::size_t height, std::size_t destination_pitch_bytes,
               std::size_t source_pitch_bytes) {
  return {width_bytes, height, destination_pitch_bytes, source_pitch_bytes};
}

void CopyToDevice2d(const Stream& stream, DeviceAddress destination, nb::handle source,
                    std::size_t width_bytes, std::size_t height,
                    std::size_t destination_pitch_bytes, std::size_t source_pitch_bytes) {
  const HostView view(source, PyBUF_SIMPLE);
  const CopyShape shape = Rows(width_bytes, height, destination_pitch_bytes, source_pitch_bytes);
  RequireInside(view, shape, source_pitch_bytes);
  const nb::gil_scoped_release waits;
  Require(stream, stream.CopyToDevice2d(destination, view.data(), shape));
}

void CopyToHost2d(const Stream& stream, nb::handle destination, DeviceAddress source,
                  std::size_t width_bytes, std::size_t height, std::size_t destination_pitch_bytes,
                  std::size_t source_pitch_bytes) {
  const HostView view(destination, PyBUF_WRITABLE);
  const CopyShape shape = Rows(width_bytes, height, destination_pitch_bytes, source_pitch_bytes);
  RequireInside(view, shape, destination_pitch_bytes);
  const nb::gil_scoped_release waits;
  Require(stream, stream.CopyToHost2d(view.data(), source, shape));
}

}  // namespace

void BindStream(nb::module_& module) {
  nb::class_<Event>(module, "Event")
      .def("query", [](const Event& event) { return IsDone(event.Query(), FaultKind::kNone); })
      .def(
          "synchronize", [](const Event& event) { python::Require(event.Synchronize()); },
          WithoutGil())
      .def_static("elapsed_ns", [](const Event& start, const Event& end) {
        return std::int64_t{Take(Event::ElapsedTime(start, end)).count()};
      });

  nb::class_<Stream>(module, "Stream")
      .def("launch", &Launch)
      .def("launch_packed", &LaunchPacked)
      .def("copy_to_device", &CopyToDevice)
      .def("copy_to_host", &CopyToHost)
      .def("copy_to_device_2d", &CopyToDevice2d)
      .def("copy_to_host_2d", &CopyToHost2d)
      .def(
          "copy_on_device",
          [](const Stream& stream, DeviceAddress destination, DeviceAddress source,
             std::size_t bytes) {
            Require(stream, stream.CopyOnDevice(destination, source, bytes));
          },
          WithoutGil())
      .def(
          "copy_on_device_2d",
          [](const Stream& stream, DeviceAddress destination, DeviceAddress source,
             std::size_t width_bytes, std::size_t height, std::size_t destination_pitch_bytes,
             std::size_t source_pitch_bytes) {
            Require(stream, stream.CopyOnDevice2d(destination, source,
                                                  Rows(width_bytes, height, destination_pitch_bytes,
                                                       source_pitch_bytes)));
          },
          WithoutGil())
      .def(
          "fill",
          [](const Stream& stream, DeviceAddress destination, std::uint32_t value,
             std::uint32_t element_bytes, std::size_t count) {
            Require(stream, stream.Fill(destination, {value, element_bytes}, count));
          },
          WithoutGil())
      .def(
          "fill_2d",
          [](const Stream& stream, DeviceAddress destination, std::uint32_t value,
             std::uint32_t element_bytes, std::size_t width_elements, std::size_t height,
             std::size_t pitch_bytes) {
            Require(stream, stream.Fill2d(destination, {value, element_bytes},
                                          {width_elements, height, pitch_bytes}));
          },
          WithoutGil())
      .def(
          "record",
          [](const Stream& stream, const Event& event) { Require(stream, stream.Record(event)); },
          WithoutGil())
      .def(
          "wait",
          [](const Stream& stream, const Event& event) { Require(stream, stream.Wait(event)); },
          WithoutGil())
      .def(
          "begin_request",
          [](const Stream& stream, std::int64_t age_ns) {
            Require(stream, stream.BeginRequest(std::chrono::nanoseconds(age_ns)));
          },
          WithoutGil())
      .def(
          "end_request", [](const Stream& stream) { Require(stream, stream.EndRequest()); },
          WithoutGil())
      .def(
          "synchronize", [](const Stream& stream) { Require(stream, stream.Synchronize()); },
          WithoutGil())
      .def("query", [](const Stream& stream) { return IsDone(stream.Query(), stream.fault()); });
}

}  // namespace gpushared::python

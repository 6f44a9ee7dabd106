// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_PYTHON_SRC_HOST_VIEW_H_
#define GPUSHARED_CLIENT_LIB_PYTHON_SRC_HOST_VIEW_H_

#include <nanobind/nanobind.h>

#include <cstddef>
#include <span>

namespace gpushared::python {

// Contiguous bytes of a Python object with the buffer protocol. The object keeps them in place
// while this view exists.
//
// Created and destroyed with the GIL held; may be read without it.
class HostView {
 public:
  // `flags` is PyBUF_SIMPLE or PyBUF_WRITABLE. Throws the object's own BufferError or TypeError.
  HostView(nanobind::handle object, int flags) {
    if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) throw nanobind::python_error();
  }
  ~HostView() { PyBuffer_Release(&view_); }
  HostView(const HostView&) = delete;
  HostView& operator=(const HostView&) = delete;

  std::size_t size() const { return static_cast<std::size_t>(view_.len); }
  std::byte* data() const { return static_cast<std::byte*>(view_.buf); }
  std::span<const std::byte> bytes() const { return {data(), size()}; }

 private:
  Py_buffer view_ = {};
};

}  // namespace gpushared::python

#endif  // GPUSHARED_CLIENT_LIB_PYTHON_SRC_HOST_VIEW_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_PAGES_H_
#define GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_PAGES_H_

#include <cstddef>
#include <cstdint>
#include <utility>

namespace gpushared::device::executor {

// Zeroed memory from Linux, which allocates each page on first access and frees all of them when
// the object is destroyed. Empty if the allocation fails.
class Pages {
 public:
  Pages() = default;
  explicit Pages(std::uint64_t bytes);
  ~Pages();
  Pages(Pages&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Pages& operator=(Pages&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  std::byte* data() const { return data_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
};

}  // namespace gpushared::device::executor

#endif  // GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_PAGES_H_

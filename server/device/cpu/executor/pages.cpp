// SPDX-License-Identifier: Apache-2.0
#include "server/device/cpu/executor/pages.h"

#include <sys/mman.h>

namespace gpushared::device::executor {

Pages::Pages(std::uint64_t bytes) {
  void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return;
  data_ = static_cast<std::byte*>(at);
  bytes_ = bytes;
}

Pages::~Pages() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace gpushared::device::executor

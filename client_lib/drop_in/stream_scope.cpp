// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/stream_scope.h"

#include "client_lib/drop_in/driver.h"

namespace gpushared::drop_in {

StreamScope::StreamScope(StreamHandle handle) : handle_(handle) {
  innermost_ = nullptr;
  if (handle == nullptr || handle == LegacyStream() || handle == PerThreadStream()) return;
  if (Driver::Get().Ready() != Code::kSuccess) return;
  stream_ = Driver::Get().streams.Find(handle);
  if (stream_ != nullptr) innermost_ = this;
}

std::shared_ptr<CudaStream> StreamScope::Find(StreamHandle handle) {
  if (innermost_ != nullptr && innermost_->handle_ == handle) return innermost_->stream_;
  return Driver::Get().streams.Find(handle);
}

}  // namespace gpushared::drop_in

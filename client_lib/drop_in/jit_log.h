// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_JIT_LOG_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_JIT_LOG_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "client_lib/drop_in/driver_types.h"

namespace gpushared::drop_in {

// Returns the register limit in the JIT options; 0 if there is none.
inline unsigned RegistersMost(unsigned count, const JitOption* options, void* const* values) {
  unsigned most = 0;
  for (unsigned i = 0; i < count; ++i) {
    if (options[i] != JitOption::kMaxRegisters) continue;
    most = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(values[i]));
  }
  return most;
}

// Log buffers of a load or a link, as passed in the JIT options. They belong to the program and
// must outlive this object.
//
// Thread-compatible.
class JitLog {
 public:
  JitLog() = default;
  JitLog(unsigned count, const JitOption* options, void** values) {
    for (unsigned i = 0; i < count; ++i) {
      const auto number = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(values[i]));
      switch (options[i]) {
        case JitOption::kInfoLogBuffer:
          info_.text = static_cast<char*>(values[i]);
          break;
        case JitOption::kInfoLogBytes:
          info_.Size(number, &values[i]);
          break;
        case JitOption::kErrorLogBuffer:
          error_.text = static_cast<char*>(values[i]);
          break;
        case JitOption::kErrorLogBytes:
          error_.Size(number, &values[i]);
          break;
        case JitOption::kWallTime:
          wall_time_ = &values[i];
          break;
        default:
          break;  // Other options do not concern the log.
      }
    }
    info_.Write("");
    error_.Write("");
  }
  void WriteError(const std::string& message) { error_.Write(message); }
  // Writes the milliseconds since construction to the value of the option that requests them.
  void WriteTime() const {
    if (wall_time_ == nullptr) return;
    const std::chrono::duration<float, std::milli> spent =
        std::chrono::steady_clock::now() - begin_;
    const float milliseconds = spent.count();
    std::memcpy(wall_time_, &milliseconds, sizeof milliseconds);
  }

 private:
  struct Buffer {
    char* text = nullptr;
    unsigned bytes = 0;
    void** written = nullptr;  // Option value that receives the number of bytes written.

    void Size(unsigned bytes_max, void** place) {
      bytes = bytes_max;
      written = place;
    }
    void Write(const std::string& message) const {
      if (written == nullptr) return;
      std::size_t length = 0;
      if (text != nullptr && bytes != 0) {
        length = message.copy(text, bytes - 1);
        text[length] = '\0';
      }
      *written = reinterpret_cast<void*>(static_cast<std::uintptr_t>(length));
    }
  };
  Buffer info_, error_;
  void** wall_time_ = nullptr;  // Option value that receives the time; null without the option.
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_JIT_LOG_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_IMAGE_LINK_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_IMAGE_LINK_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "gpushared/result.h"

namespace gpushared::drop_in {

// Reads an input file. kNotFound if it cannot be read; kLimitExceeded beyond
// ImageLink::kInputBytesMax. Thread-safe.
Result<std::string> ReadLinkInput(const char* path);

// Combines images in the program's own process. A single input is returned unchanged. Several
// inputs, or one with a library or a limit of registers, become one PTX text. Copies its inputs.
//
// Thread-compatible.
class ImageLink {
 public:
  // Limits of one link.
  static constexpr std::size_t kInputsMax = 1024;
  static constexpr std::size_t kInputBytesMax = 256u << 20;

  // Add an input, with a name for messages. kLimitExceeded beyond the limits above;
  // kInvalidArgument once the link is complete.
  //
  // The PTX text may include its NUL.
  Status AddPtx(std::string_view name, std::string_view text);
  // Uses the PTX of the fatbin, unless the link returns its single input unchanged.
  Status AddFatbin(std::string_view name, std::string_view fatbin);
  // Uses the fatbins in an object file of nvcc -dc. kUnsupported if it has none.
  Status AddObject(std::string_view name, std::string_view object);
  // Accepts libcudadevrt.a, which provides grid synchronization, and does not count it as an input.
  // kUnsupported for any other library.
  Status AddLibrary(std::string_view name, std::string_view archive);

  // Limits the registers of kernels whose PTX does not specify a limit (.maxnreg). With a limit,
  // the PTX of a fatbin is extracted even if the fatbin is the only input. 0 and values above
  // kRegistersMost mean no limit.
  static constexpr unsigned kRegistersMost = 255;
  void LimitRegisters(unsigned most) { registers_most_ = most <= kRegistersMost ? most : 0; }

  bool is_complete() const { return !image_.empty(); }
  // Completes the link. Has no further effect once it has succeeded. kInvalidArgument (no inputs,
  // or an error of the linker), kUnsupported (a fatbin without PTX) or kLimitExceeded.
  Status Complete();
  // Returns the result, followed by a NUL for loads that pass no size. Requires is_complete().
  std::string& image() { return image_; }

 private:
  struct Input {
    std::string name, bytes;
  };
  Status Add(std::string_view name, std::string_view bytes);
  Result<std::string> LinkTexts() const;

  std::vector<Input> inputs_;
  std::size_t input_bytes_ = 0;
  bool has_device_runtime_ = false;
  unsigned registers_most_ = 0;  // 0: no limit.
  std::string image_;            // Empty until the link is complete.
};

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_IMAGE_LINK_H_

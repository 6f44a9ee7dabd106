// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_IMAGE_LINK_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_IMAGE_LINK_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "gpushared/result.h"

namespace gpushared::drop_in {

// The bytes of a file that is to be an input. Fails with kNotFound when it cannot be read, and with
// kLimitExceeded beyond ImageLink::kInputBytesMax. Thread-safe.
Result<std::string> ReadLinkInput(const char* path);

// Images that become one image, in the program's own process. One input is its own result; several
// become one PTX text. Copies what it is given.
//
// Thread-compatible.
class ImageLink {
 public:
  // One link takes so much.
  static constexpr std::size_t kInputsMax = 1024;
  static constexpr std::size_t kInputBytesMax = 256u << 20;

  // Inputs, with a name for messages. They fail with kLimitExceeded beyond the limits above, and
  // with kInvalidArgument when the link is complete.
  //
  // A text may come with its NUL or without it.
  Status AddPtx(std::string_view name, std::string_view text);
  // Its PTX counts, if it is not the only input.
  Status AddFatbin(std::string_view name, std::string_view fatbin);
  // An object file of nvcc -dc counts as the fatbins in it. kUnsupported when it has none.
  Status AddObject(std::string_view name, std::string_view object);
  // libcudadevrt.a stands for the grid's synchronisation. kUnsupported for any other library.
  Status AddLibrary(std::string_view name, std::string_view archive);

  // Kernels get no more registers, where their texts do not say how many (PTX: .maxnreg). Takes PTX
  // of a container, also of a single one. 0 and what is beyond kRegistersMost limit nothing.
  static constexpr unsigned kRegistersMost = 255;
  void LimitRegisters(unsigned most) { registers_most_ = most <= kRegistersMost ? most : 0; }

  bool is_complete() const { return !image_.empty(); }
  // Once it has succeeded, later calls change nothing. Fails with kInvalidArgument (no inputs, or
  // what the linker says), kUnsupported (a fatbin without PTX) or kLimitExceeded.
  Status Complete();
  // The result with a NUL behind it, as loads without a size need it. Requires is_complete().
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

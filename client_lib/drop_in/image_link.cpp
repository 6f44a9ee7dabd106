// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/image_link.h"

#include <array>
#include <fstream>
#include <span>
#include <utility>

#include "client_lib/drop_in/device_runtime_archive.h"
#include "client_lib/drop_in/object_file.h"
#include "common/ptx/link/linker.h"
#include "common/ptx/text/fatbin.h"

namespace gpushared::drop_in {

Result<std::string> ReadLinkInput(const char* path) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes;
  std::array<char, 65536> piece;
  if (!file) return Status(StatusCode::kNotFound, std::string("cannot read ") + path);
  // Reads the file in pieces, because the size of a pipe is not known in advance.
  while (file.read(piece.data(), piece.size()), file.gcount() > 0) {
    bytes.append(piece.data(), static_cast<std::size_t>(file.gcount()));
    if (bytes.size() > ImageLink::kInputBytesMax) {
      return Status(StatusCode::kLimitExceeded,
                    std::string("link input rejected: '") + path + "' has more than " +
                        std::to_string(ImageLink::kInputBytesMax) + " bytes");
    }
  }
  return bytes;
}

Status ImageLink::AddPtx(std::string_view name, std::string_view text) {
  return Add(name, text.substr(0, text.find('\0')));
}

Status ImageLink::AddFatbin(std::string_view name, std::string_view fatbin) {
  return Add(name, fatbin);
}

Status ImageLink::AddObject(std::string_view name, std::string_view object) {
  const std::vector<std::string_view> fatbins = GetFatbins(object);
  if (fatbins.empty()) {
    return {StatusCode::kUnsupported, "link input rejected: '" + std::string(name) +
                                          "' is not an object file with device code"};
  }
  for (const std::string_view fatbin : fatbins) {
    if (Status added = Add(name, fatbin); !added.ok()) return added;
  }
  return {};
}

Status ImageLink::AddLibrary(std::string_view name, std::string_view archive) {
  if (!IsDeviceRuntimeArchive(archive)) {
    return {StatusCode::kUnsupported,
            "link input rejected: '" + std::string(name) +
                "' is a library, but only libcudadevrt.a can be linked; compile the code to PTX "
                "instead (nvcc -rdc=true -ptx)"};
  }
  has_device_runtime_ = true;
  return {};
}

Status ImageLink::Add(std::string_view name, std::string_view bytes) {
  const std::string rejected = "link input rejected: '" + std::string(name);
  if (is_complete()) {
    return {StatusCode::kInvalidArgument, rejected + "' comes after the link was completed"};
  }
  if (inputs_.size() == kInputsMax || bytes.size() > kInputBytesMax - input_bytes_) {
    return {StatusCode::kLimitExceeded, rejected + "' has " + std::to_string(bytes.size()) +
                                            " bytes; a link takes " + std::to_string(kInputsMax) +
                                            " inputs of " + std::to_string(kInputBytesMax) +
                                            " bytes together"};
  }
  input_bytes_ += bytes.size();
  inputs_.push_back({std::string(name), std::string(bytes)});
  return {};
}

Result<std::string> ImageLink::LinkTexts() const {
  std::vector<std::string> texts;
  std::vector<ptx::LinkInput> inputs;
  texts.reserve(inputs_.size());  // The texts must not move, because `inputs` points to them.
  for (const Input& input : inputs_) {
    Result<std::string> text = ptx::ExtractPtx(std::as_bytes(std::span(input.bytes)));
    if (!text) {
      return Status(text.status().code(),
                    "link rejected: " + input.name + ": " + text.status().message());
    }
    texts.push_back(*std::move(text));
    inputs.push_back({input.name, texts.back()});
  }
  return ptx::Link(inputs, registers_most_);
}

Status ImageLink::Complete() {
  if (is_complete()) return {};
  if (inputs_.empty()) return {StatusCode::kInvalidArgument, "link rejected: it has no inputs"};
  if (inputs_.size() == 1 && !has_device_runtime_ && registers_most_ == 0) {
    image_ = inputs_.front().bytes;
  } else {
    Result<std::string> linked = LinkTexts();
    if (!linked) return linked.status();
    image_ = *std::move(linked);
  }
  image_.push_back('\0');
  return {};
}

}  // namespace gpushared::drop_in

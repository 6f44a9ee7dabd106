// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_SUPPORT_SCRATCH_DIRECTORY_H_
#define GPUSHARED_TESTS_SUPPORT_SCRATCH_DIRECTORY_H_

#include <stdlib.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>

namespace gpushared::testing {

// A new directory that only this user can access, removed with its contents by the destructor.
// Throws if it cannot be created. The name is short because socket paths have at most 107 bytes.
class ScratchDirectory {
 public:
  ScratchDirectory()
      : path_((std::filesystem::temp_directory_path() / "gpushared-XXXXXX").string()) {
    if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("mkdtemp failed: " + path_);
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_SUPPORT_SCRATCH_DIRECTORY_H_

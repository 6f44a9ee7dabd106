// SPDX-License-Identifier: Apache-2.0
#include "ipc/trusted_directory.h"

#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <system_error>

namespace gpushared::ipc {
namespace {

Status Untrusted(const std::string& directory, const std::string& why) {
  return {StatusCode::kPermissionDenied, "directory '" + directory + "' " + why};
}

Status CheckOne(const std::string& path) {
  struct stat facts {};
  if (::lstat(path.c_str(), &facts) != 0) {
    return Untrusted(path, "cannot be read: " + std::generic_category().message(errno));
  }
  if (facts.st_uid != 0 && facts.st_uid != ::geteuid()) {
    return Untrusted(path, "belongs to uid " + std::to_string(facts.st_uid) +
                               ", allowed: root and uid " + std::to_string(::geteuid()));
  }
  // The mode of a link is not checked, because it has no meaning: the directory that contains the
  // link decides who may replace the link.
  if (S_ISLNK(facts.st_mode)) return {};
  if (!S_ISDIR(facts.st_mode)) return Untrusted(path, "is none");
  const bool others_write = (facts.st_mode & (S_IWGRP | S_IWOTH)) != 0;
  if (others_write && (facts.st_mode & S_ISVTX) == 0) {
    return Untrusted(path, "is writable by users other than its owner; correct it with chmod go-w");
  }
  return {};
}

Status CheckAll(const std::string& path) {
  if (Status root = CheckOne("/"); !root.ok()) return root;
  for (std::size_t at = 1; at < path.size();) {
    const std::size_t slash = std::min(path.find('/', at), path.size());
    if (slash > at) {
      if (Status status = CheckOne(path.substr(0, slash)); !status.ok()) return status;
    }
    at = slash + 1;
  }
  return {};
}

}  // namespace

Status CheckTrustedDirectory(const std::string& path) {
  if (!path.starts_with('/')) return Untrusted(path, "is not an absolute path");
  // Checks the links on the path first, then their targets.
  if (Status status = CheckAll(path); !status.ok()) return status;
  std::array<char, PATH_MAX> real{};
  if (::realpath(path.c_str(), real.data()) == nullptr) {
    return Untrusted(path, "cannot be read: " + std::generic_category().message(errno));
  }
  return CheckAll(real.data());
}

}  // namespace gpushared::ipc

// SPDX-License-Identifier: Apache-2.0
#include "server/modules/compile/code_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>
#include <utility>

#include "ipc/trusted_directory.h"

namespace gpushared::compile {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".code";

// Precedes the code in every file.
struct Header {
  std::array<char, 8> magic = {'g', 'p', 'u', 's', 'c', 'o', 'd', '1'};
  Digest key = {};
  Digest content = {};
  std::uint64_t bytes = 0;
};
static_assert(sizeof(Header) == 80);

Digest GetDigest(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.Add(bytes);
  return hash.Finish();
}

Status Rejected(const fs::path& directory, const std::string& why) {
  return {StatusCode::kInvalidArgument, "code cache rejected: '" + directory.string() + "' " + why};
}

std::vector<std::byte> ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return {};
  std::vector<std::byte> bytes(static_cast<std::size_t>(std::max<std::streamoff>(file.tellg(), 0)));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<std::size_t>(file.gcount()));
  return bytes;
}

}  // namespace

Result<CodeCache> CodeCache::Open(const fs::path& directory, std::uint64_t bytes_max) {
  std::error_code error;
  fs::create_directories(directory.parent_path(), error);
  if (::mkdir(directory.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    return Rejected(directory, "cannot be made: " + std::generic_category().message(errno));
  }
  struct stat about = {};
  if (::lstat(directory.c_str(), &about) != 0 || !S_ISDIR(about.st_mode)) {
    return Rejected(directory, "is no directory");
  }
  if (about.st_uid != ::geteuid() || (about.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return Rejected(directory,
                    "can be written to by others than uid " + std::to_string(::geteuid()));
  }
  std::error_code failed;
  const fs::path whole = fs::absolute(directory, failed);
  if (const Status above = ipc::CheckTrustedDirectory(whole.string()); !above.ok()) {
    return Rejected(directory, "is not a suitable place: " + std::string(above.message()));
  }
  return CodeCache(directory, bytes_max);
}

fs::path CodeCache::GetPath(const Digest& key) const {
  return directory_ / (Hexadecimal(key) + std::string(kSuffix));
}

std::optional<std::vector<std::byte>> CodeCache::Find(const Digest& key) {
  const fs::path path = GetPath(key);
  std::vector<std::byte> bytes = ReadFile(path);
  if (bytes.empty() && !fs::exists(path)) return std::nullopt;
  Header header;
  const Header expected = {.key = key};
  bool is_whole = bytes.size() >= sizeof header;
  if (is_whole) {
    std::memcpy(&header, bytes.data(), sizeof header);
    bytes.erase(bytes.begin(), bytes.begin() + sizeof header);
    is_whole = header.magic == expected.magic && header.key == key &&
               header.bytes == bytes.size() && header.content == GetDigest(bytes);
  }
  std::error_code error;
  if (!is_whole) {
    ++damaged_;
    fs::remove(path, error);
    return std::nullopt;
  }
  fs::last_write_time(path, fs::file_time_type::clock::now(), error);
  return bytes;
}

Status CodeCache::Store(const Digest& key, std::span<const std::byte> code) {
  // Code that exceeds the cache is not stored, because it would be evicted at once.
  if (code.size() + sizeof(Header) > bytes_max_) return {};
  const fs::path path = GetPath(key);
  const fs::path unfinished = path.string() + "." + std::to_string(::getpid());
  const Header header = {.key = key, .content = GetDigest(code), .bytes = code.size()};
  std::ofstream file(unfinished, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(&header), sizeof header);
  file.write(reinterpret_cast<const char*>(code.data()), static_cast<std::streamsize>(code.size()));
  file.close();
  std::error_code error;
  if (file) fs::rename(unfinished, path, error);
  if (!file || error) {
    const std::string why = error ? error.message() : std::generic_category().message(errno);
    fs::remove(unfinished, error);
    return {StatusCode::kInternal, "code cache: '" + path.string() + "' not written: " + why};
  }
  EvictOldest();
  return {};
}

void CodeCache::EvictOldest() {
  struct File {
    fs::file_time_type used;
    std::uint64_t bytes;
    fs::path path;
  };
  std::vector<File> files;
  std::uint64_t total = 0;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory_, error)) {
    File file{entry.last_write_time(error), entry.file_size(error), entry.path()};
    if (error) continue;  // Skips files that another process has just removed.
    total += file.bytes;
    files.push_back(std::move(file));
  }
  std::ranges::sort(files, {}, &File::used);
  for (const File& file : files) {
    if (total <= bytes_max_) return;
    total -= file.bytes;
    fs::remove(file.path, error);
  }
}

}  // namespace gpushared::compile

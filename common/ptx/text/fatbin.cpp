// SPDX-License-Identifier: Apache-2.0
#include "common/ptx/text/fatbin.h"

#include <lz4.h>
#include <zstd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <set>
#include <string_view>

namespace gpushared::ptx {
namespace {

// Format written by nvcc 13.0: a header, followed by entries of header and payload.
constexpr std::uint32_t kMagic = 0xBA55ED50;
constexpr std::uint16_t kVersion = 1;
constexpr std::size_t kHeaderBytes = 16;
constexpr std::size_t kEntryBytes = 64;
constexpr std::uint16_t kKindPtx = 1;
constexpr std::uint64_t kFlagLz4 = 0x2000;
constexpr std::uint64_t kFlagZstd = 0x8000;

template <typename T>
T Load(std::span<const std::byte> bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

Status Broken(std::size_t offset, const std::string& what) {
  return {StatusCode::kInvalidArgument, "fatbin: offset " + std::to_string(offset) + ": " + what};
}

struct Entry {
  std::size_t offset = 0;  // In the image.
  std::uint16_t kind = 0;
  std::uint32_t compressed_bytes = 0;
  std::uint32_t architecture = 0;
  std::uint64_t flags = 0;
  std::uint64_t raw_bytes = 0;
  std::span<const std::byte> payload;
};

Result<std::string> Decompress(const Entry& entry) {
  const bool is_compressed = (entry.flags & (kFlagLz4 | kFlagZstd)) != 0;
  const auto* source = reinterpret_cast<const char*>(entry.payload.data());
  if (!is_compressed && entry.payload.size() > kPtxBytesMax) {
    return Broken(entry.offset, "PTX of " + std::to_string(entry.payload.size()) +
                                    " bytes, allowed: " + std::to_string(kPtxBytesMax));
  }
  if (!is_compressed) return std::string(source, entry.payload.size());
  if (entry.raw_bytes > kPtxBytesMax) {
    return Broken(entry.offset, "PTX of " + std::to_string(entry.raw_bytes) +
                                    " bytes, allowed: " + std::to_string(kPtxBytesMax));
  }
  if (entry.compressed_bytes > entry.payload.size()) {
    return Broken(entry.offset, std::to_string(entry.compressed_bytes) +
                                    " compressed bytes in a payload of " +
                                    std::to_string(entry.payload.size()));
  }
  if (entry.compressed_bytes > kPtxBytesMax) {
    return Broken(entry.offset, std::to_string(entry.compressed_bytes) +
                                    " compressed bytes, allowed: " + std::to_string(kPtxBytesMax));
  }
  std::string text(static_cast<std::size_t>(entry.raw_bytes), '\0');
  if ((entry.flags & kFlagZstd) != 0) {
    const std::size_t got =
        ZSTD_decompress(text.data(), text.size(), source, entry.compressed_bytes);
    if (ZSTD_isError(got) != 0 || got != text.size())
      return Broken(entry.offset, "zstd data does not decompress to its size");
  } else {
    // Both sizes are at most kPtxBytesMax, so they fit into an int.
    const int got =
        LZ4_decompress_safe(source, text.data(), static_cast<int>(entry.compressed_bytes),
                            static_cast<int>(text.size()));
    if (got < 0 || static_cast<std::size_t>(got) != text.size()) {
      return Broken(entry.offset, "LZ4 data does not decompress to its size");
    }
  }
  return text;
}

Result<Entry> ReadEntry(std::span<const std::byte> image, std::size_t at, std::size_t end) {
  if (end - at < kEntryBytes) return Broken(at, "entry header is cut off");
  Entry entry;
  entry.offset = at;
  entry.kind = Load<std::uint16_t>(image, at);
  const auto header_bytes = Load<std::uint32_t>(image, at + 4);
  const auto payload_bytes = Load<std::uint64_t>(image, at + 8);
  entry.compressed_bytes = Load<std::uint32_t>(image, at + 16);
  entry.architecture = Load<std::uint32_t>(image, at + 28);
  entry.flags = Load<std::uint64_t>(image, at + 40);
  entry.raw_bytes = Load<std::uint64_t>(image, at + 56);
  if (header_bytes < kEntryBytes || header_bytes > end - at) {
    return Broken(at, "entry header of " + std::to_string(header_bytes) + " bytes, " +
                          std::to_string(end - at) + " are there");
  }
  if (payload_bytes > end - at - header_bytes) {
    return Broken(at, "entry of " + std::to_string(payload_bytes) + " bytes, " +
                          std::to_string(end - at - header_bytes) + " are there");
  }
  entry.payload = image.subspan(at + header_bytes, static_cast<std::size_t>(payload_bytes));
  return entry;
}

Status NoPtx(const std::set<std::uint32_t>& machine_code) {
  std::string text = "fatbin: no PTX inside";
  if (!machine_code.empty()) {
    text += " (machine code only:";
    for (const std::uint32_t architecture : machine_code)
      text += " sm_" + std::to_string(architecture);
    text += ")";
  }
  return {StatusCode::kUnsupported, text + "; build with -gencode arch=compute_XX,code=compute_XX"};
}

Result<std::string> TakeText(std::span<const std::byte> image) {
  const std::string_view text(reinterpret_cast<const char*>(image.data()), image.size());
  if (text.starts_with("\x7f"
                       "ELF")) {
    return Status(StatusCode::kUnsupported,
                  "module: machine code (a cubin) without PTX; build with -ptx or -fatbin");
  }
  const auto is_text = [](char c) {
    return (c >= ' ' && c <= '~') || c == '\n' || c == '\r' || c == '\t';
  };
  const std::string_view start = text.substr(0, kHeaderBytes);
  if (text.empty() || !std::all_of(start.begin(), start.end(), is_text)) {
    return Status(StatusCode::kInvalidArgument, "module: neither PTX text nor a fatbin");
  }
  if (text.size() > kPtxBytesMax) {
    return Status(StatusCode::kLimitExceeded,
                  "module: " + std::to_string(text.size()) +
                      " bytes of text, allowed: " + std::to_string(kPtxBytesMax));
  }
  return std::string(text);
}

bool IsFatbin(std::span<const std::byte> image) {
  return image.size() >= sizeof kMagic && Load<std::uint32_t>(image, 0) == kMagic;
}

struct Contents {
  Entry newest;  // The newest entry with PTX; its payload is empty if no entry has PTX.
  std::set<std::uint32_t> machine_code;
};

Result<Contents> ReadContents(std::span<const std::byte> image) {
  if (image.size() < kHeaderBytes) return Broken(0, "header is cut off");
  if (const auto version = Load<std::uint16_t>(image, 4); version != kVersion) {
    return Broken(4, "version " + std::to_string(version) + ", version 1 is known");
  }
  const auto header_bytes = Load<std::uint16_t>(image, 6);
  const auto content_bytes = Load<std::uint64_t>(image, 8);
  if (header_bytes < kHeaderBytes || header_bytes > image.size())
    return Broken(6, "header size " + std::to_string(header_bytes));
  if (content_bytes > image.size() - header_bytes) {
    return Broken(8, "content of " + std::to_string(content_bytes) + " bytes, " +
                         std::to_string(image.size() - header_bytes) + " are there");
  }
  const std::size_t end = header_bytes + static_cast<std::size_t>(content_bytes);
  Contents contents;
  Entry& newest = contents.newest;
  std::size_t count = 0;
  for (std::size_t at = header_bytes; at < end;) {
    if (++count > kFatbinEntriesMax)
      return Broken(at, "more than " + std::to_string(kFatbinEntriesMax) + " entries");
    const Result<Entry> entry = ReadEntry(image, at, end);
    if (!entry) return entry.status();
    at = static_cast<std::size_t>(entry->payload.data() - image.data()) + entry->payload.size();
    if (entry->kind != kKindPtx) {
      contents.machine_code.insert(entry->architecture);
    } else if (newest.payload.empty() || entry->architecture > newest.architecture) {
      newest = *entry;
    }
  }
  return contents;
}

}  // namespace

Result<std::string> ExtractPtx(std::span<const std::byte> image) {
  if (!IsFatbin(image)) return TakeText(image);
  const Result<Contents> contents = ReadContents(image);
  if (!contents) return contents.status();
  if (contents->newest.payload.empty()) return NoPtx(contents->machine_code);
  return Decompress(contents->newest);
}

bool HasNewerMachineCode(std::span<const std::byte> image) {
  if (!IsFatbin(image)) return false;
  const Result<Contents> contents = ReadContents(image);
  return contents && !contents->machine_code.empty() &&
         *contents->machine_code.rbegin() > contents->newest.architecture;
}

}  // namespace gpushared::ptx

// SPDX-License-Identifier: Apache-2.0
// Values serialized as consecutive bytes. Used for results from another process: the writer may be
// compromised, so the reader trusts none of the bytes. Writer and reader run the same program on
// the same machine.

#ifndef GPUSHARED_SERVER_DEVICE_FLAT_H_
#define GPUSHARED_SERVER_DEVICE_FLAT_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace gpushared::device {

// Collects bytes and passes them to a sink in large pieces.
//
// Thread-compatible.
class FlatWriter {
 public:
  using Sink = std::function<void(std::span<const std::byte>)>;
  static constexpr std::size_t kPieceBytes = std::size_t{64} << 10;

  explicit FlatWriter(Sink sink) : sink_(std::move(sink)) { pending_.reserve(kPieceBytes); }
  FlatWriter(const FlatWriter&) = delete;
  FlatWriter& operator=(const FlatWriter&) = delete;
  ~FlatWriter() = default;

  template <typename T>
  requires std::is_trivially_copyable_v<T>
  void Put(const T& value) { PutBytes(std::as_bytes(std::span(&value, 1))); }
  void PutBytes(std::span<const std::byte> bytes) {
    if (pending_.size() + bytes.size() > kPieceBytes) Flush();
    if (bytes.size() > kPieceBytes) return sink_(bytes);
    pending_.insert(pending_.end(), bytes.begin(), bytes.end());
  }
  void PutCount(std::size_t count) { Put(static_cast<std::uint64_t>(count)); }
  void PutText(std::string_view text) {
    PutCount(text.size());
    PutBytes(std::as_bytes(std::span(text)));
  }
  template <typename T>
  void PutAll(std::span<const T> values) {
    PutCount(values.size());
    PutBytes(std::as_bytes(values));
  }
  template <typename T>
  void PutAll(const std::vector<T>& values) {
    PutAll(std::span<const T>(values));
  }
  // Passes the collected bytes on. Must be called at the end; otherwise the bytes since the last
  // flush are lost.
  void Flush() {
    if (!pending_.empty()) sink_(pending_);
    pending_.clear();
  }

 private:
  const Sink sink_;
  std::vector<std::byte> pending_;
};

// Reads values from untrusted bytes. Values past the end read as zero or empty and make ok() false
// from then on, so one check after several reads suffices.
//
// Thread-compatible. Borrows the bytes, which must not change.
class FlatReader {
 public:
  static constexpr std::uint64_t kHeldBytesMax = std::uint64_t{512} << 20;

  explicit FlatReader(std::span<const std::byte> bytes) : left_(bytes) {}

  bool ok() const { return ok_; }
  std::size_t left() const { return left_.size(); }

  template <typename T>
  requires std::is_trivially_copyable_v<T> T Take() {
    T value{};
    const std::span<const std::byte> bytes = TakeBytes(sizeof(T));
    if (bytes.size() == sizeof(T)) std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }
  std::span<const std::byte> TakeBytes(std::uint64_t bytes) {
    if (!ok_ || bytes > left_.size()) {
      ok_ = false;
      return {};
    }
    const auto taken = left_.first(static_cast<std::size_t>(bytes));
    left_ = left_.subspan(taken.size());
    return taken;
  }
  // Reads an element count, and checks that the rest of the input can hold that many elements of
  // at least `element_bytes` each. `held_bytes` is the memory that one element takes in this
  // process.
  std::size_t TakeCount(std::size_t element_bytes, std::size_t held_bytes = 1) {
    const auto count = Take<std::uint64_t>();
    if (count > left_.size() / element_bytes) ok_ = false;
    if (ok_) Hold(count * held_bytes);
    return ok_ ? static_cast<std::size_t>(count) : 0;
  }
  // Counts memory that is about to be allocated for what was read, because a few bytes can describe
  // a large object. If the total exceeds kHeldBytesMax, ok() becomes false.
  void Hold(std::uint64_t bytes) {
    held_ += bytes;
    if (held_ > kHeldBytesMax) ok_ = false;
  }
  std::string TakeText() {
    const std::span<const std::byte> bytes = TakeBytes(TakeCount(1));
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  // Every bit pattern must be a valid T.
  template <typename T>
  std::vector<T> TakeAll() {
    std::vector<T> values(TakeCount(sizeof(T), sizeof(T)));
    const std::span<const std::byte> bytes = TakeBytes(values.size() * sizeof(T));
    if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

 private:
  std::span<const std::byte> left_;
  std::uint64_t held_ = 0;
  bool ok_ = true;
};

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_FLAT_H_

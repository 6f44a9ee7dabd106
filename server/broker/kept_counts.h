// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_BROKER_KEPT_COUNTS_H_
#define GPUSHARED_SERVER_BROKER_KEPT_COUNTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "gpushared/result.h"
#include "gpushared/status.h"

#include "ipc/wire/channel.h"
#include "ipc/wire/control.h"

namespace gpushared::server {

// Counts of one endpoint since it was opened: clients handed to a worker, and rejections by code.
struct EndpointCounts {
  static constexpr std::size_t kCodesMax = 32;  // Leaves space for later codes.
  static_assert(static_cast<std::size_t>(StatusCode::kInternal) < kCodesMax);
  char name[ipc::kEndpointNameBytes];  // Empty: the row is free.
  std::uint64_t number;                // The endpoint's number, the same under later brokers.
  std::uint64_t admitted;
  std::uint64_t rejected[kCodesMax];

  std::map<std::string, std::uint64_t> Rejected() const;  // The nonzero ones, by name.
};

// The broker's own counters, in memory shared with a file so that they survive a crash.
//
// Confined to the broker's thread. Rows keep their addresses.
class KeptCounts {
 public:
  static constexpr std::size_t kEndpointsMax = 512;

  // Opens the file and continues with its counts. Rejects a file of another user or another layout.
  static Result<KeptCounts> Open(const std::string& path);
  // Counters that are not persisted.
  static Result<KeptCounts> InMemory();

  KeptCounts(KeptCounts&& other) noexcept;
  KeptCounts& operator=(KeptCounts&& other) noexcept;
  ~KeptCounts();

  // Returns the row for that name, which is created if it does not exist. The server's own socket
  // has an empty name. At most kEndpointsMax rows can be claimed at once.
  EndpointCounts& Claim(const std::string& name, std::uint32_t number);
  static void Free(EndpointCounts& row);
  void FreeAllBut(const std::set<const EndpointCounts*>& used);
  // Endpoint numbers by name.
  std::map<std::string, std::uint64_t> Numbers() const;
  std::uint64_t& rejected_requests(ipc::AdminVerb verb);
  std::map<std::string, std::uint64_t> RejectedRequests() const;
  // Removes the file on a clean exit, so that the next server starts with zero counts.
  void Remove();

 private:
  struct Layout;
  KeptCounts(Layout* layout, std::string path) : layout_(layout), path_(std::move(path)) {}

  Layout* layout_ = nullptr;
  std::string path_;  // Empty: no file.
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_BROKER_KEPT_COUNTS_H_

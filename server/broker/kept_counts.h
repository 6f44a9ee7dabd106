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

// Of one endpoint, since it was opened: clients that were handed to a worker, and rejections by
// their code. All zero but the name: nobody has come yet.
struct EndpointCounts {
  static constexpr std::size_t kCodesMax = 32;  // Room for later ones.
  static_assert(static_cast<std::size_t>(StatusCode::kInternal) < kCodesMax);
  char name[ipc::kEndpointNameBytes];  // Empty: the row is free.
  std::uint64_t number;                // The endpoint's; it gets it again.
  std::uint64_t admitted;
  std::uint64_t rejected[kCodesMax];

  std::map<std::string, std::uint64_t> Rejected() const;  // Those that are not zero, by name.
};

// The broker's own counters, in memory that a file shares. So they are there again after a crash.
//
// Confined to the broker's thread. Rows stay where they are.
class KeptCounts {
 public:
  static constexpr std::size_t kEndpointsMax = 512;

  // Goes on with a file that is there. One that is not ours, or not of this layout, is rejected.
  static Result<KeptCounts> Open(const std::string& path);
  // Kept nowhere.
  static Result<KeptCounts> InMemory();

  KeptCounts(KeptCounts&& other) noexcept;
  KeptCounts& operator=(KeptCounts&& other) noexcept;
  ~KeptCounts();

  // The row of that name, made where there is none; of the server's own socket without a name. At
  // most kEndpointsMax are claimed at one time.
  EndpointCounts& Claim(const std::string& name, std::uint32_t number);
  static void Free(EndpointCounts& row);
  void FreeAllBut(const std::set<const EndpointCounts*>& used);
  // Requests of operators that were rejected for want of a right.
  // By name: those with a row.
  std::map<std::string, std::uint64_t> Numbers() const;
  std::uint64_t& rejected_requests(ipc::AdminVerb verb);
  std::map<std::string, std::uint64_t> RejectedRequests() const;
  // The server ends: the next one begins anew.
  void Remove();

 private:
  struct Layout;
  KeptCounts(Layout* layout, std::string path) : layout_(layout), path_(std::move(path)) {}

  Layout* layout_ = nullptr;
  std::string path_;  // Empty: no file.
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_BROKER_KEPT_COUNTS_H_

// SPDX-License-Identifier: Apache-2.0
#include "server/broker/kept_counts.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <span>
#include <system_error>
#include <utility>

#include "gpushared/check.h"

#include "ipc/unique_fd.h"
#include "ipc/wire/bytes.h"

namespace gpushared::server {
namespace {

// Must change whenever the layout changes.
constexpr std::uint64_t kLayoutNumber = 0x3153'544e'4347'4701;
constexpr std::size_t kVerbsMax = 64;  // Leaves space for later verbs.
static_assert(ipc::kAdminVerbMax < kVerbsMax);
// Limit of endpoint numbers in a file, far enough from overflow for all further ones.
constexpr std::uint64_t kNumberMax = 0x7fff'ffff;

Status CountsFailed(const std::string& what, const std::string& path) {
  return {StatusCode::kInternal,
          what + " '" + path + "' failed: " + std::generic_category().message(errno)};
}

}  // namespace

struct KeptCounts::Layout {
  std::uint64_t number;
  std::uint64_t rejected_requests[kVerbsMax];
  EndpointCounts own;  // The server's own socket.
  EndpointCounts endpoints[kEndpointsMax];
};

std::map<std::string, std::uint64_t> EndpointCounts::Rejected() const {
  std::map<std::string, std::uint64_t> counts;
  for (std::size_t code = 0; code < kCodesMax; ++code) {
    if (rejected[code] == 0) continue;
    counts[std::string(StatusCodeName(static_cast<StatusCode>(code)))] = rejected[code];
  }
  return counts;
}

Result<KeptCounts> KeptCounts::Open(const std::string& path) {
  const ipc::UniqueFd file(
      ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (!file.valid()) return CountsFailed("opening", path);
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0) return CountsFailed("looking at", path);
  const auto bytes = static_cast<off_t>(sizeof(Layout));
  const bool is_ours = S_ISREG(facts.st_mode) && facts.st_uid == ::geteuid() &&
                       (facts.st_mode & 077) == 0 && facts.st_nlink == 1;
  if (!is_ours || (facts.st_size != 0 && facts.st_size != bytes)) {
    return Status(StatusCode::kInvalidArgument,
                  "'" + path + "' is no file of this server's counts");
  }
  if (facts.st_size == 0 && ::ftruncate(file.get(), bytes) != 0) {
    return CountsFailed("sizing", path);
  }
  void* const memory =
      ::mmap(nullptr, sizeof(Layout), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return CountsFailed("mapping", path);
  KeptCounts counts(static_cast<Layout*>(memory), path);
  Layout& layout = *counts.layout_;
  if (facts.st_size == 0) layout.number = kLayoutNumber;
  bool is_sound = layout.number == kLayoutNumber;
  for (const EndpointCounts& row : layout.endpoints) {
    std::string name;
    is_sound = is_sound && ipc::GetFixedText(row.name, name) && ipc::IsPrintableText(name) &&
               row.number <= kNumberMax;
  }
  if (!is_sound) {
    return Status(StatusCode::kInvalidArgument, "'" + path + "' is of another version, or damaged");
  }
  return counts;
}

Result<KeptCounts> KeptCounts::InMemory() {
  void* const memory =
      ::mmap(nullptr, sizeof(Layout), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return CountsFailed("mapping", "counts");
  return KeptCounts(static_cast<Layout*>(memory), "");
}

KeptCounts::KeptCounts(KeptCounts&& other) noexcept
    : layout_(std::exchange(other.layout_, nullptr)), path_(std::exchange(other.path_, {})) {}

KeptCounts& KeptCounts::operator=(KeptCounts&& other) noexcept {
  std::swap(layout_, other.layout_);
  std::swap(path_, other.path_);
  return *this;
}

KeptCounts::~KeptCounts() {
  if (layout_ != nullptr) ::munmap(layout_, sizeof(Layout));
}

EndpointCounts& KeptCounts::Claim(const std::string& name, std::uint32_t number) {
  if (name.empty()) return layout_->own;
  EndpointCounts* found = nullptr;
  for (EndpointCounts& row : layout_->endpoints) {
    if (found == nullptr && row.name[0] == '\0') found = &row;
    if (name != row.name) continue;
    row.number = number;
    return row;
  }
  Check(found != nullptr, "there are rows for all endpoints");
  Free(*found);
  found->number = number;
  ipc::PutFixedText(found->name, name);
  return *found;
}

std::map<std::string, std::uint64_t> KeptCounts::Numbers() const {
  std::map<std::string, std::uint64_t> numbers;
  for (const EndpointCounts& row : layout_->endpoints) {
    if (row.name[0] != '\0') numbers[row.name] = row.number;
  }
  return numbers;
}

void KeptCounts::Free(EndpointCounts& row) { std::memset(&row, 0, sizeof row); }

void KeptCounts::FreeAllBut(const std::set<const EndpointCounts*>& used) {
  for (EndpointCounts& row : layout_->endpoints) {
    if (!used.contains(&row)) Free(row);
  }
}

std::uint64_t& KeptCounts::rejected_requests(ipc::AdminVerb verb) {
  return layout_->rejected_requests[static_cast<std::size_t>(verb)];
}

std::map<std::string, std::uint64_t> KeptCounts::RejectedRequests() const {
  std::map<std::string, std::uint64_t> counts;
  for (std::size_t verb = 0; verb <= ipc::kAdminVerbMax; ++verb) {
    if (layout_->rejected_requests[verb] == 0) continue;
    counts[std::string(ipc::AdminVerbName(static_cast<ipc::AdminVerb>(verb)))] =
        layout_->rejected_requests[verb];
  }
  return counts;
}

void KeptCounts::Remove() {
  if (!path_.empty()) (void)::unlink(path_.c_str());
  path_.clear();
}

}  // namespace gpushared::server

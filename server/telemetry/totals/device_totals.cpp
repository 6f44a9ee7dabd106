// SPDX-License-Identifier: Apache-2.0
#include "server/telemetry/totals/device_totals.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <system_error>
#include <type_traits>
#include <utility>

#include "gpushared/check.h"
#include "gpushared/status.h"

namespace gpushared::server {
namespace {

using Layout = DeviceTotals::Layout;

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// The upper half must change whenever the layout changes; the lower half is its size.
constexpr std::uint64_t kLayoutNumber = (std::uint64_t{0x4754'0002} << 32) | sizeof(Layout);
constexpr int kReadsMax = 100;

Status TotalsFailed(const std::string& what, const std::string& path) {
  return {StatusCode::kInternal,
          what + " '" + path + "' failed: " + std::generic_category().message(errno)};
}

Result<ipc::UniqueFd> OpenOwn(const std::string& path, int flags, off_t& bytes) {
  ipc::UniqueFd file(::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (!file.valid()) {
    if (errno == ENOENT) return Status(StatusCode::kNotFound, "'" + path + "' does not exist");
    return TotalsFailed("opening", path);
  }
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0) return TotalsFailed("looking at", path);
  if (!S_ISREG(facts.st_mode) || facts.st_uid != ::geteuid() || (facts.st_mode & 077) != 0 ||
      facts.st_nlink != 1) {
    return Status(StatusCode::kInvalidArgument,
                  "'" + path + "' is no file of this server's totals");
  }
  bytes = facts.st_size;
  return file;
}

template <typename TimePoint>
std::uint64_t ToNs(TimePoint time) {
  return static_cast<std::uint64_t>(time.time_since_epoch() / std::chrono::nanoseconds(1));
}

Result<Layout*> Map(int file, int protection, int flags, const std::string& path) {
  void* const memory = ::mmap(nullptr, sizeof(Layout), protection, flags, file, 0);
  if (memory == MAP_FAILED) return TotalsFailed("mapping", path);
  return static_cast<Layout*>(memory);
}

bool IsOfThisLayout(off_t bytes, const Layout& layout) {
  return bytes == off_t{sizeof(Layout)} && layout.number == kLayoutNumber;
}

void CopyCounts(const DeviceTotals::Endpoint& from, DeviceTotals::Endpoint& to) {
  to.classes = from.classes;
}
void CopyCounts(const DeviceTotals::Owner& from, DeviceTotals::Owner& to) {
  to.clients = from.clients;
  to.left_ns = from.left_ns;
  to.totals = from.totals;
}

// Copies a row, and retries if a row was renamed during the copy. A worker that was killed while it
// renamed a row leaves `renamed` odd, so after kReadsMax attempts the last copy is accepted.
template <typename Row>
void CopyRow(const std::atomic<std::uint64_t>& renamed, const Row& from, Row& to) {
  for (int reads = 0; reads < kReadsMax; ++reads) {
    // Acquire pairs with the release of the second store in Rename, so the new name is visible.
    const std::uint64_t before = renamed.load(std::memory_order_acquire);
    to.number = from.number;
    if (to.number.Get() != 0) {
      std::memcpy(to.name, from.name, sizeof to.name);
      to.name[sizeof to.name - 1] = '\0';
      CopyCounts(from, to);
    }
    // Keeps the copy before the load below; pairs with the fence in Rename.
    std::atomic_thread_fence(std::memory_order_acquire);
    if (before % 2 == 0 && renamed.load(std::memory_order_relaxed) == before) return;
  }
}

}  // namespace

Result<std::unique_ptr<DeviceTotals>> DeviceTotals::Open(const std::string& path) {
  off_t bytes = 0;
  Result<ipc::UniqueFd> file = OpenOwn(path, O_RDWR | O_CREAT, bytes);
  if (!file.ok()) return file.status();
  if (::flock(file->get(), LOCK_EX | LOCK_NB) != 0) {
    return Status(StatusCode::kUnavailable, "another worker writes '" + path + "'");
  }
  // Truncated to zero first, so that the memory is zeroed.
  bool is_new = bytes != off_t{sizeof(Layout)};
  if (is_new && (::ftruncate(file->get(), 0) != 0 || ::ftruncate(file->get(), sizeof(Layout)) != 0))
    return TotalsFailed("sizing", path);
  const Result<Layout*> layout = Map(file->get(), PROT_READ | PROT_WRITE, MAP_SHARED, path);
  if (!layout.ok()) return layout.status();
  if (!is_new && (*layout)->number != kLayoutNumber) {
    std::memset(static_cast<void*>(*layout), 0, sizeof(Layout));
  }
  (*layout)->number = kLayoutNumber;
  // The last worker may have been killed while it renamed a row. Such a row is unchanged or free,
  // because Rename zeroes its number first.
  const std::uint64_t renamed = (*layout)->renamed.load(std::memory_order_relaxed);
  (*layout)->renamed.store(renamed + renamed % 2, std::memory_order_relaxed);
  std::unique_ptr<DeviceTotals> totals(new DeviceTotals(*layout, *std::move(file)));
  for (const Endpoint& row : totals->layout_->endpoints) {
    totals->uses_ = std::max(totals->uses_, row.number.Get());
  }
  for (Owner& row : totals->layout_->owners) {
    totals->uses_ = std::max(totals->uses_, row.number.Get());
    // The clients of the last worker ended with it.
    if (row.clients.Get() > 0) row.left_ns.Set(ToNs(std::chrono::steady_clock::now()));
    row.clients.Set(0);
  }
  totals->layout_->workers_started.Add(1);
  return totals;
}

Result<std::unique_ptr<DeviceTotals>> DeviceTotals::InMemory() {
  const Result<Layout*> layout =
      Map(-1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, "totals");
  if (!layout.ok()) return layout.status();
  (*layout)->workers_started.Add(1);
  return std::unique_ptr<DeviceTotals>(new DeviceTotals(*layout, ipc::UniqueFd()));
}

Result<std::unique_ptr<Layout>> DeviceTotals::Read(const std::string& path) {
  off_t bytes = 0;
  const Result<ipc::UniqueFd> file = OpenOwn(path, O_RDONLY, bytes);
  if (!file.ok()) return file.status();
  const Status other(StatusCode::kNotFound, "'" + path + "' is of another version");
  if (bytes != off_t{sizeof(Layout)}) return other;
  const Result<Layout*> mapped = Map(file->get(), PROT_READ, MAP_SHARED, path);
  if (!mapped.ok()) return mapped.status();
  const Layout& now = **mapped;
  std::unique_ptr<Layout> copy;
  if (IsOfThisLayout(bytes, now)) {
    copy = std::make_unique<Layout>();
    copy->number = now.number;
    copy->workers_started = now.workers_started;
    copy->gap_ns = now.gap_ns;
    copy->gap_used_ns = now.gap_used_ns;
    copy->host_steal_ns = now.host_steal_ns;
    copy->energy_mj = now.energy_mj;
    copy->energy_idle_mj = now.energy_idle_mj;
    copy->xids = now.xids;
    copy->classes = now.classes;
    for (std::size_t row = 0; row < kEndpointsMax; ++row) {
      CopyRow(now.renamed, now.endpoints[row], copy->endpoints[row]);
      CopyRow(now.renamed, now.owners[row], copy->owners[row]);
    }
  }
  ::munmap(*mapped, sizeof(Layout));
  if (copy == nullptr) return other;
  return copy;
}

DeviceTotals::~DeviceTotals() { ::munmap(layout_, sizeof(Layout)); }

DeviceTotals::Rows DeviceTotals::Enter(std::string_view endpoint, std::string_view owner) {
  const Rows rows = {
      .endpoint =
          EnterRow(layout_->endpoints, of_endpoint_, endpoint.substr(0, kEndpointNameBytes - 1)),
      .owner = EnterRow(layout_->owners, of_owner_, owner.substr(0, ipc::kOwnerBytes - 1))};
  layout_->owners[rows.owner].clients.Add(1);
  return rows;
}

template <typename Row>
std::size_t DeviceTotals::EnterRow(std::array<Row, kEndpointsMax>& rows, Clients& clients,
                                   std::string_view name) {
  // Rows of owners whose first line, the user, is the same are in the same group, and by chance so
  // are those of a few other users.
  constexpr std::size_t kGroups = std::is_same_v<Row, Owner> ? 64 : 1;
  const auto get_group = [](std::string_view text) {
    return std::hash<std::string_view>()(text.substr(0, text.find('\n'))) % kGroups;
  };
  std::array<std::uint16_t, kGroups> unused{};
  std::size_t found = 0;  // The first row counts clients whose endpoint or owner is unknown.
  for (std::size_t row = 1; row < kEndpointsMax && !name.empty(); ++row) {
    const bool is_used = rows[row].number.Get() != 0;
    if (is_used && name == std::string_view(rows[row].name)) {
      found = row;
      break;
    }
    if (clients[row] > 0) continue;
    if (is_used) ++unused[get_group(rows[row].name)];
    if (!is_used && found == 0) found = row;
  }
  if (found == 0 && !name.empty()) {
    const auto most = static_cast<std::size_t>(std::ranges::max_element(unused) - unused.begin());
    for (std::size_t row = 1; row < kEndpointsMax; ++row) {
      if (clients[row] > 0 || get_group(rows[row].name) != most) continue;
      if (found == 0 || rows[row].number.Get() < rows[found].number.Get()) found = row;
    }
  }
  Check(name.empty() || found != 0, "there are more rows than clients");
  if (name != std::string_view(rows[found].name)) Rename(rows[found], name);
  rows[found].number.Add(++uses_ - rows[found].number.Get());
  ++clients[found];
  return found;
}

template <typename Row>
void DeviceTotals::Rename(Row& row, std::string_view name) {
  // Relaxed, because only this thread writes it.
  const std::uint64_t renamed = layout_->renamed.load(std::memory_order_relaxed);
  layout_->renamed.store(renamed + 1, std::memory_order_relaxed);
  // Keeps the odd number before the following stores; pairs with the fence in CopyRow.
  std::atomic_thread_fence(std::memory_order_release);
  row.number = Total();
  CopyCounts(Row(), row);
  std::memset(row.name, 0, sizeof row.name);
  std::memcpy(row.name, name.data(), name.size());
  // Release pairs with the acquire in CopyRow.
  layout_->renamed.store(renamed + 2, std::memory_order_release);
}

void DeviceTotals::Leave(const Rows& rows, scheduler::TimePoint now) {
  Check(of_endpoint_[rows.endpoint] > 0 && of_owner_[rows.owner] > 0,
        "rows are left as often as they were entered");
  --of_endpoint_[rows.endpoint];
  Owner& owner = layout_->owners[rows.owner];
  owner.clients.Set(--of_owner_[rows.owner]);
  owner.left_ns.Set(ToNs(now));
}

ClientTotals DeviceTotals::For(scheduler::SchedulingClass of_class, const Rows& rows) {
  const auto index = static_cast<std::size_t>(of_class);
  return {layout_->classes[index], layout_->endpoints[rows.endpoint].classes[index],
          layout_->owners[rows.owner].totals};
}

}  // namespace gpushared::server

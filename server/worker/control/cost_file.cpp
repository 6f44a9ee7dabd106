// SPDX-License-Identifier: Apache-2.0
#include "server/worker/control/cost_file.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "ipc/trusted_directory.h"
#include "ipc/unique_fd.h"

namespace gpushared::server {

namespace {

using scheduler::KnownCost;

constexpr std::string_view kFirstLine = "gpushared costs 3";

std::string Errno() { return std::generic_category().message(errno); }

Status Rejected(const std::string& path, const std::string& why) {
  return {StatusCode::kInvalidArgument, fmt::format("costs in '{}' rejected: {}", path, why)};
}

// Checksum against damage only: anyone who can write the file can also write a matching checksum.
std::uint64_t SumOf(std::string_view text) {
  std::uint64_t sum = 0xcbf29ce484222325u;
  for (const char c : text) sum = (sum ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return sum;
}

// Truncates a text and replaces its control characters, so that it is a single line of the file.
std::string OneLine(std::string_view text) {
  std::string line(text.substr(0, 1024));
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20) c = '?';
  }
  return line;
}

// Rejects a directory that another user could replace, because that user's costs would then
// influence the schedule.
Status CheckDirectory(const std::string& path) {
  const Status directory =
      ipc::CheckTrustedDirectory(path.substr(0, std::max<std::size_t>(1, path.rfind('/'))));
  return directory.ok() ? directory : Rejected(path, std::string(directory.message()));
}

Result<std::string> ReadText(const std::string& path) {
  if (Status directory = CheckDirectory(path); !directory.ok()) return directory;
  const ipc::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd.valid()) {
    if (errno == ENOENT) return std::string();
    return Rejected(path, "it cannot be opened: " + Errno());
  }
  struct stat facts {};
  if (::fstat(fd.get(), &facts) != 0 || !S_ISREG(facts.st_mode)) {
    return Rejected(path, "it is no regular file");
  }
  if (facts.st_uid != ::geteuid() || (facts.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return Rejected(path, fmt::format("it belongs to uid {} with mode {:03o}, allowed: a file of "
                                      "uid {} that no other user may write to",
                                      facts.st_uid, facts.st_mode & 0777U, ::geteuid()));
  }
  std::string text(kCostFileBytesMax + 1, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(fd.get(), text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Rejected(path, "it cannot be read: " + Errno());
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  if (size > kCostFileBytesMax) {
    return Rejected(
        path, fmt::format("it has more than the {} bytes that are allowed", kCostFileBytesMax));
  }
  text.resize(size);
  return text;
}

// Splits a text into lines.
class Lines {
 public:
  explicit Lines(std::string_view text) : rest_(text) {}

  std::optional<std::string_view> Next() {
    const std::size_t end = rest_.find('\n');
    if (end == std::string_view::npos) return {};
    const std::string_view line = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    ++number_;
    return line;
  }
  std::size_t number() const { return number_; }  // Number of the last line taken, from 1.
  bool empty() const { return rest_.empty(); }
  std::size_t left() const { return rest_.size(); }

 private:
  std::string_view rest_;
  std::size_t number_ = 0;
};

bool TakeNumber(std::string_view& line, int base, char end, std::uint64_t& value) {
  const auto [stop, error] = std::from_chars(line.data(), line.data() + line.size(), value, base);
  const auto taken = static_cast<std::size_t>(stop - line.data());
  if (error != std::errc() || taken == 0) return false;
  if (end == '\0') return taken == line.size();
  if (taken == line.size() || line[taken] != end) return false;
  line.remove_prefix(taken + 1);
  return true;
}

bool ParseCost(std::string_view line, KnownCost& cost) {
  std::uint64_t ns = 0, samples = 0;
  const bool is_whole = TakeNumber(line, 16, ' ', cost.key) &&
                        TakeNumber(line, 16, ' ', cost.grid.kernel) &&
                        TakeNumber(line, 10, ' ', cost.grid.blocks) &&
                        TakeNumber(line, 10, ' ', ns) && TakeNumber(line, 10, '\0', samples);
  constexpr auto kNsMax =
      static_cast<std::uint64_t>(scheduler::Duration(scheduler::kCommandTimeMax).count());
  if (!is_whole || ns == 0 || ns > kNsMax) return false;
  if (samples == 0 || samples > scheduler::Predictor::kSamplesKept) return false;
  cost.samples = static_cast<std::uint32_t>(samples);
  cost.predicted = scheduler::Duration(static_cast<scheduler::Duration::rep>(ns));
  return true;
}

bool ParseSeed(std::optional<std::string_view> line, HashSeed& seed) {
  if (!line || !line->starts_with("seed ")) return false;
  line->remove_prefix(5);
  return TakeNumber(*line, 16, ' ', seed[0]) && TakeNumber(*line, 16, '\0', seed[1]);
}

// Version of the NVIDIA driver, which matters because it compiles kernels. Empty if there is none.
std::string DriverVersion() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

std::string CostConditions(const device::DeviceInfo& info) {
  std::string text = fmt::format("{}, {} multiprocessors", OneLine(info.name).substr(0, 256),
                                 info.multiprocessors);
  for (const device::SmGrant& grant : info.sm_grants) {
    text += fmt::format(", class {} has {}", grant.of_class, grant.granted);
  }
  if (info.kind == "cuda") text += ", " + DriverVersion();
  return OneLine(text);
}

std::string CostFileName(std::string_view device) {
  std::string name;
  for (const char c : device) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c == '-' || c == '_';
    if (is_plain) {
      name += c;
    } else if (c == ':') {
      name += '.';
    } else {
      name += fmt::format("%{:02x}", static_cast<unsigned char>(c));
    }
  }
  return name + ".costs";
}

Result<std::optional<KeptCosts>> ReadCosts(const std::string& path, std::string_view conditions) {
  const Result<std::string> text = ReadText(path);
  if (!text.ok()) return text.status();
  if (text->empty()) return std::optional<KeptCosts>();
  Lines lines(*text);
  if (lines.Next() != kFirstLine) {
    return Rejected(path, fmt::format("its first line is not '{}'", kFirstLine));
  }
  if (lines.Next() != "device " + OneLine(conditions)) {
    return Rejected(path, fmt::format("it is not of this device, '{}'", OneLine(conditions)));
  }
  KeptCosts kept;
  if (!ParseSeed(lines.Next(), kept.seed)) return Rejected(path, "line 3 is not the keys' seed");
  std::vector<KnownCost>& costs = kept.costs;
  for (;;) {
    const std::size_t before = text->size() - lines.left();
    std::optional<std::string_view> line = lines.Next();
    if (!line) return Rejected(path, "its last line, the sum, is missing");
    if (line->starts_with("sum ")) {
      line->remove_prefix(4);
      std::uint64_t sum = 0;
      if (!TakeNumber(*line, 16, '\0', sum) || !lines.empty() ||
          sum != SumOf(std::string_view(*text).substr(0, before))) {
        return Rejected(path, fmt::format("line {}: the sum is wrong", lines.number()));
      }
      return std::optional(std::move(kept));
    }
    if (costs.size() == kCostsKeptMax) {
      return Rejected(path,
                      fmt::format("it has more than the {} costs that are allowed", kCostsKeptMax));
    }
    KnownCost cost;
    if (!ParseCost(*line, cost)) {
      return Rejected(
          path,
          fmt::format(
              "line {} is not key, kernel, blocks, nanoseconds and samples, of which {} are kept",
              lines.number(), scheduler::Predictor::kSamplesKept));
    }
    costs.push_back(cost);
  }
}

Status WriteCosts(const std::string& path, std::string_view conditions, const HashSeed& seed,
                  std::span<const KnownCost> costs) {
  std::string text = fmt::format("{}\ndevice {}\nseed {:x} {:x}\n", kFirstLine, OneLine(conditions),
                                 seed[0], seed[1]);
  for (const KnownCost& cost : costs) {
    fmt::format_to(std::back_inserter(text), "{:x} {:x} {} {} {}\n", cost.key, cost.grid.kernel,
                   cost.grid.blocks, cost.predicted.count(), cost.samples);
  }
  text += fmt::format("sum {:x}\n", SumOf(text));

  // The name of the temporary file needs no random part, because only one worker per device writes
  // it. A leftover of a killed worker is replaced.
  if (Status directory = CheckDirectory(path); !directory.ok()) return directory;
  const std::string next = path + ".new";
  const auto failed = [&](const char* what) {
    Status status(StatusCode::kUnavailable,
                  fmt::format("costs not kept: '{}' cannot be {}: {}", next, what, Errno()));
    (void)::unlink(next.c_str());
    return status;
  };
  (void)::unlink(next.c_str());
  const ipc::UniqueFd fd(
      ::open(next.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return failed("made");
  for (std::string_view rest = text; !rest.empty();) {
    const ssize_t put = ::write(fd.get(), rest.data(), rest.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return failed("written");
    rest.remove_prefix(static_cast<std::size_t>(put));
  }
  // Without fsync, a power failure could leave the renamed file empty.
  if (::fsync(fd.get()) != 0) return failed("written");
  if (::rename(next.c_str(), path.c_str()) != 0) return failed("renamed");
  return Status::Ok();
}

}  // namespace gpushared::server

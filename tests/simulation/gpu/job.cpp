// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/gpu/job.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <string_view>

namespace gpushared::simulation {
namespace {

using scheduler::Duration;

constexpr std::uint64_t kBlocksMax = 1'000'000;
constexpr std::uint64_t kDurationMaxNs = 10'000'000'000;

struct Row {
  Kernel::Kind kind = Kernel::Kind::kUnknown;
  std::uint64_t multiprocessors = 0;
  std::uint64_t duration_ns = 0;
};

// False when the line does not end in four figures.
bool ParseRow(std::string_view line, Row& row) {
  std::array<std::string_view, 4> fields;
  for (std::size_t i = fields.size(); i-- > 0;) {
    const std::size_t comma = line.rfind(',');
    if (comma == std::string_view::npos) return false;
    fields[i] = line.substr(comma + 1);
    line = line.substr(0, comma);
  }
  const auto whole = [](std::string_view text, std::uint64_t& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size();
  };
  if (fields[0] == "1") {
    row.kind = Kernel::Kind::kCompute;
  } else if (fields[0] == "0") {
    row.kind = Kernel::Kind::kMemory;
  } else if (fields[0] != "-1") {
    return false;
  }
  return whole(fields[2], row.multiprocessors) && whole(fields[3], row.duration_ns);
}

Kernel KernelOf(const Row& row, const ProfileOptions& options) {
  const std::uint64_t needed = std::max<std::uint64_t>(row.multiprocessors, 1);
  const std::uint64_t waves = (needed + options.multiprocessors - 1) / options.multiprocessors;
  // Longer blocks make fewer waves of the same total, and no more than one of everything.
  const std::uint64_t stretch = std::min<std::uint64_t>(options.block_stretch, waves);
  const std::uint64_t fewer_waves = (waves + stretch - 1) / stretch;
  const std::uint64_t blocks =
      waves == fewer_waves ? needed : fewer_waves * options.multiprocessors;
  return {static_cast<std::uint32_t>(blocks),
          Duration(static_cast<Duration::rep>(row.duration_ns / fewer_waves)), row.kind};
}

}  // namespace

Duration SoloTime(const Kernel& kernel, std::uint32_t multiprocessors) {
  const std::uint32_t waves = (kernel.blocks + multiprocessors - 1) / multiprocessors;
  return kernel.block_time * waves;
}

Result<Job> ReadOrionProfile(const std::string& path, const ProfileOptions& options) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line))
    return Status(StatusCode::kInvalidArgument, "cannot read profile '" + path + "'");
  Job job{std::filesystem::path(path).stem().string(), {}};
  for (std::size_t number = 2; std::getline(file, line); ++number) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty()) continue;
    Row row;
    if (!ParseRow(line, row) || row.multiprocessors > kBlocksMax || row.duration_ns == 0 ||
        row.duration_ns > kDurationMaxNs) {
      return Status(StatusCode::kInvalidArgument,
                    "profile '" + path + "' line " + std::to_string(number) +
                        " does not end in class, footprint, multiprocessors (at most " +
                        std::to_string(kBlocksMax) + ") and a duration of 1 ns to 10 s");
    }
    job.kernels.push_back(KernelOf(row, options));
  }
  if (job.kernels.empty())
    return Status(StatusCode::kInvalidArgument, "profile '" + path + "' has no kernels");
  return job;
}

Result<Job> ReadJob(const std::string& text, const ProfileOptions& options) {
  constexpr std::string_view kPrefix = "even:";
  if (!text.starts_with(kPrefix)) return ReadOrionProfile(text, options);
  constexpr std::uint64_t kKernelsMax = 10'000;
  std::array<std::uint64_t, 3> figures{};  // Kernels, us of each, us of a block.
  std::string_view left = std::string_view(text).substr(kPrefix.size());
  for (std::size_t i = 0; i < figures.size(); ++i) {
    const auto [end, error] = std::from_chars(left.data(), left.data() + left.size(), figures[i]);
    left.remove_prefix(static_cast<std::size_t>(end - left.data()));
    const bool is_last = i + 1 == figures.size();
    if (error != std::errc() || (is_last ? !left.empty() : !left.starts_with(':'))) {
      figures = {};
      break;
    }
    if (!is_last) left.remove_prefix(1);
  }
  const auto [kernels, kernel_us, block_us] = figures;
  if (kernels == 0 || kernels > kKernelsMax || block_us == 0 || kernel_us % block_us != 0 ||
      kernel_us == 0 || kernel_us * 1000 > kDurationMaxNs ||
      kernel_us / block_us * options.multiprocessors > kBlocksMax) {
    return Status(StatusCode::kInvalidArgument,
                  "'" + text + "' is not even:KERNELS:KERNEL_US:BLOCK_US with at most " +
                      std::to_string(kKernelsMax) + " kernels of whole blocks");
  }
  const auto blocks = static_cast<std::uint32_t>(kernel_us / block_us * options.multiprocessors);
  const Kernel kernel{blocks, std::chrono::microseconds(block_us)};
  return Job{text, std::vector<Kernel>(kernels, kernel)};
}

}  // namespace gpushared::simulation

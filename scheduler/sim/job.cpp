// SPDX-License-Identifier: Apache-2.0
#include "scheduler/sim/job.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>

namespace gpushared::simulation {
namespace {

using scheduler::Duration;

constexpr std::uint64_t kBlocksMax = 1'000'000;
constexpr std::uint64_t kKernelsMax = 10'000;
constexpr std::uint64_t kDurationMaxNs = 10'000'000'000;
constexpr std::uint64_t kDurationMaxUs = kDurationMaxNs / 1000;
// Duration of a copy piece of normal and low clients on the CUDA device: 2 MiB over PCIe 5.
constexpr Duration kCopyPiece = std::chrono::microseconds(40);

struct ProfileRow {
  Kernel::Kind kind = Kernel::Kind::kUnknown;
  std::uint64_t multiprocessors = 0;
  std::uint64_t duration_ns = 0;
};

// Returns false unless the line ends in four numbers.
bool ParseRow(std::string_view line, ProfileRow& row) {
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

Kernel KernelFor(const ProfileRow& row, const ProfileOptions& options) {
  const std::uint64_t needed = std::max<std::uint64_t>(row.multiprocessors, 1);
  const std::uint64_t waves = (needed + options.multiprocessors - 1) / options.multiprocessors;
  // Longer blocks form fewer waves (at least one) of the same total time.
  const std::uint64_t stretch = std::min<std::uint64_t>(options.block_stretch, waves);
  const std::uint64_t fewer_waves = (waves + stretch - 1) / stretch;
  const std::uint64_t blocks =
      waves == fewer_waves ? needed : fewer_waves * options.multiprocessors;
  return {static_cast<std::uint32_t>(blocks),
          Duration(static_cast<Duration::rep>(row.duration_ns / fewer_waves)), row.kind};
}

// Parses exactly kCount whole numbers joined with ':'; empty for anything else.
template <std::size_t kCount>
std::optional<std::array<std::uint64_t, kCount>> ParseFigures(std::string_view text) {
  std::array<std::uint64_t, kCount> figures{};
  for (std::size_t i = 0; i < kCount; ++i) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), figures[i]);
    if (error != std::errc()) return {};
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (i + 1 == kCount) break;
    if (!text.starts_with(':')) return {};
    text.remove_prefix(1);
  }
  if (!text.empty()) return {};
  return figures;
}

bool IsWithin(std::uint64_t value, std::uint64_t most) { return value > 0 && value <= most; }

Status Reject(const std::string& text, const std::string& form) {
  return {StatusCode::kInvalidArgument, "'" + text + "' is not " + form};
}

Result<Job> ReadEven(const std::string& text, std::string_view form, std::string_view figures_text,
                     const ProfileOptions& options) {
  const auto figures = ParseFigures<3>(figures_text);
  const auto [kernels, kernel_us, block_us] = figures.value_or(std::array<std::uint64_t, 3>{});
  if (!IsWithin(kernels, kKernelsMax) || !IsWithin(kernel_us, kDurationMaxUs) || block_us == 0 ||
      kernel_us % block_us != 0 || kernel_us / block_us * options.multiprocessors > kBlocksMax) {
    return Reject(text, std::string(form) + "KERNELS:KERNEL_US:BLOCK_US with at most " +
                            std::to_string(kKernelsMax) + " kernels of whole blocks, of which " +
                            std::to_string(kBlocksMax) + " and 10 s at most");
  }
  const auto blocks = static_cast<std::uint32_t>(kernel_us / block_us * options.multiprocessors);
  const Kernel kernel{.blocks = blocks,
                      .block_time = std::chrono::microseconds(block_us),
                      .is_nonpreemptible = form == "nonpreemptible:"};
  Job job{text, std::vector<Kernel>(kernels, kernel)};
  if (form == "graph:") {
    for (Kernel& node : job.kernels) node.follows_in_graph = true;
    job.kernels.front().follows_in_graph = false;
    job.kernels.front().graph_nodes = static_cast<std::uint32_t>(kernels);
  }
  return job;
}

Result<Job> ReadGrid(const std::string& text, std::string_view figures_text) {
  const auto figures = ParseFigures<4>(figures_text);
  const auto [kernels, blocks, block_us, per] = figures.value_or(std::array<std::uint64_t, 4>{});
  if (!IsWithin(kernels, kKernelsMax) || !IsWithin(blocks, kBlocksMax) ||
      !IsWithin(block_us, kDurationMaxUs) || !IsWithin(per, kBlocksPerMultiprocessorMax)) {
    return Reject(text, "grid:KERNELS:BLOCKS:BLOCK_US:BLOCKS_PER_MULTIPROCESSOR with at most " +
                            std::to_string(kKernelsMax) + ", " + std::to_string(kBlocksMax) +
                            ", 10 s and " + std::to_string(kBlocksPerMultiprocessorMax));
  }
  const Kernel kernel{.blocks = static_cast<std::uint32_t>(blocks),
                      .block_time = std::chrono::microseconds(block_us),
                      .blocks_per_multiprocessor = static_cast<std::uint32_t>(per)};
  return Job{text, std::vector<Kernel>(kernels, kernel)};
}

Result<Job> ReadCopy(const std::string& text, std::string_view figures_text, Kernel::Kind kind) {
  const auto figures = ParseFigures<1>(figures_text);
  const std::uint64_t us = figures ? figures->front() : 0;
  if (!IsWithin(us, kDurationMaxUs)) return Reject(text, "in:US or out:US with at most 10 s");
  const Duration time = std::chrono::microseconds(us);
  const Duration::rep pieces = (time + kCopyPiece - Duration(1)) / kCopyPiece;
  const Kernel copy{static_cast<std::uint32_t>(pieces), time / pieces, kind};
  return Job{text, std::vector<Kernel>(1, copy)};
}

Result<Job> ReadPart(const std::string& text, const ProfileOptions& options) {
  const std::string_view form = std::string_view(text).substr(0, text.find(':') + 1);
  const std::string_view figures = std::string_view(text).substr(form.size());
  if (form == "even:" || form == "nonpreemptible:" || form == "graph:")
    return ReadEven(text, form, figures, options);
  if (form == "grid:") return ReadGrid(text, figures);
  if (form == "in:") return ReadCopy(text, figures, Kernel::Kind::kCopyToDevice);
  if (form == "out:") return ReadCopy(text, figures, Kernel::Kind::kCopyToHost);
  return ReadOrionProfile(text, options);
}

}  // namespace

bool IsCopy(const Kernel& kernel) {
  return kernel.kind == Kernel::Kind::kCopyToDevice || kernel.kind == Kernel::Kind::kCopyToHost;
}

Duration SoloTime(const Kernel& kernel, std::uint32_t multiprocessors) {
  const std::uint32_t at_once =
      IsCopy(kernel) ? 1 : multiprocessors * kernel.blocks_per_multiprocessor;
  const std::uint32_t waves = (kernel.blocks + at_once - 1) / at_once;
  return kernel.block_time * waves;
}

Result<Job> ReadOrionProfile(const std::string& path, const ProfileOptions& options) {
  std::ifstream file(path);
  if (!file) return Status(StatusCode::kInvalidArgument, "cannot read profile '" + path + "'");
  std::string line;
  std::getline(file, line);  // Skips the header.
  Job job{std::filesystem::path(path).stem().string(), {}};
  for (std::size_t number = 2; std::getline(file, line); ++number) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty()) continue;
    ProfileRow row;
    if (!ParseRow(line, row) || row.multiprocessors > kBlocksMax || row.duration_ns == 0 ||
        row.duration_ns > kDurationMaxNs) {
      return Status(StatusCode::kInvalidArgument,
                    "profile '" + path + "' line " + std::to_string(number) +
                        " does not end in class, footprint, multiprocessors (at most " +
                        std::to_string(kBlocksMax) + ") and a duration of 1 ns to 10 s");
    }
    job.kernels.push_back(KernelFor(row, options));
  }
  if (job.kernels.empty())
    return Status(StatusCode::kInvalidArgument, "profile '" + path + "' has no kernels");
  return job;
}

Result<Job> ReadJob(const std::string& text, const ProfileOptions& options) {
  Job job{{}, {}};
  for (std::string_view left = text;;) {
    const std::size_t end = left.find('+');
    const Result<Job> part = ReadPart(std::string(left.substr(0, end)), options);
    if (!part.ok()) return part.status();
    job.name += (job.name.empty() ? "" : "+") + part->name;
    job.kernels.insert(job.kernels.end(), part->kernels.begin(), part->kernels.end());
    if (end == std::string_view::npos) return job;
    left.remove_prefix(end + 1);
  }
}

}  // namespace gpushared::simulation

// SPDX-License-Identifier: Apache-2.0
// Speed of parsing and printing PTX, and of preparing it for a device as the loader's child
// processes do. The PTX is the corpus's or that of the named files (PTX, fatbins, nvcc's output for
// a source file). CPU time of one thread, medians of rounds in which all contenders alternate,
// compared with a program that only counts the lines.
#include <time.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "common/ptx/text/parser.h"
#include "common/ptx/text/printer.h"
#include "server/device/prepare.h"
#include "server/ptx/analysis/control_flow.h"
#include "server/tools/ctl/module_file.h"
#include "tests/bench/report.h"

namespace gpushared::testing {
namespace {

constexpr int kRounds = 15;

double ProcessorSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Receives results, so that the compiler cannot remove the computation.
volatile std::uint64_t kept;

void CountLines(const std::string& text) {
  kept = static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '\n'));
}

void Parse(const std::string& text) {
  const Result<ptx::Module> module = ptx::Parse(text);
  kept = module->items.size();
}

void Prepare(const std::string& text, device::ModuleRecipe recipe) {
  recipe.range_bytes = std::uint64_t{4} << 30;
  std::uint64_t bytes = 0;
  device::FlatWriter to([&](std::span<const std::byte> piece) { bytes += piece.size(); });
  if (device::PrepareModule(recipe, std::as_bytes(std::span(text)), to).ok()) to.Flush();
  kept = bytes;
}

constexpr device::ModuleRecipe kForGpu = {
    .form = device::ModuleRecipe::Form::kForDriver,
    .passes = {.isolation = device::Isolation::kContain, .claims = true}};

// Returns all PTX of the files. Throws if they contain none, or if a file cannot be read.
std::vector<std::string> Read(const std::vector<std::string>& files) {
  std::vector<std::string> texts;
  for (const std::string& file : files) {
    const Result<std::vector<std::byte>> bytes = server::ReadWholeFile(file);
    const auto modules = bytes ? server::FindModules(*bytes)
                               : Result<std::vector<server::FoundModule>>(bytes.status());
    if (!modules) throw std::runtime_error(file + ": " + modules.status().ToString());
    for (const server::FoundModule& module : *modules) {
      if (module.ptx && ptx::Parse(*module.ptx)) texts.push_back(*module.ptx);
    }
  }
  if (texts.empty()) throw std::runtime_error("no file contains readable PTX");
  return texts;
}

template <typename Inputs, typename Work>
double Round(const Inputs& inputs, Work work) {
  const double start = ProcessorSeconds();
  for (const auto& input : inputs) work(input);
  return ProcessorSeconds() - start;
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void Measure(const std::vector<std::string>& texts, Report& report) {
  std::vector<ptx::Module> modules;
  double bytes = 0;
  for (const std::string& text : texts) {
    modules.push_back(*ptx::Parse(text));
    bytes += static_cast<double>(text.size());
  }
  const auto analyse = [](const ptx::Module& module) {
    for (const ptx::Item& item : module.items) {
      const auto* function = std::get_if<ptx::Function>(&item);
      if (function != nullptr && function->body) kept = ptx::AnalyseControlFlow(*function).ok();
    }
  };
  std::vector<double> parse, print, flow, lines, decode, passes;
  for (int round = 0; round < kRounds; ++round) {
    parse.push_back(Round(texts, Parse));
    print.push_back(Round(modules, [](const ptx::Module& m) { kept = ptx::Print(m).size(); }));
    flow.push_back(Round(modules, analyse));
    lines.push_back(Round(texts, CountLines));
    decode.push_back(Round(texts, [](const std::string& text) { Prepare(text, {}); }));
    passes.push_back(Round(texts, [](const std::string& text) { Prepare(text, kForGpu); }));
  }
  constexpr double kMega = 1e6;
  report.AddValue("text", bytes / kMega, "MB");
  report.AddValue("modules", static_cast<double>(texts.size()), "");
  report.AddValue("parse", bytes / Median(parse) / kMega, "MB/s");
  report.AddValue("print", bytes / Median(print) / kMega, "MB/s");
  report.AddValue("control flow", bytes / Median(flow) / kMega, "MB/s");
  report.AddValue("all, for the cpu device", bytes / Median(decode) / kMega, "MB/s");
  report.AddValue("all, contained, for a GPU", bytes / Median(passes) / kMega, "MB/s");
  report.AddValue("count lines", bytes / Median(lines) / kMega, "MB/s");
}

}  // namespace
}  // namespace gpushared::testing

int main(int argc, char** argv) {
  using namespace gpushared::testing;
  std::vector<std::string> files;
  return RunReport(
      argc, argv, "parse_bench: reading the PTX of each FILE, or of the corpus without a FILE",
      [&](Report& report) {
        // From CMake: paths separated by ':'.
        std::istringstream corpus(GPUSHARED_PARSE_CORPUS);
        const bool is_named = !files.empty();
        for (std::string path; !is_named && std::getline(corpus, path, ':');) files.push_back(path);
        Measure(Read(files), report);
      },
      &files);
}

// SPDX-License-Identifier: Apache-2.0
// Storms of modules.
#include <zstd.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/hostile/storms/storms.h"

namespace gpushared::storms {
namespace {

constexpr char kHead[] = ".version 7.0\n.target sm_70\n.address_size 64\n";

// Returns 3 MB of PTX in which each instruction keeps another register alive.
std::string ManyRegisters() {
  constexpr int kInstructions = 100'000;
  std::string text = kHead;
  text += ".visible .entry k()\n{\n.reg .b32 %r<" + std::to_string(kInstructions + 2) + ">;\n";
  text += "mov.u32 %r0, 1;\n";
  for (int i = 0; i < kInstructions; ++i) {
    text += "add.u32 %r" + std::to_string(i + 1) + ", %r" + std::to_string(i) + ", %r" +
            std::to_string(i / 2) + ";\n";
  }
  return text + "ret;\n}\n";
}

// Returns 2 MB of PTX with branches across the whole kernel.
std::string ManyBranches() {
  constexpr int kBranches = 40'000, kStride = 7919;
  std::string text = kHead;
  text += ".visible .entry k()\n{\n.reg .pred %p<2>;\n.reg .b32 %r<" +
          std::to_string(kBranches + 2) + ">;\nmov.u32 %r0, 1;\nsetp.eq.u32 %p1, %r0, 1;\n";
  for (int i = 0; i < kBranches; ++i) {
    const std::string number = std::to_string(i);
    text +=
        "L" + number + ":\n@%p1 bra L" + std::to_string((i * std::int64_t{kStride}) % kBranches);
    text += ";\nadd.u32 %r" + std::to_string(i + 1) + ", %r" + number + ", 1;\n";
  }
  return text + "ret;\n}\n";
}

// Returns 85 KB of PTX with as many kernels as a module may have.
std::string ManyKernels() {
  std::string text = kHead;
  for (int i = 0; i < 4096; ++i) text += ".entry k" + std::to_string(i) + "(){ret;}\n";
  return text;
}

template <typename T>
void Store(std::string& bytes, std::size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
}

// Returns the compressed PTX of a kernel followed by `empty_bytes` spaces.
std::string CompressedSpaces(const std::string& kernel, std::size_t empty_bytes) {
  const std::string spaces(std::size_t{1} << 20, ' ');
  std::string out(ZSTD_compressBound(empty_bytes / 512) + 4096, '\0');
  ZSTD_outBuffer into{out.data(), out.size(), 0};
  ZSTD_CCtx* const context = ZSTD_createCCtx();
  ZSTD_CCtx_setPledgedSrcSize(context, kernel.size() + empty_bytes);
  ZSTD_inBuffer from{kernel.data(), kernel.size(), 0};
  ZSTD_compressStream2(context, &into, &from, ZSTD_e_continue);
  for (std::size_t done = 0; done < empty_bytes; done += spaces.size()) {
    from = {spaces.data(), std::min(spaces.size(), empty_bytes - done), 0};
    ZSTD_compressStream2(context, &into, &from, ZSTD_e_continue);
  }
  from = {nullptr, 0, 0};
  ZSTD_compressStream2(context, &into, &from, ZSTD_e_end);
  ZSTD_freeCCtx(context);
  out.resize(into.pos);
  return out;
}

// Returns a fatbin of a few kilobytes whose only entry decompresses to 60 MiB of text.
std::string Bomb(std::uint32_t number) {
  constexpr std::size_t kHeaderBytes = 16, kEntryBytes = 64, kEmptyBytes = std::size_t{60} << 20;
  const std::string kernel =
      std::string(kHead) + "// " + std::to_string(number) + "\n.entry k(){ret;}\n";
  const std::string payload = CompressedSpaces(kernel, kEmptyBytes);
  std::string entry(kEntryBytes, '\0');
  Store(entry, 0, std::uint16_t{1});  // PTX.
  Store(entry, 4, std::uint32_t{kEntryBytes});
  Store(entry, 8, std::uint64_t{payload.size()});
  Store(entry, 16, static_cast<std::uint32_t>(payload.size()));
  Store(entry, 28, std::uint32_t{75});      // Architecture.
  Store(entry, 40, std::uint64_t{0x8000});  // Compressed by zstd.
  Store(entry, 56, std::uint64_t{kernel.size() + kEmptyBytes});
  std::string fatbin(kHeaderBytes, '\0');
  Store(fatbin, 0, std::uint32_t{0xBA55ED50});
  Store(fatbin, 4, std::uint16_t{1});
  Store(fatbin, 6, std::uint16_t{kHeaderBytes});
  Store(fatbin, 8, std::uint64_t{entry.size() + payload.size()});
  return fatbin + entry + payload;
}

const std::vector<std::string>& CostlyModules() {
  static const std::vector<std::string> texts = {ManyRegisters(), ManyBranches(), ManyKernels()};
  return texts;
}

ClientOptions GetOptions(const Attacker& attacker) {
  return {.name = "loader", .socket = attacker.socket};
}

}  // namespace

void MakeCostlyModules() { (void)CostlyModules(); }

void LoadCostlyModules(const Attacker& attacker) {
  const std::vector<std::string>& texts = CostlyModules();
  for (std::uint32_t round = 0;;) {
    const Result<Client> client = Client::Connect(GetOptions(attacker));
    if (!attacker.Did(client.status())) continue;
    for (bool goes_on = true; goes_on; ++round) {
      // The text differs each time, so that no cache helps the server.
      const std::string text = texts[(attacker.number + round) % texts.size()] + "// " +
                               std::to_string(attacker.number) + "/" + std::to_string(round);
      const Result<Module> module = client->LoadModule(std::string_view(text));
      attacker.Did(module.status());
      goes_on = client->status().ok();
    }
  }
}

void LoadBombs(const Attacker& attacker) {
  for (;;) {
    const Result<Client> client = Client::Connect(GetOptions(attacker));
    if (!attacker.Did(client.status())) continue;
    std::vector<Module> kept;
    while (client->status().ok()) {
      const std::string bomb =
          Bomb(attacker.number * 1'000'000 + static_cast<std::uint32_t>(kept.size()));
      Result<Module> module = client->LoadModule(std::as_bytes(std::span(bomb)));
      if (attacker.Did(module.status())) kept.push_back(*std::move(module));
    }
  }
}

void UnloadWithoutWaiting(const Attacker& attacker) {
  constexpr std::size_t kAtOnce = 200;
  const std::string text = std::string(kHead) + ".entry k(){ret;}\n";
  for (;;) {
    const Result<Client> client = Client::Connect(GetOptions(attacker));
    if (!attacker.Did(client.status())) continue;
    while (client->status().ok()) {
      std::vector<Module> modules;
      while (modules.size() < kAtOnce && client->status().ok()) {
        Result<Module> module = client->LoadModule(std::string_view(text));
        if (attacker.Did(module.status())) modules.push_back(*std::move(module));
      }
    }
  }
}

}  // namespace gpushared::storms

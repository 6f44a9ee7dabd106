// SPDX-License-Identifier: Apache-2.0
#include "server/device/cuda/cuda_prepared.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>
#include <variant>

#include "common/ptx/text/fatbin.h"
#include "common/ptx/text/module.h"
#include "common/ptx/text/parser.h"
#include "common/ptx/text/printer.h"
#include "server/device/cpu/executor/flat_code.h"
#include "server/device/memory_budget.h"
#include "server/device/module_passes.h"
#include "server/device/shown_name.h"
#include "server/ptx/passes/fence.h"

namespace gpushared::device::cuda {
namespace {

constexpr std::uint32_t kFatbinMagic = 0xba55ed50;
constexpr std::size_t kFatbinHeaderBytes = 16;
constexpr std::array kElfMagic = {std::byte{0x7f}, std::byte{'E'}, std::byte{'L'}, std::byte{'F'}};
constexpr std::size_t kElfHeaderBytes = 64;
// Limit for a reason or a note.
constexpr std::size_t kMessageBytesMax = 4096;

bool StartsWith(std::span<const std::byte> image, std::span<const std::byte> magic) {
  return image.size() >= magic.size() && std::equal(magic.begin(), magic.end(), image.begin());
}
bool IsElf(std::span<const std::byte> image) { return StartsWith(image, kElfMagic); }
bool IsFatbin(std::span<const std::byte> image) {
  return StartsWith(image, std::as_bytes(std::span(&kFatbinMagic, 1)));
}

// Drivers receive only an address and take the length from the header.
Status CheckContainer(std::span<const std::byte> image) {
  if (IsElf(image) && image.size() < kElfHeaderBytes) {
    return {StatusCode::kInvalidArgument,
            "module rejected: a cubin of " + std::to_string(image.size()) + " bytes"};
  }
  if (!IsFatbin(image)) return {};
  std::uint16_t header_bytes = 0;
  std::uint64_t payload_bytes = 0;
  if (image.size() >= kFatbinHeaderBytes) {
    std::memcpy(&header_bytes, image.data() + 6, sizeof header_bytes);
    std::memcpy(&payload_bytes, image.data() + 8, sizeof payload_bytes);
  }
  if (header_bytes >= kFatbinHeaderBytes && header_bytes <= image.size() &&
      payload_bytes <= image.size() - header_bytes) {
    return {};
  }
  return {StatusCode::kInvalidArgument,
          "module rejected: the fatbin claims " + std::to_string(header_bytes) + " + " +
              std::to_string(payload_bytes) + " bytes, its image has " +
              std::to_string(image.size())};
}

// ---- parsing the client's image

struct ClientImage {
  std::optional<ptx::Module> ptx;
  Status why_no_ptx;
  bool is_text = false;
  bool has_newer_code = false;  // Whether it also has machine code newer than its PTX.
};

Result<ClientImage> ReadImage(std::span<const std::byte> image) {
  if (Status status = CheckContainer(image); !status.ok()) return status;
  ClientImage read;
  read.is_text = !IsElf(image) && !IsFatbin(image);
  if (IsElf(image)) {
    read.why_no_ptx = Status(StatusCode::kUnsupported, "a cubin holds no PTX");
    return read;
  }
  Result<std::string> text = ptx::ExtractPtx(image);
  Result<ptx::Module> parsed = text.ok() ? ptx::Parse(*text) : text.status();
  if (parsed.ok()) read.ptx = std::move(*parsed);
  read.has_newer_code = text.ok() && ptx::HasNewerMachineCode(image);
  read.why_no_ptx = parsed.status();
  // Bytes that are neither a container nor text are not passed to a compiler.
  if (!text.ok() && read.is_text) return text.status();
  return read;
}

// Size of the variables that the driver places, without the fence's own variable.
std::uint64_t DriverVariableBytes(const ptx::Module& module, std::string_view ours) {
  std::uint64_t bytes = 0;
  for (const ptx::Item& item : module.items) {
    const auto* variable = std::get_if<ptx::Variable>(&item);
    if (variable == nullptr || variable->linkage == ".extern" || variable->name == ours) continue;
    const bool is_memory = variable->space == ptx::StateSpace::kGlobal ||
                           variable->space == ptx::StateSpace::kConstant;
    // Each variable has at most ptx::kVariableBytesMax, so it would take 2^24 variables to overflow
    // the sum.
    if (is_memory) bytes += variable->Bytes();
  }
  return RoundUp(bytes, kPageBytes);
}

bool HasVariables(const ptx::Module& module, std::string_view ours) {
  return std::ranges::any_of(module.items, [&](const ptx::Item& item) {
    const auto* variable = std::get_if<ptx::Variable>(&item);
    return variable != nullptr && variable->name != ours &&
           (variable->space == ptx::StateSpace::kGlobal ||
            variable->space == ptx::StateSpace::kConstant);
  });
}

Result<std::optional<PassedModule>> Pass(const ModuleRecipe& recipe, ClientImage& read) {
  const Isolation isolation = recipe.passes.isolation;
  if (!read.ptx) {
    if (isolation == Isolation::kOff) return std::optional<PassedModule>();
    return Status(read.why_no_ptx.code(),
                  "module rejected: kernels of this client are kept in its memory by rewriting "
                  "their PTX, and there is none: " +
                      read.why_no_ptx.message());
  }
  Result<PassedModule> passed =
      ApplyPasses(*std::move(read.ptx), {.isolation = isolation}, recipe.range_bytes);
  if (!passed.ok()) return passed.status();
  if (passed->variables.alignment > kPageBytes) {
    return Status(StatusCode::kUnsupported,
                  "module rejected: a variable asks for an alignment of " +
                      std::to_string(passed->variables.alignment) + " bytes, " +
                      std::to_string(kPageBytes) + " are given");
  }
  return std::optional<PassedModule>(*std::move(passed));
}

// Returns the names of kernels without a preemptible form and the reasons; empty if all have one.
std::string Unclaimed(const PassedModule& passed) {
  constexpr std::size_t kNamedMax = 8;
  std::string text;
  std::size_t count = 0;
  for (const PassedKernel& kernel : passed.kernels) {
    if (!kernel.claimed.empty() || !kernel.info.unsupported.empty()) continue;
    if (++count > kNamedMax) continue;
    text += (count == 1 ? "kernels that cannot be stopped: '" : ", '") +
            ShownName(kernel.info.name) + "' (" + kernel.why_not_preemptible + ")";
  }
  if (count > kNamedMax) text += " and " + std::to_string(count - kNamedMax) + " more";
  return text;
}

struct Claiming {
  std::optional<PreemptibleText> claims;
  std::string note;
};

// Adds the preemptible forms to the module, whose original text has been printed before.
Claiming Claim(PassedModule* passed, const ClientImage& read) {
  Claiming made;
  if (passed == nullptr) {
    made.note = "kernels of a module cannot be stopped: " + read.why_no_ptx.message();
    return made;
  }
  const bool any = AddClaims(*passed);
  made.note = Unclaimed(*passed);
  if (!any) return made;
  // The server places the variables of a fenced module, so any number of modules can share them.
  const bool is_separable = !HasVariables(passed->module, passed->fence_constant);
  if (!is_separable && !read.is_text) {
    made.note =
        "kernels of a module cannot be stopped: it is a container of code and has variables";
    return made;
  }
  if (read.has_newer_code && !passed->is_fenced()) {
    made.note =
        "kernels of a module cannot be stopped: its machine code is of a newer architecture than "
        "its PTX";
    return made;
  }
  made.claims = PreemptibleText{.text = ptx::Print(passed->module),
                                .target = passed->module.target,
                                .forms = {},
                                .is_separable = is_separable};
  for (const PassedKernel& kernel : passed->kernels) {
    if (kernel.claimed.empty()) continue;
    made.claims->forms.push_back({kernel.info.name, kernel.claimed, kernel.claim_offset});
  }
  return made;
}

// ---- writing

void PutMessage(std::string text, FlatWriter& to) {
  text.resize(std::min(text.size(), kMessageBytesMax));
  std::ranges::replace_if(
      text, [](char c) { return c < ' ' || c > '~'; }, '?');
  to.PutText(text);
}

void PutClaims(const Claiming& made, FlatWriter& to) {
  PutMessage(made.note, to);
  to.Put(std::uint32_t{made.claims.has_value()});
  if (!made.claims) return;
  to.Put(std::uint32_t{made.claims->is_separable});
  to.PutText(made.claims->target);
  to.PutText(made.claims->text);
  to.PutCount(made.claims->forms.size());
  for (const PreemptibleText::Form& form : made.claims->forms) {
    to.PutText(form.kernel);
    to.PutText(form.claimed);
    to.Put(form.parameter_offset);
  }
}

// For a module without kernels ptxas writes a temporary file, which its sandbox forbids.
std::string PrintForCompiler(const PassedModule& passed) {
  const bool has_kernel = std::ranges::any_of(passed.module.items, [](const ptx::Item& item) {
    const auto* function = std::get_if<ptx::Function>(&item);
    return function != nullptr && function->is_entry && function->body.has_value();
  });
  std::string text = ptx::Print(passed.module);
  // No name in the module begins with the constant's name, so this one is unique.
  if (!has_kernel) text += ".entry " + passed.fence_constant + "_kernel() { ret; }\n";
  return text;
}

// ---- reading: nothing is trusted until it was checked

bool IsName(const std::string& text) { return !text.empty() && executor::IsPlainText(text); }

bool TakeMessage(FlatReader& from, std::string* text) {
  *text = from.TakeText();
  return text->size() <= kMessageBytesMax && executor::IsPlainText(*text);
}

// Whether the text may be passed to a compiler: it is no container, is within the size limit, and
// has no zero byte.
bool IsPtxText(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return !IsElf(bytes) && !IsFatbin(bytes) && text.size() <= 2 * ptx::kPtxBytesMax &&
         text.find('\0') == std::string_view::npos;
}

// Whether the text may be a module's .target: printable and short. CodeMaker passes a target to the
// compiler only if it is the GPU's own architecture with a suffix of one character.
bool IsTarget(const std::string& text) { return IsName(text) && text.size() <= 256; }

}  // namespace

Status PrepareCudaModule(const ModuleRecipe& recipe, std::span<const std::byte> image,
                         FlatWriter& to) {
  Result<ClientImage> read = ReadImage(image);
  if (!read.ok()) return read.status();
  Result<std::optional<PassedModule>> passed = Pass(recipe, *read);
  if (!passed.ok()) return passed.status();
  PassedModule* const module = passed->has_value() ? &**passed : nullptr;
  const PassedModule nothing;
  const PassedModule& facts = module != nullptr ? *module : nothing;
  to.Put(std::uint32_t{read->is_text});
  to.Put(static_cast<std::uint32_t>(read->why_no_ptx.code()));
  PutMessage(read->why_no_ptx.message(), to);
  to.PutText(facts.module.target);
  to.PutText(facts.fence_constant);
  to.Put(std::uint32_t{facts.is_contained});
  to.Put(DriverVariableBytes(facts.module, facts.fence_constant));
  to.Put(facts.variables.bytes);
  PutContents(std::array{LayoutPart{facts.variables}}, to);
  PutVariables(facts.declared, std::array{LayoutPart{facts.variables}}, to);
  PutFaultPlaces(facts.places, to);
  to.PutCount(facts.kernels.size());
  for (const PassedKernel& kernel : facts.kernels) executor::PutKernelInfo(kernel.info, to);
  if (facts.is_fenced()) {
    to.PutText(PrintForCompiler(facts));
  } else {
    to.PutAll(image);
  }
  PutClaims(recipe.passes.claims ? Claim(module, *read) : Claiming(), to);
  return {};
}

Result<std::shared_ptr<const CudaPrepared>> CudaPrepared::Take(const ModuleRecipe& recipe,
                                                               std::span<const std::byte> flat) {
  std::shared_ptr<CudaPrepared> module(new CudaPrepared);
  FlatReader from(flat);
  module->is_text_ = from.Take<std::uint32_t>() != 0;
  if (Status status = module->TakeReason(from); !status.ok()) return status;
  if (Status status = module->TakeFence(recipe, from); !status.ok()) return status;
  if (Status status = module->TakeKernels(from); !status.ok()) return status;
  if (Status status = module->TakeImage(recipe, from); !status.ok()) return status;
  if (Status status = module->TakeClaims(recipe, from); !status.ok()) return status;
  if (!from.ok() || from.left() != 0) return WrongModule("its length");
  return std::shared_ptr<const CudaPrepared>(std::move(module));
}

Status CudaPrepared::TakeReason(FlatReader& from) {
  const auto code = static_cast<StatusCode>(from.Take<std::uint32_t>());
  std::string why;
  const bool is_reason = code == StatusCode::kOk || code == StatusCode::kInvalidArgument ||
                         code == StatusCode::kUnsupported || code == StatusCode::kLimitExceeded;
  if (!TakeMessage(from, &why) || !is_reason) return WrongModule("the reason for its missing PTX");
  if (code != StatusCode::kOk) why_no_ptx_ = Status(code, std::move(why));
  return {};
}

Status CudaPrepared::TakeFence(const ModuleRecipe& recipe, FlatReader& from) {
  target_ = from.TakeText();
  fence_constant_ = from.TakeText();
  is_contained_ = from.Take<std::uint32_t>() != 0;
  driver_variable_bytes_ = from.Take<std::uint64_t>();
  range_variable_bytes_ = from.Take<std::uint64_t>();
  const bool is_isolated = recipe.passes.isolation != Isolation::kOff;
  const bool contains = recipe.passes.isolation == Isolation::kContain;
  if ((has_ptx() && !IsTarget(target_)) || is_fenced() != is_isolated ||
      (is_isolated && (!IsName(fence_constant_) || !has_ptx())) || is_contained_ != contains ||
      driver_variable_bytes_ % kPageBytes != 0) {
    return WrongModule("information about its fence");
  }
  if (range_variable_bytes_ > ptx::kModuleVariableBytesMax ||
      (!is_isolated && range_variable_bytes_ != 0)) {
    return WrongModule("its variables");
  }
  Result<VariableContents> contents = TakeContents(from, range_variable_bytes_);
  if (!contents.ok()) return contents.status();
  contents_ = *std::move(contents);
  Result<std::vector<VariableInfo>> variables = TakeVariables(from, range_variable_bytes_);
  if (!variables) return variables.status();
  variables_ = *std::move(variables);
  // Excludes the fence's variable, because a client that could write it could disable its fence.
  std::erase_if(variables_, [&](const VariableInfo& variable) {
    return is_fenced() && variable.name == fence_constant_;
  });
  Result<std::vector<ptx::FaultPlace>> places = TakeFaultPlaces(from);
  if (!places.ok()) return places.status();
  fault_places_ = *std::move(places);
  return {};
}

Status CudaPrepared::TakeKernels(FlatReader& from) {
  kernels_.resize(from.TakeCount(40, sizeof(KernelInfo)));
  for (KernelInfo& kernel : kernels_) {
    Result<KernelInfo> info = executor::TakeKernelInfo(from);
    if (!info.ok()) return info.status();
    kernel = *std::move(info);
  }
  return {};
}

Status CudaPrepared::TakeImage(const ModuleRecipe& recipe, FlatReader& from) {
  const std::span<const std::byte> image = from.TakeBytes(from.TakeCount(1));
  const std::string_view text(reinterpret_cast<const char*>(image.data()), image.size());
  // For an isolated client only text made by the passes is accepted, never machine code.
  if (recipe.passes.isolation != Isolation::kOff && !IsPtxText(text))
    return WrongModule("its text");
  if (Status status = CheckContainer(image); !status.ok()) return status;
  Assign(image);
  return {};
}

Status CudaPrepared::TakeClaims(const ModuleRecipe& recipe, FlatReader& from) {
  if (!TakeMessage(from, &note_)) return WrongModule("a note");
  if (from.Take<std::uint32_t>() == 0) return {};
  auto claims = std::make_shared<PreemptibleText>();
  claims->is_separable = from.Take<std::uint32_t>() != 0;
  claims->target = from.TakeText();
  claims->text = from.TakeText();
  claims->forms.resize(from.TakeCount(20, sizeof(PreemptibleText::Form)));
  bool has_names = true;
  for (PreemptibleText::Form& form : claims->forms) {
    form.kernel = from.TakeText();
    form.claimed = from.TakeText();
    form.parameter_offset = from.Take<std::uint32_t>();
    has_names = has_names && IsName(form.kernel) && IsName(form.claimed);
  }
  if (!recipe.passes.claims || !has_ptx() || !has_names || !IsTarget(claims->target) ||
      !IsPtxText(claims->text)) {
    return WrongModule("its preemptible forms");
  }
  claims_ = std::move(claims);
  return {};
}

void CudaPrepared::Assign(std::span<const std::byte> image) {
  image_.clear();
  image_.reserve(image.size() + kTrailingZeros);
  image_.assign(image.begin(), image.end());
  image_.resize(image.size() + kTrailingZeros);
}

std::string_view CudaPrepared::text() const {
  const std::string_view all(reinterpret_cast<const char*>(image_.data()),
                             image_.size() - kTrailingZeros);
  return all.substr(0, all.find('\0'));
}

std::uint64_t CudaPrepared::bytes() const {
  std::uint64_t bytes = sizeof *this + image_.size() + contents_.HostBytes() +
                        HostBytes(fault_places_) + note_.size();
  for (const KernelInfo& kernel : kernels_) {
    bytes += sizeof kernel + kernel.name.size() + kernel.unsupported.size() +
             kernel.why_reach_unknown.size() +
             kernel.reach_offsets.size() * sizeof kernel.reach_offsets[0] +
             kernel.parameters.size() * sizeof kernel.parameters[0];
  }
  if (claims_ == nullptr) return bytes;
  bytes += sizeof *claims_ + claims_->text.size();
  for (const PreemptibleText::Form& form : claims_->forms) {
    bytes += sizeof form + form.kernel.size() + form.claimed.size();
  }
  return bytes;
}

std::vector<std::byte> CudaPrepared::InitialBytes(std::uint64_t base) const {
  std::vector<std::byte> bytes(range_variable_bytes_);
  for (const VariableContents::Piece& piece : contents_.pieces) {
    std::ranges::copy(piece.bytes, bytes.begin() + static_cast<std::ptrdiff_t>(piece.offset));
  }
  for (const ptx::ModuleLayout::AddressSlot& slot : contents_.slots) {
    const std::uint64_t value = (base + slot.target_offset) >> slot.shift;
    std::memcpy(bytes.data() + slot.offset, &value, slot.bytes);
  }
  return bytes;
}

// ---- compiling

std::shared_ptr<const CudaPrepared> CudaPrepared::WithCode(std::span<const std::byte> code,
                                                           bool has_claims) const {
  std::shared_ptr<CudaPrepared> compiled(new CudaPrepared(*this));
  compiled->Assign(code);
  compiled->is_compiled_ = true;
  compiled->has_claims_ = has_claims;
  return compiled;
}

Result<std::shared_ptr<const CudaPrepared>> CudaPrepared::Compile(
    std::shared_ptr<const CudaPrepared> module, CodeMaker& maker, bool may_take_long) {
  if (module->is_compiled_ || !module->has_ptx() || !module->runs_text()) return module;
  if (const PreemptibleText* const claims = module->claims_.get()) {
    if (const auto kept = maker.Find(claims->text, claims->target)) {
      return module->WithCode(*kept, true);
    }
  }
  if (!may_take_long) {
    const auto kept = maker.Find(module->text(), module->target_);
    return kept ? module->WithCode(*kept, false) : nullptr;
  }
  const Result<std::vector<std::byte>> code = maker.Compile(module->text(), module->target_);
  if (code.ok()) return module->WithCode(*code, false);
  const StatusCode why = code.status().code();
  if (module->is_fenced() || why == StatusCode::kCancelled || why == StatusCode::kLimitExceeded) {
    return Status(why, "module rejected: " + code.status().message());
  }
  // Leaves the compilation to the driver, whose compiler may be newer and is permitted for this
  // client's code. Code that exceeded a limit was rejected above, because the driver's compiler has
  // no limits and all work waits for it.
  maker.Note("all work waits while the driver compiles a module: " + code.status().message());
  return module;
}

}  // namespace gpushared::device::cuda

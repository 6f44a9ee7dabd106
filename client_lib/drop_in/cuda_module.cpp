// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/cuda_module.h"

#include <elf.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "common/ptx/link/child_kernels.h"

namespace gpushared::drop_in {
namespace {

constexpr std::uint32_t kFatbinWrapperMagic = 0x466243b1;
constexpr std::uint32_t kFatbinMagic = 0xba55ed50;
constexpr std::uint32_t kElfMagic = 0x464c457f;

struct FatbinWrapper {
  std::uint32_t magic, version;
  const void* fatbin;
};
struct FatbinHeader {
  std::uint32_t magic;
  std::uint16_t version, header_bytes;
  std::uint64_t body_bytes;
};

template <typename Header>
Header HeaderAt(const void* image) {
  Header header;
  std::memcpy(&header, image, sizeof header);
  return header;
}

// An ELF file ends with its sections, its section headers or its program headers.
std::size_t ElfBytes(const std::byte* image) {
  const auto header = HeaderAt<Elf64_Ehdr>(image);
  std::uint64_t end = header.e_shoff + std::uint64_t{header.e_shentsize} * header.e_shnum;
  end = std::max(end, header.e_phoff + std::uint64_t{header.e_phentsize} * header.e_phnum);
  if (header.e_shentsize != sizeof(Elf64_Shdr)) return end;
  for (std::uint64_t i = 0; i < header.e_shnum; ++i) {
    const auto section = HeaderAt<Elf64_Shdr>(image + header.e_shoff + i * sizeof(Elf64_Shdr));
    if (section.sh_type != SHT_NOBITS) end = std::max(end, section.sh_offset + section.sh_size);
  }
  return end;
}

}  // namespace

std::span<const std::byte> ImageBytes(const void* image) {
  if (image == nullptr) return {};
  const auto* const bytes = static_cast<const std::byte*>(image);
  // The shortest text ends within its first four bytes.
  const void* const nul = std::memchr(image, 0, sizeof(std::uint32_t));
  const std::uint32_t magic = nul == nullptr ? HeaderAt<std::uint32_t>(image) : 0;
  if (magic == kFatbinWrapperMagic) {
    const void* const fatbin = HeaderAt<FatbinWrapper>(image).fatbin;
    if (fatbin == nullptr || HeaderAt<std::uint32_t>(fatbin) != kFatbinMagic) return {};
    return ImageBytes(fatbin);
  }
  if (magic == kFatbinMagic) {
    const auto header = HeaderAt<FatbinHeader>(image);
    return {bytes, header.header_bytes + header.body_bytes};
  }
  if (magic == kElfMagic) return {bytes, ElfBytes(bytes)};
  return {bytes, std::strlen(static_cast<const char*>(image))};
}

CudaModule::CudaModule(std::span<const std::byte> image, bool is_library)
    : is_library_(is_library), image_(image.begin(), image.end()), variables_id_(NextBufferId()) {}

CudaModule::~CudaModule() {
  for (const Loaded& loaded : loaded_) {
    const std::shared_ptr<Session> session = loaded.session.lock();
    if (session == nullptr) continue;
    for (const ModuleVariable& variable : loaded.module.variables()) {
      session->addresses().RemoveVariable(variable.address, variables_id_);
    }
  }
}

void CudaModule::Add(const std::shared_ptr<Session>& session, Module module) {
  const std::shared_ptr<const Context> context = context_.lock();
  for (const ModuleVariable& variable : module.variables()) {
    if (variable.name == ptx::kChildQueueName) {
      starts_kernels_.store(true, std::memory_order_relaxed);
    }
    if (variable.bytes == 0) continue;
    // A variable at an address at which the program already has memory cannot be inserted. The
    // program cannot copy to or from the variable, but kernels can access it.
    static_cast<void>(session->addresses().Insert(
        {.address = variable.address,
         .bytes = variable.bytes,
         .kind = BlockKind::kVariable,
         .context_id = context == nullptr ? Context::kNoId : context->id(),
         .buffer_id = variables_id_},
        {}));
  }
  loaded_.push_back({session, std::move(module)});
}

Result<std::shared_ptr<CudaModule>> CudaModule::Load(const std::shared_ptr<Context>& context,
                                                     std::span<const std::byte> image) {
  Result<Module> loaded = context->session().client().LoadModule(image);
  if (!loaded.ok()) return loaded.status();
  // Does not use make_shared, here and below, because the constructor is private.
  const std::shared_ptr<CudaModule> module(new CudaModule({}, /*is_library=*/false));
  module->context_ = context;
  const MutexLock lock(module->mutex_);
  module->Add(context->shared_session(), std::move(*loaded));
  return module;
}

Result<std::shared_ptr<CudaModule>> CudaModule::LoadLibrary(const std::shared_ptr<Session>& session,
                                                            std::span<const std::byte> image) {
  Result<Module> loaded = session->client().LoadModule(image);
  if (!loaded.ok()) return loaded.status();
  const std::shared_ptr<CudaModule> library(new CudaModule(image, /*is_library=*/true));
  const MutexLock lock(library->mutex_);
  library->Add(session, std::move(*loaded));
  return library;
}

bool CudaModule::BelongsTo(const Context& context) const {
  return !is_library_ && context_.lock().get() == &context;
}

FunctionHandle CudaModule::GetHandle(const std::string& kernel) const {
  const MutexLock lock(mutex_);
  const auto found = handles_.find(kernel);
  return found == handles_.end() ? nullptr : found->second;
}

void CudaModule::SetHandleOf(const std::string& kernel, FunctionHandle handle) {
  const MutexLock lock(mutex_);
  handles_[kernel] = handle;
}

Result<Module> CudaModule::In(const std::shared_ptr<Session>& session) {
  const MutexLock lock(mutex_);
  for (const Loaded& loaded : loaded_) {
    if (loaded.session.lock() == session) return loaded.module;
  }
  if (!is_library_) return Status(StatusCode::kNotFound, "the module is of another context");
  std::erase_if(loaded_, [](const Loaded& loaded) { return loaded.session.expired(); });
  Result<Module> module = session->client().LoadModule(image_);
  if (module.ok()) Add(session, *module);
  return module;
}

CudaKernel::CudaKernel(std::shared_ptr<CudaModule> of, std::string with_name, Kernel kernel,
                       const std::shared_ptr<Session>& session)
    : module(std::move(of)),
      name(std::move(with_name)),
      first_(std::move(kernel)),
      first_session_(session) {
  for (std::atomic<int>& value : set_attributes) value.store(kUnset, std::memory_order_relaxed);
}

Result<Kernel> CudaKernel::In(const Context& context) const {
  // Compares owners without touching the reference counts, because every launch calls this
  // function.
  const std::shared_ptr<Session>& session = context.shared_session();
  if (!first_session_.owner_before(session) && !session.owner_before(first_session_)) return first_;
  const Result<Module> there = module->In(session);
  if (!there.ok()) return there.status();
  return there->GetKernel(name);
}

}  // namespace gpushared::drop_in

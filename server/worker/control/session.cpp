// SPDX-License-Identifier: Apache-2.0
// Lifetime of a session. Requests are handled in session_requests.cpp.
#include "server/worker/control/session.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <utility>

#include <boost/asio/post.hpp>
#include <spdlog/spdlog.h>

#include "ipc/wire/layout.h"
#include "server/device/shown_name.h"
#include "server/worker/control/read_owner.h"
#include "server/worker/control/session_calls.h"

namespace gpushared::server {

namespace {

static_assert(ipc::kIsolationMax + 1 == device::kIsolations);

scheduler::ClientSpec GetSpec(const ipc::Attach& attach, bool shares_by_uid) {
  scheduler::ClientSpec spec;
  if (shares_by_uid) spec.group = attach.share_group;
  spec.scheduling_class = attach.client_class;
  spec.weight = attach.weight;
  if (attach.hello.latency_target_ns > 0) {
    spec.latency_target = std::chrono::nanoseconds(attach.hello.latency_target_ns);
  }
  return spec;
}

}  // namespace

ipc::DeviceDescription DescribeDevice(const device::DeviceInfo& info) {
  std::vector<ipc::DeviceAttribute> attributes;
  for (const device::NumberedAttribute& each : info.attributes) {
    attributes.push_back({.id = each.id, .value = each.value});
  }
  return {.name = info.name,
          .id = info.id,
          .kind = info.kind,
          .memory_bytes = info.memory_bytes,
          .multiprocessors = info.multiprocessors,
          .threads_per_block_max = info.threads_per_block_max,
          .block_max = info.block_max,
          .grid_max = info.grid_max,
          .shared_bytes_per_block_max = info.shared_bytes_per_block_max,
          .preempts_within_command = info.preemption == device::Preemption::kWithinCommand,
          .spinning_pays = info.spinning_pays,
          .uuid = info.uuid,
          .attributes = std::move(attributes)};
}

Session::Session(SessionEnvironment& environment, ipc::Attach attach, ipc::UniqueFd socket,
                 ipc::UniqueFd pidfd)
    : environment_(environment),
      attach_(std::move(attach)),
      who_(fmt::format("client {} '{}' pid {}", attach_.session, attach_.hello.name,
                       attach_.peer.pid)),
      spec_(GetSpec(attach_, environment.shares_by_uid)),
      caps_{attach_.max_share, attach_.rule_cap, attach_.rule_share},
      socket_(environment.context, socket.Release()),
      pidfd_(environment.context, pidfd.Release()),
      reader_(ipc::ClientFrameRules, ipc::Descriptors::kRejected) {}

bool SessionMemory::ReturnPart() {
  if (!modules.empty()) {
    modules.erase(modules.begin());
    return true;
  }
  // One registration at a time, because ending the registration of 16 MiB may delay launches for a
  // third of a millisecond.
  if (!pinned_staging_buffers.empty()) {
    pinned_staging_buffers.pop_back();
    return true;
  }
  if (space == nullptr) return false;
  if (chunks.ReturnPart(*space)) return true;
  if (mapped_bytes == 0) return false;
  const Result<std::uint64_t> left = space->Resize(LessMapped(mapped_bytes, 0));
  if (!left.ok() || *left >= mapped_bytes) return false;
  mapped_bytes = *left;
  return true;
}

std::uint64_t LessMapped(std::uint64_t mapped_bytes, std::uint64_t wanted_bytes) {
  const std::uint64_t step = std::max(kReturnStepBytes, mapped_bytes / kReturnStepsMax);
  return std::max(wanted_bytes, mapped_bytes - std::min(mapped_bytes, step));
}

std::uint64_t MoreMapped(std::uint64_t mapped_bytes, std::uint64_t wanted_bytes,
                         std::uint64_t step_bytes) {
  const std::uint64_t step = std::max(step_bytes, wanted_bytes / kGrowStepsMax);
  return wanted_bytes - mapped_bytes <= step ? wanted_bytes : mapped_bytes + step;
}

Session::~Session() {
  const std::uint32_t mappings = memory_ == nullptr ? 0 : memory_->chunks.mappings();
  SlowCalls::Caller whose = caller();
  whose.has_left = true;
  // The slow calls of a session are made in order, so all earlier ones have ended when this one
  // begins.
  environment_.slow_calls.Post(
      whose, [has_moved = has_moved_, memory = std::move(memory_), image = std::move(image_),
              socket = std::move(closing_), &endings = environment_.endings,
              home = environment_.home, returned = Returned(mappings)]() mutable {
        if (memory != nullptr && memory->ReturnPart()) return true;
        std::vector<ipc::SharedSegment> staging_buffers;
        if (memory != nullptr) staging_buffers = std::move(memory->staging_buffers);
        memory.reset();
        // Discarding the pages may block, because the kernel takes a lock that it also holds while
        // the client writes to the same memory.
        endings.Post([has_moved, staging_buffers = std::move(staging_buffers),
                      image = std::move(image), socket = std::move(socket), home = std::move(home),
                      returned = std::move(returned)]() mutable {
          // Frees the pages even if the client keeps its mappings.
          // A client that was moved still uses them.
          for (const ipc::SharedSegment& staging_buffer : staging_buffers) {
            if (!has_moved) staging_buffer.Discard();
          }
          staging_buffers.clear();
          image.Reset();
          socket.Reset();
          home.Post(std::move(returned));
        });
        return false;
      });
}

std::function<void()> Session::Returned(std::uint32_t mappings) {
  return [&environment = environment_, id = id(), why = std::move(why_ended_),
          staging_bytes = staging_bytes_, image_bytes = image_bytes_,
          kept_bytes = kept_image_bytes_, mappings] {
    environment.mappings -= mappings;
    environment.staging.GiveBack(staging_bytes, staging_bytes);
    environment.images.GiveBack(image_bytes, image_bytes);
    environment.kept_images.GiveBack(kept_bytes, kept_bytes);
    environment.on_memory_returned(id, why);
  };
}

// ---- handshake

bool Session::MayUseReserve() const {
  return attach_.allowed_class == SchedulingClass::kHigh || attach_.is_trusted;
}

void Session::Start() {
  has_place_ = true;
  if (Status status = ipc::SetNonBlocking(socket_.native_handle(), true); !status.ok()) {
    return End(std::move(status));
  }
  WatchDeath();
  SetCanPark();
  const device::SpaceOptions space = GetSpaceOptions();
  const Result<ipc::Owner> stated = ipc::Owner::Parse(attach_.owner);  // Validated by the broker.
  const auto owner = std::make_shared<ipc::Owner>(stated.ok() ? *stated : ipc::Owner());
  owner->Set("uid", std::to_string(attach_.peer.uid));
  MakeSlowCall(
      [device = &environment_.device, space, store = environment_.store,
       guaranteed = attach_.guaranteed_bytes, owner, pid = attach_.peer.pid] {
        ReadOwner(pid, *owner);
        return MakeMemory(*device, space, store, guaranteed);
      },
      [owner](Session& self, Result<std::unique_ptr<SessionMemory>> memory) {
        // If the process has ended, its pid may have been reused, and `owner` may describe another
        // process.
        pollfd look{.fd = self.pidfd_.native_handle(), .events = POLLIN, .revents = 0};
        if (!self.has_ended_ && ::poll(&look, 1, 0) == 0) self.work_owner_ = *owner;
        self.OnMemoryMade(std::move(memory));
      });
}

void Session::SetCanPark() {
  // Memory within a client's guarantee is swapped only if the client is parked.
  can_park_ = memory_swaps() && !attach_.hello.gated &&
              (quota_bytes() > attach_.guaranteed_bytes ||
               (environment_.idle_after.count() > 0 && !caller().is_urgent));
}

device::SpaceOptions Session::GetSpaceOptions() const {
  return {.quota_bytes = quota_bytes(),
          .store = can_park_ ? environment_.store : nullptr,
          .left_free_bytes = LeftFree(),
          .isolation = static_cast<device::Isolation>(attach_.isolation),
          .driver_may_compile = environment_.driver_compiles_for_all || attach_.is_trusted};
}

std::uint64_t Session::quota_bytes() const {
  // The driver manages the memory of a gated client and does not swap it.
  const bool can_swap = memory_swaps() && !attach_.hello.gated;
  return can_swap ? attach_.quota_bytes : attach_.guaranteed_bytes;
}

std::uint64_t Session::LeftFree() const {
  if (MayUseReserve()) return 0;
  const auto bytes = static_cast<double>(environment_.device.info().memory_bytes);
  return static_cast<std::uint64_t>(bytes * environment_.limits.memory_kept);
}

Result<std::unique_ptr<SessionMemory>> Session::MakeMemory(device::Device& device,
                                                           const device::SpaceOptions& options,
                                                           std::shared_ptr<device::SwapStore> store,
                                                           std::uint64_t guaranteed_bytes) {
  using Access = ipc::SharedSegment::Access;
  auto memory = std::make_unique<SessionMemory>();
  auto commands = ipc::SharedSegment::Create({.name = "gpushared commands",
                                              .bytes = ipc::kCommandSegmentBytes,
                                              .access = Access::kReadOnly});
  if (!commands.ok()) return commands.status();
  memory->commands = *std::move(commands);
  auto completions = ipc::SharedSegment::Create({.name = "gpushared completions",
                                                 .bytes = ipc::kCompletionSegmentBytes,
                                                 .access = Access::kReadWrite,
                                                 .peers_read_only = true,
                                                 .can_move = true});
  if (!completions.ok()) return completions.status();
  memory->completions = *std::move(completions);
  auto page = ipc::SharedSegment::Create({.name = "gpushared worker page",
                                          .bytes = ipc::kWorkerPageBytes,
                                          .access = Access::kReadWrite,
                                          .peers_read_only = true,
                                          .can_move = true});
  if (!page.ok()) return page.status();
  memory->page = *std::move(page);
  auto doorbell = ipc::MakeDoorbell();
  if (!doorbell.ok()) return doorbell.status();
  memory->doorbell = *std::move(doorbell);
  if (store != nullptr) {
    memory->cover = std::make_unique<SwapReservation>(std::move(store), guaranteed_bytes);
  }
  auto space = device.CreateSpace(options);
  if (!space.ok()) return space.status();
  memory->space = *std::move(space);
  return memory;
}

void Session::OnMemoryMade(Result<std::unique_ptr<SessionMemory>> memory) {
  if (memory.ok()) memory_ = std::move(*memory);
  if (has_ended_) return CheckOver();
  if (!memory.ok()) {
    return End({memory.status().code(),
                fmt::format("connection rejected: {} [{}]", memory.status().message(), who_)});
  }
  Attach();
  Welcome();
}

std::unique_ptr<ClientState> Session::MakeClient(std::uint64_t rung_max) {
  return std::make_unique<ClientState>(ClientState::Setup{
      .session = id(),
      .who = who_,
      .spec = spec_,
      .caps = caps_,
      .commands = &memory_->commands.As<ipc::CommandSegment>(),
      .completions = &memory_->completions.As<ipc::CompletionSegment>(),
      .doorbell = memory_->doorbell.get(),
      .page = &memory_->page.As<ipc::WorkerPage>(),
      .rung_max = rung_max,
      .space = memory_->space.get(),
      .guaranteed_bytes = attach_.guaranteed_bytes,
      .left_free_bytes = LeftFree(),
      .idle_after = can_park_ ? environment_.idle_after : std::chrono::nanoseconds(),
      .limits = environment_.limits,
      .graphs = environment_.graphs,
      .printed = printed_,
      .endpoint = attach_.endpoint_name,
      .owner = work_owner_.ToRow(),
      .name = attach_.hello.name,
      .pid = attach_.peer.pid,
      .is_gated = attach_.hello.gated});
}

void Session::Attach() {
  if (attach_.hello.takes_printed) {
    printed_ = std::make_shared<PrintedText>();
    environment_.kernel_output.Keep(id(), printed_);
  }
  auto client = MakeClient(0);
  // The handshake reports to the client whether its memory may be swapped.
  if (memory_swaps()) client->output.ShowMemory(attach_.guaranteed_bytes, 0, 0);
  attached_ = client.get();
  environment_.device_thread.Post(AttachClient{std::move(client)});
}

void Session::Welcome() {
  std::vector<ipc::UniqueFd> fds;
  for (Result<ipc::UniqueFd>& fd :
       std::array{ipc::DuplicateFd(memory_->commands.fd()), memory_->completions.OpenReadOnly(),
                  memory_->page.OpenReadOnly(), ipc::DuplicateFd(memory_->doorbell.get())}) {
    if (!fd.ok()) return End(fd.status());
    fds.push_back(*std::move(fd));
  }
  request_ = attach_.request;
  is_welcomed_ = true;
  const device::MemoryPiece area = memory_->space->mapping_area();
  const std::chrono::nanoseconds spin = environment_.spin.OfClient(spec_.scheduling_class);
  environment_.on_started(id());
  Reply(ipc::Welcome{.generation = environment_.generation,
                     .session = id(),
                     .spin_ns = static_cast<std::uint64_t>(spin.count()),
                     .quota_bytes = quota_bytes(),
                     .space_base = memory_->space->base(),
                     .space_bytes = memory_->space->range_bytes(),
                     .staging_bytes_total_max =
                         std::min(environment_.limits.staging_bytes_total_max,
                                  environment_.staging.session_max(MayUseReserve())),
                     .mapping_base = area.base,
                     .mapping_bytes = area.bytes,
                     .device = DescribeDevice(environment_.device.info())},
        std::move(fds));
}

// ---- socket

void Session::WatchDeath() {
  WatchForDeath(pidfd_, Descriptor::wait_read);
  // Reading is suspended while a request is open, but a hang-up must be noticed even then.
  WatchForDeath(socket_, Descriptor::wait_error);
}

// Asio may wake a new descriptor with events of one that was closed in the same loop iteration, so
// a wake-up alone does not prove that the client died.
void Session::WatchForDeath(Descriptor& watched, Descriptor::wait_type wait) {
  watched.async_wait(
      wait, [weak = weak_from_this(), &watched, wait](const boost::system::error_code& error) {
        const auto self = weak.lock();
        if (self == nullptr || error || self->has_ended_) return;
        // wait_error also reports urgent bytes. The session ends for them as well, because
        // wait_error would report them forever.
        const short events = wait == Descriptor::wait_read ? POLLIN : POLLPRI;
        pollfd look{.fd = watched.native_handle(), .events = events, .revents = 0};
        if (::poll(&look, 1, 0) > 0) return self->End(Status::Ok());
        self->WatchForDeath(watched, wait);
      });
}

void Session::ReadOn() {
  // A client that is about to be moved can still load the image that it has written.
  const bool is_held = outgoing_ != nullptr && !image_.valid();
  if (has_ended_ || is_reading_ || is_busy() || is_held) return;
  is_reading_ = true;
  socket_.async_wait(Descriptor::wait_read,
                     [weak = weak_from_this()](const boost::system::error_code& error) {
                       const auto self = weak.lock();
                       if (self == nullptr) return;
                       self->is_reading_ = false;
                       if (!error) self->OnReadable();
                     });
}

void Session::OnReadable() {
  // At most one frame is read per call: other sessions' sockets must be served in between, and the
  // request in the frame suspends reading.
  if (has_ended_ || is_busy() || (outgoing_ != nullptr && !image_.valid())) return;
  ipc::Frame frame;
  const Result<ipc::FrameReader::Progress> progress = reader_.Read(socket_.native_handle(), frame);
  if (!progress.ok()) {
    if (progress.status().code() == StatusCode::kDisconnected) return End(Status::Ok());
    return EndFor(progress.status());
  }
  if (*progress == ipc::FrameReader::Progress::kClosed) return End(Status::Ok());
  if (*progress == ipc::FrameReader::Progress::kFrame) Handle(std::move(frame));
  ReadOn();
}

SlowCalls::Caller Session::GetCaller(bool is_short) {
  SlowCalls::Caller whose = caller();
  if (is_short && new_client_calls_ < environment_.slow_calls.rules().new_client_calls) {
    ++new_client_calls_;
    whose.is_new_client = true;
  }
  return whose;
}

void Session::FlushOutbox() {
  if (has_ended_ || is_flushing_) return;
  const Result<bool> done = outbox_.Flush(socket_.native_handle());
  if (!done.ok()) return End(Status::Ok());  // The client no longer reads.
  if (*done) return ReadOn();
  is_flushing_ = true;
  socket_.async_wait(Descriptor::wait_write,
                     [weak = weak_from_this()](const boost::system::error_code& error) {
                       const auto self = weak.lock();
                       if (self == nullptr) return;
                       self->is_flushing_ = false;
                       if (!error) self->FlushOutbox();
                     });
}

// ---- end of the session

void Session::EndFor(const Status& violation) {
  End({violation.code(), fmt::format("session ended: {} [{}]", violation.message(), who_)});
}

void Session::End(Status why) {
  if (has_ended_.exchange(true)) return;
  why_ended_ = std::move(why);
  const LogRate::Cause cause{.uid = attach_.peer.uid, .pid = attach_.peer.pid};
  if (why_ended_.ok()) {
    environment_.log.Write(spdlog::level::info, cause,
                           fmt::format("session ended: the client left [{}]", who_));
  } else {
    environment_.log.Write(spdlog::level::warn, cause, why_ended_.message());
    // Sent only if the socket accepts it immediately. A client that does not read learns of the end
    // from EOF and may ask the broker for the reason.
    const Status queued = is_welcomed_
                              ? outbox_.Add(0, ipc::Ended{.status = why_ended_})
                              : outbox_.Add(attach_.request, ipc::Rejected{.status = why_ended_});
    if (queued.ok()) (void)outbox_.Flush(socket_.native_handle());
  }
  // The client receives EOF now, but the socket is closed later, together with the memory, because
  // a client can make a close take arbitrarily long. Until then the session counts against the
  // client's limits.
  closing_ = ipc::UniqueFd(socket_.release());
  ::shutdown(closing_.get(), SHUT_RDWR);
  boost::system::error_code ignored;
  pidfd_.close(ignored);
  on_applied_ = nullptr;
  on_memory_ = nullptr;
  AbandonMove({StatusCode::kDisconnected, fmt::format("the client has left [{}]", who_)});
  if (attached_ != nullptr) environment_.device_thread.Post(DetachClient{id()});
  environment_.reader.Cancel(id());
  CheckOver();
}

void Session::OnDetached(std::unique_ptr<ClientState> client) {
  attached_ = nullptr;
  const std::unique_ptr<SavedClient> saved = std::move(client->saved);
  client.reset();
  if (has_ended_ || saved == nullptr) return CheckOver();
  OnReleased(*saved);
}

std::optional<std::string> Session::ShownRunning() const {
  if (attached_ == nullptr) return std::nullopt;
  const RunningWork::Work work = attached_->running.Get();
  std::string what = "work";
  if (work.kind == RunningWork::Kind::kNothing) return std::nullopt;
  if (work.kind == RunningWork::Kind::kGraph) what = fmt::format("graph {}", work.number);
  if (work.kind == RunningWork::Kind::kKernel) {
    // The module may be missing, because the kernel may have ended since and its module may have
    // been unloaded.
    const auto module = memory_->modules.find(work.module);
    const bool is_known =
        module != memory_->modules.end() && work.number < module->second.module->kernels().size();
    what = !is_known
               ? "a kernel"
               : fmt::format("kernel '{}'",
                             device::ShownName(module->second.module->kernels()[work.number].name));
  }
  return fmt::format("{} [{}]", what, who_);
}

void Session::CheckOver() {
  if (!has_ended_ || attached_ != nullptr || slow_calls_ > 0) return;
  if (has_moved_ && !is_welcomed_) return;  // It was never one of the worker's sessions.
  // Posted, because on_over destroys the session, and the caller may be one of its functions.
  boost::asio::post(environment_.context,
                    [&environment = environment_, id = id()] { environment.on_over(id); });
}

void Session::Change(const scheduler::ClientSpec& spec, const ClientCaps& caps) {
  spec_ = spec;
  caps_ = caps;
  environment_.slow_calls.SetUrgent(id(), caller().is_urgent);
  environment_.reader.SetRank(id(), static_cast<std::uint8_t>(spec_.scheduling_class));
  if (attached_ != nullptr && !has_ended_)
    environment_.device_thread.Post(ChangeClient{id(), spec_, caps_});
}

ipc::RegistrySession Session::Row() const {
  return {.session = id(),
          .peer = attach_.peer,
          .name = attach_.hello.name,
          .client_class = spec_.scheduling_class,
          .weight = spec_.weight,
          .endpoint = attach_.endpoint,
          .endpoint_name = attach_.endpoint_name,
          .quota_bytes = attach_.quota_bytes,
          .guaranteed_bytes = attach_.guaranteed_bytes,
          .isolation = attach_.isolation,
          .has_started = is_welcomed_,
          .age_ns = static_cast<std::uint64_t>(
              std::chrono::nanoseconds(std::chrono::steady_clock::now() - since_).count())};
}

SessionFacts Session::Facts() const {
  SessionFacts facts;
  facts.session = id();
  facts.name = attach_.hello.name;
  facts.owner = work_owner_;
  facts.pid = attach_.peer.pid;
  facts.spec = spec_;
  facts.caps = caps_;
  facts.quota_bytes = quota_bytes();
  facts.is_gated = attach_.hello.gated;
  facts.guaranteed_bytes = attach_.guaranteed_bytes;
  facts.modules = memory_ == nullptr ? 0 : static_cast<std::uint32_t>(memory_->modules.size());
  facts.staging_buffers =
      memory_ == nullptr ? 0 : static_cast<std::uint32_t>(memory_->staging_buffers.size());
  facts.staging_bytes = staging_bytes_;
  facts.chunk_bytes = memory_ == nullptr ? 0 : memory_->chunks.bytes();
  facts.age_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - since_).count();
  facts.state = has_ended_ ? "ending" : is_welcomed_ ? "running" : "starting";
  return facts;
}

}  // namespace gpushared::server

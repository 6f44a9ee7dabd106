// SPDX-License-Identifier: Apache-2.0
// gpushared: the broker or, with the hidden option --worker, the worker of one device. Composition
// root: constructs all parts of the program.

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "ipc/socket_path.h"
#include "server/broker/broker.h"
#include "server/config/config.h"
#include "server/config/read_config.h"
#include "server/device/device_catalog.h"
#include "server/device/inventory/gpu_monitor.h"
#include "server/device/inventory/inventory.h"
#include "server/device/inventory/read_inventory.h"
#include "server/modules/code_compiler.h"
#include "server/modules/loader/child.h"
#include "server/modules/loader/module_loader.h"
#include "server/platform/service_manager.h"
#include "server/platform/successor.h"
#include "server/platform/thread_priority.h"
#include "server/worker/control/cost_file.h"
#include "server/worker/control/worker.h"

namespace gpushared::server {
namespace {

// Hidden option with which a worker starts the process that reads modules (server/modules/loader).
constexpr const char* kLoaderOption = "--loader";

// Adds the prefix from which the journal reads a line's priority (syslog numbers).
class JournalPriority : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& text) override {
    const std::string_view prefix = message.level >= spdlog::level::critical ? "<2>"
                                    : message.level == spdlog::level::err    ? "<3>"
                                    : message.level == spdlog::level::warn   ? "<4>"
                                    : message.level == spdlog::level::info   ? "<6>"
                                                                             : "<7>";
    text.append(prefix.data(), prefix.data() + prefix.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<JournalPriority>();
  }
};

std::shared_ptr<spdlog::logger> MakeLog(const Config& config) {
  std::string who = "gpushared";
  if (config.worker) {
    who += "[" + config.worker->device + "#" + std::to_string(config.worker->generation) + "]";
  }
  auto log =
      std::make_shared<spdlog::logger>(who, std::make_shared<spdlog::sinks::stderr_sink_mt>());
  if (StderrIsJournal()) {
    // The pattern contains no time, because the journal adds one.
    auto formatter = std::make_unique<spdlog::pattern_formatter>();
    formatter->add_flag<JournalPriority>('*').set_pattern("%*%n: %v");
    log->set_formatter(std::move(formatter));
  } else {
    log->set_pattern("%Y-%m-%d %H:%M:%S.%e %l %n: %v");
  }
  log->set_level(spdlog::level::from_str(std::string(LogLevelName(config.log_level))));
  log->flush_on(spdlog::level::trace);
  // Parts of the worker log to the default logger.
  spdlog::set_default_logger(log);
  return log;
}

// Raises the soft limit on descriptors, because every client costs the worker a handful of them.
// Shells set the soft limit to 1024 for programs that use select().
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

// Ensures that no file opened later gets descriptor 0, 1 or 2. Code that writes to stdout or stderr
// would corrupt such a file.
void OpenMissingStandardDescriptors() {
  while (true) {
    const int fd = ::open("/dev/null", O_RDWR);
    if (fd > STDERR_FILENO) ::close(fd);
    if (fd < 0 || fd > STDERR_FILENO) return;
  }
}

// Sets the CPU affinity, which the workers inherit.
Status UseOnlyProcessors(const std::vector<std::uint32_t>& processors) {
  if (processors.empty()) return Status::Ok();
  cpu_set_t allowed, asked;
  CPU_ZERO(&allowed);
  CPU_ZERO(&asked);
  for (const std::uint32_t each : processors) CPU_SET(each, &asked);
  // Checked explicitly, because the kernel silently ignores processors that are not allowed.
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) CPU_ZERO(&allowed);
  cpu_set_t both;
  CPU_AND(&both, &allowed, &asked);
  if (CPU_EQUAL(&both, &asked) && ::sched_setaffinity(0, sizeof asked, &asked) == 0) {
    return Status::Ok();
  }
  std::vector<std::uint32_t> usable;
  for (std::uint32_t each = 0; each < CPU_SETSIZE; ++each) {
    if (CPU_ISSET(each, &allowed)) usable.push_back(each);
  }
  return {StatusCode::kInvalidArgument, "option cpu-affinity rejected: asked for processors " +
                                            CpuListText(processors) + ", this process may use " +
                                            CpuListText(usable)};
}

int ServeDevice(const Config& config) {
  WorkerOptions options;
  const auto warn = [](const std::string& text) { spdlog::warn("{}", text); };
  const device::DeviceOptions device_options = {
      .executor_threads = config.cpu_threads,
      .memory_bytes = config.memory_bytes,
      .output = {},
      .prioritize =
          [](pid_t thread, bool ahead) {
            ahead ? (void)PreferThread(thread) : MakeThreadNormal(thread);
          },
      .cuda_completion = config.cuda_completion,
      .sm_limits = config.sm_limits,
      .make_compiler = GetCompiler(config, warn),
      .warn = warn,
      .note = [](const std::string& text) { spdlog::info("{}", text); }};
  options.make_device = [id = config.worker->device, device_options](
                            device::WakeFunction wake, device::OutputFunction output,
                            std::function<void()> await_quiet) {
    device::DeviceOptions with_functions = device_options;
    with_functions.output = std::move(output);
    with_functions.await_quiet = std::move(await_quiet);
    return device::CreateDevice(id, with_functions, std::move(wake));
  };
  // The broker sets this variable to the UUID of the worker's GPU or MIG instance.
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::string uuid = visible == nullptr ? "" : visible;
  if (config.worker->device.starts_with("cuda:") && uuid.starts_with("GPU-")) {
    options.read_gpu = [monitor = std::make_shared<device::GpuMonitor>(uuid)] {
      return monitor->Read();
    };
  }
  options.settings = config;
  options.limits.staging_bytes = config.staging_bytes;
  options.limits.memory_kept = config.defaults.memory_reserve;
  options.prefers_threads = true;
  if (!config.cost_directory.empty()) {
    options.cost_file = config.cost_directory + "/" + CostFileName(config.worker->device);
  }
  options.driver_compiles_for_all = config.ptx_compiler == Config::kDriver;
  options.generation = config.worker->generation;
  options.registry_directory = config.worker->registry_directory;
  options.totals_file = config.worker->totals_file;
  options.made_by = config.worker->made_by;
  options.make_reader = [&config]() -> Result<std::unique_ptr<loader::ModuleReader>> {
    Result<std::unique_ptr<loader::ModuleLoader>> made = loader::ModuleLoader::Create(
        {.command = {"/proc/self/exe", kLoaderOption},
         .costly = loader::LongestJob(config.load_limit),
         .warn = [](const std::string& what) { spdlog::warn("{}", what); }});
    if (!made.ok()) return made.status();
    return std::unique_ptr<loader::ModuleReader>(*std::move(made));
  };
  return RunWorker(std::move(options), ipc::UniqueFd(config.worker->channel_fd));
}

// Returns a function that reads the configuration file of a running server again. It is called on a
// thread that may outlive the broker.
BackgroundReader<NewRules>::Read GetReader(const Config& running,
                                           std::span<const char* const> arguments) {
  return [running, arguments]() -> Result<NewRules> {
    const Result<Config> read = ReadAgain(arguments, Machine::Local());
    if (!read.ok()) return read.status();
    return NewRules{*read, NeedRestart(running, *read)};
  };
}

// Returns a number that identifies the options and version with which a worker is started: an
// FNV-1a hash of both.
std::uint64_t MadeBy(const Config& config, const device::SelectedDevice& device) {
  std::vector<std::string> texts = WorkerArguments(config, {.device = device.id, .generation = 0});
  texts.emplace_back(GPUSHARED_VERSION);
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const std::string& text : texts) {
    // Includes the terminator, which separates the texts.
    for (const char each : std::string_view(text.c_str(), text.size() + 1)) {
      hash = (hash ^ static_cast<unsigned char>(each)) * 0x100000001b3;
    }
  }
  return hash;
}

BrokerOptions MakeBrokerOptions(const Config& config, std::string socket_path,
                                device::Selection selection) {
  BrokerOptions options;
  options.socket_path = std::move(socket_path);
  options.rules = config;
  options.access_defaults = config.defaults;
  options.has_overcommit = config.overcommit_bytes > 0;
  options.own_uid = ::geteuid();
  options.policy = config.policy;
  options.version = GPUSHARED_VERSION;
  Config shared = config;
  // Only the broker uses the default isolation, so a change does not require new workers.
  shared.defaults.isolation.reset();
  if (!config.memory_given) {
    // The memory is divided among the cpu devices only, because GPUs have their own memory.
    const auto cpus = std::ranges::count_if(
        selection.devices, [](const auto& device) { return device.visible_devices.empty(); });
    const auto sharers = static_cast<std::uint64_t>(std::max<std::ptrdiff_t>(1, cpus));
    shared.memory_bytes = std::max(kMemoryLeast, config.memory_bytes / sharers);
  }
  if (!config.staging_given) {
    shared.staging_bytes = std::max(kStagingLeast, config.staging_bytes / selection.devices.size());
  }
  shared.memory_given = shared.staging_given = true;
  options.launch = [shared](const device::SelectedDevice& device, std::uint32_t generation) {
    const WorkerRole role = {
        .channel_fd = kWorkerChannelFd, .device = device.id, .generation = generation};
    WorkerProcess::Launch launch{.program = "/proc/self/exe",
                                 .arguments = WorkerArguments(shared, role),
                                 .made_by = MadeBy(shared, device)};
    // A worker can use only its own GPU or instance, which has number 0 in the worker.
    if (!device.visible_devices.empty()) {
      launch.environment = {"CUDA_VISIBLE_DEVICES=" + device.visible_devices};
    }
    return launch;
  };
  if (std::ranges::any_of(selection.devices,
                          [](const auto& device) { return !device.uuid.empty(); })) {
    options.read_inventory = [] { return device::ReadInventory(); };
    options.takes_new_devices = config.device == "auto";
  }
  options.devices = std::move(selection.devices);
  options.unused_devices = std::move(selection.unused);
  return options;
}

// Configures hot upgrades, unless the program's path is unknown.
void OfferUpgrades(BrokerOptions& options, std::span<const char* const> arguments,
                   const ServiceManager& manager) {
  const std::string program = ProgramPath();
  options.upgrades = manager.executions();
  if (program.empty()) return;
  const std::vector<std::string> own(arguments.begin() + 1, arguments.end());
  options.check_successor = [program, own] { return CheckSuccessor(program, own); };
  options.execute_successor = [program, own,
                               &manager](const std::vector<ipc::BorrowedSocket>& sockets) {
    std::vector<std::string> all = {"gpushared"};
    all.insert(all.end(), own.begin(), own.end());
    return manager.Execute(program, all, sockets);
  };
}

// Periodically reports to the service manager that this thread is not stuck.
void FeedWatchdog(boost::asio::steady_timer& timer, const ServiceManager& manager) {
  if (!manager.watchdog_interval()) return;
  manager.Notify("WATCHDOG=1");
  timer.expires_after(*manager.watchdog_interval());
  timer.async_wait([&](const boost::system::error_code& error) {
    if (!error) FeedWatchdog(timer, manager);
  });
}

int Serve(const Config& config, std::span<const char* const> arguments,
          const std::shared_ptr<spdlog::logger>& log) {
  ServiceManager manager([&](const std::string& what) { log->warn("{}", what); });
  for (const std::string& line : Describe(config)) log->debug("{}", line);
  Result<device::Selection> selection =
      device::SelectDevices(config.device, device::ReadInventory());
  if (!selection.ok()) {
    std::fprintf(stderr, "gpushared: option device rejected: %s\n",
                 selection.status().message().c_str());
    return 2;
  }
  Result<std::string> socket_path = ipc::ServerSocketPath(config.socket);
  if (!socket_path.ok()) {
    log->critical("{}", socket_path.status().message());
    return 2;
  }
  if (!selection->why_cpu.empty()) log->warn("device auto is cpu:0: {}", selection->why_cpu);
  for (const device::UnusedDevice& unused : selection->unused) {
    log->info("device {} ({}) is not used: {}", unused.id, unused.name, unused.why);
  }
  boost::asio::io_context context(1);
  BrokerOptions options = MakeBrokerOptions(config, std::move(*socket_path), std::move(*selection));
  if (!config.config_file.empty()) options.read_rules = GetReader(config, arguments);
  options.report_status = [&](const std::string& line) { manager.Notify("STATUS=" + line); };
  options.prefers_thread = true;
  OfferUpgrades(options, arguments, manager);
  Broker broker(context, std::move(options), log);
  boost::asio::signal_set signals(context, SIGTERM, SIGINT, SIGHUP);
  std::function<void(const boost::system::error_code&, int)> on_signal =
      [&](const boost::system::error_code& error, int signal) {
        if (error) return;
        if (signal == SIGHUP) {
          // The broker logs the result.
          broker.Reload([](const Result<std::vector<std::string>>&) {});
        } else {
          broker.Stop(signal == SIGINT ? "SIGINT" : "SIGTERM");
        }
        signals.async_wait(on_signal);
      };
  signals.async_wait(on_signal);
  ServiceManager::UnblockSignals();
  if (const Status status = broker.Start(manager.TakeSockets()); !status.ok()) {
    log->critical("{}", status.message());
    return 1;
  }
  manager.Notify("READY=1\nSTATUS=serving");
  boost::asio::steady_timer watchdog(context);
  FeedWatchdog(watchdog, manager);
  context.run();
  return broker.exit_code();
}

// Adds the checks of a configuration that depend on this machine.
void CheckHere(const Config& config, ConfigReport& report) {
  const auto place = [&](std::string_view option) {
    const auto found = report.places.find(option);
    return found == report.places.end() ? std::string() : found->second;
  };
  const Result<device::Selection> selection =
      device::SelectDevices(config.device, device::ReadInventory());
  if (!selection.ok()) {
    report.errors.push_back(place("device") +
                            "option device rejected: " + selection.status().message());
  }
  const std::size_t slash = config.socket.rfind('/');
  const std::string directory =
      slash == std::string::npos || slash == 0 ? "" : config.socket.substr(0, slash);
  if (!directory.empty() && ::access(directory.c_str(), W_OK | X_OK) != 0) {
    report.warnings.push_back(place("socket") + "option socket: directory '" + directory +
                              "' cannot be written to: " + ::strerror(errno));
  }
}

// Prints errors and warnings to stderr, or to stdout a message that the configuration is valid.
int ReportCheck(const Config& config) {
  ConfigReport report = *config.check;
  CheckHere(config, report);
  for (const std::string& error : report.errors) {
    std::fprintf(stderr, "gpushared: error: %s\n", error.c_str());
  }
  for (const std::string& warning : report.warnings) {
    std::fprintf(stderr, "gpushared: warning: %s\n", warning.c_str());
  }
  const auto counted = [](std::size_t count, const char* what) {
    return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
  };
  if (!report.errors.empty()) {
    std::fprintf(stderr, "gpushared: config file %s is rejected: %s, %s; see gpushared.toml(5)\n",
                 Escaped(config.config_file).c_str(),
                 counted(report.errors.size(), "error").c_str(),
                 counted(report.warnings.size(), "warning").c_str());
    return 2;
  }
  std::printf("config file %s is valid: %s, %s, %s\n", Escaped(config.config_file).c_str(),
              counted(config.access.size(), "access rule").c_str(),
              counted(config.endpoints.size(), "endpoint").c_str(),
              counted(report.warnings.size(), "warning").c_str());
  return 0;
}

int ReportWhetherItCouldContinue(std::span<const char* const> arguments) {
  std::vector<const char*> rest(arguments.begin(), arguments.end());
  rest.erase(rest.begin() + 1);
  const auto parsed = ParseCommandLine(rest, Machine::Local(), GPUSHARED_VERSION);
  if (const auto* stop = std::get_if<ExitNow>(&parsed)) {
    std::fputs(stop->text.c_str(), stderr);
    return 2;
  }
  std::fputs(SuccessorAnswer(GPUSHARED_VERSION).c_str(), stdout);
  return 0;
}

int Main(std::span<const char* const> arguments) {
  if (arguments.size() == 2 && std::string_view(arguments[1]) == kLoaderOption) {
    return loader::RunLoader();
  }
  if (arguments.size() >= 2 && std::string_view(arguments[1]) == kCheckOption) {
    return ReportWhetherItCouldContinue(arguments);
  }
  OpenMissingStandardDescriptors();
  ::signal(SIGPIPE, SIG_IGN);
  const auto parsed = ParseCommandLine(arguments, Machine::Local(), GPUSHARED_VERSION);
  if (const auto* stop = std::get_if<ExitNow>(&parsed)) {
    std::fputs(stop->text.c_str(), stop->code == 0 ? stdout : stderr);
    return stop->code;
  }
  const Config& config = std::get<Config>(parsed);
  if (config.check) return ReportCheck(config);
  if (const Status status = UseOnlyProcessors(config.cpu_affinity); !status.ok()) {
    std::fprintf(stderr, "gpushared: %s\n", status.message().c_str());
    return 2;
  }
  const auto log = MakeLog(config);
  RaiseDescriptorLimit();
  return config.worker ? ServeDevice(config) : Serve(config, arguments, log);
}

}  // namespace
}  // namespace gpushared::server

int main(int argc, char** argv) {
  const std::span<char* const> arguments(argv, static_cast<std::size_t>(argc));
  // Boost and the standard library may throw; exceptions that nothing below can handle are caught
  // here.
  try {
    return gpushared::server::Main({argv, arguments.size()});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpushared: %s\n", error.what());
    return 1;
  }
}

// SPDX-License-Identifier: Apache-2.0
#include "server/tools/run/run.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "gpushared/client.h"
#include "gpushared/result.h"

#include "common/command_line/command_line.h"
#include "common/command_line/nearest.h"
#include "ipc/gpu_uuid.h"
#include "ipc/share.h"
#include "ipc/socket_path.h"
#include "ipc/unix_socket.h"
#include "server/tools/run/drop_in_directory.h"
#include "server/tools/run/environment.h"
#include "server/tools/run/program_file.h"

namespace gpushared::server {
namespace {

enum ExitCode : int {
  kDone = 0,
  kFailed = 1,
  kUsage = 2,
  kNoServer = 3,
  kCannotRun = 126,
  kNoProgram = 127
};

struct RunOptions {
  RunRequest request;
  std::string endpoint;
  bool asks_for_ptx = false;
  bool explains = false;
};

std::string Variable(const char* name) {
  const char* const value = ::getenv(name);
  return value == nullptr ? "" : value;
}

std::optional<SchedulingClass> GetClass(std::string_view name) {
  if (name == "high") return SchedulingClass::kHigh;
  if (name == "normal") return SchedulingClass::kNormal;
  if (name == "low") return SchedulingClass::kLow;
  return std::nullopt;
}

bool Exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

void Declare(const command_line::Command& app, RunOptions& options) {
  RunRequest& request = options.request;
  app.AddOption("--class", request.scheduling_class, "class: high, normal or low")
      .OneOf({"high", "normal", "low"});
  app.AddOption("--weight", request.weight, "weight within the class").Range(1U, 1000U);
  app.AddOption("--max-share", request.max_share, "maximum device time, \"25%\"")
      .Check([](const std::string& text) {
        const Result<std::uint32_t> share = ipc::ParseShare(text);
        return share.ok() ? std::string() : std::string(share.status().message());
      });
  app.AddOption("--latency-target", request.target, "latency target of requests")
      .Check([](const std::string& text) {
        char* end = nullptr;
        const double milliseconds = std::strtod(text.c_str(), &end);
        const bool is_number = !text.empty() && *end == '\0';
        return is_number && milliseconds > 0 ? std::string()
                                             : "'" + text + "' is no number above 0";
      })
      .TypeName("MILLISECONDS");
  app.AddOption("--name", request.name,
                "name in gpusharedctl and logs (default: the program's name)");
  app.AddOption(
      "--device", request.device,
      "device, such as cuda:0 (default: the least loaded one; in mode gate all GPUs that CUDA "
      "shows the program)");
  app.AddOption("--socket", request.socket,
                "path of the server's socket (default: the standard locations)")
      .TypeName("PATH");
  app.AddOption("--endpoint", options.endpoint,
                "endpoint to connect to: NAME/gpushared.sock next to the server's socket")
      .Check([](const std::string& name) {
        const bool is_one_directory =
            !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos;
        return is_one_directory ? std::string()
                                : "'" + name + "' is no endpoint's name; --socket takes a path";
      })
      .TypeName("NAME");
  app.AddOption("--drop-in", request.drop_in, "directory of the drop-in libcuda.so.1")
      .TypeName("DIRECTORY");
  app.AddOption("--fallback", request.fallback,
                "what happens if no server is running: native: the installed driver serves the "
                "program (default in mode gate); none: the program fails (default in mode submit)")
      .OneOf({"native", "none"});
  app.AddOption(
         "--mode", request.mode,
         "mode gate: the installed driver executes the program's work in turns granted by the "
         "server (default if this machine has an NVIDIA GPU); submit: the server executes it")
      .OneOf({"submit", "gate"});
  app.AddFlag("--interruptible", request.is_interruptible,
              "end of the session, with its kernels, on Ctrl-C during a blocking call: for "
              "programs that handle Ctrl-C themselves, such as Python");
  app.AddFlag("--ptx", options.asks_for_ptx,
              "PTX instead of machine code from tools (automatic for a cpu device)");
  app.AddFlag("--explain", options.explains, "explanation on stderr of the settings made");
  app.SetFooter(
      "The program and its arguments follow --. Exit codes: those of the program; 1 rejected by "
      "the server; 2 usage error; 3 no server is running; 126 and 127 as in shells.");
}

// Returns an option that is set but that gate mode does not support; empty if there is none.
std::string SetForSubmitting(const RunOptions& options) {
  if (options.request.is_interruptible) return "--interruptible";
  return options.asks_for_ptx ? "--ptx" : "";
}

// Returns whether the program fails if no server is running.
bool NeedsServer(const RunRequest& request) {
  return request.fallback == "none" || (request.fallback.empty() && request.mode != "gate");
}

// Returns the default socket of an endpoint, next to the server's own socket.
std::string GetSiblingEndpoint(const std::string& socket, const std::string& name) {
  const std::filesystem::path place = std::filesystem::path(socket).parent_path();
  return place / name / ipc::kSocketFile;
}

// Lists the endpoints with sockets in their default locations, next to the server's socket.
std::vector<std::string> ListSiblingEndpoints(const std::string& socket) {
  std::vector<std::string> names;
  std::error_code error;
  const std::filesystem::path directory = std::filesystem::path(socket).parent_path();
  for (const auto& each : std::filesystem::directory_iterator(directory, error)) {
    if (Exists(each.path() / ipc::kSocketFile)) names.push_back(each.path().filename());
  }
  std::ranges::sort(names);
  return names;
}

// Explains that the server is running but the endpoint's socket does not exist; empty if there is
// another reason.
std::string WhyNoEndpoint(const std::string& socket, const std::string& name) {
  if (name.empty() || !Exists(socket) || Exists(GetSiblingEndpoint(socket, name))) return "";
  const std::vector<std::string> names = ListSiblingEndpoints(socket);
  const std::vector<std::string_view> known(names.begin(), names.end());
  std::string all;
  for (const std::string& each : names) all += (all.empty() ? "" : ", ") + each;
  return "there is no endpoint '" + name + "' next to " + socket +
         (all.empty() ? "; there is none at all" : "; there are " + all) +
         command_line::DidYouMean(name, known);
}

bool IsListening(const std::string& socket) {
  constexpr std::chrono::milliseconds kConnectTimeMax{500};
  const auto connected =
      ipc::ConnectUnix(socket, std::chrono::steady_clock::now() + kConnectTimeMax);
  return connected.ok() || connected.status().code() != StatusCode::kUnavailable;
}

// Waits for a server that was just started and does not listen yet. Does not wait if the server's
// own socket is listening, because then a missing endpoint will not appear.
void AwaitStart(const std::string& server, const std::string& socket) {
  constexpr std::chrono::seconds kStartTimeMax{3};
  constexpr std::chrono::milliseconds kTryAgain{50};
  if (IsListening(server) || (server != socket && IsListening(socket))) return;
  std::fprintf(stderr, "gpusharedctl run: no server answers at '%s' yet, waiting up to 3 s\n",
               socket.c_str());
  const auto deadline = std::chrono::steady_clock::now() + kStartTimeMax;
  while (!IsListening(socket) && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(kTryAgain);
  }
}

// Connects briefly with the program's options, so that every rejection is reported before the
// program starts. Sets the socket, the GPU, and `wants_ptx`, which is necessary on the cpu device,
// because machine code for GPUs runs on GPUs only.
Status AskServer(RunOptions& options) {
  RunRequest& request = options.request;
  const Result<std::string> path = ipc::ClientSocketPath(request.socket);
  if (!path.ok()) return path.status();
  request.socket = options.endpoint.empty() ? *path : GetSiblingEndpoint(*path, options.endpoint);
  // Does not wait if the program can run without a server.
  if (NeedsServer(request)) AwaitStart(*path, request.socket);
  ClientOptions asked;
  asked.name = request.name.empty() ? "gpusharedctl run" : request.name;
  asked.scheduling_class = GetClass(request.scheduling_class);
  if (request.weight != 0) asked.weight = request.weight;
  if (!request.max_share.empty()) asked.max_share = *ipc::ParseShare(request.max_share) / 10.0;
  asked.device = request.device;
  asked.socket = request.socket;
  if (const std::string why = WhyNoEndpoint(*path, options.endpoint); !why.empty()) {
    return {StatusCode::kUnavailable, why};
  }
  Result<Client> client = Client::Connect(asked);
  if (!client.ok()) return client.status();
  const DeviceProperties& device = client->device();
  if (!request.device.empty()) {
    request.gpu = device.id.starts_with("MIG-") ? device.id : ipc::GpuName(device.uuid);
  }
  request.wants_ptx = options.asks_for_ptx || (request.mode != "gate" && device.kind == "cpu");
  // The session is closed before the program starts, because an endpoint for a single client would
  // reject the program while this session exists. If the server does not answer now, the program
  // will report that itself.
  (void)client->CloseAndWait();
  return Status::Ok();
}

int Complain(int exit_code, const std::string& message) {
  std::fprintf(stderr, "gpusharedctl run: %s\n", message.c_str());
  return exit_code;
}

void Explain(const std::vector<Setting>& settings) {
  for (const Setting& setting : settings) {
    std::fprintf(stderr, "gpusharedctl run: %s=%s  (%s)\n", setting.variable.c_str(),
                 setting.value.c_str(), setting.why.c_str());
  }
}

int Become(char* const* program) {
  const std::string found = FindProgram(program[0], Variable("PATH"));
  if (found.empty() && std::strchr(program[0], '/') != nullptr && Exists(program[0])) {
    ::execv(program[0], program);  // Fails, and sets errno to the reason.
    return Complain(kCannotRun, std::string(program[0]) + " cannot run: " + std::strerror(errno));
  }
  if (found.empty()) {
    return Complain(kNoProgram, std::string("there is no program '") + program[0] + "'");
  }
  if (const std::string why = WhyNotSeen(found); !why.empty()) {
    Complain(0, "warning: " + found + " will not use the shared device: " + why);
  }
  ::execv(found.c_str(), program);
  return Complain(kCannotRun, found + " cannot run: " + std::strerror(errno));
}

}  // namespace

bool IsRunCommand(std::span<char* const> arguments) {
  return arguments.size() > 1 && std::string_view(arguments[1]) == "run";
}

int RunCommand(std::span<char* const> arguments) {
  const auto mark = std::find_if(arguments.begin(), arguments.end(), [](const char* argument) {
    return std::string_view(argument) == "--";
  });
  const auto own = static_cast<std::size_t>(mark - arguments.begin());
  const command_line::Program app("Starts a program with a gpushared server as its CUDA driver.",
                                  "gpusharedctl run");
  RunOptions options;
  Declare(app, options);
  if (const auto stop = app.Parse(arguments.subspan(1, own - 1)); stop) {
    if (stop->Print() == 0) return kDone;
    if (mark != arguments.end()) return kUsage;
    return Complain(kUsage, "expected -- before the program: run [options] -- PROGRAM [arguments]");
  }
  const bool has_program = mark != arguments.end() && own + 1 < arguments.size();
  if (!has_program && !options.explains) {
    return Complain(kUsage, "no program given: run [options] -- PROGRAM [arguments]");
  }
  const std::string for_submitting = SetForSubmitting(options);
  if (options.request.mode.empty()) {
    options.request.mode = for_submitting.empty() ? ChooseMode(&Exists) : "submit";
  }
  if (options.request.mode == "gate" && !for_submitting.empty()) {
    return Complain(kUsage, for_submitting +
                                " has no effect in mode gate, in which the installed driver "
                                "executes the program's work; use it with --mode submit");
  }
  if (options.request.drop_in.empty()) options.request.drop_in = FindDropIn();
  if (!Exists(options.request.drop_in + "/libcuda.so.1")) {
    return Complain(
        kFailed,
        Exists("/proc/self/exe")
            ? "there is no drop-in libcuda.so.1 next to this program; use --drop-in DIRECTORY"
            : "the location of this program, and the drop-in libcuda.so.1 next to it, cannot be "
              "determined without /proc: mount it, or use --drop-in DIRECTORY");
  }
  if (const Status status = AskServer(options); !status.ok()) {
    const bool is_silent =
        status.code() == StatusCode::kUnavailable || status.code() == StatusCode::kTimedOut;
    const bool falls_back =
        status.code() == StatusCode::kUnavailable && !NeedsServer(options.request);
    if (!falls_back) return Complain(is_silent ? kNoServer : kFailed, status.message());
    Complain(kDone, status.message() + (options.request.mode == "gate"
                                            ? "; the program runs without one until one answers"
                                            : "; the installed driver serves the program"));
  }
  if (has_program) {
    options.request.needs_asan = NeedsAsan(FindProgram(arguments[own + 1], Variable("PATH")));
  }
  const std::vector<Setting> settings = Settings(options.request, &Variable, &Exists);
  if (options.explains) Explain(settings);
  for (const Setting& setting : settings) {
    ::setenv(setting.variable.c_str(), setting.value.c_str(), 1);
  }
  if (!has_program) return kDone;
  // The default is restored, because the program inherits ignored signals.
  ::signal(SIGPIPE, SIG_DFL);
  return Become(arguments.data() + own + 1);
}

}  // namespace gpushared::server

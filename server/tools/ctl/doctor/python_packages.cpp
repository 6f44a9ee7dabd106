// SPDX-License-Identifier: Apache-2.0
#include "server/tools/ctl/doctor/python_packages.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string_view>
#include <system_error>

#include "server/tools/ctl/doctor/libraries.h"

namespace gpushared::server::doctor {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kScriptBytesMax = 1u << 20;
constexpr std::size_t kPackagesMax = 4096;
constexpr std::size_t kFilesPerPackageMax = 200'000;
constexpr std::size_t kFactsMax = 10'000;  // Maximum number of metadata lines of a package.

std::string_view Trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

// Returns the first component of a dotted name.
std::string FirstName(std::string_view dotted) {
  return std::string(dotted.substr(0, dotted.find_first_of(". \t,;(#")));
}

std::string GetText(const std::string& script) {
  std::ifstream file(script);
  std::string text(kScriptBytesMax, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

// Calls `see` with each line of the script that begins with `from` or `import`, without blanks at
// either end.
template <typename See>
void ForEachImport(const std::string& script, const See& see) {
  const std::string text = GetText(script);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = Trimmed(std::string_view(text).substr(at, end - at));
    at = end + 1;
    if (line.starts_with("from ") || line.starts_with("import ")) see(line);
  }
}

// A package installed by pip, with the files in its record.
struct Package {
  std::string name;
  std::set<std::string> top_names;
  std::vector<std::string> libraries;  // Paths relative to the directory of packages.
};

Package ReadPackage(const fs::path& list, const std::string& name) {
  Package package{.name = name, .top_names = {}, .libraries = {}};
  std::ifstream file(list);
  std::string line;
  for (std::size_t i = 0; i < kFilesPerPackageMax && std::getline(file, line); ++i) {
    const std::string path = line.substr(0, line.find(','));
    // Skips files in other places, such as scripts, because these belong to no module.
    if (path.empty() || path.starts_with('/') || path.find("..") != std::string::npos) continue;
    const std::string first = path.substr(0, path.find('/'));
    if (!first.ends_with(".dist-info")) package.top_names.insert(first.substr(0, first.find('.')));
    if (path.find(".so") != std::string::npos) package.libraries.push_back(path);
  }
  return package;
}

// Returns whether the check omits a package. It omits NVIDIA's own libraries, which share the
// directory `nvidia`, because only the packages that use them matter. It also omits cuda_bindings,
// which loads the runtime without calling it.
bool IsPassedOver(const Package& package) {
  return package.top_names == std::set<std::string>{"nvidia"} || package.name == "cuda_bindings";
}

Finding RuntimeIn(const std::string& package, const std::string& how, bool is_imported) {
  const std::string what = package + " " + how + "; only NVIDIA's driver can serve that";
  if (!is_imported)
    return Note("package", what, "programs that use it will not run with the drop-in");
  return Problem("package", what, "use another package, or run the program without gpushared");
}

// Returns the packages in a directory by name, each with the directory of its metadata.
std::map<std::string, fs::path> InstalledIn(const std::string& directory) {
  std::map<std::string, fs::path> installed;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    const std::string file_name = entry.path().filename().string();
    if (!file_name.ends_with(".dist-info") || installed.size() >= kPackagesMax) continue;
    installed[file_name.substr(0, file_name.find('-'))] = entry.path();
  }
  return installed;
}

// An installed library of NVIDIA's that depends on the CUDA runtime.
struct LibraryBelow {
  std::string package;  // Empty if there is none.
  // Whether the dependent package needs the library only for a part of its functions.
  bool is_part = false;
};

// Finds a library of NVIDIA's among the requirements in this METADATA. Prefers one that the package
// needs for all of its functions.
LibraryBelow FindLibraryBelow(const fs::path& metadata,
                              const std::map<std::string, fs::path>& installed) {
  constexpr std::string_view kRequires = "Requires-Dist: ";
  constexpr std::string_view kForAll[] = {"nvidia-cublas", "nvidia-cudnn"};
  constexpr std::string_view kForParts[] = {"nvidia-cufft", "nvidia-cusparse", "nvidia-cusolver",
                                            "nvidia-curand"};
  LibraryBelow found;
  std::ifstream file(metadata);
  std::string line;
  for (std::size_t i = 0; i < kFactsMax && std::getline(file, line) && !line.empty(); ++i) {
    if (!line.starts_with(kRequires)) continue;
    std::string name = line.substr(kRequires.size());
    name.resize(std::min(name.find_first_of(" <>=!~;[("), name.size()));
    const auto is_one = [&](std::string_view begin) { return name.starts_with(begin); };
    const bool is_for_all = std::ranges::any_of(kForAll, is_one);
    // A package that lists the library only as an extra works without it.
    const bool is_part = !is_for_all && std::ranges::any_of(kForParts, is_one) &&
                         line.find("extra ==") == std::string::npos;
    std::ranges::replace(name, '-', '_');
    if ((!is_for_all && !is_part) || !installed.contains(name)) continue;
    if (is_for_all) return {.package = name, .is_part = false};
    if (found.package.empty()) found = {.package = name, .is_part = true};
  }
  return found;
}

}  // namespace

bool IsPython(const std::string& path) {
  return fs::path(path).filename().string().starts_with("python");
}

std::vector<std::string> PackageDirectories(const std::string& python) {
  std::vector<std::string> directories;
  const fs::path prefix = fs::path(python).parent_path().parent_path();
  std::error_code error;
  for (const char* lib : {"lib", "lib64", "local/lib"}) {
    for (const auto& entry : fs::directory_iterator(prefix / lib, error)) {
      if (!entry.path().filename().string().starts_with("python3")) continue;
      for (const char* kind : {"site-packages", "dist-packages"}) {
        // Canonical, because in a virtual environment lib64 is a link to lib.
        const std::string directory = fs::weakly_canonical(entry.path() / kind, error).string();
        const bool is_new = std::ranges::find(directories, directory) == directories.end();
        if (is_new && fs::is_directory(directory, error)) directories.push_back(directory);
      }
    }
  }
  return directories;
}

std::set<std::string> ImportedBy(const std::string& script) {
  std::set<std::string> names;
  ForEachImport(script, [&](std::string_view line) {
    if (line.starts_with("from ")) {
      names.insert(FirstName(Trimmed(line.substr(5))));
      return;
    }
    for (line.remove_prefix(7); !line.empty();) {
      names.insert(FirstName(Trimmed(line)));
      const std::size_t comma = line.find(',');
      line = comma == std::string_view::npos ? std::string_view() : line.substr(comma + 1);
    }
  });
  names.erase("");
  return names;
}

bool CallsRuntime(const std::string& script) {
  bool calls = false;
  ForEachImport(script, [&](std::string_view line) {
    const std::string_view what = Trimmed(line.substr(line.find(' ')));
    const bool is_bindings = FirstName(what) == "cuda";
    calls = calls || (is_bindings && (what.find("runtime") != std::string_view::npos ||
                                      what.find("cudart") != std::string_view::npos));
  });
  return calls;
}

Findings CheckPackages(const std::string& directory, const std::set<std::string>& imported) {
  Findings findings;
  const std::map<std::string, fs::path> installed = InstalledIn(directory);
  for (const auto& [name, facts] : installed) {
    const Package package = ReadPackage(facts / "RECORD", name);
    if (IsPassedOver(package)) continue;
    const auto has_runtime = [&](const std::string& library) {
      return HasCudaRuntime(fs::path(directory) / library);
    };
    const auto found = std::ranges::find_if(package.libraries, has_runtime);
    const bool is_imported = std::ranges::any_of(
        package.top_names, [&](const std::string& top) { return imported.contains(top); });
    if (found != package.libraries.end()) {
      findings.push_back(
          RuntimeIn(name, "has NVIDIA's CUDA runtime in it (" + *found + ")", is_imported));
      continue;
    }
    const LibraryBelow below = package.libraries.empty()
                                   ? LibraryBelow()
                                   : FindLibraryBelow(facts / "METADATA", installed);
    if (below.package.empty()) continue;
    if (below.is_part) {
      findings.push_back(Note(
          "package", name + " loads " + below.package + ", which works only with NVIDIA's driver",
          "what it does through that library fails with the drop-in; the rest works"));
      continue;
    }
    // The name of a plugin begins with that of the package that loads the plugin.
    const bool is_plugin = std::ranges::any_of(
        imported, [&](const std::string& top) { return name.starts_with(top + "_"); });
    findings.push_back(
        RuntimeIn(name, "works through " + below.package + ", which needs NVIDIA's CUDA runtime",
                  is_imported || is_plugin));
  }
  return findings;
}

}  // namespace gpushared::server::doctor

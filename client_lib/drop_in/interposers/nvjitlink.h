// SPDX-License-Identifier: Apache-2.0
// nvJitLink's functions for devices that load PTX. The result of a link is PTX. The real library
// performs links of LTO-IR, with the option to produce PTX; other links do not need the library.
//
// Thread-safe. A null pointer is an error; a handle that Create did not return is not detected, as
// in the real library.

#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_INTERPOSERS_NVJITLINK_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_INTERPOSERS_NVJITLINK_H_

#include <cstddef>
#include <cstdint>

namespace gpushared::drop_in {

// nvJitLinkResult.
inline constexpr int kSucceeded = 0;
inline constexpr int kInvalidInput = 3;
inline constexpr int kPtxRejected = 4;
inline constexpr int kFailed = 6;
inline constexpr int kNoRealLibrary = kFailed;
inline constexpr int kUnrecognizedInput = 8;
inline constexpr int kNullInput = 10;
inline constexpr int kLtoNotEnabled = 18;

struct JitLink;  // Target of a program's nvJitLinkHandle.

int Create(JitLink** link, std::uint32_t option_count, const char** options);
int Destroy(JitLink** link);
int AddData(JitLink* link, int type, const void* data, std::size_t bytes, const char* name);
int AddFile(JitLink* link, int type, const char* path);
int Complete(JitLink* link);
// Return the linked PTX, even if machine code was requested. The size includes a NUL.
int GetImageSize(JitLink* link, std::size_t* bytes);
int GetImage(JitLink* link, void* image);
int GetLinkedLTOIRSize(JitLink* link, std::size_t* bytes);
int GetLinkedLTOIR(JitLink* link, void* ltoir);
int GetErrorLogSize(JitLink* link, std::size_t* bytes);
int GetErrorLog(JitLink* link, char* log);
int GetInfoLogSize(JitLink* link, std::size_t* bytes);
int GetInfoLog(JitLink* link, char* log);

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_INTERPOSERS_NVJITLINK_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_STATE_SAVE_CLIENT_H_
#define GPUSHARED_SERVER_WORKER_STATE_SAVE_CLIENT_H_

#include <cstdint>

#include "gpushared/status.h"

#include "server/worker/state/client_state.h"
#include "server/worker/state/saved_client.h"

namespace gpushared::server {

// Returns why the client cannot be moved in its current state.
Status CheckMove(const ClientState& client);
// Requires a client without unfinished commands for which CheckMove succeeds. Leaves out what only
// the parts of the device thread know: last_sleep, last_request, has_marked_requests.
SavedClient Save(const ClientState& client);
// Gives a new client the saved state. `mapped_bytes`: size of its memory. The client is unusable
// after an error.
Status Restore(const SavedClient& saved, std::uint64_t mapped_bytes, ClientState& client);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATE_SAVE_CLIENT_H_
